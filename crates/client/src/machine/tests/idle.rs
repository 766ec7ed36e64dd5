//! What a client offers because it does not use it.
//!
//! Absent: the order in which (`uses.rs`), what the rank makes of it (`mds`).

use super::delegated::*;
use super::files::{FILE, holding, shown};
use super::*;

const CAPS: Bits = Bits::ATTRS.with(Bits::FC);

/// A client that keeps pages, of two files at most.
fn keeping(caps_max: u32) -> Bench {
    let mut config = ClientConfig { retry: true, wants: CAPS, ..ClientConfig::default() };
    config.info.caps_max = caps_max;
    let mut bench = Bench::with(config);
    bench.step(Input::Connected { rank: RANK });
    bench.step(welcome(5, false));
    bench
}

/// Opens a file and has its pages.
fn open(bench: &mut Bench, ino: u64) {
    let tid = asked(&bench.call(ino, Request::Open { node: node(ino), flags: 0 }));
    bench.step(granted(tid, ino, CAPS));
}

fn close(bench: &mut Bench, ino: u64) {
    let tid = asked(&bench.call(ino + 1000, Request::Release { node: node(ino), count: 1 }));
    bench.step(reply(tid, Ok(Reply::Ok)));
}

fn offered(out: &[Output]) -> Vec<u64> {
    let list = sent(out).into_iter().filter_map(|message| match message {
        ClientMsg::Idle { list } => Some(list),
        _ => None,
    });
    list.flatten().map(|ino| ino.0).collect()
}

/// Time passes, and the lease is renewed all the while.
fn pass(bench: &mut Bench, nanos: u64) -> Vec<u64> {
    let (mut list, end) = (Vec::new(), bench.at.mono.after(nanos));
    while let Some(due) = bench.client.deadline().filter(|due| *due <= end) {
        bench.at.mono = bench.at.mono.max(due);
        let out = bench.step(Input::Tick);
        for message in sent(&out) {
            if let ClientMsg::Renew { number } = message {
                list.extend(offered(&bench.step(from_rank(ServerMsg::Renewed { number }))));
            }
        }
        list.extend(offered(&out));
    }
    bench.at.mono = end;
    list
}

#[test]
fn a_closed_file_is_offered_after_a_minute_and_an_open_one_is_not() {
    let mut bench = keeping(0);
    open(&mut bench, 7);
    open(&mut bench, 8);
    close(&mut bench, 7);
    assert_eq!(pass(&mut bench, 59 * SECOND), []);
    assert_eq!(pass(&mut bench, 4 * SECOND), [7]);
    assert_eq!(pass(&mut bench, 300 * SECOND), [], "once");
    close(&mut bench, 8);
    open(&mut bench, 7);
    assert_eq!(pass(&mut bench, 70 * SECOND), [8]);
    // What the rank asked for by itself is not there any more.
    close(&mut bench, 7);
    let out = bench.step(recall_bits(7, Bits::FC));
    assert!(out.iter().any(|output| matches!(output, Output::Recalled { .. })));
    assert_eq!(pass(&mut bench, 300 * SECOND), []);
}

#[test]
fn beyond_what_it_wants_the_oldest_that_are_closed_are_offered() {
    let mut bench = keeping(2);
    for ino in 1..=5 {
        open(&mut bench, ino);
        bench.wait(MS);
        if ino != 2 {
            close(&mut bench, ino);
        }
    }
    assert_eq!(pass(&mut bench, SECOND), [1, 3, 4]);
    open(&mut bench, 6);
    assert_eq!(pass(&mut bench, SECOND), [5]);
}

#[test]
fn what_the_kernel_has_forgotten_is_offered_soon_and_together() {
    let mut bench = keeping(0);
    for ino in 1..=4 {
        open(&mut bench, ino);
        close(&mut bench, ino);
    }
    bench.wait(SECOND);
    for ino in [3, 1, 4, 9] {
        assert_eq!(bench.step(Input::Forgotten { ino: Ino(ino) }), []);
    }
    bench.wait(MS);
    open(&mut bench, 4);
    assert_eq!(pass(&mut bench, 101 * MS), [1, 3], "not what it asked for again, nor what it never had");
}

#[test]
fn nothing_is_offered_of_what_a_break_has_ended_nor_before_the_rank_grants_again() {
    let mut bench = keeping(1);
    (1..=3).for_each(|ino| open(&mut bench, ino));
    (1..=3).for_each(|ino| close(&mut bench, ino));
    bench.step(Input::Disconnected { rank: RANK });
    bench.step(Input::Connected { rank: RANK });
    bench.step(welcome(5, true));
    assert_eq!(pass(&mut bench, 100 * SECOND), []);
    // A lease that has run out ends it as well.
    (1..=3).for_each(|ino| open(&mut bench, ino));
    bench.wait(u64::from(LEASE_MS) * MS);
    bench.step(Input::Tick);
    (1..=3).for_each(|ino| close(&mut bench, ino));
    assert_eq!(pass(&mut bench, 100 * SECOND), []);
}

#[test]
fn a_directory_and_a_file_that_are_not_used_are_offered_and_recalled_as_ever() {
    let mut bench = trusted(true);
    here(&bench.call(2, mkdir(DIR, "d")));
    assert_eq!(pass(&mut bench, 50 * SECOND), []);
    here(&bench.call(3, mkdir(DIR, "e")));
    assert_eq!(pass(&mut bench, 20 * SECOND), [1000], "its parent was used since");
    here(&bench.call(4, mkdir(1000, "f")));
    let out = bench.step(recall_bits(1000, Bits::DX));
    assert!(matches!(sent(&out)[..], [ClientMsg::Returned { .. }]), "{out:?}");
    asked(&bench.call(5, mkdir(1000, "g")));

    let mut bench = holding();
    let tid = asked(&bench.call(3, getattr(9)));
    bench.step(reply(tid, shown(10)));
    here(&bench.call(4, write(FILE, 0, 10, false)));
    assert_eq!(pass(&mut bench, 59 * SECOND), []);
    assert_eq!(pass(&mut bench, 5 * SECOND), [FILE]);
}
