//! File locks: flock and fcntl kept apart, ranges, waiting, deadlock detection. In memory only. Both those of one file and those
//! of one session are bounded, waiters included: who has more gets ENOLCK.
//!
//! Absent: leases; locks across ranks.

use proto::request::{LockKind, LockSpec};
use proto::{Errno, Ino, SessionId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::op::OpId;

/// A circle of waiters is looked for among so many locks.
const DEADLOCK_LOOKS: usize = 16_384;

/// A lock owner.
type Owner = (SessionId, u64);

#[derive(Clone, Copy, Debug)]
struct HeldLock {
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
    posix: Vec<HeldLock>,
    flock: Vec<HeldLock>,
    waiting: VecDeque<Waiter>,
}

/// What a request for a lock comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockOutcome {
    Yes,
    Waits,
    No(Errno),
}

/// How many locks there may be, waiters included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LockLimits {
    pub per_file: usize,
    pub per_session: usize,
}

/// What is reclaimed are no locks, or locks that overlap: no client keeps such.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoLocks;

/// All locks.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    files: BTreeMap<Ino, FileLocks>,
    /// How many each session has on each file, and on all: locks and waiters.
    on_file: BTreeMap<(SessionId, Ino), usize>,
    of_session: BTreeMap<SessionId, usize>,
    /// fcntl waiters: what each owner waits for (an owner may wait in several threads).
    blocked: BTreeMap<(Owner, OpId), (Ino, LockSpec)>,
    /// Waiters that got their lock, to be answered.
    pub granted: Vec<OpId>,
}

fn conflicts(held: &HeldLock, owner: Owner, lock: &LockSpec) -> bool {
    held.owner != owner
        && (held.kind == LockKind::Write || lock.kind == LockKind::Write)
        && held.start <= lock.end
        && lock.start <= held.end
}

impl FileLocks {
    fn list(&mut self, flock: bool) -> &mut Vec<HeldLock> {
        if flock { &mut self.flock } else { &mut self.posix }
    }

    fn conflict(&self, owner: Owner, lock: &LockSpec) -> Option<&HeldLock> {
        let list = if lock.flock { &self.flock } else { &self.posix };
        list.iter().find(|held| conflicts(held, owner, lock))
    }

    fn len(&self) -> usize {
        self.posix.len() + self.flock.len() + self.waiting.len()
    }

    fn count_of(&self, session: SessionId) -> usize {
        let held = self.posix.iter().chain(&self.flock).filter(|held| held.owner.0 == session).count();
        held + self.waiting.iter().filter(|waiter| waiter.owner.0 == session).count()
    }

    /// Whether taking this range away leaves two of a lock of the owner's.
    fn splits(&self, owner: Owner, lock: &LockSpec) -> bool {
        let list = if lock.flock { &self.flock } else { &self.posix };
        list.iter().any(|held| held.owner == owner && held.start < lock.start && held.end > lock.end)
    }

    /// Puts all in place at once, `most` at most: one by one each would look at all. They lie beside each other and what is there, as
    /// a client's do. Those that are there already were said again, after the connection broke.
    fn reclaim(&mut self, session: SessionId, locks: &[LockSpec], most: usize) -> Result<usize, NoLocks> {
        if locks.iter().any(|lock| lock.kind == LockKind::Unlock || lock.start > lock.end) {
            return Err(NoLocks);
        }
        let place = |flock, owner, start, end| (flock, owner, start, end);
        let posix = self.posix.iter().map(|held| (false, held));
        let of_session = posix
            .chain(self.flock.iter().map(|held| (true, held)))
            .filter(|(_, held)| held.owner.0 == session);
        let there: BTreeMap<_, _> = of_session
            .map(|(flock, held)| (place(flock, held.owner.1, held.start, held.end), held.kind))
            .collect();
        let of_lock = |lock: &LockSpec| place(lock.flock, lock.owner, lock.start, lock.end);
        let is_new = |lock: &&LockSpec| there.get(&of_lock(lock)) != Some(&lock.kind);
        let new: Vec<&LockSpec> = locks.iter().filter(is_new).collect();
        let mut places: Vec<_> = there.keys().copied().chain(new.iter().map(|lock| of_lock(lock))).collect();
        places.sort_unstable();
        let beside = |pair: &[(bool, u64, u64, u64)]| {
            (pair[0].0, pair[0].1) != (pair[1].0, pair[1].1) || pair[0].3 < pair[1].2
        };
        if !places.windows(2).all(beside) {
            return Err(NoLocks);
        }
        for lock in new.iter().take(most) {
            let owner = (session, lock.owner);
            let (kind, start, end, pid) = (lock.kind, lock.start, lock.end, lock.pid);
            self.list(lock.flock).push(HeldLock { owner, kind, start, end, pid });
        }
        Ok(new.len().saturating_sub(most))
    }

