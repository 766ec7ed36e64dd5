//! Bytes that are rewritten to a rank's next life.
//!
//! Absent: which they are (`unsynced.rs`).

use super::early::{done, durable, early, hasty, order};
use super::*;
use crate::unsynced::{FILES_MAX, Heard};
use proto::storeio::Payload;

fn write(ino: u64, offset: u64, byte: u8) -> Request {
    let data = Payload::Owned(vec![byte; 4]);
    Request::Write { node: node(ino), offset, append: false, kill_suidgid: false, data }
}

fn written(change: u64) -> Outcome {
    Ok(Reply::Written { count: 4, attr: Attr { change, ..Attr::default() } })
}

fn lost(out: &[Output]) -> Vec<Ino> {
    let of = |output: &Output| match output {
        Output::BytesLost { inos, .. } => inos.clone(),
        _ => Vec::new(),
    };
    out.iter().flat_map(of).collect()
}

/// A session that has numbers has written a file: tid 1, durable.
fn wrote() -> Bench {
    let mut bench = hasty(Limits::default());
    let (first, count, generation, seed) = (Ino(1000), 10, 1, stdx::hash::HashSeed([1; 16]));
    bench.step(from_rank(ServerMsg::Numbers { first, count, generation, seed }));
    bench.call(1, write(7, 0, 1));
    bench.step(early(1, 10, written(9)));
    bench.step(durable(10));
    bench
}

fn welcomed(bench: &mut Bench, life: u64) -> Vec<Output> {
    bench.step(Input::Disconnected { rank: RANK });
    bench.step(Input::Connected { rank: RANK });
    bench.step(welcome_in(5, true, life))
}

fn rewrites(out: &[Output]) -> Vec<(u64, u64, u64)> {
    let of = |message: ClientMsg| match message {
        ClientMsg::Performed { tid, request: Request::Rewrite { wrote, life, .. }, .. } => {
            Some((tid.0, wrote.0, life.0))
        }
        _ => None,
    };
    sent(out).into_iter().filter_map(of).collect()
}

/// What broke: the rank refused what it was sent, and the session was over.
#[test]
fn a_limited_session_rewrites_nothing() {
    let mut bench = hasty(Limits::default());
    let limited = |life| welcome_below(Ino(77), 5, true, (life, life - 1), false);
    for input in [Input::Disconnected { rank: RANK }, Input::Connected { rank: RANK }, limited(1)] {
        bench.step(input);
    }
    // What the ranks of one that is not would say of names.
    let (first, count, generation, seed) = (Ino::NONE, 0, 1, stdx::hash::HashSeed([1; 16]));
    bench.step(from_rank(ServerMsg::Numbers { first, count, generation, seed }));
    bench.call(1, write(7, 0, 1));
    bench.step(reply(1, written(9)));
    bench.step(Input::Disconnected { rank: RANK });
    bench.step(Input::Connected { rank: RANK });
    let out = bench.step(limited(2));
    assert_eq!((rewrites(&out), lost(&out)), (vec![], vec![Ino(7)]));
}

#[cfg(feature = "mutants")]
#[test]
fn a_limited_client_that_performs_is_caught() {
    stdx::mutant::activate(Some("client_limited_performs"));
    let verdict = std::panic::catch_unwind(a_limited_session_rewrites_nothing);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
}

#[test]
fn what_was_written_goes_to_the_next_life_before_all_else() {
    let mut bench = wrote();
    bench.call(2, getattr(9));
    let out = welcomed(&mut bench, 2);
    assert_eq!((rewrites(&out), lost(&out)), (vec![(3, 1, 1)], vec![]));
    assert_eq!(order(&sent(&out)), [(3, Some(true)), (2, None)]);
    // The connection breaks before it is answered: once more, under another number.
    assert_eq!(rewrites(&welcomed(&mut bench, 2)), [(4, 1, 1)]);
    // A sync is not answered before.
    bench.call(3, Request::Fsync { node: node(7), data_only: false });
    assert!(answers(&bench.step(reply(5, Ok(Reply::Ok)))).is_empty());
    assert_eq!(answers(&bench.step(done(4, 20))).len(), 1);
    // A later one says that it is on the disk.
    bench.call(4, Request::Fsync { node: node(7), data_only: false });
    assert_eq!(answers(&bench.step(reply(6, Ok(Reply::Ok)))).len(), 1);
    assert_eq!(rewrites(&welcomed(&mut bench, 3)), [], "it was synced");
}

