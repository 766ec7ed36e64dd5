//! Room `client`: the client machine. In this version it caches nothing but what a sole client may.
//!
//! Absent on purpose: I/O, clocks, threads; capabilities and asynchronous operations (next version).

pub mod input;
pub mod output;
