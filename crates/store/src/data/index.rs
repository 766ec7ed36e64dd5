//! Where each packed file's newest record is: 256 open-addressing tables of 32-byte slots, so that
//! growing one never moves more than a 256th of all entries at once.
//!
//! Absent: content, and anything about files in block form.

use super::record::Seqs;
use proto::{FileId, Ino};
use stdx::hash::mix64;

/// A record's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) segment: u32,
    /// Bytes from the start of the segment; a multiple of 8 below 64 MiB.
    pub(super) offset: u32,
    /// Bytes of the body.
    pub(super) len: u32,
}

/// A packed file and its newest record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) file: FileId,
    pub(super) seqs: Seqs,
    pub(super) place: Place,
}

/// Number of tables.
pub(super) const TABLES: usize = 256;

const LEN_LOW_BITS: u32 = 9;
const OFFSET_BITS: u32 = 23;

/// An entry in 32 bytes. `ino` 0 is an empty slot (no file has it). `write` = 56 bits of write
/// sequence below 8 high bits of the length; `place` = segment (32), offset / 8 (23), length's low 9.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    ino: u64,
    generation: u32,
    truncate: u32,
    write: u64,
    place: u64,
}

impl Slot {
    fn pack(entry: &Entry) -> Self {
        let Place { segment, offset, len } = entry.place;
        debug_assert!(offset % 8 == 0 && offset < (64 << 20) && len < (1 << 17));
        debug_assert!(entry.seqs.write < (1 << 56));
        let low = u64::from(len) & ((1 << LEN_LOW_BITS) - 1);
        let high = u64::from(len) >> LEN_LOW_BITS;
        Self {
            ino: entry.file.ino.0,
            generation: entry.file.generation,
            truncate: entry.seqs.truncate,
            write: entry.seqs.write | (high << 56),
            place: (u64::from(segment) << 32) | (u64::from(offset / 8) << LEN_LOW_BITS) | low,
        }
    }

    fn unpack(&self) -> Entry {
        let len = ((self.write >> 56) << LEN_LOW_BITS) | (self.place & ((1 << LEN_LOW_BITS) - 1));
        let offset = ((self.place >> LEN_LOW_BITS) & ((1 << OFFSET_BITS) - 1)) * 8;
        Entry {
            file: FileId { ino: Ino(self.ino), generation: self.generation },
            seqs: Seqs { truncate: self.truncate, write: self.write & ((1 << 56) - 1) },
            place: Place { segment: (self.place >> 32) as u32, offset: offset as u32, len: len as u32 },
        }
    }

    const fn is_of(&self, file: FileId) -> bool {
        self.ino == file.ino.0 && self.generation == file.generation
    }
}

fn hash(file: FileId) -> u64 {
    mix64(file.ino.0 ^ u64::from(file.generation).rotate_left(40))
}

#[derive(Debug, Default)]
struct Table {
    slots: Vec<Slot>,
    used: usize,
}

impl Table {
    /// The slot where the probe for this hash starts: order of slots is order of hashes.
    fn home(&self, hash: u64) -> usize {
        (((hash << 8) >> 32) as usize * self.slots.len()) >> 32
    }

    /// The slot of the file, or the empty slot where it would go; `None` for an empty table.
    fn probe(&self, file: FileId) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        let mut at = self.home(hash(file));
        while self.slots[at].ino != 0 && !self.slots[at].is_of(file) {
            at = (at + 1) % self.slots.len();
        }
        Some(at)
    }

    fn find(&self, file: FileId) -> Option<usize> {
        self.probe(file).filter(|&at| self.slots[at].ino != 0)
    }

    fn put(&mut self, slot: Slot, file: FileId) -> Option<Slot> {
        if (self.used + 1) * 20 > self.slots.len() * 17 {
            self.resize((self.slots.len() + self.slots.len() / 4).max(self.used + 8));
        }
        let at = self.probe(file)?;
        let old = std::mem::replace(&mut self.slots[at], slot);
        if old.ino == 0 {
            self.used += 1;
            return None;
        }
        Some(old)
    }

    fn remove(&mut self, file: FileId) -> Option<Slot> {
        let mut hole = self.find(file)?;
        let removed = std::mem::take(&mut self.slots[hole]);
        self.used -= 1;
        // Close the gap: move back every follower whose probe passes over the hole.
        let len = self.slots.len();
        let mut at = (hole + 1) % len;
        while self.slots[at].ino != 0 {
            let home = self.home(hash(self.slots[at].unpack().file));
            if (at + len - home) % len >= (at + len - hole) % len {
                self.slots[hole] = std::mem::take(&mut self.slots[at]);
                hole = at;
            }
            at = (at + 1) % len;
        }
        if self.used * 4 < len && len > 64 {
            self.resize(self.used * 3 / 2 + 8);
        }
        Some(removed)
    }

    fn resize(&mut self, len: usize) {
        let old = std::mem::replace(&mut self.slots, vec![Slot::default(); len]);
        for slot in old.into_iter().filter(|slot| slot.ino != 0) {
            if let Some(at) = self.probe(slot.unpack().file) {
                self.slots[at] = slot;
            }
        }
    }
}

