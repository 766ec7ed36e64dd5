//! Files that are delegated to the client: what it performs on them by itself, and when that ends.
//!
//! Absent: directories (`delegated.rs`).

use super::delegated::*;
use super::early::{again, done, early, hasty, name, order, unlink};
use super::*;
use proto::attr::SetTime;
use proto::{FileKind, Position, SetAttr};
use stdx::Wall;

pub(super) const FILE: u64 = 70;

fn file_attr(size: u64) -> Attr {
    let (mode, ctime) = (FileKind::Regular.mode_bits() | 0o644, Wall(900));
    let (parent, hash) = (Ino(1), name("f").hash(&SEED));
    Attr { ino: Ino(FILE), mode, nlink: 1, size, parent, hash, mtime: ctime, ctime, ..Attr::default() }
}

fn open(ino: u64) -> Request {
    Request::Open { node: node(ino), flags: 2 }
}

/// The answer to a request, with the file.
fn granted(tid: u64, outcome: Outcome) -> Input {
    let grants = Grants::One(Bits::ATTRS.with(Bits::ALONE));
    from_rank(ServerMsg::Granted { tid: Tid(tid), outcome, grants })
}

pub(super) fn shown(size: u64) -> Outcome {
    Ok(Reply::Attr(file_attr(size)))
}

fn wrote(size: u64) -> Outcome {
    Ok(Reply::Written { count: 1, attr: file_attr(size) })
}

/// A client that has heard of the rank's time and has a file open that is delegated to it.
pub(super) fn holding() -> Bench {
    let mut bench = hasty(Limits::default());
    bench.client.config.wants = bench.client.config.wants.with(Bits::ALONE);
    bench.step(numbers(1000, 10));
    bench.call(1, write(FILE, 0, 10, false));
    bench.step(early(1, 10, wrote(10)));
    let tid = asked(&bench.call(2, open(FILE)));
    let out = bench.step(granted(tid, shown(10)));
    let Some(Output::Answer { validity, .. }) = out.last() else { panic!("{out:?}") };
    assert_eq!(validity.grants.of(0), Bits::ATTRS, "the rest is not for the edge");
    bench
}

fn set(change: impl FnOnce(&mut SetAttr)) -> Request {
    let mut set = SetAttr::default();
    change(&mut set);
    Request::SetAttr { node: node(FILE), set }
}

#[test]
fn a_file_is_written_cut_and_dated_at_once() {
    let mut bench = holding();
    assert_eq!(here(&bench.call(3, write(FILE, 100, 20, false))).size, 120);
    let out = bench.call(4, write(FILE, 0, 5, true));
    assert_eq!(here(&out).size, 125);
    let Output::Send {
        message: ClientMsg::Performed { request: Request::Write { offset, append, .. }, .. },
        ..
    } = &out[0]
    else {
        panic!("{out:?}")
    };
    assert_eq!((*offset, *append), (120, false));
    assert_eq!(here(&bench.call(5, set(|set| set.size = Some(7)))).size, 7);
    let dated = here(&bench.call(6, set(|set| set.mtime = Some(SetTime::At(Wall(5))))));
    assert_eq!((dated.mtime, dated.size), (Wall(5), 7));
    assert_eq!(answers(&bench.call(7, getattr(FILE))), [(7, Ok(Reply::Attr(dated)))]);
    // Who may do what with it is the rank's to say, and more names of it.
    asked(&bench.call(8, set(|set| set.mode = Some(0o600))));
    asked(&bench.call(9, write(FILE, 0, 1, false)));
}

#[test]
fn a_recall_is_answered_behind_what_was_performed() {
    let mut bench = holding();
    here(&bench.call(3, write(FILE, 0, 5, false)));
    let list = vec![Returned { ino: Ino(FILE), bits: Bits::ALONE, number: 3 }];
    assert_eq!(bench.step(recall_bits(FILE, Bits::ALONE)), [to_rank(ClientMsg::Returned { list })]);
    let tid = asked(&bench.call(4, write(FILE, 0, 5, false)));
    // What overtakes its grant makes it void.
    bench.step(recall_bits(FILE, Bits::ALONE));
    bench.step(granted(tid, wrote(10)));
    let tid = asked(&bench.call(5, write(FILE, 0, 5, false)));
    bench.step(granted(tid, wrote(10)));
    here(&bench.call(6, write(FILE, 0, 5, false)));
}

