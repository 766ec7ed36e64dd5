//! From paths to inodes: one lookup per component, symbolic links followed as Linux does.
//!
//! Absent: any cache of names.

use super::{Fs, attr};
use crate::error::Result;
use proto::name::Name;
use proto::reply::Reply;
use proto::request::Request;
use proto::{Attr, Errno, FileKind, NodeRef};
use std::collections::VecDeque;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// As many symbolic links as Linux follows in one path.
const LINKS_MAX: u32 = 40;

pub(super) fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

fn components(path: &[u8]) -> impl Iterator<Item = Box<[u8]>> + '_ {
    path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".").map(Into::into)
}

impl Fs {
    fn root_attr(&self) -> Result<Attr> {
        self.getattr(NodeRef::bare(self.mount.root()))
    }

    /// Walks the path; `follow`: through a symbolic link at its end, too.
    pub(super) fn resolve(&self, path: &Path, follow: bool) -> Result<Attr> {
        let mut rest: VecDeque<Box<[u8]>> = components(bytes(path)).collect();
        let mut at = self.root_attr()?;
        let mut links = 0;
        while let Some(part) = rest.pop_front() {
            if at.kind() != FileKind::Directory {
                return Err(Errno::ENOTDIR);
            }
            let next = self.enter(&at, &part)?;
            if next.kind() != FileKind::Symlink || (rest.is_empty() && !follow) {
                at = next;
                continue;
            }
            links += 1;
            if links > LINKS_MAX {
                return Err(Errno::ELOOP);
            }
            let Reply::Target(target) = self.call(Request::ReadLink { node: next.node() })? else {
                return Err(Errno::EPROTO);
            };
            if target.first() == Some(&b'/') {
                at = self.root_attr()?;
            }
            for part in components(&target).collect::<Vec<_>>().into_iter().rev() {
                rest.push_front(part);
            }
        }
        Ok(at)
    }

    fn enter(&self, dir: &Attr, part: &[u8]) -> Result<Attr> {
        if part == b".." {
            return match self.call(Request::Parent { node: dir.node() })? {
                Reply::Node(node) => self.getattr(node),
                _ => Err(Errno::EPROTO),
            };
        }
        let name = Name::new(part)?;
        attr(self.call(Request::Lookup { parent: dir.node(), name }))
    }

    /// The directory of the path's last component, and that component.
    pub(super) fn parent_of(&self, path: &Path) -> Result<(NodeRef, Name)> {
        let last = path.file_name().ok_or(Errno::EINVAL)?;
        let parent = self.resolve(path.parent().unwrap_or(Path::new("")), true)?;
        if parent.kind() != FileKind::Directory {
            return Err(Errno::ENOTDIR);
        }
        Ok((parent.node(), Name::new(last.as_bytes())?))
    }
}
