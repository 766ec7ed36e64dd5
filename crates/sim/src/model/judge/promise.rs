//! Promises: what callers were told before it is durable, or before the rank has heard of it. Each comes to what was told,
//! exactly once, in the order of its session, whatever crashes; or somebody says why not.
//!
//! Absent: directories that are delegated (`delegated.rs`), what answers may show (`depends.rs`), in which order (`order.rs`), and
//! how it looks meanwhile (`seen.rs`).

use super::order::parents;
use super::replies::same_attr;
use super::{Asked, Judge, Verdict};
use crate::model::tree::Tree;
use proto::ids::{Position, SessionId, Tid};
use proto::message::Told;
use proto::reply::{Outcome, Reply};
use proto::request::Request;
use proto::{Attr, Errno, Ino};
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

/// How a promise was presented to the rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presented {
    /// Performed by the client, and the rank hears of it for the first time.
    New,
    /// Of before a crash or a break, carried out already.
    Executed,
    /// Of before a crash, and lost with it.
    Lost,
    /// Again on another connection, and still to be carried out.
    Again,
}

impl Judge {
    /// Sessions that may be answered before their changes are durable.
    pub fn eager(&mut self, session: SessionId) {
        self.eager.insert(session);
    }

    /// The client has an answer that left early.
    pub fn told_early(&mut self, session: SessionId, tid: Tid, wall: Wall, outcome: &Outcome) {
        let key = (session, tid);
        let Some(pending) = self.pending.get(&key).filter(|_| !self.promises.contains_key(&key)) else {
            return;
        };
        // A client that closes waits no more for what was unanswered when its connection broke.
        if self.floors.get(&session).is_some_and(|floor| tid < *floor) {
            return;
        }
        // The answer says at which position that was, and may come when a crash has taken it back.
        let first = pending.first_at;
        let executed = pending.executed.as_ref().map(|executed| (executed.end, executed.number));
        if executed.is_some_and(|(end, _)| end <= self.durable) {
            return;
        }
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
            first,
            lost: executed.is_none(),
            excused: pending.gone || self.is_given_up(session),
            failed: false,
        };
        self.clock += 1;
        self.promises.insert(key, promise);
    }

    /// Whether a caller was told the result of a request before it was certain.
    #[must_use]
    pub fn knows(&self, session: SessionId, tid: Tid) -> bool {
        self.promises.contains_key(&(session, tid)) || self.answered.contains(&(session, tid))
    }

    /// A client presents a request whose caller has its result.
    ///
    /// # Errors
    /// Nobody was told so.
    pub fn presents(&mut self, asked: Asked, told: &Told) -> Verdict<Presented> {
        let key = (asked.session, asked.tid);
        if self.answered.contains(&key) {
            return Ok(Presented::Executed);
        }
        let Some(promise) = self.promises.get(&key) else {
            return Err(format!(
                "presents request {} of session {}, whose caller was told nothing",
                key.1.0, key.0.0
            ));
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
        let (executed, lost, pattern) = (promise.executed, promise.lost, promise.asked.pattern);
        if executed.is_some() {
            return Ok(Presented::Executed);
        }
        let again = self.pending.contains_key(&key);
        self.arrives(Asked { pattern, ..asked });
        Ok(match (lost, again) {
            (true, _) => Presented::Lost,
            (_, true) => Presented::Again,
            _ => Presented::New,
        })
    }

    /// The transaction of a promise: it is what was told, with the number and, as far as the rank's own clock allows, the time.
    pub(super) fn keeps_promise(
        &mut self,
        (session, tid): (SessionId, Tid),
        found: &Outcome,
        (end, wall): (Position, Wall),
        before: &Tree,
    ) -> Verdict<bool> {
        let number = self.last();
        let Some(promise) = self.promises.get_mut(&(session, tid)) else { return Ok(false) };
        let request = &promise.asked.request;
        if promise.executed.is_some() {
            return Err(format!("executes request {} of session {} twice: {request:?}", tid.0, session.0));
        }
        promise.executed = Some((end, number));
        promise.lost = false;
        self.cut_walls.takes(request, (promise.told.wall, wall), self.wall, before)?;
        let promise = &self.promises[&(session, tid)];
        let same = self.cut_walls.is_as_told(&promise.outcome, found);
        // One before it came to nothing, and its author may not have heard of that yet.
        let mut before = self.promises.range((session, Tid(0))..(session, tid)).map(|(_, before)| before);
        if self.spoiled.contains(&session)
            || before.any(|before| before.executed.is_none() && self.may_fail(before))
        {
            return Ok(true);
        }
        same.map_err(|error| {
            format!("{error}\n  request {:?}\n  told {:?}", promise.asked.request, promise.outcome)
        })?;
        Ok(true)
    }

    /// As `Cuts::as_cut`.
    pub(super) fn as_cut(&self, told: &Attr, is: &Attr) -> Attr {
        self.cut_walls.as_cut(told, is)
    }

    /// The inode that a promise made, if a crash took that back.
    pub(super) fn lost_number(&self, key: (SessionId, Tid)) -> Option<Ino> {
        let promise = self.promises.get(&key).filter(|promise| promise.lost)?;
        Some(promise.told.ino)
    }

    /// The rank says that a promise is kept.
    pub(super) fn done(&mut self, key: (SessionId, Tid)) -> Verdict {
        let kept = self.promises.get(&key).is_some_and(|promise| promise.executed.is_some());
        self.pending.remove(&key);
        if kept || self.answered.contains(&key) {
            return Ok(());
        }
        Err(format!("says that request {} of session {} is done, which it is not", key.1.0, key.0.0))
    }

    /// Where the transaction of a request ends that is said to be done or was answered early; none: it is durable.
    #[must_use]
    pub fn position_of(&self, session: SessionId, tid: Tid) -> Option<Position> {
        let key = (session, tid);
        let promise = self.promises.get(&key).and_then(|promise| Some(promise.executed?.0));
        promise.or_else(|| Some(self.pending.get(&key)?.executed.as_ref()?.end))
    }

    /// How far the journal is durable.
    #[must_use]
    pub const fn durable_to(&self) -> Position {
        self.durable
    }

    /// The rank cannot keep a promise any more, and says so.
    pub(super) fn breaks_promise(&mut self, key: (SessionId, Tid), errno: Errno) -> Verdict {
        let (no_space, io) =
            (self.excuses.no_space && errno == Errno::ENOSPC, self.excuses.io && errno == Errno::EIO);
        let pending = self.pending.remove(&key);
        // A file that has no name, and that its session does not have open.
        let gone = matches!(errno, Errno::ESTALE | Errno::ENOENT)
            && pending.is_some_and(|pending| self.may_be_gone(&pending.asked));
        let Some(promise) = self.promises.get_mut(&key) else { return Ok(()) };
        promise.failed = true;
        if let Some((end, _)) = promise.executed {
            return Err(format!(
                "fails with {errno} but was executed at {}: {:?}",
                end.0, promise.asked.request
            ));
        }
        let why = match () {
            () if gone => "late errors of files that are gone",
            () if promise.excused => "late errors for an earlier one",
            () if self.spoiled.contains(&key.0) => "late errors for an earlier one",
            () if no_space => "late errors for want of space",
            () if io => "late errors of a failing disk",
            () => {
                return Err(format!(
                    "request {} of session {} fails with {errno}, but its caller was told {:?}: {:?}",
                    key.1.0, key.0.0, promise.outcome, promise.asked.request
                ));
            }
        };
        self.late.push(why);
        self.spoiled.insert(key.0);
        Ok(())
    }

    /// The client hears that a promise was broken. Returns whether it was one.
    pub fn broken(&mut self, session: SessionId, tid: Tid) -> bool {
        let was = self.promises.remove(&(session, tid)).is_some();
        if was {
            self.answered.insert((session, tid));
        }
        was
    }

    /// Sessions that were told what a crash took back, and that the rank waits for.
    pub fn missed(&self) -> impl Iterator<Item = SessionId> {
        let lost = self.promises.iter().filter(|(_, promise)| promise.is_due() && promise.lost);
        let all: BTreeSet<SessionId> = lost.map(|((session, _), _)| *session).collect();
        all.into_iter()
    }

    /// Nobody waits for what a session was told any more. Its client may believe in it for a while.
    pub fn excuse(&mut self, session: SessionId) {
        if self.is_owed(session) {
            self.spoiled.insert(session);
        }
        let of = self.promises.range_mut((session, Tid(0))..=(session, Tid(u64::MAX)));
        of.for_each(|(_, promise)| promise.excused = true);
    }

    /// The rank has given a session up. What its client hears of from before is no promise either.
    pub fn gives_up(&mut self, session: SessionId) {
        self.given_up.insert(session);
        self.excuse(session);
    }

    /// Whether nobody waits for what a session is told.
    pub(super) fn is_given_up(&self, session: SessionId) -> bool {
        self.over.contains(&session) || self.given_up.contains(&session)
    }

    /// A client has been told that its session is gone: what it was told before is lost, or is not. Returns whether anything was
    /// that it was told.
    pub fn session_lost(&mut self, session: SessionId) -> bool {
        let of = (session, Tid(0))..=(session, Tid(u64::MAX));
        let due = self.promises.range(of.clone()).any(|(_, promise)| promise.executed.is_none())
            || self.spoiled.contains(&session);
        let keys: Vec<_> = self.promises.range(of).map(|(key, _)| *key).collect();
        for key in keys {
            self.promises.remove(&key);
            self.answered.insert(key);
        }
        due
    }

    /// What is durable is promised no more: it is so.
    pub(super) fn durable_promises(&mut self) {
        let durable = self.durable;
        let kept = self
            .promises
            .extract_if(.., |_, promise| promise.executed.is_some_and(|(end, _)| end <= durable));
        self.answered.extend(kept.map(|(key, _)| key));
    }

    /// A crash: the journal ends at `end`.
    pub(super) fn recovered_promises(&mut self, end: Position) {
        let promised: BTreeSet<Position> =
            self.promises.values().filter_map(|promise| Some(promise.executed?.0)).collect();
        for change in
            self.undurable.iter().filter(|change| change.end > end && !promised.contains(&change.end))
        {
            let author = change.author.into_iter();
            self.untold.extend(author.flat_map(|author| change.inos().map(move |ino| (author, ino))));
        }
        for promise in self.promises.values_mut() {
            if promise.executed.is_some_and(|(at, _)| at > end) {
                promise.executed = None;
            }
            promise.lost |= promise.executed.is_none();
        }
        self.undurable.clear();
    }

    /// At the end everything that was told is there, or somebody was told that it is not.
    ///
    /// # Errors
    /// The first that is not.
    pub fn check_promises(&self) -> Verdict {
        match self.promises.iter().find(|(_, promise)| promise.is_due()) {
            Some(((session, tid), promise)) => Err(format!(
                "request {} of session {} never happened, but its caller was told {:?}: {:?}",
                tid.0, session.0, promise.outcome, promise.asked.request
            )),
            None => Ok(()),
        }
    }
}

