//! The client machine: one client's session with one rank. It numbers requests, keeps those without an answer and those that are not
//! durable, says Hello again after each break of the connection, reclaims what it held, and repeats. What it may, it performs
//! by itself.
//!
//! Absent: caches, which the edge has, but of what is delegated and of absent names; choosing among ranks (`router.rs`); reconnecting, which the driver does.

mod calls;
mod close;
mod early;
mod idle;
mod keep;
mod parting;
mod perform;
mod rewrite;
mod routed;
mod send;
mod session;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use calls::gives_back;

use crate::config::ClientConfig;
use crate::delegations::Delegations;
use crate::held::Held;
use crate::input::{CallId, Input, Waiting};
use crate::negatives::Negatives;
use crate::numbers::Numbers;
use crate::output::Output;
use crate::ranktime::RankTime;
use crate::unsynced::Unsynced;
use crate::validity::{Validities, Validity};
use crate::window::{Pending, Sent, Window};
use early::Early;
use idle::Idle;
use proto::caps::Grants;
use proto::every_request;
use proto::message::ServerMsg;
use proto::reply::{Outcome, Reply};
use proto::request::Request;
use proto::{Cred, Errno, Incarnation, Ino, SessionId, Tid};
use rewrite::Rewrites;
use routed::Seat;
use std::collections::{BTreeMap, VecDeque};
use stdx::{Machine, Mono, Now, Outbox};

type Out = Outbox<Output>;

/// Of a page of names that the client itself asks for.
const LISTING_BYTES: u32 = 64 << 10;

/// Where the connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Down,
    /// Hello was sent.
    Greeting,
    Up,
}

/// Where the client is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Serving,
    /// Takes no new calls; ends when the last one is answered.
    Closing,
    Over,
}

/// A call that was not sent yet.
#[derive(Clone, Debug)]
struct Queued {
    /// `None`: nobody waits for the answer.
    call: Option<CallId>,
    cred: Cred,
    request: Request,
}

/// The client machine. One input per step; the outputs are carried out in order before the next.
///
/// Every call is in exactly one place until its one answer: `uncredited` or `queue` (not sent), `window` (sent), or `syncs` (a sync
/// that the rank has answered). A disconnect moves nothing: what is in the window is sent again under its tid, and the rank
/// tells from the tid whether it was executed. What was answered early, or performed here, stays in the window without a
/// caller until it is durable.
#[derive(Clone, Debug)]
pub struct Client {
    config: ClientConfig,
    link: Link,
    life: Life,
    window: Window,
    /// What releases something or waits at the rank without using it: never behind the credit limit,
    /// else callers that wait for a lock could keep its holder from unlocking.
    uncredited: VecDeque<Queued>,
    /// Opens that callers gave back when the session ended, and that are in another rank's books.
    given_back: Vec<(Ino, u32)>,
    queue: VecDeque<Queued>,
    /// Empty without `retry`: what cannot be reclaimed needs no book.
    held: Held,
    /// 0: none yet.
    session: SessionId,
    seat: Seat,
    root: Ino,
    /// The life of the rank that welcomed this session last.
    incarnation: Incarnation,
    /// That life serves nobody any more.
    damaged: bool,
    /// The session was refused: the next one takes its place.
    replaces: bool,
    /// The rank goes, has said that it does not know the session, and was not greeted since.
    dismissed: bool,
    /// The first tid that was not sent before the rank was seen to own nothing and to go, if it does.
    owned_until: Option<Tid>,
    /// The rank lives anew, and has not been shown that all answers below that are here.
    unshown: Option<Tid>,
    renew_every_ns: u64,
    renew_at: Option<Mono>,
    /// Renewals without an answer, by their numbers, and when they were sent; the greeting is 0.
    renewing: VecDeque<(u32, Mono)>,
    renewals: u32,
    lease_ns: u64,
    /// Until then the rank keeps the session, as far as this client has heard; none: nothing to lose by it.
    lease_end: Option<Mono>,
    validities: Validities,
    idle: Idle,
    delegations: Delegations,
    /// Empty without `retry`: the rank is as near.
    negatives: Negatives,
    numbers: Numbers,
    time: RankTime,
    /// Syncs that the rank has answered, while it has not said what became of something before them.
    syncs: BTreeMap<Tid, CallId>,
    /// Empty without `retry`: the rank dies with its client.
    unsynced: Unsynced,
    rewrites: Rewrites,
}

