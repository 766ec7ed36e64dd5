//! Whose a request is, and what is said where it is another's.
//!
//! Absent: moves (`moves.rs`).

use super::*;
use crate::op::{Op, Probe};
use proto::request::open_flags;

#[test]
fn one_rank_with_a_map_is_as_one_without() {
    let mut w = World::new();
    w.inject(Input::Map(Arc::new(ClusterMap::first())));
    let dir = w.mkdir(root(), "d");
    w.create(dir, "f");
    w.drop_cache();
    assert_eq!(w.lookup(dir, "f").map(|attr| attr.parent), Ok(dir.ino));
    assert!(w.rename((dir, "f"), (root(), "g"), 0).is_ok());
    assert!(w.to_ranks.is_empty() && w.wishes.is_empty());
}

#[test]
fn names_are_asked_for_where_the_content_is_and_inodes_at_home() {
    let (mut c, dir) = Cluster::with_moved();
    let lookup = |name: &str| Request::Lookup { parent: dir, name: n(name) };
    assert_eq!(c.ask(0, lookup("f")), NOT_MINE(1));
    assert!(matches!(c.ask(1, lookup("f")), Answered::Outcome(Ok(Reply::Attr(_)))));
    // The directory's own inode is at home.
    assert!(matches!(c.ask(0, Request::GetAttr { node: dir }), Answered::Outcome(Ok(_))));
    assert_eq!(c.ask(1, Request::GetAttr { node: dir }), NOT_MINE(0));
    // A file's home is where its name is.
    let file = node(&c.lookup(dir, "f").expect("a file"));
    assert_eq!(c.ask(0, Request::GetAttr { node: file }), NOT_MINE(1));
    // What is below goes with it, found by nothing but numbers of directories.
    let sub = node(&c.lookup(dir, "sub").expect("a directory"));
    assert_eq!(c.ask(0, Request::Lookup { parent: sub, name: n("deep") }), NOT_MINE(1));
    assert!(c.lookup(sub, "deep").is_ok());
    assert_eq!(c.ask(0, Request::Lookup { parent: NodeRef::bare(sub.ino), name: n("deep") }), NOT_MINE(1));
    assert_eq!(c.ask(1, Request::Lookup { parent: root(), name: n("d") }), NOT_MINE(0));
}

/// What broke: all ranks that served had been asked, and the file was one's that was reading its journal.
#[test]
pub(crate) fn what_a_rank_has_that_lives_again_is_not_gone() {
    let mut c = Cluster::of(3);
    c.map.version += 1;
    if let Some(info) = c.map.ranks.get_mut(&RankId(2)) {
        info.state = RankState::Replay;
    }
    let map = Arc::new(c.map.clone());
    c.inject(0, Input::Map(map));
    let next = |asked: &[u16]| {
        let asked: BTreeSet<RankId> = asked.iter().copied().map(RankId).collect();
        c.worlds[0].rank.next_to_ask(None, &asked)
    };
    assert_eq!([next(&[]), next(&[1]), next(&[1, 2])], [Some(RankId(1)), Some(RankId(2)), None]);
}

/// What broke: a rank that had all directories, and was asked for a file without a name that another rank has, knew it by that
/// place still when the file came to it with the directory that it had got a name in.
#[test]
pub(crate) fn what_another_rank_has_without_a_name_is_not_cached() {
    let (mut c, dir) = Cluster::with_moved();
    let file = node(&c.lookup(dir, "f").expect("there"));
    c.greet(0, Peer::Trusted, Bits::NONE);
    c.join(0, 1, Peer::Trusted);
    let at_1 = |c: &mut Cluster, request: Request| {
        let tid = c.start(1, REMOTE, request);
        assert!(matches!(c.wait(1, REMOTE, tid), Answered::Outcome(Ok(_))));
    };
    at_1(&mut c, Request::Open { node: file, flags: open_flags::RDWR });
    assert!(c.call(1, Request::Unlink { parent: dir, name: n("f") }).is_ok());
    c.checkpoint(1);
    let hash = name_hash(&SEED, &file.ino.link_name());
    let orphan = NodeRef { ino: file.ino, parent: Ino::orphans(RankId(1)), hash };
    assert_eq!(c.pin(dir, 0), Ok(Reply::Ok), "{:?}", c.worlds[1].notes);
    assert_eq!(c.ask(0, Request::GetAttr { node: orphan }), NOT_MINE(1));
    assert_eq!(c.pin(dir, 1), Ok(Reply::Ok), "{:?}", c.worlds[0].notes);
    at_1(&mut c, Request::Link { node: orphan, parent: dir, name: n("g") });
    at_1(&mut c, Request::Release { node: file, count: 1 });
    assert_eq!(c.pin(dir, 0), Ok(Reply::Ok), "{:?}", c.worlds[1].notes);
    assert_eq!(c.lookup(dir, "g").map(|attr| attr.ino), Ok(file.ino));
}