/// All packed files.
#[derive(Debug)]
pub(super) struct Index {
    tables: Vec<Table>,
    used: usize,
}

impl Index {
    pub(super) fn new() -> Self {
        Self { tables: (0..TABLES).map(|_| Table::default()).collect(), used: 0 }
    }

    fn table(file: FileId) -> usize {
        (hash(file) >> 56) as usize
    }

    pub(super) fn get(&self, file: FileId) -> Option<Entry> {
        let table = &self.tables[Self::table(file)];
        table.find(file).map(|at| table.slots[at].unpack())
    }

    /// Sets a file's record; returns the one it replaces.
    pub(super) fn put(&mut self, entry: Entry) -> Option<Entry> {
        debug_assert!(entry.file.ino != Ino::NONE);
        let old = self.tables[Self::table(entry.file)].put(Slot::pack(&entry), entry.file);
        self.used += usize::from(old.is_none());
        old.map(|slot| slot.unpack())
    }

    pub(super) fn remove(&mut self, file: FileId) -> Option<Entry> {
        let old = self.tables[Self::table(file)].remove(file);
        self.used -= usize::from(old.is_some());
        old.map(|slot| slot.unpack())
    }

    /// Entries of one of the `TABLES` tables, in hash order.
    pub(super) fn entries(&self, table: usize) -> impl Iterator<Item = Entry> {
        self.tables[table].slots.iter().filter(|slot| slot.ino != 0).map(Slot::unpack)
    }

    pub(super) const fn len(&self) -> usize {
        self.used
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use stdx::Prng;

    #[test]
    fn a_slot_has_32_bytes_and_keeps_the_largest_values() {
        assert_eq!(size_of::<Slot>(), 32);
        let entry = Entry {
            file: FileId { ino: Ino(u64::MAX >> 1), generation: u32::MAX },
            seqs: Seqs { truncate: u32::MAX, write: (1 << 56) - 1 },
            place: Place { segment: u32::MAX, offset: (64 << 20) - 8, len: (1 << 17) - 1 },
        };
        assert_eq!(Slot::pack(&entry).unpack(), entry);
    }

    #[test]
    fn the_index_agrees_with_a_map_under_random_changes() {
        let mut rng = Prng::new(5);
        let (mut index, mut map) = (Index::new(), BTreeMap::new());
        for step in 0..200_000_u32 {
            let file = FileId { ino: Ino(1 + rng.below(9000)), generation: rng.below(2) as u32 };
            if rng.chance(if step < 100_000 { 1 } else { 3 }, 4) {
                assert_eq!(index.remove(file), map.remove(&file));
            } else {
                let place = Place { segment: step, offset: 64, len: 9 };
                let entry = Entry { file, seqs: Seqs { truncate: 0, write: u64::from(step) }, place };
                assert_eq!(index.put(entry), map.insert(file, entry));
            }
            let probe = FileId { ino: Ino(1 + rng.below(9000)), generation: 0 };
            assert_eq!(index.get(probe), map.get(&probe).copied());
            assert_eq!(index.len(), map.len());
        }
        let listed: usize = (0..TABLES).map(|table| index.entries(table).count()).sum();
        assert_eq!(listed, map.len());
    }

    #[test]
    fn a_million_entries_take_at_most_48_bytes_each_and_shrink_again() {
        let mut index = Index::new();
        let entry = |ino| Entry {
            file: FileId { ino: Ino(ino), generation: 0 },
            seqs: Seqs::default(),
            place: Place { segment: 0, offset: 64, len: 0 },
        };
        (1..=1_000_000).for_each(|ino| assert!(index.put(entry(ino)).is_none()));
        let bytes = |index: &Index| index.tables.iter().map(|table| table.slots.len() * 32).sum::<usize>();
        assert!(bytes(&index) < 48_000_000, "{}", bytes(&index));
        (1..=990_000).for_each(|ino| assert!(index.remove(entry(ino).file).is_some()));
        assert!(bytes(&index) < 2_000_000, "{}", bytes(&index));
    }
}
