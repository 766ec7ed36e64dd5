//! The end of a run: no more faults. Everything that is wanted and can be comes to be within a bound, and then stays.
//!
//! Absent: that nothing wrong happens on the way (`judge.rs`).

use super::event::Event;
use super::{Cluster, Phase};
use crate::model::judge::Verdict;
use mds::coordinator::Command;
use proto::cluster::{ClusterMap, RankInfo, RankState};
use proto::ids::{Incarnation, RankId};
use std::collections::BTreeMap;
use stdx::time::SECOND;

/// The lives of ranks.
type Lives = BTreeMap<RankId, (RankState, Incarnation)>;

fn lives(map: &ClusterMap) -> Lives {
    map.ranks.iter().map(|(rank, info)| (*rank, (info.state, info.incarnation))).collect()
}

impl Cluster {
    /// Virtual time in which everything comes to be: the coordinator gives everybody time, fails who is silent, waits for leases,
    /// each rank goes through its states, and those that are not wanted leave one after the other.
    fn bound(&self) -> u64 {
        self.plan.lease * 12 + self.plan.work * 6
    }

    /// No more faults: one coordinator stays, and most of the daemons that died come back.
    pub(super) fn heal(&mut self) -> Verdict {
        self.phase = Phase::Heal;
        // Whoever stands still goes on in his own time.
        let seats = self.seats.iter().map(|seat| seat.reads);
        self.healed = seats
            .chain(self.places.iter().map(|place| place.paused))
            .max()
            .map_or(self.now, |at| at.max(self.now));
        self.trace.event(self.now, "heal", 0, String::new);
        (self.registry.down, self.registry.slow, self.store.slow) = (0, 0, 0);
        (self.plan.failing, self.plan.late, self.plan.told) = (0, 0, 8);
        self.kept = self.rng.index(self.seats.len());
        for seat in 0..self.seats.len() {
            let at = &mut self.seats[seat];
            (at.cut, at.unheard, at.refused) = (0, 0, 0);
            if seat != self.kept && at.is_up() {
                self.seat_dies(seat);
            }
        }
        let comes = self.rng.index(self.places.len());
        for place in 0..self.places.len() {
            let at = &mut self.places[place];
            at.cut = 0;
            at.dead = !at.up && place != comes && self.rng.chance(1, 4);
            self.at(self.now, Event::DaemonStarts { place });
        }
        self.at(self.now, Event::SeatStarts { seat: self.kept });
        self.last_words();
        Ok(())
    }

    /// What was asked last time may be one that leaves ranks down: mostly that is taken back.
    fn last_words(&mut self) {
        let at = self.healed + self.plan.lease;
        if self.rng.chance(3, 4) {
            self.says_last(at, Command::SetJoinable(true));
        }
        let damaged = self.registry.map().map(|map| lives(map)).unwrap_or_default();
        for (rank, (state, _)) in damaged {
            if state == RankState::Damaged && self.rng.chance(1, 2) {
                self.says_last(at, Command::FailRank(rank));
            }
        }
    }

    fn says_last(&mut self, at: u64, command: Command) {
        self.words += 1;
        self.at(at, Event::LastWord { command });
    }

    pub(super) fn last_word(&mut self, command: Command) {
        self.words -= 1;
        self.commands(self.kept, command);
    }

    /// After each event.
    pub(super) fn healing(&mut self) -> Verdict {
        match self.phase {
            Phase::Faults if self.now >= self.plan.length => self.heal(),
            Phase::Heal => {
                let missing = self.missing();
                // Until then something may come that was said before.
                let began = self.healed + self.plan.lease * 2 + SECOND;
                if missing.is_none() && self.now > began {
                    self.phase = Phase::Watch;
                    self.calm = self.now;
                    self.lives = self.registry.map().map(|map| lives(map)).unwrap_or_default();
                } else if self.now > began + self.bound() {
                    return Err(format!("no progress: {}", missing.unwrap_or_default()));
                }
                Ok(())
            }
            Phase::Watch => self.watch(),
            Phase::Faults | Phase::Done => Ok(()),
        }
    }

