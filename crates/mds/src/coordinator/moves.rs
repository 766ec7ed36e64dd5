//! Moves that the coordinator begins and ends by itself: slots that are not where they should be, what a rank has that goes, and what
//! cannot go on because a rank lost its life.
//!
//! Absent: where slots should be (`placement`); moves that others ask for (`changes`).

use super::ask::Named;
use super::changes::{begin_slots, begin_unit};
use super::placement::{Member, shifts};
use super::plan::{Plan, View};
use super::seen::Piece;
use crate::output::Level;
use proto::RankId;
use proto::cluster::{
    ClusterMap, Entry, Mask, MoveId, Moving, Policy, RankInfo, RankState, Slot, Unit, WEIGHT, WEIGHT_MAX,
};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Moves under way beyond which the coordinator begins none.
const MOVES_MAX: usize = 8;
/// Slots of one move that it begins.
const MOVED_SLOTS_MAX: u16 = 32;

/// Whether a rank can carry out moves of what it has.
pub(super) const fn may_give(state: RankState) -> bool {
    matches!(state, RankState::Active | RankState::Stopping)
}

/// Whether a rank can be given anything.
pub(super) const fn may_take(state: RankState) -> bool {
    matches!(state, RankState::Active)
}

/// What has a move's number.
#[derive(Clone, Debug)]
pub(super) enum What {
    Entry(Unit, Entry),
    Slots(Range<u16>),
}

impl What {
    pub(super) const fn piece(&self) -> Piece {
        match self {
            Self::Entry(unit, _) => Piece::Unit(*unit),
            Self::Slots(range) => Piece::Slots(range.start),
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Entry(unit, _) => Named(*unit).fmt(f),
            Self::Slots(range) => write!(f, "slots {} to {}", range.start, range.end - 1),
        }
    }
}

/// All that is under way: what moves, whose it is, and where it goes.
fn under_way(map: &ClusterMap) -> impl Iterator<Item = (What, RankId, Moving)> + '_ {
    let entry =
        |(unit, entry): (&Unit, &Entry)| Some((What::Entry(*unit, *entry), entry.rank, entry.moving?));
    let slots = |(range, slot): (Range<u16>, Slot)| Some((What::Slots(range), slot.rank, slot.moving?));
    map.entries.iter().filter_map(entry).chain(map.slots.runs().filter_map(slots))
}

pub(super) fn find(map: &ClusterMap, id: MoveId) -> Option<(What, RankId, Moving)> {
    under_way(map).find(|(.., moving)| moving.id == id)
}

/// Takes a move's number out; `rank` has it from then on.
pub(super) fn settle(next: &mut ClusterMap, what: &What, rank: RankId) {
    let version = next.version;
    match what {
        What::Entry(unit, entry) => {
            let entry = Entry { rank, version, moving: None, ..*entry };
            Arc::make_mut(&mut next.entries).insert(*unit, entry);
        }
        What::Slots(range) => {
            Arc::make_mut(&mut next.slots).set(range.clone(), Slot { rank, version, moving: None });
        }
    }
}

/// Gives up what a rank moved that does not live on, and what was on its way to one.
pub(super) fn end_lost(plan: &mut Plan, base: &ClusterMap, begun: bool) {
    // Otherwise the map was left so that there are none.
    if (begun && plan.next.ranks == base.ranks) || stdx::mutant!("coord_move_outlives_life") {
        return;
    }
    let lives_on = |rank: RankId, may: fn(RankState) -> bool| {
        let (was, is) = (base.ranks.get(&rank), plan.next.ranks.get(&rank));
        is.is_some_and(|is| may(is.state) && was.is_some_and(|was| was.incarnation == is.incarnation))
    };
    let lost: Vec<_> = under_way(&plan.next)
        .filter(|(_, rank, moving)| !lives_on(*rank, may_give) || !lives_on(moving.to, may_take))
        .collect();
    for (what, rank, moving) in lost {
        settle(&mut plan.next, &what, rank);
        let text = format!(
            "move {}: given up: {what} stays with rank {}: it or rank {} does not serve as it did",
            moving.id.0, rank.0, moving.to.0
        );
        plan.notes.push((Level::Warn, text));
    }
}

