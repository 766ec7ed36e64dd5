//! Sessions that ranks have ended, each for itself, as their journals say it: with a session go its locks of the files that the rank has.
//!
//! Absent: whether a rank was entitled to that.

use super::Judge;
use super::owners::Of;
use crate::model::judge::Verdict;
use proto::Ino;
use proto::ids::{Position, RankId, SessionId};
use proto::journal::Mutations;
use proto::mutation::Mutation;
use proto::system::session_flags;
use std::collections::{BTreeMap, BTreeSet};

/// By rank.
#[derive(Default)]
pub(super) struct Sessions {
    ended: BTreeSet<(RankId, SessionId)>,
    /// Those that may change nothing any more, and where the journal says that they are ended. What an evicted one had asked for goes on
    /// until then.
    over: BTreeMap<(RankId, SessionId), Position>,
    /// Evicted: they end a while later. A next life of the rank lets none of them reclaim anything.
    evicted: BTreeSet<(RankId, SessionId)>,
}

impl Sessions {
    /// What an entry says of them.
    pub(super) fn take(&mut self, rank: RankId, end: Position, mutations: &[u8]) {
        for mutation in Mutations::new(mutations).flatten() {
            match mutation {
                Mutation::Session { id, open: true, .. } => {
                    self.ended.remove(&(rank, id));
                    self.over.remove(&(rank, id));
                }
                Mutation::Session { id, open: false, .. } => {
                    self.ended.insert((rank, id));
                    self.over.insert((rank, id), end);
                }
                Mutation::SessionFlags { id, flags } if flags & session_flags::EVICTED != 0 => {
                    self.evicted.insert((rank, id));
                }
                _ => {}
            }
        }
    }

    /// The rank lives again, on a journal that ends there.
    pub(super) fn lives_again(&mut self, rank: RankId, end: Position) {
        self.ended.extend(self.evicted.iter().filter(|(of, _)| *of == rank));
        self.over.retain(|(of, _), at| *of != rank || *at <= end);
    }

    /// A transaction of a session is carried out: the rank has not ended it.
    pub(super) fn may_change(&self, rank: RankId, session: SessionId) -> Verdict {
        match self.over.get(&(rank, session)) {
            None => Ok(()),
            Some(at) => Err(format!(
                "session {} changes something at rank {}, which ended it at {}",
                session.0, rank.0, at.0
            )),
        }
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

    /// A client was killed: nobody hears what becomes of what it asked for, nor presents what it was told. All of that may come to be, or
    /// be lost, until its session ends.
    pub(in crate::ranks) fn client_killed(&mut self, client: usize, session: SessionId) {
        self.unheard(session);
        let ranks: BTreeSet<RankId> =
            self.promises.of_session(session).map(|((rank, ..), _)| *rank).collect();
        ranks.into_iter().for_each(|rank| self.excuse(rank, session));
        self.believes_nothing(None, session);
        self.told_nothing(client);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::Writer;

    const OF: (RankId, SessionId) = (RankId(1), SessionId(5));

    fn said(mutation: &Mutation<'_>) -> Vec<u8> {
        let mut w = Writer::new();
        mutation.encode(&mut w);
        w.0
    }

    #[test]
    fn nothing_is_carried_out_for_who_was_ended_as_long_as_the_journal_says_so() {
        let mut sessions = Sessions::default();
        let begins = said(&Mutation::Session { id: OF.1, open: true, client: b"" });
        let ends = said(&Mutation::Session { id: OF.1, open: false, client: b"" });
        sessions.take(OF.0, Position(9), &ends);
        assert!(sessions.may_change(OF.0, OF.1).is_err());
        assert!(sessions.may_change(RankId(0), OF.1).is_ok(), "each rank ends it for itself");
        sessions.lives_again(OF.0, Position(9));
        assert!(sessions.may_change(OF.0, OF.1).is_err());
        sessions.lives_again(OF.0, Position(8));
        assert!(sessions.may_change(OF.0, OF.1).is_ok(), "a crash took that back");
        sessions.take(OF.0, Position(9), &ends);
        sessions.take(OF.0, Position(10), &begins);
        assert!(sessions.may_change(OF.0, OF.1).is_ok(), "its client is there again");
    }
}
