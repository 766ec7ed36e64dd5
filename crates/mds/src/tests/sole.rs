//! Who may cache: the sole session, its sharing, and what a restart leaves of it.

use super::sessions::{OTHER, REMOTE, remote};
use super::*;

const SHARE: (ConnId, ServerMsg) = (REMOTE, ServerMsg::Share);

#[test]
fn the_sole_session_shares_before_a_second_is_welcomed() {
    let mut w = World::new();
    let hello = w.hello(REMOTE, Peer::Trusted, SessionId(0));
    assert_eq!(hello, None);
    assert!(w.sent.contains(&(EMBEDDED, ServerMsg::Share)));
    w.say(EMBEDDED, ClientMsg::Shared);
    assert!(matches!(w.welcomed(REMOTE), Some(ServerMsg::Welcome { sole: false, .. })));
    let third = w.hello(OTHER, Peer::Trusted, SessionId(0));
    assert!(matches!(third, Some(ServerMsg::Welcome { sole: false, .. })));
    w.say(REMOTE, ClientMsg::Goodbye);
    assert!(!w.sent.contains(&(EMBEDDED, ServerMsg::Sole)));
    w.say(OTHER, ClientMsg::Goodbye);
    assert!(w.sent.contains(&(EMBEDDED, ServerMsg::Sole)));
}

#[test]
fn the_second_is_welcomed_when_the_sole_session_ends_instead() {
    let mut w = remote();
    assert_eq!(w.hello(OTHER, Peer::Trusted, SessionId(0)), None);
    w.inject(Input::Disconnected { conn: REMOTE });
    assert_eq!(w.welcomed(OTHER), None, "it may come back with its cache");
    for _ in 0..12 {
        w.say(OTHER, ClientMsg::Renew);
        w.pass(1_000);
    }
    assert!(matches!(w.welcomed(OTHER), Some(ServerMsg::Welcome { sole: true, .. })));
}

/// The rank died while the remote session was alone; the embedded one is new and waits.
fn restarted() -> (World, SessionId) {
    let mut w = remote();
    let session = w.sessions[&REMOTE];
    w.sent.clear();
    w.crash();
    assert!(!w.sessions.contains_key(&EMBEDDED), "the other one's kernel may answer from what it kept");
    (w, session)
}

#[test]
fn after_a_restart_a_new_session_waits_until_those_before_have_shared() {
    let (mut w, session) = restarted();
    let back = w.hello(REMOTE, Peer::Trusted, session);
    assert!(matches!(back, Some(ServerMsg::Welcome { resumed: true, sole: false, .. })), "{back:?}");
    assert!(w.sent.contains(&SHARE));
    assert_eq!(w.welcomed(EMBEDDED), None);
    w.say(REMOTE, ClientMsg::Shared);
    assert!(matches!(w.welcomed(EMBEDDED), Some(ServerMsg::Welcome { sole: false, .. })));
}

#[test]
fn who_does_not_come_back_after_a_restart_is_waited_for_a_second() {
    let (mut w, session) = restarted();
    w.pass(999);
    assert_eq!(w.welcomed(EMBEDDED), None);
    w.pass(1);
    assert!(matches!(w.welcomed(EMBEDDED), Some(ServerMsg::Welcome { sole: false, .. })));
    let back = w.hello(REMOTE, Peer::Trusted, session);
    assert!(matches!(back, Some(ServerMsg::Welcome { resumed: true, sole: false, .. })), "{back:?}");
    assert!(!w.sent.contains(&SHARE), "nobody waits for it");
}

#[test]
fn who_came_back_after_a_restart_is_waited_for_and_asked_again() {
    let (mut w, session) = restarted();
    w.hello(REMOTE, Peer::Trusted, session);
    w.inject(Input::Disconnected { conn: REMOTE });
    w.pass(2_000);
    assert_eq!(w.welcomed(EMBEDDED), None, "it may have noticed the restart late");
    w.sent.clear();
    w.hello(REMOTE, Peer::Trusted, session);
    assert!(w.sent.contains(&SHARE));
    w.say(REMOTE, ClientMsg::Shared);
    assert!(w.welcomed(EMBEDDED).is_some());
}

/// Until `conn` is welcomed the remote session renews and says nothing else. For how many leases?
fn renewing_until_welcomed(w: &mut World, conn: ConnId) -> u64 {
    let lease_ms = w.config.lease_ns / stdx::time::MS;
    for waited in (0..10 * lease_ms).step_by(1_000) {
        if w.welcomed(conn).is_some() {
            return waited / lease_ms;
        }
        w.say(REMOTE, ClientMsg::Renew);
        w.pass(1_000);
    }
    panic!("kept out");
}

/// Found by review: for as long as it renewed, nobody else could mount.
#[test]
fn who_renews_and_never_shares_is_evicted() {
    let mut w = remote();
    w.hello(OTHER, Peer::Trusted, SessionId(0));
    assert_eq!(renewing_until_welcomed(&mut w, OTHER), 6);
    let (mut w, session) = restarted();
    w.hello(REMOTE, Peer::Trusted, session);
    w.say(REMOTE, ClientMsg::Reclaimed);
    assert_eq!(renewing_until_welcomed(&mut w, EMBEDDED), 6);
}

#[test]
fn who_shared_late_is_not_evicted_later() {
    let mut w = remote();
    w.hello(OTHER, Peer::Trusted, SessionId(0));
    for _ in 0..50 {
        w.say(REMOTE, ClientMsg::Renew);
        w.pass(1_000);
    }
    w.say(REMOTE, ClientMsg::Shared);
    assert_eq!(renewing_until_welcomed(&mut w, OTHER), 0);
    for _ in 0..50 {
        w.say(REMOTE, ClientMsg::Renew);
        w.pass(1_000);
    }
    assert!(w.call_as(REMOTE, Cred::ROOT, Request::StatFs).is_ok());
}

#[test]
fn the_end_of_a_session_before_a_restart_is_as_good_as_its_sharing() {
    let (mut w, session) = restarted();
    w.hello(REMOTE, Peer::Trusted, session);
    w.say(REMOTE, ClientMsg::Goodbye);
    assert!(matches!(w.welcomed(EMBEDDED), Some(ServerMsg::Welcome { .. })));
}

#[test]
fn who_is_back_first_after_a_restart_is_alone_only_when_others_had_a_second_to_come() {
    let (mut w, session) = restarted();
    w.say(EMBEDDED, ClientMsg::Goodbye);
    let back = w.hello(REMOTE, Peer::Trusted, session);
    assert!(matches!(back, Some(ServerMsg::Welcome { sole: false, .. })), "{back:?}");
    w.say(REMOTE, ClientMsg::Shared);
    let other = w.hello(OTHER, Peer::Trusted, SessionId(0));
    assert!(matches!(other, Some(ServerMsg::Welcome { sole: false, .. })), "{other:?}");
    w.say(OTHER, ClientMsg::Goodbye);
    assert!(!w.sent.contains(&(REMOTE, ServerMsg::Sole)));
    w.pass(1_000);
    assert!(w.sent.contains(&(REMOTE, ServerMsg::Sole)));
    assert_eq!(w.hello(OTHER, Peer::Trusted, SessionId(0)), None);
}
