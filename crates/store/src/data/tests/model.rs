//! A model of files with a journal, against the store on a disk that loses power at any operation.
//!
//! Each file uses byte values of its own, so another file's bytes are never mistaken for its own. For
//! each byte the model keeps which values a crash may leave: exactly the present one once synced, zero
//! and everything since otherwise. Cuts, removals and redo contents are journaled, as the rank does, and
//! replayed after each crash.

use super::*;
use std::collections::BTreeMap;
use stdx::Prng;

const FILES: usize = 10;
const SIZE_MAX: u64 = 40_000;

#[derive(Clone)]
struct Byte {
    now: u8,
    /// Bit v: value v (0 to 15 within the file's own range) may be found after a crash.
    allowed: u32,
}

struct Model {
    file: FileId,
    /// Byte values are `base + 1..=base + 14`; 0 is a hole.
    base: u8,
    cut: Cut,
    bytes: Vec<Byte>,
    /// Values beyond the end, of writes the power failed in: they never became part of the file, but
    /// may lie there until the range is zeroed (which the rank does before it extends a file).
    beyond: BTreeMap<u64, u32>,
    /// Values beyond the end of writes that the disk had no room for. The store took them back, so they read as zeros in this
    /// life; a crash before the next sync may bring them back.
    taken_back: BTreeMap<u64, u32>,
}

impl Model {
    fn bit(&self, value: u8) -> u32 {
        if value == 0 {
            return 1;
        }
        let own = value.wrapping_sub(self.base);
        assert!((1..15).contains(&own), "byte {value} belongs to another file than {:?}", self.file);
        1 << own
    }

    fn content(&self) -> Vec<u8> {
        self.bytes.iter().map(|byte| byte.now).collect()
    }

    fn set(&mut self, offset: u64, values: &[u8]) {
        self.grow(offset + values.len() as u64);
        for (at, value) in values.iter().enumerate() {
            let bit = self.bit(*value);
            let byte = &mut self.bytes[offset as usize + at];
            if byte.now != *value || byte.allowed != bit {
                byte.allowed |= bit | 1;
            }
            byte.now = *value;
        }
    }

    fn grow(&mut self, end: u64) {
        for at in self.bytes.len() as u64..end {
            let beyond = [&mut self.beyond, &mut self.taken_back].map(|of| of.remove(&at).unwrap_or(0));
            let allowed = 1 | beyond[0] | beyond[1];
            self.bytes.push(Byte { now: 0, allowed });
        }
    }

    /// What a full disk did not take of a write or copy: its caller was told so, by an error or a short count, and nobody reads any
    /// of it. But part of it was on its way to the disk before it was taken back, and that is not synced either: a crash may leave
    /// these bytes, as it may of any write that was not synced. Others never, and none after the next sync.
    fn refused(&mut self, offset: u64, values: &[u8]) {
        for (at, value) in (offset..).zip(values) {
            let bit = self.bit(*value);
            match self.bytes.get_mut(at as usize) {
                Some(byte) => byte.allowed |= bit,
                None => *self.taken_back.entry(at).or_default() |= bit,
            }
        }
    }

    fn synced(&mut self) {
        self.taken_back.clear();
        for at in 0..self.bytes.len() {
            self.bytes[at].allowed = self.bit(self.bytes[at].now);
        }
    }
}

enum Journaled {
    Cut(FileId, Cut),
    Redo(DataOp),
    Remove(FileId),
}

struct World {
    rng: Prng,
    disk: SimDisk,
    store: Option<DataFiles<SimDisk>>,
    files: Vec<Model>,
    next_ino: u64,
    journal: Vec<Journaled>,
    seed: u64,
    seen: BTreeMap<&'static str, u32>,
}

impl World {
    fn new(seed: u64) -> Self {
        let disk = SimDisk::new(seed);
        let store = Some(opened(&disk));
        let mut world = Self {
            rng: Prng::new(seed ^ 0x5151),
            disk,
            store,
            files: Vec::new(),
            next_ino: 0,
            journal: Vec::new(),
            seed,
            seen: BTreeMap::new(),
        };
        for slot in 0..FILES {
            let model = world.newborn(slot);
            world.files.push(model);
        }
        world
    }

