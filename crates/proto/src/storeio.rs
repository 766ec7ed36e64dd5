//! What a rank asks of the stores, as values, and the keys of the metadata store.
//!
//! Absent: the stores themselves. The rank never sees one; its driver does.

use crate::codec::{DecodeError, Reader, Writer};
use crate::ids::{FileId, Frag, Ino, NameHash, Rank, SessionId, SnapId, Version};
use std::fmt;
use std::sync::Arc;
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
    Dentry { dir: Ino, hash: NameHash, name: &'a [u8], snap: SnapId },
    Header { dir: Ino, frag: Frag },
    Backptr { ino: Ino },
    Session { id: SessionId },
    Counter { rank: Rank },
    Checkpoint { rank: Rank },
}

const SYSTEM_SESSION: u8 = 1;
const SYSTEM_COUNTER: u8 = 2;
const SYSTEM_CHECKPOINT: u8 = 3;

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
            Self::Session { id } => system(out, SYSTEM_SESSION, id.0),
            Self::Counter { rank } => system(out, SYSTEM_COUNTER, u64::from(rank.0)),
            Self::Checkpoint { rank } => system(out, SYSTEM_CHECKPOINT, u64::from(rank.0)),
        }
    }

    /// Reads a key of `table`.
    ///
    /// # Errors
    /// `DecodeError` when the bytes are not such a key.
    pub fn decode(table: Table, bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let (number, rest) = match table {
            Table::System => (0, bytes),
            Table::Dentry | Table::Backptr => split_be(bytes)?,
        };
        match table {
            Table::Backptr if rest.is_empty() => Ok(Self::Backptr { ino: Ino(number) }),
            Table::Backptr => Err(DecodeError::Invalid { what: "backptr key" }),
            Table::Dentry => decode_dentry(Ino(number), rest),
            Table::System => {
                let (tag, rest) = rest.split_first().ok_or(DecodeError::Truncated { need: 9, have: 0 })?;
                let (id, rest) = split_be(rest)?;
                match (*tag, u16::try_from(id).map(Rank), rest.is_empty()) {
                    (SYSTEM_SESSION, _, true) => Ok(Self::Session { id: SessionId(id) }),
                    (SYSTEM_COUNTER, Ok(rank), true) => Ok(Self::Counter { rank }),
                    (SYSTEM_CHECKPOINT, Ok(rank), true) => Ok(Self::Checkpoint { rank }),
                    _ => Err(DecodeError::Invalid { what: "system key" }),
                }
            }
        }
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
    /// Every session record (only at boot).
    Sessions,
    Counter {
        rank: Rank,
    },
    Checkpoint {
        rank: Rank,
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

/// Writes of one shard (a directory, an inode's backptr, or the system records) that reach the
/// store together or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreBatch {
    pub shard: Ino,
    /// Refuse the batch if the stored header of this directory has a higher version: a late write
    /// of an old owner must never overwrite a newer one's state.
    pub guard: Option<Version>,
    /// Flat: `table u8 | key len u16 | key | present u8 | value len u32 | value`, repeated; read with
    /// `StoreBatch::iter`, written with `put` and `delete`. Sorted by key where the writer can.
    ops: Vec<u8>,
    count: u32,
}

/// Most records with their keys fit.
const RECORD_BYTES: usize = 192;

impl StoreBatch {
    /// An empty batch for `shard`.
    #[must_use]
    pub const fn new(shard: Ino, guard: Option<Version>) -> Self {
        Self { shard, guard, ops: Vec::new(), count: 0 }
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
        debug_assert_eq!(key.shard(), self.shard);
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

    /// The operations as (table, key bytes, value or `None` for delete), in the order added.
    pub fn iter(&self) -> impl Iterator<Item = (Table, &[u8], Option<&[u8]>)> {
        let mut r = Reader::new(&self.ops);
        std::iter::from_fn(move || {
            let table = match r.u8().ok()? {
                1 => Table::Dentry,
                2 => Table::Backptr,
                _ => Table::System,
            };
            let key_len = r.u16().ok()? as usize;
            let key = r.raw(key_len).ok()?;
            let present = r.bool().ok()?;
            let value = r.bytes(usize::MAX).ok()?;
            Some((table, key, present.then_some(value)))
        })
    }
}

/// The cut a data operation runs under: a file's last truncation. An object last written under an
/// older `seq` is first cut to `size`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    pub seq: u32,
    pub size: u64,
}

/// One operation on file data. Offsets are bytes in the file; the data store splits into blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataOp {
    Write {
        file: FileId,
        cut: Cut,
        offset: u64,
        data: Payload,
    },
    /// Exactly `len` bytes from `offset`; zeros where never written.
    Read {
        file: FileId,
        cut: Cut,
        offset: u64,
        len: u32,
        /// Filled instead of memory of its own where it is there and long enough.
        into: Option<Buffer>,
    },
    /// Physically drop everything beyond `cut.size`.
    Truncate {
        file: FileId,
        cut: Cut,
    },
    /// Zeros in the range; with `punch`, free the space.
    Zero {
        file: FileId,
        cut: Cut,
        offset: u64,
        len: u64,
        punch: bool,
    },
    /// Reserve space so that later writes in the range cannot fail with ENOSPC.
    Allocate {
        file: FileId,
        cut: Cut,
        offset: u64,
        len: u64,
    },
    Copy {
        source: FileId,
        source_cut: Cut,
        source_offset: u64,
        target: FileId,
        target_cut: Cut,
        target_offset: u64,
        len: u64,
    },
    /// The first offset >= `offset` (and < `size`) that is data, or hole.
    Seek {
        file: FileId,
        cut: Cut,
        offset: u64,
        size: u64,
        hole: bool,
    },
    /// Make durable what was written. A small file may come back as `Redo` instead: the caller then
    /// makes it durable in the journal.
    Sync {
        file: FileId,
    },
    /// Everything written before this operation, of all files.
    SyncAll,
    /// At replay: the content of a small file, unless the store already has something newer.
    Redo {
        file: FileId,
        truncate_seq: u32,
        write_seq: u64,
        data: Vec<u8>,
    },
    Remove {
        file: FileId,
    },
    /// Space and file counts of the store.
    StatFs,
}

