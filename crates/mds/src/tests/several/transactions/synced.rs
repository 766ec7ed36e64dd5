//! What leaves its rank is synced first: bytes that nobody has synced do not stay behind, and none come back.
//!
//! Absent: what becomes of the file itself (`transactions.rs`).

use super::*;

impl Scene {
    /// Whether what a rank wrote of a file last it synced after that.
    fn is_synced(&self, at: usize, file: NodeRef) -> bool {
        let of_it = |op: &&DataOp| match op {
            DataOp::Write { file: of, .. } | DataOp::Sync { file: of } => of.ino == file.ino,
            _ => false,
        };
        let last = self.c.worlds[at].data_ops.iter().rev().find(of_it);
        matches!(last, Some(DataOp::Sync { .. }))
    }
}

/// Who is sent to rewrite its bytes is told that they were synced, also where it is the leader that gives the file away.
#[test]
fn what_leaves_its_leader_is_synced_first() {
    let mut s = Scene::new();
    let [linked, swapped] = ["a", "b"].map(|name| s.c.create(s.dir, name));
    s.c.write(linked, b"linked");
    s.c.write(swapped, b"swapped");
    assert!(!s.is_synced(1, linked) && !s.is_synced(1, swapped));
    s.link(linked, s.dir, "l");
    assert!(s.is_synced(1, linked), "it is in `//links` by now");
    let exchange = rename((root(), "f"), (s.dir, "b"), proto::request::rename_flags::EXCHANGE);
    assert_eq!(s.c.call(1, exchange), Ok(Reply::Ok));
    assert!(s.is_synced(0, s.file) && s.is_synced(1, swapped));
    let there = node(&s.c.lookup(root(), "f").expect("there"));
    assert_eq!(s.c.read(there), b"swapped");
    s.check_file(s.dir, "b", 1);
    s.c.assert_resolved();
}

#[test]
fn what_replaces_a_name_of_another_ranks_file_is_synced_first() {
    let mut s = Scene::new();
    s.link(s.file, s.dir, "l");
    let new = s.c.create(s.dir, "new");
    s.c.write(new, b"new");
    assert_eq!(s.c.rename((s.dir, "new"), (s.dir, "l")), Ok(Reply::Ok));
    assert!(s.is_synced(1, new));
    s.check_file(root(), "f", 1);
    assert_eq!(s.c.lookup(s.dir, "l").map(|attr| attr.ino), Ok(new.ino));
    // Where nothing is replaced nothing is synced.
    let other = s.c.create(s.dir, "other");
    s.c.write(other, b"other");
    assert_eq!(s.c.rename((s.dir, "other"), (s.dir, "more")), Ok(Reply::Ok));
    assert!(!s.is_synced(1, other));
}

/// Between telling and reserving somebody may write.
#[test]
fn what_is_written_before_it_is_reserved_is_synced_too() {
    let mut written = 0;
    for things in 0..20 {
        let mut s = Scene::new();
        s.c.worlds.iter_mut().for_each(|world| world.auto_durable = false);
        let tid = s.c.hold(1).start(EMBEDDED, Cred::ROOT, rename((root(), "f"), (s.dir, "g"), 0));
        (0..things).all(|_| s.c.one_thing());
        let data = Payload::Owned(b"more".to_vec());
        let write = Request::Write { node: s.file, offset: 0, append: false, kill_suidgid: false, data };
        let write = s.c.hold(0).start(EMBEDDED, Cred::ROOT, write);
        while s.c.one_thing() {}
        s.c.worlds.iter_mut().for_each(|world| world.auto_durable = true);
        if let Answered::Outcome(outcome) = s.c.wait(0, EMBEDDED, write) {
            assert!(outcome.is_ok(), "{outcome:?}");
            written += 1;
        }
        assert_eq!(s.c.wait(1, EMBEDDED, tid), Answered::Outcome(Ok(Reply::Ok)));
        assert!(s.is_synced(0, s.file), "after {things}");
        s.c.pass(20);
        s.c.assert_resolved();
    }
    assert!(written > 2, "{written} came before it left");
}

