//! How much is asked of directories of late: reads, writes, names that had to be read from the store, names that came with others,
//! and time. A count loses half of itself in `mds_decay_halflife` (five seconds, as in CephFS), when it is looked at. What is asked of all
//! directories that one entry of the cluster map governs adds up as it comes.
//!
//! Absent: who asks (`meter.rs`); what follows for where anything is.

use crate::cache::dir;
use crate::cache::slab::NONE;
use crate::coordinator::LOADS_MAX;
use crate::op::{Op, Plan, Stop};
use crate::rank::Rank;
use crate::view::{Found, View};
use proto::cluster::Unit;
use proto::reply::Reply;
use proto::request::Request;
use proto::{Ino, Name, NameHash, Reader, Writer, every_request};
use std::collections::BTreeMap;
use stdx::Mono;
use stdx::time::SECOND;

/// Counts cool down in so many steps to their half.
const TICKS: u32 = 64;
/// One of what is counted.
const ONE: u32 = 256;
/// Units whose counts add up; what is in others counts for the root's.
const UNITS_MAX: usize = 65_538;
const READS: usize = 0;
const WRITES: usize = 1;
const MISSES: usize = 2;
const FETCHED: usize = 3;
/// Microseconds.
const TIME: usize = 4;

/// 2 to the power of -i/64, in 65536ths.
const COOLED: [u32; TICKS as usize] = {
    // The 64th root of a half, in parts of 2^32.
    const STEP: u64 = 4_248_701_965;
    let mut table = [0; TICKS as usize];
    let (mut at, mut value) = (0, 1_u64 << 32);
    while at < table.len() {
        table[at] = (value >> 16) as u32;
        value = (value * STEP) >> 32;
        at += 1;
    }
    table
};

/// Counts of one directory, or of many.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Heat {
    tick: u32,
    counts: [u32; 5],
}

/// What was asked of late, each for one second: what was asked `mds_decay_halflife` ago counts half. None is negative.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Requests that changed nothing.
    pub reads: f64,
    /// Requests that changed something.
    pub writes: f64,
    /// Names that were not in the cache, and had to be read one by one.
    pub misses: f64,
    /// Names that came from the store, alone or with others.
    pub fetched: f64,
    /// Seconds of a CPU.
    pub cpu: f64,
}

impl Load {
    const fn parts(&self) -> [f64; 5] {
        [self.reads, self.writes, self.misses, self.fetched, self.cpu]
    }

    const fn of(parts: [f64; 5]) -> Self {
        let [reads, writes, misses, fetched, cpu] = parts;
        Self { reads, writes, misses, fetched, cpu }
    }

    /// What is asked of both.
    #[must_use]
    pub(crate) fn plus(self, other: Self) -> Self {
        let (mut sum, other) = (self.parts(), other.parts());
        sum.iter_mut().zip(other).for_each(|(sum, part)| *sum += part);
        Self::of(sum)
    }

    /// As a rank tells it to another.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        for part in self.parts() {
            w.u64(part.to_bits());
        }
        w.0
    }

    /// None: it is no such thing.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (mut r, mut parts) = (Reader::new(bytes), [0.0; 5]);
        for part in &mut parts {
            *part = f64::from_bits(r.u64().ok()?);
        }
        parts.iter().all(|part| part.is_finite() && *part >= 0.0).then(|| Self::of(parts))
    }
}

/// What is asked of the directories that one entry governs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UnitLoad {
    /// The number of that entry's content; `Ino::NONE`: of those that slots place.
    pub dir: Ino,
    /// What it is in the cluster map.
    pub unit: Unit,
    pub load: Load,
}

fn tick_of(now: Mono, half_life_ns: u64) -> u32 {
    (now.0 / (half_life_ns / u64::from(TICKS)).max(1)) as u32
}

impl Heat {
    fn cool(&mut self, tick: u32) {
        let passed = tick.wrapping_sub(self.tick);
        self.tick = tick;
        let (halves, part) = (passed / TICKS, COOLED[(passed % TICKS) as usize]);
        for count in &mut self.counts {
            let left = (u64::from(*count) * u64::from(part)) >> 16;
            *count = left.checked_shr(halves).unwrap_or(0) as u32;
        }
    }

    /// Whether it is the first that is added in that tick.
    #[inline]
    fn add(&mut self, tick: u32, counts: &[(usize, u32)]) -> bool {
        let is_new = self.tick != tick;
        if is_new && !stdx::mutant!("mds_heat_stays") {
            self.cool(tick);
        }
        for (what, count) in counts {
            self.counts[*what] = self.counts[*what].saturating_add(*count);
        }
        is_new
    }

