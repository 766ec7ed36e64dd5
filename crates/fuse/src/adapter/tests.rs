//! The adapter between a kernel played by a socket pair and the fake rank.
//! Absent: real mounts; those tests live where a server is at hand.

use std::collections::BTreeSet;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ::mount::Settings;
use ::mount::fake::Fake;
use proto::Ino;
use proto::caps::{Bits, Recalled, Returned};
use proto::message::{ClientInfo, ServerMsg};
use proto::request::Request;

use super::*;
use crate::abi::{
    self, AttrOut, CreateOut, DirentHeader, EntryOut, FileLock, Opcode, OpenOut, OutHeader, Plain, fopen,
};
use crate::reply::channel::{Channel, DeviceChannel};
use crate::request::{CopyFileRange, Extensions, Lock, Read, Release, SetAttr, Write};
use crate::transport::device::Device;
use crate::transport::uring::test_ring::Ring;

mod late;
mod listings;
mod prune;
mod recalls;
mod stats;
mod unopened;

const PATIENCE: Duration = Duration::from_secs(20);
const DIRECT: u32 = fopen::DIRECT_IO | fopen::PARALLEL_DIRECT_WRITES;

/// A kernel with one mount, which is granted what it wants.
struct Kernel {
    fake: Fake,
    adapter: Arc<Adapter>,
    /// Outlives the adapter.
    _mount: Arc<Mount>,
    device: Arc<Device>,
    notifier: Notifier,
    socket: OwnedFd,
    unique: AtomicU64,
}

type Reply = Result<Vec<u8>, i32>;

const RDWR: u32 = libc::O_RDWR as u32;

impl Kernel {
    fn new(behaviour: Behaviour) -> Kernel {
        Kernel::of(Fake::new(), None, behaviour)
    }

    fn of(fake: Fake, subdir: Option<&str>, behaviour: Behaviour) -> Kernel {
        Kernel::with(fake, subdir, behaviour, Bits::ATTRS.with(Bits::FC))
    }

