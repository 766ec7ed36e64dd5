//! The session that all ranks' clients are parts of: who gets its number, who joins, and how it ends everywhere.
//!
//! Absent: how one rank's part is resumed (`machine/session.rs`).

use super::many::{Life, Many};
use super::{FIRST, Out};
use crate::machine::Client;
use crate::output::Output;
use proto::message::JoinToken;
use proto::{RankId, SessionId, Tid};

const NONE: SessionId = SessionId(0);

impl Many {
    /// Another rank is needed.
    pub(super) fn begin(&mut self, at: usize, rank: RankId, out: &mut Out) {
        // A tid names one request for ever: the rank may have something under way yet, and says what came of it.
        let next = self.parted.remove(&rank).unwrap_or(Tid(1));
        let session = self.clients.iter().map(Client::member).find(|(session, _)| *session != NONE);
        let mut client = Client::of_rank(self.config.clone(), rank, session.unwrap_or_default(), next);
        client.in_lane();
        client.has_map(self.map_version(), false, false);
        self.clients.insert(at, client);
        self.share(out);
        if session.is_some() {
            out.push(Output::Connect { rank });
        }
    }

    /// What there is for the whole is divided among the ranks.
    pub(super) fn share(&mut self, out: &mut Out) {
        let count = self.clients.len();
        let bytes_max = self.config.limits.unsynced_bytes_max / count;
        let caps_max = match self.config.info.caps_max {
            // As many as each likes.
            0 => 0,
            most => (most / count as u32).max(1),
        };
        for client in &mut self.clients {
            client.shares(bytes_max, caps_max, out);
        }
    }

    /// A client has done a step. `before`: its session then.
    pub(super) fn session_after(&mut self, rank: RankId, before: SessionId, out: &mut Out) {
        let Ok(at) = self.place_of(rank) else { return };
        let member = self.clients[at].member();
        let (after, _) = member;
        if before == after {
            return;
        }
        if before != NONE {
            self.answers.lost(rank);
            self.over_elsewhere(rank, member, out);
        }
        if after != NONE {
            for client in self.clients.iter_mut().filter(|client| client.session() == NONE) {
                client.joins(member);
                out.push(Output::Connect { rank: client.rank() });
            }
        }
    }

    /// A rank has said that the session is over. It is so everywhere, and goes on everywhere in the one that takes its place. While
    /// that has no number only the first rank is greeted: any other may go, and then refuses whoever is unknown, or be gone, of which
    /// nobody tells who is connected to nobody.
    fn over_elsewhere(&mut self, rank: RankId, next: (SessionId, JoinToken), out: &mut Out) {
        for at in 0..self.clients.len() {
            let other = self.clients[at].rank();
            if other == rank {
                continue;
            }
            self.answers.lost(other);
            self.with(at, out, |client, outputs| client.start_over_with(next, outputs));
            if next.0 == NONE {
                out.push(Output::Disconnect { rank: other });
            }
        }
        // What callers closed meanwhile is reclaimed of no rank, in whosever books it is.
        let given_back: Vec<_> = self.clients.iter_mut().flat_map(Client::take_given_back).collect();
        for (ino, count) in given_back {
            self.clients.iter_mut().for_each(|client| client.released(ino, count));
        }
        if next.0 == NONE && rank != FIRST && !stdx::mutant!("client_numbered_by_who_goes") {
            out.push(Output::Disconnect { rank });
            out.push(Output::Connect { rank: FIRST });
        }
    }

    /// Ends with the last client, or because a rank has refused the session for good.
    pub(super) fn finish(&mut self, out: &mut Out) {
        let closing = self.life == Life::Closing;
        if self.life == Life::Over {
            return;
        }
        if let Some(reason) = self.refused.clone() {
            for at in 0..self.clients.len() {
                self.with(at, out, |client, outputs| client.end_with(reason.clone(), outputs));
            }
            self.fail_held(out);
            self.fail_parked(out);
            self.life = Life::Over;
            out.push(Output::Refused { reason });
            if closing {
                out.push(Output::Closed);
            }
        } else if closing && self.clients.iter().all(Client::is_over) {
            self.life = Life::Over;
            out.push(Output::Closed);
        }
    }
}
