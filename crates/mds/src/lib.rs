//! Crate `mds`: the rank machine, and the coordinator machine (`coordinator`). Of the coordinator a rank has no more than what it may
//! ask of it (`Ask`) and how many loads a beacon has. Requests of clients become transactions in a journal and records in a cache;
//! what is dirty reaches the store by checkpoints; what others see is durable first.
//!
//! Reading order: `input`, `output`, `rank` (one step), `answer`, `data`, `op`, `view`, `ops/`, `perm`, `acl`, `txn`, `apply`, `cache/`,
//! `journal`, `hold`, `recent`, `early`, `load`, `moved`, `warm`, `session`, `limits`, `performed`, `caps`, `checkpoint`, `redone`,
//! `replay`, `pace`, `tail`, `former`, `unheard`, `orphans`, `files`, `locks`, `meter`, `status`; `order` is for drivers.
//!
//! Several ranks: `territory` (what is whose), `units`, `news` (maps that are told), `search`, `peers`, `replicas`, `totals`, `lent`;
//! `moves`, `holders`, `spreads`, `placing`, `heat`, `census`, `leave`; `transactions/`.
//!
//! Absent on purpose: I/O, clocks, threads, stores, sockets.

#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

mod acl;
mod answer;
mod apply;
mod cache;
mod caps;
mod census;
mod checkpoint;
pub mod config;
pub mod coordinator;
mod data;
mod early;
mod files;
mod former;
mod heat;
mod hold;
mod holders;
pub mod input;
mod journal;
mod leave;
mod lent;
mod limits;
mod load;
mod locks;
mod meter;
mod moved;
mod moves;
mod news;
mod op;
mod ops;
pub mod order;
mod orphans;
pub mod output;
mod pace;
mod peers;
mod performed;
mod perm;
mod placing;
mod rank;
mod recent;
mod redone;
mod replay;
mod replicas;
mod search;
mod session;
mod spreads;
pub mod status;
mod tail;
mod territory;
#[cfg(test)]
mod tests;
mod totals;
mod transactions;
mod txn;
mod unheard;
mod units;
mod view;
mod warm;

pub use config::{Prefetch, RankConfig, State};
pub use heat::{Load, UnitLoad};
pub use meter::{OpCount, TrafficStatus};
pub use moves::{MoveGoal, MoveStatus};
pub use op::Waits;
pub use rank::Rank;
pub use warm::{WarmState, WarmStatus};
