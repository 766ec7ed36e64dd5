//! The daemons: what a driver does for a rank that it may carry. They register, say that they are there, begin and end lives.
//!
//! Absent: what a life does meanwhile (`lives.rs`).

use super::event::{Event, ToDaemon, ToSeat};
use super::lives::Life;
use super::seats::SKEW_MAX;
use super::{Cluster, Phase};
use crate::clock::HostClock;
use crate::model::judge::Verdict;
use mds::coordinator::{Beacon, BeaconState};
use proto::cluster::{ClusterMap, DaemonId, RankState};
use proto::ids::{Incarnation, RankId};
use std::sync::Arc;
use stdx::Mono;

/// A place where a daemon may run.
#[derive(Default)]
pub(super) struct Place {
    pub(super) up: bool,
    /// Grows with each start of its process.
    pub(super) birth: u64,
    pub(super) clock: HostClock,
    /// It stands still until then.
    pub(super) paused: u64,
    /// Cut off until then, from one coordinator or from all.
    pub(super) cut: u64,
    pub(super) cut_from: Option<usize>,
    /// It never comes back.
    pub(super) dead: bool,
    /// What it is called until it has a number, and its number.
    token: u64,
    pub(super) id: Option<DaemonId>,
    seq: u64,
    /// The coordinator that it talks to, and when it heard of one last.
    pub(super) home: usize,
    heard: u64,
    pub(super) map: Option<Arc<ClusterMap>>,
    pub(super) life: Option<Life>,
}

impl Place {
    /// What its clock shows.
    pub(super) fn mono(&self, now: u64) -> Mono {
        self.clock.shows(now)
    }

    /// Whether the life that it carries may act at this instant.
    pub(super) fn may_act(&self, now: u64) -> Option<(RankId, Incarnation)> {
        let life = self.life.as_ref().filter(|_| self.up)?;
        life.lease.is_some_and(|lease| self.mono(now) < lease).then_some((life.rank, life.incarnation))
    }
}

impl Cluster {
    pub(super) fn daemon_starts(&mut self, place: usize) {
        if self.places[place].up || self.places[place].dead {
            return;
        }
        let clock = HostClock::any(&mut self.rng, SKEW_MAX);
        let home = self.rng.index(self.seats.len());
        let at = &mut self.places[place];
        let birth = at.birth + 1;
        *at = Place {
            up: true,
            birth,
            clock,
            home,
            heard: self.now,
            cut: at.cut,
            cut_from: at.cut_from,
            ..Place::default()
        };
        self.registers(place);
        self.at(self.now, Event::Beats { place, birth });
    }

    /// It wants a number.
    pub(super) fn registers(&mut self, place: usize) {
        self.tokens += 1;
        let token = self.tokens;
        let at = &mut self.places[place];
        (at.token, at.id, at.seq, at.life) = (token, None, 0, None);
        self.addresses.tokens.insert(token, (place, at.birth));
    }

    /// Every interval, or a little earlier or later.
    pub(super) fn beats(&mut self, place: usize, birth: u64) {
        if self.places[place].birth != birth || !self.places[place].up {
            return;
        }
        self.beacon(place);
        let interval = self.plan.interval;
        let next = interval - interval / 8 + self.rng.below(interval / 4);
        self.at(self.now + next, Event::Beats { place, birth });
    }

    /// Says that it is there.
    pub(super) fn beacon(&mut self, place: usize) {
        self.looks_for_another(place);
        let (now, seats) = (self.now, self.seats.len());
        let at = &mut self.places[place];
        let Some(daemon) = at.id else {
            let message = ToSeat::Register { token: at.token, name: format!("daemon-{place}") };
            let home = at.home;
            self.say(place, home, "register", message);
            return;
        };
        // Only a rank that makes progress has itself mentioned. Its daemon looks whether the map still names it.
        if at.life.as_ref().is_some_and(|life| life.hung) {
            let (home, version) = (at.home, at.map.as_ref().map_or(0, |map| map.version));
            self.catches_up(home, daemon, version);
            self.looks_at_map(place);
            return;
        }
        at.seq += 1;
        let state = at.life.as_ref().map_or(BeaconState::Standby, Life::state);
        let map_version = at.map.as_ref().map_or(0, |map| map.version);
        let beacon = Beacon { seq: at.seq, sent: at.mono(now), state };
        let home = at.home;
        for seat in 0..seats {
            if self.plan.to_all || seat == home {
                self.say(place, seat, "beacon", ToSeat::Beacon { daemon, beacon, map_version });
            }
        }
    }

    /// Who hears nothing turns to another coordinator.
    fn looks_for_another(&mut self, place: usize) {
        let silent = self.now.saturating_sub(self.places[place].heard) > self.plan.interval * 3 / 2;
        if silent || !self.seats[self.places[place].home].serves() {
            let serving: Vec<usize> = (0..self.seats.len()).filter(|at| self.seats[*at].serves()).collect();
            if !serving.is_empty() {
                self.places[place].home = serving[self.rng.index(serving.len())];
            }
        }
    }

