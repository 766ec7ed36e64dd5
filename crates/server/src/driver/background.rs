//! Background work: trimming the journal, spare segments, the ballast; flushing data ahead and
//! compacting it. Nobody waits for these two threads.
//!
//! Absent: anything a client could be waiting for.

use super::Driver;
use proto::Position;
use proto::storeio::StoreError;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often to look when there was nothing to do.
const REST: Duration = Duration::from_secs(1);
/// Rest between two spare segments, so that making them takes a bounded share of the disk.
const SHORT_REST: Duration = Duration::from_millis(5);
/// Data that nobody synced goes to the disk after one to two of these, as local file systems do it.
const AGE: Duration = Duration::from_secs(5);
/// How often to look whether data should be flushed ahead, while it changes.
const BUSY_REST: Duration = Duration::from_millis(20);

#[derive(Debug, Default)]
struct State {
    trim: Option<Position>,
    stop: bool,
}

/// What was asked of a background thread.
#[derive(Debug, Default)]
pub(super) struct Background {
    state: Mutex<State>,
    wake: Condvar,
}

impl Background {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing before this position is needed.
    pub(super) fn trim(&self, before: Position) {
        self.lock().trim = Some(before);
        self.wake.notify_one();
    }

    pub(super) fn stop(&self) {
        self.lock().stop = true;
        self.wake.notify_one();
    }

    /// Rests until there is something to trim or the time is up; `None` at the end.
    fn rest(&self, duration: Duration) -> Option<Option<Position>> {
        let state = self.lock();
        let (mut state, _) = self
            .wake
            .wait_timeout_while(state, duration, |s| !s.stop && s.trim.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        if state.stop { None } else { Some(state.trim.take()) }
    }
}

/// The thread that trims and prepares the journal and looks after the ballast.
pub(super) fn run(driver: &Driver) {
    let mut rest = Duration::ZERO;
    while let Some(trim) = driver.background.rest(rest) {
        if let Some(before) = trim {
            told(driver, "trim of the journal", driver.journal_io.trim(before));
        }
        driver.restore_ballast();
        let prepared = driver.has_spare_room()
            && told(driver, "spare journal segment", driver.journal_io.prepare()).unwrap_or(false);
        rest = if prepared { SHORT_REST } else { REST };
    }
}

/// The thread that flushes data ahead and compacts it. It rests long only while no data changes.
pub(super) fn run_data(driver: &Driver) {
    let (mut rest, mut seen, mut flushed) = (Duration::ZERO, 0, Instant::now());
    let mut failed = None;
    while driver.data_background.rest(rest).is_some() {
        if flushed.elapsed() >= AGE {
            told(driver, "flush of data", driver.data_io.flush_aged());
            flushed = Instant::now();
        }
        let counters = &driver.counters;
        let now = counters.data_inline.load(Relaxed) + counters.data_queued.load(Relaxed);
        rest = match driver.data_io.background(driver.clock.mono()) {
            Ok(true) => Duration::ZERO,
            Ok(false) if now != seen => BUSY_REST,
            Ok(false) | Err(StoreError::NoSpace) => REST,
            Err(StoreError::Poisoned) => {
                driver.log.error("data", "a write or sync failed: background work ends", &[]);
                return;
            }
            // A bad sector, no descriptor left: the rest goes on, and what fails over and over is told once.
            Err(e) => {
                if failed.as_ref() != Some(&e) {
                    driver.log.error("data", "background work failed", &[("error", &e)]);
                    failed = Some(e);
                }
                REST
            }
        };
        seen = now;
    }
}

/// Logs a failure that nothing depends on; a full disk is told once, by the ballast.
fn told<T>(driver: &Driver, what: &str, result: Result<T, StoreError>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(StoreError::NoSpace) => None,
        Err(e) => {
            driver.log.error("server", "background work failed", &[("what", &what), ("error", &e)]);
            None
        }
    }
}
