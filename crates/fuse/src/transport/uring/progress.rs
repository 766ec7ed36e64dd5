//! How many answers a ring thread was given, and how many of these the kernel has.
//!
//! An answer waits here while its ring thread handles the rest of what came together with its request, and while that thread has no
//! CPU. Who takes back what an answer says must know when it has left.
//! Absent: which answers these are.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

/// Counts only grow.
#[derive(Default)]
pub(super) struct Progress {
    /// Answers given on the ring thread, the only one that writes this; no other pays for it.
    own: AtomicU64,
    /// Answers given elsewhere; written under the lock that guards them.
    late: AtomicU64,
    taken: AtomicU64,
    waiters: AtomicUsize,
    turn: Mutex<()>,
    went: Condvar,
}

fn add_one(count: &AtomicU64) {
    // One writer at a time.
    count.store(count.load(Ordering::Relaxed) + 1, Ordering::Release);
}

impl Progress {
    pub(super) fn own_given(&self) {
        add_one(&self.own);
    }

    pub(super) fn late_given(&self) {
        add_one(&self.late);
    }

    /// Answers given until now.
    pub(super) fn given(&self) -> u64 {
        self.own.load(Ordering::Acquire) + self.late.load(Ordering::Acquire)
    }

    /// Whether the kernel has so many.
    pub(super) fn has(&self, given: u64) -> bool {
        self.taken.load(Ordering::SeqCst) >= given
    }

    /// On the ring thread, after each time that the kernel was there: it has so many.
    pub(super) fn taken(&self, count: u64) {
        self.taken.store(count, Ordering::SeqCst);
        self.wake();
    }

    pub(super) fn is_awaited(&self) -> bool {
        self.waiters.load(Ordering::SeqCst) > 0
    }

    pub(super) fn wake(&self) {
        if self.is_awaited() {
            let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
            self.went.notify_all();
        }
    }

    /// Waits until the kernel has so many, or it is `over`; whether it had to. A ring thread that waits for requests does not know
    /// yet that the kernel has what it gave it last: `ring` makes it look, each time that it has looked and does not say so.
    pub(super) fn wait(&self, given: u64, ring: impl Fn(), over: impl Fn() -> bool) -> bool {
        if self.has(given) {
            return false;
        }
        let mut turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiters.fetch_add(1, Ordering::SeqCst);
        while !self.has(given) && !over() {
            ring();
            turn = self.went.wait(turn).unwrap_or_else(PoisonError::into_inner);
        }
        self.waiters.fetch_sub(1, Ordering::SeqCst);
        true
    }
}
