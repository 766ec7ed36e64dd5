//! Files that are delegated to one session: when, to whom, and who takes them back.
//!
//! Absent: what its client makes of it (`client`), random histories (`sim`).

use super::early::{WANTS, answer, create, lookup, node, perform, recalled, two_that_want};
use super::sessions::{OTHER, REMOTE};
use super::*;
use proto::caps::Grants;
use proto::message::Told;
use proto::request::open_flags;

fn write(file: NodeRef, offset: u64) -> Request {
    let data = Payload::Owned(vec![7; 4]);
    Request::Write { node: file, offset, append: false, kill_suidgid: false, data }
}

/// What the answer to a request grants, and the attributes in it.
fn granted(w: &mut World, conn: ConnId, request: Request) -> (Bits, Attr) {
    let tid = w.start(conn, Cred::ROOT, request);
    let (outcome, grants) = match answer(w, conn, tid) {
        Some(ServerMsg::Granted { outcome, grants, .. } | ServerMsg::Early { outcome, grants, .. }) => {
            (outcome.clone(), grants.clone())
        }
        Some(ServerMsg::Reply { outcome, .. }) => (outcome.clone(), Grants::None),
        other => panic!("{other:?}"),
    };
    match outcome {
        Ok(Reply::Attr(attr) | Reply::Created { attr, .. } | Reply::Written { attr, .. }) => {
            (grants.of(0), attr)
        }
        other => panic!("{other:?}"),
    }
}

/// The first session has made a file in the root and has it open for writing: the file is delegated to it.
fn held() -> (World, NodeRef) {
    let mut w = two_that_want(WANTS.with(Bits::ALONE));
    let (bits, attr) = granted(&mut w, REMOTE, create(root(), "f"));
    assert!(bits.has(Bits::ALONE), "{bits:?}");
    w.sent.clear();
    (w, node(&attr))
}

#[test]
fn whoever_looks_at_a_file_takes_it_back() {
    let looks: [fn(NodeRef) -> Request; 6] = [
        |file| Request::GetAttr { node: file },
        |_| lookup(root(), "f"),
        |file| Request::Open { node: file, flags: 0 },
        |file| Request::Read { node: file, offset: 0, len: 9, into: None },
        |_| Request::ReadDir { dir: root(), after: 0, attrs: true, bytes_max: 4096 },
        |file| write(file, 0),
    ];
    for look in looks {
        let (mut w, file) = held();
        let slot = w.rank.sessions.map[&w.sessions[&REMOTE]].place.expect("a place");
        // Of the directory the first one keeps more than the file: what is asked for here is the file.
        w.rank.view.book.end_delegated(slot);
        w.rank.view.book.delegate(slot, file.ino, Some(Ino::ROOT));
        let tid = w.start(OTHER, Cred::ROOT, look(file));
        assert!(answer(&w, OTHER, tid).is_none(), "{:?} is answered", look(file));
        let asked = recalled(&mut w, REMOTE);
        let found = asked.iter().find(|item| item.ino == file.ino).expect("it is recalled");
        assert!(found.bits.has(Bits::ALONE));
        // What it has performed comes first.
        let told = Told { ino: Ino::NONE, wall: Wall(w.now as i64), heard: false };
        perform(&mut w, REMOTE, 700, told, write(file, 96));
        let list = asked.iter().map(|item| item.returned(item.bits)).collect();
        w.say(REMOTE, ClientMsg::Returned { list });
        let shown = match answer(&w, OTHER, tid) {
            Some(
                ServerMsg::Reply { outcome, .. }
                | ServerMsg::Granted { outcome, .. }
                | ServerMsg::Early { outcome, .. },
            ) => outcome.clone(),
            other => panic!("{other:?}"),
        };
        match shown {
            Ok(Reply::Attr(attr) | Reply::Written { attr, .. }) => assert_eq!(attr.size, 100),
            Ok(Reply::Data(bytes)) => assert_eq!(bytes.len(), 9),
            Ok(Reply::Entries { entries, .. }) => {
                let file = entries.iter().find(|entry| entry.ino == file.ino).expect("it is listed");
                assert_eq!(file.attr.map(|attr| attr.size), Some(100));
            }
            other => panic!("{other:?}"),
        }
        // Contested: it is served synchronously for a while.
        w.start(REMOTE, Cred::ROOT, write(file, 0));
        assert_eq!(w.rank.view.book.files(slot), 0);
    }
}

#[test]
fn a_file_is_delegated_to_who_alone_has_it_open_for_writing() {
    let (mut w, file) = held();
    let slot = w.rank.sessions.map[&w.sessions[&REMOTE]].place.expect("a place");
    assert_eq!(w.rank.view.book.files(slot), 1);
    assert!(granted(&mut w, REMOTE, write(file, 0)).0.has(Bits::ALONE), "told again");
    w.start(REMOTE, Cred::ROOT, Request::Release { node: file, count: 1 });
    assert_eq!(w.rank.view.book.files(slot), 0, "closed for the last time");
    assert!(!granted(&mut w, REMOTE, write(file, 0)).0.has(Bits::ALONE), "it is not open");
    let open = |flags| Request::Open { node: file, flags };
    assert!(!granted(&mut w, REMOTE, open(0)).0.has(Bits::ALONE), "not for writing");
    assert!(granted(&mut w, REMOTE, open(open_flags::RDWR)).0.has(Bits::ALONE));
    let rename =
        Request::Rename { parent: root(), name: n("f"), new_parent: root(), new_name: n("g"), flags: 0 };
    w.start(REMOTE, Cred::ROOT, rename);
    assert_eq!(w.rank.view.book.files(slot), 0, "another name");
}

/// Defects that random histories hardly ever show.
#[cfg(feature = "mutants")]
#[test]
fn defects_of_looking_are_caught() {
    for defect in ["mds_read_despite_fx", "mds_lookup_despite_fx"] {
        stdx::mutant::activate(Some(defect));
        let verdict = std::panic::catch_unwind(whoever_looks_at_a_file_takes_it_back);
        stdx::mutant::activate(None);
        assert!(verdict.is_err(), "{defect}");
    }
}
