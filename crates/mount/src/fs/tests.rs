//! The path API against the fake rank.
//!
//! Absent: what only a real rank can show.

use super::*;
use crate::fake::Fake;
use crate::mount::Mount;
use proto::message::ClientInfo;
use proto::request::rename_flags;

fn fs() -> (Fake, Fs) {
    let fake = Fake::new();
    let mount = Mount::open(fake.connector(), ClientInfo::default()).expect("the fake welcomes anyone");
    (fake, Fs::new(mount, Cred::ROOT))
}

#[test]
fn paths_are_walked_with_links_and_dots() {
    let (_, fs) = fs();
    fs.mkdir_all("/a/b", 0o755).expect("two levels");
    fs.mkdir_all("a/b", 0o755).expect("again is fine");
    fs.write("/a/b/file", b"content").expect("a file");
    fs.symlink("../b/file", "/a/b/link").expect("a relative link");
    fs.symlink("/a", "/a/b/up").expect("an absolute link");
    assert_eq!(fs.read("a/b/up/./b/../b/link"), Ok(b"content".to_vec()));
    assert_eq!(fs.lstat("/a/b/link").map(|attr| attr.kind()), Ok(FileKind::Symlink));
    assert_eq!(fs.stat("/a/b/link").map(|attr| attr.size), Ok(7));
    assert_eq!(fs.readlink("/a/b/link").as_deref(), Ok(&b"../b/file"[..]));
    assert_eq!(fs.stat("/a/b/file/x"), Err(Errno::ENOTDIR));
    assert_eq!(fs.mkdir_all("/a/b/file", 0o755), Err(Errno::EEXIST));
    fs.symlink("loop", "/loop").expect("a link to itself");
    assert_eq!(fs.stat("/loop"), Err(Errno::ELOOP));
    assert_eq!(fs.stat("/").map(|attr| attr.ino), Ok(proto::Ino::ROOT));
}

#[test]
fn listings_come_in_pages_and_miss_nothing() {
    let (_, fs) = fs();
    fs.mkdir("/d", 0o755).expect("a directory");
    let long = "n".repeat(200);
    for index in 0..1000 {
        fs.write(format!("/d/{long}{index}"), b"").expect("a file");
    }
    let listing = fs.readdir("/d").expect("a listing").with_attrs();
    let mut names: Vec<_> = listing.map(|entry| entry.expect("no error").name).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 1000);
    assert_eq!(fs.readdir("/d/missing").err(), Some(Errno::ENOENT));
}

#[test]
fn files_read_write_append_and_are_released() {
    let (fake, fs) = fs();
    let file = fs.create("/f").expect("a file");
    let ino = file.node().ino;
    assert_eq!(fake.opens(ino), 1);
    file.write(b"hello ").expect("at the position");
    file.write(b"world").expect("after it");
    assert_eq!(file.pread(6, 100), Ok(b"world".to_vec()));
    let appender = fs.open("/f", OpenOptions::WRITE.append()).expect("to append");
    appender.pwrite(0, b"!").expect("goes to the end");
    assert_eq!(fs.read("/f"), Ok(b"hello world!".to_vec()));
    file.close().expect("released");
    drop(appender);
    let exclusive = OpenOptions::READ_WRITE.create().exclusive();
    assert_eq!(fs.open("/f", exclusive).err(), Some(Errno::EEXIST));
    assert_eq!(fake.opens(ino), 0, "what was dropped left with it at the latest");
    fs.truncate("/f", 5).expect("cut");
    fs.rename_with("/f", "/g", rename_flags::NOREPLACE).expect("moved");
    assert_eq!(fs.read("/g"), Ok(b"hello".to_vec()));
    assert_eq!(fs.stat("/f"), Err(Errno::ENOENT));
    fs.unlink("/g").expect("removed");
}

#[test]
fn attributes_links_and_xattrs() {
    let (_, fs) = fs();
    fs.mknod("/p", 0o10_644, 0).expect("a fifo");
    assert_eq!(fs.chmod("/p", 0o600).map(|attr| attr.mode), Ok(0o10_600));
    assert_eq!(fs.chown("/p", Some(5), None).map(|attr| (attr.uid, attr.gid)), Ok((5, 0)));
    assert_eq!(fs.link("/p", "/q").map(|attr| attr.nlink), Ok(2));
    fs.setxattr("/p", b"user.a", b"1", XattrMode::Create).expect("new");
    assert_eq!(fs.setxattr("/p", b"user.a", b"1", XattrMode::Create), Err(Errno::EEXIST));
    assert_eq!(fs.getxattr("/q", b"user.a").as_deref(), Ok(&b"1"[..]));
    assert_eq!(fs.listxattr("/q"), Ok(vec![b"user.a"[..].into()]));
    fs.removexattr("/q", b"user.a").expect("it was there");
    assert_eq!(fs.getxattr("/p", b"user.a"), Err(Errno::ENODATA));
    fs.mkdir("/d", 0o777).expect("a directory");
    assert_eq!(fs.stat("/d").map(|attr| attr.mode), Ok(0o40_755));
    fs.rmdir("/d").expect("empty");
    assert!(fs.statfs().is_ok_and(|stat| stat.space.total > 0));
    fs.syncfs().expect("nothing to do");
}

