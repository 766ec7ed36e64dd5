//! The coordinator's steps: take an input in, and when nothing is under way, plan.
//!
//! Absent: decisions (`plan`); what becomes of the record that is read and written (`record`).

mod record;

use super::plan::{Marks, Plan, View, plan};
use super::seen::Seen;
use super::{Beacon, BeaconState, Command, CommandError, CoordinatorConfig, Input, Output, Reply};
use crate::output::Level;
use proto::cluster::{ClusterMap, DAEMONS_MAX, DaemonId, RankState};
use proto::storeio::StoreError;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use stdx::{Machine, Mono, Now, Outbox};

/// Commands that wait.
const COMMANDS_MAX: usize = 1_024;

/// The machine. Its parts have no secrets from each other; `step` is the only way in.
#[derive(Debug)]
pub struct Coordinator {
    config: CoordinatorConfig,
    standing: Standing,
    seen: Seen,
    registering: VecDeque<(u64, String)>,
    commands: VecDeque<(u64, Command)>,
    /// So many of them came before the map was read that was just read.
    confirmed: usize,
    /// What has no answer yet: it gets one when the map is known to be this coordinator's still.
    beacons: BTreeMap<DaemonId, Beacon>,
    asked: Option<Asked>,
    /// What is stored may be another map than the one last known.
    stale: bool,
    /// The registry failed, and is tried again then.
    retry: Option<Mono>,
    /// The registry's failure that was told of.
    trouble: Option<StoreError>,
    /// When it was stepped last.
    stepped: Mono,
}

#[derive(Debug)]
enum Standing {
    /// Not told to begin, or deposed.
    Out,
    /// It will be the coordinator of the next map. What it read last; version 0: nothing is stored.
    Begins { found: Option<Arc<ClusterMap>> },
    /// It is the coordinator of this map, and of what is stored as long as that has the same number.
    Leads { map: Arc<ClusterMap> },
}

/// What the driver was asked for and has not answered.
#[derive(Debug)]
enum Asked {
    Read { confirms: BTreeMap<DaemonId, Beacon>, commands: usize },
    Swap { planned: Box<Planned>, confirms: BTreeMap<DaemonId, Beacon> },
}

#[derive(Debug)]
struct Planned {
    base: Arc<ClusterMap>,
    next: Arc<ClusterMap>,
    registered: Vec<(u64, DaemonId)>,
    answers: Vec<(u64, Result<String, CommandError>)>,
    notes: Vec<(Level, String)>,
    marks: Marks,
}

impl Machine for Coordinator {
    type Input = Input;
    type Output = Output;

    fn step(&mut self, now: Now, input: Input, out: &mut Outbox<Output>) {
        let now = now.mono;
        self.look_at_itself(now, out);
        match input {
            Input::Boot => self.boot(),
            Input::Read(result) => self.take_record(result, now, out),
            Input::Swapped(result) => self.take_swapped(result, now, out),
            Input::Register { token, name } => self.take_registration(token, name, out),
            Input::Beacon { daemon, beacon } => self.take_beacon(daemon, beacon, now, out),
            Input::Loads { daemon, loads } => return self.seen.load(daemon, loads),
            Input::Gone { daemon } => {
                if let Standing::Leads { map } = &self.standing {
                    self.seen.bury(map, daemon, now);
                }
            }
            Input::Fenced { rank, incarnation } => self.seen.fence(rank, incarnation),
            Input::Command { id, command } => self.take_command(id, command, out),
            Input::Tick => {}
        }
        self.turn(now, out);
    }

    fn deadline(&self) -> Option<Mono> {
        let Standing::Leads { map } = &self.standing else { return self.retry };
        // To know that it runs: see `look_at_itself`.
        let look = (!map.daemons.is_empty()).then(|| self.stepped.after(self.look_ns()));
        let due = match (self.retry, &self.asked) {
            (Some(retry), _) => Some(retry),
            (None, None) => self.seen.deadline(self.stepped),
            // Nothing can be done before the answer.
            (None, Some(_)) => None,
        };
        look.into_iter().chain(due).min()
    }
}

impl Coordinator {
    /// One that was not told to `Boot` yet.
    #[must_use]
    pub fn new(config: CoordinatorConfig) -> Self {
        Self {
            seen: Seen::new(&config),
            config,
            standing: Standing::Out,
            registering: VecDeque::new(),
            commands: VecDeque::new(),
            confirmed: 0,
            beacons: BTreeMap::new(),
            asked: None,
            stale: false,
            retry: None,
            trouble: None,
            stepped: Mono(0),
        }
    }

