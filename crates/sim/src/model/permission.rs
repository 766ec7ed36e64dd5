//! What a user who is not root may certainly not do, by mode bits alone.
//!
//! Absent: ACLs; where one is involved nothing is certain and nothing is said.

use crate::model::tree::{Node, Tree};
use proto::request::{Request, open_flags};
use proto::{Cred, Ino, Name, every_request};

const STICKY: u32 = 0o1000;
const WRITE_EXEC: u32 = 3;
const WRITE: u32 = 2;

/// Why the request must be refused, if that is certain. `tree` is the state before it.
#[must_use]
pub fn denied(tree: &Tree, request: &Request, cred: &Cred) -> Option<&'static str> {
    if cred.uid == 0 {
        return None;
    }
    match request {
        Request::MkNod { parent, .. }
        | Request::MkDir { parent, .. }
        | Request::Symlink { parent, .. }
        | Request::Link { parent, .. }
        | Request::TmpFile { parent, .. } => cannot_change(tree, parent.ino, cred),
        Request::Unlink { parent, name } | Request::RmDir { parent, name } => {
            cannot_change(tree, parent.ino, cred).or_else(|| sticky(tree, parent.ino, name, cred))
        }
        Request::Rename { parent, name, new_parent, new_name, .. } => cannot_change(tree, parent.ino, cred)
            .or_else(|| cannot_change(tree, new_parent.ino, cred))
            .or_else(|| sticky(tree, parent.ino, name, cred))
            .or_else(|| sticky(tree, new_parent.ino, new_name, cred)),
        Request::Create { parent, name, flags, .. } => match child(tree, parent.ino, name) {
            None => cannot_change(tree, parent.ino, cred),
            Some(node) if flags & open_flags::TRUNC != 0 => {
                lacks(node, cred, WRITE).then_some("may not write")
            }
            Some(_) => None,
        },
        Request::SetAttr { node, set } if set.mode.is_some() || set.uid.is_some() => {
            tree.node(node.ino).filter(|node| node.uid != cred.uid).map(|_| "is not the owner")
        }
        every_request!() => None,
    }
}

fn child<'a>(tree: &'a Tree, dir: Ino, name: &Name) -> Option<&'a Node> {
    tree.node(*tree.node(dir)?.entries.get(name.as_bytes())?)
}

fn lacks(node: &Node, cred: &Cred, wanted: u32) -> bool {
    let shift = match () {
        () if node.uid == cred.uid => 6,
        () if cred.in_group(node.gid) => 3,
        () => 0,
    };
    !node.has_acl() && (node.mode >> shift) & wanted != wanted
}

fn cannot_change(tree: &Tree, dir: Ino, cred: &Cred) -> Option<&'static str> {
    tree.node(dir).filter(|dir| lacks(dir, cred, WRITE_EXEC)).map(|_| "may not change the directory")
}

fn sticky(tree: &Tree, dir: Ino, name: &Name, cred: &Cred) -> Option<&'static str> {
    let (node, child) = (tree.node(dir)?, child(tree, dir, name)?);
    let foreign = node.uid != cred.uid && child.uid != cred.uid;
    (node.mode & STICKY != 0 && foreign).then_some("sticky directory")
}
