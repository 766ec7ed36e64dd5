//! `client_cache_size`: how many inodes the kernel of this mount knows, and with it the table of nodes, is bounded.
//!
//! Beyond the limit the hand of a clock goes over the nodes, and the kernel is asked to drop the names of those that nobody has
//! open or has asked about since the hand passed last. It drops what is not in use, and says so by FORGET.
//! Absent: waiting for that. Dropping an inode may wait for its pages, so it has a thread of its own, and no request
//! waits for the thread. Kernels before Linux 6.18 have no such message: there the option has no effect.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use stdx::Mono;
use stdx::time::MS;

use super::Shared;
use crate::notify::NotifyError;

/// Nodes in one message.
const BATCH_MAX: usize = 512;

/// Until the kernel has answered by FORGET it is not asked again.
const PAUSE_NS: u64 = 100 * MS;

/// When the nodes may be looked at next, where the hand stands, and whether the kernel does not know the message.
#[derive(Default)]
pub(super) struct Pruning {
    next: AtomicU64,
    hand: AtomicU64,
    unknown: AtomicBool,
}

impl Shared {
    /// The kernel learns of a node. Has the thread look at them if there are too many.
    pub(super) fn one_node_more(&self, now: Mono) {
        let most = self.behaviour.nodes_max;
        if most == 0 || self.nodes.known() <= most || self.pruning.unknown.load(Ordering::Relaxed) {
            return;
        }
        let next = self.pruning.next.load(Ordering::Relaxed);
        let later = now.after(PAUSE_NS).0;
        let first =
            || self.pruning.next.compare_exchange(next, later, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if next <= now.0 && first() {
            self.droppers.prune();
        }
    }

    /// On the prune thread: makes room for an eighth of what there may be.
    pub(super) fn prune(&self) {
        let Some(notifier) = self.notifier.get() else { return };
        let most = self.behaviour.nodes_max;
        let mut excess = self.nodes.known().saturating_sub(most - most / 8);
        // Twice round: those that were asked about a moment ago are found idle the second time.
        for _ in 0..2 * self.nodes.parts() {
            if excess == 0 {
                return;
            }
            let part = self.pruning.hand.fetch_add(1, Ordering::Relaxed);
            let idle = self.nodes.idle(part, excess);
            for batch in idle.chunks(BATCH_MAX) {
                match notifier.prune(batch) {
                    Ok(_) | Err(NotifyError::Busy) => {}
                    Err(NotifyError::Unmounted) => return,
                    // What a kernel says to a code it does not know.
                    Err(NotifyError::System(error)) => {
                        let unknown = error.raw_os_error() == Some(libc::EINVAL);
                        return self.pruning.unknown.store(unknown, Ordering::Relaxed);
                    }
                }
            }
            excess -= idle.len().min(excess);
        }
    }
}
