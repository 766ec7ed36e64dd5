//! What a seed decides before the first event: how many clients of which kind, which limits, which
//! faults. Seeds differ in kind, not only in dice (swarm testing).
//!
//! Absent: dice during the run.

use client::ClientConfig;
use mds::RankConfig;
use proto::caps::Bits;
use proto::ids::Incarnation;
use proto::inode::XATTR_TOTAL_BYTES_MAX;
use proto::message::ClientInfo;
use proto::{Cred, Ino};
use stdx::Prng;
use stdx::hash::{HashSeed, mix64};
use stdx::time::MS;
use store::data;
use store::journal_files::JournalLimits;

/// A store that no checkpoint is done with before the journal is full again.
const SLOW_STORE_NS: u64 = 200 * MS;
/// Pauses between calls that make a run long enough for leases to end between two crashes.
const UNHURRIED_NS: u64 = 100 * MS;
/// Sessions, blocks of inode numbers, purges; and an inode's record with all it can have, of which a rename writes two.
const OWN_BYTES: u64 = (16 << 10) + 3 * XATTR_TOTAL_BYTES_MAX as u64;

/// The kinds of client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Embedded,
    Trusted,
    /// Acts as one user only; the rank checks permissions.
    User,
}

/// How one run is.
#[derive(Clone, Debug)]
pub struct Plan {
    pub clients: Vec<Kind>,
    pub operations: u64,
    pub crashes: u64,
    /// Calls one client has open at once.
    pub calls_max: usize,
    /// Longest pause between calls, delay of a message, of a disk operation.
    pub pause_ns: u64,
    pub message_ns: u64,
    pub disk_ns: u64,
    /// Longest delay of a batch of the store.
    pub store_ns: u64,
    pub tiny_cache: bool,
    pub cut_connections: bool,
    pub kill_clients: bool,
    /// Whoever drops the cache warms it then.
    pub warm: bool,
    /// Callers are killed while they wait.
    pub kill_callers: bool,
    /// Now and then a client takes longer than a lease to give back what is recalled.
    pub slow_returns: bool,
    /// An operator ends sessions.
    pub evict: bool,
    /// Answers overtake each other, and recalls overtake answers.
    pub many_readers: bool,
    /// Clients may notice late that their connection is cut.
    pub late_notice: bool,
    /// Processes are stopped for a while.
    pub hangs: bool,
    /// Hosts' clocks differ, and the wall clock is set.
    pub clocks: bool,
    /// Clients are closed while they work.
    pub closes: bool,
    /// Connections break all the time.
    pub cut_often: bool,
    /// A peer says whatever can be said; it acts as one user only, or for anyone.
    pub hostile: bool,
    pub hostile_user: bool,
    /// Something goes wrong soon after the rank has become active.
    pub again: bool,
    pub full_disk: bool,
    pub small_file_bytes: u32,
    pub fsid: [u8; 16],
    pub hash_seed: HashSeed,
    /// Bits by which clients find idle soon what they do not use, and much.
    idle: u8,
}

impl Plan {
    /// The plan of a seed.
    #[must_use]
    pub fn new(rng: &mut Prng, operations: u64, crashes: u64) -> Self {
        let mut clients = Vec::new();
        if rng.chance(4, 5) {
            clients.push(Kind::Embedded);
        }
        let others = if clients.is_empty() { 1 + rng.below(3) } else { rng.below(4) };
        for _ in 0..others {
            clients.push(if rng.chance(1, 6) { Kind::User } else { Kind::Trusted });
        }
        let dice = rng.next_u64();
        let mut hash_seed = [0; 16];
        hash_seed[..8].copy_from_slice(&dice.to_le_bytes());
        // Bits that say nothing else. Where two options hang on the same bits of the seed, as `wants` does, they may never meet.
        let others = mix64(dice).to_le_bytes();
        let mut plan = Self {
            clients,
            operations,
            crashes,
            calls_max: 1 + rng.index(4),
            pause_ns: [MS / 10, MS, 5 * MS][rng.index(3)],
            message_ns: [MS / 20, MS, 10 * MS][rng.index(3)],
            disk_ns: [MS / 20, MS, 8 * MS][rng.index(3)],
            store_ns: 0,
            tiny_cache: rng.chance(3, 4),
            cut_connections: rng.chance(2, 3),
            kill_clients: rng.chance(1, 2),
            warm: hash_seed[2].is_multiple_of(4),
            kill_callers: hash_seed[1].is_multiple_of(8),
            slow_returns: hash_seed[4].is_multiple_of(8),
            evict: others[1].is_multiple_of(4),
            many_readers: (hash_seed[1] ^ hash_seed[6]).is_multiple_of(3),
            late_notice: hash_seed[6].is_multiple_of(4),
            hangs: (hash_seed[2] ^ hash_seed[5]).is_multiple_of(5),
            clocks: (hash_seed[3] ^ hash_seed[6]).is_multiple_of(5),
            closes: (hash_seed[4] ^ hash_seed[7]).is_multiple_of(5),
            cut_often: (hash_seed[0] ^ hash_seed[3]).is_multiple_of(11),
            hostile: (hash_seed[5] ^ hash_seed[7]).is_multiple_of(6),
            hostile_user: hash_seed[5] > 127,
            again: (hash_seed[0] ^ hash_seed[7]).is_multiple_of(6),
            full_disk: rng.chance(1, 3),
            small_file_bytes: [0, 1000, 4096][rng.index(3)],
            fsid: [7; 16],
            hash_seed: HashSeed(hash_seed),
            idle: others[0],
        };
        // Of dice that were cast, so that the histories of all other seeds stay as they were.
        if plan.slow_returns {
            plan.pause_ns = UNHURRIED_NS;
        }
        plan.store_ns = if hash_seed[0].is_multiple_of(8) { SLOW_STORE_NS } else { plan.disk_ns };
        plan
    }

