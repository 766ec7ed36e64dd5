//! Moves of directories, there and back, refused and given up, with crashes in between.
//!
//! Absent: the coordinator's own crashes.

use super::*;
use crate::{MoveGoal, MoveStatus};

fn write(c: &mut Cluster, file: NodeRef, data: &[u8]) {
    let data = Payload::Owned(data.to_vec());
    let request = Request::Write { node: file, offset: 0, append: false, kill_suidgid: false, data };
    assert!(c.call(0, request).is_ok());
}

fn read(c: &mut Cluster, file: NodeRef) -> Vec<u8> {
    match c.call(0, Request::Read { node: file, offset: 0, len: 100, into: None }) {
        Ok(Reply::Data(Payload::Owned(bytes))) => bytes,
        other => panic!("read: {other:?}"),
    }
}

#[test]
fn what_moves_is_as_it_was() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    let sub = c.mkdir(dir, "sub");
    let file = c.create(sub, "f");
    write(&mut c, file, b"content");
    let shown = |attr: Attr| (attr.size, attr.nlink, attr.mtime);
    let before = (c.stat(file), c.stat(sub), shown(c.stat(dir)));
    assert_eq!(c.pin(dir, 1), Ok(Reply::Ok), "{:?}", c.worlds[0].notes);
    let moved = format!("directory {:#x} has moved to rank 1: sealed for ", dir.ino.0);
    assert!(c.worlds[0].notes.iter().any(|note| note.starts_with(&moved)), "{:?}", c.worlds[0].notes);
    assert_eq!((c.stat(file), c.stat(sub), shown(c.stat(dir))), before);
    assert_eq!(c.ask(0, Request::GetAttr { node: file }), NOT_MINE(1));
    assert_eq!(read(&mut c, file), b"content");
    write(&mut c, file, b"CONTENT");
    let after = c.stat(file);
    assert!(after.change > before.0.change, "no counter names two states");
    // And back.
    assert_eq!(c.pin(dir, 0), Ok(Reply::Ok), "{:?}", c.worlds[1].notes);
    assert_eq!(c.stat(file), after);
    assert_eq!(read(&mut c, file), b"CONTENT");
    assert_eq!(c.ask(1, Request::GetAttr { node: file }), NOT_MINE(0));
    assert_eq!(
        c.call(0, Request::GetXattr { node: dir, name: n("ceph.dir.pin") }),
        Ok(Reply::Xattr(b"0"[..].into()))
    );
}

#[test]
fn an_old_journal_takes_nothing_back() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    let file = c.create(dir, "f");
    c.create(dir, "gone");
    assert_eq!(c.pin(dir, 1), Ok(Reply::Ok));
    assert!(c.call(0, Request::Unlink { parent: dir, name: n("gone") }).is_ok());
    assert_eq!(c.rename((dir, "f"), (dir, "g")), Ok(Reply::Ok));
    c.checkpoint(1);
    c.crash(0);
    c.checkpoint(0);
    c.crash(1);
    assert_eq!(c.names(dir), ["g"]);
    assert_eq!(c.stat(file).parent, dir.ino);
    // There and back, and both journals have something of it.
    assert_eq!(c.pin(dir, 0), Ok(Reply::Ok), "{:?}", c.worlds[1].notes);
    c.create(dir, "h");
    c.crash(1);
    c.checkpoint(1);
    c.crash(0);
    assert_eq!(c.names(dir), ["g", "h"]);
}

/// The journal says it where the checkpoint that came before is not the last word.
#[test]
fn replay_drops_what_was_sealed_away() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    c.create(dir, "f");
    let old = c.worlds[0].journal.clone();
    assert_eq!(c.pin(dir, 1), Ok(Reply::Ok));
    assert_eq!(c.rename((dir, "f"), (dir, "g")), Ok(Reply::Ok));
    c.checkpoint(1);
    // As if the checkpoint record of before the move were the last: the whole journal is replayed.
    assert!(c.worlds[0].journal.starts_with(&old));
    let key = key_bytes(StoreKey::Checkpoint { rank: RankId(0) });
    c.hold(0).store.remove(&key);
    c.crash(0);
    c.checkpoint(0);
    assert_eq!(c.names(dir), ["g"]);
    c.drop_cache(1);
    assert_eq!(c.names(dir), ["g"]);
}

