//! Sessions that ranks have ended, each for itself, as their journals say it: with a session go its locks of the files that the rank has.
//!
//! Absent: whether a rank was entitled to that.

use super::Judge;
use super::owners::Of;
use proto::Ino;
use proto::ids::{RankId, SessionId};
use proto::journal::Mutations;
use proto::mutation::Mutation;
use proto::system::session_flags;
use std::collections::BTreeSet;

/// By rank.
#[derive(Default)]
pub(super) struct Sessions {
    ended: BTreeSet<(RankId, SessionId)>,
    /// Evicted: they end a while later. A next life of the rank lets none of them reclaim anything.
    evicted: BTreeSet<(RankId, SessionId)>,
}

impl Sessions {
    /// What an entry says of them.
    pub(super) fn take(&mut self, rank: RankId, mutations: &[u8]) {
        for mutation in Mutations::new(mutations).flatten() {
            match mutation {
                Mutation::Session { id, open: true, .. } => {
                    self.ended.remove(&(rank, id));
                }
                Mutation::Session { id, open: false, .. } => {
                    self.ended.insert((rank, id));
                }
                Mutation::SessionFlags { id, flags } if flags & session_flags::EVICTED != 0 => {
                    self.evicted.insert((rank, id));
                }
                _ => {}
            }
        }
    }

    /// The rank lives again.
    pub(super) fn lives_again(&mut self, rank: RankId) {
        self.ended.extend(self.evicted.iter().filter(|(of, _)| *of == rank));
    }
}

impl Judge {
    /// Whether any rank has ended any.
    pub(in crate::ranks) fn has_ended_any(&self) -> bool {
        !self.sessions.ended.is_empty()
    }

    /// Whether the rank that has a file has ended that session.
    pub(in crate::ranks) fn has_ended(&self, ino: Ino, session: SessionId) -> bool {
        let Some(node) = self.tree().node(ino) else { return true };
        let (dir, hash) = node.home;
        let home = self.owners.owner((dir, Of::Name(hash)), self.tree());
        self.sessions.ended.contains(&(home, session))
    }

    /// Whether its client was told that a session is over.
    pub(in crate::ranks) fn is_gone(&self, session: SessionId) -> bool {
        self.gone.contains(&session)
    }
}
