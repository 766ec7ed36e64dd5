//! The order among promises, and between them and everything else, for each stream of a session to a rank: what a session was told comes
//! before what it asks for later, and before what others are told of the same by that rank. Between ranks there is none but what a sync
//! makes, and that whoever is told of a directory is told of it as it is.
//!
//! Absent: what was told (`promise.rs`).

use super::owners::{By, Of};
use super::promise::{Promise, about};
use super::{Asked, Judge, Key, Pending};
use crate::model::judge::{Fact, Verdict, asked_for, chain, is_without_xattr, overlaps, parents, performs};
use proto::ids::{NameHash, RankId, SessionId, Tid};
use proto::name::name_hash;
use proto::reply::{Outcome, Reply};
use proto::request::Request;
use proto::{Errno, Ino, every_request};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// Whether a promise may have failed and nobody been told yet.
pub(super) fn may_fail(judge: &Judge, promise: &Promise) -> bool {
    judge.may_be_gone(&promise.asked)
}

/// What an answer shows; of a page of a listing, where that begins and ends.
type Seen<'a> = (&'a BTreeSet<Fact>, Option<&'a RangeInclusive<NameHash>>);

/// The hashes that a page of a listing tells of.
fn page(request: &Request, outcome: &Outcome) -> Option<RangeInclusive<NameHash>> {
    let Request::ReadDir { after, .. } = request else { return None };
    let until = match outcome {
        Ok(Reply::Entries { end: true, .. }) => u64::MAX >> 1,
        Ok(Reply::Entries { entries, end: false }) => entries.last()?.hash.cookie(),
        Ok(Reply::Further(until)) => *until,
        Ok(_) | Err(_) => return None,
    };
    // A cookie is of two hashes.
    (*after < until).then(|| NameHash((after + 1) << 1)..=NameHash((until << 1) | 1))
}

impl Judge {
    /// A transaction is to be executed for a session: what it performed before comes first, and of what was answered early what
    /// was executed before it the first time.
    pub(super) fn in_order(&self, key: Key, pending: &Pending) -> Verdict {
        let mine = self.promises.list.get(&key);
        let told = mine.map_or(pending.since, |promise| promise.clock);
        let first = mine.and_then(|promise| promise.first);
        let comes_first = |tid: Tid, promise: &Promise| match (promise.first, first) {
            (Some(other), Some(first)) => other < first,
            _ => tid < key.2 && promise.clock < told,
        };
        let of = self.promises.of(key.0, key.1);
        let mut due = of
            .filter(|((_, _, tid), promise)| comes_first(*tid, promise))
            .filter(|(_, promise)| promise.is_due() && !may_fail(self, promise));
        match due.next() {
            Some((other, promise)) => Err(format!(
                "{key:?} comes before {other:?}, which its caller was told of: {:?}",
                promise.asked.request
            )),
            None => Ok(()),
        }
    }

    /// The state that shows what its session was told before it asked.
    pub(super) fn shows_own(&self, key: Key, pending: &Pending) -> u64 {
        let earlier = self.promises.list.range((key.0, key.1, Tid(0))..key);
        let earlier = earlier.filter(|(_, promise)| promise.clock < pending.since);
        earlier.filter_map(|(_, promise)| promise.executed).map(|(_, number)| number).max().unwrap_or(0)
    }

    /// Something happens for a session: what others were told by that rank before a crash comes first, and what they performed before it
    /// was asked for, as far as it shows that.
    pub(super) fn after_others(&self, key: Key, pending: &Pending, outcome: &Outcome) -> Verdict {
        let asked = &pending.asked;
        if self.promises.list.is_empty() || self.is_promised(&key) || self.promises.kept.contains(&key) {
            return Ok(());
        }
        let others =
            self.promises.list.iter().filter(|((_, owner, _), promise)| *owner != key.1 && promise.is_due());
        let mut seen: Option<BTreeSet<Fact>> = None;
        let page = page(&asked.request, outcome);
        for (other, promise) in others {
            let what = &promise.asked.request;
            // A refusal may be one that was remembered from before.
            if other.0 == key.0 && promise.lost && outcome.is_ok() && !may_fail(self, promise) {
                return Err(format!("comes before {other:?}, which a crash took back: {what:?}"));
            }
            if promise.clock > pending.since || is_without_xattr(&asked.request, outcome) {
                continue;
            }
            let seen = seen.get_or_insert_with(|| asked_for(self.tree(), &asked.request, outcome));
            let apart = |fact: &Fact| {
                promise.lost && other.0 != key.0 && self.is_apart(other.0, what, (seen, page.as_ref()), fact)
            };
            if performs(what).iter().any(|fact| overlaps(seen, fact) && !apart(fact)) {
                return Err(format!(
                    "does not show what was performed as {other:?} before it was asked for: {what:?}"
                ));
            }
        }
        Ok(())
    }

