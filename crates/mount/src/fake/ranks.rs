//! Several fake ranks of one tree: each carries out what is about its own directories, and sends everything else away.
//!
//! Absent: moves; a directory is pinned at once. What concerns two ranks is done by the one that is asked.

use super::{Fake, Posts, State};
use crate::shared::lock;
use proto::cluster::{ClusterMap, DaemonId, DaemonInfo, Entry, Policy, RankInfo, RankState, Unit};
use proto::message::ServerMsg;
use proto::request::Request;
use proto::{Errno, Frag, Incarnation, Ino, NodeRef, RankId, SessionId, Tid};
use std::sync::Arc;

/// A session's part at a rank, as the fake counts it.
pub(super) const fn part(session: SessionId, rank: RankId) -> SessionId {
    SessionId(session.0 << 16 | rank.0 as u64)
}

/// The session that a part is of.
pub(super) const fn whole(part: SessionId) -> SessionId {
    SessionId(part.0 >> 16)
}

const fn rank_of(part: SessionId) -> u16 {
    part.0 as u16
}

/// The rank goes, and has nothing of the session.
pub(super) fn leaves() -> ServerMsg {
    ServerMsg::Refused { errno: Errno::ENOTCONN.0 as u32, reason: "the rank leaves".to_owned() }
}

/// Who owns what.
#[derive(Default)]
pub(super) struct Ranks {
    /// None: rank 0 everything.
    map: Option<ClusterMap>,
    /// What was sent away.
    sent_away: u64,
}

impl Ranks {
    /// Whether the rank is to go.
    pub(super) fn stops(&self, rank: RankId) -> bool {
        let info = self.map.as_ref().and_then(|map| map.ranks.get(&rank));
        info.is_some_and(|info| info.state == RankState::Stopping)
    }

    /// The map, for whoever has an older one.
    pub(super) fn news(&self, have: u64) -> Option<ServerMsg> {
        let map = self.map.as_ref().filter(|map| map.version > have)?;
        ServerMsg::maps(map.version, &map.encode()).into_iter().next()
    }
}

fn owner_by_entry(map: &ClusterMap, dir: Ino) -> Option<RankId> {
    map.entries.get(&Unit { dir, frag: Frag::WHOLE }).map(|entry| entry.rank)
}

fn first_map(ranks: u16) -> ClusterMap {
    let mut map = ClusterMap::first();
    map.max_mds = ranks;
    (map.last_incarnation, map.last_daemon) = (Incarnation(ranks.into()), DaemonId(ranks.into()));
    for rank in 0..ranks {
        let (daemon, incarnation) = (DaemonId(u64::from(rank) + 1), Incarnation(u64::from(rank) + 1));
        map.daemons.insert(daemon, DaemonInfo { name: rank.to_string() });
        map.ranks.insert(RankId(rank), RankInfo { state: RankState::Active, incarnation, daemon });
        map.made = map.made.with(RankId(rank));
    }
    map
}

impl Fake {
    /// There are several ranks; the first has everything.
    #[must_use]
    pub fn ranks(self, ranks: u16) -> Self {
        lock(&self.state).ranks.map = Some(first_map(ranks));
        self
    }

    /// What is in a directory, and below it, is another rank's from here on. Clients hear of it when they meet a rank.
    pub fn pin(&self, dir: Ino, rank: u16) {
        let mut state = lock(&self.state);
        let Some(map) = &mut state.ranks.map else { return };
        map.version += 1;
        let entry = Entry { rank: RankId(rank), version: map.version, policy: Policy::Pin, moving: None };
        Arc::make_mut(&mut map.entries).insert(Unit { dir, frag: Frag::WHOLE }, entry);
    }

