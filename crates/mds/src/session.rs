//! The tables of sessions and connections; whether a request is new, so that a retried one has one effect and one answer.
//!
//! Absent: the outcomes that are remembered for that (`results.rs`); how sessions come (`greeting.rs`), stay and go (`life.rs`); who may keep
//! what (`caps.rs`); the wire.

mod greeting;
pub(crate) mod life;
mod looks;
mod results;

pub(crate) use looks::LOOK_PART;
pub(crate) use results::{Results, StoredResult};

use crate::cache::Source;
use crate::caps::Fading;
use crate::config::Limits;
use crate::early::is_eager;
use crate::input::{ConnId, Peer};
use crate::meter::Traffic;
use crate::op::OpId;
use crate::output::{Level, Output};
use looks::Looks;
use proto::caps::Bits;
use proto::message::{At, ClientInfo, ClientMsg};
use proto::system::{SessionRecord, session_flags};
use proto::{Incarnation, Ino, Position, RankId, SessionId, Tid};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use stdx::{Mono, Now};

/// Bits of a session number below the incarnation.
const COUNTER_BITS: u32 = 32;
/// A floor is journaled when it has moved this far.
const FLOOR_STEP: u64 = 256;

/// Whether a request runs.
#[derive(Debug)]
pub(crate) enum Admitted {
    New,
    /// It runs already, or its answer was acknowledged.
    Known,
    Done(StoredResult),
}

/// One session.
#[derive(Debug, Default)]
pub(crate) struct Session {
    pub conn: Option<ConnId>,
    pub embedded: bool,
    /// It is that life of another rank: in no journal, and without a lease.
    pub rank: Option<(RankId, Incarnation)>,
    /// Of a rank: its clients present yet what they were told before it died.
    pub presents: bool,
    /// The cluster map that it has.
    pub map_version: u64,
    /// It was told the seed of name hashes.
    pub seed_told: bool,
    pub check: Option<proto::Cred>,
    /// The directory that it is limited to; `Ino::NONE`: it is not.
    pub limit: Ino,
    /// `uid=N [in=0xINO ]HOST:MOUNT pid P`; of a long place the beginning and three dots.
    pub client: Box<[u8]>,
    /// The user in it; none: it says none.
    pub uid: Option<u32>,
    pub floor: Tid,
    journaled_floor: Tid,
    /// Outcomes of requests that must not run twice.
    pub results: Results,
    /// Requests that have no answer yet.
    pub running: BTreeSet<Tid>,
    pub in_flight: usize,
    lease_end: Mono,
    /// Looks at a lease that has run out.
    looks: Looks,
    /// What was recalled must be given back before.
    pub return_end: Option<Mono>,
    /// Looks at that when it is over.
    return_looks: Looks,
    /// What it has a use for.
    pub wants: Bits,
    /// Its place in the book of capabilities.
    pub place: Option<u16>,
    /// It uses nothing that was granted on an earlier connection.
    pub settled: bool,
    /// Nobody is served by it any more; it ends when what its client was granted has run out. In the journal as a flag: what its client
    /// performed must not run over what others have done since, in the next life of the rank either.
    pub evicted: bool,
    /// From a former life of the rank and not back yet.
    pub absent: bool,
    /// New, and has asked for nothing yet.
    pub fresh: bool,
    /// Files that it has reclaimed since it greeted.
    pub reclaims: u32,
    pub traffic: Traffic,
    /// Inode numbers that are its own to give out, unused ones only.
    pub delegated: Vec<InoRange>,
    /// It may be answered early when everything up to there is durable; none: nothing was delegated to it yet.
    pub early_from: Option<Position>,
    /// It is granted no capabilities: a rank that lives again need not wait for it.
    pub keeps_nothing: bool,
    /// The journal says that it has nothing to present.
    pub quiet: bool,
    /// The transaction at hand says that it may have something to present again; it delegates no numbers, then.
    pub was_quiet: bool,
    /// When it asked for something last.
    pub last_request: Mono,
    /// Up to where it was answered early.
    pub told_early: Position,
    /// What it performed and is being carried out.
    pub performing: Option<OpId>,
    /// What came after it, and when.
    pub line: VecDeque<(Mono, ClientMsg)>,
    /// What is given back and offered in it, item by item: nothing else of it may be longer than a request.
    pub line_items: usize,
}

