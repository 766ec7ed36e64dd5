//! Virtual time: events in their order, ranks and hosts between which messages take a while, stores that take a while to answer.
//!
//! Absent: what anybody decides.

use super::costs::records;
use super::hosts::{Heard, Host};
use super::journal::Group;
use super::placement::{Owners, life};
use super::script::{Ask, Ground, Script};
use super::seat::{Effect, Far, Seat};
use super::settings::{ClientCpus, Settings, Workload};
use super::store::Store;
use super::tally::{Phase, Times};
use mds::input::{ConnId, Input, Tag};
use mds::{Prefetch, RankConfig};
use proto::RankId;
use proto::message::{ClientMsg, ServerMsg};
use proto::storeio::{DataDone, LoadRequest, StoreBatch};
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use stdx::Prng;
use stdx::hash::HashSeed;
use stdx::time::{MS, SECOND};

pub(super) const SEED: HashSeed = HashSeed([7; 16]);
/// No lease ends in a run.
const LEASE_NS: u64 = 10_000 * SECOND;
/// Callers begin at any time within this.
const BEGIN_NS: u64 = MS;
/// Nothing takes so long: the ranks, or their clients, wait for each other.
const STUCK_NS: u64 = 1_000 * SECOND;

/// Reads that take longer are those of a disk: a worker for each. Others are of memory, and one takes so many at once.
const COLD_NS: u64 = 15_000;
const WARM_BATCH: usize = 16;

type LoadJob = (Tag, Vec<LoadRequest>);

/// What happens at some time.
enum Event {
    TurnEnds {
        rank: usize,
        effects: Vec<Effect>,
    },
    Tick {
        rank: usize,
    },
    ToSeat {
        rank: usize,
        conn: ConnId,
        messages: Vec<ClientMsg>,
    },
    FromRank {
        rank: usize,
        from: RankId,
        messages: Vec<ServerMsg>,
    },
    Asked {
        rank: usize,
        from: RankId,
        messages: Vec<ClientMsg>,
    },
    ToHost {
        host: usize,
        rank: usize,
        messages: Vec<ServerMsg>,
    },
    /// A CPU of clients has done with that.
    Heard {
        cpu: usize,
        host: usize,
        rank: usize,
        messages: Vec<ServerMsg>,
    },
    Loaded {
        rank: usize,
        job: LoadJob,
    },
    Written {
        rank: usize,
        jobs: Vec<(Tag, Vec<StoreBatch>)>,
    },
    DataSynced {
        rank: usize,
        tag: Tag,
    },
    Gathered {
        rank: usize,
    },
    Synced {
        rank: usize,
        group: Group,
    },
    Begins {
        caller: u64,
    },
}

struct Timed {
    at: u64,
    number: u64,
    event: Event,
}

impl PartialEq for Timed {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Timed {}

impl PartialOrd for Timed {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timed {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

/// A rank's part of the stores.
#[derive(Default)]
struct Disk {
    loading: u64,
    waiting: VecDeque<LoadJob>,
    /// Workers that wait for the CPU, to read what is in memory.
    woken: usize,
    writing: bool,
    to_write: Vec<(Tag, Vec<StoreBatch>)>,
}

/// A CPU that clients are busy on.
#[derive(Default)]
struct ClientCpu {
    busy: bool,
    /// Host and rank of what waits for it.
    ready: VecDeque<(usize, usize)>,
}

/// Everything.
pub(super) struct World<'a> {
    settings: &'a Settings,
    now: u64,
    events: BinaryHeap<Reverse<Timed>>,
    last_number: u64,
    seats: Vec<Seat>,
    disks: Vec<Disk>,
    hosts: Vec<Host>,
    clients: Vec<ClientCpu>,
    /// What clients have not read, by host and rank.
    unread: BTreeMap<(usize, usize), Vec<ServerMsg>>,
    /// Connections from rank to rank.
    links: BTreeMap<(usize, usize), ConnId>,
    store: Store,
    owners: Owners,
    active: usize,
    script: Box<dyn Script>,
    /// When each caller's operation began.
    begun: Vec<u64>,
    /// Callers that are at something.
    busy: u64,
    stopping: bool,
    times: Times,
    dice: Prng,
    failed: Option<String>,
}

impl<'a> World<'a> {
    /// Ranks that serve, and hosts that each of them has welcomed.
    pub(super) fn new(
        settings: &'a Settings,
        store: Store,
        owners: Owners,
        script: Box<dyn Script>,
    ) -> Result<Self, String> {
        let seats = (0..settings.ranks).map(|rank| Seat::new(config(settings, rank))).collect::<Vec<_>>();
        let mut world = Self {
            settings,
            now: SECOND,
            events: BinaryHeap::new(),
            last_number: 0,
            disks: seats.iter().map(|_| Disk::default()).collect(),
            seats,
            hosts: Vec::new(),
            clients: (0..settings.host_count()).map(|_| ClientCpu::default()).collect(),
            unread: BTreeMap::new(),
            links: BTreeMap::new(),
            store,
            owners,
            active: 0,
            script,
            begun: vec![0; settings.callers() as usize],
            busy: 0,
            stopping: false,
            times: Times::default(),
            dice: Prng::new(settings.seed),
            failed: None,
        };
        world.boot()?;
        world.connect()?;
        Ok(world)
    }

