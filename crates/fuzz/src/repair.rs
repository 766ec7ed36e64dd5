//! Checksums and lengths made right again behind a mutation, format by format.
//!
//! Absent: the formats' meaning; a repaired input is still garbage inside.

use proto::frame::FRAME_HEADER_BYTES;
use proto::journal::ENTRY_HEADER_BYTES;
use stdx::checksum::crc32c_parts;
use stdx::crc32c;

const REGISTRY_HEADER: usize = store::registry::RECORD_HEADER_BYTES;
/// Where journal inputs lie in their stream.
pub const STREAM_BASE: u64 = 4096;

/// Puts the checksum of `bytes[covered..]` at `at`, where there is room for it.
pub fn seal(bytes: &mut [u8], at: usize, covered: std::ops::Range<usize>) {
    let Some(sum) = bytes.get(covered).map(crc32c) else { return };
    if let Some(field) = bytes.get_mut(at..at + 4) {
        field.copy_from_slice(&sum.to_le_bytes());
    }
}

fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    if let Some(field) = bytes.get_mut(at..at + 4) {
        field.copy_from_slice(&value.to_le_bytes());
    }
}

fn u32_at(bytes: &[u8], at: usize) -> usize {
    bytes
        .get(at..)
        .and_then(|rest| rest.first_chunk::<4>())
        .map_or(0, |field| u32::from_le_bytes(*field) as usize)
}

/// A frame over all bytes, unless its length says that it ends earlier.
pub fn frame(bytes: &mut [u8]) {
    if bytes.len() < FRAME_HEADER_BYTES {
        return;
    }
    let mut len = u32_at(bytes, 0);
    if len > bytes.len() - FRAME_HEADER_BYTES {
        len = bytes.len() - FRAME_HEADER_BYTES;
        put_u32(bytes, 0, len as u32);
    }
    let sum = crc32c_parts(&[&bytes[..4], &bytes[FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + len]]);
    put_u32(bytes, 4, sum);
}

/// One journal entry over all bytes.
pub fn entry(bytes: &mut [u8]) {
    let len = bytes.len();
    entry_at(bytes, 0, len, STREAM_BASE);
}

/// Journal entries one after another as their lengths say, the last one to the end.
pub fn entries(bytes: &mut [u8]) {
    let mut at = 0;
    while at + ENTRY_HEADER_BYTES <= bytes.len() {
        let len = u32_at(bytes, at).clamp(ENTRY_HEADER_BYTES, bytes.len() - at);
        entry_at(bytes, at, len, STREAM_BASE + at as u64);
        at += len;
    }
}

/// Makes `bytes[at..at + len]` the entry at `position`.
pub fn entry_at(bytes: &mut [u8], at: usize, len: usize, position: u64) {
    let Some(entry) = bytes.get_mut(at..at + len).filter(|entry| entry.len() >= ENTRY_HEADER_BYTES) else {
        return;
    };
    put_u32(entry, 0, len as u32);
    entry[8..16].copy_from_slice(&position.to_le_bytes());
    let sum = crc32c_parts(&[&entry[..4], &entry[8..]]);
    put_u32(entry, 4, sum);
}

/// The file-system record.
pub fn fs_record(bytes: &mut [u8]) {
    let len = bytes.len();
    seal(bytes, 12, 16..len);
}

/// A record of the registry over all bytes.
pub fn registry_record(bytes: &mut [u8]) {
    let len = bytes.len();
    if len >= REGISTRY_HEADER {
        put_u32(bytes, REGISTRY_HEADER - 4, (len - REGISTRY_HEADER) as u32);
    }
    seal(bytes, 12, 16..len);
}

/// A journal segment's header, or the entry that starts at the first multiple of 8 from `at` on that looks like one.
pub fn journal_file(_name: &str, bytes: &mut [u8], at: usize) {
    const HEADER: usize = store::journal_files::HEADER_BYTES as usize;
    if at < HEADER {
        seal(bytes, 12, 16..HEADER);
        return;
    }
    let start = bytes
        .get(34..42)
        .and_then(|field| field.first_chunk::<8>())
        .map_or(0, |field| u64::from_le_bytes(*field));
    let mut offset = HEADER;
    while offset + ENTRY_HEADER_BYTES <= bytes.len() {
        let len = u32_at(bytes, offset);
        let inside = (offset..offset + len.max(1)).contains(&at);
        if len < ENTRY_HEADER_BYTES || inside {
            let len = len.clamp(ENTRY_HEADER_BYTES, bytes.len() - offset);
            entry_at(bytes, offset, len, start.wrapping_add((offset - HEADER) as u64));
            return;
        }
        offset += len;
    }
}

/// Whatever of the data store's structures lies around `at` in the file of this name.
pub fn data_file(name: &str, bytes: &mut [u8], at: usize) {
    let len = bytes.len();
    if name.starts_with("data/state") {
        seal(bytes, 8, 12..len);
    } else if name.starts_with("data/blk/") {
        seal(bytes, 8, 12..40);
        seal(bytes, 512 + 8, 512 + 12..512 + 40);
    } else if at < 64 {
        seal(bytes, 8, 12..64);
    } else if let Some(number) = name.strip_prefix("data/index-") {
        let number = u32::from_str_radix(number, 16).unwrap_or(0);
        let count = u32_at(bytes, 64);
        let end = (72 + count.saturating_mul(36)).min(len);
        let Some(body) = bytes.get(72..end) else { return };
        let sum =
            crc32c_parts(&[&number.to_le_bytes(), &0_u32.to_le_bytes(), &(count as u32).to_le_bytes(), body]);
        put_u32(bytes, 68, sum);
    } else {
        data_record(bytes, at);
    }
}

/// The record whose header or body holds `at`; records are found by their magic.
fn data_record(bytes: &mut [u8], at: usize) {
    let mut start = at.min(bytes.len()) / 8 * 8;
    while start >= 64 && bytes.get(start..start + 4) != Some(b"PREC") {
        start -= 8;
    }
    if start < 64 {
        return;
    }
    let body = start + 64;
    let len = u32_at(bytes, start + 40).next_multiple_of(8);
    if let Some(sum) = bytes.get(body..body.saturating_add(len)).map(crc32c) {
        put_u32(bytes, start + 44, sum);
    }
    seal(bytes, start + 4, start + 8..start + 64);
}
