//! Capabilities: what is granted, what is recalled, who waits for whom, and what becomes of it when sessions go.
//!
//! Absent: what clients do with them (`client`, `sim`).

mod limits;
mod silent;

use super::sessions::{OTHER, REMOTE};
use super::*;
use crate::op::Waits;
use proto::SetAttr;
use proto::caps::{Grants, Recalled};
use proto::request::open_flags;

const ALL: Bits = Bits(Bits::ATTRS.0 | Bits::FC.0);
/// What was granted has run out, in milliseconds.
const FADES_MS: u64 = crate::caps::FADES_NS / MS;

/// Two remote sessions that keep what they may.
fn two() -> World {
    let mut w = World::new();
    w.say(EMBEDDED, ClientMsg::Goodbye);
    w.wants = ALL;
    w.hello(REMOTE, Peer::Trusted, SessionId(0));
    w.hello(OTHER, Peer::Trusted, SessionId(0));
    w
}

fn granted(w: &mut World, conn: ConnId, request: Request) -> (Reply, Bits) {
    let tid = w.start(conn, Cred::ROOT, request);
    let at = w.sent.iter().position(|(c, m)| {
        *c == conn
            && matches!(m, ServerMsg::Reply { tid: t, .. } | ServerMsg::Granted { tid: t, .. } if *t == tid)
    });
    match at.map(|at| w.sent.remove(at).1) {
        Some(ServerMsg::Granted { outcome, grants, .. }) => (outcome.expect("granted"), grants.of(0)),
        Some(ServerMsg::Reply { outcome, .. }) => (outcome.expect("done"), Bits::NONE),
        other => panic!("no answer: {other:?}"),
    }
}

fn node_of(reply: &Reply) -> NodeRef {
    match reply {
        Reply::Attr(attr) | Reply::Created { attr, .. } => {
            NodeRef { ino: attr.ino, parent: attr.parent, hash: attr.hash }
        }
        other => panic!("{other:?}"),
    }
}

fn create(name: &str) -> Request {
    Request::Create { parent: root(), name: n(name), new: mode(0o644), flags: open_flags::RDWR }
}

fn lookup(name: &str) -> Request {
    Request::Lookup { parent: root(), name: n(name) }
}

fn unlink(name: &str) -> Request {
    Request::Unlink { parent: root(), name: n(name) }
}

fn recalls(w: &mut World, conn: ConnId) -> Vec<Recalled> {
    let mut found = Vec::new();
    w.sent.retain(|(c, m)| match m {
        ServerMsg::Recall { list } if *c == conn => {
            found.extend(list.clone());
            false
        }
        _ => true,
    });
    found
}

fn give_back(w: &mut World, conn: ConnId, list: &[Recalled]) {
    let list = list.iter().map(|recalled| recalled.returned(ALL)).collect();
    w.say(conn, ClientMsg::Returned { list });
}

#[test]
fn a_change_waits_until_others_have_given_back_what_it_changes() {
    let mut w = two();
    let (made, bits) = granted(&mut w, REMOTE, create("f"));
    let node = node_of(&made);
    assert_eq!(bits, ALL);
    assert_eq!(granted(&mut w, OTHER, lookup("f")).1, Bits::ATTRS);
    assert_eq!(granted(&mut w, OTHER, Request::GetAttr { node: root() }).1, Bits::ATTRS);
    let tid = w.start(REMOTE, Cred::ROOT, unlink("f"));
    assert_eq!(w.answer(REMOTE, tid), None, "it waits");
    let operations = w.rank.operations(Mono(w.now), 9).0;
    assert_eq!(operations.first().and_then(|op| op.waits), Some(Waits::Caps));
    let asked = recalls(&mut w, OTHER);
    assert_eq!(asked.len(), 2, "{asked:?}");
    let of = |ino| asked.iter().find(|recalled| recalled.ino == ino).expect("recalled");
    assert_eq!(of(node.ino).name, Some((root().ino, n("f"))));
    assert_eq!((of(root().ino).bits, &of(root().ino).name), (Bits::FS, &None));
    assert!(recalls(&mut w, REMOTE).is_empty(), "nobody waits for what is its own");
    assert_eq!(granted(&mut w, OTHER, lookup("f")).1, Bits::NONE, "what is asked back is not given again");
    give_back(&mut w, OTHER, &asked[..1]);
    assert_eq!(w.answer(REMOTE, tid), None);
    give_back(&mut w, OTHER, &asked[1..]);
    assert_eq!(w.answer(REMOTE, tid), Some(Ok(Reply::Ok)));
    assert_eq!(w.call_as(OTHER, Cred::ROOT, lookup("f")), Err(Errno::ENOENT));
}

