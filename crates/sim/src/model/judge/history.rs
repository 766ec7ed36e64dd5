//! Journal entries: each one step of history; and what a crash leaves of it.
//!
//! Absent: answers without a transaction (`answers.rs`), file bytes (`data.rs`).

mod recovered;

use super::depends::shown;
use super::kept::differing;
use super::{Changed, Executed, Judge, State, Verdict};
use crate::model::compare::compare;
use crate::model::permission::denied;
use crate::model::records::{Key, Undo};
use crate::model::rules::{Answer, Op, given};
use crate::model::tree::Tree;
use proto::dentry::DentryValue;
use proto::ids::{Position, RankId, SessionId, Tid};
use proto::journal::{Mutations, Payload, read_entry};
use proto::mutation::Mutation;
use proto::reply::{Outcome, Reply, decode_outcome};
use proto::request::{Request, open_flags};
use proto::system::session_flags;
use proto::{FileKind, Ino, Name, Reader, SetAttr, every_request};
pub(crate) use recovered::adopt;
pub(crate) use recovered::adopt_place;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use stdx::Wall;

/// An answer that left the rank in a step.
#[derive(Clone, Debug)]
pub struct Sent {
    pub session: SessionId,
    pub tid: Tid,
    pub outcome: Outcome,
    pub embedded: bool,
    pub manner: Manner,
}

/// As what an answer left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// What it shows is durable, or nothing that another session changed.
    Plain,
    /// To a change that is perhaps not durable, made at that time.
    Early { wall: Wall },
    /// What was told came about.
    Done,
}

/// Whose transaction an entry is.
struct Origin {
    session: SessionId,
    tid: Tid,
    outcome: Outcome,
}

