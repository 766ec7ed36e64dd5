//! A disk that may be looked at and not changed: removals and renames are left undone, new files refused.
//! The journal tidies up when it is opened; an inspection must not.
//!
//! Absent: everything else the real disk does.

use proto::storeio::{IoError, Space, StoreError};
use store::disk::Disk;
use store::disk_real::RealDisk;

/// The real disk, for reading.
pub(super) struct Looking(pub(super) RealDisk);

impl Disk for Looking {
    type File = <RealDisk as Disk>::File;

    fn open(&self, name: &str) -> Result<Option<Self::File>, StoreError> {
        self.0.open(name)
    }

    fn create(&self, name: &str) -> Result<Self::File, StoreError> {
        const EROFS: i32 = 30;
        Err(StoreError::Io { at: name.into(), source: IoError(EROFS) })
    }

    fn remove(&self, _name: &str) -> Result<(), StoreError> {
        Ok(())
    }

    fn rename(&self, _from: &str, _to: &str) -> Result<(), StoreError> {
        Ok(())
    }

    fn list(&self, folder: &str) -> Result<Vec<String>, StoreError> {
        self.0.list(folder)
    }

    fn sync_folder(&self, _folder: &str) -> Result<(), StoreError> {
        Ok(())
    }

    fn space(&self) -> Result<Space, StoreError> {
        self.0.space()
    }
}
