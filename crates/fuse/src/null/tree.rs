//! The null responder's nodes and names, in tables under many small locks.
//! Absent: any operation atomic over two nodes; one lock is held at a time.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::abi::{Attr, ROOT_ID};
use crate::request::{SetAttr, SetTime, Time};

const SHARDS: u64 = 64;
/// Offsets of the first real entry of a directory; "." and ".." come before.
const FIRST_OFFSET: u64 = 3;

type Name = Arc<[u8]>;

/// Mixes node ids, which are small and dense; nobody hostile chooses them.
#[derive(Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_right(23);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

type Shard = HashMap<u64, Node, BuildHasherDefault<IdHasher>>;

#[derive(Debug)]
struct Node {
    attr: Attr,
    /// References the kernel holds and gives back by FORGET.
    lookups: u64,
    names: Names,
    target: Box<[u8]>,
}

/// Entries by name, and in the order they were made, so that listing goes on while entries come and go.
#[derive(Debug, Default)]
struct Names {
    by_name: HashMap<Name, u64>,
    by_offset: BTreeMap<u64, (Name, u64)>,
    next: u64,
}

/// What a new node is to be.
pub(super) struct NewNode<'a> {
    pub(super) mode: u32,
    pub(super) rdev: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) target: &'a [u8],
}

#[derive(Debug)]
pub(super) struct Tree {
    shards: Box<[Mutex<Shard>]>,
    next: AtomicU64,
}

impl Names {
    fn get(&self, name: &[u8]) -> Option<u64> {
        self.by_name.get(name).and_then(|offset| self.by_offset.get(offset)).map(|(_, id)| *id)
    }

    fn insert(&mut self, name: &[u8], id: u64) -> bool {
        if self.by_name.contains_key(name) {
            return false;
        }
        let (name, offset) = (Name::from(name), self.next.max(FIRST_OFFSET));
        self.next = offset + 1;
        self.by_name.insert(Arc::clone(&name), offset);
        self.by_offset.insert(offset, (name, id));
        true
    }

    fn remove(&mut self, name: &[u8]) -> Option<u64> {
        let offset = self.by_name.remove(name)?;
        self.by_offset.remove(&offset).map(|(_, id)| id)
    }
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time { secs: since.as_secs().cast_signed(), nanos: since.subsec_nanos() }
}

fn is_dir(attr: &Attr) -> bool {
    attr.mode & libc::S_IFMT == libc::S_IFDIR
}

impl Node {
    fn new(ino: u64, new: &NewNode<'_>) -> Node {
        let Time { secs, nanos } = now();
        let secs = secs.cast_unsigned();
        let mut attr =
            Attr { ino, mode: new.mode, rdev: new.rdev, uid: new.uid, gid: new.gid, ..Attr::default() };
        (attr.atime, attr.mtime, attr.ctime) = (secs, secs, secs);
        (attr.atimensec, attr.mtimensec, attr.ctimensec) = (nanos, nanos, nanos);
        attr.nlink = if is_dir(&attr) { 2 } else { 1 };
        attr.size = new.target.len() as u64;
        attr.blksize = 4096;
        Node { attr, lookups: 1, names: Names::default(), target: new.target.into() }
    }

    fn touch(&mut self) {
        let Time { secs, nanos } = now();
        (self.attr.mtime, self.attr.mtimensec) = (secs.cast_unsigned(), nanos);
        (self.attr.ctime, self.attr.ctimensec) = (secs.cast_unsigned(), nanos);
    }
}

impl Tree {
    pub(super) fn new() -> Tree {
        let tree = Tree {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            next: AtomicU64::new(ROOT_ID + 1),
        };
        let root = NewNode { mode: libc::S_IFDIR | 0o1777, rdev: 0, uid: 0, gid: 0, target: &[] };
        tree.shard(ROOT_ID).insert(ROOT_ID, Node::new(ROOT_ID, &root));
        tree
    }

    fn shard(&self, id: u64) -> MutexGuard<'_, Shard> {
        self.shards[(id % SHARDS) as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, id: u64, act: impl FnOnce(&mut Node) -> Result<T, i32>) -> Result<T, i32> {
        act(self.shard(id).get_mut(&id).ok_or(libc::ESTALE)?)
    }

    pub(super) fn attr(&self, id: u64) -> Result<Attr, i32> {
        self.with(id, |node| Ok(node.attr))
    }

    pub(super) fn target(&self, id: u64) -> Result<Box<[u8]>, i32> {
        self.with(id, |node| Ok(node.target.clone()))
    }

    pub(super) fn lookup(&self, parent: u64, name: &[u8]) -> Result<Attr, i32> {
        let id = self.with(parent, |node| node.names.get(name).ok_or(libc::ENOENT))?;
        self.with(id, |node| {
            node.lookups += 1;
            Ok(node.attr)
        })
    }

    pub(super) fn count_lookup(&self, id: u64) {
        // A node gone meanwhile was never listed to the kernel with a lookup.
        let _gone = self.with(id, |node| {
            node.lookups += 1;
            Ok(())
        });
    }

