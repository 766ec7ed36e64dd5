//! Other ranks: sessions with them, and what is asked of them for operations that wait. docs/PROTOCOL.md, "Ranks among themselves".
//!
//! Absent: what replicas are (`replicas.rs`); what a rank that asks is told (`ops/ranks.rs`); connections, which are the driver's.

use crate::caps::needs;
use crate::input::{ConnId, Peer};
use crate::op::{Learned, OpId, Park, Waits};
use crate::output::{Level, Output};
use crate::rank::Rank;
use crate::session::Session;
use crate::territory::Side;
use proto::caps::Bits;
use proto::cluster::{ClusterMap, Delta, MapParts, MoveId, RankInfo, RankState, Unit};
use proto::header::FragHeader;
use proto::message::{ClientMsg, PROTOCOL, ServerMsg};
use proto::reply::{Outcome, Reply};
use proto::request::Request;
use proto::transact::TxnId;
use proto::{Cred, Errno, Frag, Incarnation, Ino, NodeRef, RankId, SessionId, Tid};
use std::collections::{BTreeMap, BTreeSet};
use stdx::time::MS;
use stdx::{Mono, Now, Outbox, Wall};

/// What cannot be answered now is asked again after that, and then after twice that, up to the most. Not longer: what waits below a sealed
/// unit may wait for such an answer.
const AGAIN_NS: u64 = MS;
const AGAIN_MAX_NS: u64 = 8 * MS;

/// What is asked of another rank; who wants the same waits for the same answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ask {
    Replica(Ino),
    Facts(Ino),
    Totals(Ino),
    Linked(Ino),
    Hand(Unit, RankId),
    SetTimes(Ino, Wall, u64),
    Opened(Ino, SessionId),
    /// For a move: whether sessions have joined, and the list of that number of what they have.
    Sessions(MoveId),
    Holders(MoveId, u32),
    /// What that rank has of the transaction that the operation waits for.
    Share(OpId, RankId),
    /// That a rank carries out what was decided.
    Settle(TxnId, RankId),
    /// Of its leader: whether a transaction was given up.
    Outcome(TxnId),
}

impl Ask {
    /// What the other rank would recall if it were no more as it told.
    const fn recallable(self) -> Option<Ino> {
        match self {
            Self::Replica(ino) | Self::Totals(ino) | Self::SetTimes(ino, ..) => Some(ino),
            Self::Facts(_)
            | Self::Linked(_)
            | Self::Hand(..)
            | Self::Opened(..)
            | Self::Sessions(_)
            | Self::Holders(..)
            | Self::Share(..)
            | Self::Settle(..)
            | Self::Outcome(_) => None,
        }
    }
}

/// A question under way.
#[derive(Debug)]
struct Asking {
    rank: RankId,
    request: Request,
    /// None: it is yet to be sent.
    tid: Option<Tid>,
    /// Who has said that it is not there, by the map of then.
    by: BTreeSet<RankId>,
    /// Not sent before.
    not_before: Mono,
    /// How long it waits, or waited last, because the rank could not say yet; 0: it could.
    pause_ns: u64,
    /// The map by which it was asked first.
    since: u64,
    /// It is done, by a map that is not here yet, or not there.
    done: bool,
    /// Each once, however often it asks: whoever waits for several answers does so with each of them.
    waiters: BTreeSet<OpId>,
    /// Who came when it had been sent: the answer may be older than what these have heard of elsewhere.
    late: BTreeSet<OpId>,
}

impl Asking {
    /// It is to be sent again.
    fn anew(&mut self) {
        self.tid = None;
        self.waiters.append(&mut self.late);
    }
}

/// The session with another rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    /// The greeting has no answer yet.
    Greeting,
    Up,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    links: BTreeMap<RankId, Link>,
    asks: BTreeMap<Ask, Asking>,
    last_tid: u64,
    /// Inodes that other ranks told: replicas, and of whom.
    pub replicas: BTreeMap<Ino, RankId>,
    /// Ranks that may keep replicas from a former life of this one.
    pub unheard: BTreeMap<RankId, Incarnation>,
    /// Operations that wait for their greetings.
    pub unheard_waiters: Vec<OpId>,
    /// Maps that ranks are saying, in parts.
    maps: BTreeMap<RankId, MapParts>,
    /// Ranks that are to hear that nobody presents here.
    pub to_hear_presented: BTreeSet<RankId>,
    /// The newest that another rank was asked for.
    map_wanted: u64,
}

impl Peers {
    /// When something is to be asked again.
    pub(crate) fn due(&self) -> Option<Mono> {
        let up = |rank| self.links.get(rank) == Some(&Link::Up);
        self.asks
            .values()
            .filter(|asking| asking.tid.is_none() && up(&asking.rank))
            .map(|asking| asking.not_before)
            .min()
    }

    /// The number of the last question.
    #[cfg(test)]
    pub(crate) const fn last_asked(&self) -> u64 {
        self.last_tid
    }

    /// Nobody wants to know that any more.
    pub(crate) fn end_ask(&mut self, ask: Ask) {
        self.asks.remove(&ask);
    }

