//! Promises of several ranks: what callers were told before it was durable at the rank that told it, or before that rank heard of it. Each
//! comes to what was told, exactly once, in the order of its session's stream to that rank, whatever crashes; or somebody says why not.
//!
//! Absent: what answers may show (`depends.rs`), directories that are delegated (`delegated.rs`), order (`order.rs`).

use super::order::may_fail;
use super::{Asked, Judge, Key, Origin, Step};
use crate::model::judge::{Cuts, Fact, Verdict, attr_of, is_told, made, parents};
use crate::model::tree::Tree;
use proto::ids::{Position, RankId, SessionId, Tid};
use proto::message::Told;
use proto::reply::{Outcome, Reply};
use proto::request::Request;
use proto::{Errno, Ino};
use std::collections::{BTreeMap, BTreeSet};
use stdx::Wall;

/// One of them.
#[derive(Clone, Debug)]
pub(super) struct Promise {
    pub(super) asked: Asked,
    pub(super) told: Told,
    pub(super) outcome: Outcome,
    /// When the caller was told.
    pub(super) clock: u64,
    /// Where its transaction ends, and the state that it made.
    pub(super) executed: Option<(Position, u64)>,
    /// What that changed.
    pub(super) facts: BTreeSet<Fact>,
    /// Of what was answered early: when it was executed the first time, by the judge's clock.
    pub(super) first: Option<u64>,
    /// A crash took its transaction back, or came before it.
    pub(super) lost: bool,
    /// Nobody waits for it any more: its client is gone, or was given up.
    pub(super) excused: bool,
    /// The rank has said that it cannot be kept.
    pub(super) failed: bool,
}

impl Promise {
    pub(super) const fn is_due(&self) -> bool {
        self.executed.is_none() && !self.excused && !self.failed
    }
}

/// The book of them.
#[derive(Default)]
pub(super) struct Promises {
    pub(super) list: BTreeMap<Key, Promise>,
    /// Those that are durable, as long as they may be presented.
    pub(super) kept: BTreeSet<Key>,
    /// What a client lost with its session before it was carried out: a rank at which nobody ended that session may still do so. The
    /// inode it makes, and whether a crash took it back.
    left: BTreeMap<Key, (Ino, bool)>,
    /// Where the transactions of those that came to be durable end.
    pub(super) ends: BTreeMap<Key, Position>,
    /// Sessions that may be answered early, and those to which a promise was broken.
    pub(super) eager: BTreeSet<SessionId>,
    pub(super) spoiled: BTreeSet<SessionId>,
    /// Of what such a session was told something that came to nothing because a file is gone: the inodes that it was about.
    doubtful: BTreeMap<SessionId, BTreeSet<Ino>>,
    /// Whom a rank has given up.
    given_up: BTreeSet<(RankId, SessionId)>,
    /// Requests that write bytes once more: they change nothing that is judged here.
    pub(super) rewrites: BTreeSet<Key>,
    pub(super) cuts: Cuts,
    /// When each call began.
    pub(super) begun: BTreeMap<u64, u64>,
    /// When each rank began to live again.
    pub(super) recovered: BTreeMap<RankId, u64>,
    /// What came of them, and how often.
    pub(super) counts: BTreeMap<&'static str, u64>,
}

impl Promises {
    pub(super) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// Those of one stream.
    pub(super) fn of(&self, rank: RankId, session: SessionId) -> impl Iterator<Item = (&Key, &Promise)> {
        self.list.range((rank, session, Tid(0))..=(rank, session, Tid(u64::MAX)))
    }

    /// Those of one session, at all ranks.
    pub(super) fn of_session(&self, session: SessionId) -> impl Iterator<Item = (&Key, &Promise)> {
        self.list.iter().filter(move |((_, of, _), _)| *of == session)
    }

    /// Whether what a session believes of one of these inodes may be wrong: it was told something that could not be kept.
    pub(super) fn is_doubtful(&self, session: SessionId, inos: impl IntoIterator<Item = Ino>) -> bool {
        let of = self.doubtful.get(&session);
        self.spoiled.contains(&session) || of.is_some_and(|of| inos.into_iter().any(|ino| of.contains(&ino)))
    }

    fn excuse(&mut self, rank: RankId, session: SessionId) {
        if self.of(rank, session).any(|(_, promise)| promise.is_due()) {
            self.spoiled.insert(session);
        }
        let of = self.list.range_mut((rank, session, Tid(0))..=(rank, session, Tid(u64::MAX)));
        of.for_each(|(_, promise)| promise.excused = true);
    }
}

