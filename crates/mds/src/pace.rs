//! Back-pressure: when the journal grows faster than the checkpoint puts its records into the store, requests that change
//! something wait, and go on in the order of their arrival as records reach the store. Otherwise the journal would take the
//! disk, and a replay hours.
//!
//! Absent: holding up what a waiting checkpoint needs, or what gives something back: data operations under way, releases, locks,
//! sessions, the rank's own transactions. But what stands in its session's line behind something that waits here waits with it.

use crate::op::OpId;
use crate::output::Output;
use crate::rank::Rank;
use proto::Effect;
use proto::request::Request;
use std::collections::BTreeSet;
use stdx::{Now, Outbox};

/// Waiting requests run per step.
const RUN_MAX: usize = 256;

/// Who waits for room in the journal. Numbers of operations are in order of arrival: whoever comes back from another wait takes
/// its old place.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    pub waiting: BTreeSet<OpId>,
}

impl Rank {
    /// How long the journal may be now. A quarter more than what starts a checkpoint is free, so that one that keeps up never
    /// holds anybody; up to the double it grows with what the present checkpoint has stored. A checkpoint that began early is no
    /// reason to leave the next one more than it can begin with.
    fn journal_limit(&self) -> u64 {
        let size = self.view.config.journal_bytes;
        let free = size / 4;
        let stored = self.checkpoint.stored_part(size - free);
        let paced = size.saturating_add(free).saturating_add(stored);
        self.checkpoint.began_with().map_or(paced, |began| paced.min(began.saturating_add(size)))
    }

    /// Whether the journal has room for another change. A full disk has its own answer (ENOSPC to what needs space), and what
    /// frees space must not wait for a checkpoint that finds none.
    fn journal_has_room(&self) -> bool {
        let no_space = self.view.full || self.view.disk_full || self.checkpoint.lacks_space();
        no_space || self.journal.backlog() <= self.journal_limit() || stdx::mutant!("mds_journal_unbounded")
    }

    /// Whether a request must wait before it is planned. Those that wait already go first.
    pub(crate) fn must_wait(&self, op: OpId, request: &Request) -> bool {
        let first = self.pace.waiting.first().is_none_or(|first| op < *first);
        request.effect() == Effect::Journal && !(first && self.journal_has_room())
    }

    /// Some of those who wait may go on.
    pub(crate) fn may_let_go(&self) -> bool {
        !self.pace.waiting.is_empty() && self.journal_has_room()
    }

    /// Lets requests go on for as long as there is room.
    pub(crate) fn let_go(&mut self, now: Now, out: &mut Outbox<Output>) {
        for _ in 0..RUN_MAX {
            if !self.may_let_go() {
                return;
            }
            let Some(id) = self.pace.waiting.pop_first() else { return };
            self.plan_again(now, id, out);
        }
    }
}
