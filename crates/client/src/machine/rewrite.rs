//! Bytes that a rank that died may not have written to its disk: kept until a sync covers them, and rewritten to the rank's
//! next life, before anything else is sent to it. What cannot be written is told as lost.
//!
//! Absent: what is kept of them (`unsynced.rs`); whether they may be written, which the rank knows.

use super::{Client, Life, Out, Queued, early};
use crate::kept::{self, Kept};
use crate::output::Output;
use crate::unsynced::{Heard, Losses, Rewrite, Unanswered, cut_by};
use crate::window::{Pending, Window};
use proto::message::{ClientMsg, Told};
use proto::reply::{Outcome, Reply};
use proto::request::Request;
use proto::request::fallocate::changes_bytes;
use proto::{Cred, Incarnation, Ino, NodeRef, Tid};
use proto::{
    every_request, locking_requests, looking_requests, naming_requests, rank_requests, setting_requests,
    syncing_requests,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use stdx::Wall;

/// What of them the rank has not answered.
const UNANSWERED_MAX: usize = 1024;
const UNANSWERED_BYTES: usize = 16 << 20;

/// What is left of a resume when bytes are to be rewritten.
#[derive(Clone, Debug)]
pub(super) struct Resuming {
    pub(super) resumed: bool,
    pub(super) lives_on: bool,
    pub(super) again: BTreeMap<Ino, (NodeRef, u32)>,
}

/// One of them at the rank.
#[derive(Clone, Copy, Debug)]
struct Sent {
    ino: Ino,
    offset: u64,
    wrote: Tid,
    bytes: usize,
}

/// All of a connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Rewrites {
    queue: VecDeque<Rewrite>,
    sent: BTreeMap<Tid, Sent>,
    bytes: usize,
    /// Requests without an answer whose bytes are there, should the rank have carried them out before it died.
    there: BTreeSet<Tid>,
    /// What comes after the last of them.
    pub(super) resuming: Option<Resuming>,
    /// A sync that nobody asked for is under way.
    syncing: bool,
    /// The one before the goodbye was asked for.
    last: bool,
}

impl Rewrites {
    pub(super) const fn new() -> Self {
        Self {
            queue: VecDeque::new(),
            sent: BTreeMap::new(),
            bytes: 0,
            there: BTreeSet::new(),
            resuming: None,
            syncing: false,
            last: false,
        }
    }
}

impl Client {
    /// What may be kept: nothing by a session that the rank has given no numbers, for it performs nothing.
    fn kept_bytes_max(&self) -> usize {
        let may = self.is_delegable() && self.numbers.seed().is_some();
        if may { self.config.limits.unsynced_bytes_max } else { 0 }
    }

    /// A request was answered.
    pub(super) fn note_unsynced(&mut self, tid: Tid, next: Tid, request: &Request, outcome: &Outcome) {
        let writes = |pending: &Pending, ino| {
            let request = pending.sent.as_ref().map(|sent| &sent.request);
            matches!(request, Some(Request::Write { node, .. }) if node.ino == ino)
        };
        if let Some(node) = cut_by(request, outcome)
            && self.window.iter().any(|(_, pending)| writes(pending, node.ino))
        {
            self.unsynced.overtaken(node);
        }
        let heard = Heard { tid, next, life: self.incarnation, bytes_max: self.kept_bytes_max() };
        self.unsynced.answered(request, outcome, &heard);
        if matches!(request, Request::SyncFs) {
            self.rewrites.syncing = false;
        }
        if heard.bytes_max > 0 && self.unsynced.cost() > heard.bytes_max / 2 {
            self.sync_behind();
        }
    }

