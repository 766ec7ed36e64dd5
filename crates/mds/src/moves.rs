//! Moves: a directory's content, and what inherits below it, becomes another rank's; and entries of the cluster map that are made
//! and dropped without one. docs/PROTOCOL.md, "The move of a directory".
//!
//! One at a time; those that requests wait for go first (`moves/turns.rs`), and one that cannot begin yet goes behind the others; checkpoints
//! are of the whole rank. What is open or locked below goes along, or keeps it here if it cannot
//! (`moves/holders.rs`).
//!
//! Absent: the coordinator, which changes the map; the new owner's side: it reads what it owns from the store.

mod begin;
mod below;
mod carve;
mod gathered;
mod holders;
mod map;
mod phases;
mod pins;
mod seal;
mod shown;
mod turns;
mod unseen;

use crate::op::{OpId, Waits};
use crate::output::{MapWish, Output};
use crate::rank::Rank;
use crate::territory::Part;
use below::InUse;
use carve::Carves;
use gathered::Gathered;
use holders::Found;
use pins::Pins;
use proto::cluster::{MoveId, Unit};
use proto::{Errno, Frag, Ino, NameHash, Position, RankId};
use seal::Seals;
pub use shown::{MoveGoal, MoveStatus};
use std::collections::{BTreeMap, VecDeque};
use stdx::time::MS;
use stdx::{Mono, Now, Outbox};
use unseen::Unseen;

/// Directories that one transaction says are sealed.
const SEALED_MAX: usize = 10_000;
/// The number under which the book of capabilities has recalls for a move: no operation has it.
const RECALLS: OpId = OpId::MAX;
/// A move takes no longer than so many leases until it asks for the switch.
const LEASES: u64 = 2;
/// An announced move that the coordinator did not end is looked at again after that.
const AGAIN_NS: u64 = 1_000 * MS;
/// A switch without an answer is asked for so often in a lease.
const SWITCHES: u64 = 4;

/// Phases that may be over in one step. Each checkpoint is waited for (before the flush, at Settle, at the flush), so that no move comes to more.
const STEPS_MAX: usize = 14;

/// What is to become of a directory's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goal {
    /// One that somebody asked for by name, at that rank.
    Pin(RankId),
    /// None: its content is with the rank that it inherits from already.
    Unpin,
    /// The move of that number is carried out.
    Carry(MoveId, RankId),
    /// An operator wants its content there.
    Move(RankId),
}

/// How far a move is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The map is to have an entry that says that it was asked for.
    Name,
    /// The coordinator was asked for it.
    Named,
    /// The entry is to go.
    Unname,
    /// The coordinator was asked for that.
    Dropping,
    /// Where the inodes are that are open or locked and of which the cache does not say so; `announced`: once more. What was opened
    /// since the first time may be such a one while everything is this rank's, later not.
    Seek { announced: bool },
    /// Whether something below that is in use cannot go along.
    Look(InUse),
    /// Until so many checkpoints are complete, what is dirty goes to the store while requests are served; and until a rank that lives again
    /// has been greeted.
    PreFlush { until: u64 },
    /// The coordinator is asked to say so in the map.
    Announce,
    /// What is granted below comes back: that part of the book is next, and something was found since the first.
    Recall { part: usize, found: bool },
    /// Who has something open or locked there is noted.
    Note(InUse),
    /// They join the new owner.
    Join,
    /// Until so many checkpoints are complete, what became dirty since goes to the store, so that little is left for the seal.
    Settle { until: u64 },
    /// Sealed: what is under way below ends.
    Drain(InUse),
    /// What they have open or locked is noted.
    List(InUse),
    /// What is dirty below goes to the store, and from that name of that directory on what is clean leaves the cache meanwhile; none: has
    /// left.
    Flush { until: u64, thin: Option<(u32, NameHash)> },
    /// The store has where inodes below are: which list of places, and the inode to go on from.
    Places(u8, Ino),
    /// What is below leaves the cache, from that index of its directories on.
    Empty(u32),
    /// The new owner is told the list of that number of what they have.
    Tell(usize),
    /// The journal says that it is sealed.
    Journal(Position),
    /// The coordinator was asked to switch: what becomes of it the map will say.
    Switch,
}

