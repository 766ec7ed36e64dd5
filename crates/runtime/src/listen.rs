//! The server's end of sockets. One thread accepts, and stays with a connection as long as that only asks operators' questions: these are
//! answered whatever the rank is at. What else comes is a client's, and goes to the loop that steps the rank (`clients.rs`).
//!
//! Absent: TLS (so TCP needs `insecure`), the meaning of messages.

mod clients;
mod guest;
mod remote;
mod seats;
mod sockets;

pub use clients::Clients;
pub use guest::{Guest, Meant};
pub(crate) use seats::Seat;

use crate::addr::Addr;
use crate::log::Log;
use crate::peer::SocketPeer;
use crate::port::{Port, PortError, Sink};
use guest::Visit;
use mio::{Events, Poll, Token, Waker};
use proto::Ino;
use seats::Seats;
use sockets::Acceptable;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use thiserror::Error;

const WAKE: Token = Token(0);
/// How long accepting rests after an error such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Who is at the other end of a connection, and where it came in.
#[derive(Clone, Debug)]
pub struct Origin {
    pub peer: SocketPeer,
    /// The directory outside of which whoever comes in there may ask for nothing; `Ino::NONE`: he may.
    pub limit: Ino,
}

/// Who takes in those that connect. Neither method may wait for the rank.
pub trait Door: Send + Sync {
    /// A client, with what was read of it. Where nobody serves it is dropped, and with it its connection.
    fn admit(&self, guest: Guest);

    /// An operator's question; its answer goes to `answers`.
    fn ask(&self, origin: &Origin, id: u64, command: String, answers: Arc<dyn Sink>);
}

/// Takes connections of clients to a rank.
pub trait Acceptor: Send + Sync {
    /// A peer connected; what does not come back from `Port::send` goes to `sink`.
    ///
    /// # Errors
    /// `PortError` when the server takes no connections: it is closed.
    fn accept(&self, origin: Origin, sink: Arc<dyn Sink>) -> Result<Arc<dyn Port>, PortError>;
}

/// Why a server does not listen.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ListenError {
    #[error("{at}: refusing to listen without TLS")]
    Insecure { at: String },
    #[error("{at}: {source}")]
    Io { at: String, source: io::Error },
}

/// A running loop.
#[derive(Debug)]
pub struct Listener {
    control: Arc<Control>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Where it really listens: port 0 is resolved.
    addrs: Vec<Addr>,
}

/// What other threads tell the loop.
#[derive(Debug)]
struct Control {
    waker: Waker,
    stop: AtomicBool,
    /// Connections that may be read again.
    resumed: Mutex<Vec<Token>>,
}

impl Control {
    fn new(poll: &Poll) -> io::Result<Arc<Self>> {
        let waker = Waker::new(poll.registry(), WAKE)?;
        Ok(Arc::new(Self { waker, stop: AtomicBool::new(false), resumed: Mutex::default() }))
    }

    fn wake(&self) {
        let _loop_ended = self.waker.wake();
    }

    /// A connection may be read again.
    fn resume(&self, token: Token) {
        self.resumed.lock().unwrap_or_else(PoisonError::into_inner).push(token);
        self.wake();
    }

    fn take_resumed(&self) -> Vec<usize> {
        let mut resumed = self.resumed.lock().unwrap_or_else(PoisonError::into_inner);
        resumed.drain(..).map(|token| token.0).collect()
    }
}

impl Listener {
    /// Binds every address and starts the loop. `insecure` permits TCP. `limit`: the directory to which all that comes in is limited;
    /// `Ino::NONE`: it is not.
    ///
    /// # Errors
    /// `Insecure` for TCP without permission, `Io` from binding.
    pub fn start(
        addrs: &[Addr],
        insecure: bool,
        limit: Ino,
        door: Arc<dyn Door>,
        log: Arc<Log>,
    ) -> Result<Self, ListenError> {
        let told = |at: &Addr, source| ListenError::Io { at: at.to_string(), source };
        if let Some(at) = addrs.iter().find(|a| matches!(a, Addr::Tcp(_)) && !insecure) {
            return Err(ListenError::Insecure { at: at.to_string() });
        }
        let setup = |source| ListenError::Io { at: "epoll".into(), source };
        let poll = Poll::new().map_err(setup)?;
        let control = Control::new(&poll).map_err(setup)?;
        let (mut sockets, mut bound) = (Vec::new(), Vec::new());
        for at in addrs {
            let token = Token(1 + sockets.len());
            let socket = Acceptable::bind(at, poll.registry(), token).map_err(|e| told(at, e))?;
            bound.push(socket.addr(at));
            sockets.push(socket);
        }
        for at in &bound {
            log.info("listen", "listening", &[("at", at)]);
        }
        let next_token = 1 + sockets.len();
        let worker = Front {
            poll,
            control: control.clone(),
            sockets,
            guests: BTreeMap::new(),
            seats: Seats::of_process(),
            next_token,
            accept_again: false,
            limit,
            door,
            log,
        };
        let thread =
            thread::Builder::new().name("pando-listen".into()).spawn(move || worker.run()).map_err(setup)?;
        Ok(Self { control, thread: Mutex::new(Some(thread)), addrs: bound })
    }

