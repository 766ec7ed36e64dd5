//! Followers: clients that keep the map by deltas, some of which are lost.
//!
//! Absent: what they do with it.

use super::Cluster;
use super::event::{Event, ToDaemon};
use crate::model::judge::Verdict;
use proto::cluster::{ClusterMap, DaemonId, Delta};
use std::sync::Arc;

/// So many follow.
pub(super) const FOLLOWERS: usize = 2;

/// What is sent to one.
pub(super) enum Update {
    Snapshot(Vec<u8>),
    Delta(Vec<u8>),
}

/// One follower, and what it was sent last.
#[derive(Default)]
pub(super) struct Follower {
    map: Option<ClusterMap>,
    sent: Option<u64>,
}

impl Cluster {
    /// A coordinator has published a map: it goes to its daemons, and to who follows.
    pub(super) fn publish(&mut self, seat: usize, map: &Arc<ClusterMap>) -> Verdict {
        self.judge_published(seat, map)?;
        self.seats[seat].published = Some(Arc::clone(map));
        let known: Vec<DaemonId> = map.daemons.keys().copied().collect();
        for daemon in known {
            self.tell(seat, daemon, ToDaemon::Map { map: Arc::clone(map) });
        }
        for follower in 0..FOLLOWERS {
            self.update(follower, map)?;
        }
        Ok(())
    }

    fn update(&mut self, follower: usize, map: &Arc<ClusterMap>) -> Verdict {
        let base = self.followers[follower].sent.and_then(|version| self.registry.history.get(&version));
        let update = match base.filter(|base| base.version < map.version) {
            Some(base) => Update::Delta(map.diff(base).encode()),
            None => Update::Snapshot(map.encode()),
        };
        self.followers[follower].sent = Some(map.version);
        if self.rng.chance(1, 8) {
            self.coverage.count("updates of a map that were lost", 1);
            return Ok(());
        }
        let delay = self.delay();
        self.at(self.now + delay, Event::ToFollower { follower, update: Box::new(update) });
        Ok(())
    }

    pub(super) fn follow(&mut self, follower: usize, update: Update) -> Verdict {
        let at = &mut self.followers[follower];
        match update {
            Update::Snapshot(bytes) => {
                let map = ClusterMap::decode(&bytes).map_err(|error| format!("a snapshot: {error}"))?;
                if at.map.as_ref().is_none_or(|old| old.version < map.version) {
                    at.map = Some(map);
                }
                self.coverage.count("snapshots followed", 1);
            }
            Update::Delta(bytes) => {
                let delta = Delta::decode(&bytes).map_err(|error| format!("a delta: {error}"))?;
                let Some(map) = &mut at.map else { return Ok(()) };
                if map.version != delta.from {
                    return self.refuses(follower, &delta);
                }
                map.apply(&delta).map_err(|error| format!("a delta on what it is of: {error}"))?;
                self.coverage.count("deltas followed", 1);
            }
        }
        let at = &self.followers[follower];
        let Some(map) = &at.map else { return Ok(()) };
        match self.registry.history.get(&map.version) {
            Some(durable) if **durable == *map => Ok(()),
            Some(_) => {
                Err(format!("version {} of who follows is another map than the registry's", map.version))
            }
            None => Err(format!("version {} was never durable", map.version)),
        }
    }

    /// A delta of another version changes nothing; the next update is a snapshot.
    fn refuses(&mut self, follower: usize, delta: &Delta) -> Verdict {
        let at = &mut self.followers[follower];
        at.sent = None;
        if let Some(map) = &mut at.map {
            let before = map.clone();
            if map.apply(delta).is_ok() || *map != before {
                return Err(format!("a delta from {} changes version {}", delta.from, before.version));
            }
        }
        self.coverage.count("deltas refused", 1);
        Ok(())
    }
}
