//! Publishing what is durable: the state file, and now and then a new index file.
//!
//! An index checkpoint is fuzzy: tables are copied one after the other while records go on being
//! written. The order that makes it right:
//! 1. note the end C of each segment: every record below C is in the index now, or superseded;
//! 2. copy the tables to a new index file and sync it; an entry may point beyond C;
//! 3. sync all segments: what the copies point to is durable;
//! 4. write the state file: index file, C (scan from here), synced ends; rename; sync the folder;
//! 5. delete the old index file, and the segments that were sealed without a live record at 1.
//!
//! Absent: reading it back (`recover`).

use super::DataFiles;
use super::index::{Entry, TABLES};
use super::locks::guard;
use super::record::segment_name;
use super::room::Reserve;
use super::state::{
    CHUNK_ENTRIES, ENTRY_BYTES, INDEX_HEADER_BYTES, STATE_NAME, STATE_TEMPORARY, SegmentMark, State,
    encode_chunk, encode_index_header, index_name,
};
use crate::disk::{Disk, DiskFile};
use proto::storeio::StoreError;
use stdx::mutant;

const WRITE_BYTES: usize = 1 << 20;

/// The last published state. Its mutex makes one `SyncAll` or checkpoint run at a time.
#[derive(Debug, Default)]
pub(super) struct Checkpointer {
    pub(super) state: State,
    /// The last `SyncAll` that succeeded, counted by when they begin.
    pub(super) synced: u64,
}

/// Writes a state file; it is durable when this returns.
pub(super) fn write_state<D: Disk>(disk: &D, state: &State) -> Result<(), StoreError> {
    replace_state(disk, &disk.create(STATE_TEMPORARY)?, state)
}

fn replace_state<D: Disk>(disk: &D, file: &D::File, state: &State) -> Result<(), StoreError> {
    file.set_len(0)?;
    file.write_at(&state.encode(), 0)?;
    file.sync_data()?;
    disk.rename(STATE_TEMPORARY, STATE_NAME)?;
    disk.sync_folder("data")
}

impl<D: Disk> DataFiles<D> {
    /// Bytes of segments that an opening would have to scan.
    fn tail_bytes(&self) -> u64 {
        guard(&self.central).segments.values().map(|segment| segment.end - segment.covered).sum()
    }

    /// Bytes of an index file.
    pub(super) fn index_bytes(&self) -> u64 {
        (guard(&self.central).index.len() * ENTRY_BYTES) as u64
    }

    /// Whether so much was written since the last index checkpoint that another one pays.
    fn index_is_due(&self) -> bool {
        let least = self.limits.index_tail_bytes;
        self.tail_bytes() >= self.index_bytes().clamp(least, least.saturating_mul(4))
    }

    /// Whether an opening after a crash would take too long: the rank's checkpoints are far apart.
    pub(super) fn tail_is_long(&self) -> bool {
        self.tail_bytes() >= self.limits.index_tail_bytes.saturating_mul(4).max(self.index_bytes() * 2)
    }

    /// Makes segments durable and says so.
    pub(super) fn publish(&self, checkpointer: &mut Checkpointer) -> Result<(), StoreError> {
        if self.index_is_due() {
            match self.checkpoint(checkpointer) {
                // The old index and a longer scan are as good.
                Err(StoreError::NoSpace) => {}
                result => return result,
            }
        }
        self.sync_segments()?;
        let mut state = self.next_state(checkpointer, &[]);
        (state.index, state.index_entries) = (checkpointer.state.index, checkpointer.state.index_entries);
        if state.segments == checkpointer.state.segments {
            return Ok(());
        }
        self.commit_state(checkpointer, state)
    }

    /// Segments as they are now, without those in `dead`.
    fn next_state(&self, checkpointer: &Checkpointer, dead: &[u32]) -> State {
        let central = guard(&self.central);
        let mark = |(id, segment): (&u32, &super::central::Segment)| SegmentMark {
            id: *id,
            covered: segment.covered,
            synced: segment.synced,
        };
        State {
            block_bytes: checkpointer.state.block_bytes,
            next_segment: central.next_segment,
            next_write_seq: central.next_write_seq,
            segments: central.segments.iter().map(mark).filter(|mark| !dead.contains(&mark.id)).collect(),
            ..State::default()
        }
    }

