//! Directories that are delegated to one session: what waits for it, and when it ends.
//!
//! Absent: files that are (`alone.rs`).

use super::*;

#[test]
fn a_directory_is_delegated_to_one_and_recalled_for_others() {
    let mut w = two();
    let (_, made) = early(&mut w, REMOTE, mkdir("new"));
    let dir = made.attr;
    assert!(made.delegated.iter().any(|e| e.dir.ino == dir.ino && e.empty), "{:?}", made.delegated);
    let numbers = w.rank.session_delegated(w.sessions[&REMOTE]);
    let told = |at| Told { ino: Ino(numbers + at), wall: Wall(w.now as i64), heard: false };
    let (one, two) = (told(0), told(2));
    perform(&mut w, REMOTE, 500, one, create(node(&dir), "f"));
    assert!(matches!(answer(&w, REMOTE, Tid(500)), Some(ServerMsg::Done { .. })), "{:?}", w.sent);
    // A number below one that was used is refused.
    perform(&mut w, REMOTE, 501, Told { ino: Ino(numbers + 1), ..two }, create(node(&dir), "g"));
    perform(&mut w, REMOTE, 502, two, create(node(&dir), "h"));
    perform(&mut w, REMOTE, 503, Told { ino: Ino(numbers + 1), ..two }, create(node(&dir), "i"));
    assert!(matches!(answer(&w, REMOTE, Tid(501)), Some(ServerMsg::Done { .. })));
    assert!(matches!(answer(&w, REMOTE, Tid(502)), Some(ServerMsg::Done { .. })));
    assert!(matches!(
        answer(&w, REMOTE, Tid(503)),
        Some(ServerMsg::Reply { outcome: Err(Errno::EINVAL), .. })
    ));
    // Another looks in.
    let look = w.start(OTHER, Cred::ROOT, lookup(node(&dir), "f"));
    assert!(answer(&w, OTHER, look).is_none());
    let stat = w.start(OTHER, Cred::ROOT, Request::GetAttr { node: node(&dir) });
    assert!(answer(&w, OTHER, stat).is_none());
    give_back(&mut w, REMOTE);
    let Some(ServerMsg::Granted { outcome: Ok(Reply::Attr(found)), .. }) = answer(&w, OTHER, look) else {
        panic!("{:?}", w.sent)
    };
    assert_eq!((found.ino, found.uid), (one.ino, 0));
    assert!(answer(&w, OTHER, stat).is_some());
    // Somebody wanted it lately: no more of that for a while.
    let tid = w.start(REMOTE, Cred::ROOT, create(node(&dir), "j"));
    give_back(&mut w, OTHER);
    let Some(ServerMsg::Early { delegated, .. }) = answer(&w, REMOTE, tid) else { panic!("{:?}", w.sent) };
    assert!(delegated.is_empty());
}

#[test]
fn what_gives_a_directory_back_does_not_overtake_what_was_performed_there() {
    let mut w = two();
    let (dir, told) = performed_in_new(&mut w);
    let file = NodeRef::bare(told.ino);
    w.hold_data = true;
    let data = Payload::Owned(b"bytes".to_vec());
    let write = Request::Write { node: file, offset: 0, append: false, kill_suidgid: false, data };
    perform(&mut w, REMOTE, 501, Told { ino: Ino::NONE, ..told }, write);
    let look = w.start(OTHER, Cred::ROOT, lookup(dir, "f"));
    give_back(&mut w, REMOTE);
    assert!(answer(&w, OTHER, look).is_none(), "the write is under way");
    w.let_go();
    let Some(ServerMsg::Granted { outcome: Ok(Reply::Attr(found)), .. }) = answer(&w, OTHER, look) else {
        panic!("{:?}", w.sent)
    };
    assert_eq!(found.size, 5);
}

/// What broke: counts of a directory are attributes by another name, and where a directory lies its holder may have changed.
#[test]
fn counts_and_the_parent_of_an_delegated_directory_wait_for_it() {
    for ask in [
        |node| Request::GetXattr { node, name: n("ceph.dir.entries") },
        |node| Request::GetXattr { node, name: n("pando.dir.files") },
        |node| Request::Parent { node },
    ] {
        let mut w = two();
        let (_, made) = early(&mut w, REMOTE, mkdir("new"));
        let tid = w.start(OTHER, Cred::ROOT, ask(node(&made.attr)));
        assert!(answer(&w, OTHER, tid).is_none(), "{:?}", w.sent);
        give_back(&mut w, REMOTE);
        assert!(answer(&w, OTHER, tid).is_some());
    }
}

/// What broke: an answer that tells of counts that are not on disk left at once.
#[test]
fn counts_that_others_changed_wait_for_the_disk() {
    let mut w = two();
    w.auto_durable = false;
    early(&mut w, REMOTE, create(root(), "a"));
    give_back_all(&mut w);
    let count = Request::GetXattr { node: root(), name: n("ceph.dir.entries") };
    let tid = w.start(OTHER, Cred::ROOT, count);
    give_back_all(&mut w);
    assert!(answer(&w, OTHER, tid).is_none(), "{:?}", w.sent);
    w.sync();
    assert!(matches!(answer(&w, OTHER, tid), Some(ServerMsg::Reply { outcome: Ok(Reply::Xattr(_)), .. })));
}

