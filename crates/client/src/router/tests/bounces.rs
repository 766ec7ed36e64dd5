//! Calls that ranks send away: whom they go to next, how long, and when nobody has what they are about.
//!
//! Absent: whom the first is sent to.

use super::*;

#[test]
fn a_call_that_is_sent_away_goes_to_the_owner_under_a_new_tid() {
    let mut bench = Bench::of_two();
    let sub = NodeRef::bare(Ino(8000));
    assert_eq!(bench.call(1, create(sub, "a")).asked(0), [1]);
    let said = bench.not_mine(0, 1, Some(1), 2);
    assert_eq!((said.asked(0), said.asked(1), said.answers()), (vec![], vec![2], vec![]));
    assert_eq!(bench.not_mine(0, 1, Some(1), 2).0, [], "said again of what is not there any more");
    let made = Ok(Reply::Created { attr: attr(8001, sub.ino), new: true });
    assert_eq!(bench.reply(1, 2, made.clone()).answers(), [(1, made)]);
    assert_eq!(bench.router.opens(Ino(8001)), 1);
    assert_eq!(bench.call(2, create(sub, "b")).asked(1), [3], "learned");
}

#[test]
fn what_the_answer_to_such_a_call_shows_of_its_directory_is_learned() {
    let mut bench = Bench::of_two();
    let file = NodeRef { ino: Ino(8001), parent: Ino(8000), hash: proto::NameHash(1) };
    assert_eq!(bench.call(1, Request::GetAttr { node: file }).asked(0), [1]);
    assert_eq!(bench.not_mine(0, 1, Some(1), 2).asked(1), [2]);
    bench.reply(1, 2, Ok(Reply::Attr(attr(8001, Ino(8000)))));
    assert_eq!(bench.call(2, Request::GetAttr { node: file }).asked(1), [3]);
}

/// Its directory is gone, and nothing that is read of it shows where it is now.
#[test]
fn a_file_that_outlives_its_directory_is_looked_for_once() {
    let mut bench = Bench::of_two();
    let node = NodeRef { ino: Ino(8001), parent: Ino(8000), hash: proto::NameHash(1) };
    let read = || Request::Read { node, offset: 0, len: 1, into: None };
    assert_eq!(bench.call(1, read()).asked(0), [1]);
    assert_eq!(bench.not_mine(0, 1, None, 2).asked(1), [2]);
    bench.reply(1, 2, Ok(Reply::Data(proto::storeio::Payload::Owned(vec![1]))));
    assert_eq!(bench.call(2, read()).asked(1), [3]);
}

#[test]
fn of_whom_nobody_knows_every_rank_is_asked_once_and_once_more() {
    let mut bench = Bench::with(&map(2, 3, &[(PINNED.ino, 1)]));
    let lost = Request::GetAttr { node: NodeRef::bare(Ino(8000)) };
    assert_eq!(bench.call(1, lost).asked(0), [1]);
    let said = bench.not_mine(0, 1, None, 2);
    assert!(said.has(&Output::Connect { rank: RankId(1) }));
    bench.step(Input::Connected { rank: RankId(1) });
    bench.welcome(1, 5, false);
    let said = bench.not_mine(1, 1, None, 2);
    assert!(said.has(&Output::Connect { rank: RankId(2) }));
    bench.step(Input::Connected { rank: RankId(2) });
    bench.welcome(2, 5, false);
    assert_eq!(bench.not_mine(2, 1, None, 2).0, [], "again, but not at once");
    assert_eq!(bench.passes(1).asked(0), [2]);
    assert_eq!(bench.not_mine(0, 2, None, 2).asked(1), [2], "the others as ever");
    assert_eq!(bench.not_mine(1, 2, None, 2).answers(), [(1, Err(Errno::ESTALE))]);
    assert_eq!(bench.router.waiting().count(), 0);
}

