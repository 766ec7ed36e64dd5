//! Output commit: whatever must not be seen before it is durable waits here, in journal order.
//!
//! Absent: the journal (`journal.rs`).

use crate::input::ConnId;
use crate::meter::Asked;
use proto::Position;
use proto::caps::Grants;
use proto::message::ServerMsg;
use proto::reply::Outcome;
use proto::storeio::{DataOp, StoreBatch};
use proto::transact::TxnId;
use std::collections::VecDeque;

/// Something that waits for a position.
#[derive(Debug)]
pub(crate) enum Waiting {
    /// An answer; it goes to whatever connection the session has then.
    Reply {
        asked: Asked,
        outcome: Outcome,
        grants: Grants,
    },
    Message {
        conn: ConnId,
        message: ServerMsg,
    },
    /// The rank's own data operation, counted until it is done.
    Data {
        op: DataOp,
        tag: u64,
    },
    /// A checkpoint's store batches.
    Batches {
        tag: u64,
        batches: Vec<StoreBatch>,
    },
    /// Inode numbers below this are reserved.
    Inos {
        reserved: u64,
    },
    /// Other ranks carry out what this one has decided.
    Decided {
        id: TxnId,
    },
    /// The rank may become active.
    Boot,
}

/// The queue; positions never decrease.
#[derive(Debug, Default)]
pub(crate) struct HoldQueue {
    queue: VecDeque<(Position, Waiting)>,
}

impl HoldQueue {
    pub(crate) fn push(&mut self, position: Position, waiting: Waiting) {
        debug_assert!(self.queue.back().is_none_or(|(last, _)| *last <= position));
        self.queue.push_back((position, waiting));
    }

    /// The next one whose position is durable.
    pub(crate) fn pop(&mut self, durable: Position) -> Option<Waiting> {
        if self.queue.front().is_some_and(|(position, _)| *position <= durable) {
            return self.queue.pop_front().map(|(_, waiting)| waiting);
        }
        None
    }

    /// Everything, when nothing will become durable any more.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = Waiting> + use<> {
        std::mem::take(&mut self.queue).into_iter().map(|(_, waiting)| waiting)
    }

    pub(crate) fn ready(&self, durable: Position) -> bool {
        self.queue.front().is_some_and(|(position, _)| *position <= durable)
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// The requests whose answers wait here.
    pub(crate) fn asked(&self) -> impl Iterator<Item = &Asked> {
        self.queue.iter().filter_map(|(_, waiting)| match waiting {
            Waiting::Reply { asked, .. } => Some(asked),
            Waiting::Message { .. }
            | Waiting::Data { .. }
            | Waiting::Batches { .. }
            | Waiting::Inos { .. }
            | Waiting::Decided { .. }
            | Waiting::Boot => None,
        })
    }
}
