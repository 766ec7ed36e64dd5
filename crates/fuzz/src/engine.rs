//! The loop: mutate, execute, keep what reaches something new, stop at what breaks a promise.
//!
//! Absent: threads; the command line adds the one that notices a hang.

use crate::mutate::Mutator;
use crate::{Target, Verdict, memory};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, Once, PoisonError};
use std::time::Instant;

/// Inputs the pool grows by at most.
const POOL_GROWTH_MAX: usize = 1024;
/// Executions between two looks at the memory.
const MEMORY_EVERY: usize = 64;
/// Failures of one target after which it is given up.
const FAILURES_MAX: usize = 5;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// An input and the promise it broke.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub input: Vec<u8>,
    pub what: String,
}

/// What a run came to.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub executions: u64,
    /// Names of what was reached.
    pub classes: BTreeSet<String>,
    /// Inputs that reached something that no earlier one had.
    pub found: Vec<Vec<u8>>,
    /// One per place that failed.
    pub failures: Vec<Failure>,
}

/// The input that is being executed, for whoever watches for a hang.
#[derive(Debug, Default)]
pub struct Watch(Mutex<Option<(Instant, Vec<u8>)>>);

impl Watch {
    fn begin(&self, input: &[u8]) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), input.to_vec()));
    }

    fn end(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The input that has been executed for longer than so many seconds.
    #[must_use]
    pub fn hanging(&self, seconds: u64) -> Option<Vec<u8>> {
        let current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, input) = current.as_ref()?;
        (since.elapsed().as_secs() >= seconds).then(|| input.clone())
    }
}

/// Panics inside an execution are kept as text and not printed.
fn hush() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                return before(info);
            }
            let place = info.location().map_or_else(String::new, |at| format!("{}:{}", at.file(), at.line()));
            let text = info.payload_as_str().unwrap_or("panic without a text");
            PANIC.with_borrow_mut(|panic| *panic = format!("panic at {place}: {text}"));
        }));
    });
}

/// Executes one input; a panic is a broken promise.
pub fn execute(target: &Target, input: &[u8]) -> Verdict {
    hush();
    QUIET.set(true);
    let result = catch_unwind(AssertUnwindSafe(|| (target.execute)(input)));
    QUIET.set(false);
    result.unwrap_or_else(|_| Err(PANIC.take()))
}

/// Runs a target from a pool of inputs until `go_on` (asked before each execution) says no.
pub fn run(
    target: &Target,
    mut pool: Vec<Vec<u8>>,
    seed: u64,
    watch: &Watch,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Outcome {
    let mut outcome = Outcome::default();
    let mut mutator = Mutator::new(seed);
    let mut places = BTreeSet::new();
    let mut recent: Vec<Vec<u8>> = Vec::new();
    let kept = pool.len();
    for input in &pool {
        outcome.classes.extend(execute(target, input));
    }
    let mut peak = memory::peak();
    while outcome.failures.len() < FAILURES_MAX && go_on(outcome.executions) {
        let input = mutator.next(&pool, target.repair);
        outcome.executions += 1;
        watch.begin(&input);
        let verdict = execute(target, &input);
        watch.end();
        match verdict {
            Ok(class) if !outcome.classes.contains(&class) => {
                outcome.classes.insert(class);
                outcome.found.push(input.clone());
                if pool.len() < kept + POOL_GROWTH_MAX {
                    pool.push(input.clone());
                }
            }
            Ok(_) => {}
            Err(what) => {
                if places.insert(place_of(&what)) {
                    outcome.failures.push(Failure { input: input.clone(), what });
                }
            }
        }
        recent.push(input);
        if recent.len() == MEMORY_EVERY {
            let now = memory::peak();
            if now.saturating_sub(peak) > memory::GROWTH_MAX {
                let what =
                    format!("memory grew by {} MiB in one of {MEMORY_EVERY} inputs", (now - peak) >> 20);
                let input = recent.iter().max_by_key(|input| input.len()).cloned().unwrap_or_default();
                outcome.failures.push(Failure { input, what });
            }
            peak = now;
            recent.clear();
        }
    }
    outcome
}

/// What tells one failure from another: its first words without their numbers.
fn place_of(what: &str) -> String {
    let is_panic = what.starts_with("panic at");
    what.chars().filter(|letter| is_panic || letter.is_alphabetic()).take(60).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picky(input: &[u8]) -> Verdict {
        assert!(input.first().is_none_or(|byte| *byte < 0xF0), "found");
        match input.get(1) {
            Some(0xF0..) => Err("the other way".into()),
            _ => Ok(format!("{}", input.len() / 16)),
        }
    }

    #[test]
    fn panics_and_broken_promises_are_found_once_each() {
        let target = Target { name: "picky", execute: picky, repair: None, seeds: Vec::new };
        let watch = Watch::default();
        let outcome = run(&target, vec![vec![0; 8]], 1, &watch, &mut |done| done < 20_000);
        assert_eq!(outcome.executions, 20_000);
        assert_eq!(outcome.failures.len(), 2, "{:?}", outcome.failures);
        let panic = |failure: &Failure| failure.what.contains("engine.rs") && failure.what.ends_with("found");
        assert!(outcome.failures.iter().any(panic), "{:?}", outcome.failures);
        assert!(outcome.classes.len() > 2 && outcome.found.len() == outcome.classes.len() - 1);
        assert_eq!(watch.hanging(0), None);
    }
}
