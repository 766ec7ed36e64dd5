//! Forgetting: clean nodes on one list with a second chance.
//!
//! Absent: dirty nodes (pinned until the store has them), busy inodes, directories with cached names.

use super::node::{self, Node};
use super::slab::NONE;
use super::{Cache, dir};
use proto::header::Spread;
use proto::{Ino, NameHash};

/// What became of a directory's names.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Dropped {
    pub gone: u32,
    /// The store has to hear of them.
    pub kept: u32,
    /// Not all were looked at.
    pub more: bool,
}

impl Cache {
    pub(super) fn lru_push(&mut self, slot: u32) {
        let head = self.lru_head;
        let node = self.nodes.get_mut(slot);
        node.prev = NONE;
        node.next = head;
        if head == NONE {
            self.lru_tail = slot;
        } else {
            self.nodes.get_mut(head).prev = slot;
        }
        self.lru_head = slot;
        self.lru_len += 1;
    }

    pub(super) fn lru_remove(&mut self, slot: u32) {
        let (prev, next) = (self.nodes.get(slot).prev, self.nodes.get(slot).next);
        if prev == NONE {
            self.lru_head = next
        } else {
            self.nodes.get_mut(prev).next = next
        }
        if next == NONE {
            self.lru_tail = prev
        } else {
            self.nodes.get_mut(next).prev = prev
        }
        self.lru_len -= 1;
        let node = self.nodes.get_mut(slot);
        node.prev = NONE;
        node.next = NONE;
    }

    /// Nodes that could be forgotten.
    pub(crate) const fn clean(&self) -> u32 {
        self.lru_len
    }

    fn may_go(&self, slot: u32) -> bool {
        let node = self.nodes.get(slot);
        // Until a checkpoint's SyncAll returned, "written" is the only trace of unsynced data.
        if node.has(node::BUSY | node::PINS) || (node.has(node::WRITTEN) && self.checkpointing) {
            return false;
        }
        if node.own != NONE && self.is_needed(node.own) {
            return false;
        }
        !self.dirs.get(node.dir).has(dir::PINNED)
    }

    /// Whether something depends on a directory being cached, or on one of its parts: they say by it where they are.
    fn is_needed(&self, slot: u32) -> bool {
        let dir = self.dirs.get(slot);
        let spread = dir.header.spread().filter(|_| !stdx::mutant!("mds_units_alone"));
        let mut units =
            spread.into_iter().flat_map(Spread::all).filter_map(|(number, _)| self.find_dir(number));
        dir.in_use() || units.any(|unit| self.dirs.get(unit).in_use())
    }

    /// Looks at up to `budget` nodes from the cold end and forgets those that may go, while more than
    /// `target` bytes are in use.
    pub(crate) fn forget(&mut self, budget: u32, target: u64) -> u32 {
        let mut forgotten = 0;
        for _ in 0..budget.min(self.lru_len) {
            if self.bytes() <= target || self.lru_tail == NONE {
                break;
            }
            let slot = self.lru_tail;
            let used = self.nodes.get(slot).has(node::USED) && target > 0;
            if used || !self.may_go(slot) {
                self.nodes.get_mut(slot).flags &= !node::USED;
                self.lru_remove(slot);
                self.lru_push(slot);
                continue;
            }
            // What an operator drops was not in anybody's way.
            if target > 0 && self.nodes.get(slot).has(node::AHEAD) {
                self.worth.in_vain();
            }
            self.forget_one(slot);
            forgotten += 1;
        }
        forgotten
    }

    /// Drops a clean node (on the list) with all that hangs on it.
    pub(super) fn forget_one(&mut self, slot: u32) {
        self.lru_remove(slot);
        let node = self.nodes.get(slot);
        let (dir_slot, hash, own, positive) = (node.dir, node.hash, node.own, node.positive());
        let changed = node.has(node::CHANGED);
        if node.primary() {
            let ino = node.core.ino;
            self.inos.remove(ino.0, slot);
        }
        if own != NONE {
            self.dirs.get_mut(own).node = NONE;
            self.drop_dir_if_idle(own);
        }
        self.set_ext(slot, None);
        let dir = self.dirs.get_mut(dir_slot);
        dir.table.remove(slot, &self.nodes);
        if dir.has(dir::FOREIGN) && dir.table.len() == 0 {
            // Whose it is has to be found out anew.
            dir.clear(dir::FOREIGN);
            dir.seen = 0;
        }
        if positive {
            dir.clear(dir::COMPLETE);
            dir.set(dir::LOAD_BROKEN);
        }
        if changed && dir.loads > 0 {
            self.forgotten.push((dir.ino, hash));
        }
        let gone = self.nodes.remove(slot, Node::empty());
        self.heap -= gone.name.heap();
        self.drop_dir_if_idle(dir_slot);
    }

