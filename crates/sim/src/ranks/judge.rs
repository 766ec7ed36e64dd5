//! The judge of several ranks: sees what enters and leaves each of them, their journals and the cluster map, and nothing inside.
//!
//! Entries of all journals, in the order in which they were appended, are one history: a rank executes against what is, and holds its
//! answer back until its journal is durable. So the order of all changes is known here, too. A crash of one rank takes entries out of
//! the middle; what stays is executed again without them, and must come to the same: nobody but its author has seen what was lost, and
//! that one presents it to the rank's next life, which comes to what was told.
//!
//! Absent: locks (`ranks/locks.rs`), bytes of files, what clients keep (`ranks/keeps.rs`); ranks, the driver.

mod answers;
mod delegated;
mod depends;
mod gone;
mod history;
mod limits;
mod numbers;
mod order;
pub(super) mod owners;
mod parts;
pub(super) mod placing;
pub(super) mod policies;
mod promise;
pub(super) mod refusals;
mod seen;
mod sessions;
mod stores;
pub(super) mod struck;
mod syncs;
mod transactions;
mod units;

use crate::model::judge::{Fact, Manner, Verdict};
use crate::model::records::{Records, Undo};
use crate::model::tree::Tree;
use delegated::Trust;
pub(super) use limits::Guest;
use limits::Guests;
use numbers::{Given, Numbers};
use owners::Owners;
use placing::Made;
use promise::Promises;
use proto::cluster::Unit;
use proto::header::Spread;
use proto::ids::{Position, RankId, SessionId, Tid};
use proto::reply::Outcome;
use proto::request::Request;
use proto::{Cred, Errno, Ino, every_request};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use stdx::Wall;
use stdx::hash::HashSeed;
use transactions::{At, Transactions};

/// Tids count for each rank by themselves.
pub(super) type Key = (RankId, SessionId, Tid);

/// A request, as a connection handed it to a rank.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) cred: Cred,
    pub(super) request: Request,
    /// The call that it is for; a call may be asked of one rank after the other, and is carried out by one.
    pub(super) call: Option<u64>,
    /// Who asks, if that is somebody who is limited to a directory.
    pub(super) guest: Option<Guest>,
}

/// An answer that left a rank.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) key: Key,
    pub(super) outcome: Outcome,
    pub(super) manner: Manner,
}

#[derive(Clone, Debug)]
struct Pending {
    asked: Asked,
    /// The state it arrived at, and the moment.
    first: u64,
    since: u64,
    /// When it was executed first, which a crash may have taken back since.
    first_at: Option<u64>,
    executed: Option<(Outcome, Position)>,
    /// What it was answered.
    answered: Option<Outcome>,
    /// Nobody looks at the answer.
    gone: bool,
}

/// Whose transaction an entry is.
#[derive(Clone, Debug)]
struct Origin {
    key: Key,
    outcome: Outcome,
    asked: Asked,
}

/// One entry of history.
#[derive(Clone, Debug)]
struct Step {
    rank: RankId,
    end: Position,
    wall: Wall,
    mutations: Vec<u8>,
    origin: Option<Origin>,
    undo: Undo,
    /// The state that it made.
    tree: Tree,
    /// A boundary whose times it sets.
    timed: Option<Ino>,
    /// Numbers that it gave.
    versions: Vec<Given<Unit>>,
    changes: Vec<Given<Ino>>,
    /// A transaction of several ranks begins to count with it.
    decides: bool,
    /// What it changed; and up to where others at its rank made what its author was told of before.
    facts: BTreeSet<Fact>,
    needs: Position,
    /// It happened earlier, as its caller was told.
    past: bool,
}

impl Step {
    const fn at(&self) -> At {
        At { rank: self.rank, end: self.end, wall: self.wall }
    }
}

/// The journal of one rank.
#[derive(Clone, Debug, Default)]
struct Journal {
    end: Position,
    durable: Position,
    /// Entries since the last trim: start, end, mutations.
    log: VecDeque<(Position, Position, Vec<u8>)>,
}

/// What one entry changed of what clients are told.
#[derive(Clone, Debug)]
pub(super) struct Changed {
    /// Whose request it carries out.
    pub(super) author: Option<SessionId>,
    /// The call that it was for.
    pub(super) call: Option<u64>,
    /// Inodes with other attributes, or none any more, and those that lost a name.
    pub(super) inos: BTreeSet<Ino>,
}

