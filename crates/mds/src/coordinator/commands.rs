//! What operators ask for, carried out on the next map; the texts are for them.
//!
//! Absent: when they are answered (`machine`); changes of ownership (`changes`).

use super::plan::{Plan, daemon_name, take_down};
use super::{Command, CommandError, changes};
use crate::output::Level;
use proto::RankId;
use proto::cluster::{ClusterMap, DaemonId, RANKS_MAX, RankInfo, RankState, WEIGHT, WEIGHT_MAX};

pub(super) fn carry_out(plan: &mut Plan, command: Command) -> Result<String, CommandError> {
    let next = &mut plan.next;
    let text = match command {
        Command::Get => return Ok(String::new()),
        Command::SetMaxMds(ranks) => {
            if !(1..=RANKS_MAX).contains(&ranks) {
                let text = format!("max_mds: {ranks}: a file system has 1 to {RANKS_MAX} ranks");
                return Err(CommandError::Unsupported(text));
            }
            next.max_mds = ranks;
            format!("max_mds is {ranks}")
        }
        Command::SetJoinable(joinable) => {
            next.joinable = joinable;
            format!("joinable is {joinable}")
        }
        Command::FailRank(rank) => fail_rank(next, rank)?,
        Command::FailFs => fail_all(next),
        Command::SetBalRankMask(mask) => {
            next.bal_rank_mask = mask;
            format!("bal_rank_mask is {}", mask.hex())
        }
        Command::SetRankWeight { rank, weight } => set_weight(next, rank, weight)?,
        Command::SetHashPlacement(on) => {
            next.hash_placement = on;
            next.slots_used |= on && !stdx::mutant!("coord_placement_without_slots");
            format!("placement is {}", if on { "hash" } else { "subtree" })
        }
        Command::Move { moved, to } => changes::begin(next, None, moved, to)?,
        Command::CancelMove(id) => changes::end(plan, None, id, false)?,
        Command::Ask(life, ask) => {
            let text = changes::carry_out(plan, life, ask)?;
            plan.notes.push((Level::Info, text.clone()));
            return Ok(text);
        }
    };
    plan.notes.push((Level::Info, format!("by command: {text}")));
    Ok(text)
}

fn set_weight(next: &mut ClusterMap, rank: RankId, weight: u16) -> Result<String, CommandError> {
    if rank.0 >= RANKS_MAX || !(1..=WEIGHT_MAX).contains(&weight) {
        let text = format!(
            "rank_weight {}={weight}: ranks are 0 to {}, weights 1 to {WEIGHT_MAX}",
            rank.0,
            RANKS_MAX - 1
        );
        return Err(CommandError::Unsupported(text));
    }
    if weight == WEIGHT {
        next.weights.remove(&rank);
    } else {
        next.weights.insert(rank, weight);
    }
    Ok(format!("rank_weight of rank {} is {weight}", rank.0))
}

fn fail_rank(next: &mut ClusterMap, rank: RankId) -> Result<String, CommandError> {
    let Some(info) = next.ranks.get(&rank).copied() else {
        let ranks: Vec<String> = next.ranks.keys().map(|rank| rank.0.to_string()).collect();
        let text = format!("rank {}: no such rank: there is {}", rank.0, ranks.join(", "));
        return Err(CommandError::WrongState(text));
    };
    if info.state == RankState::Failed {
        let text = format!("rank {}: it has failed already: {}", rank.0, follows(next));
        return Err(CommandError::WrongState(text));
    }
    let was = match info.daemon {
        DaemonId::NONE => format!("it was {}", info.state.name()),
        daemon => format!("it was {} on {}", info.state.name(), daemon_name(next, daemon)),
    };
    take_down(next, rank);
    // Also what is damaged: whoever says this wants it tried again.
    next.ranks.insert(rank, RankInfo::failed(info.incarnation));
    Ok(format!("rank {} failed: {was}: {}", rank.0, follows(next)))
}

fn fail_all(next: &mut ClusterMap) -> String {
    next.joinable = false;
    let alive: Vec<RankId> =
        next.ranks.iter().filter(|(_, info)| info.daemon != DaemonId::NONE).map(|(rank, _)| *rank).collect();
    for rank in &alive {
        take_down(next, *rank);
    }
    let ranks = if alive.len() == 1 { "1 rank".to_owned() } else { format!("{} ranks", alive.len()) };
    format!("{ranks} ended; nobody takes over before the file system is joinable again")
}

/// What becomes of a failed rank.
fn follows(next: &ClusterMap) -> &'static str {
    let stands_by = next.daemons.keys().any(|daemon| next.rank_of(*daemon).is_none());
    match (next.joinable, stands_by) {
        (false, _) => "nobody takes over, because the file system is not joinable",
        (true, true) => "a standby takes over once its last life can neither write nor answer",
        (true, false) => "nobody takes over before a standby registers",
    }
}
