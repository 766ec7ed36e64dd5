//! What `stat` shows and what `setattr` changes, and who asks.
//!
//! Absent: the stored inode record (`inode.rs`), which carries more than a client sees.

use crate::codec::{DecodeError, Fixed, Reader, Writer};
use crate::ids::{Ino, NameHash, NodeRef};
use stdx::Wall;

/// The type of a file; the values are those of `st_mode >> 12`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FileKind {
    Fifo = 1,
    Character = 2,
    Directory = 4,
    Block = 6,
    Regular = 8,
    Symlink = 10,
    Socket = 12,
}

impl FileKind {
    /// From `st_mode`.
    #[must_use]
    pub const fn of_mode(mode: u32) -> Option<Self> {
        Some(match (mode >> 12) & 0xF {
            1 => Self::Fifo,
            2 => Self::Character,
            4 => Self::Directory,
            6 => Self::Block,
            8 => Self::Regular,
            10 => Self::Symlink,
            12 => Self::Socket,
            _ => return None,
        })
    }

    /// From the one byte that records and messages carry: the value itself and nothing above it.
    #[must_use]
    pub const fn of_byte(byte: u8) -> Option<Self> {
        if byte > 0xF { None } else { Self::of_mode((byte as u32) << 12) }
    }

    /// The type bits of `st_mode`.
    #[must_use]
    pub const fn mode_bits(self) -> u32 {
        (self as u32) << 12
    }
}

/// Permission bits and group of a new inode in a directory of mode and group `above`: setgid directories hand both down.
/// `mode`: its permission bits, the umask or default ACL applied. As Linux's `inode_init_owner`.
#[must_use]
pub fn inherited(above: (u32, u32), kind: FileKind, mut mode: u32, cred: &Cred) -> (u32, u32) {
    let (above_mode, above_gid) = above;
    if above_mode & 0o2000 == 0 {
        return (mode, cred.gid);
    }
    if kind == FileKind::Directory {
        mode |= 0o2000;
    } else if mode & 0o2010 == 0o2010 && cred.uid != 0 && !cred.in_group(above_gid) {
        mode &= !0o2000;
    }
    (mode, above_gid)
}

/// The wire form's length.
const ATTR_BYTES: usize = 105;

/// The attributes of an inode as a client sees them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attr {
    pub ino: Ino,
    /// Part of file handles and data object keys.
    pub generation: u32,
    /// Type and permission bits, as `st_mode`.
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    /// Linux `new_encode_dev` form, as FUSE carries it.
    pub rdev: u32,
    /// Bytes; for a directory the number of its entries.
    pub size: u64,
    /// Units of 512 bytes.
    pub blocks: u64,
    pub atime: Wall,
    pub mtime: Wall,
    pub ctime: Wall,
    pub btime: Wall,
    /// Grows with every change of the inode.
    pub change: u64,
    /// Where the primary dentry is: what the client puts into `NodeRef`.
    pub parent: Ino,
    pub hash: NameHash,
    /// Whether any xattr (an ACL included) exists: lets a client answer ENODATA by itself.
    pub has_xattrs: bool,
}

impl Attr {
    /// The file type; an impossible mode reads as a regular file.
    #[must_use]
    pub fn kind(&self) -> FileKind {
        FileKind::of_mode(self.mode).unwrap_or(FileKind::Regular)
    }

    /// How a later request names this inode.
    #[must_use]
    pub const fn node(&self) -> NodeRef {
        NodeRef { ino: self.ino, parent: self.parent, hash: self.hash }
    }

    /// Appends the wire form.
    pub fn encode(&self, w: &mut Writer) {
        let mut f = Fixed::<ATTR_BYTES>::new();
        f.u64(self.ino.0).u32(self.generation).u32(self.mode).u32(self.nlink).u32(self.uid).u32(self.gid);
        f.u32(self.rdev).u64(self.size).u64(self.blocks);
        f.i64(self.atime.0).i64(self.mtime.0).i64(self.ctime.0).i64(self.btime.0);
        w.fixed(f.u64(self.change).u64(self.parent.0).u64(self.hash.0).bool(self.has_xattrs));
    }

