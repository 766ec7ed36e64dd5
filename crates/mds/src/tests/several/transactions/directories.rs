//! Directories that get another parent where the two parents are not governed by the same: whoever dies, and whatever else moves meanwhile.
//!
//! Absent: files (`../transactions.rs`); spread directories (`spread.rs`).

use super::*;
use proto::request::rename_flags::{EXCHANGE, NOREPLACE};

/// `/m` with a file and a directory, which has another file in it.
fn tree(s: &mut Scene) -> NodeRef {
    let top = s.c.mkdir(root(), "m");
    let sub = s.c.mkdir(top, "sub");
    s.c.create(top, "one");
    s.c.create(sub, "two");
    top
}

impl Scene {
    /// The directory is there, with all that is below it, and says so.
    fn check_tree(&mut self, top: NodeRef, parent: NodeRef, name: &str) {
        let attr = self.c.lookup(parent, name).unwrap_or_else(|errno| panic!("{name}: {errno}"));
        assert_eq!((attr.ino, attr.size, attr.nlink, attr.parent), (top.ino, 2, 3, parent.ino), "{name}");
        assert_eq!(self.c.stat(NodeRef::bare(top.ino)), attr);
        self.check_names(node(&attr), &["one", "sub"]);
        let sub = node(&self.c.lookup(node(&attr), "sub").expect("there"));
        self.check_names(sub, &["two"]);
        self.check_parent(node(&attr), parent);
        self.check_parent(sub, top);
    }

    fn check_parent(&mut self, dir: NodeRef, parent: NodeRef) {
        match self.c.call(0, Request::Parent { node: dir }) {
            Ok(Reply::Node(found)) => assert_eq!(found.ino, parent.ino),
            other => panic!("no parent: {other:?}"),
        }
    }

    fn check_links(&mut self, dir: NodeRef, nlink: u32) {
        assert_eq!(self.c.stat(dir).nlink, nlink);
    }
}

#[test]
fn a_directory_goes_to_another_rank_and_what_is_in_it_stays() {
    let mut s = Scene::new();
    let top = tree(&mut s);
    let before = s.c.stat(top);
    s.check_links(root(), 4);
    s.check_links(s.dir, 2);
    assert_eq!(s.c.rename((root(), "m"), (s.dir, "n")), Ok(Reply::Ok), "{:?}", s.c.worlds[0].notes);
    assert_eq!(s.c.owner(top), Some(0), "it has an entry");
    s.check_tree(top, s.dir, "n");
    s.check_links(root(), 3);
    s.check_links(s.dir, 3);
    let after = s.c.stat(NodeRef::bare(top.ino));
    assert!(after.change > before.change && after.ctime >= before.ctime);
    assert_eq!(s.c.lookup(root(), "m"), Err(Errno::ENOENT));
    assert_eq!(s.c.ask(0, Request::GetAttr { node: top }), NOT_MINE(1));
    // It is used at both, and what each shows is what the other did.
    let there = node(&after);
    s.c.create(there, "three");
    assert_eq!((s.c.stat(there).size, s.c.names(there).len()), (3, 3));
    let set = proto::SetAttr { mode: Some(0o700), ..Default::default() };
    assert!(s.c.call(0, Request::SetAttr { node: there, set }).is_ok());
    assert_eq!(s.c.stat(there).mode & 0o777, 0o700);
    assert_eq!(s.c.call(0, Request::Unlink { parent: there, name: n("three") }), Ok(Reply::Ok));
    assert_eq!(s.c.stat(there).size, 2);
    // And back, there again, and gone.
    assert_eq!(s.c.rename((s.dir, "n"), (root(), "m")), Ok(Reply::Ok));
    s.check_tree(top, root(), "m");
    assert_eq!(s.c.rename((root(), "m"), (s.dir, "n")), Ok(Reply::Ok));
    (0..2).for_each(|rank| s.c.drop_cache(rank));
    s.check_tree(top, s.dir, "n");
    s.c.assert_resolved();
}

