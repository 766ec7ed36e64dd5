//! A metadata store in memory, for the simulator and tests: batches are atomic, durable when `apply`
//! returns, and what an interrupted `apply` leaves behind is up to `crash`.
//!
//! Absent: disk, latency, threads (a lock only makes it shareable).

use crate::checked::{
    CRC_BYTES, Found, Page, damaged, dentry_bound, dentry_page, first_session, header_version, seal,
    sessions, unseal,
};
use crate::meta::MetaStore;
use proto::ids::{Ino, NameHash, SnapId};
use proto::storeio::{IoError, LoadRequest, Loaded, StoreBatch, StoreError, StoreKey, Table};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use stdx::Prng;

const EIO: i32 = 5;
/// What a record costs beyond key and value when space is counted.
const RECORD_BYTES: u64 = 32;

/// Which calls an injected error hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaFault {
    Load,
    Apply,
}

/// An `apply` that has begun: its batches are visible, but not durable until it is complete.
#[derive(Debug, PartialEq, Eq)]
pub struct Begun(u64);

/// The store. Clones are handles of one store.
#[derive(Clone)]
pub struct MemoryMeta(Arc<Mutex<State>>);

/// A record's key bytes and value.
pub type Record = (Vec<u8>, Vec<u8>);

type Records = BTreeMap<Vec<u8>, Vec<u8>>;

struct State {
    prng: Prng,
    tables: [Records; 3],
    used: u64,
    capacity: u64,
    /// Batches of applies that are not complete, in the order applied.
    incomplete: Vec<Undo>,
    next_begun: u64,
    load_faults: u32,
    apply_faults: u32,
}

struct Undo {
    begun: u64,
    shard: Ino,
    /// What each key held before, newest first when undone.
    records: Vec<Before>,
}

struct Before {
    table: Table,
    key: Vec<u8>,
    stored: Option<Vec<u8>>,
}

impl MemoryMeta {
    /// An empty store without a capacity limit.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            prng: Prng::new(seed),
            tables: [const { BTreeMap::new() }; 3],
            used: 0,
            capacity: u64::MAX,
            incomplete: Vec::new(),
            next_begun: 0,
            load_faults: 0,
            apply_faults: 0,
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies the batches as `apply` does, but a `crash` before `complete` may take some back. On an
    /// error the batches before the failing one stay, as if their apply had been a call of its own.
    ///
    /// # Errors
    /// As `apply`.
    pub fn begin(&self, batches: &[StoreBatch]) -> Result<Begun, StoreError> {
        let mut state = self.state();
        if state.apply_faults > 0 {
            state.apply_faults -= 1;
            return Err(StoreError::Io { at: "meta".into(), source: IoError(EIO) });
        }
        let begun = state.next_begun;
        state.next_begun += 1;
        for batch in batches {
            state.apply_batch(begun, batch)?;
        }
        Ok(Begun(begun))
    }

    /// The apply is durable from here on, and so is whatever its shards were given before it.
    pub fn complete(&self, begun: &Begun) {
        let mut state = self.state();
        let mut complete = BTreeSet::new();
        let mut kept = Vec::new();
        for undo in std::mem::take(&mut state.incomplete).into_iter().rev() {
            if undo.begun == begun.0 {
                complete.insert(undo.shard);
            }
            if !complete.contains(&undo.shard) {
                kept.push(undo);
            }
        }
        kept.reverse();
        state.incomplete = kept;
    }

    /// The machine stops and restarts: of the batches not complete each shard keeps a random number of
    /// the oldest.
    pub fn crash(&self) {
        let mut state = self.state();
        let state = &mut *state;
        let undos = std::mem::take(&mut state.incomplete);
        let mut lost: BTreeMap<Ino, (usize, usize)> = BTreeMap::new();
        for undo in &undos {
            lost.entry(undo.shard).or_default().0 += 1;
        }
        for (count, lose) in lost.values_mut() {
            *lose = state.prng.index(*count + 1);
        }
        for undo in undos.into_iter().rev() {
            let Some((_, lose)) = lost.get_mut(&undo.shard) else { continue };
            if *lose == 0 {
                continue;
            }
            *lose -= 1;
            for Before { table, key, stored } in undo.records.into_iter().rev() {
                state.set(table, key, stored);
            }
        }
    }

    /// Limits keys and values together; beyond it `apply` answers `NoSpace`.
    pub fn set_capacity(&self, bytes: u64) {
        self.state().capacity = bytes;
    }

