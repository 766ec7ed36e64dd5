//! Answers before durability: what is kept to be sent again, what comes of it, and what comes too late.
//!
//! Absent: who may be answered so; the rank decides, or `perform.rs` did.

use super::{Client, Life, Link, Out, Queued};
use crate::kept::{self, Kept};
use crate::output::Output;
use crate::validity::Validity;
use crate::window::{Pending, Sent};
use proto::caps::{Bits, Grants};
use proto::every_request;
use proto::message::{ClientMsg, Delegated, Told};
use proto::reply::{Outcome, Reply};
use proto::request::Request;
use proto::{Errno, Ino, NodeRef, Position, Tid};
use std::collections::BTreeMap;
use stdx::{Mono, Now, Wall};

/// What an early answer says besides the answer.
pub(super) struct Early<'a> {
    pub(super) position: Position,
    pub(super) wall: Wall,
    pub(super) delegated: &'a [Delegated],
}

impl Client {
    /// Whether anything of this file, and of `perform.rs`, is of concern. A rank refuses what a limited session performs.
    pub(super) const fn is_delegable(&self) -> bool {
        let limited = self.root.0 != Ino::ROOT.0;
        self.config.retry && self.config.wants.has(Bits::DX) && !limited
    }

    pub(super) fn on_early(
        &mut self,
        now: Now,
        tid: Tid,
        (outcome, grants): (Outcome, Grants),
        early: Early<'_>,
        out: &mut Out,
    ) {
        if !self.is_delegable() {
            return self.on_reply(now.mono, tid, outcome, grants, out);
        }
        self.time.heard(early.wall, now.mono);
        if self.window.kept.contains(tid) {
            return self.on_reply_to_kept(tid, outcome, Some(early.position), out);
        }
        let Some(pending) = self.window.remove(tid) else { return };
        self.answer_pending(now.mono, (tid, pending), outcome, grants, Some(early), out);
    }

    /// What an answer teaches, and delegates.
    pub(super) fn learn(
        &mut self,
        now: Mono,
        tid: Tid,
        (request, outcome): (&Request, &Outcome),
        validity: &Validity,
        delegated: &[Delegated],
    ) {
        let tids = self.window.tids();
        if !self.delegations.is_empty() {
            self.delegations.answered(tid, request, outcome, validity, tids);
            if let Some((dir, after)) = self.delegations.listed(tid, request, outcome) {
                self.queue.push_back(super::send::page(dir, after));
            }
        }
        for dir in delegated {
            self.delegate(tid, dir);
            self.is_delegated_now(now, dir.dir.ino);
        }
        self.delegate_file(now, tid, outcome, validity);
        // What it delegated it shows after its own change.
        self.delegations.crosses(request, tids);
    }

    fn delegate(&mut self, tid: Tid, delegated: &Delegated) {
        let void = self.validities.is_void(tid, delegated.dir.ino);
        if void && !stdx::mutant!("client_recall_overtakes_delegation") {
            return;
        }
        let under_way = self.window.iter().filter_map(|(tid, p)| Some((tid, &p.sent.as_ref()?.request)));
        self.delegations.begin(delegated, (tid, self.window.next()), self.numbers.seed(), under_way);
    }

    /// A recall that has overtaken the answer leaves nothing of the grant.
    fn delegate_file(&mut self, now: Mono, tid: Tid, outcome: &Outcome, validity: &Validity) {
        let (Ok(Reply::Attr(attr) | Reply::Created { attr, .. } | Reply::Written { attr, .. }), true) =
            (outcome, validity.grants.of(0).has(Bits::ALONE) && self.time.is_known())
        else {
            return;
        };
        let under_way = self.window.iter().filter_map(|(tid, p)| Some((tid, &p.sent.as_ref()?.request)));
        self.delegations.begin_file(attr, validity, tid, self.numbers.seed(), under_way);
        self.is_delegated_now(now, attr.ino);
    }

