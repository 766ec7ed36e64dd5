//! The world: one heap of events under virtual time. It starts, kills and restarts the rank's process,
//! delays everything that takes time, and hands every effect to the judge.
//!
//! Absent: threads; the meaning of effects (`model/`).

pub(crate) mod brief;
mod callers;
mod clients;
mod clocks;
mod coverage;
mod data;
mod disks;
pub(crate) mod early;
mod endings;
mod event;
mod faults;
mod hang;
mod hostile;
mod keeping;
pub(crate) mod kernel;
mod liveness;
mod owed;
mod plan;
mod rank;
mod rot;
mod slot;

pub use coverage::{Coverage, FAULTS};
pub use plan::{Kind, Plan};
pub(crate) use rank::is_damage;
pub use rot::{Found, bit_rot};

use crate::model::judge::{Judge, Verdict};
use crate::model::locks::Locks;
use crate::model::records::Records;
use crate::trace::{Sink, Trace, fold};
use crate::workload::Workload;

use early::Positions;
use event::Event;
use faults::Faults;
use hang::Hangs;
use hostile::Hostile;
use mds::input::ConnId;
use owed::Owed;
use proto::Ino;
use proto::ids::{SessionId, Tid};
use proto::storeio::Table;
use rank::Life;
use slot::Slot;
use std::collections::{BTreeMap, BTreeSet};
use stdx::time::SECOND;
use stdx::{Mono, Now, Prng, Wall};
use store::SimDisk;
use store::meta::MetaStore;
use store::meta_memory::MemoryMeta;

/// Virtual time in which everything must be answered once faults stop.
const PROGRESS_NS: u64 = 120 * SECOND;
/// The wall clock at the start: 2026-01-01.
const WALL_START: i64 = 1_767_225_600 * SECOND as i64;
/// More events than any healthy run has.
const EVENTS_MAX: u64 = 400_000;

/// What one run came to.
pub struct Outcome {
    pub seed: u64,
    pub hash: u64,
    pub events: u64,
    pub operations: u64,
    pub transactions: u64,
    pub answers: u64,
    pub crashes: u64,
    pub virtual_ns: u64,
    pub verdict: Verdict,
    pub coverage: Coverage,
}

/// The part of a run the judge watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Faults,
    /// No more faults: every call is answered, every lock and open given back.
    Heal,
    Stop,
    Done,
}

/// A world.
pub struct World {
    plan: Plan,
    rng: Prng,
    now: u64,
    sequence: u64,
    heap: BTreeMap<(u64, u64), Event>,
    disk: SimDisk,
    meta: MemoryMeta,
    life: Option<Life>,
    lives: u64,
    clients: Vec<Slot>,
    conns: u64,
    calls: u64,
    judge: Judge,
    locks: Locks,
    workload: Workload,
    faults: Faults,
    hangs: Hangs,
    coverage: Coverage,
    trace: Trace,
    phase: Phase,
    healed_at: u64,
    issued: u64,
    /// When the rank last heard of a session, and which said goodbye.
    heard: BTreeMap<SessionId, (u64, bool)>,
    /// When each connection said hello.
    greeted: BTreeMap<ConnId, u64>,
    active_since: u64,
    /// Only these kinds of request, when set; and how many of them failed with EIO.
    readers: Option<&'static [&'static str]>,
    failed_reads: u64,
    /// The patterns of writes under way, and where in them they begin.
    patterns: BTreeMap<(SessionId, Tid), (u64, u64)>,
    /// Requests of a client that no caller waits for: of callers that were killed, and the client's own.
    orphaned: BTreeMap<(SessionId, Tid), usize>,
    owed: Owed,
    /// What sessions changed themselves in the rank's last step: of that something may be recalled that nobody waits for.
    own_changes: BTreeSet<(SessionId, Ino)>,
    /// Sessions that an operator has ended.
    evicted: BTreeSet<SessionId>,
    positions: Positions,
    /// By how much the wall clock of the rank's host was set.
    wall_set: i64,
    /// Since when nobody has been kept from going on.
    calm_since: u64,
    looked: u64,
    hostile: Hostile,
}

/// Runs one seed.
#[must_use]
pub fn run(seed: u64, operations: u64, crashes: u64, sink: Option<Sink>) -> Outcome {
    let mut world = World::new(seed, operations, crashes, sink);
    let verdict = world.play();
    Outcome {
        seed,
        hash: world.trace.hash(),
        events: world.trace.events(),
        operations: world.issued,
        transactions: world.judge.transactions,
        answers: world.judge.answers,
        crashes: world.faults.crashes,
        virtual_ns: world.now,
        verdict: verdict.map_err(|error| format!("at {:.6} ms: {error}", world.now as f64 / 1e6)),
        coverage: world.coverage,
    }
}

