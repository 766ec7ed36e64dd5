//! A journal that is far behind: who waits for it, and who must not.

use super::told_journal::{ToldJournal, serve_on};
use super::*;
use crate::port::RemoteAcceptor;
use runtime::port::Port;
use runtime::{Acceptor, Origin, SocketPeer};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::Duration;

/// Long enough for a loaded machine; only a failing test takes it.
const LIMIT: Duration = Duration::from_secs(20);
/// Anybody, for anything.
const ROOTS: Origin = Origin { peer: SocketPeer::Trusted, limit: Ino::NONE };
/// Two of these are more than may be pending.
const BIG: usize = 40 << 20;

struct Slow {
    server: Arc<Server>,
    entered: Receiver<()>,
    go: Sender<()>,
}

fn slow() -> Slow {
    let ((entered_in, entered), (go, go_out)) = (channel(), channel());
    let first_append = Mutex::new(Some((entered_in, go_out)));
    let server = serve_on(ToldJournal { first_append, ..ToldJournal::default() });
    Slow { server, entered, go }
}

impl Slow {
    /// A journal thread is in the first append, and far too much is pending.
    fn fall_behind(&self, port: &Arc<dyn Port>) {
        send(port, big(2));
        self.entered.recv_timeout(LIMIT).expect("the first append");
        send(port, big(4));
        assert!(self.server.driver().expect("a life").journal_pending() > 64 << 20);
    }
}

/// An entry of `BIG` bytes.
fn big(tid: u64) -> ClientMsg {
    let request = Request::Fallocate { node: NodeRef::bare(Ino::ROOT), mode: 0, offset: 0, len: BIG as u64 };
    message(tid, request)
}

fn send(port: &Arc<dyn Port>, message: ClientMsg) {
    port.send(vec![message], &mut Vec::new()).expect("send");
}

/// Sends on a thread of its own; hears when that has returned.
fn send_aside(port: &Arc<dyn Port>, message: ClientMsg) -> Receiver<()> {
    let (tx, rx) = channel();
    let port = port.clone();
    std::thread::spawn(move || {
        // The server may be gone by then.
        let _sent_or_lost = port.send(vec![message], &mut Vec::new());
        let _nobody_listens = tx.send(());
    });
    rx
}

/// Sends a request from its sink when it is first answered, as a client's queue does.
struct Pump {
    port: OnceLock<Arc<dyn Port>>,
    sent: Sender<Tid>,
}

impl Sink for Pump {
    fn messages(&self, batch: Vec<ServerMsg>) {
        for message in batch {
            let ServerMsg::Reply { tid, .. } = message else { continue };
            if tid == Tid(2) {
                let port = self.port.get().expect("connected");
                // A test that failed has dropped the server and listens no more; a panic here would end the process.
                let _sent_or_lost = port.send(vec![big(6)], &mut Vec::new());
            }
            let _nobody_listens = self.sent.send(tid);
        }
    }

    fn disconnected(&self) {}
}

/// A journal thread delivered an answer, the client's queue sent the next request from there, and the thread waited
/// for room that only it makes: the file system hung for good.
#[test]
fn the_journal_thread_never_waits_for_itself() {
    let slow = slow();
    let (sent, answered) = channel();
    let pump = Arc::new(Pump { port: OnceLock::new(), sent });
    let port = slow.server.embedded().connect(pump.clone()).expect("connect");
    pump.port.get_or_init(|| port.clone());
    slow.fall_behind(&port);
    // A third group, so that too much is pending still when the first is answered.
    let third = RemoteAcceptor::of(&slow.server);
    let third = third.accept(ROOTS, Arc::new(Mailbox::default())).expect("accept");
    let third = send_aside(&third, big(8));
    third.recv_timeout(LIMIT).expect("a socket's thread never waits");
    slow.go.send(()).expect("the journal waits");
    let seen: std::collections::BTreeSet<Tid> =
        (0..3).map(|_| answered.recv_timeout(LIMIT).expect("answered")).collect();
    assert_eq!(seen, [Tid(2), Tid(4), Tid(6)].into());
}

#[test]
fn requests_of_this_process_wait_and_nothing_else_does() {
    let slow = slow();
    let port = slow.server.embedded().connect(Arc::new(Mailbox::default())).expect("connect");
    slow.fall_behind(&port);
    for message in [ClientMsg::Renew { number: 1 }, ClientMsg::Reclaimed, ClientMsg::Goodbye] {
        send_aside(&port, message).recv_timeout(LIMIT).expect("does not wait");
    }
    let remote = RemoteAcceptor::of(&slow.server);
    let remote = remote.accept(ROOTS, Arc::new(Mailbox::default())).expect("accept");
    for message in [message(1_000, Request::SyncFs), ClientMsg::Renew { number: 1 }] {
        send_aside(&remote, message).recv_timeout(LIMIT).expect("a socket's thread never waits");
    }
    let waits = send_aside(&port, message(2_000, Request::SyncFs));
    while slow.server.driver().expect("a life").journal.waiting() == 0 {
        assert_eq!(waits.try_recv(), Err(TryRecvError::Empty), "it does not wait");
        std::thread::yield_now();
    }
    slow.go.send(()).expect("the journal waits");
    waits.recv_timeout(LIMIT).expect("there is room again");
}
