//! The world of several ranks: production ranks with a journal each over one store, the production coordinator that gives them to daemons,
//! and clients that route, from one seed under virtual time. A judge follows all of it with one reference tree.
//!
//! Absent: kernels above the clients, but for what they keep (`keeps.rs`; whole ones in `crate::world`); several coordinators (`crate::cluster`); threads.

mod alarm;
mod callers;
mod clients;
mod coverage;
mod disks;
mod early;
mod event;
mod faults;
mod going;
mod heal;
mod judge;
mod keeps;
mod killed;
mod limits;
mod links;
mod lives;
mod locks;
mod opens;
mod places;
mod placing;
mod plan;
mod seat;
mod syncs;

pub use coverage::Coverage;

use crate::model::judge::Verdict;
use crate::model::records::Records;
use crate::trace::{Sink, Trace};
use crate::workload::Workload;
use clients::Slot;
use early::Early;
use event::Event;
use judge::Judge;
use links::Conn;
use lives::Life;
use mds::input::ConnId;
use places::Place;
use plan::Plan;
use proto::ids::{RankId, SessionId};
use proto::storeio::Table;
use seat::Seat;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use stdx::time::SECOND;
use stdx::{Mono, Now, Prng, Wall};
use store::SimDisk;
use store::data::DataFiles;
use store::meta::MetaStore;
use store::meta_memory::MemoryMeta;

/// The attribute by which a directory is given to a rank.
const PIN: &[u8] = b"pando.dir.pin";
/// Virtual time in which everything must be answered once faults stop.
const PROGRESS_NS: u64 = 180 * SECOND;
/// The wall clock at the start: 2026-01-01.
const WALL_START: i64 = 1_767_225_600 * SECOND as i64;
/// More events than any healthy run has.
const EVENTS_MAX: u64 = 600_000;

/// A run that waits for its faults ends after so many times the operations that it is to have.
const LONGEST: u64 = 20;

/// What one run came to.
pub struct Outcome {
    pub seed: u64,
    /// Of the trace: the same for each run of a seed, 0 if the world could not be built, as all counts are then.
    pub hash: u64,
    /// Lines of the trace.
    pub events: u64,
    /// Calls that callers began.
    pub operations: u64,
    /// Transactions that ranks journaled, as the judge saw them.
    pub transactions: u64,
    /// Moves of which a rank journaled the seal.
    pub moves: u64,
    /// Lives of ranks that began.
    pub lives: u64,
    /// Virtual nanoseconds from the begin to the end.
    pub virtual_ns: u64,
    /// What was wrong, with the virtual time, if anything was; what else there is was counted until then.
    pub verdict: Verdict,
    /// How often what may happen did.
    pub coverage: Coverage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    /// Until every rank serves.
    Begin,
    Faults,
    /// No more faults: every call is answered, everything is given back.
    Heal,
    Stop,
    Done,
}

/// A world.
pub struct Ranks {
    plan: Plan,
    rng: Prng,
    now: u64,
    sequence: u64,
    heap: BTreeMap<(u64, u64), Event>,
    trace: Trace,
    coverage: Coverage,
    meta: MemoryMeta,
    data: Arc<DataFiles<SimDisk>>,
    /// The disk under each rank's journal.
    disks: BTreeMap<RankId, SimDisk>,
    seat: Seat,
    places: Vec<Place>,
    /// By incarnation.
    lives: BTreeMap<u64, Life>,
    conns: BTreeMap<ConnId, Conn>,
    /// Connections that ranks have made to ranks: of which life, to whom.
    links: BTreeMap<(u64, RankId), ConnId>,
    last_conn: u64,
    clients: Vec<Slot>,
    calls: u64,
    issued: u64,
    workload: Workload,
    book: locks::Book,
    opens: opens::Opens,
    /// Dice for clients that are limited to a directory.
    limits: Prng,
    judge: Judge,
    placed: placing::Placed,
    early: Early,
    phase: Phase,
    struck: u64,
    /// A fault that waits for something of several ranks.
    ambush: Option<faults::Fault>,
    /// Sessions that an operator has ended; and those of clients that were killed.
    evicted: BTreeSet<SessionId>,
    killed: BTreeSet<SessionId>,
    healed_at: u64,
}

