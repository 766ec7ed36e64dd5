//! Number -> slot by extendible hashing: segments of 512 open-addressed slots behind a directory of
//! leading hash bits. A full segment is split alone, so no insertion touches more than one segment.
//!
//! Absent: keys; the caller reads them from the slots' owner.

use super::slab::NONE;
use stdx::hash::mix64;

const SEGMENT: usize = 512;
const SEGMENT_MAX: u16 = 384;

struct Segment {
    depth: u8,
    len: u16,
    slots: Box<[u32; SEGMENT]>,
}

impl Segment {
    fn new(depth: u8) -> Self {
        Self { depth, len: 0, slots: Box::new([NONE; SEGMENT]) }
    }

    fn put(&mut self, hash: u64, slot: u32) {
        let mut at = hash as usize % SEGMENT;
        while self.slots[at] != NONE {
            at = (at + 1) % SEGMENT;
        }
        self.slots[at] = slot;
        self.len += 1;
    }
}

/// The index.
pub(crate) struct Index {
    depth: u8,
    directory: Vec<u32>,
    segments: Vec<Segment>,
}

impl Index {
    pub(crate) fn new() -> Self {
        Self { depth: 0, directory: vec![0], segments: vec![Segment::new(0)] }
    }

    fn segment_of(&self, hash: u64) -> usize {
        let top = if self.depth == 0 { 0 } else { (hash >> (64 - u32::from(self.depth))) as usize };
        self.directory[top] as usize
    }

    /// The slot whose key is `key`.
    #[inline]
    pub(crate) fn find(&self, key: u64, key_of: impl Fn(u32) -> u64) -> Option<u32> {
        let hash = mix64(key);
        let segment = &self.segments[self.segment_of(hash)];
        let mut at = hash as usize % SEGMENT;
        loop {
            let slot = segment.slots[at];
            if slot == NONE {
                return None;
            }
            if key_of(slot) == key {
                return Some(slot);
            }
            at = (at + 1) % SEGMENT;
        }
    }

    /// Adds a key that is not there.
    pub(crate) fn insert(&mut self, key: u64, slot: u32, key_of: impl Fn(u32) -> u64) {
        let hash = mix64(key);
        let mut segment = self.segment_of(hash);
        while self.segments[segment].len >= SEGMENT_MAX {
            self.split(segment, hash, &key_of);
            segment = self.segment_of(hash);
        }
        self.segments[segment].put(hash, slot);
    }

    fn split(&mut self, segment: usize, hash: u64, key_of: &impl Fn(u32) -> u64) {
        let depth = self.segments[segment].depth;
        if depth == self.depth {
            self.directory = self.directory.iter().flat_map(|s| [*s, *s]).collect();
            self.depth += 1;
        }
        let new = self.segments.len() as u32;
        let old = std::mem::replace(&mut self.segments[segment], Segment::new(depth + 1));
        self.segments.push(Segment::new(depth + 1));
        let span = 1_usize << (self.depth - depth);
        let top = (hash >> (64 - u32::from(self.depth))) as usize;
        let base = top & !(span - 1);
        for place in &mut self.directory[base + span / 2..base + span] {
            *place = new;
        }
        for slot in old.slots.iter().copied().filter(|slot| *slot != NONE) {
            let hash = mix64(key_of(slot));
            let upper = (hash >> (63 - u32::from(depth))) & 1 == 1;
            self.segments[if upper { new as usize } else { segment }].put(hash, slot);
        }
    }

    /// Takes a key out; the slots behind it close up.
    pub(crate) fn remove(&mut self, key: u64, slot: u32, key_of: impl Fn(u32) -> u64) {
        let hash = mix64(key);
        let which = self.segment_of(hash);
        let segment = &mut self.segments[which];
        let mut at = hash as usize % SEGMENT;
        loop {
            if segment.slots[at] == NONE {
                return;
            }
            if segment.slots[at] == slot {
                break;
            }
            at = (at + 1) % SEGMENT;
        }
        segment.len -= 1;
        let mut hole = at;
        loop {
            at = (at + 1) % SEGMENT;
            let moved = segment.slots[at];
            if moved == NONE {
                break;
            }
            let home = mix64(key_of(moved)) as usize % SEGMENT;
            let reach = (at + SEGMENT - home) % SEGMENT;
            if reach >= (at + SEGMENT - hole) % SEGMENT {
                segment.slots[hole] = moved;
                hole = at;
            }
        }
        segment.slots[hole] = NONE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stdx::Prng;

    #[test]
    fn finds_what_is_in_and_not_what_was_taken_out() {
        let mut prng = Prng::new(1);
        let keys: Vec<u64> = (0..50_000).map(|_| prng.next_u64()).collect();
        let key_of = |slot: u32| keys[slot as usize];
        let mut index = Index::new();
        for slot in 0..keys.len() as u32 {
            index.insert(keys[slot as usize], slot, key_of);
        }
        for slot in (0..keys.len() as u32).step_by(3) {
            index.remove(keys[slot as usize], slot, key_of);
        }
        for slot in 0..keys.len() as u32 {
            let found = index.find(keys[slot as usize], key_of);
            assert_eq!(found, (slot % 3 != 0).then_some(slot));
        }
    }
}
