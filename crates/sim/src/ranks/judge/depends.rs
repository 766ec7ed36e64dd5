//! What an answer shows that is not durable at its rank, and whose that is: a session may be told of its own, because it presents it again
//! after a crash, and of nobody else's. What other ranks have a say in has left them, and is durable there.
//!
//! Absent: what is presented again (`promise.rs`).

use super::{Judge, Key, Origin, Pending, Step};
use crate::model::judge::{Fact, Manner, Verdict, shown, touched};
use crate::model::tree::Tree;
use proto::ids::{Position, RankId, SessionId};
use proto::reply::Outcome;
use std::collections::BTreeSet;
use stdx::Wall;

impl Step {
    fn author(&self) -> Option<SessionId> {
        self.origin.as_ref().map(|origin| origin.key.1)
    }
}

impl Judge {
    /// Notes what a step changed, and what its author's request was told of before.
    pub(super) fn note_undurable(&self, step: &mut Step, before: &Tree) {
        if self.promises.eager.is_empty() {
            return;
        }
        step.facts = touched(before, &step.tree);
        step.needs = match &step.origin {
            Some(Origin { key, asked, outcome }) => {
                let shown = shown(before, &asked.request, outcome);
                self.by_others(step.rank, key.1, &shown, self.last())
            }
            None => step.end,
        };
    }

    /// Up to where the journal of a rank must be durable before `session` may see these as they are in that state: what others changed
    /// there, and what its own changes depend on.
    pub(super) fn by_others(
        &self,
        rank: RankId,
        session: SessionId,
        shown: &BTreeSet<Fact>,
        upto: u64,
    ) -> Position {
        let durable = self.durable_to(rank);
        let all = self.line.iter().take(upto.saturating_sub(self.first) as usize);
        let seen = all
            .filter(|step| step.rank == rank && step.end > durable)
            .filter(|step| !step.facts.is_disjoint(shown));
        let needs = seen.map(|step| if step.author() == Some(session) { step.needs } else { step.end });
        needs.max().unwrap_or_default()
    }

    /// Whether a session may be told of a state that is not durable at the rank that tells of it.
    pub(super) fn may_show(
        &self,
        key: Key,
        (number, tree): (u64, &Tree),
        pending: &Pending,
        outcome: &Outcome,
    ) -> bool {
        self.promises.eager.contains(&key.1) && {
            let shown = shown(tree, &pending.asked.request, outcome);
            self.by_others(key.0, key.1, &shown, number) <= self.durable_to(key.0)
        }
    }

    /// A transaction is answered before it is durable: to who presents it again, if it does not depend on others.
    pub(super) fn before_durable(&self, key: Key, end: Position, manner: Manner) -> Verdict {
        let Manner::Early { wall } = manner else {
            return Err(format!("answers before {} is durable", end.0));
        };
        if !self.promises.eager.contains(&key.1) {
            return Err(format!("answers session {} early, which does not want it", key.1.0));
        }
        let Some(step) = self.line.iter().find(|step| step.rank == key.0 && step.end == end) else {
            return Ok(());
        };
        if step.needs > self.durable_to(key.0) {
            return Err(format!("answers early, before what others did up to {} is durable", step.needs.0));
        }
        if step.decides {
            return Err("answers early what other ranks have a say in".into());
        }
        self.is_at(step, wall)
    }

    fn is_at(&self, step: &Step, wall: Wall) -> Verdict {
        if wall == step.wall {
            return Ok(());
        }
        Err(format!("says that it was at {wall:?} instead of {:?}", step.wall))
    }
}
