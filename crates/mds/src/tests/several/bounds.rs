//! What ranks ask and tell each other at once has bounds, whatever the tree is like; and a map that is heard of late ends nothing of later lives.
//!
//! Absent: what clients may say (`hostile.rs`).

use super::*;
use proto::dentry::DentryValue;
use proto::inode::{EXT_BYTES_MAX, InodeExt};
use proto::request::rename_flags::EXCHANGE;

fn exchange(from: (NodeRef, &str), to: (NodeRef, &str)) -> Request {
    let (parent, name, new_parent, new_name) = (from.0, n(from.1), to.0, n(to.1));
    Request::Rename { parent, name, new_parent, new_name, flags: EXCHANGE }
}

/// Each directory has its name at another rank than the one above it: the way up comes in many pieces.
#[test]
fn two_long_ways_fit_into_one_message() {
    let mut c = Cluster::new();
    let (mut at, mut dirs) = (root(), Vec::new());
    for depth in 1..18_u16 {
        at = c.mkdir(at, &format!("c{depth}"));
        assert_eq!(c.pin(at, depth % 2), Ok(Reply::Ok));
        dirs.push(at);
    }
    let (upper, lower) = (dirs[15], dirs[16]);
    c.mkdir(upper, "x");
    c.mkdir(lower, "y");
    let outcome = c.call(1, exchange((upper, "x"), (lower, "y")));
    assert_eq!(outcome, Err(Errno::EXDEV), "its ways have too many pieces");
    let (upper, lower) = (dirs[4], dirs[5]);
    c.mkdir(upper, "x");
    c.mkdir(lower, "y");
    assert_eq!(c.call(1, exchange((upper, "x"), (lower, "y"))), Ok(Reply::Ok));
}

/// Whoever comes last has asked for a name of each file that was there before.
#[test]
fn a_name_that_many_replace_asks_for_no_more_than_fits() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    assert_eq!(c.pin(dir, 1), Ok(Reply::Ok));
    for at in 0..24 {
        let file = c.create(root(), &format!("f{at}"));
        let link = Request::Link { node: file, parent: dir, name: n(&format!("t{at}")) };
        assert!(c.call(1, link).is_ok());
    }
    let mut start = |at: u32| {
        let (name, new_name) = (n(&format!("t{at}")), n("latest"));
        let request = Request::Rename { parent: dir, name, new_parent: dir, new_name, flags: 0 };
        c.hold(1).start(EMBEDDED, Cred::ROOT, request)
    };
    let tids: Vec<Tid> = (0..24).map(&mut start).collect();
    c.settle();
    for tid in tids {
        let answer = c.wait(1, EMBEDDED, tid);
        assert_eq!(answer, Answered::Outcome(Ok(Reply::Ok)));
    }
    assert_eq!(c.names(dir), ["latest"]);
}

/// Gives a file's record in the store so many names, and an xattr of so many bytes.
fn plant(c: &mut Cluster, file: NodeRef, links: usize, xattr: usize) {
    for at in [0, 1] {
        c.drop_cache(at);
    }
    let name = file.ino.link_name();
    let hash = name_hash(&SEED, &name);
    let key = key_bytes(StoreKey::head(Ino::LINKS, hash, &name));
    let store = &mut c.hold(0).store;
    let Ok(DentryValue::Primary(mut record)) = DentryValue::decode(&store[&key]) else { panic!("a record") };
    let mut ext: InodeExt = record.ext.as_deref().cloned().unwrap_or_default();
    let first = ext.links[0];
    ext.links.resize(links, first);
    ext.xattrs = vec![(b"user.x"[..].into(), vec![0; xattr].into())];
    record.core.nlink = links as u32;
    let mut w = Writer::new();
    encode_primary(&record.core, Some(&ext), &mut w);
    store.insert(key, w.0);
}

/// Two records of half a MiB, which no message takes together.
#[test]
fn records_of_many_names_are_told_one_by_one_or_not_at_all() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    assert_eq!(c.pin(dir, 1), Ok(Reply::Ok));
    for name in ["a", "b"] {
        let file = c.create(root(), &format!("{name}0"));
        assert!(c.call(1, Request::Link { node: file, parent: dir, name: n(name) }).is_ok());
        plant(&mut c, file, 35_000, 0);
    }
    let request = Request::Rename { parent: dir, name: n("a"), new_parent: dir, new_name: n("b"), flags: 0 };
    assert_eq!(c.call(1, request), Err(Errno::EMLINK));
    assert_eq!(c.call(1, Request::Unlink { parent: dir, name: n("b") }), Ok(Reply::Ok));
    let request = Request::Rename { parent: dir, name: n("a"), new_parent: dir, new_name: n("b"), flags: 0 };
    assert_eq!(c.call(1, request), Ok(Reply::Ok));
}