    /// Puts a lock in place of what the owner held in the range; unlocking only takes away.
    fn apply(&mut self, owner: Owner, lock: &LockSpec) {
        let list = self.list(lock.flock);
        let mut kept = Vec::with_capacity(list.len() + 2);
        let mut new = HeldLock { owner, kind: lock.kind, start: lock.start, end: lock.end, pid: lock.pid };
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
                kept.push(HeldLock { end: lock.start - 1, ..held });
            }
            if held.end > lock.end {
                kept.push(HeldLock { start: lock.end + 1, ..held });
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
        limits: LockLimits,
    ) -> LockOutcome {
        let file_len = self.files.get(&ino).map_or(0, FileLocks::len);
        if file_len >= limits.per_file || self.count_of(session) >= limits.per_session {
            return LockOutcome::No(Errno::ENOLCK);
        }
        let outcome = self.place(ino, session, op, lock, wait);
        self.recount(ino, session);
        outcome
    }

    fn place(&mut self, ino: Ino, session: SessionId, op: OpId, lock: &LockSpec, wait: bool) -> LockOutcome {
        let owner = (session, lock.owner);
        let file = self.files.entry(ino).or_default();
        if lock.flock {
            // Changing the kind of a flock gives the old one up first, as Linux does.
            file.flock.retain(|held| held.owner != owner);
        }
        if file.conflict(owner, lock).is_none() || stdx::mutant!("mds_lock_ignores_conflict") {
            file.apply(owner, lock);
            self.grant(ino);
            return LockOutcome::Yes;
        }
        if !wait {
            self.grant(ino);
            return LockOutcome::No(Errno::EAGAIN);
        }
        if !lock.flock && self.deadlock(owner, ino, lock) {
            return LockOutcome::No(Errno::EDEADLK);
        }
        if let Some(file) = self.files.get_mut(&ino) {
            file.waiting.push_back(Waiter { op, owner, lock: *lock });
        }
        if lock.flock {
            self.grant(ino);
        } else {
            self.blocked.insert((owner, op), (ino, *lock));
        }
        LockOutcome::Waits
    }

    /// Whether one of those `owner` would wait for waits, however indirectly, for `owner`. Among more than
    /// `DEADLOCK_LOOKS` locks and waiters it is not found, so that no step takes long; Linux gives up as well (`posix_locks_deadlock`
    /// in fs/locks.c, after ten).
    fn deadlock(&self, owner: Owner, ino: Ino, lock: &LockSpec) -> bool {
        let mut seen = BTreeSet::from([owner]);
        let mut todo = vec![(owner, ino, *lock)];
        let mut looked = 0;
        while let Some((waiter, ino, lock)) = todo.pop() {
            let Some(file) = self.files.get(&ino) else { continue };
            looked += file.posix.len() + 1;
            if looked + todo.len() > DEADLOCK_LOOKS {
                return false;
            }
            for held in file.posix.iter().filter(|held| conflicts(held, waiter, &lock)) {
                if held.owner == owner {
                    return true;
                }
                if seen.insert(held.owner) {
                    let span = (held.owner, 0)..=(held.owner, OpId::MAX);
                    todo.extend(self.blocked.range(span).map(|(_, (ino, lock))| (held.owner, *ino, *lock)));
                }
            }
        }
        false
    }

    /// Takes a range away, which may leave two locks of one: that needs room, as a new lock does.
    pub(crate) fn unlock(
        &mut self,
        ino: Ino,
        session: SessionId,
        lock: &LockSpec,
        limits: LockLimits,
    ) -> Result<(), Errno> {
        let of_session = self.count_of(session);
        if let Some(file) = self.files.get_mut(&ino) {
            let owner = (session, lock.owner);
            let is_full = file.len() >= limits.per_file || of_session >= limits.per_session;
            if is_full && file.splits(owner, lock) {
                return Err(Errno::ENOLCK);
            }
            file.apply(owner, &LockSpec { kind: LockKind::Unlock, ..*lock });
        }
        self.recount(ino, session);
        self.grant(ino);
        Ok(())
    }

