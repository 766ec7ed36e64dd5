//! Getattr, access and parent: questions about one inode.
//!
//! Absent: names.

use crate::op::{Op, Plan};
use crate::perm;
use crate::view::{Found, View};
use proto::reply::Reply;
use proto::{Errno, Ino, NodeRef};

pub(crate) fn plan(view: &mut View, op: &mut Op, node: NodeRef) -> Found<Plan> {
    let slot = view.resolve(node, op)?;
    let attr = view.attr(slot)?;
    Plan::reply(Reply::Attr(attr))
}

pub(crate) fn access(view: &mut View, op: &mut Op, node: NodeRef, mask: u32) -> Found<Plan> {
    if mask & !7 != 0 {
        return Err(Errno::EINVAL.into());
    }
    let slot = view.resolve(node, op)?;
    perm::allowed(view, &op.cred, slot, mask)?;
    Plan::reply(Reply::Ok)
}

/// Where a directory's parent is; the root is its own, and so is what a session is limited to.
pub(crate) fn parent(view: &mut View, op: &mut Op, node: NodeRef) -> Found<Plan> {
    let slot = view.resolve(node, op)?;
    if !view.cache.node(slot).is_dir() {
        return Err(Errno::ENOTDIR.into());
    }
    if node.ino == op.limit {
        let (parent, hash) = (view.cache.parent_of(slot), view.cache.node(slot).hash);
        return Plan::reply(Reply::Node(NodeRef { ino: node.ino, parent, hash }));
    }
    let parent = if node.ino == Ino::ROOT { Ino::ROOT } else { view.cache.parent_of(slot) };
    let at = view.inode_of_content(NodeRef::bare(parent), Some(view.cache.node(slot).hash), op)?;
    let hash = view.cache.node(at).hash;
    Plan::reply(Reply::Node(NodeRef { ino: parent, parent: view.cache.parent_of(at), hash }))
}
