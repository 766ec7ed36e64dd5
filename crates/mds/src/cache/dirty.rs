//! What the store has not seen: per directory a list in order of first change, directories in order
//! of first change. A node carries the number of the checkpoint it became dirty under, so a
//! checkpoint ends although changes go on.
//!
//! Absent: encoding (`checkpoint.rs`).

use super::node::{self, ROUND_SHIFT};
use super::slab::NONE;
use super::{Cache, dir};

impl Cache {
    /// Puts a node on its directory's dirty list; no effect if it is there.
    pub(crate) fn make_dirty(&mut self, slot: u32) {
        let node = self.nodes.get(slot);
        if node.has(node::DIRTY) {
            return;
        }
        let listed = !node.has(node::WRITING) && self.on_lru(slot);
        if listed {
            self.lru_remove(slot);
        }
        let round = u32::from(self.round) << ROUND_SHIFT;
        let dir_slot = self.nodes.get(slot).dir;
        let tail = self.dirs.get(dir_slot).dirty_tail;
        let node = self.nodes.get_mut(slot);
        node.flags = (node.flags & ((1 << ROUND_SHIFT) - 1)) | node::DIRTY | round;
        node.prev = tail;
        node.next = NONE;
        if tail == NONE {
            self.dirs.get_mut(dir_slot).dirty_head = slot;
        } else {
            self.nodes.get_mut(tail).next = slot;
        }
        let dir = self.dirs.get_mut(dir_slot);
        dir.dirty_tail = slot;
        dir.dirty += 1;
        self.dirty += 1;
        self.queue_dir(dir_slot);
    }

    /// A node is on the list of what may be forgotten unless it is dirty, being written, or was just made.
    fn on_lru(&self, slot: u32) -> bool {
        let node = self.nodes.get(slot);
        node.prev != NONE || node.next != NONE || self.lru_head == slot
    }

    pub(crate) fn queue_dir(&mut self, dir_slot: u32) {
        let round = self.round;
        let dir = self.dirs.get_mut(dir_slot);
        if !dir.has(dir::QUEUED) {
            dir.set(dir::QUEUED);
            dir.queued = round;
            self.dirty_dirs.push_back(dir_slot);
        }
    }

    /// Takes a node off its directory's dirty list; it is then on no list.
    pub(crate) fn take_dirty(&mut self, slot: u32) {
        let node = self.nodes.get_mut(slot);
        if !node.has(node::DIRTY) {
            return;
        }
        node.flags &= !node::DIRTY;
        let (prev, next, dir_slot) = (node.prev, node.next, node.dir);
        node.prev = NONE;
        node.next = NONE;
        if prev == NONE {
            self.dirs.get_mut(dir_slot).dirty_head = next;
        } else {
            self.nodes.get_mut(prev).next = next;
        }
        if next == NONE {
            self.dirs.get_mut(dir_slot).dirty_tail = prev;
        } else {
            self.nodes.get_mut(next).prev = prev;
        }
        self.dirs.get_mut(dir_slot).dirty -= 1;
        self.dirty -= 1;
    }

    /// Whether a dirty node became so before the present checkpoint.
    pub(crate) fn is_old(&self, slot: u32) -> bool {
        let node = self.nodes.get(slot);
        node.has(node::DIRTY) && (node.flags >> ROUND_SHIFT) as u8 != self.round
    }

    /// Everything that is dirty counts as having become so in the present round. Rounds are counted modulo 256, and checkpoints that fail
    /// count: what none of them has come to would be taken for new one day, and a position that is behind it for the checkpoint's.
    pub(crate) fn all_dirty_is_of_now(&mut self) {
        let round = self.round;
        for at in 0..self.dirty_dirs.len() {
            let dir = self.dirs.get_mut(self.dirty_dirs[at]);
            if !dir.has(dir::QUEUED) {
                continue;
            }
            (dir.queued, dir.round) = (round, round);
            let mut slot = dir.dirty_head;
            while slot != NONE {
                let node = self.nodes.get_mut(slot);
                node.flags = (node.flags & ((1 << ROUND_SHIFT) - 1)) | (u32::from(round) << ROUND_SHIFT);
                slot = node.next;
            }
        }
    }

    /// Makes a node that the store need not hear of clean.
    pub(super) fn make_clean(&mut self, slot: u32) {
        let node = self.nodes.get(slot);
        if node.has(node::DIRTY) {
            self.take_dirty(slot);
            self.lru_push(slot);
        } else if !node.has(node::WRITING) && !self.on_lru(slot) {
            self.lru_push(slot);
        }
    }

    /// The store has the state that was being written (or failed to take it).
    pub(crate) fn written(&mut self, slot: u32, stored: bool) {
        self.nodes.get_mut(slot).flags &= !node::WRITING;
        if self.nodes.get(slot).has(node::DIRTY) {
            return;
        }
        if !stored {
            self.make_dirty(slot);
            return;
        }
        self.lru_push(slot);
        let node = self.nodes.get_mut(slot);
        if node.positive() {
            return;
        }
        node.flags &= !node::STORED;
        // A name whose delete is stored is of use only where names are not all known.
        if self.dirs.get(node.dir).has(dir::COMPLETE | dir::REMOVED) {
            self.forget_one(slot);
        }
    }
}
