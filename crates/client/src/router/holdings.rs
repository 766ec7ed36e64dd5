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
use proto::{Cred, RankId};

/// Numbers of calls that nobody else made: edges never come to the last ones.
const OWN_CALLS: u64 = 1 << 24;
/// Inodes that are looked for at once when their rank goes.
const LOOKED_FOR: usize = 1_024;

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
        let Some(ino) = self.clients[at].answered_for(*tid, outcome) else { return };
        let holds = |(other, client): (usize, &Client)| (other != at && client.holds(ino)).then_some(other);
        let others: Vec<usize> = self.clients.iter().enumerate().filter_map(holds).collect();
        for other in others {
            if let Some(holding) = self.clients[other].hand_over(ino) {
                self.with(at, out, |client, outputs| client.take_over(holding, outputs));
            }
        }
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
            let Ok(at) = self.place_of(rank) else { continue };
            if self.clients[at].queued() > 0 || self.clients[at].waiting().next().is_some() {
                continue;
            }
            for node in self.clients[at].some_held(LOOKED_FOR) {
                let (call, request) = (self.own_call(), Request::GetAttr { node });
                self.give(rank, Input::Call { call, cred: Cred::ROOT, request });
            }
        }
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
