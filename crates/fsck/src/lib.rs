//! Room `fsck`: offline check and repair of a data folder, with decoders of its own, written from docs/FORMAT.md, so that a
//! mistake in the server's decoders cannot hide itself.
//!
//! Absent on purpose: any use of `proto` or of the server's stores.

mod bytes;
mod finding;
mod folder;
mod journal;
mod record;
mod tables;
mod tree;

pub use finding::{Finding, Kind, Report};
pub use folder::FsckError;

use std::path::Path;

/// Checks the data folder `dir`, which no server may have open. Memory grows with the number of inodes (about 40 bytes each)
/// and with the part of the journal that is not checkpointed.
///
/// # Errors
/// `FsckError` when the folder cannot be examined at all (absent, in use, unreadable).
pub fn check(dir: &Path) -> Result<Report, FsckError> {
    let mut report = Report::default();
    let folder = folder::Folder::open(dir, &mut report)?;
    let tables = tables::Tables::open(&folder, &mut report)?;
    let checkpoint = tables.checkpoint(&mut report);
    let overlay = journal::read_tail(&folder, checkpoint, &mut report)?;
    tree::check(&folder, &tables, &overlay, &mut report);
    Ok(report)
}
