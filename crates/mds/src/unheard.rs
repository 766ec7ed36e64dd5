//! Answers to requests that opened, closed, locked or unlocked an inode which has left, and that their clients may not have. What another
//! rank was told of the inode counts them. So the next life of this one answers them, as this one does: sent away, they would be carried out
//! once more where the inode is. docs/PROTOCOL.md, "Answers that nobody has heard".
//!
//! Absent: answers that transactions have, which the journal has with them (`former.rs`).

use crate::op::{Op, Plan, Stop};
use crate::ops;
use crate::output::Output;
use crate::rank::Rank;
use crate::session::{Session, StoredResult};
use crate::view::Found;
use proto::caps::Grants;
use proto::cluster::{ClusterMap, MoveId};
use proto::every_request;
use proto::holder::{HOLDERS_BYTES_MAX, Moved};
use proto::mutation::Mutation;
use proto::reply::{Outcome, Reply, decode_outcome};
use proto::request::{LockKind, Request};
use proto::transact::{CARRIED_BYTES_MAX, TxnId};
use proto::unheard::{UNHEARD_MAX, Unheard, When, put_unheard};
use proto::{Errno, Ino, NodeRef, RankId, Reader, SessionId, Tid, Writer};
use std::collections::BTreeMap;
use stdx::{Now, Outbox};

type Key = (SessionId, Tid);
/// What counts if something comes about.
type IfSo = BTreeMap<Key, Unheard>;

/// One that what was told of its inode counts.
#[derive(Debug)]
struct Went {
    ino: Ino,
    /// The outcome, encoded.
    result: Box<[u8]>,
    /// Its client has claimed the inode in this life, and its books do not count it. If the inode is here, and has not come since, what it
    /// claims is what there is: the request is carried out.
    claimed: bool,
}

/// All that the journal has.
#[derive(Debug, Default)]
pub(crate) struct UnheardAnswers {
    went: BTreeMap<Key, Went>,
    votes: BTreeMap<TxnId, IfSo>,
    moves: BTreeMap<(MoveId, Moved), IfSo>,
}

/// Lists that have room in one mutation each.
fn chunks<'a>(list: impl Iterator<Item = &'a Unheard>) -> Vec<Vec<u8>> {
    let (mut all, mut last, mut bytes) = (Vec::new(), Vec::new(), 0);
    let end = |last: &mut Vec<&Unheard>, all: &mut Vec<Vec<u8>>| {
        let mut w = Writer::new();
        put_unheard(std::mem::take(last).into_iter(), &mut w);
        all.push(w.0);
    };
    for one in list {
        if last.len() == UNHEARD_MAX || bytes + one.bytes() > HOLDERS_BYTES_MAX {
            end(&mut last, &mut all);
            bytes = 0;
        }
        bytes += one.bytes();
        last.push(one);
    }
    if !last.is_empty() {
        end(&mut last, &mut all);
    }
    all
}

/// The inode that a request has opened, closed, locked or unlocked.
pub(crate) fn about(request: &Request, outcome: &Outcome) -> Ino {
    match outcome {
        Ok(Reply::Attr(attr) | Reply::Created { attr, .. }) => attr.ino,
        outcome if outcome.is_ok() => request.subject().map_or(Ino::NONE, |(node, _)| node.ino),
        _ => Ino::NONE,
    }
}

/// The inode that a request has opened whose result is in a transaction. One that was performed is told of by its client once more.
pub(crate) fn opened_by(op: &Op, outcome: &Outcome) -> Ino {
    match op.request {
        Request::Open { .. } | Request::Create { .. } | Request::TmpFile { .. } if op.told.is_none() => {
            about(&op.request, outcome)
        }
        every_request!() => Ino::NONE,
    }
}

/// That inode, and where its client has seen it.
fn node_of(request: &Request, outcome: &Outcome) -> NodeRef {
    match (request, outcome) {
        (Request::Create { .. } | Request::TmpFile { .. }, Ok(Reply::Created { attr, .. })) => attr.node(),
        (every_request!(), _) => request.subject().map_or(NodeRef::bare(Ino::NONE), |(node, _)| node),
    }
}

/// What a session has done to inodes that leave, in this life, and may not have heard; `leaves`: they do, or may.
pub(crate) fn done_by(id: SessionId, session: &Session, leaves: impl Fn(Ino) -> bool) -> Vec<Unheard> {
    let done = session.results.about_inodes().filter(|(_, result)| leaves(result.about));
    done.map(|(tid, StoredResult { bytes, about, .. })| {
        let (ino, result) = (*about, bytes.clone());
        Unheard { session: id, tid, ino, result }
    })
    .collect()
}