    /// What is not wanted any more is not asked.
    pub(crate) fn keep_asks(&mut self, wanted: impl Fn(&Ask) -> bool) {
        self.asks.retain(|ask, _| wanted(ask));
    }

    /// For a message to that rank, if it hears now.
    pub(crate) fn next_tid(&mut self, rank: RankId) -> Option<Tid> {
        if self.links.get(&rank) != Some(&Link::Up) {
            return None;
        }
        self.last_tid += 1;
        Some(Tid(self.last_tid))
    }

    /// Whether nothing is asked.
    pub(crate) fn is_idle(&self) -> bool {
        self.asks.is_empty() && self.unheard_waiters.is_empty()
    }
}

/// The part of a directory that a rank is asked for.
fn unit_of(request: &Request) -> Option<Unit> {
    match request {
        Request::Totals { unit } | Request::Hand { unit, .. } => {
            Some(*unit).filter(|unit| unit.frag != Frag::WHOLE)
        }
        proto::every_request!() => None,
    }
}

/// Whether a rank in that state serves others.
pub(crate) const fn serves(state: RankState) -> bool {
    matches!(state, RankState::Reconnect | RankState::Active | RankState::Stopping)
}

impl Rank {
    /// An operation waits for what another rank tells.
    pub(crate) fn ask(&mut self, ask: Ask, rank: RankId, request: Request, op: Option<OpId>) {
        let (not_before, since) = (self.view.now.mono, self.view.territory.version());
        let asking = self.peers.asks.entry(ask).or_insert(Asking {
            rank,
            request,
            tid: None,
            by: BTreeSet::new(),
            not_before,
            pause_ns: 0,
            since,
            done: false,
            waiters: BTreeSet::new(),
            late: BTreeSet::new(),
        });
        let late = asking.tid.is_some() && !stdx::mutant!("mds_late_goes_by_old_answer");
        let Some(op) = op.filter(|op| !asking.waiters.contains(op)) else { return };
        if late {
            asking.late.insert(op)
        } else {
            asking.waiters.insert(op)
        };
    }

    /// Another rank is asked for something that no operation waits for by itself, after a while.
    pub(crate) fn ask_unawaited(&mut self, ask: Ask, rank: RankId, request: Request, after_ns: u64) {
        let not_before = self.view.now.mono.after(after_ns);
        let (by, waiters, late) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let (pause_ns, since, done) = (0, self.view.territory.version(), false);
        let asking =
            Asking { rank, request, tid: None, by, not_before, pause_ns, since, done, waiters, late };
        self.peers.asks.insert(ask, asking);
    }

    /// What waits because another rank could not say yet is asked at once: there is another map.
    pub(crate) fn ask_by_map(&mut self) {
        let done = self.peers.asks.iter().filter(|(_, asking)| asking.done).map(|(ask, _)| *ask);
        for ask in done.collect::<Vec<_>>() {
            if let Some(asking) = self.peers.asks.remove(&ask) {
                self.has_heard(ask, asking, Ok(None));
            }
        }
        let now = self.view.now.mono;
        let waits = |asking: &&mut Asking| asking.tid.is_none() && asking.pause_ns > 0;
        for asking in self.peers.asks.values_mut().filter(waits) {
            (asking.not_before, asking.pause_ns) = (now, 0);
        }
    }

    /// Greetings and questions leave.
    pub(crate) fn ask_turn(&mut self, now: Now, out: &mut Outbox<Output>) {
        self.say_presented(out);
        if self.peers.asks.is_empty() {
            return;
        }
        self.ask_others(now, out);
        let mut unknown = BTreeSet::new();
        for asking in self.peers.asks.values_mut().filter(|asking| asking.tid.is_none()) {
            match self.peers.links.get(&asking.rank) {
                Some(Link::Up) if asking.not_before <= now.mono => {
                    self.peers.last_tid += 1;
                    let tid = Tid(self.peers.last_tid);
                    asking.tid = Some(tid);
                    let request = asking.request.clone();
                    let message = ClientMsg::Request { tid, floor: Tid(0), cred: Cred::ROOT, request };
                    out.push(Output::SendRank { rank: asking.rank, message });
                }
                Some(Link::Up | Link::Greeting) => {}
                None => drop(unknown.insert(asking.rank)),
            }
        }
        for rank in unknown {
            self.greet(rank, out);
        }
    }

    /// What is to be asked of a rank that the map does not have is asked of others, as if it had said that it is not its own: by this map it
    /// is not. It went when it had carried out all that it had reserved.
    fn ask_others(&mut self, now: Now, out: &mut Outbox<Output>) {
        if stdx::mutant!("mds_asks_who_is_gone") {
            return;
        }
        let Some(map) = self.view.territory.map() else { return };
        let is_absent =
            |(_, asking): &(&Ask, &Asking)| asking.tid.is_none() && !map.ranks.contains_key(&asking.rank);
        let absent = self.peers.asks.iter().filter(is_absent).map(|(ask, asking)| (*ask, asking.rank));
        for (ask, rank) in absent.collect::<Vec<_>>() {
            match ask {
                Ask::Settle(..) => {
                    self.peers.end_ask(ask);
                    self.share_told(now, ask, Ok(Reply::Ok), out);
                }
                Ask::Replica(_)
                | Ask::Facts(_)
                | Ask::Totals(_)
                | Ask::Linked(_)
                | Ask::Hand(..)
                | Ask::SetTimes(..)
                | Ask::Opened(..)
                | Ask::Share(..) => self.is_elsewhere(now, ask, (rank, None), out),
                // By the same map the move is over, and what a leader decided that is not there any more everybody has acknowledged.
                Ask::Sessions(_) | Ask::Holders(..) | Ask::Outcome(_) => {}
            }
        }
    }