    fn with(fake: Fake, subdir: Option<&str>, behaviour: Behaviour, wants: Bits) -> Kernel {
        let mut fds = [0; 2];
        // SAFETY: `fds` has room for the two descriptors.
        let made = unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0, fds.as_mut_ptr()) };
        assert_eq!(made, 0);
        // SAFETY: both were just made and belong to nobody else.
        let (ours, theirs) = unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) };
        let device = Arc::new(Device::new(theirs, 1 << 20));
        let settings = Settings { wants, ..Settings::default() };
        let mount = Mount::open_with(fake.connector(), ClientInfo::default(), settings);
        let mount = mount.expect("the fake welcomes anyone");
        fake.grant(true);
        let adapter = Adapter::new(Arc::clone(&mount), subdir, behaviour).expect("the root is there");
        let negotiated = Negotiated {
            minor: 45,
            offered: Default::default(),
            flags: Default::default(),
            max_write: 1 << 20,
            max_pages: 256,
            max_readahead: 0,
            max_background: 1,
            congestion_threshold: 1,
            time_gran: 1,
        };
        let notifier = Notifier::new(Arc::clone(&device));
        adapter.init(&negotiated, &notifier);
        fake.clear_seen();
        Kernel { fake, adapter, _mount: mount, device, notifier, socket: ours, unique: AtomicU64::new(2) }
    }

    fn send(&self, nodeid: u64, operation: Operation<'_>) -> u64 {
        let unique = self.unique.fetch_add(2, Ordering::Relaxed);
        let (opcode, room) = match operation {
            Operation::ReadDirPlus { size, .. } => (Opcode::ReadDirPlus, size),
            Operation::ReadDir { size, .. }
            | Operation::GetXattr { size, .. }
            | Operation::ListXattr { size } => (Opcode::ReadDir, size),
            Operation::Read(read) => (Opcode::Read, read.size),
            _ => (Opcode::GetAttr, 4095),
        };
        let channel = match operation {
            Operation::Forget { .. } | Operation::Interrupt { .. } => Channel::Closed,
            Operation::Write(write) => {
                let mut message = self.device.buffer();
                message.bytes_mut()[..write.data.len()].copy_from_slice(write.data);
                let data = (Arc::new(message), 0..write.data.len());
                Channel::Device(DeviceChannel::new(Arc::clone(&self.device), Some(data)))
            }
            _ => Channel::Device(DeviceChannel::new(Arc::clone(&self.device), None)),
        };
        let request = KernelRequest {
            unique,
            nodeid,
            uid: 10,
            gid: 20,
            pid: 30,
            extensions: Extensions::default(),
            operation,
        };
        self.adapter.handle(request, KernelReply::new(channel, unique, opcode, room));
        unique
    }

    /// The next message to the kernel: unique number, error, body.
    fn receive(&self) -> (u64, i32, Vec<u8>) {
        let mut buffer = vec![0; (1 << 20) + 4096];
        let fd = self.socket.as_raw_fd();
        // SAFETY: the buffer is writable for its whole length.
        let read = unsafe { libc::read(fd, buffer.as_mut_ptr().cast(), buffer.len()) };
        buffer.truncate(usize::try_from(read).expect("the socket is open"));
        let header = OutHeader::read(&buffer).expect("a whole header");
        (header.unique, header.error, buffer.split_off(size_of::<OutHeader>()))
    }

    fn ask(&self, nodeid: u64, operation: Operation<'_>) -> Reply {
        let sent = self.send(nodeid, operation);
        let (unique, error, body) = self.receive();
        assert_eq!(unique, sent);
        if error == 0 { Ok(body) } else { Err(-error) }
    }

    /// The same where nodes may be forgotten meanwhile.
    fn ask_past(&self, nodeid: u64, operation: Operation<'_>) -> Reply {
        let sent = self.send(nodeid, operation);
        loop {
            match self.receive() {
                (0, ..) => {}
                (unique, error, body) => {
                    assert_eq!(unique, sent);
                    return if error == 0 { Ok(body) } else { Err(-error) };
                }
            }
        }
    }

    fn lookup(&self, name: &[u8]) -> Result<EntryOut, i32> {
        self.lookup_in(1, name)
    }

    fn lookup_in(&self, dir: u64, name: &[u8]) -> Result<EntryOut, i32> {
        self.ask(dir, Operation::Lookup { name }).map(|body| EntryOut::read(&body).expect("an entry"))
    }

    fn getattr(&self, nodeid: u64) -> AttrOut {
        let body = self.ask(nodeid, Operation::GetAttr { fh: None }).expect("attributes");
        AttrOut::read(&body).expect("a whole answer")
    }

    /// The next message, which nobody asked for, and the node it is about.
    fn notified(&self) -> (i32, u64) {
        let (unique, code, body) = self.receive();
        assert_eq!(unique, 0, "not an answer");
        (code, u64::read(&body).expect("a node"))
    }

    fn create(&self, name: &[u8], flags: u32) -> (EntryOut, OpenOut) {
        let operation = Operation::Create { name, flags, mode: 0o666, umask: 0o022, kill_suidgid: false };
        let body = self.ask(1, operation).expect("created");
        let out = CreateOut::read(&body).expect("a whole answer");
        (out.entry, out.open)
    }

    fn open(&self, nodeid: u64, flags: u32) -> OpenOut {
        let body = self.ask(nodeid, Operation::Open { flags, kill_suidgid: false }).expect("opened");
        OpenOut::read(&body).expect("a whole answer")
    }

    fn write(&self, nodeid: u64, offset: u64, data: &[u8], flags: u32, cached: bool) -> Reply {
        let write = Write { fh: 1, offset, data, flags, lock_owner: None, cached, kill_suidgid: false };
        self.ask(nodeid, Operation::Write(write))
    }

    fn read(&self, nodeid: u64) -> Reply {
        self.ask(nodeid, Operation::Read(Read { fh: 1, offset: 0, size: 4096, flags: 0, lock_owner: None }))
    }
}

fn release(flock_unlock: bool) -> Operation<'static> {
    Operation::Release(Release { fh: 1, flags: 0, lock_owner: 5, flush: false, flock_unlock })
}

fn lock(owner: u64, kind: i32, flock: bool) -> Lock {
    Lock {
        fh: 1,
        owner,
        range: FileLock { start: 0, end: i64::MAX as u64, kind: kind as u32, pid: 1 },
        flock,
    }
}

#[test]
fn a_file_is_made_written_read_and_forgotten() {
    let kernel = Kernel::new(Behaviour::default());
    assert_eq!(kernel.lookup(b"f").err(), Some(libc::ENOENT));
    let (entry, opened) = kernel.create(b"f", RDWR);
    assert_eq!((entry.attr.mode, entry.attr.ino), (0o100_644, entry.nodeid));
    assert_eq!((entry.entry_valid, entry.attr_valid), (1, 1), "somewhat less than two seconds");
    assert_eq!(opened.open_flags, 0);
    assert!(kernel.write(entry.nodeid, 0, b"hello", RDWR, false).is_ok());
    assert_eq!(kernel.read(entry.nodeid), Ok(b"hello".to_vec()));
    assert_eq!(kernel.fake.opens(proto::Ino(entry.nodeid)), 1);
    assert_eq!(kernel.ask(entry.nodeid, release(false)), Ok(Vec::new()));
    assert_eq!(kernel.fake.opens(proto::Ino(entry.nodeid)), 0);
    kernel.lookup(b"f").expect("still there");
    assert_eq!(kernel.adapter.shared.nodes.lookups(entry.nodeid), 2);
    kernel.send(entry.nodeid, Operation::Forget { nlookup: 2 });
    assert_eq!(kernel.adapter.shared.nodes.lookups(entry.nodeid), 0);
}

