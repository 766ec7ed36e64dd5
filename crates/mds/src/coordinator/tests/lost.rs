//! Moves of ranks that lose their lives.
//!
//! Absent: what else ends a move (`changes`, `moves`).

use super::changes::{begin, by, is_stale, moved, slots};
use super::*;
use proto::cluster::MoveId;

/// Whoever loses its life ends the move: the exporter before it was switched, and the importer. What was switched counts.
#[test]
fn a_move_does_not_outlive_a_life() {
    for loser in [0, 1] {
        let mut w = several(2);
        assert!(w.ask(0, begin(dir(5000), by(&w, Unit::ROOT), 1)).is_ok());
        assert!(w.ask(0, slots(0, 64, w.stored().slots.get(0).version, 1)).is_ok());
        moved(&mut w, dir(6000), 1);
        let before = w.entry(dir(5000)).map_or(0, |entry| entry.version);
        w.kill(loser);
        let map = w.stored();
        assert!(map.entries.values().all(|entry| entry.moving.is_none()));
        assert!(map.slots.runs().all(|(_, slot)| slot.moving.is_none() && slot.rank == RankId(0)));
        let entry = w.entry(dir(5000)).expect("it is explicit");
        assert!(entry.rank == RankId(0) && entry.version > before);
        assert_eq!(w.entry(dir(6000)).map(|entry| entry.rank), Some(RankId(1)));
        assert_eq!(w.state(loser), RankState::Active);
        for id in [1, 2] {
            assert!(is_stale(&w.ask(0, Ask::Switch { id: MoveId(id) })));
        }
        assert_eq!(w.notes("stays with rank 0: it or rank 1 does not serve as it did"), 2, "{:?}", w.said);
    }
}

/// The switch is asked for in the very moment in which the importer goes down.
#[test]
fn nothing_is_switched_to_a_rank_that_went_down() {
    let mut w = several(2);
    assert!(w.ask(0, begin(dir(5000), by(&w, Unit::ROOT), 1)).is_ok());
    let life = Life { rank: RankId(0), incarnation: w.rank(0).incarnation };
    w.hold_registry = true;
    w.give(Input::Command { id: 1, command: Command::SetJoinable(false) });
    w.give(Input::Command { id: 2, command: Command::FailRank(RankId(1)) });
    w.give(Input::Command { id: 3, command: Command::Ask(life, Ask::Switch { id: MoveId(1) }) });
    w.let_go();
    let refused = |output: &Output| {
        matches!(output, Output::Answer { id: 3, result: Err(CommandError::Stale(Found::Move(MoveId(1)))) })
    };
    assert_eq!(w.count(refused), 1, "{:?}", w.said);
    assert_eq!(w.entry(dir(5000)).map(|entry| (entry.rank, entry.moving)), Some((RankId(0), None)));
}

/// A coordinator that begins finds moves of ranks that it cannot let live.
#[test]
fn the_next_coordinator_ends_moves_of_the_dead() {
    let mut w = several(2);
    assert!(w.ask(0, begin(dir(5000), by(&w, Unit::ROOT), 1)).is_ok());
    let next = w.beside(true);
    assert_eq!(next.entry(dir(5000)).map(|entry| (entry.rank, entry.moving)), Some((RankId(0), None)));
    // One that need not be the only one lets them live, and move.
    let mut w = several(2);
    assert!(w.ask(0, begin(dir(5000), by(&w, Unit::ROOT), 1)).is_ok());
    let mut next = w.beside(false);
    assert!(next.entry(dir(5000)).is_some_and(|entry| entry.moving.is_some()));
    assert!(next.ask(0, Ask::Switch { id: MoveId(1) }).is_ok());
    assert_eq!(next.entry(dir(5000)).map(|entry| entry.rank), Some(RankId(1)));
}

#[cfg(feature = "mutants")]
#[test]
fn defects_of_lost_moves_are_caught() {
    let defects: [(&str, fn()); 3] = [
        ("coord_move_outlives_life", a_move_does_not_outlive_a_life),
        ("coord_move_outlives_life", the_next_coordinator_ends_moves_of_the_dead),
        ("coord_target_inactive", nothing_is_switched_to_a_rank_that_went_down),
    ];
    for (defect, test) in defects {
        stdx::mutant::activate(Some(defect));
        let verdict = std::panic::catch_unwind(test);
        stdx::mutant::activate(None);
        assert!(verdict.is_err(), "{defect}");
    }
}
