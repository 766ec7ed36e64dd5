//! What the fake rank does with each message.
//!
//! Absent: how tests steer it (`fake.rs`), its files (`tree.rs`).

use super::{Posts, State, Wait, ranks};
use proto::caps::{Bits, Grants};
use proto::message::{At, ClientMsg, JoinToken, PROTOCOL, ServerMsg};
use proto::reply::{Outcome, Reply};
use proto::request::{LockKind, LockSpec, Request};
use proto::storeio::Payload;
use proto::{Errno, Ino, SessionId, Tid};

impl State {
    pub(super) fn receive(&mut self, conn: u64, message: ClientMsg) -> Posts {
        let Some(session) = self.conns.get(&conn).map(|conn| conn.session) else { return Vec::new() };
        match message {
            ClientMsg::Hello { session, wants, at, .. } => self.hello(conn, session, wants, at),
            ClientMsg::Request { tid, floor, request, .. } => {
                let Some(known) = self.sessions.get_mut(&session) else { return Vec::new() };
                known.results.retain(|tid, _| *tid >= floor);
                if let Some(outcome) = known.results.get(&tid) {
                    return vec![(conn, ServerMsg::Reply { tid, outcome: outcome.clone() })];
                }
                if let Some(away) = self.sent_away(conn, tid, &request) {
                    return away;
                }
                self.seen.push(kept(&request));
                self.request(conn, session, tid, &request)
            }
            ClientMsg::Cancel { tid } => {
                let before = self.waits.len();
                self.waits.retain(|wait| wait.session != session || wait.tid != tid);
                match self.waits.len() < before {
                    true => vec![(conn, ServerMsg::Reply { tid, outcome: Err(Errno::EINTR) })],
                    false => Vec::new(),
                }
            }
            ClientMsg::Reclaim { node, count, locks, .. } => {
                let Some(known) = self.sessions.get_mut(&session).filter(|known| !known.lives_on) else {
                    return Vec::new();
                };
                known.opens.insert(node.ino, count);
                self.locks.retain(|(holder, ino, _)| *holder != session || *ino != node.ino);
                self.locks.extend(locks.into_iter().map(|lock| (session, node.ino, lock)));
                Vec::new()
            }
            ClientMsg::Goodbye => {
                self.sessions.remove(&session);
                self.locks.retain(|(holder, _, _)| *holder != session);
                Vec::new()
            }
            ClientMsg::Returned { list } => {
                self.returned.extend(list);
                Vec::new()
            }
            ClientMsg::Idle { list } => {
                self.offered.extend(list);
                Vec::new()
            }
            ClientMsg::Settled => {
                self.settled += 1;
                Vec::new()
            }
            ClientMsg::Renew { number } => {
                self.renewed += 1;
                vec![(conn, ServerMsg::Renewed { number })]
            }
            ClientMsg::Performed { tid, floor, told, request, .. } => {
                self.performed(conn, session, (tid, floor), told, &request)
            }
            ClientMsg::Presented => {
                self.presented();
                Vec::new()
            }
            ClientMsg::WantMap { have } => self.ranks.news(have).into_iter().map(|map| (conn, map)).collect(),
            ClientMsg::Reclaimed
            | ClientMsg::Admin { .. }
            | ClientMsg::RankHello { .. }
            | ClientMsg::CapsMax { .. } => Vec::new(),
        }
    }

    fn hello(&mut self, conn: u64, told: SessionId, wants: Bits, at: At) -> Posts {
        let former = ranks::part(told, at.rank);
        let resumed = self.sessions.contains_key(&former);
        let joins = at.join
            && at.token == JoinToken([told.0 as u8; 16])
            && self.sessions.keys().any(|part| ranks::whole(*part) == told);
        if !resumed && self.ranks.stops(at.rank) {
            return vec![(conn, ranks::leaves())];
        }
        if told != SessionId(0) && !resumed && !joins {
            let (errno, reason) = (Errno::ESTALE.0 as u32, "the session was evicted".to_owned());
            return vec![(conn, ServerMsg::Refused { errno, reason })];
        }
        self.next += 1;
        let told = if resumed || joins { told } else { SessionId(self.next) };
        let session = ranks::part(told, at.rank);
        let known = self.sessions.entry(session).or_default();
        (known.wants, known.lives_on) = (wants, resumed);
        if let Some(conn) = self.conns.get_mut(&conn) {
            (conn.session, conn.rank) = (session, at.rank);
        }
        let welcome = ServerMsg::Welcome {
            protocol: PROTOCOL,
            session: told,
            incarnation: proto::Incarnation(1),
            fsid: [7; 16],
            resumed,
            lease_ms: self.lease_ms,
            root: Ino::ROOT,
            synced: true,
            former: proto::Incarnation(0),
            token: JoinToken([told.0 as u8; 16]),
        };
        let mut posts = vec![(conn, welcome)];
        posts.extend(self.ranks.news(at.map_version).map(|map| (conn, map)));
        if !resumed {
            self.greet_early(conn, wants, &mut posts);
        }
        posts
    }