    fn greet(&mut self, rank: RankId, out: &mut Outbox<Output>) {
        if self.lent.is_unsettled(rank) {
            return;
        }
        self.peers.links.insert(rank, Link::Greeting);
        let config = &self.view.config;
        let message = ClientMsg::RankHello {
            protocol: PROTOCOL,
            from: config.rank,
            incarnation: config.incarnation,
            to: rank,
            map_version: self.view.territory.version(),
            settled: self.sessions.former.is_empty() || stdx::mutant!("mds_lent_ends_with_life"),
        };
        out.push(Output::SendRank { rank, message });
    }

    /// Greets every rank of the map that was not greeted: a rank that lives again waits for that.
    pub(crate) fn greet_all(&mut self, out: &mut Outbox<Output>) {
        if !self.state.serves() {
            return;
        }
        let Some(map) = self.view.territory.map().cloned() else { return };
        let me = self.view.config.rank;
        for (rank, info) in map.ranks.iter().filter(|(rank, _)| **rank != me) {
            if serves(info.state) && !self.peers.links.contains_key(rank) {
                self.greet(*rank, out);
            }
        }
    }

    /// The connection to a rank is gone: what it told counts no more, and what it was asked is asked anew.
    pub(crate) fn rank_gone(&mut self, rank: RankId, out: &mut Outbox<Output>) {
        self.peers.links.remove(&rank);
        self.peers.maps.remove(&rank);
        self.peers.to_hear_presented.remove(&rank);
        // It may not have heard what it was asked for.
        self.peers.map_wanted = 0;
        let told: Vec<Ino> =
            self.peers.replicas.iter().filter(|(_, of)| **of == rank).map(|(ino, _)| *ino).collect();
        if !stdx::mutant!("mds_replica_outlives_link") {
            told.into_iter().for_each(|ino| self.drop_replica(ino));
        }
        if !stdx::mutant!("mds_totals_outlive_link") {
            self.view.totals.lost(rank);
        }
        self.lent_lost(rank);
        self.peers.asks.values_mut().filter(|asking| asking.rank == rank).for_each(Asking::anew);
        self.greet_all(out);
    }

    /// Another rank says something.
    pub(crate) fn rank_says(&mut self, now: Now, rank: RankId, message: ServerMsg, out: &mut Outbox<Output>) {
        match message {
            ServerMsg::Welcome { .. } => {
                self.peers.links.insert(rank, Link::Up);
                self.peers.to_hear_presented.insert(rank);
            }
            ServerMsg::Reply { tid, outcome } => self.told(now, (rank, tid), (outcome, false), out),
            ServerMsg::Granted { tid, outcome, grants } => {
                self.told(now, (rank, tid), (outcome, grants.of(0).has(Bits::FS)), out);
            }
            ServerMsg::NotMine { tid, owner, version } => {
                self.told_elsewhere(now, (rank, tid), (owner, version), out)
            }
            ServerMsg::Recall { list } => {
                let mut returned = Vec::new();
                for recalled in &list {
                    self.recalled_by(rank, recalled.ino);
                    if self.recalls_lent(rank, recalled) {
                        returned.push(recalled.returned(recalled.bits));
                    }
                }
                if !returned.is_empty() {
                    out.push(Output::SendRank { rank, message: ClientMsg::Returned { list: returned } });
                }
            }
            ServerMsg::Map { version, part, parts, bytes } => {
                let gathered = self.peers.maps.entry(rank).or_default();
                if let Some(bytes) = gathered.take(version, (part, parts), bytes) {
                    self.peers.maps.remove(&rank);
                    self.told_map(now, rank, &bytes, out);
                }
            }
            // The connection ends, and is made anew.
            ServerMsg::Refused { .. } => {}
            ServerMsg::Early { .. }
            | ServerMsg::Done { .. }
            | ServerMsg::Admin { .. }
            | ServerMsg::Renewed { .. }
            | ServerMsg::Durable { .. }
            | ServerMsg::Numbers { .. }
            | ServerMsg::Join { .. }
            | ServerMsg::Damaged => {}
        }
    }

    /// Another rank has a newer map than this one had when it greeted.
    fn told_map(&mut self, now: Now, rank: RankId, bytes: &[u8], out: &mut Outbox<Output>) {
        let have = self.view.territory.map();
        let map = match (ClusterMap::decode(bytes), Delta::decode(bytes)) {
            (Ok(map), _) => map,
            (Err(_), Ok(delta)) => {
                let Some(mut map) = have.filter(|map| map.version == delta.from).map(|map| (**map).clone())
                else {
                    return self.want_map_of(rank, delta.to, out);
                };
                match map.apply(&delta) {
                    Ok(()) => map,
                    Err(error) => return Self::odd_map(rank, &error, out),
                }
            }
            (Err(error), Err(_)) => return Self::odd_map(rank, &error, out),
        };
        self.new_map(now, map.into(), out);
    }