/// Whether a move was refused because of that file, and for nothing else that may be wrong with what is open.
fn is_held_by_its_process(c: &Cluster, file: NodeRef) -> bool {
    let why = format!("inode {:#x}, which is below, is open or locked in the rank's process", file.ino.0);
    c.worlds[0].notes.iter().any(|note| note.contains(&why))
}

#[test]
fn what_a_mount_in_the_ranks_process_has_open_stays() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    let sub = c.mkdir(dir, "sub");
    let file = c.create(sub, "f");
    assert!(c.call(0, Request::Open { node: file, flags: 0 }).is_ok());
    assert_eq!(c.pin(dir, 1), Err(Errno::EBUSY));
    assert!(is_held_by_its_process(&c, file), "{:?}", c.worlds[0].notes);
    assert!(c.call(0, Request::Release { node: file, count: 1 }).is_ok());
    let file = c.create(sub, "g");
    let lock = proto::request::LockSpec {
        flock: true,
        owner: 1,
        kind: proto::request::LockKind::Write,
        start: 0,
        end: u64::MAX,
        pid: 1,
    };
    assert!(c.call(0, Request::SetLock { node: file, lock, wait: false }).is_ok());
    assert_eq!(c.pin(dir, 1), Err(Errno::EBUSY));
    assert!(is_held_by_its_process(&c, file), "{:?}", c.worlds[0].notes);
    assert!(c.call(0, Request::ReleaseLocks { node: file, flock: true, owner: 1 }).is_ok());
    // Elsewhere it may be open.
    let other = c.create(root(), "other");
    assert!(c.call(0, Request::Open { node: other, flags: 0 }).is_ok());
    assert_eq!(c.pin(dir, 1), Ok(Reply::Ok), "{:?}", c.worlds[0].notes);
}

#[test]
fn what_the_ranks_process_opens_meanwhile_ends_the_move() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    let file = c.create(dir, "f");
    let tid = c.start(0, EMBEDDED, Cluster::pin_request(dir, 1));
    c.deaf = true;
    c.pass(20);
    assert!(matches!(c.worlds[0].wishes.front(), Some(MapWish::Begin { .. })), "it is announced");
    assert!(c.call(0, Request::Open { node: file, flags: 0 }).is_ok());
    c.deaf = false;
    assert_eq!(c.wait(0, EMBEDDED, tid), Answered::Outcome(Err(Errno::EBUSY)));
    assert!(is_held_by_its_process(&c, file), "{:?}", c.worlds[0].notes);
    c.pass(5);
    assert_eq!(c.owner(dir), Some(0), "no trace of it is left but an entry");
    assert!(c.call(0, Request::Release { node: file, count: 1 }).is_ok());
    assert_eq!(c.pin(dir, 1), Ok(Reply::Ok));
}

#[test]
fn who_asks_during_the_switch_waits_and_is_sent_on() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    c.create(dir, "f");
    let tid = c.start(0, EMBEDDED, Cluster::pin_request(dir, 1));
    // The coordinator answers the announcement, and not the request to switch.
    while !matches!(c.worlds[0].wishes.front(), Some(MapWish::Switch { .. })) {
        c.deaf = !matches!(c.worlds[0].wishes.front(), Some(MapWish::Begin { .. }));
        c.pass(1);
    }
    c.deaf = true;
    let lookup = c.start(0, EMBEDDED, Request::Lookup { parent: dir, name: n("f") });
    let elsewhere = c.ask(0, Request::MkDir { parent: root(), name: n("e"), new: mode(0o755) });
    assert!(matches!(elsewhere, Answered::Outcome(Ok(_))), "only what moves waits");
    c.pass(100);
    assert_eq!(c.take_answer(0, EMBEDDED, lookup), None);
    assert_eq!(c.ask(1, Request::Lookup { parent: dir, name: n("f") }), NOT_MINE(0));
    c.deaf = false;
    assert_eq!(c.wait(0, EMBEDDED, lookup), NOT_MINE(1));
    assert_eq!(c.wait(0, EMBEDDED, tid), Answered::Outcome(Ok(Reply::Ok)));
}

