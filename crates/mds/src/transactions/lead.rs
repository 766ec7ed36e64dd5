//! The way of a transaction at the rank that leads it: CLEAR, PREPARE, COMMIT.
//!
//! An operation is planned by what other ranks tell. First they tell without reserving anything, and the plan waits for whatever it has
//! to wait for here. When it comes to a transaction, they reserve and tell once more, and it is planned by that. This last plan
//! waits for nothing: whatever it comes to but that transaction gives up what is reserved. So nobody waits while he holds something.
//!
//! Most renames of files find nothing in their way. So theirs begin with `Prepare`, in haste: if what was asked for is not plainly to be
//! had, or the plan comes to anything but the transaction, it begins anew with `Clear`.
//!
//! | phase | what happens |
//! |---|---|
//! | `Clear` | they are asked what their parts are |
//! | `Cleared` | the operation is planned by it; what it waits for it has to itself |
//! | `Prepare` | they are asked to reserve |
//! | `Above` | all have reserved; ways up are asked for once more, because only now can nobody who reserved later change them |
//! | `Voted` | planned once more, committed |
//!
//! Absent: the other ranks' side (`part.rs`); what is planned (`across.rs`).

use crate::hold::Waiting;
use crate::op::{Op, OpId, Waits};
use crate::output::{Level, Output};
use crate::peers::Question;
use crate::rank::{Pending, Rank};
use crate::transactions::{Told, no_left};
use proto::message::ClientMsg;
use proto::mutation::Mutation;
use proto::reply::{Outcome, Reply};
use proto::request::Request;
use proto::transact::{Decided, ITEMS_MAX, Part, Seen, Step, TxnId, put_decided, put_left};
use proto::{Cred, Errno, Ino, RankId, Tid, Writer};
use std::collections::{BTreeMap, BTreeSet};
use stdx::time::MS;
use stdx::{Now, Outbox, Wall};

/// What another transaction has reserved is asked for again after that.
const NOT_YET_NS: u64 = MS;
/// What a rank could not carry out it is told again after that; and a leader that could not say what became of a transaction is asked again.
pub(super) const FAILED_NS: u64 = 100 * MS;

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Clear,
    Cleared,
    Prepare,
    Above,
    Voted,
}

/// What one rank has of it.
#[derive(Debug, Default)]
struct Share {
    parts: Vec<Part>,
    seen: Vec<Seen>,
    /// It has not answered.
    asked: bool,
}

impl Share {
    /// Other sessions are asked about: those of before were there, or have nothing any more. There is a bound on parts.
    fn forget_sessions(&mut self, by: &Part) {
        let is_sessions = |part: &Part| matches!(part, Part::Sessions { .. });
        let before = self.parts.iter().position(is_sessions).filter(|_| is_sessions(by));
        if let Some(at) = before {
            self.parts.remove(at);
            if at < self.seen.len() {
                self.seen.remove(at);
            }
        }
    }

    /// The directory whose content is to end there.
    fn content(&self) -> Option<Ino> {
        self.parts.iter().find_map(|part| match part {
            Part::Content { dir, .. } => Some(*dir),
            Part::Name { .. } | Part::Inode { .. } | Part::Above { .. } | Part::Sessions { .. } => None,
        })
    }
}

/// One transaction that this rank leads, for one operation that waits.
#[derive(Debug)]
pub(crate) struct Lead {
    /// Of this try: what was reserved for the one before is not reserved for this.
    id: TxnId,
    /// When it began first: the oldest comes before all others.
    since: Wall,
    phase: Phase,
    /// All are to go by this map, or a newer one: directories of this rank's leave, which have entries by that.
    map: u64,
    /// Who has said that it has not what was asked for last.
    by: BTreeSet<RankId>,
    shares: BTreeMap<RankId, Share>,
    /// It was asked to reserve before anybody has told anything.
    hasty: bool,
    /// How often it has waited for sessions that are to join a rank.
    joins: u64,
}