#[test]
fn a_directory_is_renamed_once_whoever_dies() {
    let request = |s: &Scene| rename((root(), "m"), (s.dir, "n"), 0);
    let check = |s: &mut Scene| {
        let top = s.c.lookup(s.dir, "n").expect("there");
        s.check_tree(node(&top), s.dir, "n");
        s.check_names(root(), &["d", "f"]);
        s.check_links(root(), 3);
        s.check_links(s.dir, 3);
    };
    Scene::with_deaths(2, 1, |s| _ = tree(s), request, check);
}

#[test]
fn a_directory_comes_to_rank_0_once_whoever_dies() {
    let prepare = |s: &mut Scene| {
        tree(s);
        assert_eq!(s.c.rename((root(), "m"), (s.dir, "n")), Ok(Reply::Ok));
        // One that has no entry.
        let inner = s.c.mkdir(s.dir, "inner");
        s.c.create(inner, "x");
    };
    let check = |s: &mut Scene| {
        let inner = s.c.lookup(root(), "i").expect("there");
        s.check_names(node(&inner), &["x"]);
        s.check_parent(node(&inner), root());
        s.check_names(s.dir, &["n"]);
        s.check_links(s.dir, 3);
        s.check_links(root(), 4);
    };
    Scene::with_deaths(2, 0, prepare, |s| rename((s.dir, "inner"), (root(), "i"), 0), check);
}

#[test]
fn three_ranks_have_a_directory_its_old_parent_and_its_new_one() {
    let third = |s: &Scene| s.third.expect("rank 2's");
    let prepare = |s: &mut Scene| {
        tree(s);
        assert_eq!(s.c.rename((root(), "m"), (s.dir, "n")), Ok(Reply::Ok));
    };
    let check = |s: &mut Scene| {
        let top = s.c.lookup(third(s), "o").expect("there");
        s.check_tree(node(&top), third(s), "o");
        s.check_names(s.dir, &[]);
        assert_eq!(s.c.owner(node(&top)), Some(0));
    };
    Scene::with_deaths(3, 2, prepare, |s| rename((s.dir, "n"), (third(s), "o"), 0), check);
}

#[test]
fn no_directory_comes_below_itself() {
    let mut s = Scene::of(3);
    let third = s.third.expect("rank 2's");
    let deep = s.c.mkdir(s.dir, "deep");
    assert_eq!(s.c.rename((root(), "e"), (deep, "e")), Ok(Reply::Ok), "{:?}", s.c.worlds[1].notes);
    let e = NodeRef::bare(third.ino);
    let inner = s.c.mkdir(e, "inner");
    for into in [s.dir, deep, e, inner] {
        assert_eq!(s.c.rename((root(), "d"), (into, "x")), Err(Errno::EINVAL), "{into:?}");
    }
    for into in [e, inner] {
        assert_eq!(s.c.rename((s.dir, "deep"), (into, "x")), Err(Errno::EINVAL), "{into:?}");
        assert_eq!(s.c.rename((deep, "e"), (into, "x")), Err(Errno::EINVAL), "{into:?}");
    }
    assert_eq!(s.c.call(0, rename((e, "inner"), (root(), "d"), EXCHANGE)), Err(Errno::EINVAL));
    s.c.create(inner, "full");
    assert_eq!(s.c.rename((e, "inner"), (root(), "d")), Err(Errno::ENOTEMPTY));
    s.c.pass(20);
    s.c.assert_resolved();
    s.check_parent(inner, e);
    s.check_parent(e, deep);
}

