//! The requests that are at the rank: sent and not answered, or answered and not durable yet.
//!
//! Absent: requests not sent yet; they have no tid and wait in the machine's queues.

use crate::input::{CallId, Waiting};
use crate::kept::{Kept, KeptBook};
use proto::request::Request;
use proto::{Cred, Incarnation, Tid};
use std::collections::BTreeMap;
use stdx::Mono;

/// A request as it was sent, to be sent again.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) cred: Cred,
    pub(crate) request: Request,
}

/// A request without an answer.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    /// `None`: nobody waits for the answer.
    pub(crate) call: Option<CallId>,
    /// What to send again; absent where nothing is ever sent again.
    pub(crate) sent: Option<Box<Sent>>,
    /// May wait at the rank for as long as another holds a lock.
    pub(crate) lock_wait: bool,
    /// The caller was interrupted.
    pub(crate) cancelled: bool,
    /// Its bytes and those of its largest answer.
    pub(crate) bytes: usize,
    /// When it was first sent.
    pub(crate) asked: Mono,
    /// Cancelled by the client itself, to wait on under a younger tid.
    pub(crate) renewing: bool,
    /// The life of the rank that it was first sent to.
    pub(crate) life: Incarnation,
}

/// Where a client's tids are at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tids {
    /// The tid of the next request: what is performed now has it.
    pub(crate) next: Tid,
    /// Everything below is answered.
    pub(crate) unanswered: Tid,
}

impl Tids {
    /// As they are when the next request is under way.
    pub(crate) const fn later(self) -> Self {
        Self { next: Tid(self.next.0 + 1), ..self }
    }
}

/// All pending and kept requests and the next tid.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    pending: BTreeMap<Tid, Pending>,
    pub(crate) kept: KeptBook,
    next: Tid,
    lock_waits: usize,
    bytes: usize,
}

impl Window {
    pub(crate) const fn new() -> Self {
        let kept = KeptBook::new();
        Self { pending: BTreeMap::new(), kept, next: Tid(1), lock_waits: 0, bytes: 0 }
    }

    /// Tids below are of what was asked before.
    pub(crate) const fn begin_at(&mut self, next: Tid) {
        self.next = next;
    }

    pub(crate) fn tids(&self) -> Tids {
        Tids { next: self.next(), unanswered: self.unanswered() }
    }

    fn take_tid(&mut self) -> Tid {
        let tid = self.next;
        self.next = Tid(tid.0 + 1);
        tid
    }

    /// A request that was performed here: its caller waits for nothing.
    pub(crate) fn perform(&mut self, kept: Kept) -> Tid {
        let tid = self.take_tid();
        self.kept.insert(tid, kept);
        tid
    }

    pub(crate) fn insert(&mut self, pending: Pending) -> Tid {
        let tid = self.take_tid();
        self.lock_waits += usize::from(pending.lock_wait);
        self.bytes += pending.bytes;
        self.pending.insert(tid, pending);
        tid
    }

    pub(crate) fn remove(&mut self, tid: Tid) -> Option<Pending> {
        let pending = self.pending.remove(&tid)?;
        self.lock_waits -= usize::from(pending.lock_wait);
        self.bytes -= pending.bytes;
        Some(pending)
    }

    pub(crate) fn get(&self, tid: Tid) -> Option<&Pending> {
        self.pending.get(&tid)
    }

    pub(crate) fn contains(&self, tid: Tid) -> bool {
        self.pending.contains_key(&tid)
    }

    pub(crate) fn take_all(&mut self) -> BTreeMap<Tid, Pending> {
        (self.lock_waits, self.bytes) = (0, 0);
        std::mem::take(&mut self.pending)
    }

    /// The client has the result of every tid below this, and needs it no more.
    pub(crate) fn floor(&self) -> Tid {
        self.unanswered().min(self.kept.first().unwrap_or(self.next))
    }

    /// Every tid below this has its answer.
    pub(crate) fn unanswered(&self) -> Tid {
        self.pending.first_key_value().map_or(self.next, |(tid, _)| *tid)
    }

    /// The tid of the next request.
    pub(crate) const fn next(&self) -> Tid {
        self.next
    }

    /// Tids between the floor and the next one.
    pub(crate) fn span(&self) -> u64 {
        self.next.0 - self.floor().0
    }

    /// The one that holds the window open, if it has no answer.
    pub(crate) fn oldest(&mut self) -> Option<(Tid, &mut Pending)> {
        let floor = self.floor();
        self.pending.iter_mut().next().map(|(tid, pending)| (*tid, pending)).filter(|(tid, _)| *tid == floor)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Tid, &Pending)> {
        self.pending.iter().map(|(tid, pending)| (*tid, pending))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (Tid, &mut Pending)> {
        self.pending.iter_mut().map(|(tid, pending)| (*tid, pending))
    }

    pub(crate) fn waiting(&self) -> impl Iterator<Item = Waiting> + '_ {
        self.pending.iter().filter_map(|(tid, pending)| Some(Waiting { tid: *tid, call: pending.call? }))
    }

    /// Bytes of all.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes + self.kept.bytes()
    }

    /// Requests that use credit.
    pub(crate) fn credited(&self) -> usize {
        self.pending.len() - self.lock_waits
    }

    pub(crate) const fn lock_waits(&self) -> usize {
        self.lock_waits
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty() && self.kept.is_empty()
    }
}
