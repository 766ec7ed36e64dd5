//! What the mount's mutex guards: the machine, its links, and what a step leaves to be done outside.
//!
//! Absent: sending and calling back; both happen without the mutex.

use crate::calls::Calls;
use crate::lane::Lane;
use crate::late::{LateError, LateErrors};
use crate::link::Dispatches;
use crate::mount::Done;
use crate::session::{SessionEvent, SessionNews, SessionState, SessionTracker};
use client::{Input, Output, Router, Validity};
use proto::caps::Recalled;
use proto::message::{ClientMsg, ServerMsg};
use proto::reply::Outcome;
use proto::request::Request;
use proto::{Errno, Kind, RankId, SessionId, Tid};
use runtime::port::Port;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use stdx::{Machine, Mono, Now};

/// The rank that is connected to first.
pub(crate) const FIRST: RankId = RankId(0);

/// Everything behind the mutex.
pub(crate) struct Core {
    pub(crate) client: Router,
    /// The ranks are other processes: what leaves together wakes them once.
    outlives_ranks: bool,
    pub(crate) calls: Calls,
    /// Ranks that were needed; the first rank's is the first.
    pub(crate) lanes: Vec<Lane>,
    /// The number of the newest connection, made or in the making.
    pub(crate) generation: u64,
    pub(crate) phase: Phase,
    /// The session of which was told last that it took another's place.
    replaced: SessionId,
    /// The stamp of the newest loss, in force from here on; read without the mutex.
    pub(crate) lost_stamp: Arc<AtomicU64>,
    /// The stamp of the newest recall that the hook was told of, or is about to be.
    pub(crate) recalled: u64,
    /// A loss that the hook has not seen. A newer one says all that an older one does.
    pub(crate) loss: Option<u64>,
    /// Of the last step.
    now: Mono,
    /// What came too late for an answer; noted before any answer that follows it is handed out.
    pub(crate) late: Arc<LateErrors>,
    /// When the timer goes off.
    pub(crate) timer_wakes: Mono,
    pub(crate) stop: bool,
    pub(crate) counts: Counts,
    out: Vec<Output>,
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
    /// Of a call: its caller goes on before the answer.
    pub(crate) unawaited: bool,
    pub(crate) done: Vec<(Done, Outcome, Validity)>,
    /// Recalls for the hook, with their stamps.
    pub(crate) recalls: Vec<(u64, Vec<Recalled>)>,
    /// What is to be logged.
    pub(crate) late: Vec<LateError>,
    /// What became of the session.
    pub(crate) events: Vec<SessionNews>,
    pub(crate) dispatches: Dispatches,
    /// Connections that nobody uses any more.
    pub(crate) close: Vec<Arc<dyn Port>>,
    /// Some waiter may go on.
    pub(crate) phase_changed: bool,
    /// The timer thread is to end.
    pub(crate) wake_timer: bool,
    /// The hook is to hear of a loss.
    pub(crate) wake_loss_thread: bool,
    /// The link thread has to connect.
    pub(crate) wake_link: bool,
}

const fn is_release(message: &ClientMsg) -> bool {
    matches!(message, ClientMsg::Request { request: Request::Release { .. }, .. })
}

