//! What is open or locked goes with its inode: to the new owner, through its deaths, and out of the old one.
//!
//! Absent: what a client makes of it (`client`, `router`).

mod coming;
mod unheard;

use super::*;
use proto::request::{LockKind, LockSpec};

const OTHER: ConnId = ConnId(60);

const LOCK: LockSpec =
    LockSpec { flock: true, owner: 1, kind: LockKind::Write, start: 0, end: u64::MAX, pid: 1 };

impl Cluster {
    /// At that rank, by the client over a socket.
    fn asks(&mut self, at: usize, request: Request) -> Answered {
        let tid = self.start(at, REMOTE, request);
        self.wait(at, REMOTE, tid)
    }

    fn asks_well(&mut self, at: usize, request: Request) -> Reply {
        match self.asks(at, request) {
            Answered::Outcome(Ok(reply)) => reply,
            other => panic!("{other:?}; {:?}", self.worlds[at].notes),
        }
    }

    /// The client comes back to a rank that lives again, and has nothing in its books for it.
    pub(super) fn comes_back(&mut self, at: usize) {
        let session = self.worlds[0].sessions[&REMOTE];
        self.returns_with(at, session, &[]);
    }

    /// The client comes back to a rank that lives again, and has those open there.
    fn returns_with(&mut self, at: usize, session: SessionId, open: &[NodeRef]) {
        let reclaim = |node: &NodeRef| {
            let (node, locks) = (*node, Vec::new());
            ClientMsg::Reclaim { node, count: 1, writes: true, locks }
        };
        self.returns_having(at, session, open.iter().map(reclaim).collect());
    }

    /// The same, and says so of what it has in its books.
    fn returns_having(&mut self, at: usize, session: SessionId, books: Vec<ClientMsg>) {
        let world = self.hold(at);
        world.inject(Input::Connected { conn: REMOTE, peer: Peer::Trusted });
        let info = ClientInfo { host: "h".into(), mount: "/m".into(), pid: 1, caps_max: 0 };
        let at_rank = world.at();
        world.say(
            REMOTE,
            ClientMsg::Hello { protocol: PROTOCOL, session, info, wants: Bits::NONE, at: at_rank },
        );
        let welcome = world.welcomed(REMOTE);
        assert!(matches!(welcome, Some(ServerMsg::Welcome { resumed: true, .. })), "{welcome:?}");
        for reclaim in books {
            world.say(REMOTE, reclaim);
        }
        world.say(REMOTE, ClientMsg::Reclaimed);
        self.settle();
        self.pass(5);
    }

    /// A move of rank 0's goes on until it asks the coordinator to switch, which does not hear it.
    fn until_switch(&mut self) {
        self.until_switch_of(0);
    }

    pub(super) fn until_switch_of(&mut self, at: usize) {
        for _ in 0..200 {
            if matches!(self.worlds[at].wishes.front(), Some(MapWish::Switch { .. })) {
                return;
            }
            self.deaf = self.map.entries.values().any(|entry| entry.moving.is_some());
            self.pass(1);
        }
        panic!("{:?}", self.worlds[at].notes);
    }

    /// A file in a directory that becomes rank 1's while a client has it open and locked.
    pub(super) fn with_held() -> (Self, NodeRef, NodeRef) {
        let mut c = Self::new();
        let dir = c.mkdir(root(), "d");
        let file = c.create(dir, "f");
        c.greet(0, Peer::Trusted, Bits::NONE);
        c.asks_well(0, Request::Open { node: file, flags: 2 });
        c.asks_well(0, Request::SetLock { node: file, lock: LOCK, wait: false });
        let tid = c.start(0, EMBEDDED, Self::pin_request(dir, 1));
        c.pass(5);
        let told = c.heard(0, |message| matches!(message, ServerMsg::Join { .. }));
        assert!(matches!(told, Some(ServerMsg::Join { rank: RankId(1), .. })), "{told:?}");
        c.join(0, 1, Peer::Trusted);
        assert_eq!(c.wait(0, EMBEDDED, tid), Answered::Outcome(Ok(Reply::Ok)), "{:?}", c.worlds[0].notes);
        assert_eq!(c.owner(dir), Some(1));
        (c, dir, file)
    }

    /// Whether somebody else gets the lock.
    pub(super) fn is_locked(&mut self, file: NodeRef) -> bool {
        let lock = LockSpec { owner: 9, ..LOCK };
        match self.call(1, Request::SetLock { node: file, lock, wait: false }) {
            Ok(_) => {
                let request = Request::ReleaseLocks { node: file, flock: true, owner: 9 };
                assert_eq!(self.call(1, request), Ok(Reply::Ok));
                false
            }
            Err(Errno::EAGAIN) => true,
            other => panic!("{other:?}"),
        }
    }
}

fn read(node: NodeRef) -> Request {
    Request::Read { node, offset: 0, len: 9, into: None }
}

#[test]
fn an_open_file_goes_with_its_directory() {
    let (mut c, dir, file) = Cluster::with_held();
    let data = Payload::Owned(b"bytes".to_vec());
    let write = Request::Write { node: file, offset: 0, append: false, kill_suidgid: false, data };
    assert_eq!(c.asks(0, write.clone()), NOT_MINE(1));
    c.asks_well(1, write);
    assert_eq!(c.call(1, Request::Unlink { parent: dir, name: n("f") }), Ok(Reply::Ok));
    // Without a name, but open.
    assert!(matches!(c.asks_well(1, read(file)), Reply::Data(data) if data.bytes() == b"bytes"));
    assert!(!c.worlds[1].data.is_empty());
    // It is closed where it is.
    c.asks_well(1, Request::ReleaseLocks { node: file, flock: true, owner: 1 });
    let close = Request::Release { node: file, count: 1 };
    assert_eq!(c.asks(0, close.clone()), NOT_MINE(1));
    c.asks_well(1, close);
    c.pass(5);
    c.checkpoint(1);
    assert!(c.worlds[1].data.is_empty(), "its bytes are gone with the last open");
}

#[test]
fn a_lock_goes_with_its_directory() {
    let (mut c, _, file) = Cluster::with_held();
    assert!(c.is_locked(file));
    assert_eq!(c.asks(0, Request::ReleaseLocks { node: file, flock: true, owner: 1 }), NOT_MINE(1));
    c.asks_well(1, Request::ReleaseLocks { node: file, flock: true, owner: 1 });
    assert!(!c.is_locked(file));
}

