//! What is told of a spread directory whose parts several ranks have: each says what it has, all at moments of their own since the
//! request came.
//!
//! Absent: boundaries, which have two parts (`answers.rs`).

use super::Judge;
use crate::model::tree::{Node, Tree};
use proto::ids::Frag;
use proto::name::name_hash;
use proto::reply::{Outcome, Reply};
use proto::{Attr, Ino};
use std::collections::{BTreeMap, BTreeSet};
use stdx::Wall;

/// Least and most.
type Range = (u64, u64);

/// What may be told of one directory.
pub(super) struct Parts {
    entries: Range,
    subdirs: Range,
    change: Range,
    times: BTreeSet<Wall>,
    /// A time was set by hand, so that an older one may come to light again.
    by_hand: bool,
}

impl Judge {
    /// What may be told of these directories, as far as several ranks have parts of them, by the states from that number on, and by
    /// the one that a step makes.
    pub(super) fn parts(&self, told: &[Ino], first: u64, made: Option<&Tree>) -> BTreeMap<Ino, Parts> {
        let parted = told.iter().filter(|ino| self.is_parted(**ino));
        parted.filter_map(|ino| Some((*ino, self.parts_of(*ino, first, made)?))).collect()
    }

    fn parts_of(&self, ino: Ino, first: u64, made: Option<&Tree>) -> Option<Parts> {
        let spread = self.spread_of_late(ino)?;
        let units = self.records.headers(ino).map(|(_, header)| header.mtime);
        let mut parts = Parts {
            entries: (0, 0),
            subdirs: (0, 0),
            change: (u64::MAX, 0),
            times: units.collect(),
            by_hand: false,
        };
        let mut ranges: BTreeMap<Frag, (Range, Range)> = BTreeMap::new();
        for tree in self.states(first).map(|(_, tree)| tree).chain(made) {
            let Some(node) = tree.node(ino) else { continue };
            let mut counts: BTreeMap<Frag, (u64, u64)> = BTreeMap::new();
            for (name, child) in &node.entries {
                let count = counts.entry(spread.of(name_hash(&self.seed, name)).1).or_default();
                count.0 += 1;
                count.1 += u64::from(tree.node(*child).is_some_and(Node::is_dir));
            }
            for (_, frag) in spread.all() {
                let (entries, subdirs) = counts.get(&frag).copied().unwrap_or_default();
                let range = ranges.entry(frag).or_insert(((entries, entries), (subdirs, subdirs)));
                range.0 = (range.0.0.min(entries), range.0.1.max(entries));
                range.1 = (range.1.0.min(subdirs), range.1.1.max(subdirs));
            }
            let change = tree.attr(node).change;
            parts.change = (parts.change.0.min(change), parts.change.1.max(change));
            parts.times.extend([node.mtime, node.ctime]);
            parts.by_hand |= node.floor != Wall(i64::MIN);
        }
        for (entries, subdirs) in ranges.into_values() {
            parts.entries = (parts.entries.0 + entries.0, parts.entries.1 + entries.1);
            parts.subdirs = (parts.subdirs.0 + subdirs.0, parts.subdirs.1 + subdirs.1);
        }
        Some(parts)
    }
}

impl Parts {
    /// A request sets a time to this one: it is told whatever the units say.
    pub(super) fn sets(&mut self, time: Wall) {
        self.times.insert(time);
    }
}

/// An outcome in which what is told of such directories, and may be, is what that state says.
pub(super) fn evened(parts: &BTreeMap<Ino, Parts>, tree: &Tree, outcome: &Outcome) -> Outcome {
    let mut outcome = outcome.clone();
    if parts.is_empty() {
        return outcome;
    }
    match &mut outcome {
        Ok(Reply::Attr(attr) | Reply::Created { attr, .. }) => even(parts, tree, attr),
        Ok(Reply::Entries { entries, .. }) => {
            entries
                .iter_mut()
                .filter_map(|entry| entry.attr.as_mut())
                .for_each(|attr| even(parts, tree, attr));
        }
        _ => {}
    }
    outcome
}

fn even(parts: &BTreeMap<Ino, Parts>, tree: &Tree, attr: &mut Attr) {
    let (Some(parts), Some(node)) = (parts.get(&attr.ino), tree.node(attr.ino)) else { return };
    let within = |number: u64, (least, most): Range| least <= number && number <= most;
    let counts = within(attr.size, parts.entries)
        && within(u64::from(attr.nlink), (2 + parts.subdirs.0, 2 + parts.subdirs.1))
        && within(attr.change, parts.change);
    let times = parts.by_hand || (parts.times.contains(&attr.mtime) && parts.times.contains(&attr.ctime));
    if counts && times {
        let state = tree.attr(node);
        (attr.size, attr.nlink, attr.change) = (state.size, state.nlink, state.change);
        (attr.mtime, attr.ctime) = (state.mtime, state.ctime);
    }
}
