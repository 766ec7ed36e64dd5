//! The line: what a session sent behind something performed that is still being carried out.
//!
//! Absent: what is performed (`early.rs`).

use super::*;
use proto::request::LockKind;
use proto::storeio::StoreError;

/// What broke: what was interrupted while it stood in line waited on.
#[test]
fn what_takes_back_a_request_in_the_line_stays_behind_it() {
    let mut w = two();
    let (_, told) = performed_in_new(&mut w);
    let file = NodeRef::bare(told.ino);
    let lock = |owner| proto::request::LockSpec {
        flock: false,
        owner,
        kind: proto::request::LockKind::Write,
        start: 0,
        end: 9,
        pid: 1,
    };
    w.start(REMOTE, Cred::ROOT, Request::SetLock { node: file, lock: lock(1), wait: false });
    w.hold_data = true;
    let data = Payload::Owned(b"bytes".to_vec());
    let write = Request::Write { node: file, offset: 0, append: false, kill_suidgid: false, data };
    perform(&mut w, REMOTE, 501, Told { ino: Ino::NONE, ..told }, write);
    let waits = w.start(REMOTE, Cred::ROOT, Request::SetLock { node: file, lock: lock(2), wait: true });
    w.say(REMOTE, ClientMsg::Cancel { tid: waits });
    assert!(answer(&w, REMOTE, waits).is_none());
    w.let_go();
    let outcome = answer(&w, REMOTE, waits);
    assert!(matches!(outcome, Some(ServerMsg::Reply { outcome: Err(Errno::EINTR), .. })), "{outcome:?}");
}

/// What broke: where a wait for a lock, the unlock it waits for and its end by a signal ran in one step, the waiter was told EINTR
/// and had the lock.
#[test]
fn a_lock_that_was_granted_in_the_step_of_its_cancel_is_its_waiters() {
    let mut w = two();
    let (_, told) = performed_in_new(&mut w);
    let file = NodeRef::bare(told.ino);
    let set = |kind, owner, wait| {
        let lock = proto::request::LockSpec { flock: false, owner, kind, start: 0, end: 9, pid: 1 };
        Request::SetLock { node: file, lock, wait }
    };
    w.start(REMOTE, Cred::ROOT, set(LockKind::Write, 1, false));
    w.hold_data = true;
    let data = Payload::Owned(b"bytes".to_vec());
    let write = Request::Write { node: file, offset: 0, append: false, kill_suidgid: false, data };
    perform(&mut w, REMOTE, 501, Told { ino: Ino::NONE, ..told }, write);
    let waits = w.start(REMOTE, Cred::ROOT, set(LockKind::Write, 2, true));
    w.start(REMOTE, Cred::ROOT, set(LockKind::Unlock, 1, false));
    w.say(REMOTE, ClientMsg::Cancel { tid: waits });
    w.let_go();
    w.pass(1);
    let outcome = w.answer(REMOTE, waits);
    let free = w.start(OTHER, Cred::ROOT, set(LockKind::Write, 3, false));
    let free = w.answer(OTHER, free);
    match outcome {
        Some(Ok(_)) => assert_eq!(free, Some(Err(Errno::EAGAIN))),
        Some(Err(Errno::EINTR)) => assert!(matches!(free, Some(Ok(_))), "{free:?}"),
        outcome => panic!("{outcome:?}"),
    }
}

/// What broke: two hundred and fifty unlocks of a line ran in one step, each of which may look at all locks of its file.
#[test]
fn of_a_line_one_step_changes_locks_once() {
    let mut w = two();
    let (_, told) = performed_in_new(&mut w);
    let file = NodeRef::bare(told.ino);
    w.hold_data = true;
    let data = Payload::Owned(b"bytes".to_vec());
    let write = Request::Write { node: file, offset: 0, append: false, kill_suidgid: false, data };
    perform(&mut w, REMOTE, 501, Told { ino: Ino::NONE, ..told }, write);
    let release = |owner| Request::ReleaseLocks { node: file, flock: false, owner };
    let tids: Vec<Tid> = (0..5).map(|owner| w.start(REMOTE, Cred::ROOT, release(owner))).collect();
    let answered = |w: &World| tids.iter().filter(|tid| answer(w, REMOTE, **tid).is_some()).count();
    w.hold_data = false;
    let held = std::mem::take(&mut w.held);
    w.inbox.extend(held);
    let mut before = answered(&w);
    while w.one_step() {
        let now = answered(&w);
        assert!(now <= before + 1, "{before}, {now}");
        before = now;
    }
    assert_eq!(before, tids.len());
}