#[test]
fn a_rank_that_dies_in_a_move_still_has_it_or_not_as_the_map_says() {
    for switched in [false, true] {
        let mut c = Cluster::new();
        let dir = c.mkdir(root(), "d");
        c.create(dir, "f");
        c.start(0, EMBEDDED, Cluster::pin_request(dir, 1));
        while !matches!(c.worlds[0].wishes.front(), Some(MapWish::Switch { .. })) {
            c.deaf = !matches!(c.worlds[0].wishes.front(), Some(MapWish::Begin { .. }));
            c.pass(1);
        }
        c.deaf = false;
        if switched {
            let wish = c.worlds[0].wishes.pop_front().expect("a wish");
            let map = match wish {
                MapWish::Switch { unit, .. } => {
                    let entry = Arc::make_mut(&mut c.map.entries).get_mut(&unit).expect("an entry");
                    (entry.rank, entry.moving) = (RankId(1), None);
                    c.map.version += 1;
                    entry.version = c.map.version;
                    Arc::new(c.map.clone())
                }
                other => panic!("{other:?}"),
            };
            // It dies before it hears of it.
            c.worlds[1].map = Some(map.clone());
            c.inject(1, Input::Map(map));
            assert!(c.call(1, Request::MkNod { parent: dir, name: n("g"), new: mode(0o100_644) }).is_ok());
        }
        c.crash(0);
        let owner = if switched { 1 } else { 0 };
        assert_eq!(c.owner(dir), Some(owner));
        let names = if switched { vec!["f", "g"] } else { vec!["f"] };
        assert_eq!(c.names(dir), names);
        c.create(dir, "h");
        c.crash(usize::from(owner));
        assert_eq!(c.names(dir).len(), names.len() + 1);
    }
}

#[test]
fn a_coordinator_that_refuses_changes_nothing() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    c.refuses = true;
    assert_eq!(c.pin(dir, 1), Err(Errno::EBUSY));
    assert_eq!(c.owner(dir), None);
    c.create(dir, "f");
    c.refuses = false;
    assert_eq!(c.pin(dir, 1), Ok(Reply::Ok));
}

#[test]
fn what_is_granted_below_comes_back_first() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    let file = c.create(dir, "f");
    c.greet(0, Peer::Trusted, Bits::ATTRS);
    for request in [Request::Lookup { parent: dir, name: n("f") }, Request::GetAttr { node: dir }] {
        let tid = c.start(0, REMOTE, request);
        let granted =
            c.heard(0, |message| matches!(message, ServerMsg::Granted { tid: of, .. } if *of == tid));
        assert!(granted.is_some());
    }
    let tid = c.start(0, EMBEDDED, Cluster::pin_request(dir, 1));
    c.pass(20);
    let recall = c.heard(0, |message| matches!(message, ServerMsg::Recall { .. }));
    let Some(ServerMsg::Recall { list }) = recall else { panic!("nothing is recalled") };
    let mut inos: Vec<Ino> = list.iter().map(|recalled| recalled.ino).collect();
    inos.sort_unstable();
    assert_eq!(inos, [dir.ino, file.ino]);
    c.pass(50);
    assert_eq!(c.take_answer(0, EMBEDDED, tid), None);
    // Nothing is granted meanwhile, and it is served.
    let again = c.start(0, REMOTE, Request::GetAttr { node: file });
    assert!(matches!(c.wait(0, REMOTE, again), Answered::Outcome(Ok(_))));
    let returned = ClientMsg::Returned { list: list.iter().map(|item| item.returned(item.bits)).collect() };
    c.inject(0, Input::Message { conn: REMOTE, message: returned });
    c.settle();
    assert_eq!(c.wait(0, EMBEDDED, tid), Answered::Outcome(Ok(Reply::Ok)));
}

/// What another rank keeps of a directory below is the old home's to take back.
#[test]
fn copies_of_what_is_below_come_back_as_well() {
    let (mut c, dir) = Cluster::with_moved();
    let inner = c.mkdir(dir, "inner");
    assert_eq!(c.pin(inner, 0), Ok(Reply::Ok), "{:?}", c.worlds[1].notes);
    // Rank 0 keeps the inode, whose home is rank 1.
    c.create(inner, "x");
    assert_eq!(c.pin(dir, 0), Ok(Reply::Ok), "{:?}", c.worlds[1].notes);
    assert_eq!((c.owner(dir), c.owner(inner)), (Some(0), Some(0)));
    let set = proto::SetAttr { mode: Some(0o700), ..Default::default() };
    assert!(matches!(c.ask(0, Request::SetAttr { node: inner, set }), Answered::Outcome(Ok(_))));
    assert_eq!((c.stat(inner).mode & 0o777, c.stat(inner).size), (0o700, 1));
    // And away again: now rank 0 has to ask for it.
    assert_eq!(c.pin(dir, 1), Ok(Reply::Ok), "{:?}", c.worlds[0].notes);
    c.create(inner, "y");
    assert_eq!((c.stat(inner).mode & 0o777, c.names(inner)), (0o700, vec!["x".to_owned(), "y".to_owned()]));
    for rank in [0, 1] {
        c.crash(rank);
        assert_eq!(c.names(inner), ["x", "y"]);
        assert_eq!(c.names(dir), ["f", "inner", "sub"]);
    }
}

