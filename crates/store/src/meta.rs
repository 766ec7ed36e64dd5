//! The seam of metadata stores: keyed reads, range scans, batches that are atomic per shard.
//!
//! Absent: the meaning of values. Every stored value carries a checksum over key and value, which the
//! store adds and checks; a record that does not match is `Damaged`, never returned.

use proto::storeio::{LoadRequest, Loaded, StoreBatch, StoreError};

/// A metadata store. All methods may block; the rank's driver calls them from store workers.
pub trait MetaStore: Send + Sync {
    /// Answers each request, in order. One damaged record fails its request only.
    fn load(&self, requests: &[LoadRequest]) -> Vec<Result<Loaded, StoreError>>;

    /// Applies the batches and makes them durable before returning. Each batch is atomic; a crash may
    /// leave some batches applied and others not. A refused guard fails that call before anything of
    /// its batch is applied.
    ///
    /// # Errors
    /// `NoSpace` (nothing of the failing batch is applied; the store stays usable), `Guard`, `Io`.
    fn apply(&self, batches: &[StoreBatch]) -> Result<(), StoreError>;
}
