//! Directories that are spread and merged without an operator: those that grow and shrink, and those of which much is asked.
//!
//! Absent: what becomes of names meanwhile (`spreads.rs`, `merges.rs`); random ones beside everything else (`random.rs`).

use super::*;

/// As many names as a directory has when it has just been spread by itself.
const GROWN: usize = 25;
/// So long nothing becomes of it in tests, at most.
const LONG_MS: u64 = 15_000;

impl Cluster {
    fn is_spread(&self, dir: NodeRef) -> bool {
        let at = self.content_of(dir);
        self.worlds[at].rank.view.cache.spread(dir.ino).is_some()
    }

    fn make_files(&mut self, dir: NodeRef, range: std::ops::Range<usize>) {
        for at in range {
            self.create(dir, &format!("f{at}"));
        }
    }

    fn unlink(&mut self, dir: NodeRef, name: &str) {
        assert_eq!(self.call(0, Request::Unlink { parent: dir, name: n(name) }), Ok(Reply::Ok), "{name}");
    }

    fn remove_files(&mut self, dir: NodeRef, range: std::ops::Range<usize>) {
        range.for_each(|at| self.unlink(dir, &format!("f{at}")));
    }

    /// A directory that slots give to one of two ranks, and that has grown.
    fn with_grown() -> (Self, NodeRef) {
        let mut c = Self::with_slots();
        let dir = c.mkdir(root(), "d");
        c.make_files(dir, 0..GROWN);
        c.come_to_rest();
        assert!(c.is_spread(dir), "{:?}", c.notes());
        (c, dir)
    }

    fn notes(&self) -> Vec<&String> {
        self.worlds.iter().flat_map(|world| &world.notes).collect()
    }

    /// How often a note said that.
    pub(super) fn said(&self, what: &str) -> usize {
        self.notes().iter().filter(|note| note.contains(what)).count()
    }

    /// Until it is in one part, if it comes to that.
    fn is_merged_soon(&mut self, dir: NodeRef, most_ms: u64) -> bool {
        for _ in 0..most_ms / 20 {
            if !self.is_spread(dir) {
                return true;
            }
            self.pass(20);
        }
        false
    }

    /// Names of a directory whose part is, or is not, its own rank's.
    fn files_of(&self, dir: NodeRef, own: bool, count: usize) -> Vec<String> {
        let home = self.content_of(dir) as u16;
        let at = |name: &str| {
            let hash = name_hash(&SEED, name.as_bytes());
            let units = self.map.entries.range(crate::spreads::known::parts_of(dir.ino));
            units
                .filter(|(unit, _)| unit.frag.covers(hash))
                .map(|(_, entry)| entry.rank.0)
                .next()
                .unwrap_or(home)
        };
        let names = (0..count).map(|at| format!("f{at}"));
        names.filter(|name| (at(name) == home) == own).collect()
    }

    /// Somebody writes to files in it all the time.
    fn write_often(&mut self, dir: NodeRef, times: u32) {
        for at in 0..times {
            let node = node(&self.lookup(dir, &format!("f{}", at % 8)).expect("it is there"));
            let set = proto::SetAttr { mode: Some(0o600 + at % 8), ..Default::default() };
            assert!(self.attr(0, Request::SetAttr { node, set }).is_ok());
            if at % 8 == 0 {
                self.pass(5);
            }
        }
        self.come_to_rest();
    }
}

#[test]
fn it_is_merged_when_few_names_are_left() {
    for others_last in [false, true] {
        let (mut c, dir) = Cluster::with_grown();
        let least = c.worlds[0].config.merge_size as usize;
        let mut names = c.files_of(dir, !others_last, GROWN);
        let mut last = c.files_of(dir, others_last, GROWN);
        names.append(&mut last);
        let kept = names.split_off(GROWN - least);
        names.iter().for_each(|name| c.unlink(dir, name));
        c.pass(LONG_MS);
        assert!(c.is_spread(dir), "it has just as many as it may: {:?}", c.notes());
        c.unlink(dir, &kept[0]);
        assert!(c.is_merged_soon(dir, 2 * LONG_MS), "others last: {others_last}: {:?}", c.notes());
        c.come_to_rest();
        assert_eq!(c.units(dir), []);
        let mut left = kept[1..].to_vec();
        left.sort();
        assert_eq!((c.names(dir), c.stat(dir).size as usize), (left, least - 1));
        assert_eq!(c.said("is merged by itself"), 1, "{:?}", c.notes());
    }
}

