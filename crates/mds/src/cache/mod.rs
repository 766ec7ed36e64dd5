//! What the rank knows: names with their inodes, directories with their headers; which of it the
//! store has not seen; which of it may be forgotten.
//!
//! Absent: decisions. Operations read here, mutations (`apply.rs`) and loads (`load.rs`) write here, through `records.rs`.

mod attr;
pub(crate) mod dir;
pub(crate) mod dirty;
pub(crate) mod index;
pub(crate) mod lru;
pub(crate) mod node;
mod records;
pub(crate) mod slab;
pub(crate) mod table;
mod tally;
pub(crate) mod worth;

pub(crate) use attr::{attr_of, header_attr};
pub(crate) use records::Source;
pub(crate) use tally::Tally;

use dir::Dir;
use index::Index;
use node::Node;
use proto::inode::InodeExt;
use proto::{Ino, NameHash};
use slab::{NONE, Slab, Slot};
use std::collections::{BTreeSet, VecDeque};
use table::Spot;
use worth::Worth;

/// Table entry, index slot and slack per node, added to the node's own size.
const NODE_BYTES: u64 = 160 + 24;
const DIR_BYTES: u64 = 384;

struct ExtSlot {
    ext: Option<Box<InodeExt>>,
    link: u32,
}

impl Slot for ExtSlot {
    fn free_link(&mut self) -> &mut u32 {
        &mut self.link
    }
}

/// An inode that a transaction took from its node and has not put elsewhere yet: what belongs to it and is on no record.
struct Displaced {
    ino: Ino,
    flags: u32,
}

/// A name in the store for an inode that is cached under another one: damage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SecondName {
    pub dir: Ino,
    pub name: Box<[u8]>,
    pub ino: Ino,
}

/// A name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DentryKey<'a> {
    pub dir: Ino,
    pub hash: NameHash,
    pub name: &'a [u8],
}

/// The cache.
pub(crate) struct Cache {
    pub nodes: Slab<Node>,
    pub dirs: Slab<Dir>,
    exts: Slab<ExtSlot>,
    inos: Index,
    dir_inos: Index,
    lru_head: u32,
    lru_tail: u32,
    lru_len: u32,
    /// Bytes of long names and of exts.
    heap: u64,
    /// Dirty nodes.
    dirty: u64,
    pub dirty_dirs: VecDeque<u32>,
    /// Number of the last checkpoint, modulo 256.
    pub round: u8,
    pub checkpointing: bool,
    /// Names forgotten although a load that began earlier may bring an older state of them.
    pub forgotten: Vec<(Ino, NameHash)>,
    pub worth: Worth,
    /// Names loaded in this step: so many may have to go.
    pub brought: u32,
    /// Directories with a pin that came into the cache, or into a new record.
    pub pinned: Vec<Ino>,
    displaced: Vec<Displaced>,
    /// Found in the store in this step.
    pub second_names: Vec<SecondName>,
    /// The directory whose names are being counted.
    pub tally: Option<Box<Tally>>,
    /// Directories of which it is known how they are spread, and some of which it was.
    pub spreads: BTreeSet<Ino>,
    /// Directories that were merged behind the last checkpoint.
    pub merged: BTreeSet<Ino>,
}

impl Cache {
    /// `burst`: names that may be brought ahead at once.
    pub(crate) fn new(burst: u64) -> Self {
        Self {
            nodes: Slab::new(),
            dirs: Slab::new(),
            exts: Slab::new(),
            inos: Index::new(),
            dir_inos: Index::new(),
            lru_head: NONE,
            lru_tail: NONE,
            lru_len: 0,
            heap: 0,
            dirty: 0,
            dirty_dirs: VecDeque::new(),
            round: 0,
            checkpointing: false,
            forgotten: Vec::new(),
            worth: Worth::new(burst),
            brought: 0,
            pinned: Vec::new(),
            displaced: Vec::new(),
            second_names: Vec::new(),
            tally: None,
            spreads: BTreeSet::new(),
            merged: BTreeSet::new(),
        }
    }

