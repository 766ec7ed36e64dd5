//! The rank: one input in, planned operations run, what became durable released, bytes appended.
//!
//! Absent: what operations do (`ops/`), how records change (`apply.rs`).

use crate::apply::apply;
use crate::cache::{Cache, Source, node};
use crate::checkpoint::Checkpoint;
use crate::config::{RankConfig, State};
use crate::files::Files;
use crate::hold::{Held, Waiting};
use crate::input::{ConnId, Input, Tag};
use crate::journal::Journal;
use crate::load::Loads;
use crate::locks::Locks;
use crate::op::{Effects, Hold, Next, Op, OpId, Park, Plan, Stop};
use crate::ops::{self, finish};
use crate::output::{Level, Output};
use crate::session::{Conn, Sessions};
use crate::txn::Txn;
use crate::view::{Backptrs, Found, Inos, View};
use proto::journal::TxnOrigin;
use proto::message::{ClientMsg, ServerMsg};
use proto::mutation::Mutation;
use proto::reply::{Outcome, Reply, decode_outcome, encode_outcome};
use proto::request::Request;
use proto::storeio::{DataDone, DataOp, StoreError};
use proto::{Cred, Errno, FileId, Ino, Position, Reader, SessionId, Tid, Writer};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use stdx::time::MS;
use stdx::{Machine, Mono, Now, Outbox};

/// Parked operations run per step.
const RUN_MAX: usize = 256;
/// Held outputs released per step.
const RELEASE_MAX: usize = 4096;
/// After the store said it is full, writes are refused for this long; then one may try.
const FULL_NS: u64 = 500 * MS;
/// Clean entries looked at per step of a `DropCache`.
const DROP_SLICE: u32 = 2048;

/// The rank's own data operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inner {
    Cut { ino: Ino, seq: u32 },
    Remove,
    Purge { ino: Ino },
    CloseSync { ino: Ino, writes: u32 },
    Checkpoint,
    Replay,
}

/// A data operation under way.
#[derive(Debug)]
pub(crate) enum Pending {
    Op(Box<Op>, Hold, Next),
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
    ino_waiters: Vec<OpId>,
    pub(crate) window: Vec<OpId>,
    pub(crate) window_end: Option<Mono>,
    pub(crate) pending: BTreeMap<u64, Pending>,
    /// Journaled cuts and removals that the data store has not confirmed: (journal end, tag).
    pub(crate) unconfirmed: BTreeSet<(Position, u64)>,
    pub(crate) boot_tag: Option<u64>,
    pub(crate) boot_durable: bool,
    pub(crate) replay_data: u64,
    pub(crate) replay_at: Position,
    pub(crate) replayed: u64,
    pub(crate) stopped: bool,
    full_until: Mono,
    drop_left: u32,
    next_tag: u64,
    next_op: OpId,
    last: Mono,
    result: Writer,
    pub(crate) requests: u64,
    pub(crate) parks: u64,
}

