//! Crate `server`: the driver of a rank: its mutex, its threads, its stores, its listeners; and what
//! an operator asks of it; the coordinator and the slots that begin and end lives of the rank.
//!
//! One rule orders everything: the rank is stepped under one mutex, by whoever has an input for it,
//! and nothing is read, written or waited for while that mutex is held.
//!
//! Absent: decisions about the file system (crate `mds`), layouts (crate `store`), sockets and HTTP (crate
//! `runtime`).

#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

mod admin;
pub mod backup;
mod cluster;
mod dirfrag;
mod driver;
mod fs;
mod health;
mod life;
pub mod machine;
mod metrics;
mod open;
pub mod parts;
mod perf;
mod port;
mod report;
pub mod server;
mod setting;
mod several;
mod stage;
mod stores;
mod subtree;
mod tell;

pub use cluster::RANK_SLOTS_MAX;
pub use server::{Server, ServerError, ServerOptions};
