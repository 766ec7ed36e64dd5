//! What was not synced yet, and how to take it back.
//!
//! A file's ledger keeps the content of each sector as of the last sync; a folder change keeps its inverse. Absent: requests.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use stdx::Prng;

/// The unit in which a disk writes whole or not at all.
pub(crate) const SECTOR: u64 = 512;

/// One file's unsynced state.
struct FileLedger {
    /// Length at the last sync.
    size: u64,
    /// Content at the last sync, zero-padded, of every sector changed since.
    sectors: BTreeMap<u64, Box<[u8]>>,
}

/// How to undo a change of a folder.
pub(crate) enum Undo {
    /// Something was made: remove it.
    Remove(PathBuf),
    /// Something was removed or replaced: it was kept here, put it back there.
    Restore { kept: PathBuf, path: PathBuf },
    /// Something was renamed: rename it back.
    Rename { from: PathBuf, to: PathBuf },
}

struct FolderChange {
    folder: PathBuf,
    undo: Undo,
}

/// What a cut did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    pub sectors_unsynced: u64,
    pub sectors_lost: u64,
    pub lengths_lost: u64,
    pub folder_changes_lost: u64,
}

/// All unsynced state of the disk.
#[derive(Default)]
pub(crate) struct Ledger {
    files: BTreeMap<PathBuf, FileLedger>,
    folders: Vec<FolderChange>,
}

impl Ledger {
    /// Before `len` bytes at `offset` of the file change, or its length becomes `new_size`: keep what is there.
    pub(crate) fn before_write(&mut self, path: &Path, file: &File, offset: u64, len: u64) -> io::Result<()> {
        let size = file.metadata()?.len();
        let ledger = self
            .files
            .entry(path.to_path_buf())
            .or_insert_with(|| FileLedger { size, sectors: BTreeMap::new() });
        for sector in offset / SECTOR..(offset + len).div_ceil(SECTOR) {
            if ledger.sectors.contains_key(&sector) {
                continue;
            }
            let mut content = vec![0; SECTOR as usize];
            read_padded(file, &mut content, sector * SECTOR)?;
            ledger.sectors.insert(sector, content.into());
        }
        Ok(())
    }

    /// The file's length at the last sync, if it changed since.
    pub(crate) fn synced_size(&self, path: &Path) -> Option<u64> {
        self.files.get(path).map(|ledger| ledger.size)
    }

    /// The file's present content is durable.
    pub(crate) fn synced(&mut self, path: &Path) {
        self.files.remove(path);
    }

    /// A folder changed.
    pub(crate) fn folder_changed(&mut self, folder: &Path, undo: Undo) {
        self.folders.push(FolderChange { folder: folder.to_path_buf(), undo });
    }

    /// Whether a cut may take this name away.
    pub(crate) fn is_new(&self, path: &Path) -> bool {
        self.folders.iter().any(|change| match &change.undo {
            Undo::Remove(made) => made == path,
            Undo::Rename { to, .. } => to == path,
            Undo::Restore { .. } => false,
        })
    }

    /// The folder is durable: everything up to its last change, in order, as journaling file systems have it.
    pub(crate) fn folder_synced(&mut self, folder: &Path) -> io::Result<()> {
        let Some(last) = self.folders.iter().rposition(|change| change.folder == folder) else {
            return Ok(());
        };
        for change in self.folders.drain(..=last) {
            if let Undo::Restore { kept, .. } = change.undo {
                fs::remove_file(kept)?;
            }
        }
        Ok(())
    }

    /// A file has another name now.
    pub(crate) fn renamed(&mut self, from: &Path, to: &Path) {
        self.files.remove(to);
        if let Some(ledger) = self.files.remove(from) {
            self.files.insert(to.to_path_buf(), ledger);
        }
    }

    /// A file's name is gone.
    pub(crate) fn removed(&mut self, path: &Path) {
        self.files.remove(path);
    }

