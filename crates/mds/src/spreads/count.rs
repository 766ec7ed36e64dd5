//! What the units of a directory that is to be spread will have: its names are counted range by range, each in a step of its own, while
//! it is served. Those that are cached are counted as they are there, the others as a page of the store says. Then names leave the
//! cache until few are left to be handed to the units at once.
//!
//! Absent: the sums (`cache/tally.rs`).

use super::{Phase, ROUNDS};
use crate::cache::{Tally, dir};
use crate::op::{LoadKey, ScanFor, ScanPage};
use crate::rank::Rank;
use proto::dentry::DentryValue;
use proto::{DecodeError, FileKind, Ino, NameHash};

impl Rank {
    /// Counts the next names, or asks the store for them; whether all are counted.
    pub(super) fn count_on(&mut self, dir: Ino, slot: u32, depth: u8) -> bool {
        let cache = &mut self.view.cache;
        let tally = cache.tally.get_or_insert_with(|| Box::new(Tally::new(dir, depth)));
        let Some(from) = tally.from else { return true };
        if cache.dir(slot).has(dir::COMPLETE) {
            let most = self.view.config.limits.move_slice as usize;
            cache.tally_on(slot, std::iter::empty(), None, most);
            self.spreads.again = true;
            self.spreading_goes_on();
        } else if !self.spreads.reading {
            self.spreads.reading = true;
            self.start_load(LoadKey::Scan { dir, from, purpose: ScanFor::Count }, None);
        }
        false
    }

    /// A page that was asked for to count it. What changed since it was asked for is cached, or the page would be read again.
    pub(crate) fn counted_page(&mut self, dir: Ino, page: &ScanPage) -> Result<(), DecodeError> {
        let is_its = self.spreads.is_counting(dir);
        let Some(slot) = self.view.cache.find_dir(dir).filter(|_| is_its) else { return Ok(()) };
        self.spreads.reading = false;
        let mut names = Vec::with_capacity(page.entries.len());
        for entry in &page.entries {
            let is_dir = match DentryValue::decode(&entry.value)? {
                DentryValue::Primary(record) => {
                    FileKind::of_mode(record.core.mode) == Some(FileKind::Directory)
                }
                DentryValue::Remote { kind, .. } => kind == FileKind::Directory,
            };
            names.push((entry.hash, &*entry.name, is_dir));
        }
        // One that was asked for by a count that was given up may begin elsewhere.
        let cache = &mut self.view.cache;
        if cache.tally.as_ref().is_some_and(|tally| tally.from == Some(page.from)) {
            let most = self.view.config.limits.move_slice as usize;
            cache.tally_on(slot, names.into_iter(), page.next, most);
            self.spreading_goes_on();
        }
        Ok(())
    }

    /// A page does not come: what was read may be another rank's, or cannot be read.
    pub(crate) fn not_counted(&mut self, dir: Ino, failed: bool) {
        if self.spreads.is_counting(dir) {
            self.spreads.reading = false;
            self.spreads.failed |= failed;
        }
    }

    /// Names that may leave the cache do so, from that hash on, until there are few.
    pub(super) fn thin_out(&mut self, slot: u32, from: NameHash) -> Result<Option<Phase>, &'static str> {
        if self.hands_out_few(slot) {
            return Ok(Some(Phase::Rest));
        }
        let most = self.view.config.limits.move_slice;
        let next = self.view.cache.thin(slot, from, most);
        self.thinned(next, self.hands_out_few(slot))
    }

    /// Names have left the cache up to `next`, or to the end; `few`: few enough are left.
    pub(super) fn thinned(
        &mut self,
        next: Option<NameHash>,
        few: bool,
    ) -> Result<Option<Phase>, &'static str> {
        let rounds = self.spreads.current.map_or(0, |one| one.rounds);
        match next {
            Some(next) => {
                self.spreads.again = true;
                self.spreads.enter(Phase::Thin(next));
                Ok(None)
            }
            None if few => Ok(Some(Phase::Rest)),
            None if rounds >= ROUNDS => Err("too many of its names are in use or change"),
            // What the store has not seen cannot leave.
            None => {
                self.spreads.another_round();
                self.spreading_goes_on();
                Ok(Some(Phase::Store { until: self.next_checkpoint() }))
            }
        }
    }

    /// Whether the names that are cached can be handed to the units in one step.
    pub(super) fn hands_out_few(&self, slot: u32) -> bool {
        let names = self.view.cache.dir(slot).table.len();
        names <= self.view.config.limits.spread_names || stdx::mutant!("mds_spread_hands_out_many")
    }

    /// Whether what was counted is what the directory says of itself.
    pub(super) fn agrees(&self, slot: u32) -> bool {
        let header = &self.view.cache.dir(slot).header;
        let sum = self.view.cache.tally.as_ref().map(|tally| tally.sum());
        sum.is_some_and(|sum| (sum.entries, sum.subdirs) == (header.entries, header.subdirs))
    }
}