/// Its directory goes, and it stays: its client asks who had it when it was opened. What was in the directory is not in its way.
#[test]
fn an_open_file_without_a_name_stays() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    let file = c.create(dir, "f");
    c.greet(0, Peer::Trusted, Bits::NONE);
    c.asks_well(0, Request::Open { node: file, flags: 2 });
    assert_eq!(c.call(0, Request::Unlink { parent: dir, name: n("f") }), Ok(Reply::Ok));
    assert_eq!(c.pin(dir, 1), Ok(Reply::Ok), "{:?}", c.worlds[0].notes);
    assert!(matches!(c.asks_well(0, read(file)), Reply::Data(_)));
    c.drop_cache(0);
    assert!(matches!(c.asks_well(0, read(file)), Reply::Data(_)));
    assert_eq!(
        c.call(0, Request::RmDir { parent: root(), name: n("d") }),
        Ok(Reply::Ok),
        "{:?}",
        c.worlds[1].notes
    );
    assert!(matches!(c.asks_well(0, read(file)), Reply::Data(_)));
    c.asks_well(0, Request::Release { node: file, count: 1 });
}

/// What broke: ESTALE, where everything else is rank 0's.
#[test]
fn a_copy_from_what_another_rank_has_without_a_name_is_between_two_ranks() {
    let (mut c, dir, file) = Cluster::with_held();
    let target = c.create(root(), "t");
    assert_eq!(c.call(1, Request::Unlink { parent: dir, name: n("f") }), Ok(Reply::Ok));
    assert_eq!(c.pin(dir, 0), Ok(Reply::Ok), "{:?}", c.worlds[1].notes);
    let copy = Request::CopyRange { source: file, source_offset: 0, target, target_offset: 0, len: 1 };
    assert_eq!(c.ask(0, copy), Answered::Outcome(Err(Errno::EXDEV)));
}

/// The client has it in its books for the old owner yet: the new one's journal has it.
#[test]
fn what_came_is_there_after_a_crash_and_what_was_given_back_is_not() {
    let (mut c, dir, file) = Cluster::with_held();
    for round in 0..2 {
        c.crash(1);
        c.comes_back(1);
        assert!(c.is_locked(file), "{round}");
        c.checkpoint(1);
    }
    assert_eq!(c.call(1, Request::Unlink { parent: dir, name: n("f") }), Ok(Reply::Ok));
    c.crash(1);
    c.comes_back(1);
    assert!(c.is_locked(file));
    assert!(matches!(c.asks_well(1, read(file)), Reply::Data(_)));
    c.asks_well(1, Request::ReleaseLocks { node: file, flock: true, owner: 1 });
    c.asks_well(1, Request::Release { node: file, count: 1 });
    c.pass(5);
    c.crash(1);
    c.comes_back(1);
    assert!(!matches!(c.asks(1, read(file)), Answered::Outcome(Ok(_))), "it is nowhere");
}

/// Its client says by a Reclaim that it has it in its books for this rank: from then on these count.
#[test]
fn what_the_client_has_in_its_books_is_not_in_the_journal_any_more() {
    let (mut c, _, file) = Cluster::with_held();
    let reclaim = |locks| ClientMsg::Reclaim { node: file, count: 1, writes: true, locks };
    c.hold(1).say(REMOTE, reclaim(Vec::new()));
    c.settle();
    assert!(c.is_locked(file), "nothing changes by it");
    c.asks_well(1, Request::ReleaseLocks { node: file, flock: true, owner: 1 });
    c.pass(5);
    c.crash(1);
    c.comes_back(1);
    assert!(!c.is_locked(file));
}

/// Nobody has asked for the file since it came, or since the rank lives again: the cache does not know whether it is below.
#[test]
fn what_nobody_asks_for_moves_on() {
    let (mut c, dir, file) = Cluster::with_held();
    assert_eq!(c.pin(dir, 0), Ok(Reply::Ok), "{:?}", c.worlds[1].notes);
    assert_eq!(c.pin(dir, 1), Ok(Reply::Ok), "{:?}", c.worlds[0].notes);
    c.crash(1);
    c.comes_back(1);
    assert_eq!(c.pin(dir, 0), Ok(Reply::Ok), "{:?}", c.worlds[1].notes);
    let lock = LockSpec { owner: 9, ..LOCK };
    assert_eq!(c.call(0, Request::SetLock { node: file, lock, wait: false }), Err(Errno::EAGAIN));
    assert!(matches!(c.asks_well(0, read(file)), Reply::Data(_)));
}

#[test]
fn what_was_reclaimed_is_found_before_anything_moves() {
    let (mut c, dir, file) = Cluster::with_held();
    let session = c.worlds[0].sessions[&REMOTE];
    let reclaim = ClientMsg::Reclaim { node: file, count: 1, writes: true, locks: Vec::new() };
    c.hold(1).say(REMOTE, reclaim);
    c.settle();
    c.pass(5);
    c.crash(1);
    c.returns_with(1, session, &[file]);
    assert!(c.worlds[1].rank.view.holders.is_empty(), "it is in the client's books only");
    assert_eq!(c.pin(dir, 0), Ok(Reply::Ok), "{:?}", c.worlds[1].notes);
    assert!(matches!(c.asks_well(0, read(file)), Reply::Data(_)));
}

/// What broke: what is locked and not open may leave the cache. When something was to move it was looked for without a place to
/// look at, was nowhere, and that was taken for another rank's: the lock ended.
#[test]
fn what_is_locked_and_left_the_cache_keeps_its_lock() {
    let mut c = Cluster::new();
    let (dir, other) = (c.mkdir(root(), "d"), c.mkdir(root(), "other"));
    let file = c.create(dir, "f");
    c.greet(0, Peer::Trusted, Bits::NONE);
    c.join(0, 1, Peer::Trusted);
    c.asks_well(0, Request::SetLock { node: file, lock: LOCK, wait: false });
    c.drop_cache(0);
    assert_eq!(c.pin(other, 1), Ok(Reply::Ok), "{:?}", c.worlds[0].notes);
    let lock = LockSpec { owner: 9, ..LOCK };
    let request = Request::SetLock { node: file, lock, wait: false };
    assert_eq!(c.ask(0, request), Answered::Outcome(Err(Errno::EAGAIN)));
    c.drop_cache(0);
    assert_eq!(c.pin(dir, 1), Ok(Reply::Ok), "{:?}", c.worlds[0].notes);
    assert!(c.is_locked(file));
}

