//! Answers: what left a rank against the states it may have seen.
//!
//! Absent: the order of transactions (`history.rs`).

use super::history::is_harmless;
use super::parts::evened;
use super::{Asked, Judge, Key, Origin, Pending, Sent, Step, is_lock_wait, policies, refusals};
use crate::model::judge::{Manner, Teller, Verdict, check_listing, check_reply};
use crate::model::rules::{Answer, Op, given};
use crate::model::tree::Tree;
use proto::attr::SetTime;
use proto::ids::SessionId;
use proto::name::name_hash;
use proto::reply::{Outcome, Reply};
use proto::request::{Request, open_flags};
use proto::{Errno, Ino, NodeRef, every_request};
use std::rc::Rc;
use stdx::Wall;

/// States of which each is looked at with each, for boundaries.
const HALVES_MAX: usize = 24;

impl Judge {
    /// An answer leaves a rank.
    pub(super) fn sent(&mut self, sent: &Sent) -> Verdict {
        self.answers += 1;
        if self.promises.rewrites.contains(&sent.key) {
            return Ok(());
        }
        match (&sent.outcome, sent.manner) {
            (_, Manner::Done) => return self.done(sent.key),
            (Err(Errno::ESHUTDOWN), _) if self.is_promised(&sent.key) => return Ok(()),
            (Err(errno), _) if self.is_promised(&sent.key) => return self.breaks_promise(sent.key, *errno),
            _ => {}
        }
        let Some(pending) = self.pending.get(&sent.key).cloned() else {
            let floor = self.floors.get(&(sent.key.0, sent.key.1)).copied().unwrap_or_default();
            return if sent.key.2 < floor || self.knows(sent.key) {
                Ok(())
            } else {
                Err(format!("answers {:?}, which nobody asked for", sent.key))
            };
        };
        let judged = match &pending.executed {
            Some((outcome, _)) if *outcome != sent.outcome => {
                Err(format!("answers but executed {outcome:?}"))
            }
            Some((_, end)) if self.ranks.get(&sent.key.0).is_none_or(|journal| journal.durable < *end) => {
                self.before_durable(sent.key, *end, sent.manner)
            }
            Some(_) => Ok(()),
            None if pending.gone => Ok(()),
            None => self.unexecuted(sent.key, &pending, &sent.outcome),
        };
        judged.map_err(|error| {
            format!(
                "{error}\n  of {:?}\n  request {:?}\n  answer {:?}",
                sent.key, pending.asked.request, sent.outcome
            )
        })?;
        if let Ok(Reply::Created { attr, .. }) = &sent.outcome {
            self.answered.entry(sent.key.0).or_default().insert(attr.ino);
        }
        self.tells_guest(sent.key, &pending.asked, &sent.outcome);
        if let Request::Open { flags, .. } | Request::Create { flags, .. } = &pending.asked.request
            && open_flags::writes(*flags)
            && let Ok(Reply::Attr(attr) | Reply::Created { attr, .. }) = &sent.outcome
        {
            self.opened.push((sent.key.1, attr.ino));
        }
        if let Some(pending) = self.pending.get_mut(&sent.key) {
            pending.answered = Some(sent.outcome.clone());
        }
        Ok(())
    }

    /// Whether a rank that lives again may take something that a request gives another name for open: nobody here knows when that ends.
    fn may_be_kept(&self, pending: &Pending) -> bool {
        let named = |tree: &Tree| {
            let at = |dir: Ino, name: &proto::Name| tree.node(dir)?.entries.get(name.as_bytes()).copied();
            match &pending.asked.request {
                Request::Rename { parent, name, new_parent, new_name, .. } => {
                    [at(parent.ino, name), at(new_parent.ino, new_name)]
                }
                Request::Link { node, .. } => [Some(node.ino), None],
                every_request!() => [None, None],
            }
        };
        let mut inos = self.states(pending.first).flat_map(|(_, tree)| named(tree)).flatten();
        inos.any(|ino| self.kept.contains(&ino))
    }

