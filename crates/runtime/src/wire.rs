//! Byte queues of a connection: frames taken off what arrived, frames put behind what must leave.
//!
//! Absent: sockets (`stream.rs`), the meaning of bodies.

use proto::frame::{FRAME_BYTES_MAX, FRAME_HEADER_BYTES, put_frame, take_frame};
use proto::{DecodeError, Writer};
use std::io::{self, ErrorKind};

/// Bytes read from a socket in one call, at most; and where little came the last time. Of thousands of connections most say
/// little.
const READ_BYTES: usize = 64 << 10;
const READ_BYTES_MIN: usize = 4 << 10;
/// Memory a queue keeps when it has run empty: as much as it needs at a time, within these.
const KEEP_BYTES: usize = 256 << 10;

/// What a read ended with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadEnd {
    /// Nothing more for now.
    Drained,
    /// Less than was asked for: nothing more for now, unless the peer's end lies behind it.
    Short,
    /// The budget is used; there may be more.
    More,
    /// The peer is gone.
    Closed,
}

/// Bytes that arrived and were not taken yet: never more than one frame and one read.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    /// Memory: what arrived is `start..filled`. What lies behind that is cleared once, not before every read.
    bytes: Vec<u8>,
    start: usize,
    filled: usize,
    /// How much the next read asks for: twice what the last one brought.
    ask: usize,
}

impl Inbox {
    /// Reads once from a non-blocking source.
    ///
    /// # Errors
    /// Those of the source, except `WouldBlock` and `Interrupted`.
    pub(crate) fn fill(&mut self, read: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> io::Result<ReadEnd> {
        let ask = self.ask.clamp(READ_BYTES_MIN, READ_BYTES);
        if self.start == self.filled {
            (self.start, self.filled) = (0, 0);
            let keep = (2 * self.ask.max(READ_BYTES_MIN)).min(KEEP_BYTES);
            self.bytes.truncate(keep);
            self.bytes.shrink_to(keep);
        } else if self.start > READ_BYTES {
            self.bytes.copy_within(self.start..self.filled, 0);
            (self.start, self.filled) = (0, self.filled - self.start);
        }
        let end = self.filled + ask;
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        let result = read(&mut self.bytes[self.filled..end]);
        let got = *result.as_ref().unwrap_or(&0);
        self.filled += got;
        // Slowly down: a stream pauses between two bursts, too.
        self.ask = (2 * got).max(ask / 2);
        match result {
            Ok(0) => Ok(ReadEnd::Closed),
            Ok(n) if n < ask => Ok(ReadEnd::Short),
            Ok(_) => Ok(ReadEnd::More),
            Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(ReadEnd::Drained),
            Err(e) if e.kind() == ErrorKind::Interrupted => Ok(ReadEnd::More),
            Err(e) => Err(e),
        }
    }

    /// The next whole frame's body, which stays; `None` while it is not complete.
    ///
    /// # Errors
    /// As `next`.
    pub(crate) fn peek(&self) -> Result<Option<&[u8]>, DecodeError> {
        Ok(take_frame(&self.bytes[self.start..self.filled])?.map(|(body, _)| body))
    }

    /// Takes the next whole frame's body; `None` while it is not complete.
    ///
    /// # Errors
    /// An oversized or damaged frame: the connection must be closed.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>, DecodeError> {
        match take_frame(&self.bytes[self.start..self.filled])? {
            None => Ok(None),
            Some((body, len)) => {
                self.start += len;
                Ok(Some(body))
            }
        }
    }
}

/// Bytes that must leave.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    w: Writer,
    start: usize,
}

impl Outbox {
    /// Bytes waiting.
    pub(crate) fn len(&self) -> usize {
        self.w.len() - self.start
    }

    /// Appends a frame; `false` when its body is above the limit (nothing is appended then).
    #[must_use]
    pub(crate) fn put(&mut self, body: impl FnOnce(&mut Writer)) -> bool {
        let before = self.w.len();
        put_frame(&mut self.w, body);
        let fits = self.w.len() - before <= FRAME_BYTES_MAX + FRAME_HEADER_BYTES;
        if !fits {
            self.w.0.truncate(before);
        }
        fits
    }

