//! One open file on a real disk, with system calls.
//!
//! Absent: how it was opened.

use super::{failed, no_space};
use crate::disk::DiskFile;
use proto::storeio::{IoError, StoreError};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

/// No file of ours is longer; file systems refuse ranges beyond their own limit, 16 TiB on ext4.
const LENGTH_MAX: i64 = 8 << 40;

/// An open file of a `RealDisk`.
pub struct RealFile {
    pub(super) file: File,
    pub(super) name: Box<str>,
}

impl DiskFile for RealFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize, StoreError> {
        let mut done = 0;
        while done < buf.len() {
            match self.file.read_at(&mut buf[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(&self.name, &error)),
            }
        }
        Ok(done)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), StoreError> {
        self.file.write_all_at(bytes, offset).map_err(|error| no_space(&self.name, &error))
    }

    fn sync_data(&self) -> Result<(), StoreError> {
        self.file.sync_data().map_err(|error| failed(&self.name, &error))
    }

    fn set_len(&self, len: u64) -> Result<(), StoreError> {
        self.file.set_len(len).map_err(|error| no_space(&self.name, &error))
    }

    fn size(&self) -> Result<u64, StoreError> {
        Ok(self.file.metadata().map_err(|error| failed(&self.name, &error))?.len())
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<(), StoreError> {
        let (fd, offset, len) = (self.file.as_raw_fd(), signed(offset), signed(len));
        // SAFETY: the descriptor is open as long as `self.file`; no memory is passed.
        let code = unsafe { libc::fallocate(fd, libc::FALLOC_FL_KEEP_SIZE, offset, len) };
        match self.check(code) {
            // Not every file system can reserve; then writes find out.
            Err(StoreError::Io { source: IoError(libc::EOPNOTSUPP), .. }) => Ok(()),
            result => result,
        }
    }

    fn punch(&self, offset: u64, len: u64) -> Result<(), StoreError> {
        let mode = libc::FALLOC_FL_KEEP_SIZE | libc::FALLOC_FL_PUNCH_HOLE;
        let (fd, start) = (self.file.as_raw_fd(), signed(offset));
        let bytes = signed(len).min(LENGTH_MAX - start);
        if bytes <= 0 {
            return Ok(());
        }
        // SAFETY: the descriptor is open as long as `self.file`; no memory is passed.
        let code = unsafe { libc::fallocate(fd, mode, start, bytes) };
        match self.check(code) {
            Err(StoreError::Io { source: IoError(libc::EOPNOTSUPP), .. }) => self.write_zeros(offset, len),
            result => result,
        }
    }

    fn seek(&self, offset: u64, hole: bool) -> Result<Option<u64>, StoreError> {
        let whence = if hole { libc::SEEK_HOLE } else { libc::SEEK_DATA };
        // SAFETY: the descriptor is open as long as `self.file`; its cursor is used by nothing else.
        let at = unsafe { libc::lseek(self.file.as_raw_fd(), signed(offset), whence) };
        if at >= 0 {
            return Ok(Some(at as u64));
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() == Some(libc::ENXIO) { Ok(None) } else { Err(failed(&self.name, &error)) }
    }

    fn drop_cache(&self, offset: u64, len: u64) {
        self.advise(offset, len, libc::POSIX_FADV_DONTNEED);
    }

    fn prefetch(&self, offset: u64, len: u64) {
        self.advise(offset, len, libc::POSIX_FADV_WILLNEED);
    }

    fn start_writing(&self) -> Result<(), StoreError> {
        self.sync_range(libc::SYNC_FILE_RANGE_WRITE)
    }

    fn wait_written(&self) -> Result<(), StoreError> {
        self.sync_range(libc::SYNC_FILE_RANGE_WAIT_BEFORE)
    }
}

impl RealFile {
    fn check(&self, code: i32) -> Result<(), StoreError> {
        if code == 0 { Ok(()) } else { Err(no_space(&self.name, &io::Error::last_os_error())) }
    }

    fn advise(&self, offset: u64, len: u64, advice: i32) {
        let (fd, offset, len) = (self.file.as_raw_fd(), signed(offset), signed(len));
        // SAFETY: the descriptor is open as long as `self.file`; no memory is passed. The result is
        // advice on advice.
        let _ = unsafe { libc::posix_fadvise(fd, offset, len, advice) };
    }

    /// Over the whole file. An error is that of a write, and no later sync of this descriptor repeats it.
    fn sync_range(&self, flags: u32) -> Result<(), StoreError> {
        // SAFETY: the descriptor is open as long as `self.file`; no memory is passed.
        let code = unsafe { libc::sync_file_range(self.file.as_raw_fd(), 0, 0, flags) };
        if code == 0 {
            return Ok(());
        }
        match io::Error::last_os_error() {
            // Where there is no such call the kernel writes when it likes.
            error if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EOPNOTSUPP)) => Ok(()),
            error => Err(failed(&self.name, &error)),
        }
    }

    fn write_zeros(&self, offset: u64, len: u64) -> Result<(), StoreError> {
        let end = offset.saturating_add(len).min(self.size()?);
        let zeros = [0; 1 << 16];
        let mut at = offset;
        while at < end {
            let part = (end - at).min(zeros.len() as u64);
            self.write_at(&zeros[..part as usize], at)?;
            at += part;
        }
        Ok(())
    }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
