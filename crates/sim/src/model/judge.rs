//! The judge: follows a rank from outside and says what it did wrong.
//!
//! Every journal entry is one step of history. The judge applies it to a mirror of the records and
//! executes the request it answers on the reference tree; both must agree, always. So it knows the
//! linear order of all changes without asking the rank. An answer without a transaction must fit one of
//! the states between the request's arrival and the answer, and for anyone but the embedded client a
//! state that is durable; a session that presents again what it was told may see its own changes earlier. A crash cuts history at
//! the recovered end of the journal, which must not lie before the durable mark.
//!
//! Absent: locks (`locks.rs`), time, the driver.

mod answers;
mod data;
mod delegated;
mod depends;
mod history;
mod kept;
mod order;
mod promise;
mod replies;
mod rewrites;
mod seen;
mod stored;

pub(crate) use depends::{Fact, asked_for, shown, touched};
pub use history::{Manner, Sent};
pub(crate) use history::{adopt, is_making, may_keep_times};
pub(crate) use kept::differing;
pub use kept::{Changed, Sight};
pub(crate) use order::{chain, is_without_xattr, overlaps, parents, performs};
pub use promise::Presented;
pub(crate) use promise::{Cuts, attr_of, is_told, made};
pub(crate) use replies::{Teller, check_listing, check_reply, rank_attr, same_attr};
pub(crate) use seen::{named, run_told};

use crate::model::bytes::{FileBytes, Source};
use crate::model::records::{Records, Undo};
use crate::model::tree::Tree;
use delegated::Trust;
use depends::Undurable;
pub(crate) use history::adopt_place;
use promise::Promise;
use proto::ids::{Position, SessionId, Tid};
use proto::reply::Outcome;
use proto::request::{Request, open_flags};
use proto::{Cred, Effect, Ino, every_request};
use rewrites::Rewriting;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use stdx::Wall;
use stdx::hash::HashSeed;

/// What a rank did wrong, in words.
pub type Verdict<T = ()> = Result<T, String>;

/// A request, as a connection handed it to the rank.
#[derive(Clone, Debug)]
pub struct Asked {
    pub session: SessionId,
    pub tid: Tid,
    pub cred: Cred,
    pub request: Request,
    pub embedded: bool,
    /// The rank checks permissions.
    pub checked: bool,
    /// Of a write: the pattern of its bytes, and which byte of it is the first.
    pub pattern: (u64, u64),
}

/// Errors that the world's faults explain at present.
#[derive(Clone, Copy, Debug, Default)]
pub struct Excuses {
    pub no_space: bool,
    pub io: bool,
    /// The rank stopped in order: the store knows what the journal's end says, and nothing vouches for that.
    pub at_rest: bool,
}

/// One state of history, after the entry that ends at `end`.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) tree: Tree,
    pub(crate) end: Position,
}

#[derive(Clone, Debug)]
struct Executed {
    outcome: Outcome,
    end: Position,
    wall: Wall,
    /// The state it made.
    number: u64,
}

/// A change of bytes under way.
#[derive(Clone, Debug)]
struct Landing {
    ino: Ino,
    start: u64,
    pieces: Vec<(u64, u64, Source)>,
    from: u64,
    /// Of a copy: its source, the range there, and how far the target lies behind it.
    copied: Option<(Ino, u64, u64, u64)>,
}

#[derive(Clone, Debug)]
struct Pending {
    asked: Asked,
    /// The state it arrived at, and the moment.
    first: u64,
    since: u64,
    landing: Option<Landing>,
    executed: Option<Executed>,
    /// When it was executed last, which a crash may have taken back since.
    first_at: Option<u64>,
    /// The client is dead: nobody looks at the answer.
    gone: bool,
    /// For fsync and syncfs: what must be durable with the answer.
    need: Position,
}

