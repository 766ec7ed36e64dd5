//! The way from a packed file to one in block form, which a crash may interrupt anywhere.
//!
//! The caller holds the file's mutex. Absent: what is done with blocks that are there (`large.rs`).

use super::DataFiles;
use super::blocks::{BLOCK_HEADER_BYTES, HEADER_USED, block_name, encode_header, folder_name, folder_of};
use super::central::{Block, Form};
use super::handles::HandleKey;
use super::locks::guard;
use crate::disk::{Disk, DiskFile};
use proto::FileId;
use proto::storeio::{Cut, StoreError};
use std::sync::Arc;
use stdx::mutant;

impl<D: Disk> DataFiles<D> {
    /// Turns a file that is not in block form into one that is: its content becomes block 0.
    ///
    /// A content that may be durable (in a segment or in the journal) must not be lost to a crash, so
    /// block 0 appears under its name only when it is synced, and the record is buried after that:
    /// 1. crash before the rename: the record is there, the block is a `.tmp` that is removed;
    /// 2. crash after it: both may be there, the block has an equal or higher truncation and wins.
    pub(super) fn grow_to_blocks(&self, file: FileId, cut: Cut) -> Result<(), StoreError> {
        let durable = {
            let central = guard(&self.central);
            match central.form(file) {
                Form::Large | Form::Absent => return Ok(()),
                Form::Packed(_) => true,
                Form::Buffered => !central.is_only_buffered(file),
            }
        };
        let content = self.small_content(file, cut)?;
        let content = content.bytes();
        let held = guard(&self.central).packed_seqs(file).map_or(0, |seqs| seqs.truncate);
        let seq = held.max(cut.seq);
        if durable && !mutant!("data_grow_unsynced") {
            self.create_durable_block(file, seq, content)?;
        } else if !content.is_empty() {
            self.create_volatile_block(file, seq, content)?;
        }
        self.bury_packed(file);
        Ok(())
    }

    /// Makes block 0 of a content that is in its buffer only, without a sync, in place of the buffer.
    ///
    /// While the block is written a flush may put the content into a segment, and a `SyncAll` may make it durable and promise
    /// it. So the block gets its header, without which it counts for nothing after a crash, only when that is ruled out: then
    /// buffer and block change places at once, and a `SyncAll` meets either the one or the other.
    fn create_volatile_block(&self, file: FileId, seq: u32, content: &[u8]) -> Result<(), StoreError> {
        let name = block_name(file, 0);
        let open = match self.create_blank_block(&name, content) {
            Ok(open) => Arc::new(open),
            Err(error) => {
                self.remove_blank_block(file)?;
                return Err(if error == StoreError::NoSpace { error } else { self.poison_if_opened(error) });
            }
        };
        let swapped = {
            let mut central = guard(&self.central);
            let swapped = central.is_only_buffered(file) || mutant!("data_grow_unsynced");
            if swapped {
                central.drop_buffer(file);
                let len = content.len() as u64;
                central.add_block(file, 0, Block { seq: Some(seq), len, dirty: true, ..Block::default() });
            }
            swapped
        };
        if !swapped {
            drop(open);
            self.remove_blank_block(file)?;
            return self.create_durable_block(file, seq, content);
        }
        // Its page is there since the block is.
        open.write_at(&encode_header(file, 0, seq), 0).map_err(|error| self.poison(error))?;
        self.keep_handle(HandleKey::Block(file, 0), open);
        Ok(())
    }

    fn create_blank_block(&self, name: &str, content: &[u8]) -> Result<D::File, StoreError> {
        let open = self.disk.create(name)?;
        if open.size()? > 0 {
            open.set_len(0)?;
        }
        // Takes the header's page: once the buffer is gone there is no way back from a full disk.
        open.write_at(&[0; HEADER_USED], 0)?;
        open.write_at(content, BLOCK_HEADER_BYTES)?;
        Ok(open)
    }

    /// A blank block that comes back after a crash does no harm, but nobody would ever remove it.
    fn remove_blank_block(&self, file: FileId) -> Result<(), StoreError> {
        self.disk.remove(&block_name(file, 0)).map_err(|error| self.poison(error))?;
        guard(&self.central).dirty_folders.insert(folder_of(file));
        Ok(())
    }

    fn create_durable_block(&self, file: FileId, seq: u32, content: &[u8]) -> Result<(), StoreError> {
        let name = block_name(file, 0);
        let temporary = format!("{name}.tmp");
        let made = (|| {
            let open = self.disk.create(&temporary)?;
            open.set_len(0)?;
            open.write_at(&encode_header(file, 0, seq), 0)?;
            open.write_at(content, BLOCK_HEADER_BYTES)?;
            Ok(open)
        })();
        let open = match made {
            Ok(open) => open,
            Err(StoreError::NoSpace) => {
                self.disk.remove(&temporary)?;
                return Err(StoreError::NoSpace);
            }
            Err(error) => return Err(self.poison_if_opened(error)),
        };
        let folder = folder_name(folder_of(file));
        let placed = open
            .sync_data()
            .and_then(|()| self.disk.rename(&temporary, &name))
            .and_then(|()| self.disk.sync_folder(&folder));
        placed.map_err(|error| self.poison(error))?;
        let state = Block { seq: Some(seq), len: content.len() as u64, ..Block::default() };
        guard(&self.central).large.entry(file).or_default().blocks.insert(0, state);
        Ok(())
    }
}
