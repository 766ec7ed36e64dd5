//! Moves that come to nothing: ended at every step of the rank that carries them out, or sealed for too long. Whatever it was, one rank
//! has everything, serves it, and can move it again.
//!
//! Absent: ranks that die meanwhile (`moves.rs`); who ends moves, and when (`coordinator`).

use super::*;
use crate::territory::Side;
use proto::request::{LockKind, LockSpec};

const LOCK: LockSpec =
    LockSpec { flock: true, owner: 1, kind: LockKind::Write, start: 0, end: u64::MAX, pid: 1 };
const NAMES: [&str; 3] = ["f", "g", "sub"];

/// `/d` with an entry, of rank 0.
struct Scene {
    c: Cluster,
    dir: NodeRef,
    file: NodeRef,
}

impl Scene {
    fn new() -> Self {
        let mut c = Cluster::new();
        let dir = c.mkdir(root(), "d");
        let file = c.create(dir, "f");
        c.create(dir, "g");
        let sub = c.mkdir(dir, "sub");
        c.create(sub, "deep");
        let entry =
            Entry { rank: RankId(0), version: c.map.version + 1, policy: Policy::Carved, moving: None };
        Arc::make_mut(&mut c.map.entries).insert(Unit { dir: dir.ino, frag: Frag::WHOLE }, entry);
        c.publish();
        Self { c, dir, file }
    }

    /// A client has a file in it open and locked.
    fn with_held() -> Self {
        let Self { mut c, dir, file } = Self::new();
        c.greet(0, Peer::Trusted, Bits::NONE);
        c.join(0, 1, Peer::Trusted);
        for request in
            [Request::Open { node: file, flags: 2 }, Request::SetLock { node: file, lock: LOCK, wait: false }]
        {
            let tid = c.start(0, REMOTE, request);
            assert!(matches!(c.wait(0, REMOTE, tid), Answered::Outcome(Ok(_))));
        }
        Self { c, dir, file }
    }

    fn unit(&self) -> Unit {
        Unit { dir: self.dir.ino, frag: Frag::WHOLE }
    }

    /// An operator wants it no more, and the next thing that rank 0 hears is that; true: a map said that it moves.
    fn cancel(&mut self) -> bool {
        let (unit, version) = (self.unit(), self.c.map.version + 1);
        let entry = Arc::make_mut(&mut self.c.map.entries).get_mut(&unit);
        let moving = entry.filter(|entry| entry.moving.is_some());
        let was_said = moving.is_some();
        if let Some(entry) = moving {
            (entry.moving, entry.version) = (None, version);
            self.c.map.version = version;
        }
        let map = Arc::new(self.c.map.clone());
        let input = if was_said { Input::Map(map) } else { Input::Unmove { dir: self.dir.ino } };
        let world = &mut self.c.worlds[0];
        world.inbox.push_front(input);
        world.steps_left = None;
        self.c.publish();
        was_said
    }

    /// Who would answer for it now.
    fn owners(&self) -> Vec<usize> {
        let is_mine = |at: &usize| {
            let view = &self.c.worlds[*at].rank.view;
            view.of_itself(self.dir.ino) == Some(Side::Mine)
        };
        (0..2).filter(is_mine).collect()
    }

    fn moving(&self) -> bool {
        self.c.map.entries.values().any(|entry| entry.moving.is_some())
    }

    /// Nothing of a move is left, and all is served by one rank, which is returned.
    fn check(&mut self) -> usize {
        assert!(!self.moving(), "{:?}", self.c.map.entries);
        for world in &self.c.worlds {
            let rank = &world.rank;
            assert!(!rank.moves.is_sealed() && !rank.view.territory.is_sealing(), "{:?}", world.notes);
            assert!(rank.moves.is_idle(), "{:?}", world.notes);
        }
        let owners = self.owners();
        let [owner] = owners[..] else { panic!("owners: {owners:?}") };
        let elsewhere = self.c.ask(1 - owner, Request::GetAttr { node: self.file });
        assert!(matches!(elsewhere, Answered::NotMine(_)), "{elsewhere:?}");
        assert_eq!(self.c.names(self.dir), NAMES);
        owner
    }

    /// Nobody else gets the lock.
    fn check_lock(&mut self) {
        let lock = LockSpec { owner: 9, ..LOCK };
        let outcome = self.c.call(0, Request::SetLock { node: self.file, lock, wait: false });
        assert_eq!(outcome, Err(Errno::EAGAIN));
    }

