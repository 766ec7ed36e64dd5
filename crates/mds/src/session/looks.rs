//! Deadlines that may have passed because the rank did not run.
//!
//! Absent: what becomes of a session whose deadline has passed (`life.rs`).

/// What part of a lease passes between the first look at a session that is silent and the next.
pub(crate) const LOOK_PART: u64 = 20;
/// What part of it passes before the last look.
const LAST_LOOK_PART: u64 = 1000;
/// So often a late look is taken for none: a rank whose timers are always late must evict, too.
const LOOKS_MAX: u8 = 16;

/// Looks at a deadline that has passed. The rank may have been stopped, and what its client said then lies unread: so the first look
/// comes to another after a while, and that to a last one soon after. Whichever is late itself does not count: behind a pause of the rank
/// its timers may be read before its sockets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Looks(u8);

impl Looks {
    /// How long the deadline is put off, if it is; the look comes `late_ns` after it was due.
    pub(super) fn next(&mut self, late_ns: u64, lease_ns: u64) -> Option<u64> {
        if stdx::mutant!("mds_own_pause_counts") {
            return None;
        }
        let (look_ns, last_ns) = (lease_ns / LOOK_PART, lease_ns / LAST_LOOK_PART);
        if late_ns > look_ns {
            *self = Self::default();
            return Some(lease_ns);
        }
        let counts = late_ns <= last_ns || self.0 >= LOOKS_MAX;
        let more = match self.0 {
            0 => Some(look_ns),
            1 => Some(last_ns),
            _ if !counts => Some(last_ns),
            _ => None,
        };
        self.0 += u8::from(more.is_some());
        more
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: u64 = 10_000_000_000;

    #[test]
    fn the_third_look_counts_if_it_is_in_time() {
        let mut looks = Looks::default();
        assert_eq!(looks.next(0, LEASE), Some(LEASE / LOOK_PART));
        assert_eq!(looks.next(0, LEASE), Some(LEASE / LAST_LOOK_PART));
        let late = LEASE / LAST_LOOK_PART + 1;
        assert_eq!(
            looks.next(late, LEASE),
            Some(LEASE / LAST_LOOK_PART),
            "its sockets may not have been read"
        );
        assert_eq!(looks.next(0, LEASE), None);
    }

    #[test]
    fn a_long_pause_gives_everybody_a_lease() {
        let mut looks = Looks(2);
        assert_eq!(looks.next(LEASE / LOOK_PART + 1, LEASE), Some(LEASE));
        assert_eq!(looks.next(0, LEASE), Some(LEASE / LOOK_PART), "from the beginning");
    }

    #[test]
    fn a_rank_that_is_always_late_evicts_too() {
        let mut looks = Looks::default();
        let late = LEASE / LOOK_PART;
        let prolonged = (0..100).take_while(|_| looks.next(late, LEASE).is_some()).count();
        assert_eq!(prolonged, usize::from(LOOKS_MAX));
    }
}
