//! Writing segments: one appender, sequential writes of many records, space reserved before a write
//! is accepted so that what is buffered can always be flushed.
//!
//! Absent: syncing (`sync`), moving live records (`compact`).

use super::DataFiles;
use super::central::{Batch, Item, Shortage};
use super::handles::HandleKey;
use super::locks::guard;
use super::record::{RecordHeader, SEGMENT_HEADER_BYTES, encode_segment_header, record_bytes, segment_name};
use super::room::Reserve;
use crate::disk::{Disk, DiskFile};
use proto::storeio::{IoError, StoreError};
use std::collections::VecDeque;
use std::sync::Arc;

/// The file system of the disk cannot reserve space.
const EOPNOTSUPP: i32 = 95;

/// A segment that records are added to.
#[derive(Debug)]
pub(super) struct Output<F> {
    pub(super) id: u32,
    pub(super) file: Arc<F>,
    pub(super) end: u64,
    /// No record ends beyond this.
    pub(super) limit: u64,
    /// Space up to the largest end may be reserved behind its end.
    pub(super) reserved: bool,
}

/// The segments that flushes write to. Its mutex is held during flush I/O, never by quick operations.
#[derive(Debug)]
pub(super) struct Appender<F> {
    active: Option<Output<F>>,
    spares: VecDeque<Output<F>>,
}

impl<F> Appender<F> {
    pub(super) const fn new() -> Self {
        Self { active: None, spares: VecDeque::new() }
    }
}

impl<D: Disk> DataFiles<D> {
    /// Bytes that records are sure to fit into.
    fn usable(&self, output: &Output<D::File>) -> u64 {
        if !output.reserved {
            return 0;
        }
        (output.limit - output.end).saturating_sub(record_bytes(self.small_file_bytes))
    }

    fn count_space(&self, appender: &Appender<D::File>) {
        let space = appender.active.iter().chain(&appender.spares).map(|output| self.usable(output)).sum();
        guard(&self.central).space_left = space;
    }

    /// Makes a segment with its space reserved; while room is kept, one that takes its space as it goes.
    pub(super) fn create_segment(&self) -> Result<Output<D::File>, StoreError> {
        self.leave_room(self.limits.flush_bytes, Reserve::Little)?;
        if self.is_room_kept() {
            return self.create_segment_of(None);
        }
        match self.create_segment_of(Some(self.limits.segment_bytes)) {
            // A small device may have the ballast and room again and yet none for a whole segment: it would give the ballast up
            // at the first write, get it back, and so on.
            Err(StoreError::NoSpace) => {
                self.leave_index(self.short_bytes())?;
                self.create_segment_of(Some(self.short_bytes()))
            }
            made => made,
        }
    }

    /// The least that is reserved for a segment: any record fits.
    fn short_bytes(&self) -> u64 {
        let least = SEGMENT_HEADER_BYTES + 2 * record_bytes(self.small_file_bytes);
        (self.limits.segment_bytes / 8).max(least).min(self.limits.segment_bytes)
    }

    fn create_segment_of(&self, reserve: Option<u64>) -> Result<Output<D::File>, StoreError> {
        let id = guard(&self.central).new_segment().ok_or(StoreError::NoSpace)?;
        let made = self.make_segment_file(id, reserve);
        let (reserved, limit) = (reserve.is_some(), reserve.unwrap_or(self.limits.segment_bytes));
        let mut central = guard(&self.central);
        match made {
            Ok(file) => {
                central.data_folder_dirty = true;
                if let Some(segment) = central.segments.get_mut(&id) {
                    segment.end = SEGMENT_HEADER_BYTES;
                }
                let evicted = central.handles.put(HandleKey::Segment(id), Arc::clone(&file));
                drop(central);
                self.retire(evicted);
                Ok(Output { id, file, end: SEGMENT_HEADER_BYTES, limit, reserved })
            }
            Err(error) => {
                drop(central);
                // Without its header it would be dropped at the next opening anyway. Before the number is given back: another
                // thread would make its segment under this name.
                let _ = self.disk.remove(&segment_name(id));
                guard(&self.central).retract_segment(id);
                Err(error)
            }
        }
    }

