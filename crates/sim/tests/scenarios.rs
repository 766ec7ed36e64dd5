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
    // A kernel answered from what it was given before the restart while somebody else changed it.
    Scenario {
        name: "changes wait for who came back and for what runs out",
        seed: 2,
        operations: 200,
        crashes: 1,
    },
    // A client that keeps nothing had the file open for writing: pages of it were granted, and its size under a write.
    Scenario { name: "who keeps nothing still opens and writes", seed: 39, operations: 2000, crashes: 5 },
    // chmod of a file took back the hold on its name, but not the name.
    Scenario { name: "a new change time takes no names", seed: 43, operations: 2000, crashes: 5 },
    // The name a file had before its own client linked it was still kept when another replaced it.
    Scenario {
        name: "a list of links is not changed over a name that is kept",
        seed: 642,
        operations: 2000,
        crashes: 5,
    },
    // After a restart pages were granted before the session that writes the file had come back.
    Scenario { name: "no pages before everybody is back", seed: 542, operations: 2000, crashes: 5 },
    // The answer EEXIST left on a new connection while the client was asking again on it: the second time the name was made.
    Scenario {
        name: "what was refused is not executed when it is asked again",
        seed: 462,
        operations: 2000,
        crashes: 5,
    },
    // A stretch of a listing was there, its request waited for a directory that was delegated to somebody, and showed names that
    // had gone meanwhile.
    Scenario { name: "a listing that waited is not an old one", seed: 3641, operations: 2000, crashes: 5 },
    // A write was answered after the unlink that another thread asked for later, and done again before it.
    Scenario { name: "what was done later is done again later", seed: 1873, operations: 2000, crashes: 5 },
    // The answer to an open came after its client had removed the file by itself, and left the file's attributes to be kept.
    Scenario {
        name: "an answer from before does not outlive what was performed",
        seed: 3262,
        operations: 2000,
        crashes: 5,
    },
    // fsync answered with the content in the journal, and the power failed twice during replay.
    Scenario { name: "a redo survives a second power failure", seed: 113, operations: 2000, crashes: 5 },
    // Seeded: what a client offered was taken at once, and a grant of it was on its way.
    Scenario { name: "what is offered is asked for and not taken", seed: 21, operations: 2000, crashes: 5 },
    // A write that its client had performed found the disk full. What the client asked next was answered early, and showed the
    // file as it was before, while the error waited for the disk.
    Scenario { name: "an error of what was told is not overtaken", seed: 228, operations: 2000, crashes: 5 },
    // A client that was closed while the rank was away gave up a write that the rank had carried out, and wrote once more what had
    // been there before.
    Scenario {
        name: "nothing is written once more below what was given up",
        seed: 6_002_794,
        operations: 2000,
        crashes: 5,
    },
];

/// A race, with a seed whose run meets it, and what of the coverage table says so.
struct Race {
    name: &'static str,
    seed: u64,
    meets: &'static [&'static str],
}

const RACES: &[Race] = &[
    Race {
        name: "a directory is recalled while what was made there is on its way",
        seed: 80,
        meets: &["performed: create", "directories recalled from under work"],
    },
    Race {
        name: "a directory is recalled while a rename in it is on its way",
        seed: 64,
        meets: &["performed: rename", "directories recalled from under a rename"],
    },
    Race {
        name: "the rank dies after a performed rename, and it takes effect once more",
        seed: 44,
        meets: &["performed: rename", "presented again: lost renames"],
    },
    Race {
        name: "the rank dies after early answers, and each takes effect once more",
        seed: 24,
        meets: &["answered early", "presented again: lost", "presented again: executed before"],
    },
    Race {
        name: "two clients work in one directory by turns",
        seed: 70,
        meets: &["directories delegated", "directories recalled", "directories returned"],
    },
    Race {
        name: "a client dies with the rank, and what it was told with it",
        seed: 76,
        meets: &["clients dead with what they were told"],
    },
    Race {
        name: "a client returns when nobody waits for what it was told any more",
        seed: 31,
        meets: &["late errors of ended sessions", "late errors that clients report"],
    },
    Race {
        name: "a connection breaks with performed requests on it, and the rank lives on",
        seed: 101,
        meets: &["presented again: not executed yet"],
    },
    Race {
        name: "what was performed finds no space",
        seed: 72,
        meets: &["late errors for want of space", "late errors that clients report"],
    },
    // Each of its sessions costs the others a lease at most.
    Race { name: "a peer says whatever can be said", seed: 34, meets: &["hostile messages"] },
    // What a closed client fails with EIO may still be carried out.
    Race {
        name: "clients are closed at work",
        seed: 17,
        meets: &["clients closed at work", "answered early"],
    },
    Race {
        name: "something goes wrong again while clients come back",
        seed: 0,
        meets: &["faults while clients come back", "presented"],
    },
    Race {
        name: "hosts have clocks of their own",
        seed: 3,
        meets: &["wall clocks set", "performed: create"],
    },
    // The rank took its own silence for its clients'.
    Race {
        name: "the rank and a client are stopped for longer than a lease, and go on",
        seed: 9,
        meets: &["ranks stopped", "clients stopped"],
    },
];

/// A change of the workload may move a race to another seed: the next ones are tried, and one of them has it.
#[test]
fn races_end_well() {
    for race in RACES {
        let found = (race.seed..race.seed + 400).find(|seed| {
            let outcome = run(*seed, 2000, 5, None);
            assert_eq!(outcome.verdict, Ok(()), "{} (seed {seed})", race.name);
            race.meets.iter().all(|what| outcome.coverage.counted(what) > 0)
        });
        assert!(found.is_some(), "{} (from seed {}): none meets {:?}", race.name, race.seed, race.meets);
    }
}

#[test]
fn former_defects_stay_mended() {
    for scenario in SCENARIOS {
        let outcome = run(scenario.seed, scenario.operations, scenario.crashes, None);
        assert_eq!(outcome.verdict, Ok(()), "{} (seed {})", scenario.name, scenario.seed);
        assert!(outcome.operations >= scenario.operations && outcome.crashes >= scenario.crashes);
    }
}
