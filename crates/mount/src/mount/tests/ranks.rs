//! A mount with a connection to each of several ranks.
//!
//! Absent: which rank is asked for what: the client's own tests have that.

use super::*;
use crate::session::SessionNews;
use proto::{RankId, SessionId};

/// A directory of each of two ranks: `/` and `/pinned`; and what a path needs.
fn open_two(fake: &Fake) -> (Arc<Mount>, Fs) {
    let mount = open(fake);
    let fs = Fs::new(Arc::clone(&mount), Cred::ROOT);
    fs.mkdir("/pinned", 0o755).expect("made");
    let dir = fs.stat("/pinned").expect("there").ino;
    fake.pin(dir, 1);
    (mount, fs)
}

fn two() -> Fake {
    Fake::new().ranks(2)
}

#[test]
fn a_second_rank_has_a_connection_of_its_own() {
    let fake = two();
    let (mount, fs) = open_two(&fake);
    assert_eq!(fake.connected(), [0]);
    fs.write("/pinned/f", b"there").expect("written");
    assert_eq!((fake.connected(), fake.sent_away() > 0), (vec![0, 1], true));
    let away = fake.sent_away();
    fs.write("/here", b"here").expect("written");
    assert_eq!(fs.read("/pinned/f").as_deref(), Ok(&b"there"[..]));
    assert_eq!(fs.read("/here").as_deref(), Ok(&b"here"[..]));
    assert_eq!(fake.sent_away(), away, "known");
    assert_eq!((mount.state().status, fake.sessions()), (SessionStatus::Open, 2));
    mount.close();
    assert_eq!(fake.sessions(), 0, "both have heard goodbye");
}

#[test]
fn a_rank_that_is_away_is_told_and_the_other_serves() {
    let fake = two();
    let (mount, fs) = open_two(&fake);
    fs.write("/pinned/f", b"x").expect("written");
    let session = mount.session();
    let (told, events) = channel();
    mount.on_session(Box::new(move |news| drop(told.send(news.clone()))));
    fake.refuse_connect(true);
    fake.cut_rank(1);
    let lost = SessionNews { event: SessionEvent::Lost { why: None }, session, rank: RankId(1) };
    assert_eq!(events.recv_timeout(PATIENCE), Ok(lost));
    assert_eq!((mount.state().status, mount.state().rank), (SessionStatus::Lost, RankId(1)));
    assert!(mount.call(Cred::ROOT, getattr()).is_ok(), "the other rank is there");
    let node = fs.stat("/pinned").expect("it is in root").node();
    let name = proto::Name::new(b"f").expect("a name");
    let (_, waits) = later(&mount, Request::Lookup { parent: node, name });
    assert!(waits.try_recv().is_err());
    fake.refuse_connect(false);
    assert!(waits.recv_timeout(PATIENCE).is_ok_and(|outcome| outcome.is_ok()));
    let news = events.recv_timeout(PATIENCE).expect("an event");
    assert!(matches!(news.event, SessionEvent::Resumed { .. }), "{news:?}");
    assert_eq!((news.session, news.rank), (session, RankId(1)));
    assert_eq!(mount.state().status, SessionStatus::Open);
}

/// What broke: one thread made the connections to all ranks, one after the other.
#[test]
fn a_rank_that_cannot_be_reached_keeps_none_of_the_others() {
    let fake = two();
    let (mount, fs) = open_two(&fake);
    fs.write("/pinned/f", b"x").expect("written");
    fake.stall_connects(1);
    fake.cut_rank(1);
    let name = proto::Name::new(b"f").expect("a name");
    let node = fs.stat("/pinned").expect("it is in root").node();
    let (_, waits) = later(&mount, Request::Lookup { parent: node, name });
    fake.wait_stalled(PATIENCE);
    for _ in 0..3 {
        fake.cut_rank(0);
        assert!(mount.call(Cred::ROOT, getattr()).is_ok(), "over another connection");
    }
    assert!(waits.try_recv().is_err());
    fake.stall_connects(0);
    assert!(waits.recv_timeout(PATIENCE).is_ok_and(|outcome| outcome.is_ok()));
    mount.close();
    assert_eq!(fake.sessions(), 0);
}

