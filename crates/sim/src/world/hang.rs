//! Processes that are stopped for a while and go on: the rank's, or a client's with its host. What is sent to them meanwhile waits
//! unread, clocks go on.
//!
//! Absent: messages that are merely slow, and clients that only give back slowly.

use super::{Event, Kind, World};
use crate::model::judge::Verdict;
use mds::input::ConnId;
use proto::ids::{SessionId, Tid};
use proto::message::ServerMsg;
use std::collections::BTreeSet;
use stdx::time::{MS, SECOND};

/// Who is stopped, and until when.
#[derive(Debug, Default)]
pub(super) struct Hangs {
    /// The rank's life, when it goes on, and when it begins to read what was sent to it: its clock ticks first, or not.
    rank: Option<(u64, u64, u64)>,
    clients: Vec<u64>,
    /// Connections on which something has come that nobody has read.
    unread: BTreeSet<ConnId>,
}

impl Hangs {
    /// When the rank went on after it was stopped last in this life of it, or will.
    pub(super) fn rank_awake_at(&self, lives: u64) -> u64 {
        self.rank.filter(|(life, ..)| *life == lives).map_or(0, |(.., reads)| reads)
    }
}

impl World {
    /// Somebody is stopped, for up to two leases and a half.
    pub(super) fn hang(&mut self) {
        let longest = [SECOND, 12 * SECOND, 25 * SECOND][self.rng.index(3)];
        let until = self.now + 1 + self.rng.below(longest);
        let remote = if self.rng.chance(1, 2) { None } else { self.remote() };
        if let Some(client) = remote {
            self.trace.event(self.now, "hang", client as u64, || format!("client {client} until {until}"));
            self.coverage.count("clients stopped", 1);
            self.hangs.clients.resize(self.clients.len(), 0);
            let at = &mut self.hangs.clients[client];
            *at = until.max(*at);
            // It waits for nothing meanwhile.
            self.clients[client].connected_at = until;
        } else if self.life.is_some() && !self.is_rank_hung() {
            self.trace.event(self.now, "hang", self.lives, || format!("the rank until {until}"));
            self.coverage.count("ranks stopped", 1);
            let reads = until + if self.rng.chance(1, 2) { MS } else { 0 };
            self.hangs.rank = Some((self.lives, until, reads));
        }
    }

    /// Whether the session has said something that the rank has not read, on a connection that is there still.
    pub(super) fn is_unread(&self, session: SessionId) -> bool {
        let Some(life) = &self.life else { return false };
        let of = |conn| life.conns.get(conn).is_some_and(|(_, of)| *of == Some(session));
        self.hangs.unread.iter().any(of)
    }

    /// Requests of a client whose answers have left the rank and lie unread.
    pub(super) fn on_their_way(&self, client: usize) -> impl Iterator<Item = Tid> {
        let conn = self.clients[client].conn;
        self.heap.values().filter_map(move |event| match event {
            Event::ToClient { client: to, conn: on, message } if *to == client && Some(*on) == conn => {
                match **message {
                    ServerMsg::Reply { tid, .. }
                    | ServerMsg::Granted { tid, .. }
                    | ServerMsg::Early { tid, .. } => Some(tid),
                    _ => None,
                }
            }
            _ => None,
        })
    }

    pub(super) fn is_hung(&self, client: usize) -> bool {
        self.hangs.clients.get(client).is_some_and(|until| self.now < *until)
    }

    pub(super) fn is_rank_hung(&self) -> bool {
        self.hangs.rank.is_some_and(|(life, _, reads)| self.lives == life && self.now < reads)
    }

    /// Gives an event back if it may happen now; otherwise it happens when its process goes on, behind what came to it before.
    pub(super) fn unless_hung(&mut self, event: Event) -> Verdict<Option<Event>> {
        let until = self.rank_hangs(&event).max(self.client_hangs(&event));
        if let Event::ToRank { conn, .. } = &event {
            if until > self.now {
                self.hangs.unread.insert(*conn)
            } else {
                self.hangs.unread.remove(conn)
            };
        }
        if until <= self.now {
            return Ok(Some(event));
        }
        self.at(until, event);
        Ok(None)
    }

    fn rank_hangs(&self, event: &Event) -> u64 {
        let Some((life, until, reads)) = self.hangs.rank.filter(|(life, ..)| *life == self.lives) else {
            return 0;
        };
        match event {
            Event::ToRank { life: of, .. } if *of == life => reads,
            Event::Connect { .. } => reads,
            Event::Rank { life: of, .. }
            | Event::Commit { life: of }
            | Event::Load { life: of, .. }
            | Event::Store { life: of, .. }
            | Event::StoreComplete { life: of, .. }
            | Event::Data { life: of, .. }
            | Event::RankTick { life: of }
            | Event::Background { life: of }
                if *of == life =>
            {
                until
            }
            other => match client_of(other) {
                // It is in the same process.
                Some(client) if self.clients[client].kind == Kind::Embedded => until,
                _ => 0,
            },
        }
    }

    fn client_hangs(&self, event: &Event) -> u64 {
        client_of(event).and_then(|client| self.hangs.clients.get(client)).copied().unwrap_or(0)
    }
}

/// The client in which an event happens.
const fn client_of(event: &Event) -> Option<usize> {
    match event {
        Event::ToClient { client, .. }
        | Event::Broken { client, .. }
        | Event::Connect { client, .. }
        | Event::ClientTick { client, .. }
        | Event::Call { client, .. }
        | Event::Interrupt { client, .. }
        | Event::Killed { client, .. }
        | Event::Take { client, .. }
        | Event::Drop { client, .. } => Some(*client),
        _ => None,
    }
}
