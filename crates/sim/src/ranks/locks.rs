//! Locks of callers: who holds which for certain, at whichever rank the file is by now; who lost some with its session and must be told;
//! that a waiter gets what is free, and that nobody's lock is left over.
//!
//! A lock is certain from its holder's having the answer until it asks to give it back, or until the rank that has the file ends the
//! session. That a move or a crash lies in between changes nothing.
//!
//! Absent: whether a refusal had a reason; deadlocks. The tables of what is certain (`model/locks.rs`).

use super::clients::Busy;
use super::event::Event;
use super::{Phase, Ranks};
use crate::model::judge::Verdict;
use crate::model::locks::Locks;
use client::{CallId, Input};
use proto::reply::{Outcome, Reply};
use proto::request::{LockKind, LockSpec, Request};
use proto::{Cred, Errno, Ino, NodeRef, every_request};
use std::collections::{BTreeMap, BTreeSet};
use stdx::time::SECOND;

/// Files whose locks a client asks for in the end.
const PROBES: usize = 4;

/// A call about locks that has no answer.
struct Call {
    client: usize,
    owner: (Ino, bool, u64),
    /// Another call about the same owner's locks was under way: nobody knows which came first.
    muddled: bool,
    /// Grants that were in the way of what is tested.
    in_the_way: BTreeSet<u64>,
}

/// What is known of everybody's locks.
#[derive(Default)]
pub(super) struct Book {
    /// By client.
    certain: Locks,
    /// As their holders see it, who have not heard that a rank has ended their session.
    believed: Locks,
    calls: BTreeMap<u64, Call>,
    /// Files on which a client has asked for locks.
    touched: BTreeMap<usize, BTreeSet<Ino>>,
    /// Files whose locks went with a session: what their bytes are asked for may fail, or must from that call on.
    may_fail: BTreeSet<(usize, Ino)>,
    must_fail: BTreeMap<(usize, Ino), u64>,
    /// In the end: what each client asks a lock for; none yet.
    probes: Option<Vec<Vec<NodeRef>>>,
}

impl Ranks {
    /// A lock, or a test, or an unlock: of a file that is open, as kernels do it, and which somebody has locked, as often as not.
    pub(super) fn lock_request(&mut self, client: usize) -> Option<Request> {
        let slot = &mut self.clients[client];
        let locked: BTreeSet<Ino> = self.book.certain.files().collect();
        let open = &slot.known.opens;
        let hot: Vec<NodeRef> = open.iter().filter(|node| locked.contains(&node.ino)).copied().collect();
        let of = if hot.is_empty() || self.rng.chance(1, 2) { open } else { &hot };
        let node = of.get(self.rng.index(of.len())).copied();
        self.workload.lock_at(node, &mut slot.known)
    }

    /// What a caller asks for in place of a close: with the last of them its locks of the file go first, and while one is waited for
    /// there is none.
    pub(super) fn closes(&mut self, client: usize, request: Request) -> Option<Request> {
        let Request::Release { node, .. } = &request else { return Some(request) };
        let (node, slot) = (*node, &mut self.clients[client]);
        if self.plan.lock_one_in == 0 || slot.known.opens.iter().any(|open| open.ino == node.ino) {
            return Some(request);
        }
        let waits = self.book.calls.values().any(|call| (call.client, call.owner.0) == (client, node.ino));
        let held = slot.known.locks.iter().find(|(at, _)| at.ino == node.ino).map(|(_, lock)| *lock);
        if !waits && held.is_none() {
            return Some(request);
        }
        slot.known.opens.push(node);
        let LockSpec { flock, owner, .. } = held.filter(|_| !waits)?;
        slot.known.locks.retain(|(at, lock)| (at.ino, lock.flock, lock.owner) != (node.ino, flock, owner));
        Some(Request::ReleaseLocks { node, flock, owner })
    }

    /// A call is about to be made.
    pub(super) fn lock_asked(&mut self, client: usize, call: CallId, request: &Request) {
        if let Request::Release { node, .. } = request {
            self.book.must_fail.remove(&(client, node.ino));
        }
        let Some(owner) = lock_owner(request) else { return };
        let (holder, book) = (client as u64, &mut self.book);
        let mut in_the_way = BTreeSet::new();
        match request {
            Request::SetLock { node, lock, wait } => {
                [&mut book.certain, &mut book.believed]
                    .into_iter()
                    .for_each(|locks| locks.leaving(holder, node.ino, lock));
                book.touched.entry(client).or_default().insert(node.ino);
                if *wait {
                    let longest = if self.rng.chance(2, 3) { SECOND } else { 10 * SECOND };
                    let birth = self.clients[client].birth;
                    self.after(longest, Event::Interrupt { client, birth, call: call.0 });
                }
            }
            Request::ReleaseLocks { node, flock, owner } => [&mut book.certain, &mut book.believed]
                .into_iter()
                .for_each(|locks| locks.leaving_all(holder, node.ino, *flock, *owner)),
            Request::TestLock { node, lock } => in_the_way = book.certain.in_the_way(holder, node.ino, lock),
            every_request!() => {}
        }
        let mut muddled = false;
        if !matches!(request, Request::TestLock { .. }) {
            let others = self.book.calls.values_mut();
            for other in others.filter(|other| (other.client, other.owner) == (client, owner)) {
                (other.muddled, muddled) = (true, true);
            }
        }
        self.book.calls.insert(call.0, Call { client, owner, muddled, in_the_way });
    }