#[test]
fn nothing_of_what_is_bounced_is_remembered() {
    let (mut c, dir) = Cluster::with_moved();
    c.greet(0, Peer::Trusted, Bits::NONE);
    let request = || Request::MkNod { parent: dir, name: n("new"), new: mode(0o100_644) };
    let tid = c.start(0, REMOTE, request());
    let order: Vec<bool> = c.worlds[0]
        .sent
        .iter()
        .filter(|(to, message)| *to == REMOTE && !matches!(message, ServerMsg::Numbers { .. }))
        .map(|(_, message)| matches!(message, ServerMsg::Map { .. }))
        .collect();
    assert_eq!(order, [true, false], "the map, then the bounce");
    let map = c.heard(0, |message| matches!(message, ServerMsg::Map { .. }));
    let Some(ServerMsg::Map { bytes, .. }) = map else { panic!("no map") };
    assert_eq!(ClusterMap::decode(&bytes).as_ref(), Ok(&c.map));
    assert_eq!(c.wait(0, REMOTE, tid), NOT_MINE(1));
    let status = &c.worlds[0].rank.sessions(Mono(c.worlds[0].now))[1];
    assert_eq!((status.results, status.in_flight), (0, 0));
    // Asked again under the same number it is looked at again; and the map is known by now.
    c.hold(0).retry(REMOTE, tid, Cred::ROOT, request());
    assert_eq!(c.wait(0, REMOTE, tid), NOT_MINE(1));
    assert_eq!(c.heard(0, |message| matches!(message, ServerMsg::Map { .. })), None);
    assert_eq!(c.lookup(dir, "new"), Err(Errno::ENOENT));
}

#[test]
fn a_stored_result_is_told_whoever_owns_it_by_now() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    c.greet(0, Peer::Trusted, Bits::NONE);
    let request = || Request::MkNod { parent: dir, name: n("f"), new: mode(0o100_644) };
    let tid = c.start(0, REMOTE, request());
    let first = c.wait(0, REMOTE, tid);
    assert_eq!(c.pin(dir, 1), Ok(Reply::Ok));
    c.hold(0).retry(REMOTE, tid, Cred::ROOT, request());
    assert_eq!(c.wait(0, REMOTE, tid), first);
    let next = c.start(0, REMOTE, request());
    assert_eq!(c.wait(0, REMOTE, next), NOT_MINE(1));
}

#[test]
fn whose_the_new_name_is_is_asked_for_what_takes_two() {
    let (mut c, dir) = Cluster::with_moved();
    let file = c.create(root(), "here");
    let rename = |parent, name: &str, new_parent, new_name: &str| Request::Rename {
        parent,
        name: n(name),
        new_parent,
        new_name: n(new_name),
        flags: 0,
    };
    assert_eq!(c.ask(0, rename(root(), "here", dir, "there")), NOT_MINE(1));
    assert_eq!(c.ask(1, rename(dir, "f", root(), "there")), NOT_MINE(0));
    let link = Request::Link { node: file, parent: dir, name: n("l") };
    assert_eq!(c.ask(0, link), NOT_MINE(1));
    assert_eq!(c.rename((dir, "f"), (dir, "g")), Ok(Reply::Ok));
    assert_eq!(c.names(dir), ["g", "sub"]);
}

#[test]
fn directories_move_within_a_part_and_between_parts() {
    let (mut c, dir) = Cluster::with_moved();
    let sub = node(&c.lookup(dir, "sub").expect("there"));
    let other = c.mkdir(dir, "other");
    assert_eq!(c.rename((dir, "sub"), (other, "sub")), Ok(Reply::Ok));
    assert_eq!(c.rename((dir, "other"), (sub, "x")), Err(Errno::EINVAL), "below itself");
    // Another part of the same rank: whether that is below it rank 0 says.
    let far = c.mkdir(root(), "far");
    assert_eq!(c.pin(far, 1), Ok(Reply::Ok));
    assert_eq!(c.rename((dir, "other"), (far, "x")), Ok(Reply::Ok));
    assert_eq!(c.rename((root(), "far"), (sub, "far")), Err(Errno::EINVAL), "`sub` is in it by now");
    assert_eq!(c.rename((dir, "f"), (far, "f")), Ok(Reply::Ok), "a file may");
}

#[test]
fn what_is_nowhere_is_stale_in_the_end() {
    let (mut c, dir) = Cluster::with_moved();
    let ghost = NodeRef { ino: Ino(9_999_999), parent: dir.ino, hash: NameHash(77) };
    assert_eq!(c.ask(0, Request::GetAttr { node: ghost }), NOT_MINE(1));
    let bare = Request::GetAttr { node: NodeRef::bare(ghost.ino) };
    assert_eq!(c.ask(0, bare.clone()), Answered::NotMine(None), "only all of them together know");
    assert_eq!(c.call(0, bare), Err(Errno::ESTALE));
}

