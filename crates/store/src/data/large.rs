//! Files in block form: their blocks, reading, seeking.
//!
//! The caller holds the file's mutex. Absent: changes (`write`), syncing (`sync`), how a file gets blocks (`grow`).

mod write;

use super::blocks::{
    BLOCK_HEADER_BYTES, BlockHeader, HEADER_USED, block_name, decode_header, encode_header, folder_name,
    folder_of,
};
use super::central::{Block, Central};
use super::handles::HandleKey;
use super::locks::guard;
use super::{DataFiles, damaged};
use crate::disk::{Disk, DiskFile};
use proto::FileId;
use proto::storeio::{Cut, StoreError};
use std::sync::Arc;

/// The part of a file range that lies in one block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) block: u64,
    /// Offset in the block's data.
    pub(super) at: u64,
    pub(super) len: u64,
}

/// A block that exists, ready for use.
pub(super) struct OpenBlock<F> {
    pub(super) file: Arc<F>,
    /// Bytes of data that count.
    pub(super) len: u64,
}

/// A block whose header was read.
struct KnownBlock<F> {
    file: Arc<F>,
    /// The truncation it has seen.
    seq: u32,
    /// Bytes of its data.
    len: u64,
}

fn update<F>(central: &mut Central<F>, file: FileId, block: u64, change: impl FnOnce(&mut Block)) {
    if let Some(block) = central.large.get_mut(&file).and_then(|large| large.blocks.get_mut(&block)) {
        change(block);
    }
}

impl<D: Disk> DataFiles<D> {
    /// Splits a range at block boundaries.
    pub(super) fn pieces(&self, offset: u64, len: u64) -> impl Iterator<Item = Piece> + use<D> {
        let (size, end) = (self.limits.block_bytes, offset + len);
        let mut next = offset;
        std::iter::from_fn(move || {
            let (block, at) = (next / size, next % size);
            let len = (size - at).min(end - next);
            next += len;
            (len > 0).then_some(Piece { block, at, len })
        })
    }

    /// Bytes of a block that a cut leaves.
    fn kept(&self, block: u64, cut: Cut) -> u64 {
        cut.size.saturating_sub(block.saturating_mul(self.limits.block_bytes)).min(self.limits.block_bytes)
    }

    fn block(&self, file: FileId, block: u64) -> Option<Block> {
        guard(&self.central).large.get(&file)?.blocks.get(&block).copied()
    }

    pub(super) fn block_file(&self, file: FileId, block: u64) -> Result<Arc<D::File>, StoreError> {
        let key = HandleKey::Block(file, block);
        if let Some(open) = guard(&self.central).handles.get(key) {
            return Ok(open);
        }
        let name = block_name(file, block);
        let Some(open) = self.disk.open(&name)? else { return Err(damaged(&name, 0, "block is missing")) };
        let open = Arc::new(open);
        self.keep_handle(key, Arc::clone(&open));
        Ok(open)
    }

    pub(super) fn keep_handle(&self, key: HandleKey, file: Arc<D::File>) {
        let evicted = guard(&self.central).handles.put(key, file);
        self.retire(evicted);
    }

    /// Opens a block and makes sure that its header was read; `None` when there is none or it is blank.
    fn open_block(&self, file: FileId, block: u64) -> Result<Option<KnownBlock<D::File>>, StoreError> {
        let Some(state) = self.block(file, block) else { return Ok(None) };
        let open = self.block_file(file, block)?;
        if let Some(seq) = state.seq {
            return Ok(Some(KnownBlock { file: open, seq, len: state.len }));
        }
        let mut header = [0; HEADER_USED];
        open.read_at(&mut header, 0)?;
        match decode_header(&header, file, block) {
            BlockHeader::Blank => Ok(None),
            BlockHeader::Wrong => Err(damaged(&block_name(file, block), 0, "checksum mismatch")),
            BlockHeader::Valid { truncate_seq } => {
                let len = open.size()?.saturating_sub(BLOCK_HEADER_BYTES);
                update(&mut guard(&self.central), file, block, |state| {
                    (state.seq, state.len) = (Some(truncate_seq), len);
                });
                Ok(Some(KnownBlock { file: open, seq: truncate_seq, len }))
            }
        }
    }