    fn boot(&mut self) -> Result<(), String> {
        let first = self.owners.first_map();
        for rank in 0..self.seats.len() {
            self.seats[rank].say(Input::Map(first.clone()));
            self.seats[rank].say(Input::Boot);
            self.poke(rank);
        }
        self.run_while("boot", |world| world.active < world.seats.len())?;
        for rank in 0..self.seats.len() {
            self.seats[rank].say(Input::Map(self.owners.map.clone()));
            self.poke(rank);
        }
        Ok(())
    }

    fn connect(&mut self) -> Result<(), String> {
        for host in 0..self.settings.host_count() as usize {
            let conns: Vec<ConnId> =
                self.seats.iter_mut().map(|seat| seat.connect(Far::Host(host))).collect();
            self.hosts.push(Host::new(conns.into_iter()));
            self.hosts[host].greet(RankId(0), self.owners.map.version);
            self.flush(host);
        }
        self.run_while("sessions", |world| !world.hosts.iter().all(Host::is_up))
    }

    /// What goes before all phases.
    pub(super) fn prepare(&mut self) -> Result<(), String> {
        if !self.script.prepare() {
            return Ok(());
        }
        self.begin_all();
        self.run_while("preparation", |world| world.busy > 0)
    }

    fn begin_all(&mut self) {
        self.stopping = false;
        for caller in 0..self.begun.len() as u64 {
            self.busy += 1;
            let at = self.now + self.dice.below(BEGIN_NS);
            self.plan(at, Event::Begins { caller });
        }
    }

    /// Runs the `number`th phase of the script.
    pub(super) fn phase(&mut self, number: usize) -> Result<Phase, String> {
        self.script.begin(number);
        self.begin_all();
        // Later ones may have little to do: only as much as the first has made.
        let warm_ns = if number == 0 { self.settings.warm_ns } else { self.settings.warm_ns / 4 };
        let begin = self.now + warm_ns;
        self.run_until(begin, u64::MAX)?;
        self.times.clear();
        self.seats.iter_mut().for_each(|seat| seat.did = Default::default());
        self.run_until(begin + self.settings.measured_ns, self.settings.operations)?;
        let phase = Phase {
            name: self.script.phases()[number],
            ranks: self.settings.ranks,
            nanos: self.now.saturating_sub(begin),
            times: self.times.clone(),
            did: self.seats.iter().map(|seat| seat.did).collect(),
            kept: self.store.kept(),
        };
        self.stopping = true;
        self.run_while("last answers", |world| world.busy > 0)?;
        Ok(phase)
    }

    /// Until then, or for so many operations; as long as nearly all callers have something to do: what the last of them get through is not what the ranks could.
    fn run_until(&mut self, end: u64, operations: u64) -> Result<(), String> {
        let callers = self.begun.len() as u64;
        let enough = |world: &Self| world.busy * 10 >= callers * 9 && world.times.count() < operations;
        while enough(self) && self.events.peek().is_some_and(|Reverse(next)| next.at <= end) {
            self.one()?;
        }
        if enough(self) {
            self.now = end;
        }
        Ok(())
    }

