//! Inodes that are open or locked here and were not cached when this rank heard of it: what clients reclaimed, and what came with a move.
//! Before anything moves they are looked for, where they were seen last: it must be known whether they are below.
//!
//! Absent: the search (`search.rs`).

use super::below::Slice;
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

    /// Looks for the next ones, until all have been looked for. What was not found is not here, or holds the move up.
    pub(super) fn seek_unseen(&mut self, now: Now, out: &mut Outbox<Output>) -> Slice<()> {
        if stdx::mutant!("mds_unseen_not_sought") {
            return Slice::Done;
        }
        for _ in 0..AT_ONCE {
            if self.moves.unseen.searches.len() >= AT_ONCE {
                return Slice::Wait;
            }
            let unseen = &mut self.moves.unseen;
            let from = unseen.next.unwrap_or(Ino(0));
            let Some((ino, (parent, hash))) = unseen.at.range(from..).next().map(|(ino, at)| (*ino, *at))
            else {
                return if unseen.searches.is_empty() { Slice::Done } else { Slice::Wait };
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
        // There may be many that nobody has open any more, and for which nothing is looked for: no answer would bring the next step.
        if stdx::mutant!("mds_unseen_waits_for_nothing") { Slice::Wait } else { Slice::More(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::World;
    use stdx::{Mono, Wall};

    /// What broke: with nothing to look for there was no answer to wait for, and no next step. The move took too long, and a directory
    /// that was empty could not be removed.
    fn closed_since() {
        let mut world = World::new();
        let now = Now { mono: Mono(world.now), wall: Wall::default() };
        for at in 0..200 {
            world.rank.moves.unseen.at.insert(Ino(5_000 + at), (Ino::ROOT, NameHash(at)));
        }
        let mut out = Outbox::default();
        let mut slices = 0;
        while let Slice::More(()) = world.rank.seek_unseen(now, &mut out) {
            slices += 1;
        }
        assert_eq!((slices, world.rank.moves.unseen.at.len()), (3, 0), "each slice is followed by the next");
    }

    #[test]
    fn what_was_closed_since_holds_nothing_up() {
        closed_since();
    }

    #[cfg(feature = "mutants")]
    #[test]
    fn a_wait_for_nothing_is_caught() {
        stdx::mutant::activate(Some("mds_unseen_waits_for_nothing"));
        let verdict = std::panic::catch_unwind(closed_since);
        stdx::mutant::activate(None);
        assert!(verdict.is_err());
    }
}
