//! What the values of the metadata tables mean, read from docs/FORMAT.md.
//!
//! Absent: the server's decoders, and anything a check does not need; changing values (`edit.rs`).

use crate::bytes::Bytes;
use crate::finding::Kind;
use crate::fix::Edit;

/// The system's directories.
pub(crate) const ROOT: u64 = 1;
pub(crate) const LINKS: u64 = 2;
pub(crate) const SYSTEM: u64 = 3;
/// `//orphans` of rank 0; that of rank R has the number R higher.
pub(crate) const ORPHANS: u64 = 0x100;
/// Ranks are numbered from 0 to one less.
pub(crate) const RANKS: u16 = 256;
pub(crate) const FIRST_COUNTER: u64 = 4096;

/// Packed, recovering, cut pending, backptr, placed by slots, newborn.
pub(crate) const FLAGS_KNOWN: u32 = 1 | 2 | 4 | 8 | 16 | 32;
pub(crate) const FLAG_BACKPTR: u32 = 8;
pub(crate) const FLAG_BY_SLOTS: u32 = 16;
pub(crate) const FLAG_NEWBORN: u32 = 32;
const XATTRS_BYTES_MAX: usize = 65_536;
const SYMLINK_BYTES_MAX: usize = 4095;

pub(crate) const DIRECTORY: u8 = 4;
pub(crate) const REGULAR: u8 = 8;
pub(crate) const SYMLINK: u8 = 10;
const CHARACTER: u8 = 2;
const BLOCK: u8 = 6;

/// Of a header.
const SECTION_SPREAD: u8 = 10;
pub(crate) const SECTION_UNIT: u8 = 11;
/// The deepest spread.
const SPREAD_DEPTH_MAX: u8 = 8;
pub(crate) const SECTION_CORE: u8 = 1;
const SECTION_SYMLINK: u8 = 2;
pub(crate) const SECTION_XATTRS: u8 = 3;
const SECTION_DEVICE: u8 = 4;
pub(crate) const SECTION_LINKS: u8 = 5;

/// What a check needs of a dentry.
pub(crate) enum Dentry {
    Primary(Inode),
    Remote { ino: u64, kind: u8 },
}

/// What a check needs of an inode.
#[derive(Default)]
pub(crate) struct Inode {
    pub(crate) ino: u64,
    pub(crate) generation: u32,
    pub(crate) kind: u8,
    pub(crate) nlink: u32,
    pub(crate) size: u64,
    pub(crate) change: u64,
    pub(crate) flags: u32,
    /// (parent, hash) of each name of a linked inode.
    pub(crate) links: Vec<(u64, u64)>,
}

/// A part of a directory's names: those whose hashes begin with the first `depth` bits of `prefix`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Frag {
    pub(crate) prefix: u64,
    pub(crate) depth: u8,
}

impl Frag {
    pub(crate) const WHOLE: Self = Self { prefix: 0, depth: 0 };

    /// Number `number` of 2^`depth`.
    pub(crate) const fn unit(depth: u8, number: u64) -> Self {
        Self { prefix: number << (64 - depth as u32), depth }
    }

    /// Whether it is one of those that a spread directory can have.
    pub(crate) const fn is_unit(self) -> bool {
        let Self { prefix, depth } = self;
        depth >= 1 && depth <= SPREAD_DEPTH_MAX && prefix << depth == 0
    }

    pub(crate) const fn covers(self, hash: u64) -> bool {
        self.depth == 0 || (hash ^ self.prefix) >> (64 - self.depth as u32) == 0
    }
}

/// What a check needs of a frag header.
#[derive(Clone, Copy)]
pub(crate) struct Header {
    pub(crate) version: u64,
    pub(crate) entries: u64,
    pub(crate) subdirs: u64,
    /// The directory's names are in 2^so many units.
    pub(crate) spread: Option<u8>,
    /// It is that of this unit of this directory.
    pub(crate) unit: Option<(u64, Frag)>,
}

/// What is wrong inside a readable record, and what would put it right (`None`: nothing would).
pub(crate) type Wrong = Vec<(Kind, String, Option<Edit>)>;

