//! Answers: what left the rank against the state it may have seen.
//!
//! Absent: the order of transactions (`history.rs`).

use super::depends::asked_for;
use super::history::{Manner, Sent};
use super::order::parents;
use super::replies::{Teller, check_listing, check_reply};
use super::{Asked, Executed, Judge, Pending, State, Verdict};
use crate::model::rules::{Answer, Op, given};
use crate::model::tree::Tree;
use proto::ids::SessionId;
use proto::name::name_hash;
use proto::reply::{Outcome, Reply};
use proto::request::Request;
use proto::{Errno, Ino, NodeRef, every_request};
use std::collections::BTreeSet;
use std::rc::Rc;
use stdx::Wall;

impl Judge {
    /// An answer leaves the rank.
    pub(super) fn sent(&mut self, sent: &Sent) -> Verdict {
        self.answers += 1;
        let key = (sent.session, sent.tid);
        if self.rewritten(key, sent.outcome.is_ok()) {
            return Ok(());
        }
        match (&sent.outcome, sent.manner) {
            (_, Manner::Done) => return self.done(key),
            (Err(errno), _) if self.promises.contains_key(&key) => return self.breaks_promise(key, *errno),
            _ => {}
        }
        let Some(pending) = self.pending.get(&key).cloned() else {
            if self.answered.contains(&key) || self.promises.contains_key(&key) {
                return Ok(());
            }
            return Err(format!(
                "answers request {} of session {}, which nobody asked for",
                sent.tid.0, sent.session.0
            ));
        };
        let request = pending.asked.request.clone();
        let judged = match &pending.executed {
            Some(executed) => {
                if executed.outcome != sent.outcome {
                    return Err(format!(
                        "answers {:?} but executed {:?}: {request:?}",
                        sent.outcome, executed.outcome
                    ));
                }
                if sent.embedded || executed.end <= self.durable {
                    Ok(())
                } else {
                    self.before_durable(&pending, executed, sent)
                }
            }
            None => self.unexecuted(&pending, sent),
        };
        judged.map_err(|error| format!("{error}\n  request {request:?}\n  answer {:?}", sent.outcome))?;
        if matches!(request, Request::Fsync { .. } | Request::SyncFs) && sent.outcome.is_ok() {
            self.sync_answered(&pending)?;
        }
        if sent.outcome.is_err()
            && let Some(landing) = &pending.landing
        {
            self.failed_bytes(landing);
        }
        Ok(())
    }

    /// A transaction is answered before it is durable: to who presents it again, if it does not depend on others.
    fn before_durable(&self, pending: &Pending, executed: &Executed, sent: &Sent) -> Verdict {
        let end = executed.end;
        let Manner::Early { wall } = sent.manner else {
            return Err(format!("answers before {} is durable: {:?}", end.0, pending.asked.request));
        };
        if !self.eager.contains(&sent.session) {
            return Err(format!("answers session {} early, which does not want it", sent.session.0));
        }
        let needs = self.needs_of(end);
        if needs > self.durable {
            return Err(format!("answers early, before what others did up to {} is durable", needs.0));
        }
        if wall != executed.wall {
            return Err(format!("says that it was at {wall:?} instead of {:?}", executed.wall));
        }
        Ok(())
    }

    fn sync_answered(&mut self, pending: &Pending) -> Verdict {
        let ino = match &pending.asked.request {
            Request::Fsync { node, .. } => Some(node.ino),
            every_request!() => None,
        };
        let need = pending.need.max(self.sync_needs(pending, ino));
        if need > self.durable {
            return Err(format!("sync answered before {} is durable: {:?}", need.0, pending.asked.request));
        }
        self.synced(ino, pending.since);
        Ok(())
    }

