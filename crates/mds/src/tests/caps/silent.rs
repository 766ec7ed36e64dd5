//! Holders that do not answer a recall: silent, cut off, or of the life before.
//!
//! Absent: those that do (`caps.rs`).

use super::*;

#[test]
fn what_nobody_answers_for_a_lease_ends_the_session_and_what_it_kept_runs_out() {
    let mut w = two();
    granted(&mut w, REMOTE, create("f"));
    assert_eq!(granted(&mut w, OTHER, lookup("f")).1, Bits::ATTRS);
    let tid = w.start(REMOTE, Cred::ROOT, unlink("f"));
    for _ in 0..9 {
        w.pass(1_000);
        w.say(REMOTE, ClientMsg::Renew { number: 1 });
        w.say(OTHER, ClientMsg::Renew { number: 1 });
    }
    let renewed = |w: &World, conn| {
        w.sent.iter().filter(|(c, m)| *c == conn && matches!(m, ServerMsg::Renewed { .. })).count()
    };
    assert_eq!(renewed(&w, REMOTE), 9);
    assert!(renewed(&w, OTHER) < 6, "half a lease late: it hears no more of its lease");
    assert_eq!(w.answer(REMOTE, tid), None);
    w.pass(1_520);
    assert_eq!(w.rank.sessions(Mono(w.now)).len(), 1, "{:?}", w.notes);
    assert_eq!(w.answer(REMOTE, tid), None, "it asked a moment ago, and may keep the answer for a while");
    w.pass(FADES_MS);
    assert_eq!(w.answer(REMOTE, tid), Some(Ok(Reply::Ok)));
}

/// What broke: each answer to something else began the second look anew, and made the rank believe that it had been stopped.
#[test]
fn who_answers_everything_but_one_is_ended_all_the_same() {
    let mut w = two();
    let [_, node] = ["f", "g"].map(|name| {
        let (made, _) = granted(&mut w, REMOTE, create(name));
        assert_eq!(granted(&mut w, OTHER, lookup(name)).1, Bits::ATTRS);
        node_of(&made)
    });
    w.start(REMOTE, Cred::ROOT, unlink("f"));
    let never = recalls(&mut w, OTHER);
    for step in 0..60 {
        w.pass(200);
        w.say(REMOTE, ClientMsg::Renew { number: 1 });
        w.say(OTHER, ClientMsg::Renew { number: 1 });
        if w.rank.sessions(Mono(w.now)).len() == 1 {
            assert!(step >= 49, "{:?}", w.notes);
            return;
        }
        // Something else is asked for and given back at once.
        let set = SetAttr { mode: Some(step), ..SetAttr::default() };
        w.start(REMOTE, Cred::ROOT, Request::SetAttr { node, set });
        let others = recalls(&mut w, OTHER);
        assert!(others.iter().all(|asked| !never.contains(asked)));
        give_back(&mut w, OTHER, &others);
        w.start(OTHER, Cred::ROOT, lookup("g"));
    }
    panic!("it goes on: {:?}", w.notes);
}

#[cfg(feature = "mutants")]
#[test]
fn a_deadline_that_begins_anew_is_caught() {
    stdx::mutant::activate(Some("mds_returns_begin_anew"));
    let verdict = std::panic::catch_unwind(who_answers_everything_but_one_is_ended_all_the_same);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
}

#[test]
fn a_session_without_a_connection_delays_others_until_what_it_keeps_has_run_out() {
    let mut w = two();
    granted(&mut w, REMOTE, create("f"));
    granted(&mut w, OTHER, lookup("f"));
    w.inject(Input::Disconnected { conn: OTHER });
    let tid = w.start(REMOTE, Cred::ROOT, unlink("f"));
    w.pass(FADES_MS - 100);
    assert_eq!(w.answer(REMOTE, tid), None);
    w.pass(200);
    assert_eq!(w.answer(REMOTE, tid), Some(Ok(Reply::Ok)));
}

#[test]
fn who_resumes_is_granted_nothing_before_it_has_settled() {
    let mut w = two();
    granted(&mut w, REMOTE, create("f"));
    granted(&mut w, OTHER, lookup("f"));
    let session = w.sessions[&OTHER];
    w.inject(Input::Disconnected { conn: OTHER });
    let again = ConnId(7);
    w.hello(again, Peer::Trusted, session);
    w.say(again, ClientMsg::Reclaimed);
    assert_eq!(granted(&mut w, again, lookup("f")).1, Bits::NONE);
    let tid = w.start(REMOTE, Cred::ROOT, unlink("f"));
    assert_eq!(w.answer(REMOTE, tid), None, "it may still keep what it had");
    w.say(again, ClientMsg::Settled);
    assert_eq!(w.answer(REMOTE, tid), Some(Ok(Reply::Ok)));
    assert_eq!(granted(&mut w, again, Request::GetAttr { node: root() }).1, Bits::ATTRS);
}

