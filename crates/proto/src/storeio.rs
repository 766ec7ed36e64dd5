//! What a rank asks of the stores, as values, and the keys of the metadata store.
//!
//! Absent: the stores themselves. The rank never sees one; its driver does.

mod data;
mod payload;

pub use data::{Cut, DataDone, DataOp, Space};
pub use payload::{Buffer, FillOnce, Lent, Payload};

use crate::codec::{DecodeError, Reader, Writer};
use crate::ids::{Frag, Ino, NameHash, RankId, SessionId, SnapId, Version};
use thiserror::Error;

/// Which keyspace of an environment a record lives in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Table {
    /// Dentries and frag headers, ordered by (directory, hash, name, snap).
    Dentry = 1,
    /// Inode number -> where its primary dentry is.
    Backptr = 2,
    /// Sessions, counters, checkpoint positions.
    System = 3,
}

/// The key of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StoreKey<'a> {
    Dentry {
        dir: Ino,
        hash: NameHash,
        name: &'a [u8],
        snap: SnapId,
    },
    Header {
        dir: Ino,
        frag: Frag,
    },
    Backptr {
        ino: Ino,
    },
    /// A session with one rank; its number is unique over all ranks.
    Session {
        rank: RankId,
        id: SessionId,
    },
    Counter {
        rank: RankId,
    },
    Checkpoint {
        rank: RankId,
    },
}

const SYSTEM_SESSION: u8 = 1;
const SYSTEM_COUNTER: u8 = 2;
const SYSTEM_CHECKPOINT: u8 = 3;
/// A session of a rank above 0.
const SYSTEM_RANK_SESSION: u8 = 4;

impl<'a> StoreKey<'a> {
    /// The HEAD dentry of a name.
    #[must_use]
    pub const fn head(dir: Ino, hash: NameHash, name: &'a [u8]) -> Self {
        Self::Dentry { dir, hash, name, snap: SnapId::HEAD }
    }

    /// The keyspace.
    #[must_use]
    pub const fn table(&self) -> Table {
        match self {
            Self::Dentry { .. } | Self::Header { .. } => Table::Dentry,
            Self::Backptr { .. } => Table::Backptr,
            Self::Session { .. } | Self::Counter { .. } | Self::Checkpoint { .. } => Table::System,
        }
    }

    /// The number whose hash chooses the environment: the directory for dentries and headers, the
    /// inode for backptrs, one fixed number for system records.
    #[must_use]
    pub const fn shard(&self) -> Ino {
        match self {
            Self::Dentry { dir, .. } | Self::Header { dir, .. } => *dir,
            Self::Backptr { ino } => *ino,
            Self::Session { .. } | Self::Counter { .. } | Self::Checkpoint { .. } => Ino::SYSTEM,
        }
    }

    /// Appends the key's bytes: big-endian, so that byte order is record order.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Dentry { dir, hash, name, snap } => {
                out.extend_from_slice(&dir.0.to_be_bytes());
                out.extend_from_slice(&hash.0.to_be_bytes());
                out.extend_from_slice(name);
                out.extend_from_slice(&snap.0.to_be_bytes());
            }
            Self::Header { dir, frag } => {
                out.extend_from_slice(&dir.0.to_be_bytes());
                out.extend_from_slice(&0_u64.to_be_bytes());
                out.extend_from_slice(&frag.prefix.to_be_bytes());
                out.push(frag.depth);
            }
            Self::Backptr { ino } => out.extend_from_slice(&ino.0.to_be_bytes()),
            // As before there were several ranks.
            Self::Session { rank: RankId(0), id } => system(out, SYSTEM_SESSION, id.0),
            Self::Session { rank, id } => {
                system(out, SYSTEM_RANK_SESSION, u64::from(rank.0));
                out.extend_from_slice(&id.0.to_be_bytes());
            }
            Self::Counter { rank } => system(out, SYSTEM_COUNTER, u64::from(rank.0)),
            Self::Checkpoint { rank } => system(out, SYSTEM_CHECKPOINT, u64::from(rank.0)),
        }
    }

    /// Reads a key of `table`.
    ///
    /// # Errors
    /// `DecodeError` when the bytes are not such a key.
    pub fn decode(table: Table, bytes: &'a [u8]) -> Result<Self, DecodeError> {
        if table == Table::System {
            return decode_system(bytes);
        }
        let (number, rest) = split_be(bytes)?;
        match table {
            Table::Backptr if rest.is_empty() => Ok(Self::Backptr { ino: Ino(number) }),
            Table::Backptr => Err(DecodeError::Invalid { what: "backptr key" }),
            Table::Dentry | Table::System => decode_dentry(Ino(number), rest),
        }
    }
}

