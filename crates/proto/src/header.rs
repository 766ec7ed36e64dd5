//! The frag header: absolute counts and content times of one dirfrag.
//!
//! Absent: inode fields of the directory; those are in its dentry. Recursive totals and quotas have
//! reserved sections and no code yet.

use crate::cluster::Unit;
use crate::codec::{DecodeError, Fixed, Reader, Writer};
use crate::ids::{Frag, Ino, NameHash, Version};
use stdx::Wall;

const CORE_BYTES: usize = 48;
const SECTION_CORE: u8 = 1;
const SECTION_SPREAD: u8 = 10;
const SECTION_UNIT: u8 = 11;

/// The deepest spread: 256 units.
pub const SPREAD_DEPTH_MAX: u8 = 8;

/// How a directory is spread: each unit has the names whose hashes begin with its number's bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    /// 1 to `SPREAD_DEPTH_MAX`.
    pub depth: u8,
    /// The number by which the rank that has the first unit calls its content; the others follow. Each is an inode number that no
    /// inode ever has.
    pub first: Ino,
    /// The sum of the units' change counters when the header's own time of modification was set; as long as it is that, this time
    /// is the directory's.
    pub stamp: u64,
}

impl Spread {
    /// Number of units.
    #[must_use]
    pub const fn units(&self) -> u64 {
        1 << self.depth
    }

    /// The unit of that number.
    #[must_use]
    pub const fn unit(&self, number: u64) -> (Ino, Frag) {
        let prefix = number << (64 - self.depth as u32);
        (Ino(self.first.0 + number), Frag { prefix, depth: self.depth })
    }

    /// How the directory is spread that has that unit under that number. It says nothing of the time.
    #[must_use]
    pub const fn by_unit(number: Ino, frag: Frag) -> Self {
        let before = frag.prefix >> (64 - frag.depth as u32);
        Self { depth: frag.depth, first: Ino(number.0 - before), stamp: 0 }
    }

    /// The unit that the hash is in.
    #[must_use]
    pub const fn of(&self, hash: NameHash) -> (Ino, Frag) {
        self.unit(hash.0 >> (64 - self.depth as u32))
    }

    /// All of them, in the order of hashes.
    pub fn all(self) -> impl Iterator<Item = (Ino, Frag)> {
        (0..self.units()).map(move |number| self.unit(number))
    }

    fn check(self) -> Result<Self, DecodeError> {
        let depth = (1..=SPREAD_DEPTH_MAX).contains(&self.depth);
        let numbers = !self.first.is_reserved() && self.first.0 >> 63 == 0;
        if depth && numbers { Ok(self) } else { Err(DecodeError::Invalid { what: "spread of a directory" }) }
    }
}

/// What a header says of units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spreading {
    /// The directory has no names itself; its units have them.
    Over(Spread),
    /// The header is that of this unit.
    Unit(Unit),
}

/// The header of one dirfrag. In the store, every mutation of the frag at or below `version` is in
/// the store; records may be newer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FragHeader {
    /// Low-water version in the store; the frag's version at that moment in the journal.
    pub version: Version,
    /// Entries of HEAD, subdirectories included.
    pub entries: u64,
    /// Entries kept only for snapshots (0 until they exist).
    pub old_entries: u64,
    /// Subdirectories among `entries`.
    pub subdirs: u64,
    /// When an entry last came, went or was replaced.
    pub mtime: Wall,
    /// Grows with every change of the listing.
    pub change: u64,
    /// None: of a directory that has no units.
    pub spreading: Option<Box<Spreading>>,
    /// Sections of later versions, kept as they are.
    pub unknown: Vec<(u8, Box<[u8]>)>,
}

impl FragHeader {
    /// How the directory is spread.
    #[must_use]
    pub fn spread(&self) -> Option<Spread> {
        match self.spreading.as_deref() {
            Some(Spreading::Over(spread)) => Some(*spread),
            Some(Spreading::Unit(_)) | None => None,
        }
    }

    /// The unit whose header it is.
    #[must_use]
    pub fn unit(&self) -> Option<Unit> {
        match self.spreading.as_deref() {
            Some(Spreading::Unit(unit)) => Some(*unit),
            Some(Spreading::Over(_)) | None => None,
        }
    }

    /// Appends the header.
    pub fn encode(&self, w: &mut Writer) {
        let mut f = Fixed::<{ 5 + CORE_BYTES }>::new();
        f.u8(SECTION_CORE).u32(CORE_BYTES as u32);
        f.u64(self.version.0).u64(self.entries).u64(self.old_entries).u64(self.subdirs);
        w.fixed(f.i64(self.mtime.0).u64(self.change));
        match self.spreading.as_deref() {
            None => {}
            Some(Spreading::Over(Spread { depth, first, stamp })) => {
                w.u8(SECTION_SPREAD).u32(17).u8(*depth).u64(first.0).u64(*stamp);
            }
            Some(Spreading::Unit(Unit { dir, frag })) => {
                w.u8(SECTION_UNIT).u32(17).u64(dir.0).u64(frag.prefix).u8(frag.depth);
            }
        }
        for (tag, body) in &self.unknown {
            w.u8(*tag).bytes(body);
        }
    }