    fn newborn(&mut self, slot: usize) -> Model {
        self.next_ino += 1;
        Model {
            file: file(self.next_ino),
            base: slot as u8 * 16,
            cut: Cut::default(),
            bytes: Vec::new(),
            beyond: BTreeMap::new(),
            taken_back: BTreeMap::new(),
        }
    }

    fn run(&mut self, op: &DataOp) -> Result<DataDone, StoreError> {
        let store = self.store.as_ref().expect("open between crashes");
        if self.rng.chance(1, 2) {
            let counts = self.disk.counts();
            if let Some(result) = store.run_quick(op) {
                assert_eq!(self.disk.counts(), counts, "seed {}: {op:?} was quick", self.seed);
                return result;
            }
        }
        store.run(op)
    }

    /// `None` when the power failed; any other error is a finding.
    fn must(&mut self, what: &'static str, op: &DataOp) -> Option<DataDone> {
        let result = self.run(op);
        *self.seen.entry(what).or_default() += 1;
        match result {
            Ok(done) => Some(done),
            Err(_) if self.disk.is_dead() => None,
            Err(StoreError::NoSpace) => {
                *self.seen.entry("no space").or_default() += 1;
                None
            }
            Err(error) => panic!("seed {}: {what}: {error}", self.seed),
        }
    }

    fn range(&mut self, max: u64) -> (u64, u64) {
        let len = match self.rng.below(4) {
            0 => self.rng.below(40) + 1,
            1 => self.rng.below(900) + 1,
            2 => self.rng.below(6000) + 1,
            _ => self.rng.below(20_000) + 1,
        };
        let reach = if self.rng.chance(1, 2) { 900 } else { max };
        let offset = if self.rng.chance(1, 3) { 0 } else { self.rng.below(reach) };
        (offset, len.min(max - offset))
    }

    fn write(&mut self, slot: usize) {
        let (offset, len) = self.range(SIZE_MAX);
        let value = self.files[slot].base + 1 + self.rng.below(14) as u8;
        let data = vec![value; len as usize];
        if !self.zero_gap(slot, offset) {
            return;
        }
        let op = DataOp::Write {
            file: self.files[slot].file,
            cut: self.files[slot].cut,
            offset,
            data: Payload::Owned(data.clone()),
        };
        match self.must("write", &op) {
            Some(DataDone::Count(count)) => {
                let (written, refused) = data.split_at(count as usize);
                self.files[slot].set(offset, written);
                self.files[slot].refused(offset + count, refused);
            }
            Some(other) => panic!("{other:?}"),
            // The power failed while writing: the size is not journaled, what is below it may be either.
            None if self.disk.is_dead() => {
                let bit = self.files[slot].bit(value) | 1;
                let end = (offset + len).min(self.files[slot].bytes.len() as u64);
                for at in offset..end {
                    self.files[slot].bytes[at as usize].allowed |= bit;
                }
                for at in end.max(offset)..offset + len {
                    *self.files[slot].beyond.entry(at).or_default() |= bit;
                }
            }
            None => self.files[slot].refused(offset, &data),
        }
    }

    /// Zeros what may lie between the end of a file and where it is extended to.
    fn zero_gap(&mut self, slot: usize, to: u64) -> bool {
        let model = &self.files[slot];
        let offset = model.bytes.len() as u64;
        if to <= offset || model.beyond.range(offset..to).next().is_none() {
            return true;
        }
        let op = DataOp::Zero { file: model.file, cut: model.cut, offset, len: to - offset, punch: true };
        self.must("zero gap", &op).is_some()
    }

    fn truncate(&mut self, slot: usize) {
        let size = self.files[slot].bytes.len() as u64;
        let to = if self.rng.chance(1, 4) { 0 } else { self.rng.below(SIZE_MAX) };
        if to >= size {
            if self.zero_gap(slot, to) {
                self.files[slot].grow(to);
            }
            return;
        }
        let model = &mut self.files[slot];
        model.bytes.truncate(to as usize);
        model.beyond.clear();
        model.taken_back.clear();
        model.cut = Cut { seq: model.cut.seq + 1, size: to };
        let (file, cut) = (model.file, model.cut);
        self.journal.push(Journaled::Cut(file, cut));
        self.must("truncate", &DataOp::Truncate { file, cut });
    }