/// A client of an early rank, alone; directories of which it makes are delegated to it.
fn early_fs() -> (Fake, Fs) {
    let fake = Fake::new().early();
    let settings = crate::Settings {
        wants: proto::caps::Bits::ATTRS.with(proto::caps::Bits::DX),
        backoff: (std::time::Duration::from_micros(100), std::time::Duration::from_millis(2)),
        ..crate::Settings::default()
    };
    let mount = Mount::open_with(fake.connector(), ClientInfo::default(), settings).expect("welcome");
    let fs = Fs::new(mount, Cred::ROOT);
    fs.mkdir("/d", 0o755).expect("a directory, which is delegated with the answer");
    fake.clear_seen();
    (fake, fs)
}

#[test]
fn what_is_performed_here_is_there_at_the_rank() {
    let (fake, fs) = early_fs();
    fs.mkdir("/d/e", 0o755).expect("made here");
    fs.write("/d/e/f", b"content").expect("made and written here");
    fs.chmod("/d/e/f", 0o600).expect("changed here");
    fs.symlink("f", "/d/e/l").expect("made here");
    fs.unlink("/d/e/l").expect("removed here");
    let stat = fs.stat("/d/e/f").expect("known here");
    assert_eq!((stat.size, stat.mode, stat.ino.0 >= 1 << 32), (7, 0o100_600, true));
    let performed = fake.performed();
    assert_eq!(performed.len(), 6, "{performed:?}");
    assert!(performed.iter().all(|(_, heard)| !heard));
    assert!(
        fake.seen().iter().all(|request| request.effect() != proto::Effect::Journal),
        "{:?}",
        fake.seen()
    );
    assert_eq!(fs.read("/d/e/f"), Ok(b"content".to_vec()), "from the rank");
    assert_eq!(fs.readdir("/d/e").expect("a listing").count(), 1);
    assert_eq!(fake.opens(stat.ino), 0, "closed behind its making");
    fake.durable();
    fs.mount().close();
    assert_eq!(fake.sessions(), 0);
}

#[test]
fn a_break_sends_again_what_is_not_durable() {
    let (fake, fs) = early_fs();
    let file = fs.create("/d/f").expect("made here");
    file.write(b"abc").expect("written here");
    let performed = fs.mount().counts().performed;
    assert!(performed >= 2);
    fake.cut();
    fs.stat("/d/f").expect("after the resume");
    assert_eq!(fake.presented(), 1);
    assert_eq!(fs.mount().counts().performed, performed, "presented again is not performed again");
    assert_eq!(fake.performed().len(), 2, "each once");
    assert_eq!(fake.opens(file.node().ino), 1);
    file.close().expect("released");
    fake.cut();
    fs.stat("/d").expect("after another");
    fs.syncfs().expect("behind the release of what was opened once more");
    assert_eq!(fake.opens(fs.stat("/d/f").expect("there").ino), 0);
    fake.durable();
}

#[test]
fn what_fails_late_is_told_to_who_syncs_or_closes() {
    let (fake, fs) = early_fs();
    fake.fail_performed(|request| matches!(request, Request::Write { .. }).then_some(Errno::ENOSPC));
    let (tx, rx) = std::sync::mpsc::channel();
    fs.mount().on_late(Box::new(move |late| drop(tx.send(late.to_vec()))));
    let file = fs.create("/d/f").expect("made here");
    let other = fs.open("/d/f", OpenOptions::READ).expect("opened at the rank");
    file.write(b"abc").expect("written here");
    assert_eq!(file.fsync(), Err(Errno::ENOSPC));
    assert_eq!(file.fsync(), Ok(()), "once");
    assert_eq!(other.close(), Err(Errno::ENOSPC), "each handle");
    assert_eq!((fs.syncfs(), fs.syncfs()), (Err(Errno::ENOSPC), Ok(())));
    file.close().expect("it has heard of it");
    let late = rx.recv().expect("logged");
    assert_eq!((late.len(), late[0].kind.name(), late[0].errno), (1, "write", Errno::ENOSPC));
    fake.durable();
}
