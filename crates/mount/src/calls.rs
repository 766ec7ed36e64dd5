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
    /// The stamp of the last recall when it was made.
    asked: u64,
    asker: Asker,
    done: Option<Done>,
}

/// For whom a call is, as an edge knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asker {
    /// The edge's own number of what it asks for.
    pub unique: u64,
    /// The thread that waits; 0: not known.
    pub pid: u32,
}

impl Calls {
    /// `asked`: the stamp of the last recall.
    pub(crate) fn insert(&mut self, asker: Asker, asked: u64, done: Done) -> CallId {
        let at = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[at as usize];
        (slot.asked, slot.asker, slot.done) = (asked, asker, Some(done));
        CallId(u64::from(slot.turn) << 32 | u64::from(at))
    }

    /// The call made for `unique`, and for whom; looks at all of them.
    pub(crate) fn of(&self, unique: u64) -> Option<(CallId, Asker)> {
        let made_for = |slot: &Slot| slot.done.is_some() && slot.asker.unique == unique;
        let at = self.slots.iter().position(made_for)?;
        let slot = &self.slots[at];
        Some((CallId(u64::from(slot.turn) << 32 | at as u64), slot.asker))
    }

    /// All whose thread is known.
    pub(crate) fn all(&self) -> Vec<(CallId, Asker)> {
        let waited_for =
            self.slots.iter().enumerate().filter(|(_, slot)| slot.done.is_some() && slot.asker.pid != 0);
        waited_for.map(|(at, slot)| (CallId(u64::from(slot.turn) << 32 | at as u64), slot.asker)).collect()
    }

    /// With the stamp that it was made with.
    pub(crate) fn take(&mut self, call: CallId) -> Option<(Done, u64)> {
        let at = call.0 as u32;
        let slot = self.slots.get_mut(at as usize).filter(|slot| slot.turn == (call.0 >> 32) as u32)?;
        let done = slot.done.take()?;
        slot.turn = slot.turn.wrapping_add(1);
        self.free.push(at);
        Some((done, slot.asked))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finished_call_is_never_found_again() {
        let mut calls = Calls::default();
        let asker = Asker { unique: 7, pid: 1 };
        let first = calls.insert(asker, 5, Box::new(|_, _| ()));
        assert_eq!((calls.of(7), calls.all()), (Some((first, asker)), vec![(first, asker)]));
        assert!(calls.take(first).is_some_and(|(_, asked)| asked == 5) && calls.of(7).is_none());
        let second = calls.insert(Asker::default(), 6, Box::new(|_, _| ()));
        assert_ne!(first, second);
        assert_eq!(calls.all(), [], "nobody is known to wait for it");
        assert!(calls.take(first).is_none());
        assert!(calls.take(second).is_some_and(|(_, asked)| asked == 6));
    }
}
