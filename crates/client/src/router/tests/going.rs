//! Ranks that go: whom they greet no more is sent to others, and what was theirs is others'.
//!
//! Absent: how the session ends there (`tests.rs`), and what is open there (`holdings.rs`).

use super::*;
use proto::cluster::Slot;

/// Rank 1 has some slots, and stops, perhaps.
fn slots(version: u64, rank: u16, stops: bool) -> ClusterMap {
    let mut map = map(version, 2, &[]);
    let slot = Slot { rank: RankId(rank), version, moving: None };
    Arc::make_mut(&mut map.slots).set(100..200, slot);
    if stops {
        map.ranks.get_mut(&RankId(1)).expect("a rank").state = RankState::Stopping;
    }
    map.check().expect("a map");
    map
}

fn connects(said: &Said) -> bool {
    said.has(&Output::Connect { rank: RankId(1) })
}

/// What broke: rank 1 stopped, and was greeted again and again because somebody once had found a directory there, or because nobody knew
/// where an inode was. It refused that for as long as it stopped, which a file that another client has open makes hours.
#[test]
fn a_rank_that_goes_is_not_asked_by_who_has_parted_with_it() {
    let placed = NodeRef { ino: Ino(8000), parent: Ino::ROOT, hash: proto::NameHash(3) };
    let mut bench = Bench::with(&slots(2, 1, false));
    bench.call(1, lookup(placed, "a"));
    assert!(connects(&bench.not_mine(0, 1, Some(1), 2)), "slots place it there");
    bench.step(Input::Connected { rank: RankId(1) });
    assert_eq!(bench.welcome(1, 5, false).asked(1), [1]);
    bench.reply(1, 1, Err(Errno::ENOENT));
    assert_eq!(bench.call(2, lookup(placed, "b")).asked(1), [2], "learned");
    bench.reply(1, 2, Err(Errno::ENOENT));
    assert_eq!(bench.say(1, said_map(&slots(3, 1, true))).0, [], "it has its slots yet");
    assert_eq!(bench.say(1, said_map(&slots(4, 0, true))).0, [], "the rank says when it is over");
    // What was learned is not true any more, nor what others have who know as little.
    let said = bench.call(3, lookup(placed, "c"));
    assert_eq!((said.asked(0), said.asked(1)), (vec![2], vec![]));
    assert_eq!(bench.not_mine(0, 2, Some(1), 3).asked(1), [], "by an older map");
    assert_eq!(bench.passes(1).asked(0), [3]);
    bench.reply(0, 3, Err(Errno::ENOENT));
    let said = bench.say(1, dismissed());
    assert!(said.has(&Output::Disconnect { rank: RankId(1) }), "{:?}", said.0);
    let said = bench.call(7, lookup(placed, "e"));
    assert_eq!((said.asked(0), connects(&said)), (vec![4], false));
    bench.reply(0, 4, Err(Errno::ENOENT));
    // Nobody knows where that one is, or somebody whose hints are old.
    for (call, owner) in [(4, None), (5, Some(1))] {
        let tid = bench.call(call, Request::GetAttr { node: NodeRef::bare(Ino(8800)) }).asked(0)[0];
        let said = bench.not_mine(0, tid, owner, 4);
        assert_eq!((said.answers(), connects(&said)), (vec![(call, Err(Errno::ESTALE))], false));
    }
    // It is given a life again, and slots.
    bench.say(0, said_map(&slots(5, 1, false)));
    assert!(connects(&bench.call(6, lookup(placed, "d"))));
}

