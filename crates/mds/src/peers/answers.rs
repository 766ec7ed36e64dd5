//! What comes of what other ranks answer: who waits for it learns it, and plans again. docs/PROTOCOL.md, "Ranks among themselves".
//!
//! Absent: what is asked, and when again (`peers/asks.rs`); what is kept of it (`replicas.rs`, `totals.rs`).

use super::Question;
use super::asks::Asking;
use crate::heat::Load;
use crate::op::{Learned, OpId, Waits};
use crate::output::{Level, Output};
use crate::rank::Rank;
use crate::territory::Side;
use proto::cluster::Unit;
use proto::header::FragHeader;
use proto::reply::{Outcome, Reply};
use proto::request::Request;
use proto::{Errno, Frag, Ino, RankId, Tid};
use std::collections::BTreeSet;
use stdx::{Now, Outbox};

/// The part of a directory that a rank is asked for.
fn unit_of(request: &Request) -> Option<Unit> {
    match request {
        Request::Totals { unit } | Request::Heat { unit } | Request::Hand { unit, .. } => {
            Some(*unit).filter(|unit| unit.frag != Frag::WHOLE)
        }
        proto::every_request!() => None,
    }
}

impl Rank {
    fn asked_as(&self, from: (RankId, Tid)) -> Option<Question> {
        let is = |asking: &Asking| (asking.rank, asking.tid) == (from.0, Some(from.1));
        self.peers.questions.iter().find(|(_, asking)| is(asking)).map(|(question, _)| *question)
    }

    /// Another rank takes back what it told.
    pub(super) fn recalled_by(&mut self, rank: RankId, ino: Ino) {
        if !stdx::mutant!("mds_totals_not_given_back") {
            self.view.totals.recalled(ino);
        }
        self.part_changes(ino);
        self.drop_replica(ino);
        // It may have overtaken an answer, which waited for the journal.
        let crossed = |(question, asking): &(&Question, &mut Asking)| {
            asking.rank == rank && question.recallable() == Some(ino)
        };
        if !stdx::mutant!("mds_recall_overtakes_told") {
            self.peers.questions.iter_mut().filter(crossed).for_each(|(_, asking)| asking.anew());
        }
    }

    fn home_told(&mut self, rank: RankId, question: Question, outcome: &Outcome) {
        if let (Question::Replica(_) | Question::Facts(_), Ok(Reply::Record { place, .. })) =
            (question, outcome)
        {
            self.peers.homes.told(place.parent, self.view.territory.version(), rank);
        }
    }

    /// An answer; `counts`: until it is recalled.
    pub(super) fn told(
        &mut self,
        now: Now,
        from: (RankId, Tid),
        (outcome, counts): (Outcome, bool),
        out: &mut Outbox<Output>,
    ) {
        let Some(question) = self.asked_as(from) else { return };
        let outcome = match outcome {
            // Not now: somebody changes it, or the rank does not serve yet.
            Err(Errno::EAGAIN | Errno::ESHUTDOWN) => return self.ask_later(now, question),
            other => other,
        };
        if matches!((question, &outcome), (Question::Hand(..) | Question::Unpin(_), Ok(Reply::Ok)))
            && self.is_by_another_map(question)
        {
            return self.ask_later(now, question);
        }
        self.home_told(from.0, question, &outcome);
        let Some(asking) = self.peers.questions.remove(&question) else { return };
        if matches!(question, Question::Share(..) | Question::Settle(..) | Question::Outcome(_)) {
            return self.share_told(now, question, outcome, out);
        }
        let learned = match (question, outcome) {
            (Question::Replica(ino), Ok(Reply::Record { place, name, value })) => {
                self.take_replica(from.0, ino, (place, &name, &value), &asking.waiters).map(|()| None)
            }
            (Question::Facts(ino), outcome) => {
                self.take_facts(ino, outcome, &asking.waiters);
                Ok(None)
            }
            (Question::Totals(dir), Ok(Reply::Totals(bytes))) => {
                let header = self.take_totals(from.0, dir, &bytes, counts);
                header.map(|header| self.has_learned(dir, header, &asking.waiters))
            }
            (Question::Heat(number), Ok(Reply::Xattr(bytes))) => {
                self.take_load(number, &bytes, &asking.waiters).map(|()| None)
            }
            (Question::SetTimes(dir, ..), Ok(Reply::Totals(bytes))) => {
                let header = self.take_totals(from.0, dir, &bytes, counts);
                header.map(|header| Some(Learned::Times(dir, header)))
            }
            (Question::Linked(ino), Ok(Reply::Attr(attr))) if attr.ino == ino => {
                Ok(Some(Learned::Attr(attr)))
            }
            (Question::Hand(..) | Question::Unpin(_), Ok(Reply::Ok)) => Ok(None),
            (Question::Opened(ino, _), Ok(Reply::Ok)) => {
                let waiters = asking.waiters.iter();
                waiters.for_each(|id| {
                    self.parked.entry(*id).and_modify(|op| op.hears().opened = ino);
                });
                Ok(None)
            }
            (Question::Sessions(_) | Question::Holders(..), outcome) => {
                self.moves.heard = Some(outcome.is_ok());
                Ok(None)
            }
            (_, Err(errno)) => Err(errno),
            (
                Question::Replica(_)
                | Question::Totals(_)
                | Question::Heat(_)
                | Question::Linked(_)
                | Question::Hand(..)
                | Question::Unpin(_)
                | Question::SetTimes(..)
                | Question::Opened(..)
                | Question::Share(..)
                | Question::Settle(..)
                | Question::Outcome(_),
                Ok(_),
            ) => {
                let text = format!("rank {} answers something else than it was asked", from.0.0);
                out.push(Output::Note { level: Level::Error, text });
                Err(Errno::EIO)
            }
        };
        self.has_heard(question, asking, learned);
    }

