//! Early answers: what is kept, for how long, and how it is sent again.
//!
//! Absent: what the client performs by itself (`delegated.rs`).

use super::*;
use proto::Position;
use proto::message::Told;
use proto::storeio::{Lent, Payload};
use proto::{Kind, Name};
use std::sync::Arc;
use stdx::Wall;

pub(super) fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

pub(super) fn create(parent: u64, text: &str) -> Request {
    let new = proto::request::NewNode { mode: 0o644, umask: 0, rdev: 0 };
    Request::Create { parent: node(parent), name: name(text), new, flags: 2 }
}

pub(super) fn unlink(parent: u64, text: &str) -> Request {
    Request::Unlink { parent: node(parent), name: name(text) }
}

pub(super) fn early(tid: u64, position: u64, outcome: Outcome) -> Input {
    early_with(tid, position, outcome, Vec::new())
}

pub(super) fn early_with(
    tid: u64,
    position: u64,
    outcome: Outcome,
    delegated: Vec<proto::message::Delegated>,
) -> Input {
    from_rank(ServerMsg::Early {
        tid: Tid(tid),
        position: Position(position),
        wall: Wall(1_000 + position as i64),
        outcome,
        grants: Grants::None,
        delegated,
    })
}

pub(super) fn created(ino: u64) -> Outcome {
    Ok(Reply::Created { attr: Attr { ino: Ino(ino), ..Attr::default() }, new: true })
}

pub(super) fn durable(position: u64) -> Input {
    from_rank(ServerMsg::Durable { position: Position(position) })
}

pub(super) fn done(tid: u64, position: u64) -> Input {
    from_rank(ServerMsg::Done { tid: Tid(tid), position: Position(position) })
}

/// A bench whose client asks to be answered early.
pub(super) fn hasty(limits: Limits) -> Bench {
    let mut bench = Bench::new(true, limits);
    bench.client.config.wants = Bits::ATTRS.with(Bits::FC).with(Bits::DX);
    bench.step(Input::Connected { rank: RANK });
    bench.step(welcome(5, false));
    bench
}

/// Over a new connection to the same session, of a rank that lives again.
pub(super) fn again(bench: &mut Bench) -> Vec<ClientMsg> {
    let life = bench.client.incarnation.0 + 1;
    resumed(bench, life)
}

fn resumed(bench: &mut Bench, life: u64) -> Vec<ClientMsg> {
    bench.step(Input::Disconnected { rank: RANK });
    bench.step(Input::Connected { rank: RANK });
    sent(&bench.step(welcome_in(5, true, life)))
}

/// What of the messages is about requests: tid, performed, heard.
pub(super) fn order(messages: &[ClientMsg]) -> Vec<(u64, Option<bool>)> {
    let of = |message: &ClientMsg| match message {
        ClientMsg::Request { tid, .. } => Some((tid.0, None)),
        ClientMsg::Performed { tid, told, .. } => Some((tid.0, Some(told.heard))),
        _ => None,
    };
    messages.iter().filter_map(of).collect()
}

pub(super) fn late(out: &[Output]) -> Vec<(Kind, Vec<u64>, Errno)> {
    let of = |output: &Output| match output {
        Output::Late { kind, inos, errno, .. } => {
            Some((*kind, inos.iter().map(|ino| ino.0).collect(), *errno))
        }
        _ => None,
    };
    out.iter().filter_map(of).collect()
}

/// Two threads: the rank carried out the second one's request while the first one's waited for something.
#[test]
fn what_is_sent_again_keeps_the_order_in_which_it_was_carried_out() {
    let mut bench = hasty(Limits::default());
    bench.call(1, create(1, "a"));
    bench.call(2, unlink(1, "a"));
    bench.call(3, getattr(1));
    bench.call(4, create(1, "b"));
    bench.step(early(1, 20, created(7)));
    bench.step(early(2, 10, Ok(Reply::Ok)));
    bench.step(early(4, 15, created(8)));
    let heard = Some(true);
    assert_eq!(order(&again(&mut bench)), [(2, heard), (4, heard), (1, heard), (3, None)]);
}

#[cfg(feature = "mutants")]
#[test]
fn an_order_by_number_is_caught() {
    stdx::mutant::activate(Some("client_redo_in_tid_order"));
    let verdict = std::panic::catch_unwind(what_is_sent_again_keeps_the_order_in_which_it_was_carried_out);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
}

