//! Records into the cache: those that a transaction states, and those that the store brings.
//!
//! Absent: which of them the store must hear of (`dirty.rs`); when anything is forgotten (`lru.rs`).

use super::node::{self, Node};
use super::slab::NONE;
use super::table::Spot;
use super::{Cache, Displaced, ExtSlot, SecondName};
use proto::dentry::DentryValue;
use proto::inode::{InodeCore, InodeExt};
use proto::name::NameBytes;
use proto::{FileKind, Ino, NameHash};

/// Where a record that enters the cache comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A transaction of this incarnation.
    Live,
    /// The journal's tail: the store may hold any state of the name.
    Replay,
}

impl Cache {
    /// Makes a node for a name that has none: known absent, on no list.
    fn add(&mut self, dir: u32, hash: NameHash, name: &[u8], spot: Spot) -> u32 {
        let name = NameBytes::new(name);
        self.heap += name.heap();
        let slot = self.nodes.insert(Node { hash, name, dir, ..Node::empty() });
        self.dirs.get_mut(dir).table.insert(slot, spot, &self.nodes);
        slot
    }

    pub(super) fn set_ext(&mut self, slot: u32, ext: Option<Box<InodeExt>>) {
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
                if ext.policies.pin.is_some() {
                    self.pinned.push(self.nodes.get(slot).core.ino);
                }
                self.heap += ext_bytes(Some(&ext));
                self.exts.insert(ExtSlot { ext: Some(ext), link: NONE })
            }
        };
        self.nodes.get_mut(slot).ext = new;
    }

    /// Takes the inode out of a node; what is on no record waits in `displaced` for its new place.
    fn displace(&mut self, slot: u32) {
        self.tally(slot, false);
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
            value @ (DentryValue::Primary(_) | DentryValue::Remote { .. }) => value,
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
        self.tally(slot, true);
        self.changed(slot, source);
    }

    /// A transaction says that the name is gone.
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
            self.forget_one(slot);
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

    /// A record read from the store; what is cached already is newer. `flags`: of the new node. An inode that has another name already
    /// is not served under this one, nor is the name said to be absent: whoever makes it would lose what is behind it.
    pub(crate) fn load(
        &mut self,
        dir: u32,
        hash: NameHash,
        name: &[u8],
        value: Option<DentryValue>,
        flags: u32,
    ) {
        let (None, spot) = self.dirs.get(dir).table.seek(hash, name, &self.nodes) else { return };
        let value = match value {
            Some(DentryValue::Primary(record)) if self.by_ino(record.core.ino).is_some() => {
                let ino = record.core.ino;
                self.second_names.push(SecondName { dir: self.dirs.get(dir).ino, name: name.into(), ino });
                if !stdx::mutant!("mds_second_name_is_absent") {
                    // What is not cached is not absent.
                    return self.dirs.get_mut(dir).set(super::dir::LOAD_BROKEN);
                }
                None
            }
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
}

fn ext_bytes(ext: Option<&InodeExt>) -> u64 {
    ext.map_or(0, |ext| {
        let xattrs: usize = ext.xattrs.iter().map(|(n, v)| n.len() + v.len() + 64).sum();
        let unknown: usize = ext.unknown.iter().map(|(_, b)| b.len() + 40).sum();
        (136 + xattrs + unknown + ext.symlink.as_ref().map_or(0, |s| s.len() + 16) + ext.links.len() * 16)
            as u64
    })
}