impl Lead {
    /// Whether ways up were told before others had reserved what they are to.
    fn has_ways_to_tell(&self) -> bool {
        let mut parts = self.shares.values().flat_map(|share| &share.parts);
        let ways = parts.clone().any(Part::is_way);
        ways && parts.any(Part::is_reserved)
    }
}

/// All that it leads.
#[derive(Debug, Default)]
pub(crate) struct Leads {
    of: BTreeMap<OpId, Lead>,
    last: u64,
    /// Who has not acknowledged what was decided.
    told: BTreeMap<TxnId, BTreeSet<RankId>>,
}

impl Leads {
    /// Whether it leads none.
    pub(crate) fn is_idle(&self) -> bool {
        self.of.is_empty()
    }

    /// Whether somebody may have to ask yet what became of one.
    pub(crate) fn is_owed(&self) -> bool {
        !(self.of.is_empty() && self.told.is_empty())
    }

    /// Whether an operation has waited often enough for sessions that are to join a rank; once more, if not.
    pub(super) fn has_waited_for_joins(&mut self, op: OpId, most: u64) -> bool {
        let Some(lead) = self.of.get_mut(&op) else { return true };
        lead.joins += 1;
        lead.joins > most
    }

    /// Whether a rank is asked for as much as fits into one message.
    pub(crate) fn is_full(&self, op: OpId) -> bool {
        let is_full = |share: &Share| share.parts.len() >= ITEMS_MAX as usize;
        self.of.get(&op).is_some_and(|lead| lead.shares.values().any(is_full))
            && !stdx::mutant!("mds_parts_without_bound")
    }

    /// The present try of an operation.
    pub(crate) fn id_of(&self, op: OpId) -> Option<TxnId> {
        self.of.get(&op).map(|lead| lead.id)
    }

    /// Whether an operation waits for other ranks.
    pub(crate) fn is_waiting(&self, op: OpId) -> bool {
        self.of
            .get(&op)
            .is_some_and(|lead| matches!(lead.phase, Phase::Clear | Phase::Prepare | Phase::Above))
    }
}

/// Whether it is a name in a directory of the system's.
fn is_of_system(part: &Part) -> bool {
    match part {
        Part::Name { parent, .. } => parent.ino.is_reserved(),
        Part::Inode { .. } | Part::Above { .. } | Part::Sessions { .. } | Part::Content { .. } => false,
    }
}

/// The answer of a rank that is to end a directory's content and does not find it.
fn says_gone(errno: Errno) -> bool {
    errno == Errno::EIO || (errno == Errno::ESTALE && !stdx::mutant!("mds_gone_is_the_answer"))
}

impl Rank {
    fn new_transaction(&mut self) -> TxnId {
        self.leads.last += 1;
        let id = TxnId((self.view.config.incarnation.0 << 32) | self.leads.last);
        self.view.transactions.leading.insert(id);
        id
    }

    /// What other ranks told for an operation, before it is planned.
    pub(crate) fn told_for(&self, op: OpId) -> Option<Box<Told>> {
        let lead = self.leads.of.get(&op)?;
        let voted = match lead.phase {
            Phase::Cleared => false,
            Phase::Voted => true,
            Phase::Clear | Phase::Prepare | Phase::Above => return None,
        };
        let share = |(rank, share): (&RankId, &Share)| {
            let (rank, told) = (*rank, share.parts.iter().cloned().zip(share.seen.iter().cloned()));
            told.map(|(part, seen)| (rank, part, seen)).collect::<Vec<_>>()
        };
        let parts: Vec<(RankId, Part, Seen)> = lead.shares.iter().flat_map(share).collect();
        let holders = parts.iter().flat_map(|(_, _, seen)| &seen.holders);
        let strangers = self.strangers(holders.map(|holder| &holder.session));
        Some(Box::new(Told { id: lead.id, voted, parts, strangers }))
    }

