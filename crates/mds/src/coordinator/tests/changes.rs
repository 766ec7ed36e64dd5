//! What ranks ask for: what they name has to be so.
//!
//! Absent: ranks that lose their lives (`lost`); moves that the coordinator begins (`moves`).

use super::*;
use proto::cluster::{ENTRIES_MAX, MoveId, Policy};
use std::sync::Arc;

/// What governs by an entry, as the map has it.
pub(super) fn by(w: &World, unit: Unit) -> Governing {
    Governing { by: Governor::Entry(unit), version: w.entry(unit).map_or(0, |entry| entry.version) }
}

fn by_slot(w: &World, number: u16) -> Governing {
    Governing { by: Governor::Slot(number), version: w.stored().slots.get(number).version }
}

fn explicit(unit: Unit, governing: Governing) -> Ask {
    Ask::MakeExplicit { unit, policy: Policy::Carved, governing }
}

pub(super) fn begin(unit: Unit, governing: Governing, to: u16) -> Ask {
    Ask::MoveBegin { moved: Subject::Unit { unit, governing }, to: RankId(to) }
}

pub(super) fn slots(first: u16, count: u16, version: u64, to: u16) -> Ask {
    Ask::MoveBegin { moved: Subject::Slots { first, count, version }, to: RankId(to) }
}

pub(super) fn is_stale(result: &Result<String, CommandError>) -> bool {
    matches!(result, Err(CommandError::Stale(_)))
}

fn is_wrong(result: &Result<String, CommandError>) -> bool {
    matches!(result, Err(CommandError::WrongState(_)))
}

/// The number of the last move.
fn last(w: &World) -> MoveId {
    w.stored().last_move
}

/// A unit of rank 0 gets an entry and goes to the other rank.
pub(super) fn moved(w: &mut World, unit: Unit, to: u16) {
    let from = w.entry(unit).map_or(0, |entry| entry.rank.0);
    let governing = by(w, w.entry(unit).map_or(Unit::ROOT, |_| unit));
    w.ask(from, begin(unit, governing, to)).expect("it begins");
    let id = last(w);
    w.ask(from, Ask::Switch { id }).expect("it ends");
    assert_eq!(w.entry(unit).map(|entry| entry.rank), Some(RankId(to)));
}

#[test]
fn a_unit_is_made_explicit_and_moves() {
    let mut w = several(2);
    let unit = dir(5000);
    let before = w.stored();
    let text = w.ask(0, explicit(unit, by(&w, Unit::ROOT))).expect("it is rank 0's");
    assert_eq!(text, "directory 0x1388: an entry of its own, rank 0's");
    let entry = w.entry(unit).expect("it is there");
    let version = before.version + 1;
    assert_eq!(entry, Entry { rank: RankId(0), version, policy: Policy::Carved, moving: None });
    assert_eq!(w.entry(Unit::ROOT).map(|root| root.version), Some(version), "it governs less");
    let text = w.ask(0, begin(unit, by(&w, unit), 1)).expect("rank 1 is active");
    assert_eq!(text, "move 1: directory 0x1388 from rank 0 to rank 1");
    let entry = w.entry(unit).expect("it is there");
    assert_eq!((entry.rank, entry.version), (RankId(0), version + 1));
    assert_eq!(entry.moving.map(|moving| (moving.id, moving.to)), Some((MoveId(1), RankId(1))));
    let text = w.ask(0, Ask::Switch { id: MoveId(1) }).expect("it is under way");
    assert_eq!(text, "move 1: directory 0x1388 from rank 0 to rank 1");
    let entry = w.entry(unit).expect("it is there");
    assert_eq!((entry.rank, entry.version, entry.moving), (RankId(1), version + 2, None));
    // And a part of it, which gets its entry by the same change.
    let half = part(5000, 1 << 63, 1);
    assert!(w.ask(1, begin(half, by(&w, unit), 0)).is_ok());
    assert_eq!(w.entry(half).map(|entry| (entry.rank, entry.policy)), Some((RankId(1), Policy::Carved)));
    let text = w.ask(1, Ask::Abort { id: MoveId(2) }).expect("it is under way");
    assert_eq!(text, "move 2: given up: directory 0x1388, hashes 0x8000000000000000/1 stays with rank 1");
    assert_eq!(w.entry(half).map(|entry| (entry.rank, entry.moving)), Some((RankId(1), None)));
    let version = w.entry(half).map_or(0, |entry| entry.version);
    assert!(w.ask(1, Ask::SetPolicy { unit: half, version, policy: Policy::Spread }).is_ok());
    assert_eq!(w.entry(half).map(|entry| entry.policy), Some(Policy::Spread));
}

