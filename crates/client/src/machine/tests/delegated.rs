//! Directories delegated to the client: what it performs by itself, what it must not, and when it ends.
//!
//! Absent: the table of names and the rules for attributes, which have tests of their own.

use super::early::{create, created, done, durable, early, early_with, hasty, name, unlink};
use super::*;
use proto::attr::SetTime;
use proto::message::{Delegated, Told};
use proto::request::rename_flags::EXCHANGE;
use proto::request::{NewNode, XattrMode};
use proto::storeio::Payload;
use proto::{FileKind, NameHash, SetAttr};
use stdx::Wall;
use stdx::hash::HashSeed;

pub(super) const SEED: HashSeed = HashSeed([3; 16]);
pub(super) const DIR: u64 = 50;

pub(super) fn dir_attr(ino: u64) -> Attr {
    let times = Wall(900);
    Attr {
        ino: Ino(ino),
        mode: 0o40_755,
        nlink: 2,
        parent: Ino(1),
        hash: NameHash(ino),
        mtime: times,
        ctime: times,
        ..Attr::default()
    }
}

pub(super) fn delegated(ino: u64, empty: bool) -> Vec<Delegated> {
    // One with names has so many that nobody asks for all of them.
    let size = if empty { 0 } else { 1 << 30 };
    vec![Delegated { dir: Attr { size, ..dir_attr(ino) }, empty }]
}

pub(super) fn numbers(first: u64, count: u32) -> Input {
    from_rank(ServerMsg::Numbers { first: Ino(first), count, generation: 4, seed: SEED })
}

/// Directory 50 is delegated with the answer to tid 1, durable already; numbers 1000 to 1009 are given.
pub(super) fn trusted_with(limits: Limits, empty: bool) -> Bench {
    let mut bench = hasty(limits);
    bench.step(numbers(1000, 10));
    bench.call(1, create(1, "first"));
    bench.step(early_with(1, 10, created(7), delegated(DIR, empty)));
    bench.step(durable(10));
    bench
}

pub(super) fn trusted(empty: bool) -> Bench {
    trusted_with(Limits::default(), empty)
}

pub(super) fn lookup(parent: u64, text: &str) -> Request {
    Request::Lookup { parent: node(parent), name: name(text) }
}

pub(super) fn mkdir(parent: u64, text: &str) -> Request {
    let new = NewNode { mode: 0o755, umask: 0, rdev: 0 };
    Request::MkDir { parent: node(parent), name: name(text), new }
}

pub(super) fn rmdir(parent: u64, text: &str) -> Request {
    Request::RmDir { parent: node(parent), name: name(text) }
}

pub(super) fn rename_to(from: (u64, &str), to: (u64, &str)) -> Request {
    let (parent, new_parent) = (node(from.0), node(to.0));
    Request::Rename { parent, name: name(from.1), new_parent, new_name: name(to.1), flags: 0 }
}

pub(super) fn rename(parent: u64, from: &str, to: &str) -> Request {
    rename_to((parent, from), (parent, to))
}

/// The same with flags.
pub(super) fn rename_how(parent: u64, from: &str, to: &str, how: u32) -> Request {
    let mut request = rename(parent, from, to);
    if let Request::Rename { flags, .. } = &mut request {
        *flags = how;
    }
    request
}

pub(super) fn write(ino: u64, offset: u64, len: usize, append: bool) -> Request {
    let data = Payload::Owned(vec![1; len]);
    Request::Write { node: node(ino), offset, append, kill_suidgid: true, data }
}

/// The attributes in a call's answer that came at once, with what was sent before it.
pub(super) fn here(out: &[Output]) -> Attr {
    match out {
        [
            Output::Send { message: ClientMsg::Performed { told, .. }, .. },
            Output::Answer { outcome, .. },
            rest @ ..,
        ] => {
            let offers =
                |output: &Output| matches!(output, Output::Send { message: ClientMsg::Idle { .. }, .. });
            assert!(!told.heard && rest.iter().all(offers), "{rest:?}");
            match outcome {
                Ok(Reply::Attr(attr) | Reply::Created { attr, new: true } | Reply::Written { attr, .. }) => {
                    *attr
                }
                Ok(Reply::Ok) => Attr::default(),
                other => panic!("{other:?}"),
            }
        }
        other => panic!("not performed: {other:?}"),
    }
}

/// The tid under which a call went to the rank and waits.
pub(super) fn asked(out: &[Output]) -> u64 {
    match out {
        [Output::Send { message: ClientMsg::Request { tid, .. }, .. }] => tid.0,
        other => panic!("not asked: {other:?}"),
    }
}

