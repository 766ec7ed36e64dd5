//! Early answers, delegated directories, requests that were performed already.
//!
//! Absent: what clients decide by themselves (`client`), random histories (`sim`).

mod delegated;
mod line;

use super::sessions::{OTHER, REMOTE};
use super::*;
use proto::caps::Returned;
use proto::message::{Delegated, Told};
use proto::request::open_flags;

pub(super) const WANTS: Bits = Bits(Bits::ATTRS.0 | Bits::FC.0 | Bits::DX.0);

/// Two remote sessions that are answered early; the first has made a directory and been given numbers.
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
    pub(super) fn session_delegated(&self, id: SessionId) -> u64 {
        self.sessions.map[&id].delegated[0].next
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
    delegated: Vec<Delegated>,
}

/// The early answer to a request, taken out of what was sent.
fn early(w: &mut World, conn: ConnId, request: Request) -> (Tid, Early) {
    let tid = w.start(conn, Cred::ROOT, request);
    let at = w
        .sent
        .iter()
        .position(|(c, m)| *c == conn && matches!(m, ServerMsg::Early { tid: t, .. } if *t == tid));
    match at.map(|at| w.sent.remove(at).1) {
        Some(ServerMsg::Early { position, wall, outcome, delegated, .. }) => {
            let attr = match outcome {
                Ok(Reply::Attr(attr) | Reply::Created { attr, .. }) => attr,
                _ => Attr::default(),
            };
            (tid, Early { position, wall, attr, delegated })
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

/// REMOTE has made a directory, and in it by itself the file `f`: the directory, and what was told of the file.
fn performed_in_new(w: &mut World) -> (NodeRef, Told) {
    let (_, made) = early(w, REMOTE, mkdir("new"));
    let dir = node(&made.attr);
    let numbers = w.rank.session_delegated(w.sessions[&REMOTE]);
    let told = Told { ino: Ino(numbers), wall: Wall(w.now as i64), heard: false };
    perform(w, REMOTE, 500, told, create(dir, "f"));
    (dir, told)
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

/// What broke: that the session was quiet and is not any more was taken out of the tail as if it had been said just now, and
/// numbers that were delegated later were not told: their client had none from there on.
#[test]
fn who_was_quiet_in_a_former_life_is_told_of_new_numbers() {
    let mut w = two();
    let (_, made) = early(&mut w, REMOTE, mkdir("new"));
    let (dir, session, other) = (node(&made.attr), w.sessions[&REMOTE], w.sessions[&OTHER]);
    for number in 1..5 {
        w.pass(2_000);
        w.say(REMOTE, ClientMsg::Renew { number });
        give_back_all(&mut w);
    }
    assert!(w.rank.sessions.map[&session].quiet);
    w.start(REMOTE, Cred::ROOT, create(dir, "a"));
    assert!(!w.rank.sessions.map[&session].quiet);
    w.crash();
    w.say(EMBEDDED, ClientMsg::Goodbye);
    let conn = ConnId(20);
    for (conn, session) in [(conn, session), (ConnId(21), other)] {
        w.hello(conn, Peer::Trusted, session);
        for message in [ClientMsg::Reclaimed, ClientMsg::Presented, ClientMsg::Settled] {
            w.say(conn, message);
        }
    }
    w.sent.clear();
    let before = w.rank.sessions.map[&session].delegated[0];
    for number in before.next..before.end {
        let told = Told { ino: Ino(number), wall: Wall(w.now as i64), heard: false };
        perform(&mut w, conn, number, told, create(dir, &format!("f{number}")));
    }
    let told = w.sent.iter().filter(|(c, m)| *c == conn && matches!(m, ServerMsg::Numbers { .. })).count();
    assert!(told > 0, "{:?}", w.rank.sessions.map[&session].delegated);
}

/// What broke: its return of the directory lay behind a write that the store did not finish, and it was evicted for that.
#[test]
fn nobody_is_late_for_what_waits_behind_its_own_work() {
    let mut w = two();
    let (dir, told) = performed_in_new(&mut w);
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

/// What broke: whoever resumes and never says that it has presented everything held up all others for ever.
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

/// What broke: a range of numbers that lay in the checkpoint's record and in the tail was the session's twice.
#[test]
fn numbers_are_delegated_once_whatever_says_so() {
    let mut sessions = crate::session::Sessions::default();
    let id = SessionId(7);
    sessions.insert(id, crate::session::Session::default());
    sessions.delegate_inos(id, Ino(8192), 8);
    sessions.delegate_inos(id, Ino(8192), 8);
    sessions.delegate_inos(id, Ino(8200), 8);
    assert_eq!(sessions.map[&id].delegated.len(), 2);
}

/// The number of an inode that is made once more may have data of the life that a crash took back.
#[test]
fn what_is_made_once_more_begins_without_the_data_of_the_life_before() {
    let mut w = two();
    let (_, made) = early(&mut w, REMOTE, mkdir("new"));
    let (dir, session) = (node(&made.attr), w.sessions[&REMOTE]);
    let other = w.sessions[&OTHER];
    w.auto_durable = false;
    let told = Told { ino: Ino(w.rank.session_delegated(session)), wall: Wall(w.now as i64), heard: false };
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

/// The told time for the directories, and for what moves unless that changed later; what is replaced goes to `//orphans` while
/// somebody has it open.
#[test]
fn a_performed_rename_takes_place_when_it_was_told() {
    let mut w = two();
    let (_, one) = early(&mut w, REMOTE, mkdir("one"));
    let (_, two) = early(&mut w, REMOTE, mkdir("two"));
    let (one, two) = (node(&one.attr), node(&two.attr));
    let numbers = w.rank.session_delegated(w.sessions[&REMOTE]);
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

/// What broke: lives of other ranks have the numbers in between, and whoever had synced the bytes in the life before was told that
/// they are lost.
#[test]
fn the_life_before_is_the_ranks_own() {
    let mut w = two();
    let (_, made) = early(&mut w, REMOTE, create(root(), "f"));
    let (session, life) = (w.sessions[&REMOTE], Incarnation(w.incarnation));
    let rewrite = |tid, w: &mut World| {
        let data = vec![1; 10].into();
        let node = node(&made.attr);
        let request = Request::Rewrite { node, wrote: Tid(1), life, append: false, offset: 0, data };
        let told = Told { heard: true, ..Told::default() };
        perform(w, REMOTE, tid, told, request);
        answer(w, REMOTE, Tid(tid)).cloned()
    };
    w.checkpoint();
    for (next, expected) in [(9, Ok(())), (17, Err(Errno::EIO))] {
        let before = Incarnation(w.incarnation);
        w.crash_as(next);
        let welcome = w.hello(REMOTE, Peer::Trusted, session);
        let Some(ServerMsg::Welcome { former, resumed: true, .. }) = welcome else { panic!("{welcome:?}") };
        assert_eq!(former, before);
        w.say(REMOTE, ClientMsg::Reclaimed);
        let answer = rewrite(600 + next, &mut w);
        let outcome = match answer {
            Some(ServerMsg::Done { .. }) => Ok(()),
            Some(ServerMsg::Reply { outcome: Err(errno), .. }) => Err(errno),
            odd => panic!("{odd:?}"),
        };
        assert_eq!(outcome, expected, "life {next}");
    }
}
