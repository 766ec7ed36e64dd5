//! The clients: production machines and their connections.
//!
//! Absent: what one is made of (`slot.rs`), the callers above them (`callers.rs`), whether their ends are right (`endings.rs`).

use super::clocks::SKEW_MAX;
use super::early::performances;
use super::kernel::Kernel;
use super::slot::Busy;
use super::{Event, Kind, Phase, Plan, World, fold};
use crate::clock::HostClock;
use crate::model::judge::{Asked, Verdict};
use crate::workload::Knowledge;
use client::{Client, Input as ClientInput, Output as ClientOutput};
use mds::input::{ConnId, Input, Peer};
use proto::caps::Bits;
use proto::ids::{SessionId, Tid};
use proto::message::{ClientMsg, ServerMsg};
use proto::request::Request;
use proto::{Cred, Ino, RankId, Writer};
use stdx::time::{MS, SECOND};
use stdx::{Machine, Mono};

/// There is one.
const RANK: RankId = RankId(0);

impl World {
    pub(super) fn client_starts(&mut self, client: usize) -> Verdict {
        let slot = &mut self.clients[client];
        if slot.machine.is_some() || (self.phase > Phase::Faults && slot.closed) {
            return Ok(());
        }
        slot.birth += 1;
        let birth = slot.birth;
        self.trace.event(self.now, "born", birth, || format!("client {client}"));
        let slot = &mut self.clients[client];
        if self.plan.clocks && slot.kind != Kind::Embedded {
            slot.clock = HostClock::any(&mut self.rng, SKEW_MAX);
        }
        (slot.closed, slot.closing) = (false, false);
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
        self.step_client(client, ClientInput::Disconnected { rank: RANK })
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
        (slot.conn, slot.connected_at) = (Some(conn), self.now);
        (slot.to_rank_at, slot.to_client_at) = (0, 0);
        if let Some(life) = &mut self.life {
            life.conns.insert(conn, (client, None));
        }
        self.trace.event(self.now, "connect", conn.0, || format!("client {client} as {}", conn.0));
        self.step_rank(Input::Connected { conn, peer })?;
        self.step_client(client, ClientInput::Connected { rank: RANK })
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
        self.step_client(client, ClientInput::Message { rank: RANK, message })
    }

    pub(super) fn step_client(&mut self, client: usize, input: ClientInput) -> Verdict {
        let now = self.now_at(client);
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
        slot.performed = performances(&out, |_, tid| self.judge.knows(session, tid));
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
        let losses = out.iter().filter_map(|output| match output {
            ClientOutput::Lost { stamp } => Some(*stamp),
            _ => None,
        });
        let loss = losses.max();
        for output in out {
            self.client_output(client, output, refused)?;
        }
        if let Some(unheard) = self.clients[client].performed.pop() {
            return Err(format!("client {client} says that it performed what nobody asked for: {unheard:?}"));
        }
        self.settle_orphaned(client);
        self.plan_client_tick(client);
        // The kernel drops in no time here.
        loss.map_or(Ok(()), |stamp| self.step_client(client, ClientInput::Dropped { stamp }))
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
    pub(super) fn no_more(&mut self, client: usize, (session, tid): (SessionId, Tid)) {
        if self.clients[client].gone == Some(session) {
            self.judge.unheard(session, tid);
        } else {
            self.judge.answered(session, tid);
            self.patterns.remove(&(session, tid));
        }
    }

    /// `refused`: its session is over with this step.
    fn client_output(&mut self, client: usize, output: ClientOutput, refused: bool) -> Verdict {
        match output {
            ClientOutput::Send { message, .. } => self.send_to_rank(client, message),
            ClientOutput::Answer { call, outcome, mut validity } => {
                validity.until = Mono(self.clients[client].clock.when(validity.until));
                return self.finish(client, call, outcome, validity);
            }
            ClientOutput::Ready { .. } => self.clients[client].ready = true,
            ClientOutput::Recalled { stamp, list } => self.recalled(client, stamp, list),
            // `judge_late` has looked at it.
            ClientOutput::Late { .. } => {}
            ClientOutput::BytesLost { inos, others } => {
                self.bytes_lost(client, (&inos, others), refused)?;
            }
            ClientOutput::Lost { stamp } => self.clients[client].kernel.lose(stamp),
            ClientOutput::Connect { rank } | ClientOutput::Disconnect { rank } => {
                return Err(format!("client {client} speaks of rank {}, and there is one", rank.0));
            }
            ClientOutput::Bounced { request, .. } => {
                return Err(format!("the only rank sends {} of client {client} away", request.kind().name()));
            }
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
            self.after(SECOND, Event::ClientStarts { client });
        } else {
            self.clients[client].closed = true;
        }
    }

    /// A client says of which files bytes may be lost that were written and not synced: only when the rank has died meanwhile, or
    /// nobody will tell it whether it has.
    fn bytes_lost(&mut self, client: usize, (inos, others): (&[Ino], bool), refused: bool) -> Verdict {
        self.coverage.count("files of which bytes may be lost", inos.len() as u64);
        if let Some(session) = self.clients[client].session() {
            self.judge.bytes_lost(session, inos);
        }
        if others || (self.lives < 2 && !refused) {
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
        let at = slot.clock.when(Mono(at));
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
