//! What can happen next in the world. An event names whose it is and in which life or birth of it: what has died since does nothing.
//!
//! Absent: what happens then (`World::handle`).

use super::kernel::Taken;
use mds::input::{ConnId, Input, Tag};
use proto::caps::Recalled;
use proto::message::{ClientMsg, ServerMsg};
use proto::storeio::{DataOp, LoadRequest, StoreBatch};
use store::meta_memory::Begun;

/// One event.
pub(super) enum Event {
    /// An input of the rank in one of its lives.
    Rank {
        life: u64,
        input: Box<Input>,
    },
    ToRank {
        life: u64,
        conn: ConnId,
        message: Box<ClientMsg>,
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
    RankTick {
        life: u64,
    },
    ClientTick {
        client: usize,
        birth: u64,
    },
    Call {
        client: usize,
        birth: u64,
    },
    Interrupt {
        client: usize,
        birth: u64,
        call: u64,
    },
    /// The caller is killed.
    Killed {
        client: usize,
        birth: u64,
        call: u64,
    },
    /// A kernel takes an answer in.
    Take {
        client: usize,
        birth: u64,
        taken: Box<Taken>,
    },
    /// A kernel drops what was recalled.
    Drop {
        client: usize,
        birth: u64,
        stamp: u64,
        /// The newest call when the recall came.
        calls: u64,
        list: Vec<Recalled>,
    },
    ClientStarts {
        client: usize,
    },
    Background {
        life: u64,
    },
    /// The hostile peer says something.
    Hostile,
    /// Something goes wrong soon after the rank has become active.
    Again {
        life: u64,
        evicts: bool,
    },
    Restart {
        life: u64,
    },
    FullDisk {
        on: bool,
    },
}

impl Event {
    /// The life of the rank that it is of; `None`: what happens to clients and their hosts.
    pub(super) const fn life(&self) -> Option<u64> {
        match self {
            Self::Rank { life, .. }
            | Self::ToRank { life, .. }
            | Self::Commit { life }
            | Self::Load { life, .. }
            | Self::Store { life, .. }
            | Self::StoreComplete { life, .. }
            | Self::Data { life, .. }
            | Self::RankTick { life }
            | Self::Background { life }
            | Self::Restart { life }
            | Self::Again { life, .. } => Some(*life),
            Self::ToClient { .. }
            | Self::Broken { .. }
            | Self::Connect { .. }
            | Self::ClientTick { .. }
            | Self::Call { .. }
            | Self::Interrupt { .. }
            | Self::Killed { .. }
            | Self::Take { .. }
            | Self::Drop { .. }
            | Self::ClientStarts { .. }
            | Self::Hostile
            | Self::FullDisk { .. } => None,
        }
    }
}
