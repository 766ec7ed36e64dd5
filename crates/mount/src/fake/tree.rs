//! The fake rank's files: a tree of maps.
//!
//! Absent: `..` loops, quotas, anything that needs a disk.

use proto::name::{Name, name_hash};
use proto::reply::{DirEntry, Outcome, Reply, StatFs};
use proto::request::{NewNode, Request, XattrMode, open_flags, rename_flags};
use proto::storeio::{Payload, Space};
use proto::{Attr, Errno, FileKind, Ino, NameHash, SetAttr};
use std::collections::BTreeMap;
use stdx::Wall;
use stdx::hash::HashSeed;

pub(super) const SEED: HashSeed = HashSeed([1; 16]);

#[derive(Default)]
struct Inode {
    attr: Attr,
    data: Vec<u8>,
    target: Box<[u8]>,
    xattrs: BTreeMap<Vec<u8>, Box<[u8]>>,
    entries: BTreeMap<(NameHash, Vec<u8>), Ino>,
}

pub(super) struct Tree {
    inodes: BTreeMap<Ino, Inode>,
    next: u64,
    clock: i64,
}

impl Default for Tree {
    fn default() -> Self {
        let mut tree = Self { inodes: BTreeMap::new(), next: 4096, clock: 0 };
        let attr = Attr { ino: Ino::ROOT, mode: 0o40_755, nlink: 2, parent: Ino::SYSTEM, ..Attr::default() };
        tree.inodes.insert(Ino::ROOT, Inode { attr, ..Inode::default() });
        tree
    }
}

fn key(name: &Name) -> (NameHash, Vec<u8>) {
    (name_hash(&SEED, name.as_bytes()), name.as_bytes().to_vec())
}

impl Tree {
    /// As `execute`, of a request that makes this inode.
    pub(super) fn perform(&mut self, request: &Request, ino: Ino) -> Outcome {
        let next = self.next;
        if ino != Ino::NONE {
            self.next = ino.0;
        }
        let outcome = self.execute(request);
        if ino != Ino::NONE {
            self.next = next;
        }
        outcome
    }

    /// Times are counted.
    pub(super) const fn clock(&self) -> i64 {
        self.clock
    }

    /// The directory that an inode was made in, or moved to.
    pub(super) fn parent(&self, ino: Ino) -> Option<Ino> {
        self.inodes.get(&ino).map(|inode| inode.attr.parent)
    }

    /// Attributes of a directory.
    pub(super) fn directory(&mut self, ino: Ino) -> Option<Attr> {
        self.stat(ino).ok().filter(|attr| attr.kind() == FileKind::Directory)
    }

    pub(super) fn execute(&mut self, request: &Request) -> Outcome {
        match request {
            Request::Lookup { parent, name } => {
                let ino = self.child(parent.ino, name)?;
                self.attr(ino)
            }
            Request::GetAttr { node } => self.attr(node.ino),
            Request::SetAttr { node, set } => self.set(node.ino, set),
            Request::ReadLink { node } => Ok(Reply::Target(self.inode(node.ino)?.target.clone())),
            Request::MkNod { parent, name, new } | Request::MkDir { parent, name, new } => {
                let ino = self.make(parent.ino, name, new)?;
                self.attr(ino)
            }
            Request::Symlink { parent, name, target } => {
                let new = NewNode { mode: 0o120_777, umask: 0, rdev: 0 };
                let ino = self.make(parent.ino, name, &new)?;
                self.inode(ino)?.target.clone_from(target);
                self.attr(ino)
            }
            Request::Link { node, parent, name } => {
                self.insert(parent.ino, name, node.ino)?;
                self.inode(node.ino)?.attr.nlink += 1;
                self.attr(node.ino)
            }
            Request::Unlink { parent, name } | Request::RmDir { parent, name } => {
                let dir = matches!(request, Request::RmDir { .. });
                self.remove(parent.ino, name, dir)
            }
            Request::Rename { parent, name, new_parent, new_name, flags } => {
                self.rename((parent.ino, name), (new_parent.ino, new_name), *flags)
            }
            Request::Create { parent, name, new, flags } => self.create(parent.ino, name, new, *flags),
            Request::TmpFile { new, .. } => {
                let ino = self.add(Ino::NONE, NameHash(0), new);
                self.inode(ino)?.attr.nlink = 0;
                self.attr(ino)
            }
            Request::ReadDir { dir, after, attrs, bytes_max } => {
                self.list(dir.ino, *after, *attrs, *bytes_max as usize)
            }
            Request::StatFs => {
                let space = Space { total: 1 << 30, free: 1 << 29, available: 1 << 29 };
                Ok(Reply::StatFs(StatFs { space, files: self.inodes.len() as u64 }))
            }
            Request::Parent { node } => {
                let parent = self.inode(node.ino)?.attr.parent;
                Ok(Reply::Node(proto::NodeRef::bare(parent)))
            }
            Request::Fsync { .. } | Request::SyncFs | Request::Access { .. } => Ok(Reply::Ok),
            Request::Fallocate { node, mode: 0, offset, len } => self.allocate(node.ino, offset + len),
            other => self.execute_content(other),
        }
    }

