//! Early answers and delegated directories in the world: what clients perform by themselves, what they present after a crash, and
//! what they hear of it; each shown to the judge when it happens.
//!
//! Absent: whether it is right (`model/judge/promise.rs`, `delegated.rs`).

use super::kernel::Taken;
use super::{Kind, World};
use crate::model::judge::{Asked, Presented, Verdict};
use client::Validity;
use mds::input::ConnId;
use mds::output::Output;
use proto::caps::{Bits, Recalled};
use proto::ids::{Position, RankId, SessionId, Tid};
use proto::message::{ClientMsg, ServerMsg, Told};
use proto::reply::Outcome;
use proto::request::Request;
use proto::{Cred, Effect, Errno, every_request};
use std::collections::BTreeMap;

/// What a client says that it has performed, in the step in which it tells its caller.
#[derive(Debug)]
pub(crate) struct Performance {
    pub(crate) rank: RankId,
    pub(crate) tid: Tid,
    pub(crate) told: Told,
    pub(crate) cred: Cred,
    pub(crate) request: Request,
}

/// A call that was answered without having been sent.
pub(super) struct OwnAnswer<'a> {
    pub(super) kind: &'static str,
    pub(super) call: u64,
    pub(super) request: &'a Request,
    pub(super) outcome: &'a Outcome,
    pub(super) validity: &'a Validity,
    pub(super) pattern: u64,
}

/// The positions that were named on each connection, and where the journal was then.
pub(super) type Positions = BTreeMap<ConnId, Vec<(Position, Position)>>;

/// With which errors a client refuses a call without asking anybody.
pub(crate) const REFUSALS: [Errno; 6] =
    [Errno::EAGAIN, Errno::ESHUTDOWN, Errno::ENFILE, Errno::ENOLCK, Errno::EIO, Errno::EINTR];

/// What a client performs, in the coverage table.
pub(crate) const fn performed_kind(request: &Request) -> &'static str {
    match request {
        Request::Create { .. } => "performed: create",
        Request::MkNod { .. } => "performed: mknod",
        Request::MkDir { .. } => "performed: mkdir",
        Request::Symlink { .. } => "performed: symlink",
        Request::Unlink { .. } => "performed: unlink",
        Request::RmDir { .. } => "performed: rmdir",
        Request::Rename { .. } => "performed: rename",
        Request::Link { .. } => "performed: link",
        Request::SetAttr { set, .. } if set.size.is_some() => "performed: truncate",
        Request::SetAttr { .. } => "performed: setattr",
        Request::Write { .. } => "performed: write",
        every_request!() => "performed: others",
    }
}

/// What a client's messages say that it performed, and had not said before.
pub(crate) fn performances(
    messages: &[client::Output],
    knows: impl Fn(RankId, Tid) -> bool,
) -> Vec<Performance> {
    let new = messages.iter().filter_map(|output| match output {
        client::Output::Send { rank, message: ClientMsg::Performed { tid, told, cred, request, .. } }
            if !told.heard && !knows(*rank, *tid) =>
        {
            let (cred, request) = (cred.clone(), request.clone());
            Some(Performance { rank: *rank, tid: *tid, told: *told, cred, request })
        }
        _ => None,
    });
    new.collect()
}

const fn asked_by(session: SessionId, tid: Tid, cred: Cred, request: Request, pattern: (u64, u64)) -> Asked {
    Asked { session, tid, cred, request, embedded: false, checked: false, pattern }
}

/// Whether a call was performed as this: what is appended is told where to.
pub(crate) fn is_same(call: &Request, performed: &Request) -> bool {
    match (call, performed) {
        (
            Request::Write { node, append: true, kill_suidgid, data, .. },
            Request::Write { node: other, append: false, kill_suidgid: kills, data: written, .. },
        ) => (node, kill_suidgid, data) == (other, kills, written),
        _ => call == performed,
    }
}

