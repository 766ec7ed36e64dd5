//! Rmdir where the directory's content is another rank's: it ends there, and nothing moves for it.
//!
//! Absent: content that others may be about to empty (`removal.rs`), and that is in parts (`../spreads.rs`).

use super::*;

fn rmdir(name: &str) -> Request {
    Request::RmDir { parent: root(), name: n(name) }
}

#[test]
pub(super) fn an_empty_directory_goes_and_nothing_moves_for_it() {
    let Scene { mut c, dir, .. } = Scene::new();
    let made = c.create(dir, "g");
    assert_eq!(c.call(0, rmdir("d")), Err(Errno::ENOTEMPTY));
    c.assert_resolved();
    assert!(c.call(0, Request::Unlink { parent: dir, name: n("g") }).is_ok());
    (0..2).for_each(|rank| c.checkpoint(rank));
    let header = key_bytes(StoreKey::Header { dir: dir.ino, frag: Frag::WHOLE });
    assert!(c.hold(1).store.contains_key(&header));
    let version = c.map.version;
    assert_eq!(c.call(0, rmdir("d")), Ok(Reply::Ok), "{:?}", c.worlds[1].notes);
    c.pass(50);
    c.assert_resolved();
    assert_eq!(
        (c.map.version, c.owner(dir)),
        (version + 1, None),
        "its entry has gone, and none came or moved"
    );
    assert_eq!(c.names(root()), ["f"]);
    let answer = c.ask(1, Request::GetAttr { node: made });
    assert!(matches!(answer, Answered::NotMine(_)), "{answer:?}");
    // Whoever stands in it is told at once. What broke: ranks named each other, and its client asked them for two seconds.
    for request in [Request::GetAttr { node: dir }, Request::Lookup { parent: dir, name: n("g") }] {
        assert_eq!(c.ask(0, request), Answered::Outcome(Err(Errno::ESTALE)));
    }
    // Nothing is left of it in the store.
    (0..2).for_each(|rank| c.checkpoint(rank));
    let backptr = key_bytes(StoreKey::Backptr { ino: dir.ino });
    assert!(!c.hold(1).store.contains_key(&header) && !c.hold(1).store.contains_key(&backptr));
}

#[test]
fn it_goes_once_whoever_dies() {
    let prepare = |s: &mut Scene| {
        s.c.create(s.dir, "g");
        assert!(s.c.call(0, Request::Unlink { parent: s.dir, name: n("g") }).is_ok());
    };
    Scene::with_deaths(
        2,
        0,
        prepare,
        |_| rmdir("d"),
        |s| {
            assert_eq!(s.c.lookup(root(), "d"), Err(Errno::ENOENT));
            s.check_names(root(), &["f"]);
            assert!(!matches!(s.c.ask(0, Request::GetAttr { node: s.dir }), Answered::Outcome(Ok(_))));
        },
    );
}

/// Whoever makes a name while it is reserved has it, or the directory is gone.
#[test]
pub(super) fn what_is_made_meanwhile_waits_and_finds_it_gone() {
    for commits in [true, false] {
        let Scene { mut c, dir, .. } = Scene::new();
        c.greet(1, Peer::Trusted, Bits::NONE);
        c.worlds[0].auto_durable = false;
        let removal = c.start(0, EMBEDDED, rmdir("d"));
        assert!(c.worlds[1].rank.view.transactions.has_in(dir.ino), "{:?}", c.worlds[1].notes);
        let new = proto::request::NewNode { mode: 0o644, umask: 0, rdev: 0 };
        let create = Request::Create { parent: dir, name: n("g"), new, flags: 0 };
        let tid = c.start(1, REMOTE, create);
        c.pass(20);
        assert_eq!(c.take_answer(1, REMOTE, tid), None, "it is undecided");
        if commits {
            c.worlds[0].auto_durable = true;
            c.hold(0).sync();
            assert_eq!(c.wait(0, EMBEDDED, removal), Answered::Outcome(Ok(Reply::Ok)));
            let answer = c.wait(1, REMOTE, tid);
            assert!(!matches!(answer, Answered::Outcome(Ok(_))), "{answer:?}");
        } else {
            c.crash(0);
            c.worlds[0].auto_durable = true;
            c.hold(0).sync();
            c.settle();
            assert!(matches!(c.wait(1, REMOTE, tid), Answered::Outcome(Ok(_))));
            assert_eq!(c.call(0, rmdir("d")), Err(Errno::ENOTEMPTY));
        }
        c.pass(50);
        c.assert_resolved();
    }
}