pub(super) fn recall_bits(ino: u64, bits: Bits) -> Input {
    let list = vec![Recalled { ino: Ino(ino), bits, number: 3, name: None }];
    from_rank(ServerMsg::Recall { list })
}

#[test]
fn in_an_empty_directory_names_are_made_at_once() {
    let mut bench = trusted(true);
    bench.wait(5 * MS);
    let out = bench.call(2, create(DIR, "a"));
    let made = here(&out);
    assert_eq!((made.ino, made.generation, made.mode, made.nlink), (Ino(1000), 4, 0o100_644, 1));
    assert_eq!((made.parent, made.hash), (Ino(DIR), name("a").hash(&SEED)));
    let Output::Send { message: ClientMsg::Performed { tid, floor, told, .. }, .. } = &out[0] else {
        panic!("{out:?}")
    };
    assert_eq!((*tid, *floor), (Tid(2), Tid(2)));
    assert_eq!(*told, Told { ino: Ino(1000), wall: made.mtime, heard: false });
    // By the rank's clock as heard with the answer, counted on, and never ahead of it.
    assert!(made.mtime.0 > 1_010 + 4 * MS as i64 && made.mtime.0 <= 1_010 + 5 * MS as i64);
    let Output::Answer { validity, .. } = &out[1] else { panic!("{out:?}") };
    assert_eq!(validity.grants.of(0), Bits::ATTRS.with(Bits::FC));
    assert_eq!(validity.until, bench.at.mono.after(KEEP_MS * MS));
    assert_eq!((bench.client.opens(Ino(1000)), bench.client.kept()), (1, 1));
    // What it knows it says: attributes, and that there is no such name.
    assert_eq!(answers(&bench.call(3, getattr(1000))), [(3, Ok(Reply::Attr(made)))]);
    assert_eq!(answers(&bench.call(4, lookup(DIR, "a"))), [(4, Ok(Reply::Attr(made)))]);
    assert_eq!(answers(&bench.call(5, lookup(DIR, "b"))), [(5, Err(Errno::ENOENT))]);
    asked(&bench.call(6, create(DIR, "a")));
    bench.step(done(2, 20));
    assert_eq!(bench.client.kept(), 1, "known to the rank, not durable");
    bench.step(durable(20));
    assert_eq!(bench.client.kept(), 0);
}

#[test]
fn elsewhere_and_without_knowing_the_name_the_rank_is_asked() {
    let mut bench = trusted(false);
    asked(&bench.call(2, create(60, "a")));
    let look = asked(&bench.call(3, lookup(DIR, "a")));
    bench.step(reply(look, Err(Errno::ENOENT)));
    assert_eq!(answers(&bench.call(4, lookup(DIR, "a"))), [(4, Err(Errno::ENOENT))]);
    here(&bench.call(5, create(DIR, "a")));
    asked(&bench.call(6, create(DIR, "b")));
    asked(&bench.call(7, unlink(DIR, "c")));
    let look = asked(&bench.call(8, lookup(DIR, "d")));
    let one = Attr { nlink: 1, mode: 0o100_644, ..dir_attr(70) };
    bench.step(reply(look, Ok(Reply::Attr(Attr { parent: Ino(DIR), ..one }))));
    here(&bench.call(9, unlink(DIR, "d")));
    for linked in [Attr { nlink: 2, parent: Ino(DIR), ..one }, Attr { parent: Ino::LINKS, ..one }] {
        let look = asked(&bench.call(10, lookup(DIR, "e")));
        bench.step(reply(look, Ok(Reply::Attr(linked))));
        asked(&bench.call(11, unlink(DIR, "e")));
    }
}

#[test]
fn a_listing_teaches_the_names_in_it() {
    let mut bench = trusted(false);
    let dir = node(DIR);
    let list = asked(&bench.call(2, Request::ReadDir { dir, after: 0, attrs: true, bytes_max: 4096 }));
    let entry = |text: &str, attr: Option<Attr>| proto::reply::DirEntry {
        hash: NameHash(9),
        name: text.as_bytes().into(),
        ino: Ino(70),
        kind: proto::FileKind::Regular,
        attr,
    };
    let one = Attr { nlink: 1, mode: 0o100_644, parent: Ino(DIR), ..dir_attr(70) };
    let entries = vec![entry("a", Some(one)), entry("b", None)];
    bench.step(reply(list, Ok(Reply::Entries { entries, end: true })));
    here(&bench.call(3, unlink(DIR, "a")));
    asked(&bench.call(4, unlink(DIR, "b")));
}

