//! The clients: production machines, their connections, and the callers above them.
//!
//! Absent: what they ask (`workload.rs`), whether the answers are right (`model/`).

use super::early::{OwnAnswer, Performance, performances};
use super::kernel::{Kernel, Taken};
use super::{Event, Kind, Phase, Plan, World, fold};
use crate::model::judge::{Asked, Verdict};
use crate::workload::Knowledge;
use client::{CallId, Client, Input as ClientInput, Leave, Output as ClientOutput};
use mds::input::{ConnId, Input, Peer};
use proto::caps::Bits;
use proto::ids::{SessionId, Tid};
use proto::message::{ClientMsg, ServerMsg};
use proto::reply::{Outcome, Reply, encode_outcome};
use proto::request::{LockKind, LockSpec, Request, open_flags};
use proto::{Attr, Cred, Errno, Ino, NodeRef, Writer};
use std::collections::BTreeMap;
use stdx::time::{MS, SECOND};
use stdx::{Machine, Mono};

/// A call without an answer.
struct Busy {
    kind: &'static str,
    request: Request,
    /// Of a write: the pattern of its bytes.
    pattern: u64,
    sent: Option<(SessionId, Tid)>,
    /// Another request about the same owner's locks was open at the same time: their order is unknown.
    muddled: bool,
    /// Its caller was killed: nobody looks at the answer.
    killed: bool,
    /// When it began, by the judge's clock.
    begun: u64,
}

/// One client and its callers.
pub(super) struct Slot {
    number: usize,
    pub(super) kind: Kind,
    machine: Option<Client>,
    /// Grows with each machine: events of an earlier one are stale.
    birth: u64,
    pub(super) conn: Option<ConnId>,
    ready: bool,
    /// The last session that the client was told is gone: its requests may still take their course.
    gone: Option<SessionId>,
    busy: BTreeMap<CallId, Busy>,
    /// What it has said in this step that it performed.
    pub(super) performed: Vec<Performance>,
    /// What it was told with the message at hand that it has promised and that will not be.
    pub(super) broken: usize,
    known: Knowledge,
    tick_at: Option<u64>,
    /// When the last message of each direction arrives: a connection keeps order.
    to_rank_at: u64,
    to_client_at: u64,
    pub(super) kernel: Kernel,
    /// Healing: calls to show progress, then the end.
    probes: u32,
    closed: bool,
}

impl Slot {
    pub(super) fn new(number: usize, kind: Kind) -> Self {
        Self {
            number,
            kind,
            machine: None,
            birth: 0,
            conn: None,
            ready: false,
            gone: None,
            busy: BTreeMap::new(),
            performed: Vec::new(),
            broken: 0,
            known: Knowledge::default(),
            tick_at: None,
            to_rank_at: 0,
            to_client_at: 0,
            kernel: Kernel::default(),
            probes: 0,
            closed: false,
        }
    }

    pub(super) const fn is_alive(&self) -> bool {
        self.machine.is_some()
    }

    pub(super) const fn number(&self) -> usize {
        self.number
    }

    pub(super) const fn birth(&self) -> u64 {
        self.birth
    }

    /// The kernel, and the requests that have no answer.
    pub(super) fn kernel_and_requests(&mut self) -> (&mut Kernel, impl Iterator<Item = &Request>) {
        (&mut self.kernel, self.busy.values().map(|busy| &busy.request))
    }

    /// Requests without an answer for which a kernel keeps pages of that file locked.
    fn page_locks(&self, ino: Ino) -> impl Iterator<Item = (CallId, &Busy)> {
        let moves = move |request: &Request| match request {
            Request::Read { node, .. } | Request::Write { node, .. } => node.ino == ino,
            _ => false,
        };
        self.busy.iter().filter(move |(_, busy)| moves(&busy.request)).map(|(call, busy)| (*call, busy))
    }

    /// Whether there is one among the calls up to that one.
    pub(super) fn locks_pages(&self, ino: Ino, calls: u64) -> bool {
        self.page_locks(ino).any(|(call, _)| call.0 <= calls)
    }

    /// Whether there is one that was sent under this session, and a connection.
    pub(super) fn is_locked_at_rank(&self, ino: Ino, session: SessionId) -> bool {
        let at_rank = |busy: &Busy| busy.sent.is_some_and(|(of, _)| of == session);
        self.conn.is_some() && self.ready && self.page_locks(ino).any(|(_, busy)| at_rank(busy))
    }

    pub(super) fn session(&self) -> Option<SessionId> {
        self.machine.as_ref().map(Client::session).filter(|session| session.0 != 0)
    }

