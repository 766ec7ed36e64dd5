//! Operations on file data, and their answers.
//!
//! Absent: how content travels (`payload.rs`), why a store refuses (`storeio.rs`).

use super::payload::{Buffer, Payload};
use crate::ids::FileId;

/// The cut a data operation runs under: a file's last truncation. An object last written under an
/// older `seq` is first cut to `size`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    pub seq: u32,
    pub size: u64,
}

/// One operation on file data. Offsets are bytes in the file; the data store splits into blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataOp {
    Write {
        file: FileId,
        cut: Cut,
        offset: u64,
        data: Payload,
    },
    /// Exactly `len` bytes from `offset`; zeros where never written.
    Read {
        file: FileId,
        cut: Cut,
        offset: u64,
        len: u32,
        /// Filled instead of memory of its own where it is there and long enough.
        into: Option<Buffer>,
    },
    /// Physically drop everything beyond `cut.size`.
    Truncate {
        file: FileId,
        cut: Cut,
    },
    /// Zeros in the range; with `punch`, free the space.
    Zero {
        file: FileId,
        cut: Cut,
        offset: u64,
        len: u64,
        punch: bool,
    },
    /// Reserve space so that later writes in the range cannot fail with ENOSPC.
    Allocate {
        file: FileId,
        cut: Cut,
        offset: u64,
        len: u64,
    },
    Copy {
        source: FileId,
        source_cut: Cut,
        source_offset: u64,
        target: FileId,
        target_cut: Cut,
        target_offset: u64,
        len: u64,
    },
    /// The first offset >= `offset` (and < `size`) that is data, or hole.
    Seek {
        file: FileId,
        cut: Cut,
        offset: u64,
        size: u64,
        hole: bool,
    },
    /// Make durable what was written. A small file may come back as `Redo` instead: the caller then
    /// makes it durable in the journal.
    Sync {
        file: FileId,
    },
    /// Everything written before this operation, of all files.
    SyncAll,
    /// At replay: the content of a small file, unless the store already has something newer.
    Redo {
        file: FileId,
        truncate_seq: u32,
        write_seq: u64,
        data: Vec<u8>,
    },
    Remove {
        file: FileId,
    },
    /// Space and file counts of the store.
    StatFs,
}

impl DataOp {
    /// Whether it leaves everything as it is: that goes on after a failed write or sync, and takes no space.
    #[must_use]
    pub const fn only_reads(&self) -> bool {
        match self {
            Self::Read { .. } | Self::Seek { .. } | Self::StatFs => true,
            Self::Write { .. }
            | Self::Truncate { .. }
            | Self::Zero { .. }
            | Self::Allocate { .. }
            | Self::Copy { .. }
            | Self::Sync { .. }
            | Self::SyncAll
            | Self::Redo { .. }
            | Self::Remove { .. } => false,
        }
    }

    /// Whether it changes what a file is. A sync only makes durable what it is already.
    #[must_use]
    pub const fn changes(&self) -> bool {
        !self.only_reads() && !matches!(self, Self::Sync { .. } | Self::SyncAll)
    }

    /// Whether it frees space or makes data durable: such an operation may use what is kept back for a full disk.
    #[must_use]
    pub const fn may_use_ballast(&self) -> bool {
        matches!(
            self,
            Self::Remove { .. }
                | Self::Truncate { .. }
                | Self::Sync { .. }
                | Self::SyncAll
                | Self::Redo { .. }
        )
    }
}

/// Space of a store in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    pub total: u64,
    pub free: u64,
    /// What an unprivileged user may still use.
    pub available: u64,
}

/// The answer to a `DataOp`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataDone {
    /// Bytes written, zeroed, or copied.
    Count(u64),
    Bytes(Payload),
    /// `None`: no such data (ENXIO).
    Offset(Option<u64>),
    Done,
    /// For Sync: journal this content; the store keeps it until the next `SyncAll` has returned.
    Redo {
        truncate_seq: u32,
        write_seq: u64,
        data: Vec<u8>,
    },
    Space(Space),
}
