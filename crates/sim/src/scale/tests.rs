//! Small scale runs.
//!
//! Absent: figures; those are of release builds (docs/SIMULATION.md).

use super::*;
use stdx::time::MS;

/// A rank that is busy with requests, not with connections: what is said together matters little.
const COSTS: &str = "read 300\nwrite 300\nrequest.other 10000\nmessage 1000\ncommit 10000\nload 5000\nload_entry 500\nrecord 1000\nbatch 1000\nload_batch 1000\ngrow 500\nswitch 1000\nswitch_message 100\n\
                     tick 500\nrank_message 1000\n";

/// Until ranks have greeted each other and know what they share.
const WARM_NS: u64 = 100 * MS;

fn small(workload: Workload, ranks: u16) -> Settings {
    let mut settings = Settings::new(workload, ranks);
    settings.costs = Costs::parse(COSTS).expect("good");
    settings.tasks = Tasks::EachRank(64);
    settings.hosts = Hosts::All(4);
    (settings.directories, settings.files) = (400, 400_000);
    settings.measured_ns = 20 * MS;
    settings.warm_ns = 5 * MS;
    settings.journal_bytes = 1 << 20;
    settings.journal_ns = 50_000;
    settings
}

fn ran(settings: &Settings) -> Vec<Phase> {
    run(settings).expect("a run")
}

#[test]
fn one_seed_gives_one_table() {
    for workload in [Workload::Mdtest, Workload::Mixed] {
        let settings = small(workload, 2);
        let (first, second) = (ran(&settings), ran(&settings));
        assert_eq!(first, second);
        assert_eq!(table(&first), table(&second));
        let other = Settings { seed: 2, ..settings };
        assert_ne!(csv(&ran(&other)), csv(&first));
    }
}

#[test]
fn two_ranks_serve_private_directories_nearly_twice_as_fast() {
    let (one, two) = (ran(&small(Workload::Mdtest, 1)), ran(&small(Workload::Mdtest, 2)));
    // The last phase removes what there is: in so short a run little.
    for (one, two) in one.iter().zip(&two).take(2) {
        let gain = two.ops_per_second() / one.ops_per_second();
        assert!(one.times.count() > 200 && gain > 1.8 && gain < 2.2, "{}: {gain}", one.name);
    }
}

/// A rank that has a directory by its slot learns that from the directory's home; from then on it asks nobody.
#[test]
fn directories_are_served_by_the_ranks_of_their_slots() {
    for placement in [Placement::Hash, Placement::Distributed] {
        let on = |ranks| ran(&Settings { placement, ..small(Workload::RandomRead, ranks) }).remove(0);
        let (one, two) = (on(1), on(2));
        let gain = two.ops_per_second() / one.ops_per_second();
        assert!(one.times.count() > 300 && gain > 1.8 && gain < 2.2, "{placement:?}: {gain}");
        assert_eq!(two.sum(|did| did.sent_away + did.to_ranks), 0, "{placement:?}");
        let files = ran(&Settings { placement, ..small(Workload::Mdtest, 2) });
        assert!(files.iter().all(|phase| phase.busy().1 > 0.5), "{placement:?}: {}", table(&files));
    }
}

/// What broke: only placements were run under which one rank has all of it; a large directory was spread in the middle of a run, which
/// failed, because nothing moves in it.
#[test]
fn one_directory_is_bounded_by_one_rank_until_it_is_spread() {
    let on = |placement, ranks| {
        ran(&Settings { placement, warm_ns: WARM_NS, ..small(Workload::OneDirectory, ranks) }).remove(0)
    };
    let one = on(Placement::Hash, 1);
    let gain = |placement| on(placement, 4).ops_per_second() / one.ops_per_second();
    let (whole, spread) = (gain(Placement::Subtree), gain(Placement::Hash));
    assert!(one.times.count() > 300 && whole < 1.2 && spread > 2.0, "{whole} {spread}");
    let made = on(Placement::Hash, 4).did.iter().map(|did| did.answered).collect::<Vec<_>>();
    assert!(made.iter().all(|made| *made > 100), "each rank has parts of it: {made:?}");
}

/// Half of the renames of two ranks are from one to the other: each is asked of it, and answered.
#[test]
fn renames_go_from_rank_to_rank() {
    let on = |ranks| ran(&Settings { warm_ns: WARM_NS, ..small(Workload::RenameStorm, ranks) });
    let (one, two) = (on(1), on(2));
    let (renames, told) = (two[0].times.count(), two[0].sum(|did| did.to_ranks));
    assert!(renames > 300 && told >= renames * 4 / 10, "{renames} {told}");
    assert!(two[0].did.iter().all(|did| did.to_ranks > 0) && two[0].busy().1 > 0.5);
    let gain = two[0].ops_per_second() / one[0].ops_per_second();
    assert!(gain < 1.75, "a rename of two ranks is no more work than one of one: {gain}");
}

/// As many tasks for any number of ranks: what they have under way stays the same.
#[test]
fn tasks_in_all_do_not_grow_with_the_ranks() {
    let on = |ranks| Settings { tasks: Tasks::Total(8), ..small(Workload::Mdtest, ranks) };
    assert_eq!((on(1).callers(), on(4).callers()), (8, 8));
    let (each, all) = (ran(&small(Workload::Mdtest, 4)), ran(&on(4)));
    assert!(all[0].ops_per_second() * 2.0 < each[0].ops_per_second(), "{}", table(&all));
}

#[test]
fn every_workload_runs_under_every_placement() {
    for (name, workload) in Workload::ALL {
        for (placed, placement) in Placement::ALL {
            for ranks in [1, 2, 3, 5] {
                let short = small(workload, ranks);
                let short = Settings { placement, measured_ns: 5 * MS, warm_ns: WARM_NS, ..short };
                let phases =
                    run(&short).unwrap_or_else(|why| panic!("{name}, {placed}, {ranks} ranks: {why}"));
                let idle = phases.iter().any(|phase| phase.times.count() == 0);
                assert!(!idle, "{name}, {placed}:\n{}", table(&phases));
            }
        }
    }
}

#[test]
fn each_read_of_a_generated_file_loads_it() {
    let phases = ran(&small(Workload::RandomRead, 2));
    let (ops, loads) = (phases[0].times.count(), phases[0].sum(|did| did.loads));
    assert!(ops > 300 && loads >= ops * 9 / 10, "{ops} {loads}");
}