    fn run_while(&mut self, what: &str, goes_on: impl Fn(&Self) -> bool) -> Result<(), String> {
        let limit = self.now + STUCK_NS;
        while goes_on(self) {
            if self.now > limit || self.events.is_empty() {
                return Err(format!("{what}: nobody goes on"));
            }
            self.one()?;
        }
        Ok(())
    }

    fn one(&mut self) -> Result<(), String> {
        if let Some(Reverse(next)) = self.events.pop() {
            self.now = next.at;
            self.happens(next.event);
        }
        self.failed.take().map_or(Ok(()), Err)
    }

    fn plan(&mut self, at: u64, event: Event) {
        self.last_number += 1;
        self.events.push(Reverse(Timed { at, number: self.last_number, event }));
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::TurnEnds { rank, effects } => {
                self.seats[rank].turn_at = None;
                self.carry_out(rank, effects);
                self.plan_tick(rank);
                self.poke(rank);
            }
            Event::Tick { rank } => self.tick(rank),
            Event::ToSeat { rank, conn, messages } => {
                self.seats[rank].receive(conn, messages);
                self.poke(rank);
            }
            Event::FromRank { rank, from, messages } => {
                self.seats[rank].receive_from_rank(from, messages);
                self.poke(rank);
            }
            Event::Asked { rank, from, messages } => {
                let link = (usize::from(from.0), rank);
                let seat = &mut self.seats[rank];
                let conn = *self.links.entry(link).or_insert_with(|| seat.connect(Far::Rank(from)));
                seat.receive(conn, messages);
                self.poke(rank);
            }
            Event::ToHost { host, rank, messages } => self.arrives_at(host, rank, messages),
            Event::Heard { cpu, host, rank, messages } => {
                self.heard(host, rank, messages);
                self.clients[cpu].busy = false;
                self.clients_go_on(cpu);
            }
            Event::Loaded { rank, job } => self.loaded(rank, job),
            Event::Written { rank, jobs } => self.written(rank, jobs),
            Event::DataSynced { rank, tag } => {
                self.seats[rank].say(Input::DataDone { tag, result: Ok(DataDone::Done) });
                self.poke(rank);
            }
            Event::Gathered { rank } => {
                self.seats[rank].gathered(self.now);
                self.poke(rank);
            }
            Event::Synced { rank, group } => {
                self.seats[rank].synced(group);
                self.poke(rank);
            }
            Event::Begins { caller } => {
                self.begin(caller);
                self.flush(self.settings.host_of(caller));
            }
        }
    }

    /// Gives a rank its CPU, if it has something to do and is not at something.
    fn poke(&mut self, rank: usize) {
        if self.seats[rank].turn_at.is_some() || !self.seats[rank].wants_cpu() {
            return;
        }
        if self.seats[rank].loads_next() {
            self.read_warm(rank);
        }
        let seat = &mut self.seats[rank];
        let (end, effects) = seat.turn(self.now, &self.settings.costs, self.settings.client);
        seat.turn_at = Some(end);
        self.plan(end, Event::TurnEnds { rank, effects });
    }

    fn plan_tick(&mut self, rank: usize) {
        use stdx::Machine;
        let seat = &mut self.seats[rank];
        let Some(due) = seat.rank.deadline().map(|due| due.0.max(self.now)) else { return };
        if seat.tick_at.is_none_or(|at| at > due) {
            seat.tick_at = Some(due);
            self.plan(due, Event::Tick { rank });
        }
    }

    fn tick(&mut self, rank: usize) {
        use stdx::Machine;
        let seat = &mut self.seats[rank];
        // One that was planned earlier for a later time.
        if seat.tick_at != Some(self.now) {
            return;
        }
        seat.tick_at = None;
        let due = seat.rank.deadline().is_some_and(|due| due.0 <= self.now);
        if due && seat.turn_at.is_none() && !seat.wants_cpu() {
            seat.say(Input::Tick);
        }
        self.poke(rank);
        // A turn that goes on, or the one that has begun, plans the next.
        if self.seats[rank].turn_at.is_none() {
            self.plan_tick(rank);
        }
    }

