//! What a session says again to a rank that lives again, of files that are another rank's by now, or were.
//!
//! Absent: one rank (`tests/early.rs`).

use super::*;
use crate::tests::early::{WANTS, answer};
use crate::tests::files::{NO, acl};
use proto::message::Told;

const MORE: ConnId = ConnId(61);

/// What broke: the client told EIO of bytes that the move's checkpoint had synced; and, when a rank had died twice, of those of a write
/// that was not durable and was to be carried out again.
#[test]
fn bytes_of_a_file_that_has_moved_away_are_there() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    let (moved, stays) = (c.create(dir, "moved"), c.create(root(), "stays"));
    c.greet(0, Peer::Trusted, WANTS);
    // It is given numbers with its first change.
    let new = mode(0o755);
    c.start(0, REMOTE, Request::MkDir { parent: root(), name: n("mine"), new });
    let session = c.worlds[0].sessions[&REMOTE];
    let life = Incarnation(c.worlds[0].incarnation);
    for file in [moved, stays] {
        let data = Payload::Owned(vec![7; 5]);
        c.start(
            0,
            REMOTE,
            Request::Write { node: file, offset: 0, append: false, kill_suidgid: false, data },
        );
    }
    assert_eq!(c.pin(dir, 1), Ok(Reply::Ok), "{:?}", c.worlds[0].notes);
    // Two lives later nobody knows what the first one had synced, but for what it gave away.
    c.crash(0);
    c.crash(0);
    let world = c.hold(0);
    world.wants = WANTS;
    let welcome = world.hello(MORE, Peer::Trusted, session);
    assert!(matches!(welcome, Some(ServerMsg::Welcome { resumed: true, .. })), "{welcome:?}");
    world.say(MORE, ClientMsg::Reclaimed);
    let mut outcomes = Vec::new();
    // Another write of which no journal tells, and whose result its client needs no more; and one that it will say again.
    for (tid, wrote, node) in [(700, Tid(9), moved), (701, Tid(9), stays), (702, Tid(10), stays)] {
        let data = Payload::Owned(vec![7; 5]);
        let request = Request::Rewrite { node, wrote, life, append: false, offset: 0, data };
        let told = Told { heard: true, ..Told::default() };
        let (tid, cred) = (Tid(tid), Cred::ROOT);
        c.hold(0).say(MORE, ClientMsg::Performed { tid, floor: Tid(10), cred, told, request });
        c.settle();
        outcomes.push(answer(&c.worlds[0], MORE, tid).cloned());
    }
    assert!(matches!(outcomes[2], Some(ServerMsg::Done { .. })), "{outcomes:?}");
    assert!(matches!(outcomes[0], Some(ServerMsg::Done { .. })), "{outcomes:?}");
    assert!(matches!(outcomes[1], Some(ServerMsg::Reply { outcome: Err(Errno::EIO), .. })), "{outcomes:?}");
}

/// How a file comes back to its first rank.
#[derive(Clone, Copy, Debug)]
enum Back {
    /// It is renamed by the session that wrote it there.
    Renamed,
    RenamedByOthers,
    /// With its directory: the rank's journal says nothing of it.
    Moved,
}

/// A client's request has its answer; what is recalled from the client meanwhile it gives back.
fn gives_back_until(c: &mut Cluster, (at, conn): (usize, ConnId), tid: Tid) -> Answered {
    for _ in 0..1_000 {
        while let Some(ServerMsg::Recall { list }) = c.heard(0, |m| matches!(m, ServerMsg::Recall { .. })) {
            let list = list.iter().map(|item| item.returned(item.bits)).collect();
            c.inject(0, Input::Message { conn: REMOTE, message: ClientMsg::Returned { list } });
            c.settle();
        }
        if let Some(answer) = c.take_answer(at, conn, tid) {
            return answer;
        }
        c.pass(1);
    }
    panic!("no answer; {:?}", c.worlds[at].notes)
}

