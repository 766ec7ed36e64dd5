//! Operations on packed files: content in a buffer, or in one record of a segment.
//!
//! The caller holds the file's mutex, so a file's form changes under nobody's hands; only compaction
//! may move its record. Absent: block files.

use super::central::{Buffer, Central, Form};
use super::handles::HandleKey;
use super::index::Entry;
use super::locks::guard;
use super::record::{RECORD_HEADER_BYTES, RecordHeader, Seqs, record_bytes, segment_name};
use super::{DataFiles, damaged, end_of};
use crate::disk::{Disk, DiskFile};
use proto::FileId;
use proto::storeio::{Cut, StoreError};
use std::sync::Arc;
use stdx::mutant;

/// Holes of a small file are whole pages of zeros.
const HOLE_BYTES: usize = 4096;

/// A small file's content where it was found, in a buffer or as part of a record: reading it moves no byte.
#[derive(Default)]
pub(super) struct Content {
    bytes: Arc<Vec<u8>>,
    /// What comes before it is the record's header.
    from: usize,
    len: usize,
    seqs: Seqs,
}

impl Content {
    fn of_buffer(buffer: &Buffer) -> Self {
        Self { bytes: Arc::clone(&buffer.data), from: 0, len: buffer.data.len(), seqs: buffer.seqs }
    }

    /// What a cut leaves of it.
    pub(super) fn cut(mut self, cut: Cut) -> Self {
        self.len = cut_len_of(self.len as u64, self.seqs, cut) as usize;
        self
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[self.from..self.from + self.len]
    }

    /// Fills `out` from `offset` on, with zeros past the end.
    pub(super) fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        end_of(offset, out.len() as u64)?;
        let from = usize::try_from(offset).map_or(self.len, |from| from.min(self.len));
        let count = (self.len - from).min(out.len());
        out[..count].copy_from_slice(&self.bytes()[from..from + count]);
        out[count..].fill(0);
        Ok(())
    }

    /// To be changed, or kept.
    pub(super) fn into_vec(self) -> Vec<u8> {
        let mut bytes = Arc::unwrap_or_clone(self.bytes);
        bytes.truncate(self.from + self.len);
        bytes.drain(..self.from);
        bytes
    }
}

/// The length of a record's content under a cut.
fn cut_len(entry: &Entry, cut: Cut) -> u64 {
    cut_len_of(u64::from(entry.place.len), entry.seqs, cut)
}

fn cut_len_of(len: u64, seqs: Seqs, cut: Cut) -> u64 {
    if seqs.truncate < cut.seq { len.min(cut.size) } else { len }
}

/// As `lseek` on content that ends with the slice; `None` past its end.
pub(super) fn seek(content: &[u8], offset: u64, hole: bool) -> Option<u64> {
    let mut at = usize::try_from(offset).ok().filter(|at| *at < content.len());
    while let Some(from) = at {
        let end = ((from / HOLE_BYTES + 1) * HOLE_BYTES).min(content.len());
        let page = &content[from / HOLE_BYTES * HOLE_BYTES..end];
        if page.iter().all(|byte| *byte == 0) == hole {
            return Some(from as u64);
        }
        at = (end < content.len()).then_some(end);
    }
    // Past the content all is hole.
    hole.then_some(offset.max(content.len() as u64))
}

fn splice(content: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    if content.len() < offset {
        content.resize(offset, 0);
    }
    let within = bytes.len().min(content.len() - offset);
    content[offset..offset + within].copy_from_slice(&bytes[..within]);
    content.extend_from_slice(&bytes[within..]);
}

impl<F> Central<F> {
    /// The content of a file of which nothing is on the disk; `None` where something is.
    pub(super) fn content_in_memory(&self, file: FileId) -> Option<Content> {
        match self.buffer(file) {
            Some(buffer) => Some(Content::of_buffer(buffer)),
            None => (self.form(file) == Form::Absent).then(Content::default),
        }
    }

    /// The form of a file that is not in blocks, and the length that a write of it starts from, under the cut where that is
    /// looked at before.
    pub(super) fn small_form(&self, file: FileId, cut: Cut) -> Option<(Form, u64)> {
        let form = self.form(file);
        let held = match form {
            Form::Large => return None,
            Form::Absent => 0,
            Form::Packed(entry) => cut_len(&entry, cut),
            Form::Buffered => self.buffer(file).map_or(0, |buffer| buffer.data.len() as u64),
        };
        Some((form, held))
    }

