//! What a rank's CPU is busy for: nanoseconds by what it does, as a measurement wrote them (docs/SIMULATION.md, "Scale runs").
//!
//! A cost file has a line for each: a name, a number of nanoseconds. What follows `#` is for people.
//!
//! Absent: measuring; costs of anything but a rank's process.

use mds::input::Input;
use proto::Kind;
use proto::message::ClientMsg;
use proto::storeio::{Loaded, StoreBatch};

/// The cost file that comes with this version; its comments say when and where.
const MEASURED: &str = include_str!("../../../../bench/scale/costs.txt");

/// Names of costs that are not those of a kind of request, in the order of `Costs::other`.
const OTHER: [&str; 15] = [
    "read",
    "write",
    "request.other",
    "message",
    "commit",
    "load",
    "load_entry",
    "load_batch",
    "grow",
    "switch",
    "switch_message",
    "record",
    "batch",
    "tick",
    "rank_message",
];

/// Nanoseconds of CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Costs {
    other: [u64; OTHER.len()],
    /// By kind: from the bytes of the request to those of its answer, with what is done to file data.
    kinds: [u64; Kind::COUNT],
}

/// One of `OTHER`, by its place.
#[derive(Clone, Copy)]
enum At {
    Read,
    Write,
    Request,
    Message,
    Commit,
    Load,
    LoadEntry,
    LoadBatch,
    Grow,
    Switch,
    SwitchMessage,
    Record,
    Batch,
    Tick,
    RankMessage,
}

impl Costs {
    /// Those that come with this version.
    #[must_use]
    pub fn measured() -> Self {
        Self::parse(MEASURED).expect("the file that a test reads")
    }