    fn request(&mut self, conn: u64, session: SessionId, tid: Tid, request: &Request) -> Posts {
        let outcome = match request {
            Request::SetLock { node, lock, wait } => match self.take_lock(session, node.ino, *lock) {
                Err(_) if *wait => {
                    self.waits.push(Wait { conn, session, tid, ino: node.ino, lock: *lock });
                    return Vec::new();
                }
                outcome => outcome,
            },
            Request::ReleaseLocks { node, flock, owner } => {
                self.locks.retain(|(holder, ino, lock)| {
                    *holder != session || *ino != node.ino || lock.flock != *flock || lock.owner != *owner
                });
                Ok(Reply::Ok)
            }
            Request::TestLock { node, lock } => Ok(Reply::Lock(self.in_the_way(session, node.ino, lock))),
            Request::Release { node, count } => {
                self.count(session, node.ino, -i64::from(*count));
                Ok(Reply::Ok)
            }
            other => self.tree.execute(other),
        };
        self.count_opened(session, request, &outcome);
        if let Some(session) = self.sessions.get_mut(&session) {
            session.results.insert(tid, outcome.clone());
        }
        let mut posts = vec![(conn, self.answer(session, tid, request, outcome))];
        posts.append(&mut self.unblocked());
        posts
    }

    pub(super) fn count_opened(&mut self, session: SessionId, request: &Request, outcome: &Outcome) {
        if matches!(request, Request::Open { .. } | Request::Create { .. } | Request::TmpFile { .. })
            && let Ok(Reply::Attr(attr) | Reply::Created { attr, .. }) = outcome
        {
            self.count(session, attr.ino, 1);
        }
    }

    /// A reply, with what is granted.
    fn answer(&mut self, session: SessionId, tid: Tid, request: &Request, outcome: Outcome) -> ServerMsg {
        let wants = self
            .sessions
            .get(&session)
            .map_or(Bits::NONE, |session| session.wants.without(Bits::DX.with(Bits::ALONE)));
        let grants = match &outcome {
            Ok(Reply::Attr(_) | Reply::Created { .. }) => Grants::One(wants),
            Ok(Reply::Entries { entries, .. }) => Grants::Each(entries.iter().map(|_| wants).collect()),
            _ => Grants::None,
        };
        let granted = self.granting && wants != Bits::NONE && grants != Grants::None;
        let left = if granted { &grants } else { &Grants::None };
        if let Some(early) = self.early_answer(session, tid, request, &outcome, left) {
            return early;
        }
        match granted {
            true => ServerMsg::Granted { tid, outcome, grants },
            false => ServerMsg::Reply { tid, outcome },
        }
    }

    fn count(&mut self, session: SessionId, ino: Ino, by: i64) {
        let Some(session) = self.sessions.get_mut(&session) else { return };
        let opens = session.opens.entry(ino).or_default();
        *opens = opens.saturating_add_signed(by as i32);
        if *opens == 0 {
            session.opens.remove(&ino);
        }
    }

    fn in_the_way(&self, session: SessionId, ino: Ino, lock: &LockSpec) -> Option<LockSpec> {
        let conflicts = |(holder, at, held): &&(SessionId, Ino, LockSpec)| {
            *at == ino
                && held.flock == lock.flock
                && (*holder != session || held.owner != lock.owner)
                && !(held.kind == LockKind::Read && lock.kind == LockKind::Read)
        };
        self.locks.iter().find(conflicts).map(|(_, _, held)| *held)
    }

    fn take_lock(&mut self, session: SessionId, ino: Ino, lock: LockSpec) -> Outcome {
        if lock.kind != LockKind::Unlock && self.in_the_way(session, ino, &lock).is_some() {
            return Err(Errno::EAGAIN);
        }
        self.locks.retain(|(holder, at, held)| {
            *holder != session || *at != ino || held.flock != lock.flock || held.owner != lock.owner
        });
        if lock.kind != LockKind::Unlock {
            self.locks.push((session, ino, lock));
        }
        Ok(Reply::Ok)
    }

    /// Ends waits that nothing blocks any more, oldest first.
    fn unblocked(&mut self) -> Posts {
        let mut posts = Vec::new();
        for wait in std::mem::take(&mut self.waits) {
            match self.take_lock(wait.session, wait.ino, wait.lock) {
                Ok(reply) => {
                    if let Some(session) = self.sessions.get_mut(&wait.session) {
                        session.results.insert(wait.tid, Ok(reply.clone()));
                    }
                    posts.push((wait.conn, ServerMsg::Reply { tid: wait.tid, outcome: Ok(reply) }));
                }
                Err(_) => self.waits.push(wait),
            }
        }
        posts
    }
}

/// A copy that may be kept: a kernel that lent its bytes, or room for them, waits until it has them back.
pub(super) fn kept(request: &Request) -> Request {
    let mut copy = request.clone();
    match &mut copy {
        Request::Write { data, .. } => *data = Payload::Owned(data.bytes().to_vec()),
        Request::Read { into, .. } => *into = None,
        _ => {}
    }
    copy
}