    /// An operation waits for what another rank tells of a part; false: there is nobody to be asked.
    /// `hasty`: it may be reserved at once.
    pub(crate) fn ask_part(&mut self, op: OpId, hint: Option<RankId>, part: Part, hasty: bool) -> bool {
        let me = self.view.config.rank;
        let Some(rank) = hint.filter(|rank| *rank != me).or_else(|| self.somebody()) else { return false };
        let since = self.view.wall();
        if !self.leads.of.contains_key(&op) {
            let id = self.new_transaction();
            let lead = Lead {
                id,
                since,
                phase: Phase::Cleared,
                map: 0,
                by: BTreeSet::new(),
                shares: BTreeMap::new(),
                hasty,
                joins: 0,
            };
            self.leads.of.insert(op, lead);
        }
        if let Some(lead) = self.leads.of.get_mut(&op) {
            let share = lead.shares.entry(rank).or_default();
            share.forget_sessions(&part);
            share.parts.push(part);
            lead.phase = if lead.hasty { Phase::Prepare } else { Phase::Clear };
        }
        self.ask_share(op, rank, 0);
        true
    }

    /// A rank is asked for what it has of a transaction, in the phase in which that is.
    fn ask_share(&mut self, op: OpId, rank: RankId, after_ns: u64) {
        let Some(lead) = self.leads.of.get_mut(&op) else { return };
        let Some(share) = lead.shares.get_mut(&rank) else { return };
        share.asked = true;
        let (since, map, hasty, parts) = (lead.since, lead.map, lead.hasty, share.parts.clone());
        let step = match lead.phase {
            Phase::Clear | Phase::Cleared => Step::Clear { since, parts },
            Phase::Prepare | Phase::Above | Phase::Voted => Step::Prepare { since, map, hasty, parts },
        };
        let request = Request::Transact { id: lead.id, step };
        self.ask_unawaited(Question::Share(op, rank), rank, request, after_ns);
    }

    /// The plan came to a transaction: all reserve their parts.
    pub(crate) fn gather_votes(&mut self, op: &mut Op, moves: Vec<Ino>) {
        op.waits = Waits::Rank;
        let id = op.id;
        self.parked.insert(id, op.take());
        let Some(lead) = self.leads.of.get_mut(&id) else { return };
        lead.map = if moves.is_empty() { 0 } else { self.view.territory.version() };
        self.view.transactions.moves(lead.id, moves);
        lead.phase = if stdx::mutant!("mds_commit_before_votes") { Phase::Voted } else { Phase::Prepare };
        let ranks: Vec<RankId> = lead.shares.keys().copied().collect();
        for rank in ranks {
            self.ask_share(id, rank, 0);
        }
        if stdx::mutant!("mds_commit_before_votes") {
            self.runnable.push_back(id);
        }
    }

    /// Another rank answers what it was asked for a transaction.
    pub(crate) fn share_told(
        &mut self,
        now: Now,
        question: Question,
        outcome: Outcome,
        out: &mut Outbox<Output>,
    ) {
        match question {
            Question::Share(op, rank) => self.share_answered(op, rank, outcome, out),
            Question::Settle(id, rank) => self.settled_by(now, id, rank, outcome, out),
            // Nobody leads it any more.
            Question::Outcome(id) if outcome.is_ok() || stdx::mutant!("mds_any_answer_is_an_abort") => {
                self.release_part(now, id, out);
            }
            // It does not say so, and may have decided: one that is damaged answers nothing but errors. Its next life will tell.
            Question::Outcome(id) => self.ask_outcome_again(id),
            Question::Replica(_)
            | Question::Facts(_)
            | Question::Totals(_)
            | Question::Heat(_)
            | Question::Linked(_)
            | Question::Hand(..)
            | Question::Unpin(_)
            | Question::Sessions(_)
            | Question::Holders(..)
            | Question::SetTimes(..)
            | Question::Opened(..) => {}
        }
    }

