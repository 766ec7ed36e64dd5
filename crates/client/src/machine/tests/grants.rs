//! What may be kept of an answer, and for how long: recalls that overtake it, breaks, leases.
//!
//! Absent: directories and files that are delegated (`delegated.rs`, `files.rs`).

use super::*;

/// Another thread delivers it: it was sent after the answers, and comes before them.
#[test]
fn a_recall_voids_the_grants_of_answers_that_it_overtakes() {
    let mut bench = caching();
    bench.call(1, getattr(7));
    bench.call(2, getattr(8));
    let out = bench.step(recall(7));
    let [Output::Recalled { stamp, list }] = &out[..] else { panic!("{out:?}") };
    assert_eq!(list[0].ino, Ino(7));
    assert_eq!(left(&bench.step(granted(1, 7, Bits::ATTRS))), [Bits::NONE]);
    assert_eq!(left(&bench.step(granted(2, 8, Bits::ATTRS))), [Bits::ATTRS], "another inode");
    bench.call(3, getattr(7));
    assert_eq!(left(&bench.step(granted(3, 7, Bits::ATTRS))), [Bits::ATTRS], "asked for after it");
    let list = vec![Returned { ino: Ino(7), bits: Bits::ATTRS, number: 3 }];
    let out = bench.step(Input::Returned { stamp: *stamp, list: list.clone() });
    assert_eq!(sent(&out), [ClientMsg::Returned { list }]);
}

#[test]
fn an_answer_that_lay_about_is_kept_for_less_or_not_at_all() {
    let mut bench = caching();
    for (call, late) in [(1, 0), (2, 1_000 * MS), (3, 3 * SECOND)] {
        bench.call(call, getattr(7));
        bench.wait(late);
        let out = bench.step(granted(call, 7, Bits::ATTRS));
        let [Output::Answer { validity, .. }] = &out[..] else { panic!("{out:?}") };
        let kept = validity.until.since(bench.at.mono);
        assert_eq!(kept, (KEEP_MS * MS).min((KEEP_ASKED_MS * MS).saturating_sub(late)));
    }
}

#[test]
fn after_a_break_nothing_is_kept_before_settled_and_settled_waits_for_what_was() {
    let mut bench = caching();
    bench.call(1, getattr(7));
    bench.step(granted(1, 7, Bits::ATTRS));
    let out = bench.step(recall(7));
    let Output::Recalled { stamp, .. } = &out[0] else { panic!("{out:?}") };
    assert!(matches!(bench.step(Input::Disconnected { rank: RANK })[..], [Output::Lost { .. }]));
    bench.step(Input::Connected { rank: RANK });
    bench.step(welcome(5, true));
    let list = vec![Returned { ino: Ino(7), bits: Bits::ATTRS, number: 3 }];
    assert!(bench.step(Input::Returned { stamp: *stamp, list }).is_empty(), "not owed any more");
    bench.call(2, getattr(7));
    bench.call(3, getattr(7));
    assert_eq!(left(&bench.step(granted(2, 7, Bits::ATTRS))), [Bits::NONE]);
    bench.wait((KEEP_MS + KEEP_MARGIN_MS) * MS - 1);
    assert!(!sent(&bench.step(Input::Tick)).contains(&ClientMsg::Settled));
    bench.wait(1);
    assert!(sent(&bench.step(Input::Tick)).contains(&ClientMsg::Settled));
    assert_eq!(left(&bench.step(granted(3, 7, Bits::ATTRS))), [Bits::NONE], "asked for before it");
    bench.call(4, getattr(7));
    assert_eq!(left(&bench.step(granted(4, 7, Bits::ATTRS))), [Bits::ATTRS]);
    assert!(bench.client.deadline().is_some_and(|at| at > bench.at.mono));
}

/// What broke: a READ locked its page until it was answered over the next connection, and waited there for another mount; its
/// own mount waited for the page, sent no renewals, and was given up.
#[test]
fn settled_waits_for_pages_and_the_lease_does_not() {
    let mut bench = caching();
    let lost = |out: &[Output]| {
        let [Output::Lost { stamp }] = out else { panic!("{out:?}") };
        *stamp
    };
    let first = lost(&bench.step_undropped(Input::Disconnected { rank: RANK }));
    for input in [Input::Connected { rank: RANK }, welcome(5, true)] {
        bench.step(input);
    }
    let third = u64::from(LEASE_MS) * MS / 3;
    for number in 1..=4 {
        bench.wait(third);
        assert_eq!(sent(&bench.step(Input::Tick)), [ClientMsg::Renew { number }]);
        assert!(
            bench.client.deadline().is_some_and(|at| at > bench.at.mono),
            "nothing is left to be ticked for"
        );
        bench.step(from_rank(ServerMsg::Renewed { number }));
    }
    let second = lost(&bench.step_undropped(Input::Disconnected { rank: RANK }));
    for input in [Input::Connected { rank: RANK }, welcome(5, true), Input::Dropped { stamp: first }] {
        bench.step(input);
    }
    bench.wait(1);
    assert!(sent(&bench.step(Input::Tick)).is_empty(), "that was the loss before");
    bench.step(Input::Dropped { stamp: second });
    assert_eq!(bench.client.deadline().map(|at| at <= bench.at.mono), Some(true));
    assert_eq!(sent(&bench.step(Input::Tick)), [ClientMsg::Settled]);
}