#[test]
fn a_version_that_is_not_the_present_one_is_refused() {
    let mut w = several(2);
    let old = by(&w, Unit::ROOT);
    assert!(w.ask(0, explicit(dir(5000), old)).is_ok());
    let map = w.stored();
    let result = w.ask(0, explicit(dir(5001), old));
    let there = map.entries.get(&Unit::ROOT).copied();
    assert_eq!(result, Err(CommandError::Stale(Found::Entry(Unit::ROOT, there))));
    let text = result.unwrap_or_else(|error| error.to_string());
    let root = format!("directory 0x1: rank 0's, of version {}", map.version);
    assert_eq!(text, format!("not what the cluster map says: {root}"));
    let unit = dir(5000);
    let wrong = Governing { version: map.version - 1, ..by(&w, unit) };
    assert!(is_stale(&w.ask(0, begin(unit, wrong, 1))));
    let slot = by_slot(&w, 7);
    assert!(is_stale(&w.ask(0, explicit(dir(6000), Governing { version: slot.version + 1, ..slot }))));
    let why = Dropped::Purged;
    assert!(is_stale(&w.ask(0, Ask::Drop { unit, version: map.version - 1, why })));
    let policy = Policy::Pin;
    assert!(is_stale(&w.ask(0, Ask::SetPolicy { unit, version: map.version + 1, policy })));
    assert!(is_stale(&w.ask(0, slots(0, 9, 2, 1))));
    assert_eq!(w.stored(), map);
}

/// Of two units of which one is in the other, asked for at once, the second one may be another's when it is asked for.
#[test]
fn what_was_found_before_a_unit_in_between_got_an_entry_is_refused() {
    let mut w = several(2);
    let (root, slot) = (by(&w, Unit::ROOT), by_slot(&w, 9));
    moved(&mut w, dir(5000), 1);
    // It thinks that 5001, which is below 5000, is governed by the root yet.
    assert!(is_stale(&w.ask(0, explicit(dir(5001), root))));
    assert!(w.ask(0, begin(dir(6000), slot, 1)).is_ok());
    assert!(is_stale(&w.ask(0, explicit(dir(6001), slot))));
}

#[test]
fn a_life_that_is_over_changes_nothing() {
    let mut w = several(2);
    let life = Life { rank: RankId(0), incarnation: w.rank(0).incarnation };
    assert!(w.ask(0, begin(dir(5000), by(&w, Unit::ROOT), 1)).is_ok());
    let id = last(&w);
    w.kill(0);
    assert_eq!(w.state(0), RankState::Active, "its next life");
    let unit = dir(5000);
    for ask in [explicit(dir(5001), by(&w, Unit::ROOT)), begin(unit, by(&w, unit), 1), Ask::Switch { id }] {
        let result = w.command(Command::Ask(life, ask));
        let there = w.stored().ranks.get(&RankId(0)).copied();
        assert_eq!(result, Err(CommandError::Stale(Found::Rank(RankId(0), there))), "{ask:?}");
    }
    assert_eq!(w.entry(unit).map(|entry| (entry.rank, entry.moving)), Some((RankId(0), None)));
    // Nor does one that does not serve.
    assert!(w.command(Command::FailFs).is_ok());
    assert!(is_stale(&w.ask(0, explicit(dir(5001), by(&w, Unit::ROOT)))));
}

