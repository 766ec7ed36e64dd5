//! The adapter against the real kernel, over the fake rank: what only a kernel can show.
//! Absent: durability and the rank's rules. Needs root and /dev/fuse.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use fuse::adapter::{Adapter, Options};
use fuse::{KernelMount, Unmount};
use mount::fake::Fake;
use mount::{Fs, Mount, Settings};
use proto::caps::{Bits, Returned};
use proto::message::ClientInfo;
use proto::request::Request;
use proto::{Cred, Ino};

#[path = "adapter/races.rs"]
mod races;

const PATIENCE: Duration = Duration::from_secs(20);

/// A mounted fake file system, unmounted in the end, also when a test fails.
struct Place {
    path: PathBuf,
    fake: Fake,
    /// Outlives the adapter.
    mount: Arc<Mount>,
    session: Option<KernelMount>,
}

impl Place {
    fn new(name: &str, options: &str) -> Place {
        assert!(
            Path::new("/dev/fuse").exists(),
            "these tests need /dev/fuse: run them where FUSE is available"
        );
        let path = std::env::temp_dir().join(format!("fuse-adapter-{}-{name}", std::process::id()));
        fs::create_dir(&path).expect("make a mount point");
        let fake = Fake::new();
        let settings = Settings { wants: Bits::ATTRS.with(Bits::FC), ..Settings::default() };
        let mount = Mount::open_with(fake.connector(), ClientInfo::default(), settings);
        let mount = mount.expect("the fake welcomes anyone");
        fake.grant(true);
        let options = Options::parse(&[options]).expect("known options");
        let adapter = Adapter::new(Arc::clone(&mount), None, options.behaviour()).expect("a root");
        let session = fuse::mount(&path, &options.config("fake"), adapter).expect("these tests need root");
        Place { path, fake, mount, session: Some(session) }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Another client of the same file system, which keeps nothing.
    fn other(&self) -> Fs {
        let mount = Mount::open(self.fake.connector(), ClientInfo::default());
        Fs::new(mount.expect("the fake welcomes anyone"), Cred::ROOT)
    }
}

/// Waits for something that other threads do.
fn wait_until(what: impl Fn() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !what() {
        assert!(Instant::now() < until, "not in time");
        thread::yield_now();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            let unmounted = session.unmount(Unmount::Force).is_ok();
            let ended = unmounted && session.wait().is_ok();
            assert!(ended || thread::panicking(), "the mount must end in order");
        }
        self.mount.close();
        let _reported_by_the_test = fs::remove_dir(&self.path);
    }
}

#[test]
fn files_directories_links_and_listings() {
    let place = Place::new("tree", "");
    fs::create_dir_all(place.at("a/b")).expect("two levels");
    fs::write(place.at("a/b/f"), b"content").expect("a file");
    assert_eq!(fs::read(place.at("a/b/f")).expect("its content"), b"content");
    symlink("b/f", place.at("a/l")).expect("a link");
    assert_eq!(fs::read(place.at("a/l")).expect("through the link"), b"content");
    fs::hard_link(place.at("a/b/f"), place.at("g")).expect("a second name");
    assert_eq!(fs::metadata(place.at("g")).expect("attributes").nlink(), 2);
    fs::set_permissions(place.at("g"), fs::Permissions::from_mode(0o640)).expect("changed");
    assert_eq!(fs::metadata(place.at("a/b/f")).expect("attributes").mode(), 0o100_640);
    fs::rename(place.at("g"), place.at("a/h")).expect("moved");
    assert!(!place.at("g").exists());
    for index in 0..2000 {
        File::create(place.at("a/b").join(format!("entry-{index}"))).expect("a file");
    }
    let mut names: Vec<_> = fs::read_dir(place.at("a/b"))
        .expect("a listing")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 2001);
    fs::remove_dir_all(place.at("a")).expect("all gone");
    assert_eq!(fs::read_dir(&place.path).expect("a listing").count(), 0);
}