    /// Reads and writes that are not forgotten yet.
    const fn asked(&self) -> [u32; 2] {
        [self.counts[READS] / ONE, self.counts[WRITES] / ONE]
    }

    fn load(mut self, tick: u32, half_life_ns: u64) -> Load {
        self.cool(tick);
        // So many seconds' worth are in a count that neither grows nor shrinks.
        let seconds = half_life_ns as f64 / SECOND as f64 / std::f64::consts::LN_2;
        let [reads, writes, misses, fetched, time] =
            self.counts.map(|count| f64::from(count) / f64::from(ONE) / seconds);
        Load { reads, writes, misses, fetched, cpu: time / 1e6 }
    }
}

/// Counts that add up, by the directory whose entry governs.
#[derive(Debug)]
pub(crate) struct Heats {
    units: Vec<(Ino, Heat)>,
    places: BTreeMap<Ino, u32>,
}

impl Default for Heats {
    fn default() -> Self {
        Self {
            units: vec![(Ino::ROOT, Heat::default()), (Ino::NONE, Heat::default())],
            places: BTreeMap::from([(Ino::ROOT, 0), (Ino::NONE, 1)]),
        }
    }
}

impl Heats {
    /// Begins anew if many places are taken: of entries that are gone nobody gives them back. Whose something is, and with that its
    /// place, is found anew by each map.
    pub(crate) fn look_anew(&mut self) {
        if self.units.len() > UNITS_MAX / 2 {
            *self = Self::default();
        }
    }

    /// The place of an entry's directory; NONE: of slots.
    pub(crate) fn place(&mut self, dir: Ino) -> u32 {
        if let Some(place) = self.places.get(&dir) {
            return *place;
        }
        if self.units.len() >= UNITS_MAX {
            return 0;
        }
        let place = self.units.len() as u32;
        self.units.push((dir, Heat::default()));
        self.places.insert(dir, place);
        place
    }
}

/// CPU time of a name of a page of a listing, and of a name that the store brought into the cache, in nanoseconds: they are not measured
/// by themselves, and taken as less than, and as much as, the lookup of one.
const LISTED_NS: u32 = 200;
const FETCHED_NS: u32 = 561;
/// Of a question to the store: 4.4 lookups, as were measured on a busy machine; on a quiet one it was 1.9 (bench/scale/costs.txt).
const MISS_NS: u32 = 2_480;

/// CPU time of one planning and what follows, in nanoseconds: an estimate by the kind of request, because a clock costs more. It says how
/// busy directories are beside each other, not how long the processor ran. No output of the run that the numbers are of was kept; in
/// bench/scale/costs.txt the kinds that have a name here take 1.05 to 1.9 times as long.
const fn cost_ns(request: &Request) -> u32 {
    match request {
        Request::Lookup { .. } => 561,
        Request::GetAttr { .. } | Request::Access { .. } => 532,
        Request::Open { .. } => 860,
        Request::Release { .. } => 656,
        Request::MkNod { .. } | Request::MkDir { .. } => 1323,
        Request::Unlink { .. } | Request::RmDir { .. } | Request::Rename { .. } => 2378,
        Request::Write { .. } => 6470,
        every_request!() => 1251,
    }
}

/// What the names of a page cost besides.
fn listed_ns(planned: &Found<Plan>) -> u32 {
    match planned {
        Ok(Plan::Answer(Ok(Reply::Entries { entries, .. }), _)) => {
            u32::try_from(entries.len()).unwrap_or(u32::MAX).saturating_mul(LISTED_NS)
        }
        Ok(
            Plan::Answer(..)
            | Plan::Commit(..)
            | Plan::Data(..)
            | Plan::Step(..)
            | Plan::Durable(_)
            | Plan::Queued,
        )
        | Err(_) => 0,
    }
}

/// As `TIME` counts it.
fn time(nanos: u32) -> u32 {
    (u64::from(nanos) * u64::from(ONE) / 1000) as u32
}

impl View {
    /// The directory that a request is about: in which it looks, or in which its inode is.
    fn asked_of(&self, request: &Request) -> Option<u32> {
        let (node, name) = request.subject()?;
        let inside = name.is_some() || matches!(request, Request::ReadDir { .. } | Request::TmpFile { .. });
        // Mostly it was resolved last, and is at hand.
        let resolved = self.resolved != NONE && self.cache.node(self.resolved).ino() == node.ino;
        if inside {
            let own = if resolved { self.cache.node(self.resolved).own } else { NONE };
            let slot = if own == NONE { self.cache.find_dir(node.ino)? } else { own };
            let is_spread = self.cache.dir(slot).is_spread() && !stdx::mutant!("mds_names_heat_no_part");
            return Some(if is_spread { self.part_asked_of(slot, request, name) } else { slot });
        }
        let slot = if resolved { self.resolved } else { self.cache.by_ino(node.ino)? };
        Some(self.cache.node(slot).dir)
    }

