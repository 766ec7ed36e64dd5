//! The gate: while a backup copies, requests are held back and the stores keep one state.
//!
//! Lease renewals, ends of connections and everything else that is no request pass.
//!
//! Absent: snapshots, which will make this unnecessary.

use super::Driver;
use mds::input::{ConnId, Input};
use proto::message::ClientMsg;
use std::time::{Duration, Instant};

/// How often the state of the rank is looked at while it comes to rest.
const LOOK: Duration = Duration::from_millis(2);

/// Requests are not held back longer than this for a rank that does not come to rest.
const REST_MAX: Duration = Duration::from_secs(60);

/// Why the gate does not stay closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FreezeError {
    Closed,
    Restless,
}

/// Requests held back; behind the rank's mutex.
#[derive(Default)]
pub(super) struct Gate {
    closed: bool,
    held: Vec<Input>,
}

impl Gate {
    /// Lets an input pass, or keeps it.
    #[inline]
    pub(super) fn pass(&mut self, input: Input) -> Option<Input> {
        if self.closed && matches!(&input, Input::Message { message: ClientMsg::Request { .. }, .. }) {
            self.held.push(input);
            return None;
        }
        Some(input)
    }

    /// A connection ended: what it asked is not executed.
    pub(super) fn forget(&mut self, gone: ConnId) {
        self.held.retain(|input| !matches!(input, Input::Message { conn, .. } if *conn == gone));
    }
}

/// The closed gate; opens when dropped.
pub(crate) struct Frozen<'a> {
    driver: &'a Driver,
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        let held = {
            let mut core = self.driver.core();
            core.gate.closed = false;
            std::mem::take(&mut core.gate.held)
        };
        self.driver.feed(held);
    }
}

impl Driver {
    /// Closes the gate and brings the rank to rest: everything that was let in is answered by the
    /// stores, and a checkpoint has written all of it.
    ///
    /// # Errors
    /// `Closed` when it is closed already, `Restless` when no checkpoint completes (a full disk) or
    /// the server is ending.
    pub(crate) fn freeze(&self) -> Result<Frozen<'_>, FreezeError> {
        if std::mem::replace(&mut self.core().gate.closed, true) {
            return Err(FreezeError::Closed);
        }
        let begin = Instant::now();
        let frozen = Frozen { driver: self };
        let mut goal = None;
        while !self.is_halted() && begin.elapsed() < REST_MAX {
            let (at_rest, appended, trimmed) = {
                let core = self.core();
                (core.in_flight == 0, core.appended, core.trimmed)
            };
            match goal {
                Some(goal) if at_rest && trimmed >= goal => return Ok(frozen),
                None if at_rest => {
                    goal = Some(appended);
                    self.feed([Input::Checkpoint]);
                }
                _ => std::thread::sleep(LOOK),
            }
        }
        Err(FreezeError::Restless)
    }
}
