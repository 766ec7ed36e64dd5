//! Answers that got lost, and the inode that they are about is another rank's when their client asks again: each request counts once.
//!
//! Absent: what is told of the inode (`../holders.rs`, `../transactions/carried.rs`).

use super::*;

/// A file of rank 0's in `/d`, for a client that is at both ranks. `/x` is rank 1's.
struct Lost {
    c: Cluster,
    session: SessionId,
    dir: NodeRef,
    other: NodeRef,
    file: NodeRef,
}

/// How the file comes to the other rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Renamed,
    Moved,
}

const WAYS: [Way; 2] = [Way::Renamed, Way::Moved];

fn rename(from: NodeRef, to: NodeRef) -> Request {
    Request::Rename { parent: from, name: n("f"), new_parent: to, new_name: n("f"), flags: 0 }
}

impl Lost {
    fn new() -> Self {
        let mut c = Cluster::new();
        let (dir, other) = (c.mkdir(root(), "d"), c.mkdir(root(), "x"));
        assert_eq!(c.pin(other, 1), Ok(Reply::Ok), "{:?}", c.worlds[0].notes);
        let file = c.create(dir, "f");
        c.greet(0, Peer::Trusted, Bits::NONE);
        c.join(0, 1, Peer::Trusted);
        let session = c.worlds[0].sessions[&REMOTE];
        Self { c, session, dir, other, file }
    }

    /// With two opens that the client knows of.
    fn open_twice() -> Self {
        let mut s = Self::new();
        for _ in 0..2 {
            let open = s.open();
            s.c.asks_well(0, open);
        }
        s
    }

    fn open(&self) -> Request {
        Request::Open { node: self.file, flags: 2 }
    }

    fn close(&self) -> Request {
        Request::Release { node: self.file, count: 1 }
    }

    /// A rank carries it out, and its client never has the answer.
    fn lost_at(&mut self, at: usize, request: Request) -> Tid {
        let tid = self.c.start(at, REMOTE, request);
        let answer = self.c.take_answer(at, REMOTE, tid);
        assert!(matches!(answer, Some(Answered::Outcome(Ok(_)))), "{answer:?}");
        tid
    }

    fn lost(&mut self, request: Request) -> Tid {
        self.lost_at(0, request)
    }

    fn again_at(&mut self, at: usize, tid: Tid, request: Request) -> Answered {
        self.c.hold(at).retry(REMOTE, tid, Cred::ROOT, request);
        self.c.settle();
        self.c.wait(at, REMOTE, tid)
    }

    /// The client asks rank 0 for the same again, and that answers it.
    fn again(&mut self, tid: Tid, request: Request) {
        let answer = self.again_at(0, tid, request);
        assert!(matches!(answer, Answered::Outcome(Ok(_))), "{answer:?}");
    }

    fn leaves(&mut self, way: Way) {
        let outcome = match way {
            Way::Renamed => self.c.call(1, rename(self.dir, self.other)),
            Way::Moved => self.c.pin(self.dir, 1),
        };
        assert_eq!(outcome, Ok(Reply::Ok), "{:?}", self.c.worlds[0].notes);
    }

    fn comes_home(&mut self, way: Way) {
        let outcome = match way {
            Way::Renamed => self.c.call(0, rename(self.other, self.dir)),
            Way::Moved => self.c.pin(self.dir, 0),
        };
        assert_eq!(outcome, Ok(Reply::Ok), "{:?}", self.c.worlds[1].notes);
    }

    /// The client comes back to a rank that lives again, with so many opens in its books for it.
    fn returns(&mut self, at: usize, opens: u32) {
        let node = self.file;
        let claim = ClientMsg::Reclaim { node, count: opens, writes: true, locks: Vec::new() };
        self.c.returns_having(at, self.session, if opens > 0 { vec![claim] } else { Vec::new() });
    }

    fn dies(&mut self, at: usize, opens: u32) {
        self.c.crash(at);
        self.returns(at, opens);
    }

