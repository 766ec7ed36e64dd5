//! What loading whole directories was worth: of the names brought ahead, how many were asked for before they had to make room.
//!
//! Absent: the decision (`load.rs`).

/// So many names are remembered; older ones count less and less.
const WINDOW: u32 = 4096;
/// Fewer say nothing.
const SAMPLE: u32 = 128;
/// Loading ahead pays when one in so many is asked for: a read of its own costs about as much as decoding and forgetting some.
const PAYS: u32 = 4;

/// When loading ahead does not pay, one name in so many that the cache takes in is a try.
const TRIES: u64 = 16;

/// Names brought ahead, by their fate.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Worth {
    asked_for: u32,
    in_vain: u32,
    /// Names that a load could bring at no risk: what reads of single names brought meanwhile, in part.
    saved: u64,
    /// Names that may be brought ahead now.
    allowance: u64,
    /// The most that `allowance` grows to.
    burst: u64,
}

impl Worth {
    /// `burst`: names that may be brought ahead at once.
    pub(crate) fn new(burst: u64) -> Self {
        Self { allowance: burst, burst, ..Self::default() }
    }

    fn earn(&mut self) {
        self.allowance = (self.allowance + 1).min(self.burst);
    }

    fn fade(&mut self) {
        if self.asked_for + self.in_vain >= WINDOW {
            self.asked_for /= 2;
            self.in_vain /= 2;
        }
    }

    pub(crate) fn asked_for(&mut self) {
        self.asked_for += 1;
        self.earn();
        self.fade();
    }

    pub(crate) fn in_vain(&mut self) {
        self.in_vain += 1;
        self.fade();
    }

    fn pays(&self) -> bool {
        let all = self.asked_for + self.in_vain;
        all < SAMPLE || self.asked_for.saturating_mul(PAYS) >= all
    }

    /// A single name had to be read.
    pub(crate) fn missed(&mut self) {
        self.saved += 1;
        self.earn();
    }

    /// Whether a directory that brings so many names is to be loaded. When that pays, about as many names are brought ahead as
    /// are asked for (a token bucket): random reads of a large tree make all its directories worth it at the same time, and
    /// loading them together would keep those who ask waiting. When it did not pay, one is now and then all the same: times
    /// change. Of what the cache takes in, that is one part in `TRIES`.
    pub(crate) fn allows(&mut self, entries: u64) -> bool {
        if self.pays() {
            let may = self.allowance >= entries;
            if may {
                self.allowance -= entries;
                self.saved = 0;
            }
            return may;
        }
        let due = self.saved / TRIES >= entries.max(1);
        if due {
            self.saved = 0;
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loading_ahead_stops_when_it_is_in_vain_and_begins_again_when_it_pays() {
        let mut worth = Worth::new(100_000);
        assert!(worth.allows(1_000), "nothing is known");
        (0..1_000).for_each(|_| worth.in_vain());
        assert!(!worth.allows(1_000));
        (0..15_999).for_each(|_| worth.missed());
        assert!(!worth.allows(1_000));
        worth.missed();
        assert!(worth.allows(1_000), "one is tried");
        assert!(!worth.allows(1_000), "and no second");
        (0..1_000).for_each(|_| worth.asked_for());
        assert!(worth.allows(1_000) && worth.allows(1_000));
    }

    #[test]
    fn no_more_names_are_brought_ahead_than_asked_for_after_a_burst() {
        let mut worth = Worth::new(3_000);
        assert!((0..3).all(|_| worth.allows(1_000)), "the burst");
        assert!(!worth.allows(1_000));
        (0..600).for_each(|_| worth.missed());
        (0..399).for_each(|_| worth.asked_for());
        assert!(!worth.allows(1_000));
        worth.asked_for();
        assert!(worth.allows(1_000));
        assert!(!worth.allows(1));
        (0..10_000).for_each(|_| worth.missed());
        assert!((0..3).all(|_| worth.allows(1_000)));
        assert!(!worth.allows(1_000), "what was not used is not kept for ever");
    }

    #[test]
    fn what_was_long_ago_fades() {
        let mut worth = Worth::new(100_000);
        (0..10_000_000).for_each(|_| worth.asked_for());
        (0..WINDOW * 2).for_each(|_| worth.in_vain());
        assert!(!worth.allows(1));
    }
}
