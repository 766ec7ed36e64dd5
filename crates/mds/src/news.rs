//! The cluster map as it is told to sessions and to other ranks: what has changed since the one they have, or all of it.
//!
//! Absent: what the map says (`territory.rs`); who asks for it (`session/`), and when.

use crate::early::is_eager;
use crate::input::ConnId;
use crate::output::Output;
use crate::rank::Rank;
use proto::cluster::ClusterMap;
use proto::message::ServerMsg;
use proto::{Ino, SessionId};
use std::collections::VecDeque;
use stdx::Outbox;

/// Maps of which is kept what they changed, and bytes of that.
const KEPT_MAX: usize = 64;
const KEPT_BYTES_MAX: usize = 1 << 20;

/// What a map changed.
#[derive(Debug)]
struct Step {
    from: u64,
    to: u64,
    bytes: Vec<u8>,
}

/// What maps changed, one after the other.
#[derive(Debug, Default)]
pub(crate) struct News {
    steps: VecDeque<Step>,
    bytes: usize,
    /// The newest one as a whole, once it was told so: all who ask are told the same.
    whole: Vec<u8>,
}

impl News {
    /// There is a newer map.
    pub(crate) fn note(&mut self, before: Option<&ClusterMap>, map: &ClusterMap) {
        self.whole = Vec::new();
        let Some(before) = before else { return };
        let bytes = map.diff(before).encode();
        self.bytes += bytes.len();
        self.steps.push_back(Step { from: before.version, to: map.version, bytes });
        while self.steps.len() > KEPT_MAX || self.bytes > KEPT_BYTES_MAX {
            let Some(old) = self.steps.pop_front() else { break };
            self.bytes -= old.bytes.len();
        }
    }

    /// What leads from a map to the newest.
    fn since(&mut self, have: u64, map: &ClusterMap) -> Vec<ServerMsg> {
        let first = self.steps.iter().position(|step| step.from == have);
        match first {
            Some(first) => {
                let steps = self.steps.range(first..);
                steps.flat_map(|step| ServerMsg::maps(step.to, &step.bytes)).collect()
            }
            None => {
                if self.whole.is_empty() {
                    self.whole = map.encode();
                }
                ServerMsg::maps(map.version, &self.whole)
            }
        }
    }
}

impl Rank {
    /// What is said to whoever has a map of that version.
    fn news(&mut self, have: u64) -> Vec<ServerMsg> {
        let map = self.view.territory.map().filter(|map| map.version > have).cloned();
        map.map_or_else(Vec::new, |map| self.news.since(have, &map))
    }

    /// A session hears of the map, if its own is older.
    pub(crate) fn tell_map(&mut self, id: SessionId, out: &mut Outbox<Output>) {
        for message in self.map_for(id) {
            self.send_now(id, message, out);
        }
    }

    /// What a session is told of the map.
    fn map_for(&mut self, id: SessionId) -> Vec<ServerMsg> {
        let version = self.view.territory.version();
        let Some(session) = self.sessions.map.get_mut(&id).filter(|session| session.map_version < version)
        else {
            return Vec::new();
        };
        let mut messages = Vec::new();
        let have = std::mem::replace(&mut session.map_version, version);
        // Whoever may act for only one user, or in one directory, could choose names that all have one hash.
        let held = session.check.is_some() || session.limit != Ino::NONE;
        let may_know = session.is_clients() && !held && !stdx::mutant!("mds_seed_not_told");
        if may_know && !session.seed_told && !self.view.territory.is_only() {
            session.seed_told = true;
            let (generation, seed) = (self.view.config.fs_epoch, self.view.config.hash_seed);
            messages.push(ServerMsg::Numbers { first: Ino::NONE, count: 0, generation, seed });
        }
        messages.extend(self.news(have));
        messages
    }

