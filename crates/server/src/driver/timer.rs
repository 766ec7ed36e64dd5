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

    /// Waits until a tick is due; `false` at the end.
    fn wait(&self, driver: &Driver) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if state.stop {
                return false;
            }
            state = match state.at {
                None => self.wake.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(at) => {
                    let left = driver.clock.until(at);
                    if left.is_zero() {
                        state.at = None;
                        return true;
                    }
                    self.wake.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

/// The timer thread.
pub(super) fn run(driver: &Driver) {
    while driver.timer.wait(driver) {
        driver.feed([Input::Tick]);
    }
}
