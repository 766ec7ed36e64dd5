//! The kinds of requests, under the names that counters and operators' lists show; what a request is about and may leave behind.
//!
//! Absent: what a request carries (`request.rs`).

use crate::ids::{Ino, NodeRef};
use crate::name::Name;
use crate::request::Request;
use crate::request::open_flags::TRUNC;
use crate::{
    locking_requests, looking_requests, rank_requests, setting_requests, syncing_requests, writing_requests,
};

/// A kind of request; the number of most is the request's wire ordinal less one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind(u8);

/// Ceph's word where it has the operation.
const NAMES: [&str; 45] = [
    "lookup",
    "getattr",
    "setattr",
    "readlink",
    "mknod",
    "mkdir",
    "symlink",
    "link",
    "unlink",
    "rmdir",
    "rename",
    "open",
    "create",
    "tmpfile",
    "release",
    "readdir",
    "read",
    "write",
    "fallocate",
    "lseek",
    "copy_file_range",
    "fsync",
    "syncfs",
    "statfs",
    "getxattr",
    "listxattr",
    "setxattr",
    "rmxattr",
    "getfilelock",
    "setfilelock",
    "release_locks",
    "access",
    "lookupparent",
    "rewrite",
    "replicate",
    "totals",
    "hand",
    "set_times",
    "opened",
    "transact",
    "facts",
    "sessions",
    "holders",
    "unpin",
    "heat",
];

impl Kind {
    /// The one kind that may wait for as long as its caller wants.
    pub const SET_LOCK: Self = Self(29);
    pub const READ: Self = Self(16);
    pub const WRITE: Self = Self(17);
    pub const COUNT: usize = NAMES.len();

    /// All kinds in the order of their numbers.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..Self::COUNT as u8).map(Self)
    }

    #[must_use]
    pub const fn name(self) -> &'static str {
        NAMES[self.0 as usize]
    }

    /// Below `COUNT`.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What carrying out a request may leave behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    Nothing,
    /// Opens and locks, in memory.
    Memory,
    /// Transactions. An fsync has them: its file's content goes into the journal.
    Journal,
}

impl Request {
    /// What it may leave behind.
    #[must_use]
    pub const fn effect(&self) -> Effect {
        match self {
            Self::SetAttr { .. }
            | Self::MkNod { .. }
            | Self::MkDir { .. }
            | Self::Symlink { .. }
            | Self::Link { .. }
            | Self::Unlink { .. }
            | Self::RmDir { .. }
            | Self::Rename { .. }
            | Self::Create { .. }
            | Self::TmpFile { .. }
            | Self::Write { .. }
            | Self::Fallocate { .. }
            | Self::CopyRange { .. }
            | Self::Fsync { .. }
            | Self::SetXattr { .. }
            | Self::RemoveXattr { .. } => Effect::Journal,
            Self::Open { flags, .. } if *flags & TRUNC != 0 => Effect::Journal,
            Self::Open { .. } | Self::Release { .. } | Self::SetLock { .. } | Self::ReleaseLocks { .. } => {
                Effect::Memory
            }
            Self::Lookup { .. }
            | Self::GetAttr { .. }
            | Self::ReadLink { .. }
            | Self::ReadDir { .. }
            | Self::Read { .. }
            | Self::Seek { .. }
            | Self::SyncFs
            | Self::StatFs
            | Self::GetXattr { .. }
            | Self::ListXattr { .. }
            | Self::TestLock { .. }
            | Self::Access { .. }
            | Self::Parent { .. }
            // What it writes was there before.
            | Self::Rewrite { .. }
            // A move done twice is done once, and so is the setting of a time.
            | rank_requests!() => Effect::Nothing,
        }
    }

