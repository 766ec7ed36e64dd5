//! Copies between files inside the store, 1 MiB at a time; holes stay holes.
//!
//! Absent: a snapshot of the source; a writer to it meanwhile waits for the copy.

use super::DataFiles;
use super::small;
use crate::disk::Disk;
use proto::FileId;
use proto::storeio::{Cut, StoreError};

const PIECE_BYTES: u64 = 1 << 20;

/// One end of a copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Side {
    pub(super) file: FileId,
    pub(super) cut: Cut,
    pub(super) offset: u64,
}

impl<D: Disk> DataFiles<D> {
    /// Copies `len` bytes; fewer only when the disk is full.
    pub(super) fn copy(&self, from: Side, to: Side, len: u64) -> Result<u64, StoreError> {
        super::end_of(from.offset, len)?;
        super::end_of(to.offset, len)?;
        let _guards = self.locks.lock_two(from.file, to.file);
        let mut buffer = vec![0; len.min(PIECE_BYTES) as usize];
        let mut done = 0;
        while done < len {
            let (source, target) = (from.offset + done, to.offset + done);
            let data = self.next(from, source, from.offset + len, false)?;
            if data > source {
                self.zero_locked(to.file, to.cut, target, data - source, true)?;
                done += data - source;
                continue;
            }
            let hole = self.next(from, source, from.offset + len, true)?;
            let piece = &mut buffer[..(hole - source).min(PIECE_BYTES) as usize];
            self.read_locked(from.file, from.cut, source, piece)?;
            match self.write_locked(to.file, to.cut, target, piece) {
                Ok(count) => done += count,
                Err(StoreError::NoSpace) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// The first data or hole at or after `at`, at most `end`.
    fn next(&self, from: Side, at: u64, end: u64, hole: bool) -> Result<u64, StoreError> {
        let found = if self.is_large(from.file) {
            self.seek_large(from.file, from.cut, at, end, hole)?
        } else {
            small::seek(self.small_content(from.file, from.cut)?.bytes(), at, hole)
        };
        Ok(found.map_or(end, |found| found.min(end)))
    }
}
