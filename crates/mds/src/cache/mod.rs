//! What the rank knows: names with their inodes, directories with their headers; which of it the
//! store has not seen; which of it may be forgotten.
//!
//! Absent: decisions. Operations read here, mutations (`apply.rs`) and loads (`load.rs`) write here.

pub(crate) mod dir;
pub(crate) mod dirty;
pub(crate) mod index;
pub(crate) mod lru;
pub(crate) mod node;
pub(crate) mod slab;
pub(crate) mod table;
pub(crate) mod worth;

use dir::Dir;
use index::Index;
use node::Node;
use proto::dentry::DentryValue;
use proto::inode::{InodeCore, InodeExt};
use proto::name::NameBytes;
use proto::{Attr, FileKind, Ino, NameHash};
use slab::{NONE, Slab, Slot};
use std::collections::VecDeque;
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

/// Where a record that enters the cache comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// A transaction of this incarnation.
    Live,
    /// The journal's tail: the store may hold any state of the name.
    Replay,
}

/// An inode that a transaction took from its node and has not put elsewhere yet: what belongs to it and is on no record.
struct Displaced {
    ino: Ino,
    flags: u32,
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
    displaced: Vec<Displaced>,
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
            displaced: Vec::new(),
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

    // ---- finding

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

    /// What a client sees of a primary node. `None` for a directory whose header is not known.
    pub(crate) fn attr(&self, slot: u32) -> Option<Attr> {
        let node = self.nodes.get(slot);
        let ext = self.ext(slot);
        let mut attr = attr_of(&node.core, ext, self.dirs.get(node.dir).ino, node.hash);
        if node.is_dir() {
            let dir = self.dirs.get(if node.own == NONE { return None } else { node.own });
            if !dir.has(dir::HEADER) {
                return None;
            }
            dir_attr(&mut attr, dir);
        }
        Some(attr)
    }

    // ---- records in

    /// Makes a node for a name that has none: known absent, on no list.
    fn add(&mut self, dir: u32, hash: NameHash, name: &[u8], spot: Spot) -> u32 {
        let name = NameBytes::new(name);
        self.heap += name.heap();
        let slot = self.nodes.insert(Node { hash, name, dir, ..Node::empty() });
        self.dirs.get_mut(dir).table.insert(slot, spot, &self.nodes);
        slot
    }

    fn set_ext(&mut self, slot: u32, ext: Option<Box<InodeExt>>) {
        let old = self.nodes.get(slot).ext;
        if old == NONE && ext.is_none() {
            return;
        }
        if old != NONE {
            self.heap -= ext_bytes(self.exts.get(old).ext.as_deref());
            self.exts.remove(old, ExtSlot { ext: None, link: NONE });
        }
        let new = match ext {
            None => NONE,
            Some(ext) => {
                self.heap += ext_bytes(Some(&ext));
                self.exts.insert(ExtSlot { ext: Some(ext), link: NONE })
            }
        };
        self.nodes.get_mut(slot).ext = new;
    }

    /// Takes the inode out of a node; what is on no record waits in `displaced` for its new place.
    fn displace(&mut self, slot: u32) {
        let node = self.nodes.get(slot);
        if node.primary() {
            let (ino, own, flags) = (node.core.ino, node.own, node.flags & node::INODE_FLAGS);
            self.inos.remove(ino.0, slot);
            if own != NONE {
                self.dirs.get_mut(own).node = NONE;
            }
            self.displaced.push(Displaced { ino, flags });
        }
        self.set_ext(slot, None);
        let node = self.nodes.get_mut(slot);
        node.own = NONE;
        node.core = InodeCore::default();
        node.flags &= !(node::PRIMARY | node::REMOTE | node::INODE_FLAGS);
    }

    /// Fills a node without an inode.
    pub(crate) fn fill(&mut self, slot: u32, value: DentryValue) {
        match value {
            DentryValue::Remote { ino, kind } => {
                let node = self.nodes.get_mut(slot);
                node.core.ino = ino;
                node.core.mode = kind.mode_bits();
                node.flags |= node::REMOTE;
            }
            DentryValue::Primary(record) => {
                let ino = record.core.ino;
                let own = if record.core.mode & 0o170_000 == FileKind::Directory.mode_bits() {
                    self.find_dir(ino).unwrap_or(NONE)
                } else {
                    NONE
                };
                let node = self.nodes.get_mut(slot);
                node.core = record.core;
                node.own = own;
                node.flags |= node::PRIMARY;
                if let Some(at) = self.displaced.iter().position(|inode| inode.ino == ino) {
                    node.flags |= self.displaced.swap_remove(at).flags;
                }
                if own != NONE {
                    self.dirs.get_mut(own).node = slot;
                }
                let nodes = &self.nodes;
                self.inos.insert(ino.0, slot, |slot| nodes.get(slot).core.ino.0);
                self.set_ext(slot, record.ext);
            }
        }
    }

