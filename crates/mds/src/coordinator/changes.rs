//! Changes of ownership, carried out on the next map if what they name is so. docs/PROTOCOL.md, "Changes of ownership".
//!
//! Absent: what the coordinator begins and ends by itself (`moves`).

use super::CommandError;
use super::ask::{Ask, Dropped, Found, Governing, Governor, Life, Named, Subject};
use super::moves;
use super::plan::{Plan, take_down};
use proto::RankId;
use proto::cluster::{
    ClusterMap, ENTRIES_MAX, Entry, MoveId, Moving, Policy, RankState, SLOTS, Slot, UNIT_DEPTH_MAX, Unit,
};
use std::ops::Range;
use std::sync::Arc;

/// Who asks: a life of a rank, or an operator, who may ask for what is nobody's of theirs.
pub(super) type Asker = Option<Life>;

fn wrong<T>(text: String) -> Result<T, CommandError> {
    Err(CommandError::WrongState(text))
}

fn must(holds: bool, found: Found) -> Result<(), CommandError> {
    if holds { Ok(()) } else { Err(CommandError::Stale(found)) }
}

pub(super) fn carry_out(plan: &mut Plan, life: Life, ask: Ask) -> Result<String, CommandError> {
    let next = &mut plan.next;
    is_alive(next, life)?;
    match ask {
        Ask::MakeExplicit { unit, policy, governing } => make_explicit(next, life, unit, policy, governing),
        Ask::MoveBegin { moved, to } => begin(next, Some(life), moved, to),
        Ask::Switch { id } => end(plan, Some(life), id, true),
        Ask::Abort { id } => end(plan, Some(life), id, false),
        Ask::Drop { unit, version, why } => drop_entry(next, life, unit, version, why),
        Ask::SetPolicy { unit, version, policy } => {
            let entry = own_entry(next, life, unit, version)?;
            put(next, unit, Entry { policy, ..entry });
            Ok(format!("{}: another policy", Named(unit)))
        }
        Ask::UseSlots => {
            next.slots_used = true;
            Ok("slots are used from now on".to_owned())
        }
        Ask::Leave => leave(plan, life),
    }
}

/// Whether the life is the one that has the rank's property.
fn is_alive(map: &ClusterMap, life: Life) -> Result<(), CommandError> {
    let info = map.ranks.get(&life.rank).copied();
    let serves = info.is_some_and(|info| {
        moves::may_give(info.state)
            && (info.incarnation == life.incarnation || stdx::mutant!("coord_old_life_asks"))
    });
    must(serves, Found::Rank(life.rank, info))
}

/// Whether what belongs to `owner` may be changed at the asker's word.
fn is_owner(asker: Asker, owner: RankId, found: Found) -> Result<(), CommandError> {
    let owns = asker.is_none_or(|life| life.rank == owner);
    must(owns || stdx::mutant!("coord_foreign_owner_asks"), found)
}

/// One change of what governs is under way at a time.
fn is_still(what: impl std::fmt::Display, moving: Option<Moving>) -> Result<(), CommandError> {
    match moving {
        Some(moving) if !stdx::mutant!("coord_moves_twice") => {
            wrong(format!("{what}: move {} to rank {} is under way", moving.id.0, moving.to.0))
        }
        Some(_) | None => Ok(()),
    }
}

fn can_be_given(unit: Unit) -> Result<(), CommandError> {
    let exists = unit.dir.0 >> 63 == 0
        && unit.frag.depth <= UNIT_DEPTH_MAX
        && unit.frag == proto::Frag::leading(proto::NameHash(unit.frag.prefix), unit.frag.depth);
    let text = match (exists, unit.dir) {
        (true, dir) if !dir.is_reserved() => return Ok(()),
        (true, _) => "its rank is the one that its number names",
        (false, _) => "no unit can be so",
    };
    Err(CommandError::Unsupported(format!("{}: {text}", Named(unit))))
}

/// Whose the unit is, if what is named says it, as far as the map knows, and may be changed at the asker's word.
fn owner(map: &ClusterMap, asker: Asker, unit: Unit, named: Governing) -> Result<RankId, CommandError> {
    let covering = map.covering(unit).map(|(unit, entry)| (unit, *entry));
    if let Some((larger, entry)) = covering
        && !stdx::mutant!("coord_nearer_entry_ignored")
    {
        must(named.by == Governor::Entry(larger), Found::Entry(larger, Some(entry)))?;
    }
    let (owner, version, moving, found) = held(map, named.by)?;
    must(version == named.version || stdx::mutant!("coord_version_ignored"), found)?;
    is_owner(asker, owner, found)?;
    is_still(Named(unit), moving)?;
    Ok(owner)
}

