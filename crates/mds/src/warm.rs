//! Warming the cache before somebody asks: all names below a directory are loaded, each directory by one scan and the
//! directories in the order in which the store has them, until the cache is nearly full. What clients ask for goes on meanwhile: a
//! page of names comes back in a step of its own, as with every load.
//!
//! Absent: file data, which whoever warms reads; keeping what was warmed from being forgotten.

use crate::cache::dir;
use crate::op::{LoadKey, ScanFor};
use crate::rank::Rank;
use crate::territory::Side;
use crate::view::View;
use proto::cluster::Unit;
use proto::dentry::DentryValue;
use proto::storeio::StoredDentry;
use proto::{DecodeError, FileKind, Ino, NameHash};
use std::collections::{BTreeMap, BTreeSet};

/// Directories loaded together.
const DIRS_MAX: usize = 16;
/// Directories that are known and wait; those beyond are left out, and counted.
const WAITING_MAX: usize = 1 << 20;
/// Directories begun, or found to be gone, in one step.
const BEGIN_MAX: usize = 64;
/// Of so many eighths of its limit the cache is nearly full.
const FULL_EIGHTHS: u64 = 7;

/// How far warming is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WarmState {
    #[default]
    Never,
    Running,
    Done,
    /// The cache was nearly full before all was loaded.
    Full,
    /// Something else came first: a backup.
    Stopped,
    /// The directory to begin with is not there.
    Nowhere,
}

impl WarmState {
    /// The word shown.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Running => "running",
            Self::Done => "done",
            Self::Full => "full",
            Self::Stopped => "stopped",
            Self::Nowhere => "nowhere",
        }
    }
}

/// What the last warming has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WarmStatus {
    /// Counts them.
    pub run: u64,
    pub state: WarmState,
    /// Directories whose names were all looked at, and these names; those of them that were not in the cache before.
    pub dirs: u64,
    pub names: u64,
    pub loaded: u64,
    /// Directories known and not yet begun; left out: too many, not readable, forgotten while they were loaded.
    pub waiting: u64,
    pub left_out: u64,
}

/// Warming under way.
#[derive(Debug, Default)]
pub(crate) struct Warm {
    status: WarmStatus,
    /// In the order of the store's keys.
    waiting: BTreeSet<Ino>,
    /// Under way, and as which load: another of the same directory is somebody else's.
    active: BTreeMap<Ino, ScanFor>,
    /// Of a run before this one: they end with their next page.
    ending: BTreeMap<Ino, ScanFor>,
    /// Their headers are on their way. Before that is there nobody knows which names of them are other ranks'.
    headers: BTreeSet<Ino>,
}

impl Warm {
    pub(crate) fn status(&self) -> WarmStatus {
        WarmStatus { waiting: (self.waiting.len() + self.headers.len()) as u64, ..self.status }
    }

    /// Whether this load of the directory is for this.
    pub(crate) fn is_active(&self, ino: Ino, load: ScanFor) -> bool {
        self.active.get(&ino) == Some(&load)
    }

    /// Something can be begun, or it is over and nobody has said so.
    pub(crate) fn may_go_on(&self) -> bool {
        let under_way = self.active.len() + self.headers.len();
        let next = !self.waiting.is_empty() || under_way == 0;
        let room = under_way < DIRS_MAX && self.ending.is_empty();
        self.status.state == WarmState::Running && room && next
    }

    fn end(&mut self, state: WarmState) {
        self.status.state = state;
        self.waiting.clear();
        self.headers.clear();
    }
}

impl Rank {
    /// Begins anew with this directory, or ends.
    pub(crate) fn warm_from(&mut self, dir: Option<Ino>) {
        let Some(ino) = dir else {
            if self.warm.status.state == WarmState::Running {
                self.warm.end(WarmState::Stopped);
            }
            return;
        };
        let former = std::mem::take(&mut self.warm.active);
        self.warm.ending.extend(former);
        self.warm.headers.clear();
        let run = self.warm.status.run + 1;
        self.warm.status = WarmStatus { run, state: WarmState::Running, ..Default::default() };
        self.warm.waiting = BTreeSet::from([ino]);
        let there = self.view.cache.by_ino(ino).is_some_and(|slot| self.view.cache.node(slot).is_dir());
        if !there || ino.is_reserved() {
            self.warm.end(WarmState::Nowhere);
        }
    }

    /// Begins directories while there is room for them.
    pub(crate) fn warm_turn(&mut self) {
        for _ in 0..BEGIN_MAX {
            if !self.warm.may_go_on() || self.warm_is_full() {
                return;
            }
            match self.warm.waiting.pop_first() {
                Some(ino) => self.warm_dir(ino),
                None => return self.warm.end(WarmState::Done),
            }
        }
    }

    /// Whether the cache takes no more; then warming ends.
    fn warm_is_full(&mut self) -> bool {
        let limit = self.view.config.cache_bytes / 8 * FULL_EIGHTHS;
        let full = self.view.cache.bytes() + self.loads.coming_bytes() > limit;
        if full && self.warm.status.state == WarmState::Running {
            self.warm.end(WarmState::Full);
        }
        full
    }

