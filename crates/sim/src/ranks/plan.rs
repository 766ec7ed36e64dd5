//! What a seed decides before the first event: how many ranks, daemons and clients, which limits, which delays and faults.
//!
//! Absent: dice during the run.

use super::faults::Fault;
use super::placing::Placing;
use client::ClientConfig;
use mds::RankConfig;
use proto::caps::Bits;
use proto::ids::{Incarnation, Ino, RankId};
use proto::message::ClientInfo;
use stdx::Prng;
use stdx::hash::HashSeed;
use stdx::time::{MS, SECOND};
use store::data;
use store::journal_files::JournalLimits;

/// As many as there may ever be.
pub(super) const RANKS_MAX: u16 = 8;

/// What their dice are made of.
const LOCKS_AND_SYNCS: u64 = 0x6c6f_636b_7379_6e63;
/// For the dice of ranks that go.
const SHRINKS: u64 = 0x9e37_79b9_7f4a_7c15;

/// For those of clients that are killed, and of the store.
const KILLS: u64 = 0x6b69_6c6c_7374_6f72;
/// For those of clients that are limited to a directory.
const LIMITS: u64 = 0x6c69_6d69_7465_6421;

/// How one run is.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// At the beginning, and at most.
    pub(super) ranks: u16,
    pub(super) most: u16,
    pub(super) daemons: usize,
    pub(super) clients: usize,
    pub(super) operations: u64,
    /// Faults that strike at least, and one in how much time.
    pub(super) kinds: Vec<Fault>,
    pub(super) faults: u64,
    pub(super) fault_every: u64,
    pub(super) calls_max: usize,
    /// Longest pause between calls, delay of a message, of a disk operation, of a batch of the store; and of a map on its way.
    pub(super) pause_ns: u64,
    pub(super) message_ns: u64,
    pub(super) disk_ns: u64,
    pub(super) store_ns: u64,
    pub(super) map_ns: u64,
    /// How long the store's answer may take, now and then; 0: no longer than a disk operation.
    pub(super) late_ns: u64,
    /// How often a daemon says that it is there, and how long a rank goes on without.
    pub(super) interval_ns: u64,
    pub(super) grace_ns: u64,
    pub(super) tiny_cache: bool,
    /// One call of so many pins a directory.
    pub(super) pin_one_in: u64,
    /// One of so many spreads one; 0: none is ever spread.
    pub(super) spread_one_in: u64,
    /// Placement by slots, and policies.
    pub(super) placing: Placing,
    /// Clients close what they have open, half of the time.
    pub(super) tidy: bool,
    pub(super) turn_ns: u64,
    pub(super) small_file_bytes: u32,
    pub(super) hash_seed: HashSeed,
    /// One call of so many is about a lock, or a sync; 0: none is.
    pub(super) lock_one_in: u64,
    pub(super) sync_one_in: u64,
    wants: u8,
    /// Ranks go; and clients end only after all have gone that were to.
    pub(super) shrinks: bool,
    pub(super) patient: bool,
    eager: Eager,
    /// Clients that are limited to a directory, a bit each: never the first, as somebody has to make directories. And what the dice of the
    /// run are made of that are about them.
    limited: u8,
    pub(super) limits: u64,
}

/// Clients that are answered early and work in directories of their own.
#[derive(Clone, Copy, Debug)]
struct Eager {
    /// Those of them, a bit each; and those that want files as well.
    clients: u8,
    files: u8,
    /// How many numbers are delegated to each at a time, in per cent; 0: no directory is delegated.
    delegate_pct: u64,
    /// How long what nobody waits for stays in the memory of a journal's writer, at most.
    lazy_ns: u64,
}

impl Default for Eager {
    fn default() -> Self {
        Self { clients: 0, files: 0, delegate_pct: 0, lazy_ns: 2 * MS }
    }
}

impl Eager {
    /// From dice of its own: whatever else a seed decides stays what it was.
    fn any(seed: u64) -> Self {
        let mut rng = Prng::new(seed ^ 0x6561_6765_725f_6f6e);
        if rng.chance(1, 2) {
            return Self::default();
        }
        let mut some = |of: &[u64]| of[rng.index(of.len())];
        let clients = some(&[0b111, 0b111, 0b01, 0b10]) as u8;
        Self {
            clients,
            files: some(&[0, 0b101, 0b111]) as u8,
            delegate_pct: some(&[0, 50, 50, 100]),
            lazy_ns: some(&[2 * MS, 20 * MS, 200 * MS]),
        }
    }
}

