//! Which of several statements counts: the one with the highest version, unless the rank that said it has taken it back.
//!
//! What a rank lets go of is in the store when it says so, and others may have changed it since. Only its own statements are void then:
//! journals are read one after the other, so that what the new owner said, later, may have been read before.
//!
//! Absent: reading statements (`entry.rs`).

use super::Overlay;
use crate::bytes::Bytes;
use crate::record::{Frag, header_key};

impl Overlay {
    /// Another rank may have changed it since: what this one said of it before counts no more.
    pub(super) fn seal(&mut self, rank: u16, dir: u64) {
        let (dir, frag) = self.units.get(&dir).copied().unwrap_or((dir, Frag::WHOLE));
        // Of a spread directory that goes as a whole its units say for themselves whether they do.
        let is_spread = frag == Frag::WHOLE && self.units.values().any(|(of, _)| *of == dir);
        let header = header_key(dir, frag);
        let goes = |key: &[u8]| {
            let hash = key.get(8..16).and_then(|hash| Some(u64::from_be_bytes(hash.try_into().ok()?)));
            let name = key.starts_with(&dir.to_be_bytes()) && hash.is_some_and(|h| h != 0 && frag.covers(h));
            *key == *header || (name && !is_spread)
        };
        let versions = self.versions.as_ref();
        let is_own = |key: &[u8]| {
            let said = versions.and_then(|versions| versions.get(key));
            said.is_none_or(|(_, by)| *by == rank)
        };
        self.dentry.retain(|key, _| !(goes(key) && is_own(key)));
        // A backptr is its version, then the directory, then the hash.
        let inside = |value: &[u8]| {
            let hash = value.get(16..24).and_then(|hash| Some(u64::from_le_bytes(hash.try_into().ok()?)));
            value.get(8..16) == Some(&dir.to_le_bytes()[..])
                && !is_spread
                && hash.is_some_and(|hash| frag.covers(hash))
        };
        let places = &self.backptr_versions;
        let is_own = |key: &[u8]| {
            let said = Bytes(key).u64_be().and_then(|ino| places.get(&ino));
            said.is_none_or(|(_, by)| *by == rank)
        };
        self.backptr.retain(|key, value| !(value.as_deref().is_some_and(inside) && is_own(key)));
    }

    /// These inodes are another rank's: that one says where they are, and has their content, synced, or has removed it by now. What this
    /// rank said before would be put over that.
    pub(super) fn left(&mut self, rank: u16, inodes: &[u64]) {
        for ino in inodes {
            if self.backptr_versions.get(ino).is_some_and(|(_, by)| *by == rank) {
                self.backptr.remove(&ino.to_be_bytes()[..]);
            }
            let contents = self.redo.range((*ino, 0)..=(*ino, u32::MAX));
            let own: Vec<(u64, u32)> =
                contents.filter(|(_, redo)| redo.rank == rank).map(|(file, _)| *file).collect();
            own.iter().for_each(|file| drop(self.redo.remove(file)));
        }
    }

    /// A directory that moved to another rank is in the journals of both: what was said later has the higher version.
    pub(super) fn state_dentry(&mut self, rank: u16, key: Box<[u8]>, version: u64, value: Option<&[u8]>) {
        if let Some(versions) = &mut self.versions {
            let known = versions.entry(key.clone()).or_default();
            if known.0 > version {
                return;
            }
            *known = (version, rank);
        }
        self.dentry.insert(key, value.map(Into::into));
    }

    pub(super) fn state_backptr(&mut self, rank: u16, ino: u64, version: u64, value: Option<&[u8]>) {
        if value.is_none() {
            // An inode is gone: its header too, if it was a directory.
            let unit = self.units.remove(&ino);
            let (dir, frag) = unit.unwrap_or((ino, Frag::WHOLE));
            // A directory that is merged may be spread again: units that come after this one have its key, and higher versions.
            let last = unit.and(self.unit_versions.remove(&ino));
            self.state_dentry(rank, header_key(dir, frag), last.unwrap_or(u64::MAX), None);
        } else if self.backptr_versions.get(&ino).is_some_and(|(known, _)| *known > version) {
            return;
        }
        self.state_place(rank, ino, version, value);
    }

    /// Where an inode is, or that it is gone.
    pub(super) fn state_place(&mut self, rank: u16, ino: u64, version: u64, value: Option<&[u8]>) {
        self.backptr_versions.insert(ino, (version, rank));
        self.backptr.insert(ino.to_be_bytes().into(), value.map(Into::into));
    }
}