/// What broke: a lock that was given back overtook what its holder had performed. Of two that write one database by turns the next
/// found the journal of a transaction that was over, and took that back.
#[test]
fn who_gets_a_lock_finds_what_its_holder_did_before() {
    for releases in [false, true] {
        let mut w = two();
        let (_, told) = performed_in_new(&mut w);
        let file = NodeRef::bare(told.ino);
        let lock =
            |kind, owner| proto::request::LockSpec { flock: false, owner, kind, start: 0, end: 9, pid: 1 };
        let set = |kind, owner| Request::SetLock { node: file, lock: lock(kind, owner), wait: true };
        let held = w.start(REMOTE, Cred::ROOT, set(LockKind::Write, 1));
        assert!(answer(&w, REMOTE, held).is_some());
        let next = w.start(OTHER, Cred::ROOT, set(LockKind::Write, 2));
        w.hold_data = true;
        let data = Payload::Owned(b"bytes".to_vec());
        let write = Request::Write { node: file, offset: 0, append: false, kill_suidgid: false, data };
        perform(&mut w, REMOTE, 501, Told { ino: Ino::NONE, ..told }, write);
        let release = if releases {
            Request::ReleaseLocks { node: file, flock: false, owner: 1 }
        } else {
            set(LockKind::Unlock, 1)
        };
        let over = w.start(REMOTE, Cred::ROOT, release);
        assert!(answer(&w, OTHER, next).is_none(), "the write is under way");
        w.let_go();
        assert!(answer(&w, REMOTE, over).is_some() && answer(&w, OTHER, next).is_some());
    }
}

/// One session whose next message stands in line: a write that it performed is under way.
fn busy() -> World {
    let mut w = two();
    let (_, made) = early(&mut w, REMOTE, mkdir("new"));
    let told = Told {
        ino: Ino(w.rank.session_delegated(w.sessions[&REMOTE])),
        wall: Wall(w.now as i64),
        heard: false,
    };
    perform(&mut w, REMOTE, 500, told, create(node(&made.attr), "f"));
    w.hold_data = true;
    let (node, data) = (NodeRef::bare(told.ino), Payload::Owned(b"bytes".to_vec()));
    let write = Request::Write { node, offset: 0, append: false, kill_suidgid: false, data };
    perform(&mut w, REMOTE, 501, Told { ino: Ino::NONE, ..told }, write);
    w.sent.clear();
    w
}

/// What broke: a write that its client had performed found the disk full. What the client asked next was answered early,
/// and showed the file as it was before, while the error waited for the disk.
#[test]
fn an_error_of_what_was_told_is_not_overtaken() {
    let mut w = two();
    let (dir, told) = performed_in_new(&mut w);
    w.auto_durable = false;
    perform(&mut w, REMOTE, 501, Told { ino: Ino(told.ino.0 + 1), ..told }, create(dir, "g"));
    w.inject(Input::Space { full: true });
    let data = Payload::Owned(b"bytes".to_vec());
    let node = NodeRef::bare(told.ino);
    let write = Request::Write { node, offset: 0, append: false, kill_suidgid: false, data };
    perform(&mut w, REMOTE, 502, Told { ino: Ino::NONE, ..told }, write);
    let outcome = answer(&w, REMOTE, Tid(502));
    assert!(
        matches!(outcome, Some(ServerMsg::Reply { outcome: Err(Errno::ENOSPC), .. })),
        "{outcome:?}: {:?}",
        w.sent
    );
    assert!(w.durable < w.journal.len(), "it would have waited for this");
}

