//! Nodes alone, with a clock and losses made up.
//!
//! Absent: the adapter around them (`adapter/tests.rs`).

use super::*;
use stdx::Wall;
use stdx::time::SECOND;

fn attr(ino: u64) -> Attr {
    Attr { ino: Ino(ino), parent: Ino(1), hash: NameHash(99), ..Attr::default() }
}

fn nodes() -> Nodes {
    Nodes::new(NodeRef::bare(Ino(7)))
}

/// Granted at `stamp`, for a second.
fn given(bits: Bits, stamp: u64) -> Given {
    Given { bits, stamp, until: Mono(SECOND), asked: stamp }
}

const EVERYTHING: Bits = Bits::ATTRS.with(Bits::FC);

impl Nodes {
    /// A LOOKUP answered with everything granted at `stamp`, nothing ever lost.
    fn look_up(&self, nodeid: u64, stamp: u64) -> bool {
        self.learn(nodeid, &attr(nodeid), given(EVERYTHING, stamp), (Mono(5), Way::Found), || 0)
    }

    /// A GETATTR likewise.
    fn tell(&self, nodeid: u64, stamp: u64) -> bool {
        self.learn(nodeid, &attr(nodeid), given(EVERYTHING, stamp), (Mono(5), Way::Asked), || 0)
    }
}

#[test]
fn a_node_lives_from_its_first_lookup_to_its_last_forget() {
    let nodes = nodes();
    assert_eq!(nodes.node(5), NodeRef::bare(Ino(5)));
    assert!(nodes.look_up(5, 1) && nodes.look_up(5, 1));
    assert!(!nodes.tell(6, 1), "the kernel has no such node");
    assert_eq!(nodes.node(5).hash, NameHash(99));
    assert_eq!(nodes.node(6), NodeRef::bare(Ino(6)));
    nodes.forget(5, 1);
    assert_eq!(nodes.lookups(5), 1);
    nodes.forget(5, 1);
    assert_eq!((nodes.lookups(5), nodes.node(5)), (0, NodeRef::bare(Ino(5))));
    nodes.forget(ROOT_ID, 1);
    assert_eq!((nodes.lookups(ROOT_ID), nodes.node(ROOT_ID).ino), (1, Ino(7)));
}

#[test]
fn a_recall_voids_what_was_answered_before_it() {
    let nodes = nodes();
    assert_eq!(nodes.recall(5, Bits::FS, false, 3), None, "not known, and yet remembered");
    assert!(!nodes.look_up(5, 2) && nodes.look_up(5, 3));
    assert_eq!(
        nodes.recall(5, Bits::FS, false, 4),
        Some(Found { first_answer: Mono(5), open: false, directory: false })
    );
    assert!(!nodes.tell(5, 3) && nodes.tell(5, 4));
    assert!(
        !nodes.learn(5, &attr(5), given(EVERYTHING, 4), (Mono(5), Way::Asked), || 6),
        "everything was lost at 6"
    );
    assert!(!nodes.learn(5, &attr(5), given(Bits::FC, 7), (Mono(5), Way::Asked), || 6), "not granted");
}

#[test]
fn pages_are_kept_while_nothing_took_them_back() {
    let nodes = nodes();
    nodes.look_up(5, 1);
    let open = |bits, stamp, lost| nodes.opened(5, given(bits, stamp), || lost);
    assert_eq!(open(Bits::FC, 1, 0), (true, false), "nothing was cached yet");
    assert_eq!(open(Bits::FC, 1, 0), (true, true));
    assert_eq!(
        nodes.recall(5, Bits::FC, false, 2),
        Some(Found { first_answer: Mono(5), open: true, directory: false })
    );
    assert_eq!(open(Bits::FC, 1, 0), (false, false), "taken back before it was handed out");
    assert_eq!(open(Bits::FC, 2, 0), (true, false), "others may have written");
    assert_eq!(open(Bits::FC, 2, 3), (false, false), "lost before it was handed out");
    assert_eq!(open(Bits::FC, 3, 3), (true, false));
    assert_eq!(open(Bits::ATTRS, 3, 3), (false, false));
    assert_eq!(open(Bits::FC, 3, 3), (true, false), "an open without validity left none to keep");
    assert_eq!(open(Bits::FC, 3, 3), (true, true));
    assert_eq!(open(Bits::FC, 5, 5), (true, false), "a loss ends it, too");
    assert_eq!(nodes.open(), [5]);
}

