//! The order among promises, and between them and everything else: what a session was told comes before what it asks for later,
//! and before what others are told of the same.
//!
//! Absent: what was told (`promise.rs`).

use super::depends::{Fact, asked_for};
use super::promise::Promise;
use super::{Judge, Pending, Verdict};
use crate::model::tree::Tree;
use proto::ids::{Position, SessionId, Tid};
use proto::reply::{Outcome, Reply};
use proto::request::Request;
use proto::{Errno, Ino, every_request};
use std::collections::BTreeSet;

impl Judge {
    /// A client says that it has the results of everything below: of a promise it has them when nothing can take it back.
    ///
    /// # Errors
    /// The rank would forget what may be presented once more.
    pub fn floor(&mut self, session: SessionId, floor: Tid) -> Verdict {
        self.floors.insert(session, floor);
        match self.promises.range((session, Tid(0))..(session, floor)).next() {
            Some(((_, tid), _)) => Err(format!(
                "session {} has results below {} but request {} may still be lost",
                session.0, floor.0, tid.0
            )),
            None => Ok(()),
        }
    }

    /// A transaction is to be executed for a session: what it performed before comes first, and of what was answered early what
    /// was executed before it the first time.
    pub(super) fn in_order(&self, pending: &Pending) -> Verdict {
        let key = (pending.asked.session, pending.asked.tid);
        let mine = self.promises.get(&key);
        let told = mine.map_or(pending.since, |promise| promise.clock);
        let first = mine.and_then(|promise| promise.first);
        let comes_first = |tid: Tid, promise: &Promise| match (promise.first, first) {
            (Some(other), Some(first)) => other < first,
            _ => tid < key.1 && promise.clock < told,
        };
        let mut due = self
            .promises
            .range((key.0, Tid(0))..=(key.0, Tid(u64::MAX)))
            .filter(|((_, tid), promise)| comes_first(*tid, promise))
            .filter(|(_, promise)| promise.is_due() && !self.may_fail(promise));
        match due.next() {
            Some(((_, tid), promise)) => Err(format!(
                "request {} of session {} comes before request {}, which its caller was told of: {:?}",
                key.1.0, key.0.0, tid.0, promise.asked.request
            )),
            None => Ok(()),
        }
    }

    /// Whether a promise may have failed and nobody been told yet: that must not leave before it is durable.
    pub(super) fn may_fail(&self, promise: &Promise) -> bool {
        self.excuses.no_space || self.excuses.io || self.may_be_gone(&promise.asked)
    }

    /// The state that shows what its session was told before it asked.
    pub(super) fn shows_own(&self, pending: &Pending) -> u64 {
        let key = (pending.asked.session, pending.asked.tid);
        let earlier = self.promises.range((key.0, Tid(0))..key);
        let earlier = earlier.filter(|(_, promise)| promise.clock < pending.since);
        earlier.filter_map(|(_, promise)| promise.executed).map(|(_, number)| number).max().unwrap_or(0)
    }

    /// Something happens for a session: what others were told before a crash comes first, and what they performed before it was
    /// asked for, as far as it shows that.
    pub(super) fn after_others(&self, pending: &Pending, outcome: &Outcome) -> Verdict {
        let (asked, key) = (&pending.asked, (pending.asked.session, pending.asked.tid));
        // What was under way for one that was evicted is no promise any more.
        if self.promises.is_empty() || self.promises.contains_key(&key) || self.answered.contains(&key) {
            return Ok(());
        }
        let others =
            self.promises.iter().filter(|((owner, _), promise)| *owner != asked.session && promise.is_due());
        let mut seen: Option<BTreeSet<Fact>> = None;
        for ((owner, tid), promise) in others {
            let what = &promise.asked.request;
            // A refusal may be one that was remembered from before.
            if promise.lost && outcome.is_ok() && !self.may_fail(promise) {
                return Err(format!(
                    "comes before request {} of session {}, which a crash took back: {what:?}",
                    tid.0, owner.0
                ));
            }
            if promise.clock > pending.since || is_without_xattr(&asked.request, outcome) {
                continue;
            }
            // What a name or a listing tells of a directory besides is kept by nobody: who wants it asks for it.
            let seen = seen.get_or_insert_with(|| asked_for(self.tree(), &asked.request, outcome));
            if performs(what).iter().any(|fact| overlaps(seen, fact)) {
                return Err(format!(
                    "does not show what session {} performed as {} before it was asked for: {what:?}",
                    owner.0, tid.0
                ));
            }
        }
        Ok(())
    }

    /// What must be durable before a session is told that everything, or everything of a file, is.
    pub(super) fn sync_needs(&self, pending: &Pending, ino: Option<Ino>) -> Position {
        let key = (pending.asked.session, pending.asked.tid);
        let chain = ino.map(|ino| chain(self.tree(), ino));
        let earlier = self.promises.range((key.0, Tid(0))..key);
        let earlier = earlier.filter(|(_, promise)| promise.clock < pending.since);
        let ends = earlier.filter_map(|(_, promise)| Some(promise.executed?.0));
        let concerns = |end: &Position| match &chain {
            Some(chain) => self.facts_of(*end).is_some_and(|facts| !facts.is_disjoint(chain)),
            None => true,
        };
        ends.filter(concerns).max().unwrap_or_default()
    }

