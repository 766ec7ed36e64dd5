//! Syncs of callers: of directories above all, of those that they changed or saw last; and the power of all ranks fails behind some.
//!
//! Absent: what a sync covers (`judge/syncs.rs`).

use super::event::Event;
use super::faults::Fault;
use super::{Phase, Ranks};
use crate::model::judge::Verdict;
use client::CallId;
use proto::reply::Outcome;
use proto::request::Request;
use proto::{Ino, NodeRef};
use stdx::time::MS;

impl Ranks {
    /// A directory or a file, one of those about which it heard something lately more often than any, or everything.
    pub(super) fn sync_request(&mut self, client: usize) -> Option<Request> {
        if self.rng.chance(1, 6) {
            return Some(Request::SyncFs);
        }
        let tree = self.judge.tree();
        let known = &self.clients[client].known.places;
        let root = NodeRef::bare(Ino::ROOT);
        let place = |ino: Ino| if ino == Ino::ROOT { Some(root) } else { known.get(&ino).copied() };
        let there = |node: &NodeRef| tree.node(node.ino).is_some();
        let is_dir = |node: &NodeRef| tree.node(node.ino).is_some_and(|node| node.is_dir());
        let lately: Vec<NodeRef> =
            self.judge.told_last(client).into_iter().filter_map(place).filter(there).collect();
        let dirs: Vec<NodeRef> = known.values().copied().chain([root]).filter(is_dir).collect();
        let of = if self.rng.chance(2, 3) { lately } else { dirs };
        let node = of.get(self.rng.index(of.len())).copied()?;
        Some(Request::Fsync { node, data_only: self.rng.chance(1, 4) })
    }

    /// A caller has an answer, of a sync or of anything else.
    pub(super) fn sync_answered(&mut self, call: CallId, request: &Request, outcome: &Outcome) -> Verdict {
        self.judge.sync_ends(call.0, request, outcome)?;
        let syncs = self.plan.sync_one_in > 0
            && matches!(request, Request::Fsync { .. } | Request::SyncFs)
            && outcome.is_ok();
        let may_fail = self.phase == Phase::Faults && self.plan.kinds.contains(&Fault::Power);
        if syncs && may_fail && self.rng.chance(1, BLACKOUT_ONE_IN) {
            self.after(MS, Event::Blackout);
        }
        Ok(())
    }

    /// The power of all ranks fails, and that of the metadata store.
    pub(super) fn blackout(&mut self) -> Verdict {
        if self.phase != Phase::Faults {
            return Ok(());
        }
        self.coverage.count("power of all ranks behind a sync");
        let lives: Vec<u64> = self.lives.keys().copied().collect();
        lives.into_iter().try_for_each(|life| self.life_ends(life, true))?;
        self.store_power();
        Ok(())
    }
}

/// Behind one of so many syncs.
const BLACKOUT_ONE_IN: u64 = 40;