    /// What was told does not begin at this rank's map. What is between it was told by somebody else, or was never told: it is not said
    /// again by itself, and as long as both go by different maps neither believes the other.
    fn want_map_of(&mut self, rank: RankId, version: u64, out: &mut Outbox<Output>) {
        let have = self.view.territory.version();
        if version <= have.max(self.peers.map_wanted) || stdx::mutant!("mds_gap_of_maps") {
            return;
        }
        self.peers.map_wanted = version;
        out.push(Output::SendRank { rank, message: ClientMsg::WantMap { have } });
    }

    fn odd_map(rank: RankId, error: &dyn std::fmt::Display, out: &mut Outbox<Output>) {
        let text = format!("a cluster map from rank {}: {error}", rank.0);
        out.push(Output::Note { level: Level::Error, text });
    }

    fn asked_as(&self, from: (RankId, Tid)) -> Option<Ask> {
        let is = |asking: &Asking| (asking.rank, asking.tid) == (from.0, Some(from.1));
        self.peers.asks.iter().find(|(_, asking)| is(asking)).map(|(ask, _)| *ask)
    }

    /// Another rank takes back what it told.
    fn recalled_by(&mut self, rank: RankId, ino: Ino) {
        if !stdx::mutant!("mds_totals_not_given_back") {
            self.view.totals.recalled(ino);
        }
        self.part_changes(ino);
        self.drop_replica(ino);
        // It may have overtaken an answer, which waited for the journal.
        let crossed =
            |(ask, asking): &(&Ask, &mut Asking)| asking.rank == rank && ask.recallable() == Some(ino);
        if !stdx::mutant!("mds_recall_overtakes_told") {
            self.peers.asks.iter_mut().filter(crossed).for_each(|(_, asking)| asking.anew());
        }
    }

    /// An answer; `counts`: until it is recalled.
    fn told(
        &mut self,
        now: Now,
        from: (RankId, Tid),
        (outcome, counts): (Outcome, bool),
        out: &mut Outbox<Output>,
    ) {
        let Some(ask) = self.asked_as(from) else { return };
        let outcome = match outcome {
            // Not now: somebody changes it, or the rank does not serve yet.
            Err(Errno::EAGAIN | Errno::ESHUTDOWN) => return self.ask_later(now, ask),
            other => other,
        };
        if matches!((ask, &outcome), (Ask::Hand(..), Ok(Reply::Ok))) && self.is_by_another_map(ask) {
            return self.ask_later(now, ask);
        }
        let Some(asking) = self.peers.asks.remove(&ask) else { return };
        if matches!(ask, Ask::Share(..) | Ask::Settle(..) | Ask::Outcome(_)) {
            return self.share_told(now, ask, outcome, out);
        }
        let learned = match (ask, outcome) {
            (Ask::Replica(ino), Ok(Reply::Record { place, name, value })) => {
                self.take_replica(from.0, ino, (place, &name, &value), &asking.waiters).map(|()| None)
            }
            (Ask::Facts(ino), outcome) => {
                self.take_facts(ino, outcome, &asking.waiters);
                Ok(None)
            }
            (Ask::Totals(dir), Ok(Reply::Totals(bytes))) => {
                let header = self.take_totals(from.0, dir, &bytes, counts);
                header.map(|header| self.has_learned(dir, header, &asking.waiters))
            }
            (Ask::SetTimes(dir, ..), Ok(Reply::Totals(bytes))) => {
                let header = self.take_totals(from.0, dir, &bytes, counts);
                header.map(|header| Some(Learned::Times(dir, header)))
            }
            (Ask::Linked(ino), Ok(Reply::Attr(attr))) if attr.ino == ino => Ok(Some(Learned::Attr(attr))),
            (Ask::Hand(..), Ok(Reply::Ok)) => Ok(None),
            (Ask::Opened(ino, _), Ok(Reply::Ok)) => {
                let waiters = asking.waiters.iter();
                waiters.for_each(|id| {
                    self.parked.entry(*id).and_modify(|op| op.hears().opened = ino);
                });
                Ok(None)
            }
            (Ask::Sessions(_) | Ask::Holders(..), outcome) => {
                self.moves.heard = Some(outcome.is_ok());
                Ok(None)
            }
            (_, Err(errno)) => Err(errno),
            (
                Ask::Replica(_)
                | Ask::Totals(_)
                | Ask::Linked(_)
                | Ask::Hand(..)
                | Ask::SetTimes(..)
                | Ask::Opened(..)
                | Ask::Share(..)
                | Ask::Settle(..)
                | Ask::Outcome(_),
                Ok(_),
            ) => {
                let text = format!("rank {} answers something else than it was asked", from.0.0);
                out.push(Output::Note { level: Level::Error, text });
                Err(Errno::EIO)
            }
        };
        self.has_heard(ask, asking, learned);
    }

