//! The data store's answers: what a request does next, what the rank's own operations were for.
//!
//! Absent: contents; planning the second half (`ops/finish.rs`).

use crate::cache::node;
use crate::cache::slab::NONE;
use crate::config::State;
use crate::op::{Claim, LoadKey, Next, Op, Park, Stop, Syncing, Waits};
use crate::ops::finish;
use crate::output::{Level, Output};
use crate::rank::{Inner, Pending, Rank, claimed_inos};
use proto::mutation::Mutation;
use proto::request::Request;
use proto::storeio::{DataDone, StoreError};
use proto::{Errno, FileId, Ino};
use stdx::time::MS;
use stdx::{Now, Outbox};

/// After the store said it is full, writes are refused for this long; then one may try.
const FULL_NS: u64 = 500 * MS;

/// Bytes that a full disk cut short, although a caller was told that all were written: that has failed.
fn is_short(op: &Op, next: &Next, result: &Result<DataDone, StoreError>) -> bool {
    let Ok(DataDone::Count(count)) = result else { return false };
    let short = match (next, &op.request) {
        (Next::Write { len, .. } | Next::Rewrite { len, .. }, _)
        | (Next::Copy { .. }, Request::CopyRange { len, .. }) => count < len,
        (
            Next::Read
            | Next::Zero { .. }
            | Next::Copy { .. }
            | Next::Seek
            | Next::Fsync(_)
            | Next::Synced(_)
            | Next::CutDone { .. }
            | Next::SyncFs
            | Next::StatFs,
            _,
        ) => false,
    };
    short && op.told.is_some()
}

impl Rank {
    pub(crate) fn data_done(
        &mut self,
        now: Now,
        tag: u64,
        result: Result<DataDone, StoreError>,
        out: &mut Outbox<Output>,
    ) {
        if self.state == State::Damaged {
            if let Some(Pending::Op(op, ..)) = self.pending.remove(&tag) {
                self.answer(&op, Err(Errno::EIO), false, out);
            }
            return;
        }
        if matches!(result, Err(StoreError::NoSpace)) {
            self.now_full(now, out);
        }
        match self.pending.remove(&tag) {
            None if self.unconfirmed.contains_key(&tag) => {
                self.inner_done(now, tag, Inner::Remove, result, out);
            }
            None => {}
            Some(Pending::Inner(inner)) => self.inner_done(now, tag, inner, result, out),
            Some(Pending::Op(op, claim, next)) => {
                let result = if is_short(&op, &next, &result) { Err(StoreError::NoSpace) } else { result };
                let gone = !self.sessions.map.contains_key(&op.session);
                if gone || result.is_err() {
                    self.change_untold(now, next, out);
                }
                if let (Next::Rewrite { ino, .. }, Err(_)) = (next, &result) {
                    self.view.tail_writes.failed(op.session, ino);
                }
                if gone {
                    self.unpin(&op);
                } else {
                    self.op_done(now, *op, next, result, out);
                }
                self.end_claim(claim);
            }
        }
    }

    /// Bytes may have changed that no transaction tells of. What was synced before is not all any more, and something may lie
    /// beyond the end, written under this cut: the next change that makes the file longer needs a new one.
    fn change_untold(&mut self, now: Now, next: Next, out: &mut Outbox<Output>) {
        let Some((ino, cut)) = next.changed() else { return };
        let Some(slot) = self.view.cache.by_ino(ino) else { return };
        finish::changed_bytes(&mut self.view, ino);
        self.view.cache.flag(ino, 0, node::END_CLEAN);
        let core = &mut self.view.cache.nodes.get_mut(slot).core;
        if cut.seq > core.truncate_seq {
            (core.truncate_seq, core.truncate_size) = (cut.seq, cut.size);
            self.view.spent_cuts.insert(ino, cut.seq);
            if let Some(key) = self.journal_spent_cuts(now, out) {
                self.start_load(key, None);
            }
        }
    }

    /// Journals cuts that no transaction tells of although their operation may have acted. The node alone would forget the number
    /// when it makes room for others, and the next cut would get it again and drop nothing of what this one wrote.
    /// Returns what has to be loaded before the last of them can be journaled.
    pub(crate) fn journal_spent_cuts(&mut self, now: Now, out: &mut Outbox<Output>) -> Option<LoadKey> {
        let mut missing = None;
        for (ino, seq) in std::mem::take(&mut self.view.spent_cuts) {
            let Some(slot) = self.view.cache.by_ino(ino) else {
                // One that left took the cut along: it was synced under it.
                if self.view.moved.went(ino).is_none() {
                    self.view.spent_cuts.insert(ino, seq);
                }
                continue;
            };
            let mut core = self.view.changed_core(slot);
            if core.truncate_seq > seq {
                // A later cut is known: its own transaction tells of it.
                continue;
            }
            if core.truncate_seq < seq {
                (core.truncate_seq, core.truncate_size) = (seq, core.size);
            }
            core.flags |= proto::inode::flags::CUT_PENDING;
            // The bytes may be others: the change counter moves, the times do not.
            match self.view.put_core(slot, &core) {
                Ok(()) => {
                    self.view.txn.cut(&core);
                    self.commit(now, None, out);
                }
                Err(stop) => {
                    if let Stop::Park(Park::Load(key)) = stop {
                        missing = Some(key);
                    }
                    self.view.txn.clear();
                    self.view.spent_cuts.insert(ino, seq);
                }
            }
        }
        missing
    }