/// What broke: of what another rank had had in between the first one's journal does not tell. When that died its bytes of before went
/// over those that had been written, and synced, at the other one; or they were told as lost, although they had been synced when it left.
fn bytes_of_a_file_that_was_away_stay_as_they_are(back: Back) {
    let mut c = Cluster::new();
    let (dir, sub) = (c.mkdir(root(), "d"), c.mkdir(root(), "sub"));
    assert_eq!(c.pin(dir, 1), Ok(Reply::Ok));
    let file = c.create(sub, "f");
    c.greet(0, Peer::Trusted, WANTS);
    // It is given numbers with its first change.
    c.start(0, REMOTE, Request::MkDir { parent: root(), name: n("mine"), new: mode(0o755) });
    let (session, life) = (c.worlds[0].sessions[&REMOTE], Incarnation(c.worlds[0].incarnation));
    let write = |node: NodeRef, data: &[u8]| {
        let data = Payload::Owned(data.to_vec());
        Request::Write { node, offset: 0, append: false, kill_suidgid: false, data }
    };
    let wrote = c.start(0, REMOTE, write(file, b"older"));
    let rename = |from: (NodeRef, &str), to: (NodeRef, &str)| {
        let (parent, name, new_parent, new_name) = (from.0, n(from.1), to.0, n(to.1));
        Request::Rename { parent, name, new_parent, new_name, flags: 0 }
    };
    let done = Answered::Outcome(Ok(Reply::Ok));
    let tid = c.start(1, EMBEDDED, rename((sub, "f"), (dir, "g")));
    assert_eq!(gives_back_until(&mut c, (1, EMBEDDED), tid), done);
    let there = c.lookup(dir, "g").expect("it is there");
    let there = NodeRef { ino: there.ino, parent: there.parent, hash: there.hash };
    c.pass(5);
    assert!(c.call(1, write(there, b"newer")).is_ok());
    assert!(c.call(1, Request::Fsync { node: there, data_only: false }).is_ok());
    let again = rename((dir, "g"), (sub, "f"));
    match back {
        Back::Renamed | Back::RenamedByOthers => {
            let conn = if matches!(back, Back::Renamed) { REMOTE } else { EMBEDDED };
            let tid = c.start(0, conn, again);
            assert_eq!(gives_back_until(&mut c, (0, conn), tid), done, "{back:?}");
        }
        Back::Moved => assert_eq!(c.pin(dir, 0), Ok(Reply::Ok), "{:?}", c.worlds[1].notes),
    }
    c.crash(0);
    let world = c.hold(0);
    world.wants = WANTS;
    let welcome = world.hello(MORE, Peer::Trusted, session);
    assert!(matches!(welcome, Some(ServerMsg::Welcome { resumed: true, .. })), "{welcome:?}");
    world.say(MORE, ClientMsg::Reclaimed);
    world.data_ops.clear();
    let (tid, data) = (Tid(900), Payload::Owned(b"older".to_vec()));
    let request = Request::Rewrite { node: file, wrote, life, append: false, offset: 0, data };
    let (told, cred) = (Told { heard: true, ..Told::default() }, Cred::ROOT);
    world.say(MORE, ClientMsg::Performed { tid, floor: wrote, cred, told, request });
    world.say(MORE, ClientMsg::Presented);
    c.settle();
    let outcome = answer(&c.worlds[0], MORE, tid).cloned();
    assert!(matches!(outcome, Some(ServerMsg::Done { .. })), "{back:?}: {outcome:?}");
    let writes = |op: &DataOp| matches!(op, DataOp::Write { .. });
    assert!(!c.worlds[0].data_ops.iter().any(writes), "{back:?}");
    match c.call(0, Request::Read { node: NodeRef::bare(file.ino), offset: 0, len: 5, into: None }) {
        Ok(Reply::Data(data)) => assert_eq!(data.bytes(), b"newer", "{back:?}"),
        other => panic!("{back:?}: {other:?}"),
    }
}

#[test]
fn bytes_of_a_file_that_comes_back_stay_as_they_are() {
    for back in [Back::Renamed, Back::RenamedByOthers, Back::Moved] {
        bytes_of_a_file_that_was_away_stay_as_they_are(back);
    }
}

#[cfg(feature = "mutants")]
#[test]
fn old_bytes_of_a_file_that_comes_back_are_caught() {
    for back in [Back::Renamed, Back::RenamedByOthers, Back::Moved] {
        stdx::mutant::activate(Some("mds_rewrite_of_left"));
        let verdict = std::panic::catch_unwind(|| bytes_of_a_file_that_was_away_stay_as_they_are(back));
        stdx::mutant::activate(None);
        assert!(verdict.is_err(), "{back:?}");
    }
}

#[cfg(feature = "mutants")]
#[test]
fn a_rank_that_sends_a_rewrite_away_is_caught() {
    stdx::mutant::activate(Some("mds_rewrite_sent_away"));
    let verdict = std::panic::catch_unwind(bytes_of_a_file_that_has_moved_away_are_there);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
}

