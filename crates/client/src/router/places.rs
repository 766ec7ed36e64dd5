//! What a client knows of where things are: which rank owns what is in a directory, and of inodes that are not where their hint
//! says, who has them. Hints, all of it: a rank that does not own what it is asked for says so.
//!
//! Absent: the cluster map, which comes first where it names a directory (`map.rs`).

use proto::{Ino, RankId};
use std::collections::BTreeMap;

/// Directories that are remembered; of twice as many as fit in one half the older ones are forgotten.
const HALF_MAX: usize = 131_072;
/// The longest way up.
const DEPTH_MAX: usize = 128;

/// What is known of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    rank: RankId,
    /// The directory it is in; NONE: not known.
    parent: Ino,
    /// The last change of the map's entries that is accounted for.
    checked: u64,
}

/// The table: two halves, of which the older one is dropped when the younger is full.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    young: BTreeMap<Ino, Known>,
    old: BTreeMap<Ino, Known>,
    half_max: usize,
    /// Moves when entries of the map change: what is known from before is looked at again.
    change: u64,
}

impl Places {
    pub(crate) const fn new() -> Self {
        Self::of(HALF_MAX)
    }

    pub(crate) const fn of(half_max: usize) -> Self {
        Self { young: BTreeMap::new(), old: BTreeMap::new(), half_max, change: 0 }
    }

    /// Entries of the map have changed.
    pub(crate) const fn map_changed(&mut self) {
        self.change += 1;
    }

    fn put(&mut self, ino: Ino, known: Known) {
        if self.young.len() >= self.half_max && !self.young.contains_key(&ino) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(ino, known);
    }

    fn get(&self, ino: Ino) -> Option<Known> {
        self.young.get(&ino).or_else(|| self.old.get(&ino)).copied()
    }

    /// An answer of that rank shows it. `parent`: NONE if it does not show where it is.
    pub(crate) fn learn(&mut self, ino: Ino, rank: RankId, parent: Ino) {
        let parent = if parent == Ino::NONE { self.parent(ino) } else { parent };
        let known = Known { rank, parent, checked: self.change };
        if self.young.get(&ino) != Some(&known) {
            self.put(ino, known);
        }
    }

    pub(crate) fn forget(&mut self, ino: Ino) {
        self.young.remove(&ino);
        self.old.remove(&ino);
    }

    /// The directory that a directory is in; NONE: not known.
    pub(crate) fn parent(&self, ino: Ino) -> Ino {
        self.get(ino).map_or(Ino::NONE, |known| known.parent)
    }

    /// Who owns what is in a directory for which the map has no entry: who owns what is in the next one above that has one; as far
    /// as the way up is known, else who did when it was heard of last. `entry`: the map's.
    pub(crate) fn rank(&mut self, ino: Ino, entry: impl Fn(Ino) -> Option<RankId>) -> Option<RankId> {
        let known = self.get(ino)?;
        if known.checked == self.change {
            // What is in use stays.
            if self.old.contains_key(&ino) && !self.young.contains_key(&ino) {
                self.put(ino, known);
            }
            return Some(known.rank);
        }
        let mut at = known;
        let mut rank = None;
        for _ in 0..DEPTH_MAX {
            rank = entry(at.parent);
            let Some(above) = self.get(at.parent).filter(|_| rank.is_none()) else { break };
            if above.checked == self.change {
                rank = Some(above.rank);
                break;
            }
            at = above;
        }
        let rank = rank.unwrap_or(known.rank);
        self.put(ino, Known { rank, checked: self.change, ..known });
        Some(rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOBODY: fn(Ino) -> Option<RankId> = |_| None;

    #[test]
    fn a_change_of_the_map_is_found_on_the_way_up() {
        let mut places = Places::new();
        places.learn(Ino(10), RankId(0), Ino::ROOT);
        places.learn(Ino(11), RankId(0), Ino(10));
        places.learn(Ino(12), RankId(0), Ino(11));
        places.learn(Ino(20), RankId(2), Ino(19));
        places.map_changed();
        let entry = |ino| (ino == Ino(10)).then_some(RankId(1));
        assert_eq!(places.rank(Ino(12), entry), Some(RankId(1)), "it inherits what is two above");
        assert_eq!(places.rank(Ino(11), NOBODY), Some(RankId(0)), "nothing above says so");
        assert_eq!(places.rank(Ino(12), NOBODY), Some(RankId(1)), "known until the next change");
        assert_eq!(places.rank(Ino(20), entry), Some(RankId(2)), "the way up is not known");
        assert_eq!(places.rank(Ino(30), entry), None);
        places.forget(Ino(12));
        assert_eq!(places.rank(Ino(12), NOBODY), None);
    }

    #[test]
    fn what_is_known_is_bounded_and_what_is_used_stays() {
        let mut places = Places::of(4);
        for ino in 1..=40 {
            places.learn(Ino(ino), RankId(3), Ino::ROOT);
            assert_eq!(places.rank(Ino(1), NOBODY), Some(RankId(3)), "asked for again and again");
            assert!(places.young.len() <= 4 && places.old.len() <= 4);
        }
        assert_eq!(places.rank(Ino(9), NOBODY), None);
    }

    /// A loop that a map and answers of several instants can make is no end of the program.
    #[test]
    fn a_way_up_that_leads_nowhere_ends() {
        let mut places = Places::new();
        places.learn(Ino(10), RankId(1), Ino(11));
        places.learn(Ino(11), RankId(2), Ino(10));
        places.map_changed();
        assert_eq!(places.rank(Ino(10), NOBODY), Some(RankId(1)));
    }
}
