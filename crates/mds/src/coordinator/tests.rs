//! Coordinators around one registry, with daemons that do as they are told, and scenarios played on them.
//!
//! Absent: the simulator's world of them, with real ranks.

mod changes;
mod commands;
mod leases;
mod lost;
mod moves;
mod owners;
mod placement;
mod record;
mod takeover;

use super::states::{is_made, reported, without_daemon};
use super::*;
use proto::Ino;
use proto::cluster::{Entry, RankInfo, Unit};
use proto::{Frag, NameHash};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use stdx::time::{MS, SECOND};
use stdx::{Machine, Now, Wall};

/// L and 1.02 L.
const LEASE: u64 = 15 * SECOND;
const PATIENCE: u64 = 15_300 * MS;

type Registry = Rc<RefCell<Option<(u64, Vec<u8>)>>>;

/// A coordinator, its registry, and daemons.
struct World {
    coordinator: Coordinator,
    registry: Registry,
    now: u64,
    /// The registry answers only `let_go`; so do fences.
    hold_registry: bool,
    hold_fences: bool,
    held: VecDeque<Input>,
    /// The registry's answer to everything.
    fails: Option<StoreError>,
    /// Daemons that send beacons, and what they say.
    alive: BTreeMap<DaemonId, BeaconState>,
    /// Whoever is dismissed ends its life and says so.
    obedient: bool,
    said: Vec<Output>,
    swaps: usize,
    reads: usize,
    seq: u64,
}

impl World {
    fn idle(config: CoordinatorConfig, registry: &Registry) -> Self {
        Self {
            coordinator: Coordinator::new(config),
            registry: Rc::clone(registry),
            now: 1_000 * SECOND,
            hold_registry: false,
            hold_fences: false,
            held: VecDeque::new(),
            fails: None,
            alive: BTreeMap::new(),
            obedient: true,
            said: Vec::new(),
            swaps: 0,
            reads: 0,
            seq: 0,
        }
    }

    /// One of a process that has the folder's lock.
    fn sole() -> Self {
        let mut world = Self::idle(config(true), &Registry::default());
        world.give(Input::Boot);
        world
    }

    /// One of several that there may be.
    fn shared(registry: &Registry) -> Self {
        let mut world = Self::idle(config(false), registry);
        world.give(Input::Boot);
        world
    }

    /// Another coordinator on the same registry, at the same time.
    fn beside(&self, sole: bool) -> Self {
        let mut world = Self::idle(config(sole), &self.registry);
        world.now = self.now;
        world.give(Input::Boot);
        world
    }

    fn step(&mut self, input: Input) -> Vec<Output> {
        let now = Now { mono: Mono(self.now), wall: Wall(0) };
        let mut out = Vec::new();
        self.coordinator.step(now, input, &mut out);
        out
    }

    fn give(&mut self, input: Input) {
        let mut inputs = VecDeque::from([input]);
        let mut steps = 0;
        while let Some(input) = inputs.pop_front() {
            steps += 1;
            assert!(steps < 1_000, "the coordinator does not come to rest");
            for output in self.step(input) {
                self.carry_out(output, &mut inputs);
            }
        }
    }

    fn carry_out(&mut self, output: Output, inputs: &mut VecDeque<Input>) {
        let answer = match &output {
            Output::Read => {
                self.reads += 1;
                let found = self.registry.borrow().clone();
                Input::Read(self.fails.clone().map_or(Ok(found), Err))
            }
            Output::Swap { expected, bytes } => {
                self.swaps += 1;
                Input::Swapped(self.swap(*expected, bytes))
            }
            Output::Fence { rank, incarnation } => {
                let input = Input::Fenced { rank: *rank, incarnation: *incarnation };
                let queue = if self.hold_fences { &mut self.held } else { inputs };
                queue.push_back(input);
                self.said.push(output);
                return;
            }
            Output::Assign { daemon, rank, incarnation } => {
                let (rank, incarnation) = (*rank, *incarnation);
                if let Some(state @ BeaconState::Standby) = self.alive.get_mut(daemon) {
                    *state = BeaconState::Rank { rank, incarnation, state: RankState::Active };
                    let beacon = self.beacon_of(*daemon);
                    inputs.push_back(Input::Beacon { daemon: *daemon, beacon });
                }
                self.said.push(output);
                return;
            }
            Output::Dismiss { daemon } => {
                if self.alive.remove(daemon).is_some() && self.obedient {
                    inputs.push_back(Input::Gone { daemon: *daemon });
                }
                self.said.push(output);
                return;
            }
            Output::Registered { daemon, .. } => {
                self.alive.insert(*daemon, BeaconState::Standby);
                self.said.push(output);
                return;
            }
            Output::Refused { .. }
            | Output::Ack { .. }
            | Output::Publish(_)
            | Output::Answer { .. }
            | Output::Deposed
            | Output::Note { .. } => {
                self.said.push(output);
                return;
            }
        };
        let queue = if self.hold_registry { &mut self.held } else { inputs };
        queue.push_back(answer);
    }

