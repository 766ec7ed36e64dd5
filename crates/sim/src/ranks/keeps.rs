//! What clients keep of what ranks grant them, wherever a rank has it from: at each entry of history nobody keeps what it changes but its
//! author's client, which drops it (invariant 12, exclusion); and nobody keeps pages of what somebody else has just opened for writing.
//! Attributes and names are kept until they run out or are recalled, over crashes, cut connections, moves and transactions of several ranks.
//!
//! Absent: what is in pages; what clients that are answered early know of their own, which is more than history (`judge/seen.rs`); kernels
//! that take their time, and what answers on their way are worth (`crate::world::kernel`, which throws dice for it: here there are none).

use super::Ranks;
use super::judge::{Changed, Judge};
use crate::model::judge::{Verdict, same_attr};
use crate::model::tree::Tree;
use crate::world::kernel::{Place, carried};
use client::Validity;
use proto::caps::{Bits, KEEP_MARGIN_MS, Recalled};
use proto::ids::SessionId;
use proto::reply::Outcome;
use proto::request::Request;
use proto::{Attr, Ino, every_request};
use std::collections::{BTreeMap, BTreeSet};
use stdx::time::MS;

/// Kernels count from when an answer came: as long as the longest may.
const MARGIN_NS: u64 = KEEP_MARGIN_MS * MS - 1;

/// What one client keeps.
#[derive(Default)]
pub(super) struct Keeps {
    /// Until when.
    attrs: BTreeMap<Ino, (Attr, u64)>,
    names: BTreeMap<Place, (Ino, u64)>,
    /// Files of which pages may be kept, as long as attributes are.
    pages: BTreeSet<Ino>,
    /// The stamps of the last recall of an inode, and of the last loss of everything.
    recalled: BTreeMap<Ino, u64>,
    lost: u64,
    /// Those that it has, and has had.
    sessions: BTreeSet<SessionId>,
    /// When, and for which call, its own session changed an inode last.
    own: BTreeMap<Ino, (u64, Option<u64>)>,
}

impl Keeps {
    /// It has that session. What it was granted in a former one it keeps, too.
    pub(super) fn enters(&mut self, session: Option<SessionId>) {
        self.sessions.extend(session);
    }

    /// Everything under a lower stamp is lost: pages at once, the rest runs out.
    pub(super) fn lose(&mut self, stamp: u64) {
        self.lost = self.lost.max(stamp);
        self.pages.clear();
    }

    /// Takes an answer in, to a call that began then. How many attributes, and names, it keeps of it.
    fn take(
        &mut self,
        (request, outcome): (&Request, &Outcome),
        validity: &Validity,
        (call, begun): (u64, u64),
        now: u64,
    ) -> (u64, u64) {
        let (mut attrs, mut names) = (0, 0);
        let until = validity.until.0 + MARGIN_NS;
        for (at, attr, name) in carried(request, outcome) {
            let is_void = self.lost > validity.stamp
                || self.recalled.get(&attr.ino).is_some_and(|last| *last > validity.stamp);
            let is_outdated =
                self.own.get(&attr.ino).is_some_and(|(when, of)| *when >= begun && *of != Some(call));
            let bits = validity.grants.of(at);
            if bits.has(Bits::FC) && !is_void {
                self.pages.insert(attr.ino);
            }
            if is_void || is_outdated || until <= now || !bits.has(Bits::ATTRS) {
                continue;
            }
            attrs += 1;
            self.attrs.insert(attr.ino, (attr, until));
            // A name in `//links` is nobody's, and a second name is not where the inode is.
            if let Some(place) = name.filter(|(dir, _)| *dir == attr.parent && *dir != Ino::LINKS) {
                names += 1;
                self.names.insert(place, (attr.ino, until));
            }
        }
        (attrs, names)
    }

    fn drop_recalled(&mut self, stamp: u64, recalled: &Recalled) -> bool {
        let last = self.recalled.entry(recalled.ino).or_default();
        *last = (*last).max(stamp);
        let mut had = false;
        if !recalled.bits.and(Bits::ATTRS).is_empty() {
            had |= self.attrs.remove(&recalled.ino).is_some();
        }
        if recalled.bits.has(Bits::FC) {
            had |= self.pages.remove(&recalled.ino);
        }
        if recalled.bits.has(Bits::LS)
            && let Some((dir, name)) = &recalled.name
        {
            had |= self.names.remove(&(*dir, name.as_bytes().into())).is_some();
        }
        had
    }

    /// Its own client has changed an inode, or has asked for that: its kernel drops what it knows of it.
    fn changes(&mut self, ino: Ino, call: Option<u64>, now: u64) {
        self.own.insert(ino, (now, call));
        self.attrs.remove(&ino);
        self.names.retain(|_, (of, _)| *of != ino);
    }

