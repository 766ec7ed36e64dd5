//! Data workers: operations on file data that need the disk.
//!
//! Absent: order (`order.rs`), layouts (room `store`).

use super::{Driver, Life};
use mds::input::{Input, Tag};
use proto::storeio::{DataDone, DataOp, StoreError};
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Data workers.
pub(super) const WORKERS: usize = 8;
/// Replay waits while more operations than this wait.
const SHORT: usize = 256;

#[derive(Default)]
struct State {
    jobs: VecDeque<(Tag, DataOp)>,
    stop: bool,
}

/// Operations on their way to the workers.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    wake: Condvar,
    short: Condvar,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push(&self, tag: Tag, op: DataOp) {
        self.lock().jobs.push_back((tag, op));
        self.wake.notify_one();
    }

    pub(super) fn stop(&self) {
        self.lock().stop = true;
        self.wake.notify_all();
        self.short.notify_all();
    }

    /// Blocks while many operations wait.
    pub(super) fn wait_until_short(&self) {
        let mut state = self.lock();
        while state.jobs.len() > SHORT && !state.stop {
            state = self.short.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn take(&self) -> Option<(Tag, DataOp)> {
        let mut state = self.lock();
        while state.jobs.is_empty() && !state.stop {
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.stop {
            return None;
        }
        if state.jobs.len() == SHORT {
            self.short.notify_all();
        }
        state.jobs.pop_front()
    }
}

/// A data worker.
pub(super) fn run(driver: &Driver) {
    runtime::process::go_behind_others();
    while let Some((tag, op)) = driver.data.take() {
        let result = driver.run_data(&op);
        // Lent content goes back first: its owner may wait for it to be answered.
        drop(op);
        driver.bring([Input::DataDone { tag, result }]);
    }
}

impl Driver {
    /// Runs one data operation. What frees space or makes data durable may use the ballast.
    pub(super) fn run_data(&self, op: &DataOp) -> Result<DataDone, StoreError> {
        self.with_ballast(op, self.data_io.run(op))
    }

    /// The same if no worker is needed for it.
    pub(super) fn run_data_quick(&self, op: &DataOp) -> Option<Result<DataDone, StoreError>> {
        Some(self.with_ballast(op, self.data_io.run_quick(op)?))
    }

    fn with_ballast(
        &self,
        op: &DataOp,
        result: Result<DataDone, StoreError>,
    ) -> Result<DataDone, StoreError> {
        match result {
            Err(StoreError::NoSpace) => {
                let released = self.release_ballast();
                if released && op.may_use_ballast() { self.data_io.run(op) } else { Err(StoreError::NoSpace) }
            }
            other => other,
        }
    }

    /// Gives the ballast up and tells the rank; `true` when that made room just now.
    pub(super) fn release_ballast(&self) -> bool {
        let Some(ballast) = &self.ballast else { return false };
        let bytes = {
            let mut refusing = self.refusing();
            // Before its blocks count as free: what data reserved then would be what the journal needs.
            self.data_io.keep_room(true);
            let bytes = ballast.release();
            *refusing |= bytes > 0;
            bytes
        };
        if bytes == 0 {
            return false;
        }
        let mib = bytes >> 20;
        let text = format!(
            "store {}: no space left: new data refused, unlink still works, {mib} MiB kept for it",
            self.place
        );
        self.log.warn("store", &text, &[]);
        self.feed([Input::Space { full: true }]);
        true
    }

    /// Takes the ballast again when the disk has room, and tells the rank.
    pub(super) fn restore_ballast(&self) {
        let Some(ballast) = &self.ballast else { return };
        let (again, lacking) = {
            let mut refusing = self.refusing();
            let again = ballast.restore();
            let held = ballast.is_held();
            self.data_io.keep_room(!held);
            // The rank's first input is that it boots, and until it is active nobody writes.
            let lacking = !held && !*refusing && self.life.get() == Life::Active;
            *refusing = (*refusing || lacking) && !again;
            (again, lacking)
        };
        if again {
            self.log.info("store", "space again: new data accepted", &[("place", &self.place)]);
            self.feed([Input::Space { full: false }]);
        }
        if lacking {
            // Given up in a former life. Accepted until the disk is full, new data would leave nothing for unlink.
            let text =
                format!("store {}: no room for the ballast: new data refused until there is", self.place);
            self.log.warn("store", &text, &[]);
            self.feed([Input::Space { full: true }]);
        }
    }

    /// Whether new data is refused for want of a ballast. Held while that is given up or taken again.
    fn refusing(&self) -> MutexGuard<'_, bool> {
        self.refusing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether space may be taken ahead of need: not what the ballast left behind, nor what it waits for.
    pub(super) fn has_spare_room(&self) -> bool {
        self.ballast.as_ref().is_none_or(|ballast| ballast.is_held())
    }
}
