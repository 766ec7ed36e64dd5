//! A mount against the fake rank: order, reconnects, interrupts, the end.
//!
//! Absent: sleeps; every wait is for something that must happen.

use super::*;
use crate::fake::Fake;
use crate::fs::Fs;
use crate::session::{SessionEvent, SessionStatus};
use proto::caps::Bits;
use proto::message::ServerMsg;
use proto::request::{LockKind, LockSpec};
use proto::{Errno, Ino, NodeRef};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

mod ranks;

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
    let call = mount.submit(Cred::ROOT, request, Box::new(move |outcome, _| drop(tx.send(outcome))));
    (call, rx)
}

#[test]
fn a_call_is_answered_by_the_thread_that_made_it() {
    let mount = open(&Fake::new().embedded());
    let (_, answer) = later(&mount, getattr());
    assert!(answer.try_recv().is_ok_and(|outcome| outcome.is_ok()), "answered before submit returned");
    mount.close();
    assert_eq!(mount.call(Cred::ROOT, getattr()), Err(Errno::ESHUTDOWN));
}

#[test]
fn a_callback_may_submit() {
    let mount = open(&Fake::new());
    let (tx, rx) = channel();
    let again = Arc::downgrade(&mount);
    let first = Box::new(move |_: Outcome, _: Validity| {
        let Some(mount) = again.upgrade() else { return };
        mount.submit(Cred::ROOT, getattr(), Box::new(move |outcome, _| drop(tx.send(outcome))));
    });
    mount.submit(Cred::ROOT, getattr(), first);
    assert!(rx.recv_timeout(PATIENCE).is_ok_and(|outcome| outcome.is_ok()));
}

