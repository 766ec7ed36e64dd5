//! Transactions of two ranks: what each comes to, with every rank dying at every step, and what waits meanwhile.
//!
//! Absent: many of them at random (`random.rs`).

mod away;
mod carried;
mod directories;
mod elsewhere;
mod grants;
mod haste;
mod numbers;
mod removal;
mod reserved;
mod rmdir;
mod spread;
mod synced;

use super::*;

/// What is to be done by one request, on a tree that is always the same: the root is rank 0's, `/d` rank 1's, `/e` rank 2's if there
/// is such.
struct Scene {
    c: Cluster,
    dir: NodeRef,
    third: Option<NodeRef>,
    /// `/f`.
    file: NodeRef,
}

const DATA: &[u8] = b"bytes of a file";

impl Cluster {
    /// One thing that is on its way arrives, what one rank appended becomes durable, or the coordinator does something.
    pub(super) fn one_thing(&mut self) -> bool {
        for at in 0..self.worlds.len() {
            if self.worlds[at].durable < self.worlds[at].journal.len() {
                self.hold(at).sync();
                return true;
            }
            if self.deliver_one(at) {
                return true;
            }
            if let Some(wish) = self.worlds[at].wishes.pop_front() {
                self.grant(at, wish);
                return true;
            }
        }
        false
    }

    /// Nobody waits for a transaction, and nobody leads one.
    pub(super) fn assert_resolved(&self) {
        for world in &self.worlds {
            let transactions = &world.rank.view.transactions;
            assert!(transactions.is_free() && transactions.committed.is_empty(), "{:?}", world.notes);
            assert!(transactions.leading.is_empty() && world.rank.leads.is_idle());
        }
    }

    fn write(&mut self, file: NodeRef, bytes: &[u8]) {
        let data = Payload::Owned(bytes.to_vec());
        let request = Request::Write { node: file, offset: 0, append: false, kill_suidgid: false, data };
        assert!(self.call(0, request).is_ok());
    }

    fn read(&mut self, file: NodeRef) -> Vec<u8> {
        match self.call(0, Request::Read { node: file, offset: 0, len: 100, into: None }) {
            Ok(Reply::Data(data)) => {
                let size = self.stat(file).size as usize;
                data.bytes()[..size.min(data.bytes().len())].to_vec()
            }
            other => panic!("{other:?}"),
        }
    }

    fn come_back(&mut self, at: usize, session: SessionId) {
        let world = self.hold(at);
        let welcome = world.hello(REMOTE, Peer::Trusted, session);
        assert!(matches!(welcome, Some(ServerMsg::Welcome { resumed: true, .. })), "{welcome:?}");
        world.say(REMOTE, ClientMsg::Reclaimed);
        self.settle();
    }
}

impl Scene {
    fn new() -> Self {
        Self::of(2)
    }

    fn of(ranks: u16) -> Self {
        let mut c = Cluster::of(ranks);
        let dir = c.mkdir(root(), "d");
        assert_eq!(c.pin(dir, 1), Ok(Reply::Ok));
        let third = (ranks > 2).then(|| {
            let third = c.mkdir(root(), "e");
            assert_eq!(c.pin(third, 2), Ok(Reply::Ok));
            third
        });
        let file = c.create(root(), "f");
        c.write(file, DATA);
        Self { c, dir, third, file }
    }

