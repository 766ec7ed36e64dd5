//! Whose changes are not durable yet: what an answer must wait for before it may leave early.
//!
//! An answer may show its session that session's own undurable changes, because whoever made them presents them again after a
//! crash. Those of anybody else a crash takes back behind its back.
//!
//! Absent: what answers show (`early.rs`).

use proto::{Ino, NameHash, Position, SessionId};
use std::collections::BTreeMap;

/// Marks kept at once before the durable ones are swept out.
const SWEEP_AT: usize = 4096;

/// Something that changes and is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Resource {
    Inode(Ino),
    /// Entries, counts and times of a directory.
    Header(Ino),
    Name(Ino, NameHash),
    /// That the journal has nothing more of what came open or locked with it: nobody presents that again.
    Held(Ino),
}

/// What a transaction changes.
#[derive(Debug, Default)]
pub(crate) struct Touched {
    /// What it also depends on.
    pub resources: Vec<Resource>,
    /// Headers that it changes without an answer's showing them.
    pub headers: Vec<Resource>,
}

/// The last changes of one thing.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    session: SessionId,
    at: Position,
    /// The last one by anybody else than `session`.
    others: Position,
}

impl Mark {
    fn changed(&mut self, session: SessionId, at: Position) {
        if self.session != session {
            (self.others, self.session) = (self.others.max(self.at), session);
        }
        self.at = at;
    }

    fn by_others(&self, session: SessionId) -> Position {
        if self.session == session { self.others } else { self.at }
    }
}

/// The changes of one life of the rank that may not be durable.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    marks: BTreeMap<Resource, Mark>,
    sweep_at: usize,
    /// Of everything.
    all: Mark,
    /// Nothing was recorded before this position.
    before: Position,
}

impl Recent {
    /// From here on it matters who changes something: whatever is not noted counts as changed by others, up to `end`.
    pub(crate) const fn begin(&mut self, end: Position) {
        self.before = end;
    }

    /// Up to where somebody else than `session` changed one of these.
    pub(crate) fn by_others(
        &self,
        session: SessionId,
        resources: impl Iterator<Item = Resource>,
    ) -> Position {
        resources
            .filter_map(|thing| self.marks.get(&thing))
            .map(|mark| mark.by_others(session))
            .max()
            .unwrap_or_default()
            .max(self.before)
    }

    /// Up to where somebody else than `session` changed anything.
    pub(crate) fn anything_by_others(&self, session: SessionId) -> Position {
        self.all.by_others(session).max(self.before)
    }

    /// A transaction that ends at `at` changed these.
    pub(crate) fn changed(
        &mut self,
        session: SessionId,
        resources: impl Iterator<Item = Resource>,
        at: Position,
        durable: Position,
    ) {
        if self.marks.len() > self.sweep_at.max(SWEEP_AT) {
            self.marks.retain(|_, mark| mark.at > durable);
            self.sweep_at = 2 * self.marks.len();
        }
        for thing in resources {
            self.marks.entry(thing).or_default().changed(session, at);
        }
        self.all.changed(session, at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_changes_count_for_others_only() {
        let (a, b) = (SessionId(1), SessionId(2));
        let (one, two) = (Resource::Inode(Ino(9)), Resource::Name(Ino(1), NameHash(9)));
        let mut recent = Recent::default();
        recent.changed(a, [one].into_iter(), Position(10), Position(0));
        recent.changed(b, [two].into_iter(), Position(20), Position(0));
        recent.changed(a, [one].into_iter(), Position(30), Position(0));
        let of = |session, thing| recent.by_others(session, [thing].into_iter());
        assert_eq!((of(a, one), of(b, one)), (Position(0), Position(30)));
        assert_eq!((of(a, two), of(b, two)), (Position(20), Position(0)));
        assert_eq!(
            (recent.anything_by_others(a), recent.anything_by_others(b)),
            (Position(20), Position(30))
        );
        // Overwritten by the other one, the earlier change still counts.
        recent.changed(b, [one].into_iter(), Position(40), Position(0));
        assert_eq!(recent.by_others(b, [one].into_iter()), Position(30));
        recent.begin(Position(50));
        assert_eq!(recent.by_others(b, [two].into_iter()), Position(50));
    }
}
