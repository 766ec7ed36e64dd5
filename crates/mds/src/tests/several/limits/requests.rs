//! What single requests of a limited session come to.
//!
//! Absent: several ranks, where that makes no difference.

use super::*;
use proto::request::{LockKind, LockSpec, XattrMode};

const fn lock(kind: LockKind) -> LockSpec {
    LockSpec { flock: true, owner: 1, kind, start: 0, end: u64::MAX, pid: 1 }
}

/// One of each request that may be refused: about a directory, a file `f` in it, and a link `s`.
fn each(dir: NodeRef, file: NodeRef, link: NodeRef) -> Vec<Request> {
    let new = mode(0o644);
    let set = proto::SetAttr { mode: Some(0o600), ..Default::default() };
    let data = Payload::Owned(b"x".to_vec());
    let (name, value) = (n("user.a"), Box::<[u8]>::from(*b"v"));
    vec![
        Request::Lookup { parent: dir, name: n("f") },
        Request::GetAttr { node: file },
        Request::GetAttr { node: dir },
        Request::SetAttr { node: file, set },
        Request::ReadLink { node: link },
        Request::MkNod { parent: dir, name: n("new"), new: mode(0o100_644) },
        Request::MkDir { parent: dir, name: n("newdir"), new: mode(0o755) },
        Request::Symlink { parent: dir, name: n("news"), target: b"t"[..].into() },
        Request::Unlink { parent: dir, name: n("new") },
        Request::RmDir { parent: dir, name: n("newdir") },
        rename((dir, "news"), (dir, "renamed"), 0),
        Request::Open { node: file, flags: 2 },
        Request::Create { parent: dir, name: n("made"), new: new.clone(), flags: 2 },
        Request::TmpFile { parent: dir, new, flags: 2 },
        Request::ReadDir { dir, after: 0, attrs: true, bytes_max: 4096 },
        Request::Read { node: file, offset: 0, len: 1, into: None },
        Request::Write { node: file, offset: 0, append: false, kill_suidgid: false, data },
        Request::Fallocate { node: file, mode: 0, offset: 0, len: 9 },
        Request::Seek { node: file, offset: 0, hole: false },
        Request::CopyRange { source: file, source_offset: 0, target: file, target_offset: 4, len: 1 },
        Request::Fsync { node: file, data_only: false },
        Request::Fsync { node: dir, data_only: false },
        Request::SetXattr { node: file, name: name.clone(), value, mode: XattrMode::Either },
        Request::GetXattr { node: file, name: name.clone() },
        Request::ListXattr { node: file },
        Request::RemoveXattr { node: file, name },
        Request::TestLock { node: file, lock: lock(LockKind::Write) },
        Request::SetLock { node: file, lock: lock(LockKind::Write), wait: false },
        Request::Access { node: file, mask: 4 },
        Request::Parent { node: dir },
        Request::Link { node: file, parent: dir, name: n("link") },
    ]
}

fn fill(c: &mut Cluster, dir: NodeRef) -> (NodeRef, NodeRef) {
    let link = Request::Symlink { parent: dir, name: n("s"), target: b"f"[..].into() };
    (c.create(dir, "f"), node(&c.attr(0, link).expect("a link")))
}

#[test]
pub(super) fn each_request_is_looked_at() {
    for rank in [0, 1] {
        let mut yard = Yard::of(2);
        let [own, others] = [yard.inside, yard.outside].map(|dir| yard.c.mkdir(dir, "d"));
        for dir in [own, others] {
            assert_eq!(yard.c.pin(dir, rank), Ok(Reply::Ok));
        }
        let ((file, link), (hidden, other)) = (fill(&mut yard.c, own), fill(&mut yard.c, others));
        for request in each(others, hidden, other) {
            assert_eq!(yard.asks(request.clone()), Err(Errno::EACCES), "{request:?}");
        }
        assert_eq!(yard.c.names(others), ["f", "s"]);
        for request in each(own, file, link) {
            let outcome = yard.asks(request.clone());
            assert!(outcome.is_ok(), "{request:?}: {outcome:?}");
        }
        // What gives back, or names nothing, is never refused.
        let locks = lock(LockKind::Unlock);
        for request in [
            Request::Release { node: hidden, count: 1 },
            Request::ReleaseLocks { node: hidden, flock: true, owner: 1 },
            Request::SetLock { node: hidden, lock: locks, wait: false },
            Request::SyncFs,
            Request::StatFs,
        ] {
            let outcome = yard.asks(request.clone());
            assert!(outcome.is_ok(), "{request:?}: {outcome:?}");
        }
        let gone = NodeRef::bare(Ino(hidden.ino.0 + 999));
        assert_eq!(yard.stats(gone), Err(Errno::ESTALE), "there is no such inode");
    }
}

