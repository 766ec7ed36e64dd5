//! Parts of transactions that are not where they are looked for.
//!
//! Absent: whose a request is (`../bounces.rs`).

use super::*;
use crate::op::{Op, Park, Stop};
use crate::transactions::part;
use proto::dentry::encode_primary;
use proto::request::rename_flags::EXCHANGE;
use proto::transact::{Change, Reserved, Step, TxnId};

/// All that a rank was asked for went to another one with the inode that had gone there.
#[test]
pub(super) fn a_part_that_has_moved_takes_no_others_along() {
    let mut s = Scene::of(3);
    let third = s.third.expect("rank 2's");
    let other = s.c.create(root(), "o");
    s.link(other, third, "l");
    assert_eq!(s.c.rename((root(), "f"), (s.dir, "g")), Ok(Reply::Ok));
    // By its place of before.
    let link = Request::Link { node: s.file, parent: third, name: n("l") };
    assert_eq!(s.c.ask(2, link), Answered::Outcome(Err(Errno::EEXIST)));
    let link = Request::Link { node: s.file, parent: third, name: n("m") };
    assert!(matches!(s.c.ask(2, link), Answered::Outcome(Ok(_))));
    s.check_file(third, "m", 2);
}

/// By its place of before the leader is asked, by its number another rank, which sends the leader back to that place.
#[test]
pub(super) fn a_part_that_is_gone_is_not_looked_for_without_end() {
    let mut s = Scene::new();
    let link = |node: NodeRef, name: &str| Request::Link { node, parent: s.dir, name: n(name) };
    let gone = NodeRef { ino: Ino(9_999_999), parent: s.dir.ino, hash: NameHash(77) };
    let (lost, found) = (link(gone, "l"), link(s.file, "l"));
    let from = Request::Rename { parent: gone, name: n("x"), new_parent: s.dir, new_name: n("l"), flags: 0 };
    assert_eq!(s.c.ask(1, lost), Answered::Outcome(Err(Errno::ESTALE)));
    assert_eq!(s.c.ask(1, from), Answered::Outcome(Err(Errno::ESTALE)));
    assert!(matches!(s.c.ask(1, found), Answered::Outcome(Ok(_))));
    s.c.assert_resolved();
}

/// What broke: who led it went by a name that was over, and said ESTALE of the file that it had led to.
#[test]
pub(super) fn a_name_that_is_over_before_it_is_reserved_is_looked_at_again() {
    let mut s = Scene::new();
    s.link(s.file, s.dir, "l");
    assert_eq!(s.c.call(0, Request::Unlink { parent: root(), name: n("f") }), Ok(Reply::Ok));
    s.c.create(root(), "r");
    s.c.greet(0, Peer::Trusted, Bits::ATTRS);
    s.c.hold(0).say(REMOTE, ClientMsg::Settled);
    let lookup = s.c.start(0, REMOTE, Request::Lookup { parent: root(), name: n("r") });
    assert!(matches!(s.c.wait(0, REMOTE, lookup), Answered::Outcome(Ok(_))));
    let tid = s.c.start(0, EMBEDDED, rename((s.dir, "l"), (root(), "r"), 0));
    s.c.pass(20);
    assert_eq!(s.c.take_answer(0, EMBEDDED, tid), None, "a client keeps what is replaced");
    assert_eq!(s.c.call(1, Request::Unlink { parent: s.dir, name: n("l") }), Ok(Reply::Ok));
    s.c.pass(50);
    let Some(ServerMsg::Recall { list }) = s.c.heard(0, |m| matches!(m, ServerMsg::Recall { .. })) else {
        panic!("nothing is recalled")
    };
    let returned = list.iter().map(|recalled| recalled.returned(recalled.bits)).collect();
    s.c.hold(0).say(REMOTE, ClientMsg::Returned { list: returned });
    s.c.settle();
    assert_eq!(s.c.wait(0, EMBEDDED, tid), Answered::Outcome(Err(Errno::ENOENT)));
    s.c.assert_resolved();
}

