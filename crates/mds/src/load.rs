//! Bringing in what is missing: one read per missing thing, shared by all who wait for it, batched per step. What is under way
//! together is bounded, because it takes memory beside the cache.
//!
//! Absent: when a whole directory is loaded (`load/whole.rs`); the store; what a load says never overrides what is cached.

mod whole;

use crate::cache::{Cache, SecondName, dir, node};
use crate::input::Tag;
use crate::op::{Learned, LoadKey, Op, OpId, ScanFor, ScanPage, Waits};
use crate::output::{Level, Output};
use crate::rank::Rank;
use crate::territory::Side;
use proto::dentry::DentryValue;
use proto::header::FragHeader;
use proto::storeio::{Backptr, LoadRequest, Loaded, StoreError, StoredDentry};
use proto::{DecodeError, Errno, Frag, Ino, NameHash};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use stdx::{Now, Outbox};

/// Memory of one name on its way from the store, about.
const ENTRY_BYTES: u64 = 256;

/// So many directories are kept for those who have had no turn yet.
const OVER_MAX: usize = 1_024;

/// One load under way.
#[derive(Debug, Default)]
struct Flight {
    waiters: Vec<OpId>,
    /// Names forgotten since it began: what it brings of them may be old.
    forgotten: Vec<NameHash>,
    /// How often loads had been outdated before it began.
    outdated: u64,
    /// The map by which it was asked for.
    map: u64,
}

/// All loads under way.
#[derive(Debug, Default)]
pub(crate) struct Loads {
    flights: BTreeMap<LoadKey, Flight>,
    tags: BTreeMap<u64, Vec<LoadKey>>,
    queue: VecDeque<LoadKey>,
    pub issued: u64,
    /// Names that loads under way may bring.
    coming: u64,
    /// Whole directories under way.
    whole: u64,
    /// Names brought with their whole directory.
    pub ahead: u64,
    /// Directories of which names came in this step. They may go when whoever waited has had its turn.
    over: BTreeSet<Ino>,
}

impl Loads {
    pub(crate) fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// Memory that loads under way may take, about.
    pub(crate) const fn coming_bytes(&self) -> u64 {
        self.coming * ENTRY_BYTES
    }

