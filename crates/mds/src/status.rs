//! What others may see of a rank without stepping it: `status`, metrics, tests.
//!
//! Absent: changing anything.

use crate::caps::book::Book;
use crate::config::{RankConfig, State};
use crate::meter::{Asked, OpCount, TrafficStatus};
use crate::op::{Op, Waits};
use crate::rank::{Pending, Rank};
use crate::session::Session;
use crate::warm::WarmStatus;
use proto::request::Request;
use proto::{Ino, Kind, Name, Position, SessionId};
use std::collections::BTreeMap;
use stdx::Mono;

/// Directories above an inode that a path is followed up through, and bytes of names, about.
const DEPTH_MAX: usize = 256;
const PATH_BYTES: usize = 512;

/// One session, for `client ls`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionStatus {
    pub id: SessionId,
    /// `uid=N [in=0xINO ]HOST:MOUNT pid P`.
    pub client: String,
    /// The directory that it is limited to.
    pub limit: Option<Ino>,
    pub embedded: bool,
    pub connected: bool,
    pub traffic: TrafficStatus,
    /// Requests without an answer now.
    pub in_flight: u64,
    /// Inodes on which it holds capabilities.
    pub caps: u64,
    /// For how long it has owed the return of one that others wait for, and of one that is to make room; 0: it owes none.
    pub late_ns: u64,
    pub room_ns: u64,
    /// Results kept for it because it has not said that it has them.
    pub results: u64,
}

/// A request, for `ops`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpStatus {
    pub session: SessionId,
    pub kind: Kind,
    /// Where the inode is, as far as the cache knows: `/a/b`, or `#0x10000000001/b` below a directory that is not cached.
    pub path: String,
    /// Since the rank got it; of one that is over, until its answer left.
    pub age_ns: u64,
    /// `None`: it is over.
    pub waits: Option<Waits>,
    /// As `Blocked` counts them.
    pub blocked: bool,
}

/// Requests under way for longer than `mds_op_complaint_time`, except those that wait for a file lock: that may be for hours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Blocked {
    pub count: u64,
    pub oldest_ns: u64,
}

/// Counters and gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
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
    /// Names in the cache, also those that are known to be absent.
    pub cached: u64,
    /// Inodes in the cache: with each its first name.
    pub cached_inodes: u64,
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
    /// Inodes on which sessions hold capabilities, each session counted.
    pub caps: u64,
    /// Memory that the records of these take.
    pub caps_bytes: u64,
    /// Recalls without an answer.
    pub recalls: u64,
    /// Requests that wait behind what their session performed.
    pub lined_up: u64,
    pub sessions: u64,
    /// Inode numbers given out.
    pub next_ino: u64,
    pub full: bool,
}

/// Whether it is a client's: other ranks are not listed among these.
const fn is_shown(session: &Session) -> bool {
    !session.evicted && session.rank.is_none()
}

impl Rank {
    /// Where it is in its life.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// What it was made with.
    #[must_use]
    pub const fn config(&self) -> &RankConfig {
        &self.view.config
    }

