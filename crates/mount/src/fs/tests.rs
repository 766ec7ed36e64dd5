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
    assert_eq!(fake.opens(ino), 0);
    let exclusive = OpenOptions::READ_WRITE.create().exclusive();
    assert_eq!(fs.open("/f", exclusive).err(), Some(Errno::EEXIST));
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
