//! Journal mutations: idempotent statements of state. Live execution and replay apply them with one function.
//!
//! Absent: steps ("add one link"); partial changes of a record. Ordinals are never reused; 16 to 31
//! are reserved for link lists and orphan states.

use crate::cluster::{MoveId, Unit};
use crate::codec::{DecodeError, Fixed, Reader, Writer};
use crate::holder::Moved;
use crate::ids::{FileId, Frag, Ino, NameHash, RankId, SessionId, Tid, Version};
use crate::transact::TxnId;
use crate::unheard::When;

/// The most bytes one file's content may have inside a journal record.
pub const REDO_BYTES_MAX: usize = 65_536;
/// The most bytes of what a transaction of several ranks reserves or decides.
const TRANSACTION_BYTES_MAX: usize = 1 << 21;

/// One idempotent statement. Borrowed from the journal buffer it is read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mutation<'a> {
    /// The name leads to this `DentryValue` (encoded).
    PutDentry {
        dir: Ino,
        hash: NameHash,
        version: Version,
        name: &'a [u8],
        value: &'a [u8],
    },
    /// The name is gone.
    DelDentry {
        dir: Ino,
        hash: NameHash,
        version: Version,
        name: &'a [u8],
    },
    /// The frag's header is this `FragHeader` (encoded). `newborn`: the directory was made by this
    /// transaction, so nothing of it is in the store.
    PutHeader {
        dir: Ino,
        frag: Frag,
        version: Version,
        newborn: bool,
        header: &'a [u8],
    },
    /// Where an inode's primary dentry is. Put only if `version` (the inode's linkage version, its
    /// change counter at that moment) is newer.
    PutBackptr {
        ino: Ino,
        version: u64,
        parent: Ino,
        hash: NameHash,
        name: &'a [u8],
    },
    DelBackptr {
        ino: Ino,
        version: u64,
    },
    /// The same of a directory whose content, and the end of that, is another rank's.
    DelPlace {
        ino: Ino,
        version: u64,
    },
    /// A directory is gone whose inode was another rank's: its content, which was empty, ends.
    DelContent {
        dir: Ino,
    },
    /// A client session exists, or is closed.
    Session {
        id: SessionId,
        open: bool,
        client: &'a [u8],
    },
    /// Results of the session below this tid may be forgotten.
    SessionFloor {
        id: SessionId,
        floor: Tid,
    },
    /// Inode numbers of the rank below `next` may have been given out.
    InoCounter {
        rank: RankId,
        next: u64,
    },
    /// The file's data beyond `size` is cut; `truncate_seq` is the cut's number.
    DataCut {
        file: FileId,
        size: u64,
        truncate_seq: u32,
    },
    /// Content of a small file made durable by an fsync: the whole object, `size` bytes.
    DataRedo {
        file: FileId,
        truncate_seq: u32,
        write_seq: u64,
        data: &'a [u8],
    },
    /// All data of the file is to be removed.
    DataRemove {
        file: FileId,
    },
    /// The unit may be another rank's from here on. What earlier transactions of this journal say of it is in the store.
    Sealed {
        id: MoveId,
        unit: Unit,
    },
    /// These names, and the inodes that they have, wait for what becomes of a transaction that another rank leads: `reserved`.
    Prepared {
        id: TxnId,
        leader: RankId,
        parts: &'a [u8],
    },
    /// A transaction of several ranks that this one leads is committed: `decided`, of the others; `left`, inodes that are theirs now.
    Committed {
        id: TxnId,
        decided: &'a [u8],
        left: &'a [u8],
    },
    /// A prepared one is over here, or a committed one everywhere.
    Resolved {
        id: TxnId,
        left: &'a [u8],
    },
    /// What sessions have of inodes that come to this rank with a move: `holders`. `id` 0: they have come. `first`: whatever was said of
    /// this before counts no more.
    Holders {
        id: MoveId,
        moved: Moved,
        first: bool,
        list: &'a [u8],
    },
    /// The session's client has it in its books now, or has nothing of that inode any more.
    HolderGone {
        session: SessionId,
        ino: Ino,
    },
    /// What this rank has answered, and its clients may not have heard, of inodes that leave: `unheard`.
    Unheard {
        when: When,
        list: &'a [u8],
    },
    /// Inode numbers `first` and the `count - 1` after it are the session's to give out.
    DelegateInos {
        id: SessionId,
        first: Ino,
        count: u32,
    },
    /// What is true of the session from here on: `system::session_flags`.
    SessionFlags {
        id: SessionId,
        flags: u8,
    },
}