    /// Operations that wait for it plan again with what was told.
    fn has_heard(&mut self, ask: Ask, asking: Asking, learned: Result<Option<Learned>, Errno>) {
        if let (Some(unit), Err(Errno::ESTALE)) = (unit_of(&asking.request), &learned) {
            return self.part_is_gone(unit, asking);
        }
        // The directory may be gone by now: the operation that waits looks for it again.
        let gone = matches!((ask, &learned), (Ask::Totals(_) | Ask::Replica(_), Err(Errno::ESTALE)));
        for id in asking.waiters {
            let Some(op) = self.parked.get_mut(&id) else { continue };
            match &learned {
                Ok(None) => {}
                Ok(Some(learned)) => op.hears().learned = Some(Box::new(learned.clone())),
                Err(_) if gone && op.is_sent_back() => {}
                Err(errno) => op.failed = Some(*errno),
            }
            self.plans_again(id);
        }
        self.look_again(asking.late);
    }

    /// A part that was asked for is not there any more: the directory was merged, or spread in another way, or is gone. What was heard of
    /// it counts no more, and the operations find out.
    fn part_is_gone(&mut self, unit: Unit, asking: Asking) {
        if !stdx::mutant!("mds_gone_with_its_part") {
            self.view.totals.recalled(unit.dir);
        }
        // One sign is enough: of a directory of many parts that is merged while all are asked for each would be one, and look like a hint
        // that leads nowhere.
        let others = self.peers.asks.values_mut().filter(|other| {
            matches!(other.request, Request::Totals { unit: of } if of.dir == unit.dir)
                && !stdx::mutant!("mds_each_part_is_a_sign")
        });
        for other in others {
            other.waiters.retain(|id| !asking.waiters.contains(id));
        }
        for id in asking.waiters {
            let Some(op) = self.parked.get_mut(&id) else { continue };
            op.hears().units.clear();
            if stdx::mutant!("mds_gone_with_its_part") || !op.is_sent_back() {
                op.failed = Some(Errno::ESTALE);
            }
            self.plans_again(id);
        }
        self.look_again(asking.late);
    }

    /// What is learned for the next planning; of a spread directory all that it needs is kept until then.
    fn has_learned(&mut self, dir: Ino, header: FragHeader, waiters: &BTreeSet<OpId>) -> Option<Learned> {
        if header.spreading.is_none() {
            return Some(Learned::Totals(dir, header));
        }
        for id in waiters {
            if let Some(op) = self.parked.get_mut(id) {
                op.hears().units.insert(dir, header.clone());
            }
        }
        None
    }

    fn take_totals(
        &mut self,
        rank: RankId,
        dir: Ino,
        bytes: &[u8],
        counts: bool,
    ) -> Result<FragHeader, Errno> {
        let header = FragHeader::decode(bytes).map_err(|_| Errno::EIO)?;
        self.view.totals.told(rank, dir, &header, counts);
        self.spreads.part_told(dir, &header, counts);
        Ok(header)
    }

    /// Operations plan again.
    pub(crate) fn look_again(&mut self, ops: impl IntoIterator<Item = OpId>) {
        ops.into_iter().for_each(|id| self.plans_again(id));
    }

    /// Not while it waits for the store, whose answer wakes it: it had asked other ranks for several things, and a search that was woken
    /// by the next of them would go on as if it had looked where that answer is to come from.
    pub(crate) fn plans_again(&mut self, id: OpId) {
        let Some(op) = self.parked.get_mut(&id) else { return };
        if op.waits != Waits::Store || stdx::mutant!("mds_woken_from_store") {
            op.waits = Waits::Turn;
            self.runnable.push_back(id);
        }
    }

    fn told_elsewhere(
        &mut self,
        now: Now,
        from: (RankId, Tid),
        (owner, version): (Option<RankId>, u64),
        out: &mut Outbox<Output>,
    ) {
        let Some(ask) = self.asked_as(from) else { return };
        if version != self.view.territory.version() && !stdx::mutant!("mds_maps_taken_for_equal") {
            // One of both has not heard of the other's map: nobody knows yet.
            return self.ask_later(now, ask);
        }
        self.is_elsewhere(now, ask, (from.0, owner), out);
    }

    /// By the map of now a rank has not what it was asked for; perhaps it knows who has.
    fn is_elsewhere(
        &mut self,
        now: Now,
        ask: Ask,
        (from, owner): (RankId, Option<RankId>),
        out: &mut Outbox<Output>,
    ) {
        if let Ask::Share(op, rank) = ask {
            return self.share_elsewhere(op, rank, owner, out);
        }
        // Many are asked for the parts of one directory, which move: that one came is no sign that it is gone.
        let request = self.peers.asks.get(&ask).map(|asking| asking.request.clone());
        let is_here = match (ask, &request) {
            (Ask::Totals(number), Some(Request::Totals { unit })) => {
                match self.view.side_of_unit((number, *unit)) {
                    Some(Side::Mine | Side::Sealed) => true,
                    Some(Side::Other(_)) => false,
                    // It has no entry any more, and its directory has none.
                    None => self.owner(unit.dir) == Some(self.view.config.rank),
                }
            }
            (_, _) => false,
        };
        if let Some(asking) = self.peers.asks.get_mut(&ask).filter(|_| !is_here) {
            asking.by.insert(from);
            let by = asking.by.clone();
            if let Some(next) = self.next_to_ask(owner, &by) {
                return self.ask_again(now, ask, next);
            }
        }
        // It became this rank's meanwhile, or nobody knows: the operations look again, by the map of then.
        let Some(asking) = self.peers.asks.remove(&ask) else { return };
        if let Some(unit) = unit_of(&asking.request).filter(|_| !is_here) {
            return self.part_is_gone(unit, asking);
        }
        for id in asking.waiters {
            if let Some(op) = self.parked.get_mut(&id) {
                if let Ask::Facts(ino) = ask {
                    op.hears().inherits.push(ino);
                } else if !is_here && !op.is_sent_back() {
                    op.failed = Some(Errno::ESTALE);
                }
                self.plans_again(id);
            }
        }
        self.look_again(asking.late);
    }

