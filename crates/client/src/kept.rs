//! Requests whose callers have their results while a crash of the rank could still take them back: answered early, or
//! performed by this client. Each is kept, to be sent again, until the rank has said that it is durable.
//!
//! Absent: requests without an answer (`window.rs`).

use proto::every_request;
use proto::message::Told;
use proto::request::Request;
use proto::storeio::{Lent, Payload};
use proto::{Cred, Ino, NodeRef, Position, Tid};
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
    /// What its request carries. No answer is waited for that could count.
    pub(crate) bytes: usize,
    /// Durable from there on; none: the rank has not said on this connection that it knows it.
    pub(crate) position: Option<Position>,
}

/// All of them. Positions are those of one connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeptBook {
    list: BTreeMap<Tid, Kept>,
    at: BTreeSet<(Position, Tid)>,
    /// Those without a position: the rank has not said what becomes of them.
    unanswered: BTreeSet<Tid>,
    durable: Option<Position>,
    bytes: usize,
    /// What was kept when the connection broke last, in the order in which it goes to the rank again.
    again: Vec<Tid>,
    /// Inodes that some of it opened, and that are in another rank's books by now.
    went: BTreeSet<Ino>,
}

impl KeptBook {
    pub(crate) const fn new() -> Self {
        Self {
            list: BTreeMap::new(),
            at: BTreeSet::new(),
            unanswered: BTreeSet::new(),
            durable: None,
            bytes: 0,
            again: Vec::new(),
            went: BTreeSet::new(),
        }
    }

    pub(crate) fn insert(&mut self, tid: Tid, kept: Kept) {
        if let Some(node) = kept.opened {
            self.came(node.ino);
        }
        self.put(tid, kept);
    }

    fn put(&mut self, tid: Tid, kept: Kept) {
        match kept.position {
            Some(position) if self.is_durable(position) => return,
            Some(position) => self.at.insert((position, tid)),
            None => self.unanswered.insert(tid),
        };
        self.bytes += kept.bytes;
        self.list.insert(tid, kept);
    }

