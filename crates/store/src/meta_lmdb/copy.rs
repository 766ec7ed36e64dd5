//! Compaction of an environment in place: a copy without free pages takes its place.
//!
//! Absent: backups, which read records (`LmdbMeta::each`).

use super::environment::Environment;
use super::live::Live;
use super::{LmdbMeta, PAGE_BYTES};
use crate::disk_real::{failed, no_space, sync_path};
use heed::CompactionOption;
use proto::storeio::StoreError;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

impl LmdbMeta {
    /// Rewrites one environment without its free pages. Its writers wait meanwhile; readers only while
    /// the file is exchanged. Returns the bytes given back.
    ///
    /// # Errors
    /// `NoSpace`: the old file stays in use. `Damaged`, `Io`.
    pub fn compact(&self, index: usize) -> Result<u64, StoreError> {
        match self.environments.get(index) {
            Some(environment) => environment.compact(),
            None => Ok(0),
        }
    }
}

impl Environment {
    fn copy(&self, to: &Path) -> Result<File, StoreError> {
        // A reader of its own, so that the environment cannot be exchanged meanwhile.
        let live = self.live.read().unwrap_or_else(PoisonError::into_inner);
        let live = live.as_ref().ok_or(StoreError::Poisoned)?;
        live.env.copy_to_path(to, CompactionOption::Enabled).map_err(|error| self.read_error(&error))
    }

    fn compact(&self) -> Result<u64, StoreError> {
        let _writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.stats()?;
        let new = unfinished(&self.path);
        let copied = self.copy(&new).and_then(|file| {
            // Of a failed sync nothing is kept, so the environment in use is not poisoned by it.
            file.sync_all().map_err(|error| no_space(&self.place, &error))
        });
        if let Err(error) = copied {
            // The next open removes what cannot be removed now.
            let _ = fs::remove_file(&new);
            return Err(error);
        }
        self.exchange(&new)?;
        let after = self.stats()?;
        let pages = |stats: super::EnvironmentStats| stats.used_pages + stats.free_pages;
        Ok(pages(before).saturating_sub(pages(after)) * PAGE_BYTES)
    }

    /// Puts the new file in the place of the old one. A crash leaves one or the other: both hold the
    /// same records, since the writer is held.
    fn exchange(&self, new: &Path) -> Result<(), StoreError> {
        let mut live = self.live.write().unwrap_or_else(PoisonError::into_inner);
        fs::rename(new, &self.path).map_err(|error| failed(&self.place, &error))?;
        if let Some(folder) = self.path.parent() {
            sync_path(folder).map_err(|error| failed(&self.place, &error))?;
        }
        if let Some(old) = live.take() {
            old.env.prepare_for_closing().wait();
        }
        *live = Some(Live::open(&self.place, &self.path, self.map_bytes, false)?);
        Ok(())
    }
}

/// Where a copy is made before it takes the environment's place.
pub(super) fn unfinished(path: &Path) -> PathBuf {
    path.with_extension("new")
}