    /// The client has all answers of rank 0's below that one.
    fn shows(&mut self, floor: Tid) {
        let tid = self.c.hold(0).next_tid();
        let request = Request::GetAttr { node: root() };
        self.c.hold(0).say(REMOTE, ClientMsg::Request { tid, floor, cred: Cred::ROOT, request });
        self.c.settle();
    }

    /// How many opens of the client's a rank counts.
    fn counts(&self, at: usize) -> u32 {
        let file = self.c.worlds[at].rank.view.files.get(self.file.ino);
        let opens = file.into_iter().flat_map(|file| file.opens.iter());
        opens.filter(|open| open.session == self.session).map(|open| open.count).sum()
    }

    /// Rank 1 has the file, with one open, and its bytes outlive its name.
    fn check_open_once(&mut self, way: Way) {
        assert_eq!(self.counts(1), 1, "{way:?}");
        let parent = if way == Way::Moved { self.dir } else { self.other };
        assert_eq!(self.c.call(1, Request::Unlink { parent, name: n("f") }), Ok(Reply::Ok));
        self.c.pass(20);
        assert!(matches!(self.c.asks_well(1, read(self.file)), Reply::Data(_)), "{way:?}");
        let close = self.close();
        self.c.asks_well(1, close);
        assert_eq!(self.counts(1), 0);
    }
}

/// What broke: the rank died after it had closed one of two opens and the file had gone, and its next life sent the close on. The last
/// open ended, and with the last name its bytes went, while a process had it open.
fn closed_once(way: Way) {
    let mut s = Lost::open_twice();
    let close = s.close();
    let tid = s.lost(close.clone());
    s.leaves(way);
    s.dies(0, 2);
    for _ in 0..2 {
        s.again(tid, close.clone());
    }
    s.check_open_once(way);
}

#[test]
fn what_was_closed_before_it_left_is_closed_once() {
    WAYS.into_iter().for_each(closed_once);
}

/// What broke: nobody would ever have closed the second one.
fn opened_once(way: Way) {
    let mut s = Lost::new();
    let open = s.open();
    let tid = s.lost(open.clone());
    s.leaves(way);
    s.dies(0, 0);
    s.again(tid, open);
    assert_eq!(s.counts(0), 0, "it is not there");
    s.check_open_once(way);
}

#[test]
fn what_was_opened_before_it_left_is_open_once() {
    WAYS.into_iter().for_each(opened_once);
}

/// The same of one that was opened because its name was there already, or was not, or was emptied: the journal has the latter.
#[test]
fn what_was_made_before_it_left_is_open_once() {
    use proto::request::open_flags::{RDWR, TRUNC};
    for way in WAYS {
        let new = || mode(0o100_644);
        let create = |s: &Lost, name: &str, flags| {
            let (parent, name) = (s.dir, n(name));
            Request::Create { parent, name, new: new(), flags: RDWR | flags }
        };
        for flags in [0, TRUNC] {
            let mut s = Lost::new();
            let request = create(&s, "f", flags);
            let tid = s.lost(request.clone());
            s.leaves(way);
            s.dies(0, 0);
            s.again(tid, request);
            s.check_open_once(way);
        }
        let mut s = Lost::new();
        assert_eq!(s.c.call(0, Request::Unlink { parent: s.dir, name: n("f") }), Ok(Reply::Ok));
        let request = create(&s, "f", 0);
        let tid = s.lost(request.clone());
        s.file = node(&s.c.lookup(s.dir, "f").expect("it was made"));
        s.leaves(way);
        s.dies(0, 0);
        s.again(tid, request);
        s.check_open_once(way);
    }
}

