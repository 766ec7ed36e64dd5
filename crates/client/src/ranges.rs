//! The ranges one client has locked on one inode, kept as the kernel keeps them: a lock replaces what
//! its owner held in the range, an unlock cuts it out.
//!
//! Absent: conflicts between owners; the rank decides those.

use proto::request::{LockKind, LockSpec};

/// Locked ranges of one inode, in no particular order but a deterministic one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ranges(Vec<LockSpec>);

impl Ranges {
    /// Applies a granted lock or unlock.
    pub(crate) fn apply(&mut self, lock: LockSpec) {
        let mut kept = Vec::with_capacity(self.0.len() + 2);
        let mut merged = lock;
        for held in self.0.drain(..) {
            if !same_owner(&held, &lock) || !touches(&held, &lock) {
                kept.push(held);
            } else if held.kind == lock.kind {
                merged.start = merged.start.min(held.start);
                merged.end = merged.end.max(held.end);
            } else {
                if held.start < lock.start {
                    kept.push(LockSpec { end: held.end.min(lock.start - 1), ..held });
                }
                if held.end > lock.end {
                    kept.push(LockSpec { start: held.start.max(lock.end + 1), ..held });
                }
            }
        }
        if lock.kind != LockKind::Unlock {
            kept.push(merged);
        }
        self.0 = kept;
    }

    /// Drops everything of one owner.
    pub(crate) fn release(&mut self, flock: bool, owner: u64) {
        self.0.retain(|held| held.flock != flock || held.owner != owner);
    }

    pub(crate) fn as_slice(&self) -> &[LockSpec] {
        &self.0
    }
}

fn same_owner(a: &LockSpec, b: &LockSpec) -> bool {
    a.flock == b.flock && a.owner == b.owner
}

/// Overlapping or adjacent.
fn touches(a: &LockSpec, b: &LockSpec) -> bool {
    a.start <= b.end.saturating_add(1) && b.start <= a.end.saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use stdx::Prng;

    fn lock(owner: u64, kind: LockKind, start: u64, end: u64) -> LockSpec {
        LockSpec { flock: false, owner, kind, start, end, pid: 1 }
    }

    #[test]
    fn an_unlock_splits_and_a_lock_merges() {
        let mut ranges = Ranges::default();
        ranges.apply(lock(1, LockKind::Write, 0, u64::MAX));
        ranges.apply(lock(1, LockKind::Unlock, 10, 19));
        assert_eq!(
            ranges.as_slice(),
            [lock(1, LockKind::Write, 0, 9), lock(1, LockKind::Write, 20, u64::MAX)]
        );
        ranges.apply(lock(1, LockKind::Write, 10, 19));
        assert_eq!(ranges.as_slice(), [lock(1, LockKind::Write, 0, u64::MAX)]);
        ranges.apply(lock(2, LockKind::Read, 0, 0));
        ranges.release(false, 1);
        assert_eq!(ranges.as_slice(), [lock(2, LockKind::Read, 0, 0)]);
    }

    /// Against a byte map: whatever the order of locks, each byte has its last kind.
    #[test]
    fn random_locks_agree_with_a_byte_map() {
        let mut prng = Prng::new(11);
        for _ in 0..300 {
            let mut ranges = Ranges::default();
            let mut bytes = [LockKind::Unlock; 24];
            for _ in 0..20 {
                let start = prng.below(24);
                let end = prng.range(start, 24);
                let kind = [LockKind::Read, LockKind::Write, LockKind::Unlock][prng.index(3)];
                ranges.apply(lock(1, kind, start, end));
                bytes[start as usize..=end as usize].fill(kind);
                let mut seen = [LockKind::Unlock; 24];
                for held in ranges.as_slice() {
                    for at in held.start..=held.end {
                        assert_eq!(seen[at as usize], LockKind::Unlock, "ranges overlap");
                        seen[at as usize] = held.kind;
                    }
                }
                assert_eq!(seen, bytes);
            }
        }
    }
}