    /// Reads a cost file.
    ///
    /// # Errors
    /// The line that is none, or the cost that is missing. A kind of request that is not named costs what `request.other` says.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut other = [None; OTHER.len()];
        let mut kinds = [None; Kind::COUNT];
        for (at, line) in text.lines().enumerate() {
            let said = line.split('#').next().unwrap_or_default();
            let words: Vec<&str> = said.split_whitespace().collect();
            let (name, value) = match words.as_slice() {
                [] => continue,
                [name, value] => (*name, value.parse::<u64>().ok()),
                _ => (said, None),
            };
            let place = match OTHER.iter().position(|known| *known == name) {
                Some(place) => Some(&mut other[place]),
                None => {
                    let kind = Kind::all().find(|kind| name.strip_prefix("request.") == Some(kind.name()));
                    kind.map(|kind| &mut kinds[kind.index()])
                }
            };
            match (place, value) {
                (Some(place), Some(value)) => *place = Some(value),
                _ => return Err(format!("line {}: not a cost: {line}", at + 1)),
            }
        }
        if let Some(missing) = other.iter().position(Option::is_none) {
            return Err(format!("no cost of {}", OTHER[missing]));
        }
        let other = other.map(Option::unwrap_or_default);
        Ok(Self { other, kinds: kinds.map(|kind| kind.unwrap_or(other[At::Request as usize])) })
    }

    const fn of(&self, at: At) -> u64 {
        self.other[at as usize]
    }

    /// A connection had something to read.
    pub(super) const fn read(&self) -> u64 {
        self.of(At::Read)
    }

    /// Something was written to a connection.
    pub(super) const fn write(&self) -> u64 {
        self.of(At::Write)
    }

    /// A writer put so many records of so many parts of directories into the store.
    pub(super) const fn stored(&self, records: u64, batches: u64) -> u64 {
        self.of(At::Record) * records + self.of(At::Batch) * batches
    }

    /// A thread of the journal takes a group and writes it: half of what a commit is. The other half is what follows when it is synced.
    pub(super) const fn commit_begins(&self) -> u64 {
        self.of(At::Commit) / 2
    }

    /// A worker of the store was woken, and brings what it has read.
    pub(super) const fn load_batch(&self) -> u64 {
        self.of(At::LoadBatch)
    }

    /// What comes into a cache that is not full takes memory that nothing had before.
    pub(super) fn grow(&self, input: &Input) -> u64 {
        match input {
            Input::Loaded { results, .. } => self.of(At::Grow) * results.len() as u64,
            _ => 0,
        }
    }

    /// What a rank loses to clients that have had its CPU meanwhile and read so many messages: the way back, and what was in the CPU's
    /// caches.
    pub(super) const fn switched(&self, messages: usize) -> u64 {
        self.of(At::Switch) + self.of(At::SwitchMessage) * messages as u64
    }

    /// What the rank is told, and all that it does about it.
    pub(super) fn input(&self, input: &Input) -> u64 {
        match input {
            // By who says it.
            Input::Message { .. } => 0,
            Input::Durable(_) => self.of(At::Commit) - self.commit_begins(),
            Input::Loaded { results, .. } => results.iter().flatten().map(|loaded| self.loaded(loaded)).sum(),
            Input::Tick => self.of(At::Tick),
            Input::FromRank { .. } => self.rank_message(),
            // The writer's part is counted where it writes; file data is in the cost of who asked.
            Input::Stored { .. } | Input::DataDone { .. } => 0,
            // Before what is measured begins, or never.
            Input::Boot
            | Input::Replay { .. }
            | Input::ReplayEnd { .. }
            | Input::ReplayFailed(_)
            | Input::Connected { .. }
            | Input::Limit { .. }
            | Input::Disconnected { .. }
            | Input::JournalFailed(_)
            | Input::Checkpoint
            | Input::Warmup { .. }
            | Input::DropCache
            | Input::Space { .. }
            | Input::Frozen(_)
            | Input::Evict { .. }
            | Input::Map(_)
            | Input::RankGone { .. }
            | Input::WishRefused { .. }
            | Input::Move { .. }
            | Input::Unmove { .. }
            | Input::Spread { .. }
            | Input::Merge { .. }
            | Input::Stop => 0,
        }
    }

    /// What a rank asks, or answers, with all that is done about it.
    pub(super) const fn rank_message(&self) -> u64 {
        self.of(At::RankMessage)
    }

    /// What a client says.
    pub(super) fn message(&self, message: &ClientMsg) -> u64 {
        match message.asked() {
            Some((_, request)) => self.kinds[request.kind().index()],
            None => self.of(At::Message),
        }
    }

    fn loaded(&self, loaded: &Loaded) -> u64 {
        match loaded {
            Loaded::Value(_) | Loaded::Sessions(_) => self.of(At::Load),
            Loaded::Dentries { entries, .. } => {
                self.of(At::Load) + self.of(At::LoadEntry) * (entries.len() as u64).saturating_sub(1)
            }
        }
    }
}

/// Records in batches.
pub(super) fn records(batches: &[StoreBatch]) -> u64 {
    batches.iter().map(|batch| u64::from(batch.len())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_that_comes_with_this_version_is_whole() {
        let costs = Costs::measured();
        assert!(costs.other.iter().all(|cost| *cost > 0));
        assert!(costs.kinds.iter().all(|cost| *cost > 0));
    }

    #[test]
    fn what_is_no_cost_is_refused_by_its_line() {
        assert_eq!(Costs::parse("# nothing\n\nread x"), Err("line 3: not a cost: read x".into()));
        assert_eq!(Costs::parse("reads 5"), Err("line 1: not a cost: reads 5".into()));
        assert_eq!(Costs::parse("request.reads 5"), Err("line 1: not a cost: request.reads 5".into()));
        assert_eq!(Costs::parse("read 5 6"), Err("line 1: not a cost: read 5 6".into()));
        assert_eq!(Costs::parse("read 5"), Err("no cost of write".into()));
        let all: String = OTHER.iter().map(|name| format!("{name} 7 # why\n")).collect();
        let costs = Costs::parse(&format!("{all}request.lookup 9\n")).expect("good");
        let kind = |name: &str| Kind::all().find(|kind| kind.name() == name).expect("a kind").index();
        assert_eq!((costs.kinds[kind("lookup")], costs.kinds[kind("mkdir")]), (9, 7));
    }
}
