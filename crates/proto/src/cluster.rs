//! The cluster map: which life of which rank is carried by which daemon, and which rank owns what. One record, changed only by the
//! coordinator by compare-and-swap, and everybody else's copy of it. FORMAT.md, "Cluster map", is normative.
//!
//! Absent: who changes it, and when (`mds::coordinator`); where it is kept (`store::registry`).

mod check;
mod codec;
mod delta;
mod mask;
mod parts;
mod slots;
#[cfg(test)]
mod tests;

pub use check::MapError;
pub(crate) use codec::{put_unit, take_unit};
pub use delta::{Change, Delta};
pub use mask::MaskError;
pub use parts::MapParts;
pub use slots::{SLOTS, Slot, Slots};

use crate::ids::{Frag, Incarnation, Ino, NameHash, RankId};
use std::collections::BTreeMap;
use std::sync::Arc;
use stdx::hash::mix64;

/// Ranks that a map can name: 0 to 255.
pub const RANKS_MAX: u16 = 256;
/// Daemons that a map can name.
pub const DAEMONS_MAX: usize = 256;
/// Entries of a map; carving is refused beyond.
pub const ENTRIES_MAX: usize = 65_536;
/// Bytes of an encoded map or delta.
pub const MAP_BYTES_MAX: usize = 8 << 20;
/// Bytes of the sections of later versions together.
pub const UNKNOWN_BYTES_MAX: usize = 1 << 20;
/// What a rank's weight is unless an operator gave it another one.
pub const WEIGHT: u16 = 100;
/// The highest weight; the lowest is 1.
pub const WEIGHT_MAX: u16 = 1000;
/// The deepest unit: so many leading bits of the hash it can name.
pub const UNIT_DEPTH_MAX: u8 = 24;

/// What can carry one rank: unique while the file system lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DaemonId(pub u64);

impl DaemonId {
    /// "No daemon": never given out.
    pub const NONE: Self = Self(0);
}

/// One change of owner of one entry or of slots; unique in the life of the file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MoveId(pub u64);

/// A unit of ownership: a directory and a prefix of its names' hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Unit {
    pub dir: Ino,
    pub frag: Frag,
}

impl Unit {
    /// The whole root directory. Its entry is always there.
    pub const ROOT: Self = Self { dir: Ino::ROOT, frag: Frag::WHOLE };
    /// What has no entry.
    pub const NOTHING: Self = Self { dir: Ino::NONE, frag: Frag::WHOLE };
}

/// Where a rank is. One that was stopped is not in the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum RankState {
    /// No life of it may serve; it waits for a standby.
    Failed = 1,
    /// Reads the tail of its journal.
    Replay = 2,
    /// Settles what is undecided with the other ranks.
    Resolve = 3,
    /// Waits for the sessions of before.
    Reconnect = 4,
    Active = 5,
    /// Hands over what it has.
    Stopping = 6,
    /// Serves nothing, and no standby takes over before somebody says that it may.
    Damaged = 7,
    /// Its first life makes what it needs in the store, then goes on as in `Replay`.
    Creating = 8,
}

impl RankState {
    /// Whether it answers other ranks; clients it answers when it is `Active` or `Stopping`.
    #[must_use]
    pub const fn serves_ranks(self) -> bool {
        match self {
            Self::Reconnect | Self::Active | Self::Stopping => true,
            Self::Failed | Self::Replay | Self::Resolve | Self::Damaged | Self::Creating => false,
        }
    }
}

/// A rank in the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankInfo {
    pub state: RankState,
    /// Of its life; of its last one while it is `Failed`; 0 before the first.
    pub incarnation: Incarnation,
    /// Who carries it. `NONE` exactly while it is `Failed`, and when a damaged one's daemon is gone.
    pub daemon: DaemonId,
}