#[test]
fn an_early_answer_is_kept_until_it_is_durable() {
    let mut bench = hasty(Limits::default());
    bench.call(1, create(1, "a"));
    bench.call(2, unlink(1, "b"));
    assert_eq!(answers(&bench.step(early(1, 10, created(7)))), [(1, created(7))], "at once");
    assert_eq!(bench.client.waiting().count(), 1, "nobody waits for it");
    assert!(!bench.client.awaits(Tid(1)));
    bench.step(early(2, 11, Err(Errno::ENOENT)));
    assert_eq!(bench.client.kept(), 1, "an error changes nothing");
    let floor = |out: Vec<Output>| match &sent(&out)[..] {
        [ClientMsg::Request { floor, .. }] => floor.0,
        other => panic!("{other:?}"),
    };
    assert_eq!(floor(bench.call(3, getattr(1))), 1);
    bench.step(durable(9));
    assert_eq!(bench.client.kept(), 1);
    bench.step(durable(10));
    assert_eq!(bench.client.kept(), 0);
    assert_eq!(floor(bench.call(4, getattr(1))), 3);
    bench.call(5, unlink(1, "c"));
    bench.step(early(5, 10, Ok(Reply::Ok)));
    assert_eq!(bench.client.kept(), 0, "durable before its answer came");
}

#[test]
fn what_is_kept_uses_no_credit_but_room() {
    let mut bench = hasty(Limits::tiny());
    for tid in 1..=4 {
        assert_eq!(tids(&bench.call(tid, unlink(1, "a"))), [tid], "two at once, and none is at once");
        bench.step(early(tid, 10 + tid, Ok(Reply::Ok)));
    }
    let data = |len: usize| Payload::Owned(vec![1; len]);
    let write = |len| Request::Write {
        node: node(7),
        offset: 0,
        append: false,
        kill_suidgid: false,
        data: data(len),
    };
    bench.call(5, write(8 << 10));
    bench.step(early(5, 20, Ok(Reply::Written { count: 8 << 10, attr: Attr::default() })));
    assert_eq!(tids(&bench.call(6, getattr(1))), [], "its bytes are still here");
    assert_eq!(tids(&bench.step(durable(20))), [6]);
    // Without end there would be nothing that the rank could forget.
    let span = bench.client.config.limits.tid_span();
    for tid in 7..=span {
        bench.call(tid, unlink(1, "a"));
        bench.step(early(tid, 100 + tid, Ok(Reply::Ok)));
    }
    bench.step(reply(6, attr(1)));
    let last = 6 + span;
    for tid in span + 1..=last {
        bench.call(tid, unlink(1, "a"));
        bench.step(early(tid, 100 + tid, Ok(Reply::Ok)));
    }
    assert_eq!(tids(&bench.call(last + 1, getattr(1))), [], "the span is used up");
    assert_eq!(tids(&bench.step(durable(107))), [last + 1]);
}

/// What broke: a rank whose journal had failed answered EIO to each call, what it had answered early stayed, and when the span of
/// tids was used up callers waited for ever.
#[test]
fn of_a_damaged_rank_every_caller_hears_eio_and_what_was_answered_early_waits_for_its_next_life() {
    let mut bench = hasty(Limits::tiny());
    bench.call(1, Request::Open { node: node(7), flags: 0 });
    bench.step(reply(1, attr(7)));
    bench.call(2, unlink(1, "a"));
    bench.step(early(2, 10, Ok(Reply::Ok)));
    // Two at once: the third waits for credit.
    bench.call(3, getattr(1));
    bench.call(4, getattr(1));
    bench.call(5, getattr(1));
    let failed = |out: &[Output]| -> Vec<CallId> {
        let eio = |output: &Output| match output {
            Output::Answer { call, outcome: Err(Errno::EIO), .. } => Some(*call),
            _ => None,
        };
        out.iter().filter_map(eio).collect()
    };
    assert_eq!(failed(&bench.step(from_rank(ServerMsg::Damaged))), [CallId(5)]);
    assert_eq!(failed(&bench.step(reply(3, Err(Errno::EIO)))), [CallId(3)]);
    assert_eq!(failed(&bench.step(reply(4, Err(Errno::EIO)))), [CallId(4)]);
    for call in 6..3 * bench.client.config.limits.tid_span() {
        let out = bench.call(call, unlink(1, "b"));
        assert_eq!((failed(&out), tids(&out)), (vec![CallId(call)], vec![]));
    }
    assert_eq!(bench.client.kept(), 1);
    // What gives something back is sent all the same, and nobody waits for it.
    let last = 3 * bench.client.config.limits.tid_span();
    let out = bench.call(last, Request::Release { node: node(7), count: 1 });
    assert_eq!((failed(&out), tids(&out)), (vec![CallId(last)], vec![5]));
    let again = resumed(&mut bench, 2);
    assert!(again.iter().any(|m| matches!(m, ClientMsg::Performed { tid: Tid(2), .. })), "{again:?}");
    assert_eq!(tids(&bench.call(last + 1, getattr(1))), [6]);
}

