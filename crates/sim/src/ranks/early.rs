//! Early answers and delegated directories in the world of several ranks: what clients perform by themselves, what they present after a
//! crash, and what they hear of it; each shown to the judge when it happens.
//!
//! Absent: whether it is right (`judge/promise.rs`, `order.rs`, `depends.rs`, `delegated.rs`).

use super::Ranks;
use super::clients::Busy;
use super::judge::{Asked, Guest, Key};
use super::links::End;
use crate::model::judge::Verdict;
use crate::world::early::{Performance, is_same, performances, performed_kind};
use client::Output;
use mds::input::ConnId;
use mds::output::Output as RankOutput;
use proto::caps::{Bits, Recalled};
use proto::ids::{Position, RankId, SessionId};
use proto::message::{ClientMsg, ServerMsg};
use proto::reply::{Outcome, Reply};
use proto::request::Request;
use proto::{Effect, Errno, Ino, every_request};
use std::collections::BTreeMap;

/// What is known of all that.
#[derive(Debug, Default)]
pub(super) struct Early {
    /// When something of a session came to a rank last.
    heard: BTreeMap<(RankId, SessionId), u64>,
    /// Since when each life is active.
    active: BTreeMap<RankId, u64>,
    /// The positions that were named on each connection, and where the journal was then.
    positions: BTreeMap<ConnId, Vec<(Position, Position)>>,
}

/// A rank waits for who presents three leases at most.
const LEASES: u64 = 3;

impl Ranks {
    /// A rank's life takes requests.
    pub(super) fn is_active(&mut self, rank: RankId) {
        self.early.active.insert(rank, self.now);
    }

    /// A session stands at a rank.
    pub(super) fn welcomed(&mut self, conn: ConnId, session: SessionId) {
        if let Some(End::Client { client, .. }) = self.conns.get(&conn).map(|at| at.end)
            && self.plan.is_eager(client)
        {
            self.judge.eager(session);
        }
    }

    /// A message is about to be taken in by a client. Returns whether it says that something will not be that was told.
    pub(super) fn heard_by_client(&mut self, client: usize, rank: RankId, message: &ServerMsg) -> Verdict {
        let slot = &self.clients[client];
        let ready = slot.lanes.get(&rank).is_some_and(|lane| lane.ready);
        let Some(machine) = slot.machine.as_ref().filter(|_| ready) else { return Ok(()) };
        let session = machine.session();
        match message {
            ServerMsg::Early { tid, wall, outcome, delegated, .. } => {
                if machine.waiting().any(|(at, waiting)| (at, waiting.tid) == (rank, *tid)) {
                    self.judge.told_early((rank, session, *tid), *wall, outcome);
                }
                delegated.iter().for_each(|delegated| self.judge.believes(rank, session, delegated.dir.ino));
            }
            ServerMsg::Reply { tid, outcome: Err(errno) } if *errno != Errno::ESHUTDOWN => {
                self.clients[client].broken += usize::from(self.judge.broken((rank, session, *tid)));
            }
            ServerMsg::NotMine { tid, .. } => {
                self.clients[client].broken += usize::from(self.judge.broken((rank, session, *tid)));
            }
            _ => {}
        }
        Ok(())
    }

    /// A client sends a message.
    pub(super) fn said_by_client(&mut self, rank: RankId, session: SessionId, message: &ClientMsg) {
        let ClientMsg::Returned { list } = message else { return };
        for returned in list.iter().filter(|returned| returned.bits.has(Bits::DX)) {
            self.judge.gives_back(rank, session, returned.ino);
        }
    }

