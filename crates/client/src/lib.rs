//! Room `client`: the client machine. It keeps no names or attributes itself: it says what its edge may keep.
//!
//! Absent on purpose: I/O, clocks, threads; asynchronous operations (a later version).

mod config;
mod held;
pub mod input;
mod leave;
mod machine;
pub mod output;
mod ranges;
mod window;

pub use config::{ClientConfig, Limits};
pub use input::{CallId, Input, Waiting};
pub use leave::Leave;
pub use machine::Client;
pub use output::Output;
