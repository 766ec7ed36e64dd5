//! The rank's end of the journal: entries are built here, appended once per step, and waited for.
//!
//! Absent: segments and files; what waits (`hold.rs`).

use crate::output::Output;
use proto::journal::{TxnCluster, TxnOrigin, begin_entry, end_entry, put_mark, put_transaction};
use proto::{Position, Writer};
use stdx::time::SECOND;
use stdx::{Mono, Now, Outbox};

/// The stream's positions and the bytes of this step.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    /// Where the next entry goes.
    pub end: Position,
    /// Everything below is durable.
    pub durable: Position,
    /// Replay would start here.
    pub checkpointed: Position,
    buffer: Writer,
    urgent: bool,
    /// A commit was asked for up to here.
    commit_requested: Position,
    last_append: Mono,
    /// Something other than a mark was appended since the last mark.
    unmarked: bool,
    pub failed: bool,
    pub entries: u64,
}

impl Journal {
    /// Starts at the end that the journal's reader found.
    pub(crate) fn start(&mut self, end: Position) {
        (self.end, self.durable, self.commit_requested) = (end, end, end);
    }

    /// Appends a transaction; returns where the journal ends with it.
    pub(crate) fn transaction(&mut self, now: Now, origin: Option<&TxnOrigin<'_>>, muts: &[u8]) -> Position {
        if self.buffer.0.capacity() == 0 {
            let result = origin.map_or(0, |origin| origin.result.len());
            self.buffer.0.reserve(muts.len() + result + 64);
        }
        let start = begin_entry(&mut self.buffer, self.end, self.durable);
        put_transaction(&mut self.buffer, now.wall, origin, TxnCluster::default());
        self.buffer.raw(muts);
        self.finish(start, now);
        self.unmarked = true;
        self.entries += 1;
        self.end
    }

    fn finish(&mut self, start: usize, now: Now) {
        let len = end_entry(&mut self.buffer, start);
        self.end = Position(self.end.0 + len as u64);
        self.last_append = now.mono;
    }

    /// An idle journal says once how far it is durable, so that a bad entry below can be told from a
    /// torn tail.
    pub(crate) fn mark_if_idle(&mut self, now: Now) {
        if self.mark_due().is_some_and(|due| due <= now.mono) {
            let start = begin_entry(&mut self.buffer, self.end, self.durable);
            put_mark(&mut self.buffer);
            self.finish(start, now);
            self.unmarked = false;
        }
    }

    /// When a mark is due.
    pub(crate) fn mark_due(&self) -> Option<Mono> {
        let idle = self.unmarked && !self.failed && self.durable == self.end;
        idle.then(|| self.last_append.after(SECOND))
    }

    /// Something waits for everything appended so far.
    pub(crate) fn want_durable(&mut self) {
        self.urgent |= self.end > self.durable && self.commit_requested < self.end;
    }

    /// Hands this step's bytes over.
    pub(crate) fn flush(&mut self, out: &mut Outbox<Output>) {
        let urgent = std::mem::take(&mut self.urgent);
        if !self.buffer.is_empty() {
            let bytes = std::mem::take(&mut self.buffer.0);
            let position = Position(self.end.0 - bytes.len() as u64);
            out.push(Output::Append { position, bytes, urgent });
        } else if urgent {
            out.push(Output::Commit);
        }
        if urgent {
            self.commit_requested = self.end;
        }
    }

    /// Bytes replay would have to read.
    pub(crate) const fn backlog(&self) -> u64 {
        self.end.0.saturating_sub(self.checkpointed.0)
    }
}
