//! File locks: flock and fcntl kept apart, ranges, waiting, deadlock detection. In memory only.
//!
//! Absent: leases; locks across ranks.

use proto::request::{LockKind, LockSpec};
use proto::{Errno, Ino, SessionId};
use std::collections::{BTreeMap, VecDeque};

use crate::op::OpId;

/// A lock owner.
type Owner = (SessionId, u64);

#[derive(Clone, Copy, Debug)]
struct Held {
    owner: Owner,
    kind: LockKind,
    start: u64,
    end: u64,
    pid: u32,
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    op: OpId,
    owner: Owner,
    lock: LockSpec,
}

#[derive(Debug, Default)]
struct FileLocks {
    posix: Vec<Held>,
    flock: Vec<Held>,
    waiting: VecDeque<Waiter>,
}

/// What a request for a lock comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Granted {
    Yes,
    Waits,
    No(Errno),
}

/// All locks.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    files: BTreeMap<Ino, FileLocks>,
    /// fcntl waiters: what each owner waits for (an owner may wait in several threads).
    blocked: BTreeMap<(Owner, OpId), (Ino, LockSpec)>,
    /// Waiters that got their lock, to be answered.
    pub granted: Vec<OpId>,
}

fn conflicts(held: &Held, owner: Owner, lock: &LockSpec) -> bool {
    held.owner != owner
        && (held.kind == LockKind::Write || lock.kind == LockKind::Write)
        && held.start <= lock.end
        && lock.start <= held.end
}

impl FileLocks {
    fn list(&mut self, flock: bool) -> &mut Vec<Held> {
        if flock { &mut self.flock } else { &mut self.posix }
    }

    fn conflict(&self, owner: Owner, lock: &LockSpec) -> Option<&Held> {
        let list = if lock.flock { &self.flock } else { &self.posix };
        list.iter().find(|held| conflicts(held, owner, lock))
    }

    /// Puts a lock in place of what the owner held in the range; unlocking only takes away.
    fn apply(&mut self, owner: Owner, lock: &LockSpec) {
        let list = self.list(lock.flock);
        let mut kept = Vec::with_capacity(list.len() + 2);
        let mut new = Held { owner, kind: lock.kind, start: lock.start, end: lock.end, pid: lock.pid };
        for held in list.drain(..) {
            if held.owner != owner || held.end < lock.start || held.start > lock.end {
                kept.push(held);
                continue;
            }
            if held.kind == lock.kind {
                new.start = new.start.min(held.start);
                new.end = new.end.max(held.end);
                continue;
            }
            if held.start < lock.start {
                kept.push(Held { end: lock.start - 1, ..held });
            }
            if held.end > lock.end {
                kept.push(Held { start: lock.end + 1, ..held });
            }
        }
        if lock.kind != LockKind::Unlock {
            kept.push(new);
        }
        *list = kept;
    }
}

impl Locks {
    /// The lock in the way of this one.
    pub(crate) fn test(&self, ino: Ino, session: SessionId, lock: &LockSpec) -> Option<LockSpec> {
        let held = self.files.get(&ino)?.conflict((session, lock.owner), lock)?;
        Some(LockSpec {
            flock: lock.flock,
            owner: held.owner.1,
            kind: held.kind,
            start: held.start,
            end: held.end,
            pid: held.pid,
        })
    }

    pub(crate) fn set(
        &mut self,
        ino: Ino,
        session: SessionId,
        op: OpId,
        lock: &LockSpec,
        wait: bool,
        max: usize,
    ) -> Granted {
        let owner = (session, lock.owner);
        let file = self.files.entry(ino).or_default();
        if file.posix.len() + file.flock.len() + file.waiting.len() >= max {
            return Granted::No(Errno::ENOLCK);
        }
        if lock.flock {
            // Changing the kind of a flock gives the old one up first, as Linux does.
            file.flock.retain(|held| held.owner != owner);
        }
        if file.conflict(owner, lock).is_none() || stdx::mutant!("mds_lock_ignores_conflict") {
            file.apply(owner, lock);
            self.grant(ino);
            return Granted::Yes;
        }
        if !wait {
            self.grant(ino);
            return Granted::No(Errno::EAGAIN);
        }
        if !lock.flock && self.deadlock(owner, ino, lock) {
            return Granted::No(Errno::EDEADLK);
        }
        if let Some(file) = self.files.get_mut(&ino) {
            file.waiting.push_back(Waiter { op, owner, lock: *lock });
        }
        if lock.flock {
            self.grant(ino);
        } else {
            self.blocked.insert((owner, op), (ino, *lock));
        }
        Granted::Waits
    }

    /// Whether one of those `owner` would wait for waits, however indirectly, for `owner`.
    fn deadlock(&self, owner: Owner, ino: Ino, lock: &LockSpec) -> bool {
        let mut seen: Vec<Owner> = vec![owner];
        let mut todo = vec![(owner, ino, *lock)];
        while let Some((waiter, ino, lock)) = todo.pop() {
            let Some(file) = self.files.get(&ino) else { continue };
            for held in file.posix.iter().filter(|held| conflicts(held, waiter, &lock)) {
                let span = (held.owner, 0)..=(held.owner, OpId::MAX);
                for (_, (ino, lock)) in self.blocked.range(span) {
                    let blocks = self.files.get(ino).is_some_and(|f| {
                        f.posix.iter().any(|h| h.owner == owner && conflicts(h, held.owner, lock))
                    });
                    if blocks {
                        return true;
                    }
                    if !seen.contains(&held.owner) {
                        todo.push((held.owner, *ino, *lock));
                    }
                }
                if !seen.contains(&held.owner) {
                    seen.push(held.owner);
                }
            }
        }
        false
    }

