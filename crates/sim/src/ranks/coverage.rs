//! How often things happened, and which operations of several ranks were under way when which fault struck.
//!
//! Absent: code coverage.

use super::Ranks;
use super::judge::struck::{KINDS, STRIKES};
use std::collections::BTreeMap;
use std::fmt;

/// What must happen in a sweep.
const EVENTS: &[&str] = &[
    "answers of clients by themselves",
    "answers of the store behind a seal",
    "attributes kept",
    "bal_rank_mask changed",
    "batches lost with a life",
    "batches stored behind the end of a life",
    "calls asked of several ranks",
    "calls refused for locks that were lost",
    "changes and names covered by syncs",
    "checkpoints asked for",
    "clients killed with a rank",
    "daemons dismissed",
    "dir.bal.mask set",
    "dir.pin.distributed set",
    "dir.pin.random set",
    "dir.placement set",
    "directories made that slots place",
    "directories made that take policies",
    "directories made whose content is another rank's",
    "directories merged",
    "directories merged by themselves",
    "directories moved by an operator",
    "directories of several ranks synced",
    "directories spread",
    "directories spread by themselves",
    "directories synced",
    "directories that are hot spread",
    "directories that slots place spread by themselves",
    "directories told by parts",
    "entries switched from outside of the mask",
    "fault: another number of ranks wanted",
    "fault: cache dropped",
    "fault: client killed",
    "fault: connection between ranks",
    "fault: connection of a client",
    "fault: coordinator begins anew",
    "fault: coordinator pauses",
    "fault: hang",
    "fault: power",
    "fault: power in a journal operation",
    "fault: power in a step of the store",
    "fault: process",
    "fault: rank failed by an operator",
    "fault: session evicted",
    "faults at a rank that goes",
    "faults in ambush",
    "faults while slots move",
    "faults while something moves",
    "fewer ranks wanted",
    "limited sessions answered",
    "limited sessions answered above rank 0",
    "limited sessions refused what is outside",
    "limited sessions refused what moved out",
    "limited sessions served what they have open outside",
    "lives begun",
    "lives of ranks that are to go begun",
    "lives of ranks that go ended",
    "lives that a fence ended",
    "locks asked for in the end",
    "locks granted",
    "locks granted to who waits",
    "locks lost with a session while open",
    "locks refused",
    "locks shown to others",
    "locks that ended with their session",
    "looks at open files without a name",
    "merges by themselves given up",
    "messages between ranks",
    "more ranks wanted again",
    "moves given up by an operator",
    "moves sealed",
    "moves switched",
    "names kept",
    "opens and locks that came with a transaction",
    "pins",
    "pins carried out later",
    "pins of -1",
    "pins refused",
    "pins removed",
    "pins that are due looked at in the end",
    "pins that cannot be now (EBUSY)",
    "pins to a rank that is not there",
    "placement of the file system changed",
    "policies read",
    "policies refused",
    "policies removed",
    "power failed in a journal operation",
    "power failed in a step of the store",
    "power of all ranks behind a sync",
    "rank_weight changed",
    "ranks added",
    "ranks gone",
    "ranks that came again",
    "ranks that go",
    "recalls",
    "recalls of what was kept",
    "requests sent away",
    "reservations that came to nothing",
    "runs of slots switched",
    "seals that took too long",
    "sessions lost",
    "sessions of killed clients ended",
    "slots moved by an operator",
    "slots switched that place a directory",
    "transactions of several ranks",
    "transactions of several ranks covered by syncs",
    "units switched",
    "units that came back while a journal tells of their leaving",
    "waits for locks interrupted",
    "wishes refused",
    "wishes to leave",
];

/// What must besides, where clients are answered early.
const EAGER: &[&str] = &[
    "answered early",
    "answers from what was made",
    "bytes to be written once more",
    "directories delegated",
    "directories recalled",
    "directories recalled by a rank that hands something over",
    "directories recalled from under work",
    "directories returned",
    "files returned",
    "late errors that clients report",
    "names known to be absent",
    "performed and heard of",
    "performed: create",
    "performed: link",
    "performed: mkdir",
    "performed: rename",
    "performed: rmdir",
    "performed: unlink",
    "performed: write",
    "presented",
    "presented again: executed before",
    "presented again: lost",
    "what was told carried out again",
];

