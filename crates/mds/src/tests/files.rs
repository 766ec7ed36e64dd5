//! Contents: read, write, truncate, unlinked-but-open, sync, xattrs, ACLs, locks.

use super::*;
use proto::SetAttr;
use proto::request::{LockKind, LockSpec, XattrMode, open_flags};

fn size(size: u64) -> SetAttr {
    SetAttr { size: Some(size), ..Default::default() }
}

#[test]
fn writes_change_size_and_times_and_are_read_back() {
    let mut w = World::new();
    let f = w.create(root(), "f");
    let before = w.stat("/f").expect("stat");
    assert!(matches!(w.write(f, 3, b"abc"), Ok(Reply::Written { count: 3, attr }) if attr.size == 6));
    let after = w.stat("/f").expect("stat");
    assert!(after.mtime > before.mtime && after.ctime > before.ctime && after.change > before.change);
    assert_eq!(w.read(f), b"\0\0\0abc");
    let append = Request::Write {
        node: f,
        offset: 0,
        append: true,
        kill_suidgid: false,
        data: Payload::Owned(b"d".to_vec()),
    };
    assert!(matches!(w.call(append), Ok(Reply::Written { attr, .. }) if attr.size == 7));
    assert_eq!(w.write(f, i64::MAX as u64, b"x"), Err(Errno::EFBIG));
    assert_eq!(w.write(root(), 0, b"x"), Err(Errno::EISDIR));
    assert_eq!(w.call(Request::Seek { node: f, offset: 7, hole: false }), Err(Errno::ENXIO));
}

#[test]
fn appends_under_way_do_not_overlap() {
    let mut w = World::new();
    let f = w.create(root(), "f");
    w.hold_data = true;
    let append = |data: &[u8]| Request::Write {
        node: f,
        offset: 0,
        append: true,
        kill_suidgid: false,
        data: Payload::Owned(data.to_vec()),
    };
    let tids: Vec<Tid> =
        [&b"one"[..], b"two", b"three"].map(|d| w.start(EMBEDDED, Cred::ROOT, append(d))).to_vec();
    while !w.held.is_empty() {
        w.let_go();
    }
    assert!(tids.iter().all(|t| w.answer(EMBEDDED, *t).is_some_and(|o| o.is_ok())));
    assert_eq!(w.read(f), b"onetwothree");
}

#[test]
fn a_second_cut_waits_for_the_first() {
    let mut w = World::new();
    let f = w.create(root(), "f");
    w.write(f, 0, b"0123456789").expect("write");
    w.hold_data = true;
    w.attr(Request::SetAttr { node: f, set: size(5) }).expect("first");
    let second = w.start(EMBEDDED, Cred::ROOT, Request::SetAttr { node: f, set: size(2) });
    assert!(w.answer(EMBEDDED, second).is_none());
    w.let_go();
    assert!(w.answer(EMBEDDED, second).is_some());
    w.attr(Request::SetAttr { node: f, set: size(4) }).expect("grow");
    assert_eq!(w.read(f), b"01\0\0");
}

#[test]
fn an_open_file_outlives_its_name_and_is_purged_with_the_last_close() {
    let mut w = World::new();
    let f = w.create(root(), "f");
    w.write(f, 0, b"data").expect("write");
    w.open(f, 2).expect("open");
    w.open(f, 2).expect("open again");
    assert_eq!(w.unlink(root(), "f"), Ok(Reply::Ok));
    assert_eq!(w.attr(Request::GetAttr { node: f }).map(|a| a.nlink), Ok(0));
    w.checkpoint();
    w.drop_cache();
    assert_eq!(w.read(f), b"data");
    assert_eq!(w.call(Request::Release { node: f, count: 1 }), Ok(Reply::Ok));
    assert_eq!(w.data.len(), 1);
    assert_eq!(w.call(Request::Release { node: f, count: 1 }), Ok(Reply::Ok));
    assert_eq!(w.data.len(), 0);
    assert_eq!(w.attr(Request::GetAttr { node: f }), Err(Errno::ESTALE));
    assert_eq!(w.rank.status().busy_files, 0);
}

#[test]
fn a_closed_file_goes_at_once_and_only_when_durable() {
    let mut w = World::new();
    let f = w.create(root(), "f");
    w.write(f, 0, b"data").expect("write");
    w.auto_durable = false;
    assert_eq!(w.unlink(root(), "f"), Ok(Reply::Ok));
    assert_eq!(w.data.len(), 1, "a crash now brings the name back");
    w.sync();
    assert_eq!(w.data.len(), 0);
}