#[test]
fn what_a_former_life_granted_is_awaited() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    c.greet(0, Peer::Trusted, Bits::ATTRS);
    let tid = c.start(0, REMOTE, Request::GetAttr { node: dir });
    assert!(c.heard(0, |m| matches!(m, ServerMsg::Granted { tid: of, .. } if *of == tid)).is_some());
    c.crash(0);
    assert_eq!(c.pin(dir, 1), Err(Errno::EBUSY));
    // Until its lease is over it may come back, and until 3 s are over its kernel may keep names.
    c.pass(12_000);
    assert_eq!(c.pin(dir, 1), Ok(Reply::Ok), "{:?}", c.worlds[0].notes);
}

#[test]
fn a_directory_that_is_delegated_comes_back_with_what_was_made_in_it() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    c.greet(0, Peer::Trusted, Bits::ATTRS.with(Bits::DX));
    for name in ["a", "b", "e", "f"] {
        let tid = c.start(0, REMOTE, Request::MkNod { parent: dir, name: n(name), new: mode(0o100_644) });
        c.pass(1);
        let answered = |m: &ServerMsg| {
            matches!(
                m,
                ServerMsg::Early { tid: of, .. }
                | ServerMsg::Reply { tid: of, .. }
                | ServerMsg::Granted { tid: of, .. } if *of == tid
            )
        };
        assert!(c.heard(0, answered).is_some());
    }
    let numbers = c.heard(0, |m| matches!(m, ServerMsg::Numbers { count: 1.., .. }));
    let Some(ServerMsg::Numbers { first, .. }) = numbers else { panic!("no numbers") };
    let pin = c.start(0, EMBEDDED, Cluster::pin_request(dir, 1));
    c.pass(20);
    let recalled = c.heard(0, |m| matches!(m, ServerMsg::Recall { .. }));
    let Some(ServerMsg::Recall { list }) = recalled else { panic!("nothing is recalled") };
    assert!(list.iter().any(|item| item.ino == dir.ino && item.bits.has(Bits::DX)), "{list:?}");
    // What its client made by itself comes first.
    let tid = c.hold(0).next_tid();
    let told = proto::message::Told { ino: first, wall: Wall(c.worlds[0].now as i64), heard: false };
    let request = Request::MkNod { parent: dir, name: n("own"), new: mode(0o100_644) };
    let performed = ClientMsg::Performed { tid, floor: tid, cred: Cred::ROOT, told, request };
    c.inject(0, Input::Message { conn: REMOTE, message: performed });
    c.settle();
    assert!(c.heard(0, |m| matches!(m, ServerMsg::Done { .. })).is_some());
    for _ in 0..20 {
        let recalled = c.heard(0, |m| matches!(m, ServerMsg::Recall { .. }));
        let more = if let Some(ServerMsg::Recall { list }) = recalled { list } else { Vec::new() };
        let all = list.iter().chain(&more).map(|item| item.returned(item.bits)).collect();
        c.inject(0, Input::Message { conn: REMOTE, message: ClientMsg::Returned { list: all } });
        c.pass(5);
    }
    assert_eq!(c.wait(0, EMBEDDED, pin), Answered::Outcome(Ok(Reply::Ok)));
    assert_eq!(c.names(dir), ["a", "b", "e", "f", "own"]);
    assert_eq!(c.lookup(dir, "own").map(|attr| attr.ino), Ok(first));
}

/// What broke: a coordinator died before it answered, and the directory was taken for one that may move yet, for ever.
#[test]
fn what_a_coordinator_left_unanswered_is_over_with_it() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    c.inject(0, Input::Move { dir: dir.ino, to: RankId(1) });
    c.deaf = true;
    c.pass(40_000);
    assert!(c.worlds[0].rank.moves.concerns(dir.ino), "{:?}", c.worlds[0].notes);
    c.publish();
    assert!(c.worlds[0].rank.moves.concerns(dir.ino), "it may come yet");
    c.worlds[0].wishes.clear();
    c.map.coordinator += 1;
    c.publish();
    c.deaf = false;
    c.settle();
    assert!(!c.worlds[0].rank.moves.concerns(dir.ino));
}

