//! Calls: why some are answered at once, which wait for credit, and what an interrupted or killed caller gets.
//!
//! Absent: sending and answers (`machine.rs`), and what is performed here (`perform.rs`).

use super::{Client, Life, Link, Out, Queued, answer};
use crate::input::CallId;
use crate::output::Output;
use proto::message::ClientMsg;
use proto::reply::{Outcome, Reply};
use proto::request::{LockKind, LockSpec, Request};
use proto::{Cred, Effect, Errno};
use proto::{every_reply, every_request};
use proto::{
    locking_requests, looking_requests, naming_requests, rank_requests, setting_requests, syncing_requests,
    writing_requests,
};
use std::collections::VecDeque;
use stdx::Mono;

impl Client {
    pub(super) fn on_call(
        &mut self,
        now: Mono,
        call: CallId,
        mut cred: Cred,
        mut request: Request,
        out: &mut Out,
    ) {
        if self.config.retry {
            // Nothing on a socket fills it, and what is kept to be sent again would keep it from its lender.
            request.detach();
        }
        if let Some(errno) = self.refusal(&request) {
            return answer(out, Some(call), Err(errno));
        }
        if self.damaged {
            return self.fail_damaged(Queued { call: Some(call), cred, request }, out);
        }
        if let Request::Lookup { parent, name } = &request
            && self.is_certain(now)
            && self.negatives.has(now, &cred, parent.ino, name)
        {
            return answer(out, Some(call), Err(Errno::ENOENT));
        }
        if !self.delegations.is_empty() {
            match self.perform(now, call, cred, request, out) {
                Some(asked) => (cred, request) = asked,
                None => return,
            }
        }
        let queue = if is_uncredited(&request) { &mut self.uncredited } else { &mut self.queue };
        queue.push_back(Queued { call: Some(call), cred, request });
    }

