//! File data: packed records, index, block files, and whose they are.
//!
//! Absent: the content of block files (it has no checksum); mending (`mend.rs`).

mod blocks;
mod mend;
mod segment;
mod state;

pub(crate) use mend::Mender;

use crate::cross::may_be_lost_create;
use crate::finding::{Found, Kind};
use crate::fix::{DataFix, Edit, Fix};
use crate::folder::{Folder, FsckError, io_error};
use crate::journal::Overlay;
use crate::record::{DIRECTORY, REGULAR, SYMLINK};
use crate::tree::{Node, Tree};
use blocks::Block;
use segment::Scanned;
use state::{Mark, State};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

/// Inode and generation.
pub(crate) type FileId = (u64, u32);
/// Truncation and write sequence: the higher one is the newer content.
pub(crate) type Seqs = (u32, u64);

/// The newest record of a packed file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packed {
    pub(crate) seqs: Seqs,
    pub(crate) segment: u32,
    pub(crate) offset: u32,
    pub(crate) len: u32,
}

/// The data store as it was found.
#[derive(Default)]
pub(crate) struct Data {
    folder: PathBuf,
    state: State,
    /// Segments, and from where each was scanned.
    marks: Vec<Mark>,
    packed: HashMap<FileId, Packed>,
    blocks: BTreeMap<FileId, Vec<Block>>,
    next_segment: u32,
    newest_write: u64,
    /// Places of records whose body is not what it was.
    broken: BTreeSet<(u32, u32)>,
    /// Segments of which something is told already.
    told: BTreeSet<u32>,
}

impl Data {
    /// Reads the data store and checks it against the namespace.
    pub(crate) fn check(
        folder: &Folder,
        overlay: &Overlay,
        tree: &Tree,
        found: &mut Found,
    ) -> Result<Self, FsckError> {
        let mut data = Self { folder: folder.data_root.join("data"), ..Self::default() };
        data.load(found)?;
        data.blocks = blocks::list(&data.folder, data.state.block_bytes, found)?;
        data.settle_forms();
        data.check_covered(found);
        data.check_owners(overlay, tree, found);
        data.check_sizes(tree, found);
        let blocks: u64 = data.blocks.values().map(|blocks| blocks.len() as u64).sum();
        found.report.data_objects = data.packed.len() as u64 + blocks;
        Ok(data)
    }

