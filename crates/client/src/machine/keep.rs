//! What the edge may keep: recalls, losses, and when the rank may grant again; and which names the machine knows to be absent.
//!
//! Absent: the books of what is void (`validity.rs`) and of absent names (`negatives.rs`).

use super::{Client, Link, Out};
use crate::negatives::may_change;
use crate::output::Output;
use crate::validity::{Validities, Validity};
use crate::window::Sent;
use proto::caps::{Bits, Grants, Recalled, Returned};
use proto::message::ClientMsg;
use proto::plain_replies;
use proto::reply::{Outcome, Reply};
use proto::request::Request;
use proto::{Attr, Ino, Tid};
use stdx::Mono;

impl Client {
    pub(super) fn on_recall(&mut self, mut list: Vec<Recalled>, out: &mut Out) {
        let inos = list.iter().map(|recalled| recalled.ino);
        let stamp = self.validities.recall(inos, self.window.next(), self.window.unanswered());
        if self.config.wants == Bits::NONE {
            let list = list.iter().map(|recalled| recalled.returned(recalled.bits)).collect();
            return self.on_returned(stamp, list, out);
        }
        let mut returned = Vec::new();
        for item in &list {
            if !stdx::mutant!("client_keeps_negatives") {
                self.negatives.remove(item.ino);
            }
            if !(item.bits.has(Bits::ALONE) && stdx::mutant!("client_keeps_file")) {
                self.delegations.recalled(item.ino);
            }
            if item.bits.has(Bits::FC) {
                self.keeps_no_pages(item.ino);
            }
            if !item.bits.and(Bits::DELEGATED).is_empty() && !stdx::mutant!("client_keeps_delegation") {
                self.delegations.end(item.ino);
            }
        }
        list.retain(|item| {
            // Of what is delegated the edge has nothing.
            let own = !item.bits.is_empty() && item.bits.without(Bits::DELEGATED).is_empty();
            if own {
                returned.push(item.returned(item.bits));
            }
            !own
        });
        self.on_returned(stamp, returned, out);
        if !list.is_empty() {
            out.push(Output::Recalled { stamp, list });
        }
    }

    /// What was recalled before the connection broke is not owed any more: the rank hears `Settled` instead, and could take the
    /// answer for one to a later recall.
    pub(super) fn on_returned(&mut self, stamp: u64, list: Vec<Returned>, out: &mut Out) {
        if self.link == Link::Up && self.validities.stands(stamp) && !list.is_empty() {
            out.push(Output::Send { rank: self.rank(), message: ClientMsg::Returned { list } });
        }
    }

    pub(super) fn tick_leaves(&mut self, now: Mono, out: &mut Out) {
        if self.lease_end.is_some_and(|end| end <= now) {
            // The rank may have given the session up. If it has not, nothing is wrong with having dropped everything.
            self.lease_end = None;
            self.lose(out);
        }
        let settles_at = self.validities.settles_at();
        let at = if stdx::mutant!("client_settled_at_once") { Some(now) } else { settles_at };
        let follows = self.rewrites.resuming.is_none();
        if follows && settles_at.is_some() && at.is_some_and(|at| at <= now) {
            self.validities.settle(self.window.next());
            out.push(Output::Send { rank: self.rank(), message: ClientMsg::Settled });
        }
    }

    pub(super) fn note_negatives(
        &mut self,
        now: Mono,
        tid: Tid,
        answered: (&Sent, &Outcome),
        validity: &Validity,
    ) {
        let changing = |lookup: &Request| {
            let mut under_way = self.window.iter().filter_map(|(_, pending)| pending.sent.as_ref());
            under_way.any(|sent| may_change(&sent.request, lookup))
                && !stdx::mutant!("client_negative_while_made")
        };
        self.negatives.answered(now, tid, answered, validity, (self.window.next(), changing));
    }

    /// Everything handed out so far is void.
    pub(super) fn lose(&mut self, out: &mut Out) {
        let stamp = self.validities.lose(self.window.next());
        self.negatives.clear();
        self.idle.clear();
        out.push(Output::Lost { stamp });
    }

    /// Of a session that may have been given up nothing is kept.
    fn may_be_given_up(&self, now: Mono) -> bool {
        self.config.retry && self.lease_end.is_none_or(|end| end <= now)
    }

    /// What an answer grants of a directory that is delegated. Whoever works in it has changed it since it was asked for, so that
    /// the answer's attributes may not be kept; those that are known here may.
    pub(super) fn note_granted(
        &mut self,
        now: Mono,
        tid: Tid,
        asked: Mono,
        grants: &Grants,
        outcome: &Outcome,
    ) {
        let Ok(Reply::Attr(Attr { ino, .. })) = outcome else { return };
        if self.may_be_given_up(now) {
            return;
        }
        if let Some(delegation) = self.delegations.get_mut(*ino) {
            let until = Validities::limit(now, asked, !self.config.retry);
            delegation.grants(&self.validities.of_known(tid, grants.of(0), *ino, until));
        }
    }

    pub(super) fn validity(
        &mut self,
        now: Mono,
        tid: Tid,
        asked: Mono,
        grants: Grants,
        outcome: &Outcome,
    ) -> Validity {
        if grants == Grants::None || self.may_be_given_up(now) {
            return Validity::default();
        }
        let until = Validities::limit(now, asked, !self.config.retry);
        match outcome {
            Ok(Reply::Attr(attr) | Reply::Created { attr, .. } | Reply::Written { attr, .. }) => {
                self.validities.of(tid, grants, std::iter::once(attr.ino), until)
            }
            Ok(Reply::Entries { entries, .. }) => {
                let inos = entries.iter().map(|entry| entry.attr.as_ref().map_or(Ino::NONE, |attr| attr.ino));
                self.validities.of(tid, grants, inos, until)
            }
            Ok(plain_replies!()) | Err(_) => Validity::default(),
        }
    }
}
