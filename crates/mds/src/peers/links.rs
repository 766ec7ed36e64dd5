//! Sessions with other ranks: greetings, both ways, and whose end is waited for. docs/PROTOCOL.md, "Ranks among themselves".
//!
//! Absent: what is said in them (`peers/asks.rs`, `ops/ranks.rs`); connections, which are the driver's.

use super::asks::Asking;
use crate::caps::needs;
use crate::input::{ConnId, Peer};
use crate::output::Output;
use crate::rank::Rank;
use crate::session::Session;
use proto::caps::Bits;
use proto::cluster::{RankInfo, RankState};
use proto::message::{ClientMsg, PROTOCOL};
use proto::request::Request;
use proto::{Errno, Incarnation, Ino, RankId, SessionId};
use std::collections::BTreeMap;
use stdx::{Now, Outbox};

/// The session with another rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// The greeting has no answer yet.
    Greeting,
    Up,
}

impl Rank {
    pub(super) fn greet(&mut self, rank: RankId, out: &mut Outbox<Output>) {
        if self.lent.is_unsettled(rank) {
            return;
        }
        self.peers.links.insert(rank, Link::Greeting);
        let config = &self.view.config;
        let message = ClientMsg::RankHello {
            protocol: PROTOCOL,
            from: config.rank,
            incarnation: config.incarnation,
            to: rank,
            map_version: self.view.territory.version(),
            settled: self.sessions.former.is_empty() || stdx::mutant!("mds_lent_ends_with_life"),
        };
        out.push(Output::SendRank { rank, message });
    }

    /// Greets every rank of the map that was not greeted: a rank that lives again waits for that.
    pub(crate) fn greet_all(&mut self, out: &mut Outbox<Output>) {
        if !self.state.serves() {
            return;
        }
        let Some(map) = self.view.territory.map().cloned() else { return };
        let me = self.view.config.rank;
        for (rank, info) in map.ranks.iter().filter(|(rank, _)| **rank != me) {
            if info.state.serves_ranks() && !self.peers.links.contains_key(rank) {
                self.greet(*rank, out);
            }
        }
    }

    /// The connection to a rank is gone: what it told counts no more, and what it was asked is asked anew.
    pub(crate) fn rank_gone(&mut self, rank: RankId, out: &mut Outbox<Output>) {
        self.peers.links.remove(&rank);
        self.peers.maps.remove(&rank);
        self.peers.to_hear_presented.remove(&rank);
        // It may not have heard what it was asked for.
        self.peers.map_wanted = 0;
        let told: Vec<Ino> =
            self.peers.replicas.iter().filter(|(_, of)| **of == rank).map(|(ino, _)| *ino).collect();
        if !stdx::mutant!("mds_replica_outlives_link") {
            told.into_iter().for_each(|ino| self.drop_replica(ino));
        }
        if !stdx::mutant!("mds_totals_outlive_link") {
            self.view.totals.lost(rank);
        }
        self.lent_lost(rank);
        self.peers.questions.values_mut().filter(|asking| asking.rank == rank).for_each(Asking::anew);
        self.greet_all(out);
    }

    /// Another rank greets: its session here begins anew, and it keeps nothing of what it was told before.
    pub(crate) fn rank_hello(
        &mut self,
        now: Now,
        conn: ConnId,
        (protocol, to, version): (u16, RankId, u64),
        (from, incarnation, settled): (RankId, Incarnation, bool),
        out: &mut Outbox<Output>,
    ) {
        let Some(known) = self.sessions.conns.get(&conn) else { return };
        let odd = match (&known.peer, known.session) {
            (_, Some(_)) => Some("this connection has a session already"),
            (Peer::Embedded | Peer::User(_), None) => Some("only a peer that may act for anyone is a rank"),
            (Peer::Trusted, None) if known.limit != Ino::NONE => Some("what is limited is no rank"),
            (Peer::Trusted, None) if protocol != PROTOCOL => Some("the protocol is not spoken here"),
            (Peer::Trusted, None) if to != self.view.config.rank || from == to => Some("it is not meant"),
            (Peer::Trusted, None) => None,
        };
        if let Some(reason) = odd {
            return self.refuse(conn, Errno::EPROTO, reason, out);
        }
        if !self.state.serves() {
            return self.refuse(conn, Errno::ESHUTDOWN, "the rank does not serve", out);
        }
        let known = self.view.territory.map().and_then(|map| map.ranks.get(&from));
        if known.is_some_and(|info| info.incarnation > incarnation) {
            return self.refuse(conn, Errno::ESTALE, "another life of that rank is named", out);
        }
        let Some(id) = self.sessions.number(self.view.config.incarnation.0) else {
            return self.refuse(conn, Errno::EAGAIN, "all session numbers are used up", out);
        };
        self.end_rank(now, from, out);
        if settled {
            self.rank_settled(from);
        }
        if let Some(known) = self.sessions.conns.get_mut(&conn) {
            known.session = Some(id);
        }
        let place = self.view.book.enter(id, true);
        let client = format!("uid=0 rank:{} pid 0", from.0).into_bytes().into();
        let mut session = Session::of_rank(conn, (from, incarnation), client);
        (session.place, session.map_version) = (place, version);
        out.push(session.note(id, "opened"));
        self.sessions.insert(id, session);
        self.heard(from, settled);
        self.welcome(id, false, out);
    }

    /// A rank has greeted, or lives no more as it did: it keeps nothing from a former life of this one. `settled`: nor do its clients.
    fn heard(&mut self, rank: RankId, settled: bool) {
        if self.peers.ungreeted.remove(&rank).is_some() {
            if !settled {
                self.fades_later(rank);
            }
            self.look_at_ranks_again();
        }
    }