    /// The rank serves no more. What it answered early waits for its next life and keeps its tids, so what has not been sent is answered
    /// here: else the span of tids would be used up, and callers would wait for what is never sent.
    pub(super) fn on_damaged(&mut self, out: &mut Out) {
        self.damaged = true;
        let (own, called): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.queue).into_iter().partition(|queued| queued.call.is_none());
        self.queue = own;
        for queued in std::mem::take(&mut self.uncredited).into_iter().chain(called) {
            self.fail_damaged(queued, out);
        }
    }

    /// What gives something back is still to be sent, to this life of the rank or the next.
    fn fail_damaged(&mut self, mut queued: Queued, out: &mut Out) {
        answer(out, queued.call.take(), Err(Errno::EIO));
        if gives_back(&queued.request) {
            self.uncredited.push_back(queued);
        }
    }

    /// Whether what this client knows of the rank's is so.
    pub(super) fn is_certain(&self, now: Mono) -> bool {
        self.link == Link::Up && self.life == Life::Serving && self.lease_end.is_some_and(|end| now < end)
    }

    /// Why a call is answered without asking the rank.
    fn refusal(&self, request: &Request) -> Option<Errno> {
        let limits = &self.config.limits;
        if self.life != Life::Serving {
            return Some(Errno::ESHUTDOWN);
        }
        // What gives something back must not be lost: it is bounded by what there is.
        if self.queued() >= limits.queued_max && !gives_back(request) {
            return Some(Errno::EAGAIN);
        }
        if is_lock_wait(request) {
            let unsent = self.uncredited.iter().filter(|queued| is_lock_wait(&queued.request)).count();
            if self.window.lock_waits() + unsent >= limits.lock_waits_max {
                return Some(Errno::ENOLCK);
            }
        }
        if self.held.is_lost(request) {
            return Some(Errno::EIO);
        }
        match request {
            Request::Open { node, .. } if self.held.opens(node.ino) > 0 => None,
            Request::Open { .. } | Request::Create { .. } | Request::TmpFile { .. } => {
                (self.held.inodes() >= limits.open_inodes_max).then_some(Errno::ENFILE)
            }
            Request::SetLock { lock, .. } if lock.kind != LockKind::Unlock => {
                (self.held.locks() >= limits.locks_max).then_some(Errno::ENOLCK)
            }
            naming_requests!()
            | looking_requests!()
            | setting_requests!()
            | writing_requests!()
            | locking_requests!()
            | syncing_requests!()
            | rank_requests!()
            | Request::Release { .. }
            | Request::Read { .. }
            | Request::Rewrite { .. } => None,
        }
    }

    pub(super) fn on_interrupt(&mut self, call: CallId, out: &mut Out) {
        // Only a wait for a lock gives up: anything else is answered soon, and half done is not done.
        if let Some(at) =
            self.uncredited.iter().position(|q| q.call == Some(call) && is_lock_wait(&q.request))
        {
            self.uncredited.remove(at);
            return answer(out, Some(call), Err(Errno::EINTR));
        }
        let link = self.link;
        let found = self.window.iter_mut().find(|(_, p)| p.call == Some(call) && p.lock_wait && !p.cancelled);
        if let Some((tid, pending)) = found {
            pending.cancelled = true;
            // A renewing one was told already; while the link is down, the resume tells.
            if link == Link::Up && !pending.renewing {
                out.push(Output::Send { rank: self.rank(), message: ClientMsg::Cancel { tid } });
            }
        }
    }

    /// What changes something and was sent is waited for, although nobody will look: whoever notices the caller's end must
    /// not find the change happening after it, least of all behind a lock that ended with the caller.
    pub(super) fn on_abandon(&mut self, call: CallId, out: &mut Out) {
        if !self.config.retry {
            return;
        }
        // A wait for a lock must not go on: it could be granted to nobody.
        self.on_interrupt(call, out);
        for queue in [&mut self.uncredited, &mut self.queue] {
            let Some(at) = queue.iter().position(|queued| queued.call == Some(call)) else { continue };
            // What gives something back is still to be sent.
            if gives_back(&queue[at].request) {
                queue[at].call = None;
            } else {
                queue.remove(at);
            }
            return answer(out, Some(call), Err(Errno::EINTR));
        }
        let Some((_, pending)) = self.window.iter_mut().find(|(_, pending)| pending.call == Some(call))
        else {
            let known = self.syncs.len();
            self.syncs.retain(|_, sync| *sync != call);
            return answer(out, (self.syncs.len() < known).then_some(call), Err(Errno::EINTR));
        };
        if pending.sent.as_ref().is_some_and(|sent| may_go_unheard(&sent.request)) {
            pending.call = None;
            answer(out, Some(call), Err(Errno::EINTR));
        }
    }

    /// An answer came to a caller that was killed. Nobody else would close what it opened; and a lock that it waited for is
    /// perhaps another process's now, which shares the open file.
    pub(super) fn give_back(&mut self, cred: Cred, request: &Request, outcome: &Outcome) {
        let request = match (request, outcome) {
            (Request::Open { .. }, Ok(Reply::Attr(attr))) => Request::Release { node: attr.node(), count: 1 },
            (Request::SetLock { node, lock, wait: true }, Ok(_)) => {
                let lock = LockSpec { kind: LockKind::Unlock, ..*lock };
                Request::SetLock { node: *node, lock, wait: false }
            }
            (every_request!(), Ok(every_reply!()) | Err(_)) => return,
        };
        self.uncredited.push_back(Queued { call: None, cred, request });
    }
}

pub(super) const fn is_lock_wait(request: &Request) -> bool {
    matches!(request, Request::SetLock { wait: true, lock, .. } if !matches!(lock.kind, LockKind::Unlock))
}

/// Whether somebody would wait for ever if it were not sent.
pub(crate) const fn gives_back(request: &Request) -> bool {
    is_uncredited(request) && !is_lock_wait(request)
}

/// Whether it makes no difference to anybody that its answer is not waited for.
const fn may_go_unheard(request: &Request) -> bool {
    match request.effect() {
        Effect::Nothing => true,
        Effect::Memory => {
            matches!(request, Request::Open { .. }) || gives_back(request) || is_lock_wait(request)
        }
        Effect::Journal => matches!(request, Request::Fsync { .. }),
    }
}

const fn is_uncredited(request: &Request) -> bool {
    match request {
        Request::Release { .. } | Request::ReleaseLocks { .. } => true,
        Request::SetLock { wait, lock, .. } => *wait || matches!(lock.kind, LockKind::Unlock),
        naming_requests!()
        | looking_requests!()
        | setting_requests!()
        | writing_requests!()
        | syncing_requests!()
        | rank_requests!()
        | Request::Open { .. }
        | Request::TmpFile { .. }
        | Request::Read { .. }
        | Request::Rewrite { .. } => false,
    }
}
