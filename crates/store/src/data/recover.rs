//! Opening: state file, index file, then the records that segments hold beyond what the index covers.
//!
//! A bad record below a segment's synced end is damage; beyond it, it is where the crash tore.
//! Absent: repair; damaged records are named and left where they are.

use super::DataFiles;
use super::blocks::{folder_name, parse_block_name};
use super::central::{Block, Central, Segment, WRITE_SEQ_STEP};
use super::checkpoint::{Checkpointer, write_state};
use super::index::{Entry, Place, TABLES};
use super::io_error;
use super::limits::Limits;
use super::locks::guard;
use super::record::{
    RecordHeader, SEGMENT_HEADER_BYTES, Seqs, is_segment_header, parse_segment_name, record_bytes,
    segment_name,
};
use super::state::{
    CHUNK_HEADER_BYTES, ENTRY_BYTES, INDEX_HEADER_BYTES, STATE_NAME, STATE_TEMPORARY, State, decode_chunk,
    encode_index_header, index_name, parse_index_name,
};
use super::verify::{Walked, walk};
use crate::disk::{Disk, DiskFile};
use proto::codec::Reader;
use proto::storeio::StoreError;
use proto::{Errno, FileId};
use std::collections::{BTreeMap, BTreeSet};
use stdx::mutant;

/// A record that must be there and is not, or is not what it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file on the disk.
    pub name: String,
    pub offset: u64,
    pub what: &'static str,
}

impl From<Damage> for StoreError {
    fn from(damage: Damage) -> Self {
        super::damaged(&damage.name, damage.offset, damage.what)
    }
}

/// What opening found.
pub(super) struct Recovered<F> {
    pub(super) central: Central<F>,
    pub(super) checkpointer: Checkpointer,
    pub(super) damages: Vec<Damage>,
}

struct Recovery<'a, D: Disk> {
    disk: &'a D,
    limits: &'a Limits,
    central: Central<D::File>,
    damages: Vec<Damage>,
    /// Tombstones met in tails.
    buried: BTreeMap<FileId, Seqs>,
    newest_write: u64,
    /// Files that nothing refers to.
    leftovers: Vec<String>,
    /// Segments and the length they are cut to: torn tails, reserved space.
    trims: Vec<(u32, u64)>,
}

/// Reads the disk's state; makes the state file where there is none.
pub(super) fn recover<D: Disk>(disk: &D, limits: &Limits) -> Result<Recovered<D::File>, StoreError> {
    let mut recovery = Recovery {
        disk,
        limits,
        central: Central::new(limits),
        damages: Vec::new(),
        buried: BTreeMap::new(),
        newest_write: 0,
        leftovers: Vec::new(),
        trims: Vec::new(),
    };
    let names = disk.list("data")?;
    let segments: Vec<u32> = names.iter().filter_map(|name| parse_segment_name(name)).collect();
    let found = read_state(disk)?;
    if found.is_none() && !segments.is_empty() {
        return Err(Damage { name: STATE_NAME.into(), offset: 0, what: "missing" }.into());
    }
    let fresh = found.is_none();
    let state = match found {
        Some(state) => state,
        None => State { block_bytes: limits.block_bytes, next_segment: 1, ..State::default() },
    };
    if state.block_bytes != limits.block_bytes {
        return Err(io_error("data/state: other block size", Errno::EINVAL));
    }
    let covered = recovery.load_index(&state)?;
    recovery.scan_segments(&state, &segments, covered)?;
    recovery.count_live();
    recovery.list_blocks(fresh)?;
    let indexes = names.iter().filter_map(|name| parse_index_name(name));
    recovery.leftovers.extend(indexes.filter(|number| *number != state.index).map(index_name));
    if names.iter().any(|name| name == "state.tmp") {
        recovery.leftovers.push(STATE_TEMPORARY.into());
    }
    // A damaged disk is left as it is found: a fresh state would hide what is missing from the next open.
    if fresh && recovery.damages.is_empty() {
        write_state(disk, &state)?;
    }
    recovery.finish(state)
}

fn read_state<D: Disk>(disk: &D) -> Result<Option<State>, StoreError> {
    let Some(file) = disk.open(STATE_NAME)? else { return Ok(None) };
    let mut bytes = vec![0; file.size()?.min(1 << 30) as usize];
    let count = file.read_at(&mut bytes, 0)?;
    match State::decode(&bytes[..count]) {
        Ok(state) => Ok(Some(state)),
        Err(_) => Err(Damage { name: STATE_NAME.into(), offset: 0, what: "checksum mismatch" }.into()),
    }
}

