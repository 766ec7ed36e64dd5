//! Sessions that an operator ends while the rank does not serve yet.
//!
//! Absent: evictions by a rank that serves (`sessions.rs`, `caps/silent.rs`).

use super::*;

/// The rank lives again; before the step that begins to serve, and after so many others, an operator ends a session.
fn evicted_after(steps: usize, session: SessionId, w: &mut World) {
    w.dies(w.incarnation + 1);
    w.inbox.push_back(Input::Boot);
    for _ in 0..steps {
        assert!(w.one_step());
    }
    assert!(matches!(w.rank.state(), State::Boot | State::Replay), "{:?} after {steps}", w.rank.state());
    w.inbox.push_front(Input::Evict { session });
    assert!(w.one_step());
}

/// What broke: it was answered with success and forgotten, and the client came back with its lock.
#[test]
fn an_eviction_during_replay_is_carried_out_after_it() {
    // Before it boots; before the store is read; before the tail is; before that has ended; before the first append is durable.
    for steps in 0..5 {
        let mut w = remote();
        let request = Request::Create { parent: root(), name: n("f"), new: mode(0o644), flags: 2 };
        let Ok(Reply::Created { attr, .. }) = w.call_as(REMOTE, Cred::ROOT, request) else {
            panic!("create")
        };
        let (f, session) = (node(&attr), w.sessions[&REMOTE]);
        let lock = LockSpec { flock: true, owner: 1, kind: LockKind::Write, start: 0, end: u64::MAX, pid: 1 };
        w.call_as(REMOTE, Cred::ROOT, Request::SetLock { node: f, lock, wait: false }).expect("lock");
        evicted_after(steps, session, &mut w);
        // Who is there already is refused as well as who comes later.
        for conn in [REMOTE, OTHER] {
            w.inbox.push_back(Input::Connected { conn, peer: Peer::Trusted });
            let info = ClientInfo { host: "h".into(), mount: "/m".into(), pid: 1, caps_max: 0 };
            let message =
                ClientMsg::Hello { protocol: PROTOCOL, session, info, wants: Bits::NONE, at: w.at() };
            w.say(conn, message);
            let told = w.welcomed(conn);
            let Some(ServerMsg::Refused { errno, .. }) = told else {
                panic!("after {steps} steps: {told:?}")
            };
            assert_eq!(errno, Errno::ESTALE.0 as u32);
        }
        assert!(w.rank.state().serves(), "{:?}", w.notes);
        // Neither does a crash bring it back.
        w.crash();
        let told = w.hello(REMOTE, Peer::Trusted, session);
        assert!(matches!(told, Some(ServerMsg::Refused { .. })), "after {steps} steps: {told:?}");
        w.pass(4_000);
        assert!(!w.rank.sessions.map.contains_key(&session), "{:?}", w.notes);
    }
}

#[cfg(feature = "mutants")]
#[test]
fn an_eviction_that_is_forgotten_is_caught() {
    stdx::mutant::activate(Some("mds_eviction_in_replay_forgotten"));
    let verdict = std::panic::catch_unwind(an_eviction_during_replay_is_carried_out_after_it);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
}
