//! Several ranks: which client gets an input, and what becomes of what it says.
//!
//! Absent: who owns what (`map.rs`); what is joined of several answers (`answers.rs`); sessions that begin and end (`sessions.rs`).

use super::answers::Answers;
use super::bounces::{Bounced, Parked};
use super::opens::Opening;
use super::places::Places;
use super::route::Place;
use super::{FIRST, Out};
use crate::config::ClientConfig;
use crate::input::{CallId, Input};
use crate::machine::Client;
use crate::output::Output;
use crate::validity::{Validities, Validity};
use proto::cluster::{ClusterMap, MapParts};
use proto::message::ServerMsg;
use proto::request::Request;
use proto::{Cred, Effect, Errno, RankId, Tid};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use stdx::{Machine, Mono, Now};

/// Where the whole is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    Serving,
    Closing,
    Over,
}

/// Several ranks.
#[derive(Clone, Debug)]
pub(super) struct Many {
    pub(super) config: ClientConfig,
    /// Those that were needed, by rank. The first rank's is always there.
    pub(super) clients: Vec<Client>,
    pub(super) life: Life,
    pub(super) map: Option<ClusterMap>,
    /// Grows with each map that names other owners than the one before.
    pub(super) owners: u64,
    /// The newest that was asked for.
    pub(super) map_wanted: u64,
    /// The newest of which a rank has said that it is wrong.
    pub(super) doubted: u64,
    /// The one that was dropped last, until there is one again.
    pub(super) dropped: Option<ClusterMap>,
    /// Maps that ranks are saying, in parts.
    map_parts: BTreeMap<RankId, MapParts>,
    pub(super) places: Places,
    /// Calls that ranks have sent away.
    pub(super) bounces: BTreeMap<CallId, Bounced>,
    /// Calls that open a file or make it, and may have to look for it elsewhere.
    pub(super) openings: BTreeMap<CallId, Opening>,
    /// Of ranks where it has ended: the next tid.
    pub(super) parted: BTreeMap<RankId, Tid>,
    /// Ranks with which the session ends as soon as it has nothing there.
    pub(super) going: BTreeSet<RankId>,
    /// When what is in such a rank's books was looked for last.
    pub(super) looked: BTreeMap<RankId, Mono>,
    /// Calls of `bounces` that are asked again later.
    pub(super) parked: Vec<Parked>,
    /// Calls that nobody else made: how many there were.
    pub(super) own_calls: u64,
    /// Of the step at hand.
    pub(super) now: Mono,
    pub(super) answers: Answers,
    /// Why the session is over.
    pub(super) refused: Option<String>,
    /// The newest of all ranks.
    stamp: u64,
    /// Stamps up to here are all the first rank's.
    alone_until: u64,
    /// Inputs of clients that are to be carried out in this step.
    pub(super) work: VecDeque<(RankId, Input)>,
    outputs: Vec<Output>,
}

impl Many {
    /// The client of the only rank goes on as one of several.
    pub(super) fn new(mut client: Client, map: Option<ClusterMap>) -> Self {
        let (config, stamp) = (client.config().clone(), client.stamp());
        let life = match (client.is_over(), client.is_closing()) {
            (true, _) => Life::Over,
            (false, true) => Life::Closing,
            (false, false) => Life::Serving,
        };
        client.in_lane();
        let mut many = Self {
            config,
            clients: vec![client],
            life,
            map: None,
            owners: 0,
            map_wanted: 0,
            doubted: 0,
            dropped: None,
            map_parts: BTreeMap::new(),
            places: Places::new(),
            bounces: BTreeMap::new(),
            openings: BTreeMap::new(),
            parted: BTreeMap::new(),
            going: BTreeSet::new(),
            looked: BTreeMap::new(),
            parked: Vec::new(),
            own_calls: 0,
            now: Mono(0),
            answers: Answers::default(),
            refused: None,
            stamp,
            alone_until: stamp,
            work: VecDeque::new(),
            outputs: Vec::new(),
        };
        many.has_map(map);
        many
    }

