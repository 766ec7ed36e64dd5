//! Policies as xattrs: set, read back, taken by what is made below, taken away, refused.
//!
//! Absent: pins (`pins.rs`).

use super::*;
use proto::request::XattrMode;

const ALL: [&str; 4] =
    ["ceph.dir.pin.distributed", "pando.dir.pin.random", "ceph.dir.bal.mask", "pando.dir.placement"];

impl Cluster {
    pub(super) fn set(&mut self, dir: NodeRef, name: &str, value: &str) -> Outcome {
        let value = value.as_bytes().into();
        self.call(0, Request::SetXattr { node: dir, name: n(name), value, mode: XattrMode::Either })
    }

    pub(super) fn get(&mut self, dir: NodeRef, name: &str) -> Result<String, Errno> {
        match self.call(0, Request::GetXattr { node: dir, name: n(name) })? {
            Reply::Xattr(value) => Ok(String::from_utf8_lossy(&value).into_owned()),
            other => panic!("{other:?}"),
        }
    }

    /// How many of so many new directories are placed by slots.
    fn placed(&mut self, parent: NodeRef, count: usize) -> usize {
        let first = self.names(parent).len();
        let dirs: Vec<NodeRef> =
            (first..first + count).map(|at| self.mkdir(parent, &format!("p{at}"))).collect();
        dirs.into_iter().filter(|dir| self.is_placed(*dir)).count()
    }

    fn is_placed(&mut self, dir: NodeRef) -> bool {
        let placed = |world: &World| world.rank.view.is_placed(dir.ino);
        self.worlds.iter().any(placed)
    }

    /// Slots are spread, and place nothing by themselves.
    fn with_policies() -> (Self, NodeRef) {
        let mut c = Self::with_slots();
        c.map.hash_placement = false;
        c.publish();
        let dir = c.mkdir(root(), "d");
        (c, dir)
    }
}