#[test]
fn nameless_files_can_be_given_a_name() {
    let mut w = World::new();
    let made = w.attr(Request::TmpFile { parent: root(), new: mode(0o600), flags: 2 }).expect("tmpfile");
    assert_eq!(made.nlink, 0);
    w.write(node(&made), 0, b"x").expect("write");
    let named = w.attr(Request::Link { node: node(&made), parent: root(), name: n("t") }).expect("link");
    assert_eq!((named.nlink, named.ino), (1, made.ino));
    w.call(Request::Release { node: node(&made), count: 1 }).expect("release");
    assert_eq!(w.stat("/t").map(|a| a.size), Ok(1));
    let lost = w.attr(Request::TmpFile { parent: root(), new: mode(0o600), flags: 2 }).expect("tmpfile");
    w.call(Request::Release { node: node(&lost), count: 1 }).expect("release");
    assert_eq!(w.attr(Request::GetAttr { node: node(&lost) }), Err(Errno::ESTALE));
}

#[test]
fn fsync_waits_for_data_and_journal() {
    let mut w = World::new();
    let f = w.create(root(), "f");
    w.auto_durable = false;
    w.write(f, 0, b"data").expect("early");
    let tid = w.start(EMBEDDED, Cred::ROOT, Request::Fsync { node: f, data_only: false });
    assert!(w.answer(EMBEDDED, tid).is_none());
    assert!(w.data_ops.iter().any(|op| matches!(op, DataOp::Sync { .. })));
    w.sync();
    assert_eq!(w.answer(EMBEDDED, tid), Some(Ok(Reply::Ok)));
    w.redo_syncs = true;
    w.write(f, 0, b"DATA").expect("early");
    let tid = w.start(EMBEDDED, Cred::ROOT, Request::Fsync { node: f, data_only: false });
    w.sync();
    assert_eq!(w.answer(EMBEDDED, tid), Some(Ok(Reply::Ok)));
    w.data.clear();
    w.crash();
    let f = w.path("/f").expect("lookup");
    assert_eq!(w.read(f), b"DATA", "the journal carried it");
}

#[test]
fn replacing_a_file_syncs_the_new_one_first() {
    let mut w = World::new();
    let f = w.create(root(), "new");
    w.create(root(), "old");
    w.write(f, 0, b"data").expect("write");
    w.rename((root(), "new"), (root(), "old"), 0).expect("rename");
    let at = |w: &World| w.data_ops.iter().filter(|op| matches!(op, DataOp::Sync { .. })).count();
    assert_eq!(at(&w), 1);
    w.create(root(), "older");
    w.rename((root(), "old"), (root(), "older"), 0).expect("rename");
    assert_eq!(at(&w), 1, "synced already");
}

/// The kernel sends O_TRUNC as an open and a cut.
#[test]
fn a_file_that_was_cut_while_open_is_synced_at_its_last_close() {
    let mut w = World::new();
    let f = w.create(root(), "f");
    w.write(f, 0, b"old").expect("write");
    let cut = |w: &mut World| {
        w.attr(Request::SetAttr { node: f, set: size(0) }).expect("cut");
        w.write(f, 0, b"new").expect("write");
        w.data_ops.clear();
        w.call(Request::Release { node: f, count: 1 }).expect("closed");
        w.data_ops.iter().filter(|op| matches!(op, DataOp::Sync { .. })).count()
    };
    w.open(f, 1).expect("open");
    assert_eq!(cut(&mut w), 1);
    assert_eq!(cut(&mut w), 0, "nobody had it open");
}

#[test]
fn opening_with_truncate_cuts() {
    let mut w = World::new();
    let f = w.create(root(), "f");
    w.write(f, 0, b"data").expect("write");
    assert!(matches!(w.open(f, 1 | open_flags::TRUNC), Ok(Reply::Attr(a)) if a.size == 0));
    assert_eq!(w.read(f), b"");
    assert_eq!(w.open(root(), 1), Err(Errno::EISDIR));
    let create = Request::Create { parent: root(), name: n("f"), new: mode(0o644), flags: open_flags::EXCL };
    assert_eq!(w.call(create), Err(Errno::EEXIST));
    let create = Request::Create { parent: root(), name: n("f"), new: mode(0o644), flags: 2 };
    assert!(matches!(w.call(create), Ok(Reply::Created { new: false, attr }) if attr.ino == f.ino));
}

