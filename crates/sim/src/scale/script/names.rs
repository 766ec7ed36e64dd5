//! Names of files that callers make: none is generated, and no two are equal.
//!
//! Absent: names of what is there from the beginning (`layout.rs`).

use super::name;
use proto::Name;

/// A caller's `number`th file. As long as those of mdtest.
pub(super) fn made(caller: u64, number: u64) -> Name {
    let mut bytes = *b"file.00000.0000000";
    for (digits, mut left) in [(5..10, caller), (11..18, number)] {
        for digit in bytes[digits].iter_mut().rev() {
            *digit = b"0123456789abcdef"[(left % 16) as usize];
            left /= 16;
        }
    }
    name(&bytes)
}