/// It was asked by an older map. The refusal comes behind the newer one, which says that it has nothing.
#[test]
fn what_was_to_be_sent_to_a_rank_that_goes_is_sent_elsewhere() {
    let mut bench = Bench::with(&map(2, 2, &[(PINNED.ino, 1)]));
    assert!(connects(&bench.call(1, lookup(PINNED, "a"))));
    bench.step(Input::Connected { rank: RankId(1) });
    assert_eq!(bench.say(1, said_map(&going(3, true))).0, [], "it may answer the greeting yet");
    let said = bench.say(1, dismissed());
    assert_eq!((said.asked(0), said.has(&Output::Disconnect { rank: RankId(1) })), (vec![1], true));
    assert_eq!(bench.reply(0, 1, Err(Errno::ENOENT)).answers(), [(1, Err(Errno::ENOENT))]);
    // The same of one that has been there: the rank has ended the session, and says so by closing the connection.
    let mut bench = Bench::of_two();
    bench.step(Input::Disconnected { rank: RankId(1) });
    bench.call(1, lookup(PINNED, "a"));
    bench.call(2, create(PINNED, "b"));
    bench.step(Input::Connected { rank: RankId(1) });
    bench.say(1, said_map(&going(3, true)));
    assert_eq!(bench.say(1, dismissed()).asked(0), [1, 2], "no rank has seen any of them");
}

/// What broke: a search came to the rank as it was leaving, and its caller was told EIO.
#[test]
fn what_a_rank_that_goes_never_saw_is_asked_elsewhere() {
    let mut bench = Bench::of_two();
    bench.call(1, create(PINNED, "a"));
    bench.say(1, said_map(&going(3, true)));
    let set = proto::SetAttr { mode: Some(0o600), ..Default::default() };
    let node = NodeRef::bare(Ino(8800));
    assert_eq!(bench.call(2, Request::SetAttr { node, set }).asked(0), [1]);
    assert_eq!(bench.not_mine(0, 1, None, 3).asked(1), [3], "it may have no name");
    let said = bench.say(1, dismissed());
    assert_eq!(
        (said.answers(), said.asked(0)),
        (vec![(1, Err(Errno::EIO))], vec![2]),
        "the older one is lost"
    );
    let said = bench.reply(0, 2, Err(Errno::ESTALE));
    assert_eq!(said.answers(), [(2, Err(Errno::ESTALE))]);
}

/// Who goes has a next life yet, as long as it says nothing else, and that may know the session.
#[test]
fn a_rank_that_goes_and_cannot_answer_now_is_greeted_again() {
    let mut bench = Bench::of_two();
    bench.say(1, said_map(&going(3, true)));
    bench.step(Input::Disconnected { rank: RankId(1) });
    for _ in 0..2 {
        assert_eq!(bench.step(Input::Connected { rank: RankId(1) }).sent(1).len(), 1);
        let errno = Errno::ESHUTDOWN.0 as u32;
        let said = bench.say(1, ServerMsg::Refused { errno, reason: "the rank is stopping".to_owned() });
        assert!(!said.has(&Output::Disconnect { rank: RankId(1) }), "{:?}", said.0);
    }
    bench.step(Input::Connected { rank: RankId(1) });
    assert_eq!(bench.welcome(1, 5, true).sent(1).last(), Some(&ClientMsg::Presented), "it does");
}

/// By the map of then the rank had nothing. By the client's it has something again, as the rank will see, and it is joined.
#[test]
fn who_is_wanted_again_is_joined_by_whom_it_dismissed() {
    let mut bench = Bench::of_two();
    bench.call(1, lookup(PINNED, "a"));
    bench.say(0, said_map(&map(4, 2, &[(PINNED.ino, 1)])));
    let said = bench.say(1, dismissed());
    assert_eq!((said.answers(), said.has(&Output::Disconnect { rank: RankId(1) })), (vec![], false));
    let said = bench.step(Input::Connected { rank: RankId(1) });
    assert!(hello(&said.sent(1)[0]).1.join);
    let said = bench.welcome(1, 5, false);
    assert_eq!((said.asked(1), bench.router.session()), (vec![3], SessionId(5)), "{:?}", said.0);
}

/// The next life of rank 1 greets the client.
fn lives_again(bench: &mut Bench) -> Said {
    bench.say(0, said_map(&map(4, 2, &[(PINNED.ino, 0)])));
    let said = bench.step(Input::Connected { rank: RankId(1) });
    let at = At { rank: RankId(1), join: true, token: token(5), map_version: 4, ..At::default() };
    assert_eq!(said.sent(1).iter().map(hello).collect::<Vec<_>>(), [(5, at)]);
    bench.welcome(1, 5, false)
}

