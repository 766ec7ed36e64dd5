//! Seeded defects: the simulator's proof that its checkers can fail.
//!
//! `mutant!("name")` is `false` in every shipped build: without the cargo feature `mutants` it
//! is a constant the compiler removes. With it, one defect at a time is switched on per thread.
//!
//! Absent: the defects themselves, which stand where they would be made.

#[cfg(feature = "mutants")]
mod on {
    use std::cell::Cell;

    thread_local! {
        static ACTIVE: Cell<Option<&'static str>> = const { Cell::new(None) };
    }

    /// Switches the named defect on for this thread, `None` for the correct program.
    pub fn activate(name: Option<&'static str>) {
        ACTIVE.with(|active| active.set(name));
    }

    /// Whether the named defect is on for this thread.
    #[must_use]
    pub fn is_active(name: &str) -> bool {
        ACTIVE.with(|active| active.get() == Some(name))
    }
}

#[cfg(feature = "mutants")]
pub use on::{activate, is_active};

/// Whether a defect is on: always `false` in a shipped build.
#[cfg(not(feature = "mutants"))]
#[must_use]
#[inline(always)]
pub const fn is_active(_name: &str) -> bool {
    false
}

/// `mutant!("no_fsync")`: true only in the simulator's self-test with that defect switched on.
#[macro_export]
macro_rules! mutant {
    ($name:literal) => {
        $crate::mutant::is_active($name)
    };
}