/// What broke: the coordinator had refused its move, and the directory was removed. Its rank took it for one that may move yet, and never went.
#[test]
fn what_was_refused_is_over_with_its_entry() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    assert_eq!(c.pin(dir, 1), Ok(Reply::Ok), "{:?}", c.worlds[0].notes);
    c.refuses = true;
    c.inject(1, Input::Move { dir: dir.ino, to: RankId(0) });
    c.pass(50);
    c.refuses = false;
    assert!(c.worlds[1].rank.moves.concerns(dir.ino), "{:?}", c.worlds[1].notes);
    assert_eq!(c.call(0, Request::RmDir { parent: root(), name: n("d") }), Ok(Reply::Ok));
    c.pass(50);
    assert!(!c.map.entries.contains_key(&Unit { dir: dir.ino, frag: Frag::WHOLE }));
    assert!(!c.worlds[1].rank.moves.concerns(dir.ino) && c.worlds[1].rank.moves.is_idle());
}

/// What is dirty when a move is announced reaches the store before the other rank looks there.
#[test]
fn what_is_made_while_a_move_is_announced_goes_with_it() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    let tid = c.start(0, EMBEDDED, Cluster::pin_request(dir, 1));
    c.deaf = true;
    c.pass(20);
    assert!(matches!(c.worlds[0].wishes.front(), Some(MapWish::Begin { .. })), "it is announced");
    let sub = c.mkdir(dir, "late");
    let file = c.create(sub, "f");
    write(&mut c, file, b"late");
    // More than one slice of a checkpoint, and not so much that it is stored before the seal.
    for number in 0..8 {
        c.create(sub, &format!("f{number}"));
    }
    c.deaf = false;
    assert_eq!(c.wait(0, EMBEDDED, tid), Answered::Outcome(Ok(Reply::Ok)));
    assert_eq!((c.names(dir), c.names(sub).len()), (vec!["late".to_owned()], 9));
    assert_eq!(read(&mut c, file), b"late");
    assert_eq!(c.worlds[0].rank.state(), State::Active);
}

/// Of everything more than one slice.
#[test]
fn a_large_one_moves_piece_by_piece() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    for number in 0..30 {
        let sub = c.mkdir(dir, &format!("s{number}"));
        for file in 0..(number * 2) {
            c.create(sub, &format!("f{file}"));
        }
        let other = c.create(root(), &format!("o{number}"));
        assert!(c.call(0, Request::Open { node: other, flags: 0 }).is_ok());
    }
    c.greet(0, Peer::Trusted, Bits::ATTRS);
    let mut granted = 0;
    for number in 0..30 {
        let sub = node(&c.lookup(dir, &format!("s{number}")).expect("there"));
        let tid = c.start(0, REMOTE, Request::GetAttr { node: sub });
        let is = |message: &ServerMsg| matches!(message, ServerMsg::Granted { tid: of, .. } if *of == tid);
        granted += usize::from(c.heard(0, is).is_some());
    }
    assert_eq!(granted, 30);
    let tid = c.start(0, EMBEDDED, Cluster::pin_request(dir, 1));
    let mut back = 0;
    for _ in 0..200 {
        c.pass(1);
        while let Some(ServerMsg::Recall { list }) = c.heard(0, |m| matches!(m, ServerMsg::Recall { .. })) {
            back += list.len();
            let list = list.iter().map(|item| item.returned(item.bits)).collect();
            c.inject(0, Input::Message { conn: REMOTE, message: ClientMsg::Returned { list } });
            c.settle();
        }
    }
    assert_eq!(back, 30);
    assert_eq!(c.wait(0, EMBEDDED, tid), Answered::Outcome(Ok(Reply::Ok)), "{:?}", c.worlds[0].notes);
    assert_eq!(c.names(dir).len(), 30);
    let cached = c.worlds[0].rank.status().cached;
    assert!(cached < 100, "{cached} names of {} are still cached", 30 * 29);
    let sub = node(&c.lookup(dir, "s29").expect("there"));
    assert!(c.call(1, Request::Unlink { parent: sub, name: n("f7") }).is_ok());
    assert_eq!(c.pin(dir, 0), Ok(Reply::Ok), "{:?}", c.worlds[1].notes);
    assert_eq!((c.names(sub).len(), c.lookup(sub, "f7")), (57, Err(Errno::ENOENT)));
}

