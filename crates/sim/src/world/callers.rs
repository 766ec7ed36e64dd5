//! The callers above the clients: what they ask, what they do with the answer, how they come to an end.
//!
//! Absent: what is asked (`workload.rs`), whether the answers are right (`model/`).

use super::early::OwnAnswer;
use super::kernel::Taken;
use super::slot::Busy;
use super::{Event, Kind, Phase, Plan, World, fold};
use crate::model::judge::Verdict;
use crate::workload::Knowledge;
use client::{CallId, Input as ClientInput, Validity};
use mds::input::Input;
use proto::reply::{Outcome, Reply, encode_outcome};
use proto::request::{LockKind, LockSpec, Request, open_flags};
use proto::{Attr, Errno, Ino, NodeRef, Writer, every_request};
use stdx::time::SECOND;

/// Callers that wait look at what their kernel keeps this seldom at most, the more seldom the longer they have waited: some runs last a
/// thousand seconds, all but a few of them waited.
const IDLE_NS: u64 = SECOND / 50;

impl World {
    /// The callers' turn: one more call, then a pause.
    pub(super) fn call(&mut self, client: usize, birth: u64) -> Verdict {
        let slot = &mut self.clients[client];
        if slot.birth != birth || slot.machine.is_none() || self.phase != Phase::Faults {
            return Ok(());
        }
        let now = self.now;
        let waits =
            slot.busy.len() >= self.plan.calls_max || self.issued >= self.plan.operations || !slot.ready;
        if !waits {
            slot.called_at = now;
        }
        let idle = (now.saturating_sub(slot.called_at) / 8).min(IDLE_NS);
        self.after(self.plan.pause_ns.max(idle), Event::Call { client, birth });
        self.glance(client)?;
        if waits {
            return Ok(());
        }
        let slot = &mut self.clients[client];
        let about = |ino| {
            slot.busy.values().any(|busy| busy.request.subject().is_some_and(|(node, _)| node.ino == ino))
        };
        slot.known.awaits_it = slot.known.busy_with.is_some_and(|(node, _)| about(node.ino));
        let (kind, request) = loop {
            let seen = self.judge.seen_by(slot.session());
            let (kind, request) = self.workload.next(&mut slot.known, &seen);
            if self.readers.is_none_or(|readers| readers.contains(&kind)) {
                break (kind, request);
            }
        };
        let pattern = if matches!(request, Request::Write { .. }) { self.workload.last_write() } else { 0 };
        self.issued += 1;
        if self.answered_by_kernel(client, &request)? {
            return Ok(());
        }
        self.start(client, kind, request, pattern)
    }

    /// Hands a call to the machine.
    fn start(&mut self, client: usize, kind: &'static str, request: Request, pattern: u64) -> Verdict {
        self.calls += 1;
        let call = CallId(self.calls);
        let slot = &mut self.clients[client];
        let (holder, birth) = (slot.holder(), slot.birth);
        let session = slot.session();
        match (&request, session) {
            (Request::Release { node, .. }, Some(session)) => self.judge.releasing(session, node.ino),
            (Request::SetLock { node, lock, .. }, _) => self.locks.leaving(holder, node.ino, lock),
            (Request::ReleaseLocks { node, flock, owner }, _) => {
                self.locks.leaving_all(holder, node.ino, *flock, *owner);
            }
            _ => {}
        }
        if matches!(request, Request::SetLock { wait: true, .. }) {
            let longest = if self.rng.chance(2, 3) { 2 * SECOND } else { 30 * SECOND };
            self.after(longest, Event::Interrupt { client, birth, call: call.0 });
        }
        // What becomes of a lock is for its file's close to end, which killed callers do not do here.
        let may_be_killed = self.clients[client].kind != Kind::Embedded && lock_owner(&request).is_none();
        if self.plan.kill_callers && may_be_killed && self.rng.chance(1, 12) {
            self.after(4 * self.plan.message_ns, Event::Killed { client, birth, call: call.0 });
        }
        let cred = Plan::cred(self.clients[client].kind, &mut self.rng);
        let slot = &mut self.clients[client];
        let mut muddled = false;
        if let Some(owner) = lock_owner(&request) {
            for busy in slot.busy.values_mut().filter(|busy| lock_owner(&busy.request) == Some(owner)) {
                busy.muddled = true;
                muddled = true;
            }
        }
        slot.kernel.own_request(&request, call.0);
        let (begun, asked) = (self.judge.clock(), request.clone());
        slot.busy.insert(
            call,
            Busy {
                kind,
                request: asked,
                pattern,
                sent: None,
                muddled,
                killed: false,
                begun,
                since: self.now,
            },
        );
        self.trace.event(self.now, "call", call.0, || format!("client {client}: {} {kind}", call.0));
        self.step_client(client, ClientInput::Call { call, cred, request })
    }

