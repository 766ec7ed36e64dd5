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
const SECTION_BY_ITSELF: u8 = 12;
const SECTION_TOLD: u8 = 13;

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
    /// It was spread by itself, not as an operator said: so it is merged by itself too. Only its own header says so.
    pub by_itself: bool,
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
        Self { depth: frag.depth, first: Ino(number.0 - before), stamp: 0, by_itself: false }
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
        let numbers = self.first.0 >= Ino::FIRST_COUNTER && self.first.0 >> 63 == 0;
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

    /// The number of the directory's first unit, which it has in no other way of being spread; `Ino::NONE`: it has no units.
    #[must_use]
    pub fn first_unit(&self) -> Ino {
        self.spread().map_or(Ino::NONE, |spread| spread.first)
    }

    /// The unit whose header it is.
    #[must_use]
    pub fn unit(&self) -> Option<Unit> {
        match self.spreading.as_deref() {
            Some(Spreading::Unit(unit)) => Some(*unit),
            Some(Spreading::Over(_)) | None => None,
        }
    }

    /// What whoever has a unit's content adds to its header when another rank is told: the number that it calls the unit by, and how much
    /// was asked of it of late, reads and writes. It is of no header that is kept.
    #[must_use]
    pub fn told(&self) -> Option<(Ino, [u32; 2])> {
        let (_, body) = self.unknown.iter().find(|(tag, _)| *tag == SECTION_TOLD)?;
        let mut r = Reader::new(body);
        let heat = [r.u32().ok()?, r.u32().ok()?];
        Some((Ino(r.u64().ok()?), heat))
    }

    /// Appends the header, and what is told beside it.
    pub fn encode_told(&self, number: Ino, [reads, writes]: [u32; 2], w: &mut Writer) {
        self.encode(w);
        w.u8(SECTION_TOLD).u32(16).u32(reads).u32(writes).u64(number.0);
    }

    /// Appends the header.
    pub fn encode(&self, w: &mut Writer) {
        let mut f = Fixed::<{ 5 + CORE_BYTES }>::new();
        f.u8(SECTION_CORE).u32(CORE_BYTES as u32);
        f.u64(self.version.0).u64(self.entries).u64(self.old_entries).u64(self.subdirs);
        w.fixed(f.i64(self.mtime.0).u64(self.change));
        match self.spreading.as_deref() {
            None => {}
            Some(Spreading::Over(Spread { depth, first, stamp, by_itself })) => {
                w.u8(SECTION_SPREAD).u32(17).u8(*depth).u64(first.0).u64(*stamp);
                if *by_itself {
                    w.u8(SECTION_BY_ITSELF).u32(8).u64(first.0);
                }
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
        let (mut header, mut seen, mut by_itself) = (Self::default(), false, None);
        while !r.is_empty() {
            let tag = r.u8()?;
            let body = r.bytes(1 << 20)?;
            match tag {
                SECTION_CORE => {}
                SECTION_SPREAD | SECTION_UNIT => {
                    header.spreading = Some(Box::new(decode_spreading(tag, body)?));
                    continue;
                }
                SECTION_BY_ITSELF => {
                    by_itself = Some(Ino(Reader::new(body).u64()?));
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
        // Who does not know that section keeps it, also when he spreads the directory anew: it tells of which time it is.
        if let Some(Spreading::Over(spread)) = header.spreading.as_deref_mut() {
            spread.by_itself = by_itself == Some(spread.first);
        }
        if seen { Ok(header) } else { Err(DecodeError::Invalid { what: "frag header without core" }) }
    }
}

fn decode_spreading(tag: u8, body: &[u8]) -> Result<Spreading, DecodeError> {
    let mut r = Reader::new(body);
    let spreading = if tag == SECTION_SPREAD {
        let (depth, first, stamp) = (r.u8()?, Ino(r.u64()?), r.u64()?);
        Spreading::Over(Spread { depth, first, stamp, by_itself: false }.check()?)
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
        let spread = Spread { depth: 3, first: Ino(5000), stamp: 7, by_itself: false };
        for hash in [8, 1 << 61, (1 << 61) - 1, u64::MAX].map(NameHash) {
            let holders: Vec<_> = spread.all().filter(|(_, frag)| frag.covers(hash)).collect();
            assert_eq!(holders, [spread.of(hash)]);
            let (number, frag) = spread.of(hash);
            assert_eq!(Spread::by_unit(number, frag), Spread { stamp: 0, ..spread });
        }
        let unit = Unit { dir: Ino(4999), frag: spread.unit(7).1 };
        let by_itself = Spread { by_itself: true, ..spread };
        for spreading in [Spreading::Over(spread), Spreading::Over(by_itself), Spreading::Unit(unit)] {
            let header = FragHeader { spreading: Some(Box::new(spreading)), ..FragHeader::default() };
            let mut w = Writer::new();
            header.encode(&mut w);
            assert_eq!(FragHeader::decode(&w.0), Ok(header));
        }
    }

    #[test]
    fn odd_spreads_are_refused() {
        let spread = Spread { depth: 1, first: Ino(5000), stamp: 0, by_itself: false };
        let odd = [
            Spreading::Over(Spread { depth: 0, ..spread }),
            Spreading::Over(Spread { depth: 9, ..spread }),
            Spreading::Over(Spread { first: Ino(1 << 63), ..spread }),
            Spreading::Over(Spread { first: Ino::ROOT, ..spread }),
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

    /// Of a directory that was spread anew since, by a version that keeps what it does not know.
    #[test]
    fn of_another_time_it_was_not_spread_by_itself() {
        let spread = Spread { depth: 1, first: Ino(5000), stamp: 2, by_itself: false };
        let kept = (SECTION_BY_ITSELF, 4000_u64.to_le_bytes().into());
        let spreading = Some(Box::new(Spreading::Over(spread)));
        let header = FragHeader { spreading, unknown: vec![kept], ..FragHeader::default() };
        let mut w = Writer::new();
        header.encode(&mut w);
        assert_eq!(FragHeader::decode(&w.0).map(|header| header.spread()), Ok(Some(spread)));
    }

    #[test]
    fn number_and_heat_are_told_beside_it() {
        let header = FragHeader { version: Version(3), entries: 2, ..Default::default() };
        let mut w = Writer::new();
        header.encode_told(Ino(5001), [7, 9], &mut w);
        let told = FragHeader::decode(&w.0).expect("a header");
        assert_eq!((told.told(), told.entries), (Some((Ino(5001), [7, 9])), 2));
        assert_eq!(header.told(), None);
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
