//! A server: the lives of its ranks, one after the other, and what stays over all of them: listeners, metrics, operators' commands.
//!
//! Absent: the folder's layout (crate `store`); who carries which rank (crate `mds`, `coordinator`).

use crate::backup::Task;
use crate::cluster::{Cluster, Setup};
#[cfg(test)]
use crate::driver::Driver;
use crate::driver::Life;
use crate::life::{Identity, RankLife};
use crate::parts::Parts;
use crate::perf::Baseline;
use crate::port::{Embedded, Porter};
use crate::stage::Stage;
use mds::input::Input;
use proto::storeio::{IoError, StoreError};
use proto::{Incarnation, Ino, RankId};
use runtime::http::Page;
use runtime::port::Connector;
use runtime::{Addr, Clock, Config, ListenError, Listener, Log};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;
use store::folder::{Folder, FolderError};
use store::meta_lmdb::LmdbMeta;
use store::registry::Registry;
use thiserror::Error;

/// How a server is opened.
#[derive(Clone)]
pub struct ServerOptions {
    pub config: Config,
    /// What of the configuration is about the log was for whoever opened this.
    pub log: Arc<Log>,
    /// Permits TCP without TLS.
    pub insecure: bool,
    /// Slots for ranks, 1 to 64, that take over from each other. `None`: this is the process of a mount, whose rank lives and dies with it.
    pub ranks: Option<u16>,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self { config: Config::default(), log: Arc::new(Log::silent()), insecure: false, ranks: None }
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
    /// A mount's own process carries one rank.
    #[error("its file system has {0} ranks, and the process of a mount carries one")]
    SeveralRanks(u16),
    /// No rank may begin a life before an operator says so.
    #[error("the file system was failed by an operator and is not joinable")]
    Closed,
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
}

impl ServerError {
    /// The machine had no room, descriptor or thread to give: what was asked for may be asked for again, and nothing is damaged.
    pub(crate) fn passes(&self) -> bool {
        self.lacks_room()
            || match self {
                Self::Store(error) | Self::Folder(FolderError::Store(error)) => error.finds_no_descriptor(),
                Self::Folder(FolderError::Io { source, .. }) | Self::Io { source, .. } => {
                    source.kind() == io::ErrorKind::WouldBlock
                        || source.raw_os_error().is_some_and(|errno| IoError(errno).is_no_descriptor())
                }
                Self::Folder(_) | Self::Damaged(_) | Self::SeveralRanks(_) | Self::Closed => false,
            }
    }

    /// The disk, or a quota on it, is full.
    pub(crate) fn lacks_room(&self) -> bool {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        match self {
            Self::Store(error) | Self::Folder(FolderError::Store(error)) => *error == StoreError::NoSpace,
            Self::Folder(FolderError::Io { source, .. }) | Self::Io { source, .. } => {
                matches!(source.kind(), StorageFull | QuotaExceeded)
            }
            Self::Folder(_) | Self::Damaged(_) | Self::SeveralRanks(_) | Self::Closed => false,
        }
    }
}

/// A running server.
pub struct Server {
    pub(crate) stage: Arc<Stage>,
    /// `None`: stores that were handed over (`with_parts`) have one life only.
    pub(crate) cluster: OnceLock<Cluster>,
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
    pub(crate) opened: Option<Arc<Opened>>,
}

/// What a server over a data folder keeps beside its driver.
pub(crate) struct Opened {
    pub(crate) meta: Arc<LmdbMeta>,
    pub(crate) registry: Arc<dyn Registry>,
    pub(crate) folder: Folder,
}

impl Server {
    /// Boots a rank over these stores, for one life; returns when it serves. `place` names it in log lines.
    ///
    /// # Errors
    /// `Damaged` with what the rank found, `Io` when threads cannot be started.
    pub fn with_parts(
        parts: Parts,
        place: &str,
        options: &ServerOptions,
        log: Arc<Log>,
    ) -> Result<Arc<Self>, ServerError> {
        let identity = Identity { rank: RankId(0), incarnation: Incarnation(0), name: String::new() };
        let around = (log.clone(), place.to_owned(), options.config.mds_warmup_on_start, Clock::new());
        let life = RankLife::begin(parts, identity, None, around, None)
            .map_err(|source| ServerError::Io { what: "threads".into(), source })?;
        let server = Self::new(place, options.insecure, log, None);
        server.stage.enter(life.clone());
        server.serves(&life)?;
        Ok(server)
    }

    /// Boots a rank over a folder; returns when it serves, or when nobody may begin a life.
    pub(crate) fn with_cluster(
        setup: Setup,
        place: &str,
        options: &ServerOptions,
        opened: Arc<Opened>,
    ) -> Result<Arc<Self>, ServerError> {
        let of_mount = setup.slots.is_none();
        let server = Self::new(place, options.insecure, options.log.clone(), Some(opened));
        let cluster = Cluster::start(setup, server.stage.clone(), server.log.clone())
            .map_err(|source| ServerError::Io { what: "threads".into(), source })?;
        match server.cluster.get_or_init(|| cluster).first_life()? {
            Some(life) => server.serves(&life)?,
            None if of_mount => return Err(ServerError::Closed),
            None => server.log.warn("server", "no rank may begin: the file system is not joinable", &[]),
        }
        Ok(server)
    }