    fn keeps_pages(&self, ino: Ino, now: u64) -> bool {
        self.pages.contains(&ino) && self.attrs.get(&ino).is_some_and(|(_, until)| *until > now)
    }

    /// What is kept of these inodes, and has not run out, is as it is now.
    fn check<'a>(&self, tree: &Tree, mut of: impl Iterator<Item = &'a Ino>, now: u64) -> Verdict {
        of.try_for_each(|ino| {
            if let Some((attr, _)) = self.attrs.get(ino).filter(|(_, until)| *until > now) {
                match tree.node(*ino) {
                    Some(node) => same_attr(&tree.attr(node), attr)?,
                    None if attr.nlink == 0 => {}
                    None => return Err(format!("inode {} is gone", ino.0)),
                }
            }
            let names = self.names.iter().filter(|(_, (of, until))| of == ino && *until > now);
            for ((dir, name), _) in names {
                let found = tree.node(*dir).and_then(|node| node.entries.get(&name[..]));
                if found != Some(ino) {
                    return Err(format!("{}/{} leads to {found:?}, not to it", dir.0, name.escape_ascii()));
                }
            }
            Ok(())
        })
    }
}

/// Whether it asks that an inode's times be set, which two ranks do one after the other if it is a boundary.
fn sets(request: &Request, ino: Ino) -> bool {
    match request {
        Request::SetAttr { node, .. } => node.ino == ino,
        every_request!() => false,
    }
}

/// Whether it changes nothing, nor opens anything.
fn looks(request: &Request) -> bool {
    match request {
        Request::GetAttr { .. } | Request::Lookup { .. } | Request::ReadDir { .. } => true,
        every_request!() => false,
    }
}

impl Ranks {
    /// An answer reaches a client's edge; it is to a call that began then.
    pub(super) fn keeps(
        &mut self,
        client: usize,
        asked: (&Request, &Outcome),
        validity: &Validity,
        begun: (u64, u64),
    ) {
        let is_eager = self.plan.is_eager(client);
        let slot = &mut self.clients[client];
        slot.keeps.enters(slot.session());
        if is_eager && !looks(asked.0) {
            // What it was told of its own is in no history yet.
            return Judge::inos_of(asked).for_each(|ino| slot.keeps.changes(ino, None, self.now));
        }
        let (attrs, names) = slot.keeps.take(asked, validity, begun, self.now);
        (0..attrs).for_each(|_| self.coverage.count("attributes kept"));
        (0..names).for_each(|_| self.coverage.count("names kept"));
    }

    /// What was recalled is dropped.
    pub(super) fn drops(&mut self, client: usize, stamp: u64, list: &[Recalled]) {
        for recalled in list {
            if self.clients[client].keeps.drop_recalled(stamp, recalled) {
                self.coverage.count("recalls of what was kept");
            }
        }
    }

    /// Entries of history have changed something. The state is that after all of them: first goes what each client has changed itself.
    pub(super) fn judge_keeping(&mut self) -> Verdict {
        let (all, opened) = (std::mem::take(&mut self.judge.changed), std::mem::take(&mut self.judge.opened));
        if all.is_empty() && opened.is_empty() {
            return Ok(());
        }
        for (number, slot) in self.clients.iter_mut().enumerate().filter(|(_, slot)| slot.machine.is_some()) {
            slot.keeps.enters(slot.session());
            for Changed { author, call, inos } in &all {
                let is_own = author.is_some_and(|author| slot.keeps.sessions.contains(&author));
                let asks = |ino| slot.busy.values().any(|busy| sets(&busy.asked.request, ino));
                for ino in inos.iter().filter(|ino| is_own || asks(**ino)) {
                    slot.keeps.changes(*ino, call.filter(|_| is_own), self.now);
                }
            }
            for Changed { author, inos, .. } in &all {
                let unsure =
                    |ino: &&Ino| slot.keeps.sessions.iter().any(|of| self.judge.is_unsure(*of, **ino));
                slot.keeps
                    .check(self.judge.tree(), inos.iter().filter(|ino| !unsure(ino)), self.now)
                    .map_err(|error| {
                        format!("session {author:?} changes what client {number} keeps: {error}")
                    })?;
            }
            let others = opened.iter().filter(|(session, _)| !slot.keeps.sessions.contains(session));
            for (session, ino) in others {
                if slot.keeps.keeps_pages(*ino, self.now) {
                    let why = "for writing, of which it keeps pages";
                    return Err(format!(
                        "session {} opens inode {} {why}: client {number}",
                        session.0, ino.0
                    ));
                }
            }
        }
        Ok(())
    }
}