/// Two ranks that name each other are no end of the call, and not for ever.
#[test]
fn ranks_that_name_each_other_are_asked_so_often_and_no_more() {
    let mut bench = Bench::of_two();
    let said = bench.call(1, lookup(NodeRef::bare(Ino(8000)), "a"));
    let began = bench.at.mono;
    let mut asked = (0, said.asked(0)[0]);
    for times in 0.. {
        assert!(times < 100, "it ends");
        let other = 1 - asked.0;
        let mut said = bench.not_mine(asked.0, asked.1, Some(other), 2);
        if !said.answers().is_empty() {
            assert_eq!(said.answers(), [(1, Err(Errno::ESTALE))]);
            assert!(bench.at.mono >= began.after(2 * SECOND), "it may have been on its way");
            break;
        }
        if said.asked(other).is_empty() {
            assert!(times >= 8, "at first it is not slow");
            said = bench.passes(101);
        }
        asked = (other, said.asked(other)[0]);
    }
}

/// What broke: two ranks named each other by hints, which lead nowhere. The third one had been asked first, and got the file meanwhile.
#[test]
fn who_got_it_meanwhile_is_asked_although_others_name_each_other() {
    let mut bench = Bench::with(&map(2, 3, &[(PINNED.ino, 1)]));
    let said = bench.call(1, lookup(NodeRef::bare(Ino(8000)), "a"));
    let mut said = bench.not_mine(0, said.asked(0)[0], Some(1), 2);
    let mut at = 1;
    for times in 0.. {
        assert!(times < 100, "rank 0 is asked once more");
        if said.has(&Output::Connect { rank: RankId(at) }) {
            bench.step(Input::Connected { rank: RankId(at) });
            said = bench.welcome(at, 5, false);
        }
        if said.asked(at).is_empty() {
            said = bench.passes(101);
        }
        let tid = said.asked(at)[0];
        said = bench.not_mine(at, tid, Some(3 - at), 2);
        assert_eq!(said.answers(), []);
        if let [tid] = said.asked(0)[..] {
            let found = Ok(Reply::Attr(attr(8001, Ino(8000))));
            assert_eq!(bench.reply(0, tid, found.clone()).answers(), [(1, found)]);
            break;
        }
        at = 3 - at;
    }
}

#[cfg(feature = "mutants")]
#[test]
fn a_client_that_asks_thirds_once_is_caught() {
    stdx::mutant::activate(Some("client_asks_thirds_once"));
    let verdict = std::panic::catch_unwind(who_got_it_meanwhile_is_asked_although_others_name_each_other);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
}

/// What broke: a rank had died with a decision that another one had not carried out, and so long as nobody had what that brings, the others
/// sent the call away. When it lived again the time for that was over.
#[test]
fn the_time_of_a_rank_that_was_dead_does_not_count() {
    let mut bench = Bench::of_two();
    let said = bench.call(1, lookup(NodeRef::bare(Ino(8000)), "a"));
    let mut said = bench.not_mine(0, said.asked(0)[0], Some(1), 2);
    let mut tid = said.asked(1)[0];
    bench.passes(5_000);
    let (began, mut at) = (bench.at.mono, 1);
    while bench.at.mono < began.after(SECOND) {
        said = bench.not_mine(at, tid, Some(1 - at), 2);
        assert_eq!(said.answers(), [], "it may be told yet");
        if said.asked(1 - at).is_empty() {
            said = bench.passes(101);
        }
        at = 1 - at;
        tid = said.asked(at)[0];
    }
}

/// What broke: something moved all the time, and with each such map the call began anew.
#[test]
fn owners_that_change_all_the_time_keep_no_call_for_ever() {
    let dir = NodeRef::bare(Ino(8000));
    ends_while_owners_change(lookup(dir, "a"));
    // Nor a listing, which was forgotten here.
    ends_while_owners_change(Request::ReadDir { dir, after: 0, attrs: false, bytes_max: 64 });
}