/// The judge of one run.
pub struct Judge {
    seed: HashSeed,
    states: VecDeque<State>,
    /// The number of `states[0]`.
    first: u64,
    records: Records,
    /// Entries above the durable mark, newest last: their end, and what they replaced.
    undo: VecDeque<(Position, Undo)>,
    /// Entries since the last trim: start, end, mutations.
    log: VecDeque<(Position, Position, Vec<u8>)>,
    durable: Position,
    end: Position,
    bytes: BTreeMap<Ino, FileBytes>,
    rewriting: BTreeMap<(SessionId, Tid), Rewriting>,
    /// When a session was told last that bytes of a file are lost.
    told_lost: BTreeMap<(SessionId, Ino), u64>,
    /// When the rank found out last what a crash had left.
    recovered_at: u64,
    pending: BTreeMap<(SessionId, Tid), Pending>,
    /// Answered requests: none of them may ever have an effect again.
    answered: BTreeSet<(SessionId, Tid)>,
    /// Opens a client was told of and has not given back; and those of them that are for writing, until the last is back.
    opens: BTreeMap<(SessionId, Ino), i64>,
    writers: BTreeSet<(SessionId, Ino)>,
    /// Sessions that have ended, whatever they are still told; and where in the journal.
    over: BTreeSet<SessionId>,
    /// Those that the rank has given up and that have not ended: they may keep names for a while.
    given_up: BTreeSet<SessionId>,
    ended_at: BTreeMap<SessionId, Position>,
    /// Where the journal must say that a session is evicted: a rank that lives again serves it no more.
    evicted_at: BTreeMap<SessionId, Position>,
    /// Of these, whom the rank has evicted since the world looked last.
    pub evictions: Vec<SessionId>,
    /// Transactions above the durable mark: whose they are, and what they changed.
    undurable: VecDeque<Undurable>,
    /// Sessions that may be answered early; what they were told and may still be lost; those to which a promise was broken.
    eager: BTreeSet<SessionId>,
    promises: BTreeMap<(SessionId, Tid), Promise>,
    /// Below that a session's client waits for nothing, as it last said.
    floors: BTreeMap<SessionId, Tid>,
    spoiled: BTreeSet<SessionId>,
    /// Opens that succeeded, whose clients may not have heard of it: the rank stores these results, too.
    opened: BTreeMap<(SessionId, Tid), Outcome>,
    /// Times that the rank did not take as they were told.
    cut_walls: Cuts,
    trust: Trust,
    /// The entry that last touched an inode, and the last one each session was answered.
    touched: BTreeMap<Ino, Position>,
    told: BTreeMap<SessionId, Position>,
    /// The highest version of each directory and change counter of each inode ever seen, in histories that
    /// were lost too: none may name two contents.
    versions: BTreeMap<Ino, u64>,
    changes: BTreeMap<Ino, u64>,
    /// Files that are synced once history is durable up to a position: where, which, as of when.
    synced_at: VecDeque<(Position, Ino, u64)>,
    /// Inodes of histories that crashes took back: their data may be left until somebody sweeps.
    lost: BTreeSet<Ino>,
    /// Inodes that were moved or linked in such a history: who was told of it may look for them at places where they never were.
    displaced: BTreeSet<Ino>,
    clock: u64,
    /// The rank's time.
    pub wall: Wall,
    /// Promises that were broken, and why they may be.
    pub late: Vec<&'static str>,
    /// What a crash took back that only its author has seen, and was not told yet that it had done it.
    pub untold: Vec<(SessionId, Ino)>,
    pub excuses: Excuses,
    /// Sessions that transactions ended, for the world to look at.
    pub ended: Vec<SessionId>,
    /// What transactions changed of what clients are told, for the world to look at.
    pub changed: Vec<Changed>,
    /// Transactions judged.
    pub transactions: u64,
    /// Answers judged.
    pub answers: u64,
}