    /// An answer without a transaction must fit a state since the request came; for others than the
    /// embedded client a durable one.
    fn unexecuted(&mut self, pending: &Pending, sent: &Sent) -> Verdict {
        let refused = matches!(sent.outcome, Err(Errno::EACCES | Errno::EPERM));
        let gone =
            matches!(sent.outcome, Err(Errno::ESTALE | Errno::ENOENT)) && self.may_be_gone(&pending.asked);
        if gone
            || pending.gone
            || (pending.asked.checked && refused)
            || self.is_excused(&pending.asked.request, &sent.outcome)
        {
            return Ok(());
        }
        if let (Request::Seek { node, offset, hole: false }, Err(Errno::ENXIO)) =
            (&pending.asked.request, &sent.outcome)
        {
            let size = self.window_sizes(pending, node.ino).max().unwrap_or(0);
            let bytes = self.bytes.entry(node.ino).or_default();
            if bytes.may_be_zero(*offset, size, pending.since) {
                return Ok(());
            }
        }
        // Who creates what is there opens it.
        let opens = matches!(pending.asked.request, Request::Open { .. } | Request::Create { .. })
            && sent.outcome.is_ok();
        if opens && self.opened.get(&(sent.session, sent.tid)) == Some(&sent.outcome) {
            return Ok(());
        }
        if !matches!(sent.outcome, Err(Errno::ESHUTDOWN | Errno::EBUSY)) {
            self.in_order(pending)?;
            // An open that a former life carried out, and whose answer was not heard, is remembered and not carried out again.
            let remembered = opens && pending.since < self.recovered_at;
            if !remembered && !asked_for(self.tree(), &pending.asked.request, &sent.outcome).is_empty() {
                self.after_others(pending, &sent.outcome)?;
            }
        }
        let skip = pending.first.max(self.shows_own(pending)).saturating_sub(self.first) as usize;
        let tree = self.state_of(&pending.asked, pending, sent, skip).or_else(|why| {
            let behind = self.listed_behind(pending, sent, skip).ok_or(why)?;
            self.state_of(&behind, pending, sent, skip)
        })?;
        if opens {
            self.opened.insert((sent.session, sent.tid), sent.outcome.clone());
        }
        self.check_bytes(pending, sent, &tree)
    }

    /// The tree of a state that the answer fits.
    fn state_of(&self, asked: &Asked, pending: &Pending, sent: &Sent, skip: usize) -> Verdict<Tree> {
        let mut why = String::from("no state to compare with");
        let landed = pending.landing.as_ref().map(|landing| landing.start);
        for state in self.states.iter().skip(skip).rev() {
            let durable = sent.embedded || state.end <= self.durable;
            if !durable && !self.may_show(sent.session, state, &asked.request, &sent.outcome) {
                why = "only fits what is not durable".into();
                continue;
            }
            match self.fits(state, asked, &sent.outcome, landed, Teller::Rank(self.wall)) {
                Ok(()) => return Ok(state.tree.clone()),
                Err(error) => why = error,
            }
        }
        Err(why)
    }

    /// The rank goes through a directory in stretches, and on behind one of which all names were removed while it was loaded. What
    /// was made there since a page does not show, as POSIX allows: what it lists is a page of what is behind. Not if a name was
    /// there all the time.
    fn listed_behind(&self, pending: &Pending, sent: &Sent, skip: usize) -> Option<Asked> {
        let (Request::ReadDir { dir, after, .. }, Ok(Reply::Entries { entries, .. })) =
            (&pending.asked.request, &sent.outcome)
        else {
            return None;
        };
        let last = entries.first().map_or(u64::MAX >> 1, |entry| entry.hash.cookie() - 1);
        let between = |state: &State| -> BTreeSet<Rc<[u8]>> {
            let names = state.tree.node(dir.ino).into_iter().flat_map(|node| node.entries.keys());
            let cookie = |name: &Rc<[u8]>| name_hash(&self.seed, name).cookie();
            names.filter(|name| (after + 1..=last).contains(&cookie(name))).cloned().collect()
        };
        let stayed = self.states.iter().skip(skip).map(between).reduce(|all, more| &all & &more)?;
        let mut asked = pending.asked.clone();
        if let Request::ReadDir { after, .. } = &mut asked.request {
            *after = last;
        }
        stayed.is_empty().then_some(asked)
    }

    /// A file without a name that this session does not hold open may be gone at any moment.
    pub(super) fn may_be_gone(&self, asked: &Asked) -> bool {
        let session = asked.session;
        nodes_of(&asked.request).into_iter().any(|node| {
            let ino = node.ino;
            let held = self.opens.get(&(session, ino)).is_some_and(|count| *count > 0);
            let nameless = self.tree().node(ino).is_none_or(|node| !node.is_dir() && node.nlink == 0);
            (!held && nameless) || self.is_misled(node)
        }) || parents(&asked.request)
            .chain(looked_into(&asked.request))
            .any(|ino| self.was_nameless(session, ino))
    }

    /// Whether a file is looked for where a crash took it away again. It is found at its places of now, and where it was moved to since.
    fn is_misled(&self, reference: NodeRef) -> bool {
        let there = match reference.parent {
            Ino::LINKS => self.tree().node(reference.ino).is_some_and(|node| node.nlink > 1),
            parent => self.tree().node(parent).is_some_and(|dir| {
                let named = |(name, ino): (&Rc<[u8]>, &Ino)| {
                    *ino == reference.ino && name_hash(&self.seed, name) == reference.hash
                };
                dir.entries.iter().any(named)
            }),
        };
        self.displaced.contains(&reference.ino) && !there
    }

