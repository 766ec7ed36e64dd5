//! What the kernel may keep, and what takes it back.
//!
//! Absent: files that may be open unsaid (`unopened.rs`).

use super::*;
use crate::adapter::name_drops::NameDrop;

#[test]
fn pages_are_kept_while_fc_is_held() {
    let kernel = Kernel::new(Behaviour::default());
    let (entry, _) = kernel.create(b"f", RDWR);
    let open = |flags| kernel.open(entry.nodeid, flags).open_flags;
    assert_eq!(open(RDWR), fopen::KEEP_CACHE);
    kernel.fake.recall(Ino(entry.nodeid), Bits::FC, None);
    assert_eq!(kernel.notified(), (abi::NotifyCode::InvalInode as i32, entry.nodeid));
    kernel.fake.wait_returned(1, PATIENCE);
    assert_eq!(kernel.fake.returned(), [Returned { ino: Ino(entry.nodeid), bits: Bits::FC, number: 0 }]);
    assert_eq!(open(RDWR), 0, "what came between may have been written");
    assert_eq!(open(RDWR), fopen::KEEP_CACHE);
    assert_eq!(open(RDWR | libc::O_APPEND as u32), DIRECT, "the kernel may not know where the end is");
    kernel.fake.grant(false);
    assert_eq!(open(RDWR), DIRECT);
    kernel.fake.grant(true);
    assert_eq!(open(RDWR), 0);
}

#[test]
fn pages_of_what_the_kernel_has_forgotten_are_offered() {
    let kernel = Kernel::new(Behaviour::default());
    let (open, _) = kernel.create(b"open", RDWR);
    let (closed, _) = kernel.create(b"closed", RDWR);
    kernel.ask(closed.nodeid, release(false)).expect("closed");
    // A kernel does not forget what is open; if it did, nothing would come of it.
    for nodeid in [open.nodeid, closed.nodeid] {
        kernel.send(nodeid, Operation::Forget { nlookup: 1 });
    }
    assert_eq!(kernel.fake.wait_offered(1, PATIENCE), [Ino(closed.nodeid)]);
}

#[test]
fn a_broken_connection_ends_what_was_granted() {
    let kernel = Kernel::new(Behaviour::default());
    let (entry, _) = kernel.create(b"f", RDWR);
    kernel.fake.cut();
    assert_eq!(
        kernel.notified(),
        (abi::NotifyCode::InvalInode as i32, entry.nodeid),
        "pages have no timeout"
    );
    assert_eq!(kernel.open(entry.nodeid, RDWR).open_flags, DIRECT);
    assert_eq!(kernel.getattr(entry.nodeid).attr_valid, 0, "nothing is granted before Settled");
}

/// What broke: the pages of all other files stayed until that READ was answered, and the rank lets others write before.
#[test]
fn what_no_read_has_locked_is_dropped_first() {
    for reading in 0..2 {
        let kernel = Kernel::new(Behaviour::default());
        let files = [b"f", b"g"].map(|name| kernel.create(name, RDWR).0.nodeid);
        kernel.fake.hold();
        let read = Read { fh: 1, offset: 0, size: 4096, flags: 0, lock_owner: None };
        kernel.send(files[reading], Operation::Read(read));
        kernel.fake.cut();
        let dropped = |nodeid| (abi::NotifyCode::InvalInode as i32, nodeid);
        assert_eq!(kernel.notified(), dropped(files[1 - reading]));
        assert_eq!(kernel.notified(), dropped(files[reading]));
    }
}

/// What broke: a LOOKUP and a listing with attributes that were planned before the rename took away the mark that its recall had set.
#[test]
fn an_answer_that_is_older_than_the_recall_of_a_name_leaves_the_node_stale() {
    let kernel = Kernel::new(Behaviour::default());
    let (file, _) = kernel.create(b"f", RDWR);
    kernel.ask(file.nodeid, release(false)).expect("closed");
    // No drop of a name is ever over.
    kernel.adapter.shared.droppers.names.end();
    let dir = kernel.ask(1, Operation::OpenDir { flags: 0 }).expect("opened");
    let fh = OpenOut::read(&dir).expect("a whole answer").fh;
    let list = Operation::ReadDirPlus { fh, offset: 0, size: 4096 };
    for (ask, link) in [(list, b"g"), (Operation::Lookup { name: b"f" }, b"h")] {
        kernel.fake.hold();
        let asked = kernel.send(1, ask);
        let name = Some((Ino::ROOT, proto::Name::new(b"f").expect("a name")));
        let recalled = Recalled { ino: Ino(file.nodeid), bits: Bits::LS, number: 0, name };
        kernel.fake.release_with(&ServerMsg::Recall { list: vec![recalled] });
        while kernel.receive().0 != asked {}
        kernel.fake.hold_only(|_| false);
        let link = Operation::Link { target: file.nodeid, name: link };
        assert_eq!(kernel.ask_past(1, link).err(), Some(libc::ESTALE), "by the name that is gone");
        kernel.ask_past(1, Operation::Lookup { name: b"f" }).expect("there");
        kernel.ask_past(1, link).expect("found by a name that is right");
    }
}

