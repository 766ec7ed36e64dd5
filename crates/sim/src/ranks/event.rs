//! What can happen next in the world. An event names whose it is: what has died since does nothing.
//!
//! Absent: what happens then (`Ranks::handle`).

use mds::coordinator;
use mds::input::{ConnId, Input, Tag};
use proto::caps::Recalled;
use proto::cluster::DaemonId;
use proto::ids::{Incarnation, RankId};
use proto::message::{ClientMsg, ServerMsg};
use proto::storeio::{DataOp, LoadRequest, StoreBatch};
use store::meta_memory::Begun;

/// What a daemon is told by the coordinator.
#[derive(Clone, Copy, Debug)]
pub(super) enum ToPlace {
    Registered { token: u64, daemon: DaemonId },
    Assign { daemon: DaemonId, rank: RankId, incarnation: Incarnation },
    Dismiss { daemon: DaemonId },
}

/// One event. `life`: the incarnation of a rank's life; of the coordinator's, how often it was started.
pub(super) enum Event {
    Rank {
        life: u64,
        input: Box<Input>,
    },
    ToRank {
        life: u64,
        conn: ConnId,
        message: Box<ClientMsg>,
    },
    RankTick {
        life: u64,
        number: u64,
    },
    Commit {
        life: u64,
    },
    Load {
        life: u64,
        tag: Tag,
        requests: Vec<LoadRequest>,
    },
    Store {
        life: u64,
        tag: Tag,
        batch: Box<StoreBatch>,
    },
    StoreComplete {
        life: u64,
        tag: Tag,
        begun: Begun,
    },
    Data {
        life: u64,
        tag: Tag,
        op: Box<DataOp>,
    },
    Background {
        life: u64,
    },
    /// What another rank says on a connection that this life has made.
    FromRank {
        life: u64,
        rank: RankId,
        conn: ConnId,
        message: Box<ServerMsg>,
    },
    /// Such a connection is gone, or could not be made.
    RankGone {
        life: u64,
        rank: RankId,
        conn: Option<ConnId>,
    },
    ToClient {
        client: usize,
        conn: ConnId,
        message: Box<ServerMsg>,
    },
    /// A connection breaks, as the client sees it.
    Broken {
        client: usize,
        conn: ConnId,
    },
    Connect {
        client: usize,
        birth: u64,
        rank: RankId,
    },
    ClientTick {
        number: u64,
        client: usize,
        birth: u64,
    },
    Call {
        client: usize,
        birth: u64,
    },
    /// In the place of a client that was killed another one begins.
    ClientStarts {
        client: usize,
    },
    /// The power of all ranks fails at once.
    Blackout,
    /// A caller that waits for a lock waits no longer.
    Interrupt {
        client: usize,
        birth: u64,
        call: u64,
    },
    Returned {
        client: usize,
        birth: u64,
        stamp: u64,
        list: Vec<Recalled>,
    },
    Beats {
        place: usize,
    },
    ToPlace {
        place: usize,
        birth: u64,
        message: ToPlace,
    },
    ToSeat {
        input: Box<coordinator::Input>,
    },
    /// What the registry or the store answers a coordinator.
    Answered {
        life: u64,
        input: Box<coordinator::Input>,
    },
    SeatTick {
        life: u64,
    },
    Read {
        life: u64,
    },
    Swap {
        life: u64,
        expected: u64,
        bytes: Vec<u8>,
    },
    Fence {
        life: u64,
        rank: RankId,
        incarnation: Incarnation,
    },
    SeatStarts,
    Strikes,
}

impl Event {
    /// The life of a rank that it is of.
    pub(super) const fn life(&self) -> Option<u64> {
        match self {
            Self::Rank { life, .. }
            | Self::ToRank { life, .. }
            | Self::RankTick { life, .. }
            | Self::Commit { life }
            | Self::Load { life, .. }
            | Self::Store { life, .. }
            | Self::StoreComplete { life, .. }
            | Self::Data { life, .. }
            | Self::Background { life }
            | Self::FromRank { life, .. }
            | Self::RankGone { life, .. } => Some(*life),
            Self::ToClient { .. }
            | Self::Broken { .. }
            | Self::Connect { .. }
            | Self::ClientTick { .. }
            | Self::Call { .. }
            | Self::Interrupt { .. }
            | Self::Returned { .. }
            | Self::Beats { .. }
            | Self::ToPlace { .. }
            | Self::ToSeat { .. }
            | Self::Answered { .. }
            | Self::SeatTick { .. }
            | Self::Read { .. }
            | Self::Swap { .. }
            | Self::Fence { .. }
            | Self::SeatStarts
            | Self::ClientStarts { .. }
            | Self::Blackout
            | Self::Strikes => None,
        }
    }

    /// Whether it stands still with the coordinator.
    pub(super) const fn is_seats(&self) -> bool {
        matches!(self, Self::ToSeat { .. } | Self::Answered { .. } | Self::SeatTick { .. })
    }
}
