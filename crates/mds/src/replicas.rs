//! Replicas: inodes of directories whose content is here and whose home is another rank. Each is the only thing that the cache has of
//! the directory that it is in. docs/PROTOCOL.md, "Boundaries".
//!
//! Absent: asking for them (`peers/asks.rs`); who may keep them (`caps/book/copies.rs`, at their home).

use crate::cache::dir;
use crate::op::{LoadKey, OpId};
use crate::rank::Rank;
use crate::territory::{Side, is_placed};
use proto::dentry::DentryValue;
use proto::reply::{Outcome, Reply};
use proto::{Errno, FileKind, Ino, NodeRef, RankId};
use std::collections::BTreeSet;

impl Rank {
    /// Takes a replica in. It stays as told until it is recalled.
    pub(crate) fn take_replica(
        &mut self,
        rank: RankId,
        ino: Ino,
        (place, name, value): (NodeRef, &[u8], &[u8]),
        waiters: &BTreeSet<OpId>,
    ) -> Result<(), Errno> {
        let value = DentryValue::decode(value).map_err(|_| Errno::EIO)?;
        let DentryValue::Primary(record) = &value else { return Err(Errno::EIO) };
        let is_dir = FileKind::of_mode(record.core.mode) == Some(FileKind::Directory);
        if place.ino != ino || record.core.ino != ino || !is_dir {
            return Err(Errno::EIO);
        }
        // Its home moved here meanwhile, or it was found: the operations look again.
        if self.view.cache.by_ino(ino).is_some() {
            return Ok(());
        }
        // Its name is in a unit of another rank's, of a directory that is this rank's as a whole and has been forgotten: by that alone it
        // would be this rank's to read. Once it is known how that is spread the operations ask again.
        let is_unknown = self.view.cache.spread(place.parent).is_none();
        if is_unknown && self.view.territory.has_live_parts(place.parent) {
            self.start_load(LoadKey::Spread { dir: place.parent }, None);
            return Ok(());
        }
        let parent = self.view.cache.inner(place.parent, place.hash);
        let slot = self.view.cache.dir_or_new(parent);
        if self.view.side(slot) == Some(Side::Mine) && !self.view.cache.dir(slot).has(dir::FOREIGN) {
            self.view.cache.drop_dir_if_idle(slot);
            return Ok(());
        }
        let entries = self.view.cache.dirs.get_mut(slot);
        entries.set(dir::FOREIGN);
        entries.side = Side::Other(Some(rank));
        self.view.note_facts(&record.core);
        self.view.cache.load(slot, place.hash, name, Some(value), 0);
        self.peers.replicas.insert(ino, rank);
        if let Some(node) = self.view.cache.by_ino(ino) {
            self.pin_for(waiters, node);
        }
        Ok(())
    }

    /// What never changes of a directory, for operations that wait for it. If its home does not know it what led there was old.
    pub(crate) fn take_facts(&mut self, ino: Ino, outcome: Outcome, waiters: &BTreeSet<OpId>) {
        if let Ok(Reply::Record { value, .. }) = &outcome
            && let Ok(DentryValue::Primary(record)) = DentryValue::decode(value)
            && record.core.ino == ino
            && is_placed(&record.core)
        {
            return self.view.note_facts(&record.core);
        }
        let gone = outcome == Err(Errno::ESTALE);
        for id in waiters {
            if let Some(op) = self.parked.get_mut(id) {
                op.hears().has_no_slot(ino, gone);
            }
        }
    }

    /// A replica counts no more.
    pub(crate) fn drop_replica(&mut self, ino: Ino) {
        if self.peers.replicas.remove(&ino).is_none() {
            return;
        }
        let Some(slot) = self.view.cache.by_ino(ino) else { return };
        let dir = self.view.cache.node(slot).dir;
        if self.view.cache.dir(dir).has(dir::FOREIGN) {
            self.view.cache.drop_clean(slot);
        }
    }

    /// A new map: replicas go unless it says of their place that it is the rank's that told them. Elsewhere the place may be this rank's by
    /// now, and then it reads it for itself; another one may not know, if the one that told lost its book before it gave the place away.
    pub(crate) fn replicas_by_map(&mut self) {
        let replicas: Vec<(Ino, RankId)> = self.peers.replicas.iter().map(|(ino, of)| (*ino, *of)).collect();
        for (ino, told) in replicas {
            let Some(slot) = self.view.cache.by_ino(ino) else {
                // Forgotten: it was in nobody's way.
                self.peers.replicas.remove(&ino);
                continue;
            };
            let dir = self.view.cache.node(slot).dir;
            let parent = self.view.cache.dir(dir).ino;
            if self.view.of_itself(parent) != Some(Side::Other(Some(told))) {
                self.drop_replica(ino);
            }
        }
    }
}
