//! The transport against the real kernel: the null responder mounted by both transports.
//! Absent: file-system semantics beyond what the null responder has. Needs root and /dev/fuse.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use fuse::null::{Null, NullOptions};
use fuse::{
    Config, Handler, KernelMount, KernelReply, KernelRequest, MountError, Mounter, Negotiated, Notifier,
    Operation, Transport, Unmount, UnmountError, mount,
};

#[path = "mount/batches.rs"]
mod batches;

const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// A directory that is unmounted and removed in the end, also when a test fails.
struct Place(PathBuf);

impl Place {
    fn new() -> Place {
        assert!(
            Path::new("/dev/fuse").exists(),
            "these tests need /dev/fuse: run them where FUSE is available"
        );
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("fuse-test-{}-{}", process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::DirBuilder::new().mode(0o755).create(&path).expect("make a mount point");
        Place(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Usually nothing is mounted any more; then there is only the directory to remove.
        let _not_mounted = fuse::unmount(&self.0, Unmount::Force);
        let _reported_by_the_test = fs::remove_dir(&self.0);
    }
}

fn config(transport: Transport) -> Config {
    Config { transport, ..Config::default() }
}

fn mount_null(place: &Place, config: &Config, options: NullOptions) -> KernelMount {
    let handler = Arc::new(Null::new(options).expect("a null responder"));
    match mount(&place.0, config, handler) {
        Ok(session) => session,
        Err(error @ MountError::NotPermitted { .. }) => panic!("these tests need root: {error}"),
        Err(error) => panic!("cannot mount: {error}: {:?}", std::error::Error::source(&error)),
    }
}

fn finish(session: &KernelMount) {
    // Busy while a child that another test forks has our files, which it drops at exec.
    let mut outcome = session.unmount(Unmount::Plain);
    for _ in 0..100_000 {
        if !matches!(outcome, Err(UnmountError::Busy)) {
            break;
        }
        thread::yield_now();
        outcome = session.unmount(Unmount::Plain);
    }
    outcome.expect("unmount");
    session.wait().expect("all threads end without an error");
}

/// Runs a check under each transport.
fn both(check: impl Fn(&Path, &KernelMount)) {
    for transport in [Transport::Classic, Transport::Uring] {
        let place = Place::new();
        let session = mount_null(&place, &config(transport), NullOptions::default());
        assert_eq!(session.transport(), transport);
        check(&place.0, &session);
        finish(&session);
    }
}

#[test]
fn names_come_and_go() {
    both(|root, _| {
        fs::create_dir(root.join("d")).expect("mkdir");
        fs::write(root.join("d/a"), b"hello").expect("create and write");
        assert_eq!(fs::metadata(root.join("d/a")).expect("stat").len(), 5);
        fs::rename(root.join("d/a"), root.join("b")).expect("rename");
        fs::hard_link(root.join("b"), root.join("c")).expect("link");
        assert_eq!(fs::metadata(root.join("c")).expect("stat").nlink(), 2);
        symlink("target/of/link", root.join("l")).expect("symlink");
        assert_eq!(fs::read_link(root.join("l")).expect("readlink"), Path::new("target/of/link"));
        fs::set_permissions(root.join("b"), fs::Permissions::from_mode(0o600)).expect("chmod");
        assert_eq!(fs::metadata(root.join("b")).expect("stat").mode() & 0o7777, 0o600);
        let absent = fs::metadata(root.join("nothing")).expect_err("never made");
        assert_eq!(absent.kind(), io::ErrorKind::NotFound);
        let refused = fs::remove_file(root.join("d")).expect_err("a directory");
        assert_eq!(refused.raw_os_error(), Some(libc::EISDIR));
        for name in ["b", "c", "l"] {
            fs::remove_file(root.join(name)).expect("unlink");
        }
        fs::remove_dir(root.join("d")).expect("rmdir");
        assert_eq!(fs::read_dir(root).expect("list").count(), 0);
    });
}

#[test]
fn long_directories_are_listed_whole() {
    both(|root, _| {
        let names: Vec<String> =
            (0..3000).map(|index| format!("file-with-a-longer-name-{index:05}")).collect();
        for name in &names {
            File::create(root.join(name)).expect("create");
        }
        let mut listed: Vec<String> = fs::read_dir(root)
            .expect("list")
            .map(|entry| entry.expect("entry").file_name().into_string().expect("ASCII"))
            .collect();
        listed.sort();
        assert_eq!(listed, names);
        fs::remove_dir_all(root.join("none")).expect_err("never made");
        for name in &names {
            fs::remove_file(root.join(name)).expect("unlink");
        }
    });
}

#[test]
fn many_threads_at_once() {
    both(|root, _| {
        thread::scope(|scope| {
            for worker in 0..8 {
                let folder = root.join(format!("w{worker}"));
                scope.spawn(move || {
                    fs::create_dir(&folder).expect("mkdir");
                    for file in 0..200 {
                        fs::write(folder.join(file.to_string()), vec![1; file]).expect("write");
                    }
                    for file in 0..200 {
                        let path = folder.join(file.to_string());
                        assert_eq!(fs::metadata(&path).expect("stat").len(), file as u64);
                        fs::remove_file(&path).expect("unlink");
                    }
                });
            }
        });
    });
}

/// Bytes that differ from page to page.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 7 + at / 4096) as u8).collect()
}

#[test]
fn contents_survive_large_writes_and_reads() {
    for transport in [Transport::Classic, Transport::Uring] {
        let (place, data) = (Place::new(), Place::new());
        let options = NullOptions { data_folder: Some(data.0.join("data")), ..NullOptions::default() };
        let session = mount_null(&place, &config(transport), options);
        let content = pattern((5 << 20) + 123);
        let path = place.0.join("big");
        fs::write(&path, &content).expect("write");
        // Without the page cache, so that the bytes come from the responder.
        let mut direct =
            OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&path).expect("open");
        let mut read = Vec::new();
        direct.read_to_end(&mut read).expect("read");
        assert!(read == content, "the content came back changed");
        direct.seek(SeekFrom::Start(0)).expect("seek");
        let mut middle = [0; 5000];
        direct.read_exact_at(&mut middle, 4096).expect("read a part");
        assert!(middle[..] == content[4096..9096]);
        drop(direct);
        let file = OpenOptions::new().write(true).open(&path).expect("open");
        file.set_len(10).expect("truncate");
        file.sync_all().expect("fsync");
        drop(file);
        assert_eq!(fs::read(&path).expect("read"), content[..10]);
        finish(&session);
        fs::remove_dir_all(data.0.join("data")).expect("remove the data");
    }
}