/// What broke: it had been in a directory that was removed since, and who asked for it by that was told that it is gone.
#[test]
pub(super) fn what_was_in_it_before_is_found_where_it_went() {
    for cached in [true, false] {
        let Scene { mut c, dir, .. } = Scene::new();
        let made = c.create(dir, "g");
        assert_eq!(c.rename((dir, "g"), (root(), "h")), Ok(Reply::Ok));
        assert_eq!(c.call(0, rmdir("d")), Ok(Reply::Ok), "{:?}", c.worlds[1].notes);
        c.pass(50);
        if !cached {
            (0..2).for_each(|rank| c.drop_cache(rank));
        }
        let found = c.attr(0, Request::GetAttr { node: made }).map(|attr| attr.ino);
        assert_eq!(found, Ok(made.ino), "cached: {cached}");
    }
}

/// What broke: while another rank told that there were names in it, the name came to lead to an empty one of a third rank; the second had
/// reserved nothing, and was said to have a part in that.
#[test]
fn a_name_that_leads_to_another_directory_by_then_is_removed_with_that() {
    let mut s = Scene::of(3);
    let third = s.third.expect("a third rank");
    s.c.create(third, "g");
    s.c.cut.insert((0, 2));
    let tid = s.c.start(0, EMBEDDED, rmdir("e"));
    s.c.pass(5);
    let exchange = rename((root(), "d"), (root(), "e"), proto::request::rename_flags::EXCHANGE);
    assert_eq!(s.c.call(0, exchange), Ok(Reply::Ok));
    s.c.cut.clear();
    assert_eq!(s.c.wait(0, EMBEDDED, tid), Answered::Outcome(Ok(Reply::Ok)));
    s.c.pass(50);
    s.c.assert_resolved();
    assert_eq!(s.c.names(root()), ["d", "f"]);
    assert_eq!(s.c.names(third), ["g"]);
}

/// What broke: the rank that it was renamed to had stored nothing of it, and took it for one that nobody had. Its old rank had stored where
/// it was, and that stayed.
#[test]
pub(super) fn where_it_was_before_it_was_renamed_to_another_rank_is_stored_no_more() {
    let mut c = Cluster::with_slots();
    let (above, dir) = (c.dir_at(root(), 1), c.dir_at(root(), 1));
    let names = c.names(root());
    let name = names.into_iter().find(|name| c.lookup(root(), name).is_ok_and(|attr| attr.ino == dir.ino));
    let name = name.expect("a name");
    c.checkpoint(0);
    let backptr = key_bytes(StoreKey::Backptr { ino: dir.ino });
    assert!(c.hold(0).store.contains_key(&backptr));
    assert_eq!(c.rename((root(), &name), (above, "x")), Ok(Reply::Ok));
    assert_eq!(c.call(1, Request::RmDir { parent: above, name: n("x") }), Ok(Reply::Ok));
    c.pass(50);
    (0..2).for_each(|rank| c.checkpoint(rank));
    assert!(!c.hold(0).store.contains_key(&backptr));
}

