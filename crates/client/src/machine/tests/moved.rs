//! Renames and links that the client performs: what is known afterwards, and what it leaves to the rank.
//!
//! Absent: random ones (`model.rs`).

use super::delegated::{
    DIR, SEED, asked, here, lookup, mkdir, recall_bits, rename, rename_how, rename_to, rmdir, trusted, write,
};
use super::early::{create, name, unlink};
use super::*;
use proto::request::rename_flags::{EXCHANGE, NOREPLACE, WHITEOUT};
use proto::{NameHash, name::name_hash};

fn link(ino: u64, parent: u64, text: &str) -> Request {
    Request::Link { node: node(ino), parent: node(parent), name: name(text) }
}

fn absent(bench: &mut Bench, parent: u64, text: &str) {
    assert_eq!(answers(&bench.call(90, lookup(parent, text))), [(90, Err(Errno::ENOENT))]);
}

/// The attributes that the client tells by itself.
fn told(out: &[Output]) -> Attr {
    match out {
        [Output::Answer { outcome: Ok(Reply::Attr(attr)), .. }] => *attr,
        other => panic!("not known here: {other:?}"),
    }
}

/// In `DIR` there are the directories 1000 and 1001, and in the first a file 1002.
fn two_dirs() -> Bench {
    let mut bench = trusted(true);
    here(&bench.call(2, mkdir(DIR, "d")));
    here(&bench.call(3, mkdir(DIR, "e")));
    here(&bench.call(4, create(1000, "f")));
    bench
}

#[test]
fn a_newborn_goes_with_its_name() {
    let mut bench = two_dirs();
    here(&bench.call(5, rename_to((1000, "f"), (1001, "g"))));
    absent(&mut bench, 1000, "f");
    let moved = told(&bench.call(6, lookup(1001, "g")));
    assert_eq!((moved.ino, moved.parent, moved.hash), (Ino(1002), Ino(1001), name("g").hash(&SEED)));
    assert_eq!((moved.change, moved.nlink), (2, 1));
    let counts = |attr: Attr| (attr.size, attr.nlink, attr.change);
    assert_eq!(counts(told(&bench.call(7, getattr(1000)))), (0, 2, 4));
    assert_eq!(counts(told(&bench.call(8, getattr(1001)))), (1, 2, 3));
    assert_eq!(here(&bench.call(9, write(1002, 0, 5, false))).parent, Ino(1001));
    // With the directory that it left it has nothing to do any more, with the one where it is everything.
    bench.step(recall_bits(1000, Bits::DX));
    here(&bench.call(10, write(1002, 0, 6, false)));
    bench.step(recall_bits(1001, Bits::DX));
    asked(&bench.call(11, write(1002, 0, 7, false)));
}

#[test]
fn what_is_replaced_is_forgotten() {
    let mut bench = two_dirs();
    here(&bench.call(5, create(1001, "g")));
    here(&bench.call(6, rename_to((1000, "f"), (1001, "g"))));
    assert_eq!(told(&bench.call(7, lookup(1001, "g"))).ino, Ino(1002));
    asked(&bench.call(8, getattr(1003)));
    assert_eq!(told(&bench.call(9, getattr(1001))).size, 1);
    // An empty directory by another.
    here(&bench.call(10, mkdir(DIR, "h")));
    here(&bench.call(11, rename(DIR, "h", "d")));
    asked(&bench.call(12, create(1000, "x")));
    here(&bench.call(13, create(1004, "x")));
    let dir = told(&bench.call(14, getattr(DIR)));
    assert_eq!((dir.size, dir.nlink), (2, 4));
    asked(&bench.call(15, rename(DIR, "d", "e")));
}

#[test]
fn what_may_not_be_or_is_not_certain_the_rank_has_to_say() {
    for request in [
        rename_how(DIR, "d", "x", EXCHANGE),
        rename_how(DIR, "d", "x", WHITEOUT),
        rename_how(DIR, "d", "e", NOREPLACE),
        rename(DIR, "d", "d"),
        rename(DIR, "missing", "x"),
        rename(DIR, "e", "d"),
        rename_to((1000, "f"), (DIR, "e")),
        rename_to((DIR, "e"), (1000, "f")),
        rename_to((1000, "f"), (1, "x")),
        rename_to((1, "x"), (1000, "y")),
        rename_to((DIR, "d"), (1000, "x")),
        link(1000, DIR, "x"),
        link(1002, 1, "x"),
        link(1002, DIR, "d"),
        link(7, DIR, "x"),
    ] {
        let mut bench = two_dirs();
        asked(&bench.call(5, request));
    }
    let mut bench = two_dirs();
    here(&bench.call(5, rename_how(DIR, "d", "x", NOREPLACE)));
}

#[test]
fn a_directory_is_moved_where_it_cannot_come_below_itself() {
    let mut bench = two_dirs();
    // Within one directory, and one that is not empty to another from which no known way leads to it.
    here(&bench.call(5, rename(DIR, "d", "x")));
    here(&bench.call(6, rename_to((DIR, "x"), (1001, "y"))));
    let dir = told(&bench.call(7, getattr(1000)));
    assert_eq!((dir.parent, dir.hash, dir.size), (Ino(1001), name("y").hash(&SEED), 1));
    let counts = |attr: Attr| (attr.size, attr.nlink);
    assert_eq!(counts(told(&bench.call(8, getattr(DIR)))), (1, 3));
    assert_eq!(counts(told(&bench.call(9, getattr(1001)))), (1, 3));
    // Below itself, directly and further down.
    asked(&bench.call(10, rename_to((DIR, "e"), (1000, "z"))));
    // Up again.
    let mut bench = two_dirs();
    here(&bench.call(5, rename_to((DIR, "d"), (1001, "y"))));
    here(&bench.call(6, rename_to((1001, "y"), (DIR, "d"))));
    here(&bench.call(7, create(1000, "g")));
    // Of one that the rank may have given to others since nothing is certain.
    bench.step(recall_bits(1000, Bits::DX));
    asked(&bench.call(8, rename(DIR, "d", "x")));
    asked(&bench.call(9, rmdir(DIR, "d")));
}

#[test]
fn a_newborn_with_a_second_name_is_one_no_more() {
    let mut bench = two_dirs();
    let attr = here(&bench.call(5, link(1002, DIR, "g")));
    let hash = name_hash(&SEED, format!("{:016x}", 1002).as_bytes());
    assert_eq!((attr.nlink, attr.change, attr.parent, attr.hash), (2, 2, Ino::LINKS, hash));
    assert_ne!(hash, NameHash(0));
    assert_eq!(told(&bench.call(6, getattr(DIR))).size, 3);
    for request in [lookup(1000, "f"), lookup(DIR, "g"), getattr(1002), write(1002, 0, 1, false)] {
        asked(&bench.call(7, request));
    }
    asked(&bench.call(8, unlink(1000, "f")));
    let mut bench = two_dirs();
    here(&bench.call(5, link(1002, DIR, "g")));
    asked(&bench.call(6, rename(1000, "f", "h")));
    asked(&bench.call(7, rename(DIR, "g", "h")));
    asked(&bench.call(8, link(1002, DIR, "i")));
    asked(&bench.call(9, rmdir(DIR, "d")));
}