/// What broke: with one counter of lives for all ranks the next life of a rank was taken for one of which nothing is known, and what
/// the one before had synced was told as lost.
#[test]
fn lives_of_other_ranks_do_not_count() {
    let again = |former| {
        let mut bench = wrote();
        bench.step(Input::Disconnected { rank: RANK });
        bench.step(Input::Connected { rank: RANK });
        rewrites(&bench.step(welcome_behind(5, true, (9, former), true)))
    };
    assert_eq!(again(1), [], "that life had synced it");
    assert_eq!(again(8), [(2, 1, 1)], "another one lived in between");
    assert_eq!(again(0), [(2, 1, 1)], "the journal knows of none");
}

/// What broke: a sync of the former life has a lower number than what is rewritten before it, and was told of success
/// when its answer was first.
#[test]
fn no_sync_is_answered_before_what_was_written_once_more() {
    let mut bench = wrote();
    bench.call(2, Request::Fsync { node: node(7), data_only: false });
    assert_eq!(rewrites(&welcomed(&mut bench, 2)), [(3, 1, 1)]);
    assert!(answers(&bench.step(reply(2, Ok(Reply::Ok)))).is_empty());
    // The connection breaks: what came of it nobody has heard.
    assert_eq!(rewrites(&welcomed(&mut bench, 2)), [(4, 1, 1)]);
    bench.call(3, getattr(9));
    assert!(answers(&bench.step(reply(5, Err(Errno::ENOENT)))).len() == 1);
    let out = bench.step(reply(4, Err(Errno::EIO)));
    assert_eq!((lost(&out), answers(&out).len()), (vec![Ino(7)], 1));
}

/// What broke: the answer to a write of before may overtake that to its bytes.
#[test]
fn an_answer_of_before_that_comes_first_tells_of_no_loss() {
    for works in [true, false] {
        let mut bench = wrote();
        bench.call(2, write(8, 0, 2));
        assert_eq!(rewrites(&welcomed(&mut bench, 2)), [(3, 1, 1), (4, 2, 1)]);
        assert_eq!(lost(&bench.step(reply(2, written(9)))), []);
        let answer = if works { done(4, 20) } else { reply(4, Err(Errno::EIO)) };
        assert_eq!(lost(&bench.step(answer)), if works { vec![] } else { vec![Ino(8)] });
    }
}

/// What broke: whose session was refused, because the rank that lives again had ended it, heard nothing of lost bytes.
#[test]
fn with_a_session_that_is_replaced_its_bytes_are_lost() {
    for life in [1, 2] {
        let mut bench = wrote();
        bench.client.config.recover_clean = true;
        bench.call(2, Request::Open { node: node(9), flags: 0 });
        bench.step(reply(2, Ok(Reply::Attr(Attr { ino: Ino(9), ..Attr::default() }))));
        bench.step(Input::Disconnected { rank: RANK });
        bench.step(Input::Connected { rank: RANK });
        let refused = ServerMsg::Refused { errno: Errno::ESTALE.0 as u32, reason: "evicted".to_owned() };
        bench.step(from_rank(refused));
        bench.step(Input::Connected { rank: RANK });
        let out = bench.step(welcome_in(6, false, life));
        assert_eq!(lost(&out), if life == 1 { vec![] } else { vec![Ino(7)] });
        let reclaims =
            |message: &ClientMsg| matches!(message, ClientMsg::Reclaim { node, .. } if node.ino == Ino(9));
        assert!(sent(&out).iter().any(reclaims), "what is open still is open for the rank");
    }
}