/// What broke: a client shows that it has an answer when it has all before it. The oldest one that it lacked was of a transaction, or
/// waited for a move, and that waited until the client showed that it had another one.
#[test]
fn nobody_waits_until_a_client_has_an_answer_of_a_former_life() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    assert_eq!(c.pin(dir, 1), Ok(Reply::Ok));
    let above = c.mkdir(root(), "e");
    c.greet(0, Peer::Trusted, Bits::NONE);
    let session = c.worlds[0].sessions[&REMOTE];
    let mut made = |parent: NodeRef, name: &str| {
        let new = mode(0o644);
        let tid = c.start(0, REMOTE, Request::Create { parent, name: n(name), new, flags: 0 });
        let answer = c.wait(0, REMOTE, tid);
        let Answered::Outcome(Ok(Reply::Created { attr, .. })) = answer else { panic!("{answer:?}") };
        (tid, NodeRef { ino: attr.ino, parent: attr.parent, hash: attr.hash })
    };
    let (stays, leaves, below) = (made(root(), "stays"), made(root(), "leaves"), made(above, "below"));
    c.crash(0);
    let welcome = c.hold(0).hello(REMOTE, Peer::Trusted, session);
    assert!(matches!(welcome, Some(ServerMsg::Welcome { resumed: true, .. })), "{welcome:?}");
    c.hold(0).say(REMOTE, ClientMsg::Reclaimed);
    c.hold(0).say(REMOTE, ClientMsg::Settled);
    c.settle();
    c.pass(50);
    // The file stays at its rank, whoever has it open; others may not go.
    let link = c.start(1, EMBEDDED, Request::Link { node: stays.1, parent: dir, name: n("second") });
    c.pass(50);
    let linked = c.take_answer(1, EMBEDDED, link);
    assert!(matches!(linked, Some(Answered::Outcome(Ok(_)))), "{linked:?}");
    assert_eq!(c.rename((root(), "leaves"), (dir, "g")), Err(Errno::EXDEV));
    let pin = c.start(0, EMBEDDED, Cluster::pin_request(above, 1));
    c.pass(50);
    assert_eq!(c.take_answer(0, EMBEDDED, pin), Some(Answered::Outcome(Err(Errno::EBUSY))));
    // The client has all these answers, and has nothing open any more.
    let next = Tid(below.0.0 + 1);
    assert!(next > leaves.0 && next > stays.0);
    let request = ClientMsg::Request { tid: next, floor: next, cred: Cred::ROOT, request: Request::StatFs };
    c.hold(0).say(REMOTE, request);
    c.settle();
    assert_eq!(c.rename((root(), "leaves"), (dir, "g")), Ok(Reply::Ok));
    assert_eq!(c.pin(above, 1), Ok(Reply::Ok));
}

/// What broke: a rank that lived again told another one of a directory's names before a client had said again what it was told of them.
fn what_others_are_told_of_contents_waits_for_who_presents() {
    let (mut c, dir) = Cluster::with_moved();
    c.greet(1, Peer::Trusted, WANTS);
    c.start(1, REMOTE, Request::MkNod { parent: dir, name: n("made"), new: mode(0o100_644) });
    c.pass(5);
    let session = c.worlds[1].sessions[&REMOTE];
    c.crash(1);
    let tid = c.start(0, EMBEDDED, Request::GetAttr { node: dir });
    c.pass(50);
    assert_eq!(c.take_answer(0, EMBEDDED, tid), None, "its client is not back");
    let world = c.hold(1);
    world.wants = WANTS;
    let welcome = world.hello(MORE, Peer::Trusted, session);
    assert!(matches!(welcome, Some(ServerMsg::Welcome { resumed: true, .. })), "{welcome:?}");
    world.say(MORE, ClientMsg::Reclaimed);
    c.settle();
    c.pass(50);
    assert_eq!(c.take_answer(0, EMBEDDED, tid), None, "it has not said all");
    c.hold(1).say(MORE, ClientMsg::Presented);
    c.settle();
    let answered = c.wait(0, EMBEDDED, tid);
    assert!(matches!(answered, Answered::Outcome(Ok(Reply::Attr(_)))), "{answered:?}");
}

#[test]
fn contents_are_shown_when_all_is_presented() {
    what_others_are_told_of_contents_waits_for_who_presents();
}

#[cfg(feature = "mutants")]
#[test]
fn a_rank_that_shows_what_is_not_presented_is_caught() {
    stdx::mutant::activate(Some("mds_ranks_shown_unpresented"));
    let verdict = std::panic::catch_unwind(what_others_are_told_of_contents_waits_for_who_presents);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
}

