//! File data on the `Disk` seam: small files packed into append-only segments behind a write-back
//! buffer, larger ones as block files.
//!
//! `run` (`execute`) may block and may be called from any thread. Operations of one file exclude each other but
//! are not ordered: a driver that has one under way or waiting must not start a later one before it.
//!
//! Absent: which `DataOp` is which call (`execute`), threads and clocks (the driver calls `background_step`), inodes and sizes
//! (the rank's), retries after a failed write or sync (the store is poisoned until reopened).

mod blocks;
mod central;
mod checkpoint;
mod compact;
mod copy;
mod execute;
mod flow;
mod grow;
mod handles;
mod index;
mod large;
mod limits;
mod locks;
mod record;
mod recover;
mod room;
mod segments;
mod small;
mod state;
mod sync;
mod verify;

#[cfg(test)]
mod tests;

pub use compact::Compacted;
pub use limits::{Limits, SMALL_FILE_BYTES_MAX};
pub use recover::Damage;
pub use verify::{DataStats, ObjectInfo, Verified};

use crate::disk::Disk;
use central::{Central, Form};
use checkpoint::Checkpointer;
use compact::Compactor;
use locks::{FileLocks, guard};
use proto::storeio::{Buffer, Cut, IoError, Payload, StoreError};
use proto::{Errno, FileId};
use segments::Appender;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};
use stdx::Mono;

/// The data store of one file system. Locks are taken in the order of the fields below; a file's lock
/// comes between `compactor` and `appender`.
pub struct DataFiles<D: Disk> {
    disk: D,
    small_file_bytes: u32,
    limits: Limits,
    poisoned: AtomicBool,
    /// What is free is not for data (`room`).
    room_kept: AtomicBool,
    /// How many `SyncAll` have begun; grows with the checkpointer locked.
    syncs_begun: AtomicU64,
    checkpointer: Mutex<Checkpointer>,
    compactor: Mutex<Compactor<D::File>>,
    locks: FileLocks,
    appender: Mutex<Appender<D::File>>,
    /// Held for reading from a write-out's system call until its failure has poisoned the store.
    writing_out: RwLock<()>,
    central: Mutex<Central<D::File>>,
}

impl<D: Disk> DataFiles<D> {
    /// Opens the store, making it where the disk has none. Files of at most `small_file_bytes` (at most
    /// 64 KiB) are packed.
    ///
    /// # Errors
    /// `Damaged` names the first synced record that is missing or wrong; `Io`, `NoSpace`.
    pub fn open(disk: D, small_file_bytes: u32, limits: Limits) -> Result<Self, StoreError> {
        let (store, damages) = Self::open_damaged(disk, small_file_bytes, limits)?;
        match damages.into_iter().next() {
            None => Ok(store),
            Some(damage) => Err(damage.into()),
        }
    }

    /// Opens the store although records are damaged: for repair. Damaged records are left out; where
    /// the index is damaged it is rebuilt from the segments.
    ///
    /// # Errors
    /// `Io`, `NoSpace`; `Damaged` when `data/state` itself cannot be read.
    pub fn open_damaged(
        disk: D,
        small_file_bytes: u32,
        limits: Limits,
    ) -> Result<(Self, Vec<Damage>), StoreError> {
        let small_file_bytes = small_file_bytes.min(SMALL_FILE_BYTES_MAX);
        let limits = limits.checked(small_file_bytes);
        let recovered = recover::recover(&disk, &limits)?;
        let store = Self {
            disk,
            small_file_bytes,
            limits,
            poisoned: AtomicBool::new(false),
            room_kept: AtomicBool::new(false),
            syncs_begun: AtomicU64::new(0),
            checkpointer: Mutex::new(recovered.checkpointer),
            compactor: Mutex::new(Compactor::new()),
            locks: FileLocks::new(),
            appender: Mutex::new(Appender::new()),
            writing_out: RwLock::new(()),
            central: Mutex::new(recovered.central),
        };
        let mut damages = recovered.damages;
        store.settle_forms(&mut damages)?;
        Ok((store, damages))
    }

    /// The disk.
    pub const fn disk(&self) -> &D {
        &self.disk
    }

