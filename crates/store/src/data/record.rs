//! Segment files as bytes: a 64-byte file header, then records of a 64-byte header and a body padded
//! to 8 bytes. A record says whose it is, how new it is and where it was written, so that segments
//! alone rebuild the index and no reader can take one file's bytes for another's.
//!
//! Absent: which record is live; that is the index.

use proto::codec::{DecodeError, Reader, Writer};
use proto::{FileId, Ino};
use stdx::checksum::crc32c_parts;
use stdx::crc32c;

/// Bytes before the first record of a segment.
pub(super) const SEGMENT_HEADER_BYTES: u64 = 64;
/// Bytes of a record before its body; a tombstone has no more.
pub(super) const RECORD_HEADER_BYTES: u64 = 64;

const SEGMENT_MAGIC: u64 = u64::from_le_bytes(*b"PANDOSEG");
const RECORD_MAGIC: u32 = u32::from_le_bytes(*b"PREC");
const FORMAT: u16 = 1;
const FLAG_TOMBSTONE: u16 = 1;

/// How new an object's content is: the higher one wins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Seqs {
    pub(super) truncate: u32,
    pub(super) write: u64,
}

/// The fixed part of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordHeader {
    pub(super) file: FileId,
    pub(super) seqs: Seqs,
    pub(super) tombstone: bool,
    /// Bytes of the body without padding.
    pub(super) len: u32,
    /// Over the body with its padding.
    pub(super) body_crc: u32,
    /// Where the record was written: a record found elsewhere is none.
    pub(super) segment: u32,
    pub(super) offset: u32,
}

/// Bytes a record with a body of `len` takes in its segment.
pub(super) const fn record_bytes(len: u32) -> u64 {
    RECORD_HEADER_BYTES + (len as u64).next_multiple_of(8)
}

impl RecordHeader {
    /// Appends header, body and padding.
    pub(super) fn encode(&self, body: &[u8], out: &mut Vec<u8>) {
        debug_assert_eq!(body.len(), self.len as usize);
        let at = out.len();
        let mut w = Writer(std::mem::take(out));
        w.u32(RECORD_MAGIC).u32(0);
        w.u64(self.file.ino.0).u32(self.file.generation);
        w.u16(if self.tombstone { FLAG_TOMBSTONE } else { 0 }).u16(FORMAT);
        w.u32(0).u32(self.seqs.truncate).u64(self.seqs.write);
        w.u32(self.len).u32(self.body_crc);
        w.u64(0).u32(self.segment).u32(self.offset);
        let crc = crc32c(&w.0[at + 8..]);
        w.patch_u32(at + 4, crc);
        w.raw(body);
        let end = at + record_bytes(self.len) as usize;
        w.0.resize(end, 0);
        *out = w.0;
    }

    /// The checksum of a body.
    pub(super) fn body_crc(body: &[u8]) -> u32 {
        let padding = body.len().next_multiple_of(8) - body.len();
        crc32c_parts(&[body, &[0; 8][..padding]])
    }

    /// Whether these are the body and padding of this header.
    pub(super) fn has_body(&self, padded: &[u8]) -> bool {
        padded.len() == (self.len as usize).next_multiple_of(8) && self.body_crc == crc32c(padded)
    }