/// Why an entry is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Policy {
    /// A directory's pin.
    Pin = 1,
    /// Reserved: read, never written.
    Spread = 2,
    /// Split off what was there; root's entry, and parts of spread directories, too.
    Carved = 3,
    /// Reserved: read, never written.
    Placement = 4,
}

/// A change of owner that was announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moving {
    pub id: MoveId,
    pub to: RankId,
}

/// Says which rank owns a unit, and below it everything that inherits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub rank: RankId,
    /// The version of the map that changed the entry last, or made or dropped one that it governs otherwise: never one that an earlier
    /// entry of the unit had.
    pub version: u64,
    pub policy: Policy,
    pub moving: Option<Moving>,
}

/// What is known of a daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonInfo {
    /// For people; 1 to 255 bytes; two daemons may have the same.
    pub name: String,
}

/// A set of ranks: rank R is bit R mod 64 of word R / 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mask(pub [u64; 4]);

/// The cluster map at one version. What grows with the number of directories is shared between versions that have it alike, so that a
/// copy costs what the ranks and daemons cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterMap {
    /// The registry's version of the record; 1 is the first.
    pub version: u64,
    /// Ranks that are wanted, 1 to 256.
    pub max_mds: u16,
    /// Standbys may be given ranks.
    pub joinable: bool,
    /// Directories made from now on are placed by slots.
    pub hash_placement: bool,
    /// There may be directories that are placed by slots: so it stays.
    pub slots_used: bool,
    /// The coordinator whose word counts: grows by one with each that begins. One that finds a higher number is deposed.
    pub coordinator: u64,
    /// The last one given to a life of any rank; no life gets it, or a lower one, again.
    pub last_incarnation: Incarnation,
    pub last_daemon: DaemonId,
    pub last_move: MoveId,
    /// Ranks that the balancer may use.
    pub bal_rank_mask: Mask,
    /// Ranks that were once past `Creating`: what they need in the store is there.
    pub made: Mask,
    pub ranks: BTreeMap<RankId, RankInfo>,
    /// With a rank, or standing by.
    pub daemons: BTreeMap<DaemonId, DaemonInfo>,
    /// At most `ENTRIES_MAX`; `Unit::ROOT` is always there.
    pub entries: Arc<BTreeMap<Unit, Entry>>,
    pub slots: Arc<Slots>,
    /// Of ranks that are to have more or less than others of what nobody placed by name: 1 to `WEIGHT_MAX`, none is `WEIGHT`. The rank need not
    /// be there.
    pub weights: BTreeMap<RankId, u16>,
    /// Sections of later versions by tag, kept as they are; none is empty.
    pub unknown: BTreeMap<u8, Box<[u8]>>,
}

impl RankState {
    /// The word shown to people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Replay => "replay",
            Self::Resolve => "resolve",
            Self::Reconnect => "reconnect",
            Self::Active => "active",
            Self::Stopping => "stopping",
            Self::Damaged => "damaged",
            Self::Creating => "creating",
        }
    }
}

impl RankInfo {
    /// A rank without a life, whose last one was `incarnation`.
    #[must_use]
    pub const fn failed(incarnation: Incarnation) -> Self {
        Self { state: RankState::Failed, incarnation, daemon: DaemonId::NONE }
    }
}

impl Mask {
    /// No rank.
    pub const NONE: Self = Self([0; 4]);
    /// Every rank, also those to come.
    pub const ALL: Self = Self([u64::MAX; 4]);

    /// Whether the rank is in it. None above 255 is.
    #[must_use]
    pub const fn has(self, rank: RankId) -> bool {
        rank.0 < RANKS_MAX && self.0[(rank.0 / 64) as usize] >> (rank.0 % 64) & 1 == 1
    }

    /// It, and the rank. One above 255 is left out.
    #[must_use]
    pub const fn with(mut self, rank: RankId) -> Self {
        if rank.0 < RANKS_MAX {
            self.0[(rank.0 / 64) as usize] |= 1 << (rank.0 % 64);
        }
        self
    }
}

