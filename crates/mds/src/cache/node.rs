//! A cached dentry with its inode: the unit of caching, 160 bytes.
//!
//! Absent: xattrs, symlink targets and link lists (the ext side table), entries of directories.

use super::slab::{NONE, Slot};
use proto::inode::InodeCore;
use proto::name::NameBytes;
use proto::{FileKind, Ino, NameHash};

/// The inode is embedded.
pub(crate) const PRIMARY: u32 = 1;
/// The inode lives in `//links`.
pub(crate) const REMOTE: u32 = 2;
/// Differs from the store; on its directory's dirty list.
pub(crate) const DIRTY: u32 = 1 << 2;
/// A store batch with its state is under way.
pub(crate) const WRITING: u32 = 1 << 3;
/// The store may hold a record of this name.
pub(crate) const STORED: u32 = 1 << 4;
/// Changed since it was loaded: a load that was under way may bring an older state.
pub(crate) const CHANGED: u32 = 1 << 5;
/// Used since the hand that forgets passed.
pub(crate) const USED: u32 = 1 << 6;
/// Inode: its change counter made this incarnation's jump.
pub(crate) const BUMPED: u32 = 1 << 8;
/// Inode: written since its data was last synced.
pub(crate) const WRITTEN: u32 = 1 << 9;
/// Inode: all its data is known to be synced.
pub(crate) const DATA_CLEAN: u32 = 1 << 10;
/// Inode: has a `FileState` (open, data in flight, cut pending): not to be forgotten.
pub(crate) const BUSY: u32 = 1 << 11;
/// Inode: nothing lies in the data store beyond its size. Unknown of an inode that was loaded: a former
/// life may have written there and lost the transaction that made it longer.
pub(crate) const END_CLEAN: u32 = 1 << 7;
/// Inode: space was reserved in the data store, perhaps beyond its size: there is something to remove even if it is empty.
pub(crate) const ALLOCATED: u32 = 1 << 12;
/// The flags that belong to the inode and move with it.
pub(crate) const INODE_FLAGS: u32 = BUMPED | WRITTEN | DATA_CLEAN | BUSY | END_CLEAN | ALLOCATED;
/// Loaded with its whole directory, and not asked for yet.
pub(crate) const AHEAD: u32 = 1 << 13;
/// Ten bits that count the parked operations the node was loaded for: it is not forgotten before they
/// ran, so that none starves in a small cache.
pub(crate) const PIN: u32 = 1 << 14;
pub(crate) const PINS: u32 = 0x3FF << 14;
/// The low 8 bits of the checkpoint number the node became dirty under.
pub(crate) const ROUND_SHIFT: u32 = 24;

/// A cached name. Neither `PRIMARY` nor `REMOTE`: the name is known not to exist (with `DIRTY`: a
/// delete the store has not seen).
#[derive(Debug)]
pub(crate) struct Node {
    /// Of a remote: number and type bits only.
    pub core: InodeCore,
    pub hash: NameHash,
    pub name: NameBytes,
    /// Slot of the directory it is in.
    pub dir: u32,
    /// Clean: neighbours on the list of what may be forgotten. Dirty: neighbours on the directory's dirty list.
    pub prev: u32,
    pub next: u32,
    /// Slot in the ext side table.
    pub ext: u32,
    /// Of a directory inode: slot of its entries, if cached.
    pub own: u32,
    pub flags: u32,
}

impl Node {
    pub(crate) fn empty() -> Self {
        Self {
            core: InodeCore::default(),
            hash: NameHash(0),
            name: NameBytes::new(&[]),
            dir: NONE,
            prev: NONE,
            next: NONE,
            ext: NONE,
            own: NONE,
            flags: 0,
        }
    }

    pub(crate) const fn has(&self, flags: u32) -> bool {
        self.flags & flags != 0
    }

    /// The name exists.
    pub(crate) const fn positive(&self) -> bool {
        self.has(PRIMARY | REMOTE)
    }

    pub(crate) const fn primary(&self) -> bool {
        self.has(PRIMARY)
    }

    pub(crate) fn kind(&self) -> FileKind {
        FileKind::of_mode(self.core.mode).unwrap_or(FileKind::Regular)
    }

    pub(crate) fn is_dir(&self) -> bool {
        self.core.mode & 0o170_000 == 0o040_000
    }

    pub(crate) fn is_file(&self) -> bool {
        self.core.mode & 0o170_000 == 0o100_000
    }

    pub(crate) const fn ino(&self) -> Ino {
        self.core.ino
    }
}

impl Slot for Node {
    fn free_link(&mut self) -> &mut u32 {
        &mut self.next
    }
}
