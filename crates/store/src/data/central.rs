//! What the data store knows in memory: index, buffers of small files that are in no segment yet,
//! tombstones to write, segments with their live bytes, blocks of large files, open files.
//!
//! One mutex guards all of it and is held for memory work only. Absent: I/O.

mod buffers;
mod queue;

pub(super) use queue::{Batch, Item};

use super::blocks::folder_of;
use super::flow::Flow;
use super::handles::Handles;
use super::index::{Entry, Index, Place};
use super::limits::Limits;
use super::record::{RECORD_HEADER_BYTES, SEGMENT_ID_MAX, Seqs, record_bytes};
use proto::FileId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use stdx::{Mono, mutant};

/// What a buffer costs beside its bytes.
const BUFFER_OVERHEAD: u64 = 160;
/// What a waiting tombstone costs.
const TOMBSTONE_OVERHEAD: u64 = 48;
/// How far write sequences jump with each opening, so that none is ever given out twice.
pub(super) const WRITE_SEQ_STEP: u64 = 1 << 20;

/// Content of a small file that is in no segment yet.
#[derive(Debug)]
pub(super) struct Buffer {
    /// Shared with a flush in flight; a change then works on a copy.
    pub(super) data: Arc<Vec<u8>>,
    pub(super) seqs: Seqs,
    /// Its place in the queue. A change of queued content keeps the place: a `SyncAll` under way waits for everything queued
    /// before it, and the old content, which the journal will let go of after it, is only here.
    stamp: u64,
    /// False while a flush of exactly this content is in flight.
    queued: bool,
    /// This or an earlier content may be in the journal as a redo.
    pub(super) journaled: bool,
}

/// A packed record, and older ones of the file, that are to be declared dead.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tombstone {
    pub(super) file: FileId,
    pub(super) seqs: Seqs,
}

/// One segment file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Segment {
    /// Every record below is in the index, or was superseded. 0 until the file is made.
    pub(super) end: u64,
    /// Durable up to here.
    pub(super) synced: u64,
    /// The index checkpoint on disk covers every record below.
    pub(super) covered: u64,
    /// Bytes of records that the index points to.
    pub(super) live: u64,
    /// No record will be added.
    pub(super) sealed: bool,
    /// When it last lost a live record.
    pub(super) lost: Mono,
    /// Since when less than half of it lives, while that is so.
    pub(super) dying: Option<Mono>,
    /// Compaction met a damaged record in it: it stays, so that the damage stays visible.
    pub(super) stuck: bool,
}

impl Segment {
    /// Whether less than half of it lives.
    pub(super) const fn is_dying(&self) -> bool {
        self.live * 2 < self.end
    }
}

/// One block file of a large file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Block {
    /// The truncation that was applied to it; `None` until its header was read.
    pub(super) seq: Option<u32>,
    /// Bytes of data in it (known with `seq`).
    pub(super) len: u64,
    /// Something was written that is not synced.
    pub(super) dirty: bool,
    /// Found at opening: a process that died may have written to it without a sync.
    pub(super) inherited: bool,
    /// The header on disk has an older `seq` than the content. It is rewritten only after the cut it
    /// tells of was synced: header first and a crash would bring cut bytes back; content synced
    /// without header and the next life would cut what was written after the cut.
    pub(super) header_stale: bool,
    /// Something was written since its last write-out began (`flow.rs`).
    pub(super) unwritten: bool,
    /// It waits for a write-out, or is being written out.
    pub(super) leaving: bool,
    /// It is counted as cached.
    pub(super) cached: bool,
}

/// A file in block form: at least one block exists.
#[derive(Clone, Debug, Default)]
pub(super) struct LargeFile {
    pub(super) blocks: BTreeMap<u64, Block>,
    /// A block was made or unlinked since its folder was synced.
    pub(super) folder_dirty: bool,
    /// Where the last read ended, and for how many bytes reads have followed each other.
    pub(super) read_end: u64,
    pub(super) read_run: u64,
}

/// In which form a file's data is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Absent,
    Buffered,
    Packed(Entry),
    Large,
}