    pub(super) fn kinds(&self) -> Vec<&'static str> {
        self.busy.values().map(|busy| busy.kind).collect()
    }

    const fn holder(&self) -> u64 {
        ((self.number as u64) << 32) | self.birth
    }

    /// For reports: what has no answer.
    pub(super) fn waiting(&self) -> String {
        let mut text = format!("\n  client {} ({:?}, ready {}):", self.number, self.kind, self.ready);
        for (call, busy) in &self.busy {
            let request = format!("{:?}", busy.request);
            text.push_str(&format!("\n    call {} {:?}: {:.160}", call.0, busy.sent, request));
        }
        text
    }
}

impl World {
    pub(super) fn born(&mut self, client: usize) -> Verdict {
        let slot = &mut self.clients[client];
        if slot.machine.is_some() || (self.phase > Phase::Faults && slot.closed) {
            return Ok(());
        }
        slot.birth += 1;
        let birth = slot.birth;
        self.trace.event(self.now, "born", birth, || format!("client {client}"));
        let slot = &mut self.clients[client];
        slot.machine = Some(Client::new(self.plan.client(slot.kind, slot.number, &mut self.rng)));
        slot.known.homely = self.plan.wants(slot.number).has(Bits::DX).then_some(slot.number);
        slot.known.bursts = self.plan.wants(slot.number).has(Bits::ALONE);
        self.at(self.now, Event::Connect { client, birth });
        self.after(self.plan.pause_ns, Event::Call { client, birth });
        Ok(())
    }

    /// The client's process is gone. Returns the connection the rank still believes in.
    pub(super) fn end_client(&mut self, client: usize) -> Option<ConnId> {
        let slot = &mut self.clients[client];
        self.locks.lost(slot.holder());
        slot.machine = None;
        slot.ready = false;
        slot.kernel = Kernel::default();
        slot.busy.clear();
        self.orphaned.retain(|_, owner| *owner != client);
        let slot = &mut self.clients[client];
        slot.known = Knowledge::default();
        slot.tick_at = None;
        slot.conn.take()
    }

    /// The connection breaks; the client notices after `longest` at most.
    pub(super) fn break_client_end(&mut self, client: usize, conn: ConnId, longest: u64) {
        self.after(longest, Event::Broken { client, conn });
    }

    pub(super) fn broken(&mut self, client: usize, conn: ConnId) -> Verdict {
        let slot = &mut self.clients[client];
        if slot.conn != Some(conn) {
            return Ok(());
        }
        (slot.conn, slot.ready) = (None, false);
        let birth = slot.birth;
        if let Some(session) = slot.session() {
            self.judge.believes_nothing(session);
        }
        self.after(50 * MS, Event::Connect { client, birth });
        self.step_client(client, ClientInput::Disconnected)
    }

    pub(super) fn connect(&mut self, client: usize, birth: u64) -> Verdict {
        let slot = &self.clients[client];
        if slot.birth != birth || slot.machine.is_none() || slot.conn.is_some() {
            return Ok(());
        }
        if !self.life.as_ref().is_some_and(|life| life.active) || self.phase == Phase::Stop {
            self.after(50 * MS, Event::Connect { client, birth });
            return Ok(());
        }
        self.conns += 1;
        let conn = ConnId(self.conns);
        let peer = match slot.kind {
            Kind::Embedded => Peer::Embedded,
            Kind::Trusted => Peer::Trusted,
            Kind::User => Peer::User(Plan::cred(Kind::User, &mut self.rng)),
        };
        let slot = &mut self.clients[client];
        slot.conn = Some(conn);
        (slot.to_rank_at, slot.to_client_at) = (0, 0);
        if let Some(life) = &mut self.life {
            life.conns.insert(conn, (client, None));
        }
        self.trace.event(self.now, "connect", conn.0, || format!("client {client} as {}", conn.0));
        self.step_rank(Input::Connected { conn, peer })?;
        self.step_client(client, ClientInput::Connected)
    }

    /// The rank closes a connection: what it sent before still arrives.
    pub(super) fn close_conn(&mut self, conn: ConnId) {
        let Some(life) = &mut self.life else { return };
        let Some((client, session)) = life.conns.remove(&conn) else { return };
        if let Some(session) = session {
            self.owed.runs_out(session);
        }
        let at = self.clients[client].to_client_at.max(self.now) + 1;
        self.at(at, Event::Broken { client, conn });
    }

