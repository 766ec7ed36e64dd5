//! Inode numbers that the rank gave to this session, and the seed with which names are hashed.
//!
//! Absent: asking for more; the rank gives new ones in time.

use proto::Ino;
use std::collections::VecDeque;
use stdx::hash::HashSeed;

/// Ranges kept at once; what comes beyond is left unused.
const RANGES_MAX: usize = 64;

/// Numbers that nobody else makes an inode with. They outlast connections and lives of the rank, not the session.
#[derive(Clone, Debug, Default)]
pub(crate) struct Numbers {
    /// First and last, ascending.
    ranges: VecDeque<(u64, u64)>,
    /// Nothing up to here is taken in again: it may have been used.
    highest: u64,
    generation: u32,
    seed: Option<HashSeed>,
}

impl Numbers {
    pub(crate) const fn new() -> Self {
        Self { ranges: VecDeque::new(), highest: 0, generation: 0, seed: None }
    }

    pub(crate) fn add(&mut self, first: Ino, count: u32, generation: u32, seed: HashSeed) {
        (self.generation, self.seed) = (generation, Some(seed));
        let last = first.0.saturating_add(u64::from(count)).saturating_sub(1);
        let first = first.0.max(self.highest.saturating_add(1));
        if count > 0 && first <= last && self.ranges.len() < RANGES_MAX {
            self.ranges.push_back((first, last));
            self.highest = last;
        }
    }

    /// The session goes on over another connection: the rank says again what is left, as far as it knows. After a repair it may
    /// know of none.
    pub(crate) fn resumed(&mut self) {
        if let Some((first, _)) = self.ranges.front() {
            self.highest = first.saturating_sub(1);
        }
        self.ranges.clear();
    }

    /// The next number, and the generation that goes with it.
    pub(crate) fn take(&mut self) -> Option<(Ino, u32)> {
        let range = self.ranges.front_mut()?;
        let ino = range.0;
        if ino == range.1 {
            self.ranges.pop_front();
        } else {
            range.0 += 1;
        }
        Some((Ino(ino), self.generation))
    }

    pub(crate) const fn seed(&self) -> Option<&HashSeed> {
        self.seed.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_given_once_in_order() {
        let seed = HashSeed([1; 16]);
        let mut numbers = Numbers::new();
        assert!(numbers.take().is_none() && numbers.seed().is_none());
        numbers.add(Ino(100), 2, 7, seed);
        numbers.add(Ino(200), 1, 7, seed);
        numbers.add(Ino(100), 2, 7, seed);
        numbers.add(Ino(300), 0, 7, seed);
        let all: Vec<_> = std::iter::from_fn(|| numbers.take()).collect();
        assert_eq!(all, [(Ino(100), 7), (Ino(101), 7), (Ino(200), 7)]);
        numbers.add(Ino(100), 101, 7, seed);
        assert!(numbers.take().is_none(), "used already");
        numbers.add(Ino(201), 1, 7, seed);
        assert_eq!(numbers.take(), Some((Ino(201), 7)));
        // Over another connection the rank says again what it knows to be left.
        numbers.add(Ino(300), 4, 7, seed);
        assert_eq!(numbers.take(), Some((Ino(300), 7)));
        numbers.resumed();
        assert!(numbers.take().is_none(), "after a repair none may be left");
        numbers.add(Ino(300), 4, 7, seed);
        let left: Vec<_> = std::iter::from_fn(|| numbers.take()).map(|(ino, _)| ino.0).collect();
        assert_eq!(left, [301, 302, 303]);
    }
}
