//! A rank that stops: it gives away what it has, ends what is left, and leaves; and it may come again.
//!
//! Absent: its daemon.

use super::*;
use proto::request::open_flags;

/// As the coordinator does: the rank stops, and what it has goes to rank 0.
pub(super) fn stop(c: &mut Cluster) {
    c.map.ranks.get_mut(&RankId(1)).expect("a rank").state = RankState::Stopping;
    c.map.max_mds = 1;
    c.publish();
    give_away(c);
}

fn give_away(c: &mut Cluster) {
    for _ in 0..20 {
        let is_still = |(unit, entry): (&Unit, &Entry)| {
            (entry.rank == RankId(1) && entry.moving.is_none()).then_some(*unit)
        };
        let Some(unit) = c.map.entries.iter().find_map(is_still) else { return };
        c.map.last_move = MoveId(c.map.last_move.0 + 1);
        let moving = Some(Moving { id: c.map.last_move, to: RankId(0) });
        Arc::make_mut(&mut c.map.entries).get_mut(&unit).expect("an entry").moving = moving;
        c.publish();
        c.settle();
        c.pass(100);
    }
}

/// Its client renews at rank 1, as often, each second.
fn renew(c: &mut Cluster, times: u32) {
    for number in 0..times {
        c.pass(1_000);
        c.inject(1, Input::Message { conn: REMOTE, message: ClientMsg::Renew { number } });
        c.settle();
    }
}

pub(super) fn is_gone(c: &Cluster) -> bool {
    !c.map.ranks.contains_key(&RankId(1))
}

/// It is given a life again.
pub(super) fn come_again(c: &mut Cluster) {
    c.map.max_mds = 2;
    let life = Incarnation(c.last_life);
    let info = RankInfo { state: RankState::Active, incarnation: life, daemon: DaemonId(2) };
    c.map.ranks.insert(RankId(1), info);
    c.crash(1);
}

/// What broke: the rank died before it heard that a move from it had been made. Its next life had open and locked what had gone with it,
/// whose clients had nothing to give back there, and never left.
#[test]
pub(crate) fn who_has_what_went_before_its_life_leaves() {
    let (mut c, dir, file) = Cluster::with_held();
    let pin = c.start(0, EMBEDDED, Cluster::pin_request(dir, 0));
    c.until_switch_of(1);
    c.behind.insert(1);
    c.deaf = false;
    c.settle();
    assert_eq!(c.owner(dir), Some(0), "{:?}", c.worlds[1].notes);
    c.behind.clear();
    c.crash(1);
    c.comes_back(1);
    assert!(c.worlds[1].rank.view.files.get(file.ino).is_some_and(|file| file.is_open()));
    assert!(c.is_locked(file), "it is where the file is");
    stop(&mut c);
    renew(&mut c, 13);
    c.pass(2_000);
    assert!(is_gone(&c), "{:?}", c.worlds[1].notes);
    let _pinned = c.take_answer(0, EMBEDDED, pin);
}