/// A run of inode numbers that a session gives out in ascending order: `next` to below `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InoRange {
    pub next: u64,
    pub end: u64,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Conn {
    pub peer: Peer,
    /// The directory to which the server limits whoever greets on it; `Ino::NONE`: it does not.
    pub limit: Ino,
    pub session: Option<SessionId>,
}

/// A greeting that came before the rank could answer it.
#[derive(Debug)]
pub(crate) struct WaitingHello {
    session: SessionId,
    info: ClientInfo,
    wants: Bits,
    at: At,
}

/// All sessions and connections.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    pub map: BTreeMap<SessionId, Session>,
    /// There was more than one in this life of the rank, so what is under way may be another's than who is there now.
    pub many: bool,
    pub conns: BTreeMap<ConnId, Conn>,
    next: u64,
    /// Records to be deleted by the next checkpoint.
    pub closed: Vec<SessionId>,
    /// One for each connection: the last.
    pub greeting: BTreeMap<ConnId, WaitingHello>,
    /// Sessions that an operator ended before the journal was read.
    evict_then: BTreeSet<SessionId>,
    /// Sessions that ended and may have locks yet.
    unlocking: Vec<SessionId>,
    /// Those without, with how far their opens have been dropped.
    closing: Vec<(SessionId, Ino)>,
    /// No lease ends before.
    next_expiry: Option<Mono>,
    /// Sessions of a former life of the rank that may keep what it told them.
    pub former: BTreeSet<SessionId>,
    /// When all of that has run out.
    pub former_end: Option<Mono>,
    /// Capabilities that run out by themselves.
    pub fading: Vec<Fading>,
    /// Sessions that are answered early.
    pub eager: usize,
    /// Those of them that were told something early and not yet that it is durable.
    pub hearing: BTreeSet<SessionId>,
    /// Sessions whose line may go on.
    pub lines: VecDeque<SessionId>,
    /// When to look for sessions that have gone quiet.
    pub quiet_due: Option<Mono>,
}

impl Sessions {
    /// A session mutation: the same in both lives, except that a live session is in the table already.
    pub(crate) fn replay_session(&mut self, id: SessionId, open: bool, client: &[u8], source: Source) {
        match (open, source) {
            (true, Source::Replay) => {
                let (uid, limit) = (greeting::uid_of(client), greeting::limit_of(client));
                let session =
                    Session { client: client.into(), uid, limit, absent: true, ..Default::default() };
                self.insert(id, session);
            }
            (true, Source::Live) => {}
            (false, Source::Replay) => {
                self.map.remove(&id);
                self.closed.push(id);
            }
            (false, Source::Live) => self.closed.push(id),
        }
    }

    /// A session record from the store.
    pub(crate) fn restore(&mut self, id: SessionId, record: SessionRecord) {
        let results = record
            .results
            .into_iter()
            .map(|(tid, bytes)| (tid, StoredResult { bytes, former: true, about: Ino::NONE }))
            .collect();
        let session = Session {
            uid: greeting::uid_of(&record.client),
            limit: greeting::limit_of(&record.client),
            client: record.client,
            floor: record.floor,
            journaled_floor: record.floor,
            results,
            absent: true,
            keeps_nothing: record.flags & session_flags::KEEPS_NOTHING != 0,
            quiet: record.flags & session_flags::QUIET != 0,
            evicted: record.flags & session_flags::EVICTED != 0,
            delegated: record.delegated.iter().map(|(first, count)| InoRange::new(*first, *count)).collect(),
            early_from: (!record.delegated.is_empty()).then_some(Position(0)),
            ..Default::default()
        };
        self.insert(id, session);
    }

    pub(crate) fn delegate_inos(&mut self, id: SessionId, first: Ino, count: u32) {
        let Some(session) = self.map.get_mut(&id) else { return };
        if session.delegated.last().is_none_or(|last| last.end <= first.0) {
            // Else a record of the checkpoint that the tail begins in has it already.
            session.delegated.push(InoRange::new(first, count));
        }
        if session.absent {
            session.early_from = Some(Position(0));
        }
    }

    pub(crate) fn set_flags(&mut self, id: SessionId, flags: u8, source: Source) {
        let Some(session) = self.map.get_mut(&id) else { return };
        let quiet = flags & session_flags::QUIET != 0;
        // What the tail says was told in the life before: nothing is at hand that could be told instead of numbers.
        session.was_quiet = session.quiet && !quiet && source == Source::Live;
        session.quiet = quiet;
        session.keeps_nothing = flags & session_flags::KEEPS_NOTHING != 0;
        session.evicted = flags & session_flags::EVICTED != 0;
    }

