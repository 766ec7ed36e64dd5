//! The connections of clients: one thread with an epoll loop reads, decodes, hands batches to the rank, encodes and writes, many requests
//! per turn. The rank is stepped on this thread. Should it never come back, `close` ends all connections all the same, and another loop
//! serves the next.
//!
//! Hostile bytes close their connection with a log line. What one connection may make the server
//! hold is bounded: past a limit of unsent, promised and unanswered bytes the loop stops reading it,
//! and renews its lease meanwhile if that is not the peer's doing.
//!
//! Absent: accepting (`listen.rs`), the meaning of messages.

use super::remote::{Reason, Remote, Turn};
use super::{Acceptor, Control, Guest, WAKE};
use crate::conn::Pipe;
use crate::log::Log;
use crate::process::Cpus;
use crate::spin::Spinner;
use mio::{Events, Poll, Token};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How often a connection is renewed while it is held up; a small part of any lease.
const RENEW_EVERY: Duration = Duration::from_secs(1);
/// After so much time in turns the loop looks who else has come: some of them may be due earlier than who waits.
const LOOK_AFTER: Duration = Duration::from_micros(200);

/// How often it is looked whether the loop has ended.
const LOOK: Duration = Duration::from_millis(1);

/// A running loop.
pub struct Clients {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What other threads tell the loop, and what they need of it when it does not come back.
struct Shared {
    control: Arc<Control>,
    /// Since when each waits to be taken in.
    arrived: Mutex<Vec<(Guest, Instant)>>,
    pipes: Mutex<Pipes>,
}

#[derive(Default)]
struct Pipes {
    open: BTreeMap<usize, Arc<Pipe>>,
    /// No connection is open any more, and none will be.
    closed: bool,
}

impl Shared {
    fn pipes(&self) -> MutexGuard<'_, Pipes> {
        self.pipes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn arrived(&self) -> MutexGuard<'_, Vec<(Guest, Instant)>> {
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clients {
    /// Starts the loop, on those CPUs if any are named.
    ///
    /// # Errors
    /// Of epoll and of the thread.
    pub fn start(acceptor: Arc<dyn Acceptor>, log: Arc<Log>, cpus: Option<Cpus>) -> io::Result<Self> {
        let poll = Poll::new()?;
        let shared = Arc::new(Shared {
            control: Control::new(&poll)?,
            arrived: Mutex::default(),
            pipes: Mutex::default(),
        });
        let worker = Loop {
            poll,
            shared: shared.clone(),
            remotes: BTreeMap::new(),
            next_token: WAKE.0,
            held_up: BTreeSet::new(),
            renewed: Instant::now(),
            acceptor,
            log,
            spinner: Spinner::new(),
            ready: BTreeSet::new(),
            looked: Instant::now(),
        };
        let run = move || {
            if let Some(cpus) = cpus {
                cpus.take();
            }
            worker.run();
        };
        let thread = thread::Builder::new().name("pando-clients".into()).spawn(run)?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Takes a connection in, with what was read of it.
    pub fn admit(&self, guest: Guest) {
        self.shared.arrived().push((guest, Instant::now()));
        self.shared.control.wake();
    }

    /// Ends all connections at once, whatever the loop is at: nothing that is sent later leaves. None is taken in any more.
    pub fn close(&self) {
        let open = {
            let mut pipes = self.shared.pipes();
            pipes.closed = true;
            std::mem::take(&mut pipes.open)
        };
        for pipe in open.values() {
            pipe.close();
        }
        // Those that it has not taken in, too: it may never do so.
        for (guest, _) in std::mem::take(&mut *self.shared.arrived()) {
            guest.pipe.close();
        }
        self.shared.control.stop.store(true, Ordering::Release);
        self.shared.control.wake();
    }

    /// Closes, and waits for the loop's end, so long at most. Whether it has ended.
    #[must_use]
    pub fn stop(&self, limit: Duration) -> bool {
        self.close();
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let begin = Instant::now();
        while thread.as_ref().is_some_and(|thread| !is_over(thread)) {
            if begin.elapsed() > limit {
                return false;
            }
            thread::sleep(LOOK);
        }
        if let Some(thread) = thread.take().filter(JoinHandle::is_finished) {
            let _panic_was_logged = thread.join();
        }
        true
    }
}

/// Its own thread does not wait for itself.
fn is_over(thread: &JoinHandle<()>) -> bool {
    thread.is_finished() || thread.thread().id() == thread::current().id()
}

impl Drop for Clients {
    /// The loop is not waited for.
    fn drop(&mut self) {
        self.close();
    }
}

struct Loop {
    poll: Poll,
    shared: Arc<Shared>,
    remotes: BTreeMap<usize, Remote>,
    next_token: usize,
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
        while !self.shared.control.stop.load(Ordering::Acquire) {
            let timeout = if !self.ready.is_empty() {
                Some(Duration::ZERO)
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
            let arrived = std::mem::take(&mut *self.shared.arrived());
            for (guest, since) in arrived {
                self.open(guest, since);
            }
            for n in self.shared.control.take_resumed() {
                self.queue(n, came);
            }
            for event in &events {
                let Token(n) = event.token();
                if let Some(remote) = self.remotes.get_mut(&n) {
                    remote.ends |= event.is_read_closed() || event.is_error();
                    self.queue(n, came);
                }
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

    fn open(&mut self, guest: Guest, came: Instant) {
        self.next_token += 1;
        let n = self.next_token;
        {
            // Before anything of it is handed on: `close` finds it, or it is not opened.
            let mut pipes = self.shared.pipes();
            if pipes.closed {
                return;
            }
            pipes.open.insert(n, guest.pipe.clone());
        }
        let opened =
            Remote::open(guest, Token(n), self.poll.registry(), &self.shared.control, self.acceptor.as_ref());
        match opened {
            Ok(remote) => {
                self.remotes.insert(n, remote);
                self.queue(n, came);
            }
            Err(e) => {
                self.shared.pipes().open.remove(&n);
                self.log.warn("listen", "connection refused", &[("error", &e)]);
            }
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
        self.shared.pipes().open.remove(&n);
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
