//! A namespace that is a function of numbers: directories in levels, each with as many below it, and files in those of the last level.
//!
//! Names say which child they are, so the hash of a name is the same in every directory: one table serves all of them.
//!
//! Absent: records and changes (`store.rs`).

use proto::name::name_hash;
use proto::{Ino, NameHash, NodeRef, RankId};
use stdx::hash::HashSeed;

/// The counter of the first number that is generated: below are what rank 0 had given out before.
pub(super) const FIRST: u64 = 1 << 20;

/// What a generated number is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    /// Of a level, counted over the whole level.
    Dir { level: usize, index: u64 },
    /// In the leaf of that number.
    File { leaf: u64, at: u64 },
}

/// The names of children, by number and by hash.
#[derive(Debug)]
struct Names {
    letter: u8,
    hashes: Vec<NameHash>,
    /// Numbers in the order of the hashes.
    sorted: Vec<(NameHash, u64)>,
}

impl Names {
    fn new(seed: &HashSeed, letter: u8, count: u64) -> Self {
        let hashes: Vec<NameHash> = (0..count).map(|at| name_hash(seed, &name_of(letter, at))).collect();
        let mut sorted: Vec<_> = hashes.iter().copied().zip(0..).collect();
        sorted.sort_unstable_by_key(|(hash, at)| (*hash, name_of(letter, *at)));
        Self { letter, hashes, sorted }
    }
}

/// A letter and six hexadecimal digits.
fn name_of(letter: u8, at: u64) -> [u8; 7] {
    let mut name = [letter; 7];
    for (place, byte) in name.iter_mut().enumerate().skip(1) {
        *byte = b"0123456789abcdef"[(at >> (24 - 4 * place) & 0xF) as usize];
    }
    name
}

/// The shape.
#[derive(Debug)]
pub(super) struct Layout {
    /// Directories of each level in one of the level above; the first level is in root.
    fans: Vec<u64>,
    /// Files in each directory of the last level.
    files: u64,
    /// Directories of a level, and the counter of the first of them; behind the last level: files.
    counts: Vec<(u64, u64)>,
    dirs: Vec<Names>,
    leaves: Names,
}

impl Layout {
    /// `fans` is not empty.
    pub(super) fn new(seed: &HashSeed, fans: &[u64], files: u64) -> Self {
        let mut counts = Vec::new();
        let (mut first, mut count) = (FIRST, 1);
        for fan in fans {
            count *= fan;
            counts.push((count, first));
            first += count;
        }
        counts.push((count * files, first));
        let dirs = fans.iter().map(|fan| Names::new(seed, b'd', *fan)).collect();
        Self { fans: fans.to_vec(), files, counts, dirs, leaves: Names::new(seed, b'f', files) }
    }

    /// The counter behind all of it.
    pub(super) fn end(&self) -> u64 {
        self.counts.last().map_or(FIRST, |(count, first)| first + count)
    }

    pub(super) fn levels(&self) -> usize {
        self.fans.len()
    }

    /// Directories of a level.
    pub(super) fn dirs(&self, level: usize) -> u64 {
        self.counts[level].0
    }

    /// Of the last level.
    pub(super) fn leaves(&self) -> u64 {
        self.dirs(self.levels() - 1)
    }

    /// Files in each of them.
    pub(super) const fn files(&self) -> u64 {
        self.files
    }

    pub(super) fn dir(&self, level: usize, index: u64) -> Ino {
        Ino::of_rank(RankId(0), self.counts[level].1 + index)
    }

    fn file(&self, leaf: u64, at: u64) -> Ino {
        Ino::of_rank(RankId(0), self.counts[self.levels()].1 + leaf * self.files + at)
    }

    /// What that number is, if it is generated.
    pub(super) fn node(&self, ino: Ino) -> Option<Node> {
        let level = self.counts.iter().position(|(count, first)| (*first..first + count).contains(&ino.0))?;
        let index = ino.0 - self.counts[level].1;
        Some(if level == self.levels() {
            Node::File { leaf: index / self.files, at: index % self.files }
        } else {
            Node::Dir { level, index }
        })
    }

    /// The level and number of the directory above; none: that is root.
    pub(super) fn above(&self, level: usize, index: u64) -> Option<(usize, u64)> {
        Some((level.checked_sub(1)?, index / self.fans[level]))
    }

    /// The directory that holds a directory of that level.
    pub(super) fn parent(&self, level: usize, index: u64) -> Ino {
        self.above(level, index).map_or(Ino::ROOT, |(level, index)| self.dir(level, index))
    }

    /// The name of a directory.
    pub(super) fn dir_name(&self, level: usize, index: u64) -> ([u8; 7], NameHash) {
        let at = index % self.fans[level];
        (name_of(b'd', at), self.dirs[level].hashes[at as usize])
    }