    /// The caller has its answer; the request stays until that is durable.
    pub(super) fn keep(&mut self, tid: Tid, pending: &mut Pending, early: &Early<'_>, outcome: &Outcome) {
        if outcome.is_err() {
            return;
        }
        let Some(Sent { cred, mut request }) = pending.sent.take().map(|sent| *sent) else { return };
        if stdx::mutant!("client_forgets_early") {
            return;
        }
        if let Ok(Reply::Written { count, .. }) = outcome {
            kept::shorten(&mut request, *count);
        }
        let bytes = request.payload_bytes();
        let told = Told { ino: new_inode(&request, outcome), wall: early.wall, heard: true };
        let opened = opened(&request, outcome);
        let position = Some(early.position);
        self.window.kept.insert(tid, Kept { cred, request, told, opened, bytes, position });
    }

    /// The rank carried out what was sent again, or performed here. `position`: it is durable from there on; none: it is.
    pub(super) fn on_reply_to_kept(
        &mut self,
        tid: Tid,
        outcome: Outcome,
        position: Option<Position>,
        out: &mut Out,
    ) {
        if outcome != Err(Errno::ESHUTDOWN) && self.on_rewritten(tid, &outcome, out) {
            return;
        }
        match (outcome, position) {
            // The rank stops; its next life hears of it.
            (Err(Errno::ESHUTDOWN), _) if self.life != Life::Over => return,
            (Ok(_), Some(position)) => self.window.kept.heard(tid, position),
            (Ok(_), None) => drop(self.window.kept.remove(tid)),
            (Err(errno), _) => {
                let Some(kept) = self.window.kept.remove(tid) else { return };
                if let Some(node) = kept.opened {
                    self.held.released(node.ino, 1);
                }
                self.delegations.doubt(kept.told.ino, self.window.next());
                late(&kept, errno, out);
            }
        }
        self.answer_syncs(out);
    }

    pub(super) fn on_durable(&mut self, position: Position) {
        self.window.kept.durable(position);
    }

    /// What was kept cannot be carried out any more.
    pub(super) fn lose_kept(&mut self, out: &mut Out) {
        self.delegations.end_all();
        for kept in self.window.kept.take_all().into_values() {
            late(&kept, Errno::EIO, out);
        }
        self.answer_syncs(out);
    }

    /// An answer to a sync that has overtaken what comes of an operation before it would say too much: it waits.
    pub(super) fn waits_as_sync(&self, tid: Tid, pending: &Pending, outcome: &Outcome) -> bool {
        let syncs = |request: &Request| matches!(request, Request::Fsync { .. } | Request::SyncFs);
        let unanswered = self.window.kept.first_unanswered().is_some_and(|first| first < tid);
        outcome.is_ok()
            && (unanswered || self.awaits_rewritten())
            && pending.sent.as_ref().is_some_and(|sent| syncs(&sent.request))
            && !stdx::mutant!("client_sync_overtakes_late")
    }

    /// Answers the syncs before which nothing is unanswered any more. What has to be rewritten has younger tids than some, and
    /// comes before all of them.
    pub(super) fn answer_syncs(&mut self, out: &mut Out) {
        if self.link != Link::Up || self.awaits_rewritten() {
            return;
        }
        let unanswered = self.window.kept.first_unanswered();
        while let Some(entry) = self.syncs.first_entry()
            && unanswered.is_none_or(|first| *entry.key() < first)
        {
            let (call, outcome) = (entry.remove(), Ok(Reply::Ok));
            out.push(Output::Answer { call, outcome, validity: Validity::default() });
        }
    }

