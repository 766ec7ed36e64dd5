//! A peer that says whatever can be said: requests of its own that are as good as any, and between them messages that no client
//! sends then. What it changes is judged like everybody's; of what it is told nothing is, because nobody believes it. All others
//! must not notice, but that they wait for it as for one that does not answer.
//!
//! Absent: what it performs by itself (crate `fuzz`, rank-session): it is answered when what it did is durable.

use super::{Event, Phase, Plan, World};
use crate::model::judge::{Asked, Verdict};
use crate::workload::Knowledge;
use mds::input::{ConnId, Input, Peer};
use proto::caps::{Bits, Returned};
use proto::ids::{SessionId, Tid};
use proto::message::{At, ClientInfo, ClientMsg, PROTOCOL, ServerMsg};
use proto::request::{LockKind, LockSpec, Request};
use proto::{Cred, Ino, NodeRef};

/// What is known of it.
#[derive(Default)]
pub(super) struct Hostile {
    conn: Option<ConnId>,
    session: SessionId,
    tid: u64,
    known: Knowledge,
    /// What was recalled from it and it gives back with its next message; the rest it keeps, and others wait for its end.
    returns: Vec<Returned>,
    said: u64,
}

/// Longest pause between two messages, in pauses of the others.
const PAUSES: u64 = 10;
/// How often it says something in a run: each of its sessions may cost the others a lease.
const MESSAGES_MAX: u64 = 400;

impl World {
    pub(super) fn hostile_soon(&mut self) {
        self.after(PAUSES * self.plan.pause_ns, Event::Hostile);
    }

    /// It says something, until faults stop; then its lease ends.
    pub(super) fn hostile(&mut self) -> Verdict {
        if self.phase > Phase::Faults || self.hostile.said >= MESSAGES_MAX {
            return Ok(());
        }
        self.hostile.said += 1;
        self.hostile_soon();
        if !self.life.as_ref().is_some_and(|life| life.active) || self.is_rank_hung() {
            self.hostile.conn = None;
            return Ok(());
        }
        let Some(conn) = self.hostile.conn else { return self.hostile_greets() };
        if self.hostile.session == SessionId(0) {
            // Its welcome waits for the disk; who it is nobody can say yet.
            return Ok(());
        }
        let message = self.hostile_message();
        self.coverage.count("hostile messages", 1);
        let session = self.hostile.session;
        if let ClientMsg::Request { tid, cred, request, .. } = &message {
            let cred = if self.plan.hostile_user {
                Plan::cred(super::Kind::User, &mut self.rng)
            } else {
                cred.clone()
            };
            let (embedded, checked, pattern) = (false, self.plan.hostile_user, (0, 0));
            let (tid, request) = (*tid, request.clone());
            self.judge.asked(Asked { session, tid, cred, request, embedded, checked, pattern });
        }
        self.trace.event(self.now, "hostile", conn.0, || format!("{:.200}", format!("{message:?}")));
        self.step_rank(Input::Message { conn, message })
    }

    fn hostile_greets(&mut self) -> Verdict {
        self.conns += 1;
        let conn = ConnId(self.conns);
        let user = Plan::cred(super::Kind::User, &mut self.rng);
        let peer = if self.plan.hostile_user { Peer::User(user) } else { Peer::Trusted };
        self.hostile.conn = Some(conn);
        (self.hostile.session, self.hostile.tid) = (SessionId(0), 0);
        self.hostile.returns.clear();
        self.step_rank(Input::Connected { conn, peer })?;
        let info = ClientInfo { host: "hostile".into(), mount: "/".into(), pid: 0, caps_max: u32::MAX };
        let wants = Bits::ATTRS.with(Bits::FC);
        let message =
            ClientMsg::Hello { protocol: PROTOCOL, session: SessionId(0), info, wants, at: At::default() };
        self.step_rank(Input::Message { conn, message })
    }

    /// The rank says something to it.
    pub(super) fn told_hostile(&mut self, conn: ConnId, message: &ServerMsg) {
        if self.hostile.conn != Some(conn) {
            return;
        }
        match message {
            ServerMsg::Welcome { session, .. } => self.hostile.session = *session,
            ServerMsg::Refused { .. } => self.hostile.conn = None,
            ServerMsg::Recall { list } => {
                for item in list {
                    if !self.rng.chance(1, 64) {
                        self.hostile.returns.push(item.returned(item.bits));
                    }
                }
            }
            _ => {}
        }
    }

    fn hostile_message(&mut self) -> ClientMsg {
        let ino = Ino([0, 1, 2, 4096 + self.rng.below(40), u64::MAX][self.rng.index(5)]);
        let number = [0, 1, u32::MAX, self.rng.below(9) as u32][self.rng.index(4)];
        let node = NodeRef::bare(ino);
        let tid = Tid([self.hostile.tid, 0, u64::MAX][self.rng.index(3)]);
        let kind = if self.rng.chance(1, 2) { LockKind::Write } else { LockKind::Unlock };
        let lock = LockSpec { flock: number == 0, owner: u64::MAX, kind, start: 9, end: 3, pid: number };
        if !self.hostile.returns.is_empty() {
            return ClientMsg::Returned { list: std::mem::take(&mut self.hostile.returns) };
        }
        match self.rng.below(24) {
            0 => ClientMsg::Cancel { tid },
            1 => ClientMsg::Renew { number },
            2 => ClientMsg::Reclaim { node, count: number, writes: true, locks: vec![lock; 2] },
            3 => ClientMsg::Reclaimed,
            4 | 5 => {
                let bits = [Bits::ATTRS, Bits::FC, Bits::DX, Bits::NONE][self.rng.index(4)];
                ClientMsg::Returned { list: vec![Returned { ino, bits, number }; 2] }
            }
            6 => ClientMsg::Settled,
            7 => ClientMsg::Presented,
            8 if self.rng.chance(1, 4) => ClientMsg::Goodbye,
            // Nothing below is asked for under a number that was used before.
            _ => {
                let request = self.hostile_request();
                self.hostile.tid += 1 + self.rng.below(3);
                let tid = Tid(self.hostile.tid);
                let floor = if self.rng.chance(1, 2) { tid } else { Tid(0) };
                ClientMsg::Request { tid, floor, cred: Cred::ROOT, request }
            }
        }
    }

    /// Not what moves bytes: the judge would have to know what is in them; nor locks, which it would hold against others.
    fn hostile_request(&mut self) -> Request {
        let seen = self.judge.seen_by(None);
        loop {
            let (_, request) = self.workload.next(&mut self.hostile.known, &seen);
            let moves = matches!(
                request,
                Request::Write { .. }
                    | Request::CopyRange { .. }
                    | Request::Fallocate { .. }
                    | Request::Fsync { .. }
                    | Request::SetLock { .. }
                    | Request::TmpFile { .. }
            );
            if !moves {
                return request;
            }
        }
    }

    /// Its connection is there no more.
    pub(super) fn hostile_lost(&mut self) {
        self.hostile.conn = None;
    }
}