/// What broke: that the old name leads to the directory itself was told before anything was reserved, and was long over.
#[test]
pub(in super::super) fn a_directory_is_said_to_come_into_itself_when_that_is_reserved() {
    let (mut refused, mut gone) = (0, 0);
    for things in 0..60 {
        let mut s = Scene::new();
        s.c.worlds.iter_mut().for_each(|world| world.auto_durable = false);
        let first = s.c.hold(1).start(EMBEDDED, Cred::ROOT, rename((root(), "d"), (s.dir, "x"), NOREPLACE));
        (0..things).all(|_| s.c.one_thing());
        let second = s.c.hold(0).start(EMBEDDED, Cred::ROOT, rename((root(), "d"), (root(), "g"), 0));
        let (mut answer, mut moved) = (s.c.take_answer(1, EMBEDDED, first), None);
        let mut waits = 0;
        while answer.is_none() {
            moved = moved.or_else(|| s.c.take_answer(0, EMBEDDED, second));
            if !s.c.one_thing() {
                // What was not yet to be had is asked for again.
                s.c.pass(1);
                waits += 1;
            }
            assert!(waits < 10, "it ends, after {things}");
            answer = s.c.take_answer(1, EMBEDDED, first);
        }
        let expected = if moved.is_some() { Errno::ENOENT } else { Errno::EINVAL };
        match answer {
            Some(Answered::Outcome(Err(Errno::EINVAL))) => refused += 1,
            Some(Answered::Outcome(Err(Errno::ENOENT))) => gone += 1,
            other => panic!("{other:?} after {things}"),
        }
        assert!(
            moved.is_none() || answer == Some(Answered::Outcome(Err(expected))),
            "{answer:?} after {things}"
        );
        while s.c.one_thing() {}
        s.c.worlds.iter_mut().for_each(|world| world.auto_durable = true);
        s.c.pass(20);
        s.c.assert_resolved();
        s.check_names(root(), &["f", "g"]);
    }
    assert!(refused > 0 && gone > 0, "{refused} {gone}");
}

/// A name is in the way of one that leads into itself.
#[test]
fn what_is_in_the_way_in_the_directory_itself_is_said() {
    let mut s = Scene::new();
    s.c.create(s.dir, "x");
    s.c.drop_cache(1);
    let call = |s: &mut Scene, how| s.c.call(0, rename((root(), "d"), (s.dir, "x"), how));
    assert_eq!(call(&mut s, NOREPLACE), Err(Errno::EEXIST), "{:?}", s.c.worlds[1].notes);
    assert_eq!(call(&mut s, 0), Err(Errno::EINVAL));
    assert_eq!(call(&mut s, EXCHANGE), Err(Errno::EINVAL));
    assert_eq!(s.c.call(0, rename((root(), "d"), (s.dir, "y"), EXCHANGE)), Err(Errno::ENOENT));
    s.c.pass(20);
    s.c.assert_resolved();
}

/// Each is fine alone.
#[test]
fn of_two_that_would_make_a_loop_together_one_is_refused() {
    for things in 0..60 {
        let mut s = Scene::of(3);
        let third = s.third.expect("rank 2's");
        s.c.worlds.iter_mut().for_each(|world| world.auto_durable = false);
        let first = s.c.hold(1).start(EMBEDDED, Cred::ROOT, rename((root(), "e"), (s.dir, "e"), 0));
        (0..things).all(|_| s.c.one_thing());
        let second = s.c.hold(2).start(EMBEDDED, Cred::ROOT, rename((root(), "d"), (third, "d"), 0));
        while s.c.one_thing() {}
        s.c.worlds.iter_mut().for_each(|world| world.auto_durable = true);
        let answers = [s.c.wait(1, EMBEDDED, first), s.c.wait(2, EMBEDDED, second)];
        let done = answers.iter().filter(|answer| **answer == Answered::Outcome(Ok(Reply::Ok))).count();
        assert_eq!(done, 1, "{answers:?} after {things}");
        assert!(answers.contains(&Answered::Outcome(Err(Errno::EINVAL))), "{answers:?}");
        s.c.pass(20);
        s.c.assert_resolved();
        s.check_names(
            root(),
            if answers[0] == Answered::Outcome(Ok(Reply::Ok)) { &["d", "f"] } else { &["e", "f"] },
        );
    }
}

/// Two directories of one rank's with entries: nothing changes hands, and what is below is governed by something else.
#[test]
fn a_directory_goes_between_two_entries_of_one_rank() {
    let mut s = Scene::of(3);
    let other = s.c.mkdir(root(), "o");
    assert_eq!(s.c.pin(other, 1), Ok(Reply::Ok));
    let inner = s.c.mkdir(s.dir, "inner");
    s.c.create(inner, "x");
    assert_eq!(s.c.rename((s.dir, "inner"), (other, "i")), Ok(Reply::Ok), "{:?}", s.c.worlds[1].notes);
    assert_eq!(s.c.owner(inner), Some(1));
    let there = node(&s.c.lookup(other, "i").expect("there"));
    s.check_names(there, &["x"]);
    s.check_parent(there, other);
    // What governs its old and its new parent moves on without it.
    assert_eq!(s.c.pin(other, 2), Ok(Reply::Ok));
    s.check_names(there, &["x"]);
    s.c.create(there, "y");
    assert_eq!(s.c.owner(inner), Some(1));
    assert_eq!(s.c.rename((root(), "o"), (there, "o")), Err(Errno::EINVAL));
    s.c.pass(20);
    s.c.assert_resolved();
}

