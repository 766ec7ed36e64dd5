//! Bringing in what is missing: one read per missing thing, shared by all who wait for it, batched per
//! step; whole directories only in the background and only when they fit.
//!
//! Absent: the store; what a load says never overrides what is cached.

use crate::cache::{dir, node};
use crate::config::Prefetch;
use crate::input::Tag;
use crate::op::{LoadKey, Op, OpId, ScanPage};
use crate::output::{Level, Output};
use crate::rank::Rank;
use proto::dentry::DentryValue;
use proto::header::FragHeader;
use proto::storeio::{Backptr, LoadRequest, Loaded, StoreError, StoredDentry};
use proto::{DecodeError, Errno, Frag, Ino, NameHash};
use std::collections::BTreeMap;
use stdx::Outbox;

/// The op number of the background load of a directory, and of the search for orphans.
pub(crate) const WHOLE: OpId = 0;
pub(crate) const ORPHANS: OpId = OpId::MAX;

/// One load under way.
#[derive(Debug, Default)]
struct Flight {
    waiters: Vec<OpId>,
    /// Names forgotten since it began: what it brings of them may be old.
    forgotten: Vec<NameHash>,
}

/// All loads under way.
#[derive(Debug, Default)]
pub(crate) struct Loads {
    flights: BTreeMap<LoadKey, Flight>,
    tags: BTreeMap<u64, Vec<LoadKey>>,
    queue: Vec<LoadKey>,
    pub issued: u64,
}

impl Loads {
    pub(crate) fn in_flight(&self) -> usize {
        self.flights.len()
    }

    fn forget(&mut self, dir: Ino, hash: NameHash) {
        for (key, flight) in &mut self.flights {
            let touches = match key {
                LoadKey::Dentry { dir: d, hash: h, .. } | LoadKey::ByHash { dir: d, hash: h } => {
                    *d == dir && *h == hash
                }
                LoadKey::Scan { dir: d, from, .. } => *d == dir && *from <= hash,
                LoadKey::Header { .. } | LoadKey::Backptr { .. } => false,
            };
            if touches {
                flight.forgotten.push(hash);
            }
        }
    }
}

/// Whether the answer covers a name that was forgotten meanwhile.
fn outdated(flight: &Flight, loaded: &Loaded) -> bool {
    match loaded {
        Loaded::Dentries { next: Some(next), .. } => flight.forgotten.iter().any(|hash| hash < next),
        _ => !flight.forgotten.is_empty(),
    }
}

const fn brings_names_of(key: &LoadKey) -> Option<Ino> {
    match key {
        LoadKey::Dentry { dir, .. } | LoadKey::ByHash { dir, .. } | LoadKey::Scan { dir, .. } => Some(*dir),
        LoadKey::Header { .. } | LoadKey::Backptr { .. } => None,
    }
}

impl Rank {
    /// Makes an operation wait for a load.
    pub(crate) fn wait_for_load(&mut self, op: OpId, key: LoadKey) {
        if let LoadKey::Dentry { dir, .. } = &key {
            self.count_miss(*dir);
        }
        self.start_load(key, Some(op));
    }

    fn start_load(&mut self, key: LoadKey, op: Option<OpId>) {
        if !self.loads.flights.contains_key(&key) {
            if let Some(dir) = brings_names_of(&key) {
                let slot = self.view.cache.dir_or_new(dir);
                self.view.cache.dirs.get_mut(slot).loads += 1;
            }
            self.loads.queue.push(key.clone());
        }
        self.loads.flights.entry(key).or_default().waiters.extend(op);
    }

    fn count_miss(&mut self, ino: Ino) {
        let slot = self.view.cache.dir_or_new(ino);
        let config = &self.view.config;
        let fits =
            |entries: u64| entries <= config.limits.load_entries && entries * 256 <= config.cache_bytes / 4;
        let dir = self.view.cache.dirs.get_mut(slot);
        dir.misses += 1;
        let wanted = match config.prefetch {
            Prefetch::Keyed => false,
            Prefetch::Auto => dir.misses >= config.limits.misses,
            Prefetch::Full => true,
        };
        if wanted && dir.has(dir::HEADER) && !dir.has(dir::LOADING) && fits(dir.header.entries) {
            dir.set(dir::LOADING);
            dir.clear(dir::LOAD_BROKEN);
            dir.misses = 0;
            self.start_load(LoadKey::Scan { dir: ino, from: NameHash(NameHash::FIRST), op: WHOLE }, None);
        }
    }