    pub(super) fn interrupt(&mut self, client: usize, birth: u64, call: u64) -> Verdict {
        let slot = &self.clients[client];
        if slot.birth != birth || !slot.busy.contains_key(&CallId(call)) {
            return Ok(());
        }
        self.step_client(client, ClientInput::Interrupt { call: CallId(call) })
    }

    pub(super) fn killed(&mut self, client: usize, birth: u64, call: u64) -> Verdict {
        let slot = &mut self.clients[client];
        if slot.birth != birth || slot.machine.is_none() {
            return Ok(());
        }
        let call = CallId(call);
        let Some(busy) = slot.busy.get_mut(&call) else { return Ok(()) };
        busy.killed = true;
        self.trace.event(self.now, "killed", call.0, || format!("client {client}: {}", call.0));
        self.step_client(client, ClientInput::Abandon { call })?;
        // A change that was sent is waited for.
        if let Some(busy) = self.clients[client].busy.get_mut(&call) {
            busy.killed = false;
        }
        Ok(())
    }

    /// A caller has its answer.
    pub(super) fn finish(
        &mut self,
        client: usize,
        call: CallId,
        outcome: Outcome,
        validity: Validity,
    ) -> Verdict {
        let slot = &mut self.clients[client];
        let Some(busy) = slot.busy.remove(&call) else {
            return Err(format!("client {client} answers call {} that is not open", call.0));
        };
        let mut w = Writer::new();
        encode_outcome(&outcome, &mut w);
        self.trace.event(self.now, "finish", call.0 ^ fold(&w.0), || {
            let text = format!("{outcome:?}");
            format!("client {client}: {} {} {text:.120}", call.0, busy.kind)
        });
        self.failed_reads += u64::from(outcome == Err(Errno::EIO));
        if busy.killed {
            if let Some(key) = busy.sent {
                self.orphaned.insert(key, client);
            }
            return Ok(());
        }
        self.clients[client].kernel.own_request(&busy.request, self.calls);
        if let (Some((session, _)), Ok(_)) = (busy.sent, &outcome) {
            self.judge.sync_heard(session, &busy.request, busy.begun)?;
            if let Request::Fsync { node, .. } = &busy.request {
                self.judge.vouches(session, node.ino, busy.begun)?;
            }
        }
        if let Some((session, tid)) = busy.sent {
            if self.clients[client].closing && outcome == Err(Errno::EIO) {
                self.judge.unheard(session, tid);
            } else {
                self.no_more(client, (session, tid));
            }
        }
        if busy.sent.is_none() {
            let (kind, request, pattern) = (busy.kind, &busy.request, busy.pattern);
            let (outcome, validity) = (&outcome, &validity);
            self.own_answer(client, &OwnAnswer { kind, call: call.0, request, outcome, validity, pattern })?;
        }
        self.learn(client, &busy, &outcome)?;
        if let Some((session, tid)) = busy.sent {
            let Busy { request, begun, .. } = busy;
            let (call, newest, life) = (call.0, 0, 0);
            self.hand_over(
                client,
                Taken { session, tid, request, outcome, validity, begun, call, newest, life },
            );
        }
        Ok(())
    }

