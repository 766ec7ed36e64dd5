//! The mount's threads: one keeps time, one tells of losses, and one for each rank connects to it.
//!
//! Absent: calls; their callers' threads carry them.

use crate::mount::CapsEvent;
use crate::shared::{Shared, lock};
use crate::state::{Core, Turn};
use client::Input;
use proto::RankId;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use stdx::Mono;

type ThreadBody = fn(&Arc<Shared>);

pub(crate) fn start(shared: &Arc<Shared>) -> std::io::Result<Vec<JoinHandle<()>>> {
    let bodies: [(&str, ThreadBody); 3] =
        [("mount-timer", keep_time), ("mount-link", keep_links), ("mount-losses", tell_losses)];
    let mut threads = Vec::new();
    for (name, body) in bodies {
        let own = Arc::clone(shared);
        match Builder::new().name(name.to_owned()).spawn(move || body(&own)) {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                stop(shared);
                // The error of the spawn is what counts.
                threads.into_iter().for_each(|thread| drop(thread.join()));
                return Err(error);
            }
        }
    }
    Ok(threads)
}

fn stop(shared: &Shared) {
    shared.core().stop = true;
    shared.timer.ring();
    shared.linker.notify_all();
    shared.losses.notify_one();
}

/// Tells the hook of losses, and the machine when the file data of each are dropped: the rank lets others write only then. A thread
/// of its own, because the kernel does not drop a page while a READ into it is unanswered. That READ may be answered over the next
/// connection only, and wait there for another mount; meanwhile the lease goes on being renewed.
fn tell_losses(shared: &Arc<Shared>) {
    let mut core = shared.core();
    while !core.stop {
        let Some(stamp) = core.loss.take() else {
            core = shared.losses.wait(core).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        drop(core);
        let hook = lock(&shared.hook).clone();
        if let Some(hook) = hook {
            hook(CapsEvent::Lost { stamp });
        }
        shared.input(Input::Dropped { stamp });
        core = shared.core();
    }
}

/// Ticks the machine when it asks for it.
fn keep_time(shared: &Arc<Shared>) {
    let mut core = shared.core();
    while !core.stop {
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
    // Under the mutex: who finds that it goes off too late sets it after this.
    shared.timer.set(due);
    drop(core);
    shared.timer.wait();
    let mut core = shared.core();
    // Nobody needs to wake who is awake.
    core.timer_wakes = Mono(0);
    core
}

/// Sees that a thread connects to each rank that is needed: none waits for another that cannot be reached.
fn keep_links(shared: &Arc<Shared>) {
    let mut keepers = Vec::new();
    let mut core = shared.core();
    while !core.stop {
        let Some(rank) = core.wants_keeper() else {
            core = shared.linker.wait(core).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        drop(core);
        let own = Arc::clone(shared);
        match Builder::new().name(format!("mount-link-{}", rank.0)).spawn(move || keep_link(&own, rank)) {
            Ok(keeper) => keepers.push(keeper),
            // Of this one others have to wait.
            Err(_) => keep_link(shared, rank),
        }
        core = shared.core();
    }
    drop(core);
    for keeper in keepers {
        // A panic there has been printed.
        let _ended = keeper.join();
    }
}

/// Connects to a rank when it is needed, and again after each break, ever more slowly while connections do not last.
fn keep_link(shared: &Arc<Shared>, rank: RankId) {
    let (first, last) = shared.settings.backoff;
    let backoff = (first.as_nanos() as u64, last.as_nanos() as u64);
    let mut core = shared.core();
    while !core.stop {
        let now = shared.clock.mono();
        match core.wants_link(rank) {
            None => core = shared.linker.wait(core).unwrap_or_else(PoisonError::into_inner),
            Some(at) if now < at => {
                let left = shared.clock.until(at);
                core = shared.linker.wait_timeout(core, left).unwrap_or_else(PoisonError::into_inner).0;
            }
            Some(_) => {
                if let Some(lane) = core.lane(rank) {
                    lane.retry.tried(now, backoff);
                }
                drop(core);
                // Refused or unreachable: tried again after a pause.
                let _failed = shared.connect(rank);
                core = shared.core();
            }
        }
    }
}