    /// Another rank, or that one because it may have it now.
    fn ask_again(&mut self, now: Now, ask: Ask, rank: RankId) {
        if let Some(asking) = self.peers.asks.get_mut(&ask) {
            asking.anew();
            (asking.rank, asking.not_before, asking.pause_ns) = (rank, now.mono.after(AGAIN_NS), 0);
        }
    }

    /// The same rank, which cannot say yet. What broke: each question was asked every millisecond for as long as one of both had not heard
    /// of a map (88,700 of 156,707 requests of a run).
    fn ask_later(&mut self, now: Now, ask: Ask) {
        let Some(asking) = self.peers.asks.get_mut(&ask) else { return };
        let most = if stdx::mutant!("mds_asks_without_pause") { AGAIN_NS } else { AGAIN_MAX_NS };
        asking.pause_ns = (asking.pause_ns * 2).clamp(AGAIN_NS, most);
        asking.anew();
        asking.not_before = now.mono.after(asking.pause_ns);
    }

    /// Another rank has handed something over, or had, and this one has had no map since it asked. Whoever waits would plan the same by the
    /// same map, and ask the same at once (489,484 of 603,097 events of a run). It is asked again all the same: it may be the other rank
    /// that is behind.
    fn is_by_another_map(&mut self, ask: Ask) -> bool {
        let version = self.view.territory.version();
        let Some(asking) = self.peers.asks.get_mut(&ask) else { return false };
        let is_awaited = !asking.waiters.is_empty() || !asking.late.is_empty();
        asking.done = is_awaited && asking.since == version && !stdx::mutant!("mds_handed_asked_at_once");
        asking.done
    }

    /// Another rank greets: its session here begins anew, and it keeps nothing of what it was told before.
    pub(crate) fn rank_hello(
        &mut self,
        now: Now,
        conn: ConnId,
        (protocol, to, version): (u16, RankId, u64),
        (from, incarnation, settled): (RankId, Incarnation, bool),
        out: &mut Outbox<Output>,
    ) {
        let Some(known) = self.sessions.conns.get(&conn) else { return };
        let odd = match (&known.peer, known.session) {
            (_, Some(_)) => Some("this connection has a session already"),
            (Peer::Embedded | Peer::User(_), None) => Some("only a peer that may act for anyone is a rank"),
            (Peer::Trusted, None) if protocol != PROTOCOL => Some("the protocol is not spoken here"),
            (Peer::Trusted, None) if to != self.view.config.rank || from == to => Some("it is not meant"),
            (Peer::Trusted, None) => None,
        };
        if let Some(reason) = odd {
            return self.refuse(conn, Errno::EPROTO, reason, out);
        }
        if !self.state.serves() {
            return self.refuse(conn, Errno::ESHUTDOWN, "the rank does not serve", out);
        }
        let known = self.view.territory.map().and_then(|map| map.ranks.get(&from));
        if known.is_some_and(|info| info.incarnation > incarnation) {
            return self.refuse(conn, Errno::ESTALE, "another life of that rank is named", out);
        }
        let Some(id) = self.sessions.number(self.view.config.incarnation.0) else {
            return self.refuse(conn, Errno::EAGAIN, "all session numbers are used up", out);
        };
        self.end_rank(now, from, out);
        if settled {
            self.rank_settled(from);
        }
        if let Some(known) = self.sessions.conns.get_mut(&conn) {
            known.session = Some(id);
        }
        let place = self.view.book.enter(id, true);
        let client = format!("uid=0 rank:{} pid 0", from.0).into_bytes().into();
        let mut session = Session::of_rank(conn, (from, incarnation), client);
        (session.place, session.map_version) = (place, version);
        out.push(session.note(id, "opened"));
        self.sessions.insert(id, session);
        self.heard(from, settled);
        self.welcome(id, false, out);
    }

    /// A rank has greeted, or lives no more as it did: it keeps nothing from a former life of this one. `settled`: nor do its clients.
    fn heard(&mut self, rank: RankId, settled: bool) {
        if self.peers.unheard.remove(&rank).is_some() {
            if !settled {
                self.fades_later(rank);
            }
            self.look_at_ranks_again();
        }
    }

    /// Who waits for other ranks looks whether there is still something to wait for.
    pub(crate) fn look_at_ranks_again(&mut self) {
        let waiters = std::mem::take(&mut self.peers.unheard_waiters);
        self.runnable.extend(waiters);
    }

