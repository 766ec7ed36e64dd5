//! Journal entries: framing, transaction header, and the rule that tells a torn tail from damage.
//!
//! An entry is `len u32 | crc u32 | position u64 | mark u64 | payload`. `len` counts all of it, the
//! checksum covers `len` and everything after the checksum, `position` is the entry's own byte
//! position in the rank's stream (so stale bytes of a recycled segment never pass), `mark` is the
//! durable position known when it was written.
//!
//! Absent: segments and files (crate `store`), applying mutations (crate `mds`).

use crate::codec::{DecodeError, Fixed, Reader, Writer};
use crate::ids::{Position, SessionId, Tid};
use crate::mutation::Mutation;
use stdx::Wall;
use stdx::checksum::crc32c_parts;

/// Bytes before the payload.
pub const ENTRY_HEADER_BYTES: usize = 24;
/// The longest entry: a directory of xattrs plus a redo of a small file fits with room to spare.
pub const ENTRY_BYTES_MAX: usize = 4 << 20;

const KIND_TRANSACTION: u8 = 1;
const KIND_MARK: u8 = 2;
const FLAG_SESSION: u8 = 1;
const FLAG_CLUSTER: u8 = 2;

/// The request a transaction answers, and its result for a client that asks again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxnOrigin<'a> {
    pub session: SessionId,
    pub tid: Tid,
    /// The encoded `Outcome`, an error too, so that a retry gets the same answer.
    pub result: &'a [u8],
}

/// Fields a cluster of several ranks fills; absent in the bytes while all are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxnCluster {
    pub global_id: u64,
    pub map_version: u64,
    pub snap_sequence: u64,
}

/// What an entry holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload<'a> {
    /// `mutations` is read with `Mutations`.
    Transaction { wall: Wall, origin: Option<TxnOrigin<'a>>, cluster: TxnCluster, mutations: &'a [u8] },
    /// Nothing but the mark: written by an idle journal within a second of its last entry.
    Mark,
}

/// A checked entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    pub position: Position,
    pub mark: Position,
    pub payload: Payload<'a>,
    /// Bytes of the whole entry.
    pub len: usize,
}

/// Starts an entry at the end of `w`, which must become the stream's bytes at `position`. Returns
/// the handle for `end_entry`; the caller appends the payload in between.
pub fn begin_entry(w: &mut Writer, position: Position, mark: Position) -> usize {
    let start = w.len();
    w.fixed(Fixed::<ENTRY_HEADER_BYTES>::new().u32(0).u32(0).u64(position.0).u64(mark.0));
    start
}

/// Completes the entry begun at `start`: fills length and checksum. Returns its length.
pub fn end_entry(w: &mut Writer, start: usize) -> usize {
    let len = w.len() - start;
    // In release builds the journal's files refuse it: no reader would take it.
    debug_assert!(len <= ENTRY_BYTES_MAX);
    let len_bytes = (len as u32).to_le_bytes();
    let crc = crc32c_parts(&[&len_bytes, &w.0[start + 8..]]);
    w.patch_u32(start, len as u32);
    w.patch_u32(start + 4, crc);
    len
}

/// Appends a transaction's header; mutations follow until the end of the entry.
pub fn put_transaction(w: &mut Writer, wall: Wall, origin: Option<&TxnOrigin<'_>>, cluster: TxnCluster) {
    let in_cluster = cluster != TxnCluster::default();
    let flags = if origin.is_some() { FLAG_SESSION } else { 0 } | if in_cluster { FLAG_CLUSTER } else { 0 };
    w.fixed(Fixed::<10>::new().u8(KIND_TRANSACTION).u8(flags).i64(wall.0));
    if let Some(origin) = origin {
        w.u64(origin.session.0).u64(origin.tid.0).bytes(origin.result);
    }
    if in_cluster {
        w.u64(cluster.global_id).u64(cluster.map_version).u64(cluster.snap_sequence);
    }
}

/// Appends the payload of an idle mark.
pub fn put_mark(w: &mut Writer) {
    w.u8(KIND_MARK);
}

