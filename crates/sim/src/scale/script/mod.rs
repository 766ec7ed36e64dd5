//! What callers do. A script says what each asks for next, and of which rank: clients know owners by the cluster map.
//!
//! Absent: time.

mod mdtest;
mod names;
mod reads;
mod shared;

pub(super) use mdtest::{FANS as MDTEST_FANS, Mdtest};
pub(super) use reads::Reads;
pub(super) use shared::{OneDirectory, RenameStorm};

use super::layout::Layout;
use super::placement::Owners;
use proto::reply::{Outcome, Reply};
use proto::request::{NewNode, Request};
use proto::{Name, NodeRef, RankId};

/// A request, and whom it is for.
pub(super) struct Ask {
    pub(super) rank: RankId,
    pub(super) request: Request,
}

/// What is there, and whose it is.
pub(super) struct Ground<'a> {
    pub(super) layout: &'a Layout,
    pub(super) owners: &'a Owners,
}

impl Ground<'_> {
    /// Asks the rank with the content of that directory of the last level.
    fn ask(&self, leaf: u64, request: Request) -> Ask {
        Ask { rank: self.owners.of_leaf(self.layout, leaf), request }
    }

    /// A new file in a directory of the last level that may be spread.
    fn make(&self, leaf: u64, name: Name) -> Ask {
        let rank = self.owners.of_name(self.layout, leaf, &name);
        Ask { rank, request: Request::MkNod { parent: self.layout.leaf_ref(leaf), name, new: FILE } }
    }
}

/// What all callers do, phase by phase.
pub(super) trait Script {
    fn phases(&self) -> &'static [&'static str];

    /// Begins what goes before all phases and is not counted, until every caller rests. Whether there is such a thing.
    fn prepare(&mut self) -> bool {
        false
    }

    fn begin(&mut self, phase: usize);

    /// The first request of a caller's next operation; none: it has nothing left to do in this phase.
    fn start(&mut self, ground: &Ground<'_>, caller: u64) -> Option<Ask>;

    /// The next one of the operation; none: that is over.
    ///
    /// # Errors
    /// When the outcome is none that the operation can have.
    fn answered(&mut self, ground: &Ground<'_>, caller: u64, outcome: Outcome)
    -> Result<Option<Ask>, String>;
}

/// A new regular file.
const FILE: NewNode = NewNode { mode: 0o100_644, umask: 0o022, rdev: 0 };

fn name(bytes: &[u8]) -> Name {
    Name::new(bytes).expect("names are short and plain")
}

/// What an answer with attributes is about.
fn node(outcome: Outcome) -> Result<NodeRef, String> {
    match outcome {
        Ok(Reply::Attr(attr) | Reply::Created { attr, .. }) => {
            Ok(NodeRef { ino: attr.ino, parent: attr.parent, hash: attr.hash })
        }
        other => Err(format!("no attributes: {other:?}")),
    }
}

fn good(outcome: Outcome) -> Result<(), String> {
    outcome.map(|_| ()).map_err(|errno| format!("a request failed: {errno}"))
}