    /// With each rank, and all, dying after each thing that happens, and living again: `check` sees that it was done once.
    fn with_deaths(
        ranks: u16,
        leader: usize,
        prepare: impl Fn(&mut Self),
        request: impl Fn(&Self) -> Request,
        check: impl Fn(&mut Self),
    ) {
        let all: Vec<usize> = (0..usize::from(ranks)).collect();
        let mut whos: Vec<Vec<usize>> = all.iter().map(|rank| vec![*rank]).collect();
        whos.extend([all.clone(), all.iter().rev().copied().collect()]);
        for who in whos {
            let mut things = 0;
            loop {
                let mut s = Self::of(ranks);
                prepare(&mut s);
                s.c.greet(leader, Peer::Trusted, Bits::NONE);
                let session = s.c.worlds[leader].sessions[&REMOTE];
                s.c.worlds.iter_mut().for_each(|world| world.auto_durable = false);
                let request = request(&s);
                let tid = s.c.hold(leader).start(REMOTE, Cred::ROOT, request.clone());
                let more = (0..things).all(|_| s.c.one_thing());
                who.iter().for_each(|rank| s.c.crash(*rank));
                s.c.worlds.iter_mut().for_each(|world| world.auto_durable = true);
                all.iter().for_each(|at| s.c.hold(*at).sync());
                s.c.settle();
                if who.contains(&leader) {
                    s.c.come_back(leader, session);
                    s.c.hold(leader).retry(REMOTE, tid, Cred::ROOT, request);
                    s.c.settle();
                }
                let answer = s.c.wait(leader, REMOTE, tid);
                assert!(matches!(answer, Answered::Outcome(Ok(_))), "{answer:?}: {who:?} after {things}");
                s.c.pass(50);
                s.c.assert_resolved();
                check(&mut s);
                // All of the tails once more, in another order, and from the store.
                all.iter().rev().for_each(|rank| s.c.crash(*rank));
                s.c.come_back(leader, session);
                s.c.assert_resolved();
                check(&mut s);
                all.iter().for_each(|rank| s.c.drop_cache(*rank));
                check(&mut s);
                if !more {
                    break;
                }
                things += 1;
            }
            assert!(things > 8, "{things} things happen");
        }
    }

    fn check_file(&mut self, parent: NodeRef, name: &str, nlink: u32) {
        let attr = self.c.lookup(parent, name).unwrap_or_else(|errno| panic!("{name}: {errno}"));
        assert_eq!((attr.ino, attr.nlink), (self.file.ino, nlink), "{name}");
        assert_eq!(self.c.read(node(&attr)), DATA, "{name}");
    }

    fn check_names(&mut self, dir: NodeRef, names: &[&str]) {
        assert_eq!(self.c.names(dir), names);
        assert_eq!(self.c.stat(dir).size, names.len() as u64);
    }

    fn link(&mut self, node: NodeRef, parent: NodeRef, name: &str) {
        let outcome = self.c.call(0, Request::Link { node, parent, name: n(name) });
        assert!(outcome.is_ok(), "{outcome:?}");
    }
}

fn rename(from: (NodeRef, &str), to: (NodeRef, &str), flags: u32) -> Request {
    Request::Rename { parent: from.0, name: n(from.1), new_parent: to.0, new_name: n(to.1), flags }
}

#[test]
fn a_file_gets_a_name_at_another_rank_and_goes_there() {
    let Scene { mut c, dir, file, .. } = Scene::new();
    let before = c.stat(file);
    assert_eq!(c.rename((root(), "f"), (dir, "g")), Ok(Reply::Ok), "{:?}", c.worlds[1].notes);
    let synced = |op: &DataOp| matches!(op, DataOp::Sync { file: of } if of.ino == file.ino);
    assert!(c.worlds[0].data_ops.iter().any(synced), "its bytes are durable before it leaves");
    let after = c.lookup(dir, "g").expect("there");
    assert_eq!((after.ino, after.size, after.nlink), (before.ino, before.size, 1));
    assert!(after.change > before.change && after.ctime >= before.ctime);
    assert_eq!(c.lookup(root(), "f"), Err(Errno::ENOENT));
    assert_eq!((c.names(root()), c.names(dir)), (vec!["d".to_owned()], vec!["g".to_owned()]));
    assert_eq!((c.stat(root()).size, c.stat(dir).size), (1, 1));
    // By its old place, by its number, and where it is.
    assert_eq!(c.ask(0, Request::GetAttr { node: file }), NOT_MINE(1));
    assert_eq!(c.ask(0, Request::GetAttr { node: NodeRef::bare(file.ino) }), NOT_MINE(1));
    assert_eq!(c.stat(node(&after)).ino, file.ino);
    assert_eq!(c.read(node(&after)), DATA);
    c.assert_resolved();
    // And back, and there again.
    assert_eq!(c.rename((dir, "g"), (root(), "f")), Ok(Reply::Ok));
    assert_eq!(c.stat(file).ino, file.ino);
    assert_eq!(c.rename((root(), "f"), (dir, "g")), Ok(Reply::Ok));
    assert_eq!(c.ask(0, Request::GetAttr { node: NodeRef::bare(file.ino) }), NOT_MINE(1));
    (0..2).for_each(|rank| c.drop_cache(rank));
    assert_eq!(c.read(NodeRef::bare(file.ino)), DATA);
}