    /// A block for reading under a cut; `None` reads as zeros.
    pub(super) fn readable_block(
        &self,
        file: FileId,
        block: u64,
        cut: Cut,
    ) -> Result<Option<OpenBlock<D::File>>, StoreError> {
        let Some(known) = self.open_block(file, block)? else { return Ok(None) };
        let len = if known.seq < cut.seq { known.len.min(self.kept(block, cut)) } else { known.len };
        Ok(Some(OpenBlock { file: known.file, len }))
    }

    /// A block for writing: made if absent, cut if it has not seen the cut.
    pub(super) fn writable_block(
        &self,
        file: FileId,
        block: u64,
        cut: Cut,
    ) -> Result<OpenBlock<D::File>, StoreError> {
        let open = match self.open_block(file, block)? {
            None => return self.create_block(file, block, cut.seq),
            Some(known) if known.seq < cut.seq => {
                let len = self.cut_block(file, block, cut, &known.file, known.len)?;
                OpenBlock { file: known.file, len }
            }
            Some(known) => OpenBlock { file: known.file, len: known.len },
        };
        self.mark_dirty(file, block);
        Ok(open)
    }

    fn mark_dirty(&self, file: FileId, block: u64) {
        let mut central = guard(&self.central);
        central.dirty_large.insert(file);
        update(&mut central, file, block, |state| state.dirty = true);
    }

    /// Drops what the cut drops of one block; returns the bytes left.
    fn cut_block(
        &self,
        file: FileId,
        block: u64,
        cut: Cut,
        open: &D::File,
        len: u64,
    ) -> Result<u64, StoreError> {
        let kept = self.kept(block, cut);
        if kept < len {
            open.set_len(BLOCK_HEADER_BYTES + kept).map_err(|error| self.poison(error))?;
        }
        let mut central = guard(&self.central);
        central.dirty_large.insert(file);
        update(&mut central, file, block, |state| {
            state.seq = Some(cut.seq);
            state.len = len.min(kept);
            // A cut behind the block changes nothing in it, so forgetting it does no harm.
            if kept < self.limits.block_bytes {
                (state.dirty, state.header_stale) = (true, true);
            }
        });
        Ok(len.min(kept))
    }

    fn create_block(&self, file: FileId, block: u64, seq: u32) -> Result<OpenBlock<D::File>, StoreError> {
        let name = block_name(file, block);
        let open = self.disk.create(&name)?;
        let made = (|| {
            // A blank one: left by a crash before it was synced.
            if open.size()? > 0 {
                open.set_len(0)?;
            }
            open.write_at(&encode_header(file, block, seq), 0)
        })();
        let open = Arc::new(open);
        let mut central = guard(&self.central);
        match made {
            Ok(()) => {
                central.add_block(file, block, Block { seq: Some(seq), dirty: true, ..Block::default() });
                drop(central);
                self.keep_handle(HandleKey::Block(file, block), Arc::clone(&open));
                Ok(OpenBlock { file: open, len: 0 })
            }
            Err(error) => {
                drop(central);
                self.retract_block(file, block)?;
                Err(if error == StoreError::NoSpace { error } else { self.poison(error) })
            }
        }
    }

    /// Unlinks a block file and forgets it.
    fn forget_block(&self, file: FileId, block: u64) -> Result<(), StoreError> {
        let mut central = guard(&self.central);
        let handle = central.handles.remove(HandleKey::Block(file, block));
        let mut empty = false;
        if let Some(large) = central.large.get_mut(&file) {
            large.blocks.remove(&block);
            large.folder_dirty = true;
            empty = large.blocks.is_empty();
        }
        if empty {
            central.large.remove(&file);
            central.dirty_large.remove(&file);
        } else if central.large.contains_key(&file) {
            central.dirty_large.insert(file);
        }
        drop(central);
        drop(handle);
        self.disk.remove(&block_name(file, block)).map_err(|error| self.poison(error))?;
        // Noted after the unlink: a `SyncAll` that took the note before it would leave none for the next.
        guard(&self.central).dirty_folders.insert(folder_of(file));
        Ok(())
    }

