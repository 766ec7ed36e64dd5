//! The one place where the process reads clocks.
//!
//! Absent: timers; threads that wait use condition variables with a deadline.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use stdx::{Mono, Now, Wall};

/// Reads both clocks. Cheap to copy; all copies share one origin of monotonic time.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// Monotonic time starts now.
    #[must_use]
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }

    /// Both clocks. Once per turn, not once per operation.
    #[must_use]
    pub fn now(&self) -> Now {
        Now { mono: self.mono(), wall: wall() }
    }

    /// The monotonic clock alone.
    #[must_use]
    pub fn mono(&self) -> Mono {
        Mono(self.start.elapsed().as_nanos() as u64)
    }

    /// When that was, on the monotonic clock; 0 for what was before the clock began.
    #[must_use]
    pub fn mono_of(&self, instant: Instant) -> Mono {
        Mono(instant.saturating_duration_since(self.start).as_nanos() as u64)
    }

    /// How long until `at`; zero when it has passed.
    #[must_use]
    pub fn until(&self, at: Mono) -> Duration {
        Duration::from_nanos(at.since(self.mono()))
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
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
    }
}
