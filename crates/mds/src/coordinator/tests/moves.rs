//! Moves that the coordinator begins: slots, and what a rank has that goes; and operators' words about them.
//!
//! Absent: where slots should be (`placement`).

use super::*;
use proto::cluster::{Mask, MoveId, Moving, Policy, SLOTS};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Moves under way: id, from, to, slots (0: an entry).
fn under_way(map: &ClusterMap) -> Vec<(MoveId, u16, u16, u16)> {
    let entries = map.entries.values().filter_map(|entry| {
        let Moving { id, to } = entry.moving?;
        Some((id, entry.rank.0, to.0, 0))
    });
    let slots = map.slots.runs().filter_map(|(range, slot)| {
        let Moving { id, to } = slot.moving?;
        Some((id, slot.rank.0, to.0, range.end - range.start))
    });
    entries.chain(slots).collect()
}

/// How many slots each rank has, moves not counted.
fn shares(map: &ClusterMap) -> BTreeMap<u16, u16> {
    let mut shares = BTreeMap::new();
    for (range, slot) in map.slots.runs() {
        *shares.entry(slot.rank.0).or_default() += range.end - range.start;
    }
    shares
}

/// Ranks carry out every move; how many moves and slots that were, and how many moves were under way at most.
fn carry_out(w: &mut World) -> (usize, u16, usize) {
    let (mut moves, mut slots, mut most) = (0, 0, 0);
    loop {
        let now = under_way(&w.stored());
        most = most.max(now.len());
        let exporters: BTreeSet<u16> = now.iter().map(|(_, from, ..)| *from).collect();
        assert_eq!(exporters.len(), now.len(), "one at a time of each: {now:?}");
        assert!(now.iter().all(|(.., slots)| *slots <= 32), "{now:?}");
        let Some((id, from, _, count)) = now.first().copied() else { return (moves, slots, most) };
        w.ask(from, Ask::Switch { id }).expect("it is under way");
        (moves, slots) = (moves + 1, slots + count);
        assert!(moves < 1_000, "moves do not end");
    }
}

/// Ranks share the slots.
fn spread(ranks: u16) -> World {
    let mut w = several(ranks);
    assert!(w.command(Command::SetHashPlacement(true)).is_ok());
    carry_out(&mut w);
    let share = SLOTS / ranks;
    assert!(shares(&w.stored()).values().all(|slots| (share..=share + 1).contains(slots)));
    w
}

/// Entries of a rank, without moves.
fn give_entries(w: &mut World, first: u64, count: u64, rank: u16) {
    let mut map = w.stored();
    map.version += 1;
    let version = map.version;
    let entry = Entry { rank: RankId(rank), version, policy: Policy::Pin, moving: None };
    Arc::make_mut(&mut map.entries).extend((first..first + count).map(|number| (dir(number), entry)));
    *w.registry.borrow_mut() = Some((version, map.encode()));
    // Whatever is swapped next finds a newer map, and is planned anew.
    assert!(w.command(Command::SetJoinable(false)).is_ok());
    assert!(w.command(Command::SetJoinable(true)).is_ok());
    assert_eq!(w.stored().entries.len() as u64, 1 + count);
}

fn owners(w: &World) -> BTreeMap<u16, usize> {
    let mut owners = BTreeMap::new();
    for (unit, entry) in w.stored().entries.iter() {
        if *unit != Unit::ROOT {
            *owners.entry(entry.rank.0).or_default() += 1;
        }
    }
    owners
}

#[test]
fn slots_are_spread_a_few_at_a_time_while_they_are_used() {
    let mut w = several(4);
    w.live(60 * SECOND);
    assert_eq!(under_way(&w.stored()), [], "nobody uses them");
    assert!(w.command(Command::SetHashPlacement(true)).is_ok());
    assert_eq!(w.notes("move 1: slots 1024 to 1055 from rank 0 to rank 1"), 1, "{:?}", w.said);
    assert_eq!(under_way(&w.stored()).len(), 1, "rank 0 has them all");
    w.live(60 * SECOND);
    assert_eq!(under_way(&w.stored()).len(), 1, "it has not answered");
    let (moves, slots, most) = carry_out(&mut w);
    assert_eq!((moves, slots, most), (96, 3072, 1));
    assert_eq!(shares(&w.stored()), BTreeMap::from([(0, 1024), (1, 1024), (2, 1024), (3, 1024)]));
    // What is in use stays shared.
    assert!(w.command(Command::SetHashPlacement(false)).is_ok());
    assert_eq!(under_way(&w.stored()), []);
}