fn decode_system<'a>(bytes: &[u8]) -> Result<StoreKey<'a>, DecodeError> {
    let (tag, rest) = bytes.split_first().ok_or(DecodeError::Truncated { need: 9, have: 0 })?;
    let (number, rest) = split_be(rest)?;
    let rank = u16::try_from(number).map(RankId);
    match (*tag, rank, rest.is_empty()) {
        (SYSTEM_SESSION, _, true) => Ok(StoreKey::Session { rank: RankId(0), id: SessionId(number) }),
        (SYSTEM_COUNTER, Ok(rank), true) => Ok(StoreKey::Counter { rank }),
        (SYSTEM_CHECKPOINT, Ok(rank), true) => Ok(StoreKey::Checkpoint { rank }),
        // Those of rank 0 have a key of their own: each record has one key only.
        (SYSTEM_RANK_SESSION, Ok(rank), false) if rank.0 > 0 => match split_be(rest)? {
            (id, []) => Ok(StoreKey::Session { rank, id: SessionId(id) }),
            _ => Err(DecodeError::Invalid { what: "system key" }),
        },
        _ => Err(DecodeError::Invalid { what: "system key" }),
    }
}

fn system(out: &mut Vec<u8>, tag: u8, id: u64) {
    out.push(tag);
    out.extend_from_slice(&id.to_be_bytes());
}

fn split_be(bytes: &[u8]) -> Result<(u64, &[u8]), DecodeError> {
    match bytes.split_first_chunk::<8>() {
        Some((head, rest)) => Ok((u64::from_be_bytes(*head), rest)),
        None => Err(DecodeError::Truncated { need: 8, have: bytes.len() }),
    }
}

fn decode_dentry(dir: Ino, rest: &[u8]) -> Result<StoreKey<'_>, DecodeError> {
    let (hash, rest) = split_be(rest)?;
    if hash == 0 {
        let (prefix, rest) = split_be(rest)?;
        return match rest {
            [depth] => Ok(StoreKey::Header { dir, frag: Frag { prefix, depth: *depth } }),
            _ => Err(DecodeError::Invalid { what: "header key" }),
        };
    }
    let Some((name, snap)) = rest.split_last_chunk::<8>() else {
        return Err(DecodeError::Truncated { need: 8, have: rest.len() });
    };
    Ok(StoreKey::Dentry { dir, hash: NameHash(hash), name, snap: SnapId(u64::from_be_bytes(*snap)) })
}

/// One thing to read from the metadata store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadRequest {
    /// The HEAD dentry of one name.
    Dentry {
        dir: Ino,
        hash: NameHash,
        name: Box<[u8]>,
    },
    /// All HEAD dentries of one hash value (usually one): resolves a `NodeRef`.
    ByHash {
        dir: Ino,
        hash: NameHash,
    },
    /// HEAD dentries in (hash, name) order from hash `from` on: about `entries_max` of them, more
    /// where names with equal *cookies* (hash >> 1) would be torn apart.
    Scan {
        dir: Ino,
        from: NameHash,
        entries_max: u32,
    },
    Header {
        dir: Ino,
        frag: Frag,
    },
    Backptr {
        ino: Ino,
    },
    /// Every session record of a rank (only at boot).
    Sessions {
        rank: RankId,
    },
    Counter {
        rank: RankId,
    },
    Checkpoint {
        rank: RankId,
    },
}

/// One dentry as the store has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredDentry {
    pub hash: NameHash,
    pub name: Box<[u8]>,
    /// An encoded `DentryValue`.
    pub value: Box<[u8]>,
}

/// The answer to a `LoadRequest`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loaded {
    /// For Dentry, Header, Backptr, Counter, Checkpoint.
    Value(Option<Box<[u8]>>),
    /// For ByHash and Scan. `next`: the hash to go on from; `None` at the end of the directory.
    Dentries {
        entries: Vec<StoredDentry>,
        next: Option<NameHash>,
    },
    Sessions(Vec<(SessionId, Box<[u8]>)>),
}

