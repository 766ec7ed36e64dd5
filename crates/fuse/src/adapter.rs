//! PandoFS behind the kernel: every request of a mount becomes calls of one session, every answer a reply.
//!
//! Most calls are answered by the thread that read the request. Nothing waits here: an answer that takes
//! longer arrives in a callback, with no lock held.
//!
//! Absent on purpose: permission checks (the kernel does them: `default_permissions`), caching beyond what
//! the session may hand to the kernel, and errors of its own making but those of docs/FUSE.md: ESTALE, for one, makes the kernel
//! look a name up again.

mod answer;
mod attributes;
mod convert;
mod data;
mod droppers;
mod keep;
mod killed;
mod listing;
mod locks;
mod name_drops;
mod names;
mod nodes;
pub mod options;
mod plus;
mod prune;
mod recall;
mod stats;
#[cfg(test)]
mod tests;
mod unopened;
mod xattrs;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use ::mount::{Fs, Mount};
use proto::{Cred, Errno, FileKind, NodeRef};

use crate::abi::ROOT_ID;
use crate::init::Negotiated;
use crate::kernel_mount::Handler;
use crate::meter::Meter;
use crate::notify::Notifier;
use crate::reply::Reply;
use crate::request::{Operation, Request};
use droppers::Droppers;
use killed::Watch;
use listing::Listings;
use locks::Waits;
use nodes::Nodes;
pub use options::{OPTION_LINES, OptionLine, Options, OptionsError, stays_inside};
use plus::Listers;
use prune::Pruning;

/// What the options mean for the answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Behaviour {
    /// Refuse every change, whatever the kernel was told.
    pub read_only: bool,
    /// Answer a change of a directory when it is durable.
    pub sync_names: bool,
    /// Answer every change when it is durable.
    pub sync_all: bool,
    /// Do not serve POSIX ACLs.
    pub no_acl: bool,
    /// Files are opened and closed without a word to anyone (`unopened`).
    pub no_open: bool,
    /// Inodes that the kernel is to know at most; 0: as many as it likes.
    pub nodes_max: usize,
}

/// The handler of a mount. The session it speaks through belongs to whoever made it: it outlives the mount
/// and is closed by its owner.
pub struct Adapter {
    shared: Arc<Shared>,
}

/// What requests and their callbacks share.
struct Shared {
    mount: Arc<Mount>,
    behaviour: Behaviour,
    root: NodeRef,
    nodes: Nodes,
    listings: Listings,
    listers: Listers,
    waits: Waits,
    watch: Watch,
    droppers: Droppers,
    notifier: OnceLock<Notifier>,
    meter: Meter,
    began: Instant,
    over_rings: AtomicBool,
    pruning: Pruning,
}

impl Adapter {
    /// An adapter that shows the directory `subdir` of the file system as its root.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR` and whatever the session answers about `subdir`; `EAGAIN`: too many threads.
    pub fn new(mount: Arc<Mount>, subdir: Option<&str>, behaviour: Behaviour) -> Result<Arc<Adapter>, Errno> {
        let fs = Fs::new(Arc::clone(&mount), Cred::ROOT);
        let attr = fs.stat(subdir.unwrap_or("/"))?;
        if attr.kind() != FileKind::Directory {
            return Err(Errno::ENOTDIR);
        }
        let root = ::mount::fs::node_of(&attr);
        let (droppers, queues) = Droppers::new();
        let shared = Arc::new(Shared {
            mount,
            behaviour,
            root,
            nodes: Nodes::new(root),
            listings: Listings::default(),
            listers: Listers::default(),
            waits: Waits::default(),
            watch: Watch::default(),
            droppers,
            notifier: OnceLock::new(),
            meter: Meter::default(),
            began: Instant::now(),
            over_rings: AtomicBool::new(false),
            pruning: Pruning::default(),
        });
        let weak = Arc::downgrade(&shared);
        queues.serve(&weak).map_err(|error| error.raw_os_error().map_or(Errno::EAGAIN, Errno))?;
        let looks = weak.clone();
        shared.mount.on_session(Box::new(move |event, _| {
            if let Some(shared) = looks.upgrade() {
                shared.on_session(event);
            }
        }));
        shared.mount.on_caps(Box::new(move |event| recall::on_caps(&weak, event)));
        Ok(Arc::new(Adapter { shared }))
    }
}

impl Handler for Adapter {
    fn init(&self, _negotiated: &Negotiated, notifier: &Notifier) {
        // A second INIT does not happen on one connection.
        let _first = self.shared.notifier.set(notifier.clone());
    }

