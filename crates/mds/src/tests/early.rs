//! Early answers, entrusted directories, requests that were performed already.
//!
//! Absent: what clients decide by themselves (`client`), random histories (`sim`).

use super::sessions::{OTHER, REMOTE};
use super::*;
use proto::caps::Returned;
use proto::message::{Entrusted, Told};
use proto::request::open_flags;

pub(super) const WANTS: Bits = Bits(Bits::ATTRS.0 | Bits::FC.0 | Bits::DX.0);

/// Two remote sessions that are answered early; the first has made a directory and been lent numbers.
fn two() -> World {
    two_that_want(WANTS)
}

pub(super) fn two_that_want(wants: Bits) -> World {
    let mut w = World::new();
    w.say(EMBEDDED, ClientMsg::Goodbye);
    w.wants = wants;
    w.hello(REMOTE, Peer::Trusted, SessionId(0));
    w.hello(OTHER, Peer::Trusted, SessionId(0));
    for (conn, name) in [(REMOTE, "mine"), (OTHER, "theirs")] {
        w.start(conn, Cred::ROOT, mkdir(name));
        assert!(w.sent.iter().any(|(c, m)| *c == conn && matches!(m, ServerMsg::Numbers { .. })), "{name}");
    }
    w.sent.clear();
    w
}

impl Rank {
    /// The next number of a session's own.
    pub(super) fn session_lent(&self, id: SessionId) -> u64 {
        self.sessions.map[&id].lent[0].next
    }
}

pub(super) fn mkdir(name: &str) -> Request {
    Request::MkDir { parent: root(), name: n(name), new: mode(0o755) }
}

pub(super) fn create(parent: NodeRef, name: &str) -> Request {
    Request::Create { parent, name: n(name), new: mode(0o644), flags: open_flags::RDWR }
}

pub(super) fn lookup(parent: NodeRef, name: &str) -> Request {
    Request::Lookup { parent, name: n(name) }
}

struct Early {
    position: Position,
    wall: Wall,
    attr: Attr,
    entrusted: Vec<Entrusted>,
}

/// The early answer to a request, taken out of what was sent.
fn early(w: &mut World, conn: ConnId, request: Request) -> (Tid, Early) {
    let tid = w.start(conn, Cred::ROOT, request);
    let at = w
        .sent
        .iter()
        .position(|(c, m)| *c == conn && matches!(m, ServerMsg::Early { tid: t, .. } if *t == tid));
    match at.map(|at| w.sent.remove(at).1) {
        Some(ServerMsg::Early { position, wall, outcome, entrusted, .. }) => {
            let attr = match outcome {
                Ok(Reply::Attr(attr) | Reply::Created { attr, .. }) => attr,
                _ => Attr::default(),
            };
            (tid, Early { position, wall, attr, entrusted })
        }
        _ => panic!("not answered early: {:?}", w.sent),
    }
}

/// The answer to a request, whatever it is called.
pub(super) fn answer(w: &World, conn: ConnId, tid: Tid) -> Option<&ServerMsg> {
    let of = |m: &ServerMsg| match m {
        ServerMsg::Reply { tid, .. }
        | ServerMsg::Granted { tid, .. }
        | ServerMsg::Early { tid, .. }
        | ServerMsg::Done { tid, .. } => Some(*tid),
        _ => None,
    };
    w.sent.iter().find(|(c, m)| *c == conn && of(m) == Some(tid)).map(|(_, m)| m)
}

pub(super) fn perform(w: &mut World, conn: ConnId, tid: u64, told: Told, request: Request) {
    let floor = Tid(1);
    w.say(conn, ClientMsg::Performed { tid: Tid(tid), floor, cred: Cred::ROOT, told, request });
}

pub(super) fn node(attr: &Attr) -> NodeRef {
    NodeRef { ino: attr.ino, parent: attr.parent, hash: attr.hash }
}

/// What was recalled from a session.
pub(super) fn recalled(w: &mut World, conn: ConnId) -> Vec<proto::caps::Recalled> {
    let mut found = Vec::new();
    w.sent.retain(|(c, m)| match m {
        ServerMsg::Recall { list } if *c == conn => {
            found.extend(list.iter().cloned());
            false
        }
        _ => true,
    });
    found
}

