//! One connection's way out, shared by client and server: frames are written by whoever has them,
//! the loop finishes what did not fit into the socket.
//!
//! Absent: reading, which only the loop's thread does.

use crate::listen::Seat;
use crate::stream::Stream;
use crate::wire::Outbox;
use proto::Writer;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The sending half of a connection.
#[derive(Debug)]
pub(crate) struct Pipe {
    pub(crate) stream: Stream,
    out: Mutex<Out>,
    room: Condvar,
    /// Of a server's: free when the descriptor is.
    _seat: Option<Seat>,
}

#[derive(Debug, Default)]
struct Out {
    bytes: Outbox,
    /// Threads that wait for room.
    waiting: u32,
    /// Close once everything left.
    finish: bool,
    /// Nothing leaves any more.
    dead: bool,
}

/// The connection is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gone;

impl Pipe {
    pub(crate) fn new(stream: Stream) -> Self {
        Self { stream, out: Mutex::default(), room: Condvar::new(), _seat: None }
    }

    pub(crate) fn seated(stream: Stream, seat: Seat) -> Self {
        Self { _seat: Some(seat), ..Self::new(stream) }
    }

    fn lock(&self) -> MutexGuard<'_, Out> {
        // A panic while encoding aborts the process (server) or kills the mount (client); the bytes
        // are never left half-written because `put` truncates.
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a frame for each body and writes what the socket takes. Returns the bytes left.
    ///
    /// # Errors
    /// As `put`; `Gone` when the connection just broke.
    pub(crate) fn send<T>(&self, bodies: &[T], encode: impl Fn(&T, &mut Writer)) -> Result<usize, Gone> {
        let mut out = self.lock();
        self.put_locked(&mut out, bodies, encode)?;
        self.flush_locked(&mut out)
    }

    /// Appends a frame for each body; they leave with the next `flush` or `send`. Returns the bytes that wait.
    ///
    /// # Errors
    /// `Gone` when the connection is, or a body is too big for a frame.
    pub(crate) fn put<T>(&self, bodies: &[T], encode: impl Fn(&T, &mut Writer)) -> Result<usize, Gone> {
        let mut out = self.lock();
        self.put_locked(&mut out, bodies, encode)?;
        Ok(out.bytes.len())
    }

    fn put_locked<T>(
        &self,
        out: &mut Out,
        bodies: &[T],
        encode: impl Fn(&T, &mut Writer),
    ) -> Result<(), Gone> {
        if out.dead {
            return Err(Gone);
        }
        for body in bodies {
            if !out.bytes.put(|w| encode(body, w)) {
                self.die(out);
                return Err(Gone);
            }
        }
        Ok(())
    }

    /// Writes what the socket takes. Returns the bytes left.
    ///
    /// # Errors
    /// `Gone`.
    pub(crate) fn flush(&self) -> Result<usize, Gone> {
        self.flush_locked(&mut self.lock())
    }

    fn flush_locked(&self, out: &mut Out) -> Result<usize, Gone> {
        if out.dead {
            return Err(Gone);
        }
        match out.bytes.flush(|bytes| self.stream.write(bytes)) {
            Ok(all) => {
                if all && out.finish {
                    self.die(out);
                }
                if out.waiting > 0 {
                    self.room.notify_all();
                }
                Ok(out.bytes.len())
            }
            Err(_broken) => {
                self.die(out);
                Err(Gone)
            }
        }
    }

    /// Bytes waiting for the socket.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().bytes.len()
    }

    /// Blocks while more than `limit` bytes wait.
    pub(crate) fn wait_for_room(&self, limit: usize) {
        let mut out = self.lock();
        out.waiting += 1;
        while !out.dead && out.bytes.len() > limit {
            out = self.room.wait(out).unwrap_or_else(PoisonError::into_inner);
        }
        out.waiting -= 1;
    }

    /// Closes once everything left.
    pub(crate) fn finish(&self) {
        let mut out = self.lock();
        out.finish = true;
        let _gone_either_way = self.flush_locked(&mut out);
    }

    /// Closes now.
    pub(crate) fn close(&self) {
        let mut out = self.lock();
        self.die(&mut out);
    }

    fn die(&self, out: &mut Out) {
        if !out.dead {
            out.dead = true;
            out.bytes.clear();
            self.stream.shutdown();
            self.room.notify_all();
        }
    }
}

/// The result of a socket read that ended a connection, as a person reads it.
pub(crate) fn why(error: Option<&io::Error>) -> String {
    error.map_or_else(|| "closed by peer".to_owned(), ToString::to_string)
}
