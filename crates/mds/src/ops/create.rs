//! Create, mknod, and what every new inode has in common: owner, mode, inherited ACL.
//!
//! Absent: directories, symlinks and nameless files (files of their own).

use crate::acl::{self, Acl};
use crate::cache::attr_of;
use crate::op::{Effects, Op, Plan};
use crate::ops::open;
use crate::perm;
use crate::view::{Found, View};
use proto::inode::{InodeCore, InodeExt};
use proto::reply::Reply;
use proto::request::{NewNode, open_flags};
use proto::{Errno, FileKind, Ino, Name, NameHash, NodeRef};

/// A name that is free to be made.
pub(crate) struct FreeName {
    pub parent: u32,
    pub dir: u32,
    pub hash: NameHash,
}

/// Finds a directory in which `name` does not exist and the caller may make it. `Err(slot)` inside:
/// the node that has the name.
pub(crate) fn free_name(
    view: &mut View,
    op: &mut Op,
    parent: NodeRef,
    name: &Name,
) -> Found<Result<FreeName, u32>> {
    let hash = view.name_hash(name);
    let (parent, dir) = view.directory(parent, hash, op)?;
    perm::access(view, op, parent, perm::EXEC)?;
    if let Some(slot) = view.lookup(dir, hash, name.as_bytes())? {
        return Ok(Err(slot));
    }
    perm::access(view, op, parent, perm::WRITE)?;
    view.space()?;
    Ok(Ok(FreeName { parent, dir, hash }))
}

/// Whether what is made in that directory takes its group or a part of its mode from there.
pub(crate) fn hands_down(view: &View, parent: u32) -> bool {
    let has_default = |ext| acl::stored(ext, acl::DEFAULT).is_some();
    view.cache.node(parent).core.mode & 0o2000 != 0 || view.cache.ext(parent).is_some_and(has_default)
}

/// The record of a new inode in `parent`: the parent's default ACL or the umask, setgid inheritance.
pub(crate) fn new_inode(
    view: &View,
    op: &Op,
    parent: u32,
    ino: Ino,
    new: &NewNode,
) -> (InodeCore, Option<Box<InodeExt>>) {
    let above = &view.cache.node(parent).core;
    // Its caller was told of it when that directory handed nothing down (`early.rs`). The directory's inode is another rank's, which may
    // have changed that by now.
    let is_plain = op.told.is_some_and(|told| told.heard)
        && !view.is_at_home(above.ino)
        && !stdx::mutant!("mds_told_takes_from_above");
    let kind = FileKind::of_mode(new.mode).unwrap_or(FileKind::Regular);
    let mut mode = new.mode & 0o7777;
    // Most have none.
    let mut ext = None::<Box<InodeExt>>;
    let default = match kind == FileKind::Symlink || is_plain {
        true => None,
        false => view.cache.ext(parent).and_then(|ext| acl::stored(ext, acl::DEFAULT)),
    };
    match default {
        Some(default) => mode = (mode & !0o777) | inherit(default, kind, mode, ext.get_or_insert_default()),
        None if kind != FileKind::Symlink => mode &= !(new.umask & 0o777),
        None => {}
    }
    let above = if is_plain { (0, 0) } else { (above.mode, above.gid) };
    let (mode, gid) = proto::attr::inherited(above, kind, mode, &op.cred);
    if matches!(kind, FileKind::Character | FileKind::Block) {
        ext.get_or_insert_default().rdev = new.rdev;
    }
    let now = view.wall();
    let core = InodeCore {
        ino,
        generation: view.config.fs_epoch,
        mode: kind.mode_bits() | mode,
        nlink: 1,
        uid: op.cred.uid,
        gid,
        atime: now,
        mtime: now,
        ctime: now,
        btime: now,
        change: 1,
        ..Default::default()
    };
    (core, ext.filter(|ext| !ext.is_empty()))
}

fn inherit(default: Acl, kind: FileKind, mode: u32, ext: &mut InodeExt) -> u32 {
    let below = (kind == FileKind::Directory).then(|| default.bytes());
    let (access, limited) = default.inherit(mode);
    if !access.is_mode() {
        ext.xattrs.push((acl::ACCESS.into(), access.bytes()));
    }
    if let Some(below) = below {
        ext.xattrs.push((acl::DEFAULT.into(), below));
    }
    limited
}

/// Create if absent, and open.
pub(crate) fn plan(
    view: &mut View,
    op: &mut Op,
    parent: NodeRef,
    name: &Name,
    new: &NewNode,
    flags: u32,
) -> Found<Plan> {
    let free = match free_name(view, op, parent, name)? {
        Ok(free) => free,
        Err(_) if flags & open_flags::EXCL != 0 => return Err(Errno::EEXIST.into()),
        Err(slot) => {
            let slot = view.target(slot, op)?;
            return open::existing(view, op, slot, flags, true);
        }
    };
    let mut new = new.clone();
    new.mode = FileKind::Regular.mode_bits() | (new.mode & 0o7777);
    make(view, op, &free, name, &new, Some(open::rights(flags)))
}

/// A regular file, fifo, socket or device.
pub(crate) fn mknod(
    view: &mut View,
    op: &mut Op,
    parent: NodeRef,
    name: &Name,
    new: &NewNode,
) -> Found<Plan> {
    let mut new = new.clone();
    if new.mode & 0o170_000 == 0 {
        new.mode |= FileKind::Regular.mode_bits();
    }
    match FileKind::of_mode(new.mode) {
        Some(FileKind::Regular | FileKind::Fifo | FileKind::Socket) => {}
        Some(FileKind::Character | FileKind::Block) if op.check && op.cred.uid != 0 => {
            return Err(Errno::EPERM.into());
        }
        Some(FileKind::Character | FileKind::Block) => {}
        _ => return Err(Errno::EINVAL.into()),
    }
    let free = free_name(view, op, parent, name)?.map_err(|_| Errno::EEXIST)?;
    make(view, op, &free, name, &new, None)
}

fn make(
    view: &mut View,
    op: &mut Op,
    free: &FreeName,
    name: &Name,
    new: &NewNode,
    rights: Option<u32>,
) -> Found<Plan> {
    let ino = view.new_ino()?;
    let (core, ext) = new_inode(view, op, free.parent, ino, new);
    let place = view.place_in(free.dir, free.hash, name.as_bytes());
    let attr = attr_of(&core, ext.as_deref(), place.of, place.hash);
    view.txn.primary(place, &core, ext.as_deref());
    view.put_listing(free.dir, 1, 0);
    if let Some(rights) = rights {
        let effects = Effects { open: Some((ino, rights)), ..Default::default() };
        return Ok(Plan::Commit(Reply::Created { attr, new: true }, effects));
    }
    Plan::commit(Reply::Attr(attr))
}