fn held(map: &ClusterMap, by: Governor) -> Result<(RankId, u64, Option<Moving>, Found), CommandError> {
    match by {
        Governor::Entry(unit) => match map.entries.get(&unit).copied() {
            Some(entry) => Ok((entry.rank, entry.version, entry.moving, Found::Entry(unit, Some(entry)))),
            None => Err(CommandError::Stale(Found::Entry(unit, None))),
        },
        Governor::Slot(number) => {
            let (number, slot) = (number % SLOTS, map.slots.get(number));
            Ok((slot.rank, slot.version, slot.moving, Found::Slot(number, slot)))
        }
    }
}

fn put(next: &mut ClusterMap, unit: Unit, entry: Entry) {
    let version = next.version;
    Arc::make_mut(&mut next.entries).insert(unit, Entry { version, ..entry });
}

fn put_slots(next: &mut ClusterMap, range: Range<u16>, slot: Slot) {
    let version = next.version;
    Arc::make_mut(&mut next.slots).set(range, Slot { version, ..slot });
}

/// What governs more or less than before is not what anybody named who did not know.
fn touch(next: &mut ClusterMap, by: Governor) {
    if stdx::mutant!("coord_carve_keeps_version") {
        return;
    }
    match by {
        Governor::Entry(unit) => {
            if let Some(entry) = next.entries.get(&unit).copied() {
                put(next, unit, entry);
            }
        }
        Governor::Slot(number) => {
            let number = number % SLOTS;
            put_slots(next, number..number + 1, next.slots.get(number));
        }
    }
}

/// An entry for a unit that has none, at its owner.
fn carve(next: &mut ClusterMap, unit: Unit, entry: Entry, by: Governor) -> Result<(), CommandError> {
    if next.entries.len() >= ENTRIES_MAX && !stdx::mutant!("coord_entries_unbounded") {
        return wrong(format!("{}: the cluster map has {ENTRIES_MAX} entries already", Named(unit)));
    }
    put(next, unit, entry);
    touch(next, by);
    Ok(())
}

fn make_explicit(
    next: &mut ClusterMap,
    life: Life,
    unit: Unit,
    policy: Policy,
    governing: Governing,
) -> Result<String, CommandError> {
    can_be_given(unit)?;
    let there = next.entries.get(&unit).copied();
    must(there.is_none(), Found::Entry(unit, there))?;
    let rank = owner(next, Some(life), unit, governing)?;
    carve(next, unit, Entry { rank, version: 0, policy, moving: None }, governing.by)?;
    Ok(format!("{}: an entry of its own, rank {}'s", Named(unit), rank.0))
}

pub(super) fn begin(
    next: &mut ClusterMap,
    asker: Asker,
    moved: Subject,
    to: RankId,
) -> Result<String, CommandError> {
    match moved {
        Subject::Unit { unit, governing } => {
            can_be_given(unit)?;
            if unit == Unit::ROOT {
                let text = "the root directory stays with rank 0".to_owned();
                return Err(CommandError::Unsupported(text));
            }
            let rank = owner(next, asker, unit, governing)?;
            can_take(next, rank, to)?;
            let there = next.entries.get(&unit).copied();
            let entry = there.unwrap_or(Entry { rank, version: 0, policy: Policy::Carved, moving: None });
            if there.is_none() {
                carve(next, unit, entry, governing.by)?;
            }
            let id = begin_unit(next, unit, entry, to);
            Ok(format!("move {}: {} from rank {} to rank {}", id.0, Named(unit), rank.0, to.0))
        }
        Subject::Slots { first, count, version } => {
            let Some(end) = first.checked_add(count).filter(|end| first < *end && *end <= SLOTS) else {
                let text = format!("slots {first} and {count} more: there are 0 to 4095");
                return Err(CommandError::Unsupported(text));
            };
            let range = first..end;
            let rank = owner_of_slots(next, asker, range.clone(), version)?;
            can_take(next, rank, to)?;
            let id = begin_slots(next, range.clone(), to);
            let (first, last) = (range.start, range.end - 1);
            Ok(format!("move {}: slots {first} to {last} from rank {} to rank {}", id.0, rank.0, to.0))
        }
    }
}

fn owner_of_slots(
    map: &ClusterMap,
    asker: Asker,
    range: Range<u16>,
    version: u64,
) -> Result<RankId, CommandError> {
    let rank = map.slots.get(range.start).rank;
    let mut highest = (0, range.start);
    for number in range {
        let slot = map.slots.get(number);
        let found = Found::Slot(number, slot);
        is_owner(asker, slot.rank, found)?;
        must(slot.rank == rank, found)?;
        is_still(format_args!("slot {number}"), slot.moving)?;
        highest = highest.max((slot.version, number));
    }
    let found = Found::Slot(highest.1, map.slots.get(highest.1));
    must(highest.0 == version || stdx::mutant!("coord_version_ignored"), found)?;
    Ok(rank)
}