#[test]
fn a_stale_node_is_looked_up_again() {
    let nodes = nodes();
    nodes.look_up(5, 1);
    nodes.recall(5, Bits::LS, true, 2);
    assert!(nodes.place(5).1);
    assert!(!nodes.tell(5, 2), "the kernel has it by a name that is gone");
    assert!(!nodes.look_up(5, 1) && nodes.is_to_be_found(5), "that was asked for before");
    assert!(!nodes.look_up(5, 2) && nodes.place(5).1, "the kernel may have the name still that is gone");
    assert!(!nodes.is_to_be_found(5), "but another one that is right");
    nodes.recall(5, Bits::LS, true, 3);
    assert!(nodes.is_to_be_found(5), "that may be the one that went now");
    assert!(!nodes.name_dropped(5, 2) && nodes.place(5).1, "that was the first name");
    assert!(nodes.name_dropped(5, 3) && !nodes.place(5).1);
    assert!(nodes.look_up(5, 3) && !nodes.is_to_be_found(5));
    nodes.recall(5, Bits::LS, true, 4);
    nodes.learn(5, &attr(5), Given::default(), (Mono(5), Way::Linked), || 0);
    assert!(nodes.is_to_be_found(5), "the first name may be there still");
    nodes.opened(5, Given::default(), || 0);
    assert!(!nodes.place(5).1, "who has it open needs no name");
    nodes.closed(5);
    assert!(nodes.place(5).1);
    nodes.believe(5);
    assert!(!nodes.place(5).1, "waited for long enough");
    let dir = Attr { mode: FileKind::Directory.mode_bits(), ..attr(6) };
    nodes.learn(6, &dir, Given::default(), (Mono(5), Way::Found), || 0);
    assert!(nodes.attr_of_removed(6).is_some_and(|left| left.nlink == 0 && left.ino == Ino(6)));
    nodes.recall(6, Bits::LS, true, 5);
    assert!(!nodes.place(6).1, "names in it are right whatever its own");
    assert!(nodes.attr_of_removed(6).is_none(), "who meets it by that name looks again");
    nodes.listing(6, Mono(5), || 0);
    assert!(nodes.attr_of_removed(6).is_some(), "who has it open goes on");
    nodes.closed(6);
    assert!(nodes.attr_of_removed(6).is_none());
    nodes.name_dropped(6, 5);
    assert!(nodes.attr_of_removed(6).is_some() && nodes.attr_of_removed(5).is_none());
}

#[test]
fn a_listing_is_kept_while_nobody_else_could_have_changed_the_directory() {
    let nodes = nodes();
    let dir = Attr { mode: libc::S_IFDIR, ..attr(5) };
    let learn = |stamp, at, until| {
        let given = Given { bits: Bits::ATTRS, stamp, until: Mono(until), asked: stamp };
        nodes.learn(5, &dir, given, (Mono(at), Way::Found), || 0)
    };
    let listing = |at, lost| nodes.listing(5, Mono(at), || lost);
    assert_eq!(listing(1, 0), (false, false), "unknown");
    assert!(learn(3, 10, 20));
    assert_eq!(listing(11, 0), (true, false), "nothing was kept yet");
    assert_eq!(listing(12, 0), (true, true));
    assert!(learn(4, 19, 30));
    assert_eq!(listing(29, 0), (true, true), "held without a gap");
    assert_eq!(listing(31, 0), (false, false), "it has run out");
    assert!(learn(5, 32, 40));
    assert_eq!(listing(33, 0), (true, false), "there was a gap");
    nodes.recall(5, Bits::FS, false, 6);
    assert_eq!(listing(34, 0), (false, false), "recalled");
    assert!(learn(6, 35, 50));
    assert_eq!((listing(36, 0), listing(37, 0)), ((true, false), (true, true)));
    assert_eq!(listing(38, 7), (false, false), "lost");
}