#[test]
fn a_fifth_rank_gets_its_share_and_others_keep_theirs() {
    let mut w = spread(4);
    assert!(w.command(Command::SetMaxMds(5)).is_ok());
    assert_eq!(w.state(4), RankState::Active);
    let now = under_way(&w.stored());
    assert!(now.iter().all(|(_, _, to, _)| *to == 4));
    assert_eq!(now.len(), 4, "each gives some: {now:?}");
    let (_, slots, most) = carry_out(&mut w);
    assert_eq!((slots, most), (819, 4));
    assert_eq!(shares(&w.stored()).values().copied().collect::<Vec<_>>(), [820, 819, 819, 819, 819]);
}

/// Three that are asked for much and six for little: each rank gets its part of what is asked for.
#[test]
fn what_is_handed_over_is_spread_by_load() {
    let mut w = several(4);
    give_entries(&mut w, 100, 9, 3);
    let daemon = w.stored().ranks[&RankId(3)].daemon;
    let loads =
        (100..109).map(|number| (dir(number).dir, if number < 103 { 200_000 } else { 1_000 })).collect();
    w.give(Input::Loads { daemon, loads });
    // What it says of ranks' slots counts, too.
    let slots = w.stored().ranks[&RankId(1)].daemon;
    w.give(Input::Loads { daemon: slots, loads: vec![(proto::Ino::NONE, 300_000)] });
    assert!(w.command(Command::SetMaxMds(3)).is_ok());
    carry_out(&mut w);
    let of = |rank: u16, numbers: std::ops::Range<u64>| {
        let map = w.stored();
        numbers.filter(|number| map.entries[&dir(*number)].rank == RankId(rank)).count()
    };
    assert_eq!([0, 1, 2].map(|rank| of(rank, 100..103)), [1, 0, 2], "those that are asked for most");
    assert_eq!([0, 1, 2].map(|rank| of(rank, 100..109)), [7, 0, 2]);
}

/// What nobody pinned leaves ranks that are not to have it, for those that are; what is pinned stays.
#[test]
pub(super) fn ranks_outside_the_mask_hand_over_what_nobody_pinned() {
    let mut w = several(4);
    give_entries(&mut w, 100, 8, 2);
    let mut map = w.stored();
    map.version += 1;
    let version = map.version;
    for (unit, entry) in Arc::make_mut(&mut map.entries).iter_mut().skip(1).step_by(2) {
        assert_ne!(*unit, Unit::ROOT);
        (entry.policy, entry.version) = (Policy::Carved, version);
    }
    *w.registry.borrow_mut() = Some((version, map.encode()));
    assert!(w.command(Command::SetJoinable(true)).is_ok());
    assert!(w.command(Command::SetBalRankMask(Mask([0b0011, 0, 0, 0]))).is_ok());
    carry_out(&mut w);
    assert_eq!(owners(&w), BTreeMap::from([(0, 2), (1, 2), (2, 4)]), "rank 0 has the root's, too");
    let pinned = w.stored().entries.values().filter(|entry| entry.policy == Policy::Pin).count();
    assert_eq!(pinned, 4);
    // An empty one is for a balancer that may do nothing.
    assert!(w.command(Command::SetBalRankMask(Mask::NONE)).is_ok());
    assert_eq!(under_way(&w.stored()), []);
}

#[test]
fn eight_moves_are_under_way_at_most() {
    let mut w = spread(12);
    assert!(w.command(Command::SetMaxMds(13)).is_ok());
    assert_eq!(under_way(&w.stored()).len(), 8);
    let (_, slots, most) = carry_out(&mut w);
    assert_eq!((slots, most), (315, 8));
}

