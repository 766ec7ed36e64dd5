//! What can happen next in the world of the coordinator, and who must be awake for it.
//!
//! Absent: what happens then (`Cluster::handle`).

use super::followers::Update;
use mds::coordinator::{Beacon, Command, Input};
use proto::cluster::{ClusterMap, DaemonId};
use proto::ids::{Incarnation, RankId};
use std::sync::Arc;
use stdx::Mono;

/// What is said to a coordinator, whichever life of it sits there then. A beacon says which map its daemon has: a driver sends a newer one.
#[derive(Clone, Debug)]
pub(super) enum ToSeat {
    Register { token: u64, name: String },
    Beacon { daemon: DaemonId, beacon: Beacon, map_version: u64 },
    Gone { daemon: DaemonId },
    Command { id: u64, command: Command },
}

/// What a coordinator says to a daemon.
#[derive(Clone, Debug)]
pub(super) enum ToDaemon {
    Registered { token: u64, daemon: DaemonId },
    Ack { daemon: DaemonId, seq: u64, sent: Mono },
    Assign { daemon: DaemonId, rank: RankId, incarnation: Incarnation },
    Dismiss { daemon: DaemonId },
    Map { map: Arc<ClusterMap> },
}

/// Of what an act is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Act {
    pub(super) place: usize,
    pub(super) birth: u64,
    pub(super) rank: RankId,
    pub(super) incarnation: Incarnation,
}

/// One event. What belongs to a life or a birth that is over does nothing.
pub(super) enum Event {
    SeatStarts {
        seat: usize,
    },
    SeatDies {
        seat: usize,
    },
    ToSeat {
        seat: usize,
        message: Box<ToSeat>,
    },
    /// An answer to what this life asked for.
    Answered {
        seat: usize,
        life: u64,
        input: Box<Input>,
    },
    Tick {
        seat: usize,
        life: u64,
    },
    /// Requests that have left a coordinator take their course without it.
    Read {
        seat: usize,
        life: u64,
    },
    Swap {
        seat: usize,
        life: u64,
        expected: u64,
        bytes: Vec<u8>,
    },
    Lands {
        seat: usize,
        life: u64,
        expected: u64,
        bytes: Vec<u8>,
    },
    Fence {
        seat: usize,
        life: u64,
        rank: RankId,
        incarnation: Incarnation,
    },
    DaemonStarts {
        place: usize,
    },
    ToDaemon {
        place: usize,
        birth: u64,
        message: Box<ToDaemon>,
    },
    Beats {
        place: usize,
        birth: u64,
    },
    /// A state of a rank on its way is done.
    Worked {
        act: Act,
    },
    /// A rank looks at its lease, and acts.
    Acts {
        act: Act,
    },
    /// What it decided then leaves its process, and reaches the store.
    Leaves {
        act: Act,
    },
    Reaches {
        act: Act,
    },
    Refused {
        act: Act,
    },
    ToFollower {
        follower: usize,
        update: Box<Update>,
    },
    Operates,
    /// What operators ask for when faults are over.
    LastWord {
        command: Command,
    },
    Strikes,
}

/// Who must be awake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    Seat(usize),
    Place(usize),
    Nobodys,
}

impl Event {
    pub(super) const fn whose(&self) -> Whose {
        match self {
            Self::ToSeat { seat, .. } | Self::Answered { seat, .. } | Self::Tick { seat, .. } => {
                Whose::Seat(*seat)
            }
            Self::ToDaemon { place, .. } | Self::Beats { place, .. } => Whose::Place(*place),
            Self::Worked { act } | Self::Acts { act } | Self::Leaves { act } | Self::Refused { act } => {
                Whose::Place(act.place)
            }
            Self::SeatStarts { .. }
            | Self::SeatDies { .. }
            | Self::Read { .. }
            | Self::Swap { .. }
            | Self::Lands { .. }
            | Self::Fence { .. }
            | Self::DaemonStarts { .. }
            | Self::Reaches { .. }
            | Self::ToFollower { .. }
            | Self::Operates
            | Self::LastWord { .. }
            | Self::Strikes => Whose::Nobodys,
        }
    }
}