/// What was read before the seal may be old when it comes.
#[test]
fn what_a_load_brings_after_the_seal_is_not_kept() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    let sub = c.mkdir(dir, "sub");
    c.create(sub, "f");
    c.drop_cache(0);
    c.stat(sub);
    c.hold(0).hold_loads = true;
    let tid = c.start(0, EMBEDDED, Request::Lookup { parent: sub, name: n("f") });
    assert_eq!(c.take_answer(0, EMBEDDED, tid), None);
    let pin = c.start(0, EMBEDDED, Cluster::pin_request(dir, 1));
    c.pass(50);
    assert_eq!(
        c.take_answer(0, EMBEDDED, pin),
        Some(Answered::Outcome(Ok(Reply::Ok))),
        "{:?}",
        c.worlds[0].notes
    );
    assert!(c.call(1, Request::Unlink { parent: sub, name: n("f") }).is_ok());
    c.hold(0).let_go();
    c.settle();
    assert_eq!(c.wait(0, EMBEDDED, tid), NOT_MINE(1));
    assert_eq!(c.pin(dir, 0), Ok(Reply::Ok), "{:?}", c.worlds[1].notes);
    assert_eq!((c.lookup(sub, "f"), c.names(sub)), (Err(Errno::ENOENT), Vec::new()));
}

/// The coordinator takes the number out while what is dirty is stored: nothing is sealed for ever.
#[test]
fn a_move_that_is_aborted_early_ends() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    c.create(dir, "f");
    assert_eq!(c.pin(dir, 0), Ok(Reply::Ok));
    let unit = Unit { dir: dir.ino, frag: Frag::WHOLE };
    c.hold(0).hold_stores = true;
    c.map.last_move = MoveId(c.map.last_move.0 + 1);
    let moving = Some(Moving { id: c.map.last_move, to: RankId(1) });
    for moving in [moving, None] {
        Arc::make_mut(&mut c.map.entries).get_mut(&unit).expect("an entry").moving = moving;
        c.publish();
        c.pass(20);
    }
    c.hold(0).let_go();
    c.pass(50);
    assert!(c.worlds[0].wishes.is_empty());
    c.create(dir, "g");
    assert_eq!((c.owner(dir), c.names(dir).len()), (Some(0), 2));
}

/// What broke: when the move of a spread directory was given up, one waited for its header and one for a name of it. What came with one
/// answer was thrown away each time, the header with the name, and both were asked for again without end.
#[test]
pub(super) fn header_and_name_of_a_spread_directory_come_together() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    let file = c.create(dir, "f");
    assert_eq!(c.pin(dir, 1), Ok(Reply::Ok));
    // Its parts stay where it is: no map says that it has any.
    c.map.bal_rank_mask = proto::cluster::Mask::NONE.with(RankId(0));
    c.publish();
    assert!(c.lookup(dir, "f").is_ok());
    c.spread(dir, 1);
    assert_eq!(c.units(dir), [(0, 1)], "{:?}", c.worlds[1].notes);
    (0..3).for_each(|_| c.drop_cache(1));
    assert_eq!(c.worlds[1].rank.view.cache.spread(dir.ino), None);
    let pin = c.start(0, EMBEDDED, Cluster::pin_request(dir, 0));
    c.until_switch_of(1);
    let totals = c.start(0, EMBEDDED, Request::GetAttr { node: dir });
    c.settle();
    let name = c.start(1, EMBEDDED, Request::GetAttr { node: file });
    c.settle();
    c.worlds[1].wishes.clear();
    c.deaf = false;
    let unit = Unit { dir: dir.ino, frag: Frag::WHOLE };
    Arc::make_mut(&mut c.map.entries).get_mut(&unit).expect("an entry").moving = None;
    c.publish();
    c.settle();
    assert!(matches!(c.wait(0, EMBEDDED, totals), Answered::Outcome(Ok(_))));
    assert!(matches!(c.wait(1, EMBEDDED, name), Answered::Outcome(Ok(_))));
    let _given_up = c.wait(0, EMBEDDED, pin);
}