/// What broke: the rank that had made a file, and had forgotten with its former life that it went to another one, said
/// that there is none.
#[test]
fn what_a_former_life_knew_of_is_not_said_to_be_gone() {
    let (mut c, dir) = Cluster::with_moved();
    let file = c.create(root(), "here");
    assert_eq!(c.rename((root(), "here"), (dir, "there")), Ok(Reply::Ok));
    c.pass(50);
    // Its place is stored by the other rank, who is in no hurry.
    c.checkpoint(0);
    c.crash(0);
    c.settle();
    assert_eq!(c.attr(0, Request::GetAttr { node: file }).map(|attr| attr.ino), Ok(file.ino));
}

#[test]
fn what_is_not_cached_is_found_by_climbing() {
    let (mut c, dir) = Cluster::with_moved();
    let mut at = dir;
    for name in ["a", "b", "c", "e"] {
        at = c.mkdir(at, name);
    }
    let file = c.create(at, "file");
    // Each time the lowest directories go.
    for rank in [0, 1].repeat(6) {
        c.drop_cache(rank);
    }
    let cached = c.worlds[1].rank.status().cached;
    assert!(cached < 4, "{cached} names are cached");
    assert_eq!(
        c.ask(0, Request::GetAttr { node: NodeRef::bare(at.ino) }),
        NOT_MINE(1),
        "backptrs lead there"
    );
    assert_eq!(c.stat(file).ino, file.ino);
    assert_eq!(c.stat(NodeRef::bare(at.ino)).size, 1);
}

#[test]
fn ranks_ask_for_little_and_clients_for_nothing_of_that() {
    let (mut c, dir) = Cluster::with_moved();
    c.greet(0, Peer::Trusted, Bits::NONE);
    c.start(0, REMOTE, Request::Replicate { node: dir });
    assert!(c.heard(0, |message| matches!(message, ServerMsg::Refused { .. })).is_some());
    let conn = ConnId(52);
    c.inject(0, Input::Connected { conn, peer: Peer::User(Cred { uid: 7, gid: 7, groups: Vec::new() }) });
    let from = RankId(1);
    let hello = ClientMsg::RankHello {
        protocol: PROTOCOL,
        from,
        incarnation: Incarnation(9),
        to: RankId(0),
        map_version: 0,
        settled: true,
    };
    c.inject(0, Input::Message { conn, message: hello });
    let refused =
        c.worlds[0].sent.iter().any(|(to, m)| *to == conn && matches!(m, ServerMsg::Refused { .. }));
    assert!(refused, "any user could say that");
}

/// What broke: a move was given up while a directory above was looked for, as only then its side had to be known. The place of
/// that was then taken for the place of what the operation had named.
#[test]
fn the_place_of_one_is_not_the_hint_of_another() {
    let mut op = Op::new(1, (SessionId(1), Tid(1)), Cred::ROOT, Request::GetAttr { node: root() }, Mono(0));
    op.probe = Some((Ino(5000), Probe::Noted));
    let place = Some((Ino(5001), NameHash(8)));
    op.noted(Ino(5000), place);
    op.noted(Ino(4999), Some((Ino::ROOT, NameHash(9))));
    assert_eq!(op.hint, place);
}

/// What broke: a client that had asked nobody but rank 0 heard of no map, and performed what only a single rank can carry out.
#[test]
fn who_performs_things_hears_of_other_ranks_at_once() {
    let is_map = |message: &ServerMsg| matches!(message, ServerMsg::Map { .. });
    let hears = |wants| {
        let mut c = Cluster::new();
        c.greet(0, Peer::Trusted, wants);
        c.heard(0, is_map).is_some()
    };
    assert_eq!([Bits::ATTRS, Bits::ATTRS.with(Bits::DX)].map(hears), [false, true], "with its welcome");
    // There is another one from then on.
    let mut w = World::new();
    w.wants = Bits::ATTRS.with(Bits::DX);
    w.hello(REMOTE, Peer::Trusted, SessionId(0));
    let mut map = ClusterMap::first();
    for rank in 0..2 {
        map.version += 1;
        let (incarnation, daemon) = (Incarnation(1 + u64::from(rank)), DaemonId(1 + u64::from(rank)));
        map.ranks.insert(RankId(rank), RankInfo { state: RankState::Active, incarnation, daemon });
        w.inject(Input::Map(Arc::new(map.clone())));
        let told = w.sent.iter().any(|(conn, message)| *conn == REMOTE && is_map(message));
        assert_eq!(told, rank == 1);
    }
}

#[cfg(feature = "mutants")]
#[test]
fn who_hears_of_other_ranks_too_late_is_caught() {
    for defect in ["mds_eager_without_map", "mds_eager_hears_late"] {
        stdx::mutant::activate(Some(defect));
        let verdict = std::panic::catch_unwind(who_performs_things_hears_of_other_ranks_at_once);
        stdx::mutant::activate(None);
        assert!(verdict.is_err(), "{defect}");
    }
}