    fn execute_content(&mut self, request: &Request) -> Outcome {
        match request {
            Request::Open { node, flags } => {
                if flags & open_flags::TRUNC != 0 {
                    self.set(node.ino, &SetAttr { size: Some(0), ..SetAttr::default() })?;
                }
                self.attr(node.ino)
            }
            Request::Read { node, offset, len, .. } => {
                let data = &self.inode(node.ino)?.data;
                let from = (*offset as usize).min(data.len());
                let to = (from + *len as usize).min(data.len());
                Ok(Reply::Data(Payload::Owned(data[from..to].to_vec())))
            }
            Request::Write { node, offset, append, data, .. } => {
                let inode = self.inode(node.ino)?;
                let at = if *append { inode.data.len() } else { *offset as usize };
                let end = at + data.len() as usize;
                if inode.data.len() < end {
                    inode.data.resize(end, 0);
                }
                inode.data[at..end].copy_from_slice(data.bytes());
                let attr = self.touch(node.ino)?;
                Ok(Reply::Written { count: data.len(), attr })
            }
            Request::CopyRange { source, source_offset, target, target_offset, len } => {
                let data = self.inode(source.ino)?.data.clone();
                let from = (*source_offset as usize).min(data.len());
                let to = (from + *len as usize).min(data.len());
                let data = Payload::Owned(data[from..to].to_vec());
                let (node, offset) = (*target, *target_offset);
                self.execute_content(&Request::Write {
                    node,
                    offset,
                    append: false,
                    kill_suidgid: false,
                    data,
                })
            }
            Request::Seek { node, offset, hole } => {
                let size = self.inode(node.ino)?.data.len() as u64;
                match (*offset < size, hole) {
                    (false, _) => Err(Errno::ENXIO),
                    (true, true) => Ok(Reply::Offset(size)),
                    (true, false) => Ok(Reply::Offset(*offset)),
                }
            }
            Request::GetXattr { node, name } => {
                let found = self.inode(node.ino)?.xattrs.get(name.as_bytes()).cloned();
                found.map(Reply::Xattr).ok_or(Errno::ENODATA)
            }
            Request::ListXattr { node } => {
                let names =
                    self.inode(node.ino)?.xattrs.keys().flat_map(|name| [name.as_slice(), b"\0"].concat());
                Ok(Reply::XattrNames(names.collect()))
            }
            Request::SetXattr { node, name, value, mode } => {
                let xattrs = &mut self.inode(node.ino)?.xattrs;
                match (mode, xattrs.contains_key(name.as_bytes())) {
                    (XattrMode::Create, true) => return Err(Errno::EEXIST),
                    (XattrMode::Replace, false) => return Err(Errno::ENODATA),
                    _ => xattrs.insert(name.as_bytes().to_vec(), value.clone()),
                };
                self.touch(node.ino).map(|_| Reply::Ok)
            }
            Request::RemoveXattr { node, name } => {
                let removed = self.inode(node.ino)?.xattrs.remove(name.as_bytes());
                removed.map(|_| Reply::Ok).ok_or(Errno::ENODATA)
            }
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    /// The file is so long at least.
    fn allocate(&mut self, ino: Ino, end: u64) -> Outcome {
        let data = &mut self.inode(ino)?.data;
        data.resize(data.len().max(end as usize), 0);
        self.touch(ino).map(|_| Reply::Ok)
    }

    fn inode(&mut self, ino: Ino) -> Result<&mut Inode, Errno> {
        self.inodes.get_mut(&ino).ok_or(Errno::ESTALE)
    }

    fn attr(&mut self, ino: Ino) -> Outcome {
        self.stat(ino).map(Reply::Attr)
    }

    fn stat(&mut self, ino: Ino) -> Result<Attr, Errno> {
        let inode = self.inode(ino)?;
        let mut attr = inode.attr;
        attr.has_xattrs = !inode.xattrs.is_empty();
        attr.size = match attr.kind() {
            FileKind::Directory => inode.entries.len() as u64,
            _ => inode.data.len() as u64,
        };
        Ok(attr)
    }

    fn touch(&mut self, ino: Ino) -> Result<Attr, Errno> {
        self.clock += 1;
        let now = Wall(self.clock);
        let inode = self.inode(ino)?;
        inode.attr.change += 1;
        (inode.attr.mtime, inode.attr.ctime) = (now, now);
        self.stat(ino)
    }

    fn set(&mut self, ino: Ino, set: &SetAttr) -> Outcome {
        let inode = self.inode(ino)?;
        if let Some(mode) = set.mode {
            inode.attr.mode = (inode.attr.mode & 0o170_000) | (mode & 0o7777);
        }
        inode.attr.uid = set.uid.unwrap_or(inode.attr.uid);
        inode.attr.gid = set.gid.unwrap_or(inode.attr.gid);
        if let Some(size) = set.size {
            inode.data.resize(size as usize, 0);
        }
        if set.kill_suidgid {
            inode.attr.mode &= !0o6000;
        }
        self.touch(ino).map(Reply::Attr)
    }

    fn child(&mut self, dir: Ino, name: &Name) -> Result<Ino, Errno> {
        self.inode(dir)?.entries.get(&key(name)).copied().ok_or(Errno::ENOENT)
    }

    fn add(&mut self, parent: Ino, hash: NameHash, new: &NewNode) -> Ino {
        let ino = Ino(self.next);
        self.next += 1;
        let mode = new.mode & !(new.umask & 0o777);
        let attr = Attr { ino, mode, nlink: 1, rdev: new.rdev, parent, hash, ..Attr::default() };
        self.inodes.insert(ino, Inode { attr, ..Inode::default() });
        ino
    }

    fn insert(&mut self, dir: Ino, name: &Name, ino: Ino) -> Result<(), Errno> {
        let entries = &mut self.inode(dir)?.entries;
        if entries.contains_key(&key(name)) {
            return Err(Errno::EEXIST);
        }
        entries.insert(key(name), ino);
        self.touch(dir).map(drop)
    }

    fn make(&mut self, dir: Ino, name: &Name, new: &NewNode) -> Result<Ino, Errno> {
        if self.child(dir, name).is_ok() {
            return Err(Errno::EEXIST);
        }
        let ino = self.add(dir, key(name).0, new);
        self.insert(dir, name, ino)?;
        Ok(ino)
    }

    fn create(&mut self, dir: Ino, name: &Name, new: &NewNode, flags: u32) -> Outcome {
        match self.child(dir, name) {
            Ok(_) if flags & open_flags::EXCL != 0 => Err(Errno::EEXIST),
            Ok(ino) => {
                if flags & open_flags::TRUNC != 0 {
                    self.inode(ino)?.data.clear();
                }
                Ok(Reply::Created { attr: self.stat(ino)?, new: false })
            }
            Err(_) => {
                let ino = self.make(dir, name, new)?;
                Ok(Reply::Created { attr: self.stat(ino)?, new: true })
            }
        }
    }

    fn remove(&mut self, dir: Ino, name: &Name, directory: bool) -> Outcome {
        let ino = self.child(dir, name)?;
        let inode = self.inode(ino)?;
        match (inode.attr.kind() == FileKind::Directory, directory) {
            (true, false) => return Err(Errno::EISDIR),
            (false, true) => return Err(Errno::ENOTDIR),
            (true, true) if !inode.entries.is_empty() => return Err(Errno::ENOTEMPTY),
            _ => inode.attr.nlink = inode.attr.nlink.saturating_sub(1),
        }
        self.inode(dir)?.entries.remove(&key(name));
        self.touch(dir).map(|_| Reply::Ok)
    }

    fn rename(&mut self, from: (Ino, &Name), to: (Ino, &Name), flags: u32) -> Outcome {
        let ino = self.child(from.0, from.1)?;
        let target = self.child(to.0, to.1).ok();
        if flags & rename_flags::NOREPLACE != 0 && target.is_some() {
            return Err(Errno::EEXIST);
        }
        self.inode(from.0)?.entries.remove(&key(from.1));
        if flags & rename_flags::EXCHANGE != 0 {
            let other = target.ok_or(Errno::ENOENT)?;
            self.inode(from.0)?.entries.insert(key(from.1), other);
        }
        self.inode(to.0)?.entries.insert(key(to.1), ino);
        let inode = self.inode(ino)?;
        (inode.attr.parent, inode.attr.hash) = (to.0, key(to.1).0);
        Ok(Reply::Ok)
    }

    fn list(&mut self, dir: Ino, after: u64, attrs: bool, bytes_max: usize) -> Outcome {
        let found: Vec<_> = self
            .inode(dir)?
            .entries
            .iter()
            .filter(|((hash, _), _)| hash.cookie() > after)
            .map(|((hash, name), ino)| (*hash, name.clone(), *ino))
            .collect();
        let (mut entries, mut bytes) = (Vec::new(), 0);
        let total = found.len();
        for (hash, name, ino) in found {
            bytes += name.len() + if attrs { 160 } else { 32 };
            if bytes > bytes_max && !entries.is_empty() {
                break;
            }
            let attr = self.stat(ino)?;
            let (name, kind) = (name.into_boxed_slice(), attr.kind());
            entries.push(DirEntry { hash, name, ino, kind, attr: attrs.then_some(attr) });
        }
        let end = entries.len() == total;
        Ok(Reply::Entries { entries, end })
    }
}