    pub(crate) fn remove(&mut self, tid: Tid) -> Option<Kept> {
        let kept = self.list.remove(&tid)?;
        self.bytes -= kept.bytes;
        match kept.position {
            Some(position) => self.at.remove(&(position, tid)),
            None => self.unanswered.remove(&tid),
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
        self.put(tid, kept);
    }

    /// What is open of an inode is in another rank's books.
    pub(crate) fn went(&mut self, ino: Ino) {
        if self.list.values().any(|kept| kept.opened.is_some_and(|node| node.ino == ino)) {
            self.went.insert(ino);
        }
    }

    /// It is in those of this one.
    pub(crate) fn came(&mut self, ino: Ino) {
        self.went.remove(&ino);
    }

    pub(crate) fn is_elsewhere(&self, ino: Ino) -> bool {
        self.went.contains(&ino)
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
        self.put_in_order();
        for (_, tid) in std::mem::take(&mut self.at) {
            if let Some(kept) = self.list.get_mut(&tid) {
                kept.position = None;
                self.unanswered.insert(tid);
            }
        }
    }

    /// The order of the first time is that of the positions, which need not be that of the tids: the rank may have carried out a
    /// later request while an earlier one waited for something. What was performed here came before everything that was sent
    /// after it; whether that was heard or not. What was presented on this connection came before what was asked for on it.
    fn put_in_order(&mut self) {
        self.again.retain(|tid| self.list.contains_key(tid));
        let former: BTreeSet<Tid> = self.again.iter().copied().collect();
        let mut next = Position(u64::MAX);
        let mut new = Vec::new();
        for (tid, kept) in self.list.iter().rev().filter(|(tid, _)| !former.contains(*tid)) {
            next = next.min(kept.position.unwrap_or(next));
            new.push((kept.position.unwrap_or(next), kept.position.is_some(), *tid));
        }
        if stdx::mutant!("client_redo_in_tid_order") {
            self.again = self.list.keys().copied().collect();
            return;
        }
        new.sort_unstable();
        self.again.extend(new.into_iter().map(|(_, _, tid)| tid));
    }

    /// What goes to the rank again over a new connection, in the order in which it was carried out, or will have to be.
    pub(crate) fn again(&self) -> impl Iterator<Item = (Tid, &Kept)> {
        self.again.iter().filter_map(|tid| Some((*tid, self.list.get(tid)?)))
    }

    /// There is no session any more that could carry them out.
    pub(crate) fn take_all(&mut self) -> BTreeMap<Tid, Kept> {
        std::mem::take(self).list
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Tid, &Kept)> {
        self.list.iter().map(|(tid, kept)| (*tid, kept))
    }

    pub(crate) fn first(&self) -> Option<Tid> {
        self.list.first_key_value().map(|(tid, _)| *tid)
    }

    /// How many the rank has not said anything about.
    pub(crate) fn unanswered(&self) -> usize {
        self.unanswered.len()
    }

    /// The oldest of these.
    pub(crate) fn first_unanswered(&self) -> Option<Tid> {
        self.unanswered.first().copied()
    }

    /// The last one that moves something from one place to another, changes names of that directory, or makes or changes that inode.
    pub(crate) fn last_about(&self, ino: Ino) -> Option<Tid> {
        let is_changed = |kept: &Kept, node: Ino| {
            (node == ino || kept.told.ino == ino) && !stdx::mutant!("client_sync_forgets_home")
        };
        let about = |kept: &Kept| match (&kept.request, kept.request.subject()) {
            (Request::Rename { .. }, _) => true,
            (every_request!(), Some((parent, Some(_)))) => {
                let names = parent.ino == ino && !stdx::mutant!("client_sync_forgets_slots");
                names || is_changed(kept, Ino::NONE)
            }
            (every_request!(), Some((node, None))) => is_changed(kept, node.ino),
            (every_request!(), None) => false,
        };
        self.list.iter().rev().find(|(_, kept)| about(kept)).map(|(tid, _)| *tid)
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
        every_request!() => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(position: Option<u64>) -> Kept {
        let (cred, request) = (Cred::ROOT, Request::SyncFs);
        let position = position.map(Position);
        Kept { cred, request, told: Told::default(), opened: None, bytes: 3, position }
    }

    #[test]
    fn kept_until_durable_on_the_same_connection() {
        let mut book = KeptBook::new();
        book.insert(Tid(1), kept(Some(10)));
        book.insert(Tid(2), kept(Some(5)));
        book.insert(Tid(3), kept(None));
        book.durable(Position(7));
        assert_eq!((book.first(), book.first_unanswered(), book.bytes()), (Some(Tid(1)), Some(Tid(3)), 6));
        book.insert(Tid(4), kept(Some(7)));
        assert!(!book.contains(Tid(4)), "durable already");
        book.disconnected();
        assert_eq!((book.unanswered(), book.first_unanswered()), (2, Some(Tid(1))));
        book.durable(Position(100));
        assert!(book.contains(Tid(1)), "that was said of another connection's positions");
        book.heard(Tid(1), Position(90));
        book.heard(Tid(3), Position(101));
        assert_eq!((book.first(), book.unanswered(), book.bytes()), (Some(Tid(3)), 0, 3));
        book.durable(Position(101));
        assert!(book.is_empty() && book.bytes() == 0);
    }

    #[test]
    fn what_goes_to_the_rank_again_does_so_in_the_order_of_the_first_time() {
        let mut book = KeptBook::new();
        for (tid, position) in
            [(1, Some(30)), (2, Some(10)), (3, None), (4, Some(20)), (5, Some(15)), (6, None)]
        {
            book.insert(Tid(tid), kept(position));
        }
        let order = |book: &KeptBook| book.again().map(|(tid, _)| tid.0).collect::<Vec<_>>();
        book.disconnected();
        // The third one came before whatever was sent after it, and after what had a lower position than that.
        assert_eq!(order(&book), [2, 3, 5, 4, 1, 6]);
        book.insert(Tid(7), kept(Some(8)));
        book.insert(Tid(8), kept(Some(7)));
        book.heard(Tid(4), Position(1));
        book.durable(Position(1));
        book.heard(Tid(6), Position(2));
        book.heard(Tid(3), Position(3));
        assert_eq!(order(&book), [2, 3, 5, 1, 6], "presented in that order, however the answers came");
        book.disconnected();
        assert_eq!(order(&book), [2, 3, 5, 1, 6, 8, 7]);
    }
}