/// What broke: nobody found the inode any more to give its lock back, and it held up all that moves.
#[test]
fn a_lock_ends_with_what_it_is_on() {
    for moved in [false, true] {
        let mut c = Cluster::new();
        let (dir, other) = (c.mkdir(root(), "d"), c.mkdir(root(), "other"));
        let (file, sub) = (c.create(dir, "f"), c.mkdir(dir, "sub"));
        c.greet(0, Peer::Trusted, Bits::NONE);
        c.join(0, 1, Peer::Trusted);
        for node in [file, sub] {
            c.asks_well(0, Request::SetLock { node, lock: LOCK, wait: false });
        }
        let lock = LockSpec { owner: 9, ..LOCK };
        let at = usize::from(moved);
        if moved {
            assert_eq!(c.pin(dir, 1), Ok(Reply::Ok), "{:?}", c.worlds[0].notes);
        }
        let waits = c.start(at, EMBEDDED, Request::SetLock { node: file, lock, wait: true });
        assert_eq!(c.call(0, Request::Unlink { parent: dir, name: n("f") }), Ok(Reply::Ok));
        assert_eq!(c.call(0, Request::RmDir { parent: dir, name: n("sub") }), Ok(Reply::Ok));
        let answer = c.wait(at, EMBEDDED, waits);
        assert!(!matches!(answer, Answered::Outcome(Ok(_))), "{answer:?}");
        if moved {
            c.crash(1);
            c.comes_back(1);
        }
        for node in [file, sub] {
            assert!(!c.worlds[at].rank.view.locks.is_locked(node.ino));
        }
        assert_eq!(c.pin(if moved { dir } else { other }, 1 - at as u16), Ok(Reply::Ok));
    }
}

/// As with ReleaseLocks: its client did not know that it had gone when it claimed it here.
#[test]
fn an_unlock_ends_a_claim() {
    let (mut c, _, file, _) = claimed_where_it_was();
    let lock = LockSpec { kind: LockKind::Unlock, ..LOCK };
    assert_eq!(c.asks(0, Request::SetLock { node: file, lock, wait: false }), NOT_MINE(1));
    assert!(!c.worlds[0].rank.view.locks.is_locked(file.ino));
}

/// What broke: told at once that it was closed, its client had nothing to reclaim after a crash, and the rank's next life had it open and
/// locked for ever.
fn given_back_when_durable(open: bool) {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    let file = c.create(dir, "f");
    c.greet(0, Peer::Trusted, Bits::NONE);
    if open {
        c.asks_well(0, Request::Open { node: file, flags: 2 });
    }
    c.asks_well(0, Request::SetLock { node: file, lock: LOCK, wait: false });
    c.worlds[1].wants = crate::tests::early::WANTS;
    c.join(0, 1, Peer::Trusted);
    c.worlds[1].wants = Bits::NONE;
    assert_eq!(c.pin(dir, 1), Ok(Reply::Ok), "{:?}", c.worlds[0].notes);
    // It is given numbers with its first change.
    c.start(1, REMOTE, Request::MkNod { parent: dir, name: n("first"), new: mode(0o100_644) });
    c.pass(5);
    let unlock = Request::ReleaseLocks { node: file, flock: true, owner: 1 };
    if open {
        c.asks_well(1, unlock.clone());
    }
    c.worlds[1].auto_durable = false;
    let last = if open {
        let reclaim = ClientMsg::Reclaim { node: file, count: 1, writes: true, locks: Vec::new() };
        c.hold(1).say(REMOTE, reclaim);
        Request::Release { node: file, count: 1 }
    } else {
        unlock
    };
    let tid = c.start(1, REMOTE, last);
    assert_eq!(c.take_answer(1, REMOTE, tid), None, "a crash would take it back");
    c.hold(1).sync();
    c.settle();
    assert_eq!(c.take_answer(1, REMOTE, tid), Some(Answered::Outcome(Ok(Reply::Ok))));
    c.worlds[1].auto_durable = true;
    c.crash(1);
    c.comes_back(1);
    c.hold(1).say(REMOTE, ClientMsg::Presented);
    c.settle();
    assert!(!c.is_locked(file));
}

#[test]
fn what_came_and_is_given_back_is_told_when_the_journal_has_it() {
    given_back_when_durable(true);
    given_back_when_durable(false);
}

/// What broke: looked for without a place to look at, it was nowhere, and all links are another rank's. So it was taken for
/// that rank's, nobody had it open any more, and its name took it along.
#[test]
fn what_is_open_and_found_nowhere_stays_open_at_a_rank_without_the_links() {
    let mut c = Cluster::new();
    let (dir, other) = (c.mkdir(root(), "d"), c.mkdir(root(), "other"));
    for dir in [dir, other] {
        assert_eq!(c.pin(dir, 1), Ok(Reply::Ok), "{:?}", c.worlds[0].notes);
    }
    let file = c.create(dir, "f");
    c.greet(0, Peer::Trusted, Bits::NONE);
    c.join(0, 1, Peer::Trusted);
    c.asks_well(1, Request::Open { node: file, flags: 2 });
    c.checkpoint(1);
    c.hold(1).rank.view.cache.drop_content(dir.ino, u32::MAX);
    assert_eq!(c.pin(other, 0), Err(Errno::EBUSY), "it may be below");
    assert_eq!(c.call(1, Request::Unlink { parent: dir, name: n("f") }), Ok(Reply::Ok));
    assert!(matches!(c.asks_well(1, read(file)), Reply::Data(_)), "it is open");
}

