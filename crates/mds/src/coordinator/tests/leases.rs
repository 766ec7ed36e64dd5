//! Who is acknowledged, who is failed, and when: no two lives of a rank may think that they serve.
//!
//! Absent: what follows a failure (`takeover`).

use super::*;

/// The rank counts from when it sent its last beacon, the coordinator from when it came.
#[test]
fn a_silent_rank_is_failed_when_its_lease_is_surely_over_and_not_before() {
    let (mut w, a, _) = served();
    let heard = w.now;
    w.beacon(a);
    assert!(matches!(w.said.last(), Some(Output::Ack { sent, .. }) if sent.0 == heard - 900 * SECOND));
    w.alive.remove(&a);
    w.hold_registry = true;
    w.pass_to(heard + PATIENCE - 1);
    assert_eq!((w.held.len(), w.state(0)), (0, RankState::Active), "its lease may not be over");
    w.pass_to(heard + PATIENCE);
    assert_eq!(w.state(0), RankState::Failed);
    w.let_go();
    assert_eq!(w.notes("nothing heard of a (daemon 1) for 15 s"), 1, "{:?}", w.said);
}

#[test]
fn whoever_says_so_in_time_stays() {
    let (mut w, a, b) = served();
    w.live(600 * SECOND);
    assert_eq!((w.state(0), w.stored().daemons.len()), (RankState::Active, 2));
    assert!(w.acknowledged(a) > 100 && w.acknowledged(b) > 100);
    assert!(w.lives().is_empty(), "{:?}", w.lives());
}

#[test]
fn a_standby_that_is_silent_is_left_out() {
    let (mut w, a, b) = served();
    w.alive.remove(&b);
    w.live(PATIENCE + 4 * SECOND);
    assert_eq!(w.stored().daemons.keys().copied().collect::<Vec<_>>(), [a]);
    assert_eq!(w.state(0), RankState::Active);
}

/// The failing map is on its way: an acknowledgement would let the life serve beside its successor.
#[test]
fn nobody_is_acknowledged_while_it_is_being_left_out() {
    let (mut w, a, b) = served();
    let old = w.alive.remove(&a).expect("it was there");
    w.live(12 * SECOND);
    w.hold_registry = true;
    w.live(4 * SECOND);
    assert_eq!(w.held.len(), 1, "the swap is under way");
    w.said.clear();
    w.alive.insert(a, old);
    w.beacon(a);
    w.beacon(b);
    assert_eq!((w.acknowledged(a), w.acknowledged(b)), (0, 1));
    w.let_go();
    assert_eq!(w.acknowledged(a), 0);
    assert!(w.said.iter().any(|output| matches!(output, Output::Dismiss { daemon } if *daemon == a)));
    assert_eq!(w.rank(0).daemon, b);
}

#[test]
fn a_life_that_the_map_does_not_name_is_dismissed() {
    let (mut w, a, b) = served();
    let life = |incarnation| BeaconState::Rank {
        rank: RankId(0),
        incarnation: Incarnation(incarnation),
        state: RankState::Active,
    };
    // The rank of another daemon, another life of its own rank, and a daemon that nobody knows.
    for (daemon, state) in [(b, life(1)), (a, life(7)), (DaemonId(99), BeaconState::Standby)] {
        let beacon = Beacon { seq: 1, sent: Mono(5), state };
        let out = w.step(Input::Beacon { daemon, beacon });
        assert!(matches!(out[..], [Output::Dismiss { daemon: of }] if of == daemon), "{out:?}");
    }
    assert_eq!(w.acknowledged(a) + w.acknowledged(b), 0);
}

/// What is assigned may be said before its beacon, and lost.
#[test]
fn a_daemon_that_has_not_begun_is_told_again() {
    let (mut w, a, b) = served();
    w.alive.insert(a, BeaconState::Standby);
    w.beacon(a);
    assert_eq!(w.lives(), [(0, 1, a.0)]);
    assert_eq!(w.rank(0).daemon, a);
    w.beacon(b);
    assert_eq!(w.lives(), [(0, 1, a.0)]);
}