    fn forget(&mut self, dir: Ino, hash: NameHash) {
        for (key, flight) in &mut self.flights {
            let touches = match key {
                LoadKey::Dentry { dir: d, hash: h, .. } | LoadKey::ByHash { dir: d, hash: h } => {
                    *d == dir && *h == hash
                }
                LoadKey::Scan { dir: d, from, .. } => *d == dir && *from <= hash,
                LoadKey::Header { .. }
                | LoadKey::UnitHeader { .. }
                | LoadKey::Spread { .. }
                | LoadKey::Backptr { .. } => false,
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
        Loaded::Dentries { next: None, .. } | Loaded::Value(_) | Loaded::Sessions(_) => {
            !flight.forgotten.is_empty()
        }
    }
}

const fn brings_names_of(key: &LoadKey) -> Option<Ino> {
    match key {
        LoadKey::Dentry { dir, .. } | LoadKey::ByHash { dir, .. } | LoadKey::Scan { dir, .. } => Some(*dir),
        LoadKey::Header { .. }
        | LoadKey::UnitHeader { .. }
        | LoadKey::Spread { .. }
        | LoadKey::Backptr { .. } => None,
    }
}

/// The directory of which it brings something.
const fn names_dir(key: &LoadKey) -> Option<Ino> {
    match key {
        LoadKey::Header { dir } | LoadKey::UnitHeader { dir, .. } => Some(*dir),
        LoadKey::Dentry { .. }
        | LoadKey::ByHash { .. }
        | LoadKey::Scan { .. }
        | LoadKey::Spread { .. }
        | LoadKey::Backptr { .. } => brings_names_of(key),
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

    pub(crate) fn start_load(&mut self, key: LoadKey, op: Option<OpId>) {
        let key = match key {
            LoadKey::UnitHeader { dir, unit } => {
                self.view.cache.note_unit(dir, unit);
                LoadKey::Header { dir }
            }
            plain @ (LoadKey::Dentry { .. }
            | LoadKey::ByHash { .. }
            | LoadKey::Header { .. }
            | LoadKey::Spread { .. }
            | LoadKey::Backptr { .. }
            | LoadKey::Scan { .. }) => plain,
        };
        if !self.loads.flights.contains_key(&key) {
            if let Some(dir) = names_dir(&key) {
                let slot = self.view.cache.dir_or_new(dir);
                self.view.cache.dirs.get_mut(slot).loads += 1;
            }
            self.loads.queue.push_back(key.clone());
        }
        let (outdated, map) = (self.view.territory.loads_outdated(), self.view.territory.version());
        let new = Flight { outdated, map, ..Flight::default() };
        self.loads.flights.entry(key).or_insert(new).waiters.extend(op);
    }

    /// Looks for orphans from `from` on.
    pub(crate) fn scan_orphans(&mut self, from: NameHash) {
        let dir = self.view.orphans();
        self.start_load(LoadKey::Scan { dir, from, purpose: ScanFor::Orphans }, None);
    }

    /// Directories of which names came go, if nothing of them is wanted. Whoever has not had its turn yet has it in the next step.
    fn drop_looked_into(&mut self) {
        if self.runnable.is_empty() || self.loads.over.len() > OVER_MAX {
            for dir in std::mem::take(&mut self.loads.over) {
                if let Some(slot) = self.view.cache.find_dir(dir) {
                    self.view.cache.drop_dir_if_idle(slot);
                }
            }
        }
    }

    /// Asks for everything this step found missing.
    pub(crate) fn issue_loads(&mut self, out: &mut Outbox<Output>) {
        self.drop_looked_into();
        self.tell_second_names(out);
        while let Some((dir, hash)) = self.view.cache.forgotten.pop() {
            self.loads.forget(dir, hash);
        }
        let config = &self.view.config;
        let (entries_max, coming_max) = (config.limits.scan_entries, config.cache_bytes / 8 / ENTRY_BYTES);
        let mut single = Vec::new();
        while let Some(key) = self.loads.queue.front() {
            let coming = coming_of(key, entries_max);
            if self.loads.coming > 0 && self.loads.coming + coming > coming_max {
                break;
            }
            self.loads.coming += coming;
            let Some(key) = self.loads.queue.pop_front() else { break };
            // Each page of names comes back in a step of its own.
            if coming > 1 { self.issue(vec![key], out) } else { single.push(key) }
        }
        if !single.is_empty() {
            self.issue(single, out);
        }
    }

    fn issue(&mut self, keys: Vec<LoadKey>, out: &mut Outbox<Output>) {
        let entries_max = self.view.config.limits.scan_entries;
        let cache = &self.view.cache;
        let requests = keys.iter().map(|key| request_of(cache, key, entries_max)).collect();
        let tag = self.new_tag();
        self.loads.issued += keys.len() as u64;
        self.loads.tags.insert(tag, keys);
        out.push(Output::Load { tag: Tag(tag), requests });
    }

    /// The store's answers, in the order of the requests.
    pub(crate) fn loaded(
        &mut self,
        now: Now,
        tag: u64,
        results: Vec<Result<Loaded, StoreError>>,
        out: &mut Outbox<Output>,
    ) {
        let Some(keys) = self.loads.tags.remove(&tag) else { return };
        let mut results = results.into_iter();
        for key in keys {
            self.loads.coming -= coming_of(&key, self.view.config.limits.scan_entries);
            let result = results.next().expect("a driver answers every key of a load");
            self.loaded_one(key, result, out);
        }
        if !self.view.spent_cuts.is_empty() {
            // What is still missing is on its way, or could not be read: then the cut waits until something else brings it.
            let _missing = self.journal_spent_cuts(now, out);
        }
    }

    fn loaded_one(&mut self, key: LoadKey, result: Result<Loaded, StoreError>, out: &mut Outbox<Output>) {
        let Some(mut flight) = self.loads.flights.remove(&key) else { return };
        let frag = brings_names_of(&key).map_or(Frag::WHOLE, |dir| self.view.cache.unit(dir).frag);
        let result = result.map(|loaded| of_unit(frag, loaded));
        // How a directory is spread may be another way by a newer map than it was read by.
        let is_older = matches!(key, LoadKey::Spread { .. }) && flight.map != self.view.territory.version();
        if result.as_ref().is_ok_and(|loaded| is_older || outdated(&flight, loaded)) {
            flight.forgotten.clear();
            flight.map = self.view.territory.version();
            self.loads.flights.insert(key.clone(), flight);
            self.loads.queue.push_back(key);
            return;
        }
        // Names of a directory that turned out to be spread are its units' to bring.
        let spread = brings_names_of(&key).is_some_and(|dir| self.view.cache.spread(dir).is_some());
        let other = spread || names_dir(&key).is_some_and(|dir| self.is_too_late(dir, flight.outdated));
        let failed = match result {
            // It is another rank's by now, and what is in the store may be old.
            Ok(_) if other => {
                self.end_load_for_nothing(&key, false);
                None
            }
            Ok(loaded) => self.bring(&key, loaded, &flight.waiters).err().map(|e| e.to_string()),
            Err(error) => Some(error.to_string()),
        };
        if let Some(reason) = &failed {
            let text = format!("load {key:?}: {reason}");
            out.push(Output::Note { level: Level::Error, text });
            self.end_load_for_nothing(&key, true);
        }
        let failed = failed.is_some() || self.is_second_name(&key);
        for id in flight.waiters {
            if let Some(op) = self.parked.get_mut(&id) {
                if failed {
                    op.failed = Some(Errno::EIO);
                }
                // What it looked for there it has not looked for.
                if other {
                    (op.climb, op.probe) = (None, None);
                }
                op.waits = Waits::Turn;
                self.runnable.push_back(id);
            }
        }
        self.load_is_over(&key);
    }

    fn load_is_over(&mut self, key: &LoadKey) {
        if let LoadKey::Header { dir } = *key {
            let has_header = |slot: u32| self.view.cache.dir(slot).has(dir::HEADER);
            self.warm_header(dir, self.view.cache.find_dir(dir).is_some_and(has_header));
        }
        if let Some(dir) = names_dir(key)
            && let Some(slot) = self.view.cache.find_dir(dir)
        {
            let entries = self.view.cache.dirs.get_mut(slot);
            entries.loads = entries.loads.saturating_sub(1);
            // Whoever waited for a header takes it from there, also if it came with names that were none, or its units' to bring: without
            // it they would be read again together, for ever.
            if brings_names_of(key).is_some() {
                if stdx::mutant!("mds_load_takes_header") {
                    self.view.cache.drop_dir_if_idle(slot);
                } else {
                    self.loads.over.insert(dir);
                }
            }
        }
    }

    /// Whether that name led to an inode that has another one. Who only looked for an inode where it may be goes on looking.
    fn is_second_name(&self, key: &LoadKey) -> bool {
        let LoadKey::Dentry { dir, name, .. } = key else { return false };
        self.view.cache.second_names.iter().any(|second| second.dir == *dir && second.name == *name)
    }

    /// Says what was found damaged in this step.
    fn tell_second_names(&mut self, out: &mut Outbox<Output>) {
        for SecondName { dir, name, ino } in std::mem::take(&mut self.view.cache.second_names) {
            let (dir, name) = (self.view.cache.outer(dir), String::from_utf8_lossy(&name));
            let text = format!(
                "damage: in directory {} the name {name:?} is of inode {}, which has another name",
                dir.0, ino.0
            );
            out.push(Output::Note { level: Level::Error, text });
        }
    }

    /// Whether what was read of a directory may be another rank's to change by now, or may have been since.
    fn is_too_late(&mut self, dir: Ino, outdated: u64) -> bool {
        // The system's stay where they are.
        let moves = !dir.is_reserved() && dir != Ino::ROOT;
        let since = moves
            && outdated != self.view.territory.loads_outdated()
            && !stdx::mutant!("mds_load_outlives_seal");
        since || !self.view.may_load(dir)
    }

    /// Nothing of it comes into the cache: what it was part of ends.
    fn end_load_for_nothing(&mut self, key: &LoadKey, failed: bool) {
        match key {
            LoadKey::Scan { dir, purpose: ScanFor::WholeDirectory, .. } => self.end_whole_load(*dir, false),
            LoadKey::Scan { dir, purpose: ScanFor::Warmup, .. } => {
                self.warm_dir_over(*dir, ScanFor::Warmup, false);
            }
            LoadKey::Scan { dir, purpose: ScanFor::Count, .. } => self.not_counted(*dir, failed),
            LoadKey::Spread { dir } if failed => self.moves.unreadable = Some(*dir),
            LoadKey::Scan { purpose: ScanFor::Request(_) | ScanFor::Orphans, .. }
            | LoadKey::Dentry { .. }
            | LoadKey::ByHash { .. }
            | LoadKey::Header { .. }
            | LoadKey::UnitHeader { .. }
            | LoadKey::Spread { .. }
            | LoadKey::Backptr { .. } => {}
        }
    }

    /// What others have without a name does not come into this cache: it may get a name, in a directory that comes here, and what is
    /// cached would be taken for another inode with that number, and the name was lost.
    fn is_orphan_of(&mut self, dir: Ino, found: Option<Ino>, waiters: &[OpId]) {
        let Some(Side::Other(Some(rank))) = self.view.territory.of_number(dir) else { return };
        for id in waiters {
            if let (Some(op), Some(ino)) = (self.parked.get_mut(id), found) {
                op.hears().orphans_at.insert(ino, rank);
            }
        }
    }

    fn bring(&mut self, key: &LoadKey, loaded: Loaded, waiters: &[OpId]) -> Result<(), DecodeError> {
        match (key, loaded) {
            (LoadKey::Dentry { dir, hash, name }, Loaded::Value(value)) => {
                let value = value.map(|bytes| DentryValue::decode(&bytes)).transpose()?;
                let slot = self.view.cache.dir_or_new(*dir);
                let ino = value.as_ref().map(DentryValue::ino);
                self.view.cache.load(slot, *hash, name, value, 0);
                self.came(slot, ino);
                if let Some(node) = self.view.cache.find(slot, *hash, name) {
                    self.pin_for(waiters, node);
                }
            }
            (LoadKey::ByHash { dir, .. }, Loaded::Dentries { entries, .. })
                if self.view.is_orphans_of_others(*dir) && !stdx::mutant!("mds_orphan_of_others_cached") =>
            {
                let found = entries.first().map(|entry| DentryValue::decode(&entry.value)).transpose()?;
                self.is_orphan_of(*dir, found.map(|value| value.ino()), waiters);
            }
            (LoadKey::ByHash { dir, .. }, Loaded::Dentries { entries, .. }) => {
                let names: Vec<_> = entries.iter().map(|e| (e.hash, e.name.clone())).collect();
                self.keep(*dir, entries, 0)?;
                let slot = self.view.cache.dir_or_new(*dir);
                for (hash, name) in names {
                    if let Some(node) = self.view.cache.find(slot, hash, &name) {
                        self.pin_for(waiters, node);
                    }
                }
            }
            (LoadKey::Header { dir }, Loaded::Value(value)) => {
                match value {
                    Some(bytes) => self.keep_header(*dir, &bytes)?,
                    None if self.view.is_newborn(*dir) => self.view.born(*dir),
                    // Its home knows; of a unit nobody, because its directory's header came after it.
                    None if self.view.cache.by_ino(*dir).is_none()
                        && !waiters.is_empty()
                        && self.view.cache.outer(*dir) == *dir =>
                    {
                        for id in waiters {
                            if let Some(op) = self.parked.get_mut(id) {
                                op.hears().learned = Some(Box::new(Learned::NoHeader(*dir)));
                            }
                        }
                    }
                    // Neither header, nor newborn, nor in the tail: damage, not emptiness.
                    None => return Err(DecodeError::Invalid { what: "missing directory header" }),
                }
                if let Some(node) = self.view.cache.by_ino(*dir) {
                    self.pin_for(waiters, node);
                }
            }
            (LoadKey::Spread { dir }, Loaded::Value(value)) => self.bring_spread(*dir, value)?,
            (LoadKey::Backptr { ino }, Loaded::Value(value)) => {
                let place = value.map(|bytes| Backptr::decode(&bytes)).transpose()?;
                for id in waiters {
                    if let Some(op) = self.parked.get_mut(id) {
                        op.noted(*ino, place.as_ref().map(|b| (b.parent, b.hash)));
                    }
                }
            }
            (LoadKey::Scan { dir, from, purpose }, Loaded::Dentries { entries, next }) => {
                self.bring_page(*dir, *purpose, ScanPage { from: *from, entries, next })?;
            }
            _ => return Err(DecodeError::Invalid { what: "answer of the store" }),
        }
        Ok(())
    }

    /// Names of a directory, for whatever they were wanted.
    fn bring_page(&mut self, dir: Ino, purpose: ScanFor, page: ScanPage) -> Result<(), DecodeError> {
        match purpose {
            ScanFor::WholeDirectory => {
                let ScanPage { entries, next, .. } = page;
                if self.warm.is_active(dir, purpose) {
                    // Wanted by a person: whether it pays is not for the counters of loads that nobody asked for.
                    let before = self.view.cache.nodes.len();
                    self.keep(dir, entries.clone(), 0)?;
                    self.warm_loaded(self.view.cache.nodes.len().saturating_sub(before));
                    self.warm_page(&entries)?;
                } else {
                    self.loads.ahead += entries.len() as u64;
                    self.keep(dir, entries, node::AHEAD)?;
                }
                self.whole_load_goes_on(dir, next);
            }
            ScanFor::Warmup => {
                self.warm_page(&page.entries)?;
                let last = page.next.is_none();
                match page.next.filter(|_| !self.warm_must_end(dir, purpose)) {
                    Some(from) => self.start_load(LoadKey::Scan { dir, from, purpose }, None),
                    None => self.warm_dir_over(dir, purpose, last),
                }
            }
            ScanFor::Orphans => {
                self.keep(dir, page.entries.clone(), 0)?;
                self.found_orphans(&page.entries, page.next);
            }
            ScanFor::Count => self.counted_page(dir, &page)?,
            ScanFor::Request(op) => {
                if let Some(op) = self.parked.get_mut(&op) {
                    op.scan = Some(Box::new(page));
                }
            }
        }
        Ok(())
    }

    /// Keeps a node for the operations it was loaded for.
    pub(crate) fn pin_for<'a>(&mut self, waiters: impl IntoIterator<Item = &'a OpId>, node: u32) {
        for id in waiters {
            if let Some(op) = self.parked.get_mut(id) {
                op.pins.push(node);
                self.view.cache.pin(node);
            }
        }
    }

    /// The operation is over: what was loaded for it may be forgotten.
    pub(crate) fn unpin(&mut self, op: &Op) {
        self.view.book.operation_ended(op.id);
        for node in op.pins.iter().copied().chain(self.view.transactions.loose.drain(..)) {
            self.view.cache.unpin(node);
        }
    }

    /// Puts names of a directory that the store brought into the cache.
    pub(crate) fn keep(
        &mut self,
        dir: Ino,
        entries: Vec<StoredDentry>,
        flags: u32,
    ) -> Result<(), DecodeError> {
        let slot = self.view.cache.dir_or_new(dir);
        self.view.note_fetched(slot, entries.len());
        for entry in entries {
            let value = DentryValue::decode(&entry.value)?;
            let ino = value.ino();
            self.view.cache.load(slot, entry.hash, &entry.name, Some(value), flags);
            self.came(slot, Some(ino));
        }
        Ok(())
    }

    /// A name came, of that inode. A session may have claimed it before it was cached.
    fn came(&mut self, dir: u32, ino: Option<Ino>) {
        let Some(ino) = ino else { return };
        if self.view.files.get(ino).is_some() {
            self.view.cache.flag(ino, node::BUSY, 0);
        }
        self.view.is_back(dir, ino);
    }

    /// Keeps a directory's stored header, unless a newer one is known.
    pub(crate) fn keep_header(&mut self, ino: Ino, bytes: &[u8]) -> Result<(), DecodeError> {
        let header = FragHeader::decode(bytes)?;
        let slot = self.view.cache.dir_or_new(ino);
        let dir = self.view.cache.dirs.get_mut(slot);
        if !dir.has(dir::HEADER) {
            let (spread, was_known) = (header.spread(), dir.header.spread().is_some());
            let is_spread = spread.is_some();
            if is_spread || was_known {
                self.learn_spread(ino, spread);
            }
            let slot = self.view.cache.dir_or_new(ino);
            let dir = self.view.cache.dirs.get_mut(slot);
            dir.header = header;
            dir.set(dir::HEADER | dir::STORED);
            // Units that were to go to other ranks may not have come so far.
            if is_spread && self.view.territory.map().is_some_and(|map| map.max_mds > 1) {
                self.view.grown.push(ino);
            }
        }
        let slot = self.view.cache.dir_or_new(ino);
        self.view.cache.dirs.get_mut(slot).set(dir::HEADER | dir::STORED);
        Ok(())
    }

    /// How a directory is spread, for whoever has a part of it. Without a header it is gone.
    fn bring_spread(&mut self, ino: Ino, value: Option<Box<[u8]>>) -> Result<(), DecodeError> {
        let header = value.map(|bytes| FragHeader::decode(&bytes)).transpose()?;
        let Some(spread) = header.as_ref().map(FragHeader::spread) else {
            // It was removed, and entries of its parts stay behind for a while. Who only followed a hint finds what it looks for elsewhere.
            self.view.territory.note_gone(ino);
            if !stdx::mutant!("mds_gone_keeps_entries") {
                self.drop_parts_entries(ino);
            }
            return Ok(());
        };
        let Some(spread) = spread else {
            self.is_in_one_part(ino);
            return Ok(());
        };
        // Whoever has its header goes by that.
        let has_header = |slot: u32| self.view.cache.dir(slot).has(dir::HEADER);
        if !self.view.cache.find_dir(ino).is_some_and(has_header) {
            self.learn_spread(ino, Some(spread));
        }
        self.moves.learned = true;
        Ok(())
    }
}

/// Names that a load may bring, about.
const fn coming_of(key: &LoadKey, entries_max: u32) -> u64 {
    match key {
        LoadKey::Scan { .. } => entries_max as u64,
        LoadKey::Dentry { .. }
        | LoadKey::ByHash { .. }
        | LoadKey::Header { .. }
        | LoadKey::UnitHeader { .. }
        | LoadKey::Spread { .. }
        | LoadKey::Backptr { .. } => 1,
    }
}

/// In the store the names of units are their directory's.
fn request_of(cache: &Cache, key: &LoadKey, entries_max: u32) -> LoadRequest {
    match key {
        LoadKey::Dentry { dir, hash, name } => {
            LoadRequest::Dentry { dir: cache.outer(*dir), hash: *hash, name: name.clone() }
        }
        LoadKey::ByHash { dir, hash } => LoadRequest::ByHash { dir: cache.outer(*dir), hash: *hash },
        LoadKey::Header { dir } => {
            let unit = cache.unit(*dir);
            LoadRequest::Header { dir: unit.dir, frag: unit.frag }
        }
        LoadKey::UnitHeader { unit, .. } => LoadRequest::Header { dir: unit.dir, frag: unit.frag },
        LoadKey::Spread { dir } => LoadRequest::Header { dir: *dir, frag: Frag::WHOLE },
        LoadKey::Backptr { ino } => LoadRequest::Backptr { ino: *ino },
        LoadKey::Scan { dir, from, .. } => {
            let unit = cache.unit(*dir);
            let from = (*from).max(NameHash(unit.frag.prefix));
            LoadRequest::Scan { dir: unit.dir, from, entries_max }
        }
    }
}

/// What the store brings of a directory's names behind those of a unit is not the unit's.
fn of_unit(frag: Frag, loaded: Loaded) -> Loaded {
    match loaded {
        Loaded::Dentries { mut entries, next } if frag != Frag::WHOLE => {
            entries.retain(|entry| frag.covers(entry.hash));
            Loaded::Dentries { entries, next: next.filter(|next| frag.covers(*next)) }
        }
        plain @ (Loaded::Value(_) | Loaded::Dentries { .. } | Loaded::Sessions(_)) => plain,
    }
}
