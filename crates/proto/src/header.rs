//! The frag header: absolute counts and content times of one dirfrag.
//!
//! Absent: inode fields of the directory; those are in its dentry. Recursive totals and quotas have
//! reserved sections and no code yet.

use crate::codec::{DecodeError, Fixed, Reader, Writer};
use crate::ids::Version;
use stdx::Wall;

const CORE_BYTES: usize = 48;
const SECTION_CORE: u8 = 1;

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
    /// Sections of later versions, kept as they are.
    pub unknown: Vec<(u8, Box<[u8]>)>,
}

impl FragHeader {
    /// Appends the header.
    pub fn encode(&self, w: &mut Writer) {
        let mut f = Fixed::<{ 5 + CORE_BYTES }>::new();
        f.u8(SECTION_CORE).u32(CORE_BYTES as u32);
        f.u64(self.version.0).u64(self.entries).u64(self.old_entries).u64(self.subdirs);
        w.fixed(f.i64(self.mtime.0).u64(self.change));
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
            if tag != SECTION_CORE {
                header.unknown.push((tag, body.into()));
                continue;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survives() {
        let header =
            FragHeader { version: Version(3), entries: 2, subdirs: 1, change: 9, ..Default::default() };
        let mut w = Writer::new();
        header.encode(&mut w);
        assert_eq!(FragHeader::decode(&w.0), Ok(header));
    }
}
