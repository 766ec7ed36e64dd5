//! The mount's two threads: one keeps time and runs the hook, one reconnects.
//!
//! Absent: calls; their callers' threads carry them.

use crate::core::{Core, Turn};
use crate::mount::{Shared, lock};
use client::Input;
use proto::message::SOLE_TTL_MS;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use stdx::time::MS;
use stdx::{Machine, Mono};

pub(crate) fn start(shared: &Arc<Shared>) -> std::io::Result<Vec<JoinHandle<()>>> {
    let (timed, linked) = (Arc::clone(shared), Arc::clone(shared));
    let timer = Builder::new().name("mount-timer".to_owned()).spawn(move || keep_time(&timed))?;
    match Builder::new().name("mount-link".to_owned()).spawn(move || keep_link(&linked)) {
        Ok(link) => Ok(vec![timer, link]),
        Err(error) => {
            shared.core().stop = true;
            shared.timer.notify_one();
            // The error of the spawn is what counts.
            let _ended = timer.join();
            Err(error)
        }
    }
}

/// No tick before what the kernel was given has run out.
#[derive(Default)]
struct Quiet {
    until: Mono,
    given_ns: u64,
}

impl Quiet {
    /// The hook returned at `now`: from here on the kernel is given `ttl_ns`.
    fn hook_ran(&mut self, ttl_ns: u64, now: Mono) {
        // Nothing was given without leave: after a restart of the rank whoever is new waits for this answer.
        if ttl_ns == 0 && self.given_ns != 0 {
            self.until = now.after(SOLE_TTL_MS * MS);
        }
        self.given_ns = ttl_ns;
    }
}

/// Ticks the machine when it asks for it. The hook runs here, so that no tick (and with it no `Shared`)
/// can overtake it: the machine counts from when it heard of the other session, the kernel from when the
/// last answer left, which is before the hook returned.
fn keep_time(shared: &Arc<Shared>) {
    let mut quiet = Quiet::default();
    let mut core = shared.core();
    while !core.stop {
        if let Some(ttl_ns) = core.ttl_changes.pop_front() {
            drop(core);
            let hook = lock(&shared.hook).clone();
            if let Some(hook) = hook {
                hook(ttl_ns);
            }
            quiet.hook_ran(ttl_ns, shared.clock.mono());
            core = shared.core();
            continue;
        }
        let now = shared.clock.now();
        let due = core.client.deadline().map(|at| at.max(quiet.until));
        match due {
            Some(at) if at <= now.mono => {
                let mut turn = Turn::default();
                core.step(now, Input::Tick, &mut turn);
                shared.end_turn(core, turn);
                core = shared.core();
            }
            due => core = wait(shared, core, due),
        }
    }
}

fn wait<'a>(shared: &'a Shared, mut core: MutexGuard<'a, Core>, due: Option<Mono>) -> MutexGuard<'a, Core> {
    core.timer_wakes = due.unwrap_or(Mono(u64::MAX));
    let mut core = match due {
        None => shared.timer.wait(core).unwrap_or_else(PoisonError::into_inner),
        Some(at) => {
            let until = shared.clock.until(at);
            shared.timer.wait_timeout(core, until).unwrap_or_else(PoisonError::into_inner).0
        }
    };
    // Nobody needs to wake who is awake.
    core.timer_wakes = Mono(0);
    core
}

/// Connects again after each break, ever more slowly while connections do not last.
fn keep_link(shared: &Arc<Shared>) {
    let (first, last) = shared.settings.backoff;
    let (first, last) = (first.as_nanos() as u64, last.as_nanos() as u64);
    let mut pause = first;
    let mut next_try = Mono(0);
    let mut core = shared.core();
    while !core.stop {
        let now = shared.clock.mono();
        if !core.wants_link() {
            core = shared.linker.wait(core).unwrap_or_else(PoisonError::into_inner);
        } else if now < next_try {
            let left = shared.clock.until(next_try);
            core = shared.linker.wait_timeout(core, left).unwrap_or_else(PoisonError::into_inner).0;
        } else {
            pause = if now.since(next_try) > last { first } else { (pause * 2).min(last) };
            next_try = now.after(pause);
            drop(core);
            // Refused or unreachable: tried again at `next_try`.
            let _failed = shared.connect();
            core = shared.core();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_given_nothing_shares_at_once() {
        let mut quiet = Quiet::default();
        quiet.hook_ran(0, Mono(5));
        assert_eq!(quiet.until, Mono(0), "it was welcomed without leave to cache");
        quiet.hook_ran(SOLE_TTL_MS * MS, Mono(6));
        assert_eq!(quiet.until, Mono(0));
        quiet.hook_ran(0, Mono(7));
        assert_eq!(quiet.until, Mono(7).after(SOLE_TTL_MS * MS));
    }
}