impl Turn {
    fn tell(&mut self, event: Option<SessionEvent>, session: SessionId, rank: RankId) {
        self.events.extend(event.map(|event| SessionNews { event, session, rank }));
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
    pub(crate) fn new(client: Router, outlives_ranks: bool) -> Self {
        Self {
            client,
            outlives_ranks,
            calls: Calls::default(),
            lanes: vec![Lane::new(FIRST)],
            generation: 0,
            phase: Phase::Opening,
            replaced: SessionId(0),
            lost_stamp: Arc::default(),
            recalled: 0,
            loss: None,
            now: Mono(0),
            late: Arc::default(),
            timer_wakes: Mono(u64::MAX),
            stop: false,
            counts: Counts::default(),
            out: Vec::new(),
        }
    }

    /// That rank's lane, if it was ever needed.
    fn place_of(&self, rank: RankId) -> Option<usize> {
        self.lanes.iter().position(|lane| lane.rank == rank)
    }

    pub(crate) fn lane(&mut self, rank: RankId) -> Option<&mut Lane> {
        self.lanes.iter_mut().find(|lane| lane.rank == rank)
    }

    /// One input. `settle` must follow before the mutex is let go.
    pub(crate) fn step(&mut self, now: Now, input: Input, turn: &mut Turn) {
        self.now = now.mono;
        let mut lost = false;
        let mut out = std::mem::take(&mut self.out);
        self.client.step(now, input, &mut out);
        for output in out.drain(..) {
            match output {
                Output::Send { rank, message } => {
                    let Some(lane) = self.lanes.iter_mut().find(|lane| lane.rank == rank) else { continue };
                    self.counts.count(&message, &mut lane.counted);
                    let awaited = !(message.is_performed() || turn.unawaited && is_release(&message));
                    lane.push(message, awaited);
                }
                Output::Answer { call, outcome, validity } => {
                    if let Some((done, asked)) = self.calls.take(call) {
                        turn.done.push((done, outcome, Validity { asked, ..validity }));
                    }
                }
                Output::Connect { rank } => self.wants(rank, turn),
                Output::Disconnect { rank } => self.needs_no_more(rank, turn),
                Output::Ready { rank } => self.is_ready(rank, turn),
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
                    self.is_late(LateError { kind, name, inos, errno }, turn);
                }
                Output::BytesLost { inos, others } => {
                    let errno = Errno::EIO;
                    self.is_late(LateError { kind: Kind::WRITE, name: None, inos, errno }, turn);
                    if others {
                        self.late.add_others(errno);
                    }
                }
                Output::Refused { reason } => self.is_refused(reason, turn),
                // The router asks elsewhere by itself.
                Output::Bounced { .. } => {}
                Output::Closed => {
                    self.phase = Phase::Closed;
                    turn.phase_changed = true;
                }
            }
        }
        self.out = out;
        if lost {
            self.tell_hung(turn);
        }
    }

    fn is_late(&mut self, late: LateError, turn: &mut Turn) {
        self.late.add(&late);
        self.counts.late += 1;
        turn.late.push(late);
    }

    fn wants(&mut self, rank: RankId, turn: &mut Turn) {
        match self.lane(rank) {
            // What is left of the connection before was for a part of the session that is over.
            Some(lane) if !lane.wanted => {
                lane.wanted = true;
                turn.close.extend(lane.cut());
            }
            Some(_) => {}
            None => self.lanes.push(Lane::new(rank)),
        }
        turn.wake_link = true;
    }

    fn needs_no_more(&mut self, rank: RankId, turn: &mut Turn) {
        let goes_on = self.client.has(rank);
        let Some(lane) = self.lane(rank) else { return };
        lane.wanted = false;
        if !goes_on {
            // Should the rank be needed again that is nothing that goes on.
            lane.tracker = SessionTracker::of(rank);
        }
        turn.close.extend(lane.cut());
    }

    /// The session with a rank stands.
    fn is_ready(&mut self, rank: RankId, turn: &mut Turn) {
        let (session, now) = (self.client.session(), self.now);
        if self.phase == Phase::Opening {
            self.phase = Phase::Ready;
            turn.phase_changed = true;
        }
        let Some(lane) = self.lane(rank) else { return };
        let event = lane.tracker.welcomed(session, now);
        // Each rank joins it; it is told once.
        let again = matches!(event, Some(SessionEvent::Replaced { .. })) && self.replaced == session;
        if matches!(event, Some(SessionEvent::Replaced { .. })) {
            self.replaced = session;
        }
        turn.tell(event.filter(|_| !again), session, rank);
    }

    fn is_refused(&mut self, reason: String, turn: &mut Turn) {
        let (session, now) = (self.client.session(), self.now);
        let ended: Vec<_> = self
            .lanes
            .iter_mut()
            .filter_map(|lane| Some((lane.tracker.ended(reason.clone(), now)?, lane.rank)))
            .collect();
        if let Some((event, rank)) = ended.into_iter().next() {
            turn.tell(Some(event), session, rank);
        }
        self.phase = Phase::Refused(reason);
        turn.phase_changed = true;
    }

    /// What was kept is void although connections stand: a lease ran out, of those whose rank is silent.
    fn tell_hung(&mut self, turn: &mut Turn) {
        let (session, now) = (self.client.session(), self.now);
        for lane in &mut self.lanes {
            if self.client.is_hung(lane.rank) {
                turn.tell(lane.tracker.hung(now), session, lane.rank);
            }
        }
    }