    fn carry_out(&mut self, rank: usize, effects: Vec<Effect>) {
        let from = RankId(rank as u16);
        let there = self.now + self.settings.network_ns;
        for effect in effects {
            match effect {
                Effect::Answers { to: Far::Host(host), messages } => {
                    self.plan(there, Event::ToHost { host, rank, messages });
                }
                Effect::Answers { to: Far::Rank(to), messages } => {
                    self.plan(there, Event::FromRank { rank: usize::from(to.0), from, messages });
                }
                Effect::Ask { rank: to, messages } => {
                    self.plan(there, Event::Asked { rank: usize::from(to.0), from, messages });
                }
                Effect::Load { tag, requests } => {
                    self.disks[rank].waiting.push_back((tag, requests));
                }
                Effect::Store { tag, batches } => {
                    self.disks[rank].to_write.push((tag, batches));
                    self.write(rank);
                }
                Effect::SyncData { tag } => {
                    let at = self.now + self.settings.data_sync_ns;
                    self.plan(at, Event::DataSynced { rank, tag });
                }
                Effect::Gather { at } => self.plan(at.max(self.now), Event::Gathered { rank }),
                Effect::Commit(group) => {
                    let writing = group.bytes * SECOND / self.settings.journal_bytes_per_s.max(1);
                    // In their order: what is behind is not durable before what is in front.
                    let ends = &mut self.seats[rank].sync_ends;
                    let at = (self.now + self.settings.journal_ns + writing).max(*ends);
                    *ends = at;
                    self.plan(at, Event::Synced { rank, group });
                }
                Effect::Heard { host, messages } => self.heard(host, rank, messages),
                Effect::Active => self.active += 1,
                Effect::Failed(why) => self.failed = Some(format!("rank {rank}: {why}")),
            }
        }
        self.read(rank);
    }

    /// Workers of the store take what waits (`driver::loads`): while reads are slow one each; else as many at once as have come when they
    /// get the CPU, which is all that such a read takes.
    fn read(&mut self, rank: usize) {
        let disk = &mut self.disks[rank];
        if self.settings.store_ns <= COLD_NS {
            let workers = disk.waiting.len().div_ceil(WARM_BATCH);
            self.seats[rank].wake_loads(workers.saturating_sub(disk.woken));
            disk.woken = disk.woken.max(workers);
            return;
        }
        let free = self.settings.store_workers.saturating_sub(disk.loading);
        let count = disk.waiting.len().min(free as usize);
        disk.loading += count as u64;
        let taken: Vec<_> = disk.waiting.drain(..count).collect();
        for job in taken {
            let names = job.1.len() as u64;
            self.plan(self.now + self.settings.store_ns * names, Event::Loaded { rank, job });
        }
    }

    /// The worker that has the CPU now reads what is in memory.
    fn read_warm(&mut self, rank: usize) {
        let disk = &mut self.disks[rank];
        disk.woken -= 1;
        let count = WARM_BATCH.min(disk.waiting.len());
        let answers = disk.waiting.drain(..count).map(|job| answer(&self.store, job)).collect();
        self.seats[rank].has_read(answers);
    }

    fn loaded(&mut self, rank: usize, job: LoadJob) {
        self.disks[rank].loading -= 1;
        let answer = answer(&self.store, job);
        self.seats[rank].loaded(vec![answer]);
        self.read(rank);
        self.poke(rank);
    }

    /// The store's writer takes all that waits, and commits it together.
    fn write(&mut self, rank: usize) {
        let disk = &mut self.disks[rank];
        if disk.writing || disk.to_write.is_empty() {
            return;
        }
        disk.writing = true;
        let jobs = std::mem::take(&mut disk.to_write);
        let count: u64 = jobs.iter().map(|(_, batches)| records(batches)).sum();
        let batches: u64 = jobs.iter().map(|(_, batches)| batches.len() as u64).sum();
        self.seats[rank].write(&self.settings.costs, count, batches);
        let taken = self.settings.writer_ns + count * SECOND / self.settings.writer_records_per_s.max(1);
        self.plan(self.now + taken, Event::Written { rank, jobs });
        self.poke(rank);
    }