    fn zero(&mut self, slot: usize) {
        let (offset, len) = self.range(SIZE_MAX);
        let model = &self.files[slot];
        let len = len.min((model.bytes.len() as u64).saturating_sub(offset));
        if len == 0 {
            return;
        }
        let punch = self.rng.chance(1, 2);
        let op = DataOp::Zero { file: model.file, cut: model.cut, offset, len, punch };
        if self.must("zero", &op).is_some() || self.disk.is_dead() {
            let dead = self.disk.is_dead();
            for byte in &mut self.files[slot].bytes[offset as usize..(offset + len) as usize] {
                byte.allowed |= 1;
                byte.now = if dead { byte.now } else { 0 };
            }
        } else {
            self.resync_after_no_space(slot, offset, len);
        }
    }

    /// Zeroing that ends for lack of space may have zeroed some of the range.
    fn resync_after_no_space(&mut self, slot: usize, offset: u64, len: u64) {
        let model = &mut self.files[slot];
        let mut bytes = vec![0; len as usize];
        let store = self.store.as_ref().expect("open between crashes");
        let read = store.read_into(model.file, model.cut, offset, &mut bytes);
        if let Err(error) = &read {
            // A handle that gives way to another may be written out, and the power may fail in that.
            assert!(self.disk.is_dead(), "seed {}: {error}", self.seed);
        }
        for (byte, value) in model.bytes[offset as usize..].iter_mut().zip(bytes) {
            assert!(read.is_err() || value == byte.now || value == 0);
            byte.allowed |= u32::from(read.is_err() || value == 0);
            byte.now = if read.is_err() { byte.now } else { value };
        }
    }

    fn allocate(&mut self, slot: usize) {
        let (offset, len) = self.range(SIZE_MAX);
        let model = &self.files[slot];
        let op = DataOp::Allocate { file: model.file, cut: model.cut, offset, len };
        self.must("allocate", &op);
    }

    fn copy_within(&mut self, slot: usize) {
        let model = &self.files[slot];
        let size = model.bytes.len() as u64;
        let len = self.rng.below(size / 2 + 1);
        let source_offset = self.rng.below(size / 2 - len.min(size / 2) + 1);
        let target_offset = size / 2 + self.rng.below(size / 2 + 1);
        if len == 0 || source_offset + len > target_offset || target_offset + len > size {
            return;
        }
        let (file, cut) = (model.file, model.cut);
        let op = DataOp::Copy {
            source: file,
            source_cut: cut,
            source_offset,
            target: file,
            target_cut: cut,
            target_offset,
            len,
        };
        let copied = model.content()[source_offset as usize..(source_offset + len) as usize].to_vec();
        match self.must("copy", &op) {
            Some(DataDone::Count(count)) => {
                let (written, refused) = copied.split_at(count as usize);
                self.files[slot].set(target_offset, written);
                self.files[slot].refused(target_offset + count, refused);
            }
            Some(other) => panic!("{other:?}"),
            None if self.disk.is_dead() => {
                // It ends within the file.
                for at in target_offset..target_offset + len {
                    let bit = self.files[slot].bit(copied[(at - target_offset) as usize]);
                    self.files[slot].bytes[at as usize].allowed |= bit | 1;
                }
            }
            // A hole may have been punched before the disk was found full.
            None => {
                self.resync_after_no_space(slot, target_offset, len);
                self.files[slot].refused(target_offset, &copied);
            }
        }
    }

    fn seek(&mut self, slot: usize) {
        let model = &self.files[slot];
        let (size, content) = (model.bytes.len() as u64, model.content());
        if size == 0 {
            return;
        }
        let (offset, hole) = (self.rng.below(size), self.rng.chance(1, 2));
        let op = DataOp::Seek { file: model.file, cut: model.cut, offset, size, hole };
        let Some(DataDone::Offset(found)) = self.must("seek", &op) else { return };
        let at = found.unwrap_or(size);
        assert!(at >= offset && at <= size);
        if hole {
            assert!(at == size || content[at as usize] == 0, "seed {}: a hole in data", self.seed);
        } else {
            assert!(
                content[offset as usize..at as usize].iter().all(|b| *b == 0),
                "seed {}: skipped",
                self.seed
            );
        }
    }

