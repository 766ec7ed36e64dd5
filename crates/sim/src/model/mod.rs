//! What must be true: the reference tree, file bytes, records, and the judge that follows a rank.
//!
//! Absent: the world that runs the rank.

pub mod bytes;
pub mod compare;
pub mod judge;
pub mod locks;
pub mod permission;
pub mod records;
pub mod rules;
pub mod tree;
