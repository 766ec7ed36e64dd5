//! Outcomes of a session's requests that must not run twice, by number. They come nearly in the order of their numbers and go from
//! the lowest on, so they are a queue: one that comes out of order moves those that it overtook, a few of its session's window.
//!
//! Absent: how many there may be (`Limits::results`; it bounds what is moved, too).

use proto::{Ino, Tid};
use std::collections::VecDeque;

/// The outcome of a request that must not run twice.
#[derive(Clone, Debug)]
pub(crate) struct StoredResult {
    /// Encoded.
    pub bytes: Box<[u8]>,
    /// It comes from a former life of the rank, whose opens are gone.
    pub former: bool,
    /// The inode that it opened, closed, locked or unlocked here; that is in no transaction.
    pub about: Ino,
}

/// Outcomes in ascending order of their numbers.
#[derive(Debug, Default)]
pub(crate) struct Results {
    list: VecDeque<(Tid, StoredResult)>,
    /// How many are about an inode.
    about: usize,
}

fn is_about(result: &StoredResult) -> usize {
    usize::from(result.about != Ino::NONE)
}

impl Results {
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    fn place(&self, tid: Tid) -> Result<usize, usize> {
        // Nearly all that is asked for is new.
        if self.list.back().is_none_or(|(last, _)| *last < tid) {
            return Err(self.list.len());
        }
        self.list.binary_search_by_key(&tid, |(tid, _)| *tid)
    }

    pub(crate) fn get(&self, tid: Tid) -> Option<&StoredResult> {
        self.place(tid).ok().map(|at| &self.list[at].1)
    }

    /// What it did in a former life is done in this one, too.
    pub(crate) fn done_again(&mut self, tid: Tid, about: Ino) {
        if let Ok(at) = self.place(tid) {
            let result = &mut self.list[at].1;
            self.about -= is_about(result);
            (result.former, result.about) = (false, about);
            self.about += is_about(result);
        }
    }

    /// Takes one in; it replaces what the number had.
    pub(crate) fn insert(&mut self, tid: Tid, result: StoredResult) {
        self.about += is_about(&result);
        match self.place(tid) {
            Ok(at) => {
                let before = std::mem::replace(&mut self.list[at].1, result);
                self.about -= is_about(&before);
            }
            Err(at) => self.list.insert(at, (tid, result)),
        }
    }

    pub(crate) fn remove(&mut self, tid: Tid) {
        let removed = self.place(tid).ok().and_then(|at| self.list.remove(at));
        self.about -= removed.map_or(0, |(_, result)| is_about(&result));
    }

    /// Those below `floor` go.
    pub(crate) fn forget_below(&mut self, floor: Tid) {
        while let Some((_, result)) = self.list.pop_front_if(|(tid, _)| *tid < floor) {
            self.about -= is_about(&result);
        }
    }

    /// Those that did something to an inode in this life, which no transaction says.
    pub(crate) fn about_inodes(&self) -> impl Iterator<Item = (Tid, &StoredResult)> {
        let all = if self.about == 0 { None } else { Some(self.iter()) };
        all.into_iter().flatten().filter(|(_, result)| !result.former && result.about != Ino::NONE)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Tid, &StoredResult)> {
        self.list.iter().map(|(tid, result)| (*tid, result))
    }
}

impl FromIterator<(Tid, StoredResult)> for Results {
    fn from_iter<I: IntoIterator<Item = (Tid, StoredResult)>>(list: I) -> Self {
        let mut results = Self::default();
        list.into_iter().for_each(|(tid, result)| results.insert(tid, result));
        results
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use stdx::Prng;

    #[test]
    fn is_a_map_whatever_the_order() {
        let (mut prng, mut results, mut map) = (Prng::new(1), Results::default(), BTreeMap::new());
        for step in 0..20_000_u64 {
            let tid = Tid(step / 4 + prng.below(64));
            match prng.below(8) {
                0 => {
                    results.remove(tid);
                    map.remove(&tid);
                }
                1 => {
                    let floor = Tid(tid.0.saturating_sub(32));
                    results.forget_below(floor);
                    map = map.split_off(&floor);
                }
                _ => {
                    let bytes: Box<[u8]> = step.to_le_bytes().into();
                    let about = Ino(prng.below(2));
                    results.insert(tid, StoredResult { bytes: bytes.clone(), former: false, about });
                    map.insert(tid, bytes);
                }
            }
            assert_eq!(results.get(tid).map(|result| &result.bytes), map.get(&tid));
            assert_eq!(results.len(), map.len());
            let about = results.iter().filter(|(_, result)| result.about != Ino::NONE).count();
            assert_eq!(results.about_inodes().count(), about);
            assert_eq!(results.about, about);
        }
        let all: Vec<_> = results.iter().map(|(tid, result)| (tid, result.bytes.clone())).collect();
        assert_eq!(all, map.into_iter().collect::<Vec<_>>());
    }
}
