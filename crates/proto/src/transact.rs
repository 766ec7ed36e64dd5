//! Transactions of several ranks: what their leader asks the other ranks for, what those tell and what they are to change.
//! docs/PROTOCOL.md, "Transactions of several ranks".
//!
//! Absent: who decides what (crate `mds`).

use crate::codec::{DecodeError, Reader, Writer};
use crate::holder::{HOLDERS_MAX, Holder, put_holders, take_holders};
use crate::ids::{Ino, NameHash, NodeRef, RankId, SessionId};
use crate::name::Name;
use stdx::Wall;

/// The most bytes of a record.
const RECORD_BYTES_MAX: usize = 1 << 20;
/// The most parts, and changes, of one rank.
pub const ITEMS_MAX: u32 = 16;
/// The most bytes of the holders of one inode that leaves its rank: they are told with a vote, and in the entry that decides.
pub const CARRIED_BYTES_MAX: usize = 1 << 18;

/// One transaction of several ranks, or one try of it: unique while the file system lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TxnId(pub u64);

/// What of a rank a transaction is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// A name in a directory whose content is there. `leaves`: if the inode is in it, it gets another home. `synced`: its data is to
    /// be durable, as it is where it leaves.
    Name { parent: NodeRef, name: Name, leaves: bool, synced: bool },
    /// An inode whose home is there; it gets another one, unless it is in `//links`. No directory. `limit`: what the session that asks is
    /// limited to, or NONE; the home looks whether it is inside.
    Inode { node: NodeRef, limit: Ino, session: SessionId },
    /// The way up from a directory whose home is there, as far as homes are there: whether `moved` is on it, and where it goes on. It
    /// is reserved by nobody.
    Above { node: NodeRef, moved: Ino },
    /// Whether that rank has all of these sessions. It is reserved by nobody.
    Sessions { rank: RankId, sessions: Vec<SessionId> },
    /// The whole content of a directory that is to go, which is there. What its home knows: whether slots place it, and whether it is
    /// empty if the store has no header of it.
    Content { dir: Ino, placed: bool, newborn: bool },
}

/// What `Seen` has as value of a directory's content: names are in it.
pub const HAS_NAMES: u8 = 1;
/// The same: it is in parts.
pub const IN_PARTS: u8 = 2;

impl Part {
    /// Whether it is told once more when all others are reserved.
    #[must_use]
    pub const fn is_way(&self) -> bool {
        match self {
            Self::Above { .. } => true,
            Self::Name { .. } | Self::Inode { .. } | Self::Sessions { .. } | Self::Content { .. } => false,
        }
    }

    /// Whether a rank that told this with its vote holds it, and has to hear what becomes of it.
    #[must_use]
    pub fn is_held(&self, seen: &Seen) -> bool {
        match self {
            Self::Content { .. } => seen.value.is_empty(),
            Self::Name { .. } | Self::Inode { .. } => true,
            Self::Above { .. } | Self::Sessions { .. } => false,
        }
    }

    /// Whether a rank may reserve it.
    #[must_use]
    pub const fn is_reserved(&self) -> bool {
        match self {
            Self::Name { .. } | Self::Inode { .. } | Self::Content { .. } => true,
            Self::Above { .. } | Self::Sessions { .. } => false,
        }
    }
}

/// What a rank tells of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The directory's own record: the value of a primary dentry. Of an inode's part, and of a directory of the system's: nothing.
    pub parent: Box<[u8]>,
    /// The place of the name. Of a way up: the directory with which it goes on, the root, or the moved one, whichever it meets first.
    pub dir: Ino,
    pub name: Name,
    /// What it leads to: a dentry's value. Nothing: the name does not exist. Of a way up: nothing. Of sessions: nothing if all are there. Of
    /// content: nothing if it is empty.
    pub value: Box<[u8]>,
    /// Who has the inode open or locked, if it leaves.
    pub holders: Vec<Holder>,
}

/// What a rank changes when a transaction is committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The name leads to that: a dentry's value.
    Put { dir: Ino, name: Name, value: Box<[u8]> },
    /// The name is gone.
    Delete { dir: Ino, name: Name },
    /// The counts of the directory, or of the part of it that this hash is in, change by that; with a time its listing changes.
    Header { dir: Ino, hash: NameHash, entries: i64, subdirs: i64, mtime: Option<Wall> },
    /// The inode's primary dentry is there.
    Backptr { ino: Ino, version: u64, parent: Ino, name: Name },
    /// The inode is another rank's from here on; its primary dentry is there.
    Left(Left),
    /// The inode in `//links` loses this name.
    Lose { ino: Ino, parent: Ino, hash: NameHash },
    /// The inode comes there, and these have it open or locked: nobody else.
    Holders { ino: Ino, list: Vec<Holder> },
    /// The directory is gone, and its empty content with it.
    Vacate { dir: Ino },
}