    pub(super) fn interrupt(&mut self, client: usize, birth: u64, call: u64) -> Verdict {
        let slot = &self.clients[client];
        // In the end every lock is given back: who waits gets his.
        if slot.birth != birth || self.phase != Phase::Faults || !slot.busy.contains_key(&CallId(call)) {
            return Ok(());
        }
        self.step_client(client, Input::Interrupt { call: CallId(call) })
    }

    /// A caller has its answer.
    pub(super) fn lock_answered(
        &mut self,
        client: usize,
        call: CallId,
        busy: &Busy,
        outcome: &Outcome,
    ) -> Verdict {
        let request = &busy.asked.request;
        for ino in needs_locks(request) {
            let since = self.book.must_fail.get(&(client, ino));
            if outcome.is_ok() && since.is_some_and(|since| call.0 > *since) {
                return Err(format!(
                    "client {client} lost its locks of inode {} with its session, has it open, and is not told\n  request {request:?}",
                    ino.0
                ));
            }
        }
        let Some(asked) = self.book.calls.remove(&call.0) else { return Ok(()) };
        let holder = client as u64;
        match (request, outcome) {
            (Request::SetLock { node, lock, .. }, Err(errno)) => {
                // One like it may have been held before, and is so yet.
                let known = &mut self.clients[client].known.locks;
                let it = known.iter().position(|(at, held)| (at.ino, held) == (node.ino, lock));
                if let Some(it) = it {
                    known.swap_remove(it);
                }
                self.coverage.count(match *errno {
                    Errno::EINTR => "waits for locks interrupted",
                    Errno::EAGAIN => "locks refused",
                    Errno::EDEADLK => "deadlocks of locks found",
                    _ => "locks that came to nothing",
                });
            }
            (Request::SetLock { node, lock, wait }, Ok(_)) if lock.kind != LockKind::Unlock => {
                // It may have been given back before it was had.
                let known = &mut self.clients[client].known.locks;
                if !known.iter().any(|(at, held)| (at.ino, held) == (node.ino, lock)) {
                    known.push((*node, *lock));
                }
                self.coverage.count(if *wait { "locks granted to who waits" } else { "locks granted" });
                if busy.keys.iter().any(|(_, session, _)| self.judge.is_gone(*session)) {
                    return Ok(());
                }
                let locks = [&mut self.book.certain, &mut self.book.believed];
                if asked.muddled {
                    locks.into_iter().for_each(|locks| locks.leaving(holder, node.ino, lock));
                    return Ok(());
                }
                self.book.believed.put(holder, node.ino, *lock);
                return self.book.certain.granted(holder, node.ino, *lock);
            }
            (Request::TestLock { node, lock }, Ok(Reply::Lock(None))) => {
                let still = self.book.certain.in_the_way(holder, node.ino, lock);
                if still.intersection(&asked.in_the_way).next().is_some() {
                    return Err(format!("nothing is said to be in the way of a lock: {request:?}"));
                }
            }
            (Request::TestLock { .. }, Ok(_)) => self.coverage.count("locks shown to others"),
            (every_request!(), _) => {}
        }
        Ok(())
    }

    /// Whether a call may fail because its client lost locks with its session.
    pub(super) fn may_lack_locks(&self, client: usize, request: &Request, outcome: &Outcome) -> bool {
        let lost = |ino: &Ino| self.book.may_fail.contains(&(client, *ino));
        *outcome == Err(Errno::EIO) && needs_locks(request).iter().any(lost)
    }

    /// A client was told that its session is over.
    pub(super) fn locks_lost(&mut self, client: usize) {
        let book = &mut self.book;
        let believed: BTreeSet<Ino> = book.believed.files_of(client as u64).collect();
        book.certain.lost(client as u64);
        book.believed.lost(client as u64);
        let touched = book.touched.get(&client).into_iter().flatten();
        book.may_fail.extend(touched.map(|ino| (client, *ino)));
        let slot = &self.clients[client];
        let is_closing = |ino: Ino| {
            let release = |busy: &Busy| match &busy.asked.request {
                Request::Release { node, .. } => node.ino == ino,
                every_request!() => false,
            };
            slot.busy.values().any(release)
        };
        let open = slot.known.opens.iter().map(|node| node.ino);
        for ino in open.filter(|ino| believed.contains(ino) && !is_closing(*ino)) {
            self.coverage.count("locks lost with a session while open");
            book.must_fail.insert((client, ino), self.calls);
        }
    }

    /// A client was killed: others get its locks when its session ends.
    pub(super) fn locks_of_dead(&mut self, client: usize) {
        let book = &mut self.book;
        book.certain.lost(client as u64);
        book.believed.lost(client as u64);
        book.calls.retain(|_, call| call.client != client);
        book.may_fail.retain(|(of, _)| *of != client);
        book.must_fail.retain(|(of, _), _| *of != client);
    }

