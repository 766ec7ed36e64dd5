//! Replacing a journal that a start would refuse by an empty one that goes on behind it.
//!
//! Absent: saving what cannot be read.

use super::Journal;
use super::segment::encode_header;
use crate::folder::{Folder, FsckError, io_error, sync_dir, write_whole};
use std::io::ErrorKind;

/// A segment before it has its name.
const SEGMENT_NEW: &str = "new";

impl Journal {
    /// Makes an empty segment behind all there is. Returns where it starts: the checkpoint must be set
    /// to that before `remove_old`.
    pub(crate) fn begin_anew(&self, folder: &Folder) -> Result<u64, FsckError> {
        let place = folder.journal_of(self.rank);
        std::fs::create_dir_all(&place).map_err(io_error(&place))?;
        if self.rank > 0 {
            sync_dir(&folder.journal)?;
        }
        // Positions never go back, not even behind what could not be read.
        let start = self.beyond.max(self.end);
        let sequence = self.sequence + 1;
        let header = encode_header(self.rank, self.incarnation, sequence, start);
        write_whole(&place, &format!("{sequence:08x}"), SEGMENT_NEW, &header)?;
        Ok(start)
    }

    /// Removes the files of the old journal.
    pub(crate) fn remove_old(&self, folder: &Folder) -> Result<(), FsckError> {
        for path in &self.files {
            match std::fs::remove_file(path) {
                // One that a crash left under the name for new ones: it was written over and has become the segment.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                removed => removed.map_err(io_error(path))?,
            }
        }
        sync_dir(&folder.journal_of(self.rank))
    }
}
