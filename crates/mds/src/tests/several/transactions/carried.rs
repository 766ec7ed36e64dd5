//! What is open and locked goes along with an inode that a transaction takes to another rank: through deaths of all, and back.
//!
//! Absent: what moves with a directory (`../holders.rs`); what a client makes of it (`client`, `router`).

use super::*;
use proto::holder::Holder;
use proto::request::rename_flags::EXCHANGE;
use proto::request::{LockKind, LockSpec};
use proto::transact::CARRIED_BYTES_MAX;

/// Who has something open.
const HOLDER: ConnId = ConnId(60);
/// Who waits for its lock.
const OTHER: ConnId = ConnId(61);

const LOCK: LockSpec =
    LockSpec { flock: true, owner: 1, kind: LockKind::Write, start: 0, end: u64::MAX, pid: 1 };
const OTHERS: LockSpec = LockSpec { owner: 9, ..LOCK };

fn release(node: NodeRef) -> Request {
    Request::Release { node, count: 1 }
}

fn unlock(node: NodeRef, owner: u64) -> Request {
    Request::ReleaseLocks { node, flock: true, owner }
}

impl Scene {
    /// The holder's session begins at one rank, and it joins the others.
    fn greets(&mut self, first: usize, others: &[usize]) -> SessionId {
        let welcome = self.c.hold(first).hello(HOLDER, Peer::Trusted, SessionId(0));
        assert!(matches!(welcome, Some(ServerMsg::Welcome { .. })), "{welcome:?}");
        let session = self.c.worlds[first].sessions[&HOLDER];
        others.iter().for_each(|at| self.joins(*at, session));
        session
    }

    fn joins(&mut self, at: usize, session: SessionId) {
        self.c.inject(at, Input::Connected { conn: HOLDER, peer: Peer::Trusted });
        let info = ClientInfo { host: "h".into(), mount: "/m".into(), pid: 1, caps_max: 0 };
        let token = JoinToken::of(&self.c.worlds[at].config.join_key, session);
        let to = At { join: true, token, ..self.c.worlds[at].at() };
        let hello = ClientMsg::Hello { protocol: PROTOCOL, session, info, wants: Bits::NONE, at: to };
        self.c.inject(at, Input::Message { conn: HOLDER, message: hello });
        let welcome = self.c.worlds[at].welcomed(HOLDER);
        assert!(matches!(welcome, Some(ServerMsg::Welcome { .. })), "{welcome:?}");
        self.c.settle();
    }

    /// It comes back to a rank that lives again, and has those in its books for it, locked.
    fn holder_returns(&mut self, at: usize, session: SessionId, open: &[NodeRef]) {
        let world = self.c.hold(at);
        let welcome = world.hello(HOLDER, Peer::Trusted, session);
        assert!(matches!(welcome, Some(ServerMsg::Welcome { resumed: true, .. })), "{welcome:?}");
        for node in open {
            world.say(HOLDER, ClientMsg::Reclaim { node: *node, count: 1, writes: true, locks: vec![LOCK] });
        }
        world.say(HOLDER, ClientMsg::Reclaimed);
        self.c.settle();
        self.has_heard(HOLDER, at);
    }

    /// All answers of that rank so far: what an answer that nobody has heard may have opened stays where it is.
    fn has_heard(&mut self, conn: ConnId, at: usize) {
        let world = self.c.hold(at);
        world.tid += 1;
        let tid = Tid(world.tid);
        let request = Request::GetAttr { node: root() };
        world.say(conn, ClientMsg::Request { tid, floor: tid, cred: Cred::ROOT, request });
        self.c.settle();
    }

    fn holder_asks(&mut self, at: usize, request: Request) -> Answered {
        let tid = self.c.start(at, HOLDER, request);
        self.c.wait(at, HOLDER, tid)
    }

    fn holder_does(&mut self, at: usize, request: Request) -> Reply {
        match self.holder_asks(at, request) {
            Answered::Outcome(Ok(reply)) => reply,
            other => panic!("{other:?}; {:?}", self.c.worlds[at].notes),
        }
    }

    /// The holder opens a file for writing and locks it.
    fn holds(&mut self, at: usize, file: NodeRef) {
        self.holder_does(at, Request::Open { node: file, flags: 2 });
        self.holder_does(at, Request::SetLock { node: file, lock: LOCK, wait: false });
    }

