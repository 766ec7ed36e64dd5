//! Requests whose callers have their results while a crash of the rank could still take them back: answered early, or
//! performed by this client. Each is kept, to be sent again, until the rank has said that it is durable.
//!
//! Absent: requests without an answer (`window.rs`).

use proto::message::Told;
use proto::request::Request;
use proto::storeio::{Lent, Payload};
use proto::{Cred, NodeRef, Position, Tid};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A request that may have to be sent again as `Performed`.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) cred: Cred,
    pub(crate) request: Request,
    pub(crate) told: Told,
    /// What it opened: carrying it out again counts that open again.
    pub(crate) opened: Option<NodeRef>,
    /// Of its request alone: the answer has left the rank, or is none.
    pub(crate) bytes: usize,
    /// Durable from there on; none: the rank has not said on this connection that it knows it.
    pub(crate) position: Option<Position>,
    /// When it is its turn to be sent again.
    pub(crate) turn: Turn,
}

/// The order in which requests are sent again: by tid, but what the rank carried out later than another that was asked for later
/// (two threads of one client) follows that one, so many steps behind it. What was told of both is right in no other order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Turn(Tid, u32);

impl Turn {
    pub(crate) const fn of(tid: Tid) -> Self {
        Self(tid, 0)
    }

    const fn next(self) -> Self {
        Self(self.0, self.1.saturating_add(1))
    }
}

/// All of them. Positions are those of one connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeptBook {
    list: BTreeMap<Tid, Kept>,
    at: BTreeSet<(Position, Tid)>,
    /// Those without a position: what becomes of them is open.
    open: BTreeSet<Tid>,
    durable: Option<Position>,
    bytes: usize,
}

impl KeptBook {
    pub(crate) const fn new() -> Self {
        Self { list: BTreeMap::new(), at: BTreeSet::new(), open: BTreeSet::new(), durable: None, bytes: 0 }
    }

    pub(crate) fn insert(&mut self, tid: Tid, kept: Kept) {
        match kept.position {
            Some(position) if self.is_durable(position) => return,
            Some(position) => self.at.insert((position, tid)),
            None => self.open.insert(tid),
        };
        self.bytes += kept.bytes;
        self.list.insert(tid, kept);
    }

    pub(crate) fn remove(&mut self, tid: Tid) -> Option<Kept> {
        let kept = self.list.remove(&tid)?;
        self.bytes -= kept.bytes;
        match kept.position {
            Some(position) => self.at.remove(&(position, tid)),
            None => self.open.remove(&tid),
        };
        Some(kept)
    }

    pub(crate) fn contains(&self, tid: Tid) -> bool {
        self.list.contains_key(&tid)
    }

    /// The rank has it, and holds it durable from `position` on.
    pub(crate) fn heard(&mut self, tid: Tid, position: Position) {
        let Some(mut kept) = self.remove(tid) else { return };
        (kept.told.heard, kept.position) = (true, Some(position));
        self.insert(tid, kept);
    }

    fn is_durable(&self, position: Position) -> bool {
        self.durable.is_some_and(|durable| position <= durable)
    }

    /// Everything up to `position` is durable.
    pub(crate) fn durable(&mut self, position: Position) {
        self.durable = self.durable.max(Some(position));
        while let Some((at, tid)) = self.at.first().copied().filter(|(at, _)| self.is_durable(*at)) {
            self.at.remove(&(at, tid));
            if let Some(kept) = self.list.remove(&tid) {
                self.bytes -= kept.bytes;
            }
        }
    }

    /// A position of the next connection says nothing about one of this.
    pub(crate) fn disconnected(&mut self) {
        self.durable = None;
        let mut last: Option<Turn> = None;
        for (_, tid) in std::mem::take(&mut self.at) {
            let Some(kept) = self.list.get_mut(&tid) else { continue };
            kept.position = None;
            if let Some(last) = last.filter(|last| *last >= kept.turn && !stdx::mutant!("client_redo_by_tid"))
            {
                kept.turn = last.next();
            }
            last = Some(kept.turn);
            self.open.insert(tid);
        }
    }

    /// There is no session any more that could carry them out.
    pub(crate) fn take_all(&mut self) -> BTreeMap<Tid, Kept> {
        std::mem::take(self).list
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Tid, &Kept)> {
        self.list.iter().map(|(tid, kept)| (*tid, kept))
    }