/// What broke: chmod took back the hold on the name of its file, and not the name, of which nobody was asked then.
#[test]
fn a_new_change_time_takes_no_names() {
    let mut w = two();
    let node = node_of(&granted(&mut w, REMOTE, create("f")).0);
    assert_eq!(granted(&mut w, OTHER, lookup("f")).1, Bits::ATTRS);
    let set = SetAttr { mode: Some(0o600), ..Default::default() };
    let tid = w.start(REMOTE, Cred::ROOT, Request::SetAttr { node, set });
    let asked = recalls(&mut w, OTHER);
    assert_eq!(asked.iter().map(|asked| (asked.ino, &asked.name)).collect::<Vec<_>>(), [(node.ino, &None)]);
    let list = asked.iter().map(|asked| asked.returned(asked.bits)).collect();
    w.say(OTHER, ClientMsg::Returned { list });
    assert!(w.answer(REMOTE, tid).is_some_and(|outcome| outcome.is_ok()));
    let tid = w.start(REMOTE, Cred::ROOT, unlink("f"));
    assert_eq!(w.answer(REMOTE, tid), None, "the other keeps the name");
    let names: Vec<_> = recalls(&mut w, OTHER).into_iter().filter_map(|asked| asked.name).collect();
    assert_eq!(names, [(root().ino, n("f"))]);
}

/// Neither the count of a directory's names nor its time tells of a rename in the moment of the change before.
#[test]
fn who_keeps_a_directory_is_asked_whatever_its_header_shows() {
    let mut w = two();
    granted(&mut w, REMOTE, create("f"));
    let (Reply::Attr(dir), Bits::ATTRS) = granted(&mut w, OTHER, Request::GetAttr { node: root() }) else {
        panic!("nothing is granted");
    };
    // Nothing has to be loaded for it.
    w.call_as(REMOTE, Cred::ROOT, lookup("g")).expect_err("absent");
    w.now = dir.mtime.0 as u64 - STEP_NS;
    let rename =
        Request::Rename { parent: root(), name: n("f"), new_parent: root(), new_name: n("g"), flags: 0 };
    let tid = w.start(REMOTE, Cred::ROOT, rename);
    assert_eq!(w.answer(REMOTE, tid), None, "it waits");
    let asked = recalls(&mut w, OTHER);
    assert_eq!(
        asked.iter().map(|asked| (asked.ino, asked.bits)).collect::<Vec<_>>(),
        [(root().ino, Bits::FS)]
    );
    give_back(&mut w, OTHER, &asked);
    assert!(matches!(w.answer(REMOTE, tid), Some(Ok(_))));
}

#[cfg(feature = "mutants")]
#[test]
fn a_rename_that_the_header_does_not_show_is_caught() {
    stdx::mutant::activate(Some("mds_names_by_header"));
    let verdict = std::panic::catch_unwind(who_keeps_a_directory_is_asked_whatever_its_header_shows);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
}

/// An offer may cross a grant: what it asks for is recalled like anything else.
#[test]
fn a_file_that_is_offered_is_asked_for() {
    let mut w = two();
    let node = node_of(&granted(&mut w, REMOTE, create("f")).0);
    w.call_as(REMOTE, Cred::ROOT, Request::Release { node, count: 1 }).expect("closed");
    w.say(OTHER, ClientMsg::Idle { list: vec![node.ino, Ino(77)] });
    assert!(recalls(&mut w, OTHER).is_empty(), "it has nothing of it");
    w.say(REMOTE, ClientMsg::Idle { list: vec![node.ino, Ino(77)] });
    let asked = recalls(&mut w, REMOTE);
    assert_eq!((asked.len(), asked[0].bits), (1, Bits::FC));
    let open = |flags| Request::Open { node, flags };
    assert_eq!(granted(&mut w, REMOTE, open(0)).1, Bits::NONE, "while it is asked for");
    let tid = w.start(OTHER, Cred::ROOT, open(open_flags::RDWR));
    assert_eq!(w.answer(OTHER, tid), None, "it may be used still");
    let session = |w: &World| w.rank.sessions(Mono(w.now)).remove(0);
    w.pass(3);
    assert!(session(&w).late_ns > 0 && session(&w).room_ns == 0, "somebody waits");
    give_back(&mut w, REMOTE, &asked);
    assert!(w.answer(OTHER, tid).is_some_and(|outcome| outcome.is_ok()));
    assert_eq!((session(&w).late_ns, session(&w).room_ns), (0, 0));
}

