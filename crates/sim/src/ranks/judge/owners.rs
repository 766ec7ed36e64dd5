//! Whose each directory is: at each instant one rank executes for it, and none between its seal and the end of the move.
//!
//! Absent: how ranks know (`mds::territory`).

use super::Judge;
use crate::model::compare::is_orphans;
use crate::model::judge::Verdict;
use crate::model::tree::Tree;
use proto::cluster::{ClusterMap, MoveId, Unit};
use proto::ids::RankId;
use proto::journal::Mutations;
use proto::mutation::Mutation;
use proto::{Frag, Ino};
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
}

pub(super) const fn unit_of(dir: Ino) -> Unit {
    Unit { dir, frag: Frag::WHOLE }
}

impl Owners {
    /// The directory of the entry that governs a directory's content: its own, or of one above it.
    pub(super) fn governing(&self, dir: Ino, tree: &Tree) -> Ino {
        let mut at = dir;
        for _ in 0..=tree.nodes.len() {
            let has_entry = self.map.as_ref().is_some_and(|map| map.entries.contains_key(&unit_of(at)));
            if has_entry || at == Ino::ROOT || at.is_reserved() {
                return at;
            }
            match tree.node(at) {
                Some(node) => at = node.parent,
                None => return Ino::ROOT,
            }
        }
        Ino::ROOT
    }

    pub(super) fn owner(&self, dir: Ino, tree: &Tree) -> RankId {
        if is_orphans(dir) {
            return RankId((dir.0 - Ino::orphans(RankId(0)).0) as u16);
        }
        let governing = self.governing(dir, tree);
        let entry = self.map.as_ref().and_then(|map| map.entries.get(&unit_of(governing)));
        entry.map_or(RankId(0), |entry| entry.rank)
    }

    /// A rank's transaction: whose the directories are whose names it changes.
    pub(super) fn check(&mut self, rank: RankId, mutations: &[u8], before: &Tree, after: &Tree) -> Verdict {
        for mutation in Mutations::new(mutations).flatten() {
            match mutation {
                Mutation::PutDentry { dir, .. } | Mutation::DelDentry { dir, .. } => {
                    let tree = if after.node(dir).is_some() { after } else { before };
                    let owner = self.owner(dir, tree);
                    if owner != rank {
                        return Err(format!(
                            "changes names in directory {}, which is rank {}'s",
                            dir.0, owner.0
                        ));
                    }
                    let governing = self.governing(dir, tree);
                    let below = |(unit, _): &&(Unit, MoveId)| unit.dir == governing;
                    if let Some((unit, id)) = self.sealed.get(&rank).filter(below) {
                        return Err(format!(
                            "changes names in directory {}, sealed with {} for move {}",
                            dir.0, unit.dir.0, id.0
                        ));
                    }
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
            let below = |dir: &Ino| self.owners.governing(*dir, self.tree()) == unit.dir;
            if let Some(dir) = self.open.reserved_dirs(rank).find(below) {
                return Err(format!("seals {}, and has a name in {} reserved", unit.dir.0, dir.0));
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

    /// Whether a directory may have its content elsewhere than its inode.
    pub(super) fn is_boundary(&self, dir: Ino) -> bool {
        dir != Ino::ROOT
            && self.owners.map.as_ref().is_some_and(|map| map.entries.contains_key(&unit_of(dir)))
    }

    /// The namespace is, or was, in more than one part.
    pub(super) const fn is_divided(&self) -> bool {
        self.owners.divided
    }

    /// Moves that were sealed so far.
    pub(in crate::ranks) const fn seals(&self) -> u64 {
        self.owners.seals
    }

    /// Directories whose content goes with that of `top`.
    pub(super) fn below(&self, top: Ino) -> Vec<Ino> {
        let tree = self.tree();
        let dirs = tree.nodes.values().filter(|node| node.is_dir()).map(|node| node.ino);
        dirs.filter(|dir| self.owners.governing(*dir, tree) == top).collect()
    }
}