#[test]
fn only_the_owner_asks() {
    let mut w = several(3);
    moved(&mut w, dir(5000), 1);
    let map = w.stored();
    let (unit, root) = (dir(5000), by(&w, Unit::ROOT));
    let version = by(&w, unit).version;
    let why = Dropped::Merged(root);
    for (rank, ask) in [
        (1, explicit(dir(5001), root)),
        (0, explicit(dir(5001), by(&w, unit))),
        (1, begin(dir(5001), root, 2)),
        (2, begin(unit, by(&w, unit), 2)),
        (1, slots(0, 5, by_slot(&w, 0).version, 2)),
        (0, Ask::Drop { unit, version, why }),
        (0, Ask::Drop { unit, version, why: Dropped::Purged }),
        (0, Ask::SetPolicy { unit, version, policy: Policy::Pin }),
    ] {
        assert!(is_stale(&w.ask(rank, ask)), "{rank} {ask:?}");
    }
    assert_eq!(w.stored(), map);
}

/// Its own entry, or one of a larger unit of its directory, is nearer than whatever the directory inherits.
#[test]
fn a_nearer_entry_governs() {
    let mut w = several(2);
    let root = by(&w, Unit::ROOT);
    assert!(w.ask(0, explicit(part(5000, 1 << 63, 1), root)).is_ok());
    let there = w.entry(part(5000, 1 << 63, 1));
    let found = Found::Entry(part(5000, 1 << 63, 1), there);
    for unit in [part(5000, 1 << 63, 1), part(5000, 3 << 62, 2)] {
        let result = w.ask(0, begin(unit, by(&w, Unit::ROOT), 1));
        assert_eq!(result, Err(CommandError::Stale(found)), "{unit:?}");
        let slot = by_slot(&w, ClusterMap::slot_of(unit.dir, unit.frag));
        assert_eq!(w.ask(0, begin(unit, slot, 1)), Err(CommandError::Stale(found)), "{unit:?}");
    }
    // An entry that is there is not made.
    let result = w.ask(0, explicit(part(5000, 1 << 63, 1), by(&w, part(5000, 1 << 63, 1))));
    assert_eq!(result, Err(CommandError::Stale(found)));
    // The other half, and the whole, are governed from above.
    assert!(w.ask(0, explicit(part(5000, 0, 1), by(&w, Unit::ROOT))).is_ok());
    assert!(w.ask(0, explicit(dir(5000), by(&w, Unit::ROOT))).is_ok());
    // An entry that is not there governs nothing.
    let result = w.ask(0, explicit(dir(7000), by(&w, dir(6000))));
    assert_eq!(result, Err(CommandError::Stale(Found::Entry(dir(6000), None))));
}

#[test]
fn one_change_of_what_governs_is_under_way() {
    let mut w = several(3);
    let unit = dir(5000);
    assert!(w.ask(0, begin(unit, by(&w, Unit::ROOT), 1)).is_ok());
    let map = w.stored();
    let (governing, why) = (by(&w, unit), Dropped::Purged);
    let version = governing.version;
    for ask in [
        explicit(dir(5001), governing),
        begin(unit, governing, 2),
        begin(part(5000, 0, 1), governing, 2),
        Ask::Drop { unit, version, why },
        Ask::SetPolicy { unit, version, policy: Policy::Pin },
    ] {
        let result = w.ask(0, ask);
        assert!(is_wrong(&result), "{ask:?}: {result:?}");
    }
    assert_eq!(w.stored(), map);
    assert!(w.ask(0, slots(10, 10, by_slot(&w, 10).version, 1)).is_ok());
    let version = by_slot(&w, 19).version;
    assert!(is_wrong(&w.ask(0, slots(19, 2, version, 2))));
    assert!(is_wrong(&w.ask(0, explicit(dir(6000), by_slot(&w, 19)))));
    assert!(w.ask(0, explicit(dir(6000), by_slot(&w, 20))).is_ok());
}

