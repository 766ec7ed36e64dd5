//! The names of a directory that is to be spread, counted by the units that they will be in: hash range by hash range, while names
//! come and go. What changes below the place that the count has come to is counted as it changes.
//!
//! Absent: what asks for it, and for pages of names from the store (`spreads/count.rs`).

use super::Cache;
use super::node::Node;
use proto::header::Spread;
use proto::{Ino, NameHash};

/// Names of one unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub entries: u64,
    pub subdirs: u64,
}

impl Count {
    const fn add(&mut self, is_dir: bool) {
        self.entries += 1;
        self.subdirs += is_dir as u64;
    }

    /// A name that was there when its range was counted, or has come since. If the count missed one it comes out wrong, and is found to be.
    fn take(&mut self, is_dir: bool) {
        self.entries = self.entries.saturating_sub(1);
        self.subdirs = self.subdirs.saturating_sub(u64::from(is_dir));
    }
}

/// How far the names of one directory are counted.
#[derive(Debug)]
pub(crate) struct Tally {
    dir: Ino,
    /// Numbers of units are from 0 on here.
    spread: Spread,
    /// Names whose hash is lower are counted; none: all.
    pub from: Option<NameHash>,
    pub units: Vec<Count>,
}

impl Tally {
    pub(crate) fn new(dir: Ino, depth: u8) -> Self {
        let spread = Spread { depth, first: Ino(0), stamp: 0, by_itself: false };
        let units = vec![Count::default(); 1 << depth];
        Self { dir, spread, from: Some(NameHash::FIRST), units }
    }

    fn unit(&mut self, hash: NameHash) -> &mut Count {
        let (number, _) = self.spread.of(hash);
        &mut self.units[number.0 as usize]
    }

    fn has_counted(&self, hash: NameHash) -> bool {
        self.from.is_none_or(|from| hash < from)
    }

    /// All names together.
    pub(crate) fn sum(&self) -> Count {
        let mut sum = Count::default();
        for unit in &self.units {
            sum.entries += unit.entries;
            sum.subdirs += unit.subdirs;
        }
        sum
    }
}

impl Cache {
    /// A transaction has made a name lead to something, or is about to end that.
    #[inline]
    pub(super) fn tally(&mut self, slot: u32, comes: bool) {
        if self.tally.is_some() {
            self.tally_one(slot, comes);
        }
    }

    #[cold]
    fn tally_one(&mut self, slot: u32, comes: bool) {
        let Some(tally) = &mut self.tally else { return };
        let node = self.nodes.get(slot);
        let is_its = node.positive() && self.dirs.get(node.dir).ino == tally.dir;
        if !is_its || !tally.has_counted(node.hash) || stdx::mutant!("mds_tally_frozen") {
            return;
        }
        let (hash, is_dir) = (node.hash, node.is_dir());
        if comes { tally.unit(hash).add(is_dir) } else { tally.unit(hash).take(is_dir) }
    }

    /// Counts the next names: those that are cached, as they are here, and of a page of the store those that are not. `end`: from
    /// where on the page knows nothing; `most`: cached names that are looked at.
    pub(crate) fn tally_on<'a>(
        &mut self,
        slot: u32,
        page: impl Iterator<Item = (NameHash, &'a [u8], bool)>,
        end: Option<NameHash>,
        most: usize,
    ) {
        let Some(mut tally) = self.tally.take() else { return };
        let Some(from) = tally.from else { return self.tally = Some(tally) };
        let dir = self.dirs.get(slot);
        let (mut looked, mut end) = (0, end);
        let within = |end: Option<NameHash>, hash: NameHash| end.is_none_or(|end| hash < end);
        dir.table.walk(from, &self.nodes, |at| {
            let node: &Node = self.nodes.get(at);
            if !within(end, node.hash) {
                return false;
            }
            // Names of one hash are counted together.
            if looked >= most && node.hash > from {
                end = Some(node.hash);
                return false;
            }
            looked += 1;
            true
        });
        dir.table.walk(from, &self.nodes, |at| {
            let node: &Node = self.nodes.get(at);
            let is_in = within(end, node.hash);
            if is_in && node.positive() {
                tally.unit(node.hash).add(node.is_dir());
            }
            is_in
        });
        for (hash, name, is_dir) in page {
            let known = dir.table.seek(hash, name, &self.nodes).0.is_some();
            if within(end, hash) && (!known || stdx::mutant!("mds_tally_counts_twice")) {
                tally.unit(hash).add(is_dir);
            }
        }
        tally.from = end;
        self.tally = Some(tally);
    }
}
