//! From one life of a rank to the next.
//!
//! Absent: what the registry has to do with it (`record`).

use super::*;

#[test]
fn a_standby_takes_over_when_the_last_life_is_fenced() {
    let (mut w, a, b) = served();
    w.hold_fences = true;
    w.alive.remove(&a);
    w.give(Input::Gone { daemon: a });
    assert_eq!((w.state(0), w.rank(0).daemon), (RankState::Failed, DaemonId::NONE));
    w.live(100 * SECOND);
    assert_eq!((w.lives(), w.state(0)), (vec![], RankState::Failed), "its writes may still come");
    let asked = w.count(|output| matches!(output, Output::Fence { incarnation: Incarnation(1), .. }));
    assert_eq!(asked, 1);
    w.let_go();
    assert_eq!(w.lives(), [(0, 2, b.0)]);
    assert_eq!((w.state(0), w.rank(0).incarnation), (RankState::Active, Incarnation(2)));
    assert_eq!(w.stored().daemons.keys().copied().collect::<Vec<_>>(), [b]);
}

/// A fence of an earlier life says nothing of the last one.
#[test]
fn the_last_life_is_the_one_to_be_fenced() {
    let (mut w, a, b) = served();
    w.alive.remove(&a);
    w.give(Input::Gone { daemon: a });
    let c = w.register("c");
    w.hold_fences = true;
    w.alive.remove(&b);
    w.give(Input::Gone { daemon: b });
    w.give(Input::Fenced { rank: RankId(0), incarnation: Incarnation(1) });
    assert_eq!(w.state(0), RankState::Failed);
    w.let_go();
    assert_eq!(w.lives(), [(0, 2, b.0), (0, 3, c.0)]);
}

/// A life that an operator ended answers from its cache until it hears of that, or its lease is over.
#[test]
fn a_life_that_does_not_end_when_told_keeps_its_lease() {
    let (mut w, a, b) = served();
    w.obedient = false;
    w.beacon(a);
    let heard = w.now;
    assert!(w.command(Command::FailRank(RankId(0))).is_ok());
    assert!(w.said.iter().any(|output| matches!(output, Output::Dismiss { daemon } if *daemon == a)));
    w.alive = BTreeMap::from([(b, BeaconState::Standby)]);
    w.live(PATIENCE - 1);
    assert_eq!(w.lives(), [], "fenced, and it may still answer");
    w.live(1);
    assert_eq!(w.lives(), [(0, 2, b.0)]);
    assert_eq!(w.now, heard + PATIENCE);
}

#[test]
fn one_that_ends_when_told_is_followed_at_once() {
    let (mut w, a, b) = served();
    w.beacon(a);
    let started = w.now;
    assert!(w.command(Command::FailRank(RankId(0))).is_ok());
    assert_eq!((w.lives(), w.now), (vec![(0, 2, b.0)], started));
    // It is a standby under another number then.
    let again = w.register("a");
    assert!(again > b);
}

#[test]
fn no_number_is_given_to_two_lives() {
    let (mut w, ..) = served();
    assert!(w.command(Command::SetMaxMds(3)).is_ok());
    for name in ["c", "d", "e", "f", "g"] {
        w.register(name);
    }
    for _ in 0..3 {
        for rank in [0, 1, 2] {
            assert!(w.command(Command::FailRank(RankId(rank))).is_ok());
            w.register("again");
        }
    }
    let lives = w.lives();
    let mut numbers: Vec<u64> = lives.iter().map(|(_, incarnation, _)| *incarnation).collect();
    numbers.push(1);
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=12).collect::<Vec<_>>(), "{lives:?}");
}

#[test]
fn numbers_of_lives_go_on_behind_those_that_the_folder_counts() {
    let floor = Incarnation(41);
    let mut w = World::idle(CoordinatorConfig { floor, ..config(true) }, &Registry::default());
    w.give(Input::Boot);
    let a = w.register("a");
    assert_eq!(w.lives(), [(0, 42, a.0)]);
    assert_eq!(w.stored().last_incarnation, Incarnation(42));
}

/// A slot says what it said before for as long as it begins: it has heard of its life, and that again is nothing new.
#[test]
fn one_that_begins_slowly_is_not_silent() {
    let (mut w, a, b) = served();
    w.alive.remove(&a);
    w.give(Input::Gone { daemon: a });
    assert_eq!(w.lives(), [(0, 2, b.0)]);
    w.register("c");
    let acknowledged = w.acknowledged(b);
    for _ in 0..3 * LEASE / (4 * SECOND) {
        // It would begin at once when it hears of its life again.
        w.alive.insert(b, BeaconState::Standby);
        let beacon = w.beacon_of(b);
        w.alive.remove(&b);
        w.give(Input::Beacon { daemon: b, beacon });
        w.live(4 * SECOND);
    }
    assert!(w.acknowledged(b) > acknowledged + 9, "{:?}", w.said);
    assert_eq!((w.rank(0).daemon, w.rank(0).incarnation), (b, Incarnation(2)));
    assert!(w.lives().iter().all(|life| *life == (0, 2, b.0)), "{:?}", w.lives());
}

#[test]
fn what_is_damaged_waits_for_a_person() {
    let (mut w, a, b) = served();
    let life = w.rank(0).incarnation;
    w.alive.insert(a, BeaconState::Rank { rank: RankId(0), incarnation: life, state: RankState::Damaged });
    w.live(60 * SECOND);
    // Its daemon goes on saying so, and tells its clients.
    assert_eq!((w.state(0), w.rank(0).daemon), (RankState::Damaged, a));
    assert!(w.acknowledged(a) > 10);
    w.alive.remove(&a);
    w.live(60 * SECOND);
    assert_eq!((w.state(0), w.rank(0).daemon), (RankState::Damaged, DaemonId::NONE));
    assert_eq!(w.lives(), []);
    assert!(w.command(Command::FailRank(RankId(0))).is_ok());
    assert_eq!(w.lives(), [(0, 2, b.0)]);
    assert_eq!(w.state(0), RankState::Active);
}