/// Whether a move was made that this rank has let go of. An entry that is not there any more its new owner has dropped.
fn is_made(map: &ClusterMap, me: RankId, moved: Moved) -> bool {
    match moved.unit.dir {
        Ino::NONE => map.slots.get(moved.slot).rank != me,
        _ => map.entries.get(&moved.unit).is_none_or(|entry| entry.rank != me),
    }
}

impl UnheardAnswers {
    pub(crate) fn is_empty(&self) -> bool {
        self.went.is_empty() && self.votes.is_empty() && self.moves.is_empty()
    }

    /// A mutation says so.
    pub(crate) fn note(&mut self, when: When, list: Vec<Unheard>) {
        let all = list.into_iter().map(|one| ((one.session, one.tid), one));
        match when {
            When::Now => all.for_each(|(_, one)| self.counts(one)),
            When::Transaction(id) => self.votes.entry(id).or_default().extend(all),
            When::Move(id, moved) if all.len() == 0 => drop(self.moves.remove(&(id, moved))),
            When::Move(id, moved) => self.moves.entry((id, moved)).or_default().extend(all),
        }
    }

    fn counts(&mut self, Unheard { session, tid, ino, result }: Unheard) {
        let key = (session, tid);
        if result.is_empty() {
            self.went.remove(&key);
            return;
        }
        // A checkpoint says it once more.
        let claimed = self.went.get(&key).is_some_and(|went| went.claimed);
        self.went.insert(key, Went { ino, result, claimed });
    }

    /// A transaction is over, and these have left with it.
    pub(crate) fn over(&mut self, id: TxnId, left: &[Ino]) {
        for one in self.votes.remove(&id).into_iter().flat_map(IfSo::into_values) {
            if left.contains(&one.ino) || stdx::mutant!("mds_unheard_outlives_abort") {
                self.counts(one);
            }
        }
    }

    fn retain(&mut self, keeps: impl Fn(&Key) -> bool) {
        self.went.retain(|key, _| keeps(key));
        self.votes
            .values_mut()
            .chain(self.moves.values_mut())
            .for_each(|list| list.retain(|key, _| keeps(key)));
    }

    /// Its client has all answers below `floor`.
    pub(crate) fn forget_below(&mut self, id: SessionId, floor: Tid) {
        if !self.is_empty() && !stdx::mutant!("mds_unheard_for_ever") {
            self.retain(|(session, tid)| *session != id || *tid >= floor);
        }
    }

    pub(crate) fn end_session(&mut self, id: SessionId) {
        self.retain(|(session, _)| *session != id);
    }

    /// The session has claimed what it has of the inode: that counts here from now on, if the inode is here.
    pub(crate) fn claimed(&mut self, id: SessionId, ino: Ino) {
        let own = self.went.range_mut((id, Tid(0))..=(id, Tid(u64::MAX)));
        own.filter(|(_, went)| went.ino == ino).for_each(|(_, went)| went.claimed = true);
    }

    /// The inode has come, with what sessions have of it: that counts, whatever they have claimed before.
    pub(crate) fn came(&mut self, ino: Ino) {
        if !stdx::mutant!("mds_unheard_claimed_for_ever") {
            self.went.values_mut().filter(|went| went.ino == ino).for_each(|went| went.claimed = false);
        }
    }

    /// Whether there is one to that request, or may be.
    pub(crate) fn has(&self, session: SessionId, tid: Tid) -> bool {
        !self.is_empty()
            && (self.went.contains_key(&(session, tid)) || self.voted(session, tid).is_some())
            && !stdx::mutant!("mds_unheard_runs_again")
    }

    /// The inode of one that is to go with a transaction which is not decided.
    fn voted(&self, session: SessionId, tid: Tid) -> Option<Ino> {
        self.votes.values().find_map(|list| list.get(&(session, tid))).map(|one| one.ino)
    }

    /// Of inodes that leave, those that are to be carried out: what their clients claimed goes along.
    fn ended(&self, leaves: impl Fn(Ino) -> bool) -> impl Iterator<Item = (Key, Unheard)> {
        let is_over =
            move |went: &Went| went.claimed && leaves(went.ino) && !stdx::mutant!("mds_unheard_goes_along");
        let all = self.went.iter().filter(move |(_, went)| is_over(went));
        all.map(|((session, tid), went)| {
            let (session, tid) = (*session, *tid);
            ((session, tid), Unheard { session, tid, ino: went.ino, result: Box::default() })
        })
    }