/// What a request is about, and what it makes.
pub(super) fn about(request: &Request, makes: Ino) -> impl Iterator<Item = Ino> {
    let subject = request.subject().map(|(node, _)| node.ino);
    parents(request).chain(subject).chain([makes]).filter(|ino| *ino != Ino::NONE)
}

impl Judge {
    pub(super) const fn ticks(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// The inodes that a request is about, and what was made.
    pub(in crate::ranks) fn inos_of(
        (request, outcome): (&Request, &Outcome),
    ) -> impl Iterator<Item = Ino> + use<> {
        let made = outcome.as_ref().ok().and_then(attr_of).map_or(Ino::NONE, |attr| attr.ino);
        about(request, made).collect::<Vec<_>>().into_iter()
    }

    /// Whether a session knows more of an inode than history, or something that did not come about.
    pub(in crate::ranks) fn is_unsure(&self, session: SessionId, ino: Ino) -> bool {
        let is_about =
            |promise: &Promise| about(&promise.asked.request, promise.told.ino).any(|of| of == ino);
        self.promises.is_doubtful(session, [ino])
            || self.promises.of_session(session).any(|(_, promise)| is_about(promise))
    }

    /// A session may be answered before its changes are durable.
    pub(in crate::ranks) fn eager(&mut self, session: SessionId) {
        self.promises.eager.insert(session);
    }

    /// The client has an answer that left early.
    pub(in crate::ranks) fn told_early(&mut self, key: Key, wall: Wall, outcome: &Outcome) {
        if self.promises.list.contains_key(&key) || self.is_below_floor(key) {
            return;
        }
        let Some(pending) = self.pending.get(&key) else { return };
        let durable = self.ranks.get(&key.0).map_or(Position(0), |journal| journal.durable);
        let executed = pending.executed.as_ref().map(|(_, end)| *end);
        if executed.is_some_and(|end| end <= durable) {
            return;
        }
        let step = (self.first + 1..)
            .zip(&self.line)
            .find(|(_, step)| step.rank == key.0 && Some(step.end) == executed);
        let facts = step.map(|(_, step)| step.facts.clone()).unwrap_or_default();
        let executed = executed.zip(step.map(|(number, _)| number));
        let ino = match outcome {
            Ok(reply) => made(&pending.asked.request, reply),
            Err(_) => Ino::NONE,
        };
        let promise = Promise {
            asked: pending.asked.clone(),
            told: Told { ino, wall, heard: true },
            outcome: outcome.clone(),
            clock: self.clock + 1,
            executed,
            facts,
            first: pending.first_at,
            lost: executed.is_none(),
            excused: pending.gone || self.promises.given_up.contains(&(key.0, key.1)),
            failed: false,
        };
        self.clock += 1;
        self.promises.list.insert(key, promise);
    }

    /// A client has performed a request by itself and told its caller so: what it is told of must come to that.
    pub(super) fn promises_performed(&mut self, key: Key, asked: Asked, told: Told, outcome: &Outcome) {
        let clock = self.ticks();
        let promise = Promise {
            asked,
            told,
            outcome: outcome.clone(),
            clock,
            executed: None,
            facts: BTreeSet::new(),
            first: None,
            lost: false,
            excused: self.promises.given_up.contains(&(key.0, key.1)),
            failed: false,
        };
        self.promises.list.insert(key, promise);
    }

    /// Whether a caller was told the result of a request before it was certain.
    pub(in crate::ranks) fn knows(&self, key: Key) -> bool {
        self.promises.list.contains_key(&key)
            || self.promises.kept.contains(&key)
            || self.promises.rewrites.contains(&key)
            || self.over.contains(&key)
    }

    fn is_below_floor(&self, (rank, session, tid): Key) -> bool {
        self.floors.get(&(rank, session)).is_some_and(|floor| tid < *floor)
    }

    /// A client says that it has the results of everything below: of a promise it has them when nothing can take it back.
    pub(in crate::ranks) fn floor(&mut self, rank: RankId, session: SessionId, floor: Tid) -> Verdict {
        let of = (rank, session, Tid(0))..(rank, session, floor);
        self.promises.kept.retain(|key| !of.contains(key));
        self.promises.rewrites.retain(|key| !of.contains(key));
        match self.promises.list.range(of).find(|(_, promise)| !promise.excused) {
            Some((key, _)) => Err(format!(
                "session {} has results below {} of rank {}, but request {} may still be lost",
                session.0, floor.0, rank.0, key.2.0
            )),
            None => Ok(()),
        }
    }

    /// A client presents a request whose caller has its result.
    pub(in crate::ranks) fn presents(
        &mut self,
        key: Key,
        floor: Tid,
        asked: Asked,
        told: &Told,
    ) -> Verdict<&'static str> {
        self.passes(key, floor);
        let Some(promise) = self.promises.list.get(&key) else {
            if self.promises.kept.contains(&key) || self.over.contains(&key) {
                return Ok("presented again: executed before");
            }
            return Err(format!("presents {key:?}, whose caller was told nothing: {:?}", asked.request));
        };
        let same = is_told(&promise.asked.request, &promise.outcome, &asked.request)
            && promise.asked.cred == asked.cred;
        let heard = told.heard || !promise.told.heard;
        if !same || promise.told.ino != told.ino || promise.told.wall != told.wall || !heard {
            return Err(format!(
                "presents {:?} with {told:?}\n  but its caller was told {:?} of {:?}",
                asked.request, promise.told, promise.asked.request
            ));
        }
        if promise.executed.is_some() {
            return Ok("presented again: executed before");
        }
        let (lost, call, first) = (promise.lost, promise.asked.call, promise.first);
        let again = self.pending.contains_key(&key);
        self.arrives(key, Asked { call, ..asked });
        if let Some(pending) = self.pending.get_mut(&key) {
            pending.first_at = first.or(pending.first_at);
        }
        Ok(match (lost, again) {
            (true, _) => "presented again: lost",
            (_, true) => "presented again: not executed yet",
            _ => "performed and heard of",
        })
    }

