//! What the rank will make of an operation that this client performs: the same attributes, field by field.
//!
//! The rules are those of `mds/src/ops` for a session that may act for anyone, in a directory without extended attributes and
//! on inodes that have none.
//!
//! Absent: whether it may be performed here (`machine/perform.rs`).

use proto::attr::{SetTime, inherited};
use proto::every_request;
use proto::inode::SYMLINK_BYTES_MAX;
use proto::name::name_hash;
use proto::request::{NewNode, Request};
use proto::{Attr, Cred, FileKind, Ino, Name, NameHash, SetAttr};
use stdx::Wall;
use stdx::hash::HashSeed;

/// Bits that a write or a new owner takes away.
const SUID_SGID: u32 = 0o6000;

/// What a request makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Making<'a> {
    pub(crate) parent: Ino,
    pub(crate) name: &'a Name,
    kind: FileKind,
    mode: u32,
    rdev: u32,
    size: u64,
    /// It is opened with these flags.
    pub(crate) flags: Option<u32>,
}

impl<'a> Making<'a> {
    /// `None`: it makes nothing, or the rank refuses it.
    pub(crate) fn of(request: &'a Request) -> Option<Self> {
        let masked = |new: &NewNode| new.mode & 0o7777 & !(new.umask & 0o777);
        let made =
            |parent: Ino, name, kind, mode| Self { parent, name, kind, mode, rdev: 0, size: 0, flags: None };
        Some(match request {
            Request::Create { parent, name, new, flags } => {
                Self { flags: Some(*flags), ..made(parent.ino, name, FileKind::Regular, masked(new)) }
            }
            Request::MkNod { parent, name, new } => {
                let regular = new.mode & 0o170_000 == 0;
                let kind = if regular { FileKind::Regular } else { FileKind::of_mode(new.mode)? };
                let rdev = match kind {
                    FileKind::Directory | FileKind::Symlink => return None,
                    FileKind::Character | FileKind::Block => new.rdev,
                    FileKind::Regular | FileKind::Fifo | FileKind::Socket => 0,
                };
                Self { rdev, ..made(parent.ino, name, kind, masked(new)) }
            }
            Request::MkDir { parent, name, new } => {
                made(parent.ino, name, FileKind::Directory, masked(new) & 0o1777)
            }
            Request::Symlink { parent, name, target } => {
                if target.is_empty() || target.len() > SYMLINK_BYTES_MAX {
                    return None;
                }
                Self { size: target.len() as u64, ..made(parent.ino, name, FileKind::Symlink, 0o777) }
            }
            every_request!() => return None,
        })
    }

    pub(crate) fn is_dir(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// Its attributes, made in directory `above` at `wall`.
    pub(crate) fn attr(
        &self,
        above: &Attr,
        (ino, generation): (Ino, u32),
        hash: NameHash,
        cred: &Cred,
        wall: Wall,
    ) -> Attr {
        let (mode, gid) = inherited((above.mode, above.gid), self.kind, self.mode, cred);
        let is_dir = self.is_dir();
        Attr {
            ino,
            generation,
            mode: self.kind.mode_bits() | mode,
            nlink: if is_dir { 2 } else { 1 },
            uid: cred.uid,
            gid,
            rdev: self.rdev,
            size: self.size,
            blocks: self.size.div_ceil(512),
            atime: wall,
            mtime: wall,
            ctime: wall,
            btime: wall,
            // A directory's counts its header's changes, too.
            change: if is_dir { 2 } else { 1 },
            parent: above.ino,
            hash,
            has_xattrs: false,
        }
    }
}

/// By how much an operation changes what a directory counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) names: i64,
    /// Directories among them.
    pub(crate) dirs: i32,
}

/// A directory after a name was made (`names` 1) or removed (-1) in it at `wall`; `dirs` likewise, if that is a directory's.
pub(crate) fn change_dir(attr: &mut Attr, Counts { names, dirs }: Counts, wall: Wall) {
    attr.size = attr.size.saturating_add_signed(names);
    attr.nlink = attr.nlink.saturating_add_signed(dirs);
    attr.mtime = attr.mtime.max(wall);
    attr.ctime = attr.ctime.max(wall);
    attr.change = attr.change.wrapping_add(1);
}