    /// Looks for orphans from `from` on.
    pub(crate) fn scan_orphans(&mut self, from: NameHash) {
        let dir = self.view.orphans();
        self.start_load(LoadKey::Scan { dir, from, op: ORPHANS }, None);
    }

    /// Asks for everything this step found missing.
    pub(crate) fn issue_loads(&mut self, out: &mut Outbox<Output>) {
        while let Some((dir, hash)) = self.view.cache.forgotten.pop() {
            self.loads.forget(dir, hash);
        }
        if self.loads.queue.is_empty() {
            return;
        }
        let keys = std::mem::take(&mut self.loads.queue);
        let entries_max = self.view.config.limits.scan_entries;
        let requests = keys.iter().map(|key| request_of(key, entries_max)).collect();
        let tag = self.new_tag();
        self.loads.issued += keys.len() as u64;
        self.loads.tags.insert(tag, keys);
        out.push(Output::Load { tag: Tag(tag), requests });
    }

    /// The store's answers, in the order of the requests.
    pub(crate) fn loaded(
        &mut self,
        tag: u64,
        results: Vec<Result<Loaded, StoreError>>,
        out: &mut Outbox<Output>,
    ) {
        let Some(keys) = self.loads.tags.remove(&tag) else { return };
        let mut results = results.into_iter();
        for key in keys {
            let result = results.next().unwrap_or(Err(StoreError::Poisoned));
            self.loaded_one(key, result, out);
        }
    }

    fn loaded_one(&mut self, key: LoadKey, result: Result<Loaded, StoreError>, out: &mut Outbox<Output>) {
        let Some(mut flight) = self.loads.flights.remove(&key) else { return };
        if result.as_ref().is_ok_and(|loaded| outdated(&flight, loaded)) {
            flight.forgotten.clear();
            self.loads.flights.insert(key.clone(), flight);
            self.loads.queue.push(key);
            return;
        }
        let failed = match result {
            Ok(loaded) => self.bring(&key, loaded, &flight.waiters).err().map(|e| e.to_string()),
            Err(error) => Some(error.to_string()),
        };
        if let Some(reason) = &failed {
            let text = format!("load {key:?}: {reason}");
            out.push(Output::Note { level: Level::Error, text });
            if let LoadKey::Scan { dir, op: WHOLE, .. } = &key {
                self.end_whole_load(*dir, false);
            }
        }
        for id in flight.waiters {
            if let Some(op) = self.parked.get_mut(&id) {
                if failed.is_some() {
                    op.failed = Some(Errno::EIO);
                }
                self.runnable.push_back(id);
            }
        }
        if let Some(dir) = brings_names_of(&key)
            && let Some(slot) = self.view.cache.find_dir(dir)
        {
            let entries = self.view.cache.dirs.get_mut(slot);
            entries.loads = entries.loads.saturating_sub(1);
            self.view.cache.drop_dir_if_idle(slot);
        }
    }

    fn bring(&mut self, key: &LoadKey, loaded: Loaded, waiters: &[OpId]) -> Result<(), DecodeError> {
        match (key, loaded) {
            (LoadKey::Dentry { dir, hash, name }, Loaded::Value(value)) => {
                let value = value.map(|bytes| DentryValue::decode(&bytes)).transpose()?;
                let slot = self.view.cache.dir_or_new(*dir);
                let ino = value.as_ref().map(DentryValue::ino);
                self.view.cache.load(slot, *hash, name, value);
                self.mark_busy(ino);
                if let Some(node) = self.view.cache.find(slot, *hash, name) {
                    self.pin_for(waiters, node);
                }
            }
            (LoadKey::ByHash { dir, .. }, Loaded::Dentries { entries, .. }) => {
                let names: Vec<_> = entries.iter().map(|e| (e.hash, e.name.clone())).collect();
                self.keep(*dir, entries)?;
                let slot = self.view.cache.dir_or_new(*dir);
                for (hash, name) in names {
                    if let Some(node) = self.view.cache.find(slot, hash, &name) {
                        self.pin_for(waiters, node);
                    }
                }
            }
            (LoadKey::Header { dir }, Loaded::Value(value)) => {
                // Neither header, nor newborn, nor in the tail: damage, not emptiness.
                let bytes = value.ok_or(DecodeError::Invalid { what: "missing directory header" })?;
                self.keep_header(*dir, &bytes)?;
                if let Some(node) = self.view.cache.by_ino(*dir) {
                    self.pin_for(waiters, node);
                }
            }
            (LoadKey::Backptr { .. }, Loaded::Value(value)) => {
                let place = value.map(|bytes| Backptr::decode(&bytes)).transpose()?;
                for id in waiters {
                    if let Some(op) = self.parked.get_mut(id) {
                        op.hint = place.as_ref().map(|b| (b.parent, b.hash));
                    }
                }
            }
            (LoadKey::Scan { dir, op: WHOLE, .. }, Loaded::Dentries { entries, next }) => {
                self.keep(*dir, entries)?;
                self.whole_load_goes_on(*dir, next);
            }
            (LoadKey::Scan { dir, op: ORPHANS, .. }, Loaded::Dentries { entries, next }) => {
                self.keep(*dir, entries.clone())?;
                self.found_orphans(&entries, next);
            }
            (LoadKey::Scan { from, op, .. }, Loaded::Dentries { entries, next }) => {
                if let Some(op) = self.parked.get_mut(op) {
                    op.scan = Some(Box::new(ScanPage { from: *from, entries, next }));
                }
            }
            _ => return Err(DecodeError::Invalid { what: "answer of the store" }),
        }
        Ok(())
    }