    fn sync(&mut self, slot: usize) {
        let file = self.files[slot].file;
        match self.must("sync", &DataOp::Sync { file }) {
            None => return,
            Some(DataDone::Done) => {}
            Some(DataDone::Redo { truncate_seq, write_seq, data }) => {
                *self.seen.entry("redo").or_default() += 1;
                self.journal.push(Journaled::Redo(DataOp::Redo { file, truncate_seq, write_seq, data }));
            }
            Some(other) => panic!("{other:?}"),
        }
        self.files[slot].synced();
    }

    fn sync_all(&mut self) {
        if self.must("sync_all", &DataOp::SyncAll).is_some() {
            self.journal.clear();
            self.files.iter_mut().for_each(Model::synced);
        }
    }

    fn remove(&mut self, slot: usize) {
        let file = self.files[slot].file;
        self.journal.push(Journaled::Remove(file));
        self.must("remove", &DataOp::Remove { file });
        self.files[slot] = self.newborn(slot);
    }

    fn background(&mut self) {
        let budget = self.rng.below(40_000);
        let store = self.store.as_ref().expect("open between crashes");
        match store.background_step(budget) {
            Ok(_) | Err(StoreError::NoSpace) => {}
            Err(_) if self.disk.is_dead() => {}
            Err(error) => panic!("seed {}: background: {error}", self.seed),
        }
        *self.seen.entry("background").or_default() += 1;
    }

    fn step(&mut self) {
        let slot = self.rng.index(FILES);
        match self.rng.below(100) {
            0..40 => self.write(slot),
            40..50 => self.truncate(slot),
            50..56 => self.zero(slot),
            56..58 => self.allocate(slot),
            58..62 => self.copy_within(slot),
            62..68 => self.seek(slot),
            68..80 => self.sync(slot),
            80..83 => self.sync_all(),
            83..88 => self.remove(slot),
            88..96 => self.background(),
            _ => self.check(slot),
        }
        if self.disk.is_dead() {
            self.crash();
        }
    }

    /// The store agrees with the model now.
    fn check(&mut self, slot: usize) {
        let model = &self.files[slot];
        let (file, cut, expected) = (model.file, model.cut, model.content());
        let len = expected.len() as u32;
        let Some(DataDone::Bytes(bytes)) =
            self.must("read", &DataOp::Read { file, cut, offset: 0, len, into: None })
        else {
            return;
        };
        let bytes = bytes.bytes();
        if let Some(at) = (0..expected.len()).find(|at| bytes[*at] != expected[*at]) {
            panic!("seed {}: {file:?} at {at}: {} for {}", self.seed, bytes[at], expected[at]);
        }
    }

    fn crash(&mut self) {
        *self.seen.entry("crash").or_default() += 1;
        self.store = None;
        if self.rng.chance(1, 4) && !self.disk.is_dead() {
            self.disk.kill()
        } else {
            self.disk.crash()
        }
        // The power may fail again while the store opens and the journal is replayed.
        for _ in 0..3 {
            if self.rng.chance(1, 3) {
                self.disk.die_after(self.rng.below(30));
            }
            match self.reopen() {
                // Also with `Ok`: in the write-out of a handle that gave way to another, of which the next change is told.
                _ if self.disk.is_dead() => self.disk.crash(),
                Ok(store) => {
                    self.store = Some(store);
                    break;
                }
                Err(error) => panic!("seed {}: open: {error}", self.seed),
            }
        }
        if self.store.is_none() {
            self.disk.die_after(u64::MAX);
            self.store = Some(self.reopen().unwrap_or_else(|e| panic!("seed {}: {e}", self.seed)));
        }
        self.disk.die_after(u64::MAX);
        (0..FILES).for_each(|slot| self.check_after_crash(slot));
    }

    fn reopen(&self) -> Result<DataFiles<SimDisk>, StoreError> {
        let store = open(&self.disk)?;
        for entry in &self.journal {
            store.run(&match entry {
                Journaled::Cut(file, cut) => DataOp::Truncate { file: *file, cut: *cut },
                Journaled::Redo(op) => op.clone(),
                Journaled::Remove(file) => DataOp::Remove { file: *file },
            })?;
        }
        Ok(store)
    }

