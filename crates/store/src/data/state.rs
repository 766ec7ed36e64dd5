//! `data/state` and the index files as bytes. The state file says what is durable: which segments
//! there are, how far each is synced, how far the index file covers it.
//!
//! Absent: reading and writing the files (`recover`, `checkpoint`).

use super::index::{Entry, Place};
use super::record::{SEGMENT_ID_MAX, Seqs, parse_hex8};
use proto::codec::{DecodeError, Reader, Writer};
use proto::{FileId, Ino};
use stdx::checksum::crc32c_parts;
use stdx::crc32c;

/// The state file.
pub(super) const STATE_NAME: &str = "data/state";
/// It is written under this name and renamed.
pub(super) const STATE_TEMPORARY: &str = "data/state.tmp";
/// Bytes before the first chunk of an index file.
pub(super) const INDEX_HEADER_BYTES: usize = 64;
/// Bytes of a chunk before its entries.
pub(super) const CHUNK_HEADER_BYTES: usize = 8;
/// Bytes of an entry.
pub(super) const ENTRY_BYTES: usize = 36;
/// Entries of one chunk at most.
pub(super) const CHUNK_ENTRIES: usize = 1024;

const STATE_MAGIC: u64 = u64::from_le_bytes(*b"PANDODST");
const INDEX_MAGIC: u64 = u64::from_le_bytes(*b"PANDOIDX");
const FORMAT: u16 = 1;
const SEGMENTS_MAX: usize = 1 << 24;

/// How far one segment is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentMark {
    pub(super) id: u32,
    /// Records below are in the index file, or superseded.
    pub(super) covered: u64,
    /// Records below are durable: one that is missing is damage.
    pub(super) synced: u64,
}

/// The content of the state file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    pub(super) block_bytes: u64,
    /// The index file's number; 0 for none.
    pub(super) index: u32,
    pub(super) index_entries: u64,
    /// Segments with higher or equal ids were made later; lower ones that are not listed are dead.
    pub(super) next_segment: u32,
    pub(super) next_write_seq: u64,
    pub(super) segments: Vec<SegmentMark>,
}

impl State {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        w.u64(STATE_MAGIC).u32(0).u16(FORMAT).u16(0);
        w.u64(self.block_bytes).u32(self.index).u32(self.next_segment);
        w.u64(self.index_entries).u64(self.next_write_seq).u32(self.segments.len() as u32);
        for mark in &self.segments {
            w.u32(mark.id).u64(mark.covered).u64(mark.synced);
        }
        let crc = crc32c(&w.0[12..]);
        w.patch_u32(8, crc);
        w.0
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let (magic, crc) = (r.u64()?, r.u32()?);
        if magic != STATE_MAGIC || crc != crc32c(r.rest()) {
            return Err(DecodeError::Checksum);
        }
        check_format(r.u16()?)?;
        let _reserved = r.u16()?;
        let mut state = Self { block_bytes: r.u64()?, index: r.u32()?, ..Self::default() };
        state.next_segment = r.u32()?;
        state.index_entries = r.u64()?;
        state.next_write_seq = r.u64()?;
        let count = r.u32()? as usize;
        if count > SEGMENTS_MAX {
            return Err(DecodeError::TooLong { what: "segment list", len: count as u64 });
        }
        for _ in 0..count {
            state.segments.push(SegmentMark { id: r.u32()?, covered: r.u64()?, synced: r.u64()? });
        }
        r.finish()?;
        let numbers = state.segments.iter().map(|mark| mark.id).chain([state.next_segment]);
        if numbers.max() > Some(SEGMENT_ID_MAX) {
            return Err(DecodeError::Invalid { what: "segment number" });
        }
        Ok(state)
    }
}

fn check_format(found: u16) -> Result<(), DecodeError> {
    if found > FORMAT {
        return Err(DecodeError::TooNew { found: u32::from(found), supported: u32::from(FORMAT) });
    }
    Ok(())
}

/// The name of an index file.
pub(super) fn index_name(number: u32) -> String {
    format!("data/index-{number:08x}")
}

