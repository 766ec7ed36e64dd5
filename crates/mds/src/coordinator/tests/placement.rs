//! Tables of slots at random, and what is made of them.
//!
//! Absent: when slots move (`moves`).

use crate::coordinator::placement::{Member, Shift, shifts as weighed};
use proto::RankId;
use proto::cluster::{MoveId, Moving, SLOTS, Slot, Slots, WEIGHT, WEIGHT_MAX};
use std::collections::BTreeMap;
use stdx::Prng;

fn slot(rank: u16) -> Slot {
    Slot { rank: RankId(rank), version: 1, moving: None }
}

fn ranks(numbers: impl IntoIterator<Item = u16>) -> Vec<RankId> {
    numbers.into_iter().map(RankId).collect()
}

/// Among ranks of one weight.
fn shifts(table: &Slots, ranks: &[RankId]) -> Vec<Shift> {
    let members: Vec<Member> = ranks.iter().map(|rank| (*rank, WEIGHT)).collect();
    weighed(table, &members)
}

fn some_table(dice: &mut Prng, on_the_way: bool) -> Slots {
    let mut table = Slots::all(slot(0));
    for _ in 0..dice.below(200) {
        let first = dice.below(u64::from(SLOTS)) as u16;
        let mut slot = slot(dice.below(12) as u16);
        slot.version = dice.below(3) + 1;
        let to = RankId(dice.below(12) as u16);
        if on_the_way && dice.chance(1, 3) && to != slot.rank {
            slot.moving = Some(Moving { id: MoveId(1 + dice.below(99)), to });
        }
        table.set(first..first + 1 + dice.below(300) as u16, slot);
    }
    table
}

fn carried_out(table: &Slots, shifts: &[Shift]) -> Slots {
    let mut table = table.clone();
    for Shift { slots, from, to } in shifts {
        for number in slots.clone() {
            let mut slot = table.get(number);
            assert_eq!((slot.rank, slot.moving), (*from, None), "slot {number}");
            assert_ne!(from, to);
            slot.rank = *to;
            table.set(number..number + 1, slot);
        }
    }
    table
}

fn counts(table: &Slots) -> BTreeMap<RankId, u16> {
    let mut counts = BTreeMap::new();
    for (range, slot) in table.runs() {
        let owner = slot.moving.map_or(slot.rank, |moving| moving.to);
        *counts.entry(owner).or_default() += range.end - range.start;
    }
    counts
}

fn moved(shifts: &[Shift]) -> u16 {
    shifts.iter().map(|shift| shift.slots.end - shift.slots.start).sum()
}

#[test]
fn a_table_is_shared_evenly_and_no_more_moves_than_must() {
    let mut dice = Prng::new(1);
    for _ in 0..300 {
        let table = some_table(&mut dice, false);
        let members = ranks((0..14).filter(|_| dice.chance(2, 3)));
        let shifts = shifts(&table, &members);
        let Some(share) = SLOTS.checked_div(members.len() as u16) else {
            assert_eq!(shifts, []);
            continue;
        };
        let (before, after) = (counts(&table), counts(&carried_out(&table, &shifts)));
        assert_eq!(after.keys().copied().collect::<Vec<_>>(), members);
        assert!(after.values().all(|has| (share..=share + 1).contains(has)), "{after:?}");
        // Who gives keeps what it must have, and who takes gives nothing: so it is the least.
        let kept: u16 = before.iter().map(|(rank, has)| after.get(rank).map_or(0, |now| *has.min(now))).sum();
        assert_eq!(moved(&shifts), SLOTS - kept);
        let odd = after.values().filter(|has| **has > share).count() as u16;
        let mut most: Vec<u16> = members.iter().map(|rank| before.get(rank).copied().unwrap_or(0)).collect();
        most.sort_unstable_by(|a, b| b.cmp(a));
        let best = most.iter().enumerate().map(|(at, has)| (*has).min(share + u16::from(at < odd.into())));
        assert_eq!(kept, best.sum::<u16>(), "another choice of who keeps an odd one keeps more");
    }
}

