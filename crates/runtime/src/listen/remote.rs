//! One accepted connection: its sink, its bounds, its turn of the loop.
//!
//! Absent: waiting for readiness (the loop does it).

use super::{Acceptor, Control, Guest, Origin};
use crate::conn::{Pipe, why};
use crate::log::LogLevel;
use crate::peer::SocketPeer;
use crate::port::{Port, Sink};
use crate::wire::{Inbox, ReadEnd};
use mio::{Registry, Token};
use proto::message::{ClientMsg, ServerMsg};
use proto::{DecodeError, Tid};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Reading stops while unsent, promised and unanswered bytes are above this.
const HELD_BYTES_MAX: usize = 32 << 20;
/// Fixed part of what one outstanding request is counted as.
const REQUEST_BYTES: usize = 256;
/// Socket reads of one turn, so that one connection cannot starve the others.
const READS_PER_TURN: u32 = 8;
/// And how long it goes on taking in more, when there is more.
const TURN_AIM: Duration = Duration::from_millis(1);
/// Messages handed over together.
const BATCH_MAX: usize = 64;
/// When a turn is due: so many times its usual length after its message came. Who asks for little is due soon and does not wait for
/// who asks for much. Who has waited long is due first.
const PATIENCE: u32 = 16;
/// A longer turn counts as this: it may have been this thread that waited for a CPU.
const USUAL_MAX: Duration = Duration::from_micros(250);

/// How a turn ended.
pub(super) enum Turn {
    /// There may be more, since then.
    Went(Option<Instant>),
    Ended(Reason),
}

/// Why a connection ended.
pub(super) enum Reason {
    Closed,
    Broken(io::Error),
    Hostile(DecodeError),
    Refused,
}

impl Reason {
    fn level(&self) -> LogLevel {
        match self {
            Self::Hostile(_) => LogLevel::Warn,
            Self::Closed | Self::Broken(_) | Self::Refused => LogLevel::Info,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str(&why(None)),
            Self::Broken(e) => f.write_str(&why(Some(e))),
            Self::Hostile(e) => write!(f, "bytes that are no message: {e}"),
            Self::Refused => f.write_str("closed by server"),
        }
    }
}

/// What a connection's sink and its loop share.
struct Shared {
    pipe: Arc<Pipe>,
    token: Token,
    control: Arc<Control>,
    /// Answers owed: the bytes each unanswered request has and the most its answer may bring.
    owed: Mutex<BTreeMap<Tid, usize>>,
    owed_bytes: AtomicUsize,
    paused: AtomicBool,
}

impl Shared {
    fn held(&self) -> usize {
        self.pipe.waiting() + self.owed_bytes.load(Ordering::Relaxed)
    }

    /// Counts a request of `body` bytes until it is answered: so long the rank may keep its payload
    /// (it waits for its file, for the end of the reconnect phase, for a backup). A number used twice
    /// counts twice: both may be kept.
    fn owe(&self, message: &ClientMsg, body: usize) {
        let Some((tid, request)) = message.asked() else { return };
        // Of what was performed all there is to say is whether it came to what was told.
        let answer = if message.is_performed() { 0 } else { request.answer_bytes_max() };
        let bytes = REQUEST_BYTES + body + answer;
        let mut owed = self.owed.lock().unwrap_or_else(PoisonError::into_inner);
        *owed.entry(tid).or_insert(0) += bytes;
        self.owed_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn count_answered(&self, batch: &[ServerMsg]) {
        let mut owed = self.owed.lock().unwrap_or_else(PoisonError::into_inner);
        for message in batch {
            if let Some(tid) = message.ended()
                && let Some(bytes) = owed.remove(&tid)
            {
                self.owed_bytes.fetch_sub(bytes, Ordering::Relaxed);
            }
        }
    }

    fn send(&self, batch: &[ServerMsg]) {
        self.count_answered(batch);
        // A connection that broke is found by the loop: its socket was shut down.
        let _gone = self.pipe.send(batch, ServerMsg::encode);
        if self.paused.load(Ordering::Acquire) && self.held() < HELD_BYTES_MAX / 2 {
            self.control.resume(self.token);
        }
    }
}

struct RemoteSink(Arc<Shared>);

impl Sink for RemoteSink {
    fn messages(&self, batch: Vec<ServerMsg>) {
        self.0.send(&batch);
    }