    /// Announced, and nothing that is dirty from here on reaches the store.
    fn until_announced_then_slow(&mut self) {
        self.c.deaf = true;
        self.c.pass(20);
        assert!(matches!(self.c.worlds[0].wishes.front(), Some(MapWish::Begin { .. })));
        self.c.hold(0).hold_stores = true;
        self.c.deaf = false;
    }
}

#[test]
fn a_move_that_is_ended_at_any_step_leaves_one_owner() {
    let (mut ended, mut moved) = (0, 0);
    for steps in 0..10_000 {
        let mut s = Scene::with_held();
        s.c.worlds[0].steps_left = Some(steps);
        s.c.inject(0, Input::Move { dir: s.dir.ino, to: RankId(1) });
        let has_moved = |s: &Scene| s.c.map.entries.get(&s.unit()).map(|entry| entry.rank) == Some(RankId(1));
        for _ in 0..100 {
            if s.c.worlds[0].steps_left == Some(0) || has_moved(&s) {
                break;
            }
            s.c.pass(1);
        }
        assert!(s.owners().len() < 2, "after {steps}");
        let over = s.c.worlds[0].steps_left != Some(0);
        ended += usize::from(s.cancel());
        s.c.settle();
        s.c.pass(20);
        let owner = s.check();
        moved += owner;
        s.check_lock();
        if owner == 0 {
            assert_eq!(s.c.pin(s.dir, 1), Ok(Reply::Ok), "after {steps}: {:?}", s.c.worlds[0].notes);
        }
        assert_eq!(s.check(), 1, "after {steps}");
        s.check_lock();
        if over {
            assert!(ended > 10 && moved > 1, "{ended} were ended, {moved} moved");
            return;
        }
    }
    panic!("it never comes to an end by itself");
}

#[test]
fn what_moves_is_never_at_two_ranks() {
    let mut s = Scene::new();
    let tid = s.c.start(0, EMBEDDED, Cluster::pin_request(s.dir, 1));
    s.c.until_switch_of(0);
    assert_eq!(s.owners(), [0; 0], "sealed");
    // The coordinator switches, and the old owner does not hear of it.
    s.c.behind.insert(0);
    s.c.deaf = false;
    s.c.settle();
    assert_eq!(s.owners(), [1]);
    let lookup = s.c.start(0, EMBEDDED, Request::Lookup { parent: s.dir, name: n("f") });
    // However long it takes: no bound of a seal counts any more.
    s.c.pass(25_000);
    assert_eq!((s.c.take_answer(0, EMBEDDED, lookup), s.owners()), (None, vec![1]));
    s.c.behind.clear();
    s.c.publish();
    assert_eq!(s.c.wait(0, EMBEDDED, lookup), NOT_MINE(1));
    assert_eq!(s.c.wait(0, EMBEDDED, tid), Answered::Outcome(Ok(Reply::Ok)));
    assert_eq!(s.check(), 1);
}

/// The store takes its time just when everything waits for it.
#[test]
fn what_is_sealed_for_too_long_is_served_again_and_moves_later() {
    let mut s = Scene::with_held();
    let pin = s.c.start(0, EMBEDDED, Cluster::pin_request(s.dir, 1));
    s.until_announced_then_slow();
    s.c.pass(5);
    assert!(s.c.worlds[0].rank.moves.is_sealed(), "{:?}", s.c.worlds[0].notes);
    let lookup = s.c.start(0, EMBEDDED, Request::Lookup { parent: s.dir, name: n("f") });
    s.c.pass(80);
    assert_eq!(s.c.take_answer(0, EMBEDDED, lookup), None);
    s.c.pass(40);
    assert!(matches!(s.c.take_answer(0, EMBEDDED, lookup), Some(Answered::Outcome(Ok(_)))));
    assert_eq!((s.moving(), s.owners()), (false, vec![0]));
    assert!(s.c.worlds[0].notes.iter().any(|note| note.contains("for 100 ms: the metadata store")));
    // As long as it takes.
    s.c.pass(1_000);
    assert_eq!(
        (s.c.names(s.dir), s.c.take_answer(0, EMBEDDED, pin)),
        (NAMES.map(str::to_owned).to_vec(), None)
    );
    s.c.hold(0).let_go();
    assert_eq!(s.c.wait(0, EMBEDDED, pin), Answered::Outcome(Ok(Reply::Ok)), "{:?}", s.c.worlds[0].notes);
    assert_eq!(s.check(), 1);
    s.check_lock();
}

