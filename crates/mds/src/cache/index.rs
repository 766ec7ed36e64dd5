//! Number -> slot by extendible hashing: segments of 32 groups behind a directory of leading hash bits. A full segment is split
//! alone, so no insertion touches more than one segment. A group is a cache line of twelve slots with a byte of each one's
//! hash, so that of other keys hardly one is looked at, and counts what found it full and went on: a search ends where nothing
//! did (the scheme of Facebook's F14, <https://engineering.fb.com/2019/04/25/developer-tools/f14/>). Numbers that follow each
//! other are given out one after the other, and asked for so: runs of four share a group, and what misses the processor's
//! caches is there for three more.
//!
//! Absent: keys; the caller reads them from the slots' owner.

use stdx::hash::mix64;

const GROUPS: usize = 32;
const GROUP: usize = 12;
/// So many of a segment's 384 places are taken before it is split: a fuller one has long ways.
const SEGMENT_MAX: u16 = 320;
/// Keys that share a group: a third of what it holds, so that few groups are found full.
const RUN: u64 = 4;
const TAG_SHIFT: u32 = 16;
/// The tag of a free place.
const FREE: u8 = 0;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Group {
    tags: [u8; GROUP],
    /// Keys of this group, or of those before it, that are in a later one.
    passed: u32,
    slots: [u32; GROUP],
}

const _: () = assert!(size_of::<Group>() == 64);

struct Segment {
    depth: u8,
    len: u16,
    groups: Box<[Group; GROUPS]>,
}

/// The keys of a run differ in the tag only.
const fn hash_of(key: u64) -> u64 {
    let own = (key % RUN) << TAG_SHIFT;
    (mix64(key / RUN) & !((RUN - 1) << TAG_SHIFT)) | own
}

const fn group_of(hash: u64) -> usize {
    hash as usize % GROUPS
}

/// Never `FREE`; of other bits than the group and, in an index of less than 2^40 keys, the directory.
const fn tag_of(hash: u64) -> u8 {
    let tag = (hash >> TAG_SHIFT) as u8;
    if tag == FREE { 1 } else { tag }
}

impl Segment {
    fn new(depth: u8) -> Self {
        let empty = Group { tags: [FREE; GROUP], passed: 0, slots: [0; GROUP] };
        Self { depth, len: 0, groups: Box::new([empty; GROUPS]) }
    }

    /// There is a free place: a segment is split before all are taken.
    fn put(&mut self, hash: u64, slot: u32) {
        let mut at = group_of(hash);
        loop {
            let group = &mut self.groups[at];
            if let Some(place) = group.tags.iter().position(|tag| *tag == FREE) {
                group.tags[place] = tag_of(hash);
                group.slots[place] = slot;
                self.len += 1;
                return;
            }
            group.passed += 1;
            at = (at + 1) % GROUPS;
        }
    }

    /// The first slot of this hash that `wanted` says yes to: its group and place.
    #[inline]
    fn locate(&self, hash: u64, wanted: impl Fn(u32) -> bool) -> Option<(usize, usize)> {
        let tag = tag_of(hash);
        let mut at = group_of(hash);
        for _ in 0..GROUPS {
            let group = &self.groups[at];
            for place in 0..GROUP {
                if group.tags[place] == tag && wanted(group.slots[place]) {
                    return Some((at, place));
                }
            }
            if group.passed == 0 {
                return None;
            }
            at = (at + 1) % GROUPS;
        }
        None
    }

    fn slots(&self) -> impl Iterator<Item = u32> {
        self.groups.iter().flat_map(|group| {
            group.tags.iter().zip(group.slots).filter(|(tag, _)| **tag != FREE).map(|(_, slot)| slot)
        })
    }
}

/// The index.
pub(crate) struct Index {
    depth: u8,
    directory: Vec<u32>,
    segments: Vec<Segment>,
    len: u64,
}

impl Index {
    pub(crate) fn new() -> Self {
        Self { depth: 0, directory: vec![0], segments: vec![Segment::new(0)], len: 0 }
    }

    /// How many keys are in it.
    pub(crate) const fn len(&self) -> u64 {
        self.len
    }

    fn segment_of(&self, hash: u64) -> usize {
        let top = if self.depth == 0 { 0 } else { (hash >> (64 - u32::from(self.depth))) as usize };
        self.directory[top] as usize
    }

    /// The slot whose key is `key`.
    #[inline]
    pub(crate) fn find(&self, key: u64, key_of: impl Fn(u32) -> u64) -> Option<u32> {
        let hash = hash_of(key);
        let segment = &self.segments[self.segment_of(hash)];
        let (group, place) = segment.locate(hash, |slot| key_of(slot) == key)?;
        Some(segment.groups[group].slots[place])
    }