/// Something that should be another rank's.
enum Due {
    Entry(Unit, Entry, RankId),
    Slots(Range<u16>, RankId, RankId),
}

impl Due {
    /// Who has it, and who should.
    const fn between(&self) -> (RankId, RankId) {
        match self {
            Self::Entry(_, entry, to) => (entry.rank, *to),
            Self::Slots(_, from, to) => (*from, *to),
        }
    }
}

/// Begins some of the moves that are due.
pub(super) fn begin_due(plan: &mut Plan, view: View<'_>) {
    let stopping = |(rank, info): (&RankId, &RankInfo)| (info.state == RankState::Stopping).then_some(*rank);
    let goes = plan.next.ranks.iter().find_map(stopping);
    let mut busy = BTreeSet::new();
    if !stdx::mutant!("coord_begins_again_at_once") {
        busy.extend(plan.marks.aborted.iter().map(|(rank, _)| *rank));
    }
    let mut count = 0;
    for (_, rank, _) in under_way(&plan.next) {
        busy.insert(rank);
        count += 1;
    }
    let at_once = stdx::mutant!("coord_moves_at_once");
    let state = |rank| plan.next.ranks.get(&rank).map_or(RankState::Failed, |info| info.state);
    let gives = |rank: RankId| {
        let waits = busy.contains(&rank) || view.seen.is_paused(rank, view.now);
        may_give(state(rank)) && (!waits || at_once)
    };
    let mut due = due_entries(&plan.next, view, goes, gives);
    due.extend(due_slots(&plan.next, view, goes));
    due.retain(|due| {
        let (from, to) = due.between();
        gives(from) && may_take(state(to))
    });
    for due in due {
        let (from, to) = due.between();
        if (busy.contains(&from) || count >= MOVES_MAX) && !at_once {
            continue;
        }
        busy.insert(from);
        count += 1;
        let text = match due {
            Due::Entry(unit, entry, to) => {
                let id = begin_unit(&mut plan.next, unit, entry, to);
                format!("move {}: {} from rank {} to rank {}", id.0, Named(unit), from.0, to.0)
            }
            Due::Slots(range, ..) => {
                let last = if at_once { range.end } else { range.end.min(range.start + MOVED_SLOTS_MAX) };
                let id = begin_slots(&mut plan.next, range.start..last, to);
                let (first, last) = (range.start, last - 1);
                format!("move {}: slots {first} to {last} from rank {} to rank {}", id.0, from.0, to.0)
            }
        };
        plan.notes.push((Level::Info, text));
    }
}

/// Whether the operator lets the rank be given what nobody placed by name.
fn is_allowed(map: &ClusterMap, rank: RankId) -> bool {
    rank.0 < map.max_mds && (map.bal_rank_mask.has(rank) || stdx::mutant!("coord_mask_ignored"))
}

fn weight_of(map: &ClusterMap, rank: RankId) -> u16 {
    if stdx::mutant!("coord_weights_ignored") { WEIGHT } else { map.weight(rank) }
}

/// What an entry counts for, however little is asked of it.
const LEAST_US: u64 = 1_000;

