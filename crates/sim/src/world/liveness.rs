//! Nobody starves: a call of a client that is connected, at a rank that serves, has its answer within a bound, whatever others do.
//!
//! Absent: what must come to an end once faults stop (`callers.rs` `healing`).

use super::World;
use super::slot::Busy;
use crate::model::judge::Verdict;
use proto::request::Request;
use stdx::time::SECOND;

/// Nobody waits for longer than for three leases, one after the other, and a little for what is looked at by ticks.
const BOUND: u64 = 35 * SECOND;
/// Unless somebody gives back late, whom the rank has patience with for six leases.
const BOUND_SLOW: u64 = 80 * SECOND;
/// Between two looks.
const LOOK: u64 = SECOND / 4;

/// Whether somebody else decides how long it takes.
const fn may_wait(busy: &Busy) -> bool {
    matches!(busy.request, Request::SetLock { wait: true, .. })
}

impl World {
    pub(super) fn judge_waiting(&mut self) -> Verdict {
        if self.now < self.looked + LOOK {
            return Ok(());
        }
        self.looked = self.now;
        let served = self.life.as_ref().is_some_and(|life| life.active) && !self.is_rank_hung();
        if !served {
            self.calm_since = self.now;
            return Ok(());
        }
        // It may have been stopped with everybody in its process, so that nobody looked meanwhile.
        let since = self.calm_since.max(self.active_since).max(self.hangs.rank_awake_at(self.lives));
        let bound = if self.plan.slow_returns { BOUND_SLOW } else { BOUND };
        for slot in self.clients.iter().filter(|slot| slot.is_connected() && !self.is_hung(slot.number())) {
            let since = since.max(slot.connected_at);
            let late = |busy: &&Busy| !may_wait(busy) && self.now > busy.since.max(since) + bound;
            if let Some(busy) = slot.busy.values().find(late) {
                return Err(format!(
                    "client {} has waited for {} s for the answer to {:.160}",
                    slot.number(),
                    (self.now - busy.since) / SECOND,
                    format!("{:?} {:?}", busy.sent, busy.request)
                ));
            }
        }
        Ok(())
    }
}
