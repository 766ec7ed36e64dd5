//! What a rank is told once: identity, limits, policies.
//!
//! Absent: anything that changes while it runs.

use crate::locks::LockLimits;
use proto::cluster::RankState;
use proto::{Incarnation, RankId};
use stdx::hash::HashSeed;
use stdx::time::SECOND;

/// When a directory's entries are read before they are asked for (`mds_dir_prefetch`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefetch {
    /// Keyed reads first; a directory that keeps missing is loaded in the background when it is small
    /// against the cache.
    Auto,
    /// Only what was asked for.
    Keyed,
    /// The first miss loads the directory in the background.
    Full,
}

/// Bounds of one step's work and of tables.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Entries a checkpoint encodes per slice.
    pub slice_entries: u32,
    /// Bytes of a checkpoint's batches under way at which it waits for the store. Many at once are few commits: what is waiting
    /// for a writer is written together, and each commit ends in two syncs.
    pub store_bytes: usize,
    /// Nanoseconds between two slices, so that requests come in between.
    pub slice_pause_ns: u64,
    /// Entries of one scan of the store.
    pub scan_entries: u32,
    /// Bytes of one listing page at most, whatever the client asks for.
    pub page_bytes: u32,
    /// Misses in a directory before `Auto` loads it, at least.
    pub misses: u32,
    /// Entries a background load may bring in for one directory.
    ///
    /// It is also how many names may be loaded ahead before any was asked for (`cache::worth`).
    pub load_entries: u64,
    /// Inode numbers reserved at a time.
    pub ino_block: u64,
    /// A last name removed from a longer file goes through `//orphans`.
    pub inline_remove_bytes: u64,
    /// Locks held on one file, and waiters for it.
    pub locks_per_file: usize,
    /// Locks of one session on all files, waiting ones included; ENOLCK beyond.
    pub locks_per_session: usize,
    /// Files that a session may say it has open or locked when it comes back: what is behind their numbers nobody has looked at.
    pub reclaims: u32,
    /// Sessions of all clients together, and of one user that is not root.
    pub sessions: usize,
    pub sessions_per_user: usize,
    /// Requests one session may have parked.
    pub parked_per_session: usize,
    /// Results kept for one session that may ask again; above it requests are refused. An honest client stays below (its
    /// `tid_span_max`), and their record below the store's 4 MiB.
    pub results: usize,
    /// Inodes on which one session holds capabilities; those granted long ago go for new ones (`mds_max_caps_per_client`).
    pub caps_per_client: u64,
    /// Who holds capabilities on no more inodes than that is asked for nothing because memory is short
    /// (`mds_min_caps_per_client`).
    pub caps_least: u64,
    /// The most that `dir.pin.random` may be (`mds_export_ephemeral_random_max`).
    pub random_max: f64,
    /// Inodes of one session recalled to make room, and without an answer (`mds_recall_max_caps`).
    pub recall_caps: usize,
    /// Cached entries forgotten in one step.
    pub forget: u32,
    /// Things looked at, or dropped, in one step for a move.
    pub move_slice: u32,
    /// Names that the store has to hear of at which a move makes another checkpoint before it seals anything; for the first time at a quarter
    /// of that.
    pub move_dirty: u64,
    /// Directories delegated to one session at a time.
    pub delegated_per_session: usize,
    /// Cached names of a directory that go to its units in one step when it is spread.
    pub spread_names: u32,
    /// Names for each part below which a directory is not spread for what is asked of it: parts without names take nothing from it.
    pub hot_names: u64,
    /// Nothing more becomes of a directory by itself for so long after it was spread, merged, or looked at; for longer each time.
    pub spread_rest_ns: u64,
}

impl Limits {
    pub(crate) const fn locks(&self) -> LockLimits {
        LockLimits { per_file: self.locks_per_file, per_session: self.locks_per_session }
    }
}

/// A rank's configuration.
#[derive(Clone, Debug)]
pub struct RankConfig {
    pub rank: RankId,
    pub incarnation: Incarnation,
    pub fsid: [u8; 16],
    pub hash_seed: HashSeed,
    /// What tokens of sessions are made of: the same at all ranks of the file system, and known to nobody else.
    pub join_key: [u8; 16],
    /// The file system's epoch: seeds generations.
    pub fs_epoch: u32,
    /// `mds_cache_memory_limit`.
    pub cache_bytes: u64,
    /// A checkpoint starts when the journal is longer.
    pub journal_bytes: u64,
    pub lease_ns: u64,
    /// So long nobody is served where something moves, before the journal says that it is sealed; then the move is given up, and tried
    /// again with twice of it, up to a lease (`mds_move_seal_ms`).
    pub seal_ns: u64,
    /// `mds_op_complaint_time`: a request without an answer is blocked from then on, and one that took longer was slow.
    pub complaint_ns: u64,
    pub prefetch: Prefetch,
    /// How many numbers for new inodes are delegated to a session at a time, in per cent of an eighth of `ino_block`
    /// (`mds_client_delegate_inos_pct`); 0: no directory is delegated to anybody.
    pub delegate_pct: u64,
    /// Names at which a directory that is placed by slots is spread over several ranks (`mds_bal_split_size`); 0: never.
    pub split_size: u64,
    /// A directory that was spread by itself is merged by itself when it has fewer names (`mds_bal_merge_size`); 0: never.
    pub merge_size: u64,
    /// Reads and writes of late at which it is spread also with fewer names (`mds_bal_split_rd`, `mds_bal_split_wr`); 0: never.
    pub split_reads: u32,
    pub split_writes: u32,
    /// One that is spread by itself has at least 2 to the power of this many parts, of which 256 are the most (`mds_bal_split_bits`).
    pub split_depth: u8,
    /// In so long half of what was asked is forgotten (`mds_decay_halflife`). Beyond 11 s the count of CPU time overflows.
    pub decay_ns: u64,
    /// Also what no slots place is spread by itself. Only the simulator sets this: in many of its runs slots place nothing.
    pub spread_unplaced: bool,
    pub limits: Limits,
}

