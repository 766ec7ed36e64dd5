//! Who may have what, who waits for whom, and what makes room.
//!
//! Absent: messages and sessions (`tests/caps.rs`).

use super::*;
use crate::caps::records::PARTS;
use proto::caps::{KEEP_MS, Returned};

const HELD: Bits = Bits::ATTRS;

fn book(slots: u16) -> Book {
    let mut book = Book::default();
    for place in 0..slots {
        assert_eq!(book.enter(SessionId(u64::from(place) + 1), false), Some(place));
    }
    book
}

#[test]
fn ranks_have_places_beside_all_clients() {
    let mut book = Book::default();
    let clients = (1..70_000).take_while(|id| book.enter(SessionId(*id), false).is_some()).count();
    assert!((60_000..65_536).contains(&clients), "{clients}");
    assert!((0..64).all(|rank| book.enter(SessionId(100_000 + rank), true).is_some()));
    book.leave(3);
    assert_eq!(book.enter(SessionId(9), false), None, "clients have no more than before");
}

/// What broke: after 2^31 recalls of one session no answer counted any more.
#[test]
fn numbers_of_recalls_may_wrap() {
    for start in [u32::MAX - 1, i32::MAX as u32 - 1] {
        let mut book = book(2);
        book.places[1].number = start;
        for op in 1..6 {
            book.grant(1, Ino(7), HELD, Mono(0));
            let need = Need::of(Ino(7), Bits::FS);
            book.wait(op, (SessionId(1), Some(0)), &[need], Mono(0));
            let (_, recalled) = book.outbox.pop().expect("recalled");
            book.returned(1, Returned { number: recalled.number.wrapping_sub(1), ..recalled.returned(HELD) });
            assert!(book.woken.is_empty(), "an older one");
            book.returned(1, recalled.returned(HELD));
            assert_eq!(book.woken.pop(), Some(op));
            book.operation_ended(op);
        }
    }
}

/// What broke: a move that is given up, and an operation that lets go, wait anew under the same number. Answers to what they had
/// asked for before were taken for others, so that it went on with something still granted, or never.
#[test]
fn answers_to_recalls_of_before_do_not_count() {
    let mut book = book(3);
    let need = |ino| Need::of(Ino(ino), Bits::FS);
    for (place, ino) in [(1, 7), (2, 8)] {
        book.grant(place, Ino(ino), HELD, Mono(0));
    }
    book.wait(1, (SessionId(1), Some(0)), &[need(7)], Mono(0));
    book.operation_ended(1);
    book.wait(1, (SessionId(1), Some(0)), &[need(8)], Mono(0));
    let recalled: Vec<_> = book.outbox.drain(..).map(|(_, recalled)| recalled).collect();
    book.returned(1, recalled[0].returned(HELD));
    assert!(book.is_waiting(1) && book.woken.is_empty(), "for what it asked for now");
    book.returned(2, recalled[1].returned(HELD));
    assert!(!book.is_waiting(1));
    assert_eq!(book.woken, [1]);
}

#[cfg(feature = "mutants")]
#[test]
fn defects_of_recalls_are_caught() {
    stdx::mutant::activate(Some("mds_recalls_of_before_count"));
    let verdict = std::panic::catch_unwind(answers_to_recalls_of_before_do_not_count);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
}

#[test]
fn a_directory_of_which_others_keep_something_is_nobodys() {
    let mut book = book(2);
    assert!(book.may_delegate(0, Ino(7), Mono(0)));
    book.grant(0, Ino(7), HELD, Mono(0));
    assert!(book.may_delegate(0, Ino(7), Mono(0)), "its own");
    let need = Need::of(Ino(8), Bits::AS);
    book.grant(1, Ino(8), HELD, Mono(0));
    book.wait(1, (SessionId(1), Some(0)), &[need], Mono(0));
    book.forget(1);
    assert!(!book.may_delegate(0, Ino(8), Mono(0)), "somebody waits to change it");
    book.operation_ended(1);
    assert!(book.may_delegate(0, Ino(8), Mono(0)));
    book.grant(1, Ino(7), HELD, Mono(0));
    assert!(!book.may_delegate(0, Ino(7), Mono(0)));
}

