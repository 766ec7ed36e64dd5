//! What is asked again, or presented again, counts once.
//!
//! Absent: what was performed by the client itself (`early.rs`).

use super::*;

#[test]
fn a_retried_request_has_one_effect_and_one_answer() {
    let mut w = remote();
    let tid = w.start(REMOTE, Cred::ROOT, mkdir("a"));
    let first = w.answer(REMOTE, tid).expect("answer");
    w.retry(REMOTE, tid, Cred::ROOT, mkdir("a"));
    assert_eq!(w.answer(REMOTE, tid), Some(first.clone()));
    let session = w.sessions[&REMOTE];
    for round in 0..2 {
        w.crash();
        w.say(EMBEDDED, ClientMsg::Goodbye);
        let welcome = w.hello(REMOTE, Peer::Trusted, session);
        assert!(matches!(welcome, Some(ServerMsg::Welcome { resumed: true, .. })), "{welcome:?}");
        w.say(REMOTE, ClientMsg::Reclaimed);
        w.retry(REMOTE, tid, Cred::ROOT, mkdir("a"));
        assert_eq!(w.answer(REMOTE, tid), Some(first.clone()), "round {round}");
        w.checkpoint();
    }
    let floor = Tid(tid.0 + 1);
    w.say(
        REMOTE,
        ClientMsg::Request { tid: Tid(tid.0 + 5), floor, cred: Cred::ROOT, request: Request::StatFs },
    );
    w.retry(REMOTE, tid, Cred::ROOT, mkdir("a"));
    assert_eq!(w.answer(REMOTE, tid), None, "below the floor nothing is answered");
}

#[test]
fn an_open_is_counted_once_and_again_after_a_restart() {
    let mut w = remote();
    let request = Request::Create { parent: root(), name: n("f"), new: mode(0o644), flags: 2 };
    let tid = w.start(REMOTE, Cred::ROOT, request.clone());
    w.answer(REMOTE, tid).expect("answer").expect("created");
    w.retry(REMOTE, tid, Cred::ROOT, request.clone());
    let f =
        w.rank.view.cache.by_ino(Ino(4096)).map(|s| w.rank.view.cache.node(s).ino()).expect("first number");
    let opens = |w: &World| w.rank.view.files.get(f).map(|s| s.opens.clone()).unwrap_or_default();
    let opens = |w: &World| opens(w).iter().map(|o| (o.session, o.count)).collect::<Vec<_>>();
    let session = w.sessions[&REMOTE];
    assert_eq!(opens(&w), vec![(session, 1)]);
    w.crash();
    assert!(opens(&w).is_empty());
    w.say(EMBEDDED, ClientMsg::Goodbye);
    w.hello(REMOTE, Peer::Trusted, session);
    w.say(REMOTE, ClientMsg::Reclaimed);
    w.retry(REMOTE, tid, Cred::ROOT, request.clone());
    w.retry(REMOTE, tid, Cred::ROOT, request);
    assert_eq!(opens(&w), vec![(session, 1)]);
}

/// What broke: a session that never said what it has got made its record grow beyond what the store takes back.
#[test]
fn results_of_a_session_that_never_moves_its_floor_are_bounded() {
    let mut w = World::with(|config| config.limits.results = 10);
    w.say(EMBEDDED, ClientMsg::Goodbye);
    w.hello(REMOTE, Peer::Trusted, SessionId(0));
    let made = (0..20).filter(|i| w.call_as(REMOTE, Cred::ROOT, mkdir(&format!("d{i}"))).is_ok()).count();
    assert_eq!(made, 10);
}

#[test]
fn what_was_refused_is_not_executed_when_it_is_asked_again() {
    let mut w = remote();
    w.call_as(REMOTE, Cred::ROOT, mkdir("d")).expect("made");
    let tid = w.start(REMOTE, Cred::ROOT, mkdir("d"));
    assert_eq!(w.answer(REMOTE, tid), Some(Err(Errno::EEXIST)));
    w.call_as(REMOTE, Cred::ROOT, Request::RmDir { parent: root(), name: n("d") }).expect("removed");
    w.retry(REMOTE, tid, Cred::ROOT, mkdir("d"));
    assert_eq!(w.answer(REMOTE, tid), Some(Err(Errno::EEXIST)));
    let look = Request::Lookup { parent: root(), name: n("d") };
    assert_eq!(w.call_as(REMOTE, Cred::ROOT, look), Err(Errno::ENOENT));
}