#[test]
fn a_change_that_size_and_mtime_hide_is_seen() {
    let nodes = nodes();
    let shown = |change, size, mtime| Attr { change, size, mtime: Wall(mtime), ..attr(5) };
    assert!(!nodes.shows_a_hidden_change(5, &shown(1, 1, 1)), "the kernel does not have it");
    nodes.look_up(5, 1);
    assert!(!nodes.shows_a_hidden_change(5, &shown(1, 1, 1)), "the first it is shown");
    assert!(!nodes.shows_a_hidden_change(5, &shown(1, 1, 1)));
    assert!(!nodes.shows_a_hidden_change(5, &shown(2, 1, 2)), "the kernel drops them itself");
    assert!(!nodes.shows_a_hidden_change(5, &shown(3, 2, 2)));
    assert!(nodes.shows_a_hidden_change(5, &shown(4, 2, 2)));
    assert!(nodes.begin_drop(5) && !nodes.begin_drop(5), "one is enough while it waits");
    nodes.drop_begins(5);
    assert!(nodes.begin_drop(5) && !nodes.begin_drop(6));
}

#[test]
fn what_nobody_asked_about_is_idle() {
    let nodes = nodes();
    (100..200).for_each(|nodeid| assert!(nodes.look_up(nodeid, 1)));
    let round = |most| (0..nodes.parts() as u64).flat_map(|part| nodes.idle(part, most)).count();
    assert_eq!((nodes.known(), round(100)), (100, 0), "each was looked up a moment ago");
    nodes.place(150);
    nodes.opened(151, Given::default(), || 0);
    assert_eq!(round(100), 98);
    assert!(round(1) <= nodes.parts(), "no more of a part than wanted");
    assert!(nodes.forget(150, 1).is_some_and(|gone| !gone.open_at_rank && !gone.pages));
    assert_eq!((nodes.known(), round(100)), (99, 98));
}

#[test]
fn a_kept_node_is_released_with_its_last_lookup() {
    let nodes = nodes();
    assert!(!nodes.wants_keeping(5) && !nodes.keep(5), "the kernel does not have it");
    nodes.look_up(5, 1);
    nodes.look_up(5, 1);
    assert!(nodes.wants_keeping(5) && nodes.keep(5));
    assert!(!nodes.wants_keeping(5) && !nodes.keep(5), "once");
    assert_eq!(nodes.forget(5, 1), None);
    let gone = |gone: Gone| (gone.node.ino, gone.node.hash, gone.open_at_rank, gone.pages);
    assert_eq!(nodes.forget(5, 1).map(gone), Some((Ino(5), NameHash(99), true, false)));
    nodes.look_up(6, 1);
    nodes.opened(6, Given { bits: Bits::FC, stamp: 1, until: Mono(9), asked: 1 }, || 0);
    assert!(nodes.forget(6, 1).is_some_and(|gone| !gone.open_at_rank && gone.pages), "never kept");
}

#[test]
fn what_had_xattrs_is_never_believed_to_have_none() {
    let nodes = nodes();
    let has_no_xattrs = |now, lost| nodes.has_no_xattrs(5, Mono(now), || lost);
    nodes.look_up(5, 1);
    assert!(has_no_xattrs(1, 0) && !has_no_xattrs(SECOND, 0) && !has_no_xattrs(1, 2));
    nodes.recall(5, Bits::XS, false, 2);
    assert!(!has_no_xattrs(1, 0));
    nodes.tell(5, 2);
    assert!(has_no_xattrs(1, 0));
    nodes.set_may_have_xattrs(5);
    nodes.tell(5, 2);
    assert!(!has_no_xattrs(1, 0));
}