    /// A message of a client's session reaches a rank.
    pub(super) fn heard_by_rank(
        &mut self,
        (client, guest): (usize, Option<Guest>),
        (rank, session): (RankId, SessionId),
        message: &ClientMsg,
    ) -> Verdict {
        self.early.heard.insert((rank, session), self.now);
        match message {
            ClientMsg::Request { tid, floor, cred, request } => {
                self.judge.floor(rank, session, *floor)?;
                let key = (rank, session, *tid);
                let call = self.clients[client].call_of(&key);
                let asked = Asked { cred: cred.clone(), request: request.clone(), call, guest };
                self.judge.asked(key, *floor, asked);
            }
            ClientMsg::Performed { tid, floor, cred, told, request } => {
                self.judge.floor(rank, session, *floor)?;
                let key = (rank, session, *tid);
                if matches!(request, Request::Rewrite { .. }) {
                    self.judge.asks_rewrite(key);
                    self.coverage.count("bytes to be written once more");
                    return Ok(());
                }
                let asked = Asked { cred: cred.clone(), request: request.clone(), call: None, guest };
                let what = self.judge.presents(key, *floor, asked, told);
                self.coverage.count(what.map_err(|error| format!("client {client} {error}"))?);
            }
            ClientMsg::Presented => self.coverage.count("presented"),
            ClientMsg::Returned { list } => {
                let files = list.iter().filter(|returned| returned.bits.has(Bits::ALONE)).count();
                self.coverage.add_to("files returned", files as u64);
                for returned in list.iter().filter(|returned| returned.bits.has(Bits::DX)) {
                    self.coverage.count("directories returned");
                    self.judge.has_back(rank, session, returned.ino);
                }
            }
            ClientMsg::Settled => self.judge.has_all_back(rank, session),
            _ => {}
        }
        Ok(())
    }

    /// A rank waits no longer than a lease for who has not been heard of since it became active.
    pub(super) fn excuse_the_silent(&mut self) {
        for (rank, session) in self.judge.missed() {
            let Some(active) = self.early.active.get(&rank).copied() else { continue };
            let heard = self.early.heard.get(&(rank, session)).copied().unwrap_or(0).max(active);
            let lease = self.plan.lease_ns() / 100 * 99;
            let serves = self.serving(rank).is_some();
            if serves && (self.now >= heard + lease || self.now >= active + LEASES * lease) {
                self.coverage.count("waited in vain for what was told");
                self.judge.excuse(rank, session);
            }
        }
    }

    /// What a rank sends besides answers, in their order with them.
    pub(super) fn judge_promises(&mut self, rank: RankId, out: &[RankOutput]) -> Verdict {
        let mut welcomed = BTreeMap::new();
        for output in out {
            let RankOutput::Send { conn, message } = output else { continue };
            if let ServerMsg::Welcome { session, root, .. } = message {
                welcomed.insert(*conn, *session);
                self.check_root(*conn, *root)?;
            }
            let Some(at) = self.conns.get(conn) else { continue };
            let (End::Client { client, .. }, Some(session)) =
                (at.end, welcomed.get(conn).copied().or(at.session))
            else {
                continue;
            };
            match message {
                ServerMsg::Early { tid, position, delegated, .. } => {
                    self.coverage.count("answered early");
                    let key = (rank, session, *tid);
                    self.names_position(*conn, key, *position);
                    for delegated in delegated {
                        self.coverage.count("directories delegated");
                        self.judge.delegates(key, delegated)?;
                    }
                }
                ServerMsg::Done { tid, position } => {
                    self.names_position(*conn, (rank, session, *tid), *position);
                }
                ServerMsg::Durable { position } => self.says_durable(*conn, rank, *position)?,
                ServerMsg::Numbers { first, count, .. } => {
                    if *count == 0 {
                        continue;
                    }
                    self.judge.numbers((rank, session), *first, *count)?;
                }
                ServerMsg::Recall { list } => {
                    self.recalls_trust(rank, session, list);
                    continue;
                }
                ServerMsg::Refused { errno, .. } => {
                    if *errno == Errno::ESTALE.0 as u32 {
                        self.judge.gives_up(rank, session);
                    }
                    continue;
                }
                _ => continue,
            }
            if !self.plan.is_eager(client) {
                return Err(format!("tells session {}, which wants no such thing: {message:?}", session.0));
            }
        }
        Ok(())
    }

    fn recalls_trust(&mut self, rank: RankId, session: SessionId, list: &[Recalled]) {
        for recalled in list.iter().filter(|recalled| recalled.bits.has(Bits::DX)) {
            self.coverage.count("directories recalled");
            if self.judge.is_owed_in(rank, session, recalled.ino) {
                self.coverage.count("directories recalled from under work");
            }
            let entries = self.seat.map.iter().flat_map(|map| map.entries.values());
            if entries.into_iter().any(|entry| entry.moving.is_some_and(|_| entry.rank == rank)) {
                self.coverage.count("directories recalled by a rank that hands something over");
            }
        }
    }

