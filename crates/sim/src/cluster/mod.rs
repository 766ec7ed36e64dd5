//! The world of the coordinator: production coordinators, and around them daemons with models of ranks, operators, a registry, stores and
//! a network, from one seed under virtual time. A judge follows what is said and written.
//!
//! Absent: what ranks do (`crate::world`); threads.

mod coverage;
mod daemons;
mod event;
mod faults;
mod followers;
mod heal;
mod judge;
mod lives;
mod network;
mod operator;
mod plan;
mod registry;
mod scenario;
mod seats;
mod stores;

pub use coverage::Coverage;
pub use faults::Fault;

use crate::model::judge::Verdict;
use crate::trace::{Sink, Trace};
use daemons::Place;
use event::{Event, Whose};
use followers::{FOLLOWERS, Follower};
use judge::Judge;
use operator::Operator;
use plan::Plan;
use proto::cluster::{ClusterMap, DaemonId, RankState};
use proto::ids::{Incarnation, RankId};
use registry::Registry;
use seats::Seat;
use std::collections::BTreeMap;
use stdx::Prng;
use stores::Stores;

/// More events than any healthy run has.
const EVENTS_MAX: u64 = 1_000_000;

/// What one run came to.
pub struct Outcome {
    pub seed: u64,
    pub hash: u64,
    pub events: u64,
    pub acts: u64,
    /// Versions of the map.
    pub versions: u64,
    pub virtual_ns: u64,
    pub verdict: Verdict,
    pub coverage: Coverage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Faults,
    /// No more faults: everything wanted comes to be.
    Heal,
    /// It stays so.
    Watch,
    Done,
}

/// Who is where: by the token or the number under which a coordinator knows a daemon.
#[derive(Default)]
struct Addresses {
    tokens: BTreeMap<u64, (usize, u64)>,
    daemons: BTreeMap<DaemonId, ((usize, u64), u64)>,
}

/// A world.
pub struct Cluster {
    plan: Plan,
    rng: Prng,
    now: u64,
    sequence: u64,
    heap: BTreeMap<(u64, u64), Event>,
    trace: Trace,
    coverage: Coverage,
    registry: Registry,
    store: Stores,
    seats: Vec<Seat>,
    places: Vec<Place>,
    tokens: u64,
    addresses: Addresses,
    followers: Vec<Follower>,
    operator: Operator,
    judge: Judge,
    phase: Phase,
    /// Ranks stand still now and then between the look at their lease and the act.
    between: bool,
    acts: u64,
    /// When faults ended, the coordinator that stays, what is still to be asked, and when all was well.
    healed: u64,
    kept: usize,
    words: usize,
    calm: u64,
    lives: BTreeMap<RankId, (RankState, Incarnation)>,
}

/// Runs one seed.
#[must_use]
pub fn run(seed: u64, sink: Option<Sink>) -> Outcome {
    let mut rng = Prng::new(seed);
    let plan = Plan::any(&mut rng);
    let mut world = Cluster::new(plan, rng, sink);
    let verdict = world.play();
    Outcome {
        seed,
        hash: world.trace.hash(),
        events: world.trace.events(),
        acts: world.acts,
        versions: world.registry.version(),
        virtual_ns: world.now,
        verdict: verdict.map_err(|error| format!("at {:.6} ms: {error}", world.now as f64 / 1e6)),
        coverage: world.coverage,
    }
}

impl Cluster {
    fn new(plan: Plan, rng: Prng, sink: Option<Sink>) -> Self {
        let mut world = Self {
            now: 0,
            sequence: 0,
            heap: BTreeMap::new(),
            trace: Trace::new(sink),
            coverage: Coverage::default(),
            registry: Registry::default(),
            store: Stores::default(),
            seats: (0..plan.seats).map(|_| Seat::default()).collect(),
            places: (0..plan.daemons).map(|_| Place::default()).collect(),
            tokens: 0,
            addresses: Addresses::default(),
            followers: (0..FOLLOWERS).map(|_| Follower::default()).collect(),
            operator: Operator::default(),
            judge: Judge::default(),
            phase: Phase::Faults,
            between: false,
            acts: 0,
            healed: 0,
            kept: 0,
            words: 0,
            calm: 0,
            lives: BTreeMap::new(),
            rng,
            plan,
        };
        let text = format!("{:?}", world.plan);
        world.trace.explain(0, "plan", || vec![text]);
        if world.plan.sole {
            world.coverage.count("runs in one process", 1);
        }
        if world.plan.seats > 1 {
            world.coverage.count("runs with several coordinators", 1);
        }
        world
    }