fn lock(file: &File, kind: i32, wait: bool) -> io::Result<()> {
    let mut range =
        libc::flock { l_type: kind as i16, l_whence: libc::SEEK_SET as i16, l_start: 0, l_len: 0, l_pid: 0 };
    // Locks of the open file, so that threads contend as processes do.
    let command = if wait { libc::F_OFD_SETLKW } else { libc::F_OFD_SETLK };
    // SAFETY: the descriptor is open and the range outlives the call.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut range) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn flock(file: &File, operation: i32) -> io::Result<()> {
    // SAFETY: flock takes no pointers.
    if unsafe { libc::flock(file.as_raw_fd(), operation) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

extern "C" fn on_signal(_: libc::c_int) {}

/// Makes SIGUSR1 interrupt system calls instead of killing the process.
fn catch_signal() {
    // SAFETY: an empty action but for the handler, which does nothing and so is safe at any time.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_signal as extern "C" fn(libc::c_int) as libc::sighandler_t;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()), 0);
    }
}

/// The null responder, saying when a lock is asked for that may wait.
struct Watched {
    inner: Null,
    waits: Mutex<Sender<()>>,
}

impl Handler for Watched {
    fn init(&self, negotiated: &Negotiated, notifier: &Notifier) {
        self.inner.init(negotiated, notifier);
    }

    fn handle(&self, request: KernelRequest<'_>, reply: KernelReply) {
        let waits = matches!(request.operation, Operation::SetLk { sleep: true, .. });
        self.inner.handle(request, reply);
        if waits {
            self.waits.lock().expect("no panic").send(()).expect("the test listens");
        }
    }
}

#[test]
fn a_blocked_lock_is_interrupted() {
    catch_signal();
    for transport in [Transport::Classic, Transport::Uring] {
        let place = Place::new();
        let (waits, arrived) = mpsc::channel();
        let inner = Null::new(NullOptions::default()).expect("a null responder");
        let handler = Arc::new(Watched { inner, waits: Mutex::new(waits) });
        let session = mount(&place.0, &config(transport), handler).expect("mount");
        interrupt_waits(&place.0, &arrived);
        finish(&session);
    }
}

type Wait = fn(&File) -> io::Result<()>;

/// Waits for a lock of each family, once in vain and once granted by closing its holder.
fn interrupt_waits(root: &Path, arrived: &Receiver<()>) {
    let waits: [(Wait, Wait); 2] = [
        (|file| lock(file, libc::F_WRLCK, true), |file| lock(file, libc::F_WRLCK, false)),
        (|file| flock(file, libc::LOCK_EX), |file| flock(file, libc::LOCK_EX | libc::LOCK_NB)),
    ];
    for (wait, try_once) in waits {
        let path = root.join("locked");
        let (holder, waiter) = (File::create(&path).expect("create"), File::create(&path).expect("open"));
        wait(&holder).expect("nobody else holds it");
        arrived.recv().expect("the handler got the first lock");
        let refused = try_once(&waiter).expect_err("it is held");
        assert_eq!(refused.raw_os_error(), Some(libc::EAGAIN));
        let (say_thread, hear_thread) = mpsc::channel();
        let (say_end, hear_end) = mpsc::channel();
        let waiting = thread::spawn(move || {
            // SAFETY: pthread_self cannot fail.
            say_thread.send(unsafe { libc::pthread_self() }).expect("the test listens");
            let outcome = wait(&waiter).map_err(|error| error.raw_os_error());
            say_end.send(outcome).expect("the test listens");
            waiter
        });
        let thread = hear_thread.recv().expect("the waiter started");
        // The kernel (6.18) loses a signal that comes between queueing a request and its ring taking it.
        arrived.recv().expect("the handler got the wait");
        // SAFETY: the thread is not joined yet, so its handle is valid.
        assert_eq!(unsafe { libc::pthread_kill(thread, libc::SIGUSR1) }, 0);
        let outcome = hear_end.recv_timeout(Duration::from_secs(10)).ok();
        assert_eq!(outcome, Some(Err(Some(libc::EINTR))));
        let waiter = waiting.join().expect("the waiter ends");
        drop(holder);
        wait(&waiter).expect("closing the holder released it");
        arrived.recv().expect("the handler got the last lock");
        drop(waiter);
        fs::remove_file(&path).expect("unlink");
    }
}

#[test]
fn notifications_reach_the_kernel() {
    both(|root, session| {
        let path = root.join("noted");
        fs::write(&path, b"x").expect("write");
        let node = fs::metadata(&path).expect("stat").ino();
        let notifier = session.notifier();
        assert!(notifier.inval_attributes(node).expect("inval_inode"));
        assert!(notifier.inval_inode(node, 0, 0).expect("inval_inode with data"));
        assert!(notifier.inval_entry(1, b"noted").expect("inval_entry"));
        assert!(!notifier.inval_attributes(999_999).expect("an inode the kernel does not have"));
        assert_eq!(fs::metadata(&path).expect("looked up again").ino(), node);
    });
}

/// Passes every request to the null responder, on a thread of its own, keeping WRITE data with the reply or lending them.
struct Late {
    inner: Arc<Null>,
    work: Mutex<Sender<Box<dyn FnOnce() + Send>>>,
}

impl Late {
    fn later(&self, work: impl FnOnce() + Send + 'static) {
        self.work.lock().expect("no panic").send(Box::new(work)).expect("the worker listens");
    }
}

impl Handler for Late {
    fn init(&self, negotiated: &Negotiated, notifier: &Notifier) {
        self.inner.init(negotiated, notifier);
    }

    fn handle(&self, request: KernelRequest<'_>, reply: KernelReply) {
        match request.operation {
            Operation::Write(write) => {
                let expected = write.data.to_vec();
                if write.offset == 0 {
                    // Answered at once, and lent beyond that.
                    let mut reply = reply;
                    let loan = reply.lend();
                    reply.write(expected.len() as u32);
                    return self.later(move || assert!((*loan).as_ref() == expected, "lent data changed"));
                }
                let held = reply.hold();
                self.later(move || {
                    assert!(held.data() == expected, "held data changed");
                    let size = expected.len() as u32;
                    held.into_reply().write(size);
                });
            }
            Operation::Read(read) => self.later(move || {
                reply.data_with(|buffer| {
                    buffer.fill(b'r');
                    Ok(buffer.len().min(8192_usize.saturating_sub(read.offset as usize)))
                });
            }),
            Operation::SyncFs => drop(reply),
            Operation::FSync { .. } => self.later(move || drop(reply)),
            Operation::StatFs => self.later(move || reply.error(libc::EPROTO)),
            _ => self.inner.handle(request, reply),
        }
    }
}

#[test]
fn replies_may_come_late_and_from_elsewhere() {
    for transport in [Transport::Classic, Transport::Uring] {
        let place = Place::new();
        let (work, todo) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
        let worker = thread::spawn(move || todo.iter().for_each(|work| work()));
        let inner = Arc::new(Null::new(NullOptions::default()).expect("a null responder"));
        let handler = Arc::new(Late { inner, work: Mutex::new(work) });
        let session = mount(&place.0, &config(transport), handler).expect("mount");
        thread::scope(|scope| {
            for writer in 0..6 {
                let path = place.0.join(format!("f{writer}"));
                scope.spawn(move || {
                    let mut file = File::create(&path).expect("create");
                    file.write_all(&pattern((1 << 20) + writer)).expect("write");
                    let unanswered = file.sync_all().expect_err("the reply was dropped");
                    assert_eq!(unanswered.raw_os_error(), Some(libc::EIO));
                    file.set_len(8192).expect("truncate");
                    let direct =
                        OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&path).expect("open");
                    let mut read = [0; 8192];
                    direct.read_exact_at(&mut read, 0).expect("read");
                    assert!(read.iter().all(|&byte| byte == b'r'));
                });
            }
        });
        let refused = statfs(&place.0).expect_err("answered with an errno");
        assert_eq!(refused.raw_os_error(), Some(libc::EPROTO));
        finish(&session);
        drop(session);
        worker.join().expect("the worker ends when the handler is gone");
    }
}