    /// Whether other ranks, or their clients, may keep what a former life of this one told.
    pub(crate) fn awaits_ranks(&self) -> bool {
        !self.peers.unheard.is_empty() || self.lent.fades()
    }

    /// The session of a rank ends, with all replicas it may keep.
    fn end_rank(&mut self, now: Now, rank: RankId, out: &mut Outbox<Output>) {
        let of_rank = |(id, session): (&SessionId, &Session)| {
            session.rank.is_some_and(|(of, _)| of == rank).then_some((*id, session.conn))
        };
        for (id, conn) in self.sessions.map.iter().filter_map(of_rank).collect::<Vec<_>>() {
            self.lingers(rank, id);
            self.end_session(now, id, out);
            if let Some(conn) = conn {
                self.close_conn(conn, out);
            }
        }
        self.ask_outcomes(Some(rank));
    }

    /// What a new map says of other ranks: who has another life keeps nothing of what it was told before.
    pub(crate) fn ranks_by_map(&mut self, now: Now, out: &mut Outbox<Output>) {
        let Some(map) = self.view.territory.map().cloned() else { return };
        // One that failed may still serve: not before a successor is named it is certain that it does not. One that says of itself
        // that it is damaged serves no more.
        let over = |rank: RankId, life: Incarnation| {
            let is_over = |info: &RankInfo| {
                info.incarnation > life || (info.state == RankState::Damaged && info.incarnation == life)
            };
            // A map may be heard of late: of a life that begins after it, it says nothing.
            let knows = life <= map.last_incarnation || stdx::mutant!("mds_old_map_ends_lives");
            map.ranks.get(&rank).map_or(knows, is_over)
        };
        let sessions = self.sessions.map.values().filter_map(|session| session.rank);
        let gone: Vec<RankId> =
            sessions.filter(|(rank, life)| over(*rank, *life)).map(|(rank, _)| rank).collect();
        for rank in gone {
            self.end_rank(now, rank, out);
        }
        let unheard: Vec<RankId> = self
            .peers
            .unheard
            .iter()
            .filter(|(rank, life)| over(**rank, **life))
            .map(|(rank, _)| *rank)
            .collect();
        unheard.into_iter().for_each(|rank| self.heard(rank, false));
        self.release_of_absent(now, out);
        self.greet_all(out);
    }

    /// The rank lives again: every other one may keep replicas from before.
    pub(crate) fn await_ranks(&mut self) {
        let me = self.view.config.rank;
        let Some(map) = self.view.territory.map() else { return };
        let others = map.ranks.iter().filter(|(rank, info)| {
            // Nobody knows of a failed one that it serves no more.
            let failed = info.state == RankState::Failed && info.incarnation != Incarnation(0);
            let may_serve = serves(info.state) || failed;
            **rank != me && may_serve && !stdx::mutant!("mds_ranks_not_awaited")
        });
        let unheard: BTreeMap<RankId, Incarnation> =
            others.map(|(rank, info)| (*rank, info.incarnation)).collect();
        // One that begins to live keeps no replica; but the clients of its life before may go by what the life before of this one told.
        let begins = |info: &RankInfo| {
            matches!(info.state, RankState::Replay | RankState::Resolve | RankState::Damaged)
                && !stdx::mutant!("mds_beginners_clients_forgotten")
        };
        let beginners = map.ranks.iter().filter(|(rank, info)| **rank != me && begins(info));
        let beginners: Vec<RankId> = beginners.map(|(rank, _)| *rank).collect();
        self.peers.unheard = unheard;
        beginners.into_iter().for_each(|rank| self.fades_later(rank));
    }

    /// Whether a session may ask that at all: ranks ask for little, and nobody else for what they do.
    pub(crate) fn may_ask(session: &Session, request: &Request) -> bool {
        let of_ranks = matches!(request, proto::rank_requests!());
        match session.rank {
            Some(_) => of_ranks || matches!(request, Request::GetAttr { .. }),
            None => !of_ranks,
        }
    }

    /// The request is another rank's: nothing of it is remembered here.
    pub(crate) fn bounce(&mut self, op: &crate::op::Op, owner: Option<RankId>, out: &mut Outbox<Output>) {
        self.unpin(op);
        // What it gave back it has no more, wherever the inode is.
        if let Request::SetLock { node, .. } | Request::ReleaseLocks { node, .. } = &op.request {
            self.holder_let_go(op.session, node.ino, out);
        }
        let version = self.view.territory.version();
        let Some(session) = self.sessions.map.get_mut(&op.session) else {
            return self.moves.unseen.searched(op.id);
        };
        session.in_flight = session.in_flight.saturating_sub(1);
        session.running.remove(&op.tid);
        self.tell_map(op.session, out);
        self.leaves(op.asked(), ServerMsg::NotMine { tid: op.tid, owner, version }, out);
        if op.told.is_some() {
            self.performed_ended(op.session, op.id);
        }
    }

    /// Who is asked first for the inode of a directory whose home the hints do not tell.
    pub(crate) fn somebody(&self) -> Option<RankId> {
        self.anybody(&BTreeSet::new())
    }

