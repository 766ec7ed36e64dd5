//! One request of the kernel as a typed value borrowed from the buffer it arrived in.
//! Absent: INIT (the kernel mount speaks it alone), DAX and CUSE, and any judgement of permissions.

mod classes;
pub(crate) mod groups;
mod parse;
#[cfg(test)]
mod tests;

use crate::abi::{FileLock, ForgetOne, Plain};

pub use parse::ParseError;
pub(crate) use parse::Parts;

/// A request: who asks, about which node, for what.
#[derive(Clone, Copy, Debug)]
pub struct KernelRequest<'a> {
    /// Names the request in a later [`Operation::Interrupt`].
    pub unique: u64,
    pub nodeid: u64,
    pub uid: u32,
    pub gid: u32,
    /// The thread that asks; 0 if the kernel asks by itself, or it is in another namespace.
    pub pid: u32,
    pub extensions: Extensions<'a>,
    pub operation: Operation<'a>,
}

/// What the kernel appends to requests that create something.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extensions<'a> {
    /// A group of the caller, other than `gid`, that equals the group of the parent directory.
    pub supplementary_group: Option<u32>,
    /// The first security context; the kernel sends more only with several labelling modules.
    pub security: Option<SecurityContext<'a>>,
}

/// An attribute to be set on the new node in the same transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecurityContext<'a> {
    pub name: &'a [u8],
    pub value: &'a [u8],
}

/// What a request asks for. Names carry no NUL and are never empty.
#[derive(Clone, Copy, Debug)]
pub enum Operation<'a> {
    Lookup {
        name: &'a [u8],
    },
    /// Never answered.
    Forget {
        nlookup: u64,
    },
    /// Never answered.
    BatchForget {
        items: Forgets<'a>,
    },
    GetAttr {
        fh: Option<u64>,
    },
    Statx {
        fh: Option<u64>,
        flags: u32,
        mask: u32,
    },
    SetAttr(SetAttr),
    ReadLink,
    Symlink {
        name: &'a [u8],
        target: &'a [u8],
    },
    MkNod {
        name: &'a [u8],
        mode: u32,
        rdev: u32,
        umask: u32,
    },
    MkDir {
        name: &'a [u8],
        mode: u32,
        umask: u32,
    },
    Unlink {
        name: &'a [u8],
    },
    RmDir {
        name: &'a [u8],
    },
    Rename {
        name: &'a [u8],
        new_parent: u64,
        new_name: &'a [u8],
        flags: u32,
    },
    /// Gives `target` the name `name` in the directory `KernelRequest::nodeid`.
    Link {
        target: u64,
        name: &'a [u8],
    },
    Open {
        flags: u32,
        kill_suidgid: bool,
    },
    Create {
        name: &'a [u8],
        flags: u32,
        mode: u32,
        umask: u32,
        kill_suidgid: bool,
    },
    TmpFile {
        flags: u32,
        mode: u32,
        umask: u32,
    },
    Read(Read),
    Write(Write<'a>),
    Flush {
        fh: u64,
        lock_owner: u64,
    },
    FSync {
        fh: u64,
        data_only: bool,
    },
    Release(Release),
    OpenDir {
        flags: u32,
    },
    ReadDir {
        fh: u64,
        offset: u64,
        size: u32,
    },
    ReadDirPlus {
        fh: u64,
        offset: u64,
        size: u32,
    },
    FSyncDir {
        fh: u64,
        data_only: bool,
    },
    ReleaseDir(Release),
    StatFs,
    SyncFs,
    Access {
        mask: u32,
    },
    SetXattr {
        name: &'a [u8],
        value: &'a [u8],
        flags: u32,
        acl_kill_sgid: bool,
    },
    /// `size` 0 asks for the length only.
    GetXattr {
        name: &'a [u8],
        size: u32,
    },
    /// `size` 0 asks for the length only.
    ListXattr {
        size: u32,
    },
    RemoveXattr {
        name: &'a [u8],
    },
    GetLk(Lock),
    /// `sleep` asks to wait until granted; `lock.flock` tells flock(2) from fcntl(2).
    SetLk {
        lock: Lock,
        sleep: bool,
    },
    Fallocate {
        fh: u64,
        offset: u64,
        length: u64,
        mode: u32,
    },
    Lseek {
        fh: u64,
        offset: u64,
        whence: u32,
    },
    CopyFileRange(CopyFileRange),
    /// The caller of request `unique` was sent a signal. Answer EAGAIN when that request is not known
    /// (yet): it is delivered again after the request, should that still arrive. Other answers are dropped.
    Interrupt {
        unique: u64,
    },
    BMap {
        block: u64,
        blocksize: u32,
    },
    Ioctl {
        fh: u64,
        flags: u32,
        cmd: u32,
        arg: u64,
        data: &'a [u8],
        out_size: u32,
    },
    Poll {
        fh: u64,
        kh: u64,
        flags: u32,
        events: u32,
    },
    /// Data asked for by a RETRIEVE notification; this crate sends none.
    NotifyReply {
        offset: u64,
        data: &'a [u8],
    },
    Destroy,
}

/// Fields to set; None leaves a field alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    pub fh: Option<u64>,
    pub lock_owner: Option<u64>,
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<SetTime>,
    pub mtime: Option<SetTime>,
    /// Only sent with the writeback cache.
    pub ctime: Option<Time>,
    /// Drop set-user-ID and, on group-executable files, set-group-ID.
    pub kill_suidgid: bool,
    /// The raw bits, for those who pass them on.
    pub valid: u32,
}

/// A time stamp; seconds may be negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    pub secs: i64,
    pub nanos: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    Now,
    At(Time),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    pub fh: u64,
    pub offset: u64,
    pub size: u32,
    /// open(2) flags of the handle.
    pub flags: u32,
    pub lock_owner: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    pub fh: u64,
    pub offset: u64,
    pub data: &'a [u8],
    /// open(2) flags of the handle.
    pub flags: u32,
    pub lock_owner: Option<u64>,
    /// Comes from the page cache: caller and handle are the kernel's guess.
    pub cached: bool,
    pub kill_suidgid: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    pub fh: u64,
    /// open(2) flags of the handle.
    pub flags: u32,
    pub lock_owner: u64,
    pub flush: bool,
    /// Drop the flock(2) locks of `lock_owner`.
    pub flock_unlock: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    pub fh: u64,
    pub owner: u64,
    pub range: FileLock,
    /// flock(2) rather than fcntl(2).
    pub flock: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyFileRange {
    pub fh_in: u64,
    pub offset_in: u64,
    pub nodeid_out: u64,
    pub fh_out: u64,
    pub offset_out: u64,
    pub length: u64,
    pub flags: u64,
}

/// The (node, count) pairs of a BATCH_FORGET.
#[derive(Clone, Copy, Debug)]
pub struct Forgets<'a> {
    bytes: &'a [u8],
}

impl Forgets<'_> {
    pub fn len(&self) -> usize {
        self.bytes.len() / size_of::<ForgetOne>()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn iter(&self) -> impl Iterator<Item = ForgetOne> + '_ {
        self.bytes.chunks_exact(size_of::<ForgetOne>()).filter_map(ForgetOne::read)
    }
}