fn ends_while_owners_change(request: Request) {
    let mut bench = Bench::of_two();
    let mut said = bench.call(1, request);
    let (began, mut moved, mut version) = (bench.at.mono, bench.at.mono, 2);
    for times in 0.. {
        assert!(times < 2_000, "it ends");
        if let Some((_, outcome)) = said.answers().pop() {
            assert_eq!(outcome, Err(Errno::ESTALE));
            break;
        }
        let asked = [0, 1].into_iter().find_map(|rank| Some((rank, *said.asked(rank).first()?)));
        said = match asked {
            Some((rank, tid)) => bench.not_mine(rank, tid, Some(1 - rank), version),
            None if bench.at.mono >= moved.after(400 * MS) => {
                (version, moved) = (version + 1, bench.at.mono);
                let there = if version % 2 == 0 { 1 } else { 0 };
                bench.say(0, said_map(&map(version, 2, &[(PINNED.ino, there)])))
            }
            None => bench.passes(101),
        };
    }
    let took = bench.at.mono.since(began);
    assert!((10 * SECOND..40 * SECOND).contains(&took), "it may have been on its way: {took}");
}

#[cfg(feature = "mutants")]
#[test]
fn a_client_that_looks_for_ever_is_caught() {
    stdx::mutant::activate(Some("client_looks_for_ever"));
    let verdict = std::panic::catch_unwind(owners_that_change_all_the_time_keep_no_call_for_ever);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
}

/// Hints of two ranks lead to each other, and a third one has it.
#[test]
fn where_two_ranks_name_each_other_a_third_one_is_asked() {
    let mut bench = Bench::with(&map(2, 3, &[(PINNED.ino, 1)]));
    assert_eq!(bench.call(1, lookup(NodeRef::bare(Ino(8000)), "a")).asked(0), [1]);
    bench.not_mine(0, 1, Some(1), 2);
    bench.step(Input::Connected { rank: RankId(1) });
    bench.welcome(1, 5, false);
    let said = bench.not_mine(1, 1, Some(0), 2);
    assert!(said.has(&Output::Connect { rank: RankId(2) }));
}

#[cfg(feature = "mutants")]
#[test]
fn a_client_that_asks_only_whom_hints_name_is_caught() {
    stdx::mutant::activate(Some("client_asks_only_whom_hints_name"));
    let verdict = std::panic::catch_unwind(where_two_ranks_name_each_other_a_third_one_is_asked);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
}

/// What broke: a directory was renamed to rank 1. Rank 0, which had decided that, knew it and died; rank 1 was asked before it had heard;
/// and rank 0 again, which knew of nothing any more. Its next life says so to rank 1, which may have heard it a moment later.
#[test]
fn where_nobody_names_anybody_all_are_asked_once_more() {
    let mut bench = Bench::of_two();
    let renamed = lookup(NodeRef::bare(Ino(8000)), "a");
    let said = bench.call(1, renamed.clone());
    let said = bench.not_mine(0, said.asked(0)[0], Some(1), 2);
    let said = bench.not_mine(1, said.asked(1)[0], Some(0), 2);
    let said = bench.not_mine(0, said.asked(0)[0], None, 2);
    assert_eq!((said.answers(), said.asked(1)), (vec![], vec![]), "rank 1 may be about to hear");
    let said = bench.passes(1);
    assert_eq!(bench.reply(1, said.asked(1)[0], Err(Errno::ENOENT)).answers(), [(1, Err(Errno::ENOENT))]);
    let said = bench.call(2, renamed);
    let said = bench.not_mine(0, said.asked(0)[0], None, 2);
    bench.not_mine(1, said.asked(1)[0], None, 2);
    let said = bench.passes(1);
    let said = bench.not_mine(0, said.asked(0)[0], None, 2);
    assert_eq!(said.answers(), [(2, Err(Errno::ESTALE))], "nobody has it");
}

#[cfg(feature = "mutants")]
#[test]
fn a_client_that_asks_all_once_is_caught() {
    for defect in ["client_asks_all_once", "client_asks_again_at_once"] {
        stdx::mutant::activate(Some(defect));
        let verdict = std::panic::catch_unwind(where_nobody_names_anybody_all_are_asked_once_more);
        stdx::mutant::activate(None);
        assert!(verdict.is_err(), "{defect}");
    }
}