    pub(crate) fn unlock(&mut self, ino: Ino, session: SessionId, lock: &LockSpec) {
        if let Some(file) = self.files.get_mut(&ino) {
            let unlock = LockSpec { kind: LockKind::Unlock, ..*lock };
            file.apply((session, lock.owner), &unlock);
        }
        self.grant(ino);
    }

    /// A lock the session had before the rank restarted.
    pub(crate) fn reclaim(&mut self, ino: Ino, session: SessionId, lock: &LockSpec) {
        self.files.entry(ino).or_default().apply((session, lock.owner), lock);
    }

    pub(crate) fn release_owner(&mut self, ino: Ino, session: SessionId, flock: bool, owner: u64) {
        if let Some(file) = self.files.get_mut(&ino) {
            file.list(flock).retain(|held| held.owner != (session, owner));
        }
        self.grant(ino);
    }

    /// Takes a waiter out, if it is one.
    pub(crate) fn cancel(&mut self, ino: Ino, op: OpId) {
        let Some(file) = self.files.get_mut(&ino) else { return };
        let at = file.waiting.iter().position(|w| w.op == op);
        if let Some(waiter) = at.and_then(|at| file.waiting.remove(at)) {
            self.blocked.remove(&(waiter.owner, op));
            self.grant(ino);
        }
    }

    /// Drops everything of a session. Returns its waiters.
    pub(crate) fn drop_session(&mut self, session: SessionId) -> Vec<OpId> {
        let mut dropped = Vec::new();
        let inos: Vec<Ino> = self.files.keys().copied().collect();
        for ino in inos {
            let Some(file) = self.files.get_mut(&ino) else { continue };
            file.posix.retain(|held| held.owner.0 != session);
            file.flock.retain(|held| held.owner.0 != session);
            dropped.extend(file.waiting.iter().filter(|w| w.owner.0 == session).map(|w| w.op));
            file.waiting.retain(|w| w.owner.0 != session);
            self.grant(ino);
        }
        self.blocked.retain(|(owner, _), _| owner.0 != session);
        dropped
    }

    /// Grants what has become possible, in order of arrival.
    fn grant(&mut self, ino: Ino) {
        let Some(file) = self.files.get_mut(&ino) else { return };
        let mut at = 0;
        while at < file.waiting.len() {
            let waiter = file.waiting[at];
            if file.conflict(waiter.owner, &waiter.lock).is_some() {
                at += 1;
                continue;
            }
            file.apply(waiter.owner, &waiter.lock);
            file.waiting.remove(at);
            self.blocked.remove(&(waiter.owner, waiter.op));
            self.granted.push(waiter.op);
        }
        if file.posix.is_empty() && file.flock.is_empty() && file.waiting.is_empty() {
            self.files.remove(&ino);
        }
    }

    /// Locks held.
    pub(crate) fn held(&self) -> usize {
        self.files.values().map(|f| f.posix.len() + f.flock.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(owner: u64, kind: LockKind, start: u64, end: u64) -> LockSpec {
        LockSpec { flock: false, owner, kind, start, end, pid: 1 }
    }

    fn set(locks: &mut Locks, ino: u64, op: OpId, l: &LockSpec) -> Granted {
        locks.set(Ino(ino), SessionId(1), op, l, true, 100)
    }

    #[test]
    fn ranges_split_and_merge() {
        let mut locks = Locks::default();
        assert_eq!(set(&mut locks, 9, 1, &lock(1, LockKind::Write, 0, 99)), Granted::Yes);
        locks.unlock(Ino(9), SessionId(1), &lock(1, LockKind::Unlock, 10, 19));
        let probe = |locks: &Locks, at| locks.test(Ino(9), SessionId(1), &lock(2, LockKind::Read, at, at));
        assert!(probe(&locks, 9).is_some() && probe(&locks, 10).is_none() && probe(&locks, 20).is_some());
        assert_eq!(locks.held(), 2);
        assert_eq!(set(&mut locks, 9, 2, &lock(1, LockKind::Write, 10, 19)), Granted::Yes);
        assert!(probe(&locks, 15).is_some());
    }

    #[test]
    fn a_cycle_of_waiters_is_refused() {
        let mut locks = Locks::default();
        for ino in 1..=3 {
            assert_eq!(set(&mut locks, ino, ino, &lock(ino, LockKind::Write, 0, 9)), Granted::Yes);
        }
        assert_eq!(set(&mut locks, 2, 11, &lock(1, LockKind::Write, 0, 9)), Granted::Waits);
        assert_eq!(set(&mut locks, 3, 12, &lock(2, LockKind::Write, 0, 9)), Granted::Waits);
        assert_eq!(set(&mut locks, 1, 13, &lock(3, LockKind::Write, 0, 9)), Granted::No(Errno::EDEADLK));
        locks.release_owner(Ino(3), SessionId(1), false, 3);
        assert_eq!(locks.granted, vec![12]);
    }

    #[test]
    fn flock_and_fcntl_do_not_see_each_other() {
        let mut locks = Locks::default();
        assert_eq!(set(&mut locks, 9, 1, &lock(1, LockKind::Write, 0, u64::MAX)), Granted::Yes);
        let flock = LockSpec { flock: true, ..lock(2, LockKind::Write, 0, u64::MAX) };
        assert_eq!(set(&mut locks, 9, 2, &flock), Granted::Yes);
        assert_eq!(locks.held(), 2);
    }
}
