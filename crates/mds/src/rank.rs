//! The rank: one input in, planned operations run, what became durable released, bytes appended.
//!
//! Absent: what operations do (`ops/`), how records change (`apply.rs`).

use crate::cache::node;
use crate::checkpoint::Checkpoint;
use crate::config::{RankConfig, State};
use crate::early::{self, Committed};
use crate::hold::{Held, Waiting};
use crate::input::{ConnId, Input, Tag};
use crate::journal::Journal;
use crate::load::Loads;
use crate::meter::Meter;
use crate::op::{Claim, Effects, Next, Op, OpId, Park, Plan, Stop, Syncing, Waits};
use crate::ops;
use crate::output::Output;
use crate::pace::Pace;
use crate::perm;
use crate::recent::Recent;
use crate::session::{Admitted, Conn, Sessions};
use crate::view::{Found, View};
use crate::warm::Warm;
use proto::message::{ClientMsg, Told};
use proto::reply::Reply;
use proto::request::{Request, open_flags};
use proto::storeio::DataOp;
use proto::{Cred, Errno, Ino, Position, SessionId, Tid, Writer};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use stdx::time::MS;
use stdx::{Machine, Mono, Now, Outbox, Wall};

/// Parked operations run per step.
const RUN_MAX: usize = 256;
/// Clean entries looked at per step of a `DropCache`.
const DROP_SLICE: u32 = 2048;
/// Between two looks at how much memory capabilities take.
const CAPS_LOOK_NS: u64 = 10 * MS;

/// The rank's own data operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inner {
    Cut { ino: Ino, seq: u32 },
    Remove,
    CloseSync(Syncing),
    Checkpoint,
    Replay,
}

/// A data operation under way.
#[derive(Debug)]
pub(crate) enum Pending {
    Op(Box<Op>, Claim, Next),
    Inner(Inner),
}

/// The rank machine.
pub struct Rank {
    pub(crate) state: State,
    pub(crate) view: View,
    pub(crate) journal: Journal,
    pub(crate) held: Held,
    pub(crate) loads: Loads,
    pub(crate) sessions: Sessions,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) parked: BTreeMap<OpId, Box<Op>>,
    /// Parked operations that may go on.
    pub(crate) runnable: VecDeque<OpId>,
    /// Waiting for inode numbers; for the end of the reconnect window.
    pub(crate) ino_waiters: Vec<OpId>,
    pub(crate) window: Vec<OpId>,
    /// For other clients of the life before to settle.
    pub(crate) settling: Vec<OpId>,
    /// Sessions of the life before that may have been answered early, until each has presented what it was told; and who waits
    /// for that.
    pub(crate) presenting: BTreeSet<SessionId>,
    pub(crate) after_presented: Vec<OpId>,
    /// Numbers that they gave out: nobody else may.
    pub(crate) presented_inos: BTreeSet<Ino>,
    pub(crate) recent: Recent,
    /// Of the operation at hand, between its commit and its answer.
    pub(crate) committed: Option<Committed>,
    /// The last `Durable` that was told.
    pub(crate) told_durable: Position,
    /// The time of the step, whatever a performed operation was told.
    pub(crate) wall: Wall,
    /// Requests are held back by the driver.
    pub(crate) frozen: bool,
    pub(crate) pace: Pace,
    /// Orphans to be ended.
    pub(crate) purges: VecDeque<Ino>,
    pub(crate) window_end: Option<Mono>,
    /// The window is not prolonged beyond.
    pub(crate) window_limit: Mono,
    /// It was reached, and prolonged once; and the same for those who still present.
    pub(crate) window_doubted: bool,
    pub(crate) presenting_doubted: bool,
    /// Inodes that an answer of a former life may have opened, until it is known whether its client got it.
    pub(crate) kept: BTreeMap<(SessionId, Tid), Ino>,
    /// Data operations without an answer, but for removals of the rank's own: those are only unconfirmed.
    pub(crate) pending: BTreeMap<u64, Pending>,
    /// Journaled cuts and removals that the data store has not confirmed: journal end by tag (both grow).
    pub(crate) unconfirmed: BTreeMap<u64, Position>,
    pub(crate) boot_tag: Option<u64>,
    pub(crate) boot_durable: bool,
    pub(crate) replay_data: u64,
    pub(crate) replay_at: Position,
    pub(crate) replayed: u64,
    /// Among them was one of an inode: file data may have been lost with it.
    pub(crate) replayed_files: bool,
    pub(crate) stopped: bool,
    pub(crate) full_until: Mono,
    drop_left: u32,
    /// What is noted of clients, and when to look again.
    caps_bytes: u64,
    caps_look: Mono,
    next_tag: u64,
    next_op: OpId,
    last: Mono,
    /// Encoded outcome of the transaction at hand.
    pub(crate) result: Writer,
    pub(crate) parks: u64,
    pub(crate) meter: Meter,
    pub(crate) warm: Warm,
}