/// What a rank takes away itself: a second name takes the file to rank 0.
fn closed_once_where_it_leads() {
    let mut s = Lost::new();
    s.leaves(Way::Renamed);
    let open = s.open();
    for _ in 0..2 {
        s.c.asks_well(1, open.clone());
    }
    let close = s.close();
    let tid = s.lost_at(1, close.clone());
    let file = NodeRef { parent: s.other.ino, ..s.file };
    let link = Request::Link { node: file, parent: s.other, name: n("l") };
    assert!(matches!(s.c.call(1, link), Ok(Reply::Attr(attr)) if attr.parent == Ino::LINKS));
    assert_eq!(s.counts(0), 1);
    s.dies(1, 2);
    assert_eq!(s.again_at(1, tid, close), Answered::Outcome(Ok(Reply::Ok)));
    assert_eq!(s.counts(0), 1);
}

#[test]
fn what_was_closed_where_the_transaction_is_led_is_closed_once() {
    closed_once_where_it_leads();
}

/// The client has nothing of the file any more, as far as its rank knows, and has opened it where it went.
fn closed_and_opened_elsewhere(way: Way) {
    let mut s = Lost::new();
    let (open, close) = (s.open(), s.close());
    s.c.asks_well(0, open.clone());
    let tid = s.lost(close.clone());
    s.leaves(way);
    s.c.asks_well(1, open);
    s.dies(0, 1);
    s.again(tid, close);
    s.check_open_once(way);
}

#[test]
fn what_was_closed_for_good_is_not_closed_where_it_is_open_again() {
    WAYS.into_iter().for_each(closed_and_opened_elsewhere);
}

/// One thing happens, or a millisecond passes; false: the file has left.
fn goes_on(s: &mut Lost, way: Way) -> bool {
    if s.c.one_thing() {
        return true;
    }
    (0..2).for_each(|at| s.c.hold(at).pass(1));
    let unit = Unit { dir: s.dir.ino, frag: Frag::WHOLE };
    way == Way::Moved && s.c.map.entries.get(&unit).is_none_or(|entry| entry.rank == RankId(0))
}

/// Each rank, and both, die after each thing that happens while the file leaves: whatever becomes of that, it is open once in the end.
fn once_whoever_dies(way: Way, closes: bool) {
    for who in [&[0][..], &[1], &[0, 1], &[1, 0]] {
        let mut things = 0;
        loop {
            let (mut s, claims) = if closes { (Lost::open_twice(), 2) } else { (Lost::new(), 0) };
            let request = if closes { s.close() } else { s.open() };
            let tid = s.lost(request.clone());
            s.c.worlds.iter_mut().for_each(|world| world.auto_durable = false);
            let (at, leaves) = match way {
                Way::Renamed => (1, rename(s.dir, s.other)),
                Way::Moved => (0, Cluster::pin_request(s.dir, 1)),
            };
            s.c.hold(at).start(EMBEDDED, Cred::ROOT, leaves);
            let more = (0..things).all(|_| goes_on(&mut s, way));
            who.iter().for_each(|rank| s.c.crash(*rank));
            s.c.worlds.iter_mut().for_each(|world| world.auto_durable = true);
            (0..2).for_each(|at| s.c.hold(at).sync());
            s.c.settle();
            who.iter().for_each(|rank| s.returns(*rank, if *rank == 0 { claims } else { 0 }));
            s.c.pass(50);
            let what = format!("{way:?}, {closes}: {who:?} after {things}");
            let answer = match s.again_at(0, tid, request.clone()) {
                Answered::NotMine(_) => s.c.asks(1, request),
                answer @ Answered::Outcome(_) => answer,
            };
            assert!(matches!(answer, Answered::Outcome(Ok(_))), "{what}: {answer:?}");
            s.c.pass(50);
            let is_in = |s: &mut Lost, dir| s.c.ask(1, Request::Lookup { parent: dir, name: n("f") });
            let there = [s.other, s.dir].map(|dir| matches!(is_in(&mut s, dir), Answered::Outcome(Ok(_))));
            let at = usize::from(there.contains(&true));
            assert_eq!(s.counts(at), 1, "{what}, at {at}");
            if !more {
                break;
            }
            things += 1;
        }
        assert!(things > 8, "{things} things happen");
    }
}

#[test]
fn what_was_closed_is_closed_once_whoever_dies_while_it_leaves() {
    WAYS.into_iter().for_each(|way| once_whoever_dies(way, true));
}