    /// An answer says from which position on it is durable.
    fn names_position(&mut self, conn: ConnId, key: Key, position: Position) {
        if let Some(end) = self.judge.position_of(key) {
            self.early.positions.entry(conn).or_default().push((position, end));
        }
    }

    fn says_durable(&mut self, conn: ConnId, rank: RankId, position: Position) -> Verdict {
        let Some(named) = self.early.positions.get_mut(&conn) else { return Ok(()) };
        let durable = self.judge.durable_to(rank);
        for (_, end) in named.extract_if(.., |(named, _)| *named <= position) {
            if end > durable {
                return Err(format!("says that {} is durable, but {} is not", position.0, end.0));
            }
        }
        Ok(())
    }

    /// What a client's messages say that it performed.
    pub(super) fn note_performed(&mut self, client: usize, session: SessionId, out: &[Output]) {
        self.clients[client].performed =
            performances(out, |rank, tid| self.judge.knows((rank, session, tid)));
    }

    /// A client answers a call by what it has performed. Returns whether it did.
    pub(super) fn own_performance(
        &mut self,
        client: usize,
        call: u64,
        busy: &Busy,
        outcome: &Outcome,
    ) -> Verdict<bool> {
        let all = &self.clients[client].performed;
        let found = all.iter().position(|one| is_same(&busy.asked.request, &one.request));
        let session = self.clients[client].session();
        let answered = busy.keys.iter().any(|key| self.judge.has_answered(key, outcome));
        let (Some(at), Some(session)) = (found.filter(|_| !answered && outcome.is_ok()), session) else {
            return Ok(false);
        };
        let Performance { rank, tid, told, cred, request } = self.clients[client].performed.remove(at);
        self.coverage.count(performed_kind(&request));
        self.trace.event(self.now, "perform", tid.0 ^ told.ino.0, || {
            format!("client {client}: rank {} tid {} {told:?}", rank.0, tid.0)
        });
        let asked = Asked { cred, request, call: Some(call), guest: busy.asked.guest };
        let judged = self.judge.performed((rank, session, tid), asked, told, outcome);
        judged.map_err(|error| format!("client {client} {error}"))?;
        self.judge.call_is_over(&busy.asked);
        Ok(true)
    }

    /// A call that several ranks' clients know nothing of, by what it is.
    pub(super) fn learn_home(&mut self, client: usize, request: &Request, outcome: &Outcome) {
        let known = &self.clients[client].known;
        if let (Request::MkDir { parent, .. }, Ok(Reply::Attr(attr)), Some(me)) =
            (request, outcome, known.homely)
            && (parent.ino == Ino::ROOT || self.rng.chance(1, 2))
        {
            self.workload.made_home(me, attr.ino);
        }
    }

    /// A client says what came of what it had told: all that it was told in this step will not be, and what is lost with its session.
    pub(super) fn judge_late(&mut self, client: usize, lost: Option<SessionId>, out: &[Output]) -> Verdict {
        let mut due = std::mem::take(&mut self.clients[client].broken);
        if let Some(session) = lost {
            due += self.judge.session_lost(session);
        }
        let said = out.iter().filter(|output| matches!(output, Output::Late { .. })).count();
        self.coverage.add_to("late errors that clients report", said as u64);
        if said == due || (lost.is_some() && said > due) {
            return Ok(());
        }
        Err(format!("client {client} reports {said} late errors instead of {due}"))
    }

    /// An answer that no rank gave, in the coverage table.
    pub(super) fn count_own(&mut self, client: usize, busy: &Busy, outcome: &Outcome) {
        if !busy.keys.is_empty() || busy.asked.request.effect() != Effect::Nothing {
            return;
        }
        if !self.plan.is_eager(client) {
            return;
        }
        match (&busy.asked.request, outcome) {
            (Request::Lookup { .. }, Err(Errno::ENOENT)) => self.coverage.count("names known to be absent"),
            (Request::Lookup { .. } | Request::GetAttr { .. }, Ok(_)) => {
                self.coverage.count("answers from what was made");
            }
            (every_request!(), _) => {}
        }
    }
}