    pub(crate) fn end_claim(&mut self, claim: Claim) {
        self.view.files.release(claim);
        for ino in claimed_inos(claim).into_iter().flatten() {
            self.wake(ino);
            self.forget_or_purge(ino);
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
                    let text = format!(
                        "data of a request by session {}: {error}{}",
                        op.session.0,
                        self.sessions.named(op.session)
                    );
                    out.push(Output::Note { level: Level::Error, text });
                }
                return self.answer(&op, Err(finish::errno_of(&error)), false, out);
            }
        };
        if let Next::Fsync(syncing) | Next::Synced(syncing) = next {
            let content = std::mem::replace(&mut done, DataDone::Done);
            if !self.synced(now, syncing, content, out) {
                return self.again(op);
            }
        }
        match next {
            Next::Synced(syncing) => {
                op.synced = syncing.ino;
                self.again(op);
            }
            Next::CutDone { ino } => {
                self.cut_done(ino, None);
                op.woken = true;
                self.again(op);
            }
            Next::Read
            | Next::Write { .. }
            | Next::Rewrite { .. }
            | Next::Zero { .. }
            | Next::Copy { .. }
            | Next::Seek
            | Next::Fsync(_)
            | Next::SyncFs
            | Next::StatFs => {
                let now = self.told_now(now, &op);
                self.view.now = now;
                self.view.resolved = NONE;
                let planned = finish::plan(&mut self.view, &op, next, done);
                self.note_heat(&op, &planned);
                self.carry_out_plan(now, &mut op, planned, out);
                self.view.now.wall = self.wall;
            }
        }
    }

    pub(crate) fn again(&mut self, mut op: Op) {
        op.waits = Waits::Turn;
        self.runnable.push_back(op.id);
        self.parked.insert(op.id, Box::new(op));
    }

    /// A file's data is durable, or is made so by the journal. `false`: it is not, the file was cut since its content was
    /// taken; behind the cut in the journal that content would come back at replay.
    fn synced(&mut self, now: Now, syncing: Syncing, done: DataDone, out: &mut Outbox<Output>) -> bool {
        let Syncing { ino, writes, cut, cutting } = syncing;
        let Some(slot) = self.view.cache.by_ino(ino) else { return true };
        let core = &self.view.cache.node(slot).core;
        let file = FileId { ino, generation: core.generation };
        let uncut = cutting && matches!(done, DataDone::Redo { truncate_seq, .. } if truncate_seq < cut);
        if (core.truncate_seq != cut || uncut) && !stdx::mutant!("mds_redo_behind_cut") {
            return false;
        }
        let stored = !matches!(done, DataDone::Redo { .. });
        if let DataDone::Redo { truncate_seq, write_seq, data } = done
            && !stdx::mutant!("mds_redo_not_journaled")
        {
            Mutation::DataRedo { file, truncate_seq, write_seq, data: &data }.encode(&mut self.view.txn.muts);
            self.commit(now, None, out);
        }
        let same =
            self.view.files.get(ino).is_none_or(|f| f.writes == writes && f.shared == 0 && !f.exclusive);
        if same {
            self.view.cache.flag(ino, node::DATA_CLEAN, node::WRITTEN);
            if stored {
                self.view.redone.forget(ino);
            }
        }
        true
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
                self.forget_or_purge(ino);
                self.confirmed(tag);
            }
            Inner::Remove => {
                self.view.full = false;
                self.confirmed(tag);
            }
            Inner::CloseSync(syncing) => {
                if let Ok(done) = result {
                    // Cut meanwhile: whoever did that and closes syncs again.
                    let _stale = !self.synced(now, syncing, done, out);
                }
                self.end_claim(Claim::User(syncing.ino));
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

    /// Whether no data operation is under way, or waits for its turn.
    pub(crate) fn data_is_idle(&self) -> bool {
        self.pending.is_empty() && self.unconfirmed.is_empty()
    }

    fn confirmed(&mut self, tag: u64) {
        self.unconfirmed.remove(&tag);
    }

    pub(crate) fn now_full(&mut self, now: Now, out: &mut Outbox<Output>) {
        if !self.view.full {
            let text = "no space left: new data refused, unlink still works".to_owned();
            out.push(Output::Note { level: Level::Warn, text });
            // What clients would make by themselves has no room: they ask, and are refused, before they tell anybody.
            self.view.book.take_back();
        }
        self.view.full = true;
        self.full_until = now.mono.after(FULL_NS);
    }

    /// Lets operations that wait for a file plan again, in their order.
    pub(crate) fn wake(&mut self, ino: Ino) {
        let Some(file) = self.view.files.existing(ino) else { return };
        for id in std::mem::take(&mut file.queue) {
            if let Some(op) = self.parked.get_mut(&id) {
                (op.woken, op.waits) = (true, Waits::Turn);
                self.runnable.push_back(id);
            }
        }
    }
}