#[cfg(feature = "mutants")]
#[test]
fn a_refusal_that_is_forgotten_is_caught() {
    stdx::mutant::activate(Some("mds_refusal_forgotten"));
    let verdict = std::panic::catch_unwind(what_was_refused_is_not_executed_when_it_is_asked_again);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
}

/// What broke: what was presented on a connection that broke was counted again on the next one.
#[test]
fn an_open_that_is_presented_twice_counts_once() {
    let mut w = remote();
    let request = Request::Create { parent: root(), name: n("f"), new: mode(0o644), flags: 2 };
    let tid = w.start(REMOTE, Cred::ROOT, request);
    let Some(Ok(Reply::Created { attr, .. })) = w.answer(REMOTE, tid) else { panic!("create") };
    let f = node(&attr);
    w.call_as(REMOTE, Cred::ROOT, write_at(f, 0)).expect("write");
    let session = w.sessions[&REMOTE];
    w.crash();
    w.say(EMBEDDED, ClientMsg::Goodbye);
    w.hello(REMOTE, Peer::Trusted, session);
    w.say(REMOTE, ClientMsg::Reclaim { node: f, count: 1, writes: false, locks: vec![] });
    w.inject(Input::Disconnected { conn: REMOTE });
    w.hello(OTHER, Peer::Trusted, session);
    w.say(OTHER, ClientMsg::Reclaim { node: f, count: 1, writes: false, locks: vec![] });
    w.say(OTHER, ClientMsg::Reclaimed);
    w.call_as(OTHER, Cred::ROOT, Request::Unlink { parent: root(), name: n("f") }).expect("unlink");
    assert_eq!(w.data.len(), 1);
    let tid = w.next_tid();
    let (cred, request) = (Cred::ROOT, Request::StatFs);
    w.say(OTHER, ClientMsg::Request { tid, floor: tid, cred, request });
    assert_eq!(w.data.len(), 1, "it has the answer of its create, and the file open");
    w.call_as(OTHER, Cred::ROOT, Request::Release { node: f, count: 1 }).expect("release");
    assert_eq!(w.data.len(), 0);
}

/// What broke: a release whose answer got lost, but not its result, was answered from the result, and what the client had reclaimed
/// because it had not heard of it stayed for as long as its session.
#[test]
fn a_release_that_was_never_heard_of_releases_what_was_reclaimed() {
    let mut w = remote();
    let request = Request::Create { parent: root(), name: n("f"), new: mode(0o644), flags: 2 };
    let Ok(Reply::Created { attr, .. }) = w.call_as(REMOTE, Cred::ROOT, request) else { panic!("create") };
    let f = node(&attr);
    w.call_as(REMOTE, Cred::ROOT, write_at(f, 0)).expect("write");
    let lock = LockSpec { flock: true, owner: 1, kind: LockKind::Write, start: 0, end: u64::MAX, pid: 1 };
    w.call_as(REMOTE, Cred::ROOT, Request::SetLock { node: f, lock, wait: false }).expect("lock");
    let unlock = Request::ReleaseLocks { node: f, flock: true, owner: 1 };
    let release = Request::Release { node: f, count: 1 };
    let unheard = [unlock, release].map(|request| {
        let tid = w.start(REMOTE, Cred::ROOT, request.clone());
        assert_eq!(w.answer(REMOTE, tid), Some(Ok(Reply::Ok)));
        (tid, request)
    });
    let session = w.sessions[&REMOTE];
    w.checkpoint();
    w.crash();
    w.hello(REMOTE, Peer::Trusted, session);
    w.say(REMOTE, ClientMsg::Reclaim { node: f, count: 1, writes: true, locks: vec![lock] });
    w.say(REMOTE, ClientMsg::Reclaimed);
    assert_eq!((w.rank.status().locks, w.data.len()), (1, 1));
    let floor = unheard[0].0;
    for (tid, request) in unheard {
        w.say(REMOTE, ClientMsg::Request { tid, floor, cred: Cred::ROOT, request });
    }
    assert_eq!(w.rank.status().locks, 0);
    w.call_as(REMOTE, Cred::ROOT, Request::Unlink { parent: root(), name: n("f") }).expect("unlink");
    assert_eq!(w.data.len(), 0, "it is not open");
}
