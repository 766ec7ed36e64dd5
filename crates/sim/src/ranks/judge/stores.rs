//! The metadata store that all ranks share: nothing reaches it before it is durable in its rank's journal, and with the tails of all
//! journals, in any order, it is the whole truth.
//!
//! Absent: the ranks' own replay.

use super::Judge;
use super::owners::{Of, Part, slot_of};
use super::units::is_newer;
use crate::model::judge::Verdict;
use crate::model::records::{Key, Record, Records};
use crate::model::tree::Tree;
use proto::Ino;
use proto::cluster::{ClusterMap, Unit};
use proto::dentry::DentryValue;
use proto::ids::{Frag, Position, RankId};
use proto::storeio::{StoreBatch, StoreKey};
use proto::system::CheckpointRecord;
use std::collections::BTreeSet;

impl Judge {
    /// A batch of a rank leaves for the store.
    pub(in crate::ranks) fn batch(&self, rank: RankId, batch: &StoreBatch) -> Verdict {
        let durable = self.ranks.get(&rank).map_or(Position(0), |journal| journal.durable);
        for (table, key, value) in batch.iter() {
            let key = StoreKey::decode(table, key).map_err(|error| format!("store key: {error}"))?;
            let key = Key::of(&key);
            match key {
                Key::Checkpoint { rank: of } if of != rank => {
                    return Err(format!("rank {} writes the checkpoint of rank {}", rank.0, of.0));
                }
                Key::Checkpoint { .. } => {
                    let position = checkpoint_position(value.unwrap_or_default())?;
                    if position > durable {
                        return Err(format!("checkpoint at {} before it is durable", position.0));
                    }
                }
                Key::Dentry { .. } | Key::Header { .. } => {
                    self.record_is_durable(rank, durable, &key, value)?
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn record_is_durable(&self, rank: RankId, durable: Position, key: &Key, value: Option<&[u8]>) -> Verdict {
        let Some(value) = value else { return self.delete_is_durable(rank, durable, key) };
        let value = Record::new(key, value).map_err(|error| format!("{key:?}: {error}"))?;
        if matches!(value.dentry.as_deref(), Some(DentryValue::Remote { .. })) {
            // Carries no version: the same bytes may have been right before.
            return Ok(());
        }
        let same = |held: &Option<&Record>| held.is_some_and(|held| held.says(&value));
        let later = self.line.iter().filter(|step| step.rank == rank && step.end > durable);
        let later = later.flat_map(|step| step.undo.iter()).filter(|(at, _)| at == key);
        let mut held: Vec<Option<&Record>> = later.map(|(_, old)| old.as_ref()).collect();
        held.push(self.records.0.get(key));
        if !same(&held[0]) && held[1..].iter().any(same) {
            return Err(format!("rank {} stores {key:?} before it is durable", rank.0));
        }
        Ok(())
    }

    /// Of what the rank has not on disk yet the store still has what was there before.
    fn delete_is_durable(&self, rank: RankId, durable: Position, key: &Key) -> Verdict {
        let later = self.line.iter().filter(|step| step.rank == rank && step.end > durable);
        let first = later.flat_map(|step| step.undo.iter()).find(|(at, _)| at == key);
        match first {
            Some((_, Some(_))) if !self.records.0.contains_key(key) => {
                Err(format!("rank {} deletes {key:?} before it is durable", rank.0))
            }
            _ => Ok(()),
        }
    }

    /// The bytes of a file are removed: it has no name, and a crash of any rank would give it none.
    pub(in crate::ranks) fn removes_data(&self, ino: Ino) -> Verdict {
        let has_name = |tree: &Tree| tree.node(ino).is_some_and(|node| node.nlink > 0);
        let mut had = has_name(&self.base.1);
        for step in &self.line {
            let has = has_name(&step.tree);
            if had && !has && step.end > self.durable_to(step.rank) {
                return Err(format!(
                    "the bytes of {} are removed before the removal of its name is durable",
                    ino.0
                ));
            }
            had = has;
        }
        if had { Err(format!("the bytes of {} are removed, and it has a name", ino.0)) } else { Ok(()) }
    }

    /// A journal is about to forget everything before `before`.
    pub(in crate::ranks) fn trim(&mut self, rank: RankId, before: Position, stored: &Records) -> Verdict {
        let position = stored_checkpoint(stored, rank)?;
        if position < before {
            return Err(format!(
                "rank {} trims to {}, but its checkpoint is {}",
                rank.0, before.0, position.0
            ));
        }
        if let Some(journal) = self.ranks.get_mut(&rank) {
            while journal.log.front().is_some_and(|(_, end, _)| *end <= before) {
                journal.log.pop_front();
            }
        }
        Ok(())
    }

    /// Store plus the tails of all journals, whichever comes first, must be the records of history.
    pub(in crate::ranks) fn check_store(&self, stored: &Records) -> Verdict {
        let forth: Vec<RankId> = self.ranks.keys().copied().collect();
        let back: Vec<RankId> = forth.iter().rev().copied().collect();
        for order in [forth, back] {
            let mut found = stored.clone();
            for rank in order {
                self.replay(rank, stored, &mut found)?;
            }
            self.check_same(&found)?;
        }
        self.ranks.keys().try_for_each(|rank| self.check_remembered(*rank, stored_checkpoint(stored, *rank)?))
    }

    /// The tail of one journal counts where its versions are above those that are stored.
    fn replay(&self, rank: RankId, stored: &Records, found: &mut Records) -> Verdict {
        let from = stored_checkpoint(stored, rank)?;
        let Some(journal) = self.ranks.get(&rank) else { return Ok(()) };
        for (_, _, mutations) in journal.log.iter().filter(|(start, ..)| *start >= from) {
            found.apply_if(mutations, |dir, by, version| is_newer(stored, dir, by, version))?;
        }
        Ok(())
    }

    /// At the end everything is in the store.
    pub(in crate::ranks) fn check_stopped(&self, stored: &Records) -> Verdict {
        self.check_same(stored)
    }

    /// What is about to be another rank's must be in the store: all names and headers that go. Of a unit also what says that it is one.
    pub(in crate::ranks) fn check_moved(&self, top: &Part, stored: &Records) -> Verdict {
        if let Part::Unit(unit) = top
            && unit.frag != Frag::WHOLE
            && self.tree().node(unit.dir).is_some()
            && stored.spread(unit.dir).is_none()
        {
            return Err(format!("{top:?} moves, and the store does not know that there is one"));
        }
        let of = |key: &&Key| match key {
            Key::Dentry { dir, hash, .. } => self.goes(top, *dir, Of::Name(*hash)),
            Key::Header { dir, frag } => self.goes(top, *dir, Of::frag(*frag)),
            _ => false,
        };
        let keys: BTreeSet<&Key> = stored.0.keys().chain(self.records.0.keys()).filter(of).collect();
        keys.into_iter()
            .try_for_each(|key| self.check_one(stored, key))
            .map_err(|error| format!("{top:?} is sealed, and not all of it is in the store: {error}"))
    }

    /// A rank's entry goes with its directory, and without it a slot has that. Whoever has the slot may not know yet that it is gone: he
    /// finds none of its names in the store.
    pub(in crate::ranks) fn check_dropped(
        &self,
        (unit, from): (Unit, RankId),
        map: &ClusterMap,
        stored: &Records,
    ) -> Verdict {
        let dir = unit.dir;
        let has_slot = self.owners.placed.contains(&dir) && map.slots.get(slot_of(dir)).rank != from;
        if !has_slot || self.tree().node(dir).is_some() {
            return Ok(());
        }
        let is_its = |key: &&Key| matches!(key, Key::Dentry { dir: of, .. } if *of == dir);
        match stored.0.keys().find(is_its) {
            Some(key) => Err(format!("{unit:?} has no entry any more, and the store has {key:?}")),
            None => Ok(()),
        }
    }

    fn goes(&self, top: &Part, dir: Ino, of: Of) -> bool {
        self.tree().node(dir).is_some() && self.goes_with(top, dir, of)
    }

    fn check_same(&self, stored: &Records) -> Verdict {
        let looked_at =
            |key: &&Key| matches!(key, Key::Dentry { .. } | Key::Header { .. } | Key::Backptr { .. });
        // Where an inode is that goes to another rank its old one has not stored any more, and the new one says it when it carries the
        // transaction out, perhaps again in its next life. Until then what is stored is an older hint.
        let promised = self.open.promised_places();
        let is_promised = |key: &&Key| matches!(key, Key::Backptr { ino } if promised.contains(ino));
        let keys: BTreeSet<&Key> = stored.0.keys().chain(self.records.0.keys()).filter(looked_at).collect();
        keys.into_iter().filter(|key| !is_promised(key)).try_for_each(|key| self.check_one(stored, key))
    }

    fn check_one(&self, stored: &Records, key: &Key) -> Verdict {
        let (found, wanted) = (stored.0.get(key), self.records.0.get(key));
        let same = match (found, wanted) {
            (Some(found), Some(wanted)) => found.says(wanted),
            (found, wanted) => found.is_none() && wanted.is_none(),
        };
        if same || self.may_differ(key, found, wanted) {
            return Ok(());
        }
        Err(format!("store has {key:?} as {found:?} instead of {wanted:?}"))
    }

    /// What is left of the dead does no harm; and what is said of the system's own directories.
    fn may_differ(&self, key: &Key, found: Option<&Record>, wanted: Option<&Record>) -> bool {
        match key {
            Key::Header { dir, .. } => {
                *dir == Ino::SYSTEM
                    || (wanted.is_none() && found.is_some() && self.tree().node(*dir).is_none())
            }
            // Made by the driver before a rank's first life.
            Key::Dentry { dir, .. } => *dir == Ino::SYSTEM,
            Key::Backptr { ino } => self.tree().node(*ino).is_none(),
            _ => false,
        }
    }

    /// What a driver made besides: it belongs to history from here on.
    pub(in crate::ranks) fn made(&mut self, stored: &Records) {
        for (key, record) in &stored.0 {
            let of_system = match key {
                Key::Dentry { dir, .. } => *dir == Ino::SYSTEM,
                Key::Header { dir, .. } => dir.is_reserved(),
                Key::Backptr { ino } => ino.is_reserved(),
                _ => false,
            };
            if of_system && !self.records.0.contains_key(key) {
                self.records.0.insert(key.clone(), record.clone());
                self.base.0.0.insert(key.clone(), record.clone());
            }
        }
    }
}

/// The position a stored checkpoint names.
fn checkpoint_position(value: &[u8]) -> Verdict<Position> {
    let record = CheckpointRecord::decode(value).map_err(|error| format!("checkpoint record: {error}"))?;
    Ok(record.position)
}

pub(super) fn stored_checkpoint(stored: &Records, rank: RankId) -> Verdict<Position> {
    match stored.0.get(&Key::Checkpoint { rank }) {
        Some(record) => checkpoint_position(&record.bytes),
        None => Ok(Position(0)),
    }
}