    /// A caller has its answer: the one that a rank gave it, or the client's own.
    pub(in crate::ranks) fn heard(
        &mut self,
        session: SessionId,
        keys: &[Key],
        asked: &Asked,
        outcome: &Outcome,
    ) -> Verdict {
        let since = asked.call.and_then(|call| self.begun.get(&call)).copied().unwrap_or(self.first);
        let judged = self.takes((session, keys), since, asked, outcome);
        let judged = judged.and_then(|()| match outcome {
            Ok(_) => self.sync_heard(session, asked),
            Err(_) => Ok(()),
        });
        self.call_is_over(asked);
        judged
    }

    /// A caller has its answer, and nobody asks what it saw.
    pub(in crate::ranks) fn call_is_over(&mut self, asked: &Asked) {
        if let Some(call) = asked.call {
            self.begun.remove(&call);
            self.promises.begun.remove(&call);
        }
        self.prune();
    }

    fn takes(
        &mut self,
        (session, keys): (SessionId, &[Key]),
        since: u64,
        asked: &Asked,
        outcome: &Outcome,
    ) -> Verdict {
        let told = |key: &Key| self.pending.get(key).and_then(|pending| pending.answered.as_ref());
        let answers: Vec<&Outcome> = keys.iter().filter_map(told).collect();
        if matches!((&asked.request, outcome), (Request::Create { .. }, Err(Errno::EXDEV))) {
            return Err(format!("a caller hears of the ranks\n  request {:?}", asked.request));
        }
        let own = !answers.contains(&outcome) && !self.is_opened_elsewhere(keys, since, asked, outcome);
        let lost = keys.iter().any(|(_, session, _)| self.gone.contains(session));
        for key in keys {
            if lost {
                // It may still take its course.
                self.pending.entry(*key).and_modify(|pending| pending.gone = true);
            } else {
                self.pending.remove(key);
                self.over.insert(*key);
            }
        }
        // With its session a client loses the answers of what it had asked for.
        let excused = asked.call.is_some_and(|call| self.excused.remove(&call));
        if !own || excused || (lost && *outcome == Err(Errno::EIO)) {
            return Ok(());
        }
        self.own += 1;
        let judged = self.of_the_clients_own(session, since, asked, outcome).map_err(|error| {
            format!("a client says by itself: {error}\n  request {:?}\n  answer {outcome:?}", asked.request)
        });
        if judged.is_err()
            && let Some(why) =
                outcome.as_ref().err().and_then(|errno| refusals::legal_of_client(&asked.request, *errno))
        {
            *self.refused.entry(why).or_default() += 1;
            return Ok(());
        }
        judged
    }

    /// Whether a file that a name led to was opened where it is, by another request of that call.
    fn is_opened_elsewhere(&self, keys: &[Key], since: u64, asked: &Asked, outcome: &Outcome) -> bool {
        let (Request::Create { parent, name, .. }, Ok(Reply::Created { attr, new: false })) =
            (&asked.request, outcome)
        else {
            return false;
        };
        let opened = Some(Ok(Reply::Attr(*attr)));
        let was_opened = keys.iter().filter_map(|key| self.pending.get(key)).any(|pending| {
            matches!(pending.asked.request, Request::Open { .. }) && pending.answered == opened
        });
        let leads = |tree: &Tree| {
            let dir = tree.node(parent.ino);
            dir.and_then(|dir| dir.entries.get(name.as_bytes())) == Some(&attr.ino)
        };
        was_opened && self.states(since).any(|(_, tree)| leads(tree))
    }

    /// What a client answers by itself: from what it was granted, or because no rank has it.
    fn of_the_clients_own(
        &self,
        session: SessionId,
        since: u64,
        asked: &Asked,
        outcome: &Outcome,
    ) -> Verdict {
        if matches!(outcome, Err(Errno::ESTALE)) && self.may_be_gone(asked) {
            return Ok(());
        }
        if outcome.as_ref().err().is_some_and(|errno| refusals::lock_may_fail(&asked.request, *errno)) {
            return Ok(());
        }
        if self.promises.eager.contains(&session) {
            return self.answers_itself(session, since, asked, outcome);
        }
        // What a limited client knows to be absent it goes on knowing when its directory has moved out, until that is recalled.
        let knows_absent = matches!((&asked.request, outcome), (Request::Lookup { .. }, Err(Errno::ENOENT)));
        let asked = &Asked { guest: asked.guest.filter(|_| !knows_absent), ..asked.clone() };
        let mut why = String::from("no state to compare with");
        for (_, tree) in self.states(since).rev() {
            match self.fits(tree, asked, outcome, Teller::Client) {
                Ok(()) => return Ok(()),
                Err(error) => why = error,
            }
        }
        Err(why)
    }

