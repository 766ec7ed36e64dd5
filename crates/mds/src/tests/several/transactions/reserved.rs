//! What is reserved for a transaction: who waits for it and who does not, and what becomes of it at checkpoints, crashes and ends of links.
//!
//! Absent: what reserves it (`transactions.rs`, `haste.rs`).

use super::*;

#[test]
pub(super) fn who_looks_at_what_is_reserved_waits_and_nobody_else_does() {
    let (mut s, _) = prepared();
    let set = |set: proto::SetAttr| Request::SetAttr { node: root(), set };
    let waits = [
        Request::Lookup { parent: root(), name: n("f") },
        Request::GetAttr { node: s.file },
        Request::Unlink { parent: root(), name: n("f") },
        Request::MkNod { parent: root(), name: n("f"), new: mode(0o100_644) },
        Request::GetAttr { node: root() },
        Request::ReadDir { dir: root(), after: 0, attrs: true, bytes_max: 600 },
        Request::Read { node: s.file, offset: 0, len: 5, into: None },
        set(proto::SetAttr { uid: Some(7), ..Default::default() }),
        set(proto::SetAttr { mtime: Some(proto::attr::SetTime::Now), ..Default::default() }),
        Request::GetXattr { node: root(), name: n("ceph.dir.entries") },
    ];
    let waiting: Vec<Tid> = waits.iter().map(|request| s.c.start(0, EMBEDDED, request.clone())).collect();
    s.c.create(root(), "new");
    assert!(s.c.lookup(root(), "other").is_ok());
    for tid in &waiting {
        assert_eq!(s.c.take_answer(0, EMBEDDED, *tid), None);
    }
    s.c.worlds[1].auto_durable = true;
    s.c.hold(1).sync();
    s.c.settle();
    let expected = |at: usize| match at {
        0 | 2 => Some(Err(Errno::ENOENT)),
        3..=5 | 7..=9 => None,
        _ => Some(Err(Errno::ESTALE)),
    };
    for (at, tid) in waiting.into_iter().enumerate() {
        match (s.c.wait(0, EMBEDDED, tid), expected(at)) {
            (Answered::NotMine(owner), Some(Err(Errno::ESTALE))) => assert_eq!(owner, Some(RankId(1))),
            (Answered::Outcome(outcome), Some(errno)) => assert_eq!(outcome, errno, "{at}"),
            (answer, _) => assert!(matches!(answer, Answered::Outcome(Ok(_))), "{at}: {answer:?}"),
        }
    }
}

#[test]
pub(super) fn a_checkpoint_forgets_no_transaction() {
    for leader in [false, true] {
        let (mut s, tid) = prepared();
        if leader {
            // Committed, and rank 0 does not hear of it.
            s.c.cut.insert((1, 0));
            s.c.worlds[1].auto_durable = true;
            s.c.hold(1).sync();
            s.c.settle();
            assert_eq!(s.c.wait(1, EMBEDDED, tid), Answered::Outcome(Ok(Reply::Ok)));
        }
        for _ in 0..2 {
            s.c.checkpoint(usize::from(leader));
        }
        s.c.crash(usize::from(leader));
        s.c.cut.clear();
        s.c.worlds[1].auto_durable = true;
        s.c.hold(1).sync();
        s.c.pass(50);
        s.check_file(s.dir, "g", 1);
        s.check_names(root(), &["d", "other"]);
        s.c.assert_resolved();
    }
}

#[test]
fn an_abort_that_is_lost_with_its_link_is_asked_for() {
    let (mut s, tid) = prepared();
    // The leader dies with what it has not made durable, and rank 0 is not heard for a while.
    s.c.cut.insert((0, 1));
    s.c.crash(1);
    s.c.pass(50);
    assert!(!s.c.worlds[0].rank.view.transactions.is_free(), "nobody has said what became of it");
    s.c.cut.clear();
    s.c.pass(50);
    s.c.assert_resolved();
    assert_eq!(s.c.take_answer(1, EMBEDDED, tid), None);
    s.check_file(root(), "f", 1);
    s.check_names(s.dir, &[]);
}