    fn swap(&self, expected: u64, bytes: &[u8]) -> Result<u64, SwapFailure> {
        if let Some(error) = &self.fails {
            return Err(SwapFailure::Store(error.clone()));
        }
        let stored = self.registry.borrow().as_ref().map_or(0, |(version, _)| *version);
        if stored != expected {
            return Err(SwapFailure::Stale { stored });
        }
        *self.registry.borrow_mut() = Some((expected + 1, bytes.to_vec()));
        Ok(expected + 1)
    }

    /// What the registry and the fences owe.
    fn let_go(&mut self) {
        (self.hold_registry, self.hold_fences) = (false, false);
        while let Some(input) = self.held.pop_front() {
            self.give(input);
        }
    }

    fn beacon_of(&mut self, daemon: DaemonId) -> Beacon {
        self.seq += 1;
        let state = self.alive.get(&daemon).copied().unwrap_or(BeaconState::Standby);
        // Clocks of others have nothing to do with the coordinator's.
        Beacon { seq: self.seq, sent: Mono(self.now - 900 * SECOND), state }
    }

    fn beacon(&mut self, daemon: DaemonId) {
        let beacon = self.beacon_of(daemon);
        self.give(Input::Beacon { daemon, beacon });
    }

    fn register(&mut self, name: &str) -> DaemonId {
        let before = self.said.len();
        self.give(Input::Register { token: 7, name: name.into() });
        let number = self.said[before..].iter().find_map(|output| match output {
            Output::Registered { token: 7, daemon } => Some(*daemon),
            _ => None,
        });
        number.unwrap_or_else(|| panic!("{name} is not registered: {:?}", self.said))
    }

    /// The clock goes on to `until`; the coordinator gets the ticks it asked for.
    fn pass_to(&mut self, until: u64) {
        while let Some(due) = self.coordinator.deadline().filter(|due| due.0 <= until) {
            assert!(due.0 >= self.now, "it asks for a tick in the past");
            self.now = due.0.max(self.now + 1);
            self.give(Input::Tick);
        }
        self.now = until;
    }

    /// Time passes, and whoever is alive says so every four seconds.
    fn live(&mut self, nanos: u64) {
        let end = self.now + nanos;
        while self.now < end {
            for daemon in self.alive.keys().copied().collect::<Vec<_>>() {
                self.beacon(daemon);
            }
            self.pass_to(end.min(self.now + 4 * SECOND));
        }
    }

    fn stored(&self) -> ClusterMap {
        let stored = self.registry.borrow();
        let (version, bytes) = stored.as_ref().expect("a map is stored");
        let map = ClusterMap::decode(bytes).expect("it is a map");
        assert_eq!(map.version, *version);
        map
    }

    fn rank(&self, rank: u16) -> RankInfo {
        self.stored().ranks[&RankId(rank)]
    }

    fn state(&self, rank: u16) -> RankState {
        self.rank(rank).state
    }

    fn command(&mut self, command: Command) -> Result<String, CommandError> {
        let before = self.said.len();
        self.give(Input::Command { id: 5, command });
        let answers = self.said.drain(before..).collect::<Vec<_>>();
        let answer = answers.iter().find_map(|output| match output {
            Output::Answer { id: 5, result } => Some(result.clone().map(|reply| reply.text)),
            _ => None,
        });
        self.said.extend(answers);
        answer.expect("it is answered")
    }