    /// The same of what is taken for a directory and is none: that the rank has removed it may show at once.
    fn was_nameless(&self, session: SessionId, ino: Ino) -> bool {
        let nameless =
            |state: &State| state.tree.node(ino).is_some_and(|node| !node.is_dir() && node.nlink == 0);
        let held = self.opens.get(&(session, ino)).is_some_and(|count| *count > 0);
        !held && self.tree().node(ino).is_none() && self.states.iter().any(nameless)
    }

    fn is_excused(&self, request: &Request, outcome: &Outcome) -> bool {
        let locks = matches!(
            request,
            Request::SetLock { .. } | Request::TestLock { .. } | Request::ReleaseLocks { .. }
        );
        match outcome {
            Err(Errno::ENOSPC) => self.excuses.no_space,
            Err(Errno::EIO) => self.excuses.io,
            _ => locks,
        }
    }

    pub(super) fn fits(
        &self,
        state: &State,
        asked: &Asked,
        outcome: &Outcome,
        landed: Option<u64>,
        teller: Teller,
    ) -> Verdict {
        let mut tree = state.tree.clone();
        let (made, offset, count) = match outcome {
            Ok(reply) => given(&asked.request, reply, landed),
            Err(_) => (Ino::NONE, 0, 1),
        };
        let op = Op { request: &asked.request, cred: &asked.cred, wall: Wall(0), made, offset, count };
        match (tree.run(&op), outcome) {
            (Err(errors), Err(errno)) if errors.contains(errno) => Ok(()),
            (Err(errors), _) => Err(format!("must fail with {errors:?}")),
            (Ok(answer), Err(_)) => Err(format!("must succeed with {answer:?}")),
            (Ok(answer), Ok(reply)) => {
                if !is_harmless(&asked.request, reply) && tree != state.tree {
                    return Err("answers without a transaction".into());
                }
                check_reply(&state.tree, &answer, reply, teller)?;
                check_listing(&self.seed, &state.tree, &asked.request, reply, teller)
            }
        }
    }

    /// The answer that is part of a transaction, against the state after it.
    pub(super) fn check_executed(&self, outcome: &Outcome, answer: &Answer) -> Verdict {
        match outcome {
            Ok(reply) => check_reply(self.tree(), answer, reply, Teller::Rank(self.wall)),
            Err(errno) => Err(format!("executed and failed with {errno}")),
        }
    }

    /// The bytes a read or seek answers.
    fn check_bytes(&mut self, pending: &Pending, sent: &Sent, tree: &Tree) -> Verdict {
        let size = |ino: Ino| tree.node(ino).map_or(0, |node| node.size);
        match (&pending.asked.request, &sent.outcome) {
            (Request::Read { node, offset, len, .. }, Ok(Reply::Data(found))) => {
                let found = found.bytes();
                let wanted = u64::from(*len).min(size(node.ino).saturating_sub(*offset));
                if found.len() as u64 != wanted
                    && !self.other_size(pending, node.ino, *offset, *len, found.len())
                {
                    return Err(format!("reads {} bytes instead of {wanted}", found.len()));
                }
                self.check_read(node.ino, *offset, found, pending.since)
            }
            (Request::Seek { node, offset, hole }, Ok(Reply::Offset(found))) => {
                let sizes: BTreeSet<u64> = self.window_sizes(pending, node.ino).collect();
                let fits = sizes.iter().any(|size| {
                    self.check_seek(node.ino, (*offset, *hole), *found, *size, pending.since).is_ok()
                });
                if fits { Ok(()) } else { Err(format!("no such place; sizes {sizes:?}")) }
            }
            _ => Ok(()),
        }
    }

    fn window_sizes(&self, pending: &Pending, ino: Ino) -> impl Iterator<Item = u64> {
        let skip = pending.first.saturating_sub(self.first) as usize;
        self.states.iter().skip(skip).filter_map(move |state| state.tree.node(ino)).map(|node| node.size)
    }

    /// Whether another state of the window explains the length.
    fn other_size(&self, pending: &Pending, ino: Ino, offset: u64, len: u32, found: usize) -> bool {
        self.window_sizes(pending, ino)
            .any(|size| u64::from(len).min(size.saturating_sub(offset)) == found as u64)
    }
}

