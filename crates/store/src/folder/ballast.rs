//! Space kept aside, so that on a full disk unlink and checkpoints still find some.
//!
//! Absent: the decision when a disk counts as full.

use crate::disk_real::{no_space, space_of, sync_path};
use proto::storeio::StoreError;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Size of one ballast file.
pub const BALLAST_BYTES: u64 = 64 << 20;
const NAME: &str = "pando.ballast";

/// One file on each device that metadata or journal lie on.
#[derive(Clone, Debug)]
pub struct Ballast {
    files: Vec<PathBuf>,
}

impl Ballast {
    pub(super) fn new(roots: &[PathBuf]) -> Self {
        Self { files: roots.iter().map(|root| root.join(NAME)).collect() }
    }

    /// Whether all of it is in place.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.files.iter().all(|file| fs::metadata(file).is_ok_and(|meta| meta.len() == BALLAST_BYTES))
    }

    /// Gives the space to whoever needs it now. Returns whether there was any.
    ///
    /// # Errors
    /// `Io`.
    pub fn release(&self) -> Result<bool, StoreError> {
        let mut released = false;
        for file in &self.files {
            match fs::remove_file(file) {
                Ok(()) => released = true,
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(no_space(NAME, &error)),
            }
            // Only then does the file system count the blocks as free.
            if let Some(folder) = file.parent() {
                sync_path(folder).map_err(|error| no_space(NAME, &error))?;
            }
        }
        Ok(released)
    }

    /// Puts the ballast back where its size and a little more is free. Returns whether all of it is in place.
    ///
    /// # Errors
    /// `Io`.
    pub fn rebuild(&self) -> Result<bool, StoreError> {
        for path in &self.files {
            if fs::metadata(path).is_ok_and(|meta| meta.len() == BALLAST_BYTES) {
                continue;
            }
            let Some(folder) = path.parent() else { continue };
            let space = space_of(folder).map_err(|error| no_space(NAME, &error))?;
            if space.available < wanted(space.total) {
                return Ok(false);
            }
            if let Err(error) = fill(path) {
                let removed = fs::remove_file(path);
                let error = no_space(NAME, &error);
                let full = matches!(error, StoreError::NoSpace);
                return if full {
                    removed.map(|()| false).map_err(|error| no_space(NAME, &error))
                } else {
                    Err(error)
                };
            }
        }
        Ok(true)
    }
}

/// What must be free: some room is left behind, so that the next write does not take the ballast again; on a small
/// device little, because it has no more.
const fn wanted(total: u64) -> u64 {
    let room = total / 16;
    BALLAST_BYTES + if room < BALLAST_BYTES { room } else { BALLAST_BYTES }
}

/// Makes the file and its blocks.
fn fill(path: &PathBuf) -> io::Result<()> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
    let bytes = i64::try_from(BALLAST_BYTES).unwrap_or(i64::MAX);
    // SAFETY: the descriptor is open as long as `file`; no memory is passed.
    if unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, bytes) } != 0 {
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EOPNOTSUPP) {
            return Err(error);
        }
        write_zeros(&file)?;
    }
    file.sync_all()
}

fn write_zeros(file: &File) -> io::Result<()> {
    let zeros = vec![0; 1 << 20];
    let mut at = 0;
    while at < BALLAST_BYTES {
        file.write_all_at(&zeros, at)?;
        at += zeros.len() as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_device_gets_its_ballast_back() {
        const MIB: u64 = 1 << 20;
        assert_eq!(wanted(4096 * MIB), 128 * MIB);
        assert_eq!(wanted(320 * MIB), 84 * MIB);
    }
}
