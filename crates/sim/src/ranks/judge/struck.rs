//! Faults that struck while something of several ranks was under way: transactions by what they were asked for, and removals of
//! directories whose content is elsewhere.
//!
//! A transaction is known from the first reservation on; what it is for is known when it is committed. What struck before counts then,
//! or for those that came to nothing.
//!
//! Absent: what a fault does (`ranks/faults.rs`).

use super::Judge;
use crate::model::tree::Tree;
use proto::Ino;
use proto::ids::RankId;
use proto::request::{Request, rename_flags::EXCHANGE};
use proto::transact::TxnId;
use proto::{Name, NodeRef, every_request};
use std::collections::{BTreeMap, BTreeSet};

/// What is of several ranks.
pub(in crate::ranks) const KINDS: [&str; 9] = [
    "rename of a file",
    "rename of a directory",
    "replace",
    "exchange",
    "link",
    "unlink of a linked file",
    "rmdir, content elsewhere",
    "rmdir, units",
    IN_VAIN,
];
/// What was reserved and never committed.
const IN_VAIN: &str = "came to nothing";

/// What strikes a rank that leads, or takes part; and what strikes others.
pub(in crate::ranks) const STRIKES: [&str; 12] = [
    LEADER_DIES,
    PART_DIES,
    LEADER_HANGS,
    PART_HANGS,
    "link cut",
    "client cut",
    "client dies",
    "evicted",
    "coordinator",
    "cache",
    "seal",
    "map",
];
const LEADER_DIES: &str = "leader dies";
const PART_DIES: &str = "part dies";
const LEADER_HANGS: &str = "leader hangs";
const PART_HANGS: &str = "part hangs";

/// One of them.
#[derive(Clone, Copy, Debug)]
pub(in crate::ranks) enum Strike {
    Dies(RankId),
    Hangs(RankId),
    Other(&'static str),
}

impl Strike {
    /// The column, for what a rank leads and others take part in; none: it does not concern these.
    fn column(self, leader: RankId, takes_part: impl Fn(RankId) -> bool) -> Option<&'static str> {
        match self {
            Self::Dies(rank) if rank == leader => Some(LEADER_DIES),
            Self::Hangs(rank) if rank == leader => Some(LEADER_HANGS),
            Self::Dies(rank) => takes_part(rank).then_some(PART_DIES),
            Self::Hangs(rank) => takes_part(rank).then_some(PART_HANGS),
            Self::Other(what) => Some(what),
        }
    }
}

/// The table, and what is under way.
#[derive(Default)]
pub(super) struct Struck {
    kinds: BTreeMap<TxnId, &'static str>,
    undecided: BTreeMap<TxnId, BTreeSet<&'static str>>,
    cells: BTreeMap<(&'static str, &'static str), u64>,
}

impl Struck {
    fn hit(&mut self, kind: &'static str, column: &'static str) {
        *self.cells.entry((kind, column)).or_default() += 1;
    }

    /// A request is carried out, perhaps as a transaction.
    pub(super) fn commits(&mut self, id: Option<TxnId>, request: Option<&Request>, before: &Tree) {
        let kind = request.and_then(|request| kind_of(request, before));
        if let (Some(id), Some(kind)) = (id, kind) {
            self.decides(id, kind);
        }
    }

    /// What a transaction is for.
    fn decides(&mut self, id: TxnId, kind: &'static str) {
        self.kinds.insert(id, kind);
        let before = self.undecided.remove(&id).unwrap_or_default();
        before.into_iter().for_each(|column| self.hit(kind, column));
    }

    fn strikes(&mut self, id: TxnId, column: &'static str) {
        match self.kinds.get(&id) {
            Some(kind) => self.hit(kind, column),
            None => drop(self.undecided.entry(id).or_default().insert(column)),
        }
    }

    /// Forgets what is over. `is_open`: what is not.
    fn settle(&mut self, is_open: impl Fn(TxnId) -> bool) {
        self.kinds.retain(|id, _| is_open(*id));
        let over: Vec<_> = self.undecided.extract_if(.., |id, _| !is_open(*id)).collect();
        over.into_iter().flat_map(|(_, columns)| columns).for_each(|column| self.hit(IN_VAIN, column));
    }
}

