//! Work on one file for a while, as a program does that has it open: many writes in a row, of a file that was there before.
//!
//! Absent: what all clients do everywhere (`workload.rs`).

use super::{Knowledge, Workload};
use crate::model::tree::Tree;
use proto::NodeRef;
use proto::attr::FileKind;
use proto::request::Request;

/// What is done to the file, with its weight; a name of the table of all operations.
const CHORES: [(&str, u64); 8] = [
    ("write", 12),
    ("append", 4),
    ("truncate", 3),
    ("utimens", 2),
    ("getattr", 3),
    ("fsync", 1),
    ("read", 1),
    ("chmod", 1),
];

/// What others do to it.
const VISITS: [(&str, u64); 6] =
    [("getattr", 6), ("read", 4), ("write", 2), ("truncate", 1), ("utimens", 1), ("seek", 1)];

impl Workload {
    /// Now and then somebody else looks at the file that one works on, when that is well under way.
    pub(super) fn at_anothers(&mut self, known: &Knowledge, tree: &Tree) -> Option<(&'static str, Request)> {
        let node = self.busy.filter(|node| known.busy_with.is_none_or(|(mine, _)| mine != *node))?;
        // Of what somebody made in a directory of his own others hear through that.
        let node = known.places.get(&node.ino).copied()?;
        let is_there = tree.node(node.ino).is_some_and(|found| found.kind() == FileKind::Regular);
        if !is_there || !self.rng.chance(1, 20) {
            return None;
        }
        let visit = self.weighed(&VISITS);
        Some((visit, self.work_on(visit, node, known, tree)?))
    }

    fn work_on(&mut self, chore: &str, node: NodeRef, known: &Knowledge, tree: &Tree) -> Option<Request> {
        match chore {
            "getattr" => Some(Request::GetAttr { node }),
            "utimens" | "chmod" => Some(Request::SetAttr { node, set: self.attributes(chore) }),
            _ => self.data_of(chore, node, known, tree),
        }
    }

    /// The next request of a client that works on a file it has open, or begins to.
    pub(super) fn at_one_file(
        &mut self,
        known: &mut Knowledge,
        tree: &Tree,
    ) -> Option<(&'static str, Request)> {
        let Some((node, left)) = known.busy_with else {
            // Mostly the one that was opened last.
            let all = known.opens.len();
            let at = if self.rng.chance(1, 4) { self.rng.index(all) } else { all.wrapping_sub(1) };
            if let Some(node) = known.opens.get(at).copied().filter(|_| self.rng.chance(1, 8)) {
                known.busy_with = Some((node, 4 + self.rng.below(16)));
            }
            return None;
        };
        if known.awaits_it && !self.rng.chance(1, 6) {
            return None;
        }
        known.busy_with = (left > 1).then_some((node, left - 1));
        let is_file = tree.node(node.ino).is_some_and(|found| found.kind() == FileKind::Regular);
        if !is_file || self.rng.chance(1, 4) {
            return None;
        }
        let chore = self.weighed(&CHORES);
        self.busy = (left < 9).then_some(node);
        Some((chore, self.work_on(chore, node, known, tree)?))
    }
}