const PUT_DENTRY: u8 = 1;
const DEL_DENTRY: u8 = 2;
const PUT_HEADER: u8 = 3;
const PUT_BACKPTR: u8 = 4;
const DEL_BACKPTR: u8 = 5;
const SESSION: u8 = 6;
const SESSION_FLOOR: u8 = 7;
const INO_COUNTER: u8 = 8;
const DATA_CUT: u8 = 9;
const DATA_REDO: u8 = 10;
const DATA_REMOVE: u8 = 11;
const SEALED: u8 = 12;
const PREPARED: u8 = 13;
const COMMITTED: u8 = 14;
const RESOLVED: u8 = 15;
const DELEGATE_INOS: u8 = 32;
const SESSION_FLAGS: u8 = 33;
const HOLDERS: u8 = 34;
const HOLDER_GONE: u8 = 35;
const DEL_PLACE: u8 = 36;
const DEL_CONTENT: u8 = 37;
const UNHEARD: u8 = 38;

impl<'a> Mutation<'a> {
    /// Appends the mutation.
    pub fn encode(&self, w: &mut Writer) {
        match *self {
            Self::PutDentry { dir, hash, version, name, value } => {
                put_dentry(w, (dir, hash, version, name), |w| {
                    w.raw(value);
                });
            }
            Self::DelDentry { dir, hash, version, name } => {
                let mut f = Fixed::<25>::new();
                w.fixed(f.u8(DEL_DENTRY).u64(dir.0).u64(hash.0).u64(version.0)).name(name);
            }
            Self::PutHeader { dir, frag, version, newborn, header } => {
                put_header(w, (dir, frag, version, newborn), |w| {
                    w.raw(header);
                });
            }
            Self::PutBackptr { ino, version, parent, hash, name } => {
                w.u8(PUT_BACKPTR).u64(ino.0).u64(version).u64(parent.0).u64(hash.0).name(name);
            }
            Self::DelBackptr { ino, version } => put_numbers(w, DEL_BACKPTR, [ino.0, version]),
            Self::DelPlace { ino, version } => put_numbers(w, DEL_PLACE, [ino.0, version]),
            Self::DelContent { dir } => put_numbers(w, DEL_CONTENT, [dir.0]),
            Self::Session { id, open, client } => {
                w.u8(SESSION).u64(id.0).bool(open).name(client);
            }
            Self::SessionFloor { id, floor } => put_numbers(w, SESSION_FLOOR, [id.0, floor.0]),
            Self::InoCounter { rank, next } => {
                w.u8(INO_COUNTER).u16(rank.0).u64(next);
            }
            Self::DataCut { file, size, truncate_seq } => {
                w.u8(DATA_CUT);
                put_file(w, file);
                w.u64(size).u32(truncate_seq);
            }
            Self::DataRedo { file, truncate_seq, write_seq, data } => {
                w.u8(DATA_REDO);
                put_file(w, file);
                w.u32(truncate_seq).u64(write_seq).bytes(data);
            }
            Self::DataRemove { file } => {
                w.u8(DATA_REMOVE);
                put_file(w, file);
            }
            Self::Sealed { id, unit } => {
                w.u8(SEALED).u64(id.0).u64(unit.dir.0).u64(unit.frag.prefix).u8(unit.frag.depth);
            }
            Self::Prepared { id, leader, parts } => {
                w.u8(PREPARED).u64(id.0).u16(leader.0).bytes(parts);
            }
            Self::Committed { id, decided, left } => {
                w.u8(COMMITTED).u64(id.0).bytes(decided).bytes(left);
            }
            Self::Resolved { id, left } => {
                w.u8(RESOLVED).u64(id.0).bytes(left);
            }
            Self::Holders { id, moved, first, list } => {
                moved.encode(w.u8(HOLDERS).u64(id.0));
                w.bool(first).bytes(list);
            }
            Self::HolderGone { session, ino } => put_numbers(w, HOLDER_GONE, [session.0, ino.0]),
            Self::Unheard { when, list } => {
                when.encode(w.u8(UNHEARD));
                w.bytes(list);
            }
            Self::DelegateInos { id, first, count } => {
                w.u8(DELEGATE_INOS).u64(id.0).u64(first.0).u32(count);
            }
            Self::SessionFlags { id, flags } => {
                w.u8(SESSION_FLAGS).u64(id.0).u8(flags);
            }
        }
    }

