//! Connections into a server: the embedded connector, and the acceptor of sockets. Both end in a
//! `RankPort`, whose `send` steps the rank on the caller's thread.
//!
//! Absent: sockets (crate `runtime`), the client's side of the protocol.

use crate::server::Server;
use mds::input::{ConnId, Input, Peer};
use proto::message::{ClientMsg, ServerMsg};
use runtime::port::{Connector, Port, PortError, Sink};
use runtime::{Acceptor, SocketPeer};
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

/// Connects mounts of this process.
pub(crate) struct Embedded(pub(crate) Weak<Server>);

impl Connector for Embedded {
    fn connect(&self, sink: Arc<dyn Sink>) -> Result<Arc<dyn Port>, PortError> {
        let gone = || PortError::Unreachable {
            at: self.describe(),
            source: io::Error::new(ErrorKind::NotConnected, "the server is closed"),
        };
        let server = self.0.upgrade().ok_or_else(gone)?;
        open(&server, Peer::Embedded, true, sink).ok_or_else(gone)
    }

    /// One process: nothing could be resumed.
    fn ends_with_rank(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        "embedded".to_owned()
    }
}

/// Takes in what arrives on sockets.
pub(crate) struct RemoteAcceptor(pub(crate) Weak<Server>);

impl Acceptor for RemoteAcceptor {
    fn accept(&self, peer: SocketPeer, sink: Arc<dyn Sink>) -> Result<Arc<dyn Port>, PortError> {
        let peer = match peer {
            SocketPeer::Trusted => Peer::Trusted,
            SocketPeer::User(cred) => Peer::User(cred),
        };
        let server = self.0.upgrade().ok_or(PortError::Lost)?;
        // One thread reads all sockets: waiting there would keep every client's renewals from the rank.
        // The listener bounds what a connection has unanswered. What was answered early or performed (Early, Done) and is not
        // durable is bounded by the client alone: 24 MiB without an answer, 16,384 tids from its floor, which does not pass what it keeps.
        open(&server, peer, false, sink).ok_or(PortError::Lost)
    }
}

fn open(server: &Arc<Server>, peer: Peer, may_wait: bool, sink: Arc<dyn Sink>) -> Option<Arc<dyn Port>> {
    // Whoever serves the file system may do with its process what he likes anyway.
    let may_change = match &peer {
        Peer::User(cred) => cred.uid == runtime::process::effective_ids().0,
        Peer::Embedded | Peer::Trusted => true,
    };
    let conn = server.driver.connect(peer, sink)?;
    Some(Arc::new(RankPort {
        server: Arc::downgrade(server),
        conn,
        may_change,
        may_wait,
        closed: AtomicBool::new(false),
    }))
}

struct RankPort {
    /// Weak: a connection that nobody closed must not keep a dropped server's folder locked.
    server: Weak<Server>,
    conn: ConnId,
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
            && let Some(server) = self.server.upgrade()
        {
            server.driver.disconnect(self.conn);
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
        let server = self.server.upgrade().ok_or(PortError::Lost)?;
        if self.closed.load(Ordering::Acquire) || server.driver.is_halted() {
            return Err(PortError::Lost);
        }
        if messages.iter().any(|m| matches!(m, ClientMsg::Admin { .. })) {
            messages = self.answer_admin(&server, messages, answers);
        }
        // Only requests make the journal longer; what keeps or ends a session never waits for it.
        if self.may_wait && messages.iter().any(|message| message.asked().is_some()) {
            server.driver.throttle();
        }
        let conn = self.conn;
        let inputs = messages.into_iter().map(|message| Input::Message { conn, message });
        server.driver.drive(inputs, Some(conn), since, answers);
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
                let answer = server.admin_text(&command, self.may_change);
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
