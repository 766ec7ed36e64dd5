//! Everything that can happen to a rank.
//!
//! Absent: how it came (socket, function call, simulated network).

use crate::output::MapWish;
use proto::cluster::ClusterMap;
use proto::message::{ClientMsg, ServerMsg};
use proto::storeio::{DataDone, Loaded, StoreError};
use proto::{Cred, Incarnation, Ino, Position, RankId, SessionId};
use std::sync::Arc;

/// A connection, numbered by the driver; never reused while the rank lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

/// Names one of the rank's own questions to a store; the answer carries it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub u64);

/// Who is at the other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// The mount in this process: dies with the rank, so it is answered before durability; its
    /// kernel checks permissions.
    Embedded,
    /// A peer that may act for anyone (root on the unix socket, an insecure network): its kernel
    /// checks permissions. Answered when durable.
    Trusted,
    /// Acts only as this user; the rank checks permissions. Answered when durable.
    User(Cred),
}

/// One input.
#[derive(Clone, Debug)]
pub enum Input {
    /// First input after construction: load the checkpoint and replay.
    Boot,
    /// A piece of the journal asked for by `Output::ReadJournal`: whole entries, already checked by
    /// the journal reader, in order from `position` on.
    Replay {
        position: Position,
        entries: Vec<u8>,
    },
    /// The journal ends here; the next append starts at this position (in a new segment). `former`: which life of this rank wrote the
    /// newest segment; 0: there is none.
    ReplayEnd {
        end: Position,
        former: Incarnation,
    },
    /// The journal cannot be read: the rank becomes `damaged`.
    ReplayFailed(StoreError),
    Connected {
        conn: ConnId,
        peer: Peer,
    },
    /// Whoever greets on that connection is limited to that directory, `Ino::NONE` or the root: to nothing. Behind `Connected`, and before
    /// anything is said on it.
    Limit {
        conn: ConnId,
        dir: Ino,
    },
    Disconnected {
        conn: ConnId,
    },
    Message {
        conn: ConnId,
        message: ClientMsg,
    },
    /// Everything appended below this position is durable.
    Durable(Position),
    /// The journal failed: nothing appended from here on will ever be durable.
    JournalFailed(StoreError),
    /// Answers to `Output::Load`, one per request, in order.
    Loaded {
        tag: Tag,
        results: Vec<Result<Loaded, StoreError>>,
    },
    /// Answer to `Output::Store`: all batches of the tag, or the reason.
    Stored {
        tag: Tag,
        result: Result<(), StoreError>,
    },
    /// Answer to `Output::Data`.
    DataDone {
        tag: Tag,
        result: Result<DataDone, StoreError>,
    },
    /// Time passed (at the latest at `deadline`).
    Tick,
    /// Write a checkpoint now and trim the journal (`pando compact`, backup, shutdown).
    Checkpoint,
    /// Load all names below this directory, which is cached, until the cache is nearly full (`pando warmup`); `None`: no more.
    Warmup {
        dir: Option<Ino>,
    },
    /// Forget clean cached entries (memory pressure, benchmarks).
    DropCache,
    /// The disk ran full (what was kept back for it was given up), or has room again. While it is
    /// full, mutations that need new space answer ENOSPC; unlink, rmdir, truncate go on.
    Space {
        full: bool,
    },
    /// A driver holds requests back, and what follows them (a backup), or does no more: nobody is late meanwhile.
    Frozen(bool),
    /// An operator ends a session: as if its lease had run out.
    Evict {
        session: SessionId,
    },
    /// The cluster map; before `Boot` for a rank that is not alone.
    Map(Arc<ClusterMap>),
    /// Another rank answers what `Output::SendRank` asked, or takes something back.
    FromRank {
        rank: RankId,
        message: Box<ServerMsg>,
    },
    /// The connection that `Output::SendRank` made is gone, or could not be made.
    RankGone {
        rank: RankId,
    },
    /// The coordinator does not do what `Output::Wish` asked for.
    WishRefused {
        wish: MapWish,
        reason: String,
    },
    /// An operator wants a directory's content, or a unit, at another rank: `part_named` says that it is this one's.
    Move {
        dir: Ino,
        to: RankId,
    },
    /// An operator wants no `Move` of it any more that the map does not say yet: `is_to_move` says that there is one.
    Unmove {
        dir: Ino,
    },
    /// An operator wants a directory's names in 2^`depth` parts, at several ranks: `part_named` says that it is this one's.
    Spread {
        dir: Ino,
        depth: u8,
    },
    /// An operator wants a directory's names in one part again: `part_named` says that it is this one's.
    Merge {
        dir: Ino,
    },
    /// No new sessions; checkpoint; then `Output::Stopped`.
    Stop,
}