    pub(super) fn send_to_client(&mut self, conn: ConnId, message: ServerMsg) {
        let now = self.now;
        let Some(life) = &mut self.life else { return };
        let Some((client, session)) = life.conns.get_mut(&conn) else { return };
        if let ServerMsg::Welcome { session: welcome, .. } = &message {
            *session = Some(*welcome);
            if self.clients[*client].kind == Kind::Trusted && self.plan.wants(*client).has(Bits::DX) {
                self.judge.eager(*welcome);
            }
            // The lease runs from when it was greeted, at the earliest; the welcome may wait for the disk.
            self.heard.insert(*welcome, (self.greeted.get(&conn).copied().unwrap_or(now), false));
        }
        let client = *client;
        let mut w = Writer::new();
        message.encode(&mut w);
        self.trace.event(now, "answer", conn.0 ^ fold(&w.0), || {
            let grants = match &message {
                ServerMsg::Granted { grants, .. } | ServerMsg::Early { grants, .. } => format!("{grants:?} "),
                _ => String::new(),
            };
            let text = format!("{message:?}");
            format!("{} {grants}{:.200}", conn.0, text)
        });
        let at = if self.clients[client].kind == Kind::Embedded {
            // Answers are handed back by other threads than the one that brings recalls: later, in any order.
            let answer = matches!(message, ServerMsg::Reply { .. } | ServerMsg::Granted { .. });
            let late = answer && self.rng.chance(1, 8);
            now + if late { self.rng.below(self.plan.message_ns) } else { 0 }
        } else {
            let delay = self.rng.below(self.plan.message_ns);
            let slot = &mut self.clients[client];
            slot.to_client_at = (slot.to_client_at + 1).max(now + delay);
            let at = slot.to_client_at;
            // Several threads of a mount read: what one has read another may overtake.
            let late = self.plan.many_readers && is_answer(&message) && self.rng.chance(1, 8);
            at + if late { self.rng.below(self.plan.message_ns) } else { 0 }
        };
        self.at(at, Event::ToClient { client, conn, message: Box::new(message) });
    }

    pub(super) fn message_to_client(&mut self, client: usize, conn: ConnId, message: ServerMsg) -> Verdict {
        if self.clients[client].conn != Some(conn) {
            return Ok(());
        }
        self.heard_by_client(client, &message);
        self.step_client(client, ClientInput::Message(message))
    }

    pub(super) fn step_client(&mut self, client: usize, input: ClientInput) -> Verdict {
        let now = self.now();
        let slot = &mut self.clients[client];
        let Some(machine) = &mut slot.machine else { return Ok(()) };
        let mut out = Vec::new();
        let before = machine.session();
        machine.step(now, input, &mut out);
        let session = machine.session();
        let refused = out.iter().any(|output| matches!(output, ClientOutput::Refused { .. }));
        let lost = before.0 != 0 && (before != session || refused);
        if lost {
            slot.gone = Some(before);
        }
        slot.performed = performances(&out, |tid| self.judge.knows(session, tid));
        for waiting in machine.waiting() {
            if let Some(busy) = slot.busy.get_mut(&waiting.call) {
                busy.sent = Some((session, waiting.tid));
            }
        }
        if lost {
            // It was told that the rank has given its session up.
            self.locks.lost(self.clients[client].holder());
            self.session_lost(client, before);
        }
        let given_up = lost || refused || self.phase > Phase::Faults;
        self.judge_late(client, given_up, &out)?;
        for output in out {
            self.client_output(client, output)?;
        }
        if let Some(unheard) = self.clients[client].performed.pop() {
            return Err(format!("client {client} says that it performed what nobody asked for: {unheard:?}"));
        }
        self.settle_orphaned(client);
        self.plan_client_tick(client);
        Ok(())
    }

    /// Answers that nobody waited for have come.
    fn settle_orphaned(&mut self, client: usize) {
        let Some(machine) = &self.clients[client].machine else { return };
        let waits = |(session, tid): &(SessionId, Tid)| machine.session() == *session && machine.awaits(*tid);
        let over: Vec<_> = self
            .orphaned
            .iter()
            .filter(|(key, owner)| **owner == client && !waits(key))
            .map(|(key, _)| *key)
            .collect();
        for key in over {
            self.orphaned.remove(&key);
            self.no_more(client, key);
        }
    }

    /// The client waits for the answer of a request no more.
    fn no_more(&mut self, client: usize, (session, tid): (SessionId, Tid)) {
        if self.clients[client].gone == Some(session) {
            self.judge.unheard(session, tid);
        } else {
            self.judge.answered(session, tid);
            self.patterns.remove(&(session, tid));
        }
    }

