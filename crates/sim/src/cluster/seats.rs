//! The coordinators: production machines, each on a host with a clock of its own, and what a driver does for them.
//!
//! Absent: the registry behind them (`registry.rs`), which faults strike them (`faults.rs`).

use super::event::{Event, ToDaemon, ToSeat};
use super::{Cluster, Phase};
use crate::clock::HostClock;
use crate::model::judge::Verdict;
use mds::coordinator::{BeaconState, Command, Coordinator, CoordinatorConfig, Input, Output};
use mds::output::Level;
use proto::cluster::{ClusterMap, DaemonId, RankState};
use proto::ids::Incarnation;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use stdx::{Machine, Mono, Now, Wall};

/// How far apart the speeds of two hosts' clocks may be, in millionths of the world's: a part in a thousand each way.
pub(super) const SKEW_MAX: u64 = 1000;
/// More steps at one instant than any machine needs.
const STEPS_MAX: u64 = 10_000;

/// A place where a coordinator may run.
#[derive(Default)]
pub(super) struct Seat {
    pub(super) machine: Option<Coordinator>,
    /// Grows with each start; what was asked for in a life before is answered to nobody.
    pub(super) life: u64,
    clock: HostClock,
    /// It stands still until then, and reads what came meanwhile a little later: its clock ticks first, or not.
    pub(super) paused: u64,
    pub(super) reads: u64,
    /// When it went on after it had stood still for long.
    pub(super) awake: u64,
    /// What it asks the registry takes until then, or only the answers do, or it fails until then.
    pub(super) cut: u64,
    pub(super) unheard: u64,
    pub(super) refused: u64,
    /// It was told that another one began.
    pub(super) deposed: bool,
    /// What is under way at the registry; of a swap, the version that it expects.
    pub(super) asked: Option<Option<u64>>,
    /// The last version that it was told of.
    known: Option<u64>,
    /// The map that it is writing. A daemon that it leaves out has spoken too late.
    pub(super) writes: Option<ClusterMap>,
    pub(super) published: Option<Arc<ClusterMap>>,
    tick: Option<u64>,
    /// The last step's instant, and how many were at it.
    steps: (u64, u64),
    pub(super) record: Heard,
}

/// What this life of a coordinator was told: reasons for what it does.
#[derive(Clone, Default)]
pub(super) struct Heard {
    /// When it was started, and when it heard of each daemon last, by its own clock.
    pub(super) started: Mono,
    pub(super) daemons: BTreeMap<DaemonId, Mono>,
    pub(super) gone: BTreeSet<DaemonId>,
    /// The states that lives said they are in.
    pub(super) reports: BTreeSet<(Incarnation, RankState)>,
    /// In the order in which they came, with the version of the registry then, and the one that this coordinator had published.
    pub(super) commands: Vec<(u64, (u64, u64), Command)>,
    /// Those without an answer.
    pub(super) open: BTreeSet<u64>,
    /// Lives that were told that they have left.
    pub(super) left: BTreeSet<Incarnation>,
}

impl Heard {
    fn beacon(&mut self, daemon: DaemonId, state: BeaconState, now: Mono) {
        self.daemons.insert(daemon, now);
        if let BeaconState::Rank { incarnation, state, .. } = state {
            self.reports.insert((incarnation, state));
        }
    }
}

impl Seat {
    pub(super) fn is_up(&self) -> bool {
        self.machine.is_some()
    }

    /// Up, and not told to be silent.
    pub(super) fn serves(&self) -> bool {
        self.is_up() && !self.deposed
    }

    /// A beacon counts if the map that this coordinator knows names its sender with what it does, and the map that it writes does
    /// not leave the sender out.
    fn hears(&self, daemon: DaemonId, state: BeaconState) -> bool {
        let condemned = self.writes.as_ref().is_some_and(|map| !map.daemons.contains_key(&daemon));
        let Some(map) = self.published.as_ref().filter(|map| map.daemons.contains_key(&daemon) && !condemned)
        else {
            return false;
        };
        match state {
            BeaconState::Standby => true,
            BeaconState::Rank { incarnation, .. } => {
                map.rank_of(daemon).is_some_and(|(_, info)| info.incarnation == incarnation)
            }
        }
    }

    pub(super) fn shows(&self, now: u64) -> Mono {
        self.clock.shows(now)
    }
}

