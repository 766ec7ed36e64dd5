//! Syncs of what several ranks have a part in: who has what they are about, and what becomes of them meanwhile.
//!
//! Absent: what was moved at another rank (`tests.rs`).

use super::*;

/// What broke: slots place the directory, so no entry shows that rank 1 has what is in it. Only its home was asked; the power went, and
/// with it a file that had been made there and synced.
#[test]
fn a_sync_of_a_directory_that_slots_place_waits_for_what_is_in_it() {
    let placed = NodeRef { ino: Ino(8000), parent: Ino::ROOT, hash: proto::NameHash(3) };
    let other = NodeRef { ino: Ino(8500), ..placed };
    let new = || NewNode { mode: 0o755, umask: 0, rdev: 0 };
    let (parent, file) = (placed, NodeRef::bare(Ino(8700)));
    for request in [
        create(placed, "a"),
        Request::MkNod { parent, name: name("a"), new: new() },
        Request::MkDir { parent, name: name("a"), new: new() },
        Request::Symlink { parent, name: name("a"), target: name("t").as_bytes().into() },
        Request::Link { node: file, parent, name: name("a") },
        Request::Unlink { parent, name: name("a") },
        Request::RmDir { parent, name: name("a") },
        Request::Rename { parent, name: name("a"), new_parent: other, new_name: name("b"), flags: 0 },
        Request::Rename { parent: other, name: name("b"), new_parent: parent, new_name: name("a"), flags: 0 },
    ] {
        let mut bench = Bench::of_two();
        let [tid] = bench.call(1, request).asked(0)[..] else { panic!("nothing is known of it") };
        assert_eq!(bench.not_mine(0, tid, Some(1), 2).asked(1), [2]);
        bench.early(1, 2, 70, attr(8001, placed.ino), &[]);
        // Forgotten with the kernel.
        bench.step(Input::Forgotten { ino: placed.ino });
        let said = bench.call(2, Request::Fsync { node: placed, data_only: false });
        assert_eq!(said.asked(1), [], "nobody knows that it has anything to do with it");
        let [tid] = said.asked(0)[..] else { panic!("{:?}", said.0) };
        assert_eq!(bench.reply(0, tid, Ok(Reply::Ok)).answers(), [], "rank 1 may lose it yet");
        assert_eq!(bench.say(1, ServerMsg::Durable { position: Position(69) }).answers(), []);
        let said = bench.say(1, ServerMsg::Durable { position: Position(70) });
        assert_eq!(said.answers(), [(2, Ok(Reply::Ok))]);
    }
    let mut bench = Bench::of_two();
    bench.call(1, create(PINNED, "a"));
    bench.early(1, 2, 70, attr(8001, PINNED.ino), &[]);
    bench.call(2, Request::Fsync { node: placed, data_only: false });
    let said = bench.reply(0, 1, Ok(Reply::Ok));
    assert_eq!(said.answers(), [(2, Ok(Reply::Ok))], "it is about another directory");
}

#[cfg(feature = "mutants")]
#[test]
fn a_sync_that_forgets_slots_is_caught() {
    stdx::mutant::activate(Some("client_sync_forgets_slots"));
    let test = a_sync_of_a_directory_that_slots_place_waits_for_what_is_in_it;
    let verdict = std::panic::catch_unwind(test);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
}

/// What broke: by an old place the rank of a directory's content was taken for its home, and answered for its part. What had been changed
/// at the home was not durable, and lost with it.
#[test]
fn a_sync_by_an_old_place_waits_for_what_was_changed_at_the_home() {
    let hash = proto::NameHash(1);
    let old = NodeRef { ino: Ino(7100), parent: PINNED.ino, hash };
    let forgotten = NodeRef { parent: Ino(7200), ..old };
    let change = Request::RemoveXattr { node: old, name: name("user.a") };
    let new = NewNode { mode: 0o755, umask: 0, rdev: 0 };
    let made = Request::MkDir { parent: NodeRef::bare(forgotten.parent), name: name("d"), new };
    for (request, node, home) in [(change, old, 0), (made, forgotten, 1)] {
        let other = 1 - home;
        let mut bench = Bench::with(&map(2, 2, &[(PINNED.ino, 1), (node.ino, other)]));
        bench.call(900, lookup(PINNED, "first"));
        bench.step(Input::Connected { rank: RankId(1) });
        bench.welcome(1, 5, false);
        bench.reply(1, 1, Err(Errno::ENOENT));
        let [tid] = bench.call(1, request).asked(other)[..] else { panic!("it goes by what it knows") };
        let [tid] = bench.not_mine(other, tid, Some(home), 2).asked(home)[..] else { panic!("not asked") };
        if home == 0 {
            let (tid, position, wall) = (Tid(tid), Position(70), Wall(1_000));
            let (outcome, grants, delegated) = (Ok(Reply::Ok), Grants::None, Vec::new());
            bench.say(home, ServerMsg::Early { tid, position, wall, outcome, grants, delegated });
        } else {
            bench.early(home, tid, 70, attr(node.ino.0, node.parent), &[]);
        }
        for ino in [node.ino, node.parent] {
            bench.step(Input::Forgotten { ino });
        }
        let said = bench.call(2, Request::Fsync { node, data_only: false });
        assert_eq!(said.asked(home), []);
        let [tid] = said.asked(other)[..] else { panic!("{:?}", said.0) };
        assert_eq!(bench.reply(other, tid, Ok(Reply::Ok)).answers(), [], "the other rank may lose it yet");
        assert_eq!(bench.say(home, ServerMsg::Durable { position: Position(69) }).answers(), []);
        let said = bench.say(home, ServerMsg::Durable { position: Position(70) });
        assert_eq!(said.answers(), [(2, Ok(Reply::Ok))]);
    }
}

#[cfg(feature = "mutants")]
#[test]
fn a_sync_that_forgets_the_home_is_caught() {
    stdx::mutant::activate(Some("client_sync_forgets_home"));
    let verdict = std::panic::catch_unwind(a_sync_by_an_old_place_waits_for_what_was_changed_at_the_home);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
}

/// What broke: the sync was sent away by a rank that was behind, and waited. Meanwhile the rank left at which something had been renamed
/// before, and nobody could tell whether that had become durable. Asked again the sync followed nothing any more, and came to Ok.
#[test]
fn a_sync_that_is_asked_again_fails_with_what_was_lost_meanwhile() {
    let mut bench = Bench::of_two();
    assert_eq!(bench.call(1, rename(PINNED.ino.0, "a", PINNED.ino.0)).asked(1), [2]);
    bench.early(1, 2, 70, attr(8001, PINNED.ino), &[]);
    let node = NodeRef { ino: Ino(8100), parent: Ino::ROOT, hash: proto::NameHash(1) };
    assert_eq!(bench.call(2, Request::Fsync { node, data_only: false }).asked(0), [1]);
    assert_eq!(bench.not_mine(0, 1, None, 1).answers(), [], "that rank is behind");
    let said = bench.say(0, said_map(&going(3, false)));
    assert!(said.0.iter().any(|output| matches!(output, Output::Late { .. })), "{:?}", said.0);
    assert_eq!(said.asked(0), [2], "by the newer map");
    assert_eq!(bench.reply(0, 2, Ok(Reply::Ok)).answers(), [(2, Err(Errno::EIO))]);
}
