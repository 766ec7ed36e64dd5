//! A cached directory: its header, its names, its dirty list.
//!
//! Absent: the directory's inode; that is a node of the parent.

use super::slab::{NONE, Slot};
use super::table::Table;
use crate::heat::Heat;
use crate::territory::Side;
use proto::header::FragHeader;
use proto::{Incarnation, Ino, Version};

/// The header is known.
pub(crate) const HEADER: u32 = 1;
/// Every existing name is cached.
pub(crate) const COMPLETE: u32 = 2;
/// The version made this incarnation's jump.
pub(crate) const JUMPED: u32 = 4;
/// The directory is gone: its header is to be deleted from the store.
pub(crate) const REMOVED: u32 = 8;
/// The header differs from the store.
pub(crate) const HEADER_DIRTY: u32 = 16;
/// On the cache's list of dirty directories.
pub(crate) const QUEUED: u32 = 32;
/// Entries are never forgotten.
pub(crate) const PINNED: u32 = 64;
/// A background load of all names is under way.
pub(crate) const LOADING: u32 = 128;
/// A name was forgotten while all names were being loaded.
pub(crate) const LOAD_BROKEN: u32 = 256;
/// Its header is being written by the present checkpoint after its entries.
pub(crate) const HEADER_LATER: u32 = 512;

/// The store may hold its header.
pub(crate) const STORED: u32 = 1024;
/// Another rank's: nothing is in it but replicas of directories' inodes.
pub(crate) const FOREIGN: u32 = 2048;
/// It is known to be placed by slots.
pub(crate) const SLOTS: u32 = 4096;
/// It is known to be empty if the store has no header of it.
pub(crate) const NEWBORN: u32 = 8192;

/// A directory with cached names or a known header.
pub(crate) struct Dir {
    pub ino: Ino,
    pub header: FragHeader,
    /// The header as it was when the present checkpoint began, if it changed since.
    pub saved: Option<Box<FragHeader>>,
    pub table: Table,
    /// Slot of the directory's inode; `NONE` while that is not cached.
    pub node: u32,
    pub flags: u32,
    /// Whose its content is, as it was found under that generation of the territory; 0: it was not.
    pub side: Side,
    pub seen: u32,
    pub dirty_head: u32,
    pub dirty_tail: u32,
    pub dirty: u32,
    /// Loads under way that will bring names.
    pub loads: u32,
    /// What is asked of it, and where that adds up.
    pub heat: Heat,
    pub unit: u32,
    pub misses: u32,
    /// Checkpoint number of the last change.
    pub round: u8,
    /// Checkpoint number it was put on the dirty list under.
    pub queued: u8,
}

impl Dir {
    pub(crate) fn new(ino: Ino) -> Self {
        Self {
            ino,
            header: FragHeader::default(),
            saved: None,
            table: Table::new(),
            node: NONE,
            flags: 0,
            side: Side::Mine,
            seen: 0,
            dirty_head: NONE,
            dirty_tail: NONE,
            dirty: 0,
            loads: 0,
            heat: Heat::default(),
            unit: 0,
            misses: 0,
            round: 0,
            queued: 0,
        }
    }

    pub(crate) const fn has(&self, flags: u32) -> bool {
        self.flags & flags != 0
    }

    pub(crate) const fn set(&mut self, flags: u32) {
        self.flags |= flags;
    }

    pub(crate) const fn clear(&mut self, flags: u32) {
        self.flags &= !flags;
    }

    /// Whether something depends on it being cached.
    pub(crate) const fn in_use(&self) -> bool {
        self.table.len() > 0 || self.loads > 0 || self.has(QUEUED | PINNED | LOADING | HEADER_LATER)
    }

    /// The version of the next transaction.
    pub(crate) fn next_version(&self, incarnation: Incarnation) -> Version {
        Version(next_number(self.header.version.0, self.has(JUMPED), incarnation))
    }
}

/// Lives of ranks among which numbers behind those of later lives are divided.
const LIVES: u64 = 1 << 10;

/// From here on the numbers of an incarnation are divided so; those before are its own.
const SHARED_FROM: u64 = 3 << (Incarnation::CHANGE_BITS - 2);