    pub(super) fn dir_ref(&self, level: usize, index: u64) -> NodeRef {
        let (_, hash) = self.dir_name(level, index);
        NodeRef { ino: self.dir(level, index), parent: self.parent(level, index), hash }
    }

    /// The `index`th of the last level.
    pub(super) fn leaf_ref(&self, index: u64) -> NodeRef {
        self.dir_ref(self.levels() - 1, index)
    }

    pub(super) fn file_name(at: u64) -> [u8; 7] {
        name_of(b'f', at)
    }

    /// What a directory's children are: the names, and the level and number of the first; of a leaf there is no level.
    fn children(&self, dir: Ino) -> Option<(&Names, Option<usize>, u64)> {
        if dir == Ino::ROOT {
            return Some((&self.dirs[0], Some(0), 0));
        }
        match self.node(dir)? {
            Node::Dir { level, index } if level + 1 == self.levels() => Some((&self.leaves, None, index)),
            Node::Dir { level, index } => {
                Some((&self.dirs[level + 1], Some(level + 1), index * self.fans[level + 1]))
            }
            Node::File { .. } => None,
        }
    }

    /// How many children a directory has, and whether they are directories.
    pub(super) fn child_count(&self, dir: Ino) -> Option<(u64, bool)> {
        let (names, level, _) = self.children(dir)?;
        Some((names.hashes.len() as u64, level.is_some()))
    }

    /// The children of a directory in the order of hash and name, from a hash on: hash, name, number.
    pub(super) fn scan(
        &self,
        dir: Ino,
        from: NameHash,
    ) -> impl Iterator<Item = (NameHash, [u8; 7], Ino)> + '_ {
        let found = self.children(dir).into_iter();
        found.flat_map(move |(names, level, first)| {
            let begin = names.sorted.partition_point(|(hash, _)| *hash < from);
            names.sorted[begin..].iter().map(move |(hash, at)| {
                let ino = match level {
                    Some(level) => self.dir(level, first + at),
                    None => self.file(first, *at),
                };
                (*hash, name_of(names.letter, *at), ino)
            })
        })
    }

    /// The child of that name.
    pub(super) fn child(&self, dir: Ino, hash: NameHash, name: &[u8]) -> Option<Ino> {
        self.scan(dir, hash)
            .take_while(|(of, ..)| *of == hash)
            .find(|(_, of, _)| of == name)
            .map(|found| found.2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: HashSeed = HashSeed([7; 16]);

    #[test]
    fn numbers_and_names_lead_to_each_other() {
        let layout = Layout::new(&SEED, &[5, 3], 10);
        assert_eq!((layout.leaves(), layout.end()), (15, FIRST + 5 + 15 + 150));
        let mut seen = Vec::new();
        for (hash, name, top) in layout.scan(Ino::ROOT, NameHash(0)) {
            assert_eq!(layout.child(Ino::ROOT, hash, &name), Some(top));
            for (hash, name, leaf) in layout.scan(top, NameHash(0)) {
                assert_eq!(layout.child(top, hash, &name), Some(leaf));
                let Some(Node::Dir { level: 1, index }) = layout.node(leaf) else { panic!("{leaf:?}") };
                assert_eq!(layout.leaf_ref(index), NodeRef { ino: leaf, parent: top, hash });
                assert_eq!(layout.child_count(leaf), Some((10, false)));
                for (hash, name, file) in layout.scan(leaf, NameHash(0)) {
                    assert_eq!(layout.child(leaf, hash, &name), Some(file));
                    let Some(Node::File { leaf: of, at }) = layout.node(file) else { panic!("{file:?}") };
                    assert_eq!((of, Layout::file_name(at)), (index, name));
                    seen.push(file);
                }
            }
        }
        seen.sort_unstable();
        let first = FIRST + 20;
        assert_eq!(seen, (first..first + 150).map(Ino).collect::<Vec<_>>());
        assert_eq!(layout.child(Ino::ROOT, NameHash(9), b"none"), None);
        assert_eq!(layout.node(Ino(layout.end())), None);
    }

    #[test]
    fn children_come_in_the_order_of_their_hashes_from_any_of_them_on() {
        let layout = Layout::new(&SEED, &[1], 100);
        let all: Vec<_> = layout.scan(layout.dir(0, 0), NameHash(0)).collect();
        assert!(all.is_sorted_by_key(|(hash, name, _)| (*hash, *name)) && all.len() == 100);
        for at in [0, 41, 99] {
            let rest: Vec<_> = layout.scan(layout.dir(0, 0), all[at].0).collect();
            assert_eq!(rest, all[at..]);
        }
    }
}
