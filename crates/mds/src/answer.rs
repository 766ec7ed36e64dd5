//! Transactions and answers: journal and apply what was planned, tell the client when it may know, or whom to ask instead.
//!
//! Absent: planning (`ops/`), waiting (`hold.rs`).

use crate::apply::apply;
use crate::cache::{Source, node};
use crate::config::State;
use crate::hold::Waiting;
use crate::input::{ConnId, Tag};
use crate::meter::Asked;
use crate::op::Op;
use crate::output::Output;
use crate::rank::{Inner, Pending, Rank};
use crate::session::StoredResult;
use crate::unheard::{about, opened_by};
use proto::caps::Grants;
use proto::journal::TxnOrigin;
use proto::message::ServerMsg;
use proto::mutation::Mutation;
use proto::reply::{Outcome, Reply, encode_outcome};
use proto::request::Request;
use proto::storeio::DataOp;
use proto::{Effect, Errno, Ino, RankId, SessionId, Writer};
use stdx::{Now, Outbox};

/// Held outputs released per step.
const RELEASE_MAX: usize = 4096;

impl Rank {
    /// Answers an operation: the embedded peer at once, others when all that it may depend on is
    /// durable. `remember`: it had an effect that is in no transaction.
    pub(crate) fn answer(&mut self, op: &Op, outcome: Outcome, remember: bool, out: &mut Outbox<Output>) {
        self.unpin(op);
        if let Request::SetLock { node, .. } | Request::ReleaseLocks { node, .. } = &op.request {
            self.holder_let_go(op.session, node.ino, out);
            if self.view.locks.is_locked(node.ino) {
                self.locked_at(*node);
            }
        }
        let Some(session) = self.sessions.map.get_mut(&op.session) else {
            return self.moves.unseen.searched(op.id);
        };
        session.in_flight = session.in_flight.saturating_sub(1);
        if !op.embedded {
            session.running.remove(&op.tid);
            // A refusal is an answer too: it may leave on a new connection, on which the client asks again before it has it.
            // Executed then, a request would have an effect after its client was told that it failed.
            let refused = outcome.is_err()
                && self.state.serves()
                && session.results.len() < self.view.config.limits.results
                && op.request.effect() != Effect::Nothing
                && !stdx::mutant!("mds_refusal_forgotten");
            if refused || (remember && outcome.is_ok()) {
                let mut w = Writer::new();
                encode_outcome(&outcome, &mut w);
                let (bytes, about) = (w.0.into(), about(&op.request, &outcome));
                session.results.insert(op.tid, StoredResult { bytes, former: false, about });
            }
        }
        if let Some(told) = op.told {
            return self.answer_told(op, told, outcome, out);
        }
        let grants = self.grants(op, &outcome);
        match self.committed.take() {
            Some(committed) if committed.early && self.state.serves() => {
                self.send_early(op, committed, (outcome, grants), out);
            }
            None if self.state.serves() && self.may_show(op, &outcome) => {
                self.reply_leaves(op.asked(), outcome, grants, out);
            }
            Some(_) | None => self.send_reply(op.asked(), outcome, grants, out),
        }
    }

    /// The request is another rank's: nothing of it is remembered here.
    pub(crate) fn bounce(&mut self, op: &Op, owner: Option<RankId>, out: &mut Outbox<Output>) {
        self.unpin(op);
        // What it gave back it has no more, wherever the inode is.
        if let Request::SetLock { node, .. } | Request::ReleaseLocks { node, .. } = &op.request {
            self.holder_let_go(op.session, node.ino, out);
        }
        let version = self.view.territory.version();
        let Some(session) = self.sessions.map.get_mut(&op.session) else {
            return self.moves.unseen.searched(op.id);
        };
        session.in_flight = session.in_flight.saturating_sub(1);
        session.running.remove(&op.tid);
        self.tell_map(op.session, out);
        let message = ServerMsg::NotMine { tid: op.tid, owner, version };
        let conn = self.accounts(op.asked(), &Ok(Reply::Ok));
        // That nobody is known who has it shows that it is gone, and a crash may bring it back.
        let shows = owner.is_none() && self.journal.end > self.journal.durable;
        match conn {
            Some(conn) if shows && !stdx::mutant!("mds_nowhere_before_durable") => {
                self.hold(Waiting::Message { conn, message });
            }
            Some(conn) => out.push(Output::Send { conn, message }),
            None => {}
        }
        if op.told.is_some() {
            self.performed_ended(op.session, op.id);
        }
    }

