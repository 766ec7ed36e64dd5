//! Answers of a rank that their clients may not have, and whose effect another rank was told with the inode that went there.
//! docs/PROTOCOL.md, "Answers that nobody has heard"; docs/FORMAT.md, mutation 38.
//!
//! Absent: what is told of the inode itself (`holder.rs`).

use crate::cluster::MoveId;
use crate::codec::{DecodeError, Reader, Writer};
use crate::holder::Moved;
use crate::ids::{Ino, SessionId, Tid};
use crate::transact::TxnId;

/// In one list, and the bytes of one answer.
pub const UNHEARD_MAX: usize = 65_536;
const RESULT_BYTES_MAX: usize = 4_096;

/// The answer to a request that opened, closed, locked or unlocked the inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unheard {
    pub session: SessionId,
    pub tid: Tid,
    pub ino: Ino,
    /// An encoded outcome. Nothing: of that request nothing is kept any more.
    pub result: Box<[u8]>,
}

/// When that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// The inode is another rank's.
    Now,
    /// If it leaves with that transaction.
    Transaction(TxnId),
    /// If that move is made.
    Move(MoveId, Moved),
}

impl Unheard {
    /// Bytes in a list.
    #[must_use]
    pub fn bytes(&self) -> usize {
        28 + self.result.len()
    }
}

impl When {
    pub(crate) fn encode(self, w: &mut Writer) {
        match self {
            Self::Now => {
                w.u8(0);
            }
            Self::Transaction(id) => {
                w.u8(1).u64(id.0);
            }
            Self::Move(id, moved) => moved.encode(w.u8(2).u64(id.0)),
        }
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match r.u8()? {
            0 => Self::Now,
            1 => Self::Transaction(TxnId(r.u64()?)),
            2 => Self::Move(MoveId(r.u64()?), Moved::decode(r)?),
            tag => return Err(DecodeError::UnknownTag { what: "unheard answers", tag: u64::from(tag) }),
        })
    }
}

/// Appends a list.
pub fn put_unheard<'a>(list: impl ExactSizeIterator<Item = &'a Unheard>, w: &mut Writer) {
    w.u32(list.len() as u32);
    for Unheard { session, tid, ino, result } in list {
        w.u64(session.0).u64(tid.0).u64(ino.0).bytes(result);
    }
}

/// Takes a list off the front of `r`.
///
/// # Errors
/// `DecodeError` for a cut list, or one that is too long.
pub fn take_unheard(r: &mut Reader<'_>) -> Result<Vec<Unheard>, DecodeError> {
    let count = r.u32()? as usize;
    if count > UNHEARD_MAX {
        return Err(DecodeError::Invalid { what: "count of unheard answers" });
    }
    let one = |r: &mut Reader<'_>| {
        let (session, tid, ino) = (SessionId(r.u64()?), Tid(r.u64()?), Ino(r.u64()?));
        Ok(Unheard { session, tid, ino, result: r.bytes(RESULT_BYTES_MAX)?.into() })
    };
    (0..count).map(|_| one(r)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_survives_and_no_cut_panics() {
        let one = |tid, result: &[u8]| Unheard {
            session: SessionId(7),
            tid: Tid(tid),
            ino: Ino(4_097),
            result: result.into(),
        };
        let list = vec![one(1, b"\x00\x01"), one(2, b"")];
        let mut w = Writer::new();
        put_unheard(list.iter(), &mut w);
        assert_eq!(w.0.len(), 4 + list.iter().map(Unheard::bytes).sum::<usize>());
        assert_eq!(take_unheard(&mut Reader::new(&w.0)), Ok(list));
        for len in 0..w.0.len() {
            assert!(take_unheard(&mut Reader::new(&w.0[..len])).is_err());
        }
        let mut w = Writer::new();
        w.u32(u32::MAX);
        assert!(take_unheard(&mut Reader::new(&w.0)).is_err());
    }
}