    /// Where it listens.
    #[must_use]
    pub fn addrs(&self) -> &[Addr] {
        &self.addrs
    }

    /// Closes the sockets and every connection that is no client's; returns when the loop has ended. Unix socket files are removed.
    pub fn stop(&self) {
        self.control.stop.store(true, Ordering::Release);
        self.control.wake();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.thread().id() != thread::current().id()
        {
            let _panic_was_logged = thread.join();
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop();
    }
}

struct Front {
    poll: Poll,
    control: Arc<Control>,
    sockets: Vec<Acceptable>,
    guests: BTreeMap<usize, Guest>,
    seats: Arc<Seats>,
    next_token: usize,
    accept_again: bool,
    limit: Ino,
    door: Arc<dyn Door>,
    log: Arc<Log>,
}

impl Front {
    fn run(mut self) {
        let mut events = Events::with_capacity(256);
        while !self.control.stop.load(Ordering::Acquire) {
            let timeout = self.accept_again.then_some(ACCEPT_PAUSE);
            match self.poll.poll(&mut events, timeout) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => {
                    self.log.error("listen", "epoll failed", &[("error", &e)]);
                    break;
                }
            }
            let mut accept = self.accept_again;
            for event in &events {
                match event.token() {
                    WAKE => {}
                    Token(n) if n <= self.sockets.len() => accept = true,
                    Token(n) => {
                        if let Some(guest) = self.guests.get_mut(&n) {
                            guest.ends |= event.is_read_closed() || event.is_error();
                        }
                        self.visit(n);
                    }
                }
            }
            for n in self.control.take_resumed() {
                self.visit(n);
            }
            if accept {
                self.accept();
            }
        }
        for guest in self.guests.values() {
            guest.pipe.close();
        }
    }

    fn accept(&mut self) {
        self.accept_again = false;
        for at in 0..self.sockets.len() {
            loop {
                match self.sockets[at].accept() {
                    Ok(Some(stream)) => self.receive(stream),
                    Ok(None) => break,
                    Err(e) => {
                        self.log.warn("listen", "accept failed", &[("error", &e)]);
                        self.accept_again = true;
                        break;
                    }
                }
            }
        }
    }

    fn receive(&mut self, stream: crate::stream::Stream) {
        let Some(seat) = self.seats.take() else {
            self.log.warn("listen", "connection refused", &[("limit", &self.seats.most)]);
            return;
        };
        self.next_token += 1;
        let n = self.next_token;
        match Guest::new((stream, self.limit), seat, Token(n), self.poll.registry()) {
            Ok(guest) => {
                self.guests.insert(n, guest);
                // Most have said something by now.
                self.visit(n);
            }
            Err(e) => self.log.warn("listen", "connection refused", &[("error", &e)]),
        }
    }

    fn visit(&mut self, n: usize) {
        let Some(guest) = self.guests.get_mut(&n) else { return };
        match guest.visit() {
            Visit::Stays => {}
            Visit::Asks { id, command } => {
                let answers = guest.answers(Token(n), &self.control);
                self.door.ask(&guest.origin, id, command, answers);
            }
            Visit::IsClient => {
                let Some(guest) = self.guests.remove(&n) else { return };
                match guest.pipe.stream.deregister(self.poll.registry()) {
                    Ok(()) => self.door.admit(guest),
                    Err(e) => self.log.warn("listen", "connection refused", &[("error", &e)]),
                }
            }
            Visit::Leaves => {
                if let Some(guest) = self.guests.remove(&n) {
                    guest.pipe.close();
                }
            }
        }
    }
}