impl Machine for Client {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, now: Now, input: Input, out: &mut Out) {
        match input {
            Input::Call { call, cred, request } => self.on_call(now.mono, call, cred, request, out),
            Input::Returned { stamp, list } => self.on_returned(stamp, list, out),
            Input::Dropped { stamp } => self.validities.dropped(stamp),
            Input::Forgotten { ino } => self.on_forgotten(now.mono, ino),
            Input::Interrupt { call } => self.on_interrupt(call, out),
            Input::Abandon { call } => self.on_abandon(call, out),
            Input::Connected { .. } => self.on_connected(now.mono, out),
            Input::Disconnected { .. } => self.on_disconnected(out),
            Input::Message { message, .. } => self.on_message(now, message, out),
            Input::Tick => self.on_tick(now.mono, out),
            Input::Close => self.on_close(out),
            Input::GiveUp => self.on_give_up(out),
        }
        self.sync_at_close();
        self.pump(now.mono, out);
        self.offer(now.mono, out);
        self.finish(out);
    }

    fn deadline(&self) -> Option<Mono> {
        // What is given back follows all that is sent to a rank that a session comes back to.
        let settle_at = self.validities.settles_at().filter(|_| self.rewrites.resuming.is_none());
        [self.renew_at, settle_at, self.lease_end, self.idle.at].into_iter().flatten().min()
    }
}

impl Client {
    /// A client that has no connection yet.
    #[must_use]
    pub const fn new(config: ClientConfig) -> Self {
        let seat = Seat::limited(config.limit);
        Self {
            config,
            link: Link::Down,
            life: Life::Serving,
            window: Window::new(),
            uncredited: VecDeque::new(),
            given_back: Vec::new(),
            queue: VecDeque::new(),
            held: Held::new(),
            session: SessionId(0),
            seat,
            root: Ino::ROOT,
            incarnation: Incarnation(0),
            damaged: false,
            replaces: false,
            dismissed: false,
            owned_until: None,
            unshown: None,
            renew_every_ns: 0,
            renew_at: None,
            renewing: VecDeque::new(),
            renewals: 0,
            lease_ns: 0,
            lease_end: None,
            validities: Validities::new(),
            idle: Idle::new(),
            delegations: Delegations::new(),
            negatives: Negatives::new(),
            numbers: Numbers::new(),
            time: RankTime::new(),
            syncs: BTreeMap::new(),
            unsynced: Unsynced::new(),
            rewrites: Rewrites::new(),
        }
    }

    /// The session, 0 before the first Welcome.
    #[must_use]
    pub const fn session(&self) -> SessionId {
        self.session
    }

    /// The directory this session calls root.
    #[must_use]
    pub const fn root(&self) -> Ino {
        self.root
    }

    /// Opens of `ino` that a resume would reclaim.
    #[must_use]
    pub fn opens(&self, ino: Ino) -> u32 {
        self.held.opens(ino)
    }

    /// Whether the client has use for its connection. After a refusal it has not: the driver closes it
    /// and, unless the client is over, connects again.
    #[must_use]
    pub fn is_linked(&self) -> bool {
        self.link != Link::Down
    }

