//! When a machine is to be stepped next: a plan for an earlier time takes the place of the one before.
//!
//! Absent: the events themselves (`event.rs`).

/// One machine's next tick.
#[derive(Debug, Default)]
pub(super) struct Alarm {
    at: Option<u64>,
    last: u64,
}

impl Alarm {
    /// Sets it unless it rings by then; the number that its event has to have.
    pub(super) fn set(&mut self, at: u64) -> Option<u64> {
        if self.at.is_some_and(|planned| planned <= at) {
            return None;
        }
        self.at = Some(at);
        self.last += 1;
        Some(self.last)
    }

    /// Whether it is that plan's turn: each one that was replaced and stepped the machine all the same would plan one more, without end.
    pub(super) fn rings(&mut self, number: u64) -> bool {
        let is_it = self.at.is_some() && self.last == number;
        if is_it {
            self.at = None;
        }
        is_it
    }
}
