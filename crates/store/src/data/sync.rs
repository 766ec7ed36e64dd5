//! Durability: one file, or everything.
//!
//! Absent: a sync of one small file. Its content goes to the caller, who journals it; the record
//! reaches a segment, and the segment the disk, before a later `SyncAll` returns.

use super::blocks::{
    BLOCK_HEADER_BYTES, HEADER_USED, block_name, encode_copy, folder_name, folder_of, rewrite_order,
};
use super::central::{Block, Form};
use super::checkpoint::Checkpointer;
use super::handles::HandleKey;
use super::locks::guard;
use super::{DataFiles, damaged};
use crate::disk::{Disk, DiskFile};
use proto::FileId;
use proto::storeio::{Cut, DataDone, StoreError};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use stdx::mutant;

/// Blocks synced together; as many files are open at once beside the handles that are kept.
const SYNC_BLOCKS: usize = 128;

impl<D: Disk> DataFiles<D> {
    pub(super) fn sync_file(&self, file: FileId) -> Result<DataDone, StoreError> {
        let _guard = self.locks.lock(file);
        let form = {
            let mut central = guard(&self.central);
            if let Some((seqs, data)) = central.journal_buffer(file) {
                drop(central);
                let data = Arc::unwrap_or_clone(data);
                return Ok(DataDone::Redo { truncate_seq: seqs.truncate, write_seq: seqs.write, data });
            }
            central.form(file)
        };
        match form {
            Form::Absent | Form::Buffered => Ok(DataDone::Done),
            Form::Large => self.sync_blocks(file).map(|()| DataDone::Done),
            Form::Packed(entry) => {
                let segment = guard(&self.central).segments.get(&entry.place.segment).copied();
                if segment.is_some_and(|segment| u64::from(entry.place.offset) < segment.synced) {
                    return Ok(DataDone::Done);
                }
                // Cheaper than syncing a whole segment, and just as durable.
                let data = self.small_content(file, Cut::default())?.into_vec();
                let seqs = entry.seqs;
                Ok(DataDone::Redo { truncate_seq: seqs.truncate, write_seq: seqs.write, data })
            }
        }
    }

    /// Makes a large file's blocks durable. The caller holds the file's mutex.
    ///
    /// The file stays in `dirty_large` until its blocks and its folder are synced: a `SyncAll` that begins meanwhile must
    /// find it there and wait for its lock, or it would answer while the blocks are volatile.
    fn sync_blocks(&self, file: FileId) -> Result<(), StoreError> {
        // A sync that failed before the lock was had must not be tried again: it would succeed.
        self.check_poison()?;
        let (blocks, folder_dirty) = {
            let mut central = guard(&self.central);
            let Some(large) = central.large.get(&file) else {
                central.dirty_large.remove(&file);
                return Ok(());
            };
            let dirty = large.blocks.iter().filter(|(_, block)| block.dirty || block.inherited);
            let dirty: Vec<(u64, Block)> = dirty.map(|(number, block)| (*number, *block)).collect();
            (dirty, large.folder_dirty)
        };
        for part in blocks.chunks(SYNC_BLOCKS) {
            self.sync_part(file, part).map_err(|error| self.poison_if_opened(error))?;
        }
        if folder_dirty && !mutant!("data_skip_folder_sync") {
            let folder = folder_name(folder_of(file));
            self.disk.sync_folder(&folder).map_err(|error| self.poison_if_opened(error))?;
        }
        self.check_write_outs()?;
        let mut central = guard(&self.central);
        central.dirty_large.remove(&file);
        let Some(large) = central.large.get_mut(&file) else { return Ok(()) };
        large.folder_dirty = false;
        for (number, _) in &blocks {
            if let Some(block) = large.blocks.get_mut(number) {
                (block.dirty, block.inherited) = (false, false);
            }
        }
        Ok(())
    }

    fn sync_part(&self, file: FileId, blocks: &[(u64, Block)]) -> Result<(), StoreError> {
        let mut files = Vec::with_capacity(blocks.len());
        for (number, _) in blocks {
            let cached = guard(&self.central).handles.get(HandleKey::Block(file, *number));
            files.push(match cached {
                Some(open) => open,
                // An error of a write-back since it was closed is reported to the next who opens it.
                None => {
                    let name = block_name(file, *number);
                    Arc::new(self.disk.open(&name)?.ok_or_else(|| damaged(&name, 0, "block is missing"))?)
                }
            });
        }
        if !mutant!("data_skip_block_sync") {
            self.disk.sync_files(&files)?;
        }
        let too_large = self.is_too_large_to_cache(file);
        for ((number, block), open) in blocks.iter().zip(&files) {
            if let (true, Some(seq)) = (block.header_stale, block.seq) {
                self.sync_header(file, *number, seq, open)?;
            }
            if too_large {
                open.drop_cache(0, BLOCK_HEADER_BYTES + self.limits.block_bytes);
            }
        }
        Ok(())
    }