/// What the leader says, or is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Take back what clients keep of these parts, and tell what they are.
    Clear { since: Wall, parts: Vec<Part> },
    /// Reserve them, and tell what they are. `map`: by an older map of the cluster that is not to be done; 0: by any. `hasty`: they were not
    /// cleared.
    Prepare { since: Wall, map: u64, hasty: bool, parts: Vec<Part> },
    /// It is committed: carry this out.
    Commit { changes: Vec<Change> },
    /// It is given up.
    Abort,
    /// To the leader: is it given up?
    Ask,
}

/// A name that waits for what becomes of a transaction, and the inode that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserved {
    pub dir: Ino,
    pub hash: NameHash,
    /// None: there is no such name, or its inode is in `//links`. The directory itself: all names in it.
    pub ino: Ino,
}

impl Reserved {
    /// All names of a directory, there or not.
    #[must_use]
    pub const fn content(dir: Ino) -> Self {
        Self { dir, hash: NameHash(0), ino: dir }
    }

    /// Whether it is all names of the directory: none is in itself.
    #[must_use]
    pub fn is_content(&self) -> bool {
        self.ino == self.dir && self.dir != Ino::NONE
    }

    /// Whether a name is in both.
    #[must_use]
    pub fn meets(&self, other: &Self) -> bool {
        self.dir == other.dir && (self.hash == other.hash || self.is_content() || other.is_content())
    }
}

/// An inode that is another rank's from here on, and the place of its primary dentry there: what this rank has said of that before
/// is not to be stored any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    pub ino: Ino,
    pub parent: Ino,
    pub hash: NameHash,
}

/// What each of the other ranks has to change.
pub type Decided = Vec<(RankId, Vec<Change>)>;

impl Part {
    fn encode(&self, w: &mut Writer) {
        match self {
            Self::Name { parent, name, leaves, synced } => {
                parent.encode(w.u8(1));
                w.name(name.as_bytes()).bool(*leaves).bool(*synced);
            }
            Self::Inode { node, limit, session } => {
                node.encode(w.u8(2));
                w.u64(limit.0).u64(session.0);
            }
            Self::Above { node, moved } => {
                node.encode(w.u8(3));
                w.u64(moved.0);
            }
            Self::Sessions { rank, sessions } => {
                w.u8(4).u16(rank.0).u32(sessions.len() as u32);
                for session in sessions {
                    w.u64(session.0);
                }
            }
            Self::Content { dir, placed, newborn } => {
                w.u8(5).u64(dir.0).bool(*placed).bool(*newborn);
            }
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match r.u8()? {
            1 => Self::Name {
                parent: NodeRef::decode(r)?,
                name: name(r)?,
                leaves: r.bool()?,
                synced: r.bool()?,
            },
            2 => {
                Self::Inode { node: NodeRef::decode(r)?, limit: Ino(r.u64()?), session: SessionId(r.u64()?) }
            }
            3 => Self::Above { node: NodeRef::decode(r)?, moved: Ino(r.u64()?) },
            4 => {
                let (rank, count) = (RankId(r.u16()?), r.u32()? as usize);
                if count > HOLDERS_MAX {
                    return Err(DecodeError::Invalid { what: "count of sessions" });
                }
                let sessions = (0..count).map(|_| r.u64().map(SessionId)).collect::<Result<_, _>>()?;
                Self::Sessions { rank, sessions }
            }
            5 => Self::Content { dir: Ino(r.u64()?), placed: r.bool()?, newborn: r.bool()? },
            tag => return Err(DecodeError::UnknownTag { what: "part", tag: u64::from(tag) }),
        })
    }
}

impl Seen {
    /// Appends the wire form.
    pub fn encode(&self, w: &mut Writer) {
        w.bytes(&self.parent).u64(self.dir.0).name(self.name.as_bytes()).bytes(&self.value);
        put_holders(self.holders.iter(), w);
    }

    /// Reads the wire form.
    ///
    /// # Errors
    /// `DecodeError` for a cut body or an impossible name.
    pub fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            parent: r.bytes(RECORD_BYTES_MAX)?.into(),
            dir: Ino(r.u64()?),
            name: name(r)?,
            value: r.bytes(RECORD_BYTES_MAX)?.into(),
            holders: take_holders(r)?,
        })
    }
}

