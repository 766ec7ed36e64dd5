//! When to spin before sleeping: only while CPUs are free. A wake-up on another CPU costs 25-45 us,
//! more than a metadata operation; spinning on a busy machine steals that time from the worker.
//!
//! Absent: pinning and priorities.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a free CPU is spent on waiting.
const SPIN: Duration = Duration::from_micros(30);
/// How long one reading of the run queue counts.
const READING_NS: u64 = 20_000_000;

/// Tells whether a CPU is free, from the machine's count of runnable threads.
#[derive(Debug)]
pub struct Spinner {
    start: Instant,
    cpus: u64,
    /// Nanoseconds of the last reading, shifted left by one; lowest bit: a CPU was free.
    reading: AtomicU64,
}

impl Spinner {
    /// For this machine and this process's CPU mask.
    #[must_use]
    pub fn new() -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from) as u64;
        Self { start: Instant::now(), cpus, reading: AtomicU64::new(0) }
    }

    /// Spins until `ready` or for a moment, if a CPU is free. Returns whether `ready`.
    pub fn wait(&self, mut ready: impl FnMut() -> bool) -> bool {
        if ready() {
            return true;
        }
        if !self.cpu_is_free() {
            return false;
        }
        let begin = Instant::now();
        while begin.elapsed() < SPIN {
            for _ in 0..16 {
                std::hint::spin_loop();
            }
            if ready() {
                return true;
            }
        }
        false
    }

    fn cpu_is_free(&self) -> bool {
        if self.cpus < 2 {
            return false;
        }
        let now = self.start.elapsed().as_nanos() as u64;
        let last = self.reading.load(Ordering::Relaxed);
        if last != 0 && now.saturating_sub(last >> 1) < READING_NS {
            return last & 1 == 1;
        }
        let free = runnable().is_some_and(|running| running < self.cpus);
        self.reading.store(now.max(1) << 1 | u64::from(free), Ordering::Relaxed);
        free
    }
}

impl Default for Spinner {
    fn default() -> Self {
        Self::new()
    }
}

/// Runnable threads of the machine, the caller included: the fourth field of /proc/loadavg.
fn runnable() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().nth(3)?.split('/').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_is_seen_at_once_and_never_waited_for_long() {
        let spinner = Spinner::new();
        assert!(spinner.wait(|| true));
        assert!(!spinner.wait(|| false));
        assert!(runnable().is_some_and(|n| n >= 1));
    }
}