    /// Whether somebody else does not get the lock.
    fn is_locked(&mut self, at: usize, file: NodeRef) -> bool {
        match self.c.ask(at, Request::SetLock { node: file, lock: OTHERS, wait: false }) {
            Answered::Outcome(Ok(_)) => {
                assert_eq!(self.c.ask(at, unlock(file, 9)), Answered::Outcome(Ok(Reply::Ok)));
                false
            }
            Answered::Outcome(Err(Errno::EAGAIN)) => true,
            other => panic!("{other:?}"),
        }
    }

    /// The holder has the file open and locked at that rank; it loses its name, and is gone with the last close.
    fn check_held(&mut self, at: usize, file: NodeRef, (parent, name): (NodeRef, &str)) {
        assert!(self.is_locked(at, file), "{:?}", self.c.worlds[at].notes);
        let outcome = self.c.call(0, Request::Unlink { parent, name: n(name) });
        assert_eq!(outcome, Ok(Reply::Ok));
        self.c.pass(5);
        let read = Request::Read { node: file, offset: 0, len: 100, into: None };
        let Reply::Data(data) = self.holder_does(at, read.clone()) else { panic!("no data") };
        assert_eq!(data.bytes(), DATA);
        self.holder_does(at, unlock(file, 1));
        assert!(!self.is_locked(at, file));
        self.holder_does(at, release(file));
        self.c.pass(5);
        assert!(!matches!(self.holder_asks(at, read), Answered::Outcome(Ok(_))), "it is gone");
    }

    fn has_nothing(&self, at: usize, file: NodeRef) -> bool {
        let view = &self.c.worlds[at].rank.view;
        view.files.get(file.ino).is_none_or(|file| !file.is_open()) && !view.locks.is_locked(file.ino)
    }

    /// Until that rank has reserved something: nothing is durable by itself.
    fn until_reserved(&mut self, at: usize) {
        while self.c.worlds[at].rank.view.transactions.is_free() {
            assert!(self.c.one_thing(), "nothing is reserved");
        }
    }

    fn goes_on(&mut self) {
        self.c.worlds.iter_mut().for_each(|world| world.auto_durable = true);
        (0..self.c.worlds.len()).for_each(|at| self.c.hold(at).sync());
        self.c.settle();
    }

    /// A rename of what the holder has open, as far as it is reserved.
    fn reserved() -> (Self, SessionId, Tid) {
        let mut s = Self::new();
        let session = s.greets(0, &[1]);
        s.holds(0, s.file);
        s.c.worlds.iter_mut().for_each(|world| world.auto_durable = false);
        let request = rename((root(), "f"), (s.dir, "g"), 0);
        let tid = s.c.hold(1).start(EMBEDDED, Cred::ROOT, request);
        s.until_reserved(0);
        (s, session, tid)
    }
}

#[test]
fn an_open_file_goes_along() {
    let mut s = Scene::new();
    s.greets(0, &[1]);
    s.holds(0, s.file);
    assert_eq!(s.c.rename((root(), "f"), (s.dir, "g")), Ok(Reply::Ok), "{:?}", s.c.worlds[0].notes);
    assert!(s.has_nothing(0, s.file));
    let data = Payload::Owned(DATA.to_vec());
    let write = Request::Write { node: s.file, offset: 0, append: false, kill_suidgid: false, data };
    assert_eq!(s.holder_asks(0, write.clone()), NOT_MINE(1));
    s.holder_does(1, write);
    assert_eq!(s.holder_asks(0, unlock(s.file, 1)), NOT_MINE(1));
    assert_eq!(s.holder_asks(0, release(s.file)), NOT_MINE(1));
    s.check_held(1, s.file, (s.dir, "g"));
    assert!(s.has_nothing(1, s.file));
    s.c.assert_resolved();
}

/// Its directory's rank has it, and everybody dies.
#[test]
fn what_came_along_is_there_after_a_crash() {
    let mut s = Scene::new();
    let session = s.greets(0, &[1]);
    s.holds(0, s.file);
    assert_eq!(s.c.rename((root(), "f"), (s.dir, "g")), Ok(Reply::Ok));
    for _ in 0..2 {
        s.c.crash(1);
        s.holder_returns(1, session, &[]);
        s.c.crash(0);
        // It does not know yet.
        s.holder_returns(0, session, &[s.file]);
        s.c.pass(20);
        s.c.checkpoint(1);
        s.c.checkpoint(0);
    }
    s.check_held(1, s.file, (s.dir, "g"));
}

