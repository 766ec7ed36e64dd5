//! What goes to the rank, and when: credit, the span of tids, waits for locks that move on.
//!
//! Absent: answers (`machine.rs`), what is sent again after a break (`session.rs`).

use super::calls::is_lock_wait;
use super::{Client, LISTING_BYTES, Link, Out, Queued};
use crate::input::CallId;
use crate::output::Output;
use crate::window::{Pending, Sent};
use proto::every_request;
use proto::message::ClientMsg;
use proto::request::Request;
use proto::{Cred, NodeRef, Tid};
use stdx::Mono;

impl Client {
    /// Sends what may be sent.
    pub(super) fn pump(&mut self, now: Mono, out: &mut Out) {
        if self.link != Link::Up || !self.send_rewrites(out) {
            return;
        }
        while self.window.span() < self.config.limits.tid_span() {
            let limits = &self.config.limits;
            let credit =
                self.window.credited() < limits.in_flight_max && self.window.bytes() < limits.bytes_max;
            let next = match self.uncredited.pop_front() {
                Some(queued) => Some(queued),
                None if credit => self.queue.pop_front(),
                None => None,
            };
            let Some(queued) = next else { return };
            self.send(now, queued, out);
        }
        self.renew_oldest(out);
    }

    fn send(&mut self, now: Mono, queued: Queued, out: &mut Out) {
        let Queued { call, cred, request } = queued;
        let lock_wait = is_lock_wait(&request);
        let keep = self.config.retry || lock_wait;
        let sent = keep.then(|| Box::new(Sent { cred: cred.clone(), request: request.clone() }));
        let bytes = request.payload_bytes() + request.answer_bytes_max();
        let life = self.incarnation;
        let pending =
            Pending { call, sent, lock_wait, cancelled: false, bytes, asked: now, renewing: false, life };
        if !self.delegations.is_empty() {
            let tids = self.window.tids();
            self.delegations.sent(tids, &request, self.numbers.seed());
            self.list_delegated(tids.next, call, &request);
        }
        let tid = self.window.insert(pending);
        self.negatives.changed(&request, self.window.next());
        let floor = self.window.floor();
        if self.unshown.is_some_and(|below| below <= floor) {
            self.unshown = None;
        }
        out.push(Output::Send {
            rank: self.rank(),
            message: ClientMsg::Request { tid, floor, cred, request },
        });
    }

    /// Where changes have to be asked for because names are not known, all names are: who works through a directory, to fill or
    /// to empty it, goes on without asking.
    fn list_delegated(&mut self, tid: Tid, call: Option<CallId>, request: &Request) {
        match request {
            Request::Create { parent, .. }
            | Request::MkNod { parent, .. }
            | Request::Unlink { parent, .. }
                if self.delegations.wants_listing(parent.ino) =>
            {
                self.queue.push_back(page(*parent, 0));
            }
            // Nobody waits for it: it is one of these.
            Request::ReadDir { dir, after, .. } if call.is_none() => {
                self.delegations.listing(dir.ino, tid, *after == 0);
            }
            every_request!() => {}
        }
    }

    /// The window is as wide as it may be. If a wait for a lock holds it open (for hours, perhaps), it
    /// is cancelled and waits on under a younger tid, so that the rank can forget older results.
    fn renew_oldest(&mut self, out: &mut Out) {
        if self.uncredited.is_empty() && self.queue.is_empty() {
            return;
        }
        if let Some((tid, pending)) = self.window.oldest()
            && pending.lock_wait
            && !pending.renewing
            && !pending.cancelled
        {
            pending.renewing = true;
            out.push(Output::Send { rank: self.rank(), message: ClientMsg::Cancel { tid } });
        }
    }
}

/// A request for names of a delegated directory.
pub(super) const fn page(dir: NodeRef, after: u64) -> Queued {
    let request = Request::ReadDir { dir, after, attrs: true, bytes_max: LISTING_BYTES };
    Queued { call: None, cred: Cred::ROOT, request }
}
