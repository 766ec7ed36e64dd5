//! Who waits for whom when the rank lives again.
//!
//! Absent: what is told early and presented again (`early.rs`); opens and locks (`sessions.rs`).

use super::early::{WANTS, answer, create, give_back_all, mkdir, perform, two_that_want};
use super::sessions::{OTHER, REMOTE};
use super::*;
use proto::message::Told;

/// Two sessions that come back, each with a directory that it made before and one number to use there.
pub(super) fn back() -> (World, [(ConnId, SessionId, Ino, NodeRef); 2]) {
    let mut w = two_that_want(WANTS);
    let both = [(REMOTE, ConnId(20), "one"), (OTHER, ConnId(21), "two")].map(|(old, conn, name)| {
        let tid = w.start(old, Cred::ROOT, mkdir(name));
        give_back_all(&mut w);
        let dir = match answer(&w, old, tid) {
            Some(ServerMsg::Early { outcome: Ok(Reply::Attr(attr)), .. }) => node(attr),
            other => panic!("{other:?}"),
        };
        let id = w.sessions[&old];
        (conn, id, Ino(w.rank.session_delegated(id)), dir)
    });
    w.sync();
    w.crash();
    w.say(EMBEDDED, ClientMsg::Goodbye);
    for (conn, session, ..) in both {
        w.hello(conn, Peer::Trusted, session);
        w.say(conn, ClientMsg::Reclaimed);
    }
    w.sent.clear();
    (w, both)
}

/// What each had performed by itself waited until the other kept nothing of before, and that it does not stood in line behind
/// what it had performed: both waited for three seconds, and everybody with them.
#[test]
fn two_that_present_what_they_performed_do_not_wait_for_each_other() {
    let (mut w, both) = back();
    for (conn, _, ino, dir) in both {
        let wall = stdx::Wall(w.now as i64);
        perform(&mut w, conn, 900, Told { ino, wall, heard: false }, create(dir, "performed"));
        assert!(answer(&w, conn, Tid(900)).is_none(), "the other may still keep what it was told");
    }
    for (conn, ..) in both {
        w.say(conn, ClientMsg::Presented);
        w.say(conn, ClientMsg::Settled);
    }
    for (conn, ..) in both {
        assert!(matches!(answer(&w, conn, Tid(900)), Some(ServerMsg::Done { .. })), "{:?}", w.sent);
        let open = w.start(conn, Cred::ROOT, Request::Open { node: root(), flags: 0 });
        assert!(answer(&w, conn, open).is_some(), "and whoever waited for what is presented goes on");
    }
}

/// Whoever presents for three leases is not waited for any longer; but a rank that was stopped until then has not read what was
/// presented, and looks again.
#[test]
fn what_is_presented_while_the_rank_does_not_run_counts() {
    let (mut w, both) = back();
    let [(slow, .., dir), (late, ..)] = both;
    w.say(late, ClientMsg::Presented);
    let waits = w.start(late, Cred::ROOT, super::early::lookup(dir, "performed"));
    assert!(answer(&w, late, waits).is_none());
    // Its clock ticks before it reads.
    w.now += 40_000 * MS;
    w.inject(Input::Tick);
    assert!(answer(&w, late, waits).is_none(), "what is presented lies unread");
    w.say(slow, ClientMsg::Presented);
    assert!(answer(&w, late, waits).is_some());
}

/// A pause, which no history is judged by.
#[cfg(feature = "mutants")]
#[test]
fn defects_of_a_restart_are_caught() {
    let defects: [(&str, fn()); 2] = [
        ("mds_settled_waits_in_line", two_that_present_what_they_performed_do_not_wait_for_each_other),
        ("mds_own_pause_counts", what_is_presented_while_the_rank_does_not_run_counts),
    ];
    for (defect, test) in defects {
        stdx::mutant::activate(Some(defect));
        let verdict = std::panic::catch_unwind(test);
        stdx::mutant::activate(None);
        assert!(verdict.is_err(), "{defect}");
    }
}
