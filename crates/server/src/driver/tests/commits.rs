//! Two groups of the journal at a time.

use super::told_journal::{ToldJournal, ToldSyncs, serve_on};
use super::*;
use runtime::port::Port;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Long enough for a loaded machine; only a failing test takes it.
const LIMIT: Duration = Duration::from_secs(20);

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
            appended: Some(tell_appended),
            syncs: Some(Mutex::new(ToldSyncs { begun: tell_syncing, ends: told })),
            ..ToldJournal::default()
        };
        let server = serve_on(journal);
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

/// Behind a gap nothing could be replayed.
#[test]
fn an_append_behind_a_gap_fails_the_journal() {
    let told = Told::new();
    told.change(1);
    assert_eq!(told.syncing.recv_timeout(LIMIT), Ok(ENTRY as u64));
    told.change(2);
    assert_eq!(told.appended.recv_timeout(LIMIT), Ok(ENTRY as u64));
    assert_eq!(told.appended.recv_timeout(LIMIT), Ok(2 * ENTRY as u64));
    // Both threads are busy: these two are one group.
    told.change(3);
    told.server.driver().expect("a life").journal.append(stdx::Mono(0), Position(1 << 40), &[0; 8]);
    told.ends.send(Ok(())).expect("it waits");
    told.ends.send(Ok(())).expect("it waits");
    drop(told.mailbox.wait(|seen| !seen.others.is_empty()));
    assert!(told.answered() <= 2, "the third is not durable");
    told.server.stop().expect("stop");
}