#[test]
fn content_is_what_was_written_however_it_was() {
    let place = Place::new("content", "");
    let path = place.at("f");
    let mut log = OpenOptions::new().append(true).create(true).open(&path).expect("to append");
    log.write_all(b"one").expect("appended");
    let other = OpenOptions::new().read(true).write(true).open(&path).expect("beside it");
    other.write_all_at(b"TWO", 3).expect("after it");
    log.write_all(b"three").expect("appended");
    assert_eq!(fs::read(&path).expect("all of it"), b"oneTWOthree");
    other.set_len(4).expect("cut");
    let mut content = String::new();
    File::open(&path).and_then(|mut file| file.read_to_string(&mut content)).expect("read");
    assert_eq!(content, "oneT");
    let big: Vec<u8> = (0..3_000_000_u32).map(|at| (at / 7) as u8).collect();
    fs::write(&path, &big).expect("written in several requests");
    assert_eq!(fs::read(&path).expect("read"), big);
    let opened = File::open(&path).expect("open");
    fs::remove_file(&path).expect("unlinked while open");
    let mut last = [0; 16];
    opened.read_exact_at(&mut last, 2_999_984).expect("still there");
    assert_eq!(last[..], big[2_999_984..]);
    let direct = OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).open(&place.path);
    direct.expect("a file without a name").write_all(b"x").expect("written");
}

#[test]
fn what_others_wrote_is_seen_after_a_break() {
    let place = Place::new("broken", "");
    let path = place.at("f");
    fs::write(&path, b"before").expect("written");
    let held = File::open(&path).expect("open");
    assert_eq!(fs::read(&path).expect("read"), b"before");
    place.fake.cut();
    place.fake.wait_settled(1, PATIENCE);
    place.other().write("/f", b"behind").expect("written by the other");
    let mut content = [0; 6];
    held.read_exact_at(&mut content, 0).expect("read");
    assert_eq!(&content, b"behind");
    assert_eq!(fs::read(&path).expect("read"), b"behind");
}

#[test]
fn what_others_changed_is_seen_after_a_recall() {
    let place = Place::new("recalled", "");
    let path = place.at("f");
    fs::write(&path, b"before").expect("written");
    let held = File::open(&path).expect("open");
    assert_eq!(fs::read(&path).expect("read"), b"before");
    let ino = Ino(held.metadata().expect("attributes").ino());
    place.fake.recall(ino, Bits::ATTRS.without(Bits::LS).with(Bits::FC), None);
    place.fake.wait_returned(1, PATIENCE);
    let other = place.other();
    other.write("/f", b"behind").expect("written by the other");
    other.chmod("/f", 0o600).expect("changed by the other");
    assert_eq!(fs::metadata(&path).expect("attributes").mode(), 0o100_600);
    let mut content = [0; 6];
    held.read_exact_at(&mut content, 0).expect("read");
    assert_eq!(&content, b"behind");
}

#[test]
fn pages_go_back_only_when_reads_of_them_are_answered() {
    let place = Place::new("pages", "");
    let path = place.at("f");
    fs::write(&path, b"content").expect("written");
    fs::write(place.at("other"), b"").expect("written");
    let other = Ino(fs::metadata(place.at("other")).expect("attributes").ino());
    let held = File::open(&path).expect("open");
    let ino = Ino(held.metadata().expect("attributes").ino());
    place.fake.hold_only(|request| matches!(request, Request::Read { .. }));
    let reader = thread::spawn(move || {
        let mut content = [0; 7];
        held.read_exact_at(&mut content, 0).map(|()| (held, content))
    });
    wait_until(|| place.fake.held() > 0);
    place.fake.recall(ino, Bits::FC, None);
    place.fake.recall(other, Bits::ATTRS, None);
    place.fake.wait_returned(1, PATIENCE);
    assert_eq!(
        place.fake.returned(),
        [Returned { ino: other, bits: Bits::ATTRS, number: 0 }],
        "it waits for nobody"
    );
    place.fake.release();
    place.fake.wait_returned(2, PATIENCE);
    assert_eq!(place.fake.returned()[1], Returned { ino, bits: Bits::FC, number: 0 });
    let (_, content) = reader.join().expect("no panic").expect("read");
    assert_eq!(&content, b"content");
}

