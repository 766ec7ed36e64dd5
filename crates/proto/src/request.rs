//! File-system requests of a client to a rank, with their wire ordinals (never reused).
//!
//! Absent: sessions and flow (`message.rs`), answers (`reply.rs`).

#[macro_use]
mod groups;
mod codec;

use crate::attr::SetAttr;
use crate::cluster::{MoveId, Unit};
use crate::frame::FRAME_BYTES_MAX;
use crate::holder::{Holder, Moved};
use crate::ids::{Incarnation, Ino, NodeRef, RankId, SessionId, Tid};
use crate::name::Name;
use crate::storeio::{Buffer, Payload};
use crate::transact::{Step, TxnId};
use stdx::Wall;

/// The most bytes one read or write carries.
pub const IO_BYTES_MAX: usize = 1 << 20;

/// Flags of `Open` and `Create` that the rank looks at: Linux `O_*` values.
pub mod open_flags {
    pub const ACCMODE: u32 = 3;
    pub const WRONLY: u32 = 1;
    pub const RDWR: u32 = 2;
    pub const EXCL: u32 = 0o200;
    pub const TRUNC: u32 = 0o1000;
    pub const APPEND: u32 = 0o2000;

    /// Whether a handle with these flags may write, or its opening did.
    #[must_use]
    pub const fn writes(flags: u32) -> bool {
        matches!(flags & ACCMODE, WRONLY | RDWR) || flags & TRUNC != 0
    }
}

/// Modes of `Fallocate`: Linux `FALLOC_FL_*` values.
pub mod fallocate {
    pub const KEEP_SIZE: u32 = 1;
    pub const PUNCH_HOLE: u32 = 2;
    pub const ZERO_RANGE: u32 = 16;

    /// Whether bytes change. Otherwise space is reserved, and the file may become longer.
    #[must_use]
    pub const fn changes_bytes(mode: u32) -> bool {
        mode & !KEEP_SIZE != 0
    }
}

/// Flags of `Rename`: Linux `RENAME_*` values.
pub mod rename_flags {
    pub const NOREPLACE: u32 = 1;
    pub const EXCHANGE: u32 = 2;
    pub const WHITEOUT: u32 = 4;
}

/// Kinds of a file lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LockKind {
    Read = 0,
    Write = 1,
    Unlock = 2,
}

/// A lock on a byte range. flock locks and fcntl locks never see each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockSpec {
    pub flock: bool,
    /// The kernel's lock owner; unique within one client.
    pub owner: u64,
    pub kind: LockKind,
    pub start: u64,
    /// Last byte, inclusive; `u64::MAX` = to the end.
    pub end: u64,
    pub pid: u32,
}

/// What `setxattr` demands of the name's present state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum XattrMode {
    Either = 0,
    Create = 1,
    Replace = 2,
}

/// What a new inode is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewNode {
    /// Type and permission bits as the caller gave them.
    pub mode: u32,
    /// Applied by the rank unless the parent has a default ACL.
    pub umask: u32,
    pub rdev: u32,
}

