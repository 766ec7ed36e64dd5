//! The clients: production routers with a connection to each rank that they need.
//!
//! Absent: what their callers ask (`callers.rs`), kernels.

use super::Ranks;
use super::alarm::Alarm;
use super::event::Event;
use super::judge::Key;
use super::keeps::Keeps;
use super::limits::Limited;
use super::links::End;
use crate::model::judge::Verdict;
use crate::trace::fold;
use crate::workload::Knowledge;
use crate::world::early::Performance;
use client::{CallId, ClientConfig, Input, Output, Router};
use mds::input::ConnId;
use proto::caps::{Bits, Recalled, Returned};
use proto::ids::{RankId, SessionId};
use proto::message::ServerMsg;
use std::collections::{BTreeMap, BTreeSet};
use stdx::time::MS;
use stdx::{Machine, Mono};

/// Of what a call was asked as, so much is printed.
const KEYS_SHOWN: usize = 3;

/// The rank that is connected to first.
const FIRST: RankId = RankId(0);

/// A call without an answer.
pub(super) struct Busy {
    pub(super) kind: &'static str,
    pub(super) asked: super::judge::Asked,
    /// When it began.
    pub(super) since: u64,
    /// The requests that it became.
    pub(super) keys: BTreeSet<Key>,
}

/// What leads to one rank.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lane {
    wanted: bool,
    pub(super) conn: Option<ConnId>,
    pub(super) ready: bool,
}

/// One client and its callers.
pub(super) struct Slot {
    pub(super) birth: u64,
    pub(super) machine: Option<Router>,
    pub(super) lanes: BTreeMap<RankId, Lane>,
    pub(super) busy: BTreeMap<CallId, Busy>,
    pub(super) known: Knowledge,
    pub(super) limited: Option<Limited>,
    pub(super) keeps: Keeps,
    alarm: Alarm,
    pub(super) probes: u32,
    pub(super) closes: bool,
    pub(super) closed: bool,
    /// What it performed in the step at hand, and how much it heard of that will not be.
    pub(super) performed: Vec<Performance>,
    pub(super) broken: usize,
}

impl Slot {
    /// The call that a request is for.
    pub(super) fn call_of(&self, key: &Key) -> Option<u64> {
        self.busy.iter().find(|(_, busy)| busy.keys.contains(key)).map(|(call, _)| call.0)
    }

    /// The session, if there is one.
    pub(super) fn session(&self) -> Option<SessionId> {
        self.machine.as_ref().map(Router::session).filter(|session| *session != SessionId(0))
    }

    pub(super) fn is_ready(&self) -> bool {
        self.machine.is_some() && self.lanes.get(&FIRST).is_some_and(|lane| lane.ready)
    }
}

impl Ranks {
    pub(super) fn client_is_born(&mut self, client: usize) {
        let birth = self.clients.get(client).map_or(1, |slot| slot.birth + 1);
        let limited = self.limited_to(client, birth);
        let config = ClientConfig { limit: Limited::wish(limited), ..self.plan.client(client) };
        let slot = Slot {
            birth,
            machine: Some(Router::new(config)),
            lanes: BTreeMap::from([(FIRST, Lane { wanted: true, ..Lane::default() })]),
            busy: BTreeMap::new(),
            known: Knowledge {
                homely: self.plan.is_eager(client).then_some(client),
                bursts: self.plan.wants(client).has(Bits::ALONE),
                ..Limited::knowledge(limited)
            },
            limited,
            keeps: Keeps::default(),
            alarm: Alarm::default(),
            probes: 0,
            closes: false,
            closed: false,
            performed: Vec::new(),
            broken: 0,
        };
        match self.clients.get_mut(client) {
            Some(old) => *old = slot,
            None => self.clients.push(slot),
        }
    }

    pub(super) fn client_starts(&mut self, client: usize) -> Verdict {
        let birth = self.clients[client].birth;
        self.at(self.now, Event::Connect { client, birth, rank: FIRST });
        self.after(self.plan.pause_ns, Event::Call { client, birth });
        Ok(())
    }