    /// Bytes in use, as counted against the capacity.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.state().used
    }

    /// Fails the next `count` calls of that kind (for loads: requests).
    pub fn inject(&self, fault: MetaFault, count: u32) {
        let mut state = self.state();
        match fault {
            MetaFault::Load => state.load_faults = count,
            MetaFault::Apply => state.apply_faults = count,
        }
    }

    /// Flips one bit of a stored value. Whether there was such a record.
    pub fn flip(&self, key: StoreKey<'_>, bit: usize) -> bool {
        let mut bytes = Vec::new();
        key.encode(&mut bytes);
        let mut state = self.state();
        let Some(value) = state.tables[slot(key.table())].get_mut(&bytes) else { return false };
        let bit = bit % (value.len() * 8);
        value[bit / 8] ^= 1 << (bit % 8);
        true
    }

    /// Number of records of a table.
    #[must_use]
    pub fn len(&self, table: Table) -> usize {
        self.state().tables[slot(table)].len()
    }

    /// All records of a table in key order: key bytes and value. For checkers.
    ///
    /// # Errors
    /// `Damaged` for a record that does not match its checksum.
    pub fn dump(&self, table: Table) -> Result<Vec<Record>, StoreError> {
        let state = self.state();
        state.range(table, Vec::new()).map(|record| record.map(|(k, v)| (k.to_vec(), v.to_vec()))).collect()
    }
}

impl MetaStore for MemoryMeta {
    fn load(&self, requests: &[LoadRequest]) -> Vec<Result<Loaded, StoreError>> {
        let mut state = self.state();
        requests
            .iter()
            .map(|request| {
                if state.load_faults > 0 {
                    state.load_faults -= 1;
                    return Err(StoreError::Io { at: "meta".into(), source: IoError(EIO) });
                }
                state.load(request)
            })
            .collect()
    }

    fn apply(&self, batches: &[StoreBatch]) -> Result<(), StoreError> {
        let begun = self.begin(batches)?;
        self.complete(&begun);
        Ok(())
    }
}

const fn slot(table: Table) -> usize {
    table as usize - 1
}

impl State {
    fn range(&self, table: Table, from: Vec<u8>) -> impl Iterator<Item = Found<'_>> {
        let range = (Bound::Included(from), Bound::Unbounded);
        self.tables[slot(table)].range::<Vec<u8>, _>(range).map(move |(key, stored)| {
            match unseal(key, stored) {
                Some(value) => Ok((key.as_slice(), value)),
                None => Err(damaged("memory", table, key, "checksum mismatch")),
            }
        })
    }

    fn value(&self, key: StoreKey<'_>) -> Result<Loaded, StoreError> {
        let mut bytes = Vec::new();
        key.encode(&mut bytes);
        let Some(stored) = self.tables[slot(key.table())].get(&bytes) else { return Ok(Loaded::Value(None)) };
        match unseal(&bytes, stored) {
            Some(value) => Ok(Loaded::Value(Some(value.into()))),
            None => Err(damaged("memory", key.table(), &bytes, "checksum mismatch")),
        }
    }

    fn load(&self, request: &LoadRequest) -> Result<Loaded, StoreError> {
        match *request {
            LoadRequest::Dentry { dir, hash, ref name } => {
                self.value(StoreKey::Dentry { dir, hash, name, snap: SnapId::HEAD })
            }
            LoadRequest::ByHash { dir, hash } => {
                let records = self.range(Table::Dentry, dentry_bound(dir, hash));
                dentry_page(dir, Page::Hash(hash), records)
            }
            LoadRequest::Scan { dir, from, entries_max } => {
                let bound = dentry_bound(dir, from.max(NameHash(1)));
                dentry_page(dir, Page::Scan(entries_max), self.range(Table::Dentry, bound))
            }
            LoadRequest::Header { dir, frag } => self.value(StoreKey::Header { dir, frag }),
            LoadRequest::Backptr { ino } => self.value(StoreKey::Backptr { ino }),
            LoadRequest::Sessions { rank } => sessions(rank, self.range(Table::System, first_session(rank))),
            LoadRequest::Counter { rank } => self.value(StoreKey::Counter { rank }),
            LoadRequest::Checkpoint { rank } => self.value(StoreKey::Checkpoint { rank }),
        }
    }

    fn check_guard(&self, batch: &StoreBatch) -> Result<(), StoreError> {
        let Some(guard) = batch.guard else { return Ok(()) };
        let mut wanted = Vec::new();
        StoreKey::Header { dir: batch.shard, frag: batch.frag }.encode(&mut wanted);
        if let Some(record) = self.range(Table::Dentry, wanted.clone()).next() {
            let (key, value) = record?;
            if key != wanted {
                return Ok(());
            }
            let stored = header_version(value)
                .ok_or_else(|| damaged("memory", Table::Dentry, key, "not a frag header"))?;
            if stored > guard.0 && !stdx::mutant!("store_no_guard") {
                return Err(StoreError::Guard { stored, guard: guard.0 });
            }
        }
        Ok(())
    }

    fn apply_batch(&mut self, begun: u64, batch: &StoreBatch) -> Result<(), StoreError> {
        batch.check_shard()?;
        self.check_guard(batch)?;
        let mut undo = Undo { begun, shard: batch.shard, records: Vec::new() };
        for (table, key, value) in batch.iter() {
            let stored = value.map(|value| {
                let mut stored = Vec::with_capacity(CRC_BYTES + value.len());
                seal(key, value, &mut stored);
                stored
            });
            let stored = self.set(table, key.to_vec(), stored);
            undo.records.push(Before { table, key: key.to_vec(), stored });
        }
        // Only growth can lack space: a batch that frees is always taken.
        let grew = undo.records.iter().map(|before| cost(&before.key, before.stored.as_ref())).sum::<u64>()
            < batch
                .iter()
                .map(|(_, key, value)| value.map_or(0, |v| cost_of(key, v.len() + CRC_BYTES)))
                .sum();
        if self.used > self.capacity && grew {
            for Before { table, key, stored } in undo.records.into_iter().rev() {
                self.set(table, key, stored);
            }
            return Err(StoreError::NoSpace);
        }
        self.incomplete.push(undo);
        Ok(())
    }

    fn set(&mut self, table: Table, key: Vec<u8>, value: Option<Vec<u8>>) -> Option<Vec<u8>> {
        let new = cost(&key, value.as_ref());
        let records = &mut self.tables[slot(table)];
        let (old, before) = match value {
            Some(value) => {
                let before = records.get(&key).cloned();
                let old = cost(&key, before.as_ref());
                records.insert(key, value);
                (old, before)
            }
            None => {
                let before = records.remove(&key);
                (cost(&key, before.as_ref()), before)
            }
        };
        self.used = self.used + new - old;
        before
    }
}