    /// A call begins: it sees nothing older than the newest state.
    pub(in crate::ranks) fn begins(&mut self, call: u64, request: &Request) {
        if !is_lock_wait(request) {
            self.begun.insert(call, self.last());
        }
        let clock = self.ticks();
        self.promises.begun.insert(call, clock);
    }

    /// A call's client lost the locks that it may rely on.
    pub(in crate::ranks) fn excuse_call(&mut self, call: u64) {
        self.excused.insert(call);
    }

    /// An answer without a transaction must fit a state since the request came, of which all that the rank did is durable.
    fn unexecuted(&mut self, key: Key, pending: &Pending, outcome: &Outcome) -> Verdict {
        let request = &pending.asked.request;
        self.is_kept_out(pending, outcome)?;
        if policies::is_change(request)
            && let Some(why) = refusals::legal_of_policy(request, outcome)
        {
            *self.refused.entry(why).or_default() += 1;
            return Ok(());
        }
        if outcome.as_ref().err().is_some_and(|errno| refusals::lock_may_fail(request, *errno)) {
            return Ok(());
        }
        // A rank that has everything may not have what another one has without a name.
        let copies = matches!(request, Request::CopyRange { .. });
        if let Err(errno) = outcome
            && (self.is_divided() || copies)
            && let Some(why) = refusals::legal(request, *errno, self.may_be_kept(pending))
        {
            *self.refused.entry(why).or_default() += 1;
            return Ok(());
        }
        if matches!(outcome, Err(Errno::ESTALE | Errno::ENOENT)) && self.may_be_gone(&pending.asked) {
            return Ok(());
        }
        if let (Request::Fsync { node, .. }, Ok(Reply::Ok)) = (request, outcome)
            && self.is_divided()
            && self.tree().node(node.ino).is_none()
        {
            // Of a directory that is gone the map may have an entry for a while, whose rank has its content: of nothing all is durable.
            return Ok(());
        }
        if let (Request::Seek { hole: false, .. }, Err(Errno::ENXIO)) = (request, outcome) {
            // Zeros that were never written are a hole.
            return Ok(());
        }
        // A refusal of what is outside of a limit shows nothing of it, and nothing is taken back from others for it.
        if pending.asked.guest.is_none() || !matches!(outcome, Err(Errno::EACCES)) {
            self.comes_in_order(key, pending, outcome)?;
        }
        let (mut why, teller) = (String::from("no state to compare with"), Teller::Rank(self.wall));
        let first = pending.first.max(self.shows_own(key, pending));
        for (number, tree) in self.states(first).rev() {
            if !self.is_durable(key.0, number) && !self.may_show(key, (number, tree), pending, outcome) {
                why = "only fits what is not durable".into();
                continue;
            }
            match self.fits(tree, &pending.asked, outcome, teller) {
                Ok(()) => return Ok(()),
                Err(error) => why = error,
            }
        }
        if self.fits_by_halves(pending, outcome) {
            self.parted += 1;
            return Ok(());
        }
        Err(why)
    }

    /// A boundary's attributes are told by two ranks, of which each says what it has: the content's part may be of another instant.
    fn fits_by_halves(&self, pending: &Pending, outcome: &Outcome) -> bool {
        let told = told_of(outcome);
        let boundaries: Vec<Ino> = told.into_iter().filter(|ino| self.was_boundary(*ino)).collect();
        if boundaries.is_empty() {
            return false;
        }
        let first = self.since_set(&boundaries, pending.first);
        let parts = self.parts(&boundaries, first, None);
        let states: Vec<&Tree> = self.states(first).rev().take(HALVES_MAX).map(|(_, tree)| tree).collect();
        let halves = states.iter().flat_map(|home| states.iter().map(move |content| (home, content)));
        let set = self.told_as_set(outcome, pending.first);
        halves.into_iter().any(|(home, content)| {
            [(false, None), (true, None), (false, set)].into_iter().any(|(later, set)| {
                let mut tree = (*home).clone();
                boundaries.iter().for_each(|ino| take_content(&mut tree, content, *ino, later));
                if let Some((ino, time)) = set.filter(|(ino, _)| tree.node(*ino).is_some()) {
                    tree.change(ino).mtime = time;
                }
                let outcome = evened(&parts, &tree, outcome);
                self.fits(&tree, &pending.asked, &outcome, Teller::Rank(self.wall)).is_ok()
            })
        })
    }