    /// Messages of connection `generation` to a rank; those of an older one are void.
    pub(crate) fn receive(
        &mut self,
        now: Now,
        (rank, generation): (RankId, u64),
        batch: Vec<ServerMsg>,
        turn: &mut Turn,
    ) {
        for message in batch {
            let session = self.client.session();
            let Some(at) = self.place_of(rank).filter(|at| self.lanes[*at].is_on(generation)) else { return };
            turn.tell(self.lanes[at].tracker.heard(now.mono), session, rank);
            let refused = match &message {
                ServerMsg::Refused { errno, reason } => Some((Errno(*errno as i32), reason.clone())),
                _ => None,
            };
            let damaged = message == ServerMsg::Damaged;
            self.step(now, Input::Message { rank, message }, turn);
            if damaged {
                turn.tell(self.lanes[at].tracker.damaged(now.mono), session, rank);
            }
            let Some((errno, why)) = refused.filter(|_| !self.is_ended()) else { continue };
            if errno == Errno::ESTALE {
                turn.tell(Some(SessionEvent::Rejected { why: why.clone() }), session, rank);
            }
            self.lanes[at].said = Some(why);
        }
    }

    /// The connection to a rank is gone, and the session is not over by that.
    fn tell_lost(&mut self, at: usize, session: SessionId, turn: &mut Turn) {
        let said = self.lanes[at].said.take();
        if self.phase == Phase::Ready {
            turn.tell(self.lanes[at].tracker.lost(said, self.now), session, self.lanes[at].rank);
        }
    }

    /// Connection `generation` to a rank is gone.
    pub(crate) fn lost(&mut self, now: Now, (rank, generation): (RankId, u64), turn: &mut Turn) {
        let Some(at) = self.place_of(rank) else { return };
        let lane = &mut self.lanes[at];
        lane.broken = lane.broken.max(generation);
        if lane.is_on(generation) {
            lane.link = None;
            self.step(now, Input::Disconnected { rank }, turn);
            self.tell_lost(at, self.client.session(), turn);
            turn.wake_link = true;
        }
    }

    /// Ends a turn: decides what leaves on the links and whom to wake.
    pub(crate) fn settle(&mut self, turn: &mut Turn) {
        for at in 0..self.lanes.len() {
            self.settle_lane(at, turn);
        }
        turn.wake_loss_thread |= self.loss.is_some();
    }

    fn settle_lane(&mut self, at: usize, turn: &mut Turn) {
        let lane = &mut self.lanes[at];
        let parting = !lane.wanted && lane.link.is_some();
        let linked = self.client.is_linked(lane.rank) || parting;
        let messages = lane.leaves(linked && self.outlives_ranks, self.now);
        if parting && messages.is_empty() && lane.is_idle() {
            return turn.close.extend(lane.cut());
        }
        if !linked && let Some(port) = lane.cut() {
            turn.close.push(port);
            turn.wake_link = true;
            let session = lane.tracker.state().session;
            self.tell_lost(at, session, turn);
        }
        // Without a link they are void: the machine repeats them after the next Hello.
        if let Some(link) = &mut self.lanes[at].link
            && let Some(dispatch) = link.plan(messages)
        {
            turn.dispatches.push(dispatch);
        }
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

    /// How the session is: as with the rank with which it is worst.
    pub(crate) fn state(&self) -> SessionState {
        let states = self.lanes.iter().filter(|lane| lane.wanted).map(|lane| lane.tracker.state());
        let opened = states.filter(|state| state.session != SessionId(0));
        opened.max_by_key(|state| state.status.badness()).cloned().unwrap_or_default()
    }

    /// When to tick, if the timer goes off later. From here on it is taken to go off then.
    pub(crate) fn sets_timer(&mut self) -> Option<Mono> {
        // Whoever stops rings: set again after that, the timer would not go off.
        let at = self.deadline().filter(|at| *at < self.timer_wakes && !self.stop)?;
        self.timer_wakes = at;
        Some(at)
    }

    /// When to tick.
    pub(crate) fn deadline(&self) -> Option<Mono> {
        let coalesced = self.lanes.iter().filter_map(|lane| lane.coalesce_until);
        self.client.deadline().into_iter().chain(coalesced).min()
    }

    /// Whether no session will ever be again.
    pub(crate) const fn is_ended(&self) -> bool {
        matches!(self.phase, Phase::Refused(_) | Phase::Closed)
    }

    /// From when on it makes sense to connect to a rank (again).
    pub(crate) fn wants_link(&mut self, rank: RankId) -> Option<Mono> {
        if self.stop || self.is_ended() {
            return None;
        }
        self.lane(rank).filter(|lane| lane.wanted && lane.link.is_none()).map(|lane| lane.retry.at)
    }

    /// A rank to which no thread connects yet; from here on one does.
    pub(crate) fn wants_keeper(&mut self) -> Option<RankId> {
        let lane = self.lanes.iter_mut().find(|lane| !lane.kept)?;
        lane.kept = true;
        Some(lane.rank)
    }
}
