//! Whose each directory is: at each instant one rank executes for it, and none between its seal and the end of the move. By
//! docs/FORMAT.md, "Cluster map": entries, and slots for directories that they place.
//!
//! Absent: how ranks know (`mds::territory`).

use super::Judge;
use super::struck::Strike;
use crate::model::compare::is_orphans;
use crate::model::judge::Verdict;
use crate::model::tree::Tree;
use mds::coordinator::{Governing, Governor};
use proto::cluster::{ClusterMap, Delta, MoveId, SLOTS, Unit};
use proto::header::Spread;
use proto::holder::take_holders;
use proto::ids::{NameHash, RankId};
use proto::journal::Mutations;
use proto::mutation::Mutation;
use proto::{Frag, Ino, Reader};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use stdx::hash::mix64;

/// What the registry says, and which ranks have sealed what.
#[derive(Default)]
pub(super) struct Owners {
    map: Option<Arc<ClusterMap>>,
    divided: bool,
    sealed: BTreeMap<RankId, (Part, MoveId)>,
    /// The newest map that each rank has heard of.
    heard: BTreeMap<RankId, Arc<ClusterMap>>,
    /// Directories that slots place, those that are gone as well.
    pub(super) placed: BTreeSet<Ino>,
    /// Moves that were sealed.
    pub(super) seals: u64,
    /// Opens and locks that came with moves, and with transactions.
    pub(super) came: u64,
    pub(super) carried: u64,
}

pub(super) const fn unit_of(dir: Ino) -> Unit {
    Unit { dir, frag: Frag::WHOLE }
}

/// What says whose something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    Entry(Unit),
    Slot(u16),
}

/// What moves, with all that inherits below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::ranks) enum Part {
    Unit(Unit),
    Slots(Range<u16>),
}

impl Part {
    fn has(&self, by: By) -> bool {
        match (self, by) {
            (Self::Unit(unit), By::Entry(of)) => *unit == of,
            (Self::Slots(range), By::Slot(number)) => range.contains(&number),
            (Self::Unit(_), By::Slot(_)) | (Self::Slots(_), By::Entry(_)) => false,
        }
    }
}

/// The slot of a directory that is placed by slots.
pub(super) const fn slot_of(dir: Ino) -> u16 {
    (mix64(mix64(dir.0)) % SLOTS as u64) as u16
}

/// What of a directory: all of it, or the part that a name is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Of {
    Whole,
    Name(NameHash),
}

impl Of {
    /// A unit, or the whole.
    pub(super) const fn frag(frag: Frag) -> Self {
        if frag.depth == 0 { Self::Whole } else { Self::Name(NameHash(frag.prefix)) }
    }
}

impl Owners {
    /// What governs a directory's content, or a name in it: the entry of the unit, its own, its slot, or what governs that which it is in.
    pub(super) fn governing(&self, (dir, of): (Ino, Of), tree: &Tree) -> By {
        let root = By::Entry(unit_of(Ino::ROOT));
        let Some(map) = &self.map else { return root };
        let (mut at, mut of) = (dir, of);
        for _ in 0..=tree.nodes.len() {
            if let Of::Name(hash) = of
                && let Some(unit) = self.units(at).find(|unit| unit.frag.covers(hash))
            {
                return By::Entry(unit);
            }
            if map.entries.contains_key(&unit_of(at)) || at == Ino::ROOT || at.is_reserved() {
                return By::Entry(unit_of(at));
            }
            match tree.node(at) {
                Some(node) if node.placed => return By::Slot(slot_of(at)),
                Some(node) => (at, of) = (node.parent, Of::Name(node.home.1)),
                None => return root,
            }
        }
        root
    }

    /// Entries of parts of a directory.
    fn units(&self, dir: Ino) -> impl Iterator<Item = Unit> {
        let entries = self.map.iter().flat_map(|map| map.entries.keys().copied());
        entries.filter(move |unit| unit.dir == dir && unit.frag != Frag::WHOLE)
    }

    pub(super) fn owner(&self, at: (Ino, Of), tree: &Tree) -> RankId {
        let (dir, _) = at;
        if is_orphans(dir) {
            return RankId((dir.0 - Ino::orphans(RankId(0)).0) as u16);
        }
        let Some(map) = &self.map else { return RankId(0) };
        match self.governing(at, tree) {
            By::Entry(unit) => map.entries.get(&unit).map_or(RankId(0), |entry| entry.rank),
            By::Slot(number) => map.slots.get(number).rank,
        }
    }

    /// The newest map that a rank has heard of.
    pub(super) fn heard(&self, rank: RankId) -> Option<&ClusterMap> {
        self.heard.get(&rank).map(Arc::as_ref)
    }

    /// What a rank says that it has sealed. Of slots it says so of each directory.
    fn part_of(&self, rank: RankId, id: MoveId, unit: Unit) -> Part {
        let runs = self.heard(rank).into_iter().flat_map(|map| map.slots.runs());
        let moving = runs.filter(|(_, slot)| slot.moving.is_some_and(|moving| moving.id == id));
        let all = moving.map(|(range, _)| range).reduce(|all, range| all.start..range.end);
        all.map_or(Part::Unit(unit), Part::Slots)
    }