#[test]
fn a_rename_is_done_once_whoever_dies() {
    let request = |s: &Scene| rename((root(), "f"), (s.dir, "g"), 0);
    Scene::with_deaths(
        2,
        1,
        |_| {},
        request,
        |s| {
            s.check_file(s.dir, "g", 1);
            s.check_names(root(), &["d"]);
            s.check_names(s.dir, &["g"]);
            assert_eq!(s.c.read(NodeRef::bare(s.file.ino)), DATA);
        },
    );
}

#[test]
fn a_rename_to_rank_0_is_done_once_whoever_dies() {
    let prepare = |s: &mut Scene| assert_eq!(s.c.rename((root(), "f"), (s.dir, "g")), Ok(Reply::Ok));
    let request = |s: &Scene| rename((s.dir, "g"), (root(), "f"), 0);
    Scene::with_deaths(2, 0, prepare, request, |s| {
        s.check_file(root(), "f", 1);
        s.check_names(root(), &["d", "f"]);
        s.check_names(s.dir, &[]);
    });
}

#[test]
fn what_is_replaced_is_gone_once_whoever_dies() {
    let prepare = |s: &mut Scene| {
        let old = s.c.create(s.dir, "g");
        s.c.write(old, b"old");
    };
    let request = |s: &Scene| rename((root(), "f"), (s.dir, "g"), 0);
    Scene::with_deaths(2, 1, prepare, request, |s| {
        s.check_file(s.dir, "g", 1);
        s.check_names(root(), &["d"]);
        s.check_names(s.dir, &["g"]);
    });
    let mut s = Scene::new();
    prepare(&mut s);
    let outcome = s.c.call(0, rename((root(), "f"), (s.dir, "g"), proto::request::rename_flags::NOREPLACE));
    assert_eq!(outcome, Err(Errno::EEXIST));
    assert_eq!(s.c.rename((root(), "f"), (s.dir, "g")), Ok(Reply::Ok));
    s.c.pass(50);
    let left: Vec<_> = s.c.hold(0).data.keys().map(|file| file.ino).collect();
    assert_eq!(left, [s.file.ino], "the data of what was replaced is removed");
}

#[test]
fn two_files_change_places_once_whoever_dies() {
    let prepare = |s: &mut Scene| {
        let old = s.c.create(s.dir, "g");
        s.c.write(old, b"old");
    };
    let request = |s: &Scene| rename((root(), "f"), (s.dir, "g"), proto::request::rename_flags::EXCHANGE);
    Scene::with_deaths(2, 1, prepare, request, |s| {
        s.check_file(s.dir, "g", 1);
        let other = node(&s.c.lookup(root(), "f").expect("there"));
        assert_eq!(s.c.read(other), b"old");
        s.check_names(root(), &["d", "f"]);
        s.check_names(s.dir, &["g"]);
    });
}

#[test]
fn a_second_name_at_another_rank_is_made_once_whoever_dies() {
    let request = |s: &Scene| Request::Link { node: s.file, parent: s.dir, name: n("l") };
    Scene::with_deaths(
        2,
        1,
        |_| {},
        request,
        |s| {
            s.check_file(s.dir, "l", 2);
            s.check_file(root(), "f", 2);
            s.check_names(root(), &["d", "f"]);
            s.check_names(s.dir, &["l"]);
        },
    );
}

#[test]
fn a_file_with_a_second_name_goes_to_rank_0_once_whoever_dies() {
    let prepare = |s: &mut Scene| assert_eq!(s.c.rename((root(), "f"), (s.dir, "g")), Ok(Reply::Ok));
    let request = |s: &Scene| {
        let file = NodeRef { parent: s.dir.ino, hash: name_hash(&SEED, b"g"), ..s.file };
        Request::Link { node: file, parent: s.dir, name: n("l") }
    };
    Scene::with_deaths(2, 1, prepare, request, |s| {
        s.check_file(s.dir, "l", 2);
        s.check_file(s.dir, "g", 2);
        s.check_names(s.dir, &["g", "l"]);
    });
}

#[test]
fn three_ranks_have_a_file_its_first_and_its_second_name() {
    let third = |s: &Scene| s.third.expect("rank 2's");
    let prepare = |s: &mut Scene| assert_eq!(s.c.rename((root(), "f"), (s.dir, "g")), Ok(Reply::Ok));
    let request = |s: &Scene| {
        let file = NodeRef { parent: s.dir.ino, hash: name_hash(&SEED, b"g"), ..s.file };
        Request::Link { node: file, parent: third(s), name: n("l") }
    };
    Scene::with_deaths(3, 2, prepare, request, |s| {
        s.check_file(s.dir, "g", 2);
        s.check_file(third(s), "l", 2);
        s.check_names(third(s), &["l"]);
        s.check_names(s.dir, &["g"]);
    });
}