#[test]
fn fallocate_zeroes_extends_and_refuses() {
    let mut w = World::new();
    let f = w.create(root(), "f");
    w.write(f, 0, b"0123456789").expect("write");
    let alloc = |mode, offset, len| Request::Fallocate { node: f, mode, offset, len };
    assert_eq!(w.call(alloc(3, 2, 3)), Ok(Reply::Ok));
    assert_eq!(w.read(f), b"01\x00\x00\x0056789");
    assert!(w.call(alloc(0, 8, 8)).is_ok());
    assert_eq!(w.stat("/f").map(|a| a.size), Ok(16));
    assert!(w.call(alloc(1, 8, 100)).is_ok());
    assert_eq!(w.stat("/f").map(|a| a.size), Ok(16));
    assert_eq!(w.call(alloc(2, 0, 1)), Err(Errno::EOPNOTSUPP));
    assert_eq!(w.call(alloc(0, 0, 0)), Err(Errno::EINVAL));
    assert_eq!(w.call(alloc(0, i64::MAX as u64, 9)), Err(Errno::EFBIG));
}

/// What broke: space behind the end of a file that had no byte was never freed.
#[test]
fn space_behind_the_end_is_given_back() {
    let mut w = World::new();
    let f = w.create(root(), "f");
    assert!(w.call(Request::Fallocate { node: f, mode: 1, offset: 0, len: 100 }).is_ok());
    assert_eq!(w.stat("/f").map(|a| a.size), Ok(0));
    assert_eq!(w.call(Request::Release { node: f, count: 1 }), Ok(Reply::Ok));
    w.data_ops.clear();
    assert_eq!(w.unlink(root(), "f"), Ok(Reply::Ok));
    let removed = |op: &DataOp| matches!(op, DataOp::Remove { file } if file.ino == f.ino);
    assert!(w.data_ops.iter().any(removed), "{:?}", w.data_ops);
}

#[test]
fn copies_stay_in_the_server() {
    let mut w = World::new();
    let (a, b) = (w.create(root(), "a"), w.create(root(), "b"));
    w.write(a, 0, b"0123456789").expect("write");
    let copy =
        |source, target, len| Request::CopyRange { source, source_offset: 2, target, target_offset: 1, len };
    assert!(matches!(w.call(copy(a, b, 4)), Ok(Reply::Written { count: 4, attr }) if attr.size == 5));
    assert_eq!(w.read(b), b"\x002345");
    assert_eq!(w.call(copy(a, a, 4)), Err(Errno::EINVAL));
    assert!(matches!(w.call(copy(a, b, 99)), Ok(Reply::Written { count: 8, .. })));
}

#[test]
fn modes_owners_and_times_follow_posix() {
    let mut w = World::new();
    let f = w.create(root(), "f");
    let set = |w: &mut World, set| w.attr(Request::SetAttr { node: f, set }).expect("setattr");
    let a = set(&mut w, SetAttr { mode: Some(0o6755), ..Default::default() });
    assert_eq!(a.mode, 0o106_755);
    let a = set(&mut w, SetAttr { uid: Some(5), ..Default::default() });
    assert_eq!((a.mode, a.uid), (0o100_755, 5), "a new owner ends setuid and setgid");
    set(&mut w, SetAttr { mode: Some(0o6745), ..Default::default() });
    let write = Request::Write {
        node: f,
        offset: 0,
        append: false,
        kill_suidgid: true,
        data: Payload::Owned(vec![1]),
    };
    w.call(write).expect("write");
    assert_eq!(w.stat("/f").map(|a| a.mode), Ok(0o102_745), "setgid without group execution stays");
    let at = proto::attr::SetTime::At(Wall(77));
    let a = set(&mut w, SetAttr { atime: Some(at), mtime: Some(at), ..Default::default() });
    assert_eq!((a.atime, a.mtime), (Wall(77), Wall(77)));
    let d = w.mkdir(root(), "d");
    w.create(d, "x");
    let set = SetAttr { mtime: Some(at), ..Default::default() };
    assert_eq!(w.attr(Request::SetAttr { node: d, set }).map(|a| a.mtime), Ok(Wall(77)));
    assert_eq!(w.stat("/d").map(|a| a.mtime), Ok(Wall(77)), "times of a directory can go back");
    w.create(d, "y");
    assert!(w.stat("/d").is_ok_and(|a| a.mtime > Wall(77)));
}

