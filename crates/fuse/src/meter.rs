//! What a mount counts about its requests: relaxed additions to counters that few threads share.
//! Absent: rates, which whoever looks twice makes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

/// Threads spread over so many sets of counters.
const SHARDS: usize = 16;

/// One set, on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Counters {
    requests: AtomicU64,
    nanos: AtomicU64,
    failed: AtomicU64,
    errors: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
}

/// Since the mount began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Requests that somebody waited for, answered; waits for locks not.
    pub(crate) requests: u64,
    /// From their coming to their answers.
    pub(crate) nanos: u64,
    /// Those answered with an error of whatever kind: also a name that is absent.
    pub(crate) failed: u64,
    /// Those of them that mean that something is wrong.
    pub(crate) errors: u64,
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
}

/// The counters of a mount.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    shards: [Arc<Counters>; SHARDS],
}

/// A request that is being measured. It counts where it began: even the count of references to one set for all would travel between
/// the CPUs with each request.
#[derive(Debug)]
pub(crate) struct Measure {
    counters: Arc<Counters>,
    began: Instant,
}

/// Errors that no program brings about by itself.
const fn is_wrong(errno: i32) -> bool {
    matches!(errno, libc::EIO | libc::ESHUTDOWN | libc::ENOTCONN | libc::ENOSPC | libc::ENOMEM | libc::EAGAIN)
}

impl Meter {
    /// The counters of this thread, and of others as it happens.
    fn own(&self) -> &Arc<Counters> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local!(static AT: usize = NEXT.fetch_add(1, Relaxed) % SHARDS);
        &self.shards[AT.with(|at| *at)]
    }

    pub(crate) fn measure(&self) -> Measure {
        Measure { counters: Arc::clone(self.own()), began: Instant::now() }
    }

    pub(crate) fn read(&self, bytes: usize) {
        self.own().read_bytes.fetch_add(bytes as u64, Relaxed);
    }

    pub(crate) fn written(&self, bytes: u64) {
        self.own().written_bytes.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn totals(&self) -> Totals {
        let sum = |of: fn(&Counters) -> &AtomicU64| {
            self.shards.iter().map(|shard| of(shard).load(Relaxed)).fold(0, u64::wrapping_add)
        };
        Totals {
            requests: sum(|c| &c.requests),
            nanos: sum(|c| &c.nanos),
            failed: sum(|c| &c.failed),
            errors: sum(|c| &c.errors),
            read_bytes: sum(|c| &c.read_bytes),
            written_bytes: sum(|c| &c.written_bytes),
        }
    }
}

impl Measure {
    /// The request is answered; errno 0: it succeeded.
    pub(crate) fn end(self, errno: i32) {
        let own = self.counters;
        own.requests.fetch_add(1, Relaxed);
        own.nanos.fetch_add(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX), Relaxed);
        if errno != 0 {
            own.failed.fetch_add(1, Relaxed);
            own.errors.fetch_add(u64::from(is_wrong(errno)), Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_counts_once_whichever_thread_answers() {
        let meter = Meter::default();
        let measure = meter.measure();
        std::thread::scope(|scope| {
            scope.spawn(|| measure.end(0));
        });
        meter.measure().end(libc::ENOENT);
        meter.measure().end(libc::EIO);
        meter.read(5);
        meter.written(7);
        let totals = meter.totals();
        assert_eq!((totals.requests, totals.failed, totals.errors), (3, 2, 1));
        assert_eq!((totals.read_bytes, totals.written_bytes), (5, 7));
        assert!(totals.nanos > 0);
    }
}