    pub(super) fn step(&mut self, now: Now, input: Input, out: &mut Out) {
        self.now = now.mono;
        match input {
            Input::Call { call, cred, request } => self.on_call(call, cred, request, out),
            Input::Message { rank, message: ServerMsg::Map { version, part, parts, bytes } } => {
                let gathered = self.map_parts.entry(rank).or_default();
                if let Some(bytes) = gathered.take(version, (part, parts), bytes) {
                    self.map_parts.remove(&rank);
                    self.on_map(rank, &bytes, out);
                }
            }
            Input::Message { rank, message: ServerMsg::Join { rank: to, version } } => {
                self.joins(rank, (to, version), out);
            }
            Input::Disconnected { rank } => {
                // What it was asked for may be lost with it.
                self.map_wanted = 0;
                self.map_parts.remove(&rank);
                self.give(rank, input);
            }
            Input::Message { rank, .. } | Input::Connected { rank } => self.give(rank, input),
            Input::Returned { stamp, list } => {
                self.give(self.rank_of(stamp), Input::Returned { stamp, list })
            }
            // Of what is void the edge knows one stamp for all.
            Input::Dropped { stamp } => self.give_all(|| Input::Dropped { stamp }),
            Input::Forgotten { ino } => {
                self.places.forget(ino);
                self.give_all(|| Input::Forgotten { ino });
            }
            // Whose it is knows the client that has it.
            Input::Interrupt { call } => {
                self.give_up_parked(call, true, out);
                self.give_all(|| Input::Interrupt { call });
            }
            Input::Abandon { call } => {
                self.abandon_held(call, out);
                self.give_up_parked(call, false, out);
                self.give_all(|| Input::Abandon { call });
            }
            Input::Tick => {
                self.ask_parked(false, out);
                self.look_for_holdings();
                self.give_all(|| Input::Tick);
            }
            Input::Close => {
                self.life = if self.life == Life::Serving { Life::Closing } else { self.life };
                self.fail_parked(out);
                self.give_all(|| Input::Close);
            }
            Input::GiveUp => {
                self.fail_held(out);
                self.give_all(|| Input::GiveUp);
            }
        }
        self.work_off(now, out);
        self.part(now, out);
        self.answer_held(out);
        self.finish(out);
    }

    pub(super) fn give(&mut self, rank: RankId, input: Input) {
        self.work.push_back((rank, input));
    }

    fn give_all(&mut self, input: impl Fn() -> Input) {
        self.work.extend(self.clients.iter().map(|client| (client.rank(), input())));
    }

    pub(super) const fn stamp(&self) -> u64 {
        self.stamp
    }

    pub(super) fn raise_stamp(&mut self, stamp: u64) {
        self.stamp = self.stamp.max(stamp);
    }

    pub(super) fn place_of(&self, rank: RankId) -> Result<usize, usize> {
        self.clients.binary_search_by_key(&rank, Client::rank)
    }

    /// In whose lane the stamp is.
    fn rank_of(&self, stamp: u64) -> RankId {
        if stamp <= self.alone_until { FIRST } else { RankId(Validities::lane_of(stamp).into()) }
    }

    pub(super) fn work_off(&mut self, now: Now, out: &mut Out) {
        while let Some((rank, input)) = self.work.pop_front() {
            let Ok(at) = self.place_of(rank) else {
                // The rank went meanwhile.
                if let Input::Call { call, cred, request } = input {
                    self.on_call(call, cred, request, out);
                }
                continue;
            };
            if let Input::Message { message, .. } = &input {
                self.home_answers(at, message, out);
                self.is_joined_again(at, message, out);
            }
            // Whoever is asked instead may have been added in front of it.
            let Ok(at) = self.place_of(rank) else { continue };
            let before = self.clients[at].session();
            let is_welcome = matches!(&input, Input::Message { message: ServerMsg::Welcome { .. }, .. });
            self.with(at, out, |client, outputs| client.step(now, input, outputs));
            self.session_after(rank, before, out);
            if is_welcome {
                self.is_asked_anew(rank);
            }
        }
    }

