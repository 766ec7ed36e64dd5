//! What loading whole directories was worth: of the names brought ahead, how many were asked for before they had to make room.
//!
//! Absent: the decision (`load.rs`).

/// So many names are remembered; older ones count less and less.
const WINDOW: u32 = 4096;
/// Fewer say nothing.
const SAMPLE: u32 = 128;
/// Loading ahead pays when one in so many is asked for: a read of its own costs about as much as decoding and forgetting some.
const PAYS: u32 = 4;

/// Names brought ahead, by their fate.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Worth {
    asked_for: u32,
    in_vain: u32,
    /// Names that a load could bring at no risk: what reads of single names brought meanwhile, in part.
    saved: u64,
}

impl Worth {
    fn fade(&mut self) {
        if self.asked_for + self.in_vain >= WINDOW {
            self.asked_for /= 2;
            self.in_vain /= 2;
        }
    }

    pub(crate) fn asked_for(&mut self) {
        self.asked_for += 1;
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
    }

    /// Whether a directory of so many names is to be loaded. When it did not pay, one is now and then all the same: times
    /// change. Of what the cache takes in, that is one part in `16`.
    pub(crate) fn allows(&mut self, entries: u64) -> bool {
        if self.pays() {
            self.saved = 0;
            return true;
        }
        let due = self.saved / 16 >= entries.max(1);
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
        let mut worth = Worth::default();
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
    fn what_was_long_ago_fades() {
        let mut worth = Worth::default();
        (0..10_000_000).for_each(|_| worth.asked_for());
        (0..WINDOW * 2).for_each(|_| worth.in_vain());
        assert!(!worth.allows(1));
    }
}
