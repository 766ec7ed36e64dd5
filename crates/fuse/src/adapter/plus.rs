//! Which listings carry attributes.
//!
//! A program that stats what it lists (`du`, `ls -l`, `rsync`, `tar`) costs a LOOKUP for each name whose attributes its listing left
//! out; to one that only lists, attributes are work for nothing. The kernel's own rule (READDIRPLUS_AUTO) looks at lookups between two
//! requests of one listing, which does not see programs that read a directory to its end before they stat. Here it is
//! remembered for each thread whether it looks up names of the directory that it listed last.
//!
//! Absent: forgetting such a thread before another takes its place; names that the kernel knows already are
//! not looked up, so nothing would tell that it has stopped.

use std::sync::{Mutex, PoisonError};

/// Threads that are remembered: one in each slot, by its number.
const SLOTS: usize = 64;
/// Lookups in a listed directory that show the habit: a single one may have another reason.
const LOOKUPS: u8 = 2;

#[derive(Clone, Copy, Debug, Default)]
struct Lister {
    pid: u32,
    /// The node of the directory it listed last.
    dir: u64,
    /// Names it looked up there, up to `LOOKUPS`: from then on it stats what it lists.
    lookups: u8,
}

/// The threads that listed something.
#[derive(Debug)]
pub(super) struct Listers {
    slots: [Mutex<Lister>; SLOTS],
}

impl Default for Listers {
    fn default() -> Listers {
        Listers { slots: std::array::from_fn(|_| Mutex::default()) }
    }
}

impl Listers {
    fn with<T>(&self, pid: u32, look: impl FnOnce(&mut Lister) -> T) -> T {
        let slot = &self.slots[pid as usize % SLOTS];
        look(&mut slot.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A thread lists a directory from an offset on: whether names are to come with their attributes. The first ones always do, as
    /// with the kernel's rule: most directories are small.
    pub(super) fn lists(&self, pid: u32, dir: u64, offset: u64) -> bool {
        self.with(pid, |lister| {
            let lookups = if lister.pid == pid && (lister.dir == dir || lister.lookups >= LOOKUPS) {
                lister.lookups
            } else {
                0
            };
            *lister = Lister { pid, dir, lookups };
            offset == 0 || lookups >= LOOKUPS
        })
    }

    /// A thread looks up a name in a directory.
    pub(super) fn looks_up(&self, pid: u32, dir: u64) {
        self.with(pid, |lister| {
            if lister.pid == pid && lister.dir == dir && lister.lookups < LOOKUPS {
                lister.lookups += 1;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_stats_what_it_lists_gets_attributes() {
        let listers = Listers::default();
        assert!(listers.lists(1, 7, 0), "the first names");
        assert!(!listers.lists(1, 7, 500));
        listers.looks_up(1, 7);
        assert!(!listers.lists(1, 7, 900), "one lookup may have another reason");
        listers.looks_up(1, 7);
        assert!(listers.lists(1, 7, 900) && listers.lists(1, 8, 500), "and in what it lists next");
    }

    #[test]
    fn lookups_elsewhere_and_by_others_show_nothing() {
        let listers = Listers::default();
        listers.lists(1, 7, 0);
        for _ in 0..4 {
            listers.looks_up(1, 8);
            listers.looks_up(2, 7);
            listers.looks_up(1 + SLOTS as u32, 7);
        }
        assert!(!listers.lists(1, 7, 500));
        listers.looks_up(1, 7);
        assert!(!listers.lists(1, 8, 500), "it has listed something else since");
        listers.looks_up(1, 8);
        assert!(!listers.lists(1, 8, 600));
    }

    #[test]
    fn another_thread_takes_the_slot() {
        let listers = Listers::default();
        listers.lists(1, 7, 0);
        listers.looks_up(1, 7);
        listers.looks_up(1, 7);
        assert!(!listers.lists(1 + SLOTS as u32, 7, 500));
        assert!(!listers.lists(1, 7, 500));
    }
}
