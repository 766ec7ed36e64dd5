//! Directories that are removed, or replaced, while a transaction is undecided that may empty them.
//!
//! Absent: what else waits for what is reserved (`../transactions.rs`).

use super::*;

/// A directory of rank 0's, or whose content that rank has, with one file in it that a transaction of rank 1's is to take out; reserved and
/// undecided.
fn half_emptied(content: Option<u16>) -> Scene {
    let mut s = Scene::of(3);
    let sub = s.c.mkdir(root(), "sub");
    assert_eq!(s.c.rename((root(), "f"), (sub, "f")), Ok(Reply::Ok));
    s.c.mkdir(root(), "new");
    if let Some(rank) = content {
        assert_eq!(s.c.pin(sub, rank), Ok(Reply::Ok));
    }
    s.c.worlds[1].auto_durable = false;
    s.c.start(1, EMBEDDED, rename((sub, "f"), (s.dir, "g"), 0));
    let at = usize::from(content.unwrap_or(0));
    assert!(s.c.worlds[at].rank.view.transactions.has_in(sub.ino));
    s
}

/// The request has no answer before that is decided, and then the one that fits.
fn waits_for_the_decision(content: Option<u16>, request: &Request, emptied: Outcome) {
    for commits in [true, false] {
        let mut s = half_emptied(content);
        let tid = s.c.start(0, EMBEDDED, request.clone());
        s.c.pass(20);
        assert_eq!(s.c.take_answer(0, EMBEDDED, tid), None, "it is undecided");
        if commits {
            s.c.worlds[1].auto_durable = true;
            s.c.hold(1).sync();
            s.c.settle();
        } else {
            s.c.crash(1);
            s.c.worlds[1].auto_durable = true;
            s.c.hold(1).sync();
        }
        let expected = if commits { emptied.clone() } else { Err(Errno::ENOTEMPTY) };
        assert_eq!(s.c.wait(0, EMBEDDED, tid), Answered::Outcome(expected), "commits: {commits}");
        s.c.pass(50);
        s.c.assert_resolved();
    }
}

fn removal() -> Request {
    Request::RmDir { parent: root(), name: n("sub") }
}

#[test]
pub(super) fn a_directory_that_may_become_empty_is_removed_or_not_when_that_is_decided() {
    waits_for_the_decision(None, &removal(), Ok(Reply::Ok));
}

#[test]
fn so_is_one_whose_content_another_rank_has() {
    waits_for_the_decision(Some(2), &removal(), Ok(Reply::Ok));
}

#[test]
pub(super) fn a_directory_that_may_become_empty_is_replaced_or_not_when_that_is_decided() {
    waits_for_the_decision(None, &rename((root(), "new"), (root(), "sub"), 0), Ok(Reply::Ok));
}
