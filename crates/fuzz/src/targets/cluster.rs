//! The cluster map, and deltas of it carried out on a map.
//!
//! Absent: the file around the record.

use crate::class::class;
use crate::target::{Exact, Target, Verdict, check_size, round_trip};
use proto::cluster::{
    Change, ClusterMap, DaemonId, DaemonInfo, Delta, Entry, MapError, Mask, MoveId, Moving, Policy, RankInfo,
    RankState, Slot, Unit,
};
use proto::{DecodeError, Frag, Incarnation, Ino, NameHash, RankId};
use std::sync::Arc;

pub(super) const MAP: Target = Target { name: "cluster-map", execute: map, repair: None, seeds: map_seeds };
pub(super) const DELTA: Target =
    Target { name: "cluster-delta", execute: delta, repair: None, seeds: delta_seeds };

fn weigh_map(map: &ClusterMap) -> usize {
    let names: usize = map.daemons.values().map(|daemon| daemon.name.capacity()).sum();
    let unknown: usize = map.unknown.values().map(|body| body.len() + 24).sum();
    size_of::<ClusterMap>()
        + map.ranks.len() * size_of::<(RankId, RankInfo)>()
        + map.daemons.len() * size_of::<(DaemonId, DaemonInfo)>()
        + map.entries.len() * size_of::<(Unit, Entry)>()
        + map.slots.runs().count() * (size_of::<Slot>() + 8)
        + names
        + unknown
}

fn weigh_delta(delta: &Delta) -> usize {
    let inside = |change: &Change| match change {
        Change::Daemon(_, Some(info)) => info.name.capacity(),
        Change::Section(_, body) => body.len(),
        Change::MaxMds(_)
        | Change::Joinable(_)
        | Change::HashPlacement(_)
        | Change::SlotsUsed(_)
        | Change::Coordinator(_)
        | Change::LastIncarnation(_)
        | Change::LastDaemon(_)
        | Change::LastMove(_)
        | Change::BalRankMask(_)
        | Change::Made(_)
        | Change::Weight(..)
        | Change::Rank(..)
        | Change::Daemon(_, None)
        | Change::Entry(..)
        | Change::Slots { .. } => 0,
    };
    let changes: usize = delta.changes.iter().map(|change| size_of::<Change>() + inside(change)).sum();
    size_of::<Delta>() + changes
}

fn map(input: &[u8]) -> Verdict {
    let decode = |bytes: &[u8]| {
        ClusterMap::decode(bytes).map_err(|error| match error {
            MapError::Decode(error) => error,
            _ => DecodeError::Invalid { what: "cluster map" },
        })
    };
    round_trip(input, Exact::Bytes, decode, ClusterMap::encode, weigh_map)
}

/// Decoded and encoded; carried out on a map of the version that it begins at, it leaves a map that is right and differs from that one
/// by a delta that does the same.
fn delta(input: &[u8]) -> Verdict {
    let verdict = round_trip(input, Exact::Bytes, Delta::decode, Delta::encode, weigh_delta)?;
    let Ok(delta) = Delta::decode(input) else { return Ok(verdict) };
    let mut base = full();
    base.version = base.version.max(delta.from);
    let mut newer = base.clone();
    if let Err(error) = newer.apply(&delta) {
        return if newer == base {
            Ok(class("not applied", &error))
        } else {
            Err(format!("{error}, and changed"))
        };
    }
    check_size(weigh_map(&newer), &[base.encode().as_slice(), input].concat())?;
    newer.check().map_err(|error| format!("applied, and then {error}"))?;
    let mut again = base.clone();
    match again.apply(&newer.diff(&base)) {
        Ok(()) if again == newer => Ok(format!("applied {verdict}")),
        other => Err(format!("{newer:?} became {again:?}: {other:?}")),
    }
}

/// A map with one of everything.
fn full() -> ClusterMap {
    let mut map = ClusterMap::first();
    map.version = 9;
    (map.last_incarnation, map.last_daemon, map.last_move) = (Incarnation(5), DaemonId(4), MoveId(2));
    for (daemon, name) in [(2, "a"), (3, "b"), (4, "standby")] {
        map.daemons.insert(DaemonId(daemon), DaemonInfo { name: name.to_owned() });
    }
    for (rank, daemon) in [(0, 2), (1, 3)] {
        let incarnation = Incarnation(4 + u64::from(rank));
        let info = RankInfo { state: RankState::Active, incarnation, daemon: DaemonId(daemon) };
        map.ranks.insert(RankId(rank), info);
        map.made = map.made.with(RankId(rank));
    }
    let moving = Some(Moving { id: MoveId(2), to: RankId(0) });
    let entry = Entry { rank: RankId(1), version: 9, policy: Policy::Spread, moving };
    let unit = Unit { dir: Ino(4096), frag: Frag::leading(NameHash(u64::MAX), 3) };
    Arc::make_mut(&mut map.entries).insert(unit, entry);
    Arc::make_mut(&mut map.slots).set(7..9, Slot { rank: RankId(1), version: 9, moving });
    map.unknown.insert(7, b"later"[..].into());
    map
}

fn map_seeds() -> Vec<(String, Vec<u8>)> {
    let maps = [ClusterMap::first(), full()];
    maps.iter().enumerate().map(|(number, map)| (format!("{number:02}"), map.encode())).collect()
}

fn delta_seeds() -> Vec<(String, Vec<u8>)> {
    let full = full();
    let mut newer = full.clone();
    newer.version = 12;
    (newer.max_mds, newer.joinable, newer.hash_placement) = (3, false, true);
    newer.slots_used = true;
    (newer.coordinator, newer.bal_rank_mask) = (7, Mask::NONE.with(RankId(0)));
    (newer.last_incarnation, newer.last_daemon, newer.last_move) = (Incarnation(6), DaemonId(5), MoveId(3));
    newer.daemons.remove(&DaemonId(2));
    newer.daemons.insert(DaemonId(5), DaemonInfo { name: "c".to_owned() });
    newer.ranks.insert(RankId(0), RankInfo::failed(Incarnation(4)));
    let info = RankInfo { state: RankState::Creating, incarnation: Incarnation(6), daemon: DaemonId(5) };
    newer.ranks.insert(RankId(2), info);
    Arc::make_mut(&mut newer.entries).retain(|unit, _| *unit == Unit::ROOT);
    let slot = Slot { rank: RankId(2), version: 12, moving: None };
    Arc::make_mut(&mut newer.slots).set(8..100, slot);
    newer.unknown.remove(&7);
    let backwards = Delta { from: 9, ..full.diff(&newer) };
    let deltas = [newer.diff(&full), Delta { to: 12, ..backwards }];
    deltas.iter().enumerate().map(|(number, delta)| (format!("{number:02}"), delta.encode())).collect()
}
