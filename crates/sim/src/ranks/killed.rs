//! Clients that die without a goodbye, alone or with a rank: nobody hears what becomes of their calls, nobody presents what they were
//! told, and their sessions end with their leases.
//!
//! Absent: what may become of what they were told (`judge/sessions.rs`).

use super::clients::{Busy, Slot};
use super::event::Event;
use super::links::End;
use super::{Phase, Ranks};
use crate::model::judge::Verdict;
use client::CallId;
use mds::input::ConnId;
use proto::ids::{RankId, SessionId};
use std::collections::BTreeMap;
use stdx::Mono;
use stdx::time::{MS, SECOND};

impl Ranks {
    /// Kills a client that serves, perhaps with a rank. Whether there was one.
    pub(super) fn kills(&mut self, life: u64) -> Verdict<bool> {
        let ready: Vec<usize> = (0..self.clients.len()).filter(|it| self.clients[*it].is_ready()).collect();
        let Some(client) = ready.get(self.rng.index(ready.len())).copied() else { return Ok(false) };
        self.kill(client);
        if self.rng.chance(1, 2) {
            self.coverage.count("clients killed with a rank");
            let power = self.rng.chance(1, 2);
            self.life_ends(life, power)?;
        }
        Ok(true)
    }

    pub(super) fn kill(&mut self, client: usize) {
        self.trace.event(self.now, "kill", client as u64, || format!("client {client}"));
        let session = self.clients[client].session();
        let busy = std::mem::take(&mut self.clients[client].busy);
        if let Some(session) = session {
            if self.judge.is_owed(session) {
                self.coverage.count("clients killed with what they were told");
            }
            self.killed.insert(session);
            self.judge.client_killed(client, session);
        }
        for (CallId(call), Busy { asked, .. }) in &busy {
            self.judge.sync_forgotten(*call);
            self.judge.call_is_over(asked);
        }
        self.opens_lost(client);
        self.locks_of_dead(client);
        // What it said last may be on its way, and come; or not.
        let is_its = |end: End| matches!(end, End::Client { client: of, .. } if of == client);
        let conns: Vec<ConnId> =
            self.conns.iter().filter(|(_, conn)| is_its(conn.end)).map(|(conn, _)| *conn).collect();
        for conn in conns {
            if self.rng.chance(1, 2) { self.cut(conn) } else { self.hangs_up(conn) }
        }
        self.client_is_born(client);
        let slot = &mut self.clients[client];
        (slot.machine, slot.lanes) = (None, BTreeMap::new());
        let pause = [10 * MS, 12 * SECOND][self.rng.index(2)];
        self.after(pause, Event::ClientStarts { client });
    }

    /// Another client in the place of one that was killed.
    pub(super) fn client_starts_anew(&mut self, client: usize) -> Verdict {
        if self.phase > Phase::Heal {
            return Ok(());
        }
        if self.plan.is_limited(client) && !self.has_directories() {
            self.waits_for_directories(client);
            return Ok(());
        }
        self.client_is_born(client);
        self.client_starts(client)
    }

    /// A session of a client that was killed which a rank has not ended.
    pub(super) fn outlives_its_client(&self) -> Option<SessionId> {
        let now = Mono(self.now);
        let all = self.lives.values().flat_map(|life| life.machine.sessions(now));
        all.map(|session| session.id).find(|session| self.killed.contains(session))
    }

    /// A rank's log says that it ends a session by force: an operator wanted that, or its client is dead, never heard of it, or has
    /// parted from that rank.
    pub(super) fn judge_eviction(&mut self, rank: RankId, text: &str) -> Verdict {
        let Some((id, _)) = text.strip_prefix("session ").and_then(|rest| rest.split_once(" evicted: "))
        else {
            return Ok(());
        };
        let session = SessionId(id.parse().map_err(|_| format!("a session without a number: {text}"))?);
        if self.killed.contains(&session) {
            self.coverage.count("sessions of killed clients ended");
            return Ok(());
        }
        let has_it = |slot: &Slot| slot.session() == Some(session) && slot.lanes.contains_key(&rank);
        if !self.evicted.contains(&session) && self.clients.iter().any(has_it) {
            return Err(format!("rank {} takes a session from a client that is there: {text}", rank.0));
        }
        Ok(())
    }
}