/// What broke: who kept the attributes of a directory when 32 names were made there at once was granted them again a minute later.
#[test]
fn many_that_wait_for_one_recall_are_one_contest() {
    let mut book = book(2);
    let mut now = Mono(0);
    for span in [1, 2, 4] {
        book.grant(1, Ino(7), HELD, now);
        for op in 1..33 {
            book.wait(op, (SessionId(1), Some(0)), &[Need::of(Ino(7), Bits::FS)], now);
        }
        let (_, recalled) = book.outbox.pop().expect("recalled");
        assert!(book.outbox.is_empty(), "once");
        book.returned(1, recalled.returned(HELD));
        for op in 1..33 {
            book.operation_ended(op);
        }
        assert!(!book.may_grant(1, Ino(7), now.after(span * SECOND - 1)));
        now = now.after(span * SECOND);
        assert!(book.may_grant(1, Ino(7), now), "{span}");
    }
}

#[cfg(feature = "mutants")]
#[test]
fn a_contest_of_each_waiter_is_caught() {
    stdx::mutant::activate(Some("mds_each_waiter_contests"));
    let verdict = std::panic::catch_unwind(many_that_wait_for_one_recall_are_one_contest);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
}

/// What is on its way back, what somebody waits for, and what is in a directory of another.
#[test]
fn what_is_somebody_elses_or_will_be_is_not_granted() {
    let mut book = book(3);
    let need = Need::of(Ino(7), Bits::AS);
    book.grant(1, Ino(7), HELD, Mono(0));
    book.wait(1, (SessionId(1), Some(0)), &[need], Mono(0));
    assert!(!book.may_grant(2, Ino(7), Mono(0)), "somebody waits for it");
    assert!(book.may_grant(0, Ino(7), Mono(0)), "who does may have it");
    book.operation_ended(1);
    let late = Mono(100 * SECOND);
    assert!(!book.may_grant(1, Ino(7), late), "it is asked back still");
    assert!(book.may_grant(2, Ino(7), late));
    let (_, recalled) = book.outbox.pop().expect("recalled");
    book.returned(1, recalled.returned(HELD));
    assert!(book.may_grant(1, Ino(7), late));
    book.delegate(0, Ino(7), None);
    assert!(!book.may_grant(1, Ino(7), late), "a directory of another");
    assert!(book.may_grant(0, Ino(7), late));
}

#[cfg(feature = "mutants")]
#[test]
fn what_is_granted_too_soon_is_caught() {
    for defect in ["mds_grant_under_intent", "mds_grant_while_recalled", "mds_grants_what_is_delegated"] {
        stdx::mutant::activate(Some(defect));
        let verdict = std::panic::catch_unwind(what_is_somebody_elses_or_will_be_is_not_granted);
        stdx::mutant::activate(None);
        assert!(verdict.is_err(), "{defect}");
    }
}

/// Each would remove a file that the other holds, and give its own back only behind that.
#[test]
fn a_directory_with_files_of_others_is_nobodys() {
    let (dir, file, other) = (Ino(7), Ino(8), Ino(9));
    let mut book = book(2);
    assert!(book.may_delegate_file(0, file, dir, Mono(0)));
    book.delegate(0, file, Some(dir));
    assert!(book.may_delegate_file(0, file, dir, Mono(0)), "once more");
    assert!(!book.may_delegate_file(1, file, dir, Mono(0)));
    assert!(book.may_delegate(0, dir, Mono(0)) && !book.may_delegate(1, dir, Mono(0)));
    book.gives_up(1, file, None);
    assert!(!book.may_delegate(1, dir, Mono(0)), "it is not that one's");
    book.gives_up(0, file, Some(other));
    assert!(book.may_delegate(1, dir, Mono(0)) && book.may_delegate(1, other, Mono(0)));
    book.delegate(1, dir, None);
    assert!(!book.may_delegate_file(0, file, dir, Mono(0)) && book.may_delegate_file(1, file, dir, Mono(0)));
    // Under a recall it goes where its name does, until it is given back.
    book.delegate(0, file, Some(other));
    book.recall_delegated(0, Mono(0), 9);
    book.gives_up(0, file, Some(Ino(10)));
    assert!(book.may_delegate(1, other, Mono(0)) && !book.may_delegate(1, Ino(10), Mono(0)));
    let (_, recalled) = book.outbox.pop().expect("recalled");
    book.returned(0, recalled.returned(recalled.bits));
    assert!(book.may_delegate(1, Ino(10), Mono(0)) && book.files_in.is_empty());
    assert_eq!((book.delegated(0), book.files(0), book.delegated(1)), (0, 0, 1));
    book.delegate(0, file, Some(other));
    book.end_delegated(0);
    assert!(book.files_in.is_empty() && book.delegated_to(file).is_none());
}

