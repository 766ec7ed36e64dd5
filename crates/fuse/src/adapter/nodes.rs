//! The nodes the kernel knows: how often it looked each up, where the rank finds it, what is open, what of it was taken back.
//!
//! A node is in the table from its first lookup until the kernel forgets the last; node ids are inode
//! numbers, so an unknown one (an NFS handle) still names its inode.
//! Absent: attributes of anything but directories; the kernel caches those.

mod census;
mod hash;
#[cfg(test)]
mod tests;
mod unopened;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use proto::caps::Bits;
use proto::{Attr, FileKind, Ino, NameHash, NodeRef};
use stdx::Mono;

use hash::Mix;
use unopened::Unopened;

use super::keep::{Given, Way};
use crate::abi::ROOT_ID;

const SHARDS: usize = 64;

/// Places in a shard that remember recalls: together 4096, so that a recall seldom voids what was granted of another inode.
const BUCKETS: usize = 64;

/// What is known of one node. Stamps are those of validities; 0: none.
#[derive(Clone, Debug, Default)]
struct Node {
    lookups: u64,
    /// Somebody asked about it since the hand of the clock passed last.
    used: bool,
    parent: Ino,
    hash: NameHash,
    /// Open handles.
    opens: u32,
    directory: bool,
    /// Of a directory: its last attributes. Processes stand in it, and have it open, when another mount removes it.
    last: Option<Box<Attr>>,
    /// An fcntl lock was asked for: closing any handle must drop its owner's locks.
    locked: bool,
    /// It was seen with an extended attribute, or one was set: they are never said to be absent again,
    /// because an older answer may arrive later.
    may_have_xattrs: bool,
    /// When the first answer about it was given.
    first_answer: Mono,
    /// Since that stamp Fc is held, and pages are under it.
    pages: u64,
    /// Of a directory: Fs is held without a gap since that stamp, and until then.
    held: u64,
    held_until: Mono,
    /// Since when it was held when the kernel began to keep its listing.
    listed: u64,
    /// With that stamp it was seen without any extended attribute, which may be believed until then.
    xattrs_absent_at: u64,
    xattrs_absent_until: Mono,
    /// The recall of its name, while the kernel may still find the node under it.
    stale: u64,
    /// Since that recall it was found by a name that is right.
    found_anew: bool,
    /// With that stamp the kernel was given attributes to keep, until then.
    granted: u64,
    granted_until: Mono,
    /// `noopen` only; of most mounts nothing.
    unopened: Option<Box<Unopened>>,
}

impl Node {
    const fn holds(&self, now: Mono, void_below: u64) -> bool {
        self.held != 0 && self.held >= void_below && now.0 < self.held_until.0
    }

    /// Fs was granted: on top of an earlier grant that is still good, or anew.
    fn hold(&mut self, given: Given, now: Mono, void_below: u64) {
        if !self.holds(now, void_below) {
            (self.held, self.held_until) = (given.stamp, Mono(0));
        }
        self.held_until = self.held_until.max(given.until);
    }
}

/// What a recall finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) first_answer: Mono,
    /// A handle is open, which may put file data into the kernel's pages.
    pub(super) open: bool,
    pub(super) directory: bool,
}

/// A node that the kernel does not know any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gone {
    pub(super) node: NodeRef,
    /// The rank has it open for it until now.
    pub(super) open_at_rank: bool,
    /// There may have been pages of it.
    pub(super) pages: bool,
}

/// Nodes, and the highest stamp of a recall of any inode of each bucket, known to the kernel or not: the answer that a recall
/// voids may be the one that makes the node.
struct Shard {
    nodes: HashMap<u64, Node, Mix>,
    recalled: Box<[u64; BUCKETS]>,
}

impl Shard {
    fn new() -> Self {
        Self { nodes: HashMap::default(), recalled: Box::new([0; BUCKETS]) }
    }

    fn recalled(&mut self, nodeid: u64) -> &mut u64 {
        // Other bits than those that chose the shard.
        &mut self.recalled[stdx::hash::mix64(nodeid) as usize % BUCKETS]
    }
}

/// The table, in shards so that requests on different nodes rarely meet.
///
/// `lost` is asked while the node is locked, as the recalls are looked at: whoever takes something back announces it first and
/// looks at the node then, so what is handed out meanwhile is either seen by it or void.
pub(super) struct Nodes {
    shards: Vec<Mutex<Shard>>,
    root: NodeRef,
    /// Nodes but for the root.
    known: AtomicUsize,
}