#[test]
fn reading_recalls_nothing_and_everybody_may_keep() {
    let mut w = two();
    let node = node_of(&granted(&mut w, REMOTE, create("f")).0);
    w.call_as(REMOTE, Cred::ROOT, Request::Release { node, count: 1 }).expect("closed");
    for conn in [REMOTE, OTHER] {
        let open = Request::Open { node, flags: 0 };
        assert_eq!(granted(&mut w, conn, open).1, ALL);
        assert_eq!(granted(&mut w, conn, Request::GetAttr { node }).1, Bits::ATTRS);
    }
    assert!(recalls(&mut w, REMOTE).is_empty() && recalls(&mut w, OTHER).is_empty());
    assert_eq!(w.rank.status().caps, 2);
}

#[test]
fn who_opens_for_writing_takes_pages_away_and_nobody_gets_them_back_before_it_closes() {
    let mut w = two();
    let node = node_of(&granted(&mut w, REMOTE, create("f")).0);
    w.call_as(REMOTE, Cred::ROOT, Request::Release { node, count: 1 }).expect("closed");
    let open = |flags| Request::Open { node, flags };
    assert_eq!(granted(&mut w, OTHER, open(0)).1, ALL);
    let tid = w.start(REMOTE, Cred::ROOT, open(open_flags::RDWR));
    assert_eq!(w.answer(REMOTE, tid), None);
    let asked = recalls(&mut w, OTHER);
    assert_eq!((asked.len(), asked[0].bits), (1, Bits::FC));
    give_back(&mut w, OTHER, &asked);
    assert!(w.answer(REMOTE, tid).is_some_and(|outcome| outcome.is_ok()));
    assert_eq!(granted(&mut w, OTHER, open(0)).1, Bits::ATTRS, "attributes only");
    assert_eq!(granted(&mut w, REMOTE, open(0)).1, ALL, "the one who writes may");
    w.call_as(REMOTE, Cred::ROOT, Request::Release { node, count: 2 }).expect("closed");
    assert_eq!(granted(&mut w, OTHER, open(0)).1, ALL);
}

#[test]
fn bytes_change_only_when_nobody_else_keeps_the_size_and_until_then_nobody_gets_it() {
    let mut w = two();
    let node = node_of(&granted(&mut w, REMOTE, create("f")).0);
    assert_eq!(granted(&mut w, OTHER, lookup("f")).1, Bits::ATTRS);
    w.hold_data = true;
    let write = Request::Write {
        node,
        offset: 0,
        append: true,
        kill_suidgid: false,
        data: Payload::Owned(b"abc".to_vec()),
    };
    let tid = w.start(REMOTE, Cred::ROOT, write);
    let asked = recalls(&mut w, OTHER);
    assert_eq!(asked.len(), 1);
    assert!(w.held.is_empty(), "no byte is written yet");
    give_back(&mut w, OTHER, &asked);
    assert_eq!(w.held.len(), 1);
    assert_eq!(granted(&mut w, OTHER, lookup("f")).1, Bits::NONE, "it is being written");
    w.let_go();
    assert!(matches!(w.answer(REMOTE, tid), Some(Ok(Reply::Written { count: 3, .. }))));
    assert_eq!(granted(&mut w, OTHER, lookup("f")).1, Bits::NONE, "it may well be written again soon");
    w.pass(1_100);
    assert_eq!(granted(&mut w, OTHER, lookup("f")).1, Bits::ATTRS);
}

/// Each needs what the other keeps: neither waits for ever, because what is given back is not given out again.
#[test]
fn two_changes_that_need_the_same_inodes_both_get_done() {
    let mut w = two();
    for name in ["a", "b"] {
        granted(&mut w, REMOTE, create(name));
    }
    for conn in [REMOTE, OTHER] {
        for name in ["a", "b"] {
            assert!(granted(&mut w, conn, lookup(name)).1.has(Bits::ATTRS));
        }
        granted(&mut w, conn, Request::GetAttr { node: root() });
    }
    let rename = |from: &str, to: &str| Request::Rename {
        parent: root(),
        name: n(from),
        new_parent: root(),
        new_name: n(to),
        flags: 0,
    };
    let one = w.start(REMOTE, Cred::ROOT, rename("a", "b"));
    let two = w.start(OTHER, Cred::ROOT, rename("b", "a"));
    for _ in 0..4 {
        for conn in [REMOTE, OTHER] {
            let asked = recalls(&mut w, conn);
            give_back(&mut w, conn, &asked);
        }
    }
    let (one, two) = (w.answer(REMOTE, one).expect("done"), w.answer(OTHER, two).expect("done"));
    assert!(one.is_ok() || two.is_ok());
    assert_eq!(w.rank.status().recalls, 0);
}

