//! How it ends that a directory is delegated: recalls, breaks, bounds, errors that come late.
//!
//! Absent: what is performed in one (`delegated.rs`).

use super::delegated::*;
use super::early::{again, create, created, done, durable, early, early_with, hasty, late, order, unlink};
use super::*;
use proto::Position;
use stdx::Wall;

#[test]
fn a_recall_ends_it_and_is_answered_behind_everything() {
    let mut bench = trusted(true);
    here(&bench.call(2, create(DIR, "a")));
    let returned =
        |ino, bits| ClientMsg::Returned { list: vec![Returned { ino: Ino(ino), bits, number: 3 }] };
    assert_eq!(bench.step(recall_bits(DIR, Bits::DX)), [to_rank(returned(DIR, Bits::DX))]);
    asked(&bench.call(3, create(DIR, "b")));
    asked(&bench.call(4, getattr(1000)));
    asked(&bench.call(5, lookup(DIR, "c")));
    let again = bench.step(recall_bits(DIR, Bits::DX));
    assert_eq!(again, [to_rank(returned(DIR, Bits::DX))], "nothing of it is left here, and yet");
    // The edge has something of it as well, and answers for all.
    let mut bench = trusted(true);
    let both = Bits::DX.with(Bits::FS);
    let out = bench.step(recall_bits(DIR, both));
    let [Output::Recalled { stamp, list }] = &out[..] else { panic!("{out:?}") };
    assert_eq!(list[0].bits, both);
    asked(&bench.call(2, create(DIR, "b")));
    let list = vec![list[0].returned(both)];
    assert_eq!(sent(&bench.step(Input::Returned { stamp: *stamp, list })), [returned(DIR, both)]);
    // Of a newborn alone: others know of it.
    let mut bench = trusted(true);
    here(&bench.call(2, create(DIR, "a")));
    bench.step(recall_bits(1000, Bits::FS));
    asked(&bench.call(3, getattr(1000)));
    here(&bench.call(4, create(DIR, "b")));
}

#[test]
fn a_recall_that_overtakes_what_delegates_makes_it_void() {
    let mut bench = hasty(Limits::default());
    bench.step(numbers(1000, 10));
    bench.call(1, create(1, "first"));
    bench.step(recall_bits(DIR, Bits::DX));
    bench.step(early_with(1, 10, created(7), delegated(DIR, true)));
    let second = asked(&bench.call(2, create(DIR, "a")));
    bench.step(early_with(second, 11, created(8), delegated(DIR, false)));
    let look = asked(&bench.call(3, lookup(DIR, "b")));
    bench.step(reply(look, Err(Errno::ENOENT)));
    here(&bench.call(4, create(DIR, "b")));
    // Nor before everything of an earlier connection is settled.
    again(&mut bench);
    let third = tids(&bench.call(5, create(1, "c")))[0];
    bench.step(early_with(third, 12, created(9), delegated(DIR, true)));
    asked(&bench.call(6, create(DIR, "d")));
}

#[test]
fn a_break_ends_it_and_what_was_performed_is_sent_again() {
    let mut bench = trusted(true);
    here(&bench.call(2, mkdir(DIR, "d")));
    here(&bench.call(3, create(1000, "f")));
    here(&bench.call(4, write(1001, 0, 3, false)));
    bench.step(done(2, 30));
    asked(&bench.call(5, getattr(9)));
    let messages = again(&mut bench);
    // First the bytes, should the rank have carried the write out: then it does not do so again.
    let bytes = (6, Some(true));
    assert_eq!(order(&messages), [bytes, (2, Some(true)), (3, Some(false)), (4, Some(false)), (5, None)]);
    assert_eq!(messages.last(), Some(&ClientMsg::Presented));
    asked(&bench.call(6, create(DIR, "e")));
    asked(&bench.call(7, getattr(1001)));
    for tid in [6, 2, 3, 4] {
        bench.step(done(tid, 40));
    }
    bench.step(durable(40));
    assert_eq!((bench.client.kept(), bench.client.opens(Ino(1001))), (0, 1));
    // Numbers are the session's: the next ones are not used twice.
    bench.wait((KEEP_MS + KEEP_MARGIN_MS) * MS);
    bench.step(Input::Tick);
    bench.step(numbers(1000, 10));
    let out = bench.call(8, create(1, "second"));
    bench.step(early_with(tids(&out)[0], 41, created(70), delegated(DIR, true)));
    assert_eq!(here(&bench.call(9, create(DIR, "g"))).ino, Ino(1002));
}