#[test]
fn an_empty_directory_is_replaced_once_whoever_dies() {
    for content in [None, Some(0)] {
        let prepare = |s: &mut Scene| {
            tree(s);
            let old = s.c.mkdir(s.dir, "n");
            if let Some(rank) = content {
                assert_eq!(s.c.pin(old, rank), Ok(Reply::Ok));
            }
        };
        let check = |s: &mut Scene| {
            let top = s.c.lookup(s.dir, "n").expect("there");
            s.check_tree(node(&top), s.dir, "n");
            s.check_names(root(), &["d", "f"]);
            s.check_names(s.dir, &["n"]);
            s.check_links(s.dir, 3);
        };
        Scene::with_deaths(2, 1, prepare, |s| rename((root(), "m"), (s.dir, "n"), 0), check);
    }
}

#[test]
fn what_may_not_be_replaced_stays() {
    let mut s = Scene::new();
    let top = tree(&mut s);
    let old = s.c.mkdir(s.dir, "n");
    s.c.create(old, "x");
    s.c.create(s.dir, "file");
    let call = |s: &mut Scene, from, to, how| s.c.call(0, rename((root(), from), (s.dir, to), how));
    assert_eq!(call(&mut s, "m", "n", 0), Err(Errno::ENOTEMPTY));
    assert_eq!(call(&mut s, "m", "n", NOREPLACE), Err(Errno::EEXIST));
    assert_eq!(call(&mut s, "m", "file", 0), Err(Errno::ENOTDIR));
    assert_eq!(call(&mut s, "f", "n", 0), Err(Errno::EISDIR));
    assert_eq!(call(&mut s, "m", "none", EXCHANGE), Err(Errno::ENOENT));
    assert_eq!(s.c.pin(old, 0), Ok(Reply::Ok));
    assert_eq!(call(&mut s, "m", "n", 0), Err(Errno::ENOTEMPTY));
    assert_eq!(s.c.call(0, Request::Unlink { parent: old, name: n("x") }), Ok(Reply::Ok));
    assert_eq!(call(&mut s, "m", "n", 0), Ok(Reply::Ok));
    s.check_tree(top, s.dir, "n");
    s.c.pass(20);
    assert_eq!(s.c.owner(old), None, "its entry is dropped");
    s.c.assert_resolved();
}

/// Of one rank's names one has its content elsewhere.
#[test]
fn a_boundary_is_replaced_within_a_rank() {
    let mut s = Scene::new();
    let top = tree(&mut s);
    assert_eq!(s.c.rename((root(), "m"), (root(), "d")), Ok(Reply::Ok));
    s.check_tree(top, root(), "d");
    s.c.pass(20);
    assert_eq!(s.c.owner(s.dir), None);
}

#[test]
fn two_directories_change_places_once_whoever_dies() {
    let prepare = |s: &mut Scene| {
        tree(s);
        let other = s.c.mkdir(s.dir, "n");
        s.c.create(other, "x");
    };
    let check = |s: &mut Scene| {
        let top = s.c.lookup(s.dir, "n").expect("there");
        s.check_tree(node(&top), s.dir, "n");
        let other = node(&s.c.lookup(root(), "m").expect("there"));
        s.check_names(other, &["x"]);
        s.check_parent(other, root());
        s.check_links(root(), 4);
        s.check_links(s.dir, 3);
    };
    Scene::with_deaths(2, 1, prepare, |s| rename((root(), "m"), (s.dir, "n"), EXCHANGE), check);
}