    fn load(&mut self, found: &mut Found) -> Result<(), FsckError> {
        let mut present = BTreeSet::new();
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(source) => return Err(FsckError::Io { path: self.folder.clone(), source }),
        };
        for entry in entries {
            let name = entry.map_err(io_error(&self.folder))?.file_name().to_string_lossy().into_owned();
            present.extend(segment::parse_name(&name));
        }
        let mut covered = true;
        match state::read(&self.folder)? {
            state::Read::Good(state) => {
                self.state = state;
                covered = self.load_index(found)?;
            }
            state::Read::Absent if present.is_empty() => return Ok(()),
            state::Read::Absent => self.state_lost("missing", &present, found),
            state::Read::Damaged => self.state_lost("checksum mismatch", &present, found),
        }
        self.newest_write = self.newest_write.max(self.state.next_write);
        self.next_segment = self.state.next_segment.max(present.last().map_or(0, |id| id + 1));
        let mut buried = HashMap::new();
        let marks = std::mem::take(&mut self.state.marks);
        for mark in &marks {
            self.next_segment = self.next_segment.max(mark.id + 1);
            let from = if covered { mark.covered } else { 0 };
            self.segment(Mark { covered: from, ..*mark }, present.contains(&mark.id), &mut buried, found)?;
        }
        let listed: BTreeSet<u32> = marks.iter().map(|mark| mark.id).collect();
        // A lower number that is not listed is a dead segment whose unlinking a crash undid.
        let later = self.state.next_segment;
        for id in present.difference(&listed).filter(|id| **id >= later) {
            self.segment(Mark { id: *id, covered: 0, synced: 0 }, true, &mut buried, found)?;
        }
        self.marks.sort_unstable_by_key(|mark| mark.id);
        Ok(())
    }

    fn state_lost(&mut self, what: &str, present: &BTreeSet<u32>, found: &mut Found) {
        found.add(Kind::DataStateDamaged, "data/state", what);
        found.fix(Fix::Data(DataFix::Rescan));
        let mark = |id: &u32| Mark { id: *id, covered: 0, synced: u64::MAX };
        self.state.marks = present.iter().map(mark).collect();
    }

    /// Loads the index file; `false`: it cannot be read and segments are scanned from their start.
    fn load_index(&mut self, found: &mut Found) -> Result<bool, FsckError> {
        if self.state.index == 0 {
            return Ok(true);
        }
        let bad = state::read_index(&self.folder, &self.state, &mut |file, packed| {
            self.newest_write = self.newest_write.max(packed.seqs.1);
            self.packed.insert(file, packed);
        })?;
        let Some(offset) = bad else { return Ok(true) };
        let place = format!("data/index-{:08x} at {offset:#x}", self.state.index);
        found.add(Kind::DataIndexDamaged, place, "");
        found.fix(Fix::Data(DataFix::Rescan));
        self.packed.clear();
        Ok(false)
    }

    /// Takes the records of one segment beyond what the index covers; the highest sequences win.
    fn segment(
        &mut self,
        mark: Mark,
        present: bool,
        buried: &mut HashMap<FileId, Seqs>,
        found: &mut Found,
    ) -> Result<(), FsckError> {
        let id = mark.id;
        let name = segment::name(id);
        if !present {
            if mark.synced > 0 {
                self.told.insert(id);
                self.marks.push(mark);
                found.add(Kind::DataSegmentMissing, format!("data/{name}"), "");
            }
            return Ok(());
        }
        let path = self.folder.join(&name);
        let bytes = fs::read(&path).map_err(io_error(&path))?;
        // Without a state file everything up to the last record counts.
        let synced = if mark.synced == u64::MAX { segment::last_end(id, &bytes) } else { mark.synced };
        if !segment::is_header(&bytes, id) {
            if synced == 0 {
                return Ok(());
            }
            found.add(Kind::DataSegmentHeaderDamaged, format!("data/{name} at 0x0"), "");
            found.fix(Fix::Data(DataFix::Header { segment: id }));
        }
        if (bytes.len() as u64) < synced {
            self.told.insert(id);
            let place = format!("data/{name} at {:#x}", bytes.len());
            found.add(Kind::DataRecordMissing, place, format!("the segment was durable up to {synced:#x}"));
        }
        let end = segment::scan(id, &bytes, mark.covered, |offset, scanned| match scanned {
            Scanned::Record(record) if record.intact || offset < synced => {
                if !record.intact {
                    self.broken.insert((id, offset as u32));
                }
                self.newest_write = self.newest_write.max(record.seqs.1);
                self.admit(record, id, offset, buried);
                true
            }
            Scanned::Bad if offset < synced => {
                found.add(Kind::DataRecordDamaged, format!("data/{name} at {offset:#x}"), "no record");
                true
            }
            Scanned::Bad | Scanned::Record(_) => false,
        });
        let synced = end.max(synced.min(bytes.len() as u64));
        self.marks.push(Mark { id, covered: mark.covered, synced });
        Ok(())
    }

    fn admit(
        &mut self,
        record: &segment::Record,
        segment: u32,
        offset: u64,
        buried: &mut HashMap<FileId, Seqs>,
    ) {
        let packed = self.packed.get(&record.file).map(|packed| packed.seqs);
        let known = buried.get(&record.file).copied();
        // A tombstone has the sequences of the record it buries, and wins over it.
        if record.tombstone {
            if packed.is_some_and(|packed| packed <= record.seqs) {
                self.packed.remove(&record.file);
            }
            buried.insert(record.file, known.max(Some(record.seqs)).unwrap_or(record.seqs));
        } else if packed.max(known).is_none_or(|known| known < record.seqs) {
            let packed = Packed { seqs: record.seqs, segment, offset: offset as u32, len: record.len };
            self.packed.insert(record.file, packed);
        }
    }

    /// A crash may leave a file in both forms: blocks with an equal or later truncation win.
    fn settle_forms(&mut self) {
        let packed = &mut self.packed;
        self.blocks.retain(|file, blocks| {
            let Some(record) = packed.get(file) else { return true };
            let wins = blocks.iter().any(|block| block.truncate.is_some_and(|seq| seq >= record.seqs.0));
            if wins {
                packed.remove(file);
            }
            wins
        });
    }

    /// Checks every live record that the scan did not see, and tells of the broken ones it saw.
    fn check_covered(&mut self, found: &mut Found) {
        let mut live: Vec<(u32, u32, FileId)> =
            self.packed.iter().map(|(file, packed)| (packed.segment, packed.offset, *file)).collect();
        live.sort_unstable();
        for records in live.chunk_by(|a, b| a.0 == b.0) {
            let id = records[0].0;
            let covered = match self.marks.binary_search_by_key(&id, |mark| mark.id) {
                Ok(at) => self.marks[at].covered,
                Err(_) => u64::MAX,
            };
            let name = segment::name(id);
            let mut bytes = None;
            for (_, offset, file) in records {
                let place = || format!("data/{name} at {offset:#x}");
                let detail = || format!("inode {:x}", file.0);
                if self.broken.remove(&(id, *offset)) {
                    found.add(Kind::DataRecordDamaged, place(), detail());
                }
                if u64::from(*offset) >= covered || self.told.contains(&id) {
                    continue;
                }
                let bytes = match &bytes {
                    Some(bytes) => bytes,
                    None => bytes.insert(fs::read(self.folder.join(&name)).unwrap_or_default()),
                };
                let packed = &self.packed[file];
                let Some(record) = segment::record_at(id, bytes, u64::from(*offset)) else {
                    let beyond = *offset as usize >= bytes.len();
                    let kind = if beyond { Kind::DataRecordMissing } else { Kind::DataRecordDamaged };
                    found.add(kind, place(), detail());
                    continue;
                };
                let same = record.file == *file && record.seqs == packed.seqs && record.len == packed.len;
                if !same || record.tombstone {
                    found.add(Kind::DataRecordMissing, place(), detail());
                } else if !record.intact {
                    found.add(Kind::DataRecordDamaged, place(), detail());
                }
            }
        }
        for (id, offset) in &self.broken {
            let place = format!("data/{} at {offset:#x}", segment::name(*id));
            found.note(Kind::DataRecordDamaged, place, "a record that is out of date");
        }
    }

    fn check_owners(&self, overlay: &Overlay, tree: &Tree, found: &mut Found) {
        let is_owned = |file: &FileId| owner(tree, *file).is_some_and(|node| node.kind == REGULAR);
        let mut others: Vec<(&FileId, &Packed)> =
            self.packed.iter().filter(|(file, _)| !is_owned(file)).collect();
        others.sort_unstable_by_key(|(file, _)| **file);
        for (file, packed) in others {
            let place = || format!("data/{} at {:#x}", segment::name(packed.segment), packed.offset);
            let (ino, generation) = *file;
            let fix = DataFix::Bury { ino, generation, seqs: packed.seqs };
            check_owner(overlay, tree, *file, place, fix, found);
        }
        for (file, blocks) in &self.blocks {
            for block in blocks {
                let path = blocks::path(*file, block.number);
                let fix = DataFix::Unlink { path: path.clone() };
                let owned = check_owner(overlay, tree, *file, || format!("data/{path}"), fix, found);
                let Some(size) = owned else { continue };
                let begins = block.number.saturating_mul(self.state.block_bytes);
                if begins >= size && block.truncate.is_some() {
                    let detail = format!("the size is {size}");
                    found.note(Kind::BlockBeyondSize, format!("data/{path}"), detail);
                }
            }
        }
    }

    /// Sizes that cannot be: the data tells better ones.
    fn check_sizes(&self, tree: &Tree, found: &mut Found) {
        for node in tree.nodes.iter().filter(|node| node.size >> 63 != 0) {
            let size = self.extent((node.ino, node.generation)).unwrap_or(0);
            found.fix(Fix::Inode(node.spot(), Edit::Size(size)));
        }
    }

    /// Bytes up to the end of a file's last data; `None` when it has none.
    pub(crate) fn extent(&self, file: FileId) -> Option<u64> {
        let packed = self.packed.get(&file).map(|packed| u64::from(packed.len));
        let end = |block: &Block| block.number.saturating_mul(self.state.block_bytes) + block.len;
        let blocks = self.blocks.get(&file).and_then(|blocks| blocks.iter().map(end).max());
        packed.max(blocks)
    }
}

