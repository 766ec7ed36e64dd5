//! Store writers: batches of one group of environments go to one writer, in order; several groups
//! are written in parallel; what waits is written together, because each write ends in a sync.
//!
//! Absent: the decision what to write (the rank's checkpoint).

use super::Driver;
use mds::input::{Input, Tag};
use proto::storeio::{StoreBatch, StoreError};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use stdx::hash::mix64;

/// Writers: one for each environment of a format, so that one write is one environment's commit.
/// With another number of environments order still holds, because a shard always meets one writer.
pub(super) const WRITERS: usize = 16;

/// The batches of one tag, spread over writers.
struct Shared {
    tag: Tag,
    left: AtomicUsize,
    result: Mutex<Result<(), StoreError>>,
}

struct Job {
    shared: Arc<Shared>,
    batches: Vec<StoreBatch>,
}

#[derive(Default)]
struct State {
    jobs: Vec<Job>,
    stop: bool,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    wake: Condvar,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Batches on their way to the writers.
#[derive(Default)]
pub(super) struct Queues {
    queues: [Queue; WRITERS],
}

impl Queues {
    /// Called under the rank's mutex, so that batches of one shard keep their order. Returns the
    /// writers to wake, one bit each.
    pub(super) fn push(&self, tag: Tag, batches: Vec<StoreBatch>) -> u32 {
        let mut parts: [Vec<StoreBatch>; WRITERS] = Default::default();
        for batch in batches {
            parts[mix64(batch.shard.0) as usize % WRITERS].push(batch);
        }
        let used = parts.iter().filter(|p| !p.is_empty()).count();
        let shared =
            Arc::new(Shared { tag, left: AtomicUsize::new(used.max(1)), result: Mutex::new(Ok(())) });
        // A tag without batches is answered by the first writer, after what it has to do.
        let empty = used == 0;
        let mut wake = 0;
        for (n, batches) in parts.into_iter().enumerate() {
            if !batches.is_empty() || (empty && n == 0) {
                self.queues[n].lock().jobs.push(Job { shared: shared.clone(), batches });
                wake |= 1 << n;
            }
        }
        wake
    }

    pub(super) fn wake(&self, writers: u32) {
        for (n, queue) in self.queues.iter().enumerate() {
            if writers & (1 << n) != 0 {
                queue.wake.notify_one();
            }
        }
    }

    pub(super) fn stop(&self) {
        for queue in &self.queues {
            queue.lock().stop = true;
            queue.wake.notify_one();
        }
    }
}

/// Writer number `n`.
pub(super) fn run(driver: &Driver, n: usize) {
    let queue = &driver.stores.queues[n];
    loop {
        let jobs = {
            let mut state = queue.lock();
            while state.jobs.is_empty() && !state.stop {
                state = queue.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.stop {
                return;
            }
            std::mem::take(&mut state.jobs)
        };
        write(driver, jobs);
    }
}

fn write(driver: &Driver, mut jobs: Vec<Job>) {
    let together: Vec<StoreBatch> = jobs.iter_mut().flat_map(|job| job.batches.drain(..)).collect();
    let counts_lost = jobs.len() > 1;
    let mut done = Vec::new();
    match driver.apply(&together) {
        Ok(()) => {
            for job in jobs {
                finish(&job.shared, Ok(()), &mut done);
            }
        }
        // Batches are state, so the same answer for all is safe: the rank keeps everything dirty
        // and writes it again.
        Err(e) => {
            if counts_lost {
                driver.log.warn("store", "write failed for several groups", &[("groups", &jobs.len())]);
            }
            for job in jobs {
                finish(&job.shared, Err(e.clone()), &mut done);
            }
        }
    }
    // One answer is about some hundreds of records. Requests come in between.
    for input in done {
        driver.feed([input]);
        std::thread::yield_now();
    }
}

fn finish(shared: &Shared, result: Result<(), StoreError>, done: &mut Vec<Input>) {
    let mut all = shared.result.lock().unwrap_or_else(PoisonError::into_inner);
    if all.is_ok() {
        *all = result;
    }
    if shared.left.fetch_sub(1, Ordering::AcqRel) == 1 {
        done.push(Input::Stored { tag: shared.tag, result: all.clone() });
    }
}

impl Driver {
    /// Writes batches. On a full disk the ballast is given up and the write tried once more, so that
    /// a checkpoint (and what unlink frees by it) can go on.
    fn apply(&self, batches: &[StoreBatch]) -> Result<(), StoreError> {
        if batches.is_empty() {
            return Ok(());
        }
        let result = match self.meta.apply(batches) {
            Err(StoreError::NoSpace) if self.release_ballast() => self.meta.apply(batches),
            other => other,
        };
        if let Err(error) = &result {
            self.note_damage(error);
        }
        result
    }

    /// The metadata store has answered with an error.
    pub(super) fn note_damage(&self, error: &StoreError) {
        if self.damage.note(error) {
            self.log.error("store", "metadata damage", &[("place", &self.place), ("error", error)]);
        }
    }
}