    /// Adds a key that is not there.
    pub(crate) fn insert(&mut self, key: u64, slot: u32, key_of: impl Fn(u32) -> u64) {
        let hash = hash_of(key);
        let mut segment = self.segment_of(hash);
        while self.segments[segment].len >= SEGMENT_MAX {
            self.split(segment, hash, &key_of);
            segment = self.segment_of(hash);
        }
        self.segments[segment].put(hash, slot);
        self.len += 1;
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
        // All keys before anything depends on one: where they are far away in memory the processor fetches many at a time.
        let mut moved = [(0, 0); GROUPS * GROUP];
        let keys = moved.iter_mut().zip(old.slots());
        let count = keys.map(|(place, slot)| *place = (key_of(slot), slot)).count();
        for (key, slot) in &moved[..count] {
            let hash = hash_of(*key);
            let upper = (hash >> (63 - u32::from(depth))) & 1 == 1;
            self.segments[if upper { new as usize } else { segment }].put(hash, *slot);
        }
    }

    /// Takes a key out; nothing else moves.
    pub(crate) fn remove(&mut self, key: u64, slot: u32) {
        let hash = hash_of(key);
        let which = self.segment_of(hash);
        let segment = &mut self.segments[which];
        let Some((found, place)) = segment.locate(hash, |other| other == slot) else { return };
        segment.groups[found].tags[place] = FREE;
        segment.len -= 1;
        self.len -= 1;
        let mut at = group_of(hash);
        while at != found {
            segment.groups[at].passed -= 1;
            at = (at + 1) % GROUPS;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stdx::Prng;

    fn keys(count: usize) -> Vec<u64> {
        let mut prng = Prng::new(1);
        (0..count).map(|_| prng.next_u64()).collect()
    }

    #[test]
    fn finds_what_is_in_and_not_what_was_taken_out() {
        let keys = keys(50_000);
        let key_of = |slot: u32| keys[slot as usize];
        let mut index = Index::new();
        let mut is_in = vec![false; keys.len()];
        let mut prng = Prng::new(2);
        for _ in 0..200_000 {
            let slot = prng.below(keys.len() as u64) as usize;
            match is_in[slot] {
                true => index.remove(keys[slot], slot as u32),
                false => index.insert(keys[slot], slot as u32, key_of),
            }
            is_in[slot] = !is_in[slot];
        }
        assert_eq!(index.len(), is_in.iter().filter(|is_in| **is_in).count() as u64);
        for (slot, is_in) in is_in.iter().enumerate() {
            assert_eq!(index.find(keys[slot], key_of), is_in.then_some(slot as u32));
        }
        for (slot, key) in keys.iter().enumerate().filter(|(slot, _)| is_in[*slot]) {
            index.remove(*key, slot as u32);
        }
        let passed = index.segments.iter().flat_map(|s| s.groups.iter()).map(|group| group.passed);
        assert_eq!(passed.sum::<u32>(), 0, "or searches would go on for nothing");
    }

    #[test]
    fn keys_in_a_row_are_found_near_where_they_belong() {
        let keys: Vec<u64> = (0..100_000).collect();
        let key_of = |slot: u32| keys[slot as usize];
        let mut index = Index::new();
        keys.iter().for_each(|key| index.insert(*key, *key as u32, key_of));
        let ways = keys.iter().map(|key| {
            let hash = hash_of(*key);
            let segment = &index.segments[index.segment_of(hash)];
            let (found, _) = segment.locate(hash, |slot| key_of(slot) == *key).expect("it is there");
            (found + GROUPS - group_of(hash)) % GROUPS
        });
        let ways: usize = ways.sum();
        assert!(ways < keys.len() / 2, "{ways} groups passed");
    }

    #[test]
    fn hardly_any_other_key_is_looked_at() {
        let keys = keys(100_000);
        let looks = std::cell::Cell::new(0_u64);
        let key_of = |slot: u32| {
            looks.set(looks.get() + 1);
            keys[slot as usize]
        };
        let mut index = Index::new();
        for (slot, key) in keys.iter().enumerate() {
            index.insert(*key, slot as u32, |slot| keys[slot as usize]);
        }
        for key in &keys {
            index.find(key ^ 1, key_of);
        }
        assert!(looks.get() < keys.len() as u64 / 10, "{} looks at keys that are not wanted", looks.get());
    }
}