    fn learn(&mut self, client: usize, busy: &Busy, outcome: &Outcome) -> Verdict {
        // An answer may come to a session that the rank has ended meanwhile: nothing of it is held.
        let gone = self.clients[client].gone;
        let is_over = |session| self.judge.is_over(session) || gone == Some(session);
        let over = busy.sent.is_some_and(|(session, _)| is_over(session));
        let slot = &mut self.clients[client];
        let holder = slot.holder();
        match (&busy.request, outcome) {
            (Request::SetLock { .. }, Ok(_)) if over => {}
            (Request::SetLock { node, lock, .. }, Ok(_)) if lock.kind != LockKind::Unlock => {
                if busy.muddled {
                    self.locks.leaving(holder, node.ino, lock);
                    return Ok(());
                }
                return self.locks.granted(holder, node.ino, *lock);
            }
            (Request::SetLock { node, lock, .. }, Err(_)) => {
                slot.known.locks.retain(|(n, l)| (n.ino, l) != (node.ino, lock));
            }
            (
                Request::Open { flags, .. } | Request::Create { flags, .. } | Request::TmpFile { flags, .. },
                Ok(reply),
            ) => {
                if let (Reply::Attr(attr) | Reply::Created { attr, .. }, Some(session)) =
                    (reply, slot.session().filter(|_| !over))
                {
                    self.judge.opened(session, attr.ino, open_flags::writes(*flags));
                    slot.known.opens.push(place(attr));
                }
            }
            _ => {}
        }
        let known = &mut self.clients[client].known;
        if let (Request::Lookup { parent, name }, Err(Errno::ENOENT)) = (&busy.request, outcome) {
            known.missed = Some((*parent, name.clone()));
        }
        if let (Request::MkDir { .. }, Ok(Reply::Attr(attr)), Some(me)) =
            (&busy.request, outcome, known.homely)
        {
            self.workload.made_home(me, attr.ino);
        }
        match outcome {
            Ok(Reply::Attr(attr) | Reply::Created { attr, .. } | Reply::Written { attr, .. }) => {
                see(known, attr)
            }
            Ok(Reply::Entries { entries, end }) => {
                entries.iter().filter_map(|entry| entry.attr.as_ref()).for_each(|attr| see(known, attr));
                if let Request::ReadDir { dir, .. } = &busy.request {
                    let next = entries.last().filter(|_| !*end).map_or(0, |entry| entry.hash.cookie());
                    known.cursors.insert(dir.ino, next);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Once faults stop: waits for locks are interrupted after a while.
    pub(super) fn interrupt_waits(&mut self) {
        for client in 0..self.clients.len() {
            let birth = self.clients[client].birth;
            let waits = |busy: &&Busy| matches!(busy.request, Request::SetLock { wait: true, .. });
            let calls: Vec<u64> = self.clients[client]
                .busy
                .iter()
                .filter(|(_, busy)| waits(busy))
                .map(|(call, _)| call.0)
                .collect();
            for call in calls {
                self.after(20 * SECOND, Event::Interrupt { client, birth, call });
            }
        }
    }

    /// Gives everything back, shows that the file system still works, and ends.
    pub(super) fn healing(&mut self) -> Verdict {
        for client in 0..self.clients.len() {
            let slot = &mut self.clients[client];
            if slot.machine.is_none() && !slot.closed && slot.kind != Kind::Embedded {
                slot.closed = true;
            }
            if slot.closed || !slot.ready || !slot.busy.is_empty() {
                continue;
            }
            if let Some((node, lock)) = slot.known.locks.pop() {
                let lock = LockSpec { kind: LockKind::Unlock, ..lock };
                self.start(client, "lock", Request::SetLock { node, lock, wait: false }, 0)?;
            } else if let Some(node) = slot.known.opens.pop() {
                self.start(client, "release", Request::Release { node, count: 1 }, 0)?;
            } else if slot.probes < 4 {
                slot.probes += 1;
                let request = match slot.probes {
                    1 => Request::ReadDir {
                        dir: NodeRef::bare(Ino::ROOT),
                        after: 0,
                        attrs: true,
                        bytes_max: 65_536,
                    },
                    2 => Request::SyncFs,
                    3 => Request::StatFs,
                    _ => Request::GetAttr { node: NodeRef::bare(Ino::ROOT) },
                };
                self.start(client, "probe", request, 0)?;
            } else {
                self.step_client(client, ClientInput::Close)?;
            }
        }
        let quiet = self.clients.iter().all(|slot| slot.closed);
        let orphans = self.judge.tree().nodes.values().any(|node| !node.is_dir() && node.nlink == 0);
        if quiet && !orphans && self.life.as_ref().is_some_and(|life| life.active) {
            self.phase = Phase::Stop;
            self.step_rank(Input::Stop)?;
        }
        Ok(())
    }
}

/// Whose locks on which file a request is about.
const fn lock_owner(request: &Request) -> Option<(Ino, bool, u64)> {
    match request {
        Request::SetLock { node, lock, .. } => Some((node.ino, lock.flock, lock.owner)),
        Request::ReleaseLocks { node, flock, owner } => Some((node.ino, *flock, *owner)),
        every_request!() => None,
    }
}

fn place(attr: &Attr) -> NodeRef {
    NodeRef { ino: attr.ino, parent: attr.parent, hash: attr.hash }
}

fn see(known: &mut Knowledge, attr: &Attr) {
    known.places.insert(attr.ino, place(attr));
}
