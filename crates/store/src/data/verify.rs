//! Looking at everything: counts, objects, checksums.
//!
//! Absent: repair, and any knowledge of which inodes exist.

use super::DataFiles;
use super::index::{Entry, TABLES};
use super::locks::guard;
use super::record::{
    RECORD_HEADER_BYTES, RecordHeader, SEGMENT_HEADER_BYTES, is_segment_header, record_bytes, segment_name,
};
use super::recover::Damage;
use crate::disk::{Disk, DiskFile};
use proto::FileId;
use proto::storeio::{Cut, StoreError};
use std::collections::BTreeMap;

const WINDOW_BYTES: u64 = 1 << 20;

/// What walking a segment meets.
pub(super) enum Walked<'a> {
    /// `intact`: the body has its checksum.
    Record { header: RecordHeader, body: &'a [u8], intact: bool },
    /// No record starts here although one should.
    Bad,
}

/// Reads a segment's records in order from `from` to `to`, past bad places as long as `visit` wants to
/// go on. Returns where it stopped.
pub(super) fn walk<F: DiskFile>(
    file: &F,
    segment: u32,
    from: u64,
    to: u64,
    visit: &mut dyn FnMut(u64, Walked<'_>) -> bool,
) -> Result<u64, StoreError> {
    let mut range = BufferedRange { file, to, bytes: Vec::new(), start: from };
    let (mut at, mut lost) = (from, false);
    while at < to {
        let header = RecordHeader::decode(range.at(at, RECORD_HEADER_BYTES)?).ok();
        let header = header.filter(|header| header.is_at(segment, at) && at + record_bytes(header.len) <= to);
        let Some(header) = header else {
            // Only the first place of a bad stretch is told; records start at multiples of 8.
            if !lost && !visit(at, Walked::Bad) {
                return Ok(at);
            }
            lost = true;
            at += 8;
            continue;
        };
        lost = false;
        let bytes = record_bytes(header.len);
        let record = range.at(at, bytes)?;
        let padded = record.get(RECORD_HEADER_BYTES as usize..).unwrap_or_default();
        let intact = header.has_body(padded);
        let body = padded.get(..header.len as usize).unwrap_or_default();
        if !visit(at, Walked::Record { header, body, intact }) {
            return Ok(at);
        }
        at += bytes;
    }
    Ok(to)
}

/// A piece of a file that moves on.
struct BufferedRange<'a, F> {
    file: &'a F,
    to: u64,
    bytes: Vec<u8>,
    start: u64,
}

impl<F: DiskFile> BufferedRange<'_, F> {
    /// Up to `len` bytes at `at`; fewer at the end.
    fn at(&mut self, at: u64, len: u64) -> Result<&[u8], StoreError> {
        let end = (at + len).min(self.to);
        if at < self.start || end > self.start + self.bytes.len() as u64 {
            self.bytes.resize(len.max(WINDOW_BYTES).min(self.to - at) as usize, 0);
            let count = self.file.read_at(&mut self.bytes, at)?;
            self.bytes.truncate(count);
            self.start = at;
        }
        let from = (at - self.start) as usize;
        let to = ((end - self.start) as usize).min(self.bytes.len());
        Ok(self.bytes.get(from..to).unwrap_or_default())
    }
}

/// Counts of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataStats {
    pub packed_files: u64,
    pub large_files: u64,
    pub blocks: u64,
    pub segments: u64,
    pub segment_bytes: u64,
    pub live_bytes: u64,
    pub dead_bytes: u64,
    /// Memory of content that is in no segment yet.
    pub buffered_bytes: u64,
}

/// One file's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectInfo {
    pub file: FileId,
    /// Bytes up to the end of the last data.
    pub size: u64,
    pub packed: bool,
}

/// What a verification looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    pub records: u64,
    pub record_bytes: u64,
    pub blocks: u64,
    pub damages: u64,
}

impl<D: Disk> DataFiles<D> {
    /// Counts, from memory.
    pub fn stats(&self) -> DataStats {
        let central = guard(&self.central);
        let unindexed = central.buffers().filter(|(file, _)| central.index.get(*file).is_none()).count();
        let mut stats = DataStats {
            packed_files: (central.index.len() + unindexed) as u64,
            large_files: central.large.len() as u64,
            blocks: central.large.values().map(|large| large.blocks.len() as u64).sum(),
            segments: central.segments.len() as u64,
            buffered_bytes: central.buffered_bytes(),
            ..DataStats::default()
        };
        for segment in central.segments.values() {
            stats.segment_bytes += segment.end;
            stats.live_bytes += segment.live;
        }
        stats.dead_bytes = stats.segment_bytes - stats.live_bytes;
        stats
    }

