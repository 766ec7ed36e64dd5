//! Crate `tidy`: style and structure as tests. `cargo test -p tidy` walks the repository and names each
//! place that breaks a rule of CONTRIBUTING.md.
//!
//! Absent: anything another crate could use.

pub mod documents;
pub mod repo;
pub mod rules;
pub mod source;
