//! Opens and locks of inodes that go to another rank: in whose books they are.
//!
//! Absent: how the new rank hears of them (`mds`).

use super::*;

/// It is open, and locked, at rank 0.
fn with_held() -> (Bench, NodeRef) {
    let mut bench = Bench::of_two();
    let file = NodeRef { ino: Ino(8001), parent: Ino(8000), hash: proto::NameHash(1) };
    bench.call(1, Request::Open { node: file, flags: 2 });
    bench.reply(0, 1, Ok(Reply::Attr(attr(8001, Ino(8000)))));
    bench.call(2, Request::SetLock { node: file, lock: lock(), wait: false });
    bench.reply(0, 2, Ok(Reply::Ok));
    assert_eq!(bench.router.opens(file.ino), 1);
    (bench, file)
}

fn reclaimed(said: &Said, from: u16) -> Vec<(Ino, u32, usize)> {
    let reclaim = |message: &ClientMsg| match message {
        ClientMsg::Reclaim { node, count, locks, .. } => Some((node.ino, *count, locks.len())),
        _ => None,
    };
    said.sent(from).iter().filter_map(reclaim).collect()
}

fn again(bench: &mut Bench, rank: u16) -> Vec<(Ino, u32, usize)> {
    bench.step(Input::Disconnected { rank: RankId(rank) });
    bench.step(Input::Connected { rank: RankId(rank) });
    reclaimed(&bench.welcome(rank, 5, true), rank)
}

#[test]
fn what_is_held_is_in_the_books_of_whoever_answers_for_it() {
    let (mut bench, file) = with_held();
    assert_eq!(again(&mut bench, 0), [(file.ino, 1, 1)]);
    let read = Request::Read { node: file, offset: 0, len: 1, into: None };
    assert_eq!(bench.call(3, read).asked(0), [3]);
    assert_eq!(bench.not_mine(0, 3, Some(1), 2).asked(1), [2]);
    let said = bench.reply(1, 2, Ok(Reply::Data(proto::storeio::Payload::Owned(vec![1]))));
    assert_eq!(reclaimed(&said, 1), [(file.ino, 1, 0)], "the rank hears that it may forget it");
    assert_eq!((again(&mut bench, 0), again(&mut bench, 1)), (vec![], vec![(file.ino, 1, 1)]));
    assert_eq!(bench.router.opens(file.ino), 1);
    // Given back where it is now.
    assert_eq!(bench.call(4, Request::ReleaseLocks { node: file, flock: true, owner: 1 }).asked(1), [3]);
    bench.reply(1, 3, Ok(Reply::Ok));
    assert_eq!(bench.call(5, Request::Release { node: file, count: 1 }).asked(1), [4]);
    bench.reply(1, 4, Ok(Reply::Ok));
    assert_eq!((again(&mut bench, 1), bench.router.opens(file.ino)), (vec![], 0));
}

/// What broke: the rank had died since, and counted what it was told of a file that had gone from it. Asked for one of two opens it ended
/// that one; the other kept all that moves there, as long as the client was there.
#[test]
fn what_was_claimed_where_it_is_no_more_is_claimed_there_no_more() {
    let (mut bench, file) = with_held();
    bench.call(3, Request::Open { node: file, flags: 0 });
    bench.reply(0, 3, Ok(Reply::Attr(attr(8001, Ino(8000)))));
    bench.passes(1);
    assert_eq!(again(&mut bench, 0), [(file.ino, 2, 1)]);
    bench.passes(1);
    bench.call(4, Request::Release { node: file, count: 1 });
    assert_eq!(bench.not_mine(0, 4, Some(1), 2).asked(1), [2]);
    let said = bench.reply(1, 2, Ok(Reply::Ok));
    let released = |message: &ClientMsg| match message {
        ClientMsg::Request { request: Request::Release { node, count }, .. } => Some((node.ino, *count)),
        _ => None,
    };
    assert_eq!(said.sent(0).iter().filter_map(released).collect::<Vec<_>>(), [(file.ino, 0)]);
    let said = bench.not_mine(0, 5, Some(1), 2);
    assert_eq!((said.answers(), said.asked(1)), (vec![], vec![]), "it ends there");
    assert_eq!((again(&mut bench, 0), again(&mut bench, 1)), (vec![], vec![(file.ino, 1, 1)]));
}

