//! Sessions: hold-back, exactly once, resume, eviction, permissions of users.
//!
//! Absent: who may keep what (`caps.rs`).

mod again;
mod ended;
mod evicted;

use super::*;
use proto::request::{LockKind, LockSpec, open_flags};

pub(super) const REMOTE: ConnId = ConnId(2);
pub(super) const OTHER: ConnId = ConnId(3);

fn user(uid: u32, gid: u32) -> Cred {
    Cred { uid, gid, groups: vec![] }
}

/// A world without an embedded session, with one remote one.
pub(super) fn remote() -> World {
    let mut w = World::new();
    w.say(EMBEDDED, ClientMsg::Goodbye);
    w.hello(REMOTE, Peer::Trusted, SessionId(0));
    w
}

fn write_at(node: NodeRef, offset: u64) -> Request {
    let data = Payload::Owned(b"GONE".to_vec());
    Request::Write { node, offset, append: false, kill_suidgid: false, data }
}

fn mkdir(name: &str) -> Request {
    Request::MkDir { parent: root(), name: n(name), new: mode(0o755) }
}

#[test]
fn only_the_embedded_session_is_answered_early() {
    let mut w = World::new();
    w.sent.clear();
    w.hello(REMOTE, Peer::Trusted, SessionId(0));
    w.auto_durable = false;
    let early = w.start(EMBEDDED, Cred::ROOT, mkdir("a"));
    assert!(w.answer(EMBEDDED, early).is_some());
    let commits = w.commits;
    let look = w.start(REMOTE, Cred::ROOT, Request::Lookup { parent: root(), name: n("a") });
    let none = w.start(REMOTE, Cred::ROOT, Request::Lookup { parent: root(), name: n("b") });
    let make = w.start(REMOTE, Cred::ROOT, mkdir("c"));
    for tid in [look, none, make] {
        assert!(w.answer(REMOTE, tid).is_none(), "it could be taken back");
    }
    assert!(w.commits > commits, "a commit was asked for");
    w.sync();
    assert!(matches!(w.answer(REMOTE, look), Some(Ok(_))));
    assert_eq!(w.answer(REMOTE, none), Some(Err(Errno::ENOENT)));
    assert!(matches!(w.answer(REMOTE, make), Some(Ok(_))));
}

#[test]
fn an_unlinked_open_file_survives_a_restart_if_reclaimed_and_goes_otherwise() {
    for reclaim in [true, false] {
        let mut w = remote();
        let request = Request::Create { parent: root(), name: n("f"), new: mode(0o644), flags: 2 };
        let tid = w.start(REMOTE, Cred::ROOT, request);
        let Some(Ok(Reply::Created { attr, .. })) = w.answer(REMOTE, tid) else { panic!("create") };
        let f = node(&attr);
        let data = Payload::Owned(b"data".to_vec());
        let write = Request::Write { node: f, offset: 0, append: false, kill_suidgid: false, data };
        w.call_as(REMOTE, Cred::ROOT, write).expect("write");
        w.call_as(REMOTE, Cred::ROOT, Request::Unlink { parent: root(), name: n("f") }).expect("unlink");
        w.checkpoint();
        let session = w.sessions[&REMOTE];
        w.crash();
        assert_eq!(w.rank.state(), State::Reconnect);
        w.hello(REMOTE, Peer::Trusted, session);
        w.say(EMBEDDED, ClientMsg::Goodbye);
        if reclaim {
            w.say(REMOTE, ClientMsg::Reclaim { node: f, count: 1, writes: false, locks: vec![] });
        }
        w.say(REMOTE, ClientMsg::Reclaimed);
        assert_eq!(w.rank.state(), State::Active);
        // As long as the client may not have the answer of its create, the file stays; its next floor says that it has.
        assert_eq!(w.data.len(), 1);
        let next = w.next_tid();
        let message =
            ClientMsg::Request { tid: next, floor: next, cred: Cred::ROOT, request: Request::StatFs };
        w.say(REMOTE, message);
        let stat = w.call_as(REMOTE, Cred::ROOT, Request::GetAttr { node: f });
        assert_eq!((stat.is_ok(), w.data.len()), (reclaim, usize::from(reclaim)));
        if reclaim {
            w.drop_cache();
            w.call_as(REMOTE, Cred::ROOT, Request::Release { node: f, count: 1 }).expect("release");
            assert_eq!(w.data.len(), 0);
        }
    }
}

