//! The monotonic clock of one host: it begins anywhere and runs at a speed of its own.
//!
//! Absent: wall clocks, and clocks that stand still, which nothing in the protocols survives (docs/PROTOCOL.md, "Clocks").

use stdx::time::SECOND;
use stdx::{Mono, Prng};

const MILLION: i128 = 1_000_000;

/// The monotonic clock of one host.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HostClock {
    /// What it shows when the world begins.
    start: u64,
    /// How much faster it is, in parts of a million.
    faster: i64,
}

impl HostClock {
    /// One that is up to `skew` millionths faster or slower than the world's.
    pub(crate) fn any(rng: &mut Prng, skew: u64) -> Self {
        let start = rng.below(1000 * SECOND);
        Self { start, faster: rng.below(2 * skew + 1) as i64 - skew as i64 }
    }

    /// What it shows when the world's shows `now`.
    pub(crate) fn shows(self, now: u64) -> Mono {
        let own = i128::from(now) * (MILLION + i128::from(self.faster)) / MILLION;
        Mono(self.start.saturating_add(own as u64))
    }

    /// When it shows that, or later.
    pub(crate) fn when(self, at: Mono) -> u64 {
        let own = i128::from(at.since(Mono(self.start)));
        let rate = MILLION + i128::from(self.faster);
        let when = (own * MILLION + rate - 1) / rate;
        u64::try_from(when).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_planned_by_a_hosts_clock_is_due_when_it_comes() {
        let mut rng = Prng::new(5);
        for _ in 0..2000 {
            let clock = HostClock::any(&mut rng, 1000);
            let now = rng.below(10_000 * SECOND);
            let at = clock.shows(now).after(rng.below(100 * SECOND));
            let when = clock.when(at);
            assert!(clock.shows(when) >= at && (when == 0 || clock.shows(when - 1) < at), "{clock:?} {at:?}");
        }
        assert_eq!(HostClock::default().shows(7), Mono(7));
        assert_eq!(HostClock::default().when(Mono(7)), 7);
        assert_eq!(HostClock::default().when(Mono(u64::MAX)), u64::MAX);
    }
}