    /// Locks that the session had on the file before the rank restarted. Returns how many of them find no room.
    ///
    /// # Errors
    /// They are none that a client can have; nothing has changed.
    pub(crate) fn reclaim(
        &mut self,
        ino: Ino,
        session: SessionId,
        locks: &[LockSpec],
        limits: LockLimits,
    ) -> Result<usize, NoLocks> {
        if locks.is_empty() {
            return Ok(0);
        }
        let room = limits.per_session.saturating_sub(self.count_of(session));
        let file = self.files.entry(ino).or_default();
        let most = limits.per_file.saturating_sub(file.len()).min(room);
        let result = file.reclaim(session, locks, most);
        if file.len() == 0 {
            self.files.remove(&ino);
        }
        self.recount(ino, session);
        result
    }

    /// Whether the session has a lock on the file.
    pub(crate) fn has(&self, ino: Ino, session: SessionId) -> bool {
        self.on_file.contains_key(&(session, ino))
    }

    /// Locks and waiters of a session.
    pub(crate) fn count_of(&self, session: SessionId) -> usize {
        self.of_session.get(&session).copied().unwrap_or(0)
    }

    /// Something of the session changed on that file.
    fn recount(&mut self, ino: Ino, session: SessionId) {
        let count = self.files.get(&ino).map_or(0, |file| file.count_of(session));
        let before = if count > 0 {
            self.on_file.insert((session, ino), count)
        } else {
            self.on_file.remove(&(session, ino))
        };
        let all = self.of_session.entry(session).or_default();
        *all = *all + count - before.unwrap_or(0);
        if *all == 0 {
            self.of_session.remove(&session);
        }
    }

    pub(crate) fn release_owner(&mut self, ino: Ino, session: SessionId, flock: bool, owner: u64) {
        if let Some(file) = self.files.get_mut(&ino) {
            file.list(flock).retain(|held| held.owner != (session, owner));
        }
        self.recount(ino, session);
        self.grant(ino);
    }

    /// Takes a waiter out, if it is one.
    pub(crate) fn cancel(&mut self, ino: Ino, op: OpId) {
        let Some(file) = self.files.get_mut(&ino) else { return };
        let at = file.waiting.iter().position(|w| w.op == op);
        if let Some(waiter) = at.and_then(|at| file.waiting.remove(at)) {
            self.blocked.remove(&(waiter.owner, op));
            self.recount(ino, waiter.owner.0);
            self.grant(ino);
        }
    }

    /// Drops what a session has on some files, on which there are `most` locks and waiters or, with those of the last, more. Returns
    /// its waiters there; none: it has nothing on any file.
    pub(crate) fn drop_session(&mut self, session: SessionId, most: usize) -> Option<Vec<OpId>> {
        let theirs = (session, Ino(0))..=(session, Ino(u64::MAX));
        let mut looked = 0;
        let mut inos = Vec::new();
        for ((_, ino), _) in self.on_file.range(theirs) {
            if looked >= most {
                break;
            }
            looked += self.files.get(ino).map_or(1, FileLocks::len);
            inos.push(*ino);
        }
        if inos.is_empty() {
            return None;
        }
        let mut dropped = Vec::new();
        for ino in inos {
            if let Some(file) = self.files.get_mut(&ino) {
                file.posix.retain(|held| held.owner.0 != session);
                file.flock.retain(|held| held.owner.0 != session);
                for waiter in file.waiting.iter().filter(|waiter| waiter.owner.0 == session) {
                    self.blocked.remove(&(waiter.owner, waiter.op));
                    dropped.push(waiter.op);
                }
                file.waiting.retain(|waiter| waiter.owner.0 != session);
            }
            self.recount(ino, session);
            self.grant(ino);
        }
        Some(dropped)
    }