    /// Writes into the buffered content, or into `content`, what there is to be kept of another one. There is room.
    pub(super) fn write_content(
        &mut self,
        (file, form): (FileId, Form),
        cut: Cut,
        offset: usize,
        bytes: &[u8],
        mut content: Vec<u8>,
    ) {
        let edit = |seqs, content: &mut Vec<u8>| {
            content.truncate(cut_len_of(content.len() as u64, seqs, cut) as usize);
            splice(content, offset, bytes);
        };
        if form == Form::Buffered && self.edit_buffer(file, cut.seq, edit) {
            return;
        }
        splice(&mut content, offset, bytes);
        let truncate = match form {
            Form::Packed(entry) => cut.seq.max(entry.seqs.truncate),
            Form::Absent | Form::Buffered | Form::Large => cut.seq,
        };
        let seqs = Seqs { truncate, write: self.take_write_seq() };
        self.put_buffer(file, content, seqs, false);
    }
}

impl<D: Disk> DataFiles<D> {
    pub(super) fn segment_file(&self, id: u32) -> Result<Option<Arc<D::File>>, StoreError> {
        let cached = guard(&self.central).handles.get(HandleKey::Segment(id));
        if cached.is_some() {
            return Ok(cached);
        }
        let Some(file) = self.disk.open(&segment_name(id))? else { return Ok(None) };
        let file = Arc::new(file);
        let evicted = guard(&self.central).handles.put(HandleKey::Segment(id), Arc::clone(&file));
        self.retire(evicted);
        Ok(Some(file))
    }

    /// The content of a file in packed form, under the cut; empty when there is none.
    pub(super) fn small_content(&self, file: FileId, cut: Cut) -> Result<Content, StoreError> {
        Ok(self.newest_small(file)?.cut(cut))
    }

