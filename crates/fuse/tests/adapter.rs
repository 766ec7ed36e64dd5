//! The adapter against the real kernel, over the fake rank: what only a kernel can show.
//! Absent on purpose: durability and the rank's rules. Needs root and /dev/fuse.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::thread;

use fuse::adapter::{Adapter, Options};
use fuse::{KernelMount, Unmount};
use mount::Mount;
use mount::fake::Fake;
use proto::message::{ClientInfo, ServerMsg};

/// A mounted fake file system, unmounted in the end, also when a test fails.
struct Place {
    path: PathBuf,
    fake: Fake,
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
        let mount = Mount::open(fake.connector(), ClientInfo::default()).expect("the fake welcomes anyone");
        let options = Options::parse(&[options]).expect("known options");
        let adapter = Adapter::new(mount, None, options.behaviour()).expect("a root");
        let session = fuse::mount(&path, &options.config("fake"), adapter).expect("these tests need root");
        Place { path, fake, session: Some(session) }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            let unmounted = session.unmount(Unmount::Force).is_ok();
            let ended = unmounted && session.wait().is_ok();
            assert!(ended || thread::panicking(), "the mount must end in order");
        }
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
fn what_others_wrote_is_seen_after_sharing() {
    let place = Place::new("shared", "");
    let path = place.at("f");
    fs::write(&path, b"before").expect("written");
    let held = File::open(&path).expect("open");
    assert_eq!(fs::read(&path).expect("read"), b"before");
    place.fake.say(&ServerMsg::Share);
    place.fake.wait_shared(std::time::Duration::from_secs(20));
    let other = Mount::open(place.fake.connector(), ClientInfo::default()).expect("a second client");
    mount::Fs::new(other, proto::Cred::ROOT).write("/f", b"behind").expect("written by the other");
    let mut content = [0; 6];
    held.read_exact_at(&mut content, 0).expect("read");
    assert_eq!(&content, b"behind");
    assert_eq!(fs::read(&path).expect("read"), b"behind");
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
    while place.fake.locks().1 == 0 {
        thread::yield_now();
    }
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