/// What a rank holds back is no other's business either.
#[test]
fn a_rank_that_hangs_keeps_none_of_the_others() {
    let fake = two();
    let (mount, fs) = open_two(&fake);
    fs.write("/pinned/f", b"x").expect("written");
    let node = fs.stat("/pinned").expect("it is in root").node();
    fake.hold_only(|request| matches!(request, Request::Lookup { name, .. } if name.as_bytes() == b"f"));
    let name = || proto::Name::new(b"f").expect("a name");
    let waiting: Vec<_> =
        (0..300).map(|_| later(&mount, Request::Lookup { parent: node, name: name() }).1).collect();
    for file in 0..20 {
        fs.write(format!("/{file}"), b"here").expect("written");
    }
    assert!(waiting.iter().all(|answer| answer.try_recv().is_err()));
    fake.release();
    for answer in waiting {
        assert!(answer.recv_timeout(PATIENCE).is_ok_and(|outcome| outcome.is_ok()));
    }
}

#[test]
fn a_rank_that_stops_ends_its_part_and_the_session_goes_on() {
    let fake = two();
    let (mount, fs) = open_two(&fake);
    fs.write("/pinned/f", b"x").expect("written");
    assert_eq!((fake.connected(), fake.sessions()), (vec![0, 1], 2));
    fake.stop_rank(1);
    assert_eq!((fake.connected(), fake.sessions()), (vec![0], 1));
    assert_eq!(fs.read("/pinned/f").as_deref(), Ok(&b"x"[..]));
    assert_eq!(mount.state().status, SessionStatus::Open);
    mount.close();
    assert_eq!(fake.sessions(), 0);
}

#[test]
fn many_threads_lose_no_answer_while_connections_to_both_break() {
    let fake = two();
    let (mount, fs) = open_two(&fake);
    let fs = &fs;
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                let dir = if thread % 2 == 0 { "/pinned" } else { "" };
                for file in 0..40 {
                    let path = format!("{dir}/{thread}-{file}");
                    fs.write(&path, path.as_bytes()).expect("written");
                    assert_eq!(fs.read(&path).as_deref(), Ok(path.as_bytes()));
                }
            });
        }
        scope.spawn(|| {
            for turn in 0..30 {
                fake.cut_rank(turn % 2);
                std::thread::yield_now();
            }
        });
    });
    mount.close();
}

#[test]
fn an_eviction_is_one_of_all_ranks_and_told_once() {
    let fake = two();
    let backoff = (Duration::from_micros(100), Duration::from_millis(2));
    let settings = Settings { backoff, recover_clean: true, ..Settings::default() };
    let mount = Mount::open_with(fake.connector(), ClientInfo::default(), settings).expect("welcome");
    let fs = Fs::new(Arc::clone(&mount), Cred::ROOT);
    fs.mkdir("/pinned", 0o755).expect("made");
    fake.pin(fs.stat("/pinned").expect("there").ino, 1);
    fs.write("/pinned/f", b"x").expect("written");
    let former = mount.session();
    let (told, events) = channel();
    mount.on_session(Box::new(move |news| drop(told.send((news.event.clone(), news.session)))));
    fake.evict();
    fake.cut_rank(1);
    let is_replaced = |event: &SessionEvent| matches!(event, SessionEvent::Replaced { .. });
    let mut told = Vec::new();
    while !told.iter().any(|(event, _)| is_replaced(event)) {
        told.push(events.recv_timeout(PATIENCE).expect("an event"));
    }
    assert_eq!(fs.read("/pinned/f").as_deref(), Ok(&b"x"[..]), "in the session that took its place");
    assert_eq!(fs.stat("/here").map(|attr| attr.ino), Err(Errno::ENOENT));
    let session = mount.session();
    assert!(session != former && session != SessionId(0));
    assert_eq!((fake.sessions(), fake.connected()), (2, vec![0, 1]));
    told.extend(events.try_iter());
    told.retain(|(event, _)| is_replaced(event));
    assert_eq!(told, [(SessionEvent::Replaced { former }, session)]);
}

#[test]
fn an_eviction_without_another_session_ends_all() {
    let fake = two();
    let (mount, fs) = open_two(&fake);
    fs.write("/pinned/f", b"x").expect("written");
    let (told, events) = channel();
    mount.on_session(Box::new(move |news| drop(told.send(news.event.clone()))));
    fake.evict();
    fake.cut_rank(1);
    let ended = std::iter::from_fn(|| events.recv_timeout(PATIENCE).ok())
        .find(|event| matches!(event, SessionEvent::Ended { .. }));
    assert!(ended.is_some());
    assert_eq!(mount.call(Cred::ROOT, getattr()), Err(Errno::ESHUTDOWN), "at the other rank, too");
    assert_eq!(mount.state().status, SessionStatus::Ended);
    mount.close();
    assert!(!events.try_iter().any(|event| matches!(event, SessionEvent::Ended { .. })), "told once");
}