/// Why a small write cannot go into its buffer at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shortage {
    /// Buffers are full: flush.
    Memory,
    /// Segments made so far could not take all buffers: make one.
    Space,
}

/// The state behind the central mutex.
#[derive(Debug)]
pub(super) struct Central<F> {
    pub(super) index: Index,
    pub(super) segments: BTreeMap<u32, Segment>,
    pub(super) next_segment: u32,
    pub(super) next_write_seq: u64,
    buffers: BTreeMap<FileId, Buffer>,
    queue: BTreeMap<u64, FileId>,
    next_stamp: u64,
    tombstones: VecDeque<Tombstone>,
    tombstones_added: u64,
    /// Memory of buffers and waiting tombstones.
    buffered_bytes: u64,
    /// Segment bytes that queued buffers and waiting tombstones will take.
    queued_bytes: u64,
    /// Segment bytes reserved on disk and not yet used.
    pub(super) space_left: u64,
    pub(super) large: BTreeMap<FileId, LargeFile>,
    pub(super) dirty_large: BTreeSet<FileId>,
    pub(super) dirty_folders: BTreeSet<u8>,
    /// There may be inherited blocks.
    pub(super) inherited: bool,
    /// Segment files were made since `data` was synced.
    pub(super) data_folder_dirty: bool,
    pub(super) flow: Flow,
    pub(super) handles: Handles<F>,
    /// The time as last told.
    pub(super) now: Mono,
    /// What was queued when `flush_aged` was last called.
    aged: (u64, u64),
    buffer_limit: u64,
    /// Segment bytes that only tombstones may use, so that removal works on a full disk.
    tombstone_reserve: u64,
}