    /// The same of one that was sent.
    pub(super) fn note_answer(&mut self, tid: Tid, pending: &mut Pending, outcome: &Outcome, out: &mut Out) {
        let Some(mut sent) = pending.sent.take() else { return };
        if self.is_delegable() && outcome.is_ok() {
            kept::own(&mut sent.request);
        }
        self.note_unsynced(tid, self.window.next(), &sent.request, outcome);
        // The answer to the Rewrite may be overtaken by this one; if it is none, it is told then.
        let on_its_way = self.rewrites.sent.values().any(|sent| sent.wrote == tid);
        let there = self.rewrites.there.remove(&tid) || on_its_way;
        if pending.life != self.incarnation && !there && self.is_of_before(&sent.request, outcome) {
            self.lose_bytes(changed(&sent.request), out);
        }
        // What it was to cut off was not rewritten.
        if pending.life != self.incarnation
            && outcome.is_err()
            && let Some(ino) = self.unsynced.lacks_behind(&sent.request, self.incarnation)
        {
            self.lose_bytes(ino, out);
        }
        pending.sent = Some(sent);
    }

    /// Whether a request changed bytes in a former life of the rank, as far as its answer tells.
    fn is_of_before(&self, request: &Request, outcome: &Outcome) -> bool {
        match (request, outcome) {
            (Request::Write { .. } | Request::CopyRange { .. }, Ok(Reply::Written { count: 1.., attr })) => {
                attr.change < self.incarnation.first_change()
            }
            (Request::Fallocate { mode, .. }, Ok(_)) => changes_bytes(*mode),
            (every_request!(), _) => false,
        }
    }

    fn lose_bytes(&mut self, ino: Ino, out: &mut Out) {
        self.unsynced.lose(ino);
        out.push(Output::BytesLost { inos: vec![ino], others: false });
    }

    /// Sees to it that little is kept, and that a server's death puts few files in doubt where nothing is. Nobody waits for it.
    pub(super) fn sync_behind(&mut self) {
        // Who does not come back is told nothing of a rank that died, so nothing is in doubt.
        let may = self.life == Life::Serving && self.config.retry;
        if may && !self.rewrites.syncing && !self.unsynced.is_empty() {
            self.rewrites.syncing = true;
            self.queue.push_back(Queued { call: None, cred: Cred::ROOT, request: Request::SyncFs });
        }
    }

    /// Whoever leaves leaves nothing behind that a server's death could take: a sync comes before the goodbye, when everything else
    /// has its answer. While the rank is away it is waited for.
    pub(super) fn sync_at_close(&mut self) {
        let due = self.life == Life::Closing && self.is_idle() && !self.unsynced.is_empty();
        if due && !self.rewrites.last && !stdx::mutant!("client_closes_unsynced") {
            self.rewrites.last = true;
            self.queue.push_back(Queued { call: None, cred: Cred::ROOT, request: Request::SyncFs });
        }
    }

    /// It is not waited for any longer, or there is nobody to be asked, or nobody knows whether the rank has died.
    pub(super) fn close_unsynced(&mut self, out: &mut Out) {
        self.rewrites.last = true;
        let losses = self.unsynced.lose_all();
        if losses != Losses::default() {
            out.push(Output::BytesLost { inos: losses.inos, others: losses.others });
        }
    }

    /// There is no session any more that could write them.
    pub(super) fn forget_bytes(&mut self) {
        self.unsynced.forget_bytes();
        self.rewrites.syncing = false;
    }

    /// Requests without an answer are given up, while what callers were told goes on. The rank may have carried them out.
    pub(super) fn give_up_unanswered(&mut self) {
        self.unsynced.given_up(&under_way(&self.window), self.numbers.seed());
    }

    /// They are looked at again after the next welcome.
    pub(super) fn drop_rewrites(&mut self) {
        for tid in std::mem::take(&mut self.rewrites.sent).into_keys() {
            self.window.kept.remove(tid);
        }
        self.rewrites = Rewrites { syncing: self.rewrites.syncing, ..Rewrites::new() };
    }