    pub(super) fn connect(&mut self, client: usize, birth: u64, rank: RankId) -> Verdict {
        let slot = &self.clients[client];
        let wanted = slot.lanes.get(&rank).is_some_and(|lane| lane.wanted && lane.conn.is_none());
        if slot.birth != birth || slot.machine.is_none() || !wanted {
            return Ok(());
        }
        let Some(life) = self.serving(rank) else {
            self.after(100 * MS, Event::Connect { client, birth, rank });
            return Ok(());
        };
        let limited = slot.limited;
        let conn = self.connects(life, rank, End::Client { client, birth }, limited)?;
        if let Some(lane) = self.clients[client].lanes.get_mut(&rank) {
            lane.conn = Some(conn);
        }
        self.step_client(client, Input::Connected { rank })
    }

    fn lane_of(&self, client: usize, conn: ConnId) -> Option<RankId> {
        let lanes = &self.clients[client].lanes;
        lanes.iter().find(|(_, lane)| lane.conn == Some(conn)).map(|(rank, _)| *rank)
    }

    pub(super) fn broken(&mut self, client: usize, conn: ConnId) -> Verdict {
        let Some(rank) = self.lane_of(client, conn) else { return Ok(()) };
        if let Some(lane) = self.clients[client].lanes.get_mut(&rank) {
            (lane.conn, lane.ready) = (None, false);
        }
        if let Some(session) = self.clients[client].session() {
            self.judge.believes_nothing(Some(rank), session);
        }
        let birth = self.clients[client].birth;
        self.after(50 * MS, Event::Connect { client, birth, rank });
        self.step_client(client, Input::Disconnected { rank })
    }

    pub(super) fn message_to_client(&mut self, client: usize, conn: ConnId, message: ServerMsg) -> Verdict {
        let Some(rank) = self.lane_of(client, conn) else { return Ok(()) };
        self.heard_by_client(client, rank, &message)?;
        self.step_client(client, Input::Message { rank, message })
    }

    pub(super) fn step_client(&mut self, client: usize, input: Input) -> Verdict {
        let now = self.now();
        let slot = &mut self.clients[client];
        let Some(machine) = &mut slot.machine else { return Ok(()) };
        let mut out = Vec::new();
        let before = machine.session();
        machine.step(now, input, &mut out);
        let session = machine.session();
        let waiting: Vec<_> = machine.waiting().collect();
        for (rank, waiting) in waiting {
            if let Some(busy) = slot.busy.get_mut(&waiting.call) {
                busy.keys.insert((rank, session, waiting.tid));
            }
        }
        let lost = (before != SessionId(0) && before != session).then_some(before);
        if lost.is_some() {
            self.coverage.count("sessions lost");
            self.judge.unheard(before);
            self.locks_lost(client);
            self.lost_session(client, before)?;
            self.opens_lost(client);
        }
        self.note_performed(client, session, &out);
        self.judge_late(client, lost, &out)?;
        let mut losses = Vec::new();
        for output in out {
            if let Output::Lost { stamp } = output {
                self.clients[client].keeps.lose(stamp);
                losses.push(stamp);
            }
            self.client_says(client, output)?;
        }
        if let Some(unheard) = self.clients[client].performed.pop() {
            return Err(format!("client {client} says that it performed what nobody asked for: {unheard:?}"));
        }
        self.plan_client_tick(client);
        // The kernel drops in no time here.
        let Some(stamp) = losses.into_iter().max() else { return Ok(()) };
        self.step_client(client, Input::Dropped { stamp })
    }

