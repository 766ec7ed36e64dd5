//! What an edge may keep of a directory that is delegated: the client knows its attributes, the rank says for how long they are kept.
//!
//! Absent: which attributes those are (`delegated.rs`).

use super::delegated::{DIR, asked, dir_attr, here, recall_bits, trusted};
use super::early::create;
use super::*;

fn granted(tid: u64, bits: Bits) -> Input {
    let outcome = Ok(Reply::Attr(dir_attr(DIR)));
    from_rank(ServerMsg::Granted { tid: Tid(tid), outcome, grants: Grants::One(bits) })
}

/// How many attributes it has, and what of an answer that came without asking may be kept.
fn told(out: &[Output]) -> (u64, Bits) {
    match out {
        [Output::Answer { outcome: Ok(Reply::Attr(attr)), validity, .. }] => {
            assert!(validity.grants == Grants::None || validity.until > Mono(0));
            (attr.size, validity.grants.of(0))
        }
        other => panic!("{other:?}"),
    }
}

/// Asks until the rank is asked, under the tid that this returns.
fn ask_for_more(bench: &mut Bench) -> u64 {
    for call in 0..100 {
        let out = bench.call(call, getattr(DIR));
        if matches!(out[..], [Output::Send { .. }]) {
            return asked(&out);
        }
        assert_eq!(told(&out).1, Bits::NONE);
    }
    panic!("the rank is never asked")
}

fn kept_although_it_changes() {
    let mut bench = trusted(true);
    let tid = ask_for_more(&mut bench);
    // The answer shows what the directory was like before; what is granted stands.
    here(&bench.call(200, create(DIR, "a")));
    let out = bench.step(granted(tid, Bits::ATTRS));
    assert_eq!(told(&out), (0, Bits::NONE), "old, and not to be kept");
    assert_eq!(told(&bench.call(201, getattr(DIR))), (1, Bits::ATTRS));
    here(&bench.call(202, create(DIR, "b")));
    assert_eq!(told(&bench.call(203, getattr(DIR))), (2, Bits::ATTRS));
    // It lasts as long as the rank believes.
    bench.wait(KEEP_MS * MS);
    assert_eq!(told(&bench.call(204, getattr(DIR))), (2, Bits::NONE));
    ask_for_more(&mut bench);
}

#[test]
fn what_is_granted_of_a_delegated_directory_is_kept_although_it_changes() {
    kept_although_it_changes();
}

fn recalled() {
    // The recall comes later, or overtakes the answer.
    for overtakes in [false, true] {
        let mut bench = trusted(true);
        let tid = ask_for_more(&mut bench);
        let steps = [granted(tid, Bits::ATTRS), recall_bits(DIR, Bits::ATTRS)];
        let [first, second] = steps;
        let order = if overtakes { [second, first] } else { [first, second] };
        for step in order {
            bench.step(step);
        }
        assert_eq!(told(&bench.call(200, getattr(DIR))).1, Bits::NONE, "{overtakes}");
    }
}

#[test]
fn what_was_recalled_of_a_delegated_directory_is_not_kept() {
    recalled();
}

/// Who looks at it now and then waits for no rank.
#[test]
fn a_directory_that_is_seldom_looked_at_is_answered_here() {
    let mut bench = trusted(true);
    for call in 0..7 {
        assert_eq!(told(&bench.call(call, getattr(DIR))), (0, Bits::NONE));
    }
    asked(&bench.call(7, getattr(DIR)));
    assert_eq!(told(&bench.call(8, getattr(DIR))), (0, Bits::NONE), "nobody else waits meanwhile");
}

/// The tests above can fail.
#[cfg(feature = "mutants")]
#[test]
fn defects_of_what_is_shown_are_caught() {
    let defects: [(&str, fn()); 3] = [
        ("client_recall_overtakes_known", recalled),
        ("client_shows_recalled", recalled),
        ("client_grants_end_with_change", kept_although_it_changes),
    ];
    for (defect, test) in defects {
        stdx::mutant::activate(Some(defect));
        let noticed = std::panic::catch_unwind(test).is_err();
        stdx::mutant::activate(None);
        assert!(noticed, "{defect}");
    }
}
