//! What became of the session: for a log, and for whoever asks how the mount is.
//!
//! Absent: decisions, which the client machine has made by then; texts, which the command line has.

use proto::{RankId, SessionId};
use std::time::Duration;
use stdx::Mono;

/// Something that whoever looks after a mount wants to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionEvent {
    /// The connection broke, and what the rank said before. Calls wait until there is another.
    Lost { why: Option<String> },
    /// The connection stands, and the rank was not heard of for a lease.
    Hung,
    /// It was heard of again.
    Back { silent: Duration },
    /// The rank serves no more in this life: calls fail until the next.
    Damaged,
    /// The session goes on over a new connection.
    Resumed { away: Duration },
    /// The rank does not take it back; a new one is asked for.
    Rejected { why: String },
    /// A new session is there, in the place of `former`.
    Replaced { former: SessionId },
    /// There will be none any more: calls fail.
    Ended { why: String },
}

/// Such an event: of which session, and with which rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionNews {
    pub event: SessionEvent,
    /// The number that it has now.
    pub session: SessionId,
    pub rank: RankId,
}

/// How the session is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionStatus {
    #[default]
    Opening,
    Open,
    Hung,
    Damaged,
    Lost,
    Ended,
}

impl SessionStatus {
    /// As it is written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Opening => "opening",
            Self::Open => "open",
            Self::Hung => "hung",
            Self::Damaged => "damaged",
            Self::Lost => "lost",
            Self::Ended => "ended",
        }
    }

    /// Of several ranks the worst is shown.
    pub(crate) const fn badness(self) -> u8 {
        match self {
            Self::Open => 0,
            Self::Opening => 1,
            Self::Hung => 2,
            Self::Damaged => 3,
            Self::Lost => 4,
            Self::Ended => 5,
        }
    }
}

/// How the session is, since when, and why if somebody said so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionState {
    pub session: SessionId,
    /// Of several ranks, with which it is so.
    pub rank: RankId,
    pub status: SessionStatus,
    pub since: Mono,
    pub why: Option<String>,
}

/// Keeps that state; each change is an event, once.
#[derive(Debug, Default)]
pub(crate) struct SessionTracker(SessionState);

impl SessionTracker {
    pub(crate) fn of(rank: RankId) -> Self {
        Self(SessionState { rank, ..SessionState::default() })
    }

    pub(crate) const fn state(&self) -> &SessionState {
        &self.0
    }

    /// Whether the connection stands, as far as was told.
    const fn stands(&self) -> bool {
        matches!(self.0.status, SessionStatus::Open | SessionStatus::Hung | SessionStatus::Damaged)
    }

    fn becomes(&mut self, status: SessionStatus, now: Mono, why: Option<String>) {
        self.0 = SessionState { status, since: now, why, ..self.0 };
    }

    pub(crate) fn welcomed(&mut self, session: SessionId, now: Mono) -> Option<SessionEvent> {
        let former = std::mem::replace(&mut self.0.session, session);
        let away = Duration::from_nanos(now.since(self.0.since));
        self.becomes(SessionStatus::Open, now, None);
        match former {
            SessionId(0) => None,
            _ if former == session => Some(SessionEvent::Resumed { away }),
            former => Some(SessionEvent::Replaced { former }),
        }
    }

    pub(crate) fn lost(&mut self, why: Option<String>, now: Mono) -> Option<SessionEvent> {
        // Attempts to connect again are no news.
        self.stands().then(|| {
            self.becomes(SessionStatus::Lost, now, why.clone());
            SessionEvent::Lost { why }
        })
    }

    pub(crate) fn hung(&mut self, now: Mono) -> Option<SessionEvent> {
        (self.0.status == SessionStatus::Open).then(|| {
            self.becomes(SessionStatus::Hung, now, None);
            SessionEvent::Hung
        })
    }

    pub(crate) fn damaged(&mut self, now: Mono) -> Option<SessionEvent> {
        (self.0.status == SessionStatus::Open).then(|| {
            self.becomes(
                SessionStatus::Damaged,
                now,
                Some("its server's journal or store failed".to_owned()),
            );
            SessionEvent::Damaged
        })
    }

    /// A message came.
    pub(crate) fn heard(&mut self, now: Mono) -> Option<SessionEvent> {
        (self.0.status == SessionStatus::Hung).then(|| {
            let silent = Duration::from_nanos(now.since(self.0.since));
            self.becomes(SessionStatus::Open, now, None);
            SessionEvent::Back { silent }
        })
    }

    pub(crate) fn ended(&mut self, why: String, now: Mono) -> Option<SessionEvent> {
        let told = !matches!(self.0.status, SessionStatus::Opening | SessionStatus::Ended);
        told.then(|| {
            self.becomes(SessionStatus::Ended, now, Some(why.clone()));
            SessionEvent::Ended { why }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_told_once() {
        let (a, b) = (SessionId(1), SessionId(2));
        let ms = |ms: u64| Mono(ms * 1_000_000);
        let mut tracker = SessionTracker::default();
        assert_eq!(tracker.ended("never opened".into(), ms(0)), None);
        assert_eq!(tracker.welcomed(a, ms(1)), None, "whoever mounts is told otherwise");
        assert_eq!(tracker.lost(None, ms(5)), Some(SessionEvent::Lost { why: None }));
        assert_eq!(tracker.lost(None, ms(6)), None, "an attempt that failed");
        let away = Duration::from_millis(4);
        assert_eq!(tracker.welcomed(a, ms(9)), Some(SessionEvent::Resumed { away }));
        assert_eq!((tracker.heard(ms(9)), tracker.hung(ms(20))), (None, Some(SessionEvent::Hung)));
        assert_eq!(tracker.hung(ms(21)), None);
        let silent = Duration::from_millis(3);
        assert_eq!(
            (tracker.heard(ms(23)), tracker.heard(ms(24))),
            (Some(SessionEvent::Back { silent }), None)
        );
        assert_eq!((tracker.damaged(ms(25)), tracker.damaged(ms(26))), (Some(SessionEvent::Damaged), None));
        assert_eq!((tracker.heard(ms(27)), tracker.hung(ms(28))), (None, None));
        assert_eq!(tracker.lost(None, ms(30)), Some(SessionEvent::Lost { why: None }));
        assert_eq!(tracker.welcomed(b, ms(31)), Some(SessionEvent::Replaced { former: a }));
        let why = || "evicted".to_owned();
        assert_eq!(tracker.ended(why(), ms(40)), Some(SessionEvent::Ended { why: why() }));
        assert_eq!((tracker.ended(why(), ms(41)), tracker.lost(None, ms(42))), (None, None));
        let state = SessionState {
            session: b,
            rank: RankId(0),
            status: SessionStatus::Ended,
            since: ms(40),
            why: Some(why()),
        };
        assert_eq!(tracker.state(), &state);
    }
}