#[test]
fn a_rank_that_gave_a_move_up_is_left_alone_for_a_while() {
    let mut w = several(2);
    assert!(w.command(Command::SetHashPlacement(true)).is_ok());
    let id = w.stored().last_move;
    assert!(w.ask(0, Ask::Abort { id }).is_ok());
    assert_eq!(under_way(&w.stored()), []);
    w.pass_to(w.now + SECOND - 1);
    assert_eq!(under_way(&w.stored()), []);
    w.pass_to(w.now + 1);
    assert_eq!(under_way(&w.stored()).len(), 1, "after a fifteenth of L");
    // So it is where an operator gave it up.
    let id = w.stored().last_move;
    assert_eq!(
        w.command(Command::CancelMove(id)),
        Ok("move 2: given up: slots 2048 to 2079 stays with rank 0".into())
    );
    assert_eq!(under_way(&w.stored()), []);
    assert!(matches!(w.command(Command::CancelMove(id)), Err(CommandError::Stale(Found::Move(_)))));
}

/// Those that come back soon keep what they have; only who serves gives and takes.
#[test]
fn a_failed_rank_keeps_its_slots() {
    let mut w = spread(3);
    let before = shares(&w.stored());
    assert!(w.command(Command::SetJoinable(false)).is_ok());
    w.kill(1);
    w.live(60 * SECOND);
    assert_eq!((w.state(1), under_way(&w.stored()).len()), (RankState::Failed, 0));
    assert!(w.command(Command::SetJoinable(true)).is_ok());
    assert_eq!((w.state(1), shares(&w.stored())), (RankState::Active, before));
}

#[test]
fn a_mask_says_who_shares() {
    let mut w = spread(3);
    let mask = Mask::NONE.with(RankId(0)).with(RankId(2));
    assert_eq!(w.command(Command::SetBalRankMask(mask)), Ok("bal_rank_mask is 0x5".into()));
    carry_out(&mut w);
    assert_eq!(shares(&w.stored()), BTreeMap::from([(0, 2048), (2, 2048)]));
    // Nothing is moved by itself, but what a rank has that goes.
    assert_eq!(w.command(Command::SetBalRankMask(Mask::NONE)), Ok("bal_rank_mask is 0x0".into()));
    assert_eq!(under_way(&w.stored()), []);
    assert!(w.command(Command::SetMaxMds(2)).is_ok());
    carry_out(&mut w);
    assert_eq!(shares(&w.stored()), BTreeMap::from([(0, 4096)]));
    assert_eq!(w.command(Command::SetBalRankMask(Mask::ALL)), Ok("bal_rank_mask is all".into()));
    carry_out(&mut w);
    assert_eq!(shares(&w.stored()), BTreeMap::from([(0, 2048), (1, 2048)]));
}

#[test]
fn weights_say_how_much_a_rank_gets() {
    let mut w = spread(3);
    let weigh =
        |w: &mut World, rank, weight| w.command(Command::SetRankWeight { rank: RankId(rank), weight });
    assert_eq!(weigh(&mut w, 1, 200), Ok("rank_weight of rank 1 is 200".into()));
    let (_, moved, _) = carry_out(&mut w);
    assert_eq!(shares(&w.stored()), BTreeMap::from([(0, 1024), (1, 2048), (2, 1024)]));
    assert_eq!(moved, 683, "no more than must");
    // Entries go by it, too.
    give_entries(&mut w, 5000, 30, 2);
    assert!(w.command(Command::SetMaxMds(2)).is_ok());
    carry_out(&mut w);
    assert_eq!(owners(&w), BTreeMap::from([(0, 10), (1, 20)]), "rank 0 has the root's, too");
    // The weight that all have is remembered of nobody.
    assert_eq!(weigh(&mut w, 1, 100), Ok("rank_weight of rank 1 is 100".into()));
    assert!(w.stored().weights.is_empty());
    carry_out(&mut w);
    assert_eq!(shares(&w.stored()), BTreeMap::from([(0, 2048), (1, 2048)]));
    for (rank, weight) in [(0, 0), (0, 1001), (256, 1)] {
        assert!(matches!(weigh(&mut w, rank, weight), Err(CommandError::Unsupported(_))), "{rank} {weight}");
    }
}

