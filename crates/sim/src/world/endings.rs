//! Sessions that the rank ends: whether it was entitled to.
//!
//! Absent: how a client takes it (`clients.rs`); operators and leases, which are the faults' (`faults.rs`) and the rank's.

use super::{Kind, World};
use crate::model::judge::Verdict;
use mds::input::ConnId;
use proto::Errno;
use proto::ids::SessionId;
use proto::message::ServerMsg;
use stdx::time::MS;

impl World {
    /// The rank journaled the end of a session: was it entitled to?
    pub(super) fn session_ended(&mut self, session: SessionId) -> Verdict {
        self.judge.session_over(session);
        let owner = self.clients.iter().find(|slot| slot.session() == Some(session));
        let Some(slot) = owner else {
            self.owed.ended(session);
            return Ok(());
        };
        self.locks.lost(slot.holder());
        let judged = if slot.kind == Kind::Embedded { Ok(()) } else { self.may_end(session) };
        self.owed.ended(session);
        judged
    }

    /// The rank journaled that a session is evicted, and ends it later: was it entitled to?
    pub(super) fn session_evicted(&mut self, session: SessionId) -> Verdict {
        let has_owner = self.clients.iter().any(|slot| slot.session() == Some(session));
        if has_owner { self.is_entitled(session) } else { Ok(()) }
    }

    /// The rank tells a client that it has given its session up, which ends a little later.
    pub(super) fn judge_refusal(&mut self, conn: ConnId, message: &ServerMsg) -> Verdict {
        let ServerMsg::Refused { errno, .. } = message else { return Ok(()) };
        let Some(life) = self.life.as_ref().filter(|_| *errno == Errno::ESTALE.0 as u32) else {
            return Ok(());
        };
        match life.conns.get(&conn) {
            Some((_, Some(session))) => self.may_end(*session),
            _ => Ok(()),
        }
    }

    fn may_end(&mut self, session: SessionId) -> Verdict {
        // That was judged when it was journaled; a rank that lives again does not know why.
        if self.judge.is_evicted(session) { Ok(()) } else { self.is_entitled(session) }
    }

    fn is_entitled(&mut self, session: SessionId) -> Verdict {
        let Some((heard, goodbye)) = self.heard.get(&session).copied() else { return Ok(()) };
        let since = heard.max(self.active_since);
        let lease = self.plan.rank(proto::ids::Incarnation(1)).lease_ns;
        let late = self.is_late(session);
        self.coverage.count("sessions ended for a recall", u64::from(late));
        if late && let Some(ino) = self.locked_out(session) {
            return Err(format!(
                "session {} was ended for pages of inode {} that a request keeps locked until it is answered",
                session.0, ino.0
            ));
        }
        if self.is_unread(session) && !goodbye && !self.evicted.contains(&session) {
            return Err(format!("session {} was ended while what it said lies unread", session.0));
        }
        let excused = goodbye || late || self.evicted.contains(&session);
        if !excused && self.now < since + lease / 100 * 99 {
            return Err(format!(
                "session {} was ended {} ms after it was heard of",
                session.0,
                (self.now - since) / MS
            ));
        }
        Ok(())
    }
}