impl Left {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.ino.0).u64(self.parent.0).u64(self.hash.0);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { ino: Ino(r.u64()?), parent: Ino(r.u64()?), hash: NameHash(r.u64()?) })
    }
}

impl Change {
    fn encode(&self, w: &mut Writer) {
        match self {
            Self::Put { dir, name, value } => {
                w.u8(1).u64(dir.0).name(name.as_bytes()).bytes(value);
            }
            Self::Delete { dir, name } => {
                w.u8(2).u64(dir.0).name(name.as_bytes());
            }
            Self::Header { dir, hash, entries, subdirs, mtime } => {
                w.u8(3).u64(dir.0).u64(hash.0).i64(*entries).i64(*subdirs);
                w.option(mtime.as_ref(), |w, mtime| {
                    w.i64(mtime.0);
                });
            }
            Self::Backptr { ino, version, parent, name } => {
                w.u8(4).u64(ino.0).u64(*version).u64(parent.0).name(name.as_bytes());
            }
            Self::Left(left) => left.encode(w.u8(6)),
            Self::Lose { ino, parent, hash } => {
                w.u8(5).u64(ino.0).u64(parent.0).u64(hash.0);
            }
            Self::Holders { ino, list } => put_holders(list.iter(), w.u8(7).u64(ino.0)),
            Self::Vacate { dir } => {
                w.u8(8).u64(dir.0);
            }
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match r.u8()? {
            1 => Self::Put { dir: Ino(r.u64()?), name: name(r)?, value: r.bytes(RECORD_BYTES_MAX)?.into() },
            2 => Self::Delete { dir: Ino(r.u64()?), name: name(r)? },
            3 => Self::Header {
                dir: Ino(r.u64()?),
                hash: NameHash(r.u64()?),
                entries: r.i64()?,
                subdirs: r.i64()?,
                mtime: r.option(|r| r.i64().map(Wall))?,
            },
            4 => {
                Self::Backptr { ino: Ino(r.u64()?), version: r.u64()?, parent: Ino(r.u64()?), name: name(r)? }
            }
            5 => Self::Lose { ino: Ino(r.u64()?), parent: Ino(r.u64()?), hash: NameHash(r.u64()?) },
            6 => Self::Left(Left::decode(r)?),
            7 => Self::Holders { ino: Ino(r.u64()?), list: take_holders(r)? },
            8 => Self::Vacate { dir: Ino(r.u64()?) },
            tag => return Err(DecodeError::UnknownTag { what: "change", tag: u64::from(tag) }),
        })
    }
}

impl Step {
    /// Appends the wire form.
    pub fn encode(&self, w: &mut Writer) {
        match self {
            Self::Clear { since, parts } => {
                w.u8(1).i64(since.0);
                list(parts, w, Part::encode);
            }
            Self::Prepare { since, map, hasty, parts } => {
                w.u8(2).i64(since.0).u64(*map).bool(*hasty);
                list(parts, w, Part::encode);
            }
            Self::Commit { changes } => put_changes(changes, w.u8(3)),
            Self::Abort => {
                w.u8(4);
            }
            Self::Ask => {
                w.u8(5);
            }
        }
    }

    /// Reads the wire form.
    ///
    /// # Errors
    /// `DecodeError` for an unknown step, a cut body, or more parts than there can be.
    pub fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match r.u8()? {
            1 => Self::Clear { since: Wall(r.i64()?), parts: take_list(r, Part::decode)? },
            2 => Self::Prepare {
                since: Wall(r.i64()?),
                map: r.u64()?,
                hasty: r.bool()?,
                parts: take_list(r, Part::decode)?,
            },
            3 => Self::Commit { changes: take_changes(r)? },
            4 => Self::Abort,
            5 => Self::Ask,
            tag => return Err(DecodeError::UnknownTag { what: "step", tag: u64::from(tag) }),
        })
    }
}

/// Appends a rank's changes.
pub fn put_changes(changes: &[Change], w: &mut Writer) {
    list(changes, w, Change::encode);
}

/// Reads them.
///
/// # Errors
/// `DecodeError` for an unknown change, a cut body, or more of them than there can be.
pub fn take_changes(r: &mut Reader<'_>) -> Result<Vec<Change>, DecodeError> {
    take_list(r, Change::decode)
}

/// Appends what a rank tells of its parts, in their order.
pub fn put_seen(seen: &[Seen], w: &mut Writer) {
    list(seen, w, Seen::encode);
}

