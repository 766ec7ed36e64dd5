//! Which directories are spread and merged by themselves. One that has grown or is hot is spread. One that was spread by itself, has few
//! names and is cold is merged; so is one that was pinned since. docs/PROTOCOL.md, "By itself".
//!
//! Nothing is asked of other ranks before something of a directory has changed: a name went from a part with few of them, a rank takes back
//! what it told of a part, or the header came. Between two looks at one directory some time passes, and more each time.
//!
//! Absent: how it is done (`spreads.rs`, `merge.rs`); what is hot (`heat.rs`).

use super::{Spreads, Want};
use crate::cache::dir;
use crate::op::LoadKey;
use crate::output::{Level, Output};
use crate::peers::Question;
use crate::rank::Rank;
use crate::territory::Side;
use crate::units::whole;
use proto::cluster::{ClusterMap, Policy, Unit};
use proto::header::{FragHeader, Spread};
use proto::request::Request;
use proto::{Frag, Ino, RankId};
use std::collections::{BTreeMap, BTreeSet};
use stdx::{Mono, Now, Outbox};

/// The longest pause between two looks, as a multiple of the first.
const PAUSE_MAX: u64 = 64;
/// What lasted so many pauses without anything new begins with the first one again.
const PAUSES: u64 = 4;
/// A directory is cold when less than this part is asked of it that would have it spread.
const COLD: u64 = 4;
/// Directories of which it is remembered when they are looked at again.
const RESTS_MAX: usize = 1024;

/// Nothing becomes of a directory by itself for a while.
#[derive(Clone, Copy, Debug)]
struct Rest {
    until: Mono,
    pause_ns: u64,
    /// Something changed meanwhile: it is looked at then.
    again: bool,
}

/// What other ranks say of the parts of the directory that is looked at.
#[derive(Debug)]
struct Look {
    dir: Ino,
    until: Mono,
    /// Parts that are yet to be told.
    missing: BTreeSet<Ino>,
    names: u64,
    heat: [u64; 2],
    /// Some rank does not say when it changes.
    untold: bool,
}

#[derive(Debug, Default)]
pub(super) struct Itself {
    rests: BTreeMap<Ino, Rest>,
    /// When the first of those is over that are looked at again.
    next: Option<Mono>,
    to_look: BTreeSet<Ino>,
    look: Option<Look>,
}

/// Whether a directory may be merged by itself.
enum May {
    No,
    /// Not as long as something is under way.
    NotNow,
    /// It was pinned: however many names it has.
    Pinned,
    IfSmall(Spread),
}

impl Itself {
    pub(super) fn due(&self) -> Option<Mono> {
        [self.next, self.look.as_ref().map(|look| look.until)].into_iter().flatten().min()
    }

    fn find_next(&mut self) {
        self.next = self.rests.values().filter(|rest| rest.again).map(|rest| rest.until).min();
    }

    fn is_resting(&self, dir: Ino, now: Mono) -> bool {
        self.rests.get(&dir).is_some_and(|rest| now < rest.until)
    }

    /// It rests, longer than the last time; `again`: and is looked at then.
    fn rest(&mut self, dir: Ino, (now, first_ns): (Mono, u64), again: bool) {
        self.rests.retain(|_, rest| rest.again || now < rest.until.after(PAUSES * rest.pause_ns));
        let before = self.rests.get(&dir).map(|rest| (2 * rest.pause_ns).min(PAUSE_MAX * first_ns));
        let pause_ns = before.unwrap_or(first_ns);
        let again = again || self.rests.get(&dir).is_some_and(|rest| rest.again);
        if before.is_some() || self.rests.len() < RESTS_MAX {
            self.rests.insert(dir, Rest { until: now.after(pause_ns), pause_ns, again });
        }
        self.find_next();
    }

    /// Nothing can be said of it now: it is looked at after the first pause, whatever the next one will be.
    fn wait(&mut self, dir: Ino, (now, first_ns): (Mono, u64)) {
        let pause_ns = self.rests.get(&dir).map_or(first_ns, |rest| rest.pause_ns);
        self.rests.insert(dir, Rest { until: now.after(first_ns), pause_ns, again: true });
        self.find_next();
    }

    /// Something of it changed.
    fn notice(&mut self, dir: Ino, now: Mono) {
        let rests = |rest: &&mut Rest| now < rest.until && !stdx::mutant!("mds_spread_never_rests");
        match self.rests.get_mut(&dir).filter(rests) {
            Some(rest) => {
                rest.again = true;
                self.find_next();
            }
            None => drop(self.to_look.insert(dir)),
        }
    }

    /// Those whose rest is over, if they are to be looked at.
    fn wake(&mut self, now: Mono) {
        for (dir, rest) in &mut self.rests {
            if rest.again && rest.until <= now {
                rest.again = false;
                self.to_look.insert(*dir);
            }
        }
        self.find_next();
    }
}

