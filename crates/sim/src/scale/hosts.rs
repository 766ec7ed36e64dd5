//! The clients: hosts with a session at each rank, and callers that wait for one request at a time.
//!
//! They speak the protocol as a client does that has a use for no capability: every call is a request, answered when it is durable. Client
//! machines (`client::Router`) would take several times the time of the ranks that they load, and none of it is charged to anybody,
//! because clients run on hosts of their own.
//!
//! Absent: leases, which are longer than a run; lost connections.

use mds::input::ConnId;
use proto::caps::Bits;
use proto::message::{At, ClientInfo, ClientMsg, JoinToken, PROTOCOL, ServerMsg};
use proto::reply::Outcome;
use proto::request::Request;
use proto::{Cred, RankId, SessionId, Tid};
use std::collections::BTreeMap;

/// A session at one rank.
struct Link {
    conn: ConnId,
    up: bool,
    last_tid: u64,
    /// Whose requests have no answer.
    waiting: BTreeMap<Tid, u64>,
    /// Said at this instant.
    outbox: Vec<ClientMsg>,
}

/// What came of a message.
pub(super) enum Heard {
    /// A session stands at the rank that sent it.
    Welcome,
    Answer {
        caller: u64,
        outcome: Outcome,
    },
    Nothing,
}

/// One host.
pub(super) struct Host {
    session: SessionId,
    token: JoinToken,
    links: Vec<Link>,
    /// Ranks to which something was said at this instant.
    said: Vec<usize>,
}

impl Host {
    /// Connected to each rank, in their order.
    pub(super) fn new(conns: impl Iterator<Item = ConnId>) -> Self {
        let link = |conn| Link { conn, up: false, last_tid: 0, waiting: BTreeMap::new(), outbox: Vec::new() };
        Self {
            session: SessionId(0),
            token: JoinToken::default(),
            links: conns.map(link).collect(),
            said: Vec::new(),
        }
    }

    pub(super) fn conn(&self, rank: usize) -> ConnId {
        self.links[rank].conn
    }

    /// Greets a rank.
    pub(super) fn greet(&mut self, rank: RankId, map_version: u64) {
        let info = ClientInfo { host: "host".into(), mount: "/mnt".into(), pid: 1, caps_max: 0 };
        let join = self.session != SessionId(0);
        let at = At { rank, join, token: self.token, map_version, ..At::default() };
        let hello =
            ClientMsg::Hello { protocol: PROTOCOL, session: self.session, info, wants: Bits::NONE, at };
        self.say(usize::from(rank.0), hello);
    }

    fn say(&mut self, rank: usize, message: ClientMsg) {
        let outbox = &mut self.links[rank].outbox;
        if outbox.is_empty() {
            self.said.push(rank);
        }
        outbox.push(message);
    }

    /// A caller asks a rank.
    pub(super) fn ask(&mut self, caller: u64, rank: RankId, request: Request) {
        let link = &mut self.links[usize::from(rank.0)];
        link.last_tid += 1;
        let tid = Tid(link.last_tid);
        link.waiting.insert(tid, caller);
        let floor = link.waiting.first_key_value().map_or(tid, |(first, _)| *first);
        let message = ClientMsg::Request { tid, floor, cred: Cred::ROOT, request };
        self.say(usize::from(rank.0), message);
    }

    /// What leaves now, by rank.
    pub(super) fn take_said(&mut self) -> Vec<(usize, ConnId, Vec<ClientMsg>)> {
        let said = std::mem::take(&mut self.said);
        let leaves = |rank: usize| {
            let link = &mut self.links[rank];
            (rank, link.conn, std::mem::take(&mut link.outbox))
        };
        said.into_iter().map(leaves).collect()
    }

    pub(super) fn is_up(&self) -> bool {
        self.links.iter().all(|link| link.up)
    }

    /// Takes a message of a rank in.
    ///
    /// # Errors
    /// What no rank says to such a client.
    pub(super) fn hear(&mut self, rank: usize, message: ServerMsg) -> Result<Heard, String> {
        let link = &mut self.links[rank];
        match message {
            ServerMsg::Welcome { session, token, .. } => {
                (link.up, self.session, self.token) = (true, session, token);
                Ok(Heard::Welcome)
            }
            ServerMsg::Reply { tid, outcome } | ServerMsg::Granted { tid, outcome, .. } => {
                let caller =
                    link.waiting.remove(&tid).ok_or_else(|| format!("{tid:?} was answered twice"))?;
                Ok(Heard::Answer { caller, outcome })
            }
            ServerMsg::Map { .. } | ServerMsg::Renewed { .. } => Ok(Heard::Nothing),
            ServerMsg::Refused { .. }
            | ServerMsg::Admin { .. }
            | ServerMsg::Recall { .. }
            | ServerMsg::Early { .. }
            | ServerMsg::Done { .. }
            | ServerMsg::Durable { .. }
            | ServerMsg::Numbers { .. }
            | ServerMsg::Join { .. }
            | ServerMsg::Damaged
            | ServerMsg::NotMine { .. } => Err(format!("rank {rank} says {message:?}")),
        }
    }
}
