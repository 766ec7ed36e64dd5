//! Rmdir: an empty directory goes, with its header and backptr.
//!
//! Absent: trees.

use crate::op::{Op, Park, Plan, Stop};
use crate::ops::Headers;
use crate::perm;
use crate::view::{Found, View};
use proto::reply::Reply;
use proto::{Errno, Name, NodeRef};

pub(crate) fn plan(view: &mut View, op: &mut Op, parent: NodeRef, name: &Name) -> Found<Plan> {
    let (parent, dir) = view.directory(parent, op)?;
    perm::access(view, op, parent, perm::EXEC)?;
    let hash = view.name_hash(name);
    let slot = view.lookup(dir, hash, name.as_bytes())?.ok_or(Errno::ENOENT)?;
    perm::access(view, op, parent, perm::WRITE)?;
    let target = view.target(slot, op)?;
    perm::sticky(view, op, parent, target)?;
    let ino = view.cache.node(target).ino();
    if view.is_boundary(ino) {
        // What is empty there now may be filled before it is here: then it stays, and is here.
        let empty = view.header_of(target)?.entries == 0;
        return Err(if empty { Stop::Park(Park::Hand(ino)) } else { Errno::ENOTEMPTY.into() });
    }
    let entries = view.entries_of(target)?;
    // What others decide may empty it.
    view.listing_is_free(ino)?;
    if view.cache.dir(entries).header.entries > 0 && !stdx::mutant!("mds_rmdir_not_empty") {
        return Err(Errno::ENOTEMPTY.into());
    }
    let core = view.changed_core(target);
    view.txn.delete(view.place_in(dir, hash, name.as_bytes()));
    view.txn.no_backptr(core.ino, core.change);
    let mut headers = Headers::new();
    headers.add(dir, -1, -1, Some(view.wall()));
    headers.emit(view);
    Plan::commit(Reply::Ok)
}
