//! What a client sees of an inode: attributes, made of its record and, for a directory, of its header.
//!
//! Absent: who may see them.

use super::Cache;
use super::dir::{self, Dir};
use super::slab::NONE;
use proto::header::FragHeader;
use proto::inode::{InodeCore, InodeExt};
use proto::{Attr, Ino, NameHash};

impl Cache {
    /// What a client sees of a primary node. `None` for a directory whose header is not known.
    #[inline]
    pub(crate) fn attr(&self, slot: u32) -> Option<Attr> {
        let node = self.nodes.get(slot);
        let ext = self.ext(slot);
        let mut attr = attr_of(&node.core, ext, self.dirs.get(node.dir).of(), node.hash);
        if node.is_dir() {
            let dir = self.dirs.get(if node.own == NONE { return None } else { node.own });
            if !dir.has(dir::HEADER) || dir.header.spreading.is_some() {
                return None;
            }
            dir_attr(&mut attr, dir);
        }
        Some(attr)
    }
}

/// The attributes of an inode that is no directory.
#[inline]
pub(crate) fn attr_of(core: &InodeCore, ext: Option<&InodeExt>, parent: Ino, hash: NameHash) -> Attr {
    let symlink = ext.and_then(|e| e.symlink.as_ref()).map_or(0, |s| s.len() as u64);
    Attr {
        ino: core.ino,
        generation: core.generation,
        mode: core.mode,
        nlink: core.nlink,
        uid: core.uid,
        gid: core.gid,
        rdev: ext.map_or(0, |e| e.rdev),
        size: if symlink > 0 { symlink } else { core.size },
        blocks: core.size.div_ceil(512),
        atime: core.atime,
        mtime: core.mtime,
        ctime: core.ctime,
        btime: core.btime,
        change: core.change,
        parent,
        hash,
        // What is made there by its client would not take after its policies.
        has_xattrs: ext.is_some_and(|e| !e.xattrs.is_empty() || e.policies.places()),
    }
}

/// What a directory's header adds.
fn dir_attr(attr: &mut Attr, dir: &Dir) {
    header_attr(attr, &dir.header);
}

/// The same of the header alone.
pub(crate) fn header_attr(attr: &mut Attr, header: &FragHeader) {
    attr.size = header.entries;
    attr.blocks = 0;
    attr.nlink = if attr.nlink == 0 { 0 } else { (header.subdirs + 2).min(u64::from(u32::MAX)) as u32 };
    attr.mtime = attr.mtime.max(header.mtime);
    attr.ctime = attr.ctime.max(header.mtime);
    attr.change = attr.change.wrapping_add(header.change);
}