impl Phase {
    /// Whether it can be given up without a word about anything that is sealed, and is not about to make or drop an entry.
    const fn is_before_seal(self) -> bool {
        match self {
            Self::Name
            | Self::Unname
            | Self::Seek { .. }
            | Self::Look(_)
            | Self::PreFlush { .. }
            | Self::Announce
            | Self::Recall { .. }
            | Self::Note(_)
            | Self::Join
            | Self::Settle { .. } => true,
            Self::Named
            | Self::Dropping
            | Self::Drain(_)
            | Self::List(_)
            | Self::Tell(_)
            | Self::Flush { .. }
            | Self::Places(..)
            | Self::Empty(_)
            | Self::Journal(_)
            | Self::Switch => false,
        }
    }

    /// What it is, or was, waiting for, in words for an operator.
    const fn waits_for(self) -> &'static str {
        match self {
            Self::Name | Self::Named | Self::Unname | Self::Dropping | Self::Announce | Self::Switch => {
                "the coordinator"
            }
            Self::Seek { .. } => "where files are that are open or locked",
            Self::Look(_) | Self::Note(_) | Self::List(_) => "who has something open or locked there",
            Self::PreFlush { .. } | Self::Settle { .. } | Self::Flush { .. } | Self::Places(..) => {
                "the metadata store"
            }
            Self::Recall { .. } => "clients that keep something there",
            Self::Join => "clients that are to connect to the new owner",
            Self::Tell(_) => "the new owner",
            Self::Drain(_) | Self::Empty(_) => "requests that are under way there",
            Self::Journal(_) => "the journal",
        }
    }
}

/// One that waits for its turn.
#[derive(Debug)]
struct Wanted {
    part: Part,
    unit: Unit,
    goal: Goal,
    /// Requests for it.
    ops: Vec<OpId>,
}

/// One move.
#[derive(Debug)]
struct Move {
    part: Part,
    /// What the coordinator is told of; of slots nothing, because it knows the move.
    unit: Unit,
    goal: Goal,
    /// None: nothing changes hands.
    to: Option<RankId>,
    /// From the map.
    id: Option<MoveId>,
    /// By which map the coordinator was asked to announce it.
    asked: u64,
    phase: Phase,
    until: Mono,
    /// When every name that a kernel was granted there has run out; none: not announced.
    names_over: Option<Mono>,
    /// Somebody may keep a name there that is not known.
    unnamed: bool,
    /// Sealed until then at most; none: not sealed, or the journal says that it is.
    sealed_until: Option<Mono>,
    /// Since when nobody is served there.
    sealed_at: Option<Mono>,
    /// How often it stored once more what became dirty before it was sealed.
    settled: u8,
    ops: Vec<OpId>,
    found: Found,
    /// The directory of the unit that moves stays cached: who looks below the unit has to know how it is spread.
    held: Option<Ino>,
}

/// Whether an operator wants it of a directory; no request waits for such a one.
fn is_by_hand((part, goal): (&Part, &Goal), dir: Ino) -> bool {
    *part == Part::Of(dir) && matches!(goal, Goal::Move(_))
}

/// A move that was asked for and given up.
#[derive(Debug)]
struct Abandoned {
    version: u64,
    coordinator: u64,
    had_entry: bool,
}

/// The move under way, and those that wait.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    current: Option<Move>,
    /// It waits for what others do.
    waits: bool,
    /// What the new owner has answered: whether it may go on.
    pub heard: Option<bool>,
    queue: VecDeque<Wanted>,
    /// The last one that was taken from it was not the first.
    overtook: bool,
    /// Operations that wait for the end of the one under way.
    pub waiting: Vec<OpId>,
    /// Units whose moves were asked for and given up before the map had them; of which map, and of which coordinator, that was.
    abandoned: BTreeMap<Unit, Abandoned>,
    /// Directories whose content has left the cache for the one under way.
    emptied: Vec<Ino>,
    /// Something came below the one under way that a session may keep something of, since that was last taken back.
    pub came: bool,
    /// How directories are spread of which units are to move came into the cache.
    pub learned: bool,
    /// When moves that others have announced are looked at again: the coordinator did not do what was asked of one.
    again: Option<Mono>,
    /// A directory of which that could not be read.
    pub unreadable: Option<Ino>,
    pins: Pins,
    gathered: Gathered,
    pub unseen: Unseen,
    carves: Carves,
    seals: Seals,
}