    pub(crate) fn insert(&mut self, id: SessionId, session: Session) {
        self.map.insert(id, session);
        self.many |= self.map.len() > 1;
    }

    pub(crate) fn count_eager(&mut self) {
        self.eager = self.map.values().filter(|session| is_eager(session)).count();
    }

    pub(crate) fn set_floor(&mut self, id: SessionId, floor: Tid) {
        if let Some(session) = self.map.get_mut(&id) {
            session.journaled_floor = session.journaled_floor.max(floor);
            session.raise_floor(floor);
        }
    }

    /// Why this peer gets no session more. The mount in the server's process always does.
    fn crowded(&self, peer: &Peer, limits: &Limits) -> Option<String> {
        let cred = match peer {
            Peer::Embedded => return None,
            Peer::Trusted => None,
            Peer::User(cred) => Some(cred),
        };
        let all = self.map.len();
        if all >= limits.sessions {
            return Some(format!("{all} sessions are open, and no more are taken"));
        }
        // Below that nobody can have so many; else they are counted.
        let cred = cred.filter(|_| all >= limits.sessions_per_user)?;
        let own = self.map.values().filter(|session| session.uid == Some(cred.uid)).count();
        (own >= limits.sessions_per_user)
            .then(|| format!("user {} has {own} sessions open, and gets no more", cred.uid))
    }

    /// A number that no session has; none when those of this incarnation are used up.
    pub(crate) fn number(&mut self, incarnation: u64) -> Option<SessionId> {
        while self.next < (1 << COUNTER_BITS) - 1 {
            self.next += 1;
            let id = SessionId((incarnation << COUNTER_BITS) | self.next);
            // One of a former life, whose numbers were shorter.
            if !self.map.contains_key(&id) {
                return Some(id);
            }
        }
        None
    }

    /// Something was recalled; with something recalled already, it has no longer for that. Where that is over it is looked at now: a
    /// look that was due long ago would be taken for a pause of the rank's.
    pub(crate) fn set_return_deadline(&mut self, id: SessionId, end: Mono, now: Mono) {
        let Some(session) = self.map.get_mut(&id) else { return };
        if session.return_end.is_none() {
            session.return_looks = Looks::default();
        }
        let end = *session.return_end.get_or_insert(end);
        if session.is_clients() {
            let due = end.max(now);
            self.next_expiry = Some(self.next_expiry.map_or(due, |next| next.min(due)));
        }
    }

    /// Something was given back.
    pub(crate) fn clear_return_deadline(&mut self, id: SessionId) {
        if let Some(session) = self.map.get_mut(&id) {
            session.return_end = None;
        }
    }

    /// What a line of the log adds about a session.
    pub(crate) fn named(&self, id: SessionId) -> String {
        self.map.get(&id).map(Session::named).unwrap_or_default()
    }

    /// Whether locks or opens of an ended session are still to be dropped.
    fn is_closing(&self, id: SessionId) -> bool {
        self.unlocking.contains(&id) || self.closing.iter().any(|(closing, _)| *closing == id)
    }

    pub(crate) fn busy_closing(&self) -> bool {
        !(self.unlocking.is_empty() && self.closing.is_empty())
    }

    pub(crate) const fn expiry(&self) -> Option<Mono> {
        self.next_expiry
    }

    /// Its client was heard.
    pub(crate) fn lease(&mut self, id: SessionId, now: Now, lease_ns: u64) -> Option<&Session> {
        let end = now.mono.after(lease_ns);
        let session = self.map.get_mut(&id)?;
        if session.is_clients() {
            (session.lease_end, session.looks) = (end, Looks::default());
            self.next_expiry = Some(self.next_expiry.map_or(end, |next| next.min(end)));
        }
        Some(session)
    }
}

impl InoRange {
    pub(crate) const fn has(&self, ino: Ino) -> bool {
        self.next <= ino.0 && ino.0 < self.end
    }

    const fn new(first: Ino, count: u32) -> Self {
        Self { next: first.0, end: first.0.saturating_add(count as u64) }
    }
}

impl Session {
    /// That of another rank.
    pub(crate) fn of_rank(conn: ConnId, rank: (RankId, Incarnation), client: Box<[u8]>) -> Self {
        let (rank, conn) = (Some(rank), Some(conn));
        Self { conn, client, rank, presents: true, keeps_nothing: true, settled: true, ..Self::default() }
    }

