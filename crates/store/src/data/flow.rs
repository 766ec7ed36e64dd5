//! How pages of large files come into the kernel's cache and leave it: the next block is read ahead of a sequential reader,
//! complete ones are written out soon, and dropped when there are more than `data_cache_limit`, or at once
//! where the file is too large to be kept.
//!
//! Left to itself the kernel gathers gigabytes and writes them in one burst: whoever waits for the disk
//! then, the journal above all, waits for all of it; and in a memory cgroup every page that another
//! thread needs is first taken from pages that must be written before.
//!
//! Absent: durability. Nothing here counts as synced (`sync.rs`), but a failed write poisons as a sync does.

use super::DataFiles;
use super::blocks::{BLOCK_HEADER_BYTES, block_name};
use super::central::{Block, Central};
use super::handles::HandleKey;
use super::large::Piece;
use super::locks::guard;
use crate::disk::{Disk, DiskFile};
use proto::FileId;
use proto::storeio::StoreError;
use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};

/// Blocks on their way to the device at once: enough to keep it busy, few enough that a sync of the
/// journal between them does not wait for long.
const WRITING_BLOCKS: usize = 4;
/// Blocks that may wait to be written, whatever the cache limit.
const WAITING_BLOCKS_MIN: u64 = 8;
/// So much must have been read in order before the next block is read ahead; requests overtake each other by less.
const AHEAD_BYTES: u64 = 1 << 20;
/// Blocks that one step of background work starts or ends.
const STEP_BLOCKS: usize = 16;

type Key = (FileId, u64);

/// Which blocks are cached, and which are being written out. The flags of `Block` say whether it is in one.
#[derive(Debug, Default)]
pub(super) struct Flow {
    /// Blocks whose pages may be cached, oldest first.
    cached: VecDeque<Key>,
    /// Complete, or in the way: to be written out.
    waiting: VecDeque<Key>,
    /// Under way, oldest first.
    writing: VecDeque<Key>,
}

impl Flow {
    fn backlog(&self) -> usize {
        self.waiting.len() + self.writing.len()
    }
}

impl<F> Central<F> {
    fn known_block(&mut self, (file, block): Key) -> Option<&mut Block> {
        self.large.get_mut(&file)?.blocks.get_mut(&block)
    }

    fn queue_block(&mut self, key: Key) {
        if let Some(block) = self.known_block(key)
            && !block.leaving
        {
            block.leaving = true;
            self.flow.waiting.push_back(key);
        }
    }

    /// Notes that a block is cached.
    fn keep_block(&mut self, key: Key) {
        if let Some(block) = self.known_block(key)
            && !block.cached
        {
            block.cached = true;
            self.flow.cached.push_back(key);
        }
    }

    /// Takes what is to be dropped, so that no more than so many are cached.
    fn excess_blocks(&mut self, blocks_max: u64) -> Vec<Key> {
        let mut drop = Vec::new();
        for _ in 0..STEP_BLOCKS {
            if self.flow.cached.len() as u64 <= blocks_max {
                break;
            }
            let Some(oldest) = self.flow.cached.pop_front() else { break };
            match self.known_block(oldest) {
                None => {}
                Some(block) if !block.unwritten && !block.leaving => {
                    block.cached = false;
                    drop.push(oldest);
                }
                // Dirty pages cannot be dropped: written out first, it is met again.
                Some(_) => {
                    self.flow.cached.push_back(oldest);
                    self.queue_block(oldest);
                }
            }
        }
        drop
    }
}

impl<D: Disk> DataFiles<D> {
    pub(super) fn is_too_large_to_cache(&self, file: FileId) -> bool {
        let blocks = guard(&self.central).large.get(&file).map_or(0, |large| large.blocks.len() as u64);
        blocks.saturating_mul(self.limits.block_bytes) > self.limits.data_cache_max_filesize
    }

    pub(super) fn flow_read(&self, file: FileId, piece: Piece, open: &D::File) {
        if self.is_too_large_to_cache(file) {
            open.drop_cache(BLOCK_HEADER_BYTES + piece.at, piece.len);
        } else {
            self.flow_cached((file, piece.block));
        }
    }

    /// Reads ahead for whoever reads a file from front to back: the kernel does it within a block, and
    /// would begin each block anew with a few small reads.
    pub(super) fn flow_ahead(&self, file: FileId, offset: u64, len: u64) {
        let bytes = self.limits.block_bytes;
        let next = {
            let mut central = guard(&self.central);
            let Some(large) = central.large.get_mut(&file) else { return };
            // Requests of one reader overtake each other.
            let follows = offset.abs_diff(large.read_end) <= AHEAD_BYTES;
            large.read_run = if follows { large.read_run.saturating_add(len) } else { 0 };
            large.read_end = offset + len;
            let half = offset - offset % bytes + bytes / 2;
            let due = large.read_run >= AHEAD_BYTES && offset <= half && half < offset + len;
            let next = offset / bytes + 1;
            if !due || !large.blocks.contains_key(&next) {
                return;
            }
            next
        };
        // What is wrong with the next block is the concern of who reads it.
        if let Ok(open) = self.block_file(file, next) {
            open.prefetch(0, BLOCK_HEADER_BYTES + bytes);
        }
    }