/// One file-system operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    Lookup {
        parent: NodeRef,
        name: Name,
    },
    GetAttr {
        node: NodeRef,
    },
    SetAttr {
        node: NodeRef,
        set: SetAttr,
    },
    ReadLink {
        node: NodeRef,
    },
    /// Regular files, fifos, sockets, devices.
    MkNod {
        parent: NodeRef,
        name: Name,
        new: NewNode,
    },
    MkDir {
        parent: NodeRef,
        name: Name,
        new: NewNode,
    },
    Symlink {
        parent: NodeRef,
        name: Name,
        target: Box<[u8]>,
    },
    Link {
        node: NodeRef,
        parent: NodeRef,
        name: Name,
    },
    Unlink {
        parent: NodeRef,
        name: Name,
    },
    RmDir {
        parent: NodeRef,
        name: Name,
    },
    Rename {
        parent: NodeRef,
        name: Name,
        new_parent: NodeRef,
        new_name: Name,
        flags: u32,
    },
    /// Counts an open until `Release`; with `TRUNC` cuts the file.
    Open {
        node: NodeRef,
        flags: u32,
    },
    /// Create if absent (EEXIST with `EXCL` if present) and open.
    Create {
        parent: NodeRef,
        name: Name,
        new: NewNode,
        flags: u32,
    },
    /// An open file without a name, in `parent`'s place for permissions and ACLs.
    TmpFile {
        parent: NodeRef,
        new: NewNode,
        flags: u32,
    },
    /// Ends `count` opens.
    Release {
        node: NodeRef,
        count: u32,
    },
    /// A page of the listing: entries with cookie > `after` ("." and ".." are the client's).
    /// `attrs`: with attributes. About `bytes_max` bytes of names and attributes.
    ReadDir {
        dir: NodeRef,
        after: u64,
        attrs: bool,
        bytes_max: u32,
    },
    Read {
        node: NodeRef,
        offset: u64,
        len: u32,
        /// Where the answer may be put, within one process.
        into: Option<Buffer>,
    },
    /// With `append` the rank chooses the offset: the end of the file.
    Write {
        node: NodeRef,
        offset: u64,
        append: bool,
        kill_suidgid: bool,
        data: Payload,
    },
    /// Linux `FALLOC_FL_*` in `mode`: 0, KEEP_SIZE (1), PUNCH_HOLE (2) with 1, ZERO_RANGE (16) with or without 1.
    Fallocate {
        node: NodeRef,
        mode: u32,
        offset: u64,
        len: u64,
    },
    /// SEEK_DATA, or SEEK_HOLE with `hole`.
    Seek {
        node: NodeRef,
        offset: u64,
        hole: bool,
    },
    CopyRange {
        source: NodeRef,
        source_offset: u64,
        target: NodeRef,
        target_offset: u64,
        len: u64,
    },
    /// Data and metadata of one inode (a directory: its entries) are durable when it answers.
    Fsync {
        node: NodeRef,
        data_only: bool,
    },
    /// Everything this client was answered is durable when it answers.
    SyncFs,
    StatFs,
    GetXattr {
        node: NodeRef,
        name: Name,
    },
    ListXattr {
        node: NodeRef,
    },
    SetXattr {
        node: NodeRef,
        name: Name,
        value: Box<[u8]>,
        mode: XattrMode,
    },
    RemoveXattr {
        node: NodeRef,
        name: Name,
    },
    /// Who would block this lock.
    TestLock {
        node: NodeRef,
        lock: LockSpec,
    },
    /// `wait`: the answer comes when the lock is granted, or EINTR after `Cancel`.
    SetLock {
        node: NodeRef,
        lock: LockSpec,
        wait: bool,
    },
    /// Drop every lock of this owner on the inode (close of a file).
    ReleaseLocks {
        node: NodeRef,
        flock: bool,
        owner: u64,
    },
    /// Permission check for sessions whose kernel does not do it.
    Access {
        node: NodeRef,
        mask: u32,
    },
    /// Where is the parent of this directory.
    Parent {
        node: NodeRef,
    },
    /// Repeats `wrote`, a write of the same session that the incarnation `life` had answered and whose bytes may have been lost
    /// with it. Nothing but these bytes changes. Sent only inside `Performed`. `append`: the write went to the end of the file as
    /// it was then.
    Rewrite {
        node: NodeRef,
        wrote: Tid,
        life: Incarnation,
        append: bool,
        offset: u64,
        data: Payload,
    },
    /// By a rank: the record of a directory, which stays as told until it is recalled.
    Replicate {
        node: NodeRef,
    },
    /// By a rank: the record of a directory, for what never changes in it.
    Facts {
        node: NodeRef,
    },
    /// By a rank: what a directory's content, or a unit of it, adds to its attributes.
    Totals {
        unit: Unit,
    },
    /// By a rank: what is asked of a directory's content, or a unit of it, of late.
    Heat {
        unit: Unit,
    },
    /// By a rank: the content of a directory, or a unit of it, becomes `to`'s.
    Hand {
        unit: Unit,
        to: RankId,
    },
    /// By the home of a directory that slots place: its entry goes, because its content is with the rank of its slot.
    Unpin {
        dir: Ino,
    },
    /// By a rank: the time of a directory's content becomes this, or now if that is earlier. `first`: the number of its first unit, and
    /// `stamp`: the sum of its units' change counters by then; 0 if it has none.
    SetTimes {
        dir: Ino,
        mtime: Wall,
        first: Ino,
        stamp: u64,
    },
    /// By a rank: whether that session has the directory open for reading.
    Opened {
        node: NodeRef,
        session: SessionId,
    },
    /// By a rank: whether those sessions are here.
    Sessions {
        sessions: Vec<SessionId>,
    },
    /// By a rank: what sessions have open and locked of what is about to be this one's; `first`: whatever was said of it before counts
    /// no more. `version`: of a map that says that it moves.
    Holders {
        id: MoveId,
        moved: Moved,
        version: u64,
        first: bool,
        list: Vec<Holder>,
    },
    /// By a rank: a step of a transaction of several ranks.
    Transact {
        id: TxnId,
        step: Step,
    },
}

impl Request {
    /// The most bytes its answer can have beyond a fixed part.
    #[must_use]
    pub fn answer_bytes_max(&self) -> usize {
        match self {
            Self::Read { len, .. } => (*len as usize).min(IO_BYTES_MAX),
            Self::ReadDir { bytes_max, .. } => (*bytes_max as usize).min(FRAME_BYTES_MAX),
            Self::ReadLink { .. } => 4096,
            Self::GetXattr { .. } | Self::ListXattr { .. } => 1 << 16,
            naming_requests!()
            | Self::Lookup { .. }
            | Self::GetAttr { .. }
            | Self::Seek { .. }
            | Self::StatFs
            | Self::TestLock { .. }
            | Self::Access { .. }
            | Self::Parent { .. }
            | setting_requests!()
            | writing_requests!()
            | locking_requests!()
            | syncing_requests!()
            | rank_requests!()
            | Self::Open { .. }
            | Self::TmpFile { .. }
            | Self::Release { .. }
            | Self::Rewrite { .. } => 0,
        }
    }

    /// The bytes it carries beyond a fixed part.
    #[must_use]
    pub fn payload_bytes(&self) -> usize {
        match self {
            Self::Write { data, .. } | Self::Rewrite { data, .. } => data.bytes().len(),
            Self::SetXattr { value, .. } => value.len(),
            naming_requests!()
            | looking_requests!()
            | Self::SetAttr { .. }
            | Self::RemoveXattr { .. }
            | Self::Fallocate { .. }
            | Self::CopyRange { .. }
            | locking_requests!()
            | syncing_requests!()
            | rank_requests!()
            | Self::Open { .. }
            | Self::TmpFile { .. }
            | Self::Release { .. }
            | Self::Read { .. } => 0,
        }
    }

    /// Lets go of the buffer its caller lent to read into.
    pub fn detach(&mut self) {
        if let Self::Read { into, .. } = self {
            *into = None;
        }
    }
}
