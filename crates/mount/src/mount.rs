//! One session of this process with a cluster: calls in, answers out.
//!
//! Absent: how a call travels (`shared.rs`); threads that carry calls: only the timer, the link and losses have one each (`threads.rs`).

#[cfg(test)]
mod tests;

use crate::calls::Asker;
use crate::error::MountError;
use crate::late::LateError;
use crate::session::{SessionNews, SessionState};
use crate::settings::Settings;
use crate::shared::{Shared, lock};
use crate::state::{Core, Counts, FIRST, Turn};
use crate::threads;
use client::{CallId, ClientConfig, Input, Router, Validity};
use proto::caps::{Recalled, Returned};
use proto::message::ClientInfo;
use proto::reply::Outcome;
use proto::request::Request;
use proto::{Cred, Errno, Ino, SessionId};
use runtime::port::Connector;
use runtime::{Alarm, Clock};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use stdx::Mono;

/// Called with the answer and what of it may be kept, once, on any thread, with no mutex held. May submit, and must not wait for that:
/// it leaves when whoever was answered together with this one has been called.
pub type Done = Box<dyn FnOnce(Outcome, Validity) + Send>;
pub(crate) type Hook = Arc<dyn Fn(CapsEvent) + Send + Sync>;
/// Called with what failed after its caller was told of success, on any thread, with no mutex held.
pub type OnLate = dyn Fn(&[LateError]) + Send + Sync;
/// Called with what became of the session, on any thread, with no mutex held. Two that come at the same time may be told in either
/// order.
pub type OnSession = dyn Fn(&SessionNews) + Send + Sync;

/// What whoever keeps something of answers is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CapsEvent {
    /// These go back to the rank: each is dropped, and said to be with `Mount::returned`, once. What is handed out from here on
    /// under a lower stamp is void. On whatever thread received it, which must not be kept waiting.
    Recalled { stamp: u64, list: Vec<Recalled> },
    /// Nothing that was handed out under a lower stamp is good any more. File data is dropped before this returns; names and
    /// attributes run out by themselves. On a thread that may wait, for answers of this mount, too.
    Lost { stamp: u64 },
}

/// A session with all ranks that are needed. Closed when dropped.
pub struct Mount {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
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
            limit: settings.limit,
            limits: settings.limits.clone(),
        };
        let clock = Clock::new();
        let alarm = Alarm::new(clock).map_err(MountError::Threads)?;
        let core = Core::new(Router::new(config), !connector.ends_with_rank());
        let shared = Arc::new(Shared::new((clock, alarm), connector, settings, core));
        let at = shared.connector.describe();
        shared.connect(FIRST).map_err(|source| MountError::Unreachable { at, source })?;
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
        self.submit_in(Turn::default(), asker, cred, request, done)
    }

    /// Starts a call that nobody waits for: the end of an open may leave a moment later, together with others.
    pub fn submit_unawaited(&self, cred: Cred, request: Request, done: Done) -> CallId {
        self.submit_in(Turn { unawaited: true, ..Turn::default() }, Asker::default(), cred, request, done)
    }

    fn submit_in(&self, mut turn: Turn, asker: Asker, cred: Cred, request: Request, done: Done) -> CallId {
        let now = self.shared.step_time();
        let mut core = self.shared.core();
        let asked = core.recalled;
        let call = core.calls.insert(asker, asked, done);
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

    /// All calls under way that somebody is known to wait for.
    pub fn calls(&self) -> Vec<(CallId, Asker)> {
        self.shared.core().calls.all()
    }

    /// The caller of `call` is being killed: EINTR at once if the rank is another process, unless a change was sent.
    pub fn abandon(&self, call: CallId) {
        self.shared.input(Input::Abandon { call });
    }

    /// Whether somebody waits for a READ or a WRITE of this file, which may be for as long as the rank is away. Looks at all calls.
    pub fn moves_bytes(&self, ino: Ino) -> bool {
        self.shared.core().client.moves_bytes(ino)
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

    /// Adds something to do when the session is lost, goes on, or ends.
    pub fn on_session(&self, hook: Box<OnSession>) {
        lock(&self.shared.session_hooks).push(Arc::from(hook));
    }

    /// How the session is.
    pub fn state(&self) -> SessionState {
        self.shared.core().state()
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
