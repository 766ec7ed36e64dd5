//! When this driver first welcomed each session, for `client ls`.
//!
//! Absent: what was before this server started; a session that resumes into it is as old as its resume.

use super::Driver;
use proto::SessionId;
use std::collections::BTreeMap;
use stdx::Mono;
use stdx::time::MS;

/// More sessions than this are not remembered: the lowest number goes, which is the oldest session.
const SESSIONS_MAX: usize = 65_536;

/// The sessions welcomed here, also those that have ended: the driver does not hear of ends.
#[derive(Default)]
pub(super) struct Ages {
    since: BTreeMap<SessionId, Mono>,
}

impl Ages {
    /// A welcome leaves; that of a resumed session changes nothing.
    pub(super) fn welcomed(&mut self, session: SessionId, now: Mono) {
        self.since.entry(session).or_insert(now);
        if self.since.len() > SESSIONS_MAX {
            self.since.pop_first();
        }
    }

    fn since(&self, session: SessionId) -> Option<Mono> {
        self.since.get(&session).copied()
    }
}

impl Driver {
    /// How long ago the session was first welcomed, in milliseconds.
    pub(crate) fn age_ms(&self, session: SessionId) -> Option<u64> {
        let since = self.asked()?.ages.since(session)?;
        Some(self.clock.mono().since(since) / MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_welcome_counts_and_the_oldest_is_forgotten() {
        let mut ages = Ages::default();
        ages.welcomed(SessionId(1), Mono(10));
        ages.welcomed(SessionId(1), Mono(20));
        assert_eq!(ages.since(SessionId(1)), Some(Mono(10)));
        for n in 2..=SESSIONS_MAX as u64 + 1 {
            ages.welcomed(SessionId(n), Mono(30));
        }
        assert_eq!((ages.since(SessionId(1)), ages.since(SessionId(2))), (None, Some(Mono(30))));
    }
}
