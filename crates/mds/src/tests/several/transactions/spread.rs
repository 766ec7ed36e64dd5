//! Directories that get another parent where one of them is spread: the directory itself, or what it goes out of or into.
//!
//! Absent: whoever dies meanwhile (`directories.rs`).

use super::*;

/// Rank 0's spread directory `/d`, of which rank 1 has a part, and `/o`, which is rank 1's; in `/d` are six files and a directory with a file.
fn scene() -> (Cluster, NodeRef, NodeRef, NodeRef) {
    let (mut c, dir) = Cluster::with_spread(6);
    let other = c.mkdir(root(), "o");
    assert_eq!(c.pin(other, 1), Ok(Reply::Ok));
    let sub = node(&c.lookup(dir, "sub").expect("there"));
    c.create(sub, "x");
    (c, dir, other, sub)
}

fn names_with<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut all: Vec<String> = (0..6).map(|at| format!("f{at}")).collect();
    all.extend(names.into_iter().map(str::to_owned));
    all.sort();
    all
}

#[test]
fn a_spread_directory_goes_to_another_rank_and_back() {
    let (mut c, dir, other, sub) = scene();
    for _ in 0..2 {
        assert_eq!(c.rename((root(), "d"), (other, "s")), Ok(Reply::Ok), "{:?}", c.worlds[0].notes);
        let there = node(&c.lookup(other, "s").expect("there"));
        assert_eq!(there.ino, dir.ino);
        assert_eq!((c.names(there), c.stat(there).size), (names_with(["sub"]), 7));
        c.create(there, "new");
        assert_eq!(c.stat(there).size, 8);
        assert_eq!(c.call(0, Request::Unlink { parent: there, name: n("new") }), Ok(Reply::Ok));
        assert_eq!(c.names(sub), ["x"]);
        assert_eq!(c.rename((other, "s"), (sub, "s")), Err(Errno::EINVAL));
        (0..2).for_each(|rank| c.crash(rank));
        assert_eq!((c.names(there), c.stat(there).size), (names_with(["sub"]), 7));
        assert_eq!(c.rename((other, "s"), (root(), "d")), Ok(Reply::Ok));
        assert_eq!((c.names(dir), c.stat(dir).size), (names_with(["sub"]), 7));
    }
    c.pass(20);
    c.assert_resolved();
}

#[test]
fn a_directory_goes_out_of_a_spread_one_and_into_it() {
    let (mut c, dir, other, sub) = scene();
    // Into either part of it, and out of each to either rank.
    for (at, out) in ["a", "b", "c", "e", "g", "h"].into_iter().zip([root(), other].into_iter().cycle()) {
        let from = if at == "a" { "sub" } else { "in" };
        assert_eq!(c.rename((dir, from), (out, "out")), Ok(Reply::Ok), "{at}");
        assert_eq!((c.names(dir), c.stat(dir).nlink), (names_with([]), 2));
        assert_eq!(c.names(sub), ["x"]);
        assert_eq!(c.rename((out, "out"), (dir, at)), Ok(Reply::Ok), "{at}");
        assert_eq!((c.names(dir), c.stat(dir).nlink), (names_with([at]), 3));
        // From one part of it to the other.
        assert_eq!(c.rename((dir, at), (dir, "in")), Ok(Reply::Ok), "{at}");
        assert_eq!((c.names(dir), c.stat(dir).nlink), (names_with(["in"]), 3));
        assert_eq!(c.names(sub), ["x"]);
        assert_eq!(c.rename((root(), "d"), (sub, "d")), Err(Errno::EINVAL));
    }
    (0..2).for_each(|rank| c.crash(rank));
    assert_eq!(c.names(NodeRef::bare(sub.ino)), ["x"]);
    c.pass(20);
    c.assert_resolved();
}

#[test]
fn an_empty_spread_directory_is_replaced() {
    let (mut c, dir, other, sub) = scene();
    assert_eq!(c.rename((other, "none"), (root(), "d")), Err(Errno::ENOENT));
    assert_eq!(c.rename((root(), "o"), (root(), "d")), Err(Errno::ENOTEMPTY));
    let inner = c.mkdir(other, "inner");
    assert_eq!(c.rename((dir, "sub"), (root(), "sub")), Ok(Reply::Ok));
    for name in names_with([]) {
        assert_eq!(c.call(0, Request::Unlink { parent: dir, name: n(&name) }), Ok(Reply::Ok));
    }
    assert_eq!(c.rename((other, "inner"), (root(), "d")), Ok(Reply::Ok), "{:?}", c.worlds[0].notes);
    assert_eq!(c.lookup(root(), "d").map(|attr| attr.ino), Ok(inner.ino));
    assert_eq!(c.names(NodeRef::bare(sub.ino)), ["x"]);
    c.pass(50);
    let left = c.map.entries.keys().filter(|unit| unit.dir == dir.ino).count();
    assert_eq!(left, 0, "its parts' entries are dropped");
    c.assert_resolved();
}