    /// Whether a load that is under way for this has to end before its directory does.
    pub(crate) fn warm_must_end(&mut self, ino: Ino, load: ScanFor) -> bool {
        let former = self.warm.ending.get(&ino) == Some(&load);
        let over = self.warm.status.state != WarmState::Running;
        former || (self.warm.is_active(ino, load) && (over || self.warm_is_full()))
    }

    fn warm_dir(&mut self, ino: Ino) {
        // Forgotten or removed meanwhile: nobody would find its names, and a header that is gone would be taken for damage.
        // Nor where it is, or may soon be, another rank's: of a directory without names here a seal finds nothing to be dropped.
        let unit = self.view.cache.unit(ino);
        let inherits = self.view.cache.by_ino(unit.dir).is_some_and(|node| self.view.has_content(node));
        let here = |view: &View, number, unit| match view.territory.of_unit(number, unit) {
            Some(side) => side == Side::Mine,
            None => inherits,
        };
        if let Some(spread) = self.view.cache.spread(ino) {
            let units = spread.all().map(|(number, frag)| (number, Unit { dir: ino, frag }));
            let units = units.filter(|(number, unit)| here(&self.view, *number, *unit));
            return self.warm.waiting.extend(units.map(|(number, _)| number));
        }
        if unit.dir != ino && !self.has_unit_so(ino, unit) && !stdx::mutant!("mds_warms_former_units") {
            // All of it is looked at by what has the names now.
            self.warm.waiting.retain(|waits| self.view.cache.unit(*waits).dir != unit.dir);
            self.warm.waiting.insert(unit.dir);
            return;
        }
        if !here(&self.view, ino, unit) {
            return;
        }
        let slot = self.view.cache.dir_or_new(ino);
        let dir = self.view.cache.dir(slot);
        let (known, loading) = (dir.has(dir::HEADER), dir.has(dir::COMPLETE | dir::LOADING));
        if !known {
            self.warm.headers.insert(ino);
            return self.start_load(LoadKey::Header { dir: ino }, None);
        }
        self.warm.active.insert(ino, if loading { ScanFor::Warmup } else { ScanFor::WholeDirectory });
        if loading {
            // All its names are known, or will be: only its directories are looked for.
            let from = NameHash::FIRST;
            self.start_load(LoadKey::Scan { dir: ino, from, purpose: ScanFor::Warmup }, None);
        } else {
            self.begin_whole_load(ino);
        }
    }

    /// Whether a unit is a part of its directory yet. What broke: one was merged while its units waited to be warmed, and names came into a unit
    /// that were in the directory's own content: each had two, which was told as damage.
    fn has_unit_so(&self, number: Ino, unit: Unit) -> bool {
        let spread = self.view.cache.spread(unit.dir);
        spread.is_some_and(|spread| spread.of(NameHash(unit.frag.prefix)) == (number, unit.frag))
    }

    /// A directory's header has come, or will not.
    pub(crate) fn warm_header(&mut self, ino: Ino, is_there: bool) {
        if self.warm.headers.remove(&ino) {
            if is_there {
                self.warm.waiting.insert(ino);
            } else {
                self.warm.status.left_out += 1;
            }
        }
    }

    /// A page brought so many names into the cache.
    pub(crate) fn warm_loaded(&mut self, count: u32) {
        self.warm.status.loaded += u64::from(count);
    }

    /// A page of a directory that is being warmed is in the cache.
    pub(crate) fn warm_page(&mut self, entries: &[StoredDentry]) -> Result<(), DecodeError> {
        self.warm.status.names += entries.len() as u64;
        for entry in entries {
            let DentryValue::Primary(record) = DentryValue::decode(&entry.value)? else { continue };
            let is_dir = FileKind::of_mode(record.core.mode) == Some(FileKind::Directory);
            // What the store has may be older: a directory that was removed since is not cached.
            if !is_dir || self.view.cache.by_ino(record.core.ino).is_none() {
                continue;
            }
            if self.warm.waiting.len() >= WAITING_MAX {
                self.warm.status.left_out += 1;
            } else if self.warm.status.state == WarmState::Running {
                self.warm.waiting.insert(record.core.ino);
            }
        }
        Ok(())
    }

    /// The last page was that, or none will come. `whole`: all its names were looked at.
    pub(crate) fn warm_dir_over(&mut self, ino: Ino, load: ScanFor, whole: bool) {
        if self.warm.ending.get(&ino) == Some(&load) {
            self.warm.ending.remove(&ino);
        } else if self.warm.is_active(ino, load) {
            self.warm.active.remove(&ino);
            // It turned out to be spread.
            if !whole && self.view.cache.spread(ino).is_some() && self.warm.status.state == WarmState::Running
            {
                self.warm.waiting.insert(ino);
                return;
            }
            let status = &mut self.warm.status;
            *(if whole { &mut status.dirs } else { &mut status.left_out }) += 1;
        }
    }
}
