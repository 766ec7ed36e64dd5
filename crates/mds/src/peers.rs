//! Other ranks: what this one has of them, and who hears what they say. docs/PROTOCOL.md, "Ranks among themselves".
//!
//! Absent: sessions with them (`peers/links.rs`); what is asked of them (`peers/asks.rs`) and what comes of it (`peers/answers.rs`); the
//! maps they tell (`peers/maps.rs`); what replicas are (`replicas.rs`); what a rank that asks is told (`ops/ranks.rs`); connections, which
//! are the driver's.

mod answers;
mod asks;
mod homes;
mod links;
mod maps;

pub(crate) use asks::Question;

use crate::op::OpId;
use crate::output::Output;
use crate::rank::Rank;
use asks::Asking;
use homes::Homes;
use links::Link;
use proto::caps::Bits;
use proto::cluster::MapParts;
use proto::message::{ClientMsg, ServerMsg};
use proto::{Incarnation, Ino, RankId, Tid};
use std::collections::{BTreeMap, BTreeSet};
use stdx::{Mono, Now, Outbox};

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    links: BTreeMap<RankId, Link>,
    questions: BTreeMap<Question, Asking>,
    homes: Homes,
    last_tid: u64,
    /// Inodes that other ranks told: replicas, and of whom.
    pub replicas: BTreeMap<Ino, RankId>,
    /// Ranks that may keep replicas from a former life of this one, as they have not greeted this one yet.
    pub ungreeted: BTreeMap<RankId, Incarnation>,
    /// Operations that wait for their greetings.
    pub ungreeted_waiters: Vec<OpId>,
    /// Maps that ranks are saying, in parts.
    maps: BTreeMap<RankId, MapParts>,
    /// Ranks that are to hear that nobody presents here.
    pub to_hear_presented: BTreeSet<RankId>,
    /// The newest that another rank was asked for.
    map_wanted: u64,
}

impl Peers {
    /// When something is to be asked again.
    pub(crate) fn due(&self) -> Option<Mono> {
        let up = |rank| self.links.get(rank) == Some(&Link::Up);
        self.questions
            .values()
            .filter(|asking| asking.tid.is_none() && up(&asking.rank))
            .map(|asking| asking.not_before)
            .min()
    }

    /// The number of the last question.
    #[cfg(test)]
    pub(crate) const fn last_asked(&self) -> u64 {
        self.last_tid
    }

    /// Nobody wants to know that any more.
    pub(crate) fn end_question(&mut self, question: Question) {
        self.questions.remove(&question);
    }

    /// What is not wanted any more is not asked.
    pub(crate) fn keep_questions(&mut self, wanted: impl Fn(&Question) -> bool) {
        self.questions.retain(|question, _| wanted(question));
    }

    /// For a message to that rank, if it hears now.
    pub(crate) fn next_tid(&mut self, rank: RankId) -> Option<Tid> {
        if self.links.get(&rank) != Some(&Link::Up) {
            return None;
        }
        self.last_tid += 1;
        Some(Tid(self.last_tid))
    }

    /// Whether nothing is asked.
    pub(crate) fn is_idle(&self) -> bool {
        self.questions.is_empty() && self.ungreeted_waiters.is_empty()
    }
}

impl Rank {
    /// Another rank says something.
    pub(crate) fn rank_says(&mut self, now: Now, rank: RankId, message: ServerMsg, out: &mut Outbox<Output>) {
        match message {
            ServerMsg::Welcome { .. } => {
                self.peers.links.insert(rank, Link::Up);
                self.peers.to_hear_presented.insert(rank);
            }
            ServerMsg::Reply { tid, outcome } => self.told(now, (rank, tid), (outcome, false), out),
            ServerMsg::Granted { tid, outcome, grants } => {
                self.told(now, (rank, tid), (outcome, grants.of(0).has(Bits::FS)), out);
            }
            ServerMsg::NotMine { tid, owner, version } => {
                self.told_elsewhere(now, (rank, tid), (owner, version), out)
            }
            ServerMsg::Recall { list } => {
                let mut returned = Vec::new();
                for recalled in &list {
                    self.recalled_by(rank, recalled.ino);
                    if self.recalls_lent(rank, recalled) {
                        returned.push(recalled.returned(recalled.bits));
                    }
                }
                if !returned.is_empty() {
                    out.push(Output::SendRank { rank, message: ClientMsg::Returned { list: returned } });
                }
            }
            ServerMsg::Map { version, part, parts, bytes } => {
                let gathered = self.peers.maps.entry(rank).or_default();
                if let Some(bytes) = gathered.take(version, (part, parts), bytes) {
                    self.peers.maps.remove(&rank);
                    self.told_map(now, rank, &bytes, out);
                }
            }
            // The connection ends, and is made anew.
            ServerMsg::Refused { .. } => {}
            ServerMsg::Early { .. }
            | ServerMsg::Done { .. }
            | ServerMsg::Admin { .. }
            | ServerMsg::Renewed { .. }
            | ServerMsg::Durable { .. }
            | ServerMsg::Numbers { .. }
            | ServerMsg::Join { .. }
            | ServerMsg::Damaged => {}
        }
    }
}

#[cfg(test)]
mod tests;