    /// Of what a rank has locks go when it ends their session.
    pub(super) fn locks_follow(&mut self) {
        if !self.judge.has_ended_any() {
            return;
        }
        for (client, slot) in self.clients.iter().enumerate() {
            let Some(session) = slot.machine.as_ref().map(client::Router::session) else { continue };
            let files: Vec<Ino> = self.book.certain.files_of(client as u64).collect();
            for ino in files.into_iter().filter(|ino| self.judge.has_ended(*ino, session)) {
                self.coverage.count("locks that ended with their session");
                self.book.certain.lost_of(client as u64, ino);
            }
        }
    }

    /// In the end: nobody waits for a lock of what is gone. Kernels lock what is open, which does not go; callers here lock anything.
    pub(super) fn interrupts_in_vain(&mut self, client: usize) -> Verdict {
        let tree = self.judge.tree();
        let in_vain = |busy: &Busy| match &busy.asked.request {
            Request::SetLock { node, wait: true, .. } => tree.node(node.ino).is_none(),
            every_request!() => false,
        };
        let busy = self.clients[client].busy.iter();
        let calls: Vec<CallId> = busy.filter(|(_, busy)| in_vain(busy)).map(|(call, _)| *call).collect();
        calls.into_iter().try_for_each(|call| self.step_client(client, Input::Interrupt { call }))
    }

    /// In the end: gives a lock back that is not waited for. Whether there was one.
    pub(super) fn unlocks(&mut self, client: usize) -> Verdict<bool> {
        if self.plan.lock_one_in == 0 {
            return Ok(false);
        }
        let slot = &mut self.clients[client];
        let waits = |(node, lock): &(NodeRef, LockSpec)| {
            let same = |busy: &Busy| match &busy.asked.request {
                Request::SetLock { node: of, lock: asked, .. } => (of.ino, asked) == (node.ino, lock),
                every_request!() => false,
            };
            slot.busy.values().any(same)
        };
        let Some(at) = slot.known.locks.iter().position(|held| !waits(held)) else { return Ok(false) };
        let (node, lock) = slot.known.locks.swap_remove(at);
        let lock = LockSpec { kind: LockKind::Unlock, ..lock };
        self.start(client, "unlock", Cred::ROOT, Request::SetLock { node, lock, wait: false })?;
        Ok(true)
    }

    /// In the end, when all is given back: a lock of each file is to be had. Whether this client has to wait, or was given something to
    /// do.
    pub(super) fn probes_locks(&mut self, client: usize) -> Verdict<bool> {
        if self.plan.lock_one_in == 0 {
            return Ok(false);
        }
        if !self.book.calls.is_empty() || self.clients.iter().any(|slot| !slot.known.locks.is_empty()) {
            return Ok(true);
        }
        let mut probes = match self.book.probes.take() {
            Some(probes) => probes,
            None => (0..self.clients.len()).map(|client| self.files_to_probe(client)).collect(),
        };
        let left = probes.iter().any(|files| !files.is_empty());
        let node = probes.get_mut(client).and_then(Vec::pop);
        self.book.probes = Some(probes);
        if let Some(node) = node {
            let lock = LockSpec {
                flock: self.rng.chance(1, 2),
                owner: 3,
                kind: LockKind::Write,
                start: 0,
                end: u64::MAX,
                pid: 3,
            };
            self.coverage.count("locks asked for in the end");
            self.clients[client].known.locks.push((node, lock));
            self.start(client, "lock", Cred::ROOT, Request::SetLock { node, lock, wait: true })?;
        }
        Ok(left)
    }

    fn files_to_probe(&self, client: usize) -> Vec<NodeRef> {
        let tree = self.judge.tree();
        let touched: BTreeSet<Ino> = self.book.touched.values().flatten().copied().collect();
        let known = &self.clients[client].known;
        let there = |node: &&NodeRef| {
            touched.contains(&node.ino)
                && tree.node(node.ino).is_some_and(|node| node.nlink > 0)
                && !self.book.may_fail.contains(&(client, node.ino))
        };
        known.places.values().filter(there).take(PROBES).copied().collect()
    }
}

/// Whose locks on which file a request is about.
const fn lock_owner(request: &Request) -> Option<(Ino, bool, u64)> {
    match request {
        Request::SetLock { node, lock, .. } | Request::TestLock { node, lock } => {
            Some((node.ino, lock.flock, lock.owner))
        }
        Request::ReleaseLocks { node, flock, owner } => Some((node.ino, *flock, *owner)),
        every_request!() => None,
    }
}

/// The files of which a request may rely on locks.
fn needs_locks(request: &Request) -> Vec<Ino> {
    match request {
        Request::Read { node, .. }
        | Request::Write { node, .. }
        | Request::Fallocate { node, .. }
        | Request::Fsync { node, .. }
        | Request::SetLock { node, .. } => vec![node.ino],
        Request::CopyRange { source, target, .. } => vec![source.ino, target.ino],
        every_request!() => Vec::new(),
    }
}
