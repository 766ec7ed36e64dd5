//! The client's end of a socket: a `Connector` whose ports frame messages onto a stream.
//!
//! Absent: taking in what arrives (`attend.rs`), retries and sessions (the client machine), encryption.

use crate::addr::Addr;
use crate::attend::Attendant;
use crate::listen::Guest;
use crate::port::{Connector, Port, PortError, Sink};
use crate::stream::Stream;
use std::io;
use std::sync::Arc;

/// Connects to a server's socket.
#[derive(Clone, Debug)]
pub struct SocketConnector {
    addr: Addr,
    /// Of all its connections.
    attendant: Arc<Attendant>,
}

impl SocketConnector {
    #[must_use]
    pub fn new(addr: Addr) -> Self {
        Self { addr, attendant: Arc::default() }
    }

    fn open(&self, sink: Arc<dyn Sink>) -> io::Result<Arc<dyn Port>> {
        self.attendant.attend(Stream::connect(&self.addr)?, sink)
    }
}

/// A connection within this process: an end for the life that takes it in, and the other for who made it, whom that life trusts.
///
/// # Errors
/// Of sockets and threads.
pub fn within_process(sink: Arc<dyn Sink>) -> io::Result<(Guest, Arc<dyn Port>)> {
    let (near, far) = Stream::pair()?;
    let port = Arc::new(Attendant::default()).attend(near, sink)?;
    Ok((Guest::trusted(far), port))
}

impl Connector for SocketConnector {
    fn connect(&self, sink: Arc<dyn Sink>) -> Result<Arc<dyn Port>, PortError> {
        self.open(sink).map_err(|source| PortError::Unreachable { at: self.describe(), source })
    }

    fn describe(&self) -> String {
        self.addr.to_string()
    }
}