/// What broke: its rank died between its vote and the decision, and knew nothing of it any more but that the store has no header. Its
/// entry stayed in the map.
#[test]
fn one_that_nobody_ever_used_leaves_no_entry_whoever_dies() {
    for dies in [0, 1] {
        for things in 0..40 {
            let mut c = Cluster::with_slots();
            let dir = c.dir_at(root(), 1);
            assert_eq!(c.pin(dir, 1), Ok(Reply::Ok));
            let names = c.names(root());
            let is_it =
                |c: &mut Cluster, name: &str| c.lookup(root(), name).is_ok_and(|attr| attr.ino == dir.ino);
            let name = names.into_iter().find(|name| is_it(&mut c, name)).expect("a name");
            c.greet(0, Peer::Trusted, Bits::NONE);
            let session = c.worlds[0].sessions[&REMOTE];
            c.worlds.iter_mut().for_each(|world| world.auto_durable = false);
            let tid = c.hold(0).start(REMOTE, Cred::ROOT, rmdir(&name));
            let more = (0..things).all(|_| c.one_thing());
            c.crash(dies);
            c.worlds.iter_mut().for_each(|world| world.auto_durable = true);
            (0..2).for_each(|rank| c.hold(rank).sync());
            c.settle();
            if dies == 0 {
                c.come_back(0, session);
                c.hold(0).retry(REMOTE, tid, Cred::ROOT, rmdir(&name));
            }
            assert_eq!(c.wait(0, REMOTE, tid), Answered::Outcome(Ok(Reply::Ok)));
            c.pass(50);
            c.assert_resolved();
            assert_eq!(c.owner(dir), None, "rank {dies} dies after {things}");
            if !more {
                break;
            }
        }
    }
}

/// What broke: what was to say that nobody has it waited for the disk, and was dropped when that failed.
#[test]
fn who_asks_for_what_is_nowhere_hears_of_a_failed_disk() {
    let mut c = Cluster::new();
    c.greet(0, Peer::Trusted, Bits::NONE);
    c.worlds[0].auto_durable = false;
    c.start(0, EMBEDDED, Request::MkDir { parent: root(), name: n("new"), new: mode(0o755) });
    let unknown = NodeRef::bare(Ino(Ino::ROOT.0 + 70_000));
    let tid = c.start(0, REMOTE, Request::GetAttr { node: unknown });
    c.pass(20);
    assert_eq!(c.take_answer(0, REMOTE, tid), None, "the disk may bring it back");
    c.inject(0, Input::JournalFailed(StoreError::Poisoned));
    assert_eq!(c.wait(0, REMOTE, tid), Answered::Outcome(Err(Errno::EIO)));
}

/// What broke: its home had asked for its time to be set, which waited until the content had ended, and it had a header once more. Whoever
/// lived again behind a checkpoint stored that.
#[test]
fn the_time_of_what_is_removed_meanwhile_is_not_set() {
    for (waits, placed) in [(true, false), (false, false), (true, true), (false, true)] {
        let mut c = if placed { Cluster::with_slots() } else { Scene::new().c };
        let dir = match placed {
            true => c.dir_at(root(), 1),
            false => node(&c.lookup(root(), "d").expect("there")),
        };
        let names = c.names(root());
        let name =
            names.into_iter().find(|name| c.lookup(root(), name).is_ok_and(|attr| attr.ino == dir.ino));
        let name = name.expect("a name");
        let (tid, times) = time_is_set(&mut c, dir);
        // Its entry is there for a while.
        c.deaf = true;
        c.worlds[0].auto_durable = false;
        let removal = c.start(0, EMBEDDED, rmdir(&name));
        assert!(c.worlds[1].rank.view.transactions.has_in(dir.ino), "{:?}", c.worlds[1].notes);
        let conn = c.links[&(0, 1)];
        let times = Input::Message { conn, message: times };
        if waits {
            c.inject(1, times.clone());
            c.settle();
        }
        c.worlds[0].auto_durable = true;
        c.hold(0).sync();
        assert_eq!(c.wait(0, EMBEDDED, removal), Answered::Outcome(Ok(Reply::Ok)));
        c.hold(1).hold_stores = !waits;
        c.pass(50);
        // It comes so late if a connection breaks; the checkpoint has begun behind the end of the content.
        let end = c.worlds[1].rank.journal.end;
        if !waits {
            c.inject(1, Input::Checkpoint);
            c.hold(1).pass(20);
            c.inject(1, times);
            c.settle();
            c.hold(1).let_go();
            c.settle();
        }
        assert_eq!(c.wait(0, EMBEDDED, tid), Answered::Outcome(Err(Errno::ESTALE)), "{waits} {placed}");
        assert_eq!(c.worlds[1].rank.journal.end, end, "waits: {waits}, placed: {placed}");
        let cache = &c.worlds[1].rank.view.cache;
        let is_set = cache.find_dir(dir.ino).is_some_and(|slot| cache.dir(slot).header.mtime == Wall(5));
        assert!(!is_set, "waits: {waits}, placed: {placed}");
        c.deaf = false;
        c.crash(1);
        c.checkpoint(1);
        let header = key_bytes(StoreKey::Header { dir: dir.ino, frag: Frag::WHOLE });
        assert!(!c.hold(1).store.contains_key(&header), "waits: {waits}, placed: {placed}");
    }
}

