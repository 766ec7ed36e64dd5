//! The one place where the process reads clocks.
//!
//! Monotonic time goes on while the host is suspended (CLOCK_BOOTTIME). A client's lease and what it was granted run out by the
//! rank's clock meanwhile; by a clock that had stood still with the host (CLOCK_MONOTONIC, which is what `Instant` reads) it would
//! believe in both for as long again as it slept.
//!
//! Absent: timers, but for `alarm.rs`; threads that wait for something that is no deadline of the protocol use condition variables,
//! whose timeouts stand still with the host.

use std::mem::MaybeUninit;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use stdx::time::SECOND;
use stdx::{Mono, Now, Wall};

/// Reads both clocks. Cheap to copy; all copies share one origin of monotonic time.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Nanoseconds since the host was booted.
    start: u64,
}

impl Clock {
    /// Monotonic time starts now.
    #[must_use]
    pub fn new() -> Self {
        Self { start: since_boot() }
    }

    /// Both clocks. Once per turn, not once per operation.
    #[must_use]
    pub fn now(&self) -> Now {
        Now { mono: self.mono(), wall: wall() }
    }

    /// The monotonic clock alone.
    #[must_use]
    pub fn mono(&self) -> Mono {
        Mono(since_boot().saturating_sub(self.start))
    }

    /// When that was, on the monotonic clock; 0 for what was before the clock began. Without the time the host was suspended since.
    #[must_use]
    pub fn mono_of(&self, instant: Instant) -> Mono {
        Mono(self.mono().0.saturating_sub(instant.elapsed().as_nanos() as u64))
    }

    /// How long until `at`; zero when it has passed.
    #[must_use]
    pub fn until(&self, at: Mono) -> Duration {
        Duration::from_nanos(at.since(self.mono()))
    }

    /// `at`, in nanoseconds since the host was booted.
    pub(crate) const fn boot_time_of(&self, at: Mono) -> u64 {
        self.start.saturating_add(at.0)
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

fn since_boot() -> u64 {
    let mut at = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: the pointer is to a timespec, which the call fills in if it succeeds; it fails only where this clock is unknown, which
    // no Linux since 2.6.39 does.
    let at = unsafe {
        let done = libc::clock_gettime(libc::CLOCK_BOOTTIME, at.as_mut_ptr());
        assert_eq!(done, 0, "this kernel has CLOCK_BOOTTIME");
        at.assume_init()
    };
    (at.tv_sec as u64) * SECOND + at.tv_nsec as u64
}

fn wall() -> Wall {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => Wall(since.as_nanos() as i64),
        Err(before) => Wall(-(before.duration().as_nanos() as i64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monotonic_time_does_not_go_back_and_wall_is_this_century() {
        let clock = Clock::new();
        let (a, b) = (clock.now(), clock.now());
        assert!(a.mono <= b.mono);
        assert!(a.wall.seconds() > 1_600_000_000);
        assert_eq!(clock.until(a.mono), Duration::ZERO);
        let (before, instant, after) = (clock.mono(), Instant::now(), clock.mono());
        let at = clock.mono_of(instant);
        assert!(at.0 + 1_000 >= before.0 && at <= after.after(1_000_000), "{before:?} {at:?} {after:?}");
    }

    /// The clock counts what the host has slept: it shows what the kernel says has passed since the host was booted.
    #[test]
    fn monotonic_time_counts_since_the_boot() {
        let uptime = || {
            let text = std::fs::read_to_string("/proc/uptime").expect("/proc");
            let seconds: f64 = text.split(' ').next().and_then(|word| word.parse().ok()).expect("a number");
            (seconds * 100.0) as u64
        };
        let before = uptime();
        let clock = Clock::new();
        let now = clock.boot_time_of(clock.mono()) / 10_000_000;
        assert!(before <= now + 1 && now <= uptime() + 1, "{before} {now}");
    }
}
