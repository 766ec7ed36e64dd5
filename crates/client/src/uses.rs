//! When what does not run out by itself was used last: what is idle, or is more than there may be, is offered to the rank, the
//! oldest first.
//!
//! An entry's place in the order is looked at only when it is the oldest: use moves nothing but a time.
//!
//! Absent: who holds what (`validity.rs`, `delegations.rs`); messages (`machine/idle.rs`).

use proto::Ino;
use std::collections::{BTreeMap, BTreeSet};
use stdx::Mono;

/// Entries looked at in one go.
const LOOKS: usize = 1_024;
/// Before everything else.
const FIRST: Mono = Mono(0);

/// What is to become of the oldest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// There is nothing of it any more.
    Gone,
    /// It is in use without a word.
    Busy,
    Idle,
}

/// How much is offered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// What was not used for so long.
    pub(crate) idle_ns: u64,
    /// The oldest beyond so many.
    pub(crate) most: usize,
    /// In one go.
    pub(crate) batch: usize,
}

#[derive(Clone, Copy, Debug)]
struct Use {
    last: Mono,
    /// Where it is in the order.
    place: Mono,
}

/// Inodes by their last use.
#[derive(Clone, Debug, Default)]
pub(crate) struct Uses {
    uses: BTreeMap<Ino, Use>,
    order: BTreeSet<(Mono, Ino)>,
}

impl Uses {
    pub(crate) const fn new() -> Self {
        Self { uses: BTreeMap::new(), order: BTreeSet::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.uses.len()
    }

    /// It is there from here on, or still.
    pub(crate) fn used(&mut self, ino: Ino, now: Mono) {
        match self.uses.get_mut(&ino) {
            Some(known) => known.last = now,
            None => self.put(ino, now.max(Mono(1))),
        }
    }

    fn put(&mut self, ino: Ino, at: Mono) {
        debug_assert!(!self.uses.contains_key(&ino), "it has one place");
        self.uses.insert(ino, Use { last: at, place: at });
        self.order.insert((at, ino));
    }

    /// Whoever used it does not know it any more.
    pub(crate) fn forgotten(&mut self, ino: Ino) -> bool {
        let known = self.gone(ino);
        if known {
            self.put(ino, FIRST);
        }
        known
    }

    pub(crate) fn gone(&mut self, ino: Ino) -> bool {
        let Some(known) = self.uses.remove(&ino) else { return false };
        self.order.remove(&(known.place, ino));
        true
    }

    /// Takes out what is to be offered.
    pub(crate) fn take(&mut self, now: Mono, bounds: Bounds, state: impl Fn(Ino) -> State) -> Vec<Ino> {
        let mut offered = Vec::new();
        for _ in 0..LOOKS {
            let Some((place, ino)) = self.order.first().copied() else { break };
            let due = place == FIRST || now.since(place) >= bounds.idle_ns;
            if offered.len() >= bounds.batch || (!due && self.order.len() <= bounds.most) {
                break;
            }
            let last = self.uses.get(&ino).map_or(place, |known| known.last);
            self.gone(ino);
            match state(ino) {
                State::Gone => {}
                _ if last > place.max(Mono(1)) => self.put(ino, last),
                // Since when it is not, nobody notes.
                State::Busy => self.put(ino, now),
                State::Idle => offered.push(ino),
            }
        }
        offered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { idle_ns: 100, most: 3, batch: 2 };

    fn idle(_: Ino) -> State {
        State::Idle
    }

    #[test]
    fn what_was_not_used_for_long_is_offered_once() {
        let mut uses = Uses::new();
        uses.used(Ino(1), Mono(10));
        uses.used(Ino(2), Mono(20));
        assert!(uses.take(Mono(100), BOUNDS, idle).is_empty());
        uses.used(Ino(1), Mono(90));
        assert_eq!(uses.take(Mono(125), BOUNDS, idle), [Ino(2)]);
        assert!(uses.take(Mono(189), BOUNDS, idle).is_empty() && uses.len() == 1);
        assert_eq!(uses.take(Mono(190), BOUNDS, idle), [Ino(1)]);
        assert_eq!(uses.len(), 0);
    }

    #[test]
    fn beyond_what_there_may_be_the_oldest_go_and_not_what_is_busy() {
        let mut uses = Uses::new();
        (1..=9).for_each(|ino| uses.used(Ino(ino), Mono(10 + ino)));
        uses.used(Ino(1), Mono(50));
        let busy = |ino| match ino {
            Ino(3) => State::Busy,
            Ino(4) => State::Gone,
            _ => State::Idle,
        };
        assert_eq!(uses.take(Mono(60), BOUNDS, busy), [Ino(2), Ino(5)]);
        assert_eq!(uses.take(Mono(60), BOUNDS, busy), [Ino(6), Ino(7)]);
        assert_eq!(uses.take(Mono(60), BOUNDS, busy), [Ino(8)]);
        assert!(uses.take(Mono(60), BOUNDS, busy).is_empty(), "as many as there may be");
        assert_eq!(uses.take(Mono(149), BOUNDS, busy), [Ino(9)]);
        assert_eq!(uses.take(Mono(150), BOUNDS, busy), [Ino(1)]);
        assert!(uses.take(Mono(500), BOUNDS, busy).is_empty() && uses.len() == 1, "busy");
    }

    #[test]
    fn what_is_forgotten_goes_first_unless_it_is_used_again() {
        let mut uses = Uses::new();
        (1..=3).for_each(|ino| uses.used(Ino(ino), Mono(ino)));
        assert!(uses.forgotten(Ino(3)) && uses.forgotten(Ino(2)) && !uses.forgotten(Ino(9)));
        uses.used(Ino(2), Mono(9));
        assert_eq!(uses.take(Mono(10), BOUNDS, idle), [Ino(3)]);
        assert!(uses.gone(Ino(1)) && !uses.gone(Ino(1)));
        assert_eq!(uses.take(Mono(109), BOUNDS, idle), [Ino(2)]);
        uses.used(Ino(1), Mono(1));
        assert_eq!(uses.take(Mono(500), BOUNDS, idle), [Ino(1)]);
    }

    /// However much is busy, one look at it is short.
    #[test]
    fn a_look_is_bounded() {
        let mut uses = Uses::new();
        (1..=5_000).for_each(|ino| uses.used(Ino(ino), Mono(1)));
        let count = std::cell::Cell::new(0);
        let busy = |_| {
            count.set(count.get() + 1);
            State::Busy
        };
        assert!(uses.take(Mono(500), BOUNDS, busy).is_empty());
        assert_eq!(count.get(), LOOKS);
    }
}
