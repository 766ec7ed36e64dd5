//! The journal of a life, the store and the data that all share: each output is carried out later, after a delay of its own.
//!
//! Absent: the rank itself (`lives.rs`).

use super::Ranks;
use super::event::Event;
use crate::model::judge::Verdict;
use crate::trace::fold;
use crate::world::brief::{brief, brief_batch, brief_done};
use mds::input::{Input, Tag};
use proto::ids::Position;
use proto::storeio::{DataOp, LoadRequest, StoreBatch, StoreError, Table};
use std::collections::BTreeSet;
use stdx::Mono;
use stdx::time::MS;
use store::SimDisk;
use store::meta::MetaStore;
use store::meta_memory::Begun;

/// One of so many answers of the store is late, in runs in which any is.
const LATE_ONE_IN: u64 = 8;

impl Ranks {
    fn is_dead(&self, life: u64) -> bool {
        let disk = self.lives.get(&life).and_then(|life| self.disks.get(&life.rank));
        disk.is_some_and(SimDisk::is_dead)
    }

    pub(super) fn read_journal(&mut self, life: u64, from: Position) -> Verdict {
        let Some(running) = self.lives.get(&life) else { return Ok(()) };
        let (rank, former) = (running.rank, running.journal.former());
        let mut pieces = Vec::new();
        let end =
            running.journal.read(from, &mut |position, entries| pieces.push((position, entries.to_vec())));
        if self.is_dead(life) {
            return Ok(());
        }
        let end = end.map_err(|error| format!("the journal of rank {} cannot be read: {error}", rank.0))?;
        self.trace.event(self.now, "replay", end.0, || format!("rank {} {} to {}", rank.0, from.0, end.0));
        self.judge.recovered(rank, end)?;
        let stored = self.dump()?;
        self.judge.check_store(&stored)?;
        let mut at = self.now;
        for (position, entries) in pieces {
            at += 1 + self.rng.below(self.plan.disk_ns);
            self.at(at, Event::Rank { life, input: Box::new(Input::Replay { position, entries }) });
        }
        self.at(at + 1, Event::Rank { life, input: Box::new(Input::ReplayEnd { end, former }) });
        Ok(())
    }

    pub(super) fn append(&mut self, life: u64, position: Position, bytes: Vec<u8>, urgent: bool) {
        self.trace.event(self.now, "append", position.0 ^ fold(&bytes), || {
            format!("{life} {} +{}{}", position.0, bytes.len(), if urgent { " urgent" } else { "" })
        });
        let wait = if urgent { self.rng.below(MS / 10) } else { self.rng.below(self.plan.lazy_ns()) };
        if let Some(life) = self.lives.get_mut(&life) {
            life.appends.push((position, bytes));
        }
        self.commit_soon(life, self.now + 1 + wait);
    }

    pub(super) fn commit_soon(&mut self, life: u64, at: u64) {
        let Some(running) = self.lives.get_mut(&life) else { return };
        if running.appends.is_empty() || running.commit_at.is_some_and(|planned| planned <= at) {
            return;
        }
        running.commit_at = Some(at);
        self.at(at, Event::Commit { life });
    }

    /// The journal thread: writes what was appended, syncs, and tells the rank a while later.
    pub(super) fn commit(&mut self, life: u64) -> Verdict {
        let now = self.now;
        let Some(running) = self.lives.get_mut(&life) else { return Ok(()) };
        if running.commit_at.is_none_or(|at| at > now) {
            return Ok(());
        }
        running.commit_at = None;
        let appends = std::mem::take(&mut running.appends);
        let written =
            appends.iter().try_for_each(|(position, bytes)| running.journal.append(*position, bytes));
        let result = written.and_then(|()| running.journal.sync());
        let rank = running.rank;
        if self.is_dead(life) {
            return Ok(());
        }
        let position = result.map_err(|error| format!("the journal of rank {} failed: {error}", rank.0))?;
        self.trace.event(self.now, "sync", position.0, || format!("rank {} {}", rank.0, position.0));
        self.judge.durable(rank, position);
        self.after(self.plan.disk_ns, Event::Rank { life, input: Box::new(Input::Durable(position)) });
        Ok(())
    }

    pub(super) fn trim(&mut self, life: u64, before: Position) -> Verdict {
        let Some(rank) = self.lives.get(&life).map(|life| life.rank) else { return Ok(()) };
        self.trace.event(self.now, "trim", before.0, || format!("rank {} {}", rank.0, before.0));
        let stored = self.dump()?;
        self.judge.trim(rank, before, &stored)?;
        if let Some(running) = self.lives.get(&life)
            && let Err(error) = running.journal.trim(before)
            && !self.is_dead(life)
        {
            return Err(format!("trim: {error}"));
        }
        Ok(())
    }

    pub(super) fn load(&mut self, life: u64, tag: Tag, requests: &[LoadRequest]) -> Verdict {
        let results = self.meta.load(requests);
        self.trace.event(self.now, "loaded", tag.0, || format!("{life} {} {results:?}", tag.0));
        self.after(self.plan.disk_ns, Event::Rank { life, input: Box::new(Input::Loaded { tag, results }) });
        Ok(())
    }

