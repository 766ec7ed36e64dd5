//! The bytes of one segment, read piece by piece: entries that follow each other, and valid entries anywhere behind a bad one.
//!
//! A rank that starts beside others reads all there is of its last segment, to its end. Piece by piece that takes neither a segment's worth of
//! fresh memory nor of page cache from them.
//!
//! Absent: what a bad entry means (`recover`).

use crate::disk::DiskFile;
use proto::codec::DecodeError;
use proto::ids::Position;
use proto::journal::{ENTRY_BYTES_MAX, ENTRY_HEADER_BYTES, Payload, read_entry};
use proto::storeio::StoreError;

/// Bytes read at once; what is handed over at once is not much more.
const PIECE_BYTES: usize = 1 << 20;
/// Where in an entry its position stands: `read_entry` checks the rest.
const POSITION_AT: usize = 8;

/// Reads on from a position at which an entry begins, or the end.
pub(super) struct Stream<F> {
    file: F,
    /// Of the file, and how much may follow it: what is read next.
    offset: u64,
    left: u64,
    /// What was read and is still looked at, and the position of its first byte.
    bytes: Vec<u8>,
    start: Position,
    /// Bytes of `bytes` that are done with.
    at: usize,
}

/// What lies behind a bad entry.
#[derive(Default)]
pub(super) struct Behind {
    /// The highest durable mark of any valid entry.
    pub(super) mark: Option<Position>,
    pub(super) operations: u64,
}

impl<F: DiskFile> Stream<F> {
    /// The stream of `file` from `start` on, which is at `offset` of it, for at most `left` bytes.
    pub(super) const fn new(file: F, start: Position, offset: u64, left: u64) -> Self {
        Self { file, offset, left, bytes: Vec::new(), start, at: 0 }
    }

    /// How far it was read: the end of the last entry, or a place behind it.
    pub(super) const fn position(&self) -> Position {
        Position(self.start.0 + self.at as u64)
    }

    /// Hands over whole, checked entries from here on, until there are no more, or one cannot be read: that one's error.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn entries(
        &mut self,
        take: &mut dyn FnMut(Position, &[u8]),
    ) -> Result<Option<DecodeError>, StoreError> {
        loop {
            let (from, position) = (self.at, self.position());
            let mut problem = None;
            while problem.is_none() && self.at < self.bytes.len() {
                match read_entry(&self.bytes[self.at..], self.position()) {
                    Ok(entry) => self.at += entry.len,
                    Err(error) => problem = Some(error),
                }
            }
            if self.at > from {
                take(position, &self.bytes[from..self.at]);
            }
            let wanted = self.stated_len();
            if self.left == 0 || self.bytes.len() - self.at >= wanted {
                return Ok(problem);
            }
            self.fill(wanted)?;
        }
    }

    /// Looks for valid entries from here to the end, whatever lies between them.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn scan(&mut self) -> Result<Behind, StoreError> {
        let (mut behind, mut first) = (Behind::default(), true);
        loop {
            while let Some(word) = self.bytes[self.at..].get(POSITION_AT..ENTRY_HEADER_BYTES) {
                // What is stated is compared first: this runs on every byte of a recycled segment at each start.
                if word.first_chunk::<8>() == Some(&self.position().0.to_le_bytes()) {
                    let wanted = self.stated_len();
                    if self.left > 0 && self.bytes.len() - self.at < wanted {
                        self.fill(wanted)?;
                        continue;
                    }
                    if let Ok(entry) = read_entry(&self.bytes[self.at..], self.position()) {
                        behind.mark = behind.mark.max(Some(entry.mark));
                        behind.operations += u64::from(matches!(entry.payload, Payload::Transaction { .. }));
                        self.at += entry.len;
                        continue;
                    }
                }
                // Zeros state position 0, which is that of no entry but the first: the next that can begin has a part of its position behind them.
                self.at += match word.first_chunk::<8>() {
                    Some([0, 0, 0, 0, 0, 0, 0, 0]) => zeros(&self.bytes[self.at + POSITION_AT..]) - 7,
                    _ => 1,
                };
            }
            if self.left == 0 {
                return Ok(behind);
            }
            self.skip_hole(first);
            first = false;
            self.fill(ENTRY_HEADER_BYTES)?;
        }
    }

    /// Bytes of the entry here as it states them, where it can be so long; else as many as it takes to tell.
    fn stated_len(&self) -> usize {
        let stated = self.bytes[self.at..].first_chunk::<4>().map_or(0, |len| u32::from_le_bytes(*len));
        let stated = stated as usize;
        if stated <= ENTRY_BYTES_MAX { stated.max(ENTRY_HEADER_BYTES) } else { ENTRY_HEADER_BYTES }
    }

    /// Reads on until `wanted` bytes from here are in memory, or all there are.
    fn fill(&mut self, wanted: usize) -> Result<(), StoreError> {
        self.bytes.drain(..self.at);
        self.start.0 += self.at as u64;
        self.at = 0;
        while self.bytes.len() < wanted && self.left > 0 {
            let (had, part) = (self.bytes.len(), self.left.min(PIECE_BYTES as u64));
            self.bytes.resize(had + part as usize, 0);
            let count = self.file.read_at(&mut self.bytes[had..], self.offset)?;
            self.bytes.truncate(had + count);
            // Nobody reads it again; and the next piece can have the same pages.
            self.file.drop_cache(self.offset, part);
            self.offset += count as u64;
            self.left = if count as u64 == part { self.left - part } else { 0 };
        }
        Ok(())
    }

    /// Goes past a hole where the file has one. Less than a header's bytes are in memory: none of them begins an entry, whose payload would be
    /// the hole's zeros. One that begins in the hole has its position, or part of it, behind.
    fn skip_hole(&mut self, first: bool) {
        if first {
            // What the system has read ahead of a reserved part that was never written would pass for data.
            self.file.drop_cache(self.offset, self.left);
        }
        // It saves time only: where it cannot be told, all is read.
        let hole = match self.file.seek(self.offset, false) {
            Ok(Some(data)) => data.saturating_sub(self.offset),
            Ok(None) => self.left,
            Err(_) => 0,
        };
        let skipped = hole.min(self.left).saturating_sub(ENTRY_HEADER_BYTES as u64);
        if skipped > 0 {
            self.start.0 += self.bytes.len() as u64 + skipped;
            self.bytes.clear();
            self.at = 0;
            self.offset += skipped;
            self.left -= skipped;
        }
    }
}