#[test]
fn what_a_rank_has_that_goes_is_given_to_those_that_stay() {
    let mut w = spread(4);
    give_entries(&mut w, 5000, 9, 3);
    assert!(w.command(Command::SetBalRankMask(Mask([0b1110, 0, 0, 0]))).is_ok());
    assert!(w.command(Command::SetMaxMds(3)).is_ok());
    assert_eq!(w.state(3), RankState::Stopping);
    let refused = w.ask(3, Ask::Leave).map_err(|error| error.to_string());
    assert_eq!(refused, Err("rank 3: it has entries or slots yet".into()));
    carry_out(&mut w);
    assert_eq!(owners(&w), BTreeMap::from([(1, 5), (2, 4)]), "inside the mask, evenly");
    assert_eq!(shares(&w.stored()), BTreeMap::from([(1, 2048), (2, 2048)]));
    assert!(!w.stored().is_owner(RankId(3)));
    // Only a rank that was told to leaves.
    let refused = w.ask(2, Ask::Leave).map_err(|error| error.to_string());
    assert_eq!(refused, Err("rank 2: it is not stopping".into()));
    w.live(30 * SECOND);
    assert_eq!(w.state(3), RankState::Stopping, "it has not said that it is done");
    assert!(w.ask(3, Ask::Leave).is_ok());
    assert!(!w.stored().ranks.contains_key(&RankId(3)), "{:?}", w.stored().ranks);
    assert_eq!(w.notes("rank 3: gone"), 1);
    // The mask may leave nobody but rank 0.
    give_entries(&mut w, 5000, 9, 2);
    assert!(w.command(Command::SetBalRankMask(Mask::NONE.with(RankId(2)))).is_ok());
    assert!(w.command(Command::SetMaxMds(2)).is_ok());
    carry_out(&mut w);
    assert_eq!(owners(&w), BTreeMap::from([(0, 9)]));
}

/// What broke: one that is damaged had a share, and what it was to have stayed with the rank that was to go, for as long as it was.
#[test]
fn a_rank_goes_while_another_one_is_damaged() {
    let mut w = spread(4);
    assert!(w.command(Command::SetBalRankMask(Mask([0b1011, 0, 0, 0]))).is_ok());
    carry_out(&mut w);
    let (daemon, incarnation) = (w.rank(1).daemon, w.rank(1).incarnation);
    let state = RankState::Damaged;
    w.alive.insert(daemon, BeaconState::Rank { rank: RankId(1), incarnation, state });
    w.beacon(daemon);
    assert_eq!(w.state(1), RankState::Damaged);
    let has = shares(&w.stored())[&1];
    // It has less than is its part.
    assert!(w.command(Command::SetRankWeight { rank: RankId(1), weight: 1_000 }).is_ok());
    assert!(w.command(Command::SetMaxMds(3)).is_ok());
    assert_eq!(w.state(3), RankState::Stopping);
    carry_out(&mut w);
    assert!(!w.stored().is_owner(RankId(3)), "{:?}", shares(&w.stored()));
    assert_eq!(shares(&w.stored())[&1], has);
}

/// What broke: the entry of which most is asked was given up each time, was the first each time, and nothing else of that rank was moved.
#[test]
fn what_cannot_move_keeps_nothing_else_back() {
    let mut w = several(3);
    give_entries(&mut w, 100, 3, 2);
    let daemon = w.rank(2).daemon;
    w.give(Input::Loads { daemon, loads: vec![(dir(100).dir, 500_000)] });
    assert!(w.command(Command::SetMaxMds(2)).is_ok());
    let mut given_up = 0;
    for _ in 0..40 {
        w.live(SECOND / 2);
        let map = w.stored();
        let moving: Vec<_> =
            map.entries.iter().filter_map(|(unit, entry)| Some((*unit, entry.moving?.id))).collect();
        for (unit, id) in moving {
            let stays = unit == dir(100);
            given_up += usize::from(stays);
            let ask = if stays { Ask::Abort { id } } else { Ask::Switch { id } };
            assert!(w.ask(2, ask).is_ok());
        }
    }
    assert_eq!(w.stored().entries.values().filter(|entry| entry.rank == RankId(2)).count(), 1);
    assert!((3..=6).contains(&given_up), "less and less often: {given_up}");
}

