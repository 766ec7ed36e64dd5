//! What a client says: its messages, and its requests until they begin.
//!
//! Absent: planning (`planning.rs`); sessions and their greetings (`session/`).

use crate::config::State;
use crate::early::{self};
use crate::input::ConnId;
use crate::op::Op;
use crate::output::Output;
use crate::rank::Rank;
use crate::rank::planning::gives_back_itself;
use crate::session::Admitted;
use proto::message::{ClientMsg, Told};
use proto::request::{Request, open_flags};
use proto::transact::Step;
use proto::{Cred, Errno, Ino, SessionId, Tid};
use stdx::{Mono, Now, Outbox};

/// Whose requests are that the rank asks itself: no session's number.
pub(crate) const OWN: SessionId = SessionId(0);

/// A request as it came.
struct Arrived {
    conn: ConnId,
    session: SessionId,
    tid: Tid,
    floor: Tid,
    cred: Cred,
    /// It was performed already: what its caller was told.
    told: Option<Told>,
    request: Request,
}

/// What a session has no room for any more.
#[derive(Clone, Copy)]
struct Room {
    /// Requests that a caller waits for.
    crowded: bool,
    /// Results to be remembered.
    results_full: bool,
}

/// What ends a transaction, or asks whether it has ended, is never refused. What broke (found by reading): an Abort is said once, and where it
/// was refused because too much was under way, what had been reserved for that transaction stayed reserved.
fn ends_transaction(op: &Op) -> bool {
    let Request::Transact { step, .. } = &op.request else { return false };
    match step {
        Step::Commit { .. } | Step::Abort | Step::Ask => {
            op.of_rank.is_some() && !stdx::mutant!("mds_crowd_refuses_ranks")
        }
        Step::Clear { .. } | Step::Prepare { .. } => false,
    }
}

impl Rank {
    #[inline]
    pub(super) fn message(&mut self, now: Now, conn: ConnId, message: ClientMsg, out: &mut Outbox<Output>) {
        // What was still on its way when the connection ended: nobody is there to be answered.
        let Some(session) = self.sessions.conns.get(&conn).map(|c| c.session) else { return };
        let Some(id) = session else { return self.handle(now, (conn, None), message, out) };
        // Who says anything is there, also who stands in line.
        let said = self.sessions.lease(id, now, self.view.config.lease_ns);
        if said.is_some_and(|session| session.is_in_line()) {
            return self.in_line(now, (conn, id), message, out);
        }
        self.handle(now, (conn, Some(id)), message, out);
    }

    #[inline]
    pub(crate) fn handle(
        &mut self,
        now: Now,
        (conn, session): (ConnId, Option<SessionId>),
        message: ClientMsg,
        out: &mut Outbox<Output>,
    ) {
        match (message, session) {
            (ClientMsg::Request { tid, floor, cred, request }, Some(id)) => {
                self.request(now, Arrived { conn, session: id, tid, floor, cred, told: None, request }, out);
            }
            (ClientMsg::Hello { protocol, session, info, wants, at }, _) => {
                self.hello(now, conn, (protocol, session), (info, wants, at), out);
            }
            (ClientMsg::RankHello { protocol, from, incarnation, to, map_version, settled }, _) => {
                self.rank_hello(now, conn, (protocol, to, map_version), (from, incarnation, settled), out);
            }
            (ClientMsg::Admin { .. }, _) => {}
            (_, None) => self.refuse(conn, Errno::EPROTO, "no session on this connection", out),
            (ClientMsg::Cancel { tid }, Some(id)) => self.cancel(id, tid, out),
            (ClientMsg::CapsMax { caps_max }, Some(id)) => {
                if let Some(place) = self.sessions.map.get(&id).and_then(|session| session.place) {
                    self.view.book.ask_for(place, caps_max);
                }
            }
            (ClientMsg::WantMap { have }, Some(id)) => self.want_map(id, have, out),
            (ClientMsg::Renew { number }, Some(id)) => self.renewed(now, id, number, out),
            (ClientMsg::Reclaim { node, count, writes, locks }, Some(id)) => {
                self.reclaim(id, node, (count, writes), &locks, out);
            }
            (ClientMsg::Reclaimed, Some(id)) => self.reclaimed(id, out),
            (ClientMsg::Returned { list }, Some(id)) => self.returned(id, &list),
            (ClientMsg::Idle { list }, Some(id)) => self.idle(id, &list),
            (ClientMsg::Settled, Some(id)) => self.settled(id),
            (ClientMsg::Performed { tid, floor, cred, told, request }, Some(id)) => {
                self.request(
                    now,
                    Arrived { conn, session: id, tid, floor, cred, told: Some(told), request },
                    out,
                );
            }
            (ClientMsg::Presented, Some(id)) => self.presented(id),
            (ClientMsg::Goodbye, Some(id)) => {
                out.extend(
                    self.sessions.map.get(&id).map(|session| session.note(id, "closed by its client")),
                );
                self.end_session(now, id, out);
            }
        }
    }

