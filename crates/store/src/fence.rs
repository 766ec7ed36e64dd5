//! Fencing: what ends the right of one life of a rank to change the stores, before another life may begin.
//!
//! Each life has a `Fence`. Whoever changes something in its name enters it first and leaves it when the change is made. `revoke`
//! refuses all who come later and returns when those who are inside have left: then nothing of that life changes a store any more,
//! however late its threads run.
//!
//! Absent: the decision to end a life (the coordinator's); what a store does (`Fenced` only wraps it).

use crate::meta::MetaStore;
use proto::storeio::{LoadRequest, Loaded, StoreBatch, StoreError};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Counters of those inside: threads that enter at the same time count in different cache lines.
const LANES: usize = 16;

/// The right of one life to change the stores. Clones are handles of one fence.
#[derive(Clone, Debug, Default)]
pub struct Fence(Arc<Gate>);

#[derive(Debug, Default)]
struct Gate {
    revoked: AtomicBool,
    lanes: [Lane; LANES],
    /// Held to wait for the last who leaves, and to tell of it.
    leaving: Mutex<()>,
    left: Condvar,
}

/// How many are inside that entered by this lane.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Lane(AtomicU64);

/// The leave to make one change; ends when it is dropped.
#[derive(Debug)]
pub struct Pass<'a> {
    gate: &'a Gate,
    lane: &'a Lane,
}

impl Fence {
    /// The fence of a life that begins.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins a change. A thread must not enter the same fence twice: between the two it could have been revoked.
    ///
    /// # Errors
    /// `Fenced`: the life was ended.
    pub fn enter(&self) -> Result<Pass<'_>, StoreError> {
        let gate = &*self.0;
        let lane = &gate.lanes[lane()];
        // In this order, and `revoke` in the other: one of the two sees what the other did.
        lane.0.fetch_add(1, Ordering::SeqCst);
        let pass = Pass { gate, lane };
        if gate.revoked.load(Ordering::SeqCst) { Err(StoreError::Fenced) } else { Ok(pass) }
    }

    /// For what changes nothing: a life that was ended need not go on.
    ///
    /// # Errors
    /// `Fenced`: the life was ended.
    pub fn check(&self) -> Result<(), StoreError> {
        if self.is_revoked() { Err(StoreError::Fenced) } else { Ok(()) }
    }

    /// Whether the life was ended. Changes that began before may be under way until `revoke` returns.
    #[must_use]
    pub fn is_revoked(&self) -> bool {
        self.0.revoked.load(Ordering::Acquire)
    }

    /// Ends the life and waits for the changes that are under way; as long as the disk takes for them. A second call waits, too.
    pub fn revoke(&self) {
        let gate = &*self.0;
        gate.revoked.store(true, Ordering::SeqCst);
        if stdx::mutant!("fence_does_not_wait") {
            return;
        }
        let mut leaving = gate.leaving.lock().unwrap_or_else(PoisonError::into_inner);
        // Nobody enters any more but to be refused, so a lane that was empty once counts as empty.
        for lane in &gate.lanes {
            while lane.0.load(Ordering::SeqCst) != 0 {
                leaving = gate.left.wait(leaving).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        let last = self.lane.0.fetch_sub(1, Ordering::SeqCst) == 1;
        if last && self.gate.revoked.load(Ordering::SeqCst) {
            // With the mutex: who waits has not looked yet, or is woken.
            let _leaving = self.gate.leaving.lock().unwrap_or_else(PoisonError::into_inner);
            self.gate.left.notify_all();
        }
    }
}

/// The lane of this thread.
fn lane() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static LANE: usize = NEXT.fetch_add(1, Ordering::Relaxed) % LANES);
    // A thread that is being taken down may use any.
    LANE.try_with(|lane| *lane).unwrap_or(0)
}

/// A store that several lives share, as one life may use it.
#[derive(Debug)]
pub struct Fenced<T: ?Sized> {
    fence: Fence,
    store: Arc<T>,
}

impl<T: ?Sized> Fenced<T> {
    /// The store for the life that this fence is of.
    #[must_use]
    pub const fn new(store: Arc<T>, fence: Fence) -> Self {
        Self { fence, store }
    }

    /// The fence of the life.
    #[must_use]
    pub const fn fence(&self) -> &Fence {
        &self.fence
    }

    /// The store, unfenced: for what belongs to no life.
    #[must_use]
    pub fn store(&self) -> &T {
        &self.store
    }
}

impl<T: MetaStore + ?Sized> MetaStore for Fenced<T> {
    fn load(&self, requests: &[LoadRequest]) -> Vec<Result<Loaded, StoreError>> {
        match self.fence.check() {
            Ok(()) => self.store.load(requests),
            Err(error) => requests.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    /// The pass lasts until all of it is committed.
    fn apply(&self, batches: &[StoreBatch]) -> Result<(), StoreError> {
        let _pass = self.fence.enter()?;
        self.store.apply(batches)
    }
}

#[cfg(test)]
mod tests;