/// What broke: a write that a truncation had overtaken came over it, where nothing else was known of the file.
#[test]
fn what_a_truncation_has_overtaken_is_not_written_once_more() {
    let mut bench = wrote();
    bench.call(2, write(8, 0, 2));
    let set = proto::SetAttr { size: Some(0), ..proto::SetAttr::default() };
    bench.call(3, Request::SetAttr { node: node(8), set });
    bench.step(early(3, 20, Ok(Reply::Ok)));
    bench.step(durable(20));
    assert_eq!(rewrites(&welcomed(&mut bench, 2)), [(4, 1, 1)]);
    bench.step(done(4, 30));
    assert_eq!(lost(&bench.step(reply(2, written(9)))), [Ino(8)]);
}

/// What broke: with a truncation under way when its rank died, all that was not synced of the file was told as lost (fsx on a
/// mount whose rank hung). Whether it was carried out or not: what is before it is there in the end.
#[test]
fn a_truncation_without_an_answer_leaves_what_is_before_it() {
    let cut_to = |size| {
        let set = proto::SetAttr { size: Some(size), ..proto::SetAttr::default() };
        Request::SetAttr { node: node(7), set }
    };
    let lengths = |out: &[Output]| -> Vec<u64> {
        let of = |message: ClientMsg| match message {
            ClientMsg::Performed { request: Request::Rewrite { data, .. }, .. } => Some(data.len()),
            _ => None,
        };
        sent(out).into_iter().filter_map(of).collect()
    };
    for (size, refused) in [(3, false), (3, true), (9, true)] {
        let mut bench = wrote();
        bench.call(2, cut_to(size));
        let out = welcomed(&mut bench, 2);
        assert_eq!((lengths(&out), lost(&out)), (vec![size.min(4)], vec![]));
        bench.step(done(3, 20));
        // It dies once more before it has answered.
        let out = welcomed(&mut bench, 3);
        assert_eq!((lengths(&out), lost(&out)), (vec![size.min(4)], vec![]));
        bench.step(done(4, 20));
        let outcome = if refused { Err(Errno::EPERM) } else { Ok(Reply::Ok) };
        // Bytes that it was to cut off are missing, if it does not.
        let missing = if refused && size < 4 { vec![Ino(7)] } else { vec![] };
        assert_eq!(lost(&bench.step(reply(2, outcome))), missing, "{size} {refused}");
        let left = if missing.is_empty() { vec![size.min(4)] } else { vec![] };
        assert_eq!(lengths(&welcomed(&mut bench, 4)), left);
    }
    // Who wrote at the same time does not know which came first.
    let mut bench = wrote();
    bench.call(2, write(7, 8, 2));
    bench.call(3, cut_to(3));
    assert_eq!(lost(&welcomed(&mut bench, 2)), [Ino(7)]);
}

#[test]
fn what_is_there_again_may_be_lost_again() {
    let mut bench = wrote();
    assert_eq!(rewrites(&welcomed(&mut bench, 2)), [(2, 1, 1)]);
    bench.step(done(2, 20));
    assert_eq!(rewrites(&welcomed(&mut bench, 2)), [], "the rank lives on");
    assert_eq!(rewrites(&welcomed(&mut bench, 3)), [(3, 1, 2)]);
    assert_eq!(lost(&bench.step(reply(3, Err(Errno::EIO)))), [Ino(7)]);
    assert_eq!(rewrites(&welcomed(&mut bench, 4)), []);
}

#[test]
fn what_the_former_life_has_carried_out_and_not_answered() {
    let mut bench = wrote();
    bench.call(2, write(8, 0, 2));
    // It is answered from the journal of before, and its bytes are there again.
    let out = welcomed(&mut bench, 2);
    assert_eq!(rewrites(&out), [(3, 1, 1), (4, 2, 1)]);
    bench.step(done(3, 20));
    bench.step(done(4, 20));
    assert_eq!(lost(&bench.step(reply(2, written(9)))), []);
    // Not so here: nobody knows whether it came before the truncation.
    bench.call(3, write(8, 0, 3));
    let set = proto::SetAttr { size: Some(0), ..proto::SetAttr::default() };
    bench.call(4, Request::SetAttr { node: node(8), set });
    let out = welcomed(&mut bench, 3);
    assert_eq!((rewrites(&out), lost(&out)), (vec![(7, 1, 2)], vec![Ino(8)]));
    assert_eq!(lost(&bench.step(reply(5, written(2 << 32)))), [Ino(8)], "carried out before");
}