#[test]
fn xattrs_have_rules_and_limits() {
    let mut w = World::new();
    let f = w.create(root(), "f");
    let set = |w: &mut World, name: &str, value: &[u8], mode| {
        w.call(Request::SetXattr { node: f, name: n(name), value: value.into(), mode })
    };
    let get = |w: &mut World, name: &str| w.call(Request::GetXattr { node: f, name: n(name) });
    assert_eq!(get(&mut w, "user.a"), Err(Errno::ENODATA));
    assert_eq!(set(&mut w, "user.a", b"1", XattrMode::Replace), Err(Errno::ENODATA));
    assert_eq!(set(&mut w, "user.a", b"1", XattrMode::Create), Ok(Reply::Ok));
    assert_eq!(set(&mut w, "user.a", b"1", XattrMode::Create), Err(Errno::EEXIST));
    assert_eq!(set(&mut w, "wrong.a", b"1", XattrMode::Either), Err(Errno::EOPNOTSUPP));
    assert_eq!(set(&mut w, "user.big", &[0; 65_600], XattrMode::Either), Err(Errno::E2BIG));
    assert_eq!(set(&mut w, "user.big", &[0; 65_536], XattrMode::Either), Err(Errno::ENOSPC));
    assert_eq!(set(&mut w, "trusted.t", b"2", XattrMode::Either), Ok(Reply::Ok));
    assert_eq!(
        w.call(Request::ListXattr { node: f }),
        Ok(Reply::XattrNames(b"trusted.t\0user.a\0"[..].into()))
    );
    assert_eq!(get(&mut w, "ceph.dir.entries"), Err(Errno::EINVAL), "not a directory");
    let entries = w.call(Request::GetXattr { node: root(), name: n("ceph.dir.entries") });
    assert_eq!(entries, Ok(Reply::Xattr(b"1"[..].into())));
    assert_eq!(set(&mut w, "ceph.dir.entries", b"2", XattrMode::Either), Err(Errno::EPERM));
    assert_eq!(get(&mut w, "ceph.nonsense"), Err(Errno::EINVAL));
    w.checkpoint();
    w.drop_cache();
    assert_eq!(get(&mut w, "user.a"), Ok(Reply::Xattr(b"1"[..].into())));
    assert!(w.stat("/f").is_ok_and(|a| a.has_xattrs));
    assert_eq!(w.call(Request::RemoveXattr { node: f, name: n("user.a") }), Ok(Reply::Ok));
    assert_eq!(w.call(Request::RemoveXattr { node: f, name: n("user.a") }), Err(Errno::ENODATA));
}

#[test]
fn a_policy_that_nobody_can_have_set_is_absent() {
    let mut w = World::new();
    let f = w.create(root(), "f");
    let mut get = |node, name: &str| w.call(Request::GetXattr { node, name: n(name) }).map(|_| ());
    for name in [
        "dir.pin",
        "dir.bal.mask",
        "dir.layout",
        "dir.layout.stripe_unit",
        "quota.max_bytes",
        "dmclock.mds_weight",
        "qos.limit",
    ] {
        for space in ["ceph", "pando"] {
            assert_eq!(get(root(), &format!("{space}.{name}")), Err(Errno::ENODATA), "{name}");
            assert_eq!(get(f, &format!("{space}.{name}")), Err(Errno::EINVAL), "{name} of a file");
        }
    }
    for name in ["dir.owner", "dir.placement", "quota.used_files"] {
        assert_eq!(get(root(), &format!("pando.{name}")), Err(Errno::ENODATA), "{name}");
        assert_eq!(get(root(), &format!("ceph.{name}")), Err(Errno::EINVAL), "{name}");
    }
    assert_eq!(get(f, "ceph.file.layout.pool"), Err(Errno::ENODATA));
    assert_eq!(get(root(), "ceph.file.layout"), Err(Errno::EINVAL), "not a file");
    assert_eq!(
        (get(f, "pando.project"), get(f, "pando.durable")),
        (Err(Errno::ENODATA), Err(Errno::ENODATA))
    );
    assert_eq!(get(root(), "ceph.snap.btime"), Err(Errno::ENODATA));
    for name in ["ceph.dir.pins", "ceph.dir.layout.", "ceph.quota.", "pando.", "ceph.project"] {
        assert_eq!(get(root(), name), Err(Errno::EINVAL), "{name}");
    }
    let (name, value) = (n("ceph.dir.pin"), b"1"[..].into());
    let set = Request::SetXattr { node: root(), name: name.clone(), value, mode: XattrMode::Either };
    assert_eq!(w.call(set), Err(Errno::EINVAL), "this version has none");
    assert_eq!(w.call(Request::RemoveXattr { node: root(), name }), Err(Errno::ENODATA));
    assert_eq!(w.call(Request::RemoveXattr { node: root(), name: n("ceph.dir.entries") }), Err(Errno::EPERM));
}

