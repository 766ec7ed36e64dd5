//! Interrupts that overtook the request they interrupt.
//! The kernel sends INTERRUPT over /dev/fuse and the request perhaps over a ring, or to another reader, so
//! either may be handled first. Absent: knowing which requests are pending; handlers do.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

/// More early interrupts than this at once lose the oldest: it then acts like an interrupt of a request
/// already answered, which is what nearly all of these are.
const BOOK_LENGTH: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct Interrupts {
    count: AtomicUsize,
    early: Mutex<VecDeque<u64>>,
}

impl Interrupts {
    /// Notes an interrupt the handler could not place.
    pub(crate) fn remember(&self, unique: u64) {
        let mut early = self.early.lock().unwrap_or_else(PoisonError::into_inner);
        if early.contains(&unique) {
            return;
        }
        if early.len() == BOOK_LENGTH {
            early.pop_front();
        }
        early.push_back(unique);
        self.count.store(early.len(), Ordering::Release);
    }

    /// Whether an interrupt of this request is noted.
    pub(crate) fn holds(&self, unique: u64) -> bool {
        self.early.lock().unwrap_or_else(PoisonError::into_inner).contains(&unique)
    }

    /// Whether this request was interrupted before it was handled; true once.
    pub(crate) fn take(&self, unique: u64) -> bool {
        if self.count.load(Ordering::Acquire) == 0 {
            return false;
        }
        let mut early = self.early.lock().unwrap_or_else(PoisonError::into_inner);
        let found = early.iter().position(|&noted| noted == unique);
        if let Some(position) = found {
            early.remove(position);
            self.count.store(early.len(), Ordering::Release);
        }
        found.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_early_interrupt_is_found_once() {
        let book = Interrupts::default();
        assert!(!book.take(7));
        book.remember(7);
        assert!(!book.take(8));
        assert!(book.take(7));
        assert!(!book.take(7));
        (0..1000).for_each(|unique| book.remember(unique));
        assert!(!book.take(0) && book.take(999));
    }
}
