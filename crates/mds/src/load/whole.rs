//! Whole directories: loaded in the background, in bounds, when they fit and when that paid before.
//!
//! Absent: directories that a person wants warm (`warm.rs`), whose pages come the same way.

use super::ENTRY_BYTES;
use crate::cache::dir;
use crate::config::{Prefetch, RankConfig};
use crate::op::{LoadKey, ScanFor};
use crate::rank::Rank;
use proto::{Ino, NameHash};

/// Whole directories loaded at the same time, at most.
const WHOLE_MAX: u64 = 64;

impl Rank {
    /// A name had to be read alone: perhaps its whole directory is worth reading now.
    pub(super) fn count_miss(&mut self, ino: Ino) {
        let slot = self.view.cache.dir_or_new(ino);
        self.view.note_miss(slot);
        let config = &self.view.config;
        let used = self.view.cache.bytes();
        // Where others must make room for it, it must be small.
        let fits = |entries: u64| {
            let bytes = entries * ENTRY_BYTES;
            let room = used + bytes <= config.cache_bytes;
            entries <= config.limits.load_entries && bytes <= config.cache_bytes / if room { 4 } else { 16 }
        };
        let few = self.loads.whole < whole_max(config);
        let cache = &mut self.view.cache;
        cache.worth.missed();
        let dir = cache.dirs.get_mut(slot);
        dir.misses += 1;
        let entries = dir.header.entries;
        let may = few && dir.has(dir::HEADER) && !dir.has(dir::LOADING) && fits(entries);
        // Those that were missed are known by now.
        let new = entries.saturating_sub(u64::from(dir.misses));
        let wanted = match config.prefetch {
            Prefetch::Keyed => false,
            Prefetch::Auto => may && dir.misses >= enough(config, entries) && cache.worth.allows(new),
            Prefetch::Full => true,
        };
        if wanted && may {
            self.begin_whole_load(ino);
        }
    }

    /// All names of a directory that is neither complete nor being loaded.
    pub(crate) fn begin_whole_load(&mut self, ino: Ino) {
        let slot = self.view.cache.dir_or_new(ino);
        let dir = self.view.cache.dirs.get_mut(slot);
        dir.set(dir::LOADING);
        dir.clear(dir::LOAD_BROKEN);
        dir.misses = 0;
        self.loads.whole += 1;
        self.start_load(
            LoadKey::Scan { dir: ino, from: NameHash::FIRST, purpose: ScanFor::WholeDirectory },
            None,
        );
    }

    pub(super) fn whole_load_goes_on(&mut self, ino: Ino, next: Option<NameHash>) {
        let Some(slot) = self.view.cache.find_dir(ino) else { return self.end_whole_load(ino, false) };
        let limit = self.view.config.cache_bytes;
        // What cannot be forgotten fills the cache: no more on top of it.
        let crowded = self.view.cache.bytes() > limit + limit / 8;
        let broken = self.view.cache.dir(slot).has(dir::LOAD_BROKEN);
        let broken =
            broken || crowded || (next.is_some() && self.warm_must_end(ino, ScanFor::WholeDirectory));
        match next {
            Some(from) if !broken => {
                self.start_load(LoadKey::Scan { dir: ino, from, purpose: ScanFor::WholeDirectory }, None);
            }
            _ => self.end_whole_load(ino, next.is_none() && !broken),
        }
    }

    pub(super) fn end_whole_load(&mut self, ino: Ino, complete: bool) {
        self.loads.whole = self.loads.whole.saturating_sub(1);
        self.warm_dir_over(ino, ScanFor::WholeDirectory, complete);
        if let Some(slot) = self.view.cache.find_dir(ino) {
            let dir = self.view.cache.dirs.get_mut(slot);
            dir.clear(dir::LOADING);
            if complete {
                dir.set(dir::COMPLETE);
            }
        }
    }
}

/// Misses after which a directory of so many names is loaded whole: when reads of single names have cost about what it
/// will, whatever is asked for next costs twice of what it had to at most ("ski rental"). Bringing a name along costs
/// a third of reading it alone where the store's pages are warm. Random reads of a large tree get there with all its directories
/// at about the same time: `Worth::allows` spreads them.
fn enough(config: &RankConfig, entries: u64) -> u32 {
    config.limits.misses.max(u32::try_from(entries / 4).unwrap_or(u32::MAX))
}

/// Whole directories that may be loaded together: a sixteenth of the cache for what they bring.
fn whole_max(config: &RankConfig) -> u64 {
    let page = u64::from(config.limits.scan_entries) * ENTRY_BYTES;
    (config.cache_bytes / 16 / page.max(1)).clamp(1, WHOLE_MAX)
}
