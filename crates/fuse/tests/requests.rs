//! Counts the kernel's requests per operation and holds them against the table in docs/FUSE.md.
//! Absent: FORGET, which the kernel sends when it likes. Needs root and /dev/fuse.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fuse::adapter::{Adapter, Options};
use fuse::{Handler, KernelMount, KernelReply, KernelRequest, Negotiated, Notifier, Operation, Unmount};
use mount::fake::Fake;
use mount::{Mount, Settings};
use proto::caps::Bits;
use proto::message::ClientInfo;

const TABLE: &str = include_str!("../../../docs/FUSE.md");
/// A slow machine lets timeouts run out in the middle of an operation; another try shows that.
const TRIES: usize = 10;
const PATIENCE: Duration = Duration::from_secs(20);

/// Hands requests on and notes what they were.
struct Counting {
    inner: Arc<Adapter>,
    seen: Mutex<Vec<&'static str>>,
    came: Condvar,
}

impl Counting {
    /// What came since the last call, up to and including the RELEASE or RELEASEDIR that ends it, if
    /// one is due: the kernel sends those after the caller's close has returned.
    fn take(&self, closing: bool) -> String {
        let until = Instant::now() + PATIENCE;
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        while closing && !seen.last().is_some_and(|name| name.starts_with("RELEASE")) {
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "no RELEASE in time");
            seen = self.came.wait_timeout(seen, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        std::mem::take(&mut *seen).join(" ")
    }
}

impl Handler for Counting {
    fn init(&self, negotiated: &Negotiated, notifier: &Notifier) {
        self.inner.init(negotiated, notifier);
    }