/// What broke: the eight of which most is asked were of a rank that had failed, and those of others were not looked at.
#[test]
fn what_a_failed_rank_has_keeps_nothing_else_back() {
    let mut w = several(4);
    give_entries(&mut w, 100, 12, 2);
    let mut map = w.stored();
    map.version += 1;
    let version = map.version;
    for (unit, entry) in Arc::make_mut(&mut map.entries).iter_mut().filter(|(unit, _)| **unit != Unit::ROOT) {
        (entry.policy, entry.version) = (Policy::Carved, version);
        if *unit >= dir(110) {
            entry.rank = RankId(3);
        }
    }
    *w.registry.borrow_mut() = Some((version, map.encode()));
    assert!(w.command(Command::SetJoinable(false)).is_ok());
    w.kill(2);
    assert_eq!(w.state(2), RankState::Failed);
    assert!(w.command(Command::SetBalRankMask(Mask([0b0011, 0, 0, 0]))).is_ok());
    carry_out(&mut w);
    assert_eq!(owners(&w).get(&3), None, "{:?}", owners(&w));
    assert_eq!(owners(&w).get(&2), Some(&10));
}

/// What was on its way to a rank when it was told to stop stays.
#[test]
fn nothing_comes_to_a_rank_that_goes() {
    let mut w = several(3);
    let root = w.entry(Unit::ROOT).map_or(0, |root| root.version);
    let governing = Governing { by: Governor::Entry(Unit::ROOT), version: root };
    let moved = Subject::Unit { unit: dir(5000), governing };
    let to = RankId(2);
    assert_eq!(
        w.command(Command::Move { moved, to }),
        Ok("move 1: directory 0x1388 from rank 0 to rank 2".into())
    );
    assert!(w.command(Command::SetMaxMds(2)).is_ok());
    assert_eq!(w.state(2), RankState::Stopping);
    assert_eq!(under_way(&w.stored()), []);
}

/// A rank that left has no life that could write or answer, so that it may be given one at once whenever it is wanted again.
#[test]
fn a_rank_is_gone_when_its_last_life_is_over_for_certain() {
    let mut w = several(2);
    let daemon = w.rank(1).daemon;
    assert!(w.command(Command::SetMaxMds(1)).is_ok());
    w.obedient = false;
    w.hold_fences = true;
    w.beacon(daemon);
    let heard = w.now;
    assert!(w.ask(1, Ask::Leave).is_ok());
    assert_eq!(w.state(1), RankState::Failed);
    assert_eq!(w.count(|output| matches!(output, Output::Dismiss { daemon: of } if *of == daemon)), 1);
    // It is wanted again before: then it is a rank that failed.
    assert!(w.command(Command::SetMaxMds(2)).is_ok());
    let lives = w.lives();
    w.live(PATIENCE);
    assert_eq!((w.state(1), w.lives()), (RankState::Failed, lives.clone()), "not fenced");
    assert!(w.command(Command::SetMaxMds(1)).is_ok());
    assert_eq!(w.state(1), RankState::Failed);
    w.let_go();
    assert!(!w.stored().ranks.contains_key(&RankId(1)));
    assert_eq!((w.lives(), w.now), (lives, heard + PATIENCE), "it was given no other");
    assert!(w.command(Command::SetMaxMds(2)).is_ok());
    assert_eq!(w.state(1), RankState::Active);
    assert_eq!(w.notes("rank 1: replay on"), 1, "what was made for it is there");
}

