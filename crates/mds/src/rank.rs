//! The rank: one input in, planned operations run, what became durable released, bytes appended.
//!
//! Absent: what operations do (`ops/`), how records change (`apply.rs`).

mod planning;
mod requests;

pub(crate) use planning::claimed_inos;

use crate::checkpoint::Checkpoint;
use crate::config::{RankConfig, State};
use crate::early::Committed;
use crate::hold::HoldQueue;
use crate::input::Input;
use crate::journal::Journal;
use crate::leave::Leaving;
use crate::lent::Lent;
use crate::load::Loads;
use crate::meter::Meter;
use crate::moves::Moves;
use crate::news::News;
use crate::op::{Claim, Next, Op, OpId, Syncing};
use crate::output::Output;
use crate::pace::Pace;
use crate::peers::Peers;
use crate::recent::Recent;
use crate::session::life::EvictReason;
use crate::session::{Conn, Sessions};
use crate::spreads::Spreads;
use crate::transactions::lead::Leads;
use crate::view::View;
use crate::warm::Warm;
use proto::storeio::DataOp;
use proto::{Incarnation, Ino, Position, SessionId, Tid, Writer};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use stdx::time::MS;
use stdx::{Machine, Mono, Now, Outbox, Wall};

/// Clean entries looked at per step of a `DropCache`.
const DROP_SLICE: u32 = 2048;
/// Between two looks at how much memory capabilities take.
const CAPS_LOOK_NS: u64 = 10 * MS;

/// The rank's own data operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inner {
    Cut { ino: Ino, seq: u32 },
    Remove,
    CloseSync(Syncing),
    Checkpoint,
    Replay,
}

/// A data operation under way.
#[derive(Debug)]
pub(crate) enum Pending {
    Op(Box<Op>, Claim, Next),
    Inner(Inner),
}

/// The rank machine.
pub struct Rank {
    pub(crate) state: State,
    pub(crate) view: View,
    pub(crate) journal: Journal,
    pub(crate) held: HoldQueue,
    pub(crate) loads: Loads,
    pub(crate) sessions: Sessions,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) parked: BTreeMap<OpId, Box<Op>>,
    /// Parked operations that may go on.
    pub(crate) runnable: VecDeque<OpId>,
    /// Waiting for inode numbers.
    pub(crate) ino_waiters: Vec<OpId>,
    /// Waiting for the end of the reconnect phase.
    pub(crate) reconnect_waiters: Vec<OpId>,
    /// Waiting for other clients of the incarnation before to settle.
    pub(crate) settling: Vec<OpId>,
    /// Sessions of the incarnation before that may have been answered early, until each has presented what it was told.
    pub(crate) presenting: BTreeSet<SessionId>,
    /// Waiting for them.
    pub(crate) after_presented: Vec<OpId>,
    /// Numbers that they gave out: nobody else may.
    pub(crate) presented_inos: BTreeSet<Ino>,
    pub(crate) recent: Recent,
    /// Of the operation at hand, between its commit and its answer.
    pub(crate) committed: Option<Committed>,
    /// The last `Durable` that was told.
    pub(crate) told_durable: Position,
    /// The time of the step, whatever a performed operation was told.
    pub(crate) wall: Wall,
    /// Requests are held back by the driver.
    pub(crate) frozen: bool,
    pub(crate) pace: Pace,
    /// Orphans to be ended.
    pub(crate) purges: VecDeque<Ino>,
    pub(crate) reconnect_end: Option<Mono>,
    /// The latest end of the reconnect phase, of presenting, and of rewriting what the journal's tail tells of. Moved once by a part
    /// of a lease for each, and by a lease if the rank stood still.
    pub(crate) recovery_limit: Mono,
    /// The reconnect phase has reached it, and was prolonged once.
    pub(crate) reconnect_extended: bool,
    /// The same of who still presents.
    pub(crate) presenting_extended: bool,
    /// Inodes that an answer of a former life may have opened, until it is known whether its client got it.
    pub(crate) former_opens: BTreeMap<(SessionId, Tid), Ino>,
    /// Data operations without an answer, but for removals of the rank's own: those are only unconfirmed.
    pub(crate) pending: BTreeMap<u64, Pending>,
    /// Journaled cuts and removals that the data store has not confirmed: journal end by tag (both grow).
    pub(crate) unconfirmed: BTreeMap<u64, Position>,
    pub(crate) boot_tag: Option<u64>,
    pub(crate) boot_durable: bool,
    pub(crate) replay_data: u64,
    /// Of the tail, by inode: what waits for its end.
    pub(crate) held_redos: BTreeMap<Ino, Vec<DataOp>>,
    pub(crate) replay_at: Position,
    pub(crate) replayed: u64,
    /// The rank's life before this one; 0: its journal knows of none.
    pub(crate) former: Incarnation,
    /// Among them was one of an inode: file data may have been lost with it.
    pub(crate) replayed_files: bool,
    pub(crate) stopped: bool,
    pub(crate) full_until: Mono,
    /// Cached entries that a `DropCache` has still to look at.
    drop_left: u32,
    /// Memory that capability records took when they were measured last.
    caps_bytes: u64,
    /// When they are measured again.
    caps_look: Mono,
    next_tag: u64,
    next_op: OpId,
    pub(crate) last: Mono,
    /// Encoded outcome of the transaction at hand.
    pub(crate) result: Writer,
    pub(crate) parks: u64,
    pub(crate) meter: Meter,
    pub(crate) warm: Warm,
    /// Other ranks.
    pub(crate) peers: Peers,
    /// What clients keep by what these told.
    pub(crate) lent: Lent,
    pub(crate) news: News,
    pub(crate) moves: Moves,
    pub(crate) spreads: Spreads,
    /// Operations that wait for slots to be used, and whether the coordinator was asked.
    pub(crate) slots_wanted: (Vec<crate::op::OpId>, bool),
    pub(crate) leaving: Leaving,
    /// Transactions of several ranks that this one leads.
    pub(crate) leads: Leads,
    /// The transaction at hand is one of these, or was planned as one: it is told when it is durable.
    pub(crate) deciding: bool,
}