#[test]
fn a_name_that_was_recalled_is_looked_up_again() {
    let place = Place::new("names", "");
    let path = place.at("f");
    fs::write(&path, b"").expect("written");
    let ino = Ino(fs::metadata(&path).expect("attributes").ino());
    for times in 1..=100 {
        place.fake.clear_seen();
        place.fake.recall(ino, Bits::ATTRS, Some((Ino::ROOT, b"f")));
        place.fake.wait_returned(times, PATIENCE);
        // Whether or not the name was dropped by now, nobody sees an error.
        match times % 3 {
            0 => drop(File::open(&path).expect("opened")),
            1 => drop(fs::metadata(&path).expect("attributes")),
            _ => fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("changed"),
        }
        let seen = place.fake.seen();
        assert!(seen.iter().any(|request| matches!(request, Request::Lookup { .. })), "{seen:?}");
    }
}

#[test]
fn what_others_moved_is_gone_at_once_and_open_files_stay() {
    let place = Place::new("moved", "");
    fs::create_dir(place.at("d")).expect("made");
    fs::metadata(place.at("d")).expect("its name is known");
    fs::write(place.at("f"), b"content").expect("written");
    fs::write(place.at("open"), b"content").expect("written");
    let inos = ["f", "open"].map(|name| Ino(fs::metadata(place.at(name)).expect("attributes").ino()));
    let held = File::open(place.at("open")).expect("open");
    // A lookup in the root that stays without an answer: the names there cannot be dropped meanwhile.
    place.fake.hold_only(|request| match request {
        Request::Lookup { name, .. } => name.as_bytes() == b"slow",
        _ => false,
    });
    let slow = place.at("slow");
    let slow = thread::spawn(move || fs::metadata(slow).map(drop));
    wait_until(|| place.fake.held() > 0);
    for (ino, name) in inos.iter().zip(["f", "open"]) {
        place.fake.recall(*ino, Bits::ATTRS, Some((Ino::ROOT, name.as_bytes())));
    }
    place.fake.wait_returned(2, PATIENCE);
    let other = place.other();
    other.rename("/f", "/d/g").expect("moved by the other");
    other.rename("/open", "/d/open").expect("moved by the other");
    assert_eq!(held.metadata().expect("it is open").ino(), inos[1].0);
    place.fake.clear_seen();
    let path = place.at("f");
    let gone = thread::spawn(move || fs::metadata(path).map(drop));
    // It still has the name, and asks for it again because the node is stale.
    wait_until(|| {
        let asked_for = |request: &Request| match request {
            Request::Lookup { name, .. } => name.as_bytes() == b"f",
            _ => false,
        };
        place.fake.seen().iter().any(asked_for)
    });
    place.fake.release();
    let gone = gone.join().expect("no panic").expect_err("moved away");
    assert_eq!(gone.kind(), io::ErrorKind::NotFound);
    let slow = slow.join().expect("no panic").expect_err("never was");
    assert_eq!(slow.kind(), io::ErrorKind::NotFound);
    assert_eq!(fs::metadata(place.at("d/g")).expect("its new name").ino(), inos[0].0);
    assert_eq!(fs::read(place.at("d/g")).expect("by its new name"), b"content");
}