    /// The transaction of a promise: it is what was told, with the number and, as far as the rank's own clock allows, the time.
    pub(super) fn keeps_promise(&mut self, step: &Step, origin: &Origin, before: &Tree) -> Verdict {
        let (key, number) = (origin.key, self.last() + 1);
        let Some(promise) = self.promises.list.get_mut(&key) else { return Ok(()) };
        let request = &promise.asked.request;
        if promise.executed.is_some() {
            return Err(format!("executes {key:?} twice: {request:?}"));
        }
        promise.executed = Some((step.end, number));
        promise.facts.clone_from(&step.facts);
        let again = std::mem::take(&mut promise.lost);
        self.promises.cuts.takes(request, (promise.told.wall, step.wall), self.wall, before)?;
        if again {
            self.promises.count("what was told carried out again");
        }
        let promise = &self.promises.list[&key];
        let same = self.promises.cuts.is_as_told(&promise.outcome, &origin.outcome);
        // One before it came to nothing, and its author may not have heard of that yet.
        let mut before = self.promises.list.range((key.0, key.1, Tid(0))..key).map(|(_, before)| before);
        let shaken = before.any(|before| before.executed.is_none() && may_fail(self, before));
        let doubtful = self.promises.is_doubtful(key.1, about(&promise.asked.request, promise.told.ino));
        if doubtful || shaken {
            return Ok(());
        }
        same.map_err(|error| {
            format!("{error}\n  request {:?}\n  told {:?}", promise.asked.request, promise.outcome)
        })
    }

    /// The inode that a promise made, if a crash took that back: it counts from the beginning when it is made again.
    pub(super) fn made_again(&mut self, key: Key) {
        let listed = self.promises.list.get(&key).map(|promise| (promise.told.ino, promise.lost));
        let Some((ino, true)) = listed.or_else(|| self.promises.left.get(&key).copied()) else { return };
        self.changes.forget(ino);
        self.versions.forget(super::owners::unit_of(ino));
    }

    /// The rank says that a promise is kept.
    pub(super) fn done(&mut self, key: Key) -> Verdict {
        let kept = self.promises.list.get(&key).is_some_and(|promise| promise.executed.is_some());
        self.pending.remove(&key);
        if kept || self.knows(key) && !self.promises.list.contains_key(&key) || self.is_below_floor(key) {
            return Ok(());
        }
        Err(format!("says that {key:?} is done, which it is not"))
    }

    /// Where the transaction of a request ends that is said to be done or was answered early; none: it is durable.
    pub(in crate::ranks) fn position_of(&self, key: Key) -> Option<Position> {
        let promise = self.promises.list.get(&key).and_then(|promise| Some(promise.executed?.0));
        promise.or_else(|| Some(self.pending.get(&key)?.executed.as_ref()?.1))
    }

    pub(in crate::ranks) fn durable_to(&self, rank: RankId) -> Position {
        self.ranks.get(&rank).map_or(Position(0), |journal| journal.durable)
    }

