//! Room `bench`: performance runs: mdtest through any mount, lists against a server, and (on the server itself) survey, cold and memory runs.
//!
//! Absent: pass marks. A run prints figures; docs/PERFORMANCE.md says what they mean.

pub mod cold;
pub mod link;
pub mod list;
pub mod mdtest;
pub mod memory;
pub mod report;
pub mod rm;
pub mod survey;
