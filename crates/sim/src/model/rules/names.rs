//! Rules of names: made, linked, removed, moved.
//!
//! Absent: attributes and contents (`rules.rs`).

use super::{Answer, Done, GONE, Op, SETGID, refuse};
use crate::model::tree::{Node, Tree};
use proto::attr::FileKind;
use proto::request::{NewNode, rename_flags};
use proto::{Errno, Ino, Name, NodeRef};
use std::rc::Rc;
use stdx::Wall;

impl Tree {
    pub(super) fn make(
        &mut self,
        op: &Op<'_>,
        parent: NodeRef,
        name: &Name,
        new: &NewNode,
        target: Option<&[u8]>,
    ) -> Result<(), Vec<Errno>> {
        if self.child(parent, name)?.is_some() {
            return refuse(Errno::EEXIST);
        }
        let mut node = self.newborn(op, parent, new)?;
        node.target = target.map(Rc::from);
        node.size = target.map_or(0, |target| target.len() as u64);
        node.parent = parent.ino;
        self.nodes.insert(op.made, Rc::new(node));
        self.change(parent.ino).entries.insert(name.as_bytes().into(), op.made);
        self.touch_dir(parent.ino, op.wall);
        Ok(())
    }

    pub(super) fn newborn(&self, op: &Op<'_>, parent: NodeRef, new: &NewNode) -> Result<Node, Vec<Errno>> {
        let kind =
            if new.mode & 0o170_000 == 0 { FileKind::Regular.mode_bits() } else { new.mode & 0o170_000 };
        let dir = self.directory(parent)?;
        let default_acl = dir.xattrs.contains_key(&b"system.posix_acl_default"[..]);
        let umask = if default_acl { 0 } else { new.umask };
        let mut mode = kind | (new.mode & 0o7777 & !umask);
        let is_dir = kind == FileKind::Directory.mode_bits();
        let gid = if dir.mode & SETGID != 0 {
            if is_dir {
                mode |= SETGID;
            }
            dir.gid
        } else {
            op.cred.gid
        };
        let mut node = Node::new(op.made, mode, op.wall);
        let device = matches!(node.kind(), FileKind::Character | FileKind::Block);
        (node.uid, node.gid, node.rdev) = (op.cred.uid, gid, if device { new.rdev } else { 0 });
        Ok(node)
    }