impl Rank {
    /// A rank that has not booted.
    #[must_use]
    pub fn new(config: RankConfig) -> Self {
        let meter = Meter::new(config.complaint_ns);
        Self {
            state: State::Boot,
            view: View::new(config),
            journal: Journal::default(),
            held: Held::default(),
            loads: Loads::default(),
            sessions: Sessions::default(),
            checkpoint: Checkpoint::default(),
            parked: BTreeMap::new(),
            runnable: VecDeque::new(),
            ino_waiters: Vec::new(),
            window: Vec::new(),
            settling: Vec::new(),
            presenting: BTreeSet::new(),
            after_presented: Vec::new(),
            presented_inos: BTreeSet::new(),
            recent: Recent::default(),
            committed: None,
            told_durable: Position(0),
            wall: Wall::default(),
            frozen: false,
            pace: Pace::default(),
            purges: VecDeque::new(),
            window_end: None,
            window_limit: Mono(0),
            window_doubted: false,
            presenting_doubted: false,
            kept: BTreeMap::new(),
            pending: BTreeMap::new(),
            unconfirmed: BTreeMap::new(),
            boot_tag: None,
            boot_durable: false,
            replay_data: 0,
            replay_at: Position(0),
            replayed: 0,
            replayed_files: false,
            stopped: false,
            full_until: Mono(0),
            drop_left: 0,
            caps_bytes: 0,
            caps_look: Mono(0),
            next_tag: 0,
            next_op: 0,
            last: Mono(0),
            result: Writer::new(),
            parks: 0,
            meter,
            warm: Warm::default(),
        }
    }

    pub(crate) fn new_tag(&mut self) -> u64 {
        self.next_tag += 1;
        self.next_tag
    }

    // ---- operations

    fn request(
        &mut self,
        now: Now,
        (conn, id): (ConnId, SessionId),
        (tid, floor): (Tid, Tid),
        (cred, told, mut request): (Cred, Option<Told>, Request),
        out: &mut Outbox<Output>,
    ) {
        let Some(session) = self.sessions.map.get_mut(&id) else {
            self.refuse(conn, Errno::EPROTO, "no session on this connection", out);
            return;
        };
        // Nobody waits for the answer below its own floor: what it has at the rank would be forgotten under its hands.
        if floor > tid {
            return self.refuse(conn, Errno::EPROTO, "a floor above the request that says it", out);
        }
        if told.is_some() && !early::is_eager(session) {
            let reason =
                "only a session that is answered early and may act for anyone performs requests by itself";
            return self.refuse(conn, Errno::EPROTO, reason, out);
        }
        if !self.kept.is_empty() {
            self.forget_former(id, floor);
        }
        let Some(session) = self.sessions.map.get_mut(&id) else { return };
        let (embedded, place, check) = (session.embedded, session.place, session.check.clone());
        (session.fresh, session.asked) = (false, now.mono);
        session.traffic.request(now.mono);
        self.meter.traffic.request(now.mono);
        if !embedded && !stdx::mutant!("mds_retry_runs_twice") {
            // What was granted in a former life and never heard of was not presented: it is held no more.
            if matches!(request, Request::SetLock { .. })
                && session.results.get(tid).is_some_and(|r| r.former)
            {
                session.results.remove(tid);
            }
            match session.admit(tid, floor) {
                Admitted::New => {}
                Admitted::Known => return,
                Admitted::Done(result) => return self.answer_again(id, tid, (told, &request), result, out),
            }
        }
        session.in_flight += 1;
        // It was told that it made something: what is there already is not that.
        if let (Request::Create { flags, .. }, Some(told)) = (&mut request, told)
            && told.ino != Ino::NONE
        {
            *flags |= open_flags::EXCL;
        }
        // Its results go into one record of the store: who never moves its floor is stopped before that grows too large.
        let limits = &self.view.config.limits;
        let bounded = session.results.len() < limits.results;
        let crowded =
            session.in_flight > limits.parked_per_session || session.results.len() >= limits.results;
        self.next_op += 1;
        let checked = check.is_some();
        let mut op = Op::new(self.next_op, (id, tid), check.unwrap_or(cred), request, now.mono);
        (op.embedded, op.place, op.check, op.told) = (embedded, place, checked, told);
        self.begin(now, conn, &mut op, (crowded, bounded), out);
    }

