//! What is delegated to sessions: directories (Dx) and files (Fx, Fb). It is no record, because nothing of it runs out by itself.
//!
//! Absent: when something is delegated (`caps/delegated.rs`, `caps/alone.rs`).

use super::recalls::recall_entry;
use super::{Book, Need};
use proto::Ino;
use proto::caps::{Bits, Recalled};
use stdx::Mono;

/// Something that is delegated to one session: a directory, or a file that is in one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trust {
    pub(super) place: u16,
    pub(super) file_in: Option<Ino>,
}

impl Trust {
    /// What is granted, recalled and returned.
    pub(super) const fn bits(self) -> Bits {
        if self.file_in.is_some() { Bits::ALONE } else { Bits::DX }
    }

    /// Whether it stands in the way of who needs that nobody else holds these. Whoever writes a file by itself tells its
    /// attributes, all of them.
    pub(super) const fn blocks(self, need: Bits) -> bool {
        let held = if self.file_in.is_some() { Bits::ALONE.with(Bits::ATTRS) } else { Bits::DX };
        !need.and(held).is_empty()
    }
}

impl Book {
    /// Delegates a directory to the session of that place, or a file that is in one.
    pub(crate) fn delegate(&mut self, place: u16, ino: Ino, file_in: Option<Ino>) {
        self.end_trust(ino);
        self.delegated.insert(ino, Trust { place, file_in });
        self.trusts.insert((place, ino));
        let entry = &mut self.places[usize::from(place)];
        entry.delegated += 1;
        if let Some(dir) = file_in {
            entry.files += 1;
            *self.files_in.entry((dir, place)).or_default() += 1;
        }
    }

    /// It is nobody's any more.
    pub(super) fn end_trust(&mut self, ino: Ino) {
        let Some(Trust { place, file_in }) = self.delegated.remove(&ino) else { return };
        self.trusts.remove(&(place, ino));
        let entry = &mut self.places[usize::from(place)];
        entry.delegated -= 1;
        let Some(dir) = file_in else { return };
        entry.files -= 1;
        if let Some(count) = self.files_in.get_mut(&(dir, place)) {
            *count -= 1;
            if *count == 0 {
                self.files_in.remove(&(dir, place));
            }
        }
    }

    /// A session has closed a file that is delegated to it, or moves it to directory `to`: its client does nothing by itself with
    /// it from there on. What is being recalled ends with the answer to that.
    pub(crate) fn gives_up(&mut self, place: u16, ino: Ino, to: Option<Ino>) {
        let Some(trust) = self.delegated.get(&ino).filter(|trust| trust.place == place) else { return };
        if trust.file_in.is_none() {
            return;
        }
        self.end_trust(ino);
        if let Some(dir) = to.filter(|_| self.recalls.contains_key(&(place, ino))) {
            self.delegate(place, ino, Some(dir));
        }
    }

    /// Whose it is.
    pub(crate) fn delegated_to(&self, ino: Ino) -> Option<u16> {
        self.delegated.get(&ino).map(|trust| trust.place)
    }

    pub(crate) fn is_delegated_to_others(&self, place: Option<u16>) -> bool {
        self.delegated.len() > place.map_or(0, |place| self.places[usize::from(place)].delegated)
    }

    /// How many directories and files are delegated to it.
    pub(crate) fn delegated(&self, place: u16) -> usize {
        self.places[usize::from(place)].delegated
    }

    /// How many directories.
    pub(crate) fn directories(&self, place: u16) -> usize {
        let entry = &self.places[usize::from(place)];
        entry.delegated - entry.files
    }

    /// How many files.
    pub(crate) fn files(&self, place: u16) -> usize {
        self.places[usize::from(place)].files
    }

    /// What is delegated to that place, in the order of numbers.
    fn trusts_of(&self, place: u16) -> impl Iterator<Item = Ino> {
        self.trusts.range((place, Ino(0))..=(place, Ino(u64::MAX))).map(|(_, ino)| *ino)
    }

