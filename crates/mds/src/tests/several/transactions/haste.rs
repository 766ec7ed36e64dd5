//! Renames that begin with what they reserve: when they do, what they do when that is not to be had, and whom they ask.
//!
//! Absent: what each comes to whoever dies (`transactions.rs`): those begin in haste, too.

use super::*;
use proto::request::rename_flags::EXCHANGE;
use proto::transact::Step;

/// What the leader says to others until it answers, in order; so many steps at most.
fn steps(
    s: &mut Scene,
    leader: usize,
    request: Request,
    most: usize,
) -> (Option<Answered>, Vec<&'static str>) {
    let tid = s.c.hold(leader).start(EMBEDDED, Cred::ROOT, request);
    let (mut said, mut waits) = (BTreeMap::new(), 0);
    loop {
        for (_, message) in &s.c.worlds[leader].to_ranks {
            if let ClientMsg::Request { tid, request: Request::Transact { step, .. }, .. } = message {
                let step = match step {
                    Step::Clear { .. } => "clear",
                    Step::Prepare { .. } => "prepare",
                    Step::Commit { .. } => "commit",
                    Step::Abort => "abort",
                    Step::Ask => "ask",
                };
                said.insert(*tid, step);
            }
        }
        let answer = s.c.take_answer(leader, EMBEDDED, tid);
        if answer.is_some() || said.len() >= most {
            s.c.settle();
            return (answer, said.into_values().take(most).collect());
        }
        if !s.c.one_thing() {
            s.c.pass(1);
            waits += 1;
        }
        assert!(waits < 10, "it ends: {said:?}");
    }
}

fn done(s: &mut Scene, leader: usize, request: Request) -> Vec<&'static str> {
    let (answer, said) = steps(s, leader, request, usize::MAX);
    assert_eq!(answer, Some(Answered::Outcome(Ok(Reply::Ok))), "{said:?}");
    s.c.pass(20);
    s.c.assert_resolved();
    said
}

fn synced(s: &mut Scene) {
    assert_eq!(s.c.call(0, Request::Fsync { node: s.file, data_only: false }), Ok(Reply::Ok));
    s.c.settle();
}

/// Two questions, with one answer of the journal each.
#[test]
fn a_file_that_nobody_has_is_reserved_at_once() {
    let mut s = Scene::new();
    synced(&mut s);
    let request = rename((root(), "f"), (s.dir, "g"), 0);
    let said = done(&mut s, 1, request);
    assert_eq!(said, ["prepare", "commit"]);
    s.check_file(s.dir, "g", 1);
}

#[test]
fn what_is_in_the_way_of_haste_is_cleared() {
    let again = ["prepare", "abort", "clear", "prepare", "commit"];
    let mut s = Scene::new();
    let request = rename((root(), "f"), (s.dir, "g"), 0);
    assert_eq!(done(&mut s, 1, request), again, "its bytes are not synced");

    let mut s = Scene::new();
    synced(&mut s);
    s.c.greet(0, Peer::Trusted, Bits::NONE);
    let open = s.c.hold(0).start(REMOTE, Cred::ROOT, Request::Open { node: s.file, flags: 0 });
    assert!(matches!(s.c.wait(0, REMOTE, open), Answered::Outcome(Ok(_))));
    s.c.greet(1, Peer::Trusted, Bits::NONE);
    let request = rename((root(), "f"), (s.dir, "g"), 0);
    assert_eq!(steps(&mut s, 1, request, 3).1, again[..3], "somebody has it open");
}

/// What it is to be below has to be looked at while it is reserved.
#[test]
fn directories_are_renamed_without_haste() {
    let mut s = Scene::new();
    let dir = s.c.mkdir(s.dir, "n");
    // Of this one nothing else has to be done before.
    assert_eq!(s.c.pin(dir, 1), Ok(Reply::Ok));
    let request = rename((s.dir, "n"), (root(), "o"), 0);
    let said = done(&mut s, 0, request);
    assert_eq!(said[..3], ["prepare", "abort", "clear"], "{said:?}");
}

#[test]
fn an_exchange_begins_with_what_is_there() {
    let mut s = Scene::new();
    synced(&mut s);
    s.c.create(s.dir, "g");
    let request = rename((root(), "f"), (s.dir, "g"), EXCHANGE);
    assert_eq!(done(&mut s, 1, request)[0], "clear");
}

/// Each rename read in the store again where the old directory is.
#[test]
fn whose_the_old_directory_is_is_looked_for_once() {
    let mut s = Scene::of(3);
    let sub = s.c.mkdir(root(), "sub");
    for name in ["a", "b", "c"] {
        s.c.create(sub, name);
    }
    let sub = NodeRef::bare(sub.ino);
    let loads = |s: &mut Scene, name: &str| {
        let before = s.c.worlds[1].rank.status().loads;
        let request = rename((sub, name), (s.dir, name), 0);
        done(s, 1, request);
        s.c.worlds[1].rank.status().loads - before
    };
    assert!(loads(&mut s, "a") > 1);
    assert_eq!(loads(&mut s, "b"), 1, "the new name");
    // What was known is over with the map by which it was.
    assert_eq!(s.c.pin(sub, 2), Ok(Reply::Ok));
    s.c.settle();
    loads(&mut s, "c");
    s.check_names(s.dir, &["a", "b", "c"]);
}

#[cfg(feature = "mutants")]
#[test]
fn defects_of_haste_are_caught() {
    stdx::mutant::activate(Some("mds_all_are_plain"));
    let verdict = std::panic::catch_unwind(directories_are_renamed_without_haste);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
}