    /// The rank cannot keep a promise any more, and says so.
    pub(super) fn breaks_promise(&mut self, key: Key, errno: Errno) -> Verdict {
        let pending = self.pending.remove(&key);
        // A file that has no name.
        let gone = matches!(errno, Errno::ESTALE | Errno::ENOENT)
            && pending.is_some_and(|pending| self.may_be_gone(&pending.asked));
        let Some(promise) = self.promises.list.get(&key) else { return Ok(()) };
        let inos: BTreeSet<Ino> = about(&promise.asked.request, promise.told.ino).collect();
        let doubtful = self.promises.is_doubtful(key.1, inos.iter().copied());
        let Some(promise) = self.promises.list.get_mut(&key) else { return Ok(()) };
        promise.failed = true;
        if let Some((end, _)) = promise.executed {
            return Err(format!(
                "fails with {errno} but was executed at {}: {:?}",
                end.0, promise.asked.request
            ));
        }
        let why = match () {
            () if gone => "late errors of files that are gone",
            () if promise.excused || doubtful => "late errors for an earlier one",
            () => {
                return Err(format!(
                    "{key:?} fails with {errno}, but its caller was told {:?}: {:?}",
                    promise.outcome, promise.asked.request
                ));
            }
        };
        self.promises.doubtful.entry(key.1).or_default().extend(inos);
        self.promises.count(why);
        Ok(())
    }

    /// The client hears that a promise was broken. Returns whether it was one.
    pub(in crate::ranks) fn broken(&mut self, key: Key) -> bool {
        let was = self.promises.list.remove(&key).is_some();
        if was {
            self.promises.kept.insert(key);
            self.taken_back(|of| *of == key);
        }
        was
    }

    /// Sessions that were told by a rank what a crash took back, and that it waits for.
    pub(in crate::ranks) fn missed(&self) -> BTreeSet<(RankId, SessionId)> {
        let lost = self.promises.list.iter().filter(|(_, promise)| promise.is_due() && promise.lost);
        lost.map(|((rank, session, _), _)| (*rank, *session)).collect()
    }

    /// Nobody waits for what a session was told by a rank any more. Its client may believe in it for a while.
    pub(in crate::ranks) fn excuse(&mut self, rank: RankId, session: SessionId) {
        self.promises.excuse(rank, session);
    }

    /// A rank has given a session up. What its client hears of from before is no promise either.
    pub(in crate::ranks) fn gives_up(&mut self, rank: RankId, session: SessionId) {
        self.promises.given_up.insert((rank, session));
        self.promises.excuse(rank, session);
        self.has_all_back(rank, session);
    }

    /// A client has been told that its session is gone: what it was told before is lost, or is not. Returns of how much of it somebody
    /// has to be told.
    pub(in crate::ranks) fn session_lost(&mut self, session: SessionId) -> usize {
        let keys: Vec<Key> = self.promises.of_session(session).map(|(key, _)| *key).collect();
        let due = keys.len();
        for key in keys {
            let promise = self.promises.list.remove(&key);
            if let Some(promise) = promise.filter(|promise| promise.executed.is_none() && !promise.failed) {
                self.promises.left.insert(key, (promise.told.ino, promise.lost));
            }
            self.promises.kept.insert(key);
        }
        self.promises.spoiled.insert(session);
        self.taken_back(|(_, of, _)| *of == session);
        self.believes_nothing(None, session);
        due
    }

    /// Whether a session has promises that are not executed.
    pub(in crate::ranks) fn is_owed(&self, session: SessionId) -> bool {
        self.promises.of_session(session).any(|(_, promise)| promise.is_due())
    }

    /// What is durable is promised no more: it is so.
    pub(super) fn durable_promises(&mut self, rank: RankId) {
        let durable = self.durable_to(rank);
        let is_kept = |key: &Key, promise: &mut Promise| {
            key.0 == rank && promise.executed.is_some_and(|(end, _)| end <= durable)
        };
        for (key, promise) in self.promises.list.extract_if(.., is_kept) {
            self.promises.kept.insert(key);
            self.promises.ends.extend(promise.executed.map(|(end, _)| (key, end)));
        }
    }

