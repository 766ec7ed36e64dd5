//! The client's end of a socket: a `Connector` whose ports frame messages onto a stream and whose
//! thread hands what arrives to the sink.
//!
//! Absent: retries and sessions (the client machine), encryption.

use crate::addr::Addr;
use crate::conn::Pipe;
use crate::listen::Guest;
use crate::port::{Connector, Port, PortError, Sink};
use crate::stream::Stream;
use crate::wire::{Inbox, ReadEnd};
use mio::{Events, Poll, Token};
use proto::message::{ClientMsg, ServerMsg};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ThreadId};

/// A sender waits while more bytes than this have not left.
const WAITING_BYTES_MAX: usize = 32 << 20;

/// Connects to a server's socket.
#[derive(Clone, Debug)]
pub struct SocketConnector {
    addr: Addr,
}

impl SocketConnector {
    #[must_use]
    pub const fn new(addr: Addr) -> Self {
        Self { addr }
    }

    fn open(&self, sink: Arc<dyn Sink>) -> io::Result<Arc<dyn Port>> {
        attend(Stream::connect(&self.addr)?, sink)
    }
}

/// A connection within this process: an end for the life that takes it in, and the other for who made it, whom that life trusts.
///
/// # Errors
/// Of sockets and threads.
pub fn within_process(sink: Arc<dyn Sink>) -> io::Result<(Guest, Arc<dyn Port>)> {
    let (near, far) = Stream::pair()?;
    let port = attend(near, sink)?;
    Ok((Guest::trusted(far), port))
}

/// A port over a stream, whose reader hands on what arrives.
fn attend(stream: Stream, sink: Arc<dyn Sink>) -> io::Result<Arc<dyn Port>> {
    let poll = Poll::new()?;
    stream.register(poll.registry(), Token(0))?;
    let shared = Arc::new(Shared { pipe: Pipe::new(stream), closed: AtomicBool::new(false) });
    let reader = Reader { shared: shared.clone(), sink, poll };
    let thread = thread::Builder::new().name("pando-port".into()).spawn(move || reader.run())?;
    Ok(Arc::new(SocketPort { shared, reader: thread.thread().id() }))
}

impl Connector for SocketConnector {
    fn connect(&self, sink: Arc<dyn Sink>) -> Result<Arc<dyn Port>, PortError> {
        self.open(sink).map_err(|source| PortError::Unreachable { at: self.describe(), source })
    }

    fn describe(&self) -> String {
        self.addr.to_string()
    }
}

struct Shared {
    pipe: Pipe,
    /// `Port::close` was called: the sink is not told.
    closed: AtomicBool,
}

struct SocketPort {
    shared: Arc<Shared>,
    /// The thread that calls the sink; when it sends it must never wait for room, because only it
    /// makes room.
    reader: ThreadId,
}

impl Port for SocketPort {
    fn send(&self, messages: Vec<ClientMsg>, _answers: &mut Vec<ServerMsg>) -> Result<(), PortError> {
        if !self.offer(messages)? && thread::current().id() != self.reader {
            self.shared.pipe.wait_for_room(WAITING_BYTES_MAX);
        }
        Ok(())
    }

    fn offer(&self, messages: Vec<ClientMsg>) -> Result<bool, PortError> {
        let waiting = self.shared.pipe.send(&messages, ClientMsg::encode).map_err(|_| PortError::Lost)?;
        Ok(waiting <= WAITING_BYTES_MAX)
    }

    fn close(&self) {
        self.shared.closed.store(true, Ordering::Release);
        self.shared.pipe.finish();
    }
}

impl Drop for SocketPort {
    fn drop(&mut self) {
        self.close();
    }
}

struct Reader {
    shared: Arc<Shared>,
    sink: Arc<dyn Sink>,
    poll: Poll,
}

impl Reader {
    fn run(mut self) {
        let _the_end_is_told_either_way = self.pump();
        self.shared.pipe.close();
        if !self.shared.closed.load(Ordering::Acquire) {
            self.sink.disconnected();
        }
    }

    /// Runs until the connection ends or carries something that is no message.
    fn pump(&mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(4);
        let mut inbox = Inbox::default();
        loop {
            match self.poll.poll(&mut events, None) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            }
            // An end that comes together with the last bytes is told once only: who stops at the bytes never hears of it.
            let ends = events.iter().any(|event| event.is_read_closed() || event.is_error());
            self.shared.pipe.flush().map_err(|_| io::ErrorKind::BrokenPipe)?;
            loop {
                let end = inbox.fill(|buf| self.shared.pipe.stream.read(buf))?;
                let mut batch = Vec::new();
                while let Some(body) = inbox.next().map_err(io::Error::other)? {
                    batch.push(ServerMsg::decode(body).map_err(io::Error::other)?);
                }
                if !batch.is_empty() {
                    self.sink.messages(batch);
                }
                match end {
                    ReadEnd::More => {}
                    ReadEnd::Short if ends => {}
                    ReadEnd::Short | ReadEnd::Drained => break,
                    ReadEnd::Closed => return Ok(()),
                }
            }
        }
    }
}
