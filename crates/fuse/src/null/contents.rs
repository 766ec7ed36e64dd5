//! File contents of the null responder in plain files, one per node.
//! Absent: removing them; the folder belongs to one run.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

#[derive(Debug)]
pub(super) struct Contents {
    folder: PathBuf,
    open: RwLock<HashMap<u64, Arc<File>>>,
}

fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

impl Contents {
    pub(super) fn new(folder: PathBuf) -> io::Result<Contents> {
        std::fs::create_dir_all(&folder)?;
        Ok(Contents { folder, open: RwLock::default() })
    }

    fn file(&self, nodeid: u64) -> Result<File, i32> {
        let path = self.folder.join(nodeid.to_string());
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        file.map_err(|error| errno(&error))
    }

    fn handle(&self, fh: u64) -> Result<Arc<File>, i32> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.get(&fh).cloned().ok_or(libc::EBADF)
    }

    pub(super) fn open(&self, nodeid: u64, fh: u64) -> Result<(), i32> {
        let file = Arc::new(self.file(nodeid)?);
        self.open.write().unwrap_or_else(PoisonError::into_inner).insert(fh, file);
        Ok(())
    }

    pub(super) fn close(&self, fh: u64) {
        self.open.write().unwrap_or_else(PoisonError::into_inner).remove(&fh);
    }

    pub(super) fn resize(&self, nodeid: u64, size: u64) -> Result<(), i32> {
        self.file(nodeid)?.set_len(size).map_err(|error| errno(&error))
    }

    pub(super) fn read(&self, fh: u64, offset: u64, buffer: &mut [u8]) -> Result<usize, i32> {
        self.handle(fh)?.read_at(buffer, offset).map_err(|error| errno(&error))
    }

    pub(super) fn write(&self, fh: u64, offset: u64, data: &[u8]) -> Result<(), i32> {
        self.handle(fh)?.write_all_at(data, offset).map_err(|error| errno(&error))
    }
}
