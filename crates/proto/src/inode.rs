//! The inode record: what a primary dentry embeds. Length-prefixed sections; a section this version
//! does not know is kept as bytes and written back unchanged.
//!
//! Absent: a directory's entry count and content times (they are in its frag header), block maps.

mod policies;

pub use policies::{Chance, Placement, Policies, Rules};

use crate::codec::{DecodeError, Fixed, Reader, Writer};
use crate::ids::{Ino, NameHash};
use stdx::Wall;

/// The longest symlink target.
pub const SYMLINK_BYTES_MAX: usize = 4095;
/// The longest xattr value, as Linux's XATTR_SIZE_MAX.
pub const XATTR_VALUE_BYTES_MAX: usize = 65_536;
/// All xattr names and values of one inode together.
pub const XATTR_TOTAL_BYTES_MAX: usize = 65_536;
/// The most names one inode may have, as ext4's limit.
pub const LINKS_MAX: u32 = 65_000;
/// Of all names and xattrs of a file together ([`InodeExt::bytes`]): its record, with one name more, is no longer than the 1 MiB that
/// ranks read of each other's.
pub const EXT_BYTES_MAX: usize = (1 << 20) - (8 << 10);

const SECTION_CORE: u8 = 1;
const SECTION_SYMLINK: u8 = 2;
const SECTION_XATTRS: u8 = 3;
const SECTION_DEVICE: u8 = 4;
const SECTION_LINKS: u8 = 5;
const SECTION_PLACEMENT: u8 = 6;
const CORE_BYTES: usize = 104;

/// Bits of `InodeCore::flags`.
pub mod flags {
    /// The file's data is one packed object (a hint: the data store knows).
    pub const PACKED: u32 = 1;
    /// The size must be probed before others may write (reserved for versions with
    /// write capabilities).
    pub const RECOVERING: u32 = 2;
    /// A truncation is journaled whose data part may not have reached the data store yet.
    pub const CUT_PENDING: u32 = 4;
    /// A backptr of this file exists (it was renamed or linked; directories always have one).
    pub const BACKPTR: u32 = 8;
    /// Of a directory: the slots of the cluster map say whose its content is, unless it has an entry there. Given when it is made.
    pub const SLOTS: u32 = 16;
    /// Of a directory: it was made by a rank that did not own its content. Without a header in the store it is empty.
    pub const NEWBORN: u32 = 32;
}

/// The fixed part of every inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InodeCore {
    pub ino: Ino,
    pub generation: u32,
    /// Type and permission bits.
    pub mode: u32,
    /// Of a directory: unused (2 + subdirectories, from its header).
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    /// Project id (quota); 0 = none.
    pub projid: u32,
    /// Bytes; of a directory unused.
    pub size: u64,
    pub atime: Wall,
    pub mtime: Wall,
    pub ctime: Wall,
    pub btime: Wall,
    /// Grows with every change; with a new incarnation's first change it becomes max(last + 2^20, incarnation × 2^32).
    pub change: u64,
    /// The snapshot sequence this record was first valid under (0 until snapshots exist).
    pub first_snap: u64,
    /// The number of the file's last cut. It grows, by jumps with the rank's incarnation and past numbers spent on cuts that
    /// failed: not a count.
    pub truncate_seq: u32,
    pub flags: u32,
    /// The size of the cut of `truncate_seq` (valid with `CUT_PENDING`).
    pub truncate_size: u64,
}

/// An extended attribute: name and value.
pub type Xattr = (Box<[u8]>, Box<[u8]>);

/// What only some inodes have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InodeExt {
    /// The target of a symlink.
    pub symlink: Option<Box<[u8]>>,
    /// Sorted by name.
    pub xattrs: Vec<Xattr>,
    /// Device number of a device node.
    pub rdev: u32,
    /// The names of a linked inode as (parent, name hash); equal pairs may repeat.
    pub links: Vec<(Ino, NameHash)>,
    /// What was asked for about where a directory's content is to be.
    pub policies: Policies,
    /// Sections of later versions, kept as they are.
    pub unknown: Vec<(u8, Box<[u8]>)>,
}