    pub(crate) fn answer_durable(&mut self, op: &Op, outcome: Outcome, out: &mut Outbox<Output>) {
        if stdx::mutant!("mds_fsync_not_durable") || !op.embedded || self.journal.end <= self.journal.durable
        {
            return self.answer(op, outcome, false, out);
        }
        self.unpin(op);
        if let Some(session) = self.sessions.map.get_mut(&op.session) {
            session.in_flight = session.in_flight.saturating_sub(1);
        }
        self.hold(Waiting::Reply { asked: op.asked(), outcome, grants: Grants::None });
    }

    pub(crate) fn send_reply(
        &mut self,
        asked: Asked,
        outcome: Outcome,
        grants: Grants,
        out: &mut Outbox<Output>,
    ) {
        let Some(known) = self.sessions.map.get(&asked.session) else { return };
        let damaged = self.state == State::Damaged;
        // What it tells of may never become durable.
        let outcome =
            if damaged && !stdx::mutant!("mds_damaged_says_yes") { Err(Errno::EIO) } else { outcome };
        let early = known.embedded || damaged || stdx::mutant!("mds_no_hold_back");
        if early || (self.journal.end <= self.journal.durable && self.held.len() == 0) {
            return self.reply_leaves(asked, outcome, grants, out);
        }
        self.hold(Waiting::Reply { asked, outcome, grants });
    }

    /// Something performed was not carried out, which waits for no disk: what its session asks next may be answered early, and
    /// would show that before it was said.
    pub(crate) fn send_refusal(&mut self, asked: Asked, outcome: Outcome, out: &mut Outbox<Output>) {
        if self.state == State::Damaged {
            return self.send_reply(asked, outcome, Grants::None, out);
        }
        self.reply_leaves(asked, outcome, Grants::None, out);
    }

    /// An answer goes to whatever connection its session has now.
    fn reply_leaves(&mut self, asked: Asked, outcome: Outcome, grants: Grants, out: &mut Outbox<Output>) {
        let tid = asked.tid;
        let message = match matches!(grants, Grants::None) || outcome.is_err() {
            true => ServerMsg::Reply { tid, outcome },
            false => ServerMsg::Granted { tid, outcome, grants },
        };
        self.leaves(asked, message, out);
    }

    /// The message that answers a request leaves, and is accounted for.
    pub(crate) fn leaves(&mut self, asked: Asked, message: ServerMsg, out: &mut Outbox<Output>) {
        let outcome = match &message {
            ServerMsg::Reply { outcome, .. }
            | ServerMsg::Granted { outcome, .. }
            | ServerMsg::Early { outcome, .. } => outcome,
            ServerMsg::Done { .. }
            | ServerMsg::Welcome { .. }
            | ServerMsg::Refused { .. }
            | ServerMsg::Admin { .. }
            | ServerMsg::Recall { .. }
            | ServerMsg::Renewed { .. }
            | ServerMsg::Durable { .. }
            | ServerMsg::Numbers { .. }
            | ServerMsg::NotMine { .. }
            | ServerMsg::Map { .. }
            | ServerMsg::Join { .. }
            | ServerMsg::Damaged => &Ok(Reply::Ok),
        };
        if let Some(conn) = self.accounts(asked, outcome) {
            out.push(Output::Send { conn, message });
        }
    }

    /// An answer is counted. Where it goes.
    fn accounts(&mut self, asked: Asked, outcome: &Outcome) -> Option<ConnId> {
        let now = self.view.now.mono;
        let session = self.sessions.map.get_mut(&asked.session)?;
        session.traffic.answer(now, outcome);
        let conn = session.conn;
        self.meter.answered(now, &asked, outcome);
        conn
    }

    /// Sends without regard to durability.
    pub(crate) fn send_now(&mut self, id: SessionId, message: ServerMsg, out: &mut Outbox<Output>) {
        if let Some(conn) = self.sessions.map.get(&id).and_then(|s| s.conn) {
            out.push(Output::Send { conn, message });
        }
    }

    /// Keeps something back until everything appended so far is durable, and sees that it becomes so.
    pub(crate) fn hold(&mut self, waiting: Waiting) {
        self.held.push(self.journal.end, waiting);
        self.journal.want_durable();
    }

