//! Which part of the namespace is this rank's: the cluster map, and whose each cached directory is under it. docs/PROTOCOL.md,
//! "Several ranks".
//!
//! Absent: how inodes that are not cached are found (`search.rs`); other ranks (`peers.rs`); moves (`moves.rs`).

use crate::cache::dir;
use crate::cache::slab::NONE;
use crate::spreads::known::parts_of;
use crate::view::View;
use proto::cluster::{ClusterMap, Entry, RankInfo, Slot, Unit};
use proto::header::FragHeader;
use proto::inode::{InodeCore, flags};
use proto::{Frag, Incarnation, Ino, RankId, Version};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Directories above each other that are looked at; a way that is longer leads nowhere.
const WAY_MAX: usize = 1 << 16;
/// The directories of orphans, one for each rank, in the order of ranks.
const ORPHANS: Ino = Ino::orphans(RankId(0));

/// Whose the content of a directory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Mine,
    /// It may be another's soon: nobody is served from it.
    Sealed,
    /// Another rank's; perhaps it is known whose.
    Other(Option<RankId>),
}

/// What moves together, with all that inherits below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// A directory's content.
    Of(Ino),
    /// The contents of directories that these slots place.
    Slots { first: u16, count: u16 },
}

/// Whether something is below what moves, as far as the cache says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Below {
    Yes,
    No,
    /// The way up ends at that inode, which is not cached.
    Unknown(Ino),
}

impl Part {
    /// Whether it has the content of the directories of that slot.
    const fn has_slot(self, number: u16) -> bool {
        match self {
            Self::Of(_) => false,
            Self::Slots { first, count } => first <= number && number - first < count,
        }
    }
}

/// What is this rank's.
#[derive(Debug)]
pub(crate) struct Territory {
    rank: RankId,
    map: Option<Arc<ClusterMap>>,
    /// Grows with each map and seal: what was found under one before is found again. Never 0.
    generation: u32,
    /// By the map everything is this rank's.
    all: bool,
    /// Everything is this rank's, nothing leaves, nothing is reserved: nothing is looked up.
    undisputed: bool,
    /// There are other ranks. One that owns nothing may have inodes without a name, and opens of them.
    others: bool,
    /// Some of them do not serve.
    away: bool,
    /// There may be directories that are placed by slots.
    placing: bool,
    /// What is on its way to another rank, and whether that is sealed.
    leaving: Option<(Part, bool)>,
    /// The directory whose content, or a unit of it, that is. The cache may forget what a unit is of.
    leaving_of: Ino,
    /// There are entries of parts of directories.
    units: bool,
    /// Directories that are gone, of whose parts there are entries yet.
    gone: BTreeSet<Ino>,
    /// Directories that are in one part, although this map has entries of parts of them.
    merged: BTreeSet<Ino>,
    /// Something waits for what becomes of transactions of other ranks.
    reserved: bool,
    /// How often what was asked of the store before counts no more: seals, after which it may be another's, and changes of how a
    /// directory is divided.
    loads_outdated: u64,
}

impl Territory {
    /// Who is told of no map is alone.
    pub(crate) const fn new(rank: RankId) -> Self {
        Self {
            rank,
            map: None,
            generation: 1,
            all: true,
            undisputed: true,
            others: false,
            away: false,
            placing: false,
            leaving: None,
            leaving_of: Ino::NONE,
            units: false,
            gone: BTreeSet::new(),
            merged: BTreeSet::new(),
            reserved: false,
            loads_outdated: 0,
        }
    }

    /// Whether everything is this rank's, nothing leaves, and nothing is reserved.
    #[inline(always)]
    pub(crate) const fn is_undisputed(&self) -> bool {
        self.undisputed
    }

    /// Whether the rank is the only one.
    pub(crate) const fn is_only(&self) -> bool {
        self.undisputed && !self.others
    }

    /// Whether there are other ranks.
    pub(crate) const fn has_others(&self) -> bool {
        self.others
    }

    /// Whether there are ranks that do not serve.
    pub(crate) const fn has_away(&self) -> bool {
        self.away
    }

    pub(crate) const fn map(&self) -> Option<&Arc<ClusterMap>> {
        self.map.as_ref()
    }

    pub(crate) const fn generation(&self) -> u32 {
        self.generation
    }

    /// Of the map; 0: there is none.
    pub(crate) fn version(&self) -> u64 {
        self.map.as_ref().map_or(0, |map| map.version)
    }

