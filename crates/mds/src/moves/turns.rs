//! Whose turn it is among the moves that wait for theirs.
//!
//! Absent: how the next one begins (`moves.rs`).

use super::{Moves, Wanted};
use std::collections::BTreeSet;

impl Moves {
    /// A request that waits for an answer does not wait for all those that nobody waits for: the parts of a directory that is spread
    /// are sixteen moves and more, of some seconds each with a slow store. Every second one is the first of the queue all the same, so that
    /// none waits for ever; and nothing overtakes what is of the same directory, which is to become what was asked for last.
    pub(super) fn waited_for_first(&mut self) {
        let is_waited_for = |wanted: &Wanted| !wanted.ops.is_empty();
        let overtakes = !self.overtook && self.queue.front().is_some_and(|first| !is_waited_for(first));
        self.overtook = false;
        if !overtakes || stdx::mutant!("mds_moves_in_turn") {
            return;
        }
        let mut passed = BTreeSet::new();
        let at = self.queue.iter().position(|wanted| passed.insert(wanted.unit.dir) && is_waited_for(wanted));
        if let Some(wanted) = at.and_then(|at| self.queue.remove(at)) {
            self.queue.push_front(wanted);
            self.overtook = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moves::Goal;
    use crate::territory::Part;
    use crate::units::whole;
    use proto::{Ino, RankId};

    /// Which begin, one after the other, of moves of these directories, and whether somebody waits for them.
    fn order(queue: &[(u64, bool)]) -> Vec<(u64, bool)> {
        let mut moves = Moves::default();
        for (at, (dir, waits)) in queue.iter().enumerate() {
            let (dir, op) = (Ino(*dir), waits.then_some(at as u64));
            moves.add((Part::Of(dir), whole(dir)), Goal::Pin(RankId(at as u16)), op);
        }
        let next = |moves: &mut Moves| {
            moves.waited_for_first();
            moves.queue.pop_front().map(|wanted| (wanted.unit.dir.0, !wanted.ops.is_empty()))
        };
        std::iter::from_fn(|| next(&mut moves)).collect()
    }

    /// What broke: a pin waited for minutes behind the parts of two directories that were being spread.
    fn who_waits_for_an_answer_goes_first() {
        let parts = [(5, false), (6, false), (7, false), (8, true), (9, true)];
        let turns = [(8, true), (5, false), (9, true), (6, false), (7, false)];
        assert_eq!(order(&parts), turns);
        let in_turn = [(5, true), (6, false), (7, true)];
        assert_eq!(order(&in_turn), [(5, true), (7, true), (6, false)]);
        let none = [(5, false), (6, false)];
        assert_eq!(order(&none), none);
    }

    #[test]
    fn moves_that_requests_wait_for_overtake_others() {
        who_waits_for_an_answer_goes_first();
    }

    #[test]
    fn moves_of_one_directory_keep_their_order() {
        let of_one = [(5, false), (6, false), (6, true), (5, true), (7, true)];
        assert_eq!(order(&of_one), [(7, true), (5, false), (5, true), (6, false), (6, true)]);
    }

    #[cfg(feature = "mutants")]
    #[test]
    fn moves_strictly_in_turn_are_caught() {
        stdx::mutant::activate(Some("mds_moves_in_turn"));
        let verdict = std::panic::catch_unwind(who_waits_for_an_answer_goes_first);
        stdx::mutant::activate(None);
        assert!(verdict.is_err());
    }
}
