//! Everything a client can ask of its driver, of one rank or of several.
//!
//! Absent: errno as a system call's result; the edges make it.

use crate::input::CallId;
use crate::validity::Validity;
use proto::caps::Recalled;
use proto::kind::Kind;
use proto::message::ClientMsg;
use proto::reply::Outcome;
use proto::request::Request;
use proto::{Cred, Errno, Ino, Name, RankId};

/// One output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    Send {
        rank: RankId,
        message: ClientMsg,
    },
    /// A rank is needed: the driver connects to it, and again after each break.
    Connect {
        rank: RankId,
    },
    /// It is not needed, until it is asked for again: the driver ends the connection.
    Disconnect {
        rank: RankId,
    },
    /// The answer to a call. Each call gets exactly one.
    Answer {
        call: CallId,
        outcome: Outcome,
        validity: Validity,
    },
    /// The session stands at a rank: calls for it are served.
    Ready {
        rank: RankId,
    },
    /// These go back to the rank: the edge drops what it keeps of them, voids what it has not handed out yet under a lower stamp,
    /// and says so with `Input::Returned`. It must not wait for an answer of this client's meanwhile.
    Recalled {
        stamp: u64,
        list: Vec<Recalled>,
    },
    /// Nothing handed out under a lower stamp is good any more, whichever rank granted it. The edge drops file data and says so with `Input::Dropped`;
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
    /// Said by the client of one rank to whoever knows others (`router.rs`), never to a driver: the rank does not own what a
    /// request is about, and has not carried it out. It is to be asked elsewhere, under a new tid.
    Bounced {
        call: Option<CallId>,
        cred: Cred,
        request: Request,
        /// Who does, as far as the rank knows, and by which version of the cluster map.
        owner: Option<RankId>,
        version: u64,
    },
    /// `Close` is complete.
    Closed,
}
