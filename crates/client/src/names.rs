//! What is known of the names in one delegated directory.
//!
//! Answers and changes cross: one thread's LOOKUP may be carried out before another thread's UNLINK and be heard after it. So
//! while a change of a name is at the rank nothing is known of that name, and what was asked before the end of its last change
//! teaches nothing.
//!
//! Absent: attributes (`newborns.rs`), and whose directory it is (`delegations.rs`).

use proto::{Ino, Name, Tid};
use std::collections::BTreeMap;

/// What is known of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    Unknown,
    Absent,
    /// The only name of an inode that is no directory.
    File(Ino),
    Dir(Ino),
}

#[derive(Clone, Debug)]
struct Entry {
    known: Known,
    /// Changes of it at the rank.
    changing: u32,
    /// What was asked under a lower tid teaches nothing.
    since: Tid,
}

/// The names of one directory.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    table: BTreeMap<Name, Entry>,
    /// Names that are not in the table are absent.
    complete: bool,
    /// Names in the table that are not known to be absent.
    present: usize,
    since: Tid,
    /// They are being listed, and nothing was forgotten since that began.
    listing: bool,
}

impl Names {
    /// `empty`: there is no name. `next`: the tid of the next request.
    pub(crate) const fn new(empty: bool, next: Tid) -> Self {
        Self { table: BTreeMap::new(), complete: empty, present: 0, since: next, listing: false }
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    pub(crate) fn get(&self, name: &Name) -> Known {
        match self.table.get(name) {
            Some(entry) => entry.known,
            None if self.complete => Known::Absent,
            None => Known::Unknown,
        }
    }

    /// Whether the directory is known to be empty.
    pub(crate) const fn is_empty(&self) -> bool {
        self.complete && self.present == 0
    }

    fn put(&mut self, name: &Name, change: impl FnOnce(&mut Entry)) {
        let (complete, since) = (self.complete, self.since);
        let known = if complete { Known::Absent } else { Known::Unknown };
        if !self.table.contains_key(name) {
            self.present += usize::from(known != Known::Absent);
            self.table.insert(name.clone(), Entry { known, changing: 0, since });
        }
        let Some(entry) = self.table.get_mut(name) else { return };
        let before = usize::from(entry.known != Known::Absent);
        change(entry);
        self.present = self.present + usize::from(entry.known != Known::Absent) - before;
    }

    /// This client changed it by itself, under that tid.
    pub(crate) fn performed(&mut self, name: &Name, known: Known, tid: Tid) {
        self.put(name, |entry| (entry.known, entry.since) = (known, Tid(tid.0 + 1)));
    }

    /// A change of it goes to the rank.
    pub(crate) fn change_begins(&mut self, name: &Name) {
        self.put(name, |entry| (entry.known, entry.changing) = (Known::Unknown, entry.changing + 1));
    }

    /// The answer to a change of it: `known` from it, if no other change crossed it.
    pub(crate) fn change_ends(&mut self, name: &Name, tid: Tid, known: Known, next: Tid) {
        self.put(name, |entry| {
            entry.changing = entry.changing.saturating_sub(1);
            let alone = entry.changing == 0 && tid >= entry.since;
            entry.known = if alone { known } else { Known::Unknown };
            entry.since = next;
        });
    }

    /// An answer shows it.
    pub(crate) fn learn(&mut self, name: &Name, tid: Tid, known: Known) {
        let crossed = |entry: &Entry| entry.changing > 0 || tid < entry.since;
        let old = tid < self.since || self.table.get(name).is_some_and(crossed);
        if old && !stdx::mutant!("client_stale_name") {
            return;
        }
        // One of which nothing is known is there all the same: it must not be taken for absent when the listing ends.
        if known != self.get(name) || (known == Known::Unknown && self.listing) {
            self.put(name, |entry| entry.known = known);
        }
    }

    pub(crate) const fn is_complete(&self) -> bool {
        self.complete
    }

    /// All names are asked for, from the first on.
    pub(crate) const fn listing_begins(&mut self) {
        self.listing = true;
    }

    /// The last page was learned. A name that is not in the table is none: nobody else makes any, and what this client makes
    /// itself is noted, unless something was forgotten meanwhile.
    pub(crate) const fn listing_ends(&mut self) {
        self.complete |= std::mem::replace(&mut self.listing, false);
    }

    /// Forgets everything that may be forgotten. Changes that are at the rank stay noted.
    pub(crate) fn forget(&mut self, next: Tid) {
        self.table.retain(|_, entry| entry.changing > 0);
        (self.complete, self.since, self.present) = (false, next, self.table.len());
        self.listing = false;
    }

    /// Drops what says no more than no entry would. `unanswered`: below it everything is answered.
    pub(crate) fn prune(&mut self, unanswered: Tid) {
        self.listing = false;
        let silent = if self.complete { Known::Absent } else { Known::Unknown };
        let before = self.table.len();
        self.table.retain(|_, entry| entry.changing > 0 || entry.since > unanswered || entry.known != silent);
        if silent == Known::Unknown {
            self.present -= before - self.table.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text.as_bytes()).expect("a name")
    }

    #[test]
    fn what_was_asked_before_a_change_teaches_nothing() {
        let (mut names, a) = (Names::new(false, Tid(5)), name("a"));
        assert_eq!(names.get(&a), Known::Unknown);
        names.learn(&a, Tid(4), Known::Absent);
        assert_eq!(names.get(&a), Known::Unknown, "asked before the directory was delegated");
        names.learn(&a, Tid(5), Known::Absent);
        assert_eq!(names.get(&a), Known::Absent);
        names.performed(&a, Known::File(Ino(9)), Tid(8));
        names.learn(&a, Tid(7), Known::Absent);
        assert_eq!(names.get(&a), Known::File(Ino(9)));
        names.change_begins(&a);
        assert_eq!(names.get(&a), Known::Unknown);
        names.learn(&a, Tid(10), Known::File(Ino(9)));
        assert_eq!(names.get(&a), Known::Unknown, "a change is at the rank");
        names.change_ends(&a, Tid(9), Known::Absent, Tid(12));
        assert_eq!(names.get(&a), Known::Absent);
        names.learn(&a, Tid(11), Known::File(Ino(9)));
        assert_eq!(names.get(&a), Known::Absent, "asked before the change was answered");
        names.learn(&a, Tid(12), Known::File(Ino(10)));
        assert_eq!(names.get(&a), Known::File(Ino(10)));
    }

    #[test]
    fn of_two_changes_that_cross_nothing_is_known() {
        let (mut names, a) = (Names::new(true, Tid(5)), name("a"));
        names.change_begins(&a);
        names.change_begins(&a);
        assert!(!names.is_empty());
        names.change_ends(&a, Tid(6), Known::Absent, Tid(7));
        assert_eq!(names.get(&a), Known::Unknown);
        names.change_ends(&a, Tid(5), Known::File(Ino(9)), Tid(7));
        assert_eq!(names.get(&a), Known::Unknown, "which was last?");
        assert!(!names.is_empty());
        names.change_begins(&a);
        names.change_ends(&a, Tid(7), Known::Absent, Tid(8));
        assert!(names.is_empty());
    }

    #[test]
    fn forgetting_keeps_what_is_under_way() {
        let (a, b) = (name("a"), name("b"));
        for complete in [false, true] {
            let mut names = Names::new(complete, Tid(1));
            names.performed(&a, Known::Absent, Tid(3));
            names.change_begins(&b);
            names.prune(Tid(3));
            assert_eq!(names.len(), 2, "something asked before is unanswered");
            names.prune(Tid(4));
            assert_eq!((names.len(), names.get(&a)), (if complete { 1 } else { 2 }, Known::Absent));
            names.forget(Tid(9));
            assert_eq!((names.len(), names.get(&a), names.get(&b)), (1, Known::Unknown, Known::Unknown));
            names.change_ends(&b, Tid(4), Known::Absent, Tid(9));
            assert_eq!(names.get(&b), Known::Absent, "its own answer says what became of it");
            names.prune(Tid(10));
            assert!(!names.is_empty(), "it was forgotten, not emptied");
        }
    }
}
