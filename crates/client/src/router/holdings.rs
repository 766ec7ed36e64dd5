//! What is open and locked goes from one rank to another with its inode. The new owner has heard of it from the old one; the client
//! finds out when the new one answers for the inode, and has it in its books for that rank from then on. docs/PROTOCOL.md, "What is open
//! moves, too".
//!
//! Absent: the books themselves (`held.rs`).

use super::many::{Life, Many};
use super::{FIRST, Out};
use crate::input::{CallId, Input};
use crate::machine::Client;
use proto::message::ServerMsg;
use proto::request::Request;
use proto::{Cred, NodeRef, RankId};
use stdx::Mono;
use stdx::time::SECOND;

/// Numbers of calls that nobody else made: edges never come to the last ones.
const OWN_CALLS: u64 = 1 << 24;
/// Inodes that are looked for at once when their rank goes.
const LOOKED_FOR: usize = 1_024;
/// They are looked for again after so long: by then a search has found them, or has asked everybody and come to nothing.
const LOOK_NS: u64 = 2 * SECOND;

impl Many {
    /// A rank has something for it, or will.
    pub(super) fn joins(&mut self, from: RankId, (to, version): (RankId, u64), out: &mut Out) {
        if self.life != Life::Serving {
            return;
        }
        if version > self.map_version() {
            self.want_map(from, version, out);
        }
        self.needed(Some(to), out);
    }

    /// Before it is taken in that a rank has answered for an inode: what is in others' books of it is in that rank's.
    pub(super) fn home_answers(&mut self, at: usize, message: &ServerMsg, out: &mut Out) {
        let (ServerMsg::Reply { tid, outcome }
        | ServerMsg::Granted { tid, outcome, .. }
        | ServerMsg::Early { tid, outcome, .. }) = message
        else {
            return;
        };
        if self.clients.len() == 1 || stdx::mutant!("client_keeps_old_books") {
            return;
        }
        // Not in its books, perhaps: who refuses it does not show that it has what is open there.
        if let Some(request) = self.clients[at].refused_flock(*tid, outcome) {
            self.clients.iter_mut().for_each(|client| client.gives_up_flock(&request));
        }
        let Some((node, asked)) = self.clients[at].answered_for(*tid, outcome) else { return };
        let holds =
            |(other, client): (usize, &Client)| (other != at && client.holds(node.ino)).then_some(other);
        let others: Vec<usize> = self.clients.iter().enumerate().filter_map(holds).collect();
        for other in others {
            let Some(holding) = self.clients[other].hand_over(node.ino) else { continue };
            if holding.stays_claimed(asked) && !stdx::mutant!("client_claims_stay") {
                self.end_claim(self.clients[other].rank(), node);
            }
            self.with(at, out, |client, outputs| client.take_over(holding, outputs));
        }
    }

    /// A rank counts what it was told after it had died, and the inode had gone from it by then. It gives nothing back that it has: where the
    /// inode is that rank's again, it counts on. What another rank answers to what was asked before the claim says nothing: it may have
    /// gone back meanwhile.
    fn end_claim(&mut self, rank: RankId, node: NodeRef) {
        let (call, request) = (self.own_call(), Request::Release { node, count: 0 });
        self.give(rank, Input::Call { call, cred: Cred::ROOT, request });
    }

    /// The number of a call that nobody else makes.
    pub(super) const fn own_call(&mut self) -> CallId {
        self.own_calls = (self.own_calls + 1) % OWN_CALLS;
        CallId(u64::MAX - self.own_calls)
    }

    pub(super) const fn is_own_call(&self, call: CallId) -> bool {
        call.0 > u64::MAX - OWN_CALLS
    }

    /// A rank that goes has nothing any more: what is in its books is somewhere else, and is asked for.
    pub(super) fn look_for_holdings(&mut self) {
        for rank in self.going.clone() {
            if !self.looks_now(rank) {
                continue;
            }
            let Ok(at) = self.place_of(rank) else { continue };
            for node in self.clients[at].some_held(LOOKED_FOR) {
                let (call, request) = (self.own_call(), Request::GetAttr { node });
                self.give(rank, Input::Call { call, cred: Cred::ROOT, request });
            }
        }
    }

    /// Whether nothing is asked of that rank, and the last look was long enough ago. Each search goes on at other ranks by itself.
    fn looks_now(&mut self, rank: RankId) -> bool {
        let Ok(at) = self.place_of(rank) else { return false };
        let is_quiet = self.clients[at].queued() == 0 && self.clients[at].waiting().next().is_none();
        let soon =
            |last: &Mono| last.after(LOOK_NS) > self.now && !stdx::mutant!("client_looks_without_pause");
        let looks = is_quiet && self.clients[at].was_welcomed() && !self.looked.get(&rank).is_some_and(soon);
        if looks {
            self.looked.insert(rank, self.now);
        }
        looks
    }

    /// A rank is no more. Where what is in its books went will be seen; until then the first rank's have it, who owns nothing of it.
    pub(super) fn keep_holdings(&mut self, at: usize, out: &mut Out) {
        for node in self.clients[at].some_held(usize::MAX) {
            if let Some(holding) = self.clients[at].hand_over(node.ino)
                && let Ok(first) = self.place_of(FIRST)
            {
                self.with(first, out, |client, outputs| client.take_over(holding, outputs));
            }
        }
    }
}