/// It may have gone back to where it is claimed, before it was.
#[test]
fn an_answer_from_before_the_claim_ends_none() {
    let (mut bench, file) = with_held();
    let link = Request::Link { node: file, parent: PINNED, name: name("a") };
    bench.call(3, link);
    let read = Request::Read { node: file, offset: 0, len: 1, into: None };
    bench.call(4, read);
    assert_eq!(bench.not_mine(0, 3, Some(1), 2).asked(1).len(), 1);
    bench.passes(1);
    assert_eq!(again(&mut bench, 0), [(file.ino, 1, 1)]);
    let said = bench.reply(1, 2, Ok(Reply::Attr(attr(8001, PINNED.ino))));
    assert_eq!(said.asked(0), [], "{:?}", said.0);
}

#[test]
fn one_of_two_opens_that_is_given_back_leaves_the_other() {
    let (mut bench, file) = with_held();
    bench.call(3, Request::Open { node: file, flags: 0 });
    bench.reply(0, 3, Ok(Reply::Attr(attr(8001, Ino(8000)))));
    bench.call(4, Request::Release { node: file, count: 1 });
    assert_eq!(bench.not_mine(0, 4, Some(1), 2).asked(1), [2]);
    bench.reply(1, 2, Ok(Reply::Ok));
    assert_eq!((again(&mut bench, 0), again(&mut bench, 1)), (vec![], vec![(file.ino, 1, 1)]));
}

/// What broke: it was closed, sent on to another rank, and the session ended. Its caller was told so, and it stayed in the books of the
/// rank that it had been opened at, for ever.
#[test]
fn what_is_closed_when_the_session_ends_is_open_nowhere() {
    let (mut bench, file) = with_held();
    bench.router.each_client().for_each(|client| client.recover_clean());
    assert_eq!(bench.call(3, Request::Release { node: file, count: 1 }).asked(0), [3]);
    assert_eq!(bench.not_mine(0, 3, Some(1), 2).asked(1), [2]);
    let refused = ServerMsg::Refused { errno: Errno::ESTALE.0 as u32, reason: "evicted".to_owned() };
    assert_eq!(bench.say(1, refused).answers(), [(3, Err(Errno::EIO))]);
    assert_eq!(bench.router.opens(file.ino), 0);
    bench.step(Input::Connected { rank: RankId(0) });
    assert_eq!(reclaimed(&bench.welcome(0, 6, false), 0), []);
}

/// What broke: the lock was on a file that was gone, and whoever unlocked it claimed it again of a rank that lived again. There it held up
/// all that moves.
#[test]
fn what_is_unlocked_and_gone_is_claimed_no_more() {
    for unlock in [
        |node| Request::SetLock { node, lock: LockSpec { kind: LockKind::Unlock, ..lock() }, wait: false },
        |node| Request::ReleaseLocks { node, flock: true, owner: 1 },
    ] {
        let (mut bench, file) = with_held();
        let mut said = bench.call(3, unlock(file));
        for _ in 0..10_000 {
            let asked: Vec<(u16, u64)> =
                (0..2).flat_map(|rank| said.asked(rank).into_iter().map(move |tid| (rank, tid))).collect();
            said = match asked[..] {
                [] => bench.passes(10),
                [(rank, tid), ..] => bench.not_mine(rank, tid, None, 2),
            };
            if !said.answers().is_empty() {
                break;
            }
        }
        assert_eq!(said.answers(), [(3, Err(Errno::ESTALE))]);
        assert_eq!(again(&mut bench, 0), [(file.ino, 1, 0)]);
    }
}

/// Its directory is rank 1's, and it is where it was when it lost its name.
#[test]
fn a_file_without_a_name_is_asked_for_where_it_was_opened() {
    let (mut bench, file) = with_held();
    let node = NodeRef { parent: PINNED.ino, ..file };
    assert_eq!(bench.call(3, Request::GetAttr { node }).asked(0), [3]);
    let other = NodeRef { ino: Ino(8002), ..node };
    assert_eq!(bench.call(4, Request::GetAttr { node: other }).asked(1), [2]);
}

