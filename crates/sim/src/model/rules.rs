//! What each request does to the reference tree, and which errors it may end in.
//!
//! What POSIX leaves open (inode numbers, the order of checks) is taken from the answer under test:
//! a rule returns every error that applies, and the caller accepts any of them.
//!
//! Absent: file bytes, locks, durability.

mod names;

use crate::model::tree::{Node, Tree};
use proto::attr::{FileKind, SetAttr, SetTime};
use proto::reply::Reply;
use proto::request::{NewNode, Request, XattrMode, open_flags};
use proto::{Cred, Errno, Ino, Name, NodeRef, every_request};
use std::rc::Rc;
use stdx::Wall;

/// A request with what the answer under test fixes.
pub struct Op<'a> {
    pub request: &'a Request,
    pub cred: &'a Cred,
    /// The server's clock at execution.
    pub wall: Wall,
    /// The inode the answer says was made.
    pub made: Ino,
    /// Where an append or any other write landed, and how many bytes were done.
    pub offset: u64,
    pub count: u64,
}

/// What the answer must show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Ok,
    Attr(Ino),
    Created {
        ino: Ino,
        new: bool,
    },
    Target(Rc<[u8]>),
    Written {
        ino: Ino,
        count: u64,
    },
    Xattr(Rc<[u8]>),
    Names(Vec<Rc<[u8]>>),
    Node {
        parent: Ino,
    },
    /// Bytes (`judge/data.rs`), and places of them.
    Data,
    Offset,
    /// `judge/replies.rs`.
    Entries,
    /// `locks.rs`, `world/callers.rs`.
    Lock,
    /// What is free is not in the model.
    StatFs,
    /// `judge/rewrites.rs`.
    Rewritten,
}

type Done = Result<Answer, Vec<Errno>>;

const GONE: [Errno; 2] = [Errno::ESTALE, Errno::ENOENT];
const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;

fn refuse<T>(errno: Errno) -> Result<T, Vec<Errno>> {
    Err(vec![errno])
}

impl Tree {
    /// Executes a request.
    ///
    /// # Errors
    /// Every errno that is a right answer.
    pub fn run(&mut self, op: &Op<'_>) -> Done {
        match op.request {
            Request::Lookup { parent, name } => {
                let ino = self.child(*parent, name)?;
                Ok(Answer::Attr(ino.ok_or(vec![Errno::ENOENT])?))
            }
            Request::GetAttr { node } => Ok(Answer::Attr(self.live(*node)?.ino)),
            Request::SetAttr { node, set } => self.set_attr(op, *node, set),
            Request::ReadLink { node } => {
                let node = self.live(*node)?;
                node.target.clone().map(Answer::Target).ok_or(vec![Errno::EINVAL])
            }
            Request::MkNod { parent, name, new } => {
                self.make(op, *parent, name, new, None)?;
                Ok(Answer::Attr(op.made))
            }
            Request::MkDir { parent, name, new } => {
                let mode = FileKind::Directory.mode_bits() | (new.mode & 0o7777);
                self.make(op, *parent, name, &NewNode { mode, ..new.clone() }, None)?;
                Ok(Answer::Attr(op.made))
            }
            Request::Symlink { parent, name, target } => {
                let mode = FileKind::Symlink.mode_bits() | 0o777;
                self.make(op, *parent, name, &NewNode { mode, umask: 0, rdev: 0 }, Some(target))?;
                Ok(Answer::Attr(op.made))
            }
            Request::Link { node, parent, name } => self.link(op, *node, *parent, name),
            Request::Unlink { parent, name } => self.unlink(op, *parent, name),
            Request::RmDir { parent, name } => self.remove_dir(op, *parent, name),
            Request::Rename { parent, name, new_parent, new_name, flags } => {
                self.rename(op, (*parent, name), (*new_parent, new_name), *flags)
            }
            Request::Open { node, flags } => self.open(op, *node, *flags),
            Request::Create { parent, name, new, flags } => self.create(op, *parent, name, new, *flags),
            Request::TmpFile { parent, new, .. } => self.temporary(op, *parent, new),
            Request::Release { .. } => Ok(Answer::Ok),
            Request::Parent { node } => {
                let node = self.live(*node)?;
                if node.is_dir() { Ok(Answer::Node { parent: node.parent }) } else { refuse(Errno::ENOTDIR) }
            }
            Request::Access { node, .. } => {
                self.live(*node)?;
                Ok(Answer::Ok)
            }
            every_request!() => self.run_file(op),
        }
    }

