//! The world of the coordinator: seeds that end well and meet everything, and scenarios by name.

use mds::coordinator::Command;
use proto::RankId;
use proto::cluster::RankState;
use sim::cluster::{Cluster, Coverage, Fault, run};
use stdx::time::SECOND;

/// Virtual time of a lease in a calm world.
const LEASE: u64 = 15 * SECOND;

fn state(world: &Cluster, rank: u16) -> Option<RankState> {
    world.rank(rank).map(|info| info.state)
}

fn life(world: &Cluster, rank: u16) -> u64 {
    world.rank(rank).map_or(0, |info| info.incarnation.0)
}

/// A world in which rank 0 is active.
fn active(seed: u64, daemons: usize, seats: usize) -> Cluster {
    let mut world = Cluster::calm(seed, daemons, seats);
    world.until("rank 0 is active", |world| state(world, 0) == Some(RankState::Active)).expect("calm");
    world.pass(LEASE).expect("calm");
    world
}

fn is_active_again(world: &mut Cluster, before: u64) {
    let again = |world: &Cluster| state(world, 0) == Some(RankState::Active) && life(world, 0) > before;
    world.until("rank 0 is active again", again).expect("nothing objects");
}

#[test]
fn seeds_end_well_repeat_and_meet_every_fault_and_event() {
    let mut coverage = Coverage::default();
    for seed in 0..300 {
        let first = run(seed, None);
        assert_eq!(first.verdict, Ok(()), "seed {seed}");
        if seed < 20 {
            assert_eq!(first.hash, run(seed, None).hash, "seed {seed} gives two histories");
        }
        coverage.add(&first.coverage);
    }
    assert_eq!(coverage.empty(), []);
}

#[test]
fn a_standby_takes_over_from_a_rank_that_is_killed() {
    let mut world = active(1, 2, 1);
    let (first, killed) = (life(&world, 0), world.carrier(0).expect("somebody carries it"));
    let begun = world.time();
    assert!(world.inflict(Fault::DaemonCrash, killed, 0, 0));
    is_active_again(&mut world, first);
    assert_ne!(world.carrier(0), Some(killed));
    // Nobody told of the death: 1.02 leases, the fence, four states of a second each.
    assert!(world.time() - begun < LEASE * 2, "{:?}", world.story());
    world.heals().expect("all is well");
    let story = world.story();
    let failed = story.iter().rposition(|line| line.starts_with("rank 0 failed")).expect("it failed");
    let last = story.iter().map(|line| line.split(',').next().expect("a state")).collect::<Vec<_>>();
    let way = ["rank 0 failed", "rank 0 replay", "rank 0 resolve", "rank 0 reconnect", "rank 0 active"];
    assert_eq!(&last[failed..], way, "{story:?}");
}

#[test]
fn a_coordinator_that_is_paused_through_a_failover_gives_everybody_time() {
    let mut world = active(2, 3, 1);
    let (first, killed) = (life(&world, 0), world.carrier(0).expect("somebody carries it"));
    assert!(world.inflict(Fault::SeatPause, 0, 0, LEASE * 2));
    assert!(world.inflict(Fault::DaemonCrash, killed, 0, 0));
    world.pass(LEASE * 2 - SECOND).expect("nothing happens");
    assert_eq!((state(&world, 0), life(&world, 0)), (Some(RankState::Active), first));
    let awake = world.time();
    is_active_again(&mut world, first);
    assert!(world.time() - awake > LEASE, "who it did not hear is not who was silent");
    world.heals().expect("all is well");
}

#[test]
fn of_two_coordinators_at_once_one_is_deposed_and_no_life_ends() {
    let mut world = active(3, 3, 2);
    let first = life(&world, 0);
    assert!(world.inflict(Fault::SeatSecond, 0, 1, 0));
    world.pass(LEASE * 3).expect("nothing objects");
    assert_eq!(world.coverage().counted("coordinators deposed"), 1);
    assert_eq!((state(&world, 0), life(&world, 0)), (Some(RankState::Active), first));
}

/// The first coordinator does not reach the registry, and the rank hears only that one, while the second one gives the rank to another.
#[test]
fn a_coordinator_without_a_registry_acknowledges_nobody() {
    let mut world = active(4, 3, 2);
    let first = life(&world, 0);
    let carrier = world.carrier(0).expect("somebody carries it");
    assert!(world.inflict(Fault::SeatCut, 0, 0, LEASE * 4));
    assert!(world.inflict(Fault::DaemonCut, carrier, 1, LEASE * 4));
    assert!(world.inflict(Fault::SeatSecond, 0, 1, 0));
    is_active_again(&mut world, first);
    assert_ne!(world.carrier(0), Some(carrier));
    world.heals().expect("all is well");
}