#[test]
fn a_leader_forgets_when_the_last_has_acknowledged() {
    let mut s = Scene::of(3);
    let third = s.third.expect("rank 2's");
    assert_eq!(s.c.rename((root(), "f"), (s.dir, "g")), Ok(Reply::Ok));
    let file = NodeRef { parent: s.dir.ino, hash: name_hash(&SEED, b"g"), ..s.file };
    s.c.worlds[2].auto_durable = false;
    let tid = s.c.start(2, EMBEDDED, Request::Link { node: file, parent: third, name: n("l") });
    // It was sent on to the rank that has the file.
    s.c.pass(5);
    assert!(!s.c.worlds[0].rank.view.transactions.is_free());
    // Rank 1 hears what is decided, and rank 0 does not before the leader has died.
    s.c.cut.insert((2, 0));
    s.c.worlds[2].auto_durable = true;
    s.c.hold(2).sync();
    s.c.settle();
    assert!(matches!(s.c.wait(2, EMBEDDED, tid), Answered::Outcome(Ok(_))));
    assert_eq!(s.c.worlds[2].rank.view.transactions.committed.len(), 1);
    s.c.crash(2);
    s.c.cut.clear();
    s.c.pass(50);
    s.check_file(s.dir, "g", 2);
    s.check_file(third, "l", 2);
    s.c.assert_resolved();
}

#[test]
fn a_name_of_several_moves_once_between_two_ranks_while_a_third_has_the_file() {
    let third = |s: &Scene| s.third.expect("rank 2's");
    let prepare = |s: &mut Scene| s.link(s.file, s.dir, "l");
    let request = |s: &Scene| rename((s.dir, "l"), (third(s), "m"), 0);
    Scene::with_deaths(3, 2, prepare, request, |s| {
        s.check_file(third(s), "m", 2);
        s.check_file(root(), "f", 2);
        s.check_names(s.dir, &[]);
        s.check_names(third(s), &["m"]);
    });
}

#[test]
fn a_name_of_several_goes_once_whoever_dies() {
    let prepare = |s: &mut Scene| s.link(s.file, s.dir, "l");
    let request = |s: &Scene| Request::Unlink { parent: s.dir, name: n("l") };
    Scene::with_deaths(2, 1, prepare, request, |s| {
        s.check_file(root(), "f", 1);
        s.check_names(s.dir, &[]);
    });
}

#[test]
fn a_name_of_several_gets_another_one_at_its_rank() {
    let prepare = |s: &mut Scene| s.link(s.file, s.dir, "l");
    let request = |s: &Scene| rename((s.dir, "l"), (s.dir, "m"), 0);
    Scene::with_deaths(2, 1, prepare, request, |s| {
        s.check_file(s.dir, "m", 2);
        s.check_names(s.dir, &["m"]);
    });
}

#[test]
fn the_last_name_of_several_takes_the_file_with_it() {
    let mut s = Scene::new();
    s.link(s.file, s.dir, "l");
    assert_eq!(s.c.call(0, Request::Unlink { parent: root(), name: n("f") }), Ok(Reply::Ok));
    s.check_file(s.dir, "l", 1);
    assert_eq!(s.c.call(0, Request::Unlink { parent: s.dir, name: n("l") }), Ok(Reply::Ok));
    s.c.pass(50);
    assert!(s.c.hold(0).data.is_empty());
    assert_eq!(s.c.call(0, Request::GetAttr { node: NodeRef::bare(s.file.ino) }), Err(Errno::ESTALE));
    // One replaced by a rename at another rank, too; and two names of one file are left alone.
    let file = s.c.create(root(), "f");
    s.link(file, s.dir, "l");
    assert_eq!(s.c.rename((root(), "f"), (s.dir, "l")), Ok(Reply::Ok));
    assert_eq!(
        (s.c.names(root()), s.c.names(s.dir)),
        (vec!["d".to_owned(), "f".to_owned()], vec!["l".to_owned()])
    );
    let other = s.c.create(root(), "o");
    assert_eq!(s.c.rename((root(), "o"), (s.dir, "l")), Ok(Reply::Ok));
    assert_eq!(s.c.lookup(s.dir, "l").map(|attr| attr.ino), Ok(other.ino));
    assert_eq!(s.c.lookup(root(), "f").map(|attr| attr.nlink), Ok(1));
}

