//! Directories whose inode is at one rank and whose content at another.
//!
//! Absent: how they come about (`moves.rs`).

use super::*;

fn chmod(c: &mut Cluster, dir: NodeRef, mode: u32) -> Outcome {
    let set = proto::SetAttr { mode: Some(mode), ..Default::default() };
    c.call(0, Request::SetAttr { node: dir, set })
}

#[test]
fn attributes_show_what_the_other_rank_has() {
    let (mut c, dir) = Cluster::with_moved();
    assert_eq!((c.stat(dir).size, c.stat(dir).nlink), (2, 3));
    let before = c.stat(dir);
    c.create(dir, "new");
    c.mkdir(dir, "dir");
    let after = c.stat(dir);
    assert_eq!((after.size, after.nlink), (4, 4));
    assert!(after.mtime > before.mtime && after.change > before.change);
    let looked_up = c.lookup(root(), "d").expect("there");
    assert_eq!(looked_up, after);
    let count = Request::GetXattr { node: dir, name: n("ceph.dir.entries") };
    assert_eq!(c.call(0, count), Ok(Reply::Xattr(b"4"[..].into())));
    assert_eq!(c.names(root()), ["d"], "the listing is answered without asking");
}

#[test]
pub(super) fn permissions_of_its_content_follow_the_home_at_once() {
    let (mut c, dir) = Cluster::with_moved();
    let user = Cred { uid: 1000, gid: 1000, groups: Vec::new() };
    c.greet(1, Peer::User(user.clone()), Bits::NONE);
    let lookup = |c: &mut Cluster| {
        let tid = c.start_as(1, REMOTE, user.clone(), Request::Lookup { parent: dir, name: n("f") });
        c.wait(1, REMOTE, tid)
    };
    assert!(matches!(lookup(&mut c), Answered::Outcome(Ok(_))));
    assert!(chmod(&mut c, dir, 0o700).is_ok());
    assert_eq!(lookup(&mut c), Answered::Outcome(Err(Errno::EACCES)));
    assert!(chmod(&mut c, dir, 0o755).is_ok());
    assert!(matches!(lookup(&mut c), Answered::Outcome(Ok(_))));
    // Its group goes to what is made there, as the home has it.
    let set = proto::SetAttr { mode: Some(0o2777), gid: Some(42), ..Default::default() };
    assert!(c.call(0, Request::SetAttr { node: dir, set }).is_ok());
    let made = c.attr(1, Request::MkNod { parent: dir, name: n("x"), new: mode(0o100_644) });
    assert_eq!(made.map(|attr| attr.gid), Ok(42));
}

#[test]
pub(super) fn a_change_waits_for_a_rank_that_cannot_be_asked() {
    let (mut c, dir) = Cluster::with_moved();
    c.create(dir, "made");
    // The connection breaks at home, and the other rank has not noticed.
    let conn = c.links[&(1, 0)];
    c.inject(0, Input::Disconnected { conn });
    let set = proto::SetAttr { mode: Some(0o700), ..Default::default() };
    let tid = c.start(0, EMBEDDED, Request::SetAttr { node: dir, set });
    c.pass(50);
    assert_eq!(c.take_answer(0, EMBEDDED, tid), None, "it may still go by what it was told");
    c.links.remove(&(1, 0));
    c.inject(1, Input::RankGone { rank: RankId(0) });
    assert!(matches!(c.wait(0, EMBEDDED, tid), Answered::Outcome(Ok(_))));
    let user = Cred { uid: 1000, gid: 1000, groups: Vec::new() };
    c.greet(1, Peer::User(user.clone()), Bits::NONE);
    let tid = c.start_as(1, REMOTE, user, Request::Lookup { parent: dir, name: n("made") });
    assert_eq!(c.wait(1, REMOTE, tid), Answered::Outcome(Err(Errno::EACCES)));
}