    /// Takes one mutation off the front of `r`.
    ///
    /// # Errors
    /// `DecodeError` for an unknown ordinal or a cut body.
    #[inline]
    pub fn decode(r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(match r.u8()? {
            PUT_DENTRY => {
                let (dir, hash, version) = take_place(r)?;
                Self::PutDentry { dir, hash, version, name: r.name()?, value: r.bytes(1 << 20)? }
            }
            DEL_DENTRY => {
                let (dir, hash, version) = take_place(r)?;
                Self::DelDentry { dir, hash, version, name: r.name()? }
            }
            PUT_HEADER => {
                let fixed: &[u8; 26] = r.array()?;
                let mut f = Reader::new(fixed);
                Self::PutHeader {
                    dir: Ino(f.u64()?),
                    frag: Frag { prefix: f.u64()?, depth: f.u8()? },
                    version: Version(f.u64()?),
                    newborn: f.bool()?,
                    header: r.bytes(1 << 16)?,
                }
            }
            PUT_BACKPTR => Self::PutBackptr {
                ino: Ino(r.u64()?),
                version: r.u64()?,
                parent: Ino(r.u64()?),
                hash: NameHash(r.u64()?),
                name: r.name()?,
            },
            DEL_BACKPTR => Self::DelBackptr { ino: Ino(r.u64()?), version: r.u64()? },
            DEL_PLACE => Self::DelPlace { ino: Ino(r.u64()?), version: r.u64()? },
            DEL_CONTENT => Self::DelContent { dir: Ino(r.u64()?) },
            SESSION => Self::Session { id: SessionId(r.u64()?), open: r.bool()?, client: r.name()? },
            SESSION_FLOOR => Self::SessionFloor { id: SessionId(r.u64()?), floor: Tid(r.u64()?) },
            INO_COUNTER => Self::InoCounter { rank: RankId(r.u16()?), next: r.u64()? },
            DATA_CUT => Self::DataCut { file: take_file(r)?, size: r.u64()?, truncate_seq: r.u32()? },
            DATA_REDO => Self::DataRedo {
                file: take_file(r)?,
                truncate_seq: r.u32()?,
                write_seq: r.u64()?,
                data: r.bytes(REDO_BYTES_MAX)?,
            },
            DATA_REMOVE => Self::DataRemove { file: take_file(r)? },
            SEALED => {
                let (id, dir) = (MoveId(r.u64()?), Ino(r.u64()?));
                Self::Sealed { id, unit: Unit { dir, frag: Frag { prefix: r.u64()?, depth: r.u8()? } } }
            }
            PREPARED => Self::Prepared {
                id: TxnId(r.u64()?),
                leader: RankId(r.u16()?),
                parts: r.bytes(TRANSACTION_BYTES_MAX)?,
            },
            COMMITTED => Self::Committed {
                id: TxnId(r.u64()?),
                decided: r.bytes(TRANSACTION_BYTES_MAX)?,
                left: r.bytes(TRANSACTION_BYTES_MAX)?,
            },
            RESOLVED => Self::Resolved { id: TxnId(r.u64()?), left: r.bytes(TRANSACTION_BYTES_MAX)? },
            HOLDERS => Self::Holders {
                id: MoveId(r.u64()?),
                moved: Moved::decode(r)?,
                first: r.bool()?,
                list: r.bytes(TRANSACTION_BYTES_MAX)?,
            },
            HOLDER_GONE => Self::HolderGone { session: SessionId(r.u64()?), ino: Ino(r.u64()?) },
            UNHEARD => Self::Unheard { when: When::decode(r)?, list: r.bytes(TRANSACTION_BYTES_MAX)? },
            DELEGATE_INOS => {
                Self::DelegateInos { id: SessionId(r.u64()?), first: Ino(r.u64()?), count: r.u32()? }
            }
            SESSION_FLAGS => Self::SessionFlags { id: SessionId(r.u64()?), flags: r.u8()? },
            tag => return Err(DecodeError::UnknownTag { what: "mutation", tag: u64::from(tag) }),
        })
    }
}

