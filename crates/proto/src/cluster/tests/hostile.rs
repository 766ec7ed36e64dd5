//! Bytes and maps that no version writes.
//!
//! Absent: arbitrary bytes (`fuzz`, targets cluster-map and cluster-delta).

use super::*;

/// A map with one of everything.
fn full() -> ClusterMap {
    let mut map = ClusterMap::first();
    map.version = 9;
    (map.last_incarnation, map.last_daemon, map.last_move) = (Incarnation(5), DaemonId(3), MoveId(2));
    let name = |name: &str| DaemonInfo { name: name.into() };
    map.daemons = BTreeMap::from([(DaemonId(2), name("a")), (DaemonId(3), name("b"))]);
    let active = |incarnation, daemon| RankInfo {
        state: RankState::Active,
        incarnation: Incarnation(incarnation),
        daemon: DaemonId(daemon),
    };
    map.ranks = BTreeMap::from([(RankId(0), active(4, 2)), (RankId(1), active(5, 3))]);
    map.made = map.made.with(RankId(1));
    let moving = Some(Moving { id: MoveId(2), to: RankId(0) });
    let entry = Entry { rank: RankId(1), version: 9, policy: Policy::Spread, moving };
    let unit = Unit { dir: Ino(4096), frag: Frag::leading(NameHash(u64::MAX), 3) };
    Arc::make_mut(&mut map.entries).insert(unit, entry);
    let slot = Slot { rank: RankId(1), version: 9, moving };
    Arc::make_mut(&mut map.slots).set(7..9, slot);
    map.weights = BTreeMap::from([(RankId(1), 50), (RankId(255), WEIGHT_MAX)]);
    map.unknown.insert(7, b"later"[..].into());
    map
}

#[test]
fn every_cut_of_a_map_is_refused_but_where_a_later_section_begins() {
    let mut map = full();
    let bytes = map.encode();
    assert_eq!(ClusterMap::decode(&bytes).as_ref(), Ok(&map));
    map.unknown.clear();
    let shorter =
        [map.clone(), ClusterMap { weights: BTreeMap::new(), ..map }].map(|map| (map.encode().len(), map));
    for len in 0..bytes.len() {
        let read = ClusterMap::decode(&bytes[..len]);
        let whole = shorter.iter().find(|(end, _)| len == *end).map(|(_, map)| map.clone());
        assert_eq!(read.ok(), whole, "cut at {len}");
    }
}

#[test]
fn a_flipped_bit_is_refused_or_another_map_that_is_encoded_so() {
    let bytes = full().encode();
    let mut refused = 0;
    for bit in 0..bytes.len() * 8 {
        let mut bad = bytes.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        match ClusterMap::decode(&bad) {
            Ok(map) => assert_eq!(map.encode(), bad, "bit {bit}"),
            Err(_) => refused += 1,
        }
    }
    assert!(refused > bytes.len() * 3, "{refused}");
}

#[test]
fn what_is_out_of_order_or_said_twice_is_refused() {
    let order = |what| Err(MapError::Decode(DecodeError::Invalid { what }));
    let section = |tag: u8, body: &[u8]| {
        let mut w = crate::Writer::new();
        w.u8(tag).bytes(body);
        w.0
    };
    let first = ClusterMap::first().encode();
    // A section twice, one that this version knows at the end, and two of later versions.
    for behind in [
        section(5, b"x"),
        section(1, b"x"),
        [section(8, b"x"), section(7, b"x")].concat(),
        [section(7, b"x"), section(7, b"x")].concat(),
    ] {
        let bytes = [&first[..], &behind].concat();
        assert_eq!(ClusterMap::decode(&bytes), order("order of sections"));
    }
    let empty = [&first[..], &section(7, b"")].concat();
    assert!(matches!(ClusterMap::decode(&empty), Err(MapError::Field(_))));
    // Two records of one key, and a record that says that it is not there.
    let core = 113;
    let record = &first[core + 5..core + 24];
    let with = |ranks: &[u8]| [&first[..core], &section(2, ranks), &first[core + 24..]].concat();
    assert_eq!(ClusterMap::decode(&with(record)), Ok(ClusterMap::first()));
    assert_eq!(ClusterMap::decode(&with(&[record, record].concat())), order("order of records"));
    assert_eq!(ClusterMap::decode(&with(&[0; 3])), order("record of a cluster map"));
    let long = vec![1; MAP_BYTES_MAX + 1];
    assert!(matches!(ClusterMap::decode(&long), Err(MapError::Decode(DecodeError::TooLong { .. }))));
}

