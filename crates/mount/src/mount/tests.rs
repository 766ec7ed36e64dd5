//! A mount against the fake rank: order, reconnects, interrupts, the end.
//!
//! Absent: sleeps; every wait is for something that must happen.

use super::*;
use crate::fake::Fake;
use proto::message::SOLE_TTL_MS;
use proto::request::{LockKind, LockSpec};
use proto::{Errno, Ino, NodeRef};
use std::sync::mpsc::{Receiver, channel};

const PATIENCE: Duration = Duration::from_secs(20);

fn open(fake: &Fake) -> Arc<Mount> {
    let backoff = (Duration::from_micros(100), Duration::from_millis(2));
    let settings = Settings { backoff, ..Settings::default() };
    Mount::open_with(fake.connector(), ClientInfo::default(), settings).expect("the fake welcomes anyone")
}

fn getattr() -> Request {
    Request::GetAttr { node: NodeRef::bare(Ino::ROOT) }
}

fn lock_root(owner: u64, kind: LockKind, wait: bool) -> Request {
    let lock = LockSpec { flock: true, owner, kind, start: 0, end: u64::MAX, pid: 1 };
    Request::SetLock { node: NodeRef::bare(Ino::ROOT), lock, wait }
}

/// Submits; the answer arrives on the channel.
fn later(mount: &Mount, request: Request) -> (CallId, Receiver<Outcome>) {
    let (tx, rx) = channel();
    let call = mount.submit(Cred::ROOT, request, Box::new(move |outcome| drop(tx.send(outcome))));
    (call, rx)
}

#[test]
fn a_call_is_answered_by_the_thread_that_made_it() {
    let mount = open(&Fake::new().embedded());
    let (_, answer) = later(&mount, getattr());
    assert!(answer.try_recv().is_ok_and(|outcome| outcome.is_ok()), "answered before submit returned");
    assert_eq!(mount.ttl_ns(), SOLE_TTL_MS * 1_000_000);
    mount.close();
    assert_eq!(mount.call(Cred::ROOT, getattr()), Err(Errno::ESHUTDOWN));
}

#[test]
fn a_callback_may_submit() {
    let mount = open(&Fake::new());
    let (tx, rx) = channel();
    let again = Arc::downgrade(&mount);
    let first = Box::new(move |_: Outcome| {
        let Some(mount) = again.upgrade() else { return };
        mount.submit(Cred::ROOT, getattr(), Box::new(move |outcome| drop(tx.send(outcome))));
    });
    mount.submit(Cred::ROOT, getattr(), first);
    assert!(rx.recv_timeout(PATIENCE).is_ok_and(|outcome| outcome.is_ok()));
}

#[test]
fn a_wait_for_a_lock_ends_by_grant_or_interrupt() {
    let mount = open(&Fake::new());
    assert!(mount.call(Cred::ROOT, lock_root(1, LockKind::Write, false)).is_ok());
    let (call, interrupted) = later(&mount, lock_root(2, LockKind::Write, true));
    mount.interrupt(call);
    assert_eq!(interrupted.recv_timeout(PATIENCE), Ok(Err(Errno::EINTR)));
    let (_, granted) = later(&mount, lock_root(3, LockKind::Write, true));
    assert!(granted.try_recv().is_err());
    assert!(mount.call(Cred::ROOT, lock_root(1, LockKind::Unlock, false)).is_ok());
    assert!(granted.recv_timeout(PATIENCE).is_ok_and(|outcome| outcome.is_ok()));
    mount.interrupt(call);
}

#[test]
fn breaks_of_the_connection_are_not_seen_by_callers() {
    let fake = Fake::new();
    let mount = open(&fake);
    assert!(mount.call(Cred::ROOT, lock_root(1, LockKind::Write, false)).is_ok());
    let session = mount.session();
    for _ in 0..20 {
        fake.hold();
        let (_, answer) = later(&mount, getattr());
        fake.cut();
        fake.release();
        assert!(answer.recv_timeout(PATIENCE).is_ok_and(|outcome| outcome.is_ok()));
    }
    assert_eq!(mount.session(), session);
    assert_eq!(fake.locks().0, 1, "the lock was claimed back, not lost and not doubled");
}

#[test]
fn many_threads_lose_no_answer_while_connections_break() {
    let fake = Fake::new();
    let mount = open(&fake);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..300).for_each(|_| assert!(mount.call(Cred::ROOT, getattr()).is_ok())));
        }
        scope.spawn(|| (0..30).for_each(|_| fake.cut()));
    });
    mount.close();
}

#[test]
fn the_end_of_the_only_connection_is_said() {
    let fake = Fake::new().embedded();
    let mount = open(&fake);
    fake.hold();
    let (_, answer) = later(&mount, getattr());
    fake.cut();
    assert_eq!(answer.recv_timeout(PATIENCE), Ok(Err(Errno::EIO)));
    assert_eq!(mount.call(Cred::ROOT, getattr()), Err(Errno::ESHUTDOWN));
}

#[test]
fn closing_ends_waits_for_locks() {
    let fake = Fake::new();
    let mount = open(&fake);
    assert!(mount.call(Cred::ROOT, lock_root(1, LockKind::Write, false)).is_ok());
    let (_, waiting) = later(&mount, lock_root(2, LockKind::Write, true));
    assert_eq!(fake.sessions(), 1);
    mount.close();
    assert_eq!(fake.sessions(), 0, "the goodbye has left");
    assert_eq!(waiting.recv_timeout(PATIENCE), Ok(Err(Errno::EINTR)));
}

#[test]
fn a_server_that_is_not_there_is_said_at_once() {
    let fake = Fake::new();
    fake.refuse_connect(true);
    let opened = Mount::open(fake.connector(), ClientInfo::default());
    assert!(matches!(opened.err(), Some(MountError::Unreachable { .. })));
}

#[test]
fn sharing_is_agreed_to_only_after_the_hook_and_the_time() {
    let fake = Fake::new();
    let mount = open(&fake);
    let (tx, rx) = channel();
    let shared_before = fake.clone();
    mount.on_ttl_change(Box::new(move |ttl_ns| {
        let _told = tx.send((ttl_ns, shared_before.shared()));
    }));
    let started = Instant::now();
    fake.say(&ServerMsg::Share);
    assert_eq!(mount.ttl_ns(), 0);
    let zero = loop {
        let (ttl_ns, shared) = rx.recv_timeout(PATIENCE).expect("the hook runs");
        if ttl_ns == 0 {
            break shared;
        }
    };
    assert_eq!(zero, 0, "not told before the hook ran");
    fake.wait_shared(PATIENCE);
    assert!(started.elapsed() >= Duration::from_millis(SOLE_TTL_MS));
}

#[test]
fn an_evicted_mount_starts_over_or_ends() {
    for recover_clean in [false, true] {
        let fake = Fake::new();
        let settings = Settings { recover_clean, ..Settings::default() };
        let mount = Mount::open_with(fake.connector(), ClientInfo::default(), settings).expect("welcome");
        let session = mount.session();
        fake.hold();
        let (_, answer) = later(&mount, getattr());
        fake.evict();
        fake.cut();
        fake.release();
        assert_eq!(answer.recv_timeout(PATIENCE), Ok(Err(Errno::EIO)));
        assert_eq!(mount.call(Cred::ROOT, getattr()).is_ok(), recover_clean);
        assert_eq!(mount.session() != session, recover_clean);
    }
}
