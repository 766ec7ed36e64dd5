//! What the client holds at the rank: opens and locks per inode. It is what a resumed session reclaims,
//! and what is lost with an evicted one.
//!
//! Absent: what the kernel has open; the edges count that.

use crate::ranges::Ranges;
use proto::frame::FRAME_BYTES_MAX;
use proto::message::ClientMsg;
use proto::reply::{Outcome, Reply};
use proto::request::{LockKind, Request, open_flags};
use proto::{Attr, Errno, Ino, NodeRef};
use proto::{
    locking_requests, looking_requests, naming_requests, rank_requests, setting_requests, syncing_requests,
    writing_requests,
};
use std::collections::BTreeMap;
use stdx::Mono;

/// Locks in one message, of 30 bytes each. Who has more on a file sends several messages, each with the opens.
const LOCKS_PER_RECLAIM: usize = 16_384;
const _: () = assert!(LOCKS_PER_RECLAIM * 30 <= FRAME_BYTES_MAX / 2);

/// One inode's holdings.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holding {
    node: NodeRef,
    opens: u32,
    /// One of the opens may have been for writing.
    writes: bool,
    locks: Ranges,
    /// Locks were lost with an evicted session: data operations fail until the last open ends, because
    /// their caller believes to be alone.
    lost: bool,
    /// When it was said to a new life of the rank, which may have it no more. It counts it all the same.
    claimed: Option<Mono>,
}

impl Holding {
    pub(crate) const fn ino(&self) -> Ino {
        self.node.ino
    }

    /// Whether the rank in whose books it was counts what it has no more, if another one has answered what was asked then.
    pub(crate) fn stays_claimed(&self, asked: Mono) -> bool {
        self.claimed.is_some_and(|at| at < asked)
    }
}

/// Everything held, by inode.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    inodes: BTreeMap<Ino, Holding>,
    locks: usize,
}

impl Held {
    pub(crate) const fn new() -> Self {
        Self { inodes: BTreeMap::new(), locks: 0 }
    }

    pub(crate) fn inodes(&self) -> usize {
        self.inodes.len()
    }

    pub(crate) const fn locks(&self) -> usize {
        self.locks
    }

    pub(crate) fn opens(&self, ino: Ino) -> u32 {
        self.inodes.get(&ino).map_or(0, |holding| holding.opens)
    }

    /// Whether a request must fail because locks it may rely on were lost.
    pub(crate) fn is_lost(&self, request: &Request) -> bool {
        let node = match request {
            Request::Read { node, .. }
            | Request::Write { node, .. }
            | Request::Fallocate { node, .. }
            | Request::Fsync { node, .. }
            | Request::SetLock { node, .. } => node,
            Request::CopyRange { source, target, .. } => {
                return self.lost_ino(source.ino) || self.lost_ino(target.ino);
            }
            naming_requests!()
            | looking_requests!()
            | setting_requests!()
            | rank_requests!()
            | Request::SyncFs
            | Request::Open { .. }
            | Request::TmpFile { .. }
            | Request::Release { .. }
            | Request::ReleaseLocks { .. }
            | Request::Rewrite { .. } => return false,
        };
        self.lost_ino(node.ino)
    }

    fn lost_ino(&self, ino: Ino) -> bool {
        self.inodes.get(&ino).is_some_and(|holding| holding.lost)
    }

    /// Keeps the books after an answer.
    pub(crate) fn on_answer(&mut self, request: &Request, outcome: &Outcome) {
        match (request, outcome) {
            (
                Request::Open { flags, .. } | Request::Create { flags, .. } | Request::TmpFile { flags, .. },
                Ok(Reply::Attr(attr) | Reply::Created { attr, .. }),
            ) => self.opened(attr, open_flags::writes(*flags)),
            // ESTALE and the like: the rank has no such open, so there is nothing to reclaim.
            (Request::Release { node, count }, _) => self.released(node.ino, *count),
            (Request::SetLock { node, lock, .. }, Ok(_)) => {
                self.with_locks(*node, |ranges| ranges.apply(*lock));
            }
            // Changing the kind of a flock gives the old one up first, as Linux does, even if it fails.
            (Request::SetLock { node, lock, .. }, Err(Errno::EAGAIN | Errno::EINTR)) if lock.flock => {
                self.with_locks(*node, |ranges| ranges.release(true, lock.owner));
            }
            // So it is with locks. What broke: a rank whose journal had failed said EIO of what it was to unlock. The lock was claimed of its next
            // life, and nobody who could have given it back was there any more.
            (Request::ReleaseLocks { node, flock, owner }, _)
                if outcome.is_ok() || !stdx::mutant!("client_damaged_keeps_locks") =>
            {
                self.with_locks(*node, |ranges| ranges.release(*flock, *owner));
            }
            (Request::SetLock { node, lock, .. }, Err(Errno::EIO))
                if lock.kind == LockKind::Unlock && !stdx::mutant!("client_damaged_keeps_locks") =>
            {
                self.with_locks(*node, |ranges| ranges.apply(*lock));
            }
            (
                naming_requests!()
                | looking_requests!()
                | setting_requests!()
                | writing_requests!()
                | locking_requests!()
                | syncing_requests!()
                | rank_requests!()
                | Request::Open { .. }
                | Request::TmpFile { .. }
                | Request::Read { .. }
                | Request::Rewrite { .. },
                _,
            ) => {}
        }
    }

