//! One LMDB environment: its transactions and errors.
//!
//! Absent: which shard lies here; how the file is opened (`live`).

use super::live::Live;
use super::{EnvironmentStats, Visit, bad_record};
use crate::checked::{
    Found, Page, damaged, dentry_bound, dentry_page, first_session, header_version, seal, sessions, unseal,
};
use crate::disk_real::{failed, space_of};
use heed::{MdbError, RoTxn, RwTxn, WithoutTls};
use proto::ids::{Frag, Ino, NameHash, SnapId};
use proto::storeio::{IoError, LoadRequest, Loaded, StoreBatch, StoreError, StoreKey, Table};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

/// Records visited under one snapshot.
const VISIT_RECORDS: usize = 4096;
/// Reads that tell whether the leaves of a transaction are in memory, and how slow they are when not.
const SAMPLES: usize = 32;
const COLD_READ: Duration = Duration::from_micros(20);
const PREFAULT_THREADS: usize = 16;
/// A disk with less than this is full.
const FULL_BYTES: u64 = 4 << 20;
/// Threads are not worth it for fewer keys.
const PREFAULT_KEYS: usize = 64;

/// One environment.
pub(super) struct Environment {
    /// For messages: "meta/env-03".
    pub(super) place: String,
    pub(super) path: PathBuf,
    pub(super) map_bytes: u64,
    /// `None` only if reopening failed after a compaction.
    pub(super) live: RwLock<Option<Live>>,
    /// LMDB has such a lock too; this one is also held while the file is copied and replaced.
    pub(super) writer: Mutex<()>,
    poisoned: AtomicBool,
}

/// A snapshot of one environment, for a few reads.
pub(super) struct Reader<'a> {
    // Declared first: the transaction must end before the environment may be replaced.
    txn: RoTxn<'static, WithoutTls>,
    live: RwLockReadGuard<'a, Option<Live>>,
    key: Vec<u8>,
}

/// A write of one transaction.
struct Write<'a> {
    table: Table,
    key: &'a [u8],
    value: Option<&'a [u8]>,
}

