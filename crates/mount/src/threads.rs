//! The mount's two threads: one keeps time and runs the hook, one reconnects.
//!
//! Absent: calls; their callers' threads carry them.

use crate::core::{Core, Turn};
use crate::mount::CapsEvent;
use crate::shared::{Shared, lock};
use client::Input;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use stdx::Mono;

pub(crate) fn start(shared: &Arc<Shared>) -> std::io::Result<Vec<JoinHandle<()>>> {
    let (timed, linked) = (Arc::clone(shared), Arc::clone(shared));
    let timer = Builder::new().name("mount-timer".to_owned()).spawn(move || keep_time(&timed))?;
    match Builder::new().name("mount-link".to_owned()).spawn(move || keep_link(&linked)) {
        Ok(link) => Ok(vec![timer, link]),
        Err(error) => {
            shared.core().stop = true;
            shared.timer.ring();
            // The error of the spawn is what counts.
            let _ended = timer.join();
            Err(error)
        }
    }
}

/// Ticks the machine when it asks for it. Losses are told here, so that no tick (and with it no `Settled`) can overtake them: the
/// rank lets others write only when the file data that was kept under its grants is gone.
fn keep_time(shared: &Arc<Shared>) {
    let mut core = shared.core();
    while !core.stop {
        if let Some(stamp) = core.loss.take() {
            drop(core);
            let hook = lock(&shared.hook).clone();
            if let Some(hook) = hook {
                hook(CapsEvent::Lost { stamp });
            }
            core = shared.core();
            continue;
        }
        let now = shared.step_time();
        match core.deadline() {
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

/// On the clock that goes on while the host is suspended: whatever ran out meanwhile is found when the host goes on.
fn wait<'a>(shared: &'a Shared, mut core: MutexGuard<'a, Core>, due: Option<Mono>) -> MutexGuard<'a, Core> {
    core.timer_wakes = due.unwrap_or(Mono(u64::MAX));
    // Under the mutex: who finds that it goes off too late rings after this.
    shared.timer.set(due);
    drop(core);
    shared.timer.wait();
    let mut core = shared.core();
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