    /// The last that any rank was given, as far as is known.
    pub(crate) fn last_incarnation(&self) -> Incarnation {
        self.map.as_ref().map_or(Incarnation(0), |map| map.last_incarnation)
    }

    /// Takes a map in; whether it is newer than what there was.
    pub(crate) fn set(&mut self, map: Arc<ClusterMap>) -> bool {
        if map.version <= self.version() {
            return false;
        }
        self.map = Some(map);
        self.merged.clear();
        self.look_again();
        true
    }

    /// From here on that is on its way; `sealed`: nobody is served from it. `of`: the directory whose content, or a unit of it, that is.
    pub(crate) fn leave(&mut self, leaving: Option<(Part, bool)>, of: Ino) {
        self.leaving_of = of;
        self.loads_outdated += u64::from(leaving.is_some_and(|(_, sealed)| sealed));
        self.leaving = leaving;
        self.look_again();
    }

    /// Whether anything is sealed.
    pub(crate) const fn is_sealing(&self) -> bool {
        matches!(self.leaving, Some((_, true)))
    }

    pub(crate) const fn loads_outdated(&self) -> u64 {
        self.loads_outdated
    }

    /// What is on its way.
    pub(crate) fn leaving(&self) -> Option<Part> {
        self.leaving.map(|(part, _)| part)
    }

    /// Whether anything is reserved for transactions of other ranks: who looks must see that. Whose anything is that does not change: a
    /// search that began anew with each transaction would never end.
    pub(crate) fn reserve(&mut self, reserved: bool) {
        if self.reserved != reserved {
            self.reserved = reserved;
            self.undisputed = self.all && self.leaving.is_none() && !reserved;
            if stdx::mutant!("mds_reserved_turns") {
                self.look_again();
            }
        }
    }

    fn look_again(&mut self) {
        self.generation = self.generation.wrapping_add(1).max(1);
        let mine = |entry: &Entry| entry.rank == self.rank && entry.moving.is_none();
        let slot = |slot: Slot| slot.rank == self.rank && slot.moving.is_none();
        self.all = self
            .map
            .as_ref()
            .is_none_or(|map| map.entries.values().all(mine) && map.slots.runs().all(|(_, run)| slot(run)));
        let other = |rank: &RankId| *rank != self.rank;
        self.others = self.map.as_ref().is_some_and(|map| map.ranks.keys().any(other));
        let is_away = |(rank, info): (&RankId, &RankInfo)| other(rank) && !info.state.serves_ranks();
        self.away = self.map.as_ref().is_some_and(|map| map.ranks.iter().any(is_away));
        self.undisputed = self.all && self.leaving.is_none() && !self.reserved;
        self.placing = self.map.as_ref().is_some_and(|map| map.slots_used);
        let parts = |map: &Arc<ClusterMap>| map.entries.keys().any(|unit| unit.frag != Frag::WHOLE);
        self.units = self.map.as_ref().is_some_and(parts);
        self.gone = std::mem::take(&mut self.gone).into_iter().filter(|dir| self.has_parts(*dir)).collect();
    }

    /// What was asked of the store is not what it was asked for any more.
    pub(crate) const fn outdate_loads(&mut self) {
        self.loads_outdated += 1;
    }

    /// Whether the map has entries of parts of a directory, and that is there: it is spread.
    pub(crate) fn has_live_parts(&self, dir: Ino) -> bool {
        self.has_parts(dir) && !self.gone.contains(&dir) && !self.merged.contains(&dir)
    }

    /// By the store the directory has no parts, whatever this map says.
    pub(crate) fn note_in_one_part(&mut self, dir: Ino) {
        self.merged.insert(dir);
    }

    /// The store has no such directory, and will have none: numbers are not given again.
    pub(crate) fn note_gone(&mut self, dir: Ino) {
        self.gone.insert(dir);
    }

    /// Whether any directory of which there are entries yet is known to be gone.
    pub(crate) fn has_gone(&self) -> bool {
        !self.gone.is_empty()
    }

    /// Whether it is known that there is no such directory.
    pub(crate) fn is_gone(&self, dir: Ino) -> bool {
        self.gone.contains(&dir)
    }

    fn has_parts(&self, dir: Ino) -> bool {
        self.units && self.map.as_ref().is_some_and(|map| map.entries.range(parts_of(dir)).next().is_some())
    }

    /// Whether parts of a directory are this rank's by entries of their own.
    pub(crate) fn has_unit(&self, dir: Ino) -> bool {
        let is_mine = |map: &Arc<ClusterMap>| {
            map.entries.range(parts_of(dir)).any(|(_, entry)| entry.rank == self.rank)
        };
        self.units && self.map.as_ref().is_some_and(is_mine)
    }

