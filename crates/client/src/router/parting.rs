//! Ranks that go: the session ends with each that says that it does not know it any more, and what was asked of such a one, or one that
//! is gone, is asked of others.
//!
//! Absent: how one client parts with its rank (`machine/parting.rs`).

use super::many::{Life, Many};
use super::route::Place;
use super::{FIRST, Out};
use crate::input::Input;
use crate::machine::{Client, gives_back};
use crate::output::Output;
use crate::validity::Validity;
use proto::RankId;
use proto::cluster::{ClusterMap, RankState};
use proto::message::ServerMsg;
use proto::reply::Reply;
use proto::request::Request;
use stdx::Now;

/// Whether the map gives the rank nothing, and it will get nothing: it stops. By the same the rank refuses greetings.
pub(super) fn has_nothing(map: &ClusterMap, rank: RankId) -> bool {
    map.ranks.get(&rank).is_some_and(|info| info.state == RankState::Stopping) && !map.is_owner(rank)
}

impl Many {
    /// There is a newer map.
    pub(super) fn look_for_parting(&mut self, out: &mut Out) {
        let Some(map) = &self.map else { return };
        let is_told_of = |client: &&Client| client.rank() != FIRST && !client.is_newer_than(map);
        let ranks: Vec<RankId> = self.clients.iter().filter(is_told_of).map(Client::rank).collect();
        let (there, gone): (Vec<_>, Vec<_>) =
            ranks.into_iter().partition(|rank| map.ranks.contains_key(rank));
        self.going = there.into_iter().filter(|rank| has_nothing(map, *rank)).collect();
        for client in self.clients.iter_mut().filter(|client| map.ranks.contains_key(&client.rank())) {
            client.owns_nothing(self.going.contains(&client.rank()));
        }
        for rank in gone {
            self.is_left(rank, out);
        }
    }

    /// The session is over with those that go and say that they do not know it: they need not say so again.
    pub(super) fn part(&mut self, now: Now, out: &mut Out) {
        if self.going.is_empty() || self.life != Life::Serving {
            return;
        }
        for rank in self.going.clone() {
            if self.place_of(rank).is_ok_and(|at| self.clients[at].syncs_to_part()) {
                self.give(rank, Input::Tick);
                self.work_off(now, out);
            }
            let Ok(at) = self.place_of(rank) else { continue };
            if self.clients[at].is_dismissed() && !stdx::mutant!("client_greets_who_goes") {
                self.going.remove(&rank);
                self.is_left(rank, out);
                self.work_off(now, out);
            } else {
                self.clients[at].may_be_unknown();
            }
        }
    }

    /// A rank is not in the map any more, or goes and has nothing of the session. What is in its books is somewhere else by now.
    fn is_left(&mut self, rank: RankId, out: &mut Out) {
        let Ok(at) = self.place_of(rank) else { return };
        if self.clients[at].kept() > 0 {
            self.answers.lost(rank);
        }
        let mut outputs = Vec::new();
        let stamp = self.stamp();
        self.clients[at].raise_stamp(stamp);
        self.clients[at].is_left(&mut outputs);
        self.raise_stamp(self.clients[at].stamp());
        self.keep_holdings(at, out);
        self.remove(at, out);
        self.ask_others(rank, outputs, out);
    }

    /// Before it is taken in that a rank welcomes the client: it may be one that had left, and has another life, which has nothing of
    /// what the client believes to have there.
    pub(super) fn is_joined_again(&mut self, at: usize, message: &ServerMsg, out: &mut Out) {
        if !self.clients[at].is_joined_again(message) {
            return;
        }
        let rank = self.clients[at].rank();
        if self.clients[at].kept() > 0 {
            self.answers.lost(rank);
        }
        let mut outputs = Vec::new();
        self.clients[at].is_forgotten(&mut outputs);
        self.keep_holdings(at, out);
        self.ask_others(rank, outputs, out);
    }

    /// What a client says that has given up what it sent.
    fn ask_others(&mut self, rank: RankId, outputs: Vec<Output>, out: &mut Out) {
        for output in outputs {
            match output {
                // What ends a claim was for that rank alone.
                Output::Bounced { call: Some(call), request, .. }
                    if self.place(&request) == Place::All
                        || matches!(request, Request::Release { count: 0, .. }) =>
                {
                    self.on_answer(rank, call, Ok(Reply::Ok), Validity::default(), out);
                }
                Output::Bounced { call: Some(call), cred, request, .. } => {
                    let owner = self.owner(self.place(&request));
                    self.ask_again(owner.unwrap_or(FIRST), (call, cred, request), out);
                }
                // What nobody waits for gives something back, to whoever has it now. What broke: an unlock was dropped with the rank that
                // went, and the lock stayed, at the one that it had gone to, until the session ended.
                Output::Bounced { call: None, cred, request, .. }
                    if gives_back(&request)
                        && !matches!(request, Request::Release { count: 0, .. })
                        && !stdx::mutant!("client_gives_back_to_who_left") =>
                {
                    let (call, owner) = (self.own_call(), self.owner(self.place(&request)));
                    self.ask_again(owner.unwrap_or(FIRST), (call, cred, request), out);
                }
                Output::Bounced { call: None, .. } => {}
                Output::Answer { call, outcome, validity } => {
                    self.on_answer(rank, call, outcome, validity, out);
                }
                plain @ (Output::Send { .. }
                | Output::Connect { .. }
                | Output::Disconnect { .. }
                | Output::Ready { .. }
                | Output::Recalled { .. }
                | Output::Lost { .. }
                | Output::Late { .. }
                | Output::BytesLost { .. }
                | Output::Refused { .. }
                | Output::Closed) => out.push(plain),
            }
        }
    }

    fn remove(&mut self, at: usize, out: &mut Out) {
        let client = self.clients.remove(at);
        let rank = client.rank();
        self.parted.insert(rank, client.next_tid());
        self.share(out);
        out.push(Output::Disconnect { rank });
    }
}