/// What broke: one that sets nothing changes nothing, but it is answered with the attributes.
#[test]
fn a_setattr_of_an_delegated_directory_waits_for_it_whatever_it_sets() {
    let mut w = two();
    let (_, made) = early(&mut w, REMOTE, mkdir("new"));
    let set = Request::SetAttr { node: node(&made.attr), set: proto::SetAttr::default() };
    let tid = w.start(OTHER, Cred::ROOT, set);
    assert!(answer(&w, OTHER, tid).is_none(), "{:?}", w.sent);
    give_back(&mut w, REMOTE);
    assert!(answer(&w, OTHER, tid).is_some());
}

#[test]
fn what_is_delegated_outlives_the_connection_and_ends_with_settled_or_the_lease() {
    let mut w = two();
    let (_, made) = early(&mut w, REMOTE, mkdir("new"));
    let dir = node(&made.attr);
    let session = w.sessions[&REMOTE];
    w.inject(Input::Disconnected { conn: REMOTE });
    let look = w.start(OTHER, Cred::ROOT, lookup(dir, "f"));
    w.pass(4_000);
    w.say(OTHER, ClientMsg::Renew { number: 1 });
    w.pass(1_000);
    assert!(answer(&w, OTHER, look).is_none(), "its client may have more to present");
    let conn = ConnId(20);
    w.hello(conn, Peer::Trusted, session);
    for message in [ClientMsg::Reclaimed, ClientMsg::Presented] {
        w.say(conn, message);
    }
    assert!(answer(&w, OTHER, look).is_none());
    w.say(conn, ClientMsg::Settled);
    assert!(answer(&w, OTHER, look).is_some());

    let mut w = two();
    let (_, made) = early(&mut w, REMOTE, mkdir("new"));
    w.inject(Input::Disconnected { conn: REMOTE });
    w.pass(6_000);
    w.say(OTHER, ClientMsg::Renew { number: 1 });
    let look = w.start(OTHER, Cred::ROOT, lookup(node(&made.attr), "f"));
    w.pass(4_600);
    assert!(answer(&w, OTHER, look).is_some(), "{:?}", w.notes);
}

/// What broke: a stretch of the store's listing had come, its request waited for the directory, and showed names that
/// went meanwhile.
#[test]
fn a_listing_that_waited_is_not_an_old_one() {
    let mut w = two();
    let (_, made) = early(&mut w, REMOTE, mkdir("new"));
    let dir = node(&made.attr);
    for name in ["a", "b"] {
        w.start(
            REMOTE,
            Cred::ROOT,
            Request::Symlink { parent: dir, name: n(name), target: b"t".as_slice().into() },
        );
    }
    w.start(OTHER, Cred::ROOT, lookup(dir, "x"));
    give_back(&mut w, REMOTE);
    w.checkpoint();
    w.drop_cache();
    w.hold_loads = true;
    let list = w.start(OTHER, Cred::ROOT, Request::ReadDir { dir, after: 0, attrs: false, bytes_max: 4096 });
    // Whatever it needs before is there; the listing is on its way when the directory is delegated to another.
    while !format!("{:?}", w.held.front()).contains("Dentries") {
        let loaded = w.held.pop_front().expect("it loads");
        w.inject(loaded);
    }
    let slot = w.rank.sessions.map[&w.sessions[&REMOTE]].place.expect("a place");
    w.rank.view.book.delegate(slot, dir.ino, None);
    w.let_go();
    assert!(answer(&w, OTHER, list).is_none());
    w.start(REMOTE, Cred::ROOT, Request::Unlink { parent: dir, name: n("a") });
    w.checkpoint();
    w.drop_cache();
    give_back(&mut w, REMOTE);
    let found = match answer(&w, OTHER, list) {
        Some(
            ServerMsg::Reply { outcome: Ok(Reply::Entries { entries, .. }), .. }
            | ServerMsg::Granted { outcome: Ok(Reply::Entries { entries, .. }), .. },
        ) => entries.iter().map(|entry| entry.name.to_vec()).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(found, [b"b"]);
}

/// Defects that random histories hardly ever show.
#[cfg(feature = "mutants")]
#[test]
fn defects_of_what_is_delegated_are_caught() {
    let defects: [(&str, fn()); 7] = [
        ("mds_lookup_despite_dx", counts_and_the_parent_of_an_delegated_directory_wait_for_it),
        ("mds_old_stretch", a_listing_that_waited_is_not_an_old_one),
        ("mds_dx_returned_overtakes", what_gives_a_directory_back_does_not_overtake_what_was_performed_there),
        ("mds_early_before_delegated", nobody_is_answered_early_before_its_numbers_are_durably_its_own),
        ("mds_dx_fades", what_is_delegated_outlives_the_connection_and_ends_with_settled_or_the_lease),
        ("mds_number_used_again", a_directory_is_delegated_to_one_and_recalled_for_others),
        ("mds_redo_end_clean", what_is_made_once_more_begins_without_the_data_of_the_life_before),
    ];
    for (defect, test) in defects {
        stdx::mutant::activate(Some(defect));
        let verdict = std::panic::catch_unwind(test);
        stdx::mutant::activate(None);
        assert!(verdict.is_err(), "{defect}");
    }
}
