//! Everything a client can ask of its driver.
//!
//! Absent: errno as a system call's result; the edges make it.

use crate::input::CallId;
use proto::message::ClientMsg;
use proto::reply::Outcome;

/// One output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    Send(ClientMsg),
    /// The answer to a call. Each call gets exactly one.
    Answer {
        call: CallId,
        outcome: Outcome,
    },
    /// The session stands: calls are served. `ttl_ns`: see `Ttl`.
    Ready {
        ttl_ns: u64,
    },
    /// How long names and attributes may be kept has changed; 0 = not at all. The edge drops cached
    /// file data of open files before it returns to the driver.
    TtlChanged {
        ttl_ns: u64,
    },
    /// The server refused the session; every later call is answered with ESHUTDOWN.
    Refused {
        reason: String,
    },
    /// `Close` is complete.
    Closed,
}
