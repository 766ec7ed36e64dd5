//! The metadata store: nothing reaches it before it is durable in the journal (invariant 2, journal before store), and
//! with the journal's tail it is always the whole truth (invariant 1, durability).
//!
//! Absent: the rank's own replay; the tree after a restart is compared through answers.

use super::{Judge, Verdict};
use crate::model::records::{Key, Record, Records};
use proto::dentry::DentryValue;
use proto::ids::{Position, RankId};
use proto::journal::Mutations;
use proto::mutation::Mutation;
use proto::storeio::{Cut, StoreBatch, StoreKey};
use proto::system::CheckpointRecord;
use proto::{FileId, FileKind, Ino};
use std::collections::{BTreeMap, BTreeSet};

impl Judge {
    /// A batch leaves for the store: its records must be durable in the journal.
    ///
    /// # Errors
    /// A record that only an undurable entry states.
    pub fn batch(&self, batch: &StoreBatch) -> Verdict {
        for (table, key, value) in batch.iter() {
            let key = StoreKey::decode(table, key).map_err(|error| format!("store key: {error}"))?;
            let key = Key::of(&key);
            match key {
                Key::Checkpoint { .. } => {
                    let position = checkpoint_position(value.unwrap_or_default())?;
                    if position > self.durable {
                        return Err(format!("checkpoint at {} before it is durable", position.0));
                    }
                }
                Key::Dentry { .. } | Key::Header { .. } => self.record_is_durable(&key, value)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn record_is_durable(&self, key: &Key, value: Option<&[u8]>) -> Verdict {
        let Some(value) = value else { return Ok(()) };
        let value = Record::new(key, value).map_err(|error| format!("{key:?}: {error}"))?;
        if matches!(value.dentry.as_deref(), Some(DentryValue::Remote { .. })) {
            // Carries no version: the same bytes may have been right before.
            return Ok(());
        }
        let same = |held: &Option<&Record>| held.is_some_and(|held| held.says(&value));
        // What the key held at the durable mark, then after each later entry.
        let later = self.undo.iter().flat_map(|(_, undo)| undo.iter()).filter(|(at, _)| at == key);
        let mut held: Vec<Option<&Record>> = later.map(|(_, old)| old.as_ref()).collect();
        held.push(self.records.0.get(key));
        let (durable, undurable) = (&held[0], &held[1..]);
        if !same(durable) && undurable.iter().any(same) {
            return Err(format!("stores {key:?} before it is durable"));
        }
        Ok(())
    }

    /// The journal is about to forget everything before `before`.
    ///
    /// # Errors
    /// The stored checkpoint needs it.
    pub fn trim(&mut self, before: Position, stored: &Records) -> Verdict {
        let position = stored_checkpoint(stored)?;
        if position < before {
            return Err(format!("trims to {} but the stored checkpoint is {}", before.0, position.0));
        }
        while self.log.front().is_some_and(|(_, end, _)| *end <= before) {
            self.log.pop_front();
        }
        Ok(())
    }

    /// Store plus the journal from its checkpoint on must be the records of history.
    ///
    /// # Errors
    /// The first record that differs.
    pub fn check_store(&self, mut stored: Records) -> Verdict {
        let from = stored_checkpoint(&stored)?;
        self.check_headers(&stored)?;
        for (start, _, mutations) in &self.log {
            if *start >= from {
                stored.apply(mutations, false)?;
            }
        }
        self.check_same(&stored)
    }

    /// A stored header says: everything of this directory up to my version is in the store, unless a later
    /// entry of the journal says it anew (invariant 1, durability).
    fn check_headers(&self, stored: &Records) -> Verdict {
        let mut seen = Records::default();
        // What each name was made by the last entry its directory's stored header covers.
        let mut covered: BTreeMap<Key, Position> = BTreeMap::new();
        let mut values: BTreeMap<Key, (Position, Option<Record>)> = BTreeMap::new();
        for (start, _, mutations) in &self.log {
            for mutation in Mutations::new(mutations).flatten() {
                let (dir, version, hash, name) = match mutation {
                    Mutation::PutDentry { dir, version, hash, name, .. }
                    | Mutation::DelDentry { dir, version, hash, name } => (dir, version, hash, name),
                    _ => continue,
                };
                let key = Key::Dentry { dir, hash, name: name.into() };
                if stored.header(dir).is_some_and(|header| version <= header.version) {
                    covered.insert(key, *start);
                }
            }
            for (key, _) in seen.apply(mutations, false)? {
                let value = seen.0.get(&key).cloned();
                values.insert(key, (*start, value));
            }
        }
        for (key, since) in covered {
            let last = values.get(&key);
            let Some((_, value)) = last.filter(|(at, _)| *at == since) else { continue };
            let same = match (stored.0.get(&key), value) {
                (Some(found), Some(value)) => found.says(value),
                (found, value) => found.is_none() && value.is_none(),
            };
            if !same {
                return Err(format!("a stored header covers {key:?}, whose stored record is older"));
            }
        }
        Ok(())
    }

    /// Every file of the present tree with what a read of its data needs.
    #[must_use]
    pub fn files(&self) -> Vec<(FileId, Cut, u64)> {
        let inodes = self.records.dentries().filter_map(|(_, _, _, value)| match value {
            DentryValue::Primary(inode) => Some(&inode.core),
            DentryValue::Remote { .. } => None,
        });
        let files = inodes.filter(|core| FileKind::of_mode(core.mode) == Some(FileKind::Regular));
        files
            .map(|core| {
                let file = FileId { ino: core.ino, generation: core.generation };
                (file, Cut { seq: core.truncate_seq, size: core.truncate_size }, core.size)
            })
            .collect()
    }

    /// Whether data of this inode may be left at the end: its creation was taken back by a crash.
    #[must_use]
    pub fn was_lost(&self, ino: Ino) -> bool {
        self.lost.contains(&ino)
    }

    /// Bytes that were read past the rank, with nothing under way.
    ///
    /// # Errors
    /// A byte no history explains.
    pub fn bytes_at_rest(&mut self, ino: Ino, offset: u64, found: &[u8]) -> Verdict {
        let now = self.clock;
        self.check_read(ino, offset, found, now).map_err(|error| format!("after recovery: {error}"))
    }

    /// At the end everything is in the store.
    ///
    /// # Errors
    /// The first record that differs.
    pub fn check_stopped(&self, stored: &Records) -> Verdict {
        self.check_same(stored)
    }

    fn check_same(&self, stored: &Records) -> Verdict {
        let looked_at =
            |key: &&Key| matches!(key, Key::Dentry { .. } | Key::Header { .. } | Key::Backptr { .. });
        let keys: BTreeSet<&Key> = stored.0.keys().chain(self.records.0.keys()).filter(looked_at).collect();
        for key in keys {
            let (found, wanted) = (stored.0.get(key), self.records.0.get(key));
            let same = match (found, wanted) {
                (Some(found), Some(wanted)) => found.says(wanted),
                (found, wanted) => found.is_none() && wanted.is_none(),
            };
            if same || self.may_differ(key, found, wanted) {
                continue;
            }
            return Err(format!("store has {key:?} as {found:?} instead of {wanted:?}"));
        }
        Ok(())
    }

    /// What is left of the dead does no harm: headers and backptrs of inodes that are gone, and what
    /// is said of the system's own directories.
    fn may_differ(&self, key: &Key, found: Option<&Record>, wanted: Option<&Record>) -> bool {
        match key {
            Key::Header { dir, .. } => {
                *dir == Ino::SYSTEM
                    || (wanted.is_none() && found.is_some() && self.tree().node(*dir).is_none())
            }
            Key::Backptr { ino } => self.tree().node(*ino).is_none(),
            _ => false,
        }
    }
}

/// The position a stored checkpoint names.
fn checkpoint_position(value: &[u8]) -> Verdict<Position> {
    let record = CheckpointRecord::decode(value).map_err(|error| format!("checkpoint record: {error}"))?;
    Ok(record.position)
}

fn stored_checkpoint(stored: &Records) -> Verdict<Position> {
    match stored.0.get(&Key::Checkpoint { rank: RankId(0) }) {
        Some(record) => checkpoint_position(&record.bytes),
        None => Ok(Position(0)),
    }
}
