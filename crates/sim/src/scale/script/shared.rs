//! What all share: everybody makes files in one directory; files go from one directory to another of one tree.
//!
//! Absent: who has what (`placement.rs`): whether the directory is spread, and whether renames are of two ranks.

use super::{Ask, Ground, Script, good, names};
use proto::reply::Outcome;
use proto::request::Request;
use stdx::Prng;

/// All make files in the first leaf.
pub(in super::super) struct OneDirectory {
    made: Vec<u64>,
}

impl OneDirectory {
    pub(in super::super) fn new(callers: u64) -> Self {
        Self { made: vec![0; callers as usize] }
    }
}

impl Script for OneDirectory {
    fn phases(&self) -> &'static [&'static str] {
        &["create"]
    }

    fn begin(&mut self, _: usize) {}

    fn start(&mut self, ground: &Ground<'_>, caller: u64) -> Option<Ask> {
        let made = &mut self.made[caller as usize];
        let name = names::made(caller, *made);
        *made += 1;
        Some(ground.make(0, name))
    }

    fn answered(&mut self, _: &Ground<'_>, _: u64, outcome: Outcome) -> Result<Option<Ask>, String> {
        good(outcome).map(|()| None)
    }
}

/// Where a caller's file is.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    leaf: u64,
    /// The number in its name; 0: it is not made yet.
    number: u64,
}

/// Each caller has a file, which it renames to a new name in any leaf, again and again.
pub(in super::super) struct RenameStorm {
    files: Vec<Place>,
    dice: Prng,
}

impl RenameStorm {
    pub(in super::super) fn new(callers: u64, seed: u64) -> Self {
        Self { files: vec![Place::default(); callers as usize], dice: Prng::new(seed) }
    }
}

impl Script for RenameStorm {
    fn phases(&self) -> &'static [&'static str] {
        &["rename"]
    }

    fn begin(&mut self, _: usize) {}

    fn start(&mut self, ground: &Ground<'_>, caller: u64) -> Option<Ask> {
        let from = self.files[caller as usize];
        let to = Place { leaf: self.dice.below(ground.layout.leaves()), number: from.number + 1 };
        self.files[caller as usize] = to;
        let new_name = names::made(caller, to.number);
        if from.number == 0 {
            return Some(ground.make(to.leaf, new_name));
        }
        let (parent, new_parent) = (ground.layout.leaf_ref(from.leaf), ground.layout.leaf_ref(to.leaf));
        let name = names::made(caller, from.number);
        Some(ground.ask(to.leaf, Request::Rename { parent, name, new_parent, new_name, flags: 0 }))
    }

    fn answered(&mut self, _: &Ground<'_>, _: u64, outcome: Outcome) -> Result<Option<Ask>, String> {
        good(outcome).map(|()| None)
    }
}
