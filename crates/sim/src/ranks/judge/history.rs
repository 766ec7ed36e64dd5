//! Entries of journals as steps of one history, and what a crash of one rank leaves of it.
//!
//! Absent: answers without a transaction (`answers.rs`); whose a step may be (`owners.rs`).

use super::numbers::Given;
use super::transactions::{Did, Transactions, promised};
use super::{Changed, Journal, Judge, Key, Origin, Sent, Step, policies, units};
use crate::model::compare::{compare, is_orphans};
use crate::model::judge::{Verdict, adopt, differing, is_making, may_keep_times, parents};
use crate::model::records::{Records, Undo};
use crate::model::rules::{Answer, Op, given};
use crate::model::tree::Tree;
use proto::cluster::Unit;
use proto::dentry::DentryValue;
use proto::ids::{Position, RankId};
use proto::journal::{Mutations, Payload, read_entry};
use proto::mutation::Mutation;
use proto::reply::{Outcome, Reply, decode_outcome};
use proto::request::Request;
use proto::system::session_flags;
use proto::transact::Change;
use proto::{Ino, Reader, every_request};
use std::collections::{BTreeMap, BTreeSet};
use stdx::Wall;
use stdx::hash::HashSeed;

/// Versions of directories, and change counters of inodes, that a step gave.
type Fresh = (Vec<Given<Unit>>, Vec<Given<Ino>>);

impl Judge {
    /// What one step of a rank appended and answered.
    pub(in crate::ranks) fn step(
        &mut self,
        rank: RankId,
        appends: &[(Position, &[u8])],
        sent: &[Sent],
    ) -> Verdict {
        for (position, bytes) in appends {
            let end = self.ranks.entry(rank).or_default().end;
            if *position != end {
                return Err(format!("rank {} appends at {} but ends at {}", rank.0, position.0, end.0));
            }
            let mut rest = *bytes;
            while !rest.is_empty() {
                let len = self.entry(rank, rest)?;
                rest = &rest[len..];
            }
        }
        sent.iter().try_for_each(|sent| self.sent(sent))
    }

    fn entry(&mut self, rank: RankId, bytes: &[u8]) -> Verdict<usize> {
        let Journal { end: at, durable, .. } = *self.ranks.entry(rank).or_default();
        let entry = read_entry(bytes, at).map_err(|error| format!("entry at {}: {error}", at.0))?;
        if entry.mark > durable {
            return Err(format!("entry at {} claims {} durable, not {}", at.0, entry.mark.0, durable.0));
        }
        let end = Position(at.0 + entry.len as u64);
        if let Payload::Transaction { wall, origin, mutations, .. } = entry.payload {
            let origin = match origin {
                Some(origin) => {
                    let outcome = decode_outcome(&mut Reader::new(origin.result))
                        .map_err(|error| format!("result at {}: {error}", at.0))?;
                    let key = (rank, origin.session, origin.tid);
                    self.sessions.may_change(rank, origin.session)?;
                    let asked = self.may_execute(key, &outcome)?;
                    Some(Origin { key, outcome, asked })
                }
                None => None,
            };
            self.sessions.take(rank, end, mutations);
            let what = |error| format!("transaction of rank {} at {}: {error}", rank.0, at.0);
            let (mutations, turned) = units::outer(mutations, &self.records).map_err(what)?;
            self.spreads += turned.spreads.len() as u64;
            self.merges += turned.merges.len() as u64;
            self.transaction(rank, end, wall, origin, &mutations).map_err(what)?;
            let state = self.last();
            self.merged.extend(turned.merges.into_iter().map(|(dir, spread)| (dir, (state, spread))));
            let journal = self.ranks.entry(rank).or_default();
            journal.log.push_back((at, end, mutations));
        }
        self.ranks.entry(rank).or_default().end = end;
        Ok(entry.len)
    }

    /// What was asked for, once.
    fn may_execute(&self, key: Key, outcome: &Outcome) -> Verdict<super::Asked> {
        let Some(pending) = self.pending.get(&key) else {
            return Err(format!("executes {key:?}, which nobody waits for"));
        };
        if pending.executed.is_some() {
            return Err(format!("executes {key:?} twice: {:?}", pending.asked.request));
        }
        if let Some(call) = pending.asked.call
            && let Some(other) = self.calls.get(&call)
        {
            return Err(format!("call {call} is carried out as {other:?} and as {key:?}"));
        }
        self.in_order(key, pending)?;
        self.after_others(key, pending, outcome)?;
        Ok(pending.asked.clone())
    }

