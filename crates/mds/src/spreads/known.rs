//! How directories are spread, as far as a rank knows: who has a part of one by an entry of the cluster map has read it from the store,
//! and it stays so while that entry is there. Behind that the directory may be merged, and spread in another way, and nobody says so to
//! whoever has nothing of it. So it is forgotten with the first map that has none of the entries of the map before.
//!
//! Absent: who merges (`merge.rs`); what is cached of units (`units.rs`).

use crate::cache::dir::{self, Dir};
use crate::rank::Rank;
use crate::view::Purged;
use proto::cluster::{ClusterMap, Entry, Unit};
use proto::header::{FragHeader, Spread};
use proto::{Frag, Ino};
use std::ops::RangeInclusive;

/// The units that are parts of a directory.
pub(crate) const fn parts_of(dir: Ino) -> RangeInclusive<Unit> {
    let least = Unit { dir, frag: Frag { prefix: 0, depth: 1 } };
    least..=Unit { dir, frag: Frag { prefix: u64::MAX, depth: u8::MAX } }
}

/// Whether an entry of a part is in both maps, so that the directory was spread in one way from then until now. A merge begins with the
/// end of all entries, and no two have one version.
fn stays_spread(dir: Ino, before: Option<&ClusterMap>, now: &ClusterMap) -> bool {
    let Some(before) = before else { return false };
    let same = |(unit, entry): (&Unit, &Entry)| {
        before.entries.get(unit).is_some_and(|old| (old.version, old.rank) == (entry.version, entry.rank))
    };
    now.entries.range(parts_of(dir)).any(same)
}

/// Whether a unit's content is this rank's, and was so since it came into the cache: a seal takes it out.
fn is_own(unit: &Dir) -> bool {
    let known = unit.has(dir::HEADER | dir::HEADER_DIRTY | dir::QUEUED) || unit.dirty > 0;
    known || (unit.table.len() > 0 && !unit.has(dir::FOREIGN))
}

impl Rank {
    /// A new map, or a new life that has read its journal (then there was none before).
    pub(crate) fn forget_spreads(&mut self, before: Option<&ClusterMap>) {
        let Some(now) = self.view.territory.map().cloned() else { return };
        self.forget_heard(before, &now);
        if self.view.cache.spreads.is_empty() {
            return;
        }
        self.look_at_spreads(before);
        for dir in self.view.cache.spreads.clone() {
            // Who has the directory itself merges it.
            let is_whole = |slot: u32| self.view.cache.dir(slot).has(dir::HEADER);
            if self.view.cache.find_dir(dir).is_some_and(is_whole) || stays_spread(dir, before, &now) {
                continue;
            }
            self.forget_spread(dir);
        }
    }

    /// What an operation has heard of parts one after the other may be of two ways that a directory was spread in: the sum of both is of
    /// none, and a change counter went back.
    fn forget_heard(&mut self, before: Option<&ClusterMap>, now: &ClusterMap) {
        for op in self.parked.values_mut() {
            let Some(heard) = &mut op.heard else { continue };
            let is_over = |(dir, header): (&Ino, &FragHeader)| {
                header.spread().is_some() && !stays_spread(*dir, before, now)
            };
            if heard.units.iter().any(is_over) {
                heard.units.clear();
            }
        }
    }

    /// It may be spread in another way by now, or not at all. Not where a part of it is here: then it is not. Returns whether it is not
    /// known any more.
    pub(crate) fn forget_spread(&mut self, dir: Ino) -> bool {
        let cache = &self.view.cache;
        let Some(spread) = cache.spread(dir) else {
            self.view.cache.spreads.remove(&dir);
            return true;
        };
        let units = spread.all().filter_map(|(number, _)| cache.find_dir(number));
        let units: Vec<u32> = units.collect();
        if units.iter().any(|unit| is_own(cache.dir(*unit))) {
            return false;
        }
        // What else is there are replicas.
        let mut inos = Vec::new();
        for unit in units {
            cache.dir(unit).table.walk(proto::NameHash(0), &cache.nodes, |at| {
                inos.push(cache.node(at).ino());
                true
            });
        }
        inos.into_iter().for_each(|ino| self.drop_replica(ino));
        self.end_spread(dir, spread)
    }

    fn end_spread(&mut self, dir: Ino, spread: Spread) -> bool {
        let cache = &mut self.view.cache;
        let units: Vec<u32> = spread.all().filter_map(|(number, _)| cache.find_dir(number)).collect();
        if units.iter().any(|unit| cache.dir(*unit).table.len() > 0) {
            return false;
        }
        if let Some(slot) = cache.find_dir(dir) {
            cache.gather(slot);
        }
        cache.spreads.remove(&dir);
        for unit in units {
            cache.dirs.get_mut(unit).header.spreading = None;
            cache.drop_dir_if_idle(unit);
        }
        if let Some(slot) = cache.find_dir(dir) {
            cache.dirs.get_mut(slot).clear(dir::COMPLETE);
            cache.drop_dir_if_idle(slot);
        }
        // Names that are on their way would come into units that mean nothing any more.
        self.view.territory.outdate_loads();
        true
    }

    /// A directory is spread so, or has no units, whatever was known of it.
    pub(crate) fn learn_spread(&mut self, dir: Ino, spread: Option<Spread>) {
        let way = |spread: Spread| (spread.depth, spread.first);
        let known = self.view.cache.spread(dir);
        if known.is_some() && known.map(way) != spread.map(way) && !self.forget_spread(dir) {
            let slot = self.view.cache.dir_or_new(dir);
            self.view.cache.gather(slot);
        }
        if let Some(spread) = spread {
            let slot = self.view.cache.dir_or_new(dir);
            // Of units that are others' not all names are here, whatever was known of one part.
            self.view.cache.dirs.get_mut(slot).clear(dir::COMPLETE);
            self.view.cache.is_spread_so(slot, spread);
        }
    }

    /// The store says that a directory has no units, although the map has entries of some: it was removed or merged, and the map is
    /// an old one; or an entry was made that nobody wanted any more, which goes.
    pub(crate) fn is_in_one_part(&mut self, dir: Ino) {
        self.view.territory.note_in_one_part(dir);
        if let Some(slot) = self.view.cache.find_dir(dir)
            && !self.view.cache.dir(slot).has(dir::HEADER)
        {
            self.forget_spread(dir);
        }
        self.drop_parts_entries(dir);
    }

    /// What this rank has by entries of parts that there are not goes from the map. One that was to move could not be moved, and its
    /// number would keep the coordinator from all other moves of this rank.
    pub(crate) fn drop_parts_entries(&mut self, dir: Ino) {
        let me = self.view.config.rank;
        let Some(map) = self.view.territory.map() else { return };
        let mine = map.entries.range(parts_of(dir)).filter(|(_, entry)| entry.rank == me);
        // The directory is there: nothing that was removed with it is to be stored first.
        let mine: Vec<Purged> = mine.map(|(unit, _)| Purged { unit: *unit, at_home: true }).collect();
        self.view.purged.extend(mine);
    }
}