    /// All of it once more, for a journal whose beginning goes.
    pub(crate) fn journal_again(&self, mut each: impl FnMut(&Mutation<'_>)) {
        if stdx::mutant!("mds_unheard_trimmed") {
            return;
        }
        let went = self.went.iter().map(|((session, tid), Went { ino, result, .. })| {
            let (session, tid, ino, result) = (*session, *tid, *ino, result.clone());
            Unheard { session, tid, ino, result }
        });
        let went: Vec<Unheard> = went.collect();
        let votes = self.votes.iter().map(|(id, list)| (When::Transaction(*id), list));
        let moves = self.moves.iter().map(|((id, moved), list)| (When::Move(*id, *moved), list));
        let if_so = votes.chain(moves).map(|(when, list)| (when, chunks(list.values())));
        for (when, lists) in std::iter::once((When::Now, chunks(went.iter()))).chain(if_so) {
            lists.iter().for_each(|list| each(&Mutation::Unheard { when, list }));
        }
    }
}

impl Rank {
    /// With those that are not to be answered any more, as what their clients claimed goes along.
    pub(crate) fn with_ended(&self, done: Vec<Unheard>, leaves: impl Fn(Ino) -> bool) -> Vec<Unheard> {
        let mut all: IfSo = self.view.unheard.ended(leaves).collect();
        all.extend(done.into_iter().map(|one| ((one.session, one.tid), one)));
        all.into_values().collect()
    }

    /// What was planned is to take inodes to another rank: a vote for that, or the decision. What is told of them counts what their clients
    /// may not have heard, and the journal has that with it.
    pub(crate) fn with_unheard(&mut self, op: &Op, planned: Found<Plan>) -> Found<Plan> {
        let (votes, decides) =
            (matches!(planned, Ok(Plan::Step(..))), matches!(planned, Ok(Plan::Commit(..))));
        let inos: Vec<Ino> = match () {
            () if votes => std::mem::take(&mut self.view.txn.leaving),
            () if decides => self.view.txn.left.iter().map(|left| left.ino).collect(),
            () => return planned,
        };
        let id = match &op.request {
            Request::Transact { id, .. } => Some(*id),
            every_request!() => self.leads.id_of(op.id),
        };
        let Some(id) = id.filter(|_| !inos.is_empty() && !stdx::mutant!("mds_unheard_not_journaled")) else {
            return planned;
        };
        let leaves = |ino: Ino| inos.contains(&ino);
        let sessions = self.sessions.map.iter();
        let done = sessions.flat_map(|(id, session)| done_by(*id, session, leaves)).collect();
        let all = self.with_ended(done, leaves);
        if all.iter().map(Unheard::bytes).sum::<usize>() > CARRIED_BYTES_MAX {
            self.view.txn.clear();
            return Err(Errno::EXDEV.into());
        }
        for list in chunks(all.iter()) {
            let when = When::Transaction(id);
            Mutation::Unheard { when, list: &list }.encode(&mut self.view.txn.muts);
        }
        planned
    }

    /// Whether the client may ask for it yet.
    fn may_hear(&self, (id, tid): &Key) -> bool {
        self.sessions.map.get(id).is_some_and(|session| *tid >= session.floor)
    }

    /// A unit, or slots, is about to be let go of. What its clients may not have heard was looked for in slices, before.
    pub(crate) fn unheard_of_move(
        &mut self,
        now: Now,
        of: (MoveId, Moved),
        all: &[Unheard],
        out: &mut Outbox<Output>,
    ) {
        if stdx::mutant!("mds_unheard_stays") {
            return;
        }
        // What broke: a session ended meanwhile, and nothing ends what is noted of it after that. The rank never had an empty journal, and
        // could not go.
        let counts = |one: &&Unheard| {
            self.may_hear(&(one.session, one.tid)) || stdx::mutant!("mds_unheard_of_ended_session")
        };
        for list in chunks(all.iter().filter(counts)) {
            Mutation::Unheard { when: When::Move(of.0, of.1), list: &list }.encode(&mut self.view.txn.muts);
            self.commit(now, None, out);
        }
    }

