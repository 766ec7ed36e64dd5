//! The stores of crate `store` as the driver's parts.
//!
//! Absent: opening them (`open.rs`).

use crate::parts::{Ballast, DataIo, JournalIo};
use proto::Position;
use proto::storeio::{DataDone, DataOp, StoreError};
use runtime::Log;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use stdx::Mono;
use store::data::DataFiles;
use store::disk::Disk;
use store::folder;
use store::journal_files::JournalFiles;

/// What compaction may copy before it rests.
const BACKGROUND_BYTES: u64 = 8 << 20;

impl<D: Disk> JournalIo for JournalFiles<D> {
    fn read(&self, from: Position, piece: &mut dyn FnMut(Position, &[u8])) -> Result<Position, StoreError> {
        Self::read(self, from, piece)
    }

    fn append(&self, position: Position, entries: &[u8]) -> Result<(), StoreError> {
        Self::append(self, position, entries)
    }

    fn sync(&self) -> Result<Position, StoreError> {
        Self::sync(self)
    }

    fn trim(&self, before: Position) -> Result<(), StoreError> {
        Self::trim(self, before)
    }

    fn prepare(&self) -> Result<bool, StoreError> {
        Self::prepare(self)
    }

    fn bytes(&self) -> u64 {
        Self::bytes(self)
    }
}

impl<D: Disk> DataIo for DataFiles<D> {
    fn run(&self, op: &DataOp) -> Result<DataDone, StoreError> {
        Self::run(self, op)
    }

    fn run_quick(&self, op: &DataOp) -> Option<Result<DataDone, StoreError>> {
        Self::run_quick(self, op)
    }

    fn background(&self, now: Mono) -> Result<bool, StoreError> {
        self.keep_time(now);
        self.background_step(BACKGROUND_BYTES)
    }

    fn flush_aged(&self) -> Result<(), StoreError> {
        Self::flush_aged(self)
    }

    fn keep_room(&self, keep: bool) {
        Self::keep_room(self, keep);
    }
}

/// The folder's ballast, and whether it was given up and not taken again.
pub(crate) struct FolderBallast {
    files: folder::Ballast,
    released: AtomicBool,
    log: Arc<Log>,
}

impl FolderBallast {
    pub(crate) const fn new(files: folder::Ballast, log: Arc<Log>) -> Self {
        Self { files, released: AtomicBool::new(false), log }
    }
}

impl Ballast for FolderBallast {
    fn release(&self) -> u64 {
        match self.files.release() {
            Ok(true) => {
                self.released.store(true, Ordering::Release);
                folder::BALLAST_BYTES
            }
            Ok(false) => 0,
            Err(e) => {
                self.log.error("store", "ballast not released", &[("error", &e)]);
                0
            }
        }
    }

    fn is_held(&self) -> bool {
        self.files.is_held()
    }

    fn restore(&self) -> bool {
        if self.files.is_held() {
            return false;
        }
        match self.files.rebuild() {
            Ok(true) => self.released.swap(false, Ordering::AcqRel),
            // Given up by a former life.
            Ok(false) => {
                self.released.store(true, Ordering::Release);
                false
            }
            Err(e) => {
                self.log.error("store", "ballast not restored", &[("error", &e)]);
                false
            }
        }
    }
}