impl DataOp {
    /// Whether it frees space or makes data durable: such an operation may use what is kept back for a full disk.
    #[must_use]
    pub const fn may_use_ballast(&self) -> bool {
        matches!(
            self,
            Self::Remove { .. }
                | Self::Truncate { .. }
                | Self::Sync { .. }
                | Self::SyncAll
                | Self::Redo { .. }
        )
    }
}

/// File content on its way.
#[derive(Clone, Debug)]
pub enum Payload {
    Owned(Vec<u8>),
    /// Bytes that stay where they are, such as in a buffer of the kernel's transport; whoever lent them
    /// gets them back when the last clone is dropped, and the caller its answer: no clone may outlive the
    /// request. On the wire they are bytes like others.
    Lent(Lent),
}

/// See `Payload::Lent`.
#[derive(Clone)]
pub struct Lent(Arc<dyn AsRef<[u8]> + Send + Sync>);

impl Lent {
    /// Lends what `owner` refers to, the same bytes at each call.
    pub fn new(owner: Arc<dyn AsRef<[u8]> + Send + Sync>) -> Self {
        Self(owner)
    }
}

impl fmt::Debug for Lent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lent({} bytes)", (*self.0).as_ref().len())
    }
}

/// A buffer of the asker's, such as one of the kernel's transport, that the answer to a read may be put
/// straight into. It never travels: on the wire a read has none.
#[derive(Clone)]
pub struct Buffer(Arc<dyn FillOnce>);

/// What `Buffer` refers to. As bytes it is what was filled, nothing before.
pub trait FillOnce: AsRef<[u8]> + Send + Sync {
    /// Lets `fill` write the first `len` bytes, of undefined content, and say whether it did. False, without
    /// `fill` being called, where the buffer is shorter or `fill` of an earlier call ran.
    fn fill(&self, len: usize, fill: &mut dyn FnMut(&mut [u8]) -> bool) -> bool;
}

impl Buffer {
    pub fn new(owner: Arc<dyn FillOnce>) -> Self {
        Self(owner)
    }

    /// Has `fill` write `len` bytes and lends them; `None`, without `fill` having run, where the buffer cannot
    /// take them.
    ///
    /// # Errors
    /// That of `fill`.
    pub fn fill<E>(
        &self,
        len: usize,
        mut fill: impl FnMut(&mut [u8]) -> Result<(), E>,
    ) -> Result<Option<Payload>, E> {
        let mut result = Ok(());
        let filled = self.0.fill(len, &mut |bytes| {
            result = fill(bytes);
            result.is_ok()
        });
        result.map(|()| filled.then(|| Payload::Lent(Lent(self.0.clone()))))
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Buffer")
    }
}

/// Where an answer goes is no part of the question.
impl PartialEq for Buffer {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Buffer {}

impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Owned(bytes)
    }
}

impl Payload {
    /// The content.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Owned(bytes) => bytes,
            Self::Lent(lent) => (*lent.0).as_ref(),
        }
    }

    /// Bytes of content.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.bytes().len() as u64
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Equal content, wherever it is.
impl PartialEq for Payload {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for Payload {}

/// Space of a store in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    pub total: u64,
    pub free: u64,
    /// What an unprivileged user may still use.
    pub available: u64,
}

/// The answer to a `DataOp`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataDone {
    /// Bytes written, zeroed, or copied.
    Count(u64),
    Bytes(Payload),
    /// `None`: no such data (ENXIO).
    Offset(Option<u64>),
    Done,
    /// For Sync: journal this content; the store keeps it until the next `SyncAll` has returned.
    Redo {
        truncate_seq: u32,
        write_seq: u64,
        data: Vec<u8>,
    },
    Space(Space),
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
}

/// An operating system error by number, so that store errors can be compared and replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("os error {0}")]
pub struct IoError(pub i32);

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
            StoreKey::Session { id: SessionId(1) },
            StoreKey::Counter { rank: Rank(2) },
            StoreKey::Checkpoint { rank: Rank(2) },
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
