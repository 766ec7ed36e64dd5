//! Whose each directory is: at each instant one rank executes for it, and none between its seal and the end of the move.
//!
//! Absent: how ranks know (`mds::territory`).

use super::Judge;
use crate::model::compare::is_orphans;
use crate::model::judge::Verdict;
use crate::model::tree::Tree;
use proto::cluster::{ClusterMap, MoveId, Unit};
use proto::header::Spread;
use proto::holder::take_holders;
use proto::ids::{NameHash, RankId};
use proto::journal::Mutations;
use proto::mutation::Mutation;
use proto::{Frag, Ino, Reader};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What the registry says, and which ranks have sealed what.
#[derive(Default)]
pub(super) struct Owners {
    map: Option<Arc<ClusterMap>>,
    divided: bool,
    sealed: BTreeMap<RankId, (Unit, MoveId)>,
    /// Moves that were sealed.
    pub(super) seals: u64,
    /// Opens and locks that came with moves, and with transactions.
    pub(super) came: u64,
    pub(super) carried: u64,
}

pub(super) const fn unit_of(dir: Ino) -> Unit {
    Unit { dir, frag: Frag::WHOLE }
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
    /// The entry that governs a directory's content, or a name in it: that of the unit, its own, or one of what it is in.
    pub(super) fn governing(&self, (dir, of): (Ino, Of), tree: &Tree) -> Unit {
        let Some(map) = &self.map else { return unit_of(Ino::ROOT) };
        let (mut at, mut of) = (dir, of);
        for _ in 0..=tree.nodes.len() {
            if let Of::Name(hash) = of
                && let Some(unit) = self.units(at).find(|unit| unit.frag.covers(hash))
            {
                return unit;
            }
            if map.entries.contains_key(&unit_of(at)) || at == Ino::ROOT || at.is_reserved() {
                return unit_of(at);
            }
            match tree.node(at) {
                Some(node) => (at, of) = (node.parent, Of::Name(node.home.1)),
                None => return unit_of(Ino::ROOT),
            }
        }
        unit_of(Ino::ROOT)
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
        let governing = self.governing(at, tree);
        let entry = self.map.as_ref().and_then(|map| map.entries.get(&governing));
        entry.map_or(RankId(0), |entry| entry.rank)
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
                    self.seals += 1;
                    self.sealed.insert(rank, (unit, id));
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
        if let Some((unit, id)) = self.sealed.get(&rank).filter(|(unit, _)| *unit == governing) {
            return Err(format!(
                "changes {of:?} of directory {}, sealed with {unit:?} for move {}",
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
    pub(super) fn check_seal(&self, rank: RankId, mutations: &[u8]) -> Verdict {
        for mutation in Mutations::new(mutations).flatten() {
            let Mutation::Sealed { unit, .. } = mutation else { continue };
            let below = |(dir, hash): &(Ino, NameHash)| {
                self.owners.governing((*dir, Of::Name(*hash)), self.tree()) == unit
            };
            if let Some((dir, _)) = self.open.reserved_names(rank).find(below) {
                return Err(format!("seals {unit:?}, and has a name in {} reserved", dir.0));
            }
            let goes = |dir: Ino| self.owners.governing((dir, Of::Whole), self.tree()) == unit;
            if let Some((dir, holder)) = self.held_below(goes) {
                return Err(format!("seals {unit:?}, and directory {} is delegated to {holder:?}", dir.0));
            }
        }
        Ok(())
    }

    /// The registry has a new map.
    pub(in crate::ranks) fn has_map(&mut self, map: Arc<ClusterMap>) {
        if self.owners.map.as_ref().is_none_or(|old| old.version < map.version) {
            self.owners.divided |= map.entries.len() > 1;
            self.owners.map = Some(map);
        }
    }

    /// A rank hears of a map: of what it has sealed it learns what became.
    pub(in crate::ranks) fn hears_map(&mut self, rank: RankId, map: &ClusterMap) {
        let Some((unit, id)) = self.owners.sealed.get(&rank) else { return };
        let moving = map.entries.get(unit).and_then(|entry| entry.moving);
        if moving.is_none_or(|moving| moving.id != *id) {
            self.owners.sealed.remove(&rank);
        }
    }

    /// Whether a directory may have its content, or a part of it, elsewhere than its inode.
    pub(super) fn is_boundary(&self, dir: Ino) -> bool {
        let entry = |map: &Arc<ClusterMap>| map.entries.contains_key(&unit_of(dir));
        let has_units = self.owners.units(dir).next().is_some();
        dir != Ino::ROOT && (has_units || self.owners.map.as_ref().is_some_and(entry))
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
    pub(super) fn goes_with(&self, top: Unit, dir: Ino, of: Of) -> bool {
        self.owners.governing((dir, of), self.tree()) == top
    }
}
