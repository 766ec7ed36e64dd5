//! What the mount's mutex guards: the machine, its link, and what a step leaves to be done outside.
//!
//! Absent: sending and calling back; both happen without the mutex.

use crate::calls::Calls;
use crate::late::{LateError, LateErrors};
use crate::link::{Dispatch, Link};
use crate::mount::Done;
use crate::session::{SessionEvent, SessionTracker};
use client::{Client, Input, Output, Validity};
use proto::caps::Recalled;
use proto::message::{ClientMsg, ServerMsg};
use proto::reply::Outcome;
use proto::{Errno, Kind, SessionId, Tid};
use runtime::port::Port;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use stdx::{Machine, Mono, Now};

/// For how long messages about what was performed are coalesced, and how many leave at the latest.
const COALESCE_NS: u64 = 300_000;
const COALESCE_MAX: usize = 64;

/// Everything behind the mutex.
pub(crate) struct Core {
    pub(crate) client: Client,
    pub(crate) calls: Calls,
    pub(crate) link: Option<Link>,
    /// The number of the newest connection, made or in the making.
    pub(crate) generation: u64,
    /// The newest connection that broke.
    pub(crate) broken: u64,
    pub(crate) phase: Phase,
    pub(crate) tracker: SessionTracker,
    /// What the rank said when it ended the connection.
    said: Option<String>,
    /// The newest request that was counted.
    counted: Tid,
    /// The stamp of the newest loss, in force from here on; read without the mutex.
    pub(crate) lost_stamp: Arc<AtomicU64>,
    /// The stamp of the newest recall that the hook was told of, or is about to be.
    pub(crate) recalled: u64,
    /// A loss that the hook has not seen. A newer one says all that an older one does.
    pub(crate) loss: Option<u64>,
    /// What was performed leaves then, if nothing else has to before.
    coalesce_until: Option<Mono>,
    /// Of the last step.
    now: Mono,
    /// What came too late for an answer; noted before any answer that follows it is handed out.
    pub(crate) late: Arc<LateErrors>,
    /// When the timer thread will look next.
    pub(crate) timer_wakes: Mono,
    pub(crate) stop: bool,
    pub(crate) counts: Counts,
    out: Vec<Output>,
    messages: Vec<ClientMsg>,
}

/// What a session has done so far, and what is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests sent to the rank, those repeated after a reconnect too.
    pub asked: u64,
    /// Requests whose callers were answered here; the rank was told afterwards.
    pub performed: u64,
    /// Inodes of which the rank took something back.
    pub recalls: u64,
    /// Times that everything granted was void: the connection broke, or the lease ran out.
    pub losses: u64,
    /// Errors that came after their callers were told of success.
    pub late: u64,
    /// Now: calls without an answer.
    pub waiting: u64,
    /// Now: requests that are answered, and kept because a crash of the rank may take them back.
    pub kept: u64,
    /// Now: directories that are delegated to this session.
    pub delegated: u64,
}

/// How far the session is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Opening,
    Ready,
    Refused(String),
    Closed,
}

/// What a thread has to do after it let go of the mutex.
#[derive(Default)]
pub(crate) struct Turn {
    pub(crate) done: Vec<(Done, Outcome, Validity)>,
    /// Recalls for the hook, with their stamps.
    pub(crate) recalls: Vec<(u64, Vec<Recalled>)>,
    /// What is to be logged.
    pub(crate) late: Vec<LateError>,
    /// What became of the session.
    pub(crate) events: Vec<(SessionEvent, SessionId)>,
    pub(crate) dispatch: Option<Dispatch>,
    /// A connection nobody uses any more.
    pub(crate) close: Option<Arc<dyn Port>>,
    /// Some waiter may go on.
    pub(crate) phase_changed: bool,
    /// The timer thread waits for too long.
    pub(crate) wake_timer: bool,
    /// The hook is to hear of a loss.
    pub(crate) wake_loss_thread: bool,
    /// The link thread has to connect.
    pub(crate) wake_link: bool,
}

