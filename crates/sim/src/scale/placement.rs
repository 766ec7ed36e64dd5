//! The cluster map of a run: every rank active, owners by a placement. Nothing moves.
//!
//! Absent: a coordinator.

use super::layout::Layout;
use super::settings::{Placement, Settings};
use proto::cluster::{
    ClusterMap, DaemonId, DaemonInfo, Entry, Policy, RankInfo, RankState, SLOTS, Slot, Unit,
};
use proto::{Frag, Incarnation, Ino, RankId};
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

impl Owners {
    pub(super) fn new(settings: &Settings, layout: &Layout) -> Self {
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
