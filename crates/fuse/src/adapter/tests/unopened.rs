//! `noopen`: files that are opened and closed without a word.
//! Absent: what the kernel makes of it; a mount in `tests/requests.rs` and the system tests show that.

use super::*;
use crate::abi::NotifyInvalInodeOut;

fn unopened() -> Kernel {
    Kernel::with(Fake::new(), None, Behaviour { no_open: true, ..Behaviour::default() }, Bits::ATTRS)
}

/// What the rank was asked since the last call, by the names of the requests.
fn asked(kernel: &Kernel) -> Vec<&'static str> {
    let asked = kernel.fake.seen().iter().map(|request| request.kind().name()).collect();
    kernel.fake.clear_seen();
    asked
}

fn opens(kernel: &Kernel, nodeid: u64) -> u32 {
    kernel.fake.opens(Ino(nodeid))
}

/// The kernel hears of a file; whether with its pages.
fn notified_pages(kernel: &Kernel) -> (u64, bool) {
    let (unique, code, body) = kernel.receive();
    assert_eq!((unique, code), (0, abi::NotifyCode::InvalInode as i32));
    let out = NotifyInvalInodeOut::read(&body).expect("a whole notification");
    (out.ino, out.off == 0)
}

#[test]
fn nobody_hears_of_opening_and_closing() {
    let kernel = unopened();
    let (file, opened) = kernel.create(b"f", RDWR);
    assert_eq!((opened.fh, opened.open_flags, file.attr.mode), (0, 0, 0o100_644));
    assert_eq!((file.entry_valid, file.attr_valid), (1, 1));
    assert_eq!((asked(&kernel), opens(&kernel, file.nodeid)), (vec!["mknod"], 0));
    let open = Operation::Open { flags: RDWR, kill_suidgid: false };
    assert_eq!(kernel.ask(file.nodeid, open), Err(libc::ENOSYS));
    kernel.write(file.nodeid, 0, b"hello", RDWR, false).expect("written");
    assert_eq!(kernel.read(file.nodeid), Ok(b"hello".to_vec()));
    assert_eq!(kernel.ask(file.nodeid, release(false)), Ok(Vec::new()));
    assert_eq!(asked(&kernel), ["write", "read"]);
    let (_, opened) = kernel.create(b"g", libc::O_WRONLY as u32);
    assert_eq!(opened.open_flags, DIRECT);
}

#[test]
fn directories_are_opened_as_ever() {
    let kernel = unopened();
    assert!(kernel.ask(1, Operation::OpenDir { flags: 0 }).is_ok());
}

#[test]
fn a_name_that_somebody_else_made_first_is_opened_and_released() {
    let kernel = unopened();
    let (file, _) = kernel.create(b"f", RDWR);
    kernel.write(file.nodeid, 0, b"hello", RDWR, false).expect("written");
    asked(&kernel);
    let (again, _) = kernel.create(b"f", RDWR | libc::O_TRUNC as u32);
    assert_eq!((again.nodeid, again.attr.size, again.attr_valid), (file.nodeid, 0, 0));
    assert_eq!((asked(&kernel), opens(&kernel, file.nodeid)), (vec!["mknod", "create", "release"], 0));
    let flags = RDWR | libc::O_EXCL as u32;
    let operation = Operation::Create { name: b"f", flags, mode: 0o666, umask: 0, kill_suidgid: false };
    assert_eq!(kernel.ask(1, operation), Err(libc::EEXIST));
    assert_eq!(asked(&kernel), ["mknod"]);
}

#[test]
fn what_is_removed_here_lives_while_the_kernel_has_it() {
    let kernel = unopened();
    let (file, _) = kernel.create(b"f", RDWR);
    kernel.ask(1, Operation::Link { target: file.nodeid, name: b"g" }).expect("linked");
    asked(&kernel);
    kernel.ask(1, Operation::Unlink { name: b"g" }).expect("removed");
    assert_eq!((asked(&kernel), opens(&kernel, file.nodeid)), (vec!["lookup", "open", "unlink"], 1));
    let (other, _) = kernel.create(b"h", RDWR);
    asked(&kernel);
    let rename = Operation::Rename { name: b"h", new_parent: 1, new_name: b"f", flags: 0 };
    kernel.ask(1, rename).expect("replaced");
    assert_eq!((asked(&kernel), opens(&kernel, file.nodeid)), (vec!["lookup", "rename"], 1), "kept already");
    kernel.send(file.nodeid, Operation::Forget { nlookup: 1 });
    assert_eq!(opens(&kernel, file.nodeid), 1);
    kernel.send(file.nodeid, Operation::Forget { nlookup: 1 });
    assert_eq!((asked(&kernel), opens(&kernel, file.nodeid)), (vec!["release"], 0));
    kernel.send(other.nodeid, Operation::Forget { nlookup: 1 });
    kernel.ask(1, Operation::Unlink { name: b"f" }).expect("removed");
    assert_eq!(asked(&kernel), ["lookup", "unlink"], "the kernel does not have it");
    assert_eq!(kernel.ask(1, Operation::Unlink { name: b"f" }), Err(libc::ENOENT));
}

#[test]
fn a_file_without_a_name_lives_while_the_kernel_has_it() {
    let kernel = unopened();
    let tmpfile = Operation::TmpFile { flags: RDWR, mode: 0o600, umask: 0 };
    let body = kernel.ask(1, tmpfile).expect("made");
    let out = CreateOut::read(&body).expect("a whole answer");
    assert_eq!((out.open.fh, opens(&kernel, out.entry.nodeid)), (0, 1));
    kernel.send(out.entry.nodeid, Operation::Forget { nlookup: 1 });
    assert_eq!(opens(&kernel, out.entry.nodeid), 0);
}

#[test]
fn pages_go_after_the_rank_was_told() {
    let kernel = unopened();
    let (file, _) = kernel.create(b"f", RDWR);
    kernel.fake.recall(Ino(file.nodeid), Bits::FS, None);
    // The first answer about the node was given a moment ago: its attributes are forgotten twice, and its pages on another thread.
    let mut told = [(); 3].map(|()| notified_pages(&kernel));
    told.sort_unstable();
    assert_eq!(told, [(file.nodeid, false), (file.nodeid, false), (file.nodeid, true)]);
    kernel.fake.wait_returned(1, PATIENCE);
    kernel.fake.recall(Ino(1), Bits::FS, None);
    kernel.fake.wait_returned(2, PATIENCE);
    assert_eq!(notified_pages(&kernel), (1, false), "a directory has none");
}