    /// Whether all that is seen of a directory are names in parts in which a rank that was told of other parts has no say: each rank
    /// presents by itself. What is said of a directory as a whole is of all parts; a page of a listing says nothing of names before and
    /// behind it. What broke: a name was removed, told early, and lost with its rank; then another rank listed its own part, behind
    /// that name, and nobody had presented the removal yet. The page was taken for the directory as a whole.
    fn is_apart(&self, rank: RankId, what: &Request, (seen, page): Seen<'_>, fact: &Fact) -> bool {
        let Fact::Names(dir) = fact else { return false };
        if seen.contains(fact) && page.is_none() {
            return false;
        }
        let at = |hash: NameHash| (*dir, Of::Name(hash));
        let hash = |name: &[u8]| name_hash(&self.seed, name);
        let of = what.changed_names().filter(|(at, _)| at == dir);
        let changed: Vec<NameHash> = of.map(|(_, name)| hash(name.as_bytes())).collect();
        if page.is_some_and(|page| changed.iter().any(|hash| page.contains(hash))) {
            return false;
        }
        let told: Vec<By> =
            changed.iter().map(|hash| self.owners.governing(at(*hash), self.tree())).collect();
        let names = seen.iter().filter_map(|fact| match fact {
            Fact::Name(of, name) if of == dir => Some(hash(name)),
            Fact::Name(..) | Fact::Names(_) | Fact::Inode(_) | Fact::Life(_) | Fact::Place(_) => None,
        });
        // A unit that is in the midst of a page has its names there.
        let ends = page.into_iter().flat_map(|page| [*page.start(), *page.end()]);
        names.chain(ends).map(at).all(|at| {
            let by = self.owners.governing(at, self.tree());
            !told.contains(&by) && self.owners.owner(at, self.tree()) != rank
        })
    }

    /// An answer without a transaction: what is looked at before which states it may show.
    pub(super) fn comes_in_order(&self, key: Key, pending: &Pending, outcome: &Outcome) -> Verdict {
        if matches!(outcome, Err(Errno::ESHUTDOWN | Errno::EBUSY)) {
            return Ok(());
        }
        self.in_order(key, pending)?;
        // What a former life carried out, and whose answer was not heard, is remembered and not carried out again.
        let recovered = self.promises.recovered.get(&key.0).copied().unwrap_or(0);
        let remembered = outcome.is_ok() && pending.since < recovered;
        if remembered || asked_for(self.tree(), &pending.asked.request, outcome).is_empty() {
            return Ok(());
        }
        self.after_others(key, pending, outcome)
    }

    /// A caller is told that everything, or everything of a file, is durable: what it was told before it asked, at whichever rank, is, or
    /// somebody has said that it is not.
    pub(in crate::ranks) fn sync_heard(&self, session: SessionId, asked: &Asked) -> Verdict {
        let of = match &asked.request {
            Request::SyncFs => None,
            Request::Fsync { node, .. } => Some(node.ino),
            every_request!() => return Ok(()),
        };
        let begun = asked.call.and_then(|call| self.promises.begun.get(&call)).copied().unwrap_or(0);
        if self.promises.spoiled.contains(&session) {
            return Ok(());
        }
        let chain = of.map(|ino| chain(self.tree(), ino));
        let concerns = |promise: &Promise| {
            let node = promise.asked.request.subject().map_or(Ino::NONE, |(node, _)| node.ino);
            let names = parents(&promise.asked.request).any(|dir| Some(dir) == of);
            of.is_none_or(|ino| promise.told.ino == ino || node == ino || names)
                || chain.as_ref().is_some_and(|chain| !promise.facts.is_disjoint(chain))
        };
        let mut promises = self.promises.of_session(session);
        let doubtful = |promise: &Promise| {
            let inos = about(&promise.asked.request, promise.told.ino);
            self.promises.is_doubtful(session, inos)
        };
        let open = |promise: &Promise| {
            promise.clock <= begun && !promise.excused && concerns(promise) && !doubtful(promise)
        };
        match promises.find(|(_, promise)| open(promise)) {
            Some((key, promise)) => {
                Err(format!("is told that all is durable, and {key:?} is not: {:?}", promise.asked.request))
            }
            None => Ok(()),
        }
    }

