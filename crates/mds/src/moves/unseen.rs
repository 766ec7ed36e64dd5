//! Inodes that are open or locked here, and of which the cache does not say where they are: what clients reclaimed, what came with a
//! move, and what was asked for by where a client saw it, so that the directories above it are not cached. Before anything moves they are
//! looked for, where they were seen last, and then what is above them: it must be known whether they are below.
//!
//! Absent: the search (`search.rs`).

use super::below::{InUse, Slice};
use crate::op::{Op, OpId};
use crate::output::Output;
use crate::rank::Rank;
use crate::territory::{Below, Part};
use proto::request::Request;
use proto::{Ino, NameHash, NodeRef, SessionId};
use std::collections::{BTreeMap, BTreeSet};
use stdx::{Now, Outbox};

/// So many are looked for at a time.
const AT_ONCE: usize = 64;
/// Entries beyond which those that nobody has open or locked any more are looked for.
const SWEPT_FROM: usize = 1_024;

/// None: there is no greater number.
fn after(ino: Ino) -> Option<Ino> {
    ino.0.checked_add(1).map(Ino)
}

/// Where they were seen, and how far the look for them is that a move waits for.
#[derive(Debug, Default)]
pub(crate) struct Unseen {
    at: BTreeMap<Ino, (Ino, NameHash)>,
    /// Where those were that were looked for because something was to come, or are locked and may leave the cache.
    places: BTreeMap<Ino, (Ino, NameHash)>,
    /// Entries at which it is swept.
    sweep_at: usize,
    /// What is looked through next; none: nothing yet.
    next: Option<InUse>,
    /// Those that are looked at once more, and those that are when all that was asked for has come.
    round: Vec<Ino>,
    again: Vec<Ino>,
    /// Inodes that were looked for.
    sought: BTreeSet<Ino>,
    searches: BTreeMap<OpId, Ino>,
    /// Something is about to come here: nothing may be claimed of it that nobody has.
    settling: bool,
    /// Looked for because of that.
    claims: BTreeSet<OpId>,
}

impl Unseen {
    /// A request that the rank asked itself is over.
    pub(crate) fn searched(&mut self, op: OpId) {
        self.searches.remove(&op);
        self.claims.remove(&op);
    }

    /// Whether more can be looked for of what is claimed.
    pub(super) fn is_settling(&self) -> bool {
        self.settling && self.claims.len() < AT_ONCE
    }

    /// Whether that is such a request.
    pub(crate) fn is_search(&self, op: OpId) -> bool {
        self.searches.contains_key(&op) || self.claims.contains(&op)
    }

    /// The look is over, or its move: whatever is under way ends by itself.
    pub(super) fn give_up(&mut self) {
        self.next = None;
        self.round.clear();
        self.again.clear();
        self.sought.clear();
        self.searches.clear();
    }
}

impl Rank {
    /// Somebody has that inode open or locked.
    pub(crate) fn seen_at(&mut self, node: NodeRef) {
        if node.parent == Ino::NONE || self.view.cache.by_ino(node.ino).is_some() {
            return;
        }
        self.sweep_unseen();
        self.moves.unseen.at.insert(node.ino, (node.parent, node.hash));
    }

    fn sweep_unseen(&mut self) {
        let unseen = &mut self.moves.unseen;
        if unseen.at.len() + unseen.places.len() < unseen.sweep_at.max(SWEPT_FROM) {
            return;
        }
        let (files, locks) = (&self.view.files, &self.view.locks);
        let is_held = |ino: &Ino, _: &mut _| files.get(*ino).is_some() || locks.is_locked(*ino);
        unseen.at.retain(is_held);
        unseen.places.retain(is_held);
        unseen.sweep_at = 2 * (unseen.at.len() + unseen.places.len());
    }

    /// Somebody has locked that inode. What is open stays in the cache, and what is not may leave it.
    pub(crate) fn locked_at(&mut self, node: NodeRef) {
        let is_pinned = self.view.files.get(node.ino).is_some();
        if self.view.territory.is_only() || is_pinned || stdx::mutant!("mds_nowhere_is_elsewhere") {
            return;
        }
        let cache = &self.view.cache;
        let place = match cache.by_ino(node.ino) {
            Some(slot) => (cache.parent_of(slot), cache.node(slot).hash),
            None => (node.parent, node.hash),
        };
        self.sweep_unseen();
        self.moves.unseen.places.insert(node.ino, place);
    }

    /// Whether all that was claimed here is found here, or claimed no more; what is not is looked for from now on.
    pub(crate) fn has_settled_claims(&mut self) -> bool {
        let unseen = &mut self.moves.unseen;
        unseen.settling = !unseen.at.is_empty() || !unseen.claims.is_empty();
        !unseen.settling
    }

    pub(super) fn settle_claims(&mut self, now: Now, out: &mut Outbox<Output>) {
        if !self.moves.unseen.settling || !self.state.serves() {
            return;
        }
        for _ in 0..self.looks() {
            if self.moves.unseen.claims.len() >= AT_ONCE {
                return;
            }
            let Some((ino, (parent, hash))) = self.moves.unseen.at.pop_first() else {
                self.moves.unseen.settling = false;
                return;
            };
            let is_held = self.view.files.get(ino).is_some() || self.view.locks.is_locked(ino);
            if is_held {
                self.moves.unseen.places.insert(ino, (parent, hash));
            }
            if is_held && self.view.cache.by_ino(ino).is_none() {
                let mut op = self.search_op(NodeRef { ino, parent, hash }, now);
                self.moves.unseen.claims.insert(op.id);
                self.run(now, &mut op, out);
            }
        }
    }

