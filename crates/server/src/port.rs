//! Connections into a server: the embedded connector, the door for those that come over sockets, and the acceptor of a life. Clients end
//! in a `RankPort`, whose `send` steps the rank on the caller's thread.
//!
//! Absent: sockets (crate `runtime`), the client's side of the protocol.

use crate::driver::Driver;
use crate::server::Server;
use mds::input::{ConnId, Input, Peer};
use proto::admin::Refusal;
use proto::message::{ClientMsg, ServerMsg};
use proto::{Ino, RankId};
use runtime::port::{Connector, Port, PortError, Sink};
use runtime::{Acceptor, Door, Guest, Log, Origin, SocketPeer};
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Instant;

/// Questions of operators that are being answered at a time.
const QUESTIONS_MAX: usize = 64;

/// Connects mounts of this process, and load generators, to a rank.
pub(crate) struct Embedded(pub(crate) Weak<Server>, pub(crate) RankId);

impl Connector for Embedded {
    fn connect(&self, sink: Arc<dyn Sink>) -> Result<Arc<dyn Port>, PortError> {
        let gone = || PortError::Unreachable {
            at: self.describe(),
            source: io::Error::new(ErrorKind::NotConnected, "the server is closed"),
        };
        let server = self.0.upgrade().ok_or_else(gone)?;
        let life = server.stage.serving(self.1).ok_or_else(gone)?;
        open(&self.0, &life.driver, (Peer::Embedded, Ino::NONE), true, sink).ok_or_else(gone)
    }

    /// One process: nothing could be resumed.
    fn ends_with_rank(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        "embedded".to_owned()
    }
}

/// Lets clients in to the life there is, and has operators' questions answered, each on a thread of its own: some wait for a disk or a rank.
pub(crate) struct Porter {
    server: Weak<Server>,
    log: Arc<Log>,
    questions: Arc<AtomicUsize>,
}

impl Porter {
    pub(crate) fn new(server: Weak<Server>, log: Arc<Log>) -> Self {
        Self { server, log, questions: Arc::default() }
    }
}

impl Door for Porter {
    fn admit(&self, guest: Guest) {
        let Some(server) = self.server.upgrade() else { return };
        if let Err(e) = server.stage.admit(guest, &self.log) {
            self.log.error("listen", "no loop for the clients", &[("error", &e)]);
        }
    }

    fn ask(&self, origin: &Origin, id: u64, command: String, answers: Arc<dyn Sink>) {
        let question = Question(self.questions.clone());
        let busy = self.questions.fetch_add(1, Ordering::AcqRel) >= QUESTIONS_MAX;
        let (server, may_change) = (self.server.clone(), may_change(&origin.peer));
        let refuse = |sink: &dyn Sink, why: &str| {
            let answer = crate::admin::refusal(Refusal::State, why).to_string();
            sink.messages(vec![ServerMsg::Admin { id, answer }]);
        };
        if origin.limit != Ino::NONE {
            return answers.messages(vec![ServerMsg::Admin { id, answer: limited() }]);
        }
        if busy {
            return refuse(answers.as_ref(), "too many questions at a time");
        }
        let sink = answers.clone();
        let thread = thread::Builder::new().name("admin".into()).spawn(move || {
            let _counted = question;
            let Some(server) = server.upgrade() else { return sink.disconnected() };
            let answer = server.admin_text(&command, may_change);
            // Not the last to have it when the asker hears: it may be waiting for the end of the server.
            drop(server);
            sink.messages(vec![ServerMsg::Admin { id, answer }]);
        });
        if thread.is_err() {
            refuse(answers.as_ref(), "no thread for the answer");
        }
    }
}

/// One that is being answered.
struct Question(Arc<AtomicUsize>);

