//! The kinds of requests, under the names that counters and operators' lists show.
//!
//! Absent: what a request carries (`request.rs`).

use crate::ids::NodeRef;
use crate::name::Name;
use crate::request::Request;

/// A kind of request; its number is the request's wire ordinal less one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind(u8);

/// Ceph's word where it has the operation.
const NAMES: [&str; 33] = [
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
];

impl Kind {
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

impl Request {
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
            Self::Read { .. } => 16,
            Self::Write { .. } => 17,
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
            Self::SetLock { .. } => 29,
            Self::ReleaseLocks { .. } => 30,
            Self::Access { .. } => 31,
            Self::Parent { .. } => 32,
        })
    }

    /// The inode it is about, and the name in it where it is about one. Of two (a rename, a copy) the first.
    #[must_use]
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
            | Self::Parent { node } => Some((*node, None)),
            Self::SyncFs | Self::StatFs => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Writer;

    #[test]
    fn a_kind_is_the_wire_ordinal() {
        let node = NodeRef::default();
        let name = Name::new(b"a").expect("a name");
        let requests = [
            Request::Lookup { parent: node, name: name.clone() },
            Request::Release { node, count: 1 },
            Request::Fsync { node, data_only: true },
            Request::StatFs,
            Request::GetXattr { node, name },
            Request::Parent { node },
        ];
        for request in requests {
            let mut w = Writer::new();
            request.encode(&mut w);
            assert_eq!(request.kind().index() + 1, usize::from(w.0[0]), "{}", request.kind().name());
        }
        assert_eq!(Kind::all().last().map(Kind::name), Some("lookupparent"));
    }
}
