//! Names: make, find, list, link, rename, remove.

use super::*;
use proto::request::rename_flags::{EXCHANGE, NOREPLACE};

#[test]
fn made_names_are_found_listed_and_removed() {
    let mut w = World::new();
    let d = w.mkdir(root(), "d");
    let f = w.create(d, "f");
    assert_eq!(w.lookup(d, "f").map(|a| a.ino), Ok(f.ino));
    assert_eq!(w.lookup(d, "g"), Err(Errno::ENOENT));
    assert_eq!(w.attr(Request::MkDir { parent: d, name: n("f"), new: mode(0o755) }), Err(Errno::EEXIST));
    assert_eq!(w.lookup(f, "x"), Err(Errno::ENOTDIR));
    let attr = w.stat("/d").expect("stat");
    assert_eq!((attr.size, attr.nlink), (1, 2));
    assert_eq!(w.stat("/").map(|a| (a.size, a.nlink)), Ok((1, 3)));
    assert_eq!(w.call(Request::RmDir { parent: root(), name: n("d") }), Err(Errno::ENOTEMPTY));
    assert_eq!(w.unlink(root(), "d"), Err(Errno::EISDIR));
    assert_eq!(w.call(Request::RmDir { parent: d, name: n("f") }), Err(Errno::ENOTDIR));
    assert_eq!(w.unlink(d, "f"), Ok(Reply::Ok));
    assert_eq!(w.unlink(d, "f"), Err(Errno::ENOENT));
    assert_eq!(w.call(Request::RmDir { parent: root(), name: n("d") }), Ok(Reply::Ok));
    assert_eq!(w.stat("/").map(|a| (a.size, a.nlink)), Ok((0, 2)));
    assert_eq!(w.attr(Request::GetAttr { node: d }), Err(Errno::ESTALE));
}

#[test]
fn everything_is_found_again_after_checkpoint_and_forgetting() {
    let mut w = World::new();
    let d = w.mkdir(root(), "d");
    for i in 0..200 {
        w.create(d, &format!("file-with-a-name-longer-than-inline-{i}"));
    }
    let before = w.tree();
    w.checkpoint();
    w.drop_cache();
    assert!(w.rank.status().cached < 50, "{:?}", w.rank.status());
    assert_eq!(w.tree(), before);
    w.crash();
    assert_eq!(w.tree(), before);
}

#[test]
fn links_share_an_inode_and_the_last_name_ends_it() {
    let mut w = World::new();
    let d = w.mkdir(root(), "d");
    let f = w.create(root(), "a");
    let link = |w: &mut World, node, parent, name| w.attr(Request::Link { node, parent, name: n(name) });
    assert_eq!(link(&mut w, d, root(), "x"), Err(Errno::EPERM));
    let before = w.rank.status();
    let b = link(&mut w, f, d, "b").expect("link");
    assert_eq!((b.nlink, b.ino), (2, f.ino));
    assert_eq!(link(&mut w, node(&b), root(), "c").map(|a| a.nlink), Ok(3));
    assert_eq!(link(&mut w, node(&b), root(), "a"), Err(Errno::EEXIST));
    let after = w.rank.status();
    assert!(after.cached >= before.cached + 2 && after.cached_inodes == before.cached_inodes, "{after:?}");
    w.checkpoint();
    w.drop_cache();
    assert_eq!(w.stat("/a").map(|a| (a.ino, a.nlink)), Ok((f.ino, 3)));
    assert_eq!(w.unlink(root(), "a"), Ok(Reply::Ok));
    assert_eq!(w.rename((root(), "c"), (d, "b"), 0), Ok(Reply::Ok), "two names of one inode");
    assert_eq!(w.stat("/c").map(|a| a.nlink), Ok(2), "and both stay");
    assert_eq!(w.unlink(root(), "c"), Ok(Reply::Ok));
    assert_eq!(w.stat("/d/b").map(|a| a.nlink), Ok(1));
    assert_eq!(w.unlink(d, "b"), Ok(Reply::Ok));
    assert_eq!(w.attr(Request::GetAttr { node: node(&b) }), Err(Errno::ESTALE));
    let links = w.rank.view.cache.find_dir(Ino::LINKS).expect("links");
    assert_eq!(w.rank.view.cache.dir(links).header.entries, 0);
}

