//! One thread for all connections of a client: it waits for whatever arrives on any of them, and hands it to that connection's sink.
//!
//! What sinks send meanwhile leaves at the end of the round, with one write to each connection: who talks to several ranks would wake
//! each of them for the answers of each of them otherwise, with ever less in a message.
//!
//! The thread begins with the first connection and ends with the last one. Absent: connecting (`connect.rs`); what a sink may do: it
//! must not wait, or nothing that arrives for the others is taken in.

use crate::conn::{Gone, Pipe};
use crate::port::{Port, PortError, Sink};
use crate::stream::Stream;
use crate::wire::{Inbox, ReadEnd};
use mio::{Events, Poll, Registry, Token};
use proto::message::{ClientMsg, ServerMsg};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

/// A sender waits while more bytes than this have not left.
const WAITING_BYTES_MAX: usize = 32 << 20;

/// Attends to the connections of a client.
#[derive(Debug, Default)]
pub(crate) struct Attendant {
    running: Mutex<Option<Running>>,
    /// What was put into them in this round has not left yet.
    written: Mutex<Vec<Arc<Shared>>>,
}

/// Its thread, and what that has not taken in yet.
#[derive(Debug)]
struct Running {
    registry: Registry,
    thread: ThreadId,
    next: usize,
    arrived: Vec<(usize, Attended)>,
}

#[derive(Debug)]
struct Shared {
    pipe: Pipe,
    /// `Port::close` was called: the sink is not told.
    closed: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What they guard is whole whenever somebody else's code runs.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Attendant {
    /// A port over a stream; what arrives is handed on.
    ///
    /// # Errors
    /// Of epoll and of the thread.
    pub(crate) fn attend(self: &Arc<Self>, stream: Stream, sink: Arc<dyn Sink>) -> io::Result<Arc<dyn Port>> {
        let shared = Arc::new(Shared { pipe: Pipe::new(stream), closed: AtomicBool::new(false) });
        let attended = Attended { shared: Arc::clone(&shared), sink, inbox: Inbox::default(), ends: false };
        let mut running = lock(&self.running);
        let reader = if let Some(running) = running.as_mut() {
            running.next += 1;
            shared.pipe.stream.register(&running.registry, Token(running.next))?;
            running.arrived.push((running.next, attended));
            running.thread
        } else {
            let poll = Poll::new()?;
            let registry = poll.registry().try_clone()?;
            shared.pipe.stream.register(&registry, Token(0))?;
            let attendant = Arc::clone(self);
            // Made on the thread: its end takes the mutex, which is held here if none begins. What the thread waits for first may be there
            // already; it then waits for the mutex.
            let run = move || Rounds { attendant, poll, open: BTreeMap::new() }.run();
            let thread = thread::Builder::new().name("pando-port".into()).spawn(run)?;
            let thread = thread.thread().id();
            *running = Some(Running { registry, thread, next: 0, arrived: vec![(0, attended)] });
            thread
        };
        drop(running);
        Ok(Arc::new(SocketPort { shared, attendant: Arc::clone(self), reader }))
    }

    /// What was put into pipes in this round leaves. Who is gone is found by the next look at it.
    fn flush(&self) {
        let written = std::mem::take(&mut *lock(&self.written));
        for shared in written {
            let _gone = shared.pipe.flush();
        }
    }
}

struct SocketPort {
    shared: Arc<Shared>,
    attendant: Arc<Attendant>,
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
        let waiting = if thread::current().id() == self.reader {
            let waiting = self.shared.pipe.put(&messages, ClientMsg::encode);
            lock(&self.attendant.written).push(Arc::clone(&self.shared));
            waiting
        } else {
            self.shared.pipe.send(&messages, ClientMsg::encode)
        };
        Ok(waiting.map_err(|Gone| PortError::Lost)? <= WAITING_BYTES_MAX)
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

/// One connection as the thread has it.
struct Attended {
    shared: Arc<Shared>,
    sink: Arc<dyn Sink>,
    inbox: Inbox,
    /// The peer's end lies behind what was not read yet. An end that comes together with the last bytes is told once only: who stops
    /// at the bytes never hears of it.
    ends: bool,
}

/// What reading once came to.
enum Read {
    /// There may be more.
    More,
    Drained,
    /// It has ended, or brought something that is no message.
    Ended,
}

impl Attended {
    fn read(&mut self) -> Read {
        self.go().unwrap_or(Read::Ended)
    }

