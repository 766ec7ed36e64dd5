//! The coordinator: the machine that decides which life of which rank is carried by which daemon.
//!
//! Its state is the last map known to be durable, and what it observed since: who registered, what beacons said and when, who is
//! gone, who is fenced, what operators asked for. Each turn `plan` computes the next map from these two; if it differs it is
//! swapped in, and what follows from it is said when it is durable. After a swap that came too late the map is read again, and the
//! next plan is made from what is there: no step of a decision has to be taken back.
//!
//! Reading order: `machine`, `plan`, `seen`, `states`, `commands`, `ask`, `changes`, `moves`, `placement`.
//!
//! Absent: I/O, clocks, threads; who is the coordinator (a driver's choice, of which the map's `coordinator` decides).

mod ask;
mod changes;
mod commands;
mod machine;
mod moves;
mod placement;
mod plan;
mod seen;
mod states;
#[cfg(test)]
mod tests;

pub use ask::{Ask, Dropped, Found, Governing, Governor, Life, Subject};
pub use machine::Coordinator;

use crate::output::Level;
use proto::cluster::{ClusterMap, DaemonId, Mask, MoveId, RankState};
use proto::storeio::StoreError;
use proto::{Incarnation, Ino, RankId};
use std::sync::Arc;
use stdx::Mono;

/// What a coordinator is told once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoordinatorConfig {
    /// `mds_beacon_grace` (15 s), L: an acknowledged beacon lets its rank serve for so long from when it was sent. A rank is failed
    /// when nothing was heard of it for 1.02 L.
    pub grace_ns: u64,
    /// Incarnations given to lives are above it, and above the map's last: what the folder counts (`pando.incarnation`).
    pub floor: Incarnation,
    /// No daemon of before can be alive: this process has the folder's lock since before it made this coordinator, and daemons are
    /// threads of the process that has it. Otherwise whoever is in the map when the coordinator begins gets 1.02 L from then.
    pub sole: bool,
}

/// Entries of which a daemon says what is asked of them.
pub const LOADS_MAX: usize = 1_024;

/// Everything that can happen to a coordinator.
#[derive(Clone, Debug)]
pub enum Input {
    /// Begin: once, or again after `Output::Deposed`.
    Boot,
    /// The answer to `Output::Read`: the record and its version; `None` if it was never written.
    Read(Result<Option<(u64, Vec<u8>)>, StoreError>),
    /// The answer to `Output::Swap`: the new version.
    Swapped(Result<u64, SwapFailure>),
    /// A daemon asks for its number; `token` is the driver's name for it until then.
    Register {
        token: u64,
        name: String,
    },
    Beacon {
        daemon: DaemonId,
        beacon: Beacon,
    },
    /// What is asked of what its rank has, in microseconds of a CPU for each second, by the directory whose entry governs that; `Ino::NONE`: by slots.
    /// At most `LOADS_MAX`; what is left out is not asked for anything. It replaces what the daemon said before.
    Loads {
        daemon: DaemonId,
        loads: Vec<(Ino, u64)>,
    },
    /// The daemon ended, and with it whatever it carried: nothing of it answers anybody any more.
    Gone {
        daemon: DaemonId,
    },
    /// The answer to `Output::Fence`: no write of this life, or of an earlier one of the rank, can reach a store any more.
    Fenced {
        rank: RankId,
        incarnation: Incarnation,
    },
    Command {
        id: u64,
        command: Command,
    },
    Tick,
}

/// A daemon's sign of life, every `mds_beacon_interval` (4 s), and at once when its state changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beacon {
    pub seq: u64,
    /// The sender's clock; comes back with the acknowledgement.
    pub sent: Mono,
    pub state: BeaconState,
}

/// What a daemon does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BeaconState {
    Standby,
    Rank { rank: RankId, incarnation: Incarnation, state: RankState },
}

/// Why a swap did not come to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SwapFailure {
    /// Another version is stored.
    Stale { stored: u64 },
    /// It may be stored or not.
    Store(StoreError),
}

/// Everything a coordinator can ask of its driver, which carries it out in order.
#[derive(Clone, Debug)]
pub enum Output {
    /// Read the record. One `Read` or `Swap` is under way at a time.
    Read,
    /// Replace the record if its version is `expected` (0: it must not be there).
    Swap {
        expected: u64,
        bytes: Vec<u8>,
    },
    /// The daemon of this token is a standby under this number from now on; it sends beacons.
    Registered {
        token: u64,
        daemon: DaemonId,
    },
    /// It is not; the text says why.
    Refused {
        token: u64,
        text: String,
    },
    /// See to it that no write of this life, or of an earlier one of the rank, reaches a store any more. Answered by `Fenced`.
    Fence {
        rank: RankId,
        incarnation: Incarnation,
    },
    /// The daemon's lease runs to `sent` + L on its own clock, if it does not run longer.
    Ack {
        daemon: DaemonId,
        seq: u64,
        sent: Mono,
    },
    /// Begin this life of the rank. May be said again; a daemon that has begun it ignores that.
    Assign {
        daemon: DaemonId,
        rank: RankId,
        incarnation: Incarnation,
    },
    /// The map does not name the daemon, or not with what it carries: end the life (then `Gone`), and register again as a standby.
    Dismiss {
        daemon: DaemonId,
    },
    /// The map that is durable now.
    Publish(Arc<ClusterMap>),
    Answer {
        id: u64,
        result: Result<Reply, CommandError>,
    },
    /// Another coordinator began: this one says and does nothing until it is told to `Boot`.
    Deposed,
    Note {
        level: Level,
        text: String,
    },
}

/// What an operator asks for, or a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// The map. Of the simulator: operators are shown what the server has.
    Get,
    SetMaxMds(u16),
    SetJoinable(bool),
    /// End the rank's life; a standby takes over. Of a damaged rank: let one try again.
    FailRank(RankId),
    /// End every life and let nobody take over until `SetJoinable(true)`.
    FailFs,
    /// Ranks that the coordinator places slots and entries at by itself.
    SetBalRankMask(Mask),
    /// What the rank is to have of what nobody placed by name, beside others: 1 to `WEIGHT_MAX`.
    SetRankWeight {
        rank: RankId,
        weight: u16,
    },
    /// Whether directories made from now on are placed by slots, which are spread for that.
    SetHashPlacement(bool),
    /// Announce a move to its present owner. What governs it was found by a rank. Of the simulator: an operator's is asked for by the rank.
    Move {
        moved: Subject,
        to: RankId,
    },
    /// Give a move up.
    CancelMove(MoveId),
    /// A rank asks; not for people.
    Ask(Life, Ask),
}

/// A command was carried out: what it came to, for people, and the durable map that says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    pub text: String,
    pub map: Arc<ClusterMap>,
}

/// Why a command was not carried out. The texts say what, where and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// No version of a map can be so (exit code 2).
    #[error("{0}")]
    Unsupported(String),
    /// Not now (exit code 5).
    #[error("{0}")]
    WrongState(String),
    /// The map does not say what was named, but this (exit code 5).
    #[error("not what the cluster map says: {0}")]
    Stale(Found),
    /// The map could not be read or written; whether the command was carried out is not known.
    #[error("the cluster map: {0}")]
    Store(StoreError),
}
