//! One session of this process with one rank: calls in, answers out.
//!
//! A call steps the machine under a mutex, sends without it, and runs callbacks without it. In one
//! process the rank is stepped by the same thread inside the send, so most calls are answered before
//! `submit` returns.
//!
//! Absent: threads that carry calls; only the timer and the link have one each (`threads.rs`).

#[cfg(test)]
mod tests;

use crate::answering;
use crate::calls::Asker;
use crate::core::{Core, Counts, Phase, Turn};
use crate::error::MountError;
use crate::late::{LateError, LateErrors};
use crate::link::{Dispatch, Link};
use crate::settings::Settings;
use crate::threads;
use client::{CallId, Client, ClientConfig, Input, Validity};
use proto::caps::{Recalled, Returned};
use proto::message::{ClientInfo, ServerMsg};
use proto::reply::Outcome;
use proto::request::Request;
use proto::{Cred, Errno, Ino, SessionId};
use runtime::port::{Connector, PortError, Sink};
use runtime::{Alarm, Clock};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;
use stdx::{Mono, Now, Wall};

/// Called with the answer and what of it may be kept, once, on any thread, with no mutex held. May submit, and must not wait for that:
/// it leaves when whoever was answered together with this one has been called.
pub type Done = Box<dyn FnOnce(Outcome, Validity) + Send>;
pub(crate) type Hook = Arc<dyn Fn(CapsEvent) + Send + Sync>;
/// Called with what failed after its caller was told of success, on any thread, with no mutex held.
pub type OnLate = dyn Fn(&[LateError]) + Send + Sync;

/// What whoever keeps something of answers is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CapsEvent {
    /// These go back to the rank: each is dropped, and said to be with `Mount::returned`, once. What is handed out from here on
    /// under a lower stamp is void. On whatever thread received it, which must not be kept waiting.
    Recalled { stamp: u64, list: Vec<Recalled> },
    /// Nothing that was handed out under a lower stamp is good any more. File data is dropped before this returns; names and
    /// attributes run out by themselves. On a thread that may wait.
    Lost { stamp: u64 },
}

/// A session with a rank. Closed when dropped.
pub struct Mount {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

pub(crate) struct Shared {
    pub(crate) clock: Clock,
    pub(crate) connector: Arc<dyn Connector>,
    pub(crate) settings: Settings,
    core: Mutex<Core>,
    pub(crate) timer: Alarm,
    pub(crate) linker: Condvar,
    phase: Condvar,
    lost_stamp: Arc<AtomicU64>,
    late: Arc<LateErrors>,
    pub(crate) hook: Mutex<Option<Hook>>,
    late_hook: Mutex<Option<Arc<OnLate>>>,
}

impl Mount {
    /// Opens a session.
    ///
    /// # Errors
    /// `MountError` when the server cannot be reached, refuses, or stays silent for 30 s.
    pub fn open(connector: Arc<dyn Connector>, info: ClientInfo) -> Result<Arc<Self>, MountError> {
        Self::open_with(connector, info, Settings::default())
    }

    /// Opens a session with other settings than the default.
    ///
    /// # Errors
    /// As `open`.
    pub fn open_with(
        connector: Arc<dyn Connector>,
        info: ClientInfo,
        settings: Settings,
    ) -> Result<Arc<Self>, MountError> {
        let config = ClientConfig {
            info,
            wants: settings.wants,
            retry: !connector.ends_with_rank(),
            recover_clean: settings.recover_clean,
            limits: settings.limits.clone(),
        };
        let core = Core::new(Client::new(config));
        let clock = Clock::new();
        let shared = Arc::new(Shared {
            clock,
            connector,
            settings,
            lost_stamp: Arc::clone(&core.lost_stamp),
            late: Arc::clone(&core.late),
            core: Mutex::new(core),
            timer: Alarm::new(clock).map_err(MountError::Threads)?,
            linker: Condvar::new(),
            phase: Condvar::new(),
            hook: Mutex::new(None),
            late_hook: Mutex::new(None),
        });
        let at = shared.connector.describe();
        shared.connect().map_err(|source| MountError::Unreachable { at, source })?;
        // From here on dropping ends the session.
        let mount = Self { shared: Arc::clone(&shared), threads: Mutex::default() };
        let started = threads::start(&shared).map_err(MountError::Threads)?;
        lock(&mount.threads).extend(started);
        shared.wait_ready()?;
        Ok(Arc::new(mount))
    }