#[test]
fn the_place_of_a_node_goes_with_its_number() {
    let kernel = Kernel::new(Behaviour::default());
    let (entry, _) = kernel.create(b"f", RDWR);
    kernel.fake.clear_seen();
    kernel.ask(entry.nodeid, Operation::GetAttr { fh: None }).expect("attributes");
    let seen = kernel.fake.seen();
    let Some(Request::GetAttr { node }) = seen.first() else { panic!("not asked for attributes") };
    assert_eq!((node.parent, node.hash != proto::NameHash(0)), (proto::Ino::ROOT, true));
}

#[test]
fn appending_ignores_the_offset_except_from_a_mapping() {
    let kernel = Kernel::new(Behaviour::default());
    let flags = (libc::O_WRONLY | libc::O_APPEND) as u32;
    let (entry, opened) = kernel.create(b"f", flags);
    assert_ne!(opened.open_flags & fopen::DIRECT_IO, 0, "it cannot read: no cache for it");
    kernel.write(entry.nodeid, 77, b"ab", flags, false).expect("at the end");
    kernel.write(entry.nodeid, 77, b"cd", flags, false).expect("at the end");
    kernel.write(entry.nodeid, 1, b"X", flags, true).expect("in its place");
    assert_eq!(kernel.read(entry.nodeid), Ok(b"aXcd".to_vec()));
}

/// Seconds for which a name and attributes are kept: none, or one and a bit.
fn kept(entry: &EntryOut) -> (u64, u64) {
    (entry.entry_valid, entry.attr_valid)
}

#[test]
fn a_name_is_kept_where_it_is_the_primary_one_and_attributes_where_they_are_compared() {
    let kernel = Kernel::new(Behaviour::default());
    let mkdir = Operation::MkDir { name: b"d", mode: 0o755, umask: 0 };
    let dir = kernel.ask(1, mkdir).map(|body| EntryOut::read(&body).expect("an entry")).expect("made");
    assert_eq!(kept(&dir), (1, 1));
    let (file, _) = kernel.create(b"f", RDWR);
    assert_eq!((kept(&file), kept(&kernel.lookup(b"f").expect("there"))), ((1, 1), (1, 1)));
    let (again, opened) = kernel.create(b"f", RDWR);
    assert_eq!((kept(&again), opened.open_flags), ((0, 0), DIRECT), "the kernel may have it already");
    assert_eq!(kernel.getattr(file.nodeid).attr_valid, 1);
    let chmod = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    let body = kernel.ask(file.nodeid, Operation::SetAttr(chmod)).expect("changed");
    assert_eq!(AttrOut::read(&body).map(|out| (out.attr_valid, out.attr_valid_nsec)), Some((0, 0)));
    let link = Operation::Link { target: file.nodeid, name: b"g" };
    let body = kernel.ask(dir.nodeid, link).expect("linked");
    assert_eq!(EntryOut::read(&body).map(|entry| kept(&entry)), Some((0, 0)));
    let second = kernel.lookup_in(dir.nodeid, b"g").expect("there");
    assert_eq!((kept(&second), second.entry_valid_nsec), ((0, 1), 0), "not its primary name");
    kernel.fake.grant(false);
    assert_eq!(kept(&kernel.lookup(b"f").expect("there")), (0, 0));
    assert_eq!(kernel.lookup(b"none").err(), Some(libc::ENOENT), "absent names are never kept");
}