    /// Bytes of memory, estimated.
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.nodes.len()) * NODE_BYTES + u64::from(self.dirs.len()) * DIR_BYTES + self.heap
    }

    /// Bytes of nodes the store has not seen, estimated.
    pub(crate) const fn dirty_bytes(&self) -> u64 {
        self.dirty * NODE_BYTES
    }

    pub(crate) const fn dirty(&self) -> u64 {
        self.dirty
    }

    #[inline]
    pub(crate) fn find_dir(&self, ino: Ino) -> Option<u32> {
        self.dir_inos.find(ino.0, |slot| self.dirs.get(slot).ino.0)
    }

    /// The slot of a directory's names, made if need be.
    pub(crate) fn dir_or_new(&mut self, ino: Ino) -> u32 {
        if let Some(slot) = self.find_dir(ino) {
            return slot;
        }
        let mut dir = Dir::new(ino);
        if let Some(node) = self.by_ino(ino) {
            dir.node = node;
        }
        dir.round = self.round;
        let node = dir.node;
        let slot = self.dirs.insert(dir);
        if node != NONE {
            self.nodes.get_mut(node).own = slot;
        }
        let dirs = &self.dirs;
        self.dir_inos.insert(ino.0, slot, |slot| dirs.get(slot).ino.0);
        slot
    }

    /// The cached state of a name, existing or not.
    #[inline]
    pub(crate) fn find(&mut self, dir: u32, hash: NameHash, name: &[u8]) -> Option<u32> {
        self.seek(dir, hash, name).0
    }

    /// The same; and where the name is in its directory's table, or belongs.
    #[inline]
    fn seek(&mut self, dir: u32, hash: NameHash, name: &[u8]) -> (Option<u32>, Spot) {
        let (found, spot) = self.dirs.get(dir).table.seek(hash, name, &self.nodes);
        if let Some(slot) = found {
            let node = self.nodes.get_mut(slot);
            if node.has(node::AHEAD) {
                node.flags &= !node::AHEAD;
                self.worth.asked_for();
            }
            node.flags |= node::USED;
        }
        (found, spot)
    }

    /// The node that holds an inode.
    #[inline]
    pub(crate) fn by_ino(&self, ino: Ino) -> Option<u32> {
        self.inos.find(ino.0, |slot| self.nodes.get(slot).core.ino.0)
    }

    /// How many inodes there are.
    pub(crate) const fn inodes(&self) -> u64 {
        self.inos.len()
    }

    #[inline]
    pub(crate) fn node(&self, slot: u32) -> &Node {
        self.nodes.get(slot)
    }

    #[inline]
    pub(crate) fn dir(&self, slot: u32) -> &Dir {
        self.dirs.get(slot)
    }

    pub(crate) fn ext(&self, node: u32) -> Option<&InodeExt> {
        let slot = self.nodes.get(node).ext;
        if slot == NONE { None } else { self.exts.get(slot).ext.as_deref() }
    }

    /// The directory number a node is in.
    pub(crate) fn parent_ino(&self, node: u32) -> Ino {
        self.dirs.get(self.nodes.get(node).dir).ino
    }

    /// Keeps a node until `unpin`.
    pub(crate) fn pin(&mut self, slot: u32) {
        let node = self.nodes.get_mut(slot);
        if node.flags & node::PINS != node::PINS {
            node.flags += node::PIN;
        }
    }

    /// Ends one pin. The node may have been deleted meanwhile; a slot used anew has no pins of its own,
    /// or loses one early, which costs a load at worst.
    pub(crate) fn unpin(&mut self, slot: u32) {
        let node = self.nodes.get_mut(slot);
        if node.has(node::PINS) {
            node.flags -= node::PIN;
        }
    }

    /// Sets or clears flags of the inode `ino`, if it is cached.
    pub(crate) fn flag(&mut self, ino: Ino, set: u32, clear: u32) {
        if let Some(slot) = self.by_ino(ino) {
            let node = self.nodes.get_mut(slot);
            node.flags = (node.flags & !clear) | set;
        }
    }
}
