//! What clients keep, against the present state: what a cache answers must be what the rank would answer now.
//!
//! Absent: who keeps what, and until when (`world/kernel.rs`).

use super::replies::same_attr;
use super::{Judge, Verdict};
use crate::model::tree::Tree;
use proto::ids::{SessionId, Tid};
use proto::{Attr, Ino};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::rc::Rc;

/// What one transaction changed of what clients are told.
#[derive(Clone, Debug)]
pub struct Changed {
    /// When, by the judge's clock.
    pub number: u64,
    /// Whose request it answers.
    pub author: Option<(SessionId, Tid)>,
    /// Inodes with other attributes, or none any more, and those that lost a name.
    pub inos: BTreeSet<Ino>,
    /// Its author's client had all that from what it was told before.
    pub told: bool,
}

/// The inodes of which one of two states tells something else than the other, and those that lost a name.
pub(crate) fn differing(before: &Tree, after: &Tree) -> BTreeSet<Ino> {
    let differs = |ino: &Ino| match (before.nodes.get(ino), after.nodes.get(ino)) {
        (Some(old), Some(new)) if Rc::ptr_eq(old, new) => false,
        (Some(old), Some(new)) => same_attr(&before.attr(old), &after.attr(new)).is_err(),
        // What nobody has open and no name leads to may go at any time.
        (Some(old), None) => old.is_dir() || old.nlink > 0,
        (None, _) => false,
    };
    // A directory's links are counted by what lies in it, so its own record says all.
    let mut inos: BTreeSet<Ino> = before.nodes.keys().filter(|ino| differs(ino)).copied().collect();
    for (ino, old) in before.nodes.iter().filter(|(_, old)| old.is_dir()) {
        let new = after.nodes.get(ino);
        if new.is_some_and(|new| Rc::ptr_eq(old, new)) {
            continue;
        }
        let stays = |name: &Rc<[u8]>, ino: &Ino| new.is_some_and(|new| new.entries.get(name) == Some(ino));
        let lost = old.entries.iter().filter(|(name, ino)| !stays(name, ino));
        inos.extend(lost.map(|(_, ino)| *ino));
    }
    inos
}

/// The present state as one client is to see it: with what it was told and is still to come.
pub struct Sight<'a> {
    judge: &'a Judge,
    tree: Cow<'a, Tree>,
    /// It was told what did not come about, and may not have heard of that.
    blind: bool,
}

impl Sight<'_> {
    /// Attributes that the client keeps.
    ///
    /// # Errors
    /// The rank would answer others.
    pub fn attr(&self, attr: &Attr) -> Verdict {
        match self.tree.node(attr.ino) {
            _ if self.blind => Ok(()),
            Some(node) => {
                let is = self.tree.attr(node);
                same_attr(&is, &self.judge.as_cut(attr, &is))
            }
            None if attr.nlink == 0 => Ok(()),
            None => Err(format!("inode {} is gone", attr.ino.0)),
        }
    }

    /// Whether a name leads there.
    #[must_use]
    pub fn leads(&self, dir: Ino, name: &[u8], ino: Ino) -> bool {
        self.tree.node(dir).and_then(|node| node.entries.get(name)) == Some(&ino)
    }

    /// A name that it keeps.
    ///
    /// # Errors
    /// It leads nowhere, or to another inode.
    pub fn name(&self, dir: Ino, name: &[u8], ino: Ino) -> Verdict {
        if self.blind || self.leads(dir, name, ino) {
            return Ok(());
        }
        let found = self.tree.node(dir).and_then(|node| node.entries.get(name));
        let found = found.map_or(0, |found| found.0);
        Err(format!("{}/{} leads to {found} instead of {}", dir.0, name.escape_ascii(), ino.0))
    }
}

impl Judge {
    /// What the client of a session is to see.
    #[must_use]
    pub fn sight(&self, session: Option<SessionId>) -> Sight<'_> {
        let blind = session.is_some_and(|session| self.spoiled.contains(&session));
        Sight { judge: self, tree: self.seen_by(session), blind }
    }

    /// The bytes that a client keeps of a file, which it has asked for from `offset` on.
    ///
    /// # Errors
    /// A read would answer others.
    pub fn kept_bytes(
        &mut self,
        session: Option<SessionId>,
        ino: Ino,
        (offset, len): (u64, u32),
        bytes: &[u8],
    ) -> Verdict {
        // A file without a name, which nobody has open, may go at any time.
        let Some(size) = self.seen_by(session).node(ino).map(|node| node.size) else { return Ok(()) };
        let wanted = u64::from(len).min(size.saturating_sub(offset));
        if bytes.len() as u64 != wanted {
            return Err(format!("{} bytes of inode {} instead of {wanted}", bytes.len(), ino.0));
        }
        let now = self.tick();
        self.check_read(ino, offset, bytes, now)
    }

    /// Another session that has the file open for writing.
    #[must_use]
    pub fn other_writer(&self, ino: Ino, session: SessionId) -> Option<SessionId> {
        let other = |(owner, at): &&(SessionId, Ino)| *at == ino && *owner != session;
        self.writers.iter().find(other).map(|(owner, _)| *owner)
    }

    /// Whether a session has a file open for writing.
    #[must_use]
    pub fn is_writer(&self, session: SessionId, ino: Ino) -> bool {
        self.writers.contains(&(session, ino))
    }
}