impl Moves {
    /// When it is given up, or a pin is looked at.
    pub(crate) fn due(&self) -> Option<Mono> {
        let current = self.current.as_ref().map(|one| one.sealed_until.unwrap_or(one.until).min(one.until));
        let names = self.current.as_ref().filter(|one| one.unnamed).and_then(|one| one.names_over);
        let others = self.pins.due().into_iter().chain(self.carves.due()).chain(self.again);
        current.into_iter().chain(names).chain(others).min()
    }

    /// Whether the next slice of it is due.
    pub(crate) fn has_slices(&self) -> bool {
        let waits = self.waits;
        self.unseen.is_settling()
            || self.current.as_ref().is_some_and(|one| match one.phase {
                Phase::Look(_) | Phase::Places(..) | Phase::Empty(_) => true,
                Phase::Flush { thin, .. } => thin.is_some(),
                Phase::Seek { .. }
                | Phase::Recall { .. }
                | Phase::Note(_)
                | Phase::Drain(_)
                | Phase::List(_) => !waits,
                Phase::Name
                | Phase::Named
                | Phase::Unname
                | Phase::Dropping
                | Phase::PreFlush { .. }
                | Phase::Announce
                | Phase::Join
                | Phase::Settle { .. }
                | Phase::Tell(_)
                | Phase::Journal(_)
                | Phase::Switch => false,
            })
    }

    /// Whether something is sealed: who has what there stays as it was told.
    pub(crate) fn is_sealed(&self) -> bool {
        self.current.as_ref().is_some_and(|one| match one.phase {
            Phase::Drain(_)
            | Phase::List(_)
            | Phase::Flush { .. }
            | Phase::Places(..)
            | Phase::Empty(_)
            | Phase::Tell(_)
            | Phase::Journal(_)
            | Phase::Switch => true,
            Phase::Name
            | Phase::Named
            | Phase::Unname
            | Phase::Dropping
            | Phase::Seek { .. }
            | Phase::Look(_)
            | Phase::PreFlush { .. }
            | Phase::Announce
            | Phase::Recall { .. }
            | Phase::Note(_)
            | Phase::Join
            | Phase::Settle { .. } => false,
        })
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.current.is_none() && self.queue.is_empty() && self.pins.is_idle() && self.carves.is_idle()
    }

    /// Whether something of a directory, or of its units, moves, is to, or may be announced yet.
    pub(crate) fn concerns(&self, dir: Ino) -> bool {
        let is_its = |unit: Unit| unit.dir == dir;
        self.current.as_ref().is_some_and(|one| is_its(one.unit))
            || self.queue.iter().any(|wanted| is_its(wanted.unit))
            || self.abandoned.keys().any(|unit| is_its(*unit))
    }

    /// Whether one of that unit is under way, or waits for its turn.
    pub(crate) fn has_wanted(&self, unit: Unit) -> bool {
        let current = self.current.as_ref().map(|one| one.unit);
        current.into_iter().chain(self.queue.iter().map(|wanted| wanted.unit)).any(|of| of == unit)
    }

    /// One that no operation waits for.
    pub(crate) fn wants(&mut self, of: (Part, Unit), goal: Goal) {
        self.add(of, goal, None);
    }

    /// Asks for one, unless that is done already.
    fn add(&mut self, (part, unit): (Part, Unit), goal: Goal, op: Option<OpId>) {
        if let Some(one) = self.current.as_mut().filter(|one| (one.part, one.goal) == (part, goal)) {
            return one.ops.extend(op);
        }
        match self.queue.iter_mut().find(|wanted| (wanted.part, wanted.goal) == (part, goal)) {
            Some(wanted) => wanted.ops.extend(op),
            None => self.queue.push_back(Wanted { part, unit, goal, ops: op.into_iter().collect() }),
        }
    }
}

impl Rank {
    /// Which one begins from now on and ends.
    pub(crate) fn next_checkpoint(&mut self) -> u64 {
        self.checkpoint.wanted = true;
        self.checkpoint.begun + 1
    }

