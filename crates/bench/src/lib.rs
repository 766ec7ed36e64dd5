//! Crate `bench`: performance runs: mdtest through any mount, calls, lists, crowds, sessions and a steady load against a server, (on the server
//! itself) survey, cold and memory runs, the rank stepped alone, and a proxy that delays.
//!
//! Absent: pass marks. A run prints figures; docs/PERFORMANCE.md says what they mean.

pub mod calls;
pub mod cold;
pub mod crowd;
pub mod link;
pub mod list;
pub mod mdtest;
pub mod memory;
pub mod proxy;
pub mod report;
pub mod rm;
pub mod sessions;
pub mod steady;
pub mod step;
pub mod survey;
pub mod workers;

/// What runs fail with.
pub use anyhow::Error;