    /// Grants what has become possible, in order of arrival.
    fn grant(&mut self, ino: Ino) {
        let Some(file) = self.files.get_mut(&ino) else { return };
        let mut at = 0;
        let mut granted = BTreeSet::new();
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
            granted.insert(waiter.owner.0);
        }
        if file.len() == 0 {
            self.files.remove(&ino);
        }
        // What was waited for may have become one with what its owner held.
        for session in granted {
            self.recount(ino, session);
        }
    }

    /// The locks on a file, with whose they are.
    pub(crate) fn held_on(&self, ino: Ino) -> Vec<(SessionId, LockSpec)> {
        let Some(file) = self.files.get(&ino) else { return Vec::new() };
        let lock = |flock: bool, held: &HeldLock| {
            let HeldLock { owner: (session, owner), kind, start, end, pid } = *held;
            (session, LockSpec { flock, owner, kind, start, end, pid })
        };
        let posix = file.posix.iter().map(|held| lock(false, held));
        posix.chain(file.flock.iter().map(|held| lock(true, held))).collect()
    }

    /// The file is another rank's: nobody has a lock on it here, and who waits for one is returned.
    pub(crate) fn leave(&mut self, ino: Ino) -> Vec<OpId> {
        let Some(file) = self.files.remove(&ino) else { return Vec::new() };
        for waiter in &file.waiting {
            self.blocked.remove(&(waiter.owner, waiter.op));
        }
        let held = file.posix.iter().chain(&file.flock).map(|held| held.owner.0);
        let sessions: BTreeSet<SessionId> =
            held.chain(file.waiting.iter().map(|waiter| waiter.owner.0)).collect();
        sessions.into_iter().for_each(|session| self.recount(ino, session));
        file.waiting.into_iter().map(|waiter| waiter.op).collect()
    }

    /// What a session holds on a file is to be said anew.
    pub(crate) fn forget(&mut self, ino: Ino, session: SessionId) {
        let Some(file) = self.files.get_mut(&ino) else { return };
        file.posix.retain(|held| held.owner.0 != session);
        file.flock.retain(|held| held.owner.0 != session);
        if file.len() == 0 {
            self.files.remove(&ino);
        }
        self.recount(ino, session);
    }

    /// Whether a file is locked, or waited for.
    pub(crate) fn is_locked(&self, ino: Ino) -> bool {
        self.files.get(&ino).is_some_and(|locks| locks.len() > 0)
    }

    /// Files that are locked, or waited for.
    pub(crate) fn files(&self) -> impl Iterator<Item = Ino> {
        self.files_from(Ino(0))
    }

    /// The same from that one on.
    pub(crate) fn files_from(&self, first: Ino) -> impl Iterator<Item = Ino> {
        self.files.range(first..).filter(|(_, locks)| locks.len() > 0).map(|(ino, _)| *ino)
    }

    /// Locks held.
    pub(crate) fn held(&self) -> usize {
        self.files.values().map(|f| f.posix.len() + f.flock.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: LockLimits = LockLimits { per_file: 100, per_session: 150 };

    fn lock(owner: u64, kind: LockKind, start: u64, end: u64) -> LockSpec {
        LockSpec { flock: false, owner, kind, start, end, pid: 1 }
    }

    fn set(locks: &mut Locks, ino: u64, op: OpId, l: &LockSpec) -> LockOutcome {
        locks.set(Ino(ino), SessionId(1), op, l, true, LIMITS)
    }

    /// What is counted of each session is what there is.
    fn check_counts(locks: &Locks) {
        let mut found = BTreeMap::new();
        for (ino, file) in &locks.files {
            let owners = file.posix.iter().chain(&file.flock).map(|held| held.owner);
            for owner in owners.chain(file.waiting.iter().map(|waiter| waiter.owner)) {
                *found.entry((owner.0, *ino)).or_default() += 1;
            }
        }
        assert_eq!(locks.on_file, found);
        let mut all = BTreeMap::new();
        found.iter().for_each(|((session, _), count)| *all.entry(*session).or_default() += count);
        assert_eq!(locks.of_session, all);
    }

    #[test]
    fn ranges_split_and_merge() {
        let mut locks = Locks::default();
        assert_eq!(set(&mut locks, 9, 1, &lock(1, LockKind::Write, 0, 99)), LockOutcome::Yes);
        locks
            .unlock(Ino(9), SessionId(1), &lock(1, LockKind::Unlock, 10, 19), LIMITS)
            .expect("there is room");
        let probe = |locks: &Locks, at| locks.test(Ino(9), SessionId(1), &lock(2, LockKind::Read, at, at));
        assert!(probe(&locks, 9).is_some() && probe(&locks, 10).is_none() && probe(&locks, 20).is_some());
        assert_eq!(locks.held(), 2);
        assert_eq!(set(&mut locks, 9, 2, &lock(1, LockKind::Write, 10, 19)), LockOutcome::Yes);
        assert!(probe(&locks, 15).is_some());
    }

    /// What broke: with as many locks as there may be, one step looked at each of them for each of them.
    #[test]
    fn a_circle_is_looked_for_among_a_bounded_number_of_locks() {
        // Owner n has many locks on file n, and waits for the next file, all of it.
        let circle = |owners: u64| {
            let mut locks = Locks::default();
            for n in 0..owners {
                for at in 0..90 {
                    let session = SessionId(n);
                    let one = lock(n, LockKind::Write, 2 * at, 2 * at);
                    assert_eq!(locks.set(Ino(n), session, 0, &one, false, LIMITS), LockOutcome::Yes);
                }
            }
            let mut wait = |n: u64| {
                let all = lock(n, LockKind::Write, 0, 999);
                locks.set(Ino((n + 1) % owners), SessionId(n), n, &all, true, LIMITS)
            };
            assert!((0..owners - 1).all(|n| wait(n) == LockOutcome::Waits));
            wait(owners - 1)
        };
        assert_eq!(circle(150), LockOutcome::No(Errno::EDEADLK));
        assert_eq!(circle(200), LockOutcome::Waits);
    }

    #[test]
    fn a_cycle_of_waiters_is_refused() {
        let mut locks = Locks::default();
        for ino in 1..=3 {
            assert_eq!(set(&mut locks, ino, ino, &lock(ino, LockKind::Write, 0, 9)), LockOutcome::Yes);
        }
        assert_eq!(set(&mut locks, 2, 11, &lock(1, LockKind::Write, 0, 9)), LockOutcome::Waits);
        assert_eq!(set(&mut locks, 3, 12, &lock(2, LockKind::Write, 0, 9)), LockOutcome::Waits);
        assert_eq!(set(&mut locks, 1, 13, &lock(3, LockKind::Write, 0, 9)), LockOutcome::No(Errno::EDEADLK));
        locks.release_owner(Ino(3), SessionId(1), false, 3);
        assert_eq!(locks.granted, vec![12]);
    }

    #[test]
    fn flock_and_fcntl_do_not_see_each_other() {
        let mut locks = Locks::default();
        assert_eq!(set(&mut locks, 9, 1, &lock(1, LockKind::Write, 0, u64::MAX)), LockOutcome::Yes);
        let flock = LockSpec { flock: true, ..lock(2, LockKind::Write, 0, u64::MAX) };
        assert_eq!(set(&mut locks, 9, 2, &flock), LockOutcome::Yes);
        assert_eq!(locks.held(), 2);
    }

    #[test]
    fn a_session_has_no_more_than_it_may_on_one_file_and_on_all() {
        let mut locks = Locks::default();
        for at in 0..100 {
            assert_eq!(set(&mut locks, 7, at, &lock(at, LockKind::Read, at, at)), LockOutcome::Yes);
        }
        let no = LockOutcome::No(Errno::ENOLCK);
        assert_eq!(set(&mut locks, 7, 200, &lock(200, LockKind::Read, 200, 200)), no);
        for at in 0..50 {
            assert_eq!(
                set(&mut locks, 8, at, &lock(1, LockKind::Write, 10 * at, 10 * at + 5)),
                LockOutcome::Yes
            );
        }
        assert_eq!(set(&mut locks, 9, 1, &lock(1, LockKind::Read, 0, 0)), no);
        let unlock = |start, end| lock(1, LockKind::Unlock, start, end);
        assert_eq!(
            locks.unlock(Ino(8), SessionId(1), &unlock(1, 2), LIMITS),
            Err(Errno::ENOLCK),
            "two of one"
        );
        assert_eq!(locks.unlock(Ino(8), SessionId(1), &unlock(0, 2), LIMITS), Ok(()));
        assert_eq!(locks.unlock(Ino(8), SessionId(1), &unlock(0, 9), LIMITS), Ok(()));
        assert_eq!(locks.count_of(SessionId(1)), 149);
        // Another session is another matter.
        let other = locks.set(Ino(9), SessionId(2), 1, &lock(1, LockKind::Read, 0, 0), true, LIMITS);
        assert_eq!(other, LockOutcome::Yes);
        check_counts(&locks);
    }

    /// What is reclaimed together is what came of the same locks one by one, said once or twice.
    #[test]
    fn locks_come_back_as_they_were() {
        let mut locks = Locks::default();
        for at in 0..20 {
            assert_eq!(
                set(&mut locks, 7, at, &lock(at % 3, LockKind::Read, 10 * at, 10 * at + 5)),
                LockOutcome::Yes
            );
        }
        let flock = LockSpec { flock: true, ..lock(9, LockKind::Read, 0, u64::MAX) };
        assert_eq!(set(&mut locks, 7, 20, &flock), LockOutcome::Yes);
        let held: Vec<LockSpec> =
            (0..20).map(|at| lock(at % 3, LockKind::Read, 10 * at, 10 * at + 5)).chain([flock]).collect();
        let mut again = Locks::default();
        let said = [&held[..10], &held[10..], &held];
        for locks in said {
            assert_eq!(again.reclaim(Ino(7), SessionId(1), locks, LIMITS), Ok(0));
        }
        check_counts(&again);
        assert_eq!((again.held(), again.count_of(SessionId(1))), (locks.held(), 21));
        let probe = lock(8, LockKind::Write, 31, 31);
        assert_eq!(again.test(Ino(7), SessionId(1), &probe), locks.test(Ino(7), SessionId(1), &probe));
    }

    /// What broke: each message could have as many as a file may have, and those that overlap were put in place one by one.
    #[test]
    fn what_no_client_has_does_not_come_back() {
        let mut locks = Locks::default();
        let read = |start, end| lock(0, LockKind::Read, start, end);
        for wrong in [[lock(0, LockKind::Unlock, 0, 9)].as_slice(), &[read(9, 0)], &[read(0, 9), read(9, 20)]]
        {
            assert_eq!(locks.reclaim(Ino(7), SessionId(1), wrong, LIMITS), Err(NoLocks));
        }
        assert!(locks.files.is_empty());
        let many: Vec<LockSpec> = (0..80).map(|at| read(10 * at, 10 * at + 5)).collect();
        let more: Vec<LockSpec> = (80..130).map(|at| read(10 * at, 10 * at + 5)).collect();
        let mut reclaim = |locks_of: &[LockSpec]| locks.reclaim(Ino(7), SessionId(1), locks_of, LIMITS);
        assert_eq!(reclaim(&many), Ok(0));
        assert_eq!(reclaim(&more), Ok(30));
        assert_eq!(reclaim(&[read(3, 4)]), Err(NoLocks));
        assert_eq!(locks.held(), LIMITS.per_file);
        check_counts(&locks);
    }

    #[test]
    fn a_session_that_ends_leaves_in_slices_and_others_get_what_it_had() {
        let mut locks = Locks::default();
        let (gone, other) = (SessionId(1), SessionId(2));
        for ino in 1..=5 {
            assert_eq!(set(&mut locks, ino, ino, &lock(1, LockKind::Write, 0, 9)), LockOutcome::Yes);
            let waits = locks.set(Ino(ino), other, 10 + ino, &lock(1, LockKind::Write, 0, 9), true, LIMITS);
            assert_eq!(waits, LockOutcome::Waits);
            assert_eq!(set(&mut locks, ino, 20 + ino, &lock(2, LockKind::Write, 5, 9)), LockOutcome::Waits);
            check_counts(&locks);
        }
        assert_eq!(locks.drop_session(gone, 9), Some(vec![21, 22, 23]));
        check_counts(&locks);
        assert_eq!(std::mem::take(&mut locks.granted), vec![11, 12, 13]);
        assert_eq!(locks.drop_session(gone, 9), Some(vec![24, 25]));
        assert_eq!(locks.drop_session(gone, 9), None);
        check_counts(&locks);
        assert_eq!((locks.count_of(gone), locks.count_of(other), locks.held()), (0, 5, 5));
        assert_eq!(locks.drop_session(other, 9), Some(Vec::new()));
        assert!(locks.files.is_empty() && locks.on_file.is_empty() && locks.of_session.is_empty());
    }
}