#[test]
fn nothing_is_known_of_the_data_of_a_file_that_came() {
    let Scene { mut c, dir, .. } = Scene::new();
    let file = c.create(root(), "new");
    let mode = proto::request::fallocate::KEEP_SIZE;
    assert!(c.call(0, Request::Fallocate { node: file, mode, offset: 0, len: 4096 }).is_ok());
    assert_eq!(c.rename((root(), "new"), (dir, "new")), Ok(Reply::Ok));
    assert_eq!(c.call(0, Request::Unlink { parent: dir, name: n("new") }), Ok(Reply::Ok));
    c.pass(20);
    let removed = |op: &DataOp| matches!(op, DataOp::Remove { file: of } if of.ino == file.ino);
    assert!(c.worlds[1].data_ops.iter().any(removed), "empty, but space was reserved for it");
}

/// The rank may carry it out twice, in two lives; what it counted behind that in the first one may have been shown, and lost.
#[test]
fn what_another_rank_counted_is_not_counted_on() {
    let Scene { mut c, dir, file, .. } = Scene::new();
    let link = Request::Link { node: file, parent: dir, name: n("g") };
    assert!(matches!(c.ask(1, link), Answered::Outcome(Ok(_))));
    c.settle();
    let before = c.lookup(root(), "f").expect("it is there");
    c.write(node(&before), b"more");
    let (before, after) = (before.change, c.stat(node(&before)).change);
    assert!(after >= before + proto::Version::INCARNATION_STEP, "{before} {after}");
}

/// A rename of `/f` to `/d/g` that is prepared at rank 0 and, because its journal is slow, not committed at rank 1.
fn prepared() -> (Scene, Tid) {
    let mut s = Scene::new();
    s.c.create(root(), "other");
    s.c.worlds[1].auto_durable = false;
    let tid = s.c.start(1, EMBEDDED, rename((root(), "f"), (s.dir, "g"), 0));
    assert!(!s.c.worlds[0].rank.view.transactions.is_free());
    (s, tid)
}

#[test]
fn links_that_break_delay_it_and_nothing_else() {
    for cut in [(0, 1), (1, 0)] {
        for things in 0..30 {
            let mut s = Scene::new();
            s.c.worlds.iter_mut().for_each(|world| world.auto_durable = false);
            let tid = s.c.hold(1).start(EMBEDDED, Cred::ROOT, rename((root(), "f"), (s.dir, "g"), 0));
            (0..things).all(|_| s.c.one_thing());
            s.c.cut.insert(cut);
            s.c.worlds.iter_mut().for_each(|world| world.auto_durable = true);
            (0..2).for_each(|at| s.c.hold(at).sync());
            s.c.settle();
            s.c.pass(20);
            s.c.cut.clear();
            s.c.pass(20);
            assert_eq!(s.c.wait(1, EMBEDDED, tid), Answered::Outcome(Ok(Reply::Ok)));
            s.c.pass(20);
            s.check_file(s.dir, "g", 1);
            s.check_names(root(), &["d"]);
            s.c.assert_resolved();
        }
    }
}

/// By a mount in the rank's process, which has no session at any other.
#[test]
fn a_file_that_is_open_or_locked_stays() {
    let Scene { mut c, dir, file, .. } = Scene::new();
    let open = Request::Open { node: file, flags: 0 };
    assert!(c.call(0, open).is_ok());
    assert_eq!(c.rename((root(), "f"), (dir, "g")), Err(Errno::EXDEV));
    assert!(c.call(0, Request::Release { node: file, count: 1 }).is_ok());
    let lock =
        |kind| proto::request::LockSpec { flock: true, owner: 1, kind, start: 0, end: u64::MAX, pid: 1 };
    let set = |kind| Request::SetLock { node: file, lock: lock(kind), wait: false };
    assert!(c.call(0, set(proto::request::LockKind::Write)).is_ok());
    assert_eq!(c.rename((root(), "f"), (dir, "g")), Err(Errno::EXDEV));
    assert!(c.call(0, set(proto::request::LockKind::Unlock)).is_ok());
    assert_eq!(c.rename((root(), "f"), (dir, "g")), Ok(Reply::Ok));
    c.assert_resolved();
}

