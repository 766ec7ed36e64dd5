//! The checkpoint: dirty records to the store in slices, entries before headers, everything before the
//! position, and only what is durable in the journal.
//!
//! Phases: entries (with the headers of directories that fit one batch), later headers, the data
//! store's cuts and removals, `SyncAll`, sessions, the record. A crash in any of them leaves the old position,
//! and the tail from there repeats all of it. Absent: the store; pages and trees; which records a
//! batch takes (`slices.rs`).

mod slices;

use crate::cache::dir;
use crate::config::State;
use crate::hold::Waiting;
use crate::output::{Level, Output};
use crate::rank::{Inner, Rank};
use proto::cluster::Unit;
use proto::header::FragHeader;
use proto::storeio::{DataOp, StoreBatch, StoreError, StoreKey};
use proto::system::CheckpointRecord;
use proto::{Ino, NameHash, Position, SessionId};
use std::collections::{BTreeMap, VecDeque};
use stdx::time::SECOND;
use stdx::{Mono, Now, Outbox};

/// Pause after a checkpoint that failed.
const RETRY_NS: u64 = SECOND;
/// So often in a row it may fail before what is dirty is stamped anew, well before rounds, which are counted modulo 256, come again.
const ROUNDS: u32 = 128;
/// So often in a row a checkpoint fails before a stop goes without it.
const LAST_TRIES: u32 = 5;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    #[default]
    Idle,
    Entries,
    Headers,
    Data,
    Sync,
    Sessions,
    Record,
}

/// What a store request under way holds.
#[derive(Debug, Default)]
struct Writing {
    nodes: Vec<u32>,
    headers: Vec<Ino>,
    backptrs: Vec<Ino>,
    closed: Vec<SessionId>,
    bytes: usize,
}

/// Where a walk over one directory is.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    dir: u32,
    /// In hash order from here (a directory that is mostly dirty), or along its dirty list.
    walk: Option<NameHash>,
    /// Some of its entries are in an earlier batch.
    split: bool,
}

/// The present checkpoint and what triggers the next.
#[derive(Debug, Default)]
pub(crate) struct Checkpoint {
    pub phase: Phase,
    /// Asked for.
    pub wanted: bool,
    position: Position,
    /// Bytes of the journal when it began.
    began_with: u64,
    /// Records it has to store, about.
    work: u64,
    /// Those of them that it has stored.
    stored: u64,
    /// Directories of the dirty list that were on it at the start and are still to be visited.
    dirs_left: usize,
    cursor: Option<Cursor>,
    under_way: BTreeMap<u64, Writing>,
    bytes_under_way: usize,
    later: VecDeque<(Ino, Unit, Option<FragHeader>)>,
    /// Sessions up to there have been visited; none: all.
    sessions_from: Option<SessionId>,
    failed: bool,
    /// How often in a row.
    failures: u32,
    slice_at: Mono,
    retry_at: Option<Mono>,
    pub completed: u64,
    /// How many have begun, and which of them was the last that completed.
    pub begun: u64,
    pub last: u64,
}

impl Checkpoint {
    /// The part of `whole` that the present checkpoint has earned by what it stored.
    pub(crate) fn stored_part(&self, whole: u64) -> u64 {
        match self.phase {
            Phase::Idle => 0,
            Phase::Entries | Phase::Headers => {
                (whole.saturating_mul(self.stored) / self.work.max(1)).min(whole)
            }
            Phase::Data | Phase::Sync | Phase::Sessions | Phase::Record => whole,
        }
    }

    /// Whether the store has all names and headers of the checkpoint of that number: it may not be complete yet.
    pub(crate) fn has_names(&self, number: u64) -> bool {
        let all = match self.phase {
            Phase::Idle | Phase::Entries | Phase::Headers => false,
            Phase::Data | Phase::Sync | Phase::Sessions | Phase::Record => true,
        };
        self.last >= number || (all && self.begun >= number)
    }

    /// Bytes of the journal when the present checkpoint began.
    pub(crate) fn began_with(&self) -> Option<u64> {
        (self.phase != Phase::Idle).then_some(self.began_with)
    }

