//! Commands: each is answered once, and only after what it changed is durable.
//!
//! Absent: that each is answered at all (`heal.rs`).

use super::super::Cluster;
use super::super::operator::kind;
use crate::model::judge::Verdict;
use mds::coordinator::{Ask, Command, CommandError, Life, Reply};
use proto::cluster::{ClusterMap, MoveId, RankState};
use proto::ids::{Incarnation, RankId};

impl Cluster {
    pub(in super::super) fn judge_answer(
        &mut self,
        seat: usize,
        id: u64,
        result: Result<Reply, CommandError>,
    ) -> Verdict {
        let at = &mut self.seats[seat].record;
        if !at.open.remove(&id) {
            return Err(format!("coordinator {seat} answers command {id}, which is not open there"));
        }
        let Some(place) = at.commands.iter().position(|(of, ..)| *of == id) else { return Ok(()) };
        let (_, (begun, known), command) = at.commands[place];
        let later: Vec<Command> = at.commands[place + 1..].iter().map(|(.., command)| *command).collect();
        self.operator.open.remove(&id);
        self.trace.event(self.now, "answer", id, || {
            format!("{id} {command:?}: {:?}", result.as_ref().map(|reply| &reply.text))
        });
        match result {
            Ok(reply) => {
                self.coverage.count(kind(&command), 1);
                if let Command::Ask(life, Ask::Leave) = command {
                    self.seats[seat].record.left.insert(life.incarnation);
                }
                self.carried_out((begun, known), command, &later, &reply)
                    .map_err(|what| format!("command {id} {command:?} is answered, and {what}"))
            }
            Err(CommandError::Unsupported(text)) => {
                self.coverage.count("commands that no version can carry out", 1);
                let impossible = matches!(command, Command::SetMaxMds(_));
                if impossible { Ok(()) } else { Err(format!("{command:?} is impossible: {text}")) }
            }
            Err(CommandError::WrongState(_) | CommandError::Stale(_)) => {
                self.coverage.count("commands refused", 1);
                Ok(())
            }
            Err(CommandError::Store(_)) => {
                self.coverage.count("commands that failed", 1);
                Ok(())
            }
        }
    }

    /// The map that the answer names is durable, not older than the command, and what was asked for came to be since.
    fn carried_out(
        &self,
        (begun, known): (u64, u64),
        command: Command,
        later: &[Command],
        reply: &Reply,
    ) -> Verdict {
        let durable = self.registry.history.get(&reply.map.version);
        if durable.is_none_or(|durable| **durable != *reply.map) {
            return Err(format!("version {} is not durable", reply.map.version));
        }
        let last = reply.map.version;
        let since = || {
            self.registry
                .history
                .range(begun.min(last)..=last)
                .map(|(_, map)| map)
                .filter(|map| map.version >= begun)
        };
        // Of two commands that are carried out in one map the later one may undo what the earlier one did.
        let undone = |undoes: &dyn Fn(Command) -> bool| later.iter().any(|command| undoes(*command));
        let joins = |command| command == Command::SetJoinable(true);
        let came = match command {
            // What this coordinator knew then; another one may know better.
            Command::Get => last >= known,
            Command::SetMaxMds(ranks) => {
                since().any(|map| map.max_mds == ranks)
                    || undone(&|command| command == Command::SetMaxMds(reply.map.max_mds))
            }
            Command::SetJoinable(true) => {
                since().any(|map| map.joinable)
                    || undone(&|command| matches!(command, Command::FailFs | Command::SetJoinable(false)))
            }
            Command::SetJoinable(false) => since().any(|map| !map.joinable) || undone(&joins),
            Command::SetRankWeight { rank, weight } => {
                let again =
                    |command| matches!(command, Command::SetRankWeight { rank: other, .. } if other == rank);
                since().any(|map| map.weight(rank) == weight) || undone(&again)
            }
            Command::SetBalRankMask(mask) => {
                since().any(|map| map.bal_rank_mask == mask)
                    || undone(&|command| command == Command::SetBalRankMask(reply.map.bal_rank_mask))
            }
            Command::SetHashPlacement(on) => {
                since().any(|map| map.hash_placement == on)
                    || undone(&|command| command == Command::SetHashPlacement(reply.map.hash_placement))
            }
            Command::Ask(Life { rank, incarnation }, Ask::Leave) => {
                since().any(|map| is_failed(map, rank, incarnation))
            }
            Command::Ask(_, Ask::Switch { id } | Ask::Abort { id }) => since().any(|map| !is_moving(map, id)),
            // Nobody says these in this world.
            Command::Move { .. } | Command::CancelMove(_) | Command::Ask(..) => false,
            Command::FailRank(rank) => since().any(|map| is_failed(map, rank, self.life_at(begun, rank))),
            Command::FailFs => since().any(|map| {
                let lives = self.registry.history.get(&begun).map(|old| &old.ranks);
                let over =
                    lives.into_iter().flatten().all(|(rank, info)| is_over(map, *rank, info.incarnation));
                over && (!map.joinable || undone(&joins))
            }),
        };
        if came { Ok(()) } else { Err(format!("that never was, up to version {}", reply.map.version)) }
    }

    /// The life that a rank had when a command came.
    fn life_at(&self, version: u64, rank: RankId) -> Incarnation {
        let map = self.registry.history.get(&version);
        map.and_then(|map| map.ranks.get(&rank)).map_or(Incarnation(0), |info| info.incarnation)
    }
}

/// The rank has no life, or another than it had.
fn is_failed(map: &ClusterMap, rank: RankId, life: Incarnation) -> bool {
    map.ranks.get(&rank).is_none_or(|info| info.state == RankState::Failed || info.incarnation > life)
}

fn is_moving(map: &ClusterMap, id: MoveId) -> bool {
    map.slots.runs().any(|(_, slot)| slot.moving.is_some_and(|moving| moving.id == id))
}

/// That, or it is damaged.
fn is_over(map: &ClusterMap, rank: RankId, life: Incarnation) -> bool {
    is_failed(map, rank, life) || map.ranks.get(&rank).is_some_and(|info| info.state == RankState::Damaged)
}