    pub(super) fn told(&mut self, place: usize, birth: u64, message: ToDaemon) -> Verdict {
        let now = self.now;
        let lease = self.plan.lease;
        let at = &mut self.places[place];
        if !at.up || at.birth != birth {
            return Ok(());
        }
        at.heard = now;
        match message {
            ToDaemon::Registered { token, daemon } => {
                if at.token == token && at.id.is_none() {
                    at.id = Some(daemon);
                    self.beacon(place);
                }
            }
            ToDaemon::Ack { daemon, seq, sent } => {
                if at.id == Some(daemon) && (seq > at.seq || sent > at.mono(now)) {
                    return Err(format!("daemon {place} never sent beacon {seq}"));
                }
                if at.id == Some(daemon)
                    && let Some(life) = &mut at.life
                {
                    life.lease = life.lease.max(Some(sent.after(lease)));
                }
            }
            ToDaemon::Assign { daemon, rank, incarnation } => {
                if at.id == Some(daemon) && at.life.is_none() {
                    self.begins(place, rank, incarnation);
                }
            }
            ToDaemon::Dismiss { daemon } => {
                if at.id == Some(daemon) {
                    self.ends(place);
                }
            }
            ToDaemon::Map { map } => self.has_map(place, map),
        }
        Ok(())
    }

    /// A newer map came.
    fn has_map(&mut self, place: usize, map: Arc<ClusterMap>) {
        let at = &mut self.places[place];
        if at.map.as_ref().is_none_or(|old| old.version < map.version) {
            at.map = Some(map);
            self.looks_at_map(place);
            self.asks(place);
        }
    }

    /// To a daemon that says nothing, because its rank hangs, nobody says that this is over: it sees it in the map.
    fn looks_at_map(&mut self, place: usize) {
        let at = &self.places[place];
        let (Some(map), Some(life)) = (&at.map, &at.life) else { return };
        let names = map
            .ranks
            .get(&life.rank)
            .is_some_and(|rank| rank.incarnation == life.incarnation && Some(rank.daemon) == at.id);
        // A map of before the life says nothing about it.
        if life.hung && map.last_incarnation >= life.incarnation && !names {
            self.coverage.count("lives that a map ended", 1);
            self.ends(place);
        }
    }

    /// Its life is over, and its number with it.
    pub(super) fn ends(&mut self, place: usize) {
        let at = &self.places[place];
        let carried = at.life.as_ref().map(|life| (life.rank, life.incarnation));
        self.trace.event(self.now, "ends", place as u64, || format!("{place} carried {carried:?}"));
        if let Some(daemon) = at.id {
            self.tell_gone(place, daemon);
        }
        self.registers(place);
        self.beacon(place);
    }

    /// That a daemon is no more is told to the coordinators that can be reached.
    pub(super) fn tell_gone(&mut self, place: usize, daemon: DaemonId) {
        for seat in 0..self.seats.len() {
            self.say(place, seat, "gone", ToSeat::Gone { daemon });
        }
    }

    pub(super) fn registered(&mut self, seat: usize, token: u64, daemon: DaemonId) -> Verdict {
        let Some(address) = self.addresses.tokens.get(&token).copied() else {
            return Err(format!("coordinator {seat} registers a token {token} that nobody has"));
        };
        let other = self.addresses.daemons.insert(daemon, (address, token));
        if other.is_some_and(|(_, of)| of != token) {
            return Err(format!("{daemon:?} is given to two"));
        }
        if self.registry.map().is_none_or(|map| map.last_daemon < daemon) {
            return Err(format!("{daemon:?} is told before it is durable"));
        }
        self.tell(seat, daemon, ToDaemon::Registered { token, daemon });
        Ok(())
    }

    /// A daemon's process ends, and everything in it.
    pub(super) fn daemon_dies(&mut self, place: usize) {
        let (told, phase) = (self.plan.told, self.phase);
        let at = &mut self.places[place];
        at.up = false;
        let (id, life) = (at.id.take(), at.life.take());
        self.trace.event(self.now, "dies", place as u64, || {
            format!("{place} {id:?} {:?}", life.map(|life| life.rank))
        });
        if let Some(daemon) = id
            && self.rng.chance(told, 8)
        {
            self.tell_gone(place, daemon);
        }
        if phase == Phase::Faults {
            let longest = self.plan.lease * [1, 4][self.rng.index(2)];
            self.after(longest, Event::DaemonStarts { place });
        }
    }

    /// Who in the map does not exist.
    pub(super) fn is_phantom(&self, daemon: DaemonId) -> bool {
        !self.places.iter().any(|place| place.up && place.id == Some(daemon))
    }

    /// Daemons without a rank that a coordinator could give one, as the durable map says.
    pub(super) fn standbys(&self) -> usize {
        let Some(map) = self.registry.map() else { return 0 };
        let carries = |id: &DaemonId| map.ranks.values().any(|rank| rank.daemon == *id);
        map.daemons.keys().filter(|id| !carries(id) && !self.is_phantom(**id)).count()
    }

    /// Ranks in one of these states in the durable map.
    pub(super) fn ranks_in(&self, states: &[RankState]) -> usize {
        let Some(map) = self.registry.map() else { return 0 };
        map.ranks.values().filter(|rank| states.contains(&rank.state)).count()
    }
}
