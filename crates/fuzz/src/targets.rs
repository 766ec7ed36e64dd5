//! The list of targets.
//!
//! Absent: what each does (the modules).

mod cluster;
mod data_recovery;
mod journal;
mod journal_recovery;
mod kernel;
mod messages;
mod rank_session;
mod rank_world;
mod records;
mod texts;

use crate::Target;

/// Every target, cheap ones first.
pub const ALL: &[Target] = &[
    messages::CLIENT,
    messages::SERVER,
    messages::FRAME,
    journal::MUTATION,
    journal::MUTATIONS,
    journal::ENTRY,
    journal::HIGHEST_MARK,
    records::INODE,
    records::DENTRY,
    records::FRAG_HEADER,
    records::FS_RECORD,
    records::STORE_KEY,
    records::BACKPTR,
    records::SYSTEM,
    records::REGISTRY,
    cluster::MAP,
    cluster::DELTA,
    kernel::REQUEST,
    texts::MOUNT_OPTIONS,
    texts::ADDRESS,
    journal_recovery::TARGET,
    data_recovery::TARGET,
    rank_session::TARGET,
];

/// The target of this name.
#[must_use]
pub fn find(name: &str) -> Option<Target> {
    ALL.iter().find(|target| target.name == name).copied()
}
