//! When a rank's journal commits, as `server::driver::journal` decides it: at once when something waits or a group is big, else after a
//! while. Its threads take turns with the rank's CPU, so a group takes in what comes until one of them gets it; while one group is synced
//! the next may be written.
//!
//! Absent: bytes: nobody reads them here.

use proto::Position;
use stdx::time::MS;

/// Longest time that appends nobody waits for are gathered.
const COMMIT_NS: u64 = 2 * MS;
/// A group this big is committed at once.
const COMMIT_BYTES: u64 = 1 << 20;
/// Threads that write and sync.
const COMMITTERS: u8 = 2;

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
    /// A thread waits for the CPU, to write a group.
    queued: bool,
    /// Groups that are written and not synced.
    syncing: u8,
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
        self.syncing = self.syncing.saturating_sub(1);
    }

    /// When it is to be looked whether a group has gathered for long enough.
    pub(super) const fn due(&self) -> Option<u64> {
        let waits = self.bytes > 0 && self.syncing < COMMITTERS && !self.queued;
        if waits { Some(self.since + COMMIT_NS) } else { None }
    }

    /// Whether a thread now wants the CPU, to write a group.
    pub(super) fn wants_cpu(&mut self, now: u64) -> bool {
        let wants = self.due().is_some_and(|due| self.urgent || self.bytes >= COMMIT_BYTES || due <= now);
        self.queued |= wants;
        wants
    }

    /// The thread has the CPU: the group to be synced.
    pub(super) const fn take(&mut self) -> Group {
        (self.queued, self.urgent) = (false, false);
        self.syncing += 1;
        Group { end: self.end, bytes: std::mem::replace(&mut self.bytes, 0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_takes_in_what_comes_until_a_thread_has_the_cpu_and_two_are_synced_at_a_time() {
        let mut journal = Journal::default();
        assert_eq!((journal.due(), journal.wants_cpu(9)), (None, false));
        journal.append(10, Position(0), 100);
        assert_eq!((journal.due(), journal.wants_cpu(11)), (Some(10 + COMMIT_NS), false));
        journal.hurry();
        assert!(journal.wants_cpu(12) && !journal.wants_cpu(12), "once");
        journal.append(13, Position(100), 50);
        assert_eq!(journal.take(), Group { end: Position(150), bytes: 150 });
        journal.append(14, Position(150), 50);
        assert!(journal.wants_cpu(14 + COMMIT_NS));
        assert_eq!(journal.take(), Group { end: Position(200), bytes: 50 });
        journal.append(15, Position(200), COMMIT_BYTES);
        assert_eq!((journal.due(), journal.wants_cpu(16)), (None, false), "both threads sync");
        journal.synced();
        assert!(journal.wants_cpu(17), "a big one waits for nobody");
    }
}