impl Nodes {
    pub(super) fn new(root: NodeRef) -> Nodes {
        let shards = (0..SHARDS).map(|_| Mutex::new(Shard::new())).collect();
        let nodes = Nodes { shards, root, known: AtomicUsize::new(0) };
        // The kernel never looks the root up and never forgets it.
        let (NodeRef { parent, hash, .. }, lookups, directory) = (root, 1, true);
        nodes
            .shard(ROOT_ID)
            .nodes
            .insert(ROOT_ID, Node { lookups, parent, hash, directory, ..Node::default() });
        nodes
    }

    fn shard(&self, nodeid: u64) -> MutexGuard<'_, Shard> {
        let at = (stdx::hash::mix64(nodeid) >> 32) as usize % SHARDS;
        // What is guarded is whole after each statement, whoever panicked.
        self.shards[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, nodeid: u64, change: impl FnOnce(&mut Node) -> T) -> Option<T> {
        self.shard(nodeid).nodes.get_mut(&nodeid).map(change)
    }

    /// How to name the node to the rank, and whether the kernel must look it up again before it uses it.
    pub(super) fn place(&self, nodeid: u64) -> (NodeRef, bool) {
        let ino = if nodeid == ROOT_ID { self.root.ino } else { Ino(nodeid) };
        match self.shard(nodeid).nodes.get_mut(&nodeid) {
            Some(node) => {
                node.used = true;
                // Whoever has it open came by a name that was right then. Of a directory only the way to it is stale.
                let stale = node.stale != 0 && !node.directory && node.opens == 0;
                (NodeRef { ino, parent: node.parent, hash: node.hash }, stale)
            }
            None => (NodeRef::bare(ino), false),
        }
    }

    /// Whether the kernel must look up again what it is about to link: by a name that is right it may have come by now.
    pub(super) fn is_to_be_found(&self, nodeid: u64) -> bool {
        self.place(nodeid).1 && self.with(nodeid, |node| !node.found_anew).unwrap_or(false)
    }

    /// How to name the node to the rank.
    pub(super) fn node(&self, nodeid: u64) -> NodeRef {
        self.place(nodeid).0
    }

    /// Takes in attributes that go to the kernel. Whether it may keep what it is told.
    pub(super) fn learn(
        &self,
        nodeid: u64,
        attr: &Attr,
        given: Given,
        (now, way): (Mono, Way),
        lost: impl FnOnce() -> u64,
    ) -> bool {
        let mut shard = self.shard(nodeid);
        let void_below = (*shard.recalled(nodeid)).max(lost());
        let good = given.is_good(void_below, 0);
        let node = match way {
            Way::Found | Way::Linked => {
                let node = shard.nodes.entry(nodeid).or_insert_with(|| {
                    self.known.fetch_add(1, Ordering::Relaxed);
                    Node { first_answer: now, ..Node::default() }
                });
                node.lookups += 1;
                node.used = true;
                // It stays stale: another name says nothing of the one that was taken back, which the kernel may go by still. And an answer
                // that may be older than the recall says nothing at all: what it was found by is perhaps what was taken back.
                node.found_anew |= way == Way::Found && given.asked >= node.stale;
                node
            }
            Way::Asked => match shard.nodes.get_mut(&nodeid) {
                Some(node) => node,
                None => return false,
            },
        };
        (node.parent, node.hash) = (attr.parent, attr.hash);
        node.directory = attr.kind() == FileKind::Directory;
        match &mut node.last {
            Some(last) => **last = *attr,
            None if node.directory => node.last = Some(Box::new(*attr)),
            None => {}
        }
        node.may_have_xattrs |= attr.has_xattrs;
        if good && !attr.has_xattrs && given.bits.has(Bits::XS) {
            (node.xattrs_absent_at, node.xattrs_absent_until) = (given.stamp, given.until);
        }
        if node.directory && good && given.bits.has(Bits::FS) {
            node.hold(given, now, void_below);
        }
        if good {
            node.granted = given.stamp;
            node.granted_until = given.until;
        }
        good && given.bits.has(Bits::ATTRS) && node.stale == 0
    }

    /// The attributes of a directory that the rank has no more, without links, as a local file system shows one that was removed
    /// while somebody was in it. None while the kernel may still find it by its old name, unless it is open: whoever has it open
    /// has no other way to go on, and a walk that meets it in that moment ends in it, not in an error.
    pub(super) fn attr_of_removed(&self, nodeid: u64) -> Option<Attr> {
        let shard = self.shard(nodeid);
        let node = shard.nodes.get(&nodeid)?;
        let last = node.last.as_deref().filter(|_| node.stale == 0 || node.found_anew || node.opens > 0)?;
        Some(Attr { nlink: 0, ..*last })
    }