#[test]
fn who_keeps_nothing_is_told() {
    let mut bench = hasty(Limits::default());
    bench.call(1, write(7, 0, 1));
    bench.step(early(1, 10, written(9)));
    let out = welcomed(&mut bench, 2);
    assert_eq!((rewrites(&out), lost(&out)), (vec![], vec![Ino(7)]), "the rank has given it no numbers");
    // Beyond what may be kept.
    let mut bench = wrote();
    bench.client.config.limits.unsynced_bytes_max = 1;
    bench.call(2, write(8, 0, 1));
    bench.step(early(2, 20, written(9)));
    let out = welcomed(&mut bench, 2);
    assert_eq!((rewrites(&out).len(), lost(&out)), (1, vec![Ino(8)]));
}

/// What broke: what was written and not synced could die with the server a moment after the unmount.
#[test]
fn who_leaves_syncs_before() {
    let goodbye = [to_rank(ClientMsg::Goodbye), Output::Closed];
    let syncs = |out: &[Output]| {
        let of = |message: &ClientMsg| matches!(message, ClientMsg::Request { request: Request::SyncFs, .. });
        sent(out).iter().filter(|message| of(message)).count()
    };
    let mut bench = wrote();
    assert_eq!(syncs(&bench.step(Input::Close)), 1);
    assert_eq!(bench.step(reply(2, Ok(Reply::Ok))), goodbye);
    // It is asked once, whatever comes of it.
    let mut bench = wrote();
    bench.step(Input::Close);
    assert_eq!(bench.step(reply(2, Err(Errno::EIO))), goodbye);
    // The rank is away: it is waited for, and has the bytes first.
    let mut bench = wrote();
    bench.step(Input::Disconnected { rank: RANK });
    assert!(!bench.step(Input::Close).contains(&Output::Closed));
    bench.step(Input::Connected { rank: RANK });
    let out = bench.step(welcome_in(5, true, 2));
    let [(tid, ..)] = rewrites(&out)[..] else { panic!("{out:?}") };
    assert_eq!((syncs(&out), bench.step(done(tid, 20))), (1, vec![]));
    assert_eq!(bench.step(reply(tid + 1, Ok(Reply::Ok))), goodbye);
    // Not for ever.
    let mut bench = wrote();
    bench.step(Input::Disconnected { rank: RANK });
    bench.step(Input::Close);
    let out = bench.step(Input::GiveUp);
    assert_eq!((lost(&out), out.last()), (vec![Ino(7)], Some(&Output::Closed)));
}

fn lost_others(out: &[Output]) -> bool {
    out.iter().any(|output| matches!(output, Output::BytesLost { others: true, .. }))
}

/// What broke: a connection that broke and came back was enough to forget that there were any.
#[test]
fn files_without_a_place_of_their_own_are_lost_with_the_life_that_had_them() {
    let heard = |tid| Heard { tid: Tid(tid), next: Tid(tid + 1), life: Incarnation(1), bytes_max: 0 };
    for synced in [false, true] {
        let mut bench = wrote();
        for ino in 0..=FILES_MAX as u64 {
            bench.tamper(|client| client.unsynced.answered(&write(100 + ino, 0, 1), &written(9), &heard(2)));
        }
        for _ in 0..2 {
            assert!(!lost_others(&welcomed(&mut bench, 1)), "it lives on");
        }
        if synced {
            bench.tamper(|client| client.unsynced.answered(&Request::SyncFs, &Ok(Reply::Ok), &heard(3)));
        }
        assert_eq!(lost_others(&welcomed(&mut bench, 2)), !synced);
        assert!(!lost_others(&welcomed(&mut bench, 3)), "once");
    }
}

