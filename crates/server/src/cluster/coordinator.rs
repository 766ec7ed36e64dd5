//! The coordinator's thread: one input at a time, and what it says is handed on.
//!
//! Absent: decisions (crate `mds`), anything that blocks.

use super::Shared;
use super::registry::Job;
use super::slot::Order;
use crate::life::RankLife;
use mds::coordinator::{Command, CommandError, Coordinator, CoordinatorConfig, Input, Life, Output, Reply};
use mds::output::{Level, MapWish};
use proto::cluster::DaemonId;
use proto::{Incarnation, RankId};
use runtime::LogLevel;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender};
use std::time::Duration;
use stdx::{Machine, Outbox};

/// A longer rest is two of them.
const REST_MAX: Duration = Duration::from_secs(3600);

/// What the thread hears.
pub(super) enum Event {
    Input(Input),
    Ask {
        command: Command,
        answer: SyncSender<Result<Reply, CommandError>>,
    },
    /// A rank of this process asks.
    Wish {
        life: Life,
        wish: MapWish,
    },
    Stop,
}

/// Who waits for an answer.
enum Asker {
    Operator(SyncSender<Result<Reply, CommandError>>),
    /// The map tells it, unless it is refused.
    Rank(Life, MapWish),
}

struct Thread<'a> {
    shared: &'a Shared,
    machine: Coordinator,
    jobs: &'a Sender<Job>,
    slots: &'a [Sender<Order>],
    /// The number that each slot has now, or had last: one each, so that nothing is left of those before.
    daemons: Vec<Option<DaemonId>>,
    /// Which slot was told to begin which life.
    lives: BTreeMap<(RankId, Incarnation), usize>,
    questions: BTreeMap<u64, Asker>,
    next_question: u64,
    out: Outbox<Output>,
}

/// The thread.
pub(super) fn run(
    shared: &Shared,
    config: CoordinatorConfig,
    events: &Receiver<Event>,
    jobs: &Sender<Job>,
    slots: &[Sender<Order>],
) {
    let mut thread = Thread {
        shared,
        machine: Coordinator::new(config),
        jobs,
        slots,
        daemons: vec![None; slots.len()],
        lives: BTreeMap::new(),
        questions: BTreeMap::new(),
        next_question: 0,
        out: Outbox::new(),
    };
    thread.step(Input::Boot);
    loop {
        let due = thread.machine.deadline();
        let rest = due.map_or(REST_MAX, |at| shared.clock.until(at).min(REST_MAX));
        match events.recv_timeout(rest) {
            Ok(Event::Input(input)) => thread.step(input),
            Ok(Event::Ask { command, answer }) => {
                thread.ask(Asker::Operator(answer), command);
            }
            Ok(Event::Wish { life, wish }) => {
                let command = Command::Ask(life, wish.ask());
                thread.ask(Asker::Rank(life, wish), command);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => return,
        }
        if thread.machine.deadline().is_some_and(|at| at <= shared.clock.mono()) {
            thread.step(Input::Tick);
        }
    }
}

impl Thread<'_> {
    fn step(&mut self, input: Input) {
        let now = self.shared.clock.now();
        let mut out = std::mem::take(&mut self.out);
        self.machine.step(now, input, &mut out);
        for output in out.drain(..) {
            self.carry_out(output);
        }
        self.out = out;
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::Read => self.job(Job::Read),
            Output::Swap { expected, bytes } => self.job(Job::Swap { expected, bytes }),
            Output::Registered { token, daemon } => {
                let slot = token as usize;
                if let Some(number) = self.daemons.get_mut(slot) {
                    *number = Some(daemon);
                }
                self.order(slot, Order::Registered(daemon));
            }
            Output::Refused { token, text } => self.order(token as usize, Order::Refused(text)),
            Output::Fence { rank, incarnation } => {
                let until = (rank, incarnation);
                let carrier = self.lives.range((rank, Incarnation(0))..=until).next_back();
                match carrier.map(|(_, slot)| *slot) {
                    Some(slot) => self.order(slot, Order::Fence { rank, incarnation }),
                    // Of another process, which had the folder's lock and is gone.
                    None => self.shared.tell(Input::Fenced { rank, incarnation }),
                }
                // Those before were ended before it began.
                self.lives.retain(|life, _| life.0 != rank || *life > until);
            }
            // What it is for is said in `cluster.rs`.
            Output::Ack { .. } => {}
            Output::Assign { daemon, rank, incarnation } => {
                if let Some(slot) = self.slot_of(daemon) {
                    self.lives.insert((rank, incarnation), slot);
                    self.order(slot, Order::Begin { daemon, rank, incarnation });
                }
            }
            Output::Dismiss { daemon } => {
                if let Some(slot) = self.slot_of(daemon) {
                    self.order(slot, Order::Dismiss(daemon));
                }
            }
            Output::Publish(map) => {
                // First: a life that begins just now is not among them yet, and looks here after it is.
                self.shared.views.change(|view| view.map = Some(map.clone()));
                self.shared.stage.all().iter().for_each(|life| life.driver.news.map(map.clone()));
            }
            Output::Answer { id, result } => self.answer(id, result),
            Output::Deposed => {
                self.shared.log.error(
                    "cluster",
                    "another coordinator has begun: this one does nothing more",
                    &[],
                );
            }
            Output::Note { level, text } => {
                let level = match level {
                    Level::Info => LogLevel::Info,
                    Level::Warn => LogLevel::Warn,
                    Level::Error => LogLevel::Error,
                };
                self.shared.log.event(level, "cluster", &text, &[]);
            }
        }
    }

    fn ask(&mut self, asker: Asker, command: Command) {
        self.next_question += 1;
        self.questions.insert(self.next_question, asker);
        self.step(Input::Command { id: self.next_question, command });
    }

    fn answer(&mut self, id: u64, result: Result<Reply, CommandError>) {
        match (self.questions.remove(&id), result) {
            // Who asked may have given up.
            (Some(Asker::Operator(answer)), result) => drop(answer.try_send(result)),
            (Some(Asker::Rank(of, wish)), Err(why)) => {
                let is_meant = |life: &Arc<RankLife>| life.identity.incarnation == of.incarnation;
                if let Some(life) = self.shared.stage.of(of.rank).filter(is_meant) {
                    life.driver.news.refused(wish, why.to_string());
                }
            }
            (Some(Asker::Rank(..)), Ok(_)) | (None, _) => {}
        }
    }

    /// Which slot has that number; none: it has another one by now.
    fn slot_of(&self, daemon: DaemonId) -> Option<usize> {
        self.daemons.iter().position(|number| *number == Some(daemon))
    }

    fn job(&self, job: Job) {
        // At the end its thread may be gone first.
        let _over = self.jobs.send(job);
    }

    fn order(&self, slot: usize, order: Order) {
        if let Some(slot) = self.slots.get(slot) {
            let _over = slot.send(order);
        }
    }
}
