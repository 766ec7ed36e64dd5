//! Clocks: those of the clients' hosts run at speeds of their own, and the wall clock of the rank's host is set now and then.
//!
//! Absent: processes that stand still (`hang.rs`).

use super::World;
use stdx::Now;
use stdx::time::{MS, SECOND};

/// How much faster or slower a host's clock is at most, in parts of a million. Machines count on less than a thousand.
pub(super) const SKEW_MAX: u64 = 500;

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
