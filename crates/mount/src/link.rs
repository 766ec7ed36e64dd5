//! One connection and the order of what leaves on it.
//!
//! Requests of different threads may overtake each other: no caller can tell. What opens, resumes,
//! cancels or ends may not be overtaken and may not overtake: it goes alone, and what comes meanwhile
//! queues behind it. No mutex is held while anything is sent.
//!
//! Absent: making connections (`threads.rs`).

use proto::RankId;
use proto::message::ClientMsg;
use runtime::port::Port;
use std::sync::Arc;

pub(crate) struct Link {
    port: Arc<dyn Port>,
    rank: RankId,
    pub(crate) generation: u64,
    /// Plain sends under way.
    sending: u32,
    /// Someone sends in order; everyone else queues.
    in_order: bool,
    backlog: Vec<ClientMsg>,
}

/// Messages to send, by the thread that got this.
pub(crate) struct Dispatch {
    pub(crate) port: Arc<dyn Port>,
    pub(crate) rank: RankId,
    pub(crate) generation: u64,
    pub(crate) messages: Vec<ClientMsg>,
    in_order: bool,
}

/// What one turn sends: mostly to one rank.
#[derive(Default)]
pub(crate) struct Dispatches {
    first: Option<Dispatch>,
    more: Vec<Dispatch>,
}

impl Dispatches {
    pub(crate) fn push(&mut self, dispatch: Dispatch) {
        match self.first {
            None => self.first = Some(dispatch),
            Some(_) => self.more.push(dispatch),
        }
    }

    pub(crate) fn pop(&mut self) -> Option<Dispatch> {
        self.more.pop().or_else(|| self.first.take())
    }
}

impl Link {
    pub(crate) const fn new(port: Arc<dyn Port>, rank: RankId, generation: u64) -> Self {
        Self { port, rank, generation, sending: 0, in_order: false, backlog: Vec::new() }
    }

    /// What the caller must send now, given that `messages` are to leave.
    pub(crate) fn plan(&mut self, mut messages: Vec<ClientMsg>) -> Option<Dispatch> {
        if !self.in_order
            && self.backlog.is_empty()
            && messages.iter().all(|message| message.class().overtakes)
        {
            if messages.is_empty() {
                return None;
            }
            self.sending += 1;
            return Some(self.dispatch(messages, false));
        }
        self.backlog.append(&mut messages);
        if self.in_order || self.sending > 0 {
            return None;
        }
        self.in_order = true;
        let messages = std::mem::take(&mut self.backlog);
        Some(self.dispatch(messages, true))
    }

    fn dispatch(&self, messages: Vec<ClientMsg>, in_order: bool) -> Dispatch {
        let Self { rank, generation, .. } = *self;
        Dispatch { port: Arc::clone(&self.port), rank, generation, messages, in_order }
    }

    /// The dispatch's send has returned; `plan` says what comes next.
    pub(crate) fn sent(&mut self, dispatch: &Dispatch) {
        if dispatch.in_order {
            self.in_order = false;
        } else {
            self.sending -= 1;
        }
    }

    /// Whether everything has left.
    pub(crate) fn is_idle(&self) -> bool {
        self.sending == 0 && !self.in_order && self.backlog.is_empty()
    }

    pub(crate) fn port(&self) -> &Arc<dyn Port> {
        &self.port
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proto::Tid;
    use proto::message::ServerMsg;
    use runtime::port::PortError;

    pub(crate) struct Nowhere;
    impl Port for Nowhere {
        fn send(&self, _: Vec<ClientMsg>, _: &mut Vec<ServerMsg>) -> Result<(), PortError> {
            Err(PortError::Lost)
        }
        fn close(&self) {}
    }

    #[test]
    fn a_cancel_waits_for_sends_under_way_and_holds_later_ones_back() {
        let mut link = Link::new(Arc::new(Nowhere), RankId(0), 1);
        let first = link.plan(vec![ClientMsg::Renew { number: 1 }]).expect("plain goes at once");
        let second = link.plan(vec![ClientMsg::Renew { number: 1 }]).expect("plain goes beside plain");
        assert!(link.plan(vec![ClientMsg::Cancel { tid: Tid(1) }]).is_none());
        assert!(link.plan(vec![ClientMsg::Renew { number: 1 }]).is_none(), "nothing overtakes");
        link.sent(&first);
        assert!(link.plan(Vec::new()).is_none());
        link.sent(&second);
        let third = link.plan(Vec::new()).expect("the last sender carries the backlog");
        assert_eq!(third.messages, [ClientMsg::Cancel { tid: Tid(1) }, ClientMsg::Renew { number: 1 }]);
        assert!(link.plan(vec![ClientMsg::Renew { number: 1 }]).is_none());
        link.sent(&third);
        assert_eq!(link.plan(Vec::new()).map(|d| d.messages), Some(vec![ClientMsg::Renew { number: 1 }]));
    }
}