#[cfg(feature = "mutants")]
#[test]
fn a_directory_of_two_is_caught() {
    let all: [(&str, fn()); 3] = [
        ("mds_dx_two_holders", a_directory_of_which_others_keep_something_is_nobodys),
        ("mds_delegates_under_intent", a_directory_of_which_others_keep_something_is_nobodys),
        ("mds_dx_over_files_of_others", a_directory_with_files_of_others_is_nobodys),
    ];
    for (defect, test) in all {
        stdx::mutant::activate(Some(defect));
        let verdict = std::panic::catch_unwind(test);
        stdx::mutant::activate(None);
        assert!(verdict.is_err(), "{defect}");
    }
}

/// Whoever has them: what no kernel keeps any more goes without a word, and the memory with it.
#[test]
fn memory_that_is_short_comes_back() {
    let mut book = book(2);
    for ino in 1..=60_000 {
        book.grant((ino % 2) as u16, Ino(ino), if ino < 10 { Bits::FC } else { HELD }, Mono(0));
    }
    let before = book.bytes();
    for step in 0..1_000 {
        book.shed(Mono(1 + step * MS));
    }
    assert_eq!(book.total(), 60_000, "all of it may be kept still");
    for step in 0..1_000 {
        book.shed(Mono(AGE_NS + 2 * SECOND + step * MS));
    }
    assert_eq!(book.total(), 9, "file data is recalled");
    assert!(book.bytes() < before / 4, "{} of {before}", book.bytes());
    assert!((1..9).contains(&book.recalls()), "not of who has least, and nobody keeps less than that");
}

/// Answers everything that was recalled; how much that was of each place.
fn answers(book: &mut Book) -> BTreeMap<SessionId, usize> {
    let mut counts = BTreeMap::new();
    for (session, recalled) in std::mem::take(&mut book.outbox) {
        *counts.entry(session).or_default() += 1;
        book.returned(session.0 as u16 - 1, recalled.returned(recalled.bits));
    }
    counts
}

#[test]
fn where_memory_is_short_those_who_have_most_are_asked_and_keep_the_least() {
    let mut book = book(3);
    book.limits = RoomLimits { least: 50, recalls_max: 10 };
    let count = |place: u16| [1_000, 40, 300][usize::from(place)];
    for place in 0..3 {
        (0..count(place))
            .for_each(|n| book.grant(place, Ino(1 + n + 10_000 * u64::from(place)), Bits::FC, Mono(0)));
    }
    (1..=300).for_each(|step| book.shed(Mono(step * MS)));
    let mut late = Mono(AGE_NS + 2 * SECOND);
    for _ in 0..600 {
        late = late.after(MS);
        book.shed(late);
    }
    assert_eq!((book.recalls(), book.places[0].rooms), (10, 10), "no more than are answered soon");
    assert_eq!(answers(&mut book), [(SessionId(1), 10)].into(), "who has most is first");
    let mut others = false;
    for _ in 0..60_000 {
        late = late.after(100 * MS);
        book.shed(late);
        let (mine, counts) = (book.count(0), answers(&mut book));
        others |= counts.contains_key(&SessionId(3));
        assert!(!others || mine < 600, "too soon: {mine} left");
    }
    assert_eq!((book.count(0), book.count(1), book.count(2)), (50, 40, 50));
}

/// What broke: who had looked at a file an hour ago was asked before others could change it.
#[test]
fn what_no_kernel_keeps_any_more_goes_by_itself() {
    let mut book = book(2);
    (1..=1_000).for_each(|ino| book.grant(0, Ino(ino), HELD, Mono(0)));
    book.grant(1, Ino(2_000), Bits::FC, Mono(0));
    book.grant(1, Ino(2_001), HELD, Mono(0));
    let step = AGE_NS / PARTS as u64 + 1;
    let pass = |book: &mut Book, steps: std::ops::Range<u64>| {
        steps.for_each(|at| book.age(u64::from(u32::MAX), Mono(at * step)));
    };
    pass(&mut book, 1..250);
    assert_eq!(book.total(), 1_002, "all of it may be kept still");
    pass(&mut book, 250..600);
    assert_eq!((book.total(), book.recalls()), (1, 0), "of file data nobody is asked");
    book.ask_for(1, 1);
    pass(&mut book, 600..900);
    assert_eq!(book.recalls(), 1, "but who has as much as it wants");
}