impl InodeExt {
    /// Bytes in a record of what may be many.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let xattrs = self.xattrs.iter().map(|(name, value)| name.len() + value.len() + 8);
        let unknown = self.unknown.iter().map(|(_, bytes)| bytes.len() + 8);
        16 * self.links.len() + xattrs.chain(unknown).sum::<usize>()
    }

    /// Whether nothing is in it, so that it need not be kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Self { symlink, xattrs, rdev, links, policies, unknown } = self;
        let plain = symlink.is_none() && xattrs.is_empty() && *rdev == 0 && links.is_empty();
        plain && policies.is_empty() && unknown.is_empty()
    }
}

/// A whole inode record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InodeRecord {
    pub core: InodeCore,
    pub ext: Option<Box<InodeExt>>,
}

impl InodeRecord {
    /// Appends the record.
    pub fn encode(&self, w: &mut Writer) {
        encode_inode(&self.core, self.ext.as_deref(), w);
    }

    /// Reads a record that fills `bytes` exactly.
    ///
    /// # Errors
    /// `DecodeError` when a section is cut, over a limit, or the core is missing.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        // Most have none of what it holds: it is begun when something for it is met.
        let (mut core, mut rest) = (None, None::<Box<InodeExt>>);
        while !r.is_empty() {
            let tag = r.u8()?;
            let body = r.bytes(1 << 20)?;
            if tag == SECTION_CORE {
                core = Some(decode_core(Reader::new(body).array()?)?);
                continue;
            }
            let ext = rest.get_or_insert_default();
            match tag {
                SECTION_SYMLINK if body.len() > SYMLINK_BYTES_MAX => {
                    return Err(DecodeError::TooLong { what: "symlink", len: body.len() as u64 });
                }
                SECTION_SYMLINK => ext.symlink = Some(body.into()),
                SECTION_XATTRS => ext.xattrs = decode_xattrs(body)?,
                SECTION_DEVICE => ext.rdev = Reader::new(body).u32()?,
                SECTION_LINKS => ext.links = decode_links(body)?,
                SECTION_PLACEMENT => ext.policies = Policies::decode(body)?,
                _ => ext.unknown.push((tag, body.into())),
            }
        }
        let core = core.ok_or(DecodeError::Invalid { what: "inode without core" })?;
        Ok(Self { core, ext: rest.filter(|ext| !ext.is_empty()) })
    }
}

/// Appends a record from its parts, without building an `InodeRecord`.
pub(crate) fn encode_inode(core: &InodeCore, ext: Option<&InodeExt>, w: &mut Writer) {
    let mut f = Fixed::<{ 5 + CORE_BYTES }>::new();
    f.u8(SECTION_CORE).u32(CORE_BYTES as u32);
    f.u64(core.ino.0).u32(core.generation).u32(core.mode).u32(core.nlink).u32(core.uid).u32(core.gid);
    f.u32(core.projid).u64(core.size);
    f.i64(core.atime.0).i64(core.mtime.0).i64(core.ctime.0).i64(core.btime.0);
    f.u64(core.change).u64(core.first_snap).u32(core.truncate_seq).u32(core.flags).u64(core.truncate_size);
    w.fixed(&f);
    let Some(ext) = ext else { return };
    if let Some(target) = &ext.symlink {
        w.u8(SECTION_SYMLINK).bytes(target);
    }
    if !ext.xattrs.is_empty() {
        section(w, SECTION_XATTRS, |w| {
            for (name, value) in &ext.xattrs {
                w.name(name).bytes(value);
            }
        });
    }
    if ext.rdev != 0 {
        w.u8(SECTION_DEVICE).u32(4).u32(ext.rdev);
    }
    if !ext.links.is_empty() {
        section(w, SECTION_LINKS, |w| {
            for (parent, hash) in &ext.links {
                w.u64(parent.0).u64(hash.0);
            }
        });
    }
    if !ext.policies.is_empty() {
        section(w, SECTION_PLACEMENT, |w| ext.policies.encode(w));
    }
    for (tag, body) in &ext.unknown {
        w.u8(*tag).bytes(body);
    }
}

fn section(w: &mut Writer, tag: u8, body: impl FnOnce(&mut Writer)) {
    w.u8(tag).sized(body);
}

