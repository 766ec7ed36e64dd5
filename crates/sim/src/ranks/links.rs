//! Connections: of clients to ranks, and of ranks to ranks. Each keeps order; a break is noticed by both ends at their own times.
//!
//! Absent: what is said (`lives.rs`, `clients.rs`).

use super::Ranks;
use super::event::Event;
use super::judge::Guest;
use super::limits::Limited;
use crate::model::judge::Verdict;
use crate::trace::fold;
use mds::input::{ConnId, Input, Peer};
use proto::Writer;
use proto::ids::{RankId, SessionId};
use proto::message::{ClientMsg, ServerMsg};
use stdx::time::MS;

/// Who made a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Client {
        client: usize,
        birth: u64,
    },
    /// A life of another rank.
    Rank {
        life: u64,
    },
}

/// A connection to a life of a rank, as long as something may travel on it.
#[derive(Clone, Debug)]
pub(super) struct Conn {
    pub(super) life: u64,
    pub(super) rank: RankId,
    pub(super) end: End,
    /// Whoever greets on it is limited to a directory.
    pub(super) guest: Option<Guest>,
    /// What it became.
    pub(super) session: Option<SessionId>,
    /// When the last message of each direction arrives.
    to_rank_at: u64,
    to_end_at: u64,
}

impl Ranks {
    /// The life of a rank that takes connections.
    pub(super) fn serving(&self, rank: RankId) -> Option<u64> {
        let mut lives = self.lives.values().rev().filter(|life| life.rank == rank && life.active);
        lives.next().map(|life| life.incarnation.0)
    }

    /// A connection is made.
    pub(super) fn connects(
        &mut self,
        life: u64,
        rank: RankId,
        end: End,
        limited: Option<Limited>,
    ) -> Verdict<ConnId> {
        self.last_conn += 1;
        let conn = ConnId(self.last_conn);
        self.trace.event(self.now, "connect", conn.0, || format!("{} to life {life} from {end:?}", conn.0));
        let guest = limited.map(|limited| limited.guest);
        self.conns.insert(conn, Conn { life, rank, end, guest, session: None, to_rank_at: 0, to_end_at: 0 });
        self.step_rank(life, Input::Connected { conn, peer: Peer::Trusted })?;
        if let Some(dir) = limited.and_then(|limited| limited.decided()) {
            self.step_rank(life, Input::Limit { conn, dir })?;
        }
        Ok(conn)
    }

    /// A message on its way to a rank.
    pub(super) fn say_to_rank(&mut self, conn: ConnId, message: ClientMsg) {
        let delay = self.rng.below(self.plan.message_ns);
        let now = self.now;
        let Some(at) = self.conns.get_mut(&conn) else { return };
        at.to_rank_at = (at.to_rank_at + 1).max(now + delay);
        let (life, when) = (at.life, at.to_rank_at);
        self.at(when, Event::ToRank { life, conn, message: Box::new(message) });
    }

    /// What a rank says on a connection.
    pub(super) fn send_from_rank(&mut self, conn: ConnId, message: ServerMsg) {
        let delay = self.rng.below(self.plan.message_ns);
        let now = self.now;
        let Some(at) = self.conns.get_mut(&conn) else { return };
        if let ServerMsg::Welcome { session, .. } = &message {
            let session = *session;
            at.session = Some(session);
            self.welcomed(conn, session);
        }
        let Some(at) = self.conns.get_mut(&conn) else { return };
        at.to_end_at = (at.to_end_at + 1).max(now + delay);
        let (when, end, rank) = (at.to_end_at, at.end, at.rank);
        let mut w = Writer::new();
        message.encode(&mut w);
        self.trace.event(now, "answer", conn.0 ^ fold(&w.0), || {
            let text = format!("{message:?}");
            format!("rank {} {} {text:.900}", rank.0, conn.0)
        });
        let message = Box::new(message);
        self.at(
            when,
            match end {
                End::Client { client, .. } => Event::ToClient { client, conn, message },
                End::Rank { life } => Event::FromRank { life, rank, conn, message },
            },
        );
    }