/// With each rank, and both, dying after each thing that happens, and living again.
fn with_deaths(prepare: impl Fn(&mut Scene) -> Case) {
    let mut most = 0;
    for who in [vec![0], vec![1], vec![0, 1], vec![1, 0]] {
        for things in 0.. {
            let mut s = Scene::new();
            let session = s.greets(0, &[1]);
            let Case { leader, request, held } = prepare(&mut s);
            s.c.greet(leader, Peer::Trusted, Bits::NONE);
            let caller = s.c.worlds[leader].sessions[&REMOTE];
            s.c.worlds.iter_mut().for_each(|world| world.auto_durable = false);
            let tid = s.c.hold(leader).start(REMOTE, Cred::ROOT, request.clone());
            let more = (0..things).all(|_| s.c.one_thing());
            // The holder has all in its books for the ranks where it was.
            let return_to = |s: &mut Scene, rank: usize| {
                let books: Vec<NodeRef> =
                    held.iter().filter(|held| held.was == rank).map(|held| held.file).collect();
                s.holder_returns(rank, session, &books);
            };
            who.iter().for_each(|rank| s.c.crash(*rank));
            s.goes_on();
            for rank in &who {
                return_to(&mut s, *rank);
            }
            if who.contains(&leader) {
                s.c.come_back(leader, caller);
                s.c.hold(leader).retry(REMOTE, tid, Cred::ROOT, request);
                s.c.settle();
            }
            let answer = s.c.wait(leader, REMOTE, tid);
            assert!(matches!(answer, Answered::Outcome(Ok(_))), "{answer:?}: {who:?} after {things}");
            s.c.pass(50);
            s.c.assert_resolved();
            if things % 2 == 1 {
                for rank in [1, 0] {
                    s.c.crash(rank);
                    return_to(&mut s, rank);
                    if rank == leader {
                        s.c.come_back(leader, caller);
                    }
                }
                s.c.pass(20);
            }
            s.has_heard(REMOTE, leader);
            for held in &held {
                s.check_held(held.is, held.file, (held.parent, held.name));
            }
            most = most.max(things);
            if !more {
                break;
            }
        }
    }
    assert!(most > 8, "{most} things happen");
}

struct Case {
    leader: usize,
    request: Request,
    held: Vec<Held>,
}

/// Something that is open and locked: the rank where it was, that where it comes to, and its name there.
struct Held {
    file: NodeRef,
    was: usize,
    is: usize,
    parent: NodeRef,
    name: &'static str,
}

#[test]
fn an_open_file_goes_along_whoever_dies() {
    with_deaths(|s| {
        s.holds(0, s.file);
        let held = vec![Held { file: s.file, was: 0, is: 1, parent: s.dir, name: "g" }];
        Case { leader: 1, request: rename((root(), "f"), (s.dir, "g"), 0), held }
    });
}

impl Scene {
    /// The holder makes a file without a name, and writes it.
    fn makes_nameless(&mut self, at: usize, parent: NodeRef) -> NodeRef {
        let made = Request::TmpFile { parent, new: mode(0o600), flags: 2 };
        let (Reply::Attr(attr) | Reply::Created { attr, .. }) = self.holder_does(at, made) else {
            panic!("no file")
        };
        let (file, data) = (node(&attr), Payload::Owned(DATA.to_vec()));
        self.holder_does(
            at,
            Request::Write { node: file, offset: 0, append: false, kill_suidgid: false, data },
        );
        self.holder_does(at, Request::SetLock { node: file, lock: LOCK, wait: false });
        self.has_heard(HOLDER, at);
        self.c.checkpoint(at);
        file
    }
}

/// What broke: told of a file without a name (`O_TMPFILE`), the rank of its first name answered ENOENT.
#[test]
fn a_file_gets_its_first_name_at_another_rank_whoever_dies() {
    for (was, is) in [(0, 1), (1, 0)] {
        with_deaths(|s| {
            let (from, to) = if was == 0 { (root(), s.dir) } else { (s.dir, root()) };
            let file = s.makes_nameless(was, from);
            let held = vec![Held { file, was, is, parent: to, name: "g" }];
            Case { leader: is, request: Request::Link { node: file, parent: to, name: n("g") }, held }
        });
    }
}