#[test]
fn what_is_offered_is_asked_for_and_not_taken() {
    let mut book = book(2);
    book.limits.recalls_max = 3;
    (1..=9).for_each(|ino| book.grant(0, Ino(ino), HELD.with(Bits::FC), Mono(0)));
    assert!(book.recall_idle(1, Ino(1), Mono(0)) && book.outbox.is_empty(), "it has nothing of it");
    assert!(book.recall_idle(0, Ino(1), Mono(0)) && book.recall_idle(0, Ino(1), Mono(0)));
    let (_, recalled) = book.outbox[0].clone();
    assert_eq!((book.outbox.len(), recalled.bits), (1, Bits::FC), "once, and nothing that runs out");
    let writing = Need::of(Ino(1), Bits::FC);
    assert!(book.is_blocked(Some(1), &writing), "until it is given back");
    assert_eq!(book.owes_since(0), (None, Some(Mono(0))));
    book.wait(7, (SessionId(2), Some(1)), &[writing], Mono(5));
    assert_eq!(book.owes_since(0), (Some(Mono(0)), None), "now somebody waits");
    book.delegate(0, Ino(50), None);
    assert!(book.recall_idle(0, Ino(50), Mono(0)) && book.recall_idle(0, Ino(2), Mono(0)));
    assert_eq!(book.outbox[1].1.bits, Bits::DX);
    assert!(!book.recall_idle(0, Ino(3), Mono(0)), "enough");
    answers(&mut book);
    assert_eq!((book.woken.pop(), book.places[0].rooms), (Some(7), 0));
    assert_eq!((book.delegated(0), book.count(0)), (0, 9), "the attributes run out by themselves");
}

#[test]
fn what_is_delegated_to_all_is_taken_back_in_slices() {
    let mut book = book(3);
    for ino in 1..=20 {
        book.delegate((ino % 3) as u16, Ino(ino), None);
    }
    assert!(!book.recall_all_delegated(Mono(0), 8));
    book.take_back();
    assert!(book.recall_all_delegated(Mono(0), 8) && book.recalls() == 8);
    assert!(book.recall_all_delegated(Mono(0), 8) && book.takes_back());
    assert!(!book.recall_all_delegated(Mono(0), 8) && book.recalls() == 20);
    answers(&mut book);
    assert!(book.trusts.is_empty() && book.delegated.is_empty());
    (1..=5).for_each(|ino| book.delegate(1, Ino(ino), None));
    assert_eq!((book.recall_delegated(1, Mono(0), 3), book.recall_delegated(1, Mono(0), 9)), (3, 2));
}

#[cfg(feature = "mutants")]
#[test]
fn what_is_taken_without_being_asked_for_is_caught() {
    stdx::mutant::activate(Some("mds_idle_taken_at_once"));
    let verdict = std::panic::catch_unwind(what_is_offered_is_asked_for_and_not_taken);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
}

/// It wants little, so it is at its limit always: it must not make the hand advance for nothing.
#[test]
fn who_wants_few_records_has_few_and_costs_little() {
    let mut book = book(2);
    book.ask_for(0, 100);
    for ino in 1..=100 {
        assert!(!book.is_full(0, 1000));
        book.grant(0, Ino(ino), HELD, Mono(0));
    }
    assert!(book.is_full(0, 1000) && !book.is_full(1, 1000));
    let late = Mono(AGE_NS + 3 * SECOND);
    assert!(!book.make_room(0, 1000, late) || book.count(0) < 100);
    let passed = book.passed;
    book.make_room(0, 1000, late.after(MS));
    assert_eq!(book.passed, passed, "too soon");
    let room = (1..300).any(|step| book.make_room(0, 1000, late.after(step * 100 * MS)));
    assert!(room && book.count(0) < 100, "{}", book.count(0));
    book.ask_for(0, 0);
    assert!(!book.is_full(0, 101), "no wish of its own");
    book.ask_for(0, 5);
    book.leave(0);
    assert_eq!(book.enter(SessionId(9), false), Some(0));
    assert!(!book.is_full(0, 6), "the next one's wish is its own");
    (200..206).for_each(|ino| book.grant(0, Ino(ino), HELD, late));
    assert!(book.is_full(0, 6) && !book.is_full(0, 7));
}

/// What broke: what five sessions kept never made room.
#[test]
fn what_many_hold_makes_room_too() {
    let mut book = book(6);
    for place in 0..6 {
        (1..=100).for_each(|ino| book.grant(place, Ino(ino), HELD, Mono(0)));
    }
    assert_eq!((book.count(3), book.total()), (100, 600));
    assert!(!book.make_room(3, 100, Mono(KEEP_MS * MS)), "all of it may be kept still");
    let late = Mono(AGE_NS + 3 * SECOND);
    let room = (0..4).any(|step| book.make_room(3, 100, late.after(step)));
    assert!(room && book.count(3) < 100, "{}", book.count(3));
}
