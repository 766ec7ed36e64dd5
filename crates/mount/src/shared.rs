//! What the threads of a mount share: turns of the machine, what leaves, and the connection.
//!
//! A call steps the machine under a mutex, sends without it, and runs callbacks without it. In one
//! process the rank is stepped by the same thread inside the send, so most calls are answered before
//! `submit` returns.
//!
//! Absent: what callers use (`mount.rs`); the threads that keep time and connect (`threads.rs`).

use crate::answering;
use crate::error::MountError;
use crate::lane::Lane;
use crate::late::{LateError, LateErrors};
use crate::link::{Dispatch, Link};
use crate::mount::{CapsEvent, Hook, OnLate, OnSession};
use crate::session::SessionNews;
use crate::settings::Settings;
use crate::state::{Core, Phase, Turn};
use client::Input;
use proto::RankId;
use proto::caps::Recalled;
use proto::message::ServerMsg;
use runtime::port::{Connector, PortError, Sink};
use runtime::{Alarm, Clock};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;
use stdx::{Now, Wall};

pub(crate) struct Shared {
    pub(crate) clock: Clock,
    pub(crate) connector: Arc<dyn Connector>,
    pub(crate) settings: Settings,
    core: Mutex<Core>,
    pub(crate) timer: Alarm,
    pub(crate) linker: Condvar,
    pub(crate) losses: Condvar,
    phase: Condvar,
    pub(crate) lost_stamp: Arc<AtomicU64>,
    pub(crate) late: Arc<LateErrors>,
    pub(crate) hook: Mutex<Option<Hook>>,
    pub(crate) late_hook: Mutex<Option<Arc<OnLate>>>,
    pub(crate) session_hooks: Mutex<Vec<Arc<OnSession>>>,
}

impl Shared {
    pub(crate) fn new(
        (clock, timer): (Clock, Alarm),
        connector: Arc<dyn Connector>,
        settings: Settings,
        core: Core,
    ) -> Self {
        Self {
            clock,
            connector,
            settings,
            lost_stamp: Arc::clone(&core.lost_stamp),
            late: Arc::clone(&core.late),
            core: Mutex::new(core),
            timer,
            linker: Condvar::new(),
            losses: Condvar::new(),
            phase: Condvar::new(),
            hook: Mutex::new(None),
            late_hook: Mutex::new(None),
            session_hooks: Mutex::default(),
        }
    }

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
            self.settle(&mut core, &mut turn);
        }
        drop(core);
        self.run(turn);
    }

    /// Ends a turn under the mutex. The timer's thread is not woken to wait for less long: who needs it to sets the timer.
    fn settle(&self, core: &mut Core, turn: &mut Turn) {
        core.settle(turn);
        if let Some(at) = core.sets_timer() {
            self.timer.set(Some(at));
        }
    }

    /// Does what a turn left to do: wakes, answers, sends; then what the sends' answers leave to do.
    pub(crate) fn run(&self, mut turn: Turn) {
        loop {
            // Before whoever connects is woken: what comes of that is told after this.
            if !turn.events.is_empty() {
                self.tell_session(&turn.events);
            }
            if turn.wake_timer {
                self.timer.ring();
            }
            if turn.wake_loss_thread {
                self.losses.notify_one();
            }
            if turn.wake_link {
                // Each rank has a thread that waits for this.
                self.linker.notify_all();
            }
            if turn.phase_changed {
                self.phase.notify_all();
            }
            for port in turn.close.drain(..) {
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
            let mut dispatches = std::mem::take(&mut turn.dispatches);
            let dispatch = dispatches.pop();
            // Those to other ranks follow.
            turn = Turn { dispatches, ..Turn::default() };
            let mut core = match dispatch {
                Some(dispatch) => self.send(dispatch, &mut turn),
                None if asked => self.core(),
                None => return,
            };
            self.settle(&mut core, &mut turn);
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
        let connection = (dispatch.rank, dispatch.generation);
        let lane = core.lane(dispatch.rank).filter(|lane| lane.is_on(dispatch.generation));
        if let Some(link) = lane.and_then(|lane| lane.link.as_mut()) {
            link.sent(&dispatch);
        }
        core.receive(now, connection, answers, turn);
        if sent.is_err() {
            core.lost(now, connection, turn);
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

    fn tell_session(&self, events: &[SessionNews]) {
        let hooks = lock(&self.session_hooks).clone();
        for news in events {
            hooks.iter().for_each(|hook| hook(news));
        }
    }

    /// Makes a connection to a rank and says Hello: all ranks of this version are where the first one is.
    pub(crate) fn connect(self: &Arc<Self>, rank: RankId) -> Result<(), PortError> {
        let generation = {
            let mut core = self.core();
            core.generation += 1;
            core.generation
        };
        let sink = LinkSink { shared: Arc::downgrade(self), rank, generation };
        let port = self.connector.connect(Arc::new(sink))?;
        let mut turn = Turn::default();
        let now = self.step_time();
        let mut core = self.core();
        let stop = core.stop;
        let lane = core.lane(rank).filter(|lane| !stop && lane.wanted && lane.broken < generation);
        let Some(lane) = lane else {
            drop(core);
            port.close();
            return Err(PortError::Lost);
        };
        lane.link = Some(Link::new(port, rank, generation));
        core.step(now, Input::Connected { rank }, &mut turn);
        self.end_turn(core, turn);
        Ok(())
    }

    pub(crate) fn wait_ready(&self) -> Result<(), MountError> {
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
    pub(crate) fn wait_closed(self: &Arc<Self>) {
        let until = Instant::now() + self.settings.close_timeout;
        let mut core = self.core();
        while !(core.is_ended() && core.lanes.iter().all(Lane::is_idle)) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            core = self.phase.wait_timeout(core, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        core.stop = true;
        let mut turn = Turn { wake_timer: true, wake_loss_thread: true, wake_link: true, ..Turn::default() };
        let links = core.lanes.iter().filter_map(|lane| lane.link.as_ref().map(|link| (lane.rank, link)));
        let links = links.map(|(rank, link)| (rank, link.generation, Arc::clone(link.port())));
        let links: Vec<_> = links.collect();
        let now = self.step_time();
        // Answers whatever is still open; a session that ended in order ignores it.
        for (rank, generation, _) in &links {
            core.lost(now, (*rank, *generation), &mut turn);
        }
        core.step(now, Input::GiveUp, &mut turn);
        self.end_turn(core, turn);
        for (_, _, port) in links {
            port.close();
        }
    }
}

struct LinkSink {
    shared: Weak<Shared>,
    rank: RankId,
    generation: u64,
}

impl Sink for LinkSink {
    fn messages(&self, batch: Vec<ServerMsg>) {
        let Some(shared) = self.shared.upgrade() else { return };
        let mut turn = Turn::default();
        let now = shared.step_time();
        let mut core = shared.core();
        core.receive(now, (self.rank, self.generation), batch, &mut turn);
        shared.end_turn(core, turn);
    }

    fn disconnected(&self) {
        let Some(shared) = self.shared.upgrade() else { return };
        let mut turn = Turn::default();
        let now = shared.step_time();
        let mut core = shared.core();
        core.lost(now, (self.rank, self.generation), &mut turn);
        shared.end_turn(core, turn);
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panicking callback runs without locks, so what they guard is whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