impl RankConfig {
    /// The production defaults of a file system.
    #[must_use]
    pub const fn new(fsid: [u8; 16], hash_seed: HashSeed, incarnation: Incarnation) -> Self {
        Self {
            rank: RankId(0),
            incarnation,
            fsid,
            hash_seed,
            join_key: [0; 16],
            fs_epoch: 1,
            cache_bytes: 4 << 30,
            journal_bytes: 1 << 30,
            lease_ns: 10 * SECOND,
            seal_ns: SECOND / 10,
            complaint_ns: 30 * SECOND,
            prefetch: Prefetch::Auto,
            delegate_pct: 50,
            split_size: 10_000,
            merge_size: 50,
            split_reads: 25_000,
            split_writes: 10_000,
            split_depth: 3,
            decay_ns: 5 * SECOND,
            spread_unplaced: false,
            limits: Limits {
                slice_entries: 256,
                store_bytes: 16 << 20,
                slice_pause_ns: 200_000,
                scan_entries: 512,
                page_bytes: 128 << 10,
                misses: 32,
                load_entries: 1 << 20,
                ino_block: 65_536,
                inline_remove_bytes: 64 << 20,
                locks_per_file: 65_536,
                locks_per_session: 1_000_000,
                reclaims: 1 << 20,
                sessions: 65_536,
                sessions_per_user: 4_096,
                parked_per_session: 8_192,
                results: 20_000,
                caps_per_client: 1_000_000,
                caps_least: 100,
                random_max: 0.01,
                recall_caps: 1_024,
                forget: 256,
                move_slice: 1_024,
                move_dirty: 256,
                delegated_per_session: 1_024,
                spread_names: 16_384,
                hot_names: 8,
                spread_rest_ns: 10 * SECOND,
            },
        }
    }

    /// Everything small, so that a few hundred operations reach every limit.
    #[must_use]
    pub const fn tiny(fsid: [u8; 16], hash_seed: HashSeed, incarnation: Incarnation) -> Self {
        let mut config = Self::new(fsid, hash_seed, incarnation);
        config.cache_bytes = 64 << 10;
        config.journal_bytes = 32 << 10;
        (config.split_size, config.merge_size) = (24, 8);
        (config.split_reads, config.split_writes) = (400, 200);
        config.limits = Limits {
            slice_entries: 8,
            store_bytes: 1 << 10,
            slice_pause_ns: 50_000,
            scan_entries: 8,
            page_bytes: 4 << 10,
            misses: 4,
            load_entries: 64,
            ino_block: 64,
            inline_remove_bytes: 128 << 10,
            locks_per_file: 64,
            locks_per_session: 256,
            reclaims: 256,
            sessions: 4_096,
            sessions_per_user: 1_024,
            parked_per_session: 256,
            results: 4_096,
            caps_per_client: 48,
            caps_least: 4,
            random_max: 0.01,
            recall_caps: 8,
            forget: 16,
            move_slice: 8,
            move_dirty: 48,
            delegated_per_session: 3,
            spread_names: 8,
            hot_names: 1,
            spread_rest_ns: SECOND / 5,
        };
        config
    }
}

/// Where a rank is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Reads its checkpoint and the system directories.
    Boot,
    /// Applies the journal's tail.
    Replay,
    /// Serves; former sessions may still reclaim their opens and locks.
    Reconnect,
    Active,
    /// Writes its last checkpoint.
    Stopping,
    /// Everything is in the store; serves nothing.
    Stopped,
    /// Refuses to serve.
    Damaged,
}

impl State {
    /// As the cluster map calls it. `None`: it ends with its process, whose end the coordinator does not see.
    #[must_use]
    pub const fn in_map(self) -> Option<RankState> {
        match self {
            Self::Boot | Self::Replay => Some(RankState::Replay),
            Self::Reconnect => Some(RankState::Reconnect),
            Self::Active => Some(RankState::Active),
            Self::Damaged => Some(RankState::Damaged),
            Self::Stopping | Self::Stopped => None,
        }
    }

    /// The word shown to people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Boot => "boot",
            Self::Replay => "replay",
            Self::Reconnect => "reconnect",
            Self::Active => "active",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
            Self::Damaged => "damaged",
        }
    }

    /// Whether requests are executed.
    #[must_use]
    pub const fn serves(self) -> bool {
        match self {
            Self::Reconnect | Self::Active => true,
            Self::Boot | Self::Replay | Self::Stopping | Self::Stopped | Self::Damaged => false,
        }
    }
}