#[test]
fn what_has_no_xattrs_is_not_asked_for_them() {
    let kernel = Kernel::new(Behaviour::default());
    let (entry, _) = kernel.create(b"f", RDWR);
    kernel.fake.clear_seen();
    let get = |name, size| kernel.ask(entry.nodeid, Operation::GetXattr { name, size });
    assert_eq!(get(b"security.capability", 0), Err(libc::ENODATA));
    assert_eq!(kernel.ask(entry.nodeid, Operation::ListXattr { size: 100 }), Ok(Vec::new()));
    assert_eq!(kernel.fake.seen(), []);
    assert_eq!(get(b"pando.durable", 0), Err(libc::ENODATA));
    assert_eq!(kernel.fake.seen().len(), 1, "virtual ones are the rank's");
    let set = Operation::SetXattr { name: b"user.a", value: b"value", flags: 0, acl_kill_sgid: false };
    assert_eq!(kernel.ask(entry.nodeid, set), Ok(Vec::new()));
    assert_eq!(get(b"user.a", 100), Ok(b"value".to_vec()));
    assert_eq!(get(b"user.a", 0).map(|body| u32::read(&body)), Ok(Some(5)));
    assert_eq!(get(b"user.a", 2), Err(libc::ERANGE));
    kernel.fake.grant(false);
    let (other, _) = kernel.create(b"g", RDWR);
    kernel.fake.clear_seen();
    let get = Operation::GetXattr { name: b"security.capability", size: 0 };
    assert_eq!(kernel.ask(other.nodeid, get), Err(libc::ENODATA));
    assert_eq!(kernel.fake.seen().len(), 1, "another client may have set one");
}

/// What broke: the kernel lets whoever may write set them, and the rank takes the word of a mount that may act for anyone.
#[test]
fn policies_are_not_for_everybody() {
    let kernel = Kernel::new(Behaviour::default());
    kernel.fake.clear_seen();
    for name in ["dir.pin", "dir.pin.distributed", "dir.pin.random", "dir.bal.mask", "dir.placement"] {
        for name in [format!("ceph.{name}"), format!("pando.{name}")] {
            let name = name.as_bytes();
            let set = Operation::SetXattr { name, value: b"1", flags: 0, acl_kill_sgid: false };
            assert_eq!(kernel.ask(1, set), Err(libc::EPERM));
            assert_eq!(kernel.ask(1, Operation::RemoveXattr { name }), Err(libc::EPERM));
        }
    }
    assert_eq!(kernel.fake.seen(), [], "the rank is not asked");
    kernel.ask(1, Operation::GetXattr { name: b"ceph.dir.pin", size: 100 }).expect_err("absent");
    assert_eq!(kernel.fake.seen().len(), 1, "anybody may look");
}

#[test]
fn an_acl_by_a_stranger_drops_setgid() {
    let kernel = Kernel::new(Behaviour::default());
    let (entry, _) = kernel.create(b"f", RDWR);
    let chmod = SetAttr { mode: Some(0o2755), ..SetAttr::default() };
    kernel.ask(entry.nodeid, Operation::SetAttr(chmod)).expect("changed");
    let name = b"system.posix_acl_access";
    let acl = Operation::SetXattr { name, value: b"v", flags: 0, acl_kill_sgid: true };
    kernel.ask(entry.nodeid, acl).expect("set");
    let body = kernel.ask(entry.nodeid, Operation::GetAttr { fh: None }).expect("attributes");
    assert_eq!(AttrOut::read(&body).map(|out| out.attr.mode), Some(0o100_755));
    let kernel = Kernel::new(Behaviour { no_acl: true, ..Behaviour::default() });
    assert_eq!(kernel.ask(1, Operation::GetXattr { name, size: 0 }), Err(libc::EOPNOTSUPP));
}

#[test]
fn closing_drops_fcntl_locks_and_the_last_close_flock() {
    let kernel = Kernel::new(Behaviour::default());
    let (entry, _) = kernel.create(b"f", RDWR);
    let flush = Operation::Flush { fh: 1, lock_owner: 5 };
    kernel.fake.clear_seen();
    assert_eq!(kernel.ask(entry.nodeid, flush), Ok(Vec::new()));
    assert_eq!(kernel.fake.seen(), [], "nothing to drop, nobody to ask");
    for flock in [false, true] {
        let lock = lock(5, libc::F_WRLCK, flock);
        kernel.ask(entry.nodeid, Operation::SetLk { lock, sleep: false }).expect("granted");
    }
    assert_eq!(kernel.fake.locks(), (2, 0), "the two kinds do not see each other");
    let other = Operation::GetLk(lock(6, libc::F_WRLCK, false));
    let found = kernel.ask(entry.nodeid, other).map(|body| FileLock::read(&body).map(|lock| lock.kind));
    assert_eq!(found, Ok(Some(libc::F_WRLCK as u32)));
    kernel.ask(entry.nodeid, flush).expect("dropped");
    assert_eq!(kernel.fake.locks(), (1, 0));
    kernel.ask(entry.nodeid, release(true)).expect("dropped");
    assert_eq!(kernel.fake.locks(), (0, 0));
}

