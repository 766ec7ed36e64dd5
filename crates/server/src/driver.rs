//! The driver: one rank behind one mutex, and the threads that carry out what it asks.
//!
//! A *turn* is: lock, step the inputs, sort the outputs, unlock, then act. What must keep the order
//! in which the rank said it (journal appends, store batches, messages of one connection, data
//! operations of one file) is put into its queue before the mutex is released; queues have leaf mutexes
//! held for a few instructions and never while another is taken.
//!
//! Absent: I/O under the rank's mutex.

mod ages;
mod background;
mod core;
mod damage;
mod data;
mod deliver;
mod gate;
mod inbox;
mod journal;
mod life;
mod links;
mod loads;
mod news;
pub(crate) mod pulse;
mod stores;
mod threads;
mod timer;
mod turnstile;

#[cfg(test)]
mod tests;

use self::core::{Core, Turn};
use self::turnstile::{Held, Turnstile};

use crate::machine::RankFacts;
use crate::parts::{Ballast, DataIo, JournalIo, Parts};
use mds::input::{ConnId, Input, Peer};
use proto::cluster::ClusterMap;
use proto::message::ServerMsg;
use proto::{Ino, SessionId};
use runtime::port::Sink;
use runtime::{Clock, Log};
use std::collections::BTreeMap;
use std::iter::Peekable;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use stdx::Mono;
use store::meta::MetaStore;

pub(crate) use self::core::TurnCounts;
pub(crate) use gate::{FreezeError, freeze};
pub(crate) use life::{AbortOnPanic, Life, LifeCell};
pub(crate) use links::Neighbours;
pub(crate) use threads::{Last, Threads};

/// No turn should take longer, whatever is asked.
const TURN_MAX_NS: u64 = 5 * stdx::time::MS;

/// After this a turn takes in no more of what it was given: others who want the rank get it first.
const TURN_AIM_NS: u64 = stdx::time::MS;

/// How long a question about the rank waits for it, and how often it tries. Of one that hangs there is no answer.
const ASK_MAX: Duration = Duration::from_secs(2);
const ASK_AGAIN: Duration = Duration::from_micros(200);

/// Drivers begun in this process.
static DRIVERS: AtomicU64 = AtomicU64::new(0);

/// Counters of the driver, for `perf dump`.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Times that a thread found the rank busy, and how long it waited.
    pub(crate) waits: AtomicU64,
    pub(crate) wait_nanos: AtomicU64,
    pub(crate) waits_over_5ms: AtomicU64,
    /// Requests that came over sockets, and how long they lay there, in the loop that reads it and before the rank; the longest.
    pub(crate) queued: AtomicU64,
    pub(crate) queue_nanos: AtomicU64,
    pub(crate) queue_nanos_max: AtomicU64,
    pub(crate) queue_over_5ms: AtomicU64,
    pub(crate) commits: AtomicU64,
    pub(crate) journal_bytes: AtomicU64,
    pub(crate) loads: AtomicU64,
    /// Times that a worker brought what it had read.
    pub(crate) load_batches: AtomicU64,
    pub(crate) store_batches: AtomicU64,
    pub(crate) data_inline: AtomicU64,
    pub(crate) data_queued: AtomicU64,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Ordering::Relaxed);
    }

    /// A request that came over a socket has waited so long.
    fn queued(&self, waited: u64) {
        Self::add(&self.queued, 1);
        Self::add(&self.queue_nanos, waited);
        Self::add(&self.queue_over_5ms, u64::from(waited > TURN_MAX_NS));
        self.queue_nanos_max.fetch_max(waited, Ordering::Relaxed);
    }
}