    /// A transaction says that the name leads to `value`.
    pub(crate) fn put(&mut self, dir: u32, hash: NameHash, name: &[u8], value: DentryValue, source: Source) {
        let (slot, is_new) = match self.seek(dir, hash, name) {
            (Some(slot), _) => (slot, false),
            (None, spot) => (self.add(dir, hash, name, spot), true),
        };
        let value = match value {
            DentryValue::Primary(record)
                if self.nodes.get(slot).primary() && self.nodes.get(slot).ino() == record.core.ino =>
            {
                let node = self.nodes.get_mut(slot);
                if source == Source::Live {
                    node.flags |= node::BUMPED;
                    if record.core.truncate_seq > node.core.truncate_seq {
                        node.flags |= node::END_CLEAN;
                    }
                }
                node.core = record.core;
                self.set_ext(slot, record.ext);
                self.changed(slot, source);
                return;
            }
            other => other,
        };
        if !is_new {
            self.displace(slot);
        }
        let mut flags = 0;
        if let DentryValue::Primary(record) = &value {
            let ino = record.core.ino;
            if let Some(old) = self.by_ino(ino) {
                self.displace(old);
                self.gone(old, source);
            }
            if source == Source::Live {
                let new = !self.displaced.iter().any(|inode| inode.ino == ino);
                flags = if new { node::BUMPED | node::END_CLEAN } else { node::BUMPED };
            }
        }
        self.fill(slot, value);
        self.nodes.get_mut(slot).flags |= flags;
        self.changed(slot, source);
    }

    /// A transaction says that the name is gone. Returns the number of the inode that was there.
    pub(crate) fn delete(&mut self, dir: u32, hash: NameHash, name: &[u8], source: Source) {
        let slot = match self.seek(dir, hash, name) {
            (Some(slot), _) => slot,
            (None, spot) => self.add(dir, hash, name, spot),
        };
        self.displace(slot);
        self.gone(slot, source);
    }

    /// A node lost its inode: the store must hear of it if it may know the name.
    fn gone(&mut self, slot: u32, source: Source) {
        let node = self.nodes.get(slot);
        if source == Source::Replay || node.has(node::STORED | node::WRITING) {
            self.changed(slot, source);
            return;
        }
        let dir = node.dir;
        self.nodes.get_mut(slot).flags |= node::CHANGED;
        self.make_clean(slot);
        if self.dirs.get(dir).loads == 0 {
            self.forget(slot);
        }
    }

    fn changed(&mut self, slot: u32, source: Source) {
        let node = self.nodes.get_mut(slot);
        node.flags |= node::CHANGED | node::USED;
        if source == Source::Replay {
            node.flags |= node::STORED;
        }
        self.make_dirty(slot);
    }

    /// The end of a transaction: inodes that found no new place are gone.
    pub(crate) fn end_transaction(&mut self, mut gone: impl FnMut(Ino)) {
        self.displaced.drain(..).for_each(|inode| gone(inode.ino));
    }

    /// A record read from the store; what is cached already is newer. `flags`: of the new node.
    pub(crate) fn load(
        &mut self,
        dir: u32,
        hash: NameHash,
        name: &[u8],
        value: Option<DentryValue>,
        flags: u32,
    ) {
        let (None, spot) = self.dirs.get(dir).table.seek(hash, name, &self.nodes) else { return };
        // Two names with one inode: damage. The one that is known stays; this one is not served.
        let value = match value {
            Some(DentryValue::Primary(record)) if self.by_ino(record.core.ino).is_some() => None,
            other => other,
        };
        let slot = self.add(dir, hash, name, spot);
        self.brought = self.brought.saturating_add(1);
        self.nodes.get_mut(slot).flags |= flags;
        if let Some(value) = value {
            self.nodes.get_mut(slot).flags |= node::STORED;
            self.fill(slot, value);
        }
        self.lru_push(slot);
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

fn ext_bytes(ext: Option<&InodeExt>) -> u64 {
    ext.map_or(0, |ext| {
        let xattrs: usize = ext.xattrs.iter().map(|(n, v)| n.len() + v.len() + 64).sum();
        let unknown: usize = ext.unknown.iter().map(|(_, b)| b.len() + 40).sum();
        (136 + xattrs + unknown + ext.symlink.as_ref().map_or(0, |s| s.len() + 16) + ext.links.len() * 16)
            as u64
    })
}

/// The attributes of an inode that is no directory.
pub(crate) fn attr_of(core: &InodeCore, ext: Option<&InodeExt>, parent: Ino, hash: NameHash) -> Attr {
    let symlink = ext.and_then(|e| e.symlink.as_ref()).map_or(0, |s| s.len() as u64);
    Attr {
        ino: core.ino,
        generation: core.generation,
        mode: core.mode,
        nlink: core.nlink,
        uid: core.uid,
        gid: core.gid,
        rdev: ext.map_or(0, |e| e.rdev),
        size: if symlink > 0 { symlink } else { core.size },
        blocks: core.size.div_ceil(512),
        atime: core.atime,
        mtime: core.mtime,
        ctime: core.ctime,
        btime: core.btime,
        change: core.change,
        parent,
        hash,
        has_xattrs: ext.is_some_and(|e| !e.xattrs.is_empty()),
    }
}

/// What a directory's header adds.
pub(crate) fn dir_attr(attr: &mut Attr, dir: &Dir) {
    let header = &dir.header;
    attr.size = header.entries;
    attr.blocks = 0;
    attr.nlink = if attr.nlink == 0 { 0 } else { (header.subdirs + 2).min(u64::from(u32::MAX)) as u32 };
    attr.mtime = attr.mtime.max(header.mtime);
    attr.ctime = attr.ctime.max(header.mtime);
    attr.change = attr.change.wrapping_add(header.change);
}