#[test]
fn a_lease_that_nobody_confirms_runs_out_here_first() {
    let mut bench = caching();
    let lease = u64::from(LEASE_MS) * MS;
    bench.wait(lease / 3);
    assert_eq!(sent(&bench.step(Input::Tick)), [ClientMsg::Renew { number: 1 }]);
    bench.step(from_rank(ServerMsg::Renewed { number: 1 }));
    bench.wait(lease - 1);
    assert!(!bench.step(Input::Tick).iter().any(|o| matches!(o, Output::Lost { .. })));
    bench.wait(1);
    assert!(
        bench.step(Input::Tick).iter().any(|o| matches!(o, Output::Lost { .. })),
        "from when it was sent"
    );
}

#[test]
fn who_wants_nothing_returns_at_once() {
    let mut bench = Bench::up(true);
    let list = vec![Returned { ino: Ino(7), bits: Bits::FS, number: 3 }];
    assert_eq!(sent(&bench.step(recall(7))), [ClientMsg::Returned { list }]);
}

/// What broke: each renewal without an answer made all later answers count for older ones, until nothing was kept any more.
#[test]
fn a_renewal_that_is_not_answered_shifts_no_other() {
    let mut bench = caching();
    let third = u64::from(LEASE_MS) * MS / 3;
    for round in 1..30 {
        bench.wait(third);
        let out = bench.step(Input::Tick);
        assert_eq!(sent(&out), [ClientMsg::Renew { number: round }]);
        assert!(!out.iter().any(|o| matches!(o, Output::Lost { .. })), "round {round}");
        // The server renews by itself, too: nobody asked for that one.
        bench.step(from_rank(ServerMsg::Renewed { number: 0 }));
        if round % 3 != 0 {
            bench.step(from_rank(ServerMsg::Renewed { number: round }));
        }
    }
}

/// What broke: it went on keeping what it was granted, with no lease at all.
#[test]
fn without_a_lease_nothing_is_kept() {
    let mut bench = caching();
    let lease = u64::from(LEASE_MS) * MS;
    bench.call(1, getattr(7));
    bench.wait(lease);
    assert_eq!(
        left(&bench.step(granted(1, 7, Bits::ATTRS))),
        [Bits::NONE],
        "it ran out before the answer came"
    );
    bench.step(Input::Tick);
    bench.call(2, getattr(7));
    assert_eq!(left(&bench.step(granted(2, 7, Bits::ATTRS))), [Bits::NONE]);
    bench.step(from_rank(ServerMsg::Renewed { number: 1 }));
    bench.call(3, getattr(7));
    assert_eq!(left(&bench.step(granted(3, 7, Bits::ATTRS))), [Bits::ATTRS]);
}

/// The rank may have made it, and others may have seen it, before its answer arrives.
#[test]
fn a_name_is_not_known_to_be_absent_while_the_rank_is_asked_to_make_it() {
    let mut bench = caching();
    let name = Name::new(b"n").expect("a name");
    let lookup = || Request::Lookup { parent: node(7), name: name.clone() };
    bench.call(1, getattr(7));
    let dir = Attr { ino: Ino(7), mode: 0o040_755, ..Attr::default() };
    let (outcome, grants) = (Ok(Reply::Attr(dir)), Grants::One(Bits::ATTRS));
    bench.step(from_rank(ServerMsg::Granted { tid: Tid(1), outcome, grants }));
    assert_eq!(tids(&bench.call(2, lookup())), [2]);
    bench.step(reply(2, Err(Errno::ENOENT)));
    let out = bench.call(3, lookup());
    assert_eq!((answers(&out), tids(&out)), (vec![(3, Err(Errno::ENOENT))], vec![]));
    let new = NewNode { mode: 0o100_644, umask: 0, rdev: 0 };
    let make = Request::MkNod { parent: node(7), name: name.clone(), new };
    assert_eq!(tids(&bench.call(4, make)), [3]);
    assert_eq!(tids(&bench.call(5, lookup())), [4]);
    bench.step(reply(4, Err(Errno::ENOENT)));
    assert_eq!(tids(&bench.call(6, lookup())), [5], "another may see it by now");
    bench.step(reply(5, Err(Errno::ENOENT)));
    bench.step(reply(3, Err(Errno::ENOSPC)));
    assert_eq!(tids(&bench.call(7, lookup())), [6]);
    bench.step(reply(6, Err(Errno::ENOENT)));
    assert_eq!(tids(&bench.call(8, lookup())), [], "nobody makes it any more");
}

#[cfg(feature = "mutants")]
#[test]
fn a_name_that_is_absent_while_it_is_made_is_caught() {
    stdx::mutant::activate(Some("client_negative_while_made"));
    let verdict =
        std::panic::catch_unwind(a_name_is_not_known_to_be_absent_while_the_rank_is_asked_to_make_it);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
}