    /// Whose a unit is that has an entry of its own.
    pub(crate) fn of_unit(&self, number: Ino, unit: Unit) -> Option<Side> {
        if self.leaving == Some((Part::Of(number), true)) {
            return Some(Side::Sealed);
        }
        let entry = if self.units { self.entry_of(unit)? } else { return None };
        Some(if entry.rank == self.rank { Side::Mine } else { Side::Other(Some(entry.rank)) })
    }

    /// The entry of a unit.
    pub(crate) fn entry_of(&self, unit: Unit) -> Option<&Entry> {
        self.map.as_ref()?.entries.get(&unit)
    }

    /// The entry of a directory.
    pub(crate) fn entry(&self, dir: Ino) -> Option<&Entry> {
        self.map.as_ref()?.entries.get(&Unit { dir, frag: Frag::WHOLE })
    }

    /// Whose a directory's content is, if its number says so: it has an entry, or is the system's.
    pub(crate) fn of_number(&self, dir: Ino) -> Option<Side> {
        if self.leaving == Some((Part::Of(dir), true)) {
            return Some(Side::Sealed);
        }
        if self.map.is_none() {
            return Some(Side::Mine);
        }
        let owner = match self.entry(dir) {
            Some(entry) => entry.rank,
            None if dir == Ino::ROOT || (dir.is_reserved() && dir < ORPHANS) => RankId(0),
            None if dir.is_reserved() => RankId((dir.0 - ORPHANS.0) as u16),
            None => return None,
        };
        Some(if owner == self.rank { Side::Mine } else { Side::Other(Some(owner)) })
    }

    /// Whose the content of a directory is that is placed by slots and has no entry.
    pub(crate) fn of_slot(&self, dir: Ino) -> Side {
        let Some(map) = &self.map else { return Side::Mine };
        let number = ClusterMap::slot_of(dir, Frag::WHOLE);
        if self.leaving.is_some_and(|(part, sealed)| sealed && part.has_slot(number)) {
            return Side::Sealed;
        }
        let owner = map.slots.get(number).rank;
        if owner == self.rank { Side::Mine } else { Side::Other(Some(owner)) }
    }

    /// Whose the slot of a directory is.
    pub(crate) fn rank_of_slot(&self, dir: Ino) -> RankId {
        let slot = self.map.as_ref().map(|map| map.slots.get(ClusterMap::slot_of(dir, Frag::WHOLE)));
        slot.map_or(self.rank, |slot| slot.rank)
    }

    /// Whether the slot of a directory is this rank's, and is on its way to no other.
    pub(crate) fn keeps_slot(&self, dir: Ino) -> bool {
        let slot = self.map.as_ref().map(|map| map.slots.get(ClusterMap::slot_of(dir, Frag::WHOLE)));
        slot.is_none_or(|slot| {
            let stays = slot.moving.is_none() || stdx::mutant!("mds_drops_while_slot_moves");
            slot.rank == self.rank && stays
        })
    }

    /// Whether it would be this rank's if it were placed by slots.
    pub(crate) fn has_slot(&self, dir: Ino) -> bool {
        self.placing && !self.undisputed && !matches!(self.of_slot(dir), Side::Other(_))
    }
}

/// Whether slots say whose the content of that directory is.
pub(crate) const fn is_placed(core: &InodeCore) -> bool {
    core.flags & flags::SLOTS != 0
}

impl View {
    /// Whose the content of a cached directory is; none: that depends on a directory above it that is not cached.
    #[inline]
    pub(crate) fn side(&mut self, slot: u32) -> Option<Side> {
        if self.territory.undisputed {
            return Some(Side::Mine);
        }
        let dir = self.cache.dir(slot);
        if dir.seen == self.territory.generation { Some(dir.side) } else { self.side_anew(slot) }
    }

    /// Whether a directory's content is noted as this rank's, under this map: what is asked with every request is not looked up.
    #[inline]
    pub(crate) fn is_noted_mine(&self, slot: u32) -> bool {
        let noted = |dir: &dir::Dir| dir.seen == self.territory.generation && dir.side == Side::Mine;
        slot != NONE && noted(self.cache.dir(slot))
    }

