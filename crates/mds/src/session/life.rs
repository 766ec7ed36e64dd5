//! The life of a session: lease, reclaiming what it had, eviction, end.
//!
//! Absent: how it begins and comes back (`greeting.rs`); the tables (`session.rs`); who may keep what (`caps.rs`); the wire.

use super::looks::LOOK_PART;
use super::{Conn, Session};
use crate::cache::node;
use crate::caps::{FADES_NS, needs};
use crate::config::State;
use crate::input::ConnId;
use crate::locks::NoLocks;
use crate::op::OpId;
use crate::output::{Level, Output};
use crate::rank::Rank;
use proto::message::ServerMsg;
use proto::mutation::Mutation;
use proto::request::LockSpec;
use proto::{Errno, Ino, NodeRef, Position, SessionId, Tid};
use stdx::{Mono, Now, Outbox};

/// Why a session is evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EvictReason {
    LeaseOver,
    NotReturned,
    Operator,
    NotReclaimed,
}

impl EvictReason {
    const fn text(self) -> &'static str {
        match self {
            Self::LeaseOver => "its lease ran out",
            Self::NotReturned => "it has not given back what was recalled",
            Self::Operator => "an operator ended it",
            Self::NotReclaimed => "it did not reclaim its opens and locks in time",
        }
    }
}

/// Inodes looked at per step when a dead session's opens end, and locks and waiters of files whose locks end.
const CLOSE_SLICE: usize = 1024;
const UNLOCK_SLICE: usize = 1024;

impl Rank {
    /// The answer to a renewal; who is late in giving back gets none, so that it stops keeping things although it may not hear
    /// that it was given up.
    pub(crate) fn renewed(&mut self, now: Now, id: SessionId, number: u32, out: &mut Outbox<Output>) {
        self.renew(now, id);
        let half = self.view.config.lease_ns / 2;
        let late = |session: &Session| {
            session.return_end.is_some_and(|end| end.since(now.mono) < half) && !session.is_in_line()
        };
        if let Some(session) = self.sessions.map.get(&id).filter(|session| !late(session)) {
            // Of a map that it has it hears what becomes: a rank that it uses may go.
            if session.map_version > 0 {
                self.tell_map(id, out);
            }
            self.send_now(id, ServerMsg::Renewed { number }, out);
        }
    }

    pub(crate) fn renew(&mut self, now: Now, id: SessionId) {
        self.sessions.lease(id, now, self.view.config.lease_ns);
    }

    /// A session reclaims what it had before the rank restarted.
    pub(crate) fn reclaim(
        &mut self,
        id: SessionId,
        node: NodeRef,
        (count, writes): (u32, bool),
        locks: &[LockSpec],
        out: &mut Outbox<Output>,
    ) {
        let says = |session: &Session| {
            // Where it could be that limits a session that begins nobody has looked at.
            let believed = session.limit == Ino::NONE || stdx::mutant!("mds_claims_pass_limit");
            (session.absent, session.fresh && believed)
        };
        let (absent, fresh) = self.sessions.map.get(&id).map_or((false, false), says);
        // Its client has it in its books for this rank by now.
        let came = self.view.holders.has(id, node.ino);
        self.holder_gone(id, node.ino, out);
        let says = (fresh && !came) || (absent && self.view.reconnecting);
        // No inode has a number with bit 63: nobody would ever find what was claimed, and nothing above it would move.
        let is_number = node.ino.0 >> 63 == 0 || stdx::mutant!("mds_claims_what_is_no_inode");
        if node.ino.is_reserved() || !is_number || !says {
            // The rank never went away: it still has the session's opens and locks.
            return;
        }
        self.view.unheard.claimed(id, node.ino);
        if came {
            self.view.locks.forget(node.ino, id);
        }
        let most = self.view.config.limits.reclaims;
        let is_open = self
            .view
            .files
            .get(node.ino)
            .is_some_and(|file| file.opens.iter().any(|open| open.session == id));
        // What is said again, or in several messages, is one file.
        let is_known = is_open || self.view.locks.has(node.ino, id);
        if let Some(session) = self.sessions.map.get_mut(&id) {
            session.reclaims += u32::from(!is_known);
            if session.reclaims > most {
                let conn = session.conn;
                let text = format!("session {} reclaims more than {most} files", id.0);
                let note = format!("{text}{}", session.named());
                out.push(Output::Note { level: Level::Warn, text: note });
                if let Some(conn) = conn {
                    self.refuse(conn, Errno::EPROTO, &text, out);
                }
                return;
            }
        }
        // One that takes the place of an evicted session reclaims what its client still has open; its locks are lost.
        let locks = if fresh { &[] } else { locks };
        // Said again when the connection broke meanwhile; nothing else counts opens of an absent session.
        self.view.files.close(node.ino, id, u32::MAX);
        if count > 0 {
            self.view.files.open(node.ino, id, count, 0, writes);
            self.note_limit(id);
            if writes {
                // It was open already when others were granted their pages, in a session that is gone.
                let place = self.sessions.map.get(&id).and_then(|session| session.place);
                let now = self.view.now.mono;
                self.view.book.recall_others(place, &needs::writing(node.ino), now);
            }
            self.view.cache.flag(node.ino, node::BUSY, 0);
        }
        self.seen_at(node);
        let limits = self.view.config.limits.locks();
        match self.view.locks.reclaim(node.ino, id, locks, limits) {
            Ok(0) => {}
            Ok(left) => {
                let client = self.sessions.named(id);
                let text = format!("session {} reclaims {left} locks more than it may have{client}", id.0);
                out.push(Output::Note { level: Level::Warn, text });
            }
            Err(NoLocks) => {
                let conn = self.sessions.map.get(&id).and_then(|session| session.conn);
                let text = "what it reclaims are no locks, or locks that overlap";
                conn.into_iter().for_each(|conn| self.refuse(conn, Errno::EPROTO, text, out));
            }
        }
    }

