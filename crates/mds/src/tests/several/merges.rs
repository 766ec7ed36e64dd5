//! Spread directories that go back to one part.
//!
//! Absent: how they come to be spread (`spreads.rs`); random ones beside everything else (`random.rs`).

use super::spreads::expected;
use super::*;

impl Cluster {
    /// Whoever has it merges a directory, if it can be now. Whether it is in one part then: what is not cached only looks as if it were.
    pub(super) fn merge(&mut self, dir: NodeRef) -> bool {
        let merges = |c: &Self| c.said("is in one part again") + c.said("it is not spread");
        let (at, before) = (self.content_of(dir), merges(self));
        self.inject(at, Input::Merge { dir: dir.ino });
        self.settle();
        self.come_to_rest();
        merges(self) > before && self.worlds[at].rank.view.cache.spread(dir.ino).is_none()
    }

    fn merged(&mut self, dir: NodeRef) {
        let at = self.content_of(dir);
        assert!(self.merge(dir), "{:?}", self.worlds[at].notes);
        assert!(self.units(dir).iter().all(|(depth, _)| *depth == 0), "no part has an entry");
    }

    /// What rank 0 asks of units lies in a socket, for as long as a merge takes.
    fn asked_of_units(&mut self) -> Vec<(RankId, ClientMsg)> {
        let mut asked = Vec::new();
        for _ in 0..100 {
            let all = std::mem::take(&mut self.worlds[0].to_ranks).into_iter();
            let (asks, others): (VecDeque<_>, VecDeque<_>) = all.partition(|(_, message)| {
                matches!(message.asked(), Some((_, Request::Totals { unit })) if unit.frag != Frag::WHOLE)
            });
            self.worlds[0].to_ranks = others;
            asked.extend(asks);
            self.go_on();
        }
        asked
    }

    /// Nothing that a unit had is in the store any more but names.
    fn assert_no_unit_stored(&mut self, dir: NodeRef) {
        for at in 0..self.worlds.len() {
            self.checkpoint(at);
        }
        self.come_to_rest();
        self.pass(50);
        let head = [dir.ino.0.to_be_bytes(), 0_u64.to_be_bytes()].concat();
        let store = &self.worlds[self.holder].store;
        let headers = store.keys().filter(|(_, key)| key.starts_with(&head));
        assert_eq!(headers.count(), 1, "its own header alone");
    }
}

#[test]
fn everything_is_there_in_one_part() {
    let (mut c, dir) = Cluster::with_spread(20);
    let before = c.stat(dir);
    c.merged(dir);
    assert_eq!(c.names(dir), expected(20));
    let after = c.stat(dir);
    assert_eq!((after.size, after.nlink, after.mtime), (21, 3, before.mtime));
    assert!(after.change > before.change);
    for name in expected(20) {
        assert_eq!(c.lookup(dir, &name).map(|attr| attr.parent), Ok(dir.ino), "{name}");
    }
    assert_eq!(c.lookup(dir, "g"), Err(Errno::ENOENT));
    c.create(dir, "g");
    assert_eq!(c.call(0, Request::Unlink { parent: dir, name: n("f1") }), Ok(Reply::Ok));
    assert_eq!(c.stat(dir).size, 21);
    c.assert_no_unit_stored(dir);
    for at in [0, 1] {
        c.crash(at);
        c.drop_cache(at);
    }
    assert_eq!(c.stat(dir).size, 21);
    assert!(c.lookup(dir, "g").is_ok());
    assert_eq!(c.lookup(dir, "f1"), Err(Errno::ENOENT));
}

/// Nothing of it in the store when its rank dies: the journal says all of it.
#[test]
fn it_stays_merged_with_a_crash() {
    let (mut c, dir) = Cluster::with_spread(20);
    let (low, high) = (c.name_in(0, 0), c.name_in(1, 0));
    c.create(dir, &low);
    c.create(dir, &high);
    c.merged(dir);
    assert_eq!(c.call(0, Request::Unlink { parent: dir, name: n(&low) }), Ok(Reply::Ok));
    c.crash(0);
    assert_eq!(c.units(dir), []);
    assert!(c.worlds[0].rank.view.cache.spread(dir.ino).is_none());
    let mut names = expected(20);
    names.push(high.clone());
    names.sort();
    assert_eq!(c.names(dir), names);
    assert_eq!(c.stat(dir).size, 22);
    c.crash(1);
    assert_eq!(c.lookup(dir, &low), Err(Errno::ENOENT));
    c.assert_no_unit_stored(dir);
    c.drop_cache(0);
    assert_eq!(c.names(dir), names);
}