    /// Nothing is under way and nothing would go on by itself: only locks are waited for, and what is asked next.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        self.data_is_idle()
            && self.held.len() == 0
            && self.runnable.is_empty()
            && self.pace.waiting.is_empty()
            && self.purges.is_empty()
            && !self.sessions.busy_closing()
            && self.ino_waiters.is_empty()
            && self.reconnect_waiters.is_empty()
            && self.settling.is_empty()
            && self.after_presented.is_empty()
            && self.sessions.lines.is_empty()
            && self.peers.is_idle()
            && self.moves.is_idle()
            && self.view.book.recalls() == 0
            && self.loads.in_flight() == 0
            && !self.view.cache.checkpointing
            && !self.checkpoint.wanted
    }

    /// All numbers at once.
    #[must_use]
    pub fn status(&self) -> Status {
        let cache = &self.view.cache;
        Status {
            parks: self.parks,
            parked: self.parked.len() as u64,
            loads: self.loads.issued,
            loads_in_flight: self.loads.in_flight() as u64,
            loading_bytes: self.loads.coming_bytes(),
            loaded_ahead: self.loads.ahead,
            transactions: self.journal.entries,
            replayed: self.replayed,
            cached: u64::from(cache.nodes.len()),
            cached_inodes: cache.inodes(),
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
            caps: self.view.book.total(),
            recalls: self.view.book.recalls() as u64,
            lined_up: self.in_lines().count() as u64,
            caps_bytes: self.view.book.bytes(),
            sessions: self.sessions.map.values().filter(|session| is_shown(session)).count() as u64,
            next_ino: self.view.inos.next,
            full: self.view.is_full(),
        }
    }

    /// How far the last `Warmup` is.
    #[must_use]
    pub fn warm_status(&self) -> WarmStatus {
        self.warm.status()
    }

    /// Requests, bytes and rates of all sessions.
    #[must_use]
    pub fn traffic(&self, now: Mono) -> TrafficStatus {
        self.meter.traffic.status(now)
    }

    /// What requests of each kind have cost, in the order of `Kind::all`.
    #[must_use]
    pub const fn op_counts(&self) -> &[OpCount; Kind::COUNT] {
        &self.meter.kinds
    }

    /// Every request without an answer that was looked at: what it is and waits for.
    pub(crate) fn unanswered(&self) -> impl Iterator<Item = (Asked, Waits, Option<&Op>)> {
        let pending = self.pending.values().filter_map(|pending| match pending {
            Pending::Op(op, ..) => Some(op.as_ref()),
            Pending::Inner(_) => None,
        });
        let ops = self.parked.values().map(Box::as_ref).chain(pending);
        let held = self.held.asked().map(|asked| (*asked, Waits::JournalSync, None));
        ops.map(|op| (op.asked(), op.waits, Some(op))).chain(held)
    }

    /// Requests that wait behind what their session performed.
    fn in_lines(&self) -> impl Iterator<Item = (Asked, &Request)> {
        self.sessions.map.iter().flat_map(|(id, session)| {
            session.line.iter().filter_map(|(since, message)| {
                let (tid, request) = message.asked()?;
                Some((Asked::new(*id, tid, request, *since), request))
            })
        })
    }

    /// Every request without an answer: what it is, waits for, and asks.
    fn asked(&self) -> impl Iterator<Item = (Asked, Waits, Option<&Request>)> {
        let planned = self.unanswered().map(|(asked, waits, op)| (asked, waits, op.map(|op| &op.request)));
        planned.chain(self.in_lines().map(|(asked, request)| (asked, Waits::Line, Some(request))))
    }

    /// The requests under way, the oldest first and those last that wait for file locks, at most `max`; and how many there are.
    #[must_use]
    pub fn operations(&self, now: Mono, max: usize) -> (Vec<OpStatus>, u64) {
        let mut all: Vec<_> = self.asked().collect();
        let count = all.len() as u64;
        all.sort_unstable_by_key(|(asked, waits, _)| {
            (*waits == Waits::Lock, asked.since, asked.session, asked.tid)
        });
        all.truncate(max);
        let shown = |(asked, waits, request): (Asked, Waits, Option<&Request>)| OpStatus {
            session: asked.session,
            kind: asked.kind,
            path: self.path(asked.ino, request.and_then(Request::subject).and_then(|(_, name)| name)),
            age_ns: now.since(asked.since),
            waits: Some(waits),
            blocked: self.is_blocked(now, asked, waits),
        };
        (all.into_iter().map(shown).collect(), count)
    }

    /// Requests of late that were slow and are over, the last one first.
    #[must_use]
    pub fn slow_operations(&self) -> Vec<OpStatus> {
        let shown = |slow: &crate::meter::Slow| OpStatus {
            session: slow.asked.session,
            kind: slow.asked.kind,
            path: self.path(slow.asked.ino, None),
            age_ns: slow.nanos,
            waits: None,
            blocked: false,
        };
        self.meter.slow.iter().map(shown).collect()
    }

    /// See `Blocked`.
    #[must_use]
    pub fn blocked(&self, now: Mono) -> Blocked {
        let blocked = self.asked().filter(|(asked, waits, _)| self.is_blocked(now, *asked, *waits));
        blocked.fold(Blocked::default(), |sum, (asked, ..)| Blocked {
            count: sum.count + 1,
            oldest_ns: sum.oldest_ns.max(now.since(asked.since)),
        })
    }

    fn is_blocked(&self, now: Mono, asked: Asked, waits: Waits) -> bool {
        waits != Waits::Lock && now.since(asked.since) >= self.view.config.complaint_ns
    }

    /// Requests without an answer.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.asked().count() as u64
    }

    /// Where an inode, or a name in it, is: up to the root, or to what is not cached.
    fn path(&self, mut ino: Ino, name: Option<&Name>) -> String {
        if ino == Ino::NONE {
            return "-".to_owned();
        }
        let cache = &self.view.cache;
        let mut names: Vec<Vec<u8>> = name.map(|name| name.as_bytes().to_vec()).into_iter().collect();
        let mut bytes = 0;
        for _ in 0..DEPTH_MAX {
            if ino == Ino::ROOT || bytes > PATH_BYTES {
                break;
            }
            // The name of an inode in a directory of the system's is a number.
            let slot = cache.by_ino(ino).filter(|slot| !cache.parent_of(*slot).is_reserved());
            let Some(slot) = slot else { break };
            let name = cache.node(slot).name.as_bytes();
            bytes += name.len();
            names.push(name.to_vec());
            ino = cache.parent_of(slot);
        }
        let mut path = if ino == Ino::ROOT { String::new() } else { format!("#{:#x}", ino.0) };
        for name in names.iter().rev() {
            path.push('/');
            path.push_str(&String::from_utf8_lossy(name));
        }
        if path.is_empty() { "/".to_owned() } else { path }
    }

    /// Where a cached inode is.
    #[must_use]
    pub fn place_of(&self, ino: Ino) -> Option<(Ino, String)> {
        let slot = self.view.cache.by_ino(ino)?;
        let name = String::from_utf8_lossy(self.view.cache.node(slot).name.as_bytes()).into_owned();
        Some((self.view.cache.parent_of(slot), name))
    }

    /// Into how many parts the names of a directory are divided, as a power of two; whether that is about to change; and whether new
    /// directories in it are placed by slots one by one (`dir.pin.distributed`).
    #[must_use]
    pub fn spread_of(&self, dir: Ino) -> (u8, bool, bool) {
        let depth = self.view.cache.spread(dir).map_or(0, |spread| spread.depth);
        let ext = self.view.cache.by_ino(dir).and_then(|node| self.view.cache.ext(node));
        (depth, self.spreads.is_about(dir), ext.is_some_and(|ext| ext.policies.distributed))
    }

    /// The sessions in order of their numbers.
    #[must_use]
    pub fn sessions(&self, now: Mono) -> Vec<SessionStatus> {
        let mut in_flight: BTreeMap<SessionId, u64> = BTreeMap::new();
        for (asked, ..) in self.asked() {
            *in_flight.entry(asked.session).or_default() += 1;
        }
        let owes = |s: &Session, since: fn(&Book, u16) -> Option<Mono>| {
            s.place.and_then(|place| since(&self.view.book, place)).map_or(0, |since| now.since(since))
        };
        let describe = |(id, s): (&SessionId, &Session)| SessionStatus {
            id: *id,
            client: String::from_utf8_lossy(&s.client).into_owned(),
            limit: Some(s.limit).filter(|limit| *limit != Ino::NONE),
            embedded: s.embedded,
            connected: s.conn.is_some(),
            traffic: s.traffic.status(now),
            in_flight: in_flight.get(id).copied().unwrap_or(0),
            caps: s.place.map_or(0, |place| self.view.book.count(place)),
            late_ns: owes(s, |book, place| book.owes_since(place).0),
            room_ns: owes(s, |book, place| book.owes_since(place).1),
            results: s.results.len() as u64,
        };
        self.sessions.map.iter().filter(|(_, session)| is_shown(session)).map(describe).collect()
    }
}