impl Rank {
    /// A rank that has not booted.
    #[must_use]
    pub fn new(config: RankConfig) -> Self {
        let meter = Meter::new(config.complaint_ns);
        Self {
            state: State::Boot,
            view: View::new(config),
            journal: Journal::default(),
            held: HoldQueue::default(),
            loads: Loads::default(),
            sessions: Sessions::default(),
            checkpoint: Checkpoint::default(),
            parked: BTreeMap::new(),
            runnable: VecDeque::new(),
            ino_waiters: Vec::new(),
            reconnect_waiters: Vec::new(),
            settling: Vec::new(),
            presenting: BTreeSet::new(),
            after_presented: Vec::new(),
            presented_inos: BTreeSet::new(),
            recent: Recent::default(),
            committed: None,
            told_durable: Position(0),
            wall: Wall::default(),
            frozen: false,
            pace: Pace::default(),
            purges: VecDeque::new(),
            reconnect_end: None,
            recovery_limit: Mono(0),
            reconnect_extended: false,
            presenting_extended: false,
            former_opens: BTreeMap::new(),
            pending: BTreeMap::new(),
            unconfirmed: BTreeMap::new(),
            boot_tag: None,
            boot_durable: false,
            replay_data: 0,
            held_redos: BTreeMap::new(),
            replay_at: Position(0),
            replayed: 0,
            former: Incarnation(0),
            replayed_files: false,
            stopped: false,
            full_until: Mono(0),
            drop_left: 0,
            caps_bytes: 0,
            caps_look: Mono(0),
            next_tag: 0,
            next_op: 0,
            last: Mono(0),
            result: Writer::new(),
            parks: 0,
            meter,
            warm: Warm::default(),
            peers: Peers::default(),
            lent: Lent::default(),
            news: News::default(),
            moves: Moves::default(),
            spreads: Spreads::default(),
            slots_wanted: (Vec::new(), false),
            leaving: Leaving::default(),
            leads: Leads::default(),
            deciding: false,
        }
    }

    pub(crate) fn new_tag(&mut self) -> u64 {
        self.next_tag += 1;
        self.next_tag
    }