/// Found by thinking it through: the name that a second link makes remote is nobody's to keep, and whoever unlinks it later
/// recalls nothing.
#[test]
fn a_link_takes_the_first_name_from_its_own_session_too() {
    let mut w = two();
    let node = node_of(&granted(&mut w, REMOTE, create("f")).0);
    w.call_as(REMOTE, Cred::ROOT, Request::Link { node, parent: root(), name: n("g") }).expect("linked");
    let asked = recalls(&mut w, REMOTE);
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].name, Some((root().ino, n("f"))));
    give_back(&mut w, REMOTE, &asked);
    assert_eq!(w.rank.status().recalls, 0);
}

/// Its kernel keeps the directory locked until the rename is answered: what it is asked for has another name then.
#[test]
fn what_a_session_renames_while_it_is_recalled_is_asked_for_by_its_new_name() {
    let mut w = two();
    granted(&mut w, REMOTE, create("f"));
    let removal = w.start(OTHER, Cred::ROOT, unlink("f"));
    let mut asked = recalls(&mut w, REMOTE);
    assert_eq!(asked[0].name, Some((root().ino, n("f"))));
    let (name, new_name) = (n("f"), n("g"));
    let rename = Request::Rename { parent: root(), name, new_parent: root(), new_name, flags: 0 };
    w.call_as(REMOTE, Cred::ROOT, rename).expect("its own name");
    let again = recalls(&mut w, REMOTE);
    assert_eq!(again.len(), 1, "its kernel has the new name");
    assert_eq!(again[0].name, Some((root().ino, n("g"))));
    asked.extend(again);
    give_back(&mut w, REMOTE, &asked);
    assert_eq!(w.answer(OTHER, removal), Some(Err(Errno::ENOENT)));
    assert_eq!(w.rank.status().recalls, 0);
}

#[cfg(feature = "mutants")]
#[test]
fn a_name_that_escapes_its_recall_is_caught() {
    stdx::mutant::activate(Some("mds_own_rename_escapes"));
    let verdict =
        std::panic::catch_unwind(what_a_session_renames_while_it_is_recalled_is_asked_for_by_its_new_name);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
}

/// What broke: what a session had performed waited for another one, and it returned what it had of the file meanwhile, by the old name, as for
/// a move. Then the rename was carried out, and nobody asked its kernel for the new name.
#[test]
fn the_new_name_of_what_was_performed_is_asked_for() {
    let mut w = World::new();
    w.say(EMBEDDED, ClientMsg::Goodbye);
    for (conn, wants) in [(REMOTE, ALL.with(Bits::DX)), (OTHER, ALL)] {
        w.wants = wants;
        w.hello(conn, Peer::Trusted, SessionId(0));
    }
    let file = node_of(&granted(&mut w, REMOTE, create("f")).0);
    granted(&mut w, OTHER, create("g"));
    let told = proto::message::Told { ino: Ino::NONE, wall: Wall(w.now as i64), heard: false };
    let (name, new_name) = (n("f"), n("g"));
    let rename = Request::Rename { parent: root(), name, new_parent: root(), new_name, flags: 0 };
    super::early::perform(&mut w, REMOTE, 500, told, rename);
    let replaced = recalls(&mut w, OTHER);
    assert_eq!(replaced.len(), 1, "it waits for who has what it replaces: {:?}", w.sent);
    let (need, now) = (crate::caps::needs::of_all(&w.rank.view, file.ino), w.rank.view.now.mono);
    w.rank.view.book.wait(u64::MAX, (SessionId(0), None), &[need], now);
    w.pass(1);
    let of_file = recalls(&mut w, REMOTE);
    assert_eq!(of_file[0].name, Some((root().ino, n("f"))));
    give_back(&mut w, REMOTE, &of_file);
    w.rank.view.book.operation_ended(u64::MAX);
    assert!(!w.rank.view.book.is_granted(file.ino, Bits::ATTRS));
    give_back(&mut w, OTHER, &replaced);
    let removal = w.start(OTHER, Cred::ROOT, unlink("g"));
    let asked = recalls(&mut w, REMOTE);
    assert_eq!(asked.iter().map(|item| item.name.clone()).collect::<Vec<_>>(), [Some((root().ino, n("g")))]);
    give_back(&mut w, REMOTE, &asked);
    assert_eq!(w.answer(OTHER, removal), Some(Ok(Reply::Ok)));
}

