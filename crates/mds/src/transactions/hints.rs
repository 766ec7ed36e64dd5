//! Who has told of names of directories that are other ranks': whoever renames from there again asks that rank at once, and need not
//! look for the directory in the store. Only a hint: a rank that has not what it is asked for says so, and then it is looked for.
//!
//! Absent: directories that several ranks serve; what is known of directories that are cached here (`search.rs`).

use crate::op::Op;
use crate::ops::{Here, here};
use crate::view::{Found, View};
use proto::transact::Part;
use proto::{Ino, NameHash, NodeRef, RankId};
use std::collections::BTreeMap;

/// So many are remembered. When they are more, all are forgotten.
const HINTS_MAX: usize = 1024;

/// Whom to ask for names of directories.
#[derive(Debug, Default)]
pub(crate) struct Hints {
    /// The territory's: under another map they may all be elsewhere.
    generation: u32,
    of: BTreeMap<Ino, RankId>,
}

impl Hints {
    fn rank_of(&self, dir: Ino, generation: u32) -> Option<RankId> {
        self.of.get(&dir).copied().filter(|_| self.generation == generation)
    }

    /// That rank has told of the parts.
    pub(crate) fn learn(&mut self, generation: u32, rank: RankId, parts: &[Part]) {
        if self.generation != generation || self.of.len() >= HINTS_MAX {
            *self = Self { generation, ..Self::default() };
        }
        for part in parts {
            if let Part::Name { parent, .. } = part
                && !parent.ino.is_reserved()
            {
                self.of.insert(parent.ino, rank);
            }
        }
    }

    /// That rank has not all of them.
    pub(crate) fn unlearn(&mut self, parts: &[Part]) {
        for part in parts {
            if let Part::Name { parent, .. } = part {
                self.of.remove(&parent.ino);
            }
        }
    }
}

impl View {
    /// What is at a name of a directory, if that is here. `look` looks for the directory; it is not looked for where another rank has told
    /// of it.
    pub(crate) fn at_name<T>(
        &mut self,
        op: &mut Op,
        (parent, hash): (NodeRef, NameHash),
        look: impl FnOnce(&mut Self, &mut Op) -> Found<T>,
    ) -> Found<Here<T>> {
        let hint = self.hints.rank_of(parent.ino, self.territory.generation());
        let asks = hint.is_some()
            && !op.was_sent_back()
            && self.cache.by_ino(parent.ino).is_none()
            && self.of_itself(parent.ino).is_none()
            && self.unit_at(parent.ino, hash)?.is_none();
        if asks { Ok(Err(hint)) } else { here(look(self, op)) }
    }
}