    /// In which step counts are that are added or looked at now.
    fn tick(&self, now: Mono) -> u32 {
        tick_of(now, self.config.decay_ns)
    }

    /// The unit that it looks in: what is asked of each is counted there.
    #[cold]
    fn part_asked_of(&self, slot: u32, request: &Request, name: Option<&Name>) -> u32 {
        let after = match request {
            Request::ReadDir { after, .. } => Some(NameHash::from_cookie(*after)),
            every_request!() => None,
        };
        let Some(hash) = name.map(|name| self.name_hash(name)).or(after) else { return slot };
        let unit = self.cache.inner(self.cache.dir(slot).ino, hash);
        self.cache.find_dir(unit).unwrap_or(slot)
    }

    fn warm_up(&mut self, slot: u32, counts: &[(usize, u32)]) {
        let tick = self.tick(self.now.mono);
        let undisputed = self.territory.is_undisputed();
        // What governs it is found with whose it is.
        let _side = self.side(slot);
        let dir = self.cache.dirs.get_mut(slot);
        // Often enough, and less than with each request.
        if dir.heat.add(tick, counts) {
            let [reads, writes] = dir.heat.asked();
            let is_over = |count: u32, limit: u32| limit > 0 && count >= limit;
            if is_over(reads, self.config.split_reads) || is_over(writes, self.config.split_writes) {
                self.heats_up(slot);
            }
        }
        let dir = self.cache.dir(slot);
        let unit = if undisputed { 0 } else { dir.unit as usize };
        if let Some((_, heat)) = self.heats.units.get_mut(unit) {
            heat.add(tick, counts);
        }
    }

    /// So much is asked of a directory that several ranks are to serve it, if it is in one part.
    #[cold]
    fn heats_up(&mut self, slot: u32) {
        let dir = self.cache.dir(slot);
        let is_whole = dir.has(dir::HEADER) && !dir.is_spread() && dir.of() == dir.ino;
        let ino = dir.ino;
        if is_whole && self.may_be_spread(ino) && self.heated.last() != Some(&ino) {
            self.heated.push(ino);
        }
    }

    /// Reads and writes of a cached content that are not forgotten yet.
    pub(crate) fn heat_of(&self, number: Ino) -> [u32; 2] {
        let Some(slot) = self.cache.find_dir(number) else { return [0; 2] };
        let mut heat = self.cache.dir(slot).heat;
        heat.cool(self.tick(self.now.mono));
        heat.asked()
    }

    /// Names of a directory came from the store.
    pub(crate) fn note_fetched(&mut self, slot: u32, names: usize) {
        let names = u32::try_from(names).unwrap_or(u32::MAX);
        let counts = [(FETCHED, names.saturating_mul(ONE)), (TIME, time(FETCHED_NS.saturating_mul(names)))];
        self.warm_up(slot, &counts);
    }

    /// A name had to be read.
    pub(crate) fn note_miss(&mut self, slot: u32) {
        self.warm_up(slot, &[(MISSES, ONE), (TIME, time(MISS_NS))]);
    }

    /// What is asked of a cached directory by itself.
    pub(crate) fn load_of(&self, dir: Ino) -> Load {
        let slot = self.cache.find_dir(dir);
        let (tick, half_life_ns) = (self.tick(self.now.mono), self.config.decay_ns);
        slot.map_or_else(Load::default, |slot| self.cache.dir(slot).heat.load(tick, half_life_ns))
    }
}

impl Rank {
    /// A request was planned.
    #[inline]
    pub(crate) fn note_heat(&mut self, op: &Op, planned: &Found<Plan>) {
        let what = match planned {
            Ok(Plan::Answer(..) | Plan::Durable(_) | Plan::Queued) => Some(READS),
            Ok(Plan::Commit(..) | Plan::Step(..)) => Some(WRITES),
            // Its second half is counted.
            Ok(Plan::Data(..)) => None,
            Err(Stop::Fail(_)) => Some(READS),
            Err(Stop::Park(_)) => None,
            Err(Stop::NotMine(_)) => return,
        };
        let Some(slot) = self.view.asked_of(&op.request) else { return };
        if self.view.cache.dir(slot).has(dir::FOREIGN) {
            return;
        }
        let cost = cost_ns(&op.request).saturating_add(listed_ns(planned));
        let counts = [(TIME, time(cost)), (what.unwrap_or(READS), if what.is_some() { ONE } else { 0 })];
        self.view.warm_up(slot, &counts);
    }