    /// The rank closes a connection: what it sent before still arrives.
    pub(super) fn close_conn(&mut self, conn: ConnId) {
        let Some(at) = self.conns.remove(&conn) else { return };
        let when = at.to_end_at.max(self.now) + 1;
        self.end_notices(conn, &at, when);
    }

    fn end_notices(&mut self, conn: ConnId, at: &Conn, when: u64) {
        match at.end {
            End::Client { client, .. } => self.at(when, Event::Broken { client, conn }),
            End::Rank { life } => self.at(when, Event::RankGone { life, rank: at.rank, conn: Some(conn) }),
        }
    }

    /// A connection breaks: what is on its way is lost.
    pub(super) fn cut(&mut self, conn: ConnId) {
        let Some(at) = self.conns.remove(&conn) else { return };
        self.trace.event(self.now, "cut", conn.0, || format!("{} {:?}", conn.0, at.end));
        let input = Box::new(Input::Disconnected { conn });
        self.after(100 * MS, Event::Rank { life: at.life, input });
        let when = self.now + 1 + self.rng.below(100 * MS);
        self.end_notices(conn, &at, when);
    }

    /// The end that made it closes a connection: what it sent before still arrives.
    pub(super) fn hangs_up(&mut self, conn: ConnId) {
        let Some(at) = self.conns.get(&conn) else { return };
        let (life, when) = (at.life, at.to_rank_at.max(self.now) + 1);
        self.at(when, Event::Rank { life, input: Box::new(Input::Disconnected { conn }) });
    }

    /// Connections of a life that is over, to it and from it.
    pub(super) fn conns_of_dead(&mut self, life: u64) {
        let of = |at: &Conn| at.life == life || at.end == End::Rank { life };
        let conns: Vec<ConnId> = self.conns.iter().filter(|(_, at)| of(at)).map(|(conn, _)| *conn).collect();
        conns.into_iter().for_each(|conn| self.cut(conn));
        self.links.retain(|(from, _), _| *from != life);
    }

    /// A rank says something to another.
    pub(super) fn send_to_rank(&mut self, life: u64, rank: RankId, message: ClientMsg) {
        self.coverage.count("messages between ranks");
        let conn = match self.links.get(&(life, rank)) {
            Some(conn) => *conn,
            None => {
                let Some(other) = self.serving(rank) else {
                    self.after(100 * MS, Event::RankGone { life, rank, conn: None });
                    return;
                };
                self.last_conn += 1;
                let conn = ConnId(self.last_conn);
                let end = End::Rank { life };
                self.trace.event(self.now, "link", conn.0, || {
                    format!("{} from life {life} to life {other}", conn.0)
                });
                self.conns.insert(
                    conn,
                    Conn { life: other, rank, end, guest: None, session: None, to_rank_at: 0, to_end_at: 0 },
                );
                self.links.insert((life, rank), conn);
                let input = Input::Connected { conn, peer: Peer::Trusted };
                self.at(self.now, Event::Rank { life: other, input: Box::new(input) });
                conn
            }
        };
        self.say_to_rank(conn, message);
    }

    pub(super) fn rank_said(&mut self, life: u64, rank: RankId, conn: ConnId, message: ServerMsg) -> Verdict {
        if self.links.get(&(life, rank)) != Some(&conn) {
            return Ok(());
        }
        if let (ServerMsg::Map { version, part, parts, bytes }, Some(at)) = (&message, self.lives.get(&life))
            && part + 1 == *parts
            && self.judge.has_use_for(at.rank, bytes)
            && let Some(map) = self.seat.maps.get(version)
        {
            self.judge.hears_map(at.rank, map);
        }
        self.step_rank(life, Input::FromRank { rank, message: Box::new(message) })
    }

    pub(super) fn rank_gone(&mut self, life: u64, rank: RankId, conn: Option<ConnId>) -> Verdict {
        if self.links.get(&(life, rank)).copied() != conn {
            return Ok(());
        }
        self.links.remove(&(life, rank));
        self.step_rank(life, Input::RankGone { rank })
    }
}