    /// Forgets what may go of a directory's names, from that hash on; `most` are looked at. Where it goes on.
    pub(crate) fn thin(&mut self, dir: u32, from: NameHash, most: u32) -> Option<NameHash> {
        let (mut nodes, mut next) = (Vec::new(), None);
        self.dirs.get(dir).table.walk(from, &self.nodes, |at| {
            let hash = self.nodes.get(at).hash;
            if nodes.len() >= most as usize && hash > from {
                next = Some(hash);
                return false;
            }
            nodes.push(at);
            true
        });
        for at in nodes {
            if !self.nodes.get(at).has(node::DIRTY | node::WRITING) && self.may_go(at) {
                self.forget_one(at);
            }
        }
        next
    }

    /// Drops a node that the store need not hear of, whoever uses it; whether it is gone.
    pub(crate) fn drop_clean(&mut self, slot: u32) -> bool {
        let clean = !self.nodes.get(slot).has(node::DIRTY | node::WRITING);
        if clean {
            self.forget_one(slot);
        }
        clean
    }

    /// Drops what is known of a directory's content, whoever uses it, but for what the store has to hear of; `most` names.
    pub(crate) fn drop_content(&mut self, ino: Ino, most: u32) -> Dropped {
        let Some(slot) = self.find_dir(ino) else { return Dropped::default() };
        let (mut nodes, mut more) = (Vec::new(), false);
        self.dirs.get(slot).table.walk(NameHash(0), &self.nodes, |at| {
            more = nodes.len() >= most as usize;
            if !more {
                nodes.push(at);
            }
            !more
        });
        // Kept until the last is gone.
        self.dirs.get_mut(slot).loads += 1;
        let looked = nodes.len() as u32;
        let kept = nodes.into_iter().filter(|node| !self.drop_clean(*node)).count() as u32;
        let dir = self.dirs.get_mut(slot);
        dir.loads -= 1;
        dir.set(dir::LOAD_BROKEN);
        dir.clear(dir::HEADER | dir::COMPLETE | dir::JUMPED | dir::STORED);
        let dropped = Dropped { gone: looked - kept, kept, more };
        // Whose it is the rest still has to say.
        if !more {
            let above = std::mem::replace(&mut dir.node, NONE);
            if above != NONE {
                self.nodes.get_mut(above).own = NONE;
            }
            self.drop_dir_if_idle(slot);
            // It stays for the units that are still here.
            if above != NONE && self.find_dir(ino) == Some(slot) {
                self.dirs.get_mut(slot).node = above;
                self.nodes.get_mut(above).own = slot;
            }
        }
        dropped
    }

    /// Drops what the journal's tail said of a directory's content.
    pub(crate) fn undo_content(&mut self, ino: Ino) {
        let Some(slot) = self.find_dir(ino) else { return };
        let mut nodes = Vec::new();
        self.dirs.get(slot).table.walk(NameHash(0), &self.nodes, |at| {
            nodes.push(at);
            true
        });
        nodes.into_iter().for_each(|node| self.make_clean(node));
        let dir = self.dirs.get_mut(slot);
        dir.saved = None;
        dir.clear(dir::QUEUED | dir::HEADER_DIRTY | dir::REMOVED);
        self.drop_content(ino, u32::MAX);
    }

    /// Forgets a directory that nothing refers to: no inode cached, no names, nothing dirty. What is known of how one is spread is
    /// forgotten with the last of it: who knew of a unit alone would look for its names in the directory.
    pub(crate) fn drop_dir_if_idle(&mut self, slot: u32) {
        if !self.is_idle(slot) {
            return;
        }
        let whole = self.dirs.get(slot).header.unit().and_then(|unit| self.find_dir(unit.dir));
        let top = whole.filter(|whole| self.dirs.get(*whole).header.spread().is_some()).unwrap_or(slot);
        if !self.is_idle(top) {
            return;
        }
        let spread = self.dirs.get(top).header.spread();
        let units = spread.into_iter().flat_map(Spread::all).filter_map(|(number, _)| self.find_dir(number));
        let all: Vec<u32> = units.chain([top]).collect();
        if all.iter().all(|slot| self.is_idle(*slot)) {
            for slot in all {
                self.dir_inos.remove(self.dirs.get(slot).ino.0, slot);
                self.dirs.remove(slot, dir::Dir::new(Ino::NONE));
            }
        }
    }

    fn is_idle(&self, slot: u32) -> bool {
        let dir = self.dirs.get(slot);
        dir.ino != Ino::NONE && dir.node == NONE && !dir.in_use() && dir.dirty == 0
    }
}
