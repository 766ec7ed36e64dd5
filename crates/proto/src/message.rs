//! Messages between a client and a rank: sessions, flow, requests, answers.
//!
//! Absent: framing on a socket (`frame.rs`). Ordinals 3 and 4 of the rank's messages and 7 of the
//! clients' belonged to version 1.

mod classes;

pub use classes::{Behind, Class};

use crate::attr::{Attr, Cred};
use crate::caps::{Bits, Grants, IDLE_MAX, Recalled, Returned};
use crate::codec::{DecodeError, Reader, Writer};
use crate::ids::{Incarnation, Position, RankId, SessionId, Tid};
use crate::reply::{Outcome, Reply, decode_outcome, encode_outcome};
use crate::request::{LockSpec, Request};
use crate::{Ino, NodeRef};
use stdx::Wall;
use stdx::hash::{HashSeed, keyed_tag};

/// The protocol version this code speaks, and the oldest it accepts.
pub const PROTOCOL: u16 = 3;

/// What a client tells of itself when it opens a session; shown by `client ls`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientInfo {
    pub host: String,
    pub mount: String,
    pub pid: u32,
    /// It asks to be granted something of no more inodes than so many; 0: as many as the rank likes.
    pub caps_max: u32,
}

/// From client to rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientMsg {
    /// First message on a connection. `session` 0 asks for a new session; a former number resumes it
    /// (opens and locks follow as `Reclaim`, then retried requests). `wants`: what it has a use for.
    Hello { protocol: u16, session: SessionId, info: ClientInfo, wants: Bits, at: At },
    /// `floor`: the client has the results of every tid below it.
    Request { tid: Tid, floor: Tid, cred: Cred, request: Request },
    /// Give up a wait for a file lock: a `SetLock` without an answer answers EINTR. It changes nothing of any other request.
    Cancel { tid: Tid },
    /// Lease renewal; `Renewed` answers it. 0: nobody waits for that.
    Renew { number: u32 },
    /// After a resume: this client has the file open `count` times, perhaps for writing, and holds these locks.
    Reclaim { node: NodeRef, count: u32, writes: bool, locks: Vec<LockSpec> },
    /// After the last `Reclaim`.
    Reclaimed,
    /// Ends the session in order.
    Goodbye,
    /// An operator's question to the server's driver (JSON text); the rank never sees it.
    Admin { id: u64, command: String },
    /// The answer to a `Recall`, one for each of its items, together or one by one.
    Returned { list: Vec<Returned> },
    /// After a resume: nothing that was granted before is in use any more.
    Settled,
    /// A request whose caller has its result already: the rank said it early in a life that a crash took back, or the client
    /// performed it in a directory that is delegated to it.
    Performed { tid: Tid, floor: Tid, cred: Cred, told: Told, request: Request },
    /// After a resume: every `Performed` of before was sent.
    Presented,
    /// What was granted of these is not in use: the rank may recall it.
    Idle { list: Vec<Ino> },
    /// First message of a rank to another: this life of `from` keeps nothing that `to` told it before. `map_version`: of its cluster
    /// map. `settled`: nor does any client keep anything that `from` granted by that.
    RankHello {
        protocol: u16,
        from: RankId,
        incarnation: Incarnation,
        to: RankId,
        map_version: u64,
        settled: bool,
    },
    /// The client has a cluster map of this version, or none (0): it is to be told the newest, if that is another.
    WantMap { have: u64 },
    /// From here on it asks to be granted something of no more inodes than so many; 0: as many as the rank likes.
    CapsMax { caps_max: u32 },
}

/// What a session shows to a rank that it joins: who has it was given that number. Made of the number and a key that all ranks of the
/// file system have, and no client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JoinToken(pub [u8; 16]);

impl JoinToken {
    /// That of a session.
    #[must_use]
    pub fn of(key: &[u8; 16], session: SessionId) -> Self {
        Self(keyed_tag(key, &session.0.to_le_bytes()))
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.raw(16)?.try_into().map(Self).map_err(|_| DecodeError::Invalid { what: "token" })
    }
}