fn give_back(w: &mut World, conn: ConnId) {
    let list: Vec<Returned> = recalled(w, conn).iter().map(|r| r.returned(r.bits)).collect();
    assert!(!list.is_empty(), "nothing was recalled");
    w.say(conn, ClientMsg::Returned { list });
}

#[test]
fn only_its_author_is_told_before_it_is_durable() {
    let mut w = two();
    w.auto_durable = false;
    let (_, first) = early(&mut w, REMOTE, create(root(), "a"));
    assert!(first.position.0 as usize > w.durable);
    // Its author sees it; others wait, for that name and what it led to.
    let own = w.start(REMOTE, Cred::ROOT, lookup(root(), "a"));
    assert!(answer(&w, REMOTE, own).is_some());
    give_back_all(&mut w);
    let seen = w.start(OTHER, Cred::ROOT, lookup(root(), "a"));
    give_back_all(&mut w);
    assert!(answer(&w, OTHER, seen).is_none(), "{:?}", w.sent);
    // What it does not depend on leaves.
    let free = w.start(OTHER, Cred::ROOT, lookup(root(), "theirs"));
    assert!(answer(&w, OTHER, free).is_some());
    w.sync();
    assert!(answer(&w, OTHER, seen).is_some());
    let durable = w.sent.iter().find_map(|(c, m)| match m {
        ServerMsg::Durable { position } if *c == REMOTE => Some(*position),
        _ => None,
    });
    assert!(durable >= Some(first.position));
}

pub(super) fn give_back_all(w: &mut World) {
    for conn in [REMOTE, OTHER, REMOTE, OTHER] {
        let list: Vec<Returned> = recalled(w, conn).iter().map(|r| r.returned(r.bits)).collect();
        if !list.is_empty() {
            w.say(conn, ClientMsg::Returned { list });
        }
    }
}

#[test]
fn what_depends_on_anothers_change_waits_for_it() {
    let mut w = two();
    w.auto_durable = false;
    early(&mut w, REMOTE, create(root(), "a"));
    give_back_all(&mut w);
    let tid = w.start(OTHER, Cred::ROOT, Request::Unlink { parent: root(), name: n("a") });
    give_back_all(&mut w);
    assert!(answer(&w, OTHER, tid).is_none(), "a crash could take back what it removed");
    w.sync();
    assert!(matches!(answer(&w, OTHER, tid), Some(ServerMsg::Reply { outcome: Ok(Reply::Ok), .. })));
}

#[test]
fn after_a_crash_nothing_runs_before_what_was_told_is_presented() {
    let mut w = two();
    w.auto_durable = false;
    let (tid, told) = early(&mut w, REMOTE, create(root(), "a"));
    let (session, other) = (w.sessions[&REMOTE], w.sessions[&OTHER]);
    w.crash();
    w.say(EMBEDDED, ClientMsg::Goodbye);
    let (conn, late) = (ConnId(20), ConnId(21));
    w.hello(late, Peer::Trusted, other);
    w.say(late, ClientMsg::Reclaimed);
    w.say(late, ClientMsg::Presented);
    let waits = w.start(late, Cred::ROOT, lookup(root(), "a"));
    assert!(answer(&w, late, waits).is_none());
    w.hello(conn, Peer::Trusted, session);
    w.say(conn, ClientMsg::Reclaimed);
    let again = Told { ino: told.attr.ino, wall: told.wall, heard: true };
    perform(&mut w, conn, tid.0, again, create(root(), "a"));
    assert!(matches!(answer(&w, conn, tid), Some(ServerMsg::Done { .. })), "{:?}", w.sent);
    assert!(answer(&w, late, waits).is_none(), "it may have presented more");
    w.say(conn, ClientMsg::Presented);
    let outcome = match answer(&w, late, waits) {
        Some(ServerMsg::Reply { outcome, .. } | ServerMsg::Granted { outcome, .. }) => outcome.clone(),
        other => panic!("{other:?}"),
    };
    let Ok(Reply::Attr(found)) = outcome else { panic!("{outcome:?}") };
    assert_eq!((found.ino, found.mtime), (told.attr.ino, told.wall));
    // Said once more it is not done once more.
    w.sent.clear();
    perform(&mut w, conn, tid.0, again, create(root(), "a"));
    assert!(matches!(answer(&w, conn, tid), Some(ServerMsg::Done { .. })));
}

