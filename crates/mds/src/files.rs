//! Inodes that something depends on beyond their record: opens, data operations under way, a cut that
//! has not reached the data store. Such an inode is never forgotten and never removed at once.
//!
//! Absent: contents.

use crate::op::{Claim, OpId};
use proto::{Ino, SessionId};
use std::collections::{BTreeMap, VecDeque};

/// A session's opens of one inode. There are many: 16 bytes each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Open {
    pub session: SessionId,
    pub count: u32,
    /// The permission bits that were checked when it was opened; none for a reclaimed open, which
    /// nobody can check.
    rights: u8,
    /// One of them is, or was, for writing.
    pub writes: bool,
    pub looked: Looked,
}

/// What is known of where the inode of an open was that nobody has checked, for a session that is limited to a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Looked {
    #[default]
    Nothing,
    /// It had a name inside when that was looked at.
    Inside,
    /// It lost its last name in this life of the rank, and was not found to be inside until then.
    TooLate,
}

const _: () = assert!(size_of::<Open>() == 16);

impl Open {
    /// The permission bits that were checked.
    pub(crate) const fn rights(&self) -> u8 {
        self.rights
    }

    /// Whether all of these permission bits were checked.
    pub(crate) const fn has(&self, rights: u32) -> bool {
        self.rights as u32 & rights == rights
    }
}

/// The opens of one inode per session; a session appears once. Most files are one session's, which needs no memory of its own.
#[derive(Clone, Debug, Default)]
pub(crate) struct Opens {
    /// None: there is nobody in `more` either.
    first: Option<Open>,
    more: Vec<Open>,
}

impl Opens {
    pub(crate) const fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Open> {
        self.first.iter().chain(&self.more)
    }

    fn of(&mut self, session: SessionId) -> Option<&mut Open> {
        self.first.iter_mut().chain(&mut self.more).find(|open| open.session == session)
    }

    fn push(&mut self, open: Open) {
        match self.first {
            None => self.first = Some(open),
            Some(_) => self.more.push(open),
        }
    }

    fn remove(&mut self, session: SessionId) {
        if self.first.is_some_and(|open| open.session == session) {
            self.first = self.more.pop();
        }
        self.more.retain(|open| open.session != session);
    }
}

/// One inode's state.
#[derive(Debug, Default)]
pub(crate) struct FileState {
    pub opens: Opens,
    /// Data operations under way that may run beside each other.
    pub shared: u32,
    /// One that runs alone is under way.
    pub exclusive: bool,
    /// Data operations under way that need the data to stay (reads, syncs).
    pub users: u32,
    /// Answers of a former life that may have opened it, and that their clients may not have: nothing that ends by itself. A client
    /// says that it has one when it has all answers before it, so who waits for that may wait for himself.
    pub kept: u32,
    /// Writes completed, to see whether one came while a sync was under way.
    pub writes: u32,
    /// A cut is journaled and the data store has not answered.
    pub cutting: bool,
    /// Requests waiting for one of these.
    pub queue: VecDeque<OpId>,
    /// Cut to nothing while it was open, as O_TRUNC does: synced at the last close.
    pub truncated: bool,
    /// Data removal of the orphan has begun.
    pub purging: bool,
}

impl FileState {
    /// Whether somebody has it open, or may have.
    pub(crate) fn is_open(&self) -> bool {
        !self.opens.is_empty() || self.kept > 0
    }

    /// Whether a removal of the last name must keep the data.
    pub(crate) fn needs_data(&self) -> bool {
        self.is_open() || self.shared > 0 || self.exclusive || self.users > 0 || self.cutting
    }

    /// Whether something is under way that ends by itself.
    pub(crate) fn is_under_way(&self) -> bool {
        let claimed = self.shared > 0 || self.exclusive || self.users > 0;
        claimed || self.cutting || self.purging || !self.queue.is_empty()
    }

