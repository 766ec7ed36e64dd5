//! How a client parts with one of several ranks: with one that goes when that one says so, and at once with one that is not in the cluster
//! any more.
//! docs/PROTOCOL.md, "Ranks that go".
//!
//! Absent: which ranks those are, and who is asked instead (`router/parting.rs`).

use super::{Client, Life, Link, Out, answer};
use crate::numbers::Numbers;
use crate::output::Output;
use crate::ranktime::RankTime;
use crate::window::{Pending, Sent};
use proto::message::ServerMsg;
use proto::reply::Reply;
use proto::request::Request;
use proto::{Effect, Errno, SessionId, Tid};

impl Client {
    /// Whether the rank goes and has nothing of the session: it has said so. By its own books a client cannot tell. What it has open may
    /// have gone to that rank meanwhile, which its books do not say yet; and who leaves it there has it purged.
    pub(crate) fn is_dismissed(&self) -> bool {
        let unused = || self.held.inodes() == 0 && self.window.is_empty() && self.queued() == 0;
        self.dismissed || (stdx::mutant!("client_parts_by_its_books") && unused())
    }

    /// A map says whether the rank goes and owns nothing.
    pub(crate) fn owns_nothing(&mut self, nothing: bool) {
        let next = self.window.next();
        self.owned_until = nothing.then(|| self.owned_until.unwrap_or(next));
    }

    /// What was written is synced, if that is all that is left there; whether that is asked for now.
    pub(crate) fn syncs_to_part(&mut self) -> bool {
        let due = self.link == Link::Up && self.is_idle() && !self.unsynced.is_empty();
        if due {
            self.sync_behind();
        }
        due && self.queued() > 0
    }

    /// The rank is no more, or has nothing of the session any more. It owned nothing when it ended the session, or gave it up: all that was
    /// its own is in the store, and another rank's.
    pub(crate) fn is_left(&mut self, out: &mut Out) {
        self.link = Link::Down;
        self.life = Life::Over;
        self.stop_clocks();
        self.give_up_sent(out);
        for queued in self.uncredited.drain(..).chain(self.queue.drain(..)) {
            let (call, cred, request) = (queued.call, queued.cred, queued.request);
            out.push(Output::Bounced { call, cred, request, owner: None, version: 0 });
        }
        self.lose(out);
    }

    /// The rank goes, and owns nothing. It ends the session when the client has nothing there, and if it is wanted again soon
    /// its next life may be there before a map without it: one that knows of no session that was ended in order. So it is joined, which
    /// is resuming where the session is known. Else the rank would say of the number that it was evicted, and that would be the end
    /// of the session at all ranks.
    pub(crate) fn may_be_unknown(&mut self) {
        self.seat.at.join |= self.session != SessionId(0) && !stdx::mutant!("client_resumes_who_went");
    }

    /// Whether the rank does not know the session any more in which it has something, or had.
    pub(crate) fn is_joined_again(&self, message: &ServerMsg) -> bool {
        let joins = self.link == Link::Greeting && self.seat.at.join && self.was_welcomed() && !self.replaces;
        let unknown = |session| session == self.session && !stdx::mutant!("client_rejoins_silently");
        joins && matches!(message, ServerMsg::Welcome { session, resumed: false, .. } if unknown(*session))
    }

    /// Nothing of what was sent to the life of the rank that ended the session comes about by this one: as if it had left for good. What
    /// was not sent is for this one.
    pub(crate) fn is_forgotten(&mut self, out: &mut Out) {
        self.give_up_sent(out);
        self.forget_bytes();
        (self.numbers, self.time) = (Numbers::new(), RankTime::new());
    }

    fn give_up_sent(&mut self, out: &mut Out) {
        let unheard = !self.window.kept.is_empty();
        // Whether the rank had it, or had made it durable, nobody can tell any more.
        self.lose_kept(out);
        for call in std::mem::take(&mut self.syncs).into_values() {
            answer(out, Some(call), if unheard { Err(Errno::EIO) } else { Ok(Reply::Ok) });
        }
        // Who owns nothing carries out nothing but what is about files without a name; and who has one open is not sent away.
        let owned_until = self.owned_until;
        let after = |tid: Tid| owned_until.is_some_and(|until| until <= tid);
        let was_in_vain = |tid: Tid| after(tid) && !stdx::mutant!("client_fails_what_who_goes_never_saw");
        for (tid, pending) in self.window.take_all() {
            let Pending { call, sent, cancelled, .. } = pending;
            match sent.map(|sent| *sent) {
                Some(sent) if cancelled => {
                    self.gives_up_flock(&sent.request);
                    answer(out, call, Err(Errno::EINTR));
                }
                Some(Sent { cred, request }) if was_in_vain(tid) || may_be_asked_again(&request) => {
                    out.push(Output::Bounced { call, cred, request, owner: None, version: 0 });
                }
                _ => answer(out, call, Err(Errno::EIO)),
            }
        }
    }
}

/// Whether it makes no difference if the rank that has left had carried it out.
const fn may_be_asked_again(request: &Request) -> bool {
    match request.effect() {
        // What a rank remembers of opens and locks ended with it.
        Effect::Nothing | Effect::Memory => true,
        Effect::Journal => matches!(request, Request::Fsync { .. } | Request::SyncFs),
    }
}