impl World {
    /// A client answers a call that it never sent: it has performed it, or knows the answer, or refuses.
    pub(super) fn own_answer(&mut self, client: usize, own: &OwnAnswer<'_>) -> Verdict {
        let Some(session) = self.clients[client].session() else { return Ok(()) };
        let all = &self.clients[client].performed;
        let found = all.iter().position(|performance| is_same(own.request, &performance.request));
        let performance = found.map(|at| self.clients[client].performed.remove(at));
        let Some(Performance { tid, told, cred, request, .. }) = performance else {
            return self.known_answer(client, session, own);
        };
        let pattern = match own.request {
            Request::Write { offset, .. } => (own.pattern, *offset),
            every_request!() => (0, 0),
        };
        let asked = asked_by(session, tid, cred, request, pattern);
        self.coverage.count(performed_kind(&asked.request), 1);
        self.trace.event(self.now, "perform", tid.0 ^ told.ino.0, || {
            format!("client {client}: {} {told:?}", tid.0)
        });
        let judged = self.judge.performed(asked, told, own.outcome);
        let changed = judged.map_err(|error| format!("client {client} {error}"))?;
        let sight = self.judge.sight(Some(session));
        let slot = &mut self.clients[client];
        let moving = slot.names_on_the_move();
        slot.kernel.changes(&changed, Some(session), &sight, &moving);
        let (request, outcome, validity) = (own.request.clone(), own.outcome.clone(), own.validity.clone());
        let (begun, call, newest, life) = (self.judge.clock(), own.call, 0, 0);
        self.hand_over(client, Taken { session, tid, request, outcome, validity, begun, call, newest, life });
        Ok(())
    }

    fn known_answer(&mut self, client: usize, session: SessionId, own: &OwnAnswer<'_>) -> Verdict {
        if own.outcome.as_ref().is_err_and(|errno| REFUSALS.contains(errno)) {
            return Ok(());
        }
        if own.request.effect() != Effect::Nothing {
            return Err(format!("client {client} answers {:?} to {} by itself", own.outcome, own.kind));
        }
        let absent = *own.outcome == Err(Errno::ENOENT);
        self.coverage
            .count(if absent { "names known to be absent" } else { "answers from what was made" }, 1);
        let asked = asked_by(session, Tid(u64::MAX), Cred::ROOT, own.request.clone(), (0, 0));
        let judged = self.judge.answers_itself(&asked, own.outcome);
        judged.map_err(|error| format!("client {client} {error}"))?;
        let (request, outcome, validity) = (own.request.clone(), own.outcome.clone(), own.validity.clone());
        let (begun, call, newest, life) = (self.judge.clock(), own.call, 0, 0);
        let tid = Tid(u64::MAX);
        self.hand_over(client, Taken { session, tid, request, outcome, validity, begun, call, newest, life });
        Ok(())
    }

    /// A message reaches a client, before it takes it in.
    pub(super) fn heard_by_client(&mut self, client: usize, message: &ServerMsg) {
        let Some(session) = self.clients[client].session() else { return };
        if !self.clients[client].ready {
            // What overtakes a Welcome that waits for the disk is not taken in: it asks again.
            return;
        }
        match message {
            ServerMsg::Early { tid, wall, outcome, delegated, .. } => {
                self.judge.told_early(session, *tid, *wall, outcome);
                for delegated in delegated {
                    self.judge.believes(session, delegated.dir.ino);
                }
            }
            ServerMsg::Reply { tid, outcome: Err(errno) } if *errno != Errno::ESHUTDOWN => {
                self.clients[client].broken += usize::from(self.judge.broken(session, *tid));
            }
            _ => {}
        }
    }

    /// A client sends a message.
    pub(super) fn said_by_client(&mut self, session: SessionId, message: &ClientMsg) {
        let ClientMsg::Returned { list } = message else { return };
        for returned in list.iter().filter(|returned| returned.bits.has(Bits::DX)) {
            self.judge.gives_back(session, returned.ino);
        }
    }