#[test]
fn what_a_client_keeps_comes_back_first() {
    let Scene { mut c, dir, file, .. } = Scene::new();
    c.greet(0, Peer::Trusted, Bits::ATTRS);
    c.hold(0).say(REMOTE, ClientMsg::Settled);
    let lookup = c.start(0, REMOTE, Request::Lookup { parent: root(), name: n("f") });
    assert!(matches!(c.wait(0, REMOTE, lookup), Answered::Outcome(Ok(_))));
    let tid = c.start(1, EMBEDDED, rename((root(), "f"), (dir, "g"), 0));
    c.pass(20);
    assert_eq!(c.take_answer(1, EMBEDDED, tid), None, "a client keeps the name");
    let Some(ServerMsg::Recall { list }) = c.heard(0, |m| matches!(m, ServerMsg::Recall { .. })) else {
        panic!("nothing is recalled")
    };
    assert_eq!(list[0].ino, file.ino);
    let returned = list.iter().map(|recalled| recalled.returned(recalled.bits)).collect();
    c.hold(0).say(REMOTE, ClientMsg::Returned { list: returned });
    c.settle();
    assert_eq!(c.wait(1, EMBEDDED, tid), Answered::Outcome(Ok(Reply::Ok)));
}

#[test]
fn of_two_that_want_one_name_one_gets_it() {
    let third = |s: &Scene| s.third.expect("rank 2's");
    for things in 0..40 {
        let mut s = Scene::of(3);
        let requests =
            [(1, rename((root(), "f"), (s.dir, "g"), 0)), (2, rename((root(), "f"), (third(&s), "h"), 0))];
        s.c.worlds.iter_mut().for_each(|world| world.auto_durable = false);
        let first = s.c.hold(1).start(EMBEDDED, Cred::ROOT, requests[0].1.clone());
        (0..things).all(|_| s.c.one_thing());
        let second = s.c.hold(2).start(EMBEDDED, Cred::ROOT, requests[1].1.clone());
        while s.c.one_thing() {}
        s.c.worlds.iter_mut().for_each(|world| world.auto_durable = true);
        let mut answers = [s.c.wait(1, EMBEDDED, first), s.c.wait(2, EMBEDDED, second)].to_vec();
        let has_it = answers.iter().position(|answer| *answer == Answered::Outcome(Ok(Reply::Ok)));
        answers.remove(has_it.expect("one of them has it"));
        assert_eq!(answers, [Answered::Outcome(Err(Errno::ENOENT))]);
        let (parent, name) = if has_it == Some(0) { (s.dir, "g") } else { (third(&s), "h") };
        s.check_file(parent, name, 1);
        s.c.pass(20);
        s.c.assert_resolved();
    }
}

#[test]
fn two_that_want_each_others_names_both_end() {
    for things in 0..40 {
        let mut s = Scene::new();
        let other = s.c.create(s.dir, "g");
        s.c.worlds.iter_mut().for_each(|world| world.auto_durable = false);
        let first = s.c.hold(1).start(EMBEDDED, Cred::ROOT, rename((root(), "f"), (s.dir, "g"), 0));
        (0..things).all(|_| s.c.one_thing());
        let second = s.c.hold(0).start(EMBEDDED, Cred::ROOT, rename((s.dir, "g"), (root(), "f"), 0));
        while s.c.one_thing() {}
        s.c.worlds.iter_mut().for_each(|world| world.auto_durable = true);
        let answers = [s.c.wait(1, EMBEDDED, first), s.c.wait(0, EMBEDDED, second)];
        assert_eq!(
            answers.iter().filter(|a| **a == Answered::Outcome(Ok(Reply::Ok))).count(),
            2,
            "{answers:?}"
        );
        s.c.pass(20);
        s.c.assert_resolved();
        // The first replaced `g`, and the second took it back; or the other way round.
        let left = [s.c.lookup(root(), "f"), s.c.lookup(s.dir, "g")].map(|attr| attr.map(|attr| attr.ino));
        let ends = [[Ok(s.file.ino), Err(Errno::ENOENT)], [Err(Errno::ENOENT), Ok(other.ino)]];
        assert!(ends.contains(&left), "{left:?} of {:?}, {:?}", s.file.ino, other.ino);
    }
}

