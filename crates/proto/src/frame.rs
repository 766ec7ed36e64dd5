//! Framing on a byte stream: `len u32 | crc u32 | body`. `len` counts the body, the checksum covers
//! length and body.
//!
//! Absent: encryption, which lies below; multiplexing, which no one needs.

use crate::codec::{DecodeError, Reader, Writer};
use stdx::checksum::crc32c_parts;

/// Bytes before the body.
pub const FRAME_HEADER_BYTES: usize = 8;
/// The longest body: one read or write and its headers.
pub const FRAME_BYTES_MAX: usize = (1 << 20) + (1 << 16);

/// Appends one frame whose body `put` writes.
pub fn put_frame(w: &mut Writer, put: impl FnOnce(&mut Writer)) {
    let start = w.len();
    w.u32(0).u32(0);
    put(w);
    let len = (w.len() - start - FRAME_HEADER_BYTES) as u32;
    let crc = crc32c_parts(&[&len.to_le_bytes(), &w.0[start + FRAME_HEADER_BYTES..]]);
    w.patch_u32(start, len);
    w.patch_u32(start + 4, crc);
}

/// The body of the first frame in `bytes`, and the frame's whole length; `None` while it is not
/// complete.
///
/// # Errors
/// `TooLong` above the limit, `Checksum`: the connection must be closed.
pub fn take_frame(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, DecodeError> {
    if bytes.len() < FRAME_HEADER_BYTES {
        return Ok(None);
    }
    let mut r = Reader::new(bytes);
    let (len, crc) = (r.u32()? as usize, r.u32()?);
    if len > FRAME_BYTES_MAX {
        return Err(DecodeError::TooLong { what: "frame", len: len as u64 });
    }
    if r.rest().len() < len {
        return Ok(None);
    }
    let body = r.raw(len)?;
    if crc32c_parts(&[&bytes[..4], body]) != crc {
        return Err(DecodeError::Checksum);
    }
    Ok(Some((body, FRAME_HEADER_BYTES + len)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_taken_whole_or_not() {
        let mut w = Writer::new();
        put_frame(&mut w, |w| {
            w.raw(b"body");
        });
        assert_eq!(take_frame(&w.0), Ok(Some((&b"body"[..], 12))));
        assert_eq!(take_frame(&w.0[..11]), Ok(None));
        let mut bad = w.0.clone();
        bad[9] ^= 1;
        assert_eq!(take_frame(&bad), Err(DecodeError::Checksum));
    }
}
