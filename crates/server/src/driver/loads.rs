//! Load workers: reads of the metadata store, many at a time because a cold read is a disk read,
//! few at a time when pages are warm because a wake-up costs more than the read.
//!
//! Absent: caching (the rank's) and prefetch policy.

use super::{Counters, Driver};
use mds::input::{Input, Tag};
use proto::storeio::{LoadRequest, Loaded, StoreError};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Load workers.
pub(super) const WORKERS: usize = 64;
/// Loads slower than this on average are disk reads: spread them over all workers.
const COLD_NS: u64 = 15_000;
/// Loads one worker takes at once while pages are warm.
const WARM_BATCH: usize = 16;

type Job = (Tag, Vec<LoadRequest>);

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    idle: usize,
    /// Reading the store, not on their way to the rank.
    reading: usize,
    /// Woken and not yet running.
    waking: usize,
    stop: bool,
}

/// Loads on their way to the workers.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    wake: Condvar,
    /// Moving average of one name's nanoseconds.
    average: AtomicU64,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_cold(&self) -> bool {
        self.average.load(Ordering::Relaxed) > COLD_NS
    }

    pub(super) fn push(&self, jobs: &mut Vec<Job>) {
        let cold = self.is_cold();
        let mut state = self.lock();
        state.jobs.extend(jobs.drain(..));
        self.wake_some(&mut state, cold);
    }

    /// Wakes as many workers as the waiting jobs deserve.
    fn wake_some(&self, state: &mut State, cold: bool) {
        let wanted = if cold {
            state.jobs.len()
        } else if state.reading == 0 {
            state.jobs.len().div_ceil(WARM_BATCH)
        } else {
            // Those who read come back soon; more only when a full batch waits.
            state.jobs.len() / WARM_BATCH
        };
        let wake = wanted.saturating_sub(state.waking).min(state.idle);
        state.idle -= wake;
        state.waking += wake;
        for _ in 0..wake {
            self.wake.notify_one();
        }
    }

    pub(super) fn stop(&self) {
        self.lock().stop = true;
        self.wake.notify_all();
    }

    fn take(&self, batch: &mut VecDeque<Job>) -> bool {
        let mut state = self.lock();
        while state.jobs.is_empty() && !state.stop {
            state.idle += 1;
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
            // Either counted as waking by who woke us, or woken by chance: the counters only steer.
            if state.waking > 0 {
                state.waking -= 1;
            } else {
                state.idle = state.idle.saturating_sub(1);
            }
        }
        if state.stop {
            return false;
        }
        let cold = self.is_cold();
        let take = if cold { 1 } else { WARM_BATCH }.min(state.jobs.len());
        batch.extend(state.jobs.drain(..take));
        state.reading += 1;
        self.wake_some(&mut state, cold);
        true
    }

    /// The worker goes to the rank: what came meanwhile is another's.
    fn leave(&self) {
        let cold = self.is_cold();
        let mut state = self.lock();
        state.reading -= 1;
        self.wake_some(&mut state, cold);
    }

    fn measured(&self, nanos: u64, names: u64) {
        let one = nanos / names.max(1);
        let old = self.average.load(Ordering::Relaxed);
        // Rises at once, falls slowly: taking cold for warm costs more than the reverse.
        let new = if one > old { one.midpoint(old) } else { old - (old - one) / 8 };
        self.average.store(new, Ordering::Relaxed);
    }
}

/// A load worker.
pub(super) fn run(driver: &Driver) {
    let queue = &driver.loads;
    let mut batch = VecDeque::new();
    while queue.take(&mut batch) {
        let begin = Instant::now();
        let (done, count) = load(driver, &mut batch);
        queue.measured(begin.elapsed().as_nanos() as u64, count);
        queue.leave();
        Counters::add(&driver.counters.load_batches, 1);
        driver.bring(done);
    }
}

/// Carries out jobs with one call of the store, which opens its snapshots once for all of them. Returns their answers and the
/// number of names read, or not found.
fn load(driver: &Driver, batch: &mut VecDeque<Job>) -> (Vec<Input>, u64) {
    let mut requests = Vec::new();
    let mut parts = Vec::with_capacity(batch.len());
    for (tag, mut wanted) in batch.drain(..) {
        parts.push((tag, wanted.len()));
        requests.append(&mut wanted);
    }
    let results = driver.meta.load(&requests);
    results.iter().filter_map(|result| result.as_ref().err()).for_each(|error| driver.note_damage(error));
    // A page of names takes as long as many reads and is no sign of a cold store.
    let count = results.iter().map(names).sum();
    let mut results = results.into_iter();
    let answer = |(tag, len)| Input::Loaded { tag, results: results.by_ref().take(len).collect() };
    (parts.into_iter().map(answer).collect(), count)
}

fn names(result: &Result<Loaded, StoreError>) -> u64 {
    match result {
        Ok(Loaded::Dentries { entries, .. }) => (entries.len() as u64).max(1),
        Ok(Loaded::Value(_) | Loaded::Sessions(_)) | Err(_) => 1,
    }
}
