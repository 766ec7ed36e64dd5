//! The way back: all units of a spread directory come to the rank that has its content, their entries go, and one transaction ends them and
//! makes the directory's header that of one part again. docs/PROTOCOL.md, "Spread directories".
//!
//! Before that transaction nothing of the directory is changed, so that it can be given up at any time, and is with a crash: it is a
//! spread directory whose units are all at one rank. With it nobody else has a unit, and nobody has to be told.
//!
//! Absent: whoever still knows how it was spread (`known.rs`); how names go from units to their directory in the cache (`units.rs`).

use super::{One, Phase, RECALLS, Want};
use crate::cache::dir;
use crate::caps::book::Need;
use crate::caps::needs;
use crate::moves::Goal;
use crate::op::LoadKey;
use crate::output::{Level, Output};
use crate::peers::Question;
use crate::rank::Rank;
use crate::territory::{Part, Side};
use proto::cluster::Unit;
use proto::header::Spread;
use proto::mutation::Mutation;
use proto::request::Request;
use proto::{Ino, NameHash, SessionId, Version};
use stdx::time::MS;
use stdx::{Now, Outbox};

/// What others have yet to do is looked at so often.
const LOOK_NS: u64 = 20 * MS;
/// Behind that a change counter is not counted up by a merge, which adds those of all units.
const CHANGE_MAX: u64 = 1 << 62;

type Next = Result<Option<Phase>, &'static str>;

impl Rank {
    /// An operator wants a directory in one part again.
    pub(crate) fn merge_wanted(&mut self, dir: Ino) {
        self.spreads.add(dir, Want::One, false);
    }

    /// The phase after this one, if this one is over; why it cannot go on.
    pub(super) fn merge_on(&mut self, now: Now, one: One, out: &mut Outbox<Output>) -> Next {
        let slot = self.spreadable(one.dir)?;
        if one.look.is_some_and(|look| look > now.mono) {
            return Ok(None);
        }
        self.look_at_merge(None);
        if !self.view.cache.dir(slot).has(dir::HEADER) {
            self.start_load(LoadKey::Header { dir: one.dir }, None);
            self.look_at_merge(Some(now));
            return Ok(None);
        }
        let spread = self.view.cache.spread(one.dir).ok_or("it is not spread")?;
        match one.phase {
            Phase::Count => Ok(Some(Phase::Home { left: usize::MAX })),
            Phase::Home { left } => self.bring_home(now, one.dir, spread, left),
            Phase::Recall if self.view.book.is_waiting(RECALLS) => Ok(None),
            Phase::Recall => {
                self.view.book.operation_ended(RECALLS);
                Ok(Some(Phase::Thin(NameHash(0))))
            }
            Phase::Thin(from) => self.thin_units(spread, from),
            Phase::Store { until } if self.checkpoint.last < until => Ok(None),
            Phase::Store { .. } => Ok(Some(Phase::Thin(NameHash(0)))),
            Phase::Rest => self.unite_if_ready(now, (one.dir, slot), spread, out),
        }
    }

    fn look_at_merge(&mut self, now: Option<Now>) {
        if let Some(one) = &mut self.spreads.current {
            one.look = now.map(|now| now.mono.after(LOOK_NS));
        }
    }

    /// Units that are elsewhere are asked for, entries of those that are here are dropped, and headers that are missing are loaded.
    fn bring_home(&mut self, now: Now, dir: Ino, spread: Spread, left: usize) -> Next {
        let (mut yet, me) = (0, self.view.config.rank);
        self.gather(dir);
        for (number, frag) in spread.all() {
            let unit = Unit { dir, frag };
            let has_entry = self.view.territory.entry_of(unit).is_some();
            match self.view.side_of_unit((number, unit)) {
                // What refuses it says so in its log; it is asked again.
                Some(Side::Other(Some(owner))) => {
                    self.ask(Question::Hand(unit, me), owner, Request::Hand { unit, to: me }, None);
                    yet += 2;
                }
                Some(Side::Other(None)) => yet += 2,
                Some(Side::Sealed) => return Err("a part of it is on its way to another rank"),
                Some(Side::Mine) | None if has_entry => {
                    self.moves.wants((Part::Of(number), unit), Goal::Unpin);
                    yet += 1;
                }
                Some(Side::Mine) | None => yet += usize::from(!self.has_unit_header(number, unit)),
            }
        }
        if yet == 0 {
            self.spreading_goes_on();
            return Ok(Some(self.take_back_all(now, dir, spread)));
        }
        if yet < left {
            self.spreading_goes_on();
        }
        self.spreads.enter(Phase::Home { left: yet });
        self.look_at_merge(Some(now));
        Ok(None)
    }

    pub(super) fn has_unit_header(&mut self, number: Ino, unit: Unit) -> bool {
        let is_here = |slot: u32| self.view.cache.dir(slot).has(dir::HEADER);
        let is_here = self.view.cache.find_dir(number).is_some_and(is_here);
        if !is_here {
            self.start_load(LoadKey::UnitHeader { dir: number, unit }, None);
        }
        is_here
    }

    /// The directory and its units: of each somebody may keep something, other ranks the totals.
    fn kept_of(&self, dir: Ino, spread: Spread) -> Vec<Need> {
        let numbers = spread.all().map(|(number, _)| number).chain([dir]);
        let needs = numbers.map(|number| needs::of_all(&self.view, number));
        needs.filter(|need| self.view.book.is_blocked(None, need)).collect()
    }