/// What broke: nobody told it whether the rank had died; what it had written may be gone, and close said that all was well.
#[test]
fn who_is_refused_when_it_comes_back_is_told_of_its_bytes() {
    let refused = |errno: Errno| ServerMsg::Refused { errno: errno.0 as u32, reason: "evicted".to_owned() };
    for errno in [Errno::ESTALE, Errno::EPERM] {
        let mut bench = wrote();
        bench.step(Input::Disconnected { rank: RANK });
        bench.step(Input::Connected { rank: RANK });
        assert_eq!(lost(&bench.step(from_rank(refused(errno)))), [Ino(7)]);
    }
    let mut bench = wrote();
    assert_eq!(lost(&bench.step(from_rank(refused(Errno::ESTALE)))), [], "the rank is there, and has them");
    let mut bench = wrote();
    bench.step(Input::Disconnected { rank: RANK });
    bench.step(Input::Connected { rank: RANK });
    bench.step(from_rank(refused(Errno::ESHUTDOWN)));
    assert_eq!(rewrites(&welcomed(&mut bench, 2)).len(), 1, "it is not ready yet");
}

#[cfg(feature = "mutants")]
#[test]
fn bytes_whose_loss_is_not_told_are_caught() {
    let defects: [(&str, fn()); 4] = [
        ("client_cut_refused_untold", a_truncation_without_an_answer_leaves_what_is_before_it),
        ("client_closes_unsynced", who_leaves_syncs_before),
        ("client_others_forgotten", files_without_a_place_of_their_own_are_lost_with_the_life_that_had_them),
        ("client_refused_keeps_silent", who_is_refused_when_it_comes_back_is_told_of_its_bytes),
    ];
    for (defect, test) in defects {
        stdx::mutant::activate(Some(defect));
        let verdict = std::panic::catch_unwind(test);
        stdx::mutant::activate(None);
        assert!(verdict.is_err(), "{defect}");
    }
}

/// A client that was closed while the rank was away gave up a write that the rank had carried out, and wrote once more what had been
/// there before.
#[test]
fn nothing_is_written_once_more_below_what_was_given_up() {
    let size = |size| proto::SetAttr { size: Some(size), ..proto::SetAttr::default() };
    let given_up = [write(7, 2, 2), Request::SetAttr { node: node(7), set: size(2) }];
    for request in given_up.into_iter().chain([write(8, 0, 2)]) {
        let crosses = request.subject().is_some_and(|(node, _)| node.ino == Ino(7));
        let mut bench = wrote();
        bench.call(2, request);
        bench.step(Input::Disconnected { rank: RANK });
        assert_eq!(answers(&bench.step(Input::Close)).len(), 1);
        bench.step(Input::Connected { rank: RANK });
        let out = bench.step(welcome_in(5, true, 2));
        assert_eq!(lost(&out), if crosses { vec![Ino(7)] } else { vec![] });
        assert_eq!(rewrites(&out).len(), usize::from(!crosses));
    }
    // The rank lives on, and a sync reaches what it has.
    let mut bench = wrote();
    bench.call(2, write(7, 2, 2));
    bench.step(Input::Close);
    assert_eq!(lost(&welcomed(&mut bench, 1)), []);
}

/// What broke: the numbers that the rank said again were thrown away when the last of many bytes had gone.
#[test]
fn numbers_that_come_before_the_bytes_are_through_are_used() {
    const PIECES: u64 = 1100;
    let mut bench = wrote();
    for tid in 2..=PIECES {
        bench.call(tid, write(7, 8 * tid, 1));
        bench.step(early(tid, 10, written(9)));
    }
    bench.step(durable(10));
    let first = rewrites(&welcomed(&mut bench, 2));
    assert!(first.len() < PIECES as usize, "not all at once");
    let (count, generation, seed) = (10, 1, stdx::hash::HashSeed([1; 16]));
    bench.step(from_rank(ServerMsg::Numbers { first: Ino(1000), count, generation, seed }));
    let mut open = first;
    while let Some((tid, ..)) = open.pop() {
        open.extend(rewrites(&bench.step(done(tid, 20))));
    }
    assert!(!bench.client.awaits_rewritten());
    assert_eq!(bench.client.numbers.take().map(|(ino, _)| ino), Some(Ino(1000)));
}
