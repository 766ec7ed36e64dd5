//! Requests on the contents of files, and their locks.
//!
//! Absent: names and attributes (`workload.rs`).

use super::{BLOCK, Knowledge, Workload};
use crate::model::bytes::pattern;
use crate::model::tree::Tree;
use proto::NodeRef;
use proto::attr::{FileKind, SetAttr};
use proto::request::{LockKind, LockSpec, Request};
use proto::storeio::Payload;

impl Workload {
    fn offset(&mut self) -> u64 {
        match self.rng.below(20) {
            0 => BLOCK - self.rng.below(2000),
            1..=4 => self.rng.below(20) * 1024,
            5..=9 => 0,
            _ => self.rng.below(9000),
        }
    }

    fn len(&mut self) -> u64 {
        match self.rng.below(10) {
            0 => 4096,
            1 => 1 + self.rng.below(12_000),
            _ => 1 + self.rng.below(1500),
        }
    }

    pub(super) fn data(&mut self, kind: &str, known: &Knowledge, tree: &Tree) -> Option<Request> {
        let node = self.file(known, tree)?;
        self.data_of(kind, node, known, tree)
    }

    pub(super) fn data_of(
        &mut self,
        kind: &str,
        node: NodeRef,
        known: &Knowledge,
        tree: &Tree,
    ) -> Option<Request> {
        let (offset, len) = (self.offset(), self.len());
        Some(match kind {
            "read" => Request::Read { node, offset, len: (len * 4) as u32, into: None },
            "write" | "append" => {
                self.writes += 1;
                let data = Payload::Owned(pattern(self.writes, offset, len));
                Request::Write {
                    node,
                    offset,
                    append: kind == "append",
                    kill_suidgid: self.rng.chance(1, 4),
                    data,
                }
            }
            "truncate" => {
                let size = if self.rng.chance(1, 3) { 0 } else { offset };
                Request::SetAttr { node, set: SetAttr { size: Some(size), ..SetAttr::default() } }
            }
            "fallocate" => Request::Fallocate { node, mode: [0, 1][self.rng.index(2)], offset, len },
            "punch" => Request::Fallocate { node, mode: [3, 16, 17][self.rng.index(3)], offset, len },
            "seek" => Request::Seek { node, offset, hole: self.rng.chance(1, 2) },
            "copy" => {
                let target = self.file(known, tree)?;
                Request::CopyRange {
                    source: node,
                    source_offset: self.offset(),
                    target,
                    target_offset: offset,
                    len,
                }
            }
            _ => Request::Fsync { node, data_only: self.rng.chance(1, 2) },
        })
    }

    /// Gives back what is locked, half of the time.
    fn unlock(&mut self, known: &mut Knowledge) -> Option<Request> {
        if !known.locks.is_empty() && self.rng.chance(1, 2) {
            let at = self.rng.index(known.locks.len());
            let (node, lock) = known.locks.swap_remove(at);
            let lock = LockSpec { kind: LockKind::Unlock, ..lock };
            return Some(if self.rng.chance(1, 4) {
                known
                    .locks
                    .retain(|(n, l)| n.ino != node.ino || l.flock != lock.flock || l.owner != lock.owner);
                Request::ReleaseLocks { node, flock: lock.flock, owner: lock.owner }
            } else {
                Request::SetLock { node, lock, wait: false }
            });
        }
        None
    }

    pub(super) fn lock(&mut self, known: &mut Knowledge, tree: &Tree) -> Option<Request> {
        if let Some(request) = self.unlock(known) {
            return Some(request);
        }
        let node = self.of_kind(known, tree, FileKind::Regular)?;
        Some(self.lock_of(node, known))
    }

    /// Of that file, if it gives nothing back.
    pub fn lock_at(&mut self, node: Option<NodeRef>, known: &mut Knowledge) -> Option<Request> {
        self.unlock(known).or_else(|| Some(self.lock_of(node?, known)))
    }

    fn lock_of(&mut self, node: NodeRef, known: &mut Knowledge) -> Request {
        let flock = self.rng.chance(1, 2);
        let start = if flock { 0 } else { self.rng.below(4) * 10 };
        let end = if flock { u64::MAX } else { start + 9 + self.rng.below(2) * 10 };
        let kind = if self.rng.chance(1, 2) { LockKind::Read } else { LockKind::Write };
        let owner = 1 + self.rng.below(2);
        let lock = LockSpec { flock, owner, kind, start, end, pid: owner as u32 };
        if self.rng.chance(1, 5) {
            return Request::TestLock { node, lock };
        }
        known.locks.push((node, lock));
        Request::SetLock { node, lock, wait: self.rng.chance(1, 2) }
    }
}
