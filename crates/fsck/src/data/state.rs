//! `data/state` and the index files.
//!
//! Absent: segments.

use super::{FileId, Packed};
use crate::bytes::{Bytes, Out};
use crate::folder::{FsckError, io_error};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use stdx::checksum::crc32c_parts;
use stdx::crc32c;

const STATE: &str = "state";
const STATE_NEW: &str = "state.tmp";
const STATE_MAGIC: &[u8; 8] = b"PANDODST";
const INDEX_MAGIC: &[u8; 8] = b"PANDOIDX";
const FORMAT: u16 = 1;
const INDEX_HEADER_BYTES: usize = 64;
const ENTRY_BYTES: usize = 36;
const CHUNK_ENTRIES: u32 = 1024;
/// Of a block file, where no state tells it.
const BLOCK_BYTES: u64 = 4 << 20;

/// How far one segment is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) id: u32,
    /// Records below are in the index file, or superseded.
    pub(super) covered: u64,
    /// Records below are durable: one that is missing is damage.
    pub(super) synced: u64,
}

/// The state file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) block_bytes: u64,
    /// The index file's number; 0 for none.
    pub(super) index: u32,
    pub(super) entries: u64,
    pub(super) next_segment: u32,
    pub(super) next_write: u64,
    pub(super) marks: Vec<Mark>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            block_bytes: BLOCK_BYTES,
            index: 0,
            entries: 0,
            next_segment: 1,
            next_write: 1,
            marks: Vec::new(),
        }
    }
}

pub(super) enum Read {
    Absent,
    Damaged,
    Good(State),
}

/// Reads the state file.
pub(super) fn read(folder: &Path) -> Result<Read, FsckError> {
    let path = folder.join(STATE);
    match fs::read(&path) {
        Ok(bytes) => Ok(decode(&bytes).map_or(Read::Damaged, Read::Good)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Read::Absent),
        Err(source) => Err(FsckError::Io { path, source }),
    }
}

fn decode(bytes: &[u8]) -> Option<State> {
    let mut b = Bytes(bytes);
    let (magic, crc) = (b.take(8)?, b.u32()?);
    if magic != STATE_MAGIC || crc != crc32c(b.0) || b.u16()? > FORMAT {
        return None;
    }
    let _reserved = b.u16()?;
    let (block_bytes, index, next_segment) = (b.u64()?, b.u32()?, b.u32()?);
    let (entries, next_write, count) = (b.u64()?, b.u64()?, b.u32()?);
    let mut marks = Vec::new();
    for _ in 0..count {
        marks.push(Mark { id: b.u32()?, covered: b.u64()?, synced: b.u64()? });
    }
    let good = b.is_empty() && block_bytes > 0;
    good.then_some(State { block_bytes, index, entries, next_segment, next_write, marks })
}

impl State {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Out::default();
        out.raw(STATE_MAGIC).u32(0).u16(FORMAT).u16(0);
        out.u64(self.block_bytes).u32(self.index).u32(self.next_segment);
        out.u64(self.entries).u64(self.next_write).u32(self.marks.len() as u32);
        for mark in &self.marks {
            out.u32(mark.id).u64(mark.covered).u64(mark.synced);
        }
        let crc = crc32c(&out.0[12..]);
        out.patch_u32(8, crc);
        out.0
    }

    /// Puts it in the place of the old one.
    pub(super) fn write(&self, folder: &Path) -> Result<(), FsckError> {
        crate::folder::write_whole(folder, STATE, STATE_NEW, &self.encode())
    }
}

/// Reads the index file and hands over its entries. The offset of what is wrong, if anything is.
pub(super) fn read_index(
    folder: &Path,
    state: &State,
    take: &mut dyn FnMut(FileId, Packed),
) -> Result<Option<u64>, FsckError> {
    let path = folder.join(format!("index-{:08x}", state.index));
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Some(0)),
        Err(source) => return Err(io_error(&path)(source)),
    };
    let mut header = Out::default();
    header.raw(INDEX_MAGIC).u32(0).u16(FORMAT).u16(0).u32(state.index).u64(state.entries);
    header.0.resize(INDEX_HEADER_BYTES, 0);
    let crc = crc32c(&header.0[12..]);
    header.patch_u32(8, crc);
    if bytes.get(..INDEX_HEADER_BYTES) != Some(&header.0) {
        return Ok(Some(0));
    }
    let mut b = Bytes(&bytes[INDEX_HEADER_BYTES..]);
    let (mut left, mut chunk) = (state.entries, 0);
    while left > 0 {
        let at = (bytes.len() - b.0.len()) as u64;
        let Some(entries) = read_chunk(&mut b, state.index, chunk, left) else { return Ok(Some(at)) };
        left -= (entries.len() / ENTRY_BYTES) as u64;
        chunk += 1;
        for entry in entries.chunks_exact(ENTRY_BYTES) {
            if let Some((file, packed)) = read_entry(entry) {
                take(file, packed);
            }
        }
    }
    Ok(None)
}

fn read_chunk<'a>(b: &mut Bytes<'a>, index: u32, chunk: u32, left: u64) -> Option<&'a [u8]> {
    let (count, crc) = (b.u32()?, b.u32()?);
    if count == 0 || count > CHUNK_ENTRIES || u64::from(count) > left {
        return None;
    }
    let body = b.take(count as usize * ENTRY_BYTES)?;
    let parts = [&index.to_le_bytes()[..], &chunk.to_le_bytes(), &count.to_le_bytes(), body];
    (crc32c_parts(&parts) == crc).then_some(body)
}

fn read_entry(bytes: &[u8]) -> Option<(FileId, Packed)> {
    let mut b = Bytes(bytes);
    let file = (b.u64()?, b.u32()?);
    let seqs = (b.u32()?, b.u64()?);
    Some((file, Packed { seqs, segment: b.u32()?, offset: b.u32()?, len: b.u32()? }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_survives_and_every_flipped_bit_is_seen() {
        let marks = vec![Mark { id: 3, covered: 0, synced: 640 }];
        let state = State { next_segment: 4, next_write: 70, marks, ..State::default() };
        let bytes = state.encode();
        assert_eq!(decode(&bytes), Some(state));
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&bad), None);
        }
    }
}