impl Spreads {
    /// Another rank has told of a part; `counts`: until it takes that back.
    pub(crate) fn part_told(&mut self, number: Ino, header: &FragHeader, counts: bool) {
        let Some(look) = &mut self.itself.look else { return };
        if look.missing.remove(&number) {
            look.names += header.entries;
            look.untold |= !counts;
            let heat = header.told().map_or([0; 2], |(_, heat)| heat);
            look.heat.iter_mut().zip(heat).for_each(|(sum, part)| *sum += u64::from(part));
        }
    }
}

impl Rank {
    /// Whether there is nothing to look at.
    #[inline]
    pub(super) fn nothing_by_itself(&self, now: Now) -> bool {
        let (view, itself) = (&self.view, &self.spreads.itself);
        let is_due = itself.next.is_some_and(|at| at <= now.mono) || itself.look.is_some();
        let news = view.grown.len() + view.shrunk.len() + view.heated.len() + itself.to_look.len();
        news == 0 && !is_due
    }

    /// Something was done about a directory, or given up.
    pub(crate) fn rests(&mut self, dir: Ino, again: bool) {
        let first_ns = self.view.config.limits.spread_rest_ns;
        self.spreads.itself.rest(dir, (self.view.now.mono, first_ns), again);
    }

    fn waits(&mut self, dir: Ino) {
        let first_ns = self.view.config.limits.spread_rest_ns;
        self.spreads.itself.wait(dir, (self.view.now.mono, first_ns));
    }

    /// What a rank has told of a part of a directory it takes back: something changes there.
    pub(crate) fn part_changes(&mut self, number: Ino) {
        let of = self.view.cache.outer(number);
        if of != number {
            self.spreads.itself.notice(of, self.view.now.mono);
        }
    }

    /// The map changed. Who has a directory that was pinned since it was spread brings it together, without a rest before; a new life
    /// looks at all.
    pub(super) fn look_at_spreads(&mut self, before: Option<&ClusterMap>) {
        let was_pinned = |map: &ClusterMap, dir: Ino| {
            map.entries.get(&whole(dir)).is_some_and(|entry| entry.policy == Policy::Pin)
        };
        let is_new = |dir: &&Ino| match before {
            Some(before) => self.view.is_pinned(**dir) && !was_pinned(before, **dir),
            None => true,
        };
        let spread: Vec<Ino> = self.view.cache.spreads.iter().filter(is_new).copied().collect();
        self.spreads.itself.to_look.extend(spread);
    }

    fn has_header(&self, dir: Ino) -> bool {
        self.view.cache.find_dir(dir).is_some_and(|slot| self.view.cache.dir(slot).has(dir::HEADER))
    }

    pub(super) fn by_itself(&mut self, now: Now, out: &mut Outbox<Output>) {
        for dir in std::mem::take(&mut self.view.grown) {
            let depth = self.usual_depth();
            self.spreads.wants(dir, depth, true);
            self.spreads.itself.notice(dir, now.mono);
        }
        for dir in std::mem::take(&mut self.view.shrunk) {
            self.spreads.itself.notice(dir, now.mono);
        }
        self.spread_heated(now);
        if self.may_spread() {
            self.spreads.itself.wake(now.mono);
            self.look_on(now, out);
        }
    }

    /// Much is asked of a directory. With few names it stays in one part all the same: its parts would have next to nothing.
    fn spread_heated(&mut self, now: Now) {
        for dir in std::mem::take(&mut self.view.heated) {
            let Some(slot) = self.view.cache.find_dir(dir) else { continue };
            let depth = self.usual_depth();
            let least = self.view.config.limits.hot_names << depth;
            if self.view.cache.dir(slot).header.entries >= least
                && !self.spreads.itself.is_resting(dir, now.mono)
            {
                self.spreads.wants(dir, depth, true);
            }
        }
    }

    fn look_on(&mut self, now: Now, out: &mut Outbox<Output>) {
        if let Some(look) =
            self.spreads.itself.look.take_if(|look| look.missing.is_empty() || look.until <= now.mono)
        {
            self.end_look(&look, out);
        }
        while self.spreads.itself.look.is_none() {
            let Some(dir) = self.spreads.itself.to_look.pop_first() else { return };
            match self.may_be_merged(dir) {
                May::No => {}
                May::NotNow => self.waits(dir),
                May::Pinned => self.merge_by_itself(dir, "it is pinned", out),
                May::IfSmall(spread) => self.begin_look(now, dir, spread, out),
            }
        }
    }

