//! Operation x fault: which operations were under way when which fault struck.
//!
//! Absent: code coverage.

use crate::workload::kinds;
use std::collections::BTreeMap;

/// The faults a cell is counted for.
pub const FAULTS: [&str; 6] = ["power", "process", "replay", "cut", "client", "full-disk"];

/// Counts per cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    cells: BTreeMap<(&'static str, &'static str), u64>,
}

impl Coverage {
    /// An operation was under way when a fault struck.
    pub fn hit(&mut self, operation: &'static str, fault: &'static str) {
        *self.cells.entry((operation, fault)).or_default() += 1;
    }

    /// Adds another run's counts.
    pub fn add(&mut self, other: &Self) {
        for (cell, count) in &other.cells {
            *self.cells.entry(*cell).or_default() += count;
        }
    }

    /// Cells never hit.
    #[must_use]
    pub fn empty(&self) -> Vec<(&'static str, &'static str)> {
        let all = kinds().flat_map(|kind| FAULTS.into_iter().map(move |fault| (kind, fault)));
        all.filter(|cell| !self.cells.contains_key(cell)).collect()
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
        text.push('\n');
        text
    }
}