#[test]
fn what_was_opened_is_open_once_whoever_dies_while_it_leaves() {
    WAYS.into_iter().for_each(|way| once_whoever_dies(way, false));
}

/// What its client claims of the rank's next life is what there is: the close is carried out, and by nobody else, should it leave before.
fn back_and_claimed(way: Way) {
    let mut s = Lost::open_twice();
    let close = s.close();
    let tid = s.lost(close.clone());
    s.leaves(way);
    s.comes_home(way);
    assert_eq!(s.counts(0), 1);
    s.dies(0, 2);
    assert_eq!(s.counts(0), 2);
    s.c.checkpoint(0);
    s.again(tid, close);
    assert_eq!(s.counts(0), 1, "{way:?}");
}

fn back_claimed_and_gone(way: Way) {
    let mut s = Lost::open_twice();
    let close = s.close();
    let tid = s.lost(close.clone());
    s.leaves(way);
    s.comes_home(way);
    s.dies(0, 2);
    s.shows(tid);
    s.leaves(way);
    assert_eq!(s.counts(1), 2);
    assert_eq!(s.again_at(0, tid, close.clone()), NOT_MINE(1));
    s.c.asks_well(1, close);
    s.check_open_once(way);
}

/// It comes back with what sessions have, and counts the close.
fn claimed_and_back(way: Way) {
    let mut s = Lost::open_twice();
    let close = s.close();
    let tid = s.lost(close.clone());
    s.leaves(way);
    s.dies(0, 2);
    s.comes_home(way);
    assert_eq!(s.counts(0), 1);
    s.again(tid, close);
    assert_eq!(s.counts(0), 1, "{way:?}");
}

/// The journal has it open by what came, and the client claims nothing: it does not know that it has it.
fn opened_back_and_gone(way: Way) {
    let mut s = Lost::new();
    let open = s.open();
    let tid = s.lost(open.clone());
    s.leaves(way);
    s.comes_home(way);
    s.dies(0, 0);
    assert_eq!(s.counts(0), 1);
    s.again(tid, open.clone());
    assert_eq!(s.counts(0), 1, "{way:?}");
    s.leaves(way);
    assert_eq!(s.counts(1), 1);
    s.dies(0, 0);
    s.again(tid, open);
    s.check_open_once(way);
}

#[test]
fn what_comes_back_counts_as_it_was_said_last() {
    for way in WAYS {
        back_and_claimed(way);
        back_claimed_and_gone(way);
        claimed_and_back(way);
        opened_back_and_gone(way);
    }
}

/// A move that the journal says is sealed, and that is not made.
fn sealed_and_given_up(heard: bool, closes: bool) {
    let (mut s, claims) = if closes { (Lost::open_twice(), 2) } else { (Lost::new(), 0) };
    let request = if closes { s.close() } else { s.open() };
    let tid = s.lost(request.clone());
    let pin = s.c.start(0, EMBEDDED, Cluster::pin_request(s.dir, 1));
    s.c.until_switch();
    let Some(MapWish::Switch { unit, id }) = s.c.worlds[0].wishes.pop_front() else { panic!() };
    s.c.deaf = false;
    if heard {
        s.c.grant(0, MapWish::Abort { unit, id });
        assert_eq!(s.c.wait(0, EMBEDDED, pin), Answered::Outcome(Err(Errno::EBUSY)));
        assert!(s.c.worlds[0].rank.view.unheard.is_empty());
    }
    s.dies(0, claims);
    assert_eq!(s.c.owner(s.dir), Some(0));
    s.again(tid, request);
    assert_eq!(s.counts(0), 1);
}

#[test]
fn what_was_asked_before_a_move_that_is_given_up_is_done_once() {
    for heard in [true, false] {
        sealed_and_given_up(heard, true);
        sealed_and_given_up(heard, false);
    }
}