impl Judge {
    /// What one step of the rank appended and answered.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn step(&mut self, appends: &[(Position, &[u8])], sent: &[Sent]) -> Verdict {
        // Answers to the embedded client leave in the step that executes the request, in its order.
        let mut early: VecDeque<&Sent> = sent.iter().filter(|sent| sent.embedded).collect();
        for (position, bytes) in appends {
            if *position != self.end {
                return Err(format!("append at {} but the journal ends at {}", position.0, self.end.0));
            }
            let mut rest = *bytes;
            while !rest.is_empty() {
                let len = self.entry(rest, &mut early)?;
                rest = &rest[len..];
            }
        }
        for sent in sent {
            self.sent(sent)?;
        }
        Ok(())
    }

    fn entry(&mut self, bytes: &[u8], early: &mut VecDeque<&Sent>) -> Verdict<usize> {
        let at = self.end;
        let entry = read_entry(bytes, at).map_err(|error| format!("entry at {}: {error}", at.0))?;
        if entry.mark > self.durable {
            return Err(format!("entry at {} claims {} durable, not {}", at.0, entry.mark.0, self.durable.0));
        }
        let end = Position(at.0 + entry.len as u64);
        if let Payload::Transaction { wall, origin, mutations, .. } = entry.payload {
            let origin = match origin {
                Some(origin) => {
                    let outcome = decode_outcome(&mut Reader::new(origin.result))
                        .map_err(|error| format!("result at {}: {error}", at.0))?;
                    Some(Origin { session: origin.session, tid: origin.tid, outcome })
                }
                None => self.early_origin(mutations, wall, early)?,
            };
            self.transaction(end, wall, origin, mutations)
                .map_err(|error| format!("transaction at {}: {error}", at.0))?;
        }
        self.end = end;
        Ok(entry.len)
    }

    /// Whose transaction this is when it does not say: the embedded client's, in the order of its
    /// answers, unless it is the rank's own.
    fn early_origin(
        &self,
        mutations: &[u8],
        wall: Wall,
        early: &mut VecDeque<&Sent>,
    ) -> Verdict<Option<Origin>> {
        if !is_users(mutations) || self.is_spent_cut(mutations) {
            return Ok(None);
        }
        while let Some(sent) = early.pop_front() {
            let Some(pending) = self.pending.get(&(sent.session, sent.tid)) else { continue };
            let (request, Ok(reply)) = (&pending.asked.request, &sent.outcome) else { continue };
            let landed = pending.landing.as_ref().map(|landing| landing.start);
            let (made, offset, count) = given(request, reply, landed);
            let op = Op { request, cred: &pending.asked.cred, wall, made, offset, count };
            if self.journals(&op, reply) && renames(request, mutations) {
                return Ok(Some(Origin {
                    session: sent.session,
                    tid: sent.tid,
                    outcome: sent.outcome.clone(),
                }));
            }
        }
        let list: Vec<_> = Mutations::new(mutations).flatten().collect();
        Err(format!("a transaction that no request explains: {list:?}"))
    }

    /// The number of a cut that a failed operation used up, journaled: nothing that anybody sees changes.
    fn is_spent_cut(&self, mutations: &[u8]) -> bool {
        let mut cut = false;
        let unseen = Mutations::new(mutations).flatten().all(|mutation| match mutation {
            Mutation::PutHeader { .. } => true,
            Mutation::DataCut { .. } => {
                cut = true;
                true
            }
            Mutation::PutDentry { value, .. } => match DentryValue::decode(value) {
                Ok(DentryValue::Primary(inode)) => self.tree().node(inode.core.ino).is_some_and(|node| {
                    let core = &inode.core;
                    (node.size, node.mtime, node.ctime, node.mode)
                        == (core.size, core.mtime, core.ctime, core.mode)
                }),
                _ => false,
            },
            _ => false,
        });
        cut && unseen
    }

    /// Whether a request that succeeded with this answer has a transaction, in the state before this one.
    fn journals(&self, op: &Op<'_>, reply: &Reply) -> bool {
        let is_file = |ino: Ino| self.tree().node(ino).is_some_and(|node| node.kind() == FileKind::Regular);
        match op.request {
            Request::SetAttr { set, .. } => *set != SetAttr::default(),
            Request::Open { node, flags } => flags & open_flags::TRUNC != 0 && is_file(node.ino),
            Request::Create { flags, .. } => match reply {
                Reply::Created { attr, new } => *new || (flags & open_flags::TRUNC != 0 && is_file(attr.ino)),
                _ => false,
            },
            Request::Write { .. } | Request::CopyRange { .. } => op.count > 0,
            Request::Rename { .. } => {
                let mut tree = self.tree().clone();
                tree.run(op).is_ok() && tree != *self.tree()
            }
            Request::MkNod { .. }
            | Request::MkDir { .. }
            | Request::Symlink { .. }
            | Request::Link { .. }
            | Request::Unlink { .. }
            | Request::RmDir { .. }
            | Request::TmpFile { .. }
            | Request::Fallocate { .. }
            | Request::SetXattr { .. }
            | Request::RemoveXattr { .. } => true,
            every_request!() => false,
        }
    }

    fn transaction(
        &mut self,
        end: Position,
        wall: Wall,
        origin: Option<Origin>,
        mutations: &[u8],
    ) -> Verdict {
        self.transactions += 1;
        let now = self.tick();
        if let Some(origin) = &origin
            && self.ended_at.contains_key(&origin.session)
        {
            return Err(format!("session {} changes something after its end", origin.session.0));
        }
        self.sessions_of(mutations, end)?;
        let mut tree = self.tree().clone();
        let before = tree.clone();
        let answer = match &origin {
            Some(origin) => Some(self.execute(&mut tree, origin, wall)?),
            None => None,
        };
        let request = origin.as_ref().and_then(|origin| self.pending.get(&(origin.session, origin.tid)));
        let request = request.map(|pending| pending.asked.request.clone());
        let author = origin.as_ref().map(|origin| (origin.session, origin.tid));
        let undo = self.records.apply(mutations, true)?;
        adopt(&mut tree, &self.records, &undo, request.as_ref().is_some_and(may_keep_times).then_some(wall));
        self.made_again(author);
        self.fresh_versions(mutations)?;
        self.purge(&mut tree)?;
        self.touch(&undo, end);
        compare(&self.records, &tree, &self.seed).map_err(|error| format!("{error} (after {request:?})"))?;
        if end > self.durable {
            self.undo.push_back((end, undo));
        }
        self.log.push_back((self.end, end, mutations.to_vec()));
        let shows = match (&request, &origin) {
            (Some(request), Some(origin)) => shown(&before, request, &origin.outcome),
            _ => BTreeSet::new(),
        };
        self.note_undurable(end, author.map(|(session, _)| session), &shows, (&before, &tree));
        let changed = differing(&before, &tree);
        self.states.push_back(State { tree, end });
        let (mut told, number) = (false, self.last());
        if let (Some(origin), Some(answer)) = (origin, answer) {
            self.check_executed(&origin.outcome, &answer)
                .map_err(|error| format!("{error} (to {request:?})"))?;
            let key = (origin.session, origin.tid);
            told = self.keeps_promise(key, &origin.outcome, (end, wall), &before)?;
            if let Ok(reply) = &origin.outcome {
                self.executed_bytes(origin.session, origin.tid, reply, &before, now);
            }
            if let Some(pending) = self.pending.get_mut(&(origin.session, origin.tid)) {
                pending.first_at = Some(now);
                pending.executed = Some(Executed { outcome: origin.outcome, end, wall, number });
            }
        }
        if !changed.is_empty() {
            self.changed.push(Changed { number: now, author, inos: changed, told });
        }
        self.prune();
        Ok(())
    }

    /// Sessions that end, and numbers that are delegated to them.
    fn sessions_of(&mut self, mutations: &[u8], end: Position) -> Verdict {
        for mutation in Mutations::new(mutations).flatten() {
            match mutation {
                Mutation::Session { id, open: false, .. } => {
                    self.ended.push(id);
                    self.ended_at.insert(id, end);
                    self.session_over(id);
                    self.has_all_back(id);
                }
                Mutation::SessionFlags { id, flags } if flags & session_flags::EVICTED != 0 => {
                    self.evicted_at.insert(id, end);
                    self.evictions.push(id);
                }
                Mutation::DelegateInos { id, first, count } => self.delegates_inos(id, first, count, end)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// What is made again as it was told counts from the beginning: of the first time only its maker has seen anything.
    fn made_again(&mut self, author: Option<(SessionId, Tid)>) {
        if let Some(ino) = author.and_then(|key| self.lost_number(key)) {
            self.versions.remove(&ino);
            self.changes.remove(&ino);
        }
    }

    /// A version or change counter that was used before, even in a history that a crash took back, would
    /// name two contents (invariant 10, rising versions).
    fn fresh_versions(&mut self, mutations: &[u8]) -> Verdict {
        let (mut versions, mut changes) = (BTreeMap::new(), BTreeMap::new());
        for mutation in Mutations::new(mutations).flatten() {
            match mutation {
                Mutation::PutHeader { dir, version, .. } => {
                    versions.insert(dir, version.0);
                }
                Mutation::PutDentry { value, .. } => {
                    if let Ok(DentryValue::Primary(inode)) = DentryValue::decode(value) {
                        changes.insert(inode.core.ino, inode.core.change);
                    }
                }
                _ => {}
            }
        }
        for (what, found, known) in [
            ("version of directory", versions, &mut self.versions),
            ("change of inode", changes, &mut self.changes),
        ] {
            for (ino, number) in found {
                if known.insert(ino, number).is_some_and(|old| old >= number) {
                    return Err(format!("{what} {} is {number} again or goes back", ino.0));
                }
            }
        }
        Ok(())
    }

    fn execute(&mut self, tree: &mut Tree, origin: &Origin, wall: Wall) -> Verdict<Answer> {
        let (session, tid) = (origin.session, origin.tid);
        let Some(pending) = self.pending.get(&(session, tid)) else {
            let again = self.answered.contains(&(session, tid));
            let what = if again { "was answered before" } else { "nobody asked for" };
            return Err(format!("executes request {} of session {}, which {what}", tid.0, session.0));
        };
        let request = &pending.asked.request;
        if pending.executed.is_some() {
            return Err(format!("executes request {} of session {} twice: {request:?}", tid.0, session.0));
        }
        let Ok(reply) = &origin.outcome else {
            return Err(format!("changes something and fails with {:?}: {request:?}", origin.outcome));
        };
        let landed = pending.landing.as_ref().map(|landing| landing.start);
        let (made, offset, count) = given(request, reply, landed);
        if is_making(request, reply) && tree.node(made).is_some() {
            return Err(format!("gives out inode {} again: {request:?}", made.0));
        }
        if pending.asked.checked
            && let Some(why) = denied(tree, request, &pending.asked.cred)
        {
            return Err(format!("succeeds without permission ({why}): {request:?}"));
        }
        self.in_order(pending)?;
        self.after_others(pending, &origin.outcome)?;
        let op = Op { request, cred: &pending.asked.cred, wall, made, offset, count };
        let done = tree.run(&op);
        let answer = done.map_err(|errors| format!("succeeds but must fail with {errors:?}: {request:?}"))?;
        if is_making(request, reply) {
            self.is_first(made, (session, tid))?;
        }
        Ok(answer)
    }

    /// Nodes without a name that are not orphans any more are gone; nobody may have them open.
    fn purge(&self, tree: &mut Tree) -> Verdict {
        let nameless: Vec<Ino> = tree
            .nodes
            .values()
            .filter(|node| !node.is_dir() && node.nlink == 0)
            .map(|node| node.ino)
            .collect();
        let orphans = Ino::orphans(RankId(0));
        for ino in nameless {
            if self.records.dentries().any(|(dir, _, _, value)| dir == orphans && value.ino() == ino) {
                continue;
            }
            if let Some(session) = self.is_open(ino) {
                return Err(format!("inode {} is removed while session {} has it open", ino.0, session.0));
            }
            tree.nodes.remove(&ino);
        }
        Ok(())
    }

    fn touch(&mut self, undo: &Undo, end: Position) {
        for (key, old) in undo {
            let Key::Dentry { dir, .. } = key else { continue };
            self.touched.insert(*dir, end);
            for record in [old.as_ref(), self.records.0.get(key)].into_iter().flatten() {
                if let Some(value) = record.dentry.as_deref() {
                    self.touched.insert(value.ino(), end);
                }
            }
        }
    }
}

/// Whether a transaction is a user's: it states a dentry, or takes one out of a user's directory.
fn is_users(mutations: &[u8]) -> bool {
    Mutations::new(mutations).flatten().any(|mutation| match mutation {
        Mutation::PutDentry { .. } => true,
        Mutation::DelDentry { dir, .. } => dir != Ino::orphans(RankId(0)),
        _ => false,
    })
}

/// Whether a transaction may be what this request did, if it is a rename: then it changes both names. One name of an inode over
/// another does nothing; an unlink of one of them in the same step, later, would make it look as if it did.
fn renames(request: &Request, mutations: &[u8]) -> bool {
    let Request::Rename { parent, name, new_parent, new_name, .. } = request else { return true };
    let changes = |parent: Ino, named: &Name| {
        Mutations::new(mutations).flatten().any(|mutation| match mutation {
            Mutation::PutDentry { dir, name, .. } | Mutation::DelDentry { dir, name, .. } => {
                dir == parent && *name == *named.as_bytes()
            }
            _ => false,
        })
    };
    changes(parent.ino, name) && changes(new_parent.ino, new_name)
}

pub(crate) const fn is_making(request: &Request, reply: &Reply) -> bool {
    match request {
        Request::MkNod { .. } | Request::MkDir { .. } | Request::Symlink { .. } | Request::TmpFile { .. } => {
            true
        }
        Request::Create { .. } => matches!(reply, Reply::Created { new: true, .. }),
        every_request!() => false,
    }
}

/// POSIX leaves open whether a change to the present state touches the times.
pub(crate) const fn may_keep_times(request: &Request) -> bool {
    matches!(
        request,
        Request::Fallocate { .. } | Request::SetAttr { .. } | Request::Open { .. } | Request::Create { .. }
    )
}