impl Judge {
    /// A judge of a file system that was made at `wall` and whose store holds `records`.
    #[must_use]
    pub fn new(seed: HashSeed, records: Records, wall: Wall) -> Self {
        let start = Position(0);
        let mut tree = Tree::fresh(wall);
        records.0.iter().for_each(|(key, record)| adopt_place(&mut tree, key, record, &records));
        Self {
            seed,
            states: VecDeque::from([State { tree, end: start }]),
            first: 0,
            records,
            undo: VecDeque::new(),
            log: VecDeque::new(),
            durable: start,
            end: start,
            bytes: BTreeMap::new(),
            rewriting: BTreeMap::new(),
            told_lost: BTreeMap::new(),
            recovered_at: 0,
            pending: BTreeMap::new(),
            answered: BTreeSet::new(),
            opens: BTreeMap::new(),
            writers: BTreeSet::new(),
            over: BTreeSet::new(),
            given_up: BTreeSet::new(),
            ended_at: BTreeMap::new(),
            evicted_at: BTreeMap::new(),
            evictions: Vec::new(),
            undurable: VecDeque::new(),
            eager: BTreeSet::new(),
            promises: BTreeMap::new(),
            floors: BTreeMap::new(),
            spoiled: BTreeSet::new(),
            opened: BTreeMap::new(),
            cut_walls: Cuts::default(),
            trust: Trust::default(),
            touched: BTreeMap::new(),
            told: BTreeMap::new(),
            versions: BTreeMap::new(),
            changes: BTreeMap::new(),
            synced_at: VecDeque::new(),
            lost: BTreeSet::new(),
            displaced: BTreeSet::new(),
            clock: 1,
            wall,
            late: Vec::new(),
            untold: Vec::new(),
            excuses: Excuses::default(),
            ended: Vec::new(),
            changed: Vec::new(),
            transactions: 0,
            answers: 0,
        }
    }