#[test]
fn a_session_that_does_not_renew_is_evicted_with_what_it_held() {
    let mut w = remote();
    w.hello(OTHER, Peer::Trusted, SessionId(0));
    let Ok(Reply::Created { attr, .. }) = w.call_as(
        REMOTE,
        Cred::ROOT,
        Request::Create { parent: root(), name: n("f"), new: mode(0o644), flags: 2 },
    ) else {
        panic!("create")
    };
    let f = node(&attr);
    let lock = LockSpec { flock: true, owner: 1, kind: LockKind::Write, start: 0, end: u64::MAX, pid: 1 };
    w.call_as(REMOTE, Cred::ROOT, Request::SetLock { node: f, lock, wait: false }).expect("lock");
    w.call_as(REMOTE, Cred::ROOT, Request::Unlink { parent: root(), name: n("f") }).expect("unlink");
    let waits = w.start(
        OTHER,
        Cred::ROOT,
        Request::SetLock { node: f, lock: LockSpec { owner: 2, ..lock }, wait: true },
    );
    assert!(w.answer(OTHER, waits).is_none());
    for _ in 0..12 {
        w.pass(1_000);
        w.say(OTHER, ClientMsg::Renew { number: 1 });
    }
    assert_eq!(w.answer(OTHER, waits), Some(Ok(Reply::Ok)), "the dead one's lock is free");
    assert!(w.sent.iter().any(|(c, m)| *c == REMOTE && matches!(m, ServerMsg::Refused { .. })));
    assert_eq!(w.rank.sessions(Mono(w.now)).len(), 1);
    let stat = w.call_as(OTHER, Cred::ROOT, Request::GetAttr { node: f });
    assert_eq!(stat, Err(Errno::ESTALE), "the dead one's open no longer keeps the file");
}

#[test]
fn users_act_only_as_themselves() {
    let mut w = World::new();
    let open = w.mkdir(root(), "open");
    let set = proto::SetAttr { mode: Some(0o1777), ..Default::default() };
    w.attr(Request::SetAttr { node: open, set }).expect("chmod");
    w.say(EMBEDDED, ClientMsg::Goodbye);
    w.hello(REMOTE, Peer::User(user(10, 10)), SessionId(0));
    w.hello(OTHER, Peer::User(user(20, 20)), SessionId(0));
    let as_root = |w: &mut World, conn, request| w.call_as(conn, Cred::ROOT, request);
    assert_eq!(as_root(&mut w, REMOTE, mkdir("x")), Err(Errno::EACCES));
    let make = Request::MkNod { parent: open, name: n("f"), new: mode(0o100_600) };
    let Ok(Reply::Attr(f)) = as_root(&mut w, REMOTE, make) else { panic!("mknod") };
    assert_eq!((f.uid, f.gid), (10, 10));
    let open_it = |flags| Request::Open { node: node(&f), flags };
    assert_eq!(as_root(&mut w, OTHER, open_it(0)), Err(Errno::EACCES));
    let unlink = Request::Unlink { parent: open, name: n("f") };
    assert_eq!(as_root(&mut w, OTHER, unlink.clone()), Err(Errno::EPERM), "sticky");
    let set = |set| Request::SetAttr { node: node(&f), set };
    let chown = set(proto::SetAttr { uid: Some(20), ..Default::default() });
    assert_eq!(as_root(&mut w, REMOTE, chown), Err(Errno::EPERM));
    let chmod = set(proto::SetAttr { mode: Some(0o644), ..Default::default() });
    assert_eq!(as_root(&mut w, OTHER, chmod.clone()), Err(Errno::EPERM));
    assert!(as_root(&mut w, REMOTE, chmod).is_ok());
    assert!(as_root(&mut w, OTHER, open_it(0)).is_ok());
    assert_eq!(as_root(&mut w, OTHER, open_it(open_flags::RDWR)), Err(Errno::EACCES));
    let data = Payload::Owned(vec![1]);
    let write = Request::Write { node: node(&f), offset: 0, append: false, kill_suidgid: false, data };
    assert_eq!(as_root(&mut w, OTHER, write), Err(Errno::EACCES), "an open for reading is no right to write");
    assert_eq!(as_root(&mut w, REMOTE, unlink), Ok(Reply::Ok));
    let session = w.sessions[&REMOTE];
    let thief = w.hello(ConnId(4), Peer::User(user(20, 20)), session);
    assert!(matches!(thief, Some(ServerMsg::Refused { .. })), "{thief:?}");
}