#[test]
fn a_resume_sends_everything_in_order_and_says_when_that_was_all() {
    let mut bench = hasty(Limits::default());
    bench.call(1, create(1, "a"));
    bench.call(2, getattr(9));
    bench.call(3, unlink(1, "b"));
    bench.call(
        4,
        Request::MkDir {
            parent: node(1),
            name: name("d"),
            new: proto::request::NewNode { mode: 0, umask: 0, rdev: 0 },
        },
    );
    bench.step(early(3, 12, Ok(Reply::Ok)));
    bench.step(early(4, 13, attr(8)));
    bench.step(early(1, 11, created(7)));
    for _ in 0..2 {
        let messages = again(&mut bench);
        assert!(matches!(messages[0], ClientMsg::Reclaimed), "its one open comes with tid 1: {messages:?}");
        assert_eq!(order(&messages), [(1, Some(true)), (2, None), (3, Some(true)), (4, Some(true))]);
        assert_eq!(messages.last(), Some(&ClientMsg::Presented));
        let told = |message: &ClientMsg| {
            if let ClientMsg::Performed { told, .. } = message { Some(*told) } else { None }
        };
        let told: Vec<Told> = messages.iter().filter_map(told).collect();
        let expect = |ino, wall| Told { ino: Ino(ino), wall: Wall(wall), heard: true };
        assert_eq!(told, [expect(7, 1_011), expect(0, 1_012), expect(8, 1_013)]);
        assert!(bench.step(durable(1_000)).is_empty());
        assert_eq!(bench.client.kept(), 3, "positions of another connection");
    }
    bench.step(done(1, 1_000));
    bench.step(reply(3, Ok(Reply::Ok)));
    bench.step(early(4, 2_000, attr(8)));
    assert_eq!(bench.client.kept(), 1);
    bench.step(durable(2_000));
    assert_eq!(bench.client.kept(), 0);
    assert_eq!(bench.client.opens(Ino(7)), 1);
}

#[test]
fn opens_that_come_with_what_is_sent_again_are_not_claimed() {
    let mut bench = hasty(Limits::default());
    let claims = |messages: &[ClientMsg]| -> Vec<(u64, u32)> {
        let claim = |m: &ClientMsg| {
            if let ClientMsg::Reclaim { node, count, .. } = m { Some((node.ino.0, *count)) } else { None }
        };
        messages.iter().filter_map(claim).collect()
    };
    let releases = |messages: &[ClientMsg]| -> Vec<(u64, u32)> {
        let release = |m: &ClientMsg| match m {
            ClientMsg::Request { request: Request::Release { node, count }, .. } => {
                Some((node.ino.0, *count))
            }
            _ => None,
        };
        messages.iter().filter_map(release).collect()
    };
    bench.call(1, create(1, "a"));
    bench.step(early(1, 10, created(7)));
    bench.call(2, Request::Open { node: node(7), flags: 0 });
    bench.step(reply(2, attr(7)));
    let messages = again(&mut bench);
    assert_eq!((claims(&messages), releases(&messages)), (vec![(7, 1)], vec![]));
    // Both are closed, and that is known: the one of the create is opened again.
    bench.call(3, Request::Release { node: node(7), count: 2 });
    bench.step(reply(3, Ok(Reply::Ok)));
    assert_eq!(bench.client.opens(Ino(7)), 0);
    let messages = again(&mut bench);
    assert_eq!((claims(&messages), releases(&messages)), (vec![], vec![(7, 1)]));
    assert_eq!(order(&messages), [(1, Some(true)), (4, None)]);
    let at = |message: &ClientMsg| messages.iter().position(|m| m == message);
    assert!(at(&ClientMsg::Presented) < messages.iter().position(|m| matches!(m, ClientMsg::Request { .. })));
    // Broken again before that release had its answer: it is sent again, not another one.
    let messages = again(&mut bench);
    assert_eq!((claims(&messages), releases(&messages)), (vec![], vec![(7, 1)]));
    // A rank that lived on has it closed, and does not open it again.
    bench.call(5, Request::Open { node: node(7), flags: 0o1000 });
    bench.step(early(5, 19, attr(7)));
    bench.step(done(1, 20));
    bench.step(reply(4, Ok(Reply::Ok)));
    bench.call(6, Request::Release { node: node(7), count: 1 });
    bench.step(reply(6, Ok(Reply::Ok)));
    let life = bench.client.incarnation.0;
    assert_eq!(releases(&resumed(&mut bench, life)), []);
    bench.step(done(1, 20));
    bench.step(done(5, 20));
    bench.step(durable(20));
    assert_eq!(bench.client.opens(Ino(7)), 0);
    assert!(claims(&again(&mut bench)).is_empty());
}