    /// What a journal may hold that no checkpoint has released: twice its size, and what is under way when it is reached. Then
    /// each open call may still have its transaction (of an fsync: with the file's content), and the rank some of its own.
    #[must_use]
    pub const fn backlog_max(&self) -> u64 {
        let calls = (self.clients.len() * self.calls_max) as u64;
        let transaction = 1024 + self.small_file_bytes as u64;
        2 * self.rank(Incarnation(1)).journal_bytes + calls * transaction + OWN_BYTES
    }

    /// The rank's configuration in one of its lives.
    #[must_use]
    pub const fn rank(&self, incarnation: Incarnation) -> RankConfig {
        let mut config = RankConfig::tiny(self.fsid, self.hash_seed, incarnation);
        if !self.tiny_cache {
            config.cache_bytes = 64 << 20;
            config.journal_bytes = 256 << 10;
        }
        config
    }

    /// Sizes of the journal's files.
    #[must_use]
    pub const fn journal(&self) -> JournalLimits {
        if self.tiny_cache {
            JournalLimits { segment_bytes: 16 << 10, journal_bytes: 64 << 10 }
        } else {
            JournalLimits { segment_bytes: 128 << 10, journal_bytes: 512 << 10 }
        }
    }

    /// Limits of the data store.
    #[must_use]
    pub fn data(&self) -> data::Limits {
        let tiny = data::Limits::tiny();
        // With many batches in a `SyncAll` much happens between them.
        if self.tiny_cache {
            tiny
        } else {
            data::Limits { buffer_bytes: 128 << 10, flush_bytes: 1 << 10, settle_ns: 500 * MS, ..tiny }
        }
    }

    /// A client's configuration.
    #[must_use]
    pub fn client(&self, kind: Kind, number: usize, rng: &mut Prng) -> ClientConfig {
        let mut limits = if rng.chance(1, 3) { client::Limits::tiny() } else { client::Limits::default() };
        // Most of them have idle what they do not use for a moment, and much soon.
        if !(self.idle >> (number % 4)).is_multiple_of(4) {
            let tiny = client::Limits::tiny();
            (limits.idle_ns, limits.files_kept_max) = (tiny.idle_ns, 1 + number);
            limits.delegated_max = tiny.delegated_max;
        }
        ClientConfig {
            info: ClientInfo {
                host: format!("host{number}"),
                mount: "/mnt".into(),
                pid: number as u32,
                caps_max: 0,
            },
            wants: self.wants(number),
            retry: kind != Kind::Embedded,
            recover_clean: rng.chance(1, 2),
            limit: Ino::NONE,
            limits,
        }
    }

    /// What a client's kernel keeps: most of them all that there is, some no pages, some nothing. Of those that may act for anyone
    /// most want directories delegated to them.
    #[must_use]
    pub fn wants(&self, number: usize) -> Bits {
        let keeps = match (self.hash_seed.0[3] >> (number % 4)) % 16 {
            0 => Bits::NONE,
            1 => Bits::ATTRS,
            _ => Bits::ATTRS.with(Bits::FC),
        };
        let trusted = self.clients.get(number) == Some(&Kind::Trusted);
        if trusted && !(self.hash_seed.0[7] >> (number % 4)).is_multiple_of(4) {
            // Some of them no files.
            let files = !(self.hash_seed.0[5] >> (number % 4)).is_multiple_of(4);
            keeps.with(Bits::DX).with(if files { Bits::ALONE } else { Bits::NONE })
        } else {
            keeps
        }
    }