fn statfs(path: &Path) -> io::Result<()> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).expect("no NUL");
    // SAFETY: zeroes are a valid statfs; the path and the struct outlive the call.
    let result = unsafe {
        let mut stat: libc::statfs = std::mem::zeroed();
        libc::statfs(path.as_ptr(), &raw mut stat)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[test]
fn waiting_locks_leave_room_for_the_unlock() {
    let place = Place::new();
    let config = Config { ring_depth: 8, ..config(Transport::Uring) };
    let session = mount_null(&place, &config, NullOptions::default());
    let path = place.0.join("locked");
    let holder = File::create(&path).expect("create");
    flock(&holder, libc::LOCK_EX).expect("nobody else holds it");
    // More than all rings together take: some must be refused, and then the others wait.
    let waiters = 8 * thread::available_parallelism().expect("a CPU count").get() + 1;
    let (done, outcomes) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..waiters {
            let (path, done) = (&path, done.clone());
            scope.spawn(move || {
                let file = File::open(path).expect("open");
                let outcome = flock(&file, libc::LOCK_EX).map_err(|error| error.raw_os_error());
                drop(file);
                done.send(outcome).expect("the test listens");
            });
        }
        assert_eq!(outcomes.recv().expect("an outcome"), Err(Some(libc::ENOLCK)));
        fs::metadata(place.0.join("other")).expect_err("answered although locks wait");
        flock(&holder, libc::LOCK_UN).expect("unlock");
        let granted = outcomes.iter().take(waiters - 1).filter(Result::is_ok).count();
        assert!(granted > 0);
    });
    drop(holder);
    finish(&session);
}

