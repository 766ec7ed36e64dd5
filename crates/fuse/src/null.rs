//! The null responder: answers every request from an in-memory table, for measuring what FUSE itself costs
//! and for testing the transport.
//! Absent: durability, permissions (the kernel's `default_permissions`), hard links to removed
//! files, and atomic rename; nothing here is a file system to keep data in.

mod contents;
mod locks;
mod tree;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::abi::{self, Attr, fopen};
use crate::init::Negotiated;
use crate::kernel_mount::Handler;
use crate::notify::Notifier;
use crate::reply::held::Held;
use crate::reply::{DirSink, Entry, KernelReply, Opened};
use crate::request::{KernelRequest, Lock, Operation, Read, Release, SetAttr};
use contents::Contents;
use locks::Locks;
use tree::{NewNode, Tree};

/// What the responder lets the kernel cache and skip.
#[derive(Clone, Debug)]
pub struct NullOptions {
    pub entry_timeout: Duration,
    pub attr_timeout: Duration,
    /// Whether closing a file sends FLUSH.
    pub flush: bool,
    /// New files are opened past the page cache, which spares a GETXATTR for each first write.
    pub direct_io_create: bool,
    /// Keeps contents in plain files here; without it only sizes are kept and zeroes read back.
    pub data_folder: Option<PathBuf>,
}

