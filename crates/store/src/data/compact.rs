//! Compaction: live records of mostly dead segments move to new ones, with their sequences, a bounded
//! piece at a time. Index checkpoints then let go of the emptied segments.
//!
//! Only segments that the index checkpoint on disk covers whole are taken. So their tombstones can be
//! left behind: whatever they bury lies below what is ever scanned again. A move cannot bring a removed
//! record back either: the record was live when its batch began, so its tombstone is written after
//! the checkpoint that is on disk, will be scanned with the copy, and wins over it.
//!
//! A segment that lost a record just now is left alone: where whole trees are removed the rest of it goes soon, and then there is
//! nothing to move. It is not waited for for long, nor where space is short.
//!
//! Absent: a thread; the driver calls `compact_step`.

use super::DataFiles;
use super::central::Segment;
use super::index::{Entry, Place};
use super::locks::guard;
use super::record::{RecordHeader, SEGMENT_HEADER_BYTES, record_bytes};
use super::room::Reserve;
use super::segments::Output;
use super::verify::{Walked, walk};
use crate::disk::{Disk, DiskFile};
use proto::storeio::StoreError;
use stdx::Mono;

/// A dying segment that goes on losing records is taken when it has done so for that many times as long as would settle it.
const SETTLE_TIMES_MAX: u64 = 5;
/// Space is short when no more than so many segments would fit: then nothing is waited for.
const SHORT_SEGMENTS: u64 = 8;

/// Where compaction is.
#[derive(Debug)]
pub(super) struct Compactor<F> {
    pub(super) output: Option<Output<F>>,
    /// Segment being emptied and how far it was read.
    pub(super) victim: Option<(u32, u64)>,
}

impl<F> Compactor<F> {
    pub(super) const fn new() -> Self {
        Self { output: None, victim: None }
    }
}

/// What one step did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compacted {
    pub read_bytes: u64,
    pub moved_bytes: u64,
    /// Bytes of the segments that were deleted.
    pub freed_bytes: u64,
    /// Another step would find work.
    pub more: bool,
}

/// Sums over all segments.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    /// Of records, dead ones too, and reserved for more.
    bytes: u64,
    live: u64,
    /// Where the clock stands for compaction: at the end of time when it must not wait.
    now: Mono,
}

/// Whether that many bytes hold more than 1.25 times what lives in them: with the index, all of `data/` then stays within 1.3 times the
/// content of some hundred MiB.
const fn is_wasteful(bytes: u64, live: u64) -> bool {
    bytes * 4 > live * 5
}

/// Whether moving the segment's live records would pay: under half live always, above while all segments together are wasteful
/// and a ninth of it is dead. The most dead goes first, so among many that ends where it should; what is reserved may make little
/// content wasteful for good, and then it ends with the last that pays.
fn would_pay(segment: &Segment, totals: Totals) -> bool {
    let wasteful = is_wasteful(totals.bytes, totals.live) && segment.end * 8 > segment.live * 9;
    segment.sealed && !segment.stuck && (segment.is_dying() || wasteful)
}

struct Moved {
    from: Entry,
    to: Place,
}

