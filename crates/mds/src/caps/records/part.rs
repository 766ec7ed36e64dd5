//! One part of the table of records: open addressing with linear probing; a removal closes the gap.
//!
//! Absent: which part an inode is in.

use super::Holder;
use proto::Ino;
use proto::caps::Bits;
use stdx::Mono;
use stdx::hash::mix64;

/// In a record's bits: not granted again since the hand passed.
pub(super) const OLD: u16 = 1 << 15;
/// Slots a part begins with.
pub(super) const SLOTS_MIN: usize = 8;

/// Who holds what of an inode.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    /// `Ino::NONE`: free.
    pub(super) ino: Ino,
    pub(super) serial: u32,
    pub(super) place: u16,
    pub(super) bits: Bits,
}

const FREE: Record = Record { ino: Ino::NONE, serial: 0, place: 0, bits: Bits::NONE };

impl Record {
    pub(super) const fn held(self) -> Bits {
        Bits(self.bits.0 & !OLD)
    }

    pub(super) const fn holder(self) -> Holder {
        Holder { place: self.place, serial: self.serial }
    }
}

/// The slots of one part.
#[derive(Debug, Default)]
pub(super) struct Part {
    pub(super) slots: Vec<Record>,
    pub(super) used: usize,
    /// When the hand passed.
    pub(super) passed: Mono,
}

pub(super) fn hash_of(ino: Ino) -> u64 {
    mix64(ino.0)
}

impl Part {
    /// Where probing begins: the hash's share of the slots, of which there may be any number.
    fn home(&self, hash: u64) -> usize {
        (((hash & 0xFFFF_FFFF) * self.slots.len() as u64) >> 32) as usize
    }

    const fn next(&self, at: usize) -> usize {
        if at + 1 == self.slots.len() { 0 } else { at + 1 }
    }

    /// How many steps after `from` a place is.
    const fn steps(&self, from: usize, at: usize) -> usize {
        if at >= from { at - from } else { at + self.slots.len() - from }
    }

    /// The places of an inode's records.
    pub(super) fn places(&self, ino: Ino, hash: u64) -> impl Iterator<Item = usize> + '_ {
        let mut at = self.home(hash);
        std::iter::from_fn(move || {
            loop {
                let record = self.slots.get(at).filter(|record| record.ino != Ino::NONE)?;
                let here = at;
                at = self.next(at);
                if record.ino == ino {
                    return Some(here);
                }
            }
        })
    }

    pub(super) fn insert(&mut self, hash: u64, record: Record) {
        let mut at = self.home(hash);
        while self.slots[at].ino != Ino::NONE {
            at = self.next(at);
        }
        self.slots[at] = record;
        self.used += 1;
    }

    /// Frees a place and moves up what probed over it.
    pub(super) fn remove(&mut self, mut at: usize) {
        let mut next = self.next(at);
        while self.slots[next].ino != Ino::NONE {
            let home = self.home(hash_of(self.slots[next].ino));
            // It may stay where it is unless its way there leads over the gap.
            if self.steps(home, next) >= self.steps(at, next) {
                self.slots[at] = self.slots[next];
                at = next;
            }
            next = self.next(next);
        }
        self.slots[at] = FREE;
        self.used -= 1;
    }

    /// Makes room for one more, without the records of those who are gone.
    pub(super) fn reserve(&mut self, is_live: &impl Fn(Holder) -> bool) {
        if (self.used + 1) * 20 > self.slots.len() * 17 {
            self.resize(is_live);
        }
    }

    pub(super) fn resize(&mut self, is_live: impl Fn(Holder) -> bool) {
        let old = std::mem::take(&mut self.slots);
        let live: Vec<Record> =
            old.into_iter().filter(|record| record.ino != Ino::NONE && is_live(record.holder())).collect();
        // Between 71 and 85 of 100 are used, so that a record takes 19 to 23 bytes.
        let size = ((live.len() + 1) * 24 / 17).max(SLOTS_MIN);
        self.slots = vec![FREE; size];
        self.used = 0;
        for record in live {
            self.insert(hash_of(record.ino), record);
        }
    }
}