    /// Of what most is asked of late, as the coordinator is told: microseconds of a CPU for each second.
    #[must_use]
    pub fn most_loaded(&self, now: Mono) -> Vec<(Ino, u64)> {
        let mut loads: Vec<(Ino, u64)> =
            self.loads(now).iter().map(|unit| (unit.dir, (unit.load.cpu * 1e6) as u64)).collect();
        if loads.len() > LOADS_MAX {
            // Not sorted: nobody asks for the order, and the rank waits for this.
            loads.select_nth_unstable_by_key(LOADS_MAX, |(dir, load)| (std::cmp::Reverse(*load), *dir));
            loads.truncate(LOADS_MAX);
        }
        loads
    }

    /// What is asked of late, by what governs it; those of which nothing is asked are left out.
    #[must_use]
    pub fn loads(&self, now: Mono) -> Vec<UnitLoad> {
        let (tick, half_life_ns) = (self.view.tick(now), self.view.config.decay_ns);
        let unit = |dir| self.view.cache.unit(dir);
        let units = self.view.heats.units.iter().map(|(dir, heat)| UnitLoad {
            dir: *dir,
            unit: unit(*dir),
            load: heat.load(tick, half_life_ns),
        });
        units.filter(|unit| unit.load != Load::default()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF: u32 = TICKS;
    const LIFE_NS: u64 = 5 * SECOND;

    #[test]
    fn places_of_entries_that_are_gone_are_given_back() {
        let mut heats = Heats::default();
        (0..UNITS_MAX as u64).for_each(|at| _ = heats.place(Ino(10_000 + at)));
        assert_eq!(heats.place(Ino(5_000)), 0, "all are taken");
        heats.look_anew();
        assert!(heats.place(Ino(5_000)) > 1);
    }

    #[test]
    fn half_of_it_is_gone_in_five_seconds() {
        let mut heat = Heat::default();
        heat.add(100, &[(READS, 1000 * ONE)]);
        for (passed, left) in
            [(0, 1000.0), (HALF / 2, 707.1), (HALF, 500.0), (2 * HALF, 250.0), (100 * HALF, 0.0)]
        {
            let seconds = 5.0 / std::f64::consts::LN_2;
            let found = heat.load(100 + passed, LIFE_NS).reads * seconds;
            assert!((found - left).abs() <= left / 200.0, "{passed}: {found}");
        }
    }

    /// Whatever is asked steadily shows as that, in small steps and in large ones.
    #[test]
    fn what_is_steady_shows_so() {
        for (every, count) in [(1, 1), (1, 4_000), (7, 50)] {
            let mut heat = Heat::default();
            let mut tick = 5;
            while tick < 5 + 20 * HALF {
                heat.add(tick, &[(WRITES, count * ONE)]);
                tick += every;
            }
            let asked = f64::from(count) / f64::from(every) * f64::from(TICKS) / 5.0;
            let shown = heat.load(tick, LIFE_NS).writes;
            assert!((shown - asked).abs() < asked / 12.0, "{shown} instead of {asked}");
        }
    }

    #[cfg(feature = "mutants")]
    #[test]
    fn a_heat_that_stays_is_caught() {
        stdx::mutant::activate(Some("mds_heat_stays"));
        let seen = std::panic::catch_unwind(what_is_steady_shows_so);
        stdx::mutant::activate(None);
        assert!(seen.is_err());
    }

    /// The longest that an operator may set: of a rank that is busy all the time the count does not come to its end.
    #[test]
    fn a_busy_second_shows_as_one_whatever_the_half_life() {
        for half_life_ns in [SECOND, 5 * SECOND, 10 * SECOND] {
            let mut heat = Heat::default();
            let mut now = SECOND;
            // A millisecond at a time.
            for _ in 0..200_000 {
                heat.add(tick_of(Mono(now), half_life_ns), &[(TIME, time(1_000_000))]);
                now += SECOND / 1000;
            }
            let cpu = heat.load(tick_of(Mono(now), half_life_ns), half_life_ns).cpu;
            assert!((0.95..=1.05).contains(&cpu), "{half_life_ns}: {cpu}");
        }
    }

    #[test]
    fn nothing_overflows() {
        let mut heat = Heat::default();
        for _ in 0..3 {
            heat.add(1, &[(TIME, u32::MAX)]);
        }
        assert!(heat.load(1, LIFE_NS).cpu > 0.0);
        assert_eq!(heat.load(u32::MAX, LIFE_NS), Load::default());
    }
}