#[test]
pub(super) fn a_home_that_lives_again_changes_nothing_that_others_may_keep() {
    let (mut c, dir) = Cluster::with_moved();
    c.create(dir, "made");
    c.cut.insert((1, 0));
    c.crash(0);
    let set = proto::SetAttr { mode: Some(0o700), ..Default::default() };
    let tid = c.start(0, EMBEDDED, Request::SetAttr { node: dir, set });
    c.pass(50);
    assert_eq!(c.take_answer(0, EMBEDDED, tid), None);
    assert!(c.attr(0, Request::MkDir { parent: root(), name: n("else"), new: mode(0o755) }).is_ok());
    c.cut.clear();
    assert!(matches!(c.wait(0, EMBEDDED, tid), Answered::Outcome(Ok(_))));
}

/// Nor does who has it then, who knows still less of what others keep.
#[test]
pub(super) fn a_home_that_lives_again_gives_nothing_away_that_others_may_keep() {
    let mut c = Cluster::of(3);
    let above = c.mkdir(root(), "above");
    let dir = c.mkdir(above, "d");
    assert_eq!(c.pin(dir, 2), Ok(Reply::Ok), "{:?}", c.worlds[0].notes);
    // A pin would pull it back.
    c.inject(0, Input::Move { dir: above.ino, to: RankId(1) });
    c.pass(50);
    c.create(dir, "made");
    assert!(c.worlds[2].rank.peers.replicas.contains_key(&dir.ino));
    c.cut.insert((2, 1));
    c.crash(1);
    c.inject(1, Input::Move { dir: above.ino, to: RankId(0) });
    c.pass(50);
    let set = proto::SetAttr { mode: Some(0o700), ..Default::default() };
    let request = Request::SetAttr { node: dir, set };
    let tid = c.start(0, EMBEDDED, request.clone());
    c.pass(50);
    assert_eq!(c.take_answer(0, EMBEDDED, tid), Some(NOT_MINE(1)), "rank 2 may still go by what it was told");
    assert_eq!(c.owner(above), Some(1), "it is not announced yet");
    c.cut.clear();
    c.pass(100);
    assert_eq!(c.owner(above), Some(0), "{:?}", c.worlds[1].notes);
    let tid = c.start(0, EMBEDDED, request);
    assert!(matches!(c.wait(0, EMBEDDED, tid), Answered::Outcome(Ok(_))));
}

#[test]
fn a_sync_of_a_directory_is_answered_on_both_sides() {
    let (mut c, dir) = Cluster::with_moved();
    for rank in 0..2 {
        let fsync = Request::Fsync { node: dir, data_only: false };
        assert_eq!(c.ask(rank, fsync), Answered::Outcome(Ok(Reply::Ok)));
    }
}

#[test]
fn an_empty_one_is_removed_by_way_of_its_home() {
    let (mut c, dir) = Cluster::with_moved();
    let rmdir = || Request::RmDir { parent: root(), name: n("d") };
    assert_eq!(c.call(0, rmdir()), Err(Errno::ENOTEMPTY));
    assert_eq!(c.owner(dir), Some(1));
    let sub = node(&c.lookup(dir, "sub").expect("there"));
    for (parent, name) in [(sub, "deep"), (dir, "f")] {
        assert!(c.call(0, Request::Unlink { parent, name: n(name) }).is_ok());
    }
    assert!(c.call(0, Request::RmDir { parent: dir, name: n("sub") }).is_ok());
    assert_eq!(c.call(0, rmdir()), Ok(Reply::Ok), "{:?}", c.worlds[1].notes);
    assert_eq!(c.lookup(root(), "d"), Err(Errno::ENOENT));
    assert_eq!(c.ask(1, Request::Lookup { parent: dir, name: n("f") }), NOT_MINE(0));
    // It has everything, and says that others may have what is without a name: that it is gone is known when none has it.
    assert_eq!(c.call(0, Request::Lookup { parent: dir, name: n("f") }), Err(Errno::ESTALE));
}

