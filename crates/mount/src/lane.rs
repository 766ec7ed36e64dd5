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

/// For how long messages that nobody waits for are coalesced, and how many leave at the latest.
const COALESCE_NS: u64 = 1_000_000;
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
    /// What nobody waits for leaves then, if nothing else has to before.
    pub(crate) coalesce_until: Option<Mono>,
    pub(crate) messages: Vec<ClientMsg>,
    /// Somebody waits for what comes of one of these.
    awaited: bool,
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
            awaited: false,
        }
    }

    /// A message that is to leave. Not `awaited`: nobody waits for what comes of it.
    pub(crate) fn push(&mut self, message: ClientMsg, awaited: bool) {
        self.awaited |= awaited;
        self.messages.push(message);
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

    /// What is to leave now. `waits`: what nobody waits for may.
    pub(crate) fn leaves(&mut self, waits: bool, now: Mono) -> Vec<ClientMsg> {
        if self.coalesces(waits, now) {
            return Vec::new();
        }
        self.awaited = false;
        std::mem::take(&mut self.messages)
    }

    /// Whether what is to be sent is kept a moment longer. Nobody waits for it, and more of it that leaves with the same call wakes
    /// both sides once.
    fn coalesces(&mut self, waits: bool, now: Mono) -> bool {
        let alone = waits
            && !self.awaited
            && !self.messages.is_empty()
            && self.messages.len() < COALESCE_MAX
            && self.link.is_some();
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
    use crate::link::tests::Nowhere;

    #[test]
    fn what_nobody_waits_for_leaves_with_what_somebody_does_or_a_moment_later() {
        let mut lane = Lane::new(RankId(0));
        lane.link = Some(Link::new(Arc::new(Nowhere), RankId(0), 1));
        let one = ClientMsg::Renew { number: 1 };
        let begin = Mono(100);
        lane.push(one.clone(), false);
        assert_eq!(lane.leaves(true, begin), []);
        lane.push(one.clone(), false);
        assert_eq!(lane.leaves(true, begin.after(COALESCE_NS - 1)), []);
        assert_eq!(lane.coalesce_until, Some(begin.after(COALESCE_NS)), "counted from the first");
        assert_eq!(lane.leaves(true, begin.after(COALESCE_NS)).len(), 2);
        lane.push(one.clone(), false);
        assert_eq!(lane.leaves(true, begin), []);
        lane.push(one.clone(), true);
        assert_eq!(lane.leaves(true, begin).len(), 2);
        assert_eq!(lane.coalesce_until, None);
        lane.push(one.clone(), false);
        assert_eq!(lane.leaves(false, begin).len(), 1, "the rank is in this process");
        for _ in 0..COALESCE_MAX {
            lane.push(one.clone(), false);
        }
        assert_eq!(lane.leaves(true, begin).len(), COALESCE_MAX);
    }

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