    /// Runs a new operation, or refuses it. `bounded`: its session has no more results to be remembered than may be.
    fn begin(
        &mut self,
        now: Now,
        conn: ConnId,
        op: &mut Op,
        (crowded, bounded): (bool, bool),
        out: &mut Outbox<Output>,
    ) {
        if !self.state.serves() {
            let errno = if self.state == State::Damaged { Errno::EIO } else { Errno::ESHUTDOWN };
            return self.answer(op, Err(errno), false, out);
        }
        if crowded && op.told.is_none() {
            return self.answer(op, Err(Errno::EBUSY), false, out);
        }
        if op.told.is_some() && !bounded {
            // They go into one record of the store. An honest client stays far below.
            let reason = "more results are to be remembered than may be";
            return self.refuse(conn, Errno::EPROTO, reason, out);
        }
        if op.told.is_some()
            && let Some(session) = self.sessions.map.get_mut(&op.session)
        {
            session.performing = Some(op.id);
        }
        self.run(now, op, out);
    }

    pub(crate) fn count_open(&mut self, ino: Ino, session: SessionId, rights: u32) {
        self.view.files.open(ino, session, 1, rights, rights & perm::WRITE != 0);
        self.view.cache.flag(ino, node::BUSY, 0);
    }

    /// Plans an operation and does what planning came to.
    fn run(&mut self, now: Now, op: &mut Op, out: &mut Outbox<Output>) {
        // It may have come before its session had a place.
        if op.place.is_none()
            && let Some(session) = self.sessions.map.get(&op.session)
        {
            op.place = session.place;
        }
        if let Some(errno) = op.failed.take() {
            return self.answer(op, Err(errno), false, out);
        }
        if let Request::Release { node, count } = &op.request {
            let (ino, count) = (node.ino, *count);
            return self.release(op, ino, count, out);
        }
        if self.must_wait_for_presented(op) {
            return self.park(op, Park::Presented);
        }
        if self.must_wait(op.id, &op.request) {
            return self.park(op, Park::Journal);
        }
        if self.must_settle(op) {
            return self.park(op, Park::Settled);
        }
        if let Some(needs) = self.entrusted_in_the_way(op).or_else(|| self.alone_in_the_way(op)) {
            return self.park(op, Park::Caps(needs));
        }
        if let Some(outcome) = self.rewrite_outcome(op) {
            return self.answer(op, outcome, false, out);
        }
        match self.told_number(op) {
            Ok(number) => self.view.given = number,
            Err(errno) => return self.answer(op, Err(errno), false, out),
        }
        let now = self.told_now(now, op);
        self.plan_now(now, op, out);
        self.view.given = None;
        self.view.now.wall = self.wall;
    }