    fn flush_sealed(&mut self, now: Now, out: &mut Outbox<Output>) -> Phase {
        let keeps = stdx::mutant!("mds_seal_waits_to_thin") || stdx::mutant!("mds_moved_stays_cached");
        let thin = (!keeps).then_some((0, NameHash(0)));
        let until = if stdx::mutant!("mds_move_unflushed") { 0 } else { self.next_checkpoint() };
        // At once: in the next step what is clean begins to leave the cache, and that takes its time.
        self.checkpoint_turn(now, out);
        Phase::Flush { until, thin }
    }

    /// An operator wants a directory's content at another rank. What becomes of it the map says, or the log.
    pub(crate) fn move_wanted(&mut self, dir: Ino, to: RankId) {
        self.moves.add(self.part_of(dir), Goal::Move(to), None);
    }

    /// An operator wants none any more. One that the map says, or may say yet, is the coordinator's to end.
    pub(crate) fn move_unwanted(&mut self, dir: Ino, out: &mut Outbox<Output>) {
        self.moves.queue.retain(|wanted| !is_by_hand((&wanted.part, &wanted.goal), dir));
        let current = self.moves.current.as_ref();
        if current.is_some_and(|one| is_by_hand((&one.part, &one.goal), dir) && one.id.is_none()) {
            self.give_up_move("an operator does not want it any more", out);
        }
    }

    /// Whether an operator wants a directory's content at another rank, and no map says so yet.
    #[must_use]
    pub fn is_to_move(&self, dir: Ino) -> bool {
        let current = self.moves.current.as_ref();
        current.is_some_and(|one| is_by_hand((&one.part, &one.goal), dir) && one.id.is_none())
            || self.moves.queue.iter().any(|wanted| is_by_hand((&wanted.part, &wanted.goal), dir))
    }

    /// A directory's content or a unit, and what it is called in the map.
    fn part_of(&self, number: Ino) -> (Part, Unit) {
        (Part::Of(number), self.view.cache.unit(number))
    }

    /// By which number a unit is called here, if that is known.
    fn number_of(&self, unit: Unit) -> Option<Ino> {
        if unit.frag == Frag::WHOLE {
            return Some(unit.dir);
        }
        let (number, frag) = self.view.cache.spread(unit.dir)?.of(NameHash(unit.frag.prefix));
        (frag == unit.frag).then_some(number)
    }

    /// Goes on with the move as far as it can.
    #[inline]
    pub(crate) fn moves_turn(&mut self, now: Now, out: &mut Outbox<Output>) {
        if !self.view.purged.is_empty() {
            self.note_purged();
        }
        self.settle_claims(now, out);
        self.moves.learned |= self.moves.again.take_if(|at| *at <= now.mono).is_some();
        if std::mem::take(&mut self.moves.learned)
            && let Some(map) = self.view.territory.map().cloned()
        {
            self.carry_out_announced(&map, out);
        }
        let pins =
            !self.view.cache.pinned.is_empty() || self.moves.pins.due().is_some_and(|at| at <= now.mono);
        if !self.moves.is_idle() || pins {
            self.carves_turn(now, out);
            self.pins_turn(now, out);
            self.go_on_moving(now, out);
        }
    }

    fn go_on_moving(&mut self, now: Now, out: &mut Outbox<Output>) {
        for _ in 0..STEPS_MAX {
            if self.moves.current.is_none() {
                self.begin_next(now, out);
            }
            let Some(one) = &self.moves.current else { return };
            let (phase, part) = (one.phase, one.part);
            if phase != Phase::Switch && one.until <= now.mono {
                let why = format!("it took too long: {}", self.waits_for(phase));
                return self.give_up_move(&why, out);
            }
            if one.is_sealed_too_long(now.mono) {
                return self.break_seal(out);
            }
            if phase.is_before_seal() && self.is_gathered(one.unit, one.goal) {
                return self.give_up_move(gathered::WHY, out);
            }
            let next = self.move_on(now, phase, part, out);
            self.moves.waits = next.is_none();
            let Some(next) = next else {
                // Ended in this very step, others may begin.
                if self.moves.current.is_none() && !self.moves.queue.is_empty() {
                    continue;
                }
                return;
            };
            if let Some(one) = &mut self.moves.current {
                one.phase = next;
            }
            // The next slice has a step of its own, so that what was begun in this one is handed over before it.
            let is_flush = matches!(next, Phase::Flush { .. });
            if is_flush || std::mem::discriminant(&phase) == std::mem::discriminant(&next) {
                return;
            }
        }
    }