/// Which rank a client greets, and what it knows of all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct At {
    pub rank: RankId,
    /// The session has its number from another rank, with this token.
    pub join: bool,
    pub token: JoinToken,
    /// Of the cluster map that it has; 0: none.
    pub map_version: u64,
    /// The directory to which it limits itself; `Ino::NONE`: it does not.
    pub limit: Ino,
}

/// What a caller was told of a `Performed` request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// The inode it made; `Ino::NONE` if it makes none.
    pub ino: Ino,
    /// When it happened, by the rank's clock.
    pub wall: Wall,
    /// The rank said so.
    pub heard: bool,
}

/// A directory that is delegated to a session: Dx on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delegated {
    pub dir: Attr,
    /// There is no name in it.
    pub empty: bool,
}

/// From rank to client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerMsg {
    /// `resumed`: the former session was known. `lease_ms`: renew within it. `synced`: when the rank's life before this one ended
    /// everything that it had answered was on its disk, file data included. `former`: that life; 0 if the journal knows of none.
    Welcome {
        protocol: u16,
        session: SessionId,
        incarnation: Incarnation,
        fsid: [u8; 16],
        resumed: bool,
        lease_ms: u32,
        root: Ino,
        synced: bool,
        former: Incarnation,
        token: JoinToken,
    },
    Reply {
        tid: Tid,
        outcome: Outcome,
    },
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
    /// These go back, with `Returned`.
    Recall {
        list: Vec<Recalled>,
    },
    /// The lease runs from when the `Renew` of this number was sent.
    Renewed {
        number: u32,
    },
    /// A reply with capabilities.
    Granted {
        tid: Tid,
        outcome: Outcome,
        grants: Grants,
    },
    /// The answer to a change that is not durable yet, up to `position`; `wall`: its time.
    Early {
        tid: Tid,
        position: Position,
        wall: Wall,
        outcome: Outcome,
        grants: Grants,
        delegated: Vec<Delegated>,
    },
    /// A `Performed` came to what was told; durable up to `position`.
    Done {
        tid: Tid,
        position: Position,
    },
    /// Everything up to `position` is durable.
    Durable {
        position: Position,
    },
    /// For inodes that this session makes: `count` numbers from `first` on, each once, in ascending order; `generation` and the
    /// seed of name hashes are those of the file system.
    Numbers {
        first: Ino,
        count: u32,
        generation: u32,
        seed: HashSeed,
    },
    /// The rank serves no more: what is not durable never will be in this life of it, and every answer is EIO.
    Damaged,
    /// The request was not executed: it is another rank's, perhaps `owner`'s, by the cluster map of this version.
    NotMine {
        tid: Tid,
        owner: Option<RankId>,
        version: u64,
    },
    /// Something that the session has open or locked here is about to be that rank's, by the cluster map of this version: it is to join
    /// it.
    Join {
        rank: RankId,
        version: u64,
    },
    /// The cluster map of that version, or what has changed up to it. A long one comes in parts, of which this is one, counted from 0.
    Map {
        version: u64,
        part: u16,
        parts: u16,
        bytes: Vec<u8>,
    },
}

/// Parts of a map: with `MAP_PART_BYTES_MAX` together as much as a record of the registry. One of more is not taken in.
pub const MAP_PARTS_MAX: u16 = 16;
/// Bytes of one part of a map. A longer one is refused (`DecodeError::TooLong`); all but the last are as long as that.
pub const MAP_PART_BYTES_MAX: usize = 512 << 10;

impl ServerMsg {
    /// A map or a delta as it is said: in so many messages. A longer one, which no registry has, in none.
    #[must_use]
    pub fn maps(version: u64, bytes: &[u8]) -> Vec<Self> {
        let parts = bytes.len().div_ceil(MAP_PART_BYTES_MAX);
        let Some(parts) = u16::try_from(parts).ok().filter(|parts| *parts <= MAP_PARTS_MAX) else {
            return Vec::new();
        };
        let part = |(part, bytes): (u16, &[u8])| Self::Map { version, part, parts, bytes: bytes.to_vec() };
        (0..parts).zip(bytes.chunks(MAP_PART_BYTES_MAX)).map(part).collect()
    }
}

