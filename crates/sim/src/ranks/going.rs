//! Ranks that go, and come again: how many an operator wants, and what is to be true of one that leaves. docs/PROTOCOL.md, "Ranks that
//! go".
//!
//! A rank that has nothing left says Leave; its daemon is dismissed or fenced with its life, as in the server, and nobody tells it to
//! stop. So no life ends by itself before the run's end.
//!
//! Absent: what its journal and the store have then (`judge/gone.rs`).

use super::Ranks;
use crate::model::judge::Verdict;
use mds::coordinator::Command;
use proto::cluster::{ClusterMap, RankState};
use proto::ids::{Incarnation, RankId, SessionId};
use stdx::Mono;
use stdx::time::MS;

/// In a run in which a rank is to go callers ask so seldom once they have asked enough: to leave takes longer than a lease.
const SELDOM_NS: u64 = 250 * MS;
/// Such a run ends its faults after so many times the operations that it is to have, whether one has gone or not.
const LONG: u64 = 3;

impl Ranks {
    /// An operator wants fewer ranks, or more again.
    pub(super) fn resizes(&mut self) -> Verdict<bool> {
        let (ranks, most) = (self.plan.ranks, self.plan.most);
        let wanted = match self.rng.below(6) {
            0 => 1,
            1 | 2 => ranks.saturating_sub(1).max(1),
            _ => most.min(ranks + 1),
        };
        if wanted == ranks {
            return Ok(false);
        }
        self.coverage.count(if wanted < ranks { "fewer ranks wanted" } else { "more ranks wanted again" });
        self.plan.ranks = wanted;
        self.command(Command::SetMaxMds(wanted))?;
        Ok(true)
    }

    /// Whom a fault strikes: half of the time a rank that goes, if there is one.
    pub(super) fn any_target(&mut self) -> Option<u64> {
        let goes = self.lives.values().find(|life| self.is_stopping(life.rank));
        match goes.map(|life| life.incarnation.0) {
            Some(life) if self.rng.chance(1, 2) => {
                self.coverage.count("faults at a rank that goes");
                Some(life)
            }
            _ => self.any_life(),
        }
    }

    fn is_stopping(&self, rank: RankId) -> bool {
        let info = self.seat.map.as_ref().and_then(|map| map.ranks.get(&rank));
        info.is_some_and(|info| info.state == RankState::Stopping)
    }

    /// Whether the run waits for a rank to go.
    pub(super) fn waits_for_one_to_go(&self) -> bool {
        let enough = self.plan.operations;
        let goes = self.plan.shrinks && self.coverage.of("ranks gone") == 0;
        goes && self.issued >= enough && self.issued < LONG * enough
    }

    /// Longest pause between calls.
    pub(super) fn pause_ns(&self) -> u64 {
        if self.waits_for_one_to_go() { self.plan.pause_ns.max(SELDOM_NS) } else { self.plan.pause_ns }
    }

    /// Whether no rank is left that is not wanted, and no client has anything to do with one: some runs go on before that, others after.
    pub(super) fn is_resized(&self, client: usize) -> bool {
        let lanes = &self.clients[client].lanes;
        let has = |rank: &RankId| self.seat.map.as_ref().is_some_and(|map| map.ranks.contains_key(rank));
        !self.plan.patient || (self.all_serve() && lanes.keys().all(has))
    }

    /// A rank says that it has nothing left. It may be no more by now, for the map.
    pub(super) fn leaves(&mut self, life: u64) -> Verdict {
        let now = Mono(self.now);
        let Some(at) = self.lives.get(&life) else { return Ok(()) };
        let (rank, incarnation) = (at.rank, at.incarnation);
        let sessions = at.machine.sessions(now);
        let info = self.seat.map.as_ref().and_then(|map| map.ranks.get(&rank)).copied();
        if !info.is_some_and(|info| info.incarnation == incarnation && info.state == RankState::Stopping) {
            return Ok(());
        }
        if let Some(session) = sessions.first() {
            return Err(format!("rank {} leaves, and has session {}", rank.0, session.id.0));
        }
        self.coverage.count("wishes to leave");
        let stored = self.dump()?;
        self.judge.check_left(rank, incarnation, &stored)
    }

    /// The registry has a new map: which ranks begin to go, or have gone, or are there again.
    pub(super) fn ranks_go(&mut self, before: Option<&ClusterMap>, map: &ClusterMap) -> Verdict {
        let Some(before) = before else { return Ok(()) };
        for (rank, was) in &before.ranks {
            let Some(is) = map.ranks.get(rank) else {
                self.has_gone(*rank, was.incarnation)?;
                continue;
            };
            if is.state == was.state {
                continue;
            }
            match (was.state, is.state) {
                (RankState::Stopping, _) => self.coverage.count("lives of ranks that go ended"),
                (_, RankState::Stopping) => self.coverage.count("ranks that go"),
                (RankState::Failed, _) if rank.0 >= map.max_mds => {
                    self.coverage.count("lives of ranks that are to go begun");
                }
                _ => {}
            }
        }
        let again =
            map.ranks.keys().filter(|rank| !before.ranks.contains_key(rank) && before.made.has(**rank));
        let again = again.count() as u64;
        self.coverage.add_to("ranks that came again", again);
        Ok(())
    }

    /// A rank is off the map: it has no life that could do anything.
    fn has_gone(&mut self, rank: RankId, last: Incarnation) -> Verdict {
        self.coverage.count("ranks gone");
        self.trace.event(self.now, "gone", u64::from(rank.0), || format!("rank {}", rank.0));
        if let Some(life) = self.lives.values().find(|life| life.rank == rank) {
            return Err(format!("rank {} is off the map, and lives as {}", rank.0, life.incarnation.0));
        }
        let stored = self.dump()?;
        self.judge.gone(rank, last, &stored)
    }

    /// A client lost its session: nobody may take it but an operator.
    pub(super) fn lost_session(&self, client: usize, session: SessionId) -> Verdict {
        if self.evicted.contains(&session) {
            return Ok(());
        }
        Err(format!("client {client} has lost its session {}, which nobody ended", session.0))
    }
}