/// What broke: the cache knew the file, from the journal or from where its client had seen it, and nothing of what is above it. It was
/// taken for one below whatever moves, and handed over with that: somebody else got its lock, and its bytes went with its name.
fn stays_where_it_is(whole: bool) {
    let mut c = Cluster::new();
    let (elsewhere, upper) = (c.mkdir(root(), "elsewhere"), c.mkdir(root(), "upper"));
    let (dir, mine) = (c.mkdir(upper, "d"), c.mkdir(root(), "mine"));
    if !whole {
        assert_eq!(c.pin(mine, 1), Ok(Reply::Ok), "{:?}", c.worlds[0].notes);
    }
    c.drop_cache(0);
    let file = c.create(dir, "f");
    c.greet(0, Peer::Trusted, Bits::NONE);
    c.join(0, 1, Peer::Trusted);
    let session = c.worlds[0].sessions[&REMOTE];
    c.asks_well(0, Request::Open { node: file, flags: 2 });
    c.asks_well(0, Request::SetLock { node: file, lock: LOCK, wait: false });
    c.crash(0);
    let locks = vec![LOCK];
    c.returns_having(0, session, vec![ClientMsg::Reclaim { node: file, count: 1, writes: true, locks }]);
    c.pass(5);
    assert_eq!(c.pin(elsewhere, 1), Ok(Reply::Ok), "{:?}", c.worlds[0].notes);
    let lock = LockSpec { owner: 9, ..LOCK };
    let other = Request::SetLock { node: file, lock, wait: false };
    assert_eq!(c.ask(0, other), Answered::Outcome(Err(Errno::EAGAIN)));
    assert_eq!(c.call(0, Request::Unlink { parent: dir, name: n("f") }), Ok(Reply::Ok));
    assert!(matches!(c.asks_well(0, read(file)), Reply::Data(_)), "it is open");
    c.asks_well(0, Request::ReleaseLocks { node: file, flock: true, owner: 1 });
    c.asks_well(0, Request::Release { node: file, count: 1 });
}

#[test]
fn what_is_open_elsewhere_does_not_go_along() {
    stays_where_it_is(true);
    stays_where_it_is(false);
}

/// The same of one whose directories were never cached in this life: its client opens it by where it saw it.
#[test]
fn what_was_opened_by_where_it_was_seen_does_not_go_along() {
    let mut c = Cluster::new();
    let (elsewhere, upper) = (c.mkdir(root(), "elsewhere"), c.mkdir(root(), "upper"));
    let dir = c.mkdir(upper, "d");
    let file = c.create(dir, "f");
    c.greet(0, Peer::Trusted, Bits::NONE);
    c.join(0, 1, Peer::Trusted);
    // What is below goes first.
    (0..4).for_each(|_| c.drop_cache(0));
    c.asks_well(0, Request::Open { node: file, flags: 2 });
    c.asks_well(0, Request::SetLock { node: file, lock: LOCK, wait: false });
    assert!(c.worlds[0].rank.view.cache.by_ino(dir.ino).is_none(), "only the file is cached");
    assert_eq!(c.pin(elsewhere, 1), Ok(Reply::Ok), "{:?}", c.worlds[0].notes);
    let lock = LockSpec { owner: 9, ..LOCK };
    let other = Request::SetLock { node: file, lock, wait: false };
    assert_eq!(c.ask(0, other), Answered::Outcome(Err(Errno::EAGAIN)));
    // With its own directory it goes.
    assert_eq!(c.pin(upper, 1), Ok(Reply::Ok), "{:?}", c.worlds[0].notes);
    assert!(c.is_locked(file));
}

/// A directory, and a file in it that a client of rank 0 alone has open.
fn with_opened() -> (Cluster, NodeRef, NodeRef) {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    let file = c.create(dir, "f");
    c.greet(0, Peer::Trusted, Bits::NONE);
    c.asks_well(0, Request::Open { node: file, flags: 0 });
    (c, dir, file)
}

#[test]
fn who_does_not_join_the_new_owner_holds_the_move_up() {
    let (mut c, dir, file) = with_opened();
    let tid = c.start(0, EMBEDDED, Cluster::pin_request(dir, 1));
    c.pass(50);
    // Others are served meanwhile.
    c.create(dir, "g");
    let told = c.heard(0, |message| matches!(message, ServerMsg::Join { .. }));
    assert!(told.is_some() && c.heard(0, |message| matches!(message, ServerMsg::Join { .. })).is_some());
    let mut answered = None;
    for _ in 0..100 {
        c.hold(0).say(REMOTE, ClientMsg::Renew { number: 0 });
        c.pass(300);
        answered = c.take_answer(0, EMBEDDED, tid);
        if answered.is_some() {
            break;
        }
    }
    assert_eq!(answered, Some(Answered::Outcome(Err(Errno::EBUSY))), "{:?}", c.worlds[0].notes);
    assert_eq!(c.owner(dir), Some(0));
    c.asks_well(0, Request::Release { node: file, count: 1 });
    assert_eq!(c.pin(dir, 1), Ok(Reply::Ok));
}

/// What broke: the new owner was asked for a session that had ended until the move was given up.
#[test]
fn who_has_ended_is_awaited_no_longer() {
    let (mut c, dir, _) = with_opened();
    let tid = c.start(0, EMBEDDED, Cluster::pin_request(dir, 1));
    c.pass(5);
    assert!(c.heard(0, |message| matches!(message, ServerMsg::Join { .. })).is_some());
    c.hold(0).say(REMOTE, ClientMsg::Goodbye);
    c.pass(200);
    assert_eq!(
        c.take_answer(0, EMBEDDED, tid),
        Some(Answered::Outcome(Ok(Reply::Ok))),
        "{:?}",
        c.worlds[0].notes
    );
    assert_eq!(c.owner(dir), Some(1));
}

/// What broke: what it had was not closed yet, as that was reserved for a transaction, and the move was sealed and refused each time.
#[test]
fn who_has_ended_and_is_not_closed_yet_holds_the_move_up() {
    for locks in [false, true] {
        let (mut c, dir, file) = with_opened();
        if locks {
            c.asks_well(0, Request::SetLock { node: file, lock: LOCK, wait: false });
            c.asks_well(0, Request::Release { node: file, count: 1 });
        }
        let ended = c.worlds[0].sessions[&REMOTE];
        let session = c.worlds[0].rank.sessions.map.remove(&ended).expect("greeted");
        let tid = c.start(0, EMBEDDED, Cluster::pin_request(dir, 1));
        c.pass(200);
        assert!(!c.worlds[0].rank.moves.is_sealed());
        assert_eq!(c.take_answer(0, EMBEDDED, tid), None, "{:?}", c.worlds[0].notes);
        c.worlds[0].rank.sessions.map.insert(ended, session);
        c.hold(0).say(REMOTE, ClientMsg::Goodbye);
        c.pass(200);
        assert_eq!(
            c.take_answer(0, EMBEDDED, tid),
            Some(Answered::Outcome(Ok(Reply::Ok))),
            "{:?}",
            c.worlds[0].notes
        );
        assert_eq!(c.owner(dir), Some(1));
    }
}

