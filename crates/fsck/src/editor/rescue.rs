//! Names for what has lost its own: lost+found, and right keys for records under wrong ones.
//!
//! Absent: counts of directories; the next round counts.

use super::Editor;
use crate::bytes::{Bytes, Out};
use crate::edit;
use crate::fix::{At, Edit, Spot};
use crate::folder::FsckError;
use crate::record::{
    self, DIRECTORY, Dentry, Frag, LINKS, ROOT, SYSTEM, dentry_key, header_key, is_orphans, number_name,
    system_name,
};
use crate::tables::Table;
use crate::tree::name_hash;

/// Where found inodes go, in the root directory.
const LOST_FOUND: &str = "lost+found";
const NAMES_MAX: u32 = 1000;
/// Numbers are reserved in blocks of this many.
const INO_BLOCK: u64 = 65_536;

/// The value of a backptr.
pub(super) fn backptr_value(version: u64, parent: u64, hash: u64, name: &[u8]) -> Vec<u8> {
    Out::default().u64(version).u64(parent).u64(hash).name(name).0.clone()
}

fn is_directory(value: &[u8]) -> Option<u64> {
    match record::dentry(value, &mut Vec::new()) {
        Some(Dentry::Primary(inode)) if inode.kind == DIRECTORY => Some(inode.ino),
        _ => None,
    }
}