    /// Who waits for other ranks looks whether there is still something to wait for.
    pub(crate) fn look_at_ranks_again(&mut self) {
        let waiters = std::mem::take(&mut self.peers.ungreeted_waiters);
        self.runnable.extend(waiters);
    }

    /// Whether other ranks, or their clients, may keep what a former life of this one told.
    pub(crate) fn awaits_ranks(&self) -> bool {
        !self.peers.ungreeted.is_empty() || self.lent.fades()
    }

    /// The session of a rank ends, with all replicas it may keep.
    fn end_rank(&mut self, now: Now, rank: RankId, out: &mut Outbox<Output>) {
        let of_rank = |(id, session): (&SessionId, &Session)| {
            session.rank.is_some_and(|(of, _)| of == rank).then_some((*id, session.conn))
        };
        for (id, conn) in self.sessions.map.iter().filter_map(of_rank).collect::<Vec<_>>() {
            self.lingers(rank, id);
            self.end_session(now, id, out);
            if let Some(conn) = conn {
                self.close_conn(conn, out);
            }
        }
        self.ask_outcomes(Some(rank));
    }

    /// What a new map says of other ranks: who has another life keeps nothing of what it was told before.
    pub(crate) fn ranks_by_map(&mut self, now: Now, out: &mut Outbox<Output>) {
        let Some(map) = self.view.territory.map().cloned() else { return };
        // One that failed may still serve: not before a successor is named it is certain that it does not. One that says of itself
        // that it is damaged serves no more.
        let over = |rank: RankId, life: Incarnation| {
            let is_over = |info: &RankInfo| {
                info.incarnation > life || (info.state == RankState::Damaged && info.incarnation == life)
            };
            // A map may be heard of late: of a life that begins after it, it says nothing.
            let knows = life <= map.last_incarnation || stdx::mutant!("mds_old_map_ends_lives");
            map.ranks.get(&rank).map_or(knows, is_over)
        };
        let sessions = self.sessions.map.values().filter_map(|session| session.rank);
        let gone: Vec<RankId> =
            sessions.filter(|(rank, life)| over(*rank, *life)).map(|(rank, _)| rank).collect();
        for rank in gone {
            self.end_rank(now, rank, out);
        }
        let ungreeted: Vec<RankId> = self
            .peers
            .ungreeted
            .iter()
            .filter(|(rank, life)| over(**rank, **life))
            .map(|(rank, _)| *rank)
            .collect();
        ungreeted.into_iter().for_each(|rank| self.heard(rank, false));
        self.release_of_absent(now, out);
        self.greet_all(out);
    }

    /// The rank lives again: every other one may keep replicas from before.
    pub(crate) fn await_ranks(&mut self) {
        let me = self.view.config.rank;
        let Some(map) = self.view.territory.map() else { return };
        let others = map.ranks.iter().filter(|(rank, info)| {
            // Nobody knows of a failed one that it serves no more.
            let failed = info.state == RankState::Failed && info.incarnation != Incarnation(0);
            let may_serve = info.state.serves_ranks() || failed;
            **rank != me && may_serve && !stdx::mutant!("mds_ranks_not_awaited")
        });
        let ungreeted: BTreeMap<RankId, Incarnation> =
            others.map(|(rank, info)| (*rank, info.incarnation)).collect();
        // One that begins to live keeps no replica; but the clients of its life before may go by what the life before of this one told.
        let begins = |info: &RankInfo| {
            matches!(info.state, RankState::Replay | RankState::Resolve | RankState::Damaged)
                && !stdx::mutant!("mds_beginners_clients_forgotten")
        };
        let beginners = map.ranks.iter().filter(|(rank, info)| **rank != me && begins(info));
        let beginners: Vec<RankId> = beginners.map(|(rank, _)| *rank).collect();
        self.peers.ungreeted = ungreeted;
        beginners.into_iter().for_each(|rank| self.fades_later(rank));
    }

    /// Whether a session may ask that at all: ranks ask for little, and nobody else for what they do.
    pub(crate) fn may_ask(session: &Session, request: &Request) -> bool {
        let of_ranks = matches!(request, proto::rank_requests!());
        match session.rank {
            Some(_) => of_ranks || matches!(request, Request::GetAttr { .. }),
            None => !of_ranks,
        }
    }

    /// Whether the planned transaction changes what ranks may keep that have not greeted this life of the rank. Any directory that gets another
    /// place may be above what is limited somewhere, and be kept there for that.
    pub(crate) fn may_be_copied(&mut self, request: &Request) -> bool {
        if !self.awaits_ranks() {
            return false;
        }
        let needs = needs::of_transaction(&mut self.view);
        // By another name in the same directory nobody goes another way.
        let moves =
            matches!(request, Request::Rename { parent, new_parent, .. } if parent.ino != new_parent.ino);
        if moves && !self.peers.ungreeted.is_empty() && !stdx::mutant!("mds_renamed_unheard") {
            let is_dir =
                |ino| self.view.cache.by_ino(ino).is_some_and(|slot| self.view.cache.node(slot).is_dir());
            if needs.iter().any(|need| need.bits.has(Bits::LS) && is_dir(need.ino)) {
                return true;
            }
        }
        let inos = needs.iter().map(|need| need.ino);
        inos.into_iter().any(|ino| self.is_copied(ino))
    }

    /// Whether ranks that are waited for may keep a replica of an inode, or they or their clients totals of a directory's content.
    pub(crate) fn is_copied(&mut self, ino: Ino) -> bool {
        let shown = self.view.is_shown_elsewhere(ino) && !stdx::mutant!("mds_totals_not_awaited");
        shown || (!self.peers.ungreeted.is_empty() && self.view.is_boundary(ino))
    }
}