    /// A caller is told that everything, or everything of a file, is durable; it began to ask then.
    ///
    /// # Errors
    /// Something that it was told before will not be, and nobody has said so.
    pub fn sync_heard(&self, session: SessionId, request: &Request, begun: u64) -> Verdict {
        let of = match request {
            Request::SyncFs => None,
            Request::Fsync { node, .. } => Some(node.ino),
            every_request!() => return Ok(()),
        };
        let concerns = |promise: &Promise| {
            let node = promise.asked.request.subject().map_or(Ino::NONE, |(node, _)| node.ino);
            of.is_none_or(|ino| promise.told.ino == ino || node == ino)
        };
        let mut promises = self.promises.range((session, Tid(0))..=(session, Tid(u64::MAX)));
        match promises.find(|(_, promise)| promise.failed && promise.clock <= begun && concerns(promise)) {
            Some(((_, tid), promise)) => Err(format!(
                "is told that all is durable before it hears that request {} is not: {:?}",
                tid.0, promise.asked.request
            )),
            None => Ok(()),
        }
    }

    /// Whether a session has promises that are not executed.
    #[must_use]
    pub fn is_owed(&self, session: SessionId) -> bool {
        self.promises.range((session, Tid(0))..=(session, Tid(u64::MAX))).any(|(_, promise)| promise.is_due())
    }

    /// Whether a session has performed something in a directory that the rank has not carried out.
    #[must_use]
    pub fn is_owed_in(&self, session: SessionId, dir: Ino) -> bool {
        let mut of = self.promises.range((session, Tid(0))..=(session, Tid(u64::MAX)));
        of.any(|(_, promise)| promise.is_due() && parents(&promise.asked.request).any(|parent| parent == dir))
    }

    /// Whether a session has performed something on a file that the rank has not carried out.
    #[must_use]
    pub fn is_owed_of(&self, session: SessionId, ino: Ino) -> bool {
        let mut of = self.promises.range((session, Tid(0))..=(session, Tid(u64::MAX)));
        of.any(|(_, promise)| {
            let subject = promise.asked.request.subject().map(|(node, _)| node.ino);
            promise.is_due() && !promise.told.heard && subject == Some(ino)
        })
    }

    /// Whether one of these moves a name.
    #[must_use]
    pub fn is_owed_rename_in(&self, session: SessionId, dir: Ino) -> bool {
        let mut of = self.promises.range((session, Tid(0))..=(session, Tid(u64::MAX)));
        of.any(|(_, promise)| {
            let request = &promise.asked.request;
            let moves = matches!(request, Request::Rename { .. }) && !promise.told.heard;
            moves && promise.is_due() && parents(request).any(|parent| parent == dir)
        })
    }
}

/// A file, and every directory on the way to it.
pub(crate) fn chain(tree: &Tree, ino: Ino) -> BTreeSet<Fact> {
    let mut facts = BTreeSet::from([Fact::Inode(ino), Fact::Life(ino)]);
    let Some(node) = tree.node(ino) else { return facts };
    let mut at = node.parent;
    for dir in tree.nodes.values().filter(|dir| dir.is_dir()) {
        for (name, _) in dir.entries.iter().filter(|(_, child)| **child == ino) {
            facts.insert(Fact::Name(dir.ino, name.clone()));
            at = dir.ino;
        }
    }
    for _ in 0..tree.nodes.len() {
        facts.extend([Fact::Life(at), Fact::Place(at)]);
        match tree.node(at) {
            Some(node) if at != Ino::ROOT => at = node.parent,
            _ => break,
        }
    }
    facts
}

/// The directories whose names a request changes.
pub(crate) fn parents(request: &Request) -> impl Iterator<Item = Ino> {
    request.changed_names().map(|(dir, _)| dir)
}

/// Whether an answer says nothing of a file but that an attribute is not there, or none. That is as true after whatever its client
/// performed on it: WRITE and SETATTR bring no attribute, so the rank answers without asking for the file back. One that is there is
/// another matter: a write takes a file capability away, so a file with attributes is delegated to nobody.
pub(crate) fn is_without_xattr(request: &Request, outcome: &Outcome) -> bool {
    match (request, outcome) {
        (Request::GetXattr { .. }, Err(errno)) => *errno == Errno::ENODATA,
        (Request::ListXattr { .. }, Ok(Reply::XattrNames(names))) => names.is_empty(),
        (every_request!(), _) => false,
    }
}

/// What others must not be told of before a request that was performed.
pub(crate) fn performs(request: &Request) -> Vec<Fact> {
    let node = match request {
        Request::SetAttr { node, .. } | Request::Write { node, .. } => Some(Fact::Inode(node.ino)),
        every_request!() => None,
    };
    parents(request).map(Fact::Names).chain(node).collect()
}

/// Whether one of these shows the other: names of a directory together stand for each of them.
pub(crate) fn overlaps(seen: &BTreeSet<Fact>, fact: &Fact) -> bool {
    let Fact::Names(dir) = fact else { return seen.contains(fact) };
    seen.contains(fact) || seen.iter().any(|seen| matches!(seen, Fact::Name(of, _) if of == dir))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::{Name, NodeRef};

    #[test]
    fn only_that_nothing_is_there_says_nothing() {
        let get =
            Request::GetXattr { node: NodeRef::default(), name: Name::new(b"security.d").expect("a name") };
        assert!(is_without_xattr(&get, &Err(Errno::ENODATA)));
        assert!(!is_without_xattr(&get, &Err(Errno::EACCES)));
        assert!(!is_without_xattr(&get, &Ok(Reply::Xattr(b"v"[..].into()))));
        let list = Request::ListXattr { node: NodeRef::default() };
        assert!(is_without_xattr(&list, &Ok(Reply::XattrNames(b""[..].into()))));
        assert!(!is_without_xattr(&list, &Ok(Reply::XattrNames(b"user.a\0"[..].into()))));
    }
}
