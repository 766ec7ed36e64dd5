//! How many inodes are cached by the entry of the cluster map that governs them: INOS of `pando subtree ls`.
//!
//! Counted when somebody asks, in slices, so that no request pays for it; what comes and goes in between may be missing or counted twice.
//!
//! Absent: what is not cached, which nobody counts.

use crate::cache::dir;
use crate::cache::slab::NONE;
use crate::rank::Rank;
use crate::territory::is_placed;
use crate::view::View;
use proto::Ino;
use proto::cluster::Unit;
use std::collections::BTreeMap;

/// Directories that are looked at at once: a fraction of a millisecond.
const SLICE: u32 = 2048;
/// A way up is no longer; longer ones are of damaged records.
const WAY_MAX: usize = 4096;

impl View {
    /// The number of the content whose entry governs a cached directory's; NONE: slots do. None: what is above it is not cached.
    fn governed_by(&self, slot: u32) -> Option<Ino> {
        if self.territory.is_undisputed() {
            return Some(Ino::ROOT);
        }
        let mut at = slot;
        for _ in 0..WAY_MAX {
            let dir = self.cache.dir(at);
            if self.territory.of_number(dir.ino).is_some() {
                return Some(dir.ino);
            }
            if let Some(unit) = dir.header.unit() {
                if self.territory.of_unit(dir.ino, unit).is_some() {
                    return Some(dir.ino);
                }
                at = self.cache.find_dir(unit.dir)?;
                continue;
            }
            if dir.has(dir::SLOTS) || (dir.node != NONE && is_placed(&self.cache.node(dir.node).core)) {
                return Some(Ino::NONE);
            }
            if dir.node == NONE {
                return None;
            }
            at = self.cache.node(dir.node).dir;
        }
        None
    }
}

impl Rank {
    /// Names in the cached directories from that index on, by what governs them (NONE: slots), and the index to go on from.
    #[must_use]
    pub fn census(&self, from: u32) -> (Vec<(Ino, Unit, u64)>, Option<u32>) {
        let slots = self.view.cache.dirs.slots();
        let next = slots.min(from.saturating_add(SLICE));
        let mut counts: BTreeMap<Ino, u64> = BTreeMap::new();
        for slot in from..next {
            let dir = self.view.cache.dir(slot);
            // Of others this rank has replicas only.
            if dir.ino == Ino::NONE || dir.has(dir::FOREIGN) || dir.table.len() == 0 {
                continue;
            }
            if let Some(governing) = self.view.governed_by(slot) {
                *counts.entry(governing).or_default() += u64::from(dir.table.len());
            }
        }
        let counts = counts.into_iter().map(|(dir, count)| (dir, self.view.cache.unit(dir), count));
        (counts.collect(), (next < slots).then_some(next))
    }
}