    /// The map, for a session that is welcomed and may perform things, where there are other ranks: before it is delegated anything. What
    /// broke: a client that had asked nobody but rank 0 took that for the only one, and performed a rename of a directory to where another
    /// entry governs. Its caller was told that it was done, and the rank refused it (EXDEV).
    pub(crate) fn map_to_perform_by(&mut self, id: SessionId) -> Vec<ServerMsg> {
        let performs = self.sessions.map.get(&id).is_some_and(is_eager);
        let told = performs && self.view.territory.has_others() && !stdx::mutant!("mds_eager_without_map");
        if told { self.map_for(id) } else { Vec::new() }
    }

    /// There are other ranks now: whoever performs things hears of it at once.
    pub(crate) fn tell_who_performs(&mut self, out: &mut Outbox<Output>) {
        let eager = self.sessions.map.iter().filter(|(_, session)| is_eager(session)).map(|(id, _)| *id);
        for id in eager.collect::<Vec<_>>() {
            if !stdx::mutant!("mds_eager_hears_late") {
                self.tell_map(id, out);
            }
        }
    }

    /// Who has no session yet hears of it.
    pub(crate) fn tell_map_to(&mut self, conn: ConnId, have: u64, out: &mut Outbox<Output>) {
        out.extend(self.news(have).into_iter().map(|message| Output::Send { conn, message }));
    }

    /// A client wants it, because what it has is wrong or missing.
    pub(crate) fn want_map(&mut self, id: SessionId, have: u64, out: &mut Outbox<Output>) {
        if let Some(session) = self.sessions.map.get_mut(&id) {
            session.map_version = have;
        }
        self.tell_map(id, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::cluster::{Delta, Entry, Policy, Unit};
    use proto::{Frag, Ino, RankId};
    use std::sync::Arc;

    fn next(map: &ClusterMap, dir: u64) -> ClusterMap {
        let mut next = map.clone();
        next.version += 1;
        let entry = Entry { rank: RankId(0), version: next.version, policy: Policy::Pin, moving: None };
        Arc::make_mut(&mut next.entries).insert(Unit { dir: Ino(dir), frag: Frag::WHOLE }, entry);
        next
    }

    fn bytes(messages: &[ServerMsg]) -> Vec<&[u8]> {
        let mut all = Vec::new();
        for message in messages {
            let ServerMsg::Map { bytes, .. } = message else { panic!("{message:?}") };
            all.push(&bytes[..]);
        }
        all
    }

    #[test]
    fn who_has_a_late_map_is_told_what_changed_and_others_all_of_it() {
        let mut news = News::default();
        let mut map = ClusterMap::first();
        map.version = 10;
        news.note(None, &map);
        let begun = map.clone();
        for dir in 0..70 {
            let newer = next(&map, 5000 + dir);
            news.note(Some(&map), &newer);
            map = newer;
        }
        assert_eq!(news.steps.len(), KEPT_MAX);
        // The oldest are not kept.
        let whole = news.since(begun.version, &map);
        assert_eq!(bytes(&whole), [&map.encode()[..]]);
        let mut late = begun;
        for dir in 0..6 {
            late = next(&late, 5000 + dir);
        }
        let steps = news.since(late.version, &map);
        assert_eq!(steps.len(), 64);
        for step in bytes(&steps) {
            late.apply(&Delta::decode(step).expect("a delta")).expect("it fits");
        }
        assert_eq!(late, map);
        assert!(news.since(map.version - 1, &map).len() == 1 && news.since(999, &map).len() == 1);
    }

    #[test]
    fn great_changes_are_not_kept() {
        let mut news = News::default();
        let first = ClusterMap::first();
        let mut great = first.clone();
        great.version += 1;
        let entry = Entry { rank: RankId(0), version: 2, policy: Policy::Pin, moving: None };
        let entries = Arc::make_mut(&mut great.entries);
        entries.extend((5000..50_000).map(|dir| (Unit { dir: Ino(dir), frag: Frag::WHOLE }, entry)));
        news.note(Some(&first), &great);
        assert!(news.steps.is_empty() && news.bytes == 0);
        let whole = news.since(first.version, &great);
        assert!(whole.len() > 1, "in parts");
        assert_eq!(bytes(&whole).concat(), great.encode());
    }
}