/// How many zeros `bytes` begins with.
fn zeros(bytes: &[u8]) -> usize {
    let (blocks, _) = bytes.as_chunks::<64>();
    let whole =
        blocks.iter().take_while(|block| block.iter().fold(0, |all, byte| all | byte) == 0).count() * 64;
    whole + bytes[whole..].iter().take_while(|byte| **byte == 0).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Disk;
    use crate::disk_sim::SimDisk;
    use proto::codec::Writer;
    use proto::journal::{TxnCluster, begin_entry, end_entry, put_mark, put_transaction};
    use stdx::{Prng, Wall};

    fn entry(at: u64, prng: &mut Prng) -> Vec<u8> {
        let mut w = Writer::new();
        let begun = begin_entry(&mut w, Position(at), Position(prng.below(at + 1)));
        if prng.chance(1, 2) {
            put_mark(&mut w);
        } else {
            put_transaction(&mut w, Wall(1), None, TxnCluster::default());
            w.raw(&vec![7; prng.below(3000) as usize]);
        }
        end_entry(&mut w, begun);
        w.0
    }

    /// Byte by byte over all of it at once.
    fn plain(bytes: &[u8], start: u64) -> (Option<Position>, u64) {
        let (mut at, mut mark, mut operations) = (0, None, 0);
        while at + ENTRY_HEADER_BYTES <= bytes.len() {
            match read_entry(&bytes[at..], Position(start + at as u64)) {
                Ok(entry) => {
                    mark = mark.max(Some(entry.mark));
                    operations += u64::from(matches!(entry.payload, Payload::Transaction { .. }));
                    at += entry.len;
                }
                Err(_) => at += 1,
            }
        }
        (mark, operations)
    }

    #[test]
    fn a_scan_by_pieces_and_past_holes_finds_what_one_byte_by_byte_does() {
        let mut found = 0;
        for seed in 0..12 {
            let mut prng = Prng::new(seed);
            let disk = SimDisk::new(seed);
            let file = disk.create("segment").expect("made");
            let (start, len) =
                ([0, 100, 255 << 20][seed as usize % 3], 3 * PIECE_BYTES as u64 + prng.below(9000));
            file.set_len(len).expect("long");
            let mut at = prng.below(2);
            while at < len {
                // Junk, zeros that are written, or a hole; then perhaps an entry, of this place or a stale one; many end or begin at a piece's border.
                let gap = [prng.below(40), prng.below(9000), prng.below(60_000)][prng.index(3)];
                let junk = vec![prng.below(2) as u8 * 9; gap as usize];
                if prng.chance(2, 3) {
                    file.write_at(&junk, at).expect("written");
                }
                at += gap;
                if prng.chance(1, 30) {
                    at = at.next_multiple_of(PIECE_BYTES as u64) - prng.below(30).min(at);
                }
                let stale = prng.below(4) / 3;
                let entry = entry(start + at + stale, &mut prng);
                if at + entry.len() as u64 <= len {
                    file.write_at(&entry, at).expect("written");
                }
                at += entry.len() as u64;
            }
            let mut bytes = vec![0; len as usize];
            assert_eq!(file.read_at(&mut bytes, 0).expect("read"), bytes.len());
            let (mark, operations) = plain(&bytes, start);
            found += operations;
            let behind = Stream::new(file, Position(start), 0, len).scan().expect("scanned");
            assert_eq!((behind.mark, behind.operations), (mark, operations), "seed {seed}");
        }
        assert!(found > 50, "{found}");
    }
}