    /// Whether a write or sync failed: everything that changes data is refused until reopened.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire)
    }

    /// Writes `bytes`; the count is short only when a full disk ended a longer write.
    ///
    /// # Errors
    /// As `run`.
    pub fn write(&self, file: FileId, cut: Cut, offset: u64, bytes: &[u8]) -> Result<u64, StoreError> {
        self.check_poison()?;
        // Before the lock: readers of the file do not wait for the disk to take what was written.
        if offset.saturating_add(bytes.len() as u64) > u64::from(self.small_file_bytes) {
            self.wait_for_flow()?;
        }
        let _guard = self.locks.lock(file);
        self.write_locked(file, cut, offset, bytes)
    }

    fn write_locked(&self, file: FileId, cut: Cut, offset: u64, bytes: &[u8]) -> Result<u64, StoreError> {
        let end = end_of(offset, bytes.len() as u64)?;
        if bytes.is_empty() {
            return Ok(0);
        }
        if end <= u64::from(self.small_file_bytes) && self.write_small(file, cut, offset as usize, bytes)? {
            return Ok(bytes.len() as u64);
        }
        if !self.is_large(file) {
            self.grow_to_blocks(file, cut)?;
        }
        self.write_large(file, cut, offset, bytes)
    }

    /// Fills `out` with the file's bytes from `offset` on, zeros where never written.
    ///
    /// # Errors
    /// As `run`.
    pub fn read_into(&self, file: FileId, cut: Cut, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        let _guard = self.locks.lock(file);
        self.read_locked(file, cut, offset, out)
    }

    fn read_locked(&self, file: FileId, cut: Cut, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        end_of(offset, out.len() as u64)?;
        if self.is_large(file) {
            return self.read_large(file, cut, offset, out);
        }
        self.small_content(file, cut)?.read(offset, out)
    }

    fn truncate(&self, file: FileId, cut: Cut) -> Result<(), StoreError> {
        let _guard = self.locks.lock(file);
        if self.is_large(file) { self.truncate_large(file, cut) } else { self.truncate_small(file, cut) }
    }

    fn zero(&self, file: FileId, cut: Cut, offset: u64, len: u64, punch: bool) -> Result<(), StoreError> {
        let _guard = self.locks.lock(file);
        self.zero_locked(file, cut, offset, len, punch)
    }

    fn zero_locked(
        &self,
        file: FileId,
        cut: Cut,
        offset: u64,
        len: u64,
        punch: bool,
    ) -> Result<(), StoreError> {
        end_of(offset, len)?;
        if self.is_large(file) {
            self.zero_large(file, cut, offset, len, punch)
        } else {
            self.zero_small(file, cut, offset, len)
        }
    }

    fn allocate(&self, file: FileId, cut: Cut, offset: u64, len: u64) -> Result<(), StoreError> {
        let _guard = self.locks.lock(file);
        end_of(offset, len)?;
        // A packed file cannot reserve: its next version goes elsewhere.
        if !self.is_large(file) {
            self.grow_to_blocks(file, cut)?;
        }
        self.allocate_large(file, cut, offset, len)
    }

    fn seek(
        &self,
        file: FileId,
        cut: Cut,
        offset: u64,
        size: u64,
        hole: bool,
    ) -> Result<Option<u64>, StoreError> {
        if offset >= size {
            return Ok(None);
        }
        let _guard = self.locks.lock(file);
        let found = if self.is_large(file) {
            self.seek_large(file, cut, offset, size, hole)?
        } else {
            small::seek(self.small_content(file, cut)?.bytes(), offset, hole)
        };
        Ok(match found {
            Some(at) if at < size => Some(at),
            // The end of a file is a hole.
            _ => hole.then_some(size),
        })
    }

    fn remove(&self, file: FileId) -> Result<(), StoreError> {
        let _guard = self.locks.lock(file);
        {
            let mut central = guard(&self.central);
            central.drop_buffer(file);
            central.bury(file);
            if !central.large.contains_key(&file) {
                return Ok(());
            }
        }
        self.unlink_blocks(file, |_| true)
    }

    /// Tells the time, which says how long ago segments lost records.
    pub fn keep_time(&self, now: Mono) {
        guard(&self.central).now = now;
    }

    /// Work that need not be done while somebody waits: flushing buffers, reserving segments, writing
    /// complete blocks out, checkpointing the index, compaction of at most about `budget_bytes`. Call it from a worker of
    /// its own, again at once while it answers `true`, else after a while.
    ///
    /// # Errors
    /// As `run`; `NoSpace` only means that nothing could be done now.
    pub fn background_step(&self, budget_bytes: u64) -> Result<bool, StoreError> {
        self.check_poison()?;
        let flushed = match self.flush_ahead() {
            // What compaction gives back is what a flush waits for.
            Err(StoreError::NoSpace) => false,
            result => result?,
        };
        let written = self.write_out()?;
        let compacted = self.compact_step(budget_bytes)?;
        Ok(flushed || written || compacted.more)
    }

    fn is_large(&self, file: FileId) -> bool {
        guard(&self.central).form(file) == Form::Large
    }

    /// For who has just synced blocks: the kernel tells of a failed write once, and a write-out beside the sync may have
    /// been told, so that the sync succeeded without the bytes.
    pub(super) fn check_write_outs(&self) -> Result<(), StoreError> {
        drop(self.writing_out.write().unwrap_or_else(PoisonError::into_inner));
        self.check_poison()
    }

    pub(super) fn check_poison(&self) -> Result<(), StoreError> {
        if self.is_poisoned() { Err(StoreError::Poisoned) } else { Ok(()) }
    }

    /// As `poison`, where files are opened as well and the same can be tried again. A server without descriptors, which any user could
    /// leave it, refused all changes until it was started again.
    fn poison_if_opened(&self, error: StoreError) -> StoreError {
        if error.finds_no_descriptor() && !stdx::mutant!("data_no_descriptor_poisons") {
            return error;
        }
        self.poison(error)
    }

    /// A write or sync failed: what the disk holds is unknown from here on.
    fn poison(&self, error: StoreError) -> StoreError {
        self.poisoned.store(true, Ordering::Release);
        error
    }
}

/// `len` bytes that `read` writes, where the asker wants them.
fn fill(
    len: usize,
    into: Option<&Buffer>,
    read: impl Fn(&mut [u8]) -> Result<(), StoreError>,
) -> Result<Payload, StoreError> {
    if let Some(buffer) = into
        && let Some(filled) = buffer.fill(len, &read)?
    {
        return Ok(filled);
    }
    let mut bytes = vec![0; len];
    read(&mut bytes)?;
    Ok(bytes.into())
}

/// The end of a range; beyond what a file may have it is EFBIG.
fn end_of(offset: u64, len: u64) -> Result<u64, StoreError> {
    match offset.checked_add(len) {
        Some(end) if i64::try_from(end).is_ok() => Ok(end),
        _ => Err(io_error("range", Errno::EFBIG)),
    }
}

fn io_error(at: &str, errno: Errno) -> StoreError {
    StoreError::Io { at: at.to_owned(), source: IoError(errno.0) }
}

fn damaged(name: &str, offset: u64, what: &str) -> StoreError {
    StoreError::Damaged { at: format!("{name} at {offset:#x}"), what: what.to_owned() }
}
