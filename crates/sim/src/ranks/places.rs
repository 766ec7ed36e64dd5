//! The daemons: they register, say that they are there, and carry a life of a rank each.
//!
//! Absent: what a life does (`lives.rs`).

use super::event::{Event, ToPlace};
use super::{Phase, Ranks};
use crate::model::judge::Verdict;
use mds::coordinator::{Beacon, BeaconState, Input};
use proto::cluster::{DaemonId, RankState};
use proto::ids::RankId;
use stdx::Mono;

/// A place where a daemon runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Place {
    /// Grows with each registration.
    pub(super) birth: u64,
    /// What it is called until it has a number, and its number.
    pub(super) token: u64,
    pub(super) id: Option<DaemonId>,
    seq: u64,
    pub(super) life: Option<u64>,
    /// It says nothing until then.
    pub(super) silent: u64,
}

impl Ranks {
    /// A daemon wants a number.
    pub(super) fn registers(&mut self, place: usize) {
        let at = &mut self.places[place];
        let birth = at.birth + 1;
        let token = ((place as u64) << 32) | birth;
        *at = Place { birth, token, silent: at.silent, ..Place::default() };
        let name = format!("daemon-{place}-{birth}");
        self.tell_seat(Input::Register { token, name });
    }

    pub(super) fn tell_place(&mut self, is: impl Fn(&Place) -> bool, message: ToPlace) {
        let Some(place) = self.places.iter().position(is) else { return };
        let birth = self.places[place].birth;
        self.after(self.plan.message_ns, Event::ToPlace { place, birth, message });
    }

    pub(super) fn place_told(&mut self, place: usize, birth: u64, message: ToPlace) -> Verdict {
        let at = &mut self.places[place];
        if at.birth != birth {
            return Ok(());
        }
        match message {
            ToPlace::Registered { token, daemon } => {
                if at.token == token && at.id.is_none() {
                    at.id = Some(daemon);
                    self.beacon(place);
                }
            }
            ToPlace::Assign { daemon, rank, incarnation } => {
                // At the end of the run nobody would tell a new life to stop.
                let wanted = self.phase != Phase::Stop;
                if wanted && at.id == Some(daemon) && at.life.is_none() {
                    self.life_begins(place, rank, incarnation)?;
                    self.beacon(place);
                }
            }
            ToPlace::Dismiss { daemon } => {
                if at.id == Some(daemon) {
                    self.coverage.count("daemons dismissed");
                    return self.place_ends(place, true);
                }
            }
        }
        Ok(())
    }

    /// The daemon and what it carries are no more; another takes its place. `told`: the coordinator hears of it.
    pub(super) fn place_ends(&mut self, place: usize, told: bool) -> Verdict {
        let (id, life) = (self.places[place].id, self.places[place].life.take());
        if let Some(life) = life.filter(|life| self.lives.contains_key(life)) {
            self.life_ends(life, false)?;
        }
        if let Some(daemon) = id.filter(|_| told) {
            self.tell_seat(Input::Gone { daemon });
        }
        self.registers(place);
        Ok(())
    }

    pub(super) fn beats(&mut self, place: usize) -> Verdict {
        let interval = self.plan.interval_ns;
        let next = self.now + interval - interval / 8 + self.rng.below(interval / 4);
        self.at(next, Event::Beats { place });
        if self.places[place].id.is_none() && self.now > self.plan.interval_ns {
            // What it said first may have come to a coordinator that was no more.
            let (token, birth) = (self.places[place].token, self.places[place].birth);
            let name = format!("daemon-{place}-{birth}");
            self.tell_seat(Input::Register { token, name });
        }
        self.beacon(place);
        Ok(())
    }

    /// Says that it is there; not what a rank does that makes no progress.
    pub(super) fn beacon(&mut self, place: usize) {
        let now = self.now;
        let at = &mut self.places[place];
        let Some(daemon) = at.id.filter(|_| at.silent <= now) else { return };
        let state = match at.life.map(|life| self.lives.get(&life)) {
            None => BeaconState::Standby,
            Some(None) => return,
            Some(Some(life)) if life.hung_until > now => return,
            Some(Some(life)) => match life.machine.state().in_map() {
                Some(state) => BeaconState::Rank { rank: life.rank, incarnation: life.incarnation, state },
                None => return,
            },
        };
        at.seq += 1;
        let beacon = Beacon { seq: at.seq, sent: Mono(now), state };
        let life = at.life.and_then(|life| self.lives.get(&life));
        let loads = life.map(|life| life.machine.most_loaded(Mono(now))).unwrap_or_default();
        self.tell_seat(Input::Beacon { daemon, beacon });
        self.tell_seat(Input::Loads { daemon, loads });
    }

    /// Whether every rank that is wanted serves, and the map says so.
    pub(super) fn all_serve(&self) -> bool {
        let Some(map) = &self.seat.map else { return false };
        let serves = |rank: u16| {
            let rank = RankId(rank);
            let info = map.ranks.get(&rank).filter(|info| info.state == RankState::Active);
            info.is_some_and(|info| self.lives.get(&info.incarnation.0).is_some_and(|life| life.active))
        };
        let none_more = map.ranks.keys().all(|rank| rank.0 < self.plan.ranks);
        map.max_mds == self.plan.ranks && (0..self.plan.ranks).all(serves) && none_more
    }
}