/// The judge of one run.
pub(super) struct Judge {
    seed: HashSeed,
    /// What every entry that is kept comes after.
    base: (Records, Tree, Transactions),
    /// The number of the base's state; the entry at `i` makes state `first + 1 + i`.
    first: u64,
    line: VecDeque<Step>,
    /// What journals say: behind the tree by what is committed and not carried out everywhere.
    records: Records,
    open: Transactions,
    ranks: BTreeMap<RankId, Journal>,
    pending: BTreeMap<Key, Pending>,
    /// Calls without an answer, and the state that each began in: it sees nothing older. Of what they asked for, much may have been heard.
    begun: BTreeMap<u64, u64>,
    /// Sessions that clients have lost.
    gone: BTreeSet<SessionId>,
    /// Of each stream what the client has all results of.
    floors: BTreeMap<(RankId, SessionId), Tid>,
    /// Requests of which the caller has the answer: one that came again meanwhile is answered again.
    over: BTreeSet<Key>,
    /// The stream in which a call was carried out.
    calls: BTreeMap<u64, Key>,
    owners: Owners,
    sessions: sessions::Sessions,
    pub(super) guests: Guests,
    syncs: syncs::Syncs,
    struck: struck::Struck,
    /// What entries changed, for the world to look at.
    pub(super) changed: Vec<Changed>,
    /// Files that a session was told that it has open for writing.
    pub(super) opened: Vec<(SessionId, Ino)>,
    /// Calls that may fail for locks that their client lost.
    excused: BTreeSet<u64>,
    promises: Promises,
    trust: Trust,
    /// It moves with everything that is told.
    clock: u64,
    /// Versions of each directory, or unit, and change counters of each inode; those of lost histories are spent.
    versions: Numbers<Unit>,
    changes: Numbers<Ino>,
    /// Inodes that were moved or linked in a history that a crash took back.
    displaced: BTreeSet<Ino>,
    /// Inodes that a rank which lives again takes for open: of an answer of its former life it cannot tell what it was asked for
    /// (`former.rs`).
    kept: BTreeSet<Ino>,
    /// Inodes in answers that each rank remembers, or may.
    answered: BTreeMap<RankId, BTreeSet<Ino>>,
    /// The ranks' time.
    pub(super) wall: Wall,
    pub(super) transactions: u64,
    /// Of several ranks: committed; reservations that came to nothing.
    pub(super) across: u64,
    pub(super) released: u64,
    pub(super) answers: u64,
    /// Directories that were spread; answers about those that are of different moments.
    pub(super) spreads: u64,
    /// Directories that were merged, how often; and how each was spread until which state.
    pub(super) merges: u64,
    merged: BTreeMap<Ino, (u64, Spread)>,
    /// Answers that fit a directory only by its parts.
    pub(super) parted: u64,
    /// Answers of clients by themselves.
    pub(super) own: u64,
    pub(super) made: Made,
    /// Answers that are legal for now.
    pub(super) refused: BTreeMap<&'static str, u64>,
}

impl Judge {
    pub(super) fn new(seed: HashSeed, records: Records, wall: Wall) -> Self {
        let mut tree = Tree::fresh(wall);
        for (key, record) in &records.0 {
            crate::model::judge::adopt_place(&mut tree, key, record, &records);
        }
        Self {
            seed,
            base: (records.clone(), tree, Transactions::default()),
            first: 0,
            line: VecDeque::new(),
            records,
            open: Transactions::default(),
            ranks: BTreeMap::new(),
            pending: BTreeMap::new(),
            begun: BTreeMap::new(),
            gone: BTreeSet::new(),
            floors: BTreeMap::new(),
            over: BTreeSet::new(),
            calls: BTreeMap::new(),
            owners: Owners::default(),
            sessions: sessions::Sessions::default(),
            guests: Guests::default(),
            syncs: syncs::Syncs::default(),
            struck: struck::Struck::default(),
            changed: Vec::new(),
            opened: Vec::new(),
            excused: BTreeSet::new(),
            promises: Promises::default(),
            trust: Trust::default(),
            clock: 1,
            versions: Numbers::new("version of directory"),
            changes: Numbers::new("change of inode"),
            displaced: BTreeSet::new(),
            kept: BTreeSet::new(),
            answered: BTreeMap::new(),
            wall,
            transactions: 0,
            across: 0,
            released: 0,
            answers: 0,
            spreads: 0,
            merges: 0,
            merged: BTreeMap::new(),
            parted: 0,
            own: 0,
            made: Made::default(),
            refused: BTreeMap::new(),
        }
    }

    /// The present tree.
    pub(super) fn tree(&self) -> &Tree {
        self.line.back().map_or(&self.base.1, |step| &step.tree)
    }

    fn last(&self) -> u64 {
        self.first + self.line.len() as u64
    }