    /// Starts a call. `done` may run before this returns.
    pub fn submit(&self, cred: Cred, request: Request, done: Done) -> CallId {
        self.submit_for(Asker::default(), cred, request, done)
    }

    /// Starts a call that `call_of` finds.
    pub fn submit_for(&self, asker: Asker, cred: Cred, request: Request, done: Done) -> CallId {
        let mut turn = Turn::default();
        let now = self.shared.step_time();
        let mut core = self.shared.core();
        let call = core.calls.insert(asker, done);
        core.step(now, Input::Call { call, cred, request }, &mut turn);
        self.shared.end_turn(core, turn);
        call
    }

    /// The caller of `call` was interrupted: a wait for a lock is answered with EINTR, unless granted.
    pub fn interrupt(&self, call: CallId) {
        self.shared.input(Input::Interrupt { call });
    }

    /// The call under way for the edge's `unique`, and for whom. Rarely asked: it looks at all calls.
    pub fn call_of(&self, unique: u64) -> Option<(CallId, Asker)> {
        self.shared.core().calls.of(unique)
    }

    /// The caller of `call` is being killed: EINTR at once if the rank is another process, unless a change was sent.
    pub fn abandon(&self, call: CallId) {
        self.shared.input(Input::Abandon { call });
    }

    /// Whether the rank is another process, which may be gone while this mount is there.
    pub fn outlives_rank(&self) -> bool {
        !self.shared.connector.ends_with_rank()
    }

