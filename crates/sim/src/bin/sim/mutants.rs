//! `sim mutants` and `sim elsewhere`: that each seeded defect is caught, by a world or by a test of its crate.
//!
//! Absent: the defects (the library's `mutants`).

use crate::Options;
use crate::runs::activate;
use crate::sweep::{Sum, run_seeds, silence_panics};
use sim::mutants::{ELSEWHERE, MUTANTS, is_of_cluster, is_of_eager, is_of_ranks};
use std::collections::BTreeSet;
use std::sync::Mutex;

/// The crate and the name of each test that shows a defect which `mutants` does not, once.
pub(crate) fn elsewhere() -> bool {
    let tests: BTreeSet<(&str, &str)> =
        ELSEWHERE.iter().map(|(_, package, test)| (*package, *test)).collect();
    tests.iter().for_each(|(package, test)| println!("{package} {test}"));
    true
}

pub(crate) fn mutants(options: &Options) -> bool {
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
