//! The timer thread: steps the rank with a tick at its deadline.
//!
//! Absent: any other use of time.

use super::Driver;
use mds::input::Input;
use std::sync::{Condvar, Mutex, PoisonError};
use stdx::Mono;

#[derive(Debug, Default)]
struct State {
    at: Option<Mono>,
    stop: bool,
}

/// When to tick next.
#[derive(Debug, Default)]
pub(super) struct Timer {
    state: Mutex<State>,
    wake: Condvar,
}

impl Timer {
    /// Ticks at `at`, or earlier if told so before.
    pub(super) fn set(&self, at: Mono) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.at.is_none_or(|old| at < old) {
            state.at = Some(at);
            self.wake.notify_one();
        }
    }

    pub(super) fn stop(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).stop = true;
        self.wake.notify_one();
    }

    /// Waits until a tick is due, and says whether it was so at once; `None` at the end.
    fn wait(&self, driver: &Driver) -> Option<bool> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut at_once = true;
        loop {
            if state.stop {
                return None;
            }
            state = match state.at {
                None => {
                    at_once = false;
                    self.wake.wait(state).unwrap_or_else(PoisonError::into_inner)
                }
                Some(at) => {
                    let left = driver.clock.until(at);
                    if left.is_zero() {
                        state.at = None;
                        return Some(at_once);
                    }
                    at_once = false;
                    self.wake.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

/// The timer thread. What the rank does in slices is one tick after the other. What broke: it had the rank again before the thread that
/// came with what had become durable, and that waited until the last slice.
pub(super) fn run(driver: &Driver) {
    while let Some(at_once) = driver.timer.wait(driver) {
        match at_once {
            true => driver.feed_last([Input::Tick]),
            false => driver.feed([Input::Tick]),
        }
    }
}
