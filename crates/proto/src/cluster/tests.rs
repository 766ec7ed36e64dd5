//! Maps at random and maps that are wrong.
//!
//! Absent: who changes maps, and when (`mds::coordinator`).

mod hostile;

use super::*;
use crate::codec::DecodeError;
use stdx::Prng;

const STATES: [RankState; 6] = [
    RankState::Replay,
    RankState::Resolve,
    RankState::Reconnect,
    RankState::Active,
    RankState::Stopping,
    RankState::Damaged,
];
const POLICIES: [Policy; 4] = [Policy::Pin, Policy::Spread, Policy::Carved, Policy::Placement];

fn some_rank(map: &ClusterMap, dice: &mut Prng) -> RankId {
    let ranks: Vec<RankId> = map.ranks.keys().copied().collect();
    ranks[dice.index(ranks.len())]
}

fn some_unit(dice: &mut Prng) -> Unit {
    let frag = Frag::leading(NameHash(dice.next_u64()), dice.below(u64::from(UNIT_DEPTH_MAX) + 1) as u8);
    Unit { dir: Ino(1 + dice.below(5)), frag }
}

fn some_moving(map: &mut ClusterMap, dice: &mut Prng, from: RankId) -> Option<Moving> {
    let to = some_rank(map, dice);
    if to == from || dice.chance(1, 2) {
        return None;
    }
    map.last_move.0 += 1;
    Some(Moving { id: map.last_move, to })
}

fn new_daemon(map: &mut ClusterMap, dice: &mut Prng) -> DaemonId {
    map.last_daemon.0 += 1 + dice.below(2);
    let name = "n".repeat(1 + dice.index(255));
    map.daemons.insert(map.last_daemon, DaemonInfo { name });
    map.last_daemon
}

/// One thing of a map made different.
fn change(map: &mut ClusterMap, dice: &mut Prng) {
    let rank = RankId(dice.below(5) as u16);
    match dice.below(13) {
        0 => map.max_mds = 1 + dice.below(256) as u16,
        1 => map.joinable = !map.joinable,
        2 => {
            map.hash_placement = !map.hash_placement;
            map.slots_used |= map.hash_placement;
        }
        3 => map.coordinator += 1,
        4 => map.bal_rank_mask = Mask([dice.next_u64(), 0, dice.next_u64(), u64::MAX]),
        5 => {
            new_daemon(map, dice);
        }
        6 => {
            let carry: Vec<DaemonId> = map.ranks.values().map(|info| info.daemon).collect();
            let keep = map.last_daemon.0.saturating_sub(dice.below(9));
            map.daemons.retain(|daemon, _| carry.contains(daemon) || daemon.0 > keep);
        }
        7 => {
            map.last_incarnation.0 += 1;
            map.made = map.made.with(rank);
            let state = STATES[dice.index(STATES.len())];
            let info = RankInfo { state, incarnation: map.last_incarnation, daemon: new_daemon(map, dice) };
            map.ranks.insert(rank, info);
        }
        8 if rank.0 > 0 && !map.is_owner(rank) => {
            map.ranks.remove(&rank);
        }
        8 => {
            if let Some(info) = map.ranks.get_mut(&rank) {
                *info = RankInfo::failed(info.incarnation);
            }
        }
        9 => {
            let rank = some_rank(map, dice);
            let moving = some_moving(map, dice, rank);
            let policy = POLICIES[dice.index(4)];
            let entry = Entry { rank, version: map.version, policy, moving };
            Arc::make_mut(&mut map.entries).insert(some_unit(dice), entry);
        }
        10 => {
            let first = dice.below(u64::from(SLOTS)) as u16;
            let most = if dice.chance(1, 2) { 3 } else { u64::from(SLOTS) };
            let count = 1 + dice.below(most) as u16;
            let rank = some_rank(map, dice);
            let slot = Slot { rank, version: map.version, moving: some_moving(map, dice, rank) };
            Arc::make_mut(&mut map.slots).set(first..first + count, slot);
        }
        11 => {
            let weight = 1 + dice.below(u64::from(WEIGHT_MAX)) as u16;
            if weight == WEIGHT || map.weights.remove(&rank).is_none() {
                map.weights.insert(rank, if weight == WEIGHT { 1 } else { weight });
            }
        }
        _ => {
            let tag = 7 + dice.below(3) as u8;
            if map.unknown.remove(&tag).is_none() {
                map.unknown.insert(tag, vec![tag; 1 + dice.index(20)].into());
            }
        }
    }
}

