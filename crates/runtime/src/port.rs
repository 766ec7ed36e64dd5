//! The seam between a client's driver and a rank's: a function call in one process, a socket across
//! processes. Clients cannot tell which.
//!
//! Absent: encoding (the socket port does it), retries (the client machine does them).

use proto::message::{ClientMsg, ServerMsg};
use std::sync::Arc;
use std::time::Instant;
use thiserror::Error;

/// Why a rank cannot be reached.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PortError {
    #[error("no server at {at}")]
    Unreachable { at: String, source: std::io::Error },
    #[error("connection lost")]
    Lost,
}

/// One open connection to a rank.
pub trait Port: Send + Sync {
    /// Hands messages to the rank, in order. In one process the rank is stepped on this thread, and
    /// what it answers at once to this connection is appended to `answers`; everything later goes to
    /// the connection's sink, possibly before this returns and on another thread.
    ///
    /// # Errors
    /// `Lost`: the connection is gone; the sink is told once.
    fn send(&self, messages: Vec<ClientMsg>, answers: &mut Vec<ServerMsg>) -> Result<(), PortError>;

    /// As `send` of a port to another process, but never waits for room: what the peer does not read is kept. Whether it keeps up.
    ///
    /// # Errors
    /// As `send`.
    fn offer(&self, messages: Vec<ClientMsg>) -> Result<bool, PortError> {
        self.send(messages, &mut Vec::new()).map(|()| true)
    }

    /// As `send`, for what may have lain in a socket since then: so long its requests have waited for the rank.
    ///
    /// # Errors
    /// As `send`.
    fn send_since(
        &self,
        messages: Vec<ClientMsg>,
        since: Instant,
        answers: &mut Vec<ServerMsg>,
    ) -> Result<(), PortError> {
        let _uncounted = since;
        self.send(messages, answers)
    }

    /// Ends the connection. The sink is not told.
    fn close(&self);
}

/// Where messages arrive that were not returned by `Port::send`. Called on any thread, never with a
/// mutex of the port held.
pub trait Sink: Send + Sync {
    fn messages(&self, batch: Vec<ServerMsg>);
    fn disconnected(&self);
}

/// Makes connections to one rank.
pub trait Connector: Send + Sync {
    /// Opens a connection. Blocks until it stands or fails.
    ///
    /// # Errors
    /// `Unreachable`.
    fn connect(&self, sink: Arc<dyn Sink>) -> Result<Arc<dyn Port>, PortError>;

    /// Whether a connection ends only with the rank itself (one process): after its end there is
    /// nothing to resume, so clients need not keep requests to send them again.
    fn ends_with_rank(&self) -> bool {
        false
    }

    /// How a person would name the place: "embedded", "unix:/run/pando/a.sock".
    fn describe(&self) -> String;
}