/// Where the store says that an inode is.
fn stored_place(c: &mut Cluster, ino: Ino) -> Option<Ino> {
    let world = c.hold(0);
    let value = world.store.get(&key_bytes(StoreKey::Backptr { ino }))?;
    Some(proto::storeio::Backptr::decode(value).expect("a backptr").parent)
}

#[test]
fn an_owner_of_before_stores_no_place_over_that_of_the_last_one() {
    for order in [[2, 1, 0], [0, 1, 2], [1, 2, 0]] {
        let mut s = Scene::of(3);
        let third = s.third.expect("rank 2's");
        for (from, to) in
            [((root(), "f"), (root(), "f2")), ((root(), "f2"), (s.dir, "g")), ((s.dir, "g"), (third, "h"))]
        {
            assert_eq!(s.c.rename(from, to), Ok(Reply::Ok));
        }
        for rank in order {
            s.c.checkpoint(rank);
        }
        assert_eq!(stored_place(&mut s.c, s.file.ino), Some(third.ino));
        // The same from the journals.
        let mut s = Scene::of(3);
        let third = s.third.expect("rank 2's");
        assert_eq!(s.c.rename((root(), "f"), (root(), "f2")), Ok(Reply::Ok));
        assert_eq!(s.c.rename((root(), "f2"), (third, "h")), Ok(Reply::Ok));
        (0..3).for_each(|rank| s.c.crash(rank));
        for rank in order {
            s.c.checkpoint(rank);
        }
        assert_eq!(stored_place(&mut s.c, s.file.ino), Some(third.ino));
    }
}

#[test]
fn the_place_of_what_may_leave_is_not_stored() {
    let mut s = Scene::new();
    assert_eq!(s.c.rename((root(), "f"), (root(), "f2")), Ok(Reply::Ok));
    s.c.worlds[1].auto_durable = false;
    let tid = s.c.start(1, EMBEDDED, rename((root(), "f2"), (s.dir, "g"), 0));
    s.c.checkpoint(0);
    assert_eq!(stored_place(&mut s.c, s.file.ino), None);
    s.c.crash(0);
    s.c.worlds[1].auto_durable = true;
    s.c.hold(1).sync();
    s.c.settle();
    assert_eq!(s.c.wait(1, EMBEDDED, tid), Answered::Outcome(Ok(Reply::Ok)));
    s.c.pass(20);
    (0..2).rev().for_each(|rank| s.c.checkpoint(rank));
    assert_eq!(stored_place(&mut s.c, s.file.ino), Some(s.dir.ino));
    // And one that stays after all keeps its place.
    let mut s = Scene::new();
    assert_eq!(s.c.rename((root(), "f"), (root(), "f2")), Ok(Reply::Ok));
    s.c.worlds[1].auto_durable = false;
    s.c.start(1, EMBEDDED, rename((root(), "f2"), (s.dir, "g"), 0));
    s.c.checkpoint(0);
    s.c.crash(1);
    s.c.pass(20);
    s.c.assert_resolved();
    s.c.crash(0);
    s.c.checkpoint(0);
    assert_eq!(stored_place(&mut s.c, s.file.ino), Some(Ino::ROOT));
}

/// The store would get the leader's place behind that of the new owner.
#[test]
fn what_leaves_its_leader_waits_until_its_place_is_stored() {
    let mut s = Scene::new();
    let file = s.c.create(s.dir, "a");
    assert_eq!(s.c.rename((s.dir, "a"), (s.dir, "b")), Ok(Reply::Ok));
    let file = NodeRef { parent: s.dir.ino, hash: name_hash(&SEED, b"b"), ..file };
    s.c.hold(1).hold_stores = true;
    s.c.inject(1, Input::Checkpoint);
    s.c.hold(1).pass(20);
    let tid = s.c.start(1, EMBEDDED, Request::Link { node: file, parent: s.dir, name: n("l") });
    s.c.pass(50);
    assert_eq!(s.c.take_answer(1, EMBEDDED, tid), None);
    s.c.hold(1).let_go();
    s.c.settle();
    assert!(matches!(s.c.wait(1, EMBEDDED, tid), Answered::Outcome(Ok(_))));
    (0..2).rev().for_each(|rank| s.c.checkpoint(rank));
    assert_eq!(stored_place(&mut s.c, file.ino), Some(Ino::LINKS));
    s.c.assert_resolved();
}