    /// A directory is opened to be listed: whether the kernel may keep the listing, and what it has of an earlier one. The kernel
    /// itself looks at the time of change, and two changes can have one; but none happens while Fs is held.
    pub(super) fn listing(&self, nodeid: u64, now: Mono, lost: impl FnOnce() -> u64) -> (bool, bool) {
        let mut shard = self.shard(nodeid);
        let void_below = (*shard.recalled(nodeid)).max(lost());
        let Some(node) = shard.nodes.get_mut(&nodeid) else { return (false, false) };
        node.opens += 1;
        let may = node.holds(now, void_below);
        let keep = may && node.listed == node.held;
        node.listed = if may { node.held } else { 0 };
        (may, keep)
    }

    /// The kernel forgets so many lookups. What there was, if it was the last one.
    pub(super) fn forget(&self, nodeid: u64, lookups: u64) -> Option<Gone> {
        if nodeid == ROOT_ID {
            return None;
        }
        let mut shard = self.shard(nodeid);
        let node = shard.nodes.get_mut(&nodeid)?;
        node.lookups = node.lookups.saturating_sub(lookups);
        if node.lookups > 0 {
            return None;
        }
        let node = shard.nodes.remove(&nodeid)?;
        self.known.fetch_sub(1, Ordering::Relaxed);
        let open_at_rank = node.unopened.is_some_and(|unopened| unopened.open_at_rank);
        let place = NodeRef { ino: Ino(nodeid), parent: node.parent, hash: node.hash };
        Some(Gone { node: place, open_at_rank, pages: node.pages != 0 })
    }

    /// Takes back: voids what was given under a lower stamp and marks the node, `named` if a name goes. Nothing if the kernel does
    /// not have it.
    pub(super) fn recall(&self, nodeid: u64, bits: Bits, named: bool, stamp: u64) -> Option<Found> {
        let mut shard = self.shard(nodeid);
        let highest = shard.recalled(nodeid);
        *highest = stamp.max(*highest);
        let node = shard.nodes.get_mut(&nodeid)?;
        if named {
            node.stale = stamp.max(node.stale);
            node.found_anew = false;
        }
        if bits.has(Bits::FC) {
            node.pages = 0;
        }
        if !bits.and(Bits::ATTRS).is_empty() {
            node.granted = 0;
        }
        let open = node.opens > 0 && !node.directory;
        Some(Found { first_answer: node.first_answer, open, directory: node.directory })
    }

    /// The kernel does not have the name any more that the recall with this stamp took. Whether it is not stale any more: a later recall has
    /// a drop of its own.
    pub(super) fn name_dropped(&self, nodeid: u64, stamp: u64) -> bool {
        self.with(nodeid, |node| {
            if node.stale == stamp {
                node.stale = 0;
            }
            node.stale == 0
        })
        .unwrap_or(true)
    }

    /// Its old name is waited for no longer.
    pub(super) fn believe(&self, nodeid: u64) {
        self.with(nodeid, |node| node.stale = 0);
    }

    /// Counts an open: whether pages may be cached, and whether those from before may be kept.
    pub(super) fn opened(&self, nodeid: u64, given: Given, lost: impl FnOnce() -> u64) -> (bool, bool) {
        let mut shard = self.shard(nodeid);
        let lost = lost();
        let caching = given.is_good(*shard.recalled(nodeid), lost) && given.bits.has(Bits::FC);
        let Some(node) = shard.nodes.get_mut(&nodeid) else { return (false, false) };
        node.opens += 1;
        let keep = caching && node.pages != 0 && node.pages >= lost;
        node.pages = if caching { given.stamp } else { 0 };
        (caching, keep)
    }

    pub(super) fn closed(&self, nodeid: u64) {
        self.with(nodeid, |node| node.opens = node.opens.saturating_sub(1));
    }

    pub(super) fn set_locked(&self, nodeid: u64) {
        self.with(nodeid, |node| node.locked = true);
    }

    /// Whether some owner may hold fcntl locks; of an unknown node that must be assumed.
    pub(super) fn may_be_locked(&self, nodeid: u64) -> bool {
        self.with(nodeid, |node| node.locked).unwrap_or(true)
    }

    pub(super) fn set_may_have_xattrs(&self, nodeid: u64) {
        self.with(nodeid, |node| node.may_have_xattrs = true);
    }

    /// Whether the node is known to have no extended attribute.
    pub(super) fn has_no_xattrs(&self, nodeid: u64, now: Mono, lost: impl FnOnce() -> u64) -> bool {
        let mut shard = self.shard(nodeid);
        let void_below = (*shard.recalled(nodeid)).max(lost());
        let Some(node) = shard.nodes.get(&nodeid) else { return false };
        !node.may_have_xattrs
            && node.xattrs_absent_at != 0
            && node.xattrs_absent_at >= void_below
            && now < node.xattrs_absent_until
    }

    #[cfg(test)]
    pub(super) fn lookups(&self, nodeid: u64) -> u64 {
        self.with(nodeid, |node| node.lookups).unwrap_or(0)
    }
}