/// The test above can fail.
#[cfg(feature = "mutants")]
#[test]
fn a_surplus_told_to_a_rank_that_lived_on_is_caught() {
    stdx::mutant::activate(Some("client_releases_twice"));
    let verdict = std::panic::catch_unwind(opens_that_come_with_what_is_sent_again_are_not_claimed);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
}

#[test]
fn a_lent_payload_goes_back_with_the_early_answer() {
    let mut bench = hasty(Limits::default());
    let lender: Arc<Vec<u8>> = Arc::new(vec![5; 100]);
    let data = Payload::Lent(Lent::new(Arc::<Vec<u8>>::clone(&lender)));
    let write = Request::Write { node: node(7), offset: 0, append: false, kill_suidgid: false, data };
    drop(bench.call(1, write));
    bench.step(early(1, 10, Ok(Reply::Written { count: 100, attr: Attr::default() })));
    assert_eq!(Arc::strong_count(&lender), 1);
    let messages = again(&mut bench);
    let ClientMsg::Performed { request: Request::Write { data, .. }, .. } = &messages[1] else {
        panic!("{messages:?}")
    };
    assert_eq!(data.bytes(), &lender[..]);
}

#[test]
fn what_comes_to_nothing_is_told_late() {
    let mut bench = hasty(Limits::default());
    bench.call(1, create(1, "a"));
    bench.step(early(1, 10, created(7)));
    again(&mut bench);
    assert_eq!(bench.step(reply(1, Err(Errno::ESHUTDOWN))), [], "the rank stops: its next life will say");
    again(&mut bench);
    let out = bench.step(reply(1, Err(Errno::ENOSPC)));
    assert_eq!(late(&out), [(create(1, "a").kind(), vec![1, 7], Errno::ENOSPC)]);
    assert_eq!((bench.client.kept(), bench.client.opens(Ino(7))), (0, 0), "the rank has no such open");
    assert_eq!(late(&bench.step(reply(1, Err(Errno::ENOSPC)))), [], "once");
}

#[test]
fn with_its_session_what_was_kept_is_lost() {
    for clean in [false, true] {
        let mut bench = hasty(Limits::default());
        bench.client.config.recover_clean = clean;
        bench.call(1, create(1, "a"));
        bench.step(early(1, 10, created(7)));
        bench.step(Input::Disconnected { rank: RANK });
        bench.step(Input::Connected { rank: RANK });
        let out = bench.step(welcome(6, false));
        assert_eq!(late(&out), [(create(1, "a").kind(), vec![1, 7], Errno::EIO)]);
        assert_eq!(bench.client.kept(), 0);
        assert!(!sent(&out).contains(&ClientMsg::Presented), "a new session has nothing of before");
    }
    let mut bench = hasty(Limits::default());
    bench.client.config.recover_clean = true;
    bench.call(1, create(1, "a"));
    bench.step(early(1, 10, created(7)));
    let refused = ServerMsg::Refused { errno: Errno::ESTALE.0 as u32, reason: "evicted".to_owned() };
    assert_eq!(late(&bench.step(from_rank(refused))).len(), 1);
}

#[test]
fn closing_waits_for_durability() {
    let mut bench = hasty(Limits::default());
    bench.call(1, unlink(1, "a"));
    bench.step(early(1, 10, Ok(Reply::Ok)));
    assert_eq!(bench.step(Input::Close), []);
    assert_eq!(bench.step(durable(10)), [to_rank(ClientMsg::Goodbye), Output::Closed]);
}

