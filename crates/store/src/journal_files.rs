//! The journal of one rank as files on the `Disk` seam: segments of equal size, prewritten where
//! `prepare` had time and recycled after that, each with a 4 KiB header.
//!
//! A segment gets its name (8 hex digits of its sequence) only after its header is durable, and the
//! header states where the predecessor ended, after the predecessor was synced up to there. So below a
//! stated end everything must be readable, and only the last segment can have a torn tail. A new life
//! never appends to an inherited segment.
//!
//! Appends pass the system's page cache by (`Disk::create_direct`): nothing reads them again while the rank lives, and a
//! synced write costs half the CPU time. They are written in whole blocks for that (`tail`).
//!
//! Absent: making and recycling spare segments (`spares`); reading (`recover`); the meaning of entries (only their frame and
//! mark are read); threads: one at a time appends, any other may sync what was appended, trim or prepare meanwhile.

mod header;
mod recover;
mod spares;
mod stream;
mod tail;

pub use header::{HEADER_BYTES, SegmentHeader};

use crate::disk::{DIRECT_BYTES, Disk, DiskFile};
use crate::fence::Fence;
use header::Segment;
use proto::Errno;
use proto::ids::{Incarnation, Position, RankId};
use proto::journal::{ENTRY_BYTES_MAX, ENTRY_HEADER_BYTES};
use proto::storeio::StoreError;
use spares::Spare;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tail::Tail;

/// How long an append waits before it tries again to open the file of the next segment.
const DESCRIPTOR_PAUSE: Duration = Duration::from_millis(10);

/// Sizes of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalLimits {
    /// Of one segment file, header included; rounded up to whole blocks. An entry that is longer gets a longer file.
    pub segment_bytes: u64,
    /// Of live and spare segments together: trimmed segments beyond it are removed.
    pub journal_bytes: u64,
}

impl Default for JournalLimits {
    fn default() -> Self {
        Self { segment_bytes: 64 << 20, journal_bytes: 1 << 30 }
    }
}

/// One segment, for inspection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    pub name: String,
    pub header: SegmentHeader,
}

/// The journal files of one rank.
pub struct JournalFiles<D: Disk> {
    disk: D,
    folder: String,
    rank: RankId,
    incarnation: Incarnation,
    limits: JournalLimits,
    /// Of the life that appends.
    fence: Fence,
    state: Mutex<State<D::File>>,
    /// Held while the file appended to is synced. The kernel tells each failure once: who comes next must find it noted.
    syncing: Mutex<()>,
    /// Held while a spare is made or the folder changes, so that making one does not stop appends.
    making: Mutex<()>,
}

struct State<F> {
    /// Live segments, oldest first.
    segments: VecDeque<Segment>,
    /// The file appended to: always one of this life.
    current: Option<Arc<F>>,
    tail: Tail,
    /// Files of `segment_bytes` that may be used again, with the start their old header states.
    spares: Vec<Spare>,
    /// Where the next append goes; `None` until the inherited journal was read.
    end: Option<Position>,
    durable: Position,
    /// Where an append began that ran out of space after some of its entries were written.
    unfinished: Option<Position>,
    next_spare: u64,
    poisoned: bool,
}

impl<D: Disk> JournalFiles<D> {
    /// Opens the journal of `rank` (empty if there is none): lists segments and checks their headers.
    ///
    /// # Errors
    /// `Damaged` for a header that is not what was written, `Io`.
    pub fn open(
        disk: D,
        rank: RankId,
        incarnation: Incarnation,
        limits: JournalLimits,
    ) -> Result<Self, StoreError> {
        Self::open_fenced(disk, rank, incarnation, limits, Fence::new())
    }

    /// The same for a life that may be ended: once its fence is revoked, nothing of it changes the journal.
    ///
    /// # Errors
    /// As `open`; `Fenced`.
    pub fn open_fenced(
        disk: D,
        rank: RankId,
        incarnation: Incarnation,
        limits: JournalLimits,
        fence: Fence,
    ) -> Result<Self, StoreError> {
        let segment_bytes = limits.segment_bytes.next_multiple_of(DIRECT_BYTES as u64);
        let limits = JournalLimits { segment_bytes, ..limits };
        let folder = folder_of(rank);
        let state = State {
            segments: VecDeque::new(),
            current: None,
            tail: Tail::default(),
            spares: Vec::new(),
            end: None,
            durable: Position(0),
            unfinished: None,
            next_spare: 0,
            poisoned: false,
        };
        let (state, syncing, making) = (Mutex::new(state), Mutex::new(()), Mutex::new(()));
        let journal = Self { disk, folder, rank, incarnation, limits, fence, state, syncing, making };
        {
            // It removes what it takes for leftovers; a later life may be at work there.
            let _pass = journal.fence.enter()?;
            journal.find_segments()?;
        }
        Ok(journal)
    }

