//! The rank's life as its server waits for it, and what a panic does.
//!
//! Absent: the next life (`life.rs` of the crate): it has a driver of its own.

use runtime::Log;
use std::sync::{Condvar, Mutex, PoisonError};

/// Where a rank is in its life.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Life {
    #[default]
    Booting,
    Active,
    Damaged(String),
    Stopped,
}

/// The present state, and a way to wait for the next.
#[derive(Debug, Default)]
pub(crate) struct LifeCell {
    life: Mutex<Life>,
    changed: Condvar,
}

impl LifeCell {
    /// Damage is for good.
    pub(crate) fn set(&self, life: Life) {
        let mut now = self.life.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(*now, Life::Damaged(_)) {
            *now = life;
        }
        drop(now);
        self.changed.notify_all();
    }

    pub(crate) fn get(&self) -> Life {
        self.life.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until the state is one that `wanted` accepts.
    pub(crate) fn wait(&self, wanted: impl Fn(&Life) -> bool) -> Life {
        let life = self.life.lock().unwrap_or_else(PoisonError::into_inner);
        let life = self.changed.wait_while(life, |l| !wanted(l));
        life.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A rank dies as a whole: after a panic its memory may not be what the journal says, so nothing
/// may be answered from it, and the process ends. What was durable is replayed by the next one.
pub(crate) struct AbortOnPanic<'a> {
    pub(crate) log: &'a Log,
}

impl Drop for AbortOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let thread = std::thread::current();
            let name = thread.name().unwrap_or("unnamed");
            self.log.error("server", "panic: the process ends", &[("thread", &name)]);
            std::process::abort();
        }
    }
}