    pub(super) fn flow_written(&self, file: FileId, piece: Piece) {
        let key = (file, piece.block);
        {
            let mut central = guard(&self.central);
            if let Some(block) = central.known_block(key) {
                block.unwritten = true;
            }
            if piece.at + piece.len == self.limits.block_bytes {
                central.queue_block(key);
            }
        }
        self.flow_cached(key);
    }

    fn flow_cached(&self, key: Key) {
        guard(&self.central).keep_block(key);
        self.drop_excess();
    }

    fn drop_excess(&self) {
        let excess =
            guard(&self.central).excess_blocks(self.limits.data_cache_limit / self.limits.block_bytes);
        for key in excess {
            // Best effort: one that was removed has no pages.
            if let Ok(Some(open)) = self.leaving_file(key) {
                open.drop_cache(0, BLOCK_HEADER_BYTES + self.limits.block_bytes);
            }
        }
    }

    /// A block's file without a place among the handles: nobody is going to use it soon.
    fn leaving_file(&self, (file, block): Key) -> Result<Option<Arc<D::File>>, StoreError> {
        let open = guard(&self.central).handles.get(HandleKey::Block(file, block));
        match open {
            Some(open) => Ok(Some(open)),
            None => Ok(self.disk.open(&block_name(file, block))?.map(Arc::new)),
        }
    }

    /// Blocks while much more was written than the disk has taken. Not for what must be quick.
    pub(super) fn wait_for_flow(&self) -> Result<(), StoreError> {
        let max = (self.limits.data_cache_limit / 2 / self.limits.block_bytes).max(WAITING_BLOCKS_MIN);
        while guard(&self.central).flow.backlog() as u64 > max {
            if !self.write_out_one()? {
                break;
            }
        }
        Ok(())
    }

    /// Background work: starts and ends write-outs. Whether there were any.
    pub(super) fn write_out(&self) -> Result<bool, StoreError> {
        for done in 0..STEP_BLOCKS {
            if !self.write_out_one()? {
                return Ok(done > 0);
            }
        }
        Ok(true)
    }

    fn write_out_one(&self) -> Result<bool, StoreError> {
        let (key, start) = {
            let mut central = guard(&self.central);
            let flow = &mut central.flow;
            let start = flow.writing.len() < WRITING_BLOCKS && !flow.waiting.is_empty();
            let next = if start { flow.waiting.pop_front() } else { flow.writing.pop_front() };
            let Some(key) = next else { return Ok(false) };
            // Before the start: what is written meanwhile has to be written out once more.
            if let Some(block) = central.known_block(key).filter(|_| start) {
                block.unwritten = false;
            }
            (key, start)
        };
        let open = match self.leaving_file(key) {
            Ok(Some(open)) => open,
            Ok(None) => return Ok(true),
            // Not what a write failed with: it is tried again, and nothing was lost.
            Err(error) => {
                let flow = &mut guard(&self.central).flow;
                let queue = if start { &mut flow.waiting } else { &mut flow.writing };
                queue.push_back(key);
                return Err(error);
            }
        };
        {
            let _under_way = self.writing_out.read().unwrap_or_else(PoisonError::into_inner);
            let done = if start { open.start_writing() } else { open.wait_written() };
            done.map_err(|error| self.poison(error))?;
        }
        if start {
            guard(&self.central).flow.writing.push_back(key);
        } else {
            self.written_out(key, &open);
        }
        Ok(true)
    }

    /// Closes a handle whose place another took. Of what was not synced through it a later failure would be told to nobody: the
    /// kernel forgets it with the inode, and who opens the file then hears of success. So it goes to the disk before.
    pub(super) fn retire(&self, evicted: Option<(HandleKey, Arc<D::File>)>) {
        let Some((key, open)) = evicted else { return };
        let unsynced = {
            let mut central = guard(&self.central);
            match key {
                HandleKey::Block(file, block) => {
                    central.known_block((file, block)).is_some_and(|block| block.dirty)
                }
                HandleKey::Segment(id) => central.segments.get(&id).is_some_and(|s| s.synced < s.end),
            }
        };
        if unsynced {
            let _under_way = self.writing_out.read().unwrap_or_else(PoisonError::into_inner);
            if let Err(error) = open.start_writing().and_then(|()| open.wait_written()) {
                // Whoever changes or syncs data from here on is told.
                let _poisoned = self.poison(error);
            }
        }
    }

    fn written_out(&self, key: Key, open: &D::File) {
        {
            let mut central = guard(&self.central);
            let Some(block) = central.known_block(key) else { return };
            block.leaving = false;
            if block.unwritten {
                return;
            }
        }
        if self.is_too_large_to_cache(key.0) {
            open.drop_cache(0, BLOCK_HEADER_BYTES + self.limits.block_bytes);
        }
        self.drop_excess();
    }
}
