//! Directories of which all parts are wanted here at once, to end or to unite them. Where the coordinator would have them elsewhere (the
//! mask) one would go while the next one comes, without end. So what others announce of them is refused for a while.
//!
//! Absent: who asks for the parts (`ops/rmdir.rs`, `spreads/merge.rs`); what is pinned (`pins.rs`).

use super::Goal;
use crate::rank::Rank;
use proto::cluster::Unit;
use proto::{Frag, Ino};
use std::collections::BTreeMap;
use stdx::Mono;

/// Why a move is refused.
pub(super) const WHY: &str = "all of its directory is to be here";

/// Until when, of each.
#[derive(Debug, Default)]
pub(super) struct Gathered(BTreeMap<Ino, Mono>);

impl Rank {
    /// A part of that directory is asked for, that all are here.
    pub(crate) fn gather(&mut self, dir: Ino) {
        let now = self.view.now;
        let until = self.after_leases(now);
        let gathered = &mut self.moves.gathered.0;
        gathered.retain(|_, until| *until > now.mono);
        gathered.insert(dir, until);
    }

    /// Whether a move that others announced would take one of these parts away. A rank that is to go has everything taken away.
    pub(super) fn is_gathered(&self, unit: Unit, goal: Goal) -> bool {
        let until = self.moves.gathered.0.get(&unit.dir);
        matches!(goal, Goal::Carry(..))
            && unit.frag != Frag::WHOLE
            && self.view.serves(self.view.config.rank)
            && until.is_some_and(|until| *until > self.view.now.mono)
            && !stdx::mutant!("mds_mask_pulls_back")
    }
}
