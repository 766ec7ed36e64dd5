//! The coordinator inside a server's process, and the slots that carry ranks for it.
//!
//! The coordinator decides (crate `mds`); its thread hands its decisions on and never waits: the registry is read and written by a thread of
//! its own, and each slot begins and ends lives on its own. Slots and pulses send it their beacons.
//!
//! A rank here does not look at the lease that an acknowledged beacon gives it. The coordinator is in the same process, and names no
//! successor before the slot has closed the life's connections and revoked its right to the stores.
//!
//! Absent: decisions; coordinators of other processes, which the folder's lock keeps away.

mod coordinator;
mod neighbours;
mod registry;
mod slot;
mod view;

pub(crate) use view::{ClusterFacts, standbys};

use crate::driver::AbortOnPanic;
use crate::life::RankLife;
use crate::open::Maker;
use crate::server::ServerError;
use crate::stage::Stage;
use coordinator::Event;
use mds::coordinator::{Command, CommandError, CoordinatorConfig, Input, Reply};
use proto::Incarnation;
use proto::cluster::{ClusterMap, RankState};
use runtime::process::Cpus;
use runtime::{Clock, Config, Log};
use slot::Order;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use stdx::time::SECOND;
use store::registry::Registry;
use view::Views;

/// Slots of one process.
pub const RANK_SLOTS_MAX: u16 = 64;
/// How long a command waits for the coordinator, whose disk may be slow.
const COMMAND_MAX: Duration = Duration::from_secs(8);
/// What a mount's rank is judged by instead of `mds_beacon_grace`: it lives and dies with its process. Some hundred years.
const FOREVER_NS: u64 = u64::MAX / 4;
/// Threads that do little.
const SMALL_STACK: usize = 512 << 10;

/// What a cluster is made of.
pub(crate) struct Setup {
    pub(crate) maker: Maker,
    pub(crate) registry: Arc<dyn Registry>,
    /// Incarnations of lives are above it.
    pub(crate) floor: Incarnation,
    /// How many slots; `None`: the rank of a mount in this process.
    pub(crate) slots: Option<u16>,
    pub(crate) config: Config,
}

/// What its threads share.
pub(crate) struct Shared {
    events: Sender<Event>,
    pub(crate) views: Views,
    clock: Clock,
    interval: Duration,
    log: Arc<Log>,
    maker: Maker,
    stage: Arc<Stage>,
    /// The rank of a mount: it ends with the process, and is no operator's to end.
    of_mount: bool,
}

impl Shared {
    fn tell(&self, input: Input) {
        // After the end nobody listens.
        let _over = self.events.send(Event::Input(input));
    }
}

/// A running coordinator with its slots.
pub(crate) struct Cluster {
    pub(crate) shared: Arc<Shared>,
    slots: Vec<Sender<Order>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    standbys_wanted: u64,
}

/// Why a command came to nothing.
#[derive(Debug)]
pub(crate) enum Failed {
    Refused(CommandError),
    /// No answer in time, or the end of the process.
    Silent,
}

impl Cluster {
    /// Starts the threads; the coordinator boots.
    ///
    /// # Errors
    /// Of starting threads.
    pub(crate) fn start(setup: Setup, stage: Arc<Stage>, log: Arc<Log>) -> io::Result<Self> {
        let Setup { maker, registry, floor, slots, config } = setup;
        let of_mount = slots.is_none();
        let count = slots.unwrap_or(1).clamp(1, RANK_SLOTS_MAX);
        let (events, heard) = channel();
        let interval = Duration::from_secs(config.mds_beacon_interval);
        let shared = Arc::new(Shared {
            events,
            views: Views::default(),
            clock: Clock::new(),
            interval,
            log,
            maker,
            stage,
            of_mount,
        });
        let grace_ns = if of_mount { FOREVER_NS } else { config.mds_beacon_grace * SECOND };
        let machine = CoordinatorConfig { grace_ns, floor, sole: true };
        let (jobs, to_do) = channel();
        let (slots, orders): (Vec<_>, Vec<_>) = (0..count).map(|_| channel()).unzip();
        let standbys_wanted = config.standby_count_wanted;
        let cluster = Self { shared, slots, threads: Mutex::default(), standbys_wanted };
        let cpus = Cpus::of_this_thread().filter(|_| config.mds_rank_affinity);
        let started = cluster.start_threads(machine, (heard, jobs, to_do), registry, orders, cpus);
        if started.is_err() {
            cluster.stop();
        }
        started.map(|()| cluster)
    }