    /// The last map known to be durable; `None` unless it is the coordinator of that map.
    #[must_use]
    pub const fn map(&self) -> Option<&Arc<ClusterMap>> {
        match &self.standing {
            Standing::Leads { map } => Some(map),
            Standing::Out | Standing::Begins { .. } => None,
        }
    }

    /// How often it is stepped at least, and how long it waits after the registry failed (there a second at most): a fifteenth of L.
    const fn look_ns(&self) -> u64 {
        let look = self.config.grace_ns / 15;
        if look == 0 { 1 } else { look }
    }

    /// A coordinator that did not run does not know who was silent: beacons wait behind the tick that it sees first.
    fn look_at_itself(&mut self, now: Mono, out: &mut Outbox<Output>) {
        let pause = now.since(self.stepped);
        self.stepped = now;
        let paused = pause > 2 * self.look_ns() && !stdx::mutant!("coord_own_pause_counts");
        if paused && self.map().is_some_and(|map| !map.daemons.is_empty()) {
            self.seen.forgive(now);
            let text = format!(
                "the coordinator did not run for {} ms: every daemon is given time anew",
                pause / stdx::time::MS
            );
            out.push(Output::Note { level: Level::Warn, text });
        }
    }

    fn boot(&mut self) {
        if matches!(self.standing, Standing::Out) {
            self.standing = Standing::Begins { found: None };
            if !stdx::mutant!("coord_remembers_before") {
                self.seen = Seen::new(&self.config);
            }
        }
    }

    fn take_registration(&mut self, token: u64, name: String, out: &mut Outbox<Output>) {
        let known = self.map().map_or(0, |map| map.daemons.len());
        let text = match &self.standing {
            Standing::Out => "this coordinator is not in charge",
            Standing::Begins { .. } | Standing::Leads { .. } => {
                if known + self.registering.len() >= DAEMONS_MAX {
                    "there are 256 daemons already"
                } else if name.is_empty() || name.len() > 255 {
                    "a daemon's name has 1 to 255 bytes"
                } else {
                    self.registering.push_back((token, name));
                    return;
                }
            }
        };
        out.push(Output::Refused { token, text: text.to_owned() });
    }

    fn take_command(&mut self, id: u64, command: Command, out: &mut Outbox<Output>) {
        let refusal = match &self.standing {
            Standing::Out => "this coordinator is not in charge: it has not begun, or another one has",
            Standing::Leads { map } if command == Command::Get => {
                let reply = Reply { text: String::new(), map: Arc::clone(map) };
                out.push(Output::Answer { id, result: Ok(reply) });
                return;
            }
            Standing::Begins { .. } | Standing::Leads { .. } if self.commands.len() < COMMANDS_MAX => {
                self.commands.push_back((id, command));
                return;
            }
            Standing::Begins { .. } | Standing::Leads { .. } => {
                "1,024 commands wait for the cluster map: try again later"
            }
        };
        out.push(Output::Answer { id, result: Err(CommandError::WrongState(refusal.to_owned())) });
    }

    fn take_beacon(&mut self, daemon: DaemonId, beacon: Beacon, now: Mono, out: &mut Outbox<Output>) {
        let Standing::Leads { map } = &self.standing else { return };
        if self.seen.is_gone(daemon) || self.is_condemned(daemon) {
            return;
        }
        if is_named(map, daemon, beacon.state) {
            let heard = if stdx::mutant!("coord_grace_from_sent") { beacon.sent } else { now };
            self.seen.hear(daemon, heard, beacon.state);
        }
        // Whoever has the folder's lock need not look whether there is another coordinator.
        if self.config.sole || stdx::mutant!("coord_acknowledges_unread") {
            respond(map, map, daemon, beacon, out);
        } else if self.beacons.len() < 2 * DAEMONS_MAX || self.beacons.contains_key(&daemon) {
            self.beacons.insert(daemon, beacon);
        }
    }

    /// Whether the map that is being written leaves the daemon out. An acknowledgement now would let it serve beside its successor.
    fn is_condemned(&self, daemon: DaemonId) -> bool {
        let Some(Asked::Swap { planned, .. }) = &self.asked else { return false };
        !planned.next.daemons.contains_key(&daemon) && !stdx::mutant!("coord_condemned_acknowledged")
    }