    fn plan_now(&mut self, now: Now, op: &mut Op, out: &mut Outbox<Output>) {
        self.view.now = now;
        let mut request = std::mem::replace(&mut op.request, Request::StatFs);
        let planned = ops::plan(&mut self.view, op, &mut request);
        op.request = request;
        if let Some(needs) = self.entrusted_not_empty(op, &planned).or_else(|| self.alone_shown(op, &planned))
        {
            return self.settle_plan(now, op, Err(Stop::Park(Park::Caps(needs))), out);
        }
        let needs = match &planned {
            Ok(Plan::Commit(_, effects)) => self.in_the_way(op, effects.open, true),
            Ok(Plan::Answer(Ok(_), effects)) if effects.open.is_some() => {
                self.in_the_way(op, effects.open, false)
            }
            _ => None,
        };
        if let Some(needs) = needs {
            return self.settle_plan(now, op, Err(Stop::Park(Park::Caps(needs))), out);
        }
        if matches!(planned, Ok(Plan::Commit(..))) {
            self.own_name_goes(op);
            self.own_files_move(op);
        }
        self.settle_plan(now, op, planned, out);
    }

    pub(crate) fn settle_plan(
        &mut self,
        now: Now,
        op: &mut Op,
        planned: Found<Plan>,
        out: &mut Outbox<Output>,
    ) {
        match planned {
            Ok(Plan::Answer(outcome, effects)) => {
                self.effects(op, effects);
                self.answer(op, outcome, effects.remember, out);
            }
            Ok(Plan::Commit(reply, effects)) => {
                let outcome = Ok(reply);
                self.commit_for(now, op, &outcome, out);
                self.effects(op, effects);
                self.answer(op, outcome, false, out);
                self.committed = None;
            }
            Ok(Plan::Data(data, claim, next)) => {
                self.view.files.claim(claim);
                for ino in claimed_inos(claim).into_iter().flatten() {
                    self.view.cache.flag(ino, node::BUSY, 0);
                }
                let tag = self.new_tag();
                op.waits = Waits::Data;
                self.pending.insert(tag, Pending::Op(op.take(), claim, next));
                // What changes bytes carries the file's cut out, and that may be of a transaction just made: a crash that
                // takes it back must not find the bytes gone.
                let cutting = next.changed().is_some_and(|(ino, _)| {
                    self.view.files.get(ino).is_some_and(|file| file.cutting)
                        && !stdx::mutant!("mds_write_before_cut")
                });
                if cutting || matches!(next, Next::CutDone { .. }) {
                    self.hold(Waiting::Data { op: data, tag });
                } else {
                    out.push(Output::Data { tag: Tag(tag), op: data });
                }
            }
            Ok(Plan::Durable(reply)) => self.answer_durable(op, Ok(reply), out),
            Ok(Plan::Queued) => {
                self.parks += 1;
                op.waits = Waits::Lock;
                self.parked.insert(op.id, op.take());
            }
            Err(Stop::Fail(errno)) => {
                self.view.txn.clear();
                self.answer(op, Err(errno), false, out);
            }
            Err(Stop::Park(park)) => {
                self.view.txn.clear();
                self.park(op, park);
            }
        }
    }

    fn park(&mut self, op: &mut Op, park: Park) {
        self.parks += 1;
        op.waits = Waits::from(&park);
        // Who waits for the journal or for capabilities has claimed nothing: it keeps its place at the file.
        op.woken &= matches!(park, Park::Journal | Park::Caps(_));
        // A stretch of a listing is right with what the cache knew when it came: names that go later it does not remember for long.
        if !stdx::mutant!("mds_old_stretch") {
            op.scan = None;
        }
        let id = op.id;
        match park {
            Park::Load(key) => self.wait_for_load(id, key),
            Park::File(ino) => self.view.files.get_mut(ino).queue.push_back(id),
            Park::Inos => self.ino_waiters.push(id),
            Park::Window => self.window.push(id),
            Park::Caps(needs) => self.wait_for_caps(op, &needs),
            Park::Settled => self.settling.push(id),
            Park::Presented => self.after_presented.push(id),
            Park::Journal => drop(self.pace.waiting.insert(id)),
        }
        self.parked.insert(id, op.take());
    }

