//! Contents that are in no segment yet: set, changed in place, forgotten, with what they take in memory and will take in a
//! segment.
//!
//! Absent: flushing them (`queue`).

use super::{BUFFER_OVERHEAD, Buffer, Central};
use crate::data::record::{Seqs, record_bytes};
use proto::FileId;
use proto::storeio::Cut;
use std::sync::Arc;
use stdx::mutant;

impl<F> Central<F> {
    /// Sets a file's content.
    pub(in crate::data) fn put_buffer(&mut self, file: FileId, data: Vec<u8>, seqs: Seqs, journaled: bool) {
        let old = self.drop_buffer(file);
        let journaled = journaled || old.as_ref().is_some_and(|old| old.journaled);
        let (stamp, queued) = old.map_or((0, false), |old| (old.stamp, old.queued));
        self.enqueue(file, Buffer { data: Arc::new(data), seqs, stamp, queued, journaled });
    }

    /// Changes a buffered content (given with its sequences) under a new write sequence. Whether there
    /// was one.
    pub(in crate::data) fn edit_buffer(
        &mut self,
        file: FileId,
        truncate: u32,
        edit: impl FnOnce(Seqs, &mut Vec<u8>),
    ) -> bool {
        let write = self.next_write_seq;
        let changed = self.change_buffer(file, |buffer| {
            edit(buffer.seqs, Arc::make_mut(&mut buffer.data));
            buffer.seqs = Seqs { truncate: buffer.seqs.truncate.max(truncate), write };
        });
        self.next_write_seq += u64::from(changed);
        changed
    }

    /// Cuts a buffered content. It keeps its write sequence: a replay cuts what it finds and then redoes a content of the
    /// same cut that the life before wrote, under a lower write sequence than any of this life; the redo must win. Whether
    /// there was a buffer.
    pub(in crate::data) fn cut_buffer(&mut self, file: FileId, cut: Cut) -> bool {
        self.change_buffer(file, |buffer| {
            Arc::make_mut(&mut buffer.data).truncate(cut.size as usize);
            buffer.seqs.truncate = buffer.seqs.truncate.max(cut.seq);
        })
    }

    /// What is queued stays where it is.
    fn change_buffer(&mut self, file: FileId, change: impl FnOnce(&mut Buffer)) -> bool {
        let Some(buffer) = self.buffers.get_mut(&file) else { return false };
        let (before, queued) = (buffer.data.len(), buffer.queued);
        change(buffer);
        let after = buffer.data.len();
        self.buffered_bytes = self.buffered_bytes + after as u64 - before as u64;
        if queued {
            self.queued_bytes = self.queued_bytes + record_bytes(after as u32) - record_bytes(before as u32);
        }
        if (!queued || mutant!("data_edit_moves_back"))
            && let Some(buffer) = self.drop_buffer(file)
        {
            self.enqueue(file, buffer);
        }
        true
    }

    /// Marks a buffered content as journaled and returns it.
    pub(in crate::data) fn journal_buffer(&mut self, file: FileId) -> Option<(Seqs, Arc<Vec<u8>>)> {
        let buffer = self.buffers.get_mut(&file)?;
        buffer.journaled = true;
        Some((buffer.seqs, Arc::clone(&buffer.data)))
    }

    /// Puts a buffer at its place if it was queued, else at the end: what a flush in flight took of it is safe, or comes
    /// back by `untake`.
    pub(super) fn enqueue(&mut self, file: FileId, mut buffer: Buffer) {
        if !buffer.queued || mutant!("data_edit_moves_back") {
            self.next_stamp += 1;
            buffer.stamp = self.next_stamp;
        }
        buffer.queued = true;
        self.queue.insert(buffer.stamp, file);
        self.buffered_bytes += buffer.data.len() as u64 + BUFFER_OVERHEAD;
        self.queued_bytes += record_bytes(buffer.data.len() as u32);
        self.buffers.insert(file, buffer);
    }

    /// Forgets a buffered content; what a flush in flight writes of it is buried when it lands.
    pub(in crate::data) fn drop_buffer(&mut self, file: FileId) -> Option<Buffer> {
        let buffer = self.buffers.remove(&file)?;
        self.buffered_bytes -= buffer.data.len() as u64 + BUFFER_OVERHEAD;
        if buffer.queued {
            self.queue.remove(&buffer.stamp);
            self.queued_bytes -= record_bytes(buffer.data.len() as u32);
        }
        Some(buffer)
    }
}