    /// Reads a header that fills `bytes` exactly.
    ///
    /// # Errors
    /// `DecodeError` when a section is cut or the core is missing.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let (mut header, mut seen) = (Self::default(), false);
        while !r.is_empty() {
            let tag = r.u8()?;
            let body = r.bytes(1 << 20)?;
            match tag {
                SECTION_CORE => {}
                SECTION_SPREAD | SECTION_UNIT => {
                    header.spreading = Some(Box::new(decode_spreading(tag, body)?));
                    continue;
                }
                _ => {
                    header.unknown.push((tag, body.into()));
                    continue;
                }
            }
            let core: &[u8; CORE_BYTES] = Reader::new(body).array()?;
            let mut b = Reader::new(core);
            header.version = Version(b.u64()?);
            header.entries = b.u64()?;
            header.old_entries = b.u64()?;
            header.subdirs = b.u64()?;
            header.mtime = Wall(b.i64()?);
            header.change = b.u64()?;
            seen = true;
        }
        if seen { Ok(header) } else { Err(DecodeError::Invalid { what: "frag header without core" }) }
    }
}

fn decode_spreading(tag: u8, body: &[u8]) -> Result<Spreading, DecodeError> {
    let mut r = Reader::new(body);
    let spreading = if tag == SECTION_SPREAD {
        let (depth, first, stamp) = (r.u8()?, Ino(r.u64()?), r.u64()?);
        Spreading::Over(Spread { depth, first, stamp }.check()?)
    } else {
        let unit = Unit { dir: Ino(r.u64()?), frag: Frag { prefix: r.u64()?, depth: r.u8()? } };
        let Frag { prefix, depth } = unit.frag;
        if !(1..=SPREAD_DEPTH_MAX).contains(&depth) || Frag::leading(NameHash(prefix), depth) != unit.frag {
            return Err(DecodeError::Invalid { what: "unit of a directory" });
        }
        Spreading::Unit(unit)
    };
    r.finish()?;
    Ok(spreading)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_have_all_hashes_between_them_and_headers_of_them_survive() {
        let spread = Spread { depth: 3, first: Ino(5000), stamp: 7 };
        for hash in [8, 1 << 61, (1 << 61) - 1, u64::MAX].map(NameHash) {
            let holders: Vec<_> = spread.all().filter(|(_, frag)| frag.covers(hash)).collect();
            assert_eq!(holders, [spread.of(hash)]);
            let (number, frag) = spread.of(hash);
            assert_eq!(Spread::by_unit(number, frag), Spread { stamp: 0, ..spread });
        }
        let unit = Unit { dir: Ino(4999), frag: spread.unit(7).1 };
        for spreading in [Spreading::Over(spread), Spreading::Unit(unit)] {
            let header = FragHeader { spreading: Some(Box::new(spreading)), ..FragHeader::default() };
            let mut w = Writer::new();
            header.encode(&mut w);
            assert_eq!(FragHeader::decode(&w.0), Ok(header));
        }
    }

    #[test]
    fn odd_spreads_are_refused() {
        let odd = [
            Spreading::Over(Spread { depth: 0, first: Ino(5000), stamp: 0 }),
            Spreading::Over(Spread { depth: 9, first: Ino(5000), stamp: 0 }),
            Spreading::Over(Spread { depth: 1, first: Ino(1 << 63), stamp: 0 }),
            Spreading::Over(Spread { depth: 1, first: Ino::ROOT, stamp: 0 }),
            Spreading::Unit(Unit { dir: Ino(5000), frag: Frag { prefix: 1, depth: 1 } }),
            Spreading::Unit(Unit { dir: Ino(5000), frag: Frag::WHOLE }),
        ];
        for spreading in odd {
            let header = FragHeader { spreading: Some(Box::new(spreading)), ..FragHeader::default() };
            let mut w = Writer::new();
            header.encode(&mut w);
            assert!(FragHeader::decode(&w.0).is_err(), "{spreading:?}");
        }
    }

    #[test]
    fn survives() {
        let header =
            FragHeader { version: Version(3), entries: 2, subdirs: 1, change: 9, ..Default::default() };
        let mut w = Writer::new();
        header.encode(&mut w);
        assert_eq!(FragHeader::decode(&w.0), Ok(header));
    }
}
