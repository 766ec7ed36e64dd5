//! Capabilities: their classes and modes, what one held by a session excludes for all others, and how grants travel.
//!
//! Absent: who holds what (`mds`), what a kernel is told (`fuse`). docs/CAPABILITIES.md explains the classes.

use crate::codec::{DecodeError, Reader, Writer};
use crate::ids::Ino;
use crate::name::Name;

/// A set of capabilities on one inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bits(pub u16);

impl Bits {
    pub const NONE: Self = Self(0);
    /// Mode, owner and ACL stay as told (S: shared).
    pub const AS: Self = Self(1);
    /// And nobody else reads them either (X: exclusive). The other classes pair up the same way.
    pub const AX: Self = Self(1 << 1);
    /// The name and the links stay.
    pub const LS: Self = Self(1 << 2);
    /// Exclusive.
    pub const LX: Self = Self(1 << 3);
    /// Extended attributes stay, absent ones included.
    pub const XS: Self = Self(1 << 4);
    /// Exclusive.
    pub const XX: Self = Self(1 << 5);
    /// Size and times stay; of a directory its times and counts.
    pub const FS: Self = Self(1 << 6);
    /// Exclusive.
    pub const FX: Self = Self(1 << 7);
    /// The file is open for reading.
    pub const FR: Self = Self(1 << 8);
    /// The file is open for writing.
    pub const FW: Self = Self(1 << 9);
    /// Pages may be cached.
    pub const FC: Self = Self(1 << 10);
    /// Pages may be written late.
    pub const FB: Self = Self(1 << 11);
    /// Of a directory: it is known what names are there.
    pub const DS: Self = Self(1 << 12);
    /// Of a directory: names are made and removed before the rank has heard of it.
    pub const DX: Self = Self(1 << 13);
    /// A file delegated to a session, which writes it by itself. As Ls Xs come with it, and do not run out before it.
    pub const ALONE: Self = Self(Self::FX.0 | Self::FB.0);
    /// What a session that has it uses by itself, without asking the rank: what came of that is `Performed`, and goes before it when
    /// it is given back.
    pub const DELEGATED: Self = Self(Self::DS.0 | Self::DX.0 | Self::ALONE.0);
    /// What a kernel's one timeout for all attributes needs.
    pub const ATTRS: Self = Self(Self::AS.0 | Self::LS.0 | Self::XS.0 | Self::FS.0);
    /// Every one there is.
    pub const ALL: Self = Self((1 << 14) - 1);

    /// Both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// What is in both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether all of `other` is in it.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// What no other session may hold while one holds these.
    #[must_use]
    pub const fn excludes(self) -> Self {
        let mut excluded = Self::NONE;
        let mut at = 0;
        while at < EXCLUDES.len() {
            if !self.and(EXCLUDES[at].0).is_empty() {
                excluded = excluded.with(EXCLUDES[at].1);
            }
            at += 1;
        }
        excluded
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let bits = Self(r.u16()?);
        if Self::ALL.has(bits) { Ok(bits) } else { Err(DecodeError::Invalid { what: "capability bits" }) }
    }
}

const fn set(list: &[Bits]) -> Bits {
    let mut bits = Bits::NONE;
    let mut at = 0;
    while at < list.len() {
        bits = bits.with(list[at]);
        at += 1;
    }
    bits
}

/// Held by one session: excluded for all others. Symmetric; a test compares the halves.
const EXCLUDES: [(Bits, Bits); 14] = [
    (Bits::AS, Bits::AX),
    (Bits::AX, set(&[Bits::AS, Bits::AX])),
    (Bits::LS, Bits::LX),
    (Bits::LX, set(&[Bits::LS, Bits::LX])),
    (Bits::XS, Bits::XX),
    (Bits::XX, set(&[Bits::XS, Bits::XX])),
    (Bits::FS, set(&[Bits::FX, Bits::FB, Bits::DX])),
    (Bits::FX, set(&[Bits::FS, Bits::FX, Bits::FR, Bits::FC, Bits::FB, Bits::DX])),
    (Bits::FR, set(&[Bits::FX, Bits::FB])),
    (Bits::FW, set(&[Bits::FC, Bits::FB])),
    (Bits::FC, set(&[Bits::FX, Bits::FW, Bits::FB])),
    (Bits::FB, set(&[Bits::FS, Bits::FX, Bits::FR, Bits::FW, Bits::FC, Bits::FB])),
    (Bits::DS, set(&[Bits::DX])),
    (Bits::DX, set(&[Bits::DS, Bits::DX, Bits::FS, Bits::FX])),
];

/// What an answer grants of the inodes whose attributes it carries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Grants {
    #[default]
    None,
    /// Of the one inode.
    One(Bits),
    /// Of a listing: for each entry, in its order.
    Each(Box<[Bits]>),
}

