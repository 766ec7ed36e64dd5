//! What the values of the metadata tables mean, read from docs/FORMAT.md.
//!
//! Absent: the server's decoders, and anything a check does not need.

use crate::bytes::Bytes;
use crate::finding::Kind;

/// The system's directories.
pub(crate) const ROOT: u64 = 1;
pub(crate) const LINKS: u64 = 2;
pub(crate) const SYSTEM: u64 = 3;
pub(crate) const ORPHANS: u64 = 0x100;
pub(crate) const FIRST_COUNTER: u64 = 4096;

const FLAGS_KNOWN: u32 = 1 | 2 | 4;
const XATTRS_BYTES_MAX: usize = 65_536;

pub(crate) const DIRECTORY: u8 = 4;
const CHARACTER: u8 = 2;
const BLOCK: u8 = 6;
const SYMLINK: u8 = 10;

/// What a check needs of a dentry.
pub(crate) enum Dentry {
    Primary(Inode),
    Remote { ino: u64, kind: u8 },
}

/// What a check needs of an inode.
pub(crate) struct Inode {
    pub(crate) ino: u64,
    pub(crate) kind: u8,
    pub(crate) nlink: u32,
    /// (parent, hash) of each name of a linked inode.
    pub(crate) links: Vec<(u64, u64)>,
}

/// What a check needs of a frag header.
pub(crate) struct Header {
    pub(crate) version: u64,
    pub(crate) entries: u64,
    pub(crate) subdirs: u64,
}

/// Reads a dentry; what is wrong inside a readable one goes to `wrong`.
pub(crate) fn dentry(value: &[u8], wrong: &mut Vec<(Kind, String)>) -> Option<Dentry> {
    let mut b = Bytes(value);
    match b.u8()? {
        1 => match inode(b.0, wrong) {
            Some(inode) => Some(Dentry::Primary(inode)),
            None => {
                wrong.push((Kind::InodeUnreadable, String::new()));
                None
            }
        },
        2 => {
            let (ino, kind) = (b.u64()?, b.u8()?);
            if !is_kind(kind) {
                wrong.push((Kind::TypeInvalid, format!("type {kind}")));
            }
            b.is_empty().then_some(Dentry::Remote { ino, kind })
        }
        _ => None,
    }
}

const fn is_kind(kind: u8) -> bool {
    matches!(kind, 1 | 2 | 4 | 6 | 8 | 10 | 12)
}

fn inode(bytes: &[u8], wrong: &mut Vec<(Kind, String)>) -> Option<Inode> {
    let mut b = Bytes(bytes);
    let (mut core, mut target, mut device, mut links) = (None, None, 0, Vec::new());
    while !b.is_empty() {
        let (tag, body) = (b.u8()?, b.bytes()?);
        match tag {
            1 => core = Some(read_core(body, wrong)?),
            2 => target = Some(body),
            3 => check_xattrs(body, wrong),
            4 => device = Bytes(body).u32()?,
            5 => {
                let mut pairs = Bytes(body);
                while !pairs.is_empty() {
                    links.push((pairs.u64()?, pairs.u64()?));
                }
            }
            _ => {}
        }
    }
    let (ino, kind, nlink) = core?;
    match (kind == SYMLINK, target) {
        (true, None | Some([])) => wrong.push((Kind::SymlinkWithoutTarget, format!("inode {ino}"))),
        (false, Some(_)) => wrong.push((Kind::TargetOnNonSymlink, format!("inode {ino}"))),
        _ => {}
    }
    if device != 0 && kind != CHARACTER && kind != BLOCK {
        wrong.push((Kind::DeviceOnNonDevice, format!("inode {ino}")));
    }
    Some(Inode { ino, kind, nlink, links })
}

fn read_core(body: &[u8], wrong: &mut Vec<(Kind, String)>) -> Option<(u64, u8, u32)> {
    let mut b = Bytes(body);
    let ino = b.u64()?;
    let _generation = b.u32()?;
    let (mode, nlink) = (b.u32()?, b.u32()?);
    b.take(4 * 3)?;
    let size = b.u64()?;
    // Four times, the change counter, the first snapshot, the truncation sequence.
    b.take(8 * 4 + 8 + 8 + 4)?;
    let flags = b.u32()?;
    let _truncate_size = b.u64()?;
    let kind = ((mode >> 12) & 0xF) as u8;
    if !is_kind(kind) {
        wrong.push((Kind::TypeInvalid, format!("inode {ino}, mode {mode:o}")));
    }
    if ino == 0 || ino >> 63 != 0 || ((4..FIRST_COUNTER).contains(&ino) && !(ORPHANS..0x200).contains(&ino)) {
        wrong.push((Kind::InodeNumberInvalid, format!("inode {ino}")));
    }
    if size >> 63 != 0 {
        wrong.push((Kind::SizeInvalid, format!("inode {ino}, size {size}")));
    }
    if flags & !FLAGS_KNOWN != 0 {
        wrong.push((Kind::FlagsUnknown, format!("inode {ino}, flags {flags:#x}")));
    }
    Some((ino, kind, nlink))
}

fn check_xattrs(body: &[u8], wrong: &mut Vec<(Kind, String)>) {
    let mut b = Bytes(body);
    let mut last: Option<&[u8]> = None;
    let mut total = 0;
    while !b.is_empty() {
        let (Some(name), Some(value)) = (b.name(), b.bytes()) else {
            wrong.push((Kind::XattrsInvalid, "cut".into()));
            return;
        };
        total += name.len() + value.len();
        if name.is_empty() || last.is_some_and(|last| last >= name) {
            wrong.push((Kind::XattrsInvalid, format!("name {}", name.escape_ascii())));
        }
        last = Some(name);
    }
    if total > XATTRS_BYTES_MAX {
        wrong.push((Kind::XattrsInvalid, format!("{total} bytes")));
    }
}

/// Reads a frag header.
pub(crate) fn header(value: &[u8]) -> Option<Header> {
    let mut b = Bytes(value);
    let mut header = None;
    while !b.is_empty() {
        let (tag, body) = (b.u8()?, b.bytes()?);
        if tag == 1 {
            let mut core = Bytes(body);
            let (version, entries, _old, subdirs) = (core.u64()?, core.u64()?, core.u64()?, core.u64()?);
            core.take(16)?;
            header = Some(Header { version, entries, subdirs });
        }
    }
    header
}

/// Reads a backptr: (parent, hash).
pub(crate) fn backptr(value: &[u8]) -> Option<(u64, u64)> {
    let mut b = Bytes(value);
    let _version = b.u64()?;
    let place = (b.u64()?, b.u64()?);
    b.name()?;
    b.is_empty().then_some(place)
}