/// On the wire: the owner is not known.
const NO_OWNER: u16 = u16::MAX;

/// The longest text in a message.
const TEXT_BYTES_MAX: usize = 1 << 20;
/// The longest name of a host, and of the place of a mount: a rank that boots keeps one greeting for each connection.
const HOST_BYTES_MAX: usize = 255;
const MOUNT_BYTES_MAX: usize = 4_096;

/// The rest of a RankHello.
fn rank_hello(r: &mut Reader<'_>) -> Result<ClientMsg, DecodeError> {
    Ok(ClientMsg::RankHello {
        protocol: r.u16()?,
        from: RankId(r.u16()?),
        incarnation: Incarnation(r.u64()?),
        to: RankId(r.u16()?),
        map_version: r.u64()?,
        settled: r.bool()?,
    })
}

fn text(r: &mut Reader<'_>, bytes_max: usize) -> Result<String, DecodeError> {
    String::from_utf8(r.bytes(bytes_max)?.to_vec()).map_err(|_| DecodeError::Invalid { what: "text" })
}

impl ClientMsg {
    /// Appends the wire form.
    pub fn encode(&self, w: &mut Writer) {
        match self {
            Self::Hello { protocol, session, info, wants, at } => {
                w.u8(1).u16(*protocol).u64(session.0);
                w.bytes(info.host.as_bytes()).bytes(info.mount.as_bytes()).u32(info.pid);
                if *protocol >= 2 {
                    w.u16(wants.0).u32(info.caps_max);
                }
                if *protocol >= 3 {
                    w.u16(at.rank.0).bool(at.join).raw(&at.token.0).u64(at.map_version).u64(at.limit.0);
                }
            }
            Self::Request { tid, floor, cred, request } => {
                w.u8(2).u64(tid.0).u64(floor.0);
                cred.encode(w);
                request.encode(w);
            }
            Self::Cancel { tid } => {
                w.u8(3).u64(tid.0);
            }
            Self::Renew { number } => {
                w.u8(4).u32(*number);
            }
            Self::Reclaim { node, count, writes, locks } => {
                node.encode(w.u8(5));
                w.u32(*count).bool(*writes).u32(locks.len() as u32);
                locks.iter().for_each(|lock| lock.encode(w));
            }
            Self::Reclaimed => {
                w.u8(6);
            }
            Self::Goodbye => {
                w.u8(8);
            }
            Self::Admin { id, command } => {
                w.u8(9).u64(*id).bytes(command.as_bytes());
            }
            Self::Returned { list } => {
                w.u8(64).u32(list.len() as u32);
                list.iter().for_each(|returned| returned.encode(w));
            }
            Self::Settled => {
                w.u8(65);
            }
            Self::Performed { tid, floor, cred, told, request } => {
                w.u8(66).u64(tid.0).u64(floor.0);
                cred.encode(w);
                w.u64(told.ino.0).i64(told.wall.0).bool(told.heard);
                request.encode(w);
            }
            Self::Presented => {
                w.u8(67);
            }
            Self::Idle { list } => {
                w.u8(68).u32(list.len() as u32);
                for ino in list {
                    w.u64(ino.0);
                }
            }
            Self::RankHello { protocol, from, incarnation, to, map_version, settled } => {
                let w = w.u8(69).u16(*protocol).u16(from.0).u64(incarnation.0).u16(to.0);
                w.u64(*map_version).bool(*settled);
            }
            Self::WantMap { have } => {
                w.u8(70).u64(*have);
            }
            Self::CapsMax { caps_max } => {
                w.u8(71).u32(*caps_max);
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
                let (host, mount) = (text(&mut r, HOST_BYTES_MAX)?, text(&mut r, MOUNT_BYTES_MAX)?);
                let pid = r.u32()?;
                // Those of earlier versions are shorter; they are read, so that their users learn why they are refused.
                let (wants, caps_max) =
                    if protocol >= 2 { (Bits::decode(&mut r)?, r.u32()?) } else { (Bits::NONE, 0) };
                let at = match protocol >= 3 {
                    true => At {
                        rank: RankId(r.u16()?),
                        join: r.bool()?,
                        token: JoinToken::decode(&mut r)?,
                        map_version: r.u64()?,
                        limit: Ino(r.u64()?),
                    },
                    false => At::default(),
                };
                let info = ClientInfo { host, mount, pid, caps_max };
                Self::Hello { protocol, session, info, wants, at }
            }
            2 => Self::Request {
                tid: Tid(r.u64()?),
                floor: Tid(r.u64()?),
                cred: Cred::decode(&mut r)?,
                request: Request::decode(&mut r)?,
            },
            3 => Self::Cancel { tid: Tid(r.u64()?) },
            4 => Self::Renew { number: r.u32()? },
            5 => {
                let (node, count, writes) = (NodeRef::decode(&mut r)?, r.u32()?, r.bool()?);
                let locks = (0..r.u32()?).map(|_| LockSpec::decode(&mut r)).collect::<Result<_, _>>()?;
                Self::Reclaim { node, count, writes, locks }
            }
            6 => Self::Reclaimed,
            8 => Self::Goodbye,
            9 => Self::Admin { id: r.u64()?, command: text(&mut r, TEXT_BYTES_MAX)? },
            64 => {
                let count = r.u32()?;
                let list = (0..count).map(|_| Returned::decode(&mut r)).collect::<Result<_, _>>()?;
                Self::Returned { list }
            }
            65 => Self::Settled,
            66 => {
                let (tid, floor, cred) = (Tid(r.u64()?), Tid(r.u64()?), Cred::decode(&mut r)?);
                let told = Told { ino: Ino(r.u64()?), wall: Wall(r.i64()?), heard: r.bool()? };
                Self::Performed { tid, floor, cred, told, request: Request::decode(&mut r)? }
            }
            67 => Self::Presented,
            68 => {
                let count = r.u32()? as usize;
                if count > IDLE_MAX {
                    return Err(DecodeError::Invalid { what: "count of idle inodes" });
                }
                Self::Idle {
                    list: (0..count).map(|_| Ok(Ino(r.u64()?))).collect::<Result<_, DecodeError>>()?,
                }
            }
            69 => rank_hello(&mut r)?,
            70 => Self::WantMap { have: r.u64()? },
            71 => Self::CapsMax { caps_max: r.u32()? },
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
            Self::Welcome {
                protocol,
                session,
                incarnation,
                fsid,
                resumed,
                lease_ms,
                root,
                synced,
                former,
                token,
            } => {
                w.u8(1).u16(*protocol).u64(session.0).u64(incarnation.0).raw(fsid);
                w.bool(*resumed).u32(*lease_ms).u64(root.0).bool(*synced).u64(former.0).raw(&token.0);
            }
            Self::Reply { tid, outcome } => {
                w.u8(2).u64(tid.0);
                encode_outcome(outcome, w);
            }
            Self::Refused { errno, reason } => {
                w.u8(5).u32(*errno).bytes(reason.as_bytes());
            }
            Self::Admin { id, answer } => {
                w.u8(6).u64(*id).bytes(answer.as_bytes());
            }
            Self::Recall { list } => {
                w.u8(64).u32(list.len() as u32);
                list.iter().for_each(|recalled| recalled.encode(w));
            }
            Self::Renewed { number } => {
                w.u8(65).u32(*number);
            }
            Self::Granted { tid, outcome, grants } => {
                w.u8(66).u64(tid.0);
                encode_outcome(outcome, w);
                grants.encode(w);
            }
            Self::Early { tid, position, wall, outcome, grants, delegated } => {
                w.u8(67).u64(tid.0).u64(position.0).i64(wall.0);
                encode_outcome(outcome, w);
                grants.encode(w);
                w.u8(delegated.len() as u8);
                for delegated in delegated {
                    delegated.dir.encode(w);
                    w.bool(delegated.empty);
                }
            }
            Self::Done { tid, position } => {
                w.u8(68).u64(tid.0).u64(position.0);
            }
            Self::Durable { position } => {
                w.u8(69).u64(position.0);
            }
            Self::Numbers { first, count, generation, seed } => {
                w.u8(70).u64(first.0).u32(*count).u32(*generation).raw(&seed.0);
            }
            Self::Damaged => {
                w.u8(71);
            }
            Self::NotMine { tid, owner, version } => {
                w.u8(72).u64(tid.0).u16(owner.map_or(NO_OWNER, |rank| rank.0)).u64(*version);
            }
            Self::Join { rank, version } => {
                w.u8(74).u16(rank.0).u64(*version);
            }
            Self::Map { version, part, parts, bytes } => {
                w.u8(73).u64(*version).u16(*part).u16(*parts).bytes(bytes);
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
                root: Ino(r.u64()?),
                synced: r.bool()?,
                former: Incarnation(r.u64()?),
                token: JoinToken::decode(&mut r)?,
            },
            2 => Self::Reply { tid: Tid(r.u64()?), outcome: decode_outcome(&mut r)? },
            5 => Self::Refused { errno: r.u32()?, reason: text(&mut r, TEXT_BYTES_MAX)? },
            6 => Self::Admin { id: r.u64()?, answer: text(&mut r, TEXT_BYTES_MAX)? },
            64 => {
                let count = r.u32()?;
                let list = (0..count).map(|_| Recalled::decode(&mut r)).collect::<Result<_, _>>()?;
                Self::Recall { list }
            }
            65 => Self::Renewed { number: r.u32()? },
            66 => {
                let (tid, outcome) = (Tid(r.u64()?), decode_outcome(&mut r)?);
                let listing = matches!(outcome, Ok(Reply::Entries { .. }));
                let grants = Grants::decode(&mut r, listing)?;
                Self::Granted { tid, outcome, grants }
            }
            67 => {
                let (tid, position, wall) = (Tid(r.u64()?), Position(r.u64()?), Wall(r.i64()?));
                let outcome = decode_outcome(&mut r)?;
                let grants = Grants::decode(&mut r, matches!(outcome, Ok(Reply::Entries { .. })))?;
                let delegated = (0..r.u8()?)
                    .map(|_| Ok(Delegated { dir: Attr::decode(&mut r)?, empty: r.bool()? }))
                    .collect::<Result<_, DecodeError>>()?;
                Self::Early { tid, position, wall, outcome, grants, delegated }
            }
            68 => Self::Done { tid: Tid(r.u64()?), position: Position(r.u64()?) },
            69 => Self::Durable { position: Position(r.u64()?) },
            70 => {
                let (first, count, generation) = (Ino(r.u64()?), r.u32()?, r.u32()?);
                let seed = r.raw(16)?.try_into().map_err(|_| DecodeError::Invalid { what: "seed" })?;
                Self::Numbers { first, count, generation, seed: HashSeed(seed) }
            }
            71 => Self::Damaged,
            72 => {
                let (tid, owner) = (Tid(r.u64()?), r.u16()?);
                Self::NotMine { tid, owner: (owner != NO_OWNER).then_some(RankId(owner)), version: r.u64()? }
            }
            73 => {
                let (version, part, parts) = (r.u64()?, r.u16()?, r.u16()?);
                if part >= parts || parts > MAP_PARTS_MAX {
                    return Err(DecodeError::Invalid { what: "part of a map" });
                }
                Self::Map { version, part, parts, bytes: r.bytes(MAP_PART_BYTES_MAX)?.to_vec() }
            }
            74 => Self::Join { rank: RankId(r.u16()?), version: r.u64()? },
            tag => return Err(DecodeError::UnknownTag { what: "server message", tag: u64::from(tag) }),
        };
        r.finish()?;
        Ok(message)
    }
}