    fn effects(&mut self, op: &Op, effects: Effects) {
        if let Some((ino, rights)) = effects.open {
            self.count_open(ino, op.session, rights);
        }
        if let Some(ino) = effects.truncated {
            self.view.files.get_mut(ino).truncated = true;
        }
        if let Some(ino) = effects.orphan {
            self.settle(ino);
        }
    }

    fn release(&mut self, op: &Op, ino: Ino, count: u32, out: &mut Outbox<Output>) {
        let open = self.view.files.close(ino, op.session, count);
        if !open && let Some(file) = self.view.files.existing(ino) {
            let written = std::mem::take(&mut file.truncated);
            let slot = self.view.cache.by_ino(ino).filter(|_| written);
            if let Some(found) = slot.map(|s| self.view.cache.node(s)).filter(|n| n.has(node::WRITTEN)) {
                let (file, syncing) = (crate::txn::file_id(&found.core), self.view.syncing(&found.core));
                self.view.files.claim(Claim::User(ino));
                self.internal_data(DataOp::Sync { file }, Inner::CloseSync(syncing), out);
            }
        }
        self.closed_alone(op, ino);
        self.settle(ino);
        self.answer(op, Ok(Reply::Ok), true, out);
    }

    // ---- the turn

    #[inline]
    fn message(&mut self, now: Now, conn: ConnId, message: ClientMsg, out: &mut Outbox<Output>) {
        // What was still on its way when the connection ended: nobody is there to be answered.
        let Some(session) = self.sessions.conns.get(&conn).map(|c| c.session) else { return };
        let Some(id) = session else { return self.handle(now, (conn, None), message, out) };
        // Who says anything is there, also who stands in line.
        self.renew(now, id);
        if self.sessions.map.get(&id).is_some_and(|session| session.is_in_line()) {
            return self.in_line(now, (conn, id), message, out);
        }
        self.handle(now, (conn, Some(id)), message, out);
    }

    #[inline]
    pub(crate) fn handle(
        &mut self,
        now: Now,
        (conn, session): (ConnId, Option<SessionId>),
        message: ClientMsg,
        out: &mut Outbox<Output>,
    ) {
        match (message, session) {
            (ClientMsg::Request { tid, floor, cred, request }, Some(id)) => {
                self.request(now, (conn, id), (tid, floor), (cred, None, request), out);
            }
            (ClientMsg::Hello { protocol, session, info, wants }, _) => {
                self.hello(now, conn, (protocol, session), (info, wants), out);
            }
            (ClientMsg::Admin { .. }, _) => {}
            (_, None) => self.refuse(conn, Errno::EPROTO, "no session on this connection", out),
            (ClientMsg::Cancel { tid }, Some(id)) => self.cancel(id, tid, out),
            (ClientMsg::Renew { number }, Some(id)) => self.renewed(now, id, number, out),
            (ClientMsg::Reclaim { node, count, writes, locks }, Some(id)) => {
                self.reclaim(id, node, (count, writes), &locks, out);
            }
            (ClientMsg::Reclaimed, Some(id)) => self.reclaimed(id, out),
            (ClientMsg::Returned { list }, Some(id)) => self.returned(id, &list),
            (ClientMsg::Idle { list }, Some(id)) => self.idle(id, &list),
            (ClientMsg::Settled, Some(id)) => self.settled(id),
            (ClientMsg::Performed { tid, floor, cred, told, request }, Some(id)) => {
                self.request(now, (conn, id), (tid, floor), (cred, Some(told), request), out);
            }
            (ClientMsg::Presented, Some(id)) => self.presented(id),
            (ClientMsg::Goodbye, Some(id)) => self.end_session(now, id, out),
        }
    }

    #[inline(always)]
    fn answer_granted(&mut self, out: &mut Outbox<Output>) {
        while let Some(id) = self.view.locks.granted.pop() {
            if let Some(op) = self.parked.remove(&id) {
                self.answer(&op, Ok(Reply::Ok), true, out);
            }
        }
    }

    fn run_parked(&mut self, now: Now, out: &mut Outbox<Output>) {
        for _ in 0..RUN_MAX {
            let Some(id) = self.runnable.pop_front() else { return };
            self.plan_again(now, id, out);
        }
    }

