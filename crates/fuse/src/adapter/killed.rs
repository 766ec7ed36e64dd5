//! Callers that are killed while their request is at the rank. The kernel tells of the first signal only, and of none to a process
//! that is ending and closes its files; so who was interrupted, or closes, is looked at again until its answer has come. Of a
//! signal that comes while the request is on its way to a ring it tells nothing at all: the caller then waits where no signal
//! reaches it, and holds an inode's lock, behind which all others wait. So while the rank is away everybody is looked at.
//! Absent: which calls may be given up; the client decides.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ::mount::{Asker, SessionEvent, SessionStatus};

use super::Shared;
use crate::caller;

const LOOK: Duration = Duration::from_millis(200);
/// A process that is ending waits so long for the end of its locks, once.
const CLOSE_TIME: Duration = Duration::from_secs(2);

/// Requests whose callers are looked at.
#[derive(Default)]
pub(super) struct Watch(Mutex<Watched>);

#[derive(Default)]
struct Watched {
    requests: Vec<WatchedRequest>,
    /// Threads that have waited: they close one file after the other.
    waited: Vec<u32>,
    /// A thread looks at them.
    running: bool,
}

#[derive(Clone, Copy)]
struct WatchedRequest {
    unique: u64,
    since: Instant,
    /// It closes a file: its caller may be ending.
    closes: bool,
}

impl Shared {
    /// Looks at the caller of a request now and then until it has its answer.
    pub(super) fn watch(self: &Arc<Self>, unique: u64, closes: bool) {
        if self.mount.outlives_rank() {
            self.begin_to_look(Some(WatchedRequest { unique, since: Instant::now(), closes }));
        }
    }

    /// Looks at all callers while the rank is away.
    pub(super) fn on_session(self: &Arc<Self>, event: &SessionEvent) {
        if matches!(event, SessionEvent::Lost { .. } | SessionEvent::Hung) {
            self.begin_to_look(None);
        }
    }

    fn begin_to_look(self: &Arc<Self>, request: Option<WatchedRequest>) {
        let mut watched = self.watch.0.lock().unwrap_or_else(PoisonError::into_inner);
        watched.requests.extend(request);
        if watched.running {
            return;
        }
        let shared = Arc::downgrade(self);
        let look = move || {
            loop {
                thread::sleep(LOOK);
                if !shared.upgrade().is_some_and(|shared| shared.look()) {
                    return;
                }
            }
        };
        // Without a thread a killed caller waits for its answer, as it would on a disk.
        watched.running = thread::Builder::new().name("pando-callers".into()).spawn(look).is_ok();
    }

    /// One look at all of them. Whether there will be another.
    fn look(&self) -> bool {
        let lock = || self.watch.0.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_away() {
            self.look_at_everybody();
        }
        let (requests, mut waited) = {
            let watched = lock();
            (watched.requests.clone(), watched.waited.clone())
        };
        let over: Vec<u64> = requests
            .iter()
            .filter(|request| !self.still_waits(request, &mut waited))
            .map(|request| request.unique)
            .collect();
        let mut watched = lock();
        watched.requests.retain(|request| !over.contains(&request.unique));
        // Asked under the mutex: who hears later that the rank is away finds nobody looking.
        watched.running = !watched.requests.is_empty() || self.is_away();
        watched.waited = if watched.running { waited } else { Vec::new() };
        watched.running
    }

    fn is_away(&self) -> bool {
        self.mount.outlives_rank()
            && matches!(self.mount.state().status, SessionStatus::Lost | SessionStatus::Hung)
    }

    fn look_at_everybody(&self) {
        let calls = self.mount.calls();
        let pids: BTreeSet<u32> = calls.iter().map(|(_, asker)| asker.pid).collect();
        let killed: BTreeSet<u32> = pids.into_iter().filter(|pid| caller::is_being_killed(*pid)).collect();
        let given_up = calls.iter().filter(|(_, asker)| killed.contains(&asker.pid));
        given_up.for_each(|(call, _)| self.mount.abandon(*call));
    }

    /// Gives up the call of a request whose caller is gone. Whether it is still without an answer.
    fn still_waits(&self, request: &WatchedRequest, waited: &mut Vec<u32>) -> bool {
        let Some((call, Asker { pid, .. })) = self.mount.call_of(request.unique) else { return false };
        let in_time = request.since.elapsed() < CLOSE_TIME && !waited.contains(&pid);
        let closes = request.closes && !in_time && caller::is_ending(pid);
        if closes && !waited.contains(&pid) {
            waited.push(pid);
        }
        if closes || caller::is_being_killed(pid) {
            self.mount.abandon(call);
        }
        true
    }
}
