//! What the rank's mutex guards: the rank, the connections' outboxes, the order of data operations.
//!
//! Absent: anything that blocks.

use super::ages::Ages;
use super::deliver::{Conns, Delivery};
use super::gate::Gate;
use super::life::Life;
use super::{Counters, Driver, TURN_MAX_NS};
use crate::machine::RankMachine;
use mds::input::{ConnId, Input, Tag};
use mds::order::DataOrder;
use mds::output::{Level, Output};
use proto::message::ServerMsg;
use proto::storeio::{DataOp, LoadRequest};
use proto::{Ino, Position};
use runtime::LogLevel;
use std::collections::VecDeque;
use stdx::{Mono, Now};

/// From so many outputs of one step on, room for as many data operations is made at once.
const MANY: usize = 8;

/// One thread's work between two mutex sections.
pub(super) struct Turn<'a> {
    own: Option<ConnId>,
    answers: &'a mut Vec<ServerMsg>,
    /// Inputs this thread produced by acting.
    pub(super) inputs: VecDeque<Input>,
    pub(super) loads: Vec<(Tag, Vec<LoadRequest>)>,
    pub(super) data: Vec<(Tag, DataOp)>,
    pub(super) deliveries: Vec<Delivery>,
    /// Connections whose delivery is to be settled under the next mutex section.
    pub(super) delivered: Vec<ConnId>,
    pub(super) wake_journal: bool,
    /// Something waits for what this turn appends: it is committed when the turn is over, not in two parts.
    pub(super) commit_journal: bool,
    /// Store writers to wake, one bit each.
    pub(super) wake_stores: u32,
    pub(super) wake_timer: Option<Mono>,
    /// Something is to be said to other ranks.
    pub(super) says: bool,
    /// The rank has just begun to serve.
    serves: bool,
}

impl<'a> Turn<'a> {
    pub(super) fn new(own: Option<ConnId>, answers: &'a mut Vec<ServerMsg>) -> Self {
        Self {
            own,
            answers,
            inputs: VecDeque::new(),
            loads: Vec::new(),
            data: Vec::new(),
            deliveries: Vec::new(),
            delivered: Vec::new(),
            wake_journal: false,
            commit_journal: false,
            wake_stores: 0,
            wake_timer: None,
            says: false,
            serves: false,
        }
    }

    /// Forgets what is left: the life is over.
    pub(super) fn clear(&mut self) {
        self.inputs.clear();
        self.loads.clear();
        self.data.clear();
        self.deliveries.clear();
        self.delivered.clear();
        (self.wake_journal, self.commit_journal) = (false, false);
        (self.wake_stores, self.wake_timer) = (0, None);
        (self.says, self.serves) = (false, false);
    }
}

/// Counters of the turns. Behind the rank's mutex: on a line of their own, beside it, they would travel between the CPUs once more
/// with each turn.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TurnCounts {
    pub(crate) turns: u64,
    pub(crate) inputs: u64,
    /// Their time; that of the longest one.
    pub(crate) nanos: u64,
    pub(crate) nanos_max: u64,
    pub(crate) over_5ms: u64,
}

impl TurnCounts {
    pub(super) fn add(&mut self, inputs: u64, nanos: u64) {
        self.turns += 1;
        self.inputs += inputs;
        self.nanos += nanos;
        self.nanos_max = self.nanos_max.max(nanos);
        self.over_5ms += u64::from(nanos > TURN_MAX_NS);
    }
}

/// Everything behind the rank's mutex.
pub(super) struct Core {
    rank: Box<dyn RankMachine>,
    out: Vec<Output>,
    pub(super) conns: Conns,
    pub(super) ages: Ages,
    order: DataOrder,
    pub(super) gate: Gate,
    pub(super) turns: TurnCounts,
    /// Questions to stores that are not answered.
    pub(super) in_flight: usize,
    /// End of what was appended to the journal.
    pub(super) appended: Position,
    /// Start of what the last checkpoint left in the journal.
    pub(super) trimmed: Position,
    /// When the timer thread will wake; `None`: it sleeps until told.
    timer_at: Option<Mono>,
}

impl Core {
    pub(super) fn new(rank: Box<dyn RankMachine>) -> Self {
        Self {
            rank,
            out: Vec::new(),
            conns: Conns::default(),
            ages: Ages::default(),
            order: DataOrder::default(),
            gate: Gate::default(),
            turns: TurnCounts::default(),
            in_flight: 0,
            appended: Position(0),
            trimmed: Position(0),
            timer_at: None,
        }
    }

    pub(super) fn rank(&self) -> &dyn RankMachine {
        self.rank.as_ref()
    }