    /// The same, looked up; what is passed on the way is noted.
    #[cold]
    fn side_anew(&mut self, slot: u32) -> Option<Side> {
        let generation = self.territory.generation;
        let mut way = Vec::new();
        let mut at = slot;
        let (side, unit) = loop {
            let dir = self.cache.dir(at);
            // Of a directory that only replicas are in nothing is known but who told of them.
            if dir.seen == generation || dir.has(dir::FOREIGN) {
                break (dir.side, dir.unit);
            }
            way.push(at);
            let (ino, placed) = (dir.ino, dir.has(dir::SLOTS));
            if let Some(side) = self.territory.of_number(ino) {
                break (side, self.heats.place(ino));
            }
            if let Some(unit) = dir.header.unit() {
                if let Some(side) = self.territory.of_unit(ino, unit) {
                    break (side, self.heats.place(ino));
                }
                at = self.cache.find_dir(unit.dir)?;
                continue;
            }
            if placed || (dir.node != NONE && is_placed(&self.cache.node(dir.node).core)) {
                self.cache.dirs.get_mut(at).set(dir::SLOTS);
                break (self.territory.of_slot(ino), self.heats.place(Ino::NONE));
            }
            if dir.node == NONE || way.len() > WAY_MAX {
                return None;
            }
            at = self.cache.node(dir.node).dir;
        };
        for at in way {
            let dir = self.cache.dirs.get_mut(at);
            (dir.side, dir.seen, dir.unit) = (side, generation, unit);
        }
        Some(side)
    }

    /// Whose a directory's content is, if its number or what is known of its inode says so: it has an entry, is the system's, or is
    /// placed by slots.
    pub(crate) fn of_itself(&self, dir: Ino) -> Option<Side> {
        let known = self.territory.of_number(dir);
        if known.is_some() || self.territory.undisputed {
            return known;
        }
        match self.cache.unit(dir) {
            unit if unit.dir != dir => self.territory.of_unit(dir, unit).or_else(|| self.of_itself(unit.dir)),
            _ => self.is_placed(dir).then(|| self.territory.of_slot(dir)),
        }
    }

    /// The same, if it does not follow the directory of which it is a unit.
    pub(crate) fn of_itself_alone(&self, dir: Ino) -> Option<Side> {
        match self.cache.unit(dir) {
            unit if unit.dir != dir => self.territory.of_unit(dir, unit),
            _ => self.of_itself(dir),
        }
    }

    /// Whether slots say whose a directory's content is, as far as that is known.
    pub(crate) fn is_placed(&self, dir: Ino) -> bool {
        self.cache.find_dir(dir).is_some_and(|slot| self.cache.dir(slot).has(dir::SLOTS))
            || self.cache.by_ino(dir).is_some_and(|slot| is_placed(&self.cache.node(slot).core))
    }

    /// Whether the directory has its content at another rank; asked of one whose inode is at home here.
    pub(crate) fn is_boundary(&self, dir: Ino) -> bool {
        !self.territory.undisputed && matches!(self.of_itself(dir), Some(Side::Other(_)))
    }

    /// What never changes of a directory, as its home has told it: noted with its content, which outlives what is told.
    pub(crate) fn note_facts(&mut self, core: &InodeCore) {
        let slot = self.cache.dir_or_new(core.ino);
        let dir = self.cache.dirs.get_mut(slot);
        if is_placed(core) {
            dir.set(dir::SLOTS);
        }
        if core.flags & flags::NEWBORN != 0 {
            dir.set(dir::NEWBORN);
            if !dir.has(dir::HEADER) {
                dir.header.mtime = core.btime;
            }
        }
    }

    /// The same by what its home says with a transaction.
    pub(crate) fn note_told_facts(&mut self, dir: Ino, placed: bool, newborn: bool) {
        let slot = self.cache.dir_or_new(dir);
        let dir = self.cache.dirs.get_mut(slot);
        if placed {
            dir.set(dir::SLOTS);
        }
        if newborn {
            dir.set(dir::NEWBORN);
        }
    }

    /// Whether a directory is empty if the store has no header of it.
    pub(crate) fn is_newborn(&self, dir: Ino) -> bool {
        let noted = self.cache.find_dir(dir).is_some_and(|slot| self.cache.dir(slot).has(dir::NEWBORN));
        let newborn = |slot: u32| self.cache.node(slot).core.flags & flags::NEWBORN != 0;
        noted || self.cache.by_ino(dir).is_some_and(newborn)
    }

