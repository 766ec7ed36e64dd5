//! Segment files: the header, and where a position's bytes lie.
//!
//! Absent: entries.

use crate::bytes::{Bytes, Out};
use crate::journal::entry::Entry;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use stdx::crc32c;

/// Bytes before the first entry.
pub(super) const HEADER_BYTES: u64 = 4096;
const MAGIC: &[u8; 8] = b"PandoJnl";
const FORMAT: u32 = 1;
/// The longest entry.
const ENTRY_BYTES_MAX: usize = 4 << 20;

/// A segment whose place in the stream is known.
pub(super) struct Segment {
    pub(super) path: PathBuf,
    /// Below the folder that holds `journal/`.
    pub(super) name: String,
    pub(super) sequence: u64,
    pub(super) start: u64,
}

/// What a header says.
pub(super) struct Header {
    rank: u16,
    pub(super) incarnation: u64,
    sequence: u64,
    pub(super) start: u64,
    predecessor_end: u64,
}

impl Header {
    /// Whether the header is one that this segment can have.
    pub(super) fn fits(&self, rank: u16, sequence: u64, incarnation: Option<u64>) -> bool {
        self.rank == rank
            && self.sequence == sequence
            && self.start == self.predecessor_end
            && incarnation.is_none_or(|newest| self.incarnation <= newest)
    }
}

impl Segment {
    /// The stream's bytes from `from` to a stated end, or all there are.
    pub(super) fn read(&self, from: u64, stated: Option<u64>) -> io::Result<Vec<u8>> {
        let file = File::open(&self.path)?;
        let offset = HEADER_BYTES.saturating_add(from.saturating_sub(self.start));
        let there = file.metadata()?.len().saturating_sub(offset);
        let wanted = stated.map_or(there, |end| there.min(end.saturating_sub(from)));
        let mut bytes = vec![0; wanted as usize];
        file.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }

    /// File and offset of a position.
    pub(super) fn place(&self, position: u64) -> String {
        format!("{} at {:#x}", self.name, HEADER_BYTES + position.saturating_sub(self.start))
    }
}

/// A file's header, if it is one, and the file's length.
pub(super) fn read_header(path: &Path) -> io::Result<(Option<Header>, u64)> {
    let file = File::open(path)?;
    let len = file.metadata()?.len();
    let mut bytes = vec![0; HEADER_BYTES.min(len) as usize];
    file.read_exact_at(&mut bytes, 0)?;
    Ok((decode_header(&bytes), len))
}

fn decode_header(bytes: &[u8]) -> Option<Header> {
    let mut b = Bytes(bytes);
    let (magic, format, crc) = (b.take(8)?, b.u32()?, b.u32()?);
    if magic != MAGIC || format != FORMAT || bytes.len() < HEADER_BYTES as usize || crc32c(b.0) != crc {
        return None;
    }
    Some(Header {
        rank: b.u16()?,
        incarnation: b.u64()?,
        sequence: b.u64()?,
        start: b.u64()?,
        predecessor_end: b.u64()?,
    })
}

/// The header of a segment that starts where its predecessor ended.
pub(super) fn encode_header(rank: u16, incarnation: u64, sequence: u64, start: u64) -> Vec<u8> {
    let mut out = Out::default();
    out.raw(MAGIC).u32(FORMAT).u32(0);
    out.u16(rank).u64(incarnation).u64(sequence).u64(start).u64(start);
    out.0.resize(HEADER_BYTES as usize, 0);
    let crc = crc32c(&out.0[16..]);
    out.patch_u32(12, crc);
    out.0
}

/// The start of a segment without a header, as its first entry tells it.
pub(super) fn start_by_entry(path: &Path) -> io::Result<Option<u64>> {
    let file = File::open(path)?;
    let there = file.metadata()?.len().saturating_sub(HEADER_BYTES);
    let mut bytes = vec![0; there.min(ENTRY_BYTES_MAX as u64) as usize];
    file.read_exact_at(&mut bytes, HEADER_BYTES)?;
    let stated = bytes.get(8..16).and_then(|b| Bytes(b).u64());
    Ok(stated.filter(|start| Entry::read(&bytes, *start).is_some()))
}
