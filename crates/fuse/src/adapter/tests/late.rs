//! A session that is answered early: what it performs by itself, and errors that come too late.
//! Absent: what may be performed; the client has tests of that.

use super::*;

/// A kernel whose session works in `/d`, which is delegated to it.
fn early() -> (Kernel, u64) {
    early_with(Behaviour::default())
}

fn early_with(behaviour: Behaviour) -> (Kernel, u64) {
    let wants = Bits::ATTRS.with(Bits::FC).with(Bits::DX);
    let kernel = Kernel::with(Fake::new().early(), None, behaviour, wants);
    let mkdir = Operation::MkDir { name: b"d", mode: 0o755, umask: 0 };
    let dir = EntryOut::read(&kernel.ask(1, mkdir).expect("made")).expect("an entry");
    kernel.fake.clear_seen();
    (kernel, dir.nodeid)
}

fn create(kernel: &Kernel, dir: u64, name: &[u8]) -> (u64, u64) {
    let operation = Operation::Create { name, flags: RDWR, mode: 0o666, umask: 0, kill_suidgid: false };
    let body = kernel.ask(dir, operation).expect("created");
    let out = CreateOut::read(&body).expect("a whole answer");
    assert_eq!((out.entry.entry_valid, out.entry.attr_valid), (1, 1), "granted by the client itself");
    (out.entry.nodeid, out.open.fh)
}

fn write(kernel: &Kernel, nodeid: u64, fh: u64, flags: u32) -> Reply {
    let (data, lock_owner) = (&b"abc"[..], None);
    let write = Write { fh, offset: 0, data, flags, lock_owner, cached: false, kill_suidgid: false };
    kernel.ask(nodeid, Operation::Write(write))
}

fn closed(fh: u64) -> Operation<'static> {
    Operation::Release(Release { fh, flags: 0, lock_owner: 0, flush: false, flock_unlock: false })
}

fn no_space(request: &Request) -> Option<Errno> {
    matches!(request, Request::Write { .. }).then_some(Errno::ENOSPC)
}

#[test]
fn names_are_made_without_asking() {
    let (kernel, dir) = early();
    assert_eq!(kernel.lookup_in(dir, b"f").err(), Some(libc::ENOENT));
    let (file, fh) = create(&kernel, dir, b"f");
    assert!(write(&kernel, file, fh, RDWR).is_ok());
    assert_eq!(kernel.getattr(file).attr.size, 3);
    assert_eq!(kernel.ask(dir, Operation::Unlink { name: b"f" }), Ok(Vec::new()));
    assert_eq!(kernel.fake.seen(), [], "nobody was asked");
    kernel.ask(file, closed(fh)).expect("behind its making");
    assert_eq!(kernel.fake.performed().len(), 3);
    assert_eq!(kernel.fake.opens(Ino(file)), 0);
    kernel.fake.durable();
}

#[test]
fn each_handle_hears_of_a_late_error_once_at_sync_or_close() {
    let (kernel, dir) = early();
    kernel.fake.fail_performed(no_space);
    let (file, first) = create(&kernel, dir, b"f");
    let second = kernel.open(file, RDWR).fh;
    assert_ne!(first, second);
    assert!(write(&kernel, file, first, RDWR).is_ok(), "it was told so");
    let sync = |fh| kernel.ask(file, Operation::FSync { fh, data_only: false });
    let flush = |fh| kernel.ask(file, Operation::Flush { fh, lock_owner: 5 });
    assert_eq!((sync(first), sync(first)), (Err(libc::ENOSPC), Ok(Vec::new())));
    assert_eq!((flush(second), flush(second)), (Err(libc::ENOSPC), Ok(Vec::new())));
    let third = kernel.open(file, RDWR).fh;
    assert_eq!(sync(third), Ok(Vec::new()), "others have heard of it");
    let all = || kernel.ask(1, Operation::SyncFs);
    assert_eq!((all(), all()), (Err(libc::ENOSPC), Ok(Vec::new())));
    // With locks a close asks the rank, and tells all the same; a write that is to be durable tells as well.
    let (file, fh) = create_at_rank(&kernel, dir, b"g");
    kernel
        .ask(file, Operation::SetLk { lock: lock(5, libc::F_WRLCK, false), sleep: false })
        .expect("granted");
    assert!(write(&kernel, file, fh, RDWR).is_ok());
    assert_eq!(kernel.ask(file, Operation::Flush { fh, lock_owner: 5 }), Err(libc::ENOSPC));
    kernel.fake.durable();
}

/// After an error names are looked up again before they are made.
fn create_at_rank(kernel: &Kernel, dir: u64, name: &[u8]) -> (u64, u64) {
    kernel.ask(dir, Operation::GetAttr { fh: None }).expect("attributes");
    assert_eq!(kernel.lookup_in(dir, name).err(), Some(libc::ENOENT));
    create(kernel, dir, name)
}

#[test]
fn a_directory_tells_whoever_syncs_it() {
    let (kernel, dir) = early();
    kernel.fake.fail_performed(|request| matches!(request, Request::Create { .. }).then_some(Errno::EDQUOT));
    let (_, fh) = create(&kernel, dir, b"f");
    let opened = kernel.ask(dir, Operation::OpenDir { flags: 0 }).expect("opened");
    let dir_fh = OpenOut::read(&opened).expect("a whole answer").fh;
    assert_ne!(fh, dir_fh, "numbers are those of one mount");
    let sync = || kernel.ask(dir, Operation::FSyncDir { fh: dir_fh, data_only: false });
    assert_eq!((sync(), sync()), (Err(libc::EDQUOT), Ok(Vec::new())), "opened after it, the first to ask");
    kernel.fake.durable();
}

/// What broke: what had been copied, or allocated, was lost before it was synced; that was told late, and its caller heard of success.
#[test]
fn a_synchronous_copy_says_that_its_bytes_are_lost() {
    let (kernel, dir) = early_with(Behaviour { sync_all: true, ..Behaviour::default() });
    let (source, source_fh) = create(&kernel, dir, b"source");
    assert!(write(&kernel, source, source_fh, RDWR).is_ok());
    let (target, first) = create(&kernel, dir, b"target");
    // Each handle hears of what is lost once; the first one hears of it as it loses it.
    let handles: Vec<u64> = (0..2).map(|_| kernel.open(target, RDWR).fh).collect();
    kernel.fake.fail_performed(no_space);
    assert_eq!(write(&kernel, target, first, RDWR), Err(libc::ENOSPC));
    let copy = |fh_out| {
        let copy = CopyFileRange {
            fh_in: source_fh,
            offset_in: 0,
            nodeid_out: target,
            fh_out,
            offset_out: 0,
            length: 3,
            flags: 0,
        };
        kernel.ask(source, Operation::CopyFileRange(copy)).map(|_| ())
    };
    let allocate = |fh| {
        let operation = Operation::Fallocate { fh, offset: 0, length: 3, mode: 0 };
        kernel.ask(target, operation).map(|_| ())
    };
    assert_eq!((copy(handles[0]), copy(handles[0])), (Err(libc::ENOSPC), Ok(())));
    assert_eq!((allocate(handles[1]), allocate(handles[1])), (Err(libc::ENOSPC), Ok(())));
    kernel.fake.durable();
}