    /// The store has no header of it: nobody has changed anything in it since it was made.
    pub(crate) fn born(&mut self, ino: Ino) {
        if let Some(slot) = self.cache.by_ino(ino) {
            let core = self.cache.node(slot).core;
            self.note_facts(&core);
        }
        let slot = self.cache.dir_or_new(ino);
        let dir = self.cache.dirs.get_mut(slot);
        if !dir.has(dir::HEADER) {
            dir.header = FragHeader {
                version: Version(1),
                change: 1,
                mtime: dir.header.mtime,
                ..FragHeader::default()
            };
            dir.set(dir::HEADER | dir::COMPLETE);
        }
    }

    /// Whether what is granted of an inode would have to be taken back soon.
    pub(crate) fn is_leaving(&self, ino: Ino) -> bool {
        let is_of =
            |part| self.begins(ino, part) || self.has_unit(ino, part) || self.is_inode_below(ino, part);
        self.territory.leaving().is_some_and(is_of)
    }

    /// Whether what is on its way is a unit of the directory: what is granted of all of it shows the unit, too.
    pub(crate) fn has_unit(&self, dir: Ino, part: Part) -> bool {
        match part {
            Part::Of(_) => self.territory.leaving_of == dir && !stdx::mutant!("mds_unit_leaves_granted"),
            Part::Slots { .. } => false,
        }
    }

    /// Whether the content of that directory is of it by itself, as far as that is known.
    pub(crate) fn begins(&self, dir: Ino, part: Part) -> bool {
        match part {
            Part::Of(top) => dir == top,
            Part::Slots { .. } => {
                self.territory.of_number(dir).is_none()
                    && part.has_slot(ClusterMap::slot_of(dir, Frag::WHOLE))
                    && self.is_placed(dir)
            }
        }
    }

    /// Whether a directory's content is of it. A name may be cached without the inode of its directory: it was loaded by where a client
    /// saw it, or comes from the journal.
    pub(crate) fn below(&self, dir: Ino, part: Part) -> Below {
        let mut at = dir;
        for _ in 0..WAY_MAX {
            if self.begins(at, part) {
                return Below::Yes;
            }
            if self.of_itself_alone(at).is_some() {
                return Below::No;
            }
            let of = self.cache.outer(at);
            if of != at {
                at = of;
                continue;
            }
            let above = self.cache.find_dir(at).map_or(NONE, |slot| self.cache.dir(slot).node);
            let node = if above == NONE { self.cache.by_ino(at) } else { Some(above) };
            match node {
                Some(node) => at = self.cache.parent_ino(node),
                None if stdx::mutant!("mds_unknown_is_below") => return Below::Yes,
                None => return Below::Unknown(at),
            }
        }
        Below::Unknown(at)
    }

    /// Whether the inode is in such a directory.
    pub(crate) fn inode_below(&self, ino: Ino, part: Part) -> Below {
        if ino.is_reserved() {
            return Below::No;
        }
        match self.cache.by_ino(ino).map(|slot| self.cache.parent_ino(slot)) {
            Some(parent) => self.below(parent, part),
            None => Below::Unknown(ino),
        }
    }

    /// Whether a directory's content is, or may be, of it.
    pub(crate) fn is_below(&self, dir: Ino, part: Part) -> bool {
        self.below(dir, part) != Below::No
    }

    /// Whether the inode is, or may be, in such a directory.
    pub(crate) fn is_inode_below(&self, ino: Ino, part: Part) -> bool {
        self.inode_below(ino, part) != Below::No
    }

    /// Whether something of an inode may be promised to anybody: all of it is here, and stays.
    pub(crate) fn may_promise(&mut self, ino: Ino) -> bool {
        !self.is_boundary(ino) && self.may_promise_inode(ino)
    }

    /// The same of an inode whose content may be elsewhere.
    pub(crate) fn may_promise_inode(&mut self, ino: Ino) -> bool {
        self.may_promise_part(ino) && !self.is_spread(ino)
    }

    /// The same of one that may be a directory in several parts, here and elsewhere.
    #[cold]
    pub(crate) fn may_promise_part(&mut self, ino: Ino) -> bool {
        let Some(slot) = self.cache.by_ino(ino) else { return false };
        let home = self.cache.node(slot).dir;
        self.side(home) == Some(Side::Mine)
            && !self.is_leaving(ino)
            && self.spreading != Some(ino)
            && !self.transactions.has_in(ino)
            && !self.transactions.is_reserved(ino)
    }

