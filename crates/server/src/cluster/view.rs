//! What is known of the cluster outside of the coordinator's thread, and a way to wait for the next.
//!
//! Absent: the rank's own numbers (`report.rs`).

use crate::life::RankLife;
use crate::server::ServerError;
use proto::RankId;
use proto::cluster::{ClusterMap, RankState};
use proto::storeio::StoreError;
use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// How the first life of rank 0 came out, until it is asked for.
pub(super) type First = Result<Arc<RankLife>, ServerError>;

/// What there is.
#[derive(Default)]
pub(super) struct View {
    /// The last one that is durable.
    pub(super) map: Option<Arc<ClusterMap>>,
    pub(super) first: Option<First>,
    /// Whoever waited for that has been answered: a life that is kept for nobody would keep its cache.
    pub(super) answered: bool,
    /// The map cannot be read or written.
    pub(super) trouble: Option<StoreError>,
    /// Why the last life did not begin, if that was for want of room, descriptors or threads: it is tried again.
    pub(super) unbegun: Option<String>,
    /// Ranks of which this process has begun a life, and the lives that followed those.
    begun: BTreeSet<RankId>,
    failovers: u64,
    /// Threads that were left behind in hung lives.
    pub(super) left_behind: u64,
}

/// A look at it.
pub(super) struct Seen {
    pub(super) first: Option<First>,
    pub(super) trouble: Option<StoreError>,
    pub(super) unbegun: Option<String>,
}

/// The present view.
#[derive(Default)]
pub(crate) struct Views {
    view: Mutex<View>,
    changed: Condvar,
}

/// What health and metrics are judged by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClusterFacts {
    /// 0: no map yet.
    pub(crate) version: u64,
    pub(crate) joinable: bool,
    pub(crate) max_mds: u16,
    /// State of each rank.
    pub(crate) ranks: Vec<(RankId, RankState)>,
    pub(crate) standbys: u64,
    pub(crate) standbys_wanted: u64,
    pub(crate) failovers: u64,
    pub(crate) left_behind: u64,
    /// The map cannot be read or written.
    pub(crate) trouble: Option<StoreError>,
}

impl Views {
    fn lock(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut View)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// A life of a rank has begun, or could not.
    pub(super) fn begun(&self, rank: RankId, came: First) {
        self.change(|view| {
            let is_first = view.begun.insert(rank);
            let passing = came.as_ref().err().filter(|error| error.passes());
            view.unbegun = passing.map(|error| format!("rank {} does not begin: {error}", rank.0));
            view.failovers += u64::from(!is_first && came.is_ok());
            // Rank 0 is the one that clients greet first; of later lives nobody asks.
            if is_first && rank == RankId(0) && !view.answered {
                view.first = Some(came);
            }
        });
    }

    /// Waits until there is what `wanted` accepts, and takes what came of the first life.
    pub(super) fn wait(&self, wanted: impl Fn(&View) -> bool) -> Seen {
        let view = self.changed.wait_while(self.lock(), |view| !wanted(view));
        let mut view = view.unwrap_or_else(PoisonError::into_inner);
        Seen { first: view.first.take(), trouble: view.trouble.clone(), unbegun: view.unbegun.clone() }
    }

    /// The map that is durable now.
    pub(crate) fn map(&self) -> Option<Arc<ClusterMap>> {
        self.lock().map.clone()
    }

    pub(super) fn facts(&self) -> ClusterFacts {
        let view = self.lock();
        let mut facts = ClusterFacts {
            failovers: view.failovers,
            left_behind: view.left_behind,
            trouble: view.trouble.clone(),
            ..ClusterFacts::default()
        };
        if let Some(map) = &view.map {
            facts.version = map.version;
            (facts.joinable, facts.max_mds) = (map.joinable, map.max_mds);
            facts.ranks = map.ranks.iter().map(|(rank, info)| (*rank, info.state)).collect();
            facts.standbys = standbys(map).count() as u64;
        }
        facts
    }
}

/// The daemons without a rank, as people call them.
pub(crate) fn standbys(map: &ClusterMap) -> impl Iterator<Item = &str> {
    let carries = |daemon| map.ranks.values().any(|rank| rank.daemon == daemon);
    let idle = map.daemons.iter().filter(move |(daemon, _)| !carries(**daemon));
    idle.map(|(_, info)| info.name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What broke: the first life of a file system that was opened later was kept, with its cache, until the process ended.
    #[test]
    fn a_first_life_that_nobody_waits_for_is_not_kept() {
        let kept = |answered: bool| {
            let views = Views::default();
            views.change(|view| view.answered = answered);
            views.begun(RankId(0), Err(ServerError::Closed));
            views.lock().first.is_some()
        };
        assert_eq!([false, true].map(kept), [true, false]);
    }

    /// Whoever wants all ranks to serve, as a backup does, is not left waiting for room that nobody makes.
    #[test]
    fn a_life_that_finds_no_room_is_told_to_who_waits_for_all() {
        let told = |error| {
            let views = Views::default();
            views.begun(RankId(1), Err(error));
            views.lock().unbegun.clone()
        };
        assert_eq!(told(StoreError::NoSpace.into()), Some("rank 1 does not begin: no space left".to_owned()));
        assert_eq!(told(ServerError::Damaged("its journal".into())), None);
    }

    #[test]
    fn a_life_that_does_not_begin_is_no_failover() {
        let views = Views::default();
        for _ in 0..3 {
            views.begun(RankId(1), Err(ServerError::Closed));
        }
        assert_eq!(views.facts().failovers, 0);
    }
}
