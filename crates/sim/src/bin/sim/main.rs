//! `sim`: sweeps of seeds, replay of one, and the proof that seeded defects are caught.
//!
//! Absent: the simulator (the library). Here are threads, clocks and the command line.

// The rules of a pure crate end where the binary begins.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod mutants;
mod runs;
mod scale;
mod sweep;

use sim::mutants::MUTANTS;
use std::collections::BTreeSet;
use std::process::ExitCode;

const USAGE: &str = "usage:
  sim sweep [--seeds N] [--start S] [--jobs J] [--ops N] [--crashes N] [--once] [--mutant NAME]
  sim sweep --cluster [--seeds N] [--start S] [--jobs J] [--once] [--mutant NAME]
  sim sweep --ranks [--eager] [--seeds N] [--start S] [--jobs J] [--once] [--mutant NAME]
  sim replay --seed S [--trace] [--ops N] [--crashes N] [--mutant NAME]
  sim replay --seed S --rot [--trace] [--mutant NAME]
  sim replay --seed S --cluster [--trace] [--mutant NAME]
  sim replay --seed S --ranks [--eager] [--trace] [--mutant NAME]
  sim mutants [--seeds N] [--jobs J] [--only NAME]
  sim elsewhere
  sim coverage [--cluster] [--ranks] [--eager] [--seeds N] [--start S] [--jobs J]
  sim scale [--ranks LIST] [--workload NAME] [--placement NAME] [--hosts N] [--hosts-per-rank N] [--tasks N | --tasks-total N] [--in-flight N] [--dirs N] [--files N] [--client-batch-ns N] [--client-message-ns N] [--client-cpus one|each|ranks] [--network-us N] [--store-us N] [--store-workers N] [--journal-us N] [--journal-mb-s N] [--writer-us N] [--writer-records-s N] [--cache-mib N] [--journal-mib N] [--seconds S] [--warm-seconds S] [--operations N] [--seed N] [--costs FILE] [--csv DIR] [--svg DIR]

--cluster: the world of the coordinator. --ranks: that of several ranks; --eager: with clients that are answered early. --rot replays the flipped bit of that seed. elsewhere: the tests that show the defects which mutants does
not, one a line. coverage: a sweep of 500 seeds, each once. --mutant, mutants: build with --features mutants.
A seed is a run of at least 2,000 operations and 5 crashes. A sweep runs each seed twice and compares
the trace hashes (--once: one run); from 500 seeds on an operation that never met a fault fails it.";

/// The verbs, and what each has a use for.
const VERBS: &[(&str, &[&str])] = &[
    (
        "sweep",
        &[
            "--seeds",
            "--start",
            "--jobs",
            "--ops",
            "--crashes",
            "--once",
            "--mutant",
            "--cluster",
            "--ranks",
            "--eager",
        ],
    ),
    (
        "replay",
        &["--seed", "--trace", "--rot", "--ops", "--crashes", "--mutant", "--cluster", "--ranks", "--eager"],
    ),
    ("mutants", &["--seeds", "--jobs", "--only"]),
    ("elsewhere", &[]),
    ("coverage", &["--seeds", "--start", "--jobs", "--cluster", "--ranks", "--eager"]),
    ("scale", scale::FLAGS),
];

/// Seeds from which on every cell of the coverage table must be hit.
const COVERED_SEEDS: u64 = 500;

#[derive(Clone, Debug)]
struct Options {
    seeds: u64,
    start: u64,
    jobs: usize,
    operations: u64,
    crashes: u64,
    once: bool,
    trace: bool,
    rot: bool,
    /// The world of the coordinator; of several ranks.
    cluster: bool,
    ranks: bool,
    /// With clients that are answered early.
    eager: bool,
    mutant: Option<&'static str>,
}

impl Default for Options {
    fn default() -> Self {
        let jobs = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            seeds: 100,
            start: 0,
            jobs,
            operations: 2000,
            crashes: 5,
            once: false,
            trace: false,
            rot: false,
            cluster: false,
            ranks: false,
            eager: false,
            mutant: None,
        }
    }
}