    /// Keeps a node for the operations it was loaded for.
    fn pin_for(&mut self, waiters: &[OpId], node: u32) {
        for id in waiters {
            if let Some(op) = self.parked.get_mut(id) {
                op.pins.push(node);
                self.view.cache.pin(node);
            }
        }
    }

    /// The operation is over: what was loaded for it may be forgotten.
    pub(crate) fn unpin(&mut self, op: &Op) {
        for node in &op.pins {
            self.view.cache.unpin(*node);
        }
    }

    /// Puts names of a directory that the store brought into the cache.
    pub(crate) fn keep(&mut self, dir: Ino, entries: Vec<StoredDentry>) -> Result<(), DecodeError> {
        let slot = self.view.cache.dir_or_new(dir);
        for entry in entries {
            let value = DentryValue::decode(&entry.value)?;
            let ino = value.ino();
            self.view.cache.load(slot, entry.hash, &entry.name, Some(value));
            self.mark_busy(Some(ino));
        }
        Ok(())
    }

    /// A session may have claimed the inode before it was cached.
    fn mark_busy(&mut self, ino: Option<Ino>) {
        if let Some(ino) = ino.filter(|ino| self.view.files.get(*ino).is_some()) {
            self.view.cache.flag(ino, node::BUSY, 0);
        }
    }

    /// Keeps a directory's stored header, unless a newer one is known.
    pub(crate) fn keep_header(&mut self, ino: Ino, bytes: &[u8]) -> Result<(), DecodeError> {
        let header = FragHeader::decode(bytes)?;
        let slot = self.view.cache.dir_or_new(ino);
        let dir = self.view.cache.dirs.get_mut(slot);
        if !dir.has(dir::HEADER) {
            dir.header = header;
        }
        dir.set(dir::HEADER | dir::STORED);
        Ok(())
    }

    fn whole_load_goes_on(&mut self, ino: Ino, next: Option<NameHash>) {
        let Some(slot) = self.view.cache.find_dir(ino) else { return };
        let broken = self.view.cache.dir(slot).has(dir::LOAD_BROKEN);
        match next {
            Some(from) if !broken => {
                self.start_load(LoadKey::Scan { dir: ino, from, op: WHOLE }, None);
            }
            _ => self.end_whole_load(ino, next.is_none() && !broken),
        }
    }

    fn end_whole_load(&mut self, ino: Ino, complete: bool) {
        if let Some(slot) = self.view.cache.find_dir(ino) {
            let dir = self.view.cache.dirs.get_mut(slot);
            dir.clear(dir::LOADING);
            if complete {
                dir.set(dir::COMPLETE);
            }
        }
    }
}

fn request_of(key: &LoadKey, entries_max: u32) -> LoadRequest {
    match key {
        LoadKey::Dentry { dir, hash, name } => {
            LoadRequest::Dentry { dir: *dir, hash: *hash, name: name.clone() }
        }
        LoadKey::ByHash { dir, hash } => LoadRequest::ByHash { dir: *dir, hash: *hash },
        LoadKey::Header { dir } => LoadRequest::Header { dir: *dir, frag: Frag::WHOLE },
        LoadKey::Backptr { ino } => LoadRequest::Backptr { ino: *ino },
        LoadKey::Scan { dir, from, .. } => LoadRequest::Scan { dir: *dir, from: *from, entries_max },
    }
}
