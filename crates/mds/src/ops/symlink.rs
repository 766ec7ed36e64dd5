//! Symlink and readlink.
//!
//! Absent: following; the client's kernel does.

use crate::cache::attr_of;
use crate::op::{Op, Plan};
use crate::ops::create::{free_name, new_inode};
use crate::view::{Found, View};
use proto::inode::{InodeExt, SYMLINK_BYTES_MAX};
use proto::reply::Reply;
use proto::request::NewNode;
use proto::{Errno, FileKind, Name, NodeRef};

pub(crate) fn plan(view: &mut View, op: &mut Op, parent: NodeRef, name: &Name, target: &[u8]) -> Found<Plan> {
    if target.is_empty() {
        return Err(Errno::ENOENT.into());
    }
    if target.len() > SYMLINK_BYTES_MAX {
        return Err(Errno::ENAMETOOLONG.into());
    }
    let free = free_name(view, op, parent, name)?.map_err(|_| Errno::EEXIST)?;
    let ino = view.new_ino()?;
    let new = NewNode { mode: FileKind::Symlink.mode_bits() | 0o777, umask: 0, rdev: 0 };
    let (mut core, _) = new_inode(view, op, free.parent, ino, &new);
    core.size = target.len() as u64;
    let ext = InodeExt { symlink: Some(target.into()), ..Default::default() };
    let place = view.place_in(free.dir, free.hash, name.as_bytes());
    let attr = attr_of(&core, Some(&ext), place.of, place.hash);
    view.txn.primary(place, &core, Some(&ext));
    view.put_listing(free.dir, 1, 0);
    Plan::commit(Reply::Attr(attr))
}

pub(crate) fn read(view: &mut View, op: &mut Op, node: NodeRef) -> Found<Plan> {
    let slot = view.resolve(node, op)?;
    match view.cache.ext(slot).and_then(|ext| ext.symlink.as_ref()) {
        Some(target) => Plan::reply(Reply::Target(target.clone())),
        None => Err(Errno::EINVAL.into()),
    }
}
