//! The rank's journal, metadata store and data files: each output is carried out later, after a delay of its own.
//!
//! Absent: the rank itself (`rank.rs`), the answers of the data store (`data.rs`).

use super::brief::{brief_batch, brief_done};
use super::{Event, World, fold};
use crate::model::judge::Verdict;
use mds::input::{Input, Tag};
use proto::ids::Position;
use proto::storeio::{DataDone, DataOp, LoadRequest, StoreBatch, StoreError};
use stdx::Mono;
use stdx::time::MS;
use store::meta::MetaStore;
use store::meta_memory::Begun;

/// How much of a file is read after a recovery: its beginning and its end.
const HEAD_BYTES: u64 = 32 << 10;
const TAIL_BYTES: u64 = 12 << 10;

impl World {
    pub(super) fn read_journal(&mut self, from: Position) -> Verdict {
        let life = self.lives;
        let Some(running) = &self.life else { return Ok(()) };
        let mut pieces = Vec::new();
        let end = running.journal.read(from, &mut |position, entries| {
            pieces.push((position, entries.to_vec()));
        });
        if self.disk.is_dead() {
            return Ok(());
        }
        let former = running.journal.former();
        let end = end.map_err(|error| format!("the journal cannot be read: {error}"))?;
        self.trace.event(self.now, "replay", end.0, || format!("{} to {}", from.0, end.0));
        self.judge.recovered(end)?;
        for (session, ino) in std::mem::take(&mut self.judge.untold) {
            let of = self.clients.iter_mut().filter(|slot| slot.session() == Some(session));
            of.for_each(|slot| slot.kernel.forget(ino));
        }
        self.judge_all_keeping()?;
        if self.readers.is_none() {
            self.judge.check_store(self.dump()?)?;
        }
        let mut at = self.now;
        for (position, entries) in pieces {
            at += 1 + self.rng.below(self.plan.disk_ns);
            self.at(at, Event::Rank { life, input: Box::new(Input::Replay { position, entries }) });
        }
        self.at(at + 1, Event::Rank { life, input: Box::new(Input::ReplayEnd { end, former }) });
        if let Some(running) = &mut self.life {
            running.replayed = true;
        }
        Ok(())
    }

