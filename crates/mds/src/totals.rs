//! Totals: headers of boundaries, as the ranks that have their content told them. Each counts until it is recalled, as a replica does.
//! docs/PROTOCOL.md, "Boundaries".
//!
//! Absent: asking for them (`peers/asks.rs`); who keeps them, at the rank that has the content (`caps/book/copies.rs`).

use crate::rank::Rank;
use crate::territory::Side;
use proto::header::FragHeader;
use proto::{Ino, RankId};
use std::collections::BTreeMap;

/// What was told, and by whom.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    kept: BTreeMap<Ino, (RankId, FragHeader)>,
}

impl Totals {
    pub(crate) fn of(&self, dir: Ino) -> Option<&FragHeader> {
        self.kept.get(&dir).map(|(_, header)| header)
    }

    /// Who told that.
    pub(crate) fn told_by(&self, dir: Ino) -> Option<RankId> {
        self.kept.get(&dir).map(|(rank, _)| *rank)
    }

    /// An answer; `counts`: until it is recalled.
    pub(crate) fn told(&mut self, rank: RankId, dir: Ino, header: &FragHeader, counts: bool) {
        if counts {
            self.kept.insert(dir, (rank, header.clone()));
        } else {
            self.kept.remove(&dir);
        }
    }

    pub(crate) fn recalled(&mut self, dir: Ino) {
        self.kept.remove(&dir);
    }

    /// What that rank told counts no more.
    pub(crate) fn lost(&mut self, rank: RankId) {
        self.kept.retain(|_, (of, _)| *of != rank);
    }

    /// What another rank has by now, or this one, was told by one that has it no more.
    fn by_map(&mut self, side: impl Fn(Ino) -> Option<Side>) {
        self.kept.retain(|dir, (of, _)| side(*dir) == Some(Side::Other(Some(*of))));
    }
}

impl Rank {
    /// A directory gets another home, or has its home here now. What was told of it before was told by whom, and to whom, it concerned
    /// then; a life of whoever told it may be over, and nobody but the home of then was waited for.
    pub(crate) fn home_changes(&mut self, ino: Ino) {
        self.drop_replica(ino);
        let units = self.view.cache.spread(ino).into_iter().flat_map(proto::header::Spread::all);
        for number in units.map(|(number, _)| number).chain([ino]) {
            self.view.totals.recalled(number);
        }
    }

    pub(crate) fn totals_by_map(&mut self) {
        let mut totals = std::mem::take(&mut self.view.totals);
        totals.by_map(|dir| self.view.of_itself(dir));
        self.view.totals = totals;
    }
}