#[test]
pub(super) fn what_another_rank_has_outside_is_refused_whatever_it_is() {
    let (mut yard, [_, _, _, o]) = Yard::with_parts();
    let (file, link) = fill(&mut yard.c, o);
    for no_directory in [file, link] {
        let request = rename((no_directory, "a"), (yard.inside, "b"), 0);
        assert_eq!(yard.asks(request), Err(Errno::EACCES));
    }
}

#[test]
fn the_directory_itself_is_inside_and_what_is_above_is_not() {
    let mut yard = Yard::of(2);
    let inside = yard.inside;
    assert!(yard.stats(inside).is_ok());
    assert_eq!(yard.stats(root()), Err(Errno::EACCES));
    assert_eq!(yard.looks(root(), "in"), Err(Errno::EACCES));
    assert_eq!(yard.asks(Request::Unlink { parent: root(), name: n("in") }), Err(Errno::EACCES));
    // Where its content is with another rank, too.
    for rank in [0, 1] {
        assert_eq!(yard.c.pin(inside, rank), Ok(Reply::Ok));
        let parent = yard.asks(Request::Parent { node: inside });
        assert!(matches!(parent, Ok(Reply::Node(node)) if node.ino == inside.ino), "{parent:?}");
        let sub = yard.c.mkdir(inside, &format!("sub{rank}"));
        let parent = yard.asks(Request::Parent { node: sub });
        assert!(matches!(parent, Ok(Reply::Node(node)) if node.ino == inside.ino), "{parent:?}");
    }
    assert_eq!(yard.asks(Request::Parent { node: root() }), Err(Errno::EACCES));
    for number in [Ino::LINKS, Ino::SYSTEM, Ino::orphans(RankId(0))] {
        assert_eq!(yard.stats(NodeRef::bare(number)), Err(Errno::ESTALE));
    }
}

#[test]
fn a_directory_that_is_gone_has_nothing_below() {
    let mut yard = Yard::of(2);
    let outside = yard.outside;
    assert!(yard.c.call(0, Request::RmDir { parent: root(), name: n("in") }).is_ok());
    assert_eq!(yard.stats(yard.inside), Err(Errno::ESTALE));
    assert_eq!(yard.stats(outside), Err(Errno::EACCES));
}

/// Numbers are easy to guess. Whoever works in a directory by himself would give it back for each.
#[test]
pub(super) fn who_names_what_is_outside_takes_nothing_back() {
    let mut yard = Yard::of(1);
    let own = yard.c.mkdir(yard.inside, "d");
    yard.c.greet(0, Peer::Trusted, Bits::ATTRS.with(Bits::FC).with(Bits::DX).with(Bits::ALONE));
    for dir in [yard.outside, own] {
        for name in ["a", "b", "c"] {
            let request = Request::Create { parent: dir, name: n(name), new: mode(0o644), flags: 2 };
            yard.c.start(0, REMOTE, request);
            yard.c.pass(5);
        }
        assert!(yard.c.worlds[0].rank.view.book.delegated_to(dir.ino).is_some(), "or this shows nothing");
    }
    yard.c.worlds[0].sent.clear();
    let outside = yard.outside;
    let list = |dir| Request::ReadDir { dir, after: 0, attrs: true, bytes_max: 4096 };
    for request in [list(outside), Request::GetAttr { node: outside }] {
        assert_eq!(yard.at(0, request), DENIED);
    }
    let recalled = |c: &mut Cluster| c.heard(0, |message| matches!(message, ServerMsg::Recall { .. }));
    assert!(recalled(&mut yard.c).is_none());
    let tid = yard.c.start(0, LIMITED, list(own));
    assert!(recalled(&mut yard.c).is_some());
    assert_eq!(yard.c.take_answer(0, LIMITED, tid), None, "it waits for that");
}