    /// It has something open that nobody has checked.
    pub(crate) fn note_limit(&mut self, id: SessionId) {
        let limit = self.sessions.map.get(&id).map_or(Ino::NONE, |session| session.limit);
        if limit != Ino::NONE {
            self.view.limits.insert(id, limit);
        }
    }

    pub(crate) fn reclaimed(&mut self, id: SessionId, out: &mut Outbox<Output>) {
        if let Some(session) = self.sessions.map.get_mut(&id) {
            (session.absent, session.fresh) = (false, false);
            session.reclaims = 0;
        }
        self.end_reconnect_if_all_back(out);
    }

    pub(crate) fn disconnected(&mut self, now: Now, conn: ConnId, out: &mut Outbox<Output>) {
        self.sessions.greeting.remove(&conn);
        let Some(Conn { session: Some(id), .. }) = self.sessions.conns.remove(&conn) else { return };
        let Some(session) = self.sessions.map.get_mut(&id) else { return };
        if session.conn == Some(conn) {
            session.conn = None;
            let (embedded, of_rank) = (session.embedded, session.rank);
            self.drop_line(id);
            if let Some((rank, _)) = of_rank {
                self.intents_end(rank, id);
            }
            self.fade_later(id, now);
            if embedded {
                self.end_session(now, id, out);
            }
        }
    }

    /// Ends a session whose client keeps nothing any more: its number for good, locks and then opens in slices.
    pub(crate) fn end_session(&mut self, now: Now, id: SessionId, out: &mut Outbox<Output>) {
        let Some(session) = self.sessions.map.remove(&id) else { return };
        self.caps_end(id, session.place);
        self.presented(id);
        self.sessions.count_eager();
        self.forget_former(id, Tid(u64::MAX));
        if session.is_clients() {
            // What it had under way goes on, and whoever comes next is another.
            self.sessions.many = true;
            Mutation::Session { id, open: false, client: b"" }.encode(&mut self.view.txn.muts);
            self.commit(now, None, out);
        }
        if let Some(conn) = session.conn
            && let Some(conn) = self.sessions.conns.get_mut(&conn)
        {
            conn.session = None;
        }
        self.view.mounts.remove(&id);
        self.view.limits.remove(&id);
        self.sessions.unlocking.push(id);
        self.end_reconnect_if_all_back(out);
    }

    /// Whether something of an ended session may be dropped now.
    pub(crate) fn may_close(&self) -> bool {
        let free = |id: &SessionId| !self.has_reserved(*id);
        !self.moves.is_sealed()
            && (self.sessions.unlocking.iter().any(free)
                || self.sessions.closing.iter().any(|(id, _)| free(id)))
    }