#[test]
fn a_signal_ends_a_wait_for_a_lock_and_nothing_else() {
    let kernel = Kernel::new(Behaviour::default());
    let (entry, _) = kernel.create(b"f", RDWR);
    let held = Operation::SetLk { lock: lock(5, libc::F_WRLCK, true), sleep: true };
    kernel.ask(entry.nodeid, held).expect("granted");
    let waiting =
        kernel.send(entry.nodeid, Operation::SetLk { lock: lock(6, libc::F_WRLCK, true), sleep: true });
    assert_eq!(kernel.fake.locks(), (1, 1));
    kernel.send(0, Operation::Interrupt { unique: waiting });
    let (unique, error, _) = kernel.receive();
    assert_eq!((unique, -error), (waiting, libc::EINTR));
    assert_eq!(kernel.fake.locks(), (1, 0));
    let unlock = Operation::SetLk { lock: lock(5, libc::F_UNLCK, true), sleep: false };
    kernel.ask(entry.nodeid, unlock).expect("unlocked");
}

#[test]
fn a_read_only_mount_changes_nothing() {
    let kernel = Kernel::new(Behaviour { read_only: true, ..Behaviour::default() });
    let mkdir = Operation::MkDir { name: b"d", mode: 0o755, umask: 0 };
    assert_eq!(kernel.ask(1, mkdir), Err(libc::EROFS));
    assert_eq!(kernel.ask(1, Operation::Open { flags: RDWR, kill_suidgid: false }), Err(libc::EROFS));
    assert!(kernel.ask(1, Operation::GetAttr { fh: None }).is_ok());
    let touched = kernel.fake.seen().iter().any(|ask| !matches!(ask, Request::GetAttr { .. }));
    assert!(!touched);
}

#[test]
fn what_must_be_durable_is_synced_before_the_answer() {
    let kernel = Kernel::new(Behaviour { sync_names: true, ..Behaviour::default() });
    let mkdir = Operation::MkDir { name: b"d", mode: 0o755, umask: 0 };
    kernel.ask(1, mkdir).expect("made");
    assert!(matches!(kernel.fake.seen()[..], [Request::MkDir { .. }, Request::Fsync { .. }]));
    let kernel = Kernel::new(Behaviour::default());
    let (entry, _) = kernel.create(b"f", RDWR);
    kernel.fake.clear_seen();
    kernel.write(entry.nodeid, 0, b"a", RDWR | libc::O_DSYNC as u32, false).expect("written");
    assert!(matches!(kernel.fake.seen()[..], [Request::Write { .. }, Request::Fsync { .. }]));
}

#[test]
fn a_subdirectory_can_be_the_root() {
    let fake = Fake::new();
    let mount = Mount::open(fake.connector(), ClientInfo::default()).expect("the fake welcomes anyone");
    let fs = Fs::new(mount, Cred::ROOT);
    fs.mkdir_all("/a/b", 0o755).expect("two levels");
    fs.write("/a/b/f", b"x").expect("a file");
    assert_eq!(
        Adapter::new(Arc::clone(fs.mount()), Some("a/b/f"), Behaviour::default()).err(),
        Some(Errno::ENOTDIR)
    );
    let kernel = Kernel::of(fake, Some("/a/b"), Behaviour::default());
    let entry = kernel.lookup(b"f").expect("in the root");
    assert_ne!(entry.nodeid, 1);
    assert_eq!(kernel.lookup(b"..").map(|entry| entry.nodeid), Ok(1), "nothing lies above the root");
}

#[test]
fn names_and_requests_that_cannot_be_have_their_errors() {
    let kernel = Kernel::new(Behaviour::default());
    assert_eq!(kernel.lookup(&[b'a'; 256]).err(), Some(libc::ENAMETOOLONG));
    let name = [b'a'; 256];
    assert_eq!(kernel.ask(1, Operation::GetXattr { name: &name, size: 0 }), Err(libc::ERANGE));
    assert_eq!(kernel.ask(1, Operation::Access { mask: 4 }), Err(libc::ENOSYS));
    assert_eq!(kernel.ask(1, Operation::Poll { fh: 0, kh: 0, flags: 0, events: 0 }), Err(libc::ENOSYS));
    assert_eq!(kernel.ask(1, Operation::ReadDir { fh: 99, offset: 0, size: 4096 }), Err(libc::EBADF));
    assert_eq!(kernel.ask(1, Operation::Lseek { fh: 0, offset: 0, whence: 0 }), Err(libc::EINVAL));
    assert_eq!(kernel.ask(4711, Operation::GetAttr { fh: None }), Err(libc::ESTALE));
    assert!(kernel.ask(1, Operation::StatFs).is_ok());
}
