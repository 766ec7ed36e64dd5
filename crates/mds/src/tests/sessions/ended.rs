//! Sessions that end while something of theirs is under way.
//!
//! Absent: sessions that come back (`again.rs`).

use super::*;

/// The embedded session and a remote one.
fn two() -> World {
    let mut w = World::new();
    w.hello(REMOTE, Peer::Trusted, SessionId(0));
    w.welcomed(REMOTE);
    assert!(w.sessions.contains_key(&REMOTE));
    w
}

/// A write of the remote session reaches the data, and the session ends before the rank hears of it.
fn write_and_leave(w: &mut World, node: NodeRef, offset: u64) {
    w.hold_data = true;
    w.start(REMOTE, Cred::ROOT, write_at(node, offset));
    w.say(REMOTE, ClientMsg::Goodbye);
    w.let_go();
}

/// What broke: fsync answered at once for a file that was clean before the write of a session that ended meanwhile.
#[test]
fn bytes_of_a_session_that_ended_are_synced_by_who_read_them() {
    let mut w = two();
    let f = w.create(root(), "f");
    w.write(f, 0, b"data").expect("write");
    let fsync = || Request::Fsync { node: f, data_only: false };
    w.call(fsync()).expect("fsync");
    write_and_leave(&mut w, f, 0);
    assert_eq!(w.read(f), b"GONE");
    w.data_ops.clear();
    w.call(fsync()).expect("fsync");
    assert!(w.data_ops.iter().any(|op| matches!(op, DataOp::Sync { .. })), "{:?}", w.data_ops);
}

/// What broke: the number of the cut that such a write ran under was in the cache only, and was given out again.
#[test]
fn a_cut_number_used_by_a_session_that_ended_is_not_given_out_again() {
    for crash in [false, true] {
        let mut w = two();
        let f = w.create(root(), "f");
        w.write(f, 0, b"ab").expect("write");
        w.checkpoint();
        w.drop_cache();
        write_and_leave(&mut w, f, 4);
        if crash {
            w.crash();
        } else {
            w.checkpoint();
            w.drop_cache();
        }
        let f = w.path("/f").expect("lookup");
        assert_eq!(w.attr(Request::GetAttr { node: f }).map(|a| a.size), Ok(2));
        let set = proto::SetAttr { size: Some(8), ..Default::default() };
        w.attr(Request::SetAttr { node: f, set }).expect("longer");
        assert_eq!(w.read(f), b"ab\0\0\0\0\0\0", "crash {crash}");
    }
}