/// Nobody waits for that it is given back.
#[test]
fn what_is_given_back_unasked_follows_its_inode() {
    let (mut bench, file) = with_held();
    bench.call(3, Request::Open { node: file, flags: 0 });
    bench.step(Input::Abandon { call: CallId(3) });
    let said = bench.reply(0, 3, Ok(Reply::Attr(attr(8001, Ino(8000)))));
    assert_eq!(said.asked(0), [4], "it is given back");
    assert_eq!(bench.not_mine(0, 4, Some(1), 2).asked(1), [2]);
    assert_eq!(bench.reply(1, 2, Ok(Reply::Ok)).answers(), []);
    assert_eq!((again(&mut bench, 0), again(&mut bench, 1)), (vec![], vec![(file.ino, 1, 1)]));
    // Or is nowhere.
    bench.call(5, Request::Release { node: file, count: 1 });
    bench.not_mine(1, 3, None, 2);
    let said = bench.not_mine(0, 5, None, 2);
    assert_eq!((said.answers(), said.asked(1)), (vec![(5, Ok(Reply::Ok))], vec![]), "it goes on alone");
    assert_eq!(bench.passes(1).asked(1), [4], "all are asked once more");
    assert_eq!(bench.router.opens(file.ino), 1);
    assert_eq!(bench.not_mine(1, 4, None, 2).answers(), []);
    assert_eq!(bench.router.opens(file.ino), 0);
}

#[test]
fn a_rank_that_will_have_something_is_joined() {
    let mut bench = Bench::with(&map(2, 3, &[]));
    let said = bench.say(0, ServerMsg::Join { rank: RankId(2), version: 2 });
    assert_eq!(said.0, [Output::Connect { rank: RankId(2) }]);
    assert_eq!(bench.say(0, ServerMsg::Join { rank: RankId(2), version: 2 }).0, [], "once");
    // A rank that is not in its map yet: the map comes first.
    let said = bench.say(0, ServerMsg::Join { rank: RankId(3), version: 3 });
    assert_eq!(said.sent(0), [ClientMsg::WantMap { have: 2 }]);
    bench.say(0, said_map(&map(3, 4, &[])));
    let said = bench.say(0, ServerMsg::Join { rank: RankId(3), version: 3 });
    assert_eq!(said.0, [Output::Connect { rank: RankId(3) }]);
}

#[test]
fn what_is_held_at_a_rank_that_goes_is_looked_for() {
    let mut bench = Bench::of_two();
    bench.call(1, create(PINNED, "a"));
    bench.reply(1, 2, Ok(Reply::Created { attr: attr(8001, PINNED.ino), new: true }));
    assert_eq!(bench.say(0, said_map(&going(3, true))).sent(1), []);
    let said = bench.passes(u64::from(LEASE_MS) / 3);
    assert_eq!(said.asked(1), [3]);
    assert_eq!(bench.not_mine(1, 3, Some(0), 3).asked(0), [1]);
    let said = bench.reply(0, 1, Ok(Reply::Attr(attr(8001, PINNED.ino))));
    assert_eq!((said.answers(), said.sent(1)), (vec![], vec![]));
    assert_eq!(again(&mut bench, 0), [(Ino(8001), 1, 0)]);
}

fn read(file: NodeRef) -> Request {
    Request::Read { node: file, offset: 0, len: 1, into: None }
}

fn bytes() -> Outcome {
    Ok(Reply::Data(proto::storeio::Payload::Owned(vec![1])))
}

/// What broke: an open file had come to rank 1 and lost its name there, of which the client had not heard. It had nothing in its books for
/// rank 1, and said goodbye when that one was to go: the file was purged, or nobody asked rank 1 for it (ESTALE).
#[test]
fn what_came_unheard_to_a_rank_that_goes_is_found_there() {
    let (mut bench, file) = with_held();
    assert_eq!(bench.say(0, said_map(&going(3, true))).0, [], "only the rank knows what it has");
    assert_eq!(bench.call(3, read(file)).asked(0), [3]);
    assert_eq!(bench.not_mine(0, 3, None, 3).asked(1), [2]);
    let said = bench.reply(1, 2, bytes());
    assert_eq!((said.answers(), reclaimed(&said, 1)), (vec![(3, bytes())], vec![(file.ino, 1, 0)]));
}

/// The same of one whose connection was gone when the map came: the session may be known there.
#[test]
fn what_came_unheard_is_found_where_the_connection_was_gone() {
    let (mut bench, file) = with_held();
    bench.step(Input::Disconnected { rank: RankId(1) });
    assert_eq!(bench.say(0, said_map(&going(3, true))).0, []);
    let said = bench.step(Input::Connected { rank: RankId(1) });
    let at = At { rank: RankId(1), join: true, token: token(5), map_version: 3 };
    assert_eq!(said.sent(1).iter().map(hello).collect::<Vec<_>>(), [(5, at)]);
    bench.welcome(1, 5, true);
    assert_eq!(bench.call(3, read(file)).asked(0), [3]);
    assert_eq!(bench.not_mine(0, 3, None, 3).asked(1), [2]);
    assert_eq!(reclaimed(&bench.reply(1, 2, bytes()), 1), [(file.ino, 1, 0)]);
}

