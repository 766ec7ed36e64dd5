//! Lives of ranks, as far as a coordinator can see them: they work from state to state, look at their lease, act, and
//! answer what the map asks of their rank.
//!
//! Absent: what a rank does (the other world, `crate::world`).

use super::event::{Act, Event};
use super::{Cluster, Phase};
use crate::model::judge::Verdict;
use mds::coordinator::{Ask, BeaconState, Command};
use proto::cluster::{ClusterMap, MoveId, RankState};
use proto::ids::{Incarnation, RankId};
use stdx::Mono;

/// A life of a rank in its daemon.
#[derive(Debug)]
pub(super) struct Life {
    pub(super) rank: RankId,
    pub(super) incarnation: Incarnation,
    pub(super) state: RankState,
    /// By the daemon's clock: it acts until then.
    pub(super) lease: Option<Mono>,
    /// It makes no progress, and its daemon says nothing of it.
    pub(super) hung: bool,
    /// It will find damage.
    damaged: bool,
}

impl Life {
    pub(super) const fn state(&self) -> BeaconState {
        BeaconState::Rank { rank: self.rank, incarnation: self.incarnation, state: self.state }
    }

    /// The state after this one; `None`: it stays.
    const fn next(&self) -> Option<RankState> {
        match self.state {
            RankState::Creating => Some(RankState::Replay),
            RankState::Replay if self.damaged => Some(RankState::Damaged),
            RankState::Replay => Some(RankState::Resolve),
            RankState::Resolve => Some(RankState::Reconnect),
            RankState::Reconnect => Some(RankState::Active),
            RankState::Failed | RankState::Active | RankState::Stopping | RankState::Damaged => None,
        }
    }
}

/// A move of what the rank has.
fn moved_by(map: &ClusterMap, rank: RankId) -> Option<MoveId> {
    map.slots.runs().find_map(|(_, slot)| slot.moving.filter(|_| slot.rank == rank)).map(|moving| moving.id)
}

impl Cluster {
    pub(super) fn begins(&mut self, place: usize, rank: RankId, incarnation: Incarnation) {
        let first = self.judge.map_of(incarnation).is_some_and(|state| state == RankState::Creating);
        let state = if first { RankState::Creating } else { RankState::Replay };
        let damaged =
            self.phase == Phase::Faults && self.plan.damaged > 0 && self.rng.chance(1, self.plan.damaged);
        let life = Life { rank, incarnation, state, lease: None, hung: false, damaged };
        self.trace.event(self.now, "begins", incarnation.0, || format!("{place}: {life:?}"));
        self.coverage.count("lives begun", 1);
        let at = &mut self.places[place];
        at.life = Some(life);
        let act = Act { place, birth: at.birth, rank, incarnation };
        self.works(act);
        self.acts_soon(act);
        self.beacon(place);
    }

    fn works(&mut self, act: Act) {
        let longest = self.plan.work;
        self.after(longest, Event::Worked { act });
    }

    fn acts_soon(&mut self, act: Act) {
        let longest = self.plan.act_every * 2;
        self.after(longest, Event::Acts { act });
    }

    /// The life that an event is of, if it lives.
    fn living(&mut self, act: Act) -> Option<&mut Life> {
        let at = &mut self.places[act.place];
        let is_here = at.up && at.birth == act.birth;
        at.life.as_mut().filter(|life| is_here && life.incarnation == act.incarnation)
    }

    pub(super) fn worked(&mut self, act: Act) {
        let Some(life) = self.living(act).filter(|life| !life.hung) else { return };
        let Some(next) = life.next() else { return };
        life.state = next;
        self.trace.event(self.now, "works", act.incarnation.0, || format!("{act:?} is {next:?}"));
        // Now and then more than one state is over before its daemon speaks again.
        if self.rng.chance(7, 8) {
            self.beacon(act.place);
        }
        self.works(act);
    }

    /// It looks at its lease and decides: answers a client, or appends to its journal. Whoever decides by a clock that was read before
    /// a pause decides what it would have decided then.
    pub(super) fn acts(&mut self, act: Act) -> Verdict {
        let now = self.now;
        let Some(life) = self.living(act) else { return Ok(()) };
        let (state, hung) = (life.state, life.hung);
        self.acts_soon(act);
        if hung || state == RankState::Damaged {
            return Ok(());
        }
        if self.places[act.place].may_act(now).is_none() {
            self.coverage.count("acts left undone without a lease", 1);
            return Ok(());
        }
        self.judge_act(act)?;
        self.asks(act.place);
        if state == RankState::Active && self.rng.chance(1, 2) {
            self.coverage.count("answers", 1);
            return Ok(());
        }
        if self.phase == Phase::Faults && self.between && self.rng.chance(1, 40) {
            let longest = self.plan.lease * 3;
            self.pause_place(act.place, longest);
            self.coverage.count("pauses between the lease and the act", 1);
        }
        let at = self.places[act.place].paused;
        self.at(at, Event::Leaves { act });
        Ok(())
    }

    /// What the map asks of the rank is answered: a move that is begun with Switch or Abort, by one that stops and has nothing with Leave.
    pub(super) fn asks(&mut self, place: usize) {
        let at = &self.places[place];
        let (Some(map), Some(life)) = (&at.map, &at.life) else { return };
        let named = map.ranks.get(&life.rank).filter(|info| info.incarnation == life.incarnation);
        let Some(state) = named.map(|info| info.state).filter(|_| !life.hung) else { return };
        let by = mds::coordinator::Life { rank: life.rank, incarnation: life.incarnation };
        let ask = match moved_by(map, life.rank) {
            Some(id) if self.phase == Phase::Faults && self.rng.chance(1, 8) => Ask::Abort { id },
            Some(id) => Ask::Switch { id },
            None if state == RankState::Stopping && !map.is_owner(life.rank) => Ask::Leave,
            None => return,
        };
        let home = at.home;
        self.commands(home, Command::Ask(by, ask));
    }

    pub(super) fn leaves(&mut self, act: Act) {
        if self.places[act.place].up && self.places[act.place].birth == act.birth {
            let at = self.store_at();
            self.at(at, Event::Reaches { act });
        }
    }

    /// The store has refused an act: this life is over.
    pub(super) fn refused(&mut self, act: Act) {
        if self.living(act).is_some() {
            self.coverage.count("lives that a fence ended", 1);
            self.ends(act.place);
        }
    }

    /// A daemon stands still.
    pub(super) fn pause_place(&mut self, place: usize, longest: u64) {
        let until = self.now + 1 + self.rng.below(longest);
        self.trace.event(self.now, "pause", place as u64, || format!("daemon {place} until {until}"));
        let at = &mut self.places[place].paused;
        *at = until.max(*at);
    }
}