#[test]
fn what_an_operator_has_spread_stays_so() {
    let (mut c, dir) = Cluster::with_spread(12);
    c.remove_files(dir, 0..12);
    c.pass(LONG_MS);
    assert!(c.is_spread(dir), "{:?}", c.notes());
    // Also behind a crash, which the store's header says.
    for at in [0, 1] {
        c.checkpoint(at);
        c.crash(at);
        c.drop_cache(at);
    }
    assert_eq!(c.stat(dir).size, 1);
    c.create(dir, "g");
    c.unlink(dir, "g");
    c.pass(LONG_MS);
    assert!(c.is_spread(dir), "{:?}", c.notes());
}

/// What is stored says that it was spread by itself: the next life goes on.
#[test]
fn another_life_merges_it() {
    for stored in [false, true] {
        let (mut c, dir) = Cluster::with_grown();
        let at = c.content_of(dir);
        c.remove_files(dir, 0..GROWN - 3);
        if stored {
            c.checkpoint(0);
            c.checkpoint(1);
        }
        c.crash(at);
        if stored {
            c.drop_cache(at);
        }
        assert_eq!(c.stat(dir).size, 3);
        assert!(c.is_merged_soon(dir, LONG_MS), "stored: {stored}: {:?}", c.notes());
        assert_eq!((c.names(dir).len(), c.stat(dir).size), (3, 3));
    }
}

/// Between the sizes it stays what it is, and behind each change for a while.
#[test]
fn it_does_not_go_to_and_fro() {
    let (mut c, dir) = Cluster::with_grown();
    let rest_ms = c.worlds[0].config.limits.spread_rest_ns / MS;
    c.remove_files(dir, 0..GROWN - 3);
    c.pass(rest_ms / 4);
    assert!(c.is_spread(dir), "it was spread just now");
    assert!(c.is_merged_soon(dir, LONG_MS), "{:?}", c.notes());
    assert_eq!(c.worlds[0].config.split_size, 24);
    c.make_files(dir, 0..20);
    c.pass(LONG_MS);
    assert!(!c.is_spread(dir), "{:?}", c.notes());
    // Names come and go all the time: each time it is looked at later.
    for _ in 0..12 {
        c.make_files(dir, 20..GROWN - 3);
        c.come_to_rest();
        c.remove_files(dir, 0..GROWN - 3);
        c.pass(rest_ms);
        c.make_files(dir, 0..20);
    }
    let changes = c.said("is spread by itself") + c.said("in one part again");
    assert!((3..=9).contains(&changes), "{changes}: {:?}", c.notes());
}

/// One rank's part has few names, and all together has many: that is asked once, and again when the other's changes.
#[test]
fn nobody_is_asked_while_nothing_changes() {
    let (mut c, dir) = Cluster::with_grown();
    let at = c.content_of(dir);
    c.files_of(dir, true, GROWN).iter().for_each(|name| c.unlink(dir, name));
    c.pass(LONG_MS);
    let asked = |c: &Cluster| c.worlds[at].rank.peers.last_asked();
    let before = asked(&c);
    c.pass(4 * LONG_MS);
    assert_eq!(asked(&c), before, "nothing has changed");
    assert!(c.is_spread(dir));
    let others = c.files_of(dir, false, GROWN);
    assert!(others.len() >= c.worlds[at].config.merge_size as usize, "{others:?}");
    others[3..].iter().for_each(|name| c.unlink(dir, name));
    assert!(c.is_merged_soon(dir, 2 * LONG_MS), "{:?}", c.notes());
    assert_eq!(c.stat(dir).size, 3);
}

#[test]
fn it_waits_while_ranks_stop() {
    let (mut c, dir) = Cluster::with_grown();
    c.remove_files(dir, 0..GROWN - 3);
    // It is to stop, and has not begun to.
    c.map.max_mds = 1;
    c.publish();
    c.settle();
    c.pass(LONG_MS);
    assert_eq!(c.said("is merged by itself"), 0, "{:?}", c.notes());
    c.map.max_mds = 2;
    c.publish();
    c.settle();
    assert!(c.is_merged_soon(dir, 2 * LONG_MS), "{:?}", c.notes());
}

