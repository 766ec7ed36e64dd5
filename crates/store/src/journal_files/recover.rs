//! Finding segments again and reading them: where the stream ends, and whether what cannot be read is
//! a torn tail or damage.
//!
//! The rule: below an end that a later header states, and below a durable mark that any later valid
//! entry carries, everything must be readable. Only behind both may an entry be bad, and there the
//! stream ends.
//!
//! Absent: repair.

use super::header::{HEADER_BYTES, Segment, SegmentHeader};
use super::spares::Spare;
use super::stream::{Behind, Stream};
use super::{JournalFiles, State};
use crate::disk::{Disk, DiskFile};
use proto::codec::DecodeError;
use proto::ids::Position;
use proto::storeio::StoreError;

impl<D: Disk> JournalFiles<D> {
    /// Lists the folder: live segments with their headers checked, spares, leftovers.
    pub(super) fn find_segments(&self) -> Result<(), StoreError> {
        let mut state = self.lock();
        let names = self.disk.list(&self.folder)?;
        if !names.is_empty() {
            // A killed process may have renamed without syncing: before anything is written under the
            // names that are seen now, a crash must not be able to bring the former ones back.
            self.disk.sync_folder(&self.folder)?;
        }
        for name in names {
            let path = self.path(&name);
            if let Some(number) =
                name.strip_prefix("spare.").and_then(|hex| u64::from_str_radix(hex, 16).ok())
            {
                state.next_spare = state.next_spare.max(number + 1);
                self.adopt_spare(&mut state, name, &path)?;
            } else if name == "new" {
                self.disk.remove(&path)?;
            } else if name.len() >= 8 && name.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                let header = self.read_header(&name, &path)?;
                state.segments.push_back(Segment { name, header });
            }
        }
        state.segments.make_contiguous().sort_by_key(|segment| segment.header.sequence);
        Ok(())
    }

    /// A spare of another size was being made, or belongs to other limits: it is of no use.
    fn adopt_spare(&self, state: &mut State<D::File>, name: String, path: &str) -> Result<(), StoreError> {
        if !self.has_normal_size(path)? {
            return self.disk.remove(path);
        }
        let mut bytes = vec![0; HEADER_BYTES as usize];
        if let Some(file) = self.disk.open(path)? {
            file.read_at(&mut bytes, 0)?;
        }
        // Without a readable header there may still be stale entries, of a start nobody knows.
        match SegmentHeader::decode(&bytes) {
            Ok(header) => state.spares.push(Spare { name, stale_start: Some(header.start) }),
            Err(_) if bytes.iter().all(|byte| *byte == 0) => {
                state.spares.push(Spare { name, stale_start: None });
            }
            Err(_) => self.disk.remove(path)?,
        }
        Ok(())
    }

    fn read_header(&self, name: &str, path: &str) -> Result<SegmentHeader, StoreError> {
        let mut bytes = vec![0; HEADER_BYTES as usize];
        let count = match self.disk.open(path)? {
            Some(file) => file.read_at(&mut bytes, 0)?,
            None => 0,
        };
        let header =
            SegmentHeader::decode(&bytes[..count]).map_err(|error| bad(path, 0, &error.to_string()))?;
        if header.file_name() != name || header.rank != self.rank {
            return Err(bad(path, 0, "header of another segment"));
        }
        if header.incarnation > self.incarnation {
            return Err(bad(path, 0, "header of a later incarnation"));
        }
        if header.start != header.predecessor_end {
            return Err(bad(path, 0, "start and predecessor's end differ"));
        }
        Ok(header)
    }

    /// Reads the entries from `from` on (a position at which an entry begins, or the end) and hands
    /// them over in pieces of whole, checked entries. Returns the end of the stream, which is durable
    /// then: the next append goes there.
    ///
    /// # Errors
    /// `Damaged` with file, offset and the number of operations behind it; `Io`; `Fenced`.
    pub fn read(
        &self,
        from: Position,
        take: &mut dyn FnMut(Position, &[u8]),
    ) -> Result<Position, StoreError> {
        self.fence.check()?;
        let (segments, appended) = {
            let state = self.lock();
            let segments: Vec<Segment> = state.segments.iter().cloned().collect();
            (segments, state.end)
        };
        let mut end = from;
        let first = segments.iter().rposition(|segment| segment.header.start <= from);
        match first {
            None if from == Position(0) && segments.is_empty() => {}
            None => return Err(bad(&self.folder, 0, &format!("no segment holds position {}", from.0))),
            Some(first) => end = self.read_chain(&segments[first..], from, appended, take)?,
        }
        if let Some(end) = appended {
            return Ok(end);
        }
        if let Some(last) = segments.last() {
            // What a killed process left may be readable and yet not durable: whoever replays it will
            // act on it, and the next header will state its end.
            if let Some(file) = self.disk.open(&self.path(&last.name))? {
                file.sync_data()?;
            }
        }
        let mut state = self.lock();
        (state.end, state.durable) = (Some(end), end);
        Ok(end)
    }

    /// Finds the end without handing anything over.
    pub(super) fn read_tail(&self) -> Result<(), StoreError> {
        let start = self.lock().segments.back().map_or(Position(0), |last| last.header.start);
        self.read(start, &mut |_, _| {}).map(|_| ())
    }

    fn read_chain(
        &self,
        segments: &[Segment],
        from: Position,
        appended: Option<Position>,
        take: &mut dyn FnMut(Position, &[u8]),
    ) -> Result<Position, StoreError> {
        let mut at = from;
        for (index, segment) in segments.iter().enumerate() {
            let next = segments.get(index + 1);
            let mut stated = appended;
            if let Some(next) = next {
                if next.header.sequence != segment.header.sequence + 1 {
                    let missing = format!("{:08x}", segment.header.sequence + 1);
                    return Err(bad(&self.path(&missing), 0, "segment is missing"));
                }
                stated = Some(next.header.predecessor_end);
            }
            at = self.read_segment(segment, at, stated, &segments[index + 1..], take)?;
        }
        Ok(at)
    }

    /// Reads one segment from `from` to its stated end, or to where its entries end. Returns that end.
    fn read_segment(
        &self,
        segment: &Segment,
        from: Position,
        stated: Option<Position>,
        later: &[Segment],
        take: &mut dyn FnMut(Position, &[u8]),
    ) -> Result<Position, StoreError> {
        let mut stream = self.stream(segment, from, stated)?;
        let problem = stream.entries(take)?;
        let end = stream.position();
        if let Some(stated) = stated {
            if end != stated {
                let (need, have) = (stated.0.saturating_sub(from.0) as usize, (end.0 - from.0) as usize);
                let error = problem.unwrap_or(DecodeError::Truncated { need, have });
                return Err(self.damage(segment, end, &stream.scan()?, later, &error));
            }
        } else if let Some(error) = problem {
            let behind = stream.scan()?;
            if behind.mark.is_some_and(|mark| mark > end) && !stdx::mutant!("journal_damage_is_tail") {
                return Err(self.damage(segment, end, &behind, later, &error));
            }
            if end == from {
                self.check_boundary(segment, from)?;
            }
        }
        Ok(end)
    }

    /// Nothing is readable at `from`: fine if the segment's entries lead exactly there, otherwise what
    /// a checkpoint relied on is gone.
    fn check_boundary(&self, segment: &Segment, from: Position) -> Result<(), StoreError> {
        let mut stream = self.stream(segment, segment.header.start, Some(from))?;
        stream.entries(&mut |_, _| {})?;
        let end = stream.position();
        if end == from {
            return Ok(());
        }
        let what = format!("the journal ends before position {}", from.0);
        Err(bad(&self.path(&segment.name), segment.offset_of(end), &what))
    }

    /// The stream's bytes from `from` to the segment's stated end, or all there are.
    fn stream(
        &self,
        segment: &Segment,
        from: Position,
        stated: Option<Position>,
    ) -> Result<Stream<D::File>, StoreError> {
        let path = self.path(&segment.name);
        let file = self.disk.open(&path)?.ok_or_else(|| bad(&path, 0, "segment is missing"))?;
        let offset = segment.offset_of(from);
        let there = file.size()?.saturating_sub(offset);
        let wanted = stated.map_or(there, |end| there.min(end.0.saturating_sub(from.0)));
        Ok(Stream::new(file, from, offset, wanted))
    }

    /// The error for a bad entry at `position`: it and every operation behind it are unreadable.
    fn damage(
        &self,
        segment: &Segment,
        position: Position,
        behind: &Behind,
        later: &[Segment],
        error: &DecodeError,
    ) -> StoreError {
        let mut lost = 1 + behind.operations;
        for (index, segment) in later.iter().enumerate() {
            let stated = later.get(index + 1).map(|next| next.header.predecessor_end);
            // Files that cannot be read only make the count smaller.
            let stream = self.stream(segment, segment.header.start, stated);
            lost += stream.and_then(|mut stream| stream.scan()).map_or(0, |behind| behind.operations);
        }
        let operations = if lost == 1 { "operation" } else { "operations" };
        let what = format!("{error} ({lost} {operations} after seq {} unreadable)", position.0);
        bad(&self.path(&segment.name), segment.offset_of(position), &what)
    }
}

fn bad(path: &str, offset: u64, what: &str) -> StoreError {
    StoreError::Damaged { at: format!("{path} at {offset:#x}"), what: what.into() }
}