/// Reads a dentry; what is wrong inside a readable one goes to `wrong`.
pub(crate) fn dentry(value: &[u8], wrong: &mut Wrong) -> Option<Dentry> {
    let mut b = Bytes(value);
    match b.u8()? {
        1 => match inode(b.0, wrong) {
            Some(inode) => Some(Dentry::Primary(inode)),
            None => {
                wrong.clear();
                wrong.push((Kind::InodeUnreadable, String::new(), None));
                None
            }
        },
        2 => {
            let (ino, kind) = (b.u64()?, b.u8()?);
            b.is_empty().then_some(Dentry::Remote { ino, kind })
        }
        _ => None,
    }
}

pub(crate) const fn is_kind(kind: u8) -> bool {
    matches!(kind, 1 | 2 | 4 | 6 | 8 | 10 | 12)
}

fn inode(bytes: &[u8], wrong: &mut Wrong) -> Option<Inode> {
    let mut b = Bytes(bytes);
    let mut inode: Option<Inode> = None;
    let (mut target, mut device, mut links) = (None, 0, Vec::new());
    while !b.is_empty() {
        let (tag, body) = (b.u8()?, b.bytes()?);
        match tag {
            SECTION_CORE => inode = Some(read_core(body, wrong)?),
            SECTION_SYMLINK => target = Some(body),
            SECTION_XATTRS => check_xattrs(body, wrong),
            SECTION_DEVICE => device = Bytes(body).u32()?,
            SECTION_LINKS => {
                let mut pairs = Bytes(body);
                while !pairs.is_empty() {
                    links.push((pairs.u64()?, pairs.u64()?));
                }
            }
            _ => {}
        }
    }
    let mut inode = inode?;
    inode.links = links;
    let ino = inode.ino;
    let place = || format!("inode {ino:x}");
    match (inode.kind == SYMLINK, target) {
        (true, Some(target)) if (1..=SYMLINK_BYTES_MAX).contains(&target.len()) => {}
        (true, _) => wrong.push((Kind::SymlinkWithoutTarget, place(), None)),
        (false, Some(_)) => {
            // A record whose type was lost, but which has a target, was a symlink.
            let edit =
                if is_kind(inode.kind) { Edit::DropSection(SECTION_SYMLINK) } else { Edit::Kind(SYMLINK) };
            wrong.push((Kind::TargetOnNonSymlink, place(), Some(edit)));
        }
        (false, None) => {}
    }
    if device != 0 && inode.kind != CHARACTER && inode.kind != BLOCK {
        wrong.push((Kind::DeviceOnNonDevice, place(), Some(Edit::DropSection(SECTION_DEVICE))));
    }
    Some(inode)
}

fn read_core(body: &[u8], wrong: &mut Wrong) -> Option<Inode> {
    let mut b = Bytes(body);
    let (ino, generation, mode, nlink) = (b.u64()?, b.u32()?, b.u32()?, b.u32()?);
    // Owner, group, project.
    b.take(4 * 3)?;
    let size = b.u64()?;
    // Four times.
    b.take(8 * 4)?;
    let change = b.u64()?;
    let _first_snap = b.u64()?;
    let (_truncate_seq, flags) = (b.u32()?, b.u32()?);
    let _truncate_size = b.u64()?;
    let kind = if mode >> 16 == 0 { (mode >> 12) as u8 } else { 0 };
    if !is_kind(kind) {
        wrong.push((Kind::TypeInvalid, format!("inode {ino:x}, mode {mode:o}"), Some(Edit::Kind(REGULAR))));
    }
    if !is_ino(ino) {
        wrong.push((Kind::InodeNumberInvalid, format!("inode {ino:x}"), None));
    }
    if size >> 63 != 0 {
        wrong.push((Kind::SizeInvalid, format!("inode {ino:x}, size {size}"), Some(Edit::Size(0))));
    }
    if flags & !FLAGS_KNOWN != 0 {
        wrong.push((Kind::FlagsUnknown, format!("inode {ino:x}, flags {flags:#x}"), Some(Edit::Flags)));
    }
    Some(Inode { ino, generation, kind, nlink, size, change, flags, links: Vec::new() })
}

/// The rank whose `//orphans` has this number.
pub(crate) const fn orphans_of(ino: u64) -> Option<u16> {
    if ino >= ORPHANS && ino < ORPHANS + RANKS as u64 { Some((ino - ORPHANS) as u16) } else { None }
}

/// Whether it is some rank's `//orphans`.
pub(crate) const fn is_orphans(ino: u64) -> bool {
    orphans_of(ino).is_some()
}

/// The `//orphans` of a rank above 0, which the header of `//` does not count.
pub(crate) const fn is_later_orphans(ino: u64) -> bool {
    ino != ORPHANS && is_orphans(ino)
}