fn can_take(map: &ClusterMap, from: RankId, to: RankId) -> Result<(), CommandError> {
    let why = match map.ranks.get(&to) {
        _ if from == to => "it is that rank's".to_owned(),
        None => "no such rank".to_owned(),
        Some(info) if !moves::may_take(info.state) && !stdx::mutant!("coord_target_inactive") => {
            format!("that rank is {}", info.state.name())
        }
        Some(_) if to.0 >= map.max_mds && !stdx::mutant!("coord_target_inactive") => {
            format!("max_mds is {}", map.max_mds)
        }
        Some(_) => match map.ranks.get(&from) {
            Some(info) if moves::may_give(info.state) => return Ok(()),
            _ => format!("it is rank {}'s, which does not serve", from.0),
        },
    };
    wrong(format!("no move to rank {}: {why}", to.0))
}

fn new_move(next: &mut ClusterMap, to: RankId) -> Moving {
    next.last_move.0 += 1;
    Moving { id: next.last_move, to }
}

/// Announces the move of a unit with an entry.
pub(super) fn begin_unit(next: &mut ClusterMap, unit: Unit, entry: Entry, to: RankId) -> MoveId {
    let moving = new_move(next, to);
    put(next, unit, Entry { moving: Some(moving), ..entry });
    moving.id
}

/// Announces the move of slots of one rank.
pub(super) fn begin_slots(next: &mut ClusterMap, range: Range<u16>, to: RankId) -> MoveId {
    let moving = new_move(next, to);
    let slot = Slot { moving: Some(moving), ..next.slots.get(range.start) };
    put_slots(next, range, slot);
    moving.id
}

/// Ends a move: the other rank has it, or it stays.
pub(super) fn end(plan: &mut Plan, asker: Asker, id: MoveId, switch: bool) -> Result<String, CommandError> {
    let (what, rank, moving) = match moves::find(&plan.next, id) {
        Some(found) => found,
        None => return Err(CommandError::Stale(Found::Move(id))),
    };
    let own = asker.is_none_or(|life| life.rank == rank) || stdx::mutant!("coord_others_switch");
    must(own, Found::Move(id))?;
    let to = moving.to;
    if switch {
        // It may have gone down since the move began, in this very change of the map.
        let takes = plan.next.ranks.get(&to).is_some_and(|info| moves::may_take(info.state));
        must(takes || stdx::mutant!("coord_target_inactive"), Found::Move(id))?;
    }
    let owner = if switch { to } else { rank };
    moves::settle(&mut plan.next, &what, owner);
    if !switch {
        plan.marks.aborted.push((rank, what.piece()));
        return Ok(format!("move {}: given up: {what} stays with rank {}", id.0, rank.0));
    }
    Ok(format!("move {}: {what} from rank {} to rank {}", id.0, rank.0, to.0))
}

/// An entry that the life may change.
fn own_entry(map: &ClusterMap, life: Life, unit: Unit, version: u64) -> Result<Entry, CommandError> {
    let (entry, found) = match map.entries.get(&unit).copied() {
        Some(entry) => (entry, Found::Entry(unit, Some(entry))),
        None => return Err(CommandError::Stale(Found::Entry(unit, None))),
    };
    must(entry.version == version || stdx::mutant!("coord_version_ignored"), found)?;
    is_owner(Some(life), entry.rank, found)?;
    is_still(Named(unit), entry.moving)?;
    Ok(entry)
}

fn drop_entry(
    next: &mut ClusterMap,
    life: Life,
    unit: Unit,
    version: u64,
    why: Dropped,
) -> Result<String, CommandError> {
    if unit == Unit::ROOT {
        return Err(CommandError::Unsupported("the root directory keeps its entry".to_owned()));
    }
    let entry = own_entry(next, life, unit, version)?;
    Arc::make_mut(&mut next.entries).remove(&unit);
    let Dropped::Merged(governing) = why else {
        return Ok(format!("{}: no entry any more: it was purged", Named(unit)));
    };
    // Whoever asks owns both, so nothing changes hands.
    let asker = (!stdx::mutant!("coord_drop_gives_away")).then_some(life);
    if let Err(error) = owner(next, asker, unit, governing) {
        Arc::make_mut(&mut next.entries).insert(unit, entry);
        return Err(error);
    }
    touch(next, governing.by);
    Ok(format!("{}: no entry any more: it is rank {}'s without", Named(unit), entry.rank.0))
}

fn leave(plan: &mut Plan, life: Life) -> Result<String, CommandError> {
    let Life { rank, incarnation } = life;
    let next = &mut plan.next;
    let state = next.ranks.get(&rank).map_or(RankState::Failed, |info| info.state);
    if state != RankState::Stopping {
        return wrong(format!("rank {}: it is not stopping", rank.0));
    }
    if next.is_owner(rank) && !stdx::mutant!("coord_leaves_with_property") {
        return wrong(format!("rank {}: it has entries or slots yet", rank.0));
    }
    take_down(next, rank);
    plan.marks.left.push((rank, incarnation));
    Ok(format!("rank {}: it has nothing left, and ends (incarnation {})", rank.0, incarnation.0))
}
