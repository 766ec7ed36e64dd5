//! The journal's threads: they take appended bytes in order, commit groups, tell the rank what is durable.
//!
//! A commit starts at once when something waits for it, or at 1 MiB; else 2 ms after its first byte, and not before the sync under
//! way has ended. Writing and syncing follow.
//! One of two threads *leads*: it waits for the group and writes it. Then another may lead: while one group is synced and those who
//! wait for it are told, the next is written.
//!
//! Absent: segments (crate `store`).

use super::{Counters, Driver};
use mds::input::Input;
use proto::Position;
use proto::storeio::StoreError;
use runtime::spin::Spinner;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use stdx::Mono;
use stdx::time::MS;

/// Longest time that appends nobody waits for are gathered while no sync is under way.
const COMMIT_NS: u64 = 2 * MS;
/// A group this big is committed at once.
const COMMIT_BYTES: usize = 1 << 20;
/// Senders wait while more than this is not durable.
const PENDING_BYTES_MAX: usize = 64 << 20;
/// After a commit the thread looks this many times by itself, `COMMIT_NS` apart, before it sleeps until told: where changes
/// follow each other, the first of a group wakes nobody.
const LOOKS: u32 = 10;
/// Memory each append buffer keeps between groups.
const KEEP_BYTES: usize = 4 << 20;
/// Threads that write and sync.
pub(super) const COMMITTERS: usize = 2;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sleep {
    #[default]
    Awake,
    /// Until there is anything.
    Idle,
    /// Until the group's time is up, or until there may be one that nobody told of.
    Gathering,
}

#[derive(Default)]
struct State {
    start: Position,
    bytes: Vec<u8>,
    /// When the first byte of the group came.
    since: Mono,
    urgent: bool,
    /// Buffers of earlier groups.
    spare: Vec<Vec<u8>>,
    read: Option<Position>,
    /// A thread leads; else all are busy, or soon one will.
    led: bool,
    /// Of who leads.
    sleep: Sleep,
    /// What came did not follow what there was.
    gap: bool,
    /// Nothing more is ever durable: the rank was told.
    failed: bool,
    /// Senders that wait for room.
    waiting: u32,
    /// Nothing more comes: what there is is written, then the threads end.
    last: bool,
    stop: bool,
}

impl State {
    fn is_due(&self) -> bool {
        self.urgent || self.last || self.bytes.len() >= COMMIT_BYTES
    }

    /// Whether a thread must be woken; at most once per sleep.
    fn wake(&mut self, only_idle: bool) -> bool {
        if !self.led {
            // Who is busy leads next: only what is due does not wait for that.
            return !only_idle;
        }
        let wake = match self.sleep {
            Sleep::Awake => false,
            Sleep::Idle => true,
            Sleep::Gathering => !only_idle,
        };
        if wake {
            self.sleep = Sleep::Awake;
        }
        wake
    }
}

/// What the thread that leads does next.
enum Work {
    Commit(Position, Vec<u8>),
    Read(Position),
    Stop,
}