    /// The rank's life asks.
    fn ask(&mut self, rank: u16, ask: Ask) -> Result<String, CommandError> {
        let life = Life { rank: RankId(rank), incarnation: self.rank(rank).incarnation };
        self.command(Command::Ask(life, ask))
    }

    fn entry(&self, unit: Unit) -> Option<Entry> {
        self.stored().entries.get(&unit).copied()
    }

    /// The daemon of a rank ends.
    fn kill(&mut self, rank: u16) {
        let daemon = self.rank(rank).daemon;
        self.alive.remove(&daemon);
        self.give(Input::Gone { daemon });
    }

    fn count(&self, wanted: impl Fn(&Output) -> bool) -> usize {
        self.said.iter().filter(|output| wanted(output)).count()
    }

    fn acknowledged(&self, daemon: DaemonId) -> usize {
        self.count(|output| matches!(output, Output::Ack { daemon: of, .. } if *of == daemon))
    }

    /// Lives that were begun: rank, incarnation, daemon.
    fn lives(&self) -> Vec<(u16, u64, u64)> {
        let mut lives: Vec<_> = (self.said.iter())
            .filter_map(|output| match output {
                Output::Assign { daemon, rank, incarnation } => Some((rank.0, incarnation.0, daemon.0)),
                _ => None,
            })
            .collect();
        lives.dedup();
        lives
    }

    fn notes(&self, part: &str) -> usize {
        self.count(|output| matches!(output, Output::Note { text, .. } if text.contains(part)))
    }
}

const fn config(sole: bool) -> CoordinatorConfig {
    CoordinatorConfig { grace_ns: LEASE, floor: Incarnation(0), sole }
}

/// Rank 0 is active on the first daemon, the second stands by.
fn served() -> (World, DaemonId, DaemonId) {
    let mut w = World::sole();
    let (a, b) = (w.register("a"), w.register("b"));
    assert_eq!((w.state(0), w.rank(0).daemon), (RankState::Active, a), "{:?}", w.said);
    w.said.clear();
    (w, a, b)
}

/// So many ranks are active, and as many daemons stand by.
fn several(ranks: u16) -> World {
    let mut w = World::sole();
    for _ in 0..2 * ranks {
        w.register("d");
    }
    assert!(w.command(Command::SetMaxMds(ranks)).is_ok());
    assert!((0..ranks).all(|rank| w.state(rank) == RankState::Active), "{:?}", w.stored());
    w.said.clear();
    w
}

fn dir(number: u64) -> Unit {
    Unit { dir: Ino(number), frag: Frag::WHOLE }
}

/// One half of a directory, or half of a half.
fn part(number: u64, prefix: u64, depth: u8) -> Unit {
    Unit { dir: Ino(number), frag: Frag::leading(NameHash(prefix), depth) }
}

/// The order, spelled once more: what a life that reports (column) makes of a rank that the map has so (row).
#[test]
fn states_go_one_way() {
    use RankState::{Active, Creating, Damaged, Failed, Reconnect, Replay, Resolve, Stopping};
    let reports = [Failed, Replay, Resolve, Reconnect, Active, Stopping, Damaged, Creating];
    let rows = [
        (Failed, [Failed; 8]),
        (Replay, [Replay, Replay, Resolve, Reconnect, Active, Replay, Damaged, Replay]),
        (Resolve, [Resolve, Resolve, Resolve, Reconnect, Active, Resolve, Damaged, Resolve]),
        (Reconnect, [Reconnect, Reconnect, Reconnect, Reconnect, Active, Reconnect, Damaged, Reconnect]),
        (Active, [Active, Active, Active, Active, Active, Active, Damaged, Active]),
        (Stopping, [Stopping, Stopping, Stopping, Stopping, Stopping, Stopping, Damaged, Stopping]),
        (Damaged, [Damaged; 8]),
        (Creating, [Creating, Replay, Resolve, Reconnect, Active, Creating, Damaged, Creating]),
    ];
    for (now, results) in rows {
        for (said, result) in reports.into_iter().zip(results) {
            assert_eq!(reported(now, said), result, "{now:?}, and its life says {said:?}");
        }
        assert_eq!(without_daemon(now), if now == Damaged { Damaged } else { Failed });
        assert_eq!(is_made(now), !matches!(now, Failed | Damaged | Creating));
    }
}