    fn opened(&mut self, attr: &Attr, writes: bool) {
        let holding = self.inodes.entry(attr.ino).or_default();
        holding.node = attr.node();
        holding.opens = holding.opens.saturating_add(1);
        holding.writes |= writes;
    }

    /// Opens that the rank does not count.
    pub(crate) fn released(&mut self, ino: Ino, count: u32) {
        let Some(holding) = self.inodes.get_mut(&ino) else { return };
        holding.opens = holding.opens.saturating_sub(count);
        if holding.opens == 0 {
            (holding.lost, holding.writes) = (false, false);
        }
        self.drop_if_empty(ino);
    }

    fn with_locks(&mut self, node: NodeRef, change: impl FnOnce(&mut Ranges)) {
        let holding = self.inodes.entry(node.ino).or_insert_with(|| Holding { node, ..Holding::default() });
        let before = holding.locks.as_slice().len();
        change(&mut holding.locks);
        self.locks = self.locks + holding.locks.as_slice().len() - before;
        self.drop_if_empty(node.ino);
    }

    fn drop_if_empty(&mut self, ino: Ino) {
        let empty = |h: &Holding| h.opens == 0 && h.locks.as_slice().is_empty() && !h.lost;
        if self.inodes.get(&ino).is_some_and(empty) {
            self.inodes.remove(&ino);
        }
    }

    /// The session is gone and its locks with it; opens are reclaimed in a new one.
    pub(crate) fn lose_locks(&mut self) {
        self.locks = 0;
        for holding in self.inodes.values_mut() {
            holding.lost |= !holding.locks.as_slice().is_empty() && holding.opens > 0;
            holding.locks = Ranges::default();
        }
        self.inodes.retain(|_, holding| holding.opens > 0);
    }

    /// What a resumed session reclaims, in inode order. `again`: opens that requests will count when they are sent again.
    pub(crate) fn reclaims(&mut self, now: Mono, again: &BTreeMap<Ino, (NodeRef, u32)>) -> Vec<ClientMsg> {
        let mut messages = Vec::new();
        for (ino, Holding { node, opens, writes, locks, claimed, .. }) in &mut self.inodes {
            let again = if stdx::mutant!("client_claims_twice") { None } else { again.get(ino) };
            let again = again.map_or(0, |(_, count)| *count);
            let count = opens.saturating_sub(again);
            let locks = locks.as_slice();
            if count == 0 && again > 0 && locks.is_empty() {
                continue;
            }
            *claimed = Some(now);
            // One without locks, too.
            for from in (0..locks.len().max(1)).step_by(LOCKS_PER_RECLAIM) {
                let locks = locks.iter().skip(from).take(LOCKS_PER_RECLAIM).copied().collect();
                messages.push(ClientMsg::Reclaim { node: *node, count, writes: *writes && count > 0, locks });
            }
        }
        messages
    }

    pub(crate) fn has(&self, ino: Ino) -> bool {
        self.inodes.contains_key(&ino)
    }

    /// Whatever is held, some of it.
    pub(crate) fn some(&self, most: usize) -> impl Iterator<Item = NodeRef> {
        self.inodes.values().take(most).map(|holding| holding.node)
    }

    /// What is held of an inode is from here on in another rank's books.
    pub(crate) fn take(&mut self, ino: Ino) -> Option<Holding> {
        let holding = self.inodes.remove(&ino)?;
        self.locks -= holding.locks.as_slice().len();
        Some(holding)
    }

    /// The other way round. What the rank is told of it, which has heard of it from the rank that had it.
    pub(crate) fn adopt(&mut self, holding: Holding) -> ClientMsg {
        let Holding { node, opens, writes, locks, lost, claimed: _ } = holding;
        let message = ClientMsg::Reclaim { node, count: opens, writes, locks: Vec::new() };
        let known = self.inodes.entry(node.ino).or_insert_with(|| Holding { node, ..Holding::default() });
        known.opens = known.opens.saturating_add(opens);
        known.writes |= writes;
        known.lost |= lost;
        for lock in locks.as_slice() {
            let before = known.locks.as_slice().len();
            known.locks.apply(*lock);
            self.locks = self.locks + known.locks.as_slice().len() - before;
        }
        message
    }

    /// Requests that are sent again will count that many opens of an inode. Returns how many more than there are; these are noted,
    /// and to be released.
    pub(crate) fn reopened(&mut self, node: NodeRef, again: u32) -> u32 {
        let surplus = again.saturating_sub(self.opens(node.ino));
        if surplus > 0 {
            let holding =
                self.inodes.entry(node.ino).or_insert_with(|| Holding { node, ..Holding::default() });
            holding.opens += surplus;
        }
        surplus
    }
}
