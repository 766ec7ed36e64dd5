//! One seed in one of the worlds: its run, its verdict, its replay.
//!
//! Absent: many of them (`sweep.rs`).

use crate::Options;
use sim::world::{bit_rot, run};
use sim::{Sink, cluster, ranks, world};

/// Switches a defect on for this thread; `false` when this build has none.
pub(crate) fn activate(mutant: Option<&'static str>) -> bool {
    #[cfg(feature = "mutants")]
    {
        stdx::mutant::activate(mutant);
        true
    }
    #[cfg(not(feature = "mutants"))]
    {
        mutant.is_none()
    }
}

fn sink() -> Sink {
    Box::new(|line| println!("{line}"))
}

/// What a run of one of the worlds came to.
pub(crate) enum Ran {
    World(world::Outcome),
    Cluster(cluster::Outcome),
    Ranks(ranks::Outcome),
}

impl Ran {
    pub(crate) const fn verdict(&self) -> (u64, &Result<(), String>) {
        match self {
            Self::World(outcome) => (outcome.hash, &outcome.verdict),
            Self::Cluster(outcome) => (outcome.hash, &outcome.verdict),
            Self::Ranks(outcome) => (outcome.hash, &outcome.verdict),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::World(outcome) => format!(
                "seed {}: hash {:016x}, {} operations, {} transactions, {} crashes, {} events, {:.3} s of virtual time",
                outcome.seed,
                outcome.hash,
                outcome.operations,
                outcome.transactions,
                outcome.crashes,
                outcome.events,
                outcome.virtual_ns as f64 / 1e9
            ),
            Self::Cluster(outcome) => format!(
                "seed {}: hash {:016x}, {} versions of the map, {} acts, {} events, {:.3} s of virtual time",
                outcome.seed,
                outcome.hash,
                outcome.versions,
                outcome.acts,
                outcome.events,
                outcome.virtual_ns as f64 / 1e9
            ),
            Self::Ranks(outcome) => format!(
                "seed {}: hash {:016x}, {} operations, {} transactions, {} moves, {} lives, {} events, {:.3} s of virtual time",
                outcome.seed,
                outcome.hash,
                outcome.operations,
                outcome.transactions,
                outcome.moves,
                outcome.lives,
                outcome.events,
                outcome.virtual_ns as f64 / 1e9
            ),
        }
    }
}

/// Runs a seed; a panic of the code under test is a verdict too.
pub(crate) fn run_caught(seed: u64, options: &Options, trace: bool) -> Result<Ran, String> {
    let (operations, crashes) = (options.operations, options.crashes);
    let ran = || {
        if options.cluster {
            Ran::Cluster(cluster::run(seed, trace.then(sink)))
        } else if options.ranks {
            Ran::Ranks(ranks::run(seed, options.eager, trace.then(sink)))
        } else {
            Ran::World(run(seed, operations, crashes, trace.then(sink)))
        }
    };
    std::panic::catch_unwind(ran).map_err(|panic| format!("panic: {}", text_of(panic.as_ref())))
}

fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

/// The seed's flipped bit.
pub(crate) fn rotten(seed: u64, trace: bool) -> Option<String> {
    match std::panic::catch_unwind(|| bit_rot(seed, trace.then(sink))) {
        Ok(found) => found.err().map(|error| format!("bit rot: {error}")),
        Err(panic) => Some(format!("bit rot: panic: {}", text_of(panic.as_ref()))),
    }
}

pub(crate) fn replay(options: &Options) -> bool {
    if !activate(options.mutant) {
        eprintln!("sim replay: build with --features mutants for --mutant");
        return false;
    }
    if options.rot {
        let failed = rotten(options.start, options.trace);
        println!("{}", failed.as_deref().unwrap_or("good"));
        return failed.is_none();
    }
    match run_caught(options.start, options, options.trace) {
        Ok(outcome) => {
            println!("{}", outcome.text());
            let (_, verdict) = outcome.verdict();
            match verdict {
                Ok(()) => println!("good"),
                Err(error) => println!("{error}"),
            }
            verdict.is_ok()
        }
        Err(panic) => {
            println!("{panic}");
            false
        }
    }
}
