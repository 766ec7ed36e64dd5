//! What is below a directory that moves: whether it is in use, what is granted of it, whether the store has it; and its end in the
//! cache. Each is looked through in slices.
//!
//! Absent: what follows from that (`moves.rs`).

use super::Phase;
use crate::cache::dir::{self, Dir};
use crate::caps::book::Need;
use crate::caps::needs;
use crate::config::State;
use crate::op::{Park, Stop};
use crate::rank::Rank;
use crate::territory::{Part, Side};
use proto::caps::Bits;
use proto::cluster::Unit;
use proto::storeio::Backptr;
use proto::transact::Change;
use proto::{Frag, Ino, NameHash, SessionId};

/// What is granted below what moves.
#[derive(Debug, Default)]
pub(super) struct Granted {
    pub(super) needs: Vec<Need>,
    /// A name that is not known is, too.
    pub(super) unnamed: bool,
    /// The next part of the book, if there is one.
    pub(super) next: Option<usize>,
}

/// Where a look at what is in use is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InUse {
    Files(Ino),
    Locks(Ino),
    Answers(SessionId),
}

impl InUse {
    pub(super) const FIRST: Self = Self::Files(Ino(0));
}

/// What a slice comes to.
pub(super) enum Slice<T> {
    /// It goes on there.
    More(T),
    /// It waits there.
    Wait,
    Done,
    /// It is not so, and why.
    No(String),
}

/// Whether the store has to hear something of a directory.
const fn is_dirty(dir: &Dir) -> bool {
    dir.dirty > 0 || dir.has(dir::QUEUED | dir::HEADER_DIRTY | dir::HEADER_LATER)
}

impl Rank {
    pub(super) const fn looks(&self) -> usize {
        self.view.config.limits.move_slice as usize
    }

    /// Whether it is known how the directory is spread of which a unit moves; if not it is read. While nobody knew, the store's names came under the
    /// directory's own number, where nobody who looks below the unit sees them: they would stay.
    pub(super) fn is_sorted(&mut self, unit: Unit) -> bool {
        if unit.frag == Frag::WHOLE {
            return true;
        }
        match self.view.unit_at(unit.dir, NameHash(unit.frag.prefix)) {
            Err(Stop::Park(Park::Load(key))) => {
                self.start_load(key, None);
                false
            }
            // Of what is gone nothing is kept.
            Ok(_) | Err(Stop::Park(_) | Stop::Fail(_) | Stop::NotMine(_)) => true,
        }
    }

    /// What is known of the directory of a unit stays until its move is over.
    pub(super) fn hold_group(&mut self, unit: Unit) {
        if unit.frag != Frag::WHOLE
            && let Some(slot) = self.view.cache.find_dir(unit.dir)
            && let Some(one) = self.moves.current.as_mut().filter(|one| one.held.is_none())
        {
            one.held = Some(unit.dir);
            self.view.cache.dirs.get_mut(slot).loads += 1;
        }
    }

    pub(super) fn let_group_go(&mut self, dir: Ino) {
        if let Some(slot) = self.view.cache.find_dir(dir) {
            let held = self.view.cache.dirs.get_mut(slot);
            held.loads = held.loads.saturating_sub(1);
            self.view.cache.drop_dir_if_idle(slot);
        }
    }

    /// Why nothing can move now.
    pub(crate) fn nothing_moves(&self) -> Option<String> {
        // What those keep that were granted it in a former life nobody knows.
        let former = !self.presenting.is_empty() || !self.sessions.former.is_empty();
        (self.state != State::Active || former).then(|| "sessions of before are awaited".to_owned())
    }

    /// Whether what moves is not announced yet: not all of it is stored, or a rank that lives again is yet to be greeted. Nothing is sealed or
    /// taken back for it by then, so nobody who is to greet waits for it. What broke: what moved away just behind the death of its rank was
    /// changed at once. Whoever had it then did not know what the life before had told, and to whom: for up to three seconds clients
    /// showed what had been, and a rank that had noticed nothing went by an old mode.
    pub(super) fn is_held_back(&self, flushed: u64) -> bool {
        let is_unheard = self.awaits_ranks() && !stdx::mutant!("mds_move_unheard");
        self.checkpoint.last < flushed || is_unheard
    }