#[test]
fn rings_that_cannot_be_made_fall_back() {
    let place = Place::new();
    // More completions than the kernel allows a ring.
    let impossible = Config { ring_depth: u16::MAX, ..config(Transport::Auto) };
    let session = mount_null(&place, &impossible, NullOptions::default());
    assert_eq!(session.transport(), Transport::Classic);
    fs::write(place.0.join("a"), b"x").expect("served");
    finish(&session);
    let demanded = Config { transport: Transport::Uring, ..impossible };
    let handler = Arc::new(Null::new(NullOptions::default()).expect("a null responder"));
    assert!(matches!(mount(&place.0, &demanded, handler), Err(MountError::NoUring(_))));
    assert!(fs::read_dir(&place.0).expect("not mounted").next().is_none());
}

#[test]
fn unmounting_says_what_is_in_the_way() {
    both(|root, session| {
        let file = File::create(root.join("open")).expect("create");
        assert!(matches!(session.unmount(Unmount::Plain), Err(UnmountError::Busy)));
        let again =
            mount(root, &Config::default(), Arc::new(Null::new(NullOptions::default()).expect("null")));
        assert!(matches!(again, Err(MountError::AlreadyMounted { .. })));
        drop(file);
    });
    assert!(matches!(fuse::unmount(&Place::new().0, Unmount::Plain), Err(UnmountError::NotMounted)));
}