#[test]
fn a_directory_that_is_made_here_is_delegated_with_it() {
    let mut bench = trusted(true);
    let dir = here(&bench.call(2, mkdir(DIR, "d")));
    assert_eq!((dir.nlink, dir.change, dir.ino), (2, 2, Ino(1000)));
    let file = here(&bench.call(3, create(1000, "f")));
    assert_eq!(file.parent, Ino(1000));
    asked(&bench.call(4, rmdir(DIR, "d")));
    let mut bench = trusted(true);
    here(&bench.call(2, mkdir(DIR, "d")));
    here(&bench.call(3, mkdir(1000, "e")));
    let Ok(Reply::Attr(dir)) = answers(&bench.call(4, getattr(1000)))[0].1 else { panic!("known here") };
    assert_eq!((dir.size, dir.nlink, dir.change), (1, 3, 3));
    here(&bench.call(5, rmdir(1000, "e")));
    asked(&bench.call(6, create(1001, "f")));
    here(&bench.call(7, rmdir(DIR, "d")));
    assert_eq!(answers(&bench.call(8, lookup(DIR, "d"))), [(8, Err(Errno::ENOENT))]);
    here(&bench.call(9, mkdir(DIR, "d")));
}

#[test]
fn newborns_are_changed_and_removed_here() {
    let mut bench = trusted(true);
    here(&bench.call(2, create(DIR, "a")));
    let wrote = here(&bench.call(3, write(1000, 0, 700, false)));
    assert_eq!((wrote.size, wrote.blocks, wrote.change), (700, 2, 2));
    let out = bench.call(4, write(1000, 0, 10, true));
    assert_eq!(here(&out).size, 710);
    let Output::Send {
        message: ClientMsg::Performed { request: Request::Write { offset, append, .. }, .. },
        ..
    } = &out[0]
    else {
        panic!("{out:?}")
    };
    assert_eq!((*offset, *append), (700, false), "the rank is told where");
    let set = SetAttr { mode: Some(0o600), mtime: Some(SetTime::At(Wall(5))), ..SetAttr::default() };
    let changed = here(&bench.call(5, Request::SetAttr { node: node(1000), set }));
    assert_eq!((changed.mode, changed.mtime, changed.size), (0o100_600, Wall(5), 710));
    assert_eq!(answers(&bench.call(6, getattr(1000))), [(6, Ok(Reply::Attr(changed)))]);
    here(&bench.call(7, unlink(DIR, "a")));
    assert_eq!(answers(&bench.call(8, lookup(DIR, "a"))), [(8, Err(Errno::ENOENT))]);
    asked(&bench.call(9, getattr(1000)));
    asked(&bench.call(10, write(1000, 0, 1, false)));
}

/// Attributes of what the rank changes are the rank's.
#[test]
fn what_goes_to_the_rank_ends_a_newborn() {
    let (node, xattr) = (node(1000), name("user.a"));
    for request in [
        Request::SetXattr { node, name: xattr, value: Box::default(), mode: XattrMode::Either },
        Request::Open { node, flags: 0o1000 },
        Request::Read { node, offset: 0, len: 1, into: None },
        Request::Link { node, parent: NodeRef::bare(Ino(1)), name: name("x") },
        rename_to((DIR, "a"), (1, "b")),
        rename_to((1, "b"), (DIR, "a")),
        create(DIR, "a"),
    ] {
        let mut bench = trusted(true);
        here(&bench.call(2, create(DIR, "a")));
        asked(&bench.call(3, request.clone()));
        asked(&bench.call(4, getattr(1000)));
        asked(&bench.call(5, write(1000, 0, 1, false)));
        if matches!(request, Request::Link { .. }) {
            asked(&bench.call(6, unlink(DIR, "a")));
        }
    }
}

#[test]
fn while_a_change_of_a_name_is_at_the_rank_nothing_is_known_of_it() {
    let mut bench = trusted(true);
    here(&bench.call(2, create(DIR, "a")));
    let moved = asked(&bench.call(3, rename_how(DIR, "a", "b", EXCHANGE)));
    let look = asked(&bench.call(4, lookup(DIR, "a")));
    asked(&bench.call(5, create(DIR, "b")));
    bench.step(early(moved, 30, Ok(Reply::Ok)));
    // Of two names of one inode a rename takes none away: that it is gone is not certain.
    let again = asked(&bench.call(6, lookup(DIR, "a")));
    bench.step(reply(again, Err(Errno::ENOENT)));
    // Asked before the rename was answered: carried out before it, perhaps.
    bench.step(reply(look, Ok(Reply::Attr(Attr { nlink: 1, parent: Ino(DIR), ..dir_attr(1000) }))));
    assert_eq!(answers(&bench.call(7, lookup(DIR, "a"))), [(7, Err(Errno::ENOENT))]);
    here(&bench.call(8, create(DIR, "a")));
    asked(&bench.call(9, create(DIR, "b")));
}

