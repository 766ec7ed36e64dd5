//! What is asked of other ranks, for operations that wait and for the rank itself: of whom, and when. docs/PROTOCOL.md, "Ranks among
//! themselves".
//!
//! Absent: what comes of the answers (`peers/answers.rs`); sessions, in which the questions leave (`peers/links.rs`).

use super::links::Link;
use crate::op::{Op, OpId, Park};
use crate::output::Output;
use crate::rank::Rank;
use crate::territory::Side;
use proto::cluster::{MoveId, RankState, Unit};
use proto::message::ClientMsg;
use proto::reply::Reply;
use proto::request::Request;
use proto::transact::TxnId;
use proto::{Cred, Ino, NodeRef, RankId, SessionId, Tid};
use std::collections::BTreeSet;
use stdx::time::MS;
use stdx::{Mono, Now, Outbox, Wall};

/// What cannot be answered now is asked again after that, and then after twice that, up to the most. Not longer: what waits below a sealed
/// unit may wait for such an answer.
const AGAIN_NS: u64 = MS;
const AGAIN_MAX_NS: u64 = 8 * MS;

/// What is asked of another rank; who wants the same waits for the same answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Question {
    Replica(Ino),
    Facts(Ino),
    Totals(Ino),
    Heat(Ino),
    Linked(Ino),
    Hand(Unit, RankId),
    /// That the entry of a directory goes whose slot is that rank's.
    Unpin(Ino),
    SetTimes(Ino, Wall, Ino, u64),
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

/// What is asked of each of several units, by their numbers, and how.
type OfUnit = (fn(Ino) -> Question, fn(Unit) -> Request);