    fn run_file(&mut self, op: &Op<'_>) -> Done {
        match op.request {
            Request::Write { node, kill_suidgid, data, .. } => {
                let ino = self.regular(*node)?;
                if data.is_empty() || op.count == 0 {
                    return Ok(Answer::Written { ino, count: 0 });
                }
                self.wrote(op, ino, op.offset + op.count, *kill_suidgid);
                Ok(Answer::Written { ino, count: op.count })
            }
            Request::Fallocate { node, mode, offset, len } => {
                let ino = self.regular(*node)?;
                if *len == 0 {
                    return refuse(Errno::EINVAL);
                }
                if !matches!(mode, 0 | 1 | 3 | 16 | 17) {
                    return Err(vec![Errno::EOPNOTSUPP, Errno::EINVAL]);
                }
                let keep = mode & 1 != 0;
                let size = self.node(ino).map_or(0, |node| node.size);
                let end = if keep { size } else { size.max(offset + len) };
                let node = self.change(ino);
                node.size = end;
                Ok(Answer::Ok)
            }
            Request::CopyRange { source, source_offset, target, target_offset, len } => {
                let (from, ino) = match (self.regular(*source), self.regular(*target)) {
                    (Ok(from), Ok(ino)) => (from, ino),
                    // Either may be looked at first.
                    (Err(one), Err(other)) => return Err([one, other].concat()),
                    (Err(errnos), Ok(_)) | (Ok(_), Err(errnos)) => return Err(errnos),
                };
                let overlap = source_offset.abs_diff(*target_offset) < *len;
                if from == ino && overlap {
                    return refuse(Errno::EINVAL);
                }
                if op.count > 0 {
                    self.wrote(op, ino, op.offset + op.count, false);
                }
                Ok(Answer::Written { ino, count: op.count })
            }
            Request::Read { node, .. } => {
                self.regular(*node)?;
                Ok(Answer::Data)
            }
            Request::Seek { node, offset, .. } => {
                let ino = self.regular(*node)?;
                let size = self.node(ino).map_or(0, |node| node.size);
                if *offset < size { Ok(Answer::Offset) } else { refuse(Errno::ENXIO) }
            }
            Request::ReadDir { dir, .. } => {
                self.directory(*dir)?;
                Ok(Answer::Entries)
            }
            Request::Fsync { node, .. } => {
                self.live(*node)?;
                Ok(Answer::Ok)
            }
            every_request!() => self.run_xattr(op),
        }
    }

    fn run_xattr(&mut self, op: &Op<'_>) -> Done {
        match op.request {
            Request::GetXattr { node, name } => {
                let found = self.live(*node)?.xattrs.get(name.as_bytes()).cloned();
                let found = found.filter(|_| is_visible(name.as_bytes(), op.cred));
                found.map(Answer::Xattr).ok_or(vec![Errno::ENODATA])
            }
            Request::ListXattr { node } => {
                let names = self.live(*node)?.xattrs.keys();
                Ok(Answer::Names(names.filter(|name| is_visible(name, op.cred)).cloned().collect()))
            }
            Request::SetXattr { node, name, value, mode } => self.set_xattr(op, *node, name, value, *mode),
            Request::RemoveXattr { node, name } => {
                let ino = self.live(*node)?.ino;
                let node = self.change(ino);
                if node.xattrs.remove(name.as_bytes()).is_none() {
                    return refuse(Errno::ENODATA);
                }
                node.ctime = op.wall;
                Ok(Answer::Ok)
            }
            Request::StatFs => Ok(Answer::StatFs),
            Request::TestLock { .. } => Ok(Answer::Lock),
            Request::SetLock { .. } | Request::ReleaseLocks { .. } | Request::SyncFs => Ok(Answer::Ok),
            Request::Rewrite { .. } => Ok(Answer::Rewritten),
            // Have their rules above. One by one: a new request is given its own, here or there.
            Request::Lookup { .. }
            | Request::GetAttr { .. }
            | Request::SetAttr { .. }
            | Request::ReadLink { .. }
            | Request::MkNod { .. }
            | Request::MkDir { .. }
            | Request::Symlink { .. }
            | Request::Link { .. }
            | Request::Unlink { .. }
            | Request::RmDir { .. }
            | Request::Rename { .. }
            | Request::Open { .. }
            | Request::Create { .. }
            | Request::TmpFile { .. }
            | Request::Release { .. }
            | Request::Parent { .. }
            | Request::Access { .. }
            | Request::Write { .. }
            | Request::Fallocate { .. }
            | Request::CopyRange { .. }
            | Request::Read { .. }
            | Request::Seek { .. }
            | Request::ReadDir { .. }
            | Request::Fsync { .. }
            | proto::rank_requests!() => refuse(Errno::ENOSYS),
        }
    }