pub(super) fn acl(entries: &[(u16, u16, u32)]) -> Box<[u8]> {
    let mut out = 2_u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        out.extend_from_slice(&tag.to_le_bytes());
        out.extend_from_slice(&perm.to_le_bytes());
        out.extend_from_slice(&id.to_le_bytes());
    }
    out.into()
}

pub(super) const NO: u32 = u32::MAX;

#[test]
fn acls_set_modes_and_are_inherited() {
    let mut w = World::new();
    let d = w.mkdir(root(), "d");
    let name = n("system.posix_acl_default");
    let value = acl(&[(1, 7, NO), (2, 7, 42), (4, 5, NO), (0x10, 7, NO), (0x20, 0, NO)]);
    w.call(Request::SetXattr { node: d, name, value, mode: XattrMode::Either }).expect("default acl");
    let new = NewNode { mode: 0o100_666, umask: 0o077, rdev: 0 };
    let f = w.attr(Request::MkNod { parent: d, name: n("f"), new }).expect("mknod");
    assert_eq!(f.mode, 0o100_660, "the default ACL, not the umask");
    let sub = w.mkdir(d, "sub");
    let below = w.call(Request::GetXattr { node: sub, name: n("system.posix_acl_default") });
    assert!(below.is_ok());
    let chmod = SetAttr { mode: Some(0o600), ..Default::default() };
    w.attr(Request::SetAttr { node: node(&f), set: chmod }).expect("chmod");
    let name = n("system.posix_acl_access");
    let Ok(Reply::Xattr(now)) = w.call(Request::GetXattr { node: node(&f), name: name.clone() }) else {
        panic!()
    };
    assert_eq!(
        now,
        acl(&[(1, 6, NO), (2, 7, 42), (4, 5, NO), (0x10, 0, NO), (0x20, 0, NO)]),
        "the mask follows"
    );
    let plain = acl(&[(1, 6, NO), (4, 4, NO), (0x20, 4, NO)]);
    let set = Request::SetXattr { node: node(&f), name: name.clone(), value: plain, mode: XattrMode::Either };
    w.call(set).expect("plain");
    assert_eq!(w.stat("/d/f").map(|a| a.mode), Ok(0o100_644));
    assert_eq!(w.call(Request::GetXattr { node: node(&f), name }), Err(Errno::ENODATA));
}

fn lock(owner: u64, kind: LockKind) -> LockSpec {
    LockSpec { flock: false, owner, kind, start: 0, end: 9, pid: owner as u32 }
}

#[test]
fn a_waiting_lock_is_granted_or_cancelled() {
    let mut w = World::new();
    let f = w.create(root(), "f");
    let set = |owner, kind, wait| Request::SetLock { node: f, lock: lock(owner, kind), wait };
    assert_eq!(w.call(set(1, LockKind::Write, false)), Ok(Reply::Ok));
    assert_eq!(w.call(set(2, LockKind::Read, false)), Err(Errno::EAGAIN));
    let in_way = w.call(Request::TestLock { node: f, lock: lock(2, LockKind::Read) });
    assert!(matches!(in_way, Ok(Reply::Lock(Some(l))) if l.pid == 1));
    let second = w.start(EMBEDDED, Cred::ROOT, set(2, LockKind::Write, true));
    let third = w.start(EMBEDDED, Cred::ROOT, set(3, LockKind::Write, true));
    assert!(w.answer(EMBEDDED, second).is_none());
    w.say(EMBEDDED, ClientMsg::Cancel { tid: second });
    assert_eq!(w.answer(EMBEDDED, second), Some(Err(Errno::EINTR)));
    assert!(w.answer(EMBEDDED, third).is_none());
    w.call(Request::ReleaseLocks { node: f, flock: false, owner: 1 }).expect("close");
    assert_eq!(w.answer(EMBEDDED, third), Some(Ok(Reply::Ok)));
}