/// What broke: of a damaged rank the lines were not looked at any more, and programs hung that should have had EIO.
#[test]
fn what_stands_in_line_of_a_damaged_rank_is_answered() {
    let mut w = busy();
    let node = NodeRef::bare(Ino::ROOT);
    let release = w.start(REMOTE, Cred::ROOT, Request::ReleaseLocks { node, flock: false, owner: 1 });
    let later = w.start(REMOTE, Cred::ROOT, mkdir("later"));
    assert!(answer(&w, REMOTE, release).is_none() && answer(&w, REMOTE, later).is_none());
    w.inject(Input::JournalFailed(StoreError::Damaged {
        at: "journal".into(),
        what: "no such device".into(),
    }));
    w.let_go();
    let after = w.start(REMOTE, Cred::ROOT, mkdir("after"));
    for tid in [release, later, after] {
        assert_eq!(w.answer(REMOTE, tid), Some(Err(Errno::EIO)));
    }
}

/// What broke: what gives directories back stood in line without a bound.
#[test]
fn a_line_does_not_grow_without_end() {
    let mut w = busy();
    let item = |number| Returned { ino: Ino(7), bits: Bits::DX, number };
    let refused = |w: &World| w.sent.iter().any(|(_, m)| matches!(m, ServerMsg::Refused { .. }));
    let most = w.config.limits.results as u32;
    for at in 0..9 {
        w.say(REMOTE, ClientMsg::Returned { list: (0..most / 10).map(|n| item(at * most + n)).collect() });
        assert!(!refused(&w), "{at}");
    }
    w.say(REMOTE, ClientMsg::Returned { list: (0..most / 5).map(item).collect() });
    assert!(refused(&w));
}

#[test]
fn what_waits_in_a_line_is_seen_and_what_is_offered_keeps_its_place() {
    let mut w = busy();
    assert_eq!(w.rank.status().lined_up, 0, "one is being carried out");
    w.pass(10);
    let later = w.start(REMOTE, Cred::ROOT, mkdir("later"));
    w.say(REMOTE, ClientMsg::Idle { list: vec![Ino::ROOT] });
    assert!(recalled(&mut w, REMOTE).is_empty());
    w.pass(5);
    let (shown, count) = w.rank.operations(Mono(w.now), 9);
    let waits: Vec<_> = shown.iter().map(|op| op.waits).collect();
    assert_eq!((count, waits), (2, vec![Some(crate::Waits::Data), Some(crate::Waits::Line)]));
    assert_eq!((shown[1].path.as_str(), shown[1].age_ns >= 5 * MS, w.rank.in_flight()), ("/later", true, 2));
    assert_eq!((w.rank.status().lined_up, w.rank.blocked(Mono(w.now)).count), (1, 0));
    assert_eq!(w.rank.blocked(Mono(w.now + 60_000 * MS)).count, 2);
    w.let_go();
    assert!(answer(&w, REMOTE, later).is_some());
    assert_eq!(recalled(&mut w, REMOTE)[0].bits, Bits::DX, "now it is asked for");
}

/// What broke: the line went on with what came over the connection before, and the new one's behind it.
#[test]
fn a_line_ends_with_its_connection_however_the_rank_learns_of_it() {
    let mut w = busy();
    w.say(REMOTE, ClientMsg::Settled);
    let later = w.start(REMOTE, Cred::ROOT, mkdir("later"));
    let (again, session) = (ConnId(20), w.sessions[&REMOTE]);
    w.hello(again, Peer::Trusted, session);
    w.let_go();
    assert!(answer(&w, again, later).is_none(), "it is asked for again");
    let request = mkdir("later");
    w.retry(again, later, Cred::ROOT, request);
    assert!(answer(&w, again, later).is_some());
    assert!(!w.rank.sessions.map[&session].settled, "it has not said so on this connection");
}
