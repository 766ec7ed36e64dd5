//! The server's end of sockets: one thread with an epoll loop accepts, reads, decodes, hands batches
//! to the server, encodes and writes, many requests per turn.
//!
//! Hostile bytes close their connection with a log line. What one connection may make the server
//! hold is bounded: past a limit of unsent, promised and unanswered bytes the loop stops reading it,
//! and renews its lease meanwhile if that is not the peer's doing.
//!
//! Absent: TLS (so TCP needs `insecure`), the meaning of messages.

mod remote;
mod sockets;

use crate::addr::Addr;
use crate::log::Log;
use crate::peer::SocketPeer;
use crate::port::{Port, PortError, Sink};
use crate::spin::Spinner;
use mio::{Events, Poll, Token, Waker};
use remote::{Reason, Remote, Turn};
use sockets::Acceptable;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use thiserror::Error;

const WAKE: Token = Token(0);
const CONNECTIONS_MAX: usize = 65_536;
/// How long accepting rests after an error such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How often a connection is renewed while it is held up; a small part of any lease.
const RENEW_EVERY: Duration = Duration::from_secs(1);
/// After so much time in turns the loop looks who else has come: some of them may be due earlier than who waits.
const LOOK_AFTER: Duration = Duration::from_micros(200);

/// Takes connections into a server.
pub trait Acceptor: Send + Sync {
    /// A peer connected; what does not come back from `Port::send` goes to `sink`.
    ///
    /// # Errors
    /// `PortError` when the server takes no connections: it is closed.
    fn accept(&self, peer: SocketPeer, sink: Arc<dyn Sink>) -> Result<Arc<dyn Port>, PortError>;
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

impl Listener {
    /// Binds every address and starts the loop. `insecure` permits TCP.
    ///
    /// # Errors
    /// `Insecure` for TCP without permission, `Io` from binding.
    pub fn start(
        addrs: &[Addr],
        insecure: bool,
        acceptor: Arc<dyn Acceptor>,
        log: Arc<Log>,
    ) -> Result<Self, ListenError> {
        let told = |at: &Addr, source| ListenError::Io { at: at.to_string(), source };
        if let Some(at) = addrs.iter().find(|a| matches!(a, Addr::Tcp(_)) && !insecure) {
            return Err(ListenError::Insecure { at: at.to_string() });
        }
        let setup = |source| ListenError::Io { at: "epoll".into(), source };
        let poll = Poll::new().map_err(setup)?;
        let waker = Waker::new(poll.registry(), WAKE).map_err(setup)?;
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
        let control = Arc::new(Control { waker, stop: AtomicBool::new(false), resumed: Mutex::default() });
        let next_token = 1 + sockets.len();
        let worker = Loop {
            poll,
            control: control.clone(),
            sockets,
            remotes: BTreeMap::new(),
            next_token,
            accept_again: false,
            held_up: BTreeSet::new(),
            renewed: Instant::now(),
            acceptor,
            log,
            spinner: Spinner::new(),
            ready: BTreeSet::new(),
            looked: Instant::now(),
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

    /// Closes every connection and socket; returns when the loop has ended. Unix socket files are
    /// removed.
    pub fn stop(&self) {
        self.control.stop.store(true, Ordering::Release);
        let _loop_ended = self.control.waker.wake();
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

struct Loop {
    poll: Poll,
    control: Arc<Control>,
    sockets: Vec<Acceptable>,
    remotes: BTreeMap<usize, Remote>,
    next_token: usize,
    accept_again: bool,
    /// Connections that are not read because the server is behind.
    held_up: BTreeSet<usize>,
    /// When those were last renewed.
    renewed: Instant,
    acceptor: Arc<dyn Acceptor>,
    log: Arc<Log>,
    spinner: Spinner,
    /// Connections to be served, those first whose turn is due first. Edge-triggered readiness is not told twice.
    ready: BTreeSet<(Instant, usize)>,
    /// When it last looked which sockets have something to read.
    looked: Instant,
}

impl Loop {
    fn run(mut self) {
        let mut events = Events::with_capacity(256);
        while !self.control.stop.load(Ordering::Acquire) {
            let timeout = if !self.ready.is_empty() {
                Some(Duration::ZERO)
            } else if self.accept_again {
                Some(ACCEPT_PAUSE)
            } else if !self.held_up.is_empty() {
                Some(RENEW_EVERY)
            } else {
                None
            };
            let came = match self.wait(&mut events, timeout) {
                Ok(came) => came,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => self.looked,
                Err(e) => {
                    self.log.error("listen", "epoll failed", &[("error", &e)]);
                    break;
                }
            };
            for n in self.resumed() {
                self.queue(n, came);
            }
            let mut accept = self.accept_again;
            for event in &events {
                match event.token() {
                    WAKE => {}
                    Token(n) if n <= self.sockets.len() => accept = true,
                    Token(n) => {
                        if let Some(remote) = self.remotes.get_mut(&n) {
                            remote.ends |= event.is_read_closed() || event.is_error();
                        }
                        self.queue(n, came);
                    }
                }
            }
            if accept {
                self.accept();
            }
            self.serve();
            self.renew_held_up();
        }
        for remote in self.remotes.values() {
            remote.end();
        }
    }

    /// Something to read may be there, since then.
    fn queue(&mut self, n: usize, since: Instant) {
        if let Some(due) = self.remotes.get_mut(&n).and_then(|remote| remote.queue(since)) {
            self.ready.insert((due, n));
        }
    }

    /// Gives turns until it is time to look who else has come.
    fn serve(&mut self) {
        let begin = Instant::now();
        while let Some((_, n)) = self.ready.pop_first() {
            if let Some(since) = self.turn(n) {
                self.queue(n, since);
            }
            if begin.elapsed() >= LOOK_AFTER {
                return;
            }
        }
    }

    /// Waits for events, and answers since when they may have been there: what is found at the first look came at any time
    /// since the look before, while others were served.
    fn wait(&mut self, events: &mut Events, timeout: Option<Duration>) -> io::Result<Instant> {
        let before = self.looked;
        self.poll.poll(events, Some(Duration::ZERO))?;
        let idle = events.is_empty() && timeout != Some(Duration::ZERO);
        if idle {
            self.idle(events, timeout)?;
        }
        self.looked = Instant::now();
        Ok(if idle { self.looked } else { before })
    }

    /// Waits while there is nothing; spins first while a CPU is free, so that a busy client is answered without a wake-up.
    fn idle(&mut self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        if !self.remotes.is_empty() {
            let (poll, mut failed) = (&mut self.poll, None);
            let ready = self.spinner.wait(|| match poll.poll(events, Some(Duration::ZERO)) {
                Ok(()) => !events.is_empty(),
                Err(e) => {
                    failed = Some(e);
                    true
                }
            });
            if let Some(e) = failed {
                return Err(e);
            }
            if ready {
                return Ok(());
            }
        }
        self.poll.poll(events, timeout)
    }

    fn resumed(&self) -> Vec<usize> {
        let mut resumed = self.control.resumed.lock().unwrap_or_else(PoisonError::into_inner);
        resumed.drain(..).map(|token| token.0).collect()
    }

    fn accept(&mut self) {
        self.accept_again = false;
        for at in 0..self.sockets.len() {
            loop {
                match self.sockets[at].accept() {
                    Ok(Some(stream)) => self.admit(stream),
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

    fn admit(&mut self, stream: crate::stream::Stream) {
        if self.remotes.len() >= CONNECTIONS_MAX {
            self.log.warn("listen", "connection refused", &[("limit", &CONNECTIONS_MAX)]);
            return;
        }
        self.next_token += 1;
        let token = Token(self.next_token);
        match Remote::open(stream, token, self.poll.registry(), &self.control, self.acceptor.as_ref()) {
            Ok(remote) => {
                self.remotes.insert(token.0, remote);
            }
            Err(e) => self.log.warn("listen", "connection refused", &[("error", &e)]),
        }
    }

    /// One turn of a connection; when it has more to read at once: since when.
    fn turn(&mut self, n: usize) -> Option<Instant> {
        let remote = self.remotes.get_mut(&n)?;
        let turn = remote.turn();
        if remote.is_held_up() {
            self.held_up.insert(n);
        } else {
            self.held_up.remove(&n);
        }
        match turn {
            Turn::Went(more) => more,
            Turn::Ended(reason) => {
                self.end(n, &reason);
                None
            }
        }
    }

    fn renew_held_up(&mut self) {
        if self.held_up.is_empty() || self.renewed.elapsed() < RENEW_EVERY {
            return;
        }
        self.renewed = Instant::now();
        let (remotes, mut ended) = (&self.remotes, Vec::new());
        self.held_up.retain(|n| {
            // Answered meanwhile, and now it is the peer that does not read.
            let Some(remote) = remotes.get(n).filter(|remote| remote.is_held_up()) else { return false };
            if let Err(reason) = remote.renew() {
                ended.push((*n, reason));
            }
            true
        });
        for (n, reason) in ended {
            self.end(n, &reason);
        }
    }

    fn end(&mut self, n: usize, reason: &Reason) {
        self.held_up.remove(&n);
        let Some(remote) = self.remotes.remove(&n) else { return };
        let peer = remote.peer_text();
        self.log.event(
            remote.level_of(reason),
            "listen",
            "connection ended",
            &[("conn", &n), ("peer", &peer), ("why", reason)],
        );
        remote.end();
    }
}