/// Requests that succeed without a transaction although the model changes something by them.
fn is_harmless(request: &Request, reply: &Reply) -> bool {
    match request {
        Request::Fallocate { .. } => true,
        Request::CopyRange { .. } | Request::Write { .. } => Judge::written(reply) == 0,
        every_request!() => false,
    }
}

/// What a request takes for a directory whose names it changes nothing of.
fn looked_into(request: &Request) -> Option<Ino> {
    match request {
        Request::Lookup { parent, .. } => Some(parent.ino),
        every_request!() => None,
    }
}

/// The files that a request names by number, which fails when they are gone.
fn nodes_of(request: &Request) -> Vec<NodeRef> {
    match request {
        Request::GetAttr { node }
        | Request::ReadDir { dir: node, .. }
        | Request::SetAttr { node, .. }
        | Request::Link { node, .. }
        | Request::ReadLink { node }
        | Request::Open { node, .. }
        | Request::Read { node, .. }
        | Request::Write { node, .. }
        | Request::Fallocate { node, .. }
        | Request::Seek { node, .. }
        | Request::Fsync { node, .. }
        | Request::GetXattr { node, .. }
        | Request::ListXattr { node }
        | Request::SetXattr { node, .. }
        | Request::RemoveXattr { node, .. } => vec![*node],
        Request::CopyRange { source, target, .. } => vec![*source, *target],
        every_request!() => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::records::Records;
    use proto::ids::Tid;
    use proto::request::{NewNode, open_flags};
    use proto::{Attr, Cred, Name, NameHash, Position};
    use stdx::hash::HashSeed;

    /// Each would send its client to where the file is not, or have it take old pages for new ones.
    #[test]
    fn what_the_rank_tells_wrongly_of_places_and_counters_is_noticed() {
        let mut judge = Judge::new(HashSeed([1; 16]), Records::default(), Wall(1));
        let (session, tid, node) = (SessionId(1), Tid(1), NodeRef::bare(Ino::ROOT));
        let asked = |request| {
            let (cred, pattern) = (Cred::ROOT, (0, 0));
            Asked { session, tid, cred, request, embedded: true, checked: false, pattern }
        };
        judge.asked(asked(Request::GetAttr { node }));
        let right = judge.tree().attr(judge.tree().node(Ino::ROOT).expect("it is there"));
        let mut answers = |reply| {
            let sent = Sent { session, tid, outcome: Ok(reply), embedded: true, manner: Manner::Plain };
            judge.step(&[], &[sent])
        };
        assert_eq!(answers(Reply::Attr(right)), Ok(()));
        for wrong in [
            Attr { change: right.change + 1, ..right },
            Attr { hash: NameHash(right.hash.0 + 1), ..right },
            Attr { parent: Ino(77), ..right },
            Attr { blocks: 1, ..right },
        ] {
            assert!(answers(Reply::Attr(wrong)).is_err(), "{wrong:?}");
        }
        assert!(answers(Reply::Ok).is_err(), "it is no answer to that");
    }

    /// What broke: a file that was open when it lost its name was closed, and then taken for a directory.
    #[test]
    fn a_file_without_a_name_may_be_gone_and_a_directory_is_not_gone_before_that_is_durable() {
        let (parent, made) = (NodeRef::bare(Ino::ROOT), Ino(4096));
        let name = || Name::new(b"a").expect("a name");
        let new = || NewNode { mode: 0o755, umask: 0, rdev: 0 };
        let file = [
            Request::Create { parent, name: name(), new: new(), flags: open_flags::RDWR },
            Request::Unlink { parent, name: name() },
        ];
        let directory =
            [Request::MkDir { parent, name: name(), new: new() }, Request::RmDir { parent, name: name() }];
        for (requests, gone) in [(file, true), (directory, false)] {
            let mut judge = Judge::new(HashSeed([1; 16]), Records::default(), Wall(1));
            let before = judge.tree().clone();
            let mut tree = before.clone();
            for (end, request) in requests.iter().enumerate() {
                let cred = &Cred::ROOT;
                tree.run(&Op { request, cred, wall: Wall(1), made, offset: 0, count: 1 })
                    .expect("it succeeds");
                judge.states.push_back(State { tree: tree.clone(), end: Position(1 + end as u64) });
            }
            judge.states.push_back(State { tree: before, end: Position(9) });
            let (session, tid, cred) = (SessionId(1), Tid(1), Cred::ROOT);
            let request = Request::Lookup { parent: NodeRef::bare(made), name: name() };
            let asked =
                Asked { session, tid, cred, request, embedded: false, checked: false, pattern: (0, 0) };
            assert_eq!(judge.may_be_gone(&asked), gone, "{requests:?}");
        }
    }
}
