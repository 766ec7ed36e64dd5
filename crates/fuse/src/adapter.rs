//! PandoFS behind the kernel: every request of a mount becomes calls of one session, every answer a reply.
//!
//! Most calls are answered by the thread that read the request. Nothing waits here: an answer that takes
//! longer arrives in a callback, with no lock held.
//!
//! Absent on purpose: permission checks (the kernel does them: `default_permissions`), caching beyond what
//! the session may hand to the kernel, and errors of its own making.

mod answer;
mod attributes;
mod convert;
mod data;
mod killed;
mod listing;
mod locks;
mod names;
mod nodes;
pub mod options;
#[cfg(test)]
mod tests;
mod xattrs;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use ::mount::{Fs, Mount};
use proto::request::Request as Ask;
use proto::{Cred, Errno, FileKind, NodeRef};

use crate::abi::ROOT_ID;
use crate::init::Negotiated;
use crate::kernel_mount::Handler;
use crate::notify::Notifier;
use crate::reply::Reply;
use crate::request::{Operation, Request};
use killed::Watch;
use listing::Listings;
use locks::Waits;
use nodes::Nodes;
pub use options::{OPTION_LINES, OptionLine, Options, OptionsError};

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
    waits: Waits,
    watch: Watch,
    /// Counts the times at which caching ended: what was learned in an older era may have been changed by
    /// others since.
    era: AtomicU64,
    notifier: OnceLock<Notifier>,
}

impl Adapter {
    /// An adapter that shows the directory `subdir` of the file system as its root.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR` and whatever the session answers about `subdir`.
    pub fn new(mount: Arc<Mount>, subdir: Option<&str>, behaviour: Behaviour) -> Result<Arc<Adapter>, Errno> {
        let fs = Fs::new(Arc::clone(&mount), Cred::ROOT);
        let attr = fs.stat(subdir.unwrap_or("/"))?;
        if attr.kind() != FileKind::Directory {
            return Err(Errno::ENOTDIR);
        }
        let root = ::mount::fs::node_of(&attr);
        let shared = Arc::new(Shared {
            mount,
            behaviour,
            root,
            nodes: Nodes::new(root),
            listings: Listings::default(),
            waits: Waits::default(),
            watch: Watch::default(),
            era: AtomicU64::new(1),
            notifier: OnceLock::new(),
        });
        let weak = Arc::downgrade(&shared);
        shared.mount.on_ttl_change(Box::new(move |ttl_ns| on_ttl_change(&weak, ttl_ns)));
        Ok(Arc::new(Adapter { shared }))
    }
}

/// Caching has ended: drops what the kernel holds of open files. What it holds of closed ones is dropped at
/// their next open, because their era is over; names and attributes run out by themselves.
fn on_ttl_change(shared: &Weak<Shared>, ttl_ns: u64) {
    let Some(shared) = shared.upgrade() else { return };
    if ttl_ns != 0 {
        return;
    }
    shared.era.fetch_add(1, Ordering::SeqCst);
    let Some(notifier) = shared.notifier.get() else { return };
    for nodeid in shared.nodes.open() {
        // Forgotten meanwhile, or the mount is gone: nothing is cached then either.
        let _gone = notifier.inval_inode(nodeid, 0, 0);
    }
}

impl Handler for Adapter {
    fn init(&self, _negotiated: &Negotiated, notifier: &Notifier) {
        // A second INIT does not happen on one connection.
        let _first = self.shared.notifier.set(notifier.clone());
    }

    fn handle(&self, request: Request<'_>, reply: Reply) {
        let shared = &self.shared;
        if shared.behaviour.read_only && changes(&request.operation) {
            return reply.error(libc::EROFS);
        }
        let about = About::of(shared, &request);
        match request.operation {
            Operation::Forget { nlookup } => {
                shared.nodes.forget(request.nodeid, nlookup);
                reply.ok();
            }
            Operation::BatchForget { items } => {
                for item in items.iter() {
                    shared.nodes.forget(item.nodeid, item.nlookup);
                }
                reply.ok();
            }
            Operation::Interrupt { unique } => shared.interrupt(unique, reply),
            Operation::StatFs => shared.statfs(about, reply),
            Operation::SyncFs => shared.done(about.cred, Ask::SyncFs, reply),
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
    nodeid: u64,
    node: NodeRef,
}

impl About {
    fn of(shared: &Shared, request: &Request<'_>) -> About {
        // The kernel checks permissions; of the caller's groups only the one that a new inode may
        // inherit matters here, and that one it sends.
        let groups = request.extensions.supplementary_group.into_iter().collect();
        let cred = Cred { uid: request.uid, gid: request.gid, groups };
        About { cred, nodeid: request.nodeid, node: shared.nodes.node(request.nodeid) }
    }
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

impl Shared {
    fn era(&self) -> u64 {
        self.era.load(Ordering::SeqCst)
    }

    /// The node id of an inode: its number, but for the directory shown as root.
    fn nodeid(&self, ino: proto::Ino) -> u64 {
        if ino == self.root.ino { ROOT_ID } else { ino.0 }
    }
}