    fn newest_small(&self, file: FileId) -> Result<Content, StoreError> {
        let mut central = guard(&self.central);
        loop {
            if let Some(buffer) = central.buffer(file) {
                return Ok(Content::of_buffer(buffer));
            }
            let Some(entry) = central.index.get(file) else {
                return Ok(Content::default());
            };
            drop(central);
            let read = self.read_record(&entry);
            central = guard(&self.central);
            match read {
                Ok(content) => return Ok(content),
                // Compaction moved it meanwhile; otherwise the record is what it seems.
                Err(_) if central.index.get(file) != Some(entry) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads a record and checks that it is the one the index means.
    fn read_record(&self, entry: &Entry) -> Result<Content, StoreError> {
        let place = entry.place;
        let at = u64::from(place.offset);
        let wrong = |what| Err(damaged(&segment_name(place.segment), at, what));
        let Some(file) = self.segment_file(place.segment)? else { return wrong("segment is missing") };
        let mut bytes = vec![0; record_bytes(place.len) as usize];
        if file.read_at(&mut bytes, at)? < bytes.len() {
            return wrong("record is missing");
        }
        let Ok(header) = RecordHeader::decode(&bytes) else { return wrong("checksum mismatch") };
        let same = header.is_at(place.segment, at)
            && header.file == entry.file
            && header.seqs == entry.seqs
            && header.len == place.len
            && !header.tombstone;
        if !same {
            return wrong("record of another object");
        }
        let from = RECORD_HEADER_BYTES as usize;
        if !header.has_body(&bytes[from..]) {
            return wrong("checksum mismatch");
        }
        Ok(Content { bytes: Arc::new(bytes), from, len: place.len as usize, seqs: entry.seqs })
    }

    /// Makes sure that a buffer of `len` bytes may be put.
    fn has_room(&self, len: u64) -> Result<bool, StoreError> {
        if guard(&self.central).shortage(len).is_none() {
            return Ok(true);
        }
        self.make_room(len)?;
        Ok(false)
    }

    /// Writes into a packed file; `false`: it is in blocks.
    pub(super) fn write_small(
        &self,
        file: FileId,
        cut: Cut,
        offset: usize,
        bytes: &[u8],
    ) -> Result<bool, StoreError> {
        let end = offset + bytes.len();
        let mut base: Option<Content> = None;
        loop {
            let mut central = guard(&self.central);
            let Some((form, held)) = central.small_form(file, cut) else { return Ok(false) };
            let len = held.max(end as u64);
            if central.shortage(len).is_some() {
                drop(central);
                self.make_room(len)?;
                continue;
            }
            // A flush may turn a buffer into a record at any time the central mutex is not held.
            let mut content = Vec::new();
            if let Form::Packed(entry) = form
                && (offset > 0 || (end as u64) < held)
            {
                match base.take() {
                    Some(old) if old.seqs == entry.seqs => content = old.into_vec(),
                    _ => {
                        drop(central);
                        base = Some(self.newest_small(file)?);
                        continue;
                    }
                }
                content.truncate(held as usize);
            }
            central.write_content((file, form), cut, offset, bytes, content);
            return Ok(true);
        }
    }

    pub(super) fn truncate_small(&self, file: FileId, cut: Cut) -> Result<(), StoreError> {
        let mut central = guard(&self.central);
        let (seqs, len) = match central.form(file) {
            Form::Absent | Form::Large => return Ok(()),
            Form::Buffered => match central.buffer(file) {
                Some(buffer) => (buffer.seqs, buffer.data.len() as u64),
                None => return Ok(()),
            },
            Form::Packed(entry) => (entry.seqs, u64::from(entry.place.len)),
        };
        if seqs.truncate >= cut.seq {
            return Ok(());
        }
        if cut.size == 0 {
            central.drop_buffer(file);
            central.bury(file);
            return Ok(());
        }
        if central.cut_buffer(file, cut) {
            return Ok(());
        }
        drop(central);
        // A record within the cut stays: no later cut of this file comes before this one is done.
        if len > cut.size { self.cut_record(file, cut) } else { Ok(()) }
    }

    /// Replaces a packed record by what the cut leaves of it, under the record's own write sequence (see `cut_buffer`).
    ///
    /// Cutting goes on when the disk is full, at replay (or the store would not open) as in service, as `redo` does: the
    /// records there are bound what is buffered beyond the limit.
    fn cut_record(&self, file: FileId, cut: Cut) -> Result<(), StoreError> {
        loop {
            let content = self.newest_small(file)?;
            match self.has_room(cut.size) {
                // It may have been moved while room was made.
                Ok(false) => continue,
                Ok(true) | Err(StoreError::NoSpace) => {}
                Err(error) => return Err(error),
            }
            let seqs = Seqs { truncate: content.seqs.truncate.max(cut.seq), write: content.seqs.write };
            let mut content = content.into_vec();
            content.truncate(cut.size as usize);
            guard(&self.central).put_buffer(file, content, seqs, false);
            return Ok(());
        }
    }

    pub(super) fn zero_small(&self, file: FileId, cut: Cut, offset: u64, len: u64) -> Result<(), StoreError> {
        let held = self.small_content(file, cut)?.len as u64;
        if offset >= held || len == 0 {
            return Ok(());
        }
        self.rewrite_small(file, cut, |content| {
            let (from, to) = (offset as usize, (offset + len).min(content.len() as u64) as usize);
            if from < to && to < content.len() {
                content[from..to].fill(0);
            } else {
                // Past the content all is zeros.
                content.truncate(from);
            }
        })
    }

    /// Replaces a file's content by a changed one of at most its length.
    fn rewrite_small(&self, file: FileId, cut: Cut, change: impl Fn(&mut Vec<u8>)) -> Result<(), StoreError> {
        loop {
            let content = self.newest_small(file)?;
            if !self.has_room(content.len as u64)? {
                continue;
            }
            let truncate = content.seqs.truncate.max(cut.seq);
            let mut content = content.cut(cut).into_vec();
            change(&mut content);
            let mut central = guard(&self.central);
            let seqs = Seqs { truncate, write: central.take_write_seq() };
            central.put_buffer(file, content, seqs, false);
            return Ok(());
        }
    }

    /// At replay: installs a journaled content unless the store has it or something newer.
    pub(super) fn redo(
        &self,
        file: FileId,
        truncate_seq: u32,
        write_seq: u64,
        data: &[u8],
    ) -> Result<(), StoreError> {
        let _guard = self.locks.lock(file);
        let redo = Seqs { truncate: truncate_seq, write: write_seq };
        if self.has_blocks_since(file, truncate_seq)? {
            return Ok(());
        }
        self.unlink_blocks(file, |_| true)?;
        match self.make_room(data.len() as u64) {
            // Replay must end on a full disk too. The journal, which has this content, bounds what is
            // buffered beyond the limit, and keeps it until a `SyncAll` finds space.
            Ok(()) | Err(StoreError::NoSpace) => {}
            Err(error) => return Err(error),
        }
        let mut central = guard(&self.central);
        central.next_write_seq = central.next_write_seq.max(write_seq + 1);
        if central.packed_seqs(file).is_none_or(|seqs| seqs < redo) || mutant!("data_redo_always") {
            central.put_buffer(file, data.to_vec(), redo, true);
        }
        Ok(())
    }

    /// The packed form gave way to blocks: nothing of it may come back.
    pub(super) fn bury_packed(&self, file: FileId) {
        let mut central = guard(&self.central);
        central.drop_buffer(file);
        central.bury(file);
    }
}
