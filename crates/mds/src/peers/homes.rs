//! Where directories were found: of each that others are in, the rank that told of one of these. A hint by which that rank is asked first
//! for the next one; by another map it counts no more.
//!
//! Absent: who is asked else (`peers/asks.rs`).

use proto::{Ino, RankId};
use std::collections::BTreeMap;

/// Beyond so many all are forgotten.
const KNOWN_MAX: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct Homes {
    /// The map by which they count.
    version: u64,
    of: BTreeMap<Ino, RankId>,
}

impl Homes {
    /// The rank that told, by this map, of a directory that is in that one.
    pub(super) fn of(&self, parent: Ino, version: u64) -> Option<RankId> {
        (self.version == version).then(|| self.of.get(&parent).copied()).flatten()
    }

    /// A rank has told of a directory that is in that one.
    pub(super) fn told(&mut self, parent: Ino, version: u64, rank: RankId) {
        if self.version != version || self.of.len() >= KNOWN_MAX {
            self.of.clear();
        }
        self.version = version;
        if !stdx::mutant!("mds_homes_forgotten") {
            self.of.insert(parent, rank);
        }
    }
}