/// What broke: its removal was in the store by then, and nowhere else. The content's rank took that for damage.
fn the_time_of_what_is_gone_from_the_cache_is_not_set() {
    let mut c = Scene::new().c;
    let dir = node(&c.lookup(root(), "d").expect("there"));
    let (tid, times) = time_is_set(&mut c, dir);
    // Its entry is there for a while.
    c.deaf = true;
    assert_eq!(c.call(0, rmdir("d")), Ok(Reply::Ok));
    c.checkpoint(1);
    c.drop_cache(1);
    let conn = c.links[&(0, 1)];
    c.inject(1, Input::Message { conn, message: times });
    c.settle();
    assert_eq!(c.wait(0, EMBEDDED, tid), Answered::Outcome(Err(Errno::ESTALE)));
}

#[test]
fn what_is_gone_and_stored_is_not_damaged() {
    the_time_of_what_is_gone_from_the_cache_is_not_set();
}

/// Somebody sets the time of an empty directory of rank 1's. What rank 0 asks for that is on its way.
fn time_is_set(c: &mut Cluster, dir: NodeRef) -> (Tid, ClientMsg) {
    c.create(dir, "g");
    assert!(c.call(0, Request::Unlink { parent: dir, name: n("g") }).is_ok());
    c.stat(dir);
    let set = proto::SetAttr { mtime: Some(proto::attr::SetTime::At(Wall(5))), ..Default::default() };
    let tid = c.hold(0).start(EMBEDDED, Cred::ROOT, Request::SetAttr { node: dir, set });
    (tid, sets_times(c).1)
}

/// What rank 0 asks rank 1 to do next is that: it stays on its way.
fn sets_times(c: &mut Cluster) -> (RankId, ClientMsg) {
    for _ in 0..100 {
        let is = |(_, message): &(RankId, ClientMsg)| {
            matches!(message, ClientMsg::Request { request: Request::SetTimes { .. }, .. })
        };
        if let Some(at) = c.worlds[0].to_ranks.iter().position(is) {
            return c.worlds[0].to_ranks.remove(at).expect("it is there");
        }
        c.go_on();
    }
    panic!("nothing is asked: {:?}", c.worlds[0].notes);
}

/// Two that go at once to the same place, one of them with a name that comes there from elsewhere.
#[test]
fn a_name_that_comes_meanwhile_finds_it_there_or_gone() {
    for first in [0_usize, 1] {
        let mut s = Scene::new();
        let request = rename((root(), "f"), (s.dir, "g"), 0);
        let mut ask = |at: usize| match at {
            0 => (0, s.c.start(0, EMBEDDED, rmdir("d"))),
            _ => (1, s.c.start(1, EMBEDDED, request.clone())),
        };
        let asked = [ask(first), ask(1 - first)];
        let answers: Vec<bool> = asked
            .iter()
            .map(|(at, tid)| matches!(s.c.wait(*at, EMBEDDED, *tid), Answered::Outcome(Ok(_))))
            .collect();
        assert_eq!(answers.iter().filter(|done| **done).count(), 1, "{answers:?}");
        s.c.pass(50);
        s.c.assert_resolved();
    }
}