/// A rank says by its own map that a place is not its own, which that map says is: of what is gone, for example. Its map is asked for once;
/// another call, which two ranks send to each other, ends meanwhile as ever.
fn a_rank_contradicts_its_map(grows: bool) {
    let mut bench = Bench::of_two();
    let mut waiting: Vec<(u16, u64)> = Vec::new();
    let (mut version, mut asked, mut answered) = (2, 0, Vec::new());
    let mut said = bench.call(1, lookup(PINNED, "a"));
    waiting.extend(said.asked(1).into_iter().map(|tid| (1, tid)));
    said = bench.call(2, lookup(NodeRef::bare(Ino(8000)), "b"));
    for _ in 0..200 {
        answered.extend(said.answers());
        for rank in [0, 1] {
            waiting.extend(said.asked(rank).into_iter().map(|tid| (rank, tid)));
        }
        if said.sent(1).iter().any(|message| matches!(message, ClientMsg::WantMap { have: 0 })) {
            asked += 1;
            version += u64::from(grows && asked > 1);
            said = bench.say(1, said_map(&map(version, 2, &[(PINNED.ino, 1)])));
        } else if let Some((rank, tid)) = waiting.pop() {
            said = bench.not_mine(rank, tid, Some(1).filter(|_| rank == 0), version);
        } else {
            version += u64::from(grows);
            bench.say(1, said_map(&map(version, 2, &[(PINNED.ino, 1)])));
            said = bench.passes(101);
        }
    }
    answered.sort_by_key(|(call, _)| *call);
    // While there is a new map all the time, what it is about is looked for on.
    let wanted = if grows { &[2_u64][..] } else { &[1, 2] };
    assert_eq!(answered, wanted.iter().map(|call| (*call, Err(Errno::ESTALE))).collect::<Vec<_>>());
    assert!(asked > 0 && (grows || asked == 1), "{asked}");
}

#[test]
fn a_rank_that_contradicts_its_map_keeps_no_call_for_ever() {
    a_rank_contradicts_its_map(false);
}

#[test]
fn a_rank_that_contradicts_each_map_keeps_no_other_call_for_ever() {
    a_rank_contradicts_its_map(true);
}

#[cfg(feature = "mutants")]
#[test]
fn defects_of_bounces_are_caught() {
    let defects: [(&str, fn()); 2] = [
        ("client_doubts_for_ever", a_rank_that_contradicts_its_map_keeps_no_call_for_ever),
        ("client_drop_names_others", a_rank_that_contradicts_each_map_keeps_no_other_call_for_ever),
    ];
    for (defect, test) in defects {
        stdx::mutant::activate(Some(defect));
        let verdict = std::panic::catch_unwind(test);
        stdx::mutant::activate(None);
        assert!(verdict.is_err(), "{defect}");
    }
}

/// What broke: with each map the counting began anew, so while ranks died and returned nobody was ever told that a file is gone: two ranks
/// sent the call to each other for ever.
#[test]
fn maps_that_name_no_other_owner_keep_no_call_going_for_ever() {
    let mut bench = Bench::of_two();
    let mut said = bench.call(1, lookup(NodeRef::bare(Ino(8000)), "a"));
    let (mut rank, mut version) = (0, 2);
    let began = bench.at.mono;
    for times in 0.. {
        if !said.answers().is_empty() {
            break;
        }
        assert!(times < 1_000, "it ends");
        let [tid] = said.asked(rank)[..] else { panic!("{:?}", said.0) };
        said = bench.not_mine(rank, tid, Some(1 - rank), version);
        rank = 1 - rank;
        if said.answers().is_empty() && said.asked(rank).is_empty() {
            said = bench.passes(101);
            version += 1;
            let mut map = map(version, 2, &[(PINNED.ino, 1)]);
            // A rank has returned, and a move has begun that comes to nothing.
            map.ranks.get_mut(&RankId(1)).unwrap().state = RankState::Reconnect;
            if version % 2 == 0 {
                let unit = Unit { dir: PINNED.ino, frag: Frag::WHOLE };
                let entry = Arc::make_mut(&mut map.entries).get_mut(&unit).unwrap();
                entry.moving = Some(Moving { id: MoveId(version), to: RankId(0) });
                map.last_move = MoveId(version);
            }
            map.check().expect("a map");
            let news = bench.say(rank, said_map(&map));
            assert_eq!(news.asked(0).len() + news.asked(1).len(), 0, "it was asked already");
        }
    }
    assert_eq!(said.answers(), [(1, Err(Errno::ESTALE))]);
    assert!(bench.at.mono >= began.after(2 * SECOND), "it may have been on its way");
}

