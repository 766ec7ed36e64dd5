//! The rank as the driver sees it: a machine, and a few questions an operator may ask it.
//!
//! Absent: the rank itself (crate `mds`).

use mds::State;
use mds::input::Input;
use mds::output::Output;
use proto::{Ino, SessionId};
use stdx::{Mono, Now};

/// What a rank's health is judged by (`health.rs`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankFacts {
    pub state: State,
    /// Requests without an answer for longer than `complaint_s`.
    pub blocked: u64,
    pub complaint_s: u64,
    /// Memory that counts against `cache_limit`.
    pub cache_bytes: u64,
    pub cache_limit: u64,
    pub journal_backlog: u64,
    /// The backlog at which a checkpoint starts.
    pub journal_size: u64,
    /// New data is refused for lack of space.
    pub full: bool,
    /// Clients that do not say which answers they have.
    pub behind: Vec<ClientName>,
    /// Clients that do not give back what others wait for.
    pub late: Vec<ClientName>,
    /// Clients that do not give back what is to make room.
    pub pressed: Vec<ClientName>,
}

/// A client, as a check names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientName {
    pub id: SessionId,
    pub host: String,
    pub mount: String,
}

/// A rank, or a stand-in for one in a test.
pub trait RankMachine: Send {
    /// Applies one input and appends its effects in order.
    fn step(&mut self, now: Now, input: Input, out: &mut Vec<Output>);

    /// When it next wants a tick.
    fn deadline(&self) -> Option<Mono>;

    /// Whether nothing is under way in it that would go on without another input from outside.
    fn is_at_rest(&self) -> bool;

    /// Whether it waits for clients to give something back.
    fn is_recalling(&self) -> bool {
        false
    }

    /// Where it is in its life.
    fn state(&self) -> State {
        State::Active
    }

    /// Whether it has this session.
    fn has_session(&self, _id: SessionId) -> bool {
        false
    }

    /// What is asked of what it has, for the coordinator.
    fn loads(&self, _now: Mono) -> Vec<(Ino, u64)> {
        Vec::new()
    }

    /// What health is judged by; `None` of a stand-in.
    fn facts(&self, _now: Mono) -> Option<RankFacts> {
        None
    }

    /// Answers an operator's question about the rank's state; `None` for one it does not know.
    fn report(&self, now: Mono, question: &serde_json::Value) -> Option<serde_json::Value>;
}
