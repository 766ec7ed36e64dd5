//! The sole client: while one session exists it may keep names, attributes and pages for a second;
//! before a second one is welcomed the first has stopped. It stands in for capabilities.
//!
//! Absent: anything finer.

use crate::output::Output;
use crate::rank::Rank;
use proto::SessionId;
use proto::message::ServerMsg;
use stdx::Outbox;

impl Rank {
    /// Welcomes a session at once, or after the sole one has shared.
    pub(crate) fn welcome_or_share(&mut self, id: SessionId, resumed: bool, out: &mut Outbox<Output>) {
        let sessions = &mut self.sessions;
        if sessions.map.len() == 1 {
            sessions.sole = Some(id);
        }
        match sessions.sole {
            Some(holder) if holder != id && !stdx::mutant!("mds_sole_never_shares") => {
                sessions.unwelcome.retain(|(waiting, _)| *waiting != id);
                sessions.unwelcome.push((id, resumed));
                if !sessions.sharing {
                    sessions.sharing = true;
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

    /// The sole session caches nothing any more.
    pub(crate) fn shared(&mut self, id: SessionId, out: &mut Outbox<Output>) {
        if self.sessions.sole == Some(id) && self.sessions.sharing {
            self.sessions.sole = None;
            self.sessions.sharing = false;
            self.welcome_waiting(out);
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
        self.sessions.unwelcome.retain(|(id, _)| *id != ended);
        if self.sessions.sole == Some(ended) {
            let sessions = &mut self.sessions;
            let left = sessions.map.first_key_value().map(|(id, _)| *id);
            sessions.sole = left.filter(|_| sessions.map.len() == 1);
            sessions.sharing = false;
            self.welcome_waiting(out);
        } else {
            self.name_sole(out);
        }
    }

    fn name_sole(&mut self, out: &mut Outbox<Output>) {
        let sessions = &mut self.sessions;
        if sessions.map.len() != 1 || sessions.sole.is_some() || !sessions.unwelcome.is_empty() {
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
