//! Open files: create, open, read, write, and the rest that works on content.
//!
//! A file handle is no table entry: requests carry node id and open flags; the handle is a number by which an error that comes
//! late is told once.
//! Absent: read-ahead and write-back, which are the kernel's.

use std::sync::Arc;

use ::mount::Validity;
use proto::attr::Attr;
use proto::name::Name;
use proto::reply::{Outcome, Reply};
use proto::request::{IO_BYTES_MAX, NewNode, Request};
use proto::storeio::{Buffer, Lent, Payload};
use proto::{Cred, FileKind, NodeRef};

use super::answer::asker;
use super::keep::{Given, Way};
use super::{RequestContext, Shared};
use crate::abi::fopen;
use crate::reply::{KernelReply, Opened};
use crate::request::groups::{
    attribute_operations, listing_operations, lock_operations, mount_operations, name_operations,
    xattr_operations,
};
use crate::request::{CopyFileRange, KernelRequest, Operation, Read, Release, Write};

impl Shared {
    pub(super) fn data_operation(
        self: &Arc<Self>,
        about: RequestContext,
        request: &KernelRequest<'_>,
        reply: KernelReply,
    ) {
        let node = about.node;
        match request.operation {
            Operation::Open { .. } if self.behaviour.no_open => reply.error(libc::ENOSYS),
            Operation::Open { flags, .. } => self.open(about, flags, reply),
            Operation::Create { name, flags, mode, umask, .. } => {
                let name = match Name::new(name) {
                    Ok(name) => name,
                    Err(errno) => return reply.error(errno.0),
                };
                let new = regular(mode, umask);
                match self.behaviour.no_open {
                    true => self.create_unopened(about, name, new, flags, reply),
                    false => {
                        self.create(about, Request::Create { parent: node, name, new, flags }, flags, reply)
                    }
                }
            }
            Operation::TmpFile { flags, mode, umask } => {
                let new = regular(mode, umask);
                self.create(about, Request::TmpFile { parent: node, new, flags }, flags, reply);
            }
            Operation::Read(read) => self.read(about, read, reply),
            Operation::Write(write) => self.write(about, &write, reply),
            // The kernel releases what it opened before its first OPEN told it that there is no such request.
            Operation::Release(_) if self.behaviour.no_open => reply.ok(),
            Operation::Release(release) => self.release(about, release, reply),
            Operation::FSync { fh, data_only } => self.sync(about, fh, data_only, reply),
            Operation::Fallocate { fh, offset, length, mode } => {
                let ask = Request::Fallocate { node, mode, offset, len: length };
                self.allocate(about.cred, (node, fh), ask, reply);
            }
            Operation::Lseek { offset, whence, .. } => self.seek(about, offset, whence, reply),
            Operation::CopyFileRange(copy) => self.copy(about, copy, reply),
            // `Adapter::handle` sends these elsewhere.
            name_operations!()
            | attribute_operations!()
            | xattr_operations!()
            | listing_operations!()
            | lock_operations!()
            | mount_operations!() => reply.error(libc::EIO),
        }
    }

    /// Counts the open and tells the kernel how to treat its pages.
    fn handle(&self, nodeid: u64, flags: u32, given: Given) -> Opened {
        let past_cache = goes_past_cache(flags);
        let (caching, keep) = self.nodes.opened(nodeid, given, || self.mount.lost_stamp());
        let fh = self.mount.handle();
        if past_cache || !caching {
            return Opened { fh, flags: fopen::DIRECT_IO | fopen::PARALLEL_DIRECT_WRITES };
        }
        Opened { fh, flags: if keep { fopen::KEEP_CACHE } else { 0 } }
    }

    fn open(self: &Arc<Self>, about: RequestContext, flags: u32, reply: KernelReply) {
        let RequestContext { cred, nodeid, node, .. } = about;
        self.ask_attr(cred, Request::Open { node, flags }, reply, move |shared, reply, attr, given| {
            // OPEN tells the kernel no attributes.
            let _timeout = shared.learn(nodeid, &attr, given, Way::Asked);
            reply.open(shared.handle(nodeid, flags, given));
        });
    }

