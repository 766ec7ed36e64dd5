//! Promises: what callers were told before it is durable, or before the rank has heard of it. Each comes to what was told,
//! exactly once, in the order of its session, whatever crashes; or somebody says why not.
//!
//! Absent: directories that are entrusted (`entrusted.rs`), what answers may show (`depends.rs`).

use super::answers::same_attr;
use super::depends::{Fact, asked_for};
use super::kept::differing;
use super::{Asked, Changed, Judge, Pending, Verdict};
use crate::model::rules::{Op, given};
use crate::model::tree::Tree;
use proto::ids::{Position, SessionId, Tid};
use proto::message::Told;
use proto::name::name_hash;
use proto::reply::{Outcome, Reply};
use proto::request::Request;
use proto::{Attr, Errno, Ino, Name, NodeRef};
use std::borrow::Cow;
use std::collections::BTreeSet;
use stdx::Wall;

/// One of them.
#[derive(Clone, Debug)]
pub(super) struct Promise {
    asked: Asked,
    told: Told,
    outcome: Outcome,
    /// When the caller was told.
    clock: u64,
    /// Where its transaction ends, and the state that it made.
    executed: Option<(Position, u64)>,
    /// A crash took its transaction back, or came before it.
    lost: bool,
    /// Nobody waits for it any more: its client is gone, or was given up.
    excused: bool,
    /// The rank has said that it cannot be kept.
    failed: bool,
}

