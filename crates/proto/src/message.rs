//! Messages between a client and a rank: sessions, flow, requests, answers.
//!
//! Absent: framing on a socket (`frame.rs`); capabilities and asynchronous operations, whose ordinals
//! start at 64 and are not in this version.

use crate::attr::Cred;
use crate::codec::{DecodeError, Reader, Writer};
use crate::ids::{Incarnation, SessionId, Tid};
use crate::reply::{Outcome, decode_outcome, encode_outcome};
use crate::request::{LockSpec, Request};
use crate::{Ino, NodeRef};

/// The protocol version this code speaks, and the oldest it accepts.
pub const PROTOCOL: u16 = 1;

/// What a client tells of itself when it opens a session; shown by `client ls`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientInfo {
    pub host: String,
    pub mount: String,
    pub pid: u32,
}

/// From client to rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientMsg {
    /// First message on a connection. `session` 0 asks for a new session; a former number resumes it
    /// (opens and locks follow as `Reclaim`, then retried requests).
    Hello { protocol: u16, session: SessionId, info: ClientInfo },
    /// `floor`: the client has the results of every tid below it.
    Request { tid: Tid, floor: Tid, cred: Cred, request: Request },
    /// Give up a waiting request; it answers EINTR if it was still waiting.
    Cancel { tid: Tid },
    /// Lease renewal.
    Renew,
    /// After a resume: this client has the file open `count` times and holds these locks.
    Reclaim { node: NodeRef, count: u32, locks: Vec<LockSpec> },
    /// After the last `Reclaim`.
    Reclaimed,
    /// Answer to `ServerMsg::Share`: nothing is cached any more that others could change.
    Shared,
    /// Ends the session in order.
    Goodbye,
    /// An operator's question to the server's driver (JSON text); the rank never sees it.
    Admin { id: u64, command: String },
}

/// From rank to client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerMsg {
    /// `resumed`: the former session was known. `lease_ms`: renew within it.
    /// `sole`: no other session exists; names and attributes may be kept for `SOLE_TTL_MS`.
    Welcome {
        protocol: u16,
        session: SessionId,
        incarnation: Incarnation,
        fsid: [u8; 16],
        resumed: bool,
        lease_ms: u32,
        sole: bool,
        root: Ino,
    },
    Reply {
        tid: Tid,
        outcome: Outcome,
    },
    /// Another session comes: stop caching, answer `Shared` once what was cached has run out.
    Share,
    /// This session is alone again.
    Sole,
    /// The session is unknown, evicted, or the protocol is not spoken here; the text says which.
    Refused {
        errno: u32,
        reason: String,
    },
    /// The answer to `Admin` (JSON text).
    Admin {
        id: u64,
        answer: String,
    },
}

/// How long a sole client may keep a name or attributes without asking, in milliseconds.
pub const SOLE_TTL_MS: u64 = 1_000;

/// The longest text in a message.
const TEXT_BYTES_MAX: usize = 1 << 20;

fn text(r: &mut Reader<'_>) -> Result<String, DecodeError> {
    String::from_utf8(r.bytes(TEXT_BYTES_MAX)?.to_vec()).map_err(|_| DecodeError::Invalid { what: "text" })
}

impl ClientMsg {
    /// Appends the wire form.
    pub fn encode(&self, w: &mut Writer) {
        match self {
            Self::Hello { protocol, session, info } => {
                w.u8(1).u16(*protocol).u64(session.0);
                w.bytes(info.host.as_bytes()).bytes(info.mount.as_bytes()).u32(info.pid);
            }
            Self::Request { tid, floor, cred, request } => {
                w.u8(2).u64(tid.0).u64(floor.0);
                cred.encode(w);
                request.encode(w);
            }
            Self::Cancel { tid } => {
                w.u8(3).u64(tid.0);
            }
            Self::Renew => {
                w.u8(4);
            }
            Self::Reclaim { node, count, locks } => {
                node.encode(w.u8(5));
                w.u32(*count).u32(locks.len() as u32);
                for lock in locks {
                    lock.encode(w);
                }
            }
            Self::Reclaimed => {
                w.u8(6);
            }
            Self::Shared => {
                w.u8(7);
            }
            Self::Goodbye => {
                w.u8(8);
            }
            Self::Admin { id, command } => {
                w.u8(9).u64(*id).bytes(command.as_bytes());
            }
        }
    }

