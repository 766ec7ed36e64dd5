//! Room `client`: the client machine. In this version it caches nothing but what a sole client may.
//!
//! Absent on purpose: I/O, clocks, threads; capabilities and asynchronous operations (next version).

mod config;
mod held;
pub mod input;
mod machine;
pub mod output;
mod ranges;
mod window;

pub use config::{ClientConfig, Limits};
pub use input::{CallId, Input, Ttl, Waiting};
pub use machine::Client;
pub use output::Output;
