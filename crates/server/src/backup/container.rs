//! The backup file: a stream of checksummed chunks that ends in a trailer with counts.
//!
//! `magic 8 | version u32 | crc u32`, then chunks `kind u8 | len u32 | crc u32 | body`; the checksum
//! of a chunk covers its number in the file, kind, length and body, so that a lost, doubled or
//! swapped chunk is found. The last chunk is the trailer; nothing follows it.
//!
//! Absent: what bodies mean (`content.rs`), compression.

use super::BackupError;
use proto::{Reader, Writer};
use std::io::{ErrorKind, Read, Write};
use stdx::checksum::crc32c_parts;
use stdx::crc32c;

const MAGIC: &[u8; 8] = b"PandoBK\n";
/// The newest version. Whoever writes nothing that version 1 does not know writes version 1.
const VERSION: u32 = 2;
/// From this version on there may be records of the registry.
const VERSION_REGISTRY: u32 = 2;
const HEADER_BYTES: usize = 9;
/// The longest body.
pub(super) const CHUNK_BYTES_MAX: usize = 2 << 20;

/// What a chunk holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    FsRecord = 1,
    Records = 2,
    Data = 3,
    Registry = 4,
    Trailer = 255,
}

impl Kind {
    const fn of(byte: u8, version: u32) -> Option<Self> {
        Some(match byte {
            1 => Self::FsRecord,
            2 => Self::Records,
            3 => Self::Data,
            4 if version >= VERSION_REGISTRY => Self::Registry,
            255 => Self::Trailer,
            _ => return None,
        })
    }
}

fn checksum(number: u64, kind: u8, body: &[u8]) -> u32 {
    let len = (body.len() as u32).to_le_bytes();
    crc32c_parts(&[&number.to_le_bytes(), &[kind], &len, body])
}

/// Writes chunks.
pub(super) struct ChunkWriter<W> {
    to: W,
    number: u64,
    bytes: u64,
}

impl<W: Write> ChunkWriter<W> {
    /// `registry`: chunks of it will come.
    pub(super) fn begin(mut to: W, registry: bool) -> Result<Self, BackupError> {
        let mut w = Writer::new();
        w.raw(MAGIC).u32(if registry { VERSION_REGISTRY } else { 1 });
        let crc = crc32c(&w.0);
        w.u32(crc);
        to.write_all(&w.0)?;
        Ok(Self { to, number: 0, bytes: w.len() as u64 })
    }

    pub(super) fn put(&mut self, kind: Kind, body: &[u8]) -> Result<(), BackupError> {
        if body.len() > CHUNK_BYTES_MAX {
            // No restore would take it.
            let what = format!("a chunk of {} bytes is longer than any reader takes", body.len());
            return Err(BackupError::Damaged { at: self.bytes, what });
        }
        let mut head = Writer::new();
        head.u8(kind as u8).u32(body.len() as u32).u32(checksum(self.number, kind as u8, body));
        self.to.write_all(&head.0)?;
        self.to.write_all(body)?;
        self.number += 1;
        self.bytes += (HEADER_BYTES + body.len()) as u64;
        Ok(())
    }

    /// Chunks written so far.
    pub(super) const fn count(&self) -> u64 {
        self.number
    }

    /// Bytes written so far.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn end(self) -> W {
        self.to
    }
}

/// Reads chunks and checks each.
pub(super) struct ChunkReader<R> {
    from: R,
    version: u32,
    number: u64,
    at: u64,
    body: Vec<u8>,
}

impl<R: Read> ChunkReader<R> {
    pub(super) fn begin(mut from: R) -> Result<Self, BackupError> {
        let mut head = [0; 16];
        let (magic, tail) = head.split_at_mut(MAGIC.len());
        // What is too short to say what it is, as an empty file, is nobody's damaged backup.
        match from.read_exact(magic) {
            Ok(()) if magic == MAGIC => {}
            Ok(()) => return Err(BackupError::Foreign),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Err(BackupError::Foreign),
            Err(error) => return Err(error.into()),
        }
        from.read_exact(tail).map_err(|e| cut(e, MAGIC.len() as u64))?;
        let mut r = Reader::new(tail);
        let (version, crc) = (r.u32()?, r.u32()?);
        if version > VERSION {
            return Err(BackupError::Newer { found: version, supported: VERSION });
        }
        if crc32c(&head[..12]) != crc {
            return Err(BackupError::Damaged { at: 0, what: "checksum mismatch".into() });
        }
        Ok(Self { from, version, number: 0, at: head.len() as u64, body: Vec::new() })
    }