#[test]
fn nothing_is_delegated_to_it() {
    let mut yard = Yard::of(1);
    yard.begin(Bits::ATTRS.with(Bits::FC).with(Bits::DX).with(Bits::ALONE));
    let dir = yard.inside;
    for name in ["a", "b", "c"] {
        let request = Request::Create { parent: dir, name: n(name), new: mode(0o644), flags: 2 };
        assert!(matches!(yard.at(0, request), Answered::Outcome(Ok(_))));
    }
    let early = |message: &ServerMsg| {
        matches!(message, ServerMsg::Early { .. } | ServerMsg::Numbers { count: 1.., .. })
    };
    assert!(!yard.c.worlds[0].sent.iter().any(|(to, message)| *to == LIMITED && early(message)));
    let told = proto::message::Told::default();
    let request = Request::Unlink { parent: dir, name: n("a") };
    let (tid, floor, cred) = (yard.c.hold(0).next_tid(), Tid(0), Cred::ROOT);
    yard.c.hold(0).say(LIMITED, ClientMsg::Performed { tid, floor, cred, told, request });
    let refused = |message: &ServerMsg| matches!(message, ServerMsg::Refused { .. });
    assert!(yard.c.worlds[0].sent.iter().any(|(to, message)| *to == LIMITED && refused(message)));
}

fn granted(yard: &mut Yard, request: Request) -> Bits {
    let tid = yard.c.start(0, LIMITED, request);
    yard.c.pass(5);
    let sent = &yard.c.worlds[0].sent;
    let is = |message: &ServerMsg| match message {
        ServerMsg::Granted { tid: of, grants: proto::caps::Grants::One(bits), .. } if *of == tid => {
            Some(*bits)
        }
        _ => None,
    };
    sent.iter().filter(|(to, _)| *to == LIMITED).find_map(|(_, message)| is(message)).unwrap_or(Bits::NONE)
}

#[test]
pub(super) fn nothing_is_granted_of_what_is_outside_and_open() {
    let mut yard = Yard::of(1);
    yard.begin(Bits::ATTRS.with(Bits::FC));
    let (inside, outside) = (yard.inside, yard.outside);
    let file = yard.c.create(inside, "f");
    yard.opens(file);
    assert!(!granted(&mut yard, Request::GetAttr { node: file }).is_empty());
    let tid = yard.c.start(0, EMBEDDED, rename((inside, "f"), (outside, "g"), 0));
    assert!(yard.recalled(0));
    // It keeps nothing: three seconds after its connection broke.
    yard.c.pass(1);
    let list: Vec<_> = yard.c.worlds[0]
        .sent
        .iter()
        .filter_map(|(to, message)| match message {
            ServerMsg::Recall { list } if *to == LIMITED => Some(list.clone()),
            _ => None,
        })
        .flatten()
        .collect();
    let list =
        list.iter().map(|item| proto::caps::Returned { ino: item.ino, bits: item.bits, number: item.number });
    let list = list.collect();
    yard.c.hold(0).say(LIMITED, ClientMsg::Returned { list });
    assert_eq!(yard.c.wait(0, EMBEDDED, tid), Answered::Outcome(Ok(Reply::Ok)));
    yard.c.pass(2_500);
    assert_eq!(granted(&mut yard, Request::GetAttr { node: file }), Bits::NONE);
    assert!(yard.stats(file).is_ok(), "it is open");
}

#[test]
fn what_is_open_may_be_used_when_it_was_moved_out() {
    let (mut yard, [x, d, e, o]) = Yard::with_parts();
    let (near, far) = (yard.c.create(x, "near"), yard.c.create(e, "far"));
    for file in [near, far] {
        yard.opens(file);
    }
    assert_eq!(yard.c.rename((x, "near"), (yard.outside, "near")), Ok(Reply::Ok));
    assert_eq!(yard.c.rename((x, "d"), (o, "d")), Ok(Reply::Ok));
    for file in [near, far] {
        assert!(yard.stats(file).is_ok());
        let data = Payload::Owned(b"x".to_vec());
        let write = Request::Write { node: file, offset: 0, append: false, kill_suidgid: false, data };
        assert!(yard.asks(write).is_ok());
        let link = Request::Link { node: file, parent: x, name: n("kept") };
        assert_eq!(yard.asks(link), Err(Errno::EACCES), "it would stay");
    }
    // What is above is not open, and what is beside neither.
    assert_eq!((yard.looks(d, "e"), yard.stats(e)), (Err(Errno::EACCES), Err(Errno::EACCES)));
    yard.c.call(0, Request::Unlink { parent: e, name: n("far") }).expect("gone");
    assert!(yard.stats(far).is_ok(), "nobody has it by a name any more");
    for file in [near, far] {
        assert_eq!(yard.asks(Request::Release { node: file, count: 1 }), Ok(Reply::Ok));
        assert!(matches!(yard.stats(file), Err(Errno::EACCES | Errno::ESTALE)));
    }
}