/// A session had something open and ended, and that is closed later. What broke: where that happened while it was to join, all was sealed until
/// that was given up; and so where it was sealed already.
#[test]
fn who_ends_while_it_is_to_join_is_closed_before_the_seal() {
    let (mut c, dir, _) = with_opened();
    let tid = c.start(0, EMBEDDED, Cluster::pin_request(dir, 1));
    c.pass(50);
    assert!(c.heard(0, |message| matches!(message, ServerMsg::Join { .. })).is_some());
    let ended = c.worlds[0].sessions[&REMOTE];
    let session = c.worlds[0].rank.sessions.map.remove(&ended).expect("greeted");
    c.pass(200);
    assert!(!c.worlds[0].rank.moves.is_sealed());
    c.worlds[0].rank.sessions.map.insert(ended, session);
    c.hold(0).say(REMOTE, ClientMsg::Goodbye);
    assert_eq!(c.wait(0, EMBEDDED, tid), Answered::Outcome(Ok(Reply::Ok)));
    let notes = &c.worlds[0].notes;
    assert!(!notes.iter().any(|text| text.contains("has ended")), "it was sealed in vain: {notes:?}");
}

#[test]
fn who_ends_while_it_is_sealed_ends_the_seal() {
    let (mut c, dir, file) = with_opened();
    c.join(0, 1, Peer::Trusted);
    c.worlds[0].rank.view.files.get_mut(file.ino).users = 1;
    let tid = c.start(0, EMBEDDED, Cluster::pin_request(dir, 1));
    c.pass(5);
    assert!(c.worlds[0].rank.moves.is_sealed(), "it waits for a data operation: {:?}", c.worlds[0].notes);
    let ended = c.worlds[0].sessions[&REMOTE];
    let session = c.worlds[0].rank.sessions.map.remove(&ended).expect("greeted");
    c.worlds[0].rank.view.files.get_mut(file.ino).users = 0;
    c.pass(5);
    assert!(!c.worlds[0].rank.moves.is_sealed());
    c.create(dir, "g");
    c.worlds[0].rank.sessions.map.insert(ended, session);
    c.hold(0).say(REMOTE, ClientMsg::Goodbye);
    assert_eq!(c.wait(0, EMBEDDED, tid), Answered::Outcome(Ok(Reply::Ok)), "{:?}", c.worlds[0].notes);
    assert_eq!(c.owner(dir), Some(1));
}

/// What was opened while a move waits for the store goes along: its session joins the new owner, and one that has joined is not asked again.
#[test]
fn what_is_opened_while_the_rest_is_stored_goes_along() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    let file = c.create(dir, "f");
    c.checkpoint(0);
    c.greet(0, Peer::Trusted, Bits::NONE);
    let tid = c.start(0, EMBEDDED, Cluster::pin_request(dir, 1));
    c.deaf = true;
    c.pass(20);
    for number in 0..20 {
        c.create(dir, &format!("f{number}"));
    }
    c.hold(0).hold_stores = true;
    c.deaf = false;
    c.pass(50);
    assert!(!c.worlds[0].rank.moves.is_sealed(), "the store is slow, and it is served");
    c.asks_well(0, Request::Open { node: file, flags: 2 });
    c.asks_well(0, Request::SetLock { node: file, lock: LOCK, wait: false });
    assert!(c.heard(0, |message| matches!(message, ServerMsg::Join { .. })).is_none());
    c.hold(0).let_go();
    c.pass(20);
    assert!(
        c.heard(0, |message| matches!(message, ServerMsg::Join { .. })).is_some(),
        "{:?}",
        c.worlds[0].notes
    );
    c.join(0, 1, Peer::Trusted);
    assert_eq!(c.wait(0, EMBEDDED, tid), Answered::Outcome(Ok(Reply::Ok)), "{:?}", c.worlds[0].notes);
    assert!(c.owner(dir) == Some(1) && c.is_locked(file));
}

#[test]
fn a_move_that_is_given_up_leaves_all_as_it_was() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    let file = c.create(dir, "f");
    c.greet(0, Peer::Trusted, Bits::NONE);
    c.join(0, 1, Peer::Trusted);
    c.asks_well(0, Request::Open { node: file, flags: 2 });
    c.asks_well(0, Request::SetLock { node: file, lock: LOCK, wait: false });
    let tid = c.start(0, EMBEDDED, Cluster::pin_request(dir, 1));
    c.until_switch();
    // The coordinator gives it up instead.
    let Some(MapWish::Switch { unit, id }) = c.worlds[0].wishes.pop_front() else { panic!() };
    c.deaf = false;
    c.grant(0, MapWish::Abort { unit, id });
    assert_eq!(c.wait(0, EMBEDDED, tid), Answered::Outcome(Err(Errno::EBUSY)));
    assert_eq!(c.owner(dir), Some(0));
    c.crash(1);
    let lock = LockSpec { owner: 9, ..LOCK };
    let other = Request::SetLock { node: file, lock, wait: false };
    assert_eq!(c.call(0, other.clone()), Err(Errno::EAGAIN));
    c.asks_well(0, Request::ReleaseLocks { node: file, flock: true, owner: 1 });
    assert_eq!(c.call(0, other), Ok(Reply::Ok));
    assert_eq!(c.call(0, Request::ReleaseLocks { node: file, flock: true, owner: 9 }), Ok(Reply::Ok));
    c.asks_well(0, Request::Release { node: file, count: 1 });
    assert_eq!(c.pin(dir, 1), Ok(Reply::Ok));
    c.crash(1);
    c.comes_back(1);
    assert!(!c.is_locked(file), "what was told with the move that was given up is over");
}