#[test]
fn a_close_and_another_name_end_it() {
    let mut bench = holding();
    bench.call(3, Request::Release { node: node(FILE), count: 1 });
    asked(&bench.call(4, write(FILE, 0, 5, false)));
    let mut bench = holding();
    asked(&bench.call(3, rename(1, "f", "g")));
    asked(&bench.call(4, write(FILE, 0, 5, false)));
    let mut bench = holding();
    asked(&bench.call(3, Request::Link { node: node(FILE), parent: node(1), name: name("g") }));
    asked(&bench.call(4, getattr(FILE)));
    // Moved by the client itself, too: it was delegated at its old place.
    let mut bench = trusted(true);
    bench.client.config.wants = bench.client.config.wants.with(Bits::ALONE);
    let tid = asked(&bench.call(2, rename(1, "f", "x")));
    bench.step(reply(tid, Ok(Reply::Ok)));
    let at = Attr { parent: Ino(DIR), hash: name("y").hash(&SEED), ..file_attr(10) };
    let tid = asked(&bench.call(3, rename_to((1, "h"), (DIR, "y"))));
    bench.step(reply(tid, Ok(Reply::Ok)));
    let tid = asked(&bench.call(4, lookup(DIR, "y")));
    bench.step(reply(tid, Ok(Reply::Attr(at))));
    let tid = asked(&bench.call(5, open(FILE)));
    bench.step(granted(tid, Ok(Reply::Attr(at))));
    here(&bench.call(6, write(FILE, 0, 5, false)));
    here(&bench.call(7, rename(DIR, "y", "z")));
    asked(&bench.call(8, write(FILE, 0, 5, false)));
}

#[test]
fn attributes_that_may_be_old_begin_nothing() {
    let begun = |change: &dyn Fn(&mut Bench) -> u64, answered_first: bool| {
        let mut bench = holding();
        bench.step(recall_bits(FILE, Bits::ALONE));
        let tid = asked(&bench.call(3, open(FILE)));
        let other = change(&mut bench);
        if answered_first {
            bench.step(reply(other, wrote(90)));
        }
        bench.step(granted(tid, shown(10)));
        sent(&bench.call(9, write(FILE, 0, 5, false)))
            .iter()
            .any(|message| matches!(message, ClientMsg::Performed { .. }))
    };
    let nothing = |_: &mut Bench| 0;
    let writes = |bench: &mut Bench| asked(&bench.call(4, write(FILE, 0, 1, false)));
    let reads = |bench: &mut Bench| {
        asked(&bench.call(4, Request::Read { node: node(FILE), offset: 0, len: 1, into: None }))
    };
    let closes = |bench: &mut Bench| asked(&bench.call(4, Request::Release { node: node(FILE), count: 1 }));
    let removes = |bench: &mut Bench| asked(&bench.call(4, unlink(1, "f")));
    let others = |bench: &mut Bench| asked(&bench.call(4, unlink(1, "else")));
    assert!(begun(&nothing, false) && begun(&others, false));
    assert!(!begun(&writes, false) && !begun(&reads, false) && !begun(&closes, false));
    assert!(!begun(&removes, false));
    assert!(!begun(&writes, true) && !begun(&closes, true));
}

#[test]
fn a_break_ends_it_and_what_was_performed_is_sent_again() {
    let mut bench = holding();
    here(&bench.call(3, write(FILE, 0, 5, false)));
    here(&bench.call(4, set(|set| set.size = Some(0))));
    bench.step(done(3, 20));
    let messages = again(&mut bench);
    assert_eq!(order(&messages), [(1, Some(true)), (3, Some(true)), (4, Some(false))]);
    asked(&bench.call(5, write(FILE, 0, 5, false)));
    let position = Position(30);
    let found = bench.step(from_rank(ServerMsg::Durable { position }));
    assert!(found.is_empty());
}

/// Defects that random histories hardly ever show.
#[cfg(feature = "mutants")]
#[test]
fn defects_of_files_are_caught() {
    let defects: [(&str, fn()); 4] = [
        ("client_moved_stays_delegated", a_close_and_another_name_end_it),
        ("client_closed_stays_delegated", a_close_and_another_name_end_it),
        ("client_file_under_change", attributes_that_may_be_old_begin_nothing),
        ("client_keeps_file", a_recall_is_answered_behind_what_was_performed),
    ];
    for (defect, test) in defects {
        stdx::mutant::activate(Some(defect));
        let verdict = std::panic::catch_unwind(test);
        stdx::mutant::activate(None);
        assert!(verdict.is_err(), "{defect}");
    }
}
