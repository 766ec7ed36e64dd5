//! Runs that once showed a defect, by name: what went wrong, and a seed whose run meets the place. A run
//! changes when the workload or the program does, so these keep the story and the ground covered; the
//! sweep keeps the proof.

use sim::world::run;

struct Scenario {
    name: &'static str,
    seed: u64,
    operations: u64,
    crashes: u64,
}

const SCENARIOS: &[Scenario] = &[
    // Opened by number while its data was being removed: the record went under the opener.
    Scenario { name: "an orphan being purged is not opened again", seed: 24, operations: 200, crashes: 1 },
    // The cancellation came while the request was still looking for its inode, and was forgotten.
    Scenario { name: "a lock wait is cancelled before it waits", seed: 85, operations: 200, crashes: 1 },
    // A write reached the data store, its transaction did not: extending the file showed the bytes.
    Scenario { name: "bytes of a lost write stay hidden", seed: 182, operations: 2000, crashes: 5 },
    // What a load brought was evicted before the request that asked for it was planned again.
    Scenario { name: "a live directory is found by its place", seed: 262, operations: 2000, crashes: 5 },
    // fallocate with KEEP_SIZE on an empty file, then its removal: the space was never freed.
    Scenario { name: "space behind the end is given back", seed: 11, operations: 2000, crashes: 5 },
    // A kernel answered from what it was given before the restart while somebody new was served.
    Scenario { name: "whoever was alone before a restart shares", seed: 2, operations: 200, crashes: 1 },
    // The answer EEXIST left on a new connection while the client was asking again on it: the second time the name was made.
    Scenario {
        name: "what was refused is not executed when it is asked again",
        seed: 462,
        operations: 2000,
        crashes: 5,
    },
    // fsync answered with the content in the journal, and the power failed twice during replay.
    Scenario { name: "a redo survives a second power failure", seed: 113, operations: 2000, crashes: 5 },
];

#[test]
fn former_defects_stay_mended() {
    for scenario in SCENARIOS {
        let outcome = run(scenario.seed, scenario.operations, scenario.crashes, None);
        assert_eq!(outcome.verdict, Ok(()), "{} (seed {})", scenario.name, scenario.seed);
        assert!(outcome.operations >= scenario.operations && outcome.crashes >= scenario.crashes);
    }
}
