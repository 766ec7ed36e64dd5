//! Where workers leave what they are done with. One of them brings it to the rank, together with what the others leave
//! meanwhile: a worker that waited for the rank's mutex instead would answer no question of the store.
//!
//! Absent: inputs that somebody waits for in order (connections, the journal); they go to the rank directly.

use super::Driver;
use mds::input::Input;
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Default)]
struct State {
    inputs: Vec<Input>,
    /// Somebody is on the way to the rank and looks here again before leaving off.
    busy: bool,
}

/// The answers of stores that the rank has not heard yet.
#[derive(Default)]
pub(super) struct Inbox {
    state: Mutex<State>,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds inputs; answers whether the caller is to bring them.
    fn add(&self, inputs: impl IntoIterator<Item = Input>) -> bool {
        let mut state = self.lock();
        state.inputs.extend(inputs);
        !std::mem::replace(&mut state.busy, true)
    }

    /// Exchanges `brought` for what has come; `false`: nothing has, and the caller is not the one who brings any more.
    fn next(&self, brought: &mut Vec<Input>) -> bool {
        brought.clear();
        let mut state = self.lock();
        std::mem::swap(&mut state.inputs, brought);
        state.busy = !brought.is_empty();
        state.busy
    }
}

impl Driver {
    /// As `feed`, but returns at once when another thread is bringing inputs of workers: that one takes these along.
    pub(super) fn bring(&self, inputs: impl IntoIterator<Item = Input>) {
        if !self.inbox.add(inputs) {
            return;
        }
        let mut brought = Vec::new();
        while self.inbox.next(&mut brought) {
            self.feed(brought.drain(..));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_brings_what_all_leave_and_nothing_stays_behind() {
        let inbox = Inbox::default();
        let mut brought = Vec::new();
        assert!(inbox.add([Input::Tick]));
        assert!(!inbox.add([Input::Tick]), "the first one brings it");
        assert!(inbox.next(&mut brought));
        assert_eq!(brought.len(), 2);
        assert!(!inbox.add([Input::Tick]), "the first one looks again");
        assert!(inbox.next(&mut brought));
        assert_eq!(brought.len(), 1);
        assert!(!inbox.next(&mut brought));
        assert!(inbox.add([Input::Tick]));
    }
}
