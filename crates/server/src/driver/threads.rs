//! Starting and ending the driver's threads.
//!
//! Absent: what they do.

use super::{Driver, background, data, journal, life, links, loads, news, pulse, stores, timer};
use mds::State;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Stack of a worker: LMDB cursors, a step of the rank, a sink; no recursion.
const SMALL_STACK: usize = 1 << 20;
/// Who has the rank's mutex for longer than this after its end is not waited for: it is stuck in a step.
const STUCK: Duration = Duration::from_secs(2);
/// How often it is looked at while threads are waited for.
const LOOK: Duration = Duration::from_millis(100);

/// What a life does at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Last {
    /// What was not committed is lost, as if the process had been killed. After `Stopped` there is nothing such.
    Nothing,
    /// What waits for the journal is written and synced, if it can be.
    Journal,
}

/// How many of them run.
#[derive(Default)]
struct Running {
    count: Mutex<usize>,
    none: Condvar,
}

/// Counts a thread as running until it is dropped.
struct Counted(Arc<Running>);

impl Counted {
    fn new(running: &Arc<Running>) -> Self {
        *running.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        Self(running.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        *self.0.count.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.none.notify_all();
    }
}

/// The running threads.
pub(crate) struct Threads {
    handles: Vec<JoinHandle<()>>,
    running: Arc<Running>,
}

impl Threads {
    pub(super) fn start(driver: &Arc<Driver>) -> std::io::Result<Self> {
        let mut threads = Self { handles: Vec::new(), running: Arc::default() };
        let started = threads.start_all(driver);
        if started.is_err() {
            threads.end(driver, Last::Nothing, None);
        }
        started.map(|()| threads)
    }

    fn start_all(&mut self, driver: &Arc<Driver>) -> std::io::Result<()> {
        for n in 0..journal::COMMITTERS {
            self.spawn(driver, format!("journal-{n}"), journal::run)?;
        }
        self.spawn(driver, "timer".into(), timer::run)?;
        for n in 0..loads::WORKERS {
            self.spawn(driver, format!("load-{n}"), loads::run)?;
        }
        for n in 0..stores::WRITERS {
            self.spawn(driver, format!("store-{n}"), move |driver| stores::run(driver, n))?;
        }
        for n in 0..data::WORKERS {
            self.spawn(driver, format!("data-{n}"), data::run)?;
        }
        if driver.neighbours.is_some() {
            let me = Arc::downgrade(driver);
            self.spawn(driver, "links".into(), move |driver| links::run(driver, &me))?;
            self.spawn(driver, "news".into(), news::run)?;
        }
        self.spawn(driver, "background".into(), background::run)?;
        self.spawn(driver, "data-background".into(), background::run_data)
    }

    /// Tells `tell` of each state of the rank, and of what is asked of it, and at least each `interval` that it is alive.
    pub(crate) fn watch(
        &mut self,
        driver: &Arc<Driver>,
        interval: Duration,
        tell: impl Fn(State, pulse::Loads) + Send + 'static,
    ) -> std::io::Result<()> {
        self.spawn(driver, "pulse".into(), move |driver| pulse::run(driver, interval, &tell))
    }

    fn spawn(
        &mut self,
        driver: &Arc<Driver>,
        name: String,
        run: impl FnOnce(&Driver) + Send + 'static,
    ) -> std::io::Result<()> {
        let driver = driver.clone();
        let counted = Counted::new(&self.running);
        let handle = thread::Builder::new().name(name).stack_size(SMALL_STACK).spawn(move || {
            {
                let _guard = life::AbortOnPanic { log: &driver.log };
                run(&driver);
            }
            // First: who waits for the last one may reopen what the driver has open.
            drop(driver);
            drop(counted);
        })?;
        self.handles.push(handle);
        Ok(())
    }

    /// Takes no more inputs, ends all threads, tells every connection. One that is stuck in a step of the rank is left behind, others
    /// that do not end within `limit`, too. Returns how many were.
    pub(crate) fn end(&mut self, driver: &Driver, last: Last, limit: Option<Duration>) -> usize {
        driver.halt();
        match last {
            Last::Nothing => driver.journal.stop(),
            Last::Journal => driver.journal.finish(),
        }
        driver.loads.stop();
        driver.stores.stop();
        driver.data.stop();
        driver.timer.stop();
        driver.background.stop();
        driver.data_background.stop();
        driver.pulse.stop();
        driver.links.stop();
        driver.news.stop();
        let left = self.wait(driver, limit);
        for handle in self.handles.drain(..) {
            // The last user of a server may be one of its own threads, in a sink.
            let is_own = handle.thread().id() == thread::current().id();
            if !is_own && (left == 0 || handle.is_finished()) {
                // A panicking thread has aborted the process.
                let _ended = handle.join();
            }
        }
        let sinks = std::mem::take(&mut *driver.sinks());
        for sink in sinks.into_values() {
            sink.disconnected();
        }
        left
    }

    /// Waits for all but this one; answers how many are not waited for.
    fn wait(&self, driver: &Driver, limit: Option<Duration>) -> usize {
        let own = self.handles.iter().filter(|handle| handle.thread().id() == thread::current().id()).count();
        let begin = Instant::now();
        let mut free = begin;
        let mut count = self.running.count.lock().unwrap_or_else(PoisonError::into_inner);
        while *count > own {
            if driver.core.try_lock().is_some() {
                free = Instant::now();
            }
            let stuck = usize::from(free.elapsed() > STUCK);
            if *count <= own + stuck || limit.is_some_and(|limit| begin.elapsed() > limit) {
                break;
            }
            let waited = self.running.none.wait_timeout_while(count, LOOK, |count| *count > own);
            count = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        count.saturating_sub(own)
    }
}
