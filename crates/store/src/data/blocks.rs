//! Block files: `data/blk/<2 hex>/<ino hex>.<generation hex>.<block hex>`, a header page of 4 KiB and
//! the data after it, sparse.
//!
//! Absent: a checksum of the data; a header tells whose block it is and which truncation it has seen.

use proto::codec::{Reader, Writer};
use proto::{FileId, Ino};
use stdx::crc32c;
use stdx::hash::mix64;

/// Bytes before the data, so that data keeps the alignment of the device.
pub(super) const BLOCK_HEADER_BYTES: u64 = 4096;
/// Bytes of the header page that mean something.
pub(super) const HEADER_USED: usize = 40;

const MAGIC: u64 = u64::from_le_bytes(*b"PANDOBLK");
const FORMAT: u16 = 1;

/// What a header page says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockHeader {
    /// Never synced: the block was made shortly before a crash and holds nothing that counts.
    Blank,
    Valid {
        truncate_seq: u32,
    },
    /// Damage, or another block's header.
    Wrong,
}

/// The bytes a header page starts with.
pub(super) fn encode_header(file: FileId, block: u64, truncate_seq: u32) -> [u8; HEADER_USED] {
    let mut w = Writer::new();
    w.u64(MAGIC).u32(0).u16(FORMAT).u16(0);
    w.u64(file.ino.0).u32(file.generation).u32(truncate_seq).u64(block);
    let crc = crc32c(&w.0[12..]);
    w.patch_u32(8, crc);
    let mut bytes = [0; HEADER_USED];
    bytes.copy_from_slice(&w.0);
    bytes
}

/// Reads the start of a header page (shorter at the end of a file).
pub(super) fn decode_header(bytes: &[u8], file: FileId, block: u64) -> BlockHeader {
    if bytes.iter().all(|byte| *byte == 0) {
        return BlockHeader::Blank;
    }
    let mut r = Reader::new(bytes);
    let Ok(truncate_seq) = r.raw(28).and_then(|_| r.u32()) else { return BlockHeader::Wrong };
    if bytes.get(..HEADER_USED) == Some(&encode_header(file, block, truncate_seq)[..]) {
        BlockHeader::Valid { truncate_seq }
    } else {
        BlockHeader::Wrong
    }
}

/// The folder of a file's blocks, of 256.
pub(super) const fn folder_of(file: FileId) -> u8 {
    (mix64(file.ino.0) & 0xFF) as u8
}

/// The name of that folder.
pub(super) fn folder_name(folder: u8) -> String {
    format!("data/blk/{folder:02x}")
}

/// The name of a block file.
pub(super) fn block_name(file: FileId, block: u64) -> String {
    let folder = folder_of(file);
    format!("data/blk/{folder:02x}/{:016x}.{:x}.{block:x}", file.ino.0, file.generation)
}

/// What a name in a block folder means.
pub(super) fn parse_block_name(folder: u8, name: &str) -> Option<(FileId, u64)> {
    let mut parts = name.split('.');
    let ino = Ino(u64::from_str_radix(parts.next()?, 16).ok()?);
    let generation = u32::from_str_radix(parts.next()?, 16).ok()?;
    let block = u64::from_str_radix(parts.next()?, 16).ok()?;
    let file = FileId { ino, generation };
    let exact = block_name(file, block).strip_prefix(&folder_name(folder)) == Some(&format!("/{name}"));
    exact.then_some((file, block))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileId = FileId { ino: Ino(4097), generation: 18 };

    #[test]
    fn a_header_is_of_one_block_only() {
        let bytes = encode_header(FILE, 7, 3);
        assert_eq!(decode_header(&bytes, FILE, 7), BlockHeader::Valid { truncate_seq: 3 });
        assert_eq!(decode_header(&bytes, FILE, 8), BlockHeader::Wrong);
        assert_eq!(decode_header(&[0; HEADER_USED], FILE, 7), BlockHeader::Blank);
        for bit in 0..HEADER_USED * 8 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode_header(&bad, FILE, 7), BlockHeader::Wrong);
        }
    }

    #[test]
    fn names_are_read_as_written_and_nothing_else_is() {
        let name = block_name(FILE, 31);
        let folder = folder_of(FILE);
        let last = name.rsplit('/').next().unwrap_or_default();
        assert_eq!(parse_block_name(folder, last), Some((FILE, 31)));
        assert_eq!(parse_block_name(folder.wrapping_add(1), last), None);
        for bad in ["", "x", "0000000000001001.12.1f.tmp", "1001.12.1f", "0000000000001001.12.1F"] {
            assert_eq!(parse_block_name(folder, bad), None);
        }
    }
}