    /// Everybody starts, more or less at once.
    fn begin(&mut self) {
        self.at(0, Event::SeatStarts { seat: 0 });
        for place in 0..self.places.len() {
            let longest = self.plan.lease;
            self.after(longest, Event::DaemonStarts { place });
        }
    }

    fn play(&mut self) -> Verdict {
        self.begin();
        if self.plan.command_every > 0 {
            let longest = self.plan.command_every;
            self.after(longest, Event::Operates);
        }
        let longest = self.plan.fault_every * 2;
        self.after(longest, Event::Strikes);
        while self.phase != Phase::Done {
            self.next()?;
            self.healing()?;
        }
        Ok(())
    }

    /// One event.
    fn next(&mut self) -> Verdict {
        let Some(((at, _), event)) = self.heap.pop_first() else {
            return Err("nothing happens any more".to_owned());
        };
        self.now = self.now.max(at);
        if let Some(event) = self.unless_paused(event) {
            self.handle(event)?;
        }
        if self.trace.events() > EVENTS_MAX {
            return Err("events without end".to_owned());
        }
        Ok(())
    }

    fn at(&mut self, at: u64, event: Event) {
        self.sequence += 1;
        self.heap.insert((at.max(self.now), self.sequence), event);
    }

    fn after(&mut self, longest: u64, event: Event) {
        let at = self.now + 1 + self.rng.below(longest);
        self.at(at, event);
    }

    /// Gives an event back if whose it is can do something now; otherwise it happens when he can, behind what came to him before.
    fn unless_paused(&mut self, event: Event) -> Option<Event> {
        let until = match event.whose() {
            Whose::Seat(seat) if matches!(event, Event::Tick { .. }) => self.seats[seat].paused,
            Whose::Seat(seat) => self.seats[seat].reads,
            Whose::Place(place) => self.places[place].paused,
            Whose::Nobodys => 0,
        };
        if until <= self.now {
            return Some(event);
        }
        self.at(until, event);
        None
    }

    fn handle(&mut self, event: Event) -> Verdict {
        match event {
            Event::SeatStarts { seat } => return self.seat_starts(seat),
            Event::SeatDies { seat } if self.phase == Phase::Faults => {
                self.fault(Fault::SeatCrash, 0, seat, 1);
            }
            Event::SeatDies { .. } => {}
            Event::ToSeat { seat, message } => return self.hears_of(seat, *message),
            Event::Answered { seat, life, input } => return self.answered(seat, life, *input),
            Event::Tick { seat, life } => return self.seat_ticks(seat, life),
            Event::Read { seat, life } => self.registry_read(seat, life),
            Event::Swap { seat, life, expected, bytes } => {
                return self.registry_swap(seat, life, expected, bytes);
            }
            Event::Lands { seat, life, expected, bytes } => {
                return self.registry_lands(seat, life, expected, bytes);
            }
            Event::Fence { seat, life, rank, incarnation } => {
                return self.fence(seat, life, rank, incarnation);
            }
            Event::DaemonStarts { place } => self.daemon_starts(place),
            Event::ToDaemon { place, birth, message } => return self.told(place, birth, *message),
            Event::Beats { place, birth } => self.beats(place, birth),
            Event::Worked { act } => self.worked(act),
            Event::Acts { act } => return self.acts(act),
            Event::Leaves { act } => self.leaves(act),
            Event::Reaches { act } => return self.reaches(act),
            Event::Refused { act } => self.refused(act),
            Event::ToFollower { follower, update } => return self.follow(follower, *update),
            Event::Operates => self.operates(),
            Event::LastWord { command } => self.last_word(command),
            Event::Strikes => self.strikes(),
        }
        Ok(())
    }
}

/// A map in a line.
fn text_of(map: &ClusterMap) -> String {
    let joinable = if map.joinable { "" } else { ", not joinable" };
    let mut text =
        format!("version {}, by {}, {} wanted{joinable}:", map.version, map.coordinator, map.max_mds);
    for (rank, info) in &map.ranks {
        let (state, life) = (info.state.name(), info.incarnation.0);
        text.push_str(&format!(" {}={state}/{life}/{}", rank.0, info.daemon.0));
    }
    let standbys: Vec<u64> =
        map.daemons.keys().filter(|id| map.rank_of(**id).is_none()).map(|id| id.0).collect();
    text.push_str(&format!(" standbys {standbys:?}"));
    text
}