    /// The rank stops: what it has not let go of stays.
    pub(crate) fn stop_moving(&mut self, out: &mut Outbox<Output>) {
        if self.moves.current.as_ref().is_some_and(|one| one.phase != Phase::Switch) {
            self.give_up_move("the rank stops", out);
        }
        self.moves.queue.clear();
    }

    /// It is asked for again while no map tells what became of it: who was asked may be no more. Asked for twice it is made once.
    fn wish_switch(&mut self, now: Now, out: &mut Outbox<Output>) -> bool {
        let again = now.mono.after(self.view.config.lease_ns / SWITCHES);
        let Some(one) = &mut self.moves.current else { return false };
        let Some(id) = one.id else { return false };
        one.until = again;
        out.push(Output::Wish(MapWish::Switch { unit: one.unit, id }));
        true
    }

    /// Before the switch is asked for.
    fn give_up_move(&mut self, why: &str, out: &mut Outbox<Output>) {
        let Some(one) = &self.moves.current else { return };
        let (part, unit, id) = (one.part, one.unit, one.id);
        if one.phase == Phase::Announce && id.is_none() {
            let map = self.view.territory.map();
            let (version, coordinator) = map.map_or((0, 0), |map| (map.version, map.coordinator));
            let had_entry = self.view.territory.entry_of(unit).is_some();
            self.moves.abandoned.insert(unit, Abandoned { version, coordinator, had_entry });
        }
        self.say_refused(part, why, out);
        out.extend(id.map(|id| Output::Wish(MapWish::Abort { unit, id })));
        self.end_move(false, out);
    }

    fn fail_moves(&mut self, ops: Vec<OpId>) {
        for id in ops {
            if let Some(op) = self.parked.get_mut(&id) {
                (op.failed, op.waits) = (Some(Errno::EBUSY), Waits::Turn);
                self.runnable.push_back(id);
            }
        }
    }

    /// The move is over: what waited looks again.
    fn end_move(&mut self, done: bool, out: &mut Outbox<Output>) {
        self.end_asks_of_move();
        let switched = self.moves.current.as_ref().is_some_and(|one| one.phase == Phase::Switch);
        if done && switched {
            self.hand_over_holders(out);
            self.say_moved(out);
        }
        let Some(one) = self.moves.current.take() else { return };
        if let Some(id) = one.id {
            self.settle_unheard((id, one.moved()), done && switched, out);
        }
        self.view.moving = None;
        let (unit, was_announced) = (one.unit, one.id.is_some());
        if done {
            self.moves.seals_end(one.moved());
        }
        one.held.into_iter().for_each(|dir| self.let_group_go(dir));
        self.view.book.operation_ended(RECALLS);
        self.moves.unseen.give_up();
        self.moves.emptied = Vec::new();
        self.view.territory.leave(None, Ino::NONE);
        if !done {
            // They may have left the cache, and hold the next move up if nobody looks for them.
            one.found.places().for_each(|node| self.seen_at(node));
        }
        if done {
            self.look_again(one.ops)
        } else {
            self.fail_moves(one.ops)
        }
        let waiting = std::mem::take(&mut self.moves.waiting);
        self.look_again(waiting);
        if !was_announced {
            self.carry_out_hidden(unit, out);
        }
    }

    /// What others announced of a unit was taken for the move that ends now, which never had a number (of one that had, the map says so
    /// still, while its Abort is on its way). No other map may come, and who waits for that move would wait for ever.
    fn carry_out_hidden(&mut self, unit: Unit, out: &mut Outbox<Output>) {
        let me = self.view.config.rank;
        let entry = self.view.territory.entry_of(unit);
        let is_hidden = entry.is_some_and(|entry| entry.rank == me && entry.moving.is_some());
        if is_hidden
            && !stdx::mutant!("mds_refused_is_not_under_way")
            && let Some(map) = self.view.territory.map().cloned()
        {
            self.carry_out_announced(&map, out);
        }
    }
}