    /// A rank's transaction: whose the directories are whose names, and units whose headers, it changes.
    pub(super) fn check(&mut self, rank: RankId, mutations: &[u8], before: &Tree, after: &Tree) -> Verdict {
        // A checkpoint says the same, and puts no name.
        let puts = Mutations::new(mutations).flatten().any(|m| matches!(m, Mutation::PutDentry { .. }));
        for mutation in Mutations::new(mutations).flatten() {
            match mutation {
                Mutation::PutDentry { dir, hash, .. } | Mutation::DelDentry { dir, hash, .. } => {
                    self.check_one(rank, (dir, Of::Name(hash)), before, after)?;
                }
                Mutation::PutHeader { dir, frag, .. } if frag != Frag::WHOLE => {
                    self.check_one(rank, (dir, Of::frag(frag)), before, after)?;
                }
                Mutation::Holders { id: MoveId(0), first, list, .. } if first || puts => {
                    let list = take_holders(&mut Reader::new(list)).map_err(|error| error.to_string())?;
                    *(if first { &mut self.came } else { &mut self.carried }) += list.len() as u64;
                }
                Mutation::Sealed { id, unit } => {
                    let part = self.part_of(rank, id, unit);
                    let old = self.sealed.insert(rank, (part, id));
                    self.seals += u64::from(old.is_none_or(|(_, old)| old != id));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn check_one(&self, rank: RankId, at: (Ino, Of), before: &Tree, after: &Tree) -> Verdict {
        let (dir, of) = at;
        let tree = if after.node(dir).is_some() { after } else { before };
        let owner = self.owner(at, tree);
        if owner != rank {
            return Err(format!("changes {of:?} of directory {}, which is rank {}'s", dir.0, owner.0));
        }
        let governing = self.governing(at, tree);
        if let Some((part, id)) = self.sealed.get(&rank).filter(|(part, _)| part.has(governing)) {
            return Err(format!(
                "changes {of:?} of directory {}, sealed with {part:?} for move {}",
                dir.0, id.0
            ));
        }
        Ok(())
    }

    /// The rank died: what lives in its place goes by its journal and the map.
    pub(super) fn forget_seal(&mut self, rank: RankId) {
        self.sealed.remove(&rank);
    }
}

impl Judge {
    /// What is reserved does not move.
    pub(super) fn check_seal(&mut self, rank: RankId, mutations: &[u8]) -> Verdict {
        for mutation in Mutations::new(mutations).flatten() {
            let Mutation::Sealed { id, unit } = mutation else { continue };
            self.struck(Strike::Other("seal"));
            let part = self.owners.part_of(rank, id, unit);
            let below = |(dir, hash): &(Ino, NameHash)| self.goes_with(&part, *dir, Of::Name(*hash));
            if let Some((dir, _)) = self.open.reserved_names(rank).find(below) {
                return Err(format!("seals {part:?}, and has a name in {} reserved", dir.0));
            }
            let goes = |dir: Ino| self.goes_with(&part, dir, Of::Whole);
            if let Some((dir, holder)) = self.held_below(goes) {
                return Err(format!("seals {unit:?}, and directory {} is delegated to {holder:?}", dir.0));
            }
        }
        Ok(())
    }

    /// The registry has a new map.
    pub(in crate::ranks) fn has_map(&mut self, map: Arc<ClusterMap>) {
        if self.owners.map.as_ref().is_none_or(|old| old.version < map.version) {
            self.owners.divided |= map.entries.len() > 1 || map.slots.runs().count() > 1;
            self.owners.map = Some(map);
        }
    }

    /// Whether a rank has use for what another tells it of a map: not if it says what changed since a map that it does not have.
    pub(in crate::ranks) fn has_use_for(&self, rank: RankId, bytes: &[u8]) -> bool {
        let has = self.owners.heard(rank).map(|map| map.version);
        Delta::decode(bytes).ok().is_none_or(|delta| Some(delta.from) == has)
    }

    /// A rank hears of a map: of what it has sealed it learns what became.
    pub(in crate::ranks) fn hears_map(&mut self, rank: RankId, map: &Arc<ClusterMap>) {
        if self.owners.heard(rank).is_some_and(|known| known.version >= map.version) {
            return;
        }
        self.owners.heard.insert(rank, map.clone());
        let Some((part, id)) = self.owners.sealed.get(&rank) else { return };
        let moving = match part {
            Part::Unit(unit) => map.entries.get(unit).and_then(|entry| entry.moving),
            Part::Slots(range) => map.slots.get(range.start).moving,
        };
        if moving.is_none_or(|moving| moving.id != *id) {
            self.owners.sealed.remove(&rank);
        }
    }

    /// Whether a directory may have its content, or a part of it, elsewhere than its inode.
    pub(super) fn is_boundary(&self, dir: Ino) -> bool {
        let entry = |map: &Arc<ClusterMap>| map.entries.contains_key(&unit_of(dir));
        let has_units = self.owners.units(dir).next().is_some();
        let placed = self.tree().node(dir).is_some_and(|node| node.placed);
        dir != Ino::ROOT && (placed || has_units || self.owners.map.as_ref().is_some_and(entry))
    }

    /// Whether a directory's inode, its content or a part of that are at different ranks.
    pub(super) fn is_of_several(&self, dir: Ino) -> bool {
        let Some(node) = self.tree().node(dir).filter(|_| dir != Ino::ROOT) else { return false };
        let home = self.owners.owner((node.parent, Of::Name(node.home.1)), self.tree());
        let units = self.owners.units(dir).map(|unit| Of::frag(unit.frag));
        units.chain([Of::Whole]).any(|of| self.owners.owner((dir, of), self.tree()) != home)
    }

    /// Whether a directory is such, or may have been since the request under way that began first: one that is spread, or was until it
    /// was merged, had units elsewhere.
    pub(super) fn was_boundary(&self, dir: Ino) -> bool {
        self.is_boundary(dir) || self.spread_of_late(dir).is_some()
    }

    /// Whether a directory is told of in parts, by several ranks or by one at several moments.
    pub(super) fn is_parted(&self, dir: Ino) -> bool {
        self.spread_of_late(dir).is_some()
    }

    /// How it is spread, or was before it was merged, and perhaps spread in another way; of two ways the finer one.
    pub(super) fn spread_of_late(&self, dir: Ino) -> Option<Spread> {
        let merged = self.merged.get(&dir).map(|(_, spread)| *spread);
        self.records.spread(dir).into_iter().chain(merged).max_by_key(|spread| spread.depth)
    }

    /// The directories that are spread.
    pub(in crate::ranks) fn spread_dirs(&self) -> Vec<Ino> {
        self.records.spreads().map(|(dir, _)| dir).collect()
    }

    /// The rank that has a directory's content as a whole.
    pub(in crate::ranks) fn owner(&self, dir: Ino) -> RankId {
        self.owners.owner((dir, Of::Whole), self.tree())
    }

    /// The namespace is, or was, in more than one part.
    pub(super) const fn is_divided(&self) -> bool {
        self.owners.divided
    }

    /// The move for which a rank has sealed something now.
    pub(in crate::ranks) fn sealed(&self, rank: RankId) -> Option<MoveId> {
        self.owners.sealed.get(&rank).map(|(_, id)| *id)
    }

    /// Whether the journal of a rank, as far as it is not trimmed, says that a unit left it.
    pub(in crate::ranks) fn tells_of_leaving(&self, rank: RankId, unit: Unit) -> bool {
        let log = self.ranks.get(&rank).into_iter().flat_map(|journal| &journal.log);
        let mut all = log.flat_map(|(_, _, mutations)| Mutations::new(mutations).flatten());
        all.any(|mutation| matches!(mutation, Mutation::Sealed { unit: of, .. } if of == unit))
    }

    /// Whether any rank has sealed something, and has not heard what became of it.
    pub(in crate::ranks) fn has_sealed_any(&self) -> bool {
        !self.owners.sealed.is_empty()
    }

    /// Moves that were sealed so far.
    pub(in crate::ranks) const fn came(&self) -> u64 {
        self.owners.came
    }

    pub(in crate::ranks) const fn carried(&self) -> u64 {
        self.owners.carried
    }

    pub(in crate::ranks) const fn seals(&self) -> u64 {
        self.owners.seals
    }

    /// Whether a directory's content, or a name of it, goes with that unit.
    pub(super) fn goes_with(&self, top: &Part, dir: Ino, of: Of) -> bool {
        top.has(self.owners.governing((dir, of), self.tree()))
    }

    /// What governs a directory's content, as whoever asks the coordinator for a move says it.
    pub(in crate::ranks) fn governing(&self, dir: Ino) -> Option<Governing> {
        let map = self.owners.map.as_ref()?;
        let (by, version) = match self.owners.governing((dir, Of::Whole), self.tree()) {
            By::Entry(unit) => (Governor::Entry(unit), map.entries.get(&unit)?.version),
            By::Slot(number) => (Governor::Slot(number), map.slots.get(number).version),
        };
        Some(Governing { by, version })
    }

    /// The slots of directories that slots place.
    pub(in crate::ranks) fn placed_slots(&self) -> Vec<u16> {
        self.tree().nodes.values().filter(|node| node.placed).map(|node| slot_of(node.ino)).collect()
    }

    /// Directories that these slots place.
    pub(in crate::ranks) fn placed_in(&self, slots: &Range<u16>) -> usize {
        let all = self.tree().nodes.values().filter(|node| node.placed);
        all.filter(|node| slots.contains(&slot_of(node.ino))).count()
    }
}
