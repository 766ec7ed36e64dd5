//! Who comes to a node by a name that may be gone waits until the kernel has dropped that name, and is told to look again (ESTALE).
//!
//! What broke: who was told so at once looked again, came by the new name, and took the node's mark away; the old name, still to be dropped
//! by a thread that had no CPU, led to it again. With the mark left until the name is dropped he would be told so twice, and the kernel
//! looks again once.
//!
//! Nobody waits here who has locked the directory of the name, or the drop would wait for him: LINK is answered at once (`names.rs`), a
//! LOOKUP is about the directory. A drop may wait for a request in that directory that its rank answers late; for so long nobody else
//! waits (`PATIENCE`).
//! Absent: the mark (`nodes.rs`), and directories, which are told to anyone.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::Shared;
use crate::reply::KernelReply;

/// So long a name that is to be dropped is waited for.
const PATIENCE: Duration = Duration::from_secs(1);

/// Those who wait, by their nodes.
#[derive(Default)]
pub(super) struct Waiters {
    of: Mutex<HashMap<u64, Vec<(Instant, KernelReply)>>>,
}

impl Waiters {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Vec<(Instant, KernelReply)>>> {
        self.of.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// Answers when the node is not stale any more.
    pub(super) fn look_again_later(&self, nodeid: u64, reply: KernelReply) {
        let mut waiters = self.stale.lock();
        let is_first = waiters.is_empty();
        waiters.entry(nodeid).or_default().push((Instant::now(), reply));
        drop(waiters);
        if is_first {
            self.droppers.watch_stale();
        }
        // It may have been dropped since the node was looked at: nobody else would tell.
        if !self.nodes.place(nodeid).1 {
            self.look_again(nodeid);
        }
    }

    /// The node is not stale any more.
    pub(super) fn look_again(&self, nodeid: u64) {
        let waiters = self.stale.lock().remove(&nodeid).unwrap_or_default();
        waiters.into_iter().for_each(|(_, reply)| reply.error(libc::ESTALE));
    }

    #[cfg(test)]
    pub(super) fn is_waited_for(&self, nodeid: u64) -> bool {
        self.stale.lock().contains_key(&nodeid)
    }

    /// On a thread of its own, from when somebody waits until nobody does.
    pub(super) fn end_waits_that_are_long(&self) {
        while !self.stale.lock().is_empty() {
            thread::sleep(PATIENCE);
            let is_late = |(since, _): &(Instant, _)| since.elapsed() >= PATIENCE;
            let late: Vec<u64> = self
                .stale
                .lock()
                .iter()
                .filter(|(_, list)| list.iter().any(is_late))
                .map(|(id, _)| *id)
                .collect();
            for nodeid in late {
                self.nodes.believe(nodeid);
                self.look_again(nodeid);
            }
        }
    }
}