/// A backptr's value: where the primary dentry is, as of the inode's linkage version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backptr {
    pub version: u64,
    pub parent: Ino,
    pub hash: NameHash,
    pub name: Box<[u8]>,
}

impl Backptr {
    /// Appends the value.
    pub fn encode(&self, w: &mut Writer) {
        w.u64(self.version).u64(self.parent.0).u64(self.hash.0).name(&self.name);
    }

    /// Reads a value that fills `bytes` exactly.
    ///
    /// # Errors
    /// `DecodeError` when cut.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let backptr = Self {
            version: r.u64()?,
            parent: Ino(r.u64()?),
            hash: NameHash(r.u64()?),
            name: r.name()?.into(),
        };
        r.finish()?;
        Ok(backptr)
    }
}

/// One operation of a batch: table, key bytes, value or `None` for delete.
pub type StoreWrite<'a> = (Table, &'a [u8], Option<&'a [u8]>);

/// Writes of one shard (a directory, an inode's backptr, or the system records) that reach the
/// store together or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreBatch {
    pub shard: Ino,
    /// Refuse the batch if the stored header of that part of this directory has a higher version: a late write
    /// of an old owner must never overwrite a newer one's state.
    pub guard: Option<Version>,
    /// The part of the directory that it is about.
    pub frag: Frag,
    /// Flat: `table u8 | key len u16 | key | present u8 | value len u32 | value`, repeated; read with
    /// `StoreBatch::iter`, written with `put` and `delete`. Sorted by key where the writer can.
    ops: Vec<u8>,
    count: u32,
    /// A record of another shard is in it: it would go where nobody looks for it.
    mixed: bool,
}

/// Most records with their keys fit.
const RECORD_BYTES: usize = 192;

impl StoreBatch {
    /// An empty batch for `shard`.
    #[must_use]
    pub const fn new(shard: Ino, guard: Option<Version>) -> Self {
        Self::of_unit(shard, Frag::WHOLE, guard)
    }

    /// The same for one unit of a directory.
    #[must_use]
    pub const fn of_unit(shard: Ino, frag: Frag, guard: Option<Version>) -> Self {
        Self { shard, guard, frag, ops: Vec::new(), count: 0, mixed: false }
    }

    /// Adds a put; `value` appends the value's bytes.
    pub fn put(&mut self, key: StoreKey<'_>, value: impl FnOnce(&mut Writer)) {
        self.key(key, true);
        let at = self.ops.len();
        let mut w = Writer(std::mem::take(&mut self.ops));
        w.u32(0);
        value(&mut w);
        let len = w.len() - at - 4;
        w.patch_u32(at, len as u32);
        self.ops = w.0;
    }

    /// Adds a delete.
    pub fn delete(&mut self, key: StoreKey<'_>) {
        self.key(key, false);
        self.ops.extend_from_slice(&0_u32.to_le_bytes());
    }

    fn key(&mut self, key: StoreKey<'_>, present: bool) {
        self.mixed |= key.shard() != self.shard;
        self.count += 1;
        // Most batches hold one record: without this it would be moved several times while it is written.
        self.ops.reserve(RECORD_BYTES);
        self.ops.push(key.table() as u8);
        let at = self.ops.len();
        self.ops.extend_from_slice(&[0, 0]);
        key.encode(&mut self.ops);
        let len = (self.ops.len() - at - 2) as u16;
        self.ops[at..at + 2].copy_from_slice(&len.to_le_bytes());
        self.ops.push(u8::from(present));
    }

    /// Number of operations.
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.count
    }

    /// Whether nothing is in it.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes of its operations.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.ops.len()
    }

    /// Refuses what would not be together in any store.
    ///
    /// # Errors
    /// `Damaged` where a record belongs to another shard.
    pub fn check_shard(&self) -> Result<(), StoreError> {
        if self.mixed {
            let at = format!("batch of shard {:#x}", self.shard.0);
            return Err(StoreError::Damaged { at, what: "a record of another shard".into() });
        }
        Ok(())
    }

    /// The operations in the order added.
    ///
    /// # Panics
    /// If its bytes are not what `put` and `delete` wrote.
    pub fn iter(&self) -> impl Iterator<Item = StoreWrite<'_>> {
        let mut r = Reader::new(&self.ops);
        std::iter::from_fn(move || {
            (!r.is_empty()).then(|| operation(&mut r).expect("a batch reads what it wrote"))
        })
    }
}