#[test]
fn slots_that_are_no_table_are_refused() {
    let first = ClusterMap::first().encode();
    let head = &first[..first.len() - 18];
    let run = |count: u16, rank: u16| {
        let mut w = crate::Writer::new();
        w.u16(count).u16(rank).u64(1).u8(0);
        w.0
    };
    let table = |runs: &[(u16, u16)]| {
        let body: Vec<u8> = runs.iter().flat_map(|(count, rank)| run(*count, *rank)).collect();
        let mut w = crate::Writer::new();
        w.u8(5).bytes(&body);
        ClusterMap::decode(&[head, &w.0].concat())
    };
    assert_eq!(table(&[(4096, 0)]), Ok(ClusterMap::first()));
    let wrong = Err(MapError::Decode(DecodeError::Invalid { what: "slot table" }));
    for runs in [
        &[][..],
        &[(4095, 0)],
        &[(4097, 0)],
        &[(4096, 0), (1, 0)],
        &[(0, 0), (4096, 0)],
        &[(96, 0), (4000, 0)],
        &[(u16::MAX, 0), (u16::MAX, 1)],
    ] {
        assert_eq!(table(runs), wrong, "{runs:?}");
    }
    assert_eq!(
        table(&[(96, 0), (4000, 7)]),
        Err(MapError::Slot { first: 96, why: "its rank is not in the map" })
    );
}

#[test]
fn deltas_out_of_order_or_to_the_past_are_refused() {
    let bytes = |from: u64, to, changes: &[Change]| Delta { from, to, changes: changes.to_vec() }.encode();
    let slot = Slot { rank: RankId(0), version: 1, moving: None };
    let slots = |first, count| Change::Slots { first, count, slot };
    let good = bytes(1, 2, &[Change::MaxMds(2), slots(0, 2), slots(2, 4094)]);
    assert!(Delta::decode(&good).is_ok());
    let refused = |bytes: &[u8], what| {
        assert_eq!(Delta::decode(bytes), Err(DecodeError::Invalid { what }));
    };
    refused(&bytes(1, 2, &[slots(0, 2), slots(1, 2)]), "order of changes");
    refused(&bytes(1, 2, &[Change::MaxMds(2), Change::MaxMds(3)]), "order of changes");
    refused(&bytes(1, 2, &[Change::Joinable(true), Change::MaxMds(3)]), "order of changes");
    refused(&bytes(1, 2, &[slots(4095, 2)]), "run of slots");
    refused(&bytes(1, 2, &[slots(4096, 1)]), "run of slots");
    refused(&bytes(1, 2, &[slots(5, 0)]), "run of slots");
    refused(&bytes(2, 2, &[]), "versions of a delta");
    for len in 0..good.len() {
        // A cut between two changes is a shorter delta.
        if let Ok(delta) = Delta::decode(&good[..len]) {
            assert_eq!(delta.encode(), good[..len]);
        }
    }
    assert!(Delta::decode(&ClusterMap::first().encode()).is_err());
    assert!(ClusterMap::decode(&good).is_err());
}