impl Scene {
    /// A file without a name of rank 1's gets one at rank 0, which has all directories. Its rank has stored it before, and not since.
    fn named_at_0() -> (Self, SessionId, NodeRef) {
        let mut s = Self::new();
        let session = s.greets(0, &[1]);
        let file = s.makes_nameless(1, s.dir);
        assert_eq!(s.c.pin(s.dir, 0), Ok(Reply::Ok), "{:?}", s.c.worlds[1].notes);
        let link = Request::Link { node: file, parent: root(), name: n("g") };
        let linked = s.c.ask(0, link);
        assert!(matches!(linked, Answered::Outcome(Ok(_))), "{linked:?}");
        s.c.pass(5);
        s.c.assert_resolved();
        (s, session, file)
    }
}

/// What broke: it was sent to the rank that has it stored without a name still, and back, until its client gave up.
#[test]
pub(super) fn what_got_its_name_here_is_not_sent_to_who_has_it_stored_without_one() {
    let (mut s, _, file) = Scene::named_at_0();
    s.holder_does(0, unlock(file, LOCK.owner));
    s.holder_does(0, release(file));
    (0..3).for_each(|_| s.c.drop_cache(0));
    assert!(s.c.worlds[0].rank.view.cache.by_ino(file.ino).is_none());
    let answer = s.c.ask(0, Request::GetAttr { node: file });
    assert!(matches!(answer, Answered::Outcome(Ok(_))), "{answer:?}");
}

/// And what its client has open there stays open when something is about to move.
#[test]
pub(super) fn what_got_its_name_here_is_claimed_with_right() {
    let (mut s, session, file) = Scene::named_at_0();
    s.c.drop_cache(0);
    s.c.crash(0);
    s.holder_returns(0, session, &[file]);
    assert_eq!(s.c.pin(s.dir, 1), Ok(Reply::Ok), "{:?}", s.c.worlds[0].notes);
    s.check_held(0, file, (root(), "g"));
}

/// Whoever had it open does not come back, and nobody there would ever have it open again.
#[test]
pub(super) fn a_file_that_is_about_to_get_its_name_is_not_ended() {
    let mut s = Scene::new();
    let session = s.greets(0, &[1]);
    let file = s.makes_nameless(0, root());
    s.c.worlds.iter_mut().for_each(|world| world.auto_durable = false);
    let link = Request::Link { node: file, parent: s.dir, name: n("g") };
    let tid = s.c.hold(1).start(EMBEDDED, Cred::ROOT, link);
    while s.c.worlds[1].rank.view.transactions.committed.is_empty() {
        assert!(s.c.one_thing(), "nothing is decided");
    }
    s.c.crash(0);
    s.holder_returns(0, session, &[]);
    s.c.pass(50);
    s.goes_on();
    let answer = s.c.wait(1, EMBEDDED, tid);
    assert!(matches!(answer, Answered::Outcome(Ok(_))), "{answer:?}");
    s.c.assert_resolved();
    let found = s.c.lookup(s.dir, "g").expect("it has a name");
    assert_eq!((found.ino, found.nlink), (file.ino, 1));
    assert_eq!(s.c.read(node(&found)), DATA);
}

/// And one that is given up, with nobody who has it open, is.
#[test]
fn a_file_that_gets_no_name_after_all_is_ended() {
    let mut s = Scene::new();
    let session = s.greets(0, &[1]);
    let file = s.makes_nameless(0, root());
    s.c.worlds.iter_mut().for_each(|world| world.auto_durable = false);
    let link = Request::Link { node: file, parent: s.dir, name: n("g") };
    s.c.hold(1).start(EMBEDDED, Cred::ROOT, link);
    s.until_reserved(0);
    s.c.hold(0).sync();
    s.c.crash(0);
    s.holder_returns(0, session, &[]);
    // Who led it knows nothing of it any more.
    s.c.crash(1);
    s.goes_on();
    s.c.pass(50);
    s.c.assert_resolved();
    let gone = s.holder_asks(0, Request::GetAttr { node: file });
    assert!(!matches!(gone, Answered::Outcome(Ok(_))), "{gone:?}");
    assert_eq!(s.c.lookup(s.dir, "g"), Err(Errno::ENOENT));
}

