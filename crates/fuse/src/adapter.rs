//! PandoFS behind the kernel: every request of a mount becomes calls of one session, every answer a reply.
//!
//! Most calls are answered by the thread that read the request. Nothing waits here: an answer that takes
//! longer arrives in a callback, with no lock held.
//!
//! Absent: permission checks (the kernel does them: `default_permissions`), caching beyond what
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
mod stale;
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
use crate::reply::KernelReply;
use crate::request::groups::{
    attribute_operations, data_operations, listing_operations, lock_operations, name_operations,
    xattr_operations,
};
use crate::request::{KernelRequest, Operation};
use droppers::Droppers;
use killed::Watch;
use listing::Listings;
use locks::{LockOwners, Waits};
use nodes::Nodes;
pub use options::{OPTION_LINES, OptionLine, Options, OptionsError, stays_inside};
use plus::Listers;
use prune::Pruning;
use stale::Waiters;

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
    lock_owners: LockOwners,
    watch: Watch,
    droppers: Droppers,
    stale: Waiters,
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
        let root = attr.node();
        let (droppers, queues) = Droppers::new();
        let shared = Arc::new(Shared {
            mount,
            behaviour,
            root,
            nodes: Nodes::new(root),
            listings: Listings::default(),
            listers: Listers::default(),
            waits: Waits::default(),
            lock_owners: LockOwners::default(),
            watch: Watch::default(),
            droppers,
            stale: Waiters::default(),
            notifier: OnceLock::new(),
            meter: Meter::default(),
            began: Instant::now(),
            over_rings: AtomicBool::new(false),
            pruning: Pruning::default(),
        });
        let weak = Arc::downgrade(&shared);
        queues.serve(&weak).map_err(|error| error.raw_os_error().map_or(Errno::EAGAIN, Errno))?;
        let looks = weak.clone();
        shared.mount.on_session(Box::new(move |news| {
            if let Some(shared) = looks.upgrade() {
                shared.on_session(&news.event);
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

    fn handle(&self, request: KernelRequest<'_>, reply: KernelReply) {
        let shared = &self.shared;
        let reply = match request.operation.is_waited_for() {
            true => reply.measured(shared.meter.measure()),
            false => reply,
        };
        if shared.behaviour.read_only && request.operation.changes() {
            return reply.error(libc::EROFS);
        }
        let about = RequestContext::of(shared, &request);
        if about.stale && request.operation.is_by_name() {
            return shared.look_again_later(about.nodeid, reply);
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
            name_operations!() => shared.name_operation(about, &request, reply),
            attribute_operations!() => shared.attribute_operation(about, &request.operation, reply),
            xattr_operations!() => shared.xattr_operation(about, &request.operation, reply),
            listing_operations!() => shared.listing_operation(about, &request.operation, reply),
            lock_operations!() => shared.lock_operation(about, &request, reply),
            data_operations!() => shared.data_operation(about, &request, reply),
        }
    }
}

/// Who asks, about what.
struct RequestContext {
    cred: Cred,
    /// The thread that asks; 0 if the kernel does by itself, or it is in another namespace.
    pid: u32,
    nodeid: u64,
    node: NodeRef,
    /// The kernel may have come to it by a name that is gone.
    stale: bool,
}

impl RequestContext {
    fn of(shared: &Shared, request: &KernelRequest<'_>) -> RequestContext {
        // The kernel checks permissions; of the caller's groups only the one that a new inode may
        // inherit matters here, and that one it sends.
        let groups = request.extensions.supplementary_group.into_iter().collect();
        let cred = Cred { uid: request.uid, gid: request.gid, groups };
        let (node, stale) = shared.nodes.place(request.nodeid);
        RequestContext { cred, pid: request.pid, nodeid: request.nodeid, node, stale }
    }
}

impl Shared {
    /// The node id of an inode: its number, but for the directory shown as root.
    fn nodeid(&self, ino: proto::Ino) -> u64 {
        if ino == self.root.ino { ROOT_ID } else { ino.0 }
    }
}