    /// All have reserved: from here on nobody changes those ways who does not see that.
    fn ask_ways(&mut self, op: OpId) {
        let Some(lead) = self.leads.of.get(&op) else { return };
        let ways = lead.shares.iter().filter(|(_, share)| share.parts.iter().any(Part::is_way));
        for rank in ways.map(|(rank, _)| *rank).collect::<Vec<_>>() {
            self.ask_share(op, rank, 0);
        }
    }

    fn share_answered(&mut self, op: OpId, rank: RankId, outcome: Outcome, out: &mut Outbox<Output>) {
        let Some(lead) = self.leads.of.get_mut(&op) else { return };
        let Some(share) = lead.shares.get_mut(&rank) else { return };
        match outcome {
            Ok(Reply::Seen(seen)) if seen.len() == share.parts.len() => {
                if share.seen.len() < share.parts.len() {
                    lead.by.clear();
                }
                (share.seen, share.asked) = (seen, false);
                self.view.hints.learn(self.view.territory.generation(), rank, &share.parts);
                if lead.shares.values().any(|share| share.asked) {
                    return;
                }
                lead.phase = match lead.phase {
                    Phase::Clear | Phase::Cleared => Phase::Cleared,
                    Phase::Prepare if lead.has_ways_to_tell() => Phase::Above,
                    Phase::Prepare | Phase::Above | Phase::Voted => Phase::Voted,
                };
                if lead.phase == Phase::Above { self.ask_ways(op) } else { self.wake_operation(op, None) }
            }
            // Clear waits for what was in the way of haste.
            Err(Errno::EBUSY) if lead.hasty => self.clear_again(op, 0, out),
            Err(Errno::EBUSY) => self.clear_again(op, NOT_YET_NS, out),
            // ESTALE, if all ranks were asked what a directory is that slots place.
            Err(errno) if says_gone(errno) && self.may_be_gone(op, rank) => {
                self.release_votes(op, out);
                self.lead_anew(op, out);
            }
            Err(errno) => {
                self.end_lead(op, out);
                self.wake_operation(op, Some(errno));
            }
            Ok(_) => {
                let text = format!("rank {} answers something else than it was asked", rank.0);
                out.push(Output::Note { level: Level::Error, text });
                self.end_lead(op, out);
                self.wake_operation(op, Some(Errno::EIO));
            }
        }
    }

    /// A rank does not find the content that it is to end. What broke: two removed the same directory. The second one was told "not yet" while
    /// the first had it reserved, and asked once more, without looking at the name, which the first had taken away by then. The other rank
    /// had ended the content, and stored that; it knows of a directory only what is asked of it, says that it is damaged, and so was
    /// the caller told (EIO). It is to hear that the name is gone.
    fn may_be_gone(&mut self, op: OpId, rank: RankId) -> bool {
        let share = self.leads.of.get(&op).and_then(|lead| lead.shares.get(&rank));
        let Some(dir) = share.and_then(Share::content) else { return false };
        self.parked.get_mut(&op).is_some_and(|op| op.looks_whether_it_is_gone(dir))
    }

