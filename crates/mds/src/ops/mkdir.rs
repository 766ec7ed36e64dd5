//! Mkdir: a directory is born with its backptr, and its header if its content is here.
//!
//! Absent: which directories are placed by slots (`placing.rs`).

use crate::cache::attr_of;
use crate::op::{Op, Plan};
use crate::ops::create::{free_name, new_inode};
use crate::territory::Side;
use crate::view::{Found, View};
use proto::inode::flags;
use proto::reply::Reply;
use proto::request::NewNode;
use proto::{Errno, FileKind, Name, NodeRef};

pub(crate) fn plan(view: &mut View, op: &mut Op, parent: NodeRef, name: &Name, new: &NewNode) -> Found<Plan> {
    let free = free_name(view, op, parent, name)?.map_err(|_| Errno::EEXIST)?;
    let ino = view.new_ino()?;
    let mut new = new.clone();
    new.mode = FileKind::Directory.mode_bits() | (new.mode & 0o1777);
    let (mut core, mut ext) = new_inode(view, op, free.parent, ino, &new);
    let taken = view.rules(free.parent);
    if !taken.is_empty() {
        ext.get_or_insert_default().policies.taken = taken;
    }
    // Who was told already works in it, and takes it for the rank's that it told of it.
    let placed =
        (op.told.is_none() || stdx::mutant!("mds_performed_placed")) && view.places(free.parent, ino);
    if placed {
        core.flags |= flags::SLOTS;
    }
    let here = !placed || view.territory.of_slot(ino) == Side::Mine;
    if !here && !stdx::mutant!("mds_newborn_unmarked") {
        core.flags |= flags::NEWBORN;
    }
    let now = view.wall();
    let place = view.place_in(free.dir, free.hash, name.as_bytes());
    let mut attr = attr_of(&core, ext.as_deref(), place.of, place.hash);
    attr.nlink = 2;
    attr.blocks = 0;
    attr.change += 1;
    view.txn.primary(place, &core, ext.as_deref());
    // The header is for its content's owner to write.
    if here {
        view.txn.newborn(ino, now);
    }
    view.txn.backptr(ino, core.change, place);
    view.put_listing(free.dir, 1, 1);
    Plan::commit(Reply::Attr(attr))
}
