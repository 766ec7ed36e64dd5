//! Everything a rank can ask of its driver. The driver carries out outputs in order; what must wait
//! for durability is held back inside the rank and appears here only when it may go.
//!
//! Absent: decisions left to the driver.

use crate::input::{ConnId, Tag};
use proto::Position;
use proto::message::ServerMsg;
use proto::storeio::{DataOp, LoadRequest, StoreBatch};

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