    /// Takes back whatever is delegated to a session, `most` at a time; nobody waits for it. Returns how many that were.
    pub(crate) fn recall_delegated(&mut self, place: u16, now: Mono, most: usize) -> usize {
        let wanted = |ino: &Ino| !self.recalls.contains_key(&(place, *ino));
        let inos: Vec<Ino> = self.trusts_of(place).filter(wanted).take(most).collect();
        for ino in &inos {
            self.recall_one_delegated(place, *ino, now);
        }
        inos.len()
    }

    /// Takes back whatever is delegated to anybody, `most` at a time, in the order of places. Whether there may be more.
    pub(crate) fn recall_all_delegated(&mut self, now: Mono, most: usize) -> bool {
        let Some(from) = self.taking_back else { return false };
        let list: Vec<(u16, Ino)> = self.trusts.range(from..).take(most).copied().collect();
        self.taking_back = list
            .last()
            .filter(|_| list.len() == most)
            .map(|(place, ino)| (*place, Ino(ino.0.saturating_add(1))));
        for (place, ino) in list {
            self.recall_one_delegated(place, ino, now);
        }
        self.taking_back.is_some()
    }

    /// From here on all that is delegated is taken back, once.
    pub(crate) const fn take_back(&mut self) {
        self.taking_back = Some((0, Ino(0)));
    }

    /// Whether that goes on.
    pub(crate) const fn takes_back(&self) -> bool {
        self.taking_back.is_some()
    }

    /// The same of one of these.
    pub(crate) fn recall_one_delegated(&mut self, place: u16, ino: Ino, now: Mono) {
        let Some(bits) = self.delegated.get(&ino).map(|trust| trust.bits()) else { return };
        if self.recalls.contains_key(&(place, ino)) {
            return;
        }
        let entry = &mut self.places[usize::from(place)];
        let recall = recall_entry(&mut self.recalls, entry, (place, ino), now);
        (recall.bits, recall.sent) = (bits, 1);
        let message = Recalled { ino, bits, number: entry.next_number(), name: None };
        self.outbox.push((entry.session, message));
    }

    /// Nothing is delegated to that place any more.
    pub(crate) fn end_delegated(&mut self, place: u16) {
        if self.places[usize::from(place)].delegated == 0 {
            return;
        }
        let mine: Vec<Ino> = self.trusts_of(place).collect();
        for ino in mine {
            self.end_trust(ino);
            self.answered(place, ino);
        }
    }

    /// Whether a directory may be delegated to the session of that place: nobody else keeps anything of its listing or has files
    /// there delegated to it, waits for it, or wanted it lately.
    pub(crate) fn may_delegate(&self, place: u16, ino: Ino, now: Mono) -> bool {
        // Who removes names by itself must not wait for what others give back behind what they performed.
        let files = self.files_in.range((ino, 0)..=(ino, u16::MAX)).any(|((_, at), _)| *at != place);
        (!files || stdx::mutant!("mds_dx_over_files_of_others")) && self.is_free(place, ino, Bits::DX, now)
    }

    /// The same for a file in directory `dir`.
    pub(crate) fn may_delegate_file(&self, place: u16, ino: Ino, dir: Ino, now: Mono) -> bool {
        let others = self.delegated_to(dir).is_some_and(|at| at != place);
        !others && self.is_free(place, ino, Bits::ALONE, now)
    }

    fn is_free(&self, place: u16, ino: Ino, bits: Bits, now: Mono) -> bool {
        let need = Need::of(ino, bits.excludes());
        let withheld = self.withheld.contains_key(&ino) && !stdx::mutant!("mds_delegates_under_intent");
        let contested = self.contests.get(&ino).is_some_and(|contest| contest.until > now);
        let recalled = self.recalls.contains_key(&(place, ino));
        !withheld
            && !contested
            && !recalled
            && (!self.is_blocked(Some(place), &need)
                || (bits.has(Bits::DX) && stdx::mutant!("mds_dx_two_holders")))
    }
}
