//! The checkpoint's batches: which dirty records of which directory go into the next one, and their headers behind them.
//!
//! Absent: phases, and what happens to a batch (`checkpoint.rs`).

use super::{Cursor, Writing};
use crate::cache::slab::NONE;
use crate::cache::{dir, node};
use crate::rank::Rank;
use proto::cluster::Unit;
use proto::dentry::{encode_primary, encode_remote};
use proto::header::FragHeader;
use proto::storeio::{Backptr, StoreBatch, StoreKey};
use proto::{Ino, NameHash};
use stdx::Now;

/// Which part of what may be under way to the store one slice of sessions' records is, about. Each has up to `Limits::results`
/// outcomes.
const SESSIONS_PART: usize = 64;

impl Rank {
    /// Records of sessions, as they are now. They may be ahead of the checkpoint's position, of the old one too if this fails: what
    /// the tail says of a session is all there once more, and comes to the same.
    pub(super) fn sessions_slice(&mut self, now: Now) {
        let Some(from) = self.checkpoint.sessions_from.take() else { return };
        let rank = self.view.config.rank;
        let most = self.view.config.limits.store_bytes / SESSIONS_PART;
        let mut batch = StoreBatch::new(Ino::SYSTEM, None);
        for (id, session) in self.sessions.map.range(from..).filter(|(_, session)| session.is_clients()) {
            if batch.bytes() >= most {
                self.checkpoint.sessions_from = Some(*id);
                break;
            }
            batch.put(StoreKey::Session { rank, id: *id }, |w| session.record().encode(w));
        }
        // The record goes with the last of them: one wait for the disk less.
        if self.checkpoint.sessions_from.is_none() && self.checkpoint.under_way.is_empty() {
            return self.store_record(now, batch);
        }
        let batches = if batch.bytes() == 0 { Vec::new() } else { vec![batch] };
        self.emit(now, batches, Writing::default());
    }

    pub(super) fn entries_slice(&mut self, now: Now) {
        let mut budget = self.view.config.limits.slice_entries as usize;
        let mut batches = Vec::new();
        let mut writing = Writing::default();
        while budget > 0 && self.next_dir() {
            let Some(cursor) = self.checkpoint.cursor else { break };
            let used = self.dir_batch(cursor, budget, &mut batches, &mut writing);
            budget = budget.saturating_sub(used.max(1));
        }
        while budget > 0 && self.checkpoint.cursor.is_none() && self.checkpoint.dirs_left == 0 {
            let Some((ino, entry)) = self.view.backptrs_old.pop_first() else { break };
            batches.push(backptr_batch(ino, entry.1.as_ref()));
            self.view.backptrs_writing.insert(ino, entry);
            writing.backptrs.push(ino);
            budget -= 1;
        }
        self.emit(now, batches, writing);
    }

    /// Makes sure that a directory is being visited; false when all have been.
    fn next_dir(&mut self) -> bool {
        while self.checkpoint.cursor.is_none() && self.checkpoint.dirs_left > 0 {
            self.checkpoint.dirs_left -= 1;
            let Some(slot) = self.view.cache.dirty_dirs.pop_front() else { break };
            let round = self.view.cache.round;
            let slice = self.view.config.limits.slice_entries;
            let dir = self.view.cache.dirs.get(slot);
            if !dir.has(dir::QUEUED) {
                continue;
            }
            if dir.queued == round {
                self.view.cache.dirty_dirs.push_back(slot);
                continue;
            }
            let dense = dir.dirty > slice && dir.dirty > dir.table.len() / 8;
            let walk = dense.then_some(NameHash(0));
            self.checkpoint.cursor = Some(Cursor { dir: slot, walk, split: false });
        }
        self.checkpoint.cursor.is_some()
    }

    /// Encodes up to `budget` old entries of a directory. Returns how much of the budget it took.
    fn dir_batch(
        &mut self,
        mut cursor: Cursor,
        budget: usize,
        batches: &mut Vec<StoreBatch>,
        writing: &mut Writing,
    ) -> usize {
        let (slots, seen) = self.old_entries(&mut cursor, budget);
        let dir = self.view.cache.dirs.get(cursor.dir);
        let unit = dir.unit();
        // Of a directory that a former life removed nothing but that is known.
        let known = dir.has(dir::HEADER) && !dir.has(dir::REMOVED);
        let mut batch = StoreBatch::of_unit(unit.dir, unit.frag, known.then_some(dir.header.version));
        for slot in slots {
            self.encode_entry(unit.dir, slot, &mut batch);
            self.view.cache.take_dirty(slot);
            self.view.cache.nodes.get_mut(slot).flags |= node::WRITING | node::STORED;
            writing.nodes.push(slot);
        }
        let head = self.view.cache.dirs.get(cursor.dir).dirty_head;
        let done = head == NONE || !self.view.cache.is_old(head);
        if done {
            self.checkpoint.cursor = None;
            self.finish_dir(cursor, &mut batch, writing);
        } else {
            cursor.split = true;
            self.checkpoint.cursor = Some(cursor);
        }
        if !batch.is_empty() {
            batches.push(batch);
        }
        seen
    }