#[test]
fn locks_wait_for_the_end_of_the_reconnect_phase() {
    let mut w = remote();
    let f = {
        let make = Request::MkNod { parent: root(), name: n("f"), new: mode(0o100_644) };
        let Ok(Reply::Attr(attr)) = w.call_as(REMOTE, Cred::ROOT, make) else { panic!("mknod") };
        node(&attr)
    };
    let lock = LockSpec { flock: false, owner: 1, kind: LockKind::Write, start: 0, end: 9, pid: 1 };
    let session = w.sessions[&REMOTE];
    w.crash();
    let early = w.start(EMBEDDED, Cred::ROOT, Request::SetLock { node: f, lock, wait: false });
    let looks = w.start(EMBEDDED, Cred::ROOT, Request::TestLock { node: f, lock });
    assert!(w.answer(EMBEDDED, early).is_none() && w.answer(EMBEDDED, looks).is_none());
    w.hello(REMOTE, Peer::Trusted, session);
    w.say(
        REMOTE,
        ClientMsg::Reclaim { node: f, count: 1, writes: false, locks: vec![LockSpec { owner: 7, ..lock }] },
    );
    w.say(REMOTE, ClientMsg::Reclaimed);
    assert_eq!(w.answer(EMBEDDED, early), Some(Err(Errno::EAGAIN)), "the former holder came first");
    // What broke: as if there was none, which to a database means that a transaction under way was left behind.
    let shown = w.answer(EMBEDDED, looks);
    assert!(
        matches!(&shown, Some(Ok(Reply::Lock(Some(found)))) if found.kind == LockKind::Write),
        "{shown:?}"
    );
}

#[test]
fn strangers_are_refused() {
    let mut w = World::new();
    w.inject(Input::Connected { conn: OTHER, peer: Peer::Trusted });
    w.say(OTHER, ClientMsg::Renew { number: 1 });
    assert!(matches!(w.sent.pop(), Some((OTHER, ServerMsg::Refused { .. }))));
    let unknown = w.hello(ConnId(9), Peer::Trusted, SessionId(77));
    assert!(matches!(unknown, Some(ServerMsg::Refused { errno, .. }) if errno == Errno::ESTALE.0 as u32));
    let system = Request::GetAttr { node: NodeRef::bare(Ino::LINKS) };
    assert_eq!(w.call(system), Err(Errno::ESTALE));
}

/// What broke: who greeted a rank just before its journal failed was never answered.
#[test]
fn who_greets_a_rank_that_fails_meanwhile_is_refused_and_sessions_hear_of_it() {
    let mut w = World::new();
    w.hello(OTHER, Peer::Trusted, SessionId(0));
    w.auto_durable = false;
    assert!(w.hello(REMOTE, Peer::Trusted, SessionId(0)).is_none());
    w.sent.clear();
    w.inject(Input::JournalFailed(proto::storeio::StoreError::Damaged {
        at: "journal".into(),
        what: "gone".into(),
    }));
    let refused =
        |m: &ServerMsg| matches!(m, ServerMsg::Refused { errno, .. } if *errno == Errno::ESHUTDOWN.0 as u32);
    assert!(w.sent.iter().any(|(conn, m)| *conn == REMOTE && refused(m)), "{:?}", w.sent);
    assert!(w.sent.contains(&(OTHER, ServerMsg::Damaged)), "{:?}", w.sent);
}

#[test]
fn an_idle_journal_says_once_how_far_it_is_durable() {
    let mut w = World::new();
    w.create(root(), "f");
    let before = w.journal.len();
    w.pass(5_000);
    let marked = w.journal.len();
    assert!(marked > before);
    w.pass(20_000);
    assert_eq!(w.journal.len(), marked);
}

#[cfg(feature = "mutants")]
#[test]
fn a_lock_in_the_reconnect_phase_is_caught() {
    stdx::mutant::activate(Some("mds_lock_in_reconnect"));
    let verdict = std::panic::catch_unwind(locks_wait_for_the_end_of_the_reconnect_phase);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
}