#[test]
fn a_file_without_a_name_gets_its_first_inside() {
    let (mut yard, [x, d, e, o]) = Yard::with_parts();
    for (made, named) in [(x, e), (d, x), (e, d)] {
        let made = yard.asks(Request::TmpFile { parent: made, new: mode(0o644), flags: 2 });
        let Ok(Reply::Created { attr, .. }) = made else { panic!("{made:?}") };
        let link = |parent| Request::Link { node: node(&attr), parent, name: n("tmp") };
        assert_eq!(yard.asks(link(o)), Err(Errno::EACCES));
        assert!(yard.asks(link(named)).is_ok(), "{:?}", yard.c.worlds[0].notes);
    }
    // Somebody else's is nobody's business.
    let made = yard.c.call(0, Request::TmpFile { parent: x, new: mode(0o644), flags: 2 });
    let Ok(Reply::Created { attr, .. }) = made else { panic!("{made:?}") };
    assert_eq!(yard.stats(node(&attr)), Err(Errno::EACCES));
    let link = |parent| Request::Link { node: node(&attr), parent, name: n("theirs") };
    for parent in [x, d, e] {
        assert_eq!(yard.asks(link(parent)), Err(Errno::EACCES));
    }
}

/// Its home was asked by a rank that looked behind that: what others kept was taken back, who had it open was told to join, it was reserved,
/// and directories got entries of their own.
#[test]
pub(super) fn a_link_of_what_another_rank_has_outside_disturbs_nobody() {
    let mut yard = Yard::of(2);
    let o = yard.c.mkdir(yard.outside, "o");
    assert_eq!(yard.c.pin(o, 1), Ok(Reply::Ok));
    let (file, sub) = (yard.c.create(o, "f"), yard.c.mkdir(o, "sub"));
    yard.c.greet(1, Peer::Trusted, Bits::ATTRS.with(Bits::FC));
    for request in [Request::Open { node: file, flags: 2 }, Request::GetAttr { node: sub }] {
        let tid = yard.c.start(1, REMOTE, request);
        assert!(matches!(yard.c.wait(1, REMOTE, tid), Answered::Outcome(Ok(_))));
    }
    let world = &yard.c.worlds[1];
    let place = world.rank.sessions.map[&world.sessions[&REMOTE]].place.expect("a place");
    assert!([file, sub].iter().all(|of| world.rank.view.book.has(place, of.ino)), "or this shows nothing");
    yard.c.deaf = true;
    yard.c.worlds[1].sent.clear();
    let journal = yard.c.worlds[1].journal.len();
    for (at, node) in [file, sub, file, sub].into_iter().enumerate() {
        let link = Request::Link { node, parent: yard.inside, name: n(&format!("l{at}")) };
        assert_eq!(yard.at(0, link), DENIED);
        yard.c.pass(20);
    }
    let disturbs = |message: &ServerMsg| matches!(message, ServerMsg::Recall { .. } | ServerMsg::Join { .. });
    let world = &yard.c.worlds[1];
    assert!(!world.sent.iter().any(|(_, message)| disturbs(message)), "{:?}", world.sent);
    assert_eq!(world.journal.len(), journal, "nothing was reserved");
    assert!(yard.c.worlds.iter().all(|world| world.wishes.is_empty()));
}

#[test]
pub(super) fn a_link_of_a_directory_carves_nothing() {
    let mut yard = Yard::of(2);
    let d = yard.c.mkdir(yard.inside, "d");
    assert_eq!(yard.c.pin(d, 1), Ok(Reply::Ok));
    let sub = yard.c.mkdir(d, "sub");
    yard.c.deaf = true;
    let link = Request::Link { node: sub, parent: yard.inside, name: n("l") };
    for conn in [EMBEDDED, LIMITED] {
        let tid = yard.c.start(0, conn, link.clone());
        yard.c.pass(20);
        let answered = yard.c.take_answer(0, conn, tid);
        assert_eq!(answered, Some(Answered::Outcome(Err(Errno::EPERM))), "{conn:?}");
    }
    assert!(yard.c.worlds.iter().all(|world| world.wishes.is_empty()));
}
