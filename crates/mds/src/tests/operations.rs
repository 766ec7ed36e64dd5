//! What operators see: requests under way and what they wait for, slow ones, counts by kind.
//!
//! Absent: tables and texts (crate `cli`).

use super::*;
use crate::Waits;
use crate::status::Blocked;
use proto::Kind;
use proto::request::{LockKind, LockSpec};

fn seen(w: &World) -> Vec<(&'static str, String, Option<Waits>)> {
    let (all, count) = w.rank.operations(Mono(w.now), 100);
    assert_eq!(all.len() as u64, count);
    all.into_iter().map(|op| (op.kind.name(), op.path, op.waits)).collect()
}

#[test]
fn a_request_shows_where_it_is_and_what_it_waits_for() {
    let mut w = World::new();
    let a = w.mkdir(root(), "a");
    let f = w.create(a, "f");
    w.write(f, 0, b"x").expect("written");
    w.checkpoint();
    w.drop_cache();
    w.path("/a").expect("cached again");
    w.hold_loads = true;
    let look = w.start(EMBEDDED, Cred::ROOT, Request::Lookup { parent: a, name: n("f") });
    assert_eq!(seen(&w), [("lookup", "/a/f".to_owned(), Some(Waits::Store))]);
    w.let_go();
    assert!(w.answer(EMBEDDED, look).is_some_and(|outcome| outcome.is_ok()));
    w.hold_data = true;
    w.start(EMBEDDED, Cred::ROOT, Request::Read { node: f, offset: 0, len: 1, into: None });
    assert_eq!(seen(&w), [("read", "/a/f".to_owned(), Some(Waits::Data))]);
    w.let_go();
    assert_eq!(seen(&w), []);
    let somewhere = NodeRef::bare(Ino((1 << 48) + 77));
    w.hold_loads = true;
    w.start(EMBEDDED, Cred::ROOT, Request::Lookup { parent: somewhere, name: n("b") });
    assert_eq!(seen(&w), [("lookup", "#0x100000000004d/b".to_owned(), Some(Waits::Store))]);
}

#[test]
fn who_waits_for_a_lock_is_not_blocked() {
    let mut w = World::new();
    let f = w.create(root(), "f");
    w.write(f, 0, b"x").expect("written");
    let lock = LockSpec { flock: true, owner: 1, kind: LockKind::Write, start: 0, end: u64::MAX, pid: 1 };
    w.call(Request::SetLock { node: f, lock, wait: false }).expect("lock");
    let other = LockSpec { owner: 2, ..lock };
    w.start(EMBEDDED, Cred::ROOT, Request::SetLock { node: f, lock: other, wait: true });
    w.hold_data = true;
    let read = w.start(EMBEDDED, Cred::ROOT, Request::Read { node: f, offset: 0, len: 1, into: None });
    w.pass(29_000);
    assert_eq!(w.rank.blocked(Mono(w.now)), Blocked::default());
    w.pass(2_000);
    let blocked = w.rank.blocked(Mono(w.now));
    assert_eq!((blocked.count, blocked.oldest_ns / (1_000 * MS)), (1, 31));
    assert_eq!(w.rank.slow_operations(), [], "it has no answer yet");
    w.let_go();
    assert!(w.answer(EMBEDDED, read).is_some());
    let slow = w.rank.slow_operations();
    let told: Vec<_> = slow.iter().map(|op| (op.kind.name(), op.path.as_str(), op.waits)).collect();
    assert_eq!(told, [("read", "/f", None)]);
    assert_eq!(w.rank.blocked(Mono(w.now)), Blocked::default());
}

#[test]
fn an_answer_that_waits_for_the_journal_is_under_way() {
    let mut w = super::sessions::remote();
    w.auto_durable = false;
    let make = Request::MkDir { parent: root(), name: n("a"), new: mode(0o755) };
    let tid = w.start(super::sessions::REMOTE, Cred::ROOT, make);
    assert_eq!(seen(&w), [("mkdir", "/".to_owned(), Some(Waits::JournalSync))]);
    w.sync();
    assert!(w.answer(super::sessions::REMOTE, tid).is_some());
    assert_eq!(seen(&w), []);
}

#[test]
fn answers_are_counted_by_kind_and_bytes_by_session() {
    let mut w = World::new();
    let f = w.create(root(), "f");
    w.write(f, 0, &[7; 1000]).expect("written");
    assert_eq!(w.read(f).len(), 1000);
    assert_eq!(w.lookup(root(), "none"), Err(Errno::ENOENT));
    let of = |name: &str| {
        let kind = Kind::all().find(|kind| kind.name() == name).expect("a kind");
        let count = w.rank.op_counts()[kind.index()];
        (count.count, count.errors)
    };
    assert_eq!((of("mknod"), of("write"), of("read"), of("lookup")), ((1, 0), (1, 0), (1, 0), (1, 1)));
    let session = &w.rank.sessions(Mono(w.now))[0].traffic;
    assert_eq!((session.requests, session.read_bytes, session.written_bytes), (4, 1000, 1000));
    assert_eq!(*session, w.rank.traffic(Mono(w.now)));
}