    fn handle(&self, request: KernelRequest<'_>, reply: KernelReply) {
        if let Some(name) = name(&request.operation) {
            self.seen.lock().unwrap_or_else(PoisonError::into_inner).push(name);
            self.came.notify_all();
        }
        self.inner.handle(request, reply);
    }
}

fn name(operation: &Operation<'_>) -> Option<&'static str> {
    Some(match operation {
        Operation::Lookup { .. } => "LOOKUP",
        Operation::GetAttr { .. } => "GETATTR",
        Operation::Statx { .. } => "STATX",
        Operation::SetAttr(_) => "SETATTR",
        Operation::ReadLink => "READLINK",
        Operation::Symlink { .. } => "SYMLINK",
        Operation::MkNod { .. } => "MKNOD",
        Operation::MkDir { .. } => "MKDIR",
        Operation::Unlink { .. } => "UNLINK",
        Operation::RmDir { .. } => "RMDIR",
        Operation::Rename { .. } => "RENAME2",
        Operation::Link { .. } => "LINK",
        Operation::Open { .. } => "OPEN",
        Operation::Create { .. } => "CREATE",
        Operation::TmpFile { .. } => "TMPFILE",
        Operation::Read(_) => "READ",
        Operation::Write(_) => "WRITE",
        Operation::Flush { .. } => "FLUSH",
        Operation::FSync { .. } => "FSYNC",
        Operation::Release(_) => "RELEASE",
        Operation::OpenDir { .. } => "OPENDIR",
        Operation::ReadDir { .. } => "READDIR",
        Operation::ReadDirPlus { .. } => "READDIRPLUS",
        Operation::FSyncDir { .. } => "FSYNCDIR",
        Operation::ReleaseDir(_) => "RELEASEDIR",
        Operation::StatFs => "STATFS",
        Operation::SyncFs => "SYNCFS",
        Operation::Access { .. } => "ACCESS",
        Operation::SetXattr { .. } => "SETXATTR",
        Operation::GetXattr { .. } => "GETXATTR",
        Operation::ListXattr { .. } => "LISTXATTR",
        Operation::RemoveXattr { .. } => "REMOVEXATTR",
        Operation::GetLk(_) => "GETLK",
        Operation::SetLk { .. } => "SETLK",
        Operation::Fallocate { .. } => "FALLOCATE",
        Operation::Lseek { .. } => "LSEEK",
        Operation::CopyFileRange(_) => "COPY_FILE_RANGE",
        Operation::Interrupt { .. } => "INTERRUPT",
        Operation::BMap { .. } => "BMAP",
        Operation::Ioctl { .. } => "IOCTL",
        Operation::Poll { .. } => "POLL",
        Operation::Forget { .. }
        | Operation::BatchForget { .. }
        | Operation::NotifyReply { .. }
        | Operation::Destroy => return None,
    })
}

/// A mount with a counter, unmounted in the end.
struct Place {
    path: PathBuf,
    counting: Arc<Counting>,
    session: Option<KernelMount>,
    /// The same file system as another client sees it: prepares what the kernel must not know yet.
    behind: mount::Fs,
}

impl Place {
    fn new(options: &str, wants: Bits) -> Place {
        assert!(
            Path::new("/dev/fuse").exists(),
            "these tests need /dev/fuse: run them where FUSE is available"
        );
        let path = std::env::temp_dir().join(format!("fuse-requests-{}{options}", std::process::id()));
        fs::create_dir(&path).expect("make a mount point");
        let fake = Fake::new();
        let settings = Settings { wants, ..Settings::default() };
        let mount = Mount::open_with(fake.connector(), ClientInfo::default(), settings);
        let mount = mount.expect("the fake welcomes anyone");
        fake.grant(true);
        let behind = mount::Fs::new(Arc::clone(&mount), proto::Cred::ROOT);
        let options = Options::parse(&[options]).expect("options");
        let inner = Adapter::new(mount, None, options.behaviour()).expect("a root");
        let counting = Arc::new(Counting { inner, seen: Mutex::default(), came: Condvar::new() });
        let session = fuse::mount(&path, &options.config("fake"), Arc::clone(&counting));
        let session = Some(session.expect("these tests need root"));
        Place { path, counting, session, behind }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            let ended = session.unmount(Unmount::Force).is_ok() && session.wait().is_ok();
            assert!(ended || std::thread::panicking(), "the mount must end in order");
        }
        let _reported_by_the_test = fs::remove_dir(&self.path);
    }
}

/// One row: the documented name, whether it closes something, and the operation in the directory `dir`,
/// in which `f` is a file of 4 KiB the kernel has not seen and `d` an empty directory.
type Row = (&'static str, bool, fn(&Path, &Counting) -> io::Result<()>);

/// Leaves out what came so far: it prepared the operation.
fn prepared(counting: &Counting) {
    counting.seen.lock().unwrap_or_else(PoisonError::into_inner).clear();
}

const BLOCK: [u8; 4096] = [7; 4096];

const ROWS: &[Row] = &[
    ("create, write 4 KiB, close (write only)", true, |dir, _| {
        File::create(dir.join("n"))?.write_all(&BLOCK)
    }),
    ("create, write 4 KiB, close (read and write)", true, |dir, _| {
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(true).open(dir.join("n"))?;
        (&file).write_all(&BLOCK)
    }),
    ("create exclusively, close", true, |dir, _| File::create_new(dir.join("n")).map(drop)),
    ("create without a name (O_TMPFILE), close", true, |dir, _| {
        OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).open(dir).map(drop)
    }),
    ("stat, name not known", false, |dir, _| fs::metadata(dir.join("f")).map(drop)),
    ("stat again within the timeout", false, |dir, counting| {
        fs::symlink_metadata(dir.join("f"))?;
        prepared(counting);
        fs::symlink_metadata(dir.join("f")).map(drop)
    }),
    ("stat of a name that does not exist", false, |dir, _| {
        assert!(fs::metadata(dir.join("missing")).is_err());
        Ok(())
    }),
    ("open, read 4 KiB, close", true, |dir, _| File::open(dir.join("f"))?.read_exact_at(&mut [0; 4096], 0)),
    ("open, read 4 KiB again, close", true, |dir, counting| {
        File::open(dir.join("f"))?.read_exact_at(&mut [0; 4096], 0)?;
        counting.take(true);
        File::open(dir.join("f"))?.read_exact_at(&mut [0; 4096], 0)
    }),
    ("open with O_TRUNC, close", true, |dir, _| File::create(dir.join("f")).map(drop)),
    ("write 4 KiB to an open file, fsync", false, |dir, counting| {
        let file = OpenOptions::new().write(true).open(dir.join("f"))?;
        prepared(counting);
        file.write_all_at(&BLOCK, 0)?;
        file.sync_all()?;
        std::mem::forget(file);
        Ok(())
    }),
    ("mkdir", false, |dir, _| fs::create_dir(dir.join("n"))),
    ("rmdir", false, |dir, _| fs::remove_dir(dir.join("d"))),
    ("unlink", false, |dir, _| fs::remove_file(dir.join("f"))),
    ("unlink after another change of the directory", false, |dir, counting| {
        fs::remove_dir(dir.join("d"))?;
        prepared(counting);
        fs::remove_file(dir.join("f"))
    }),
    ("create after another change of the directory, close", true, |dir, counting| {
        fs::remove_dir(dir.join("d"))?;
        prepared(counting);
        File::create(dir.join("n")).map(drop)
    }),
    ("rename", false, |dir, _| fs::rename(dir.join("f"), dir.join("n"))),
    ("link", false, |dir, _| fs::hard_link(dir.join("f"), dir.join("n"))),
    ("symlink", false, |dir, _| symlink("target", dir.join("n"))),
    ("readlink", false, |dir, counting| {
        symlink("target", dir.join("n"))?;
        prepared(counting);
        fs::read_link(dir.join("n")).map(drop)
    }),
    ("mknod of a fifo", false, |dir, _| {
        let path = CString::new(dir.join("n").as_os_str().as_bytes())?;
        // SAFETY: the string ends in NUL.
        if unsafe { libc::mkfifo(path.as_ptr(), 0o600) } == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }),
    ("chmod", false, |dir, _| fs::set_permissions(dir.join("f"), fs::Permissions::from_mode(0o600))),
    ("truncate of an open file", false, |dir, counting| {
        let file = OpenOptions::new().write(true).open(dir.join("f"))?;
        prepared(counting);
        file.set_len(1)?;
        std::mem::forget(file);
        Ok(())
    }),
    ("list a directory of two entries", true, |dir, _| {
        fs::read_dir(dir).map(|entries| entries.for_each(drop))
    }),
    ("list it again", true, |dir, counting| {
        fs::read_dir(dir)?.count();
        counting.take(true);
        fs::read_dir(dir).map(|entries| entries.for_each(drop))
    }),
    ("flock, unlock", false, |dir, counting| {
        let file = File::open(dir.join("f"))?;
        prepared(counting);
        for how in [libc::LOCK_EX, libc::LOCK_UN] {
            // SAFETY: the descriptor is open; the call touches no memory.
            assert_eq!(unsafe { libc::flock(file.as_raw_fd(), how) }, 0);
        }
        std::mem::forget(file);
        Ok(())
    }),
    ("getxattr of what is not there", false, |dir, counting| {
        let path = CString::new(dir.join("f").as_os_str().as_bytes())?;
        fs::metadata(dir.join("f"))?;
        prepared(counting);
        // SAFETY: both strings end in NUL; a buffer of no bytes is not touched.
        let got = unsafe { libc::getxattr(path.as_ptr(), c"user.a".as_ptr(), std::ptr::null_mut(), 0) };
        assert_eq!(got, -1);
        Ok(())
    }),
];

/// With `noopen`, after the first OPEN.
const UNOPENED: &[Row] = &[
    ("noopen: create, write 4 KiB, close (write only)", false, |dir, _| {
        File::create(dir.join("n"))?.write_all(&BLOCK)
    }),
    ("noopen: open, read 4 KiB, close", false, |dir, _| {
        File::open(dir.join("f"))?.read_exact_at(&mut [0; 4096], 0)
    }),
    ("noopen: open, read 4 KiB again, close", false, |dir, counting| {
        File::open(dir.join("f"))?.read_exact_at(&mut [0; 4096], 0)?;
        prepared(counting);
        File::open(dir.join("f"))?.read_exact_at(&mut [0; 4096], 0)
    }),
    ("noopen: open with O_TRUNC, close", false, |dir, _| File::create(dir.join("f")).map(drop)),
    ("noopen: list it again", true, |dir, counting| {
        fs::read_dir(dir)?.count();
        counting.take(true);
        fs::read_dir(dir).map(|entries| entries.for_each(drop))
    }),
];

/// The third column of the row of `operation`, without its Markdown.
fn documented(operation: &str) -> Option<String> {
    let cells = TABLE.lines().map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
    let row = cells.into_iter().find(|cells| cells.get(1) == Some(&operation))?;
    Some(row.get(2)?.replace('`', ""))
}

#[test]
fn the_kernel_asks_what_the_document_says() {
    let place = Place::new("", Bits::ATTRS.with(Bits::FC));
    check(&place, ROWS);
}

#[test]
fn without_opens_it_asks_less() {
    let place = Place::new("noopen,locks=local", Bits::ATTRS);
    fs::write(place.path.join("first"), "").expect("made");
    File::open(place.path.join("first")).expect("opened");
    check(&place, UNOPENED);
}

fn check(place: &Place, rows: &[Row]) {
    let mut wrong = Vec::new();
    for (index, (operation, closing, run)) in rows.iter().enumerate() {
        let want = documented(operation);
        let mut got = String::new();
        for attempt in 0..TRIES {
            let name = format!("{index}-{attempt}");
            let dir = place.path.join(&name);
            place.behind.mkdir(&name, 0o755).expect("a directory");
            place.behind.write(format!("{name}/f"), &BLOCK).expect("a file");
            place.behind.mkdir(format!("{name}/d"), 0o755).expect("a directory");
            fs::metadata(&dir).expect("the kernel knows the directory itself");
            place.counting.take(false);
            run(&dir, &place.counting).unwrap_or_else(|error| panic!("{operation}: {error}"));
            got = place.counting.take(*closing);
            if want.as_deref() == Some(if got.is_empty() { "none" } else { &got }) {
                break;
            }
        }
        if want.as_deref() != Some(if got.is_empty() { "none" } else { &got }) {
            wrong.push(format!("| {operation} | `{got}` |"));
        }
    }
    assert!(wrong.is_empty(), "docs/FUSE.md says otherwise about:\n{}", wrong.join("\n"));
}