impl Default for NullOptions {
    fn default() -> NullOptions {
        NullOptions {
            entry_timeout: Duration::from_secs(10),
            attr_timeout: Duration::from_secs(10),
            flush: true,
            direct_io_create: false,
            data_folder: None,
        }
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Null {
    options: NullOptions,
    tree: Tree,
    locks: Locks,
    contents: Option<Contents>,
    next_handle: AtomicU64,
}

/// Entries looked at per READDIR; a larger buffer takes another round.
const LIST_ENTRIES: usize = 1024;

impl Null {
    pub fn new(options: NullOptions) -> io::Result<Null> {
        let contents = options.data_folder.clone().map(Contents::new).transpose()?;
        Ok(Null {
            options,
            tree: Tree::new(),
            locks: Locks::default(),
            contents,
            next_handle: AtomicU64::new(1),
        })
    }

    fn entry(&self, attr: Attr) -> Entry {
        Entry {
            nodeid: attr.ino,
            generation: 0,
            entry_timeout: self.options.entry_timeout,
            attr_timeout: self.options.attr_timeout,
            attr,
        }
    }

    fn opened(&self, nodeid: u64, created: bool) -> Result<Opened, i32> {
        let fh = self.next_handle.fetch_add(1, Ordering::Relaxed);
        if let Some(contents) = &self.contents {
            contents.open(nodeid, fh)?;
        }
        let flush = if self.options.flush { 0 } else { fopen::NOFLUSH };
        let direct = if created && self.options.direct_io_create { fopen::DIRECT_IO } else { 0 };
        let kept = if created { 0 } else { fopen::KEEP_CACHE };
        Ok(Opened { fh, flags: flush | direct | kept })
    }

    fn add(&self, request: &KernelRequest<'_>, name: &[u8], mode: u32, rdev: u32) -> Result<Attr, i32> {
        let node = NewNode { mode, rdev, uid: request.uid, gid: request.gid, target: &[] };
        self.tree.add(request.nodeid, name, node)
    }

    fn names(&self, request: &KernelRequest<'_>, operation: Operation<'_>, reply: KernelReply) {
        let parent = request.nodeid;
        let entry = match operation {
            Operation::Lookup { name } => self.tree.lookup(parent, name),
            Operation::MkNod { name, mode, rdev, umask } => self.add(request, name, mode & !umask, rdev),
            Operation::MkDir { name, mode, umask } => {
                self.add(request, name, libc::S_IFDIR | (mode & !umask & 0o7777), 0)
            }
            Operation::Symlink { name, target } => {
                let mode = libc::S_IFLNK | 0o777;
                let node = NewNode { mode, rdev: 0, uid: request.uid, gid: request.gid, target };
                self.tree.add(parent, name, node)
            }
            Operation::Link { target, name } => self.tree.link(parent, name, target),
            Operation::Unlink { name } => return finish(reply, self.tree.remove(parent, name, false)),
            Operation::RmDir { name } => return finish(reply, self.tree.remove(parent, name, true)),
            Operation::Rename { name, new_parent, new_name, flags } => {
                return finish(reply, self.tree.rename(parent, name, new_parent, new_name, flags));
            }
            _ => Err(libc::ENOSYS),
        };
        match entry {
            Ok(attr) => reply.entry(&self.entry(attr)),
            Err(errno) => reply.error(errno),
        }
    }

    fn create(&self, request: &KernelRequest<'_>, name: &[u8], mode: u32, reply: KernelReply) {
        let created = self.add(request, name, libc::S_IFREG | (mode & 0o7777), 0);
        match created.and_then(|attr| Ok((attr, self.opened(attr.ino, true)?))) {
            Ok((attr, opened)) => reply.create(&self.entry(attr), opened),
            Err(errno) => reply.error(errno),
        }
    }

    fn set_attr(&self, nodeid: u64, set: &SetAttr, reply: KernelReply) {
        let resized = match (&self.contents, set.size) {
            (Some(contents), Some(size)) => contents.resize(nodeid, size),
            _ => Ok(()),
        };
        match resized.and_then(|()| self.tree.set_attr(nodeid, set)) {
            Ok(attr) => reply.attr(self.options.attr_timeout, &attr),
            Err(errno) => reply.error(errno),
        }
    }

    fn read(&self, nodeid: u64, read: Read, reply: KernelReply) {
        if let Some(contents) = &self.contents {
            return reply.data_with(|buffer| contents.read(read.fh, read.offset, buffer));
        }
        reply.data_with(|buffer| {
            let left = self.tree.attr(nodeid)?.size.saturating_sub(read.offset);
            let length = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
            buffer[..length].fill(0);
            Ok(length)
        });
    }

    fn write(&self, nodeid: u64, fh: u64, offset: u64, held: Held) {
        let data = held.data();
        let stored = self.contents.as_ref().map_or(Ok(()), |contents| contents.write(fh, offset, data));
        let size = data.len();
        let taken = stored.and_then(|()| self.tree.extend(nodeid, offset.saturating_add(size as u64)));
        let reply = held.into_reply();
        match (taken, u32::try_from(size)) {
            (Ok(()), Ok(size)) => reply.write(size),
            (Err(errno), _) => reply.error(errno),
            (Ok(()), Err(_)) => reply.error(libc::EFBIG),
        }
    }

    fn list(&self, nodeid: u64, offset: u64, reply: KernelReply) {
        reply.directory(|sink| self.fill(nodeid, offset, sink));
    }

    fn fill(&self, nodeid: u64, offset: u64, sink: &mut DirSink<'_>) -> Result<(), i32> {
        let dots: [(&[u8], u64); 2] = [(b".", 1), (b"..", 2)];
        for (name, next) in dots {
            if offset < next && !sink.name(name, nodeid, libc::DT_DIR, next) {
                return Ok(());
            }
        }
        for (name, child, next) in self.tree.list(nodeid, offset, LIST_ENTRIES)? {
            // Removed since it was listed.
            let Ok(attr) = self.tree.attr(child) else { continue };
            if !sink.node(&name, &self.entry(attr), next) {
                return Ok(());
            }
            if sink.wants_nodes() {
                self.tree.count_lookup(child);
            }
        }
        Ok(())
    }

    fn release(&self, nodeid: u64, release: Release, reply: KernelReply) {
        if let Some(contents) = &self.contents {
            contents.close(release.fh);
        }
        if release.flock_unlock {
            self.locks.drop_owner(nodeid, release.lock_owner, true);
        }
        self.locks.drop_handle(nodeid, release.fh);
        reply.ok();
    }

    fn lock(&self, nodeid: u64, lock: Lock, sleep: bool, reply: KernelReply) {
        self.locks.set(nodeid, lock, sleep, reply);
    }

    fn on_handle(&self, nodeid: u64, operation: Operation<'_>, reply: KernelReply) {
        match operation {
            Operation::Open { .. } => match self.opened(nodeid, false) {
                Ok(opened) => reply.open(opened),
                Err(errno) => reply.error(errno),
            },
            Operation::OpenDir { .. } => reply.open(Opened { fh: 0, flags: 0 }),
            Operation::Read(read) => self.read(nodeid, read, reply),
            Operation::Write(write) => self.write(nodeid, write.fh, write.offset, reply.hold()),
            Operation::ReadDir { offset, .. } | Operation::ReadDirPlus { offset, .. } => {
                self.list(nodeid, offset, reply);
            }
            Operation::Flush { lock_owner, .. } => {
                self.locks.drop_owner(nodeid, lock_owner, false);
                reply.ok();
            }
            Operation::Release(release) => self.release(nodeid, release, reply),
            Operation::GetLk(lock) => reply.lock(&self.locks.test(nodeid, &lock)),
            Operation::SetLk { lock, sleep } => self.lock(nodeid, lock, sleep, reply),
            Operation::FSync { .. }
            | Operation::FSyncDir { .. }
            | Operation::ReleaseDir(_)
            | Operation::SyncFs => {
                reply.ok();
            }
            _ => reply.error(libc::ENOSYS),
        }
    }
}

impl Handler for Null {
    fn init(&self, _negotiated: &Negotiated, _notifier: &Notifier) {}

    fn handle(&self, request: KernelRequest<'_>, reply: KernelReply) {
        let nodeid = request.nodeid;
        match request.operation {
            Operation::Lookup { .. }
            | Operation::MkNod { .. }
            | Operation::MkDir { .. }
            | Operation::Symlink { .. }
            | Operation::Link { .. }
            | Operation::Unlink { .. }
            | Operation::RmDir { .. }
            | Operation::Rename { .. } => self.names(&request, request.operation, reply),
            Operation::Create { name, mode, umask, .. } => self.create(&request, name, mode & !umask, reply),
            Operation::GetAttr { .. } => match self.tree.attr(nodeid) {
                Ok(attr) => reply.attr(self.options.attr_timeout, &attr),
                Err(errno) => reply.error(errno),
            },
            Operation::SetAttr(set) => self.set_attr(nodeid, &set, reply),
            Operation::ReadLink => match self.tree.target(nodeid) {
                Ok(target) => reply.bytes(&target),
                Err(errno) => reply.error(errno),
            },
            Operation::Forget { nlookup } => self.tree.forget(nodeid, nlookup),
            Operation::BatchForget { items } => {
                items.iter().for_each(|item| self.tree.forget(item.nodeid, item.nlookup));
            }
            Operation::StatFs => {
                let (blocks, files) = (1 << 30, 1 << 30);
                let stat = abi::StatFs { bsize: 4096, frsize: 4096, namelen: 255, ..Default::default() };
                reply.statfs(&abi::StatFs {
                    blocks,
                    bfree: blocks,
                    bavail: blocks,
                    files,
                    ffree: files,
                    ..stat
                });
            }
            Operation::GetXattr { .. } => reply.error(libc::ENODATA),
            Operation::ListXattr { .. } => reply.xattr(&[]),
            Operation::SetXattr { .. } | Operation::RemoveXattr { .. } => reply.error(libc::ENOTSUP),
            Operation::Interrupt { unique } => match self.locks.interrupt(unique) {
                true => reply.ok(),
                false => reply.error(libc::EAGAIN),
            },
            Operation::Destroy => reply.ok(),
            operation => self.on_handle(nodeid, operation, reply),
        }
    }
}

fn finish(reply: KernelReply, outcome: Result<(), i32>) {
    match outcome {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}