    /// Batches of one shard keep their order, others do not.
    pub(super) fn store_later(&mut self, life: u64, tag: Tag, batches: Vec<StoreBatch>) {
        self.trace.event(self.now, "store", tag.0, || {
            let batches: Vec<String> = batches.iter().map(brief_batch).collect();
            format!("{life} {} {}", tag.0, batches.join(" "))
        });
        let Some(running) = self.lives.get_mut(&life) else { return };
        running.stores.insert(tag, (batches.len(), self.judge.sealed(running.rank)));
        if batches.is_empty() {
            let input = Input::Stored { tag, result: Ok(()) };
            self.after(self.plan.disk_ns, Event::Rank { life, input: Box::new(input) });
        }
        for batch in batches {
            let delay = 1 + self.rng.below(self.plan.store_ns);
            let Some(running) = self.lives.get_mut(&life) else { return };
            let last = running.shards.get(&batch.shard.0).copied().unwrap_or(0);
            let at = (self.now + delay).max(last + 1);
            running.shards.insert(batch.shard.0, at);
            self.at(at, Event::Store { life, tag, batch: Box::new(batch) });
        }
    }

    pub(super) fn store(&mut self, life: u64, tag: Tag, batch: &StoreBatch) -> Verdict {
        match self.meta.begin(std::slice::from_ref(batch)) {
            Ok(begun) => {
                self.after(self.plan.disk_ns, Event::StoreComplete { life, tag, begun });
                self.store_step(life)
            }
            Err(error) => Err(format!("store refused a batch of life {life}: {error}")),
        }
    }

    pub(super) fn store_complete(&mut self, life: u64, tag: Tag, begun: &Begun) -> Verdict {
        self.meta.complete(begun);
        self.store_step(life)?;
        let Some(running) = self.lives.get_mut(&life) else { return Ok(()) };
        let Some((left, _)) = running.stores.get_mut(&tag) else { return Ok(()) };
        *left -= 1;
        if *left == 0 {
            self.trace.event(self.now, "stored", tag.0, || format!("{life} {}", tag.0));
            let input = Input::Stored { tag, result: Ok(()) };
            let late = self.plan.late_ns > 0 && self.rng.chance(1, LATE_ONE_IN);
            let longest = if late { self.plan.late_ns } else { self.plan.disk_ns };
            self.after(longest, Event::Rank { life, input: Box::new(input) });
        }
        Ok(())
    }

    /// A step of a life at the store, at which it may die.
    fn store_step(&mut self, life: u64) -> Verdict {
        let Some(running) = self.lives.get_mut(&life) else { return Ok(()) };
        match running.store_dies {
            None => Ok(()),
            Some(0) => {
                self.coverage.count("power failed in a step of the store");
                self.life_ends(life, true)
            }
            Some(steps) => {
                running.store_dies = Some(steps - 1);
                Ok(())
            }
        }
    }

    /// A life has ended with batches on their way to the store. Each is carried out or lost as a whole; of a shard's none before the one
    /// that it follows.
    pub(super) fn batches_of_dead(&mut self, life: u64) -> Verdict {
        let is_its = |event: &Event| matches!(event, Event::Store { life: of, .. } if *of == life);
        let on_their_way: Vec<(u64, u64)> =
            self.heap.iter().filter(|(_, event)| is_its(event)).map(|(at, _)| *at).collect();
        let mut lost = BTreeSet::new();
        for at in on_their_way {
            let Some(Event::Store { batch, .. }) = self.heap.remove(&at) else { continue };
            if lost.contains(&batch.shard.0) || self.rng.chance(1, 2) {
                lost.insert(batch.shard.0);
                self.coverage.count("batches lost with a life");
                continue;
            }
            self.coverage.count("batches stored behind the end of a life");
            let applied = self.meta.apply(std::slice::from_ref(&batch));
            applied.map_err(|error| format!("store refused a batch of life {life}: {error}"))?;
        }
        Ok(())
    }

    /// The power of the store fails: what it has begun, and no more, may be taken back.
    pub(super) fn store_power(&mut self) {
        let before = self.meta.dump(Table::Dentry);
        self.meta.crash();
        if self.meta.dump(Table::Dentry) != before {
            self.coverage.count("batches begun and taken back");
        }
    }

    pub(super) fn data(&mut self, life: u64, tag: Tag, op: &DataOp) -> Verdict {
        let result = self.data.run(op);
        if let Err(error) = &result
            && *error != StoreError::NoSpace
        {
            return Err(format!("data store: {error} on {}", brief(op)));
        }
        self.trace.event(self.now, "done", tag.0, || format!("{life} {} {}", tag.0, brief_done(&result)));
        let input = Input::DataDone { tag, result };
        self.after(self.plan.disk_ns, Event::Rank { life, input: Box::new(input) });
        Ok(())
    }

    /// The store's and the journal's chores, now and then.
    pub(super) fn background(&mut self, life: u64) -> Verdict {
        let Some(running) = self.lives.get(&life) else { return Ok(()) };
        self.data.keep_time(Mono(self.now));
        let done = match self.rng.below(8) {
            0..4 => running.journal.prepare(),
            4 => self.data.flush_aged().map(|()| false),
            _ => self.data.background_step(16 << 10),
        };
        if let Err(error) = done
            && !self.is_dead(life)
        {
            return Err(format!("background work: {error}"));
        }
        self.after(20 * MS, Event::Background { life });
        Ok(())
    }
}