#[test]
fn who_does_not_come_back_is_waited_for_no_longer_than_its_lease() {
    let mut w = two();
    let other = w.sessions[&OTHER];
    w.crash();
    w.say(EMBEDDED, ClientMsg::Goodbye);
    let late = ConnId(21);
    w.hello(late, Peer::Trusted, other);
    w.say(late, ClientMsg::Reclaimed);
    w.say(late, ClientMsg::Presented);
    let waits = w.start(late, Cred::ROOT, lookup(root(), "mine"));
    w.pass(8_000);
    w.say(late, ClientMsg::Renew { number: 1 });
    assert!(answer(&w, late, waits).is_none());
    // And half a second, in which what it said may be read.
    w.pass(2_600);
    assert!(answer(&w, late, waits).is_some());
}

#[test]
fn a_directory_is_entrusted_to_one_and_recalled_for_others() {
    let mut w = two();
    let (_, made) = early(&mut w, REMOTE, mkdir("new"));
    let dir = made.attr;
    assert!(made.entrusted.iter().any(|e| e.dir.ino == dir.ino && e.empty), "{:?}", made.entrusted);
    let numbers = w.rank.session_lent(w.sessions[&REMOTE]);
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
    let Some(ServerMsg::Early { entrusted, .. }) = answer(&w, REMOTE, tid) else { panic!("{:?}", w.sent) };
    assert!(entrusted.is_empty());
}

/// A crash would take the session's record back, which says that it has something to present.
#[test]
fn nobody_is_answered_early_before_its_numbers_are_durably_its_own() {
    let mut w = World::new();
    w.say(EMBEDDED, ClientMsg::Goodbye);
    w.wants = WANTS;
    w.hello(REMOTE, Peer::Trusted, SessionId(0));
    w.hello(OTHER, Peer::Trusted, SessionId(0));
    w.auto_durable = false;
    let first = w.start(REMOTE, Cred::ROOT, mkdir("first"));
    let second = w.start(REMOTE, Cred::ROOT, mkdir("second"));
    for tid in [first, second] {
        assert!(answer(&w, REMOTE, tid).is_none(), "{:?}", w.sent);
    }
    w.sync();
    for tid in [first, second] {
        assert!(answer(&w, REMOTE, tid).is_some(), "{:?}", w.sent);
    }
    early(&mut w, REMOTE, mkdir("third"));
}

