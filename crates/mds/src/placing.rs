//! Which new directories are placed by slots: what was asked for in the directory that they are made in, what that took when it was
//! made, and what holds for the file system. docs/PROTOCOL.md, "Policies".
//!
//! Absent: the xattrs (`ops/policies.rs`); whose a slot is (`territory.rs`).

use crate::op::{OpId, Waits};
use crate::output::{MapWish, Output};
use crate::rank::Rank;
use crate::view::View;
use proto::cluster::{ClusterMap, Policy};
use proto::inode::{Placement, Policies, Rules};
use proto::{Errno, Ino};
use stdx::Outbox;
use stdx::hash::mix64;

/// Of an inode's number, for what it is to be drawn for: another number than its slot's.
const DRAWN: u64 = 0x7061_6e64_6f00_0001;

impl View {
    fn policies(&self, node: u32) -> Option<&Policies> {
        Some(&self.cache.ext(node)?.policies)
    }

    /// What counts for directories that are made in that one, and what they take.
    pub(crate) fn rules(&self, parent: u32) -> Rules {
        let rules = self.policies(parent).map(Policies::rules).unwrap_or_default();
        let asked = rules.placement.is_some() || rules.random.is_some();
        // A pin that the inode does not know of.
        let pinned = || {
            let entry = self.territory.entry(self.cache.node(parent).ino());
            entry.is_some_and(|entry| entry.policy == Policy::Pin)
        };
        let placement = if !asked && pinned() { Some(Placement::Subtree) } else { rules.placement };
        Rules { placement, ..rules }
    }

    fn is_distributed(&self, parent: u32) -> bool {
        self.policies(parent).is_some_and(|policies| policies.distributed)
    }

    /// Whether slots are spread, so that a directory can be placed by them.
    pub(crate) fn has_slots(&self) -> bool {
        self.territory.map().is_some_and(|map| map.slots_used)
    }

    /// Whether a directory that is made in that one may be placed by slots.
    pub(crate) fn may_place(&self, parent: u32) -> bool {
        let Some(map) = self.territory.map().filter(|map| map.slots_used) else { return false };
        let rules = self.rules(parent);
        self.is_distributed(parent) || rules.places() || (rules.placement.is_none() && map.hash_placement)
    }

    /// Whether the directory of that number is, if it is made there.
    pub(crate) fn places(&self, parent: u32, ino: Ino) -> bool {
        let Some(map) = self.territory.map().filter(|map| map.slots_used) else { return false };
        if self.is_distributed(parent) {
            return true;
        }
        let rules = self.rules(parent);
        match (rules.placement, rules.random) {
            (Some(Placement::Hash), _) => true,
            (_, Some(chance)) => chance.takes(mix64(ino.0 ^ DRAWN)),
            (Some(Placement::Subtree), None) => false,
            (None, None) => map.hash_placement,
        }
    }
}

impl Rank {
    /// Operations wait until the map says that slots are used.
    pub(crate) fn want_slots(&mut self, op: OpId) {
        self.slots_wanted.0.push(op);
    }

    /// The coordinator is asked for it once for all who wait.
    pub(crate) fn ask_for_slots(&mut self, out: &mut Outbox<Output>) {
        let (waiting, asked) = &mut self.slots_wanted;
        if !waiting.is_empty() && !std::mem::replace(asked, true) {
            out.push(Output::Wish(MapWish::UseSlots));
        }
    }

    pub(crate) fn slots_by_map(&mut self, map: &ClusterMap) {
        // A coordinator that changed meanwhile may not have heard of it.
        self.slots_wanted.1 = false;
        if map.slots_used {
            self.end_slots_wait(None);
        }
    }

    pub(crate) fn end_slots_wait(&mut self, failed: Option<Errno>) {
        self.slots_wanted.1 = false;
        for id in std::mem::take(&mut self.slots_wanted.0) {
            if let Some(op) = self.parked.get_mut(&id) {
                (op.failed, op.waits) = (failed, Waits::Turn);
                self.runnable.push_back(id);
            }
        }
    }
}