    /// Writes until nothing is left or the sink would block. Returns whether nothing is left.
    ///
    /// # Errors
    /// Those of the sink, except `WouldBlock` and `Interrupted`.
    pub(crate) fn flush(&mut self, mut write: impl FnMut(&[u8]) -> io::Result<usize>) -> io::Result<bool> {
        while self.len() > 0 {
            match write(&self.w.0[self.start..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(n) => self.start += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    self.compact();
                    return Ok(false);
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        self.w.0.clear();
        self.w.0.shrink_to(KEEP_BYTES);
        self.start = 0;
        Ok(true)
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    fn compact(&mut self) {
        if self.start > self.w.len() / 2 {
            self.w.0.drain(..self.start);
            self.start = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(bodies: &[&[u8]]) -> Vec<u8> {
        let mut out = Outbox::default();
        for body in bodies {
            assert!(out.put(|w| {
                w.raw(body);
            }));
        }
        out.w.0
    }

    #[test]
    fn frames_cross_in_any_pieces() {
        let sent = framed(&[b"one", b"", &[7; 100_000]]);
        for piece in [1, 7, 4096, READ_BYTES] {
            let (mut inbox, mut bodies) = (Inbox::default(), Vec::new());
            let mut rest = &sent[..];
            while !rest.is_empty() {
                let filled = inbox.fill(|buf| {
                    let (chunk, later) = rest.split_at(rest.len().min(piece).min(buf.len()));
                    buf[..chunk.len()].copy_from_slice(chunk);
                    rest = later;
                    Ok(chunk.len())
                });
                assert!(filled.is_ok());
                while let Some(body) = inbox.next().expect("sound") {
                    bodies.push(body.to_vec());
                }
            }
            assert_eq!(bodies, vec![b"one".to_vec(), Vec::new(), vec![7; 100_000]]);
        }
    }

    #[test]
    fn what_an_earlier_read_left_is_not_taken_for_what_arrived() {
        let (long, short) = (framed(&[&[9; 1000]]), framed(&[&[9; 900]]));
        let mut inbox = Inbox::default();
        let mut bring = |bytes: &[u8]| {
            let filled = inbox.fill(|buf| {
                buf[..bytes.len()].copy_from_slice(bytes);
                Ok(bytes.len())
            });
            assert_eq!(filled.ok(), Some(ReadEnd::Short));
            inbox.next().expect("sound").map(<[u8]>::len)
        };
        assert_eq!(bring(&long), Some(1000));
        assert_eq!(bring(&short[..100]), None);
        assert_eq!(bring(&short[100..]), Some(900));
    }

    /// Each of thousands of idle connections kept 64 KiB.
    #[test]
    fn a_connection_that_says_little_keeps_little() {
        let mut inbox = Inbox::default();
        let mut bring = |bytes: usize| {
            let filled = inbox.fill(|buf| Ok(bytes.min(buf.len())));
            assert!(filled.is_ok());
            inbox.start = inbox.filled;
            inbox.bytes.capacity()
        };
        assert!(bring(100) <= 2 * READ_BYTES_MIN);
        let streamed = (0..9).map(|_| bring(READ_BYTES)).last();
        assert!(streamed.is_some_and(|kept| kept >= READ_BYTES), "a stream is read in large pieces");
        let kept = (0..9).map(|_| bring(100)).last();
        assert!(kept.is_some_and(|kept| kept <= 2 * READ_BYTES_MIN), "{kept:?}");
    }

    #[test]
    fn an_oversized_frame_is_refused_before_it_is_buffered() {
        let mut inbox = Inbox::default();
        let mut bytes = [0_u8; 8];
        bytes[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        inbox
            .fill(|buf| {
                buf[..8].copy_from_slice(&bytes);
                Ok(8)
            })
            .expect("fill");
        assert!(inbox.next().is_err());
        let mut out = Outbox::default();
        assert!(!out.put(|w| {
            w.raw(&vec![0; FRAME_BYTES_MAX + 1]);
        }));
        assert_eq!(out.len(), 0);
    }

    #[test]
    fn what_did_not_leave_stays_in_order() {
        let mut out = Outbox::default();
        assert!(out.put(|w| {
            w.raw(b"abcdef");
        }));
        let whole = out.w.0.clone();
        let mut sent = Vec::new();
        for _ in 0..whole.len() {
            let mut room = 1;
            let done = out.flush(|bytes| {
                if room == 0 {
                    return Err(ErrorKind::WouldBlock.into());
                }
                room -= 1;
                sent.push(bytes[0]);
                Ok(1)
            });
            assert!(done.is_ok());
        }
        assert_eq!(sent, whole);
    }
}