#[test]
fn what_gives_a_directory_back_does_not_overtake_what_was_performed_there() {
    let mut w = two();
    let (_, made) = early(&mut w, REMOTE, mkdir("new"));
    let dir = node(&made.attr);
    let numbers = w.rank.session_lent(w.sessions[&REMOTE]);
    let told = Told { ino: Ino(numbers), wall: Wall(w.now as i64), heard: false };
    perform(&mut w, REMOTE, 500, told, create(dir, "f"));
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

/// Found by review: counts of a directory are attributes by another name, and where a directory lies its holder may have changed.
#[test]
fn counts_and_the_parent_of_an_entrusted_directory_wait_for_it() {
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

/// Found by review.
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

/// Found by the simulator: one that sets nothing changes nothing, but it is answered with the attributes.
#[test]
fn a_setattr_of_an_entrusted_directory_waits_for_it_whatever_it_sets() {
    let mut w = two();
    let (_, made) = early(&mut w, REMOTE, mkdir("new"));
    let set = Request::SetAttr { node: node(&made.attr), set: proto::SetAttr::default() };
    let tid = w.start(OTHER, Cred::ROOT, set);
    assert!(answer(&w, OTHER, tid).is_none(), "{:?}", w.sent);
    give_back(&mut w, REMOTE);
    assert!(answer(&w, OTHER, tid).is_some());
}

#[test]
fn what_is_entrusted_outlives_the_connection_and_ends_with_settled_or_the_lease() {
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

#[test]
fn who_has_nothing_to_present_is_not_waited_for() {
    let mut w = two();
    let (_, made) = early(&mut w, REMOTE, mkdir("new"));
    let (session, other) = (w.sessions[&REMOTE], w.sessions[&OTHER]);
    for number in 1..4 {
        w.pass(2_000);
        for conn in [REMOTE, OTHER] {
            w.say(conn, ClientMsg::Renew { number });
        }
        give_back_all(&mut w);
    }
    w.pass(1_500);
    w.crash();
    w.say(EMBEDDED, ClientMsg::Goodbye);
    let late = ConnId(21);
    w.hello(late, Peer::Trusted, other);
    w.say(late, ClientMsg::Reclaimed);
    let tid = w.start(late, Cred::ROOT, lookup(root(), "new"));
    assert!(answer(&w, late, tid).is_some(), "{:?}", w.notes);
    // Once it changes something again it is.
    let conn = ConnId(20);
    w.hello(conn, Peer::Trusted, session);
    for message in [ClientMsg::Reclaimed, ClientMsg::Presented, ClientMsg::Settled] {
        w.say(conn, message);
    }
    w.say(late, ClientMsg::Settled);
    let first = w.start(conn, Cred::ROOT, create(node(&made.attr), "a"));
    assert!(matches!(answer(&w, conn, first), Some(ServerMsg::Granted { .. })), "{:?}", w.sent);
    early(&mut w, conn, create(node(&made.attr), "b"));
    w.crash();
    w.say(EMBEDDED, ClientMsg::Goodbye);
    w.hello(late, Peer::Trusted, other);
    w.say(late, ClientMsg::Reclaimed);
    let tid = w.start(late, Cred::ROOT, lookup(root(), "new"));
    assert!(answer(&w, late, tid).is_none());
}

/// Found by review: its return of the directory lay behind a write that the store did not finish, and it was evicted for that.
#[test]
fn nobody_is_late_for_what_waits_behind_its_own_work() {
    let mut w = two();
    let (_, made) = early(&mut w, REMOTE, mkdir("new"));
    let dir = node(&made.attr);
    let numbers = w.rank.session_lent(w.sessions[&REMOTE]);
    let told = Told { ino: Ino(numbers), wall: Wall(w.now as i64), heard: false };
    perform(&mut w, REMOTE, 500, told, create(dir, "f"));
    w.hold_data = true;
    let data = Payload::Owned(b"bytes".to_vec());
    let write =
        Request::Write { node: NodeRef::bare(told.ino), offset: 0, append: false, kill_suidgid: false, data };
    perform(&mut w, REMOTE, 501, Told { ino: Ino::NONE, ..told }, write);
    let look = w.start(OTHER, Cred::ROOT, lookup(dir, "f"));
    give_back(&mut w, REMOTE);
    for number in 1..8 {
        w.pass(2_000);
        for conn in [REMOTE, OTHER] {
            w.say(conn, ClientMsg::Renew { number });
        }
    }
    assert!(w.notes.iter().all(|note| !note.contains("evicted")), "{:?}", w.notes);
    w.let_go();
    assert!(answer(&w, OTHER, look).is_some());
}

/// Found by review: whoever resumes and never says that it has presented everything held up all others for ever.
#[test]
fn who_never_finishes_presenting_is_waited_for_no_longer_than_three_leases() {
    let mut w = two();
    let (session, other) = (w.sessions[&REMOTE], w.sessions[&OTHER]);
    w.crash();
    w.say(EMBEDDED, ClientMsg::Goodbye);
    let (slow, late) = (ConnId(20), ConnId(21));
    for (conn, session) in [(slow, session), (late, other)] {
        w.hello(conn, Peer::Trusted, session);
        w.say(conn, ClientMsg::Reclaimed);
    }
    w.say(late, ClientMsg::Presented);
    let waits = w.start(late, Cred::ROOT, lookup(root(), "mine"));
    for number in 1..17 {
        assert!(number > 14 || answer(&w, late, waits).is_none());
        w.pass(2_000);
        for conn in [slow, late] {
            w.say(conn, ClientMsg::Renew { number });
        }
    }
    assert!(answer(&w, late, waits).is_some());
}

/// Found by review: a range of numbers that lay in the checkpoint's record and in the tail was the session's twice.
#[test]
fn numbers_are_lent_once_whatever_says_so() {
    let mut sessions = crate::session::Sessions::default();
    let id = SessionId(7);
    sessions.insert(id, crate::session::Session::default());
    sessions.lend(id, Ino(8192), 8);
    sessions.lend(id, Ino(8192), 8);
    sessions.lend(id, Ino(8200), 8);
    assert_eq!(sessions.map[&id].lent.len(), 2);
}

/// Found by review: what was interrupted while it stood in line waited on.
#[test]
fn what_takes_back_a_request_in_the_line_stays_behind_it() {
    let mut w = two();
    let (_, made) = early(&mut w, REMOTE, mkdir("new"));
    let dir = node(&made.attr);
    let numbers = w.rank.session_lent(w.sessions[&REMOTE]);
    let told = Told { ino: Ino(numbers), wall: Wall(w.now as i64), heard: false };
    perform(&mut w, REMOTE, 500, told, create(dir, "f"));
    let file = NodeRef::bare(told.ino);
    let lock = |owner| proto::request::LockSpec {
        flock: false,
        owner,
        kind: proto::request::LockKind::Write,
        start: 0,
        end: 9,
        pid: 1,
    };
    w.start(REMOTE, Cred::ROOT, Request::SetLock { node: file, lock: lock(1), wait: false });
    w.hold_data = true;
    let data = Payload::Owned(b"bytes".to_vec());
    let write = Request::Write { node: file, offset: 0, append: false, kill_suidgid: false, data };
    perform(&mut w, REMOTE, 501, Told { ino: Ino::NONE, ..told }, write);
    let waits = w.start(REMOTE, Cred::ROOT, Request::SetLock { node: file, lock: lock(2), wait: true });
    w.say(REMOTE, ClientMsg::Cancel { tid: waits });
    assert!(answer(&w, REMOTE, waits).is_none());
    w.let_go();
    let outcome = answer(&w, REMOTE, waits);
    assert!(matches!(outcome, Some(ServerMsg::Reply { outcome: Err(Errno::EINTR), .. })), "{outcome:?}");
}

/// One session whose next message stands in line: a write that it performed is under way.
fn busy() -> World {
    let mut w = two();
    let (_, made) = early(&mut w, REMOTE, mkdir("new"));
    let told =
        Told { ino: Ino(w.rank.session_lent(w.sessions[&REMOTE])), wall: Wall(w.now as i64), heard: false };
    perform(&mut w, REMOTE, 500, told, create(node(&made.attr), "f"));
    w.hold_data = true;
    let (node, data) = (NodeRef::bare(told.ino), Payload::Owned(b"bytes".to_vec()));
    let write = Request::Write { node, offset: 0, append: false, kill_suidgid: false, data };
    perform(&mut w, REMOTE, 501, Told { ino: Ino::NONE, ..told }, write);
    w.sent.clear();
    w
}

/// Found by review: what gives directories back stood in line without a bound.
#[test]
fn a_line_does_not_grow_without_end() {
    let mut w = busy();
    let item = |number| Returned { ino: Ino(7), bits: Bits::DX, number };
    let refused = |w: &World| w.sent.iter().any(|(_, m)| matches!(m, ServerMsg::Refused { .. }));
    let most = w.config.limits.results as u32;
    for at in 0..9 {
        w.say(REMOTE, ClientMsg::Returned { list: (0..most / 10).map(|n| item(at * most + n)).collect() });
        assert!(!refused(&w), "{at}");
    }
    w.say(REMOTE, ClientMsg::Returned { list: (0..most / 5).map(item).collect() });
    assert!(refused(&w));
}

#[test]
fn what_waits_in_a_line_is_seen_and_what_is_offered_keeps_its_place() {
    let mut w = busy();
    assert_eq!(w.rank.status().lined_up, 0, "one is being carried out");
    w.pass(10);
    let later = w.start(REMOTE, Cred::ROOT, mkdir("later"));
    w.say(REMOTE, ClientMsg::Idle { list: vec![Ino::ROOT] });
    assert!(recalled(&mut w, REMOTE).is_empty());
    w.pass(5);
    let (shown, count) = w.rank.operations(Mono(w.now), 9);
    let waits: Vec<_> = shown.iter().map(|op| op.waits).collect();
    assert_eq!((count, waits), (2, vec![Some(crate::Waits::Data), Some(crate::Waits::Line)]));
    assert_eq!((shown[1].path.as_str(), shown[1].age_ns >= 5 * MS, w.rank.in_flight()), ("/later", true, 2));
    assert_eq!((w.rank.status().lined_up, w.rank.blocked(Mono(w.now)).count), (1, 0));
    assert_eq!(w.rank.blocked(Mono(w.now + 60_000 * MS)).count, 2);
    w.let_go();
    assert!(answer(&w, REMOTE, later).is_some());
    assert_eq!(recalled(&mut w, REMOTE)[0].bits, Bits::DX, "now it is asked for");
}

/// Found by review: the line went on with what came over the connection before, and the new one's behind it.
#[test]
fn a_line_ends_with_its_connection_however_the_rank_learns_of_it() {
    let mut w = busy();
    w.say(REMOTE, ClientMsg::Settled);
    let later = w.start(REMOTE, Cred::ROOT, mkdir("later"));
    let (again, session) = (ConnId(20), w.sessions[&REMOTE]);
    w.hello(again, Peer::Trusted, session);
    w.let_go();
    assert!(answer(&w, again, later).is_none(), "it is asked for again");
    let request = mkdir("later");
    w.retry(again, later, Cred::ROOT, request);
    assert!(answer(&w, again, later).is_some());
    assert!(!w.rank.sessions.map[&session].settled, "it has not said so on this connection");
}

/// The number of an inode that is made once more may have data of the life that a crash took back.
#[test]
fn what_is_made_once_more_begins_without_the_data_of_the_life_before() {
    let mut w = two();
    let (_, made) = early(&mut w, REMOTE, mkdir("new"));
    let (dir, session) = (node(&made.attr), w.sessions[&REMOTE]);
    let other = w.sessions[&OTHER];
    w.auto_durable = false;
    let told = Told { ino: Ino(w.rank.session_lent(session)), wall: Wall(w.now as i64), heard: false };
    perform(&mut w, REMOTE, 500, told, create(dir, "f"));
    let file = NodeRef::bare(told.ino);
    let data = Payload::Owned(b"LOST".to_vec());
    let write = Request::Write { node: file, offset: 0, append: false, kill_suidgid: false, data };
    perform(&mut w, REMOTE, 501, Told { ino: Ino::NONE, ..told }, write);
    w.crash();
    w.say(EMBEDDED, ClientMsg::Goodbye);
    let (conn, late) = (ConnId(20), ConnId(21));
    for (conn, session) in [(late, other), (conn, session)] {
        w.hello(conn, Peer::Trusted, session);
        w.say(conn, ClientMsg::Reclaimed);
    }
    perform(&mut w, conn, 500, Told { heard: true, ..told }, create(dir, "f"));
    for conn in [conn, late] {
        w.say(conn, ClientMsg::Presented);
        w.say(conn, ClientMsg::Settled);
    }
    let size = proto::SetAttr { size: Some(4), ..Default::default() };
    w.auto_durable = true;
    w.start(conn, Cred::ROOT, Request::SetAttr { node: file, set: size });
    let tid = w.start(conn, Cred::ROOT, Request::Read { node: file, offset: 0, len: 4, into: None });
    let found = match answer(&w, conn, tid) {
        Some(ServerMsg::Reply { outcome, .. } | ServerMsg::Granted { outcome, .. }) => outcome,
        other => panic!("{other:?}"),
    };
    assert_eq!(*found, Ok(Reply::Data(Payload::Owned(vec![0; 4]))));
}

/// Found by the simulator: a stretch of the store's listing had come, its request waited for the directory, and showed names that
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
    // Whatever it needs before is there; the listing is on its way when the directory is entrusted to another.
    while !format!("{:?}", w.held.front()).contains("Dentries") {
        let loaded = w.held.pop_front().expect("it loads");
        w.inject(loaded);
    }
    let slot = w.rank.sessions.map[&w.sessions[&REMOTE]].place.expect("a place");
    w.rank.view.book.entrust(slot, dir.ino, None);
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
fn defects_of_what_is_entrusted_are_caught() {
    let defects: [(&str, fn()); 7] = [
        ("mds_lookup_despite_dx", counts_and_the_parent_of_an_entrusted_directory_wait_for_it),
        ("mds_old_stretch", a_listing_that_waited_is_not_an_old_one),
        ("mds_dx_returned_overtakes", what_gives_a_directory_back_does_not_overtake_what_was_performed_there),
        ("mds_early_before_lent", nobody_is_answered_early_before_its_numbers_are_durably_its_own),
        ("mds_dx_fades", what_is_entrusted_outlives_the_connection_and_ends_with_settled_or_the_lease),
        ("mds_number_used_again", a_directory_is_entrusted_to_one_and_recalled_for_others),
        ("mds_redo_end_clean", what_is_made_once_more_begins_without_the_data_of_the_life_before),
    ];
    for (defect, test) in defects {
        stdx::mutant::activate(Some(defect));
        let verdict = std::panic::catch_unwind(test);
        stdx::mutant::activate(None);
        assert!(verdict.is_err(), "{defect}");
    }
}

/// The told time for the directories, and for what moves unless that changed later; what is replaced goes to `//orphans` while
/// somebody has it open.
#[test]
fn a_performed_rename_takes_place_when_it_was_told() {
    let mut w = two();
    let (_, one) = early(&mut w, REMOTE, mkdir("one"));
    let (_, two) = early(&mut w, REMOTE, mkdir("two"));
    let (one, two) = (node(&one.attr), node(&two.attr));
    let numbers = w.rank.session_lent(w.sessions[&REMOTE]);
    let told = |at, wall| Told { ino: Ino(numbers + at), wall, heard: false };
    let before = Wall(w.now as i64);
    perform(&mut w, REMOTE, 500, told(0, before), create(one, "f"));
    perform(&mut w, REMOTE, 501, told(1, before), create(two, "g"));
    let stat = |w: &mut World, ino| {
        let tid = w.start(REMOTE, Cred::ROOT, Request::GetAttr { node: NodeRef::bare(ino) });
        match answer(w, REMOTE, tid) {
            Some(
                ServerMsg::Reply { outcome: Ok(Reply::Attr(attr)), .. }
                | ServerMsg::Granted { outcome: Ok(Reply::Attr(attr)), .. },
            ) => *attr,
            other => panic!("{other:?}"),
        }
    };
    w.pass(100);
    let chmod = proto::SetAttr { mode: Some(0o600), ..proto::SetAttr::default() };
    let set = Request::SetAttr { node: NodeRef::bare(Ino(numbers)), set: chmod };
    let changed = early(&mut w, REMOTE, set).1.attr.ctime;
    let at = Wall(before.0 + 50 * 1_000_000);
    assert!(changed > at);
    let rename = Request::Rename { parent: one, name: n("f"), new_parent: two, new_name: n("g"), flags: 0 };
    perform(&mut w, REMOTE, 502, Told { ino: Ino::NONE, wall: at, heard: false }, rename);
    assert!(matches!(answer(&w, REMOTE, Tid(502)), Some(ServerMsg::Done { .. })), "{:?}", w.sent);
    for dir in [one, two] {
        assert_eq!(stat(&mut w, dir.ino).mtime, at);
    }
    let moved = stat(&mut w, Ino(numbers));
    assert_eq!((moved.ctime, moved.parent), (changed, two.ino));
    // It was opened when it was made.
    assert_eq!(stat(&mut w, Ino(numbers + 1)).nlink, 0);
}