/// Its parts are called by other numbers then, and have versions behind all that there were.
#[test]
fn it_is_spread_and_merged_again_and_again() {
    let (mut c, dir) = Cluster::with_spread(12);
    let mut names = expected(12);
    for round in 0..4_u8 {
        c.merged(dir);
        let name = format!("g{round}");
        c.create(dir, &name);
        names.push(name);
        c.spread(dir, 1 + round % 2);
        assert!(!c.units(dir).is_empty(), "{:?}", c.worlds[0].notes);
        let (low, high) = (c.name_in(0, 0), c.name_in(1, 0));
        for name in [&low, &high] {
            c.create(dir, name);
            assert_eq!(c.call(0, Request::Unlink { parent: dir, name: n(name) }), Ok(Reply::Ok));
        }
        if round % 2 == 1 {
            c.crash(usize::from(round / 2));
        }
        names.sort();
        assert_eq!(c.names(dir), names, "{round}");
        assert_eq!(c.stat(dir).size as usize, names.len());
    }
}

/// What broke: between two checkpoints it was merged and spread again. The headers that the first takes away have the keys of the new
/// ones.
#[test]
fn it_is_spread_over_what_was_merged() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    for at in 0..12 {
        c.create(dir, &format!("f{at}"));
    }
    c.mkdir(dir, "sub");
    assert_eq!(c.pin(dir, 1), Ok(Reply::Ok));
    c.spread(dir, 1);
    assert_eq!(c.pin(dir, 0), Ok(Reply::Ok));
    c.come_to_rest();
    assert_eq!(c.content_of(dir), 0, "{:?}", c.units(dir));
    assert_eq!(c.names(dir), expected(12));
    c.merged(dir);
    c.spread(dir, 1);
    for _ in 0..2 {
        (0..c.worlds.len()).for_each(|at| c.checkpoint(at));
        c.come_to_rest();
        (0..c.worlds.len()).for_each(|at| c.drop_cache(at));
        assert_eq!(c.names(dir), expected(12));
        assert_eq!(c.stat(dir).size, 13);
        (0..c.worlds.len()).for_each(|at| c.crash(at));
    }
}

/// The other rank hears only of the map in which the directory is spread anew, in another way.
#[test]
fn who_missed_it_reads_it_again() {
    let (mut c, dir) = Cluster::with_spread(12);
    let high = c.name_in(1, 0);
    c.create(dir, &high);
    let first = c.worlds[1].rank.view.cache.spread(dir.ino).expect("it is known");
    c.merged(dir);
    c.spread(dir, 1);
    assert_eq!(c.units(dir), [(1, 1)]);
    assert!(c.lookup(dir, &high).is_ok());
    c.create(dir, &c.name_in(1, 64));
    let second = c.worlds[1].rank.view.cache.spread(dir.ino).expect("it is known");
    assert_ne!(first.first, second.first);
    c.crash(1);
    assert_eq!(c.stat(dir).size, 15);
}

/// What another rank keeps of the totals of its parts comes back first. It has the directory's inode.
#[test]
fn totals_are_told_anew() {
    let (mut c, dir) = Cluster::with_spread(8);
    assert_eq!(c.pin(dir, 1), Ok(Reply::Ok), "{:?}", c.worlds[0].notes);
    c.come_to_rest();
    let before = c.stat(dir);
    c.merged(dir);
    assert_eq!(c.owner(dir), Some(1));
    let after = c.stat(dir);
    assert_eq!((before.size, after.size), (9, 9));
    assert!(after.change > before.change, "what was kept is told anew");
    c.create(dir, &c.name_in(0, 0));
    c.create(dir, &c.name_in(1, 0));
    assert_eq!(c.stat(dir).size, 11);
    assert_eq!(c.names(dir).len(), 11);
}

