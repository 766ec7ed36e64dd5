//! Block files: `data/blk/<2 hex>/<ino hex>.<generation hex>.<block hex>`, a header page of 4 KiB and
//! the data after it, sparse.
//!
//! The header is there twice, in two sectors, so that a torn rewrite of one leaves the other. A header
//! that is wrong in one place and right in the other is right.
//!
//! Absent: a checksum of the data; a header tells whose block it is and which truncation it has seen.

use proto::codec::{Reader, Writer};
use proto::{FileId, Ino};
use stdx::crc32c;
use stdx::hash::mix64;

/// Bytes before the data, so that data keeps the alignment of the device.
pub(super) const BLOCK_HEADER_BYTES: u64 = 4096;
/// Where the second copy of the header is.
pub(super) const SECOND_COPY: usize = 512;
/// Bytes of one copy.
const COPY_BYTES: usize = 40;
/// Bytes of the header page that mean something.
pub(super) const HEADER_USED: usize = SECOND_COPY + COPY_BYTES;

const MAGIC: u64 = u64::from_le_bytes(*b"PANDOBLK");
const FORMAT: u16 = 1;

/// What a header page says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockHeader {
    /// Never synced: the block was made shortly before a crash and holds nothing that counts. At least
    /// one copy is zeros and none is right; damage of a block that was synced cannot look like this.
    Blank,
    Valid {
        truncate_seq: u32,
    },
    /// Damage, or another block's header.
    Wrong,
}

/// The start of the header page of a new block.
pub(super) fn encode_header(file: FileId, block: u64, truncate_seq: u32) -> [u8; HEADER_USED] {
    let copy = encode_copy(file, block, truncate_seq);
    let mut bytes = [0; HEADER_USED];
    bytes[..COPY_BYTES].copy_from_slice(&copy);
    bytes[SECOND_COPY..].copy_from_slice(&copy);
    bytes
}

/// One copy of the header.
pub(super) fn encode_copy(file: FileId, block: u64, truncate_seq: u32) -> [u8; COPY_BYTES] {
    let mut w = Writer::new();
    w.u64(MAGIC).u32(0).u16(FORMAT).u16(0);
    w.u64(file.ino.0).u32(file.generation).u32(truncate_seq).u64(block);
    let crc = crc32c(&w.0[12..]);
    w.patch_u32(8, crc);
    let mut bytes = [0; COPY_BYTES];
    bytes.copy_from_slice(&w.0);
    bytes
}

/// The truncation that one copy tells of; `None` when it is wrong.
fn decode_copy(bytes: &[u8], file: FileId, block: u64) -> Option<u32> {
    let mut r = Reader::new(bytes);
    let truncate_seq = r.raw(28).and_then(|_| r.u32()).ok()?;
    (bytes.get(..COPY_BYTES)? == &encode_copy(file, block, truncate_seq)[..]).then_some(truncate_seq)
}

/// Reads the start of a header page.
pub(super) fn decode_header(bytes: &[u8; HEADER_USED], file: FileId, block: u64) -> BlockHeader {
    let (first, second) = bytes.split_at(SECOND_COPY);
    let first = &first[..COPY_BYTES];
    // A rewrite is told of by the higher truncation.
    match decode_copy(first, file, block).max(decode_copy(second, file, block)) {
        Some(truncate_seq) => BlockHeader::Valid { truncate_seq },
        None if [first, second].iter().any(|copy| copy.iter().all(|byte| *byte == 0)) => BlockHeader::Blank,
        None => BlockHeader::Wrong,
    }
}

/// The offsets of the copies in the order in which they are to be rewritten, with a sync between: while
/// one is being written the other is right.
pub(super) fn rewrite_order(bytes: &[u8; HEADER_USED], file: FileId, block: u64) -> [u64; 2] {
    let second = SECOND_COPY as u64;
    if decode_copy(&bytes[..COPY_BYTES], file, block).is_some() { [second, 0] } else { [0, second] }
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
    fn a_header_is_of_one_block_only_and_one_right_copy_is_enough() {
        let bytes = encode_header(FILE, 7, 3);
        let valid = BlockHeader::Valid { truncate_seq: 3 };
        assert_eq!(decode_header(&bytes, FILE, 7), valid);
        assert_eq!(decode_header(&bytes, FILE, 8), BlockHeader::Wrong);
        assert_eq!(decode_header(&[0; HEADER_USED], FILE, 7), BlockHeader::Blank);
        for bit in 0..COPY_BYTES * 8 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode_header(&bad, FILE, 7), valid);
            assert_eq!(rewrite_order(&bad, FILE, 7), [0, 512]);
            bad[SECOND_COPY + 3] ^= 1;
            assert_eq!(decode_header(&bad, FILE, 7), BlockHeader::Wrong);
            bad[SECOND_COPY..].fill(0);
            assert_eq!(decode_header(&bad, FILE, 7), BlockHeader::Blank, "torn while it was made");
        }
        let mut newer = bytes;
        newer[SECOND_COPY..].copy_from_slice(&encode_copy(FILE, 7, 4));
        assert_eq!(decode_header(&newer, FILE, 7), BlockHeader::Valid { truncate_seq: 4 });
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