    fn lock(&self) -> MutexGuard<'_, State<D::File>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn syncing(&self) -> MutexGuard<'_, ()> {
        self.syncing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.folder)
    }

    /// Appends whole entries at `position`, which must be the end of what was appended or read so far.
    /// They are durable after `sync`. Blocks for the disk only where a new segment begins, there also until its file can be opened.
    ///
    /// # Errors
    /// `NoSpace`: the same append may be tried again. `Poisoned`, `Io`: nothing will ever be durable. `Io` also for bytes that
    /// are not whole entries at the end of the stream. `Fenced`.
    pub fn append(&self, position: Position, bytes: &[u8]) -> Result<(), StoreError> {
        let mut pass = Some(self.fence.enter()?);
        if self.lock().end.is_none() {
            self.read_tail()?;
        }
        let mut bytes = self.lock().admit(position, bytes).ok_or_else(|| self.misuse(position))?;
        while !bytes.is_empty() {
            match self.append_some(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(StoreError::NoSpace) => {
                    self.lock().unfinished = Some(position);
                    return Err(StoreError::NoSpace);
                }
                // Whoever ends this life meanwhile does not wait for a descriptor.
                Err(error) if is_for_later(&error) => {
                    drop(pass.take());
                    std::thread::sleep(DESCRIPTOR_PAUSE);
                    pass = Some(self.fence.enter()?);
                }
                Err(error) => return self.lock().note(Err(error)),
            }
        }
        drop(pass);
        self.lock().unfinished = None;
        Ok(())
    }

    fn misuse(&self, position: Position) -> StoreError {
        let at = format!("{} append at position {}", self.folder, position.0);
        StoreError::Io { at, source: proto::storeio::IoError(Errno::EINVAL.0) }
    }

    /// Writes the entries that fit the current segment, or begins the next one. Bytes written.
    fn append_some(&self, bytes: &[u8]) -> Result<usize, StoreError> {
        let mut state = self.lock();
        if state.poisoned {
            return Err(StoreError::Poisoned);
        }
        let end = state.end.ok_or(StoreError::Poisoned)?;
        let (Some(file), Some(segment)) = (state.current.clone(), state.segments.back()) else {
            drop(state);
            self.begin_segment(end)?;
            return Ok(0);
        };
        let offset = segment.offset_of(end);
        let room = self.limits.segment_bytes.saturating_sub(offset);
        let mut count = whole_entries(bytes, room).ok_or_else(|| self.misuse(end))?;
        if count == 0 && end > segment.header.start {
            drop(state);
            self.begin_segment(end)?;
            return Ok(0);
        }
        if count == 0 {
            // An entry longer than a segment gets a segment of its own, made longer.
            count = first_entry(bytes);
        }
        // Nobody else appends, and a sync that ends meanwhile is not kept waiting.
        let mut tail = std::mem::take(&mut state.tail);
        drop(state);
        let written = tail.append(&*file, &bytes[..count], offset);
        let mut state = self.lock();
        state.tail = tail;
        state.note(written)?;
        state.end = Some(Position(end.0 + count as u64));
        Ok(count)
    }

    /// Makes `end` the start of a new segment of this life.
    fn begin_segment(&self, end: Position) -> Result<(), StoreError> {
        let _syncing = self.syncing();
        let mut state = self.lock();
        if state.poisoned {
            return Err(StoreError::Poisoned);
        }
        match self.roll(&mut state, end) {
            // What was written is whole, and the same segment can be begun once more, whichever file was not opened.
            Err(error) if is_for_later(&error) => Err(error),
            begun => state.note(begun),
        }
    }

    fn roll(&self, state: &mut State<D::File>, end: Position) -> Result<(), StoreError> {
        if let Some(file) = &state.current {
            // Before a header may state this end, everything below it must be durable.
            if !stdx::mutant!("journal_no_sync_before_roll") {
                file.sync_data()?;
            }
            state.durable = state.durable.max(end);
        }
        let spare = self.take_spare(state, end)?;
        let sequence = state.segments.back().map_or(1, |last| last.header.sequence + 1);
        let header = SegmentHeader {
            rank: self.rank,
            incarnation: self.incarnation,
            sequence,
            start: end,
            predecessor_end: end,
        };
        let segment = Segment { name: header.file_name(), header };
        let from = self.path(&spare.name);
        let file = match self.disk.create(&from) {
            Ok(file) => file,
            Err(error) => {
                state.spares.push(spare);
                return Err(error);
            }
        };
        if let Err(error) = file.write_at(&segment.header.encode(), 0) {
            self.disk.remove(&from)?;
            return Err(error);
        }
        file.sync_data()?;
        drop(file);
        let path = self.path(&segment.name);
        self.disk.rename(&from, &path)?;
        self.disk.sync_folder(&self.folder)?;
        // Opened again, so that its errors name the segment.
        state.current = Some(Arc::new(self.disk.create_direct(&path)?));
        state.tail.clear();
        state.segments.push_back(segment);
        Ok(())
    }

    /// Makes everything appended before the call durable. Returns the position up to which the journal
    /// is durable now. Appends go on meanwhile.
    ///
    /// # Errors
    /// `Poisoned`, `Io`: nothing more will ever be durable. `Fenced`: whoever appended may not tell anybody any more.
    pub fn sync(&self) -> Result<Position, StoreError> {
        // It adds nothing, so that the end of this life need not wait for it.
        self.fence.check()?;
        let _syncing = self.syncing();
        let (file, end) = {
            let state = self.lock();
            if state.poisoned {
                return Err(StoreError::Poisoned);
            }
            match (&state.current, state.end) {
                (Some(file), Some(end)) if end > state.durable => (Arc::clone(file), end),
                _ => return Ok(state.durable),
            }
        };
        let result = if stdx::mutant!("journal_no_sync") { Ok(()) } else { file.sync_data() };
        let mut state = self.lock();
        state.note(result)?;
        // An append on another thread that met a failed write has been told of it, and this sync then was not.
        if state.poisoned {
            return Err(StoreError::Poisoned);
        }
        state.durable = state.durable.max(end);
        self.fence.check()?;
        Ok(state.durable)
    }

    /// Bytes of the stream from the oldest live segment to the end.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let state = self.lock();
        let Some(first) = state.segments.front() else { return 0 };
        let end = state.end.or(state.segments.back().map(|last| last.header.start));
        end.map_or(0, |end| end.0.saturating_sub(first.header.start.0))
    }

    /// Up to where the journal is known to be durable.
    #[must_use]
    pub fn durable(&self) -> Position {
        self.lock().durable
    }

    /// Live segments, oldest first.
    #[must_use]
    pub fn segments(&self) -> Vec<SegmentInfo> {
        let state = self.lock();
        let infos = state
            .segments
            .iter()
            .map(|segment| SegmentInfo { name: self.path(&segment.name), header: segment.header });
        infos.collect()
    }

    /// The life that wrote the newest segment, until this one begins its own; 0: there is none. A life that served anybody has one: it
    /// makes something durable before that.
    #[must_use]
    pub fn former(&self) -> Incarnation {
        let state = self.lock();
        let before = state.segments.iter().rev().find(|last| last.header.incarnation != self.incarnation);
        before.map_or(Incarnation(0), |last| last.header.incarnation)
    }

    /// Number of spare segments.
    #[must_use]
    pub fn spares(&self) -> usize {
        self.lock().spares.len()
    }
}

