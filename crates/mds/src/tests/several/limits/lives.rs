//! What becomes of limits over greetings, deaths and lives.
//!
//! Absent: what they let pass.

use super::*;

fn refused(message: &ServerMsg) -> Option<Errno> {
    match message {
        ServerMsg::Refused { errno, .. } => Some(Errno(*errno as i32)),
        _ => None,
    }
}

#[test]
pub(super) fn who_comes_back_has_the_same_limit() {
    let mut yard = Yard::of(2);
    let (session, inside, outside) = (yard.session, yard.inside.ino, yard.outside.ino);
    for at in 0..2 {
        for limit in [Ino::NONE, Ino::ROOT, outside] {
            let refusal = yard.greets(at, (session, false), Bits::NONE, limit);
            assert_eq!(refused(&refusal), Some(Errno::ESTALE), "{refusal:?}");
        }
        let welcome = yard.greets(at, (session, false), Bits::NONE, inside);
        assert!(matches!(welcome, ServerMsg::Welcome { resumed: true, .. }), "{welcome:?}");
    }
    // Nor has one that was not limited a limit later.
    let new = yard.greets(0, (SessionId(0), false), Bits::NONE, Ino::ROOT);
    let ServerMsg::Welcome { session, root: Ino::ROOT, .. } = new else { panic!("{new:?}") };
    let refusal = yard.greets(0, (session, false), Bits::NONE, inside);
    assert_eq!(refused(&refusal), Some(Errno::ESTALE));
}

#[test]
fn the_connections_limit_counts() {
    let mut yard = Yard::of(2);
    let (inside, outside) = (yard.inside.ino, yard.outside.ino);
    for (decided, wished) in
        [(inside, outside), (Ino::LINKS, Ino::NONE), (Ino::NONE, Ino::orphans(RankId(1)))]
    {
        let refusal = yard.greets_over(0, (SessionId(0), false), Bits::NONE, (decided, wished));
        assert_eq!(refused(&refusal), Some(Errno::EPROTO), "{decided:?} {wished:?}");
    }
    for (decided, wished) in [(inside, Ino::NONE), (inside, Ino::ROOT), (inside, inside), (Ino::ROOT, inside)]
    {
        let welcome = yard.greets_over(0, (SessionId(0), false), Bits::NONE, (decided, wished));
        assert!(matches!(welcome, ServerMsg::Welcome { root, .. } if root == inside), "{welcome:?}");
        assert_eq!(yard.at(0, Request::GetAttr { node: root() }), DENIED);
    }
    // The mount in this process, too.
    yard.c.inject(0, Input::Connected { conn: LIMITED, peer: Peer::Embedded });
    yard.c.inject(0, Input::Limit { conn: LIMITED, dir: inside });
    let (info, wants, at) = (ClientInfo::default(), Bits::NONE, yard.c.worlds[0].at());
    let hello = ClientMsg::Hello { protocol: PROTOCOL, session: SessionId(0), info, wants, at };
    yard.c.inject(0, Input::Message { conn: LIMITED, message: hello });
    assert_eq!(yard.at(0, Request::GetAttr { node: root() }), DENIED);
}

#[test]
fn what_is_limited_is_no_rank() {
    let mut yard = Yard::of(2);
    let (conn, dir) = (ConnId(71), yard.inside.ino);
    yard.c.inject(0, Input::Connected { conn, peer: Peer::Trusted });
    yard.c.inject(0, Input::Limit { conn, dir });
    let hello = ClientMsg::RankHello {
        protocol: PROTOCOL,
        from: RankId(1),
        incarnation: Incarnation(99),
        to: RankId(0),
        map_version: 0,
        settled: true,
    };
    yard.c.inject(0, Input::Message { conn, message: hello });
    let sent = yard.c.worlds[0].sent.iter();
    assert!(sent.into_iter().any(|(to, message)| *to == conn && refused(message) == Some(Errno::EPROTO)));
}