#[test]
fn the_lease_of_a_rank_that_left_runs_out_first() {
    let mut w = several(2);
    let daemon = w.rank(1).daemon;
    assert!(w.command(Command::SetMaxMds(1)).is_ok());
    w.obedient = false;
    w.beacon(daemon);
    let heard = w.now;
    assert!(w.ask(1, Ask::Leave).is_ok());
    w.live(PATIENCE - 1);
    assert_eq!(w.state(1), RankState::Failed, "fenced, and it may still answer");
    w.live(1);
    assert!(!w.stored().ranks.contains_key(&RankId(1)));
    assert_eq!(w.now, heard + PATIENCE);
}

/// A coordinator that did not hear that a rank left lets it say so again.
#[test]
fn a_rank_whose_leaving_was_forgotten_leaves_again() {
    let mut w = several(2);
    assert!(w.command(Command::SetMaxMds(1)).is_ok());
    w.hold_fences = true;
    assert!(w.ask(1, Ask::Leave).is_ok());
    let mut next = w.beside(true);
    for _ in 0..2 {
        next.register("n");
    }
    assert_eq!(next.state(1), RankState::Stopping, "{:?}", next.stored().ranks);
    assert!(next.ask(1, Ask::Leave).is_ok());
    assert!(!next.stored().ranks.contains_key(&RankId(1)));
}

#[test]
fn a_rank_that_stops_and_fails_stops_in_its_next_life() {
    let mut w = spread(2);
    assert!(w.command(Command::SetMaxMds(1)).is_ok());
    assert_eq!(under_way(&w.stored()).len(), 1);
    w.kill(1);
    assert_eq!(w.state(1), RankState::Stopping);
    let (_, slots, _) = carry_out(&mut w);
    assert_eq!((slots, shares(&w.stored())), (2048, BTreeMap::from([(0, 4096)])));
    assert!(w.ask(1, Ask::Leave).is_ok());
    assert_eq!(w.stored().ranks.len(), 1);
}

#[test]
fn a_rank_that_was_never_made_goes_without_another_life() {
    let mut w = World::sole();
    let (_, b) = (w.register("a"), w.register("b"));
    w.alive.remove(&b);
    assert!(w.command(Command::SetMaxMds(2)).is_ok());
    assert_eq!(w.state(1), RankState::Creating);
    assert!(w.command(Command::SetMaxMds(1)).is_ok());
    w.register("c");
    w.hold_fences = true;
    w.give(Input::Gone { daemon: b });
    assert_eq!(w.state(1), RankState::Failed);
    w.let_go();
    assert_eq!(w.stored().ranks.len(), 1);
    assert_eq!(w.lives().len(), 2, "ranks 0 and 1, once each");
}

#[cfg(feature = "mutants")]
#[test]
fn defects_of_moves_are_caught() {
    let defects: [(&str, fn()); 13] = [
        ("coord_absent_share", a_rank_goes_while_another_one_is_damaged),
        ("coord_stuck_goes_first", what_cannot_move_keeps_nothing_else_back),
        ("coord_first_cannot_give", what_a_failed_rank_has_keeps_nothing_else_back),
        ("coord_loads_ignored", what_is_handed_over_is_spread_by_load),
        ("coord_weights_ignored", weights_say_how_much_a_rank_gets),
        ("coord_mask_keeps_entries", ranks_outside_the_mask_hand_over_what_nobody_pinned),
        ("coord_placement_without_slots", slots_are_spread_a_few_at_a_time_while_they_are_used),
        ("coord_moves_at_once", slots_are_spread_a_few_at_a_time_while_they_are_used),
        ("coord_begins_again_at_once", a_rank_that_gave_a_move_up_is_left_alone_for_a_while),
        ("coord_mask_ignored", a_mask_says_who_shares),
        ("coord_leaves_with_property", what_a_rank_has_that_goes_is_given_to_those_that_stay),
        ("coord_left_unfenced", a_rank_is_gone_when_its_last_life_is_over_for_certain),
        ("coord_left_unfenced", the_lease_of_a_rank_that_left_runs_out_first),
    ];
    for (defect, test) in defects {
        stdx::mutant::activate(Some(defect));
        let verdict = std::panic::catch_unwind(test);
        stdx::mutant::activate(None);
        assert!(verdict.is_err(), "{defect}");
    }
}
