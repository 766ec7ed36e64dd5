//! Races by name, each with a seed whose run meets it. A run changes when the workload or the program does, so each says what of the
//! coverage table shows that it was met.
//!
//! Absent: defects that the simulator found. A seed that once met one meets it no more after the next change and shows nothing then; they
//! are tests of the crate that was wrong, or seeded defects (`sim/src/mutants.rs`).

use sim::world::run;

/// A race, with a seed whose run meets it, and what of the coverage table says so.
struct Race {
    name: &'static str,
    seed: u64,
    meets: &'static [&'static str],
}

const RACES: &[Race] = &[
    Race {
        name: "a directory is recalled while what was made there is on its way",
        seed: 87,
        meets: &["performed: create", "directories recalled from under work"],
    },
    Race {
        name: "a directory is recalled while a rename in it is on its way",
        seed: 149,
        meets: &["performed: rename", "directories recalled from under a rename"],
    },
    Race {
        name: "the rank dies after a performed rename, and it takes effect once more",
        seed: 55,
        meets: &["performed: rename", "presented again: lost renames"],
    },
    Race {
        name: "the rank dies after early answers, and each takes effect once more",
        seed: 25,
        meets: &["answered early", "presented again: lost", "presented again: executed before"],
    },
    Race {
        name: "two clients work in one directory by turns",
        seed: 70,
        meets: &["directories delegated", "directories recalled", "directories returned"],
    },
    Race {
        name: "a client dies with the rank, and what it was told with it",
        seed: 98,
        meets: &["clients dead with what they were told"],
    },
    Race {
        name: "a client returns when nobody waits for what it was told any more",
        seed: 62,
        meets: &["late errors of ended sessions", "late errors that clients report"],
    },
    Race {
        name: "a connection breaks with performed requests on it, and the rank lives on",
        seed: 432,
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
        seed: 3,
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
