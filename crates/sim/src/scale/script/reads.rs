//! Any file of the generated namespace is looked up, opened for reading, and closed; of `mixed` some operations make a file in any
//! directory, or remove one of these.
//!
//! Where directories are the clients know: they have looked each up before. Nor are they new to the ranks: before anything is counted a
//! file of each is looked up.
//!
//! Absent: reading bytes: that is the data store's.

use super::super::layout::Layout;
use super::{Ask, FILE, Ground, Script, good, name, names, node};
use proto::reply::Outcome;
use proto::request::{Request, open_flags};
use std::collections::VecDeque;
use stdx::Prng;

/// Files of its own that a caller keeps before it removes one.
const KEPT: usize = 16;

#[derive(Clone, Copy, Debug, Default)]
enum At {
    #[default]
    Nothing,
    Visiting,
    Looking,
    Opening,
    Making,
    /// The last request of the operation.
    Last,
}

#[derive(Clone, Debug, Default)]
struct Caller {
    at: At,
    leaf: u64,
    made: u64,
    /// Leaf and number of its files.
    own: VecDeque<(u64, u64)>,
}

/// The script.
pub(in super::super) struct Reads {
    /// Operations that change something, of a hundred.
    changes: u64,
    /// The next directory to be visited; none: all were.
    visits: Option<u64>,
    callers: Vec<Caller>,
    dice: Prng,
}

impl Reads {
    pub(in super::super) fn new(callers: u64, changes: u64, seed: u64) -> Self {
        Self {
            changes,
            visits: None,
            callers: vec![Caller::default(); callers as usize],
            dice: Prng::new(seed),
        }
    }

    fn change(&mut self, ground: &Ground<'_>, caller: u64, leaf: u64) -> Ask {
        let own = &mut self.callers[caller as usize];
        if own.own.len() > KEPT
            && let Some((leaf, number)) = own.own.pop_front()
        {
            own.at = At::Last;
            let (parent, name) = (ground.layout.leaf_ref(leaf), names::made(caller, number));
            return ground.ask(leaf, Request::Unlink { parent, name });
        }
        own.own.push_back((leaf, own.made));
        let (parent, name) = (ground.layout.leaf_ref(leaf), names::made(caller, own.made));
        (own.at, own.made) = (At::Making, own.made + 1);
        let flags = open_flags::WRONLY | open_flags::EXCL;
        ground.ask(leaf, Request::Create { parent, name, new: FILE, flags })
    }
}

impl Script for Reads {
    fn phases(&self) -> &'static [&'static str] {
        if self.changes == 0 { &["read"] } else { &["mixed"] }
    }

    fn prepare(&mut self) -> bool {
        self.visits = Some(0);
        true
    }

    fn begin(&mut self, _: usize) {
        self.visits = None;
    }

    fn start(&mut self, ground: &Ground<'_>, caller: u64) -> Option<Ask> {
        if let Some(visits) = &mut self.visits {
            let leaf = *visits;
            *visits += 1;
            self.callers[caller as usize].at = At::Visiting;
            let name = name(&Layout::file_name(0));
            let parent = || ground.layout.leaf_ref(leaf);
            return (leaf < ground.layout.leaves())
                .then(|| ground.ask(leaf, Request::Lookup { parent: parent(), name }));
        }
        let leaf = self.dice.below(ground.layout.leaves());
        self.callers[caller as usize].leaf = leaf;
        if self.dice.chance(self.changes, 100) {
            return Some(self.change(ground, caller, leaf));
        }
        self.callers[caller as usize].at = At::Looking;
        let name = name(&Layout::file_name(self.dice.below(ground.layout.files())));
        Some(ground.ask(leaf, Request::Lookup { parent: ground.layout.leaf_ref(leaf), name }))
    }

    fn answered(
        &mut self,
        ground: &Ground<'_>,
        caller: u64,
        outcome: Outcome,
    ) -> Result<Option<Ask>, String> {
        let own = &mut self.callers[caller as usize];
        let (at, request) = match own.at {
            At::Looking => (At::Opening, Some(Request::Open { node: node(outcome)?, flags: 0 })),
            At::Opening | At::Making => (At::Last, Some(Request::Release { node: node(outcome)?, count: 1 })),
            At::Last | At::Visiting => {
                good(outcome)?;
                (At::Nothing, None)
            }
            At::Nothing => return Err("an answer to nothing".into()),
        };
        own.at = at;
        let leaf = own.leaf;
        Ok(request.map(|request| ground.ask(leaf, request)))
    }
}