/// What broke: by its place of before the leader asked again and again the rank that has that directory by now, which
/// sent it back, and nobody else.
#[test]
pub(super) fn what_the_leader_has_sent_away_is_asked_for_where_it_went() {
    let mut s = Scene::of(3);
    let third = s.third.expect("rank 2's");
    // The file is at home in rank 1's, its second name makes it rank 0's, and its directory becomes rank 2's.
    let sub = s.c.mkdir(s.dir, "sub");
    let file = s.c.create(sub, "f");
    assert_eq!(s.c.rename((sub, "f"), (s.dir, "x")), Ok(Reply::Ok));
    s.c.checkpoint(1);
    assert_eq!(s.c.rename((s.dir, "x"), (sub, "f")), Ok(Reply::Ok));
    s.link(file, s.dir, "l");
    assert_eq!(s.c.pin(sub, 2), Ok(Reply::Ok));
    let link = Request::Link { node: file, parent: s.dir, name: n("m") };
    assert_eq!(s.c.ask(2, Request::GetAttr { node: file }), NOT_MINE(1), "so the store says yet");
    assert!(matches!(s.c.ask(1, link), Answered::Outcome(Ok(_))));
    s.link(file, third, "n");
    assert_eq!(s.c.lookup(third, "n").map(|attr| attr.nlink), Ok(4));
    s.c.assert_resolved();
}

/// The rank that made the file has forgotten where it went, and the one that has it has not stored that yet.
#[test]
pub(super) fn what_nobody_knows_the_place_of_is_asked_for_everywhere() {
    let mut s = Scene::of(3);
    let third = s.third.expect("rank 2's");
    assert_eq!(s.c.rename((root(), "f"), (third, "g")), Ok(Reply::Ok));
    s.c.pass(50);
    s.c.checkpoint(0);
    s.c.crash(0);
    s.c.settle();
    let link = Request::Link { node: s.file, parent: s.dir, name: n("l") };
    assert!(matches!(s.c.ask(1, link), Answered::Outcome(Ok(_))));
    s.check_file(s.dir, "l", 2);
    s.c.assert_resolved();
}

/// What broke: the rank remembered where the file had gone from it, and looked there only, when the file was back with a
/// directory: nobody had it.
#[test]
pub(super) fn what_went_comes_back_with_a_directory() {
    for other in [false, true] {
        let mut s = Scene::of(3);
        let dir = s.dir;
        let to = if other { s.c.mkdir(root(), "to") } else { dir };
        if other {
            assert_eq!(s.c.pin(to, 1), Ok(Reply::Ok));
        }
        assert_eq!(s.c.rename((root(), "f"), (dir, "g")), Ok(Reply::Ok));
        assert_eq!(s.c.rename((dir, "g"), (to, "h")), Ok(Reply::Ok));
        s.c.pass(50);
        assert!(s.c.worlds[0].rank.view.moved.went(s.file.ino).is_some());
        assert_eq!(s.c.pin(to, 0), Ok(Reply::Ok), "{:?}", s.c.worlds[1].notes);
        if other {
            assert_eq!(s.c.names(to), ["h"]);
            assert_eq!(s.c.worlds[0].rank.view.moved.went(s.file.ino), None, "it was listed here");
        }
        let get = Request::GetAttr { node: NodeRef::bare(s.file.ino) };
        assert_eq!(s.c.attr(0, get).map(|attr| attr.parent), Ok(to.ino), "another: {other}");
        assert_eq!(s.c.worlds[0].rank.view.moved.went(s.file.ino), None, "it is back");
        assert_eq!(s.c.read(s.file), DATA, "by where it was seen first");
    }
}