fn cost(key: &[u8], value: Option<&Vec<u8>>) -> u64 {
    value.map_or(0, |value| cost_of(key, value.len()))
}

const fn cost_of(key: &[u8], value_bytes: usize) -> u64 {
    key.len() as u64 + value_bytes as u64 + RECORD_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::ids::RankId;

    fn counter(rank: u16, value: u64) -> StoreBatch {
        let mut batch = StoreBatch::new(Ino::SYSTEM, None);
        batch.put(StoreKey::Counter { rank: RankId(rank) }, |w| {
            w.u64(value);
        });
        batch
    }

    fn dentry(dir: u64, value: u8) -> StoreBatch {
        let mut batch = StoreBatch::new(Ino(dir), None);
        batch.put(StoreKey::head(Ino(dir), NameHash(9), b"n"), |w| {
            w.u8(value);
        });
        batch
    }

    fn read(meta: &MemoryMeta, dir: u64) -> Option<u8> {
        let request = LoadRequest::Dentry { dir: Ino(dir), hash: NameHash(9), name: b"n"[..].into() };
        match &meta.load(&[request])[0] {
            Ok(Loaded::Value(value)) => value.as_ref().map(|value| value[0]),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_crash_keeps_a_prefix_per_shard_and_all_that_is_settled() {
        let mut outcomes = BTreeSet::new();
        for seed in 0..200 {
            let meta = MemoryMeta::new(seed);
            meta.apply(&[dentry(5, 1)]).expect("applied");
            let first = meta.begin(&[dentry(5, 2), dentry(6, 2)]).expect("begun");
            let _second = meta.begin(&[dentry(5, 3), dentry(6, 3)]).expect("begun");
            let third = meta.begin(&[dentry(7, 3)]).expect("begun");
            meta.complete(&third);
            assert_eq!(read(&meta, 5), Some(3));
            meta.crash();
            assert_eq!(read(&meta, 7), Some(3));
            meta.complete(&first);
            outcomes.insert((read(&meta, 5), read(&meta, 6)));
        }
        let expected: BTreeSet<_> = [Some(1), Some(2), Some(3)]
            .into_iter()
            .flat_map(|a| [None, Some(2), Some(3)].map(|b| (a, b)))
            .collect();
        assert_eq!(outcomes, expected);
    }

    #[test]
    fn injected_errors_hit_once() {
        let meta = MemoryMeta::new(1);
        meta.inject(MetaFault::Apply, 1);
        assert!(meta.apply(&[counter(0, 1)]).is_err());
        meta.apply(&[counter(0, 1)]).expect("applied");
        meta.inject(MetaFault::Load, 1);
        let request = LoadRequest::Counter { rank: RankId(0) };
        let results = meta.load(&[request.clone(), request]);
        assert!(results[0].is_err() && results[1].is_ok());
    }
}
