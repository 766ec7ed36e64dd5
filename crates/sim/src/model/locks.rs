//! Locks as clients see them: what was granted and not yet given back must never be granted to another.
//!
//! A client holds a lock for certain from the moment it has the answer until it asks to give it back.
//! What lies in between on the way is nobody's fault.
//!
//! Absent: when a lock must be granted; progress shows that no wait is forgotten.

use proto::Ino;
use proto::request::{LockKind, LockSpec};
use std::collections::BTreeMap;

/// Who holds: a client of the world, and its life.
pub type Holder = u64;

/// All locks held for certain.
#[derive(Clone, Debug, Default)]
pub struct Locks {
    held: BTreeMap<Ino, Vec<(Holder, LockSpec)>>,
}

fn overlaps(a: &LockSpec, b: &LockSpec) -> bool {
    a.start <= b.end && b.start <= a.end
}

impl Locks {
    /// A client has the answer that it holds `lock`.
    ///
    /// # Errors
    /// Another holds a lock that excludes it.
    pub fn granted(&mut self, holder: Holder, ino: Ino, lock: LockSpec) -> Result<(), String> {
        let held = self.held.entry(ino).or_default();
        let excludes = |(who, other): &&(Holder, LockSpec)| {
            (*who, other.owner) != (holder, lock.owner)
                && other.flock == lock.flock
                && overlaps(other, &lock)
                && (other.kind == LockKind::Write || lock.kind == LockKind::Write)
        };
        if let Some((who, other)) = held.iter().find(excludes) {
            return Err(format!(
                "client {holder} was granted {lock:?} of inode {} while client {who} holds {other:?}",
                ino.0
            ));
        }
        cut(held, holder, &lock);
        held.push((holder, lock));
        Ok(())
    }

    /// A client starts to change or give back what it holds in a range: from here on nothing there is
    /// certain.
    pub fn leaving(&mut self, holder: Holder, ino: Ino, lock: &LockSpec) {
        if let Some(held) = self.held.get_mut(&ino) {
            cut(held, holder, lock);
        }
    }

    /// A client gives back everything of one owner.
    pub fn leaving_all(&mut self, holder: Holder, ino: Ino, flock: bool, owner: u64) {
        if let Some(held) = self.held.get_mut(&ino) {
            held.retain(|(who, lock)| *who != holder || lock.flock != flock || lock.owner != owner);
        }
    }

    /// A client died or lost its session.
    pub fn lost(&mut self, holder: Holder) {
        for held in self.held.values_mut() {
            held.retain(|(who, _)| *who != holder);
        }
    }
}

/// Takes a range out of what an owner holds.
fn cut(held: &mut Vec<(Holder, LockSpec)>, holder: Holder, lock: &LockSpec) {
    let mut kept = Vec::with_capacity(held.len() + 1);
    for (who, other) in held.drain(..) {
        if who != holder || other.owner != lock.owner || other.flock != lock.flock || !overlaps(&other, lock)
        {
            kept.push((who, other));
            continue;
        }
        if other.start < lock.start {
            kept.push((who, LockSpec { end: lock.start - 1, ..other }));
        }
        if other.end > lock.end {
            kept.push((who, LockSpec { start: lock.end + 1, ..other }));
        }
    }
    *held = kept;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(owner: u64, kind: LockKind, start: u64, end: u64) -> LockSpec {
        LockSpec { flock: false, owner, kind, start, end, pid: 1 }
    }

    #[test]
    fn writers_exclude_and_readers_share() {
        let mut locks = Locks::default();
        assert_eq!(locks.granted(1, Ino(9), lock(1, LockKind::Read, 0, 9)), Ok(()));
        assert_eq!(locks.granted(2, Ino(9), lock(1, LockKind::Read, 5, 9)), Ok(()));
        assert!(locks.granted(3, Ino(9), lock(1, LockKind::Write, 9, 12)).is_err());
        locks.leaving(1, Ino(9), &lock(1, LockKind::Unlock, 6, 9));
        locks.lost(2);
        assert_eq!(locks.granted(3, Ino(9), lock(1, LockKind::Write, 6, 12)), Ok(()));
        assert!(locks.granted(3, Ino(9), lock(1, LockKind::Write, 5, 5)).is_err());
    }
}