/// The number in a file name `index-<8 hex>`.
pub(super) fn parse_index_name(name: &str) -> Option<u32> {
    parse_hex8(name.strip_prefix("index-")?)
}

/// The start of an index file.
pub(super) fn encode_index_header(number: u32, entries: u64) -> Vec<u8> {
    let mut w = Writer::new();
    w.u64(INDEX_MAGIC).u32(0).u16(FORMAT).u16(0).u32(number).u64(entries);
    w.0.resize(INDEX_HEADER_BYTES, 0);
    let crc = crc32c(&w.0[12..]);
    w.patch_u32(8, crc);
    w.0
}

/// Appends one chunk: count, crc over (file number, chunk number, count, entries), entries.
pub(super) fn encode_chunk(number: u32, chunk: u32, entries: &[Entry], out: &mut Vec<u8>) {
    let at = out.len();
    let mut w = Writer(std::mem::take(out));
    w.u32(entries.len() as u32).u32(0);
    for entry in entries {
        w.u64(entry.file.ino.0).u32(entry.file.generation).u32(entry.seqs.truncate).u64(entry.seqs.write);
        w.u32(entry.place.segment).u32(entry.place.offset).u32(entry.place.len);
    }
    let crc = chunk_crc(number, chunk, entries.len() as u32, &w.0[at + CHUNK_HEADER_BYTES..]);
    w.patch_u32(at + 4, crc);
    *out = w.0;
}

/// Reads one chunk's entries from `body` after its header's count and crc.
pub(super) fn decode_chunk(
    number: u32,
    chunk: u32,
    (count, crc): (u32, u32),
    body: &[u8],
) -> Result<Vec<Entry>, DecodeError> {
    if crc != chunk_crc(number, chunk, count, body) {
        return Err(DecodeError::Checksum);
    }
    let mut r = Reader::new(body);
    let mut entries = Vec::with_capacity(body.len() / ENTRY_BYTES);
    while !r.is_empty() {
        let file = FileId { ino: Ino(r.u64()?), generation: r.u32()? };
        let seqs = Seqs { truncate: r.u32()?, write: r.u64()? };
        let place = Place { segment: r.u32()?, offset: r.u32()?, len: r.u32()? };
        entries.push(Entry { file, seqs, place });
    }
    Ok(entries)
}

fn chunk_crc(number: u32, chunk: u32, count: u32, body: &[u8]) -> u32 {
    crc32c_parts(&[&number.to_le_bytes(), &chunk.to_le_bytes(), &count.to_le_bytes(), body])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_survives_and_every_flipped_bit_and_cut_is_seen() {
        let marks = [1, 9].map(|id| SegmentMark { id, covered: 64, synced: 128 });
        let state = State {
            block_bytes: 4 << 20,
            index: 3,
            index_entries: 70,
            next_segment: 10,
            next_write_seq: 99,
            segments: marks.to_vec(),
        };
        let bytes = state.encode();
        assert_eq!(State::decode(&bytes), Ok(state));
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(State::decode(&bad).is_err());
        }
        assert!((0..bytes.len()).all(|len| State::decode(&bytes[..len]).is_err()));
    }

    #[test]
    fn a_chunk_belongs_to_its_place_in_its_file() {
        let place = Place { segment: 1, offset: 64, len: 5 };
        let file = FileId { ino: Ino(4097), generation: 1 };
        let entries = [Entry { file, seqs: Seqs { truncate: 1, write: 2 }, place }];
        let mut bytes = Vec::new();
        encode_chunk(7, 3, &entries, &mut bytes);
        let (head, body) = bytes.split_at(CHUNK_HEADER_BYTES);
        let mut r = Reader::new(head);
        let head = (r.u32().unwrap_or(0), r.u32().unwrap_or(0));
        assert_eq!(decode_chunk(7, 3, head, body), Ok(entries.to_vec()));
        assert!(decode_chunk(7, 2, head, body).is_err() && decode_chunk(6, 3, head, body).is_err());
    }
}