#[test]
fn a_full_store_refuses_new_data_only() {
    let mut w = World::new();
    let f = w.create(root(), "f");
    w.inject(Input::Space { full: true });
    assert_eq!(w.write(f, 0, b"x"), Err(Errno::ENOSPC));
    let make = Request::MkDir { parent: root(), name: n("d"), new: mode(0o755) };
    assert_eq!(w.call(make.clone()), Err(Errno::ENOSPC));
    assert_eq!(w.unlink(root(), "f"), Ok(Reply::Ok));
    let available = |w: &mut World| match w.call(Request::StatFs) {
        Ok(Reply::StatFs(stat)) => stat.space.available,
        other => panic!("not space: {other:?}"),
    };
    assert_eq!((available(&mut w), w.rank.status().full), (0, true), "what is free is kept for unlink");
    w.inject(Input::Space { full: false });
    assert_eq!((available(&mut w), w.rank.status().full), (40, false));
    assert!(w.call(make).is_ok());
}

/// What broke: the content an fsync had taken was journaled behind a cut that came meanwhile, and replay brought it back.
#[test]
fn content_taken_before_a_cut_is_not_journaled_behind_it() {
    let mut w = World::new();
    let f = w.create(root(), "f");
    w.write(f, 0, b"before the cut").expect("write");
    (w.redo_syncs, w.hold_data) = (true, true);
    let tid = w.start(EMBEDDED, Cred::ROOT, Request::Fsync { node: f, data_only: false });
    w.attr(Request::SetAttr { node: f, set: SetAttr { size: Some(0), ..Default::default() } }).expect("cut");
    w.let_go();
    assert_eq!(w.answer(EMBEDDED, tid), Some(Ok(Reply::Ok)));
    w.data_ops.clear();
    w.crash();
    let back = |op: &DataOp| matches!(op, DataOp::Redo { data, .. } if !data.is_empty());
    assert!(!w.data_ops.iter().any(back), "{:?}", w.data_ops);
}

/// The same when the cut was journaled first and the data store had not been told of it yet.
#[test]
fn an_fsync_waits_for_a_cut_that_is_not_carried_out() {
    let mut w = World::new();
    let f = w.create(root(), "f");
    w.write(f, 0, b"before the cut").expect("write");
    (w.redo_syncs, w.auto_durable) = (true, false);
    w.attr(Request::SetAttr { node: f, set: SetAttr { size: Some(0), ..Default::default() } }).expect("cut");
    w.data_ops.clear();
    let tid = w.start(EMBEDDED, Cred::ROOT, Request::Fsync { node: f, data_only: false });
    assert!(w.data_ops.is_empty(), "{:?}", w.data_ops);
    w.sync();
    w.sync();
    assert_eq!(w.answer(EMBEDDED, tid), Some(Ok(Reply::Ok)));
    assert!(matches!(w.data_ops[..], [DataOp::Truncate { .. }, DataOp::Sync { .. }]), "{:?}", w.data_ops);
}

#[cfg(feature = "mutants")]
#[test]
fn content_behind_its_cut_is_caught() {
    for test in [
        an_fsync_waits_for_a_cut_that_is_not_carried_out as fn(),
        content_taken_before_a_cut_is_not_journaled_behind_it,
    ] {
        stdx::mutant::activate(Some("mds_redo_behind_cut"));
        let verdict = std::panic::catch_unwind(test);
        stdx::mutant::activate(None);
        assert!(verdict.is_err());
    }
}

/// What broke: the write carried the cut out, the power failed before the cut was durable, and the old bytes were
/// gone.
#[test]
fn a_write_waits_until_the_cut_before_it_is_durable() {
    let mut w = World::new();
    let f = w.create(root(), "f");
    w.write(f, 0, b"before the cut").expect("write");
    w.auto_durable = false;
    w.attr(Request::SetAttr { node: f, set: size(0) }).expect("cut");
    w.data_ops.clear();
    let data = Payload::Owned(b"after".to_vec());
    let write = Request::Write { node: f, offset: 0, append: false, kill_suidgid: false, data };
    let tid = w.start(EMBEDDED, Cred::ROOT, write);
    assert!(w.data_ops.is_empty(), "{:?}", w.data_ops);
    w.sync();
    w.sync();
    assert!(matches!(w.answer(EMBEDDED, tid), Some(Ok(_))));
    assert!(w.data_ops.iter().any(|op| matches!(op, DataOp::Write { .. })), "{:?}", w.data_ops);
}

#[cfg(feature = "mutants")]
#[test]
fn a_write_before_its_cut_is_caught() {
    stdx::mutant::activate(Some("mds_write_before_cut"));
    let verdict = std::panic::catch_unwind(a_write_waits_until_the_cut_before_it_is_durable);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
}