#[test]
fn it_goes_when_it_is_empty_and_merged() {
    let (mut c, dir) = Cluster::with_spread(4);
    c.remove_all(dir, 4);
    c.merged(dir);
    let rmdir = Request::RmDir { parent: root(), name: n("d") };
    assert_eq!(c.call(0, rmdir), Ok(Reply::Ok), "{:?}", c.worlds[0].notes);
    assert_eq!(c.lookup(root(), "d"), Err(Errno::ENOENT));
    for at in [0, 1] {
        c.checkpoint(at);
    }
    c.come_to_rest();
    let store = &c.worlds[c.holder].store;
    assert!(!store.keys().any(|(_, key)| key.starts_with(&dir.ino.0.to_be_bytes())));
}

/// However many names it has, few go from the units to the directory in one step.
#[test]
fn a_large_directory_is_merged() {
    let (mut c, dir) = Cluster::with_large(200);
    c.spread(dir, 2);
    assert!(c.worlds[0].rank.view.cache.spread(dir.ino).is_some());
    assert_eq!(c.names(dir).len(), 220);
    c.merged(dir);
    assert_eq!(c.names(dir).len(), 220);
    assert_eq!(c.stat(dir).size, 220);
    c.crash(0);
    assert_eq!(c.stat(dir).size, 220);
    assert_eq!(c.names(dir).len(), 220);
}

/// A directory that is in one part stays so, and one whose part cannot come stays spread, and is served as before.
#[test]
fn what_cannot_be_merged_is_served_on() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    c.create(dir, "f");
    c.inject(0, Input::Merge { dir: dir.ino });
    c.come_to_rest();
    assert!(
        c.worlds[0].notes.iter().any(|note| note.contains("it is not spread")),
        "{:?}",
        c.worlds[0].notes
    );
    assert_eq!(c.names(dir), ["f"]);
    let (mut c, dir) = Cluster::with_spread(6);
    // What a mount in the other rank's process has open stays there.
    let high = c.name_in(1, 0);
    let file = c.create(dir, &high);
    let opened = c.ask(1, Request::Open { node: file, flags: 0 });
    assert!(matches!(opened, Answered::Outcome(Ok(_))), "{opened:?}");
    c.inject(0, Input::Merge { dir: dir.ino });
    for _ in 0..1_000 {
        c.pass(20);
    }
    assert!(c.worlds[0].rank.spreads.is_idle());
    assert!(c.worlds[0].notes.iter().any(|note| note.contains("is not merged")), "{:?}", c.worlds[0].notes);
    assert_eq!(c.stat(dir).size, 8);
    let release = Request::Release { node: file, count: 1 };
    assert!(matches!(c.ask(1, release), Answered::Outcome(Ok(_))));
    assert!(c.worlds[0].rank.view.cache.spread(dir.ino).is_some());
    c.merged(dir);
    assert_eq!(c.stat(dir).size, 8);
}

/// The rank dies at whatever moment of it: the directory is spread, or it is not, and all of it is there.
#[test]
fn it_can_die_at_any_time() {
    for steps in 1..24 {
        for at in [0, 1] {
            let (mut c, dir) = Cluster::with_spread(8);
            let owner = c.content_of(dir);
            c.inject(owner, Input::Merge { dir: dir.ino });
            (0..steps).for_each(|_| c.go_on());
            c.crash(at);
            c.settle();
            c.come_to_rest();
            assert_eq!(c.names(dir), expected(8), "after {steps}, rank {at}");
            c.create(dir, "g");
            assert_eq!(c.stat(dir).size, 10, "after {steps}, rank {at}");
            c.merged(dir);
            assert_eq!(c.stat(dir).size, 10);
        }
    }
}

/// What broke: a directory's home was asking for its many parts when they became one. That each of them was gone counted by
/// itself, as if a hint had led nowhere so often.
#[test]
fn who_asks_for_many_parts_that_become_one_finds_it() {
    let (mut c, dir) = Cluster::with_moved();
    for at in 0..18 {
        c.create(dir, &format!("g{at}"));
    }
    c.spread(dir, 6);
    let tid = c.hold(0).start(EMBEDDED, Cred::ROOT, Request::GetAttr { node: dir });
    let asked = c.asked_of_units();
    assert!(asked.len() > 24, "{} parts are asked for", asked.len());
    assert_eq!(c.names(dir).len(), 20, "only what is cached is merged");
    c.merged(dir);
    c.worlds[0].to_ranks.extend(asked);
    let answered = c.wait(0, EMBEDDED, tid);
    let Answered::Outcome(Ok(Reply::Attr(attr))) = answered else { panic!("{answered:?}") };
    assert_eq!(attr.size, 20);
}

