//! Inodes that are open or locked here and were not cached when this rank heard of it: what clients reclaimed, and what came with a move.
//! Before anything moves they are looked for, where they were seen last: it must be known whether they are below.
//!
//! Absent: the search (`search.rs`).

use crate::op::OpId;
use crate::output::Output;
use crate::rank::Rank;
use proto::request::Request;
use proto::{Ino, NameHash, NodeRef};
use std::collections::{BTreeMap, BTreeSet};
use stdx::{Now, Outbox};

/// So many are looked for at a time.
const AT_ONCE: usize = 64;
/// Entries beyond which those that nobody has open or locked any more are looked for.
const SWEPT_FROM: usize = 1_024;

/// Where they were seen.
#[derive(Debug, Default)]
pub(crate) struct Unseen {
    at: BTreeMap<Ino, (Ino, NameHash)>,
    /// Those that are not looked for yet, for the move under way.
    next: Option<Ino>,
    searches: BTreeSet<OpId>,
    /// Entries at which it is swept.
    sweep_at: usize,
}

impl Unseen {
    /// A request that the rank asked itself is over.
    pub(crate) fn searched(&mut self, op: OpId) {
        self.searches.remove(&op);
    }

    /// Its move is over: whatever is under way ends by itself.
    pub(super) fn give_up(&mut self) {
        self.next = None;
        self.searches.clear();
    }
}

impl Rank {
    /// Somebody has that inode open or locked.
    pub(crate) fn seen_at(&mut self, node: NodeRef) {
        if node.parent == Ino::NONE || self.view.cache.by_ino(node.ino).is_some() {
            return;
        }
        if self.moves.unseen.at.len() >= self.moves.unseen.sweep_at.max(SWEPT_FROM) {
            let (files, locks) = (&self.view.files, &self.view.locks);
            self.moves.unseen.at.retain(|ino, _| files.get(*ino).is_some() || locks.is_locked(*ino));
            self.moves.unseen.sweep_at = 2 * self.moves.unseen.at.len();
        }
        self.moves.unseen.at.insert(node.ino, (node.parent, node.hash));
    }

    /// Looks for the next ones; true when all have been looked for. What was not found is not here, or holds the move up.
    pub(super) fn seek_unseen(&mut self, now: Now, out: &mut Outbox<Output>) -> bool {
        if stdx::mutant!("mds_unseen_not_sought") {
            return true;
        }
        for _ in 0..AT_ONCE {
            if self.moves.unseen.searches.len() >= AT_ONCE {
                return false;
            }
            let unseen = &mut self.moves.unseen;
            let from = unseen.next.unwrap_or(Ino(0));
            let Some((ino, (parent, hash))) = unseen.at.range(from..).next().map(|(ino, at)| (*ino, *at))
            else {
                return unseen.searches.is_empty();
            };
            unseen.next = Some(Ino(ino.0 + 1));
            unseen.at.remove(&ino);
            let held = self.view.files.get(ino).is_some() || self.view.locks.is_locked(ino);
            if !held || self.view.cache.by_ino(ino).is_some() {
                continue;
            }
            // It gives nothing back, and finds out whether the inode is this rank's, as every Release does.
            let request = Request::Release { node: NodeRef { ino, parent, hash }, count: 0 };
            let mut op = self.own_op(request, now.mono);
            self.moves.unseen.searches.insert(op.id);
            self.run(now, &mut op, out);
        }
        false
    }
}
