//! A connection that has not said yet what it wants, or only asks operators' questions: one at a time.
//!
//! Absent: answering (the server does it), clients (`clients.rs`).

use super::{Control, Origin, Seat};
use crate::conn::Pipe;
use crate::peer::SocketPeer;
use crate::port::Sink;
use crate::stream::Stream;
use crate::wire::{Inbox, ReadEnd};
use mio::{Registry, Token};
use proto::message::{ClientMsg, ServerMsg};
use proto::{Errno, Ino, RankId, SessionId};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Who does not take its answers is let go when so many bytes of them wait.
const WAITING_BYTES_MAX: usize = 1 << 20;

/// An accepted connection, with what was read of it.
pub struct Guest {
    pub(super) pipe: Arc<Pipe>,
    pub(super) origin: Origin,
    pub(super) inbox: Inbox,
    /// The peer's end lies behind what was not read yet; it is told once only.
    pub(super) ends: bool,
    /// A question is without its answer.
    asking: Arc<AtomicBool>,
}

/// What a guest's turn came to.
pub(super) enum Visit {
    Stays,
    /// It has asked this; no other is taken before the answer.
    Asks {
        id: u64,
        command: String,
    },
    /// Its next message is a client's, or none at all.
    IsClient,
    Leaves,
}

/// Whom a connection wants to talk to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meant {
    pub rank: RankId,
    /// It has no session that could go on.
    pub is_new: bool,
}

impl Guest {
    /// One that this process made itself.
    pub(crate) fn trusted(stream: Stream) -> Self {
        Self {
            pipe: Arc::new(Pipe::new(stream)),
            origin: Origin { peer: SocketPeer::Trusted, limit: Ino::NONE },
            inbox: Inbox::default(),
            ends: false,
            asking: Arc::default(),
        }
    }

    /// Which rank its greeting names. `None`: it has not said one, or something else.
    #[must_use]
    pub fn meant(&self) -> Option<Meant> {
        match ClientMsg::decode(self.inbox.peek().ok()??).ok()? {
            ClientMsg::Hello { session, at, .. } => {
                Some(Meant { rank: at.rank, is_new: session == SessionId(0) })
            }
            ClientMsg::RankHello { to, .. } => Some(Meant { rank: to, is_new: true }),
            _ => None,
        }
    }

    /// Says why nobody takes it in, and ends the connection.
    pub fn refuse(self, errno: Errno, reason: String) {
        // One that is gone needs no answer.
        let _gone =
            self.pipe.send(&[ServerMsg::Refused { errno: errno.0 as u32, reason }], ServerMsg::encode);
        self.pipe.finish();
    }

    pub(super) fn new(
        (stream, limit): (Stream, Ino),
        seat: Seat,
        token: Token,
        registry: &Registry,
    ) -> io::Result<Self> {
        let origin = Origin { peer: stream.peer()?, limit };
        stream.register(registry, token)?;
        Ok(Self {
            pipe: Arc::new(Pipe::seated(stream, seat)),
            origin,
            inbox: Inbox::default(),
            ends: false,
            asking: Arc::default(),
        })
    }

    /// Where the answer goes.
    pub(super) fn answers(&self, token: Token, control: &Arc<Control>) -> Arc<dyn Sink> {
        let (pipe, asking, control) = (self.pipe.clone(), self.asking.clone(), control.clone());
        Arc::new(Answers { pipe, asking, control, token })
    }

    /// Writes what waits, reads what is there, and looks at the next message.
    pub(super) fn visit(&mut self) -> Visit {
        if self.pipe.flush().map_or(true, |waiting| waiting > WAITING_BYTES_MAX) {
            return Visit::Leaves;
        }
        loop {
            if self.asking.load(Ordering::Acquire) {
                // The answer wakes the loop.
                return Visit::Stays;
            }
            match self.inbox.peek().map(|body| body.map(ClientMsg::decode)) {
                Ok(None) => {}
                Ok(Some(Ok(ClientMsg::Admin { id, command }))) => {
                    // It was whole a moment ago.
                    let _the_same = self.inbox.next();
                    self.asking.store(true, Ordering::Release);
                    return Visit::Asks { id, command };
                }
                Ok(Some(_)) | Err(_) => return Visit::IsClient,
            }
            match self.inbox.fill(|buf| self.pipe.stream.read(buf)) {
                Ok(ReadEnd::More) => {}
                // What came with the end is looked at first.
                Ok(ReadEnd::Short) => {
                    if !self.ends && self.inbox.peek().is_ok_and(|body| body.is_none()) {
                        return Visit::Stays;
                    }
                }
                Ok(ReadEnd::Drained) => return Visit::Stays,
                Ok(ReadEnd::Closed) | Err(_) => return Visit::Leaves,
            }
        }
    }
}

struct Answers {
    pipe: Arc<Pipe>,
    asking: Arc<AtomicBool>,
    control: Arc<Control>,
    token: Token,
}

impl Sink for Answers {
    fn messages(&self, batch: Vec<ServerMsg>) {
        // One that is gone is found by the loop.
        let _gone = self.pipe.send(&batch, ServerMsg::encode);
        self.asking.store(false, Ordering::Release);
        self.control.resume(self.token);
    }

    fn disconnected(&self) {
        self.pipe.finish();
    }
}