    fn idle(&self) -> bool {
        !self.needs_data() && self.queue.is_empty() && !self.purging
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Files {
    files: BTreeMap<Ino, FileState>,
}

impl Files {
    pub(crate) fn get(&self, ino: Ino) -> Option<&FileState> {
        self.files.get(&ino)
    }

    pub(crate) fn get_mut(&mut self, ino: Ino) -> &mut FileState {
        self.files.entry(ino).or_default()
    }

    pub(crate) fn existing(&mut self, ino: Ino) -> Option<&mut FileState> {
        self.files.get_mut(&ino)
    }

    /// Drops the state if nothing depends on it; true when it is gone.
    pub(crate) fn forget_idle(&mut self, ino: Ino) -> bool {
        match self.files.get(&ino) {
            Some(file) if file.idle() => {
                self.files.remove(&ino);
                true
            }
            Some(_) => false,
            None => true,
        }
    }

    pub(crate) fn open(&mut self, ino: Ino, session: SessionId, count: u32, rights: u32, writes: bool) {
        // Read, write and execute: three bits.
        let rights = rights as u8;
        let file = self.get_mut(ino);
        match file.opens.of(session) {
            Some(open) => {
                open.count = open.count.saturating_add(count);
                open.rights |= rights;
                open.writes |= writes;
            }
            None => file.opens.push(Open { session, count, rights, writes, looked: Looked::Nothing }),
        }
    }

    /// The session was found to have it open where it may be.
    pub(crate) fn is_inside(&mut self, ino: Ino, session: SessionId) {
        if let Some(open) = self.files.get_mut(&ino).and_then(|file| file.opens.of(session)) {
            open.looked = Looked::Inside;
        }
    }

    /// An inode loses its last name: where it was can be looked at no more.
    pub(crate) fn is_nameless(&mut self, ino: Ino) {
        let Some(Opens { first, more }) = self.files.get_mut(&ino).map(|file| &mut file.opens) else {
            return;
        };
        for open in first.iter_mut().chain(more) {
            if open.looked == Looked::Nothing {
                open.looked = Looked::TooLate;
            }
        }
    }

    /// Ends opens of a session (at most those it has). Returns whether any open is left.
    pub(crate) fn close(&mut self, ino: Ino, session: SessionId, count: u32) -> bool {
        let Some(file) = self.files.get_mut(&ino) else { return false };
        if let Some(open) = file.opens.of(session) {
            open.count = open.count.saturating_sub(count);
            if open.count == 0 {
                file.opens.remove(session);
            }
        }
        !file.opens.is_empty()
    }

    /// Whether a data operation may start; newcomers wait behind those that wait.
    pub(crate) fn may_claim(&self, claim: Claim, woken: bool) -> bool {
        let (ino, alone) = match claim {
            Claim::None | Claim::User(_) => return true,
            Claim::Shared(ino) => (ino, false),
            Claim::Exclusive(ino) | Claim::Copy { target: ino, .. } => (ino, true),
        };
        let Some(file) = self.files.get(&ino) else { return true };
        !file.exclusive && (!alone || file.shared == 0) && (woken || file.queue.is_empty())
    }

    pub(crate) fn claim(&mut self, claim: Claim) {
        match claim {
            Claim::None => {}
            Claim::User(ino) => self.get_mut(ino).users += 1,
            Claim::Shared(ino) => self.get_mut(ino).shared += 1,
            Claim::Exclusive(ino) => self.get_mut(ino).exclusive = true,
            Claim::Copy { source, target } => {
                self.get_mut(target).exclusive = true;
                if source != target {
                    self.get_mut(source).shared += 1;
                }
            }
        }
    }

    pub(crate) fn release(&mut self, claim: Claim) {
        match claim {
            Claim::None => {}
            Claim::User(ino) => self.release_user(ino),
            Claim::Shared(ino) => self.release_shared(ino),
            Claim::Exclusive(ino) => self.release_alone(ino),
            Claim::Copy { source, target } => {
                self.release_alone(target);
                if source != target {
                    self.release_shared(source);
                }
            }
        }
    }

    fn release_user(&mut self, ino: Ino) {
        if let Some(file) = self.files.get_mut(&ino) {
            file.users = file.users.saturating_sub(1);
        }
    }

    fn release_shared(&mut self, ino: Ino) {
        if let Some(file) = self.files.get_mut(&ino) {
            file.shared = file.shared.saturating_sub(1);
        }
    }

    fn release_alone(&mut self, ino: Ino) {
        if let Some(file) = self.files.get_mut(&ino) {
            file.exclusive = false;
        }
    }

    /// Files a session has open, from `after` on: for eviction in slices.
    pub(crate) fn opened_by(&self, session: SessionId, after: Ino, max: usize) -> (Vec<Ino>, Option<Ino>) {
        let mut found = Vec::new();
        for (seen, (ino, file)) in self.files.range(after..).enumerate() {
            if seen == max {
                return (found, Some(*ino));
            }
            if file.opens.iter().any(|open| open.session == session) {
                found.push(*ino);
            }
        }
        (found, None)
    }

    pub(crate) fn from(&self, first: Ino) -> impl Iterator<Item = (Ino, &FileState)> {
        self.files.range(first..).map(|(ino, file)| (*ino, file))
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (Ino, &FileState)> {
        self.files.iter().map(|(ino, file)| (*ino, file))
    }

    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_closes_leaves_the_opens_of_the_others_in_any_order() {
        let (ino, all) = (Ino(4096), [1, 2, 3].map(SessionId));
        let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
        for order in orders {
            let mut files = Files::default();
            all.iter().for_each(|session| files.open(ino, *session, 2, 0, false));
            let mut left = all.to_vec();
            for at in order {
                assert!(files.close(ino, all[at], 1), "one of two is left");
                left.retain(|session| *session != all[at]);
                assert_eq!(files.close(ino, all[at], 1), !left.is_empty());
                let mut open: Vec<_> = files
                    .get(ino)
                    .into_iter()
                    .flat_map(|file| file.opens.iter())
                    .map(|o| o.session)
                    .collect();
                open.sort_unstable();
                assert_eq!(open, left);
            }
        }
    }
}