/// Reads it.
///
/// # Errors
/// `DecodeError` for a cut body, or more parts than there can be.
pub fn take_seen(r: &mut Reader<'_>) -> Result<Vec<Seen>, DecodeError> {
    take_list(r, Seen::decode)
}

/// Appends what a transaction reserves.
pub fn put_reserved(parts: &[Reserved], w: &mut Writer) {
    list(parts, w, |part, w| {
        w.u64(part.dir.0).u64(part.hash.0).u64(part.ino.0);
    });
}

/// Reads it.
///
/// # Errors
/// `DecodeError` for a cut body, or more parts than there can be.
pub fn take_reserved(r: &mut Reader<'_>) -> Result<Vec<Reserved>, DecodeError> {
    take_list(r, |r| Ok(Reserved { dir: Ino(r.u64()?), hash: NameHash(r.u64()?), ino: Ino(r.u64()?) }))
}

/// Appends inodes that left.
pub fn put_left(left: &[Left], w: &mut Writer) {
    list(left, w, Left::encode);
}

/// Reads them.
///
/// # Errors
/// `DecodeError` for a cut body, or more inodes than there can be.
pub fn take_left(r: &mut Reader<'_>) -> Result<Vec<Left>, DecodeError> {
    take_list(r, Left::decode)
}

/// Appends what a transaction comes to.
pub fn put_decided(decided: &[(RankId, Vec<Change>)], w: &mut Writer) {
    list(decided, w, |(rank, changes), w| put_changes(changes, w.u16(rank.0)));
}

/// Reads it.
///
/// # Errors
/// `DecodeError` for a cut body, or more ranks or changes than there can be.
pub fn take_decided(r: &mut Reader<'_>) -> Result<Decided, DecodeError> {
    take_list(r, |r| Ok((RankId(r.u16()?), take_changes(r)?)))
}

fn list<T>(items: &[T], w: &mut Writer, put: impl Fn(&T, &mut Writer)) {
    w.u32(items.len() as u32);
    items.iter().for_each(|item| put(item, w));
}

fn take_list<T>(
    r: &mut Reader<'_>,
    take: impl Fn(&mut Reader<'_>) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    let count = r.u32()?;
    if count > ITEMS_MAX {
        return Err(DecodeError::Invalid { what: "parts of a transaction" });
    }
    (0..count).map(|_| take(r)).collect()
}

fn name(r: &mut Reader<'_>) -> Result<Name, DecodeError> {
    Name::new(r.name()?).map_err(|_| DecodeError::Invalid { what: "name" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_survives_and_no_cut_panics() {
        let name = || Name::new(b"a").expect("a name");
        let (node, since) = (NodeRef::bare(Ino(4097)), Wall(7));
        let parts = || {
            vec![
                Part::Name { parent: node, name: name(), leaves: true, synced: false },
                Part::Inode { node, limit: Ino(4100), session: SessionId(11) },
                Part::Above { node, moved: Ino(4099) },
                Part::Sessions { rank: RankId(2), sessions: vec![SessionId(7), SessionId(9)] },
                Part::Content { dir: Ino(4098), placed: true, newborn: false },
            ]
        };
        let (dir, ino) = (Ino(4098), Ino(4097));
        let changes = vec![
            Change::Put { dir, name: name(), value: [1, 2].into() },
            Change::Delete { dir, name: name() },
            Change::Header { dir, hash: NameHash(9), entries: -1, subdirs: 1, mtime: Some(since) },
            Change::Header { dir, hash: NameHash(0), entries: 0, subdirs: 0, mtime: None },
            Change::Backptr { ino, version: 3, parent: dir, name: name() },
            Change::Lose { ino, parent: dir, hash: NameHash(99) },
            Change::Left(Left { ino, parent: dir, hash: NameHash(99) }),
            Change::Holders { ino, list: vec![Holder { ino, opens: 2, ..Holder::default() }] },
            Change::Vacate { dir },
        ];
        let steps = [
            Step::Clear { since, parts: parts() },
            Step::Prepare { since, map: 9, hasty: true, parts: parts() },
            Step::Commit { changes },
            Step::Abort,
            Step::Ask,
        ];
        for step in steps {
            let mut w = Writer::new();
            step.encode(&mut w);
            assert_eq!(Step::decode(&mut Reader::new(&w.0)), Ok(step));
            for len in 0..w.0.len() {
                assert!(Step::decode(&mut Reader::new(&w.0[..len])).is_err());
            }
        }
    }
}
