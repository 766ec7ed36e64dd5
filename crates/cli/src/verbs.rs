//! One module per verb; each takes its arguments and writes its result.
//!
//! Absent: parsing (`args.rs`).

pub mod backup;
pub mod bench;
pub mod cache;
pub mod client;
pub mod compact;
pub mod config;
pub mod demo;
pub mod dirfrag;
pub mod format;
pub mod fs;
pub mod fsck;
pub mod generate;
pub mod health;
pub mod journal;
pub mod load;
pub mod mds;
pub mod mount;
pub mod mounted;
pub mod ops;
pub mod perf;
pub mod serve;
pub mod stats;
pub mod status;
pub mod subtree;
pub mod top;
pub mod umount;
pub mod warmup;