/// Whether a cell of the table is too rare to be demanded of 500 seeds: the windows of renames are short.
fn is_rare(cell: (&str, &str)) -> bool {
    match cell {
        ("rename of a directory", strike) => strike != "map",
        ("rename of a file" | "replace" | "exchange" | "rmdir, content elsewhere", strike) => {
            !matches!(strike, "seal" | "map")
        }
        ("unlink of a linked file", "evicted") | ("rmdir, units", "part hangs") => true,
        _ => false,
    }
}

/// Counts by name, and by what of several ranks was under way when what struck.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    counts: BTreeMap<&'static str, u64>,
    cells: BTreeMap<(&'static str, &'static str), u64>,
}

impl Coverage {
    pub(super) fn count(&mut self, what: &'static str) {
        self.add_to(what, 1);
    }

    pub(super) fn add_to(&mut self, what: &'static str, count: u64) {
        *self.counts.entry(what).or_default() += count;
    }

    /// What only the log tells.
    pub(super) fn count_note(&mut self, text: &str) {
        let told = [
            ("is in one part again, by itself", "directories merged by themselves"),
            ("is spread by itself, it has grown", "directories spread by themselves"),
            ("is spread by itself, it is hot", "directories that are hot spread"),
            ("nobody was served there for", "seals that took too long"),
            ("is not merged by itself", "merges by themselves given up"),
        ];
        told.iter().filter(|(words, _)| text.contains(words)).for_each(|(_, what)| self.count(what));
    }

    /// How often that happened.
    #[must_use]
    pub fn of(&self, what: &str) -> u64 {
        self.counts.get(what).copied().unwrap_or(0)
    }

    /// Takes the counts of another run in.
    pub fn add(&mut self, other: &Self) {
        other.counts.iter().for_each(|(what, count)| self.add_to(what, *count));
        other.cells.iter().for_each(|(cell, count)| *self.cells.entry(*cell).or_default() += count);
    }

    /// What should have happened and never did.
    #[must_use]
    pub fn empty(&self, eager: bool) -> Vec<(&'static str, &'static str)> {
        let wanted = EVENTS.iter().chain(EAGER.iter().filter(|_| eager));
        let cells = KINDS.into_iter().flat_map(|kind| STRIKES.into_iter().map(move |strike| (kind, strike)));
        // Of clients that perform by themselves ranks are asked for less.
        let missing = cells.filter(|cell| !eager && !self.cells.contains_key(cell) && !is_rare(*cell));
        wanted.filter(|what| self.of(what) == 0).map(|what| (*what, "any")).chain(missing).collect()
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<25}", "of several ranks")?;
        STRIKES.into_iter().try_for_each(|strike| write!(f, " {strike:>12}"))?;
        for kind in KINDS {
            write!(f, "\n{kind:<25}")?;
            for strike in STRIKES {
                write!(f, " {:>12}", self.cells.get(&(kind, strike)).copied().unwrap_or(0))?;
            }
        }
        writeln!(f)?;
        self.counts.iter().try_for_each(|(what, count)| writeln!(f, "{count:>10}  {what}"))
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
        let made = self.judge.made;
        all.add_to("directories made that slots place", made.placed);
        all.add_to("directories made whose content is another rank's", made.newborn);
        all.add_to("directories made that take policies", made.taken);
        all.add_to("reservations that came to nothing", self.judge.released);
        self.judge.guests.counts().for_each(|(what, count)| all.add_to(what, count));
        self.judge.synced().into_iter().for_each(|(what, count)| all.add_to(what, count));
        self.judge.came_of_promises().for_each(|(what, count)| all.add_to(what, count));
        self.judge.refused.iter().for_each(|(why, count)| all.add_to(why, *count));
        all.cells.extend(self.judge.struck_cells());
        all
    }
}