    fn client_says(&mut self, client: usize, output: Output) -> Verdict {
        let birth = self.clients[client].birth;
        match output {
            Output::Send { rank, message } => {
                if let Some(session) = self.clients[client].session() {
                    self.said_by_client(rank, session, &message);
                }
                if let Some(conn) = self.clients[client].lanes.get(&rank).and_then(|lane| lane.conn) {
                    self.say_to_rank(conn, message);
                }
            }
            Output::Connect { rank } => {
                self.clients[client].lanes.entry(rank).or_default().wanted = true;
                self.at(self.now, Event::Connect { client, birth, rank });
            }
            Output::Disconnect { rank } => {
                let lane = self.clients[client].lanes.remove(&rank);
                if let Some(conn) = lane.and_then(|lane| lane.conn) {
                    self.cut(conn);
                }
            }
            Output::Answer { call, outcome, validity } => {
                return self.finish(client, call, outcome, &validity);
            }
            Output::Ready { rank } => self.clients[client].lanes.entry(rank).or_default().ready = true,
            Output::Recalled { stamp, list } => {
                self.coverage.count("recalls");
                self.after(50 * MS, Event::Returned { client, birth, stamp, list });
            }
            // Of what comes too late `judge_late` has looked at all.
            Output::Lost { .. } | Output::Late { .. } => {}
            Output::BytesLost { .. } => self.coverage.count("files of which bytes may be lost"),
            Output::Bounced { request, .. } => {
                return Err(format!("the router of client {client} lets a bounce through: {request:?}"));
            }
            Output::Refused { reason } => {
                self.trace.event(self.now, "refused", fold(reason.as_bytes()), || {
                    format!("client {client}: {reason}")
                });
                return Err(format!("client {client} is refused: {reason}"));
            }
            Output::Closed => {
                if let Some(session) = self.clients[client].session().filter(|it| self.judge.is_owed(*it)) {
                    let why = "before all it told is done";
                    return Err(format!("client {client} closes session {} {why}", session.0));
                }
                let slot = &mut self.clients[client];
                (slot.machine, slot.closed) = (None, true);
                let conns: Vec<ConnId> = slot.lanes.values().filter_map(|lane| lane.conn).collect();
                // What it said last is still on its way.
                for conn in conns {
                    self.hangs_up(conn);
                }
            }
        }
        Ok(())
    }

    pub(super) fn returned(&mut self, client: usize, birth: u64, stamp: u64, list: Vec<Recalled>) -> Verdict {
        if self.clients[client].birth != birth {
            return Ok(());
        }
        self.drops(client, stamp, &list);
        let list: Vec<Returned> = list.iter().map(|recalled| recalled.returned(recalled.bits)).collect();
        self.step_client(client, Input::Returned { stamp, list })
    }

    fn plan_client_tick(&mut self, client: usize) {
        let slot = &mut self.clients[client];
        let Some(Mono(at)) = slot.machine.as_ref().and_then(Machine::deadline) else { return };
        let Some(number) = slot.alarm.set(at) else { return };
        let birth = slot.birth;
        self.at(at, Event::ClientTick { client, birth, number });
    }

    pub(super) fn client_tick(&mut self, client: usize, birth: u64, number: u64) -> Verdict {
        let slot = &mut self.clients[client];
        if slot.birth != birth || !slot.alarm.rings(number) {
            return Ok(());
        }
        self.step_client(client, Input::Tick)
    }

    pub(super) fn waiting(&self) -> String {
        let mut text = format!("{:?}", self.phase);
        for (number, slot) in self.clients.iter().enumerate() {
            text.push_str(&format!("\n  client {number} ready {} lanes {:?}:", slot.is_ready(), slot.lanes));
            for (call, busy) in &slot.busy {
                let request = format!("{:?}", busy.asked.request);
                let keys: Vec<_> = busy.keys.iter().take(KEYS_SHOWN).collect();
                let more = busy.keys.len() - keys.len();
                text.push_str(&format!("\n    call {} {keys:?} and {more} more: {request:.160}", call.0));
            }
        }
        for life in self.lives.values() {
            text.push_str(&format!(
                "\n  rank {} life {} {:?}, stays for {:?}",
                life.rank.0,
                life.incarnation.0,
                life.machine.state(),
                life.machine.stays_for()
            ));
            for op in life.machine.operations(Mono(self.now), 8).0 {
                text.push_str(&format!("\n    {:?} of {:?}: {:?}", op.kind, op.session, op.waits));
            }
        }
        text.push_str(&format!("\n  transactions: {}", self.judge.unsettled()));
        let nameless = self.judge.tree().nodes.values().filter(|node| !node.is_dir() && node.nlink == 0);
        let nameless: Vec<_> = nameless.map(|node| node.ino.0).collect();
        let awake = self.seat.is_awake(self.now);
        let serve = self.all_serve();
        text.push_str(&format!(
            "\n  without a name {nameless:?} coordinator awake {awake} all serve {serve}"
        ));
        if let Some(map) = &self.seat.map {
            let moving = map.entries.iter().filter(|(_, entry)| entry.moving.is_some());
            text.push_str(&format!("\n  not in place: {:?}", self.not_in_place()));
            text.push_str(&format!("\n  map {} moving {:?}", map.version, moving.collect::<Vec<_>>()));
        }
        text
    }
}
