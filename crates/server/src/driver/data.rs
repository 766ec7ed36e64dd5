//! Data workers: operations on file data that need the disk. Syncs of everything are done by one of them at a time, for all who
//! wait.
//!
//! Absent: order (crate `mds`, `order.rs`), layouts (crate `store`).

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
    /// Who waits for a sync of everything, and whether one is under way. One worker does it for all of them: were each an
    /// operation like others, as many clients that sync as there are workers would keep everybody's reads waiting.
    syncs: Vec<Tag>,
    syncing: bool,
    stop: bool,
}

/// What a worker does next.
enum Job {
    One(Tag, DataOp),
    /// A sync of everything, for all who asked for one by now.
    Sync(Vec<Tag>),
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
        let mut state = self.lock();
        if matches!(op, DataOp::SyncAll) {
            state.syncs.push(tag);
        } else {
            state.jobs.push_back((tag, op));
        }
        drop(state);
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

    fn take(&self) -> Option<Job> {
        let mut state = self.lock();
        loop {
            if state.stop {
                return None;
            }
            if !state.syncing && !state.syncs.is_empty() {
                state.syncing = true;
                return Some(Job::Sync(std::mem::take(&mut state.syncs)));
            }
            if state.jobs.len() == SHORT {
                self.short.notify_all();
            }
            if let Some((tag, op)) = state.jobs.pop_front() {
                return Some(Job::One(tag, op));
            }
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The sync under way is over: whoever asked meanwhile waits for the next.
    fn synced(&self) {
        let mut state = self.lock();
        state.syncing = false;
        if !state.syncs.is_empty() {
            self.wake.notify_one();
        }
    }
}

/// A data worker.
pub(super) fn run(driver: &Driver) {
    runtime::process::go_behind_others();
    while let Some(job) = driver.data.take() {
        match job {
            Job::One(tag, op) => {
                let result = driver.run_data(&op);
                // Lent content goes back first: its owner may wait for it to be answered.
                drop(op);
                driver.bring([Input::DataDone { tag, result }]);
            }
            Job::Sync(tags) => {
                let result = driver.run_data(&DataOp::SyncAll).map(|_| ());
                driver.data.synced();
                let done = |tag| Input::DataDone { tag, result: result.clone().map(|()| DataDone::Done) };
                driver.bring(tags.into_iter().map(done));
            }
        }
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
            let restored = ballast.restore();
            let held = ballast.is_held();
            // Another rank's driver may have been the one that took it.
            let again = restored || (held && *refusing);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_syncs_take_one_worker_and_others_go_on() {
        let queue = Queue::default();
        let remove = || DataOp::Remove { file: proto::FileId { ino: proto::Ino(7), generation: 1 } };
        (1..=20).for_each(|tag| queue.push(Tag(tag), DataOp::SyncAll));
        queue.push(Tag(100), remove());
        assert!(matches!(queue.take(), Some(Job::Sync(tags)) if tags.len() == 20));
        queue.push(Tag(21), DataOp::SyncAll);
        queue.push(Tag(101), remove());
        for tag in [100, 101] {
            assert!(matches!(queue.take(), Some(Job::One(found, _)) if found == Tag(tag)), "beside the sync");
        }
        queue.synced();
        assert!(matches!(queue.take(), Some(Job::Sync(tags)) if tags == [Tag(21)]));
        queue.stop();
        assert!(queue.take().is_none());
    }
}