/// What broke: another mount renamed a file, who looked for it by its new name took the mark away, and the old name, which no thread had
/// dropped yet, led to it for some milliseconds more. Whoever comes to it by a name waits for the drop, and looks again.
#[test]
fn who_comes_to_a_stale_node_looks_again_when_its_old_name_is_dropped() {
    let kernel = Kernel::new(Behaviour::default());
    let (file, _) = kernel.create(b"f", RDWR);
    kernel.ask(file.nodeid, release(false)).expect("closed");
    let shared = &kernel.adapter.shared;
    let drop = |stamp| NameDrop {
        parent: 1,
        name: proto::Name::new(b"f").expect("a name"),
        nodeid: file.nodeid,
        stamp,
    };
    // From here on what is asked for is younger than a recall of stamp 1.
    kernel.fake.recall(Ino(4711), Bits::ATTRS, None);
    kernel.fake.wait_returned(1, PATIENCE);
    // Not begun: no thread has come to it.
    let announced = shared.droppers.names.announce(drop(1));
    assert!(shared.nodes.recall(file.nodeid, Bits::LS, true, 1).is_some());
    kernel.ask_past(1, Operation::Lookup { name: b"f" }).expect("by its new name, as it were");
    assert!(!shared.nodes.is_to_be_found(file.nodeid), "asked for after the recall");
    let waits = kernel.send(file.nodeid, Operation::GetAttr { fh: None });
    kernel.ask_past(1, Operation::GetAttr { fh: None }).expect("others are answered");
    assert!(kernel.adapter.shared.is_waited_for(file.nodeid));
    shared.droppers.names.begin(announced, None);
    let (mut dropped, mut answer) = (false, None);
    while answer.is_none() {
        match kernel.receive() {
            (0, code, _) => dropped |= code == abi::NotifyCode::InvalEntry as i32,
            (unique, error, _) if unique == waits => answer = Some((dropped, error)),
            (unique, ..) => unreachable!("{unique}"),
        }
    }
    assert_eq!(answer, Some((true, -libc::ESTALE)));
    kernel.ask_past(file.nodeid, Operation::GetAttr { fh: None }).expect("it is not stale any more");
}

/// The directory may be locked by a request that its rank does not answer.
#[test]
fn nobody_waits_for_a_name_without_end() {
    let kernel = Kernel::new(Behaviour::default());
    let (file, _) = kernel.create(b"f", RDWR);
    kernel.ask(file.nodeid, release(false)).expect("closed");
    kernel.adapter.shared.droppers.names.end();
    kernel.fake.recall(Ino(file.nodeid), Bits::LS, Some((Ino::ROOT, b"f")));
    kernel.fake.wait_returned(1, PATIENCE);
    let open = Operation::Open { flags: RDWR, kill_suidgid: false };
    assert_eq!(kernel.ask_past(file.nodeid, open).err(), Some(libc::ESTALE));
    kernel.ask_past(file.nodeid, open).expect("believed from then on");
    kernel.ask_past(file.nodeid, release(false)).expect("closed");
}