/// What broke: it had left the cache while it was reserved, and was found no more when it was free.
#[test]
pub(super) fn a_file_that_gets_no_name_after_all_is_ended_whatever_leaves_the_cache() {
    let mut s = Scene::new();
    let session = s.greets(0, &[1]);
    let file = s.makes_nameless(0, root());
    s.c.worlds.iter_mut().for_each(|world| world.auto_durable = false);
    let link = Request::Link { node: file, parent: s.dir, name: n("g") };
    s.c.hold(1).start(EMBEDDED, Cred::ROOT, link);
    s.until_reserved(0);
    s.c.hold(0).sync();
    s.c.cut.insert((1, 0));
    s.c.crash(0);
    // Whoever had it open is back without it, while nobody knows yet what comes of the link.
    s.holder_returns(0, session, &[]);
    s.c.drop_cache(0);
    assert!(!s.c.worlds[0].rank.view.transactions.is_free());
    s.c.crash(1);
    s.c.cut.clear();
    s.goes_on();
    s.c.pass(50);
    s.c.assert_resolved();
    let left: Vec<Ino> = s.c.hold(0).data.keys().map(|of| of.ino).collect();
    assert!(!left.contains(&file.ino), "its data is there: {left:?}");
    let gone = s.holder_asks(0, Request::GetAttr { node: file });
    assert!(!matches!(gone, Answered::Outcome(Ok(_))), "{gone:?}");
}

/// One goes to the leader, one to the other rank.
#[test]
fn open_files_are_exchanged_whoever_dies() {
    with_deaths(|s| {
        let other = s.c.create(s.dir, "g");
        s.c.write(other, DATA);
        s.holds(0, s.file);
        s.holds(1, other);
        let held = vec![
            Held { file: s.file, was: 0, is: 1, parent: s.dir, name: "g" },
            Held { file: other, was: 1, is: 0, parent: root(), name: "f" },
        ];
        Case { leader: 1, request: rename((root(), "f"), (s.dir, "g"), EXCHANGE), held }
    });
}

/// Its second name makes an open file rank 0's, whoever leads.
#[test]
fn an_open_file_gets_a_second_name() {
    for leader in 0..3 {
        let mut s = Scene::of(3);
        let third = s.third.expect("rank 2's");
        s.greets(0, &[1, 2]);
        let file = s.c.create(s.dir, "g");
        s.c.write(file, DATA);
        s.holds(1, file);
        let parent = [root(), s.dir, third][leader];
        let link = Request::Link { node: file, parent, name: n("l") };
        assert!(matches!(s.c.call(leader, link), Ok(Reply::Attr(_))), "{leader}");
        s.c.pass(20);
        assert!(s.has_nothing(1, file));
        let unlink = Request::Unlink { parent, name: n("l") };
        assert_eq!(s.c.call(leader, unlink), Ok(Reply::Ok));
        s.check_held(0, file, (s.dir, "g"));
        s.c.assert_resolved();
    }
}

#[test]
fn an_open_directory_goes_along() {
    let mut s = Scene::new();
    s.greets(0, &[1]);
    let top = s.c.mkdir(root(), "m");
    s.c.create(top, "deep");
    s.holder_does(0, Request::Open { node: top, flags: 0 });
    assert_eq!(s.c.rename((root(), "m"), (s.dir, "n")), Ok(Reply::Ok), "{:?}", s.c.worlds[0].notes);
    assert_eq!(s.holder_asks(0, release(top)), NOT_MINE(1));
    s.holder_does(1, release(top));
    assert_eq!(s.c.rename((s.dir, "n"), (root(), "m")), Ok(Reply::Ok));
    assert_eq!(s.c.names(top), ["deep"]);
}

/// The old rank has what a client claimed there when it did not know better.
#[test]
fn what_comes_back_is_held_by_those_who_came_with_it() {
    let mut s = Scene::new();
    let session = s.greets(0, &[1]);
    s.holds(0, s.file);
    assert_eq!(s.c.rename((root(), "f"), (s.dir, "g")), Ok(Reply::Ok));
    s.c.crash(0);
    s.holder_returns(0, session, &[s.file]);
    s.c.pass(20);
    s.holder_does(1, unlock(s.file, 1));
    s.holder_does(1, release(s.file));
    assert_eq!(s.c.rename((s.dir, "g"), (root(), "f")), Ok(Reply::Ok));
    assert!(!s.is_locked(0, s.file));
    assert!(s.has_nothing(0, s.file));
}