    /// Takes back a block that was just made. Where it was the file's only one, the file may go on in
    /// packed form under the same truncation: the name must not come back after a crash.
    fn retract_block(&self, file: FileId, block: u64) -> Result<(), StoreError> {
        self.forget_block(file, block)?;
        if guard(&self.central).large.contains_key(&file) {
            return Ok(());
        }
        let folder = folder_name(folder_of(file));
        self.disk.sync_folder(&folder).map_err(|error| self.poison(error))
    }

    /// Unlinks the blocks that `which` chooses.
    pub(super) fn unlink_blocks(&self, file: FileId, which: impl Fn(u64) -> bool) -> Result<(), StoreError> {
        let blocks: Vec<u64> = match guard(&self.central).large.get(&file) {
            Some(large) => large.blocks.keys().copied().filter(|block| which(*block)).collect(),
            None => return Ok(()),
        };
        blocks.into_iter().try_for_each(|block| self.forget_block(file, block))
    }

    /// Whether some block has seen truncation `seq` or a later one.
    pub(super) fn has_blocks_since(&self, file: FileId, seq: u32) -> Result<bool, StoreError> {
        let blocks: Vec<u64> = match guard(&self.central).large.get(&file) {
            Some(large) => large.blocks.keys().copied().collect(),
            None => return Ok(false),
        };
        for block in blocks {
            if self.open_block(file, block)?.is_some_and(|known| known.seq >= seq) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(super) fn read_large(
        &self,
        file: FileId,
        cut: Cut,
        offset: u64,
        out: &mut [u8],
    ) -> Result<(), StoreError> {
        self.flow_ahead(file, offset, out.len() as u64);
        let mut rest = out;
        for piece in self.pieces(offset, rest.len() as u64) {
            let (part, tail) = std::mem::take(&mut rest).split_at_mut(piece.len as usize);
            rest = tail;
            let mut done = 0;
            if let Some(block) = self.readable_block(file, piece.block, cut)? {
                let want = block.len.saturating_sub(piece.at).min(piece.len) as usize;
                if want > 0 {
                    done = block.file.read_at(&mut part[..want], BLOCK_HEADER_BYTES + piece.at)?;
                    self.flow_read(file, piece, &block.file);
                }
            }
            part[done..].fill(0);
        }
        Ok(())
    }

    /// The first data or hole at or after `offset`; `None` when there is none in the blocks.
    pub(super) fn seek_large(
        &self,
        file: FileId,
        cut: Cut,
        offset: u64,
        size: u64,
        hole: bool,
    ) -> Result<Option<u64>, StoreError> {
        let bytes = self.limits.block_bytes;
        let mut at = offset;
        while at < size {
            let block = at / bytes;
            let next = {
                let central = guard(&self.central);
                let Some(large) = central.large.get(&file) else { return Ok(hole.then_some(at)) };
                large.blocks.range(block..).next().map(|(block, _)| *block)
            };
            match next {
                None => return Ok(hole.then_some(at)),
                Some(next) if next > block && hole => return Ok(Some(at)),
                Some(next) => at = at.max(next * bytes),
            }
            let block = at / bytes;
            if let Some(found) = self.seek_block(file, cut, block, at % bytes, hole)? {
                return Ok(Some(block * bytes + found));
            }
            at = (block + 1) * bytes;
        }
        Ok(None)
    }

    fn seek_block(
        &self,
        file: FileId,
        cut: Cut,
        block: u64,
        at: u64,
        hole: bool,
    ) -> Result<Option<u64>, StoreError> {
        let open = self.readable_block(file, block, cut)?;
        let Some(open) = open.filter(|open| at < open.len) else { return Ok(hole.then_some(at)) };
        let found = open.file.seek(BLOCK_HEADER_BYTES + at, hole)?;
        let found = found.map(|found| found.saturating_sub(BLOCK_HEADER_BYTES).max(at));
        let inside = found.filter(|found| *found < open.len);
        // The end of the block's data is a hole, unless the block is full: the next one decides.
        let tail = (hole && open.len < self.limits.block_bytes).then_some(open.len);
        Ok(inside.or(tail))
    }
}
