//! A journal that says what it is asked for and, where a test wants it so, ends its calls when it is told.
//!
//! Absent: bytes; nothing is kept of what is appended but its length.

use super::*;
use std::sync::mpsc::{Receiver, Sender};

/// By default each call ends at once.
#[derive(Default)]
pub(super) struct ToldJournal {
    pub(super) written: Mutex<u64>,
    /// Told how far was written, at the end of each append.
    pub(super) appended: Option<Sender<u64>>,
    /// Told when the first append begins, which ends when the other is told something or is gone.
    pub(super) first_append: Mutex<Option<(Sender<()>, Receiver<()>)>>,
    /// Told how far each sync goes, which ends as it is told.
    pub(super) syncs: Option<Mutex<ToldSyncs>>,
}

pub(super) struct ToldSyncs {
    pub(super) begun: Sender<u64>,
    pub(super) ends: Receiver<Result<(), StoreError>>,
}

impl JournalIo for ToldJournal {
    fn read(&self, _: Position, _: &mut dyn FnMut(Position, &[u8])) -> Result<Position, StoreError> {
        Ok(Position(0))
    }

    fn append(&self, position: Position, entries: &[u8]) -> Result<(), StoreError> {
        let first = self.first_append.lock().expect("lock").take();
        if let Some((begun, end)) = first {
            begun.send(()).expect("the test runs");
            // A test that failed is not waited for.
            let _told_or_over = end.recv();
        }
        let mut written = self.written.lock().expect("lock");
        assert_eq!(position.0, *written, "one after the other");
        *written += entries.len() as u64;
        if let Some(appended) = &self.appended {
            // A test that is over listens no more.
            let _listens = appended.send(*written);
        }
        Ok(())
    }

    fn sync(&self) -> Result<Position, StoreError> {
        let Some(syncs) = &self.syncs else { return Ok(Position(*self.written.lock().expect("lock"))) };
        let syncs = syncs.lock().expect("lock");
        let end = *self.written.lock().expect("lock");
        let _listens = syncs.begun.send(end);
        syncs.ends.recv().unwrap_or(Ok(())).map(|()| Position(end))
    }

    fn trim(&self, _: Position) -> Result<(), StoreError> {
        Ok(())
    }

    fn prepare(&self) -> Result<bool, StoreError> {
        Ok(false)
    }

    fn bytes(&self) -> u64 {
        0
    }

    fn former(&self) -> Incarnation {
        Incarnation(0)
    }
}

/// A server of a toy rank on that journal.
pub(super) fn serve_on(journal: ToldJournal) -> Arc<Server> {
    let parts = Parts {
        rank: Box::new(Toy::default()),
        journal: Arc::new(journal),
        meta: Arc::new(EmptyMeta),
        data: Arc::new(ToyData::default()),
        ballast: None,
    };
    Server::with_parts(parts, "toy", &ServerOptions::default(), Arc::new(Log::silent())).expect("boot")
}