#[test]
fn what_a_rank_decided_before_a_pause_is_refused_after_it() {
    let mut world = active(5, 2, 1);
    let (first, paused) = (life(&world, 0), world.carrier(0).expect("somebody carries it"));
    world.acts_late(paused, LEASE * 3).expect("it may act");
    is_active_again(&mut world, first);
    assert_eq!(world.coverage().counted("appends refused"), 0);
    world.pass(LEASE * 3).expect("nothing objects");
    assert!(world.coverage().counted("appends refused") > 0);
    world.heals().expect("all is well");
}

#[test]
fn a_fence_that_is_answered_late_keeps_a_rank_without_a_life() {
    let mut world = active(6, 2, 1);
    let (first, killed) = (life(&world, 0), world.carrier(0).expect("somebody carries it"));
    assert!(world.inflict(Fault::StoreSlow, 0, 0, LEASE * 4));
    assert!(world.inflict(Fault::DaemonCrash, killed, 0, 0));
    world.until("a fence is under way", |world| world.fences_under_way() > 0).expect("nothing objects");
    world.pass(LEASE).expect("nothing objects");
    assert_eq!((state(&world, 0), life(&world, 0)), (Some(RankState::Failed), first));
    is_active_again(&mut world, first);
    world.heals().expect("all is well");
}

#[test]
fn an_operator_fails_a_rank_while_its_takeover_is_under_way() {
    let mut world = active(7, 3, 1);
    let (first, killed) = (life(&world, 0), world.carrier(0).expect("somebody carries it"));
    assert!(world.inflict(Fault::DaemonCrash, killed, 0, 0));
    world.until("it replays", |world| state(world, 0) == Some(RankState::Replay)).expect("nothing objects");
    let second = life(&world, 0);
    assert!(second > first);
    world.ask(0, Command::FailRank(RankId(0)));
    is_active_again(&mut world, second);
    assert!(world.is_answered());
    world.heals().expect("all is well");
}

#[test]
fn a_damaged_rank_stays_down_until_somebody_has_it_tried_again() {
    let mut world = active(8, 3, 1);
    let (first, killed) = (life(&world, 0), world.carrier(0).expect("somebody carries it"));
    world.damage(true);
    assert!(world.inflict(Fault::DaemonCrash, killed, 0, 0));
    world
        .until("it is damaged", |world| state(world, 0) == Some(RankState::Damaged))
        .expect("nothing objects");
    let second = life(&world, 0);
    assert!(second > first);
    world.damage(false);
    world.pass(LEASE * 4).expect("nothing objects");
    assert_eq!((state(&world, 0), life(&world, 0)), (Some(RankState::Damaged), second));
    world.ask(0, Command::FailRank(RankId(0)));
    is_active_again(&mut world, second);
    world.heals().expect("all is well");
}

#[test]
fn nobody_takes_over_while_the_file_system_is_not_joinable() {
    let mut world = active(9, 3, 1);
    let first = life(&world, 0);
    world.ask(0, Command::FailFs);
    world.pass(LEASE * 4).expect("nothing objects");
    assert!(world.is_answered());
    assert_eq!((state(&world, 0), life(&world, 0)), (Some(RankState::Failed), first));
    world.ask(0, Command::SetJoinable(true));
    is_active_again(&mut world, first);
    world.heals().expect("all is well");
}

#[test]
fn more_ranks_begin_when_more_are_wanted_and_somebody_stands_by() {
    let mut world = active(10, 3, 1);
    world.ask(0, Command::SetMaxMds(4));
    world
        .until("rank 2 is active", |world| state(world, 2) == Some(RankState::Active))
        .expect("nothing objects");
    assert_eq!((state(&world, 1), state(&world, 3)), (Some(RankState::Active), None));
    assert!(world.story().iter().any(|line| line.starts_with("rank 1 creating")));
    world.heals().expect("all is well");
}

/// Each scenario fails with the defect that it is about.
#[cfg(feature = "mutants")]
#[test]
fn scenarios_show_the_defects_that_they_are_about() {
    let defects: [(&str, fn()); 6] = [
        ("coord_own_pause_counts", a_coordinator_that_is_paused_through_a_failover_gives_everybody_time),
        ("coord_begins_impatient", of_two_coordinators_at_once_one_is_deposed_and_no_life_ends),
        ("coord_acknowledges_unreadable", a_coordinator_without_a_registry_acknowledges_nobody),
        ("coord_no_fence", a_fence_that_is_answered_late_keeps_a_rank_without_a_life),
        ("coord_joinable_ignored", nobody_takes_over_while_the_file_system_is_not_joinable),
        ("coord_made_too_early", more_ranks_begin_when_more_are_wanted_and_somebody_stands_by),
    ];
    for (defect, scenario) in defects {
        stdx::mutant::activate(Some(defect));
        let verdict = std::panic::catch_unwind(scenario);
        stdx::mutant::activate(None);
        assert!(verdict.is_err(), "{defect}");
    }
}