    fn make_segment_file(&self, id: u32, reserve: Option<u64>) -> Result<Arc<D::File>, StoreError> {
        let file = self.disk.create(&segment_name(id))?;
        let reserved = reserve.map_or(Ok(()), |bytes| file.allocate(0, bytes));
        match reserved {
            Err(StoreError::Io { source: IoError(EOPNOTSUPP), .. }) | Ok(()) => {}
            Err(error) => return Err(error),
        }
        if reserve.is_some() && self.is_room_kept() {
            // The ballast went meanwhile, and this may be its room.
            return Err(StoreError::NoSpace);
        }
        file.write_at(&encode_segment_header(id), 0)?;
        Ok(Arc::new(file))
    }

    /// Makes room for a buffer of `len` bytes: flushes while memory is short, reserves while disk
    /// space is short.
    pub(super) fn make_room(&self, len: u64) -> Result<(), StoreError> {
        let mut appender = guard(&self.appender);
        loop {
            let shortage = guard(&self.central).shortage(len);
            match shortage {
                None => return Ok(()),
                Some(Shortage::Memory) => {
                    if !self.flush_batch(&mut appender)? {
                        // Only limits smaller than one file lead here.
                        return Err(StoreError::NoSpace);
                    }
                }
                Some(Shortage::Space) => self.add_spare(&mut appender)?,
            }
        }
    }

    /// Reserves another segment.
    fn add_spare(&self, appender: &mut Appender<D::File>) -> Result<(), StoreError> {
        if self.is_room_kept() {
            return Err(StoreError::NoSpace);
        }
        let spare = self.create_segment()?;
        if appender.active.as_ref().is_some_and(|output| !output.reserved) {
            // Made while room was kept. What is let in on the strength of the spare must not first meet a full disk there.
            self.seal_active(appender);
        }
        appender.spares.push_back(spare);
        self.count_space(appender);
        Ok(())
    }

    /// Background work of the appender: flush when half full, reserve ahead. Whether anything was done.
    pub(super) fn flush_ahead(&self) -> Result<bool, StoreError> {
        let (flush, reserve) = {
            let central = guard(&self.central);
            (central.wants_flush(), central.wants_space())
        };
        if !flush && !reserve {
            return Ok(false);
        }
        let mut appender = guard(&self.appender);
        let mut done = false;
        if reserve {
            match self.add_spare(&mut appender) {
                Err(StoreError::NoSpace) => {}
                result => {
                    result?;
                    done = true;
                }
            }
        }
        if flush {
            done |= self.flush_batch(&mut appender)?;
        }
        Ok(done)
    }

    /// Flushes everything that is queued now.
    pub(super) fn flush_all(&self) -> Result<(), StoreError> {
        let mark = guard(&self.central).queue_mark();
        self.flush_past(mark)
    }

    /// Flushes what was queued before the last call already: called every few seconds, nothing stays in memory for long, and
    /// the death of this process takes away no more than that.
    ///
    /// # Errors
    /// As `run`.
    pub fn flush_aged(&self) -> Result<(), StoreError> {
        self.check_poison()?;
        let mark = guard(&self.central).take_aged();
        self.flush_past(mark)
    }

    fn flush_past(&self, mark: (u64, u64)) -> Result<(), StoreError> {
        loop {
            // Taken anew each time, so that a writer short of room is not held up by the whole flush.
            let mut appender = guard(&self.appender);
            let done = guard(&self.central).flushed_past(mark);
            if done || !self.flush_batch(&mut appender)? {
                return Ok(());
            }
        }
    }