    /// Journals and applies the planned transaction, with the request's result for a session that may
    /// ask again.
    pub(crate) fn commit_for(&mut self, now: Now, op: &Op, outcome: &Outcome, out: &mut Outbox<Output>) {
        self.view.touched = self.notes();
        // Whatever another rank asks for may be done twice.
        if op.embedded || self.sessions.map.get(&op.session).is_some_and(|session| session.rank.is_some()) {
            self.commit(now, None, out);
            return self.committed_by(op, now.wall);
        }
        let delegates = self.delegate_inos(op.session);
        let mut result = std::mem::take(&mut self.result);
        result.0.clear();
        encode_outcome(outcome, &mut result);
        if let Some(session) = self.sessions.map.get_mut(&op.session) {
            if let Some(floor) = session.floor_due() {
                Mutation::SessionFloor { id: op.session, floor }.encode(&mut self.view.txn.muts);
            }
            let (bytes, about) = (result.0.as_slice().into(), opened_by(op, outcome));
            session.results.insert(op.tid, StoredResult { bytes, former: false, about });
        }
        let origin = TxnOrigin { session: op.session, tid: op.tid, result: &result.0 };
        self.commit(now, Some(&origin), out);
        self.result = result;
        if delegates {
            self.sessions.quiet_due.get_or_insert(now.mono);
            self.tell_delegated_inos(op.session);
        }
        self.committed_by(op, now.wall);
        if let Some(ino) = self.view.given {
            self.number_given(op.session, ino);
        }
    }

    /// Journals and applies the planned transaction.
    pub(crate) fn commit(&mut self, now: Now, origin: Option<&TxnOrigin<'_>>, out: &mut Outbox<Output>) {
        let muts = std::mem::take(&mut self.view.txn.muts);
        self.journal.transaction(now, origin, &muts.0);
        self.note_tail(origin, &muts.0, Source::Live);
        self.view.inos.next += self.view.txn.inos;
        let received = std::mem::take(&mut self.view.txn.received);
        let counted = std::mem::take(&mut self.view.txn.counted);
        let left: Vec<Ino> = self.view.txn.left.iter().map(|left| left.ino).collect();
        received.iter().chain(&left).for_each(|ino| self.home_changes(*ino));
        let came = std::mem::take(&mut self.view.txn.came);
        let ended = std::mem::take(&mut self.view.txn.ended);
        let applied = apply(&mut self.view, &mut self.sessions, &muts.0, Source::Live);
        if !stdx::mutant!("mds_received_as_new") {
            received.into_iter().for_each(|ino| self.view.cache.flag(ino, 0, node::END_CLEAN));
        }
        // It carries the same out once more in its next life, and the numbers behind may have been lost with this one.
        if !stdx::mutant!("mds_counted_by_other_as_own") {
            counted.into_iter().for_each(|ino| self.view.cache.flag(ino, 0, node::BUMPED));
        }
        self.view.txn.muts = muts;
        self.view.txn.clear();
        if !(left.is_empty() && came.is_empty()) {
            self.carried(&left, came);
        }
        ended.into_iter().for_each(|ino| self.forget_holders(ino));
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
    pub(crate) fn follow_up(&mut self, op: DataOp, cut: Option<Ino>) {
        if let Some(ino) = cut {
            self.view.files.get_mut(ino).cutting = true;
            self.view.cache.flag(ino, node::BUSY, 0);
        }
        let tag = self.new_tag();
        // Nothing is known of a removal but its tag: that it is unconfirmed says all.
        if let (DataOp::Truncate { cut, .. }, Some(ino)) = (&op, cut) {
            self.pending.insert(tag, Pending::Inner(Inner::Cut { ino, seq: cut.seq }));
        }
        self.unconfirmed.insert(tag, self.journal.end);
        // Nobody waits for it: it goes with the next commit.
        self.held.push(self.journal.end, Waiting::Data { op, tag });
    }

    /// Starts a data operation of the rank's own.
    pub(crate) fn internal_data(&mut self, op: DataOp, inner: Inner, out: &mut Outbox<Output>) {
        let tag = self.new_tag();
        self.pending.insert(tag, Pending::Inner(inner));
        out.push(Output::Data { tag: Tag(tag), op });
    }

    pub(crate) fn release_held(&mut self, out: &mut Outbox<Output>) {
        for _ in 0..RELEASE_MAX {
            let Some(waiting) = self.held.pop(self.journal.durable) else { return };
            match waiting {
                Waiting::Reply { asked, outcome, grants } => self.reply_leaves(asked, outcome, grants, out),
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
                Waiting::Decided { id } => self.settle(id),
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
}