#[test]
fn a_lock_request_is_given_up_wherever_it_waits() {
    let mut w = World::new();
    let f = w.create(root(), "f");
    let lock = LockSpec { flock: false, owner: 1, kind: LockKind::Write, start: 0, end: 9, pid: 1 };
    w.call(Request::SetLock { node: f, lock, wait: false }).expect("lock");
    w.checkpoint();
    w.drop_cache();
    w.hold_loads = true;
    let request = Request::SetLock { node: f, lock: LockSpec { owner: 2, ..lock }, wait: true };
    let tid = w.start(EMBEDDED, Cred::ROOT, request);
    assert!(w.answer(EMBEDDED, tid).is_none(), "the inode is being looked for");
    w.say(EMBEDDED, ClientMsg::Cancel { tid });
    assert_eq!(w.answer(EMBEDDED, tid), Some(Err(Errno::EINTR)));
    w.let_go();
    assert_eq!(w.rank.status().parked, 0);
}

/// What broke: a journal that failed made `fsync` of a remote client answer "done" at once.
#[test]
fn a_rank_whose_journal_failed_answers_nothing_but_errors() {
    let mut w = remote();
    let request = Request::Create { parent: root(), name: n("f"), new: mode(0o644), flags: 2 };
    let Ok(Reply::Created { attr, .. }) = w.call_as(REMOTE, Cred::ROOT, request) else { panic!("create") };
    let f = node(&attr);
    let data = Payload::Owned(b"data".to_vec());
    let write = Request::Write { node: f, offset: 0, append: false, kill_suidgid: false, data };
    w.call_as(REMOTE, Cred::ROOT, write).expect("write");
    (w.hold_data, w.redo_syncs, w.auto_durable) = (true, true, false);
    let held = w.start(REMOTE, Cred::ROOT, mkdir("held"));
    let sync = w.start(REMOTE, Cred::ROOT, Request::Fsync { node: f, data_only: false });
    let set = proto::SetAttr { size: Some(1), ..Default::default() };
    let cut = w.start(REMOTE, Cred::ROOT, Request::SetAttr { node: f, set });
    let data = Payload::Owned(b"new".to_vec());
    let write = Request::Write { node: f, offset: 0, append: false, kill_suidgid: false, data };
    let behind_it = w.start(REMOTE, Cred::ROOT, write);
    let failed = StoreError::Io { at: "journal".into(), source: proto::storeio::IoError(5) };
    w.inject(Input::JournalFailed(failed));
    assert_eq!(w.answer(REMOTE, held), Some(Err(Errno::EIO)), "it will never be durable");
    assert_eq!(w.answer(REMOTE, cut), Some(Err(Errno::EIO)));
    assert_eq!(w.answer(REMOTE, behind_it), Some(Err(Errno::EIO)), "it waited for the cut to be durable");
    w.let_go();
    assert_eq!(w.answer(REMOTE, sync), Some(Err(Errno::EIO)));
    assert_eq!(w.call_as(REMOTE, Cred::ROOT, mkdir("later")), Err(Errno::EIO));
}

/// What broke: the end of the reconnect phase gave a lock away while its holder was presenting it.
#[test]
fn a_session_that_came_back_in_time_may_finish_presenting() {
    let mut w = remote();
    w.hello(OTHER, Peer::Trusted, SessionId(0));
    let sessions = [w.sessions[&REMOTE], w.sessions[&OTHER]];
    let lease = w.config.lease_ns / MS;
    w.crash();
    w.say(EMBEDDED, ClientMsg::Goodbye);
    w.pass(lease - 10);
    w.hello(REMOTE, Peer::Trusted, sessions[0]);
    w.pass(20 + lease / 20);
    assert_eq!(w.rank.state(), State::Reconnect, "its lease runs");
    w.say(REMOTE, ClientMsg::Reclaimed);
    assert_eq!(w.rank.state(), State::Active, "the other's lease ran out");
}