/// The same of one that is to be in one part again.
#[test]
pub(super) fn what_is_to_be_one_is_gathered_outside_of_the_mask() {
    let mut c = Cluster::of(3);
    let dir = c.mkdir(root(), "d");
    for at in 0..20 {
        c.create(dir, &format!("g{at}"));
    }
    c.spread(dir, 2);
    c.masked = Some(RankId(0));
    c.merged(dir);
    assert_eq!(c.names(dir).len(), 20);
}

/// What broke: between what a home heard of a directory and of its units it was merged and spread anew. The new units say that
/// nothing came since its time was set, as they count from nothing.
#[test]
fn who_asks_across_a_merge_sees_the_last_change() {
    let (mut c, dir) = Cluster::with_moved();
    for at in 0..18 {
        c.create(dir, &format!("g{at}"));
    }
    c.spread(dir, 2);
    assert!(super::totals::set_mtime(&mut c, dir, 5).is_ok());
    let spread = c.worlds[1].rank.view.cache.spread(dir.ino).expect("spread");
    for at in 0..8 {
        c.create(dir, &format!("last{at}"));
    }
    let tid = c.hold(0).start(EMBEDDED, Cred::ROOT, Request::GetAttr { node: dir });
    let asked = c.asked_of_units();
    assert!(!asked.is_empty(), "units are asked for");
    c.merged(dir);
    c.spread(dir, 2);
    c.worlds[0].to_ranks.extend(asked);
    let answered = c.wait(0, EMBEDDED, tid);
    let Answered::Outcome(Ok(Reply::Attr(attr))) = answered else { panic!("{answered:?}") };
    assert_eq!(attr.size, 28);
    assert!(attr.mtime > Wall(5), "{attr:?}");
    assert_eq!(c.stat(dir), attr);
    let totals = &c.worlds[0].rank.view.totals;
    let kept = spread.all().filter(|(number, _)| totals.of(*number).is_some());
    assert_eq!(kept.collect::<Vec<_>>(), [], "units of another time");
}

/// More units than are warmed at a time.
#[test]
fn a_directory_is_merged_while_its_units_wait_to_be_warmed() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    for at in 0..100 {
        c.create(dir, &format!("f{at}"));
    }
    c.checkpoint(0);
    // Its parts stay where it is.
    c.map.bal_rank_mask = proto::cluster::Mask::NONE.with(RankId(0));
    c.publish();
    c.spread(dir, 5);
    assert!(c.worlds[0].rank.view.cache.spread(dir.ino).is_some(), "{:?}", c.worlds[0].notes);
    c.checkpoint(0);
    c.hold(0).hold_loads = true;
    c.inject(0, Input::Warmup { dir: Some(dir.ino) });
    c.settle();
    assert!(c.worlds[0].rank.warm.status().waiting > 0, "some wait for the others");
    c.merged(dir);
    c.hold(0).let_go();
    c.pass(50);
    let (world, status) = (&c.worlds[0], c.worlds[0].rank.warm.status());
    assert_eq!((status.state, status.waiting), (crate::WarmState::Done, 0), "{status:?}");
    assert!(!world.notes.iter().any(|note| note.contains("damage")), "{:?}", world.notes);
    assert_eq!(c.names(dir).len(), 100);
}

#[cfg(feature = "mutants")]
#[test]
fn what_is_asked_across_a_merge_is_caught() {
    let defects: [(&str, fn()); 3] = [
        ("mds_warms_former_units", a_directory_is_merged_while_its_units_wait_to_be_warmed),
        ("mds_each_part_is_a_sign", who_asks_for_many_parts_that_become_one_finds_it),
        ("mds_units_of_another_time", who_asks_across_a_merge_sees_the_last_change),
    ];
    for (defect, test) in defects {
        stdx::mutant::activate(Some(defect));
        let verdict = std::panic::catch_unwind(test);
        stdx::mutant::activate(None);
        assert!(verdict.is_err(), "{defect}");
    }
}