    /// Whether a session has performed something in a directory that the rank has not carried out.
    pub(in crate::ranks) fn is_owed_in(&self, rank: RankId, session: SessionId, dir: Ino) -> bool {
        let mut of = self.promises.of(rank, session);
        of.any(|(_, promise)| promise.is_due() && parents(&promise.asked.request).any(|parent| parent == dir))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::records::Records;
    use proto::cluster::{ClusterMap, Entry, Policy, Unit};
    use proto::reply::DirEntry;
    use proto::{FileKind, Frag, Name, NodeRef};
    use std::sync::Arc;
    use stdx::Wall;
    use stdx::hash::HashSeed;

    const SEED: HashSeed = HashSeed([7; 16]);
    const DIR: Ino = Ino(5000);

    fn in_half(half: u64) -> Name {
        let mut all = (0..).map(|n| Name::new(format!("n{n}").as_bytes()).expect("a name"));
        all.find(|name| name_hash(&SEED, name.as_bytes()).0 >> 63 == half).expect("one")
    }

    /// A directory in two halves: the lower one is rank 0's, the upper one rank 1's.
    fn in_halves() -> Judge {
        let mut map = ClusterMap::first();
        map.version = 2;
        for (prefix, rank) in [(0, 0), (1 << 63, 1)] {
            let entry = Entry { rank: RankId(rank), version: 2, policy: Policy::Spread, moving: None };
            Arc::make_mut(&mut map.entries).insert(Unit { dir: DIR, frag: Frag { prefix, depth: 1 } }, entry);
        }
        let mut judge = Judge::new(SEED, Records::default(), Wall(0));
        judge.has_map(Arc::new(map));
        judge
    }

    fn seen(name: &Name) -> Fact {
        Fact::Name(DIR, name.as_bytes().into())
    }

    fn removed(name: &Name) -> Request {
        Request::Unlink { parent: NodeRef::bare(DIR), name: name.clone() }
    }

    #[test]
    fn only_names_of_other_parts_at_other_ranks_are_apart() {
        let judge = in_halves();
        let (low, high) = (in_half(0), in_half(1));
        let what = removed(&low);
        let apart = |rank, facts: &[Fact]| {
            let facts = facts.iter().cloned().collect();
            judge.is_apart(RankId(rank), &what, (&facts, None), &Fact::Names(DIR))
        };
        assert!(apart(0, &[seen(&high)]));
        assert!(!apart(1, &[seen(&high)]), "who told it has what is seen");
        assert!(!apart(0, &[seen(&low)]) && !apart(0, &[seen(&low), seen(&high)]), "the same part");
        assert!(!apart(0, &[seen(&high), Fact::Names(DIR)]), "the directory as a whole");
        let facts = BTreeSet::from([seen(&high)]);
        assert!(!judge.is_apart(RankId(0), &what, (&facts, None), &Fact::Inode(DIR)));
    }

    /// What broke: see `is_apart`.
    #[test]
    fn a_page_of_another_part_is_apart() {
        let judge = in_halves();
        let (low, high) = (in_half(0), in_half(1));
        let (half, end) = ((1 << 62) - 1, u64::MAX >> 1);
        let last = name_hash(&SEED, low.as_bytes());
        let apart = |rank, name: &Name, after, outcome: Reply| {
            let asked = Request::ReadDir { dir: NodeRef::bare(DIR), after, attrs: false, bytes_max: 4096 };
            let outcome = Ok(outcome);
            let facts = asked_for(judge.tree(), &asked, &outcome);
            let page = page(&asked, &outcome);
            judge.is_apart(RankId(rank), &removed(name), (&facts, page.as_ref()), &Fact::Names(DIR))
        };
        let all = || Reply::Entries { entries: Vec::new(), end: true };
        let until = |hash| {
            let (name, ino, kind) = (low.as_bytes().into(), Ino(5001), FileKind::Regular);
            Reply::Entries { entries: vec![DirEntry { hash, name, ino, kind, attr: None }], end: false }
        };
        assert!(apart(0, &low, half, all()), "the upper half, behind what was removed");
        assert!(apart(1, &high, 0, Reply::Further(half)) && apart(1, &high, 0, until(last)), "before it");
        assert!(!apart(1, &low, half, all()), "who told it has what is seen");
        assert!(!apart(0, &low, 0, all()), "what was removed is within");
        assert!(!apart(1, &low, 0, until(last)), "it is the last name");
        assert!(!apart(0, &low, last.cookie(), Reply::Further(half)), "the same part");
        assert!(!apart(0, &low, last.cookie(), all()), "the rest of that part, and another one");
        assert!(!apart(0, &low, end, all()) && !apart(0, &low, 0, Reply::Ok), "no page");
    }
}