    fn go(&mut self) -> io::Result<Read> {
        let end = self.inbox.fill(|buf| self.shared.pipe.stream.read(buf))?;
        let mut batch = Vec::new();
        while let Some(body) = self.inbox.next().map_err(io::Error::other)? {
            batch.push(ServerMsg::decode(body).map_err(io::Error::other)?);
        }
        if !batch.is_empty() {
            self.sink.messages(batch);
        }
        Ok(match end {
            ReadEnd::More => Read::More,
            ReadEnd::Short if self.ends => Read::More,
            ReadEnd::Short | ReadEnd::Drained => Read::Drained,
            ReadEnd::Closed => Read::Ended,
        })
    }

    fn end(self) {
        self.shared.pipe.close();
        if !self.shared.closed.load(Ordering::Acquire) {
            self.sink.disconnected();
        }
    }
}

impl fmt::Debug for Attended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attended").field("shared", &self.shared).finish_non_exhaustive()
    }
}

/// The thread's end, which may be that a sink panicked: whoever is open then hears that it is over.
impl Drop for Rounds {
    fn drop(&mut self) {
        let mut running = lock(&self.attendant.running);
        // Another thread may have begun meanwhile.
        if running.as_ref().is_some_and(|running| running.thread == thread::current().id())
            && let Some(running) = running.take()
        {
            self.open.extend(running.arrived);
        }
        drop(running);
        std::mem::take(&mut self.open).into_values().for_each(Attended::end);
        self.attendant.flush();
    }
}

struct Rounds {
    attendant: Arc<Attendant>,
    poll: Poll,
    open: BTreeMap<usize, Attended>,
}

impl Rounds {
    /// Until no connection is left.
    fn run(mut self) {
        let mut events = Events::with_capacity(256);
        // Readiness is told once only.
        let mut ready = BTreeSet::new();
        while !self.is_over() {
            let timeout = (!ready.is_empty()).then_some(Duration::ZERO);
            match self.poll.poll(&mut events, timeout) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                // Nothing is heard any more.
                Err(_no_epoll) => return,
                Ok(()) => {}
            }
            self.take_in();
            for event in &events {
                let Token(n) = event.token();
                if let Some(attended) = self.open.get_mut(&n) {
                    attended.ends |= event.is_read_closed() || event.is_error();
                    ready.insert(n);
                }
            }
            ready = self.round(ready);
        }
    }

    /// Reads each of them once. Those that may have more.
    fn round(&mut self, ready: BTreeSet<usize>) -> BTreeSet<usize> {
        let (mut more, mut ended) = (BTreeSet::new(), Vec::new());
        for n in ready {
            let Some(attended) = self.open.get_mut(&n) else { continue };
            let read = match attended.shared.pipe.flush() {
                Ok(_) => attended.read(),
                Err(Gone) => Read::Ended,
            };
            match read {
                Read::More => {
                    more.insert(n);
                }
                Read::Drained => {}
                Read::Ended => ended.extend(self.open.remove(&n)),
            }
        }
        ended.into_iter().for_each(Attended::end);
        self.attendant.flush();
        more
    }

    fn take_in(&mut self) {
        if let Some(running) = lock(&self.attendant.running).as_mut() {
            self.open.extend(running.arrived.drain(..));
        }
    }

    /// No connection is left; the next one begins another thread.
    fn is_over(&self) -> bool {
        if !self.open.is_empty() {
            return false;
        }
        let mut running = lock(&self.attendant.running);
        let over = running.as_ref().is_none_or(|running| running.arrived.is_empty());
        if over {
            *running = None;
        }
        over
    }
}