    fn request(&mut self, now: Now, arrived: Arrived, out: &mut Outbox<Output>) {
        let Arrived { conn, session: id, tid, floor, mut cred, told, mut request } = arrived;
        let Some(mut session) = self.sessions.map.get_mut(&id) else {
            self.refuse(conn, Errno::EPROTO, "no session on this connection", out);
            return;
        };
        // Nobody waits for the answer below its own floor: what it has at the rank would be forgotten under its hands.
        if floor > tid {
            return self.refuse(conn, Errno::EPROTO, "a floor above the request that says it", out);
        }
        if !Self::may_ask(session, &request) {
            return self.refuse(conn, Errno::EPROTO, "a request that is not for this session", out);
        }
        if told.is_some() && !early::is_eager(session) {
            let reason =
                "only a session that is answered early and may act for anyone performs requests by itself";
            return self.refuse(conn, Errno::EPROTO, reason, out);
        }
        if !self.former_opens.is_empty() {
            self.forget_former(id, floor);
            let Some(again) = self.sessions.map.get_mut(&id) else { return };
            session = again;
        }
        let place = session.place.filter(|_| !gives_back_itself(&request));
        let (embedded, checked) = (session.embedded, session.check.is_some());
        let (of_rank, limit) = (session.rank.map(|(rank, _)| rank), session.limit);
        if let Some(check) = &session.check {
            // Into the memory that came with the request: a list of groups is long.
            (cred.uid, cred.gid) = (check.uid, check.gid);
            cred.groups.clone_from(&check.groups);
        }
        (session.fresh, session.last_request) = (false, now.mono);
        session.traffic.request(now.mono);
        self.meter.traffic.request(now.mono);
        let mut unheard = false;
        if !embedded && !stdx::mutant!("mds_retry_runs_twice") {
            // A client that never heard of it reclaimed what it had before: no lock that was granted in a former life, but each that
            // was released there.
            let reclaimed = matches!(
                request,
                Request::SetLock { .. } | Request::ReleaseLocks { .. } | Request::Release { .. }
            );
            if reclaimed && session.results.get(tid).is_some_and(|r| r.former) {
                session.results.remove(tid);
            }
            self.view.unheard.forget_below(id, floor);
            let is_former = session.results.get(tid).is_none_or(|result| result.former);
            unheard = is_former && told.is_none() && self.view.unheard.has(id, tid);
            let admitted = if unheard { session.admit_again(tid, floor) } else { session.admit(tid, floor) };
            match admitted {
                Admitted::New => {}
                Admitted::Known => return,
                Admitted::Done(result) => return self.answer_again(id, tid, (told, &request), result, out),
            }
        }
        session.in_flight += 1;
        // It was told that it made something: what is there already is not that.
        if let (Request::Create { flags, .. }, Some(told)) = (&mut request, told)
            && told.ino != Ino::NONE
        {
            *flags |= open_flags::EXCL;
        }
        // Its results go into one record of the store: who never moves its floor is stopped before that grows too large.
        let limits = &self.view.config.limits;
        let results_full = session.results.len() >= limits.results;
        let room =
            Room { crowded: session.in_flight > limits.parked_per_session || results_full, results_full };
        self.next_op += 1;
        let mut op = Op::new(self.next_op, (id, tid), cred, request, now.mono);
        (op.embedded, op.place, op.check, op.told) = (embedded, place, checked, told);
        (op.of_rank, op.limit, op.unheard) = (of_rank, limit, unheard);
        self.begin(now, conn, &mut op, room, out);
    }

    /// One that the rank asks itself.
    pub(crate) fn own_op(&mut self, request: Request, since: Mono) -> Op {
        self.next_op += 1;
        Op::new(self.next_op, (OWN, Tid(0)), Cred::ROOT, request, since)
    }

    /// Runs a new operation, or refuses it.
    fn begin(&mut self, now: Now, conn: ConnId, op: &mut Op, room: Room, out: &mut Outbox<Output>) {
        if !self.state.serves() {
            let errno = if self.state == State::Damaged { Errno::EIO } else { Errno::ESHUTDOWN };
            return self.answer(op, Err(errno), false, out);
        }
        if room.crowded && op.told.is_none() && !op.unheard && !ends_transaction(op) {
            // Another rank asks for all of its clients, who did nothing wrong: it asks again.
            let is_rank = op.of_rank.is_some() && !stdx::mutant!("mds_crowd_refuses_ranks");
            let errno = if is_rank { Errno::EAGAIN } else { Errno::EBUSY };
            return self.answer(op, Err(errno), false, out);
        }
        if op.told.is_some() && room.results_full {
            // They go into one record of the store. An honest client stays far below.
            let reason = "more results are to be remembered than may be";
            return self.refuse(conn, Errno::EPROTO, reason, out);
        }
        if op.told.is_some()
            && let Some(session) = self.sessions.map.get_mut(&op.session)
        {
            session.performing = Some(op.id);
        }
        self.run(now, op, out);
    }
}