#[test]
fn each_is_read_back_and_taken_away() {
    let (mut c, dir) = Cluster::with_policies();
    let rows = [
        ("ceph.dir.pin.distributed", "1", "1"),
        ("pando.dir.pin.distributed", " 1\n", "1"),
        ("ceph.dir.pin.random", "0.01", "0.01"),
        ("pando.dir.pin.random", "0.0025", "0.0025"),
        ("ceph.dir.bal.mask", "0x3", "0,1"),
        ("pando.dir.bal.mask", "5,0,255", "0,5,255"),
        ("pando.dir.bal.mask", "0x80000000000000000", "67"),
        ("ceph.dir.bal.mask", "all", "all"),
        ("pando.dir.placement", "hash", "hash"),
        ("pando.dir.placement", "subtree", "subtree"),
    ];
    for (name, value, read) in rows {
        assert_eq!(c.set(dir, name, value), Ok(Reply::Ok), "{name} {value}");
        assert_eq!(c.get(dir, name), Ok(read.to_owned()), "{name} {value}");
        for at in [0, 1] {
            c.drop_cache(at);
        }
        c.crash(0);
        assert_eq!(c.get(dir, name), Ok(read.to_owned()), "{name} {value}: stored");
        let names = c.call(0, Request::ListXattr { node: dir });
        assert_eq!(names, Ok(Reply::XattrNames(Box::default())), "nobody copies it");
        let remove = Request::RemoveXattr { node: dir, name: n(name) };
        assert_eq!(c.call(0, remove.clone()), Ok(Reply::Ok), "{name}");
        assert_eq!(c.call(0, remove), Err(Errno::ENODATA), "{name}");
        let unset = if name.ends_with("placement") { Ok("inherit".to_owned()) } else { Err(Errno::ENODATA) };
        assert_eq!(c.get(dir, name), unset, "{name}");
    }
    for (name, off) in [("ceph.dir.pin.distributed", "0"), ("ceph.dir.pin.random", "0")] {
        assert_eq!(
            c.set(dir, name, if off == "0" && name.ends_with("random") { "0.01" } else { "1" }),
            Ok(Reply::Ok)
        );
        assert_eq!(c.set(dir, name, off), Ok(Reply::Ok));
        assert_eq!(c.get(dir, name), Err(Errno::ENODATA), "{name}");
    }
    assert_eq!(c.set(dir, "pando.dir.placement", "hash"), Ok(Reply::Ok));
    assert_eq!(c.set(dir, "pando.dir.placement", "inherit"), Ok(Reply::Ok));
    assert_eq!(c.get(dir, "pando.dir.placement"), Ok("inherit".to_owned()));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let (mut c, dir) = Cluster::with_policies();
    let file = c.create(root(), "f");
    let rows = [
        ("ceph.dir.pin.distributed", "2", Errno::EINVAL),
        ("ceph.dir.pin.distributed", "yes", Errno::EINVAL),
        ("ceph.dir.pin.random", "1.5", Errno::EDOM),
        ("ceph.dir.pin.random", "-0.1", Errno::EDOM),
        ("ceph.dir.pin.random", "0.02", Errno::EINVAL),
        ("ceph.dir.pin.random", "half", Errno::EINVAL),
        ("ceph.dir.pin.random", "nan", Errno::EINVAL),
        ("ceph.dir.bal.mask", "0,256", Errno::EDOM),
        (
            "ceph.dir.bal.mask",
            "0x1ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
            Errno::EDOM,
        ),
        ("ceph.dir.bal.mask", "0x", Errno::EINVAL),
        ("ceph.dir.bal.mask", "0xg", Errno::EINVAL),
        ("ceph.dir.bal.mask", "0x0", Errno::EINVAL),
        ("ceph.dir.bal.mask", "", Errno::EINVAL),
        ("ceph.dir.bal.mask", "-1", Errno::EINVAL),
        ("pando.dir.placement", "slots", Errno::EINVAL),
        // It is no word of Ceph's.
        ("ceph.dir.placement", "hash", Errno::EINVAL),
    ];
    for (name, value, errno) in rows {
        assert_eq!(c.set(dir, name, value), Err(errno), "{name} {value}");
    }
    let user = Cred { uid: 5, gid: 5, groups: Vec::new() };
    c.greet(0, Peer::User(user.clone()), Bits::NONE);
    for name in ALL {
        assert_eq!(c.set(file, name, "1"), Err(Errno::EINVAL), "{name} of a file");
        assert_eq!(c.get(file, name), Err(Errno::EINVAL), "{name} of a file");
        let set =
            Request::SetXattr { node: dir, name: n(name), value: b"1"[..].into(), mode: XattrMode::Either };
        let remove = Request::RemoveXattr { node: dir, name: n(name) };
        for request in [set, remove] {
            let tid = c.start_as(0, REMOTE, user.clone(), request);
            assert_eq!(c.wait(0, REMOTE, tid), Answered::Outcome(Err(Errno::EPERM)), "{name}");
        }
    }
    assert_eq!(c.set(root(), "ceph.dir.pin.distributed", "1"), Err(Errno::EINVAL));
    assert_eq!(c.set(root(), "ceph.dir.pin.random", "0.01"), Err(Errno::EINVAL));
    assert_eq!(c.set(root(), "pando.dir.placement", "hash"), Ok(Reply::Ok));
    // The root is rank 0's.
    assert_eq!(c.set(root(), "ceph.dir.bal.mask", "1"), Err(Errno::EINVAL));
    assert_eq!(c.set(root(), "ceph.dir.bal.mask", "0x6"), Err(Errno::EINVAL));
    assert_eq!(c.set(dir, "ceph.dir.bal.mask", "1"), Ok(Reply::Ok));
    assert_eq!(c.set(root(), "ceph.dir.bal.mask", "0,1"), Ok(Reply::Ok));
    assert_eq!(c.get(root(), "pando.dir.bal.mask"), Ok("0,1".to_owned()));
}

