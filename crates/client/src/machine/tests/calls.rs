//! What becomes of one call: credit, bounds, signals, killed callers, waits for locks.
//!
//! Absent: sessions (`tests.rs`), random orders (`breaks.rs`).

use super::*;

#[test]
fn credit_holds_requests_back_but_never_what_releases() {
    let mut bench = Bench::up(true);
    assert_eq!(tids(&bench.call(1, getattr(1))), [1]);
    assert_eq!(tids(&bench.call(2, getattr(1))), [2]);
    assert_eq!(tids(&bench.call(3, getattr(1))), []);
    let unlock = Request::SetLock { node: node(1), lock: lock(1, LockKind::Unlock), wait: false };
    assert_eq!(tids(&bench.call(4, unlock)), [3]);
    assert_eq!(tids(&bench.call(5, lock_wait(1, 2))), [4]);
    // A lock wait uses no credit: the holder's next request must still get through.
    assert_eq!(tids(&bench.step(reply(1, attr(1)))), [], "the unlock counts until it is answered");
    assert_eq!(tids(&bench.step(reply(3, Ok(Reply::Ok)))), [5]);
}

#[test]
fn every_bound_has_its_answer() {
    let mut bench = Bench::new(true, Limits::tiny());
    for call in 0..8 {
        assert_eq!(bench.call(call, getattr(1)), []);
    }
    assert_eq!(answers(&bench.call(8, getattr(1))), [(8, Err(Errno::EAGAIN))]);
    let mut bench = Bench::up(true);
    bench.call(1, lock_wait(1, 1));
    bench.call(2, lock_wait(1, 2));
    assert_eq!(answers(&bench.call(3, lock_wait(1, 3))), [(3, Err(Errno::ENOLCK))]);
    let mut bench = Bench::up(true);
    for ino in 1..=4 {
        bench.call(ino, Request::Open { node: node(ino), flags: 0 });
        bench.step(reply(ino, attr(ino)));
    }
    assert_eq!(answers(&bench.call(5, Request::Open { node: node(5), flags: 0 })), [(5, Err(Errno::ENFILE))]);
    assert_eq!(tids(&bench.call(6, Request::Open { node: node(4), flags: 0 })), [5]);
}

#[test]
fn an_interrupt_ends_waits_for_locks_only() {
    let mut bench = Bench::up(true);
    bench.call(1, getattr(1));
    assert_eq!(bench.step(Input::Interrupt { call: CallId(1) }), []);
    bench.call(2, lock_wait(1, 1));
    let out = bench.step(Input::Interrupt { call: CallId(2) });
    assert_eq!(sent(&out), [ClientMsg::Cancel { tid: Tid(2) }]);
    assert_eq!(bench.step(Input::Interrupt { call: CallId(2) }), [], "once is enough");
    assert_eq!(answers(&bench.step(reply(2, Err(Errno::EINTR)))), [(2, Err(Errno::EINTR))]);
    let mut bench = Bench::new(true, Limits::tiny());
    bench.call(3, lock_wait(1, 1));
    assert_eq!(answers(&bench.step(Input::Interrupt { call: CallId(3) })), [(3, Err(Errno::EINTR))]);
}

#[test]
fn a_killed_caller_is_answered_at_once_and_what_it_opened_is_closed() {
    let eintr = |call| vec![(call, Err(Errno::EINTR))];
    let mut bench = Bench::up(true);
    let open = Request::Open { node: node(7), flags: 0 };
    bench.call(1, open);
    assert_eq!(answers(&bench.step(Input::Abandon { call: CallId(1) })), eintr(1));
    assert_eq!(bench.step(Input::Abandon { call: CallId(1) }), [], "once is enough");
    bench.step(Input::Disconnected { rank: RANK });
    // Unsent: never was. What gives back is sent all the same, and the resume asks for the open again.
    bench.call(2, getattr(2));
    bench.call(3, Request::Release { node: node(9), count: 1 });
    for call in [2, 3] {
        assert_eq!(answers(&bench.step(Input::Abandon { call: CallId(call) })), eintr(call));
    }
    bench.step(Input::Connected { rank: RANK });
    let out = bench.step(welcome(5, true));
    let requests: Vec<_> =
        sent(&out).into_iter().filter(|m| matches!(m, ClientMsg::Request { .. })).collect();
    let is = |at: usize, wanted: &Request| matches!(&requests[at], ClientMsg::Request { request, .. } if request == wanted);
    assert!(requests.len() == 2 && is(0, &Request::Open { node: node(7), flags: 0 }), "{requests:?}");
    assert!(is(1, &Request::Release { node: node(9), count: 1 }), "{requests:?}");
    let out = bench.step(reply(1, attr(7)));
    assert_eq!(answers(&out), []);
    let release = Request::Release { node: NodeRef { ino: Ino(7), ..NodeRef::default() }, count: 1 };
    assert!(
        matches!(&sent(&out)[..], [ClientMsg::Request { tid: Tid(3), request, .. }] if *request == release)
    );
    bench.step(reply(3, Ok(Reply::Ok)));
    assert_eq!((bench.client.opens(Ino(7)), bench.client.awaits(Tid(3))), (0, false));
}