    fn client_output(&mut self, client: usize, output: ClientOutput) -> Verdict {
        match output {
            ClientOutput::Send(message) => self.send_to_rank(client, message),
            ClientOutput::Answer { call, outcome, leave } => {
                return self.finish(client, call, outcome, leave);
            }
            ClientOutput::Ready => self.clients[client].ready = true,
            ClientOutput::Recalled { stamp, list } => self.recalled(client, stamp, list),
            // `judge_late` has looked at it.
            ClientOutput::Late { .. } => {}
            ClientOutput::BytesLost { inos, others } => self.bytes_lost(client, &inos, others)?,
            ClientOutput::Lost { stamp } => self.clients[client].kernel.lose(stamp),
            ClientOutput::Refused { reason } => {
                self.trace.event(self.now, "refused", fold(reason.as_bytes()), || {
                    format!("client {client}: {reason}")
                });
                self.over(client);
            }
            ClientOutput::Closed => {
                if let Some(session) =
                    self.clients[client].session().filter(|session| self.judge.is_owed(*session))
                {
                    return Err(format!(
                        "client {client} closes session {} before all it told is done",
                        session.0
                    ));
                }
                self.clients[client].closed = true;
                self.over(client);
            }
        }
        Ok(())
    }

    /// The machine has ended; in time of faults another takes its place.
    fn over(&mut self, client: usize) {
        if let Some(session) = self.clients[client].session() {
            self.judge.client_gone(session);
        }
        if let Some(conn) = self.end_client(client) {
            let input = Box::new(Input::Disconnected { conn });
            // A goodbye on its way still arrives before the end of the connection.
            let at = self.clients[client].to_rank_at.max(self.now) + 1;
            self.at(at, Event::Rank { life: self.lives, input });
        }
        if self.phase == Phase::Faults {
            self.after(SECOND, Event::Born { client });
        } else {
            self.clients[client].closed = true;
        }
    }

    /// A client says of which files bytes may be lost that were written and not synced: only when the rank has died meanwhile.
    fn bytes_lost(&mut self, client: usize, inos: &[Ino], others: bool) -> Verdict {
        self.coverage.count("files of which bytes may be lost", inos.len() as u64);
        if let Some(session) = self.clients[client].session() {
            self.judge.bytes_lost(session, inos);
        }
        if others || self.lives < 2 {
            return Err(format!(
                "client {client} says that bytes of {inos:?} are lost, and of others: {others}"
            ));
        }
        Ok(())
    }

    fn send_to_rank(&mut self, client: usize, message: ClientMsg) {
        let slot = &mut self.clients[client];
        let Some(conn) = slot.conn else { return };
        let delay = if slot.kind == Kind::Embedded { 0 } else { self.rng.below(self.plan.message_ns) };
        slot.to_rank_at = (slot.to_rank_at + 1).max(self.now + delay);
        let at = slot.to_rank_at;
        if let Some(session) = self.clients[client].session() {
            self.said_by_client(session, &message);
        }
        if let (ClientMsg::Request { tid, .. }, Some(session)) = (&message, self.clients[client].session()) {
            let slot = &self.clients[client];
            match slot.busy.values().find(|busy| busy.sent == Some((session, *tid))) {
                Some(Busy { pattern: id @ 1.., request: Request::Write { offset, .. }, .. }) => {
                    self.patterns.insert((session, *tid), (*id, *offset));
                }
                Some(_) => {}
                None => {
                    self.orphaned.insert((session, *tid), client);
                }
            }
        }
        self.at(at, Event::ToRank { life: self.lives, conn, message: Box::new(message) });
    }

    pub(super) fn asked(
        &mut self,
        client: usize,
        session: SessionId,
        tid: Tid,
        cred: &Cred,
        request: &Request,
    ) {
        let slot = &self.clients[client];
        let pattern = self.patterns.get(&(session, tid)).copied().unwrap_or_default();
        let cred = if slot.kind == Kind::User { Plan::cred(Kind::User, &mut self.rng) } else { cred.clone() };
        self.judge.asked(Asked {
            session,
            tid,
            cred,
            request: request.clone(),
            embedded: slot.kind == Kind::Embedded,
            checked: slot.kind == Kind::User,
            pattern,
        });
    }

    fn plan_client_tick(&mut self, client: usize) {
        let slot = &mut self.clients[client];
        let Some(Mono(at)) = slot.machine.as_ref().and_then(Machine::deadline) else { return };
        if slot.tick_at.is_some_and(|planned| planned <= at) {
            return;
        }
        slot.tick_at = Some(at);
        let birth = slot.birth;
        self.at(at, Event::ClientTick { client, birth });
    }

    pub(super) fn client_tick(&mut self, client: usize, birth: u64) -> Verdict {
        let slot = &mut self.clients[client];
        if slot.birth != birth {
            return Ok(());
        }
        slot.tick_at = None;
        self.step_client(client, ClientInput::Tick)
    }

