//! Crate `lossydisk`: a FUSE file system that passes through to a folder and, when told to cut the power, takes back what was not
//! synced: any subset of unsynced 512-byte sectors, unsynced lengths, and the latest folder changes that no folder sync covers.
//!
//! It tests the embedded engine, LMDB included, on a real mount. Absent: renaming folders, hard links, xattrs,
//! device nodes; the embedded engine uses none, and a request for one is refused.

mod disk;
mod ledger;
mod nodes;

pub use disk::LossyDisk;
pub use ledger::Cut;