impl Turn {
    fn tell(&mut self, event: Option<SessionEvent>, session: SessionId) {
        self.events.extend(event.map(|event| (event, session)));
    }
}

impl Counts {
    /// Counts what leaves. What was performed is presented again to each new life of the rank, and what it had said early, too: that is
    /// nothing new.
    fn count(&mut self, message: &ClientMsg, counted: &mut Tid) {
        let Some((tid, _)) = message.asked() else { return };
        if !message.is_performed() {
            self.asked += 1;
        } else if tid > *counted {
            self.performed += 1;
        }
        *counted = (*counted).max(tid);
    }
}

impl Core {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            calls: Calls::default(),
            link: None,
            generation: 0,
            broken: 0,
            phase: Phase::Opening,
            tracker: SessionTracker::default(),
            said: None,
            counted: Tid(0),
            lost_stamp: Arc::default(),
            recalled: 0,
            loss: None,
            coalesce_until: None,
            now: Mono(0),
            late: Arc::default(),
            timer_wakes: Mono(u64::MAX),
            stop: false,
            counts: Counts::default(),
            out: Vec::new(),
            messages: Vec::new(),
        }
    }

    /// One input. `settle` must follow before the mutex is let go.
    pub(crate) fn step(&mut self, now: Now, input: Input, turn: &mut Turn) {
        self.now = now.mono;
        let (mut welcomed, mut lost) = (false, false);
        self.client.step(now, input, &mut self.out);
        for output in self.out.drain(..) {
            match output {
                Output::Send(message) => {
                    self.counts.count(&message, &mut self.counted);
                    self.messages.push(message);
                }
                Output::Answer { call, outcome, validity } => {
                    if let Some((done, asked)) = self.calls.take(call) {
                        turn.done.push((done, outcome, Validity { asked, ..validity }));
                    }
                }
                Output::Ready => {
                    self.phase = Phase::Ready;
                    welcomed = true;
                    turn.phase_changed = true;
                }
                Output::Recalled { stamp, list } => {
                    self.counts.recalls += list.len() as u64;
                    self.recalled = stamp;
                    turn.recalls.push((stamp, list));
                }
                Output::Lost { stamp } => {
                    // At once: an answer that is being handed out on another thread must see it.
                    self.lost_stamp.fetch_max(stamp, Ordering::SeqCst);
                    self.loss = Some(stamp);
                    self.counts.losses += 1;
                    lost = true;
                }
                Output::Late { kind, name, inos, errno } => {
                    let late = LateError { kind, name, inos, errno };
                    self.late.add(&late);
                    self.counts.late += 1;
                    turn.late.push(late);
                }
                Output::BytesLost { inos, others } => {
                    let late = LateError { kind: Kind::WRITE, name: None, inos, errno: Errno::EIO };
                    self.late.add(&late);
                    if others {
                        self.late.add_others(Errno::EIO);
                    }
                    self.counts.late += 1;
                    turn.late.push(late);
                }
                Output::Refused { reason } => {
                    let ended = self.tracker.ended(reason.clone(), now.mono);
                    turn.tell(ended, self.client.session());
                    self.phase = Phase::Refused(reason);
                    turn.phase_changed = true;
                }
                Output::Closed => {
                    self.phase = Phase::Closed;
                    turn.phase_changed = true;
                }
            }
        }
        let session = self.client.session();
        if welcomed {
            turn.tell(self.tracker.welcomed(session, now.mono), session);
        }
        // What was kept is void although the connection stands: the lease ran out.
        if lost && self.client.is_linked() {
            turn.tell(self.tracker.hung(now.mono), session);
        }
    }

    /// Messages of connection `generation`; those of an older one are void.
    pub(crate) fn receive(&mut self, now: Now, generation: u64, batch: Vec<ServerMsg>, turn: &mut Turn) {
        for message in batch {
            if self.link.as_ref().is_none_or(|link| link.generation != generation) {
                return;
            }
            turn.tell(self.tracker.heard(now.mono), self.client.session());
            let refused = match &message {
                ServerMsg::Refused { errno, reason } => Some((Errno(*errno as i32), reason.clone())),
                _ => None,
            };
            let damaged = message == ServerMsg::Damaged;
            let session = self.client.session();
            self.step(now, Input::Message(message), turn);
            if damaged {
                turn.tell(self.tracker.damaged(now.mono), session);
            }
            let Some((errno, why)) = refused.filter(|_| !self.is_ended()) else { continue };
            if errno == Errno::ESTALE {
                turn.tell(Some(SessionEvent::Rejected { why: why.clone() }), session);
            }
            self.said = Some(why);
        }
    }

    /// The connection is gone, and the session is not over by that.
    fn tell_lost(&mut self, session: SessionId, turn: &mut Turn) {
        let said = self.said.take();
        if self.phase == Phase::Ready {
            turn.tell(self.tracker.lost(said, self.now), session);
        }
    }

    /// Connection `generation` is gone.
    pub(crate) fn lost(&mut self, now: Now, generation: u64, turn: &mut Turn) {
        self.broken = self.broken.max(generation);
        if self.link.as_ref().is_some_and(|link| link.generation == generation) {
            self.link = None;
            self.step(now, Input::Disconnected, turn);
            self.tell_lost(self.client.session(), turn);
            turn.wake_link = true;
        }
    }

    /// Ends a turn: decides what leaves on the link and whom to wake.
    pub(crate) fn settle(&mut self, turn: &mut Turn) {
        let messages = if self.coalesces() { Vec::new() } else { std::mem::take(&mut self.messages) };
        if !self.client.is_linked()
            && let Some(link) = self.link.take()
        {
            self.broken = self.broken.max(link.generation);
            turn.close = Some(Arc::clone(link.port()));
            turn.wake_link = true;
            self.tell_lost(self.tracker.state().session, turn);
        }
        // Without a link they are void: the machine repeats them after the next Hello.
        turn.dispatch = self.link.as_mut().and_then(|link| link.plan(messages));
        let early = self.deadline().is_some_and(|at| at < self.timer_wakes);
        turn.wake_timer |= early;
        turn.wake_loss_thread |= self.loss.is_some();
    }

    /// Whether what is to be sent is kept a moment longer. Nobody waits for what was performed, and more of it that leaves with the
    /// same call wakes both sides once.
    fn coalesces(&mut self) -> bool {
        let alone = !self.messages.is_empty()
            && self.messages.len() < COALESCE_MAX
            && self.link.is_some()
            && self.client.is_linked()
            && self.messages.iter().all(ClientMsg::is_performed);
        if !alone {
            self.coalesce_until = None;
            return false;
        }
        let until = *self.coalesce_until.get_or_insert(self.now.after(COALESCE_NS));
        if until <= self.now {
            self.coalesce_until = None;
        }
        self.coalesce_until.is_some()
    }

    /// What was done so far, and what is under way.
    pub(crate) fn counts(&self) -> Counts {
        let (waiting, queued) = (self.client.waiting().count(), self.client.queued());
        Counts {
            waiting: (waiting + queued) as u64,
            kept: self.client.kept() as u64,
            delegated: self.client.delegated() as u64,
            ..self.counts
        }
    }

    /// When to tick.
    pub(crate) fn deadline(&self) -> Option<Mono> {
        [self.client.deadline(), self.coalesce_until].into_iter().flatten().min()
    }

    /// Whether no session will ever be again.
    pub(crate) const fn is_ended(&self) -> bool {
        matches!(self.phase, Phase::Refused(_) | Phase::Closed)
    }

    /// Whether connecting (again) makes sense.
    pub(crate) fn wants_link(&self) -> bool {
        !self.stop && self.link.is_none() && !self.is_ended()
    }
}
