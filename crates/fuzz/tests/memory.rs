//! The look at the memory, in a process of its own: other tests would see what this one takes.

use fuzz::memory::{GROWTH_MAX, peak};

#[test]
fn an_untouched_allocation_is_seen() {
    let before = peak();
    let untouched = Vec::<u8>::with_capacity(2 * GROWTH_MAX as usize);
    assert!(peak() - before > GROWTH_MAX, "{}", untouched.capacity());
}