#[test]
fn a_directory_and_a_file_change_places() {
    let mut s = Scene::new();
    let top = tree(&mut s);
    let other = s.c.create(s.dir, "n");
    assert_eq!(s.c.call(0, rename((root(), "m"), (s.dir, "n"), EXCHANGE)), Ok(Reply::Ok));
    s.check_tree(top, s.dir, "n");
    assert_eq!(s.c.lookup(root(), "m").map(|attr| attr.ino), Ok(other.ino));
    s.check_links(root(), 3);
    s.check_links(s.dir, 3);
    assert_eq!(s.c.call(0, rename((root(), "m"), (s.dir, "n"), EXCHANGE)), Ok(Reply::Ok));
    s.check_tree(top, root(), "m");
    s.check_links(root(), 4);
    s.check_links(s.dir, 2);
    s.c.pass(20);
    s.c.assert_resolved();
}

/// By a mount in the rank's process.
#[test]
fn a_directory_that_is_open_stays() {
    let mut s = Scene::new();
    let top = tree(&mut s);
    assert!(s.c.call(0, Request::Open { node: top, flags: 0 }).is_ok());
    assert_eq!(s.c.rename((root(), "m"), (s.dir, "n")), Err(Errno::EXDEV));
    assert!(s.c.call(0, Request::Release { node: top, count: 1 }).is_ok());
    assert_eq!(s.c.rename((root(), "m"), (s.dir, "n")), Ok(Reply::Ok));
    s.check_tree(top, s.dir, "n");
}

/// What broke: by its older map what is in the directory would be its own, with the name.
#[test]
fn who_has_not_heard_of_the_entry_waits_for_it() {
    for (behind, how) in [(1, 0), (0, EXCHANGE), (1, EXCHANGE)] {
        let mut s = Scene::new();
        let top = tree(&mut s);
        let other = s.c.mkdir(s.dir, "n");
        if how == EXCHANGE {
            s.c.create(other, "x");
        }
        if behind == 0 {
            // What it has to hear of is that of the other one.
            assert_eq!(s.c.pin(top, 0), Ok(Reply::Ok));
        }
        s.c.behind.insert(behind);
        let tid = s.c.start(1, EMBEDDED, rename((root(), "m"), (s.dir, "n"), how));
        s.c.pass(20);
        assert_eq!(s.c.take_answer(1, EMBEDDED, tid), None, "rank {behind}, {how}");
        s.c.behind.clear();
        s.c.publish();
        assert_eq!(s.c.wait(1, EMBEDDED, tid), Answered::Outcome(Ok(Reply::Ok)));
        s.check_tree(top, s.dir, "n");
        s.c.pass(20);
        s.c.assert_resolved();
    }
}

/// What broke: the plan before had come to a sync, and this one was led like it, by nobody.
#[test]
fn what_is_planned_behind_a_sync_is_no_part_of_it() {
    let mut s = Scene::new();
    let top = tree(&mut s);
    let file = s.c.create(s.dir, "n");
    s.c.write(file, b"bytes");
    s.c.hold(1).hold_data = true;
    let tid = s.c.start(1, EMBEDDED, rename((root(), "m"), (s.dir, "n"), EXCHANGE));
    assert_eq!(s.c.worlds[1].held.len(), 1, "a sync");
    s.c.create(s.dir, "beside");
    s.c.hold(1).let_go();
    s.c.settle();
    assert_eq!(s.c.wait(1, EMBEDDED, tid), Answered::Outcome(Ok(Reply::Ok)));
    s.check_tree(top, s.dir, "n");
}

/// It would be an entry of nothing.
#[test]
fn what_is_removed_while_it_gets_its_entry_loses_it_again() {
    let mut s = Scene::new();
    let top = s.c.mkdir(root(), "m");
    s.c.deaf = true;
    let tid = s.c.start(1, EMBEDDED, rename((root(), "m"), (s.dir, "n"), 0));
    assert_eq!(s.c.worlds[0].wishes.len(), 1, "its entry");
    assert_eq!(s.c.call(0, Request::RmDir { parent: root(), name: n("m") }), Ok(Reply::Ok));
    s.c.deaf = false;
    assert_eq!(s.c.wait(1, EMBEDDED, tid), Answered::Outcome(Err(Errno::ENOENT)));
    s.c.pass(50);
    assert_eq!(s.c.owner(top), None);
    s.c.assert_resolved();
}

