//! Two groups of the journal at a time.

use super::*;
use runtime::port::Port;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Long enough for a loaded machine; only a failing test takes it.
const LIMIT: Duration = Duration::from_secs(20);

/// Says what is written and what is about to be synced, and lets each sync end as it is told.
struct ToldJournal {
    written: Mutex<u64>,
    appended: Sender<u64>,
    syncing: Sender<u64>,
    ends: Mutex<Receiver<Result<(), StoreError>>>,
}

impl JournalIo for ToldJournal {
    fn read(&self, _: Position, _: &mut dyn FnMut(Position, &[u8])) -> Result<Position, StoreError> {
        Ok(Position(0))
    }

    fn append(&self, position: Position, entries: &[u8]) -> Result<(), StoreError> {
        let mut written = self.written.lock().expect("lock");
        assert_eq!(position.0, *written, "one after the other");
        *written += entries.len() as u64;
        // A test that is over listens no more.
        let _listens = self.appended.send(*written);
        Ok(())
    }

    fn sync(&self) -> Result<Position, StoreError> {
        let ends = self.ends.lock().expect("lock");
        let end = *self.written.lock().expect("lock");
        let _listens = self.syncing.send(end);
        ends.recv().unwrap_or(Ok(())).map(|()| Position(end))
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
}

struct Told {
    server: Arc<Server>,
    port: Arc<dyn Port>,
    mailbox: Arc<Mailbox>,
    appended: Receiver<u64>,
    syncing: Receiver<u64>,
    ends: Sender<Result<(), StoreError>>,
}

impl Told {
    fn new() -> Self {
        let ((tell_appended, appended), (tell_syncing, syncing), (ends, told)) =
            (channel(), channel(), channel());
        let journal = ToldJournal {
            written: Mutex::new(0),
            appended: tell_appended,
            syncing: tell_syncing,
            ends: Mutex::new(told),
        };
        let parts = Parts {
            rank: Box::new(Toy::default()),
            journal: Arc::new(journal),
            meta: Arc::new(EmptyMeta),
            data: Arc::new(ToyData::default()),
            ballast: None,
        };
        let server = Server::with_parts(parts, "toy", &ServerOptions::default(), Arc::new(Log::silent()));
        let server = server.expect("boot");
        let mailbox = Arc::new(Mailbox::default());
        let port = server.embedded().connect(mailbox.clone()).expect("connect");
        Self { server, port, mailbox, appended, syncing, ends }
    }

    /// A change that waits for its commit.
    fn change(&self, tid: u64) {
        let name = proto::Name::new(b"n").expect("name");
        let request = Request::Lookup { parent: NodeRef::bare(Ino::ROOT), name };
        self.port.send(vec![message(tid, request)], &mut Vec::new()).expect("send");
    }

    fn answered(&self) -> usize {
        self.mailbox.seen.lock().expect("lock").replies.len()
    }
}

#[test]
fn while_a_group_is_synced_the_next_is_written() {
    let told = Told::new();
    told.change(1);
    assert_eq!(told.syncing.recv_timeout(LIMIT), Ok(ENTRY as u64));
    told.change(2);
    assert_eq!(told.appended.recv_timeout(LIMIT), Ok(ENTRY as u64));
    assert_eq!(told.appended.recv_timeout(LIMIT), Ok(2 * ENTRY as u64), "although the first is not durable");
    assert_eq!(told.answered(), 0);
    told.ends.send(Ok(())).expect("it waits");
    assert_eq!(told.mailbox.wait(|seen| !seen.replies.is_empty()).replies.len(), 1, "and not the second");
    told.ends.send(Ok(())).expect("it waits");
    drop(told.mailbox.wait(|seen| seen.replies.len() == 2));
}

#[test]
fn after_a_failure_no_group_is_durable_and_the_rank_hears_of_it_once() {
    let told = Told::new();
    told.change(1);
    assert_eq!(told.syncing.recv_timeout(LIMIT), Ok(ENTRY as u64));
    told.change(2);
    told.change(3);
    assert!(told.appended.recv_timeout(LIMIT).is_ok() && told.appended.recv_timeout(LIMIT).is_ok());
    told.ends.send(Err(StoreError::Poisoned)).expect("it waits");
    told.ends.send(Err(StoreError::Poisoned)).expect("it waits");
    drop(told.mailbox.wait(|seen| !seen.others.is_empty()));
    told.change(4);
    told.server.stop().expect("stop");
    assert_eq!((told.answered(), told.mailbox.seen.lock().expect("lock").others.len()), (0, 1));
}
