//! What clients keep of what leaves a rank by a transaction.
//!
//! Absent: what others keep of it (`../transactions.rs`, `what_a_client_keeps_comes_back_first`).

use super::*;
use proto::request::rename_flags::EXCHANGE;

/// Found by the simulator: the session that asked kept what it had been granted of a directory that left with its own rename. Its new rank
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