/// From the journal's tail, and from the store's record.
#[test]
pub(super) fn a_limit_outlives_the_rank() {
    for stored in [false, true] {
        let mut yard = Yard::of(2);
        let o = yard.c.mkdir(yard.outside, "o");
        assert_eq!(yard.c.pin(o, 1), Ok(Reply::Ok));
        for at in 0..2 {
            if stored {
                yard.c.checkpoint(at);
            }
            yard.c.crash(at);
            let refusal = yard.greets(at, (yard.session, false), Bits::NONE, Ino::NONE);
            assert_eq!(refused(&refusal), Some(Errno::ESTALE), "stored: {stored}");
            yard.comes_back(at);
        }
        assert_eq!((yard.stats(root()), yard.looks(o, "x")), (Err(Errno::EACCES), Err(Errno::EACCES)));
        assert_eq!(yard.looks(yard.inside, "x"), Err(Errno::ENOENT));
    }
}

/// What it says that it has open nobody has looked at.
#[test]
pub(super) fn a_session_that_begins_claims_nothing() {
    let mut yard = Yard::of(1);
    let outside = yard.outside;
    let secret = yard.c.create(outside, "secret");
    let nameless = yard.c.call(0, Request::TmpFile { parent: outside, new: mode(0o644), flags: 2 });
    let Ok(Reply::Created { attr, .. }) = nameless else { panic!("{nameless:?}") };
    let both = [secret, node(&attr)];
    for node in both {
        let claim = ClientMsg::Reclaim { node, count: 1, writes: true, locks: Vec::new() };
        yard.c.hold(0).say(LIMITED, claim);
    }
    for node in both {
        assert_eq!(yard.at(0, Request::GetAttr { node }), DENIED);
        assert_eq!(yard.at(0, Request::Open { node, flags: 0 }), DENIED);
    }
}

#[test]
fn what_was_open_before_the_rank_died_counts_for_nothing_outside() {
    let mut yard = Yard::of(1);
    let (inside, outside) = (yard.inside, yard.outside);
    let (moved, gone) = (yard.c.create(inside, "moved"), yard.c.create(inside, "gone"));
    for file in [moved, gone] {
        yard.opens(file);
    }
    assert_eq!(yard.c.rename((inside, "moved"), (outside, "moved")), Ok(Reply::Ok));
    assert!(yard.c.call(0, Request::Unlink { parent: inside, name: n("gone") }).is_ok());
    yard.c.crash(0);
    yard.claims(0, &[moved, gone]);
    assert_eq!(yard.stats(moved), Err(Errno::EACCES));
    assert!(yard.stats(gone).is_ok(), "it had its name inside");
}

/// What broke: what nobody could look at became the session's when it lost its name.
#[test]
pub(super) fn what_was_claimed_outside_counts_for_nothing_when_its_name_goes() {
    let mut yard = Yard::of(1);
    let (inside, outside) = (yard.inside, yard.outside);
    let (known, unknown) = (yard.c.create(inside, "known"), yard.c.create(outside, "secret"));
    yard.c.crash(0);
    yard.claims(0, &[known, unknown]);
    assert!(yard.stats(known).is_ok());
    assert_eq!(yard.stats(unknown), Err(Errno::EACCES));
    for (parent, name) in [(inside, "known"), (outside, "secret")] {
        assert_eq!(yard.c.call(0, Request::Unlink { parent, name: n(name) }), Ok(Reply::Ok));
    }
    let (known, unknown) = (nameless(known, 0), nameless(unknown, 0));
    assert!(yard.stats(known).is_ok(), "it was found inside");
    assert_eq!(yard.stats(unknown), Err(Errno::EACCES));
    let link = Request::Link { node: unknown, parent: inside, name: n("mine") };
    assert_eq!(yard.asks(link), Err(Errno::EACCES));
}