/// What broke: that a move had ended was said once. Where the map could not be written just then it had that move for ever, and nothing else of
/// its rank moved.
#[test]
pub(crate) fn that_a_move_is_given_up_is_said_until_the_map_says_so() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    assert_eq!(c.pin(dir, 0), Ok(Reply::Ok));
    let unit = Unit { dir: dir.ino, frag: Frag::WHOLE };
    // What its session keeps of the life before is not known yet, so nothing moves.
    c.greet(0, Peer::Trusted, Bits::NONE);
    c.crash(0);
    c.deaf = true;
    c.announce(unit, RankId(1));
    c.settle();
    let wish = c.worlds[0].wishes.pop_front().expect("a wish");
    assert!(matches!(wish, MapWish::Abort { unit: of, .. } if of == unit), "{wish:?}");
    c.inject(0, Input::WishRefused { wish, reason: "the map cannot be written".into() });
    c.deaf = false;
    c.pass(30_000);
    assert_eq!(c.map.entries[&unit].moving, None, "{:?}", c.worlds[0].notes);
}

/// A number that no inode has, claimed by whoever may connect, was looked for without end, and nothing moved any more.
#[test]
pub(crate) fn what_is_no_inode_is_not_claimed() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    c.greet(0, Peer::Trusted, Bits::NONE);
    let node = NodeRef::bare(Ino(u64::MAX));
    let claim = ClientMsg::Reclaim { node, count: 1, writes: false, locks: Vec::new() };
    c.inject(0, Input::Message { conn: REMOTE, message: claim });
    assert_eq!(c.pin(dir, 1), Ok(Reply::Ok), "{:?}", c.worlds[0].notes);
}

/// What broke: behind the seal what is below had left the cache, and nobody looked for it again. All later moves were refused.
#[test]
fn a_move_that_is_given_up_is_made_later() {
    let mut c = Cluster::new();
    let (dir, other) = (c.mkdir(root(), "d"), c.mkdir(root(), "other"));
    let file = c.create(dir, "f");
    c.greet(0, Peer::Trusted, Bits::NONE);
    c.join(0, 1, Peer::Trusted);
    c.asks_well(0, Request::Open { node: file, flags: 2 });
    c.asks_well(0, Request::SetLock { node: file, lock: LOCK, wait: false });
    let tid = c.start(0, EMBEDDED, Cluster::pin_request(dir, 1));
    c.until_switch();
    let Some(MapWish::Switch { unit, id }) = c.worlds[0].wishes.pop_front() else { panic!() };
    c.deaf = false;
    c.grant(0, MapWish::Abort { unit, id });
    assert_eq!(c.wait(0, EMBEDDED, tid), Answered::Outcome(Err(Errno::EBUSY)));
    // Nobody has asked for the file since.
    assert_eq!(c.pin(other, 1), Ok(Reply::Ok), "{:?}", c.worlds[0].notes);
    assert_eq!(c.pin(dir, 1), Ok(Reply::Ok), "{:?}", c.worlds[0].notes);
    assert!(c.is_locked(file));
}

/// The rank that had a file lives again, and its client, which does not know that it went, says that it has it open and locked there.
fn claimed_where_it_was() -> (Cluster, NodeRef, NodeRef, NodeRef) {
    let (mut c, dir, file) = Cluster::with_held();
    let other = c.mkdir(root(), "other");
    let session = c.worlds[0].sessions[&REMOTE];
    c.crash(0);
    let locks = vec![LOCK];
    c.returns_having(0, session, vec![ClientMsg::Reclaim { node: file, count: 1, writes: true, locks }]);
    // It has all answers of before.
    let tid = c.hold(0).next_tid();
    let request = Request::GetAttr { node: root() };
    c.hold(0).say(REMOTE, ClientMsg::Request { tid, floor: tid, cred: Cred::ROOT, request });
    c.settle();
    (c, dir, file, other)
}

/// What broke: it was found nowhere, and held all moves of that rank up for ever.
#[test]
fn what_is_claimed_where_it_is_not_holds_nothing_up() {
    let (mut c, _, file, other) = claimed_where_it_was();
    assert_eq!(c.pin(other, 1), Ok(Reply::Ok), "{:?}", c.worlds[0].notes);
    assert!(c.is_locked(file), "it is where the file is");
}

/// What broke: it counted when the directory came back, and nobody would ever have given it back.
#[test]
fn what_was_claimed_where_it_was_not_does_not_count_when_it_comes_back() {
    let (mut c, dir, file, _) = claimed_where_it_was();
    c.asks_well(1, Request::ReleaseLocks { node: file, flock: true, owner: 1 });
    c.asks_well(1, Request::Release { node: file, count: 1 });
    assert_eq!(c.pin(dir, 0), Ok(Reply::Ok), "{:?}", c.worlds[1].notes);
    let lock = LockSpec { owner: 9, ..LOCK };
    let other = Request::SetLock { node: file, lock, wait: false };
    assert_eq!(c.ask(0, other), Answered::Outcome(Ok(Reply::Ok)));
    assert!(c.worlds[0].rank.view.files.get(file.ino).is_none_or(|file| file.opens.is_empty()));
}

/// What broke: one of several opens was given back, and ended. The others stayed at a rank that never found out that they were nothing: the
/// file was gone when it looked.
#[test]
fn a_claim_ends_when_its_client_has_found_the_inode_elsewhere() {
    let (mut c, _, file, _) = claimed_where_it_was();
    let counts = |c: &Cluster, at: usize| {
        let view = &c.worlds[at].rank.view;
        let opens = view.files.get(file.ino).is_some_and(|file| !file.opens.is_empty());
        (opens, view.locks.is_locked(file.ino))
    };
    assert_eq!((counts(&c, 0), counts(&c, 1)), ((true, true), (true, true)));
    for at in 0..2 {
        let outcome = c.asks(at, Request::Release { node: file, count: 0 });
        let expected = if at == 0 { NOT_MINE(1) } else { Answered::Outcome(Ok(Reply::Ok)) };
        assert_eq!(outcome, expected, "rank {at}");
    }
    assert_eq!(
        (counts(&c, 0), counts(&c, 1)),
        ((false, false), (true, true)),
        "it is nothing where it is not"
    );
}

