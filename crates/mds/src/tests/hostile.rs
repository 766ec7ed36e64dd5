//! Peers that say what no client says: they get a refusal or the end of their session, and nobody else notices.
//!
//! Absent: arbitrary sequences (`fuzz`, target rank-session); messages that cannot be decoded.

use super::early::{answer, create, perform};
use super::restart::back;
use super::sessions::{OTHER, REMOTE};
use super::*;
use proto::message::Told;
use stdx::Wall;

fn ask(w: &mut World, conn: ConnId, tid: u64, floor: u64) {
    let request = Request::MkDir { parent: root(), name: n(&format!("d{tid}")), new: mode(0o755) };
    w.say(conn, ClientMsg::Request { tid: Tid(tid), floor: Tid(floor), cred: Cred::ROOT, request });
}

fn is_refused(w: &World, conn: ConnId) -> bool {
    w.sent.iter().any(|(c, m)| *c == conn && matches!(m, ServerMsg::Refused { .. }))
}

/// A floor of 2^64-1 was journaled, and the next request of the session added to it.
#[test]
fn floors_and_tids_at_the_end_of_their_range_end_nothing_but_their_session() {
    let mut w = World::new();
    for conn in [REMOTE, OTHER] {
        w.hello(conn, Peer::Trusted, SessionId(0));
    }
    // As far as it goes, with what is allowed.
    ask(&mut w, REMOTE, u64::MAX, u64::MAX);
    assert!(answer(&w, REMOTE, Tid(u64::MAX)).is_some());
    ask(&mut w, REMOTE, u64::MAX, 1);
    ask(&mut w, REMOTE, 7, 7);
    assert!(answer(&w, REMOTE, Tid(7)).is_none(), "it has the answers of all tids below its floor");
    // And with what is not.
    ask(&mut w, OTHER, 5, 6);
    assert!(is_refused(&w, OTHER), "{:?}", w.sent);
    assert!(answer(&w, OTHER, Tid(5)).is_none());
    let third = ConnId(30);
    w.hello(third, Peer::Trusted, SessionId(0));
    ask(&mut w, third, 1, 1);
    assert!(answer(&w, third, Tid(1)).is_some());
    w.checkpoint();
    w.crash();
    assert_eq!(w.tree().len(), 3, "{:?}", w.tree());
}

/// What broke: whoever may connect could open sessions without end, each of which is journaled and kept for a lease.
#[test]
fn one_user_opens_a_bounded_number_of_sessions_and_so_do_all_together() {
    let mut w = World::with(|config| (config.limits.sessions, config.limits.sessions_per_user) = (64, 16));
    let user = |uid| Peer::User(Cred { uid, gid: uid, groups: Vec::new() });
    let mut next = 100;
    let mut open = |w: &mut World, peer: Peer| {
        next += 1;
        match w.hello(ConnId(next), peer, SessionId(0)) {
            Some(ServerMsg::Welcome { .. }) => true,
            Some(ServerMsg::Refused { errno, .. }) if errno == Errno::EAGAIN.0 as u32 => false,
            other => panic!("{other:?}"),
        }
    };
    // The mount of this process has one.
    assert_eq!((0..20).filter(|_| open(&mut w, user(7))).count(), 16);
    assert_eq!((0..20).filter(|_| open(&mut w, user(8))).count(), 16);
    assert_eq!((0..60).filter(|_| open(&mut w, Peer::Trusted)).count(), 64 - 33);
    assert!(!open(&mut w, user(9)));
    // They end with their leases, as ever.
    w.pass(40_000);
    assert!(open(&mut w, user(7)) && open(&mut w, Peer::Trusted));
}

/// A session that comes back could present the number that was delegated to another, or one twice: two files with one number.
#[test]
fn numbers_of_others_cannot_be_presented() {
    let (mut w, both) = back();
    let [(conn, id, own, dir), (other, _, delegated, _)] = both;
    let told = |ino| Told { ino, wall: Wall(1), heard: true };
    let errno = |w: &World, tid| match answer(w, conn, Tid(tid)) {
        Some(ServerMsg::Reply { outcome, .. }) => outcome.clone().err(),
        Some(ServerMsg::Done { .. }) => None,
        message => panic!("{message:?}"),
    };
    perform(&mut w, conn, 900, told(delegated), create(dir, "theirs"));
    assert_eq!(errno(&w, 900), Some(Errno::EINVAL));
    // One that the rank gave out in the life before, as far as anybody can tell: once.
    let free = Ino(w.rank.view.inos.former.0 - 1);
    perform(&mut w, conn, 901, told(free), create(dir, "once"));
    assert_eq!(errno(&w, 901), None);
    w.drop_cache();
    perform(&mut w, conn, 902, told(free), create(dir, "twice"));
    assert_eq!(errno(&w, 902), Some(Errno::EINVAL));
    // Its own it gives out once, too.
    perform(&mut w, conn, 903, told(own), create(dir, "own"));
    assert_eq!((errno(&w, 903), w.rank.session_delegated(id) > own.0), (None, true));
    w.drop_cache();
    perform(&mut w, conn, 904, told(own), create(dir, "own again"));
    assert_eq!(errno(&w, 904), Some(Errno::EINVAL));
    // Nor any that never was.
    for (tid, ino) in [(905, Ino(u64::MAX)), (906, Ino(1)), (907, Ino(w.rank.view.inos.former.0))] {
        perform(&mut w, conn, tid, told(ino), create(dir, "never"));
        assert_eq!(errno(&w, tid), Some(Errno::EINVAL), "{ino:?}");
    }
    w.say(conn, ClientMsg::Presented);
    perform(&mut w, other, 900, Told { heard: false, ..told(delegated) }, create(both[1].3, "late"));
    w.say(other, ClientMsg::Presented);
    for conn in [conn, other] {
        w.say(conn, ClientMsg::Settled);
    }
    assert!(matches!(answer(&w, other, Tid(900)), Some(ServerMsg::Done { .. })), "{:?}", w.sent);
}

/// Times at the ends of their range are what they are, and never later than now where the rank says when something happened.
#[test]
fn times_at_the_ends_of_their_range_are_kept_or_cut() {
    let (mut w, both) = back();
    for (at, (conn, _, ino, dir)) in both.into_iter().enumerate() {
        w.say(conn, ClientMsg::Presented);
        let wall = [Wall(i64::MIN), Wall(i64::MAX)][at];
        perform(&mut w, conn, 900, Told { ino, wall, heard: true }, create(dir, "f"));
        assert!(matches!(answer(&w, conn, Tid(900)), Some(ServerMsg::Done { .. })), "{:?}", w.sent);
    }
    w.pass(5_000);
    let now = Wall(w.now as i64);
    w.hello(EMBEDDED, Peer::Embedded, SessionId(0));
    for (conn, .., dir) in both {
        w.say(conn, ClientMsg::Settled);
        w.say(conn, ClientMsg::Goodbye);
        let attr = w.attr(Request::GetAttr { node: dir }).expect("a directory");
        assert!(Wall(0) < attr.mtime && attr.mtime < now, "{:?}", attr.mtime);
    }
}
