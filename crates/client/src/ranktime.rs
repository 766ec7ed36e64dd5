//! What the rank's clock shows, as far as this client can tell: never later than it is.
//!
//! Absent: this host's wall clock. It may be set at any time; from what the rank said, the monotonic one counts on.

use stdx::{Mono, Wall};

/// Clocks of two hosts count alike to this part: what was heard is counted on so much slower.
const SLOWER: u64 = 1024;

/// The rank's clock as last heard, and the newest time that anybody was told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RankTime {
    heard: Option<(Wall, Mono)>,
    told: Wall,
}

impl RankTime {
    pub(crate) const fn new() -> Self {
        Self { heard: None, told: Wall(i64::MIN) }
    }

    /// An answer came that the rank gave at `wall`, some time ago. The newest counts, not the largest: a clock may be set back.
    pub(crate) fn heard(&mut self, wall: Wall, now: Mono) {
        self.heard = Some((wall, now));
        self.told = self.told.max(wall);
    }

    /// Whether the rank has said anything of it yet.
    pub(crate) const fn is_known(&self) -> bool {
        self.heard.is_some()
    }

    /// The time of what happens now, `least` or later, nor earlier than what was told before.
    pub(crate) fn tell(&mut self, now: Mono, least: Wall) -> Wall {
        if let Some((wall, at)) = self.heard {
            let passed = now.since(at);
            let passed = i64::try_from(passed - passed / SLOWER).unwrap_or(i64::MAX);
            self.told = self.told.max(Wall(wall.0.saturating_add(passed)));
        }
        self.told = self.told.max(least);
        self.told
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stdx::time::SECOND;

    #[test]
    fn time_goes_on_and_never_back_and_never_ahead() {
        let mut time = RankTime::new();
        time.heard(Wall(1_000), Mono(5));
        assert_eq!(time.tell(Mono(5), Wall(0)), Wall(1_000));
        let later = time.tell(Mono(5 + SECOND), Wall(0));
        assert!(later.0 < 1_000 + SECOND as i64 && later.0 > 1_000 + (SECOND - SECOND / 1000) as i64);
        time.heard(Wall(2_000), Mono(6 + SECOND));
        assert_eq!(time.tell(Mono(6 + SECOND), Wall(0)), later, "the rank's clock was set back");
        assert_eq!(time.tell(Mono(6 + SECOND), Wall(later.0 + 9)), Wall(later.0 + 9));
    }
}