#[test]
fn what_callers_ask_who_are_answered_together_leaves_together() {
    let fake = Fake::new();
    let mount = open(&fake);
    fake.hold();
    let (tx, rx) = channel();
    for _ in 0..5 {
        let (tx, again) = (tx.clone(), Arc::downgrade(&mount));
        let first = Box::new(move |_: Outcome, _: Validity| {
            let Some(mount) = again.upgrade() else { return };
            mount.submit(Cred::ROOT, getattr(), Box::new(move |outcome, _| drop(tx.send(outcome))));
        });
        mount.submit(Cred::ROOT, getattr(), first);
    }
    let before = fake.sends();
    fake.release_with(&ServerMsg::Renewed { number: 0 });
    for _ in 0..5 {
        assert!(rx.recv_timeout(PATIENCE).is_ok_and(|outcome| outcome.is_ok()));
    }
    assert_eq!(fake.sends() - before, 1);
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

/// A mount that keeps what it is granted.
fn open_keeping(fake: &Fake) -> Arc<Mount> {
    let backoff = (Duration::from_micros(100), Duration::from_millis(2));
    let settings = Settings { backoff, wants: Bits::ATTRS, ..Settings::default() };
    fake.grant(true);
    Mount::open_with(fake.connector(), ClientInfo::default(), settings).expect("the fake welcomes anyone")
}

/// The validity that comes with attributes.
fn leave_of_root(mount: &Mount) -> Validity {
    let (tx, rx) = channel();
    let done = Box::new(move |_: Outcome, validity| drop(tx.send(validity)));
    mount.submit(Cred::ROOT, getattr(), done);
    rx.recv_timeout(PATIENCE).expect("an answer")
}

#[test]
fn what_may_be_kept_comes_with_the_answer() {
    let fake = Fake::new();
    let mount = open_keeping(&fake);
    let validity = leave_of_root(&mount);
    assert_eq!(validity.grants.of(0), Bits::ATTRS);
    assert!(validity.until > mount.now() && validity.stamp >= mount.lost_stamp());
    fake.cut();
    assert!(validity.stamp < mount.lost_stamp(), "in force before anybody asks again");
    let mount = open(&fake);
    assert_eq!(leave_of_root(&mount).grants.of(0), Bits::NONE, "it wants nothing");
}

#[test]
fn recalls_reach_whoever_keeps_something() {
    let fake = Fake::new();
    let mount = open_keeping(&fake);
    let root = Returned { ino: Ino::ROOT, bits: Bits::FS, number: 0 };
    fake.recall(root.ino, root.bits, None);
    fake.wait_returned(1, PATIENCE);
    let (tx, rx) = channel();
    mount.on_caps(Box::new(move |event| drop(tx.send(event))));
    let before = leave_of_root(&mount);
    fake.recall(root.ino, root.bits, Some((Ino::ROOT, b"f")));
    let Ok(CapsEvent::Recalled { stamp, list }) = rx.recv_timeout(PATIENCE) else { panic!("no recall") };
    assert!(stamp > before.stamp);
    assert_eq!(list.first().map(|recalled| (recalled.ino, recalled.bits)), Some((root.ino, root.bits)));
    assert_eq!(fake.returned().len(), 1, "not before it is dropped");
    mount.returned(stamp, vec![root]);
    fake.wait_returned(2, PATIENCE);
    assert_eq!(fake.returned(), [root, root]);
}

#[test]
fn nothing_is_settled_before_the_hook_has_dropped_everything_and_the_lease_is_renewed_meanwhile() {
    let fake = Fake::new();
    fake.lease(60);
    let backoff = (Duration::from_micros(100), Duration::from_millis(2));
    let settings = Settings { backoff, wants: Bits::ATTRS, ..Settings::default() };
    let mount = Mount::open_with(fake.connector(), ClientInfo::default(), settings).expect("welcome");
    let (told, losses) = channel();
    let (go_on, held) = channel();
    let held = Mutex::new(held);
    mount.on_caps(Box::new(move |event| {
        drop(told.send(event));
        // Fails when the test is over.
        let _go = lock(&held).recv();
    }));
    fake.cut();
    let Ok(CapsEvent::Lost { stamp }) = losses.recv_timeout(PATIENCE) else { panic!("no loss") };
    assert!(stamp <= mount.lost_stamp());
    assert!(mount.call(Cred::ROOT, getattr()).is_ok(), "connected again");
    // A page that the hook waits for may wait for another mount for long: the lease goes on.
    fake.wait_renewed(5, PATIENCE);
    assert_eq!(fake.settled(), 0);
    go_on.send(()).expect("the hook waits");
    fake.wait_settled(1, PATIENCE);
}

#[test]
fn an_evicted_mount_starts_over_or_ends() {
    for recover_clean in [false, true] {
        let fake = Fake::new();
        let settings = Settings { recover_clean, ..Settings::default() };
        let mount = Mount::open_with(fake.connector(), ClientInfo::default(), settings).expect("welcome");
        let session = mount.session();
        let (told, events) = channel();
        mount.on_session(Box::new(move |news| drop(told.send((news.event.clone(), news.session)))));
        assert_eq!((mount.state().status, mount.state().session), (SessionStatus::Open, session));
        let fs = Fs::new(Arc::clone(&mount), Cred::ROOT);
        fs.write("/f", b"unsynced").expect("written");
        let file = fs.stat("/f").expect("there").ino;
        fake.hold();
        let (_, answer) = later(&mount, getattr());
        fake.evict();
        fake.cut();
        fake.release();
        assert_eq!(answer.recv_timeout(PATIENCE), Ok(Err(Errno::EIO)));
        let told = if recover_clean { Ok(()) } else { Err(Errno::EIO) };
        assert_eq!(mount.late_error(file, 1), told, "whether its bytes are there nobody knows any more");
        assert_eq!(mount.call(Cred::ROOT, getattr()).is_ok(), recover_clean);
        assert_eq!(mount.session() != session, recover_clean);
        let next = || events.recv_timeout(PATIENCE).expect("an event");
        assert_eq!(next(), (SessionEvent::Lost { why: None }, session));
        match next() {
            (SessionEvent::Rejected { .. }, rejected) if recover_clean => {
                assert_eq!(rejected, session);
                assert_eq!(next(), (SessionEvent::Replaced { former: session }, mount.session()));
            }
            (SessionEvent::Ended { why }, ended) if !recover_clean => {
                assert_eq!(ended, session);
                let state = mount.state();
                assert_eq!((state.status, state.why), (SessionStatus::Ended, Some(why)));
            }
            other => panic!("{other:?} with recover_clean={recover_clean}"),
        }
        mount.close();
        assert!(events.try_recv().is_err(), "an unmount is no event");
    }
}

#[test]
fn a_connection_that_broke_is_told_with_how_long_it_was_away() {
    let fake = Fake::new();
    let mount = open(&fake);
    let (told, events) = channel();
    mount.on_session(Box::new(move |news| drop(told.send(news.event.clone()))));
    for _ in 0..3 {
        fake.cut();
        assert!(mount.call(Cred::ROOT, getattr()).is_ok());
        assert_eq!(events.recv_timeout(PATIENCE), Ok(SessionEvent::Lost { why: None }));
        assert!(matches!(events.recv_timeout(PATIENCE), Ok(SessionEvent::Resumed { .. })));
    }
    assert!(events.try_recv().is_err());
}
