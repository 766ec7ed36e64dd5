//! The nodes the kernel knows: how often it looked each up, where the rank finds it, what is open, what of it was taken back.
//!
//! A node is in the table from its first lookup until the kernel forgets the last; node ids are inode
//! numbers, so an unknown one (an NFS handle) still names its inode.
//! Absent on purpose: attributes of anything but directories; the kernel caches those.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use proto::caps::Bits;
use proto::{Attr, FileKind, Ino, NameHash, NodeRef};
use stdx::{Mono, Wall};

use super::keep::{Given, Way};
use crate::abi::ROOT_ID;

const SHARDS: usize = 64;

/// Places in a shard that remember recalls: together 4096, so that a recall seldom voids what was granted of another inode.
const BUCKETS: usize = 64;

/// What is known of one node. Stamps are those of leaves; 0: none.
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
    /// It was seen with an extended attribute, or one was set: never called bare again, because an older
    /// answer may arrive later.
    dressed: bool,
    /// When the first answer about it was given.
    born: Mono,
    /// Since that stamp Fc is held, and pages are under it.
    pages: u64,
    /// Of a directory: Fs is held without a gap since that stamp, and until then.
    held: u64,
    held_until: Mono,
    /// Since when it was held when the kernel began to keep its listing.
    listed: u64,
    /// With that stamp it was seen without any extended attribute, which may be believed until then.
    bare: u64,
    bare_until: Mono,
    /// The recall of its name, while the kernel may still find the node under it.
    stale: u64,
    /// With that stamp the kernel was given attributes to keep, until then.
    granted: u64,
    granted_until: Mono,
    /// `noopen` only; of most mounts nothing.
    unopened: Option<Box<Unopened>>,
}

/// Of a file that may be open without anybody having said so.
#[derive(Clone, Debug, Default)]
struct Unopened {
    /// It is open at the rank until the kernel forgets it.
    kept: bool,
    /// Its pages are about to be dropped.
    dropping: bool,
    /// What the kernel was shown last: change counter, size and mtime.
    shown: Option<(u64, u64, Wall)>,
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

/// How many nodes there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Census {
    pub(super) known: u64,
    /// Of these the kernel may keep something at this moment.
    pub(super) granted: u64,
    /// Files whose pages it may keep.
    pub(super) cached: u64,
    /// Files with open handles.
    pub(super) open: u64,
}

/// What a recall finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) born: Mono,
    /// A handle is open, which may put file data into the kernel's pages.
    pub(super) open: bool,
    pub(super) directory: bool,
}

/// A node that the kernel does not know any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gone {
    pub(super) node: NodeRef,
    /// The rank has it open for it until now.
    pub(super) kept: bool,
    /// There may have been pages of it.
    pub(super) pages: bool,
}

/// Node ids are mostly consecutive numbers; `mix64` spreads them.
#[derive(Clone, Copy, Default)]
struct Mix;

struct Mixed(u64);