/// An inode that was moved to that place at `wall`.
pub(crate) fn moved(attr: &mut Attr, place: (Ino, NameHash), wall: Wall) {
    (attr.parent, attr.hash) = place;
    attr.ctime = attr.ctime.max(wall);
    attr.change = attr.change.wrapping_add(1);
}

/// A file of one name after it got a second one at `wall`. Where it is now only its number says.
pub(crate) fn linked(attr: &Attr, seed: &HashSeed, wall: Wall) -> Attr {
    let mut attr = Attr { nlink: attr.nlink + 1, ..*attr };
    let hash = name_hash(seed, &attr.ino.link_name());
    moved(&mut attr, (Ino::LINKS, hash), wall);
    attr
}

/// An inode after a setattr at `wall`. `None`: the rank has to say.
pub(crate) fn set(attr: &Attr, set: &SetAttr, wall: Wall) -> Option<Attr> {
    let is_dir = attr.kind() == FileKind::Directory;
    let takes_away = set.uid.is_some() || set.gid.is_some() || set.kill_suidgid;
    if *set == SetAttr::default()
        || (set.size.is_some() && attr.kind() != FileKind::Regular)
        || set.size.is_some_and(|size| size > i64::MAX as u64)
        || (takes_away && !is_dir && attr.mode & SUID_SGID != 0)
    {
        return None;
    }
    let mut attr = *attr;
    if let Some(size) = set.size {
        (attr.size, attr.blocks, attr.mtime) = (size, size.div_ceil(512), wall);
    }
    attr.uid = set.uid.unwrap_or(attr.uid);
    attr.gid = set.gid.unwrap_or(attr.gid);
    if let Some(mode) = set.mode {
        attr.mode = (attr.mode & !0o7777) | (mode & 0o7777);
    }
    let at = |time: SetTime| if let SetTime::At(at) = time { at } else { wall };
    attr.atime = set.atime.map_or(attr.atime, at);
    attr.mtime = set.mtime.map_or(attr.mtime, at);
    attr.ctime = attr.ctime.max(wall);
    // Setting a directory's time of modification writes its header as well.
    let twice = is_dir && set.mtime.is_some();
    attr.change = attr.change.wrapping_add(if twice { 2 } else { 1 });
    Some(attr)
}