    pub(super) fn create(
        self: &Arc<Self>,
        about: RequestContext,
        ask: Request,
        flags: u32,
        reply: KernelReply,
    ) {
        let RequestContext { cred, node: parent, .. } = about;
        self.ask_attr(cred.clone(), ask, reply, move |shared, reply, attr: Attr, given| {
            let finish = move |shared: &Arc<Shared>, reply: KernelReply| {
                let entry = shared.entry(&attr, Some(parent.ino), given);
                let opened = match shared.behaviour.no_open {
                    true => shared.unopened_handle(&attr, entry.nodeid, flags),
                    false => shared.handle(entry.nodeid, flags, given),
                };
                reply.create(&entry, opened);
            };
            if !(shared.behaviour.sync_names || shared.behaviour.sync_all) {
                return finish(shared, reply);
            }
            let node = attr.node();
            let ask = Request::Fsync { node: parent, data_only: false };
            shared.after_open(cred, node, ask, reply, finish);
        });
    }

    /// The second step of an open that the rank counts already: if it fails the kernel will not release
    /// what it never got, so it is released here.
    fn after_open(
        self: &Arc<Self>,
        cred: Cred,
        node: NodeRef,
        ask: Request,
        reply: KernelReply,
        then: impl FnOnce(&Arc<Self>, KernelReply) + Send + 'static,
    ) {
        let (shared, caller, asker) = (Arc::clone(self), cred.clone(), asker(&reply));
        let done = Box::new(move |outcome: Outcome, _: Validity| match outcome {
            Ok(_) => then(&shared, reply),
            Err(errno) => {
                let release = Request::Release { node, count: 1 };
                shared.mount.submit(caller, release, Box::new(|_, _| ()));
                reply.error(errno.0);
            }
        });
        self.mount.submit_for(asker, cred, ask, done);
    }

    fn read(self: &Arc<Self>, about: RequestContext, read: Read, mut reply: KernelReply) {
        let len = read.size.min(IO_BYTES_MAX as u32);
        // What comes from a socket is not put there: it is copied when it is answered.
        let into = if self.mount.outlives_rank() { None } else { reply.lend_room().map(Buffer::new) };
        let ask = Request::Read { node: about.node, offset: read.offset, len, into };
        self.ask(about.cred, ask, reply, |shared, reply, answer| {
            let Reply::Data(bytes) = answer else { return reply.error(libc::EIO) };
            shared.meter.read(bytes.bytes().len());
            reply.bytes(bytes.bytes());
        });
    }

    fn write(self: &Arc<Self>, about: RequestContext, write: &Write<'_>, mut reply: KernelReply) {
        let RequestContext { cred, node, .. } = about;
        // What comes from a shared mapping has its place already.
        let append = write.flags & libc::O_APPEND as u32 != 0 && !write.cached;
        let ask = Request::Write {
            node,
            offset: write.offset,
            append,
            kill_suidgid: write.kill_suidgid,
            data: Payload::Lent(Lent::new(reply.lend())),
        };
        let synced = self.behaviour.sync_all || write.flags & libc::O_DSYNC as u32 != 0;
        let fh = write.fh;
        self.ask(cred.clone(), ask, reply, move |shared, reply, answer| {
            let Reply::Written { count, .. } = answer else { return reply.error(libc::EIO) };
            shared.meter.written(count);
            let count = u32::try_from(count).unwrap_or(u32::MAX);
            match synced {
                true => shared.after_sync(cred, node, reply, move |shared, reply| {
                    match shared.mount.late_error(node.ino, fh) {
                        Ok(()) => reply.write(count),
                        Err(errno) => reply.error(errno.0),
                    }
                }),
                false => reply.write(count),
            }
        });
    }

