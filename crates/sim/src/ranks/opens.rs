//! What callers have open for certain: it stays, also without a name, wherever it moves and whatever dies, as long as its opener lives.
//!
//! Certain from the answer to the open until the close is asked for, or an operator has the session ended, or its client lost it. A rank
//! that goes, and ends a session because it has nothing of it, takes nothing.
//!
//! Absent: bytes (`judge.rs`); that files without a name are purged in the end (`heal.rs`).

use super::Ranks;
use super::clients::Busy;
use crate::model::judge::Verdict;
use client::CallId;
use proto::reply::{Outcome, Reply};
use proto::request::Request;
use proto::{Errno, Ino, every_request};
use std::collections::BTreeMap;

/// By client and inode: how often it is open, and the calls that there had been at the first one's answer.
#[derive(Default)]
pub(super) struct Opens {
    of: BTreeMap<(usize, Ino), (u32, u64)>,
    /// Transactions when all was looked at last.
    looked_at: u64,
}

impl Ranks {
    /// A call is about to be made.
    pub(super) fn open_asked(&mut self, client: usize, request: &Request) {
        if let Request::Release { node, .. } = request
            && let Some((count, _)) = self.opens.of.get_mut(&(client, node.ino))
        {
            *count -= 1;
            if *count == 0 {
                self.opens.of.remove(&(client, node.ino));
            }
        }
    }

    /// A caller has its answer.
    pub(super) fn open_answered(
        &mut self,
        client: usize,
        call: CallId,
        busy: &Busy,
        outcome: &Outcome,
    ) -> Verdict {
        let request = &busy.asked.request;
        if *outcome == Err(Errno::ESTALE) {
            let open = |ino: &Ino| self.opens.of.get(&(client, *ino)).is_some_and(|(_, at)| *at < call.0);
            let inos = needs(request);
            // Of two either may be gone.
            if !inos.is_empty() && inos.iter().all(open) && !self.is_over(client) {
                return Err(format!(
                    "client {client} has {inos:?} open and is told that it is gone\n  request {request:?}"
                ));
            }
        }
        let opens =
            matches!(request, Request::Open { .. } | Request::Create { .. } | Request::TmpFile { .. });
        let over = busy.keys.iter().any(|(_, session, _)| self.judge.is_gone(*session));
        if let Ok(Reply::Attr(attr) | Reply::Created { attr, .. }) = outcome
            && opens
            && !over
        {
            let calls = self.calls;
            self.opens.of.entry((client, attr.ino)).or_insert((0, calls)).0 += 1;
        }
        Ok(())
    }

    /// A client was told that its session is over: what it has open it opens again in the next, if it is there.
    pub(super) fn opens_lost(&mut self, client: usize) {
        self.opens.of.retain(|(of, _), _| *of != client);
    }

    /// What is open is there.
    pub(super) fn check_opens(&mut self) -> Verdict {
        if self.opens.looked_at == self.judge.transactions {
            return Ok(());
        }
        self.opens.looked_at = self.judge.transactions;
        let tree = self.judge.tree();
        let mut nameless = 0;
        for (client, ino) in self.opens.of.keys() {
            match tree.node(*ino) {
                Some(node) => nameless += u64::from(node.nlink == 0),
                None if self.is_over(*client) => {}
                // Its maker was told early, and asks for it.
                None if self.judge.is_to_be_made(*ino) => {}
                None => return Err(format!("inode {} is purged, and client {client} has it open", ino.0)),
            }
        }
        self.coverage.add_to("looks at open files without a name", nameless);
        Ok(())
    }

    /// Whether the session of that client has ended, or an operator has it ended: no rank does by itself, as all clients renew.
    /// A rank removes the bytes of a file: nobody has it open, and it has no name, also behind a crash.
    pub(super) fn removes_data(&self, ino: Ino) -> Verdict {
        match self.opens.of.keys().find(|(client, of)| *of == ino && !self.is_over(*client)) {
            Some((client, _)) => {
                Err(format!("the bytes of {} are removed, client {client} has it open", ino.0))
            }
            None => self.judge.removes_data(ino),
        }
    }

    fn is_over(&self, client: usize) -> bool {
        let session = self.clients[client].machine.as_ref().map(client::Router::session);
        session.is_none_or(|session| self.evicted.contains(&session))
    }
}

/// The inodes that a request is about by number.
fn needs(request: &Request) -> Vec<Ino> {
    match request {
        Request::CopyRange { source, target, .. } => vec![source.ino, target.ino],
        Request::GetAttr { node }
        | Request::SetAttr { node, .. }
        | Request::Read { node, .. }
        | Request::Write { node, .. }
        | Request::Fallocate { node, .. }
        | Request::Seek { node, .. }
        | Request::Fsync { node, .. }
        | Request::Open { node, .. }
        | Request::SetLock { node, .. }
        | Request::TestLock { node, .. } => vec![node.ino],
        every_request!() => Vec::new(),
    }
}