/// An empty directory at rank 1, which two sessions remove at once. The first has done so, and the second one is yet to ask again.
fn removed_twice(placed: bool) -> (Cluster, NodeRef, Tid) {
    let (mut c, dir) = if placed {
        let mut c = Cluster::with_slots();
        let dir = c.dir_at(root(), 0);
        assert_eq!(c.pin(dir, 1), Ok(Reply::Ok));
        (c, dir)
    } else {
        let Scene { c, dir, .. } = Scene::new();
        (c, dir)
    };
    let names = c.names(root());
    let is_it = |name: &&String| c.lookup(root(), name).is_ok_and(|attr| attr.ino == dir.ino);
    let name = names.iter().find(is_it).expect("a name").clone();
    c.create(dir, "g");
    assert!(c.call(0, Request::Unlink { parent: dir, name: n("g") }).is_ok());
    // The content is no newborn: without a header in the store it is taken for damaged.
    (0..2).for_each(|rank| c.checkpoint(rank));
    c.greet(0, Peer::Trusted, Bits::NONE);
    // Its entry stays in the map for a while: by that the content is asked of rank 1.
    c.deaf = true;
    let [first, second] = [EMBEDDED, REMOTE].map(|conn| c.hold(0).start(conn, Cred::ROOT, rmdir(&name)));
    c.settle();
    assert_eq!(c.take_answer(0, EMBEDDED, first), Some(Answered::Outcome(Ok(Reply::Ok))));
    assert_eq!(c.take_answer(0, REMOTE, second), None, "not yet, it was told");
    (c, dir, second)
}

/// What broke: the second one asked again for the content, which had ended and was stored so by then, and was told EIO, or, of one that slots
/// place, ESTALE. A life of that rank that knows nothing of it answers the same.
#[test]
pub(super) fn who_removes_what_another_has_removed_meanwhile_finds_no_name() {
    for (placed, dies) in [(false, false), (false, true), (true, false), (true, true)] {
        let (mut c, dir, second) = removed_twice(placed);
        c.drop_cache(1);
        if dies {
            c.crash(1);
        }
        assert_eq!(c.owner(dir), Some(1), "its entry is there yet");
        let answer = c.wait(0, REMOTE, second);
        assert_eq!(
            answer,
            Answered::Outcome(Err(Errno::ENOENT)),
            "{placed}, dies: {dies}, {:?}",
            c.worlds[1].notes
        );
        c.deaf = false;
        c.pass(50);
        c.assert_resolved();
    }
}

/// What is there and has lost its content is damaged: that is said, and not looked for without end.
#[test]
fn a_directory_without_its_content_is_damaged() {
    let Scene { mut c, dir, .. } = Scene::new();
    c.create(dir, "g");
    assert!(c.call(0, Request::Unlink { parent: dir, name: n("g") }).is_ok());
    (0..2).for_each(|rank| c.drop_cache(rank));
    let header = key_bytes(StoreKey::Header { dir: dir.ino, frag: Frag::WHOLE });
    assert!(c.hold(1).store.remove(&header).is_some());
    assert_eq!(c.call(0, rmdir("d")), Err(Errno::EIO), "{:?}", c.worlds[1].notes);
    c.pass(50);
    c.assert_resolved();
}

#[cfg(feature = "mutants")]
#[test]
fn defects_of_content_that_ends_are_caught() {
    let defects: [(&str, fn()); 8] = [
        ("mds_gone_is_the_answer", who_removes_what_another_has_removed_meanwhile_finds_no_name),
        ("mds_gone_is_damage", the_time_of_what_is_gone_from_the_cache_is_not_set),
        ("mds_missing_is_damage", who_removes_what_another_has_removed_meanwhile_finds_no_name),
        ("mds_times_set_of_what_is_gone", the_time_of_what_is_removed_meanwhile_is_not_set),
        ("mds_came_unstored", where_it_was_before_it_was_renamed_to_another_rank_is_stored_no_more),
        ("mds_end_forgotten", an_empty_directory_goes_and_nothing_moves_for_it),
        ("mds_nowhere_before_durable", what_is_made_meanwhile_waits_and_finds_it_gone),
        ("mds_content_outlives_directory", an_empty_directory_goes_and_nothing_moves_for_it),
    ];
    for (defect, test) in defects {
        stdx::mutant::activate(Some(defect));
        let verdict = std::panic::catch_unwind(test);
        stdx::mutant::activate(None);
        assert!(verdict.is_err(), "{defect}");
    }
}