impl Plan {
    pub(super) fn any(rng: &mut Prng, eager: bool) -> Self {
        let mut seed = [0; 16];
        let drawn = rng.next_u64();
        seed[..8].copy_from_slice(&drawn.to_le_bytes());
        let mut kinds = Fault::some(rng);
        // Each of a stream of its own, so that runs without these are what they were.
        let mut of_locks = Prng::new(drawn ^ LOCKS_AND_SYNCS);
        let mut of_going = Prng::new(drawn ^ SHRINKS);
        let shrinks = !kinds.is_empty() && of_going.chance(1, 2);
        if shrinks {
            kinds.push(Fault::Shrink);
        }
        let mut of_kills = Prng::new(drawn ^ KILLS);
        let fails: Vec<Fault> =
            [Fault::Kill, Fault::StoreStep].into_iter().filter(|_| of_kills.chance(1, 2)).collect();
        let mut of_limits = Prng::new(drawn ^ LIMITS);
        let late_ns = [0, 0, 0, 2 * SECOND][of_kills.index(4)];
        if !kinds.is_empty() {
            kinds.extend(fails);
        }
        let placing = Placing::any(drawn, !kinds.is_empty());
        kinds.extend(&placing.kinds);
        let mut some = |of: &[u64]| of[rng.index(of.len())];
        let many = some(&[5, 6, 7, 8]);
        let ranks = some(&[2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, many, many]) as u16;
        let most = if kinds.contains(&Fault::Grow) || shrinks { RANKS_MAX.min(ranks + 1) } else { ranks };
        Self {
            ranks,
            most,
            daemons: usize::from(most) + some(&[1, 2]) as usize,
            clients: some(&[2, 2, 3]) as usize,
            operations: 600,
            faults: if kinds.is_empty() { 0 } else { 8 },
            kinds,
            fault_every: some(&[SECOND / 4, SECOND, 4 * SECOND]),
            calls_max: some(&[1, 2, 4]) as usize,
            pause_ns: some(&[MS, 5 * MS, 20 * MS]),
            message_ns: some(&[MS / 20, MS, 10 * MS]),
            disk_ns: some(&[MS / 20, MS, 8 * MS]),
            store_ns: some(&[MS / 20, MS, 8 * MS, 100 * MS]),
            map_ns: some(&[MS, 20 * MS, 500 * MS]),
            late_ns,
            interval_ns: SECOND / 2,
            grace_ns: 2 * SECOND,
            tiny_cache: some(&[0, 1]) == 1,
            pin_one_in: some(&[6, 15, 40]),
            spread_one_in: some(&[0, 10, 25, 60]),
            placing,
            tidy: some(&[0, 1, 1, 1]) == 1,
            turn_ns: some(&[200 * MS, SECOND]),
            small_file_bytes: some(&[0, 1000, 4096]) as u32,
            hash_seed: HashSeed(seed),
            lock_one_in: [0, 0, 4, 12][of_locks.index(4)],
            sync_one_in: [0, 0, 6, 20][of_locks.index(4)],
            wants: some(&[0, 1, 2, 3]) as u8,
            shrinks,
            patient: shrinks && of_going.chance(1, 2),
            eager: if eager { Eager::any(drawn) } else { Eager::default() },
            limited: [0, 0, 0, 0, 0b010, 0b110][of_limits.index(6)],
            limits: of_limits.next_u64(),
        }
    }

    pub(super) const fn rank(&self, rank: RankId, incarnation: Incarnation) -> RankConfig {
        let mut config = RankConfig::tiny([7; 16], self.hash_seed, incarnation);
        // As many as clients may have open: courses are long.
        config.limits.reclaims = 1 << 20;
        config.rank = rank;
        config.delegate_pct = self.eager.delegate_pct;
        // Calls are few: what is asked several times of one directory is much, also of one with few names.
        (config.split_size, config.merge_size, config.limits.hot_names) = (3, 2, 0);
        (config.split_reads, config.split_writes) = (16, 8);
        // Of directories that nobody spreads some runs have none at all.
        config.spread_unplaced = self.spread_one_in > 0 && !self.placing.only_placed;
        config.limits.random_max = 1.0;
        if !self.tiny_cache {
            config.cache_bytes = 64 << 20;
            config.journal_bytes = 256 << 10;
        }
        config
    }

    pub(super) const fn journal(&self) -> JournalLimits {
        if self.tiny_cache {
            JournalLimits { segment_bytes: 16 << 10, journal_bytes: 64 << 10 }
        } else {
            JournalLimits { segment_bytes: 128 << 10, journal_bytes: 512 << 10 }
        }
    }

    pub(super) fn data(&self) -> data::Limits {
        data::Limits::tiny()
    }

    pub(super) fn client(&self, number: usize) -> ClientConfig {
        ClientConfig {
            info: ClientInfo {
                host: format!("host{number}"),
                mount: "/mnt".into(),
                pid: number as u32,
                caps_max: 0,
            },
            wants: self.wants(number),
            retry: true,
            recover_clean: true,
            limit: Ino::NONE,
            limits: client::Limits::default(),
        }
    }

    /// What a client's edge keeps; an eager one wants directories, perhaps files. One that is limited may want them, too: it has none.
    pub(super) fn wants(&self, number: usize) -> Bits {
        let keeps = self.wants >> (number % 2) & 1 == 1;
        if self.eager.clients >> number & 1 == 1 {
            let pages = if keeps { Bits::FC } else { Bits::NONE };
            let files = if self.eager.files >> number & 1 == 1 { Bits::ALONE } else { Bits::NONE };
            return Bits::ATTRS.with(pages).with(Bits::DX).with(files);
        }
        if keeps { Bits::ATTRS.with(Bits::FC) } else { Bits::NONE }
    }

    /// Whether a client is answered before what it asked for is durable.
    pub(super) const fn is_eager(&self, number: usize) -> bool {
        self.eager.clients >> number & 1 == 1 && !self.is_limited(number)
    }

    /// Whether a client is limited to a directory.
    pub(super) const fn is_limited(&self, number: usize) -> bool {
        self.limited >> number & 1 == 1
    }

    /// How long a journal may leave what nobody waits for.
    pub(super) const fn lazy_ns(&self) -> u64 {
        self.eager.lazy_ns
    }

    /// How long a rank waits for who says nothing.
    pub(super) const fn lease_ns(&self) -> u64 {
        self.rank(RankId(0), Incarnation(1)).lease_ns
    }
}