    /// The callers' turn: one more call, then a pause.
    pub(super) fn call(&mut self, client: usize, birth: u64) -> Verdict {
        let slot = &mut self.clients[client];
        if slot.birth != birth || slot.machine.is_none() || self.phase != Phase::Faults {
            return Ok(());
        }
        self.after(self.plan.pause_ns, Event::Call { client, birth });
        let slot = &mut self.clients[client];
        if slot.busy.len() >= self.plan.calls_max || self.issued >= self.plan.operations || !slot.ready {
            return self.glance(client);
        }
        self.glance(client)?;
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
        slot.busy
            .insert(call, Busy { kind, request: asked, pattern, sent: None, muddled, killed: false, begun });
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
    fn finish(&mut self, client: usize, call: CallId, outcome: Outcome, leave: Leave) -> Verdict {
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
                self.judge.vouches(session, node.ino)?;
            }
        }
        if let Some(key) = busy.sent {
            self.no_more(client, key);
        }
        if busy.sent.is_none() {
            let (kind, request, pattern) = (busy.kind, &busy.request, busy.pattern);
            let (outcome, leave) = (&outcome, &leave);
            self.own_answer(client, &OwnAnswer { kind, call: call.0, request, outcome, leave, pattern })?;
        }
        self.learn(client, &busy, &outcome)?;
        if let Some((session, tid)) = busy.sent {
            let Busy { request, begun, .. } = busy;
            let (call, newest, life) = (call.0, 0, 0);
            self.hand_over(
                client,
                Taken { session, tid, request, outcome, leave, begun, call, newest, life },
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

    /// The rank journaled the end of a session: was it entitled to?
    pub(super) fn session_ended(&mut self, session: SessionId) -> Verdict {
        self.judge.session_over(session);
        let owner = self.clients.iter().find(|slot| slot.session() == Some(session));
        let Some(slot) = owner else {
            self.owed.ended(session);
            return Ok(());
        };
        self.locks.lost(slot.holder());
        let judged = if slot.kind == Kind::Embedded { Ok(()) } else { self.may_end(session) };
        self.owed.ended(session);
        judged
    }

    /// The rank tells a client that it has given its session up, which ends a little later.
    pub(super) fn judge_refusal(&mut self, conn: ConnId, message: &ServerMsg) -> Verdict {
        let ServerMsg::Refused { errno, .. } = message else { return Ok(()) };
        let Some(life) = self.life.as_ref().filter(|_| *errno == Errno::ESTALE.0 as u32) else {
            return Ok(());
        };
        match life.conns.get(&conn) {
            Some((_, Some(session))) => self.may_end(*session),
            _ => Ok(()),
        }
    }

    fn may_end(&mut self, session: SessionId) -> Verdict {
        let Some((heard, goodbye)) = self.heard.get(&session).copied() else { return Ok(()) };
        let since = heard.max(self.active_since);
        let lease = self.plan.rank(proto::ids::Incarnation(1)).lease_ns;
        let late = self.is_late(session);
        self.coverage.count("sessions ended for a recall", u64::from(late));
        if late && let Some(ino) = self.locked_out(session) {
            return Err(format!(
                "session {} was ended for pages of inode {} that a request keeps locked until it is answered",
                session.0, ino.0
            ));
        }
        if self.is_unread(session) && !goodbye && !self.evicted.contains(&session) {
            return Err(format!("session {} was ended while what it said lies unread", session.0));
        }
        let excused = goodbye || late || self.evicted.contains(&session);
        if !excused && self.now < since + lease / 100 * 99 {
            return Err(format!(
                "session {} was ended {} ms after it was heard of",
                session.0,
                (self.now - since) / MS
            ));
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

const fn is_answer(message: &ServerMsg) -> bool {
    matches!(
        message,
        ServerMsg::Reply { .. }
            | ServerMsg::Granted { .. }
            | ServerMsg::Early { .. }
            | ServerMsg::Done { .. }
    )
}

/// Whose locks on which file a request is about.
const fn lock_owner(request: &Request) -> Option<(Ino, bool, u64)> {
    match request {
        Request::SetLock { node, lock, .. } => Some((node.ino, lock.flock, lock.owner)),
        Request::ReleaseLocks { node, flock, owner } => Some((node.ino, *flock, *owner)),
        _ => None,
    }
}

fn place(attr: &Attr) -> NodeRef {
    NodeRef { ino: attr.ino, parent: attr.parent, hash: attr.hash }
}

fn see(known: &mut Knowledge, attr: &Attr) {
    known.places.insert(attr.ino, place(attr));
}