/// Times that a rank did not take as they were told: as what it took each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cuts(BTreeMap<Wall, BTreeSet<Wall>>);

impl Cuts {
    /// What was told to be at the first of two times is carried out at the second: not in the rank's future, nor before what it
    /// changes changed last.
    pub(crate) fn takes(
        &mut self,
        request: &Request,
        (told, wall): (Wall, Wall),
        now: Wall,
        before: &Tree,
    ) -> Verdict {
        if told == wall {
            return Ok(());
        }
        let subject = request.subject().map(|(node, _)| node.ino);
        let linked = if let Request::Link { node, .. } = request { Some(node.ino) } else { None };
        let nodes = parents(request).chain(subject).chain(linked).filter_map(|ino| before.node(ino));
        let changed = nodes.map(|node| node.mtime.max(node.ctime)).max();
        let raised = wall > told && changed.is_some_and(|changed| wall <= changed);
        let cut = wall < told && wall == now;
        if !raised && !cut {
            return Err(format!("at {wall:?} instead of {told:?}: {request:?}"));
        }
        self.0.entry(told).or_default().insert(wall);
        Ok(())
    }

    /// Whether a transaction came to what was told.
    pub(crate) fn is_as_told(&self, told: &Outcome, found: &Outcome) -> Verdict {
        let same = |told: &Attr, found: &Attr| same_attr(&self.as_cut(told, found), found);
        match (told, found) {
            (Ok(Reply::Attr(told)), Ok(Reply::Attr(found))) => same(told, found),
            (Ok(Reply::Created { attr: told, new: made }), Ok(Reply::Created { attr: found, new }))
                if made == new =>
            {
                same(told, found)
            }
            (Ok(Reply::Written { attr: told, count: wanted }), Ok(Reply::Written { attr: found, count }))
                if wanted == count =>
            {
                same(told, found)
            }
            (told, found) if told == found => Ok(()),
            _ => Err(format!("comes to {found:?}, which is not what was told")),
        }
    }

