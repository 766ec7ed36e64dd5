//! The pulse: a thread that asks the rank, like any other that has something for it, where it is, and tells whoever watches this life. While
//! the rank does not come back from a step there is none.
//!
//! Absent: what is made of it (the coordinator's).

use super::Driver;
use mds::State;
use proto::Ino;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often it looks while the rank is on its way to serving.
const SHORT: Duration = Duration::from_millis(20);
/// And then.
const LONG: Duration = Duration::from_millis(500);

/// Whether it shall end.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    stop: Mutex<bool>,
    wake: Condvar,
}

impl Pulse {
    pub(super) fn stop(&self) {
        *self.stop.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.wake.notify_all();
    }

    /// Rests; `false` at the end.
    fn rest(&self, pause: Duration) -> bool {
        let stop = self.stop.lock().unwrap_or_else(PoisonError::into_inner);
        let rested = self.wake.wait_timeout_while(stop, pause, |stop| !*stop);
        !*rested.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// What most is asked of, and how much.
pub(crate) type Loads = Vec<(Ino, u64)>;

/// The pulse's thread: `tell` hears of each state at once, and at least each `interval` that the rank is alive.
pub(super) fn run(driver: &Driver, interval: Duration, tell: &dyn Fn(State, Loads)) {
    let mut told: Option<(State, Instant)> = None;
    loop {
        // Waits as long as it takes.
        let Some(state) = driver.core().map(|core| core.rank().state()) else { return };
        if told.is_none_or(|(last, at)| last != state || at.elapsed() >= interval) {
            let loads = driver.core().map(|core| core.rank().loads(driver.clock.mono()));
            tell(state, loads.unwrap_or_default());
            told = Some((state, Instant::now()));
        }
        let pause = if state == State::Active { LONG } else { SHORT };
        if !driver.pulse.rest(pause.min(interval)) {
            return;
        }
    }
}