/// The simulator would find these, if it had several ranks.
#[cfg(feature = "mutants")]
#[test]
fn defects_of_transactions_are_caught() {
    let defects: [(&str, fn()); 37] = [
        ("mds_crowd_refuses_ranks", synced::a_rank_with_much_under_way_ends_its_transactions),
        ("mds_intents_noted_late", away::what_a_rank_meant_to_do_ends_with_its_connection_during_a_sync),
        ("mds_counted_by_other_as_own", numbers::what_another_rank_counted_no_later_life_counts_on),
        ("mds_any_answer_is_an_abort", away::what_a_damaged_leader_answers_ends_nothing),
        ("mds_votes_held_for_the_dead", away::nothing_stays_reserved_for_a_rank_that_is_away),
        ("mds_intents_outlive_link", away::what_a_rank_meant_to_do_ends_with_its_connection),
        ("mds_reserved_is_purged", carried::a_file_that_is_about_to_get_its_name_is_not_ended),
        ("mds_leaves_with_own_grants", grants::what_the_session_that_asks_keeps_comes_back_too),
        ("mds_leaves_under_dx", grants::a_directory_comes_back_before_what_is_named_there_leaves),
        ("mds_reservation_ignored", reserved::who_looks_at_what_is_reserved_waits_and_nobody_else_does),
        (
            "mds_listing_despite_reservation",
            reserved::who_looks_at_what_is_reserved_waits_and_nobody_else_does,
        ),
        (
            "mds_listing_despite_reservation",
            removal::a_directory_that_may_become_empty_is_removed_or_not_when_that_is_decided,
        ),
        (
            "mds_listing_despite_reservation",
            removal::a_directory_that_may_become_empty_is_replaced_or_not_when_that_is_decided,
        ),
        ("mds_transactions_trimmed", reserved::a_checkpoint_forgets_no_transaction),
        ("mds_prepare_not_journaled", a_rename_is_done_once_whoever_dies),
        ("mds_prepared_not_replayed", a_rename_is_done_once_whoever_dies),
        ("mds_undecided_is_aborted", a_rename_is_done_once_whoever_dies),
        ("mds_commit_carried_out_twice", a_rename_is_done_once_whoever_dies),
        ("mds_commit_before_votes", a_rename_is_done_once_whoever_dies),
        ("mds_told_before_durable", a_rename_is_done_once_whoever_dies),
        ("mds_forgotten_early", a_leader_forgets_when_the_last_has_acknowledged),
        ("mds_open_file_leaves", a_file_that_is_open_or_locked_stays),
        ("mds_leaves_unsynced", a_file_gets_a_name_at_another_rank_and_goes_there),
        ("mds_left_backptr_stored", an_owner_of_before_stores_no_place_over_that_of_the_last_one),
        ("mds_received_as_new", nothing_is_known_of_the_data_of_a_file_that_came),
        ("mds_purge_wakes_nobody", synced::what_is_removed_while_it_syncs_is_said_to_be_gone),
        ("mds_redo_of_left", synced::what_an_fsync_put_into_the_journal_does_not_come_back_behind_its_file),
        (
            "mds_leaves_in_journal",
            synced::what_an_fsync_put_into_the_journal_does_not_come_back_behind_its_file,
        ),
        (
            "mds_told_name_is_believed",
            elsewhere::a_name_that_is_over_before_it_is_reserved_is_looked_at_again,
        ),
        ("mds_went_hides_place", elsewhere::what_went_comes_back_with_a_directory),
        ("mds_back_before_it_left", elsewhere::what_is_back_before_it_has_left_waits_for_that),
        ("mds_back_before_it_left", elsewhere::what_is_back_before_it_has_left_waits_where_it_still_is),
        ("mds_withheld_from_part", elsewhere::who_asks_for_a_name_withholds_its_directory_no_more),
        ("mds_told_as_counted", numbers::what_a_home_counted_and_lost_no_leader_counts_again),
        ("mds_only_named_are_asked", elsewhere::what_nobody_knows_the_place_of_is_asked_for_everywhere),
        ("mds_forgotten_is_gone", elsewhere::what_nobody_knows_the_place_of_is_asked_for_everywhere),
        ("mds_all_parts_follow_one", elsewhere::a_part_that_has_moved_takes_no_others_along),
    ];
    for (defect, test) in defects {
        stdx::mutant::activate(Some(defect));
        let verdict = std::panic::catch_unwind(test);
        stdx::mutant::activate(None);
        assert!(verdict.is_err(), "{defect}");
    }
}
