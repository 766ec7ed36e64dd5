//! Everything a rank can ask of its driver. The driver carries out outputs in order; what must wait
//! for durability is held back inside the rank and appears here only when it may go.
//!
//! Absent: decisions left to the driver.

use crate::coordinator::{Ask, Dropped, Governing, Subject};
use crate::input::{ConnId, Tag};
use proto::cluster::{MoveId, Policy, Unit};
use proto::message::{ClientMsg, ServerMsg};
use proto::storeio::{DataOp, LoadRequest, StoreBatch};
use proto::{Position, RankId};

/// One output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    Send {
        conn: ConnId,
        message: ServerMsg,
    },
    /// Close the connection after what was sent.
    Close {
        conn: ConnId,
    },
    /// Read the journal from this position on: `Replay` inputs, then `ReplayEnd`.
    ReadJournal {
        from: Position,
    },
    /// Append these bytes (whole entries) at this position. `urgent`: something waits for them, commit
    /// at once; otherwise it may be gathered with others for a while (the server: 2 ms, or 1 MiB).
    Append {
        position: Position,
        bytes: Vec<u8>,
        urgent: bool,
    },
    /// Commit what was appended: something now waits for it.
    Commit,
    /// Nothing before this position is needed any more: the checkpoint record is stored.
    Trim {
        before: Position,
    },
    Load {
        tag: Tag,
        requests: Vec<LoadRequest>,
    },
    Store {
        tag: Tag,
        batches: Vec<StoreBatch>,
    },
    Data {
        tag: Tag,
        op: DataOp,
    },
    /// To another rank, over one connection for each rank that is made when it is needed: no sooner than the map says that it serves,
    /// and after a loss no sooner than a while later. Whatever the other rank says comes as `Input::FromRank`.
    SendRank {
        rank: RankId,
        message: ClientMsg,
    },
    /// To the coordinator. What comes of it the next map says, or `Input::WishRefused`.
    Wish(MapWish),
    /// The rank is active: requests are served from now on.
    Active,
    /// The rank found damage and refuses to serve; the text names file and offset.
    Damaged {
        reason: String,
    },
    /// `Stop` is complete: everything is in the store, the journal is trimmed.
    Stopped,
    /// Worth a line in the log: a state change or something unexpected but handled.
    Note {
        level: Level,
        text: String,
    },
}

/// A change of the cluster map that a rank asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapWish {
    /// The unit gets an entry of its own, at its present owner.
    Make {
        unit: Unit,
        policy: Policy,
        governing: Governing,
    },
    SetPolicy {
        unit: Unit,
        version: u64,
        policy: Policy,
    },
    /// The entry is not needed any more.
    Drop {
        unit: Unit,
        version: u64,
        why: Dropped,
    },
    /// The unit is to move: its entry is made, if there is none, for its present owner, and gets the move's number. `governing`: what
    /// says whose the unit is now, and its version.
    Begin {
        unit: Unit,
        to: RankId,
        governing: Governing,
    },
    /// The move of that number is over: the unit is the other rank's.
    Switch {
        unit: Unit,
        id: MoveId,
    },
    /// The move is given up.
    Abort {
        unit: Unit,
        id: MoveId,
    },
    /// Directories are to be placed by slots.
    UseSlots,
    /// It was stopping, has nothing left, and ends.
    Leave,
}

impl MapWish {
    /// What is to be told of if it is refused; of UseSlots and Leave the root, of which no rank asks anything.
    pub const fn unit(self) -> Unit {
        match self {
            Self::Make { unit, .. }
            | Self::SetPolicy { unit, .. }
            | Self::Drop { unit, .. }
            | Self::Begin { unit, .. }
            | Self::Switch { unit, .. }
            | Self::Abort { unit, .. } => unit,
            Self::UseSlots | Self::Leave => Unit::ROOT,
        }
    }

    /// As the coordinator is asked.
    pub const fn ask(self) -> Ask {
        match self {
            Self::Make { unit, policy, governing } => Ask::MakeExplicit { unit, policy, governing },
            Self::SetPolicy { unit, version, policy } => Ask::SetPolicy { unit, version, policy },
            Self::Drop { unit, version, why } => Ask::Drop { unit, version, why },
            Self::Begin { unit, to, governing } => {
                Ask::MoveBegin { moved: Subject::Unit { unit, governing }, to }
            }
            Self::UseSlots => Ask::UseSlots,
            Self::Leave => Ask::Leave,
            Self::Switch { id, .. } => Ask::Switch { id },
            Self::Abort { id, .. } => Ask::Abort { id },
        }
    }
}

/// How much a note matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// A state change.
    Info,
    /// Unexpected but handled.
    Warn,
    /// A person must look.
    Error,
}