#[test]
fn rename_replaces_and_refuses_as_posix_says() {
    let mut w = World::new();
    let (a, b) = (w.mkdir(root(), "a"), w.mkdir(root(), "b"));
    let inner = w.mkdir(a, "inner");
    let f = w.create(a, "f");
    w.create(b, "g");
    assert_eq!(w.rename((a, "f"), (b, "g"), NOREPLACE), Err(Errno::EEXIST));
    assert_eq!(w.rename((a, "f"), (b, "g"), 0), Ok(Reply::Ok));
    assert_eq!(w.stat("/b/g").map(|x| x.ino), Ok(f.ino));
    assert_eq!(w.rename((a, "f"), (b, "h"), 0), Err(Errno::ENOENT));
    assert_eq!(w.rename((root(), "a"), (b, "g"), 0), Err(Errno::ENOTDIR));
    assert_eq!(w.rename((b, "g"), (root(), "a"), 0), Err(Errno::EISDIR));
    assert_eq!(w.rename((root(), "b"), (root(), "a"), 0), Err(Errno::ENOTEMPTY));
    assert_eq!(w.rename((root(), "a"), (inner, "x"), 0), Err(Errno::EINVAL));
    assert_eq!(w.rename((root(), "a"), (a, "x"), 0), Err(Errno::EINVAL));
    assert_eq!(w.rename((a, "inner"), (b, "inner"), 0), Ok(Reply::Ok));
    assert_eq!((w.stat("/a").map(|x| x.nlink), w.stat("/b").map(|x| x.nlink)), (Ok(2), Ok(3)));
    assert_eq!(w.rename((b, "inner"), (root(), "a"), 0), Ok(Reply::Ok), "onto an empty directory");
    assert_eq!(w.stat("/a").map(|x| x.ino), Ok(inner.ino));
    assert_eq!(w.stat("/").map(|x| (x.size, x.nlink)), Ok((2, 4)));
    w.tree();
}

#[test]
fn exchange_swaps_files_and_directories() {
    let mut w = World::new();
    let (a, b) = (w.mkdir(root(), "a"), w.mkdir(root(), "b"));
    let d = w.mkdir(a, "d");
    let f = w.create(b, "f");
    assert_eq!(w.rename((a, "d"), (b, "nothing"), EXCHANGE), Err(Errno::ENOENT));
    assert_eq!(w.rename((a, "d"), (b, "f"), EXCHANGE | NOREPLACE), Err(Errno::EINVAL));
    assert_eq!(w.rename((a, "d"), (b, "f"), EXCHANGE), Ok(Reply::Ok));
    assert_eq!(w.stat("/a/d").map(|x| x.ino), Ok(f.ino));
    assert_eq!(w.stat("/b/f").map(|x| x.ino), Ok(d.ino));
    assert_eq!((w.stat("/a").map(|x| x.nlink), w.stat("/b").map(|x| x.nlink)), (Ok(2), Ok(3)));
    assert_eq!(w.rename((root(), "b"), (b, "f"), EXCHANGE), Err(Errno::EINVAL), "into itself");
    let before = w.tree();
    w.crash();
    assert_eq!(w.tree(), before);
}