    /// A message of an eager session reaches the rank.
    pub(super) fn heard_by_rank(
        &mut self,
        client: usize,
        session: SessionId,
        message: &ClientMsg,
    ) -> Verdict {
        match message {
            ClientMsg::Request { floor, .. } => self.judge.floor(session, *floor)?,
            ClientMsg::Performed { tid, floor, cred, told, request } => {
                self.judge.floor(session, *floor)?;
                if matches!(request, Request::Rewrite { .. }) {
                    self.judge.asks_rewrite((session, *tid), request);
                    self.coverage.count("bytes to be written once more", 1);
                    return Ok(());
                }
                let asked = asked_by(session, *tid, cred.clone(), request.clone(), (0, 0));
                let moves = matches!(request, Request::Rename { .. });
                let what = match self
                    .judge
                    .presents(asked, told)
                    .map_err(|error| format!("client {client} {error}"))?
                {
                    Presented::New => return Ok(()),
                    Presented::Executed => "presented again: executed before",
                    Presented::Lost if moves => "presented again: lost renames",
                    Presented::Lost => "presented again: lost",
                    Presented::Again => "presented again: not executed yet",
                };
                self.coverage.count(what, 1);
            }
            ClientMsg::Presented => self.coverage.count("presented", 1),
            ClientMsg::Returned { list } => {
                let files = list.iter().filter(|returned| returned.bits.has(Bits::ALONE)).count();
                self.coverage.count("files returned", files as u64);
                for returned in list.iter().filter(|returned| returned.bits.has(Bits::DX)) {
                    self.coverage.count("directories returned", 1);
                    self.judge.has_back(session, returned.ino);
                }
            }
            ClientMsg::Settled => self.judge.has_all_back(session),
            _ => {}
        }
        Ok(())
    }

    /// The rank waits no longer than a lease for who has not been heard of since it became active.
    pub(super) fn excuse_the_silent(&mut self) {
        let missed: Vec<SessionId> = self.judge.missed().collect();
        let lease = self.plan.rank(proto::ids::Incarnation(1)).lease_ns;
        for session in missed {
            let heard = self.heard.get(&session).map_or(0, |(at, _)| *at).max(self.active_since);
            if self.life.as_ref().is_some_and(|life| life.active) && self.now >= heard + lease / 100 * 99 {
                self.coverage.count("waited in vain for what was told", 1);
                self.judge.excuse(session);
            }
        }
    }

    /// The rank has given a session up: it serves it no more, and takes nothing of it.
    pub(super) fn given_up(&mut self, session: SessionId) {
        self.judge.has_all_back(session);
        self.judge.gives_up(session);
    }

    /// Sessions that the rank gives up in a step.
    pub(super) fn refusals(&mut self, refused: &[SessionId]) {
        refused.iter().for_each(|session| self.given_up(*session));
    }

    /// The sessions that the rank says it has given up.
    pub(super) fn refused(&self, out: &[Output]) -> Vec<SessionId> {
        let of = |output: &Output| match output {
            Output::Send { conn, message: ServerMsg::Refused { errno, .. } }
                if *errno == Errno::ESTALE.0 as u32 =>
            {
                self.life.as_ref().and_then(|life| life.conns.get(conn)?.1)
            }
            _ => None,
        };
        out.iter().filter_map(of).collect()
    }

