//! The 4 KiB header of a segment and where its bytes lie.
//!
//! Absent: the file itself.

use proto::codec::{DecodeError, Reader, Writer};
use proto::ids::{Incarnation, Position, RankId};
use stdx::crc32c;

/// Bytes before the first entry.
pub const HEADER_BYTES: u64 = 4096;
const MAGIC: &[u8; 8] = b"PandoJnl";
const FORMAT: u32 = 1;

/// What a segment says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    pub rank: RankId,
    pub incarnation: Incarnation,
    /// Consecutive, from 1; also the file's name.
    pub sequence: u64,
    /// The position of its first byte.
    pub start: Position,
    /// Where the stream of the segment before it ends; bytes past it are never read.
    pub predecessor_end: Position,
}

impl SegmentHeader {
    /// The file's name in its folder.
    pub(super) fn file_name(&self) -> String {
        format!("{:08x}", self.sequence)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        w.raw(MAGIC).u32(FORMAT).u32(0);
        w.u16(self.rank.0).u64(self.incarnation.0).u64(self.sequence);
        w.u64(self.start.0).u64(self.predecessor_end.0);
        w.0.resize(HEADER_BYTES as usize, 0);
        let crc = crc32c(&w.0[16..]);
        w.patch_u32(12, crc);
        w.0
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        if r.raw(8)? != MAGIC {
            return Err(DecodeError::Invalid { what: "segment header" });
        }
        let (format, crc) = (r.u32()?, r.u32()?);
        if format != FORMAT {
            return Err(DecodeError::TooNew { found: format, supported: FORMAT });
        }
        if bytes.len() < HEADER_BYTES as usize {
            return Err(DecodeError::Truncated { need: HEADER_BYTES as usize, have: bytes.len() });
        }
        if crc32c(r.rest()) != crc {
            return Err(DecodeError::Checksum);
        }
        Ok(Self {
            rank: RankId(r.u16()?),
            incarnation: Incarnation(r.u64()?),
            sequence: r.u64()?,
            start: Position(r.u64()?),
            predecessor_end: Position(r.u64()?),
        })
    }
}

/// A live segment.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub(super) name: String,
    pub(super) header: SegmentHeader,
}

impl Segment {
    /// Where in the file the stream's `position` lies.
    pub(super) const fn offset_of(&self, position: Position) -> u64 {
        HEADER_BYTES + (position.0 - self.header.start.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_flipped_bit_is_found() {
        let header = SegmentHeader {
            rank: RankId(3),
            incarnation: Incarnation(4),
            sequence: 5,
            start: Position(6),
            predecessor_end: Position(6),
        };
        let bytes = header.encode();
        assert_eq!(SegmentHeader::decode(&bytes), Ok(header));
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(SegmentHeader::decode(&bad).is_err(), "bit {bit}");
        }
    }
}