    /// Nothing is under way after a recovery: every file's data must be what history allows.
    pub(super) fn read_all(&mut self) -> Verdict {
        if self.readers.is_some() {
            return Ok(());
        }
        for (file, cut, size) in self.judge.files() {
            let tail = size.saturating_sub(TAIL_BYTES).max(HEAD_BYTES);
            for (offset, end) in [(0, size.min(HEAD_BYTES)), (tail, size)] {
                let Some(len) = end.checked_sub(offset).filter(|len| *len > 0) else { continue };
                let Some(life) = &self.life else { return Ok(()) };
                match life.data.run(&DataOp::Read { file, cut, offset, len: len as u32, into: None }) {
                    Ok(DataDone::Bytes(bytes)) => {
                        self.judge.bytes_at_rest(file.ino, offset, bytes.bytes())?
                    }
                    _ if self.disk.is_dead() => return Ok(()),
                    other => {
                        return Err(format!(
                            "after recovery: read of {} answers {}",
                            file.ino.0,
                            brief_done(&other)
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn append(&mut self, position: Position, bytes: Vec<u8>, urgent: bool) {
        self.trace.event(self.now, "append", position.0 ^ fold(&bytes), || {
            format!("{} +{}{}", position.0, bytes.len(), if urgent { " urgent" } else { "" })
        });
        let wait = if urgent { self.rng.below(MS / 10) } else { self.rng.below(2 * MS) };
        if let Some(life) = &mut self.life {
            life.appends.push((position, bytes));
        }
        self.commit_soon(self.now + 1 + wait);
    }

    pub(super) fn commit_soon(&mut self, at: u64) {
        let Some(life) = &mut self.life else { return };
        if life.appends.is_empty() || life.commit_at.is_some_and(|planned| planned <= at) {
            return;
        }
        life.commit_at = Some(at);
        self.at(at, Event::Commit { life: self.lives });
    }

    /// The journal thread: writes what was appended, syncs, and tells the rank a while later.
    pub(super) fn commit(&mut self) -> Verdict {
        let Some(life) = &mut self.life else { return Ok(()) };
        if life.commit_at.is_none_or(|at| at > self.now) || life.journal_failed {
            return Ok(());
        }
        life.commit_at = None;
        let appends = std::mem::take(&mut life.appends);
        let mut result = Ok(Position(0));
        for (position, bytes) in &appends {
            let mut done = self.append_now(*position, bytes);
            if done == Err(StoreError::NoSpace) {
                self.release_ballast();
                done = self.append_now(*position, bytes);
            }
            if let Err(error) = done {
                result = Err(error);
                break;
            }
        }
        let Some(running) = &mut self.life else { return Ok(()) };
        if result.is_ok() {
            result = running.journal.sync();
        }
        if self.disk.is_dead() {
            return Ok(());
        }
        let input = match result {
            Ok(position) => {
                self.trace.event(self.now, "sync", position.0, || format!("{}", position.0));
                self.judge.durable(position);
                Input::Durable(position)
            }
            Err(error) => {
                running.journal_failed = true;
                if !self.faults.injected_io {
                    return Err(format!("the journal failed: {error}"));
                }
                Input::JournalFailed(error)
            }
        };
        self.after(self.plan.disk_ns, Event::Rank { life: self.lives, input: Box::new(input) });
        Ok(())
    }

    fn append_now(&self, position: Position, bytes: &[u8]) -> Result<(), StoreError> {
        self.life.as_ref().map_or(Ok(()), |life| life.journal.append(position, bytes))
    }

    pub(super) fn trim(&mut self, before: Position) -> Verdict {
        self.trace.event(self.now, "trim", before.0, || format!("{}", before.0));
        let stored = self.dump()?;
        self.judge.trim(before, &stored)?;
        if let Some(life) = &self.life
            && let Err(error) = life.journal.trim(before)
            && !self.disk.is_dead()
        {
            return Err(format!("trim: {error}"));
        }
        Ok(())
    }

    pub(super) fn load(&mut self, tag: Tag, requests: &[LoadRequest]) -> Verdict {
        let results = self.meta.load(requests);
        let input = Input::Loaded { tag, results };
        self.after(self.plan.disk_ns, Event::Rank { life: self.lives, input: Box::new(input) });
        Ok(())
    }

    /// Batches of one shard keep their order, others do not.
    pub(super) fn store_later(&mut self, tag: Tag, batches: Vec<StoreBatch>) {
        let shards = batches.len();
        self.trace.event(self.now, "store", tag.0, || {
            let batches: Vec<String> = batches.iter().map(brief_batch).collect();
            format!("{} {}", tag.0, batches.join(" "))
        });
        let Some(life) = &mut self.life else { return };
        life.stores.insert(tag, (shards, Ok(())));
        if batches.is_empty() {
            let input = Input::Stored { tag, result: Ok(()) };
            self.after(self.plan.disk_ns, Event::Rank { life: self.lives, input: Box::new(input) });
        }
        for batch in batches {
            let delay = 1 + self.rng.below(self.plan.store_ns);
            let Some(life) = &mut self.life else { return };
            let last = life.shards.get(&batch.shard.0).copied().unwrap_or(0);
            let at = (self.now + delay).max(last + 1);
            life.shards.insert(batch.shard.0, at);
            self.at(at, Event::Store { life: self.lives, tag, batch: Box::new(batch) });
        }
    }

    pub(super) fn store(&mut self, tag: Tag, batch: &StoreBatch) -> Verdict {
        let mut begun = self.meta.begin(std::slice::from_ref(batch));
        if begun == Err(StoreError::NoSpace) && self.rng.chance(1, 2) {
            self.release_ballast();
            begun = self.meta.begin(std::slice::from_ref(batch));
        }
        match begun {
            Ok(begun) => {
                self.after(self.plan.disk_ns, Event::StoreComplete { life: self.lives, tag, begun });
                Ok(())
            }
            Err(error @ StoreError::Guard { .. }) => Err(format!("store refused a batch: {error}")),
            Err(error) => self.store_done(tag, Err(error)),
        }
    }

    pub(super) fn store_complete(&mut self, tag: Tag, begun: &Begun) -> Verdict {
        self.meta.complete(begun);
        self.store_done(tag, Ok(()))
    }

    fn store_done(&mut self, tag: Tag, result: Result<(), StoreError>) -> Verdict {
        let Some(life) = &mut self.life else { return Ok(()) };
        let Some((left, all)) = life.stores.get_mut(&tag) else { return Ok(()) };
        *left -= 1;
        if all.is_ok() {
            *all = result;
        }
        if *left == 0 {
            let result = std::mem::replace(all, Ok(()));
            life.stores.remove(&tag);
            self.trace.event(self.now, "stored", tag.0, || format!("{} {result:?}", tag.0));
            let input = Input::Stored { tag, result };
            self.after(self.plan.disk_ns, Event::Rank { life: self.lives, input: Box::new(input) });
        }
        Ok(())
    }

    /// The store's and the journal's chores, now and then.
    pub(super) fn background(&mut self) -> Verdict {
        let Some(life) = &self.life else { return Ok(()) };
        let journal = self.rng.chance(1, 2);
        let aged = !journal && self.rng.chance(1, 8);
        life.data.keep_time(Mono(self.now));
        let done = match (journal, aged) {
            (true, _) => life.journal.prepare(),
            (_, true) => life.data.flush_aged().map(|()| false),
            _ => life.data.background_step(16 << 10),
        };
        if let Err(error) = done
            && error != StoreError::NoSpace
            && !self.disk.is_dead()
            && !self.faults.injected_io
        {
            return Err(format!("background work: {error}"));
        }
        self.after(20 * MS, Event::Background { life: self.lives });
        Ok(())
    }
}