    /// Sends again what is not durable, in the order of the first time, and what has no answer: each request behind everything
    /// of before it that is kept.
    pub(super) fn send_again(&self, out: &mut Out) {
        let floor = self.window.floor();
        let again: Vec<(Tid, &Kept)> = self.window.kept.again().collect();
        // The lowest tid from here to the end.
        let mut lowest = vec![Tid(u64::MAX); again.len() + 1];
        for (at, (tid, _)) in again.iter().enumerate().rev() {
            lowest[at] = lowest[at + 1].min(*tid);
        }
        let mut pending = self.window.iter().peekable();
        let mut cancels = Vec::new();
        for (at, lowest) in lowest.into_iter().enumerate() {
            while let Some((tid, pending)) = pending.next_if(|(tid, _)| *tid < lowest) {
                let Some(Sent { cred, request }) = pending.sent.as_deref().cloned() else { continue };
                out.push(Output::Send {
                    rank: self.rank(),
                    message: ClientMsg::Request { tid, floor, cred, request },
                });
                if pending.cancelled || pending.renewing {
                    cancels.push(Output::Send { rank: self.rank(), message: ClientMsg::Cancel { tid } });
                }
            }
            if let Some((tid, kept)) = again.get(at) {
                out.push(Output::Send { rank: self.rank(), message: performed(*tid, floor, kept) });
            }
        }
        out.append(&mut cancels);
    }

    /// Opens that are counted when what is kept is carried out again, by inode.
    pub(super) fn opens_again(&self) -> BTreeMap<Ino, (NodeRef, u32)> {
        let mut again = BTreeMap::new();
        for node in self.window.kept.iter().filter_map(|(_, kept)| kept.opened) {
            again.entry(node.ino).or_insert((node, 0)).1 += 1;
        }
        again
    }

    /// What was closed while its open was kept is opened once more, and nobody else would close it. What has gone to another rank with its
    /// open is open there: what this one counts again of it, which it has no more, is its alone to end. What broke: that was released as
    /// well, the rank sent it away, and where the file was the only open that it had was closed.
    pub(super) fn release_again(&mut self, again: BTreeMap<Ino, (NodeRef, u32)>) {
        for (node, count) in again.into_values() {
            let went = self.window.kept.is_elsewhere(node.ino) && !stdx::mutant!("client_releases_what_went");
            let count = if went { 0 } else { self.held.reopened(node, count) };
            if went || count > 0 {
                let request = Request::Release { node, count };
                self.uncredited.push_back(Queued { call: None, cred: proto::Cred::ROOT, request });
            }
        }
    }
}

pub(super) fn performed(tid: Tid, floor: Tid, kept: &Kept) -> ClientMsg {
    let Kept { cred, request, told, .. } = kept;
    ClientMsg::Performed { tid, floor, cred: cred.clone(), told: *told, request: request.clone() }
}

fn late(kept: &Kept, errno: Errno, out: &mut Out) {
    let mut inos = vec![kept.told.ino];
    if let Some((node, _)) = kept.request.subject() {
        inos.push(node.ino);
    }
    match &kept.request {
        Request::Rename { new_parent, .. } => inos.push(new_parent.ino),
        Request::Link { node, .. } => inos.push(node.ino),
        Request::CopyRange { target, .. } => inos = vec![target.ino],
        every_request!() => inos.extend(kept.opened.map(|node| node.ino)),
    }
    inos.retain(|ino| *ino != Ino::NONE);
    inos.sort_unstable();
    inos.dedup();
    let name = kept.request.subject().and_then(|(_, name)| name.cloned());
    out.push(Output::Late { kind: kept.request.kind(), name, inos, errno });
}

/// The inode that a request made.
fn new_inode(request: &Request, outcome: &Outcome) -> Ino {
    match (request, outcome) {
        (_, Ok(Reply::Created { attr, new: true })) => attr.ino,
        (
            Request::MkNod { .. } | Request::MkDir { .. } | Request::Symlink { .. } | Request::TmpFile { .. },
            Ok(Reply::Attr(attr)),
        ) => attr.ino,
        (every_request!(), _) => Ino::NONE,
    }
}

/// What a request opened.
fn opened(request: &Request, outcome: &Outcome) -> Option<NodeRef> {
    match (request, outcome) {
        (
            Request::Create { .. } | Request::TmpFile { .. } | Request::Open { .. },
            Ok(Reply::Attr(attr) | Reply::Created { attr, .. }),
        ) => Some(attr.node()),
        (every_request!(), _) => None,
    }
}