#[test]
fn a_recall_voids_an_answer_on_its_way() {
    let kernel = Kernel::new(Behaviour::default());
    let (file, _) = kernel.create(b"f", RDWR);
    let recalled = Recalled { ino: Ino(file.nodeid), bits: Bits::AS, number: 0, name: None };
    kernel.fake.hold();
    let asked = kernel.send(file.nodeid, Operation::GetAttr { fh: None });
    kernel.fake.release_with(&ServerMsg::Recall { list: vec![recalled] });
    // The attributes are forgotten, and once more where the first answer about it may be on its way.
    let answer = loop {
        match kernel.receive() {
            (0, code, _) => assert_eq!(code, abi::NotifyCode::InvalInode as i32),
            (unique, error, body) => {
                assert_eq!((unique, error), (asked, 0));
                break AttrOut::read(&body).expect("a whole answer");
            }
        }
    };
    assert_eq!((answer.attr_valid, answer.attr_valid_nsec), (0, 0));
    kernel.fake.wait_returned(1, PATIENCE);
    let bits = Bits::ATTRS.without(Bits::LS);
    assert_eq!(kernel.fake.returned(), [Returned { ino: Ino(file.nodeid), bits, number: 0 }]);
}

#[test]
fn what_the_kernel_does_not_have_goes_back_at_once_and_its_name_is_dropped() {
    let kernel = Kernel::new(Behaviour::default());
    kernel.fake.recall(Ino(4711), Bits::ATTRS.with(Bits::FC), Some((Ino::ROOT, b"f")));
    kernel.fake.wait_returned(1, PATIENCE);
    // It may have moved another inode there, in the place of this one.
    assert_eq!(kernel.notified(), (abi::NotifyCode::InvalEntry as i32, 1));
    kernel.fake.recall(Ino(4711), Bits::ATTRS.with(Bits::FC), None);
    kernel.fake.wait_returned(2, PATIENCE);
    assert!(kernel.ask(1, Operation::GetAttr { fh: None }).is_ok(), "nothing was dropped before this answer");
}

#[test]
fn a_name_that_goes_is_dropped_in_its_directory() {
    let kernel = Kernel::new(Behaviour::default());
    let (file, _) = kernel.create(b"f", RDWR);
    kernel.fake.recall(Ino(file.nodeid), Bits::LS, Some((Ino::ROOT, b"f")));
    let (mut entries, mut nodes) = (0, 0);
    while entries == 0 || nodes == 0 {
        match kernel.notified() {
            (code, 1) if code == abi::NotifyCode::InvalEntry as i32 => entries += 1,
            (_, nodeid) => nodes += usize::from(nodeid == file.nodeid),
        }
    }
    kernel.fake.wait_returned(1, PATIENCE);
}

/// What broke: the answer that makes a node lay with a ring thread that handled other requests first, for longer than it was
/// waited for; the kernel took it in when what it said had been changed.
#[test]
fn attributes_go_back_when_the_ring_that_was_given_the_first_answer_is_rid_of_it() {
    let kernel = Kernel::new(Behaviour::default());
    let (ring, outgoing) = Ring::new();
    kernel.notifier.rings_started(outgoing);
    kernel.fake.recall(Ino(4711), Bits::ATTRS, None);
    kernel.fake.wait_returned(1, PATIENCE);
    let (file, _) = kernel.create(b"f", RDWR);
    ring.answer();
    kernel.fake.recall(Ino(file.nodeid), Bits::AS, None);
    let forgotten = || assert_eq!(kernel.notified(), (abi::NotifyCode::InvalInode as i32, file.nodeid));
    forgotten();
    ring.wait_awaited(PATIENCE);
    assert_eq!(kernel.fake.returned().len(), 1, "the kernel may not have it yet");
    ring.commit();
    forgotten();
    kernel.fake.wait_returned(2, PATIENCE);
}

#[test]
fn the_name_of_a_directory_goes_back_when_it_is_dropped() {
    let kernel = Kernel::new(Behaviour::default());
    let made = kernel.ask(1, Operation::MkDir { name: b"d", mode: 0o755, umask: 0 }).expect("made");
    let dir = EntryOut::read(&made).expect("an entry").nodeid;
    kernel.fake.recall(Ino(dir), Bits::AS, None);
    kernel.fake.wait_returned(1, PATIENCE);
    // That was when its first answer had come.
    let forgotten = (abi::NotifyCode::InvalInode as i32, dir);
    assert_eq!([kernel.notified(), kernel.notified()], [forgotten, forgotten]);
    kernel.fake.recall(Ino(dir), Bits::LS, Some((Ino::ROOT, b"d")));
    kernel.fake.wait_returned(2, PATIENCE);
    let told = [kernel.notified(), kernel.notified()];
    assert!(told.contains(&(abi::NotifyCode::InvalEntry as i32, 1)), "{told:?}");
}