    /// A call that waits for its answer.
    pub fn call(&self, cred: Cred, request: Request) -> Outcome {
        let slot = Arc::new((Mutex::new(None), Condvar::new()));
        let filled = Arc::clone(&slot);
        self.submit(
            cred,
            request,
            Box::new(move |outcome, _| {
                *lock(&filled.0) = Some(outcome);
                filled.1.notify_one();
            }),
        );
        let mut outcome = lock(&slot.0);
        loop {
            if let Some(outcome) = outcome.take() {
                return outcome;
            }
            outcome = slot.1.wait(outcome).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The time by which `Validity::until` is to be read.
    pub fn now(&self) -> Mono {
        self.shared.clock.mono()
    }

    /// The stamp of the last loss: a validity with a lower one is void. To be read after the answer came, immediately before handing
    /// out; the hook hears of the loss after this has it.
    pub fn lost_stamp(&self) -> u64 {
        self.shared.lost_stamp.load(Ordering::SeqCst)
    }

    /// Sets what to do when something that was granted must go. Without it recalls are answered at once.
    pub fn on_caps(&self, hook: Box<dyn Fn(CapsEvent) + Send + Sync>) {
        *lock(&self.shared.hook) = Some(Arc::from(hook));
    }

    /// What `CapsEvent::Recalled` named under this stamp is dropped, or a part of it.
    pub fn returned(&self, stamp: u64, list: Vec<Returned>) {
        self.shared.input(Input::Returned { stamp, list });
    }

    /// The kernel does not know an inode any more, of which it may have kept pages: the rank is offered them. A hint.
    pub fn forgotten(&self, ino: Ino) {
        // There the rank's own clock finds them.
        if !self.shared.connector.ends_with_rank() {
            self.shared.input(Input::Forgotten { ino });
        }
    }

    /// Sets what to do with errors that come too late for an answer, beside telling those who sync or close: to log them.
    pub fn on_late(&self, hook: Box<OnLate>) {
        *lock(&self.shared.late_hook) = Some(Arc::from(hook));
    }

    /// A number for a handle that is being opened, for `late_error`; never 0, never given twice.
    pub fn handle(&self) -> u64 {
        self.shared.late.handle()
    }

    /// What came too late for an answer about this inode, if this handle has not heard of it. To be asked when a sync or a close
    /// is answered.
    ///
    /// # Errors
    /// That error, once.
    pub fn late_error(&self, ino: Ino, handle: u64) -> Result<(), Errno> {
        self.shared.late.of(ino, handle)
    }

    /// The same about anything, for a sync of everything.
    ///
    /// # Errors
    /// The last such error, once.
    pub fn late_error_of_all(&self) -> Result<(), Errno> {
        self.shared.late.of_all()
    }

    /// A handle is closed.
    pub fn handle_closed(&self, ino: Ino, handle: u64) {
        self.shared.late.closed(ino, handle);
    }

    /// What this session has done so far, and what is under way. Looks at everything under way.
    pub fn counts(&self) -> Counts {
        self.shared.core().counts()
    }

    /// The session's number.
    pub fn session(&self) -> SessionId {
        self.shared.core().client.session()
    }

    /// The directory that this session calls root.
    pub fn root(&self) -> Ino {
        self.shared.core().client.root()
    }

    /// Ends the session in order: open calls are answered, waits for locks with EINTR, later calls with
    /// ESHUTDOWN. Safe to call again. Not from a callback.
    pub fn close(&self) {
        let threads = std::mem::take(&mut *lock(&self.threads));
        self.shared.input(Input::Close);
        self.shared.wait_closed();
        for thread in threads {
            // A panic there has been printed; the session is over either way.
            let _ended = thread.join();
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    pub(crate) fn core(&self) -> MutexGuard<'_, Core> {
        lock(&self.core)
    }

    /// The time for a step. This host's wall clock means nothing to the client's machine, and a read less counts here.
    pub(crate) fn step_time(&self) -> Now {
        Now { mono: self.clock.mono(), wall: Wall::default() }
    }

    pub(crate) fn input(&self, input: Input) {
        let mut turn = Turn::default();
        let now = self.step_time();
        let mut core = self.core();
        core.step(now, input, &mut turn);
        self.end_turn(core, turn);
    }

    /// Lets go of the mutex and does what the turn left to do.
    pub(crate) fn end_turn(&self, mut core: MutexGuard<'_, Core>, mut turn: Turn) {
        if !answering::sends_later(self) {
            core.settle(&mut turn);
        }
        drop(core);
        self.run(turn);
    }

    /// Does what a turn left to do: wakes, answers, sends; then what the sends' answers leave to do.
    pub(crate) fn run(&self, mut turn: Turn) {
        loop {
            if turn.wake_timer {
                self.timer.ring();
            }
            if turn.wake_link {
                self.linker.notify_one();
            }
            if turn.phase_changed {
                self.phase.notify_all();
            }
            if let Some(port) = turn.close.take() {
                port.close();
            }
            // Before the answers: somebody waits for these. In which order they come makes no difference, stamps tell.
            for (stamp, list) in turn.recalls.drain(..) {
                self.recalled(stamp, list);
            }
            if !turn.late.is_empty() {
                self.tell_late(&turn.late);
            }
            let asked = !turn.done.is_empty()
                && answering::hand_out(self, || {
                    turn.done.drain(..).for_each(|(done, outcome, validity)| done(outcome, validity));
                });
            let dispatch = turn.dispatch.take();
            turn = Turn::default();
            let mut core = match dispatch {
                Some(dispatch) => self.send(dispatch, &mut turn),
                None if asked => self.core(),
                None => return,
            };
            core.settle(&mut turn);
            // Whoever closes waits for the goodbye to have left.
            turn.phase_changed |= core.is_ended();
        }
    }

    /// Sends, and takes in what is answered at once. `settle` must follow.
    fn send(&self, mut dispatch: Dispatch, turn: &mut Turn) -> MutexGuard<'_, Core> {
        let mut answers = Vec::new();
        let messages = std::mem::take(&mut dispatch.messages);
        let sent = dispatch.port.send(messages, &mut answers);
        let now = self.step_time();
        let mut core = self.core();
        if let Some(link) = core.link.as_mut().filter(|link| link.generation == dispatch.generation) {
            link.sent(&dispatch);
        }
        core.receive(now, dispatch.generation, answers, turn);
        if sent.is_err() {
            core.lost(now, dispatch.generation, turn);
        }
        core
    }

    fn recalled(&self, stamp: u64, list: Vec<Recalled>) {
        let hook = lock(&self.hook).clone();
        match hook {
            Some(hook) => hook(CapsEvent::Recalled { stamp, list }),
            None => {
                let all = list.iter().map(|recalled| recalled.returned(recalled.bits));
                self.input(Input::Returned { stamp, list: all.collect() });
            }
        }
    }

    fn tell_late(&self, late: &[LateError]) {
        let hook = lock(&self.late_hook).clone();
        if let Some(hook) = hook {
            hook(late);
        }
    }

    /// Makes a connection and says Hello.
    pub(crate) fn connect(self: &Arc<Self>) -> Result<(), PortError> {
        let generation = {
            let mut core = self.core();
            core.generation += 1;
            core.generation
        };
        let sink = LinkSink { shared: Arc::downgrade(self), generation };
        let port = self.connector.connect(Arc::new(sink))?;
        let mut turn = Turn::default();
        let now = self.step_time();
        let mut core = self.core();
        if core.stop || core.broken >= generation {
            drop(core);
            port.close();
            return Err(PortError::Lost);
        }
        core.link = Some(Link::new(port, generation));
        core.step(now, Input::Connected, &mut turn);
        self.end_turn(core, turn);
        Ok(())
    }

    fn wait_ready(&self) -> Result<(), MountError> {
        let limit = self.settings.open_timeout;
        let until = Instant::now() + limit;
        let mut core = self.core();
        loop {
            let at = self.connector.describe();
            match &core.phase {
                Phase::Ready => return Ok(()),
                Phase::Refused(reason) => return Err(MountError::Refused { at, reason: reason.clone() }),
                Phase::Closed => return Err(MountError::Refused { at, reason: "closed".to_owned() }),
                Phase::Opening => {}
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(MountError::TimedOut { at, seconds: limit.as_secs() });
            }
            core = self.phase.wait_timeout(core, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits for the end of a closing session, ends it by force after the limit, and stops the threads.
    fn wait_closed(self: &Arc<Self>) {
        let until = Instant::now() + self.settings.close_timeout;
        let mut core = self.core();
        while !(core.is_ended() && core.link.as_ref().is_none_or(Link::is_idle)) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            core = self.phase.wait_timeout(core, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        core.stop = true;
        let mut turn = Turn { wake_timer: true, wake_link: true, ..Turn::default() };
        let port = core.link.as_ref().map(|link| Arc::clone(link.port()));
        let generation = core.generation;
        let now = self.step_time();
        // Answers whatever is still open; a session that ended in order ignores it.
        core.lost(now, generation, &mut turn);
        core.step(now, Input::GiveUp, &mut turn);
        self.end_turn(core, turn);
        if let Some(port) = port {
            port.close();
        }
    }
}

struct LinkSink {
    shared: std::sync::Weak<Shared>,
    generation: u64,
}

impl Sink for LinkSink {
    fn messages(&self, batch: Vec<ServerMsg>) {
        let Some(shared) = self.shared.upgrade() else { return };
        let mut turn = Turn::default();
        let now = shared.step_time();
        let mut core = shared.core();
        core.receive(now, self.generation, batch, &mut turn);
        shared.end_turn(core, turn);
    }

    fn disconnected(&self) {
        let Some(shared) = self.shared.upgrade() else { return };
        let mut turn = Turn::default();
        let now = shared.step_time();
        let mut core = shared.core();
        core.lost(now, self.generation, &mut turn);
        shared.end_turn(core, turn);
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panicking callback runs without locks, so what they guard is whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