    /// On whose behalf a client's calls are.
    #[must_use]
    pub fn cred(kind: Kind, rng: &mut Prng) -> Cred {
        match kind {
            Kind::User => Cred { uid: 1000, gid: 1000, groups: vec![7] },
            _ if rng.chance(1, 4) => Cred { uid: 1, gid: 2, groups: Vec::new() },
            _ => Cred::ROOT,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn options(plan: &Plan) -> Vec<(String, bool)> {
        // Spelled out, so that whoever adds an option is led here.
        let Plan {
            clients: _,
            operations: _,
            crashes: _,
            calls_max,
            pause_ns,
            message_ns,
            disk_ns,
            store_ns,
            tiny_cache,
            cut_connections,
            kill_clients,
            warm,
            kill_callers,
            slow_returns,
            evict,
            many_readers,
            late_notice,
            hangs,
            clocks,
            closes,
            cut_often,
            hostile,
            hostile_user,
            again,
            full_disk,
            small_file_bytes,
            fsid: _,
            hash_seed: _,
            idle: _,
        } = plan;
        [
            ("one call", *calls_max == 1),
            ("long pauses", *pause_ns >= 5 * MS),
            ("slow messages", *message_ns == 10 * MS),
            ("slow disk", *disk_ns == 8 * MS),
            ("slow store", *store_ns == SLOW_STORE_NS),
            ("tiny cache", *tiny_cache),
            ("connections cut", *cut_connections),
            ("clients killed", *kill_clients),
            ("warm", *warm),
            ("callers killed", *kill_callers),
            ("slow returns", *slow_returns),
            ("evict", *evict),
            ("many readers", *many_readers),
            ("late notice", *late_notice),
            ("hangs", *hangs),
            ("clocks", *clocks),
            ("closes", *closes),
            ("cut often", *cut_often),
            ("hostile", *hostile),
            ("hostile user", *hostile_user),
            ("again", *again),
            ("full disk", *full_disk),
            ("no small files", *small_file_bytes == 0),
        ]
        .map(|(name, on)| (name.to_owned(), on))
        .into()
    }

    /// What is decided of clients. One with limits that are tiny anyway is not looked at for being idle, nor for files one that wants
    /// no directories.
    fn of_clients(plan: &Plan, seed: u64) -> Vec<(String, bool)> {
        let kinds = [("embedded", Kind::Embedded), ("trusted", Kind::Trusted), ("user", Kind::User)];
        let mut met: Vec<(String, bool)> =
            kinds.iter().map(|(name, kind)| ((*name).to_owned(), plan.clients.contains(kind))).collect();
        for (number, kind) in plan.clients.iter().enumerate() {
            let mut add = |name: &str, on| met.push((format!("client {number} {name}"), on));
            let mut rng = Prng::new(seed);
            let (config, tiny) = (plan.client(*kind, number, &mut rng), client::Limits::tiny());
            if config.limits.in_flight_max != tiny.in_flight_max {
                add("finds idle soon", config.limits.idle_ns == tiny.idle_ns);
            }
            let wants = config.wants;
            add("keeps attributes", wants.has(Bits::ATTRS));
            if wants.has(Bits::ATTRS) {
                add("keeps pages", wants.has(Bits::FC));
            }
            if *kind == Kind::Trusted {
                add("wants directories", wants.has(Bits::DX));
                if wants.has(Bits::DX) {
                    add("wants files", wants.has(Bits::ALONE));
                }
            }
        }
        met
    }

    /// An option read a byte that nobody had filled, and two were each other's negation: where an operator evicted, the first client
    /// never had files delegated to it.
    #[test]
    fn every_option_is_on_and_off_and_meets_every_other() {
        let (mut met, mut names) = (BTreeSet::new(), BTreeSet::new());
        let (mut decided, mut clients) = (BTreeSet::new(), BTreeSet::new());
        for seed in 0..1000 {
            let plan = Plan::new(&mut Prng::new(seed), 2000, 5);
            let (own, of_clients) = (options(&plan), of_clients(&plan, seed));
            names.extend(own.iter().map(|(name, _)| name.clone()));
            // Of later clients there are fewer: not everything of theirs meets all that is rare.
            let first = of_clients.iter().filter(|(name, _)| name.starts_with("client 0"));
            clients.extend(first.map(|(name, _)| name.clone()));
            for (one, on) in &own {
                let others = own.iter().chain(&of_clients);
                met.extend(others.map(|(other, also)| (one.clone(), *on, other.clone(), *also)));
            }
            decided.extend(own.into_iter().chain(of_clients));
        }
        assert_eq!((clients.len(), decided.len()), (5, 2 * (names.len() + 3 + 4 * 5)), "{decided:#?}");
        let mut missing = Vec::new();
        for one in &names {
            for other in names.iter().chain(&clients).filter(|other| *other != one) {
                for (on, also) in [(false, false), (false, true), (true, false), (true, true)] {
                    // The one pair of which one sets the other.
                    let set = (one == "long pauses" && other == "slow returns" && !on && also)
                        || (one == "slow returns" && other == "long pauses" && on && !also);
                    if !set && !met.contains(&(one.clone(), on, other.clone(), also)) {
                        missing.push(format!("{one}: {on}, {other}: {also}"));
                    }
                }
            }
        }
        assert!(missing.is_empty(), "{missing:#?}");
    }
}
