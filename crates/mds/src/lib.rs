//! Crate `mds`: the rank machine, and the coordinator machine (`coordinator`, which shares nothing with it but notes). Requests of
//! clients become transactions in a journal and records in a cache; what is dirty reaches the store by checkpoints; what others see
//! is durable first.
//!
//! Reading order: `input`, `output`, `rank` (one step), `answer`, `data`, `op`, `view`, `ops/`, `txn`, `apply`, `cache/`,
//! `journal`, `hold`, `recent`, `early`, `load`, `moved`, `warm`, `session`, `performed`, `caps`, `checkpoint`, `replay`, `pace`,
//! `tail`, `former`, `orphans`, `files`, `locks`, `meter`, `status`; `order` is for drivers.
//!
//! Absent on purpose: I/O, clocks, threads, stores, sockets.

#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

mod acl;
mod answer;
mod apply;
mod cache;
mod caps;
mod checkpoint;
pub mod config;
pub mod coordinator;
mod data;
mod early;
mod files;
mod former;
mod hold;
pub mod input;
mod journal;
mod load;
mod locks;
mod meter;
mod moved;
mod op;
mod ops;
pub mod order;
mod orphans;
pub mod output;
mod pace;
mod performed;
mod perm;
mod rank;
mod recent;
mod replay;
mod session;
pub mod status;
mod tail;
#[cfg(test)]
mod tests;
mod txn;
mod view;
mod warm;

pub use config::{Prefetch, RankConfig, State};
pub use meter::{OpCount, TrafficStatus};
pub use op::Waits;
pub use rank::Rank;
pub use warm::{WarmState, WarmStatus};