#[test]
fn after_a_restart_changes_wait_for_the_others_to_settle_and_reads_do_not() {
    for settles in [true, false] {
        let mut w = two();
        granted(&mut w, REMOTE, create("f"));
        let sessions = [w.sessions[&REMOTE], w.sessions[&OTHER]];
        w.wants = ALL;
        w.crash();
        w.say(EMBEDDED, ClientMsg::Goodbye);
        for (conn, session) in [REMOTE, OTHER].into_iter().zip(sessions) {
            w.hello(conn, Peer::Trusted, session);
            w.say(conn, ClientMsg::Reclaimed);
        }
        w.say(REMOTE, ClientMsg::Settled);
        assert!(w.call_as(OTHER, Cred::ROOT, lookup("f")).is_ok());
        let tid = w.start(REMOTE, Cred::ROOT, unlink("f"));
        assert_eq!(w.answer(REMOTE, tid), None, "the other may keep it");
        if settles {
            w.say(OTHER, ClientMsg::Settled);
        } else {
            w.pass(FADES_MS + 100);
        }
        assert_eq!(w.answer(REMOTE, tid), Some(Ok(Reply::Ok)));
    }
}

/// What broke: pages were granted before the session that has the file open for writing had come back.
#[test]
fn no_pages_before_everybody_is_back() {
    let mut w = two();
    let node = node_of(&granted(&mut w, REMOTE, create("f")).0);
    let sessions = [w.sessions[&REMOTE], w.sessions[&OTHER]];
    w.wants = ALL;
    w.crash();
    w.say(EMBEDDED, ClientMsg::Goodbye);
    w.hello(OTHER, Peer::Trusted, sessions[1]);
    w.say(OTHER, ClientMsg::Reclaimed);
    w.say(OTHER, ClientMsg::Settled);
    let open = Request::Open { node, flags: 0 };
    let tid = w.start(OTHER, Cred::ROOT, open.clone());
    let pages = |w: &World| {
        w.sent.iter().any(|(conn, message)| {
            let granted = matches!(message, ServerMsg::Granted { grants, .. } if grants.of(0).has(Bits::FC));
            *conn == OTHER && granted
        })
    };
    assert!(!pages(&w), "{:?}", w.sent);
    w.hello(REMOTE, Peer::Trusted, sessions[0]);
    w.say(REMOTE, ClientMsg::Reclaim { node, count: 1, writes: true, locks: Vec::new() });
    w.say(REMOTE, ClientMsg::Reclaimed);
    w.say(REMOTE, ClientMsg::Settled);
    assert!(w.answer(OTHER, tid).is_some_and(|outcome| outcome.is_ok()) && !pages(&w));
    assert_eq!(granted(&mut w, OTHER, open).1, Bits::ATTRS, "it is being written");
}

/// What broke: the session was gone from the journal, so the rank that lived again waited for nobody.
#[test]
fn who_was_evicted_just_before_a_crash_is_waited_for_after_it() {
    let mut w = two();
    granted(&mut w, REMOTE, create("f"));
    granted(&mut w, OTHER, lookup("f"));
    let sessions = [w.sessions[&REMOTE], w.sessions[&OTHER]];
    w.inject(Input::Evict { session: sessions[1] });
    assert_eq!(w.rank.status().sessions, 1, "it is nobody's any more");
    w.wants = ALL;
    w.crash();
    w.say(EMBEDDED, ClientMsg::Goodbye);
    w.hello(REMOTE, Peer::Trusted, sessions[0]);
    w.say(REMOTE, ClientMsg::Reclaimed);
    w.say(REMOTE, ClientMsg::Settled);
    let tid = w.start(REMOTE, Cred::ROOT, unlink("f"));
    assert_eq!(w.answer(REMOTE, tid), None, "the other may keep it");
    w.pass(FADES_MS + 100);
    assert_eq!(w.answer(REMOTE, tid), Some(Ok(Reply::Ok)));
}