/// Its place goes into the journal again with every checkpoint, also with the last.
#[test]
fn who_has_something_reserved_stops_all_the_same() {
    let mut s = Scene::new();
    assert_eq!(s.c.rename((root(), "f"), (root(), "f2")), Ok(Reply::Ok));
    s.c.worlds[1].auto_durable = false;
    let tid = s.c.start(1, EMBEDDED, rename((root(), "f2"), (s.dir, "g"), 0));
    assert!(!s.c.worlds[0].rank.view.transactions.is_free());
    s.c.inject(0, Input::Stop);
    s.c.hold(0).pass(100);
    assert_eq!(s.c.worlds[0].rank.state(), State::Stopped);
    s.c.crash(0);
    s.c.worlds[1].auto_durable = true;
    s.c.hold(1).sync();
    s.c.settle();
    assert_eq!(s.c.wait(1, EMBEDDED, tid), Answered::Outcome(Ok(Reply::Ok)));
    s.c.pass(50);
    s.check_file(s.dir, "g", 1);
    s.c.assert_resolved();
}

/// What is said of it would be over with the commit, which takes nothing back.
#[test]
fn a_listing_tells_nothing_of_an_inode_that_is_reserved() {
    let mut s = Scene::new();
    s.link(s.file, s.dir, "l");
    s.c.create(root(), "other");
    s.c.greet(0, Peer::Trusted, Bits::ATTRS);
    s.c.hold(0).say(REMOTE, ClientMsg::Settled);
    s.c.worlds[1].auto_durable = false;
    let tid = s.c.start(1, EMBEDDED, rename((s.dir, "l"), (s.dir, "m"), 0));
    assert!(!s.c.worlds[0].rank.view.transactions.is_free());
    let listing = Request::ReadDir { dir: root(), after: 0, attrs: true, bytes_max: 60_000 };
    for warm in [true, false] {
        if !warm {
            s.c.drop_cache(0);
        }
        let listing = s.c.start(0, REMOTE, listing.clone());
        let Answered::Outcome(Ok(Reply::Entries { entries, .. })) = s.c.wait(0, REMOTE, listing) else {
            panic!("no listing")
        };
        let told = |name: &[u8]| {
            let entry = entries.iter().find(|entry| *entry.name == *name).expect("listed");
            entry.attr.is_some()
        };
        assert!(told(b"other") && !told(b"f"));
    }
    assert!(!s.c.worlds[0].rank.view.may_promise(s.file.ino));
    s.c.worlds[1].auto_durable = true;
    s.c.hold(1).sync();
    s.c.settle();
    assert_eq!(s.c.wait(1, EMBEDDED, tid), Answered::Outcome(Ok(Reply::Ok)));
    s.check_file(s.dir, "m", 2);
}

/// It may go by what a former life told it of the directory.
#[test]
fn nothing_is_reserved_before_all_have_greeted_that_may_keep_it() {
    let mut s = Scene::of(3);
    let third = s.third.expect("rank 2's");
    s.c.create(s.dir, "x");
    s.c.stat(s.dir);
    s.c.cut.insert((0, 1));
    s.c.crash(1);
    assert!(s.c.worlds[1].rank.peers.ungreeted.contains_key(&RankId(0)));
    let tid = s.c.start(2, EMBEDDED, rename((s.dir, "x"), (third, "y"), 0));
    s.c.pass(100);
    assert!(s.c.worlds[1].rank.view.transactions.is_free());
    assert_eq!(s.c.take_answer(2, EMBEDDED, tid), None);
    s.c.cut.clear();
    assert_eq!(s.c.wait(2, EMBEDDED, tid), Answered::Outcome(Ok(Reply::Ok)));
    s.check_names(s.dir, &[]);
    s.check_names(third, &["y"]);
}

/// It left when all had acknowledged what it decided: this it never did.
#[test]
fn nothing_is_reserved_for_a_leader_that_has_left() {
    for dies in [false, true] {
        let (mut s, _) = prepared();
        s.c.map.ranks.remove(&RankId(1));
        if dies {
            s.c.crash(0);
        } else {
            s.c.publish();
            s.c.settle();
        }
        assert!(s.c.worlds[0].rank.view.transactions.is_free(), "dies: {dies}");
        assert_eq!(s.c.lookup(root(), "f").map(|attr| attr.ino), Ok(s.file.ino));
    }
}