    /// What the rank sends besides answers, in their order with them.
    pub(super) fn judge_promises(&mut self, out: &[Output]) -> Verdict {
        for output in out {
            let Output::Send { conn, message } = output else { continue };
            let Some(life) = &self.life else { return Ok(()) };
            let Some((client, Some(session))) = life.conns.get(conn).copied() else { continue };
            match message {
                ServerMsg::Early { tid, position, delegated, .. } => {
                    self.coverage.count("answered early", 1);
                    self.names_position(*conn, (session, *tid), *position)?;
                    for delegated in delegated {
                        self.coverage.count("directories delegated", 1);
                        self.judge.delegates(session, *tid, delegated)?;
                    }
                }
                ServerMsg::Done { tid, position } => {
                    self.names_position(*conn, (session, *tid), *position)?;
                }
                ServerMsg::Durable { position } => self.says_durable(*conn, *position)?,
                ServerMsg::Numbers { first, count, .. } => self.judge.numbers(session, *first, *count)?,
                ServerMsg::Recall { list } => self.recalls_trust(session, list),
                ServerMsg::Reply { .. }
                | ServerMsg::Granted { .. }
                | ServerMsg::Welcome { .. }
                | ServerMsg::Refused { .. }
                | ServerMsg::Admin { .. }
                | ServerMsg::Renewed { .. }
                | ServerMsg::NotMine { .. }
                | ServerMsg::Map { .. }
                | ServerMsg::Join { .. }
                | ServerMsg::Damaged => continue,
            }
            if self.clients[client].kind != Kind::Trusted || !self.plan.wants(client).has(Bits::DX) {
                if matches!(message, ServerMsg::Recall { .. }) {
                    continue;
                }
                return Err(format!("tells session {}, which wants no such thing: {message:?}", session.0));
            }
        }
        for why in std::mem::take(&mut self.judge.late) {
            self.coverage.count(why, 1);
        }
        Ok(())
    }

    fn recalls_trust(&mut self, session: SessionId, list: &[Recalled]) {
        for recalled in list.iter().filter(|recalled| recalled.bits.has(Bits::ALONE)) {
            self.coverage.count("files recalled", 1);
            if self.judge.is_owed_of(session, recalled.ino) {
                self.coverage.count("files recalled from under work", 1);
            }
        }
        for recalled in list.iter().filter(|recalled| recalled.bits.has(Bits::DX)) {
            self.coverage.count("directories recalled", 1);
            if self.judge.is_owed_in(session, recalled.ino) {
                self.coverage.count("directories recalled from under work", 1);
            }
            if self.judge.is_owed_rename_in(session, recalled.ino) {
                self.coverage.count("directories recalled from under a rename", 1);
            }
        }
    }

    /// An answer says from which position on it is durable.
    fn names_position(&mut self, conn: ConnId, key: (SessionId, Tid), position: Position) -> Verdict {
        if let Some(end) = self.judge.position_of(key.0, key.1) {
            self.positions.entry(conn).or_default().push((position, end));
        }
        Ok(())
    }

    fn says_durable(&mut self, conn: ConnId, position: Position) -> Verdict {
        let Some(named) = self.positions.get_mut(&conn) else { return Ok(()) };
        let durable = self.judge.durable_to();
        for (_, end) in named.extract_if(.., |(named, _)| *named <= position) {
            if end > durable {
                return Err(format!("says that {} is durable, but {} is not", position.0, end.0));
            }
        }
        Ok(())
    }

    /// A client says what came of what it had told: all that it was told in this step will not be, and what is lost with a session
    /// that it gives up.
    pub(super) fn judge_late(&mut self, client: usize, given_up: bool, out: &[client::Output]) -> Verdict {
        let due = std::mem::take(&mut self.clients[client].broken);
        let late = out.iter().filter_map(|output| match output {
            client::Output::Late { inos, .. } => Some(inos),
            _ => None,
        });
        let kernel = &mut self.clients[client].kernel;
        let said = late.map(|inos| inos.iter().for_each(|ino| kernel.forget(*ino))).count();
        self.coverage.count("late errors that clients report", said as u64);
        if said == due || (given_up && said > due) {
            return Ok(());
        }
        Err(format!("client {client} reports {said} late errors instead of {due}"))
    }

    /// A client hears that its session is gone.
    pub(super) fn session_lost(&mut self, client: usize, session: SessionId) {
        if self.judge.session_lost(session) {
            self.coverage.count("late errors of ended sessions", 1);
            self.clients[client].kernel.forget_session(session);
        }
        self.judge.believes_nothing(session);
    }
}