/// A later version of a map.
pub(super) fn later(map: &ClusterMap, dice: &mut Prng) -> ClusterMap {
    let mut map = map.clone();
    map.version += 1 + dice.below(3);
    for _ in 0..dice.below(16) {
        change(&mut map, dice);
    }
    // Entries go, too.
    if dice.chance(1, 3) {
        let keep = |unit: &Unit| *unit == Unit::ROOT || unit.dir.0.is_multiple_of(2);
        Arc::make_mut(&mut map.entries).retain(|unit, _| keep(unit));
    }
    assert_eq!(map.check(), Ok(()));
    map
}

#[test]
fn maps_and_deltas_survive_and_a_delta_makes_the_older_map_the_newer() {
    let mut dice = Prng::new(1);
    let mut map = ClusterMap::first();
    for round in 0..400 {
        assert_eq!(ClusterMap::decode(&map.encode()).as_ref(), Ok(&map));
        // Some versions apart, too.
        let mut newer = later(&map, &mut dice);
        for _ in 0..round % 4 {
            newer = later(&newer, &mut dice);
        }
        let delta = newer.diff(&map);
        assert_eq!(Delta::decode(&delta.encode()).as_ref(), Ok(&delta));
        let mut moved = map.clone();
        assert_eq!(moved.apply(&delta), Ok(()), "{delta:?}");
        assert_eq!(moved, newer);
        // And not twice.
        let have = newer.version;
        assert_eq!(moved.apply(&delta), Err(MapError::Base { from: map.version, have }));
        assert_eq!(moved, newer);
        map = newer;
    }
    assert!(map.entries.len() > 20 && map.ranks.len() > 2 && map.slots.runs().count() > 20);
}

#[test]
fn a_delta_that_breaks_a_map_leaves_it_as_it_was() {
    let first = ClusterMap::first();
    let mut map = first.clone();
    for change in [
        Change::Rank(RankId(0), None),
        Change::Entry(Unit::ROOT, None),
        Change::MaxMds(0),
        Change::Daemon(DaemonId(1), Some(DaemonInfo { name: "a".into() })),
        Change::Section(5, b"slots"[..].into()),
    ] {
        let delta = Delta { from: 1, to: 2, changes: vec![Change::Joinable(false), change] };
        let error = map.apply(&delta).expect_err("it contradicts itself");
        assert!(!matches!(error, MapError::Base { .. } | MapError::Decode(_)), "{error}");
        assert_eq!(map, first, "{error}");
    }
}

#[test]
fn the_smallest_unit_with_the_hash_governs() {
    let mut dice = Prng::new(2);
    for _ in 0..200 {
        let mut map = ClusterMap::first();
        for _ in 0..dice.below(60) {
            let entry = Entry { rank: RankId(0), version: 1, policy: Policy::Pin, moving: None };
            let dir = Ino(4 + dice.below(3));
            // Shallow ones often meet; deep ones lie close to each other.
            let hash = if dice.chance(1, 2) { dice.next_u64() } else { dice.next_u64() >> 20 };
            let depths = if dice.chance(1, 2) { 4 } else { 25 };
            let depth = dice.below(depths) as u8;
            let unit = Unit { dir, frag: Frag::leading(NameHash(hash), depth) };
            Arc::make_mut(&mut map.entries).insert(unit, entry);
        }
        assert_eq!(map.check(), Ok(()));
        for _ in 0..100 {
            let dir = Ino(4 + dice.below(3));
            let hash = NameHash(if dice.chance(1, 2) { dice.next_u64() } else { dice.next_u64() >> 20 });
            let covers = |unit: &&Unit| unit.dir == dir && unit.frag.covers(hash);
            let expected = map.entries.keys().filter(covers).max_by_key(|unit| unit.frag.depth);
            let found = map.governing(dir, hash).map(|(unit, _)| unit);
            assert_eq!(found.as_ref(), expected, "{hash:?} of {dir:?} among {:?}", map.entries.keys());
            let unit = Unit { dir, frag: Frag::leading(hash, dice.below(25) as u8) };
            let larger = |other: &&Unit| covers(other) && other.frag.depth <= unit.frag.depth;
            let expected = map.entries.keys().filter(larger).max_by_key(|unit| unit.frag.depth);
            let found = map.covering(unit).map(|(unit, _)| unit);
            assert_eq!(found.as_ref(), expected, "{unit:?} among {:?}", map.entries.keys());
        }
    }
    let root = ClusterMap::first();
    assert_eq!(root.governing(Ino::ROOT, NameHash(99)).map(|(unit, _)| unit), Some(Unit::ROOT));
    assert_eq!(root.governing(Ino(4096), NameHash(99)), None);
}

