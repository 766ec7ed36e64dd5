//! Unlink: a name goes; with the last one the inode.
//!
//! Absent: directories (`rmdir.rs`).

use crate::op::{Effects, Op, Plan};
use crate::ops::Headers;
use crate::ops::destroy::{Fate, lose_name, prepare};
use crate::perm;
use crate::transactions::across;
use crate::view::{Found, View};
use proto::reply::Reply;
use proto::{Errno, Ino, Name, NodeRef};

pub(crate) fn plan(view: &mut View, op: &mut Op, reference: NodeRef, name: &Name) -> Found<Plan> {
    let hash = view.name_hash(name);
    let (parent, dir) = view.directory(reference, hash, op)?;
    perm::access(view, op, parent, perm::EXEC)?;
    let slot = view.lookup(dir, hash, name.as_bytes())?.ok_or(Errno::ENOENT)?;
    if !view.cache.node(slot).primary() && view.is_boundary(Ino::LINKS) {
        return across::unlink(view, op, reference, name);
    }
    let target = view.target(slot, op)?;
    perm::access(view, op, parent, perm::WRITE)?;
    perm::sticky(view, op, parent, target)?;
    if view.cache.node(target).is_dir() {
        return Err(Errno::EISDIR.into());
    }
    prepare(view, target)?;
    let ino = view.cache.node(target).ino();
    let mut headers = Headers::new();
    headers.add(dir, -1, 0, Some(view.wall()));
    let from = (view.cache.dir(dir).of(), hash);
    let fate = lose_name(view, op, target, from, &mut headers)?;
    view.txn.delete(view.place_in(dir, hash, name.as_bytes()));
    headers.emit(view);
    let orphan = (fate == Fate::Orphan).then_some(ino);
    Ok(Plan::Commit(Reply::Ok, Effects { orphan, ..Default::default() }))
}