impl Cluster {
    pub(super) fn seat_starts(&mut self, seat: usize) -> Verdict {
        if self.phase > Phase::Faults && seat != self.kept {
            return Ok(());
        }
        let config = CoordinatorConfig {
            grace_ns: self.plan.lease,
            floor: Incarnation(self.plan.floor),
            sole: self.plan.sole,
        };
        let now = self.now;
        let clock = HostClock::any(&mut self.rng, SKEW_MAX);
        let at = &mut self.seats[seat];
        if at.deposed {
            at.deposed = false;
        } else if at.machine.is_none() {
            let life = at.life + 1;
            *at = Seat { machine: Some(Coordinator::new(config)), life, clock, ..Seat::default() };
        } else {
            return Ok(());
        }
        at.record = Heard { started: at.clock.shows(now), ..Heard::default() };
        self.coverage.count("coordinators begun", 1);
        self.step(seat, Input::Boot)
    }

    pub(super) fn hears_of(&mut self, seat: usize, message: ToSeat) -> Verdict {
        let now = self.now;
        let at = &mut self.seats[seat];
        let mono = at.clock.shows(now);
        if !at.serves() {
            // A command's connection is refused, anything else is lost.
            if let ToSeat::Command { id, .. } = message {
                self.operator.open.remove(&id);
            }
            return Ok(());
        }
        if self.plan.sole && self.is_of_another_process(&message) {
            return Ok(());
        }
        let at = &mut self.seats[seat];
        let input = match message {
            ToSeat::Register { token, name } => Input::Register { token, name },
            ToSeat::Beacon { daemon, beacon, map_version } => {
                if at.hears(daemon, beacon.state) {
                    at.record.beacon(daemon, beacon.state, mono);
                }
                self.catches_up(seat, daemon, map_version);
                Input::Beacon { daemon, beacon }
            }
            ToSeat::Gone { daemon } => {
                at.record.gone.insert(daemon);
                Input::Gone { daemon }
            }
            ToSeat::Command { id, command } => {
                let known = at.published.as_ref().map_or(0, |map| map.version);
                at.record.commands.push((id, (self.registry.version(), known), command));
                at.record.open.insert(id);
                Input::Command { id, command }
            }
        };
        self.step(seat, input)
    }

    /// In one process nothing is on its way that a process of before has sent.
    fn is_of_another_process(&self, message: &ToSeat) -> bool {
        match message {
            ToSeat::Register { token, .. } => {
                let of = self.addresses.tokens.get(token);
                of.is_none_or(|(place, birth)| self.places[*place].birth != *birth || !self.places[*place].up)
            }
            ToSeat::Beacon { daemon, .. } => {
                let of = self.addresses.daemons.get(daemon);
                of.is_none_or(|((place, birth), _)| {
                    self.places[*place].birth != *birth || !self.places[*place].up
                })
            }
            ToSeat::Gone { .. } | ToSeat::Command { .. } => false,
        }
    }

    pub(super) fn answered(&mut self, seat: usize, life: u64, input: Input) -> Verdict {
        let at = &mut self.seats[seat];
        if at.life != life || at.machine.is_none() {
            return Ok(());
        }
        match &input {
            Input::Read(Ok(found)) => {
                at.asked = None;
                at.known = Some(found.as_ref().map_or(0, |(version, _)| *version));
            }
            Input::Swapped(Ok(version)) => {
                (at.asked, at.writes) = (None, None);
                at.known = Some(*version);
            }
            Input::Read(Err(_)) => at.asked = None,
            // What is stored is not known, or not in full.
            Input::Swapped(Err(_)) => (at.asked, at.known, at.writes) = (None, None, None),
            Input::Fenced { .. }
            | Input::Boot
            | Input::Register { .. }
            | Input::Beacon { .. }
            | Input::Loads { .. }
            | Input::Gone { .. }
            | Input::Command { .. }
            | Input::Tick => {}
        }
        self.step(seat, input)
    }

    pub(super) fn seat_ticks(&mut self, seat: usize, life: u64) -> Verdict {
        let now = self.now;
        let at = &mut self.seats[seat];
        if at.life != life || at.tick.is_none_or(|tick| tick > now) {
            return Ok(());
        }
        at.tick = None;
        let due = at.machine.as_ref().and_then(Machine::deadline);
        if due.is_some_and(|due| due <= at.clock.shows(now)) {
            return self.step(seat, Input::Tick);
        }
        self.plan_tick(seat);
        Ok(())
    }

    /// One step, and what it asks for.
    pub(super) fn step(&mut self, seat: usize, input: Input) -> Verdict {
        let now = self.now;
        let at = &mut self.seats[seat];
        let Some(machine) = &mut at.machine else { return Ok(()) };
        at.steps = if at.steps.0 == now { (now, at.steps.1 + 1) } else { (now, 0) };
        if at.steps.1 > STEPS_MAX {
            return Err(format!("coordinator {seat} steps without end"));
        }
        let (life, deposed) = (at.life, at.deposed);
        self.trace.event(now, "step", seat as u64, || format!("{seat}.{life} {}", brief(&input)));
        let mut out = Vec::new();
        machine.step(Now { mono: at.clock.shows(now), wall: Wall(0) }, input, &mut out);
        if deposed && !out.is_empty() {
            return Err(format!("coordinator {seat} was deposed and says {:?}", out[0]));
        }
        for output in out {
            self.carry_out(seat, life, output)?;
        }
        self.plan_tick(seat);
        Ok(())
    }

