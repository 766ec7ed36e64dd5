//! The hash of node ids.
//!
//! Absent: a seed; the numbers are the rank's, not a stranger's.

use std::hash::{BuildHasher, Hasher};

/// Node ids are mostly consecutive numbers; `mix64` spreads them.
#[derive(Clone, Copy, Default)]
pub(super) struct Mix;

pub(super) struct Mixed(u64);

impl BuildHasher for Mix {
    type Hasher = Mixed;
    fn build_hasher(&self) -> Mixed {
        Mixed(0)
    }
}

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = stdx::hash::mix64(self.0 ^ value);
    }
}
