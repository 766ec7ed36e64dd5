//! Changes of blocks: write, cut, zero, reserve.
//!
//! Absent: making and removing blocks (`large.rs`), when bytes go to the device (`flow`, `sync`).

use super::{OpenBlock, Piece, update};
use crate::data::DataFiles;
use crate::data::blocks::BLOCK_HEADER_BYTES;
use crate::data::locks::guard;
use crate::disk::{Disk, DiskFile};
use proto::FileId;
use proto::storeio::{Cut, StoreError};
use stdx::mutant;

/// What a file system of the disk gives out at once: a write is whole or absent in it when space runs out.
const PAGE_BYTES: u64 = 4096;

impl<D: Disk> DataFiles<D> {
    pub(in crate::data) fn write_large(
        &self,
        file: FileId,
        cut: Cut,
        offset: u64,
        bytes: &[u8],
    ) -> Result<u64, StoreError> {
        let mut done = 0;
        for piece in self.pieces(offset, bytes.len() as u64) {
            let part = &bytes[done as usize..(done + piece.len) as usize];
            match self.write_piece(file, cut, piece, part) {
                Ok(written) => {
                    done += written;
                    if written < piece.len {
                        break;
                    }
                }
                Err(StoreError::NoSpace) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Writes into one block. Returns the bytes written, fewer on a full disk.
    fn write_piece(&self, file: FileId, cut: Cut, piece: Piece, bytes: &[u8]) -> Result<u64, StoreError> {
        let existed = self.block(file, piece.block).is_some();
        let block = self.writable_block(file, piece.block, cut)?;
        match block.file.write_at(bytes, BLOCK_HEADER_BYTES + piece.at) {
            Ok(()) => {
                update(&mut guard(&self.central), file, piece.block, |state| {
                    state.len = state.len.max(piece.at + piece.len);
                });
                self.flow_written(file, piece);
                Ok(piece.len)
            }
            Err(StoreError::NoSpace) => {
                // What was written past the old end must not appear when the file is extended.
                if existed {
                    let len = BLOCK_HEADER_BYTES + block.len;
                    // Not synced, as the write is not: a crash may undo it and show these bytes, no others, until the next sync.
                    if !mutant!("data_refused_bytes_stay") {
                        block.file.set_len(len).map_err(|error| self.poison(error))?;
                    }
                    return self.write_inside(&block, piece, bytes);
                }
                self.retract_block(file, piece.block)?;
                Err(StoreError::NoSpace)
            }
            Err(error) => Err(self.poison(error)),
        }
    }

    /// After a write that found no space: some bytes before the block's end may be new already, and whoever is told that nothing
    /// was written must not find them. They are written again page by page, and counted, as far as there is room for them.
    fn write_inside(
        &self,
        block: &OpenBlock<D::File>,
        piece: Piece,
        bytes: &[u8],
    ) -> Result<u64, StoreError> {
        let inside = block.len.saturating_sub(piece.at).min(piece.len);
        let mut done = 0;
        while done < inside {
            let at = BLOCK_HEADER_BYTES + piece.at + done;
            let len = (PAGE_BYTES - at % PAGE_BYTES).min(inside - done);
            match block.file.write_at(&bytes[done as usize..(done + len) as usize], at) {
                Ok(()) => done += len,
                Err(StoreError::NoSpace) => break,
                Err(error) => return Err(self.poison(error)),
            }
        }
        if done == 0 { Err(StoreError::NoSpace) } else { Ok(done) }
    }

    pub(in crate::data) fn truncate_large(&self, file: FileId, cut: Cut) -> Result<(), StoreError> {
        let first = cut.size / self.limits.block_bytes;
        let blocks: Vec<u64> = match guard(&self.central).large.get(&file) {
            Some(large) => large.blocks.range(first..).map(|(block, _)| *block).collect(),
            None => return Ok(()),
        };
        for block in blocks {
            match self.open_block(file, block)? {
                Some(known) if known.seq >= cut.seq => {}
                Some(known) if self.kept(block, cut) > 0 => {
                    self.cut_block(file, block, cut, &known.file, known.len)?;
                }
                _ => self.forget_block(file, block)?,
            }
        }
        Ok(())
    }

    pub(in crate::data) fn zero_large(
        &self,
        file: FileId,
        cut: Cut,
        offset: u64,
        len: u64,
        punch: bool,
    ) -> Result<(), StoreError> {
        let size = self.limits.block_bytes;
        let blocks: Vec<u64> = {
            let central = guard(&self.central);
            let (first, end) = (offset / size, (offset + len).div_ceil(size));
            let Some(large) = central.large.get(&file) else { return Ok(()) };
            if first >= end { Vec::new() } else { large.blocks.range(first..end).map(|(b, _)| *b).collect() }
        };
        for block in blocks {
            let start = block * size;
            let from = offset.max(start) - start;
            let to = (offset + len).min(start + size) - start;
            // The block file stays even when all of it is punched: a name that may come back after a
            // crash with an equal truncation could be taken for newer than a packed content.
            let open = self.writable_block(file, block, cut)?;
            if from < open.len {
                let count = to.min(open.len) - from;
                match open.file.punch(BLOCK_HEADER_BYTES + from, count) {
                    Ok(()) => {}
                    // A disk that copies what it changes, or splits an extent: nothing was lost by it.
                    Err(StoreError::NoSpace) => return Err(StoreError::NoSpace),
                    Err(error) => return Err(self.poison(error)),
                }
            }
            if !punch {
                open.file.allocate(BLOCK_HEADER_BYTES + from, to - from)?;
            }
        }
        Ok(())
    }

    pub(in crate::data) fn allocate_large(
        &self,
        file: FileId,
        cut: Cut,
        offset: u64,
        len: u64,
    ) -> Result<(), StoreError> {
        for piece in self.pieces(offset, len) {
            let existed = self.block(file, piece.block).is_some();
            let open = self.writable_block(file, piece.block, cut)?;
            if let Err(error) = open.file.allocate(BLOCK_HEADER_BYTES + piece.at, piece.len) {
                if !existed {
                    self.retract_block(file, piece.block)?;
                }
                return Err(error);
            }
        }
        Ok(())
    }
}