    /// A crash: the journal of a rank ends at `end`; these states are gone.
    pub(super) fn recovered_promises(&mut self, rank: RankId, end: Position, gone: &[u64]) {
        let clock = self.ticks();
        self.promises.recovered.insert(rank, clock);
        for ((of, ..), promise) in &mut self.promises.list {
            if *of == rank && promise.executed.is_some_and(|(at, _)| at > end) {
                promise.executed = None;
            }
            promise.lost |= *of == rank && promise.executed.is_none();
            if let Some((_, number)) = &mut promise.executed {
                *number -= gone.iter().filter(|at| **at <= *number).count() as u64;
            }
        }
        self.recovered_trust(rank, end);
        self.durable_promises(rank);
    }

    /// At the end everything that was told is there, or somebody was told that it is not.
    pub(in crate::ranks) fn check_promises(&self) -> Verdict {
        match self.promises.list.iter().find(|(_, promise)| promise.is_due()) {
            Some((key, promise)) => Err(format!(
                "{key:?} never happened, but its caller was told {:?}: {:?}",
                promise.outcome, promise.asked.request
            )),
            None => Ok(()),
        }
    }

    /// What came of what was told, and how often.
    pub(in crate::ranks) fn came_of_promises(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.promises.counts.iter().map(|(what, count)| (*what, *count))
    }

    /// A client asks a rank to write bytes once more.
    pub(in crate::ranks) fn asks_rewrite(&mut self, key: Key) {
        self.promises.rewrites.insert(key);
    }

    /// Whether a rank answered a request so.
    pub(in crate::ranks) fn has_answered(&self, key: &Key, outcome: &Outcome) -> bool {
        self.pending.get(key).is_some_and(|pending| pending.answered.as_ref() == Some(outcome))
    }

    /// Whether an inode of which a caller was told is yet to be made, or to be made again.
    pub(in crate::ranks) fn is_to_be_made(&self, ino: Ino) -> bool {
        self.promises.list.values().any(|promise| promise.told.ino == ino && promise.executed.is_none())
    }

    /// Whether a caller was told what came of a request before that is durable.
    pub(super) fn is_promised(&self, key: &Key) -> bool {
        self.promises.list.contains_key(key)
    }

    /// The same, also if that caller has lost its session since.
    pub(super) fn was_promised(&self, key: &Key) -> bool {
        self.is_promised(key) || self.promises.left.contains_key(key)
    }

    /// An inode that a transaction made was made by nobody else before, in lost histories too.
    pub(super) fn number_is_first(&mut self, origin: &Origin) -> Verdict {
        let made =
            origin.outcome.as_ref().map_or(Ino::NONE, |reply: &Reply| made(&origin.asked.request, reply));
        if made == Ino::NONE { Ok(()) } else { self.is_first(made, origin.key) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::records::Records;
    use proto::{Cred, Name, NodeRef};
    use stdx::hash::HashSeed;

    const OF: (RankId, SessionId) = (RankId(1), SessionId(5));

    fn told(judge: &mut Judge, tid: u64) -> Key {
        let (key, name) = ((OF.0, OF.1, Tid(tid)), Name::new(b"a").expect("a name"));
        let request = Request::Unlink { parent: NodeRef::bare(Ino::ROOT), name };
        let told = Told { ino: Ino(5000 + tid), wall: Wall(1), heard: true };
        judge.promises_performed(
            key,
            Asked { cred: Cred::ROOT, request, call: None, guest: None },
            told,
            &Ok(Reply::Ok),
        );
        key
    }

    #[test]
    fn a_session_leaves_what_is_neither_carried_out_nor_refused() {
        let mut judge = Judge::new(HashSeed([7; 16]), Records::default(), Wall(0));
        let [lost, done, failed] = [1, 2, 3].map(|tid| told(&mut judge, tid));
        judge.promises.list.get_mut(&done).expect("told").executed = Some((Position(9), 3));
        judge.promises.list.get_mut(&failed).expect("told").failed = true;
        judge.recovered_promises(OF.0, Position(9), &[]);
        let waits = told(&mut judge, 4);
        let counts = |judge: &mut Judge, ino| judge.changes.give(BTreeMap::from([(Ino(ino), 7)])).is_ok();
        assert!(counts(&mut judge, 5001) && counts(&mut judge, 5004));
        assert_eq!(judge.session_lost(OF.1), 4);
        assert_eq!(
            judge.promises.left,
            BTreeMap::from([(lost, (Ino(5001), true)), (waits, (Ino(5004), false))])
        );
        [lost, waits, done].into_iter().for_each(|key| judge.made_again(key));
        assert!(counts(&mut judge, 5001), "made again, it counts from the beginning");
        assert!(!counts(&mut judge, 5004), "nothing took it back");
    }
}
