//! Passes over the whole table: counts, what is open, what nobody has asked about for a while.
//!
//! Absent: single nodes.

use super::Nodes;
use crate::abi::ROOT_ID;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use stdx::Mono;

/// How many nodes there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::adapter) struct Census {
    pub(in crate::adapter) known: u64,
    /// Of these the kernel may keep something at this moment.
    pub(in crate::adapter) granted: u64,
    /// Files whose pages it may keep.
    pub(in crate::adapter) cached: u64,
    /// Files with open handles.
    pub(in crate::adapter) open: u64,
}

impl Nodes {
    /// Counts the nodes, part by part.
    pub(in crate::adapter) fn census(&self, now: Mono, lost: u64) -> Census {
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

    /// How many the kernel knows, but for the root.
    pub(in crate::adapter) fn known(&self) -> usize {
        self.known.load(Ordering::Relaxed)
    }

    /// Parts that the hand of the clock goes over.
    pub(in crate::adapter) fn parts(&self) -> usize {
        self.shards.len()
    }

    /// The hand passes one part: up to so many nodes that nobody has open or has asked about since it passed last.
    pub(in crate::adapter) fn idle(&self, part: u64, most: usize) -> Vec<u64> {
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

    /// Files with open handles.
    pub(in crate::adapter) fn open(&self) -> Vec<u64> {
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
}
