//! How much is granted and noted: to one session, of one inode, in all.
//!
//! Absent: conflicts (`caps.rs`).

use super::*;

#[test]
fn an_inode_that_ends_leaves_no_record_and_a_session_no_more_than_its_limit() {
    let mut w = two();
    w.say(OTHER, ClientMsg::Goodbye);
    let most = w.config.limits.caps_per_client;
    for i in 0..most + 9 {
        let request = Request::MkNod { parent: root(), name: n(&format!("f{i}")), new: mode(0o100_644) };
        granted(&mut w, REMOTE, request);
    }
    assert_eq!(w.rank.status().caps, most);
    for i in 0..most + 9 {
        w.call_as(REMOTE, Cred::ROOT, unlink(&format!("f{i}"))).expect("gone");
    }
    assert_eq!(w.rank.status().caps, 0);
}

/// At its limit a session is granted what is new to it in the place of what its kernel does not keep any more.
#[test]
fn what_was_granted_long_ago_makes_room() {
    let mut w = two();
    w.say(OTHER, ClientMsg::Goodbye);
    let most = w.config.limits.caps_per_client;
    w.wants = Bits::NONE;
    w.hello(OTHER, Peer::Trusted, SessionId(0));
    let all = most + 600;
    for i in 0..all {
        let new = mode(0o100_644);
        let request = Request::MkNod { parent: root(), name: n(&format!("f{i}")), new };
        w.call_as(OTHER, Cred::ROOT, request).expect("made");
    }
    let fill = |w: &mut World, names: std::ops::Range<u64>| {
        names.filter(|i| !granted(w, REMOTE, lookup(&format!("f{i}"))).1.is_empty()).count() as u64
    };
    assert_eq!(fill(&mut w, 0..most + 300), most, "all of it may be kept still");
    assert_eq!(fill(&mut w, 0..9), 9, "what it has it is granted again");
    for _ in 0..30 {
        w.pass(1_000);
        w.say(REMOTE, ClientMsg::Renew { number: 1 });
    }
    assert!(
        fill(&mut w, most + 300..all) >= most / 2,
        "what was granted half a minute ago is kept by nobody"
    );
    assert!(w.rank.status().caps <= most);
    assert_eq!(recalls(&mut w, REMOTE), []);
}

/// `caps_max`: it holds for one session, over a new connection too.
#[test]
fn a_session_keeps_no_more_than_it_asked_for() {
    let mut w = two();
    w.caps_max = 3;
    w.hello(EMBEDDED, Peer::Trusted, SessionId(0));
    for i in 0..9 {
        let request = Request::MkNod { parent: root(), name: n(&format!("f{i}")), new: mode(0o100_644) };
        granted(&mut w, REMOTE, request);
    }
    let of = |w: &mut World, conn| {
        (0..9).filter(|i| !granted(w, conn, lookup(&format!("f{i}"))).1.is_empty()).count()
    };
    assert_eq!((of(&mut w, EMBEDDED), of(&mut w, OTHER)), (3, 9));
}

/// What broke: each new session left an entry in the list of an inode with many holders.
#[test]
fn what_many_hold_forgets_those_who_are_gone() {
    let mut w = World::new();
    w.wants = ALL;
    for conn in 10..16 {
        w.hello(ConnId(conn), Peer::Trusted, SessionId(0));
        assert_eq!(granted(&mut w, ConnId(conn), Request::GetAttr { node: root() }).1, Bits::ATTRS);
    }
    let before = w.rank.status().caps_bytes;
    for conn in 100..1_100 {
        w.hello(ConnId(conn), Peer::Trusted, SessionId(0));
        granted(&mut w, ConnId(conn), Request::GetAttr { node: root() });
        w.say(ConnId(conn), ClientMsg::Goodbye);
    }
    assert_eq!(w.rank.status().caps, 6);
    assert!(w.rank.status().caps_bytes < before + 1_000, "{} of {before}", w.rank.status().caps_bytes);
}