    pub(super) fn add(&self, parent: u64, name: &[u8], new: NewNode<'_>) -> Result<Attr, i32> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let node = Node::new(id, &new);
        let attr = node.attr;
        self.shard(id).insert(id, node);
        self.enter(parent, name, id).inspect_err(|_| {
            self.shard(id).remove(&id);
        })?;
        Ok(attr)
    }

    pub(super) fn link(&self, parent: u64, name: &[u8], id: u64) -> Result<Attr, i32> {
        self.enter(parent, name, id)?;
        self.with(id, |node| {
            node.attr.nlink += 1;
            node.lookups += 1;
            Ok(node.attr)
        })
    }

    fn enter(&self, parent: u64, name: &[u8], id: u64) -> Result<(), i32> {
        self.with(parent, |node| {
            if !node.names.insert(name, id) {
                return Err(libc::EEXIST);
            }
            node.touch();
            Ok(())
        })
    }

    pub(super) fn remove(&self, parent: u64, name: &[u8], dir: bool) -> Result<(), i32> {
        let id = self.with(parent, |node| node.names.get(name).ok_or(libc::ENOENT))?;
        self.with(id, |node| match (dir, is_dir(&node.attr)) {
            (true, false) => Err(libc::ENOTDIR),
            (false, true) => Err(libc::EISDIR),
            (true, true) if !node.names.by_name.is_empty() => Err(libc::ENOTEMPTY),
            _ => Ok(()),
        })?;
        self.with(parent, |node| {
            node.touch();
            node.names.remove(name).ok_or(libc::ENOENT)
        })?;
        self.unlink(id);
        Ok(())
    }

    fn unlink(&self, id: u64) {
        let mut shard = self.shard(id);
        let Some(node) = shard.get_mut(&id) else { return };
        node.attr.nlink = if is_dir(&node.attr) { 0 } else { node.attr.nlink.saturating_sub(1) };
        if node.attr.nlink == 0 && node.lookups == 0 {
            shard.remove(&id);
        }
    }

    pub(super) fn rename(
        &self,
        from: u64,
        name: &[u8],
        to: u64,
        new_name: &[u8],
        flags: u32,
    ) -> Result<(), i32> {
        if flags & !libc::RENAME_NOREPLACE != 0 {
            return Err(libc::EINVAL);
        }
        let id = self.with(from, |node| node.names.get(name).ok_or(libc::ENOENT))?;
        let replaced = self.with(to, |node| Ok(node.names.get(new_name)))?;
        match replaced {
            Some(_) if flags & libc::RENAME_NOREPLACE != 0 => return Err(libc::EEXIST),
            Some(other) if other == id => return Ok(()),
            Some(other) => self.remove(to, new_name, is_dir(&self.attr(other)?))?,
            None => {}
        }
        self.with(from, |node| {
            node.touch();
            node.names.remove(name).ok_or(libc::ENOENT)
        })?;
        self.enter(to, new_name, id)
    }

    pub(super) fn forget(&self, id: u64, count: u64) {
        let mut shard = self.shard(id);
        let Some(node) = shard.get_mut(&id) else { return };
        node.lookups = node.lookups.saturating_sub(count);
        if node.lookups == 0 && node.attr.nlink == 0 {
            shard.remove(&id);
        }
    }

    pub(super) fn extend(&self, id: u64, size: u64) -> Result<(), i32> {
        self.with(id, |node| {
            node.attr.size = node.attr.size.max(size);
            node.attr.blocks = node.attr.size.div_ceil(512);
            node.touch();
            Ok(())
        })
    }

    pub(super) fn set_attr(&self, id: u64, set: &SetAttr) -> Result<Attr, i32> {
        self.with(id, |node| {
            node.touch_ctime();
            let attr = &mut node.attr;
            if let Some(mode) = set.mode {
                attr.mode = attr.mode & libc::S_IFMT | mode & 0o7777;
            }
            attr.uid = set.uid.unwrap_or(attr.uid);
            attr.gid = set.gid.unwrap_or(attr.gid);
            if let Some(size) = set.size {
                (attr.size, attr.blocks) = (size, size.div_ceil(512));
            }
            let stamp = |time: SetTime| match time {
                SetTime::Now => now(),
                SetTime::At(time) => time,
            };
            if let Some(time) = set.atime.map(stamp) {
                (attr.atime, attr.atimensec) = (time.secs.cast_unsigned(), time.nanos);
            }
            if let Some(time) = set.mtime.map(stamp) {
                (attr.mtime, attr.mtimensec) = (time.secs.cast_unsigned(), time.nanos);
            }
            Ok(*attr)
        })
    }

    /// Up to `limit` entries from `offset` on, each with its node and the offset after it.
    pub(super) fn list(&self, id: u64, offset: u64, limit: usize) -> Result<Vec<(Name, u64, u64)>, i32> {
        self.with(id, |node| {
            let rest = node.names.by_offset.range(offset..).take(limit);
            Ok(rest.map(|(at, (name, child))| (Arc::clone(name), *child, at + 1)).collect())
        })
    }
}

impl Node {
    fn touch_ctime(&mut self) {
        let Time { secs, nanos } = now();
        (self.attr.ctime, self.attr.ctimensec) = (secs.cast_unsigned(), nanos);
    }
}
