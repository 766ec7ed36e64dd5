//! The ranks' stores, as far as lives matter: fences, and appends that reach a journal or are refused.
//!
//! Absent: what is in a journal (the other world, `crate::world`).

use super::Cluster;
use super::event::{Act, Event};
use crate::model::judge::Verdict;
use mds::coordinator::Input;
use proto::ids::{Incarnation, RankId};
use std::collections::BTreeMap;

/// The model store.
#[derive(Default)]
pub(super) struct Stores {
    /// Of each rank the newest life that is fenced, and with it all before.
    pub(super) fences: BTreeMap<RankId, Incarnation>,
    /// Fences that were asked for and are not answered.
    pub(super) under_way: u64,
    /// What reaches it takes until then.
    pub(super) slow: u64,
}

impl Stores {
    pub(super) fn is_fenced(&self, rank: RankId, incarnation: Incarnation) -> bool {
        self.fences.get(&rank).is_some_and(|fenced| *fenced >= incarnation)
    }
}

impl Cluster {
    pub(super) fn fence(
        &mut self,
        seat: usize,
        life: u64,
        rank: RankId,
        incarnation: Incarnation,
    ) -> Verdict {
        self.judge.fence(self.registry.map(), rank, incarnation)?;
        let fenced = self.store.fences.entry(rank).or_default();
        *fenced = incarnation.max(*fenced);
        self.store.under_way -= 1;
        let at = self.store_at();
        let input = Box::new(Input::Fenced { rank, incarnation });
        self.at(at, Event::Answered { seat, life, input });
        Ok(())
    }

    /// An append reaches the store.
    pub(super) fn reaches(&mut self, act: Act) -> Verdict {
        if self.store.is_fenced(act.rank, act.incarnation) {
            self.coverage.count("appends refused", 1);
            let delay = self.delay();
            self.at(self.now + delay, Event::Refused { act });
            return Ok(());
        }
        self.coverage.count("appends", 1);
        self.judge.reached(act.rank, act.incarnation)
    }
}