    fn live(&self, node: NodeRef) -> Result<&Node, Vec<Errno>> {
        self.node(node.ino).ok_or(GONE.to_vec())
    }

    fn directory(&self, node: NodeRef) -> Result<&Node, Vec<Errno>> {
        let node = self.live(node)?;
        if node.is_dir() { Ok(node) } else { refuse(Errno::ENOTDIR) }
    }

    fn regular(&self, node: NodeRef) -> Result<Ino, Vec<Errno>> {
        let node = self.live(node)?;
        match node.kind() {
            FileKind::Regular => Ok(node.ino),
            FileKind::Directory => Err(vec![Errno::EISDIR, Errno::EINVAL]),
            _ => Err(vec![Errno::EINVAL, Errno::ESPIPE, Errno::ENXIO, Errno::ENODEV]),
        }
    }

    fn child(&self, parent: NodeRef, name: &Name) -> Result<Option<Ino>, Vec<Errno>> {
        Ok(self.directory(parent)?.entries.get(name.as_bytes()).copied())
    }

    fn touch_dir(&mut self, dir: Ino, wall: Wall) {
        let node = self.change(dir);
        // What was moved after a change of its parent that its client had not heard of bears that change's time, and a name
        // that the client removed in it meanwhile an earlier one.
        (node.mtime, node.ctime) = (wall.max(node.floor), wall.max(node.ctime));
    }

    fn open(&mut self, op: &Op<'_>, node: NodeRef, flags: u32) -> Done {
        let (ino, kind) = self.live(node).map(|node| (node.ino, node.kind()))?;
        let writes = flags & open_flags::ACCMODE != 0;
        if kind == FileKind::Directory && (writes || flags & open_flags::TRUNC != 0) {
            return refuse(Errno::EISDIR);
        }
        if kind == FileKind::Symlink {
            return Err(vec![Errno::ELOOP, Errno::EINVAL]);
        }
        if kind == FileKind::Regular && flags & open_flags::TRUNC != 0 {
            self.truncated(op, ino, 0);
        }
        Ok(Answer::Attr(ino))
    }

    /// The times of a truncation to the present size may stay: POSIX lets both.
    fn truncated(&mut self, op: &Op<'_>, ino: Ino, size: u64) {
        let node = self.change(ino);
        if size < node.size {
            node.cuts += 1;
        }
        node.size = size;
        (node.mtime, node.ctime) = (op.wall, op.wall);
    }

    fn create(&mut self, op: &Op<'_>, parent: NodeRef, name: &Name, new: &NewNode, flags: u32) -> Done {
        if let Some(ino) = self.child(parent, name)? {
            if flags & open_flags::EXCL != 0 {
                return refuse(Errno::EEXIST);
            }
            let kind = self.node(ino).map_or(FileKind::Regular, Node::kind);
            if matches!(kind, FileKind::Directory | FileKind::Symlink) {
                return Err(vec![Errno::EISDIR, Errno::ELOOP, Errno::EEXIST, Errno::EINVAL]);
            }
            if kind == FileKind::Regular && flags & open_flags::TRUNC != 0 {
                self.truncated(op, ino, 0);
            }
            return Ok(Answer::Created { ino, new: false });
        }
        let mode = FileKind::Regular.mode_bits() | (new.mode & 0o7777);
        self.make(op, parent, name, &NewNode { mode, ..new.clone() }, None)?;
        Ok(Answer::Created { ino: op.made, new: true })
    }