/// What broke: whoever was sent to and fro between a rank that knew of a move and one that did not was told ESTALE of a file that
/// was there.
#[test]
fn a_rank_that_is_behind_is_asked_until_it_is_not() {
    let mut bench = Bench::of_two();
    bench.say(0, said_map(&map(3, 2, &[(PINNED.ino, 1), (Ino(7001), 1)])));
    let moved = NodeRef::bare(Ino(7001));
    let mut said = bench.call(1, lookup(moved, "a"));
    let mut pauses = Vec::new();
    for _ in 0..20 {
        let [tid] = said.asked(1)[..] else { panic!("{:?}", said.0) };
        let away = bench.not_mine(1, tid, Some(0), 2);
        assert_eq!(away.0, [], "nobody is asked meanwhile, nor is a map that is older");
        let due = bench.router.deadline().expect("it is asked again");
        pauses.push(due.since(bench.at.mono) / MS);
        said = bench.passes(pauses[pauses.len() - 1]);
    }
    assert_eq!(pauses[..9], [1, 2, 4, 8, 16, 32, 64, 100, 100]);
    let [tid] = said.asked(1)[..] else { panic!("{:?}", said.0) };
    assert_eq!(bench.reply(1, tid, Err(Errno::ENOENT)).answers(), [(1, Err(Errno::ENOENT))]);
    assert_eq!(bench.router.queued(), 0);
}

#[cfg(feature = "mutants")]
#[test]
fn a_client_that_believes_who_is_behind_is_caught() {
    stdx::mutant::activate(Some("client_believes_who_is_behind"));
    let verdict = std::panic::catch_unwind(a_rank_that_is_behind_is_asked_until_it_is_not);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
}

#[test]
fn what_waits_for_a_rank_goes_by_a_newer_map_at_once_and_can_be_given_up() {
    let mut bench = Bench::of_two();
    bench.call(1, lookup(PINNED, "a"));
    bench.call(2, lookup(PINNED, "b"));
    bench.call(3, Request::SetLock { node: NodeRef { ino: Ino(8000), ..PINNED }, lock: lock(), wait: true });
    for (rank, tid) in [(1, 2), (1, 3), (0, 1)] {
        assert_eq!(bench.not_mine(rank, tid, None, 1).answers(), []);
    }
    assert_eq!(bench.router.queued(), 3);
    assert_eq!(bench.step(Input::Interrupt { call: CallId(1) }).answers(), [], "it waits for no lock");
    assert_eq!(bench.step(Input::Interrupt { call: CallId(3) }).answers(), [(3, Err(Errno::EINTR))]);
    assert_eq!(bench.step(Input::Abandon { call: CallId(1) }).answers(), [(1, Err(Errno::EINTR))]);
    let said = bench.say(1, said_map(&map(3, 2, &[(PINNED.ino, 0)])));
    assert_eq!((said.asked(0), said.asked(1)), (vec![2], vec![]));
    assert_eq!(bench.not_mine(0, 2, None, 2).answers(), [], "now that one is behind");
    let said = bench.step(Input::Close);
    assert_eq!(said.answers(), [(2, Err(Errno::ESHUTDOWN))]);
}

/// Messages of a rank may overtake each other.
#[test]
fn a_call_that_is_sent_away_by_a_map_that_is_not_here_yet_waits_for_it() {
    let mut bench = Bench::with(&map(1, 2, &[]));
    assert_eq!(bench.call(1, lookup(PINNED, "a")).asked(0), [1]);
    assert_eq!(bench.call(2, lookup(PINNED, "b")).asked(0), [2]);
    let said = bench.not_mine(0, 1, None, 2);
    assert_eq!((said.answers(), said.sent(0)), (vec![], vec![ClientMsg::WantMap { have: 1 }]));
    assert_eq!(bench.not_mine(0, 2, None, 2).0, [], "asked for once");
    let second = map(2, 2, &[(PINNED.ino, 1)]);
    assert_eq!(bench.say(0, said_map(&second)).0, [Output::Connect { rank: RankId(1) }]);
    bench.step(Input::Connected { rank: RankId(1) });
    assert_eq!(bench.welcome(1, 5, false).asked(1), [1, 2]);
}

