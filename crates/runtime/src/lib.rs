//! Room `runtime`: moves bytes and time: sockets, framing, clocks, workers, logging, configuration.
//!
//! Absent: decisions about the file system.

pub mod port;