/// Runs one seed; `eager`: some clients are answered early, in half of the seeds.
#[must_use]
pub fn run(seed: u64, eager: bool, sink: Option<Sink>) -> Outcome {
    let mut rng = Prng::new(seed);
    let plan = Plan::any(&mut rng, eager);
    let mut built = Ranks::new(plan, rng, sink);
    let verdict = match &mut built {
        Ok(world) => world.play(),
        Err(error) => Err(error.clone()),
    };
    match built {
        Ok(world) => Outcome {
            seed,
            hash: world.trace.hash(),
            events: world.trace.events(),
            operations: world.issued,
            transactions: world.judge.transactions,
            moves: world.judge.seals(),
            lives: world.coverage.of("lives begun"),
            virtual_ns: world.now,
            verdict: verdict.map_err(|error| format!("at {:.6} ms: {error}", world.now as f64 / 1e6)),
            coverage: world.coverage(),
        },
        Err(error) => Outcome {
            seed,
            hash: 0,
            events: 0,
            operations: 0,
            transactions: 0,
            moves: 0,
            lives: 0,
            virtual_ns: 0,
            verdict: Err(error),
            coverage: Coverage::default(),
        },
    }
}

impl Ranks {
    fn new(plan: Plan, mut rng: Prng, sink: Option<Sink>) -> Verdict<Self> {
        let meta = MemoryMeta::new(rng.next_u64());
        let disk = SimDisk::new(rng.next_u64());
        let data = DataFiles::open(disk, plan.small_file_bytes, plan.data())
            .map_err(|error| format!("data does not open: {error}"))?;
        let disks = (0..plan::RANKS_MAX).map(|rank| (RankId(rank), SimDisk::new(rng.next_u64()))).collect();
        let batches = store::initial::initial_batches(&plan.hash_seed, Wall(WALL_START), (0, 0));
        meta.apply(&batches).map_err(|error| format!("format: {error}"))?;
        let mut world = Self {
            now: 0,
            sequence: 0,
            heap: BTreeMap::new(),
            trace: Trace::new(sink),
            coverage: Coverage::default(),
            meta,
            data: Arc::new(data),
            disks,
            seat: Seat::new(),
            places: (0..plan.daemons).map(|_| Place::default()).collect(),
            lives: BTreeMap::new(),
            conns: BTreeMap::new(),
            links: BTreeMap::new(),
            last_conn: 0,
            clients: Vec::new(),
            calls: 0,
            issued: 0,
            workload: Workload::new(rng.fork(), plan.hash_seed),
            book: locks::Book::default(),
            opens: opens::Opens::default(),
            limits: Prng::new(plan.limits),
            judge: Judge::new(plan.hash_seed, Records::default(), Wall(WALL_START)),
            placed: placing::Placed::default(),
            early: Early::default(),
            phase: Phase::Begin,
            struck: 0,
            ambush: None,
            evicted: BTreeSet::new(),
            killed: BTreeSet::new(),
            healed_at: 0,
            rng,
            plan,
        };
        world.judge = Judge::new(world.plan.hash_seed, world.dump()?, Wall(WALL_START));
        let text = format!("{:?}", world.plan);
        world.trace.explain(0, "plan", || vec![text]);
        Ok(world)
    }

    fn play(&mut self) -> Verdict {
        self.seat_starts()?;
        for place in 0..self.places.len() {
            self.registers(place);
            self.at(0, Event::Beats { place });
        }
        let ranks = self.plan.ranks;
        self.command(mds::coordinator::Command::SetMaxMds(ranks))?;
        self.placing_begins()?;
        for client in 0..self.plan.clients {
            self.client_is_born(client);
        }
        self.after(self.plan.fault_every, Event::Strikes);
        while self.phase != Phase::Done {
            self.next()?;
        }
        Ok(())
    }

    /// One event.
    fn next(&mut self) -> Verdict {
        let Some(((at, _), event)) = self.heap.pop_first() else {
            return Err(format!("nothing happens any more: {}", self.waiting()));
        };
        self.now = self.now.max(at);
        if let Some(event) = self.unless_hung(event) {
            self.handle(event)?;
            self.turn()?;
        }
        let since = if self.phase == Phase::Begin { 0 } else { self.healed_at };
        if self.phase != Phase::Faults && self.now > since + PROGRESS_NS {
            return Err(format!("no progress: {}", self.waiting()));
        }
        if self.trace.events() > EVENTS_MAX {
            return Err(format!("events without end: {}", self.waiting()));
        }
        Ok(())
    }

