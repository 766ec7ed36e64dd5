//! Spare segment files: prewritten while nobody waits, taken from what is trimmed, reserved at once where there is none.
//!
//! Absent: what becomes of a spare once it is a segment; when there is time (the driver's).

use super::{JournalFiles, State};
use crate::disk::{DIRECT_BYTES, Disk, DiskFile};
use proto::ids::Position;
use proto::storeio::StoreError;
use std::sync::PoisonError;

const PREWRITE_BYTES: usize = 1 << 20;
const PRESYNC_BYTES: u64 = 8 << 20;
/// Spare segments that `prepare` provides.
const SPARES_WANTED: usize = 2;
/// The part of a segment that is reserved where the disk has no room for all of it.
const SHORT_PART: u64 = 16;

pub(super) struct Spare {
    pub(super) name: String,
    /// `None`: holds nothing but zeros.
    pub(super) stale_start: Option<Position>,
}

impl<D: Disk> JournalFiles<D> {
    /// A file fit to become the segment that starts at `start`.
    pub(super) fn take_spare(
        &self,
        state: &mut State<D::File>,
        start: Position,
    ) -> Result<Spare, StoreError> {
        // A spare whose stale entries lie at the very positions the new ones will have could show one
        // of them behind a torn tail; any other stale entry names another position.
        let fit = state.spares.iter().rposition(|spare| spare.stale_start != Some(start));
        if let Some(at) = fit {
            return Ok(state.spares.remove(at));
        }
        // Nobody had time to prepare one: reserve only, prewriting would hold up the append.
        let name = format!("spare.{:08x}", state.next_spare);
        state.next_spare += 1;
        match self.reserve(&name, self.limits.segment_bytes) {
            // A full disk: it is made longer as it is written. A whole segment may be all that the ballast gave, and the
            // checkpoint that could trim the journal would find nothing.
            Err(StoreError::NoSpace) => {
                let short = self.limits.segment_bytes / SHORT_PART;
                self.reserve(&name, short.next_multiple_of(DIRECT_BYTES as u64))?;
            }
            made => made?,
        }
        Ok(Spare { name, stale_start: None })
    }

    fn reserve(&self, name: &str, bytes: u64) -> Result<(), StoreError> {
        let path = self.path(name);
        let made = self.disk.create(&path).and_then(|file| {
            file.allocate(0, bytes)?;
            file.set_len(bytes)
        });
        if made.is_err() {
            self.disk.remove(&path)?;
        }
        made
    }

    /// Nothing before `before` is needed any more. Segments that lie wholly before it are kept as
    /// spares, or removed beyond the journal's size.
    ///
    /// # Errors
    /// `Io`; the journal stays usable. `Fenced`.
    pub fn trim(&self, before: Position) -> Result<(), StoreError> {
        let _pass = self.fence.enter()?;
        let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        let (old, mut keep) = {
            let mut state = self.lock();
            let total = (self.limits.journal_bytes / self.limits.segment_bytes.max(1)).max(2) as usize;
            let mut old = Vec::new();
            while state.segments.len() > 1 && state.segments[1].header.start <= before {
                old.extend(state.segments.pop_front());
            }
            let in_use = state.segments.len() + state.spares.len();
            (old, total.saturating_sub(in_use))
        };
        let mut spares = Vec::new();
        for segment in &old {
            let path = self.path(&segment.name);
            if keep > 0 && self.has_normal_size(&path)? {
                keep -= 1;
                let mut state = self.lock();
                let name = format!("spare.{:08x}", state.next_spare);
                state.next_spare += 1;
                drop(state);
                self.disk.rename(&path, &self.path(&name))?;
                spares.push(Spare { name, stale_start: Some(segment.header.start) });
            } else {
                self.disk.remove(&path)?;
            }
        }
        if !old.is_empty() {
            // Before a spare's header is overwritten its old name must be gone for good: a crash must
            // not bring the new content back under it.
            self.disk.sync_folder(&self.folder)?;
            self.lock().spares.extend(spares);
        }
        Ok(())
    }

    pub(super) fn has_normal_size(&self, path: &str) -> Result<bool, StoreError> {
        let Some(file) = self.disk.open(path)? else { return Ok(false) };
        Ok(file.size()? == self.limits.segment_bytes)
    }

    /// Prewrites one spare segment if there are too few. Returns whether it did, so that an idle worker
    /// can call it until it returns false.
    ///
    /// # Errors
    /// `NoSpace`, `Io`; the journal stays usable. `Fenced`.
    pub fn prepare(&self) -> Result<bool, StoreError> {
        let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        let name = {
            let mut state = self.lock();
            if state.poisoned || state.spares.len() >= SPARES_WANTED {
                return Ok(false);
            }
            state.next_spare += 1;
            format!("spare.{:08x}", state.next_spare - 1)
        };
        // Writing until it is full would leave no room for others meanwhile, once a second.
        if self.disk.space()?.available < self.limits.segment_bytes + self.limits.segment_bytes / 4 {
            return Ok(false);
        }
        let making = self.path("new");
        let made = self.prewrite(&making);
        let _pass = self.fence.enter()?;
        if let Err(error) = made {
            self.disk.remove(&making)?;
            return Err(error);
        }
        self.disk.rename(&making, &self.path(&name))?;
        self.disk.sync_folder(&self.folder)?;
        self.lock().spares.push(Spare { name, stale_start: None });
        Ok(true)
    }

    fn prewrite(&self, path: &str) -> Result<(), StoreError> {
        let file = {
            let _pass = self.fence.enter()?;
            self.disk.create_direct(path)?
        };
        let zeros = vec![0; PREWRITE_BYTES + DIRECT_BYTES];
        let zeros = &zeros[zeros.as_ptr().align_offset(DIRECT_BYTES)..];
        let mut at = 0;
        while at < self.limits.segment_bytes {
            // A pass for each piece: who ends this life does not wait for a whole segment.
            let _pass = self.fence.enter()?;
            let part = (self.limits.segment_bytes - at).min(PREWRITE_BYTES as u64);
            file.write_at(&zeros[..part as usize], at)?;
            at += part;
            // Little by little, so that the appends' syncs do not queue behind a whole segment.
            if at.is_multiple_of(PRESYNC_BYTES) {
                file.sync_data()?;
            }
        }
        file.sync_data()?;
        file.drop_cache(0, self.limits.segment_bytes);
        Ok(())
    }
}
