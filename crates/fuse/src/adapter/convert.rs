//! From the rank's values to the kernel's and back.
//! Absent: decisions.

use proto::attr::{Attr, SetTime as SetTo};
use proto::reply::StatFs;
use proto::request::{LockKind, LockSpec};
use proto::{Errno, SetAttr};
use stdx::Wall;

use crate::abi::{self, FileLock, SxTime};
use crate::request::{self, Lock, SetTime, Time};

/// What stat calls the best size for I/O; programs take larger steps by themselves.
const BLOCK: u32 = 4096;
/// The kernel's "to the end" of a lock.
const LOCK_END: u64 = i64::MAX as u64;
/// Bytes of free space from which another inode can be made, for `df -i`.
const BYTES_PER_INODE: u64 = 512;

pub(super) fn attr(attr: &Attr) -> abi::Attr {
    let secs = |at: Wall| at.seconds().cast_unsigned();
    abi::Attr {
        ino: attr.ino.0,
        size: attr.size,
        blocks: attr.blocks,
        atime: secs(attr.atime),
        mtime: secs(attr.mtime),
        ctime: secs(attr.ctime),
        atimensec: attr.atime.nanos(),
        mtimensec: attr.mtime.nanos(),
        ctimensec: attr.ctime.nanos(),
        mode: attr.mode,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: BLOCK,
        flags: 0,
    }
}

pub(super) fn statx(attr: &Attr) -> abi::StatxAttr {
    let time = |at: Wall| SxTime { tv_sec: at.seconds(), tv_nsec: at.nanos(), reserved: 0 };
    // Linux's new_encode_dev: 8 low minor bits, 12 major bits, the rest of the minor.
    let (rdev_major, rdev_minor) =
        ((attr.rdev >> 8) & 0xfff, (attr.rdev & 0xff) | ((attr.rdev >> 12) & 0xfff00));
    abi::StatxAttr {
        mask: libc::STATX_BASIC_STATS | libc::STATX_BTIME,
        blksize: BLOCK,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        mode: attr.mode as u16,
        ino: attr.ino.0,
        size: attr.size,
        blocks: attr.blocks,
        atime: time(attr.atime),
        btime: time(attr.btime),
        ctime: time(attr.ctime),
        mtime: time(attr.mtime),
        rdev_major,
        rdev_minor,
        ..abi::StatxAttr::default()
    }
}

fn wall(time: Time) -> Wall {
    Wall::from_parts(time.secs, time.nanos)
}

fn set_time(time: SetTime) -> SetTo {
    match time {
        SetTime::Now => SetTo::Now,
        SetTime::At(at) => SetTo::At(wall(at)),
    }
}

pub(super) fn set_attr(set: &request::SetAttr) -> SetAttr {
    SetAttr {
        mode: set.mode.map(|mode| mode & 0o7777),
        uid: set.uid,
        gid: set.gid,
        size: set.size,
        atime: set.atime.map(set_time),
        mtime: set.mtime.map(set_time),
        ctime: set.ctime.map(|at| SetTo::At(wall(at))),
        kill_suidgid: set.kill_suidgid,
    }
}

pub(super) fn statfs(stat: &StatFs) -> abi::StatFs {
    let blocks = |bytes: u64| bytes / u64::from(BLOCK);
    let free_inodes = stat.space.available / BYTES_PER_INODE;
    abi::StatFs {
        blocks: blocks(stat.space.total),
        bfree: blocks(stat.space.free),
        bavail: blocks(stat.space.available),
        files: stat.files.saturating_add(free_inodes),
        ffree: free_inodes,
        bsize: BLOCK,
        namelen: proto::name::NAME_BYTES_MAX as u32,
        frsize: BLOCK,
        ..abi::StatFs::default()
    }
}

pub(super) fn lock(lock: &Lock) -> Result<LockSpec, Errno> {
    let kind = match lock.range.kind as i32 {
        libc::F_RDLCK => LockKind::Read,
        libc::F_WRLCK => LockKind::Write,
        libc::F_UNLCK => LockKind::Unlock,
        _ => return Err(Errno::EINVAL),
    };
    let end = if lock.range.end >= LOCK_END { u64::MAX } else { lock.range.end };
    let FileLock { start, pid, .. } = lock.range;
    Ok(LockSpec { flock: lock.flock, owner: lock.owner, kind, start, end, pid })
}

/// The lock in the way, or none.
pub(super) fn file_lock(found: Option<&LockSpec>) -> FileLock {
    match found {
        None => FileLock { kind: libc::F_UNLCK as u32, ..FileLock::default() },
        Some(lock) => FileLock {
            start: lock.start,
            end: lock.end.min(LOCK_END),
            kind: match lock.kind {
                LockKind::Read => libc::F_RDLCK as u32,
                LockKind::Write => libc::F_WRLCK as u32,
                LockKind::Unlock => libc::F_UNLCK as u32,
            },
            pid: lock.pid,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_and_device_numbers_survive() {
        let from = Attr { mtime: Wall::from_parts(-2, 5), rdev: 0x1234_5678, ..Attr::default() };
        let to = attr(&from);
        assert_eq!((to.mtime.cast_signed(), to.mtimensec), (-2, 5));
        let to = statx(&from);
        assert_eq!((to.mtime.tv_sec, to.mtime.tv_nsec), (-2, 5));
        // As makedev of glibc and new_encode_dev of Linux agree on.
        assert_eq!((to.rdev_major, to.rdev_minor), (0x456, 0x12378));
    }

    #[test]
    fn a_lock_to_the_end_is_one_both_ways() {
        let range = FileLock { start: 5, end: LOCK_END, kind: libc::F_WRLCK as u32, pid: 7 };
        let spec = lock(&Lock { fh: 0, owner: 1, range, flock: false }).expect("a write lock");
        assert_eq!((spec.start, spec.end, spec.kind), (5, u64::MAX, LockKind::Write));
        assert_eq!(file_lock(Some(&spec)), range);
        let bad = FileLock { kind: 9, ..range };
        assert_eq!(lock(&Lock { fh: 0, owner: 1, range: bad, flock: false }), Err(Errno::EINVAL));
    }
}
