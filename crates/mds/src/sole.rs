//! The sole client: while one session exists it may keep names, attributes and pages for a second;
//! before a second one is welcomed the first has stopped. It stands in for capabilities.
//!
//! Absent: anything finer.

use crate::output::Output;
use crate::rank::Rank;
use proto::SessionId;
use proto::message::{SOLE_TTL_MS, ServerMsg};
use stdx::time::MS;
use stdx::{Now, Outbox};

impl Rank {
    /// The rank lives again. Any one of the sessions that it finds may have been alone before, and its kernel answers from
    /// what it was given then: nobody new is served until each has come back and shared, or has ended.
    pub(crate) fn await_former(&mut self, now: Now) {
        if self.sessions.map.is_empty() || stdx::mutant!("mds_former_sole_forgotten") {
            return;
        }
        self.sessions.former = self.sessions.map.keys().copied().collect();
        self.sessions.former_end = Some(now.mono.after(SOLE_TTL_MS * MS));
    }

    /// What a session that has not come back was given has run out: its client got nothing since the rank's life before
    /// this one. One that came back says itself when (it may have noticed late), and who is gone must not keep everybody
    /// waiting for a lease.
    pub(crate) fn former_over(&mut self, out: &mut Outbox<Output>) {
        let sessions = &mut self.sessions;
        sessions.former_end = None;
        sessions.former.retain(|id| sessions.map.get(id).is_some_and(|session| session.welcomed));
        self.former_left(out);
    }

    /// One less may have been alone before the restart.
    fn former_left(&mut self, out: &mut Outbox<Output>) {
        if self.sessions.former.is_empty() {
            self.welcome_waiting(out);
        }
    }

    /// Welcomes a session at once, or after the sole one has shared.
    pub(crate) fn welcome_or_share(&mut self, id: SessionId, resumed: bool, out: &mut Outbox<Output>) {
        let sessions = &mut self.sessions;
        // Not soon after a restart: the others are about to come back, and would wait.
        if sessions.map.len() == 1 && sessions.former.is_empty() && sessions.former_end.is_none() {
            sessions.sole = Some(id);
        }
        if !sessions.former.is_empty() {
            return self.welcome_or_wait(id, resumed, out);
        }
        match sessions.sole {
            Some(holder) if holder != id && !stdx::mutant!("mds_sole_never_shares") => {
                sessions.wait(id, resumed);
                if !sessions.sharing {
                    sessions.sharing = true;
                    self.must_share(holder);
                    self.send_now(holder, ServerMsg::Share, out);
                }
            }
            Some(_) if sessions.sharing => {
                // It lost its connection while it was being asked: it is asked again.
                self.welcome(id, resumed, out);
                self.hold_message(id, ServerMsg::Share);
            }
            _ => self.welcome(id, resumed, out),
        }
    }

    /// After a restart: who was there goes on at once, and is asked (again, after each break of its connection).
    fn welcome_or_wait(&mut self, id: SessionId, resumed: bool, out: &mut Outbox<Output>) {
        if !resumed {
            return self.sessions.wait(id, resumed);
        }
        self.welcome(id, resumed, out);
        if self.sessions.former.contains(&id) {
            self.must_share(id);
            self.hold_message(id, ServerMsg::Share);
        }
    }

    /// One that renews and never answers would keep everybody out.
    fn must_share(&mut self, id: SessionId) {
        let (now, lease_ns) = (self.view.now.mono, self.view.config.lease_ns);
        self.sessions.share_by(id, now, lease_ns);
    }

    /// The session caches nothing any more.
    pub(crate) fn shared(&mut self, id: SessionId, out: &mut Outbox<Output>) {
        self.sessions.has_shared(id);
        if self.sessions.sole == Some(id) && self.sessions.sharing {
            self.sessions.sole = None;
            self.sessions.sharing = false;
            self.welcome_waiting(out);
        } else if self.sessions.former.remove(&id) {
            self.former_left(out);
        }
    }

    fn welcome_waiting(&mut self, out: &mut Outbox<Output>) {
        for (id, resumed) in std::mem::take(&mut self.sessions.unwelcome) {
            if self.sessions.map.contains_key(&id) {
                self.welcome(id, resumed, out);
            }
        }
        self.name_sole(out);
    }

    /// A session ended: whoever waited for it goes on, whoever remains may be alone.
    pub(crate) fn sole_after_end(&mut self, ended: SessionId, out: &mut Outbox<Output>) {
        let sessions = &mut self.sessions;
        sessions.unwelcome.retain(|(id, _)| *id != ended);
        if sessions.former.remove(&ended) {
            self.former_left(out);
        } else if sessions.sole == Some(ended) {
            let left = sessions.map.first_key_value().map(|(id, _)| *id);
            sessions.sole = left.filter(|_| sessions.map.len() == 1);
            sessions.sharing = false;
            self.welcome_waiting(out);
        } else {
            self.name_sole(out);
        }
    }

    /// Not soon after a restart, and not while an answer to `Share` is due: it would be taken for the next one's.
    fn name_sole(&mut self, out: &mut Outbox<Output>) {
        let sessions = &mut self.sessions;
        let restarted = !sessions.former.is_empty() || sessions.former_end.is_some();
        let others = sessions.map.len() != 1 || !sessions.unwelcome.is_empty();
        if others || restarted || sessions.sole.is_some() {
            return;
        }
        if let Some((id, session)) = sessions.map.first_key_value()
            && session.welcomed
        {
            let (id, embedded) = (*id, session.embedded);
            sessions.sole = Some(id);
            if embedded {
                self.send_now(id, ServerMsg::Sole, out);
            } else {
                self.hold_message(id, ServerMsg::Sole);
            }
        }
    }
}