/// What broke: a rank answered early what it had made in a directory of another rank's, whose inode got a default ACL. Made again after a
/// crash it was another one than its caller had been told.
fn what_was_made_early_is_as_it_was_told(hands_down: bool) {
    let (mut c, dir) = Cluster::with_moved();
    let change = |c: &mut Cluster| {
        let value = acl(&[(1, 7, NO), (2, 7, 42), (4, 5, NO), (0x10, 7, NO), (0x20, 0, NO)]);
        let name = n("system.posix_acl_default");
        let request = Request::SetXattr { node: dir, name, value, mode: proto::request::XattrMode::Either };
        assert_eq!(c.call(0, request), Ok(Reply::Ok));
    };
    if hands_down {
        change(&mut c);
    }
    c.greet(1, Peer::Trusted, WANTS);
    let make = |name: &str| Request::MkNod { parent: dir, name: n(name), new: mode(0o100_664) };
    c.start(1, REMOTE, make("first"));
    c.pass(5);
    let session = c.worlds[1].sessions[&REMOTE];
    c.worlds[1].auto_durable = false;
    let tid = c.start(1, REMOTE, make("made"));
    let is_early = |message: &ServerMsg| matches!(message, ServerMsg::Early { tid: of, .. } if *of == tid);
    let early = c.heard(1, is_early);
    assert_eq!(early.is_some(), !hands_down, "what hands something down is waited for");
    let Some(ServerMsg::Early { wall, outcome: Ok(Reply::Attr(told)), .. }) = early else { return };
    change(&mut c);
    c.crash(1);
    c.worlds[1].auto_durable = true;
    let world = c.hold(1);
    world.wants = WANTS;
    let welcome = world.hello(MORE, Peer::Trusted, session);
    assert!(matches!(welcome, Some(ServerMsg::Welcome { resumed: true, .. })), "{welcome:?}");
    world.say(MORE, ClientMsg::Reclaimed);
    let (cred, request) = (Cred::ROOT, make("made"));
    let told_of = Told { ino: told.ino, wall, heard: true };
    world.say(MORE, ClientMsg::Performed { tid, floor: tid, cred, told: told_of, request });
    world.say(MORE, ClientMsg::Presented);
    c.settle();
    c.pass(50);
    let made = c.lookup(dir, "made").expect("it is made again");
    assert_eq!((made.ino, made.mode, made.gid, made.has_xattrs), (told.ino, told.mode, told.gid, false));
}

#[test]
fn what_was_made_early_in_a_directory_of_another_rank_is_made_again() {
    what_was_made_early_is_as_it_was_told(false);
}

#[test]
fn what_another_ranks_directory_hands_down_is_not_told_early() {
    what_was_made_early_is_as_it_was_told(true);
}

/// What broke: a directory's name was reserved for a rename to another rank, which had decided it. What was made in the directory until
/// this rank heard of that was told early, with the ACL that it got there; then the rank died. To its next life the directory was another
/// rank's, and what was made again got no ACL.
fn what_hands_something_down_is_told_early_unless_it_leaves() {
    let (mut c, dir) = Cluster::with_moved();
    let sub = node(&c.lookup(dir, "sub").expect("it is there"));
    let value = acl(&[(1, 7, NO), (2, 7, 42), (4, 5, NO), (0x10, 7, NO), (0x20, 0, NO)]);
    let name = n("system.posix_acl_default");
    let request = Request::SetXattr { node: sub, name, value, mode: proto::request::XattrMode::Either };
    assert_eq!(c.call(1, request), Ok(Reply::Ok));
    c.greet(1, Peer::Trusted, WANTS);
    let make = |name: &str| Request::MkNod { parent: sub, name: n(name), new: mode(0o100_664) };
    c.start(1, REMOTE, make("first"));
    c.pass(5);
    let is_early = |tid: Tid| move |message: &ServerMsg| matches!(message, ServerMsg::Early { tid: of, .. } if *of == tid);
    c.worlds[1].auto_durable = false;
    let tid = c.start(1, REMOTE, make("before"));
    assert!(c.heard(1, is_early(tid)).is_some(), "its inode is here, and stays");
    c.hold(1).sync();
    c.worlds.iter_mut().for_each(|world| world.auto_durable = false);
    let (from, to) = ((dir, "sub"), (root(), "sub"));
    let request =
        Request::Rename { parent: from.0, name: n(from.1), new_parent: to.0, new_name: n(to.1), flags: 0 };
    let rename = c.hold(0).start(EMBEDDED, Cred::ROOT, request);
    while c.worlds[1].rank.view.transactions.is_free() {
        assert!(c.one_thing(), "nothing is reserved");
    }
    let made = c.hold(1).start(REMOTE, Cred::ROOT, make("made"));
    assert!(c.heard(1, is_early(made)).is_none(), "its inode may be another rank's when it is made again");
    c.worlds.iter_mut().for_each(|world| world.auto_durable = true);
    (0..2).for_each(|at| c.hold(at).sync());
    c.settle();
    assert!(matches!(c.wait(1, REMOTE, made), Answered::Outcome(Ok(_))));
    assert_eq!(c.wait(0, EMBEDDED, rename), Answered::Outcome(Ok(Reply::Ok)));
}