/// The rank dies before it has heard that it was made.
#[test]
fn what_was_closed_before_a_move_that_was_not_heard_of_is_closed_once() {
    let mut s = Lost::open_twice();
    let close = s.close();
    let tid = s.lost(close.clone());
    s.c.start(0, EMBEDDED, Cluster::pin_request(s.dir, 1));
    s.c.until_switch();
    s.c.behind.insert(0);
    s.c.deaf = false;
    s.c.settle();
    s.c.behind.clear();
    s.dies(0, 2);
    assert_eq!(s.c.owner(s.dir), Some(1));
    s.again(tid, close);
    s.check_open_once(Way::Moved);
}

/// The journal's beginning goes, and its end lives through another death.
fn kept_by_checkpoints(way: Way) {
    let mut s = Lost::open_twice();
    let close = s.close();
    let tid = s.lost(close.clone());
    s.leaves(way);
    for _ in 0..2 {
        s.c.checkpoint(0);
        s.c.checkpoint(0);
        s.dies(0, 2);
    }
    s.again(tid, close);
    s.check_open_once(way);
}

#[test]
fn what_was_closed_stays_so_in_a_journal_whose_beginning_goes() {
    WAYS.into_iter().for_each(kept_by_checkpoints);
}

/// Who waited for a lock, had it, and was killed before it heard of that: it hears of it, and gives it back.
fn locked_and_killed() {
    let mut s = Lost::new();
    let lock = Request::SetLock { node: s.file, lock: LOCK, wait: true };
    let tid = s.lost(lock.clone());
    s.leaves(Way::Renamed);
    s.dies(0, 0);
    s.c.drop_cache(0);
    s.c.hold(0).hold_loads = true;
    s.c.hold(0).retry(REMOTE, tid, Cred::ROOT, lock);
    assert_eq!(s.c.take_answer(0, REMOTE, tid), None, "it is looked for");
    s.c.hold(0).say(REMOTE, ClientMsg::Cancel { tid });
    s.c.hold(0).let_go();
    assert_eq!(s.c.wait(0, REMOTE, tid), Answered::Outcome(Ok(Reply::Ok)));
    assert!(s.c.is_locked(s.file));
    let unlock = LockSpec { kind: LockKind::Unlock, ..LOCK };
    s.c.asks_well(1, Request::SetLock { node: s.file, lock: unlock, wait: false });
    assert!(!s.c.is_locked(s.file));
}

/// The same where the inode stayed: nothing is granted to who gave up.
fn killed_and_not_locked() {
    let mut s = Lost::new();
    let lock = Request::SetLock { node: s.file, lock: LOCK, wait: true };
    let other = LockSpec { flock: false, owner: 7, ..LOCK };
    s.c.asks_well(0, Request::SetLock { node: s.file, lock: other, wait: false });
    let tid = s.lost(lock.clone());
    s.leaves(Way::Renamed);
    s.comes_home(Way::Renamed);
    s.c.crash(0);
    let claim = ClientMsg::Reclaim { node: s.file, count: 0, writes: false, locks: vec![other] };
    s.c.returns_having(0, s.session, vec![claim]);
    s.c.drop_cache(0);
    s.c.hold(0).hold_loads = true;
    s.c.hold(0).retry(REMOTE, tid, Cred::ROOT, lock);
    assert_eq!(s.c.take_answer(0, REMOTE, tid), None, "it is looked for");
    s.c.hold(0).say(REMOTE, ClientMsg::Cancel { tid });
    s.c.hold(0).let_go();
    assert_eq!(s.c.wait(0, REMOTE, tid), Answered::Outcome(Err(Errno::EINTR)));
    let lock = LockSpec { owner: 9, ..LOCK };
    let other = Request::SetLock { node: s.file, lock, wait: false };
    assert_eq!(s.c.ask(0, other), Answered::Outcome(Ok(Reply::Ok)));
}

#[test]
fn who_gave_up_waiting_for_a_lock_hears_whether_it_was_granted() {
    locked_and_killed();
    killed_and_not_locked();
}

