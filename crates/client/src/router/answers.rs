//! Answers on their way to callers: several that are one, and syncs that another rank has a part in.
//!
//! Absent: calls that a rank sends away (`bounces.rs`).

use super::Out;
use super::many::Many;
use super::route::Place;
use crate::input::CallId;
use crate::machine::Client;
use crate::output::Output;
use crate::validity::Validity;
use proto::plain_replies;
use proto::reply::{Outcome, Reply};
use proto::{Attr, Errno, FileKind, Ino, NodeRef, RankId, Tid};
use std::collections::BTreeMap;

/// What ranks' clients have said, and callers do not know yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Answers {
    /// Calls that several ranks were asked.
    joints: BTreeMap<CallId, Joint>,
    /// Syncs before which something was moved at other ranks, or changed there in what is synced.
    follows: BTreeMap<CallId, Follow>,
    /// Answers to such syncs that wait for that.
    held: Vec<Held>,
}

#[derive(Clone, Copy, Debug)]
struct Joint {
    left: usize,
    failed: Option<Errno>,
}

/// What has to be durable at other ranks.
#[derive(Clone, Debug, Default)]
struct Follow {
    until: Vec<(RankId, Tid)>,
    /// It never will be.
    lost: bool,
}

#[derive(Clone, Debug)]
struct Held {
    call: CallId,
    outcome: Outcome,
    validity: Validity,
    follow: Follow,
}

impl Answers {
    /// A call is asked of several ranks.
    pub(super) fn joins(&mut self, call: CallId, parts: usize) {
        if parts > 1 {
            self.joints.insert(call, Joint { left: parts, failed: None });
        }
    }

    /// One of them has answered. What all have, if it was the last.
    fn part(&mut self, call: CallId, outcome: Outcome) -> Option<Outcome> {
        let Some(joint) = self.joints.get_mut(&call) else { return Some(outcome) };
        joint.left -= 1;
        joint.failed = joint.failed.or(outcome.as_ref().err().copied());
        let Joint { left: 0, failed } = *joint else { return None };
        self.joints.remove(&call);
        Some(failed.map_or(outcome, Err))
    }

    /// What a rank's session had performed or was told of will not come about by it.
    pub(super) fn lost(&mut self, rank: RankId) {
        let follows = self.follows.values_mut().chain(self.held.iter_mut().map(|held| &mut held.follow));
        for follow in follows.filter(|follow| follow.until.iter().any(|(at, _)| *at == rank)) {
            follow.lost = true;
        }
    }

    pub(super) fn held(&self) -> usize {
        self.held.len()
    }
}

impl Many {
    /// A sync of an inode is about its place as well. What this client has moved at other ranks, where it may have been above it, has
    /// to be durable before its caller is told. And so has what it changed in that directory itself: if slots place it, or a part of it
    /// that has no entry, no map shows who has that besides the home, and what is known of it from answers may be forgotten, or be of
    /// after the change. What is kept shows where it was made. So has what it changed of the inode itself: by an old place the rank
    /// of a directory's content may be taken for its home, and answers for its part.
    pub(super) fn follows_others(&mut self, call: CallId, node: Ino, home: Option<RankId>) {
        let others = self.clients.iter().filter(|client| Some(client.rank()) != home);
        let until = others.filter_map(|client| Some((client.rank(), client.last_kept_about(node)?)));
        let until: Vec<(RankId, Tid)> = until.collect();
        // A sync that is asked again may have followed something that was lost while it waited: there is nothing left of that to follow.
        let former = self.answers.follows.remove(&call);
        let lost = former.is_some_and(|follow| follow.lost);
        if (lost || !until.is_empty()) && !stdx::mutant!("client_sync_of_one_rank") {
            self.answers.follows.insert(call, Follow { until, lost });
        }
    }