    fn take_back_all(&mut self, now: Now, dir: Ino, spread: Spread) -> Phase {
        self.view.spreading = Some(dir);
        let kept = self.kept_of(dir, spread);
        if !kept.is_empty() {
            self.view.book.wait(RECALLS, (SessionId(0), None), &kept, now.mono);
        }
        Phase::Recall
    }

    fn cached_of(&self, spread: Spread) -> u32 {
        let units = spread.all().filter_map(|(number, _)| self.view.cache.find_dir(number));
        units.map(|unit| self.view.cache.dir(unit).table.len()).sum()
    }

    fn takes_in_few(&self, spread: Spread) -> bool {
        self.cached_of(spread) <= self.view.config.limits.spread_names
    }

    /// Names that may leave the cache do so, unit by unit, until there are few in all.
    fn thin_units(&mut self, spread: Spread, from: NameHash) -> Next {
        if self.takes_in_few(spread) {
            return Ok(Some(Phase::Rest));
        }
        let (number, frag) = spread.of(from);
        let most = self.view.config.limits.move_slice;
        let unit = self.view.cache.find_dir(number);
        let next = unit.and_then(|unit| self.view.cache.thin(unit, from, most));
        let next = next.or_else(|| {
            let width = 1_u64 << (64 - u32::from(frag.depth));
            frag.prefix.checked_add(width).map(NameHash)
        });
        self.thinned(next, self.takes_in_few(spread))
    }

    /// All is here and given back: the transaction, if it is still so.
    fn unite_if_ready(
        &mut self,
        now: Now,
        (dir, slot): (Ino, u32),
        spread: Spread,
        out: &mut Outbox<Output>,
    ) -> Next {
        let is_whole = spread.all().all(|(number, frag)| {
            let unit = Unit { dir, frag };
            let has_entry = self.view.territory.entry_of(unit).is_some();
            let is_here = matches!(self.view.side_of_unit((number, unit)), Some(Side::Mine) | None);
            is_here && !has_entry && self.has_unit_header(number, unit)
        });
        if !is_whole {
            return Ok(Some(Phase::Home { left: usize::MAX }));
        }
        if !self.kept_of(dir, spread).is_empty() {
            return Ok(Some(self.take_back_all(now, dir, spread)));
        }
        if !self.takes_in_few(spread) {
            return Ok(Some(Phase::Thin(NameHash(0))));
        }
        // A wish of a move that was given up may still come to the coordinator, and make an entry of a unit; who has not greeted this
        // life may keep what a former one told.
        let busy = self.view.cache.checkpointing
            || self.view.transactions.has_in(dir)
            || self.moves.concerns(dir)
            || self.awaits_ranks();
        if busy || !self.unite(now, slot, spread, out)? {
            self.look_at_merge(Some(now));
            return Ok(None);
        }
        let by_itself = self.spreads.current.is_some_and(|one| one.by_itself);
        self.end_spreading(dir, None, out);
        self.rests(dir, false);
        self.forget_pages(dir);
        let by_itself = if by_itself { ", by itself" } else { "" };
        let text = format!("directory {:#x} is in one part again{by_itself}", dir.0);
        out.push(Output::Note { level: Level::Info, text });
        Ok(None)
    }

    /// The transaction. The directory's version comes behind those of all units: what is said of a name from here on is newer than all
    /// that was said of it before.
    fn unite(
        &mut self,
        now: Now,
        slot: u32,
        spread: Spread,
        out: &mut Outbox<Output>,
    ) -> Result<bool, &'static str> {
        let (own, dir) = (self.view.cache.dir(slot).header.clone(), self.view.cache.dir(slot).ino);
        let Ok(sum) = self.view.sum(&own, dir) else { return Ok(false) };
        if sum.change > CHANGE_MAX {
            return Err("it was changed and merged too often");
        }
        let incarnation = self.view.config.incarnation;
        let units: Vec<(Ino, u32)> = spread
            .all()
            .filter_map(|(number, _)| Some((number, self.view.cache.find_dir(number)?)))
            .collect();
        let own_next = self.view.cache.dir(slot).next_version(incarnation);
        let versions = units.iter().map(|(_, unit)| self.view.cache.dir(*unit).next_version(incarnation));
        let last = versions.chain([own_next]).max().unwrap_or(own_next);
        let version = match stdx::mutant!("mds_merge_goes_back") {
            true => own_next,
            // All of these are of this life.
            false => Version(dir::next_number(last.0, true, incarnation)),
        };
        let jumped = self.view.cache.dir(slot).has(dir::JUMPED);
        let change = dir::next_number(sum.change, jumped, incarnation);
        for (_, unit) in &units {
            self.view.txn.header(self.view.cache.dirs.get(*unit), crate::txn::Delta::default());
        }
        let header = proto::header::FragHeader { version, change, spreading: None, ..sum };
        self.view.txn.whole_header(dir, &header);
        for (number, _) in &units {
            Mutation::DelBackptr { ino: *number, version: version.0 }.encode(&mut self.view.txn.muts);
        }
        self.commit(now, None, out);
        Ok(true)
    }

    /// What was read of a directory for listings may be of another part of it than it is asked for by now.
    pub(super) fn forget_pages(&mut self, dir: Ino) {
        for op in self.parked.values_mut() {
            if matches!(op.request, Request::ReadDir { dir: of, .. } if of.ino == dir) {
                op.scan = None;
            }
        }
    }
}