#[test]
fn dropping_a_session_unmounts_by_force() {
    for transport in [Transport::Classic, Transport::Uring] {
        let place = Place::new();
        let session = mount_null(&place, &config(transport), NullOptions::default());
        let mut file = File::create(place.0.join("open")).expect("create");
        drop(session);
        file.write_all(b"x").expect_err("the connection is gone");
        assert!(fs::read_dir(&place.0).expect("the plain directory").next().is_none());
    }
}

#[test]
fn a_lazy_unmount_serves_open_files() {
    for transport in [Transport::Classic, Transport::Uring] {
        let place = Place::new();
        let session = mount_null(&place, &config(transport), NullOptions::default());
        let mut file = File::create(place.0.join("open")).expect("create");
        session.unmount(Unmount::Lazy).expect("unmount");
        file.write_all(b"still there").expect("served");
        drop(file);
        session.wait().expect("ends with the last file");
    }
}

#[test]
fn the_helper_mounts_too() {
    let place = Place::new();
    let config = Config { mounter: Mounter::Fusermount, ..Config::default() };
    let session = mount_null(&place, &config, NullOptions::default());
    fs::write(place.0.join("a"), b"x").expect("write");
    let table = fs::read_to_string("/proc/self/mounts").expect("mount table");
    assert!(table.contains(&format!("{} fuse.pando ", place.0.display())), "{table}");
    finish(&session);
}

/// The parameter while no mount is changing it.
fn settled_parameter() -> Vec<u8> {
    let file = File::open(PARAMETER).expect("open the parameter");
    flock(&file, libc::LOCK_SH).expect("wait for mounts under way");
    fs::read(PARAMETER).expect("read the parameter")
}

#[test]
fn the_module_parameter_is_restored() {
    let before = settled_parameter();
    let place = Place::new();
    let session = mount_null(&place, &config(Transport::Auto), NullOptions::default());
    assert_eq!(session.transport(), Transport::Uring);
    assert_eq!(settled_parameter(), before);
    finish(&session);
}