#[test]
fn a_move_is_the_owners_to_make() {
    let (mut c, dir) = Cluster::with_moved();
    // Asked of the home, carried out by the owner.
    assert!(matches!(c.ask(0, Cluster::pin_request(dir, 0)), Answered::Outcome(Ok(Reply::Ok))));
    assert_eq!(c.owner(dir), Some(0));
    assert_eq!(c.names(dir), ["f", "sub"]);
    let user = Cred { uid: 5, gid: 5, groups: Vec::new() };
    c.greet(0, Peer::User(user.clone()), Bits::NONE);
    let tid = c.start_as(0, REMOTE, user, Cluster::pin_request(dir, 1));
    assert_eq!(c.wait(0, REMOTE, tid), Answered::Outcome(Err(Errno::EPERM)));
}

/// Most of these the simulator would find, if it had several ranks.
#[cfg(feature = "mutants")]
#[test]
fn defects_of_several_ranks_are_caught() {
    let defects: [(&str, fn()); 47] = [
        ("mds_old_refusal_ends_new_wish", pins::an_old_refusal_ends_no_new_wish),
        ("mds_claims_what_is_no_inode", holders::what_is_no_inode_is_not_claimed),
        ("mds_abort_said_once", holders::that_a_move_is_given_up_is_said_until_the_map_says_so),
        ("mds_pins_what_went", pins::a_pin_behind_the_move_of_its_slot_is_asked_of_who_has_it_then),
        ("mds_leaves_frozen", leaving::a_rank_that_is_frozen_stays),
        ("mds_drops_while_slot_moves", pins::an_entry_stays_while_the_slot_of_what_is_gone_moves),
        ("mds_unpin_leaves_entry", pins::a_pin_of_what_a_slot_places_is_taken_away),
        ("mds_unseen_is_gone", pins::a_pin_is_taken_away_although_its_home_was_lost_sight_of),
        ("mds_asks_for_drops_without_end", pins::each_is_asked_for_once_while_others_are_not_durable),
        ("mds_mask_pulls_back", spreads::what_is_to_end_is_gathered_outside_of_the_mask),
        ("mds_mask_pulls_back", merges::what_is_to_be_one_is_gathered_outside_of_the_mask),
        ("mds_leaves_with_claims", leaving::who_has_what_went_before_its_life_leaves),
        ("mds_load_takes_header", header_and_name_of_a_spread_directory_come_together),
        ("mds_pin_goes_by_entries", pins::a_remembered_pin_without_an_entry_is_its_owners_to_carry_out),
        ("mds_announce_outlives_itself", pins::a_move_that_was_given_up_before_a_map_said_it_is_over),
        ("mds_greets_after_leaving", leaving::who_has_left_takes_nobody_in),
        ("mds_pin_forgotten_unplaced", pins::a_remembered_pin_waits_until_its_place_is_known),
        ("mds_abandoned_outlives_entry", what_was_refused_is_over_with_its_entry),
        ("mds_abandoned_for_ever", what_a_coordinator_left_unanswered_is_over_with_it),
        ("mds_refused_is_not_under_way", pins::a_move_that_a_refused_wish_hides_is_carried_out),
        ("mds_gone_with_a_dead_rank", bounces::what_a_rank_has_that_lives_again_is_not_gone),
        ("mds_orphan_of_others_cached", bounces::what_another_rank_has_without_a_name_is_not_cached),
        ("mds_seal_not_replayed", replay_drops_what_was_sealed_away),
        ("mds_move_despite_opens", what_a_mount_in_the_ranks_process_has_open_stays),
        ("mds_move_keeps_grants", what_is_granted_below_comes_back_first),
        ("mds_move_unsealed", who_asks_during_the_switch_waits_and_is_sent_on),
        ("mds_move_unflushed", what_is_made_while_a_move_is_announced_goes_with_it),
        ("mds_moved_stays_cached", what_moves_is_as_it_was),
        ("mds_copy_not_recalled", boundaries::permissions_of_its_content_follow_the_home_at_once),
        ("mds_replica_outlives_link", boundaries::a_change_waits_for_a_rank_that_cannot_be_asked),
        ("mds_ranks_not_awaited", boundaries::a_home_that_lives_again_changes_nothing_that_others_may_keep),
        ("mds_totals_not_awaited", totals::an_owner_that_lives_again_changes_nothing_that_others_may_show),
        ("mds_totals_outlive_link", totals::who_cannot_be_asked_is_waited_for),
        ("mds_totals_not_given_back", totals::nothing_is_asked_while_nothing_changes),
        ("mds_recall_overtakes_told", totals::a_recall_that_overtakes_an_answer_makes_it_void),
        ("mds_late_goes_by_old_answer", totals::who_asks_later_is_not_told_what_was_asked_before),
        ("mds_purged_keeps_entry", pins::an_entry_goes_with_its_directory),
        ("mds_drops_unstored", pins::an_entry_stays_until_the_store_knows_that_its_directory_is_gone),
        ("mds_drops_unstored", pins::the_last_entry_stays_until_the_store_knows_that_its_directory_is_gone),
        ("mds_pin_pulls_back", pins::a_pin_is_read_back_and_taken_away),
        ("mds_load_outlives_seal", what_a_load_brings_after_the_seal_is_not_kept),
        ("mds_asks_who_is_gone", leaving::what_is_asked_of_who_is_gone_is_asked_of_others),
        ("mds_leaves_as_one_that_stops", leaving::who_has_nothing_left_leaves),
        ("mds_leaves_unanswered", leaving::who_waits_for_an_answer_hears_it_before_the_rank_leaves),
        ("mds_dismisses_unread", leaving::who_has_not_read_its_journal_yet_dismisses_nobody),
        ("mds_leaves_at_once", leaving::who_has_nothing_left_leaves),
        ("mds_others_moves_aborted", pins::a_move_that_others_announce_is_carried_out),
    ];
    for (defect, test) in defects {
        stdx::mutant::activate(Some(defect));
        let verdict = std::panic::catch_unwind(test);
        stdx::mutant::activate(None);
        assert!(verdict.is_err(), "{defect}");
    }
}