    /// States from that number on, oldest first.
    fn states(&self, from: u64) -> impl DoubleEndedIterator<Item = (u64, &Tree)> {
        let base = std::iter::once(&self.base.1);
        let all = base.chain(self.line.iter().map(|step| &step.tree));
        let skip = from.saturating_sub(self.first);
        let numbered = (self.first..).zip(all);
        let states: Vec<_> = numbered.skip(skip as usize).collect();
        states.into_iter()
    }

    /// Whether everything that this rank did up to that state is durable.
    fn is_durable(&self, rank: RankId, state: u64) -> bool {
        let durable = self.ranks.get(&rank).map_or(Position(0), |journal| journal.durable);
        let until = state.saturating_sub(self.first) as usize;
        self.line.iter().take(until).all(|step| step.rank != rank || step.end <= durable)
    }

    /// A connection delivered a request to a rank; a retry of a known one changes nothing.
    pub(super) fn asked(&mut self, key: Key, floor: Tid, asked: Asked) {
        self.passes(key, floor);
        // One that crossed its early answer is known, too.
        if key.2 >= floor && !self.is_promised(&key) {
            self.arrives(key, asked);
        }
    }

    /// A client has all results below that.
    fn passes(&mut self, key: Key, floor: Tid) {
        let (rank, session, _) = key;
        let known = self.floors.entry((rank, session)).or_default();
        if floor > *known {
            *known = floor;
            let from = (rank, session, Tid(0));
            let over: Vec<Key> =
                self.pending.range(from..(rank, session, floor)).map(|(key, _)| *key).collect();
            over.iter().for_each(|key| drop(self.pending.remove(key)));
            self.over.retain(|(of, from, tid)| (*of, *from) != (rank, session) || *tid >= floor);
        }
    }

    fn arrives(&mut self, key: Key, asked: Asked) {
        let rank = key.0;
        // A checkpoint stores the answer, before anybody has it.
        let opened = match &asked.request {
            Request::Open { node, .. } => Some(node.ino),
            // It opens what has the name.
            Request::Create { parent, name, .. } => {
                let dir = self.tree().node(parent.ino);
                dir.and_then(|dir| dir.entries.get(name.as_bytes()).copied())
            }
            every_request!() => None,
        };
        self.answered.entry(rank).or_default().extend(opened);
        let first = self.last();
        let (gone, since) = (asked.call.is_none(), self.ticks());
        let new = Pending { asked, first, since, first_at: None, executed: None, answered: None, gone };
        self.pending.entry(key).or_insert(new);
    }

    /// A client was told that its session is gone: nobody will hear what becomes of its requests.
    pub(super) fn unheard(&mut self, session: SessionId) {
        self.gone.insert(session);
        let of = |key: &Key| key.1 == session;
        self.pending.iter_mut().filter(|(key, _)| of(key)).for_each(|(_, pending)| pending.gone = true);
        self.prune();
    }

    /// A rank says that a request is not its own.
    pub(super) fn turned_away(&mut self, key: Key) -> Verdict {
        if self.is_promised(&key) {
            return self.breaks_promise(key, Errno::ESTALE);
        }
        let Some(pending) = self.pending.remove(&key) else { return Ok(()) };
        match pending.executed {
            Some(_) => Err(format!("{key:?} is sent away and was carried out: {:?}", pending.asked.request)),
            None => Ok(()),
        }
    }

    /// A journal said that everything below is durable.
    pub(super) fn durable(&mut self, rank: RankId, position: Position) {
        let journal = self.ranks.entry(rank).or_default();
        journal.durable = journal.durable.max(position);
        self.durable_promises(rank);
        self.prune();
    }

    /// Forgets states that no answer can need, and no crash take back.
    pub(super) fn prune(&mut self) {
        // Who waits for a lock may do so for long, and learns nothing of any state by its answer.
        let looks = |pending: &&Pending| !pending.gone && !is_lock_wait(&pending.asked.request);
        let oldest = self.pending.values().filter(looks).map(|pending| pending.first).min();
        let keep = oldest.into_iter().chain(self.begun.values().copied()).min().unwrap_or(u64::MAX);
        while self.first < keep && !self.line.is_empty() {
            let step = &self.line[0];
            if self.ranks.get(&step.rank).is_none_or(|journal| journal.durable < step.end) {
                return;
            }
            let Some(step) = self.line.pop_front() else { return };
            // It was applied before.
            let _ = self.base.0.apply(&step.mutations, true);
            let at = step.at();
            let _ = self.base.2.apply(at, &step.mutations, None);
            self.base.1 = step.tree;
            self.first += 1;
            let first = self.first;
            self.merged.retain(|_, (state, _)| *state > first);
        }
    }
}

/// Whether a request may have no answer for as long as others like.
pub(super) const fn is_lock_wait(request: &Request) -> bool {
    matches!(request, Request::SetLock { wait: true, .. })
}