impl Rank {
    /// A rank that has not booted.
    #[must_use]
    pub fn new(config: RankConfig) -> Self {
        let view = View {
            txn: Txn::new(config.incarnation),
            config,
            cache: Cache::new(),
            files: Files::default(),
            locks: Locks::default(),
            inos: Inos::default(),
            backptrs: Backptrs::new(),
            backptrs_old: Backptrs::new(),
            full: false,
            disk_full: false,
            reconnecting: false,
            now: Now::default(),
        };
        Self {
            state: State::Boot,
            view,
            journal: Journal::default(),
            held: Held::default(),
            loads: Loads::default(),
            sessions: Sessions::default(),
            checkpoint: Checkpoint::default(),
            parked: BTreeMap::new(),
            runnable: VecDeque::new(),
            ino_waiters: Vec::new(),
            window: Vec::new(),
            window_end: None,
            pending: BTreeMap::new(),
            unconfirmed: BTreeSet::new(),
            boot_tag: None,
            boot_durable: false,
            replay_data: 0,
            replay_at: Position(0),
            replayed: 0,
            stopped: false,
            full_until: Mono(0),
            drop_left: 0,
            next_tag: 0,
            next_op: 0,
            last: Mono(0),
            result: Writer::new(),
            requests: 0,
            parks: 0,
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
        conn: ConnId,
        (tid, floor): (Tid, Tid),
        (cred, request): (Cred, Request),
        out: &mut Outbox<Output>,
    ) {
        let id = self.sessions.conns.get(&conn).and_then(|c| c.session);
        let Some((id, session)) = id.and_then(|id| self.sessions.map.get_mut(&id).map(|s| (id, s))) else {
            self.refuse(conn, Errno::EPROTO, "no session on this connection", out);
            return;
        };
        let (embedded, check) = (session.embedded, session.check.clone());
        session.requests += 1;
        self.requests += 1;
        if !embedded {
            self.renew(now, id);
        }
        let Some(session) = self.sessions.map.get_mut(&id) else { return };
        if !embedded && !stdx::mutant!("mds_retry_runs_twice") {
            match session.admit(tid, floor) {
                Ok(()) => {}
                Err(None) => return,
                Err(Some(result)) => return self.answer_again(id, tid, &request, result, out),
            }
        }
        session.in_flight += 1;
        let crowded = session.in_flight > self.view.config.limits.parked_per_session;
        self.next_op += 1;
        let op = Op {
            id: self.next_op,
            session: id,
            tid,
            embedded,
            check: check.is_some(),
            cred: check.unwrap_or(cred),
            request,
            probe: (Ino::NONE, 0),
            hint: None,
            scan: None,
            failed: None,
            woken: false,
        };
        if !self.state.serves() {
            let errno = if self.state == State::Damaged { Errno::EIO } else { Errno::ESHUTDOWN };
            return self.answer(&op, Err(errno), false, out);
        }
        if crowded {
            return self.answer(&op, Err(Errno::EBUSY), false, out);
        }
        self.run(now, op, out);
    }

    /// A request that was executed already gets its stored result. One from a former life of the rank
    /// opened a file that nobody has counted since.
    fn answer_again(
        &mut self,
        id: SessionId,
        tid: Tid,
        request: &Request,
        (bytes, former): (Box<[u8]>, bool),
        out: &mut Outbox<Output>,
    ) {
        let outcome = decode_outcome(&mut Reader::new(&bytes)).unwrap_or(Err(Errno::EIO));
        let opens = matches!(request, Request::Create { .. } | Request::TmpFile { .. } | Request::Open { .. });
        if former && opens {
            if let Ok(Reply::Created { attr, .. } | Reply::Attr(attr)) = &outcome {
                self.count_open(attr.ino, id);
            }
            if let Some(session) = self.sessions.map.get_mut(&id)
                && let Some(result) = session.results.get_mut(&tid)
            {
                result.1 = false;
            }
        }
        self.send_reply(id, tid, outcome, out);
    }

    fn count_open(&mut self, ino: Ino, session: SessionId) {
        self.view.files.open(ino, session, 1);
        self.view.cache.flag(ino, node::BUSY, 0);
    }

    /// Plans an operation and does what planning came to.
    fn run(&mut self, now: Now, mut op: Op, out: &mut Outbox<Output>) {
        if let Some(errno) = op.failed.take() {
            return self.answer(&op, Err(errno), false, out);
        }
        if let Request::Release { node, count } = &op.request {
            let (ino, count) = (node.ino, *count);
            return self.release(&op, ino, count, out);
        }
        let mut request = std::mem::replace(&mut op.request, Request::StatFs);
        let planned = ops::plan(&mut self.view, &mut op, &mut request);
        op.request = request;
        self.settle_plan(now, op, planned, out);
    }

    fn settle_plan(&mut self, now: Now, op: Op, planned: Found<Plan>, out: &mut Outbox<Output>) {
        match planned {
            Ok(Plan::Answer(outcome, effects)) => {
                self.effects(&op, effects);
                self.answer(&op, outcome, effects.remember, out);
            }
            Ok(Plan::Commit(reply, effects)) => {
                let outcome = Ok(reply);
                self.commit_for(now, &op, &outcome, out);
                self.effects(&op, effects);
                self.answer(&op, outcome, false, out);
            }
            Ok(Plan::Data(data, hold, next)) => {
                self.view.files.hold(hold);
                for ino in held_inos(hold).into_iter().flatten() {
                    self.view.cache.flag(ino, node::BUSY, 0);
                }
                let tag = self.new_tag();
                self.pending.insert(tag, Pending::Op(Box::new(op), hold, next));
                out.push(Output::Data { tag: Tag(tag), op: data });
            }
            Ok(Plan::Durable(reply)) => self.answer_durable(&op, Ok(reply), out),
            Ok(Plan::Queued) => {
                self.parks += 1;
                self.parked.insert(op.id, Box::new(op));
            }
            Err(Stop::Fail(errno)) => {
                self.view.txn.clear();
                self.answer(&op, Err(errno), false, out);
            }
            Err(Stop::Park(park)) => {
                self.view.txn.clear();
                self.park(op, park);
            }
        }
    }

    fn park(&mut self, mut op: Op, park: Park) {
        self.parks += 1;
        op.woken = false;
        let id = op.id;
        match park {
            Park::Load(key) => self.wait_for_load(id, key),
            Park::File(ino) => self.view.files.get_mut(ino).queue.push_back(id),
            Park::Inos => self.ino_waiters.push(id),
            Park::Window => self.window.push(id),
        }
        self.parked.insert(id, Box::new(op));
    }

    fn effects(&mut self, op: &Op, effects: Effects) {
        if let Some(ino) = effects.open {
            self.count_open(ino, op.session);
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
            let writes = file.writes;
            let written = std::mem::take(&mut file.truncated);
            let slot = self.view.cache.by_ino(ino).filter(|_| written);
            if let Some(found) = slot.map(|s| self.view.cache.node(s)).filter(|n| n.has(node::WRITTEN)) {
                let file = crate::txn::file_id(&found.core);
                self.view.files.hold(Hold::User(ino));
                self.internal_data(DataOp::Sync { file }, Inner::CloseSync { ino, writes }, out);
            }
        }
        self.settle(ino);
        self.answer(op, Ok(Reply::Ok), true, out);
    }

    // ---- answers

    /// Answers an operation: the embedded peer at once, others when all that it may depend on is
    /// durable. `remember`: it had an effect that is in no transaction.
    pub(crate) fn answer(&mut self, op: &Op, outcome: Outcome, remember: bool, out: &mut Outbox<Output>) {
        let Some(session) = self.sessions.map.get_mut(&op.session) else { return };
        session.in_flight = session.in_flight.saturating_sub(1);
        if !op.embedded {
            session.running.remove(&op.tid);
            if remember && outcome.is_ok() {
                let mut w = Writer::new();
                encode_outcome(&outcome, &mut w);
                session.results.insert(op.tid, (w.0.into(), false));
            }
        }
        self.send_reply(op.session, op.tid, outcome, out);
    }

    fn answer_durable(&mut self, op: &Op, outcome: Outcome, out: &mut Outbox<Output>) {
        if stdx::mutant!("mds_fsync_not_durable") || !op.embedded || self.journal.end <= self.journal.durable {
            return self.answer(op, outcome, false, out);
        }
        if let Some(session) = self.sessions.map.get_mut(&op.session) {
            session.in_flight = session.in_flight.saturating_sub(1);
        }
        self.hold(Waiting::Reply { session: op.session, tid: op.tid, outcome });
    }

    fn send_reply(&mut self, session: SessionId, tid: Tid, outcome: Outcome, out: &mut Outbox<Output>) {
        let Some(known) = self.sessions.map.get(&session) else { return };
        let early = known.embedded || stdx::mutant!("mds_no_hold_back");
        if early || (self.journal.end <= self.journal.durable && self.held.len() == 0) {
            if let Some(conn) = known.conn {
                out.push(Output::Send { conn, message: ServerMsg::Reply { tid, outcome } });
            }
            return;
        }
        self.hold(Waiting::Reply { session, tid, outcome });
    }

    /// Sends without regard to durability.
    pub(crate) fn send_now(&mut self, id: SessionId, message: ServerMsg, out: &mut Outbox<Output>) {
        if let Some(conn) = self.sessions.map.get(&id).and_then(|s| s.conn) {
            out.push(Output::Send { conn, message });
        }
    }

    /// Sends when everything up to now is durable.
    pub(crate) fn hold_message(&mut self, id: SessionId, message: ServerMsg) {
        if let Some(conn) = self.sessions.map.get(&id).and_then(|s| s.conn) {
            self.hold(Waiting::Message { conn, message });
        }
    }

    /// Keeps something back until everything appended so far is durable, and sees that it becomes so.
    pub(crate) fn hold(&mut self, waiting: Waiting) {
        self.held.push(self.journal.end, waiting);
        self.journal.want_durable();
    }

    // ---- transactions

    /// Journals and applies the planned transaction, with the request's result for a session that may
    /// ask again.
    fn commit_for(&mut self, now: Now, op: &Op, outcome: &Outcome, out: &mut Outbox<Output>) {
        if op.embedded {
            return self.commit(now, None, out);
        }
        let mut result = std::mem::take(&mut self.result);
        result.0.clear();
        encode_outcome(outcome, &mut result);
        if let Some(session) = self.sessions.map.get_mut(&op.session) {
            if let Some(floor) = session.floor_due() {
                Mutation::SessionFloor { id: op.session, floor }.encode(&mut self.view.txn.muts);
            }
            session.results.insert(op.tid, (result.0.as_slice().into(), false));
        }
        let origin = TxnOrigin { session: op.session, tid: op.tid, result: &result.0 };
        self.commit(now, Some(&origin), out);
        self.result = result;
    }

    /// Journals and applies the planned transaction.
    pub(crate) fn commit(&mut self, now: Now, origin: Option<&TxnOrigin<'_>>, out: &mut Outbox<Output>) {
        let muts = std::mem::take(&mut self.view.txn.muts);
        self.journal.transaction(now, origin, &muts.0);
        self.view.inos.next += self.view.txn.inos;
        let applied = apply(&mut self.view, &mut self.sessions, &muts.0, Source::Live);
        self.view.txn.muts = muts;
        self.view.txn.clear();
        match applied {
            Ok(follow) => {
                for (op, cut) in follow {
                    self.follow_up(op, cut);
                }
            }
            Err(error) => self.damage(format!("a transaction of this rank cannot be read: {error}"), out),
        }
    }

    /// Queues a data operation behind its transaction's durability.
    fn follow_up(&mut self, op: DataOp, cut: Option<Ino>) {
        if let Some(ino) = cut {
            self.view.files.get_mut(ino).cutting = true;
            self.view.cache.flag(ino, node::BUSY, 0);
        }
        let tag = self.new_tag();
        let inner = match (&op, cut) {
            (DataOp::Truncate { cut, .. }, Some(ino)) => Inner::Cut { ino, seq: cut.seq },
            _ => Inner::Remove,
        };
        self.pending.insert(tag, Pending::Inner(inner));
        self.unconfirmed.insert((self.journal.end, tag));
        // Nobody waits for it: it goes with the next commit.
        self.held.push(self.journal.end, Waiting::Data { op, tag });
    }

    /// Starts a data operation of the rank's own.
    pub(crate) fn internal_data(&mut self, op: DataOp, inner: Inner, out: &mut Outbox<Output>) {
        let tag = self.new_tag();
        self.pending.insert(tag, Pending::Inner(inner));
        out.push(Output::Data { tag: Tag(tag), op });
    }

    // ---- data

    fn data_done(
        &mut self,
        now: Now,
        tag: u64,
        result: Result<DataDone, StoreError>,
        out: &mut Outbox<Output>,
    ) {
        if matches!(result, Err(StoreError::NoSpace)) {
            self.now_full(now, out);
        }
        match self.pending.remove(&tag) {
            None => {}
            Some(Pending::Inner(inner)) => self.inner_done(now, tag, inner, result, out),
            Some(Pending::Op(op, hold, next)) => {
                let gone = !self.sessions.map.contains_key(&op.session);
                if !gone {
                    self.op_done(now, *op, next, result, out);
                }
                self.end_hold(hold);
            }
        }
    }

    fn end_hold(&mut self, hold: Hold) {
        self.view.files.release(hold);
        for ino in held_inos(hold).into_iter().flatten() {
            self.wake(ino);
            self.settle(ino);
        }
    }

    fn op_done(
        &mut self,
        now: Now,
        mut op: Op,
        next: Next,
        result: Result<DataDone, StoreError>,
        out: &mut Outbox<Output>,
    ) {
        let mut done = match result {
            Ok(done) => done,
            Err(error) => {
                if error != StoreError::NoSpace {
                    let text = format!("data of a request by session {}: {error}", op.session.0);
                    out.push(Output::Note { level: Level::Error, text });
                }
                return self.answer(&op, Err(finish::errno_of(&error)), false, out);
            }
        };
        if let Next::Fsync { ino, writes } | Next::Synced { ino, writes } = next {
            self.synced(now, ino, writes, std::mem::replace(&mut done, DataDone::Done), out);
        }
        match next {
            Next::Synced { .. } => self.again(op),
            Next::CutDone { ino } => {
                self.cut_done(ino, None);
                op.woken = true;
                self.again(op);
            }
            _ => {
                let planned = finish::plan(&mut self.view, &op, next, done);
                self.settle_plan(now, op, planned, out);
            }
        }
    }

    fn again(&mut self, op: Op) {
        self.runnable.push_back(op.id);
        self.parked.insert(op.id, Box::new(op));
    }

    /// A file's data is durable, or is made so by the journal.
    fn synced(&mut self, now: Now, ino: Ino, writes: u32, done: DataDone, out: &mut Outbox<Output>) {
        let Some(slot) = self.view.cache.by_ino(ino) else { return };
        let core = &self.view.cache.node(slot).core;
        let file = FileId { ino, generation: core.generation };
        if let DataDone::Redo { truncate_seq, write_seq, data } = done
            && !stdx::mutant!("mds_redo_not_journaled")
        {
            Mutation::DataRedo { file, truncate_seq, write_seq, data: &data }.encode(&mut self.view.txn.muts);
            self.commit(now, None, out);
        }
        let same = self
            .view
            .files
            .get(ino)
            .is_none_or(|f| f.writes == writes && f.shared == 0 && !f.exclusive);
        if same {
            self.view.cache.flag(ino, node::DATA_CLEAN, node::WRITTEN);
        }
    }

    fn cut_done(&mut self, ino: Ino, seq: Option<u32>) {
        if let Some(slot) = self.view.cache.by_ino(ino) {
            let core = &mut self.view.cache.nodes.get_mut(slot).core;
            if seq.is_none_or(|seq| seq == core.truncate_seq) {
                core.flags &= !proto::inode::flags::CUT_PENDING;
            }
        }
    }

    fn inner_done(
        &mut self,
        now: Now,
        tag: u64,
        inner: Inner,
        result: Result<DataDone, StoreError>,
        out: &mut Outbox<Output>,
    ) {
        if let Err(error) = &result {
            let text = format!("{inner:?}: {error}");
            out.push(Output::Note { level: Level::Warn, text });
        }
        match inner {
            Inner::Cut { ino, seq } => {
                if result.is_ok() {
                    self.cut_done(ino, Some(seq));
                }
                if let Some(file) = self.view.files.existing(ino) {
                    file.cutting = false;
                }
                self.wake(ino);
                self.settle(ino);
                self.confirmed(tag);
            }
            Inner::Remove => {
                self.view.full = false;
                self.confirmed(tag);
            }
            Inner::Purge { ino } => self.purged(now, ino, result.map(|_| ()), out),
            Inner::CloseSync { ino, writes } => {
                if let Ok(done) = result {
                    self.synced(now, ino, writes, done, out);
                }
                self.end_hold(Hold::User(ino));
            }
            Inner::Checkpoint => self.checkpoint_synced(now, result.map(|_| ()), out),
            Inner::Replay => {
                self.replay_data = self.replay_data.saturating_sub(1);
                if let Err(error) = result {
                    self.damage(format!("the journal's tail cannot be carried out: {error}"), out);
                }
            }
        }
    }

    fn confirmed(&mut self, tag: u64) {
        self.unconfirmed.retain(|(_, t)| *t != tag);
    }

    pub(crate) fn now_full(&mut self, now: Now, out: &mut Outbox<Output>) {
        if !self.view.full {
            let text = "no space left: new data refused, unlink still works".to_owned();
            out.push(Output::Note { level: Level::Warn, text });
        }
        self.view.full = true;
        self.full_until = now.mono.after(FULL_NS);
    }

    /// Lets operations that wait for a file plan again, in their order.
    fn wake(&mut self, ino: Ino) {
        let Some(file) = self.view.files.existing(ino) else { return };
        for id in std::mem::take(&mut file.queue) {
            if let Some(op) = self.parked.get_mut(&id) {
                op.woken = true;
                self.runnable.push_back(id);
            }
        }
    }

    // ---- durability

    fn release_held(&mut self, now: Now, out: &mut Outbox<Output>) {
        for _ in 0..RELEASE_MAX {
            let Some(waiting) = self.held.pop(self.journal.durable) else { return };
            match waiting {
                Waiting::Reply { session, tid, outcome } => {
                    if let Some(conn) = self.sessions.map.get(&session).and_then(|s| s.conn) {
                        out.push(Output::Send { conn, message: ServerMsg::Reply { tid, outcome } });
                    }
                }
                Waiting::Message { conn, message } => {
                    if self.sessions.conns.contains_key(&conn) {
                        out.push(Output::Send { conn, message });
                    }
                }
                Waiting::Data { op, tag } => out.push(Output::Data { tag: Tag(tag), op }),
                Waiting::Batches { tag, batches } => out.push(Output::Store { tag: Tag(tag), batches }),
                Waiting::Inos { reserved } => {
                    self.view.inos.usable = reserved;
                    self.runnable.extend(std::mem::take(&mut self.ino_waiters));
                }
                Waiting::Purge { ino } => self.purge(now, ino, out),
                Waiting::Boot => self.boot_durable = true,
            }
        }
    }

    /// Reserves the next block of inode numbers when half of the present one is used.
    pub(crate) fn refill_inos(&mut self, now: Now, out: &mut Outbox<Output>) {
        let block = self.view.config.limits.ino_block;
        let inos = &self.view.inos;
        let half = inos.usable.saturating_sub(inos.next) <= block / 2;
        if !half || inos.reserved > inos.usable || self.state == State::Boot || self.state == State::Damaged {
            if !self.ino_waiters.is_empty() {
                self.journal.want_durable();
            }
            return;
        }
        let next = inos.reserved + block;
        Mutation::InoCounter { rank: self.view.config.rank, next }.encode(&mut self.view.txn.muts);
        self.commit(now, None, out);
        self.held.push(self.journal.end, Waiting::Inos { reserved: next });
    }

    // ---- the turn

    fn message(&mut self, now: Now, conn: ConnId, message: ClientMsg, out: &mut Outbox<Output>) {
        let session = self.sessions.conns.get(&conn).and_then(|c| c.session);
        match (message, session) {
            (ClientMsg::Request { tid, floor, cred, request }, _) => {
                self.request(now, conn, (tid, floor), (cred, request), out);
            }
            (ClientMsg::Hello { protocol, session, info }, _) => {
                self.hello(now, conn, (protocol, session), info, out);
            }
            (ClientMsg::Admin { .. }, _) => {}
            (_, None) => self.refuse(conn, Errno::EPROTO, "no session on this connection", out),
            (ClientMsg::Cancel { tid }, Some(id)) => self.cancel(id, tid, out),
            (ClientMsg::Renew, Some(id)) => self.renew(now, id),
            (ClientMsg::Reclaim { node, count, locks }, Some(id)) => {
                self.renew(now, id);
                self.reclaim(id, node, count, &locks, out);
            }
            (ClientMsg::Reclaimed, Some(id)) => self.reclaimed(id, out),
            (ClientMsg::Shared, Some(id)) => self.shared(id, out),
            (ClientMsg::Goodbye, Some(id)) => self.end_session(now, id, out),
        }
    }

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
            let Some(op) = self.parked.remove(&id) else { continue };
            if !self.sessions.map.contains_key(&op.session) {
                continue;
            }
            if self.state.serves() {
                self.run(now, *op, out);
            } else {
                self.answer(&op, Err(Errno::ESHUTDOWN), false, out);
            }
        }
    }

    fn evict(&mut self) {
        let limit = self.view.config.cache_bytes;
        if self.drop_left > 0 {
            let slice = self.drop_left.min(DROP_SLICE);
            self.drop_left -= slice;
            self.view.cache.evict(slice, 0);
        } else if self.view.cache.bytes() > limit {
            let budget = self.view.config.limits.evict;
            self.view.cache.evict(budget, limit - limit / 16);
        }
    }

    fn tick(&mut self, now: Now, out: &mut Outbox<Output>) {
        self.expire(now, out);
        if self.window_end.is_some_and(|end| end <= now.mono) {
            self.end_window(out);
        }
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
        self.release_held(now, out);
        self.activate_if_ready(now, out);
        if self.state.serves() || self.state == State::Stopping {
            self.answer_granted(out);
            self.run_parked(now, out);
            self.answer_granted(out);
            self.close_slice();
            self.refill_inos(now, out);
            self.checkpoint_turn(now, out);
        }
        self.evict();
        self.issue_loads(out);
        // A reply that waited for nothing more goes in this step, not the next.
        if self.held.ready(self.journal.durable) {
            self.release_held(now, out);
        }
        self.journal.flush(out);
    }

    fn stop(&mut self) {
        if self.state.serves() {
            self.state = State::Stopping;
            let waiting: Vec<OpId> = self.parked.keys().copied().collect();
            self.runnable.extend(waiting);
        }
    }
}