/// One rank and everything that serves it.
pub(crate) struct Driver {
    core: Turnstile<Core>,
    clock: Clock,
    pub(crate) log: Arc<Log>,
    journal: journal::Queue,
    loads: loads::Queue,
    stores: stores::Queues,
    data: data::Queue,
    inbox: inbox::Inbox,
    timer: timer::Timer,
    background: background::Background,
    data_background: background::Background,
    pub(crate) journal_io: Arc<dyn JournalIo>,
    pub(crate) meta: Arc<dyn MetaStore>,
    pub(crate) data_io: Arc<dyn DataIo>,
    ballast: Option<Arc<dyn Ballast>>,
    /// The rank was told that the disk is full.
    refusing: Mutex<bool>,
    pub(crate) life: LifeCell,
    pub(crate) damage: damage::Damage,
    pub(crate) counters: Counters,
    /// No input is taken any more: the server was dropped or its stop is complete.
    halted: AtomicBool,
    next_conn: AtomicU64,
    /// Those of the connections, beside the rank's mutex: they are told of the end of a rank that hangs, too.
    sinks: Mutex<BTreeMap<ConnId, Arc<dyn Sink>>>,
    pub(crate) pulse: pulse::Pulse,
    pub(crate) news: news::News,
    links: links::Links,
    /// `None` of a rank that is alone for good.
    neighbours: Option<Arc<dyn Neighbours>>,
    /// Of this one among the drivers of the process.
    pub(crate) number: u64,
    /// It loads all names when it begins to serve.
    warm: bool,
    /// Named in log lines: the data folder.
    place: String,
}

impl Driver {
    /// Builds a driver and starts its threads, and boots the rank. `around`: of one that is not alone, with the map of its beginning.
    pub(crate) fn start(
        parts: Parts,
        log: Arc<Log>,
        place: String,
        warm: bool,
        clock: Clock,
        around: Option<(Arc<dyn Neighbours>, Arc<ClusterMap>)>,
    ) -> std::io::Result<(Arc<Self>, Threads)> {
        let (neighbours, map) = around.unzip();
        let Parts { rank, journal, meta, data, ballast } = parts;
        let driver = Arc::new(Self {
            core: Turnstile::new(Core::new(rank)),
            clock,
            log,
            journal: journal::Queue::default(),
            loads: loads::Queue::default(),
            stores: stores::Queues::default(),
            data: data::Queue::default(),
            inbox: inbox::Inbox::default(),
            timer: timer::Timer::default(),
            background: background::Background::default(),
            data_background: background::Background::default(),
            journal_io: journal,
            meta,
            data_io: data,
            ballast,
            refusing: Mutex::new(false),
            life: LifeCell::default(),
            damage: damage::Damage::default(),
            counters: Counters::default(),
            halted: AtomicBool::new(false),
            next_conn: AtomicU64::new(1),
            sinks: Mutex::default(),
            pulse: pulse::Pulse::default(),
            news: news::News::default(),
            links: links::Links::default(),
            neighbours,
            number: 1 + DRIVERS.fetch_add(1, Ordering::Relaxed),
            warm,
            place,
        });
        if driver.ballast.as_ref().is_some_and(|ballast| !ballast.is_held()) {
            driver.data_io.keep_room(true);
        }
        if let Some(map) = &map {
            driver.news.begin(map);
            driver.links.learn(map);
        }
        let threads = Threads::start(&driver)?;
        driver.feed(map.map(Input::Map).into_iter().chain([Input::Boot]));
        Ok((driver, threads))
    }