    /// Attributes that a client tells, with the times that the rank did not take as told, where that explains those
    /// that are.
    pub(crate) fn as_cut(&self, told: &Attr, is: &Attr) -> Attr {
        // What the rank raised once is later than what the client tells of its next changes, too, until the rank has heard of them.
        let raised =
            |told: Wall, is: Wall| told < is && self.0.range(..=told).any(|(_, became)| became.contains(&is));
        let cut = |told: Wall, is: Wall| self.0.get(&told).is_some_and(|became| became.contains(&is));
        let time = |told: Wall, is: Wall| if cut(told, is) || raised(told, is) { is } else { told };
        Attr {
            mtime: time(told.mtime, is.mtime),
            ctime: time(told.ctime, is.ctime),
            btime: time(told.btime, is.btime),
            ..*told
        }
    }
}

pub(crate) const fn attr_of(reply: &Reply) -> Option<&Attr> {
    match reply {
        Reply::Attr(attr) | Reply::Created { attr, .. } | Reply::Written { attr, .. } => Some(attr),
        _ => None,
    }
}

/// The inode that a request made.
pub(crate) const fn made(request: &Request, reply: &Reply) -> Ino {
    match (request, reply) {
        (
            Request::MkNod { .. } | Request::MkDir { .. } | Request::Symlink { .. } | Request::TmpFile { .. },
            Reply::Attr(attr),
        )
        | (Request::TmpFile { .. } | Request::Create { .. }, Reply::Created { attr, new: true }) => attr.ino,
        _ => Ino::NONE,
    }
}

/// Whether a request is what its caller was told of: of bytes as many as were done.
pub(crate) fn is_told(called: &Request, outcome: &Outcome, request: &Request) -> bool {
    match (called, request, outcome) {
        (
            Request::Write { node, offset, append, kill_suidgid, data },
            Request::Write { node: a, offset: b, append: c, kill_suidgid: d, data: done },
            Ok(Reply::Written { count, .. }),
        ) => {
            (node, offset, append, kill_suidgid) == (a, b, c, d)
                && done.bytes() == &data.bytes()[..data.len().min(*count) as usize]
        }
        (Request::CopyRange { .. }, Request::CopyRange { len, .. }, Ok(Reply::Written { count, .. })) => {
            let mut all = called.clone();
            if let Request::CopyRange { len: asked, .. } = &mut all {
                *asked = *len;
            }
            all == *request && len == count
        }
        (asked, request, _) => asked == request,
    }
}
