//! Small files whose bytes are durable by the journal's tail alone: an fsync put their content there. To another rank they go only when
//! the data store has it too.
//!
//! Absent: the content; when it is written again (`replay.rs`).

use proto::Ino;
use std::collections::BTreeSet;

/// As many as the tail has contents of files.
#[derive(Debug, Default)]
pub(crate) struct Redone {
    /// Since the checkpoint under way began, or the last one.
    young: BTreeSet<Ino>,
    /// Before the checkpoint under way began, or one that failed.
    old: BTreeSet<Ino>,
}

impl Redone {
    pub(crate) fn note(&mut self, ino: Ino) {
        self.young.insert(ino);
    }

    pub(crate) fn has(&self, ino: Ino) -> bool {
        self.young.contains(&ino) || self.old.contains(&ino)
    }

    /// The data store has it durably.
    pub(crate) fn forget(&mut self, ino: Ino) {
        if !self.young.is_empty() || !self.old.is_empty() {
            self.young.remove(&ino);
            self.old.remove(&ino);
        }
    }

    pub(crate) fn checkpoint_begins(&mut self) {
        self.old.append(&mut self.young);
    }

    /// It synced everything.
    pub(crate) fn checkpoint_ends(&mut self) {
        self.old.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_ends_what_came_before_it() {
        let [first, second] = [Ino(5000), Ino(5001)];
        let mut redone = Redone::default();
        redone.note(first);
        redone.checkpoint_begins();
        redone.note(second);
        assert!(redone.has(first) && redone.has(second));
        // It fails, and the next begins.
        redone.checkpoint_begins();
        assert!(redone.has(first) && redone.has(second));
        redone.note(first);
        redone.checkpoint_ends();
        assert!(redone.has(first) && !redone.has(second));
        redone.forget(first);
        assert!(!redone.has(first));
    }
}