#[test]
fn who_cannot_take_is_given_nothing() {
    let mut w = several(3);
    assert!(w.ask(0, explicit(dir(5000), by(&w, Unit::ROOT))).is_ok());
    assert!(w.command(Command::SetJoinable(false)).is_ok());
    assert!(w.command(Command::FailRank(RankId(1))).is_ok());
    assert!(w.command(Command::SetMaxMds(2)).is_ok());
    assert_eq!(w.state(2), RankState::Stopping);
    let text = |result: Result<String, CommandError>| result.unwrap_or_else(|error| error.to_string());
    for (to, why) in [
        (0, "it is that rank's"),
        (1, "that rank is failed"),
        (2, "that rank is stopping"),
        (3, "no such rank"),
    ] {
        let expected = format!("no move to rank {to}: {why}");
        assert_eq!(text(w.ask(0, begin(dir(5000), by(&w, dir(5000)), to))), expected);
        assert_eq!(text(w.ask(0, slots(0, 1, 1, to))), expected);
    }
    assert_eq!(last(&w), MoveId(0));
    // It is active, and the next that stops.
    let mut w = several(4);
    assert!(w.command(Command::SetMaxMds(2)).is_ok());
    assert_eq!((w.state(2), w.state(3)), (RankState::Active, RankState::Stopping));
    assert_eq!(text(w.ask(0, slots(0, 1, 1, 2))), "no move to rank 2: max_mds is 2");
}

#[test]
fn what_belongs_to_one_rank_by_nature_does_not_move() {
    let mut w = several(2);
    let root = by(&w, Unit::ROOT);
    let odd = Unit { dir: Ino(5000), frag: Frag { prefix: 1, depth: 1 } };
    let deep = part(5000, 0, 25);
    for ask in [
        begin(Unit::ROOT, root, 1),
        begin(dir(Ino::LINKS.0), root, 1),
        explicit(dir(Ino::orphans(RankId(0)).0), root),
        explicit(dir(1 << 63), root),
        explicit(odd, root),
        explicit(deep, root),
        slots(4096, 1, 1, 1),
        slots(4090, 7, 1, 1),
        slots(5, 0, 1, 1),
        slots(u16::MAX, 1, 1, 1),
        Ask::Drop { unit: Unit::ROOT, version: root.version, why: Dropped::Purged },
    ] {
        let result = w.ask(0, ask);
        assert!(matches!(result, Err(CommandError::Unsupported(_))), "{ask:?}: {result:?}");
    }
    // Parts of the root do.
    assert!(w.ask(0, begin(part(1, 0, 1), root, 1)).is_ok());
}

#[test]
fn a_move_is_ended_by_its_owner_and_once() {
    let mut w = several(3);
    assert!(w.ask(0, begin(dir(5000), by(&w, Unit::ROOT), 1)).is_ok());
    assert!(w.ask(0, slots(100, 50, by_slot(&w, 100).version, 2)).is_ok());
    for id in [1, 2] {
        for (rank, ask) in [
            (1, Ask::Switch { id: MoveId(id) }),
            (2, Ask::Switch { id: MoveId(id) }),
            (1, Ask::Abort { id: MoveId(id) }),
        ] {
            assert_eq!(w.ask(rank, ask), Err(CommandError::Stale(Found::Move(MoveId(id)))));
        }
    }
    assert_eq!(
        w.ask(0, Ask::Switch { id: MoveId(2) }),
        Ok("move 2: slots 100 to 149 from rank 0 to rank 2".into())
    );
    let owners: Vec<_> = w.stored().slots.runs().map(|(range, slot)| (range.end, slot.rank.0)).collect();
    assert_eq!(owners, [(100, 0), (150, 2), (4096, 0)]);
    assert!(w.ask(0, Ask::Abort { id: MoveId(1) }).is_ok());
    for id in [0, 1, 2, 3] {
        assert!(is_stale(&w.ask(0, Ask::Switch { id: MoveId(id) })));
        assert!(is_stale(&w.ask(0, Ask::Abort { id: MoveId(id) })));
    }
    assert_eq!(w.entry(dir(5000)).map(|entry| entry.rank), Some(RankId(0)));
    // A range has one owner.
    let version = by_slot(&w, 149).version;
    assert!(is_stale(&w.ask(0, slots(90, 20, version, 1))));
    assert!(w.ask(2, slots(100, 50, version, 1)).is_ok());
}

