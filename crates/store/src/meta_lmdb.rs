//! The metadata store of a data folder: LMDB, spread over environments by the hash of the shard.
//!
//! Each environment is one file with its own writer, so that different shards commit in parallel. A
//! transaction holds at most 4k entries unless one batch alone has more. Values carry a checksum over
//! key and value.
//!
//! Absent: page checksums. A damaged page may fail an open, a transaction or the process; it never
//! returns a record. Absent too: writable maps, which a stray pointer could write through.

mod copy;
mod environment;
mod live;

use crate::checked::damaged;
use crate::disk_real::{failed, space_of, sync_path};
use crate::meta::MetaStore;
use environment::{Environment, Reader};
use proto::ids::Ino;
use proto::storeio::{LoadRequest, Loaded, StoreBatch, StoreError, Table};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use stdx::hash::mix64;

/// Entries of one transaction: LMDB keeps the memory of its largest one's dirty pages for ever, in each environment, and spills
/// them when there are too many.
pub const TRANSACTION_ENTRIES: u32 = 4 << 10;
/// Environments committed at the same time by one `apply`.
const COMMITS_AT_ONCE: usize = 8;
/// How long one `load` keeps read transactions: a long reader makes the file grow.
const READER_LIFE: Duration = Duration::from_millis(100);
const READER_REQUESTS: usize = 16;
const PAGE_BYTES: u64 = 4096;
/// Address space for all maps together: half of what a process has.
const MAPS_BYTES: u64 = 64 << 40;
const MAP_BYTES_MAX: u64 = 16 << 40;

/// How a store is opened.
#[derive(Clone, Copy, Debug)]
pub struct LmdbOptions {
    /// Number of environments, fixed at format.
    pub environments: u16,
    /// Of each environment; `None`: 8 times the disk, at most 16 TiB.
    pub map_bytes: Option<u64>,
    /// Make environments that are not there (format); otherwise a missing one is damage.
    pub create: bool,
}

/// What is in one environment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EnvironmentStats {
    /// Records of the dentry, backptr and system tables.
    pub entries: [u64; 3],
    /// Pages that hold records, of 4 KiB.
    pub used_pages: u64,
    /// Pages that a later transaction uses before the file grows.
    pub free_pages: u64,
}

/// The store.
pub struct LmdbMeta {
    environments: Vec<Environment>,
}

impl LmdbMeta {
    /// Opens the environments in `folder`, which must exist.
    ///
    /// # Errors
    /// `Damaged` when one is missing or is no environment, `NoSpace`, `Io`.
    pub fn open(folder: &Path, options: LmdbOptions) -> Result<Self, StoreError> {
        let count = options.environments.max(1);
        let map_bytes = match options.map_bytes {
            Some(bytes) => bytes,
            None => map_bytes(folder, count)?,
        };
        let mut environments = Vec::with_capacity(usize::from(count));
        for index in 0..count {
            let path = folder.join(format!("env-{index:02x}.mdb"));
            environments.push(Environment::open(index, path, map_bytes, options.create)?);
        }
        if options.create {
            sync_path(folder).map_err(|error| failed("meta", &error))?;
        }
        Ok(Self { environments })
    }

    /// Number of environments.
    #[must_use]
    pub fn environments(&self) -> usize {
        self.environments.len()
    }

    /// The environment that holds a shard. Part of the format.
    fn index_of(&self, shard: Ino) -> usize {
        (mix64(shard.0) % self.environments.len() as u64) as usize
    }

    /// What is in each environment.
    ///
    /// # Errors
    /// `Damaged`, `Io`.
    pub fn stats(&self) -> Result<Vec<EnvironmentStats>, StoreError> {
        self.environments.iter().map(Environment::stats).collect()
    }

    /// Visits every record of a table, environment after environment, in key order within each, with
    /// what is wrong with it if it is damaged. Ends early when `visit` returns false. Reopens its
    /// snapshot now and then, so records changed meanwhile may be seen in either state.
    ///
    /// # Errors
    /// `Damaged` when a page cannot be read, `Io`.
    pub fn each(&self, table: Table, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        for environment in &self.environments {
            if !environment.each(table, visit)? {
                break;
            }
        }
        Ok(())
    }

