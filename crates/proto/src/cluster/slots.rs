//! The slot table: who owns the units of directories that are placed by hash. Most slots lie in a few long runs, so the runs are
//! what is kept.
//!
//! Absent: which slot a unit falls into (`ClusterMap::slot_of`).

use super::Moving;
use crate::ids::RankId;
use std::ops::Range;

/// The number of slots, for ever.
pub const SLOTS: u16 = 4096;

/// One slot of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    pub rank: RankId,
    /// The version of the map that changed the slot last, or made or dropped an entry that it governs otherwise.
    pub version: u64,
    pub moving: Option<Moving>,
}

/// All slots. Two tables with the same slots are equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slots {
    /// Ends ascend, the last one is `SLOTS`, neighbours differ.
    runs: Vec<Run>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    /// The first slot behind it.
    end: u16,
    slot: Slot,
}

impl Slots {
    /// A table in which every slot is like this one.
    #[must_use]
    pub fn all(slot: Slot) -> Self {
        Self { runs: vec![Run { end: SLOTS, slot }] }
    }

    /// One slot; numbers count modulo `SLOTS`.
    #[must_use]
    pub fn get(&self, number: u16) -> Slot {
        let number = number % SLOTS;
        self.runs[self.runs.partition_point(|run| run.end <= number)].slot
    }

    /// Makes every slot of the range so; what lies beyond the table is left out.
    pub fn set(&mut self, range: Range<u16>, slot: Slot) {
        let range = range.start..range.end.min(SLOTS);
        if range.is_empty() {
            return;
        }
        let mut runs = Vec::with_capacity(self.runs.len() + 2);
        for (old, slot) in self.runs().filter(|(old, _)| old.start < range.start) {
            push(&mut runs, old.end.min(range.start), slot);
        }
        push(&mut runs, range.end, slot);
        for (old, slot) in self.runs().filter(|(old, _)| old.end > range.end) {
            push(&mut runs, old.end, slot);
        }
        self.runs = runs;
    }

    /// The runs of equal slots, in order.
    pub fn runs(&self) -> impl Iterator<Item = (Range<u16>, Slot)> + '_ {
        let mut start = 0;
        self.runs.iter().map(move |run| {
            let range = start..run.end;
            start = run.end;
            (range, run.slot)
        })
    }

    /// What has to be set in `older` to make it this one.
    pub(super) fn since(&self, older: &Self) -> Vec<(Range<u16>, Slot)> {
        let mut changed: Vec<(Range<u16>, Slot)> = Vec::new();
        let (mut at, mut new, mut old) = (0, 0, 0);
        while at < SLOTS {
            let (now, was) = (self.runs[new], older.runs[old]);
            let end = now.end.min(was.end);
            if now.slot != was.slot {
                match changed.last_mut() {
                    Some((range, slot)) if range.end == at && *slot == now.slot => range.end = end,
                    Some(_) | None => changed.push((at..end, now.slot)),
                }
            }
            at = end;
            new += usize::from(now.end == end);
            old += usize::from(was.end == end);
        }
        changed
    }

    /// A table from its runs' lengths; `None` unless they are the runs of a table.
    pub(super) fn from_runs(lengths: &[(u16, Slot)]) -> Option<Self> {
        let mut runs: Vec<Run> = Vec::with_capacity(lengths.len());
        for (length, slot) in lengths {
            let start = runs.last().map_or(0, |run| run.end);
            let end = start.checked_add(*length).filter(|end| start < *end && *end <= SLOTS)?;
            if runs.last().is_some_and(|run| run.slot == *slot) {
                return None;
            }
            runs.push(Run { end, slot: *slot });
        }
        (runs.last()?.end == SLOTS).then_some(Self { runs })
    }
}

fn push(runs: &mut Vec<Run>, end: u16, slot: Slot) {
    match runs.last_mut() {
        Some(last) if last.slot == slot => last.end = end,
        Some(_) | None => runs.push(Run { end, slot }),
    }
}
