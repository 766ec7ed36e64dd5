//! When a rank's journal commits, as `server::driver::journal` decides it: at once when something waits or a group is big, else after a
//! while; the next group gathers while one is synced.
//!
//! Absent: bytes: nobody reads them here.

use proto::Position;
use stdx::time::MS;

/// Longest time that appends nobody waits for are gathered.
const COMMIT_NS: u64 = 2 * MS;
/// A group this big is committed at once.
const COMMIT_BYTES: u64 = 1 << 20;

/// Appends that become durable together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) end: Position,
    pub(super) bytes: u64,
}

/// A journal.
#[derive(Debug, Default)]
pub(super) struct Journal {
    end: Position,
    bytes: u64,
    since: u64,
    urgent: bool,
    syncing: bool,
}

impl Journal {
    pub(super) fn append(&mut self, now: u64, position: Position, bytes: u64) {
        if self.bytes == 0 {
            self.since = now;
        }
        self.bytes += bytes;
        self.end = Position(position.0 + bytes);
    }

    /// Something waits for what is gathered.
    pub(super) const fn hurry(&mut self) {
        self.urgent |= self.bytes > 0;
    }

    pub(super) const fn synced(&mut self) {
        self.syncing = false;
    }

    /// When it is to be looked whether a group has gathered for long enough.
    pub(super) const fn due(&self) -> Option<u64> {
        if self.bytes > 0 && !self.syncing { Some(self.since + COMMIT_NS) } else { None }
    }

    /// The group to be synced now.
    pub(super) fn take_due(&mut self, now: u64) -> Option<Group> {
        let due = self.due()?;
        if !(self.urgent || self.bytes >= COMMIT_BYTES || due <= now) {
            return None;
        }
        (self.syncing, self.urgent) = (true, false);
        Some(Group { end: self.end, bytes: std::mem::take(&mut self.bytes) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_group_is_synced_while_the_next_gathers() {
        let mut journal = Journal::default();
        assert_eq!((journal.due(), journal.take_due(9)), (None, None));
        journal.append(10, Position(0), 100);
        assert_eq!((journal.due(), journal.take_due(11)), (Some(10 + COMMIT_NS), None));
        journal.hurry();
        assert_eq!(journal.take_due(12), Some(Group { end: Position(100), bytes: 100 }));
        journal.append(13, Position(100), 50);
        journal.hurry();
        assert_eq!((journal.due(), journal.take_due(20 + COMMIT_NS)), (None, None));
        journal.synced();
        assert_eq!(journal.take_due(30), Some(Group { end: Position(150), bytes: 50 }));
        journal.synced();
        journal.append(40, Position(150), COMMIT_BYTES);
        assert!(journal.take_due(41).is_some(), "a big one waits for nobody");
    }
}