    /// It was let go of, or is this rank's all the same.
    pub(crate) fn settle_unheard(&mut self, of: (MoveId, Moved), is_made: bool, out: &mut Outbox<Output>) {
        let Some(list) = self.view.unheard.moves.get(&of) else { return };
        let counts = is_made || stdx::mutant!("mds_unheard_of_no_move");
        let lists = if counts { chunks(list.values()) } else { Vec::new() };
        for list in lists {
            Mutation::Unheard { when: When::Now, list: &list }.encode(&mut self.view.txn.muts);
            self.commit(self.view.now, None, out);
        }
        // Last: as long as a crash may keep some of these, it is there as a whole.
        let (when, none) = (When::Move(of.0, of.1), [0; 4]);
        Mutation::Unheard { when, list: &none }.encode(&mut self.view.txn.muts);
        self.commit(self.view.now, None, out);
    }

    /// The rank lives again. What became of a move of the life before the map says: who was to be asked for it is no more.
    pub(crate) fn restore_unheard(&mut self, out: &mut Outbox<Output>) {
        let mut unheard = std::mem::take(&mut self.view.unheard);
        unheard.retain(|key| self.may_hear(key));
        self.view.unheard = unheard;
        let map = self.view.territory.map().cloned();
        let of: Vec<(MoveId, Moved)> = self.view.unheard.moves.keys().copied().collect();
        for of in of {
            let is_made = map.as_ref().is_some_and(|map| is_made(map, self.view.config.rank, of.1));
            self.settle_unheard(of, is_made, out);
        }
    }

    /// The answer to a request that a former life carried out, if what was told of its inode counts that; none: it is to be carried out. Where
    /// the inode is tells: if it is here, what its client has claimed since may be what counts.
    pub(crate) fn unheard_answer(&mut self, op: &mut Op, out: &mut Outbox<Output>) -> Found<Option<Outcome>> {
        let Some(went) = self.view.unheard.went.get(&(op.session, op.tid)) else {
            if let Some(ino) = self.view.unheard.voted(op.session, op.tid) {
                self.view.inode_is_free(ino)?;
            }
            return Ok(None);
        };
        let claimed = went.claimed;
        let outcome = decode_outcome(&mut Reader::new(&went.result)).unwrap_or(Err(Errno::EIO));
        let here = match ops::has_holders_of(&mut self.view, op, node_of(&op.request, &outcome)) {
            Ok(()) => true,
            Err(Stop::NotMine(_)) => false,
            Err(stop @ (Stop::Park(_) | Stop::Fail(_))) => return Err(stop),
        };
        if here && claimed && !stdx::mutant!("mds_unheard_despite_claim") {
            return Ok(None);
        }
        if !here {
            self.ends_claim(op, out);
        }
        Ok(Some(outcome))
    }

    /// It is carried out: no other rank was told of it, or its client claims what it had before.
    pub(crate) fn runs_again(&mut self, now: Now, op: &mut Op, out: &mut Outbox<Output>) {
        op.unheard = false;
        if op.cancelled {
            return self.answer(op, Err(Errno::EINTR), false, out);
        }
        let Some(session) = self.sessions.map.get_mut(&op.session) else { return self.unpin(op) };
        let Some(result) = session.results.get(op.tid).cloned() else { return self.run(now, op, out) };
        // It opened something by a transaction, which is not made again.
        session.in_flight = session.in_flight.saturating_sub(1);
        session.running.remove(&op.tid);
        self.unpin(op);
        self.answer_again(op.session, op.tid, (None, &op.request), result, out);
    }

    /// As if it was sent away: what its client has claimed here is nothing.
    fn ends_claim(&mut self, op: &Op, out: &mut Outbox<Output>) {
        match &op.request {
            Request::Release { node, count } => self.released_elsewhere(op, node.ino, *count, out),
            Request::ReleaseLocks { node, flock, owner } => {
                self.view.locks.release_owner(node.ino, op.session, *flock, *owner);
            }
            Request::SetLock { node, lock, .. } if lock.kind == LockKind::Unlock => {
                let limits = self.view.config.limits.locks();
                let _full = self.view.locks.unlock(node.ino, op.session, lock, limits);
            }
            every_request!() => {}
        }
    }

    /// It is answered once more. Of what it opened nothing counts here.
    pub(crate) fn answer_unheard(&mut self, op: &Op, outcome: Outcome, out: &mut Outbox<Output>) {
        self.unpin(op);
        if let Some(session) = self.sessions.map.get_mut(&op.session) {
            session.in_flight = session.in_flight.saturating_sub(1);
            session.running.remove(&op.tid);
        }
        self.forget_one(op.session, op.tid);
        self.send_reply(op.asked(), outcome, Grants::None, out);
    }
}
