//! A record of the registry as the bytes of its file.
//!
//! Absent: the file itself; what the record says.

use super::Record;
use proto::codec::{DecodeError, Reader, Writer};
use stdx::crc32c;

/// Bytes of one record at most.
pub const RECORD_BYTES_MAX: usize = 8 << 20;
/// Bytes of the file before those of the record.
pub const RECORD_HEADER_BYTES: usize = 28;
const MAGIC: &[u8; 8] = b"PandoReg";
const FORMAT: u32 = 1;

/// The file of a record; `None` if it is too long for one.
#[must_use]
pub fn encode(version: u64, bytes: &[u8]) -> Option<Vec<u8>> {
    if bytes.len() > RECORD_BYTES_MAX {
        return None;
    }
    let mut w = Writer(Vec::with_capacity(RECORD_HEADER_BYTES + bytes.len()));
    w.raw(MAGIC).u32(FORMAT).u32(0).u64(version).bytes(bytes);
    let crc = crc32c(&w.0[16..]);
    w.patch_u32(12, crc);
    Some(w.0)
}

/// Reads the file of a record. The format number is read before the checksum, so that a later format says so.
///
/// # Errors
/// `Invalid` without the magic or with a number that no version writes, `TooNew`, `Checksum`, `TooLong`, `Truncated`.
pub fn decode(bytes: &[u8]) -> Result<Record, DecodeError> {
    let mut r = Reader::new(bytes);
    if r.raw(8)? != MAGIC {
        return Err(DecodeError::Invalid { what: "registry record" });
    }
    let (format, crc) = (r.u32()?, r.u32()?);
    if format > FORMAT {
        return Err(DecodeError::TooNew { found: format, supported: FORMAT });
    }
    if format == 0 {
        return Err(DecodeError::Invalid { what: "format number" });
    }
    if crc32c(r.rest()) != crc {
        return Err(DecodeError::Checksum);
    }
    let version = r.u64()?;
    if version == 0 {
        return Err(DecodeError::Invalid { what: "version" });
    }
    let content = r.bytes(RECORD_BYTES_MAX)?.to_vec();
    r.finish()?;
    Ok(Record { version, bytes: content })
}