fn held_inos(hold: Hold) -> [Option<Ino>; 2] {
    match hold {
        Hold::None => [None, None],
        Hold::User(ino) | Hold::Shared(ino) | Hold::Exclusive(ino) => [Some(ino), None],
        Hold::Copy { source, target } => [Some(source), Some(target)],
    }
}

impl Machine for Rank {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, now: Now, input: Input, out: &mut Outbox<Output>) {
        self.view.now = now;
        self.last = now.mono;
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
                    self.loaded(tag.0, results, out);
                }
            }
            Input::Stored { tag, result } => self.stored(now, tag.0, result, out),
            Input::DataDone { tag, result } => self.data_done(now, tag.0, result, out),
            Input::Tick => self.tick(now, out),
            Input::Checkpoint => self.checkpoint.wanted = true,
            Input::DropCache => self.drop_left = self.view.cache.clean().saturating_mul(2),
            Input::Space { full } => {
                self.view.disk_full = full;
                self.view.full &= full;
            }
            Input::Evict { session } => self.evict_session(now, session, "an operator ended it", out),
            Input::Stop => self.stop(),
        }
        self.turn(now, out);
    }

    fn deadline(&self) -> Option<Mono> {
        if self.state == State::Damaged || self.journal.failed || self.state == State::Stopped {
            return None;
        }
        let busy = !self.runnable.is_empty()
            || self.drop_left > 0
            || self.sessions.busy_closing()
            || self.held.ready(self.journal.durable);
        let full = self.view.full.then_some(self.full_until);
        let serving = self.state.serves() || self.state == State::Stopping;
        let times = [
            busy.then_some(self.last),
            self.journal.mark_due(),
            self.sessions.expiry().filter(|_| self.state.serves()),
            self.window_end,
            full,
            self.checkpoint_due().filter(|_| serving),
        ];
        times.into_iter().flatten().min()
    }
}