    /// Reads the wire form.
    ///
    /// # Errors
    /// `DecodeError` for an unknown ordinal or a cut or oversized body.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let message = match r.u8()? {
            1 => {
                let (protocol, session) = (r.u16()?, SessionId(r.u64()?));
                let info = ClientInfo { host: text(&mut r)?, mount: text(&mut r)?, pid: r.u32()? };
                Self::Hello { protocol, session, info }
            }
            2 => Self::Request {
                tid: Tid(r.u64()?),
                floor: Tid(r.u64()?),
                cred: Cred::decode(&mut r)?,
                request: Request::decode(&mut r)?,
            },
            3 => Self::Cancel { tid: Tid(r.u64()?) },
            4 => Self::Renew,
            5 => {
                let (node, count, locks) = (NodeRef::decode(&mut r)?, r.u32()?, r.u32()?);
                let locks = (0..locks).map(|_| LockSpec::decode(&mut r)).collect::<Result<_, _>>()?;
                Self::Reclaim { node, count, locks }
            }
            6 => Self::Reclaimed,
            7 => Self::Shared,
            8 => Self::Goodbye,
            9 => Self::Admin { id: r.u64()?, command: text(&mut r)? },
            tag => return Err(DecodeError::UnknownTag { what: "client message", tag: u64::from(tag) }),
        };
        r.finish()?;
        Ok(message)
    }
}

impl ServerMsg {
    /// Appends the wire form.
    pub fn encode(&self, w: &mut Writer) {
        match self {
            Self::Welcome { protocol, session, incarnation, fsid, resumed, lease_ms, sole, root } => {
                w.u8(1).u16(*protocol).u64(session.0).u64(incarnation.0).raw(fsid);
                w.bool(*resumed).u32(*lease_ms).bool(*sole).u64(root.0);
            }
            Self::Reply { tid, outcome } => {
                w.u8(2).u64(tid.0);
                encode_outcome(outcome, w);
            }
            Self::Share => {
                w.u8(3);
            }
            Self::Sole => {
                w.u8(4);
            }
            Self::Refused { errno, reason } => {
                w.u8(5).u32(*errno).bytes(reason.as_bytes());
            }
            Self::Admin { id, answer } => {
                w.u8(6).u64(*id).bytes(answer.as_bytes());
            }
        }
    }

    /// Reads the wire form.
    ///
    /// # Errors
    /// `DecodeError` for an unknown ordinal or a cut or oversized body.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let message = match r.u8()? {
            1 => Self::Welcome {
                protocol: r.u16()?,
                session: SessionId(r.u64()?),
                incarnation: Incarnation(r.u64()?),
                fsid: r.raw(16)?.try_into().map_err(|_| DecodeError::Invalid { what: "fsid" })?,
                resumed: r.bool()?,
                lease_ms: r.u32()?,
                sole: r.bool()?,
                root: Ino(r.u64()?),
            },
            2 => Self::Reply { tid: Tid(r.u64()?), outcome: decode_outcome(&mut r)? },
            3 => Self::Share,
            4 => Self::Sole,
            5 => Self::Refused { errno: r.u32()?, reason: text(&mut r)? },
            6 => Self::Admin { id: r.u64()?, answer: text(&mut r)? },
            tag => return Err(DecodeError::UnknownTag { what: "server message", tag: u64::from(tag) }),
        };
        r.finish()?;
        Ok(message)
    }
}