impl<F> Central<F> {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            index: Index::new(),
            segments: BTreeMap::new(),
            next_segment: 1,
            next_write_seq: 1,
            buffers: BTreeMap::new(),
            queue: BTreeMap::new(),
            next_stamp: 0,
            tombstones: VecDeque::new(),
            tombstones_added: 0,
            buffered_bytes: 0,
            queued_bytes: 0,
            space_left: 0,
            large: BTreeMap::new(),
            dirty_large: BTreeSet::new(),
            dirty_folders: BTreeSet::new(),
            inherited: false,
            data_folder_dirty: false,
            flow: Flow::default(),
            handles: Handles::new(limits.handles_max),
            now: Mono::default(),
            aged: (0, 0),
            buffer_limit: limits.buffer_bytes,
            tombstone_reserve: limits.segment_bytes / 16,
        }
    }

    pub(super) fn form(&self, file: FileId) -> Form {
        if self.buffers.contains_key(&file) {
            return Form::Buffered;
        }
        match self.index.get(file) {
            Some(entry) => Form::Packed(entry),
            None if self.large.contains_key(&file) => Form::Large,
            None => Form::Absent,
        }
    }

    pub(super) fn buffer(&self, file: FileId) -> Option<&Buffer> {
        self.buffers.get(&file)
    }

    /// Whether a file's packed content is in its buffer only: no record of it, older or equal, and no redo in the journal
    /// can be what a caller was told is durable.
    pub(super) fn is_only_buffered(&self, file: FileId) -> bool {
        self.buffers.get(&file).is_some_and(|buffer| !buffer.journaled) && self.index.get(file).is_none()
    }

    /// Notes a block file that was made and not synced.
    pub(super) fn add_block(&mut self, file: FileId, number: u64, block: Block) {
        let large = self.large.entry(file).or_default();
        large.folder_dirty = true;
        large.blocks.insert(number, block);
        self.dirty_large.insert(file);
        self.dirty_folders.insert(folder_of(file));
    }

    /// The newest sequences the store has of a packed file.
    pub(super) fn packed_seqs(&self, file: FileId) -> Option<Seqs> {
        match self.buffers.get(&file) {
            Some(buffer) => Some(buffer.seqs),
            None => self.index.get(file).map(|entry| entry.seqs),
        }
    }

    pub(super) const fn take_write_seq(&mut self) -> u64 {
        self.next_write_seq += 1;
        self.next_write_seq - 1
    }

    /// Whether a buffer of `len` bytes may be put or grown to now.
    pub(super) fn shortage(&self, len: u64) -> Option<Shortage> {
        let record = RECORD_HEADER_BYTES + len.next_multiple_of(8);
        if self.buffered_bytes > 0 && self.buffered_bytes + len + BUFFER_OVERHEAD > self.buffer_limit {
            return Some(Shortage::Memory);
        }
        let need = self.queued_bytes + record + self.tombstone_reserve;
        (need > self.space_left).then_some(Shortage::Space)
    }

    /// Whether buffers take more than half of their memory: a background flush is due.
    pub(super) const fn wants_flush(&self) -> bool {
        self.buffered_bytes * 2 > self.buffer_limit
    }

    /// Whether space for another half segment should be reserved ahead of need.
    pub(super) const fn wants_space(&self) -> bool {
        self.queued_bytes + self.tombstone_reserve * 9 > self.space_left
    }

    pub(super) const fn buffered_bytes(&self) -> u64 {
        self.buffered_bytes
    }

    /// Declares a file's packed record dead, if it has one.
    pub(super) fn bury(&mut self, file: FileId) {
        if let Some(entry) = self.index.remove(file) {
            self.subtract_live(entry.place);
            self.add_tombstone(file, entry.seqs);
        }
    }

    /// A tombstone has exactly the sequences of the record it buries, and wins over it. Higher ones
    /// would be wrong: a replay cuts an old record first and then redoes a content that was written
    /// by the life before, under a lower write sequence than any of this life.
    fn add_tombstone(&mut self, file: FileId, seqs: Seqs) {
        if mutant!("data_skip_tombstone") {
            return;
        }
        let seqs = if mutant!("data_tombstone_of_now") {
            // Those of the cut that buries it.
            Seqs { truncate: seqs.truncate + 1, write: self.take_write_seq() }
        } else {
            seqs
        };
        self.tombstones.push_back(Tombstone { file, seqs });
        self.tombstones_added += 1;
        self.buffered_bytes += TOMBSTONE_OVERHEAD;
        self.queued_bytes += RECORD_HEADER_BYTES;
    }

    fn subtract_live(&mut self, place: Place) {
        if let Some(segment) = self.segments.get_mut(&place.segment) {
            segment.live -= record_bytes(place.len);
            segment.lost = self.now;
            segment.dying = segment.dying.filter(|_| segment.is_dying());
            if segment.is_dying() {
                segment.dying.get_or_insert(self.now);
            }
        }
    }

    /// Points the index at a record.
    pub(super) fn put_entry(&mut self, entry: Entry) {
        if let Some(segment) = self.segments.get_mut(&entry.place.segment) {
            segment.live += record_bytes(entry.place.len);
        }
        if let Some(old) = self.index.put(entry) {
            self.subtract_live(old.place);
        }
    }

    /// Registers a new segment before its file is made: the state file must never tell of a higher
    /// `next_segment` without listing it. `None`: there are no more numbers.
    pub(super) fn new_segment(&mut self) -> Option<u32> {
        let id = self.next_segment;
        if id >= SEGMENT_ID_MAX {
            return None;
        }
        self.next_segment += 1;
        self.segments.insert(id, Segment::default());
        Some(id)
    }

    /// Takes back a segment whose file could not be made, and its number if it is the last one given: on a full disk every
    /// attempt would cost one, and no store opens beyond `SEGMENT_ID_MAX`. An earlier number stays dead: a state file may
    /// have said so.
    pub(super) fn retract_segment(&mut self, id: u32) {
        self.segments.remove(&id);
        if self.next_segment == id + 1 {
            self.next_segment = id;
        }
    }

    /// Number of small files whose content is in a buffer.
    pub(super) fn buffers(&self) -> impl Iterator<Item = (FileId, &Buffer)> {
        self.buffers.iter().map(|(file, buffer)| (*file, buffer))
    }
}