    /// A time that is being set is set in two steps: in between either one is told.
    fn since_set(&self, boundaries: &[Ino], first: u64) -> u64 {
        let setting = self.pending.values().filter(|other| match &other.asked.request {
            Request::SetAttr { node, set } => set.mtime.is_some() && boundaries.contains(&node.ino),
            every_request!() => false,
        });
        setting.map(|other| other.first).chain([first]).min().unwrap_or(first)
    }

    /// A boundary of which a time is told that is being set, or was since that state, though who set it may have heard so before: its content's
    /// owner has it, and what changed there since is not told yet.
    fn told_as_set(&self, outcome: &Outcome, first: u64) -> Option<(Ino, Wall)> {
        let Ok(Reply::Attr(attr)) = outcome else { return None };
        let sets = |request: &Request, done: Option<Wall>| match request {
            Request::SetAttr { node, set } => {
                let is_it = match set.mtime {
                    Some(SetTime::At(time)) => time == attr.mtime,
                    // Its home's instant, which is later than the one that the content was told.
                    Some(SetTime::Now) => done.map_or(attr.mtime == attr.ctime, |wall| wall == attr.mtime),
                    None => false,
                };
                node.ino == attr.ino && is_it
            }
            every_request!() => false,
        };
        let steps = self.line.iter().skip(first.saturating_sub(self.first) as usize);
        let mut done = steps.filter_map(|step| Some((&step.origin.as_ref()?.asked.request, step.wall)));
        let is_set = self.was_boundary(attr.ino)
            && (self.pending.values().any(|other| sets(&other.asked.request, None))
                || done.any(|(request, wall)| sets(request, Some(wall))));
        is_set.then_some((attr.ino, attr.mtime))
    }

    /// A file without a name may be gone at any moment; and what a crash moved back is not where its client looks for it.
    pub(super) fn may_be_gone(&self, asked: &Asked) -> bool {
        nodes_of(&asked.request).into_iter().any(|node| {
            let nameless =
                |tree: &Tree| tree.node(node.ino).is_none_or(|node| !node.is_dir() && node.nlink == 0);
            nameless(self.tree()) || self.is_misled(node)
        })
    }

    fn is_misled(&self, reference: NodeRef) -> bool {
        let there = self.tree().node(reference.parent).is_some_and(|dir| {
            let named = |(name, ino): (&Rc<[u8]>, &Ino)| {
                *ino == reference.ino && name_hash(&self.seed, name) == reference.hash
            };
            dir.entries.iter().any(named)
        });
        self.displaced.contains(&reference.ino) && !there
    }

    pub(super) fn fits(&self, state: &Tree, asked: &Asked, outcome: &Outcome, teller: Teller) -> Verdict {
        if self.is_within(state, asked, outcome)? {
            return Ok(());
        }
        let mut tree = state.clone();
        let (made, offset, count) = match outcome {
            Ok(reply) => given(&asked.request, reply, None),
            Err(_) => (Ino::NONE, 0, 1),
        };
        let op = Op { request: &asked.request, cred: &asked.cred, wall: Wall(0), made, offset, count };
        match (policies::run(&mut tree, &op).unwrap_or_else(|| tree.run(&op)), outcome) {
            (Err(errors), Err(errno)) if errors.contains(errno) => Ok(()),
            (Err(errors), _) => Err(format!("must fail with {errors:?}")),
            (Ok(answer), Err(_)) => Err(format!("must succeed with {answer:?}")),
            (Ok(answer), Ok(reply)) => {
                let nothing = matches!(reply, Reply::Written { count: 0, .. });
                if !nothing && !is_harmless(&asked.request) && tree != *state {
                    return Err("answers without a transaction".into());
                }
                if let (Request::Read { node, offset, len, .. }, Reply::Data(found)) = (&asked.request, reply)
                {
                    let size = state.node(node.ino).map_or(0, |node| node.size);
                    let wanted = u64::from(*len).min(size.saturating_sub(*offset));
                    if found.bytes().len() as u64 != wanted {
                        return Err(format!("reads {} bytes instead of {wanted}", found.bytes().len()));
                    }
                }
                check_reply(state, &answer, reply, teller)?;
                check_listing(&self.seed, state, &asked.request, reply, teller)
            }
        }
    }

