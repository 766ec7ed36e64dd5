//! One operation per file at a time. Locks are by file, not by hash: a slow operation on one file
//! never holds up a quick one on another.
//!
//! Absent: order among waiters; a driver that wants an order starts operations of one file in it.

use proto::FileId;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

const SHARDS: usize = 64;

/// Locks a mutex; a panic of another holder is that holder's report, its state stays checked by its
/// own invariants.
pub(super) fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug, Default)]
struct Shard {
    busy: Mutex<Busy>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct Busy {
    files: Vec<FileId>,
    /// Operations that wait for one of them: without any, nobody need be woken.
    waiting: u32,
}

/// The files that some operation is working on.
#[derive(Debug)]
pub(super) struct FileLocks {
    shards: Vec<Shard>,
}

/// The right to work on one file.
#[derive(Debug)]
pub(super) struct FileGuard<'a> {
    shard: &'a Shard,
    file: FileId,
}

impl FileLocks {
    pub(super) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| Shard::default()).collect() }
    }

    fn shard(&self, file: FileId) -> &Shard {
        &self.shards[(stdx::hash::mix64(file.ino.0) % SHARDS as u64) as usize]
    }

    /// Waits until no other operation works on the file.
    pub(super) fn lock(&self, file: FileId) -> FileGuard<'_> {
        let shard = self.shard(file);
        let mut busy = guard(&shard.busy);
        busy.waiting += 1;
        while busy.files.contains(&file) {
            busy = shard.freed.wait(busy).unwrap_or_else(PoisonError::into_inner);
        }
        busy.waiting -= 1;
        busy.files.push(file);
        FileGuard { shard, file }
    }

    /// The file's lock, if no other operation works on it or waits to.
    pub(super) fn try_lock(&self, file: FileId) -> Option<FileGuard<'_>> {
        let shard = self.shard(file);
        let mut busy = guard(&shard.busy);
        if busy.waiting > 0 || busy.files.contains(&file) {
            return None;
        }
        busy.files.push(file);
        drop(busy);
        Some(FileGuard { shard, file })
    }

    /// Locks two files in one global order; one guard when they are the same.
    pub(super) fn lock_two(&self, a: FileId, b: FileId) -> (FileGuard<'_>, Option<FileGuard<'_>>) {
        let first = self.lock(a.min(b));
        let second = (a != b).then(|| self.lock(a.max(b)));
        (first, second)
    }

    pub(super) fn is_busy(&self, file: FileId) -> bool {
        guard(&self.shard(file).busy).files.contains(&file)
    }
}

impl Drop for FileGuard<'_> {
    fn drop(&mut self) {
        let mut busy = guard(&self.shard.busy);
        if let Some(at) = busy.files.iter().position(|file| *file == self.file) {
            busy.files.swap_remove(at);
        }
        let waiting = busy.waiting;
        drop(busy);
        if waiting > 0 {
            self.shard.freed.notify_all();
        }
    }
}