    fn disconnected(&self) {
        self.0.pipe.finish();
    }
}

/// One accepted connection as the loop has it.
pub(super) struct Remote {
    shared: Arc<Shared>,
    port: Arc<dyn Port>,
    origin: Origin,
    inbox: Inbox,
    /// Whole frames may be left in the inbox.
    undecoded: bool,
    /// They are left because too much is unanswered.
    paused: bool,
    /// Since when what is to be read or decoded may have waited for this turn.
    since: Option<Instant>,
    /// How long its turns are: the last one, or half the one before.
    usual: Duration,
    /// The peer's end lies behind what was not read yet; it is told once only.
    pub(super) ends: bool,
    /// It asked for more than an operator's answers.
    is_client: bool,
}

impl Remote {
    pub(super) fn open(
        guest: Guest,
        token: Token,
        registry: &Registry,
        control: &Arc<Control>,
        acceptor: &dyn Acceptor,
    ) -> io::Result<Self> {
        let Guest { pipe, origin, inbox, ends, .. } = guest;
        pipe.stream.register(registry, token)?;
        let shared = Arc::new(Shared {
            pipe,
            token,
            control: control.clone(),
            owed: Mutex::default(),
            owed_bytes: AtomicUsize::new(0),
            paused: AtomicBool::new(false),
        });
        let sink = Arc::new(RemoteSink(shared.clone()));
        let port = acceptor.accept(origin.clone(), sink).map_err(io::Error::other)?;
        Ok(Self {
            shared,
            port,
            origin,
            inbox,
            // What told that it is a client.
            undecoded: true,
            paused: false,
            since: None,
            usual: Duration::ZERO,
            ends,
            is_client: false,
        })
    }

    pub(super) fn peer_text(&self) -> String {
        match &self.origin.peer {
            SocketPeer::Trusted => "trusted".to_owned(),
            SocketPeer::User(cred) => format!("uid {}", cred.uid),
        }
    }

    /// How an end is logged. One that only asked how we are says nothing to anybody, and whoever watches a server
    /// does so every few seconds.
    pub(super) fn level_of(&self, end: &Reason) -> LogLevel {
        match end {
            Reason::Closed | Reason::Broken(_) if !self.is_client => LogLevel::Debug,
            end => end.level(),
        }
    }

    /// Tells the server that the peer is gone and closes the socket.
    pub(super) fn end(&self) {
        self.port.close();
        self.shared.pipe.close();
    }

    /// Something to read is there, perhaps since then. When its turn is due; none if it waits for one already.
    pub(super) fn queue(&mut self, since: Instant) -> Option<Instant> {
        self.since.is_none().then(|| {
            self.since = Some(since);
            since + self.usual * PATIENCE
        })
    }

    /// What `go` says, timed.
    pub(super) fn turn(&mut self) -> Turn {
        let begin = Instant::now();
        let since = self.since.take().unwrap_or(begin);
        let turn = self.go(begin, since);
        self.usual = begin.elapsed().max(self.usual / 2).min(USUAL_MAX);
        turn
    }