/// What broke: rank 1 stopped, ended the session of a client that had a file in its books which was elsewhere by then, and lived again at
/// once, because more ranks were wanted. It did not know the session, which was over at all ranks with that.
#[test]
fn a_rank_that_went_and_lives_again_is_joined_again() {
    let mut bench = Bench::of_two();
    let file = attr(8001, PINNED.ino);
    bench.call(1, create(PINNED, "a"));
    bench.reply(1, 2, Ok(Reply::Created { attr: file, new: true }));
    bench.say(1, said_map(&going(3, true)));
    assert!(
        !bench.step(Input::Disconnected { rank: RankId(1) }).has(&Output::Disconnect { rank: RankId(1) })
    );
    let said = lives_again(&mut bench);
    assert!(said.has(&Output::Ready { rank: RankId(1) }), "{:?}", said.0);
    assert_eq!((said.sent(1), bench.router.session()), (vec![], SessionId(5)), "it goes on");
    assert_eq!(bench.router.opens(file.ino), 1);
    let open =
        |message: &ClientMsg| matches!(message, ClientMsg::Reclaim { node, .. } if node.ino == file.ino);
    assert!(said.sent(0).iter().any(open), "it is not rank 1's any more");
    // One that knows it resumes it, as ever.
    let mut bench = Bench::of_two();
    bench.call(1, create(PINNED, "a"));
    bench.reply(1, 2, Ok(Reply::Created { attr: file, new: true }));
    bench.say(1, said_map(&going(3, true)));
    bench.step(Input::Disconnected { rank: RankId(1) });
    bench.step(Input::Connected { rank: RankId(1) });
    let said = bench.welcome(1, 5, true);
    assert!(said.sent(1).iter().any(open), "{:?}", said.0);
}

/// The rank had heard all of it and made it durable before it ended the session; but the client has not heard that.
#[test]
fn what_was_performed_at_a_rank_that_went_is_not_lost_silently() {
    let mut bench = delegated();
    bench.call(3, create(PINNED, "b"));
    bench.call(4, lookup(PINNED, "c"));
    bench.say(0, said_map(&going(3, true)));
    let node = NodeRef { ino: Ino(8000), parent: PINNED.ino, hash: proto::NameHash(1) };
    assert_eq!(bench.call(5, Request::Fsync { node, data_only: false }).asked(0), [1]);
    assert_eq!(bench.reply(0, 1, Ok(Reply::Ok)).answers(), [], "names in it are perhaps not durable");
    bench.step(Input::Disconnected { rank: RankId(1) });
    let said = lives_again(&mut bench);
    let late = said.0.iter().filter(|o| matches!(o, Output::Late { errno: Errno::EIO, .. })).count();
    assert_eq!((late, bench.router.kept()), (4, 0), "{:?}", said.0);
    let mut answers = said.answers();
    answers.sort_by_key(|(call, _)| *call);
    assert_eq!(answers, [(3, Err(Errno::EIO)), (5, Err(Errno::EIO))], "nobody can tell");
    assert_eq!((said.asked(0), said.sent(1)), (vec![2], vec![]), "what changes nothing is asked elsewhere");
    assert_eq!(bench.reply(0, 2, Err(Errno::ENOENT)).answers(), [(4, Err(Errno::ENOENT))]);
    assert_eq!((bench.router.waiting().count(), bench.router.session()), (0, SessionId(5)));
}

