//! What goes wrong, and when.
//!
//! Absent: what is lost on the way (`network.rs`), failing requests (`registry.rs`), which follow dice of their own.

use super::event::Event;
use super::{Cluster, Phase};

/// What can strike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A daemon's process dies; another one starts in its place.
    DaemonCrash,
    /// A daemon stands still, its clock does not.
    DaemonPause,
    /// A rank makes no progress any more; its process lives.
    DaemonHang,
    /// A daemon and the coordinators, or one of them, do not hear each other.
    DaemonCut,
    /// From now on ranks stand still between a look at their lease and the act, now and then.
    Between,
    SeatCrash,
    SeatPause,
    /// A coordinator does not reach the registry.
    SeatCut,
    /// Another coordinator begins while the first goes on.
    SeatSecond,
    /// A coordinator does not reach the registry, another one begins, and each daemon hears only one of the two.
    Split,
    RegistryDown,
    RegistrySlow,
    /// Appends and fences take long to reach the stores.
    StoreSlow,
    /// Everything dies at once.
    Power,
}

impl Fault {
    pub const ALL: [Self; 14] = [
        Self::DaemonCrash,
        Self::DaemonPause,
        Self::DaemonHang,
        Self::DaemonCut,
        Self::Between,
        Self::SeatCrash,
        Self::SeatPause,
        Self::SeatCut,
        Self::SeatSecond,
        Self::Split,
        Self::RegistryDown,
        Self::RegistrySlow,
        Self::StoreSlow,
        Self::Power,
    ];

    /// Its column in the coverage table.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::DaemonCrash => "crash",
            Self::DaemonPause => "pause",
            Self::DaemonHang => "hang",
            Self::DaemonCut => "cut",
            Self::Between => "between",
            Self::SeatCrash => "c-crash",
            Self::SeatPause => "c-pause",
            Self::SeatCut => "c-cut",
            Self::SeatSecond => "c-second",
            Self::Split => "split",
            Self::RegistryDown => "r-down",
            Self::RegistrySlow => "r-slow",
            Self::StoreSlow => "s-slow",
            Self::Power => "power",
        }
    }
}

impl Cluster {
    pub(super) fn strikes(&mut self) {
        if self.phase > Phase::Faults {
            return;
        }
        if !self.plan.faults.is_empty() {
            let fault = self.plan.faults[self.rng.index(self.plan.faults.len())];
            self.strike(fault);
        }
        let every = self.plan.fault_every;
        self.after(every * 2, Event::Strikes);
    }

    fn strike(&mut self, fault: Fault) {
        // Who carries a rank is hit more often than who does not.
        let carries: Vec<usize> =
            (0..self.places.len()).filter(|place| self.places[*place].life.is_some()).collect();
        let place = if carries.is_empty() || self.rng.chance(1, 4) {
            self.rng.index(self.places.len())
        } else {
            carries[self.rng.index(carries.len())]
        };
        let seat = self.rng.index(self.seats.len());
        let lease = self.plan.lease;
        let longest = [lease / 4, lease, lease * 3][self.rng.index(3)];
        let under_way = self.under_way();
        if self.fault(fault, place, seat, longest) {
            self.trace.event(self.now, "fault", place as u64, || format!("{fault:?} {place} {seat}"));
            self.coverage.fault(fault, under_way);
        }
    }

    /// Carries a fault out; `false` when there is nothing that it could strike.
    pub(super) fn fault(&mut self, fault: Fault, place: usize, seat: usize, longest: u64) -> bool {
        let until = self.now + 1 + self.rng.below(longest);
        match fault {
            Fault::DaemonCrash if self.plan.sole => return false,
            Fault::DaemonCrash if self.places[place].up => self.daemon_dies(place),
            Fault::DaemonPause if self.places[place].up => self.pause_place(place, longest),
            Fault::DaemonHang => match &mut self.places[place].life {
                Some(life) => life.hung = true,
                None => return false,
            },
            Fault::DaemonCut => {
                self.places[place].cut = until;
                self.places[place].cut_from = self.rng.chance(1, 2).then_some(seat);
            }
            Fault::Between => self.between = true,
            Fault::SeatCrash | Fault::Power if self.plan.sole => self.power(),
            Fault::SeatCrash if self.seats[seat].is_up() => self.seat_dies(seat),
            Fault::SeatPause if self.seats[seat].is_up() => self.pause_seat(seat, until),
            Fault::SeatCut => self.cut_seat(seat, until),
            Fault::Split => return self.split(),
            Fault::SeatSecond => return self.seat_comes(seat),
            Fault::RegistryDown => self.registry.down = until,
            Fault::RegistrySlow => self.registry.slow = until,
            Fault::StoreSlow => self.store.slow = until,
            Fault::Power => self.power(),
            Fault::DaemonCrash | Fault::DaemonPause | Fault::SeatCrash | Fault::SeatPause => return false,
        }
        true
    }

    fn cut_seat(&mut self, seat: usize, until: u64) {
        let at = &mut self.seats[seat];
        match self.rng.below(3) {
            0 => at.cut = until,
            1 => at.unheard = until,
            _ => at.refused = until,
        }
    }

    fn split(&mut self) -> bool {
        let serves = |at: &usize| self.seats[*at].serves();
        let first = (0..self.seats.len()).find(serves);
        let second = (0..self.seats.len()).find(|at| !serves(at));
        let (Some(first), Some(second)) = (first, second) else { return false };
        let until = self.now + self.plan.lease + self.rng.below(self.plan.lease * 3);
        self.cut_seat(first, until);
        self.at(self.now, Event::SeatStarts { seat: second });
        for place in 0..self.places.len() {
            let (home, other) = if self.rng.chance(1, 2) { (first, second) } else { (second, first) };
            let at = &mut self.places[place];
            (at.home, at.cut, at.cut_from) = (home, until, Some(other));
        }
        true
    }

    fn pause_seat(&mut self, seat: usize, until: u64) {
        let ticks_first = self.rng.chance(1, 2);
        let (now, long) = (self.now, self.plan.lease / 4);
        let at = &mut self.seats[seat];
        at.paused = until.max(at.paused);
        at.reads = at.paused + u64::from(ticks_first);
        if at.paused > now + long {
            at.awake = at.paused;
        }
    }

    /// A coordinator ends. What it has asked for takes its course.
    pub(super) fn seat_dies(&mut self, seat: usize) {
        let at = &mut self.seats[seat];
        at.machine = None;
        (at.paused, at.reads, at.deposed) = (0, 0, false);
        for id in std::mem::take(&mut at.record.open) {
            self.operator.open.remove(&id);
        }
        // Another one begins, here or in another place.
        let next = if self.rng.chance(1, 2) { seat } else { self.rng.index(self.seats.len()) };
        let longest = [self.plan.interval, self.plan.lease * 2][self.rng.index(2)];
        self.after(longest, Event::SeatStarts { seat: next });
    }

    /// A coordinator begins where there is none, or where a deposed one waits.
    fn seat_comes(&mut self, seat: usize) -> bool {
        if self.plan.sole || self.seats[seat].serves() {
            return false;
        }
        self.at(self.now, Event::SeatStarts { seat });
        true
    }

    /// Every process ends. In one process ranks and their coordinator always end together.
    fn power(&mut self) {
        for place in 0..self.places.len() {
            if self.places[place].up {
                self.daemon_dies(place);
            }
        }
        for seat in 0..self.seats.len() {
            if self.seats[seat].is_up() {
                self.seat_dies(seat);
            }
        }
    }
}