    fn transaction(
        &mut self,
        rank: RankId,
        end: Position,
        wall: Wall,
        origin: Option<Origin>,
        mutations: &[u8],
    ) -> Verdict {
        self.transactions += 1;
        let before = self.tree().clone();
        let mut step = Step {
            rank,
            end,
            wall,
            mutations: mutations.to_vec(),
            origin,
            undo: Undo::new(),
            tree: before.clone(),
            timed: None,
            versions: Vec::new(),
            changes: Vec::new(),
            decides: false,
            facts: BTreeSet::new(),
            needs: end,
            past: wall < self.wall,
        };
        self.sessions_of(rank, end, mutations)?;
        step.timed = self.timed(&step)?;
        let did = self.open.apply(step.at(), mutations, Some(&self.durable_ends()))?;
        let wanted = step.origin.is_some() || !did.carries.is_empty();
        if !wanted && (did.commits.is_some() || is_users(mutations)) && !is_spent_cut(&before, mutations) {
            let list: Vec<_> = Mutations::new(mutations).flatten().collect();
            return Err(format!("nobody asked for it: {list:?}"));
        }
        self.keeps_limit(&step)?;
        self.kept_limit(&step)?;
        let answer = apply(&mut step, (&mut self.records, &self.open, &did), &self.seed)?;
        if let Some(origin) = &step.origin {
            self.made_again(origin.key);
            self.number_is_first(origin)?;
        }
        (step.versions, step.changes) = self.fresh_versions(mutations, &did)?;
        step.decides = did.commits.is_some();
        let told = step.origin.as_ref().is_some_and(|origin| self.was_promised(&origin.key));
        self.check_made((rank, told), mutations, &before)?;
        self.owners.check(rank, mutations, &before, &step.tree)?;
        self.check_seal(rank, mutations)?;
        let request = step.origin.as_ref().map(|origin| origin.asked.request.clone());
        let (full, _) = self.open.complete(&self.records, &self.seed)?;
        compare(&full, &step.tree, &self.seed).map_err(|error| format!("{error} (after {request:?})"))?;
        self.across += u64::from(did.commits.is_some());
        self.struck.commits(did.commits, request.as_ref(), &before);
        self.released += did.released;
        self.note_changed(&step, &before);
        self.note_undurable(&mut step, &before);
        if let Some(origin) = &step.origin {
            self.opens_for_guest(&origin.asked, &origin.outcome);
            let clock = self.ticks();
            if let Some(answer) = &answer {
                self.check_executed(&step, origin, answer)
                    .map_err(|error| format!("{error} (to {request:?})"))?;
            }
            self.keeps_promise(&step, origin, &before)?;
            if let Some(pending) = self.pending.get_mut(&origin.key) {
                pending.first_at.get_or_insert(clock);
                pending.executed = Some((origin.outcome.clone(), end));
                if let Ok(Reply::Attr(attr) | Reply::Created { attr, .. }) = &origin.outcome {
                    self.answered.entry(rank).or_default().insert(attr.ino);
                }
            }
            if let Some(call) = origin.asked.call {
                self.calls.insert(call, origin.key);
            }
        }
        self.line.push_back(step);
        self.prune();
        Ok(())
    }

    /// What a step changed of what clients are told.
    fn note_changed(&mut self, step: &Step, before: &Tree) {
        let inos = differing(before, &step.tree);
        if !inos.is_empty() {
            let origin = step.origin.as_ref();
            let (author, call) = (origin.map(|of| of.key.1), origin.and_then(|of| of.asked.call));
            self.changed.push(Changed { author, call, inos });
        }
    }