/// Reads the entry at the front of `bytes`, which are the stream's bytes from `position` on.
///
/// # Errors
/// `Truncated` when they end early, `Checksum` or `Invalid` when they are not that entry.
pub fn read_entry(bytes: &[u8], position: Position) -> Result<Entry<'_>, DecodeError> {
    let mut r = Reader::new(bytes);
    let (len, crc) = (r.u32()? as usize, r.u32()?);
    if !(ENTRY_HEADER_BYTES..=ENTRY_BYTES_MAX).contains(&len) {
        return Err(DecodeError::Invalid { what: "entry length" });
    }
    if len > bytes.len() {
        return Err(DecodeError::Truncated { need: len, have: bytes.len() });
    }
    if r.u64()? != position.0 {
        return Err(DecodeError::Invalid { what: "entry position" });
    }
    if crc32c_parts(&[&bytes[..4], &bytes[8..len]]) != crc {
        return Err(DecodeError::Checksum);
    }
    let mark = Position(r.u64()?);
    let payload = read_payload(&bytes[ENTRY_HEADER_BYTES..len])?;
    Ok(Entry { position, mark, payload, len })
}

fn read_payload(bytes: &[u8]) -> Result<Payload<'_>, DecodeError> {
    let mut r = Reader::new(bytes);
    match r.u8()? {
        KIND_MARK => Ok(Payload::Mark),
        KIND_TRANSACTION => {
            let flags = r.u8()?;
            let wall = Wall(r.i64()?);
            let mut origin = None;
            if flags & FLAG_SESSION != 0 {
                let (session, tid) = (SessionId(r.u64()?), Tid(r.u64()?));
                origin = Some(TxnOrigin { session, tid, result: r.bytes(ENTRY_BYTES_MAX)? });
            }
            let mut cluster = TxnCluster::default();
            if flags & FLAG_CLUSTER != 0 {
                cluster = TxnCluster { global_id: r.u64()?, map_version: r.u64()?, snap_sequence: r.u64()? };
            }
            Ok(Payload::Transaction { wall, origin, cluster, mutations: r.rest() })
        }
        tag => Err(DecodeError::UnknownTag { what: "journal entry", tag: u64::from(tag) }),
    }
}

/// The highest durable mark of any valid entry that starts in `bytes`, which are the stream's bytes
/// from `position` on. Used behind a bad entry: when a later entry says that the bad one's position
/// was durable, the journal is damaged; otherwise the bad entry is the torn tail.
#[must_use]
pub fn highest_mark(bytes: &[u8], position: Position) -> Option<Position> {
    let mut highest = None;
    let mut at = 0;
    while at + ENTRY_HEADER_BYTES <= bytes.len() {
        let here = Position(position.0 + at as u64);
        match read_entry(&bytes[at..], here) {
            Ok(entry) => {
                highest = highest.max(Some(entry.mark));
                at += entry.len;
            }
            Err(_) => at += 1,
        }
    }
    highest
}

/// Iterates over a transaction's mutations; ends after the first error.
#[derive(Clone, Debug)]
pub struct Mutations<'a>(pub Reader<'a>);

impl<'a> Mutations<'a> {
    /// Over the mutation bytes of a transaction.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(Reader::new(bytes))
    }
}

impl<'a> Iterator for Mutations<'a> {
    type Item = Result<Mutation<'a>, DecodeError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let mutation = Mutation::decode(&mut self.0);
        if mutation.is_err() {
            self.0 = Reader::new(&[]);
        }
        Some(mutation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::RankId;

    fn stream() -> (Vec<u8>, Vec<usize>) {
        let mut w = Writer::new();
        let mut starts = Vec::new();
        for i in 0..4_u64 {
            let position = Position(1000 + w.len() as u64);
            let start = begin_entry(&mut w, position, Position(1000));
            put_transaction(&mut w, Wall(5), None, TxnCluster::default());
            Mutation::InoCounter { rank: RankId(0), next: i }.encode(&mut w);
            end_entry(&mut w, start);
            starts.push(start);
        }
        (w.0, starts)
    }

    #[test]
    fn entries_are_read_back_and_flipped_bits_found() {
        let (bytes, starts) = stream();
        for start in &starts {
            let entry = read_entry(&bytes[*start..], Position(1000 + *start as u64)).expect("valid");
            let Payload::Transaction { mutations, .. } = entry.payload else { panic!("kind") };
            assert_eq!(Mutations::new(mutations).count(), 1);
        }
        let first = starts[1];
        for bit in 0..first * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(read_entry(&bad, Position(1000)).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_stale_entry_of_another_position_is_not_read() {
        let (bytes, _) = stream();
        assert!(read_entry(&bytes, Position(999)).is_err());
    }

    #[test]
    fn later_entries_are_found_behind_a_hole() {
        let (mut bytes, starts) = stream();
        bytes[starts[1] + 10] ^= 1;
        assert_eq!(
            highest_mark(&bytes[starts[1]..], Position(1000 + starts[1] as u64)),
            Some(Position(1000))
        );
        assert_eq!(highest_mark(&bytes[..starts[1]], Position(0)), None);
    }
}