/// All daemons were threads of a process that is gone: nobody is waited for, and everybody is fenced all the same.
#[test]
fn the_next_process_waits_for_nobody() {
    let (mut w, ..) = served();
    assert!(w.command(Command::SetMaxMds(2)).is_ok());
    assert_eq!(w.state(1), RankState::Active);
    let mut next = w.beside(true);
    assert_eq!(next.stored().daemons, BTreeMap::new());
    assert_eq!((next.state(0), next.state(1)), (RankState::Failed, RankState::Failed));
    let fenced: Vec<_> = (next.said.iter())
        .filter_map(|output| match output {
            Output::Fence { rank, incarnation } => Some((rank.0, incarnation.0)),
            _ => None,
        })
        .collect();
    assert_eq!(fenced, [(0, 1), (1, 2)]);
    let (started, c) = (next.now, next.register("c"));
    assert_eq!((next.lives(), next.now), (vec![(0, 3, c.0)], started));
    assert_eq!(next.count(|output| matches!(output, Output::Dismiss { .. })), 0);
}

#[test]
fn the_next_process_looks_again_at_what_was_damaged() {
    let (mut w, a, _) = served();
    let life = w.rank(0).incarnation;
    w.alive.insert(a, BeaconState::Rank { rank: RankId(0), incarnation: life, state: RankState::Damaged });
    w.beacon(a);
    assert_eq!(w.state(0), RankState::Damaged);
    let mut next = w.beside(true);
    let c = next.register("c");
    assert_eq!(next.lives(), [(0, 2, c.0)]);
}

#[test]
fn ranks_that_are_wanted_begin_and_those_too_many_stop() {
    let (mut w, a, b) = served();
    let c = w.register("c");
    assert!(w.command(Command::SetMaxMds(4)).is_ok());
    // They were never there: made first. There is no daemon for rank 3.
    assert_eq!(w.notes("rank 1: creating on b (daemon 2)"), 1, "{:?}", w.said);
    assert_eq!(w.lives(), [(1, 2, b.0), (2, 3, c.0)]);
    assert_eq!(w.stored().ranks.len(), 3);
    assert!(w.stored().made.has(RankId(2)) && !w.stored().made.has(RankId(3)));
    assert!(w.command(Command::SetMaxMds(1)).is_ok());
    // One at a time.
    assert_eq!(
        [w.state(0), w.state(1), w.state(2)],
        [RankState::Active, RankState::Active, RankState::Stopping]
    );
    // Its next life has what it needs, and stops in its turn.
    let d = w.register("d");
    w.alive.remove(&c);
    w.give(Input::Gone { daemon: c });
    assert_eq!(w.lives().last(), Some(&(2, 4, d.0)));
    assert_eq!(w.notes("rank 2: replay on d"), 1, "{:?}", w.said);
    assert_eq!(w.state(2), RankState::Stopping);
    assert_eq!(w.rank(0).daemon, a);
}

/// A life that ended while it made what the rank needs leaves that to the next one.
#[test]
fn a_rank_that_was_not_made_is_created_again() {
    let (mut w, _, b) = served();
    w.alive.remove(&b);
    assert!(w.command(Command::SetMaxMds(2)).is_ok());
    assert_eq!(w.state(1), RankState::Creating);
    w.give(Input::Gone { daemon: b });
    assert_eq!((w.state(1), w.stored().made.has(RankId(1))), (RankState::Failed, false));
    let c = w.register("c");
    assert_eq!(w.notes("rank 1: creating on c"), 1, "{:?}", w.said);
    assert_eq!((w.rank(1).daemon, w.state(1)), (c, RankState::Active));
}

#[test]
fn ranks_that_failed_come_before_those_that_never_were() {
    let (mut w, a, _) = served();
    assert!(w.command(Command::SetMaxMds(2)).is_ok());
    assert!(w.command(Command::SetMaxMds(3)).is_ok());
    w.alive.remove(&a);
    w.give(Input::Gone { daemon: a });
    let c = w.register("c");
    assert_eq!((w.rank(0).daemon, w.stored().ranks.len()), (c, 2));
}

#[test]
fn a_standby_that_spoke_lately_is_preferred() {
    let (mut w, a, b) = served();
    let c = w.register("c");
    w.alive.remove(&b);
    w.live(12 * SECOND);
    w.alive.remove(&a);
    w.give(Input::Gone { daemon: a });
    assert_eq!(w.lives(), [(0, 2, c.0)]);
}

#[cfg(feature = "mutants")]
#[test]
fn defects_of_takeover_are_caught() {
    let defects: [(&str, fn()); 5] = [
        ("coord_no_fence", a_standby_takes_over_when_the_last_life_is_fenced),
        ("coord_gone_is_fenced", a_standby_takes_over_when_the_last_life_is_fenced),
        ("coord_lease_ignored", a_life_that_does_not_end_when_told_keeps_its_lease),
        ("coord_incarnation_again", no_number_is_given_to_two_lives),
        ("coord_damaged_taken_over", what_is_damaged_waits_for_a_person),
    ];
    for (defect, test) in defects {
        stdx::mutant::activate(Some(defect));
        let verdict = std::panic::catch_unwind(test);
        stdx::mutant::activate(None);
        assert!(verdict.is_err(), "{defect}");
    }
}