impl Promise {
    const fn is_due(&self) -> bool {
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
            lost: executed.is_none(),
            excused: pending.gone || self.over.contains(&session),
            failed: false,
        };
        self.clock += 1;
        self.promises.insert(key, promise);
    }

    /// A client has performed a request by itself and told its caller so.
    ///
    /// # Errors
    /// The rank could not come to that.
    pub fn performed(&mut self, asked: Asked, told: Told, outcome: &Outcome) -> Verdict<Changed> {
        let (session, tid, clock) = (asked.session, asked.tid, self.tick());
        let request = asked.request.clone();
        let Ok(reply) = outcome else { return Err(format!("performs by itself and fails: {request:?}")) };
        if !self.eager.contains(&session) {
            return Err(format!("session {} performs what it may not: {request:?}", session.0));
        }
        self.may_perform(&asked, &told, reply)?;
        let before = self.seen_by(Some(session)).into_owned();
        let mut after = before.clone();
        let known = self.spoiled.contains(&session);
        if let Err(error) = run_told(&mut after, &asked, &told, reply)
            && !known
        {
            return Err(format!("performs {request:?}\n  as {outcome:?}\n  but the rank {error}"));
        }
        if let (Some(attr), false) = (attr_of(reply), known) {
            self.own_attr(&after, &request, attr)?;
        }
        let promise = Promise {
            asked,
            told,
            outcome: outcome.clone(),
            clock,
            executed: None,
            lost: false,
            excused: self.over.contains(&session),
            failed: false,
        };
        self.promises.insert((session, tid), promise);
        let inos = differing(&before, &after);
        Ok(Changed { number: clock, author: Some((session, tid)), inos, told: false })
    }

    /// Whether a caller was told the result of a request before it was certain.
    #[must_use]
    pub fn knows(&self, session: SessionId, tid: Tid) -> bool {
        self.promises.contains_key(&(session, tid)) || self.answered.contains(&(session, tid))
    }

    /// Attributes that a client tells by itself.
    fn own_attr(&self, tree: &Tree, request: &Request, attr: &Attr) -> Verdict {
        let node =
            tree.node(attr.ino).ok_or_else(|| format!("tells of inode {}, which is gone", attr.ino.0))?;
        let is = tree.attr(node);
        same_attr(&is, &self.as_cut(attr, &is))
            .map_err(|error| format!("tells by itself {error}: {request:?}"))?;
        match named(request) {
            Some((dir, name))
                if (attr.parent, attr.hash) != (dir.ino, name_hash(&self.seed, name.as_bytes())) =>
            {
                Err(format!("tells by itself that {name:?} is elsewhere: {attr:?}"))
            }
            _ => Ok(()),
        }
    }

    /// A client answers by itself without changing anything.
    ///
    /// # Errors
    /// The rank, with what the client has performed, would answer otherwise.
    pub fn answers_itself(&mut self, asked: &Asked, outcome: &Outcome) -> Verdict {
        self.tick();
        if self.spoiled.contains(&asked.session) {
            return Ok(());
        }
        // What the rank has done for this session and nobody was told of may have happened later.
        let of = self.pending.range((asked.session, Tid(0))..=(asked.session, Tid(u64::MAX)));
        let running =
            of.filter(|(key, pending)| pending.executed.is_some() && !self.promises.contains_key(key));
        let first = running.map(|(_, pending)| pending.first).min().unwrap_or(u64::MAX).min(self.last());
        let mut why = String::new();
        for number in (first.max(self.first)..=self.last()).rev() {
            let state = &self.states[(number - self.first) as usize];
            let mut seen = state.clone();
            self.keep_promises(asked.session, number, &mut seen.tree);
            let mut outcome = outcome.clone();
            if let Ok(Reply::Attr(attr)) = &mut outcome
                && let Some(node) = seen.tree.node(attr.ino)
            {
                *attr = self.as_cut(attr, &seen.tree.attr(node));
            }
            match self.fits(&seen, asked, &outcome, None) {
                Ok(()) => return Ok(()),
                Err(error) => why = error,
            }
        }
        Err(format!("answers by itself: {why}\n  request {:?}\n  answer {outcome:?}", asked.request))
    }

    /// The present tree as the client of a session sees it: with what it was told and is still to come.
    #[must_use]
    pub fn seen_by(&self, session: Option<SessionId>) -> Cow<'_, Tree> {
        let of = |session: SessionId| self.promises.range((session, Tid(0))..=(session, Tid(u64::MAX)));
        match session {
            Some(session) if of(session).any(|(_, promise)| promise.executed.is_none()) => {
                let mut tree = self.tree().clone();
                self.keep_promises(session, self.last(), &mut tree);
                Cow::Owned(tree)
            }
            _ => Cow::Borrowed(self.tree()),
        }
    }

    /// Carries out on a tree what a session was told and the state of that number does not have.
    fn keep_promises(&self, session: SessionId, number: u64, tree: &mut Tree) {
        for (_, promise) in self.promises.range((session, Tid(0))..=(session, Tid(u64::MAX))) {
            if promise.executed.is_none_or(|(_, at)| at > number)
                && let Ok(reply) = &promise.outcome
            {
                // What does not work any more ends in a late error.
                let _ = run_told(tree, &promise.asked, &promise.told, reply);
            }
        }
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
        let same = promise.asked.request == asked.request && promise.asked.cred == asked.cred;
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

    /// A client says that it has the results of everything below: of a promise it has them when nothing can take it back.
    ///
    /// # Errors
    /// The rank would forget what may be presented once more.
    pub fn floor(&self, session: SessionId, floor: Tid) -> Verdict {
        match self.promises.range((session, Tid(0))..(session, floor)).next() {
            Some(((_, tid), _)) => Err(format!(
                "session {} has results below {} but request {} may still be lost",
                session.0, floor.0, tid.0
            )),
            None => Ok(()),
        }
    }

    /// A transaction is to be executed for a session: what it performed before comes first.
    pub(super) fn in_order(&self, pending: &Pending) -> Verdict {
        let key = (pending.asked.session, pending.asked.tid);
        let told = self.promises.get(&key).map_or(pending.since, |promise| promise.clock);
        // One that found no space may have failed already, and who asked may hear of it later than of this.
        let failing = self.excuses.no_space || self.excuses.io;
        let earlier = self.promises.range((key.0, Tid(0))..key);
        let mut due = earlier.filter(|(_, promise)| promise.is_due() && promise.clock < told && !failing);
        match due.next() {
            Some(((_, tid), promise)) => Err(format!(
                "request {} of session {} comes before request {}, which its caller was told of: {:?}",
                key.1.0, key.0.0, tid.0, promise.asked.request
            )),
            None => Ok(()),
        }
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
        let asked = &pending.asked;
        if self.promises.is_empty() || self.promises.contains_key(&(asked.session, asked.tid)) {
            return Ok(());
        }
        let others =
            self.promises.iter().filter(|((owner, _), promise)| *owner != asked.session && promise.is_due());
        let mut seen: Option<BTreeSet<Fact>> = None;
        for ((owner, tid), promise) in others {
            let what = &promise.asked.request;
            // A refusal may be one that was remembered from before.
            if promise.lost && outcome.is_ok() {
                return Err(format!(
                    "comes before request {} of session {}, which a crash took back: {what:?}",
                    tid.0, owner.0
                ));
            }
            if promise.clock > pending.since {
                continue;
            }
            // What a name or a listing tells of a directory besides is kept by nobody: who wants it asks for it.
            let seen = seen.get_or_insert_with(|| asked_for(self.tree(), &asked.request));
            if performs(what).iter().any(|fact| overlaps(seen, fact)) {
                return Err(format!(
                    "does not show what session {} performed as {} before it was asked for: {what:?}",
                    owner.0, tid.0
                ));
            }
        }
        Ok(())
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
        let told = promise.told.wall;
        if told != wall {
            let changed =
                parents(request).map(|dir| before.node(dir).map_or(Wall(i64::MIN), |node| node.mtime)).max();
            let raised = wall > told && changed.is_some_and(|changed| wall <= changed);
            let cut = wall < told && wall == self.wall;
            if !raised && !cut {
                return Err(format!("at {wall:?} instead of {told:?}: {request:?}"));
            }
            self.cut_walls.insert(told, wall);
        }
        let promise = &self.promises[&(session, tid)];
        let same = self.is_as_told(&promise.outcome, found);
        same.map_err(|error| {
            format!("{error}\n  request {:?}\n  told {:?}", promise.asked.request, promise.outcome)
        })?;
        Ok(true)
    }

    fn is_as_told(&self, told: &Outcome, found: &Outcome) -> Verdict {
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
    pub(super) fn as_cut(&self, told: &Attr, is: &Attr) -> Attr {
        let time = |told: Wall, is: Wall| match self.cut_walls.get(&told) {
            Some(cut) if *cut == is => is,
            _ => told,
        };
        Attr {
            mtime: time(told.mtime, is.mtime),
            ctime: time(told.ctime, is.ctime),
            btime: time(told.btime, is.btime),
            ..*told
        }
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
        self.pending.remove(&key);
        let Some(promise) = self.promises.get_mut(&key) else { return Ok(()) };
        promise.failed = true;
        if let Some((end, _)) = promise.executed {
            return Err(format!(
                "fails with {errno} but was executed at {}: {:?}",
                end.0, promise.asked.request
            ));
        }
        let why = match () {
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
        for promise in self.promises.values_mut() {
            if promise.executed.is_some_and(|(at, _)| at > end) {
                promise.executed = None;
            }
            promise.lost |= promise.executed.is_none();
        }
        self.undurable.clear();
    }

    /// What must be durable before a session is told that everything, or everything of a file, is.
    pub(super) fn sync_needs(&self, pending: &Pending, ino: Option<Ino>) -> Position {
        let key = (pending.asked.session, pending.asked.tid);
        let chain = ino.map(|ino| self.chain(ino));
        let earlier = self.promises.range((key.0, Tid(0))..key);
        let earlier = earlier.filter(|(_, promise)| promise.clock < pending.since);
        let ends = earlier.filter_map(|(_, promise)| Some(promise.executed?.0));
        let concerns = |end: &Position| match &chain {
            Some(chain) => self.facts_of(*end).is_some_and(|facts| !facts.is_disjoint(chain)),
            None => true,
        };
        ends.filter(concerns).max().unwrap_or_default()
    }

    /// A file, and every directory on the way to it.
    fn chain(&self, ino: Ino) -> BTreeSet<Fact> {
        let tree = self.tree();
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
}

/// Executes what was told on a tree: with its number, its time, and what else POSIX leaves open.
fn run_told(tree: &mut Tree, asked: &Asked, told: &Told, reply: &Reply) -> Verdict {
    let request = &asked.request;
    let at = match (request, reply) {
        (Request::Write { append: true, .. }, Reply::Written { attr, count }) => {
            Some(attr.size.saturating_sub(*count))
        }
        _ => None,
    };
    let (made, offset, count) = given(request, reply, at);
    let op = Op { request, cred: &asked.cred, wall: told.wall, made, offset, count };
    let before = tree.clone();
    if let Err(errors) = tree.run(&op) {
        *tree = before;
        return Err(format!("must fail with {errors:?}"));
    }
    if let Some(attr) = attr_of(reply)
        && tree.node(attr.ino).is_some()
    {
        let node = tree.change(attr.ino);
        node.generation = attr.generation;
        if attr.has_xattrs && node.xattrs.is_empty() {
            // It took after its directory's default ACL, which the model does not compute.
            node.xattrs.insert(b"system.posix_acl_access"[..].into(), b""[..].into());
            node.mode = attr.mode;
        }
        let differs = node.mode ^ attr.mode;
        if differs & !0o6000 == 0 && attr.mode & differs == 0 {
            node.mode = attr.mode;
        }
    }
    Ok(())
}

pub(super) const fn attr_of(reply: &Reply) -> Option<&Attr> {
    match reply {
        Reply::Attr(attr) | Reply::Created { attr, .. } | Reply::Written { attr, .. } => Some(attr),
        _ => None,
    }
}

/// The inode that a request made.
pub(super) const fn made(request: &Request, reply: &Reply) -> Ino {
    match (request, reply) {
        (
            Request::MkNod { .. } | Request::MkDir { .. } | Request::Symlink { .. } | Request::TmpFile { .. },
            Reply::Attr(attr),
        )
        | (Request::TmpFile { .. } | Request::Create { .. }, Reply::Created { attr, new: true }) => attr.ino,
        _ => Ino::NONE,
    }
}

/// The name that a request is about, if its answer is about what it leads to.
const fn named(request: &Request) -> Option<(NodeRef, &Name)> {
    match request {
        Request::MkNod { parent, name, .. }
        | Request::MkDir { parent, name, .. }
        | Request::Symlink { parent, name, .. }
        | Request::Create { parent, name, .. } => Some((*parent, name)),
        _ => None,
    }
}

/// The directories whose names a request changes.
pub(super) fn parents(request: &Request) -> impl Iterator<Item = Ino> {
    let (one, two) = match request {
        Request::MkNod { parent, .. }
        | Request::MkDir { parent, .. }
        | Request::Symlink { parent, .. }
        | Request::Link { parent, .. }
        | Request::Unlink { parent, .. }
        | Request::RmDir { parent, .. }
        | Request::Create { parent, .. } => (Some(parent.ino), None),
        Request::Rename { parent, new_parent, .. } => (Some(parent.ino), Some(new_parent.ino)),
        _ => (None, None),
    };
    one.into_iter().chain(two)
}

/// What others must not be told of before a request that was performed.
fn performs(request: &Request) -> Vec<Fact> {
    let node = match request {
        Request::SetAttr { node, .. } | Request::Write { node, .. } => Some(Fact::Inode(node.ino)),
        _ => None,
    };
    parents(request).map(Fact::Names).chain(node).collect()
}

/// Whether one of these shows the other: names of a directory together stand for each of them.
fn overlaps(seen: &BTreeSet<Fact>, fact: &Fact) -> bool {
    let Fact::Names(dir) = fact else { return seen.contains(fact) };
    seen.contains(fact) || seen.iter().any(|seen| matches!(seen, Fact::Name(of, _) if of == dir))
}