/// Where a file is that has lost its name at that rank.
fn nameless(node: NodeRef, rank: u16) -> NodeRef {
    let parent = Ino::orphans(RankId(rank));
    NodeRef { parent, hash: name_hash(&SEED, &node.ino.link_name()), ..node }
}

/// What broke: it was outside for ever, because its session had not named it since the rank lived again.
#[test]
pub(super) fn what_was_claimed_inside_is_inside_when_its_name_goes() {
    let mut yard = Yard::of(1);
    let (inside, outside) = (yard.inside, yard.outside);
    let above = yard.c.mkdir(inside, "above");
    let dir = yard.c.mkdir(above, "dir");
    let files = ["plain", "replaced", "linked"].map(|name| yard.c.create(dir, name));
    let (secret, moved) = (yard.c.create(outside, "secret"), yard.c.create(dir, "moved"));
    yard.c.create(dir, "by");
    let link = Request::Link { node: files[2], parent: dir, name: n("l") };
    assert!(yard.c.call(0, link).is_ok());
    // Nothing is cached then of what is above.
    yard.c.drop_cache(0);
    yard.c.crash(0);
    yard.claims(0, &[files[0], files[1], files[2], secret, moved]);
    assert_eq!(yard.c.rename((dir, "moved"), (outside, "moved")), Ok(Reply::Ok));
    assert_eq!(yard.c.rename((dir, "by"), (dir, "replaced")), Ok(Reply::Ok));
    let removed = [(dir, "plain"), (dir, "linked"), (dir, "l"), (outside, "secret"), (outside, "moved")];
    for (parent, name) in removed {
        assert_eq!(yard.c.call(0, Request::Unlink { parent, name: n(name) }), Ok(Reply::Ok), "{name}");
    }
    for file in files {
        let node = nameless(file, 0);
        assert_eq!(yard.stats(node), Ok(()), "{node:?}");
        let read = Request::Read { node, offset: 0, len: 10, into: None };
        assert!(yard.asks(read).is_ok(), "{node:?}");
    }
    for node in [secret, moved] {
        assert_eq!(yard.stats(nameless(node, 0)), Err(Errno::EACCES), "{node:?}");
    }
}

/// It came with a rename. By replicas that are at hand; no other rank is waited for.
#[test]
pub(super) fn what_was_claimed_at_another_rank_is_inside_when_its_name_goes() {
    for knows in [true, false] {
        let (mut yard, [x, d, ..]) = Yard::with_parts();
        let file = yard.c.create(x, "f");
        yard.c.crash(0);
        yard.claims(0, &[file]);
        assert_eq!(yard.c.rename((x, "f"), (d, "f")), Ok(Reply::Ok));
        if knows {
            assert_eq!(yard.looks(d, "nothing"), Err(Errno::ENOENT));
        }
        assert_eq!(yard.c.call(1, Request::Unlink { parent: d, name: n("f") }), Ok(Reply::Ok));
        let expected = if knows { Ok(()) } else { Err(Errno::EACCES) };
        assert_eq!(yard.stats(nameless(file, 1)), expected);
    }
}

/// Another rank is asked for its first name, which its home is to let pass: that waits for who may have it open.
#[test]
fn whose_it_is_that_has_no_name_is_known_when_its_session_is_back_at_its_home() {
    let (mut yard, [x, d, ..]) = Yard::with_parts();
    let made = yard.asks(Request::TmpFile { parent: d, new: mode(0o644), flags: 2 });
    let Ok(Reply::Created { attr, .. }) = made else { panic!("{made:?}") };
    yard.c.crash(1);
    let link = Request::Link { node: node(&attr), parent: x, name: n("tmp") };
    let tid = yard.c.start(0, LIMITED, link);
    yard.c.pass(50);
    assert_eq!(yard.c.take_answer(0, LIMITED, tid), None);
    yard.claims(1, &[node(&attr)]);
    // It is let pass; and does not leave by what a former life may have answered.
    assert_eq!(yard.c.wait(0, LIMITED, tid), Answered::Outcome(Err(Errno::EXDEV)));
}
