//! The cluster map of a run: every rank active, owners by a placement. Nothing moves.
//!
//! Absent: a coordinator.

use super::layout::{FIRST, Layout};
use super::settings::{Placement, Settings, Workload};
use super::world::SEED;
use proto::cluster::{
    ClusterMap, DaemonId, DaemonInfo, Entry, Policy, RankInfo, RankState, SLOTS, Slot, Unit,
};
use proto::header::{SPREAD_DEPTH_MAX, Spread};
use proto::{Frag, Incarnation, Ino, Name, RankId};
use std::sync::Arc;

/// Who owns the directories of a layout.
pub(super) struct Owners {
    pub(super) map: Arc<ClusterMap>,
    placement: Placement,
}

/// The life of a rank.
pub(super) const fn life(rank: u16) -> Incarnation {
    Incarnation(rank as u64 + 1)
}

/// The directory that all use, and how it is spread: where several ranks share what is placed by slots they spread a large or busy one,
/// with four parts for each.
pub(super) fn parts_of(settings: &Settings, layout: &Layout) -> Option<(Ino, Spread)> {
    let spreads = settings.placement == Placement::Hash && settings.ranks > 1;
    if settings.workload != Workload::OneDirectory || !spreads {
        return None;
    }
    let parts = (4 * u32::from(settings.ranks)).next_power_of_two();
    let depth = (parts.trailing_zeros() as u8).min(SPREAD_DEPTH_MAX);
    // Numbers that rank 0 had given out before, and no inode has. As an operator spreads it: so it stays.
    let first = Ino::of_rank(RankId(0), FIRST - (1 << SPREAD_DEPTH_MAX));
    Some((layout.leaf_ref(0).ino, Spread { depth, first, stamp: 1 << depth, by_itself: false }))
}

impl Owners {
    pub(super) fn new(settings: &Settings, layout: &Layout, parts: Option<(Ino, Spread)>) -> Self {
        let mut map = ClusterMap::first();
        map.max_mds = settings.ranks;
        map.version += 2;
        for rank in 0..settings.ranks {
            let daemon = DaemonId(u64::from(rank) + 1);
            let info = RankInfo { state: RankState::Active, incarnation: life(rank), daemon };
            map.ranks.insert(RankId(rank), info);
            map.daemons.insert(daemon, DaemonInfo { name: format!("d{rank}") });
            map.made = map.made.with(RankId(rank));
            (map.last_daemon, map.last_incarnation) = (daemon, life(rank));
        }
        match settings.placement {
            Placement::Subtree => pin_tops(&mut map, settings.ranks, layout),
            Placement::Distributed => spread(&mut map, settings.ranks),
            Placement::Hash => {
                spread(&mut map, settings.ranks);
                map.hash_placement = true;
            }
        }
        if let Some((dir, spread)) = parts {
            share(&mut map, settings.ranks, dir, spread);
        }
        Self { map: Arc::new(map), placement: settings.placement }
    }

    /// The map of before, while no rank serves.
    pub(super) fn first_map(&self) -> Arc<ClusterMap> {
        let mut map = ClusterMap::clone(&self.map);
        map.version -= 1;
        map.ranks.values_mut().for_each(|info| info.state = RankState::Replay);
        Arc::new(map)
    }

    /// The rank with the content of a generated directory.
    pub(super) fn of(&self, layout: &Layout, level: usize, index: u64) -> RankId {
        let (mut level, mut index) = (level, index);
        loop {
            let unit = Unit { dir: layout.dir(level, index), frag: Frag::WHOLE };
            if let Some(entry) = self.map.entries.get(&unit) {
                return entry.rank;
            }
            if self.placement.by_slots(level) {
                return self.map.slots.get(ClusterMap::slot_of(unit.dir, unit.frag)).rank;
            }
            match layout.above(level, index) {
                Some(above) => (level, index) = above,
                None => return RankId(0),
            }
        }
    }

    pub(super) fn of_leaf(&self, layout: &Layout, leaf: u64) -> RankId {
        self.of(layout, layout.levels() - 1, leaf)
    }

    /// The rank with that name of a directory of the last level, which may be spread.
    pub(super) fn of_name(&self, layout: &Layout, leaf: u64, name: &Name) -> RankId {
        let governing = self.map.governing(layout.leaf_ref(leaf).ino, name.hash(&SEED));
        governing.map_or_else(|| self.of_leaf(layout, leaf), |(_, entry)| entry.rank)
    }
}

/// Parts of a spread directory go round the ranks, as the rank that has the directory hands them out: its own have no entries.
fn share(map: &mut ClusterMap, ranks: u16, dir: Ino, spread: Spread) {
    let (home, version) = (map.slots.get(ClusterMap::slot_of(dir, Frag::WHOLE)).rank, map.version);
    let entries = Arc::make_mut(&mut map.entries);
    for (at, (_, frag)) in (0..).zip(spread.all()) {
        let rank = RankId(((u64::from(home.0) + at) % u64::from(ranks)) as u16);
        if rank != home {
            let entry = Entry { rank, version, policy: Policy::Carved, moving: None };
            entries.insert(Unit { dir, frag }, entry);
        }
    }
}

/// Each rank has as many slots, neighbouring ones.
fn spread(map: &mut ClusterMap, ranks: u16) {
    let (slots, version) = (Arc::make_mut(&mut map.slots), map.version);
    map.slots_used = true;
    for rank in 0..ranks {
        let at = |rank: u16| (u32::from(SLOTS) * u32::from(rank) / u32::from(ranks)) as u16;
        slots.set(at(rank)..at(rank + 1), Slot { rank: RankId(rank), version, moving: None });
    }
}

/// Neighbours go to one rank.
fn pin_tops(map: &mut ClusterMap, ranks: u16, layout: &Layout) {
    let (tops, version) = (layout.dirs(0), map.version);
    let entries = Arc::make_mut(&mut map.entries);
    for top in 0..tops {
        let rank = RankId((top * u64::from(ranks) / tops) as u16);
        let unit = Unit { dir: layout.dir(0, top), frag: Frag::WHOLE };
        // What inherits from root is rank 0's.
        if rank != RankId(0) {
            entries.insert(unit, Entry { rank, version, policy: Policy::Pin, moving: None });
        }
    }
    debug_assert!(entries.contains_key(&Unit { dir: Ino::ROOT, frag: Frag::WHOLE }));
}
