//! The client of a cluster: one session number, and for each rank that is needed the machine of the session there (`Client`). From the
//! cluster map, and from what ranks answer, it knows which rank a call is for. docs/PROTOCOL.md, "Several ranks".
//!
//! While one rank owns everything, inputs and outputs go through, and no books are kept.
//!
//! Absent: what a session is (`machine.rs`); connections, which the driver makes to each rank that this asks for.

mod answers;
mod bounces;
mod holdings;
mod many;
mod map;
mod opens;
mod parting;
mod places;
pub(crate) mod route;
mod sessions;
#[cfg(test)]
mod tests;

use crate::config::ClientConfig;
use crate::input::{Input, Waiting};
use crate::machine::Client;
use crate::output::Output;
use many::Many;
use map::News;
use proto::cluster::{ClusterMap, MapParts};
use proto::message::{ClientMsg, ServerMsg};
use proto::{Ino, RankId, SessionId};
use stdx::{Machine, Mono, Now, Outbox};

type Out = Outbox<Output>;

/// The one that is greeted first: root is in a directory of the system's, which is never another's.
const FIRST: RankId = RankId(0);

/// The client of a cluster. One input per step, as for `Client`.
#[derive(Clone, Debug)]
pub struct Router(State);

#[derive(Clone, Debug)]
enum State {
    One(Box<One>),
    Many(Box<Many>),
}

/// One rank owns everything.
#[derive(Clone, Debug)]
struct One {
    client: Client,
    map: Option<ClusterMap>,
    parts: MapParts,
}

impl Machine for Router {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, now: Now, input: Input, out: &mut Out) {
        match &mut self.0 {
            State::One(one) => {
                // Of more than one rank only these speak.
                if let Input::Message {
                    message: ServerMsg::Map { .. } | ServerMsg::NotMine { .. } | ServerMsg::Join { .. },
                    ..
                } = &input
                {
                    self.several(now, input, out);
                } else {
                    one.client.step(now, input, out);
                }
            }
            State::Many(many) => many.step(now, input, out),
        }
    }

    fn deadline(&self) -> Option<Mono> {
        match &self.0 {
            State::One(one) => one.client.deadline(),
            State::Many(many) => many.deadline(),
        }
    }
}

impl Router {
    /// A client that has no connection yet. Its driver connects to the first rank, 0, unasked.
    #[must_use]
    pub fn new(config: ClientConfig) -> Self {
        Self(State::One(Box::new(One::new(Client::new(config)))))
    }

    fn clients(&self) -> impl Iterator<Item = &Client> {
        let clients = match &self.0 {
            State::One(one) => std::slice::from_ref(&one.client),
            State::Many(many) => &many.clients,
        };
        clients.iter()
    }

    /// The session, 0 while there is none.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.clients().map(Client::session).find(|session| *session != SessionId(0)).unwrap_or_default()
    }

    /// The directory this session calls root.
    #[must_use]
    pub fn root(&self) -> Ino {
        self.clients().next().map_or(Ino::ROOT, Client::root)
    }

    /// Opens of `ino` that are known of.
    #[must_use]
    pub fn opens(&self, ino: Ino) -> u32 {
        self.clients().map(|client| client.opens(ino)).sum()
    }

    /// Whether the session has a part at that rank, or is to have one.
    #[must_use]
    pub fn has(&self, rank: RankId) -> bool {
        self.clients().any(|client| client.rank() == rank)
    }

    /// Whether the client has use for its connection to a rank, as `Client::is_linked`.
    #[must_use]
    pub fn is_linked(&self, rank: RankId) -> bool {
        self.clients().any(|client| client.rank() == rank && client.is_linked())
    }

    /// Whether the connection to a rank stands, and the rank was silent for a lease: nothing that it granted counts any more.
    #[must_use]
    pub fn is_hung(&self, rank: RankId) -> bool {
        self.clients().any(|client| client.rank() == rank && client.is_hung())
    }

    /// Requests at ranks for whose answers somebody waits. Tids are those of each rank's stream.
    pub fn waiting(&self) -> impl Iterator<Item = (RankId, Waiting)> + '_ {
        self.clients().flat_map(|client| client.waiting().map(|waiting| (client.rank(), waiting)))
    }

    /// As `Client::moves_bytes`.
    #[must_use]
    pub fn moves_bytes(&self, ino: Ino) -> bool {
        self.clients().any(|client| client.moves_bytes(ino))
    }

    /// Calls that were not sent yet.
    #[must_use]
    pub fn queued(&self) -> usize {
        let parked = match &self.0 {
            State::One(_) => 0,
            State::Many(many) => many.waiting(),
        };
        self.clients().map(Client::queued).sum::<usize>() + parked
    }

    /// Requests whose callers have their results, and which are perhaps not durable.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.clients().map(Client::kept).sum()
    }

    /// Directories that are delegated to this client.
    #[must_use]
    pub fn delegated(&self) -> usize {
        self.clients().map(Client::delegated).sum()
    }
}

#[cfg(test)]
impl Router {
    /// In front of a client.
    pub(crate) fn of_one(client: Client) -> Self {
        Self(State::One(Box::new(One::new(client))))
    }

    /// In front of a client that is one of several, and has everything.
    pub(crate) fn of_many(client: Client) -> Self {
        let mut many = Many::new(client, Some(ClusterMap::first()));
        many.clients.iter_mut().for_each(|client| client.has_map(0, true, true));
        Self(State::Many(Box::new(many)))
    }

    pub(crate) fn each_client(&mut self) -> impl Iterator<Item = &mut Client> {
        let clients = match &mut self.0 {
            State::One(one) => std::slice::from_mut(&mut one.client),
            State::Many(many) => &mut many.clients,
        };
        clients.iter_mut()
    }
}

impl Router {
    /// The only rank speaks of others.
    #[cold]
    fn several(&mut self, now: Now, input: Input, out: &mut Out) {
        let State::One(one) = &mut self.0 else { return };
        let Input::Message { message: ServerMsg::Map { version, part, parts, bytes }, .. } = input else {
            // The map may come a moment later.
            let mut many = Many::new(one.client.clone(), one.map.take());
            many.step(now, input, out);
            self.0 = State::Many(Box::new(many));
            return;
        };
        let whole = one.parts.take(version, (part, parts), bytes);
        if let Some(map) = whole.and_then(|bytes| one.on_map(&bytes, out)) {
            self.0 = State::Many(Box::new(Many::new(one.client.clone(), Some(map))));
        }
    }
}

impl One {
    fn new(client: Client) -> Self {
        Self { client, map: None, parts: MapParts::default() }
    }

    /// A map. That which names more than one rank.
    fn on_map(&mut self, bytes: &[u8], out: &mut Out) -> Option<ClusterMap> {
        let map = match map::after(self.map.as_ref(), bytes) {
            News::Map(map) => *map,
            News::Nothing => return None,
            News::Gap(_) => {
                let have = self.map.as_ref().map_or(0, |map| map.version);
                out.push(Output::Send { rank: FIRST, message: ClientMsg::WantMap { have } });
                return None;
            }
        };
        if !map::is_all_of(&map, FIRST) {
            return Some(map);
        }
        self.client.has_map(map.version, true, map::is_alone(&map, FIRST));
        self.map = Some(map);
        None
    }
}