impl Judge {
    /// A fault is about to strike.
    pub(in crate::ranks) fn struck(&mut self, strike: Strike) {
        let open = self.open.parties();
        self.struck.settle(|id| open.contains_key(&id));
        for (id, (leader, parts)) in &open {
            if let Some(column) = strike.column(*leader, |rank| parts.contains(&rank)) {
                self.struck.strikes(*id, column);
            }
        }
        for (rank, dir) in self.removed_now() {
            // Of content in one part it is a transaction.
            let column = strike.column(rank, |part| part == self.owner(dir));
            if let Some(column) = column.filter(|_| self.is_parted(dir)) {
                self.struck.hit("rmdir, units", column);
            }
        }
    }

    /// Directories with content elsewhere whose removal is asked for and not done, and of which rank.
    fn removed_now(&self) -> Vec<(RankId, Ino)> {
        let removals = self.pending.iter().filter(|(_, pending)| pending.executed.is_none() && !pending.gone);
        let dirs = removals.filter_map(|((rank, ..), pending)| match &pending.asked.request {
            Request::RmDir { parent, name } => Some((*rank, behind(self.tree(), parent, name)?)),
            every_request!() => None,
        });
        dirs.filter(|(_, dir)| self.is_boundary(*dir)).collect()
    }

    /// The ranks that have a part in something of several ranks now.
    pub(in crate::ranks) fn parties(&self) -> BTreeSet<RankId> {
        let all = self.open.parties().into_values();
        all.flat_map(|(leader, parts)| parts.into_iter().chain([leader])).collect()
    }

    /// Counts of the table's cells.
    pub(in crate::ranks) fn struck_cells(&self) -> impl Iterator<Item = ((&'static str, &'static str), u64)> {
        self.struck.cells.iter().map(|(cell, count)| (*cell, *count))
    }
}

fn behind(tree: &Tree, dir: &NodeRef, name: &Name) -> Option<Ino> {
    tree.node(dir.ino)?.entries.get(name.as_bytes()).copied()
}

/// What a request is in the table; `before`: the tree before it.
fn kind_of(request: &Request, before: &Tree) -> Option<&'static str> {
    Some(match request {
        Request::Rename { flags, .. } if flags & EXCHANGE != 0 => "exchange",
        Request::Rename { new_parent, new_name, .. } if behind(before, new_parent, new_name).is_some() => {
            "replace"
        }
        Request::Rename { parent, name, .. } => {
            let moved = behind(before, parent, name).and_then(|ino| before.node(ino));
            if moved.is_some_and(|node| node.is_dir()) { "rename of a directory" } else { "rename of a file" }
        }
        Request::Link { .. } => "link",
        Request::Unlink { .. } => "unlink of a linked file",
        Request::RmDir { .. } => "rmdir, content elsewhere",
        every_request!() => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_struck_before_a_decision_counts_for_what_it_was_or_for_nothing() {
        let mut struck = Struck::default();
        struck.strikes(TxnId(1), "map");
        struck.strikes(TxnId(2), "map");
        struck.decides(TxnId(1), "link");
        struck.strikes(TxnId(1), "seal");
        struck.settle(|id| id == TxnId(1));
        let cells = [((IN_VAIN, "map"), 1), (("link", "map"), 1), (("link", "seal"), 1)];
        assert_eq!(struck.cells, BTreeMap::from(cells));
    }

    #[test]
    fn who_has_no_part_in_it_is_struck_without_it() {
        let parts = |rank| rank == RankId(2);
        assert_eq!(Strike::Dies(RankId(1)).column(RankId(1), parts), Some(LEADER_DIES));
        assert_eq!(Strike::Hangs(RankId(2)).column(RankId(1), parts), Some(PART_HANGS));
        assert_eq!(Strike::Dies(RankId(3)).column(RankId(1), parts), None);
    }
}