/// The longest record that there may be goes from rank to rank, and gets no name more.
#[test]
fn a_record_takes_no_more_names_than_ranks_can_tell() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    assert_eq!(c.pin(dir, 1), Ok(Reply::Ok));
    let file = c.create(root(), "f");
    assert!(c.call(1, Request::Link { node: file, parent: dir, name: n("a") }).is_ok());
    let xattr = 60_000;
    plant(&mut c, file, (EXT_BYTES_MAX - xattr) / 16 - 2, xattr);
    for (at, parent, name) in [(0, root(), "g"), (1, dir, "b")] {
        assert!(c.call(at, Request::Link { node: file, parent, name: n(name) }).is_ok(), "{name}");
    }
    let mode = proto::request::XattrMode::Either;
    let set = Request::SetXattr { node: file, name: n("user.y"), value: vec![1; 100].into(), mode };
    assert_eq!(c.call(0, set), Err(Errno::ENOSPC));
    for (at, parent) in [(0, root()), (1, dir)] {
        assert_eq!(c.call(at, Request::Link { node: file, parent, name: n("h") }), Err(Errno::EMLINK));
    }
    assert_eq!(c.call(1, Request::Unlink { parent: dir, name: n("b") }), Ok(Reply::Ok));
    c.crash(1);
    assert!(c.lookup(dir, "a").is_ok());
}

/// A rank hears late of a map from before the life that has decided.
#[test]
fn a_map_of_before_the_leaders_life_frees_nothing() {
    let mut c = Cluster::of(3);
    let (dir, third) = (c.mkdir(root(), "d"), c.mkdir(root(), "e"));
    assert_eq!((c.pin(dir, 1), c.pin(third, 2)), (Ok(Reply::Ok), Ok(Reply::Ok)));
    let file = c.create(dir, "f");
    c.behind.insert(1);
    let mut old = (**c.worlds[1].rank.view.territory.map().expect("a map")).clone();
    old.version += 1;
    old.ranks.remove(&RankId(2));
    c.crash(2);
    c.worlds.iter_mut().for_each(|world| world.auto_durable = false);
    let request =
        Request::Rename { parent: dir, name: n("f"), new_parent: third, new_name: n("g"), flags: 0 };
    let tid = c.hold(2).start(EMBEDDED, Cred::ROOT, request);
    for _ in 0..200 {
        if !c.worlds[2].rank.view.transactions.committed.is_empty() {
            break;
        }
        c.one_thing();
    }
    assert!(!c.worlds[2].rank.view.transactions.committed.is_empty(), "{:?}", c.worlds[2].notes);
    c.inject(1, Input::Map(Arc::new(old)));
    c.worlds.iter_mut().for_each(|world| world.auto_durable = true);
    (0..3).for_each(|at| c.hold(at).sync());
    c.behind.clear();
    c.publish();
    c.settle();
    assert_eq!(c.wait(2, EMBEDDED, tid), Answered::Outcome(Ok(Reply::Ok)));
    c.pass(50);
    c.assert_resolved();
    assert_eq!(c.lookup(dir, "f"), Err(Errno::ENOENT));
    assert_eq!(c.lookup(third, "g").map(|attr| attr.ino), Ok(file.ino));
}

#[cfg(feature = "mutants")]
#[test]
fn defects_of_bounds_are_caught() {
    let defects: [(&str, fn()); 3] = [
        ("mds_parts_without_bound", a_name_that_many_replace_asks_for_no_more_than_fits),
        ("mds_told_without_bound", records_of_many_names_are_told_one_by_one_or_not_at_all),
        ("mds_old_map_ends_lives", a_map_of_before_the_leaders_life_frees_nothing),
    ];
    for (defect, test) in defects {
        stdx::mutant::activate(Some(defect));
        let verdict = std::panic::catch_unwind(test);
        stdx::mutant::activate(None);
        assert!(verdict.is_err(), "{defect}");
    }
}
