//! Inodes that moved lately. To find an inode takes several loads, one place after the other; one that moves behind the search, is
//! stored there and leaves the cache before the next look would be found nowhere. And inodes that went to other ranks: where these
//! went is a hint beside that of the store, which may not know it yet. It may be over: they go on from there, and with the directory
//! that they are in they come back, of which nobody tells.
//!
//! Absent: where inodes are (`View::resolve`).

use proto::{Ino, NameHash};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Moves remembered: more than can happen during the few loads of one search.
const REMEMBERED: usize = 4096;

/// Inodes that went to other ranks, remembered: who looks for one here is sent on, until the store knows of it.
const LEFT_MAX: usize = 1 << 16;

/// Inodes that ended here, remembered: who still has one open, or stands in one, is told at once that it is gone.
const ENDED_MAX: usize = 1 << 14;

/// The last moves, counted.
#[derive(Debug, Default)]
pub(crate) struct Moved {
    last: Vec<Ino>,
    count: u64,
    /// Where they went, and which departure that was.
    left: BTreeMap<Ino, (u64, (Ino, NameHash))>,
    order: VecDeque<(Ino, u64)>,
    departures: u64,
    /// Which have ended here, in that order, and the same as a set: nobody has such a one, nor ever will.
    ended: BTreeSet<Ino>,
    ended_order: VecDeque<Ino>,
}

impl Moved {
    /// An inode has another place.
    pub(crate) fn note(&mut self, ino: Ino) {
        let at = (self.count % REMEMBERED as u64) as usize;
        match self.last.get_mut(at) {
            Some(old) => *old = ino,
            None => self.last.push(ino),
        }
        self.count += 1;
    }

    /// An inode is another rank's, and its name is there.
    pub(crate) fn left(&mut self, ino: Ino, place: (Ino, NameHash)) {
        self.departures += 1;
        self.left.insert(ino, (self.departures, place));
        self.order.push_back((ino, self.departures));
        if self.order.len() > LEFT_MAX
            && let Some((oldest, departure)) = self.order.pop_front()
            && self.left.get(&oldest).is_some_and(|(last, _)| *last == departure)
        {
            self.left.remove(&oldest);
        }
    }

    /// It has a place here again.
    pub(crate) fn is_back(&mut self, ino: Ino) {
        if !self.left.is_empty() {
            self.left.remove(&ino);
        }
    }

    /// Where an inode went.
    pub(crate) fn went(&self, ino: Ino) -> Option<(Ino, NameHash)> {
        self.left.get(&ino).map(|(_, place)| *place)
    }

    /// An inode has ended.
    pub(crate) fn end(&mut self, ino: Ino) {
        if self.ended.insert(ino) {
            self.ended_order.push_back(ino);
        }
        if self.ended_order.len() > ENDED_MAX
            && let Some(oldest) = self.ended_order.pop_front()
        {
            self.ended.remove(&oldest);
        }
    }

    /// Whether it is known that an inode has ended.
    pub(crate) fn has_ended(&self, ino: Ino) -> bool {
        self.ended.contains(&ino)
    }

    /// Moves so far.
    pub(crate) const fn count(&self) -> u64 {
        self.count
    }

    /// Whether an inode may have moved since there were `count` moves.
    pub(crate) fn has(&self, ino: Ino, count: u64) -> bool {
        let newer = self.count - count;
        newer > REMEMBERED as u64
            || (count..self.count).any(|at| self.last[(at % REMEMBERED as u64) as usize] == ino)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_are_remembered_for_a_while() {
        let mut moved = Moved::default();
        moved.note(Ino(1));
        let count = moved.count();
        assert!(moved.has(Ino(1), 0) && !moved.has(Ino(2), 0) && !moved.has(Ino(1), count));
        for ino in 10..10 + REMEMBERED as u64 {
            moved.note(Ino(ino));
        }
        assert!(moved.has(Ino(10), count) && !moved.has(Ino(1), count));
        moved.note(Ino(9));
        assert!(moved.has(Ino(1), count), "too long ago to tell");
    }

    #[test]
    fn the_last_departure_is_remembered_until_the_inode_is_back() {
        let mut moved = Moved::default();
        let place = |dir| (Ino(dir), NameHash(7));
        moved.left(Ino(1), place(10));
        moved.is_back(Ino(1));
        assert_eq!(moved.went(Ino(1)), None);
        moved.left(Ino(1), place(11));
        for ino in 2..=LEFT_MAX as u64 {
            moved.left(Ino(ino), place(ino));
        }
        assert_eq!(moved.went(Ino(1)), Some(place(11)), "the departure that fell out was over");
        moved.left(Ino(0), place(12));
        assert_eq!((moved.went(Ino(1)), moved.went(Ino(2))), (None, Some(place(2))));
    }
}