    /// The next chunk. The trailer is a chunk too; `finish` says whether it was the last.
    pub(super) fn next(&mut self) -> Result<(Kind, &[u8]), BackupError> {
        let at = self.at;
        let damaged = |what: &str| BackupError::Damaged { at, what: what.into() };
        let mut head = [0; HEADER_BYTES];
        self.from.read_exact(&mut head).map_err(|e| cut(e, at))?;
        let mut r = Reader::new(&head);
        let (byte, len, crc) = (r.u8()?, r.u32()? as usize, r.u32()?);
        if len > CHUNK_BYTES_MAX {
            return Err(damaged("chunk length"));
        }
        self.body.resize(len, 0);
        self.from.read_exact(&mut self.body).map_err(|e| cut(e, at))?;
        if checksum(self.number, byte, &self.body) != crc {
            return Err(damaged("checksum mismatch"));
        }
        let kind = Kind::of(byte, self.version).ok_or_else(|| damaged("unknown chunk"))?;
        self.number += 1;
        self.at += (HEADER_BYTES + len) as u64;
        Ok((kind, &self.body))
    }

    /// Chunks read so far.
    pub(super) const fn count(&self) -> u64 {
        self.number
    }

    /// Where the next chunk starts.
    pub(super) const fn at(&self) -> u64 {
        self.at
    }

    /// Fails unless nothing follows.
    pub(super) fn finish(mut self) -> Result<(), BackupError> {
        match self.from.read(&mut [0])? {
            0 => Ok(()),
            _ => Err(BackupError::Damaged { at: self.at, what: "bytes behind the trailer".into() }),
        }
    }
}

/// An early end is damage, anything else an error of the device.
fn cut(error: std::io::Error, at: u64) -> BackupError {
    if error.kind() == ErrorKind::UnexpectedEof {
        BackupError::Damaged { at, what: "the file ends early".into() }
    } else {
        BackupError::Io(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        let mut w = ChunkWriter::begin(Vec::new(), false).expect("begin");
        for body in [&b"one"[..], b"", b"three"] {
            w.put(Kind::Records, body).expect("put");
        }
        w.put(Kind::Trailer, b"t").expect("put");
        w.end()
    }

    #[test]
    fn a_chunk_that_no_reader_takes_is_not_written() {
        let mut w = ChunkWriter::begin(Vec::new(), false).expect("begin");
        let before = w.bytes();
        assert!(w.put(Kind::Records, &vec![0; CHUNK_BYTES_MAX]).is_ok());
        assert!(w.put(Kind::Records, &vec![0; CHUNK_BYTES_MAX + 1]).is_err());
        assert_eq!(w.bytes(), before + (HEADER_BYTES + CHUNK_BYTES_MAX) as u64);
    }

    #[test]
    fn a_backup_without_a_registry_is_one_that_earlier_versions_read() {
        let version = |registry| {
            let mut w = ChunkWriter::begin(Vec::new(), registry).expect("begin");
            w.put(Kind::Registry, b"").expect("put");
            let bytes = w.end();
            let mut r = ChunkReader::begin(&bytes[..]).expect("begin");
            (bytes[8], r.next().map(|(kind, _)| kind).ok())
        };
        assert_eq!(version(false), (1, None), "they know no such chunk");
        assert_eq!(version(true), (2, Some(Kind::Registry)));
    }

    fn read(bytes: &[u8]) -> Result<Vec<Vec<u8>>, BackupError> {
        let mut r = ChunkReader::begin(bytes)?;
        let mut bodies = Vec::new();
        loop {
            let (kind, body) = r.next()?;
            bodies.push(body.to_vec());
            if kind == Kind::Trailer {
                break;
            }
        }
        r.finish()?;
        Ok(bodies)
    }

    #[test]
    fn chunks_come_back_and_every_change_is_found() {
        let bytes = sample();
        assert_eq!(read(&bytes).expect("sound").len(), 4);
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&bad).is_err(), "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert!(read(&bytes[..len]).is_err(), "cut at {len}");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(read(&longer).is_err());
        // A whole chunk left out.
        let mut short = bytes[..16].to_vec();
        short.extend_from_slice(&bytes[16 + HEADER_BYTES + 3..]);
        assert!(read(&short).is_err());
    }
}
