//! What a rank leaves that goes: nothing that is nobody else's. docs/PROTOCOL.md, "Ranks that go".
//!
//! Absent: whose directories are (`owners.rs`): a map in which a rank owns something, and is not in it, may not be.

use super::Judge;
use super::stores::stored_checkpoint;
use crate::model::judge::Verdict;
use crate::model::records::{Key, Records};
use proto::Ino;
use proto::ids::{Incarnation, RankId};

impl Judge {
    /// A rank has nothing left: its journal says nothing that the store does not know, it has no part in any transaction, no file
    /// without a name, no session. `life`: its last one.
    pub(in crate::ranks) fn check_left(&self, rank: RankId, life: Incarnation, stored: &Records) -> Verdict {
        let from = stored_checkpoint(stored, rank)?;
        let log = self.ranks.get(&rank).map(|journal| &journal.log);
        if let Some((start, ..)) = log.into_iter().flatten().find(|(start, ..)| *start >= from) {
            return Err(format!(
                "rank {} goes, and has at {} what its checkpoint at {} does not have",
                rank.0, start.0, from.0
            ));
        }
        self.check_remembered(rank, from)?;
        if self.open.has_part(rank, life) {
            return Err(format!("rank {} goes, and has a part in {}", rank.0, self.unsettled()));
        }
        let orphans = Ino::orphans(rank);
        let is_left = |key: &&Key| match key {
            Key::Dentry { dir, .. } => *dir == orphans,
            Key::Session { rank: of, .. } => *of == rank,
            Key::Header { .. } | Key::Backptr { .. } | Key::Counter { .. } | Key::Checkpoint { .. } => false,
        };
        match stored.0.keys().chain(self.records.0.keys()).find(is_left) {
            Some(key) => Err(format!("rank {} goes, and leaves {key:?}", rank.0)),
            None => Ok(()),
        }
    }

    /// A rank is off the map. Whoever has its number next knows of no answer that it gave.
    pub(in crate::ranks) fn gone(&mut self, rank: RankId, life: Incarnation, stored: &Records) -> Verdict {
        self.check_left(rank, life, stored)?;
        self.answered.remove(&rank);
        self.owners.forget_seal(rank);
        Ok(())
    }
}
