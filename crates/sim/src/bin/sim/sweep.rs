//! `sim sweep` and `sim coverage`: many seeds on several threads, what they came to, and what is known to fail.
//!
//! Absent: one seed (`runs.rs`).

use crate::runs::{Ran, activate, rotten, run_caught};
use crate::{COVERED_SEEDS, Options};
use sim::{cluster, ranks, world};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Seeds that failed, and how.
pub(crate) type Failures = Vec<(u64, String)>;

#[derive(Default)]
pub(crate) struct Sum {
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
pub(crate) fn run_seeds(options: &Options, stop: bool, sum: &Mutex<Sum>) -> Failures {
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

pub(crate) fn sweep(options: &Options) -> bool {
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
        (false, false, _) => include_str!("../../../known-failures"),
        (_, true, false) => include_str!("../../../known-failures-ranks"),
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

/// Panics of the code under test are reported as verdicts.
pub(crate) fn silence_panics() {
    std::panic::set_hook(Box::new(|_| {}));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::parsed;

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