fn operation<'a>(r: &mut Reader<'a>) -> Result<StoreWrite<'a>, DecodeError> {
    let table = match r.u8()? {
        1 => Table::Dentry,
        2 => Table::Backptr,
        3 => Table::System,
        tag => return Err(DecodeError::UnknownTag { what: "table", tag: u64::from(tag) }),
    };
    let key_len = r.u16()? as usize;
    let key = r.raw(key_len)?;
    let present = r.bool()?;
    let value = r.bytes(usize::MAX)?;
    Ok((table, key, present.then_some(value)))
}

/// Why a store did not do what was asked. Kinds, not texts; `at` names file and offset.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StoreError {
    #[error("no space left")]
    NoSpace,
    /// A record that must be there is missing or does not match its checksum.
    #[error("{at}: {what}")]
    Damaged { at: String, what: String },
    /// A read, write or sync failed; after a failed write or sync the store is poisoned.
    #[error("{at}: {source}")]
    Io { at: String, source: IoError },
    #[error("poisoned by an earlier failed write or sync")]
    Poisoned,
    /// The stored header is newer than the batch's guard.
    #[error("stored version {stored} is newer than {guard}")]
    Guard { stored: u64, guard: u64 },
    /// The life of the rank that asks was ended: another one may have begun. Nothing of what was asked is done.
    #[error("fenced: the life of the rank was ended")]
    Fenced,
}

impl StoreError {
    /// No file could be opened, for the process or the system has none to give (EMFILE, ENFILE; nothing but opening answers so). Nothing
    /// was read or written: the same may be tried again.
    #[must_use]
    pub const fn finds_no_descriptor(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.is_no_descriptor())
    }
}

const ENFILE: i32 = 23;
const EMFILE: i32 = 24;

/// An operating system error by number, so that store errors can be compared and replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("os error {0}")]
pub struct IoError(pub i32);

impl IoError {
    /// EMFILE or ENFILE: no descriptor was left to open a file with.
    #[must_use]
    pub const fn is_no_descriptor(self) -> bool {
        matches!(self.0, ENFILE | EMFILE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_survive_and_sort_as_records() {
        let dentry = StoreKey::head(Ino(5), NameHash(9), b"name");
        let header = StoreKey::Header { dir: Ino(5), frag: Frag::WHOLE };
        let keys = [
            header,
            dentry,
            StoreKey::Backptr { ino: Ino(7) },
            StoreKey::Session { rank: RankId(0), id: SessionId(1) },
            StoreKey::Session { rank: RankId(3), id: SessionId(1 << 40) },
            StoreKey::Counter { rank: RankId(2) },
            StoreKey::Checkpoint { rank: RankId(2) },
        ];
        for key in keys {
            let mut bytes = Vec::new();
            key.encode(&mut bytes);
            assert_eq!(StoreKey::decode(key.table(), &bytes), Ok(key));
        }
        let (mut a, mut b) = (Vec::new(), Vec::new());
        header.encode(&mut a);
        dentry.encode(&mut b);
        assert!(a < b);
    }

    #[test]
    fn sessions_of_rank_0_have_the_key_of_before_there_were_ranks() {
        let key = |rank, id| {
            let mut bytes = Vec::new();
            StoreKey::Session { rank: RankId(rank), id: SessionId(id) }.encode(&mut bytes);
            bytes
        };
        assert_eq!(key(0, 5), [1, 0, 0, 0, 0, 0, 0, 0, 5]);
        assert_eq!(key(3, 5), [4, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 5]);
        let mut of_rank_0 = key(3, 5);
        of_rank_0[8] = 0;
        for bad in [&of_rank_0[..], &key(3, 5)[..9], &key(3, 5)[..16], &[key(3, 5), vec![0]].concat()] {
            assert!(StoreKey::decode(Table::System, bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_batch_is_read_as_written() {
        let mut batch = StoreBatch::new(Ino(5), Some(Version(1)));
        batch.put(StoreKey::head(Ino(5), NameHash(9), b"a"), |w| {
            w.u8(1);
        });
        batch.delete(StoreKey::head(Ino(5), NameHash(9), b"b"));
        let ops: Vec<_> = batch.iter().map(|(table, _, value)| (table, value.map(<[u8]>::to_vec))).collect();
        assert_eq!(ops, vec![(Table::Dentry, Some(vec![1])), (Table::Dentry, None)]);
        assert_eq!(batch.len(), 2);
    }
}
