//! Crate `fuzz`: feeds mutated bytes to everything that reads bytes from outside (messages, frames, journal, records,
//! the kernel's requests, damaged files, texts) and holds it to its promises: no panic, no hang, bounded memory,
//! round trips, and never another file's bytes.
//!
//! Absent: coverage guidance (stable Rust only); inputs are steered by the variants and error kinds they reach.

pub mod class;
pub mod corpus;
pub mod damage;
pub mod engine;
pub mod memory;
pub mod mutate;
pub mod repair;
pub mod target;
pub mod targets;

pub use target::{Target, Verdict};
pub use targets::{ALL, find};