impl Drop for Question {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Takes in the clients of one life that arrive on sockets.
pub(crate) struct RemoteAcceptor {
    pub(crate) server: Weak<Server>,
    pub(crate) driver: Weak<Driver>,
}

#[cfg(test)]
impl RemoteAcceptor {
    /// For the life there is.
    pub(crate) fn of(server: &Arc<Server>) -> Self {
        let driver = server.driver().as_ref().map(Arc::downgrade).unwrap_or_default();
        Self { server: Arc::downgrade(server), driver }
    }
}

impl Acceptor for RemoteAcceptor {
    fn accept(&self, origin: Origin, sink: Arc<dyn Sink>) -> Result<Arc<dyn Port>, PortError> {
        let driver = self.driver.upgrade().ok_or(PortError::Lost)?;
        // One thread reads all sockets: waiting there would keep every client's renewals from the rank.
        // The listener bounds what a connection has unanswered. What was answered early or performed (Early, Done) and is not
        // durable is bounded by the client alone: 24 MiB without an answer, 16,384 tids from its floor, which does not pass what it keeps.
        let Origin { peer, limit } = origin;
        let peer = match peer {
            SocketPeer::Trusted => Peer::Trusted,
            SocketPeer::User(cred) => Peer::User(cred),
        };
        open(&self.server, &driver, (peer, limit), false, sink).ok_or(PortError::Lost)
    }
}

/// To an operator's question where all that comes in is limited to a directory.
fn limited() -> String {
    let why = "this address is limited to a directory: nothing is asked of the server here";
    crate::admin::refusal(Refusal::Denied, why).to_string()
}

/// Whoever serves the file system may do with its process what he likes anyway.
fn may_change(peer: &SocketPeer) -> bool {
    match peer {
        SocketPeer::User(cred) => cred.uid == runtime::process::effective_ids().0,
        SocketPeer::Trusted => true,
    }
}

fn open(
    server: &Weak<Server>,
    driver: &Arc<Driver>,
    (peer, limit): (Peer, Ino),
    may_wait: bool,
    sink: Arc<dyn Sink>,
) -> Option<Arc<dyn Port>> {
    let may_change = match &peer {
        Peer::User(cred) => may_change(&SocketPeer::User(cred.clone())),
        Peer::Embedded | Peer::Trusted => true,
    };
    let conn = driver.connect(peer, limit, sink)?;
    Some(Arc::new(RankPort {
        server: server.clone(),
        driver: Arc::downgrade(driver),
        conn,
        limited: limit != Ino::NONE,
        may_change,
        may_wait,
        closed: AtomicBool::new(false),
    }))
}

struct RankPort {
    server: Weak<Server>,
    /// Weak: a connection that nobody closed must not keep a dropped server's stores open.
    driver: Weak<Driver>,
    conn: ConnId,
    /// It came where all is limited to a directory: what operators ask shows more.
    limited: bool,
    /// May give the operator's commands that change something.
    may_change: bool,
    /// Its senders may be blocked while the journal is far behind.
    may_wait: bool,
    closed: AtomicBool,
}

impl Port for RankPort {
    fn send(&self, messages: Vec<ClientMsg>, answers: &mut Vec<ServerMsg>) -> Result<(), PortError> {
        self.hand(messages, None, answers)
    }

    fn send_since(
        &self,
        messages: Vec<ClientMsg>,
        since: Instant,
        answers: &mut Vec<ServerMsg>,
    ) -> Result<(), PortError> {
        self.hand(messages, Some(since), answers)
    }

    fn close(&self) {
        if !self.closed.swap(true, Ordering::AcqRel)
            && let Some(driver) = self.driver.upgrade()
        {
            driver.disconnect(self.conn);
        }
    }
}

impl RankPort {
    fn hand(
        &self,
        mut messages: Vec<ClientMsg>,
        since: Option<Instant>,
        answers: &mut Vec<ServerMsg>,
    ) -> Result<(), PortError> {
        let driver = self.driver.upgrade().ok_or(PortError::Lost)?;
        if self.closed.load(Ordering::Acquire) || driver.is_halted() {
            return Err(PortError::Lost);
        }
        if messages.iter().any(|m| matches!(m, ClientMsg::Admin { .. })) {
            let server = self.server.upgrade().ok_or(PortError::Lost)?;
            messages = self.answer_admin(&server, messages, answers);
        }
        // Only requests make the journal longer; what keeps or ends a session never waits for it.
        if self.may_wait && messages.iter().any(|message| message.asked().is_some()) {
            driver.throttle();
        }
        let conn = self.conn;
        let inputs = messages.into_iter().map(|message| Input::Message { conn, message });
        let before = answers.len();
        driver.drive(inputs, Some(conn), since, answers);
        if driver.is_halted() {
            // Another life may have begun, to which these are no answers.
            answers.truncate(before);
            return Err(PortError::Lost);
        }
        Ok(())
    }

    fn answer_admin(
        &self,
        server: &Arc<Server>,
        messages: Vec<ClientMsg>,
        answers: &mut Vec<ServerMsg>,
    ) -> Vec<ClientMsg> {
        let mut rest = Vec::with_capacity(messages.len());
        for message in messages {
            if let ClientMsg::Admin { id, command } = message {
                let answer = match self.limited {
                    true => limited(),
                    false => server.admin_text(&command, self.may_change),
                };
                answers.push(ServerMsg::Admin { id, answer });
            } else {
                rest.push(message);
            }
        }
        rest
    }
}

impl Drop for RankPort {
    fn drop(&mut self) {
        self.close();
    }
}