#[cfg(feature = "mutants")]
#[test]
fn a_performed_name_that_nobody_knows_is_caught() {
    stdx::mutant::activate(Some("mds_performed_name_unknown"));
    let verdict = std::panic::catch_unwind(the_new_name_of_what_was_performed_is_asked_for);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
}

#[test]
fn a_listing_grants_each_of_its_inodes() {
    let mut w = two();
    for name in ["a", "b"] {
        granted(&mut w, REMOTE, Request::MkNod { parent: root(), name: n(name), new: mode(0o100_644) });
    }
    let list = Request::ReadDir { dir: root(), after: 0, attrs: true, bytes_max: 4096 };
    let tid = w.start(OTHER, Cred::ROOT, list);
    let grants = w.sent.iter().find_map(|(c, m)| match m {
        ServerMsg::Granted { tid: t, grants, .. } if (*c, *t) == (OTHER, tid) => Some(grants.clone()),
        _ => None,
    });
    assert_eq!(grants, Some(Grants::Each([Bits::ATTRS; 2].into())));
    assert_eq!(w.rank.status().caps, 4);
}

/// What broke: the rank took it for the answer to the next recall, and let somebody change what the session still kept.
#[test]
fn an_answer_that_settled_overtakes_is_no_answer_to_the_next_recall() {
    let mut w = two();
    let node = node_of(&granted(&mut w, REMOTE, create("f")).0);
    granted(&mut w, OTHER, lookup("f"));
    let session = w.sessions[&OTHER];
    w.inject(Input::Disconnected { conn: OTHER });
    let again = ConnId(7);
    w.hello(again, Peer::Trusted, session);
    w.say(again, ClientMsg::Reclaimed);
    let chmod =
        |mode| Request::SetAttr { node, set: proto::SetAttr { mode: Some(mode), ..Default::default() } };
    let one = w.start(REMOTE, Cred::ROOT, chmod(0o600));
    let first = recalls(&mut w, again);
    assert_eq!(first.len(), 1);
    w.say(again, ClientMsg::Settled);
    assert!(w.answer(REMOTE, one).is_some_and(|outcome| outcome.is_ok()));
    w.pass(1_500);
    assert_eq!(granted(&mut w, again, lookup("f")).1, Bits::ATTRS);
    let two = w.start(REMOTE, Cred::ROOT, chmod(0o640));
    let second = recalls(&mut w, again);
    give_back(&mut w, again, &first);
    assert_eq!(w.answer(REMOTE, two), None, "that was for the first one");
    give_back(&mut w, again, &second);
    assert!(w.answer(REMOTE, two).is_some_and(|outcome| outcome.is_ok()));
}

#[cfg(feature = "mutants")]
#[test]
fn an_old_answer_that_counts_is_caught() {
    stdx::mutant::activate(Some("mds_old_return_counts"));
    let verdict = std::panic::catch_unwind(an_answer_that_settled_overtakes_is_no_answer_to_the_next_recall);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
}

/// What broke: a client that went on in a new session presented its opens, and nobody counted them.
#[test]
fn what_a_new_session_presents_first_is_open() {
    let mut w = two();
    let node = node_of(&granted(&mut w, REMOTE, create("f")).0);
    w.inject(Input::Evict { session: w.sessions[&REMOTE] });
    w.pass(FADES_MS + 100);
    assert_eq!(granted(&mut w, OTHER, Request::Open { node, flags: 0 }).1, ALL);
    let again = ConnId(7);
    w.hello(again, Peer::Trusted, SessionId(0));
    w.say(again, ClientMsg::Reclaim { node, count: 1, writes: true, locks: vec![] });
    w.say(again, ClientMsg::Reclaimed);
    let asked = recalls(&mut w, OTHER);
    assert_eq!(asked.iter().map(|recalled| recalled.bits).collect::<Vec<_>>(), [Bits::FC]);
    give_back(&mut w, OTHER, &asked);
    w.call_as(OTHER, Cred::ROOT, unlink("f")).expect("unlinked");
    w.call_as(OTHER, Cred::ROOT, Request::Release { node, count: 1 }).expect("closed");
    w.pass(100);
    assert!(w.call_as(again, Cred::ROOT, Request::GetAttr { node }).is_ok(), "it is still open there");
    w.say(again, ClientMsg::Reclaim { node, count: 7, writes: true, locks: vec![] });
    w.call_as(again, Cred::ROOT, Request::Release { node, count: 1 }).expect("closed");
    w.pass(100);
    assert_eq!(w.call_as(again, Cred::ROOT, Request::GetAttr { node }), Err(Errno::ESTALE));
}