    /// The answer that is part of a transaction, against the state after it.
    pub(super) fn check_executed(&self, step: &Step, origin: &Origin, answer: &Answer) -> Verdict {
        let reply = match &origin.outcome {
            Ok(reply) => reply,
            Err(errno) => return Err(format!("executed and failed with {errno}")),
        };
        let teller = Teller::Rank(self.wall);
        let judged = check_reply(&step.tree, answer, reply, teller);
        let told = told_of(&origin.outcome).into_iter().find(|ino| self.was_boundary(*ino));
        let Some(dir) = told.filter(|_| judged.is_err()) else { return judged };
        if self.pending.get(&origin.key).is_some_and(|pending| pending.gone) {
            // Nobody hears it, and the states that the other ranks may have told are not kept for it.
            return Ok(());
        }
        let set = match &origin.asked.request {
            Request::SetAttr { set, .. } => set.mtime,
            every_request!() => None,
        };
        let first = self.pending.get(&origin.key).map_or(self.first, |pending| pending.first);
        let of_others = || self.told_as_set(&origin.outcome, first).map(|(_, time)| SetTime::At(time));
        let set = set.or_else(of_others);
        // Of a boundary the content's part was told by its owner before.
        let first = self.since_set(&[dir], first);
        let mut parts = self.parts(&[dir], first, Some(&step.tree));
        if let (Some(set), Some(parts)) = (set, parts.get_mut(&dir)) {
            parts.sets(if let SetTime::At(time) = set { time } else { step.wall });
        }
        let fits = self.states(first).any(|(_, content)| {
            [false, true].into_iter().any(|later| {
                let mut tree = step.tree.clone();
                take_content(&mut tree, content, dir, later);
                let Ok(reply) = &evened(&parts, &tree, &origin.outcome) else { return false };
                let by_content = check_reply(&tree, answer, reply, teller).is_ok();
                if let (Some(set), Reply::Attr(attr)) = (set, reply) {
                    let node = tree.change(dir);
                    node.mtime = if set == SetTime::Now { step.wall } else { attr.mtime };
                    let as_set = set == SetTime::Now || set == SetTime::At(attr.mtime);
                    return by_content || (as_set && check_reply(&tree, answer, reply, teller).is_ok());
                }
                by_content
            })
        });
        if fits { Ok(()) } else { judged }
    }
}

/// What the owner of a directory's content says of it: names, times and counter of the listing. `later`: its time counts for the
/// inode's, too.
fn take_content(tree: &mut Tree, content: &Tree, ino: Ino, later: bool) {
    let Some(from) = content.node(ino).cloned().filter(|_| tree.node(ino).is_some()) else { return };
    let node = tree.change(ino);
    (node.entries, node.listing, node.mtime) = (from.entries, from.listing, from.mtime);
    if later {
        node.ctime = from.ctime;
    }
    let children: Vec<Ino> = node.entries.values().copied().collect();
    for child in children.into_iter().filter(|child| content.node(*child).is_some()) {
        if tree.node(child).is_some() {
            continue;
        }
        if let Some(node) = content.nodes.get(&child) {
            tree.nodes.insert(child, Rc::clone(node));
        }
    }
}

/// Inodes whose attributes an answer tells.
fn told_of(outcome: &Outcome) -> Vec<Ino> {
    match outcome {
        Ok(Reply::Attr(attr) | Reply::Created { attr, .. }) => vec![attr.ino],
        Ok(Reply::Entries { entries, .. }) => entries.iter().map(|entry| entry.ino).collect(),
        _ => Vec::new(),
    }
}

/// The inodes that a request names by number, which fails when they are gone.
fn nodes_of(request: &Request) -> Vec<NodeRef> {
    match request {
        Request::CopyRange { source, target, .. } => vec![*source, *target],
        Request::Link { node, parent, .. } => vec![*node, *parent],
        Request::Rename { parent, new_parent, .. } => vec![*parent, *new_parent],
        every_request!() => request.subject().map(|(node, _)| node).into_iter().collect(),
    }
}
