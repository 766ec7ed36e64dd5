//! What a mount has of one rank: the connection, what is to leave on it, and how that part of the session is.
//!
//! Absent: when it is connected to (`threads.rs`); what is said on it (`state.rs`).

use crate::link::Link;
use crate::session::SessionTracker;
use proto::message::ClientMsg;
use proto::{RankId, Tid};
use runtime::port::Port;
use std::sync::Arc;
use stdx::Mono;

/// For how long messages about what was performed are coalesced, and how many leave at the latest.
const COALESCE_NS: u64 = 300_000;
const COALESCE_MAX: usize = 64;

/// One rank.
pub(crate) struct Lane {
    pub(crate) rank: RankId,
    /// The machine has use for it.
    pub(crate) wanted: bool,
    /// A thread connects to it.
    pub(crate) kept: bool,
    pub(crate) link: Option<Link>,
    /// The newest connection that broke.
    pub(crate) broken: u64,
    pub(crate) retry: Retry,
    pub(crate) tracker: SessionTracker,
    /// What the rank said when it ended the connection.
    pub(crate) said: Option<String>,
    /// The newest request that was counted.
    pub(crate) counted: Tid,
    /// What was performed leaves then, if nothing else has to before.
    pub(crate) coalesce_until: Option<Mono>,
    pub(crate) messages: Vec<ClientMsg>,
}

/// When it is tried to connect again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Retry {
    pause: u64,
    pub(crate) at: Mono,
}

impl Retry {
    /// It is tried now. Ever more slowly while connections do not last; `backoff`: the first pause and the longest.
    pub(crate) fn tried(&mut self, now: Mono, (first, last): (u64, u64)) {
        let lasted = self.pause == 0 || now.since(self.at) > last;
        self.pause = if lasted { first } else { (self.pause * 2).min(last) };
        self.at = now.after(self.pause);
    }
}

impl Lane {
    pub(crate) fn new(rank: RankId) -> Self {
        Self {
            rank,
            wanted: true,
            kept: false,
            link: None,
            broken: 0,
            retry: Retry::default(),
            tracker: SessionTracker::of(rank),
            said: None,
            counted: Tid(0),
            coalesce_until: None,
            messages: Vec::new(),
        }
    }

    /// Whether that connection is the one in use.
    pub(crate) fn is_on(&self, generation: u64) -> bool {
        self.link.as_ref().is_some_and(|link| link.generation == generation)
    }

    /// Whether everything has left.
    pub(crate) fn is_idle(&self) -> bool {
        self.link.as_ref().is_none_or(Link::is_idle)
    }

    /// Nobody uses the connection any more: it is to be closed.
    pub(crate) fn cut(&mut self) -> Option<Arc<dyn Port>> {
        let link = self.link.take()?;
        self.broken = self.broken.max(link.generation);
        Some(Arc::clone(link.port()))
    }

    /// What is to leave now. `linked`: the machine has use for the connection.
    pub(crate) fn leaves(&mut self, linked: bool, now: Mono) -> Vec<ClientMsg> {
        if self.coalesces(linked, now) { Vec::new() } else { std::mem::take(&mut self.messages) }
    }

    /// Whether what is to be sent is kept a moment longer. Nobody waits for what was performed, and more of it that leaves with the
    /// same call wakes both sides once.
    fn coalesces(&mut self, linked: bool, now: Mono) -> bool {
        let alone = !self.messages.is_empty()
            && self.messages.len() < COALESCE_MAX
            && self.link.is_some()
            && linked
            && self.messages.iter().all(ClientMsg::is_performed);
        if !alone {
            self.coalesce_until = None;
            return false;
        }
        let until = *self.coalesce_until.get_or_insert(now.after(COALESCE_NS));
        if until <= now {
            self.coalesce_until = None;
        }
        self.coalesce_until.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_that_do_not_last_are_made_ever_more_slowly() {
        let (mut retry, backoff) = (Retry::default(), (2, 10));
        let mut at = Mono(100);
        let mut pauses = Vec::new();
        for _ in 0..5 {
            retry.tried(at, backoff);
            pauses.push(retry.at.since(at));
            at = retry.at;
        }
        assert_eq!(pauses, [2, 4, 8, 10, 10]);
        at = at.after(11);
        retry.tried(at, backoff);
        assert_eq!(retry.at.since(at), 2, "it lasted");
    }
}