    /// Does something with a client, and takes in what it says.
    pub(super) fn with(&mut self, at: usize, out: &mut Out, act: impl FnOnce(&mut Client, &mut Vec<Output>)) {
        let mut outputs = std::mem::take(&mut self.outputs);
        let client = &mut self.clients[at];
        let rank = client.rank();
        client.raise_stamp(self.stamp);
        act(client, &mut outputs);
        self.stamp = client.stamp();
        for output in outputs.drain(..) {
            match output {
                Output::Answer { call, outcome, validity } => {
                    self.on_answer(rank, call, outcome, validity, out)
                }
                Output::Bounced { call, cred, request, owner, version } => {
                    self.on_bounced(rank, (call, cred, request), (owner, version), out);
                }
                // Said once, for all.
                Output::Refused { reason } => {
                    self.answers.lost(rank);
                    self.refused.get_or_insert(reason);
                }
                Output::Closed => {}
                plain @ (Output::Send { .. }
                | Output::Connect { .. }
                | Output::Disconnect { .. }
                | Output::Ready { .. }
                | Output::Recalled { .. }
                | Output::Lost { .. }
                | Output::Late { .. }
                | Output::BytesLost { .. }) => out.push(plain),
            }
        }
        self.outputs = outputs;
    }

    fn on_call(&mut self, call: CallId, cred: Cred, request: Request, out: &mut Out) {
        if self.is_crowded() && request.effect() != Effect::Memory {
            out.push(Output::Answer { call, outcome: Err(Errno::EAGAIN), validity: Validity::default() });
            return;
        }
        // Locks that were lost with a session are noted in the books of the rank that the file was last seen at.
        let lost = self.clients.iter().any(|client| client.has_lost(&request));
        if lost && !stdx::mutant!("client_lost_where_it_was") {
            out.push(Output::Answer { call, outcome: Err(Errno::EIO), validity: Validity::default() });
            return;
        }
        match (self.place(&request), &request) {
            (Place::All, _) => {
                // Whoever has never been greeted has told nobody anything.
                let told = |client: &&Client| client.rank() == FIRST || client.was_welcomed();
                let ranks: Vec<RankId> = self.clients.iter().filter(told).map(Client::rank).collect();
                self.ask_several(call, &cred, ranks.into_iter().map(|rank| (rank, request.clone())));
            }
            (place, Request::Fsync { node, .. }) => {
                let home = self.owner(place);
                self.follows_others(call, node.ino, home);
                // Each syncs what it has of it.
                let content = self.content_elsewhere(*node).into_iter();
                let content: Vec<RankId> = content.map(|rank| self.needed(Some(rank), out)).collect();
                let home = self.needed(home, out);
                let content = content.into_iter().filter(|rank| *rank != home);
                let ranks = std::iter::once(home).chain(content);
                self.ask_several(call, &cred, ranks.map(|rank| (rank, request.clone())));
            }
            (place, _) => {
                let owner = self.owner(place);
                let rank = self.needed(owner, out);
                self.note_opening(rank, call, &cred, &request);
                self.give(rank, Input::Call { call, cred, request });
            }
        }
    }

    /// One question to several ranks; each of them answers.
    fn ask_several(&mut self, call: CallId, cred: &Cred, parts: impl Iterator<Item = (RankId, Request)>) {
        let before = self.work.len();
        for (rank, request) in parts {
            self.give(rank, Input::Call { call, cred: cred.clone(), request });
        }
        self.answers.joins(call, self.work.len() - before);
    }

    /// The rank that is to be asked, with which there is a session then, or will be. Of which nobody knows anything the first is
    /// asked.
    pub(super) fn needed(&mut self, rank: Option<RankId>, out: &mut Out) -> RankId {
        let Some(rank) = rank.filter(|rank| self.is_rank(*rank)) else { return FIRST };
        let Err(at) = self.place_of(rank) else { return rank };
        if self.life != Life::Serving {
            return FIRST;
        }
        self.begin(at, rank, out);
        rank
    }

    /// Calls that no client has.
    pub(super) fn waiting(&self) -> usize {
        self.answers.held() + self.parked.len()
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        let clients = self.clients.iter().filter_map(Machine::deadline);
        clients.chain(self.parked.iter().map(|parked| parked.at)).min()
    }
}
