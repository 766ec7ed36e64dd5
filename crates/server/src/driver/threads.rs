//! Starting and ending the driver's threads.
//!
//! Absent: what they do.

use super::{Driver, background, data, journal, life, loads, stores, timer};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};

/// Stack of a worker: LMDB cursors, a step of the rank, a sink; no recursion.
const SMALL_STACK: usize = 1 << 20;

/// The running threads.
pub(crate) struct Threads {
    handles: Vec<JoinHandle<()>>,
}

impl Threads {
    pub(super) fn start(driver: &Arc<Driver>) -> std::io::Result<Self> {
        let mut threads = Self { handles: Vec::new() };
        let started = threads.start_all(driver);
        if started.is_err() {
            threads.end(driver);
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
        self.spawn(driver, "background".into(), background::run)?;
        self.spawn(driver, "data-background".into(), background::run_data)
    }

    fn spawn(
        &mut self,
        driver: &Arc<Driver>,
        name: String,
        run: impl FnOnce(&Driver) + Send + 'static,
    ) -> std::io::Result<()> {
        let driver = driver.clone();
        let handle = thread::Builder::new().name(name).stack_size(SMALL_STACK).spawn(move || {
            let _guard = life::AbortOnPanic { log: &driver.log };
            run(&driver);
        })?;
        self.handles.push(handle);
        Ok(())
    }

    /// Takes no more inputs, tells every connection, ends all threads. What was not committed is
    /// lost, as if the process had been killed; after `Stopped` there is nothing such.
    pub(crate) fn end(&mut self, driver: &Driver) {
        driver.halted.store(true, Ordering::Release);
        driver.journal.stop();
        driver.loads.stop();
        driver.stores.stop();
        driver.data.stop();
        driver.timer.stop();
        driver.background.stop();
        driver.data_background.stop();
        for handle in self.handles.drain(..) {
            // The last user of a server may be one of its own threads, in a sink.
            if handle.thread().id() != thread::current().id() {
                // A panicking thread has aborted the process.
                let _ended = handle.join();
            }
        }
        let sinks = driver.core().conns.sinks();
        for sink in sinks {
            sink.disconnected();
        }
    }
}