fn decode_core(bytes: &[u8; CORE_BYTES]) -> Result<InodeCore, DecodeError> {
    let mut r = Reader::new(bytes);
    Ok(InodeCore {
        ino: Ino(r.u64()?),
        generation: r.u32()?,
        mode: r.u32()?,
        nlink: r.u32()?,
        uid: r.u32()?,
        gid: r.u32()?,
        projid: r.u32()?,
        size: r.u64()?,
        atime: Wall(r.i64()?),
        mtime: Wall(r.i64()?),
        ctime: Wall(r.i64()?),
        btime: Wall(r.i64()?),
        change: r.u64()?,
        first_snap: r.u64()?,
        truncate_seq: r.u32()?,
        flags: r.u32()?,
        truncate_size: r.u64()?,
    })
}

fn decode_xattrs(body: &[u8]) -> Result<Vec<Xattr>, DecodeError> {
    let mut r = Reader::new(body);
    let mut xattrs = Vec::new();
    while !r.is_empty() {
        xattrs.push((r.name()?.into(), r.bytes(XATTR_VALUE_BYTES_MAX)?.into()));
    }
    Ok(xattrs)
}

fn decode_links(body: &[u8]) -> Result<Vec<(Ino, NameHash)>, DecodeError> {
    let mut r = Reader::new(body);
    let mut links = Vec::new();
    while !r.is_empty() {
        links.push((Ino(r.u64()?), NameHash(r.u64()?)));
    }
    Ok(links)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Mask;
    use crate::ids::RankId;
    use std::collections::BTreeMap;

    fn policies() -> Policies {
        let all = Rules {
            random: Chance::new(0.25),
            placement: Some(Placement::Hash),
            mask: Some(Mask::NONE.with(RankId(200))),
        };
        Policies {
            pin: Some(RankId(3)),
            distributed: true,
            own: all,
            taken: Rules { placement: Some(Placement::Subtree), ..all },
            unknown: vec![(9, b"later"[..].into())],
        }
    }

    fn sample() -> InodeRecord {
        let core =
            InodeCore { ino: Ino(4096), mode: 0o100_644, size: 7, mtime: Wall(-5), ..Default::default() };
        let ext = InodeExt {
            symlink: Some(b"target"[..].into()),
            xattrs: vec![(b"user.a"[..].into(), b"1"[..].into())],
            rdev: 9,
            links: vec![(Ino::ROOT, NameHash(77))],
            policies: policies(),
            unknown: vec![(200, b"later"[..].into())],
        };
        InodeRecord { core, ext: Some(Box::new(ext)) }
    }

    #[test]
    fn a_record_survives_with_sections_it_does_not_know() {
        let mut w = Writer::new();
        sample().encode(&mut w);
        assert_eq!(InodeRecord::decode(&w.0), Ok(sample()));
    }

    #[test]
    fn every_cut_is_refused_or_a_shorter_record() {
        let mut w = Writer::new();
        sample().encode(&mut w);
        // Where each section ends, and what is there by then.
        let mut ends = BTreeMap::new();
        let mut part = InodeRecord { core: sample().core, ext: None };
        let whole = sample().ext.expect("a sample of everything");
        let mut more: [&mut dyn FnMut(&mut InodeExt); 6] = [
            &mut |ext| ext.symlink = whole.symlink.clone(),
            &mut |ext| ext.xattrs = whole.xattrs.clone(),
            &mut |ext| ext.rdev = whole.rdev,
            &mut |ext| ext.links = whole.links.clone(),
            &mut |ext| ext.policies = whole.policies.clone(),
            &mut |ext| ext.unknown = whole.unknown.clone(),
        ];
        let mut note = |part: &InodeRecord| {
            let mut w = Writer::new();
            part.encode(&mut w);
            ends.insert(w.0.len(), part.clone());
        };
        note(&part);
        for add in &mut more {
            add(part.ext.get_or_insert_default());
            note(&part);
        }
        assert_eq!((ends.len(), ends.get(&w.0.len())), (7, Some(&sample())));
        for len in 0..=w.0.len() {
            let read = InodeRecord::decode(&w.0[..len]);
            assert_eq!(read.as_ref().ok(), ends.get(&len), "cut at {len}: {read:?}");
        }
    }
}