/// Something in a part cannot come: it is given up, and tried again later.
#[test]
fn what_was_given_up_is_tried_again() {
    let (mut c, dir) = Cluster::with_grown();
    let at = c.content_of(dir);
    let other = c.files_of(dir, false, GROWN)[0].clone();
    let file = node(&c.lookup(dir, &other).expect("it is there"));
    // What a mount in the other rank's process has open stays there.
    assert!(matches!(c.ask(1 - at, Request::Open { node: file, flags: 0 }), Answered::Outcome(Ok(_))));
    let names = (0..GROWN).map(|at| format!("f{at}")).filter(|name| *name != other);
    names.collect::<Vec<_>>().iter().for_each(|name| c.unlink(dir, name));
    for _ in 0..3_000 {
        c.pass(20);
    }
    let tries = c.said("is not merged by itself");
    assert!((1..=4).contains(&tries), "{tries}: {:?}", c.notes());
    assert!(c.is_spread(dir));
    let release = Request::Release { node: file, count: 1 };
    assert!(matches!(c.ask(1 - at, release), Answered::Outcome(Ok(_))));
    assert!(c.is_merged_soon(dir, 8 * LONG_MS), "{:?}", c.notes());
    assert_eq!(c.names(dir), [other]);
}

#[test]
fn what_is_pinned_to_several_ranks_is_not_merged() {
    let (mut c, dir) = Cluster::with_grown();
    let name = "ceph.dir.pin.distributed";
    let request = Request::SetXattr {
        node: dir,
        name: n(name),
        value: b"1".to_vec().into(),
        mode: proto::request::XattrMode::Either,
    };
    assert_eq!(c.call(0, request), Ok(Reply::Ok));
    c.remove_files(dir, 0..GROWN - 3);
    c.pass(LONG_MS);
    assert!(c.is_spread(dir), "{:?}", c.notes());
}

/// A pin is for all of a directory, and lasts: it comes together at that rank, however many names it has.
#[test]
fn all_of_it_goes_where_it_is_pinned() {
    for to_other in [false, true] {
        let (mut c, dir) = Cluster::with_grown();
        let at = c.content_of(dir);
        let to = if to_other { 1 - at } else { at };
        assert_eq!(c.pin(dir, to as u16), Ok(Reply::Ok), "{:?}", c.notes());
        assert_eq!(c.stat(dir).size as usize, GROWN);
        assert!(c.is_merged_soon(dir, LONG_MS), "{to_other}: {:?}", c.notes());
        c.come_to_rest();
        assert_eq!((c.units(dir), c.owner(dir)), (vec![(0, to as u16)], Some(to as u16)));
        c.make_files(dir, GROWN..80);
        c.pass(LONG_MS);
        assert!(!c.is_spread(dir), "{:?}", c.notes());
        assert_eq!(c.names(dir).len(), 80);
    }
}

/// However long it would rest: it was spread just now, and its parts are on their way.
#[test]
fn a_pin_waits_for_what_is_under_way_and_no_longer() {
    let mut c = Cluster::with_slots();
    let dir = c.mkdir(root(), "d");
    let at = usize::from(c.slot_owner(dir));
    let first_ms = c.worlds[at].config.limits.spread_rest_ns / MS;
    c.make_files(dir, 0..20);
    // It has gone to and fro.
    (0..8).for_each(|_| c.worlds[at].rank.rests(dir.ino, false));
    c.make_files(dir, 20..GROWN);
    assert_eq!(c.pin(dir, at as u16), Ok(Reply::Ok), "{:?}", c.notes());
    assert!(c.is_merged_soon(dir, 20 * first_ms), "{:?}", c.notes());
    assert_eq!(c.names(dir).len(), GROWN);
}