#[test]
fn what_cannot_be_performed_is_asked_for() {
    // Numbers.
    let mut bench = trusted(true);
    for call in 0..10 {
        here(&bench.call(2 + call, create(DIR, &format!("{call}"))));
    }
    let tid = asked(&bench.call(20, create(DIR, "x")));
    assert_eq!(answers(&bench.call(21, lookup(DIR, "y"))), [(21, Err(Errno::ENOENT))]);
    let made = Attr { ino: Ino(90), nlink: 1, parent: Ino(DIR), mode: 0o100_644, ..Attr::default() };
    bench.step(early(tid, 99, Ok(Reply::Created { attr: made, new: true })));
    here(&bench.call(22, unlink(DIR, "x")));
    // Credit in bytes, and in tids.
    let mut bench = trusted_with(Limits::tiny(), true);
    here(&bench.call(2, create(DIR, "a")));
    here(&bench.call(3, write(1000, 0, 8000, false)));
    asked(&bench.call(4, write(1000, 0, 8000, false)));
    // The lease.
    let mut bench = trusted(true);
    bench.wait(u64::from(LEASE_MS) * MS);
    asked(&bench.call(2, create(DIR, "a")));
    asked(&bench.call(3, lookup(DIR, "b")));
    // A link that is down, or a client that closes.
    let mut bench = trusted(true);
    bench.step(Input::Disconnected { rank: RANK });
    assert_eq!(bench.call(2, create(DIR, "a")), []);
    let mut bench = trusted(true);
    here(&bench.call(2, create(DIR, "a")));
    bench.step(Input::Close);
    assert_eq!(answers(&bench.call(3, create(DIR, "b"))), [(3, Err(Errno::ESHUTDOWN))]);
}

#[test]
fn so_much_at_once_and_no_more() {
    let mut bench = trusted(true);
    bench.step(numbers(10_000, 5_000));
    let mut offered = Vec::new();
    for call in 0..1024 {
        bench.wait(1);
        let out = bench.call(10 + call, mkdir(DIR, &format!("{call}")));
        here(&out);
        offered.extend(sent(&out).into_iter().filter_map(|message| match message {
            ClientMsg::Idle { list } => Some(list),
            _ => None,
        }));
    }
    // The rank does not delegate more than 1,024: those that were used longest ago go before.
    let lengths: Vec<usize> = offered.iter().map(Vec::len).collect();
    assert_eq!((lengths, offered[0][0], offered[0].contains(&Ino(DIR))), (vec![57, 57], Ino(1000), false));
    let asked_for = asked(&bench.call(2000, mkdir(DIR, "x")));
    bench.step(done(2, 50));
    bench.wait(1);
    here(&bench.call(2001, mkdir(DIR, "y")));
    bench.step(early(asked_for, 51, attr(5)));
    for tid in 2..2 + 1024 + 2 {
        bench.step(done(tid, 52));
    }
    bench.step(durable(52));
    // Of so many directories those are forgotten that were used longest ago; the rank may recall them all the same.
    assert!(bench.client.delegations.get(Ino(1000)).is_none());
    let returned = bench.step(recall_bits(1000, Bits::DX));
    assert!(matches!(returned[..], [Output::Send { message: ClientMsg::Returned { .. }, .. }]));
    here(&bench.call(2002, mkdir(DIR, "z")));
}

#[test]
fn an_error_that_comes_late_is_told_and_everything_is_asked_for_again() {
    let mut bench = trusted(true);
    here(&bench.call(2, mkdir(DIR, "d")));
    here(&bench.call(3, create(1000, "f")));
    here(&bench.call(4, create(DIR, "g")));
    let out = bench.step(reply(2, Err(Errno::ENOSPC)));
    assert_eq!(late(&out), [(mkdir(1, "d").kind(), vec![DIR, 1000], Errno::ENOSPC)]);
    asked(&bench.call(5, create(1000, "h")));
    asked(&bench.call(6, lookup(DIR, "d")));
    asked(&bench.call(7, getattr(1002)));
    let out = bench.step(reply(3, Err(Errno::ESTALE)));
    assert_eq!(late(&out), [(create(1, "f").kind(), vec![1000, 1001], Errno::ESTALE)]);
    assert_eq!(bench.client.opens(Ino(1001)), 0);
    // Once it has been looked at again, it goes on.
    let look = asked(&bench.call(8, getattr(DIR)));
    bench.step(reply(look, Ok(Reply::Attr(dir_attr(DIR)))));
    let look = asked(&bench.call(9, lookup(DIR, "i")));
    bench.step(reply(look, Err(Errno::ENOENT)));
    here(&bench.call(10, create(DIR, "i")));
}