    /// By the map of now the inode is another rank's: who claims to have something of it here did not know that it had gone. Counted
    /// it would hold up all that moves, for ever, and be there again when the inode comes back.
    pub(crate) fn end_claims(&mut self, ino: Ino, out: &mut Outbox<Output>) {
        if stdx::mutant!("mds_claims_of_nothing") {
            return;
        }
        let opens = self.view.files.get(ino).into_iter().flat_map(|file| file.opens.iter());
        let mut sessions: BTreeSet<SessionId> = opens.map(|open| open.session).collect();
        sessions.extend(self.view.locks.held_on(ino).into_iter().map(|(session, _)| session));
        self.forget_holders(ino);
        for session in sessions {
            self.holder_gone(session, ino, out);
        }
    }

    /// The same of one session only: its client says that another rank has answered for the inode since it claimed it here. That ends what
    /// the rank alone does not find out: of a file that is gone by now nobody knows where it was.
    pub(crate) fn end_claims_of(&mut self, ino: Ino, session: SessionId) {
        // What came with a move was told by a rank, and its client does not know it yet: it is no claim.
        if self.view.holders.has(session, ino) || stdx::mutant!("mds_claims_stay") {
            return;
        }
        self.view.files.close(ino, session, u32::MAX);
        for (_, lock) in self.view.locks.held_on(ino).into_iter().filter(|(id, _)| *id == session) {
            self.view.locks.release_owner(ino, session, lock.flock, lock.owner);
        }
    }

    /// It gives nothing back, and finds out whether the inode is this rank's, as every Release does.
    fn search_op(&mut self, node: NodeRef, now: Now) -> Op {
        self.own_op(Request::Release { node, count: 0 }, now.mono)
    }

    /// Looks for the next ones, until all have been looked for. What was not found is not here, or holds the move up.
    pub(super) fn seek_unseen(&mut self, now: Now, part: Part, out: &mut Outbox<Output>) -> Slice<()> {
        if stdx::mutant!("mds_unseen_not_sought") {
            return Slice::Done;
        }
        for _ in 0..self.looks() {
            if self.moves.unseen.searches.len() >= AT_ONCE {
                return Slice::Wait;
            }
            let Some(ino) = self.next_in_use() else {
                if !self.moves.unseen.searches.is_empty() {
                    return Slice::Wait;
                }
                self.moves.unseen.give_up();
                return Slice::Done;
            };
            self.seek(now, ino, part, out);
        }
        // Of most it is known where they are, and for these nothing is looked for: no answer would bring the next step.
        if stdx::mutant!("mds_unseen_waits_for_nothing") { Slice::Wait } else { Slice::More(()) }
    }

    /// What is open or locked, one after the other; then those that were looked for, when all answers are there.
    fn next_in_use(&mut self) -> Option<Ino> {
        let mut at = self.moves.unseen.next.unwrap_or(InUse::FIRST);
        if let InUse::Files(from) = at {
            match self.view.files.from(from).next() {
                Some((ino, _)) => {
                    self.moves.unseen.next = Some(after(ino).map_or(InUse::Locks(Ino(0)), InUse::Files));
                    return Some(ino);
                }
                None => at = InUse::Locks(Ino(0)),
            }
        }
        let InUse::Locks(from) = at else { return None };
        let locked = self.view.locks.files_from(from).next();
        self.moves.unseen.next = Some(InUse::Locks(locked.and_then(after).unwrap_or(Ino(u64::MAX))));
        let unseen = &mut self.moves.unseen;
        if locked.is_none() && unseen.round.is_empty() && unseen.searches.is_empty() {
            std::mem::swap(&mut unseen.round, &mut unseen.again);
        }
        locked.or_else(|| unseen.round.pop())
    }

    /// Looks for an inode, or for the first one above it that is not cached; when that is there, for the next one above. What is found
    /// has all that is above it in the cache, and keeps it there.
    fn seek(&mut self, now: Now, ino: Ino, part: Part, out: &mut Outbox<Output>) {
        let is_held =
            self.view.files.get(ino).is_some_and(|file| file.is_open()) || self.view.locks.is_locked(ino);
        let Below::Unknown(missing) = self.view.inode_below(ino, part) else { return };
        let unseen = &mut self.moves.unseen;
        if !is_held {
            return;
        }
        if unseen.searches.values().any(|under_way| *under_way == missing) {
            return unseen.again.push(ino);
        }
        // What is above it is not this rank's, perhaps, and so it is not either.
        let Some(sought) = [missing, ino].into_iter().find(|ino| unseen.sought.insert(*ino)) else { return };
        unseen.again.push(ino);
        let place = unseen.at.get(&sought).or_else(|| unseen.places.get(&sought));
        let (parent, hash) = place.copied().unwrap_or((Ino::NONE, NameHash(0)));
        let mut op = self.search_op(NodeRef { ino: sought, parent, hash }, now);
        self.moves.unseen.searches.insert(op.id, sought);
        self.run(now, &mut op, out);
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
        for at in 0..20 {
            world.rank.view.files.get_mut(Ino(5_000 + at)).users = 1;
        }
        let mut out = Outbox::default();
        let mut slices = 0;
        while let Slice::More(()) = world.rank.seek_unseen(now, Part::Of(Ino(4_000)), &mut out) {
            slices += 1;
        }
        assert_eq!(slices, 2, "each slice is followed by the next");
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