    /// Whether a client elsewhere has it: it is journaled, and has a lease.
    pub(crate) const fn is_clients(&self) -> bool {
        !self.embedded && self.rank.is_none()
    }

    /// What a line of the log adds: its client's user, host, mount point and process.
    pub(crate) fn named(&self) -> String {
        format!(" ({})", String::from_utf8_lossy(&self.client))
    }

    /// A line of the log about its life.
    pub(crate) fn note(&self, id: SessionId, what: &str) -> Output {
        Output::Note { level: Level::Info, text: format!("session {} {what}{}", id.0, self.named()) }
    }

    /// What the journal says of it, with it quiet or not.
    pub(crate) const fn flags(&self, quiet: bool) -> u8 {
        let keeps_nothing = if self.keeps_nothing { session_flags::KEEPS_NOTHING } else { 0 };
        let evicted = if self.evicted { session_flags::EVICTED } else { 0 };
        keeps_nothing | evicted | if quiet { session_flags::QUIET } else { 0 }
    }

    /// Whether it may have been answered early, or have performed something, that a crash takes back.
    pub(crate) const fn may_present(&self) -> bool {
        !self.delegated.is_empty() && !self.quiet && !self.evicted
    }

    /// Whether that number is its own to give out.
    pub(crate) fn has_delegated(&self, ino: Ino) -> bool {
        self.delegated.iter().any(|range| range.has(ino))
    }

    /// Whether something it performed is being carried out, or waits to be.
    pub(crate) fn is_in_line(&self) -> bool {
        self.performing.is_some() || !self.line.is_empty()
    }

    /// A number is given out. Those before it will not be: its client gives them out in order.
    pub(crate) fn used(&mut self, ino: Ino) {
        let Some(at) = self.delegated.iter().position(|range| range.has(ino)) else { return };
        self.delegated.drain(..at);
        if !stdx::mutant!("mds_number_used_again") {
            self.delegated[0].next = ino.0 + 1;
        }
    }

    /// The record a checkpoint stores.
    pub(crate) fn record(&self) -> SessionRecord {
        let results = self.results.iter().map(|(tid, result)| (tid, result.bytes.clone())).collect();
        let left = |range: &InoRange| (Ino(range.next), (range.end - range.next) as u32);
        let (flags, delegated) = (self.flags(self.quiet), self.delegated.iter().map(left).collect());
        SessionRecord { client: self.client.clone(), floor: self.floor, results, flags, delegated }
    }

    fn raise_floor(&mut self, floor: Tid) {
        if floor > self.floor {
            self.floor = floor;
            self.results.forget_below(floor);
        }
    }

    /// The floor, when it has moved far enough to be journaled.
    pub(crate) fn floor_due(&mut self) -> Option<Tid> {
        if self.floor.0.saturating_sub(self.journaled_floor.0) < FLOOR_STEP {
            return None;
        }
        self.journaled_floor = self.floor;
        Some(self.floor)
    }

    /// Whether a request was never carried out in a life that is remembered, and its client would say it again.
    pub(crate) fn is_unheard_of(&self, tid: Tid) -> bool {
        tid >= self.floor && self.results.get(tid).is_none()
    }

    /// Whether a request is new.
    pub(crate) fn admit(&mut self, tid: Tid, floor: Tid) -> Admitted {
        self.raise_floor(floor);
        if let Some(result) = self.results.get(tid) {
            return Admitted::Done(result.clone());
        }
        self.admit_again(tid, floor)
    }

    /// The same of one whose stored result does not count yet.
    pub(crate) fn admit_again(&mut self, tid: Tid, floor: Tid) -> Admitted {
        self.raise_floor(floor);
        if tid < self.floor || !self.running.insert(tid) {
            return Admitted::Known;
        }
        Admitted::New
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What broke: after so many greetings the next session took the place of a living one.
    #[test]
    fn no_session_takes_the_number_of_another() {
        let mut sessions = Sessions::default();
        let taken = SessionId((7 << COUNTER_BITS) | 2);
        sessions.map.insert(taken, Session::default());
        let first = sessions.number(7);
        assert_eq!(first, Some(SessionId((7 << COUNTER_BITS) | 1)));
        assert_eq!(sessions.number(7), Some(SessionId((7 << COUNTER_BITS) | 3)));
        sessions.next = (1 << COUNTER_BITS) - 2;
        assert!(sessions.number(7) < Some(SessionId(8 << COUNTER_BITS)));
        assert_eq!(sessions.number(7), None, "the next one belongs to the next incarnation");
    }
}
