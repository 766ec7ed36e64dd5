//! A world without dice for faults, driven step by step: for scenarios that are kept by name.
//!
//! Absent: the scenarios (`tests/coordinator.rs`).

use super::event::Event;
use super::{Cluster, Coverage, Fault, Phase, Plan};
use crate::model::judge::Verdict;
use mds::coordinator::Command;
use proto::cluster::RankInfo;
use proto::ids::RankId;
use stdx::Prng;
use stdx::time::{MS, SECOND};

impl Cluster {
    /// A calm world in which one coordinator has begun, and nothing else has happened.
    #[must_use]
    pub fn calm(seed: u64, daemons: usize, seats: usize) -> Self {
        let mut world = Self::new(Plan::calm(daemons, seats), Prng::new(seed), None);
        world.plan.length = u64::MAX;
        world.begin();
        world
    }

    /// Time passes.
    ///
    /// # Errors
    /// What the judge objects to.
    pub fn pass(&mut self, ns: u64) -> Verdict {
        let until = self.now + ns;
        while self.heap.first_key_value().is_some_and(|((at, _), _)| *at <= until) {
            self.next()?;
        }
        self.now = until;
        Ok(())
    }

    /// Time passes until something is so.
    ///
    /// # Errors
    /// What the judge objects to; and that it is not so after ten minutes.
    pub fn until(&mut self, what: &str, mut is_so: impl FnMut(&Self) -> bool) -> Verdict {
        let end = self.now + 600 * SECOND;
        while !is_so(self) {
            if self.now > end {
                return Err(format!("{what}: not within ten minutes: {:?}", self.story()));
            }
            self.pass(MS)?;
        }
        Ok(())
    }

    /// A fault of that length strikes the daemon at `place` or the coordinator at `seat`; `false` when it cannot.
    pub fn inflict(&mut self, fault: Fault, place: usize, seat: usize, ns: u64) -> bool {
        let now = self.now;
        let struck = self.fault(fault, place, seat, 1);
        match fault {
            Fault::DaemonPause => self.places[place].paused = now + ns,
            Fault::DaemonCut => {
                self.places[place].cut = now + ns;
                self.places[place].cut_from = Some(seat);
            }
            Fault::SeatPause => {
                self.seats[seat].paused = now + ns;
                self.seats[seat].reads = now + ns;
                self.seats[seat].awake = now + ns;
            }
            Fault::SeatCut => (self.seats[seat].cut, self.seats[seat].refused) = (0, now + ns),
            Fault::RegistryDown => self.registry.down = now + ns,
            Fault::RegistrySlow => self.registry.slow = now + ns,
            Fault::StoreSlow => self.store.slow = now + ns,
            Fault::DaemonCrash
            | Fault::DaemonHang
            | Fault::Between
            | Fault::SeatCrash
            | Fault::SeatSecond
            | Fault::Split
            | Fault::Power => {}
        }
        struck
    }

    /// The rank at `place` looks at its lease now, stands still for so long with all of its daemon, and then acts.
    ///
    /// # Errors
    /// What the judge objects to; and that it carries no rank that may act.
    pub fn acts_late(&mut self, place: usize, ns: u64) -> Verdict {
        let (rank, incarnation) =
            self.places[place].may_act(self.now).ok_or_else(|| format!("daemon {place} may not act"))?;
        let birth = self.places[place].birth;
        let act = super::event::Act { place, birth, rank, incarnation };
        self.judge_act(act)?;
        self.places[place].paused = self.now + ns;
        self.at(self.now + ns, Event::Leaves { act });
        Ok(())
    }

    /// The next lives begun find their journals damaged, or no more.
    pub fn damage(&mut self, on: bool) {
        self.plan.damaged = u64::from(on);
    }

    /// An operator asks a coordinator for something.
    pub fn ask(&mut self, seat: usize, command: Command) {
        self.commands(seat, command);
    }

    /// Whether every command has been answered.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        self.operator.open.is_empty()
    }

    /// A rank, as the durable map has it.
    #[must_use]
    pub fn rank(&self, rank: u16) -> Option<RankInfo> {
        self.registry.map().and_then(|map| map.ranks.get(&RankId(rank))).copied()
    }

    /// Where the daemon runs that carries a rank by its own knowledge.
    #[must_use]
    pub fn carrier(&self, rank: u16) -> Option<usize> {
        let life = self.rank(rank)?.incarnation;
        self.places.iter().position(|place| place.life.as_ref().is_some_and(|of| of.incarnation == life))
    }

    /// Fences that were asked for and have not reached the stores.
    #[must_use]
    pub fn fences_under_way(&self) -> u64 {
        self.store.under_way
    }

    /// What happened to ranks, one line each.
    #[must_use]
    pub fn story(&self) -> &[String] {
        &self.judge.story
    }

    /// Virtual time.
    #[must_use]
    pub const fn time(&self) -> u64 {
        self.now
    }

    #[must_use]
    pub const fn coverage(&self) -> &Coverage {
        &self.coverage
    }

    /// No more faults: all comes to be, and stays.
    ///
    /// # Errors
    /// What the judge objects to.
    pub fn heals(&mut self) -> Verdict {
        self.plan.length = self.now;
        while self.phase != Phase::Done {
            self.healing()?;
            self.next()?;
        }
        Ok(())
    }
}