    /// Requests at the rank for whose answer somebody waits, oldest first.
    pub fn waiting(&self) -> impl Iterator<Item = Waiting> + '_ {
        self.window.waiting()
    }

    /// Whether somebody waits for a READ or a WRITE of this file: whoever waits has its pages locked, if it is a kernel. Looks at all
    /// that is under way. Of a rank in this process nothing is known.
    #[must_use]
    pub fn moves_bytes(&self, ino: Ino) -> bool {
        let of = |request: &Request| match request {
            Request::Read { node, .. } | Request::Write { node, .. } => node.ino == ino,
            every_request!() => false,
        };
        let sent = self.window.iter().filter(|(_, pending)| pending.call.is_some());
        let mut sent = sent.filter_map(|(_, pending)| pending.sent.as_ref());
        let mut queued = self.queue.iter().filter(|queued| queued.call.is_some());
        sent.any(|sent| of(&sent.request)) || queued.any(|queued| of(&queued.request))
    }

    /// Whether the answer of this request, which was sent, is still to come.
    #[must_use]
    pub fn awaits(&self, tid: Tid) -> bool {
        self.window.contains(tid)
    }

    /// Calls that were not sent yet.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.uncredited.len() + self.queue.len()
    }

    /// Requests whose callers have their results, and which are perhaps not durable.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.window.kept.iter().count()
    }

    /// Directories that are delegated to this client.
    #[must_use]
    pub fn delegated(&self) -> usize {
        self.delegations.len()
    }

    fn on_message(&mut self, now: Now, message: ServerMsg, out: &mut Out) {
        if self.life == Life::Over {
            return;
        }
        match (message, self.link) {
            (ServerMsg::Welcome { .. }, Link::Down | Link::Up) | (_, Link::Down) => {}
            (message @ ServerMsg::Welcome { .. }, Link::Greeting) => self.on_welcome(now.mono, message, out),
            (ServerMsg::Refused { errno, reason }, _) => {
                self.on_refused(Errno(errno as i32), reason, out);
            }
            // Nothing else is said before the session stands; only an operator's connection asks for `Admin`; and who owns what is
            // the router's business.
            (_, Link::Greeting)
            | (ServerMsg::Admin { .. } | ServerMsg::Map { .. } | ServerMsg::Join { .. }, _) => {}
            (ServerMsg::Reply { tid, outcome }, Link::Up) => {
                self.on_reply(now.mono, tid, outcome, Grants::None, out);
            }
            (ServerMsg::Granted { tid, outcome, grants }, Link::Up) => {
                self.on_reply(now.mono, tid, outcome, grants, out);
            }
            (ServerMsg::Early { tid, position, wall, outcome, grants, delegated }, Link::Up) => {
                let early = Early { position, wall, delegated: &delegated };
                self.on_early(now, tid, (outcome, grants), early, out);
            }
            (ServerMsg::NotMine { tid, owner, version }, Link::Up) => {
                self.on_not_mine(now.mono, tid, (owner, version), out);
            }
            (ServerMsg::Recall { list }, Link::Up) => self.on_recall(list, out),
            (ServerMsg::Renewed { number }, Link::Up) => self.on_renewed(number),
            (ServerMsg::Done { tid, position }, Link::Up) => {
                self.on_reply_to_kept(tid, Ok(Reply::Ok), Some(position), out);
            }
            (ServerMsg::Durable { position }, Link::Up) => self.on_durable(position),
            (ServerMsg::Damaged, Link::Up) => self.on_damaged(out),
            (ServerMsg::Numbers { first, count, generation, seed }, Link::Up) => {
                // Without numbers it is for the seed alone.
                if self.is_delegable() || count == 0 {
                    self.numbers.add(first, count, generation, seed);
                }
            }
        }
    }

    fn on_reply(&mut self, now: Mono, tid: Tid, outcome: Outcome, grants: Grants, out: &mut Out) {
        if outcome == Err(Errno::ESHUTDOWN) && self.config.retry && self.life == Life::Serving {
            // The rank stops and did not execute it. It stays, and is sent again to the rank's next life.
            return;
        }
        if self.window.kept.contains(tid) {
            return self.on_reply_to_kept(tid, outcome, None, out);
        }
        // Unknown: answered before a reconnect, and answered again because the retry crossed it.
        let Some(mut pending) = self.window.remove(tid) else { return };
        let renew = pending.renewing && !pending.cancelled && outcome == Err(Errno::EINTR);
        match pending.sent.take_if(|_| renew && self.life == Life::Serving) {
            Some(sent) => {
                let Sent { cred, request } = *sent;
                self.uncredited.push_back(Queued { call: pending.call, cred, request });
            }
            None => self.answer_pending(now, (tid, pending), outcome, grants, None, out),
        }
    }

    /// The answer to a request that is in the window no more.
    fn answer_pending(
        &mut self,
        now: Mono,
        (tid, mut pending): (Tid, Pending),
        outcome: Outcome,
        grants: Grants,
        early: Option<Early<'_>>,
        out: &mut Out,
    ) {
        if self.config.retry {
            self.note_answer(tid, &mut pending, &outcome, out);
        }
        if let Ok(Reply::Further(after)) = outcome {
            return self.list_further(now, pending, after, out);
        }
        if self.waits_as_sync(tid, &pending, &outcome) {
            self.syncs.extend(pending.call.map(|call| (tid, call)));
            return;
        }
        self.note_granted(now, tid, pending.asked, &grants, &outcome);
        let validity = self.validity(now, tid, pending.asked, grants, &outcome);
        if let Ok(Reply::Attr(attr) | Reply::Created { attr, .. }) = &outcome {
            self.may_keep_pages(now, attr.ino, validity.grants.of(0));
        }
        if let (Some(sent), true) = (&pending.sent, self.config.retry) {
            self.note_negatives(now, tid, (sent, &outcome), &validity);
            self.held.on_answer(&sent.request, &outcome);
            if self.is_delegable() {
                let delegated = early.as_ref().map_or(&[][..], |early| early.delegated);
                self.learn(now, tid, (&sent.request, &outcome), &validity, delegated);
            }
        }
        if let Some(early) = early {
            self.keep(tid, &mut pending, &early, &outcome);
        }
        if let (Some(sent), None, Life::Serving) = (pending.sent, pending.call, self.life)
            && self.config.retry
        {
            self.give_back(sent.cred, &sent.request, &outcome);
        }
        if let Some(call) = pending.call {
            out.push(Output::Answer { call, outcome, validity: validity.for_edge() });
        }
    }

    /// Nothing more is there in that part of a directory. The next part may be another rank's: then this one says so. A rank that sends a
    /// caller back, or nowhere, would be asked without end.
    fn list_further(&mut self, now: Mono, pending: Pending, after: u64, out: &mut Out) {
        let goes_on = |from: u64| after > from || stdx::mutant!("client_lists_without_end");
        match (pending.call, pending.sent.map(|sent| *sent)) {
            (
                Some(call),
                Some(Sent { cred, request: Request::ReadDir { dir, after: from, attrs, bytes_max } }),
            ) if goes_on(from) => {
                let request = Request::ReadDir { dir, after, attrs, bytes_max };
                self.on_call(now, call, cred, request, out);
            }
            (call, _) => answer(out, call, Err(Errno::EIO)),
        }
    }
}

fn answer(out: &mut Out, call: Option<CallId>, outcome: Outcome) {
    if let Some(call) = call {
        out.push(Output::Answer { call, outcome, validity: Validity::default() });
    }
}