    /// Reads the wire form.
    ///
    /// # Errors
    /// `DecodeError` when the bytes end early or a flag is neither 0 nor 1.
    pub fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let bytes: &[u8; ATTR_BYTES] = r.array()?;
        let mut r = Reader::new(bytes);
        Ok(Self {
            ino: Ino(r.u64()?),
            generation: r.u32()?,
            mode: r.u32()?,
            nlink: r.u32()?,
            uid: r.u32()?,
            gid: r.u32()?,
            rdev: r.u32()?,
            size: r.u64()?,
            blocks: r.u64()?,
            atime: Wall(r.i64()?),
            mtime: Wall(r.i64()?),
            ctime: Wall(r.i64()?),
            btime: Wall(r.i64()?),
            change: r.u64()?,
            parent: Ino(r.u64()?),
            hash: NameHash(r.u64()?),
            has_xattrs: r.bool()?,
        })
    }
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The server's clock at execution.
    Now,
    At(Wall),
}

/// What a setattr changes; `None` leaves a field alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission bits (07777); type bits are ignored.
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    /// Truncate or extend to this many bytes.
    pub size: Option<u64>,
    pub atime: Option<SetTime>,
    pub mtime: Option<SetTime>,
    pub ctime: Option<SetTime>,
    /// Drop setuid, and setgid where group execution is on (FUSE_HANDLE_KILLPRIV_V2).
    pub kill_suidgid: bool,
}

impl SetAttr {
    /// Appends the wire form.
    pub fn encode(&self, w: &mut Writer) {
        w.option(self.mode.as_ref(), |w, v| {
            w.u32(*v);
        });
        w.option(self.uid.as_ref(), |w, v| {
            w.u32(*v);
        });
        w.option(self.gid.as_ref(), |w, v| {
            w.u32(*v);
        });
        w.option(self.size.as_ref(), |w, v| {
            w.u64(*v);
        });
        for time in [self.atime, self.mtime, self.ctime] {
            match time {
                None => w.u8(0),
                Some(SetTime::Now) => w.u8(1),
                Some(SetTime::At(at)) => w.u8(2).i64(at.0),
            };
        }
        w.bool(self.kill_suidgid);
    }

    /// Reads the wire form.
    ///
    /// # Errors
    /// `DecodeError` on truncation or an unknown tag.
    pub fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mode = r.option(Reader::u32)?;
        let uid = r.option(Reader::u32)?;
        let gid = r.option(Reader::u32)?;
        let size = r.option(Reader::u64)?;
        let mut time = || -> Result<Option<SetTime>, DecodeError> {
            Ok(match r.u8()? {
                0 => None,
                1 => Some(SetTime::Now),
                2 => Some(SetTime::At(Wall(r.i64()?))),
                tag => return Err(DecodeError::UnknownTag { what: "set time", tag: u64::from(tag) }),
            })
        };
        let (atime, mtime, ctime) = (time()?, time()?, time()?);
        Ok(Self { mode, uid, gid, size, atime, mtime, ctime, kill_suidgid: r.bool()? })
    }
}

/// On whose behalf an operation runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cred {
    pub uid: u32,
    pub gid: u32,
    /// Supplementary groups, at most `Cred::GROUPS_MAX`.
    pub groups: Vec<u32>,
}

impl Cred {
    /// Linux's NGROUPS_MAX is 65,536; a message carries at most this many.
    pub const GROUPS_MAX: usize = 1024;
    /// The superuser.
    pub const ROOT: Self = Self { uid: 0, gid: 0, groups: Vec::new() };

    /// Whether the caller is a member of `gid`.
    #[must_use]
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    /// Appends the wire form.
    pub fn encode(&self, w: &mut Writer) {
        w.u32(self.uid).u32(self.gid).u32(self.groups.len() as u32);
        for group in &self.groups {
            w.u32(*group);
        }
    }

    /// Reads the wire form.
    ///
    /// # Errors
    /// `DecodeError` on truncation or more than `GROUPS_MAX` groups.
    pub fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (uid, gid, count) = (r.u32()?, r.u32()?, r.u32()? as usize);
        if count > Self::GROUPS_MAX {
            return Err(DecodeError::TooLong { what: "groups", len: count as u64 });
        }
        let groups = (0..count).map(|_| r.u32()).collect::<Result<_, _>>()?;
        Ok(Self { uid, gid, groups })
    }
}
