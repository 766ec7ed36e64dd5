//! `sim`: sweeps of seeds, replay of one, and the proof that seeded defects are caught.
//!
//! Absent: the simulator (the library); here are threads, clocks and the command line.

// The rules of a pure crate end where the binary begins.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

#[path = "bin/verbs/scale.rs"]
mod scale_verb;

use sim::mutants::{ELSEWHERE, MUTANTS, is_of_cluster, is_of_eager, is_of_ranks};
use sim::world::{bit_rot, run};
use sim::{Sink, cluster, ranks, world};
use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

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
    ("scale", scale_verb::FLAGS),
];

/// Seeds from which on every cell of the coverage table must be hit.
const COVERED_SEEDS: u64 = 500;

/// Seeds that failed, and how.
type Failures = Vec<(u64, String)>;

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
        return match scale_verb::run(rest) {
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
        "sweep" | "coverage" => sweep(&options),
        "replay" => replay(&options),
        "mutants" => mutants(&options),
        "elsewhere" => elsewhere(),
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

/// Switches a defect on for this thread; `false` when this build has none.
fn activate(mutant: Option<&'static str>) -> bool {
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
enum Ran {
    World(world::Outcome),
    Cluster(cluster::Outcome),
    Ranks(ranks::Outcome),
}

impl Ran {
    const fn verdict(&self) -> (u64, &Result<(), String>) {
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
fn run_caught(seed: u64, options: &Options, trace: bool) -> Result<Ran, String> {
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

/// A seed's verdict: `None` when all is well.
fn judge(seed: u64, options: &Options, sum: &Mutex<Sum>) -> Option<String> {
    let outcome = match run_caught(seed, options, false) {
        Ok(outcome) => outcome,
        Err(panic) => return Some(panic),
    };
    let failed = match outcome.verdict() {
        (_, Err(error)) => Some(error.clone()),
        (_, Ok(())) if options.once => None,
        (first, Ok(())) => match run_caught(seed, options, false).map(|second| second.verdict().0) {
            Ok(second) if second == first => None,
            Ok(second) => Some(format!("two runs differ: {first:016x} and {second:016x}")),
            Err(panic) => Some(panic),
        },
    };
    sum.lock().unwrap_or_else(PoisonError::into_inner).add(&outcome);
    if options.is_other() { failed } else { failed.or_else(|| rotten(seed, false)) }
}

/// The seed's flipped bit.
fn rotten(seed: u64, trace: bool) -> Option<String> {
    match std::panic::catch_unwind(|| bit_rot(seed, trace.then(sink))) {
        Ok(found) => found.err().map(|error| format!("bit rot: {error}")),
        Err(panic) => Some(format!("bit rot: panic: {}", text_of(panic.as_ref()))),
    }
}

#[derive(Default)]
struct Sum {
    coverage: world::Coverage,
    cluster: cluster::Coverage,
    ranks: ranks::Coverage,
    runs: u64,
    operations: u64,
    transactions: u64,
    answers: u64,
    crashes: u64,
    events: u64,
    versions: u64,
    acts: u64,
    moves: u64,
    lives: u64,
}

impl Sum {
    fn add(&mut self, ran: &Ran) {
        self.runs += 1;
        match ran {
            Ran::World(outcome) => {
                self.coverage.add(&outcome.coverage);
                self.operations += outcome.operations;
                self.transactions += outcome.transactions;
                self.answers += outcome.answers;
                self.crashes += outcome.crashes;
                self.events += outcome.events;
            }
            Ran::Cluster(outcome) => {
                self.cluster.add(&outcome.coverage);
                self.versions += outcome.versions;
                self.acts += outcome.acts;
                self.events += outcome.events;
            }
            Ran::Ranks(outcome) => {
                self.ranks.add(&outcome.coverage);
                self.operations += outcome.operations;
                self.transactions += outcome.transactions;
                self.moves += outcome.moves;
                self.lives += outcome.lives;
                self.events += outcome.events;
            }
        }
    }

    fn table(&self, options: &Options) -> String {
        let (runs, events) = (self.runs, self.events);
        if options.cluster {
            let (versions, acts) = (self.versions, self.acts);
            let table = self.cluster.table();
            return format!("{table}{runs} seeds, {versions} versions of maps, {acts} acts, {events} events");
        }
        if options.ranks {
            let (operations, transactions) = (self.operations, self.transactions);
            let (table, moves, lives) = (&self.ranks, self.moves, self.lives);
            return format!(
                "{table}{runs} seeds, {operations} operations, {transactions} transactions, {moves} moves, {lives} lives, {events} events"
            );
        }
        format!(
            "{}{runs} seeds, {} operations, {} transactions, {} answers, {} crashes, {events} events",
            self.coverage.table(),
            self.operations,
            self.transactions,
            self.answers,
            self.crashes,
        )
    }

    fn empty(&self, options: &Options) -> Vec<(&'static str, &'static str)> {
        match options.seeds {
            0..COVERED_SEEDS => Vec::new(),
            _ if options.cluster => self.cluster.empty(),
            _ if options.ranks => self.ranks.empty(options.eager),
            _ => self.coverage.empty(),
        }
    }
}

/// Runs seeds on several threads; `stop` after the first failure. Returns failures by seed.
fn run_seeds(options: &Options, stop: bool, sum: &Mutex<Sum>) -> Failures {
    let next = AtomicU64::new(options.start);
    let over = AtomicBool::new(false);
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..options.jobs {
            scope.spawn(|| {
                activate(options.mutant);
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= options.start + options.seeds || over.load(Ordering::Relaxed) {
                        return;
                    }
                    // A seed that fails without a defect proves nothing about one.
                    if options.mutant.is_some() && known_failures(options).any(|known| known == seed) {
                        continue;
                    }
                    if let Some(error) = judge(seed, options, sum) {
                        failures.lock().unwrap_or_else(PoisonError::into_inner).push((seed, error));
                        over.fetch_or(stop, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let mut failures = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    failures.sort();
    failures
}

fn sweep(options: &Options) -> bool {
    if !activate(options.mutant) {
        eprintln!("sim sweep: build with --features mutants for --mutant");
        return false;
    }
    let begin = Instant::now();
    let sum = Mutex::new(Sum::default());
    silence_panics();
    let failures = run_seeds(options, false, &sum);
    let sum = sum.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("{}, {:.1} s", sum.table(options), begin.elapsed().as_secs_f64());
    let (known, failures) = split_known(options, known_failures(options), failures);
    for (seed, error) in &known {
        println!("known: seed {seed}: {}", error.chars().take(200).collect::<String>());
    }
    for (seed, error) in failures.iter().take(10) {
        println!("seed {seed}: {error}");
    }
    if let Some((seed, _)) = failures.first() {
        let world = match (options.cluster, options.ranks, options.eager) {
            (true, ..) => " --cluster",
            (_, true, true) => " --ranks --eager",
            (_, true, false) => " --ranks",
            (false, false, _) => "",
        };
        println!("{} seeds failed; replay: sim replay --seed {seed}{world} --trace", failures.len());
    }
    let empty = sum.empty(options);
    for (what, fault) in &empty {
        println!("not covered: {what} x {fault}");
    }
    failures.is_empty() && empty.is_empty()
}

/// The seeds that `known-failures` lists, or `known-failures-ranks` of several ranks.
fn known_failures(options: &Options) -> impl Iterator<Item = u64> {
    let list = match (options.cluster, options.ranks, options.eager) {
        (false, false, _) => include_str!("../known-failures"),
        (_, true, false) => include_str!("../known-failures-ranks"),
        (true, ..) | (_, true, true) => "",
    };
    list.lines().filter_map(|line| line.split(' ').next()?.parse().ok())
}

/// Takes the failures that are `known` out, and adds one for each known seed that did not fail. The lists are of ordinary sweeps:
/// correct program, default length.
fn split_known(
    options: &Options,
    known: impl Iterator<Item = u64>,
    failures: Failures,
) -> (Failures, Failures) {
    let ordinary = Options::default();
    let length = (options.operations, options.crashes);
    if options.mutant.is_some() || length != (ordinary.operations, ordinary.crashes) {
        return (Vec::new(), failures);
    }
    let range = options.start..options.start + options.seeds;
    let listed: Vec<u64> = known.filter(|seed| range.contains(seed)).collect();
    let (known, mut failures): (Failures, Failures) =
        failures.into_iter().partition(|(seed, _)| listed.contains(seed));
    for seed in listed {
        if !known.iter().any(|(failed, _)| *failed == seed) {
            failures.push((seed, "passes, but known-failures lists it".to_owned()));
        }
    }
    (known, failures)
}

fn replay(options: &Options) -> bool {
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

/// The crate and the name of each test that shows a defect which `mutants` does not, once.
fn elsewhere() -> bool {
    let tests: BTreeSet<(&str, &str)> =
        ELSEWHERE.iter().map(|(_, package, test)| (*package, *test)).collect();
    tests.iter().for_each(|(package, test)| println!("{package} {test}"));
    true
}

fn mutants(options: &Options) -> bool {
    if !activate(None) || cfg!(not(feature = "mutants")) {
        eprintln!("sim mutants: build with --features mutants");
        return false;
    }
    silence_panics();
    println!("{:<34} {:<7} {:>6}  what the judge said", "defect", "crate", "seed");
    let (mut caught, mut tried) = (0, 0);
    for (name, package, seed) in MUTANTS {
        if options.mutant.is_some_and(|only| only != *name) {
            continue;
        }
        tried += 1;
        let (cluster, ranks) = (is_of_cluster(name), is_of_ranks(name));
        let eager = is_of_eager(name);
        let one = Options { mutant: Some(name), once: true, cluster, ranks, eager, ..options.clone() };
        let first = Options { start: *seed, seeds: 1, ..one.clone() };
        let mut failures = run_seeds(&first, true, &Mutex::new(Sum::default()));
        if failures.is_empty() {
            failures = run_seeds(&one, true, &Mutex::new(Sum::default()));
        }
        match failures.first() {
            Some((seed, error)) => {
                caught += 1;
                let line = error.lines().next().unwrap_or_default();
                println!("{name:<34} {package:<7} {seed:>6}  {line:.120}");
            }
            None => println!("{name:<34} {package:<7} {:>6}  survived {} seeds", "-", options.seeds),
        }
    }
    println!("{caught} of {tried} caught");
    caught == tried
}

/// Panics of the code under test are reported as verdicts.
fn silence_panics() {
    std::panic::set_hook(Box::new(|_| {}));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Options, String> {
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
        let document = include_str!("../../../docs/SIMULATION.md");
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

    /// A run of another length is another history.
    #[test]
    fn what_is_known_to_fail_is_known_of_the_ordinary_sweep() {
        let split = |line: &str, failed: &[u64]| {
            let failures = failed.iter().map(|seed| (*seed, "wrong".to_owned())).collect();
            let (known, failures) = split_known(&parsed(line).expect("good"), [5, 200].into_iter(), failures);
            let seeds = |list: Failures| list.into_iter().map(|(seed, _)| seed).collect::<Vec<_>>();
            (seeds(known), seeds(failures))
        };
        assert_eq!(split("sweep", &[5, 7]), (vec![5], vec![7]));
        assert_eq!(split("sweep", &[7]), (vec![], vec![7, 5]));
        assert_eq!(split("sweep --ops 9", &[5, 7]), (vec![], vec![5, 7]));
        assert_eq!(split("sweep --crashes 9", &[7]), (vec![], vec![7]));
    }
}