    /// A rank stops: the first one has what it had, and every client hears of it. The rank ends all sessions, and says so.
    pub fn stop_rank(&self, rank: u16) {
        let news = {
            let mut state = lock(&self.state);
            let Some(map) = &mut state.ranks.map else { return };
            map.version += 1;
            for entry in Arc::make_mut(&mut map.entries).values_mut() {
                entry.rank = RankId(0);
            }
            if let Some(info) = map.ranks.get_mut(&RankId(rank)) {
                info.state = RankState::Stopping;
            }
            state.ranks.news(0)
        };
        if let Some(news) = news {
            self.say(&news);
        }
        let posts = {
            let mut state = lock(&self.state);
            state.sessions.retain(|part, _| rank_of(*part) != rank);
            let conns = state.conns.iter().filter(|(_, conn)| conn.rank == RankId(rank));
            conns.map(|(id, _)| (*id, leaves())).collect()
        };
        self.post(posts);
    }

    /// How many requests were sent away.
    #[must_use]
    pub fn sent_away(&self) -> u64 {
        lock(&self.state).ranks.sent_away
    }

    /// Breaks the connections to a rank.
    pub fn cut_rank(&self, rank: u16) {
        let mut state = lock(&self.state);
        let of = |conn: &super::Conn| conn.rank == RankId(rank);
        let gone: Vec<u64> = state.conns.iter().filter(|(_, conn)| of(conn)).map(|(id, _)| *id).collect();
        let sinks: Vec<_> = gone.iter().filter_map(|id| state.conns.remove(id)).collect();
        state.held.retain(|(conn, _)| !gone.contains(conn));
        drop(state);
        sinks.into_iter().for_each(|conn| conn.sink.disconnected());
    }

    /// Ranks to which there are connections.
    #[must_use]
    pub fn connected(&self) -> Vec<u16> {
        let state = lock(&self.state);
        let mut ranks: Vec<u16> = state.conns.values().map(|conn| conn.rank.0).collect();
        ranks.sort_unstable();
        ranks
    }
}

impl State {
    /// What is said instead of carrying out what another rank owns.
    pub(super) fn sent_away(&mut self, conn: u64, tid: Tid, request: &Request) -> Option<Posts> {
        let own = self.conns.get(&conn)?.rank;
        self.ranks.map.as_ref()?;
        let own_part = |node: &NodeRef| {
            self.ranks.map.as_ref().and_then(|map| owner_by_entry(map, node.ino)) == Some(own)
        };
        if matches!(request, Request::Fsync { node, .. } if own_part(node)) {
            return None;
        }
        let owner = self.owner(request).filter(|owner| *owner != own)?;
        self.ranks.sent_away += 1;
        let version = self.ranks.map.as_ref().map_or(0, |map| map.version);
        let away = ServerMsg::NotMine { tid, owner: Some(owner), version };
        Some(self.ranks.news(0).into_iter().chain([away]).map(|message| (conn, message)).collect())
    }

    fn owner(&mut self, request: &Request) -> Option<RankId> {
        let inside = match request {
            Request::ReadDir { dir, .. } | Request::TmpFile { parent: dir, .. } => Some(dir.ino),
            Request::Rename { new_parent, .. } => Some(new_parent.ino),
            Request::Link { parent, .. } => Some(parent.ino),
            other => other.subject().filter(|(_, name)| name.is_some()).map(|(node, _)| node.ino),
        };
        // A name may be one of an xattr.
        let named = matches!(
            request,
            Request::GetXattr { .. } | Request::SetXattr { .. } | Request::RemoveXattr { .. }
        );
        let dir = match inside.filter(|_| !named) {
            Some(dir) => dir,
            None => {
                let (NodeRef { ino, .. }, _) = request.subject()?;
                if ino == Ino::ROOT {
                    return Some(RankId(0));
                }
                self.tree.parent(ino)?
            }
        };
        self.content(dir)
    }

    fn content(&mut self, dir: Ino) -> Option<RankId> {
        let mut at = dir;
        loop {
            if let Some(rank) = owner_by_entry(self.ranks.map.as_ref()?, at) {
                return Some(rank);
            }
            at = self.tree.parent(at)?;
        }
    }
}