#[test]
fn what_was_on_its_way_when_a_directory_was_delegated_crosses_it() {
    let mut bench = hasty(Limits::default());
    bench.step(numbers(1000, 10));
    bench.call(1, create(1, "first"));
    bench.call(2, create(DIR, "a"));
    bench.call(3, Request::SetAttr { node: node(61), set: SetAttr { mode: Some(0), ..SetAttr::default() } });
    let both = [delegated(DIR, true), delegated(61, true)].concat();
    bench.step(early_with(1, 10, created(7), both));
    asked(&bench.call(4, create(DIR, "a")));
    asked(&bench.call(5, create(61, "a")));
    here(&bench.call(6, create(DIR, "b")));
    let changed = Attr { mode: 0o42_000, gid: 9, ..dir_attr(61) };
    bench.step(early(3, 11, Ok(Reply::Attr(changed))));
    let look = asked(&bench.call(7, getattr(61)));
    bench.step(reply(look, Ok(Reply::Attr(changed))));
    assert_eq!(here(&bench.call(8, create(61, "b"))).gid, 9);
    // Alone, the answer to a change shows what came of it.
    let set =
        asked(&bench.call(
            9,
            Request::SetAttr { node: node(61), set: SetAttr { gid: Some(0), ..SetAttr::default() } },
        ));
    asked(&bench.call(10, create(61, "c")));
    bench.step(early(set, 12, Ok(Reply::Attr(Attr { gid: 0, ..changed }))));
    assert_eq!(here(&bench.call(11, create(61, "d"))).gid, 0);
}

/// Another thread delivers it: it was given before what is known already.
#[test]
fn what_delegates_may_be_older_than_what_is_known() {
    let mut bench = hasty(Limits::default());
    bench.step(numbers(1000, 10));
    bench.call(1, create(1, "first"));
    bench.call(2, create(DIR, "a"));
    bench.call(3, Request::SetAttr { node: node(61), set: SetAttr { gid: Some(3), ..SetAttr::default() } });
    bench.step(early(2, 11, created(8)));
    bench.step(early(3, 12, Ok(Reply::Attr(Attr { gid: 3, ..dir_attr(61) }))));
    let all = [delegated(DIR, true), delegated(61, true), delegated(62, true)].concat();
    bench.step(early_with(1, 10, created(7), all));
    asked(&bench.call(4, create(DIR, "a")));
    asked(&bench.call(5, lookup(DIR, "b")));
    asked(&bench.call(6, create(61, "a")));
    here(&bench.call(7, create(62, "a")));
    // Moved, and by now who knows where.
    let mut bench = hasty(Limits::default());
    bench.step(numbers(1000, 10));
    bench.call(1, create(1, "first"));
    bench.call(2, rename(1, "x", "y"));
    bench.step(early(2, 11, Ok(Reply::Ok)));
    bench.step(early_with(1, 10, created(7), delegated(DIR, true)));
    asked(&bench.call(3, create(DIR, "a")));
}

#[test]
fn a_directory_that_is_changing_is_left_alone_until_it_is_known_again() {
    let mut bench = trusted(true);
    let (node, xattr) = (node(DIR), name("system.posix_acl_default"));
    let request = Request::SetXattr { node, name: xattr, value: Box::default(), mode: XattrMode::Either };
    let set = asked(&bench.call(2, request));
    let early_look = asked(&bench.call(3, getattr(DIR)));
    asked(&bench.call(4, create(DIR, "a")));
    bench.step(early(set, 30, Ok(Reply::Ok)));
    bench.step(reply(early_look, Ok(Reply::Attr(dir_attr(DIR)))));
    asked(&bench.call(5, create(DIR, "b")));
    for (has_xattrs, known) in [(true, false), (false, true)] {
        let look = asked(&bench.call(6, getattr(DIR)));
        bench.step(reply(look, Ok(Reply::Attr(Attr { has_xattrs, ..dir_attr(DIR) }))));
        let out = bench.call(7, create(DIR, if known { "d" } else { "c" }));
        let performed = matches!(out[0], Output::Send { message: ClientMsg::Performed { .. }, .. });
        assert_eq!(performed, known);
    }
    // Moved, or removed: by its place.
    let place = bench
        .client
        .delegations
        .get(Ino(DIR))
        .map(|delegation| (delegation.attr.parent, delegation.attr.hash));
    assert_eq!(place, Some((Ino(1), NameHash(DIR))));
    let mut bench = trusted(true);
    here(&bench.call(2, mkdir(DIR, "sub")));
    let gone = asked(&bench.call(3, rename(DIR, "other", "sub")));
    asked(&bench.call(4, create(1000, "a")));
    bench.step(early(gone, 40, Err(Errno::ENOENT)));
    here(&bench.call(5, create(1000, "b")));
}