    fn new(place: &str, insecure: bool, log: Arc<Log>, opened: Option<Arc<Opened>>) -> Arc<Self> {
        Arc::new_cyclic(|server| Self {
            stage: Arc::new(Stage::new(server.clone())),
            cluster: OnceLock::new(),
            listeners: Mutex::default(),
            page: Mutex::default(),
            baseline: Baseline::default(),
            insecure,
            log,
            place: place.to_owned(),
            started: Instant::now(),
            backup: Task::default(),
            ends_with_last_client: AtomicBool::new(false),
            opened,
        })
    }

    /// Waits for the first life to serve.
    fn serves(&self, life: &RankLife) -> Result<(), ServerError> {
        match life.driver.life.wait(|life| *life != Life::Booting) {
            Life::Active | Life::Booting => {}
            Life::Damaged(reason) => return Err(ServerError::Damaged(reason)),
            Life::Stopped => {
                return Err(ServerError::Damaged("the rank stopped while it booted".into()));
            }
        }
        let boot_ms = self.started.elapsed().as_millis();
        self.log.info("server", "active", &[("place", &self.place), ("boot_ms", &boot_ms)]);
        Ok(())
    }

    /// The driver of rank 0's life.
    #[cfg(test)]
    pub(crate) fn driver(&self) -> Option<Arc<Driver>> {
        self.stage.of(RankId(0)).map(|life| life.driver.clone())
    }

    /// Connects mounts of this process.
    #[must_use]
    pub fn embedded(self: &Arc<Self>) -> Arc<dyn Connector> {
        self.embedded_at(RankId(0))
    }

    /// Connects to a rank as its own process: for load generators, which know whose is what.
    #[must_use]
    pub fn embedded_at(self: &Arc<Self>, rank: RankId) -> Arc<dyn Connector> {
        Arc::new(Embedded(Arc::downgrade(self), rank))
    }

    /// Listens on these addresses too; returns where it really listens.
    ///
    /// # Errors
    /// `ListenError`: TCP without `insecure`, an address in use.
    pub fn listen(self: &Arc<Self>, addrs: &[Addr]) -> Result<Vec<Addr>, ListenError> {
        self.listen_limited(addrs, Ino::NONE)
    }

    /// The same, where all that comes in is limited to a directory; `Ino::NONE`: it is not.
    ///
    /// # Errors
    /// As `listen`.
    pub fn listen_limited(self: &Arc<Self>, addrs: &[Addr], limit: Ino) -> Result<Vec<Addr>, ListenError> {
        let door = Arc::new(Porter::new(Arc::downgrade(self), self.log.clone()));
        let listener = Listener::start(addrs, self.insecure, limit, door, self.log.clone())?;
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
        if let Some(cluster) = self.cluster.get() {
            // First: the end of the rank is no failure to it.
            cluster.stop();
        }
        let mut lives = self.stage.all();
        lives.retain(|life| !life.driver.is_halted());
        if lives.is_empty() {
            return Ok(());
        }
        for life in &lives {
            life.close();
        }
        let mut ended = Ok(());
        // All of them begin before one is waited for: their checkpoints run at the same time.
        lives.retain(|life| {
            let answers = life.driver.state().is_some();
            if answers {
                life.driver.feed([Input::Stop]);
            } else {
                let rank = life.identity.rank.0;
                let what = format!("rank {rank} hangs: its last checkpoint is not written");
                ended = Err(ServerError::Damaged(what));
                life.end_with_process();
            }
            answers
        });
        for life in &lives {
            let end = life.driver.life.wait(|life| matches!(life, Life::Stopped | Life::Damaged(_)));
            life.end_with_process();
            if let Life::Damaged(reason) = end {
                ended = Err(ServerError::Damaged(reason));
            }
        }
        ended?;
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
}

impl Drop for Server {
    /// Without `stop` this is a crash: nothing more is written, the next start replays the journal.
    fn drop(&mut self) {
        self.close_doors();
        if let Some(cluster) = self.cluster.get() {
            cluster.stop();
        }
        for life in self.stage.all() {
            life.end_with_process();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_machine_had_none_of_may_be_asked_for_again() {
        const EIO: i32 = 5;
        const EAGAIN: i32 = 11;
        const EMFILE: i32 = 24;
        const ENOSPC: i32 = 28;
        const EDQUOT: i32 = 122;
        let io =
            |errno| ServerError::Io { what: "threads".into(), source: io::Error::from_raw_os_error(errno) };
        let folder = |errno| {
            ServerError::Folder(FolderError::Io {
                path: "fs".into(),
                source: io::Error::from_raw_os_error(errno),
            })
        };
        let store =
            |errno| ServerError::Store(StoreError::Io { at: "journal".into(), source: IoError(errno) });
        for errno in [EAGAIN, EMFILE, ENOSPC, EDQUOT] {
            assert!(io(errno).passes() && folder(errno).passes(), "{errno}");
            assert_eq!(io(errno).lacks_room(), matches!(errno, ENOSPC | EDQUOT), "{errno}");
        }
        assert!(store(EMFILE).passes() && ServerError::Store(StoreError::NoSpace).lacks_room());
        assert!(!io(EIO).passes() && !folder(EIO).passes() && !store(EIO).passes());
        assert!(!ServerError::Damaged("its journal".into()).passes());
    }
}