/// The rank that gave the number out.
pub(crate) const fn rank_of(ino: u64) -> u16 {
    (ino >> 48) as u16
}

/// Whether an inode can have this number: one that a rank gave out, or a system directory's with a dentry.
pub(crate) const fn is_ino(ino: u64) -> bool {
    let system = ino == ROOT || ino == LINKS || is_orphans(ino);
    ino >> 63 == 0 && (system || ino & 0xFFFF_FFFF_FFFF >= FIRST_COUNTER)
}

fn check_xattrs(body: &[u8], wrong: &mut Wrong) {
    let mut b = Bytes(body);
    let mut last: Option<&[u8]> = None;
    let mut total = 0;
    while !b.is_empty() {
        let (Some(name), Some(value)) = (b.name(), b.bytes()) else {
            wrong.push((Kind::XattrsInvalid, "cut".into(), Some(Edit::DropSection(SECTION_XATTRS))));
            return;
        };
        total += name.len() + value.len();
        if name.is_empty() || last.is_some_and(|last| last >= name) {
            let text = format!("name {}", name.escape_ascii());
            wrong.push((Kind::XattrsInvalid, text, Some(Edit::SortXattrs)));
        }
        last = Some(name);
    }
    if total > XATTRS_BYTES_MAX {
        wrong.push((Kind::XattrsInvalid, format!("{total} bytes"), Some(Edit::DropSection(SECTION_XATTRS))));
    }
}

/// Reads a frag header.
pub(crate) fn header(value: &[u8]) -> Option<Header> {
    let mut b = Bytes(value);
    let (mut header, mut spread, mut unit) = (None, None, None);
    while !b.is_empty() {
        let (tag, body) = (b.u8()?, b.bytes()?);
        let mut section = Bytes(body);
        match tag {
            SECTION_CORE => {
                let (version, entries, _old, subdirs) =
                    (section.u64()?, section.u64()?, section.u64()?, section.u64()?);
                section.take(16)?;
                header = Some(Header { version, entries, subdirs, spread: None, unit: None });
            }
            SECTION_SPREAD => {
                spread = Some(section.u8().filter(|depth| (1..=SPREAD_DEPTH_MAX).contains(depth))?)
            }
            SECTION_UNIT => {
                let (dir, frag) = (section.u64()?, Frag { prefix: section.u64()?, depth: section.u8()? });
                unit = Some((dir, frag)).filter(|_| frag.is_unit());
                unit?;
            }
            _ => {}
        }
    }
    header.map(|header| Header { spread, unit, ..header })
}

/// Where a backptr says the primary dentry is.
pub(crate) struct Backptr<'a> {
    pub(crate) parent: u64,
    pub(crate) hash: u64,
    pub(crate) name: &'a [u8],
}

/// Reads a backptr.
pub(crate) fn backptr(value: &[u8]) -> Option<Backptr<'_>> {
    let mut b = Bytes(value);
    let _version = b.u64()?;
    let backptr = Backptr { parent: b.u64()?, hash: b.u64()?, name: b.name()? };
    b.is_empty().then_some(backptr)
}

/// The key of a dentry of HEAD.
pub(crate) fn dentry_key(dir: u64, hash: u64, name: &[u8]) -> Box<[u8]> {
    [&dir.to_be_bytes()[..], &hash.to_be_bytes(), name, &[0; 8]].concat().into()
}

/// The key of the header of a directory, or of a unit of it.
pub(crate) fn header_key(dir: u64, frag: Frag) -> Box<[u8]> {
    [&dir.to_be_bytes()[..], &[0; 8], &frag.prefix.to_be_bytes(), &[frag.depth]].concat().into()
}

/// The key of a system record.
pub(crate) fn system_key(kind: u8, id: u64) -> Box<[u8]> {
    [&[kind][..], &id.to_be_bytes()].concat().into()
}

/// The name of an inode in `//links` and `//orphans`.
pub(crate) fn number_name(ino: u64) -> String {
    format!("{ino:016x}")
}

/// The name in `//` of a system directory.
pub(crate) fn system_name(ino: u64) -> Option<String> {
    match (ino, orphans_of(ino)) {
        (ROOT, _) => Some("root".into()),
        (LINKS, _) => Some("links".into()),
        (_, Some(rank)) => Some(format!("orphans-{rank}")),
        (_, None) => None,
    }
}
