//! Everything a client can ask of its driver.
//!
//! Absent: errno as a system call's result; the edges make it.

use crate::input::CallId;
use crate::validity::Validity;
use proto::caps::Recalled;
use proto::kind::Kind;
use proto::message::ClientMsg;
use proto::reply::Outcome;
use proto::{Errno, Ino, Name};

/// One output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    Send(ClientMsg),
    /// The answer to a call. Each call gets exactly one.
    Answer {
        call: CallId,
        outcome: Outcome,
        validity: Validity,
    },
    /// The session stands: calls are served.
    Ready,
    /// These go back to the rank: the edge drops what it keeps of them, voids what it has not handed out yet under a lower stamp,
    /// and says so with `Input::Returned`. It must not wait for an answer of this client's meanwhile.
    Recalled {
        stamp: u64,
        list: Vec<Recalled>,
    },
    /// Nothing handed out under a lower stamp is good any more. The edge drops file data and says so with `Input::Dropped`;
    /// names and attributes run out by themselves. Dropping may wait for an answer of this client's.
    Lost {
        stamp: u64,
    },
    /// A caller was told that it succeeded, and it did not, or nobody knows: whoever syncs or closes one of these inodes is to
    /// hear of it.
    Late {
        kind: Kind,
        name: Option<Name>,
        /// What it made or changed, and the directory.
        inos: Vec<Ino>,
        errno: Errno,
    },
    /// The server died with bytes of these files that their writers were told are written: whoever syncs one is to hear EIO.
    /// `others`: and of more, of which the numbers are not known.
    BytesLost {
        inos: Vec<Ino>,
        others: bool,
    },
    /// The server refused the session; every later call is answered with ESHUTDOWN.
    Refused {
        reason: String,
    },
    /// `Close` is complete.
    Closed,
}