    /// Steps one input and sorts its outputs into queues and the turn.
    pub(super) fn step(&mut self, now: Now, input: Input, driver: &Driver, turn: &mut Turn<'_>) {
        let Some(input) = self.gate.pass(input) else { return };
        match &input {
            Input::Disconnected { conn } => self.gate.forget(*conn),
            Input::DataDone { tag, .. } => {
                self.in_flight -= 1;
                if let Some(next) = self.order.done(*tag) {
                    turn.data.push(next);
                }
            }
            Input::Loaded { .. } | Input::Stored { .. } => self.in_flight -= 1,
            Input::ReplayEnd { end, .. } => self.appended = *end,
            Input::Tick => self.timer_at = None,
            Input::RankGone { rank } => driver.links.heard_gone(*rank),
            Input::Boot
            | Input::Replay { .. }
            | Input::ReplayFailed(_)
            | Input::Connected { .. }
            | Input::Limit { .. }
            | Input::Message { .. }
            | Input::Durable(_)
            | Input::JournalFailed(_)
            | Input::Checkpoint
            | Input::Warmup { .. }
            | Input::DropCache
            | Input::Space { .. }
            | Input::Spread { .. }
            | Input::Merge { .. }
            | Input::Frozen(_)
            | Input::Evict { .. }
            | Input::Map(_)
            | Input::FromRank { .. }
            | Input::WishRefused { .. }
            | Input::Move { .. }
            | Input::Unmove { .. }
            | Input::Stop => {}
        }
        self.rank.step(now, input, &mut self.out);
        let mut out = std::mem::take(&mut self.out);
        if out.len() > MANY {
            // What became durable at once lets go of many removals.
            turn.data.reserve(out.len());
        }
        for output in out.drain(..) {
            self.sort(now, output, driver, turn);
        }
        self.out = out;
        if std::mem::take(&mut turn.serves) {
            if driver.warm {
                self.step(now, Input::Warmup { dir: Some(Ino::ROOT) }, driver, turn);
            }
            driver.life.set(Life::Active);
        }
    }

    fn sort(&mut self, now: Now, output: Output, driver: &Driver, turn: &mut Turn<'_>) {
        match output {
            // Only replies take the short way back: they need no order among themselves. A recall may overtake them; its
            // client reckons with that.
            Output::Send { conn, message } => {
                if let ServerMsg::Welcome { session, .. } = &message {
                    self.ages.welcomed(*session, now.mono);
                }
                let reply = matches!(message, ServerMsg::Reply { .. } | ServerMsg::Granted { .. });
                if turn.own == Some(conn) && reply {
                    turn.answers.push(message);
                } else {
                    self.conns.push(conn, message, turn);
                }
            }
            Output::Close { conn } => self.conns.close(conn, turn),
            Output::Append { position, bytes, urgent } => {
                self.appended = Position(position.0 + bytes.len() as u64);
                turn.wake_journal |= driver.journal.append(now.mono, position, &bytes);
                turn.commit_journal |= urgent;
            }
            Output::Commit => turn.commit_journal = true,
            Output::ReadJournal { from } => turn.wake_journal |= driver.journal.read(from),
            Output::Trim { before } => {
                self.trimmed = before;
                driver.background.trim(before);
            }
            Output::Load { tag, requests } => {
                self.in_flight += 1;
                turn.loads.push((tag, requests));
            }
            Output::Store { tag, batches } => {
                Counters::add(&driver.counters.store_batches, batches.len() as u64);
                self.in_flight += 1;
                turn.wake_stores |= driver.stores.push(tag, batches);
            }
            Output::Data { tag, op } => {
                self.in_flight += 1;
                if let Some(ready) = self.order.admit(tag, op) {
                    turn.data.push(ready);
                }
            }
            Output::SendRank { rank, message } => {
                driver.links.push(rank, message);
                turn.says = true;
            }
            Output::Wish(wish) => {
                if let Some(neighbours) = &driver.neighbours {
                    neighbours.wish(wish);
                }
            }
            Output::Active => turn.serves = true,
            Output::Damaged { reason } => {
                driver.log.error("rank", "damaged", &[("why", &reason)]);
                driver.life.set(Life::Damaged(reason));
            }
            Output::Stopped => driver.life.set(Life::Stopped),
            Output::Note { level, text } => {
                let level = match level {
                    Level::Info => LogLevel::Info,
                    Level::Warn => LogLevel::Warn,
                    Level::Error => LogLevel::Error,
                };
                driver.log.event(level, "rank", &text, &[]);
            }
        }
    }

    /// The rank's deadline if the timer thread would wake too late for it.
    pub(super) fn new_deadline(&mut self) -> Option<Mono> {
        let wanted = self.rank.deadline()?;
        if self.timer_at.is_some_and(|at| at <= wanted) {
            return None;
        }
        self.timer_at = Some(wanted);
        Some(wanted)
    }

    /// Ends deliveries whose outbox stayed empty, continues the others.
    pub(super) fn settle_deliveries(&mut self, turn: &mut Turn<'_>) {
        for conn in std::mem::take(&mut turn.delivered) {
            self.conns.delivered(conn, turn);
        }
    }
}