/// The nearest counts, and what was made before keeps what it took.
#[test]
fn what_is_made_below_takes_it() {
    let (mut c, dir) = Cluster::with_policies();
    let old = c.mkdir(dir, "old");
    assert_eq!(c.placed(dir, 4), 0);
    assert_eq!(c.set(dir, "pando.dir.placement", "hash"), Ok(Reply::Ok));
    assert_eq!(c.placed(dir, 8), 8);
    let new = c.mkdir(dir, "new");
    let below = c.mkdir(new, "below");
    assert_eq!((c.placed(new, 4), c.placed(below, 4), c.placed(old, 4)), (4, 4, 0));
    assert_eq!(c.get(new, "pando.dir.placement"), Ok("inherit".to_owned()), "nothing was asked for there");
    assert_eq!(c.set(below, "pando.dir.placement", "subtree"), Ok(Reply::Ok));
    let kept = c.mkdir(below, "kept");
    assert_eq!((c.placed(below, 4), c.placed(kept, 4)), (0, 0));
    let remove = Request::RemoveXattr { node: dir, name: n("pando.dir.placement") };
    assert_eq!(c.call(0, remove), Ok(Reply::Ok));
    assert_eq!((c.placed(dir, 4), c.placed(new, 4)), (0, 4));
    // A pin is nearer than what is above it.
    assert_eq!(c.pin(new, 1), Ok(Reply::Ok));
    let pinned = c.mkdir(new, "pinned");
    assert_eq!((c.placed(new, 4), c.placed(pinned, 4)), (0, 0));
    for at in [0, 1] {
        c.drop_cache(at);
        c.crash(at);
    }
    assert_eq!((c.placed(below, 2), c.placed(old, 2), c.placed(pinned, 2)), (0, 0, 0));
    let other = c.mkdir(root(), "other");
    assert_eq!(c.placed(other, 4), 0);
}

#[test]
fn distributed_is_for_children_only_and_random_for_some() {
    let (mut c, dir) = Cluster::with_policies();
    assert_eq!(c.set(dir, "ceph.dir.pin.distributed", "1"), Ok(Reply::Ok));
    assert_eq!(c.placed(dir, 6), 6);
    let child = c.mkdir(dir, "child");
    assert!(c.is_placed(child));
    assert_eq!(c.placed(child, 6), 0);
    let some = c.mkdir(root(), "some");
    for at in [0, 1] {
        c.worlds[at].config.limits.random_max = 1.0;
        c.crash(at);
    }
    assert_eq!(c.set(some, "ceph.dir.pin.random", "0.5"), Ok(Reply::Ok));
    let placed = c.placed(some, 40);
    assert!((10..=30).contains(&placed), "{placed}");
    let below = c.mkdir(some, "below");
    let placed = c.placed(below, 40);
    assert!((10..=30).contains(&placed), "{placed}");
}