    /// Plans a parked operation again.
    pub(crate) fn plan_again(&mut self, now: Now, id: OpId, out: &mut Outbox<Output>) {
        let Some(mut op) = self.parked.remove(&id) else { return };
        if self.sessions.map.get(&op.session).is_none_or(|session| session.evicted) {
            self.unpin(&op);
        } else if self.state.serves() {
            self.run(now, &mut op, out);
        } else {
            self.answer(&op, Err(Errno::ESHUTDOWN), false, out);
        }
    }

    fn evict(&mut self) {
        self.shed_caps();
        // What is noted of clients counts as cache, up to half of it.
        let limit = self.view.config.cache_bytes;
        let limit = limit - self.caps_bytes.min(limit / 2);
        // A page of names takes the place of as many: the hand passes some that were used.
        let brought = std::mem::take(&mut self.view.cache.brought);
        if self.drop_left > 0 {
            let slice = self.drop_left.min(DROP_SLICE);
            self.drop_left -= slice;
            self.view.cache.evict(slice, 0);
        } else if self.view.cache.bytes() > limit {
            let budget = self.view.config.limits.evict.max(brought.saturating_mul(2));
            self.view.cache.evict(budget, limit - limit / 16);
        }
    }

    /// Now and then it is looked how much is noted of clients: what they were granted long ago goes, and faster where that is what
    /// memory is short of.
    fn shed_caps(&mut self) {
        if self.last < self.caps_look {
            return;
        }
        self.caps_look = self.last.after(CAPS_LOOK_NS);
        self.caps_bytes = self.view.book.bytes();
        let limit = self.view.config.cache_bytes;
        self.view.book.age(self.view.config.limits.caps_per_client, self.last);
        if self.caps_bytes > limit / 16 && self.view.cache.bytes() + self.caps_bytes > limit {
            self.view.book.shed(self.last);
        }
    }

    /// What is given back may be held back with what came before it: who owes something has a full lease again.
    fn freeze(&mut self, now: Now, frozen: bool) {
        self.frozen = frozen;
        let end = now.mono.after(self.view.config.lease_ns);
        self.sessions
            .map
            .values_mut()
            .filter_map(|session| session.return_end.as_mut())
            .for_each(|at| *at = end);
    }

    fn tick(&mut self, now: Now, out: &mut Outbox<Output>) {
        self.expire(now, out);
        if self.window_end.is_some_and(|end| end <= now.mono) {
            self.window_over(now, out);
        }
        self.fade(now, out);
        if !self.presenting.is_empty() && self.window_limit <= now.mono {
            self.presenting_over(now);
        }
        if self.state == State::Active && self.presenting.is_empty() && self.window_limit <= now.mono {
            self.view.tail.end();
        }
        self.quiet(now, out);
        if self.view.full && self.full_until <= now.mono {
            self.view.full = false;
        }
        self.journal.mark_if_idle(now);
    }

    /// The end of every step: what became runnable runs, what became durable goes out.
    fn turn(&mut self, now: Now, out: &mut Outbox<Output>) {
        if self.state == State::Damaged || self.journal.failed {
            return;
        }
        self.release_held(out);
        self.tell_durable(out);
        self.activate_if_ready(now, out);
        if self.state.serves() || self.state == State::Stopping {
            self.answer_granted(out);
            self.caps_turn(out);
            self.run_parked(now, out);
            self.run_lines(now, out);
            self.let_go(now, out);
            self.answer_granted(out);
            self.close_slice();
            self.purge_slice(now, out);
            self.refill_inos(now, out);
            self.warm_turn();
            self.checkpoint_turn(now, out);
            self.caps_turn(out);
        }
        self.evict();
        self.issue_loads(out);
        // A reply that waited for nothing more goes in this step, not the next.
        if self.held.ready(self.journal.durable) {
            self.release_held(out);
        }
        self.tell_durable(out);
        self.journal.flush(out);
    }

