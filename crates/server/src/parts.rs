//! What a driver needs of its stores. The stores of crate `store` implement it over any `Disk`.
//!
//! Absent: layouts.

use proto::storeio::{DataDone, DataOp, StoreError};
use proto::{Incarnation, Position};
use std::sync::Arc;
use stdx::Mono;
use store::meta::MetaStore;

/// The journal's files: one thread at a time appends; others may sync what was appended, trim and prepare meanwhile.
pub trait JournalIo: Send + Sync {
    /// Hands over whole entries from `from` on, piece by piece, and returns where the next append
    /// starts.
    ///
    /// # Errors
    /// `Damaged`, `Io`.
    fn read(&self, from: Position, piece: &mut dyn FnMut(Position, &[u8])) -> Result<Position, StoreError>;

    /// Writes entries at the end of the stream.
    ///
    /// # Errors
    /// `NoSpace` (may be tried again), `Io`, `Poisoned`.
    fn append(&self, position: Position, entries: &[u8]) -> Result<(), StoreError>;

    /// Makes everything appended durable; returns the end of it.
    ///
    /// # Errors
    /// `Io`, `Poisoned`.
    fn sync(&self) -> Result<Position, StoreError>;

    /// Recycles segments before this position.
    ///
    /// # Errors
    /// `Io`.
    fn trim(&self, before: Position) -> Result<(), StoreError>;

    /// Makes one spare segment if there are too few; returns whether it did.
    ///
    /// # Errors
    /// `NoSpace`, `Io`.
    fn prepare(&self) -> Result<bool, StoreError>;

    /// Bytes not trimmed.
    fn bytes(&self) -> u64;

    /// The life of the rank that wrote the newest segment, before this one begins its own; 0: there is none.
    fn former(&self) -> Incarnation;
}

/// The data store. Used by many threads.
pub trait DataIo: Send + Sync {
    /// Carries out one operation; may block.
    ///
    /// # Errors
    /// Those of the operation.
    fn run(&self, op: &DataOp) -> Result<DataDone, StoreError>;

    /// Carries the operation out if that is only a matter of memory.
    fn run_quick(&self, op: &DataOp) -> Option<Result<DataDone, StoreError>>;

    /// Does a bounded piece of what nobody waits for (flushing ahead, compaction); `false` when
    /// there is nothing to do.
    ///
    /// # Errors
    /// `NoSpace`: nothing could be done now; `Io`, `Damaged`, `Poisoned`.
    fn background(&self, now: Mono) -> Result<bool, StoreError>;

    /// Hands to the disk what was in memory at the last call already.
    ///
    /// # Errors
    /// As `background`.
    fn flush_aged(&self) -> Result<(), StoreError>;

    /// While `keep`, what is free is for the journal and the metadata: new data is refused and nothing reserved ahead.
    fn keep_room(&self, _keep: bool) {}
}

/// Space kept back for a full disk.
pub trait Ballast: Send + Sync {
    /// Gives the space back to the disk; returns how many bytes, 0 when it was given before.
    fn release(&self) -> u64;

    /// Whether all of it is in place.
    fn is_held(&self) -> bool;

    /// Takes the space if it is not held and the disk has enough; `true` when it was released
    /// before and is held again.
    fn restore(&self) -> bool;
}

/// Everything a driver is built from.
pub struct Parts {
    pub rank: Box<dyn crate::machine::RankMachine>,
    pub journal: Arc<dyn JournalIo>,
    pub meta: Arc<dyn MetaStore>,
    pub data: Arc<dyn DataIo>,
    pub ballast: Option<Arc<dyn Ballast>>,
}