    fn check_after_crash(&mut self, slot: usize) {
        let seed = self.seed;
        let model = &mut self.files[slot];
        // They may really be there now.
        for (at, bits) in std::mem::take(&mut model.taken_back) {
            *model.beyond.entry(at).or_default() |= bits;
        }
        let mut bytes = vec![0; model.bytes.len()];
        let store = self.store.as_ref().expect("just opened");
        if let Err(error) = store.read_into(model.file, model.cut, 0, &mut bytes) {
            panic!("seed {seed}: after a crash: {error}");
        }
        for (at, value) in bytes.into_iter().enumerate() {
            let bit = model.bit(value);
            let byte = &mut model.bytes[at];
            assert!(
                byte.allowed & bit != 0,
                "seed {seed}: {:?} at {at}: {value} after a crash, was {}, allowed {:#b} base {}",
                model.file,
                byte.now,
                byte.allowed,
                model.base,
            );
            byte.now = value;
        }
    }
}

fn run(seed: u64, steps: u32, capacity: Option<u64>) -> BTreeMap<&'static str, u32> {
    let mut world = World::new(seed);
    if let Some(capacity) = capacity {
        world.disk.set_capacity(capacity);
    }
    for _ in 0..steps {
        if world.rng.chance(1, 60) {
            let operations = world.rng.below(60);
            world.disk.die_after(operations);
        }
        if world.rng.chance(1, 200) {
            world.crash();
        }
        world.step();
    }
    world.disk.set_capacity(u64::MAX);
    world.disk.die_after(u64::MAX);
    (0..FILES).for_each(|slot| world.check(slot));
    world.sync_all();
    world.crash();
    let store = world.store.as_ref().expect("open between crashes");
    let verified = store.verify(&mut |damage| panic!("seed {seed}: {damage:?}")).unwrap();
    assert_eq!(verified.damages, 0);
    world.seen
}

/// What happened in all of them.
fn run_all(seeds: std::ops::Range<u64>, steps: u32, capacity: Option<u64>) -> BTreeMap<&'static str, u32> {
    let mut seen = BTreeMap::new();
    for (what, count) in seeds.flat_map(|seed| run(seed, steps, capacity)) {
        *seen.entry(what).or_insert(0) += count;
    }
    seen
}

#[test]
fn synced_bytes_survive_every_crash_and_others_are_zeros_or_older() {
    let seen = run_all(0..60, 1200, None);
    for what in ["write", "truncate", "zero", "copy", "seek", "redo", "sync_all", "remove", "crash"] {
        assert!(seen.get(what).is_some_and(|count| *count > 300), "{seen:?}");
    }
}

/// On a disk as small as this a quarter of all writes, copies and syncs of everything finds no space.
const FULL_BYTES: u64 = 40 * 4096;

#[test]
fn the_same_holds_on_a_disk_that_is_full_most_of_the_time() {
    let seen = run_all(1000..1030, 1000, Some(FULL_BYTES));
    assert!(seen["no space"] > 1000, "{seen:?}");
    for what in ["write", "truncate", "redo", "sync_all", "remove", "crash"] {
        assert!(seen.get(what).is_some_and(|count| *count > 100), "{seen:?}");
    }
}

/// All but `data_redo_always`, which the simulator meets far more often.
#[cfg(feature = "mutants")]
#[test]
fn every_seeded_defect_is_caught() {
    let defects = [
        "data_skip_block_sync",
        "data_skip_segment_sync",
        "data_skip_index_sync",
        "data_skip_folder_sync",
        "data_grow_unsynced",
        "data_older_wins",
        "data_skip_tombstone",
    ];
    for defect in defects {
        let caught = (0..500).find(|seed| {
            stdx::mutant::activate(Some(defect));
            std::panic::catch_unwind(|| run(*seed, 1200, None)).is_err()
        });
        stdx::mutant::activate(None);
        assert!(caught.is_some(), "{defect} was not caught");
    }
}

#[cfg(feature = "mutants")]
#[test]
fn bytes_of_a_refused_write_that_stay_are_caught() {
    let caught = (1000..1030).any(|seed| {
        stdx::mutant::activate(Some("data_refused_bytes_stay"));
        std::panic::catch_unwind(|| run(seed, 1000, Some(FULL_BYTES))).is_err()
    });
    stdx::mutant::activate(None);
    assert!(caught);
}