    /// Drops a slice of the locks and opens of ended sessions.
    pub(crate) fn close_slice(&mut self) {
        // What an ended session had another rank was told of; and nobody here may get a lock of it that the other does not know of.
        if self.moves.is_sealed() && !stdx::mutant!("mds_sealed_locks_go_on") {
            return;
        }
        // Others may wait for their locks: those of all go before the opens of any.
        while let Some(at) = self.sessions.unlocking.iter().rposition(|id| !self.has_reserved(*id)) {
            let id = self.sessions.unlocking[at];
            if let Some(waiters) = self.view.locks.drop_session(id, UNLOCK_SLICE) {
                for op in waiters {
                    if let Some(op) = self.parked.remove(&op) {
                        self.unpin(&op);
                    }
                }
                return;
            }
            self.sessions.unlocking.remove(at);
            self.sessions.closing.push((id, Ino::NONE));
        }
        let free = self.sessions.closing.iter().rposition(|(id, _)| !self.has_reserved(*id));
        let Some(at) = free else { return };
        let (id, after) = self.sessions.closing.remove(at);
        let (inos, next) = self.view.files.opened_by(id, after, CLOSE_SLICE);
        for ino in inos {
            self.view.files.close(ino, id, u32::MAX);
            self.forget_or_purge(ino);
        }
        if let Some(next) = next {
            self.sessions.closing.push((id, next));
        }
    }

    /// Evicts sessions whose lease has run out, at the third look: what came while this process did not run (it was stopped, its
    /// host hung) lies unread, and it is not the client that was silent then.
    pub(crate) fn expire(&mut self, now: Now, out: &mut Outbox<Output>) {
        let due = self.sessions.next_expiry.filter(|due| *due <= now.mono && self.state.serves());
        let Some(due) = due else { return };
        let lease_ns = self.view.config.lease_ns;
        let look_ns = lease_ns / LOOK_PART;
        let late_ns = now.mono.since(due);
        // Nobody was heard for so long: who sends again after a pause of the rank's may need a while for it.
        let hung = late_ns > look_ns && !stdx::mutant!("mds_own_pause_counts");
        let mut dead = Vec::new();
        let mut next: Option<Mono> = None;
        for (id, session) in self.sessions.map.iter_mut().filter(|(_, s)| s.is_clients() && !s.evicted) {
            // One without a connection may have greeted on a new one.
            if session.lease_end <= now.mono
                && let Some(grace_ns) = session.looks.next(late_ns, lease_ns)
            {
                session.lease_end = now.mono.after(grace_ns);
            }
            let over = !self.frozen && session.return_end.is_some_and(|end| end <= now.mono);
            if (hung || over)
                && let Some(end) = session.return_end.as_mut()
                && let Some(grace_ns) = session.return_looks.next(late_ns, lease_ns)
            {
                *end = now.mono.after(grace_ns).max(*end);
            }
            let returns = self.frozen || session.return_end.is_none_or(|end| end > now.mono);
            if session.lease_end <= now.mono && !stdx::mutant!("mds_lease_never_ends") {
                dead.push((*id, EvictReason::LeaseOver));
            } else if !returns {
                dead.push((*id, EvictReason::NotReturned));
            } else {
                let end = session.lease_end.max(now.mono.after(1));
                let end = session.return_end.map_or(end, |return_end| end.min(return_end));
                next = Some(next.map_or(end, |n| n.min(end)));
            }
        }
        self.sessions.next_expiry = next;
        for (id, why) in dead {
            if why == EvictReason::NotReturned && self.is_owed(id, now) {
                let end = now.mono.after(lease_ns / 4);
                self.sessions.clear_return_deadline(id);
                self.sessions.set_return_deadline(id, end, now.mono);
                continue;
            }
            self.evict_session(now, id, why, out);
        }
    }