    /// A part is another rank's than was thought: all begins anew, by the map of now.
    pub(crate) fn share_elsewhere(
        &mut self,
        op: OpId,
        rank: RankId,
        owner: Option<RankId>,
        out: &mut Outbox<Output>,
    ) {
        let by = self.leads.of.get_mut(&op).map(|lead| {
            self.view.hints.unlearn(lead.shares.get(&rank).map_or(&[], |share| &share.parts));
            lead.by.insert(rank);
            lead.by.clone()
        });
        let Some(next) = by.and_then(|by| self.next_to_ask(owner, &by)) else {
            self.end_lead(op, out);
            // It came here meanwhile, or went where it was asked for before it came: it is looked for anew. What is gone is nobody's,
            // and each says that it is another's.
            let again = |op: &mut Box<Op>| (owner.is_some() || op.looks_once_more()) && op.is_sent_back();
            let looks = self.parked.get_mut(&op).is_some_and(again);
            return self.wake_operation(op, (!looks).then_some(Errno::ESTALE));
        };
        self.release_votes(op, out);
        let Some(lead) = self.leads.of.get_mut(&op) else { return };
        let Some(share) = lead.shares.get_mut(&rank) else { return };
        // What it has told of before stays with it.
        let all_follow = stdx::mutant!("mds_all_parts_follow_one");
        let told = if all_follow { 0 } else { share.seen.len() };
        let rest = share.parts.split_off(told.min(share.parts.len()));
        // Whose the system's directories are is known to all.
        let (stay, moved): (Vec<Part>, Vec<Part>) =
            rest.into_iter().partition(|part| is_of_system(part) && !all_follow);
        share.parts.extend(stay);
        if moved.is_empty() {
            return self.lead_anew(op, out);
        }
        if share.parts.is_empty() {
            lead.shares.remove(&rank);
        }
        let parts = &mut lead.shares.entry(next).or_default().parts;
        parts.extend(moved);
        if parts.len() > ITEMS_MAX as usize {
            return self.lead_anew(op, out);
        }
        self.clear_again(op, NOT_YET_NS, out);
    }

    /// One more part than a message takes: most are of names that led elsewhere when they were asked for. What is still needed is asked
    /// for anew; if that is too much again and again, it cannot be done.
    pub(crate) fn asks_for_less(&mut self, op: &mut Op, out: &mut Outbox<Output>) {
        self.end_lead(op.id, out);
        if !op.may_vote() {
            let errno =
                if matches!(op.request, Request::Rename { .. }) { Errno::EXDEV } else { Errno::EBUSY };
            return self.answer(op, Err(errno), false, out);
        }
        op.waits = Waits::Turn;
        let id = op.id;
        self.parked.insert(id, op.take());
        self.runnable.push_back(id);
    }

    /// Something that was told of is not there any more, and nobody says which part that was: all are looked for anew.
    fn lead_anew(&mut self, op: OpId, out: &mut Outbox<Output>) {
        if !self.parked.get_mut(&op).is_some_and(|op| op.is_sent_back()) {
            self.end_lead(op, out);
            return self.wake_operation(op, Some(Errno::ESTALE));
        }
        if let Some(lead) = self.leads.of.get_mut(&op) {
            lead.shares.clear();
            lead.by.clear();
        }
        self.wake_operation(op, None);
    }

    fn wake_operation(&mut self, op: OpId, failed: Option<Errno>) {
        if let Some(parked) = self.parked.get_mut(&op) {
            parked.failed = failed;
            self.plans_again(op);
        }
    }

    /// Nothing stays reserved for this try, and what was asked for it has no answer any more.
    fn release_votes(&mut self, op: OpId, out: &mut Outbox<Output>) {
        let Some(lead) = self.leads.of.get(&op) else { return };
        let (old, ranks): (TxnId, Vec<RankId>) = (lead.id, lead.shares.keys().copied().collect());
        for rank in ranks {
            self.peers.end_question(Question::Share(op, rank));
            self.say_aborted(old, rank, out);
        }
        self.end_try(old);
        let id = self.new_transaction();
        if let Some(lead) = self.leads.of.get_mut(&op) {
            (lead.id, lead.phase) = (id, Phase::Cleared);
            lead.hasty = false;
        }
    }

    /// If that does not arrive, the rank asks what became of it.
    fn say_aborted(&mut self, id: TxnId, rank: RankId, out: &mut Outbox<Output>) {
        if let Some(tid) = self.peers.next_tid(rank) {
            let request = Request::Transact { id, step: Step::Abort };
            let message = ClientMsg::Request { tid, floor: Tid(0), cred: Cred::ROOT, request };
            out.push(Output::SendRank { rank, message });
        }
    }