#[test]
fn entries_go_when_they_are_not_needed() {
    let mut w = several(2);
    let unit = dir(5000);
    moved(&mut w, unit, 1);
    let version = by(&w, unit).version;
    // It is another's without: whoever asks would give it away.
    for rank in [0, 1] {
        let why = Dropped::Merged(by(&w, Unit::ROOT));
        assert!(is_stale(&w.ask(rank, Ask::Drop { unit, version, why })), "{rank}");
        assert_eq!(w.entry(unit).map(|entry| entry.version), Some(version));
    }
    let half = part(5000, 0, 1);
    assert!(w.ask(1, explicit(half, by(&w, unit))).is_ok());
    // Its nearer one is named.
    let half_version = by(&w, half).version;
    let why = Dropped::Merged(by_slot(&w, 0));
    assert!(is_stale(&w.ask(1, Ask::Drop { unit: half, version: half_version, why })));
    let why = Dropped::Merged(Governing { version: by(&w, unit).version - 1, ..by(&w, unit) });
    assert!(is_stale(&w.ask(1, Ask::Drop { unit: half, version: half_version, why })));
    let before = by(&w, unit);
    let why = Dropped::Merged(before);
    assert!(w.ask(1, Ask::Drop { unit: half, version: half_version, why }).is_ok());
    assert_eq!(w.entry(half), None);
    assert!(by(&w, unit).version > before.version, "it governs more");
    let version = by(&w, unit).version;
    assert!(w.ask(1, Ask::Drop { unit, version, why: Dropped::Purged }).is_ok());
    assert_eq!(w.stored().entries.len(), 1);
    assert!(is_stale(&w.ask(1, Ask::Drop { unit, version, why: Dropped::Purged })));
}

#[test]
fn a_map_has_65536_entries_and_no_more() {
    let mut first = ClusterMap::first();
    let root = first.entries[&Unit::ROOT];
    Arc::make_mut(&mut first.entries)
        .extend((5000..5000 + ENTRIES_MAX as u64 - 2).map(|number| (dir(number), root)));
    assert_eq!((first.check(), first.entries.len()), (Ok(()), ENTRIES_MAX - 1));
    let registry = Rc::new(RefCell::new(Some((first.version, first.encode()))));
    let mut w = World::idle(config(true), &registry);
    w.give(Input::Boot);
    w.register("a");
    w.register("b");
    assert!(w.command(Command::SetMaxMds(2)).is_ok());
    assert!(w.ask(0, explicit(dir(4096), by(&w, Unit::ROOT))).is_ok());
    for ask in [explicit(dir(4097), by(&w, Unit::ROOT)), begin(dir(4097), by(&w, Unit::ROOT), 1)] {
        let result = w.ask(0, ask);
        assert!(is_wrong(&result), "{result:?}");
        let text = result.unwrap_or_else(|error| error.to_string());
        assert_eq!(text, "directory 0x1001: the cluster map has 65536 entries already");
    }
    // What has one may move.
    assert!(w.ask(0, begin(dir(4096), by(&w, dir(4096)), 1)).is_ok());
    assert_eq!(w.stored().entries.len(), ENTRIES_MAX);
}

#[cfg(feature = "mutants")]
#[test]
fn defects_of_changes_are_caught() {
    let defects: [(&str, fn()); 10] = [
        ("coord_version_ignored", a_version_that_is_not_the_present_one_is_refused),
        ("coord_carve_keeps_version", what_was_found_before_a_unit_in_between_got_an_entry_is_refused),
        ("coord_old_life_asks", a_life_that_is_over_changes_nothing),
        ("coord_foreign_owner_asks", only_the_owner_asks),
        ("coord_nearer_entry_ignored", a_nearer_entry_governs),
        ("coord_moves_twice", one_change_of_what_governs_is_under_way),
        ("coord_target_inactive", who_cannot_take_is_given_nothing),
        ("coord_others_switch", a_move_is_ended_by_its_owner_and_once),
        ("coord_drop_gives_away", entries_go_when_they_are_not_needed),
        ("coord_entries_unbounded", a_map_has_65536_entries_and_no_more),
    ];
    for (defect, test) in defects {
        stdx::mutant::activate(Some(defect));
        let verdict = std::panic::catch_unwind(test);
        stdx::mutant::activate(None);
        assert!(verdict.is_err(), "{defect}");
    }
}