/// An operator asks a rank that does not own it, then the one that does; no pin is left behind.
#[test]
fn an_operator_moves_what_is_a_ranks_own() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    let file = c.create(dir, "f");
    write(&mut c, file, b"content");
    for at in [1, 0] {
        c.inject(at, Input::Move { dir: dir.ino, to: RankId(1 - at as u16) });
        c.settle();
        c.pass(50);
    }
    assert_eq!(c.owner(dir), Some(1), "{:?}", c.worlds[0].notes);
    assert_eq!(c.pin_of(dir), Err(Errno::ENODATA));
    assert_eq!(c.ask(0, Request::GetAttr { node: file }), NOT_MINE(1));
    assert_eq!(read(&mut c, file), b"content");
    // To where it is: nothing happens.
    c.inject(1, Input::Move { dir: dir.ino, to: RankId(1) });
    c.settle();
    assert_eq!(c.owner(dir), Some(1));
}

/// One that waits for its turn, and one that nobody has announced, end at an operator's word; one that may be in a map ends when it comes.
#[test]
fn an_operator_wants_a_move_no_more() {
    let mut c = Cluster::new();
    let dirs = [c.mkdir(root(), "d"), c.mkdir(root(), "e")];
    c.deaf = true;
    dirs.iter().for_each(|dir| c.inject(0, Input::Move { dir: dir.ino, to: RankId(1) }));
    c.pass(50);
    let wanted = |c: &Cluster| dirs.map(|dir| c.worlds[0].rank.is_to_move(dir.ino));
    assert_eq!(wanted(&c), [true, true], "{:?}", c.worlds[0].notes);
    let one = |dir: NodeRef, waits_for| MoveStatus {
        unit: Unit { dir: dir.ino, frag: Frag::WHOLE },
        goal: MoveGoal::Move,
        to: Some(RankId(1)),
        waits_for,
    };
    let shown = [one(dirs[0], Some("the coordinator")), one(dirs[1], None)];
    assert_eq!(c.worlds[0].rank.moves_wanted(), shown, "the second one waits for its turn");
    c.inject(0, Input::Unmove { dir: dirs[1].ino });
    assert_eq!(wanted(&c), [true, false]);
    c.inject(0, Input::Unmove { dir: dirs[0].ino });
    assert_eq!(wanted(&c), [false, false]);
    c.deaf = false;
    c.settle();
    c.pass(50);
    let mut entries = c.map.entries.values();
    assert!(entries.all(|entry| entry.rank == RankId(0) && entry.moving.is_none()), "{:?}", c.map.entries);
    c.inject(0, Input::Move { dir: dirs[0].ino, to: RankId(1) });
    c.settle();
    c.pass(50);
    assert_eq!(c.owner(dirs[0]), Some(1), "{:?}", c.worlds[0].notes);
}