    /// Not yet: all are asked again what their parts are, and nothing is reserved meanwhile.
    pub(super) fn clear_again(&mut self, op: OpId, after_ns: u64, out: &mut Outbox<Output>) {
        self.release_votes(op, out);
        // It was planned so far that it withheld a directory: to look at a name there the other rank may need a replica of it.
        if !stdx::mutant!("mds_withheld_while_anew") {
            self.view.book.let_go(op);
        }
        let Some(lead) = self.leads.of.get_mut(&op) else { return };
        lead.phase = Phase::Clear;
        let ranks: Vec<RankId> = lead.shares.keys().copied().collect();
        if ranks.is_empty() {
            // Nobody is left to be asked: it is planned without. Waiting for an answer it would never be.
            lead.phase = Phase::Cleared;
            return self.wake_operation(op, None);
        }
        for rank in ranks {
            self.ask_share(op, rank, after_ns);
        }
    }

    /// A rank that does not serve holds the transactions up that it has a part in, and nobody else by them: meanwhile nothing is reserved
    /// or meant for them anywhere, and it is asked alone. Its answer is where they begin anew.
    fn wait_alone(&mut self, out: &mut Outbox<Output>) {
        let Some(map) = self.view.territory.map().cloned() else { return };
        let is_away = |rank: &RankId| map.ranks.get(rank).is_some_and(|info| !info.state.serves_ranks());
        let held_up = |lead: &Lead| {
            let away = lead.shares.iter().find(|(rank, share)| share.asked && is_away(rank))?.0;
            (lead.shares.len() > 1).then_some(*away)
        };
        let ops: Vec<(OpId, RankId)> =
            self.leads.of.iter().filter_map(|(op, lead)| Some((*op, held_up(lead)?))).collect();
        for (op, away) in ops {
            self.release_votes(op, out);
            self.view.book.let_go(op);
            let Some(lead) = self.leads.of.get_mut(&op) else { continue };
            lead.shares.retain(|rank, _| *rank == away);
            lead.shares.values_mut().for_each(|share| share.seen.clear());
            lead.phase = Phase::Clear;
            self.ask_share(op, away, NOT_YET_NS);
        }
    }

    /// An operation looks again; if it is one for which other ranks tell something, by what they tell now.
    pub(crate) fn tell_anew(&mut self, op: OpId, out: &mut Outbox<Output>) {
        if self.leads.of.contains_key(&op) && self.parked.contains_key(&op) {
            return self.clear_again(op, 0, out);
        }
        self.look_again([op]);
    }

    /// The operation goes on by itself, or not at all.
    fn end_lead(&mut self, op: OpId, out: &mut Outbox<Output>) {
        self.release_votes(op, out);
        if let Some(lead) = self.leads.of.remove(&op) {
            self.end_try(lead.id);
        }
    }

    fn end_try(&mut self, id: TxnId) {
        let waiting = self.view.transactions.end_try(id);
        self.runnable.extend(waiting);
    }

    /// Whether all have reserved what the operation is planned by.
    pub(crate) fn has_votes(&self, op: OpId) -> bool {
        self.leads.of.get(&op).is_some_and(|lead| lead.phase == Phase::Voted)
    }

    /// The plan by what is reserved comes to something else than that transaction: all is let go, and asked for again when it
    /// is planned again.
    pub(crate) fn let_votes_go(&mut self, op: OpId, out: &mut Outbox<Output>) {
        if self.has_votes(op) {
            let hasty = self.leads.of.get(&op).is_some_and(|lead| lead.hasty);
            self.release_votes(op, out);
            // Nothing was cleared for it: that comes first.
            if let Some(lead) = self.leads.of.get_mut(&op).filter(|_| hasty) {
                lead.shares.clear();
            }
        }
    }