    /// The last one failed: there was no space.
    pub(crate) const fn lacks_space(&self) -> bool {
        self.failures > 0
    }
}

impl Rank {
    /// When the checkpoint next wants a step.
    pub(crate) fn checkpoint_due(&self) -> Option<Mono> {
        let c = &self.checkpoint;
        match c.phase {
            Phase::Idle if self.checkpoint_wanted() => Some(c.retry_at.unwrap_or(c.slice_at)),
            Phase::Entries | Phase::Headers | Phase::Sessions => {
                (self.store_has_room() && self.has_slices()).then_some(c.slice_at)
            }
            Phase::Idle | Phase::Data | Phase::Sync | Phase::Record => None,
        }
    }

    fn store_has_room(&self) -> bool {
        self.checkpoint.bytes_under_way < self.view.config.limits.store_bytes
    }

    fn has_slices(&self) -> bool {
        let c = &self.checkpoint;
        let more = c.dirs_left > 0
            || c.cursor.is_some()
            || !self.view.backptrs_old.is_empty()
            || !c.later.is_empty()
            || c.sessions_from.is_some();
        more && !c.failed
    }

    fn checkpoint_wanted(&self) -> bool {
        let config = &self.view.config;
        let cache = &self.view.cache;
        let stopping = self.state == State::Stopping && self.data_is_idle() && !self.stopped;
        self.checkpoint.wanted
            || stopping
            || self.journal.backlog() > config.journal_bytes
            || cache.dirty_bytes() > config.cache_bytes / 2
    }

    /// One slice of work, if it is time.
    pub(crate) fn checkpoint_turn(&mut self, now: Now, out: &mut Outbox<Output>) {
        if self.checkpoint.phase == Phase::Idle {
            let early = self.checkpoint.retry_at.is_some_and(|at| at > now.mono);
            if early || !self.checkpoint_wanted() {
                return;
            }
            self.start_checkpoint(now, out);
        }
        if self.store_has_room() && !self.checkpoint.failed && self.checkpoint.slice_at <= now.mono {
            match self.checkpoint.phase {
                Phase::Entries => self.entries_slice(now),
                Phase::Headers => self.headers_slice(now),
                Phase::Sessions => self.sessions_slice(now),
                Phase::Idle | Phase::Data | Phase::Sync | Phase::Record => {}
            }
        }
        self.advance(now, out);
    }

    fn start_checkpoint(&mut self, now: Now, out: &mut Outbox<Output>) {
        if self.checkpoint.failures % ROUNDS == ROUNDS - 1 && !stdx::mutant!("mds_rounds_wrap") {
            self.view.cache.all_dirty_is_of_now();
        }
        let c = &mut self.checkpoint;
        c.phase = Phase::Entries;
        c.begun += 1;
        c.wanted = false;
        c.failed = false;
        c.retry_at = None;
        c.position = self.journal.end;
        c.began_with = self.journal.backlog();
        c.dirs_left = self.view.cache.dirty_dirs.len();
        self.view.cache.round = self.view.cache.round.wrapping_add(1);
        self.view.cache.checkpointing = true;
        self.view.backptrs_old = std::mem::take(&mut self.view.backptrs);
        self.view.redone.checkpoint_begins();
        c.work = self.view.cache.dirty() + (c.dirs_left + self.view.backptrs_old.len()) as u64;
        c.stored = 0;
        for muts in self.view.transactions_again() {
            self.view.txn.muts.0 = muts;
            self.commit(now, None, out);
        }
    }

    /// Hands batches over once the journal holds all that they say.
    fn emit(&mut self, now: Now, batches: Vec<StoreBatch>, mut writing: Writing) {
        self.checkpoint.slice_at = now.mono.after(self.view.config.limits.slice_pause_ns);
        if batches.is_empty() {
            return;
        }
        let tag = self.new_tag();
        writing.bytes = batches.iter().map(StoreBatch::bytes).sum();
        self.checkpoint.bytes_under_way += writing.bytes;
        self.checkpoint.under_way.insert(tag, writing);
        self.hold(Waiting::Batches { tag, batches });
    }

