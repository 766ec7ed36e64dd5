//! Clocks: those of the clients' hosts run at speeds of their own, and the wall clock of the rank's host is set now and then.
//!
//! Absent: clocks that stand still, which nothing in the protocol survives (docs/PROTOCOL.md, "Clocks"); processes that do
//! (`hang.rs`).

use super::World;
use stdx::time::{MS, SECOND};
use stdx::{Mono, Now, Prng};

/// How much faster or slower a host's clock is at most, in parts of a million. Machines count on less than a thousand.
const SKEW_MAX: u64 = 500;
const MILLION: i128 = 1_000_000;

/// The monotonic clock of one host.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HostClock {
    /// What it shows when the world begins.
    start: u64,
    /// How much faster it is, in parts of a million.
    faster: i64,
}

impl HostClock {
    pub(super) fn any(rng: &mut Prng) -> Self {
        let start = rng.below(1000 * SECOND);
        Self { start, faster: rng.below(2 * SKEW_MAX + 1) as i64 - SKEW_MAX as i64 }
    }

    /// What it shows when the world's shows `now`.
    pub(super) fn shows(self, now: u64) -> Mono {
        let own = i128::from(now) * (MILLION + i128::from(self.faster)) / MILLION;
        Mono(self.start.saturating_add(own as u64))
    }

    /// When it shows that, or later.
    pub(super) fn when(self, at: Mono) -> u64 {
        let own = i128::from(at.since(Mono(self.start)));
        let rate = MILLION + i128::from(self.faster);
        let when = (own * MILLION + rate - 1) / rate;
        u64::try_from(when).unwrap_or(u64::MAX)
    }
}

impl World {
    /// The time on a client's host.
    pub(super) fn now_at(&self, client: usize) -> Now {
        Now { mono: self.clients[client].clock.shows(self.now), wall: self.now().wall }
    }

    /// Somebody sets the wall clock of the rank's host forwards. (Set back, times of directories stay where they were, which the
    /// reference tree does not know.)
    pub(super) fn set_wall(&mut self) {
        let by = [10 * MS, 2 * SECOND, 3600 * SECOND][self.rng.index(3)];
        self.wall_set += 1 + self.rng.below(by) as i64;
        let wall = self.now().wall;
        self.trace.event(self.now, "clock", wall.0 as u64, || format!("set to {wall:?}"));
        self.coverage.count("wall clocks set", 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_planned_by_a_hosts_clock_is_due_when_it_comes() {
        let mut rng = Prng::new(5);
        for _ in 0..2000 {
            let clock = HostClock::any(&mut rng);
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
