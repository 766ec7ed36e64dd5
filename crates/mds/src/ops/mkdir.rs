//! Mkdir: a directory is born with its header and its backptr.
//!
//! Absent: placement (it comes with several ranks).

use crate::cache::attr_of;
use crate::op::{Op, Plan};
use crate::ops::create::{free_name, new_inode};
use crate::view::{Found, View};
use proto::reply::Reply;
use proto::request::NewNode;
use proto::{Errno, FileKind, Name, NodeRef};

pub(crate) fn plan(view: &mut View, op: &mut Op, parent: NodeRef, name: &Name, new: &NewNode) -> Found<Plan> {
    let free = free_name(view, op, parent, name)?.map_err(|_| Errno::EEXIST)?;
    let ino = view.new_ino()?;
    let mut new = new.clone();
    new.mode = FileKind::Directory.mode_bits() | (new.mode & 0o1777);
    let (core, ext) = new_inode(view, op, free.parent, ino, &new);
    let now = view.wall();
    let place = view.place_in(free.dir, free.hash, name.as_bytes());
    let mut attr = attr_of(&core, ext.as_deref(), place.dir, place.hash);
    attr.nlink = 2;
    attr.blocks = 0;
    attr.change += 1;
    view.txn.primary(place, &core, ext.as_deref());
    view.txn.newborn(ino, now);
    view.txn.backptr(ino, core.change, place);
    view.put_listing(free.dir, 1, 1);
    Plan::commit(Reply::Attr(attr))
}