#[test]
pub(crate) fn who_has_nothing_left_leaves() {
    let (mut c, dir) = Cluster::with_moved();
    let other = c.mkdir(root(), "other");
    assert_eq!(c.pin(other, 1), Ok(Reply::Ok));
    c.create(other, "x");
    c.greet(0, Peer::Trusted, Bits::ATTRS);
    c.join(0, 1, Peer::Trusted);
    let tid = c.start(1, REMOTE, Request::MkNod { parent: dir, name: n("g"), new: mode(0o100_644) });
    assert!(matches!(c.wait(1, REMOTE, tid), Answered::Outcome(Ok(_))));
    c.map.ranks.get_mut(&RankId(1)).expect("a rank").state = RankState::Stopping;
    c.publish();
    let told = c.worlds[1].rank.stays_for();
    assert_eq!(told.as_deref(), Some("2 entries of the cluster map, 0 slots"));
    stop(&mut c);
    assert_eq!((c.owner(dir), c.owner(other)), (Some(0), Some(0)), "{:?}", c.worlds[1].notes);
    c.pass(1_000);
    assert!(!is_gone(&c), "its client may not have all answers yet");
    assert_eq!(c.worlds[1].rank.stays_for().as_deref(), Some("sessions of clients"));
    // Whoever comes now is sent away for a while; who is known is not.
    let world = c.hold(1);
    let late = ConnId(60);
    let refused = world.hello(late, Peer::Trusted, SessionId(0));
    let Some(ServerMsg::Refused { errno, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(errno, Errno::ENOTCONN.0 as u32, "it has no next life that would know more");
    for number in 0..12 {
        c.pass(1_000);
        if let Some(conn) = c.worlds[1].sessions.get(&REMOTE).map(|_| REMOTE) {
            c.inject(1, Input::Message { conn, message: ClientMsg::Renew { number } });
            c.settle();
        }
    }
    // Its client hears it at once, and need not greet once more to hear it.
    let refused = c.heard(1, |message| matches!(message, ServerMsg::Refused { .. }));
    let Some(ServerMsg::Refused { errno, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(errno, Errno::ENOTCONN.0 as u32);
    c.pass(2_000);
    assert!(is_gone(&c), "{:?}", c.worlds[1].notes);
    assert!(c.worlds[1].notes.iter().any(|note| note.contains("ended: the rank leaves")));
    assert_eq!((c.names(dir).len(), c.names(other)), (3, vec!["x".to_owned()]));
    // It comes again, as one that was made before, and knows nothing of what it had.
    come_again(&mut c);
    let now = Mono(c.worlds[1].now);
    assert_eq!(
        c.worlds[1].rank.sessions(now).iter().filter(|session| session.client.contains("/m")).count(),
        1
    );
    assert!(c.worlds[1].notes.iter().any(|note| note.starts_with("replayed 0 transactions, 0 sessions")));
    // Pins that were remembered are carried out.
    c.pass(20_000);
    assert_eq!((c.owner(dir), c.owner(other)), (Some(1), Some(1)), "{:?}", c.worlds[0].notes);
    assert_eq!((c.names(dir).len(), c.names(other)), (3, vec!["x".to_owned()]));
}

#[test]
pub(crate) fn what_is_open_without_a_name_keeps_it() {
    let (mut c, dir) = Cluster::with_moved();
    let file = node(&c.lookup(dir, "f").expect("there"));
    c.greet(0, Peer::Trusted, Bits::NONE);
    c.join(0, 1, Peer::Trusted);
    let tid = c.start(1, REMOTE, Request::Open { node: file, flags: open_flags::RDWR });
    assert!(matches!(c.wait(1, REMOTE, tid), Answered::Outcome(Ok(_))));
    assert!(c.call(1, Request::Unlink { parent: dir, name: n("f") }).is_ok());
    // It stays: its directory goes, and the rank does not.
    stop(&mut c);
    assert_eq!(c.owner(dir), Some(0), "{:?}", c.worlds[1].notes);
    c.pass(2_000);
    assert!(!is_gone(&c));
    let told = c.worlds[1].rank.stays_for();
    assert_eq!(told.as_deref(), Some("unlinked files that are open or being removed"));
    assert_eq!(c.worlds[0].rank.stays_for(), None, "it is not to go");
    let tid = c.start(1, REMOTE, Request::Release { node: file, count: 1 });
    c.wait(1, REMOTE, tid);
    give_away(&mut c);
    assert_eq!(c.owner(dir), Some(0), "{:?}", c.worlds[1].notes);
    renew(&mut c, 13);
    c.pass(2_000);
    assert!(is_gone(&c), "{:?}", c.worlds[1].notes);
    let orphans = key_bytes(StoreKey::Header { dir: Ino::orphans(RankId(1)), frag: Frag::WHOLE });
    let header = FragHeader::decode(&c.hold(1).store[&orphans]).expect("a header");
    assert_eq!(header.entries, 0, "all of it is in the store");
}

/// What broke: by the map that says that it has left it stops no more, and took in who came then.
#[test]
pub(crate) fn who_has_left_takes_nobody_in() {
    let (mut c, dir) = Cluster::with_moved();
    stop(&mut c);
    assert_eq!(c.owner(dir), Some(0));
    c.pass(1_000);
    assert!(is_gone(&c), "{:?}", c.worlds[1].notes);
    let refused = c.hold(1).hello(ConnId(60), Peer::Trusted, SessionId(0));
    assert!(matches!(refused, Some(ServerMsg::Refused { .. })), "{refused:?}");
}

/// Whoever is sent away before its answer cannot tell what came of what it asked for.
#[test]
pub(crate) fn who_waits_for_an_answer_hears_it_before_the_rank_leaves() {
    let (mut c, dir) = Cluster::with_moved();
    let file = node(&c.lookup(dir, "f").expect("there"));
    c.greet(0, Peer::Trusted, Bits::NONE);
    c.join(0, 1, Peer::Trusted);
    let tid = c.start(1, REMOTE, Request::Open { node: file, flags: open_flags::RDWR });
    assert!(matches!(c.wait(1, REMOTE, tid), Answered::Outcome(Ok(_))));
    assert!(c.call(1, Request::Unlink { parent: dir, name: n("f") }).is_ok());
    stop(&mut c);
    renew(&mut c, 13);
    c.hold(1).auto_durable = false;
    let set = proto::SetAttr { mode: Some(0o600), ..Default::default() };
    let tid = c.start(1, REMOTE, Request::SetAttr { node: file, set });
    c.start(1, REMOTE, Request::Release { node: file, count: 1 });
    c.pass(500);
    let refused = |m: &ServerMsg| matches!(m, ServerMsg::Refused { .. });
    assert_eq!((c.take_answer(1, REMOTE, tid), c.heard(1, refused)), (None, None), "nothing is durable");
    c.hold(1).auto_durable = true;
    c.hold(1).sync();
    assert!(matches!(c.wait(1, REMOTE, tid), Answered::Outcome(Ok(_))));
    c.pass(500);
    assert!(c.heard(1, refused).is_some(), "it has nothing more");
}

/// A client that is told so parts with the rank, and what it has open there would be gone.
#[test]
pub(crate) fn who_has_not_read_its_journal_yet_dismisses_nobody() {
    let (mut c, dir) = Cluster::with_moved();
    let file = node(&c.lookup(dir, "f").expect("there"));
    c.greet(0, Peer::Trusted, Bits::NONE);
    c.join(0, 1, Peer::Trusted);
    let tid = c.start(1, REMOTE, Request::Open { node: file, flags: open_flags::RDWR });
    assert!(matches!(c.wait(1, REMOTE, tid), Answered::Outcome(Ok(_))));
    assert!(c.call(1, Request::Unlink { parent: dir, name: n("f") }).is_ok());
    stop(&mut c);
    assert_eq!(c.owner(dir), Some(0), "{:?}", c.worlds[1].notes);
    let session = c.worlds[1].sessions[&REMOTE];
    c.last_life += 1;
    (c.map.last_incarnation, c.map.version) = (Incarnation(c.last_life), c.map.version + 1);
    c.map.ranks.get_mut(&RankId(1)).expect("a rank").incarnation = Incarnation(c.last_life);
    let (map, life) = (Arc::new(c.map.clone()), c.last_life);
    let world = c.hold(1);
    world.dies(life);
    world.map = Some(map.clone());
    world.inject(Input::Map(map));
    assert_eq!(world.hello(REMOTE, Peer::Trusted, session), None, "it does not know yet");
    world.boot();
    let welcome = world.welcomed(REMOTE);
    assert!(matches!(welcome, Some(ServerMsg::Welcome { resumed: true, .. })), "{welcome:?}");
}

/// Nobody answers Leave: it is asked again.
#[test]
fn a_wish_to_leave_that_is_lost_is_repeated() {
    let (mut c, dir) = Cluster::with_moved();
    stop(&mut c);
    assert_eq!(c.owner(dir), Some(0));
    c.refuses = true;
    c.pass(3_000);
    assert!(!is_gone(&c));
    c.refuses = false;
    c.pass(11_000);
    assert!(is_gone(&c), "{:?}", c.worlds[1].notes);
}

/// While a backup is copied, no rank goes.
#[test]
pub(crate) fn a_rank_that_is_frozen_stays() {
    let (mut c, dir) = Cluster::with_moved();
    stop(&mut c);
    assert_eq!(c.owner(dir), Some(0));
    c.inject(1, Input::Frozen(true));
    c.pass(30_000);
    assert!(!is_gone(&c));
    c.inject(1, Input::Frozen(false));
    c.pass(30_000);
    assert!(is_gone(&c), "{:?}", c.worlds[1].notes);
}

/// What an absent rank kept it keeps no more.
#[test]
fn who_left_is_not_waited_for() {
    let (mut c, dir) = Cluster::with_moved();
    c.create(dir, "made");
    c.stat(dir);
    // Failed, it may still go by its replica.
    c.cut.insert((1, 0));
    c.map.ranks.get_mut(&RankId(1)).expect("a rank").state = RankState::Failed;
    c.publish();
    let set = proto::SetAttr { mode: Some(0o700), ..Default::default() };
    let tid = c.start(0, EMBEDDED, Request::SetAttr { node: dir, set });
    c.pass(100);
    assert_eq!(c.take_answer(0, EMBEDDED, tid), None);
    c.map.ranks.remove(&RankId(1));
    c.publish();
    assert!(matches!(c.wait(0, EMBEDDED, tid), Answered::Outcome(Ok(_))));
}

/// The same by a home that lives again.
#[test]
fn who_failed_is_waited_for_and_who_is_damaged_is_not() {
    let (mut c, dir) = Cluster::with_moved();
    c.create(dir, "made");
    c.stat(dir);
    c.cut.insert((1, 0));
    c.map.ranks.get_mut(&RankId(1)).expect("a rank").state = RankState::Failed;
    c.crash(0);
    let set = proto::SetAttr { mode: Some(0o700), ..Default::default() };
    let tid = c.start(0, EMBEDDED, Request::SetAttr { node: dir, set });
    c.pass(100);
    assert_eq!(c.take_answer(0, EMBEDDED, tid), None);
    c.map.ranks.get_mut(&RankId(1)).expect("a rank").state = RankState::Damaged;
    c.publish();
    assert!(matches!(c.wait(0, EMBEDDED, tid), Answered::Outcome(Ok(_))));
}

/// What broke: an operation asked one rank after the other where a file is, the last of them just failed, and then went for good: it was
/// asked, and greeted, without end, and nobody else.
#[test]
pub(crate) fn what_is_asked_of_who_is_gone_is_asked_of_others() {
    let mut c = Cluster::of(3);
    let dir = c.mkdir(root(), "d");
    assert_eq!(c.pin(dir, 1), Ok(Reply::Ok), "{:?}", c.worlds[0].notes);
    c.cut.insert((0, 2));
    c.map.ranks.get_mut(&RankId(2)).expect("a rank").state = RankState::Failed;
    c.publish();
    let ghost = NodeRef { ino: Ino(9_999_999), parent: dir.ino, hash: NameHash(77) };
    let tid = c.start(0, EMBEDDED, Request::Link { node: ghost, parent: root(), name: n("l") });
    c.pass(200);
    assert_eq!(c.take_answer(0, EMBEDDED, tid), None, "rank 2 may have it");
    c.map.ranks.remove(&RankId(2));
    c.publish();
    assert_eq!(c.wait(0, EMBEDDED, tid), Answered::Outcome(Err(Errno::ESTALE)));
}
