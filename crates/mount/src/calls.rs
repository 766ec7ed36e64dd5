//! Who waits for which call.
//!
//! Absent: what the calls are.

use crate::mount::Done;
use client::CallId;

/// Completion callbacks by call. An id carries a turn number, so that the id of a finished call never
/// names a later one.
#[derive(Default)]
pub(crate) struct Calls {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

#[derive(Default)]
struct Slot {
    turn: u32,
    done: Option<Done>,
}

impl Calls {
    pub(crate) fn insert(&mut self, done: Done) -> CallId {
        let at = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[at as usize];
        slot.done = Some(done);
        CallId(u64::from(slot.turn) << 32 | u64::from(at))
    }

    pub(crate) fn take(&mut self, call: CallId) -> Option<Done> {
        let at = call.0 as u32;
        let slot = self.slots.get_mut(at as usize).filter(|slot| slot.turn == (call.0 >> 32) as u32)?;
        let done = slot.done.take()?;
        slot.turn = slot.turn.wrapping_add(1);
        self.free.push(at);
        Some(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finished_call_is_never_found_again() {
        let mut calls = Calls::default();
        let first = calls.insert(Box::new(|_| ()));
        assert!(calls.take(first).is_some());
        let second = calls.insert(Box::new(|_| ()));
        assert_ne!(first, second);
        assert!(calls.take(first).is_none());
        assert!(calls.take(second).is_some());
    }
}