/// What broke: what had taken the file away was carried out at its old home when the file was back, and ended what was known of its
/// place, which was never stored.
#[test]
pub(super) fn what_is_back_before_it_has_left_waits_for_that() {
    let (mut s, tid) = prepared();
    // Decided, and rank 0 does not hear of it.
    s.c.cut.insert((1, 0));
    s.c.worlds[1].auto_durable = true;
    s.c.hold(1).sync();
    s.c.settle();
    assert_eq!(s.c.wait(1, EMBEDDED, tid), Answered::Outcome(Ok(Reply::Ok)));
    let back = s.c.start(0, EMBEDDED, rename((s.dir, "g"), (root(), "back"), 0));
    s.c.settle();
    s.c.cut.clear();
    s.c.pass(50);
    assert_eq!(s.c.wait(0, EMBEDDED, back), Answered::Outcome(Ok(Reply::Ok)));
    s.c.pass(50);
    s.c.assert_resolved();
    (0..2).for_each(|rank| s.c.checkpoint(rank));
    assert_eq!(stored_place(&mut s.c, s.file.ino), Some(Ino::ROOT));
    s.check_file(root(), "back", 1);
}

/// What broke: two transactions of one leader take a file away and bring it back, and after their link broke the second one is told
/// first, when the file is still under its old name.
#[test]
pub(super) fn what_is_back_before_it_has_left_waits_where_it_still_is() {
    let mut s = Scene::new();
    let file = s.c.create(s.dir, "g");
    assert!(s.c.lookup(s.dir, "x").is_err(), "that is known from here on");
    s.c.worlds[0].auto_durable = false;
    s.c.start(0, EMBEDDED, rename((s.dir, "g"), (root(), "c"), 0));
    let view = &mut s.c.hold(1).rank.view;
    let slot = view.cache.by_ino(file.ino).expect("it is at home here yet");
    let (mut value, name, id) = (Writer::new(), n("x"), TxnId(1));
    encode_primary(&view.cache.node(slot).core, None, &mut value);
    let reserved = Reserved { dir: s.dir.ino, hash: view.name_hash(&name), ino: Ino::NONE };
    view.transactions.prepare(id, RankId(0), vec![reserved]);
    let step = Step::Commit { changes: vec![Change::Put { dir: s.dir.ino, name, value: value.0.into() }] };
    let request = Request::Transact { id, step: step.clone() };
    let mut op = Op::new(1, (SessionId(1), Tid(1)), Cred::ROOT, request, Mono(0));
    let planned = part::plan(view, &mut op, id, &step);
    assert!(matches!(planned, Err(Stop::Park(Park::Reserved))));
}

/// What broke: it withheld the directory from the rank that it asked for a name in it, and that waited for a replica.
#[test]
pub(super) fn who_asks_for_a_name_withholds_its_directory_no_more() {
    let mut s = Scene::new();
    let there = s.c.mkdir(root(), "y");
    assert_eq!(s.c.rename((root(), "f"), (there, "f")), Ok(Reply::Ok));
    s.c.create(root(), "r");
    s.c.greet(0, Peer::Trusted, Bits::ATTRS);
    s.c.hold(0).say(REMOTE, ClientMsg::Settled);
    let lookup = s.c.start(0, REMOTE, Request::Lookup { parent: root(), name: n("r") });
    assert!(matches!(s.c.wait(0, REMOTE, lookup), Answered::Outcome(Ok(_))));
    let tid = s.c.start(0, EMBEDDED, rename((there, "f"), (root(), "r"), EXCHANGE));
    assert_eq!(s.c.pin(there, 1), Ok(Reply::Ok));
    assert_eq!(s.c.take_answer(0, EMBEDDED, tid), None, "a client keeps what is exchanged");
    let mut recalls = 0;
    while let Some(ServerMsg::Recall { list }) = s.c.heard(0, |m| matches!(m, ServerMsg::Recall { .. })) {
        let returned = list.iter().map(|recalled| recalled.returned(recalled.bits)).collect();
        s.c.hold(0).say(REMOTE, ClientMsg::Returned { list: returned });
        s.c.settle();
        recalls += 1;
    }
    assert!(recalls > 0, "nothing is recalled");
    assert_eq!(s.c.wait(0, EMBEDDED, tid), Answered::Outcome(Ok(Reply::Ok)));
    s.check_names(there, &["f"]);
    s.check_file(root(), "r", 1);
    s.c.assert_resolved();
}
