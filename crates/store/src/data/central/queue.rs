//! What waits to be written into segments, oldest first: contents of small files, and tombstones.
//!
//! Absent: the writing (`segments.rs`), whether there is room (`central.rs`).

use super::{Buffer, Central, TOMBSTONE_OVERHEAD, Tombstone};
use crate::data::index::{Entry, Place};
use crate::data::record::{RECORD_HEADER_BYTES, Seqs, record_bytes};
use proto::FileId;
use std::sync::Arc;

/// One record of a flush.
#[derive(Debug)]
pub(in crate::data) struct Item {
    pub(in crate::data) file: FileId,
    pub(in crate::data) seqs: Seqs,
    /// `None`: a tombstone.
    pub(in crate::data) body: Option<Arc<Vec<u8>>>,
    pub(in crate::data) offset: u32,
    /// Its place in the queue of buffers; 0 for a tombstone.
    stamp: u64,
}

impl Item {
    fn len(&self) -> u32 {
        self.body.as_ref().map_or(0, |body| body.len() as u32)
    }
}

/// What there is to flush.
#[derive(Debug)]
pub(in crate::data) enum Batch {
    Nothing,
    /// The next record does not fit into this segment.
    Full,
    Items(Vec<Item>),
}

impl<F> Central<F> {
    pub(in crate::data) fn nothing_queued(&self) -> bool {
        self.queue.is_empty() && self.tombstones.is_empty()
    }

    /// What has been queued so far, to be compared with `flushed_past`.
    pub(in crate::data) const fn queue_mark(&self) -> (u64, u64) {
        (self.next_stamp, self.tombstones_added)
    }

    /// The mark of the last call.
    pub(in crate::data) const fn take_aged(&mut self) -> (u64, u64) {
        let now = self.queue_mark();
        std::mem::replace(&mut self.aged, now)
    }

    /// Whether everything queued before the mark was taken by a flush.
    pub(in crate::data) fn flushed_past(&self, mark: (u64, u64)) -> bool {
        let first = self.queue.first_key_value().map_or(u64::MAX, |(stamp, _)| *stamp);
        first > mark.0 && self.tombstones_added - self.tombstones.len() as u64 >= mark.1
    }

    /// Takes the oldest records for a flush, at most `batch` bytes of them into `room` bytes from
    /// `offset` on. Tombstones go first: they are short and let go of space.
    pub(in crate::data) fn take_batch(&mut self, offset: u64, room: u64, batch: u64) -> Batch {
        let mut items = Vec::new();
        let mut taken = 0;
        while taken + RECORD_HEADER_BYTES <= room && taken < batch {
            let Some(tombstone) = self.tombstones.pop_front() else { break };
            self.buffered_bytes -= TOMBSTONE_OVERHEAD;
            self.queued_bytes -= RECORD_HEADER_BYTES;
            let Tombstone { file, seqs } = tombstone;
            items.push(Item { file, seqs, body: None, offset: (offset + taken) as u32, stamp: 0 });
            taken += RECORD_HEADER_BYTES;
        }
        while taken < batch {
            let Some((&stamp, &file)) = self.queue.first_key_value() else { break };
            let Some(buffer) = self.buffers.get_mut(&file) else { break };
            let bytes = record_bytes(buffer.data.len() as u32);
            if taken + bytes > room {
                break;
            }
            self.queue.remove(&stamp);
            self.queued_bytes -= bytes;
            buffer.queued = false;
            let body = Some(Arc::clone(&buffer.data));
            items.push(Item { file, seqs: buffer.seqs, body, offset: (offset + taken) as u32, stamp });
            taken += bytes;
        }
        match items.is_empty() {
            false => Batch::Items(items),
            true if self.nothing_queued() => Batch::Nothing,
            true => Batch::Full,
        }
    }

    /// Puts back what a flush could not write for lack of space.
    pub(in crate::data) fn untake(&mut self, items: Vec<Item>) {
        for item in items.into_iter().rev() {
            if item.body.is_none() {
                self.tombstones.push_front(Tombstone { file: item.file, seqs: item.seqs });
                self.buffered_bytes += TOMBSTONE_OVERHEAD;
                self.queued_bytes += RECORD_HEADER_BYTES;
            } else if let Some(buffer) = self.drop_buffer(item.file) {
                // Also one that was changed since: who waits for the content taken must not miss it.
                self.enqueue(item.file, Buffer { stamp: item.stamp, queued: true, ..buffer });
            }
        }
    }

    /// The items are in the segment, which now ends at `end`.
    pub(in crate::data) fn commit(&mut self, segment: u32, end: u64, items: &[Item]) {
        if let Some(segment) = self.segments.get_mut(&segment) {
            segment.end = end;
        }
        for item in items.iter().filter(|item| item.body.is_some()) {
            let place = Place { segment, offset: item.offset, len: item.len() };
            match self.buffers.get(&item.file) {
                Some(buffer) => {
                    // A newer content keeps its buffer; the index gets what is on disk, so that a
                    // removal knows there is something to bury.
                    if buffer.seqs == item.seqs {
                        self.drop_buffer(item.file);
                    }
                    self.put_entry(Entry { file: item.file, seqs: item.seqs, place });
                }
                // Removed, cut to nothing or grown to blocks while the write was in flight.
                None => self.add_tombstone(item.file, item.seqs),
            }
        }
    }
}
