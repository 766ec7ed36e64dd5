//! Bit sets of the FUSE protocol.
//! Absent: flags of CUSE and DAX.

use std::fmt;
use std::ops::{BitAnd, BitOr, Not};

/// Features negotiated by INIT; bits 32 and up travel in the second flag word.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct InitFlags(pub u64);

macro_rules! init_flags {
    ($($(#[$doc:meta])* $name:ident = $bit:literal,)*) => {
        impl InitFlags {
            $($(#[$doc])* pub const $name: InitFlags = InitFlags(1 << $bit);)*

            const NAMES: &'static [(InitFlags, &'static str)] = &[$((InitFlags::$name, stringify!($name)),)*];
        }
    };
}

init_flags! {
    ASYNC_READ = 0,
    POSIX_LOCKS = 1,
    ATOMIC_O_TRUNC = 3,
    EXPORT_SUPPORT = 4,
    BIG_WRITES = 5,
    DONT_MASK = 6,
    SPLICE_WRITE = 7,
    SPLICE_MOVE = 8,
    SPLICE_READ = 9,
    FLOCK_LOCKS = 10,
    HAS_IOCTL_DIR = 11,
    AUTO_INVAL_DATA = 12,
    DO_READDIRPLUS = 13,
    READDIRPLUS_AUTO = 14,
    ASYNC_DIO = 15,
    WRITEBACK_CACHE = 16,
    NO_OPEN_SUPPORT = 17,
    PARALLEL_DIROPS = 18,
    HANDLE_KILLPRIV = 19,
    POSIX_ACL = 20,
    ABORT_ERROR = 21,
    MAX_PAGES = 22,
    CACHE_SYMLINKS = 23,
    NO_OPENDIR_SUPPORT = 24,
    EXPLICIT_INVAL_DATA = 25,
    MAP_ALIGNMENT = 26,
    SUBMOUNTS = 27,
    HANDLE_KILLPRIV_V2 = 28,
    SETXATTR_EXT = 29,
    INIT_EXT = 30,
    SECURITY_CTX = 32,
    HAS_INODE_DAX = 33,
    CREATE_SUPP_GROUP = 34,
    HAS_EXPIRE_ONLY = 35,
    DIRECT_IO_ALLOW_MMAP = 36,
    PASSTHROUGH = 37,
    NO_EXPORT_SUPPORT = 38,
    HAS_RESEND = 39,
    ALLOW_IDMAP = 40,
    OVER_IO_URING = 41,
    REQUEST_TIMEOUT = 42,
}

impl InitFlags {
    pub const NONE: InitFlags = InitFlags(0);

    pub const fn contains(self, other: InitFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// These flags and those.
    pub const fn with(self, other: InitFlags) -> InitFlags {
        InitFlags(self.0 | other.0)
    }

    /// These flags but not those.
    pub const fn without(self, other: InitFlags) -> InitFlags {
        InitFlags(self.0 & !other.0)
    }
}

impl BitOr for InitFlags {
    type Output = InitFlags;
    fn bitor(self, other: InitFlags) -> InitFlags {
        self.with(other)
    }
}

impl BitAnd for InitFlags {
    type Output = InitFlags;
    fn bitand(self, other: InitFlags) -> InitFlags {
        InitFlags(self.0 & other.0)
    }
}

impl Not for InitFlags {
    type Output = InitFlags;
    fn not(self) -> InitFlags {
        InitFlags(!self.0)
    }
}

impl fmt::Debug for InitFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = InitFlags::NAMES.iter().filter(|(flag, _)| self.contains(*flag)).map(|(_, name)| *name);
        f.debug_list().entries(names).finish()
    }
}

/// Bits of `SetAttrIn::valid`: which fields the caller sets.
pub mod fattr {
    pub const MODE: u32 = 1 << 0;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const FH: u32 = 1 << 6;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
    pub const LOCKOWNER: u32 = 1 << 9;
    pub const CTIME: u32 = 1 << 10;
    pub const KILL_SUIDGID: u32 = 1 << 11;
}

/// Bits an open reply gives its handle.
pub mod fopen {
    /// Bypass the page cache.
    pub const DIRECT_IO: u32 = 1 << 0;
    /// Keep cached pages from before this open.
    pub const KEEP_CACHE: u32 = 1 << 1;
    /// Let the kernel cache this directory's listing.
    pub const CACHE_DIR: u32 = 1 << 3;
    /// Send no FLUSH on close.
    pub const NOFLUSH: u32 = 1 << 5;
    pub const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
}

pub const GETATTR_FH: u32 = 1 << 0;
pub const LK_FLOCK: u32 = 1 << 0;
pub const RELEASE_FLUSH: u32 = 1 << 0;
pub const RELEASE_FLOCK_UNLOCK: u32 = 1 << 1;
pub const WRITE_CACHE: u32 = 1 << 0;
pub const WRITE_LOCKOWNER: u32 = 1 << 1;
pub const WRITE_KILL_SUIDGID: u32 = 1 << 2;
pub const READ_LOCKOWNER: u32 = 1 << 1;
pub const FSYNC_FDATASYNC: u32 = 1 << 0;
pub const OPEN_KILL_SUIDGID: u32 = 1 << 0;
pub const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;