impl<D: Disk> Recovery<'_, D> {
    fn damage(&mut self, name: String, offset: u64, what: &'static str) {
        self.damages.push(Damage { name, offset, what });
    }

    /// Loads the index file. `false`: it is damaged and segments have to be scanned from their start.
    fn load_index(&mut self, state: &State) -> Result<bool, StoreError> {
        if state.index == 0 {
            return Ok(true);
        }
        let name = index_name(state.index);
        let damaged_at = match self.disk.open(&name)? {
            None => Some(0),
            Some(file) => self.load_chunks(&file, state)?,
        };
        let Some(offset) = damaged_at else { return Ok(true) };
        self.damage(name, offset, "checksum mismatch");
        self.central.index = super::index::Index::new();
        Ok(false)
    }

    /// The offset of what is wrong, if anything is.
    fn load_chunks(&mut self, file: &D::File, state: &State) -> Result<Option<u64>, StoreError> {
        let mut header = [0; INDEX_HEADER_BYTES];
        let count = file.read_at(&mut header, 0)?;
        if header[..count] != encode_index_header(state.index, state.index_entries) {
            return Ok(Some(0));
        }
        let (mut at, mut left, mut chunk) = (INDEX_HEADER_BYTES as u64, state.index_entries, 0);
        while left > 0 {
            let mut head = [0; CHUNK_HEADER_BYTES];
            if file.read_at(&mut head, at)? < head.len() {
                return Ok(Some(at));
            }
            let mut r = Reader::new(&head);
            let (Ok(count), Ok(crc)) = (r.u32(), r.u32()) else { return Ok(Some(at)) };
            if count == 0 || u64::from(count) > left || count as usize > super::state::CHUNK_ENTRIES {
                return Ok(Some(at));
            }
            let mut body = vec![0; count as usize * ENTRY_BYTES];
            let have = file.read_at(&mut body, at + CHUNK_HEADER_BYTES as u64)?;
            let Ok(entries) = decode_chunk(state.index, chunk, (count, crc), &body[..have]) else {
                return Ok(Some(at));
            };
            for entry in entries {
                self.newest_write = self.newest_write.max(entry.seqs.write);
                self.central.index.put(entry);
            }
            at += (CHUNK_HEADER_BYTES + body.len()) as u64;
            left -= u64::from(count);
            chunk += 1;
        }
        Ok(None)
    }

    fn scan_segments(&mut self, state: &State, present: &[u32], covered: bool) -> Result<(), StoreError> {
        let present: BTreeSet<u32> = present.iter().copied().collect();
        for mark in &state.segments {
            if present.contains(&mark.id) {
                self.scan_segment(mark.id, if covered { mark.covered } else { 0 }, mark.synced)?;
            } else if mark.synced > 0 {
                self.damage(segment_name(mark.id), 0, "segment is missing");
            }
        }
        let listed: BTreeSet<u32> = state.segments.iter().map(|mark| mark.id).collect();
        for id in present.difference(&listed) {
            if *id < state.next_segment {
                self.leftovers.push(segment_name(*id));
            } else {
                self.scan_segment(*id, 0, 0)?;
            }
        }
        let newest = self.central.segments.keys().next_back().map_or(0, |id| id + 1);
        let listed = state.segments.iter().map(|mark| mark.id + 1).max().unwrap_or(0);
        let present = present.last().map_or(0, |id| id + 1);
        self.central.next_segment = state.next_segment.max(newest).max(listed).max(present);
        self.newest_write = self.newest_write.max(state.next_write_seq);
        Ok(())
    }

    fn scan_segment(&mut self, id: u32, covered: u64, synced: u64) -> Result<(), StoreError> {
        let name = segment_name(id);
        let Some(file) = self.disk.open(&name)? else { return Ok(()) };
        let size = file.size()?;
        let mut header = [0; SEGMENT_HEADER_BYTES as usize];
        let count = file.read_at(&mut header, 0)?;
        if !is_segment_header(&header[..count], id) {
            if synced == 0 {
                self.leftovers.push(name);
                return Ok(());
            }
            self.damage(name.clone(), 0, "checksum mismatch");
        }
        if size < synced {
            self.damage(name.clone(), size, "segment is shorter than its synced end");
        }
        let from = covered.max(SEGMENT_HEADER_BYTES);
        let mut bad = Vec::new();
        let end = walk(&file, id, from.min(size), size, &mut |offset, walked| match walked {
            Walked::Record { header, intact, .. } if intact || offset < synced => {
                self.apply(header, id, offset);
                true
            }
            Walked::Bad if offset < synced => {
                bad.push(offset);
                true
            }
            Walked::Bad | Walked::Record { .. } => false,
        })?;
        bad.into_iter().for_each(|offset| self.damage(name.clone(), offset, "checksum mismatch"));
        let segment = Segment {
            end: end.max(synced.min(size)),
            synced: synced.min(size),
            covered: covered.min(size),
            sealed: true,
            ..Segment::default()
        };
        // The tail may be torn, and space may be reserved behind it.
        if end < size || end + record_bytes(super::SMALL_FILE_BYTES_MAX) < self.limits.segment_bytes {
            self.trims.push((id, segment.end));
        }
        self.central.segments.insert(id, segment);
        Ok(())
    }

    /// Takes one record of a tail into the index; the highest sequences win, in whatever order, and of
    /// equal ones a tombstone.
    fn apply(&mut self, header: RecordHeader, segment: u32, offset: u64) {
        self.newest_write = self.newest_write.max(header.seqs.write);
        let indexed = self.central.index.get(header.file).map(|entry| entry.seqs);
        let buried = self.buried.get(&header.file).copied();
        if header.tombstone {
            if indexed.is_some_and(|indexed| indexed <= header.seqs) {
                self.central.index.remove(header.file);
            }
            self.buried.insert(header.file, header.seqs.max(buried.unwrap_or_default()));
        } else if indexed.max(buried).is_none_or(|known| known < header.seqs) || mutant!("data_older_wins") {
            let place = Place { segment, offset: offset as u32, len: header.len };
            self.central.index.put(Entry { file: header.file, seqs: header.seqs, place });
        }
    }

    /// Counts live bytes, and names index entries that point to nothing.
    fn count_live(&mut self) {
        let Central { index, segments, .. } = &mut self.central;
        let mut lost = BTreeMap::new();
        for entry in (0..TABLES).flat_map(|table| index.entries(table)) {
            let bytes = record_bytes(entry.place.len);
            let end = u64::from(entry.place.offset) + bytes;
            match segments.get_mut(&entry.place.segment) {
                Some(segment) if end <= segment.end => segment.live += bytes,
                _ => {
                    lost.entry(entry.place.segment).or_insert(u64::from(entry.place.offset));
                }
            }
        }
        for (id, offset) in lost {
            self.damage(segment_name(id), offset, "record is missing");
        }
    }

    fn list_blocks(&mut self, fresh: bool) -> Result<(), StoreError> {
        for folder in 0..=255 {
            let path = folder_name(folder);
            for name in self.disk.list(&path)? {
                if let Some((file, block)) = parse_block_name(folder, &name) {
                    let large = self.central.large.entry(file).or_default();
                    large.folder_dirty = true;
                    large.blocks.insert(block, Block { inherited: true, ..Block::default() });
                } else if name.strip_suffix(".tmp").is_some_and(|n| parse_block_name(folder, n).is_some()) {
                    self.leftovers.push(format!("{path}/{name}"));
                }
            }
        }
        // What a process that died made and unlinked may not be durable, although it is seen.
        self.central.dirty_folders = (0..=255).collect();
        self.central.data_folder_dirty = true;
        self.central.inherited = !self.central.large.is_empty();
        if fresh && !self.central.large.is_empty() {
            self.damage(STATE_NAME.into(), 0, "missing");
        }
        Ok(())
    }

    fn finish(mut self, state: State) -> Result<Recovered<D::File>, StoreError> {
        self.central.next_write_seq = self.newest_write + WRITE_SEQ_STEP;
        // A disk with damage is left as it is found.
        if self.damages.is_empty() {
            // The state file that makes them leftovers must not be undone by a crash.
            self.disk.sync_folder("data")?;
            for name in &self.leftovers {
                self.disk.remove(name)?;
            }
            for (id, len) in &self.trims {
                if let Some(file) = self.disk.open(&segment_name(*id))? {
                    // Only a cut that changes the length is sure to free what is reserved behind it.
                    file.set_len(self.limits.segment_bytes.max(len + 1))?;
                    file.set_len(*len)?;
                }
            }
        }
        let checkpointer = Checkpointer { state, synced: 0 };
        Ok(Recovered { central: self.central, checkpointer, damages: self.damages })
    }
}

impl<D: Disk> DataFiles<D> {
    /// A crash may leave a file in both forms. Blocks made from the packed content have its truncation
    /// or a later one and win; older ones were unlinked before the packed content was written.
    pub(super) fn settle_forms(&self, damages: &mut Vec<Damage>) -> Result<(), StoreError> {
        let both: Vec<(FileId, Seqs)> = {
            let central = guard(&self.central);
            let entries = central.large.keys().filter_map(|file| central.index.get(*file));
            entries.map(|entry| (entry.file, entry.seqs)).collect()
        };
        for (file, seqs) in both {
            match self.has_blocks_since(file, seqs.truncate) {
                Ok(true) => self.bury_packed(file),
                Ok(false) => self.unlink_blocks(file, |_| true)?,
                Err(StoreError::Damaged { .. }) => {
                    let name = super::blocks::block_name(file, 0);
                    damages.push(Damage { name, offset: 0, what: "checksum mismatch" });
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