    fn allocate(self: &Arc<Self>, cred: Cred, (node, fh): (NodeRef, u64), ask: Request, reply: KernelReply) {
        self.ask(cred.clone(), ask, reply, move |shared, reply, _| match shared.behaviour.sync_all {
            true => {
                // As in `copy`.
                shared.after_sync(cred, node, reply, move |shared, reply| {
                    shared.ok_or_late(node.ino, fh, reply);
                });
            }
            false => reply.ok(),
        });
    }

    fn release(self: &Arc<Self>, about: RequestContext, release: Release, reply: KernelReply) {
        let unlocks = self.unlocks_at_release(&about, release);
        let RequestContext { cred, nodeid, node, .. } = about;
        self.nodes.closed(nodeid);
        self.mount.handle_closed(node.ino, release.fh);
        self.release_behind(cred, unlocks, node, reply);
    }

    /// Releases behind unlocks: a waiter must not see the file gone before it gets its lock. The kernel asks for it when `close` has
    /// returned.
    fn release_behind(
        self: &Arc<Self>,
        cred: Cred,
        mut unlocks: Vec<Request>,
        node: NodeRef,
        reply: KernelReply,
    ) {
        let Some(unlock) = unlocks.pop() else {
            let done = Box::new(move |outcome: Outcome, _: Validity| match outcome {
                Ok(_) => reply.ok(),
                Err(errno) => reply.error(errno.0),
            });
            self.mount.submit_unawaited(cred, Request::Release { node, count: 1 }, done);
            return;
        };
        let (shared, caller) = (Arc::clone(self), cred.clone());
        let then =
            Box::new(move |_: Outcome, _: Validity| shared.release_behind(caller, unlocks, node, reply));
        self.mount.submit(cred, unlock, then);
    }

    fn seek(self: &Arc<Self>, about: RequestContext, offset: u64, whence: u32, reply: KernelReply) {
        let hole = match whence as i32 {
            libc::SEEK_DATA => false,
            libc::SEEK_HOLE => true,
            // The kernel does the others itself.
            _ => return reply.error(libc::EINVAL),
        };
        let ask = Request::Seek { node: about.node, offset, hole };
        self.ask(about.cred, ask, reply, |_, reply, answer| {
            let Reply::Offset(offset) = answer else { return reply.error(libc::EIO) };
            reply.lseek(offset);
        });
    }

    fn copy(self: &Arc<Self>, about: RequestContext, copy: CopyFileRange, reply: KernelReply) {
        if copy.flags != 0 {
            return reply.error(libc::EINVAL);
        }
        let (cred, fh) = (about.cred, copy.fh_out);
        let target = self.nodes.node(copy.nodeid_out);
        let ask = Request::CopyRange {
            source: about.node,
            source_offset: copy.offset_in,
            target,
            target_offset: copy.offset_out,
            len: copy.length,
        };
        self.ask(cred.clone(), ask, reply, move |shared, reply, answer| {
            let Reply::Written { count, .. } = answer else { return reply.error(libc::EIO) };
            match shared.behaviour.sync_all {
                // The rank may have died before the sync was there: its next life has nothing to sync, and this client has been told that
                // the bytes are lost. What broke: the caller was not.
                true => shared.after_sync(cred, target, reply, move |shared, reply| {
                    match shared.mount.late_error(target.ino, fh) {
                        Ok(()) => reply.copied(count),
                        Err(errno) => reply.error(errno.0),
                    }
                }),
                false => reply.copied(count),
            }
        });
    }
}

/// Whether a handle has no use for the page cache: without it the kernel does not ask for security.capability before its first
/// write. What is appended would go into the pages where the kernel believes the end is.
pub(super) fn goes_past_cache(flags: u32) -> bool {
    let write_only = flags & libc::O_ACCMODE as u32 == libc::O_WRONLY as u32;
    write_only || flags & libc::O_APPEND as u32 != 0
}

fn regular(mode: u32, umask: u32) -> NewNode {
    NewNode { mode: FileKind::Regular.mode_bits() | (mode & 0o7777), umask, rdev: 0 }
}