#[test]
fn a_listing_under_change_shows_what_stayed_exactly_once() {
    let mut w = World::new();
    let d = w.mkdir(root(), "d");
    for i in 0..120 {
        w.create(d, &format!("stay{i}"));
    }
    for i in 0..40 {
        w.create(d, &format!("go{i}"));
    }
    w.checkpoint();
    w.drop_cache();
    let (mut seen, mut after, mut round) = (Vec::new(), 0, 0);
    loop {
        let (entries, end) = w.page(d, after, round % 2 == 0);
        after = entries.last().map_or(after, |e| e.hash.cookie());
        seen.extend(entries.into_iter().map(|e| String::from_utf8_lossy(&e.name).into_owned()));
        if end {
            break;
        }
        let _ = w.unlink(d, &format!("go{round}"));
        w.create(d, &format!("new{round}"));
        let _ = w.rename((d, &format!("go{}", 20 + round)), (d, &format!("moved{round}")), 0);
        if round % 3 == 0 {
            w.checkpoint();
        }
        if round % 4 == 0 {
            w.drop_cache();
        }
        round += 1;
    }
    assert!(round > 10);
    let stayed: Vec<_> = seen.iter().filter(|s| s.starts_with("stay")).collect();
    assert_eq!(stayed.len(), 120);
    seen.sort();
    let all = seen.len();
    seen.dedup();
    assert_eq!(seen.len(), all, "no name twice");
}

#[test]
fn a_directory_is_found_by_number_after_it_moved() {
    let mut w = World::new();
    let (a, b) = (w.mkdir(root(), "a"), w.mkdir(root(), "b"));
    let d = w.mkdir(a, "d");
    w.checkpoint();
    assert_eq!(w.rename((a, "d"), (b, "e"), 0), Ok(Reply::Ok));
    w.checkpoint();
    w.drop_cache();
    assert_eq!(w.attr(Request::GetAttr { node: d }).map(|x| x.parent), Ok(b.ino));
    w.drop_cache();
    let parent = w.call(Request::Parent { node: NodeRef::bare(d.ino) });
    assert!(matches!(parent, Ok(Reply::Node(p)) if p.ino == b.ino), "{parent:?}");
}

#[test]
fn symlinks_and_special_files_keep_what_they_are() {
    let mut w = World::new();
    let link = Request::Symlink { parent: root(), name: n("l"), target: b"some/where"[..].into() };
    let link = w.attr(link).expect("symlink");
    assert_eq!((link.size, link.mode), (10, 0o120_777));
    assert_eq!(w.call(Request::ReadLink { node: node(&link) }), Ok(Reply::Target(b"some/where"[..].into())));
    let new = NewNode { mode: 0o020_600, umask: 0o077, rdev: 0x501 };
    let device = w.attr(Request::MkNod { parent: root(), name: n("dev"), new }).expect("mknod");
    assert_eq!((device.rdev, device.mode), (0x501, 0o020_600));
    assert_eq!(w.call(Request::ReadLink { node: node(&device) }), Err(Errno::EINVAL));
    let empty = Request::Symlink { parent: root(), name: n("e"), target: Box::default() };
    assert_eq!(w.call(empty), Err(Errno::ENOENT));
    w.checkpoint();
    w.drop_cache();
    assert_eq!(w.stat("/dev").map(|x| x.rdev), Ok(0x501));
    assert_eq!(w.stat("/l").map(|x| x.size), Ok(10));
}

#[test]
fn setgid_directories_pass_their_group_on() {
    let mut w = World::new();
    let d = w.mkdir(root(), "d");
    let set = proto::SetAttr { mode: Some(0o2777), gid: Some(50), ..Default::default() };
    w.attr(Request::SetAttr { node: d, set }).expect("chmod");
    let cred = Cred { uid: 9, gid: 9, groups: vec![] };
    let make = Request::MkDir { parent: d, name: n("s"), new: mode(0o755) };
    let Ok(Reply::Attr(sub)) = w.call_as(EMBEDDED, cred.clone(), make) else { panic!("mkdir") };
    assert_eq!((sub.gid, sub.mode), (50, 0o042_755));
    let make = Request::MkNod { parent: d, name: n("f"), new: mode(0o102_775) };
    let Ok(Reply::Attr(file)) = w.call_as(EMBEDDED, cred, make) else { panic!("mknod") };
    assert_eq!((file.gid, file.mode), (50, 0o100_775), "not a member: no setgid");
}