impl Options {
    /// Of another world than that of one rank.
    const fn is_other(&self) -> bool {
        self.cluster || self.ranks
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some((verb, rest)) = args.split_first() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    if verb == "scale" {
        return match scale::run(rest) {
            Ok(()) => ExitCode::SUCCESS,
            Err(what) => {
                eprintln!("sim scale: {what}");
                ExitCode::FAILURE
            }
        };
    }
    let options = match parse(verb, rest) {
        Ok(options) => options,
        Err(what) => {
            eprintln!("sim {verb}: {what}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let good = match verb.as_str() {
        "sweep" | "coverage" => sweep::sweep(&options),
        "replay" => runs::replay(&options),
        "mutants" => mutants::mutants(&options),
        "elsewhere" => mutants::elsewhere(),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn parse(verb: &str, args: &[String]) -> Result<Options, String> {
    let known = VERBS.iter().find(|(name, _)| *name == verb);
    let (_, taken) = known.ok_or_else(|| "no such verb".to_owned())?;
    let mut options = Options::default();
    if verb == "mutants" || verb == "coverage" {
        options.seeds = COVERED_SEEDS;
        options.once = true;
    }
    let mut given = BTreeSet::new();
    let mut args = args.iter();
    while let Some(flag) = args.next() {
        if !taken.contains(&flag.as_str()) {
            let anywhere = VERBS.iter().any(|(_, flags)| flags.contains(&flag.as_str()));
            let why = if anywhere { "is of no use here" } else { "is no option" };
            return Err(format!("{flag} {why}"));
        }
        given.insert(flag.as_str());
        let mut number = || -> Result<u64, String> {
            let value = args.next().ok_or_else(|| format!("{flag} needs a number"))?;
            value.parse().map_err(|_| format!("{flag} {value}: not a number"))
        };
        match flag.as_str() {
            "--seeds" => options.seeds = number()?,
            "--start" => options.start = number()?,
            "--seed" => (options.start, options.seeds) = (number()?, 1),
            "--jobs" => options.jobs = number()?.clamp(1, 256) as usize,
            "--ops" => options.operations = number()?,
            "--crashes" => options.crashes = number()?,
            "--once" => options.once = true,
            "--trace" => options.trace = true,
            "--rot" => options.rot = true,
            "--cluster" => options.cluster = true,
            "--ranks" => options.ranks = true,
            "--eager" => options.eager = true,
            "--mutant" | "--only" => {
                let name = args.next().ok_or_else(|| format!("{flag} needs a name"))?;
                let known = MUTANTS.iter().find(|(mutant, ..)| mutant == name);
                options.mutant = Some(known.ok_or_else(|| format!("no defect is called {name}"))?.0);
            }
            _ => return Err(format!("{flag} is no option")),
        }
    }
    if verb == "replay" && !given.contains("--seed") {
        return Err("--seed is needed: which run?".to_owned());
    }
    if options.eager && !options.ranks {
        return Err("--eager is of no use without --ranks".to_owned());
    }
    // These have a length of their own; another world has no rot.
    for (other, is_given) in
        [("--ranks", options.ranks), ("--cluster", options.cluster), ("--rot", options.rot)]
    {
        let mut useless = ["--ops", "--crashes", "--rot", "--cluster"].iter().filter(|flag| **flag != other);
        if let Some(flag) = useless.find(|flag| is_given && given.contains(**flag)) {
            return Err(format!("{flag} is of no use with {other}"));
        }
    }
    if options.start.checked_add(options.seeds).is_none() {
        return Err("seeds end at 2^64".to_owned());
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn parsed(line: &str) -> Result<Options, String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        parse(&words[0], &words[1..])
    }

    /// `sweep --trace` traced nothing, and `replay` without a seed replayed 0.
    #[test]
    fn a_verb_takes_what_it_has_a_use_for() {
        for (line, error) in [
            ("sweep --trace", "--trace is of no use here"),
            ("sweep --seed 3", "--seed is of no use here"),
            ("mutants --mutant x", "--mutant is of no use here"),
            ("elsewhere --jobs 2", "--jobs is of no use here"),
            ("coverage --ops 5", "--ops is of no use here"),
            ("replay", "--seed is needed: which run?"),
            ("replay --trace", "--seed is needed: which run?"),
            ("replay --seed", "--seed needs a number"),
            ("replay --seed x", "--seed x: not a number"),
            ("replay --seed 3 --rot --ops 9", "--ops is of no use with --rot"),
            ("replay --seed 3 --rot --cluster", "--rot is of no use with --cluster"),
            ("sweep --cluster --ranks", "--cluster is of no use with --ranks"),
            ("sweep --ranks --ops 9", "--ops is of no use with --ranks"),
            ("sweep --cluster --crashes 9", "--crashes is of no use with --cluster"),
            ("mutants --cluster", "--cluster is of no use here"),
            ("sweep --fast", "--fast is no option"),
            ("sweep --start 18446744073709551615", "seeds end at 2^64"),
            ("mutants --only mds_perfect", "no defect is called mds_perfect"),
            ("sweeps", "no such verb"),
        ] {
            assert_eq!(parsed(line).map(|_| ()), Err(error.to_owned()), "{line}");
        }
        let options = parsed("replay --seed 17 --trace --ops 9").expect("good");
        assert_eq!((options.start, options.trace, options.operations), (17, true, 9));
        assert_eq!(parsed("coverage").map(|options| (options.seeds, options.once)), Ok((500, true)));
    }

    #[test]
    fn usage_and_document_name_what_each_verb_takes() {
        let document = include_str!("../../../../../docs/SIMULATION.md");
        let lines: Vec<&str> = USAGE.lines().filter_map(|line| line.strip_prefix("  sim ")).collect();
        let mut named: Vec<(&str, BTreeSet<&str>)> = Vec::new();
        for line in lines {
            assert!(document.contains(&format!("\nsim {line}\n")), "not in SIMULATION.md: sim {line}");
            let mut words = line.split([' ', '[', ']']);
            let verb = words.next().expect("a verb");
            let flags: BTreeSet<&str> = words.filter(|word| word.starts_with("--")).collect();
            match named.iter_mut().find(|(known, _)| *known == verb) {
                Some((_, all)) => all.extend(flags),
                None => named.push((verb, flags)),
            }
        }
        let taken: Vec<(&str, BTreeSet<&str>)> =
            VERBS.iter().map(|(verb, flags)| (*verb, flags.iter().copied().collect())).collect();
        assert_eq!(named, taken);
    }
}