/// What broke: the new owner gave the file a second name, and with that it went back. Then the old owner heard that its move was made, and
/// took all that had gone with it for closed.
#[test]
fn what_came_back_before_its_move_was_heard_of_is_open() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    let file = c.create(dir, "f");
    c.greet(0, Peer::Trusted, Bits::NONE);
    c.join(0, 1, Peer::Trusted);
    c.asks_well(0, Request::Open { node: file, flags: 2 });
    let tid = c.start(0, EMBEDDED, Cluster::pin_request(dir, 1));
    c.until_switch();
    c.behind.insert(0);
    c.deaf = false;
    c.settle();
    assert_eq!(c.owner(dir), Some(1));
    let linked = c.asks_well(1, Request::Link { node: file, parent: dir, name: n("g") });
    let Reply::Attr(linked) = linked else { panic!("{linked:?}") };
    assert_eq!(linked.parent, Ino::LINKS);
    let is_open =
        |c: &Cluster| c.worlds[0].rank.view.files.get(file.ino).is_some_and(|file| !file.opens.is_empty());
    assert!(is_open(&c), "it went along");
    c.behind.clear();
    c.publish();
    assert_eq!(c.wait(0, EMBEDDED, tid), Answered::Outcome(Ok(Reply::Ok)));
    assert!(is_open(&c), "by what came, not by what went");
}

#[test]
fn who_waits_for_a_lock_is_sent_to_its_new_owner() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    let file = c.create(dir, "f");
    c.greet(0, Peer::Trusted, Bits::NONE);
    c.join(0, 1, Peer::Trusted);
    c.asks_well(0, Request::SetLock { node: file, lock: LOCK, wait: false });
    let lock = LockSpec { owner: 2, ..LOCK };
    let waits = c.start(0, REMOTE, Request::SetLock { node: file, lock, wait: true });
    assert_eq!(c.pin(dir, 1), Ok(Reply::Ok), "{:?}", c.worlds[0].notes);
    assert_eq!(c.wait(0, REMOTE, waits), NOT_MINE(1));
    let waits = c.start(1, REMOTE, Request::SetLock { node: file, lock, wait: true });
    c.pass(3);
    assert_eq!(c.take_answer(1, REMOTE, waits), None);
    c.asks_well(1, Request::ReleaseLocks { node: file, flock: true, owner: 1 });
    assert_eq!(c.wait(1, REMOTE, waits), Answered::Outcome(Ok(Reply::Ok)));
}

/// What broke: its session ended while the unit was sealed, and who waited for its lock got it from the old owner, of which the
/// new one knew nothing.
#[test]
fn nobody_gets_a_lock_of_what_is_sealed() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    let file = c.create(dir, "f");
    c.greet(0, Peer::Trusted, Bits::NONE);
    c.join(0, 1, Peer::Trusted);
    c.asks_well(0, Request::SetLock { node: file, lock: LOCK, wait: false });
    let world = c.hold(0);
    world.hello(OTHER, Peer::Trusted, SessionId(0));
    let lock = LockSpec { owner: 2, ..LOCK };
    let waits = c.start(0, OTHER, Request::SetLock { node: file, lock, wait: true });
    let tid = c.start(0, EMBEDDED, Cluster::pin_request(dir, 1));
    c.until_switch();
    for at in 0..2 {
        c.hold(at).say(REMOTE, ClientMsg::Goodbye);
    }
    c.pass(5);
    assert_eq!(c.take_answer(0, OTHER, waits), None);
    c.deaf = false;
    assert_eq!(c.wait(0, EMBEDDED, tid), Answered::Outcome(Ok(Reply::Ok)));
    assert_eq!(c.wait(0, OTHER, waits), NOT_MINE(1));
    assert!(!c.is_locked(file));
}

#[test]
fn the_end_of_its_session_ends_what_came() {
    let (mut c, dir, file) = Cluster::with_held();
    assert_eq!(c.call(1, Request::Unlink { parent: dir, name: n("f") }), Ok(Reply::Ok));
    c.hold(1).say(REMOTE, ClientMsg::Goodbye);
    c.settle();
    c.pass(5);
    c.crash(1);
    c.pass(5);
    assert!(!matches!(c.ask(1, read(file)), Answered::Outcome(Ok(_))));
}

/// What broke: its entry was dropped before the journal had what came with it. To the next life that was a move that was not made.
#[test]
fn what_came_is_there_after_a_crash_when_its_entry_is_to_go() {
    let (mut c, dir, file) = Cluster::with_held();
    let session = c.worlds[0].sessions[&REMOTE];
    c.start(0, EMBEDDED, Request::RemoveXattr { node: dir, name: n("pando.dir.pin") });
    c.until_switch_of(1);
    c.worlds[0].auto_durable = false;
    c.deaf = false;
    c.pass(20);
    assert_eq!(c.owner(dir), Some(0), "the map says yet that it came");
    c.crash(0);
    c.returns_with(0, session, &[]);
    assert!(c.is_locked(file), "{:?}", c.worlds[0].notes);
}

/// What came is journaled in several entries, of which a crash may keep some.
#[test]
fn what_came_is_whole_however_its_journal_is_torn() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    let files = ["f", "g"].map(|name| c.create(dir, name));
    c.greet(0, Peer::Trusted, Bits::NONE);
    let session = c.worlds[0].sessions[&REMOTE];
    for world in &mut c.worlds {
        (world.config.limits.locks_per_file, world.config.limits.locks_per_session) = (50_000, 50_000);
    }
    c.crash(1);
    c.crash(0);
    let byte = |at: u64| LockSpec { flock: false, start: 2 * at, end: 2 * at, ..LOCK };
    let claims = files.map(|node| {
        let locks = (0..20_000).map(byte).collect();
        ClientMsg::Reclaim { node, count: 1, writes: true, locks }
    });
    c.returns_having(0, session, claims.into());
    let tid = c.hold(0).next_tid();
    let request = Request::GetAttr { node: root() };
    c.hold(0).say(REMOTE, ClientMsg::Request { tid, floor: tid, cred: Cred::ROOT, request });
    c.settle();
    c.join(0, 1, Peer::Trusted);
    c.start(0, EMBEDDED, Cluster::pin_request(dir, 1));
    c.until_switch();
    c.worlds[1].auto_durable = false;
    c.deaf = false;
    c.settle();
    let world = &mut c.worlds[1];
    let entry =
        |at: usize| u32::from_le_bytes(world.journal[at..at + 4].try_into().expect("four bytes")) as usize;
    let mut at = world.durable;
    while entry(at) < 100_000 {
        at += entry(at);
    }
    world.durable = at + entry(at);
    assert!(world.durable < world.journal.len(), "there is another one");
    c.crash(1);
    c.comes_back(1);
    for file in files {
        let lock = LockSpec { flock: false, owner: 9, ..LOCK };
        let other = Request::SetLock { node: file, lock, wait: false };
        assert_eq!(c.ask(1, other), Answered::Outcome(Err(Errno::EAGAIN)));
    }
}