/// Appends on their way to the journal threads.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// Who leads waits here, the other one there.
    wake: Condvar,
    lead: Condvar,
    room: Condvar,
    /// Bytes gathered or being committed.
    pending: AtomicUsize,
    /// Something does not wait for the group's time: lets who leads spin without the lock.
    attention: AtomicBool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Copies entries behind what is gathered. Called under the rank's mutex, so that positions
    /// arrive in order. Returns whether a thread must be woken.
    pub(super) fn append(&self, now: Mono, position: Position, bytes: &[u8]) -> bool {
        let mut state = self.lock();
        if state.bytes.is_empty() {
            state.start = position;
            state.since = now;
        }
        // Behind a gap nothing can be replayed: it is refused as a failed write is, before any of it counts as durable.
        state.gap |= state.start.0 + state.bytes.len() as u64 != position.0;
        state.bytes.extend_from_slice(bytes);
        self.pending.fetch_add(bytes.len(), Ordering::Relaxed);
        let is_big = state.bytes.len() >= COMMIT_BYTES;
        if is_big {
            self.attention.store(true, Ordering::Release);
        }
        state.wake(!is_big)
    }

    /// Something waits for what is gathered.
    pub(super) fn commit(&self) -> bool {
        let mut state = self.lock();
        if state.bytes.is_empty() {
            return false;
        }
        state.urgent = true;
        self.attention.store(true, Ordering::Release);
        state.wake(false)
    }

    /// The rank boots: read the inherited journal.
    pub(super) fn read(&self, from: Position) -> bool {
        let mut state = self.lock();
        state.read = Some(from);
        self.attention.store(true, Ordering::Release);
        state.wake(false)
    }

    pub(super) fn wake_if(&self, wake: bool) {
        if wake {
            self.wake.notify_one();
            self.lead.notify_one();
        }
    }

    /// Ends the threads when what is gathered is written and synced, or cannot be.
    pub(super) fn finish(&self) {
        self.lock().last = true;
        self.attention.store(true, Ordering::Release);
        self.wake.notify_all();
        self.lead.notify_all();
        self.room.notify_all();
    }

    /// Ends the threads; what is gathered stays uncommitted.
    pub(super) fn stop(&self) {
        self.lock().stop = true;
        self.attention.store(true, Ordering::Release);
        self.wake.notify_all();
        self.lead.notify_all();
        self.room.notify_all();
    }

    pub(super) fn pending(&self) -> usize {
        self.pending.load(Ordering::Relaxed)
    }

    /// Senders that wait for room.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> u32 {
        self.lock().waiting
    }

    /// Blocks while too much is not durable.
    pub(super) fn wait_for_room(&self) {
        if self.pending() <= PENDING_BYTES_MAX {
            return;
        }
        let mut state = self.lock();
        state.waiting += 1;
        while !state.stop && !state.last && self.pending() > PENDING_BYTES_MAX {
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.waiting -= 1;
    }

    /// The group is written: another thread may write the next one.
    fn pass_on(&self) {
        let mut state = self.lock();
        state.led = false;
        if state.is_due() {
            self.lead.notify_one();
        }
    }

    /// Who leads ends: so does who waits for the lead.
    fn pass_on_the_end(&self) {
        self.lock().led = false;
        self.lead.notify_all();
    }

    /// A group is durable, or will never be; its buffer comes back for a later one.
    fn committed(&self, mut bytes: Vec<u8>) {
        self.pending.fetch_sub(bytes.len(), Ordering::Relaxed);
        bytes.clear();
        bytes.shrink_to(KEEP_BYTES);
        let mut state = self.lock();
        if state.spare.len() < COMMITTERS {
            state.spare.push(bytes);
        }
        if state.waiting > 0 {
            self.room.notify_all();
        }
    }

    /// Waits for the lead.
    fn take_lead(&self) {
        let mut state = self.lock();
        while state.led && !state.stop {
            state = self.lead.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.led = true;
        state.sleep = Sleep::Awake;
    }

    /// Nothing more is ever durable. Answers whether that is news.
    fn fail(&self) -> bool {
        !std::mem::replace(&mut self.lock().failed, true)
    }

    fn next(&self, driver: &Driver, spinner: &Spinner) -> Work {
        self.take_lead();
        spinner.wait(|| self.attention.load(Ordering::Acquire));
        let mut looks = LOOKS;
        let mut state = self.lock();
        loop {
            state.sleep = Sleep::Awake;
            self.attention.store(false, Ordering::Relaxed);
            if state.stop || (state.last && state.bytes.is_empty()) {
                return Work::Stop;
            }
            if let Some(from) = state.read.take() {
                return Work::Read(from);
            }
            if state.bytes.is_empty() && looks > 0 {
                looks -= 1;
                state.sleep = Sleep::Gathering;
                let pause = Duration::from_nanos(COMMIT_NS);
                state = self.wake.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            if state.bytes.is_empty() {
                state.sleep = Sleep::Idle;
                state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let due = state.since.after(COMMIT_NS);
            let left = if state.is_due() { Duration::ZERO } else { driver.clock.until(due) };
            if left.is_zero() {
                state.urgent = false;
                let next = state.spare.pop().unwrap_or_default();
                return Work::Commit(state.start, std::mem::replace(&mut state.bytes, next));
            }
            state.sleep = Sleep::Gathering;
            state = self.wake.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// One of the journal's threads.
pub(super) fn run(driver: &Driver) {
    let spinner = Spinner::new();
    loop {
        match driver.journal.next(driver, &spinner) {
            Work::Stop => {
                driver.journal.pass_on_the_end();
                return;
            }
            Work::Read(from) => {
                replay(driver, from);
                driver.journal.pass_on();
            }
            Work::Commit(start, bytes) => commit(driver, start, bytes),
        }
    }
}

fn commit(driver: &Driver, start: Position, bytes: Vec<u8>) {
    let queue = &driver.journal;
    Counters::add(&driver.counters.commits, 1);
    Counters::add(&driver.counters.journal_bytes, bytes.len() as u64);
    let (failed, gap) = {
        let state = queue.lock();
        (state.failed, state.gap)
    };
    let written = match (failed, gap) {
        (true, _) => Ok(false),
        (false, true) => {
            Err(StoreError::Damaged { at: "journal".into(), what: "a gap between appends".into() })
        }
        (false, false) => append(driver, start, &bytes).map(|()| true),
    };
    let works = written.unwrap_or_else(|error| fail(driver, error));
    queue.pass_on();
    let durable = works.then(|| driver.journal_io.sync());
    queue.committed(bytes);
    match durable {
        Some(Ok(end)) => driver.feed([Input::Durable(end)]),
        Some(Err(error)) => drop(fail(driver, error)),
        None => {}
    }
}

/// The rank is told once; the first to say so may be who only found that another failed.
fn fail(driver: &Driver, error: StoreError) -> bool {
    let is_news = driver.journal.fail();
    if is_news || error != StoreError::Poisoned {
        driver.log.error("journal", "commit failed", &[("error", &error)]);
    }
    if is_news {
        driver.feed([Input::JournalFailed(error)]);
    }
    false
}

fn append(driver: &Driver, start: Position, bytes: &[u8]) -> Result<(), StoreError> {
    let io = &driver.journal_io;
    match io.append(start, bytes) {
        Err(StoreError::NoSpace) => {
            // Another thread may have given the ballast up: `release_ballast` returns when its blocks count as free.
            driver.release_ballast();
            io.append(start, bytes)
        }
        other => other,
    }
}

fn replay(driver: &Driver, from: Position) {
    let end = driver.journal_io.read(from, &mut |position, entries| {
        // Replay emits data operations; they must not pile up without bound.
        driver.data.wait_until_short();
        driver.feed([Input::Replay { position, entries: entries.to_vec() }]);
    });
    match end {
        Ok(end) => driver.feed([Input::ReplayEnd { end, former: driver.journal_io.former() }]),
        Err(e) => driver.feed([Input::ReplayFailed(e)]),
    }
}
