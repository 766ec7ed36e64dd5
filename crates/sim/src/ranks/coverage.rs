//! How often things happened.
//!
//! Absent: code coverage.

use super::Ranks;
use std::collections::BTreeMap;
use std::fmt;

/// What must happen in a sweep.
const EVENTS: [&str; 64] = [
    "answered early",
    "answers from what was made",
    "answers of clients by themselves",
    "bytes to be written once more",
    "calls asked of several ranks",
    "checkpoints asked for",
    "daemons dismissed",
    "directories delegated",
    "directories merged",
    "directories merged by themselves",
    "directories recalled",
    "directories recalled by a rank that hands something over",
    "directories recalled from under work",
    "directories returned",
    "directories spread",
    "directories spread by themselves",
    "directories that are hot spread",
    "directories told by parts",
    "fault: cache dropped",
    "fault: connection between ranks",
    "fault: connection of a client",
    "fault: coordinator begins anew",
    "fault: coordinator pauses",
    "fault: hang",
    "fault: power",
    "fault: power in a journal operation",
    "fault: process",
    "fault: rank failed by an operator",
    "fault: session evicted",
    "faults while something moves",
    "files returned",
    "late errors that clients report",
    "lives begun",
    "lives that a fence ended",
    "merges by themselves given up",
    "messages between ranks",
    "moves sealed",
    "moves switched",
    "names known to be absent",
    "opens and locks that came with a transaction",
    "performed and heard of",
    "performed: create",
    "performed: link",
    "performed: mkdir",
    "performed: rename",
    "performed: rmdir",
    "performed: unlink",
    "performed: write",
    "pins",
    "pins refused",
    "pins that cannot be now (EBUSY)",
    "power failed in a journal operation",
    "presented",
    "presented again: executed before",
    "presented again: lost",
    "ranks added",
    "recalls",
    "requests sent away",
    "reservations that came to nothing",
    "sessions lost",
    "transactions of several ranks",
    "units switched",
    "what was told carried out again",
    "wishes refused",
];

/// Counts by name.
#[derive(Clone, Debug, Default)]
pub struct Coverage(BTreeMap<&'static str, u64>);

impl Coverage {
    pub(super) fn count(&mut self, what: &'static str) {
        self.add_to(what, 1);
    }

    pub(super) fn add_to(&mut self, what: &'static str, count: u64) {
        *self.0.entry(what).or_default() += count;
    }

    /// What only the log tells.
    pub(super) fn count_note(&mut self, text: &str) {
        let told = [
            ("is in one part again, by itself", "directories merged by themselves"),
            ("is spread by itself, it has grown", "directories spread by themselves"),
            ("is spread by itself, it is hot", "directories that are hot spread"),
            ("is not merged by itself", "merges by themselves given up"),
        ];
        told.iter().filter(|(words, _)| text.contains(words)).for_each(|(_, what)| self.count(what));
    }

    /// How often that happened.
    #[must_use]
    pub fn of(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or(0)
    }

    /// Takes the counts of another run in.
    pub fn add(&mut self, other: &Self) {
        other.0.iter().for_each(|(what, count)| self.add_to(what, *count));
    }

    /// What should have happened and never did.
    #[must_use]
    pub fn empty(&self) -> Vec<(&'static str, &'static str)> {
        EVENTS.into_iter().filter(|what| self.of(what) == 0).map(|what| (what, "any")).collect()
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(what, count)| writeln!(f, "{count:>10}  {what}"))
    }
}

impl Ranks {
    pub(super) fn coverage(&self) -> Coverage {
        let mut all = self.coverage.clone();
        all.add_to("moves sealed", self.judge.seals());
        all.add_to("opens and locks that came with a move", self.judge.came());
        all.add_to("opens and locks that came with a transaction", self.judge.carried());
        all.add_to("answers of clients by themselves", self.judge.own);
        all.add_to("directories merged", self.judge.merges);
        all.add_to("directories spread", self.judge.spreads);
        all.add_to("directories told by parts", self.judge.parted);
        all.add_to("transactions of several ranks", self.judge.across);
        all.add_to("reservations that came to nothing", self.judge.released);
        self.judge.came_of_promises().for_each(|(what, count)| all.add_to(what, count));
        self.judge.refused.iter().for_each(|(why, count)| all.add_to(why, *count));
        all
    }
}
