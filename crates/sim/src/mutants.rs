//! The seeded defects the simulator must catch, by room. A name here is the name of a
//! `stdx::mutant!` in that room; a test of the workspace holds the two equal.
//!
//! Absent: defects outside of what the simulator runs (driver, mount, kernel adapter).

/// Name of the defect and the room it is in.
pub const MUTANTS: &[(&str, &str)] = &[
    ("journal_no_sync", "store"),
    ("journal_no_sync_before_roll", "store"),
];