#[test]
fn an_even_table_stays_and_the_same_is_planned_again() {
    let mut dice = Prng::new(2);
    for _ in 0..100 {
        let table = some_table(&mut dice, true);
        let members = ranks((0..14).filter(|_| dice.chance(2, 3)));
        let planned = shifts(&table, &members);
        assert_eq!(planned, shifts(&table, &members));
        let backwards: Vec<RankId> = members.iter().rev().copied().collect();
        assert_eq!(planned, shifts(&table, &backwards));
        assert!(planned.is_sorted_by(|a, b| a.slots.end <= b.slots.start), "{planned:?}");
        assert_eq!(shifts(&carried_out(&table, &planned), &members), []);
    }
}

/// What is planned while a part is on its way is what was planned before without that part.
#[test]
fn what_is_on_its_way_counts_as_there() {
    let mut dice = Prng::new(3);
    for _ in 0..100 {
        let mut table = some_table(&mut dice, false);
        let members = ranks((0..14).filter(|rank| *rank == 3 || dice.chance(2, 3)));
        let planned = shifts(&table, &members);
        let (begun, rest): (Vec<_>, Vec<_>) = planned.into_iter().partition(|_| dice.chance(1, 2));
        for (id, Shift { slots, to, .. }) in (1..).zip(&begun) {
            for number in slots.clone() {
                let moving = Some(Moving { id: MoveId(id), to: *to });
                table.set(number..number + 1, Slot { moving, ..table.get(number) });
            }
        }
        let again = shifts(&table, &members);
        assert_eq!(moved(&again), moved(&rest));
        assert!(counts(&carried_out(&table, &again)).len() <= members.len());
    }
}

/// The figure that is promised: 20 % of the slots, two more or less, when a fifth rank comes to four.
#[test]
fn a_fifth_rank_gets_a_fifth() {
    let four = {
        let table = Slots::all(slot(0));
        let to_four = shifts(&table, &ranks(0..4));
        assert_eq!(moved(&to_four), 3072);
        carried_out(&table, &to_four)
    };
    assert_eq!(counts(&four).into_values().collect::<Vec<_>>(), [1024; 4]);
    let to_five = shifts(&four, &ranks(0..5));
    assert!(to_five.iter().all(|shift| shift.to == RankId(4)));
    // 19.995 %.
    assert_eq!(moved(&to_five), 819);
    let share = f64::from(moved(&to_five)) / f64::from(SLOTS);
    assert!((0.18..=0.22).contains(&share), "{share}");
    // And goes with it when it goes.
    let five = carried_out(&four, &to_five);
    let back = shifts(&five, &ranks(0..4));
    assert_eq!(moved(&back), 819);
    assert_eq!(counts(&carried_out(&five, &back)), counts(&four));
}

#[test]
fn shares_go_by_weight_and_what_is_shared_so_stays() {
    let mut dice = Prng::new(4);
    for _ in 0..300 {
        let table = some_table(&mut dice, false);
        let ranks = ranks((0..14).filter(|rank| *rank == 3 || dice.chance(2, 3)));
        let weight = |dice: &mut Prng| 1 + dice.below(u64::from(WEIGHT_MAX)) as u16;
        let members: Vec<Member> = ranks.iter().map(|rank| (*rank, weight(&mut dice))).collect();
        let all: u64 = members.iter().map(|(_, weight)| u64::from(*weight)).sum();
        let planned = weighed(&table, &members);
        let after = carried_out(&table, &planned);
        let (before, has) = (counts(&table), counts(&after));
        let of = |counts: &BTreeMap<RankId, u16>, rank| counts.get(&rank).copied().unwrap_or(0);
        for (rank, weight) in &members {
            let share = (u64::from(SLOTS) * u64::from(*weight) / all) as u16;
            assert!((share..=share + 1).contains(&of(&has, *rank)), "{members:?}: {has:?}");
        }
        assert_eq!(has.values().sum::<u16>(), SLOTS, "somebody else has some");
        let kept: u16 = members.iter().map(|(rank, _)| of(&before, *rank).min(of(&has, *rank))).sum();
        assert_eq!(moved(&planned), SLOTS - kept, "who takes gives nothing");
        assert_eq!(weighed(&after, &members), []);
    }
}

#[test]
fn there_may_be_256_ranks() {
    let all = ranks(0..256);
    let table = carried_out(&Slots::all(slot(0)), &shifts(&Slots::all(slot(0)), &all));
    assert_eq!(counts(&table).into_values().collect::<Vec<_>>(), [16; 256]);
}