    /// Whether the content of a directory is here, and its home is not known to be.
    pub(crate) fn is_shown_elsewhere(&mut self, dir: Ino) -> bool {
        if dir.is_reserved() || self.of_itself(dir) != Some(Side::Mine) {
            return false;
        }
        let Some(slot) = self.cache.by_ino(self.cache.outer(dir)) else { return true };
        let home = self.cache.node(slot).dir;
        self.side(home) != Some(Side::Mine)
    }

    /// Whether the names of a directory are in units, or about to be.
    pub(crate) fn is_spread(&self, dir: Ino) -> bool {
        self.spreading == Some(dir) || self.cache.spread(dir).is_some()
    }

    /// Whether the content of a directory with that inode is this rank's, and stays for now.
    pub(crate) fn has_content(&mut self, node: u32) -> bool {
        if self.territory.undisputed {
            return true;
        }
        let (ino, home) = (self.cache.node(node).ino(), self.cache.node(node).dir);
        let side = match self.of_itself(ino) {
            Some(side) => Some(side),
            None => self.side(home),
        };
        side == Some(Side::Mine)
    }

    /// Whether something of a directory may be taken in from the store: not of another's, nor of what is about to be.
    pub(crate) fn may_load(&mut self, dir: Ino) -> bool {
        if self.territory.undisputed {
            return true;
        }
        let side = match self.of_itself(dir) {
            Some(side) => Some(side),
            None => self.cache.find_dir(dir).and_then(|slot| self.side(slot)),
        };
        !matches!(side, Some(Side::Other(_) | Side::Sealed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::cluster::Policy;

    fn map(version: u64, entries: &[(Ino, u16)]) -> Arc<ClusterMap> {
        let mut map = ClusterMap::first();
        map.version = version;
        for (dir, rank) in entries {
            let entry = Entry { rank: RankId(*rank), version, policy: Policy::Pin, moving: None };
            Arc::make_mut(&mut map.entries).insert(Unit { dir: *dir, frag: Frag::WHOLE }, entry);
        }
        Arc::new(map)
    }

    #[test]
    fn one_rank_has_everything_and_looks_nothing_up() {
        let mut zero = Territory::new(RankId(0));
        assert!(zero.is_undisputed());
        assert!(zero.set(map(1, &[])) && zero.is_undisputed());
        assert!(zero.set(map(2, &[(Ino(5000), 0)])) && zero.is_undisputed());
        assert!(!zero.set(map(2, &[(Ino(5000), 1)])), "no newer one");
        assert!(zero.set(map(3, &[(Ino(5000), 1)])) && !zero.is_undisputed());
        let mut one = Territory::new(RankId(1));
        assert!(one.set(map(1, &[])) && !one.is_undisputed());
    }

    /// What broke: with each transaction all searches of a rank began anew, and with enough of them none ended.
    #[test]
    fn what_is_reserved_changes_nothing_of_whose_anything_is() {
        let mut one = Territory::new(RankId(1));
        one.set(map(1, &[(Ino(5000), 1)]));
        let generation = one.generation();
        one.reserve(true);
        one.reserve(false);
        assert_eq!(one.generation(), generation);
        one.set(map(2, &[(Ino(5000), 0)]));
        assert_ne!(one.generation(), generation, "a map does");
    }

    #[cfg(feature = "mutants")]
    #[test]
    fn a_rank_whose_searches_begin_with_each_transaction_is_caught() {
        stdx::mutant::activate(Some("mds_reserved_turns"));
        let verdict = std::panic::catch_unwind(what_is_reserved_changes_nothing_of_whose_anything_is);
        stdx::mutant::activate(None);
        assert!(verdict.is_err());
    }

    #[test]
    fn numbers_say_whose_the_systems_directories_are() {
        let mut one = Territory::new(RankId(1));
        one.set(map(1, &[(Ino(5000), 1)]));
        let other = |rank| Some(Side::Other(Some(RankId(rank))));
        assert_eq!(one.of_number(Ino::ROOT), other(0));
        assert_eq!((one.of_number(Ino::SYSTEM), one.of_number(Ino::LINKS)), (other(0), other(0)));
        assert_eq!(one.of_number(Ino::orphans(RankId(1))), Some(Side::Mine));
        assert_eq!(one.of_number(Ino::orphans(RankId(2))), other(2));
        assert_eq!(one.of_number(Ino(5000)), Some(Side::Mine));
        assert_eq!(one.of_number(Ino(5001)), None, "it inherits");
        one.leave(Some((Part::Of(Ino(5000)), true)), Ino(5000));
        assert_eq!(one.of_number(Ino(5000)), Some(Side::Sealed));
    }
}