    /// Every file that has data, once, in no order. Files that change meanwhile are seen as before or
    /// after.
    ///
    /// # Errors
    /// `Io` and `Damaged` of block headers.
    pub fn objects(&self, visit: &mut dyn FnMut(ObjectInfo)) -> Result<(), StoreError> {
        for table in 0..TABLES {
            let (entries, buffered): (Vec<Entry>, BTreeMap<FileId, u64>) = {
                let central = guard(&self.central);
                let entries: Vec<Entry> = central.index.entries(table).collect();
                let buffered = entries
                    .iter()
                    .filter_map(|entry| Some((entry.file, central.buffer(entry.file)?.data.len() as u64)));
                let buffered = buffered.collect();
                (entries, buffered)
            };
            for entry in entries {
                let size = buffered.get(&entry.file).copied().unwrap_or(u64::from(entry.place.len));
                visit(ObjectInfo { file: entry.file, size, packed: true });
            }
        }
        let (fresh, large): (Vec<(FileId, u64)>, Vec<FileId>) = {
            let central = guard(&self.central);
            let fresh = central.buffers().filter(|(file, _)| central.index.get(*file).is_none());
            let fresh = fresh.map(|(file, buffer)| (file, buffer.data.len() as u64)).collect();
            (fresh, central.large.keys().copied().collect())
        };
        for (file, size) in fresh {
            visit(ObjectInfo { file, size, packed: true });
        }
        for file in large {
            if let Some(size) = self.large_size(file)? {
                visit(ObjectInfo { file, size, packed: false });
            }
        }
        Ok(())
    }

    fn large_size(&self, file: FileId) -> Result<Option<u64>, StoreError> {
        let _guard = self.locks.lock(file);
        let last =
            guard(&self.central).large.get(&file).and_then(|large| large.blocks.keys().next_back().copied());
        let Some(last) = last else { return Ok(None) };
        let len = self.readable_block(file, last, Cut::default())?.map_or(0, |block| block.len);
        Ok(Some(last * self.limits.block_bytes + len))
    }

    /// Reads every record and every block header and reports what is not as it was written. Records in
    /// buffers are not on the disk and not looked at.
    ///
    /// # Errors
    /// `Io`: the disk cannot be read.
    pub fn verify(&self, report: &mut dyn FnMut(Damage)) -> Result<Verified, StoreError> {
        let mut verified = Verified::default();
        let mut report = |name: String, offset: u64, what: &'static str, verified: &mut Verified| {
            verified.damages += 1;
            report(Damage { name, offset, what });
        };
        let segments: Vec<(u32, u64)> =
            guard(&self.central).segments.iter().map(|(id, segment)| (*id, segment.end)).collect();
        for (id, end) in segments {
            let Some(file) = self.segment_file(id)? else {
                // Compaction may have deleted it meanwhile.
                if guard(&self.central).segments.contains_key(&id) {
                    report(segment_name(id), 0, "segment is missing", &mut verified);
                }
                continue;
            };
            let mut header = [0; SEGMENT_HEADER_BYTES as usize];
            let count = file.read_at(&mut header, 0)?;
            if end > 0 && !is_segment_header(&header[..count], id) {
                report(segment_name(id), 0, "checksum mismatch", &mut verified);
            }
            walk(&*file, id, SEGMENT_HEADER_BYTES, end, &mut |offset, walked| {
                verified.records += 1;
                match walked {
                    Walked::Record { header, intact: true, .. } => {
                        verified.record_bytes += record_bytes(header.len);
                    }
                    Walked::Record { .. } | Walked::Bad => {
                        report(segment_name(id), offset, "checksum mismatch", &mut verified);
                    }
                }
                true
            })?;
        }
        let files: Vec<FileId> = guard(&self.central).large.keys().copied().collect();
        for file in files {
            self.verify_blocks(file, &mut verified, &mut report)?;
        }
        Ok(verified)
    }

    fn verify_blocks(
        &self,
        file: FileId,
        verified: &mut Verified,
        report: &mut dyn FnMut(String, u64, &'static str, &mut Verified),
    ) -> Result<(), StoreError> {
        let _guard = self.locks.lock(file);
        let blocks: Vec<u64> = match guard(&self.central).large.get(&file) {
            Some(large) => large.blocks.keys().copied().collect(),
            None => return Ok(()),
        };
        for block in blocks {
            verified.blocks += 1;
            match self.readable_block(file, block, Cut::default()) {
                Ok(_) => {}
                Err(StoreError::Damaged { .. }) => {
                    report(super::blocks::block_name(file, block), 0, "checksum mismatch", verified);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
