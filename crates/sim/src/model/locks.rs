//! Locks as clients see them: what was granted and not yet given back must never be granted to another.
//!
//! A client holds a lock for certain from the moment it has the answer until it asks to give it back.
//! What lies in between on the way is nobody's fault.
//!
//! Absent: when a lock must be granted; progress shows that no wait is forgotten.

use proto::Ino;
use proto::request::{LockKind, LockSpec};
use std::collections::{BTreeMap, BTreeSet};

/// Who holds: a client of the world, and its life.
pub type Holder = u64;

/// A lock that is held for certain.
#[derive(Clone, Copy, Debug)]
struct Held {
    holder: Holder,
    lock: LockSpec,
    /// Which grant it is of.
    grant: u64,
}

impl Held {
    fn excludes(&self, holder: Holder, lock: &LockSpec) -> bool {
        (self.holder, self.lock.owner) != (holder, lock.owner)
            && self.lock.flock == lock.flock
            && overlaps(&self.lock, lock)
            && (self.lock.kind == LockKind::Write || lock.kind == LockKind::Write)
    }
}

/// All locks held for certain.
#[derive(Clone, Debug, Default)]
pub struct Locks {
    held: BTreeMap<Ino, Vec<Held>>,
    grants: u64,
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
        if let Some(other) = held.iter().find(|other| other.excludes(holder, &lock)) {
            return Err(format!(
                "client {holder} was granted {lock:?} of inode {} while client {} holds {:?}",
                ino.0, other.holder, other.lock
            ));
        }
        self.put(holder, ino, lock);
        Ok(())
    }

    /// The same, whoever else holds one.
    pub fn put(&mut self, holder: Holder, ino: Ino, lock: LockSpec) {
        let held = self.held.entry(ino).or_default();
        cut(held, holder, &lock);
        self.grants += 1;
        held.push(Held { holder, lock, grant: self.grants });
    }

    /// Grants that are in the way of a lock.
    #[must_use]
    pub fn in_the_way(&self, holder: Holder, ino: Ino, lock: &LockSpec) -> BTreeSet<u64> {
        let held = self.held.get(&ino).into_iter().flatten();
        held.filter(|held| held.excludes(holder, lock)).map(|held| held.grant).collect()
    }

    /// Files of which one holds a lock.
    pub fn files_of(&self, holder: Holder) -> impl Iterator<Item = Ino> + '_ {
        let holds = move |held: &Held| held.holder == holder;
        self.held.iter().filter(move |(_, held)| held.iter().any(holds)).map(|(ino, _)| *ino)
    }

    /// Files of which anybody holds one.
    pub fn files(&self) -> impl Iterator<Item = Ino> + '_ {
        self.held.iter().filter(|(_, held)| !held.is_empty()).map(|(ino, _)| *ino)
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
            held.retain(|held| held.holder != holder || held.lock.flock != flock || held.lock.owner != owner);
        }
    }

    /// A client died or lost its session.
    pub fn lost(&mut self, holder: Holder) {
        for held in self.held.values_mut() {
            held.retain(|held| held.holder != holder);
        }
    }

    /// What a client has of one file is not certain any more.
    pub fn lost_of(&mut self, holder: Holder, ino: Ino) {
        if let Some(held) = self.held.get_mut(&ino) {
            held.retain(|held| held.holder != holder);
        }
    }
}

/// Takes a range out of what an owner holds.
fn cut(held: &mut Vec<Held>, holder: Holder, lock: &LockSpec) {
    let mut kept = Vec::with_capacity(held.len() + 1);
    for it in held.drain(..) {
        let other = it.lock;
        let is_owners = (it.holder, other.owner, other.flock) == (holder, lock.owner, lock.flock);
        if !is_owners || !overlaps(&other, lock) {
            kept.push(it);
            continue;
        }
        if other.start < lock.start {
            kept.push(Held { lock: LockSpec { end: lock.start - 1, ..other }, ..it });
        }
        if other.end > lock.end {
            kept.push(Held { lock: LockSpec { start: lock.end + 1, ..other }, ..it });
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
