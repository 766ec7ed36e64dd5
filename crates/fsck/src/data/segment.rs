//! Segment files: header, records, and walking over them.
//!
//! Absent: which record is live.

use super::{FileId, Seqs};
use crate::bytes::{Bytes, Out};
use stdx::crc32c;

/// Bytes before the first record.
pub(super) const HEADER_BYTES: u64 = 64;
/// Bytes of a record before its body.
const RECORD_HEADER_BYTES: usize = 64;
const SEGMENT_MAGIC: &[u8; 8] = b"PANDOSEG";
const RECORD_MAGIC: &[u8; 4] = b"PREC";
const FORMAT: u16 = 1;
const FLAG_TOMBSTONE: u16 = 1;
const RECORD_BYTES_MAX: u32 = 64 << 20;

/// A record with a good header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) file: FileId,
    pub(super) seqs: Seqs,
    pub(super) tombstone: bool,
    pub(super) len: u32,
    /// The body has its checksum.
    pub(super) intact: bool,
}

pub(super) enum Scanned<'a> {
    Record(&'a Record),
    /// No record starts here although one should.
    Bad,
}

/// The name of a segment in `data/`.
pub(super) fn name(id: u32) -> String {
    format!("seg-{id:08x}")
}

/// The number in such a name.
pub(super) fn parse_name(text: &str) -> Option<u32> {
    let id = u32::from_str_radix(text.strip_prefix("seg-")?, 16).ok()?;
    (name(id) == text).then_some(id)
}

/// The first bytes of segment `id`.
pub(super) fn encode_header(id: u32) -> Vec<u8> {
    let mut out = Out::default();
    out.raw(SEGMENT_MAGIC).u32(0).u16(FORMAT).u16(0).u32(id);
    out.0.resize(HEADER_BYTES as usize, 0);
    let crc = crc32c(&out.0[12..]);
    out.patch_u32(8, crc);
    out.0
}

pub(super) fn is_header(bytes: &[u8], id: u32) -> bool {
    bytes.get(..HEADER_BYTES as usize) == Some(&encode_header(id))
}

fn padded(len: u32) -> usize {
    (len as usize).next_multiple_of(8)
}

/// The record at `offset` of segment `id`, if its header is good and all of it is there.
pub(super) fn record_at(id: u32, segment: &[u8], offset: u64) -> Option<Record> {
    let bytes = segment.get(usize::try_from(offset).ok()?..)?;
    let mut b = Bytes(bytes);
    let (magic, crc) = (b.take(4)?, b.u32()?);
    if magic != RECORD_MAGIC || crc32c(bytes.get(8..RECORD_HEADER_BYTES)?) != crc {
        return None;
    }
    let file = (b.u64()?, b.u32()?);
    let (flags, format) = (b.u16()?, b.u16()?);
    let _block = b.u32()?;
    let seqs = (b.u32()?, b.u64()?);
    let (len, body_crc) = (b.u32()?, b.u32()?);
    let _snap = b.u64()?;
    let place = (b.u32()?, b.u32()?);
    if format > FORMAT || len > RECORD_BYTES_MAX || (u64::from(place.1), place.0) != (offset, id) {
        return None;
    }
    let body = bytes.get(RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + padded(len))?;
    let tombstone = flags & FLAG_TOMBSTONE != 0;
    Some(Record { file, seqs, tombstone, len, intact: crc32c(body) == body_crc })
}

/// Walks the records from `from` on, past bad places as long as `visit` wants to go on. Returns where
/// it stopped.
pub(super) fn scan(
    id: u32,
    segment: &[u8],
    from: u64,
    mut visit: impl FnMut(u64, Scanned<'_>) -> bool,
) -> u64 {
    let (mut at, mut lost) = (from.max(HEADER_BYTES), false);
    while at < segment.len() as u64 {
        let Some(record) = record_at(id, segment, at) else {
            // Only the first place of a bad stretch is told; records start at multiples of 8.
            if !lost && !visit(at, Scanned::Bad) {
                return at;
            }
            lost = true;
            at += 8;
            continue;
        };
        lost = false;
        if !visit(at, Scanned::Record(&record)) {
            return at;
        }
        at += (RECORD_HEADER_BYTES + padded(record.len)) as u64;
    }
    segment.len() as u64
}

/// Where the last record of a segment ends.
pub(super) fn last_end(id: u32, segment: &[u8]) -> u64 {
    let mut end = 0;
    scan(id, segment, 0, |at, scanned| {
        if let Scanned::Record(record) = scanned {
            end = at + (RECORD_HEADER_BYTES + padded(record.len)) as u64;
        }
        true
    });
    end
}

/// Appends a record that is to lie at `offset` of segment `id`; without a body it is a tombstone.
pub(super) fn encode_record(
    id: u32,
    offset: u64,
    (file, seqs): (FileId, Seqs),
    body: Option<&[u8]>,
    out: &mut Out,
) {
    let at = out.0.len();
    let data = body.unwrap_or_default();
    let mut padded_body = data.to_vec();
    padded_body.resize(padded(data.len() as u32), 0);
    out.raw(RECORD_MAGIC).u32(0).u64(file.0).u32(file.1);
    out.u16(if body.is_none() { FLAG_TOMBSTONE } else { 0 }).u16(FORMAT);
    out.u32(0).u32(seqs.0).u64(seqs.1);
    out.u32(data.len() as u32).u32(crc32c(&padded_body));
    out.u64(0).u32(id).u32(offset as u32);
    let crc = crc32c(&out.0[at + 8..]);
    out.patch_u32(at + 4, crc);
    out.raw(&padded_body);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_found_again_and_a_torn_one_ends_the_walk() {
        let mut out = Out(encode_header(9));
        for (ino, body) in [(5000, Some(&b"hello"[..])), (5001, None), (5002, Some(b""))] {
            let offset = out.0.len() as u64;
            encode_record(9, offset, ((ino, 1), (2, 3)), body, &mut out);
        }
        assert!(is_header(&out.0, 9) && !is_header(&out.0, 8));
        let mut seen = Vec::new();
        let end = scan(9, &out.0, 0, |_, scanned| {
            let Scanned::Record(record) = scanned else { return false };
            assert!(record.intact);
            seen.push((record.file.0, record.tombstone, record.len));
            true
        });
        assert_eq!(seen, [(5000, false, 5), (5001, true, 0), (5002, false, 0)]);
        assert_eq!((end, last_end(9, &out.0)), (out.0.len() as u64, end));
        assert_eq!(record_at(8, &out.0, HEADER_BYTES), None);
        let torn = &out.0[..out.0.len() - 1];
        assert_eq!(scan(9, torn, 0, |_, scanned| matches!(scanned, Scanned::Record(_))), end - 64);
    }
}