    /// Ends a session that did not ask for it.
    pub(crate) fn evict_session(
        &mut self,
        now: Now,
        id: SessionId,
        why: EvictReason,
        out: &mut Outbox<Output>,
    ) {
        if matches!(self.state, State::Boot | State::Replay) {
            return self.evict_when_read(now, id, out);
        }
        let Some(session) = self.sessions.map.get_mut(&id).filter(|session| !session.evicted) else { return };
        let (conn, place) = (session.conn.take(), session.place);
        self.drop_line(id);
        // Its client performs nothing any more: its lease has run out by its own clock, or it hears of this.
        if let Some(place) = place {
            self.view.book.end_delegated(place);
        }
        self.presented(id);
        let Some(session) = self.sessions.map.get_mut(&id) else { return };
        // Who was not heard of for a lease asked nothing for as long.
        let silent =
            session.is_clients() && session.lease_end <= now.mono && self.view.config.lease_ns >= FADES_NS;
        let text = format!("session {} evicted: {}{}", id.0, why.text(), session.named());
        out.push(Output::Note { level: Level::Warn, text });
        if silent || !self.evict_later(id, now, out) {
            self.end_session(now, id, out);
        }
        // What others do from here on builds on that it is gone: they are told when that is durable.
        self.recent.begin(self.journal.end);
        if let Some(conn) = conn {
            if let Some(known) = self.sessions.conns.get_mut(&conn) {
                known.session = None;
            }
            self.refuse(conn, Errno::ESTALE, &format!("evicted: {}", why.text()), out);
        }
    }

    /// An operator ends a session while the rank reads what there is. Who that is it may not know yet, and the journal can say nothing
    /// before it is read: the eviction is kept until then. It was forgotten once, and answered with success: the client came back, and
    /// went on with its locks.
    fn evict_when_read(&mut self, now: Now, id: SessionId, out: &mut Outbox<Output>) {
        if !stdx::mutant!("mds_eviction_in_replay_forgotten") {
            self.sessions.evict_then.insert(id);
        }
        if self.journal.end > Position(0) {
            self.evict_kept(now, out);
        }
    }

    /// The journal is read: it says of whom an operator ended meanwhile what it would say had the life before evicted them.
    pub(crate) fn evict_kept(&mut self, now: Now, out: &mut Outbox<Output>) {
        for id in std::mem::take(&mut self.sessions.evict_then) {
            let is_meant = |session: &&mut Session| session.is_clients() && !session.evicted;
            let Some(session) = self.sessions.map.get_mut(&id).filter(is_meant) else { continue };
            session.evicted = true;
            let flags = session.flags(session.quiet);
            let text =
                format!("session {} evicted: {}{}", id.0, EvictReason::Operator.text(), session.named());
            out.push(Output::Note { level: Level::Warn, text });
            Mutation::SessionFlags { id, flags }.encode(&mut self.view.txn.muts);
            self.commit(now, None, out);
        }
    }

    /// Gives every restored session a full lease from now.
    pub(crate) fn lease_all(&mut self, now: Now) {
        let ids: Vec<SessionId> = self.sessions.map.keys().copied().collect();
        for id in ids {
            self.sessions.lease(id, now, self.view.config.lease_ns);
        }
    }

    /// Gives up a request that waits for a lock.
    pub(crate) fn cancel(&mut self, id: SessionId, tid: Tid, out: &mut Outbox<Output>) {
        // From a line it may come in the step in which another message of it gave the lock back: who has the lock is told so.
        self.answer_granted_locks(out);
        let found: Option<(OpId, Ino)> =
            self.parked.values().filter(|op| op.session == id && op.tid == tid).find_map(|op| {
                match &op.request {
                    proto::request::Request::SetLock { node, .. } => Some((op.id, node.ino)),
                    // Nothing else waits for what may never come.
                    proto::every_request!() => None,
                }
            });
        let Some((op, ino)) = found else { return };
        // Of what a former life may have granted it is not known yet.
        if let Some(op) = self.parked.get_mut(&op).filter(|op| op.unheard)
            && !stdx::mutant!("mds_unheard_cancelled")
        {
            op.cancelled = true;
            return;
        }
        // Wherever it is (in line for the lock, for a load, for the end of the reconnect phase), nothing was granted yet.
        self.view.locks.cancel(ino, op);
        self.reconnect_waiters.retain(|waiter| *waiter != op);
        if let Some(op) = self.parked.remove(&op) {
            self.answer(&op, Err(Errno::EINTR), false, out);
        }
    }
}
