//! Housekeeping: trimming the journal, spare segments, compaction, the ballast. One thread, nobody
//! waits for it.
//!
//! Absent: anything a client could be waiting for.

use super::Driver;
use proto::Position;
use proto::storeio::StoreError;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often to look when there was nothing to do.
const REST: Duration = Duration::from_secs(1);
/// Rest between two pieces of work, so that they take a bounded share of the disk.
const SHORT_REST: Duration = Duration::from_millis(5);

#[derive(Debug, Default)]
struct State {
    trim: Option<Position>,
    stop: bool,
}

/// What was asked of the housekeeping thread.
#[derive(Debug, Default)]
pub(super) struct Chores {
    state: Mutex<State>,
    wake: Condvar,
}

impl Chores {
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

/// The housekeeping thread.
pub(super) fn run(driver: &Driver) {
    let mut rest = Duration::ZERO;
    let mut compaction_broken = false;
    while let Some(trim) = driver.chores.rest(rest) {
        if let Some(before) = trim {
            told(driver, "trim of the journal", driver.journal_io.trim(before));
        }
        driver.restore_ballast();
        let prepared = told(driver, "spare journal segment", driver.journal_io.prepare()).unwrap_or(false);
        let mut compacted = false;
        if !compaction_broken {
            match driver.data_io.compact_step() {
                Ok(more) => compacted = more,
                Err(StoreError::NoSpace) => {}
                Err(e) => {
                    compaction_broken = true;
                    driver.log.error("data", "compaction failed", &[("error", &e)]);
                }
            }
        }
        rest = if prepared || compacted { SHORT_REST } else { REST };
    }
}

/// Logs a failure that nothing depends on; a full disk is told once, by the ballast.
fn told<T>(driver: &Driver, what: &str, result: Result<T, StoreError>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(StoreError::NoSpace) => None,
        Err(e) => {
            driver.log.error("server", "housekeeping failed", &[("what", &what), ("error", &e)]);
            None
        }
    }
}