/// The entries of a rank that goes, and those that nobody pinned of ranks that are not to have any, those of which most is asked first: each to
/// the rank of which least is asked then, for its weight. Of each rank that can give something now one: more it does not move at a time, and
/// what others cannot give was in its way while the first few of all were taken.
fn due_entries(
    map: &ClusterMap,
    view: View<'_>,
    goes: Option<RankId>,
    gives: impl Fn(RankId) -> bool,
) -> Vec<Due> {
    let seen = view.seen;
    let masked = |rank: RankId| {
        map.bal_rank_mask != Mask::NONE
            && !map.bal_rank_mask.has(rank)
            && !stdx::mutant!("coord_mask_keeps_entries")
    };
    let is_due = |unit: &Unit, entry: &Entry| {
        let carved = matches!(entry.policy, Policy::Carved) && *unit != Unit::ROOT;
        entry.moving.is_none() && (Some(entry.rank) == goes || (carved && masked(entry.rank)))
    };
    let is_free = |unit: &Unit, entry: &Entry| {
        let gives = gives(entry.rank) || stdx::mutant!("coord_first_cannot_give");
        gives && !seen.is_stuck(Piece::Unit(*unit), view.now)
    };
    let mut due: Vec<(Unit, Entry)> = map
        .entries
        .iter()
        .filter(|(unit, entry)| is_due(unit, entry) && is_free(unit, entry))
        .map(|(unit, entry)| (*unit, *entry))
        .collect();
    if due.is_empty() {
        return Vec::new();
    }
    let loads = if stdx::mutant!("coord_loads_ignored") { BTreeMap::new() } else { seen.loads_of_entries() };
    let load = |unit: &Unit| loads.get(&unit.dir).copied().unwrap_or(0).saturating_add(LEAST_US);
    due.sort_by_key(|(unit, _)| (Reverse(load(unit)), *unit));
    let mut givers = BTreeSet::new();
    if stdx::mutant!("coord_first_cannot_give") {
        due.truncate(MOVES_MAX);
    } else if !stdx::mutant!("coord_moves_at_once") {
        due.retain(|(_, entry)| givers.insert(entry.rank));
    }

    let takers = map.ranks.iter().filter(|(rank, info)| may_take(info.state) && is_allowed(map, **rank));
    let slots = |info: &RankInfo| seen.load_of_slots(info.daemon);
    let mut has: BTreeMap<RankId, u64> = takers.map(|(rank, info)| (*rank, slots(info))).collect();
    // What only the mask wants elsewhere stays, if nobody may have it.
    if has.is_empty() {
        let Some(goes) = goes else { return Vec::new() };
        let own = due.into_iter().filter(|(_, entry)| entry.rank == goes);
        return own.map(|(unit, entry)| Due::Entry(unit, entry, RankId(0))).collect();
    }
    for (unit, entry) in map.entries.iter() {
        let owner = entry.moving.map_or(entry.rank, |moving| moving.to);
        if let Some(sum) = has.get_mut(&owner) {
            *sum = sum.saturating_add(load(unit));
        }
    }
    let give = |(unit, entry): (Unit, Entry)| {
        let asked = |(rank, sum): &(&RankId, &mut u64)| {
            (sum.saturating_mul(WEIGHT_MAX.into()) / u64::from(weight_of(map, **rank)), **rank)
        };
        let (to, sum) = has.iter_mut().min_by_key(asked)?;
        *sum = sum.saturating_add(load(&unit));
        Some(Due::Entry(unit, entry, *to))
    };
    due.into_iter().map_while(give).collect()
}

/// The slots that are not where they should be. While a rank goes only those that can be given something count: what others are to have
/// it would keep, and stay with that. When they are back the shares are made even.
fn due_slots(map: &ClusterMap, view: View<'_>, goes: Option<RankId>) -> Vec<Due> {
    let used = map.slots.runs().any(|(_, slot)| slot.rank != RankId(0) || slot.moving.is_some());
    if !map.slots_used && !used {
        return Vec::new();
    }
    let stays = |state: RankState| state != RankState::Stopping && state != RankState::Creating;
    let counts = |state| match goes {
        Some(_) if !stdx::mutant!("coord_absent_share") => may_take(state),
        Some(_) | None => stays(state),
    };
    let shares = |rank: RankId, state| map.made.has(rank) && is_allowed(map, rank) && counts(state);
    let members = map.ranks.iter().filter(|(rank, info)| shares(**rank, info.state));
    let mut ranks: Vec<Member> = members.map(|(rank, _)| (*rank, weight_of(map, *rank))).collect();
    if ranks.is_empty() {
        ranks.push((RankId(0), WEIGHT));
    }
    let off = map.bal_rank_mask == Mask::NONE;
    (shifts(&map.slots, &ranks).into_iter())
        .filter(|shift| !off || Some(shift.from) == goes)
        .filter_map(|shift| {
            let mut firsts = shift.slots.clone().step_by(usize::from(MOVED_SLOTS_MAX));
            let first = firsts.find(|first| !view.seen.is_stuck(Piece::Slots(*first), view.now))?;
            Some(Due::Slots(first..shift.slots.end, shift.from, shift.to))
        })
        .collect()
}