#[test]
fn what_is_told_again_is_kept_no_longer_than_the_rank_believes() {
    let mut bench = trusted(true);
    let out = bench.call(2, create(DIR, "a"));
    let Output::Answer { validity: first, .. } = &out[1] else { panic!("{out:?}") };
    let until = first.until;
    bench.wait(SECOND);
    let validity = |out: &[Output]| match out {
        [Output::Answer { validity, .. }] => validity.clone(),
        other => panic!("{other:?}"),
    };
    let second = validity(&bench.call(3, getattr(1000)));
    assert_eq!((second.until, second.grants.of(0)), (until, Bits::ATTRS));
    bench.wait(SECOND);
    assert_eq!(validity(&bench.call(4, getattr(1000))), crate::validity::Validity::default());
    // A directory is asked for then: the kernel walks through it again and again.
    here(&bench.call(5, mkdir(DIR, "d")));
    bench.wait(2 * SECOND);
    let look = asked(&bench.call(6, lookup(DIR, "d")));
    let dir = Attr { parent: Ino(DIR), ..dir_attr(1001) };
    let outcome = Ok(Reply::Attr(dir));
    let granted = ServerMsg::Granted { tid: Tid(look), outcome, grants: Grants::One(Bits::ATTRS) };
    bench.step(from_rank(granted));
    assert_eq!(validity(&bench.call(7, lookup(DIR, "d"))).grants.of(0), Bits::ATTRS);
}

/// Where a rank that lives again carries it out, the names of what its life before gave are the same.
#[test]
fn time_never_goes_back_for_a_caller() {
    let mut bench = trusted(true);
    bench.wait(SECOND);
    let first = here(&bench.call(2, create(DIR, "a"))).mtime;
    let tid = asked(&bench.call(3, unlink(1, "x")));
    // The rank's clock was set back.
    bench.step(from_rank(ServerMsg::Early {
        tid: Tid(tid),
        position: Position(50),
        wall: Wall(20),
        outcome: Ok(Reply::Ok),
        grants: Grants::None,
        delegated: Vec::new(),
    }));
    assert_eq!(here(&bench.call(4, create(DIR, "b"))).mtime, first);
}

#[test]
fn who_does_not_want_it_has_none_of_it() {
    let mut bench = caching();
    bench.step(numbers(1000, 10));
    bench.call(1, create(1, "first"));
    bench.step(early_with(1, 10, created(7), delegated(DIR, true)));
    asked(&bench.call(2, create(DIR, "a")));
    assert!(bench.client.delegations.is_empty() && bench.client.numbers.seed().is_none());
}

/// Another thread delivers it: the file was removed here while the answer was on its way.
#[test]
fn an_answer_from_before_leaves_nothing_of_what_was_removed_meanwhile() {
    let mut bench = trusted(true);
    let ino = here(&bench.call(2, create(DIR, "a"))).ino.0;
    let open = asked(&bench.call(3, Request::Open { node: node(ino), flags: 0 }));
    here(&bench.call(4, unlink(DIR, "a")));
    assert_eq!(left(&bench.step(granted(open, ino, Bits::ATTRS))), [Bits::NONE]);
    let look = asked(&bench.call(5, getattr(ino)));
    assert_eq!(left(&bench.step(granted(look, ino, Bits::ATTRS))), [Bits::ATTRS], "asked for after it");
}

#[cfg(feature = "mutants")]
#[test]
fn an_answer_that_overtakes_is_caught() {
    stdx::mutant::activate(Some("client_answer_overtakes_performed"));
    let verdict =
        std::panic::catch_unwind(an_answer_from_before_leaves_nothing_of_what_was_removed_meanwhile);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
}
