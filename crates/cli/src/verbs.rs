//! One module per verb; each takes its arguments and writes its result.
//!
//! Absent: parsing (`args.rs`).

pub mod client;
pub mod config;
pub mod generate;
pub mod load;
pub mod status;