impl Environment {
    /// Opens an environment file, making it only if asked to.
    pub(super) fn open(index: u16, path: PathBuf, map_bytes: u64, create: bool) -> Result<Self, StoreError> {
        let place = format!("meta/env-{index:02x}");
        match std::fs::remove_file(super::copy::unfinished(&path)) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(&place, &error)),
            _ => {}
        }
        if !create && !path.try_exists().map_err(|error| failed(&place, &error))? {
            return Err(StoreError::Damaged { at: place, what: "is missing".into() });
        }
        let live = Live::open(&place, &path, map_bytes, create)?;
        Ok(Self {
            place,
            path,
            map_bytes,
            live: RwLock::new(Some(live)),
            writer: Mutex::new(()),
            poisoned: AtomicBool::new(false),
        })
    }

    fn live(&self) -> RwLockReadGuard<'_, Option<Live>> {
        self.live.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn reader(&self) -> Result<Reader<'_>, StoreError> {
        let live = self.live();
        let env = live.as_ref().ok_or(StoreError::Poisoned)?.env.clone();
        let txn = env.static_read_txn().map_err(|error| self.read_error(&error))?;
        Ok(Reader { txn, live, key: Vec::with_capacity(300) })
    }

    /// Answers one request from the snapshot in `slot`, taking one if there is none.
    pub(super) fn load<'a>(
        &'a self,
        slot: &mut Option<Reader<'a>>,
        request: &LoadRequest,
    ) -> Result<Loaded, StoreError> {
        let reader = match slot {
            Some(reader) => reader,
            None => slot.insert(self.reader()?),
        };
        let loaded = self.load_one(reader, request);
        // LMDB answers nothing more in a transaction that met damage: other requests need another one.
        if loaded.is_err() {
            *slot = None;
        }
        loaded
    }

    fn load_one(&self, reader: &mut Reader<'_>, request: &LoadRequest) -> Result<Loaded, StoreError> {
        match *request {
            LoadRequest::Dentry { dir, hash, ref name } => {
                self.value(reader, StoreKey::Dentry { dir, hash, name, snap: SnapId::HEAD })
            }
            LoadRequest::ByHash { dir, hash } => {
                let records = self.records(reader, Table::Dentry, &dentry_bound(dir, hash))?;
                dentry_page(dir, Page::Hash(hash), records)
            }
            LoadRequest::Scan { dir, from, entries_max } => {
                let bound = dentry_bound(dir, from.max(NameHash(1)));
                dentry_page(dir, Page::Scan(entries_max), self.records(reader, Table::Dentry, &bound)?)
            }
            LoadRequest::Header { dir, frag } => self.value(reader, StoreKey::Header { dir, frag }),
            LoadRequest::Backptr { ino } => self.value(reader, StoreKey::Backptr { ino }),
            LoadRequest::Sessions { rank } => {
                sessions(rank, self.records(reader, Table::System, &first_session(rank))?)
            }
            LoadRequest::Counter { rank } => self.value(reader, StoreKey::Counter { rank }),
            LoadRequest::Checkpoint { rank } => self.value(reader, StoreKey::Checkpoint { rank }),
        }
    }

    fn value(&self, reader: &mut Reader<'_>, key: StoreKey<'_>) -> Result<Loaded, StoreError> {
        reader.key.clear();
        key.encode(&mut reader.key);
        let table = key.table();
        let records = reader.live.as_ref().ok_or(StoreError::Poisoned)?.tables[slot(table)];
        let found = records.get(&reader.txn, &reader.key).map_err(|error| self.read_error(&error))?;
        match found.map(|stored| unseal(&reader.key, stored)) {
            None => Ok(Loaded::Value(None)),
            Some(Some(value)) => Ok(Loaded::Value(Some(value.into()))),
            Some(None) => Err(bad_record(&self.place, table, &reader.key)),
        }
    }

    fn records<'r>(
        &'r self,
        reader: &'r Reader<'_>,
        table: Table,
        from: &[u8],
    ) -> Result<impl Iterator<Item = Found<'r>> + use<'r>, StoreError> {
        let records = reader.live.as_ref().ok_or(StoreError::Poisoned)?.tables[slot(table)];
        let range = (Bound::Included(from), Bound::Unbounded);
        let range = records.range(&reader.txn, &range).map_err(|error| self.read_error(&error))?;
        Ok(range.map(move |record| {
            let (key, stored) = record.map_err(|error| self.read_error(&error))?;
            let value = unseal(key, stored).ok_or_else(|| bad_record(&self.place, table, key))?;
            Ok((key, value))
        }))
    }

    /// Visits all records of a table. Returns false when `visit` did not want to go on.
    pub(super) fn each(&self, table: Table, visit: &mut Visit<'_>) -> Result<bool, StoreError> {
        let mut after: Option<Vec<u8>> = None;
        loop {
            let reader = self.reader()?;
            let records = reader.live.as_ref().ok_or(StoreError::Poisoned)?.tables[slot(table)];
            let start = after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            let range = records
                .range(&reader.txn, &(start, Bound::<&[u8]>::Unbounded))
                .map_err(|error| self.read_error(&error))?;
            let mut seen = 0;
            let mut last = Vec::new();
            for record in range.take(VISIT_RECORDS) {
                let (key, stored) = record.map_err(|error| self.read_error(&error))?;
                let value = unseal(key, stored).ok_or_else(|| bad_record(&self.place, table, key));
                if !visit(key, value) {
                    return Ok(false);
                }
                seen += 1;
                last.clear();
                last.extend_from_slice(key);
            }
            if seen < VISIT_RECORDS {
                return Ok(true);
            }
            after = Some(last);
        }
    }

    /// Applies the batches in one durable transaction.
    pub(super) fn apply(&self, batches: &[&StoreBatch]) -> Result<(), StoreError> {
        let mut writes = Vec::with_capacity(batches.iter().map(|batch| batch.len() as usize).sum());
        for batch in batches {
            batch.check_shard()?;
            writes.extend(batch.iter().map(|(table, key, value)| Write { table, key, value }));
        }
        // Neighbours share pages; a stable sort keeps the last word on a key last.
        if !writes.is_sorted_by_key(|write| (write.table, write.key)) {
            writes.sort_by_key(|write| (write.table, write.key));
        }
        self.prefault(&writes)?;
        let _writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if self.poisoned.load(Ordering::Acquire) {
            return Err(StoreError::Poisoned);
        }
        let live = self.live();
        let live = live.as_ref().ok_or(StoreError::Poisoned)?;
        once_more(|| self.write(live, batches, &writes)).map_err(|error| self.failed(error))
    }

    /// One transaction.
    fn write(&self, live: &Live, batches: &[&StoreBatch], writes: &[Write<'_>]) -> Result<(), StoreError> {
        let mut txn = live.env.write_txn().map_err(|error| self.write_error(&error))?;
        self.check_guards(live, &txn, batches)?;
        self.put(live, &mut txn, writes)?;
        txn.commit().map_err(|error| self.write_error(&error))
    }

    fn put(&self, live: &Live, txn: &mut RwTxn<'_>, writes: &[Write<'_>]) -> Result<(), StoreError> {
        let mut stored = Vec::with_capacity(512);
        for write in writes {
            let records = live.tables[slot(write.table)];
            let result = match write.value {
                Some(value) => {
                    stored.clear();
                    seal(write.key, value, &mut stored);
                    records.put(txn, write.key, &stored)
                }
                None => records.delete(txn, write.key).map(|_| ()),
            };
            result.map_err(|error| self.write_error(&error))?;
        }
        Ok(())
    }

    /// Refuses a batch built on an older version than the stored header's, or than that of a header
    /// put by a batch before it.
    fn check_guards(&self, live: &Live, txn: &RwTxn<'_>, batches: &[&StoreBatch]) -> Result<(), StoreError> {
        let mut put: BTreeMap<(Ino, Frag), u64> = BTreeMap::new();
        let many = batches.len() > 1;
        for batch in batches {
            if let Some(guard) = batch.guard {
                let unit = (batch.shard, batch.frag);
                let before = put.get(&unit).copied().unwrap_or(0);
                let stored = self.stored_version(live, txn, unit)?.max(before);
                if stored > guard.0 {
                    return Err(StoreError::Guard { stored, guard: guard.0 });
                }
            }
            if many {
                let headers = batch.iter().filter_map(|(table, key, value)| match table {
                    Table::Dentry if is_header(key) => header_version(value?),
                    Table::Dentry | Table::Backptr | Table::System => None,
                });
                if let Some(version) = headers.max() {
                    let highest = put.entry((batch.shard, batch.frag)).or_default();
                    *highest = (*highest).max(version);
                }
            }
        }
        Ok(())
    }

    /// Of the header of that part of a directory; 0 where there is none.
    fn stored_version(
        &self,
        live: &Live,
        txn: &RwTxn<'_>,
        (dir, frag): (Ino, Frag),
    ) -> Result<u64, StoreError> {
        let mut key = Vec::new();
        StoreKey::Header { dir, frag }.encode(&mut key);
        let stored = live.tables[0].get(txn, &key).map_err(|error| self.read_error(&error))?;
        let Some(stored) = stored else { return Ok(0) };
        let value = unseal(&key, stored).ok_or_else(|| bad_record(&self.place, Table::Dentry, &key))?;
        header_version(value).ok_or_else(|| damaged(&self.place, Table::Dentry, &key, "not a frag header"))
    }

    /// Reads the leaves the writes will change, on several threads, if a sample of them is not in
    /// memory: inside the write transaction each would be waited for alone, with the writer held.
    fn prefault(&self, writes: &[Write<'_>]) -> Result<(), StoreError> {
        if writes.len() < PREFAULT_KEYS {
            return Ok(());
        }
        let began = Instant::now();
        self.touch(writes.iter().step_by(writes.len() / SAMPLES))?;
        if began.elapsed() < COLD_READ * SAMPLES as u32 {
            return Ok(());
        }
        let part = writes.len().div_ceil(PREFAULT_THREADS).max(PREFAULT_KEYS);
        std::thread::scope(|scope| {
            let parts: Vec<_> =
                writes.chunks(part).map(|part| scope.spawn(|| self.touch(part.iter()))).collect();
            parts.into_iter().try_for_each(|part| part.join().unwrap_or(Err(StoreError::Poisoned)))
        })
    }

    fn touch<'w>(&self, writes: impl Iterator<Item = &'w Write<'w>>) -> Result<(), StoreError> {
        let reader = self.reader()?;
        let live = reader.live.as_ref().ok_or(StoreError::Poisoned)?;
        for write in writes {
            let found = live.tables[slot(write.table)].get(&reader.txn, write.key);
            found.map_err(|error| self.read_error(&error))?;
        }
        Ok(())
    }

    pub(super) fn stats(&self) -> Result<EnvironmentStats, StoreError> {
        let reader = self.reader()?;
        let live = reader.live.as_ref().ok_or(StoreError::Poisoned)?;
        let mut stats = EnvironmentStats::default();
        let names = live.env.unnamed_database_stat();
        let mut used = names.branch_pages + names.leaf_pages + names.overflow_pages;
        for (records, entries) in live.tables.iter().zip(&mut stats.entries) {
            let stat = records.stat(&reader.txn).map_err(|error| self.read_error(&error))?;
            *entries = stat.entries as u64;
            used += stat.branch_pages + stat.leaf_pages + stat.overflow_pages;
        }
        stats.used_pages = used as u64;
        let all = (live.env.info().last_page_number as u64 + 1).saturating_sub(2);
        stats.free_pages = all.saturating_sub(stats.used_pages);
        Ok(stats)
    }

    /// An error of a read: nothing was lost by it.
    pub(super) fn read_error(&self, error: &heed::Error) -> StoreError {
        store_error(&self.place, error)
    }

    /// An error of a write. A full map or disk leaves the environment as it was.
    fn write_error(&self, error: &heed::Error) -> StoreError {
        let error = store_error(&self.place, error);
        // LMDB reports a write cut short by a full disk as EIO. Should it have been a failed sync after
        // all, nothing is lost either: the pages of this transaction are nobody's.
        let full = || {
            let space = self.path.parent().map(space_of);
            matches!(space, Some(Ok(space)) if space.available < FULL_BYTES)
        };
        if matches!(error, StoreError::Io { source: IoError(libc::EIO), .. }) && full() {
            return StoreError::NoSpace;
        }
        error
    }

    /// A write has failed for good. After anything but want of space nobody knows what reached the disk.
    fn failed(&self, error: StoreError) -> StoreError {
        if matches!(error, StoreError::Io { .. } | StoreError::Poisoned) {
            self.poisoned.store(true, Ordering::Release);
        }
        error
    }
}