    /// A rank's client answers a call.
    pub(super) fn on_answer(
        &mut self,
        rank: RankId,
        call: CallId,
        outcome: Outcome,
        mut validity: Validity,
        out: &mut Out,
    ) {
        if self.is_own_call(call) {
            self.bounces.remove(&call);
            return;
        }
        let Some(outcome) = self.opening_goes_on(call, outcome, &mut validity, out) else { return };
        self.learn(rank, call, &outcome);
        self.learn_hint(rank, call, &outcome);
        let Some(outcome) = self.answers.part(call, outcome) else { return };
        match self.answers.follows.remove(&call) {
            Some(follow) if outcome.is_ok() => {
                self.answers.held.push(Held { call, outcome, validity, follow });
            }
            None | Some(_) => self.answer(call, outcome, validity, out),
        }
    }

    /// What an answer shows of where things are: a directory is with what it is in, unless the map says otherwise; and who answers
    /// for an inode that others were asked for has what is in its directory.
    fn learn(&mut self, rank: RankId, call: CallId, outcome: &Outcome) {
        let mut one = |attr: &Attr| {
            if attr.kind() == FileKind::Directory {
                self.places.learn(attr.ino, rank, attr.parent);
            }
        };
        let attr = match outcome {
            Ok(Reply::Attr(attr) | Reply::Created { attr, .. } | Reply::Written { attr, .. }) => attr,
            Ok(Reply::Entries { entries, .. }) => {
                return entries.iter().filter_map(|entry| entry.attr.as_ref()).for_each(one);
            }
            Ok(plain_replies!()) | Err(_) => return,
        };
        one(attr);
        if self.bounces.contains_key(&call) && !attr.parent.is_reserved() {
            self.places.learn(attr.parent, rank, Ino::NONE);
        }
    }

    /// The same, where nothing at all is known of the directory that the hint names: a file that is open may have outlived it.
    fn learn_hint(&mut self, rank: RankId, call: CallId, outcome: &Outcome) {
        let Some(seen_in) = self.bounces.get(&call).and_then(|bounced| bounced.seen_in) else { return };
        let hint = NodeRef::bare(seen_in);
        if !seen_in.is_reserved() && outcome.is_ok() && self.owner(Place::Inside(hint, None)).is_none() {
            self.places.learn(seen_in, rank, Ino::NONE);
        }
    }

    /// Answers what has waited long enough.
    pub(super) fn answer_held(&mut self, out: &mut Out) {
        if self.answers.held.is_empty() {
            return;
        }
        for mut held in std::mem::take(&mut self.answers.held) {
            let clients = &self.clients;
            let kept = |rank: RankId, tid: Tid| {
                let client = clients.iter().find(|client| client.rank() == rank);
                client.and_then(Client::first_kept).is_some_and(|first| first <= tid)
            };
            held.follow.until.retain(|(rank, tid)| kept(*rank, *tid));
            match (held.follow.lost, held.follow.until.is_empty()) {
                (true, _) => self.answer(held.call, Err(Errno::EIO), Validity::default(), out),
                (false, true) => self.answer(held.call, held.outcome, held.validity, out),
                (false, false) => self.answers.held.push(held),
            }
        }
    }

    /// Whoever waited for it is being killed.
    pub(super) fn abandon_held(&mut self, call: CallId, out: &mut Out) {
        let Some(at) = self.answers.held.iter().position(|held| held.call == call) else { return };
        if self.config.retry {
            self.answers.held.remove(at);
            self.answer(call, Err(Errno::EINTR), Validity::default(), out);
        }
    }

    /// It is not waited for any longer.
    pub(super) fn fail_held(&mut self, out: &mut Out) {
        for held in std::mem::take(&mut self.answers.held) {
            self.answer(held.call, Err(Errno::EIO), Validity::default(), out);
        }
        self.answers.follows.values_mut().for_each(|follow| follow.lost = true);
    }

    /// An answer goes to its caller.
    pub(super) fn answer(&mut self, call: CallId, outcome: Outcome, validity: Validity, out: &mut Out) {
        self.bounces.remove(&call);
        out.push(Output::Answer { call, outcome, validity });
    }
}
