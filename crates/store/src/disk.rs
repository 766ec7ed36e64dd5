//! The seam between files and the code that lays them out: journal, segments, blocks, registry.
//! The real disk implements it with system calls, the simulator with a disk that forgets what was not
//! synced.
//!
//! Absent: LMDB, which does its own I/O.

use proto::storeio::StoreError;
use std::sync::Arc;

/// Writes to a file of `create_direct` begin and end at multiples of this, and so does their memory.
pub const DIRECT_BYTES: usize = 4096;

/// An open file. Reads and writes at offsets; no cursor.
pub trait DiskFile: Send + Sync {
    /// Reads up to `buf.len()` bytes at `offset`; fewer only at the end of the file.
    ///
    /// # Errors
    /// `Io`.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize, StoreError>;

    /// Writes all of `bytes` at `offset`.
    ///
    /// # Errors
    /// `NoSpace`, `Io`.
    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), StoreError>;

    /// Makes the file's data (and its length) durable: fdatasync.
    ///
    /// # Errors
    /// `Io`: the caller must treat the file as poisoned.
    fn sync_data(&self) -> Result<(), StoreError>;

    /// Sets the length.
    ///
    /// # Errors
    /// `NoSpace`, `Io`.
    fn set_len(&self, len: u64) -> Result<(), StoreError>;

    /// The present length in bytes.
    ///
    /// # Errors
    /// `Io`.
    fn size(&self) -> Result<u64, StoreError>;

    /// Reserves space for the range without changing the length.
    ///
    /// # Errors
    /// `NoSpace`, `Io`.
    fn allocate(&self, offset: u64, len: u64) -> Result<(), StoreError>;

    /// Frees the space of the range; it reads as zeros.
    ///
    /// # Errors
    /// `Io`.
    fn punch(&self, offset: u64, len: u64) -> Result<(), StoreError>;

    /// The first offset >= `offset` that is data (or a hole); `None` when there is none.
    ///
    /// # Errors
    /// `Io`.
    fn seek(&self, offset: u64, hole: bool) -> Result<Option<u64>, StoreError>;

    /// Tells the system that the range's cached pages are not needed. Best effort.
    fn drop_cache(&self, offset: u64, len: u64);

    /// Tells the system that the range is going to be read. Best effort.
    fn prefetch(&self, _offset: u64, _len: u64) {}

    /// Begins to hand the file's dirty pages to the device. Makes nothing durable.
    ///
    /// # Errors
    /// `Io`: as a failed sync; nobody else is told.
    fn start_writing(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Waits until the device has taken what was handed to it. Makes nothing durable.
    ///
    /// # Errors
    /// As `start_writing`.
    fn wait_written(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// A folder of files; names may contain `/` for subfolders, which are created as needed.
pub trait Disk: Send + Sync + 'static {
    type File: DiskFile + 'static;

    /// Opens an existing file; `None` when there is none.
    ///
    /// # Errors
    /// `Io`.
    fn open(&self, name: &str) -> Result<Option<Self::File>, StoreError>;

    /// Opens a file, making it (and its folder) if absent.
    ///
    /// # Errors
    /// `NoSpace`, `Io`.
    fn create(&self, name: &str) -> Result<Self::File, StoreError>;

    /// Like `create`; writes pass the system's page cache by where the file system can do that, and keep to `DIRECT_BYTES`.
    ///
    /// # Errors
    /// `NoSpace`, `Io`.
    fn create_direct(&self, name: &str) -> Result<Self::File, StoreError> {
        self.create(name)
    }

    /// Removes a file; one that is not there is no error.
    ///
    /// # Errors
    /// `Io`.
    fn remove(&self, name: &str) -> Result<(), StoreError>;

    /// Renames a file over another, atomically.
    ///
    /// # Errors
    /// `Io`.
    fn rename(&self, from: &str, to: &str) -> Result<(), StoreError>;

    /// As `rename`; what was `to` is `from` then, if there was one and the file system can do that.
    ///
    /// # Errors
    /// `Io`: it may have been done all the same.
    fn exchange(&self, from: &str, to: &str) -> Result<(), StoreError> {
        self.rename(from, to)
    }

    /// Names of the files (not folders) in a folder, sorted, without the folder's name; empty when
    /// the folder is not there.
    ///
    /// # Errors
    /// `Io`.
    fn list(&self, folder: &str) -> Result<Vec<String>, StoreError>;

    /// Makes creations, removals and renames in a folder durable: fsync of the folder and of those
    /// above it that were made.
    ///
    /// # Errors
    /// `Io`.
    fn sync_folder(&self, folder: &str) -> Result<(), StoreError>;

    /// Makes everything durable that was ever written to the disk, by earlier processes too: syncfs.
    /// `false`: the disk has no such call and the caller must sync file by file.
    ///
    /// # Errors
    /// `Io`.
    fn sync_disk(&self) -> Result<bool, StoreError> {
        Ok(false)
    }

    /// `sync_data` of many files, in whatever order is fastest.
    ///
    /// # Errors
    /// That of one of them: the caller must treat all as poisoned.
    fn sync_files(&self, files: &[Arc<Self::File>]) -> Result<(), StoreError> {
        files.iter().try_for_each(|file| file.sync_data())
    }

    /// Space of the device.
    ///
    /// # Errors
    /// `Io`.
    fn space(&self) -> Result<proto::storeio::Space, StoreError>;
}