/// The coordinator could drop it when the directory's name is where another entry governs.
#[test]
fn an_entry_that_is_about_to_be_dropped_is_renewed_first() {
    let mut s = Scene::new();
    let top = tree(&mut s);
    assert_eq!(s.c.pin(top, 0), Ok(Reply::Ok));
    s.c.deaf = true;
    let mode = proto::request::XattrMode::Either;
    let unpin = Request::SetXattr { node: top, name: n("pando.dir.pin"), value: b"-1"[..].into(), mode };
    s.c.start(0, EMBEDDED, unpin);
    let wish = s.c.worlds[0].wishes.pop_front();
    assert!(matches!(wish, Some(MapWish::Drop { .. })), "{wish:?}");
    let tid = s.c.start(1, EMBEDDED, rename((root(), "m"), (s.dir, "n"), 0));
    s.c.pass(20);
    assert_eq!(s.c.take_answer(1, EMBEDDED, tid), None);
    // Whom it was asked is no more; what he asked of the registry may come to be.
    let wish = wish.expect("one");
    s.c.inject(0, Input::WishRefused { wish, reason: "there is another coordinator".into() });
    s.c.pass(20);
    assert!(
        matches!(s.c.worlds[0].wishes.front(), Some(MapWish::SetPolicy { .. })),
        "{:?}",
        s.c.worlds[0].wishes
    );
    s.c.deaf = false;
    assert_eq!(s.c.wait(1, EMBEDDED, tid), Answered::Outcome(Ok(Reply::Ok)));
    // Too late.
    s.c.grant(0, wish);
    s.c.settle();
    assert_eq!(s.c.owner(top), Some(0));
    s.check_tree(top, s.dir, "n");
}

/// Whoever asks for totals of it next asks the rank that it left, which does not know yet that it has.
#[test]
fn totals_that_the_new_home_was_told_are_taken_back_by_the_old_one() {
    let mut s = Scene::new();
    let top = tree(&mut s);
    s.c.worlds[0].auto_durable = false;
    let tid = s.c.hold(1).start(EMBEDDED, Cred::ROOT, rename((root(), "m"), (s.dir, "n"), 0));
    let mut asked = None;
    for _ in 0..200 {
        s.c.one_thing();
        if asked.is_none() && s.c.take_answer(1, EMBEDDED, tid).is_some() {
            asked = Some(s.c.hold(1).start(
                EMBEDDED,
                Cred::ROOT,
                Request::GetAttr { node: NodeRef::bare(top.ino) },
            ));
        }
    }
    s.c.worlds[0].auto_durable = true;
    s.c.hold(0).sync();
    s.c.settle();
    assert!(asked.is_some());
    s.c.pass(20);
    let there = node(&s.c.lookup(s.dir, "n").expect("there"));
    assert_eq!(s.c.stat(there).size, 2);
    s.c.create(there, "three");
    assert_eq!(s.c.stat(there).size, 3);
    s.c.assert_resolved();
}

/// The same where each is its leader's own, and so reserved by nobody else.
#[test]
fn of_two_that_their_own_ranks_lead_one_is_refused() {
    for things in 0..60 {
        let mut s = Scene::of(3);
        let third = s.third.expect("rank 2's");
        let (x, y) = (s.c.mkdir(s.dir, "x"), s.c.mkdir(third, "y"));
        let (below_x, below_y) = (s.c.mkdir(x, "q"), s.c.mkdir(y, "p"));
        assert_eq!((s.c.pin(below_x, 2), s.c.pin(below_y, 1)), (Ok(Reply::Ok), Ok(Reply::Ok)));
        s.c.worlds.iter_mut().for_each(|world| world.auto_durable = false);
        let first = s.c.hold(1).start(EMBEDDED, Cred::ROOT, rename((s.dir, "x"), (below_y, "x"), 0));
        (0..things).all(|_| s.c.one_thing());
        let second = s.c.hold(2).start(EMBEDDED, Cred::ROOT, rename((third, "y"), (below_x, "y"), 0));
        while s.c.one_thing() {}
        s.c.worlds.iter_mut().for_each(|world| world.auto_durable = true);
        let mut answers = [s.c.wait(1, EMBEDDED, first), s.c.wait(2, EMBEDDED, second)].to_vec();
        answers.sort_by_key(|answer| *answer != Answered::Outcome(Ok(Reply::Ok)));
        let expected = [Answered::Outcome(Ok(Reply::Ok)), Answered::Outcome(Err(Errno::EINVAL))];
        assert_eq!(answers, expected, "after {things}");
        s.c.pass(20);
        s.c.assert_resolved();
    }
}