    /// Asks for the next thing, if nothing is under way.
    fn turn(&mut self, now: Mono, out: &mut Outbox<Output>) {
        let confirmed = std::mem::take(&mut self.confirmed);
        if self.asked.is_some() || self.retry.is_some_and(|retry| now < retry) {
            return;
        }
        self.retry = None;
        let (base, begun) = match &self.standing {
            Standing::Out => return,
            Standing::Begins { found: Some(base) } if !self.stale => (Arc::clone(base), false),
            Standing::Leads { map } if !self.stale => (Arc::clone(map), true),
            Standing::Begins { .. } | Standing::Leads { .. } => return self.read(out),
        };
        let (registering, commands) = (&self.registering, &self.commands);
        let view = View { config: &self.config, seen: &self.seen, registering, commands, begun, now };
        let planned = plan(&base, view);
        if planned.changed {
            self.swap(base, planned, out);
            return;
        }
        // What changes nothing is answered by the map, unless another coordinator has written a newer one since the command came.
        let mut answers = planned.answers;
        if !self.config.sole && !stdx::mutant!("coord_answers_unread") {
            answers.truncate(confirmed);
        }
        if answers.len() == self.commands.len() {
            notes(planned.notes, out);
        }
        self.answer(&base, answers, out);
        if !self.beacons.is_empty() || !self.commands.is_empty() {
            self.read(out);
        }
    }

    fn read(&mut self, out: &mut Outbox<Output>) {
        let (confirms, commands) = (std::mem::take(&mut self.beacons), self.commands.len());
        self.asked = Some(Asked::Read { confirms, commands });
        out.push(Output::Read);
    }

    fn swap(&mut self, base: Arc<ClusterMap>, planned: Plan, out: &mut Outbox<Output>) {
        let Plan { next, changed: _, registered, answers, notes, marks } = planned;
        let next = Arc::new(next);
        out.push(Output::Swap { expected: base.version, bytes: next.encode() });
        if stdx::mutant!("coord_publishes_early") {
            out.push(Output::Publish(Arc::clone(&next)));
        }
        if stdx::mutant!("coord_assigns_early") {
            assign(&base, &next, out);
        }
        if stdx::mutant!("coord_answers_early") {
            self.answer(&next, answers.clone(), out);
        }
        let planned = Box::new(Planned { base, next, registered, answers, notes, marks });
        self.asked = Some(Asked::Swap { planned, confirms: std::mem::take(&mut self.beacons) });
    }

    /// Answers the oldest commands with what a map says that has them.
    fn answer(
        &mut self,
        map: &Arc<ClusterMap>,
        answers: Vec<(u64, Result<String, CommandError>)>,
        out: &mut Outbox<Output>,
    ) {
        self.commands.drain(..answers.len().min(self.commands.len()));
        for (id, result) in answers {
            let result = result.map(|text| Reply { text, map: Arc::clone(map) });
            out.push(Output::Answer { id, result });
        }
    }
}

fn assign(base: &ClusterMap, next: &ClusterMap, out: &mut Outbox<Output>) {
    for (rank, info) in &next.ranks {
        let begins = base.ranks.get(rank).is_none_or(|before| before.incarnation != info.incarnation);
        if begins && info.daemon != DaemonId::NONE {
            let (daemon, rank, incarnation) = (info.daemon, *rank, info.incarnation);
            out.push(Output::Assign { daemon, rank, incarnation });
        }
    }
}

/// Whether a daemon is in the map with what it says that it does.
fn is_named(map: &ClusterMap, daemon: DaemonId, state: BeaconState) -> bool {
    map.daemons.contains_key(&daemon)
        && match (state, map.rank_of(daemon)) {
            (BeaconState::Standby, None) => true,
            // It may not have heard yet. But what is damaged has begun, and does not begin again.
            (BeaconState::Standby, Some((_, info))) => info.state != RankState::Damaged,
            (BeaconState::Rank { rank, incarnation, .. }, Some((of, info))) => {
                (rank, incarnation) == (of, info.incarnation)
            }
            (BeaconState::Rank { .. }, None) => false,
        }
}

/// Answers a beacon that came before `map` was known to be the one that is stored; `known` was before that.
fn respond(known: &ClusterMap, map: &ClusterMap, daemon: DaemonId, beacon: Beacon, out: &mut Outbox<Output>) {
    if !is_named(map, daemon, beacon.state) && !stdx::mutant!("coord_unknown_acknowledged") {
        if !stdx::mutant!("coord_dismiss_not_said") {
            out.push(Output::Dismiss { daemon });
        }
        return;
    }
    if let (BeaconState::Standby, Some((rank, info))) = (beacon.state, known.rank_of(daemon))
        && !stdx::mutant!("coord_assign_not_repeated")
    {
        // It sent this before it was told, or was not told at all.
        out.push(Output::Assign { daemon, rank, incarnation: info.incarnation });
    }
    out.push(Output::Ack { daemon, seq: beacon.seq, sent: beacon.sent });
}

fn notes(notes: Vec<(Level, String)>, out: &mut Outbox<Output>) {
    for (level, text) in notes {
        out.push(Output::Note { level, text });
    }
}