#[test]
fn a_hot_directory_is_spread() {
    let mut c = Cluster::with_slots();
    let (hot, small) = (c.mkdir(root(), "hot"), c.mkdir(root(), "small"));
    c.make_files(small, 0..7);
    c.make_files(hot, 0..10);
    c.write_often(hot, 100);
    assert!(!c.is_spread(hot), "so much is not asked of it: {:?}", c.notes());
    c.write_often(hot, 200);
    assert!(c.is_spread(hot), "{:?}", c.notes());
    assert_eq!((c.names(hot).len(), c.units(hot).len()), (10, 4));
    // There is next to nothing to divide.
    c.remove_files(small, 0..7);
    c.make_files(small, 0..8);
    c.unlink(small, "f7");
    c.create(small, "x");
    c.unlink(small, "x");
    for at in 0..300_usize {
        let name = format!("f{}", at % 7);
        let node = node(&c.lookup(small, &name).expect("it is there"));
        let set = proto::SetAttr { mode: Some(0o600), ..Default::default() };
        assert!(c.attr(0, Request::SetAttr { node, set }).is_ok());
        if at % 8 == 0 {
            c.pass(5);
        }
    }
    c.come_to_rest();
    assert!(!c.is_spread(small), "{:?}", c.notes());
}

#[test]
fn a_hot_directory_stays_where_there_is_one_rank() {
    let mut c = Cluster::with_slots();
    let dirs: Vec<NodeRef> = (0..20).map(|at| c.mkdir(root(), &format!("d{at}"))).collect();
    let dir = *dirs.iter().find(|dir| c.slot_owner(**dir) == 0).expect("one of rank 0's");
    c.map.max_mds = 1;
    c.publish();
    c.settle();
    c.make_files(dir, 0..10);
    c.write_often(dir, 300);
    assert!(!c.is_spread(dir), "{:?}", c.notes());
}

/// It has fewer names than others are merged with, and is not as long as much is asked of it.
#[test]
fn what_was_hot_is_merged_when_it_is_cold() {
    let mut c = Cluster::with_slots();
    let dir = c.mkdir(root(), "d");
    c.make_files(dir, 0..10);
    c.write_often(dir, 300);
    assert!(c.is_spread(dir), "{:?}", c.notes());
    c.unlink(dir, "f8");
    c.unlink(dir, "f9");
    c.create(dir, "g");
    c.unlink(dir, "f7");
    c.unlink(dir, "g");
    for _ in 0..6 {
        for at in 0..120_usize {
            let node = node(&c.lookup(dir, &format!("f{}", at % 7)).expect("it is there"));
            let set = proto::SetAttr { mode: Some(0o600), ..Default::default() };
            assert!(c.attr(0, Request::SetAttr { node, set }).is_ok());
        }
        c.pass(500);
    }
    assert!(c.is_spread(dir), "it is hot: {:?}", c.notes());
    assert!(c.is_merged_soon(dir, 4 * LONG_MS), "{:?}", c.notes());
    c.come_to_rest();
    assert_eq!((c.names(dir).len(), c.stat(dir).size), (7, 7));
}

/// Whoever dies, at whatever moment of it: all of it is there, and it is merged in the end.
#[test]
fn who_dies_delays_it_and_nothing_else() {
    for steps in 0..20 {
        for at in [0, 1] {
            let (mut c, dir) = Cluster::with_grown();
            c.remove_files(dir, 0..GROWN - 5);
            let rest_ms = c.worlds[0].config.limits.spread_rest_ns / MS;
            c.pass(rest_ms / 2 + steps * rest_ms / 20);
            (0..steps).for_each(|_| c.go_on());
            c.crash(at);
            c.settle();
            c.come_to_rest();
            assert_eq!(c.names(dir).len(), 5, "after {steps}, rank {at}");
            assert!(c.is_merged_soon(dir, 4 * LONG_MS), "after {steps}, rank {at}: {:?}", c.notes());
            assert_eq!((c.names(dir).len(), c.stat(dir).size), (5, 5), "after {steps}, rank {at}");
        }
    }
}

#[cfg(feature = "mutants")]
#[test]
fn defects_of_what_becomes_by_itself_are_caught() {
    let defects: [(&str, fn()); 4] = [
        ("mds_merge_despite_operator", what_an_operator_has_spread_stays_so),
        ("mds_spread_never_rests", it_does_not_go_to_and_fro),
        ("mds_merge_of_many", it_is_merged_when_few_names_are_left),
        ("mds_merge_while_hot", what_was_hot_is_merged_when_it_is_cold),
    ];
    for (defect, test) in defects {
        stdx::mutant::activate(Some(defect));
        let verdict = std::panic::catch_unwind(test);
        stdx::mutant::activate(None);
        assert!(verdict.is_err(), "{defect}");
    }
}
