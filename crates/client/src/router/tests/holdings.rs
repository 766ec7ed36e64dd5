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

/// What gives that lock back.
fn unlocks() -> [fn(NodeRef) -> Request; 2] {
    [
        |node| Request::SetLock { node, lock: LockSpec { kind: LockKind::Unlock, ..lock() }, wait: false },
        |node| Request::ReleaseLocks { node, flock: true, owner: 1 },
    ]
}

fn reclaimed(said: &Said, from: u16) -> Vec<(Ino, u32, usize)> {
    let reclaim = |message: &ClientMsg| match message {
        ClientMsg::Reclaim { node, count, locks, .. } => Some((node.ino, *count, locks.len())),
        _ => None,
    };
    said.sent(from).iter().filter_map(reclaim).collect()
}

fn released(said: &Said, from: u16) -> Vec<(Ino, u32)> {
    let release = |message: &ClientMsg| match message {
        ClientMsg::Request { request: Request::Release { node, count }, .. } => Some((node.ino, *count)),
        _ => None,
    };
    said.sent(from).iter().filter_map(release).collect()
}

/// It lives again, and has what it did before.
fn lives_again(bench: &mut Bench, rank: u16, life: u64) -> Said {
    bench.step(Input::Disconnected { rank: RankId(rank) });
    bench.step(Input::Connected { rank: RankId(rank) });
    bench.welcome_in(rank, 5, true, life)
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
    assert_eq!(released(&said, 0), [(file.ino, 0)]);
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
    for unlock in unlocks() {
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

/// What broke: it was claimed of the next life of a rank that had sent its release away, and the other one sent that away again before the
/// first was asked: the release was over, and the claim stayed.
#[test]
fn what_was_claimed_since_it_was_sent_away_is_released_there() {
    let (mut bench, file) = with_held();
    let mut said = bench.call(3, Request::Release { node: file, count: 1 });
    let (began, mut at) = (bench.at.mono, 0);
    // The last one that sends it away is rank 0, which is to be told of it.
    loop {
        let tid = said.asked(at)[0];
        said = bench.not_mine(at, tid, Some(1 - at), 2);
        if at == 0 && bench.at.mono.since(began) > 1_700 * MS {
            break;
        }
        if said.asked(1 - at).is_empty() {
            said = bench.passes(101);
        }
        at = 1 - at;
    }
    bench.step(Input::Disconnected { rank: RankId(1) });
    assert_eq!(bench.passes(2_000).asked(1), [], "rank 1 is away");
    let said = lives_again(&mut bench, 0, 9);
    assert_eq!(reclaimed(&said, 0), [(file.ino, 1, 1)]);
    bench.step(Input::Connected { rank: RankId(1) });
    let asked = bench.welcome(1, 5, true).asked(1);
    let said = bench.not_mine(1, asked[0], Some(0), 2);
    assert_eq!((released(&said, 0), bench.router.opens(file.ino)), (vec![(file.ino, 1)], 1));
    let said = bench.not_mine(0, said.asked(0)[0], Some(1), 2);
    assert_eq!((released(&said, 1), bench.router.opens(file.ino)), (vec![], 0), "once");
}

/// What broke: a killed process closes its files, and that was given up with it while it waited for a rank that was behind.
#[test]
fn what_a_killed_process_unlocks_is_unlocked_where_it_went() {
    for unlock in unlocks() {
        let (mut bench, file) = with_held();
        assert_eq!(bench.call(3, unlock(file)).asked(0), [3]);
        assert_eq!(bench.not_mine(0, 3, Some(1), 1).answers(), [], "that rank is behind");
        assert_eq!(
            bench.step(Input::Interrupt { call: CallId(3) }).answers(),
            [],
            "it is no wait for a lock"
        );
        let said = bench.step(Input::Abandon { call: CallId(3) });
        assert_eq!((said.answers(), bench.router.waiting().count()), (vec![(3, Err(Errno::EINTR))], 0));
        assert_eq!(bench.passes(1).asked(0), [4]);
        assert_eq!(bench.not_mine(0, 4, Some(1), 2).asked(1), [2]);
        assert_eq!(bench.reply(1, 2, Ok(Reply::Ok)).answers(), []);
        assert_eq!((again(&mut bench, 0), again(&mut bench, 1)), (vec![], vec![(file.ino, 1, 0)]));
    }
}

/// What broke: the lock had been granted to a process that was killed meanwhile. What was to unlock it was sent away, and to nobody else.
#[test]
fn a_lock_that_nobody_waits_for_any_more_is_unlocked_where_it_went() {
    let (mut bench, file) = with_held();
    let other = LockSpec { flock: false, owner: 2, ..lock() };
    assert_eq!(bench.call(3, Request::SetLock { node: file, lock: other, wait: true }).asked(0), [3]);
    bench.step(Input::Abandon { call: CallId(3) });
    let said = bench.reply(0, 3, Ok(Reply::Ok));
    assert_eq!((said.answers(), said.asked(0)), (vec![], vec![4]), "it is given back");
    assert_eq!(bench.not_mine(0, 4, Some(1), 2).asked(1), [2]);
    bench.reply(1, 2, Ok(Reply::Ok));
    assert_eq!((again(&mut bench, 0), again(&mut bench, 1)), (vec![], vec![(file.ino, 1, 1)]));
}

/// What broke: what was to unlock it was dropped with the rank that went, and the file, with its lock, was at another one.
#[test]
fn what_is_unlocked_for_who_was_killed_is_unlocked_behind_a_rank_that_goes() {
    let mut bench = Bench::of_two();
    bench.call(1, create(PINNED, "a"));
    bench.reply(1, 2, Ok(Reply::Created { attr: attr(8001, PINNED.ino), new: true }));
    let file = NodeRef { ino: Ino(8001), parent: PINNED.ino, hash: proto::NameHash(1) };
    bench.call(2, Request::SetLock { node: file, lock: lock(), wait: true });
    bench.step(Input::Abandon { call: CallId(2) });
    let said = bench.reply(1, 3, Ok(Reply::Ok));
    assert_eq!((said.answers(), said.asked(1)), (vec![], vec![4]), "it is given back");
    bench.say(0, said_map(&going(3, true)));
    let said = bench.say(1, dismissed());
    let is_unlock = |message: &ClientMsg| {
        let ClientMsg::Request { request: Request::SetLock { lock, .. }, .. } = message else { return false };
        matches!(lock.kind, LockKind::Unlock)
    };
    assert!(said.sent(0).iter().any(is_unlock), "{:?}", said.0);
}

/// What broke: whoever has a flock and asks for the other kind has none as long as it waits. The file went to another rank meanwhile, which
/// heard of no lock, and the one from before was claimed of that.
#[test]
fn a_flock_that_was_changing_when_its_file_went_is_gone() {
    let read = LockSpec { kind: LockKind::Read, ..lock() };
    let eintr = vec![(3, Err(Errno::EINTR))];
    // Interrupted before it is sent away, or while it waits for a rank that is behind.
    for (interrupted, version) in [(true, 2), (false, 1)] {
        let (mut bench, file) = with_held();
        bench.call(3, Request::SetLock { node: file, lock: read, wait: true });
        if interrupted {
            bench.step(Input::Interrupt { call: CallId(3) });
            assert_eq!(bench.not_mine(0, 3, Some(1), version).answers(), eintr);
        } else {
            assert_eq!(bench.not_mine(0, 3, Some(1), version).answers(), []);
            assert_eq!(bench.step(Input::Interrupt { call: CallId(3) }).answers(), eintr);
        }
        assert_eq!(bench.passes(1).asked(0), []);
        assert_eq!(again(&mut bench, 0), [(file.ino, 1, 0)]);
    }
    // At the rank that it went to, which refuses it or gives it up; or it goes on from there. It is in the books for the first one.
    for outcome in [Some(Errno::EAGAIN), Some(Errno::EINTR), None] {
        let (mut bench, file) = with_held();
        bench.call(3, Request::SetLock { node: file, lock: read, wait: outcome != Some(Errno::EAGAIN) });
        assert_eq!(bench.not_mine(0, 3, Some(1), 2).asked(1), [2]);
        bench.step(Input::Interrupt { call: CallId(3) });
        let said = match outcome {
            Some(errno) => bench.reply(1, 2, Err(errno)),
            None => bench.not_mine(1, 2, Some(0), 2),
        };
        assert_eq!(said.answers(), [(3, Err(outcome.unwrap_or(Errno::EINTR)))]);
        assert_eq!(again(&mut bench, 0), [(file.ino, 1, 0)]);
    }
    // At a rank that is no more.
    let mut bench = Bench::of_two();
    bench.call(1, create(PINNED, "a"));
    bench.reply(1, 2, Ok(Reply::Created { attr: attr(8001, PINNED.ino), new: true }));
    let file = NodeRef { ino: Ino(8001), parent: PINNED.ino, hash: proto::NameHash(1) };
    bench.call(2, Request::SetLock { node: file, lock: lock(), wait: false });
    bench.reply(1, 3, Ok(Reply::Ok));
    bench.call(3, Request::SetLock { node: file, lock: read, wait: true });
    bench.step(Input::Interrupt { call: CallId(3) });
    assert_eq!(bench.say(0, said_map(&going(3, false))).answers(), eintr);
    assert_eq!(again(&mut bench, 0), [(file.ino, 1, 0)]);
}

/// What broke: a sync of an open directory is asked of its home and of its content's rank. That one answered last, and had it in the books from
/// then on: when the home died it was not told that the directory is open, and what had been removed was purged.
#[test]
fn a_sync_answered_by_a_directorys_content_moves_no_open() {
    let mut bench = Bench::of_two();
    assert_eq!(bench.call(1, Request::Open { node: PINNED, flags: 0 }).asked(0), [1]);
    bench.reply(0, 1, Ok(Reply::Attr(dir(PINNED.ino.0, Ino::ROOT))));
    let said = bench.call(2, Request::Fsync { node: PINNED, data_only: false });
    assert_eq!((said.asked(0), said.asked(1)), (vec![2], vec![2]));
    bench.reply(0, 2, Ok(Reply::Ok));
    let said = bench.reply(1, 2, Ok(Reply::Ok));
    assert_eq!((said.answers(), reclaimed(&said, 1)), (vec![(2, Ok(Reply::Ok))], vec![]));
    assert_eq!((again(&mut bench, 0), again(&mut bench, 1)), (vec![(PINNED.ino, 1, 0)], vec![]));
}

/// What broke: a file that was made at rank 1, and answered early, had gone to rank 0 with its open. Rank 1 died before it was heard that it
/// was durable. What is sent again counts an open there once more; that was released, rank 1 sent it away, and at rank 0 it was the last.
#[test]
fn an_open_that_went_is_not_released_for_the_create_that_made_it() {
    let ino = Ino(8001);
    let mut bench = Bench::of_two();
    assert_eq!(bench.call(1, create(PINNED, "a")).asked(1), [2]);
    bench.early(1, 2, 70, attr(ino.0, PINNED.ino), &[]);
    assert_eq!(bench.call(2, create(NodeRef::bare(Ino::ROOT), "b")).asked(0), [1]);
    let said = bench.reply(0, 1, Ok(Reply::Created { attr: attr(ino.0, Ino::ROOT), new: false }));
    assert_eq!((reclaimed(&said, 0), bench.router.opens(ino)), (vec![(ino, 1, 0)], 2));
    let said = lives_again(&mut bench, 1, 9);
    assert_eq!((reclaimed(&said, 1), released(&said, 1)), (vec![], vec![(ino, 0)]), "it counts nothing");
    let [_, tid] = said.asked(1)[..] else { panic!("{:?}", said.0) };
    let said = bench.not_mine(1, tid, Some(0), 2);
    assert_eq!((said.asked(0), bench.router.opens(ino)), (vec![], 2), "nobody else is asked");
    // The same where its end is not heard once more.
    bench.say(1, ServerMsg::Done { tid: Tid(2), position: Position(80) });
    let said = lives_again(&mut bench, 1, 10);
    let [_, tid] = said.asked(1)[..] else { panic!("{:?}", said.0) };
    assert_eq!(released(&said, 1), [(ino, 0)]);
    bench.not_mine(1, tid, Some(0), 2);
    // It comes back and is closed there. Then nobody else would close what is counted again.
    let node = NodeRef { ino, parent: Ino::ROOT, hash: proto::NameHash(1) };
    assert_eq!(bench.call(3, Request::Release { node, count: 2 }).asked(0), [2]);
    let [tid] = bench.not_mine(0, 2, Some(1), 2).asked(1)[..] else { panic!("it is there") };
    assert_eq!(reclaimed(&bench.reply(1, tid, Ok(Reply::Ok)), 1), [(ino, 2, 0)]);
    assert_eq!((released(&lives_again(&mut bench, 1, 11), 1), bench.router.opens(ino)), (vec![(ino, 1)], 1));
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
    let at = At { rank: RankId(1), join: true, token: token(5), map_version: 3, ..At::default() };
    assert_eq!(said.sent(1).iter().map(hello).collect::<Vec<_>>(), [(5, at)]);
    bench.welcome(1, 5, true);
    assert_eq!(bench.call(3, read(file)).asked(0), [3]);
    assert_eq!(bench.not_mine(0, 3, None, 3).asked(1), [2]);
    assert_eq!(reclaimed(&bench.reply(1, 2, bytes()), 1), [(file.ino, 1, 0)]);
}

/// What broke: the rank of a copy's target was asked, in whose books nothing was lost.
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

#[cfg(feature = "mutants")]
#[test]
fn defects_of_books_are_caught() {
    let defects: [(&str, fn()); 15] = [
        (
            "client_gives_back_to_who_left",
            what_is_unlocked_for_who_was_killed_is_unlocked_behind_a_rank_that_goes,
        ),
        ("client_releases_what_went", an_open_that_went_is_not_released_for_the_create_that_made_it),
        ("client_sync_moves_opens", a_sync_answered_by_a_directorys_content_moves_no_open),
        ("client_keeps_changing_flocks", a_flock_that_was_changing_when_its_file_went_is_gone),
        ("client_killed_keeps_locks", what_a_killed_process_unlocks_is_unlocked_where_it_went),
        ("client_unlocks_where_it_was", a_lock_that_nobody_waits_for_any_more_is_unlocked_where_it_went),
        ("client_closes_where_it_was_sent", what_is_closed_when_the_session_ends_is_open_nowhere),
        ("client_locks_of_nothing", what_is_unlocked_and_gone_is_claimed_no_more),
        ("client_parts_by_its_books", what_came_unheard_to_a_rank_that_goes_is_found_there),
        ("client_claims_stay", what_was_claimed_where_it_is_no_more_is_claimed_there_no_more),
        ("client_lost_where_it_was", a_copy_from_a_file_whose_locks_are_lost_fails_at_any_rank),
        ("client_looks_without_pause", what_is_looked_for_is_not_looked_for_once_more_meanwhile),
        ("client_keeps_old_books", what_is_held_is_in_the_books_of_whoever_answers_for_it),
        ("client_asked_before_it_claimed", what_was_claimed_since_it_was_sent_away_is_released_there),
        ("client_asks_where_the_name_was", a_file_without_a_name_is_asked_for_where_it_was_opened),
    ];
    for (defect, test) in defects {
        stdx::mutant::activate(Some(defect));
        let verdict = std::panic::catch_unwind(test);
        stdx::mutant::activate(None);
        assert!(verdict.is_err(), "{defect}");
    }
}