#[test]
fn who_works_through_a_directory_asks_for_all_its_names() {
    let mut bench = hasty(Limits::default());
    bench.step(numbers(1000, 10));
    bench.call(1, create(1, "first"));
    let few = Attr { size: 3, ..dir_attr(DIR) };
    bench.step(early_with(1, 10, created(7), vec![Delegated { dir: few, empty: false }]));
    bench.step(durable(10));
    let one = asked(&bench.call(2, unlink(DIR, "a")));
    let out = bench.call(3, unlink(DIR, "b"));
    let [
        Output::Send { message: ClientMsg::Request { tid: two, .. }, .. },
        Output::Send { message: ClientMsg::Request { tid: page, request, .. }, .. },
    ] = &out[..]
    else {
        panic!("{out:?}")
    };
    assert!(matches!(request, Request::ReadDir { after: 0, attrs: true, .. }));
    let (two, page) = (two.0, *page);
    bench.step(early(one, 11, Ok(Reply::Ok)));
    let entry = |ino: u64, text: &str| proto::reply::DirEntry {
        hash: name(text).hash(&SEED),
        name: text.as_bytes().into(),
        ino: Ino(ino),
        kind: FileKind::Regular,
        attr: Some(Attr { ino: Ino(ino), mode: 0o100_644, nlink: 1, parent: Ino(DIR), ..Attr::default() }),
    };
    let listed =
        |tid, entries, end| from_rank(ServerMsg::Reply { tid, outcome: Ok(Reply::Entries { entries, end }) });
    // The page was asked for while "b" was being removed: of that it teaches nothing.
    let out = bench.step(listed(page, vec![entry(80, "b"), entry(81, "c")], false));
    let [
        Output::Send {
            message: ClientMsg::Request { tid: next, request: Request::ReadDir { after, .. }, .. },
            ..
        },
    ] = &out[..]
    else {
        panic!("{out:?}")
    };
    assert_eq!(*after, name("c").hash(&SEED).cookie());
    bench.step(early(two, 12, Ok(Reply::Ok)));
    here(&bench.call(4, unlink(DIR, "c")));
    assert_eq!(asked(&bench.call(5, lookup(DIR, "d"))), next.0 + 2, "not all are known yet");
    bench.step(listed(*next, vec![entry(82, "e")], true));
    here(&bench.call(6, unlink(DIR, "e")));
    here(&bench.call(7, create(DIR, "f")));
    here(&bench.call(8, create(DIR, "b")));
    let out = bench.call(9, lookup(DIR, "never"));
    assert!(matches!(&out[..], [Output::Answer { outcome: Err(Errno::ENOENT), .. }]), "{out:?}");
}

/// A host that was suspended goes on: its clock has not stood still, and before any tick says that the lease is over, nobody acts
/// as if it were not: a call, an answer from before, and a renewal that lay unread.
#[test]
fn whoever_wakes_up_after_its_lease_performs_nothing_and_keeps_nothing() {
    let mut bench = trusted(true);
    bench.call(2, getattr(9));
    let renewal = u64::from(LEASE_MS) * MS / 3;
    bench.wait(renewal);
    assert_eq!(sent(&bench.step(Input::Tick)), [ClientMsg::Renew { number: 1 }]);
    here(&bench.call(3, create(DIR, "before")));
    bench.wait(3600 * SECOND);
    let granted =
        ServerMsg::Granted { tid: Tid(2), outcome: attr(9), grants: Grants::One(Bits::ATTRS.with(Bits::FC)) };
    let out = bench.step(from_rank(granted));
    assert!(
        matches!(&out[..], [Output::Answer { validity, .. }] if validity.grants == Grants::None),
        "{out:?}"
    );
    for message in [None, Some(ServerMsg::Renewed { number: 1 })] {
        if let Some(message) = message {
            bench.step(from_rank(message));
        }
        let out = bench.call(4, create(DIR, "after"));
        assert!(matches!(sent(&out)[..], [ClientMsg::Request { .. }]), "{out:?}");
        assert!(answers(&out).is_empty(), "the rank is asked");
    }
    assert!(bench.step(Input::Tick).iter().any(|o| matches!(o, Output::Lost { .. })));
}