    fn written(&mut self, rank: usize, jobs: Vec<(Tag, Vec<StoreBatch>)>) {
        for (tag, batches) in jobs {
            batches.iter().for_each(|batch| self.store.apply(batch));
            self.seats[rank].say(Input::Stored { tag, result: Ok(()) });
        }
        self.disks[rank].writing = false;
        self.write(rank);
        self.poke(rank);
    }

    /// A client's CPU is busy for what came, after what came before; all that came of one rank meanwhile is read at once.
    fn arrives_at(&mut self, host: usize, rank: usize, messages: Vec<ServerMsg>) {
        let client = self.settings.client;
        let cpu = match client.cpus {
            _ if client.of(messages.len()) == 0 => return self.heard(host, rank, messages),
            ClientCpus::Ranks => {
                let conn = self.hosts[host].conn(rank);
                self.seats[rank].tell_client(conn, messages);
                return self.poke(rank);
            }
            ClientCpus::One => 0,
            ClientCpus::Each => host,
        };
        let unread = self.unread.entry((host, rank)).or_default();
        if unread.is_empty() {
            self.clients[cpu].ready.push_back((host, rank));
        }
        unread.extend(messages);
        self.clients_go_on(cpu);
    }

    fn clients_go_on(&mut self, cpu: usize) {
        let this = &mut self.clients[cpu];
        if this.busy {
            return;
        }
        let Some((host, rank)) = this.ready.pop_front() else { return };
        this.busy = true;
        let messages = self.unread.remove(&(host, rank)).unwrap_or_default();
        let at = self.now + self.settings.client.of(messages.len());
        self.plan(at, Event::Heard { cpu, host, rank, messages });
    }

    fn heard(&mut self, host: usize, rank: usize, messages: Vec<ServerMsg>) {
        for message in messages {
            match self.hosts[host].hear(rank, message) {
                Ok(Heard::Answer { caller, outcome }) => {
                    let ground = Ground { layout: self.store.layout(), owners: &self.owners };
                    match self.script.answered(&ground, caller, outcome) {
                        Ok(Some(ask)) => self.ask(caller, ask),
                        Ok(None) => {
                            self.times.add(self.now - self.begun[caller as usize]);
                            self.begin(caller);
                        }
                        Err(why) => self.failed = Some(why),
                    }
                }
                Ok(Heard::Welcome) if rank == 0 => {
                    for other in 1..self.seats.len() {
                        self.hosts[host].greet(RankId(other as u16), self.owners.map.version);
                    }
                }
                Ok(Heard::Welcome | Heard::Nothing) => {}
                Err(why) => self.failed = Some(why),
            }
        }
        self.flush(host);
    }

    /// A caller's next operation.
    fn begin(&mut self, caller: u64) {
        let ground = Ground { layout: self.store.layout(), owners: &self.owners };
        let next = if self.stopping { None } else { self.script.start(&ground, caller) };
        match next {
            Some(ask) => {
                self.begun[caller as usize] = self.now;
                self.ask(caller, ask);
            }
            None => self.busy -= 1,
        }
    }

    fn ask(&mut self, caller: u64, ask: Ask) {
        let host = self.settings.host_of(caller);
        self.hosts[host].ask(caller, ask.rank, ask.request);
    }

    /// What a host has said leaves.
    fn flush(&mut self, host: usize) {
        let at = self.now + self.settings.network_ns;
        for (rank, conn, messages) in self.hosts[host].take_said() {
            self.plan(at, Event::ToSeat { rank, conn, messages });
        }
    }
}

fn answer(store: &Store, (tag, requests): LoadJob) -> Input {
    Input::Loaded { tag, results: requests.iter().map(|request| Ok(store.load(request))).collect() }
}

fn config(settings: &Settings, rank: u16) -> RankConfig {
    let mut config = RankConfig::new([1; 16], SEED, life(rank));
    config.rank = RankId(rank);
    config.cache_bytes = settings.cache_bytes;
    config.journal_bytes = settings.journal_bytes;
    config.lease_ns = LEASE_NS;
    // mdtest has just made its directories: who made them knows all that is in them. Here the first name that is asked for brings the rest.
    if settings.workload == Workload::Mdtest {
        config.prefetch = Prefetch::Full;
    }
    // Nothing moves here: what is to be spread is so from the beginning.
    (config.split_size, config.split_reads, config.split_writes) = (0, 0, 0);
    config
}