    /// The store's answer to one request of the checkpoint.
    pub(crate) fn stored(
        &mut self,
        now: Now,
        tag: u64,
        result: Result<(), StoreError>,
        out: &mut Outbox<Output>,
    ) {
        let Some(writing) = self.checkpoint.under_way.remove(&tag) else { return };
        self.checkpoint.bytes_under_way -= writing.bytes;
        let ok = result.is_ok();
        if let Err(error) = result {
            self.checkpoint.failed = !stdx::mutant!("mds_failed_batch_ignored");
            if error == StoreError::NoSpace {
                self.now_full(now, out);
            } else {
                return self.damage(format!("metadata store: {error}"), out);
            }
        }
        if ok {
            let records = writing.nodes.len() + writing.headers.len() + writing.backptrs.len();
            self.checkpoint.stored += records as u64;
        }
        for slot in writing.nodes {
            self.view.cache.written(slot, ok);
        }
        for ino in writing.headers {
            self.header_stored(ino, ok);
        }
        self.backptrs_stored(writing.backptrs, ok);
        if ok {
            if self.checkpoint.phase == Phase::Record {
                self.record_stored(out);
            }
            return;
        }
        self.sessions.closed.extend(writing.closed);
    }

    fn backptrs_stored(&mut self, inos: Vec<Ino>, ok: bool) {
        if inos.is_empty() {
            return;
        }
        for ino in inos {
            let Some(entry) = self.view.backptrs_writing.remove(&ino).filter(|_| !ok) else { continue };
            // Where it is by now its owner says.
            if self.view.moved.went(ino).is_none() {
                self.view.backptrs.entry(ino).or_insert(entry);
            }
        }
        self.look_at_places_again();
    }

    /// Who waits until places are stored, or are not any more.
    fn look_at_places_again(&mut self) {
        let waiting = std::mem::take(&mut self.view.transactions.waiting);
        self.runnable.extend(waiting);
    }

    fn header_stored(&mut self, ino: Ino, ok: bool) {
        let Some(slot) = self.view.cache.find_dir(ino) else { return };
        let dir = self.view.cache.dirs.get_mut(slot);
        dir.clear(dir::HEADER_LATER);
        if !ok {
            dir.set(dir::HEADER_DIRTY);
            self.view.cache.queue_dir(slot);
        }
        self.view.cache.drop_dir_if_idle(slot);
    }

    /// Goes on to the next phase when nothing of this one is under way.
    fn advance(&mut self, now: Now, out: &mut Outbox<Output>) {
        if !self.checkpoint.under_way.is_empty() {
            return;
        }
        let more = self.has_slices();
        match self.checkpoint.phase {
            Phase::Idle | Phase::Sync => {}
            // No header may follow a batch of its directory's names that is not stored.
            _ if self.checkpoint.failed => self.give_up(now, out),
            Phase::Entries if self.checkpoint.dirs_left > 0 || self.checkpoint.cursor.is_some() => {}
            Phase::Entries if !self.view.backptrs_old.is_empty() => {}
            Phase::Entries => {
                self.checkpoint.phase = Phase::Headers;
                if !more {
                    self.advance(now, out);
                }
            }
            Phase::Headers if more => {}
            Phase::Headers => {
                self.checkpoint.phase = Phase::Data;
                self.advance(now, out);
            }
            Phase::Data => {
                let position = self.checkpoint.position;
                let confirmed = self.unconfirmed.first_key_value().is_none_or(|(_, at)| *at > position);
                if confirmed && !self.awaits_rewrites() {
                    self.checkpoint.phase = Phase::Sync;
                    self.view.tail_writes.end();
                    self.internal_data(DataOp::SyncAll, Inner::Checkpoint, out);
                }
            }
            Phase::Sessions if more => {}
            Phase::Sessions => self.store_record(now, StoreBatch::new(Ino::SYSTEM, None)),
            Phase::Record => {}
        }
    }