impl BuildHasher for Mix {
    type Hasher = Mixed;
    fn build_hasher(&self) -> Mixed {
        Mixed(0)
    }
}

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = stdx::hash::mix64(self.0 ^ value);
    }
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
                    Node { born: now, ..Node::default() }
                });
                node.lookups += 1;
                node.used = true;
                // A new name says nothing of the one that was taken back, which the kernel may go by still.
                if way == Way::Found {
                    node.stale = 0;
                }
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
        node.dressed |= attr.has_xattrs;
        if good && !attr.has_xattrs && given.bits.has(Bits::XS) {
            (node.bare, node.bare_until) = (given.stamp, given.until);
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

    /// Counts the nodes, part by part.
    pub(super) fn census(&self, now: Mono, lost: u64) -> Census {
        let mut census = Census::default();
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            census.known += shard.nodes.len() as u64;
            for node in shard.nodes.values() {
                let pages = node.pages != 0 && node.pages >= lost;
                let attributes = node.granted != 0 && node.granted >= lost && now < node.granted_until;
                census.granted += u64::from(pages || attributes);
                census.cached += u64::from(pages);
                census.open += u64::from(node.opens > 0 && !node.directory);
            }
        }
        census
    }

    /// The attributes of a directory that the rank has no more, without links, as a local file system shows one that was removed
    /// while somebody was in it. None while the kernel may still find it by its old name, unless it is open: whoever has it open
    /// has no other way to go on, and a walk that meets it in that moment ends in it, not in an error.
    pub(super) fn remains(&self, nodeid: u64) -> Option<Attr> {
        let shard = self.shard(nodeid);
        let node = shard.nodes.get(&nodeid)?;
        let last = node.last.as_deref().filter(|_| node.stale == 0 || node.opens > 0)?;
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
        let kept = node.unopened.is_some_and(|unopened| unopened.kept);
        let place = NodeRef { ino: Ino(nodeid), parent: node.parent, hash: node.hash };
        Some(Gone { node: place, kept, pages: node.pages != 0 })
    }

    /// How many the kernel knows, but for the root.
    pub(super) fn known(&self) -> usize {
        self.known.load(Ordering::Relaxed)
    }

    /// Parts that the hand of the clock goes over.
    pub(super) fn parts(&self) -> usize {
        self.shards.len()
    }

    /// The hand passes one part: up to so many nodes that nobody has open or has asked about since it passed last.
    pub(super) fn idle(&self, part: u64, most: usize) -> Vec<u64> {
        let at = part as usize % self.shards.len();
        let mut shard = self.shards[at].lock().unwrap_or_else(PoisonError::into_inner);
        let mut idle = Vec::new();
        for (nodeid, node) in shard.nodes.iter_mut().filter(|(nodeid, _)| **nodeid != ROOT_ID) {
            if idle.len() == most {
                break;
            }
            if !std::mem::take(&mut node.used) && node.opens == 0 {
                idle.push(*nodeid);
            }
        }
        idle
    }

    /// The kernel has the node, and the rank does not have it open for it yet.
    pub(super) fn wants_keeping(&self, nodeid: u64) -> bool {
        self.with(nodeid, |node| !node.unopened.as_ref().is_some_and(|unopened| unopened.kept))
            .unwrap_or(false)
    }

    /// The rank has it open, until the kernel forgets the node. False: that is not to be, it is forgotten or was kept already.
    pub(super) fn keep(&self, nodeid: u64) -> bool {
        self.with(nodeid, |node| !std::mem::replace(&mut node.unopened.get_or_insert_default().kept, true))
            .unwrap_or(false)
    }

    /// Takes in what the kernel is shown of a file: whether its bytes may be others than those it was shown before, by what it
    /// cannot see. It looks at size and mtime; mtime can be set back, and two changes can have one.
    pub(super) fn shows_a_hidden_change(&self, nodeid: u64, attr: &Attr) -> bool {
        let shown = (attr.change, attr.size, attr.mtime);
        self.with(nodeid, |node| {
            let before = node.unopened.get_or_insert_default().shown.replace(shown);
            before.is_some_and(|(change, size, mtime)| {
                change != attr.change && (size, mtime) == (attr.size, attr.mtime)
            })
        })
        .unwrap_or(false)
    }

    /// Whether a drop of the node's pages is to be ordered: not if one is waiting already.
    pub(super) fn begin_drop(&self, nodeid: u64) -> bool {
        self.with(nodeid, |node| {
            !std::mem::replace(&mut node.unopened.get_or_insert_default().dropping, true)
        })
        .unwrap_or(false)
    }

    /// That drop begins: what changes from here on needs another.
    pub(super) fn drop_begins(&self, nodeid: u64) {
        self.with(nodeid, |node| node.unopened.get_or_insert_default().dropping = false);
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
        }
        if bits.has(Bits::FC) {
            node.pages = 0;
        }
        if !bits.and(Bits::ATTRS).is_empty() {
            node.granted = 0;
        }
        let open = node.opens > 0 && !node.directory;
        Some(Found { born: node.born, open, directory: node.directory })
    }

    /// The kernel does not have the name any more that the recall with this stamp took.
    pub(super) fn name_dropped(&self, nodeid: u64, stamp: u64) {
        self.with(nodeid, |node| {
            // A later recall has a drop of its own, and a lookup needs none.
            if node.stale == stamp {
                node.stale = 0;
            }
        });
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

    /// Files with open handles.
    pub(super) fn open(&self) -> Vec<u64> {
        let mut open = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            open.extend(
                shard
                    .nodes
                    .iter()
                    .filter(|(_, node)| node.opens > 0 && !node.directory)
                    .map(|(nodeid, _)| *nodeid),
            );
        }
        open
    }

    pub(super) fn set_locked(&self, nodeid: u64) {
        self.with(nodeid, |node| node.locked = true);
    }

    /// Whether some owner may hold fcntl locks; of an unknown node that must be assumed.
    pub(super) fn may_be_locked(&self, nodeid: u64) -> bool {
        self.with(nodeid, |node| node.locked).unwrap_or(true)
    }

    pub(super) fn set_dressed(&self, nodeid: u64) {
        self.with(nodeid, |node| node.dressed = true);
    }

    /// Whether the node is known to have no extended attribute.
    pub(super) fn is_bare(&self, nodeid: u64, now: Mono, lost: impl FnOnce() -> u64) -> bool {
        let mut shard = self.shard(nodeid);
        let void_below = (*shard.recalled(nodeid)).max(lost());
        let Some(node) = shard.nodes.get(&nodeid) else { return false };
        !node.dressed && node.bare != 0 && node.bare >= void_below && now < node.bare_until
    }

    #[cfg(test)]
    pub(super) fn lookups(&self, nodeid: u64) -> u64 {
        self.with(nodeid, |node| node.lookups).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stdx::time::SECOND;

    fn attr(ino: u64) -> Attr {
        Attr { ino: Ino(ino), parent: Ino(1), hash: NameHash(99), ..Attr::default() }
    }

    fn nodes() -> Nodes {
        Nodes::new(NodeRef::bare(Ino(7)))
    }

    /// Granted at `stamp`, for a second.
    fn given(bits: Bits, stamp: u64) -> Given {
        Given { bits, stamp, until: Mono(SECOND) }
    }

    const EVERYTHING: Bits = Bits::ATTRS.with(Bits::FC);

    impl Nodes {
        /// A LOOKUP answered with everything granted at `stamp`, nothing ever lost.
        fn look_up(&self, nodeid: u64, stamp: u64) -> bool {
            self.learn(nodeid, &attr(nodeid), given(EVERYTHING, stamp), (Mono(5), Way::Found), || 0)
        }

        /// A GETATTR likewise.
        fn tell(&self, nodeid: u64, stamp: u64) -> bool {
            self.learn(nodeid, &attr(nodeid), given(EVERYTHING, stamp), (Mono(5), Way::Asked), || 0)
        }
    }

    #[test]
    fn a_node_lives_from_its_first_lookup_to_its_last_forget() {
        let nodes = nodes();
        assert_eq!(nodes.node(5), NodeRef::bare(Ino(5)));
        assert!(nodes.look_up(5, 1) && nodes.look_up(5, 1));
        assert!(!nodes.tell(6, 1), "the kernel has no such node");
        assert_eq!(nodes.node(5).hash, NameHash(99));
        assert_eq!(nodes.node(6), NodeRef::bare(Ino(6)));
        nodes.forget(5, 1);
        assert_eq!(nodes.lookups(5), 1);
        nodes.forget(5, 1);
        assert_eq!((nodes.lookups(5), nodes.node(5)), (0, NodeRef::bare(Ino(5))));
        nodes.forget(ROOT_ID, 1);
        assert_eq!((nodes.lookups(ROOT_ID), nodes.node(ROOT_ID).ino), (1, Ino(7)));
    }

    #[test]
    fn a_recall_voids_what_was_answered_before_it() {
        let nodes = nodes();
        assert_eq!(nodes.recall(5, Bits::FS, false, 3), None, "not known, and yet remembered");
        assert!(!nodes.look_up(5, 2) && nodes.look_up(5, 3));
        assert_eq!(
            nodes.recall(5, Bits::FS, false, 4),
            Some(Found { born: Mono(5), open: false, directory: false })
        );
        assert!(!nodes.tell(5, 3) && nodes.tell(5, 4));
        assert!(
            !nodes.learn(5, &attr(5), given(EVERYTHING, 4), (Mono(5), Way::Asked), || 6),
            "everything was lost at 6"
        );
        assert!(!nodes.learn(5, &attr(5), given(Bits::FC, 7), (Mono(5), Way::Asked), || 6), "not granted");
    }

    #[test]
    fn pages_are_kept_while_nothing_took_them_back() {
        let nodes = nodes();
        nodes.look_up(5, 1);
        let open = |bits, stamp, lost| nodes.opened(5, given(bits, stamp), || lost);
        assert_eq!(open(Bits::FC, 1, 0), (true, false), "nothing was cached yet");
        assert_eq!(open(Bits::FC, 1, 0), (true, true));
        assert_eq!(
            nodes.recall(5, Bits::FC, false, 2),
            Some(Found { born: Mono(5), open: true, directory: false })
        );
        assert_eq!(open(Bits::FC, 1, 0), (false, false), "taken back before it was handed out");
        assert_eq!(open(Bits::FC, 2, 0), (true, false), "others may have written");
        assert_eq!(open(Bits::FC, 2, 3), (false, false), "lost before it was handed out");
        assert_eq!(open(Bits::FC, 3, 3), (true, false));
        assert_eq!(open(Bits::ATTRS, 3, 3), (false, false));
        assert_eq!(open(Bits::FC, 3, 3), (true, false), "an open without leave left none to keep");
        assert_eq!(open(Bits::FC, 3, 3), (true, true));
        assert_eq!(open(Bits::FC, 5, 5), (true, false), "a loss ends it, too");
        assert_eq!(nodes.open(), [5]);
    }

    #[test]
    fn a_stale_node_is_looked_up_again() {
        let nodes = nodes();
        nodes.look_up(5, 1);
        nodes.recall(5, Bits::LS, true, 2);
        assert!(nodes.place(5).1);
        assert!(!nodes.tell(5, 2), "the kernel has it by a name that is gone");
        assert!(nodes.look_up(5, 2) && !nodes.place(5).1);
        nodes.recall(5, Bits::LS, true, 3);
        nodes.name_dropped(5, 2);
        assert!(nodes.place(5).1, "that was the first name");
        nodes.name_dropped(5, 3);
        assert!(!nodes.place(5).1);
        nodes.recall(5, Bits::LS, true, 4);
        nodes.learn(5, &attr(5), Given::default(), (Mono(5), Way::Linked), || 0);
        assert!(nodes.place(5).1, "the first name may be there still");
        nodes.opened(5, Given::default(), || 0);
        assert!(!nodes.place(5).1, "who has it open needs no name");
        nodes.closed(5);
        assert!(nodes.place(5).1);
        let dir = Attr { mode: FileKind::Directory.mode_bits(), ..attr(6) };
        nodes.learn(6, &dir, Given::default(), (Mono(5), Way::Found), || 0);
        assert!(nodes.remains(6).is_some_and(|left| left.nlink == 0 && left.ino == Ino(6)));
        nodes.recall(6, Bits::LS, true, 5);
        assert!(!nodes.place(6).1, "names in it are right whatever its own");
        assert!(nodes.remains(6).is_none(), "who meets it by that name looks again");
        nodes.listing(6, Mono(5), || 0);
        assert!(nodes.remains(6).is_some(), "who has it open goes on");
        nodes.closed(6);
        assert!(nodes.remains(6).is_none());
        nodes.name_dropped(6, 5);
        assert!(nodes.remains(6).is_some() && nodes.remains(5).is_none());
    }

    #[test]
    fn a_listing_is_kept_while_nobody_else_could_have_changed_the_directory() {
        let nodes = nodes();
        let dir = Attr { mode: libc::S_IFDIR, ..attr(5) };
        let learn = |stamp, at, until| {
            let given = Given { bits: Bits::ATTRS, stamp, until: Mono(until) };
            nodes.learn(5, &dir, given, (Mono(at), Way::Found), || 0)
        };
        let listing = |at, lost| nodes.listing(5, Mono(at), || lost);
        assert_eq!(listing(1, 0), (false, false), "unknown");
        assert!(learn(3, 10, 20));
        assert_eq!(listing(11, 0), (true, false), "nothing was kept yet");
        assert_eq!(listing(12, 0), (true, true));
        assert!(learn(4, 19, 30));
        assert_eq!(listing(29, 0), (true, true), "held without a gap");
        assert_eq!(listing(31, 0), (false, false), "it has run out");
        assert!(learn(5, 32, 40));
        assert_eq!(listing(33, 0), (true, false), "there was a gap");
        nodes.recall(5, Bits::FS, false, 6);
        assert_eq!(listing(34, 0), (false, false), "recalled");
        assert!(learn(6, 35, 50));
        assert_eq!((listing(36, 0), listing(37, 0)), ((true, false), (true, true)));
        assert_eq!(listing(38, 7), (false, false), "lost");
    }

    #[test]
    fn a_change_that_size_and_mtime_hide_is_seen() {
        let nodes = nodes();
        let shown = |change, size, mtime| Attr { change, size, mtime: Wall(mtime), ..attr(5) };
        assert!(!nodes.shows_a_hidden_change(5, &shown(1, 1, 1)), "the kernel does not have it");
        nodes.look_up(5, 1);
        assert!(!nodes.shows_a_hidden_change(5, &shown(1, 1, 1)), "the first it is shown");
        assert!(!nodes.shows_a_hidden_change(5, &shown(1, 1, 1)));
        assert!(!nodes.shows_a_hidden_change(5, &shown(2, 1, 2)), "the kernel drops them itself");
        assert!(!nodes.shows_a_hidden_change(5, &shown(3, 2, 2)));
        assert!(nodes.shows_a_hidden_change(5, &shown(4, 2, 2)));
        assert!(nodes.begin_drop(5) && !nodes.begin_drop(5), "one is enough while it waits");
        nodes.drop_begins(5);
        assert!(nodes.begin_drop(5) && !nodes.begin_drop(6));
    }

    #[test]
    fn what_nobody_asked_about_is_idle() {
        let nodes = nodes();
        (100..200).for_each(|nodeid| assert!(nodes.look_up(nodeid, 1)));
        let round = |most| (0..nodes.parts() as u64).flat_map(|part| nodes.idle(part, most)).count();
        assert_eq!((nodes.known(), round(100)), (100, 0), "each was looked up a moment ago");
        nodes.place(150);
        nodes.opened(151, Given::default(), || 0);
        assert_eq!(round(100), 98);
        assert!(round(1) <= nodes.parts(), "no more of a part than wanted");
        assert!(nodes.forget(150, 1).is_some_and(|gone| !gone.kept && !gone.pages));
        assert_eq!((nodes.known(), round(100)), (99, 98));
    }

    #[test]
    fn a_kept_node_is_released_with_its_last_lookup() {
        let nodes = nodes();
        assert!(!nodes.wants_keeping(5) && !nodes.keep(5), "the kernel does not have it");
        nodes.look_up(5, 1);
        nodes.look_up(5, 1);
        assert!(nodes.wants_keeping(5) && nodes.keep(5));
        assert!(!nodes.wants_keeping(5) && !nodes.keep(5), "once");
        assert_eq!(nodes.forget(5, 1), None);
        let gone = |gone: Gone| (gone.node.ino, gone.node.hash, gone.kept, gone.pages);
        assert_eq!(nodes.forget(5, 1).map(gone), Some((Ino(5), NameHash(99), true, false)));
        nodes.look_up(6, 1);
        nodes.opened(6, Given { bits: Bits::FC, stamp: 1, until: Mono(9) }, || 0);
        assert!(nodes.forget(6, 1).is_some_and(|gone| !gone.kept && gone.pages), "never kept");
    }

    #[test]
    fn once_dressed_never_bare() {
        let nodes = nodes();
        let is_bare = |now, lost| nodes.is_bare(5, Mono(now), || lost);
        nodes.look_up(5, 1);
        assert!(is_bare(1, 0) && !is_bare(SECOND, 0) && !is_bare(1, 2));
        nodes.recall(5, Bits::XS, false, 2);
        assert!(!is_bare(1, 0));
        nodes.tell(5, 2);
        assert!(is_bare(1, 0));
        nodes.set_dressed(5);
        nodes.tell(5, 2);
        assert!(!is_bare(1, 0));
    }
}