#[test]
fn who_waits_for_a_lock_is_sent_on() {
    let mut s = Scene::new();
    s.greets(0, &[1]);
    s.holds(0, s.file);
    let waits = Request::SetLock { node: s.file, lock: LockSpec { owner: 2, ..LOCK }, wait: true };
    let tid = s.c.start(0, HOLDER, waits.clone());
    assert_eq!(s.c.rename((root(), "f"), (s.dir, "g")), Ok(Reply::Ok));
    assert_eq!(s.c.wait(0, HOLDER, tid), NOT_MINE(1));
    let tid = s.c.start(1, HOLDER, waits);
    s.c.pass(3);
    assert_eq!(s.c.take_answer(1, HOLDER, tid), None);
    s.holder_does(1, unlock(s.file, 1));
    assert_eq!(s.c.wait(1, HOLDER, tid), Answered::Outcome(Ok(Reply::Ok)));
}

/// Where the leader's own inode leaves, too.
#[test]
fn who_has_not_joined_the_new_rank_holds_it_up() {
    for (at, flags) in [(0, 0), (1, EXCHANGE)] {
        let mut s = Scene::new();
        let session = s.greets(at, &[]);
        let other = s.c.create(s.dir, "x");
        s.c.write(other, DATA);
        let (file, to) = if at == 0 { (s.file, "g") } else { (other, "x") };
        s.holds(at, file);
        let tid = s.c.start(1, EMBEDDED, rename((root(), "f"), (s.dir, to), flags));
        s.c.pass(50);
        assert_eq!(s.c.take_answer(1, EMBEDDED, tid), None, "{at}");
        let is_told = |(conn, message): &(ConnId, ServerMsg)| {
            let to = RankId(1 - at as u16);
            *conn == HOLDER && matches!(message, ServerMsg::Join { rank, .. } if *rank == to)
        };
        assert!(s.c.worlds[at].sent.iter().any(is_told), "{at}");
        s.joins(1 - at, session);
        assert_eq!(s.c.wait(1, EMBEDDED, tid), Answered::Outcome(Ok(Reply::Ok)));
        s.c.pass(20);
        s.check_held(1 - at, file, if at == 0 { (s.dir, "g") } else { (root(), "f") });
    }
}

#[test]
fn who_never_joins_keeps_it_where_it_is() {
    let mut s = Scene::new();
    let session = s.greets(0, &[]);
    s.holds(0, s.file);
    let tid = s.c.start(1, EMBEDDED, rename((root(), "f"), (s.dir, "g"), 0));
    let mut answer = None;
    for _ in 0..100 {
        s.c.hold(0).say(HOLDER, ClientMsg::Renew { number: 0 });
        s.c.pass(300);
        answer = s.c.take_answer(1, EMBEDDED, tid);
        if answer.is_some() {
            break;
        }
    }
    assert_eq!(answer, Some(Answered::Outcome(Err(Errno::EXDEV))));
    s.c.assert_resolved();
    s.joins(1, session);
    s.check_held(0, s.file, (root(), "f"));
}

/// Between vote and commit.
#[test]
fn who_closes_what_is_reserved_waits() {
    for dies in [false, true] {
        let (mut s, session, tid) = Scene::reserved();
        let close = s.c.hold(0).start(HOLDER, Cred::ROOT, release(s.file));
        let unlocks = s.c.hold(0).start(HOLDER, Cred::ROOT, unlock(s.file, 1));
        assert_eq!(s.c.take_answer(0, HOLDER, close), None);
        if dies {
            // Nothing was decided.
            s.c.crash(1);
            s.goes_on();
            s.holder_returns(1, session, &[]);
            assert_eq!(s.c.wait(0, HOLDER, close), Answered::Outcome(Ok(Reply::Ok)));
            assert_eq!(s.c.wait(0, HOLDER, unlocks), Answered::Outcome(Ok(Reply::Ok)));
            s.c.pass(20);
            s.c.assert_resolved();
            assert!(s.has_nothing(0, s.file) && s.has_nothing(1, s.file));
            s.check_file(root(), "f", 1);
            continue;
        }
        s.goes_on();
        assert_eq!(s.c.wait(1, EMBEDDED, tid), Answered::Outcome(Ok(Reply::Ok)));
        assert_eq!(s.c.wait(0, HOLDER, close), NOT_MINE(1));
        assert_eq!(s.c.wait(0, HOLDER, unlocks), NOT_MINE(1));
        s.check_held(1, s.file, (s.dir, "g"));
    }
}