    /// As they are sent again.
    pub(crate) fn in_turn(&self) -> Vec<(Tid, &Kept)> {
        let mut list: Vec<_> = self.iter().collect();
        list.sort_by_key(|(_, kept)| kept.turn);
        list
    }

    pub(crate) fn first(&self) -> Option<Tid> {
        self.list.first_key_value().map(|(tid, _)| *tid)
    }

    /// How many the rank has not said anything about.
    pub(crate) fn open(&self) -> usize {
        self.open.len()
    }

    /// The oldest of these.
    pub(crate) fn first_open(&self) -> Option<Tid> {
        self.open.first().copied()
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

/// Makes what a request carries its own: it lives on after its caller's answer, with which a lender gets its bytes back. The
/// copies that are sent share it.
pub(crate) fn own(request: &mut Request) {
    if let Request::Write { data, .. } = request {
        let bytes = match std::mem::replace(data, Payload::Owned(Vec::new())) {
            Payload::Owned(bytes) => bytes,
            Payload::Lent(lent) => Payload::Lent(lent).bytes().to_vec(),
        };
        *data = Payload::Lent(Lent::new(Arc::new(bytes)));
    }
}

/// So much was done of it, its caller was told: no more is to be done again.
pub(crate) fn shorten(request: &mut Request, count: u64) {
    match request {
        Request::Write { data, .. } if count < data.len() => {
            *data = Payload::Owned(data.bytes()[..count as usize].to_vec());
        }
        Request::CopyRange { len, .. } => *len = count,
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(tid: u64, position: Option<u64>) -> Kept {
        let (cred, request, turn) = (Cred::ROOT, Request::SyncFs, Turn::of(Tid(tid)));
        let position = position.map(Position);
        Kept { cred, request, told: Told::default(), opened: None, bytes: 3, position, turn }
    }

    impl KeptBook {
        fn add(&mut self, tid: u64, position: Option<u64>) {
            self.insert(Tid(tid), kept(tid, position));
        }

        fn order(&self) -> Vec<u64> {
            self.in_turn().iter().map(|(tid, _)| tid.0).collect()
        }
    }

    /// Found by the simulator: an unlink was carried out between a write of another thread and that one's answer; done again the
    /// other way round the write's author had been told of a file without a name that had one.
    #[test]
    fn what_was_carried_out_later_is_sent_again_later() {
        let mut book = KeptBook::new();
        book.add(5, None);
        book.add(6, Some(30));
        book.add(7, None);
        book.add(8, Some(20));
        book.add(9, Some(10));
        book.disconnected();
        // 7 was performed: what was asked for before it and not answered yet does not concern it.
        assert_eq!(book.order(), [5, 7, 9, 8, 6]);
        // The rank is gone again before it has said anything of 8.
        for (tid, position) in [(9, 3), (6, 5)] {
            book.heard(Tid(tid), Position(position));
        }
        book.disconnected();
        assert_eq!(book.order(), [5, 7, 9, 8, 6]);
        book.add(10, Some(40));
        book.disconnected();
        assert_eq!(book.order(), [5, 7, 9, 8, 6, 10]);
    }

    #[test]
    fn kept_until_durable_on_the_same_connection() {
        let mut book = KeptBook::new();
        book.add(1, Some(10));
        book.add(2, Some(5));
        book.add(3, None);
        book.durable(Position(7));
        assert_eq!((book.first(), book.first_open(), book.bytes()), (Some(Tid(1)), Some(Tid(3)), 6));
        book.add(4, Some(7));
        assert!(!book.contains(Tid(4)), "durable already");
        book.disconnected();
        assert_eq!((book.open(), book.first_open()), (2, Some(Tid(1))));
        book.durable(Position(100));
        assert!(book.contains(Tid(1)), "that was said of another connection's positions");
        book.heard(Tid(1), Position(90));
        book.heard(Tid(3), Position(101));
        assert_eq!((book.first(), book.open(), book.bytes()), (Some(Tid(3)), 0, 3));
        book.durable(Position(101));
        assert!(book.is_empty() && book.bytes() == 0);
    }
}