    /// One of the other ranks, but for those: one that serves, else one that will, and is waited for. What it has is not gone because it lives
    /// again just now.
    fn anybody(&self, but: &BTreeSet<RankId>) -> Option<RankId> {
        let me = self.view.config.rank;
        let map = self.view.territory.map()?;
        let first = |may: fn(RankState) -> bool| {
            let new = |rank: &RankId| *rank != me && !but.contains(rank);
            map.ranks.iter().find(|(rank, info)| may(info.state) && new(rank)).map(|(rank, _)| *rank)
        };
        let later = |state| !serves(state) && !matches!(state, RankState::Damaged | RankState::Creating);
        first(serves).or_else(|| first(later).filter(|_| !stdx::mutant!("mds_gone_with_a_dead_rank")))
    }

    /// Who is asked next when those have not what is asked for: who was named, else each of the others. What is named may be by hints,
    /// of which two may lead to each other.
    pub(crate) fn next_to_ask(&self, named: Option<RankId>, by: &BTreeSet<RankId>) -> Option<RankId> {
        let me = self.view.config.rank;
        let new = |rank: &RankId| *rank != me && !by.contains(rank);
        let named = named.filter(new);
        if named.is_some() || stdx::mutant!("mds_only_named_are_asked") {
            return named;
        }
        self.anybody(by)
    }

    /// An operation waits for what another rank is asked for; false: there is no rank to be asked.
    pub(crate) fn ask_for(&mut self, (op, session): (OpId, SessionId), park: &Park) -> bool {
        let me = self.view.config.rank;
        let owner = |rank: &Self, dir| match rank.view.of_itself(dir) {
            Some(Side::Other(rank)) => rank,
            Some(Side::Mine | Side::Sealed) | None => None,
        };
        if let Park::Totals(units) = park {
            return self.ask_for_totals(op, units);
        }
        let (ask, rank, request) = match *park {
            Park::Replica { node, home } => {
                let home = home.filter(|home| *home != me).or_else(|| self.somebody());
                (Ask::Replica(node.ino), home, Request::Replicate { node })
            }
            Park::Facts { node, home } => {
                let home = home.filter(|home| *home != me).or_else(|| self.somebody());
                (Ask::Facts(node.ino), home, Request::Facts { node })
            }
            Park::Linked(ino) => {
                let hash = self.view.hash(&ino.link_name());
                let node = NodeRef { ino, parent: Ino::LINKS, hash };
                (Ask::Linked(ino), owner(self, Ino::LINKS), Request::GetAttr { node })
            }
            Park::Hand(number, unit) => {
                self.hold_pin(unit.dir);
                self.gather(unit.dir);
                (Ask::Hand(unit, me), self.owner_of_unit(number, unit), Request::Hand { unit, to: me })
            }
            Park::SetTimes { dir, mtime, stamp } => {
                let request = Request::SetTimes { dir, mtime, stamp };
                (Ask::SetTimes(dir, mtime, stamp), owner(self, dir), request)
            }
            Park::Opened(node) => {
                let home = self.peers.replicas.get(&node.ino).copied();
                (Ask::Opened(node.ino, session), home, Request::Opened { node, session })
            }
            Park::Totals(_)
            | Park::Load(_)
            | Park::File(_)
            | Park::Inos
            | Park::Reconnect
            | Park::Caps(_)
            | Park::Settled
            | Park::Presented
            | Park::Journal
            | Park::Ranks
            | Park::Move
            | Park::Slots
            | Park::Part { .. }
            | Park::Reserved
            | Park::Votes
            | Park::Joins
            | Park::Carve(_)
            | Park::Pin(..) => return false,
        };
        let Some(rank) = rank else { return false };
        self.ask(ask, rank, request, Some(op));
        true
    }

    fn owner_of_unit(&self, number: Ino, unit: Unit) -> Option<RankId> {
        match self.view.side_of_unit((number, unit)) {
            Some(Side::Other(rank)) => rank,
            Some(Side::Mine | Side::Sealed) | None => None,
        }
    }

    /// All at once: it goes on with the first answer, and waits for the others then.
    fn ask_for_totals(&mut self, op: OpId, units: &[(Ino, Unit)]) -> bool {
        for (number, unit) in units {
            let Some(rank) = self.owner_of_unit(*number, *unit) else { return false };
            self.ask(Ask::Totals(*number), rank, Request::Totals { unit: *unit }, Some(op));
        }
        true
    }

    /// Whether the planned transaction changes what ranks may keep that have not greeted this life of the rank.
    pub(crate) fn may_be_copied(&mut self) -> bool {
        if !self.awaits_ranks() {
            return false;
        }
        let needs = needs::of_transaction(&mut self.view);
        let inos = needs.iter().map(|need| need.ino);
        inos.into_iter().any(|ino| self.is_copied(ino))
    }

    /// Whether ranks that are waited for may keep a replica of an inode, or they or their clients totals of a directory's content.
    pub(crate) fn is_copied(&mut self, ino: Ino) -> bool {
        let shown = self.view.is_shown_elsewhere(ino) && !stdx::mutant!("mds_totals_not_awaited");
        shown || (!self.peers.unheard.is_empty() && self.view.is_boundary(ino))
    }
}

#[cfg(test)]
mod tests;
