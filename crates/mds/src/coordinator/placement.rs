//! Which slots go where: a pure function of the table and of the ranks that share it.
//!
//! Absent: when slots move, and how many at a time (`moves`).

use proto::RankId;
use proto::cluster::{SLOTS, Slots};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

/// Slots that another rank should have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shift {
    pub slots: Range<u16>,
    pub from: RankId,
    pub to: RankId,
}

/// A rank that shares the table, and its weight, which is not 0.
pub(super) type Member = (RankId, u16);

/// What has to move so that `ranks` (each once) share the table by their weights, each share rounded down or up, and no more than
/// has to move. A slot on its way counts for the rank it goes to, and is none of what is returned. In ascending order.
pub(super) fn shifts(table: &Slots, ranks: &[Member]) -> Vec<Shift> {
    if ranks.is_empty() {
        return Vec::new();
    }
    let mut room = quotas(table, ranks);
    let mut keep = |owner, range: &Range<u16>| room.get_mut(&owner).map_or(0, |room| take(room, len(range)));
    for (range, owner, _) in owners(table).filter(|(.., settled)| !settled) {
        keep(owner, &range);
    }
    // Whoever has more gives the last of them.
    let mut surplus: Vec<(Range<u16>, RankId)> = Vec::new();
    for (range, owner, _) in owners(table).filter(|(.., settled)| *settled) {
        let kept = keep(owner, &range);
        if kept < len(&range) {
            surplus.push((range.start + kept..range.end, owner));
        }
    }
    let mut receivers = room.into_iter().filter(|(_, room)| *room > 0);
    let mut receiver = receivers.next();
    let mut shifts = Vec::new();
    for (mut slots, from) in surplus {
        while !slots.is_empty() {
            let Some((to, room)) = &mut receiver else { return shifts };
            let count = take(room, len(&slots));
            shifts.push(Shift { slots: slots.start..slots.start + count, from, to: *to });
            slots.start += count;
            if *room == 0 {
                receiver = receivers.next();
            }
        }
    }
    shifts
}

/// How many slots each rank is to have: those that have most, beside their shares, get the odd ones.
fn quotas(table: &Slots, ranks: &[Member]) -> BTreeMap<RankId, u16> {
    let mut has: BTreeMap<RankId, u16> = ranks.iter().map(|(rank, _)| (*rank, 0)).collect();
    for (range, owner, _) in owners(table) {
        if let Some(has) = has.get_mut(&owner) {
            *has += len(&range);
        }
    }
    let all: u32 = ranks.iter().map(|(_, weight)| u32::from(*weight)).sum();
    let share = |weight: u16| (u32::from(SLOTS) * u32::from(weight) / all) as u16;
    let odd = SLOTS - ranks.iter().map(|(_, weight)| share(*weight)).sum::<u16>();
    // More than one odd one is not kept, so whoever has more than that has no better claim: what is on its way here does not decide.
    let keeps = |(rank, weight): &Member| {
        let share = share(*weight);
        i32::from(has[rank].min(share + 1)) - i32::from(share)
    };
    let mut order: Vec<Member> = ranks.to_vec();
    order.sort_by_key(|member| (Reverse(keeps(member)), member.0));
    let quota = |(place, (rank, weight)): (usize, Member)| {
        (rank, share(weight) + u16::from(place < usize::from(odd)))
    };
    order.into_iter().enumerate().map(quota).collect()
}

/// Runs of slots, whose they are or will be, and whether they are not on their way.
fn owners(table: &Slots) -> impl Iterator<Item = (Range<u16>, RankId, bool)> + '_ {
    table.runs().map(|(range, slot)| match slot.moving {
        None => (range, slot.rank, true),
        Some(moving) => (range, moving.to, false),
    })
}

const fn len(range: &Range<u16>) -> u16 {
    range.end - range.start
}

fn take(from: &mut u16, most: u16) -> u16 {
    let taken = most.min(*from);
    *from -= taken;
    taken
}
