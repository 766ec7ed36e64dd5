//! Operators: what they ask of coordinators at random times.
//!
//! Absent: whether they are answered as they should (`judge/commands.rs`).

use super::event::{Event, ToSeat};
use super::faults::Fault;
use super::{Cluster, Phase};
use mds::coordinator::{Ask, Command};
use proto::cluster::{Mask, WEIGHT, WEIGHT_MAX};
use proto::ids::RankId;
use std::collections::BTreeMap;
use stdx::time::MS;

/// Ranks that an operator wants at most.
pub(super) const RANKS: u64 = 4;

/// Commands on their way or without an answer.
#[derive(Default)]
pub(super) struct Operator {
    last: u64,
    pub(super) open: BTreeMap<u64, Command>,
}

/// What a command is called.
pub(super) const fn kind(command: &Command) -> &'static str {
    match command {
        Command::Get => "command: get",
        Command::SetMaxMds(_) => "command: max_mds",
        Command::SetJoinable(_) => "command: joinable",
        Command::FailRank(_) => "command: mds fail",
        Command::FailFs => "command: fs fail",
        Command::SetBalRankMask(_) => "command: bal_rank_mask",
        Command::SetHashPlacement(_) => "command: placement",
        Command::SetRankWeight { .. } => "command: rank_weight",
        Command::Move { .. } => "command: move",
        Command::CancelMove(_) => "command: cancel",
        Command::Ask(_, Ask::Leave) => "ask: leave",
        Command::Ask(_, Ask::Switch { .. }) => "ask: switch",
        Command::Ask(_, Ask::Abort { .. }) => "ask: abort",
        Command::Ask(..) => "ask",
    }
}

impl Cluster {
    pub(super) fn operates(&mut self) {
        if self.phase > Phase::Faults {
            return;
        }
        let rank = self.any_rank();
        let command = match self.rng.below(20) {
            0..=1 => Command::Get,
            2..=6 => Command::SetMaxMds(1 + self.rng.below(RANKS) as u16),
            // Nothing starts while it is off: mostly it is switched on again.
            7..=9 => Command::SetJoinable(true),
            10 => Command::SetJoinable(false),
            11..=14 => Command::FailRank(rank),
            15 => Command::SetHashPlacement(self.rng.chance(1, 2)),
            16..=17 => Command::SetBalRankMask(self.any_mask()),
            18 => {
                let weight = [1, 50, WEIGHT, WEIGHT_MAX][self.rng.index(4)];
                Command::SetRankWeight { rank, weight }
            }
            _ => Command::FailFs,
        };
        let seat = self.rng.index(self.seats.len());
        self.commands(seat, command);
        // Whoever has just failed somebody, or is about to, may die of something else.
        let fails = matches!(command, Command::FailRank(_) | Command::FailFs);
        if fails && self.plan.faults.contains(&Fault::SeatCrash) && self.rng.chance(1, 2) {
            let longest = [100 * MS, self.plan.interval][self.rng.index(2)];
            self.after(longest, Event::SeatDies { seat });
        }
        let every = self.plan.command_every;
        self.after(every * 2, Event::Operates);
    }

    /// Mostly all of them, seldom none.
    fn any_mask(&mut self) -> Mask {
        if self.rng.chance(1, 2) {
            return Mask::ALL;
        }
        let drawn = self.rng.below(1 << RANKS);
        (0..RANKS as u16)
            .filter(|rank| drawn >> rank & 1 == 1)
            .fold(Mask::NONE, |mask, rank| mask.with(RankId(rank)))
    }

    /// Mostly one that is there.
    fn any_rank(&mut self) -> RankId {
        let ranks: Vec<RankId> =
            self.registry.map().into_iter().flat_map(|map| map.ranks.keys().copied()).collect();
        if ranks.is_empty() || self.rng.chance(1, 4) {
            return RankId(self.rng.below(RANKS + 1) as u16);
        }
        ranks[self.rng.index(ranks.len())]
    }

    /// One command, to one coordinator.
    pub(super) fn commands(&mut self, seat: usize, command: Command) -> u64 {
        self.operator.last += 1;
        let id = self.operator.last;
        self.trace.event(self.now, "command", id, || format!("{id} to {seat}: {command:?}"));
        self.operator.open.insert(id, command);
        let delay = self.delay();
        self.at(self.now + delay, Event::ToSeat { seat, message: Box::new(ToSeat::Command { id, command }) });
        id
    }
}
