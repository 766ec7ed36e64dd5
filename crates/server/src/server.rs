//! A server: one rank, its driver, its listeners.
//!
//! Absent: the folder's layout (crate `store`), several ranks.

use crate::backup::Task;
use crate::driver::{Driver, Life, Threads};
use crate::parts::Parts;
use crate::perf::Baseline;
use crate::port::{Embedded, RemoteAcceptor};
use mds::input::Input;
use proto::Ino;
use proto::storeio::StoreError;
use runtime::http::Page;
use runtime::port::Connector;
use runtime::{Addr, Config, ListenError, Listener, Log};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use store::folder::{Folder, FolderError};
use store::meta_lmdb::LmdbMeta;
use thiserror::Error;

/// How a server is opened.
#[derive(Clone)]
pub struct ServerOptions {
    pub config: Config,
    /// What of the configuration is about the log was for whoever opened this.
    pub log: Arc<Log>,
    /// Permits TCP without TLS.
    pub insecure: bool,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self { config: Config::default(), log: Arc::new(Log::silent()), insecure: false }
    }
}

/// Why a server does not serve.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServerError {
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("damaged: {0}")]
    Damaged(String),
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
}

/// A running server.
pub struct Server {
    pub(crate) driver: Arc<Driver>,
    threads: Mutex<Threads>,
    listeners: Mutex<Vec<Listener>>,
    /// The metrics page.
    pub(crate) page: Mutex<Option<Page>>,
    pub(crate) baseline: Baseline,
    insecure: bool,
    pub(crate) log: Arc<Log>,
    pub(crate) place: String,
    pub(crate) started: Instant,
    pub(crate) backup: Task,
    pub(crate) ends_with_last_client: AtomicBool,
    /// The locked folder: the last to go, so that nobody opens it while a store is still open.
    pub(crate) opened: Option<Opened>,
}

/// What a server over a data folder keeps beside its driver.
pub(crate) struct Opened {
    pub(crate) meta: Arc<LmdbMeta>,
    pub(crate) folder: Folder,
}

impl Server {
    /// Boots a rank over these stores; returns when it serves. `place` names it in log lines.
    ///
    /// # Errors
    /// `Damaged` with what the rank found, `Io` when threads cannot be started.
    pub fn with_parts(
        parts: Parts,
        place: &str,
        options: &ServerOptions,
        log: Arc<Log>,
    ) -> Result<Arc<Self>, ServerError> {
        Self::start(parts, place, options, log, None)
    }

    pub(crate) fn start(
        parts: Parts,
        place: &str,
        options: &ServerOptions,
        log: Arc<Log>,
        opened: Option<Opened>,
    ) -> Result<Arc<Self>, ServerError> {
        let started = Instant::now();
        let (driver, mut threads) = Driver::start(parts, log.clone(), place.to_owned())
            .map_err(|source| ServerError::Io { what: "threads".into(), source })?;
        driver.feed([Input::Boot]);
        match driver.life.wait(|life| *life != Life::Booting) {
            Life::Active | Life::Booting => {}
            Life::Damaged(reason) => {
                threads.end(&driver);
                return Err(ServerError::Damaged(reason));
            }
            Life::Stopped => {
                threads.end(&driver);
                return Err(ServerError::Damaged("the rank stopped while it booted".into()));
            }
        }
        if options.config.mds_warmup_on_start {
            driver.feed([Input::Warmup { dir: Some(Ino::ROOT) }]);
        }
        log.info("server", "active", &[("place", &place), ("boot_ms", &started.elapsed().as_millis())]);
        Ok(Arc::new(Self {
            driver,
            threads: Mutex::new(threads),
            listeners: Mutex::default(),
            page: Mutex::default(),
            baseline: Baseline::default(),
            insecure: options.insecure,
            log,
            place: place.to_owned(),
            started,
            backup: Task::default(),
            ends_with_last_client: AtomicBool::new(false),
            opened,
        }))
    }

    /// Connects mounts of this process.
    #[must_use]
    pub fn embedded(self: &Arc<Self>) -> Arc<dyn Connector> {
        Arc::new(Embedded(Arc::downgrade(self)))
    }

    /// Listens on these addresses too; returns where it really listens.
    ///
    /// # Errors
    /// `ListenError`: TCP without `insecure`, an address in use.
    pub fn listen(self: &Arc<Self>, addrs: &[Addr]) -> Result<Vec<Addr>, ListenError> {
        let acceptor = Arc::new(RemoteAcceptor(Arc::downgrade(self)));
        let listener = Listener::start(addrs, self.insecure, acceptor, self.log.clone())?;
        let bound = listener.addrs().to_vec();
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner).push(listener);
        Ok(bound)
    }

    /// Answers an operator's command, a JSON object with the field `cmd`.
    #[must_use]
    pub fn admin(self: &Arc<Self>, command: &serde_json::Value) -> serde_json::Value {
        crate::admin::answer(self, command, true)
    }

    pub(crate) fn admin_text(self: &Arc<Self>, command: &str, may_change: bool) -> String {
        match serde_json::from_str(command) {
            Ok(command) => crate::admin::answer(self, &command, may_change),
            Err(e) => crate::admin::refusal(proto::admin::Refusal::Usage, &format!("no JSON: {e}")),
        }
        .to_string()
    }

    /// Its owner stops it when nobody uses it any more; `status` tells, so that who leaves last can wait for it.
    pub fn end_with_last_client(&self) {
        self.ends_with_last_client.store(true, Ordering::Release);
    }

    /// Takes no more clients, writes a last checkpoint, closes. A second call does nothing.
    ///
    /// # Errors
    /// `Damaged` when the last checkpoint could not be written: what was acknowledged is in the
    /// journal and replayed by the next start.
    pub fn stop(&self) -> Result<(), ServerError> {
        // Before the listener closes: who finds it closed reads why, and waits.
        if let Some(Err(e)) = self.opened.as_ref().map(|opened| opened.folder.mark_ending()) {
            self.log.warn("server", "the lock does not say that it ends", &[("error", &e)]);
        }
        self.close_doors();
        if self.driver.is_halted() {
            return Ok(());
        }
        self.driver.feed([Input::Stop]);
        let end = self.driver.life.wait(|life| matches!(life, Life::Stopped | Life::Damaged(_)));
        self.end();
        if let Life::Damaged(reason) = end {
            return Err(ServerError::Damaged(reason));
        }
        self.log.info("server", "stopped", &[("place", &self.place)]);
        Ok(())
    }

    fn close_doors(&self) {
        let listeners = std::mem::take(&mut *self.listeners.lock().unwrap_or_else(PoisonError::into_inner));
        for listener in listeners {
            listener.stop();
        }
        // Taken out first: whoever is being answered may look at this server.
        let page = self.page.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(page);
    }

    fn end(&self) {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).end(&self.driver);
    }
}

impl Drop for Server {
    /// Without `stop` this is a crash: nothing more is written, the next start replays the journal.
    fn drop(&mut self) {
        self.close_doors();
        self.end();
    }
}