/// A version or change counter after the next change: +1, and a jump with an incarnation's first, so
/// that no number ever names two contents. A tail that was lost undurable may have used numbers up to
/// 2^20 ahead; two such lives in a row must not use the same ones, hence the second term.
///
/// Behind a number of a later life, which another rank's was, that is no help. So the last quarter of the numbers of an incarnation is
/// everybody's: there each life has those that leave its own incarnation as their rest. What it counts and loses no other rank counts
/// again, nor does the life whose numbers these are.
pub(crate) fn next_number(last: u64, jumped: bool, incarnation: Incarnation) -> u64 {
    let jump = !jumped && !stdx::mutant!("mds_version_no_jump");
    let own =
        if jump { (last + Version::INCARNATION_STEP).max(incarnation.first_change()) } else { last + 1 };
    if own < incarnation.first_change() + SHARED_FROM {
        return own;
    }
    let shared = |least: u64| {
        let least = least.max((least >> Incarnation::CHANGE_BITS << Incarnation::CHANGE_BITS) + SHARED_FROM);
        least + (incarnation.0 % LIVES + LIVES - least % LIVES) % LIVES
    };
    // The rest may be above the quarter's end: once more, in the next one.
    shared(shared(last + if jump { Version::INCARNATION_STEP } else { 1 }))
}

/// Whether the next number is the next one.
pub(crate) const fn counts_by_one(last: u64, incarnation: Incarnation) -> bool {
    last + 1 < incarnation.first_change() + SHARED_FROM
}

impl Slot for Dir {
    fn free_link(&mut self) -> &mut u32 {
        &mut self.node
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_lives_give_one_number_behind_a_later_ones() {
        let last = Incarnation(30).first_change() + 7;
        let of = |life: u64| {
            let first = next_number(last, false, Incarnation(life));
            (0..2_000).scan(first, move |number, _| {
                Some(std::mem::replace(number, next_number(*number, true, Incarnation(life))))
            })
        };
        let lives = [1, 26, 27, 29].map(|life| of(life).collect::<std::collections::BTreeSet<_>>());
        let all: std::collections::BTreeSet<_> = lives.iter().flatten().copied().collect();
        assert_eq!(all.len(), 8_000);
        assert!(all.first().is_some_and(|number| *number >= last + Version::INCARNATION_STEP));
        assert!(all.last().is_some_and(|number| *number < Incarnation(31).first_change()));
        // What they have counted and lost the life does not give whose numbers these are.
        let own = (0..2_000).scan(next_number(last, false, Incarnation(30)), |number, _| {
            Some(std::mem::replace(number, next_number(*number, true, Incarnation(30))))
        });
        assert!(own.into_iter().all(|number| !all.contains(&number)));
        let behind = next_number(*all.last().expect("some"), false, Incarnation(30));
        assert!(behind % LIVES == 30 && !all.contains(&behind));
        // Its own, and those of lives before it, it counts one by one.
        assert_eq!(next_number(last, true, Incarnation(30)), last + 1);
        assert_eq!(next_number(last, false, Incarnation(31)), Incarnation(31).first_change());
        assert!(counts_by_one(last, Incarnation(30)) && !counts_by_one(last, Incarnation(29)));
    }

    #[test]
    fn numbers_rise_from_quarter_to_quarter() {
        let (life, mut last) = (Incarnation(30), Incarnation(30).first_change() + SHARED_FROM - 3);
        let mut all = Vec::new();
        for _ in 0..4 {
            last = next_number(last, true, life);
            all.push(last - life.first_change());
        }
        assert_eq!(all[..2], [SHARED_FROM - 2, SHARED_FROM - 1]);
        assert!(all[2..].iter().all(|number| *number >= SHARED_FROM && number % LIVES == 30));
        assert!(all.is_sorted_by(|one, next| one < next));
        // Nor does a jump lead among those of others.
        let near = life.first_change() + SHARED_FROM - Version::INCARNATION_STEP + 20;
        let jumps = [Incarnation(20), life].map(|life| next_number(near, false, life));
        assert_eq!(jumps.map(|number| number % LIVES), [20, 30]);
        let end = Incarnation(31).first_change() - 1;
        let next = next_number(end, true, life);
        assert!(next >= Incarnation(31).first_change() + SHARED_FROM && next % LIVES == 30);
    }
}
