//! The journal's bound when the store is slower than the requests.

use super::*;
use proto::attr::SetAttr;

/// A rank whose store answers nothing until told, with a request after the other until one waits. Returns the tids that wait.
fn filled(w: &mut World) -> Vec<Tid> {
    w.hold_stores = true;
    let mut waiting = Vec::new();
    for i in 0..2_000 {
        let request = Request::MkNod { parent: root(), name: n(&format!("f{i}")), new: mode(0o100_644) };
        let tid = w.start(EMBEDDED, Cred::ROOT, request);
        w.pass(1);
        if w.answer(EMBEDDED, tid).is_none() {
            waiting.push(tid);
        }
        if waiting.len() == 100 {
            return waiting;
        }
    }
    panic!("nobody waits: {:?}", w.rank.status());
}

fn answered(w: &World) -> Vec<Tid> {
    let tid = |message: &ServerMsg| match message {
        ServerMsg::Reply { tid, .. } => Some(*tid),
        _ => None,
    };
    w.sent.iter().filter_map(|(_, message)| tid(message)).collect()
}

#[test]
fn changes_wait_while_the_store_is_behind_and_everything_else_goes_on() {
    let mut w = World::new();
    w.create(root(), "before");
    let waiting = filled(&mut w);
    let size = w.config.journal_bytes;
    assert!(w.rank.status().journal_backlog <= 2 * size + 1024, "{:?}", w.rank.status());
    assert!(w.lookup(root(), "before").is_ok());
    assert!(!w.list(root()).is_empty());
    w.say(EMBEDDED, ClientMsg::Renew { number: 1 });
    assert!(answered(&w).is_empty(), "the lookup let nobody through");
    w.let_go();
    w.pass(1_000);
    assert_eq!(answered(&w), waiting);
    assert!(w.rank.status().journal_backlog <= 2 * size + 1024);
}

#[test]
fn a_checkpoint_waits_for_a_store_that_has_enough() {
    let mut w = World::new();
    let before = w.batch_bytes;
    filled(&mut w);
    w.pass(1_000);
    let limits = w.config.limits;
    // Of a directory that is mostly dirty a slice takes up to four times its entries, of 145 bytes here.
    let slice = 4 * 150 * limits.slice_entries as usize;
    let under_way = w.batch_bytes - before;
    assert!(under_way >= limits.store_bytes, "{under_way}");
    assert!(under_way < limits.store_bytes + slice, "{under_way}");
    w.let_go();
    w.pass(1_000);
    assert!(w.batch_bytes - before > 10 * limits.store_bytes, "and goes on when it has answered");
}

#[test]
fn they_go_on_bit_by_bit_as_records_are_stored() {
    let mut w = World::new();
    let waiting = filled(&mut w);
    let (mut steps, mut most) = (0, 0);
    while answered(&w).len() < waiting.len() {
        let before = answered(&w).len();
        let stored = w.held.pop_front().expect("the checkpoint has something under way");
        w.inject(stored);
        w.pass(1);
        let gone = answered(&w).len() - before;
        steps += usize::from(gone > 0);
        most = most.max(gone);
        assert!(w.rank.status().journal_backlog <= 2 * w.config.journal_bytes + 1024);
    }
    assert_eq!(answered(&w), waiting, "in order of arrival");
    assert!(steps > 5 && most < waiting.len() / 2, "{steps} portions, the largest of {most}");
}

#[test]
fn on_a_full_disk_nobody_waits() {
    let mut w = World::new();
    w.create(root(), "old");
    let waiting = filled(&mut w);
    let unlink = w.start(EMBEDDED, Cred::ROOT, Request::Unlink { parent: root(), name: n("old") });
    assert!(w.answer(EMBEDDED, unlink).is_none());
    w.inject(Input::Space { full: true });
    w.pass(1);
    assert_eq!(w.answer(EMBEDDED, unlink), Some(Ok(Reply::Ok)));
    assert_eq!(answered(&w), waiting);
}

#[test]
fn a_checkpoint_that_finds_no_space_holds_nobody() {
    let mut w = World::new();
    w.create(root(), "old");
    w.store_fails = Some(StoreError::NoSpace);
    for i in 0..500 {
        let request = Request::SetAttr {
            node: root(),
            set: SetAttr { mode: Some(0o700 + i % 8), ..Default::default() },
        };
        let tid = w.start(EMBEDDED, Cred::ROOT, request);
        w.pass(5);
        assert!(w.answer(EMBEDDED, tid).is_some(), "{i}: {:?}", w.rank.status());
    }
    assert!(w.rank.status().journal_backlog > 2 * w.config.journal_bytes);
    assert_eq!(w.unlink(root(), "old"), Ok(Reply::Ok));
}

#[test]
fn what_waits_ends_with_its_session_and_with_the_rank() {
    let mut w = World::new();
    let other = ConnId(7);
    w.hello(other, Peer::Trusted, SessionId(0));
    filled(&mut w);
    let lost = Request::MkDir { parent: root(), name: n("lost"), new: mode(0o755) };
    w.start(other, Cred::ROOT, lost);
    w.say(other, ClientMsg::Goodbye);
    w.let_go();
    w.pass(1_000);
    assert_eq!(w.lookup(root(), "lost"), Err(Errno::ENOENT));
    assert_eq!(w.rank.status().parked, 0);
    w.sent.clear();
    let waiting = filled(&mut w);
    w.inject(Input::Stop);
    w.pass(1);
    assert_eq!(answered(&w), waiting);
    w.let_go();
    w.pass(100);
    assert_eq!(w.rank.state(), State::Stopped);
}