    /// `None`: the life was ended while this waited.
    fn core(&self) -> Option<Held<'_, Core>> {
        self.core.try_lock().or_else(|| self.timed(Turnstile::lock))
    }

    /// For questions, whose askers want to hear that the rank does not answer.
    fn asked(&self) -> Option<Held<'_, Core>> {
        let begin = Instant::now();
        loop {
            if let Some(core) = self.core.try_lock() {
                return Some(core);
            }
            if begin.elapsed() > ASK_MAX || self.is_halted() {
                return None;
            }
            std::thread::sleep(ASK_AGAIN);
        }
    }

    /// Waits for the rank, and counts that.
    fn timed<'a>(
        &'a self,
        lock: impl FnOnce(&'a Turnstile<Core>) -> Option<Held<'a, Core>>,
    ) -> Option<Held<'a, Core>> {
        let begin = self.clock.mono();
        let core = lock(&self.core);
        let waited = self.clock.mono().since(begin);
        Counters::add(&self.counters.waits, 1);
        Counters::add(&self.counters.wait_nanos, waited);
        Counters::add(&self.counters.waits_over_5ms, u64::from(waited > TURN_MAX_NS));
        core
    }

    pub(crate) fn is_halted(&self) -> bool {
        self.halted.load(Ordering::Acquire)
    }

    /// The life is over: no input is taken any more, and nobody waits for the rank, were it never to come back.
    pub(crate) fn halt(&self) {
        self.halted.store(true, Ordering::Release);
        self.core.close();
        // Who waits for it to serve waits no longer.
        self.life.set(Life::Stopped);
    }

    fn sinks(&self) -> MutexGuard<'_, BTreeMap<ConnId, Arc<dyn Sink>>> {
        self.sinks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Feeds inputs and carries out what follows, until no work is left that this thread can do at
    /// once. Replies to `own` are appended to `answers`, everything else goes to its sink. `since`: how long the inputs
    /// may have waited in a socket.
    pub(crate) fn drive(
        &self,
        inputs: impl IntoIterator<Item = Input>,
        own: Option<ConnId>,
        since: Option<Instant>,
        answers: &mut Vec<ServerMsg>,
    ) {
        self.take_turns(inputs, since, false, Turn::new(own, answers));
    }

    /// As `drive`, for threads that answer no connection.
    pub(crate) fn feed(&self, inputs: impl IntoIterator<Item = Input>) {
        self.drive(inputs, None, None, &mut Vec::new());
    }

    /// As `feed`, for who had a turn just now: others have theirs first.
    fn feed_last(&self, inputs: impl IntoIterator<Item = Input>) {
        self.take_turns(inputs, None, true, Turn::new(None, &mut Vec::new()));
    }

    /// One turn after the other. `more`: who comes has had one just now.
    fn take_turns(
        &self,
        inputs: impl IntoIterator<Item = Input>,
        since: Option<Instant>,
        mut more: bool,
        mut turn: Turn<'_>,
    ) {
        let _guard = AbortOnPanic { log: &self.log };
        let mut inputs = inputs.into_iter().peekable();
        let since = since.map(|since| self.clock.mono_of(since));
        loop {
            more = self.step(&mut inputs, since, more, &mut turn);
            self.act(&mut turn);
            if !more && turn.inputs.is_empty() && turn.delivered.is_empty() {
                return;
            }
        }
    }

    /// One turn; `true`: there is more to take in, which came later than what was taken. `again`: so it was the last time, and others
    /// have their turns first.
    fn step(
        &self,
        inputs: &mut Peekable<impl Iterator<Item = Input>>,
        since: Option<Mono>,
        again: bool,
        turn: &mut Turn<'_>,
    ) -> bool {
        let core = if again { self.timed(Turnstile::lock_last) } else { self.core() };
        let Some(mut core) = core.filter(|_| !self.is_halted()) else {
            turn.clear();
            return false;
        };
        let now = self.clock.now();
        core.settle_deliveries(turn);
        let (mut count, mut at) = (0, now.mono);
        let more = loop {
            // First what was held back: one of the others may take back what is held.
            let known = core.gate.let_go().or_else(|| turn.inputs.pop_front());
            let Some(input) = known.or_else(|| self.next_of(inputs, since, at)) else { break false };
            count += 1;
            core.step(now, input, self, turn);
            // Whatever kept it so long: another life may have begun.
            if self.is_halted()
                || !(core.gate.lets_go() || !turn.inputs.is_empty() || inputs.peek().is_some())
            {
                break false;
            }
            at = self.clock.mono();
            if at.since(now.mono) >= TURN_AIM_NS {
                break true;
            }
        };
        turn.wake_timer = core.new_deadline();
        core.turns.add(count, self.clock.mono().since(now.mono));
        more
    }

    /// The next input that came from outside, whose wait is over.
    fn next_of(
        &self,
        inputs: &mut impl Iterator<Item = Input>,
        since: Option<Mono>,
        at: Mono,
    ) -> Option<Input> {
        let input = inputs.next()?;
        if let Some(since) = since
            && gate::is_request(&input)
        {
            self.counters.queued(at.since(since));
        }
        Some(input)
    }

    /// Acts on a turn's outputs, with no mutex held.
    fn act(&self, turn: &mut Turn<'_>) {
        if self.is_halted() {
            turn.clear();
            return;
        }
        if std::mem::take(&mut turn.commit_journal) {
            turn.wake_journal |= self.journal.commit();
        }
        self.journal.wake_if(std::mem::take(&mut turn.wake_journal));
        if let Some(at) = turn.wake_timer.take() {
            self.timer.set(at);
        }
        if turn.wake_stores != 0 {
            self.stores.wake(std::mem::take(&mut turn.wake_stores));
        }
        if !turn.loads.is_empty() {
            Counters::add(&self.counters.loads, turn.loads.len() as u64);
            self.loads.push(&mut turn.loads);
        }
        if std::mem::take(&mut turn.says) {
            self.links.flush();
        }
        self.deliver(turn);
        turn.inputs.reserve(turn.data.len());
        for (tag, op) in turn.data.drain(..) {
            if let Some(result) = self.run_data_quick(&op) {
                Counters::add(&self.counters.data_inline, 1);
                drop(op);
                turn.inputs.push_back(Input::DataDone { tag, result });
            } else {
                Counters::add(&self.counters.data_queued, 1);
                self.data.push(tag, op);
            }
        }
    }

    /// Takes a connection in; `limit`: the directory to which whoever greets on it is limited, or `Ino::NONE`.
    pub(crate) fn connect(&self, peer: Peer, limit: Ino, sink: Arc<dyn Sink>) -> Option<ConnId> {
        if self.is_halted() {
            return None;
        }
        let conn = ConnId(self.next_conn.fetch_add(1, Ordering::Relaxed));
        self.sinks().insert(conn, sink.clone());
        let known = self.core().map(|mut core| core.conns.add(conn, sink));
        // Else it may have been overlooked by who tells of the end.
        if known.is_none() || self.is_halted() {
            self.sinks().remove(&conn);
            return None;
        }
        let limit = (limit != Ino::NONE).then_some(Input::Limit { conn, dir: limit });
        self.feed([Some(Input::Connected { conn, peer }), limit].into_iter().flatten());
        Some(conn)
    }

    /// The peer left: its sink hears nothing more.
    pub(crate) fn disconnect(&self, conn: ConnId) {
        self.sinks().remove(&conn);
        let known = self.core().map(|mut core| core.conns.remove(conn));
        if known == Some(true) {
            self.feed([Input::Disconnected { conn }]);
        }
    }

    /// Blocks while the journal is far behind, so that its buffer stays bounded. In a sink it never
    /// blocks: the thread may be the journal's, and it would wait for the room that only it makes.
    pub(crate) fn throttle(&self) {
        if !deliver::in_sink() {
            self.journal.wait_for_room();
        }
    }

    /// What was counted of turns so far.
    pub(crate) fn turns(&self) -> TurnCounts {
        self.asked().map(|core| core.turns).unwrap_or_default()
    }

    /// The longest turn is the longest from now on.
    pub(crate) fn forget_longest_turn(&self) {
        if let Some(mut core) = self.asked() {
            core.turns.nanos_max = 0;
        }
    }

    /// Asks the rank between two steps. `None`: it does not know the question, or hangs.
    pub(crate) fn report(&self, question: &serde_json::Value) -> Option<serde_json::Value> {
        let _guard = AbortOnPanic { log: &self.log };
        let core = self.asked()?;
        core.rank().report(self.clock.mono(), question)
    }

    /// Whether the rank has this session. `None`: it does not say, or its life was ended.
    pub(crate) fn has_session(&self, id: SessionId) -> Option<bool> {
        let _guard = AbortOnPanic { log: &self.log };
        self.asked().filter(|_| !self.is_halted()).map(|core| core.rank().has_session(id))
    }

    /// What the rank says of its health.
    pub(crate) fn facts(&self) -> Option<RankFacts> {
        let _guard = AbortOnPanic { log: &self.log };
        let core = self.asked()?;
        core.rank().facts(self.clock.mono())
    }

    /// Where the rank is. `None`: it does not say, or its life was ended.
    pub(crate) fn state(&self) -> Option<mds::State> {
        Some(self.asked()?.rank().state())
    }

    /// The next input never comes back from the rank: what `pando tell mds.N hang` is for.
    pub(crate) fn hang(&self) {
        if let Some(mut core) = self.asked() {
            core.gate.hang_at_next();
        }
        // The timer's thread, if no client is faster.
        self.timer.set(self.clock.mono());
    }

    /// Journal bytes appended and not yet durable.
    pub(crate) fn journal_pending(&self) -> usize {
        self.journal.pending()
    }
}