fn forgotten(ends: bool) {
    for way in WAYS {
        let mut s = Lost::open_twice();
        let close = s.close();
        let tid = s.lost(close);
        s.leaves(way);
        assert!(!s.c.worlds[0].rank.view.unheard.is_empty());
        if ends {
            s.c.hold(0).say(REMOTE, ClientMsg::Goodbye);
            s.c.settle();
        } else {
            s.shows(Tid(tid.0 + 1));
        }
        assert!(s.c.worlds[0].rank.view.unheard.is_empty());
    }
}

#[test]
fn what_was_heard_and_what_nobody_will_hear_is_forgotten() {
    forgotten(false);
    forgotten(true);
}

/// What broke: the session ended when the move had found what it may not have heard, and was not sealed yet. It was noted all the same, for
/// ever: every checkpoint wrote it anew, and the rank, which was to go, never had an empty journal.
fn ended_before_the_seal() {
    let mut s = Lost::open_twice();
    let close = s.close();
    s.lost(close);
    let pin = s.c.hold(0).start(EMBEDDED, Cred::ROOT, Cluster::pin_request(s.dir, 1));
    // The new owner is about to be told who has what.
    let is_told = |(_, message): &(RankId, ClientMsg)| {
        matches!(message, ClientMsg::Request { request: Request::Holders { .. }, .. })
    };
    for _ in 0..100 {
        if s.c.worlds[0].to_ranks.iter().any(is_told) {
            break;
        }
        s.c.go_on();
    }
    assert!(s.c.worlds[0].to_ranks.iter().any(is_told), "{:?}", s.c.worlds[0].notes);
    s.c.hold(0).say(REMOTE, ClientMsg::Goodbye);
    assert_eq!(s.c.wait(0, EMBEDDED, pin), Answered::Outcome(Ok(Reply::Ok)), "{:?}", s.c.worlds[0].notes);
    assert!(s.c.worlds[0].rank.view.unheard.is_empty());
}

#[test]
fn what_nobody_will_hear_is_not_noted() {
    ended_before_the_seal();
}

/// One answer to an open has some hundred bytes.
#[test]
fn more_than_a_transaction_keeps_stays() {
    let mut s = Lost::new();
    let open = s.open();
    for _ in 0..3_000 {
        s.lost(open.clone());
    }
    assert_eq!(s.c.call(1, rename(s.dir, s.other)), Err(Errno::EXDEV));
    s.leaves(Way::Moved);
    assert_eq!(s.counts(1), 3_000);
}

#[cfg(feature = "mutants")]
#[test]
fn defects_of_unheard_answers_are_caught() {
    let defects: [(&str, fn()); 15] = [
        ("mds_unheard_not_journaled", || closed_once(Way::Renamed)),
        ("mds_unheard_not_journaled", closed_once_where_it_leads),
        ("mds_unheard_stays", || closed_once(Way::Moved)),
        ("mds_unheard_runs_again", || opened_once(Way::Renamed)),
        ("mds_unheard_runs_again", || opened_once(Way::Moved)),
        ("mds_unheard_outlives_abort", || once_whoever_dies(Way::Renamed, false)),
        ("mds_unheard_of_no_move", || sealed_and_given_up(false, false)),
        ("mds_unheard_trimmed", || kept_by_checkpoints(Way::Renamed)),
        ("mds_unheard_trimmed", || kept_by_checkpoints(Way::Moved)),
        ("mds_unheard_despite_claim", || back_and_claimed(Way::Renamed)),
        ("mds_unheard_claimed_for_ever", || claimed_and_back(Way::Renamed)),
        ("mds_unheard_cancelled", locked_and_killed),
        ("mds_unheard_goes_along", || back_claimed_and_gone(Way::Renamed)),
        ("mds_unheard_for_ever", || forgotten(false)),
        ("mds_unheard_of_ended_session", ended_before_the_seal),
    ];
    for (defect, test) in defects {
        stdx::mutant::activate(Some(defect));
        let verdict = std::panic::catch_unwind(test);
        stdx::mutant::activate(None);
        assert!(verdict.is_err(), "{defect}");
    }
}