/// What a map is told to be wrong with, and how it becomes so.
type Case = (&'static str, fn(&mut ClusterMap));

fn named(cases: &[Case]) {
    assert_eq!(full().check(), Ok(()));
    for (text, edit) in cases {
        let mut map = full();
        edit(&mut map);
        assert_eq!(map.check().expect_err(text).to_string(), *text);
    }
}

fn put_unit(map: &mut ClusterMap, dir: Ino, frag: Frag) {
    let entry = map.entries[&Unit::ROOT];
    Arc::make_mut(&mut map.entries).insert(Unit { dir, frag }, entry);
}

fn rank_1(map: &mut ClusterMap) -> &mut RankInfo {
    map.ranks.get_mut(&RankId(1)).expect("it has a rank 1")
}

#[test]
fn contradictions_of_a_map_are_named() {
    let cases: [Case; 14] = [
        ("version 0", |map| map.version = 0),
        ("a number of 2^63 or more", |map| map.last_move = MoveId(1 << 63)),
        ("max_mds is not 1 to 256", |map| map.max_mds = 257),
        ("rank 0 is missing", |map| map.ranks.retain(|rank, _| rank.0 > 0)),
        ("more than 256 daemons", |map| {
            map.last_daemon = DaemonId(300);
            for daemon in 1..=257 {
                map.daemons.insert(DaemonId(daemon), DaemonInfo { name: "n".into() });
            }
        }),
        ("more than 65,536 entries", |map| {
            (0..=65_536).for_each(|dir| put_unit(map, Ino(4096 + dir), Frag::WHOLE));
        }),
        ("the root's entry is missing", |map| {
            Arc::make_mut(&mut map.entries).retain(|unit, _| *unit != Unit::ROOT);
        }),
        ("an odd section", |map| map.unknown.extend([(5, b"x"[..].into())])),
        ("a weight that none is, or of a rank above 255", |map| map.weights.extend([(RankId(1), WEIGHT)])),
        ("a weight that none is, or of a rank above 255", |map| map.weights.extend([(RankId(1), 0)])),
        ("a weight that none is, or of a rank above 255", |map| map.weights.extend([(RankId(1), 1001)])),
        ("a weight that none is, or of a rank above 255", |map| map.weights.extend([(RankId(256), 1)])),
        ("an odd section", |map| map.unknown.extend([(7, b""[..].into())])),
        ("more than 1 MiB of a later version", |map| map.unknown.extend([(8, vec![1; 1 << 20].into())])),
    ];
    named(&cases);
}

#[test]
fn contradictions_of_ranks_and_daemons_are_named() {
    let cases: [Case; 11] = [
        ("a life of two ranks, or a daemon with two", |map| rank_1(map).incarnation = Incarnation(4)),
        ("a life of two ranks, or a daemon with two", |map| rank_1(map).daemon = DaemonId(2)),
        ("rank 256: above 255", |map| {
            map.ranks.insert(RankId(256), RankInfo::failed(Incarnation(1)));
        }),
        ("rank 1: its incarnation was not given to any rank", |map| map.last_incarnation.0 = 4),
        ("rank 1: its daemon is not known", |map| map.daemons.retain(|daemon, _| daemon.0 < 3)),
        ("rank 1: a daemon carries it, and it has no incarnation", |map| {
            rank_1(map).incarnation = Incarnation(0);
        }),
        ("rank 1: failed, and a daemon carries it", |map| rank_1(map).state = RankState::Failed),
        ("rank 1: no daemon carries it", |map| rank_1(map).daemon = DaemonId::NONE),
        ("rank 1: it serves, and was never made", |map| map.made = Mask::NONE.with(RankId(0))),
        ("daemon 3: its number was not given to anybody", |map| map.last_daemon = DaemonId(2)),
        ("daemon 3: its name has not 1 to 255 bytes", |map| {
            map.daemons.insert(DaemonId(3), DaemonInfo { name: "n".repeat(256) });
        }),
    ];
    named(&cases);
    // Neither is a contradiction: nobody carries what is damaged any more, and it was not made before.
    let mut map = full();
    *rank_1(&mut map) = RankInfo { state: RankState::Damaged, ..RankInfo::failed(Incarnation(5)) };
    map.made = Mask::NONE.with(RankId(0));
    assert_eq!(map.check(), Ok(()));
}

#[test]
fn contradictions_of_entries_and_slots_are_named() {
    // The text of an entry names it: this is the one of `full`.
    const AT: &str = "entry of 0x1000, prefix 0xe000000000000000 of depth 3";
    let cases: [Case; 3] = [
        ("its version is 0 or newer than the map's", |map| map.version = 8),
        ("its move was never begun", |map| map.last_move = MoveId(1)),
        ("it moves to its own rank or to one not in the map", |map| {
            for entry in Arc::make_mut(&mut map.entries).values_mut() {
                entry.moving = entry.moving.map(|moving| Moving { to: RankId(1), ..moving });
            }
        }),
    ];
    for (why, edit) in cases {
        let mut map = full();
        edit(&mut map);
        assert_eq!(map.check().expect_err(why).to_string(), format!("{AT}: {why}"));
    }
    let units: [Case; 4] = [
        ("not the number of an inode", |map| put_unit(map, Ino(0), Frag::WHOLE)),
        ("not the number of an inode", |map| put_unit(map, Ino(1 << 63), Frag::WHOLE)),
        ("deeper than 24", |map| put_unit(map, Ino(9), Frag { prefix: 0, depth: 25 })),
        ("its prefix has bits beyond its depth", |map| put_unit(map, Ino(9), Frag { prefix: 1, depth: 24 })),
    ];
    for (text, edit) in units {
        let mut map = full();
        edit(&mut map);
        let error = map.check().expect_err(text);
        assert!(matches!(error, MapError::Entry { why, .. } if why == text), "{error}");
    }
    let mut map = full();
    let slot = Slot { rank: RankId(2), version: 9, moving: None };
    Arc::make_mut(&mut map.slots).set(100..101, slot);
    assert_eq!(
        map.check().expect_err("there is no rank 2").to_string(),
        "slot 100: its rank is not in the map"
    );
}