    fn forget(&mut self) {
        self.shed_caps();
        // What is noted of clients counts as cache, up to half of it.
        let limit = self.view.config.cache_bytes;
        let limit = limit - self.caps_bytes.min(limit / 2);
        // A page of names takes the place of as many: the hand passes some that were used.
        let brought = std::mem::take(&mut self.view.cache.brought);
        if self.drop_left > 0 {
            let slice = self.drop_left.min(DROP_SLICE);
            self.drop_left -= slice;
            self.view.cache.forget(slice, 0);
        } else if self.view.cache.bytes() > limit {
            let budget = self.view.config.limits.forget.max(brought.saturating_mul(2));
            self.view.cache.forget(budget, limit - limit / 16);
        }
    }

    /// Every 10 ms: measures the capability records, drops old ones, and drops more when the cache is over its limit.
    fn shed_caps(&mut self) {
        if self.last < self.caps_look {
            return;
        }
        self.caps_look = self.last.after(CAPS_LOOK_NS);
        self.caps_bytes = self.view.book.bytes();
        let limit = self.view.config.cache_bytes;
        self.view.book.age(self.view.config.limits.caps_per_client, self.last);
        if self.caps_bytes > limit / 16 && self.view.cache.bytes() + self.caps_bytes > limit {
            self.view.book.shed(self.last);
        }
    }

    /// While frozen, returned capabilities may be held back with earlier messages; so after a freeze or thaw every session that owes a
    /// return gets a full lease.
    fn freeze(&mut self, now: Now, frozen: bool) {
        self.frozen = frozen;
        let end = now.mono.after(self.view.config.lease_ns);
        self.sessions
            .map
            .values_mut()
            .filter_map(|session| session.return_end.as_mut())
            .for_each(|at| *at = end);
    }

    fn tick(&mut self, now: Now, out: &mut Outbox<Output>) {
        self.expire(now, out);
        if self.reconnect_end.is_some_and(|end| end <= now.mono) {
            self.reconnect_over(now, out);
        }
        self.fade(now, out);
        if !self.presenting.is_empty() && self.recovery_limit <= now.mono {
            self.presenting_over(now);
        }
        if self.state == State::Active && self.presenting.is_empty() && self.recovery_limit <= now.mono {
            self.view.tail_writes.end();
        }
        self.quiet(now, out);
        if self.view.full && self.full_until <= now.mono {
            self.view.full = false;
        }
        self.journal.mark_if_idle(now);
    }

    /// The end of every step: what became runnable runs, what became durable goes out.
    fn turn(&mut self, now: Now, out: &mut Outbox<Output>) {
        if self.state == State::Damaged || self.journal.failed {
            // No tick comes any more, so all of it now: who stands in a line is told EIO as well.
            while !self.sessions.lines.is_empty() {
                self.run_lines(now, out);
            }
            return;
        }
        self.release_held(out);
        self.tell_durable(out);
        self.activate_if_ready(now, out);
        if self.state.serves() || self.state == State::Stopping {
            self.answer_granted_locks(out);
            self.caps_turn(out);
            self.run_parked(now, out);
            self.run_lines(now, out);
            self.let_go(now, out);
            self.close_slice();
            self.answer_granted_locks(out);
            self.purge_slice(now, out);
            self.refill_inos(now, out);
            self.warm_turn();
            self.checkpoint_turn(now, out);
            self.spreads_turn(now, out);
            self.moves_turn(now, out);
            self.ask_for_slots(out);
            self.leave_turn(now, out);
            self.leads_turn(out);
            self.caps_turn(out);
            self.ask_turn(now, out);
        }
        self.forget();
        self.issue_loads(out);
        // A reply that waited for nothing more goes in this step, not the next.
        if self.held.ready(self.journal.durable) {
            self.release_held(out);
        }
        self.tell_durable(out);
        self.journal.flush(out);
    }

    fn stop(&mut self, out: &mut Outbox<Output>) {
        self.warm_from(None);
        self.stop_moving(out);
        match self.state {
            State::Reconnect | State::Active => {
                self.state = State::Stopping;
                self.pace.waiting.clear();
                let waiting: Vec<OpId> = self.parked.keys().copied().collect();
                self.runnable.extend(waiting);
            }
            // Nothing was served: the tail is as good as it was.
            State::Boot | State::Replay => {
                self.state = State::Stopped;
                out.push(Output::Stopped);
            }
            State::Damaged | State::Stopped => out.push(Output::Stopped),
            State::Stopping => {}
        }
    }
}

