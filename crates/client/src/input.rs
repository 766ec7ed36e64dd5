//! Everything that can happen to a client, of one rank or of several.
//!
//! Absent: how calls are made (FUSE, Rust API) and how messages travel.

use proto::caps::Returned;
use proto::message::ServerMsg;
use proto::request::Request;
use proto::{Cred, Ino, RankId, Tid};

/// A caller's handle for one call; chosen by the edge, given back with the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// One input.
#[derive(Clone, Debug)]
pub enum Input {
    /// A file-system call.
    Call {
        call: CallId,
        cred: Cred,
        request: Request,
    },
    /// The caller was interrupted: answer EINTR if the call waits for a lock.
    Interrupt {
        call: CallId,
    },
    /// The caller is being killed and will not look at the answer: EINTR at once, unless a change was sent. The request takes
    /// its course; what it opens is given back. Without effect where nothing is kept to be sent again (`ClientConfig::retry`).
    Abandon {
        call: CallId,
    },
    /// The connection to a rank stands. To the first one, 0, the driver connects unasked.
    Connected {
        rank: RankId,
    },
    /// It broke; the driver is connecting again.
    Disconnected {
        rank: RankId,
    },
    Message {
        rank: RankId,
        message: ServerMsg,
    },
    /// What `Output::Recalled` named is dropped, or a part of it; with its stamp.
    Returned {
        stamp: u64,
        list: Vec<Returned>,
    },
    /// The file data that `Output::Lost` with this stamp, or a lower one, made void are dropped.
    Dropped {
        stamp: u64,
    },
    /// The kernel does not know an inode any more, of which it may have kept pages. A hint: it may be asked for again meanwhile.
    Forgotten {
        ino: Ino,
    },
    Tick,
    /// Unmount: end the session in order.
    Close,
    /// Closing has taken too long: what is not durable by now is lost, and said to be.
    GiveUp,
}

/// For debugging: a request that has no answer yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub tid: Tid,
    pub call: CallId,
}