    /// Reads a header; the body is not looked at.
    ///
    /// # Errors
    /// `DecodeError` when these are not the bytes of a header.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let magic = r.u32()?;
        let crc = r.u32()?;
        let covered = Reader::new(r.rest()).raw(RECORD_HEADER_BYTES as usize - 8)?;
        if magic != RECORD_MAGIC || crc != crc32c(covered) {
            return Err(DecodeError::Checksum);
        }
        let file = FileId { ino: Ino(r.u64()?), generation: r.u32()? };
        let flags = r.u16()?;
        let format = r.u16()?;
        if format > FORMAT {
            return Err(DecodeError::TooNew { found: u32::from(format), supported: u32::from(FORMAT) });
        }
        let _block = r.u32()?;
        let seqs = Seqs { truncate: r.u32()?, write: r.u64()? };
        let (len, body_crc) = (r.u32()?, r.u32()?);
        let _snap = r.u64()?;
        let (segment, offset) = (r.u32()?, r.u32()?);
        if u64::from(len) > (64 << 20) {
            return Err(DecodeError::TooLong { what: "record", len: u64::from(len) });
        }
        let tombstone = flags & FLAG_TOMBSTONE != 0;
        Ok(Self { file, seqs, tombstone, len, body_crc, segment, offset })
    }

    /// Whether the header was written at this place.
    pub(super) const fn is_at(&self, segment: u32, offset: u64) -> bool {
        self.segment == segment && self.offset as u64 == offset
    }
}

/// The 64 bytes at the start of segment `id`.
pub(super) fn encode_segment_header(id: u32) -> Vec<u8> {
    let mut w = Writer::new();
    w.u64(SEGMENT_MAGIC).u32(0).u16(FORMAT).u16(0).u32(id);
    w.0.resize(SEGMENT_HEADER_BYTES as usize, 0);
    let crc = crc32c(&w.0[12..]);
    w.patch_u32(8, crc);
    w.0
}

/// Whether `bytes` start a segment with this id.
pub(super) fn is_segment_header(bytes: &[u8], id: u32) -> bool {
    bytes.len() >= SEGMENT_HEADER_BYTES as usize
        && bytes[..SEGMENT_HEADER_BYTES as usize] == encode_segment_header(id)
}

/// The name of a segment.
pub(super) fn segment_name(id: u32) -> String {
    format!("data/seg-{id:08x}")
}

/// The id in a file name `seg-<8 hex>`.
pub(super) fn parse_segment_name(name: &str) -> Option<u32> {
    parse_hex8(name.strip_prefix("seg-")?).filter(|id| *id <= SEGMENT_ID_MAX)
}

/// The highest segment number there can be: 2^31 segments of 64 MiB are 128 PiB ever written. Higher ones are
/// not ours, and numbers can be counted on without overflow.
pub(super) const SEGMENT_ID_MAX: u32 = 1 << 31;

/// Exactly eight lower-case hex digits.
pub(super) fn parse_hex8(digits: &str) -> Option<u32> {
    let plain = digits.len() == 8 && digits.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    plain.then(|| u32::from_str_radix(digits, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> RecordHeader {
        RecordHeader {
            file: FileId { ino: Ino(4097), generation: 3 },
            seqs: Seqs { truncate: 1, write: 9 },
            tombstone: false,
            len: 5,
            body_crc: RecordHeader::body_crc(b"hello"),
            segment: 7,
            offset: 64,
        }
    }

    #[test]
    fn a_header_survives_and_every_flipped_bit_is_seen() {
        let mut bytes = Vec::new();
        sample().encode(b"hello", &mut bytes);
        assert_eq!(bytes.len() as u64, record_bytes(5));
        assert_eq!(RecordHeader::decode(&bytes), Ok(sample()));
        assert!(sample().has_body(&bytes[64..]));
        bytes[71] ^= 1;
        assert!(!sample().has_body(&bytes[64..]));
        bytes[71] ^= 1;
        for bit in 0..RECORD_HEADER_BYTES * 8 {
            let mut bad = bytes.clone();
            bad[bit as usize / 8] ^= 1 << (bit % 8);
            assert!(RecordHeader::decode(&bad).is_err());
        }
        for len in 0..RECORD_HEADER_BYTES as usize {
            assert!(RecordHeader::decode(&bytes[..len]).is_err());
        }
    }

    #[test]
    fn names_are_strict() {
        assert_eq!(parse_segment_name("seg-0000001f"), Some(31));
        for name in ["seg-1f", "seg-0000001F", "seg-+000001f", "index-00000001"] {
            assert_eq!(parse_segment_name(name), None);
        }
    }
}
