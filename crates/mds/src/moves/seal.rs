//! How long what moves may be sealed, and when it is too dirty for that. docs/PROTOCOL.md, "The move of a directory".
//!
//! Absent: the phases of a move (`moves.rs`).

use super::below::InUse;
use super::map::words;
use super::{Goal, Move, Moves, Phase, Wanted};
use crate::output::{Level, Output};
use crate::rank::Rank;
use crate::territory::Part;
use proto::Ino;
use proto::holder::Moved;
use std::collections::BTreeMap;
use stdx::time::MS;
use stdx::{Mono, Outbox};

/// So often a move stores once more what became dirty, before it seals it as it is.
const SETTLED_MAX: u8 = 4;
/// For the first time it does at that part of `Limits::move_dirty`: in the time of that checkpoint less becomes dirty than has since the one before
/// the move was announced.
const ONCE: u64 = 4;
/// Of so many it is remembered how long the next seal may be; one that is forgotten begins with the shortest.
const BROKEN_MAX: usize = 1_024;

/// How long the next seal may be, in nanoseconds.
#[derive(Debug, Default)]
pub(super) struct Seals {
    /// Of what was sealed for too long.
    of: BTreeMap<Moved, u64>,
    /// Of anything: what the last ones needed. How long the store takes is the rank's, and where many runs of slots leave it each would
    /// learn that anew.
    needed_ns: u64,
}

impl Seals {
    fn allows(&self, moved: Moved, shortest_ns: u64) -> u64 {
        self.of.get(&moved).copied().unwrap_or(shortest_ns.max(self.needed_ns))
    }

    /// The next one may be twice as long, up to a lease. False: this one was a lease long.
    fn lengthen(&mut self, moved: Moved, was_ns: u64, lease_ns: u64) -> bool {
        if was_ns >= lease_ns {
            return false;
        }
        if self.of.len() >= BROKEN_MAX && !self.of.contains_key(&moved) {
            self.of.pop_first();
        }
        self.of.insert(moved, was_ns.saturating_mul(2).min(lease_ns));
        true
    }

    /// It has moved. Each time less is remembered of what was needed.
    fn end(&mut self, moved: Moved) {
        self.needed_ns = self.of.remove(&moved).unwrap_or(self.needed_ns / 2);
    }
}

impl Move {
    /// Nobody was served for as long as is allowed. Once the journal says that it is sealed there is no such moment.
    pub(super) fn is_sealed_too_long(&self, now: Mono) -> bool {
        self.sealed_until.is_some_and(|until| until <= now)
    }
}

impl Moves {
    /// It has moved.
    pub(super) fn seals_end(&mut self, moved: Moved) {
        self.seals.end(moved);
    }
}

impl Rank {
    /// From here on nobody is served there, if not much has to be stored first: the seal ends with a checkpoint of the whole rank, and how long
    /// that takes is a matter of how many names it stores.
    pub(super) fn seal_part(&mut self, part: Part, of: Ino) -> Phase {
        if self.moves.came && !stdx::mutant!("mds_seals_with_what_came") {
            if let Some(one) = &mut self.moves.current {
                one.found.again();
            }
            return Phase::Recall { part: 0, found: false };
        }
        let (limits, now, lease_ns) =
            (self.view.config.limits, self.view.now.mono, self.view.config.lease_ns);
        let dirty = self.view.cache.dirty();
        // As long as a checkpoint takes, the next one finds as much again: the move is not to be over before it has begun.
        let settles = |one: &Move| {
            let most = if one.settled == 0 { limits.move_dirty / ONCE } else { limits.move_dirty };
            dirty > most && one.until.since(now) > lease_ns && one.settled < SETTLED_MAX
        };
        let never = stdx::mutant!("mds_seals_however_dirty");
        if let Some(one) = self.moves.current.as_mut().filter(|one| settles(one) && !never) {
            one.settled += 1;
            one.found.again();
            return Phase::Settle { until: self.next_checkpoint() };
        }
        self.view.territory.leave(Some((part, !stdx::mutant!("mds_move_unsealed"))), of);
        if let Some(one) = &mut self.moves.current {
            one.sealed_at = Some(now);
        }
        let seals = &self.moves.seals;
        if let Some(one) = self.moves.current.as_mut().filter(|_| !stdx::mutant!("mds_seal_unbounded")) {
            one.sealed_until = Some(now.after(seals.allows(one.moved(), self.view.config.seal_ns)));
        }
        Phase::Drain(InUse::FIRST)
    }

    /// Where it is now, and for how long nobody was served there.
    pub(super) fn say_moved(&self, out: &mut Outbox<Output>) {
        let Some(Move { part, to: Some(to), sealed_at: Some(at), .. }) = &self.moves.current else { return };
        let sealed_us = self.view.now.mono.since(*at) / 1_000;
        let text = format!("{} has moved to rank {}: sealed for {sealed_us} us", words(*part), to.0);
        out.push(Output::Note { level: Level::Info, text });
    }

    /// It was sealed for too long: it may be sealed for longer when it is tried once more, which a lease bounds.
    pub(super) fn break_seal(&mut self, out: &mut Outbox<Output>) {
        let (shortest_ns, lease_ns) = (self.view.config.seal_ns, self.view.config.lease_ns);
        let Some(one) = &self.moves.current else { return };
        let (moved, waits_for) = (one.moved(), one.phase.waits_for());
        let was_ns = self.moves.seals.allows(moved, shortest_ns);
        let why = format!("nobody was served there for {} ms: {waits_for}", was_ns / MS);
        match self.moves.seals.lengthen(moved, was_ns, lease_ns) {
            true => self.unseal(&why, out),
            false => self.give_up_move(&why, out),
        }
    }

    /// Everything there is served again, and it is tried once more. A move that the coordinator began the coordinator begins again.
    pub(super) fn unseal(&mut self, why: &str, out: &mut Outbox<Output>) {
        let Some(one) = &mut self.moves.current else { return };
        let (part, unit, goal) = (one.part, one.unit, one.goal);
        let again = !matches!(goal, Goal::Carry(..));
        let ops = if again { std::mem::take(&mut one.ops) } else { Vec::new() };
        self.give_up_move(why, out);
        if again {
            self.moves.queue.push_back(Wanted { part, unit, goal, ops });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::whole;

    /// What broke: where a hundred runs of slots leave a rank whose store is slow, each was given up several times.
    #[test]
    fn what_the_last_seal_needed_the_next_one_may_take() {
        let moved = |slot| Moved { unit: whole(Ino::NONE), slot };
        let (one, two, mut seals) = (moved(1), moved(33), Seals::default());
        assert_eq!(seals.allows(one, 100), 100);
        assert!(seals.lengthen(one, 100, 1_000) && seals.lengthen(one, 200, 1_000));
        assert_eq!((seals.allows(one, 100), seals.allows(two, 100)), (400, 100));
        seals.end(one);
        assert_eq!(seals.allows(two, 100), 400);
        seals.end(two);
        seals.end(one);
        assert_eq!(seals.allows(two, 150), 150, "less of it each time");
        assert!(!seals.lengthen(one, 1_000, 1_000), "a lease is the most");
    }
}