    fn plan_tick(&mut self, seat: usize) {
        let at = &mut self.seats[seat];
        let Some(due) = at.machine.as_ref().and_then(Machine::deadline) else { return };
        let when = at.clock.when(due).max(self.now);
        if at.tick.is_none_or(|tick| tick > when) {
            at.tick = Some(when);
            let life = at.life;
            self.at(when, Event::Tick { seat, life });
        }
    }

    fn carry_out(&mut self, seat: usize, life: u64, output: Output) -> Verdict {
        let at = &mut self.seats[seat];
        if at.deposed {
            return Err(format!("coordinator {seat} was deposed and says {output:?}"));
        }
        match output {
            Output::Read => {
                if at.asked.replace(None).is_some() {
                    return Err(format!("coordinator {seat} asks the registry twice at once"));
                }
                self.asks_registry(seat, Event::Read { seat, life });
            }
            Output::Swap { expected, bytes } => {
                if at.asked.replace(Some(expected)).is_some() {
                    return Err(format!("coordinator {seat} asks the registry twice at once"));
                }
                if at.known != Some(expected) {
                    let known = at.known;
                    return Err(format!("coordinator {seat} expects {expected} and was told of {known:?}"));
                }
                self.swap_leaves(seat, life, expected, bytes)?;
            }
            Output::Registered { token, daemon } => self.registered(seat, token, daemon)?,
            Output::Refused { token, text } => {
                self.coverage.count("daemons refused", 1);
                self.trace.explain(self.now, "refused", || vec![format!("{token}: {text}")]);
            }
            Output::Fence { rank, incarnation } => {
                self.coverage.count("fences asked for", 1);
                self.store.under_way += 1;
                let at = self.store_at();
                self.at(at, Event::Fence { seat, life, rank, incarnation });
            }
            Output::Ack { daemon, seq, sent } => {
                if at.writes.as_ref().is_some_and(|map| !map.daemons.contains_key(&daemon)) {
                    return Err(format!(
                        "coordinator {seat} acknowledges daemon {}, which it leaves out",
                        daemon.0
                    ));
                }
                self.tell(seat, daemon, ToDaemon::Ack { daemon, seq, sent });
            }
            Output::Assign { daemon, rank, incarnation } => {
                self.named(seat, daemon, rank, incarnation)?;
                self.tell(seat, daemon, ToDaemon::Assign { daemon, rank, incarnation });
            }
            Output::Dismiss { daemon } => {
                self.coverage.count("daemons dismissed", 1);
                self.tell(seat, daemon, ToDaemon::Dismiss { daemon });
            }
            Output::Publish(map) => self.publish(seat, &map)?,
            Output::Answer { id, result } => self.judge_answer(seat, id, result)?,
            Output::Deposed => self.deposed(seat)?,
            Output::Note { level, text } => {
                let bad = matches!(level, Level::Error);
                self.coverage.count(if bad { "errors noted" } else { "notes" }, 1);
                self.trace.explain(self.now, "note", || vec![format!("{seat}: {text}")]);
            }
        }
        Ok(())
    }

    /// Another coordinator began. This one's driver has it begin again some time, or never.
    fn deposed(&mut self, seat: usize) -> Verdict {
        self.coverage.count("coordinators deposed", 1);
        let at = &mut self.seats[seat];
        at.deposed = true;
        if let Some(id) = at.record.open.first() {
            return Err(format!("coordinator {seat} was deposed and owes an answer to command {id}"));
        }
        let calm = self.phase > Phase::Faults;
        if calm || self.plan.again {
            let longest = if calm { self.plan.interval } else { self.plan.lease * 8 };
            self.after(longest, Event::SeatStarts { seat });
        }
        Ok(())
    }

    /// The daemon has an old map: its driver sends the present one.
    pub(super) fn catches_up(&mut self, seat: usize, daemon: DaemonId, version: u64) {
        if let Some(map) = self.seats[seat].published.clone().filter(|map| map.version > version) {
            self.tell(seat, daemon, ToDaemon::Map { map });
        }
    }
}

/// An input for a trace: of a record only its version.
fn brief(input: &Input) -> String {
    match input {
        Input::Read(Ok(found)) => {
            format!("Read version {}", found.as_ref().map_or(0, |(version, _)| *version))
        }
        other => format!("{other:?}"),
    }
}
