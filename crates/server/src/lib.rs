//! Crate `server`: the driver of a rank: its mutex, its threads, its stores, its listeners; and what
//! an operator asks of it.
//!
//! One rule orders everything: the rank is stepped under one mutex, by whoever has an input for it,
//! and nothing is read, written or waited for while that mutex is held.
//!
//! Absent: decisions about the file system (crate `mds`), layouts (crate `store`), sockets and HTTP (crate
//! `runtime`).

#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

mod admin;
pub mod backup;
mod driver;
mod health;
pub mod machine;
mod metrics;
mod open;
pub mod parts;
mod perf;
mod port;
mod report;
pub mod server;
mod stores;

pub use server::{Server, ServerError, ServerOptions};