#[test]
fn whose_it_is_and_what_is_asked_of_it_is_shown() {
    let (mut c, dir) = Cluster::with_policies();
    let (pinned, quiet) = (c.mkdir(root(), "pinned"), c.mkdir(root(), "quiet"));
    assert_eq!(c.pin(pinned, 1), Ok(Reply::Ok));
    assert_eq!(c.get(dir, "pando.dir.owner"), Ok("0x0/0=0".to_owned()));
    assert_eq!(c.get(pinned, "pando.dir.owner"), Ok("0x0/0=1".to_owned()));
    for name in ["pando.dir.owner", "pando.dir.load"] {
        assert_eq!(c.set(dir, name, "1"), Err(Errno::EPERM));
        assert_eq!(c.call(0, Request::RemoveXattr { node: dir, name: n(name) }), Err(Errno::EPERM));
    }
    assert_eq!(c.get(dir, "ceph.dir.owner"), Err(Errno::EINVAL), "no word of Ceph's");
    assert_eq!(
        c.get(quiet, "pando.dir.load"),
        Ok("reads=0.00 writes=0.00 misses=0.00 fetched=0.00 cpu=0.000000".to_owned())
    );
    for at in 0..36 {
        c.create(dir, &format!("f{at}"));
        c.create(pinned, &format!("f{at}"));
        let name = format!("f{}", at % 9);
        assert!(c.lookup(dir, &name).is_ok());
    }
    let text = c.get(dir, "pando.dir.load").expect("there");
    let value = |key: &str| -> f64 {
        let word = text.split(' ').find_map(|word| word.strip_prefix(key)).expect("a count");
        word.parse().expect("a number")
    };
    // 36 in less than a second, of which 5 / ln 2 seconds remember.
    assert!((4.5..=5.1).contains(&value("writes=")) && (4.5..=5.1).contains(&value("reads=")), "{text}");
    assert!(value("cpu=") > 0.0);
    let told = c.get(pinned, "pando.dir.load").expect("its rank is asked");
    assert!(told.starts_with("reads=0.00 writes=4.") || told.starts_with("reads=0.00 writes=5."), "{told}");
    let at_one = c.worlds[1].rank.loads(Mono(c.worlds[1].now));
    let unit = at_one.iter().find(|unit| unit.dir == pinned.ino).expect("a unit");
    assert!((4.5..=5.1).contains(&unit.load.writes), "{unit:?}");
    let at_zero = c.worlds[0].rank.loads(Mono(c.worlds[0].now));
    assert!(at_zero.iter().any(|unit| unit.dir == Ino::ROOT && unit.load.writes > 4.0), "{at_zero:?}");
    c.pass(5_000);
    let text = c.get(dir, "pando.dir.load").expect("there");
    let word = text.split(' ').find_map(|word| word.strip_prefix("writes=")).expect("a count");
    assert!((2.2..=2.6).contains(&word.parse::<f64>().expect("a number")), "{text}");
}

/// What broke: a listing cost the same however many names it told of, and what was asked of the store cost nothing.
#[test]
fn a_long_listing_costs_more_than_a_short_one_and_a_miss_more_than_a_hit() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    let cost = |c: &mut Cluster, request: Request| {
        let before = c.worlds[0].rank.view.load_of(dir.ino).cpu;
        assert!(c.call(0, request).is_ok());
        c.worlds[0].rank.view.load_of(dir.ino).cpu - before
    };
    let list = || Request::ReadDir { dir, after: 0, attrs: false, bytes_max: 4_000 };
    let look = || Request::Lookup { parent: dir, name: n("f") };
    c.create(dir, "f");
    let few = cost(&mut c, list());
    (0..40).for_each(|at| _ = c.create(dir, &format!("f{at}")));
    let many = cost(&mut c, list());
    assert!(many > 2.0 * few && few > 0.0, "{few} {many}");
    let hit = cost(&mut c, look());
    c.drop_cache(0);
    let miss = cost(&mut c, look());
    assert!(miss > 3.0 * hit && hit > 0.0, "{miss} {hit}");
}

/// The first that asks for it has slots spread.
#[test]
fn slots_are_used_when_somebody_asks_for_it() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    assert!(!c.map.slots_used);
    c.refuses = true;
    assert_eq!(c.set(dir, "pando.dir.placement", "hash"), Err(Errno::EBUSY));
    c.refuses = false;
    assert_eq!(c.set(dir, "pando.dir.placement", "subtree"), Ok(Reply::Ok));
    assert!(!c.map.slots_used);
    assert_eq!(c.set(dir, "pando.dir.placement", "hash"), Ok(Reply::Ok));
    assert!(c.map.slots_used);
    // Rank 0 has them all until they are spread, also of what others make.
    assert_eq!(c.pin(dir, 1), Ok(Reply::Ok));
    let new = c.mkdir(dir, "new");
    assert!(c.is_placed(new));
    c.create(new, "f");
    assert_eq!(c.ask(1, Request::Lookup { parent: new, name: n("f") }), NOT_MINE(0));
    for at in [1, 0] {
        c.drop_cache(at);
        c.crash(at);
    }
    assert_eq!(c.names(new), ["f"]);
}