    /// Welcomed again: what was not synced is rewritten. `synced`: the rank's life before this one, if it had nothing that was
    /// not.
    pub(super) fn plan_rewrites(&mut self, resumed: bool, synced: Option<Incarnation>, out: &mut Out) {
        let may = resumed && self.kept_bytes_max() > 0;
        let unanswered = under_way(&self.window);
        let unanswered = (&unanswered[..], self.numbers.seed());
        let (queue, losses) = self.unsynced.restarted(self.incarnation, (synced, may), unanswered);
        self.rewrites.queue = queue;
        if losses != Losses::default() {
            out.push(Output::BytesLost { inos: losses.inos, others: losses.others });
        }
    }

    /// Sends more of them, and after the last what else is sent to a rank that a session comes back to. Whether all that is done.
    pub(super) fn send_rewrites(&mut self, out: &mut Out) -> bool {
        while self.rewrites.sent.len() < UNANSWERED_MAX && self.rewrites.bytes < UNANSWERED_BYTES {
            let Some(rewrite) = self.rewrites.queue.pop_front() else { break };
            let Rewrite { node, wrote, life, append, offset, data } = rewrite;
            let bytes = data.bytes().len();
            let sent = Sent { ino: node.ino, offset, wrote, bytes };
            let request = Request::Rewrite { node, wrote, life, append, offset, data };
            let told = Told { ino: Ino::NONE, wall: Wall(0), heard: true };
            let kept = Kept { cred: Cred::ROOT, request, told, opened: None, bytes, position: None };
            let (tid, floor) = (self.window.next(), self.window.floor());
            let message: ClientMsg = early::performed(tid, floor, &kept);
            self.window.perform(kept);
            self.rewrites.sent.insert(tid, sent);
            self.rewrites.bytes += bytes;
            out.push(Output::Send { rank: self.rank(), message });
        }
        if !self.rewrites.queue.is_empty() {
            return false;
        }
        if let Some(resuming) = self.rewrites.resuming.take() {
            self.go_on(resuming, out);
        }
        true
    }

    /// Whether some of them are not answered.
    pub(super) fn awaits_rewritten(&self) -> bool {
        let Rewrites { queue, sent, resuming, .. } = &self.rewrites;
        !queue.is_empty() || !sent.is_empty() || resuming.is_some()
    }

    /// The rank's answer to one of them. Whether it was one.
    pub(super) fn on_rewritten(&mut self, tid: Tid, outcome: &Outcome, out: &mut Out) -> bool {
        let Some(Sent { ino, offset, wrote, bytes }) = self.rewrites.sent.remove(&tid) else { return false };
        self.rewrites.bytes -= bytes;
        self.window.kept.remove(tid);
        match outcome {
            Ok(_) => {
                self.unsynced.rewritten(ino, offset, wrote, self.incarnation);
                if self.window.contains(wrote) {
                    self.rewrites.there.insert(wrote);
                }
            }
            Err(_) if stdx::mutant!("client_loss_untold") => self.unsynced.lose(ino),
            Err(_) => self.lose_bytes(ino, out),
        }
        self.answer_syncs(out);
        true
    }
}

/// Requests without an answer.
fn under_way(window: &Window) -> Vec<Unanswered<'_>> {
    let unanswered = window.iter().filter_map(|(tid, pending)| {
        let request = &pending.sent.as_ref()?.request;
        Some(Unanswered { tid, life: pending.life, request })
    });
    unanswered.collect()
}

/// Whose bytes a request changes.
const fn changed(request: &Request) -> Ino {
    match request {
        Request::Write { node, .. } | Request::Fallocate { node, .. } => node.ino,
        Request::CopyRange { target, .. } => target.ino,
        naming_requests!()
        | looking_requests!()
        | setting_requests!()
        | locking_requests!()
        | syncing_requests!()
        | rank_requests!()
        | Request::Open { .. }
        | Request::TmpFile { .. }
        | Request::Release { .. }
        | Request::Read { .. }
        | Request::Rewrite { .. } => Ino::NONE,
    }
}
