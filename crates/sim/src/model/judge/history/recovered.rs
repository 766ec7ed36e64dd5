//! What a crash took back, and what of a record the rules leave open.
//!
//! Absent: transactions as they are made (`history.rs`).

use crate::model::judge::{Judge, Verdict};
use crate::model::records::{Key, Record, Records, Undo};
use crate::model::tree::{ACL_PREFIX, Tree};
use proto::Ino;
use proto::dentry::DentryValue;
use proto::ids::{Position, SessionId};
use proto::inode::{InodeRecord, Rules, flags};
use std::rc::Rc;
use stdx::Wall;

impl Judge {
    /// The rank restarts on a journal that ends at `end`: what lies behind never happened.
    ///
    /// # Errors
    /// A durable position lies behind the end.
    pub fn recovered(&mut self, end: Position) -> Verdict {
        // A flipped bit may hit the last mark, which nothing vouches for.
        let marks = self.excuses.io && self.log.back().is_none_or(|(_, last, _)| *last <= end);
        if end < self.durable && !marks && !self.excuses.at_rest {
            return Err(format!("the journal ends at {} but {} was durable", end.0, self.durable.0));
        }
        while self.undo.back().is_some_and(|(position, _)| *position > end) {
            if let Some((_, undo)) = self.undo.pop_back() {
                self.records.revert(undo);
            }
        }
        while self.states.len() > 1 && self.states.back().is_some_and(|state| state.end > end) {
            let Some(gone) = self.states.pop_back() else { break };
            self.lost.extend(gone.tree.nodes.keys());
            let kept = self.tree().names();
            let names = gone.tree.names();
            self.displaced.extend(
                names.iter().filter(|(ino, names)| kept.get(ino) != Some(names)).map(|(ino, _)| *ino),
            );
        }
        while self.log.back().is_some_and(|(_, last, _)| *last > end) {
            self.log.pop_back();
        }
        self.end = end;
        self.durable = self.durable.min(end);
        self.durable(end);
        self.recovered_promises(end);
        self.recovered_trust(end);
        self.ended_at.retain(|_, at| *at <= end);
        self.evicted_at.retain(|_, at| *at <= end);
        for (session, at) in &self.evicted_at {
            self.ended_at.entry(*session).or_insert(*at);
        }
        self.synced_at.clear();
        self.recovered_at = self.tick();
        for position in self.touched.values_mut().chain(self.told.values_mut()) {
            *position = (*position).min(end);
        }
        self.copies_end(|_| true);
        let last = self.last();
        for pending in self.pending.values_mut() {
            if pending.executed.as_ref().is_some_and(|executed| executed.end > end) {
                pending.executed = None;
            }
            pending.first = pending.first.min(last);
            pending.need = pending.need.min(end);
        }
        self.rewriting.clear();
        let tree = self.tree().clone();
        self.bytes.retain(|ino, _| tree.node(*ino).is_some());
        for (ino, bytes) in &mut self.bytes {
            bytes.crash(tree.node(*ino).map_or(0, |node| node.size), end.0);
        }
        Ok(())
    }

    /// A copy under way has read its source at some moment until now.
    fn copies_end(&mut self, of: impl Fn(SessionId) -> bool) {
        let theirs = self.pending.iter_mut().filter(|((owner, _), _)| of(*owner));
        let landings: Vec<_> = theirs.filter_map(|(_, pending)| pending.landing.take()).collect();
        for mut landing in landings {
            self.copied_meanwhile(&mut landing);
        }
    }

    /// The requests of the embedded client die with the rank.
    pub fn embedded_died(&mut self, session: SessionId) {
        self.copies_end(|owner| owner == session);
        self.pending.retain(|(owner, _), _| *owner != session);
        self.session_over(session);
    }
}

/// Takes from the records what the rules leave open: generations, ACLs and the mode they decide, the
/// times of an operation that need not change them.
pub(crate) fn adopt(tree: &mut Tree, records: &Records, undo: &Undo, times: Option<Wall>) {
    for (key, _) in undo {
        let Some(record) = records.0.get(key) else { continue };
        if let Some(DentryValue::Primary(inode)) = record.dentry.as_deref() {
            adopt_inode(tree, inode, times);
        }
        adopt_place(tree, key, record, records);
    }
}

/// Where an inode's record is, and the counters: what the rank tells of them is compared with its own records, and that these are
/// where they belong and never go back is looked at elsewhere (`compare.rs`, `fresh_versions`).
pub(crate) fn adopt_place(tree: &mut Tree, key: &Key, record: &Record, records: &Records) {
    let known = |ino: Ino| tree.node(ino).is_some();
    match (key, record.dentry.as_deref(), &record.header) {
        (Key::Dentry { dir, hash, .. }, Some(DentryValue::Primary(inode)), _) if known(inode.core.ino) => {
            let node = tree.change(inode.core.ino);
            (node.home, node.change) = ((*dir, *hash), inode.core.change);
            if node.newborn && records.header(node.ino).is_none() {
                node.listing = 1;
            }
        }
        (Key::Header { dir, .. }, _, Some(_)) if known(*dir) => {
            let listing = records.totals(*dir).map(|header| header.change);
            let node = tree.change(*dir);
            node.listing = listing.unwrap_or(node.listing);
        }
        _ => {}
    }
}

fn adopt_inode(tree: &mut Tree, inode: &InodeRecord, times: Option<Wall>) {
    let core = &inode.core;
    let Some(node) = tree.node(core.ino) else { return };
    let inherits = tree.node(node.parent).is_some_and(|dir| dir.has_acl());
    let node = tree.change(core.ino);
    node.generation = core.generation;
    node.atime = core.atime;
    node.cuts = core.truncate_seq;
    let flagged = |flag: u32| core.flags & flag != 0;
    (node.placed, node.newborn) = (flagged(flags::SLOTS), flagged(flags::NEWBORN));
    // That it takes what it should is looked at where it is made (`ranks/judge/placing.rs`).
    node.policies.taken = inode.ext.as_deref().map_or_else(Rules::default, |ext| ext.policies.taken);
    let acls = |name: &[u8]| name.starts_with(ACL_PREFIX);
    node.xattrs.retain(|name, _| !acls(name));
    for (name, value) in inode.ext.as_deref().map_or(&[][..], |ext| &ext.xattrs) {
        if acls(name) {
            node.xattrs.insert(Rc::from(&name[..]), Rc::from(&value[..]));
        }
    }
    let differs = node.mode ^ core.mode;
    // Dropping setuid and setgid more often than needed is allowed; setting them is not.
    if node.has_acl() || inherits || (differs & !0o6000 == 0 && core.mode & differs == 0) {
        node.mode = core.mode;
    }
    if let Some(wall) = times {
        if core.mtime == wall {
            node.mtime = wall;
        }
        if core.ctime == wall {
            node.ctime = wall;
        }
    }
}