/// What broke: whoever unmounted while the server was being restarted lost what it had been told was done.
#[test]
fn closing_while_the_rank_is_away_waits_for_what_callers_were_told() {
    for (back, stops) in [(true, false), (true, true), (false, false)] {
        let mut bench = hasty(Limits::default());
        bench.call(1, unlink(1, "a"));
        bench.step(early(1, 10, Ok(Reply::Ok)));
        bench.call(2, unlink(1, "b"));
        bench.step(Input::Disconnected { rank: RANK });
        let out = bench.step(Input::Close);
        assert_eq!(answers(&out), [(2, Err(Errno::EIO))]);
        assert!(late(&out).is_empty() && !out.contains(&Output::Closed));
        if !back {
            let out = bench.step(Input::GiveUp);
            assert_eq!((late(&out).len(), out.last()), (1, Some(&Output::Closed)));
            continue;
        }
        let has = |sent: &[ClientMsg]| sent.iter().any(|m| matches!(m, ClientMsg::Performed { .. }));
        bench.step(Input::Connected { rank: RANK });
        assert!(has(&sent(&bench.step(welcome_in(5, true, 2)))));
        if stops {
            bench.step(reply(1, Err(Errno::ESHUTDOWN)));
            assert!(has(&again(&mut bench)), "it stops once more");
        }
        bench.step(done(1, 20));
        assert_eq!(bench.step(durable(20)), [to_rank(ClientMsg::Goodbye), Output::Closed]);
        assert_eq!(bench.step(Input::GiveUp), []);
    }
}

/// Another thread delivers it: the sync was carried out after the operation that failed.
#[test]
fn a_sync_is_not_answered_before_what_was_sent_before_it() {
    let mut bench = hasty(Limits::default());
    bench.call(1, unlink(1, "a"));
    bench.step(early(1, 10, Ok(Reply::Ok)));
    again(&mut bench);
    bench.call(2, Request::Fsync { node: node(1), data_only: false });
    bench.call(3, Request::SyncFs);
    assert_eq!(bench.step(reply(2, Ok(Reply::Ok))), []);
    assert_eq!(answers(&bench.step(Input::Abandon { call: CallId(2) })), [(2, Err(Errno::EINTR))]);
    assert_eq!(bench.step(reply(3, Ok(Reply::Ok))), []);
    let out = bench.step(reply(1, Err(Errno::ENOENT)));
    assert!(matches!(
        &out[..],
        [Output::Late { .. }, Output::Answer { call: CallId(3), outcome: Ok(_), .. }]
    ));
}

#[test]
fn who_does_not_want_it_is_answered_for_good() {
    let mut bench = caching();
    bench.call(1, unlink(1, "a"));
    assert_eq!(answers(&bench.step(early(1, 10, Ok(Reply::Ok)))), [(1, Ok(Reply::Ok))]);
    assert_eq!(bench.client.kept(), 0);
    assert!(!again(&mut bench).contains(&ClientMsg::Presented));
}

#[cfg(feature = "mutants")]
#[test]
fn a_sync_that_overtakes_is_caught() {
    stdx::mutant::activate(Some("client_sync_overtakes_late"));
    let verdict = std::panic::catch_unwind(a_sync_is_not_answered_before_what_was_sent_before_it);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
}

/// What broke: the rank's journal had failed, and it answered EIO to whoever unlocked. The file was closed then, its lock was claimed of
/// the rank's next life all the same, and nobody was there any more who would give it back.
#[test]
fn what_is_unlocked_at_a_damaged_rank_is_claimed_of_no_next_life() {
    let held = lock(1, LockKind::Write);
    let unlocks = [
        Request::ReleaseLocks { node: node(7), flock: false, owner: 1 },
        Request::SetLock { node: node(7), lock: lock(1, LockKind::Unlock), wait: false },
    ];
    for unlock in unlocks {
        let mut bench = hasty(Limits::tiny());
        bench.call(1, Request::Open { node: node(7), flags: 0 });
        bench.step(reply(1, attr(7)));
        bench.call(2, Request::SetLock { node: node(7), lock: held, wait: false });
        bench.step(reply(2, Ok(Reply::Ok)));
        bench.step(from_rank(ServerMsg::Damaged));
        let close = Request::Release { node: node(7), count: 1 };
        for (tid, request) in [(3, unlock), (4, close)] {
            let out = bench.call(tid, request);
            assert_eq!((answers(&out), tids(&out)), (vec![(tid, Err(Errno::EIO))], vec![tid]));
            assert_eq!(bench.step(reply(tid, Err(Errno::EIO))), []);
        }
        let claims = |message: &ClientMsg| matches!(message, ClientMsg::Reclaim { .. });
        assert!(!resumed(&mut bench, 2).iter().any(claims));
    }
}

#[cfg(feature = "mutants")]
#[test]
fn a_lock_that_outlives_a_damaged_rank_is_caught() {
    stdx::mutant::activate(Some("client_damaged_keeps_locks"));
    let test = what_is_unlocked_at_a_damaged_rank_is_claimed_of_no_next_life;
    let verdict = std::panic::catch_unwind(test);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
}