/// What broke: a client closed a hundred files that were gone, one after the other, and looked for each of them for two seconds.
#[test]
fn files_that_are_gone_are_closed_at_once_and_looked_for_together() {
    let mut bench = Bench::of_two();
    let began = bench.at.mono;
    for file in 0..100 {
        let node = NodeRef { ino: Ino(8000 + file), parent: Ino(7999), hash: proto::NameHash(1) };
        let mut said = bench.call(1 + file, Request::Release { node, count: 1 });
        let mut at = 0;
        while said.answers().is_empty() {
            let [tid] = said.asked(at)[..] else { panic!("{:?}", said.0) };
            said = bench.not_mine(at, tid, Some(1 - at), 2);
            at = 1 - at;
        }
        assert_eq!(said.answers(), [(1 + file, Ok(Reply::Ok))]);
    }
    assert!(bench.at.mono < began.after(SECOND), "nobody waited");
    // They are looked for as long as one that moves may take, and no longer.
    for _ in 0..30 {
        let said = bench.passes(101);
        let mut next: Vec<(u16, u64)> =
            [0, 1].iter().flat_map(|at| said.asked(*at).into_iter().map(|tid| (*at, tid))).collect();
        while let Some((at, tid)) = next.pop() {
            let said = bench.not_mine(at, tid, Some(1 - at), 2);
            assert_eq!(said.answers(), [], "they were answered");
            next.extend(said.asked(1 - at).into_iter().map(|tid| (1 - at, tid)));
        }
    }
    assert_eq!(bench.router.waiting().count(), 0);
    assert!(bench.passes(10_000).asked(0).is_empty() && bench.passes(10_000).asked(1).is_empty());
}

#[cfg(feature = "mutants")]
#[test]
fn a_client_that_closes_one_by_one_is_caught() {
    stdx::mutant::activate(Some("client_closes_one_by_one"));
    let verdict = std::panic::catch_unwind(files_that_are_gone_are_closed_at_once_and_looked_for_together);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
}

/// What broke: parts of a directory were two ranks', by turns. What was sent away of each counted for the next ones, and a listing that
/// took two seconds ended (ESTALE).
#[test]
fn each_part_of_a_listing_is_looked_for_anew() {
    let spread = NodeRef { ino: Ino(8000), parent: Ino::ROOT, hash: proto::NameHash(3) };
    let mut parts = map(3, 2, &[(PINNED.ino, 1)]);
    for at in (1..16_u64).step_by(2) {
        let unit = Unit { dir: spread.ino, frag: Frag { prefix: at << 60, depth: 4 } };
        let entry = Entry { rank: RankId(1), version: 3, policy: Policy::Carved, moving: None };
        Arc::make_mut(&mut parts.entries).insert(unit, entry);
    }
    parts.check().expect("a map");
    let mut bench = Bench::of_two();
    bench.say(0, said_map(&parts));
    let list = Request::ReadDir { dir: spread, after: 0, attrs: false, bytes_max: 64 };
    let mut tid = bench.call(1, list).asked(0)[0];
    for at in 1..16_u64 {
        let (from, to) = if at % 2 == 1 { (0, 1) } else { (1, 0) };
        bench.passes(300);
        let said = bench.reply(from, tid, Ok(Reply::Further((at << 59) - 1)));
        let [next] = said.asked(from)[..] else { panic!("{:?}", said.0) };
        let said = bench.not_mine(from, next, Some(to), 3);
        assert_eq!(said.answers(), [], "part {at}");
        let [there] = said.asked(to)[..] else { panic!("part {at}: {:?}", said.0) };
        tid = there;
    }
    let end = Ok(Reply::Entries { entries: vec![], end: true });
    assert_eq!(bench.reply(1, tid, end.clone()).answers(), [(1, end)]);
}

#[cfg(feature = "mutants")]
#[test]
fn a_listing_that_takes_its_parts_for_one_is_caught() {
    stdx::mutant::activate(Some("client_lists_parts_as_one"));
    let verdict = std::panic::catch_unwind(each_part_of_a_listing_is_looked_for_anew);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
}
