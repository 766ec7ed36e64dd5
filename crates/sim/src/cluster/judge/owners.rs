//! Who owns what in a map that follows another: slots move as the coordinator may begin it, or as a life said; nothing else changes hands.
//!
//! Absent: entries that are made or moved, which nobody asks for in this world; lives (`maps.rs`).

use super::maps::{Why, must};
use crate::model::judge::Verdict;
use mds::coordinator::{Ask, Command, Life};
use proto::cluster::{ClusterMap, Mask, MoveId, Moving, RANKS_MAX, RankState, SLOTS, Slot};
use proto::ids::RankId;
use std::collections::{BTreeMap, BTreeSet};

/// Moves that the coordinator has under way at most, and slots of one.
const MOVES_MAX: usize = 8;
const MOVED_SLOTS_MAX: usize = 32;

/// What is set for the whole file system, and then slots and entries.
pub(super) fn owners(old: &ClusterMap, map: &ClusterMap, why: &Why<'_>) -> Verdict {
    let set = |wanted: Command| why.commanded(|command| *command == wanted);
    must(
        map.hash_placement == old.hash_placement || set(Command::SetHashPlacement(map.hash_placement)),
        || format!("has hash_placement {}, which nobody asked for", map.hash_placement),
    )?;
    must(map.bal_rank_mask == old.bal_rank_mask || set(Command::SetBalRankMask(map.bal_rank_mask)), || {
        format!("has bal_rank_mask {}, which nobody asked for", map.bal_rank_mask.hex())
    })?;
    let weighed = |rank: RankId| Command::SetRankWeight { rank, weight: map.weight(rank) };
    let changed = (0..RANKS_MAX)
        .map(RankId)
        .find(|rank| map.weight(*rank) != old.weight(*rank) && !set(weighed(*rank)));
    must(changed.is_none(), || format!("has another weight of {changed:?}, which nobody asked for"))?;
    must(map.slots_used || !old.slots_used, || "says that slots are not used any more".to_owned())?;
    must(map.slots_used || !map.hash_placement, || "places by slots that are not used".to_owned())?;
    must(map.slots_used == old.slots_used || set(Command::SetHashPlacement(true)), || {
        "uses slots, which nobody asked for".to_owned()
    })?;
    must(old.entries == map.entries, || "changes entries, which nobody asked for".to_owned())?;
    must(map.last_move >= old.last_move, || "forgets moves".to_owned())?;
    if old.slots != map.slots {
        for number in 0..SLOTS {
            let (was, is) = (old.slots.get(number), map.slots.get(number));
            of_slot(old, map, was, is, why).map_err(|what| format!("has slot {number} {what}"))?;
        }
    }
    under_way(old, map)
}

fn of_slot(old: &ClusterMap, map: &ClusterMap, was: Slot, is: Slot, why: &Why<'_>) -> Verdict {
    if was == is {
        return Ok(());
    }
    must(is.version == map.version, || "changed without a version".to_owned())?;
    let moves_on = was.moving.filter(|moving| is.moving.map(|other| other.id) != Some(moving.id));
    if let Some(moving) = moves_on {
        ended(old, map, (was.rank, moving), is.rank, why)?;
    } else {
        must(was.moving.is_none(), || "changed while it moves".to_owned())?;
        must(was.rank == is.rank, || format!("of rank {} after rank {}", is.rank.0, was.rank.0))?;
    }
    match is.moving {
        Some(moving) => begun(old, map, is.rank, moving),
        None => must(moves_on.is_some(), || "changed in nothing".to_owned()),
    }
}

/// A move is over: its owner says how, or somebody in it does not live on.
fn ended(
    old: &ClusterMap,
    map: &ClusterMap,
    (from, moving): (RankId, Moving),
    has: RankId,
    why: &Why<'_>,
) -> Verdict {
    let life = old.ranks.get(&from).map(|info| Life { rank: from, incarnation: info.incarnation });
    let said = |ask: Ask| {
        why.commanded(
            |command| matches!(command, Command::Ask(by, what) if Some(*by) == life && *what == ask),
        )
    };
    if has == moving.to && said(Ask::Switch { id: moving.id }) {
        return Ok(());
    }
    must(has == from, || format!("of rank {}, which rank {} never said", has.0, from.0))?;
    must(said(Ask::Abort { id: moving.id }) || !goes_on(old, map, from, moving.to), || {
        format!("not moving any more, and nobody gave move {} up", moving.id.0)
    })
}

/// Whether both ranks of a move live on in states in which they can carry it out.
fn goes_on(old: &ClusterMap, map: &ClusterMap, from: RankId, to: RankId) -> bool {
    let lives = |rank: RankId, stops: bool| {
        let (was, is) = (old.ranks.get(&rank), map.ranks.get(&rank));
        let same = was.map(|info| info.incarnation) == is.map(|info| info.incarnation);
        let state = is.map(|info| info.state);
        same && (state == Some(RankState::Active) || (stops && state == Some(RankState::Stopping)))
    };
    lives(from, true) && lives(to, false)
}

/// A move that the coordinator begins.
fn begun(old: &ClusterMap, map: &ClusterMap, from: RankId, moving: Moving) -> Verdict {
    let Moving { id, to } = moving;
    must(id > old.last_move && id <= map.last_move, || format!("in move {} again", id.0))?;
    must(from != to, || "on its way to where it is".to_owned())?;
    must(map.slots_used, || "moving, and slots are not used".to_owned())?;
    // Rank 0 takes what nobody else may have.
    let may = to.0 < map.max_mds && (map.bal_rank_mask.has(to) || to == RankId(0));
    must(may, || format!("on its way to rank {}, which is to have none", to.0))?;
    let stops = map.ranks.get(&from).is_some_and(|info| info.state == RankState::Stopping);
    must(stops || map.bal_rank_mask != Mask::NONE, || "moving, and nothing is to".to_owned())
}

/// All moves of a map: few at a time, none without both of its lives.
fn under_way(old: &ClusterMap, map: &ClusterMap) -> Verdict {
    let mut moves: BTreeMap<MoveId, (RankId, RankId, usize)> = BTreeMap::new();
    for (range, slot) in map.slots.runs() {
        if let Some(moving) = slot.moving {
            moves.entry(moving.id).or_insert((slot.rank, moving.to, 0)).2 += range.len();
        }
    }
    let mut busy = BTreeSet::new();
    for (id, (from, to, count)) in &moves {
        must(*count <= MOVED_SLOTS_MAX, || format!("moves {count} slots at once"))?;
        must(busy.insert(*from), || format!("has two moves of rank {}", from.0))?;
        must(goes_on(old, map, *from, *to), || {
            format!("goes on with move {} from rank {} to rank {}", id.0, from.0, to.0)
        })?;
    }
    must(moves.len() <= MOVES_MAX, || format!("has {} moves under way", moves.len()))
}