/// What broke: the session of a client was ended at a rank that goes, and the client greeted that one for a number, and nobody else. It
/// refuses whoever is unknown; and when it was gone nobody said so. All calls waited for ever.
#[test]
fn the_first_rank_says_the_number_of_a_session_that_takes_the_place_of_one() {
    let mut bench = Bench::of_two();
    bench.router.each_client().for_each(|client| client.recover_clean());
    let file = attr(8001, PINNED.ino);
    bench.call(1, create(PINNED, "a"));
    bench.reply(1, 2, Ok(Reply::Created { attr: file, new: true }));
    let evicted = ServerMsg::Refused { errno: Errno::ESTALE.0 as u32, reason: "evicted".to_owned() };
    let said = bench.say(1, evicted);
    for rank in [RankId(0), RankId(1)] {
        assert!(said.has(&Output::Disconnect { rank }) && !bench.router.is_linked(rank));
    }
    assert_eq!(said.0.last(), Some(&Output::Connect { rank: RankId(0) }));
    let said = bench.step(Input::Connected { rank: RankId(0) });
    assert_eq!(said.sent(0).iter().map(|message| hello(message).0).collect::<Vec<_>>(), [0]);
    assert!(connects(&bench.welcome(0, 6, false)), "something is open there");
    // It goes by now.
    bench.say(0, said_map(&going(3, true)));
    bench.step(Input::Connected { rank: RankId(1) });
    let said = bench.say(1, dismissed());
    let open = |m: &ClientMsg| matches!(m, ClientMsg::Reclaim { node, .. } if node.ino == file.ino);
    assert!(said.sent(0).iter().any(open), "{:?}", said.0);
    assert!(said.has(&Output::Disconnect { rank: RankId(1) }), "{:?}", said.0);
    let said = bench.call(2, lookup(PINNED, "b"));
    assert_eq!((said.asked(0), bench.router.session()), (vec![1], SessionId(6)));
}

#[cfg(feature = "mutants")]
#[test]
fn a_client_that_greets_who_goes_is_caught() {
    let tests: [fn(); 2] = [
        a_rank_that_goes_is_not_asked_by_who_has_parted_with_it,
        what_was_to_be_sent_to_a_rank_that_goes_is_sent_elsewhere,
    ];
    for test in tests {
        stdx::mutant::activate(Some("client_greets_who_goes"));
        let verdict = std::panic::catch_unwind(test);
        stdx::mutant::activate(None);
        assert!(verdict.is_err());
    }
}

/// What broke: a rank had gone and lived again, and the client was at its new life when the maps of before came one by one. It told EIO of
/// what that life was carrying out.
#[test]
fn maps_of_before_a_life_say_nothing_of_who_was_welcomed_by_it() {
    let mut bench = Bench::with(&map(2, 2, &[(PINNED.ino, 1)]));
    bench.call(1, create(PINNED, "a"));
    bench.step(Input::Connected { rank: RankId(1) });
    assert_eq!(bench.welcome_in(1, 5, false, 3).asked(1), [1]);
    let parts = Output::Disconnect { rank: RankId(1) };
    for old in [going(3, true), going(4, false)] {
        let said = bench.say(0, said_map(&old));
        assert!(said.answers().is_empty() && !said.has(&parts), "{:?}", said.0);
    }
    let mut again = map(5, 2, &[(PINNED.ino, 1)]);
    again.last_incarnation = Incarnation(3);
    again.ranks.get_mut(&RankId(1)).expect("a rank").incarnation = Incarnation(3);
    assert_eq!(bench.say(0, said_map(&again)).answers(), []);
    let file = attr(8001, PINNED.ino);
    let made = || Ok(Reply::Created { attr: file, new: true });
    assert_eq!(bench.reply(1, 1, made()).answers(), [(1, made())]);
    let gone = ClusterMap { last_incarnation: Incarnation(3), ..going(6, false) };
    assert!(bench.say(0, said_map(&gone)).has(&parts), "that life has gone");
}

#[cfg(feature = "mutants")]
#[test]
fn defects_of_who_joins_again_are_caught() {
    let defects: [(&str, fn()); 6] = [
        ("client_parts_by_old_maps", maps_of_before_a_life_say_nothing_of_who_was_welcomed_by_it),
        ("client_fails_what_who_goes_never_saw", what_a_rank_that_goes_never_saw_is_asked_elsewhere),
        ("client_asks_who_owns_nothing", a_rank_that_goes_is_not_asked_by_who_has_parted_with_it),
        (
            "client_numbered_by_who_goes",
            the_first_rank_says_the_number_of_a_session_that_takes_the_place_of_one,
        ),
        ("client_resumes_who_went", a_rank_that_went_and_lives_again_is_joined_again),
        ("client_rejoins_silently", what_was_performed_at_a_rank_that_went_is_not_lost_silently),
    ];
    for (defect, test) in defects {
        stdx::mutant::activate(Some(defect));
        let verdict = std::panic::catch_unwind(test);
        stdx::mutant::activate(None);
        assert!(verdict.is_err(), "{defect}");
    }
}