/// What it meant to do would come before all others for ever.
#[test]
fn what_is_given_up_while_it_syncs_is_in_nobodys_way() {
    let mut s = Scene::new();
    s.c.hold(0).hold_data = true;
    let first = s.c.start(1, EMBEDDED, rename((root(), "f"), (s.dir, "g"), 0));
    assert_eq!(s.c.worlds[0].held.len(), 1, "a sync");
    let id = *s.c.worlds[1].rank.view.transactions.leading.first().expect("one");
    let request = Request::Transact { id, step: proto::transact::Step::Abort };
    let message = ClientMsg::Request { tid: Tid(9_999), floor: Tid(0), cred: Cred::ROOT, request };
    let conn = s.c.links[&(1, 0)];
    s.c.inject(0, Input::Message { conn, message });
    s.c.hold(0).let_go();
    s.c.settle();
    assert_eq!(s.c.wait(1, EMBEDDED, first), Answered::Outcome(Err(Errno::EINTR)));
    assert_eq!(s.c.rename((root(), "f"), (s.dir, "g")), Ok(Reply::Ok));
    s.c.assert_resolved();
}

/// What broke: more of a rank's requests than one session may have under way were refused as a client's are; an Abort, which is said once, with
/// them, and what was reserved for it stayed reserved.
#[test]
pub(super) fn a_rank_with_much_under_way_ends_its_transactions() {
    let mut s = Scene::new();
    s.c.hold(0).hold_data = true;
    let first = s.c.start(1, EMBEDDED, rename((root(), "f"), (s.dir, "g"), 0));
    assert_eq!(s.c.worlds[0].held.len(), 1, "a sync");
    let allowed = std::mem::take(&mut s.c.worlds[0].rank.view.config.limits.parked_per_session);
    let conn = s.c.links[&(1, 0)];
    let id = *s.c.worlds[1].rank.view.transactions.leading.first().expect("one");
    let mut says = |tid: u64, request: Request| {
        let message = ClientMsg::Request { tid: Tid(tid), floor: Tid(0), cred: Cred::ROOT, request };
        s.c.inject(0, Input::Message { conn, message });
        s.c.worlds[0].answer(conn, Tid(tid))
    };
    let unit = Unit { dir: Ino::ROOT, frag: Frag::WHOLE };
    assert_eq!(says(9_998, Request::Totals { unit }), Some(Err(Errno::EAGAIN)), "it asks again");
    says(9_999, Request::Transact { id, step: proto::transact::Step::Abort });
    s.c.worlds[0].rank.view.config.limits.parked_per_session = allowed;
    s.c.hold(0).let_go();
    s.c.settle();
    assert_eq!(s.c.wait(1, EMBEDDED, first), Answered::Outcome(Err(Errno::EINTR)));
    assert_eq!(s.c.rename((root(), "f"), (s.dir, "g")), Ok(Reply::Ok));
    s.c.assert_resolved();
}

/// What broke: whoever led it waited for ever.
#[test]
pub(super) fn what_is_removed_while_it_syncs_is_said_to_be_gone() {
    let mut s = Scene::new();
    let new = s.c.create(s.dir, "x");
    s.c.write(new, b"bytes");
    s.c.hold(1).hold_data = true;
    let link = Request::Link { node: new, parent: root(), name: n("y") };
    let tid = s.c.start(0, EMBEDDED, link);
    assert_eq!(s.c.worlds[1].held.len(), 1, "a sync");
    assert_eq!(s.c.call(1, Request::Unlink { parent: s.dir, name: n("x") }), Ok(Reply::Ok));
    s.c.hold(1).let_go();
    s.c.settle();
    let answer = s.c.wait(0, EMBEDDED, tid);
    assert!(matches!(answer, Answered::Outcome(Err(_))), "{answer:?}");
    s.c.assert_resolved();
}

/// What broke: an object that an fsync had put into the old owner's journal came back after the new owner had removed it.
#[test]
pub(super) fn what_an_fsync_put_into_the_journal_does_not_come_back_behind_its_file() {
    let mut s = Scene::new();
    s.c.worlds[0].redo_syncs = true;
    s.c.worlds[0].data_ops.clear();
    assert!(s.c.call(0, Request::Fsync { node: s.file, data_only: false }).is_ok());
    let all = |op: &DataOp| matches!(op, DataOp::SyncAll);
    assert!(!s.c.worlds[0].data_ops.iter().any(all));
    assert_eq!(s.c.rename((root(), "f"), (s.dir, "g")), Ok(Reply::Ok));
    assert!(
        s.c.worlds[0].data_ops.iter().any(all),
        "else its bytes would be in its old owner's journal only"
    );
    s.c.crash(0);
    s.check_file(s.dir, "g", 1);
    assert_eq!(s.c.call(0, Request::Unlink { parent: s.dir, name: n("g") }), Ok(Reply::Ok));
    s.c.pass(50);
    assert!(s.c.hold(0).data.is_empty());
    s.c.crash(0);
    s.c.settle();
    assert!(s.c.hold(0).data.is_empty(), "{:?}", s.c.hold(0).data);
}