    fn stop(&mut self, out: &mut Outbox<Output>) {
        self.warm_from(None);
        match self.state {
            State::Reconnect | State::Active => {
                self.state = State::Stopping;
                self.pace.waiting.clear();
                let waiting: Vec<OpId> = self.parked.keys().copied().collect();
                self.runnable.extend(waiting);
            }
            // Nothing was served: the tail is as good as it was.
            State::Boot | State::Replay => {
                self.state = State::Stopped;
                out.push(Output::Stopped);
            }
            State::Damaged | State::Stopped => out.push(Output::Stopped),
            State::Stopping => {}
        }
    }
}

/// The inodes of a claim.
pub(crate) fn claimed_inos(claim: Claim) -> [Option<Ino>; 2] {
    match claim {
        Claim::None => [None, None],
        Claim::User(ino) | Claim::Shared(ino) | Claim::Exclusive(ino) => [Some(ino), None],
        Claim::Copy { source, target } => [Some(source), Some(target)],
    }
}

impl Machine for Rank {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, now: Now, input: Input, out: &mut Outbox<Output>) {
        self.view.now = now;
        (self.last, self.wall) = (now.mono, now.wall);
        match input {
            Input::Boot => self.boot(out),
            Input::Replay { position, entries } => self.replay(position, &entries, out),
            Input::ReplayEnd { end } => self.replay_end(now, end, out),
            Input::ReplayFailed(error) => self.damage(error.to_string(), out),
            Input::Connected { conn, peer } => {
                self.sessions.conns.insert(conn, Conn { peer, session: None });
            }
            Input::Disconnected { conn } => self.disconnected(now, conn, out),
            Input::Message { conn, message } => self.message(now, conn, message, out),
            Input::Durable(position) => self.journal.durable = self.journal.durable.max(position),
            Input::JournalFailed(error) => {
                self.journal.failed = true;
                self.damage(format!("journal: {error}"), out);
            }
            Input::Loaded { tag, results } => {
                if self.boot_tag == Some(tag.0) && self.state == State::Boot {
                    self.boot_loaded(results, out);
                } else {
                    self.loaded(now, tag.0, results, out);
                }
            }
            Input::Stored { tag, result } => self.stored(now, tag.0, result, out),
            Input::DataDone { tag, result } => self.data_done(now, tag.0, result, out),
            Input::Tick => self.tick(now, out),
            Input::Checkpoint => self.checkpoint.wanted = true,
            Input::Warmup { dir } => self.warm_from(dir),
            Input::DropCache => self.drop_left = self.view.cache.clean().saturating_mul(2),
            Input::Space { full } => {
                if full && !self.view.disk_full {
                    self.view.book.take_back();
                }
                self.view.disk_full = full;
                self.view.full &= full;
            }
            Input::Frozen(frozen) => self.freeze(now, frozen),
            Input::Evict { session } => self.evict_session(now, session, "an operator ended it", out),
            Input::Stop => self.stop(out),
        }
        self.turn(now, out);
    }

    fn deadline(&self) -> Option<Mono> {
        if self.state == State::Damaged || self.journal.failed || self.state == State::Stopped {
            return None;
        }
        let busy = !self.runnable.is_empty()
            || !self.sessions.lines.is_empty()
            || self.view.book.takes_back()
            || self.drop_left > 0
            || !self.purges.is_empty()
            || self.sessions.busy_closing()
            || self.held.ready(self.journal.durable)
            || self.may_let_go()
            || (self.state.serves() && self.warm.may_go_on());
        let full = self.view.full.then_some(self.full_until);
        let serving = self.state.serves() || self.state == State::Stopping;
        let times = [
            busy.then_some(self.last),
            self.journal.mark_due(),
            self.sessions.expiry().filter(|_| self.state.serves()),
            self.window_end,
            self.sessions.former_end,
            (!self.presenting.is_empty()).then_some(self.window_limit),
            self.sessions.quiet_due.filter(|_| self.state == State::Active),
            self.sessions.fading.iter().map(|fading| fading.until).min(),
            full,
            self.checkpoint_due().filter(|_| serving),
        ];
        times.into_iter().flatten().min()
    }
}