/// Writes, and writes once more if that was cut short and the disk is not full any more: the writer of another environment has given
/// up the ballast, or a file was removed, between the write and the look at the space. All pages of the transaction are written anew,
/// so a failed sync loses nothing by it either; a disk that fails does so again.
fn once_more(mut write: impl FnMut() -> Result<(), StoreError>) -> Result<(), StoreError> {
    match write() {
        // Where the first left the environment unusable, what it met is the reason.
        Err(first @ StoreError::Io { source: IoError(libc::EIO), .. }) => match write() {
            Err(StoreError::Poisoned) => Err(first),
            again => again,
        },
        written => written,
    }
}

const fn slot(table: Table) -> usize {
    table as usize - 1
}

/// Whether a key of the dentry table is a frag header's: its hash is 0.
fn is_header(key: &[u8]) -> bool {
    key.get(8..16) == Some(&[0; 8])
}

pub(super) fn store_error(place: &str, error: &heed::Error) -> StoreError {
    let io = |errno| StoreError::Io { at: place.into(), source: IoError(errno) };
    match error {
        heed::Error::Io(error) => match error.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT) => StoreError::NoSpace,
            _ => failed(place, error),
        },
        heed::Error::Mdb(MdbError::MapFull) => StoreError::NoSpace,
        heed::Error::Mdb(MdbError::Panic) => StoreError::Poisoned,
        heed::Error::Mdb(MdbError::ReadersFull) => io(libc::EAGAIN),
        heed::Error::Mdb(error) => StoreError::Damaged { at: place.into(), what: error.to_string() },
        heed::Error::EnvAlreadyOpened => io(libc::EBUSY),
        heed::Error::Encoding(_) | heed::Error::Decoding(_) => io(libc::EINVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A short write that another environment's writer had made room for ended the rank.
    #[test]
    fn a_write_that_was_cut_short_is_tried_once_more() {
        let failed = |errno| Err(StoreError::Io { at: "meta/env-01".into(), source: IoError(errno) });
        for (results, tried, succeeds) in [
            (vec![failed(libc::EIO), Ok(())], 2, true),
            (vec![failed(libc::EIO), failed(libc::EIO)], 2, false),
            (vec![failed(libc::EBUSY)], 1, false),
            (vec![Err(StoreError::NoSpace)], 1, false),
            (vec![Ok(())], 1, true),
        ] {
            let mut results = results.into_iter();
            let mut writes = 0;
            let written = once_more(|| {
                writes += 1;
                results.next().expect("no third try")
            });
            assert_eq!((writes, written.is_ok()), (tried, succeeds));
        }
    }
}
