//! O_TMPFILE: an open inode without a name, born in `//orphans`.
//!
//! Absent: giving it a name (`link.rs`).

use crate::cache::attr_of;
use crate::op::{Effects, Op, Plan};
use crate::ops::create::new_inode;
use crate::ops::open::rights;
use crate::perm;
use crate::view::{Found, View};
use proto::reply::Reply;
use proto::request::NewNode;
use proto::{FileKind, NodeRef};

pub(crate) fn plan(view: &mut View, op: &mut Op, parent: NodeRef, new: &NewNode, flags: u32) -> Found<Plan> {
    let parent = view.inode_of_content(parent, None, op)?;
    view.entries_of(parent)?;
    perm::modify(view, op, parent)?;
    view.space()?;
    let orphans = view.system(view.orphans())?;
    let ino = view.new_ino()?;
    let mut new = new.clone();
    new.mode = FileKind::Regular.mode_bits() | (new.mode & 0o7777);
    let (mut core, ext) = new_inode(view, op, parent, ino, &new);
    core.nlink = 0;
    let name = ino.link_name();
    let place = view.place_in(orphans, view.hash(&name), &name);
    let attr = attr_of(&core, ext.as_deref(), place.of, place.hash);
    view.txn.primary(place, &core, ext.as_deref());
    view.put_listing(orphans, 1, 0);
    let effects = Effects { open: Some((ino, rights(flags))), ..Default::default() };
    Ok(Plan::Commit(Reply::Created { attr, new: true }, effects))
}
