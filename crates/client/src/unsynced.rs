//! Files that were written and have not been synced since. A server that dies before it has written their bytes to its disk loses
//! them although their writers were told of success, as an operating system that dies does; but there the programs die with it.
//! Here they go on, and must not be told by an fsync that all is well.
//!
//! Absent: the bytes, which nobody keeps here; what was performed and is presented again (`window.rs`).

use proto::reply::{Outcome, Reply};
use proto::request::Request;
use proto::{Ino, Tid};
use std::collections::BTreeMap;

/// Files that are remembered one by one.
const FILES_MAX: usize = 65_536;

/// When a file was written, in tids: the next one when a write was answered.
#[derive(Clone, Copy, Debug)]
struct Span {
    /// The request that wrote first.
    first: Tid,
    /// A sync that was sent with this tid, or a later one, covers everything.
    until: Tid,
}

impl Span {
    fn with(self, later: Span) -> Span {
        Span { first: self.first, until: self.until.max(later.until) }
    }
}

/// The book.
#[derive(Clone, Debug)]
pub(crate) struct Unsynced {
    files: BTreeMap<Ino, Span>,
    /// Of all those for which there was no room.
    others: Option<Span>,
}

/// What a server that died has lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Losses {
    pub(crate) inos: Vec<Ino>,
    /// And more, of which the numbers are not known.
    pub(crate) others: bool,
}

impl Unsynced {
    pub(crate) const fn new() -> Self {
        Self { files: BTreeMap::new(), others: None }
    }

    /// A request was answered; `next`: the tid that the next one will have.
    pub(crate) fn answered(&mut self, tid: Tid, request: &Request, outcome: &Outcome, next: Tid) {
        match (request, outcome) {
            (
                Request::Write { node, .. } | Request::CopyRange { target: node, .. },
                Ok(Reply::Written { .. }),
            ) => {
                self.wrote(node.ino, Span { first: tid, until: next });
            }
            (Request::Fsync { node, .. }, Ok(_)) => {
                let ino = node.ino;
                self.files.extract_if(ino..=ino, |_, span| span.until <= tid).for_each(drop);
            }
            (Request::SyncFs, Ok(_)) => {
                self.files.retain(|_, span| span.until > tid);
                self.others = self.others.filter(|span| span.until > tid);
            }
            _ => {}
        }
    }

    fn wrote(&mut self, ino: Ino, span: Span) {
        if let Some(known) = self.files.get_mut(&ino) {
            *known = known.with(span);
        } else if self.files.len() < FILES_MAX {
            self.files.insert(ino, span);
        } else {
            self.others = Some(self.others.map_or(span, |known| known.with(span)));
        }
    }

    /// The server died, and what it had not written is lost, but for what is presented again: `again` says whether a request is.
    pub(crate) fn lose(&mut self, again: impl Fn(Tid) -> bool) -> Losses {
        let lost = |span: &Span| !again(span.first);
        let inos = self.files.extract_if(.., |_, span| lost(span)).map(|(ino, _)| ino).collect();
        Losses { inos, others: self.others.take_if(|span| lost(span)).is_some() }
    }

    /// Everything up to here is on the disk.
    pub(crate) fn clear(&mut self) {
        (self.files, self.others) = (BTreeMap::new(), None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::storeio::Payload;
    use proto::{Attr, NodeRef};

    fn write(ino: u64) -> Request {
        let (node, data) = (NodeRef::bare(Ino(ino)), Payload::Owned(vec![1]));
        Request::Write { node, offset: 0, append: false, kill_suidgid: false, data }
    }

    const fn fsync(ino: u64) -> Request {
        Request::Fsync { node: NodeRef::bare(Ino(ino)), data_only: false }
    }

    fn written() -> Outcome {
        Ok(Reply::Written { count: 1, attr: Attr::default() })
    }

    #[test]
    fn what_was_answered_before_a_sync_was_sent_is_covered_by_it() {
        let mut book = Unsynced::new();
        book.answered(Tid(1), &write(7), &written(), Tid(4));
        book.answered(Tid(2), &fsync(7), &Ok(Reply::Ok), Tid(4));
        assert_eq!(book.lose(|_| false).inos, [Ino(7)], "it was sent before the write was answered");
        for (sync, left) in [(fsync(7), vec![Ino(8)]), (Request::SyncFs, vec![])] {
            for ino in [7, 8] {
                book.answered(Tid(3), &write(ino), &written(), Tid(4));
            }
            book.answered(Tid(4), &sync, &Ok(Reply::Ok), Tid(5));
            assert_eq!(book.lose(|_| false), Losses { inos: left, others: false });
        }
    }

    #[test]
    fn what_is_presented_again_is_not_lost() {
        let mut book = Unsynced::new();
        book.answered(Tid(3), &write(7), &written(), Tid(4));
        book.answered(Tid(5), &write(8), &written(), Tid(6));
        assert_eq!(book.lose(|tid| tid >= Tid(5)).inos, [Ino(7)]);
        assert_eq!(book.lose(|_| false).inos, [Ino(8)], "it is still not synced");
        assert_eq!(book.lose(|_| false), Losses::default());
    }

    #[test]
    fn too_many_are_remembered_as_others() {
        let mut book = Unsynced::new();
        for ino in 0..=FILES_MAX as u64 {
            book.answered(Tid(1), &write(ino), &written(), Tid(2));
        }
        let lost = book.lose(|_| false);
        assert!(lost.others && lost.inos.len() == FILES_MAX);
    }
}