    /// What the move waits for that is in that phase, or waited for, in words for an operator.
    pub(super) fn waits_for(&self, phase: Phase) -> &'static str {
        let is_flushed = matches!(phase, Phase::PreFlush { until } if self.checkpoint.last >= until);
        if is_flushed && self.awaits_ranks() { "greetings of other ranks" } else { phase.waits_for() }
    }

    /// Whether something below is in use that cannot go along; `drains`: whether something is under way there, too. Sealed, what was passed stays
    /// as it was.
    pub(super) fn in_use_below(&self, part: Part, at: InUse, drains: bool) -> Slice<InUse> {
        match at {
            InUse::Files(from) => {
                for (count, (ino, file)) in self.view.files.from(from).enumerate() {
                    if count == self.looks() {
                        return Slice::More(InUse::Files(ino));
                    }
                    if file.is_open()
                        && let Some(why) = self.holds_up(ino, Some(file), part)
                    {
                        return Slice::No(why);
                    }
                    if drains && file.is_under_way() && self.view.is_inode_below(ino, part) {
                        return Slice::Wait;
                    }
                }
                Slice::More(InUse::Locks(Ino(0)))
            }
            InUse::Locks(from) => {
                for (count, ino) in self.view.locks.files_from(from).enumerate() {
                    if count == self.looks() {
                        return Slice::More(InUse::Locks(ino));
                    }
                    if let Some(why) = self.holds_up(ino, self.view.files.get(ino), part) {
                        return Slice::No(why);
                    }
                }
                // What is reserved in a unit is so under its directory's number.
                let of = self.moves.current.as_ref().map_or(Ino::NONE, |one| one.unit.dir);
                let decided = |dir| {
                    (dir == of && !stdx::mutant!("mds_reserved_unit_moves")) || self.view.is_below(dir, part)
                };
                // Where an inode came from its old name is until that rank has heard of it: whoever gets the new one would see both.
                let mut told =
                    self.view.transactions.committed.values().flatten().flat_map(|(_, changes)| changes);
                let comes = told.any(|change| matches!(change, Change::Left(left) if decided(left.parent)));
                let busy =
                    !self.view.spent_cuts.is_empty() || comes || self.view.transactions.has_below(decided);
                if drains && busy { Slice::Wait } else { Slice::Done }
            }
            InUse::Answers(_) => Slice::Done,
        }
    }

    /// What is granted below to anybody, and of the directory itself, from that part of the book on. `names_over`: whatever kernels keep by a name
    /// that is not cached has run out.
    pub(super) fn granted_below(&self, of: Part, mut part: usize, names_over: bool) -> Granted {
        let mut granted = Granted::default();
        let mut looked = 0;
        while let Some(held) = self.view.book.held_in(part) {
            looked += held.len();
            for ino in held {
                if self.view.begins(ino, of)
                    || self.view.has_unit(ino, of)
                    || self.view.is_inode_below(ino, of)
                {
                    self.add_granted(ino, names_over, &mut granted);
                }
            }
            part += 1;
            if looked >= self.looks() {
                granted.next = Some(part);
                break;
            }
        }
        granted
    }

    /// A name goes only when it is named. While the inode is not cached nobody knows it, and what is left of it is waited for.
    fn add_granted(&self, ino: Ino, names_over: bool, granted: &mut Granted) {
        let need = needs::of_all(&self.view, ino);
        let is_known = names_over || self.view.cache.by_ino(ino).is_some();
        if is_known || stdx::mutant!("mds_uncached_names_stay") {
            return granted.needs.push(need);
        }
        let book = &self.view.book;
        let rest = Need { bits: need.bits.without(Bits::LS), ..need };
        granted.unnamed |= book.is_blocked(None, &Need::of(ino, Bits::LS));
        granted.needs.extend(Some(rest).filter(|rest| book.is_blocked(None, rest)));
    }

    /// Whether the store has where inodes below are; of three lists of places.
    pub(super) fn places_stored(&self, part: Part, (list, from): (u8, Ino)) -> Slice<(u8, Ino)> {
        let places = match list {
            0 => &self.view.backptrs,
            1 => &self.view.backptrs_old,
            2 => &self.view.backptrs_writing,
            _ => return Slice::Done,
        };
        for (count, (ino, (_, place))) in places.range(from..).enumerate() {
            if count == self.looks() {
                return Slice::More((list, *ino));
            }
            let content = |place: &Backptr| self.view.cache.inner(place.parent, place.hash);
            if place.as_ref().is_some_and(|place| self.view.is_below(content(place), part)) {
                return Slice::No(format!("the place of {:#x} is not stored", ino.0));
            }
        }
        Slice::More((list + 1, Ino(0)))
    }

    /// What is clean below begins to leave the cache, as if there were no room for it: while the store takes the rest nobody is served
    /// there, and less is left for `empty_below`. Where it goes on.
    pub(super) fn thin_below(&mut self, (first, from): (u32, NameHash)) -> Option<(u32, NameHash)> {
        let slots = self.view.cache.dirs.slots();
        let slice = self.view.config.limits.move_slice;
        let next = first.saturating_add(slice);
        let (mut names, mut from) = (slice, from);
        for slot in first..slots.min(next) {
            let dir = self.view.cache.dir(slot);
            let is_content = dir.ino != Ino::NONE && !dir.has(dir::FOREIGN | dir::PINNED | dir::REMOVED);
            let looked = dir.table.len();
            if is_content && self.view.side(slot) == Some(Side::Sealed) {
                if let Some(rest) = self.view.cache.thin(slot, from, names) {
                    return Some((slot, rest));
                }
                names = names.saturating_sub(looked);
                if names == 0 {
                    return Some((slot + 1, NameHash(0)));
                }
            }
            from = NameHash(0);
        }
        (next < slots).then_some((next, NameHash(0)))
    }

    /// What is below leaves the cache: nobody is served from it, and whoever has it next changes it.
    pub(super) fn empty_below(&mut self, from: u32) -> Slice<u32> {
        let slots = self.view.cache.dirs.slots();
        let slice = self.view.config.limits.move_slice;
        let (mut names, next) = (slice, from.saturating_add(slice));
        for slot in from..slots.min(next) {
            let dir = self.view.cache.dir(slot);
            if dir.ino == Ino::NONE || dir.has(dir::FOREIGN | dir::PINNED | dir::REMOVED) {
                continue;
            }
            let (ino, dirty) = (dir.ino, is_dirty(dir));
            match self.view.side(slot) {
                Some(Side::Sealed) if dirty => {
                    return Slice::No(format!("directory {:#x} is not stored", ino.0));
                }
                Some(Side::Sealed) => {}
                // Its own place is not known. If it is dirty it is below nothing that was stored.
                None if !dirty => {}
                Some(Side::Mine | Side::Other(_)) | None => continue,
            }
            let dropped = self.view.cache.drop_content(ino, names);
            if dropped.kept > 0 {
                return Slice::No(format!("a name in directory {:#x} is not stored", ino.0));
            }
            if dropped.more {
                return Slice::More(slot);
            }
            names -= dropped.gone;
            self.moves.emptied.push(ino);
        }
        if next < slots { Slice::More(next) } else { Slice::Done }
    }
}