/// Beacons wait behind the tick that a coordinator sees first when it goes on.
#[test]
fn a_pause_of_the_coordinator_is_nobody_elses_silence() {
    let (mut w, a, _) = served();
    for pause in [3 * SECOND, LEASE, PATIENCE, 100 * SECOND] {
        w.now += pause;
        w.give(Input::Tick);
        assert_eq!(w.rank(0).daemon, a, "{pause}");
        w.live(4 * SECOND);
    }
    assert_eq!(w.notes("the coordinator did not run"), 4);
    // And then silence is silence again.
    w.alive.clear();
    w.live(PATIENCE);
    assert_eq!(w.state(0), RankState::Failed);
}

/// Another coordinator began in between: what this one acknowledges might go on beside what that one begins.
#[test]
fn a_beacon_is_acknowledged_when_the_map_was_read_after_it() {
    let mut w = World::shared(&Registry::default());
    let a = w.register("a");
    assert_eq!(w.state(0), RankState::Active);
    w.said.clear();
    w.hold_registry = true;
    w.beacon(a);
    assert_eq!((w.acknowledged(a), w.held.len()), (0, 1));
    w.let_go();
    assert_eq!(w.acknowledged(a), 1);
    let other = w.beside(false);
    w.beacon(a);
    assert_eq!(w.acknowledged(a), 1, "it is another's map now");
    assert!(matches!(w.said.last(), Some(Output::Deposed)), "{:?}", w.said);
    assert!(other.coordinator.map().is_some_and(|map| map.coordinator == 2));
    let last = w.said.len();
    w.beacon(a);
    w.pass_to(w.now + 100 * SECOND);
    assert_eq!((w.said.len(), w.coordinator.deadline()), (last, None));
}

/// A daemon that another coordinator registered is no stranger.
#[test]
fn nobody_is_dismissed_before_the_map_was_read() {
    let mut w = World::shared(&Registry::default());
    let a = w.register("a");
    w.said.clear();
    let stranger = DaemonId(99);
    w.beacon(stranger);
    assert_eq!(w.count(|output| matches!(output, Output::Dismiss { daemon } if *daemon == stranger)), 1);
    let mut other = w.beside(false);
    let b = other.register("b");
    w.beacon(b);
    assert_eq!(w.count(|output| matches!(output, Output::Dismiss { .. })), 1, "{:?}", w.said);
    assert!(matches!(w.said.last(), Some(Output::Deposed)), "{:?}", w.said);
    assert_eq!((w.acknowledged(a), w.acknowledged(b)), (0, 0));
}

/// It cannot know whom another acknowledged until the map became its own.
#[test]
fn a_new_coordinator_gives_everybody_a_whole_lease() {
    let mut old = World::shared(&Registry::default());
    let (a, _) = (old.register("a"), old.register("b"));
    let mut w = old.beside(false);
    w.alive = old.alive.clone();
    let (started, carried) = (w.now, w.rank(0));
    assert_eq!(carried.daemon, a);
    w.alive.remove(&a);
    w.live(PATIENCE - 1);
    assert_eq!(w.rank(0), carried);
    w.live(4 * SECOND);
    assert!(w.now > started + PATIENCE);
    assert_eq!(w.lives(), [(0, 2, 2)], "{:?}", w.said);
}

#[cfg(feature = "mutants")]
#[test]
fn defects_of_leases_are_caught() {
    let defects: [(&str, fn()); 8] = [
        ("coord_patience_is_lease", a_silent_rank_is_failed_when_its_lease_is_surely_over_and_not_before),
        ("coord_grace_from_sent", a_silent_rank_is_failed_when_its_lease_is_surely_over_and_not_before),
        ("coord_condemned_acknowledged", nobody_is_acknowledged_while_it_is_being_left_out),
        ("coord_unknown_acknowledged", a_life_that_the_map_does_not_name_is_dismissed),
        ("coord_own_pause_counts", a_pause_of_the_coordinator_is_nobody_elses_silence),
        ("coord_acknowledges_unread", a_beacon_is_acknowledged_when_the_map_was_read_after_it),
        ("coord_deposed_goes_on", a_beacon_is_acknowledged_when_the_map_was_read_after_it),
        ("coord_begins_impatient", a_new_coordinator_gives_everybody_a_whole_lease),
    ];
    for (defect, test) in defects {
        stdx::mutant::activate(Some(defect));
        let verdict = std::panic::catch_unwind(test);
        stdx::mutant::activate(None);
        assert!(verdict.is_err(), "{defect}");
    }
}