/// The inode that the data says it is of.
fn owner(tree: &Tree, (ino, generation): FileId) -> Option<&Node> {
    tree.places(ino).iter().find(|node| node.generation == generation)
}

/// Whether the data's inode exists and may have data: its size.
fn check_owner(
    overlay: &Overlay,
    tree: &Tree,
    file: FileId,
    place: impl Fn() -> String,
    fix: DataFix,
    found: &mut Found,
) -> Option<u64> {
    let ino = file.0;
    match owner(tree, file) {
        Some(node) if node.kind == REGULAR => return Some(node.size),
        // A directory that lost its type: the next round knows better.
        Some(node) if !crate::record::is_kind(node.kind) => return None,
        Some(node) => {
            found.add(Kind::DataOfNoFile, place(), format!("inode {ino:x}"));
            // Only files have data and a size: it is the type that is wrong.
            if node.size > 0 && !matches!(node.kind, DIRECTORY | SYMLINK) {
                found.fix(Fix::Inode(node.spot(), Edit::Kind(REGULAR)));
                return None;
            }
        }
        None => {
            let removed = overlay.removed.contains(&file);
            let harmless = removed || may_be_lost_create(tree, overlay, ino);
            let detail = format!("inode {ino:x}");
            if harmless {
                found.note(Kind::DataLeaked, place(), detail);
            } else {
                found.add(Kind::DataLeaked, place(), detail);
            }
        }
    }
    found.fix(Fix::Data(fix));
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(file: FileId, seqs: Seqs, tombstone: bool) -> segment::Record {
        segment::Record { file, seqs, tombstone, len: 3, intact: true }
    }

    #[test]
    fn the_newest_record_wins_in_any_order() {
        let file = (5000, 0);
        let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
        let records = [record(file, (0, 1), false), record(file, (0, 1), true), record(file, (1, 3), false)];
        for order in orders {
            let mut data = Data::default();
            let mut buried = HashMap::new();
            for at in order {
                data.admit(&records[at], 7, 64, &mut buried);
            }
            assert_eq!(data.packed[&file].seqs, (1, 3));
        }
        for order in [[0, 1], [1, 0]] {
            let (mut data, mut buried) = (Data::default(), HashMap::new());
            order.into_iter().for_each(|at: usize| data.admit(&records[at], 7, 64, &mut buried));
            assert!(data.packed.is_empty(), "a tombstone wins over the record it buries");
        }
    }

    #[test]
    fn blocks_of_the_same_truncation_win_over_a_record() {
        let file = (5000, 0);
        for (truncate, wins) in [(1, false), (2, true)] {
            let mut data = Data::default();
            data.admit(&record(file, (2, 1), false), 1, 64, &mut HashMap::new());
            let block = Block { number: 0, truncate: Some(truncate), len: 1 };
            data.blocks.insert(file, vec![block]);
            data.settle_forms();
            assert_eq!((data.blocks.len() == 1, data.packed.is_empty()), (wins, wins));
        }
    }
}