    fn start_threads(
        &self,
        machine: CoordinatorConfig,
        (heard, jobs, to_do): (Receiver<Event>, Sender<registry::Job>, Receiver<registry::Job>),
        registry: Arc<dyn Registry>,
        orders: Vec<Receiver<Order>>,
        cpus: Option<Cpus>,
    ) -> io::Result<()> {
        let count = orders.len();
        let (shared, slots) = (self.shared.clone(), self.slots.clone());
        self.spawn("coordinator".into(), move || coordinator::run(&shared, machine, &heard, &jobs, &slots))?;
        let shared = self.shared.clone();
        self.spawn("registry".into(), move || registry::run(&shared, registry.as_ref(), &to_do))?;
        for (n, orders) in orders.into_iter().enumerate() {
            let (shared, cpus) = (self.shared.clone(), cpus.map(|all| all.part(n, count)));
            self.spawn(format!("slot-{n}"), move || {
                // The threads of the lives that it begins inherit it.
                cpus.inspect(Cpus::take);
                slot::run(shared, n, &orders);
            })?;
        }
        Ok(())
    }

    fn spawn(&self, name: String, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let log = self.shared.log.clone();
        // Without one of them no rank would get another life, and nobody would say so.
        let guarded = move || {
            let _guard = AbortOnPanic { log: &log };
            run();
        };
        let thread = thread::Builder::new().name(name).stack_size(SMALL_STACK).spawn(guarded)?;
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        Ok(())
    }

    /// Waits for the first life of this process. `Ok(None)`: nobody may begin one before an operator says so.
    ///
    /// # Errors
    /// Why the life did not come to be.
    pub(crate) fn first_life(&self) -> Result<Option<Arc<RankLife>>, ServerError> {
        let is_closed = |map: &ClusterMap| !map.joinable;
        let seen = self.shared.views.wait(|view| {
            view.first.is_some() || view.trouble.is_some() || view.map.as_deref().is_some_and(is_closed)
        });
        self.shared.views.change(|view| view.answered = true);
        match (seen.first, seen.trouble) {
            (Some(first), _) => first.map(Some),
            (None, Some(error)) => Err(ServerError::Store(error)),
            (None, None) => Ok(None),
        }
    }

    /// Waits until every rank of the map serves.
    ///
    /// # Errors
    /// `Damaged` with the first that is; `Closed`; `Store` while the map cannot be read or written; `Io` when a life finds no room to begin.
    pub(crate) fn all_serve(&self) -> Result<(), ServerError> {
        let settled = |state: RankState| state.serves_ranks() || state == RankState::Damaged;
        let all = |map: &ClusterMap| !map.joinable || map.ranks.values().all(|info| settled(info.state));
        let seen = self.shared.views.wait(|view| {
            view.trouble.is_some() || view.unbegun.is_some() || view.map.as_deref().is_some_and(all)
        });
        let map = self.shared.views.map();
        if let Some(error) = seen.trouble.filter(|_| !map.as_deref().is_some_and(all)) {
            return Err(ServerError::Store(error));
        }
        if let Some(why) = seen.unbegun.filter(|_| !map.as_deref().is_some_and(all)) {
            return Err(ServerError::Io {
                what: "not all ranks serve".into(),
                source: io::Error::other(why),
            });
        }
        let Some(map) = map else { return Ok(()) };
        if !map.joinable {
            return Err(ServerError::Closed);
        }
        match map.ranks.iter().find(|(_, info)| info.state == RankState::Damaged) {
            Some((rank, _)) => Err(ServerError::Damaged(format!("rank {} does not serve", rank.0))),
            None => Ok(()),
        }
    }

    /// Has the coordinator carry out a command, and waits for it.
    ///
    /// # Errors
    /// Its refusal, or no answer.
    pub(crate) fn command(&self, command: Command) -> Result<Reply, Failed> {
        let (answer, heard) = sync_channel(1);
        self.shared.events.send(Event::Ask { command, answer }).map_err(|_| Failed::Silent)?;
        heard.recv_timeout(COMMAND_MAX).map_err(|_| Failed::Silent)?.map_err(Failed::Refused)
    }

    /// The life is to end as by a crash: `pando tell mds.N crash`. Whether there is a slot that carries it.
    pub(crate) fn crash(&self, name: &str) -> bool {
        let carrier = (0..self.slots.len()).find(|n| self.shared.slot_name(*n) == name);
        carrier.is_some_and(|n| self.slots[n].send(Order::Crash).is_ok())
    }

    /// The rank is a mount's.
    pub(crate) fn is_of_mount(&self) -> bool {
        self.shared.of_mount
    }

    /// What health and metrics are judged by.
    pub(crate) fn facts(&self) -> ClusterFacts {
        let mut facts = self.shared.views.facts();
        facts.standbys_wanted = if self.is_of_mount() { 0 } else { self.standbys_wanted };
        facts
    }

    /// Ends the coordinator and the slots. A life that there is stays.
    pub(crate) fn stop(&self) {
        let _over = self.shared.events.send(Event::Stop);
        for slot in &self.slots {
            let _over = slot.send(Order::Stop);
        }
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            if thread.thread().id() != thread::current().id() {
                let _panic_was_logged = thread.join();
            }
        }
    }
}

impl Shared {
    /// A slot, as people call it.
    fn slot_name(&self, n: usize) -> String {
        if self.of_mount {
            return "embedded".to_owned();
        }
        let host = runtime::process::host_name();
        format!("{}-{n}", if host.is_empty() { "mds" } else { &host })
    }
}