    /// Sessions that end at a rank, and numbers that are delegated to them.
    fn sessions_of(&mut self, rank: RankId, end: Position, mutations: &[u8]) -> Verdict {
        for mutation in Mutations::new(mutations).flatten() {
            match mutation {
                Mutation::Session { id, open: false, .. } => self.gives_up(rank, id),
                Mutation::SessionFlags { id, flags } if flags & session_flags::EVICTED != 0 => {
                    self.gives_up(rank, id);
                }
                Mutation::DelegateInos { id, first, count } => {
                    self.delegates_inos((rank, id), first, count, end)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The boundary whose times this step sets: the content's first, by its owner, for a request that its home has; then the inode's.
    fn timed(&self, step: &Step) -> Verdict<Option<Ino>> {
        let sets = |request: &Request| match request {
            Request::SetAttr { node, set } if set.mtime.is_some() && self.is_boundary(node.ino) => {
                Some(node.ino)
            }
            every_request!() => None,
        };
        if let Some(origin) = &step.origin {
            return Ok(sets(&origin.asked.request));
        }
        let list: Vec<Mutation<'_>> = Mutations::new(&step.mutations).flatten().collect();
        let [Mutation::PutHeader { dir, .. }] = list[..] else { return Ok(None) };
        let wanted = |pending: &super::Pending| {
            pending.executed.is_none() && sets(&pending.asked.request) == Some(dir)
        };
        if dir.is_reserved() || self.pending.values().any(wanted) {
            return Ok(Some(dir).filter(|dir| !dir.is_reserved()));
        }
        Ok(None)
    }

    /// Of each directory and inode that a transaction touches.
    fn fresh_versions(&mut self, mutations: &[u8], did: &Did) -> Verdict<Fresh> {
        let (mut versions, mut changes) = (BTreeMap::new(), BTreeMap::new());
        for mutation in Mutations::new(mutations).flatten() {
            match mutation {
                Mutation::PutHeader { dir, frag, version, .. } => {
                    versions.insert(Unit { dir, frag }, version.0);
                }
                Mutation::PutDentry { value, .. } => {
                    if let Ok(DentryValue::Primary(inode)) = DentryValue::decode(value) {
                        changes.insert(inode.core.ino, inode.core.change);
                    }
                }
                _ => {}
            }
        }
        // Counters that a transaction promises count when it is committed.
        let carried = promised(&[(RankId(0), did.carries.clone())]);
        changes.retain(|ino, number| carried.get(ino) != Some(number));
        if let Some(id) = did.commits {
            changes.extend(promised(&self.decided(id)));
        }
        Ok((self.versions.give(versions)?, self.changes.give(changes)?))
    }

    /// What is decided is told to nobody before it is durable, nor what is done with it then: a decision that is lost gave its numbers
    /// to nobody, and the inode's home goes on from what it has.
    fn take_back_numbers(&mut self, lost: &[&Step]) {
        let (mut unseen, mut told) = (BTreeSet::new(), Vec::new());
        for step in lost {
            for given in &step.changes {
                if step.decides {
                    unseen.insert(given.of);
                }
                told.push(!unseen.contains(&given.of));
            }
        }
        for step in lost.iter().rev() {
            step.versions.iter().for_each(|given| self.versions.take_back(given, true));
            for given in step.changes.iter().rev() {
                self.changes.take_back(given, told.pop().unwrap_or(true));
            }
        }
    }

    /// A rank lives again on a journal that ends there: what it did behind that never happened. What others did since they did
    /// without it.
    pub(in crate::ranks) fn recovered(&mut self, rank: RankId, end: Position) -> Verdict {
        self.kept.extend(self.answered.remove(&rank).unwrap_or_default());
        let journal = self.ranks.entry(rank).or_default();
        if end < journal.durable {
            return Err(format!(
                "the journal of rank {} ends at {} but {} was durable",
                rank.0, end.0, journal.durable.0
            ));
        }
        journal.log.retain(|(_, last, _)| *last <= end);
        (journal.end, journal.durable) = (end, end);
        self.check_synced(rank, end)?;
        self.owners.forget_seal(rank);
        self.sessions.lives_again(rank, end);
        let is_gone = |step: &Step| step.rank == rank && step.end > end;
        let gone: Vec<u64> =
            (self.first + 1..).zip(&self.line).filter(|(_, step)| is_gone(step)).map(|(at, _)| at).collect();
        if gone.is_empty() {
            self.recovered_promises(rank, end, &gone);
            self.prune();
            return Ok(());
        }
        let line = std::mem::take(&mut self.line);
        self.take_back_numbers(&line.iter().filter(|step| is_gone(step)).collect::<Vec<_>>());
        self.line = line;
        let names = self.tree().names();
        let (mut records, mut tree, mut open) = self.base.clone();
        let mut kept = std::collections::VecDeque::new();
        for mut step in std::mem::take(&mut self.line) {
            if is_gone(&step) {
                if let Some(origin) = &step.origin {
                    origin.asked.call.map(|call| self.calls.remove(&call));
                    self.pending.get_mut(&origin.key).map(|pending| pending.executed.take());
                }
                continue;
            }
            step.tree = tree;
            self.keeps_limit(&step)?;
            let did = open.apply(step.at(), &step.mutations, None);
            did.and_then(|did| apply(&mut step, (&mut records, &open, &did), &self.seed)).map_err(
                |error| {
                    format!(
                        "rank {} did what depends on what a crash of rank {} took back: {error}",
                        step.rank.0, rank.0
                    )
                },
            )?;
            tree = step.tree.clone();
            kept.push_back(step);
        }
        (self.line, self.records, self.open) = (kept, records, open);
        let (full, _) = self.open.complete(&self.records, &self.seed)?;
        compare(&full, self.tree(), &self.seed)
            .map_err(|error| format!("without what a crash of rank {} took back: {error}", rank.0))?;
        let left = self.tree().names();
        self.displaced
            .extend(names.iter().filter(|(ino, names)| left.get(ino) != Some(names)).map(|(ino, _)| *ino));
        self.recovered_promises(rank, end, &gone);
        let firsts = self.pending.values_mut().map(|pending| &mut pending.first);
        for first in firsts.chain(self.begun.values_mut()) {
            *first -= gone.iter().filter(|at| **at <= *first).count() as u64;
        }
        self.prune();
        Ok(())
    }
}

/// Executes what a step answers on its tree, and applies it to the records. `open`: what is not over after it.
fn apply(
    step: &mut Step,
    (records, open, did): (&mut Records, &Transactions, &Did),
    seed: &HashSeed,
) -> Verdict<Option<Answer>> {
    let answer = match &step.origin {
        Some(origin) => {
            let before = step.tree.clone();
            let answer = execute(&mut step.tree, origin, step.wall, &step.mutations)?;
            if step.past {
                keep_later(&mut step.tree, &before, &origin.asked.request, step.wall);
            }
            Some(answer)
        }
        None => None,
    };
    step.undo = records.apply(&step.mutations, true)?;
    let keeps = step.origin.as_ref().is_some_and(|origin| may_keep_times(&origin.asked.request));
    let (full, promised) = open.complete(records, seed)?;
    adopt(&mut step.tree, &full, &step.undo, keeps.then_some(step.wall));
    if did.commits.is_some() {
        let promised: Undo = promised.into_iter().map(|key| (key, None)).collect();
        adopt(&mut step.tree, &full, &promised, None);
    }
    for change in &did.carries {
        if let Change::Lose { ino, .. } = change {
            take_ctime(&mut step.tree, &full, *ino, step.wall);
        }
    }
    if let Some(dir) = step.timed {
        take_times(&mut step.tree, &full, dir);
    }
    purge(&mut step.tree, &full);
    Ok(answer)
}

/// A directory's times are the latest of its parts', and a rank that carries out what was told earlier knows only its own part's.
fn keep_later(tree: &mut Tree, before: &Tree, request: &Request, wall: Wall) {
    for old in parents(request).filter_map(|dir| before.node(dir)) {
        if old.mtime > wall && tree.node(old.ino).is_some_and(|node| node.mtime == wall) {
            let node = tree.change(old.ino);
            (node.mtime, node.ctime) = (old.mtime, old.ctime.max(wall));
        }
    }
}

/// An inode that loses a name at another rank says when that was carried out; nobody has seen it since it was committed.
fn take_ctime(tree: &mut Tree, records: &Records, ino: Ino, wall: Wall) {
    let later = records.dentries().any(|(_, _, _, value)| match value {
        DentryValue::Primary(inode) => inode.core.ino == ino && inode.core.ctime == wall,
        DentryValue::Remote { .. } => false,
    });
    if later && tree.node(ino).is_some_and(|node| node.ctime <= wall) {
        tree.change(ino).ctime = wall;
    }
}

/// A boundary's times are the later ones of its inode's and its content's.
fn take_times(tree: &mut Tree, records: &Records, dir: Ino) {
    let inode = records.dentries().find_map(|(_, _, _, value)| match value {
        DentryValue::Primary(inode) if inode.core.ino == dir => Some(&inode.core),
        _ => None,
    });
    if let (Some(core), Some(header), Some(_)) = (inode, records.totals(dir), tree.node(dir)) {
        let node = tree.change(dir);
        (node.mtime, node.ctime) = (core.mtime.max(header.mtime), core.ctime.max(header.mtime));
        node.floor = core.mtime;
    }
}

fn execute(tree: &mut Tree, origin: &Origin, wall: Wall, mutations: &[u8]) -> Verdict<Answer> {
    let request = &origin.asked.request;
    let Ok(reply) = &origin.outcome else {
        return Err(format!("changes something and fails with {:?}: {request:?}", origin.outcome));
    };
    let (made, offset, count) = given(request, reply, landed(request, reply, mutations));
    if is_making(request, reply) && tree.node(made).is_some() {
        return Err(format!("gives out inode {} again: {request:?}", made.0));
    }
    let op = Op { request, cred: &origin.asked.cred, wall, made, offset, count };
    policies::run(tree, &op)
        .unwrap_or_else(|| tree.run(&op))
        .map_err(|errors| format!("succeeds but must fail with {errors:?}: {request:?}"))
}

/// Where an append landed: as far as the size goes that it made, or below.
fn landed(request: &Request, reply: &Reply, mutations: &[u8]) -> Option<u64> {
    let (Request::Write { node, append: true, .. }, Reply::Written { count, .. }) = (request, reply) else {
        return None;
    };
    let sizes = Mutations::new(mutations).flatten().filter_map(|mutation| match mutation {
        Mutation::PutDentry { value, .. } => match DentryValue::decode(value) {
            Ok(DentryValue::Primary(inode)) if inode.core.ino == node.ino => Some(inode.core.size),
            _ => None,
        },
        _ => None,
    });
    sizes.last().map(|size| size.saturating_sub(*count))
}

/// Nodes without a name that are not orphans any more are gone.
fn purge(tree: &mut Tree, records: &Records) {
    let nameless = |ino: &Ino| tree.node(*ino).is_some_and(|node| !node.is_dir() && node.nlink == 0);
    let mut gone: BTreeSet<Ino> = tree.nodes.keys().copied().filter(nameless).collect();
    if gone.is_empty() {
        return;
    }
    for (dir, _, _, value) in records.dentries() {
        if is_orphans(dir) {
            gone.remove(&value.ino());
        }
    }
    gone.iter().for_each(|ino| drop(tree.nodes.remove(ino)));
}

/// Whether a transaction is a user's: it states a dentry, or takes one out of a user's directory.
fn is_users(mutations: &[u8]) -> bool {
    Mutations::new(mutations).flatten().any(|mutation| match mutation {
        Mutation::PutDentry { .. } => true,
        Mutation::DelDentry { dir, .. } => !is_orphans(dir),
        _ => false,
    })
}

/// The number of a cut that a failed operation used up, journaled: nothing that anybody sees changes.
fn is_spent_cut(tree: &Tree, mutations: &[u8]) -> bool {
    let mut cut = false;
    let unseen = Mutations::new(mutations).flatten().all(|mutation| match mutation {
        Mutation::PutHeader { .. } => true,
        Mutation::DataCut { .. } => {
            cut = true;
            true
        }
        Mutation::PutDentry { value, .. } => match DentryValue::decode(value) {
            Ok(DentryValue::Primary(inode)) => tree.node(inode.core.ino).is_some_and(|node| {
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

/// Requests that succeed without a transaction although the model changes something by them.
pub(super) const fn is_harmless(request: &Request) -> bool {
    match request {
        Request::Fallocate { .. } => true,
        every_request!() => false,
    }
}
