//! What operators see of moves: the one under way and those that wait for their turn.
//!
//! Absent: moves of slots, which the cluster map counts; pins that wait for a rank that does not serve.

use super::{Goal, Move, Wanted};
use crate::rank::Rank;
use crate::territory::Part;
use proto::cluster::Unit;
use proto::{Ino, RankId};

/// What a move is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveGoal {
    /// The unit gets an entry of the cluster map by name, and its content goes to where that says.
    Pin,
    /// Its entry goes; its content stays.
    Unpin,
    /// Its content goes to another rank.
    Move,
}

impl MoveGoal {
    /// The word for operators and their scripts.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pin => "pin",
            Self::Unpin => "unpin",
            Self::Move => "move",
        }
    }
}

/// A move of a directory's content or of a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoveStatus {
    pub unit: Unit,
    pub goal: MoveGoal,
    /// None: nothing changes hands.
    pub to: Option<RankId>,
    /// What it waits for now, in words; none: for its turn.
    pub waits_for: Option<&'static str>,
}

impl Goal {
    /// What it is for, and the rank that gets something by it.
    fn shown(self, me: RankId) -> (MoveGoal, Option<RankId>) {
        match self {
            Self::Pin(to) => (MoveGoal::Pin, Some(to).filter(|to| *to != me)),
            Self::Unpin => (MoveGoal::Unpin, None),
            Self::Carry(_, to) | Self::Move(to) => (MoveGoal::Move, Some(to)),
        }
    }
}

impl Rank {
    /// The move under way, and those that wait, in their order.
    #[must_use]
    pub fn moves_wanted(&self) -> Vec<MoveStatus> {
        let me = self.view.config.rank;
        let status = |part: Part, unit: Unit, goal: Goal, waits_for: Option<&'static str>| {
            let (goal, to) = goal.shown(me);
            matches!(part, Part::Of(_)).then_some(MoveStatus { unit, goal, to, waits_for })
        };
        let current = |one: &Move| status(one.part, one.unit, one.goal, Some(self.waits_for(one.phase)));
        let queued = |one: &Wanted| status(one.part, one.unit, one.goal, None);
        let under_way = self.moves.current.iter().filter_map(current);
        under_way.chain(self.moves.queue.iter().filter_map(queued)).collect()
    }

    /// By which number a directory's content, or a part of it, is called here, and whose it is; none: this rank does not know. Of those
    /// that answer the one that says it of itself knows.
    #[must_use]
    pub fn part_named(&self, unit: Unit) -> Option<(Ino, RankId)> {
        let number = self.number_of(unit)?;
        Some((number, self.owner(number)?))
    }
}
