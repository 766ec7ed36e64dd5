//! Fault x what was under way when it struck; message x what became of it; and how often things happened.
//!
//! Absent: code coverage.

use super::Cluster;
use super::faults::Fault;
use proto::cluster::RankState;
use std::collections::BTreeMap;

/// What can be under way.
const UNDER_WAY: [&str; 13] = [
    "creating",
    "replay",
    "resolve",
    "reconnect",
    "active",
    "failed",
    "damaged",
    "no standby",
    "read",
    "swap",
    "fence",
    "command",
    "two coordinators",
];

/// What is said between daemons and coordinators, and what can become of it.
const MESSAGES: [&str; 8] = ["register", "registered", "beacon", "ack", "assign", "dismiss", "map", "gone"];
const BECOMES: [&str; 4] = ["late", "lost", "twice", "cut"];

/// What happens.
const EVENTS: [&str; 52] = [
    "acts left undone without a lease",
    "answers",
    "appends",
    "appends refused",
    "ask: abort",
    "ask: leave",
    "ask: switch",
    "command: bal_rank_mask",
    "command: rank_weight",
    "command: fs fail",
    "command: get",
    "command: joinable",
    "command: max_mds",
    "command: mds fail",
    "command: placement",
    "commands refused",
    "coordinators begun",
    "coordinators deposed",
    "daemons dismissed",
    "deltas followed",
    "deltas refused",
    "ends in which a rank stays damaged",
    "ends that are not joinable",
    "ends with a standby",
    "ends without a standby",
    "fences asked for",
    "lives begun",
    "lives that a fence ended",
    "lives that a map ended",
    "maps published",
    "notes",
    "pauses between the lease and the act",
    "ranks active",
    "ranks damaged",
    "ranks failed",
    "ranks gone",
    "ranks in creating",
    "ranks in reconnect",
    "ranks in replay",
    "ranks in resolve",
    "ranks stopping",
    "requests to the registry that failed",
    "runs in one process",
    "runs with several coordinators",
    "snapshots followed",
    "swaps of a coordinator that died",
    "swaps that came too late",
    "swaps that failed and took place",
    "swaps that failed and took place later",
    "takeovers",
    "updates of a map that were lost",
    "commands that failed",
];

/// Counts per cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    faults: BTreeMap<(&'static str, &'static str), u64>,
    messages: BTreeMap<(&'static str, &'static str), u64>,
    events: BTreeMap<&'static str, u64>,
}

impl Coverage {
    pub(super) fn count(&mut self, what: &'static str, times: u64) {
        *self.events.entry(what).or_default() += times;
    }

    /// A fault struck while that was under way.
    pub(super) fn fault(&mut self, fault: Fault, under_way: [bool; UNDER_WAY.len()]) {
        for (row, _) in UNDER_WAY.into_iter().zip(under_way).filter(|(_, is)| *is) {
            *self.faults.entry((row, fault.name())).or_default() += 1;
        }
    }

    pub(super) fn message(&mut self, message: &'static str, becomes: &'static str) {
        *self.messages.entry((message, becomes)).or_default() += 1;
    }

    /// How often something of the list of events happened.
    #[must_use]
    pub fn counted(&self, what: &str) -> u64 {
        self.events.get(what).copied().unwrap_or(0)
    }

    /// Adds another run's counts.
    pub fn add(&mut self, other: &Self) {
        for (cell, count) in &other.faults {
            *self.faults.entry(*cell).or_default() += count;
        }
        for (cell, count) in &other.messages {
            *self.messages.entry(*cell).or_default() += count;
        }
        for (what, count) in &other.events {
            self.count(what, *count);
        }
    }

    /// Cells never hit.
    #[must_use]
    pub fn empty(&self) -> Vec<(&'static str, &'static str)> {
        let faults = UNDER_WAY.into_iter().flat_map(|row| Fault::ALL.map(|fault| (row, fault.name())));
        let messages = MESSAGES.into_iter().flat_map(|row| BECOMES.map(|becomes| (row, becomes)));
        let events = EVENTS.into_iter().filter(|what| self.counted(what) == 0);
        faults
            .filter(|cell| !self.faults.contains_key(cell))
            .chain(messages.filter(|cell| !self.messages.contains_key(cell)))
            .chain(events.map(|what| (what, "any run")))
            .collect()
    }

    /// The tables as text.
    #[must_use]
    pub fn table(&self) -> String {
        let faults: Vec<&str> = Fault::ALL.iter().map(|fault| fault.name()).collect();
        let mut text = cells("under way", &UNDER_WAY, &faults, &self.faults);
        text.push_str(&cells("message", &MESSAGES, &BECOMES, &self.messages));
        let others = self.events.keys().filter(|what| !EVENTS.contains(what));
        for what in EVENTS.iter().chain(others) {
            text.push_str(&format!("{what:<44} {:>9}\n", self.counted(what)));
        }
        text
    }
}

fn cells(
    head: &str,
    rows: &[&'static str],
    columns: &[&'static str],
    counts: &BTreeMap<(&'static str, &'static str), u64>,
) -> String {
    let mut text = format!("{head:<17}");
    columns.iter().for_each(|column| text.push_str(&format!(" {column:>8}")));
    for row in rows {
        text.push_str(&format!("\n{row:<17}"));
        for column in columns {
            let count = counts.get(&(*row, *column)).copied().unwrap_or(0);
            text.push_str(&format!(" {count:>8}"));
        }
    }
    text.push('\n');
    text
}

impl Cluster {
    /// Which of `UNDER_WAY` are.
    pub(super) fn under_way(&self) -> [bool; UNDER_WAY.len()] {
        let asks = |what: fn(Option<u64>) -> bool| self.seats.iter().filter_map(|seat| seat.asked).any(what);
        [
            self.ranks_in(&[RankState::Creating]) > 0,
            self.ranks_in(&[RankState::Replay]) > 0,
            self.ranks_in(&[RankState::Resolve]) > 0,
            self.ranks_in(&[RankState::Reconnect]) > 0,
            self.ranks_in(&[RankState::Active]) > 0,
            self.ranks_in(&[RankState::Failed]) > 0,
            self.ranks_in(&[RankState::Damaged]) > 0,
            self.standbys() == 0,
            asks(|swap| swap.is_none()),
            asks(|swap| swap.is_some()),
            self.store.under_way > 0,
            !self.operator.open.is_empty(),
            self.seats.iter().filter(|seat| seat.serves()).count() > 1,
        ]
    }
}
