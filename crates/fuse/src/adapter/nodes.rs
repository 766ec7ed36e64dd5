//! The nodes the kernel knows: how often it looked each up, where the rank finds it, what is open.
//!
//! A node is in the table from its first lookup until the kernel forgets the last; node ids are inode
//! numbers, so an unknown one (an NFS handle) still names its inode.
//! Absent on purpose: attributes; the kernel caches those.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use proto::{Attr, Ino, NameHash, NodeRef};

use crate::abi::ROOT_ID;

const SHARDS: usize = 64;

/// What is known of one node.
#[derive(Clone, Copy, Debug, Default)]
struct Node {
    lookups: u64,
    parent: Ino,
    hash: NameHash,
    /// Open handles, directories included.
    opens: u32,
    /// The era in which the kernel last had leave to cache data; its pages are good in that one only.
    cached_in: u64,
    /// An fcntl lock was asked for: closing any handle must drop its owner's locks.
    locked: bool,
    /// The era in which it was seen without any extended attribute; 0 = not.
    bare_in: u64,
    /// It was seen with an extended attribute, or one was set: never called bare again, because an older
    /// answer may arrive later.
    dressed: bool,
}

/// Node ids spread evenly already; `mix64` spreads consecutive numbers spreads consecutive ones.
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

type Shard = HashMap<u64, Node, Mix>;

/// The table, in shards so that requests on different nodes rarely meet.
pub(super) struct Nodes {
    shards: Vec<Mutex<Shard>>,
    root: NodeRef,
}

impl Nodes {
    pub(super) fn new(root: NodeRef) -> Nodes {
        let nodes = Nodes { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), root };
        // The kernel never looks the root up and never forgets it.
        let node = Node { lookups: 1, parent: root.parent, hash: root.hash, ..Node::default() };
        nodes.shard(ROOT_ID).insert(ROOT_ID, node);
        nodes
    }

    fn shard(&self, nodeid: u64) -> MutexGuard<'_, Shard> {
        let at = (stdx::hash::mix64(nodeid) >> 32) as usize % SHARDS;
        // What is guarded is whole after each statement, whoever panicked.
        self.shards[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, nodeid: u64, change: impl FnOnce(&mut Node) -> T) -> Option<T> {
        self.shard(nodeid).get_mut(&nodeid).map(change)
    }

    /// How to name the node to the rank.
    pub(super) fn node(&self, nodeid: u64) -> NodeRef {
        let ino = if nodeid == ROOT_ID { self.root.ino } else { Ino(nodeid) };
        match self.shard(nodeid).get(&nodeid) {
            Some(node) => NodeRef { ino, parent: node.parent, hash: node.hash },
            None => NodeRef::bare(ino),
        }
    }

    /// Takes in attributes that were asked for in `era`; `lookup`: the kernel will count the node.
    pub(super) fn learn(&self, nodeid: u64, attr: &Attr, era: u64, lookup: bool) {
        let mut shard = self.shard(nodeid);
        let node = match lookup {
            true => {
                let node = shard.entry(nodeid).or_default();
                node.lookups += 1;
                node
            }
            false => match shard.get_mut(&nodeid) {
                Some(node) => node,
                None => return,
            },
        };
        (node.parent, node.hash) = (attr.parent, attr.hash);
        node.dressed |= attr.has_xattrs;
        if !attr.has_xattrs {
            node.bare_in = era;
        }
    }

    pub(super) fn forget(&self, nodeid: u64, lookups: u64) {
        if nodeid == ROOT_ID {
            return;
        }
        let mut shard = self.shard(nodeid);
        if let Some(node) = shard.get_mut(&nodeid) {
            node.lookups = node.lookups.saturating_sub(lookups);
            if node.lookups == 0 {
                shard.remove(&nodeid);
            }
        }
    }

    /// Counts an open: whether pages may be cached in `era`, and whether those from before may be kept.
    ///
    /// `caching` is asked while the node is locked: the end of an era is announced first and looks for
    /// open nodes then, so it either finds this open or is seen by it.
    pub(super) fn opened(&self, nodeid: u64, era: u64, caching: impl FnOnce() -> bool) -> (bool, bool) {
        self.with(nodeid, |node| {
            node.opens += 1;
            let caching = caching();
            let keep = caching && node.cached_in == era;
            node.cached_in = if caching { era } else { 0 };
            (caching, keep)
        })
        .unwrap_or_default()
    }

    pub(super) fn closed(&self, nodeid: u64) {
        self.with(nodeid, |node| node.opens = node.opens.saturating_sub(1));
    }

    /// Nodes with open handles.
    pub(super) fn open(&self) -> Vec<u64> {
        let mut open = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            open.extend(shard.iter().filter(|(_, node)| node.opens > 0).map(|(nodeid, _)| *nodeid));
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

    /// Whether the node is known to have no extended attribute in `era`.
    pub(super) fn is_bare(&self, nodeid: u64, era: u64) -> bool {
        self.with(nodeid, |node| !node.dressed && node.bare_in == era).unwrap_or(false)
    }

    #[cfg(test)]
    pub(super) fn lookups(&self, nodeid: u64) -> u64 {
        self.with(nodeid, |node| node.lookups).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attr(ino: u64) -> Attr {
        Attr { ino: Ino(ino), parent: Ino(1), hash: NameHash(99), ..Attr::default() }
    }

    fn nodes() -> Nodes {
        Nodes::new(NodeRef::bare(Ino(7)))
    }

    #[test]
    fn a_node_lives_from_its_first_lookup_to_its_last_forget() {
        let nodes = nodes();
        assert_eq!(nodes.node(5), NodeRef::bare(Ino(5)));
        nodes.learn(5, &attr(5), 1, true);
        nodes.learn(5, &attr(5), 1, true);
        nodes.learn(6, &attr(6), 1, false);
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
    fn pages_are_kept_within_one_era_only() {
        let nodes = nodes();
        nodes.learn(5, &attr(5), 1, true);
        assert_eq!(nodes.opened(5, 1, || true), (true, false), "nothing was cached yet");
        assert_eq!(nodes.opened(5, 1, || true), (true, true));
        assert_eq!(nodes.opened(5, 2, || true), (true, false), "others may have written");
        assert_eq!(nodes.opened(5, 2, || false), (false, false));
        assert_eq!(nodes.opened(5, 2, || true), (true, false), "an uncached open left no leave to keep");
        assert_eq!(nodes.open(), [5]);
    }

    #[test]
    fn once_dressed_never_bare() {
        let nodes = nodes();
        nodes.learn(5, &attr(5), 1, true);
        assert!(nodes.is_bare(5, 1) && !nodes.is_bare(5, 2));
        nodes.set_dressed(5);
        nodes.learn(5, &attr(5), 1, false);
        assert!(!nodes.is_bare(5, 1));
    }
}