    /// Everything that is not stored is dirty again, headers as they are now.
    fn give_up(&mut self, now: Now, out: &mut Outbox<Output>) {
        let cache = &mut self.view.cache;
        let c = &mut self.checkpoint;
        for slot in &cache.dirty_dirs {
            cache.dirs.get_mut(*slot).saved = None;
        }
        if let Some(cursor) = c.cursor.take() {
            let dir = cache.dirs.get_mut(cursor.dir);
            dir.saved = None;
            dir.clear(dir::QUEUED);
            cache.queue_dir(cursor.dir);
        }
        let later: Vec<Ino> = c.later.drain(..).map(|(ino, ..)| ino).collect();
        c.dirs_left = 0;
        c.sessions_from = None;
        for (ino, entry) in std::mem::take(&mut self.view.backptrs_old) {
            self.view.backptrs.entry(ino).or_insert(entry);
        }
        self.look_at_places_again();
        for ino in later {
            self.header_stored(ino, false);
        }
        let c = &mut self.checkpoint;
        c.phase = Phase::Idle;
        c.wanted = true;
        c.retry_at = Some(now.mono.after(RETRY_NS));
        c.failures += 1;
        self.view.cache.checkpointing = false;
        let all_durable = self.journal.end <= self.journal.durable && self.held.len() == 0;
        if self.state == State::Stopping && self.checkpoint.failures >= LAST_TRIES && all_durable {
            let text = "stopped without a last checkpoint (no space): the next start replays the journal";
            out.push(Output::Note { level: Level::Warn, text: text.to_owned() });
            self.stopped = true;
            self.state = State::Stopped;
            out.push(Output::Stopped);
        }
    }

    /// All data written before is durable: the position may move.
    pub(crate) fn checkpoint_synced(
        &mut self,
        now: Now,
        result: Result<(), StoreError>,
        out: &mut Outbox<Output>,
    ) {
        match result {
            Ok(()) => {}
            Err(StoreError::NoSpace) => return self.give_up(now, out),
            // Nothing failed to be written.
            Err(error) if error.finds_no_descriptor() => return self.give_up(now, out),
            // A store that failed stays failed: going on would only fill the journal.
            Err(error) => return self.damage(format!("data store: {error}"), out),
        }
        self.checkpoint.phase = Phase::Sessions;
        self.checkpoint.sessions_from = Some(SessionId(0));
        self.checkpoint_turn(now, out);
    }

    /// All that the position stands for is stored, but for what is in the batch already.
    fn store_record(&mut self, now: Now, mut batch: StoreBatch) {
        self.checkpoint.phase = Phase::Record;
        let closed = std::mem::take(&mut self.sessions.closed);
        let rank = self.view.config.rank;
        // A session that ended at this rank may have joined it again, under its number.
        let closed: Vec<SessionId> =
            closed.into_iter().filter(|id| !self.sessions.map.contains_key(id)).collect();
        for id in &closed {
            batch.delete(StoreKey::Session { rank, id: *id });
        }
        let next_ino = self.view.inos.reserved;
        batch.put(StoreKey::Counter { rank }, |w| {
            w.u64(next_ino);
        });
        let position = self.checkpoint.position;
        batch.put(StoreKey::Checkpoint { rank }, |w| CheckpointRecord { position, next_ino }.encode(w));
        self.emit(now, vec![batch], Writing { closed, ..Writing::default() });
    }

    fn record_stored(&mut self, out: &mut Outbox<Output>) {
        let position = self.checkpoint.position;
        self.checkpoint.phase = Phase::Idle;
        self.checkpoint.completed += 1;
        self.checkpoint.last = self.checkpoint.begun;
        // None is merged while one is under way.
        self.view.cache.merged.clear();
        self.view.redone.checkpoint_ends();
        self.checkpoint.failures = 0;
        self.view.cache.checkpointing = false;
        self.view.full = false;
        self.journal.checkpointed = position;
        out.push(Output::Trim { before: position });
        // A header may be dirty although no name is: all that changed in between came and went.
        let cache = &self.view.cache;
        // Places of what is reserved stay in the journal until it is known whose they are: nobody would say that who stops.
        let waits = |ino: &Ino| self.view.transactions.is_reserved(*ino);
        let clean = cache.dirty() == 0 && cache.dirty_dirs.is_empty() && self.view.backptrs.keys().all(waits);
        if self.state == State::Stopping && self.data_is_idle() && clean && !self.stopped {
            self.stopped = true;
            self.state = State::Stopped;
            out.push(Output::Stopped);
        }
    }
}