    fn handle(&self, request: Request<'_>, reply: Reply) {
        let shared = &self.shared;
        let reply = match is_waited_for(&request.operation) {
            true => reply.measured(shared.meter.measure()),
            false => reply,
        };
        if shared.behaviour.read_only && changes(&request.operation) {
            return reply.error(libc::EROFS);
        }
        let about = About::of(shared, &request);
        if about.stale && is_by_name(&request.operation) {
            return reply.error(libc::ESTALE);
        }
        match request.operation {
            Operation::Forget { nlookup } => {
                shared.forget(request.nodeid, nlookup);
                reply.ok();
            }
            Operation::BatchForget { items } => {
                for item in items.iter() {
                    shared.forget(item.nodeid, item.nlookup);
                }
                reply.ok();
            }
            Operation::Interrupt { unique } => shared.interrupt(unique, reply),
            Operation::StatFs => shared.statfs(about, reply),
            Operation::SyncFs => shared.sync_all(about.cred, reply),
            // Nothing here waits for events, is a block device, or checks access for the kernel.
            Operation::Access { .. }
            | Operation::BMap { .. }
            | Operation::Ioctl { .. }
            | Operation::Poll { .. } => reply.error(libc::ENOSYS),
            Operation::NotifyReply { .. } | Operation::Destroy => reply.ok(),
            Operation::Lookup { .. }
            | Operation::MkNod { .. }
            | Operation::MkDir { .. }
            | Operation::Symlink { .. }
            | Operation::Link { .. }
            | Operation::Unlink { .. }
            | Operation::RmDir { .. }
            | Operation::Rename { .. }
            | Operation::ReadLink => shared.name_operation(about, &request, reply),
            Operation::GetAttr { .. } | Operation::Statx { .. } | Operation::SetAttr(_) => {
                shared.attribute_operation(about, &request.operation, reply);
            }
            Operation::SetXattr { .. }
            | Operation::GetXattr { .. }
            | Operation::ListXattr { .. }
            | Operation::RemoveXattr { .. } => shared.xattr_operation(about, &request.operation, reply),
            Operation::OpenDir { .. }
            | Operation::ReadDir { .. }
            | Operation::ReadDirPlus { .. }
            | Operation::ReleaseDir(_)
            | Operation::FSyncDir { .. } => shared.listing_operation(about, &request.operation, reply),
            Operation::GetLk(_) | Operation::SetLk { .. } | Operation::Flush { .. } => {
                shared.lock_operation(about, &request, reply);
            }
            _ => shared.data_operation(about, &request, reply),
        }
    }
}

/// Who asks, about what.
struct About {
    cred: Cred,
    /// The thread that asks; 0 if the kernel does by itself, or it is in another namespace.
    pid: u32,
    nodeid: u64,
    node: NodeRef,
    /// The kernel may have come to it by a name that is gone.
    stale: bool,
}

impl About {
    fn of(shared: &Shared, request: &Request<'_>) -> About {
        // The kernel checks permissions; of the caller's groups only the one that a new inode may
        // inherit matters here, and that one it sends.
        let groups = request.extensions.supplementary_group.into_iter().collect();
        let cred = Cred { uid: request.uid, gid: request.gid, groups };
        let (node, stale) = shared.nodes.place(request.nodeid);
        About { cred, pid: request.pid, nodeid: request.nodeid, node, stale }
    }
}

/// Whether somebody waits for the answer, and for no other program but us.
fn is_waited_for(operation: &Operation<'_>) -> bool {
    !matches!(
        operation,
        Operation::Forget { .. }
            | Operation::BatchForget { .. }
            | Operation::Interrupt { .. }
            | Operation::NotifyReply { .. }
            | Operation::Destroy
            | Operation::SetLk { sleep: true, .. }
    )
}

/// Whether an operation would change the file system.
fn changes(operation: &Operation<'_>) -> bool {
    const WRITING: u32 = (libc::O_WRONLY | libc::O_RDWR | libc::O_TRUNC) as u32;
    match operation {
        Operation::Open { flags, .. } => flags & WRITING != 0,
        Operation::SetAttr(_)
        | Operation::MkNod { .. }
        | Operation::MkDir { .. }
        | Operation::Symlink { .. }
        | Operation::Link { .. }
        | Operation::Unlink { .. }
        | Operation::RmDir { .. }
        | Operation::Rename { .. }
        | Operation::Create { .. }
        | Operation::TmpFile { .. }
        | Operation::Write(_)
        | Operation::SetXattr { .. }
        | Operation::RemoveXattr { .. }
        | Operation::Fallocate { .. }
        | Operation::CopyFileRange(_) => true,
        _ => false,
    }
}

/// Whether the kernel asks it of a node that it came to by a name. Upon ESTALE it walks the path again, looking up each name.
fn is_by_name(operation: &Operation<'_>) -> bool {
    match operation {
        Operation::GetAttr { fh } | Operation::Statx { fh, .. } => fh.is_none(),
        Operation::SetAttr(set) => set.fh.is_none(),
        Operation::Open { .. }
        | Operation::ReadLink
        | Operation::SetXattr { .. }
        | Operation::GetXattr { .. }
        | Operation::ListXattr { .. }
        | Operation::RemoveXattr { .. } => true,
        _ => false,
    }
}

impl Shared {
    /// The node id of an inode: its number, but for the directory shown as root.
    fn nodeid(&self, ino: proto::Ino) -> u64 {
        if ino == self.root.ino { ROOT_ID } else { ino.0 }
    }
}
