//! Copies: what other ranks keep of directories: of those at home here the record (As Ls Xs), of those whose content is here the totals
//! (Fs). Until they are recalled: they do not run out, so they are not among the records.
//!
//! Absent: what a copy is at the rank that keeps it (`replicas.rs`, `totals.rs`).

use super::Book;
use proto::Ino;
use proto::caps::Bits;
use std::collections::BTreeMap;
use stdx::Mono;

/// What the holder of a record goes by.
pub(crate) const RECORD: Bits = Bits(Bits::AS.0 | Bits::LS.0 | Bits::XS.0);

/// Who keeps copies of what.
#[derive(Debug, Default)]
pub(super) struct Copies {
    of: BTreeMap<Ino, BTreeMap<u16, Bits>>,
}

impl Copies {
    pub(super) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    pub(super) fn inos(&self) -> impl Iterator<Item = Ino> {
        self.of.keys().copied()
    }

    /// What others than `place` have of it in the way of `need`.
    pub(super) fn blockers(
        &self,
        place: Option<u16>,
        ino: Ino,
        need: Bits,
    ) -> impl Iterator<Item = (u16, Bits)> {
        let holders = self.of.get(&ino).into_iter().flatten();
        let others = holders.filter(move |(at, _)| Some(**at) != place);
        others.map(move |(at, bits)| (*at, bits.and(need))).filter(|(_, bits)| !bits.is_empty())
    }

    /// That place keeps none of it any more.
    pub(super) fn end(&mut self, place: u16, ino: Ino) {
        if let Some(holders) = self.of.get_mut(&ino) {
            holders.remove(&place);
            if holders.is_empty() {
                self.of.remove(&ino);
            }
        }
    }

    pub(super) fn has(&self, ino: Ino) -> bool {
        self.of.contains_key(&ino)
    }

    /// Nobody does.
    pub(super) fn end_all(&mut self, ino: Ino) {
        self.of.remove(&ino);
    }

    /// Nobody keeps the record.
    pub(super) fn end_records(&mut self, ino: Ino) {
        if let Some(holders) = self.of.get_mut(&ino) {
            holders.values_mut().for_each(|bits| *bits = bits.without(RECORD));
            holders.retain(|_, bits| !bits.is_empty());
            if holders.is_empty() {
                self.of.remove(&ino);
            }
        }
    }

    /// Of that place only totals stay. Returns what it keeps no more, and whether something stays.
    pub(super) fn end_all_but_totals(&mut self, place: u16) -> (Vec<Ino>, bool) {
        let (mut ended, mut stays) = (Vec::new(), false);
        self.of.retain(|ino, holders| {
            if let Some(bits) = holders.get_mut(&place) {
                *bits = bits.and(Bits::FS);
                if bits.is_empty() {
                    holders.remove(&place);
                    ended.push(*ino);
                } else {
                    stays = true;
                }
            }
            !holders.is_empty()
        });
        (ended, stays)
    }

    /// That place keeps nothing any more.
    pub(super) fn leave(&mut self, place: u16) {
        self.of.retain(|_, holders| {
            holders.remove(&place);
            !holders.is_empty()
        });
    }
}

impl Book {
    /// Whether a copy may be given to a place: not while it is taken back from there, or somebody is about to change it.
    pub(crate) fn may_copy(&self, place: u16, ino: Ino) -> bool {
        !self.withheld.contains_key(&ino) && !self.recalls.contains_key(&(place, ino))
    }

    /// The same of totals: nor while it changes all the time, since each change would have to wait for the holder.
    pub(crate) fn may_keep_totals(&self, place: u16, ino: Ino, now: Mono) -> bool {
        self.may_copy(place, ino) && self.contests.get(&ino).is_none_or(|contest| contest.until <= now)
    }

    /// Whether other ranks keep copies of it.
    pub(crate) fn is_copied(&self, ino: Ino) -> bool {
        self.copies.has(ino)
    }

    /// Other than totals that place keeps nothing any more. Returns whether it keeps any.
    pub(crate) fn keeps_totals_alone(&mut self, place: u16) -> bool {
        let (ended, stays) = self.copies.end_all_but_totals(place);
        for ino in ended {
            self.answered(place, ino);
        }
        stays
    }

    /// That place keeps a copy.
    pub(crate) fn copied(&mut self, place: u16, ino: Ino, bits: Bits) {
        let kept = self.copies.of.entry(ino).or_default().entry(place).or_default();
        *kept = kept.with(bits);
    }
}