    fn temporary(&mut self, op: &Op<'_>, parent: NodeRef, new: &NewNode) -> Done {
        let mode = FileKind::Regular.mode_bits() | (new.mode & 0o7777);
        let mut node = self.newborn(op, parent, &NewNode { mode, ..new.clone() })?;
        (node.nlink, node.tmpfile) = (0, true);
        self.nodes.insert(op.made, Rc::new(node));
        Ok(Answer::Attr(op.made))
    }

    fn wrote(&mut self, op: &Op<'_>, ino: Ino, end: u64, kill: bool) {
        let node = self.change(ino);
        node.size = node.size.max(end);
        (node.mtime, node.ctime) = (op.wall, op.wall);
        if kill {
            drop_privileges(node);
        }
    }

    fn set_attr(&mut self, op: &Op<'_>, node: NodeRef, set: &SetAttr) -> Done {
        let (ino, kind, size) = self.live(node).map(|node| (node.ino, node.kind(), node.size))?;
        if *set == SetAttr::default() {
            return Ok(Answer::Attr(ino));
        }
        if set.size.is_some() && kind != FileKind::Regular {
            return Err(vec![Errno::EISDIR, Errno::EINVAL]);
        }
        if let Some(new) = set.size
            && new != size
        {
            self.truncated(op, ino, new);
        }
        let node = self.change(ino);
        if let Some(mode) = set.mode {
            node.mode = (node.mode & 0o170_000) | (mode & 0o7777);
        }
        node.uid = set.uid.unwrap_or(node.uid);
        node.gid = set.gid.unwrap_or(node.gid);
        if set.kill_suidgid && !node.is_dir() {
            drop_privileges(node);
        }
        let at = |time: SetTime| match time {
            SetTime::Now => op.wall,
            SetTime::At(at) => at,
        };
        node.ctime = op.wall;
        node.atime = set.atime.map_or(node.atime, at);
        node.mtime = set.mtime.map_or(node.mtime, at);
        node.floor = set.mtime.map_or(node.floor, at);
        node.ctime = set.ctime.map_or(node.ctime, at);
        Ok(Answer::Attr(ino))
    }

    fn set_xattr(&mut self, op: &Op<'_>, node: NodeRef, name: &Name, value: &[u8], mode: XattrMode) -> Done {
        let ino = self.live(node)?.ino;
        let node = self.change(ino);
        match (mode, node.xattrs.contains_key(name.as_bytes())) {
            (XattrMode::Create, true) => return refuse(Errno::EEXIST),
            (XattrMode::Replace, false) => return refuse(Errno::ENODATA),
            _ => {}
        }
        let others = node.xattrs.iter().filter(|(other, _)| other[..] != *name.as_bytes());
        let total: usize = others.map(|(name, value)| name.len() + value.len()).sum();
        if total + name.as_bytes().len() + value.len() > proto::inode::XATTR_TOTAL_BYTES_MAX {
            return Err(vec![Errno::ENOSPC, Errno::E2BIG]);
        }
        node.xattrs.insert(name.as_bytes().into(), value.into());
        node.ctime = op.wall;
        Ok(Answer::Ok)
    }
}

/// trusted.* is root's.
fn is_visible(name: &[u8], cred: &Cred) -> bool {
    cred.uid == 0 || !name.starts_with(b"trusted.")
}

fn drop_privileges(node: &mut Node) {
    node.mode &= !SETUID;
    if node.mode & 0o010 != 0 {
        node.mode &= !SETGID;
    }
}

/// What a successful answer fixes: inode made, place and length of a write.
#[must_use]
pub fn given(request: &Request, reply: &Reply, offset: Option<u64>) -> (Ino, u64, u64) {
    let made = match reply {
        Reply::Attr(attr) | Reply::Created { attr, .. } => attr.ino,
        _ => Ino::NONE,
    };
    let count = match reply {
        Reply::Written { count, .. } => *count,
        _ => 0,
    };
    let at = match request {
        Request::Write { offset: asked, append, .. } if !append => *asked,
        Request::CopyRange { target_offset, .. } => *target_offset,
        every_request!() => offset.unwrap_or(0),
    };
    (made, at, count)
}