impl Question {
    /// What the other rank would recall if it were no more as it told.
    pub(super) const fn recallable(self) -> Option<Ino> {
        match self {
            Self::Replica(ino) | Self::Totals(ino) | Self::SetTimes(ino, ..) => Some(ino),
            Self::Facts(_)
            | Self::Heat(_)
            | Self::Linked(_)
            | Self::Hand(..)
            | Self::Unpin(_)
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
pub(super) struct Asking {
    pub(super) rank: RankId,
    pub(super) request: Request,
    /// None: it is yet to be sent.
    pub(super) tid: Option<Tid>,
    /// Who has said that it is not there, by the map of then.
    pub(super) by: BTreeSet<RankId>,
    /// Not sent before.
    pub(super) not_before: Mono,
    /// How long it waits, or waited last, because the rank could not say yet; 0: it could.
    pub(super) pause_ns: u64,
    /// The map by which it was asked first.
    pub(super) since: u64,
    /// It is done, by a map that is not here yet, or not there.
    pub(super) done: bool,
    /// Each once, however often it asks: whoever waits for several answers does so with each of them.
    pub(super) waiters: BTreeSet<OpId>,
    /// Who came when it had been sent: the answer may be older than what these have heard of elsewhere.
    pub(super) late: BTreeSet<OpId>,
}

impl Asking {
    /// It is to be sent again.
    pub(super) fn anew(&mut self) {
        self.tid = None;
        self.waiters.append(&mut self.late);
    }
}

impl Rank {
    /// An operation waits for what another rank tells.
    pub(crate) fn ask(&mut self, question: Question, rank: RankId, request: Request, op: Option<OpId>) {
        let (not_before, since) = (self.view.now.mono, self.view.territory.version());
        let asking = self.peers.questions.entry(question).or_insert(Asking {
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

    /// Whether it waits for an answer by which times are set. What else it has asked for does not wake it: what broke, it planned again by
    /// the answer to an older question, and had the times set once more, later, behind what had changed them meanwhile.
    pub(crate) fn sets_times(&self, op: &Op) -> bool {
        let is_asked_by = |asking: &Asking| asking.waiters.contains(&op.id) || asking.late.contains(&op.id);
        matches!(&op.request, Request::SetAttr { set, .. } if set.mtime.is_some())
            && !stdx::mutant!("mds_times_set_behind_answer")
            && self
                .peers
                .questions
                .iter()
                .any(|(question, asking)| matches!(question, Question::SetTimes(..)) && is_asked_by(asking))
    }

    /// Another rank is asked for something that no operation waits for by itself, after a while.
    pub(crate) fn ask_unawaited(
        &mut self,
        question: Question,
        rank: RankId,
        request: Request,
        after_ns: u64,
    ) {
        let not_before = self.view.now.mono.after(after_ns);
        let (by, waiters, late) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let (pause_ns, since, done) = (0, self.view.territory.version(), false);
        let asking =
            Asking { rank, request, tid: None, by, not_before, pause_ns, since, done, waiters, late };
        self.peers.questions.insert(question, asking);
    }

    /// What waits because another rank could not say yet is asked at once: there is another map.
    pub(crate) fn ask_by_map(&mut self) {
        let done =
            self.peers.questions.iter().filter(|(_, asking)| asking.done).map(|(question, _)| *question);
        for question in done.collect::<Vec<_>>() {
            if let Some(asking) = self.peers.questions.remove(&question) {
                self.has_heard(question, asking, Ok(None));
            }
        }
        let now = self.view.now.mono;
        let waits = |asking: &&mut Asking| asking.tid.is_none() && asking.pause_ns > 0;
        for asking in self.peers.questions.values_mut().filter(waits) {
            (asking.not_before, asking.pause_ns) = (now, 0);
        }
    }

    /// Greetings and questions leave.
    pub(crate) fn ask_turn(&mut self, now: Now, out: &mut Outbox<Output>) {
        self.say_presented(out);
        if self.peers.questions.is_empty() {
            return;
        }
        self.ask_others(now, out);
        let mut unknown = BTreeSet::new();
        for asking in self.peers.questions.values_mut().filter(|asking| asking.tid.is_none()) {
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
        let is_absent = |(_, asking): &(&Question, &Asking)| {
            asking.tid.is_none() && !map.ranks.contains_key(&asking.rank)
        };
        let absent =
            self.peers.questions.iter().filter(is_absent).map(|(question, asking)| (*question, asking.rank));
        for (question, rank) in absent.collect::<Vec<_>>() {
            match question {
                Question::Settle(..) => {
                    self.peers.end_question(question);
                    self.share_told(now, question, Ok(Reply::Ok), out);
                }
                Question::Replica(_)
                | Question::Facts(_)
                | Question::Totals(_)
                | Question::Heat(_)
                | Question::Linked(_)
                | Question::Hand(..)
                | Question::Unpin(_)
                | Question::SetTimes(..)
                | Question::Opened(..)
                | Question::Share(..) => self.is_elsewhere(now, question, (rank, None), out),
                // By the same map the move is over, and what a leader decided that is not there any more everybody has acknowledged.
                Question::Sessions(_) | Question::Holders(..) | Question::Outcome(_) => {}
            }
        }
    }

    /// Another rank: at once if it was named by the one that was asked, which each can be only once.
    pub(super) fn ask_again(&mut self, now: Now, question: Question, rank: RankId, named: bool) {
        let pause_ns = if named && !stdx::mutant!("mds_named_asked_late") { 0 } else { AGAIN_NS };
        if let Some(asking) = self.peers.questions.get_mut(&question) {
            asking.anew();
            (asking.rank, asking.not_before, asking.pause_ns) = (rank, now.mono.after(pause_ns), 0);
        }
    }

    /// The same rank, which cannot say yet. What broke: each question was asked every millisecond for as long as one of both had not heard
    /// of a map (88,700 of 156,707 requests of a run).
    pub(super) fn ask_later(&mut self, now: Now, question: Question) {
        let Some(asking) = self.peers.questions.get_mut(&question) else { return };
        let most = if stdx::mutant!("mds_asks_without_pause") { AGAIN_NS } else { AGAIN_MAX_NS };
        asking.pause_ns = (asking.pause_ns * 2).clamp(AGAIN_NS, most);
        asking.anew();
        asking.not_before = now.mono.after(asking.pause_ns);
    }

    /// An operation waits for what another rank is asked for; false: there is no rank to be asked.
    pub(crate) fn ask_for(&mut self, (op, session): (OpId, SessionId), park: &Park) -> bool {
        let me = self.view.config.rank;
        let owner = |rank: &Self, dir| match rank.view.of_itself(dir) {
            Some(Side::Other(rank)) => rank,
            Some(Side::Mine | Side::Sealed) | None => None,
        };
        if let Park::Totals(units) = park {
            return self.ask_for_units(op, units, (Question::Totals, |unit| Request::Totals { unit }));
        }
        if let Park::Heats(units) = park {
            return self.ask_for_units(op, units, (Question::Heat, |unit| Request::Heat { unit }));
        }
        let (question, rank, request) = match *park {
            Park::Replica { node, home } => {
                let home = self.home_to_ask(node, home);
                (Question::Replica(node.ino), home, Request::Replicate { node })
            }
            Park::Facts { node, home } => {
                let home = self.home_to_ask(node, home);
                (Question::Facts(node.ino), home, Request::Facts { node })
            }
            Park::Linked(ino) => {
                let hash = self.view.hash(&ino.link_name());
                let node = NodeRef { ino, parent: Ino::LINKS, hash };
                (Question::Linked(ino), owner(self, Ino::LINKS), Request::GetAttr { node })
            }
            Park::Hand(number, unit) => {
                self.hold_pin(unit.dir);
                self.gather(unit.dir);
                (Question::Hand(unit, me), self.owner_of_unit(number, unit), Request::Hand { unit, to: me })
            }
            Park::SetTimes { dir, mtime, first, stamp } => {
                let request = Request::SetTimes { dir, mtime, first, stamp };
                (Question::SetTimes(dir, mtime, first, stamp), owner(self, dir), request)
            }
            Park::Opened(node) => {
                let home = self.peers.replicas.get(&node.ino).copied();
                (Question::Opened(node.ino, session), home, Request::Opened { node, session })
            }
            Park::Totals(_)
            | Park::Heats(_)
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
        self.ask(question, rank, request, Some(op));
        true
    }

    /// Who is asked for the record of a directory: who was named, who had another one that is in the same, or one that may know.
    pub(super) fn home_to_ask(&self, node: NodeRef, named: Option<RankId>) -> Option<RankId> {
        let me = self.view.config.rank;
        let found = || self.peers.homes.of(node.parent, self.view.territory.version());
        named.filter(|home| *home != me).or_else(found).or_else(|| self.somebody())
    }

    fn owner_of_unit(&self, number: Ino, unit: Unit) -> Option<RankId> {
        match self.view.side_of_unit((number, unit)) {
            Some(Side::Other(rank)) => rank,
            Some(Side::Mine | Side::Sealed) | None => None,
        }
    }

    /// All at once: it goes on with the first answer, and waits for the others then.
    fn ask_for_units(&mut self, op: OpId, units: &[(Ino, Unit)], (question, request): OfUnit) -> bool {
        for (number, unit) in units {
            let Some(rank) = self.owner_of_unit(*number, *unit) else { return false };
            self.ask(question(*number), rank, request(*unit), Some(op));
        }
        true
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
        let later = |state: RankState| {
            !state.serves_ranks() && !matches!(state, RankState::Damaged | RankState::Creating)
        };
        first(RankState::serves_ranks)
            .or_else(|| first(later).filter(|_| !stdx::mutant!("mds_gone_with_a_dead_rank")))
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
}