    /// Splits batches by environment, keeping their order.
    fn by_environment<'a>(&self, batches: &'a [StoreBatch]) -> Vec<(usize, Vec<&'a StoreBatch>)> {
        let mut groups: Vec<(usize, Vec<&StoreBatch>)> = Vec::new();
        let mut places = vec![usize::MAX; self.environments.len()];
        for batch in batches.iter().filter(|batch| !batch.is_empty() || batch.guard.is_some()) {
            let index = self.index_of(batch.shard);
            if places[index] == usize::MAX {
                places[index] = groups.len();
                groups.push((index, Vec::new()));
            }
            groups[places[index]].1.push(batch);
        }
        groups
    }

    /// Applies the batches of one environment in as few transactions as may be.
    fn apply_group(&self, index: usize, batches: &[&StoreBatch]) -> Result<(), StoreError> {
        let mut rest = batches;
        while !rest.is_empty() {
            let (mut count, mut entries) = (0, 0);
            while count < rest.len() && (count == 0 || entries + rest[count].len() <= TRANSACTION_ENTRIES) {
                entries += rest[count].len();
                count += 1;
            }
            let (now, later) = rest.split_at(count);
            self.environments[index].apply(now)?;
            rest = later;
        }
        Ok(())
    }

    /// Applies groups on several threads: most of a commit is waiting for the disk.
    fn apply_groups(&self, groups: &[(usize, Vec<&StoreBatch>)]) -> Result<(), StoreError> {
        let next = AtomicUsize::new(0);
        let first_error: Mutex<Option<StoreError>> = Mutex::new(None);
        let work = || {
            while let Some((index, batches)) = groups.get(next.fetch_add(1, Ordering::Relaxed)) {
                if let Err(error) = self.apply_group(*index, batches) {
                    first_error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..groups.len().min(COMMITS_AT_ONCE) {
                scope.spawn(work);
            }
            work();
        });
        first_error.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }
}

/// Receives a record's key and its value or damage; returns whether to go on.
pub type Visit<'a> = dyn FnMut(&[u8], Result<&[u8], StoreError>) -> bool + 'a;

impl MetaStore for LmdbMeta {
    fn load(&self, requests: &[LoadRequest]) -> Vec<Result<Loaded, StoreError>> {
        let mut results = Vec::with_capacity(requests.len());
        let mut requests = requests.iter();
        while requests.len() > 0 {
            let mut readers: Vec<Option<Reader<'_>>> = Vec::new();
            readers.resize_with(self.environments.len(), || None);
            let began = Instant::now();
            for request in requests.by_ref() {
                let index = self.index_of(shard_of(request));
                results.push(self.environments[index].load(&mut readers[index], request));
                if results.len() % READER_REQUESTS == 0 && began.elapsed() > READER_LIFE {
                    break;
                }
            }
        }
        results
    }

    fn apply(&self, batches: &[StoreBatch]) -> Result<(), StoreError> {
        let groups = self.by_environment(batches);
        match groups.as_slice() {
            [] => Ok(()),
            [(index, batches)] => self.apply_group(*index, batches),
            several => self.apply_groups(several),
        }
    }
}

/// The shard a request's records lie in.
const fn shard_of(request: &LoadRequest) -> Ino {
    match *request {
        LoadRequest::Dentry { dir, .. }
        | LoadRequest::ByHash { dir, .. }
        | LoadRequest::Scan { dir, .. }
        | LoadRequest::Header { dir, .. } => dir,
        LoadRequest::Backptr { ino } => ino,
        LoadRequest::Sessions { .. } | LoadRequest::Counter { .. } | LoadRequest::Checkpoint { .. } => {
            Ino::SYSTEM
        }
    }
}

/// 8 times the disk for each environment, within what a process can map.
fn map_bytes(folder: &Path, environments: u16) -> Result<u64, StoreError> {
    let total = space_of(folder).map_err(|error| failed("meta", &error))?.total;
    let wanted = total.saturating_mul(8).clamp(1 << 30, MAP_BYTES_MAX);
    Ok(wanted.min(MAPS_BYTES / u64::from(environments)) / PAGE_BYTES * PAGE_BYTES)
}

/// The error for a record of this store.
fn bad_record(place: &str, table: Table, key: &[u8]) -> StoreError {
    damaged(place, table, key, "checksum mismatch")
}

#[cfg(test)]
mod tests;