/// Found by the simulator: the rank of a copy's target was asked, in whose books nothing was lost.
#[test]
fn a_copy_from_a_file_whose_locks_are_lost_fails_at_any_rank() {
    let (mut bench, file) = with_held();
    bench.router.each_client().for_each(|client| client.recover_clean());
    let refused = ServerMsg::Refused { errno: Errno::ESTALE.0 as u32, reason: "evicted".to_owned() };
    bench.say(0, refused);
    bench.step(Input::Connected { rank: RankId(0) });
    bench.welcome(0, 6, false);
    bench.step(Input::Connected { rank: RankId(1) });
    bench.welcome(1, 6, false);
    let target = NodeRef { ino: Ino(8002), parent: PINNED.ino, hash: proto::NameHash(3) };
    let copy = Request::CopyRange { source: file, source_offset: 0, target, target_offset: 0, len: 1 };
    let said = bench.call(3, copy);
    assert_eq!((said.answers(), said.asked(1)), (vec![(3, Err(Errno::EIO))], vec![]));
}

/// What broke: each tick began another search, while the ones before went on at other ranks. Where a file that is open without a name kept
/// its rank from going, thousands of them were under way.
#[test]
fn what_is_looked_for_is_not_looked_for_once_more_meanwhile() {
    let mut bench = Bench::of_two();
    bench.call(1, create(PINNED, "a"));
    bench.reply(1, 2, Ok(Reply::Created { attr: attr(8001, PINNED.ino), new: true }));
    bench.say(0, said_map(&going(3, true)));
    assert_eq!(bench.passes(u64::from(LEASE_MS) / 3).asked(1), [3]);
    assert_eq!(bench.not_mine(1, 3, Some(0), 3).asked(0), [1], "it goes on there");
    for _ in 0..10 {
        assert_eq!(bench.passes(100).asked(1), []);
    }
    bench.reply(0, 1, Err(Errno::ESTALE));
    assert_eq!(bench.passes(2_000).asked(1).len(), 1, "somebody has it");
}

/// What broke: the rank had answered something in its life before. Its client had that answer and was idle, which nobody told the rank: what
/// the answer may have opened kept the directory, and the rank, for ever.
#[test]
fn who_asks_for_nothing_shows_a_rank_that_stops_that_it_has_its_answers() {
    let mut bench = Bench::of_two();
    let mut stops = map(3, 2, &[(PINNED.ino, 1)]);
    stops.ranks.get_mut(&RankId(1)).expect("a rank").state = RankState::Stopping;
    bench.say(0, said_map(&stops));
    let said = bench.passes(u64::from(LEASE_MS) / 3);
    let floor = |message: &ClientMsg| match message {
        ClientMsg::Request { tid, floor, .. } => Some((tid.0, floor.0)),
        _ => None,
    };
    assert_eq!(said.sent(1).iter().find_map(floor), Some((2, 2)), "it has the answer of 1");
    assert_eq!(bench.passes(100).asked(1), [], "once at a time");
}

#[cfg(feature = "mutants")]
#[test]
fn defects_of_books_are_caught() {
    let defects: [(&str, fn()); 9] = [
        ("client_closes_where_it_was_sent", what_is_closed_when_the_session_ends_is_open_nowhere),
        ("client_locks_of_nothing", what_is_unlocked_and_gone_is_claimed_no_more),
        ("client_parts_by_its_books", what_came_unheard_to_a_rank_that_goes_is_found_there),
        ("client_claims_stay", what_was_claimed_where_it_is_no_more_is_claimed_there_no_more),
        ("client_lost_where_it_was", a_copy_from_a_file_whose_locks_are_lost_fails_at_any_rank),
        ("client_answers_not_shown", who_asks_for_nothing_shows_a_rank_that_stops_that_it_has_its_answers),
        ("client_looks_without_pause", what_is_looked_for_is_not_looked_for_once_more_meanwhile),
        ("client_keeps_old_books", what_is_held_is_in_the_books_of_whoever_answers_for_it),
        ("client_asks_where_the_name_was", a_file_without_a_name_is_asked_for_where_it_was_opened),
    ];
    for (defect, test) in defects {
        stdx::mutant::activate(Some(defect));
        let verdict = std::panic::catch_unwind(test);
        stdx::mutant::activate(None);
        assert!(verdict.is_err(), "{defect}");
    }
}