    /// The power fails: takes back a random part of what was not synced.
    pub(crate) fn cut(self, seed: u64) -> io::Result<Cut> {
        let mut dice = Prng::new(seed);
        let mut cut = Cut::default();
        // How much of it reached the platter: nothing, nearly everything, or anything in between.
        let lost_per_mille = [1000, 0, 20, 500, 980][dice.index(5)];
        for (path, ledger) in self.files {
            ledger.cut(&path, &mut dice, lost_per_mille, &mut cut)?;
        }
        let kept = dice.below(self.folders.len() as u64 + 1) as usize;
        for change in self.folders.into_iter().skip(kept).rev() {
            cut.folder_changes_lost += 1;
            match change.undo {
                Undo::Remove(path) if path.is_dir() => fs::remove_dir_all(path)?,
                Undo::Remove(path) => fs::remove_file(path)?,
                Undo::Restore { kept, path } => fs::rename(kept, path)?,
                Undo::Rename { from, to } => fs::rename(to, from)?,
            }
        }
        Ok(cut)
    }
}

impl FileLedger {
    fn cut(self, path: &Path, dice: &mut Prng, lost_per_mille: u64, cut: &mut Cut) -> io::Result<()> {
        let file = match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        let present = file.metadata()?.len();
        cut.sectors_unsynced += self.sectors.len() as u64;
        for (sector, content) in &self.sectors {
            if dice.chance(lost_per_mille, 1000) {
                cut.sectors_lost += 1;
                file.write_all_at(content, sector * SECTOR)?;
            }
        }
        // Writing sectors back may have padded the file; its length is the old one or the new one.
        let size = if present != self.size && dice.chance(lost_per_mille, 1000) {
            cut.lengths_lost += 1;
            self.size
        } else {
            present
        };
        file.set_len(size)
    }
}

fn read_padded(file: &File, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !buffer.is_empty() {
        let read = file.read_at(buffer, offset)?;
        if read == 0 {
            return Ok(());
        }
        buffer = &mut buffer[read..];
        offset += read as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &Path) -> File {
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).expect("open")
    }

    #[test]
    fn synced_bytes_survive_every_cut_and_unsynced_ones_are_old_or_new() {
        let folder = tempfile::tempdir().expect("temp dir");
        let mut losses = 0;
        for seed in 0..64 {
            let path = folder.path().join(format!("f{seed}"));
            let f = file(&path);
            let mut ledger = Ledger::default();
            ledger.before_write(&path, &f, 0, 4096).expect("keep");
            f.write_all_at(&[1; 4096], 0).expect("write");
            ledger.synced(&path);
            ledger.before_write(&path, &f, 1000, 8000).expect("keep");
            f.write_all_at(&[2; 8000], 1000).expect("write");
            losses += ledger.cut(seed).expect("cut").sectors_lost;
            let content = fs::read(&path).expect("read");
            assert!(content[..1000].iter().all(|b| *b == 1));
            assert!(content[1000..4096].iter().all(|b| *b == 1 || *b == 2));
            assert!(content[4096..].iter().all(|b| *b == 0 || *b == 2));
        }
        assert!(losses > 0);
    }

    #[test]
    fn folder_changes_are_lost_from_the_end_and_synced_ones_stay() {
        let folder = tempfile::tempdir().expect("temp dir");
        let (a, b) = (folder.path().join("a"), folder.path().join("b"));
        let mut lost = 0;
        for seed in 0..16 {
            let mut ledger = Ledger::default();
            file(&a);
            ledger.folder_changed(folder.path(), Undo::Remove(a.clone()));
            ledger.folder_synced(folder.path()).expect("sync");
            fs::rename(&a, &b).expect("rename");
            ledger.folder_changed(folder.path(), Undo::Rename { from: a.clone(), to: b.clone() });
            lost += ledger.cut(seed).expect("cut").folder_changes_lost;
            assert!(a.exists() != b.exists());
        }
        assert!(lost > 0 && lost < 16);
    }
}