/// What broke: a server that was stopped for longer than a lease evicted all its clients when it went on.
#[test]
fn what_came_while_the_rank_did_not_run_counts() {
    let mut w = remote();
    let lease = w.config.lease_ns;
    let is_there = |w: &World| w.rank.sessions(Mono(w.now)).len() == 1;
    // Stopped for as long as it takes: the clock's tick is the first that it hears of when it goes on, the renewals the next.
    for pause in [lease, lease + 50 * MS, lease + MS * 700, 7 * lease] {
        w.say(REMOTE, ClientMsg::Renew { number: 1 });
        w.now += pause;
        w.inject(Input::Tick);
        assert!(is_there(&w), "{pause}: {:?}", w.notes);
        w.pass(100);
    }
    w.say(REMOTE, ClientMsg::Renew { number: 2 });
    w.pass(lease / MS - 10);
    assert!(is_there(&w));
    w.pass(lease / MS / 10);
    assert!(!is_there(&w), "it is silent");
}

/// What broke: the number of a file is a guess of the client's, and each guess took memory.
#[test]
fn a_session_that_reclaims_without_end_is_refused() {
    let mut w = remote();
    w.hello(OTHER, Peer::Trusted, SessionId(0));
    let most = u64::from(w.config.limits.reclaims);
    let again =
        |ino| ClientMsg::Reclaim { node: NodeRef::bare(Ino(ino)), count: 1, writes: false, locks: vec![] };
    for _ in 0..2 * most {
        // Said again, or in several messages, it is one file.
        w.say(OTHER, again(9_999));
    }
    for ino in 1..=most {
        assert!(!w.sent.iter().any(|(_, m)| matches!(m, ServerMsg::Refused { .. })), "{ino}");
        let node = NodeRef::bare(Ino(10_000 + ino));
        w.say(OTHER, ClientMsg::Reclaim { node, count: 1, writes: false, locks: vec![] });
    }
    assert!(w.sent.iter().any(|(c, m)| *c == OTHER && matches!(m, ServerMsg::Refused { .. })));
}

#[cfg(feature = "mutants")]
#[test]
fn a_rank_that_takes_its_own_pause_for_silence_is_caught() {
    stdx::mutant::activate(Some("mds_own_pause_counts"));
    let verdict = std::panic::catch_unwind(what_came_while_the_rank_did_not_run_counts);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
}

#[cfg(feature = "mutants")]
#[test]
fn a_damaged_rank_that_says_yes_is_caught() {
    stdx::mutant::activate(Some("mds_damaged_says_yes"));
    let verdict = std::panic::catch_unwind(a_rank_whose_journal_failed_answers_nothing_but_errors);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
}

#[test]
fn the_process_of_a_client_with_a_long_place_is_known() {
    let mut w = World::new();
    let conn = ConnId(77);
    w.inject(Input::Connected { conn, peer: Peer::Trusted });
    let info =
        ClientInfo { host: "h".into(), mount: format!("/{}", "m".repeat(300)), pid: 4711, caps_max: 0 };
    w.say(
        conn,
        ClientMsg::Hello { protocol: PROTOCOL, session: SessionId(0), info, wants: Bits::NONE, at: w.at() },
    );
    let shown: Vec<String> =
        w.rank.sessions(Mono(w.now)).into_iter().map(|session| session.client.to_string()).collect();
    assert!(shown.iter().any(|client| client.ends_with("mmm... pid 4711")), "{shown:?}");
}

/// What broke: each refused connection was remembered for ever.
#[test]
fn a_refused_connection_is_forgotten() {
    let mut w = World::new();
    let known = w.rank.sessions.conns.len();
    for conn in 0..10 {
        w.inject(Input::Connected { conn: ConnId(100 + conn), peer: Peer::Trusted });
        w.say(ConnId(100 + conn), ClientMsg::Renew { number: 1 });
    }
    assert_eq!(w.rank.sessions.conns.len(), known);
}

/// What a backup copies must be one state: not before what waits for the journal has happened.
#[test]
fn a_rank_is_not_at_rest_while_something_waits_for_the_journal() {
    let mut w = World::new();
    let f = w.create(root(), "f");
    w.create(root(), "g");
    w.write(f, 0, b"data").expect("write");
    assert!(w.rank.is_at_rest());
    w.auto_durable = false;
    w.open(f, 1 | open_flags::TRUNC).expect("cut");
    let rename =
        Request::Rename { parent: root(), name: n("f"), new_parent: root(), new_name: n("g"), flags: 0 };
    let tid = w.start(EMBEDDED, Cred::ROOT, rename);
    assert!(!w.rank.is_at_rest());
    w.auto_durable = true;
    w.sync();
    assert!(w.answer(EMBEDDED, tid).is_some() && w.rank.is_at_rest());
}
