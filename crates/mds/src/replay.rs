//! From nothing to serving: checkpoint and system directories, the journal's tail, the reconnect
//! window.
//!
//! Absent: reading files; the driver brings pieces.

use crate::apply::apply;
use crate::cache::{Source, dir};
use crate::config::State;
use crate::hold::Waiting;
use crate::input::Tag;
use crate::order::changed_file;
use crate::output::{Level, Output};
use crate::rank::{Inner, Pending, Rank};
use crate::session::LOOK_PART;
use crate::session::life::EvictReason;
use crate::session::{Session, StoredResult};
use crate::territory::Side;
use proto::caps::Grants;
use proto::cluster::Mask;
use proto::journal::{Mutations, Payload, read_entry};
use proto::message::ServerMsg;
use proto::mutation::Mutation;
use proto::storeio::{DataOp, LoadRequest, Loaded, StoreError};
use proto::system::{CheckpointRecord, SessionRecord, decode_counter};
use proto::transact::take_left;
use proto::{DecodeError, Errno, Frag, Incarnation, Ino, NameHash, Position, Reader, SessionId};
use stdx::{Now, Outbox};
use thiserror::Error;

/// The reconnect phase is prolonged to at most so many leases.
const RECONNECT_LEASES: u64 = 3;

/// Why a rank cannot start.
#[derive(Debug, Error)]
pub(crate) enum BootError {
    #[error("metadata store: {0}")]
    Store(StoreError),
    #[error("metadata store: {what}: {source}")]
    Record { what: &'static str, source: DecodeError },
    #[error("metadata store: {what} is missing")]
    Missing { what: &'static str },
    #[error("journal at {at:#x}: {source}")]
    Journal { at: u64, source: DecodeError },
    #[error("journal: {got:#x} lies before {replayed:#x}, up to where it was replayed already")]
    Backwards { got: u64, replayed: u64 },
}

fn value(loaded: Option<Result<Loaded, StoreError>>) -> Result<Option<Box<[u8]>>, BootError> {
    match loaded {
        Some(Ok(Loaded::Value(value))) => Ok(value),
        Some(Err(error)) => Err(BootError::Store(error)),
        _ => Err(BootError::Missing { what: "an answer" }),
    }
}

impl Rank {
    pub(crate) fn damage(&mut self, reason: String, out: &mut Outbox<Output>) {
        if self.state == State::Damaged {
            return;
        }
        self.state = State::Damaged;
        out.push(Output::Damaged { reason });
        // Nothing will become durable any more: who waits is told so, not kept waiting.
        for waiting in self.held.take() {
            match waiting {
                Waiting::Reply { asked, outcome, .. } => self.send_reply(asked, outcome, Grants::None, out),
                // Not begun, so no store will answer for it.
                Waiting::Data { tag, .. } => {
                    if let Some(Pending::Op(op, ..)) = self.pending.remove(&tag) {
                        self.answer(&op, Err(Errno::EIO), false, out);
                    }
                }
                // Who greets a damaged rank is refused, also who did a moment ago.
                Waiting::Message { conn, message: ServerMsg::Welcome { .. } } => {
                    self.refuse(conn, Errno::ESHUTDOWN, "the rank is damaged", out);
                }
                Waiting::Message { conn, message: ServerMsg::NotMine { tid, .. } } => {
                    out.push(Output::Send {
                        conn,
                        message: ServerMsg::Reply { tid, outcome: Err(Errno::EIO) },
                    });
                }
                Waiting::Message { .. }
                | Waiting::Batches { .. }
                | Waiting::Inos { .. }
                | Waiting::Decided { .. }
                | Waiting::Boot => {}
            }
        }
        self.pace.waiting.clear();
        for op in std::mem::take(&mut self.parked).into_values() {
            self.answer(&op, Err(Errno::EIO), false, out);
        }
        let conns = self.sessions.map.values().filter_map(|session| session.conn);
        out.extend(conns.map(|conn| Output::Send { conn, message: ServerMsg::Damaged }));
    }

    /// Whether the namespace begins here: at rank 0, or at one that was told of no other.
    fn has_root(&self) -> bool {
        self.view.territory.of_number(Ino::ROOT) == Some(Side::Mine)
    }

    /// The directories that must be known before anything else. Root and `//links` are rank 0's.
    fn system_dirs(&self) -> Vec<Ino> {
        match self.has_root() {
            true => vec![Ino::SYSTEM, Ino::ROOT, Ino::LINKS, self.view.orphans()],
            false => vec![Ino::SYSTEM, self.view.orphans()],
        }
    }

    pub(crate) fn boot(&mut self, out: &mut Outbox<Output>) {
        if self.state != State::Boot || self.boot_tag.is_some() {
            return;
        }
        let rank = self.view.config.rank;
        let mut requests = vec![
            LoadRequest::Checkpoint { rank },
            LoadRequest::Counter { rank },
            LoadRequest::Sessions { rank },
        ];
        let dirs = self.system_dirs().into_iter();
        requests.extend(dirs.map(|dir| LoadRequest::Header { dir, frag: Frag::WHOLE }));
        let from = NameHash::FIRST;
        requests.push(LoadRequest::Scan { dir: Ino::SYSTEM, from, entries_max: 1 << 16 });
        let tag = self.new_tag();
        self.boot_tag = Some(tag);
        out.push(Output::Load { tag: Tag(tag), requests });
    }

    /// The answers to `boot`.
    pub(crate) fn boot_loaded(&mut self, results: Vec<Result<Loaded, StoreError>>, out: &mut Outbox<Output>) {
        match self.take_boot(results) {
            Ok(from) => {
                self.state = State::Replay;
                self.journal.checkpointed = from;
                self.replay_at = from;
                out.push(Output::ReadJournal { from });
            }
            Err(error) => self.damage(error.to_string(), out),
        }
    }

    fn take_boot(&mut self, results: Vec<Result<Loaded, StoreError>>) -> Result<Position, BootError> {
        let record = |what, source| BootError::Record { what, source };
        let mut results = results.into_iter();
        let checkpoint = match value(results.next())? {
            Some(bytes) => CheckpointRecord::decode(&bytes).map_err(|e| record("checkpoint", e))?,
            None => CheckpointRecord::default(),
        };
        let counter = match value(results.next())? {
            Some(bytes) => decode_counter(&bytes).map_err(|e| record("inode counter", e))?,
            None => 0,
        };
        self.view.inos.reserved = counter.max(checkpoint.next_ino).max(Ino::FIRST_COUNTER);
        match results.next() {
            Some(Ok(Loaded::Sessions(list))) => {
                for (id, bytes) in list {
                    let session = SessionRecord::decode(&bytes).map_err(|e| record("session", e))?;
                    self.sessions.restore(id, session);
                }
            }
            Some(Err(error)) => return Err(BootError::Store(error)),
            _ => return Err(BootError::Missing { what: "the session list" }),
        }
        for dir in self.system_dirs() {
            let bytes =
                value(results.next())?.ok_or(BootError::Missing { what: "a system directory's header" })?;
            self.keep_header(dir, &bytes).map_err(|e| record("system directory's header", e))?;
        }
        match results.next() {
            Some(Ok(Loaded::Dentries { mut entries, .. })) => {
                // Another rank's directories may change behind what is in the store.
                let name = format!("orphans-{}", self.view.config.rank.0);
                let is_own = |name_of: &[u8]| name_of == name.as_bytes();
                entries.retain(|entry| self.has_root() || is_own(&entry.name));
                self.keep(Ino::SYSTEM, entries, 0).map_err(|e| record("system directory", e))?;
            }
            Some(Err(error)) => return Err(BootError::Store(error)),
            _ => return Err(BootError::Missing { what: "the system directory" }),
        }
        let slot = self.view.cache.dir_or_new(Ino::SYSTEM);
        self.view.cache.dirs.get_mut(slot).set(dir::PINNED | dir::COMPLETE);
        for dir in self.system_dirs().into_iter().skip(1) {
            if self.view.cache.by_ino(dir).is_none() {
                return Err(BootError::Missing { what: "a system directory" });
            }
        }
        Ok(checkpoint.position)
    }

    /// Applies a piece of the tail.
    pub(crate) fn replay(&mut self, position: Position, entries: &[u8], out: &mut Outbox<Output>) {
        if self.state == State::Replay
            && let Err(error) = self.replay_entries(position, entries, out)
        {
            self.damage(error.to_string(), out);
        }
    }

    fn replay_entries(
        &mut self,
        position: Position,
        mut bytes: &[u8],
        out: &mut Outbox<Output>,
    ) -> Result<(), BootError> {
        if position < self.replay_at {
            return Err(BootError::Backwards { got: position.0, replayed: self.replay_at.0 });
        }
        // That nothing is left out in between the reader of the journal has checked, which knows its segments.
        let mut at = position;
        while !bytes.is_empty() {
            let fail = |source| BootError::Journal { at: at.0, source };
            let entry = read_entry(bytes, at).map_err(fail)?;
            if let Payload::Transaction { origin, mutations, .. } = entry.payload {
                let follow =
                    apply(&mut self.view, &mut self.sessions, mutations, Source::Replay).map_err(fail)?;
                self.note_tail(origin.as_ref(), mutations, Source::Replay);
                if let Some(origin) = &origin {
                    self.replay_used(origin.session, origin.result);
                }
                if let Some(origin) = origin
                    && let Some(session) = self.sessions.map.get_mut(&origin.session)
                    && origin.tid >= session.floor
                {
                    let bytes = origin.result.into();
                    let result = StoredResult { bytes, former: true, about: Ino::NONE };
                    session.results.insert(origin.tid, result);
                }
                if !self.held_redos.is_empty() {
                    self.forget_redos_of_left(mutations).map_err(fail)?;
                }
                for (op, _) in follow {
                    self.replay_data_op(op, out);
                }
                self.replayed += 1;
                self.replayed_files = self.replayed_files
                    || Mutations::new(mutations).flatten().any(|m| matches!(m, Mutation::PutDentry { .. }));
            }
            bytes = &bytes[entry.len..];
            at = Position(at.0 + entry.len as u64);
        }
        self.replay_at = at;
        Ok(())
    }

    /// Content that an fsync made durable in the journal waits for the rest of the tail: that may say that its file went to another rank.
    /// It was synced before that, and the other may have removed it since: written again it would be nobody's. What follows for the same
    /// file waits behind it.
    fn replay_data_op(&mut self, op: DataOp, out: &mut Outbox<Output>) {
        // Whose everything is says the map of now, and not that of then: all that others had may have come back since.
        let others =
            self.view.territory.map().is_some_and(|map| map.made != Mask::NONE.with(self.view.config.rank));
        let ino = changed_file(&op).map(|file| file.ino).filter(|_| others);
        if let Some(ino) = ino
            && (matches!(op, DataOp::Redo { .. }) || self.held_redos.contains_key(&ino))
        {
            return self.held_redos.entry(ino).or_default().push(op);
        }
        self.replay_data += 1;
        self.internal_data(op, Inner::Replay, out);
    }

    fn forget_redos_of_left(&mut self, mutations: &[u8]) -> Result<(), DecodeError> {
        for mutation in Mutations::new(mutations) {
            let (Mutation::Committed { left, .. } | Mutation::Resolved { left, .. }) = mutation? else {
                continue;
            };
            for left in take_left(&mut Reader::new(left))? {
                if let Some(held) = self.held_redos.get_mut(&left.ino)
                    && !stdx::mutant!("mds_redo_of_left")
                {
                    held.retain(|op| !matches!(op, DataOp::Redo { .. }));
                }
            }
        }
        Ok(())
    }

    fn end_held_redos(&mut self, out: &mut Outbox<Output>) {
        for op in std::mem::take(&mut self.held_redos).into_values().flatten() {
            self.replay_data += 1;
            self.internal_data(op, Inner::Replay, out);
        }
    }

    /// The tail is applied: fresh inode numbers, then service.
    pub(crate) fn replay_end(
        &mut self,
        now: Now,
        (end, former): (Position, Incarnation),
        out: &mut Outbox<Output>,
    ) {
        if self.state != State::Replay || self.journal.end > Position(0) {
            return;
        }
        if end < self.replay_at {
            let error = BootError::Backwards { got: end.0, replayed: self.replay_at.0 };
            self.damage(error.to_string(), out);
            return;
        }
        self.end_held_redos(out);
        self.journal.start(end);
        self.former = former;
        // Numbers of the block in use may have been given out: the next life begins behind them.
        self.view.inos.next = self.view.inos.reserved;
        self.view.inos.usable = self.view.inos.reserved;
        self.view.inos.former = Ino::of_rank(self.view.config.rank, self.view.inos.reserved);
        self.refill_inos(now, out);
        self.evict_kept(now, out);
        self.hold(Waiting::Boot);
        self.journal.want_durable();
    }

    /// Serves, once the first append is durable and the tail's data operations are done.
    pub(crate) fn activate_if_ready(&mut self, now: Now, out: &mut Outbox<Output>) {
        if self.state != State::Replay || !self.boot_durable || self.replay_data > 0 {
            return;
        }
        self.state = State::Reconnect;
        self.forget_spreads(None);
        self.view.reconnecting = true;
        self.lease_all(now);
        self.await_former(now);
        self.await_ranks();
        let presents = |(id, s): (&SessionId, &Session)| s.may_present().then_some(*id);
        self.presenting = self.sessions.map.iter().filter_map(presents).collect();
        self.sessions.quiet_due = Some(now.mono);
        self.reconnect_end = Some(now.mono.after(self.view.config.lease_ns));
        self.recovery_limit = now.mono.after(RECONNECT_LEASES * self.view.config.lease_ns);
        self.reconnect_extended = false;
        out.push(Output::Active);
        let text = format!(
            "replayed {} transactions, {} sessions to return",
            self.replayed,
            self.sessions.map.values().filter(|session| !session.evicted).count()
        );
        out.push(Output::Note { level: Level::Info, text });
        self.end_reconnect_if_all_back(out);
        self.restore_holders(now, out);
        self.restore_unheard(out);
        self.greet_waiting(now, out);
        self.resolve_transactions();
        self.release_of_absent(now, out);
        self.greet_all(out);
    }

    /// Those that are evicted count, too: for what they had open or locked others wait until they end.
    pub(crate) fn end_reconnect_if_all_back(&mut self, out: &mut Outbox<Output>) {
        if self.state == State::Reconnect && self.sessions.map.values().all(|s| !s.absent) {
            self.end_reconnect(out);
        }
    }

    /// Its time is up. A session that said hello in time and is still reclaiming its opens and locks, with a lease
    /// that runs, keeps it open for a while: its locks must not go to others meanwhile. Who is not done then is evicted.
    pub(crate) fn reconnect_over(&mut self, now: Now, out: &mut Outbox<Output>) {
        let reclaiming =
            |(id, s): (&SessionId, &Session)| (s.absent && !s.embedded && !s.evicted).then_some(*id);
        let late: Vec<SessionId> = self.sessions.map.iter().filter_map(reclaiming).collect();
        // As with leases (`expire`): the rank may have stood still, and what they said lies unread.
        let lease_ns = self.view.config.lease_ns;
        let look_ns = lease_ns / LOOK_PART;
        let hung = self.reconnect_end.is_some_and(|due| now.mono.since(due) > look_ns);
        let again = now.mono >= self.recovery_limit && !self.reconnect_extended;
        self.reconnect_extended |= again;
        if hung || again {
            let more = now.mono.after(if hung { lease_ns } else { look_ns });
            self.recovery_limit = self.recovery_limit.max(more);
        }
        if !late.is_empty() && now.mono < self.recovery_limit {
            let again = now.mono.after(lease_ns / 8);
            self.reconnect_end = Some(again.min(self.recovery_limit));
            return;
        }
        for id in late {
            self.evict_session(now, id, EvictReason::NotReclaimed, out);
        }
        self.end_reconnect(out);
    }

    /// Sessions that live and do not finish presenting are waited for no longer: what they still present comes to what it can. Not at
    /// the first look, as with leases.
    pub(crate) fn presenting_over(&mut self, now: Now) {
        let lease_ns = self.view.config.lease_ns;
        let look_ns = lease_ns / LOOK_PART;
        let hung = now.mono.since(self.recovery_limit) > look_ns;
        if (hung || !self.presenting_extended) && !stdx::mutant!("mds_own_pause_counts") {
            self.presenting_extended = !hung;
            self.recovery_limit = now.mono.after(if hung { lease_ns } else { look_ns });
            return;
        }
        for id in self.presenting.clone() {
            self.presented(id);
        }
    }

    /// The reconnect phase is over: locks are granted, orphans nobody claimed go.
    pub(crate) fn end_reconnect(&mut self, out: &mut Outbox<Output>) {
        if self.state != State::Reconnect {
            return;
        }
        self.state = State::Active;
        self.view.reconnecting = false;
        self.reconnect_end = None;
        self.runnable.extend(std::mem::take(&mut self.reconnect_waiters));
        self.keep_former();
        self.settle_cached_orphans();
        self.scan_orphans(NameHash::FIRST);
        out.push(Output::Note { level: Level::Info, text: "active".to_owned() });
    }
}