/// Appends a `PutDentry` whose value is encoded in its place.
pub fn put_dentry(
    w: &mut Writer,
    (dir, hash, version, name): (Ino, NameHash, Version, &[u8]),
    value: impl FnOnce(&mut Writer),
) {
    let mut f = Fixed::<25>::new();
    w.fixed(f.u8(PUT_DENTRY).u64(dir.0).u64(hash.0).u64(version.0)).name(name).sized(value);
}

/// Appends a `PutHeader` whose header is encoded in its place.
pub fn put_header(
    w: &mut Writer,
    (dir, frag, version, newborn): (Ino, Frag, Version, bool),
    header: impl FnOnce(&mut Writer),
) {
    let mut f = Fixed::<27>::new();
    f.u8(PUT_HEADER).u64(dir.0).u64(frag.prefix).u8(frag.depth).u64(version.0).bool(newborn);
    w.fixed(&f).sized(header);
}

fn take_place(r: &mut Reader<'_>) -> Result<(Ino, NameHash, Version), DecodeError> {
    let fixed: &[u8; 24] = r.array()?;
    let mut f = Reader::new(fixed);
    Ok((Ino(f.u64()?), NameHash(f.u64()?), Version(f.u64()?)))
}

fn put_numbers<const N: usize>(w: &mut Writer, ordinal: u8, numbers: [u64; N]) {
    w.u8(ordinal);
    for number in numbers {
        w.u64(number);
    }
}

fn put_file(w: &mut Writer, file: FileId) {
    w.u64(file.ino.0).u32(file.generation);
}

fn take_file(r: &mut Reader<'_>) -> Result<FileId, DecodeError> {
    Ok(FileId { ino: Ino(r.u64()?), generation: r.u32()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<Mutation<'static>> {
        let file = FileId { ino: Ino(4097), generation: 2 };
        let (dir, hash, version) = (Ino::ROOT, NameHash(99), Version(5));
        vec![
            Mutation::PutDentry { dir, hash, version, name: b"a", value: b"v" },
            Mutation::DelDentry { dir, hash, version, name: b"a" },
            Mutation::PutHeader { dir, frag: Frag::WHOLE, version, newborn: true, header: b"h" },
            Mutation::PutBackptr { ino: Ino(4097), version: 3, parent: dir, hash, name: b"a" },
            Mutation::DelBackptr { ino: Ino(4097), version: 4 },
            Mutation::DelPlace { ino: Ino(4097), version: 4 },
            Mutation::DelContent { dir: Ino(4097) },
            Mutation::Session { id: SessionId(1), open: true, client: b"host" },
            Mutation::SessionFloor { id: SessionId(1), floor: Tid(7) },
            Mutation::InoCounter { rank: RankId(0), next: 70_000 },
            Mutation::DataCut { file, size: 10, truncate_seq: 1 },
            Mutation::DataRedo { file, truncate_seq: 1, write_seq: 8, data: b"content" },
            Mutation::DataRemove { file },
            Mutation::Sealed { id: MoveId(3), unit: Unit { dir: Ino(9), frag: Frag::WHOLE } },
            Mutation::Prepared { id: TxnId(4), leader: RankId(1), parts: b"parts" },
            Mutation::Committed { id: TxnId(4), decided: b"changes", left: b"" },
            Mutation::Resolved { id: TxnId(4), left: b"left" },
            Mutation::Holders {
                id: MoveId(3),
                moved: Moved { unit: Unit { dir: Ino(9), frag: Frag::WHOLE }, slot: 5 },
                first: true,
                list: b"list",
            },
            Mutation::HolderGone { session: SessionId(1), ino: Ino(9) },
            Mutation::Unheard { when: When::Now, list: b"list" },
            Mutation::Unheard { when: When::Transaction(TxnId(4)), list: b"" },
            Mutation::Unheard {
                when: When::Move(MoveId(3), Moved { unit: Unit { dir: Ino(9), frag: Frag::WHOLE }, slot: 5 }),
                list: b"list",
            },
            Mutation::DelegateInos { id: SessionId(1), first: Ino(8192), count: 4096 },
            Mutation::SessionFlags { id: SessionId(1), flags: 2 },
        ]
    }

    #[test]
    fn every_mutation_survives_and_no_cut_panics() {
        for mutation in samples() {
            let mut w = Writer::new();
            mutation.encode(&mut w);
            assert_eq!(Mutation::decode(&mut Reader::new(&w.0)), Ok(mutation));
            for len in 0..w.0.len() {
                assert!(Mutation::decode(&mut Reader::new(&w.0[..len])).is_err());
            }
        }
    }
}