impl ClusterMap {
    /// The map of a file system that never had one: rank 0 owns everything, was made by `format`, and has no life.
    #[must_use]
    pub fn first() -> Self {
        let rank = RankId(0);
        let root = Entry { rank, version: 1, policy: Policy::Carved, moving: None };
        Self {
            version: 1,
            max_mds: 1,
            joinable: true,
            hash_placement: false,
            slots_used: false,
            coordinator: 0,
            last_incarnation: Incarnation(0),
            last_daemon: DaemonId::NONE,
            last_move: MoveId(0),
            bal_rank_mask: Mask::ALL,
            made: Mask::NONE.with(rank),
            ranks: BTreeMap::from([(rank, RankInfo::failed(Incarnation(0)))]),
            daemons: BTreeMap::new(),
            entries: Arc::new(BTreeMap::from([(Unit::ROOT, root)])),
            slots: Arc::new(Slots::all(Slot { rank, version: 1, moving: None })),
            weights: BTreeMap::new(),
            unknown: BTreeMap::new(),
        }
    }

    /// How much of what nobody placed by name the rank is to have, beside others.
    #[must_use]
    pub fn weight(&self, rank: RankId) -> u16 {
        self.weights.get(&rank).copied().unwrap_or(WEIGHT)
    }

    /// The entry that governs a name: that of the smallest unit of the directory with the hash in it. `None`: the directory has none
    /// there, so a slot decides, or the unit that holds the directory's dentry.
    #[must_use]
    pub fn governing(&self, dir: Ino, hash: NameHash) -> Option<(Unit, &Entry)> {
        let first = Unit { dir, frag: Frag::WHOLE };
        let mut last = Unit { dir, frag: Frag { prefix: hash.0, depth: UNIT_DEPTH_MAX } };
        // Among units that the hash is in a smaller one comes later in the map's order. One that it is not in shares less of the
        // hash than its depth, and so does the next one that it is in: each turn looks for a shallower one.
        loop {
            let (unit, entry) = self.entries.range(first..=last).next_back()?;
            if unit.frag.covers(hash) {
                return Some((*unit, entry));
            }
            let common = (unit.frag.prefix ^ hash.0).leading_zeros() as u8;
            last.frag = Frag::leading(hash, common.min(unit.frag.depth.saturating_sub(1)));
        }
    }

    /// The entry of the smallest unit that this one is in, itself counted.
    #[must_use]
    pub fn covering(&self, unit: Unit) -> Option<(Unit, &Entry)> {
        let larger = |depth| Unit { frag: Frag::leading(NameHash(unit.frag.prefix), depth), ..unit };
        let mut units = (0..=unit.frag.depth).rev().map(larger);
        units.find_map(|unit| Some((unit, self.entries.get(&unit)?)))
    }

    /// The slot of a unit whose directory is placed by slots.
    #[must_use]
    pub const fn slot_of(dir: Ino, frag: Frag) -> u16 {
        let frag = Frag::leading(NameHash(frag.prefix), frag.depth);
        (mix64(mix64(dir.0) ^ (frag.prefix | frag.depth as u64)) % SLOTS as u64) as u16
    }

    /// Whether an entry or a slot is the rank's, or on its way to it.
    #[must_use]
    pub fn is_owner(&self, rank: RankId) -> bool {
        let names = |owner: RankId, moving: Option<Moving>| {
            owner == rank || moving.is_some_and(|moving| moving.to == rank)
        };
        self.slots.runs().any(|(_, slot)| names(slot.rank, slot.moving))
            || self.entries.values().any(|entry| names(entry.rank, entry.moving))
    }

    /// The rank that a daemon carries.
    #[must_use]
    pub fn rank_of(&self, daemon: DaemonId) -> Option<(RankId, RankInfo)> {
        let (rank, info) = self.ranks.iter().find(|(_, info)| info.daemon == daemon)?;
        (daemon != DaemonId::NONE).then_some((*rank, *info))
    }
}
