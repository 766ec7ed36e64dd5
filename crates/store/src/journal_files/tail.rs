//! Appending bytes to a file that is written in whole blocks: the block that is not full yet is kept and written again,
//! longer, with the next bytes. What it held is written unchanged, so a torn write of it loses nothing that was durable.
//!
//! Absent: where segments begin and end.

use crate::disk::{DIRECT_BYTES, DiskFile};
use proto::storeio::StoreError;

/// Memory kept between appends.
const KEEP_BYTES: usize = 2 << 20;

/// The unfinished block at the end of a file, and memory to write from.
#[derive(Default)]
pub(super) struct Tail {
    memory: Vec<u8>,
    /// The bytes of the unfinished block: less than a block, empty where one begins.
    block: Vec<u8>,
}

impl Tail {
    /// The next bytes begin a block.
    pub(super) fn clear(&mut self) {
        self.block.clear();
    }

    /// Writes `bytes` at `offset`, where the bytes before them ended, and zeros from there to the end of the block.
    ///
    /// # Errors
    /// Those of the file; nothing counts as written then, and the same may be tried again.
    pub(super) fn append<F: DiskFile>(
        &mut self,
        file: &F,
        bytes: &[u8],
        offset: u64,
    ) -> Result<(), StoreError> {
        let len = self.block.len() + bytes.len();
        let whole = len.next_multiple_of(DIRECT_BYTES);
        // A vector begins anywhere: it is longer by a block, and the write begins at the first boundary in it.
        self.memory.resize(self.memory.len().max(whole + DIRECT_BYTES), 0);
        let skip = self.memory.as_ptr().align_offset(DIRECT_BYTES);
        let image = &mut self.memory[skip..skip + whole];
        image[..self.block.len()].copy_from_slice(&self.block);
        image[self.block.len()..len].copy_from_slice(bytes);
        image[len..].fill(0);
        file.write_at(image, offset - self.block.len() as u64)?;
        self.block.clear();
        self.block.extend_from_slice(&image[len / DIRECT_BYTES * DIRECT_BYTES..len]);
        if self.memory.len() > KEEP_BYTES {
            self.memory.truncate(KEEP_BYTES);
            self.memory.shrink_to_fit();
        }
        Ok(())
    }
}
