//! Small scale runs.
//!
//! Absent: figures; those are of release builds (docs/SIMULATION.md).

use super::*;
use stdx::time::MS;

/// A rank that is busy with requests, not with connections: what is said together matters little.
const COSTS: &str = "read 300\nwrite 300\nrequest.other 10000\nmessage 1000\ncommit 10000\nload 5000\nload_entry 500\nrecord 1000\nbatch 1000\nload_batch 1000\ngrow 500\nswitch 1000\nswitch_message 100\n\
                     tick 500\nrank_message 1000\n";

fn small(workload: Workload, ranks: u16) -> Settings {
    let mut settings = Settings::new(workload, ranks);
    settings.costs = Costs::parse(COSTS).expect("good");
    settings.tasks_per_rank = 64;
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
    for (workload, _) in [(Workload::Mdtest, 0), (Workload::Mixed, 0)] {
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

#[test]
fn what_is_at_one_rank_does_not_scale() {
    for workload in [Workload::OneDirectory, Workload::RenameStorm] {
        let (one, two) = (ran(&small(workload, 1)), ran(&small(workload, 2)));
        let gain = two[0].ops_per_second() / one[0].ops_per_second();
        assert!(one[0].times.count() > 300 && gain < 1.2, "{workload:?}: {gain}");
        assert!(two[0].busy().1 < 0.2, "the other rank has nothing to do");
    }
}

#[test]
fn each_read_of_a_generated_file_loads_it() {
    let phases = ran(&small(Workload::RandomRead, 2));
    let (ops, loads) = (phases[0].times.count(), phases[0].sum(|did| did.loads));
    assert!(ops > 300 && loads >= ops * 9 / 10, "{ops} {loads}");
}