    /// Another rank has handed something over, or had, and this one has had no map since it asked. Whoever waits would plan the same by the
    /// same map, and ask the same at once (489,484 of 603,097 events of a run). It is asked again all the same: it may be the other rank
    /// that is behind.
    fn is_by_another_map(&mut self, question: Question) -> bool {
        let version = self.view.territory.version();
        let Some(asking) = self.peers.questions.get_mut(&question) else { return false };
        let is_awaited = !asking.waiters.is_empty() || !asking.late.is_empty();
        asking.done = is_awaited && asking.since == version && !stdx::mutant!("mds_handed_asked_at_once");
        asking.done
    }

    /// Operations that wait for it plan again with what was told.
    pub(super) fn has_heard(
        &mut self,
        question: Question,
        asking: Asking,
        learned: Result<Option<Learned>, Errno>,
    ) {
        if let (Some(unit), Err(Errno::ESTALE)) = (unit_of(&asking.request), &learned) {
            return self.part_is_gone(unit, asking);
        }
        // The directory may be gone by now: the operation that waits looks for it again.
        let gone = matches!(
            (question, &learned),
            (
                Question::Totals(_) | Question::Heat(_) | Question::Replica(_) | Question::SetTimes(..),
                Err(Errno::ESTALE)
            )
        );
        // Who has the content may have lost sight of the inode while its home moved, there and back: who asks has that, or whoever has it now.
        let is_unseen =
            matches!((question, &learned), (Question::Hand(..) | Question::Unpin(_), Err(Errno::ESTALE)))
                && !stdx::mutant!("mds_unseen_is_gone");
        // So may be the parts that it went by when it asked for that.
        let parts_gone = gone && matches!(question, Question::SetTimes(..));
        for id in asking.waiters {
            let Some(op) = self.parked.get_mut(&id) else { continue };
            if parts_gone && !stdx::mutant!("mds_times_set_by_old_parts") {
                op.hears().units.clear();
            }
            match &learned {
                Ok(None) => {}
                Ok(Some(learned)) => op.hears().learned = Some(Box::new(learned.clone())),
                Err(_) if (gone || is_unseen) && op.is_sent_back() => {}
                // Its home says what is no directory. Whoever is limited to one hears no more of that than of anything else outside.
                Err(Errno::ENOTDIR) if op.limit != Ino::NONE && !stdx::mutant!("mds_limit_tells_kind") => {
                    op.failed = Some(Errno::EACCES);
                }
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
        let others = self.peers.questions.values_mut().filter(|other| {
            matches!(other.request, Request::Totals { unit: of } | Request::Heat { unit: of } if of.dir == unit.dir)
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
        // A unit is asked for by its hashes. Merged and spread again meanwhile, the directory has another one that has these. What it says
        // does not go together with what the directory's header said before: the time shown was one that had been set before the last
        // change.
        let another = header.told().is_some_and(|(number, _)| number != dir);
        if another && !stdx::mutant!("mds_units_of_another_time") {
            return Err(Errno::ESTALE);
        }
        self.view.totals.told(rank, dir, &header, counts);
        self.spreads.part_told(dir, &header, counts);
        Ok(header)
    }

    fn take_load(&mut self, number: Ino, bytes: &[u8], waiters: &BTreeSet<OpId>) -> Result<(), Errno> {
        let load = Load::decode(bytes).ok_or(Errno::EIO)?;
        for id in waiters {
            if let Some(op) = self.parked.get_mut(id) {
                op.hears().loads.insert(number, load);
            }
        }
        Ok(())
    }

    pub(super) fn told_elsewhere(
        &mut self,
        now: Now,
        from: (RankId, Tid),
        (owner, version): (Option<RankId>, u64),
        out: &mut Outbox<Output>,
    ) {
        let Some(question) = self.asked_as(from) else { return };
        if version != self.view.territory.version() && !stdx::mutant!("mds_maps_taken_for_equal") {
            // One of both has not heard of the other's map: nobody knows yet.
            return self.ask_later(now, question);
        }
        self.is_elsewhere(now, question, (from.0, owner), out);
    }

    /// By the map of now a rank has not what it was asked for; perhaps it knows who has.
    pub(super) fn is_elsewhere(
        &mut self,
        now: Now,
        question: Question,
        (from, owner): (RankId, Option<RankId>),
        out: &mut Outbox<Output>,
    ) {
        if let Question::Share(op, rank) = question {
            return self.share_elsewhere(op, rank, owner, out);
        }
        // Many are asked for the parts of one directory, which move: that one came is no sign that it is gone.
        let request = self.peers.questions.get(&question).map(|asking| asking.request.clone());
        let is_here = match (question, &request) {
            (
                Question::Totals(number) | Question::Heat(number),
                Some(Request::Totals { unit } | Request::Heat { unit }),
            ) => {
                match self.view.side_of_unit((number, *unit)) {
                    Some(Side::Mine | Side::Sealed) => true,
                    Some(Side::Other(_)) => false,
                    // It has no entry any more, and its directory has none.
                    None => self.owner(unit.dir) == Some(self.view.config.rank),
                }
            }
            // Nobody else is asked for it, who may be dead.
            (Question::SetTimes(dir, ..), _) => {
                self.owner(dir) == Some(self.view.config.rank)
                    && !stdx::mutant!("mds_times_set_of_what_came_home")
            }
            (_, _) => false,
        };
        if let Some(asking) = self.peers.questions.get_mut(&question).filter(|_| !is_here) {
            asking.by.insert(from);
            let by = asking.by.clone();
            if let Some(next) = self.next_to_ask(owner, &by) {
                return self.ask_again(now, question, next, owner == Some(next));
            }
        }
        // It became this rank's meanwhile, or nobody knows: the operations look again, by the map of then.
        let Some(asking) = self.peers.questions.remove(&question) else { return };
        if let Some(unit) = unit_of(&asking.request).filter(|_| !is_here) {
            return self.part_is_gone(unit, asking);
        }
        for id in asking.waiters {
            if let Some(op) = self.parked.get_mut(&id) {
                if let Question::Facts(ino) = question {
                    op.hears().has_no_slot(ino, !is_here);
                } else if !is_here && !op.is_sent_back() {
                    op.failed = Some(Errno::ESTALE);
                }
                self.plans_again(id);
            }
        }
        self.look_again(asking.late);
    }

    /// Operations plan again.
    pub(crate) fn look_again(&mut self, ops: impl IntoIterator<Item = OpId>) {
        ops.into_iter().for_each(|id| self.plans_again(id));
    }

    /// Not while it waits for the store, whose answer wakes it: it had asked other ranks for several things, and a search that was woken
    /// by the next of them would go on as if it had looked where that answer is to come from.
    pub(crate) fn plans_again(&mut self, id: OpId) {
        if self.parked.get(&id).is_some_and(|op| self.sets_times(op)) {
            return;
        }
        let Some(op) = self.parked.get_mut(&id) else { return };
        if op.waits != Waits::Store || stdx::mutant!("mds_woken_from_store") {
            op.waits = Waits::Turn;
            self.runnable.push_back(id);
        }
    }
}