    /// Writes the oldest queued records. Whether there were any.
    fn flush_batch(&self, appender: &mut Appender<D::File>) -> Result<bool, StoreError> {
        loop {
            if guard(&self.central).nothing_queued() {
                return Ok(false);
            }
            let output = match appender.active.take().or_else(|| appender.spares.pop_front()) {
                Some(output) => appender.active.insert(output),
                None => appender.active.insert(self.create_segment()?),
            };
            if !output.reserved {
                self.leave_room(self.limits.flush_bytes, Reserve::Little)?;
            }
            let room = output.limit - output.end;
            let batch = guard(&self.central).take_batch(output.end, room, self.limits.flush_bytes);
            match batch {
                Batch::Nothing => return Ok(false),
                Batch::Full => self.seal_active(appender),
                Batch::Items(items) => {
                    let written = self.write_items(output, items);
                    if matches!(written, Err(StoreError::NoSpace)) {
                        // It has no room reserved any more.
                        self.seal_active(appender);
                    }
                    written?;
                    self.count_space(appender);
                    return Ok(true);
                }
            }
        }
    }

    fn seal_active(&self, appender: &mut Appender<D::File>) {
        if let Some(output) = appender.active.take()
            && let Some(segment) = guard(&self.central).segments.get_mut(&output.id)
        {
            segment.sealed = true;
        }
        self.count_space(appender);
    }

    /// Seals the active segment if it is mostly dead, so that compaction may take it.
    pub(super) fn rotate_dead_active(&self) -> Result<(), StoreError> {
        let mut appender = guard(&self.appender);
        let Some(output) = appender.active.as_mut() else { return Ok(()) };
        if self.is_mostly_dead(output.id) {
            self.give_back(output)?;
            self.seal_active(&mut appender);
        }
        Ok(())
    }

    /// Whether a segment that is being filled is worth ending, and more dead than alive.
    pub(super) fn is_mostly_dead(&self, id: u32) -> bool {
        let segment = guard(&self.central).segments.get(&id).copied();
        segment.is_some_and(|s| s.end * 8 > self.limits.segment_bytes && s.live * 2 < s.end)
    }

    /// Gives back what is reserved behind the end: nothing will be written there, or takes its space as it goes.
    pub(super) fn give_back(&self, output: &mut Output<D::File>) -> Result<(), StoreError> {
        if !output.reserved {
            return Ok(());
        }
        // Only a cut that changes the length is sure to free what is reserved behind it.
        let longer = output.file.set_len(self.limits.segment_bytes.max(output.end + 1));
        match longer.and_then(|()| output.file.set_len(output.end)) {
            Ok(()) => output.reserved = false,
            // Then it is cut at the next opening.
            Err(StoreError::NoSpace) => {}
            Err(error) => return Err(self.poison(error)),
        }
        Ok(())
    }

    fn write_items(&self, output: &mut Output<D::File>, items: Vec<Item>) -> Result<(), StoreError> {
        let mut bytes = Vec::with_capacity(self.limits.flush_bytes as usize);
        for item in &items {
            let body = item.body.as_ref().map_or(&[][..], |body| body.as_slice());
            let header = RecordHeader {
                file: item.file,
                seqs: item.seqs,
                tombstone: item.body.is_none(),
                len: body.len() as u32,
                body_crc: RecordHeader::body_crc(body),
                segment: output.id,
                offset: item.offset,
            };
            header.encode(body, &mut bytes);
        }
        match output.file.write_at(&bytes, output.end) {
            Ok(()) => {}
            Err(StoreError::NoSpace) => {
                guard(&self.central).untake(items);
                self.cut_to_end(output)?;
                return Err(StoreError::NoSpace);
            }
            Err(error) => return Err(self.poison(error)),
        }
        output.end += bytes.len() as u64;
        guard(&self.central).commit(output.id, output.end, &items);
        Ok(())
    }

    /// Drops what a write that met a full disk left behind the end. They are whole records with the right place in them: once
    /// the end has passed them, or nothing has and power fails, opening would take them for the content of files that were
    /// removed or changed since, and whose tombstones are gone.
    pub(super) fn cut_to_end(&self, output: &mut Output<D::File>) -> Result<(), StoreError> {
        // What was reserved goes with it.
        output.reserved = false;
        output.file.set_len(output.end).map_err(|error| self.poison(error))
    }
}