#[test]
fn each_seal_may_be_twice_as_long_up_to_a_lease() {
    let mut s = Scene::new();
    let pin = s.c.start(0, EMBEDDED, Cluster::pin_request(s.dir, 1));
    let (mut seals, mut since, mut answer) = (Vec::new(), None, None);
    for ms in 0..60_000 {
        // The store stands still from the announcement until the move is given up.
        let begins = matches!(s.c.worlds[0].wishes.front(), Some(MapWish::Begin { .. }));
        if begins {
            s.c.hold(0).hold_stores = true;
        } else if !s.moving() && s.c.worlds[0].hold_stores {
            s.c.hold(0).let_go();
        }
        if let Some(wish) = s.c.worlds[0].wishes.pop_front() {
            s.c.grant(0, wish);
        }
        s.c.hold(0).pass(1);
        let is_sealed = s.c.worlds[0].rank.moves.is_sealed();
        if is_sealed && since.is_none() {
            since = Some(ms);
        } else if !is_sealed && let Some(from) = since.take() {
            seals.push(ms - from);
        }
        answer = s.c.take_answer(0, EMBEDDED, pin);
        if answer.is_some() {
            break;
        }
    }
    let near = |(ms, is): (i32, &i32)| (ms - is).abs() < 20;
    let lengths = [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000];
    assert!(seals.len() == lengths.len() && lengths.into_iter().zip(&seals).all(near), "{seals:?}");
    assert_eq!(answer, Some(Answered::Outcome(Err(Errno::EBUSY))));
    s.c.hold(0).let_go();
    s.c.settle();
    s.c.pass(50);
    assert_eq!(s.check(), 0);
    assert_eq!(s.c.pin(s.dir, 1), Ok(Reply::Ok));
}

/// So that a checkpoint of all of it is over before nobody is served.
#[test]
fn what_became_dirty_is_stored_before_the_seal() {
    for (files, checkpoints) in [(5, 2), (60, 3)] {
        let mut c = Cluster::new();
        let dir = c.mkdir(root(), "d");
        c.checkpoint(0);
        let before = c.worlds[0].rank.checkpoint.completed;
        let pin = c.start(0, EMBEDDED, Cluster::pin_request(dir, 1));
        c.deaf = true;
        c.pass(20);
        for number in 0..files {
            c.create(dir, &format!("f{number}"));
        }
        c.deaf = false;
        assert_eq!(c.wait(0, EMBEDDED, pin), Answered::Outcome(Ok(Reply::Ok)));
        assert_eq!(c.worlds[0].rank.checkpoint.completed - before, checkpoints, "{files} files");
        assert_eq!(c.names(dir).len(), files);
    }
}

/// Ten thousand names took a third of the seal to leave the cache, after the checkpoint.
#[test]
fn what_is_clean_leaves_while_the_store_takes_the_rest() {
    for is_given_up in [false, true] {
        let mut s = Scene::new();
        let names = |s: &Scene| {
            let cache = &s.c.worlds[0].rank.view.cache;
            cache.find_dir(s.dir.ino).map_or(0, |slot| cache.dir(slot).table.len())
        };
        for number in 0..60 {
            s.c.create(s.dir, &format!("more{number}"));
        }
        s.c.checkpoint(0);
        let pin = s.c.start(0, EMBEDDED, Cluster::pin_request(s.dir, 1));
        s.until_announced_then_slow();
        s.c.deaf = true;
        s.c.create(s.dir, "late");
        assert_eq!(names(&s), 64);
        s.c.deaf = false;
        s.c.pass(50);
        assert!(s.c.worlds[0].rank.moves.is_sealed(), "{:?}", s.c.worlds[0].notes);
        assert_eq!(names(&s), 2, "of one the store has to hear, and below `sub` something was cached");
        if is_given_up {
            s.c.pass(80);
            assert_eq!((s.moving(), s.owners()), (false, vec![0]));
            assert_eq!(s.c.names(s.dir).len(), 64);
        }
        s.c.hold(0).let_go();
        assert_eq!(s.c.wait(0, EMBEDDED, pin), Answered::Outcome(Ok(Reply::Ok)), "{:?}", s.c.worlds[0].notes);
        assert_eq!((s.owners(), s.c.names(s.dir).len()), (vec![1], 64));
    }
}

#[cfg(feature = "mutants")]
#[test]
fn defects_of_seals_are_caught() {
    let defects: [(&str, fn()); 3] = [
        ("mds_seal_waits_to_thin", what_is_clean_leaves_while_the_store_takes_the_rest),
        ("mds_seal_unbounded", what_is_sealed_for_too_long_is_served_again_and_moves_later),
        ("mds_seals_however_dirty", what_became_dirty_is_stored_before_the_seal),
    ];
    for (defect, test) in defects {
        stdx::mutant::activate(Some(defect));
        let verdict = std::panic::catch_unwind(test);
        stdx::mutant::activate(None);
        assert!(verdict.is_err(), "{defect}");
    }
}
