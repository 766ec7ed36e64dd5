//! Values of the system records in the metadata store: sessions, counters, checkpoint positions.
//!
//! Absent: their keys (`storeio.rs`).

use crate::codec::{DecodeError, Reader, Writer};
use crate::ids::{Ino, Position, Tid};

/// The longest stored result; larger answers belong to requests that may run twice.
const RESULT_BYTES_MAX: usize = 1 << 20;

/// What a rank that lives again must know of a session.
pub mod session_flags {
    /// It is granted no capabilities: nobody waits until it says that it keeps nothing.
    pub const KEEPS_NOTHING: u8 = 1;
    /// Everything it was told early or performed is durable: nobody waits for what it presents.
    pub const QUIET: u8 = 2;
    /// It is evicted: its client is refused, and it ends when what its client may keep has run out.
    pub const EVICTED: u8 = 4;
}

/// A client session: what an operator sees of it, and the results it may still ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionRecord {
    /// As in `Mutation::Session`.
    pub client: Box<[u8]>,
    /// Results below it are forgotten.
    pub floor: Tid,
    /// Encoded outcomes by tid, ascending.
    pub results: Vec<(Tid, Box<[u8]>)>,
    /// `session_flags`.
    pub flags: u8,
    /// Inode numbers that are the session's to give out and of which it has used none: first and count.
    pub delegated: Vec<(Ino, u32)>,
}

impl SessionRecord {
    /// Appends the value.
    pub fn encode(&self, w: &mut Writer) {
        w.bytes(&self.client).u64(self.floor.0).u32(self.results.len() as u32);
        for (tid, result) in &self.results {
            w.u64(tid.0).bytes(result);
        }
        // Where there is nothing to say the record is that of version 0.1.0.
        if self.flags != 0 || !self.delegated.is_empty() {
            w.u8(self.flags).u32(self.delegated.len() as u32);
            for (first, count) in &self.delegated {
                w.u64(first.0).u32(*count);
            }
        }
    }

    /// Reads a value that fills `bytes` exactly.
    ///
    /// # Errors
    /// `DecodeError` when cut.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let client = r.bytes(1 << 16)?.into();
        let floor = Tid(r.u64()?);
        let count = r.u32()?;
        let results = (0..count)
            .map(|_| Ok((Tid(r.u64()?), r.bytes(RESULT_BYTES_MAX)?.into())))
            .collect::<Result<_, DecodeError>>()?;
        let (mut flags, mut delegated) = (0, Vec::new());
        if !r.is_empty() {
            flags = r.u8()?;
            let count = r.u32()?;
            delegated =
                (0..count).map(|_| Ok((Ino(r.u64()?), r.u32()?))).collect::<Result<_, DecodeError>>()?;
            if flags == 0 && delegated.is_empty() {
                return Err(DecodeError::Invalid { what: "flags of a session" });
            }
        }
        r.finish()?;
        Ok(Self { client, floor, results, flags, delegated })
    }
}

/// Where a rank's replay starts, and its next inode number at that position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointRecord {
    pub position: Position,
    /// Numbers below it may have been given out.
    pub next_ino: u64,
}

impl CheckpointRecord {
    /// Appends the value.
    pub fn encode(&self, w: &mut Writer) {
        w.u64(self.position.0).u64(self.next_ino);
    }

    /// Reads a value that fills `bytes` exactly.
    ///
    /// # Errors
    /// `DecodeError` when cut.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let record = Self { position: Position(r.u64()?), next_ino: r.u64()? };
        r.finish()?;
        Ok(record)
    }
}

/// The value of a `Counter` record: the next inode number's counter.
///
/// # Errors
/// `DecodeError` when it is not eight bytes.
pub fn decode_counter(bytes: &[u8]) -> Result<u64, DecodeError> {
    let mut r = Reader::new(bytes);
    let next = r.u64()?;
    r.finish()?;
    Ok(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_survive() {
        let session = SessionRecord {
            client: b"host"[..].into(),
            floor: Tid(3),
            results: vec![(Tid(4), b"r"[..].into())],
            flags: session_flags::QUIET,
            delegated: vec![(Ino(8192), 4096)],
        };
        let plain = SessionRecord { flags: 0, delegated: Vec::new(), ..session.clone() };
        let checkpoint = CheckpointRecord { position: Position(9), next_ino: 4096 };
        let (mut a, mut b) = (Writer::new(), Writer::new());
        session.encode(&mut a);
        checkpoint.encode(&mut b);
        assert_eq!(SessionRecord::decode(&a.0), Ok(session));
        let mut c = Writer::new();
        plain.encode(&mut c);
        assert_eq!(SessionRecord::decode(&c.0), Ok(plain));
        assert_eq!(CheckpointRecord::decode(&b.0), Ok(checkpoint));
    }
}
