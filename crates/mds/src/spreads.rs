//! How a directory comes to be spread: its names are divided among units in one transaction, by the rank that has its content. Nothing
//! in the store is rewritten: the transaction has the units' headers and the directory's, which says where they are from then on.
//! Then the units go to several ranks by ordinary moves. docs/PROTOCOL.md, "Spread directories".
//!
//! One at a time. Its names are counted first, however many there are, and while it is served (`spreads/count.rs`). The way back to one part
//! has its turn among them (`spreads/merge.rs`). What becomes so without an operator is decided in `spreads/itself.rs`.
//!
//! Absent: which units go to which ranks (`spreads/share.rs`); what units are (`units.rs`); moves (`moves.rs`); who knows how a directory is spread (`spreads/known.rs`).

mod count;
mod itself;
pub(crate) mod known;
mod merge;
mod share;

use crate::cache::dir;
use crate::caps::book::Need;
use crate::caps::needs;
use crate::config::State;
use crate::op::{LoadKey, OpId};
use crate::output::{Level, Output};
use crate::rank::Rank;
use crate::territory::Side;
use proto::caps::Bits;
use proto::cluster::Unit;
use proto::header::{FragHeader, SPREAD_DEPTH_MAX, Spread, Spreading};
use proto::mutation::Mutation;
use proto::{Ino, NameHash, SessionId};
use share::Shares;
use std::collections::VecDeque;
use stdx::{Mono, Now, Outbox};

/// The number under which the book of capabilities has recalls for it: no operation has it, and no move.
const RECALLS: OpId = OpId::MAX - 1;
/// What takes no step forward for so many leases is given up.
const LEASES: u64 = 2;
/// So often names that cannot leave the cache are waited for, or are counted anew.
const ROUNDS: u8 = 8;
/// Directories that wait for it; what comes beyond is spread when it is next noticed, or asked for again.
const QUEUE_MAX: usize = 1024;

/// What a directory is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Want {
    /// In so many parts, as a power of two.
    Parts(u8),
    /// In one.
    One,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Its names are counted.
    Count,
    /// Its units come here, and their entries go; `left`: steps that are yet to be taken, to see that it goes on.
    Home { left: usize },
    /// What is granted of it comes back.
    Recall,
    /// Names leave the cache until few are left, from that hash on.
    Thin(NameHash),
    /// Until so many checkpoints are complete: what is dirty stays in the cache.
    Store { until: u64 },
    /// What is reserved in it, and a checkpoint, ends.
    Rest,
}

/// What waits for its turn.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    dir: Ino,
    want: Want,
    by_itself: bool,
}

#[derive(Clone, Copy, Debug)]
struct One {
    dir: Ino,
    want: Want,
    /// No operator has said so.
    by_itself: bool,
    phase: Phase,
    until: Mono,
    /// What it waits for does not say when it is so: it is looked at again then.
    look: Option<Mono>,
    rounds: u8,
}

/// Directories that are to be spread, or are and have units that are to go to other ranks; and those that are to be merged.
#[derive(Debug, Default)]
pub(crate) struct Spreads {
    queue: VecDeque<Wanted>,
    current: Option<One>,
    shares: Shares,
    /// The next slice of it is due.
    again: bool,
    /// A page of names is on its way, to be counted; one did not come.
    reading: bool,
    failed: bool,
    /// What may become of directories by itself.
    itself: itself::Itself,
}

impl Spreads {
    /// When the one under way is given up, or looked at, or units are asked to move again.
    pub(crate) fn due(&self) -> Option<Mono> {
        let current = self.current.map(|one| one.look.map_or(one.until, |look| look.min(one.until)));
        [current, self.shares.due(), self.itself.due()].into_iter().flatten().min()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.current.is_none()
    }

    fn is_counting(&self, dir: Ino) -> bool {
        self.current.is_some_and(|one| one.dir == dir && one.phase == Phase::Count)
    }

    const fn enter(&mut self, phase: Phase) {
        if let Some(one) = &mut self.current {
            one.phase = phase;
        }
    }

    const fn another_round(&mut self) {
        if let Some(one) = &mut self.current {
            one.rounds += 1;
        }
    }

