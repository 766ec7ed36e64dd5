//! What clients keep of what leaves a rank by a transaction.
//!
//! Absent: what others keep of it (`../transactions.rs`, `what_a_client_keeps_comes_back_first`).

use super::*;
use proto::request::rename_flags::EXCHANGE;

/// What broke: the session that asked kept what it had been granted of a directory that left with its own rename. Its new rank
/// knew nothing of that, and others made names in it that the session took for absent.
#[test]
pub(super) fn what_the_session_that_asks_keeps_comes_back_too() {
    for is_dir in [false, true] {
        let mut s = Scene::new();
        let node = if is_dir { s.c.mkdir(s.dir, "g") } else { s.c.create(s.dir, "g") };
        s.c.greet(1, Peer::Trusted, Bits::ATTRS);
        s.c.hold(1).say(REMOTE, ClientMsg::Settled);
        let lookup = s.c.start(1, REMOTE, Request::Lookup { parent: s.dir, name: n("g") });
        assert!(matches!(s.c.wait(1, REMOTE, lookup), Answered::Outcome(Ok(_))));
        let tid = s.c.start(1, REMOTE, rename((root(), "f"), (s.dir, "g"), EXCHANGE));
        s.c.pass(20);
        assert_eq!(s.c.take_answer(1, REMOTE, tid), None, "it keeps what leaves");
        let mut recalls = 0;
        while let Some(ServerMsg::Recall { list }) = s.c.heard(1, |m| matches!(m, ServerMsg::Recall { .. })) {
            recalls += 1;
            assert_eq!((list[0].ino, list[0].name.clone()), (node.ino, Some((s.dir.ino, n("g")))));
            let returned = list.iter().map(|recalled| recalled.returned(recalled.bits)).collect();
            s.c.hold(1).say(REMOTE, ClientMsg::Returned { list: returned });
            s.c.settle();
        }
        assert!(recalls > 0, "nothing is recalled");
        assert_eq!(s.c.wait(1, REMOTE, tid), Answered::Outcome(Ok(Reply::Ok)));
        assert_eq!(s.c.lookup(root(), "f").map(|attr| attr.ino), Ok(node.ino));
        s.c.assert_resolved();
    }
}

/// What broke: a file went to `//links`, and its name stayed in a directory that a client had delegated to it. That renamed the name by
/// itself, and heard late that it had failed.
#[test]
pub(super) fn a_directory_comes_back_before_what_is_named_there_leaves() {
    for leader in [1, 2] {
        let mut s = Scene::of(3);
        let dir = s.c.mkdir(s.dir, "sub");
        let file = s.c.create(dir, "a");
        s.c.greet(1, Peer::Trusted, Bits::ATTRS.with(Bits::DX));
        for name in ["x0", "x1", "x2", "x3"] {
            let request = Request::MkNod { parent: dir, name: n(name), new: mode(0o100_644) };
            s.c.start(1, REMOTE, request);
            s.c.pass(1);
        }
        let delegates =
            |m: &ServerMsg| matches!(m, ServerMsg::Early { delegated, .. } if !delegated.is_empty());
        assert!(s.c.heard(1, delegates).is_some(), "it is delegated");
        let parent = if leader == 1 { s.dir } else { s.third.expect("a third rank's") };
        let link = s.c.start(leader, EMBEDDED, Request::Link { node: file, parent, name: n("l") });
        s.c.pass(20);
        assert_eq!(s.c.take_answer(leader, EMBEDDED, link), None, "its directory is delegated");
        // What its client did comes first.
        let tid = s.c.hold(1).next_tid();
        let told =
            proto::message::Told { ino: Ino::NONE, wall: Wall(s.c.worlds[1].now as i64), heard: false };
        let request = rename((dir, "a"), (dir, "b"), 0);
        let performed = ClientMsg::Performed { tid, floor: tid, cred: Cred::ROOT, told, request };
        s.c.inject(1, Input::Message { conn: REMOTE, message: performed });
        s.c.settle();
        assert!(s.c.heard(1, |m| matches!(m, ServerMsg::Done { .. })).is_some());
        for _ in 0..20 {
            let recalled = s.c.heard(1, |m| matches!(m, ServerMsg::Recall { .. }));
            let list = if let Some(ServerMsg::Recall { list }) = recalled { list } else { Vec::new() };
            let all = list.iter().map(|item| item.returned(item.bits)).collect();
            s.c.inject(1, Input::Message { conn: REMOTE, message: ClientMsg::Returned { list: all } });
            s.c.pass(5);
        }
        let linked = s.c.wait(leader, EMBEDDED, link);
        assert!(matches!(linked, Answered::Outcome(Ok(_))), "{linked:?}");
        assert_eq!(s.c.lookup(dir, "b").map(|attr| (attr.ino, attr.nlink)), Ok((file.ino, 2)));
        assert_eq!(s.c.lookup(dir, "a").map(|attr| attr.ino), Err(Errno::ENOENT));
        s.c.pass(50);
        s.c.assert_resolved();
    }
}
