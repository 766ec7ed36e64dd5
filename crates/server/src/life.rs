//! One life of a rank: its driver, its threads, the connections of its clients, its right to the stores. It can end while the process
//! lives, also when a thread never comes back from the rank.
//!
//! Absent: the decision that it ends (the coordinator's), the stores (`open.rs`).

use crate::driver::pulse::Loads;
use crate::driver::{Driver, Last, Life, Neighbours, Threads};
use crate::parts::Parts;
use mds::State;
use proto::cluster::ClusterMap;
use proto::{Incarnation, RankId};
use runtime::process::Cpus;
use runtime::{Acceptor, Clients, Clock, Guest, Log};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use store::fence::Fence;

/// Threads that do not end within this after the life are left behind: fenced, they can do no harm.
const THREADS_MAX: Duration = Duration::from_secs(20);
/// So long for the loop of the clients, and for whoever else is in the rank: one step, unless it is stuck.
const STEP_MAX: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(1);

/// Whose life it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) rank: RankId,
    /// 0 of a rank without a coordinator.
    pub(crate) incarnation: Incarnation,
    /// Who carries it, as people call it.
    pub(crate) name: String,
}

/// The loop of its clients, which begins with the first of them.
#[derive(Default)]
struct Hall {
    clients: Option<Clients>,
    closed: bool,
}

/// A life of a rank.
pub(crate) struct RankLife {
    pub(crate) driver: Arc<Driver>,
    pub(crate) identity: Identity,
    pub(crate) began: Instant,
    /// `None`: nobody could take its stores.
    fence: Option<Fence>,
    threads: Mutex<Threads>,
    hall: Mutex<Hall>,
    /// Of whoever began it, and so of its threads: its clients' loop, which somebody else starts, runs there too.
    cpus: Option<Cpus>,
}

impl RankLife {
    /// Starts its threads and boots the rank, which goes on by itself. Lives that share stores share a clock: the data store keeps times.
    ///
    /// # Errors
    /// Of starting threads.
    pub(crate) fn begin(
        parts: Parts,
        identity: Identity,
        fence: Option<Fence>,
        (log, place, warm, clock): (Arc<Log>, String, bool, Clock),
        around: Option<(Arc<dyn Neighbours>, Arc<ClusterMap>)>,
    ) -> io::Result<Arc<Self>> {
        let (driver, threads) = Driver::start(parts, log, place, warm, clock, around)?;
        let (threads, hall) = (Mutex::new(threads), Mutex::default());
        let cpus = Cpus::of_this_thread();
        Ok(Arc::new(Self { driver, identity, began: Instant::now(), fence, threads, hall, cpus }))
    }

    /// Tells `tell` of each state of the rank, and at least each `interval` that it is alive.
    ///
    /// # Errors
    /// Of starting a thread.
    pub(crate) fn watch(
        &self,
        interval: Duration,
        tell: impl Fn(State, Loads) + Send + 'static,
    ) -> io::Result<()> {
        self.threads().watch(&self.driver, interval, tell)
    }

    /// Whether clients are taken in.
    pub(crate) fn serves(&self) -> bool {
        !self.driver.is_halted() && matches!(self.driver.life.get(), Life::Active | Life::Damaged(_))
    }

    /// Takes a client in; drops it if the life is over, or does not serve yet.
    ///
    /// # Errors
    /// Of starting the loop.
    pub(crate) fn admit(
        &self,
        guest: Guest,
        acceptor: impl FnOnce() -> Arc<dyn Acceptor>,
        log: &Arc<Log>,
    ) -> io::Result<()> {
        let mut hall = self.hall();
        if hall.closed || !self.serves() {
            return Ok(());
        }
        if hall.clients.is_none() {
            hall.clients = Some(Clients::start(acceptor(), log.clone(), self.cpus)?);
        }
        if let Some(clients) = &hall.clients {
            clients.admit(guest);
        }
        Ok(())
    }

    /// Ends the connections of clients, and takes in no more. Whether their loop has ended.
    pub(crate) fn close(&self) -> bool {
        let clients = {
            let mut hall = self.hall();
            hall.closed = true;
            hall.clients.take()
        };
        clients.is_none_or(|clients| clients.stop(STEP_MAX))
    }

    /// Ends it while the process lives. When this returns nothing of it reaches a store or a client any more. Returns how many threads
    /// were left behind.
    pub(crate) fn end(&self, last: Last) -> usize {
        let left = self.finish(last, Some(THREADS_MAX));
        if let Some(fence) = &self.fence {
            // Returns when what is under way in the stores is over.
            fence.revoke();
        }
        left
    }

    /// Ends it with the process: all threads that are not stuck are waited for.
    pub(crate) fn end_with_process(&self) {
        self.finish(Last::Nothing, None);
    }

    fn finish(&self, last: Last, limit: Option<Duration>) -> usize {
        // First: the clients' loop may wait for the rank.
        self.driver.halt();
        let in_loop = !self.close();
        let left = self.threads().end(&self.driver, last, limit);
        // Who is in the rank on another's behalf, as a mount of this process.
        let begin = Instant::now();
        let left = left + usize::from(in_loop);
        while Arc::strong_count(&self.driver) > 1 + left && begin.elapsed() < STEP_MAX {
            std::thread::sleep(LOOK);
        }
        left
    }

    fn threads(&self) -> MutexGuard<'_, Threads> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hall(&self) -> MutexGuard<'_, Hall> {
        self.hall.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