impl<D: Disk> DataFiles<D> {
    /// Reads at most about `budget_bytes` of segments under compaction and moves what lives there.
    ///
    /// # Errors
    /// `Io`, `Poisoned`.
    pub(crate) fn compact_step(&self, budget_bytes: u64) -> Result<Compacted, StoreError> {
        self.check_poison()?;
        self.rotate_dead_active()?;
        self.rotate_dead_output(&mut guard(&self.compactor))?;
        let (mut done, mut full) = (Compacted::default(), false);
        while done.read_bytes < budget_bytes {
            let mut compactor = guard(&self.compactor);
            match self.move_batch(&mut compactor, &mut done) {
                Ok(true) => {}
                Ok(false) => break,
                // Dead segments can still be let go of.
                Err(StoreError::NoSpace) => {
                    full = true;
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        // On a full disk a victim stays chosen: whoever calls again at once would spin on it.
        done.more = !full && guard(&self.compactor).victim.is_some();
        if self.checkpoint_pays(done.more) || self.tail_is_long() {
            let before = self.totals().bytes;
            match self.checkpoint(&mut guard(&self.checkpointer)) {
                Err(StoreError::NoSpace) => return Ok(done),
                result => result?,
            }
            done.freed_bytes = before.saturating_sub(self.totals().bytes);
            done.more |= (!full || done.freed_bytes > 0) && self.pick_victim().is_some();
        }
        if !done.more {
            self.trim_output(&mut guard(&self.compactor))?;
        }
        Ok(done)
    }

    /// Gives back what is reserved behind the output while there is nothing to move: a segment's worth, and nobody counts on
    /// it as writers do on the appender's. What is moved later takes its space as it goes.
    fn trim_output(&self, compactor: &mut Compactor<D::File>) -> Result<(), StoreError> {
        compactor.output.as_mut().map_or(Ok(()), |output| self.give_back(output))
    }

    fn totals(&self) -> Totals {
        let is_short = self.is_room_kept() || self.is_space_short();
        let central = guard(&self.central);
        let now = if is_short { Mono(u64::MAX) } else { central.now };
        let reserved = Totals { bytes: central.space_left, live: 0, now };
        central.segments.values().fold(reserved, |sum, segment| Totals {
            bytes: sum.bytes + segment.end,
            live: sum.live + segment.live,
            now,
        })
    }

    fn is_space_short(&self) -> bool {
        let least = self.limits.segment_bytes * SHORT_SEGMENTS;
        self.disk.space().is_ok_and(|space| space.available < least)
    }

    /// Whether nothing is left that could die by itself, or that was waited for long enough.
    fn is_settled(&self, segment: &Segment, now: Mono) -> bool {
        let (least, most) = (self.limits.settle_ns, self.limits.settle_ns.saturating_mul(SETTLE_TIMES_MAX));
        let is_slow = segment.dying.is_some_and(|since| now.since(since) >= most);
        segment.live == 0 || now.since(segment.lost) >= least || is_slow
    }

    fn pays(&self, segment: &Segment, totals: Totals) -> bool {
        would_pay(segment, totals) && self.is_settled(segment, totals.now)
    }

    /// The covered segment with the smallest live part that pays.
    fn pick_victim(&self) -> Option<u32> {
        let (totals, most) = (self.totals(), self.movable_bytes());
        let central = guard(&self.central);
        let candidates = central.segments.iter().filter(|(_, segment)| {
            let is_movable = segment.live > 0 && segment.live <= most;
            is_movable && segment.covered == segment.end && self.pays(segment, totals)
        });
        candidates.min_by_key(|(_, segment)| segment.live * 1024 / segment.end.max(1)).map(|(id, _)| *id)
    }

    /// Whether a checkpoint would free, or make ready for compaction, enough to be worth writing the
    /// index. Segments are emptied several at a time while there are more.
    fn checkpoint_pays(&self, moving: bool) -> bool {
        let totals = self.totals();
        let central = guard(&self.central);
        let (mut dead, mut uncovered, mut waiting) = (0, 0, false);
        for segment in central.segments.values().filter(|segment| would_pay(segment, totals)) {
            if !self.is_settled(segment, totals.now) {
                waiting = true;
            } else if segment.live == 0 {
                dead += segment.end;
            } else if segment.covered < segment.end {
                uncovered += segment.end - segment.live;
            }
        }
        drop(central);
        // Where room is kept a segment is moved only as there is room for: what it gives back comes before the next.
        let moving = (moving || waiting) && !self.is_room_kept();
        let gain = dead + uncovered;
        let mut least = self.index_bytes() / 2;
        if is_wasteful(totals.bytes, totals.live) {
            // The index of files of a few bytes is as large as they are: half of it would stay unused for good.
            least = least.min(totals.bytes / 16);
        }
        let least = least.max(self.limits.segment_bytes / 16);
        gain >= if moving { (self.limits.segment_bytes * 4).max(least) } else { least }
    }

    /// Moves one write's worth of live records. `false`: there is nothing to move.
    fn move_batch(
        &self,
        compactor: &mut Compactor<D::File>,
        done: &mut Compacted,
    ) -> Result<bool, StoreError> {
        if compactor.victim.is_none() {
            compactor.victim = self.pick_victim().map(|id| (id, SEGMENT_HEADER_BYTES));
        }
        let Some((victim, from)) = compactor.victim else { return Ok(false) };
        let end = guard(&self.central).segments.get(&victim).map_or(0, |segment| segment.end);
        let (Some(file), true) = (self.segment_file(victim)?, from < end) else {
            self.finish_victim(compactor, victim);
            return Ok(true);
        };
        let output = match compactor.output.take() {
            Some(output) => compactor.output.insert(output),
            None => compactor.output.insert(self.create_segment()?),
        };
        let (mut bytes, mut moved, mut full) = (Vec::new(), Vec::new(), false);
        let room = output.limit - output.end;
        let walked = walk(&*file, victim, from, end, &mut |offset, walked| {
            if bytes.len() as u64 >= self.limits.flush_bytes || offset - from >= 4 * self.limits.flush_bytes {
                return false;
            }
            let Walked::Record { header, body, intact: true } = walked else { return true };
            let Some(entry) = self.live_at(&header, victim, offset) else { return true };
            if bytes.len() as u64 + record_bytes(header.len) > room {
                full = output.end > SEGMENT_HEADER_BYTES || !bytes.is_empty();
                return !full;
            }
            let at = output.end + bytes.len() as u64;
            RecordHeader { segment: output.id, offset: at as u32, ..header }.encode(body, &mut bytes);
            let to = Place { segment: output.id, offset: at as u32, len: header.len };
            moved.push(Moved { from: entry, to });
            true
        });
        let stop = match walked {
            Ok(stop) => stop,
            // It would fail again, and the others have to be compacted.
            Err(error) => {
                self.finish_victim(compactor, victim);
                return Err(error);
            }
        };
        done.read_bytes += (stop - from).max(1);
        if !output.reserved {
            self.leave_room(bytes.len() as u64, Reserve::Moving)?;
        }
        self.write_moved(output, &bytes, &moved)?;
        done.moved_bytes += bytes.len() as u64;
        compactor.victim = Some((victim, stop));
        if full {
            self.seal_output(compactor);
        }
        Ok(true)
    }

    /// The index entry that points to this very record.
    fn live_at(&self, header: &RecordHeader, segment: u32, offset: u64) -> Option<Entry> {
        let entry = guard(&self.central).index.get(header.file)?;
        (entry.place.segment == segment && u64::from(entry.place.offset) == offset).then_some(entry)
    }

    fn write_moved(
        &self,
        output: &mut Output<D::File>,
        bytes: &[u8],
        moved: &[Moved],
    ) -> Result<(), StoreError> {
        if bytes.is_empty() {
            return Ok(());
        }
        match output.file.write_at(bytes, output.end) {
            Ok(()) => {}
            Err(StoreError::NoSpace) => {
                self.cut_to_end(output)?;
                return Err(StoreError::NoSpace);
            }
            Err(error) => return Err(self.poison(error)),
        }
        output.end += bytes.len() as u64;
        let mut central = guard(&self.central);
        if let Some(segment) = central.segments.get_mut(&output.id) {
            segment.end = output.end;
        }
        for Moved { from, to } in moved {
            // Changed or removed meanwhile: the copy is dead where it lies.
            if central.index.get(from.file) == Some(*from) {
                central.put_entry(Entry { place: *to, ..*from });
            }
        }
        Ok(())
    }

    fn finish_victim(&self, compactor: &mut Compactor<D::File>, victim: u32) {
        compactor.victim = None;
        if let Some(segment) = guard(&self.central).segments.get_mut(&victim) {
            // What is left could not be read.
            segment.stuck = segment.live > 0;
        }
    }

    /// Seals the output when most of it died again, so that it can be a victim itself.
    fn rotate_dead_output(&self, compactor: &mut Compactor<D::File>) -> Result<(), StoreError> {
        let Some(output) = compactor.output.as_mut() else { return Ok(()) };
        if self.is_mostly_dead(output.id) {
            self.give_back(output)?;
            self.seal_output(compactor);
        }
        Ok(())
    }

    fn seal_output(&self, compactor: &mut Compactor<D::File>) {
        if let Some(output) = compactor.output.take()
            && let Some(segment) = guard(&self.central).segments.get_mut(&output.id)
        {
            segment.sealed = true;
        }
    }
}