    /// Writes what waits, then reads and serves until the socket is empty, the budget is used, or
    /// the connection holds too much.
    fn go(&mut self, begin: Instant, since: Instant) -> Turn {
        if self.shared.pipe.flush().is_err() {
            return Turn::Ended(Reason::Refused);
        }
        let mut answers = Vec::new();
        for _ in 0..READS_PER_TURN {
            let end = if self.undecoded {
                ReadEnd::More
            } else {
                match self.inbox.fill(|buf| self.shared.pipe.stream.read(buf)) {
                    Ok(end) => end,
                    Err(e) => return Turn::Ended(Reason::Broken(e)),
                }
            };
            match self.serve(since, &mut answers) {
                Ok(()) => {}
                Err(reason) => return Turn::Ended(reason),
            }
            if self.paused {
                // Paused: the sink resumes the loop once enough has left. Look again after the flag
                // is up, because it may have left just before.
                self.shared.paused.store(true, Ordering::Release);
                if self.shared.held() < HELD_BYTES_MAX / 2 {
                    continue;
                }
                // A peer that is gone is not waited for, or what it asked would be kept until a
                // stall ends; what was not read was not answered, so nobody relies on it.
                return if self.ends { Turn::Ended(Reason::Closed) } else { Turn::Went(None) };
            }
            if self.undecoded {
                if begin.elapsed() < TURN_AIM {
                    continue;
                }
                // What is left was read with the rest.
                return Turn::Went(Some(since));
            }
            match end {
                ReadEnd::More if begin.elapsed() >= TURN_AIM => break,
                ReadEnd::More => {}
                ReadEnd::Short if self.ends => {}
                ReadEnd::Short | ReadEnd::Drained => return Turn::Went(None),
                ReadEnd::Closed => return Turn::Ended(Reason::Closed),
            }
        }
        // What is left came while this was read: all that a client may have under way is read in one turn, but for payloads.
        Turn::Went(Some(if self.undecoded { since } else { begin }))
    }

    /// Decodes whole frames up to the limits and hands them over in one batch.
    fn serve(&mut self, since: Instant, answers: &mut Vec<ServerMsg>) -> Result<(), Reason> {
        self.shared.paused.store(false, Ordering::Release);
        let mut batch = Vec::new();
        (self.undecoded, self.paused) = (false, false);
        let mut hostile = None;
        // What has not left hardly changes meanwhile, and asking takes a mutex.
        let waiting = self.shared.pipe.waiting();
        loop {
            let owed = self.shared.owed_bytes.load(Ordering::Relaxed);
            self.paused = waiting + owed >= HELD_BYTES_MAX;
            self.undecoded = self.paused || batch.len() >= BATCH_MAX;
            if self.undecoded {
                break;
            }
            let decoded = self
                .inbox
                .next()
                .and_then(|body| body.map(|body| Ok((ClientMsg::decode(body)?, body.len()))).transpose());
            match decoded {
                Ok(None) => break,
                Ok(Some((message, body))) => {
                    self.is_client |= !matches!(message, ClientMsg::Admin { .. });
                    self.shared.owe(&message, body);
                    batch.push(message);
                }
                Err(e) => {
                    hostile = Some(Reason::Hostile(e));
                    break;
                }
            }
        }
        if !batch.is_empty() {
            self.hand_over(batch, since, answers)?;
        }
        hostile.map_or(Ok(()), Err)
    }

    fn hand_over(
        &self,
        batch: Vec<ClientMsg>,
        since: Instant,
        answers: &mut Vec<ServerMsg>,
    ) -> Result<(), Reason> {
        self.port.send_since(batch, since, answers).map_err(|_| Reason::Refused)?;
        if !answers.is_empty() {
            self.shared.send(answers);
            answers.clear();
        }
        Ok(())
    }

    /// Not read, and more for what the server owes than for what the peer does not take.
    pub(super) fn is_held_up(&self) -> bool {
        self.paused && self.shared.owed_bytes.load(Ordering::Relaxed) > self.shared.pipe.waiting()
    }

    /// Renews in the peer's name while it is held up: its own renewals lie unread behind its requests,
    /// and a stall of the server (a slow sync, a backup) that outlasts the lease would evict it.
    pub(super) fn renew(&self) -> Result<(), Reason> {
        self.hand_over(vec![ClientMsg::Renew { number: 0 }], Instant::now(), &mut Vec::new())
    }
}