#[test]
fn what_a_directory_hands_down_that_is_about_to_leave_is_not_told_early() {
    what_hands_something_down_is_told_early_unless_it_leaves();
}

#[cfg(feature = "mutants")]
#[test]
fn defects_of_what_is_handed_down_are_caught() {
    stdx::mutant::activate(Some("mds_early_below_reserved"));
    let verdict = std::panic::catch_unwind(what_hands_something_down_is_told_early_unless_it_leaves);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
    for (defect, hands_down) in [("mds_early_by_replica", true), ("mds_told_takes_from_above", false)] {
        stdx::mutant::activate(Some(defect));
        let verdict = std::panic::catch_unwind(|| what_was_made_early_is_as_it_was_told(hands_down));
        stdx::mutant::activate(None);
        assert!(verdict.is_err(), "{defect}");
    }
}

/// What pins a directory is told when it is durable: whether it may go depends on what is open there by then.
fn a_pin_is_not_told_early() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    c.greet(0, Peer::Trusted, WANTS);
    let make = |name: &str| Request::MkNod { parent: root(), name: n(name), new: mode(0o100_644) };
    c.start(0, REMOTE, make("first"));
    c.pass(5);
    c.worlds[0].auto_durable = false;
    let mut is_early = |request: Request| {
        let tid = c.start(0, REMOTE, request);
        c.pass(20);
        c.heard(0, |message| matches!(message, ServerMsg::Early { tid: of, .. } if *of == tid)).is_some()
    };
    assert!(is_early(make("made")));
    let (name, value) = (n("pando.dir.pin"), b"0"[..].into());
    assert!(!is_early(Request::SetXattr { node: dir, name, value, mode: proto::request::XattrMode::Either }));
}

/// What broke: an entry came to divide what governs the two names before it was presented, and it was refused then (EXDEV).
fn a_directory_that_gets_another_parent_is_not_told_early() {
    let (mut c, _) = Cluster::with_moved();
    let (a, b) = (c.mkdir(root(), "a"), c.mkdir(root(), "b"));
    for (at, name) in [(a, "sub"), (b, "other")] {
        c.mkdir(at, name);
    }
    c.create(a, "file");
    c.create(a, "last");
    c.greet(0, Peer::Trusted, WANTS);
    c.start(0, REMOTE, Request::MkNod { parent: root(), name: n("first"), new: mode(0o100_644) });
    c.pass(5);
    c.worlds[0].auto_durable = false;
    let mut is_early = |from: (NodeRef, &str), to: (NodeRef, &str), flags: u32| {
        let (parent, name, new_parent, new_name) = (from.0, n(from.1), to.0, n(to.1));
        let tid = c.start(0, REMOTE, Request::Rename { parent, name, new_parent, new_name, flags });
        c.pass(20);
        c.heard(0, |message| matches!(message, ServerMsg::Early { tid: of, .. } if *of == tid)).is_some()
    };
    assert!(is_early((a, "file"), (b, "file"), 0));
    assert!(is_early((a, "sub"), (a, "same"), 0), "its parent stays");
    assert!(!is_early((a, "last"), (b, "other"), proto::request::rename_flags::EXCHANGE));
    assert!(!is_early((a, "same"), (b, "sub"), 0));
}

#[test]
fn directories_move_when_that_is_durable() {
    a_directory_that_gets_another_parent_is_not_told_early();
}

#[cfg(feature = "mutants")]
#[test]
fn directories_that_move_early_are_caught() {
    for defect in ["mds_directories_move_early", "mds_across_early"] {
        stdx::mutant::activate(Some(defect));
        let verdict = std::panic::catch_unwind(a_directory_that_gets_another_parent_is_not_told_early);
        stdx::mutant::activate(None);
        assert!(verdict.is_err(), "{defect}");
    }
}

#[test]
fn pins_are_told_when_they_are_durable() {
    a_pin_is_not_told_early();
}

#[cfg(feature = "mutants")]
#[test]
fn a_pin_that_is_told_early_is_caught() {
    stdx::mutant::activate(Some("mds_pins_early"));
    let verdict = std::panic::catch_unwind(a_pin_is_not_told_early);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
}