    fn may_be_merged(&mut self, dir: Ino) -> May {
        let pinned = self.view.is_pinned(dir);
        let merge_size = self.view.config.merge_size;
        if merge_size == 0 && !pinned {
            return May::No;
        }
        if !self.has_header(dir) {
            return self.find_header(dir);
        }
        let Some(spread) = self.view.cache.spread(dir) else { return May::No };
        let by_itself = spread.by_itself || stdx::mutant!("mds_merge_despite_operator");
        let ext = self.view.cache.by_ino(dir).and_then(|node| self.view.cache.ext(node));
        if !by_itself || ext.is_some_and(|ext| ext.policies.distributed) {
            return May::No;
        }
        let is_stopping = |rank: &RankId| self.view.territory.map().is_some_and(|map| rank.0 >= map.max_mds);
        let shrinks = self.view.territory.map().is_some_and(|map| map.ranks.keys().any(is_stopping));
        let moves = |(_, frag): (Ino, Frag)| {
            self.view.territory.entry_of(Unit { dir, frag }).is_some_and(|entry| entry.moving.is_some())
        };
        let busy = self.moves.concerns(dir) || self.spreads.is_about(dir) || spread.all().any(moves);
        if shrinks || busy || self.spreadable(dir).is_err() {
            return May::NotNow;
        }
        if pinned { May::Pinned } else { May::IfSmall(spread) }
    }

    /// A new life may know of the parts alone, or not even whose the directory is. When the header comes it is looked at.
    fn find_header(&mut self, dir: Ino) -> May {
        let Some(slot) = self.view.cache.find_dir(dir) else { return May::No };
        match self.view.of_itself(dir).or_else(|| self.view.side(slot)) {
            Some(Side::Mine) => self.start_load(LoadKey::Header { dir }, None),
            Some(Side::Other(_)) => {}
            Some(Side::Sealed) | None => return May::NotNow,
        }
        May::No
    }

    /// Adds up what is known, as far as that may be little, and asks for the rest.
    fn begin_look(&mut self, now: Now, dir: Ino, spread: Spread, out: &mut Outbox<Output>) {
        let until = now.mono.after(self.view.config.lease_ns);
        let mut look = Look { dir, until, missing: BTreeSet::new(), names: 0, heat: [0; 2], untold: false };
        let (mut elsewhere, mut known) = (Vec::new(), 0);
        for (number, frag) in spread.all() {
            let unit = Unit { dir, frag };
            match self.view.side_of_unit((number, unit)) {
                Some(Side::Mine) | None => {
                    if !self.has_unit_header(number, unit) {
                        return self.waits(dir);
                    }
                    let part = self.view.cache.find_dir(number).map(|slot| self.view.cache.dir(slot));
                    look.names += part.map_or(0, |part| part.header.entries);
                    let heat = self.view.heat_of(number);
                    look.heat.iter_mut().zip(heat).for_each(|(sum, part)| *sum += u64::from(part));
                }
                Some(Side::Other(Some(rank))) => {
                    known += self.view.totals.of(number).map_or(0, |header| header.entries);
                    elsewhere.push((number, unit, rank));
                }
                Some(Side::Other(None) | Side::Sealed) => return self.waits(dir),
            }
        }
        // Then nobody has to be asked.
        if look.names + known >= self.view.config.merge_size {
            return self.rests(dir, false);
        }
        look.missing = elsewhere.iter().map(|(number, ..)| *number).collect();
        for (number, unit, rank) in elsewhere {
            self.ask(Question::Totals(number), rank, Request::Totals { unit }, None);
        }
        if look.missing.is_empty() {
            return self.end_look(&look, out);
        }
        self.spreads.itself.look = Some(look);
    }

    /// All that is to be known of a directory is, or does not come.
    fn end_look(&mut self, look: &Look, out: &mut Outbox<Output>) {
        let config = &self.view.config;
        let is_small = look.names < config.merge_size || stdx::mutant!("mds_merge_of_many");
        let limits = [config.split_reads, config.split_writes];
        let is_hot = |(heat, limit): (&u64, u32)| limit > 0 && *heat >= (u64::from(limit) / COLD).max(1);
        let hot = look.heat.iter().zip(limits).any(is_hot) && !stdx::mutant!("mds_merge_while_hot");
        if look.missing.is_empty() && is_small && !hot {
            let why = format!("it has {} names", look.names);
            return self.merge_by_itself(look.dir, &why, out);
        }
        // What is hot cools down, and what nobody takes back may have changed: nobody says so.
        self.rests(look.dir, hot || look.untold || !look.missing.is_empty());
    }

    fn merge_by_itself(&mut self, dir: Ino, why: &str, out: &mut Outbox<Output>) {
        // It may be something else by now.
        if !matches!(self.may_be_merged(dir), May::Pinned | May::IfSmall(_)) {
            return self.waits(dir);
        }
        let text = format!("directory {:#x} is merged by itself: {why}", dir.0);
        out.push(Output::Note { level: Level::Info, text });
        self.spreads.add(dir, Want::One, true);
    }
}