/// The map would have an entry of what a crash takes back.
#[test]
fn nobody_hears_of_an_entry_before_its_directory_is_durable() {
    let mut s = Scene::new();
    let local = s.c.mkdir(root(), "local");
    assert_eq!(s.c.pin(local, 0), Ok(Reply::Ok));
    s.c.worlds[0].auto_durable = false;
    let mkdir = Request::MkDir { parent: root(), name: n("m"), new: mode(0o755) };
    let tid = s.c.hold(0).start(EMBEDDED, Cred::ROOT, mkdir);
    assert!(s.c.take_answer(0, EMBEDDED, tid).is_some());
    s.c.deaf = true;
    let tid = s.c.start(0, EMBEDDED, rename((root(), "m"), (local, "m"), 0));
    assert!(s.c.worlds[0].wishes.is_empty(), "{:?}", s.c.worlds[0].wishes);
    s.c.worlds[0].auto_durable = true;
    s.c.hold(0).sync();
    s.c.settle();
    assert_eq!(s.c.worlds[0].wishes.len(), 1);
    s.c.deaf = false;
    assert_eq!(s.c.wait(0, EMBEDDED, tid), Answered::Outcome(Ok(Reply::Ok)));
}

/// Decided and stored by its leader, not heard of by the rank that it leaves, which has died since: a replica would be a second one there.
#[test]
fn what_is_about_to_leave_gets_no_replica() {
    let mut s = Scene::new();
    let top = tree(&mut s);
    s.c.checkpoint(0);
    s.c.worlds.iter_mut().for_each(|world| world.auto_durable = false);
    let tid = s.c.hold(1).start(EMBEDDED, Cred::ROOT, rename((root(), "m"), (s.dir, "g"), 0));
    while s.c.worlds[1].rank.view.transactions.committed.is_empty() {
        assert!(s.c.one_thing(), "nothing is decided");
    }
    assert!(!s.c.worlds[0].rank.view.transactions.is_free());
    s.c.cut.insert((1, 0));
    s.c.worlds.iter_mut().for_each(|world| world.auto_durable = true);
    (0..2).for_each(|at| s.c.hold(at).sync());
    s.c.settle();
    assert_eq!(s.c.wait(1, EMBEDDED, tid), Answered::Outcome(Ok(Reply::Ok)));
    s.c.checkpoint(1);
    assert_eq!(stored_place(&mut s.c, top.ino), Some(s.dir.ino));
    s.c.crash(0);
    let there = NodeRef { ino: top.ino, parent: s.dir.ino, hash: name_hash(&SEED, b"g") };
    let look = s.c.start(0, EMBEDDED, Request::Lookup { parent: there, name: n("one") });
    s.c.pass(50);
    assert!(!s.c.worlds[0].rank.peers.replicas.contains_key(&top.ino));
    s.c.cut.clear();
    s.c.pass(300);
    assert!(matches!(s.c.wait(0, EMBEDDED, look), Answered::Outcome(Ok(_))));
    assert!(!s.c.worlds[0].notes.iter().any(|note| note.contains("damage")), "{:?}", s.c.worlds[0].notes);
    s.c.assert_resolved();
    s.check_tree(top, s.dir, "g");
}

#[cfg(feature = "mutants")]
#[test]
fn defects_of_directories_are_caught() {
    let defects: [(&str, fn()); 4] = [
        ("mds_replica_of_reserved", what_is_about_to_leave_gets_no_replica),
        ("mds_renamed_without_entry", a_directory_goes_to_another_rank_and_what_is_in_it_stays),
        ("mds_rename_no_loop_check", no_directory_comes_below_itself),
        ("mds_entry_not_heard_of", who_has_not_heard_of_the_entry_waits_for_it),
    ];
    for (defect, test) in defects {
        stdx::mutant::activate(Some(defect));
        let verdict = std::panic::catch_unwind(test);
        stdx::mutant::activate(None);
        assert!(verdict.is_err(), "{defect}");
    }
}