fn flock(file: &File, how: i32) -> io::Result<()> {
    // SAFETY: the descriptor is open; the call touches no memory.
    if unsafe { libc::flock(file.as_raw_fd(), how) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[test]
fn locks_are_kept_apart_waited_for_and_dropped_by_close() {
    let place = Place::new("locks", "");
    let path = place.at("f");
    let open = || OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
    let (a, b) = (open().expect("open"), open().expect("open"));
    flock(&a, libc::LOCK_EX).expect("free");
    let refused = flock(&b, libc::LOCK_EX | libc::LOCK_NB).expect_err("taken");
    assert_eq!(refused.raw_os_error(), Some(libc::EAGAIN));
    let waiter = thread::spawn(move || flock(&b, libc::LOCK_EX).map(|()| b));
    wait_until(|| place.fake.locks().1 > 0);
    drop(a);
    let b = waiter.join().expect("no panic").expect("granted when the holder closed");
    // SAFETY: all zeroes is a whole-file read lock once the type is set.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as i16;
    // SAFETY: the descriptor is open and `lock` outlives the call.
    let taken = unsafe { libc::fcntl(b.as_raw_fd(), libc::F_SETLK, &raw const lock) };
    assert_eq!(taken, 0, "fcntl locks do not see flock");
    assert_eq!(place.fake.locks(), (2, 0));
    drop(open().expect("open"));
    assert_eq!(place.fake.locks(), (1, 0), "closing any handle drops the process's fcntl locks");
}

/// What broke: QEMU and Samba lock so, and nobody could open their files a second time.
#[test]
fn the_lock_of_an_open_file_goes_with_its_last_handle() {
    let place = Place::new("ofd", "");
    let path = place.at("f");
    let open = || OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
    let whole = libc::flock { l_type: libc::F_WRLCK as i16, l_whence: 0, l_start: 0, l_len: 0, l_pid: 0 };
    let lock = |file: &File, how| {
        // SAFETY: the descriptor is open and `whole` outlives the call.
        let done = unsafe { libc::fcntl(file.as_raw_fd(), how, &raw const whole) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error().raw_os_error()) }
    };
    let (first, second) = (open().expect("open"), open().expect("open"));
    lock(&first, libc::F_OFD_SETLK).expect("free");
    assert_eq!(lock(&second, libc::F_OFD_SETLK), Err(Some(libc::EAGAIN)));
    // Not with a handle of the same process, nor with one of two descriptors.
    drop(open().expect("open"));
    let twice = first.try_clone().expect("a descriptor");
    drop(first);
    assert_eq!(lock(&second, libc::F_OFD_SETLK), Err(Some(libc::EAGAIN)));
    drop(twice);
    wait_until(|| place.fake.locks() == (0, 0));
    lock(&second, libc::F_OFD_SETLK).expect("free again");
    lock(&second, libc::F_SETLK).expect_err("the open file's lock is not the process's");
}

fn xattr(path: &Path, name: &str) -> io::Result<Vec<u8>> {
    let path = CString::new(path.as_os_str().as_bytes()).expect("no NUL");
    let name = CString::new(name).expect("no NUL");
    let mut value = [0_u8; 64];
    // SAFETY: both strings end in NUL, the buffer is writable for its length.
    let len = unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
    let len = usize::try_from(len).map_err(|_| io::Error::last_os_error())?;
    Ok(value[..len].to_vec())
}

#[test]
fn attributes_beside_the_content() {
    let place = Place::new("xattr", "");
    let path = place.at("f");
    fs::write(&path, b"").expect("a file");
    assert_eq!(xattr(&path, "user.a").expect_err("none").raw_os_error(), Some(libc::ENODATA));
    let (file, name) = (CString::new(path.as_os_str().as_bytes()).expect("no NUL"), c"user.a");
    // SAFETY: both strings end in NUL, the value is readable for its length.
    let set = unsafe { libc::setxattr(file.as_ptr(), name.as_ptr(), c"v1".as_ptr().cast(), 2, 0) };
    assert_eq!(set, 0);
    assert_eq!(xattr(&path, "user.a").expect("set"), b"v1");
}

#[test]
fn a_read_only_mount_refuses_changes() {
    let place = Place::new("ro", "ro");
    let refused = fs::write(place.at("f"), b"").expect_err("read-only");
    assert_eq!(refused.raw_os_error(), Some(libc::EROFS));
    assert_eq!(fs::read_dir(&place.path).expect("a listing").count(), 0);
}