    fn now(&self) -> Now {
        Now { mono: Mono(self.now), wall: Wall(WALL_START + self.now as i64) }
    }

    fn at(&mut self, at: u64, event: Event) {
        self.sequence += 1;
        self.heap.insert((at.max(self.now), self.sequence), event);
    }

    fn after(&mut self, longest: u64, event: Event) {
        let at = self.now + 1 + self.rng.below(longest);
        self.at(at, event);
    }

    fn handle(&mut self, event: Event) -> Verdict {
        // Of a life that is over. What the store has begun it ends all the same.
        let over = event.life().is_some_and(|life| !self.lives.contains_key(&life));
        if over && !matches!(event, Event::StoreComplete { .. }) {
            return Ok(());
        }
        match event {
            Event::Rank { life, input } => self.step_rank(life, *input),
            Event::ToRank { life, conn, message } => self.message_to_rank(life, conn, *message),
            Event::RankTick { life, number } => self.rank_tick(life, number),
            Event::Commit { life } => self.commit(life),
            Event::Load { life, tag, requests } => self.load(life, tag, &requests),
            Event::Store { life, tag, batch } => self.store(life, tag, &batch),
            Event::StoreComplete { life, tag, begun } => self.store_complete(life, tag, &begun),
            Event::Data { life, tag, op } => self.data(life, tag, &op),
            Event::Background { life } => self.background(life),
            Event::FromRank { life, rank, conn, message } => self.rank_said(life, rank, conn, *message),
            Event::RankGone { life, rank, conn } => self.rank_gone(life, rank, conn),
            Event::ToClient { client, conn, message } => self.message_to_client(client, conn, *message),
            Event::Broken { client, conn } => self.broken(client, conn),
            Event::Connect { client, birth, rank } => self.connect(client, birth, rank),
            Event::ClientTick { client, birth, number } => self.client_tick(client, birth, number),
            Event::Interrupt { client, birth, call } => self.interrupt(client, birth, call),
            Event::Call { client, birth } => self.call(client, birth),
            Event::Returned { client, birth, stamp, list } => self.returned(client, birth, stamp, list),
            Event::Beats { place } => self.beats(place),
            Event::ToPlace { place, birth, message } => self.place_told(place, birth, message),
            Event::ToSeat { input } => self.seat_hears(*input),
            Event::Answered { life, input } => self.answered(life, *input),
            Event::SeatTick { life } => self.seat_ticks(life),
            Event::Read { life } => self.registry_read(life),
            Event::Swap { life, expected, bytes } => self.registry_swap(life, expected, bytes),
            Event::Fence { life, rank, incarnation } => self.fence(life, rank, incarnation),
            Event::SeatStarts => self.seat_starts(),
            Event::ClientStarts { client } => self.client_starts_anew(client),
            Event::Blackout => self.blackout(),
            Event::Strikes => self.strikes(),
        }
    }

    /// After each event: what died in it, and the run's phases.
    fn turn(&mut self) -> Verdict {
        let dead = self.lives.values().find(|life| self.disks.get(&life.rank).is_some_and(SimDisk::is_dead));
        if let Some(life) = dead.map(|life| life.incarnation.0) {
            self.coverage.count("power failed in a journal operation");
            self.life_ends(life, true)?;
        }
        self.ambushes()?;
        self.locks_follow();
        self.check_opens()?;
        match self.phase {
            Phase::Begin if self.all_serve() => {
                self.phase = Phase::Faults;
                (0..self.clients.len()).try_for_each(|client| self.client_begins(client))
            }
            Phase::Faults if self.is_enough() => self.heal(),
            Phase::Heal => self.healing(),
            Phase::Begin | Phase::Faults | Phase::Stop | Phase::Done => Ok(()),
        }
    }

    /// Whether callers asked enough and enough went wrong; or callers asked so much that they are not to wait for faults that are rare.
    fn is_enough(&self) -> bool {
        let enough = self.plan.operations;
        !self.waits_for_one_to_go()
            && self.issued >= enough
            && (self.struck >= self.plan.faults || self.issued >= LONGEST * enough)
    }

    /// The store's records.
    fn dump(&self) -> Verdict<Records> {
        let mut tables = Vec::new();
        for table in [Table::Dentry, Table::Backptr, Table::System] {
            let rows = self.meta.dump(table).map_err(|error| format!("store dump: {error}"))?;
            tables.push((table, rows));
        }
        Records::of_store(&tables)
    }
}
