//! What others may see of a rank without stepping it: `status`, metrics, tests.
//!
//! Absent: changing anything.

use crate::config::State;
use crate::rank::Rank;
use proto::{Position, SessionId};

/// One session, for `client ls`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionStatus {
    pub id: SessionId,
    /// "uid=N host:mount pid".
    pub client: String,
    pub embedded: bool,
    pub connected: bool,
    /// Requests since it began, and without an answer now.
    pub requests: u64,
    pub in_flight: u64,
}

/// Counters and gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    pub requests: u64,
    /// Times an operation had to wait for something.
    pub parks: u64,
    pub parked: u64,
    pub loads: u64,
    pub loads_in_flight: u64,
    /// Memory that loads under way may take, about.
    pub loading_bytes: u64,
    /// Names loaded with their whole directory.
    pub loaded_ahead: u64,
    pub transactions: u64,
    pub replayed: u64,
    pub cached: u64,
    pub cached_dirs: u64,
    pub cache_bytes: u64,
    pub dirty: u64,
    pub journal_end: Position,
    pub journal_durable: Position,
    /// Bytes a replay would read.
    pub journal_backlog: u64,
    pub checkpoints: u64,
    pub checkpointing: bool,
    /// Files that are open or have data operations under way.
    pub busy_files: u64,
    pub locks: u64,
    pub sessions: u64,
    /// Inode numbers given out.
    pub next_ino: u64,
    pub full: bool,
}

impl Rank {
    /// Where it is in its life.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// Nothing is under way and nothing would go on by itself: only locks are waited for, and what is asked next.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        self.pending.is_empty()
            && self.held.len() == 0
            && self.runnable.is_empty()
            && self.pace.waiting.is_empty()
            && self.purges.is_empty()
            && !self.sessions.busy_closing()
            && self.ino_waiters.is_empty()
            && self.window.is_empty()
            && self.loads.in_flight() == 0
            && self.unconfirmed.is_empty()
            && !self.view.cache.checkpointing
            && !self.checkpoint.wanted
    }

    /// All numbers at once.
    #[must_use]
    pub fn status(&self) -> Status {
        let cache = &self.view.cache;
        Status {
            requests: self.requests,
            parks: self.parks,
            parked: self.parked.len() as u64,
            loads: self.loads.issued,
            loads_in_flight: self.loads.in_flight() as u64,
            loading_bytes: self.loads.coming_bytes(),
            loaded_ahead: self.loads.ahead,
            transactions: self.journal.entries,
            replayed: self.replayed,
            cached: u64::from(cache.nodes.len()),
            cached_dirs: u64::from(cache.dirs.len()),
            cache_bytes: cache.bytes(),
            dirty: cache.dirty(),
            journal_end: self.journal.end,
            journal_durable: self.journal.durable,
            journal_backlog: self.journal.backlog(),
            checkpoints: self.checkpoint.completed,
            checkpointing: cache.checkpointing,
            busy_files: self.view.files.len() as u64,
            locks: self.view.locks.held() as u64,
            sessions: self.sessions.map.len() as u64,
            next_ino: self.view.inos.next,
            full: self.view.is_full(),
        }
    }

    /// The sessions in order of their numbers.
    #[must_use]
    pub fn sessions(&self) -> Vec<SessionStatus> {
        let describe = |(id, s): (&SessionId, &crate::session::Session)| SessionStatus {
            id: *id,
            client: String::from_utf8_lossy(&s.client).into_owned(),
            embedded: s.embedded,
            connected: s.conn.is_some(),
            requests: s.requests,
            in_flight: s.in_flight as u64,
        };
        self.sessions.map.iter().map(describe).collect()
    }
}