    /// Its kind.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        Kind(match self {
            Self::Lookup { .. } => 0,
            Self::GetAttr { .. } => 1,
            Self::SetAttr { .. } => 2,
            Self::ReadLink { .. } => 3,
            Self::MkNod { .. } => 4,
            Self::MkDir { .. } => 5,
            Self::Symlink { .. } => 6,
            Self::Link { .. } => 7,
            Self::Unlink { .. } => 8,
            Self::RmDir { .. } => 9,
            Self::Rename { .. } => 10,
            Self::Open { .. } => 11,
            Self::Create { .. } => 12,
            Self::TmpFile { .. } => 13,
            Self::Release { .. } => 14,
            Self::ReadDir { .. } => 15,
            Self::Read { .. } => Kind::READ.0,
            Self::Write { .. } => Kind::WRITE.0,
            Self::Fallocate { .. } => 18,
            Self::Seek { .. } => 19,
            Self::CopyRange { .. } => 20,
            Self::Fsync { .. } => 21,
            Self::SyncFs => 22,
            Self::StatFs => 23,
            Self::GetXattr { .. } => 24,
            Self::ListXattr { .. } => 25,
            Self::SetXattr { .. } => 26,
            Self::RemoveXattr { .. } => 27,
            Self::TestLock { .. } => 28,
            Self::SetLock { .. } => Kind::SET_LOCK.0,
            Self::ReleaseLocks { .. } => 30,
            Self::Access { .. } => 31,
            Self::Parent { .. } => 32,
            Self::Rewrite { .. } => 33,
            Self::Replicate { .. } => 34,
            Self::Totals { .. } => 35,
            Self::Hand { .. } => 36,
            Self::SetTimes { .. } => 37,
            Self::Opened { .. } => 38,
            Self::Transact { .. } => 39,
            Self::Facts { .. } => 40,
            Self::Sessions { .. } => 41,
            Self::Holders { .. } => 42,
            Self::Unpin { .. } => 43,
            Self::Heat { .. } => 44,
        })
    }

    /// The names that it changes, each with its directory.
    pub fn changed_names(&self) -> impl Iterator<Item = (Ino, &Name)> {
        let (first, second) = match self {
            Self::MkNod { parent, name, .. }
            | Self::MkDir { parent, name, .. }
            | Self::Symlink { parent, name, .. }
            | Self::Link { parent, name, .. }
            | Self::Unlink { parent, name }
            | Self::RmDir { parent, name }
            | Self::Create { parent, name, .. } => (Some((parent.ino, name)), None),
            Self::Rename { parent, name, new_parent, new_name, .. } => {
                (Some((parent.ino, name)), Some((new_parent.ino, new_name)))
            }
            looking_requests!()
            | setting_requests!()
            | writing_requests!()
            | locking_requests!()
            | syncing_requests!()
            | rank_requests!()
            | Self::Open { .. }
            | Self::TmpFile { .. }
            | Self::Release { .. }
            | Self::Read { .. }
            | Self::Rewrite { .. } => (None, None),
        };
        first.into_iter().chain(second)
    }

    /// The inode it is about, and the name in it where it is about one. Of two (a rename, a copy) the first.
    #[must_use]
    #[inline]
    pub const fn subject(&self) -> Option<(NodeRef, Option<&Name>)> {
        match self {
            Self::Lookup { parent, name }
            | Self::MkNod { parent, name, .. }
            | Self::MkDir { parent, name, .. }
            | Self::Symlink { parent, name, .. }
            | Self::Link { parent, name, .. }
            | Self::Unlink { parent, name }
            | Self::RmDir { parent, name }
            | Self::Rename { parent, name, .. }
            | Self::Create { parent, name, .. } => Some((*parent, Some(name))),
            Self::GetAttr { node }
            | Self::SetAttr { node, .. }
            | Self::ReadLink { node }
            | Self::Open { node, .. }
            | Self::TmpFile { parent: node, .. }
            | Self::Release { node, .. }
            | Self::ReadDir { dir: node, .. }
            | Self::Read { node, .. }
            | Self::Write { node, .. }
            | Self::Fallocate { node, .. }
            | Self::Seek { node, .. }
            | Self::CopyRange { source: node, .. }
            | Self::Fsync { node, .. }
            | Self::GetXattr { node, .. }
            | Self::ListXattr { node }
            | Self::SetXattr { node, .. }
            | Self::RemoveXattr { node, .. }
            | Self::TestLock { node, .. }
            | Self::SetLock { node, .. }
            | Self::ReleaseLocks { node, .. }
            | Self::Access { node, .. }
            | Self::Parent { node }
            | Self::Rewrite { node, .. } => Some((*node, None)),
            Self::Replicate { node } | Self::Opened { node, .. } | Self::Facts { node } => {
                Some((*node, None))
            }
            Self::Totals { unit } | Self::Heat { unit } | Self::Hand { unit, .. } => {
                Some((NodeRef::bare(unit.dir), None))
            }
            Self::SetTimes { dir, .. } | Self::Unpin { dir } => Some((NodeRef::bare(*dir), None)),
            Self::Holders { moved, .. } => Some((NodeRef::bare(moved.unit.dir), None)),
            Self::SyncFs | Self::StatFs | Self::Transact { .. } | Self::Sessions { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attr::SetAttr;
    use crate::cluster::Unit;
    use crate::codec::Writer;
    use crate::ids::{Frag, Incarnation, RankId, Tid};
    use crate::request::{LockKind, LockSpec, NewNode, XattrMode};
    use crate::storeio::Payload;
    use crate::transact::{Step, TxnId};

    fn one_of_each() -> Vec<Request> {
        let (node, parent) = (NodeRef::default(), NodeRef::default());
        let name = || Name::new(b"a").expect("a name");
        let new = || NewNode { mode: 0, umask: 0, rdev: 0 };
        let lock = LockSpec { flock: true, owner: 1, kind: LockKind::Read, start: 0, end: 1, pid: 1 };
        vec![
            Request::Lookup { parent, name: name() },
            Request::GetAttr { node },
            Request::SetAttr { node, set: SetAttr::default() },
            Request::ReadLink { node },
            Request::MkNod { parent, name: name(), new: new() },
            Request::MkDir { parent, name: name(), new: new() },
            Request::Symlink { parent, name: name(), target: Box::default() },
            Request::Link { node, parent, name: name() },
            Request::Unlink { parent, name: name() },
            Request::RmDir { parent, name: name() },
            Request::Rename { parent, name: name(), new_parent: node, new_name: name(), flags: 0 },
            Request::Open { node, flags: 0 },
            Request::Create { parent, name: name(), new: new(), flags: 0 },
            Request::TmpFile { parent, new: new(), flags: 0 },
            Request::Release { node, count: 1 },
            Request::ReadDir { dir: node, after: 0, attrs: false, bytes_max: 0 },
            Request::Read { node, offset: 0, len: 0, into: None },
            Request::Write {
                node,
                offset: 0,
                append: false,
                kill_suidgid: false,
                data: Payload::Owned(Vec::new()),
            },
            Request::Fallocate { node, mode: 0, offset: 0, len: 0 },
            Request::Seek { node, offset: 0, hole: false },
            Request::CopyRange { source: node, source_offset: 0, target: node, target_offset: 0, len: 0 },
            Request::Fsync { node, data_only: true },
            Request::SyncFs,
            Request::StatFs,
            Request::GetXattr { node, name: name() },
            Request::ListXattr { node },
            Request::SetXattr { node, name: name(), value: Box::default(), mode: XattrMode::Either },
            Request::RemoveXattr { node, name: name() },
            Request::TestLock { node, lock },
            Request::SetLock { node, lock, wait: false },
            Request::ReleaseLocks { node, flock: false, owner: 0 },
            Request::Access { node, mask: 0 },
            Request::Parent { node },
            Request::Rewrite {
                node,
                wrote: Tid(1),
                life: Incarnation(1),
                append: false,
                offset: 0,
                data: Payload::Owned(Vec::new()),
            },
            Request::Replicate { node },
            Request::Totals { unit: Unit { dir: node.ino, frag: Frag::WHOLE } },
            Request::Hand { unit: Unit { dir: node.ino, frag: Frag::WHOLE }, to: RankId(1) },
            Request::SetTimes { dir: node.ino, mtime: stdx::Wall(0), first: Ino::NONE, stamp: 0 },
            Request::Opened { node, session: crate::ids::SessionId(1) },
            Request::Transact { id: TxnId(1), step: Step::Abort },
            Request::Facts { node },
            Request::Sessions { sessions: vec![crate::ids::SessionId(1)] },
            Request::Holders {
                id: crate::cluster::MoveId(1),
                moved: crate::holder::Moved { unit: Unit { dir: node.ino, frag: Frag::WHOLE }, slot: 0 },
                version: 1,
                first: true,
                list: vec![crate::holder::Holder::default()],
            },
            Request::Unpin { dir: node.ino },
            Request::Heat { unit: Unit { dir: node.ino, frag: Frag::WHOLE } },
        ]
    }

    #[test]
    fn a_kind_is_the_wire_ordinal() {
        let requests = one_of_each();
        assert_eq!(requests.len(), Kind::COUNT);
        for (at, request) in requests.iter().enumerate() {
            let mut w = Writer::new();
            request.encode(&mut w);
            let ordinal = match request.kind().name() {
                "facts" => 50,
                "unpin" => 51,
                "heat" => 52,
                "sessions" | "holders" => at,
                _ => at + 1,
            };
            assert_eq!(
                (request.kind().index(), usize::from(w.0[0])),
                (at, ordinal),
                "{}",
                request.kind().name()
            );
        }
        assert_eq!(Kind::SET_LOCK.name(), "setfilelock");
    }
}
