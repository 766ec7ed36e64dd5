//! What a scale run is told.
//!
//! Absent: reading a command line (the binary).

use super::Costs;
use stdx::time::{MS, SECOND};

/// What clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Files of 4 KiB in directories of their own: made, looked up, removed.
    Mdtest,
    /// Any of 10^9 files is looked up, opened for reading, and closed.
    RandomRead,
    /// 70 of 100 operations as `RandomRead`, 30 make a file or remove one of these.
    Mixed,
    /// Files go from one directory to another, all of them below one.
    RenameStorm,
    /// All make files in one directory; placed by slots it is spread over the ranks.
    OneDirectory,
}

impl Workload {
    /// All of them, by their names.
    pub const ALL: [(&'static str, Self); 5] = [
        ("mdtest", Self::Mdtest),
        ("random-read", Self::RandomRead),
        ("mixed", Self::Mixed),
        ("rename-storm", Self::RenameStorm),
        ("one-directory", Self::OneDirectory),
    ];

    /// As it is asked for.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, workload)| *workload == self).map_or("", |(name, _)| name)
    }

    /// Where nobody says another one: under the others all renames of a storm would be one rank's.
    #[must_use]
    pub const fn placement(self) -> Placement {
        match self {
            Self::RenameStorm => Placement::Hash,
            Self::Mdtest | Self::RandomRead | Self::Mixed | Self::OneDirectory => Placement::Subtree,
        }
    }
}

/// Which rank has what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Directories below root are pinned, the same number to each rank, neighbours to one.
    Subtree,
    /// Directories in root are placed by slots, and all below inherits, as in one with `dir.pin.distributed`.
    Distributed,
    /// Every directory is placed by slots.
    Hash,
}

impl Placement {
    /// All of them, by their names.
    pub const ALL: [(&'static str, Self); 3] =
        [("subtree", Self::Subtree), ("distributed", Self::Distributed), ("hash", Self::Hash)];

    /// Whether the generated directories of a level are placed by slots.
    pub(super) const fn by_slots(self, level: usize) -> bool {
        match self {
            Self::Subtree => false,
            Self::Distributed => level == 0,
            Self::Hash => true,
        }
    }

    /// As it is asked for.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, placement)| *placement == self).map_or("", |(name, _)| name)
    }
}

/// How many hosts there are, each with one session at each rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hosts {
    /// As many for any number of ranks: what is under way between a host and a rank stays the same when both tasks and ranks grow.
    All(u64),
    /// So many more with each rank: it shrinks, so less is read and written at once.
    EachRank(u64),
}

/// How many tasks there are, of all hosts together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tasks {
    /// For each rank: the load grows with the ranks (weak scaling).
    EachRank(u64),
    /// For any number of ranks: the load stays the same (strong scaling).
    Total(u64),
}

/// What clients' CPUs are busy for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientCosts {
    /// For what a rank sent at once, and for each message of it with what is asked next.
    pub batch_ns: u64,
    pub message_ns: u64,
    pub cpus: ClientCpus,
}

impl ClientCosts {
    /// For so many messages at once.
    pub(super) const fn of(self, messages: usize) -> u64 {
        self.batch_ns + self.message_ns * messages as u64
    }
}

/// Whose CPUs clients are busy on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientCpus {
    /// Each host has its own.
    #[default]
    Each,
    /// All hosts are on one, as where costs are measured.
    One,
    /// What reads of a rank takes turns with that rank's CPU, as where two ranks and their clients have two.
    Ranks,
}

impl ClientCpus {
    /// All of them, by their names.
    pub const ALL: [(&'static str, Self); 3] =
        [("each", Self::Each), ("one", Self::One), ("ranks", Self::Ranks)];
}

/// One scale run.
#[derive(Clone, Debug)]
pub struct Settings {
    pub workload: Workload,
    pub placement: Placement,
    pub ranks: u16,
    pub hosts: Hosts,
    pub tasks: Tasks,
    /// Requests that a task has under way.
    pub in_flight: u64,
    /// What random reads are of: directories, and files in all of them together.
    pub directories: u64,
    pub files: u64,
    pub client: ClientCosts,
    /// From one process to another.
    pub network_ns: u64,
    /// One read of the store, and how many a rank has under way at once.
    pub store_ns: u64,
    pub store_workers: u64,
    /// One sync of a journal, and how fast it is written.
    pub journal_ns: u64,
    pub journal_bytes_per_s: u64,
    /// One commit of a rank's store writer, and how fast it writes.
    pub writer_ns: u64,
    pub writer_records_per_s: u64,
    /// A sync of all file data.
    pub data_sync_ns: u64,
    /// Of each phase: counted, and before that.
    pub measured_ns: u64,
    pub warm_ns: u64,
    /// A phase ends after so many operations, too.
    pub operations: u64,
    /// `mds_cache_memory_limit` and `journal_size` of each rank.
    pub cache_bytes: u64,
    pub journal_bytes: u64,
    pub seed: u64,
    pub costs: Costs,
}

impl Settings {
    /// One rank's mdtest on the costs that come with this version.
    #[must_use]
    pub fn new(workload: Workload, ranks: u16) -> Self {
        Self {
            workload,
            placement: workload.placement(),
            ranks,
            hosts: Hosts::All(16),
            tasks: Tasks::EachRank(160),
            in_flight: 1,
            directories: 1_000_000,
            files: 1_000_000_000,
            client: ClientCosts::default(),
            network_ns: 50_000,
            store_ns: 200_000,
            store_workers: 64,
            journal_ns: 200_000,
            journal_bytes_per_s: 1_000_000_000,
            writer_ns: 2 * MS,
            writer_records_per_s: 500_000,
            data_sync_ns: 2 * MS,
            measured_ns: SECOND / 2,
            warm_ns: SECOND / 10,
            operations: u64::MAX,
            cache_bytes: 4 << 30,
            journal_bytes: 64 << 20,
            seed: 1,
            costs: Costs::measured(),
        }
    }

    /// No more than there are tasks.
    pub(super) fn host_count(&self) -> u64 {
        let wanted = match self.hosts {
            Hosts::All(count) => count,
            Hosts::EachRank(count) => count * u64::from(self.ranks),
        };
        wanted.clamp(1, self.task_count())
    }

    /// Of all hosts.
    pub(super) fn task_count(&self) -> u64 {
        let wanted = match self.tasks {
            Tasks::EachRank(count) => count * u64::from(self.ranks),
            Tasks::Total(count) => count,
        };
        wanted.max(1)
    }

    /// Who waits for one request at a time. Those of a task have neighbouring numbers.
    pub(super) fn callers(&self) -> u64 {
        self.task_count() * self.in_flight
    }

    /// Directories below root, and those in each of them.
    pub(super) fn fans(&self) -> [u64; 2] {
        let tops = self.directories.isqrt().max(1);
        [tops, (self.directories / tops).max(1)]
    }

    /// In each directory of the last level.
    pub(super) fn files_each(&self) -> u64 {
        let [tops, leaves] = self.fans();
        (self.files / (tops * leaves)).max(1)
    }

    /// Tasks go round the hosts.
    pub(super) fn host_of(&self, caller: u64) -> usize {
        (caller / self.in_flight.max(1) % self.host_count()) as usize
    }
}