impl Editor<'_> {
    fn dentry_at(&self, dir: u64, name: &[u8]) -> At {
        self.at(Table::Dentry, dentry_key(dir, name_hash(self.folder, name), name))
    }

    /// A name in `dir` that nobody has: `base`, or `base.1` and so on. Damaged records count as names.
    fn free_name(&self, dir: u64, base: &str) -> Result<Option<At>, FsckError> {
        for number in 0..NAMES_MAX {
            let name = if number == 0 { base.to_owned() } else { format!("{base}.{number}") };
            let at = self.dentry_at(dir, name.as_bytes());
            let taken = match self.pending.get(&at) {
                Some(value) => value.is_some(),
                None => self.stored(&at)?.is_some(),
            };
            if !taken {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    fn no_name(&self) -> FsckError {
        FsckError::Unreadable {
            dir: self.folder.root.clone(),
            what: format!("{LOST_FOUND} has no free name"),
        }
    }

    /// The number of lost+found, which is made if it is not there.
    fn lost_found(&mut self) -> Result<u64, FsckError> {
        if let Some(ino) = self.lost_found {
            return Ok(ino);
        }
        let usual = self.dentry_at(ROOT, LOST_FOUND.as_bytes());
        let known = self.get(&usual)?.and_then(|value| is_directory(&value));
        let ino = match known {
            Some(ino) => ino,
            None => {
                let ino = self.next_ino;
                self.raise_counter(0, ino + INO_BLOCK)?;
                let at = self.free_name(ROOT, LOST_FOUND)?.ok_or_else(|| self.no_name())?;
                self.place_directory(at, ino, 0o700);
                ino
            }
        };
        self.lost_found = Some(ino);
        Ok(ino)
    }

    /// Puts a new directory inode at a name, with header and backptr.
    fn place_directory(&mut self, at: At, ino: u64, permissions: u32) {
        let value = edit::new_directory(ino, self.folder.epoch, permissions, self.now);
        self.place_primary(at, ino, value);
        let header = self.at(Table::Dentry, header_key(ino, Frag::WHOLE));
        if !self.pending.contains_key(&header) && matches!(self.stored(&header), Ok(None)) {
            self.put(header, edit::header(None, 0, 0, self.now));
        }
    }

    /// Puts an inode at a name, with its backptr.
    fn place_primary(&mut self, at: At, ino: u64, value: Vec<u8>) {
        let mut key = Bytes(&at.key);
        let (parent, hash) = (key.u64_be().unwrap_or_default(), key.u64_be().unwrap_or_default());
        let name = key.0.strip_suffix(&[0; 8]).unwrap_or_default().to_vec();
        let change = match record::dentry(&value, &mut Vec::new()) {
            Some(Dentry::Primary(inode)) => inode.change,
            _ => 0,
        };
        let backptr = self.at(Table::Backptr, ino.to_be_bytes().into());
        self.put(backptr, backptr_value(change, parent, hash, &name));
        self.put(at, value);
    }

    /// Moves an inode to lost+found.
    pub(super) fn rescue(&mut self, spot: &Spot) -> Result<(), FsckError> {
        let Some(at) = self.find(spot)? else { return Ok(()) };
        let Some(value) = self.get(&at)? else { return Ok(()) };
        let Some(Dentry::Primary(inode)) = record::dentry(&value, &mut Vec::new()) else {
            // A second name: the inode is where it is.
            return self.remove(at);
        };
        let mut value = edit::inode(&value, &Edit::BackptrFlag).unwrap_or(value);
        if inode.kind != DIRECTORY {
            value = edit::inode(&value, &Edit::Nlink(1)).unwrap_or(value);
        }
        let dir = self.lost_found()?;
        let to = self.free_name(dir, &format!("#{}", inode.ino))?.ok_or_else(|| self.no_name())?;
        self.delete(at);
        self.place_primary(to, inode.ino, value);
        Ok(())
    }

    /// Gives a directory that has entries and no inode a new inode, in lost+found.
    pub(super) fn adopt(&mut self, dir: u64) -> Result<(), FsckError> {
        let parent = self.lost_found()?;
        let at = self.free_name(parent, &format!("#{dir}"))?.ok_or_else(|| self.no_name())?;
        self.place_directory(at, dir, 0o700);
        Ok(())
    }

    /// Gives an inode of `//links` a name in lost+found.
    pub(super) fn name(&mut self, ino: u64, kind: u8) -> Result<(), FsckError> {
        let dir = self.lost_found()?;
        let at = self.free_name(dir, &format!("#{ino}"))?.ok_or_else(|| self.no_name())?;
        self.put(at, [&[2][..], &ino.to_le_bytes(), &[kind]].concat());
        Ok(())
    }

    /// Makes the root directory, `//links` or a rank's `//orphans`.
    pub(super) fn system_directory(&mut self, ino: u64) -> Result<(), FsckError> {
        let Some(name) = system_name(ino) else { return Ok(()) };
        let permissions = if ino == ROOT { 0o755 } else { 0o700 };
        let at = self.dentry_at(SYSTEM, name.as_bytes());
        self.place_directory(at, ino, permissions);
        Ok(())
    }

    /// Moves a record to the key it belongs under; where that is taken, its inode goes to lost+found.
    pub(super) fn rekey(&mut self, at: &At) -> Result<(), FsckError> {
        let Some(value) = self.get(at)? else { return Ok(()) };
        let mut key = Bytes(&at.key);
        let (Some(dir), Some(_)) = (key.u64_be(), key.u64_be()) else { return Ok(()) };
        let mut name = key.0.strip_suffix(&[0; 8]).unwrap_or_default().to_vec();
        let primary = match record::dentry(&value, &mut Vec::new()) {
            Some(Dentry::Primary(inode)) => Some(inode.ino),
            _ => None,
        };
        match (dir, primary) {
            (dir, Some(ino)) if dir == LINKS || is_orphans(dir) => name = number_name(ino).into_bytes(),
            (SYSTEM, Some(ino)) => {
                if let Some(system) = system_name(ino) {
                    name = system.into_bytes();
                }
            }
            _ => {}
        }
        let to = self.dentry_at(dir, &name);
        if to == *at {
            return Ok(());
        }
        if self.get(&to)?.is_some() {
            return self.rescue(&Spot::At(at.clone()));
        }
        self.delete(at.clone());
        self.put(to, value);
        Ok(())
    }
}