    fn old_entries(&self, cursor: &mut Cursor, budget: usize) -> (Vec<u32>, usize) {
        let cache = &self.view.cache;
        let dir = cache.dir(cursor.dir);
        let mut slots = Vec::with_capacity(budget.min(dir.dirty as usize));
        let Some(from) = cursor.walk else {
            let mut at = dir.dirty_head;
            while at != NONE && slots.len() < budget && cache.is_old(at) {
                slots.push(at);
                at = cache.node(at).next;
            }
            slots.sort_unstable_by(|a, b| {
                let (a, b) = (cache.node(*a), cache.node(*b));
                (a.hash, a.name.as_bytes()).cmp(&(b.hash, b.name.as_bytes()))
            });
            let seen = slots.len();
            return (slots, seen);
        };
        let (mut seen, mut last) = (0, None);
        dir.table.walk(from, &cache.nodes, |at| {
            if seen >= 4 * budget || slots.len() >= budget {
                last = Some(cache.node(at).hash);
                return false;
            }
            seen += 1;
            if cache.is_old(at) {
                slots.push(at);
            }
            true
        });
        // Whatever the walk passed by (a name that came back) is found along the list.
        cursor.walk = last;
        (slots, seen.div_ceil(4).max(1))
    }

    fn encode_entry(&self, dir: Ino, slot: u32, batch: &mut StoreBatch) {
        let node = self.view.cache.node(slot);
        let key = StoreKey::head(dir, node.hash, node.name.as_bytes());
        if node.primary() {
            batch.put(key, |w| encode_primary(&node.core, self.view.cache.ext(slot), w));
        } else if node.positive() {
            batch.put(key, |w| encode_remote(node.ino(), node.kind(), w));
        } else {
            batch.delete(key);
        }
    }

    /// All old entries of a directory are encoded: its header follows, in the same batch when that
    /// holds them all, otherwise after every other batch is stored.
    fn finish_dir(&mut self, cursor: Cursor, batch: &mut StoreBatch, writing: &mut Writing) {
        let round = self.view.cache.round;
        let dir = self.view.cache.dirs.get_mut(cursor.dir);
        let (ino, unit) = (dir.ino, dir.unit());
        dir.clear(dir::QUEUED);
        let changed_since = dir.saved.is_some() || (dir.round == round && dir.dirty > 0);
        if dir.has(dir::HEADER_DIRTY) || dir.saved.is_some() {
            let removed = dir.has(dir::REMOVED);
            let header = match dir.saved.take() {
                Some(saved) => *saved,
                None => dir.header.clone(),
            };
            let header = (!removed).then_some(header);
            dir.set(dir::STORED | dir::HEADER_LATER);
            dir.clear(dir::HEADER_DIRTY);
            if cursor.split && !stdx::mutant!("mds_header_before_entries") {
                self.checkpoint.later.push_back((ino, unit, header));
            } else {
                put_header(batch, unit, header.as_ref());
                writing.headers.push(ino);
            }
        }
        if changed_since || self.view.cache.dirs.get(cursor.dir).dirty > 0 {
            self.view.cache.dirs.get_mut(cursor.dir).set(dir::HEADER_DIRTY);
            self.view.cache.queue_dir(cursor.dir);
        }
    }

    pub(super) fn headers_slice(&mut self, now: Now) {
        let mut batches = Vec::new();
        let mut writing = Writing::default();
        for _ in 0..self.view.config.limits.slice_entries {
            let Some((ino, unit, header)) = self.checkpoint.later.pop_front() else { break };
            let guard = header.as_ref().map(|header| header.version);
            let mut batch = StoreBatch::of_unit(unit.dir, unit.frag, guard);
            put_header(&mut batch, unit, header.as_ref());
            writing.headers.push(ino);
            batches.push(batch);
        }
        self.emit(now, batches, writing);
    }
}

fn put_header(batch: &mut StoreBatch, unit: Unit, header: Option<&FragHeader>) {
    let key = StoreKey::Header { dir: unit.dir, frag: unit.frag };
    match header {
        Some(header) => batch.put(key, |w| header.encode(w)),
        None => batch.delete(key),
    }
}

fn backptr_batch(ino: Ino, place: Option<&Backptr>) -> StoreBatch {
    let mut batch = StoreBatch::new(ino, None);
    match place {
        Some(place) => batch.put(StoreKey::Backptr { ino }, |w| place.encode(w)),
        None => batch.delete(StoreKey::Backptr { ino }),
    }
    batch
}
