//! Numbers that name contents: versions of directories, change counters of inodes. None names two contents, whichever rank gave it.
//! They rise, but for what a crash took back: the life after it goes far ahead of that, another rank to which the content went
//! meanwhile has only numbers that no other life counts by (`next_number` in mds), and those may be lower than what was lost. Nobody
//! but its author was told a lost one.
//!
//! Absent: what is a content (`history.rs`, `transactions.rs`).

use crate::model::judge::Verdict;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

#[derive(Clone, Debug)]
pub(super) struct Numbers<K> {
    what: &'static str,
    last: BTreeMap<K, u64>,
    /// Given in a history that a crash took back.
    lost: BTreeSet<(K, u64)>,
}

/// A number that a step gave, and the one before it.
#[derive(Clone, Debug)]
pub(super) struct Given<K> {
    pub of: K,
    before: Option<u64>,
    number: u64,
}

impl<K: Ord + Copy + Debug> Numbers<K> {
    pub(super) const fn new(what: &'static str) -> Self {
        Self { what, last: BTreeMap::new(), lost: BTreeSet::new() }
    }

    pub(super) fn give(&mut self, found: BTreeMap<K, u64>) -> Verdict<Vec<Given<K>>> {
        let mut given = Vec::with_capacity(found.len());
        for (of, number) in found {
            let before = self.last.insert(of, number);
            if before.is_some_and(|old| old >= number) || self.lost.contains(&(of, number)) {
                return Err(format!("{} {of:?} is {number} again or goes back", self.what));
            }
            given.push(Given { of, before, number });
        }
        Ok(given)
    }

    /// What is made again as it was told counts from the beginning: of the first time only its maker has seen anything.
    pub(super) fn forget(&mut self, of: K) {
        self.last.remove(&of);
        self.lost.retain(|(lost, _)| *lost != of);
    }

    /// A crash took a step back, the latest first. `told`: somebody, its author at least, may know the number, so that it is spent.
    pub(super) fn take_back(&mut self, given: &Given<K>, told: bool) {
        if told {
            self.lost.insert((given.of, given.number));
        }
        if self.last.get(&given.of) == Some(&given.number) {
            match given.before {
                Some(before) => drop(self.last.insert(given.of, before)),
                None => drop(self.last.remove(&given.of)),
            }
        }
    }
}
