//! Clients that are limited to a directory: which, and by whose word; that they name what is outside, too; and that one whose directory is
//! gone makes room for another. With dice of their own.
//!
//! Absent: what they may have (`judge/limits.rs`).

use super::Ranks;
use super::event::Event;
use super::judge::Guest;
use crate::model::judge::Verdict;
use crate::model::tree::Node;
use crate::workload::Knowledge;
use mds::input::ConnId;
use proto::{Ino, NodeRef};
use std::collections::BTreeMap;
use stdx::time::SECOND;

/// The first of them waits until there are so many besides the root.
const DIRECTORIES: usize = 2;
/// One call of so many may name anything that there is.
const OUTSIDE_ONE_IN: u64 = 6;
/// Whose directory is gone asks so many times more.
const NOWHERE_CALLS: u64 = 8;

/// Whose word it is that a client is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    /// Its own, in each greeting.
    Wish,
    /// The server's, for each connection.
    Decision,
    Both,
}

/// A client that is limited.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limited {
    pub(super) guest: Guest,
    word: Word,
}

impl Limited {
    /// What it says of itself.
    pub(super) fn wish(limited: Option<Self>) -> Ino {
        let says = limited.filter(|limited| limited.word != Word::Decision);
        says.map_or(Ino::NONE, |limited| limited.guest.limit)
    }

    /// What its connections are limited to.
    pub(super) fn decided(self) -> Option<Ino> {
        (self.word != Word::Wish).then_some(self.guest.limit)
    }

    /// What a client begins with, limited or not.
    pub(super) fn knowledge(limited: Option<Self>) -> Knowledge {
        let root = limited.map(|limited| limited.guest.limit);
        let places = root.into_iter().map(|dir| (dir, NodeRef::bare(dir))).collect();
        Knowledge { root, places, ..Knowledge::default() }
    }
}

impl Ranks {
    /// The directories that there are besides the root.
    fn directories(&self) -> impl Iterator<Item = &Node> {
        let all = self.judge.tree().nodes.values().map(std::rc::Rc::as_ref);
        all.filter(|node| node.is_dir() && node.ino != Ino::ROOT)
    }

    pub(super) fn has_directories(&self) -> bool {
        self.directories().nth(DIRECTORIES - 1).is_some()
    }

    /// To what a client is limited from its birth on: mostly a directory with names. None: it is not, or there is nothing yet.
    pub(super) fn limited_to(&mut self, client: usize, birth: u64) -> Option<Limited> {
        if !self.plan.is_limited(client) {
            return None;
        }
        let full = self.limits.chance(3, 4);
        let has_names = |node: &&Node| !full || !node.entries.is_empty();
        let mut dirs: Vec<Ino> = self.directories().filter(has_names).map(|node| node.ino).collect();
        if dirs.is_empty() {
            dirs = self.directories().map(|node| node.ino).collect();
        }
        let limit = *dirs.get(self.limits.index(dirs.len()))?;
        let word = [Word::Wish, Word::Decision, Word::Both][self.limits.index(3)];
        Some(Limited { guest: Guest { client, birth, limit }, word })
    }

    /// All ranks serve for the first time: a client begins.
    pub(super) fn client_begins(&mut self, client: usize) -> Verdict {
        if self.plan.is_limited(client) {
            self.client_starts_anew(client)
        } else {
            self.client_starts(client)
        }
    }

    /// A rank tells whoever greets it which directory is his root.
    pub(super) fn check_root(&self, conn: ConnId, root: Ino) -> Verdict {
        let Some(at) = self.conns.get(&conn) else { return Ok(()) };
        let wanted = at.guest.map_or(Ino::ROOT, |guest| guest.limit);
        if root == wanted {
            return Ok(());
        }
        Err(format!("rank {} says that {} is the root, and not {}", at.rank.0, root.0, wanted.0))
    }

    /// There is no directory yet, or none any more, to which a client could be limited.
    pub(super) fn waits_for_directories(&mut self, client: usize) {
        let slot = &mut self.clients[client];
        slot.machine = None;
        if self.phase == super::Phase::Heal {
            // None will be made.
            slot.closed = true;
            return;
        }
        let at = self.now + 1 + self.limits.below(SECOND);
        self.at(at, Event::ClientStarts { client });
    }

    /// Whether a client's directory is gone, for long enough.
    pub(super) fn is_nowhere(&mut self, client: usize) -> bool {
        let Some(limited) = self.clients[client].limited else { return false };
        let gone = self.judge.tree().node(limited.guest.limit).is_none();
        gone && self.limits.chance(1, NOWHERE_CALLS)
    }

    /// Now and then a client that is limited names anything, as somebody does who knows all numbers.
    pub(super) fn knows_all(&mut self, client: usize) -> Option<Knowledge> {
        self.clients[client].limited?;
        if !self.limits.chance(1, OUTSIDE_ONE_IN) {
            return None;
        }
        let place = |node: &Node| {
            let (parent, hash) = node.home;
            if node.ino == Ino::ROOT {
                NodeRef::bare(Ino::ROOT)
            } else {
                NodeRef { ino: node.ino, parent, hash }
            }
        };
        let nodes = self.judge.tree().nodes.iter();
        let places: BTreeMap<Ino, NodeRef> = nodes.map(|(ino, node)| (*ino, place(node))).collect();
        Some(Knowledge { places, ..Knowledge::default() })
    }
}