impl Machine for Rank {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, now: Now, input: Input, out: &mut Outbox<Output>) {
        self.view.now = now;
        (self.last, self.wall) = (now.mono, now.wall);
        match input {
            Input::Boot => self.boot(out),
            Input::Replay { position, entries } => self.replay(position, &entries, out),
            Input::ReplayEnd { end, former } => self.replay_end(now, (end, former), out),
            Input::ReplayFailed(error) => self.damage(error.to_string(), out),
            Input::Connected { conn, peer } => {
                self.sessions.conns.insert(conn, Conn { peer, limit: Ino::NONE, session: None });
            }
            Input::Limit { conn, dir } => {
                if let Some(conn) = self.sessions.conns.get_mut(&conn) {
                    // All is below the root.
                    conn.limit = if dir == Ino::ROOT { Ino::NONE } else { dir };
                }
            }
            Input::Disconnected { conn } => self.disconnected(now, conn, out),
            Input::Message { conn, message } => self.message(now, conn, message, out),
            Input::Durable(position) => self.journal.durable = self.journal.durable.max(position),
            Input::JournalFailed(error) => {
                self.journal.failed = true;
                self.damage(format!("journal: {error}"), out);
            }
            Input::Loaded { tag, results } => {
                if self.boot_tag == Some(tag.0) && self.state == State::Boot {
                    self.boot_loaded(results, out);
                } else {
                    self.loaded(now, tag.0, results, out);
                }
            }
            Input::Stored { tag, result } => self.stored(now, tag.0, result, out),
            Input::DataDone { tag, result } => self.data_done(now, tag.0, result, out),
            Input::Tick => self.tick(now, out),
            Input::Checkpoint => self.checkpoint.wanted = true,
            Input::Warmup { dir } => self.warm_from(dir),
            Input::DropCache => self.drop_left = self.view.cache.clean().saturating_mul(2),
            Input::Space { full } => {
                if full && !self.view.disk_full {
                    self.view.book.take_back();
                }
                self.view.disk_full = full;
                self.view.full &= full;
            }
            Input::Frozen(frozen) => self.freeze(now, frozen),
            Input::Evict { session } => self.evict_session(now, session, EvictReason::Operator, out),
            Input::Map(map) => self.new_map(now, map, out),
            Input::FromRank { rank, message } => self.rank_says(now, rank, *message, out),
            Input::RankGone { rank } => self.rank_gone(rank, out),
            Input::WishRefused { wish, reason } => self.wish_refused(&wish, &reason, out),
            Input::Move { dir, to } => self.move_wanted(dir, to),
            Input::Unmove { dir } => self.move_unwanted(dir, out),
            Input::Spread { dir, depth } => self.spread_wanted(dir, depth),
            Input::Merge { dir } => self.merge_wanted(dir),
            Input::Stop => self.stop(out),
        }
        self.turn(now, out);
    }

    fn deadline(&self) -> Option<Mono> {
        if self.state == State::Damaged || self.journal.failed || self.state == State::Stopped {
            return None;
        }
        let busy = !self.runnable.is_empty()
            || !self.sessions.lines.is_empty()
            || self.view.book.takes_back()
            || self.drop_left > 0
            || !self.purges.is_empty()
            || (self.moves.has_slices() && self.state.serves())
            || (self.sessions.busy_closing() && self.may_close())
            || self.held.ready(self.journal.durable)
            || self.may_let_go()
            || (self.state.serves() && self.warm.may_go_on());
        let full = self.view.full.then_some(self.full_until);
        let serving = self.state.serves() || self.state == State::Stopping;
        let times = [
            busy.then_some(self.last),
            self.journal.mark_due(),
            self.sessions.expiry().filter(|_| self.state.serves()),
            self.reconnect_end,
            self.sessions.former_end,
            (!self.presenting.is_empty()).then_some(self.recovery_limit),
            self.sessions.quiet_due.filter(|_| self.state == State::Active),
            self.sessions.fading.iter().map(|fading| fading.until).min(),
            self.lent.due(),
            full,
            self.peers.due().filter(|_| serving),
            self.moves.due().filter(|_| serving),
            self.spreading_due(),
            self.leaving.due().filter(|_| serving),
            self.checkpoint_due().filter(|_| serving),
        ];
        times.into_iter().flatten().min()
    }
}