    /// Nothing happens to anybody when nothing goes wrong.
    fn watch(&mut self) -> Verdict {
        let Some(map) = self.registry.map().cloned() else { return Err("the map is gone".to_owned()) };
        if lives(&map) != self.lives {
            return Err(format!("calm, and ranks {:?} are {:?}", self.lives, lives(&map)));
        }
        if self.now > self.calm + self.plan.lease * 4 {
            if let Some(missing) = self.missing() {
                return Err(format!("calm, and {missing}"));
            }
            self.phase = Phase::Done;
            self.count_end(&map);
        }
        Ok(())
    }

    fn count_end(&mut self, map: &ClusterMap) {
        let standbys = self.standbys();
        let what = if standbys > 0 { "ends with a standby" } else { "ends without a standby" };
        self.coverage.count(what, 1);
        if !map.joinable {
            self.coverage.count("ends that are not joinable", 1);
        }
        if map.ranks.values().any(|info| info.state == RankState::Damaged) {
            self.coverage.count("ends in which a rank stays damaged", 1);
        }
    }

    /// What is not as it should be.
    pub(super) fn missing(&self) -> Option<String> {
        let Some(map) = self.registry.map() else { return Some("there is no map".to_owned()) };
        if !self.operator.open.is_empty() {
            return Some(format!("commands {:?} are not answered", self.operator.open));
        }
        if self.words > 0 {
            return Some("an operator is still to speak".to_owned());
        }
        for daemon in map.daemons.keys() {
            if self.is_phantom(*daemon) {
                return Some(format!("daemon {} is in the map, and is none", daemon.0));
            }
        }
        for (number, place) in self.places.iter().enumerate().filter(|(_, place)| place.up) {
            if place.id.is_none_or(|id| !map.daemons.contains_key(&id)) {
                return Some(format!("daemon {number} ({:?}) is not in the map", place.id));
            }
        }
        let mut ranks: Vec<RankId> = map.ranks.keys().copied().collect();
        ranks.extend((0..map.max_mds).map(RankId).filter(|rank| !map.ranks.contains_key(rank)));
        ranks.into_iter().find_map(|rank| self.lacks(map, rank))
    }

    /// Of a rank that is on its way out of the map what it lacks for that; it goes once those above it have.
    fn goes(&self, map: &ClusterMap, rank: RankId, info: RankInfo) -> Option<Option<String>> {
        if rank.0 < map.max_mds {
            return None;
        }
        let left = self.seats[self.kept].record.left.contains(&info.incarnation);
        let highest = map.ranks.keys().all(|other| *other <= rank);
        if info.state == RankState::Failed && (left || !map.made.has(rank)) {
            return Some(highest.then(|| format!("rank {} is not gone yet", rank.0)));
        }
        // One stops at a time, from above.
        let stops = map.ranks.values().any(|info| info.state == RankState::Stopping);
        if info.state == RankState::Active && highest && !stops {
            return Some(Some(format!("rank {} does not stop", rank.0)));
        }
        // Who is to have its slots may have no life.
        let active = |rank: &RankId| map.ranks.get(rank).is_some_and(|info| info.state == RankState::Active);
        let can = !map.is_owner(rank) || (0..map.max_mds).map(RankId).all(|rank| active(&rank));
        (info.state == RankState::Stopping && can).then(|| Some(format!("rank {} does not leave", rank.0)))
    }

    /// What a rank lacks that it could have.
    fn lacks(&self, map: &ClusterMap, rank: RankId) -> Option<String> {
        let info = map.ranks.get(&rank);
        if let Some(lacks) = info.and_then(|info| self.goes(map, rank, *info)) {
            return lacks;
        }
        match info.map_or(RankState::Failed, |info| info.state) {
            RankState::Damaged => None,
            RankState::Failed if !map.joinable || self.standbys() == 0 => None,
            RankState::Failed => Some(format!("rank {} has no life, and a standby waits", rank.0)),
            RankState::Active | RankState::Stopping => {
                let life = info.map(|info| info.incarnation);
                let acts =
                    self.places.iter().any(|place| place.may_act(self.now) == life.map(|life| (rank, life)));
                (!acts).then(|| format!("rank {} is active, and may not act", rank.0))
            }
            state @ (RankState::Creating | RankState::Replay | RankState::Resolve | RankState::Reconnect) => {
                Some(format!("rank {} is in {}", rank.0, state.name()))
            }
        }
    }
}