    /// Writes the truncation that a synced block has seen into its header.
    fn sync_header(&self, file: FileId, number: u64, seq: u32, open: &D::File) -> Result<(), StoreError> {
        let mut header = [0; HEADER_USED];
        open.read_at(&mut header, 0)?;
        for offset in rewrite_order(&header, file, number) {
            open.write_at(&encode_copy(file, number, seq), offset)?;
            open.sync_data()?;
        }
        let mut central = guard(&self.central);
        if let Some(block) = central.large.get_mut(&file).and_then(|large| large.blocks.get_mut(&number)) {
            block.header_stale = false;
        }
        Ok(())
    }

    /// Makes everything durable that was written before the call.
    ///
    /// Those who wait for the one under way are answered by the next: it begins after all of them came, so it finds what they
    /// wrote. A thousand clients that sync in the same second cost two syncs.
    pub(super) fn sync_all(&self) -> Result<(), StoreError> {
        self.sync_after(self.syncs_begun.load(Ordering::SeqCst))
    }

    /// Returns when a sync has succeeded before which so many others had begun: those may have looked for what to sync before
    /// the caller's last write.
    pub(super) fn sync_after(&self, begun: u64) -> Result<(), StoreError> {
        let mut checkpointer = guard(&self.checkpointer);
        if checkpointer.synced > begun {
            return self.check_poison();
        }
        let number = self.syncs_begun.fetch_add(1, Ordering::SeqCst) + 1;
        self.sync_everything(&mut checkpointer)?;
        checkpointer.synced = number;
        Ok(())
    }

    fn sync_everything(&self, checkpointer: &mut Checkpointer) -> Result<(), StoreError> {
        self.flush_all()?;
        let large = self.files_to_sync()?;
        for file in large {
            let _guard = self.locks.lock(file);
            self.sync_blocks(file)?;
        }
        let mut folders = std::mem::take(&mut guard(&self.central).dirty_folders);
        while let Some(folder) = folders.first().copied() {
            if let Err(error) = self.disk.sync_folder(&folder_name(folder)) {
                guard(&self.central).dirty_folders.append(&mut folders);
                return Err(self.poison_if_opened(error));
            }
            folders.remove(&folder);
        }
        self.publish(checkpointer)?;
        // What another thread's failed write took from the queue looks flushed.
        self.check_poison()
    }

    /// Large files that may not be durable. In the first call after opening these are all that were
    /// found, unless the disk can sync everything at once.
    fn files_to_sync(&self) -> Result<Vec<FileId>, StoreError> {
        if !guard(&self.central).inherited {
            return Ok(guard(&self.central).dirty_large.iter().copied().collect());
        }
        let synced = self.disk.sync_disk().map_err(|error| self.poison_if_opened(error))?;
        let mut central = guard(&self.central);
        central.inherited = false;
        if !synced {
            return Ok(central.large.keys().copied().collect());
        }
        let blocks = central.large.values_mut().flat_map(|large| large.blocks.values_mut());
        blocks.for_each(|block| block.inherited = false);
        Ok(central.dirty_large.iter().copied().collect())
    }

    /// Makes all segments durable up to what was written when they were looked at.
    ///
    /// None counts as synced before the folder is: a `Sync` of a file in it would answer without a redo, and a power cut
    /// could take the segment's name away.
    pub(super) fn sync_segments(&self) -> Result<(), StoreError> {
        // As for blocks: a sync that failed while this one waited for the checkpointer is not tried again.
        self.check_poison()?;
        let dirty: Vec<(u32, u64)> = guard(&self.central)
            .segments
            .iter()
            .filter(|(_, segment)| segment.synced < segment.end)
            .map(|(id, segment)| (*id, segment.end))
            .collect();
        for (id, _) in &dirty {
            if !mutant!("data_skip_segment_sync") {
                let name = super::record::segment_name(*id);
                let open = self.segment_file(*id)?.ok_or_else(|| damaged(&name, 0, "segment is missing"));
                open.and_then(|open| open.sync_data()).map_err(|error| self.poison(error))?;
            }
        }
        // Taken only now: from here on an error poisons, unless the folder was not even opened.
        if std::mem::take(&mut guard(&self.central).data_folder_dirty)
            && let Err(error) = self.disk.sync_folder("data")
        {
            guard(&self.central).data_folder_dirty = true;
            return Err(self.poison_if_opened(error));
        }
        // A segment's handle that was closed meanwhile may have been told an error that this sync was not.
        self.check_write_outs()?;
        let mut central = guard(&self.central);
        for (id, end) in dirty {
            if let Some(segment) = central.segments.get_mut(&id) {
                segment.synced = segment.synced.max(end);
            }
        }
        Ok(())
    }
}