impl Grants {
    /// What is granted of the `at`th inode of the answer.
    #[must_use]
    pub fn of(&self, at: usize) -> Bits {
        match self {
            Self::None => Bits::NONE,
            Self::One(bits) => *bits,
            Self::Each(all) => all.get(at).copied().unwrap_or_default(),
        }
    }

    pub(crate) fn encode(&self, w: &mut Writer) {
        match self {
            Self::None => {
                w.u32(0);
            }
            Self::One(bits) => {
                w.u32(1).u16(bits.0);
            }
            Self::Each(all) => {
                w.u32(all.len() as u32);
                for bits in all {
                    w.u16(bits.0);
                }
            }
        }
    }

    /// `listing`: the answer is one.
    pub(crate) fn decode(r: &mut Reader<'_>, listing: bool) -> Result<Self, DecodeError> {
        let count = r.u32()?;
        let all = (0..count).map(|_| Bits::decode(r)).collect::<Result<Box<[Bits]>, _>>()?;
        match (&*all, listing) {
            ([], _) => Ok(Self::None),
            (_, true) => Ok(Self::Each(all)),
            ([one], false) => Ok(Self::One(*one)),
            _ => Err(DecodeError::Invalid { what: "grants" }),
        }
    }
}

/// The rank takes back: what its session holds of it must go, a name that goes is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recalled {
    pub ino: Ino,
    pub bits: Bits,
    /// Of this recall, among those from this session.
    pub number: u32,
    /// The directory and the name.
    pub name: Option<(Ino, Name)>,
}

impl Recalled {
    /// The answer to it, with what is in use no more.
    #[must_use]
    pub const fn returned(&self, bits: Bits) -> Returned {
        Returned { ino: self.ino, bits, number: self.number }
    }

    pub(crate) fn encode(&self, w: &mut Writer) {
        w.u64(self.ino.0).u16(self.bits.0).u32(self.number);
        match &self.name {
            None => {
                w.u8(0);
            }
            Some((dir, name)) => {
                w.u8(1).u64(dir.0);
                w.name(name.as_bytes());
            }
        }
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (ino, bits, number) = (Ino(r.u64()?), Bits::decode(r)?, r.u32()?);
        let name = if r.bool()? {
            let dir = Ino(r.u64()?);
            Some((dir, Name::new(r.name()?).map_err(|_| DecodeError::Invalid { what: "name" })?))
        } else {
            None
        };
        Ok(Self { ino, bits, number, name })
    }
}

/// The answer to a `Recalled`: these are in use no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Returned {
    pub ino: Ino,
    pub bits: Bits,
    /// That of the recall.
    pub number: u32,
}

impl Returned {
    /// Whether something of it was used without asking.
    #[must_use]
    pub const fn is_delegated(&self) -> bool {
        !self.bits.and(Bits::DELEGATED).is_empty()
    }

    pub(crate) fn encode(self, w: &mut Writer) {
        w.u64(self.ino.0).u16(self.bits.0).u32(self.number);
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { ino: Ino(r.u64()?), bits: Bits::decode(r)?, number: r.u32()? })
    }
}

/// Inodes that a client may offer in one message.
pub const IDLE_MAX: usize = 1_024;

/// Names and attributes are kept no longer than this after the answer came, in milliseconds.
pub const KEEP_MS: u64 = 2_000;
/// Nor longer than this after they were asked for: an answer that lay in a buffer is old.
pub const KEEP_ASKED_MS: u64 = 2_500;
/// A kernel counts from when it takes an answer in: after as much more it has nothing left.
pub const KEEP_MARGIN_MS: u64 = 500;
/// In the server's process instead of `KEEP_MS`: client and rank die together, so nobody has to wait out what is left.
pub const KEEP_EMBEDDED_MS: u64 = 20_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn single() -> impl Iterator<Item = Bits> {
        (0..14).map(|at| Bits(1 << at))
    }

    #[test]
    fn exclusion_is_symmetric() {
        for a in single() {
            for b in single() {
                assert_eq!(a.excludes().has(b), b.excludes().has(a), "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn readers_share_and_each_exclusive_one_stands_alone() {
        let shared = Bits::ATTRS.with(Bits::FR).with(Bits::FC).with(Bits::DS);
        assert!(shared.excludes().and(shared).is_empty());
        for bit in [Bits::AX, Bits::LX, Bits::XX, Bits::FX, Bits::FB, Bits::DX] {
            assert!(bit.excludes().has(bit), "{bit:?}");
        }
        assert!(!Bits::FW.excludes().has(Bits::FW), "several may write through the rank");
        assert!(Bits::FW.excludes().has(Bits::FC));
    }
}