    fn wants(&mut self, dir: Ino, depth: u8, by_itself: bool) {
        self.add(dir, Want::Parts(depth.clamp(1, SPREAD_DEPTH_MAX)), by_itself);
    }

    /// Whether a directory is about to be something else than it is.
    pub(crate) fn is_about(&self, dir: Ino) -> bool {
        self.current.is_some_and(|one| one.dir == dir) || self.queue.iter().any(|other| other.dir == dir)
    }

    fn add(&mut self, dir: Ino, want: Want, by_itself: bool) {
        if self.current.is_some_and(|one| one.dir == dir) {
            return;
        }
        let has_room = self.queue.len() < QUEUE_MAX;
        match self.queue.iter_mut().find(|other| other.dir == dir) {
            // Units that are to come here do not go to others first; an operator's word counts more.
            Some(known) if want == Want::One || !by_itself => *known = Wanted { dir, want, by_itself },
            Some(_) => {}
            None if has_room => self.queue.push_back(Wanted { dir, want, by_itself }),
            None => {}
        }
    }
}

impl Rank {
    /// An operator wants a directory in so many parts, as a power of two.
    pub(crate) fn spread_wanted(&mut self, dir: Ino, depth: u8) {
        self.spreads.wants(dir, depth, false);
    }

    #[inline]
    pub(crate) fn spreads_turn(&mut self, now: Now, out: &mut Outbox<Output>) {
        if self.nothing_by_itself(now) && self.spreads.is_idle() && self.spreads.shares.is_idle() {
            return;
        }
        self.by_itself(now, out);
        self.share_again(now);
        self.go_on_spreading(now, out);
    }

    /// Four units for each rank, so that they can be shared evenly, or as many as an operator wants at least.
    fn usual_depth(&self) -> u8 {
        let ranks = self.view.territory.map().map_or(1, |map| u32::from(map.max_mds.max(1)));
        let depth = (4 * ranks).next_power_of_two().trailing_zeros() as u8;
        depth.max(self.view.config.split_depth).min(SPREAD_DEPTH_MAX)
    }

    /// Not while it stops, or clients present what they performed.
    fn may_spread(&self) -> bool {
        self.state == State::Active && self.presenting.is_empty()
    }

    /// When the one under way goes on by itself, or is given up. Where it does not go on it is not given up either.
    pub(crate) fn spreading_due(&self) -> Option<Mono> {
        let due = if self.spreads.again { Some(self.last) } else { self.spreads.due() };
        due.filter(|_| self.may_spread())
    }

    /// It came forward.
    fn spreading_goes_on(&mut self) {
        if let Some(one) = &mut self.spreads.current {
            one.until = self.view.now.mono.after(LEASES * self.view.config.lease_ns);
        }
    }

    fn go_on_spreading(&mut self, now: Now, out: &mut Outbox<Output>) {
        if !self.may_spread() {
            return;
        }
        if self.spreads.current.is_none() {
            let Some(Wanted { dir, want, by_itself }) = self.spreads.queue.pop_front() else { return };
            let phase = match want {
                Want::Parts(_) => Phase::Count,
                Want::One => Phase::Home { left: usize::MAX },
            };
            let until = now.mono.after(LEASES * self.view.config.lease_ns);
            self.spreads.current = Some(One { dir, want, by_itself, phase, until, look: None, rounds: 0 });
        }
        self.spreads.again = false;
        while let Some(one) = self.spreads.current {
            if one.until <= now.mono {
                return self.end_spreading(one.dir, Some("it took too long"), out);
            }
            let next = match one.want {
                // Its header, which may come only now, says that it is spread already: nothing of it is to be counted, and its pages would be read
                // again and again.
                Want::Parts(_)
                    if self.view.cache.spread(one.dir).is_some()
                        && !stdx::mutant!("mds_spread_counted_again") =>
                {
                    self.end_spreading(one.dir, None, out);
                    return self.share_units(one.dir);
                }
                Want::Parts(depth) => self.spread_on(now, one, depth, out),
                Want::One => self.merge_on(now, one, out),
            };
            let next = match next {
                Ok(next) => next,
                Err(why) => return self.end_spreading(one.dir, Some(why), out),
            };
            let Some(phase) = next else { return };
            self.spreads.enter(phase);
        }
    }