/// What broke: just behind its rank's death the answer was EBUSY, also where another file was open.
#[test]
fn one_is_replaced_when_it_is_known_what_former_sessions_keep() {
    let mut c = Cluster::new();
    let (dir, other) = (c.mkdir(root(), "d"), c.mkdir(root(), "other"));
    c.mkdir(root(), "new");
    assert_eq!((c.pin(dir, 1), c.pin(other, 1)), (Ok(Reply::Ok), Ok(Reply::Ok)));
    let file = c.create(other, "f");
    c.greet(0, Peer::Trusted, Bits::ATTRS);
    c.hold(1).wants = Bits::ATTRS;
    c.join(0, 1, Peer::Trusted);
    let tid = c.start(1, REMOTE, Request::GetAttr { node: file });
    assert!(matches!(c.wait(1, REMOTE, tid), Answered::Outcome(Ok(_))));
    let session = c.worlds[1].sessions[&REMOTE];
    c.crash(1);
    let world = c.hold(1);
    let welcome = world.hello(REMOTE, Peer::Trusted, session);
    assert!(matches!(welcome, Some(ServerMsg::Welcome { resumed: true, .. })), "{welcome:?}");
    world.say(REMOTE, ClientMsg::Reclaimed);
    c.settle();
    let (parent, new_parent) = (root(), root());
    let over = Request::Rename { parent, name: n("new"), new_parent, new_name: n("d"), flags: 0 };
    let tid = c.start(0, EMBEDDED, over);
    c.pass(20);
    assert_eq!(c.take_answer(0, EMBEDDED, tid), None);
    c.hold(1).say(REMOTE, ClientMsg::Settled);
    assert_eq!(c.wait(0, EMBEDDED, tid), Answered::Outcome(Ok(Reply::Ok)), "{:?}", c.worlds[1].notes);
}

#[cfg(feature = "mutants")]
#[test]
fn a_removal_that_does_not_wait_is_caught() {
    stdx::mutant::activate(Some("mds_hand_does_not_wait"));
    let verdict = std::panic::catch_unwind(one_is_replaced_when_it_is_known_what_former_sessions_keep);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
}

#[test]
fn a_name_with_siblings_at_rank_0_shows_its_attributes() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    let file = c.create(dir, "f");
    assert!(c.call(0, Request::Link { node: file, parent: root(), name: n("l") }).is_ok());
    assert_eq!(c.pin(dir, 1), Ok(Reply::Ok));
    let here = c.lookup(root(), "l").expect("at rank 0");
    let there = match c.ask(1, Request::Lookup { parent: dir, name: n("f") }) {
        Answered::Outcome(Ok(Reply::Attr(attr))) => attr,
        other => panic!("{other:?}"),
    };
    assert_eq!((there, there.nlink), (here, 2));
    assert_eq!(c.call(1, Request::Unlink { parent: dir, name: n("f") }), Ok(Reply::Ok));
    assert_eq!(c.lookup(root(), "l").map(|attr| attr.nlink), Ok(1));
}

#[test]
fn its_parent_is_told_at_home() {
    let (mut c, dir) = Cluster::with_moved();
    let inner = c.mkdir(dir, "inner");
    assert_eq!(c.pin(inner, 0), Ok(Reply::Ok));
    // The inode of what is in `dir` is at rank 1, and that of `dir` a replica there.
    let Ok(Reply::Node(parent)) = c.call(1, Request::Parent { node: inner }) else { panic!("no parent") };
    assert_eq!((parent.ino, parent.parent), (dir.ino, Ino::ROOT));
    c.create(inner, "x");
    assert_eq!(c.ask(1, Request::Lookup { parent: inner, name: n("x") }), NOT_MINE(0));
    assert_eq!((c.stat(inner).size, c.names(inner)), (1, vec!["x".to_owned()]));
}
