//! Room `mds`: the rank machine.
//!
//! Absent on purpose: I/O, clocks, threads, stores, sockets; a coordinator (it comes with several ranks).

pub mod input;
pub mod output;
