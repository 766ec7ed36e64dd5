//! The stores of crate `store` as the driver's parts.
//!
//! Absent: opening them (`open.rs`).

use crate::parts::{Ballast, DataIo, JournalIo};
use proto::storeio::{DataDone, DataOp, StoreError};
use proto::{Incarnation, Position};
use runtime::Log;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use stdx::Mono;
use store::data::DataFiles;
use store::disk::Disk;
use store::fence::Fenced;
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

    fn former(&self) -> Incarnation {
        Self::former(self)
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

/// Data that several lives of ranks share, as one of them may use it. What nobody in particular does, it does as before: the next
/// life is glad of it.
impl<T: DataIo + ?Sized> DataIo for Fenced<T> {
    fn run(&self, op: &DataOp) -> Result<DataDone, StoreError> {
        if !op.changes() {
            self.fence().check()?;
            return self.store().run(op);
        }
        let _pass = self.fence().enter()?;
        self.store().run(op)
    }

    fn run_quick(&self, op: &DataOp) -> Option<Result<DataDone, StoreError>> {
        let _pass = match self.fence().enter() {
            Ok(pass) => pass,
            Err(error) => return Some(Err(error)),
        };
        self.store().run_quick(op)
    }

    fn background(&self, now: Mono) -> Result<bool, StoreError> {
        self.store().background(now)
    }

    fn flush_aged(&self) -> Result<(), StoreError> {
        self.store().flush_aged()
    }

    fn keep_room(&self, keep: bool) {
        self.store().keep_room(keep);
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

#[cfg(test)]
mod tests {
    use super::*;
    use proto::storeio::{Cut, Payload};
    use proto::{FileId, Ino};
    use std::sync::atomic::AtomicU64;
    use std::thread;
    use store::SimDisk;
    use store::data::Limits;
    use store::fence::Fence;

    const FILE: FileId = FileId { ino: Ino(4096), generation: 0 };
    const SMALL: u32 = 4096;

    fn data() -> Arc<DataFiles<SimDisk>> {
        Arc::new(DataFiles::open(SimDisk::new(1), SMALL, Limits::default()).expect("opened"))
    }

    fn write(offset: u64, byte: u8) -> DataOp {
        DataOp::Write { file: FILE, cut: Cut::default(), offset, data: Payload::Owned(vec![byte; 2000]) }
    }

    fn content(data: &dyn DataIo) -> Result<Vec<u8>, StoreError> {
        let read = DataOp::Read { file: FILE, cut: Cut::default(), offset: 0, len: 10_000, into: None };
        match data.run(&read)? {
            DataDone::Bytes(bytes) => Ok(bytes.bytes().to_vec()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_life_that_was_ended_changes_no_data() {
        let (data, fence) = (data(), Fence::new());
        let old = Fenced::new(Arc::clone(&data), fence.clone());
        old.run(&write(0, 1)).expect("written");
        fence.revoke();
        let before = content(&*data).expect("read");
        let changes = [
            write(0, 2),
            write(8000, 2),
            DataOp::Truncate { file: FILE, cut: Cut { seq: 1, size: 0 } },
            DataOp::Remove { file: FILE },
            DataOp::Redo { file: FILE, truncate_seq: 9, write_seq: 1 << 30, data: vec![9] },
        ];
        for op in &changes {
            assert_eq!(old.run(op), Err(StoreError::Fenced), "{op:?}");
            assert_eq!(old.run_quick(op), Some(Err(StoreError::Fenced)), "{op:?}");
        }
        for op in [DataOp::SyncAll, DataOp::Sync { file: FILE }] {
            assert_eq!(old.run(&op), Err(StoreError::Fenced), "nobody is to be told by this life");
        }
        assert_eq!(content(&old), Err(StoreError::Fenced));
        assert_eq!(content(&*data).expect("read"), before);
        let next = Fenced::new(Arc::clone(&data), Fence::new());
        next.run(&write(0, 3)).expect("another life goes on");
        assert_eq!(content(&next).expect("read")[0], 3);
    }

    /// Of small files and of those that became blocks, through a worker and without one.
    #[test]
    fn a_write_under_way_is_over_when_its_life_is() {
        for (round, offset) in [0, 0, 6000, 6000].into_iter().cycle().take(40).enumerate() {
            let (data, fence) = (data(), Fence::new());
            let number = AtomicU64::new(0);
            thread::scope(|scope| {
                for _ in 0..3 {
                    let old = Fenced::new(Arc::clone(&data), fence.clone());
                    let number = &number;
                    scope.spawn(move || {
                        loop {
                            let op = write(offset, number.fetch_add(1, Ordering::SeqCst) as u8);
                            let quick = if round % 2 == 0 { old.run_quick(&op) } else { None };
                            match quick.unwrap_or_else(|| old.run(&op)) {
                                Ok(_) => {}
                                Err(error) => break assert_eq!(error, StoreError::Fenced),
                            }
                        }
                    });
                }
                while number.load(Ordering::SeqCst) < 20 {
                    thread::yield_now();
                }
                fence.revoke();
                let at_once = content(&*data).expect("read");
                while Arc::strong_count(&data) > 1 {
                    thread::yield_now();
                }
                assert!(content(&*data).expect("read") == at_once, "changed after revoke had returned");
            });
        }
    }
}