    /// The transaction at hand is committed with this: the others' changes are in the same entry as this rank's.
    pub(crate) fn decide(&mut self, op: OpId, out: &mut Outbox<Output>) -> Option<TxnId> {
        let mut others = std::mem::take(&mut self.view.txn.others);
        let lead = self.leads.of.remove(&op)?;
        let mut decided = Decided::new();
        for (rank, share) in &lead.shares {
            let told = share.parts.iter().zip(&share.seen);
            if !told.into_iter().any(|(part, seen)| part.is_held(seen)) {
                // It has reserved nothing, and means to do nothing any more.
                self.say_aborted(lead.id, *rank, out);
            } else {
                decided.push((*rank, others.remove(rank).unwrap_or_default()));
            }
        }
        if decided.is_empty() {
            self.end_try(lead.id);
            return None;
        }
        let mut w = Writer::new();
        put_decided(&decided, &mut w);
        let mut left = Writer::new();
        put_left(&self.view.txn.left, &mut left);
        let committed = Mutation::Committed { id: lead.id, decided: &w.0, left: &left.0 };
        committed.encode(&mut self.view.txn.muts);
        Some(lead.id)
    }

    /// It is in the journal: when that is durable, the others are told.
    pub(crate) fn decided(&mut self, id: TxnId) {
        self.end_try(id);
        if stdx::mutant!("mds_told_before_durable") {
            return self.settle(id);
        }
        self.hold(Waiting::Decided { id });
    }

    /// The others carry it out.
    pub(crate) fn settle(&mut self, id: TxnId) {
        let Some(decided) = self.view.transactions.committed.get(&id).cloned() else { return };
        self.leads.told.insert(id, decided.iter().map(|(rank, _)| *rank).collect());
        for (rank, changes) in decided {
            let request = Request::Transact { id, step: Step::Commit { changes } };
            self.ask_unawaited(Question::Settle(id, rank), rank, request, 0);
        }
    }

    /// The rank lives again: it tells what was decided before, and asks what became of what is reserved here.
    pub(crate) fn resolve_transactions(&mut self) {
        let committed: Vec<TxnId> = self.view.transactions.committed.keys().copied().collect();
        if !stdx::mutant!("mds_decided_not_told_again") {
            committed.into_iter().for_each(|id| self.settle(id));
        }
        self.ask_outcomes(None);
    }

    fn settled_by(&mut self, now: Now, id: TxnId, rank: RankId, outcome: Outcome, out: &mut Outbox<Output>) {
        if let Err(errno) = outcome
            && let Some((_, changes)) = self
                .view
                .transactions
                .committed
                .get(&id)
                .and_then(|decided| decided.iter().find(|(of, _)| *of == rank).cloned())
        {
            if errno != Errno::EBUSY {
                let text = format!("rank {} does not carry transaction {:#x} out: {errno}", rank.0, id.0);
                out.push(Output::Note { level: Level::Error, text });
            }
            let request = Request::Transact { id, step: Step::Commit { changes } };
            return self.ask_unawaited(Question::Settle(id, rank), rank, request, FAILED_NS);
        }
        let Some(waits) = self.leads.told.get_mut(&id) else { return };
        waits.remove(&rank);
        if waits.is_empty() || stdx::mutant!("mds_forgotten_early") {
            self.leads.told.remove(&id);
            Mutation::Resolved { id, left: &no_left().0 }.encode(&mut self.view.txn.muts);
            self.commit(now, None, out);
        }
    }

    /// What was asked for operations that are over is given up.
    #[inline]
    pub(crate) fn leads_turn(&mut self, out: &mut Outbox<Output>) {
        if !self.leads.of.is_empty() {
            self.look_at_leads(out);
            if self.view.territory.has_away() && !stdx::mutant!("mds_votes_held_for_the_dead") {
                self.wait_alone(out);
            }
        }
    }

    fn look_at_leads(&mut self, out: &mut Outbox<Output>) {
        let has_data = |id: OpId| {
            self.pending.values().any(|pending| matches!(pending, Pending::Op(op, ..) if op.id == id))
        };
        let over: Vec<OpId> = self
            .leads
            .of
            .keys()
            .copied()
            .filter(|id| !self.parked.contains_key(id) && !has_data(*id))
            .collect();
        for op in over {
            self.end_lead(op, out);
        }
    }
}
