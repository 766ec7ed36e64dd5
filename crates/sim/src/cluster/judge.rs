//! The judge of the world of the coordinator: it sees what coordinators say and write, and what daemons do, and nothing inside them.
//!
//! Absent: whether anything happens at all (`heal.rs`).

mod commands;
mod lives;
mod maps;
mod owners;
mod states;

use proto::cluster::{ClusterMap, DaemonId, RankState};
use proto::ids::{Incarnation, RankId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What has been seen.
#[derive(Default)]
pub(super) struct Judge {
    /// Of each life that a durable map ever named: its rank, its daemon, the state it begins in.
    given: BTreeMap<Incarnation, (RankId, DaemonId, RankState)>,
    /// The newest life of each rank that was told to begin, and the newest that acted.
    begun: BTreeMap<RankId, Incarnation>,
    acted: BTreeMap<RankId, Incarnation>,
    /// Which life of which seat wrote each number of a coordinator.
    terms: BTreeMap<u64, (usize, u64)>,
    /// What happened to ranks, one line each.
    pub(super) story: Vec<String>,
}

impl Judge {
    /// The state in which a life begins, if a durable map names it.
    pub(super) fn map_of(&self, incarnation: Incarnation) -> Option<RankState> {
        self.given.get(&incarnation).map(|(.., state)| *state)
    }

    /// A map has become durable.
    fn learn(&mut self, old: Option<&ClusterMap>, map: &Arc<ClusterMap>) {
        for (rank, info) in &map.ranks {
            if info.daemon != DaemonId::NONE {
                self.given.entry(info.incarnation).or_insert((*rank, info.daemon, info.state));
            }
            let before = old.and_then(|old| old.ranks.get(rank));
            if before != Some(info) {
                let (state, life) = (info.state.name(), info.incarnation.0);
                self.story.push(format!("rank {} {state}, life {life}, daemon {}", rank.0, info.daemon.0));
            }
        }
    }
}
