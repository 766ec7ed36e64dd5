//! Lookup: the inode a name leads to.
//!
//! Absent: paths; the client walks.

use crate::op::{Learned, Op, Park, Plan, Stop};
use crate::perm;
use crate::view::{Found, View};
use proto::reply::Reply;
use proto::{Errno, Ino, Name, NodeRef};

pub(crate) fn plan(view: &mut View, op: &mut Op, parent: NodeRef, name: &Name) -> Found<Plan> {
    let hash = view.name_hash(name);
    let (node, dir) = view.directory(parent, hash, op)?;
    perm::access(view, op, node, perm::EXEC)?;
    let slot = view.lookup(dir, hash, name.as_bytes())?.ok_or(Errno::ENOENT)?;
    let ino = view.cache.node(slot).ino();
    if !view.cache.node(slot).primary() && view.is_boundary(Ino::LINKS) {
        return match view.learned.as_deref() {
            Some(Learned::Attr(attr)) if attr.ino == ino => Plan::reply(Reply::Attr(*attr)),
            _ => Err(Stop::Park(Park::Linked(ino))),
        };
    }
    let slot = view.target(slot, op)?;
    let attr = view.attr(slot)?;
    Plan::reply(Reply::Attr(attr))
}
