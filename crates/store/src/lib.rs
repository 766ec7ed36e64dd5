//! Crate `store`: what keeps bytes. Seams (`disk`, `meta`), the journal and data files written on the
//! `Disk` seam (so that the simulator runs the same code), a memory store with faults, and behind the
//! cargo feature `embedded` the LMDB metadata store and the real disk.
//!
//! Absent: meaning. A store never decodes a record's value; it keeps keys, values and checksums.

#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

pub mod data;
pub mod disk;
#[cfg(feature = "embedded")]
pub mod disk_real;
pub mod disk_sim;
pub mod fence;
#[cfg(feature = "embedded")]
pub mod folder;
pub mod initial;
pub mod journal_files;
pub mod meta;
#[cfg(feature = "embedded")]
pub mod meta_lmdb;
pub mod meta_memory;
pub mod registry;

mod checked;
#[cfg(test)]
mod conformance;

pub use disk_sim::SimDisk;
pub use meta_memory::MemoryMeta;
