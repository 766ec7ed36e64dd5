//! Crate `client`: the client machine, for one rank and for several. It says what its edge may keep of answers, and keeps what it needs to perform operations by
//! itself in directories that are delegated to it.
//!
//! Absent: I/O, clocks, threads.

#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

mod changes;
mod config;
mod delegations;
mod held;
pub mod input;
mod kept;
mod machine;
mod made;
mod names;
mod negatives;
mod newborns;
mod numbers;
pub mod output;
mod ranges;
mod ranktime;
mod router;
mod unsynced;
mod uses;
mod validity;
mod window;

pub use config::{ClientConfig, Limits};
pub use input::{CallId, Input, Waiting};
pub use machine::Client;
pub use output::Output;
pub use router::Router;
pub use validity::Validity;