    pub(super) fn link(&mut self, op: &Op<'_>, node: NodeRef, parent: NodeRef, name: &Name) -> Done {
        let mut errors = Vec::new();
        match self.node(node.ino) {
            None => errors.extend(GONE),
            Some(node) if node.is_dir() => errors.push(Errno::EPERM),
            // A race with the last unlink: both answers are right.
            Some(node) if node.nlink == 0 && !node.tmpfile && op.made == Ino::NONE => errors.extend(GONE),
            Some(_) => {}
        }
        match self.child(parent, name) {
            Err(more) => errors.extend(more),
            Ok(Some(_)) => errors.push(Errno::EEXIST),
            Ok(None) => {}
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let linked = self.change(node.ino);
        linked.nlink += 1;
        linked.tmpfile = false;
        linked.ctime = op.wall;
        self.change(parent.ino).entries.insert(name.as_bytes().into(), node.ino);
        self.touch_dir(parent.ino, op.wall);
        Ok(Answer::Attr(node.ino))
    }

    /// Takes one name away; the node stays while it is an orphan. Which nodes are, the journal says:
    /// the caller removes those that are gone.
    fn drop_name(&mut self, dir: Ino, name: &[u8], wall: Wall) {
        if let Some(ino) = self.change(dir).entries.remove(name) {
            if self.node(ino).is_some_and(Node::is_dir) {
                self.nodes.remove(&ino);
            } else {
                let node = self.change(ino);
                node.nlink -= 1;
                node.ctime = wall;
            }
        }
        self.touch_dir(dir, wall);
    }

    pub(super) fn unlink(&mut self, op: &Op<'_>, parent: NodeRef, name: &Name) -> Done {
        let ino = self.child(parent, name)?.ok_or(vec![Errno::ENOENT])?;
        if self.node(ino).is_some_and(Node::is_dir) {
            return Err(vec![Errno::EISDIR, Errno::EPERM]);
        }
        self.drop_name(parent.ino, name.as_bytes(), op.wall);
        Ok(Answer::Ok)
    }

    pub(super) fn remove_dir(&mut self, op: &Op<'_>, parent: NodeRef, name: &Name) -> Done {
        let ino = self.child(parent, name)?.ok_or(vec![Errno::ENOENT])?;
        let node = self.node(ino).ok_or(GONE.to_vec())?;
        if !node.is_dir() {
            return refuse(Errno::ENOTDIR);
        }
        if !node.entries.is_empty() {
            return refuse(Errno::ENOTEMPTY);
        }
        self.drop_name(parent.ino, name.as_bytes(), op.wall);
        Ok(Answer::Ok)
    }

    pub(super) fn rename(
        &mut self,
        op: &Op<'_>,
        from: (NodeRef, &Name),
        to: (NodeRef, &Name),
        flags: u32,
    ) -> Done {
        let exchange = flags & rename_flags::EXCHANGE != 0;
        if let Some(errors) = self.rename_errors(from, to, flags) {
            return Err(errors);
        }
        let (Ok(Some(moved)), Ok(other)) = (self.child(from.0, from.1), self.child(to.0, to.1)) else {
            return refuse(Errno::ENOENT);
        };
        if other == Some(moved) {
            return Ok(Answer::Ok);
        }
        let (from_dir, to_dir) = (from.0.ino, to.0.ino);
        if exchange {
            let other = other.unwrap_or_default();
            self.change(from_dir).entries.insert(from.1.as_bytes().into(), other);
            self.moved_into(other, from_dir, op.wall);
        } else {
            if other.is_some() {
                self.drop_name(to_dir, to.1.as_bytes(), op.wall);
            }
            self.change(from_dir).entries.remove(from.1.as_bytes());
        }
        self.change(to_dir).entries.insert(to.1.as_bytes().into(), moved);
        self.moved_into(moved, to_dir, op.wall);
        self.touch_dir(from_dir, op.wall);
        self.touch_dir(to_dir, op.wall);
        Ok(Answer::Ok)
    }

    fn moved_into(&mut self, ino: Ino, dir: Ino, wall: Wall) {
        let node = self.change(ino);
        node.ctime = node.ctime.max(wall);
        node.parent = dir;
    }

    fn rename_errors(&self, from: (NodeRef, &Name), to: (NodeRef, &Name), flags: u32) -> Option<Vec<Errno>> {
        let mut errors = Vec::new();
        let exchange = flags & rename_flags::EXCHANGE != 0;
        let keep = flags & rename_flags::NOREPLACE != 0;
        if flags & !3 != 0 || (exchange && keep) {
            errors.push(Errno::EINVAL);
        }
        let source = self.child(from.0, from.1);
        let target = self.child(to.0, to.1);
        for side in [&source, &target] {
            if let Err(more) = side {
                errors.extend(more);
            }
        }
        let (source, target) = (source.ok().flatten(), target.ok().flatten());
        match (source, target) {
            (None, _) => errors.push(Errno::ENOENT),
            (Some(_), None) if exchange => errors.push(Errno::ENOENT),
            (Some(_), Some(_)) if keep => errors.push(Errno::EEXIST),
            (Some(a), Some(b)) if a == b => {}
            (Some(a), other) => self.rename_conflicts(a, other, from.0.ino, to.0.ino, exchange, &mut errors),
        }
        (!errors.is_empty()).then_some(errors)
    }

    fn rename_conflicts(
        &self,
        a: Ino,
        b: Option<Ino>,
        from: Ino,
        to: Ino,
        exchange: bool,
        errors: &mut Vec<Errno>,
    ) {
        let is_dir = |ino: Ino| self.node(ino).is_some_and(Node::is_dir);
        if is_dir(a) && self.is_at_or_above(a, to) {
            errors.push(Errno::EINVAL);
        }
        let Some(b) = b else { return };
        if exchange {
            if is_dir(b) && self.is_at_or_above(b, from) {
                errors.push(Errno::EINVAL);
            }
            return;
        }
        match (is_dir(a), is_dir(b)) {
            (true, false) => errors.push(Errno::ENOTDIR),
            (false, true) => errors.extend([Errno::EISDIR, Errno::ENOTEMPTY]),
            (true, true) if self.node(b).is_some_and(|b| !b.entries.is_empty()) => {
                errors.extend([Errno::ENOTEMPTY, Errno::EEXIST]);
            }
            _ => {}
        }
    }
}
