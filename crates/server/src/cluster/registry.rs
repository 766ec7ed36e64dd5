//! The thread that reads and writes the registry for the coordinator.
//!
//! Absent: the format of the record (crates `proto` and `store`).

use super::Shared;
use mds::coordinator::{Input, SwapFailure};
use proto::storeio::StoreError;
use std::sync::mpsc::Receiver;
use store::registry::{MAP, Record, Registry, SwapError};

/// What the coordinator asks for, one at a time.
pub(super) enum Job {
    Read,
    Swap { expected: u64, bytes: Vec<u8> },
}

/// The thread; it ends when nobody can ask any more.
pub(super) fn run(shared: &Shared, registry: &dyn Registry, jobs: &Receiver<Job>) {
    while let Ok(job) = jobs.recv() {
        match job {
            Job::Read => {
                let mut read = registry.read(MAP);
                // Else one failed write would keep ranks from changing hands for as long as the process lives.
                if read == Err(StoreError::Poisoned) {
                    read = recovered(registry);
                }
                // That writes the record, too: as a swap, below.
                if read == Err(StoreError::NoSpace) && shared.maker.release_ballast() {
                    read = recovered(registry);
                }
                let read = read.map(|record| record.map(|r| (r.version, r.bytes)));
                note(shared, read.as_ref().err());
                shared.tell(Input::Read(read));
            }
            Job::Swap { expected, bytes } => {
                let mut swapped = registry.swap(MAP, expected, &bytes);
                // A full disk must not keep a rank from beginning: what is kept back is for that, too.
                if matches!(swapped, Err(SwapError::Store(StoreError::NoSpace)))
                    && shared.maker.release_ballast()
                {
                    swapped = registry.swap(MAP, expected, &bytes);
                }
                let swapped = swapped.map_err(|error| match error {
                    SwapError::Stale { stored } => SwapFailure::Stale { stored },
                    SwapError::Store(error) => SwapFailure::Store(error),
                });
                note(
                    shared,
                    match &swapped {
                        Err(SwapFailure::Store(error)) => Some(error),
                        Ok(_) | Err(SwapFailure::Stale { .. }) => None,
                    },
                );
                shared.tell(Input::Swapped(swapped));
            }
        }
    }
}

fn recovered(registry: &dyn Registry) -> Result<Option<Record>, StoreError> {
    registry.recover(MAP).and_then(|()| registry.read(MAP))
}

/// For health, and for whoever waits for the first life. The coordinator has it logged.
fn note(shared: &Shared, error: Option<&StoreError>) {
    shared.views.change(|view| view.trouble = error.cloned());
}
