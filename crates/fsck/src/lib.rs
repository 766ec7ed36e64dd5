//! Crate `fsck`: offline check and repair of a data folder, with decoders of its own, written from docs/FORMAT.md, so that a
//! mistake in the server's decoders cannot hide itself.
//!
//! Absent: any use of `proto` or of the server's stores.

#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

mod bytes;
mod cluster;
mod cross;
mod data;
mod edit;
mod editor;
mod finding;
mod fix;
mod folder;
mod journal;
mod pages;
mod record;
mod repair;
mod rewrite;
mod system;
mod tables;
mod tree;

pub use finding::{Finding, Kind, Report};
pub use folder::FsckError;

use std::path::Path;

/// What a repair may do beyond what is safe.
#[derive(Clone, Copy, Debug, Default)]
pub struct RepairOptions {
    /// Give up what a damaged journal holds from the damage on: acknowledged operations are lost.
    pub cut_damaged_journal: bool,
}

/// Checks the data folder `dir`, which no server may have open. Changes nothing but the lock file and, as
/// a server does, the length of environment files. Memory grows with the number of inodes (about 100 bytes
/// each, 100 more for each packed file) and with the part of the journal that is not checkpointed.
///
/// # Errors
/// `FsckError` when the folder cannot be examined at all (absent, in use, unreadable); `Undecided` when it can be judged in part only.
pub fn check(dir: &Path) -> Result<Report, FsckError> {
    let mut folder = folder::Folder::open(dir)?;
    let tables = tables::Tables::new(&folder);
    repair::examine(&mut folder, &tables)?.judged(dir)
}

/// Checks the folder and puts right what can be: the report says what was (`fixed`), what a crash had left and is gone
/// (`tidied`) and what is left (`findings`). A folder without faults and notes is not changed. What is taken out of the
/// metadata is kept as text in a file `fsck-removed-N`; inodes without a name go to `/lost+found`.
///
/// # Errors
/// As `check`; `JournalDamaged` unless the options allow for the loss, `EnvironmentUnreadable` when an environment
/// cannot be read, `Store` and `Io` when writing fails. With `Undecided` what keeps a server from ending the transactions was put
/// right, as far as that can be done before they are over.
pub fn repair(dir: &Path, options: &RepairOptions) -> Result<Report, FsckError> {
    repair::repair(dir, options)
}