impl World {
    fn new(seed: u64, operations: u64, crashes: u64, sink: Option<Sink>) -> Self {
        let mut rng = Prng::new(seed);
        let plan = Plan::new(&mut rng, operations, crashes);
        let disk = SimDisk::new(rng.next_u64());
        let meta = MemoryMeta::new(rng.next_u64());
        let faults = Faults::new(&plan, &mut rng);
        let workload = Workload::new(rng.fork(), plan.hash_seed);
        let mut world = Self {
            judge: Judge::new(plan.hash_seed, Records::default(), Wall(WALL_START)),
            now: 0,
            sequence: 0,
            heap: BTreeMap::new(),
            disk,
            meta,
            life: None,
            lives: 0,
            clients: Vec::new(),
            conns: 0,
            calls: 0,
            locks: Locks::default(),
            workload,
            faults,
            hangs: Hangs::default(),
            coverage: Coverage::default(),
            trace: Trace::new(sink),
            phase: Phase::Faults,
            healed_at: 0,
            issued: 0,
            heard: BTreeMap::new(),
            greeted: BTreeMap::new(),
            active_since: 0,
            readers: None,
            failed_reads: 0,
            patterns: BTreeMap::new(),
            orphaned: BTreeMap::new(),
            owed: Owed::default(),
            own_changes: BTreeSet::new(),
            evicted: BTreeSet::new(),
            positions: Positions::new(),
            wall_set: 0,
            calm_since: 0,
            looked: 0,
            hostile: Hostile::default(),
            rng,
            plan,
        };
        for (number, kind) in world.plan.clients.clone().into_iter().enumerate() {
            world.clients.push(Slot::new(number, kind));
        }
        world
    }

    fn play(&mut self) -> Verdict {
        self.begin()?;
        while self.phase != Phase::Done {
            self.next()?;
        }
        Ok(())
    }

    fn begin(&mut self) -> Verdict {
        let batches = store::initial::initial_batches(&self.plan.hash_seed, Wall(WALL_START), (0, 0));
        self.meta.apply(&batches).map_err(|error| format!("format: {error}"))?;
        self.judge = Judge::new(self.plan.hash_seed, self.dump()?, Wall(WALL_START));
        self.restart()?;
        for client in 0..self.clients.len() {
            self.at(self.now, Event::ClientStarts { client });
        }
        if self.plan.hostile {
            self.hostile_soon();
        }
        if self.plan.full_disk {
            let at = self.rng.below(3 * SECOND);
            self.at(at, Event::FullDisk { on: true });
        }
        Ok(())
    }

    /// One event.
    fn next(&mut self) -> Verdict {
        let Some(((at, _), event)) = self.heap.pop_first() else {
            return Err(format!("nothing happens any more: {}", self.waiting()));
        };
        self.now = self.now.max(at);
        if let Some(event) = self.unless_hung(event)? {
            self.handle(event)?;
            self.turn()?;
        }
        if self.phase > Phase::Faults && self.now > self.healed_at + PROGRESS_NS {
            return Err(format!("no progress: {}", self.waiting()));
        }
        if self.trace.events() > EVENTS_MAX {
            return Err(format!("events without end: {}", self.waiting()));
        }
        Ok(())
    }

    fn now(&self) -> Now {
        Now { mono: Mono(self.now), wall: Wall(WALL_START + self.now as i64 + self.wall_set) }
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
        // Of a life that is over.
        if event.life().is_some_and(|life| life != self.lives) {
            return Ok(());
        }
        match event {
            Event::Rank { input, .. } => self.step_rank(*input),
            Event::ToRank { conn, message, .. } => self.message_to_rank(conn, *message),
            Event::ToClient { client, conn, message } => self.message_to_client(client, conn, *message),
            Event::Broken { client, conn } => self.broken(client, conn),
            Event::Connect { client, birth } => self.connect(client, birth),
            Event::Commit { .. } => self.commit(),
            Event::Load { tag, requests, .. } => self.load(tag, &requests),
            Event::Store { tag, batch, .. } => self.store(tag, &batch),
            Event::StoreComplete { tag, begun, .. } => self.store_complete(tag, &begun),
            Event::Data { tag, op, .. } => self.data(tag, &op),
            Event::RankTick { .. } => self.rank_tick(),
            Event::ClientTick { client, birth } => self.client_tick(client, birth),
            Event::Call { client, birth } => self.call(client, birth),
            Event::Interrupt { client, birth, call } => self.interrupt(client, birth, call),
            Event::Killed { client, birth, call } => self.killed(client, birth, call),
            Event::Take { client, birth, taken } => self.take(client, birth, *taken),
            Event::Drop { client, birth, stamp, calls, list } => {
                self.dropped(client, birth, (stamp, calls), list)
            }
            Event::ClientStarts { client } => self.client_starts(client),
            Event::Background { .. } => self.background(),
            Event::Restart { .. } => self.restart(),
            Event::Hostile => self.hostile(),
            Event::Again { evicts, .. } => self.again(evicts),
            Event::FullDisk { on } => {
                self.full_disk(on);
                Ok(())
            }
        }
    }

    fn sessions_ended(&mut self) -> Verdict {
        for session in std::mem::take(&mut self.judge.evictions) {
            self.session_evicted(session)?;
        }
        for session in std::mem::take(&mut self.judge.ended) {
            self.session_ended(session)?;
        }
        Ok(())
    }

    /// After each event: faults, and the run's phases.
    fn turn(&mut self) -> Verdict {
        if self.disk.is_dead() {
            return self.crash(true, "power failed in a disk operation");
        }
        self.sessions_ended()?;
        self.judge_waiting()?;
        match self.phase {
            Phase::Faults => {
                self.maybe_fault()?;
                if self.readers.is_none()
                    && self.issued >= self.plan.operations
                    && self.faults.crashes >= self.plan.crashes
                {
                    self.heal();
                }
            }
            Phase::Heal if self.is_rank_hung() => {}
            Phase::Heal => self.healing()?,
            Phase::Stop | Phase::Done => {}
        }
        Ok(())
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

    fn waiting(&self) -> String {
        let mut text = format!("{:?}, rank {}", self.phase, if self.life.is_some() { "up" } else { "down" });
        for slot in &self.clients {
            text.push_str(&slot.waiting());
        }
        text
    }
}