/// A kernel gives no page back while a READ of them has no answer: the rank may not blame its client for its own slow store.
#[test]
fn who_waits_for_its_own_reads_is_not_late() {
    let mut w = two();
    let node = node_of(&granted(&mut w, REMOTE, create("f")).0);
    let data = Payload::Owned(vec![7; 100]);
    let write = Request::Write { node, offset: 0, append: false, kill_suidgid: false, data };
    w.call_as(REMOTE, Cred::ROOT, write).expect("written");
    w.call_as(REMOTE, Cred::ROOT, Request::Release { node, count: 1 }).expect("closed");
    w.pass(1_500);
    assert_eq!(granted(&mut w, OTHER, Request::Open { node, flags: 0 }).1, ALL);
    w.hold_data = true;
    w.start(OTHER, Cred::ROOT, Request::Read { node, offset: 0, len: 100, into: None });
    let open = w.start(REMOTE, Cred::ROOT, Request::Open { node, flags: open_flags::RDWR });
    let pass = |w: &mut World, seconds| {
        for _ in 0..seconds {
            w.pass(1_000);
            w.say(REMOTE, ClientMsg::Renew { number: 1 });
            w.say(OTHER, ClientMsg::Renew { number: 1 });
        }
    };
    pass(&mut w, 20);
    assert_eq!(w.rank.sessions(Mono(w.now)).len(), 2, "{:?}", w.notes);
    let asked = recalls(&mut w, OTHER);
    w.let_go();
    give_back(&mut w, OTHER, &asked);
    assert!(w.answer(REMOTE, open).is_some_and(|outcome| outcome.is_ok()));
}

/// What broke: the eviction was in memory only. The rank that lived again let the client in, and what that had performed before
/// went over bytes that another had synced.
#[test]
fn what_an_evicted_session_performed_does_not_come_after_a_crash() {
    for stored in [false, true] {
        let mut w = World::new();
        w.say(EMBEDDED, ClientMsg::Goodbye);
        w.wants = ALL.with(Bits::DX).with(Bits::ALONE);
        w.hello(REMOTE, Peer::Trusted, SessionId(0));
        w.hello(OTHER, Peer::Trusted, SessionId(0));
        let file = node_of(&w.call_as(REMOTE, Cred::ROOT, create("f")).expect("made"));
        w.say(REMOTE, ClientMsg::Settled);
        let evicted = w.sessions[&REMOTE];
        let slot = w.rank.sessions.map[&evicted].place.expect("a place");
        // The file is its own to write, and what it keeps is something else: its records of the file were dropped to make room.
        w.rank.view.book.end_delegated(slot);
        w.rank.view.book.forget(slot);
        w.rank.view.book.delegate(slot, file.ino, Some(Ino::ROOT));
        w.rank.view.book.grant(slot, Ino(9), Bits::ATTRS, Mono(w.now));
        w.inject(Input::Evict { session: evicted });
        assert!(w.rank.sessions.map.contains_key(&evicted), "it goes on for a while");
        let write = |bytes: &[u8]| {
            let data = Payload::Owned(bytes.to_vec());
            Request::Write { node: file, offset: 0, append: false, kill_suidgid: false, data }
        };
        for request in [
            Request::Open { node: file, flags: open_flags::RDWR },
            write(b"theirs"),
            Request::Fsync { node: file, data_only: false },
        ] {
            w.call_as(OTHER, Cred::ROOT, request).expect("nobody is in the way");
        }
        if stored {
            w.checkpoint();
        }
        let other = w.sessions[&OTHER];
        w.crash();
        w.hello(OTHER, Peer::Trusted, other);
        for message in [ClientMsg::Reclaimed, ClientMsg::Presented, ClientMsg::Settled] {
            w.say(OTHER, message);
        }
        let again = ConnId(7);
        let refused = w.hello(again, Peer::Trusted, evicted);
        let Some(ServerMsg::Refused { errno, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!(errno, Errno::ESTALE.0 as u32);
        let told = proto::message::Told { ino: Ino::NONE, wall: Wall(w.now as i64), heard: false };
        super::super::early::perform(&mut w, again, 900, told, write(b"mine, from before"));
        assert_eq!(w.read(file), b"theirs");
        // It is waited for as one that may keep something, and then gone for good.
        w.pass(FADES_MS + 100);
        assert!(!w.rank.sessions.map.contains_key(&evicted), "{:?}", w.notes);
        w.checkpoint();
        w.crash();
        assert!(!w.rank.sessions.map.contains_key(&evicted), "{:?}", w.notes);
    }
}

#[cfg(feature = "mutants")]
#[test]
fn an_eviction_that_a_crash_takes_back_is_caught() {
    stdx::mutant::activate(Some("mds_eviction_not_journaled"));
    let verdict = std::panic::catch_unwind(what_an_evicted_session_performed_does_not_come_after_a_crash);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
}
