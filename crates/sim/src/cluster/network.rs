//! Messages between daemons and coordinators: late, lost, twice, in any order.
//!
//! Absent: requests to the registry and the stores, which get lost with who asked only (`registry.rs`, `stores.rs`).

use super::event::{Event, ToDaemon, ToSeat};
use super::{Cluster, Phase};
use proto::cluster::DaemonId;

/// What a message is called in the coverage table.
const fn name(message: &ToDaemon) -> &'static str {
    match message {
        ToDaemon::Registered { .. } => "registered",
        ToDaemon::Ack { .. } => "ack",
        ToDaemon::Assign { .. } => "assign",
        ToDaemon::Dismiss { .. } => "dismiss",
        ToDaemon::Map { .. } => "map",
    }
}

impl Cluster {
    /// How often a message arrives, and when.
    fn copies(&mut self, name: &'static str, place: usize, seat: usize) -> Vec<u64> {
        let at = &self.places[place];
        if self.now < at.cut && at.cut_from.is_none_or(|from| from == seat) {
            self.coverage.message(name, "cut");
            return Vec::new();
        }
        if self.phase == Phase::Faults && self.rng.chance(self.plan.lost, 1000) {
            self.coverage.message(name, "lost");
            return Vec::new();
        }
        let twice = self.phase == Phase::Faults && self.rng.chance(self.plan.twice, 1000);
        if twice {
            self.coverage.message(name, "twice");
        }
        let mut copies = Vec::new();
        for _ in 0..1 + usize::from(twice) {
            let delay = self.delay();
            if delay > self.plan.interval {
                self.coverage.message(name, "late");
            }
            copies.push(self.now + delay);
        }
        copies
    }

    /// A daemon says something to a coordinator.
    pub(super) fn say(&mut self, place: usize, seat: usize, name: &'static str, message: ToSeat) {
        for at in self.copies(name, place, seat) {
            self.at(at, Event::ToSeat { seat, message: Box::new(message.clone()) });
        }
    }

    /// A coordinator says something to a daemon.
    pub(super) fn tell(&mut self, seat: usize, daemon: DaemonId, message: ToDaemon) {
        // One that registered with a coordinator of before, and that nobody knows the address of.
        let Some(((place, birth), _)) = self.addresses.daemons.get(&daemon).copied() else { return };
        self.trace.event(self.now, name(&message), daemon.0, || format!("{seat} to {place}: {message:?}"));
        for at in self.copies(name(&message), place, seat) {
            self.at(at, Event::ToDaemon { place, birth, message: Box::new(message.clone()) });
        }
    }
}
