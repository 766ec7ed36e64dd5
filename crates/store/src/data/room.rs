//! A full disk: the ballast was given up for the journal and the metadata, and data must not take what it left.
//!
//! It did once: the next segment of small files reserved exactly the 64 MiB that had just become free, the journal found no
//! room for the unlinks that would have made some, and the rank was lost.
//!
//! Absent: when that is the case (the driver says so).

use super::DataFiles;
use crate::disk::Disk;
use proto::storeio::{DataOp, StoreError};
use std::sync::atomic::Ordering;

/// What must stay free beyond what is about to be taken, as parts of a segment: less for the later steps of giving space back,
/// so that none is begun that the next cannot end.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reserve {
    /// When compaction chooses a segment.
    BeforeMove = 4,
    /// When it writes.
    Moving = 8,
    /// When records go to a segment, as they must before the journal can be trimmed, or an index is written.
    Little = 16,
}

impl<D: Disk> DataFiles<D> {
    /// While `keep`, space is taken only for what frees some or makes data durable, nothing is reserved ahead, and
    /// some is left over.
    pub fn keep_room(&self, keep: bool) {
        self.room_kept.store(keep, Ordering::Release);
    }

    pub(super) fn is_room_kept(&self) -> bool {
        self.room_kept.load(Ordering::Acquire)
    }

    /// Refuses new data while room is kept: of writes under way when the ballast went, a few would take all of it.
    pub(super) fn admit(&self, op: &DataOp) -> Result<(), StoreError> {
        match op {
            DataOp::Write { .. } | DataOp::Allocate { .. } | DataOp::Copy { .. } => {
                if self.is_room_kept() {
                    Err(StoreError::NoSpace)
                } else {
                    Ok(())
                }
            }
            DataOp::Read { .. }
            | DataOp::Truncate { .. }
            | DataOp::Zero { .. }
            | DataOp::Seek { .. }
            | DataOp::Sync { .. }
            | DataOp::SyncAll
            | DataOp::Redo { .. }
            | DataOp::Remove { .. }
            | DataOp::StatFs => Ok(()),
        }
    }

    /// `NoSpace` where room is kept and taking `bytes` would not leave enough.
    pub(super) fn leave_room(&self, bytes: u64, reserve: Reserve) -> Result<(), StoreError> {
        if bytes > self.free_to_take(reserve)? { Err(StoreError::NoSpace) } else { Ok(()) }
    }

    /// `NoSpace` where taking `bytes` would leave no room for an index, which is what lets go of dead segments.
    pub(super) fn leave_index(&self, bytes: u64) -> Result<(), StoreError> {
        const PAGE: u64 = 4096;
        let little = (self.limits.segment_bytes / Reserve::Little as u64).max(PAGE);
        let needed = bytes + self.index_bytes().next_multiple_of(PAGE) + little;
        if self.disk.space()?.available < needed { Err(StoreError::NoSpace) } else { Ok(()) }
    }

    /// Bytes of live records that compaction may copy before an index that lets go of the originals is written.
    pub(super) fn movable_bytes(&self) -> u64 {
        self.free_to_take(Reserve::BeforeMove).map_or(0, |bytes| bytes.saturating_sub(self.index_bytes()))
    }

    fn free_to_take(&self, reserve: Reserve) -> Result<u64, StoreError> {
        if !self.is_room_kept() {
            return Ok(u64::MAX);
        }
        let left = self.limits.segment_bytes / reserve as u64;
        Ok(self.disk.space()?.available.saturating_sub(left))
    }
}
