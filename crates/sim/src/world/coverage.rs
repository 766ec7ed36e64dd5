//! Operation x fault: which operations were under way when which fault struck; and how often capabilities came and went.
//!
//! Absent: code coverage.

use crate::workload::kinds;
use std::collections::BTreeMap;

/// The faults a cell is counted for.
pub const FAULTS: [&str; 6] = ["power", "process", "replay", "cut", "client", "full-disk"];

/// What happens to capabilities.
pub(super) const KEEPING: [&str; 26] = [
    "attributes kept",
    "names kept",
    "files with pages kept",
    "grants void when they came",
    "attributes from the cache",
    "names from the cache",
    "pages from the cache",
    "recalls of attributes",
    "recalls of a name",
    "recalls of pages",
    "pages locked by a request",
    "recalls of what was kept",
    "recalls of nothing",
    "returned",
    "settled",
    "offered",
    "files forgotten",
    "sessions ended by an operator",
    "sessions ended for a recall",
    "files of which bytes may be lost",
    "ranks stopped",
    "clients stopped",
    "clients closed at work",
    "wall clocks set",
    "hostile messages",
    "faults while clients come back",
];

/// What happens to early answers, and to what is delegated to clients.
pub(super) const EARLY: [&str; 37] = [
    "answered early",
    "performed: create",
    "performed: mknod",
    "performed: mkdir",
    "performed: symlink",
    "performed: unlink",
    "performed: rmdir",
    "performed: rename",
    "performed: link",
    "performed: setattr",
    "performed: truncate",
    "performed: write",
    "files delegated",
    "files recalled",
    "files recalled from under work",
    "files returned",
    "answers from what was made",
    "names known to be absent",
    "directories delegated",
    "directories recalled",
    "directories recalled from under work",
    "directories recalled from under a rename",
    "directories returned",
    "presented",
    "presented again: executed before",
    "presented again: not executed yet",
    "presented again: lost",
    "presented again: lost renames",
    "waited in vain for what was told",
    "late errors for want of space",
    "late errors for an earlier one",
    "late errors of ended sessions",
    "late errors that clients report",
    "clients dead with what they were told",
    "bytes to be written once more",
    "bytes written once more",
    "bytes that could not be",
];

/// Counts per cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    cells: BTreeMap<(&'static str, &'static str), u64>,
    keeping: BTreeMap<&'static str, u64>,
}

impl Coverage {
    /// An operation was under way when a fault struck.
    pub fn hit(&mut self, operation: &'static str, fault: &'static str) {
        *self.cells.entry((operation, fault)).or_default() += 1;
    }

    /// Something of `KEEPING` happened.
    pub fn count(&mut self, what: &'static str, times: u64) {
        *self.keeping.entry(what).or_default() += times;
    }

    /// How often something of `KEEPING` or `EARLY` happened.
    #[must_use]
    pub fn counted(&self, what: &str) -> u64 {
        self.keeping.get(what).copied().unwrap_or(0)
    }

    /// Adds another run's counts.
    pub fn add(&mut self, other: &Self) {
        for (cell, count) in &other.cells {
            *self.cells.entry(*cell).or_default() += count;
        }
        for (what, count) in &other.keeping {
            self.count(what, *count);
        }
    }

    /// Cells never hit.
    #[must_use]
    pub fn empty(&self) -> Vec<(&'static str, &'static str)> {
        let all = kinds().flat_map(|kind| FAULTS.into_iter().map(move |fault| (kind, fault)));
        let kept = KEEPING
            .into_iter()
            .chain(EARLY)
            .filter(|what| self.keeping.get(what).is_none_or(|count| *count == 0));
        all.filter(|cell| !self.cells.contains_key(cell)).chain(kept.map(|what| (what, "any run"))).collect()
    }

    /// The table as text.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = format!("{:<12}", "operation");
        for fault in FAULTS {
            text.push_str(&format!(" {fault:>9}"));
        }
        for kind in kinds() {
            text.push_str(&format!("\n{kind:<12}"));
            for fault in FAULTS {
                let count = self.cells.get(&(kind, fault)).copied().unwrap_or(0);
                text.push_str(&format!(" {count:>9}"));
            }
        }
        for what in KEEPING.into_iter().chain(EARLY) {
            let count = self.keeping.get(what).copied().unwrap_or(0);
            text.push_str(&format!("\n{what:<40} {count:>9}"));
        }
        text.push('\n');
        text
    }
}