    /// The present tree.
    ///
    /// # Panics
    /// Without a state; there always is one.
    #[must_use]
    pub fn tree(&self) -> &Tree {
        &self.states.back().expect("history is never empty").tree
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn last(&self) -> u64 {
        self.first + self.states.len() as u64 - 1
    }

    /// The newest durable tree.
    fn durable_tree(&self) -> &Tree {
        let state = self.states.iter().rev().find(|state| state.end <= self.durable);
        &state.unwrap_or(&self.states[0]).tree
    }

    /// The judge's clock: it moves with everything that is told.
    #[must_use]
    pub const fn clock(&self) -> u64 {
        self.clock
    }

    /// When a request came to the rank first, unless its session has a change under way: it may be the one that others wait for.
    #[must_use]
    pub fn came(&self, session: SessionId, tid: Tid) -> Option<u64> {
        let changes = |pending: &Pending| match &pending.asked.request {
            Request::Open { flags, .. } => open_flags::writes(*flags),
            other => matches!(other.effect(), Effect::Journal),
        };
        let mut of = self.pending.range((session, Tid(0))..=(session, Tid(u64::MAX)));
        let busy = of.any(|(_, pending)| pending.executed.is_none() && changes(pending));
        self.pending.get(&(session, tid)).filter(|_| !busy).map(|pending| pending.since)
    }

    /// A request that has no answer yet.
    #[must_use]
    pub fn request(&self, session: SessionId, tid: Tid) -> Option<&Request> {
        self.pending.get(&(session, tid)).map(|pending| &pending.asked.request)
    }

    /// A connection delivered a request to the rank; a retry of a known one changes nothing.
    pub fn asked(&mut self, asked: Asked) {
        // One that crossed its early answer is known, too.
        if !self.promises.contains_key(&(asked.session, asked.tid)) {
            self.arrives(asked);
        }
    }

    fn arrives(&mut self, asked: Asked) {
        let key = (asked.session, asked.tid);
        let now = self.tick();
        if self.pending.contains_key(&key) || self.answered.contains(&key) {
            return;
        }
        let need = match &asked.request {
            Request::Fsync { node, .. } => self.touched.get(&node.ino).copied().unwrap_or_default(),
            Request::SyncFs => self.told.get(&asked.session).copied().unwrap_or_default(),
            every_request!() => Position(0),
        };
        let pending = Pending {
            asked,
            first: self.last(),
            since: now,
            landing: None,
            executed: None,
            first_at: None,
            gone: false,
            need,
        };
        self.pending.insert(key, pending);
    }

    /// The journal said that everything below is durable.
    pub fn durable(&mut self, position: Position) {
        self.durable = self.durable.max(position);
        while self.undo.front().is_some_and(|(end, _)| *end <= self.durable) {
            self.undo.pop_front();
        }
        while self.undurable.front().is_some_and(|change| change.end <= self.durable) {
            self.undurable.pop_front();
        }
        self.durable_promises();
        while let Some((_, ino, since)) = self.synced_at.pop_front_if(|(end, ..)| *end <= self.durable) {
            self.synced(Some(ino), since);
        }
        self.prune();
    }

    /// Forgets states no answer can need: those before the durable one and before every request.
    fn prune(&mut self) {
        let durable = self.states.iter().rposition(|state| state.end <= self.durable).unwrap_or(0) as u64;
        let waits =
            |pending: &&Pending| !pending.gone && !matches!(pending.asked.request, Request::SetLock { .. });
        let oldest = self.pending.values().filter(waits).map(|pending| pending.first).min();
        let keep = oldest.unwrap_or(u64::MAX).min(self.first + durable);
        while self.first < keep && self.states.len() > 1 {
            self.states.pop_front();
            self.first += 1;
        }
    }

    /// The client has its answer.
    pub fn answered(&mut self, session: SessionId, tid: Tid) {
        let key = (session, tid);
        let promised = self.promises.contains_key(&key);
        if promised && self.pending.get(&key).is_some_and(|pending| pending.executed.is_none()) {
            // It is to be executed once more.
            return;
        }
        let Some(pending) = self.pending.remove(&key) else { return };
        if !promised {
            self.answered.insert(key);
        }
        if let Some(executed) = &pending.executed {
            let told = self.told.entry(session).or_default();
            *told = (*told).max(executed.end);
        }
    }

    /// Nobody will hear the answer of a request whose session the rank has ended; it may still take its course.
    pub fn unheard(&mut self, session: SessionId, tid: Tid) {
        if let Some(pending) = self.pending.get_mut(&(session, tid)) {
            pending.gone = true;
        }
    }

    /// A client was told that it has this file open.
    pub fn opened(&mut self, session: SessionId, ino: Ino, writes: bool) {
        *self.opens.entry((session, ino)).or_default() += 1;
        if writes {
            self.writers.insert((session, ino));
        }
    }

    /// A client starts to give an open back. It may be one of a session that the client lost; the rank takes it for one of this
    /// session, even for one whose answer is still on its way.
    pub fn releasing(&mut self, session: SessionId, ino: Ino) {
        let count = self.opens.entry((session, ino)).or_default();
        *count -= 1;
        if *count <= 0 {
            self.writers.remove(&(session, ino));
        }
    }

    /// A session ended or died: it holds nothing any more.
    pub fn session_over(&mut self, session: SessionId) {
        self.opens.retain(|(owner, _), _| *owner != session);
        self.writers.retain(|(owner, _)| *owner != session);
        self.over.insert(session);
        self.excuse(session);
    }

    /// The rank has evicted a session in the step that is over: once that is durable no life of the rank takes anything of it.
    pub fn evicted(&mut self, session: SessionId) {
        self.evicted_at.entry(session).or_insert(self.end);
    }

    /// Whether the journal says that a session is evicted: it ends when what it keeps has run out, if need be in another life.
    #[must_use]
    pub fn is_evicted(&self, session: SessionId) -> bool {
        self.evicted_at.contains_key(&session)
    }

    /// Whether a session holds nothing any more.
    #[must_use]
    pub fn is_over(&self, session: SessionId) -> bool {
        self.over.contains(&session)
    }

    /// The client of a session is gone: its requests may still have an effect, but nobody waits.
    pub fn client_gone(&mut self, session: SessionId) {
        self.session_over(session);
        for ((owner, _), pending) in &mut self.pending {
            pending.gone |= *owner == session;
        }
    }

    fn is_open(&self, ino: Ino) -> Option<SessionId> {
        let held = self.opens.iter().find(|((_, at), count)| *at == ino && **count > 0);
        held.map(|((session, _), _)| *session)
    }
}
