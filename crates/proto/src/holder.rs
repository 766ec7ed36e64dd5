//! What a session has of an inode at the rank where its home is, opens and locks, as it goes with the inode to another rank.
//! docs/PROTOCOL.md, "The move of a directory"; docs/FORMAT.md, mutation 34.
//!
//! Absent: what a client tells of it by itself (`Reclaim`).

use crate::cluster::Unit;
use crate::codec::{DecodeError, Reader, Writer};
use crate::ids::{Frag, Ino, NameHash, SessionId};
use crate::request::LockSpec;

/// Holders in one list: a list goes into one request, and into one mutation. A longer one is refused (`DecodeError::Invalid`).
pub const HOLDERS_MAX: usize = 4_096;
/// Bytes of all holders of one list (`Holder::bytes`), without its count: who says more says it in several lists. Whoever reads is bounded by the
/// message, and by `HOLDERS_MAX` and `LOCKS_MAX`.
pub const HOLDERS_BYTES_MAX: usize = 1 << 20;
/// Locks of one holder: so many have room in one list.
pub const LOCKS_MAX: usize = 32_768;
const _: () = assert!(42 + 30 * LOCKS_MAX <= HOLDERS_BYTES_MAX);

/// One session's opens and locks of one inode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    pub session: SessionId,
    pub ino: Ino,
    /// Where it is: a hint, as in a `NodeRef`.
    pub parent: Ino,
    pub hash: NameHash,
    pub opens: u32,
    /// The permission bits that were checked when it was opened.
    pub rights: u8,
    /// One of the opens may be for writing.
    pub writes: bool,
    pub locks: Vec<LockSpec>,
}

impl Holder {
    /// Bytes in a list.
    #[must_use]
    pub fn bytes(&self) -> usize {
        42 + 30 * self.locks.len()
    }

    fn encode(&self, w: &mut Writer) {
        w.u64(self.session.0).u64(self.ino.0).u64(self.parent.0).u64(self.hash.0);
        w.u32(self.opens).u8(self.rights).bool(self.writes);
        w.u32(self.locks.len() as u32);
        self.locks.iter().for_each(|lock| lock.encode(w));
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (session, ino) = (SessionId(r.u64()?), Ino(r.u64()?));
        let (parent, hash, opens) = (Ino(r.u64()?), NameHash(r.u64()?), r.u32()?);
        let (rights, writes, count) = (r.u8()?, r.bool()?, r.u32()? as usize);
        if count > LOCKS_MAX {
            return Err(DecodeError::Invalid { what: "count of locks" });
        }
        let locks = (0..count).map(|_| LockSpec::decode(r)).collect::<Result<_, _>>()?;
        Ok(Self { session, ino, parent, hash, opens, rights, writes, locks })
    }
}

/// Appends a list.
pub fn put_holders<'a>(list: impl ExactSizeIterator<Item = &'a Holder>, w: &mut Writer) {
    w.u32(list.len() as u32);
    list.for_each(|holder| holder.encode(w));
}

/// Takes a list off the front of `r`.
///
/// # Errors
/// `DecodeError` for a cut list, or one that is too long.
pub fn take_holders(r: &mut Reader<'_>) -> Result<Vec<Holder>, DecodeError> {
    let count = r.u32()? as usize;
    if count > HOLDERS_MAX {
        return Err(DecodeError::Invalid { what: "count of holders" });
    }
    (0..count).map(|_| Holder::decode(r)).collect()
}

/// What moves: a unit, or, if its directory is `Ino::NONE`, the run of slots of which that is the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moved {
    pub unit: Unit,
    pub slot: u16,
}

impl Moved {
    pub(crate) fn encode(&self, w: &mut Writer) {
        w.u64(self.unit.dir.0).u64(self.unit.frag.prefix).u8(self.unit.frag.depth).u16(self.slot);
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (dir, frag) = (Ino(r.u64()?), Frag { prefix: r.u64()?, depth: r.u8()? });
        Ok(Self { unit: Unit { dir, frag }, slot: r.u16()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::LockKind;

    #[test]
    fn a_list_survives_and_no_cut_panics() {
        let lock = LockSpec { flock: false, owner: 7, kind: LockKind::Write, start: 3, end: 9, pid: 1 };
        let holder = |session, locks| Holder {
            session: SessionId(session),
            ino: Ino(4_097),
            parent: Ino(4_096),
            hash: NameHash(77),
            opens: 2,
            rights: 6,
            writes: true,
            locks,
        };
        let list = vec![holder(1, vec![lock; 3]), holder(2, Vec::new())];
        let mut w = Writer::new();
        put_holders(list.iter(), &mut w);
        assert_eq!(w.0.len(), 4 + list.iter().map(Holder::bytes).sum::<usize>());
        assert_eq!(take_holders(&mut Reader::new(&w.0)), Ok(list));
        for len in 0..w.0.len() {
            assert!(take_holders(&mut Reader::new(&w.0[..len])).is_err());
        }
        let mut w = Writer::new();
        w.u32(u32::MAX);
        assert!(take_holders(&mut Reader::new(&w.0)).is_err());
    }
}