/// It had been open when it came, and was removed: nobody would ever have found it, and nothing moved any more.
fn a_directory_that_is_gone_is_open(restarts: bool) {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    let sub = c.mkdir(dir, "sub");
    c.greet(0, Peer::Trusted, Bits::NONE);
    c.asks_well(0, Request::Open { node: sub, flags: 0 });
    let tid = c.start(0, EMBEDDED, Cluster::pin_request(dir, 1));
    c.pass(5);
    c.join(0, 1, Peer::Trusted);
    assert_eq!(c.wait(0, EMBEDDED, tid), Answered::Outcome(Ok(Reply::Ok)), "{:?}", c.worlds[0].notes);
    assert_eq!(c.call(1, Request::RmDir { parent: dir, name: n("sub") }), Ok(Reply::Ok));
    if restarts {
        c.asks(1, Request::Release { node: sub, count: 1 });
        c.crash(1);
        c.comes_back(1);
    }
    assert_eq!(c.pin(dir, 0), Ok(Reply::Ok), "{:?}", c.worlds[1].notes);
}

#[test]
fn an_open_directory_that_is_gone_holds_nothing_up() {
    a_directory_that_is_gone_is_open(false);
    a_directory_that_is_gone_is_open(true);
}

/// The journal had not been told in time that it had gone.
#[test]
fn what_comes_back_by_a_name_ends_what_was_said_before() {
    let (mut c, dir, file) = Cluster::with_held();
    let other = c.mkdir(root(), "x");
    assert_eq!(c.pin(other, 1), Ok(Reply::Ok));
    c.start(0, EMBEDDED, Cluster::pin_request(dir, 0));
    c.until_switch_of(1);
    c.worlds[1].auto_durable = false;
    c.deaf = false;
    c.settle();
    c.crash(1);
    c.comes_back(1);
    c.asks_well(0, Request::ReleaseLocks { node: file, flock: true, owner: 1 });
    c.asks_well(0, Request::Release { node: file, count: 1 });
    assert_eq!(c.rename((dir, "f"), (other, "f")), Ok(Reply::Ok));
    c.crash(1);
    c.comes_back(1);
    assert!(!c.is_locked(file), "{:?}", c.worlds[1].notes);
}

#[cfg(feature = "mutants")]
#[test]
fn defects_of_what_goes_along_are_caught() {
    let defects: [(&str, fn()); 29] = [
        ("mds_seals_with_ended", who_ends_while_it_is_to_join_is_closed_before_the_seal),
        ("mds_sealed_with_ended", who_ends_while_it_is_sealed_ends_the_seal),
        ("mds_ended_go_along", who_has_ended_and_is_not_closed_yet_holds_the_move_up),
        ("mds_first_ends_what_was_coming", what_came_is_whole_however_its_journal_is_torn),
        ("mds_opens_outlive_directory", an_open_directory_that_is_gone_holds_nothing_up),
        ("mds_back_with_former_holders", what_comes_back_by_a_name_ends_what_was_said_before),
        ("mds_entry_goes_before_what_came", what_came_is_there_after_a_crash_when_its_entry_is_to_go),
        ("mds_locks_outlive_inode", a_lock_ends_with_what_it_is_on),
        ("mds_unlocks_where_it_is", an_unlock_ends_a_claim),
        ("mds_holder_gone_early", || given_back_when_durable(true)),
        ("mds_holder_gone_early", || given_back_when_durable(false)),
        ("mds_links_lead", what_is_open_and_found_nowhere_stays_open_at_a_rank_without_the_links),
        ("mds_move_takes_what_came", what_came_back_before_its_move_was_heard_of_is_open),
        ("mds_claims_stay", a_claim_ends_when_its_client_has_found_the_inode_elsewhere),
        ("mds_whole_knows_all", a_copy_from_what_another_rank_has_without_a_name_is_between_two_ranks),
        ("mds_nowhere_is_elsewhere", what_is_locked_and_left_the_cache_keeps_its_lock),
        ("mds_unseen_not_sought", what_nobody_asks_for_moves_on),
        ("mds_unseen_not_sought", what_was_reclaimed_is_found_before_anything_moves),
        ("mds_unknown_is_below", what_is_open_elsewhere_does_not_go_along),
        ("mds_unknown_is_below", what_was_opened_by_where_it_was_seen_does_not_go_along),
        ("mds_unseen_not_sought", a_move_that_is_given_up_is_made_later),
        ("mds_claims_of_nothing", what_is_claimed_where_it_is_not_holds_nothing_up),
        ("mds_claims_of_nothing", what_was_claimed_where_it_was_not_does_not_count_when_it_comes_back),
        ("mds_move_forgets_holders", a_lock_goes_with_its_directory),
        ("mds_holders_not_replayed", what_came_is_there_after_a_crash_and_what_was_given_back_is_not),
        ("mds_holders_of_nothing", a_move_that_is_given_up_leaves_all_as_it_was),
        ("mds_holders_trimmed", what_came_is_there_after_a_crash_and_what_was_given_back_is_not),
        ("mds_sealed_locks_go_on", nobody_gets_a_lock_of_what_is_sealed),
        ("mds_releases_anywhere", an_open_file_goes_with_its_directory),
    ];
    for (defect, test) in defects {
        stdx::mutant::activate(Some(defect));
        let verdict = std::panic::catch_unwind(test);
        stdx::mutant::activate(None);
        assert!(verdict.is_err(), "{defect}");
    }
}