/// What broke: a write of a killed process reached the file after its lock was somebody else's.
#[test]
fn a_change_that_was_sent_is_waited_for() {
    let mut bench = Bench::up(true);
    let name = proto::Name::new(b"a").expect("a name");
    bench.call(1, Request::Unlink { parent: node(1), name });
    bench.call(2, Request::SetLock { node: node(7), lock: lock(1, LockKind::Write), wait: false });
    for call in [1, 2] {
        assert_eq!(bench.step(Input::Abandon { call: CallId(call) }), []);
    }
    assert_eq!(answers(&bench.step(reply(1, Ok(Reply::Ok)))), [(1, Ok(Reply::Ok))]);
    // What gives back is no change that anybody waits for.
    bench.call(3, Request::ReleaseLocks { node: node(7), flock: false, owner: 1 });
    assert_eq!(answers(&bench.step(Input::Abandon { call: CallId(3) })), [(3, Err(Errno::EINTR))]);
}

#[test]
fn a_killed_wait_for_a_lock_is_cancelled() {
    let mut bench = Bench::up(true);
    bench.call(1, lock_wait(1, 1));
    let out = bench.step(Input::Abandon { call: CallId(1) });
    assert_eq!(sent(&out), [ClientMsg::Cancel { tid: Tid(1) }]);
    assert_eq!(answers(&out), [(1, Err(Errno::EINTR))]);
    assert_eq!(bench.step(reply(1, Err(Errno::EINTR))), []);
    // Granted before the rank heard of it: given back, the open file may live on in another process.
    bench.call(2, lock_wait(1, 1));
    bench.step(Input::Abandon { call: CallId(2) });
    let unlock = Request::SetLock { node: node(1), lock: lock(1, LockKind::Unlock), wait: false };
    let out = sent(&bench.step(reply(2, Ok(Reply::Ok))));
    assert!(matches!(&out[..], [ClientMsg::Request { request, .. }] if *request == unlock), "{out:?}");
    // In one process nothing is kept: the rank is here, and answers.
    let mut bench = Bench::up(false);
    bench.call(1, getattr(1));
    assert_eq!(bench.step(Input::Abandon { call: CallId(1) }), []);
}

#[test]
fn an_old_lock_wait_moves_on_so_that_the_rank_can_forget() {
    let mut bench = Bench::up(true);
    bench.call(0, lock_wait(1, 1));
    for call in 1..8 {
        let out = bench.call(call, getattr(1));
        bench.step(reply(tids(&out)[0], attr(1)));
    }
    // tids 1 to 8 are used: the window is as wide as it may be.
    let out = bench.call(8, getattr(1));
    assert_eq!(sent(&out), [ClientMsg::Cancel { tid: Tid(1) }]);
    let out = bench.step(reply(1, Err(Errno::EINTR)));
    assert_eq!((answers(&out), tids(&out)), (Vec::new(), vec![9, 10]));
    assert_eq!(answers(&bench.step(reply(9, Ok(Reply::Ok)))), [(0, Ok(Reply::Ok))]);
}

#[test]
fn a_listing_that_does_not_go_on_fails() {
    let list = |after| Request::ReadDir { dir: node(1), after, attrs: false, bytes_max: 4096 };
    for further in [6, 7] {
        let mut bench = Bench::up(true);
        bench.call(1, list(5));
        let out = bench.step(reply(1, Ok(Reply::Further(7))));
        assert_eq!((answers(&out), tids(&out)), (vec![], vec![2]), "the next part");
        let out = bench.step(reply(2, Ok(Reply::Further(further))));
        assert_eq!((answers(&out), tids(&out)), (vec![(1, Err(Errno::EIO))], vec![]));
    }
}

#[cfg(feature = "mutants")]
#[test]
fn a_listing_without_end_is_caught() {
    stdx::mutant::activate(Some("client_lists_without_end"));
    let verdict = std::panic::catch_unwind(a_listing_that_does_not_go_on_fails);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
}