/// Its session ends at the old rank between vote and commit: nobody gets its lock there.
#[test]
fn nobody_gets_a_lock_of_what_is_reserved() {
    let mut s = Scene::new();
    s.greets(0, &[1]);
    s.holds(0, s.file);
    let welcome = s.c.hold(0).hello(OTHER, Peer::Trusted, SessionId(0));
    assert!(matches!(welcome, Some(ServerMsg::Welcome { .. })), "{welcome:?}");
    let waits = s.c.start(0, OTHER, Request::SetLock { node: s.file, lock: OTHERS, wait: true });
    s.c.worlds.iter_mut().for_each(|world| world.auto_durable = false);
    let tid = s.c.hold(1).start(EMBEDDED, Cred::ROOT, rename((root(), "f"), (s.dir, "g"), 0));
    s.until_reserved(0);
    s.c.hold(0).say(HOLDER, ClientMsg::Goodbye);
    s.c.hold(0).pass(5);
    s.c.hold(0).sync();
    assert_eq!(s.c.take_answer(0, OTHER, waits), None);
    s.goes_on();
    assert_eq!(s.c.wait(1, EMBEDDED, tid), Answered::Outcome(Ok(Reply::Ok)));
    assert_eq!(s.c.wait(0, OTHER, waits), NOT_MINE(1));
    assert!(s.is_locked(1, s.file), "its session has not ended there");
    s.c.hold(1).say(HOLDER, ClientMsg::Goodbye);
    s.c.pass(5);
    assert!(!s.is_locked(1, s.file));
    s.c.pass(20);
    assert!(s.has_nothing(0, s.file));
}

#[test]
fn more_locks_than_a_vote_has_room_for_stay() {
    let mut s = Scene::new();
    let session = s.greets(0, &[1]);
    s.holder_does(0, Request::Open { node: s.file, flags: 2 });
    let most = (CARRIED_BYTES_MAX - Holder::default().bytes()) / 30;
    let lock = |at: u64| LockSpec { flock: false, start: 2 * at, end: 2 * at, ..LOCK };
    let limits = crate::locks::LockLimits { per_file: 1 << 20, per_session: 1 << 20 };
    let many: Vec<LockSpec> = (0..=most as u64).map(lock).collect();
    let locks = &mut s.c.worlds[0].rank.view.locks;
    assert_eq!(locks.reclaim(s.file.ino, session, &many, limits), Ok(0));
    assert_eq!(s.c.rename((root(), "f"), (s.dir, "g")), Err(Errno::EXDEV));
    let one = LockSpec { kind: LockKind::Unlock, ..lock(0) };
    s.holder_does(0, Request::SetLock { node: s.file, lock: one, wait: false });
    assert_eq!(s.c.rename((root(), "f"), (s.dir, "g")), Ok(Reply::Ok), "{:?}", s.c.worlds[0].notes);
    assert_eq!(
        s.c.worlds[1].rank.view.locks.count_of(session),
        most.min(s.c.worlds[1].config.limits.locks().per_file)
    );
}

#[cfg(feature = "mutants")]
#[test]
fn defects_of_what_goes_along_are_caught() {
    let defects: [(&str, fn()); 9] = [
        ("mds_reserved_leaves_cache", a_file_that_gets_no_name_after_all_is_ended_whatever_leaves_the_cache),
        (
            "mds_stored_orphan_is_elsewhere",
            what_got_its_name_here_is_not_sent_to_who_has_it_stored_without_one,
        ),
        ("mds_stored_orphan_is_elsewhere", what_got_its_name_here_is_claimed_with_right),
        ("mds_vote_forgets_holders", an_open_file_goes_along),
        ("mds_carried_not_journaled", what_came_along_is_there_after_a_crash),
        ("mds_left_keeps_holders", an_open_file_goes_along),
        ("mds_strangers_carried", who_has_not_joined_the_new_rank_holds_it_up),
        ("mds_reserved_locks_go_on", nobody_gets_a_lock_of_what_is_reserved),
        ("mds_claims_count_again", what_comes_back_is_held_by_those_who_came_with_it),
    ];
    for (defect, test) in defects {
        stdx::mutant::activate(Some(defect));
        let verdict = std::panic::catch_unwind(test);
        stdx::mutant::activate(None);
        assert!(verdict.is_err(), "{defect}");
    }
}
