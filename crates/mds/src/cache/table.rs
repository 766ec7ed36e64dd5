//! One directory's cached names in (hash, name) order: small sorted buckets behind a directory of
//! leading hash bits. Lookup and listing share it; a full bucket is split alone.
//!
//! Absent: names and hashes; they are in the nodes.

use super::node::Node;
use super::slab::Slab;
use proto::NameHash;
use std::cmp::Ordering;

const BUCKET_MAX: usize = 64;
/// Hashes are keyed and uniform: deeper splits mean equal hashes, which no split separates.
const DEPTH_MAX: u8 = 28;

struct Bucket {
    depth: u8,
    /// (upper half of the hash, slot).
    entries: Vec<(u32, u32)>,
}

/// The table.
pub(crate) struct Table {
    depth: u8,
    directory: Vec<u32>,
    buckets: Vec<Bucket>,
    len: u32,
}

/// Where a name is, or belongs. Good until the table changes.
#[derive(Clone, Copy)]
pub(crate) struct Spot {
    bucket: usize,
    at: usize,
}

fn upper(hash: NameHash) -> u32 {
    (hash.0 >> 32) as u32
}

impl Table {
    pub(crate) const fn new() -> Self {
        Self { depth: 0, directory: Vec::new(), buckets: Vec::new(), len: 0 }
    }

    pub(crate) const fn len(&self) -> u32 {
        self.len
    }

    fn top(&self, hash: NameHash) -> usize {
        if self.depth == 0 { 0 } else { (hash.0 >> (64 - u32::from(self.depth))) as usize }
    }

    fn bucket(&self, top: usize) -> usize {
        if self.depth == 0 { 0 } else { self.directory[top] as usize }
    }

    /// Where a name is, or belongs. Hashes are uniform, so that is near where its share of the bucket's hashes says, nearer than
    /// halving would come in as many looks.
    fn position(bucket: &Bucket, hash: NameHash, name: &[u8], nodes: &Slab<Node>) -> Result<usize, usize> {
        let (entries, want) = (bucket.entries.as_slice(), upper(hash));
        let share = u64::from(want << bucket.depth) * entries.len() as u64;
        let mut at = (share >> 32) as usize;
        while at > 0 && entries[at - 1].0 >= want {
            at -= 1;
        }
        for (upper, slot) in &entries[at..] {
            let order = upper.cmp(&want).then_with(|| {
                let node = nodes.get(*slot);
                node.hash.cmp(&hash).then_with(|| node.name.as_bytes().cmp(name))
            });
            match order {
                Ordering::Less => at += 1,
                Ordering::Equal => return Ok(at),
                Ordering::Greater => break,
            }
        }
        Err(at)
    }

    /// The slot of a name; and where it is, or belongs.
    #[inline]
    pub(crate) fn seek(&self, hash: NameHash, name: &[u8], nodes: &Slab<Node>) -> (Option<u32>, Spot) {
        let which = self.bucket(self.top(hash));
        let Some(bucket) = self.buckets.get(which) else { return (None, Spot { bucket: 0, at: 0 }) };
        match Self::position(bucket, hash, name, nodes) {
            Ok(at) => (Some(bucket.entries[at].1), Spot { bucket: which, at }),
            Err(at) => (None, Spot { bucket: which, at }),
        }
    }

    /// Adds a node whose name is not there; `spot` is where it belongs.
    pub(crate) fn insert(&mut self, slot: u32, mut spot: Spot, nodes: &Slab<Node>) {
        let node = nodes.get(slot);
        let hash = node.hash;
        if self.buckets.is_empty() {
            self.buckets.push(Bucket { depth: 0, entries: Vec::new() });
        }
        let is_full = |bucket: &Bucket| bucket.entries.len() >= BUCKET_MAX && bucket.depth < DEPTH_MAX;
        while is_full(&self.buckets[spot.bucket]) {
            self.split(spot.bucket, hash);
            spot = self.seek(hash, node.name.as_bytes(), nodes).1;
        }
        self.buckets[spot.bucket].entries.insert(spot.at, (upper(hash), slot));
        self.len += 1;
    }

    fn split(&mut self, which: usize, hash: NameHash) {
        let depth = self.buckets[which].depth;
        if depth == self.depth {
            self.directory = if self.depth == 0 {
                vec![0, 0]
            } else {
                self.directory.iter().flat_map(|b| [*b, *b]).collect()
            };
            self.depth += 1;
        }
        let bit = 31 - u32::from(depth);
        let bucket = &mut self.buckets[which];
        let at = bucket.entries.partition_point(|(upper, _)| (upper >> bit) & 1 == 0);
        let mut high = Vec::with_capacity(BUCKET_MAX);
        high.extend_from_slice(&bucket.entries[at..]);
        bucket.entries.truncate(at);
        bucket.depth += 1;
        let new = self.buckets.len() as u32;
        self.buckets.push(Bucket { depth: depth + 1, entries: high });
        let span = 1_usize << (self.depth - depth);
        let base = self.top(hash) & !(span - 1);
        for place in &mut self.directory[base + span / 2..base + span] {
            *place = new;
        }
    }

    /// Takes a node out.
    pub(crate) fn remove(&mut self, slot: u32, nodes: &Slab<Node>) {
        let node = nodes.get(slot);
        let which = self.bucket(self.top(node.hash));
        let bucket = &mut self.buckets[which];
        if let Ok(at) = Self::position(bucket, node.hash, node.name.as_bytes(), nodes) {
            bucket.entries.remove(at);
            self.len -= 1;
        }
        if self.len == 0 {
            *self = Self::new();
        }
    }

    /// Visits slots in (hash, name) order from hash `from` on until `visit` says stop.
    pub(crate) fn walk(&self, from: NameHash, nodes: &Slab<Node>, mut visit: impl FnMut(u32) -> bool) {
        if self.buckets.is_empty() {
            return;
        }
        let mut top = self.top(from);
        let tops = if self.depth == 0 { 1 } else { self.directory.len() };
        while top < tops {
            let bucket = &self.buckets[self.bucket(top)];
            let start = bucket.entries.partition_point(|(up, slot)| {
                *up < upper(from) || (*up == upper(from) && nodes.get(*slot).hash < from)
            });
            for (_, slot) in &bucket.entries[start..] {
                if !visit(*slot) {
                    return;
                }
            }
            // The next bucket begins behind the last directory place of this one.
            let span = 1_usize << (self.depth - bucket.depth);
            top = (top & !(span - 1)) + span;
        }
    }
}