    fn end_spreading(&mut self, of: Ino, why: Option<&str>, out: &mut Outbox<Output>) {
        let current = self.spreads.current;
        let merges = current.is_some_and(|one| one.want == Want::One);
        (self.spreads.current, self.view.cache.tally) = (None, None);
        (self.spreads.again, self.spreads.reading, self.spreads.failed) = (false, false, false);
        self.view.spreading = None;
        self.view.book.operation_ended(RECALLS);
        if let Some(why) = why {
            self.rests(of, merges && current.is_some_and(|one| one.by_itself));
            let what = match (merges, current.is_some_and(|one| one.by_itself)) {
                (true, true) => "merged by itself",
                (true, false) => "merged",
                (false, _) => "spread",
            };
            let text = format!("directory {:#x} is not {what}: {why}", of.0);
            out.push(Output::Note { level: Level::Warn, text });
        }
    }

    /// The phase after this one, if this one is over; why it cannot go on.
    fn spread_on(
        &mut self,
        now: Now,
        one: One,
        depth: u8,
        out: &mut Outbox<Output>,
    ) -> Result<Option<Phase>, &'static str> {
        let slot = self.spreadable(one.dir)?;
        if self.spreads.failed {
            return Err("its names cannot be read");
        }
        // An empty one may have left the cache since it was counted. What is there without a header is of a load under way: it would
        // be divided as one that has no names, and whose versions begin anew.
        let needed = one.phase == Phase::Count || !stdx::mutant!("mds_spread_without_header");
        if needed && !self.view.cache.dir(slot).has(dir::HEADER) {
            self.start_load(LoadKey::Header { dir: one.dir }, None);
            return Ok(None);
        }
        match one.phase {
            Phase::Count if !self.count_on(one.dir, slot, depth) => Ok(None),
            Phase::Count => Ok(Some(self.take_back(now, one.dir))),
            Phase::Home { .. } => Ok(Some(Phase::Count)),
            Phase::Recall if self.view.book.is_waiting(RECALLS) => Ok(None),
            Phase::Recall => {
                self.view.book.operation_ended(RECALLS);
                Ok(Some(Phase::Thin(NameHash(0))))
            }
            Phase::Thin(from) => self.thin_out(slot, from),
            Phase::Store { until } if self.checkpoint.last < until => Ok(None),
            Phase::Store { .. } => Ok(Some(Phase::Thin(NameHash(0)))),
            Phase::Rest => self.rest(now, (one, depth), slot, out),
        }
    }

    /// From here on nothing is granted of it any more, and what was comes back.
    fn take_back(&mut self, now: Now, dir: Ino) -> Phase {
        self.view.spreading = Some(dir);
        if self.is_kept(dir) {
            let need = needs::of_all(&self.view, dir);
            self.view.book.wait(RECALLS, (SessionId(0), None), &[need], now.mono);
        }
        Phase::Recall
    }

    fn is_kept(&self, dir: Ino) -> bool {
        let need = Need::of(dir, Bits::ALL);
        self.view.book.is_blocked(None, &need) && !stdx::mutant!("mds_spread_keeps_grants")
    }

    /// Everything is counted and given back: the rest, if it is still so.
    fn rest(
        &mut self,
        now: Now,
        (one, depth): (One, u8),
        slot: u32,
        out: &mut Outbox<Output>,
    ) -> Result<Option<Phase>, &'static str> {
        if self.is_kept(one.dir) {
            return Ok(Some(self.take_back(now, one.dir)));
        }
        if !self.hands_out_few(slot) {
            return Ok(Some(Phase::Thin(NameHash(0))));
        }
        if !self.agrees(slot) {
            if one.rounds >= ROUNDS {
                return Err("it has not as many names as it says");
            }
            self.spreads.another_round();
            self.view.cache.tally = None;
            let text =
                format!("directory {:#x} is counted anew: it has not as many names as it says", one.dir.0);
            out.push(Output::Note { level: Level::Warn, text });
            return Ok(Some(Phase::Count));
        }
        // Headers of units that it had are removed from the store by the next checkpoint, and those of the new ones may have the same keys.
        if self.view.cache.merged.contains(&one.dir) {
            return Ok(Some(Phase::Store { until: self.next_checkpoint() }));
        }
        let names = self.view.cache.dir(slot).header.entries;
        let busy = self.view.cache.checkpointing || self.view.transactions.has_in(one.dir);
        if busy || !self.divide(now, slot, (depth, one.by_itself), out) {
            return Ok(None);
        }
        self.end_spreading(one.dir, None, out);
        self.note_spread(one, (names, depth), out);
        self.forget_pages(one.dir);
        self.share_units(one.dir);
        Ok(None)
    }

    fn note_spread(&mut self, one: One, (names, depth): (u64, u8), out: &mut Outbox<Output>) {
        self.rests(one.dir, false);
        if one.by_itself {
            let size = self.view.config.split_size;
            let why = if size > 0 && names >= size { "it has grown" } else { "it is hot" };
            let text = format!("directory {:#x} is spread by itself, {why}: {} parts", one.dir.0, 1 << depth);
            out.push(Output::Note { level: Level::Info, text });
        }
    }

    /// Where a directory's names are that may be spread now.
    fn spreadable(&mut self, dir: Ino) -> Result<u32, &'static str> {
        if dir == Ino::ROOT || dir.is_reserved() {
            return Err("it is the root directory");
        }
        let slot = self.view.cache.find_dir(dir).ok_or("it is not cached")?;
        if self.view.cache.dir(slot).has(dir::REMOVED | dir::FOREIGN) || self.view.cache.unit(dir).dir != dir
        {
            return Err("it is gone");
        }
        let side = match self.view.of_itself(dir) {
            Some(side) => Some(side),
            // What it had may be cached for longer than itself: it may have waited for its turn, and be gone.
            None if self.view.cache.by_ino(dir).is_none() => None,
            None => self.view.side(slot),
        };
        let leaves = self.view.territory.leaving().is_some_and(|part| self.view.is_below(dir, part));
        match side {
            Some(Side::Mine) if !leaves => Ok(slot),
            Some(Side::Mine | Side::Sealed | Side::Other(_)) => Err("it moves, or is another rank's"),
            None => Err("where it is is not cached"),
        }
    }

    /// Takes so many numbers that follow each other; none: some are being made durable.
    fn take_numbers(&mut self, count: u64) -> Option<Ino> {
        let rank = self.view.config.rank;
        let inos = &mut self.view.inos;
        if inos.next + count <= inos.usable {
            inos.next += count;
            return Some(Ino::of_rank(rank, inos.next - count));
        }
        if inos.reserved > inos.usable {
            return None;
        }
        let first = inos.reserved;
        // Those that are left of the block are left out.
        (inos.next, inos.usable) = (first + count, first + count);
        Mutation::InoCounter { rank, next: first + count }.encode(&mut self.view.txn.muts);
        Some(Ino::of_rank(rank, first))
    }

    /// The transaction.
    fn divide(
        &mut self,
        now: Now,
        slot: u32,
        (depth, by_itself): (u8, bool),
        out: &mut Outbox<Output>,
    ) -> bool {
        let Some(first) = self.take_numbers(1 << depth) else { return false };
        let spread = Spread { depth, first, stamp: 1 << depth, by_itself };
        let entries = self.view.cache.dir(slot);
        let mut own = entries.header.clone();
        own.version = entries.next_version(self.view.config.incarnation);
        own.change = dir::next_number(own.change, entries.has(dir::JUMPED), self.view.config.incarnation);
        let header = |frag| FragHeader {
            version: own.version,
            mtime: own.mtime,
            change: 1,
            spreading: Some(Box::new(Spreading::Unit(Unit { dir: entries.ino, frag }))),
            ..FragHeader::default()
        };
        let mut headers: Vec<(Ino, FragHeader)> =
            spread.all().map(|(number, frag)| (number, header(frag))).collect();
        let counts = self.view.cache.tally.iter().flat_map(|tally| &tally.units);
        for ((_, header), count) in headers.iter_mut().zip(counts) {
            (header.entries, header.subdirs) = (count.entries, count.subdirs);
        }
        (own.entries, own.subdirs) = (0, 0);
        own.spreading = Some(Box::new(Spreading::Over(spread)));
        let dir = entries.ino;
        for (number, header) in &headers {
            self.view.txn.whole_header(*number, header);
        }
        self.view.txn.whole_header(dir, &own);
        self.commit(now, None, out);
        true
    }
}
