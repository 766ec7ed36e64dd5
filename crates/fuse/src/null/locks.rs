//! Byte range and whole file locks of the null responder, with waiting and interruption.
//! Absent: deadlock detection.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::abi::FileLock;
use crate::reply::KernelReply;
use crate::request::Lock;

const READ: u32 = libc::F_RDLCK as u32;
const UNLOCKED: u32 = libc::F_UNLCK as u32;

#[derive(Debug, Default)]
pub(super) struct Locks {
    nodes: Mutex<HashMap<u64, NodeLocks>>,
}

#[derive(Debug, Default)]
struct NodeLocks {
    held: Vec<Lock>,
    /// In the order they came.
    waiting: Vec<(Lock, KernelReply)>,
}

fn conflict(one: &Lock, other: &Lock) -> bool {
    let overlap = one.range.start <= other.range.end && other.range.start <= one.range.end;
    let both_read = one.range.kind == READ && other.range.kind == READ;
    one.flock == other.flock && one.owner != other.owner && overlap && !both_read
}

impl NodeLocks {
    fn obstacle(&self, lock: &Lock) -> Option<&Lock> {
        self.held.iter().find(|held| conflict(held, lock))
    }

    /// Cuts the range out of what its owner holds.
    fn clear(&mut self, lock: &Lock) {
        let FileLock { start, end, .. } = lock.range;
        let mut rest = Vec::new();
        self.held.retain(|held| {
            let apart = held.range.end < start || end < held.range.start;
            if held.owner != lock.owner || held.flock != lock.flock || apart {
                return true;
            }
            if held.range.start < start {
                rest.push(Lock { range: FileLock { end: start - 1, ..held.range }, ..*held });
            }
            if held.range.end > end {
                rest.push(Lock { range: FileLock { start: end + 1, ..held.range }, ..*held });
            }
            false
        });
        self.held.append(&mut rest);
    }

    fn grant(&mut self, lock: Lock) {
        self.clear(&lock);
        if lock.range.kind != UNLOCKED {
            self.held.push(lock);
        }
    }

    /// Grants what waits and no longer has to.
    fn wake(&mut self) {
        for (lock, reply) in std::mem::take(&mut self.waiting) {
            match self.obstacle(&lock) {
                Some(_) => self.waiting.push((lock, reply)),
                None => {
                    self.grant(lock);
                    reply.ok();
                }
            }
        }
    }
}

impl Locks {
    fn nodes(&self) -> MutexGuard<'_, HashMap<u64, NodeLocks>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set(&self, nodeid: u64, lock: Lock, sleep: bool, reply: KernelReply) {
        let mut nodes = self.nodes();
        let node = nodes.entry(nodeid).or_default();
        if lock.range.kind != UNLOCKED && node.obstacle(&lock).is_some() {
            return match sleep {
                true => node.waiting.push((lock, reply)),
                false => reply.error(libc::EAGAIN),
            };
        }
        node.grant(lock);
        reply.ok();
        node.wake();
    }

    /// The lock in the way, or an unlocked range.
    pub(super) fn test(&self, nodeid: u64, lock: &Lock) -> FileLock {
        let nodes = self.nodes();
        let obstacle = nodes.get(&nodeid).and_then(|node| node.obstacle(lock));
        obstacle.map_or(FileLock { kind: UNLOCKED, ..lock.range }, |held| held.range)
    }

    pub(super) fn drop_owner(&self, nodeid: u64, owner: u64, flock: bool) {
        self.drop_held(nodeid, |held| held.owner == owner && held.flock == flock);
    }

    /// Drops the fcntl locks taken through a handle that is going. Those of processes went with their FLUSH;
    /// what is left belongs to the open file (F_OFD_SETLK), and the kernel sends no unlock for these.
    pub(super) fn drop_handle(&self, nodeid: u64, fh: u64) {
        self.drop_held(nodeid, |held| held.fh == fh && !held.flock);
    }

    fn drop_held(&self, nodeid: u64, going: impl Fn(&Lock) -> bool) {
        let mut nodes = self.nodes();
        let Some(node) = nodes.get_mut(&nodeid) else { return };
        node.held.retain(|held| !going(held));
        node.wake();
        if node.held.is_empty() && node.waiting.is_empty() {
            nodes.remove(&nodeid);
        }
    }

    /// Ends the wait of one request; false when it does not wait here.
    pub(super) fn interrupt(&self, unique: u64) -> bool {
        for node in self.nodes().values_mut() {
            if let Some(position) = node.waiting.iter().position(|(_, reply)| reply.unique() == unique) {
                let (_, reply) = node.waiting.remove(position);
                reply.error(libc::EINTR);
                return true;
            }
        }
        false
    }
}