    fn commit_state(&self, checkpointer: &mut Checkpointer, state: State) -> Result<(), StoreError> {
        let made = self.disk.create(STATE_TEMPORARY);
        // Later, when the new one may be in its place, an error leaves open which of the two is durable.
        if let Err(error) = &made
            && error.finds_no_descriptor()
        {
            return Err(error.clone());
        }
        match made.and_then(|file| replace_state(&self.disk, &file, &state)) {
            Ok(()) => {}
            Err(StoreError::NoSpace) => {
                self.disk.remove(STATE_TEMPORARY)?;
                return Err(StoreError::NoSpace);
            }
            Err(error) => return Err(self.poison(error)),
        }
        checkpointer.state = state;
        Ok(())
    }

    /// Writes the whole index and lets go of dead segments.
    pub(super) fn checkpoint(&self, checkpointer: &mut Checkpointer) -> Result<(), StoreError> {
        self.leave_room(self.index_bytes(), Reserve::Little)?;
        let (covered, dead) = {
            // No move in flight: a copy of a record whose tombstone lies below C must not land beyond C.
            let _compactor = guard(&self.compactor);
            let central = guard(&self.central);
            let covered: Vec<(u32, u64)> = central.segments.iter().map(|(id, s)| (*id, s.end)).collect();
            let dead = central.segments.iter().filter(|(_, s)| s.sealed && s.live == 0 && !s.stuck);
            let dead: Vec<u32> = dead.map(|(id, _)| *id).collect();
            (covered, dead)
        };
        let number = checkpointer.state.index.wrapping_add(1).max(1);
        let entries = match self.write_index(number) {
            Ok(entries) => entries,
            Err(StoreError::NoSpace) => {
                self.disk.remove(&index_name(number))?;
                return Err(StoreError::NoSpace);
            }
            // No state names the file yet: it is written anew.
            Err(error) => return Err(self.poison_if_opened(error)),
        };
        self.sync_segments()?;
        let mut state = self.next_state(checkpointer, &dead);
        (state.index, state.index_entries) = (number, entries);
        for mark in &mut state.segments {
            if let Ok(at) = covered.binary_search_by_key(&mark.id, |(id, _)| *id) {
                mark.covered = covered[at].1;
            }
        }
        let old = checkpointer.state.index;
        self.commit_state(checkpointer, state)?;
        {
            let mut central = guard(&self.central);
            for (id, end) in covered {
                if let Some(segment) = central.segments.get_mut(&id) {
                    segment.covered = end;
                }
            }
            for id in &dead {
                central.segments.remove(id);
            }
        }
        self.delete_dead(&dead)?;
        if old > 0 {
            self.disk.remove(&index_name(old))?;
        }
        Ok(())
    }

    fn delete_dead(&self, dead: &[u32]) -> Result<(), StoreError> {
        for id in dead {
            let handle = guard(&self.central).handles.remove(super::handles::HandleKey::Segment(*id));
            drop(handle);
            self.disk.remove(&segment_name(*id))?;
        }
        Ok(())
    }

    /// Writes and syncs an index file; returns the number of its entries.
    fn write_index(&self, number: u32) -> Result<u64, StoreError> {
        let file = self.disk.create(&index_name(number))?;
        file.set_len(0)?;
        let (mut at, mut entries, mut chunk) = (INDEX_HEADER_BYTES as u64, 0, 0);
        let mut bytes = Vec::new();
        for table in 0..TABLES {
            let copy: Vec<Entry> = guard(&self.central).index.entries(table).collect();
            for part in copy.chunks(CHUNK_ENTRIES) {
                encode_chunk(number, chunk, part, &mut bytes);
                chunk += 1;
                entries += part.len() as u64;
            }
            if bytes.len() >= WRITE_BYTES || table + 1 == TABLES {
                file.write_at(&bytes, at)?;
                at += bytes.len() as u64;
                bytes.clear();
            }
        }
        file.write_at(&encode_index_header(number, entries), 0)?;
        if !mutant!("data_skip_index_sync") {
            file.sync_data()?;
        }
        self.disk.sync_folder("data").map(|()| entries)
    }
}
