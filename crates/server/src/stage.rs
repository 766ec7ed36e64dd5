//! The lives of ranks that this process carries, one of a rank at a time, and the way of clients and other ranks to them.
//!
//! Absent: which life begins and ends (crate `mds`, the coordinator).

use crate::life::RankLife;
use crate::port::RemoteAcceptor;
use crate::server::Server;
use proto::{Errno, RankId};
use runtime::{Acceptor, Guest, Log, Meant};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The lives that there are.
pub(crate) struct Stage {
    lives: Mutex<BTreeMap<RankId, Arc<RankLife>>>,
    /// Whoever answers operators.
    server: Weak<Server>,
}

impl Stage {
    pub(crate) fn new(server: Weak<Server>) -> Self {
        Self { lives: Mutex::default(), server }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<RankId, Arc<RankLife>>> {
        self.lives.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The life of a rank, in whatever state.
    pub(crate) fn of(&self, rank: RankId) -> Option<Arc<RankLife>> {
        self.lock().get(&rank).cloned()
    }

    /// All of them, by rank.
    pub(crate) fn all(&self) -> Vec<Arc<RankLife>> {
        self.lock().values().cloned().collect()
    }

    pub(crate) fn enter(&self, life: Arc<RankLife>) {
        self.lock().insert(life.identity.rank, life);
    }

    /// It has ended; another one of its rank may be there already.
    pub(crate) fn leave(&self, life: &Arc<RankLife>) {
        let mut lives = self.lock();
        if lives.get(&life.identity.rank).is_some_and(|present| Arc::ptr_eq(present, life)) {
            lives.remove(&life.identity.rank);
        }
    }

    /// Takes a client in where it wants to go. Where nobody serves its connection ends, and it comes again; one with a session is told,
    /// too. Who has none would take that for the last word.
    ///
    /// # Errors
    /// Of starting the loop.
    pub(crate) fn admit(&self, guest: Guest, log: &Arc<Log>) -> io::Result<()> {
        let Meant { rank, is_new } = guest.meant().unwrap_or(Meant { rank: RankId(0), is_new: true });
        match self.serving(rank) {
            Some(life) => self.hand(&life, guest, log),
            None if is_new => Ok(()),
            None => {
                guest.refuse(Errno::ESHUTDOWN, format!("rank {} does not serve now", rank.0));
                Ok(())
            }
        }
    }

    /// A life that takes clients in.
    pub(crate) fn serving(&self, rank: RankId) -> Option<Arc<RankLife>> {
        self.of(rank).filter(|life| life.serves())
    }

    /// Gives a connection to a life.
    ///
    /// # Errors
    /// Of starting the loop.
    pub(crate) fn hand(&self, life: &RankLife, guest: Guest, log: &Arc<Log>) -> io::Result<()> {
        let (server, driver) = (self.server.clone(), Arc::downgrade(&life.driver));
        let acceptor = || -> Arc<dyn Acceptor> { Arc::new(RemoteAcceptor { server, driver }) };
        life.admit(guest, acceptor, log)
    }
}