#[test]
fn a_table_of_slots_is_what_was_set_last() {
    let mut dice = Prng::new(3);
    let slot = |rank| Slot { rank: RankId(rank), version: 1, moving: None };
    let mut slots = Slots::all(slot(0));
    let mut plain = vec![slot(0); usize::from(SLOTS)];
    for _ in 0..2_000 {
        let first = dice.below(u64::from(SLOTS) + 2) as u16;
        let most = if dice.chance(1, 3) { 5_000 } else { 9 };
        let last = first + dice.below(most) as u16;
        let new = slot(dice.below(3) as u16);
        slots.set(first..last, new);
        for number in first..last.min(SLOTS) {
            plain[usize::from(number)] = new;
        }
        let mut at = 0;
        for (range, slot) in slots.runs() {
            assert_eq!(range.start, at);
            assert!(range.end > at, "an empty run");
            assert!(plain[usize::from(at)..usize::from(range.end)].iter().all(|plain| *plain == slot));
            assert!(range.end == SLOTS || plain[usize::from(range.end)] != slot, "two runs alike");
            at = range.end;
        }
        assert_eq!(at, SLOTS);
        let number = dice.below(u64::from(SLOTS)) as u16;
        assert_eq!(slots.get(number), plain[usize::from(number)]);
    }
}

#[test]
fn the_slot_of_a_unit_is_fixed_for_ever() {
    let unit = |dir, prefix, depth| ClusterMap::slot_of(Ino(dir), Frag { prefix, depth });
    // mix64 as in stdx::hash, spelled once more.
    let mix = |mut x: u64| {
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    };
    assert_eq!(u64::from(unit(4096, 0, 0)), mix(mix(4096)) % 4096);
    let half = 1 << 63;
    assert_eq!(u64::from(unit(4096, half, 1)), mix(mix(4096) ^ (half | 1)) % 4096);
    // What lies beyond the depth is not looked at.
    assert_eq!(unit(4096, half | 77, 1), unit(4096, half, 1));
    let mut hit = vec![0; usize::from(SLOTS)];
    for dir in 0..40_960 {
        hit[usize::from(unit(dir, 0, 0))] += 1;
    }
    assert!(hit.iter().all(|hit| *hit < 35), "directories made one after another share slots");
}

#[test]
fn masks_name_ranks() {
    let mask = Mask::NONE.with(RankId(0)).with(RankId(64)).with(RankId(255)).with(RankId(256));
    assert_eq!(mask, Mask([1, 1, 0, 1 << 63]));
    let named = (0..300).map(RankId).filter(|rank| mask.has(*rank));
    assert_eq!(named.collect::<Vec<_>>(), [RankId(0), RankId(64), RankId(255)]);
    assert!(Mask::ALL.has(RankId(255)) && !Mask::ALL.has(RankId(256)));
}

/// FORMAT.md, byte by byte.
#[test]
fn the_first_map_is_these_bytes() {
    let core = [
        &[1, 1][..],
        &107_u32.to_le_bytes(),
        &1_u64.to_le_bytes(),
        &1_u16.to_le_bytes(),
        &[1],
        &[0; 8 * 4],
        &[0xFF; 32],
        &[1, 0, 0, 0, 0, 0, 0, 0],
        &[0; 24],
    ]
    .concat();
    let ranks = [&[2, 19, 0, 0, 0][..], &[0, 0], &[1], &[0; 16]].concat();
    let daemons = [3, 0, 0, 0, 0];
    let root = [&[1, 0, 0, 0, 0, 0, 0, 0][..], &[0; 9], &[3], &[0, 0], &1_u64.to_le_bytes(), &[0]].concat();
    let entries = [&[4, 29, 0, 0, 0][..], &root].concat();
    let slots =
        [&[5, 13, 0, 0, 0][..], &4096_u16.to_le_bytes(), &[0, 0], &1_u64.to_le_bytes(), &[0]].concat();
    let expected = [&core[..], &ranks, &daemons, &entries, &slots].concat();
    assert_eq!(ClusterMap::first().encode(), expected);
}
