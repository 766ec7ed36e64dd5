//! A ring without a thread or a kernel, for tests of who waits for answers to leave.
//! Absent: requests.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::queue::{EntryHandle, Queue};
use super::{Outgoing, Shape};

pub(crate) struct Ring(Arc<Queue>);

impl Ring {
    pub(crate) fn new() -> (Ring, Outgoing) {
        let queue = Queue::new(Shape { depth: 4, payload_bytes: 1 << 17 }).expect("a queue");
        let queue = Arc::new(queue);
        (Ring(Arc::clone(&queue)), Outgoing(vec![queue]))
    }

    /// An answer is given to it.
    pub(crate) fn answer(&self) {
        EntryHandle::new(Arc::clone(&self.0), 0, None).answer(0, &[]);
    }

    /// Returns when somebody waits for the answers.
    pub(crate) fn wait_awaited(&self, patience: Duration) {
        let until = Instant::now() + patience;
        while !self.0.progress.is_awaited() {
            assert!(Instant::now() < until, "nobody waits");
            thread::yield_now();
        }
    }

    /// The kernel gets all that was given.
    pub(crate) fn commit(&self) {
        let mut batch = Vec::new();
        self.0.collect(&mut batch);
        self.0.progress.taken(batch.len() as u64);
    }
}