impl<F> State<F> {
    /// After a failure nothing will ever be durable, but for want of space. To be noted before anybody else syncs.
    fn note<T>(&mut self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        self.poisoned |= result.as_ref().is_err_and(|error| *error != StoreError::NoSpace);
        result
    }

    /// The part of `bytes` that is not written yet: all of it, or what an append that ran out of space
    /// left over. `None` when they do not belong at the end.
    fn admit<'a>(&self, position: Position, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let end = self.end?;
        let written = if self.unfinished == Some(position) { end.0.checked_sub(position.0)? } else { 0 };
        if position.0 + written != end.0 {
            return None;
        }
        bytes.get(usize::try_from(written).ok()?..)
    }
}

/// The process has no descriptor for a file. It was taken for a failed write once: the rank was damaged, and no other life could follow,
/// because users had opened many connections.
fn is_for_later(error: &StoreError) -> bool {
    error.finds_no_descriptor() && !stdx::mutant!("journal_no_descriptor_poisons")
}

/// Where the segments of a rank lie, below the root of the disk.
fn folder_of(rank: RankId) -> String {
    if rank.0 == 0 { "journal".to_owned() } else { format!("journal/{:04x}", rank.0) }
}

/// How many bytes of leading whole entries fit `room`; `None` when the bytes are not whole entries.
fn whole_entries(bytes: &[u8], room: u64) -> Option<usize> {
    let mut at = 0;
    while at < bytes.len() {
        let len = first_entry(&bytes[at..]);
        if !(ENTRY_HEADER_BYTES..=ENTRY_BYTES_MAX).contains(&len) || len > bytes.len() - at {
            return None;
        }
        if (at + len) as u64 > room {
            break;
        }
        at += len;
    }
    Some(at)
}

/// The length the entry at the front of `bytes` states; 0 when they end before it.
fn first_entry(bytes: &[u8]) -> usize {
    bytes.first_chunk::<4>().map_or(0, |len| u32::from_le_bytes(*len) as usize)
}

#[cfg(test)]
mod tests;