/// A regular file after `len` bytes were written at `offset`. `None`: the rank has to say.
pub(crate) fn write(attr: &Attr, offset: u64, len: u64, kill_suidgid: bool, wall: Wall) -> Option<Attr> {
    let end = offset.checked_add(len).filter(|end| *end <= i64::MAX as u64)?;
    let takes_away = kill_suidgid && attr.mode & SUID_SGID != 0;
    if attr.kind() != FileKind::Regular || len == 0 || takes_away {
        return None;
    }
    let mut attr = *attr;
    attr.size = attr.size.max(end);
    attr.blocks = attr.size.div_ceil(512);
    (attr.mtime, attr.ctime) = (wall, attr.ctime.max(wall));
    attr.change = attr.change.wrapping_add(1);
    Some(attr)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::NodeRef;

    const ABOVE: Attr = Attr {
        ino: Ino(50),
        generation: 0,
        mode: 0o42_775,
        nlink: 2,
        uid: 0,
        gid: 77,
        rdev: 0,
        size: 0,
        blocks: 0,
        atime: Wall(1),
        mtime: Wall(1),
        ctime: Wall(1),
        btime: Wall(1),
        change: 2,
        parent: Ino(1),
        hash: NameHash(9),
        has_xattrs: false,
    };

    fn made(request: &Request) -> Option<Attr> {
        let cred = Cred { uid: 5, gid: 6, groups: Vec::new() };
        Some(Making::of(request)?.attr(&ABOVE, (Ino(60), 3), NameHash(10), &cred, Wall(8)))
    }

    #[test]
    fn what_is_made_is_what_the_rank_makes() {
        let (parent, name) = (NodeRef::bare(Ino(50)), Name::new(b"a").expect("a name"));
        let new = |mode, umask, rdev| NewNode { mode, umask, rdev };
        let mknod = |new| made(&Request::MkNod { parent, name: name.clone(), new });
        let file = mknod(new(0o666, 0o22, 5)).expect("a file");
        assert_eq!((file.mode, file.uid, file.gid, file.rdev, file.nlink), (0o100_644, 5, 77, 0, 1));
        assert_eq!((file.size, file.change, file.btime, file.parent), (0, 1, Wall(8), Ino(50)));
        let device = mknod(new(0o20_666, 0o22, 5)).expect("a device");
        assert_eq!((device.mode, device.rdev), (0o20_644, 5));
        // Group execution and setgid, by one who is not in the directory's group.
        assert_eq!(mknod(new(0o102_775, 0, 0)).map(|attr| attr.mode), Some(0o100_775));
        assert_eq!(mknod(new(0o40_755, 0, 0)), None);
        let dir = made(&Request::MkDir { parent, name: name.clone(), new: new(0o47_777, 0o22, 0) });
        let dir = dir.expect("a directory");
        assert_eq!((dir.mode, dir.nlink, dir.change, dir.blocks), (0o43_755, 2, 2, 0));
        let link = |len: usize| {
            let target = vec![b'a'; len].into();
            made(&Request::Symlink { parent, name: name.clone(), target })
        };
        let attr = link(600).expect("a symlink");
        assert_eq!((attr.mode, attr.size, attr.blocks), (0o120_777, 600, 2));
        assert!(link(0).is_none() && link(4096).is_none());
    }

    #[test]
    fn changes_are_those_of_the_rank() {
        let mut dir = ABOVE;
        change_dir(&mut dir, Counts { names: 1, dirs: 1 }, Wall(9));
        assert_eq!((dir.size, dir.nlink, dir.mtime, dir.ctime, dir.change), (1, 3, Wall(9), Wall(9), 3));
        change_dir(&mut dir, Counts { names: -1, dirs: -1 }, Wall(9));
        assert_eq!((dir.size, dir.nlink, dir.change), (0, 2, 4));
        let time = SetAttr { mtime: Some(SetTime::At(Wall(3))), ..SetAttr::default() };
        let set_dir = set(&dir, &time, Wall(11)).expect("times");
        assert_eq!((set_dir.mtime, set_dir.ctime, set_dir.change), (Wall(3), Wall(11), 6));
        let file = Attr { mode: 0o104_755, size: 10, ..ABOVE };
        assert_eq!(set(&file, &SetAttr::default(), Wall(9)), None);
        assert_eq!(set(&file, &SetAttr { uid: Some(1), ..SetAttr::default() }, Wall(9)), None);
        let to = |size| SetAttr { size: Some(size), ..SetAttr::default() };
        let cut = set(&file, &to(600), Wall(12)).expect("a size");
        assert_eq!((cut.size, cut.blocks, cut.mtime, cut.change), (600, 2, Wall(12), 3));
        assert_eq!(set(&file, &to(u64::MAX), Wall(12)), None);
        assert_eq!(set(&ABOVE, &to(1), Wall(12)), None, "a directory");
        let chmod = set(&file, &SetAttr { mode: Some(0o100_600), ..SetAttr::default() }, Wall(9));
        let file = chmod.expect("mode alone");
        assert_eq!((file.mode, file.change, file.ctime, file.mtime), (0o100_600, 3, Wall(9), Wall(1)));
        let wrote = write(&file, 5, 600, true, Wall(12)).expect("no bits to take away");
        assert_eq!((wrote.size, wrote.blocks, wrote.mtime, wrote.change), (605, 2, Wall(12), 4));
        assert_eq!(write(&file, i64::MAX as u64, 1, false, Wall(12)), None);
        assert_eq!(write(&file, 0, 0, false, Wall(12)), None);
        assert_eq!(write(&dir, 0, 1, false, Wall(12)), None);
    }
}
